/* test_pool.c: the workers alone: runs, parts, failures, thread counts, OpenMP, and clients that
 * help. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>

#include "scheduler/pool.h"
#include "scheduler/task.h"
#include "tests/c/sched_support.h"

/* The weak symbols that the pool looks for; each thread has its own number. */
void omp_set_num_threads(int count);
int omp_get_max_threads(void);
static _Atomic(int) omp_calls, omp_last;
static _Thread_local int omp_threads;
void omp_set_num_threads(int count) {
    atomic_fetch_add(&omp_calls, 1);
    atomic_store(&omp_last, count);
    omp_threads = count;
}
int omp_get_max_threads(void) { return omp_threads; }

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
    dt_pool_events events = {&logged, on_ended, on_notify, NULL, NULL};
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
    dt__pool_push(pool, task, 1, true);
}

START_TEST(many_single_tasks) {
    dt_pool *pool = start(3);
    dt_task *first = NULL;
    for (int k = 0; k < 100; k++) {
        dt_task *task = handed(fake_task(&ends, NULL, NULL, 0, NULL, 0, 0));
        task->next = first;
        first = task;
    }
    dt__pool_push(pool, first, 100, true);
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
        dt_task *task = split_task(out[k], 16, 50000);
        task->call.params.i[FAKE_MEET] = 2;
        push(pool, handed(task));
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
        task->last_chance = true; /* else it would be given back */
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
    fake_gate gate = {0};
    dt_task *task = handed(fake_task(&ends, NULL, NULL, 0, NULL, 0, 0));
    task->call.params.i[FAKE_GATE] = (int64_t)(intptr_t)&gate;
    push(pool, task);
    fake_gate_await(&gate);
    for (int k = 0; k < 5; k++) push(pool, handed(fake_task(&ends, NULL, NULL, 0, NULL, 0, 0)));
    dt__pool_shut_down(pool);
    fake_gate_open(&gate);
    fake_await(&ends, 6);
    ck_assert_int_eq(ends.failed, 5);
    ck_assert_int_eq(dt_error_status(ends.error), DT_E_SHUTDOWN);
    stop(pool, 6);
}
END_TEST

/* All threads are at work at one time, however late some of them come. */
static void run_busy(dt_pool *pool, int count, int threads) {
    uint32_t had = atomic_load(&ends.count);
    atomic_store(&fake_running_max, 0);
    for (int k = 0; k < count; k++) {
        dt_task *task = handed(fake_task(&ends, NULL, NULL, 0, NULL, 0, 0));
        task->call.params.i[FAKE_BUSY_NS] = 2000000;
        task->call.params.i[FAKE_MEET] = threads;
        push(pool, task);
    }
    fake_await(&ends, had + (uint32_t)count);
    ck_assert_int_eq(atomic_load(&fake_running_max), threads);
}

START_TEST(number_of_threads_changes) {
    dt_pool *pool = start(1);
    run_busy(pool, 6, 1);
    ck_assert_ok(dt__pool_set_threads(pool, 4));
    run_busy(pool, 24, 4);
    ck_assert_ok(dt__pool_set_threads(pool, 2));
    run_busy(pool, 12, 2);
    ck_assert_ok(dt__pool_set_threads(pool, 3));
    run_busy(pool, 24, 3);
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

/* ---- parts ---------------------------------------------------------------------------------- */

enum { PARTS_MAX = 300 };
static _Atomic(int) part_runs[PARTS_MAX];

static dt_status count_part(const dt_call *call, const dt_part *part) {
    (void)call;
    atomic_fetch_add(&part_runs[part->index], 1);
    return DT_OK;
}

static const dt_kernel counting_kernel = {
    .name = "counting", .run = count_part, .parts = fake_parts, .cost_ns = fake_cost};

/* Whatever their number, each part is computed once: by CPU up to 64 of them, in order above. */
START_TEST(each_part_once) {
    dt_pool *pool = start(3);
    uint32_t count = 0;
    for (int round = 0; round < 3; round++) {
        for (int parts = 1; parts <= PARTS_MAX; parts += parts < 70 ? 1 : 23) {
            for (int k = 0; k < PARTS_MAX; k++) atomic_store(&part_runs[k], 0);
            dt_task *task = split_task(NULL, parts, 0);
            task->call.kernel = &counting_kernel;
            push(pool, handed(task));
            fake_await(&ends, ++count);
            for (int k = 0; k < PARTS_MAX; k++) ck_assert_int_eq(part_runs[k], k < parts);
        }
    }
    stop(pool, count);
}
END_TEST

/* ---- clients that help ----------------------------------------------------------------------- */

static pthread_t ran_in[8]; /* by params.i[FAKE_C] */
static _Atomic(int) ran_count;

static dt_status note_thread(const dt_call *call, const dt_part *part) {
    ran_in[call->params.i[FAKE_C]] = pthread_self();
    atomic_fetch_add(&ran_count, 1);
    return fake_run(call, part);
}

static const dt_kernel noting_kernel = {.name = "noting", .run = note_thread, .cost_ns = fake_cost};
static const dt_kernel noting_omp_kernel = {
    .name = "noting", .run = note_thread, .cost_ns = fake_cost, .flags = DT_KERNEL_USES_OMP};

static dt_task *noting_task(int number) {
    dt_task *task = fake_task(&ends, NULL, NULL, 0, NULL, 0, number);
    task->call.kernel = &noting_kernel;
    return task;
}

static bool have_run(void *count) { return atomic_load(&ran_count) >= *(int *)count; }
static bool never(void *context) {
    (void)context;
    return false;
}

static bool ran_here(int number) { return pthread_equal(ran_in[number], pthread_self()); }

/* Until a worker is on the idle stack: from there it looks at nothing before it is woken. */
static void await_idle(dt_pool *pool) {
    while (!dt__pool_has_idle(pool)) sched_yield();
}

static void push_and_help(dt_pool *pool, dt_task *task) {
    task->next = NULL;
    dt__pool_push_and_help(pool, task, 1);
}

static bool help(dt_pool *pool, bool (*done)(void *context), void *context) {
    dt__pool_helper_enter(pool);
    bool due = dt__pool_help(pool, 1000000, done, context);
    dt__pool_helper_leave(pool);
    return due;
}

/* The one run that is pushed wakes nobody: the client computes it, and says that it did; when it
 * was kept from its CPU for so long that a notice was due, that was the word. */
START_TEST(client_computes_what_it_waits_for) {
    dt_pool *pool = start(1);
    await_idle(pool);
    int64_t wakeups = dt__pool_wakeups(pool);
    int one = 1;
    push_and_help(pool, handed(noting_task(0)));
    ck_assert_int_eq(dt__pool_wakeups(pool), wakeups);
    int64_t start_ns = dt_clock_ns();
    bool looks = help(pool, have_run, &one);
    ck_assert(looks || dt_clock_ns() - start_ns > DT__POOL_NOTIFY_NS);
    ck_assert_int_eq(ends.count, 1);
    ck_assert(ran_here(0));
    ck_assert_int_eq(atomic_load(&logged.notified), looks ? 0 : 1);
    ck_assert(dt__pool_has_idle(pool)); /* as before */
    stop(pool, 1);
}
END_TEST

/* For the second of two runs somebody is woken. */
START_TEST(others_are_woken_for_the_rest) {
    dt_pool *pool = start(2);
    fake_gate gate = {0};
    dt_task *first = noting_task(0), *second = handed(noting_task(1));
    first->call.params.i[FAKE_GATE] = (int64_t)(intptr_t)&gate;
    first = handed(first);
    first->next = second;
    second->next = NULL;
    await_idle(pool);
    int64_t wakeups = dt__pool_wakeups(pool);
    dt__pool_push_and_help(pool, first, 2);
    ck_assert_int_ge(dt__pool_wakeups(pool), wakeups + 1);
    fake_gate_open(&gate);
    int two = 2;
    (void)help(pool, have_run, &two);
    stop(pool, 2);
}
END_TEST

/* With every worker at work there is nobody to stand in for. */
START_TEST(client_does_not_add_to_the_threads) {
    dt_pool *pool = start(1);
    fake_gate gate = {0};
    dt_task *busy = noting_task(0);
    busy->call.params.i[FAKE_GATE] = (int64_t)(intptr_t)&gate;
    push(pool, handed(busy));
    fake_gate_await(&gate);
    push(pool, handed(noting_task(1)));
    int never_reached = 3;
    ck_assert(!help(pool, have_run, &never_reached)); /* comes back at once */
    ck_assert_int_eq(atomic_load(&ran_count), 1);
    fake_gate_open(&gate);
    stop(pool, 2);
    ck_assert(!ran_here(1));
}
END_TEST

typedef struct helper {
    pthread_t thread;
    dt_pool *pool;
    _Atomic(bool) over;
} helper;

static bool is_over(void *context) { return atomic_load(&((helper *)context)->over); }

static void *helper_main(void *argument) {
    helper *h = argument;
    while (!is_over(h)) {
        dt__pool_helper_enter(h->pool);
        (void)dt__pool_help(h->pool, 0, is_over, h);
        dt__pool_helper_leave(h->pool);
    }
    return NULL;
}

/* However many clients help while work comes in, and however often they come and go: nothing is
 * lost, and never more are at work than there are threads. */
START_TEST(clients_come_and_go_under_load) {
    dt_pool *pool = start(2);
    helper helpers[2];
    for (int k = 0; k < 2; k++) {
        helpers[k] = (helper){.pool = pool};
        pthread_create(&helpers[k].thread, NULL, helper_main, &helpers[k]);
    }
    enum { COUNT = 600 };
    for (uint32_t k = 0; k < COUNT; k++) {
        dt_task *task =
            k % 7 ? fake_task(&ends, NULL, NULL, 0, NULL, 0, 0) : split_task(NULL, 6, 0);
        if (k % 3) {
            push(pool, handed(task));
        } else { /* nobody is woken for it: the client has to look */
            push_and_help(pool, handed(task));
            dt__pool_helper_enter(pool);
            (void)dt__pool_help(pool, 0, never, NULL);
            dt__pool_helper_leave(pool);
        }
        if (k % 50 == 49) fake_await(&ends, k - 10);
    }
    fake_await(&ends, COUNT);
    ck_assert_int_le(atomic_load(&fake_running_max), 2);
    for (int k = 0; k < 2; k++) atomic_store(&helpers[k].over, true);
    for (int k = 0; k < 2; k++) pthread_join(helpers[k].thread, NULL);
    stop(pool, COUNT);
}
END_TEST

/* Once it has what it waited for, the rest of the run is a worker's. */
START_TEST(client_hands_the_rest_back) {
    dt_pool *pool = start(1);
    await_idle(pool);
    dt_task *task[3];
    for (int k = 0; k < 3; k++) {
        task[k] = handed(noting_task(k));
        if (k > 0) atomic_store(&task[k - 1]->run_next, task[k]);
    }
    push_and_help(pool, task[0]);
    int one = 1;
    (void)help(pool, have_run, &one);
    fake_await(&ends, 3);
    ck_assert(ran_here(0) && !ran_here(1) && !ran_here(2));
    stop(pool, 3);
}
END_TEST

/* Long tasks and fences are not for clients, who are deaf to signals meanwhile. */
START_TEST(client_leaves_long_runs_alone) {
    dt_pool *pool = start(1);
    dt_task *task = noting_task(0);
    task->call.params.i[FAKE_COST_NS] = 2000001;
    push_and_help(pool, handed(task)); /* so a worker is woken */
    int one = 1;
    (void)help(pool, have_run, &one);
    fake_await(&ends, 1);
    ck_assert(!ran_here(0));
    stop(pool, 1);
}
END_TEST

/* It gives up when nothing comes; what comes later wakes the worker as ever. */
START_TEST(client_loses_patience) {
    dt_pool *pool = start(1);
    ck_assert(!help(pool, never, NULL));
    push(pool, handed(noting_task(0)));
    fake_await(&ends, 1);
    ck_assert(!ran_here(0));
    stop(pool, 1);
}
END_TEST

/* Work that comes at the last moment, when no worker is idle: whoever stood in wakes him. */
typedef struct late {
    dt_pool *pool;
    dt_task *task;
} late;

static bool push_and_be_done(void *context) {
    late *l = context;
    if (l->task != NULL) push(l->pool, l->task);
    l->task = NULL;
    return true;
}

START_TEST(work_that_comes_as_a_client_leaves) {
    dt_pool *pool = start(1);
    for (uint32_t k = 0; k < 20; k++) {
        await_idle(pool);
        late l = {pool, handed(noting_task(0))};
        (void)help(pool, push_and_be_done, &l);
        ck_assert_ptr_null(l.task);
        fake_await(&ends, k + 1);
        ck_assert(!ran_here(0));
    }
    stop(pool, 20);
}
END_TEST

/* While a client stands in, the number of threads falls: the worker is parked, and comes back. */
static bool fewer_threads(void *context) {
    ck_assert_ok(dt__pool_set_threads(context, 1));
    return true;
}

START_TEST(worker_of_a_client_becomes_surplus) {
    dt_pool *pool = start(2);
    for (uint32_t k = 0; k < 20; k++) {
        ck_assert_ok(dt__pool_set_threads(pool, 2));
        await_idle(pool); /* or there is nobody to stand in for, and done() is not asked */
        (void)help(pool, fewer_threads, pool);
        atomic_store(&fake_running_max, 0);
        for (int n = 0; n < 3; n++) push(pool, handed(noting_task(n)));
        fake_await(&ends, 3 * k + 3);
        ck_assert_int_eq(atomic_load(&fake_running_max), 1);
    }
    stop(pool, 60);
}
END_TEST

/* The client's own number of OpenMP threads is as before, and its worker still limits itself. */
START_TEST(openmp_of_a_client_is_restored) {
    dt_pool *pool = start(1);
    await_idle(pool);
    omp_set_num_threads(7);
    for (int round = 0; round < 2; round++) {
        atomic_store(&omp_calls, 0);
        dt_task *task = noting_task(0);
        task->call.kernel = &noting_omp_kernel;
        push_and_help(pool, handed(task));
        int wanted = 2 * round + 1;
        (void)help(pool, have_run, &wanted);
        ck_assert(ran_here(0));
        ck_assert_int_eq(atomic_load(&omp_calls), 2); /* to one and back */
        ck_assert_int_eq(omp_get_max_threads(), 7);
        task = noting_task(1);
        task->call.kernel = &noting_omp_kernel;
        push(pool, handed(task));
        fake_await(&ends, 2 * (uint32_t)round + 2);
        ck_assert(!ran_here(1));
        ck_assert_int_eq(atomic_load(&omp_calls), 2 + (round == 0)); /* once for the worker */
        await_idle(pool);
    }
    stop(pool, 4);
}
END_TEST

static _Atomic(bool) has_stopped;

static void *stop_main(void *argument) {
    dt__pool_stop(argument);
    atomic_store(&has_stopped, true);
    return NULL;
}

/* The pool is there until the last client has left. */
START_TEST(stop_waits_for_clients) {
    dt_memory_stats memory = test_memory();
    dt_pool *pool = start(2);
    dt__pool_helper_enter(pool);
    dt__pool_shut_down(pool);
    pthread_t thread;
    pthread_create(&thread, NULL, stop_main, pool);
    struct timespec ts = {0, 5000000};
    nanosleep(&ts, NULL);
    ck_assert(!atomic_load(&has_stopped));
    ck_assert(!dt__pool_help(pool, 1000000000000, never, NULL));
    dt__pool_helper_leave(pool);
    pthread_join(thread, NULL);
    test_assert_no_leak(memory);
}
END_TEST

static dt_status start_scenario(void) {
    dt_pool_events events = {&logged, on_ended, on_notify, NULL, NULL};
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
    TEST_CASE(suite, "parts", each_part_once);
    TEST_CASE(suite, "clients", client_computes_what_it_waits_for, others_are_woken_for_the_rest,
              client_does_not_add_to_the_threads, clients_come_and_go_under_load,
              client_hands_the_rest_back, client_leaves_long_runs_alone, client_loses_patience,
              work_that_comes_as_a_client_leaves, worker_of_a_client_becomes_surplus,
              openmp_of_a_client_is_restored, stop_waits_for_clients);
    return test_run(suite);
}
