/* threads.h: how the scheduler starts its threads, and how many CPUs it may use. */
#ifndef DT_SCHEDULER_THREADS_H
#define DT_SCHEDULER_THREADS_H

#include <pthread.h>

#include "runtime/status.h"

/* Starts a thread that blocks all signals and has a name (printf-like, at most 15 bytes). */
dt_status dt__thread_start(pthread_t *thread, void *(*main)(void *), void *argument,
                           const char *name_format, int index) DT_MUST_CHECK;

/* Of one "quota period" or "max period" line; 0: no limit. Exposed for tests. */
int dt__threads_parse_cpu_max(const char *text);

#endif
