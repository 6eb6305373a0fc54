/* sleep_support.h: waiting until a scheduler's controller has nothing to do. */
#ifndef DT_TESTS_SLEEP_SUPPORT_H
#define DT_TESTS_SLEEP_SUPPORT_H

#include <sched.h>

#include "scheduler/controller.h"

/* Until the controller has seen all that was submitted, and sleeps. */
static void test_await_sleep(dt_sched *s) {
    for (bool asleep = false; !asleep; sched_yield()) {
        pthread_mutex_lock(&s->role);
        asleep = dt_gate_is_closed(&s->gate) && dt_mpsc_is_empty(&s->submitted);
        pthread_mutex_unlock(&s->role);
    }
}

#endif
