/* test_future.c: states, waiters, blocking waits, races of completion, forks. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "futures/future.h"
#include "scheduler/futex.h"
#include "tests/c/test_support.h"

static dt_future *new_future(void) {
    dt_future *f;
    ck_assert_ok(dt_future_new(&f));
    return f;
}

static dt_error *make_error(dt_status status) {
    (void)dt_fail(status, "some error");
    return dt_error_capture(status);
}

START_TEST(states) {
    dt_memory_stats before = test_memory();
    static const struct {
        dt_status status;
        dt_future_state state;
    } cases[] = {{DT_OK, DT_FUTURE_READY},
                 {DT_E_VALUE, DT_FUTURE_FAILED},
                 {DT_E_CANCELLED, DT_FUTURE_CANCELLED}};
    for (int k = 0; k < 3; k++) {
        dt_future *f = new_future();
        ck_assert_int_eq(dt_future_get_state(f), DT_FUTURE_PENDING);
        ck_assert_ptr_null(dt_future_error(f));
        dt_error *error = cases[k].status == DT_OK ? NULL : make_error(cases[k].status);
        dt_future_complete(f, error);
        dt_error_release(error); /* the future has its own reference */
        ck_assert_int_eq(dt_future_get_state(f), cases[k].state);
        ck_assert_ptr_eq(dt_future_error(f), error);
        if (error != NULL) ck_assert_str_eq(dt_error_message(dt_future_error(f)), "some error");
        dt_future_release(dt_future_retain(f));
        dt_future_release(f);
    }
    dt_future_release(NULL);
    test_assert_no_leak(before);
}
END_TEST

/* ---- failures that nobody sees --------------------------------------------------------------- */

static int unseen;

static void on_unseen(dt_error *error) {
    unseen++;
    dt_error_release(error);
}

/* Completes `futures` futures with one error and drops them all. */
static int unseen_after(dt_status status, int futures, bool seen) {
    dt_error *error = make_error(status);
    dt_future *f[4];
    unseen = 0;
    for (int k = 0; k < futures; k++) {
        f[k] = new_future();
        dt_future_complete(f[k], error);
    }
    dt_error_release(error);
    if (seen) ck_assert_int_eq(dt_error_restore(dt_future_error(f[0])), status);
    for (int k = 0; k < futures; k++) {
        ck_assert_int_eq(unseen, 0);
        dt_future_release(f[k]);
    }
    return unseen;
}

START_TEST(failure_that_nobody_sees_is_told_once) {
    dt_memory_stats before = test_memory();
    dt_error_set_unseen_hook(on_unseen);
    ck_assert_int_eq(unseen_after(DT_E_VALUE, 1, false), 1);
    ck_assert_int_eq(unseen_after(DT_E_VALUE, 4, false), 1);
    ck_assert_int_eq(unseen_after(DT_E_VALUE, 4, true), 0);
    ck_assert_int_eq(unseen_after(DT_E_CANCELLED, 1, false), 0);
    ck_assert_int_eq(unseen_after(DT_E_SHUTDOWN, 1, false), 0);
    dt_error_set_unseen_hook(NULL);
    test_assert_no_leak(before);
}
END_TEST

/* ---- waiters -------------------------------------------------------------------------------- */

typedef struct waiter {
    dt_waiter base;
    int number;
} waiter;

static _Atomic(int) woken, order[1000];

static void wake(dt_waiter *base) {
    waiter *w = (waiter *)base;
    atomic_store(&order[atomic_fetch_add(&woken, 1)], w->number);
    free(w);
}

static waiter *new_waiter(int number) {
    waiter *w = malloc(sizeof *w);
    w->base.wake = wake;
    w->number = number;
    return w;
}

START_TEST(waiters_are_woken_in_order) {
    dt_future *f = new_future();
    for (int k = 0; k < 10; k++) ck_assert(dt_future_add_waiter(f, &new_waiter(k)->base));
    ck_assert_int_eq(woken, 0);
    dt_future_complete(f, NULL);
    ck_assert_int_eq(woken, 10);
    for (int k = 0; k < 10; k++) ck_assert_int_eq(order[k], k);
    waiter late = {.base.wake = wake};
    ck_assert(!dt_future_add_waiter(f, &late.base));
    ck_assert_int_eq(woken, 10);
    dt_future_release(f);
}
END_TEST

static void *complete_it(void *argument) {
    dt_future *f = argument;
    for (volatile int k = 0; k < 2000; k++) {}
    dt_future_complete(f, NULL);
    dt_future_release(f);
    return NULL;
}

/* Every waiter is woken once, or was told that it came too late. */
START_TEST(adding_and_completing_race) {
    for (int round = 0; round < 300; round++) {
        dt_future *f = new_future();
        atomic_store(&woken, 0);
        pthread_t thread;
        pthread_create(&thread, NULL, complete_it, dt_future_retain(f));
        int added = 0;
        for (int k = 0; k < 200; k++) {
            waiter *w = new_waiter(k);
            if (dt_future_add_waiter(f, &w->base)) {
                added++;
            } else {
                ck_assert_int_eq(dt_future_get_state(f), DT_FUTURE_READY);
                free(w);
            }
        }
        pthread_join(thread, NULL);
        ck_assert_int_eq(atomic_load(&woken), added);
        dt_future_release(f);
    }
}
END_TEST

/* ---- blocking ------------------------------------------------------------------------------- */

START_TEST(wait_times_out) {
    dt_memory_stats before = test_memory();
    dt_future *f = new_future();
    int64_t begin_ns = dt_clock_ns();
    ck_assert_int_eq(dt_future_wait(f, 0, NULL, NULL), DT_IN_PROGRESS);
    ck_assert_int_eq(dt_future_wait(f, 3000000, NULL, NULL), DT_IN_PROGRESS);
    ck_assert_int_ge(dt_clock_ns() - begin_ns, 3000000);
    dt_future_complete(f, NULL);
    ck_assert_int_eq(dt_future_wait(f, 0, NULL, NULL), DT_OK);
    ck_assert_int_eq(dt_future_wait(f, -1, NULL, NULL), DT_OK);
    dt_future_release(f);
    test_assert_no_leak(before);
}
END_TEST

static void *wait_for_it(void *argument) {
    dt_status status = dt_future_wait(argument, -1, NULL, NULL);
    dt_future_release(argument);
    return (void *)(intptr_t)status;
}

START_TEST(many_threads_wait) {
    for (int round = 0; round < 50; round++) {
        dt_future *f = new_future();
        pthread_t threads[4];
        for (int k = 0; k < 4; k++)
            pthread_create(&threads[k], NULL, wait_for_it, dt_future_retain(f));
        for (volatile int k = 0; k < round * 1000; k++) {}
        dt_future_complete(f, NULL);
        for (int k = 0; k < 4; k++) {
            void *status;
            pthread_join(threads[k], &status);
            ck_assert_int_eq((int)(intptr_t)status, DT_OK);
        }
        dt_future_release(f);
    }
}
END_TEST

static int asked;

static int interrupt_later(void *context) {
    asked++;
    return asked == *(int *)context;
}

START_TEST(wait_is_interrupted) {
    dt_future *f = new_future();
    int limit = 3;
    int64_t begin_ns = dt_clock_ns();
    ck_assert_int_eq(dt_future_wait(f, -1, interrupt_later, &limit), DT_IN_PROGRESS);
    ck_assert_int_eq(asked, 3);
    ck_assert_int_ge(dt_clock_ns() - begin_ns, 10000000); /* it slept in between */
    limit = -1;
    ck_assert_int_eq(dt_future_wait(f, 50000000, interrupt_later, &limit), DT_IN_PROGRESS);
    ck_assert_int_le(asked, 10);
    dt_future_complete(f, NULL);
    dt_future_release(f);
}
END_TEST

static _Atomic(int) got_signal;
static void on_signal(int number) { atomic_store(&got_signal, number); }
static int is_signalled(void *context) {
    (void)context;
    return atomic_load(&got_signal);
}

static void *signal_later(void *argument) {
    struct timespec ts = {0, 5000000};
    nanosleep(&ts, NULL);
    pthread_kill(*(pthread_t *)argument, SIGUSR1);
    return NULL;
}

START_TEST(signal_ends_the_wait) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    dt_future *f = new_future();
    pthread_t self = pthread_self(), thread;
    pthread_create(&thread, NULL, signal_later, &self);
    ck_assert_int_eq(dt_future_wait(f, 20000000000, is_signalled, NULL), DT_IN_PROGRESS);
    ck_assert_int_eq(atomic_load(&got_signal), SIGUSR1);
    pthread_join(thread, NULL);
    dt_future_complete(f, NULL);
    dt_future_release(f);
}
END_TEST

/* ---- fork ----------------------------------------------------------------------------------- */

static int child_of_fork(dt_future *pending, dt_future *ready) {
    waiter w = {.base.wake = wake};
    if (dt_future_get_state(pending) != DT_FUTURE_FAILED) return 1;
    if (dt_error_status(dt_future_error(pending)) != DT_E_SHUTDOWN) return 2;
    if (dt_future_error(pending) != dt_future_error(pending)) return 3;
    if (dt_future_wait(pending, -1, NULL, NULL) != DT_OK) return 4;
    if (dt_future_add_waiter(pending, &w.base)) return 5;
    if (dt_future_get_state(ready) != DT_FUTURE_READY) return 6;
    if (dt_future_error(ready) != NULL) return 7;
    dt_future *own;
    if (dt_future_new(&own) != DT_OK) return 8;
    if (dt_future_get_state(own) != DT_FUTURE_PENDING) return 9;
    dt_future_complete(own, NULL);
    if (dt_future_wait(own, -1, NULL, NULL) != DT_OK) return 10;
    dt_future_release(own);
    return 0;
}

START_TEST(pending_futures_fail_in_a_forked_child) {
    dt_future *pending = new_future(), *ready = new_future();
    dt_future_complete(ready, NULL);
    pid_t pid = fork();
    if (pid == 0) _exit(child_of_fork(pending, ready));
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(dt_future_get_state(pending), DT_FUTURE_PENDING);
    dt_future_complete(pending, NULL);
    ck_assert_int_eq(dt_future_get_state(pending), DT_FUTURE_READY);
    dt_future_release(pending);
    dt_future_release(ready);
}
END_TEST

static dt_status scenario(void) {
    dt_future *f;
    DT_TRY(dt_future_new(&f));
    dt_future_release(f);
    return DT_OK;
}

START_TEST(every_allocation_fails) { ck_assert_int_eq(test_every_allocation_fails(scenario), 1); }
END_TEST

int main(void) {
    Suite *suite = suite_create("future");
    TEST_CASE(suite, "state", states, every_allocation_fails,
              failure_that_nobody_sees_is_told_once);
    TEST_CASE(suite, "waiters", waiters_are_woken_in_order, adding_and_completing_race);
    TEST_CASE(suite, "wait", wait_times_out, many_threads_wait, wait_is_interrupted,
              signal_ends_the_wait);
    TEST_CASE(suite, "fork", pending_futures_fail_in_a_forked_child);
    return test_run(suite);
}
