/* runtime.c: the process's one scheduler: started at first use, replaced in a forked child.
 *
 * I1: everything here but the fork handler needs the client lock.
 * I2: a child never touches the parent's threads, ring or eventfds; its scheduler is a new one, and
 *     futures of the parent that were pending report DT_E_SHUTDOWN (future.c).
 * I3: after dt_runtime_shutdown no new scheduler starts.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "futures/dispatch.h"
#include "runtime/assert.h"

static dt_sched *shared;
static bool stopped;
static bool fork_handler_installed;

static void forget_in_child(void) {
    if (shared) dt_sched_abandon(shared);
    shared = NULL;
    stopped = false;
}

static dt_status read_environment(dt_sched_options *options) {
    *options = (dt_sched_options){.io = getenv("DTORCH_IO")};
    const char *threads = getenv("DTORCH_NUM_THREADS");
    if (!threads || !*threads) return DT_OK;
    char *end;
    errno = 0;
    long n = strtol(threads, &end, 10);
    if (*end != '\0' || errno != 0 || n < 1 || n > DT_THREADS_MAX)
        return dt_fail(DT_E_VALUE, "DTORCH_NUM_THREADS is '%s'; legal is an integer from 1 to %d",
                       threads, DT_THREADS_MAX);
    options->threads = (int)n;
    return DT_OK;
}

static dt_status start(void) {
    if (stopped)
        return dt_fail(DT_E_SHUTDOWN, "dtorch has been shut down: no op can be started any more");
    dt_sched_options options;
    DT_TRY(read_environment(&options));
    if (!fork_handler_installed) {
        if (pthread_atfork(NULL, NULL, forget_in_child) != 0)
            return dt_fail(DT_E_NO_MEMORY, "out of memory: no fork handler");
        fork_handler_installed = true;
    }
    dt_sched *started;
    DT_TRY(dt_sched_start(&options, &started));
    shared = started;
    return DT_OK;
}

dt_status dt_runtime_get(dt_sched **out) {
    if (DT_UNLIKELY(shared == NULL)) DT_TRY(start());
    *out = shared;
    return DT_OK;
}

dt_sched *dt_runtime(void) {
    dt_sched *sched;
    return dt_runtime_get(&sched) == DT_OK ? sched : NULL;
}

bool dt_runtime_started(void) { return shared != NULL; }

void dt_runtime_shutdown(void) {
    stopped = true;
    dt_sched *sched = shared;
    shared = NULL;
    if (sched) dt_sched_stop(sched);
}
