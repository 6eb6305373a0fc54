/* test_run.c: which tasks join a run and which fuse there, how far runs grow, and the race for the
 * end of a run. */
#include <check.h>
#include <pthread.h>

#include "runtime/alloc.h"
#include "scheduler/run.h"
#include "scheduler/task.h"
#include "tests/c/fuse_support.h"

static uint64_t seq;
static _Atomic(int32_t) waited;
static const dt_run_context alone = {.waited_for = &waited};
static const dt_run_context crowded = {.others_wait = true, .waited_for = &waited};

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
    ck_assert_int_eq(dt__run_extend(task[0], &alone), 19); /* 20 x 10 us */
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
    (void)dt__run_extend(task[0], &alone);
    for (int k = 0; k < 5; k++) {
        ck_assert_ptr_eq(dt__run_close(task[k]), task[k + 1]);
        dt_task *tail = dt__run_leave(task[k]);
        ck_assert_ptr_eq(tail, task[19]);
        dt__graph_unlink(task[k], nothing, NULL);
        dt__task_destroy(task[k]);
    }
    /* Others wait: no more than 200 us ever. */
    ck_assert_int_eq(dt__run_extend(task[19], &crowded), 0);
    ck_assert_int_eq(dt__run_extend(task[19], &alone), 5);
    free_chain(5, 100);
}
END_TEST

START_TEST(short_task_follows_a_long_one) {
    make_chain(3, 1000);
    task[0]->cost_ns = 1e6;
    hand_over(task[0]);
    ck_assert_int_eq(dt__run_extend(task[0], &crowded), 0);
    ck_assert_int_eq(dt__run_extend(task[0], &alone), 1);
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
    ck_assert_int_eq(dt__run_extend(a, &alone), 2);
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
    ck_assert_int_eq(dt__run_extend(w, &alone), 1);
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
    ck_assert_int_eq(dt__run_extend(task[0], &alone), 2);
    dt_task *aside = linked(out[0], t[1], NULL, 1000); /* needs task[0], could run beside task[1] */
    ck_assert(!task[0]->waited_for);
    ck_assert(!dt__run_join(aside, &alone));
    ck_assert(task[0]->waited_for);
    dt_task *next = linked(out[1], t[3], NULL, 1000);
    ck_assert(dt__run_join(next, &alone));
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
    ck_assert(!dt__run_join(task[1], &alone));
    ck_assert_int_eq(atomic_load(&task[1]->state), DT_TASK_LINKED);
    free_chain(0, 2);
}
END_TEST

START_TEST(io_tasks_are_in_no_run) {
    make_chain(3, 1000);
    task[1]->kind = DT_TASK_TIMER;
    hand_over(task[0]);
    ck_assert_int_eq(dt__run_extend(task[0], &alone), 0);
    task[1]->kind = DT_TASK_FENCE;
    ck_assert_int_eq(dt__run_extend(task[0], &alone), 2);
    free_chain(0, 3);
}
END_TEST

START_TEST(without_memory_there_is_just_no_run) {
    make_chain(3, 1000);
    hand_over(task[0]);
    dt_alloc_fail_at(1, true);
    int n = dt__run_extend(task[0], &alone);
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

/* ---- runs that fuse ------------------------------------------------------------------------- */

static int taken_count;

static void on_taken(void *owner, dt_task *taken) {
    ck_assert_ptr_eq(owner, &taken_count);
    ck_assert_int_ne(taken->place, DT_PLACE_NONE);
    taken->place = DT_PLACE_NONE;
    taken_count++;
}

static const dt_run_context fusing = {.fuses = true,
                                      .siblings = true,
                                      .waited_for = &waited,
                                      .taken = on_taken,
                                      .owner = &taken_count};
static const dt_run_context fusing_crowded = {.fuses = true,
                                              .siblings = true,
                                              .others_wait = true,
                                              .waited_for = &waited,
                                              .taken = on_taken,
                                              .owner = &taken_count};
/* As under a limit of memory. */
static const dt_run_context fusing_chains = {
    .fuses = true, .waited_for = &waited, .taken = on_taken, .owner = &taken_count};

/* A linked task that can be computed in a pass; ready ones are in some list. */
static dt_task *fusible(dt_tensor *out, dt_tensor *x, dt_tensor *y, double cost_ns) {
    dt_task *added = linked(out, x, y, cost_ns);
    added->call.kernel = &fusing_kernel;
    added->fusible = true;
    if (added->blockers == 0) added->place = DT_PLACE_READY;
    return added;
}

static void make_fusible_chain(int n, double cost_ns) {
    for (int k = 0; k <= n; k++) t[k] = fake_full(4, 0);
    for (int k = 0; k < n; k++) task[k] = fusible(t[k + 1], t[k], NULL, cost_ns);
}

/* The first one is handed over. */
static void hand_over_first(dt_task *first) {
    first->place = DT_PLACE_NONE;
    hand_over(first);
}

/* However much they cost, up to the size of a pass; what follows then costs what it costs alone. */
START_TEST(heavy_chain_fuses) {
    dt_memory_stats before = test_memory();
    make_fusible_chain(60, 1e6);
    hand_over_first(task[0]);
    ck_assert_int_eq(dt__run_extend(task[0], &fusing), DT_FUSE_MAX - 1);
    ck_assert(!task[0]->fuses);
    for (int k = 1; k < DT_FUSE_MAX; k++) ck_assert(task[k]->fuses);
    ck_assert_int_eq(atomic_load(&task[DT_FUSE_MAX]->state), DT_TASK_LINKED);
    ck_assert_int_eq(taken_count, 0); /* none was ready */
    free_chain(0, 60);
    test_assert_no_leak(before);
}
END_TEST

/* Cheap ones go on in the same run, in a pass of their own. */
START_TEST(next_pass_follows_in_the_same_run) {
    make_fusible_chain(DT_FUSE_MAX + 3, 1000);
    hand_over_first(task[0]);
    ck_assert_int_eq(dt__run_extend(task[0], &fusing), DT_FUSE_MAX + 2);
    for (int k = 1; k < DT_FUSE_MAX + 3; k++) ck_assert_int_eq(task[k]->fuses, k != DT_FUSE_MAX);
    ck_assert(task[0]->run_cost_ns == 1000); /* a leader costs what it costs alone ... */
    ck_assert(task[DT_FUSE_MAX]->run_cost_ns == 1000);
    ck_assert_int_eq(task[0]->run->pass_from, 0);
    ck_assert_int_eq(task[0]->run->pass_end, 3);
    ck_assert_ptr_eq(task[0]->run->pass[0], task[DT_FUSE_MAX]);
    ck_assert(task[1]->run_cost_ns == 10); /* ... the others what they add */
    free_chain(0, DT_FUSE_MAX + 3);
}
END_TEST

START_TEST(nothing_fuses_unless_told_so) {
    make_fusible_chain(5, 1e6);
    hand_over_first(task[0]);
    ck_assert_int_eq(dt__run_extend(task[0], &alone), 0);
    task[1]->cost_ns = 1000;
    ck_assert_int_eq(dt__run_extend(task[0], &alone), 1);
    ck_assert(!task[1]->fuses);
    free_chain(0, 5);
}
END_TEST

/* A pass is not cut short because others wait: it costs little more. */
START_TEST(crowd_does_not_keep_tasks_from_fusing) {
    make_fusible_chain(5, 1e6);
    hand_over_first(task[0]);
    ck_assert_int_eq(dt__run_extend(task[0], &fusing_crowded), 4);
    free_chain(0, 5);
}
END_TEST

START_TEST(priorities_do_not_mix) {
    make_fusible_chain(4, 1000);
    task[2]->priority = DT_PRIORITY_BULK;
    task[3]->priority = DT_PRIORITY_BULK;
    hand_over_first(task[0]);
    ck_assert_int_eq(dt__run_extend(task[0], &fusing), 3);
    ck_assert(task[1]->fuses && !task[2]->fuses && task[3]->fuses);
    free_chain(0, 4);
}
END_TEST

START_TEST(nothing_fuses_behind_an_end) {
    make_fusible_chain(4, 1000);
    task[1]->call.params.i[FAKE_ENDS] = 1;
    task[3]->fusible = false;
    hand_over_first(task[0]);
    ck_assert_int_eq(dt__run_extend(task[0], &fusing), 3);
    ck_assert(task[1]->fuses && !task[2]->fuses && !task[3]->fuses);
    free_chain(0, 4);
    /* The first one may be an end, too. */
    make_fusible_chain(2, 1e6);
    task[0]->call.params.i[FAKE_ENDS] = 1;
    hand_over_first(task[0]);
    ck_assert_int_eq(dt__run_extend(task[0], &fusing), 0);
    free_chain(0, 2);
}
END_TEST

/* Class 2 goes with 0, which goes with 1; but 1 is still in the pass, or has been retired. */
START_TEST(every_member_left_must_agree) {
    for (int retired = 0; retired < 2; retired++) {
        make_fusible_chain(3, 1e6);
        task[0]->call.params.i[FAKE_CLASS] = 1;
        task[2]->call.params.i[FAKE_CLASS] = 2;
        hand_over_first(task[0]);
        ck_assert_int_eq(dt__run_extend(task[0], &fusing), 1);
        if (retired) {
            ck_assert_ptr_eq(dt__run_close(task[0]), task[1]);
            retire(task[0]);
        }
        ck_assert_int_eq(dt__run_extend(task[1], &fusing), retired);
        ck_assert_int_eq(task[2]->fuses, retired);
        free_chain(retired, 3);
    }
}
END_TEST

/* Ready tasks that read what a member reads or writes join it, and leave their list; one that reads
 * something else does not, nor does one of another size. */
START_TEST(ready_siblings_fuse) {
    dt_memory_stats before = test_memory();
    dt_tensor *x = fake_full(4, 0), *other = fake_full(4, 0), *out[5], *half,
              *small = fake_full(2, 0);
    for (int k = 0; k < 5; k++) out[k] = fake_full(4, 0);
    half = fake_view(x, 0, 2, 2);
    dt_task *all[] = {fusible(out[0], x, NULL, 1e6),     fusible(small, half, NULL, 1e6),
                      fusible(out[1], x, NULL, 1e6),     fusible(out[2], x, other, 1e6),
                      fusible(out[3], other, NULL, 1e6), fusible(out[4], out[1], NULL, 1e6)};
    hand_over_first(all[0]);
    taken_count = 0;
    ck_assert_int_eq(dt__run_extend(all[0], &fusing), 4);
    ck_assert_ptr_eq(atomic_load(&all[0]->run_next), all[2]);
    ck_assert_ptr_eq(atomic_load(&all[2]->run_next), all[5]); /* waits for it: first */
    ck_assert_ptr_eq(atomic_load(&all[5]->run_next), all[3]);
    ck_assert_ptr_eq(atomic_load(&all[3]->run_next), all[4]); /* by way of `other` */
    ck_assert_int_eq(taken_count, 3);
    ck_assert_int_eq(all[1]->state, DT_TASK_LINKED);
    ck_assert_int_eq(all[1]->place, DT_PLACE_READY);
    static const int in_order[] = {0, 2, 5, 3, 4, 1};
    for (int k = 0; k < 6; k++) retire(all[in_order[k]]);
    for (int k = 0; k < 5; k++) dt_tensor_release(out[k]);
    dt_tensor *rest[] = {x, other, half, small};
    for (int k = 0; k < 4; k++) dt_tensor_release(rest[k]);
    test_assert_no_leak(before);
}
END_TEST

/* a; b = f(a); c = g(a); d = b + c: all four, in an order in which each has what it needs. */
START_TEST(diamond_fuses) {
    dt_tensor *v[5];
    for (int k = 0; k < 5; k++) v[k] = fake_full(4, 0);
    dt_task *all[] = {fusible(v[1], v[0], NULL, 1e6), fusible(v[2], v[1], NULL, 1e6),
                      fusible(v[3], v[1], NULL, 1e6), fusible(v[4], v[2], v[3], 1e6)};
    hand_over_first(all[0]);
    ck_assert_int_eq(dt__run_extend(all[0], &fusing), 3);
    for (int k = 0; k < 3; k++) ck_assert_ptr_eq(atomic_load(&all[k]->run_next), all[k + 1]);
    for (int k = 1; k < 4; k++) ck_assert(all[k]->fuses);
    for (int k = 0; k < 4; k++) retire(all[k]);
    for (int k = 0; k < 5; k++) dt_tensor_release(v[k]);
}
END_TEST

/* A sibling that also needs what is neither ready nor in the run stays behind. */
START_TEST(sibling_that_waits_for_others_does_not_fuse) {
    dt_tensor *v[6];
    for (int k = 0; k < 6; k++) v[k] = fake_full(4, 0);
    dt_task *far = linked(v[5], v[4], NULL, 1e6);
    dt_task *first = fusible(v[1], v[0], NULL, 1e6);
    dt_task *needs_far = fusible(v[2], v[0], v[5], 1e6);
    dt_task *overwrites = fusible(v[0], v[0], NULL, 1e6); /* waits for needs_far's read, too */
    hand_over_first(first);
    ck_assert_int_eq(dt__run_extend(first, &fusing), 0);
    ck_assert_int_eq(needs_far->state, DT_TASK_LINKED);
    ck_assert_int_eq(overwrites->state, DT_TASK_LINKED);
    dt_task *all[] = {far, first, needs_far, overwrites};
    for (int k = 0; k < 4; k++) retire(all[k]);
    for (int k = 0; k < 6; k++) dt_tensor_release(v[k]);
}
END_TEST

/* Where siblings are to run one after the other, only what waits for the tail joins it. */
START_TEST(siblings_stay_apart_when_told_so) {
    dt_tensor *v[4];
    for (int k = 0; k < 4; k++) v[k] = fake_full(4, 0);
    dt_task *all[] = {fusible(v[1], v[0], NULL, 1e6), fusible(v[2], v[0], NULL, 1e6),
                      fusible(v[3], v[1], NULL, 1e6)};
    hand_over_first(all[0]);
    ck_assert_int_eq(dt__run_extend(all[0], &fusing_chains), 1);
    ck_assert_ptr_eq(atomic_load(&all[0]->run_next), all[2]);
    ck_assert_int_eq(all[1]->place, DT_PLACE_READY);
    static const int in_order[] = {0, 2, 1};
    for (int k = 0; k < 3; k++) retire(all[in_order[k]]);
    for (int k = 0; k < 4; k++) dt_tensor_release(v[k]);
}
END_TEST

/* One that waits for an earlier member only, and may not join, could run beside the rest. */
START_TEST(sibling_that_does_not_join_is_left) {
    dt_tensor *v[4];
    for (int k = 0; k < 4; k++) v[k] = fake_full(4, 0);
    dt_task *all[] = {fusible(v[1], v[0], NULL, 1000), fusible(v[2], v[1], NULL, 1000),
                      fusible(v[3], v[1], NULL, 1000)};
    all[1]->call.params.i[FAKE_CLASS] = 1;
    all[2]->call.params.i[FAKE_CLASS] = 2;
    hand_over_first(all[0]);
    ck_assert_int_eq(dt__run_extend(all[0], &fusing), 1);
    ck_assert_int_eq(all[2]->state, DT_TASK_LINKED);
    for (int k = 0; k < 3; k++) retire(all[k]);
    for (int k = 0; k < 4; k++) dt_tensor_release(v[k]);
}
END_TEST

/* One that somebody gave up, or that is to be dropped, is left where it is. */
START_TEST(parked_and_dropped_tasks_follow_nothing) {
    for (int dropped = 0; dropped < 2; dropped++) {
        make_fusible_chain(2, 1000);
        task[1]->parked = !dropped;
        task[1]->dropped = dropped;
        hand_over_first(task[0]);
        ck_assert_int_eq(dt__run_extend(task[0], &fusing), 0);
        ck_assert(!dt__run_join(task[1], &fusing));
        free_chain(0, 2);
    }
}
END_TEST

/* Once one was taken back, nothing follows in that run; of what a worker has begun, nothing is. */
START_TEST(run_is_closed_when_a_task_is_taken_back) {
    make_chain(4, 1000);
    hand_over(task[0]);
    ck_assert(dt__run_append(task[0], task[1], &alone));
    atomic_store(&task[0]->state, DT_TASK_RUNNING);
    ck_assert(!dt__run_take_back(task[0]));
    ck_assert(!task[0]->run->closed);
    ck_assert(dt__run_append(task[1], task[2], &alone));
    ck_assert(dt__run_take_back(task[1]));
    ck_assert_int_eq(task[1]->state, DT_TASK_TAKEN_BACK);
    ck_assert(task[0]->run->closed);
    ck_assert(!dt__run_take_back(task[1])); /* it is already */
    ck_assert(!dt__run_append(task[2], task[3], &alone));
    ck_assert(!dt__run_join(task[3], &alone));
    free_chain(0, 4);
}
END_TEST

/* When the worker was faster, the task is as it was. */
START_TEST(late_sibling_is_as_before) {
    dt_tensor *x = fake_full(4, 0), *out[2] = {fake_full(4, 0), fake_full(4, 0)};
    dt_task *a = fusible(out[0], x, NULL, 1e6), *b = fusible(out[1], x, NULL, 1e6);
    hand_over_first(a);
    ck_assert_ptr_null(dt__run_close(a));
    ck_assert_int_eq(dt__run_extend(a, &fusing), 0);
    ck_assert_int_eq(b->state, DT_TASK_LINKED);
    ck_assert_int_eq(b->place, DT_PLACE_READY);
    ck_assert(!b->fuses);
    ck_assert_ptr_null(b->run);
    ck_assert_int_eq(taken_count, 0);
    retire(a);
    retire(b);
    dt_tensor *rest[] = {x, out[0], out[1]};
    for (int k = 0; k < 3; k++) dt_tensor_release(rest[k]);
}
END_TEST

/* Behind a fence, which writes nothing, too. */
START_TEST(unwritten_inputs_behind_a_fence_are_materialized) {
    dt_tensor *big = fake_tensor(1000), *out = fake_tensor(1000);
    dt_task *fence, *writer = NULL;
    for (int written = 0; written < 2; written++) {
        if (written) writer = linked(big, NULL, NULL, 1000);
        ck_assert_ok(dt_task_new(DT_TASK_FENCE, 1, 0, &fence));
        fence->call.operands[0] = dt_tensor_retain(big);
        fence->seq = ++seq;
        atomic_store(&fence->state, DT_TASK_LINKED);
        ck_assert_ok(dt__graph_link(fence, 1));
        dt_task *reader = linked(out, big, NULL, 1000);
        ck_assert_ok(dt__run_materialize_inputs(reader));
        ck_assert_int_eq(atomic_load(&big->storage->data) != NULL, !written);
        if (writer != NULL) retire(writer);
        retire(fence);
        retire(reader);
        dt_tensor_release(big);
        big = fake_tensor(1000);
    }
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
        bool joined = dt__run_join(task[1], &alone);
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
    fuse_register();
    Suite *suite = suite_create("run");
    TEST_CASE(suite, "growth", chain_goes_up_to_the_limit, run_goes_on_when_tasks_are_retired,
              short_task_follows_a_long_one, only_what_needs_nothing_else, siblings_are_no_chain,
              new_task_joins_a_run_at_its_tail_only, nothing_joins_what_has_ended,
              io_tasks_are_in_no_run, without_memory_there_is_just_no_run,
              unwritten_inputs_are_materialized);
    TEST_CASE(suite, "fusing", heavy_chain_fuses, next_pass_follows_in_the_same_run,
              nothing_fuses_unless_told_so, crowd_does_not_keep_tasks_from_fusing,
              priorities_do_not_mix, nothing_fuses_behind_an_end, every_member_left_must_agree,
              ready_siblings_fuse, diamond_fuses, sibling_that_waits_for_others_does_not_fuse,
              sibling_that_does_not_join_is_left, siblings_stay_apart_when_told_so,
              parked_and_dropped_tasks_follow_nothing, run_is_closed_when_a_task_is_taken_back,
              late_sibling_is_as_before, unwritten_inputs_behind_a_fence_are_materialized);
    TEST_CASE(suite, "race", append_and_close_agree);
    return test_run(suite);
}
