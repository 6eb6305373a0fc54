/* test_pool.c: the workers alone: runs, parts, failures, thread counts, OpenMP. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>

#include "scheduler/pool.h"
#include "scheduler/task.h"
#include "tests/c/sched_support.h"

/* The weak symbol that the pool looks for. */
void omp_set_num_threads(int count);
static _Atomic(int) omp_calls, omp_last;
void omp_set_num_threads(int count) {
    atomic_fetch_add(&omp_calls, 1);
    atomic_store(&omp_last, count);
}

/* What the pool told: ended tasks are freed at the end. */
typedef struct pool_log {
    dt_mpsc ended;
    _Atomic(uint32_t) ended_count;
    _Atomic(int) notified;
} pool_log;

static void on_ended(void *context, dt_task *task) {
    pool_log *log = context;
    dt_mpsc_push(&log->ended, &task->end_node);
    atomic_fetch_add(&log->ended_count, 1);
}

static void on_notify(void *context) {
    pool_log *log = context;
    atomic_fetch_add(&log->notified, 1);
}

static pool_log logged;
static fake_ends ends;
static dt_memory_stats before;

static dt_pool *start(int threads) {
    before = test_memory();
    dt_pool_events events = {&logged, on_ended, on_notify};
    dt_pool *pool;
    ck_assert_ok(dt__pool_start(threads, &events, &pool));
    return pool;
}

/* Waits for the events of `count` tasks, stops, frees, looks for leaks. */
static void stop(dt_pool *pool, uint32_t count) {
    fake_await(&ends, count);
    int64_t deadline_ns = dt_clock_ns() + 60000000000;
    while (atomic_load(&logged.ended_count) < count) {
        ck_assert(dt_clock_ns() < deadline_ns);
        sched_yield();
    }
    dt__pool_stop(pool);
    uint32_t n = 0;
    dt_mpsc_node *node = dt_mpsc_take(&logged.ended);
    while (node != NULL) {
        dt_task *task = DT_MPSC_OWNER(node, dt_task, end_node);
        node = node->next;
        dt__task_destroy(task);
        n++;
    }
    ck_assert_uint_eq(n, count);
    fake_ends_clear(&ends);
    test_assert_no_leak(before);
}

/* As the controller and the client leave a task. */
static dt_task *handed(dt_task *task) {
    task->cost_ns = task->call.kernel->cost_ns(&task->call);
    (void)dt__task_raise_counts(task);
    atomic_store(&task->state, DT_TASK_HANDED);
    return task;
}

static void push(dt_pool *pool, dt_task *task) {
    task->next = NULL;
    dt__pool_push(pool, task, 1);
}

START_TEST(many_single_tasks) {
    dt_pool *pool = start(3);
    dt_task *first = NULL;
    for (int k = 0; k < 100; k++) {
        dt_task *task = handed(fake_task(&ends, NULL, NULL, 0, NULL, 0, 0));
        task->next = first;
        first = task;
    }
    dt__pool_push(pool, first, 100);
    for (int k = 0; k < 200; k++) push(pool, handed(fake_task(&ends, NULL, NULL, 0, NULL, 0, 0)));
    fake_await(&ends, 300);
    ck_assert_int_eq(dt__pool_queued(pool), 0);
    ck_assert_int_eq((int)dt__pool_queued_cost_ns(pool), 0);
    ck_assert_int_eq(dt__pool_runs(pool), 300);
    stop(pool, 300);
    ck_assert_int_ge(atomic_load(&logged.notified), 1);
}
END_TEST

START_TEST(run_is_computed_in_order) {
    dt_pool *pool = start(2);
    dt_tensor *t[21];
    dt_task *task[20];
    t[0] = fake_full(8, 5);
    for (int k = 0; k < 20; k++) {
        t[k + 1] = fake_tensor(8);
        task[k] = handed(fake_task(&ends, t[k + 1], t[k], 1, NULL, 0, k));
        if (k > 0) atomic_store(&task[k - 1]->run_next, task[k]);
    }
    push(pool, task[0]);
    fake_await(&ends, 20);
    ck_assert_int_eq(*fake_at(t[20], 7), 5 + 190);
    for (int k = 0; k <= 20; k++) dt_tensor_release(t[k]);
    stop(pool, 20);
}
END_TEST

static dt_task *split_task(dt_tensor *out, int parts, int64_t busy_ns) {
    dt_task *task = fake_task(&ends, out, NULL, 0, NULL, 0, 9);
    task->call.params.i[FAKE_PARTS] = parts;
    task->call.params.i[FAKE_BUSY_NS] = busy_ns;
    task->call.params.i[FAKE_COST_NS] = 1000000;
    task->call.params.i[FAKE_SCRATCH] = 1;
    return task;
}

/* Split tasks end once, after all their parts, and several workers take part. */
START_TEST(parts_are_shared) {
    dt_pool *pool = start(4);
    dt_tensor *out[10];
    for (int k = 0; k < 10; k++) {
        out[k] = fake_tensor(1000);
        push(pool, handed(split_task(out[k], 16, 50000)));
    }
    fake_await(&ends, 10);
    ck_assert_int_eq(ends.failed, 0);
    ck_assert_int_eq(atomic_load(&fake_finishes), 10);
    ck_assert_int_eq(atomic_load(&fake_started), 160);
    ck_assert_int_ge(atomic_load(&fake_running_max), 2);
    ck_assert_int_le(atomic_load(&fake_running_max), 4);
    for (int k = 0; k < 10; k++) {
        for (int i = 0; i < 1000; i++) ck_assert_int_eq(*fake_at(out[k], i), 9);
        dt_tensor_release(out[k]);
    }
    stop(pool, 10);
}
END_TEST

/* A run goes on behind a split task, in whatever worker ended it. */
START_TEST(run_goes_on_behind_parts) {
    dt_pool *pool = start(3);
    for (int round = 0; round < 50; round++) {
        dt_tensor *a = fake_tensor(64), *b = fake_tensor(64);
        dt_task *first = handed(split_task(a, 8, 1000));
        atomic_store(&first->run_next, handed(fake_task(&ends, b, a, 2, NULL, 0, 0)));
        push(pool, first);
        fake_await(&ends, 2 * (uint32_t)round + 2);
        ck_assert_int_eq(*fake_at(b, 63), 18);
        dt_tensor_release(a);
        dt_tensor_release(b);
    }
    stop(pool, 100);
}
END_TEST

START_TEST(failing_part_fails_the_task) {
    dt_pool *pool = start(3);
    dt_tensor *out = fake_tensor(1000);
    dt_task *task = handed(split_task(out, 8, 1000));
    task->call.params.i[FAKE_FAIL] = DT_E_INDEX;
    dt_task *follower = handed(fake_task(&ends, NULL, out, 1, NULL, 0, 0));
    atomic_store(&task->run_next, follower);
    push(pool, task);
    fake_await(&ends, 2);
    ck_assert_int_eq(ends.failed, 2);
    ck_assert_ptr_eq(task->error, follower->error);
    ck_assert_int_eq(dt_error_status(task->error), DT_E_INDEX);
    ck_assert_str_eq(dt_error_message(task->error), "fake failure 9");
    ck_assert_int_eq(atomic_load(&fake_finishes), 0);
    dt_tensor_release(out);
    stop(pool, 2);
}
END_TEST

START_TEST(no_memory_fails_the_task) {
    dt_pool *pool = start(1);
    for (int n = 1; n <= 2; n++) { /* the output's memory, then the scratch's */
        dt_tensor *out = fake_tensor(1000);
        dt_task *task = handed(split_task(out, 1, 0));
        dt_alloc_fail_at(n, true);
        push(pool, task);
        fake_await(&ends, (uint32_t)n);
        dt_alloc_fail_at(0, false);
        ck_assert_int_eq(dt_error_status(task->error), DT_E_NO_MEMORY);
        dt_tensor_release(out);
    }
    stop(pool, 2);
}
END_TEST

START_TEST(shut_down_ends_what_has_not_begun) {
    dt_pool *pool = start(1);
    dt_task *task = handed(fake_task(&ends, NULL, NULL, 0, NULL, 0, 0));
    task->call.params.i[FAKE_BUSY_NS] = 20000000;
    push(pool, task);
    while (atomic_load(&fake_started) == 0) sched_yield();
    for (int k = 0; k < 5; k++) push(pool, handed(fake_task(&ends, NULL, NULL, 0, NULL, 0, 0)));
    dt__pool_shut_down(pool);
    fake_await(&ends, 6);
    ck_assert_int_eq(ends.failed, 5);
    ck_assert_int_eq(dt_error_status(ends.error), DT_E_SHUTDOWN);
    stop(pool, 6);
}
END_TEST

static void run_busy(dt_pool *pool, int count) {
    uint32_t had = atomic_load(&ends.count);
    atomic_store(&fake_running_max, 0);
    for (int k = 0; k < count; k++) {
        dt_task *task = handed(fake_task(&ends, NULL, NULL, 0, NULL, 0, 0));
        task->call.params.i[FAKE_BUSY_NS] = 2000000;
        push(pool, task);
    }
    fake_await(&ends, had + (uint32_t)count);
}

START_TEST(number_of_threads_changes) {
    dt_pool *pool = start(1);
    run_busy(pool, 6);
    ck_assert_int_eq(atomic_load(&fake_running_max), 1);
    ck_assert_ok(dt__pool_set_threads(pool, 4));
    run_busy(pool, 24);
    ck_assert_int_ge(atomic_load(&fake_running_max), 3);
    ck_assert_int_le(atomic_load(&fake_running_max), 4);
    ck_assert_ok(dt__pool_set_threads(pool, 2));
    run_busy(pool, 12);
    ck_assert_int_le(atomic_load(&fake_running_max), 2);
    ck_assert_ok(dt__pool_set_threads(pool, 3));
    run_busy(pool, 24);
    ck_assert_int_eq(atomic_load(&fake_running_max), 3);
    ck_assert_int_eq(dt__pool_threads(pool), 3);
    stop(pool, 66);
}
END_TEST

/* Growing and shrinking while work comes in: nothing is lost. */
START_TEST(number_of_threads_changes_under_load) {
    dt_pool *pool = start(2);
    for (uint32_t k = 0; k < 2000; k++) {
        push(pool, handed(fake_task(&ends, NULL, NULL, 0, NULL, 0, 0)));
        if (k % 10 == 0) ck_assert_ok(dt__pool_set_threads(pool, 1 + (int)(k / 10 % 5)));
        if (k % 50 == 0) fake_await(&ends, k + 1);
    }
    stop(pool, 2000);
}
END_TEST

static const dt_kernel omp_kernel = {
    .name = "omp", .run = fake_run, .cost_ns = fake_cost, .flags = DT_KERNEL_USES_OMP};

START_TEST(openmp_is_limited_once_in_each_worker) {
    dt_pool *pool = start(1);
    for (int k = 0; k < 5; k++) {
        dt_task *task = fake_task(&ends, NULL, NULL, 0, NULL, 0, 0);
        if (k > 0) task->call.kernel = &omp_kernel;
        push(pool, handed(task));
        fake_await(&ends, (uint32_t)k + 1);
        ck_assert_int_eq(atomic_load(&omp_calls), k > 0);
    }
    ck_assert_int_eq(atomic_load(&omp_last), 1);
    stop(pool, 5);
}
END_TEST

static dt_status start_scenario(void) {
    dt_pool_events events = {&logged, on_ended, on_notify};
    dt_pool *pool;
    DT_TRY(dt__pool_start(3, &events, &pool));
    dt__pool_stop(pool);
    return DT_OK;
}

START_TEST(start_without_memory) {
    ck_assert_int_eq(test_every_allocation_fails(start_scenario), 4); /* the pool and its workers */
}
END_TEST

int main(void) {
    Suite *suite = suite_create("pool");
    TEST_CASE(suite, "tasks", many_single_tasks, run_is_computed_in_order, parts_are_shared,
              run_goes_on_behind_parts, failing_part_fails_the_task, no_memory_fails_the_task,
              shut_down_ends_what_has_not_begun);
    TEST_CASE(suite, "threads", number_of_threads_changes, number_of_threads_changes_under_load,
              openmp_is_limited_once_in_each_worker, start_without_memory);
    return test_run(suite);
}
