/* runtime.c: the process's one scheduler: started at first use, replaced in a forked child.
 *
 * I1: everything here but the fork handler needs the client lock.
 * I2: a child never touches the parent's threads, ring or eventfds; its scheduler is a new one, and
 *     futures of the parent that were pending report DT_E_SHUTDOWN (future.c).
 * I3: after dt_runtime_shutdown no new scheduler starts.
 */
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

dt_sched *dt_runtime(void) {
    if (DT_LIKELY(shared != NULL)) return shared;
    if (stopped) {
        (void)dt_fail(DT_E_SHUTDOWN, "dtorch has been shut down: no op can be started any more");
        return NULL;
    }
    dt_sched_options options = {.io = getenv("DTORCH_IO")};
    const char *threads = getenv("DTORCH_NUM_THREADS");
    if (threads && *threads) {
        char *end;
        long n = strtol(threads, &end, 10);
        if (*end != '\0' || n < 1 || n > DT_THREADS_MAX) {
            (void)dt_fail(DT_E_VALUE, "DTORCH_NUM_THREADS is '%s'; legal is an integer from 1 to %d",
                          threads, DT_THREADS_MAX);
            return NULL;
        }
        options.threads = (int)n;
    }
    if (!fork_handler_installed) {
        if (pthread_atfork(NULL, NULL, forget_in_child) != 0) {
            (void)dt_fail(DT_E_NO_MEMORY, "out of memory: no fork handler");
            return NULL;
        }
        fork_handler_installed = true;
    }
    dt_sched *started;
    if (dt_sched_start(&options, &started) != DT_OK) return NULL;
    shared = started;
    return shared;
}

bool dt_runtime_started(void) { return shared != NULL; }

void dt_runtime_shutdown(void) {
    stopped = true;
    dt_sched *sched = shared;
    shared = NULL;
    if (sched) dt_sched_stop(sched);
}
