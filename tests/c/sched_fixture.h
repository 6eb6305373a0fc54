/* sched_fixture.h: what tests of the whole scheduler share: one scheduler at a time, on either
 * backend, looked over for leaks when it stops; and ways to bring it to a standstill.
 */
#ifndef DT_TESTS_SCHED_FIXTURE_H
#define DT_TESTS_SCHED_FIXTURE_H

#include <sched.h>

#include "scheduler/controller.h"
#include "tests/c/sched_support.h"

static const char *const backends[] = {"uring", "epoll"};
static dt_memory_stats before;
static fake_ends ends;

static FAKE_UNUSED dt_sched *start(int threads, int backend) {
    before = test_memory();
    return fake_sched(threads, backends[backend]);
}

static FAKE_UNUSED void stop(dt_sched *s) {
    dt_sched_stop(s);
    fake_ends_clear(&ends);
    test_assert_no_leak(before);
}

/* A case of tests that each run with _i = 0 and 1: the backend. */
#define BOTH_BACKENDS(suite, name, ...)                                                            \
    do {                                                                                           \
        TCase *tcase_ = tcase_create(name);                                                        \
        const TTest *const tests_[] = {__VA_ARGS__};                                               \
        for (size_t k_ = 0; k_ < sizeof tests_ / sizeof tests_[0]; k_++)                           \
            tcase_add_loop_test(tcase_, tests_[k_], 0, 2);                                         \
        suite_add_tcase(suite, tcase_);                                                            \
    } while (0)

static FAKE_UNUSED dt_sched_stats stats_of(dt_sched *s) {
    dt_sched_stats stats;
    dt_sched_stats_get(s, &stats);
    return stats;
}

/* Without a kernel: a fence, a timer. */
static FAKE_UNUSED dt_task *bare_task(dt_task_kind kind, dt_tensor *in, fake_ends *e) {
    dt_task *task;
    ck_assert_ok(dt_task_new(kind, 0, in != NULL, &task));
    if (in != NULL) task->call.operands[0] = dt_tensor_retain(in);
    task->user = e;
    task->on_end = fake_on_end;
    return task;
}

/* Waits until everything submitted so far has been linked, and the words among it have been heard
 * and acted upon. */
static FAKE_UNUSED void settle(dt_sched *s) {
    fake_ends own = {0};
    dt_sched_submit(s, bare_task(DT_TASK_FENCE, NULL, &own));
    fake_await(&own, 1);
}

/* Waits until the controller sleeps, and lets it sleep: nobody knocks any more. */
static FAKE_UNUSED void lull(dt_sched *s) {
    for (bool asleep = false; !asleep; sched_yield()) {
        pthread_mutex_lock(&s->role);
        asleep = dt_gate_is_closed(&s->gate) && dt_sched_in_flight(s) == 0;
        if (asleep) dt_gate_open(&s->gate);
        pthread_mutex_unlock(&s->role);
    }
}

static FAKE_UNUSED void wake(dt_sched *s) { dt__io_wake(s->io); }

/* The controller's time, which stands still unless the test moves it. */
static _Atomic(int64_t) time_ns;

static int64_t given_time(void *context) {
    (void)context;
    return atomic_load(&time_ns);
}

static FAKE_UNUSED void freeze(dt_sched *s, int64_t now_ns) {
    lull(s);
    atomic_store(&time_ns, now_ns);
    pthread_mutex_lock(&s->role);
    s->controller.clock.now_ns = given_time;
    pthread_mutex_unlock(&s->role);
    wake(s);
}

/* A worker stands before `gate` and writes `out` (or nothing) once it is open. */
static FAKE_UNUSED void submit_gated(dt_sched *s, fake_gate *gate, dt_tensor *out) {
    dt_task *task = fake_task(&ends, out, NULL, 0, NULL, 0, 0);
    task->call.params.i[FAKE_GATE] = (int64_t)(intptr_t)gate;
    dt_sched_submit(s, task);
    fake_gate_await(gate);
}

#endif
