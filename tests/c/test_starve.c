/* test_starve.c: tasks that wait for memory below a limit, on both I/O backends. */
#include <check.h>

#include "tests/c/sched_fixture.h"

enum { MEGA = 1 << 17 }; /* elements of 1 MiB */

/* Limits what storages may take to `tensors` of a MiB beside what there is now. */
static void limit_to(double tensors) {
    dt_memory_limit_set(test_memory().live_bytes + (int64_t)(tensors * MEGA * 8));
}

/* Until when clients may free memory before somebody fails for want of it. */
static int64_t mercy_of(dt_sched *s) {
    pthread_mutex_lock(&s->role);
    int64_t mercy_ns = s->controller.mercy_ns;
    pthread_mutex_unlock(&s->role);
    return mercy_ns;
}

/* The next mercy but that one. */
static int64_t await_mercy(dt_sched *s, int64_t last_ns) {
    int64_t mercy_ns;
    while ((mercy_ns = mercy_of(s)) == 0 || mercy_ns == last_ns) sched_yield();
    return mercy_ns;
}

/* A scheduler whose time stands still, and memory for half of MEGA beside *kept. */
static dt_sched *start_short(int backend, dt_tensor **kept) {
    dt_sched *s = start(2, backend);
    freeze(s, dt_clock_ns());
    *kept = fake_full(MEGA, 1);
    limit_to(0.5);
    return s;
}

static void stop_short(dt_sched *s) {
    fake_drain(s);
    dt_memory_limit_set(0);
    stop(s);
}

/* A big temporary and what is made of it: one temporary fits at a time. */
START_TEST(memory_for_one_at_a_time) {
    dt_sched *s = start(3, _i);
    enum { PAIRS = 12 };
    dt_tensor *big[PAIRS], *result[PAIRS];
    limit_to(1.5);
    for (int k = 0; k < PAIRS; k++) {
        big[k] = fake_tensor(MEGA);
        result[k] = fake_tensor(10);
        dt_sched_submit(s, fake_task(&ends, big[k], NULL, 0, NULL, 0, k));
        dt_tensor *head = fake_view(big[k], MEGA - 10, 10, 1);
        dt_sched_submit(s, fake_task(&ends, result[k], head, 2, NULL, 0, 0));
        dt_tensor_release(head);
        dt_tensor_release(big[k]);
    }
    fake_await(&ends, 2 * PAIRS);
    ck_assert_int_eq(ends.failed, 0);
    for (int k = 0; k < PAIRS; k++) {
        ck_assert_int_eq(*fake_at(result[k], 9), 2 * k);
        dt_tensor_release(result[k]);
    }
    stop_short(s);
}
END_TEST

/* What can never fit fails, as does what needs it; others are not touched. */
START_TEST(what_never_fits_fails_alone) {
    dt_sched *s = start(2, _i);
    dt_tensor *x = fake_full(10, 3), *huge = fake_tensor(4 * MEGA), *after = fake_tensor(10);
    dt_tensor *good[20];
    fake_ends bad = {0};
    limit_to(2);
    dt_sched_submit(s, fake_task(&bad, huge, NULL, 0, NULL, 0, 1));
    dt_sched_submit(s, fake_task(&bad, after, huge, 1, NULL, 0, 0));
    for (int k = 0; k < 20; k++) {
        good[k] = fake_tensor(1000);
        dt_sched_submit(s, fake_task(&ends, good[k], NULL, 0, NULL, 0, k));
    }
    fake_await(&ends, 20);
    fake_await(&bad, 2);
    ck_assert_int_eq(ends.failed, 0);
    ck_assert_int_eq(bad.failed, 2);
    ck_assert_int_eq(dt_error_status(bad.error), DT_E_NO_MEMORY);
    dt_sched_submit(s, fake_task(&ends, x, x, 2, NULL, 0, 0)); /* and later */
    fake_await(&ends, 21);
    ck_assert_int_eq(*fake_at(x, 0), 6);
    for (int k = 0; k < 20; k++) dt_tensor_release(good[k]);
    dt_tensor *all[] = {x, huge, after};
    for (int k = 0; k < 3; k++) dt_tensor_release(all[k]);
    fake_drain(s);
    dt_memory_limit_set(0);
    fake_ends_clear(&bad);
    stop(s);
}
END_TEST

/* As long as a task runs that may free memory nobody fails for want of it. */
START_TEST(starving_task_waits_for_a_running_one) {
    dt_sched *s = start(2, _i);
    freeze(s, dt_clock_ns());
    fake_gate gate = {0};
    dt_tensor *out = fake_tensor(MEGA), *result = fake_tensor(MEGA);
    submit_gated(s, &gate, out);
    limit_to(0.5);
    dt_sched_submit(s, fake_task(&ends, result, NULL, 0, NULL, 0, 7));
    dt_tensor_release(out);        /* the running task holds it */
    for (int k = 0; k < 60; k++) { /* longer than clients are given to free some */
        atomic_fetch_add(&time_ns, 5000000);
        wake(s);
        settle(s);
        ck_assert_int_eq(ends.count, 0);
    }
    fake_gate_open(&gate);
    fake_await(&ends, 2);
    ck_assert_int_eq(ends.failed, 0);
    ck_assert_int_eq(*fake_at(result, MEGA - 1), 7);
    dt_tensor_release(result);
    stop_short(s);
}
END_TEST

/* Nothing runs that could free memory: clients are given 250 ms to do so. If one does, it is fed.
 */
START_TEST(starving_task_waits_for_clients) {
    for (int fed = 0; fed < 2; fed++) {
        dt_tensor *kept;
        dt_sched *s = start_short(_i, &kept);
        dt_tensor *result = fake_tensor(MEGA);
        dt_sched_submit(s, fake_task(&ends, result, NULL, 0, NULL, 0, 7));
        int64_t mercy_ns = await_mercy(s, 0);
        ck_assert_int_eq(mercy_ns, atomic_load(&time_ns) + 250000000);
        ck_assert_int_eq(ends.count, 0);
        if (fed) {
            dt_tensor_release(kept);
        } else {
            atomic_store(&time_ns, mercy_ns);
            wake(s);
        }
        fake_await(&ends, 1);
        ck_assert_int_eq(ends.failed, !fed);
        if (fed) ck_assert_int_eq(*fake_at(result, MEGA - 1), 7);
        if (!fed) ck_assert_int_eq(dt_error_status(ends.error), DT_E_NO_MEMORY);
        if (!fed) dt_tensor_release(kept);
        dt_tensor_release(result);
        stop_short(s);
    }
}
END_TEST

/* While the oldest starves none of the younger ones that take as much is even tried, lest it take
 * what is freed for the oldest; small ones run, and after 20 ms so does what fits anyway. */
START_TEST(younger_tasks_do_not_come_between) {
    enum { YOUNGER = 5 };
    dt_tensor *kept, *younger[YOUNGER];
    dt_sched *s = start_short(_i, &kept);
    dt_tensor *oldest = fake_tensor(MEGA), *small = fake_tensor(100), *fits = fake_tensor(MEGA / 4);
    fake_ends small_ends = {0}, fits_ends = {0};
    dt_sched_submit(s, fake_task(&ends, oldest, NULL, 0, NULL, 0, 7));
    (void)await_mercy(s, 0);
    int64_t runs = dt__pool_runs(s->pool);
    for (int k = 0; k < YOUNGER; k++) {
        younger[k] = fake_tensor(MEGA);
        dt_sched_submit(s, fake_task(&ends, younger[k], NULL, 0, NULL, 0, k));
    }
    dt_sched_submit(s, fake_task(&fits_ends, fits, NULL, 0, NULL, 0, 9));
    settle(s);
    ck_assert_int_eq(dt__pool_runs(s->pool), runs);
    dt_sched_submit(s, fake_task(&small_ends, small, NULL, 0, NULL, 0, 8));
    fake_await(&small_ends, 1);
    ck_assert_int_eq(fits_ends.count, 0);
    int64_t grace_ns = await_mercy(s, 0);
    ck_assert_int_eq(grace_ns, atomic_load(&time_ns) + 20000000);
    atomic_store(&time_ns, grace_ns);
    wake(s);
    fake_await(&fits_ends, 1);
    ck_assert_int_eq(ends.count, 0);
    dt_tensor_release(kept);
    fake_await(&ends, 1);
    ck_assert_int_eq(*fake_at(oldest, MEGA - 1), 7);
    dt_tensor_release(oldest);
    for (int k = 0; k < YOUNGER; k++) { /* in turn, each as soon as the one before is gone */
        fake_await(&ends, 2 + (uint32_t)k);
        ck_assert_int_eq(*fake_at(younger[k], MEGA - 1), k);
        dt_tensor_release(younger[k]);
    }
    ck_assert_int_eq(ends.failed + small_ends.failed + fits_ends.failed, 0);
    dt_tensor_release(small);
    dt_tensor_release(fits);
    stop_short(s);
}
END_TEST

/* Where nobody frees any, each fails in its turn: the first after 250 ms, the others 20 ms apart.
 */
START_TEST(starving_tasks_fail_in_turn) {
    enum { N = 3 };
    dt_tensor *kept, *result[N];
    dt_sched *s = start_short(_i, &kept);
    for (int k = 0; k < N; k++) {
        result[k] = fake_tensor(MEGA);
        dt_sched_submit(s, fake_task(&ends, result[k], NULL, 0, NULL, 0, 7));
    }
    for (int k = 0; k < N; k++) {
        int64_t start_ns = atomic_load(&time_ns), mercy_ns = await_mercy(s, start_ns);
        ck_assert_int_eq(mercy_ns, start_ns + (k == 0 ? 250000000 : 20000000));
        atomic_store(&time_ns, mercy_ns);
        wake(s);
        fake_await(&ends, 1 + (uint32_t)k);
        ck_assert_int_eq(ends.failed, 1 + k);
    }
    dt_tensor_release(kept);
    for (int k = 0; k < N; k++) dt_tensor_release(result[k]);
    stop_short(s);
}
END_TEST

/* A stop ends what starves. */
START_TEST(stop_ends_what_starves) {
    dt_sched *s = start(1, _i);
    fake_gate gate = {0};
    dt_tensor *result[3];
    submit_gated(s, &gate, NULL);
    limit_to(0.5);
    for (int k = 0; k < 3; k++) {
        result[k] = fake_tensor(MEGA);
        dt_sched_submit(s, fake_task(&ends, result[k], NULL, 0, NULL, 0, 7));
    }
    settle(s);
    fake_gate_open(&gate);
    fake_await(&ends, 1);
    settle(s);
    dt_sched_stop(s);
    dt_memory_limit_set(0);
    ck_assert_int_eq(ends.count, 4);
    ck_assert_int_eq(ends.failed, 3);
    for (int k = 0; k < 3; k++) dt_tensor_release(result[k]);
    fake_ends_clear(&ends);
    test_assert_no_leak(before);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("starve");
    BOTH_BACKENDS(suite, "little memory", memory_for_one_at_a_time, what_never_fits_fails_alone,
                  starving_task_waits_for_a_running_one, starving_task_waits_for_clients,
                  younger_tasks_do_not_come_between, starving_tasks_fail_in_turn,
                  stop_ends_what_starves);
    return test_run(suite);
}
