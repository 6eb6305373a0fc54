/* micro_future.c: completion states: made, completed, waited for, by one thread and by two. */
#include <pthread.h>

#include "bench/micro.h"
#include "futures/future.h"

#define BATCH 1000

static int64_t woken; /* by callbacks, in the completing thread */

static void wake(dt_waiter *waiter) {
    micro_keep(waiter);
    woken++;
}

static void complete(void *context) {
    (void)context;
    for (int i = 0; i < BATCH; i++) {
        dt_future *f;
        MICRO_OK(dt_future_new(&f));
        dt_future_complete(f, NULL);
        dt_future_release(f);
    }
}

static void complete_and_wake(void *context) {
    (void)context;
    for (int i = 0; i < BATCH; i++) {
        dt_future *f;
        dt_waiter waiter = {.wake = wake};
        MICRO_OK(dt_future_new(&f));
        if (!dt_future_add_waiter(f, &waiter)) micro_die("complete before it was completed");
        dt_future_complete(f, NULL);
        dt_future_release(f);
    }
}

static void wake_many(void *context) {
    dt_waiter *waiters = context;
    dt_future *f;
    MICRO_OK(dt_future_new(&f));
    for (int i = 0; i < BATCH; i++) {
        waiters[i].wake = wake;
        if (!dt_future_add_waiter(f, &waiters[i])) micro_die("complete before it was completed");
    }
    dt_future_complete(f, NULL);
    dt_future_release(f);
}

static void wait_ready(void *context) {
    for (int i = 0; i < BATCH; i++) MICRO_OK(dt_future_wait(context, -1, NULL, NULL));
}

/* ---- two threads: from complete() in one to the return of wait() in the other */

typedef struct handover {
    dt_future *future;
    int64_t woken_ns;
    _Atomic(bool) waiting;
} handover;

static void *sleeper(void *context) {
    handover *h = context;
    atomic_store(&h->waiting, true);
    MICRO_OK(dt_future_wait(h->future, -1, NULL, NULL));
    h->woken_ns = dt_clock_ns();
    return NULL;
}

static double wake_thread_ns(void) {
    handover h = {0};
    MICRO_OK(dt_future_new(&h.future));
    pthread_t thread;
    if (pthread_create(&thread, NULL, sleeper, &h) != 0) micro_die("no thread");
    struct timespec ms = {0, 1000000};
    while (!atomic_load(&h.waiting)) nanosleep(&ms, NULL);
    nanosleep(&ms, NULL); /* it sleeps by now */
    int64_t begin_ns = dt_clock_ns();
    dt_future_complete(h.future, NULL);
    pthread_join(thread, NULL);
    dt_future_release(h.future);
    return (double)(h.woken_ns - begin_ns);
}

int main(int argc, char **argv) {
    micro_begin(argc, argv, "futures");
    micro_run("new, complete, release", BATCH, complete, NULL);
    micro_run("new, add waiter, complete with wake, release", BATCH, complete_and_wake, NULL);
    static dt_waiter waiters[BATCH];
    micro_run("a waiter of 1,000 on one future", BATCH, wake_many, waiters);
    dt_future *ready;
    MICRO_OK(dt_future_new(&ready));
    dt_future_complete(ready, NULL);
    micro_run("wait for a ready one", BATCH, wait_ready, ready);
    dt_future_release(ready);
    if (woken == 0) micro_die("nobody was woken");

    enum { HANDOVERS = 300 };
    int count = micro_samples(HANDOVERS);
    double samples[HANDOVERS];
    for (int i = 0; i < count; i++) samples[i] = wake_thread_ns();
    micro_each("complete, until a sleeping thread runs", samples, count, 1);
    return micro_end();
}
