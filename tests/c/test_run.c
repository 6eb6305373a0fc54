/* test_run.c: which tasks join a run, how far runs grow, and the race for the end of a run. */
#include <check.h>
#include <pthread.h>

#include "runtime/alloc.h"
#include "scheduler/run.h"
#include "scheduler/task.h"
#include "tests/c/sched_support.h"

static uint64_t seq;
static _Atomic(int32_t) waited;

/* A linked task. */
static dt_task *linked(dt_tensor *out, dt_tensor *x, dt_tensor *y, double cost_ns) {
    dt_task *task = fake_task(NULL, out, x, 1, y, 1, 0);
    task->cost_ns = cost_ns;
    task->seq = ++seq;
    atomic_store(&task->state, DT_TASK_LINKED);
    ck_assert_ok(dt__graph_link(task, 1));
    return task;
}

static void nothing(void *context, dt_task *task) {
    (void)context;
    (void)task;
}

static dt_task *hand_over(dt_task *task) {
    atomic_store(&task->state, DT_TASK_HANDED);
    return task;
}

static void retire(dt_task *task) {
    (void)dt__run_leave(task);
    dt__graph_unlink(task, nothing, NULL);
    dt__task_destroy(task);
}

/* Tasks of the run behind `task`. */
static int chain_length(dt_task *task) {
    int n = 0;
    while ((task = atomic_load(&task->run_next)) != NULL) n++;
    return n;
}

#define MAX_TASKS 300
static dt_tensor *t[MAX_TASKS + 1];
static dt_task *task[MAX_TASKS];

/* task[k] reads t[k] and writes t[k + 1]. */
static void make_chain(int n, double cost_ns) {
    for (int k = 0; k <= n; k++) t[k] = fake_full(4, 0);
    for (int k = 0; k < n; k++) task[k] = linked(t[k + 1], t[k], NULL, cost_ns);
}

static void free_chain(int from, int n) {
    for (int k = from; k < n; k++) retire(task[k]);
    for (int k = 0; k <= n; k++) dt_tensor_release(t[k]);
}

START_TEST(chain_goes_up_to_the_limit) {
    dt_memory_stats before = test_memory();
    make_chain(100, 10000);
    hand_over(task[0]);
    ck_assert_int_eq(dt__run_extend(task[0], false, &waited), 19); /* 20 x 10 us */
    ck_assert_int_eq(chain_length(task[0]), 19);
    for (int k = 0; k < 20; k++) ck_assert_int_eq(atomic_load(&task[k]->state), DT_TASK_HANDED);
    ck_assert_int_eq(atomic_load(&task[20]->state), DT_TASK_LINKED);
    free_chain(0, 100);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(run_goes_on_when_tasks_are_retired) {
    make_chain(100, 10000);
    hand_over(task[0]);
    (void)dt__run_extend(task[0], false, &waited);
    for (int k = 0; k < 5; k++) {
        ck_assert_ptr_eq(dt__run_close(task[k]), task[k + 1]);
        dt_task *tail = dt__run_leave(task[k]);
        ck_assert_ptr_eq(tail, task[19]);
        dt__graph_unlink(task[k], nothing, NULL);
        dt__task_destroy(task[k]);
    }
    /* Others wait: no more than 200 us ever. */
    ck_assert_int_eq(dt__run_extend(task[19], true, &waited), 0);
    ck_assert_int_eq(dt__run_extend(task[19], false, &waited), 5);
    free_chain(5, 100);
}
END_TEST

START_TEST(short_task_follows_a_long_one) {
    make_chain(3, 1000);
    task[0]->cost_ns = 1e6;
    hand_over(task[0]);
    ck_assert_int_eq(dt__run_extend(task[0], true, &waited), 0);
    ck_assert_int_eq(dt__run_extend(task[0], false, &waited), 1);
    free_chain(0, 3);
}
END_TEST

START_TEST(only_what_needs_nothing_else) {
    dt_memory_stats before = test_memory();
    dt_tensor *v[8];
    for (int k = 0; k < 8; k++) v[k] = fake_full(4, 0);
    dt_task *a = linked(v[1], v[0], NULL, 1000);
    dt_task *other = linked(v[2], v[0], NULL, 1000);
    dt_task *both = linked(v[3], v[1], v[2], 1000);    /* needs a and other */
    dt_task *b = linked(v[4], v[1], NULL, 1000);       /* needs a */
    dt_task *diamond = linked(v[5], v[1], v[4], 1000); /* needs a and b: all in the run */
    dt_task *war = linked(v[1], NULL, NULL, 1000);     /* after all readers of v[1]: `both` too */
    hand_over(a);
    ck_assert_int_eq(dt__run_extend(a, false, &waited), 2);
    ck_assert_ptr_eq(atomic_load(&a->run_next), b);
    ck_assert_ptr_eq(atomic_load(&b->run_next), diamond);
    ck_assert_ptr_null(atomic_load(&diamond->run_next));
    ck_assert_int_eq(atomic_load(&both->state), DT_TASK_LINKED);
    ck_assert_int_eq(atomic_load(&war->state), DT_TASK_LINKED);
    ck_assert(a->waited_for); /* by `both` */
    ck_assert(!diamond->waited_for);
    ck_assert_int_eq(waited, 2); /* and b, by war */
    dt_task *all[] = {a, other, both, b, diamond, war};
    for (int k = 0; k < 6; k++) retire(all[k]);
    for (int k = 0; k < 8; k++) dt_tensor_release(v[k]);
    test_assert_no_leak(before);
}
END_TEST

/* Readers of one tensor do not wait for each other: they are no chain. */
START_TEST(siblings_are_no_chain) {
    dt_tensor *v[4];
    for (int k = 0; k < 4; k++) v[k] = fake_full(4, 0);
    dt_task *w = linked(v[0], NULL, NULL, 1000), *a = linked(v[1], v[0], NULL, 1000);
    dt_task *b = linked(v[2], v[0], NULL, 1000), *c = linked(v[3], v[0], NULL, 1000);
    hand_over(w);
    waited = 0;
    ck_assert_int_eq(dt__run_extend(w, false, &waited), 1);
    ck_assert_ptr_eq(atomic_load(&w->run_next), a);
    ck_assert_ptr_null(atomic_load(&a->run_next));
    ck_assert(w->waited_for && !a->waited_for);
    ck_assert_int_eq(waited, 1);
    dt_task *all[] = {w, a, b, c};
    for (int k = 0; k < 4; k++) retire(all[k]);
    for (int k = 0; k < 4; k++) dt_tensor_release(v[k]);
}
END_TEST

START_TEST(new_task_joins_a_run_at_its_tail_only) {
    make_chain(3, 1000);
    dt_tensor *out[2] = {fake_tensor(4), fake_tensor(4)};
    hand_over(task[0]);
    ck_assert_int_eq(dt__run_extend(task[0], false, &waited), 2);
    dt_task *aside = linked(out[0], t[1], NULL, 1000); /* needs task[0], could run beside task[1] */
    ck_assert(!task[0]->waited_for);
    ck_assert(!dt__run_join(aside, false, &waited));
    ck_assert(task[0]->waited_for);
    dt_task *next = linked(out[1], t[3], NULL, 1000);
    ck_assert(dt__run_join(next, false, &waited));
    ck_assert_ptr_eq(atomic_load(&task[2]->run_next), next);
    free_chain(0, 3);
    retire(aside);
    retire(next);
    dt_tensor_release(out[0]);
    dt_tensor_release(out[1]);
}
END_TEST

START_TEST(nothing_joins_what_has_ended) {
    make_chain(2, 1000);
    hand_over(task[0]);
    ck_assert_ptr_null(dt__run_close(task[0]));
    ck_assert(!dt__run_join(task[1], false, &waited));
    ck_assert_int_eq(atomic_load(&task[1]->state), DT_TASK_LINKED);
    free_chain(0, 2);
}
END_TEST

START_TEST(io_tasks_are_in_no_run) {
    make_chain(3, 1000);
    task[1]->kind = DT_TASK_TIMER;
    hand_over(task[0]);
    ck_assert_int_eq(dt__run_extend(task[0], false, &waited), 0);
    task[1]->kind = DT_TASK_FENCE;
    ck_assert_int_eq(dt__run_extend(task[0], false, &waited), 2);
    free_chain(0, 3);
}
END_TEST

START_TEST(without_memory_there_is_just_no_run) {
    make_chain(3, 1000);
    hand_over(task[0]);
    dt_alloc_fail_at(1, true);
    int n = dt__run_extend(task[0], false, &waited);
    dt_alloc_fail_at(0, false);
    ck_assert_int_eq(n, 0);
    ck_assert_int_eq(atomic_load(&task[1]->state), DT_TASK_LINKED);
    free_chain(0, 3);
}
END_TEST

/* Inputs that nobody has written get their memory before a worker sees the task. */
START_TEST(unwritten_inputs_are_materialized) {
    dt_tensor *big = fake_tensor(1000), *out = fake_tensor(1000);
    ck_assert_ptr_null(atomic_load(&big->storage->data));
    dt_task *reader = linked(out, big, NULL, 1000);
    ck_assert_ok(dt__run_materialize_inputs(reader));
    ck_assert_ptr_nonnull(atomic_load(&big->storage->data));
    ck_assert_ptr_null(atomic_load(&out->storage->data));
    retire(reader);
    dt_tensor_release(big);
    dt_tensor_release(out);
}
END_TEST

/* ---- the race ------------------------------------------------------------------------------- */

static dt_task *race_tail;
static _Atomic(dt_task *) race_seen;

static void *close_end(void *argument) {
    (void)argument;
    atomic_store(&race_seen, dt__run_close(race_tail));
    return NULL;
}

START_TEST(append_and_close_agree) {
    int appended = 0;
    for (int round = 0; round < 300; round++) {
        make_chain(2, 1000);
        race_tail = hand_over(task[0]);
        pthread_t thread;
        pthread_create(&thread, NULL, close_end, NULL);
        for (volatile int spin = 0; spin < round * 100; spin++) {}
        bool joined = dt__run_join(task[1], false, &waited);
        pthread_join(thread, NULL);
        ck_assert_ptr_eq(atomic_load(&race_seen), joined ? task[1] : NULL);
        ck_assert_int_eq(atomic_load(&task[1]->state), joined ? DT_TASK_HANDED : DT_TASK_LINKED);
        appended += joined;
        free_chain(0, 2);
    }
    ck_assert_int_gt(appended, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("run");
    TEST_CASE(suite, "growth", chain_goes_up_to_the_limit, run_goes_on_when_tasks_are_retired,
              short_task_follows_a_long_one, only_what_needs_nothing_else, siblings_are_no_chain,
              new_task_joins_a_run_at_its_tail_only, nothing_joins_what_has_ended,
              io_tasks_are_in_no_run, without_memory_there_is_just_no_run,
              unwritten_inputs_are_materialized);
    TEST_CASE(suite, "race", append_and_close_agree);
    return test_run(suite);
}
