/* test_controller.c: fences, timers and files through the scheduler, direct tasks, how many hops a
 * chain costs, and that independent chains run side by side; on both backends.
 */
#include <check.h>
#include <string.h>

#include "scheduler/run.h"
#include "tests/c/io_support.h"
#include "tests/c/sched_fixture.h"

START_TEST(fence_ends_after_what_it_reads) {
    dt_sched *s = start(2, _i);
    fake_ends fence = {0};
    dt_tensor *t = fake_tensor(8);
    dt_task *task = fake_task(&ends, t, NULL, 0, NULL, 0, 3);
    task->call.params.i[FAKE_BUSY_NS] = 20000000;
    dt_sched_submit(s, task);
    dt_sched_submit(s, bare_task(DT_TASK_FENCE, t, &fence));
    dt_sched_submit(s, bare_task(DT_TASK_FENCE, NULL, &fence)); /* nothing to wait for */
    fake_await(&fence, 1);
    fake_await(&fence, 2);
    ck_assert_int_eq(ends.count, 1);
    ck_assert_int_eq(*fake_at(t, 0), 3);
    /* and fails as that failed */
    task = fake_task(&ends, t, NULL, 0, NULL, 0, 7);
    task->call.params.i[FAKE_FAIL] = DT_E_INDEX;
    dt_sched_submit(s, task);
    dt_sched_submit(s, bare_task(DT_TASK_FENCE, t, &fence));
    fake_await(&fence, 3);
    ck_assert_int_eq(fence.failed, 1);
    ck_assert_str_eq(dt_error_message(fence.error), "fake failure 7");
    dt_tensor_release(t);
    fake_drain(s);
    fake_ends_clear(&fence);
    stop(s);
}
END_TEST

/* ---- fences after everything before them ----------------------------------------------------- */

enum { NUMBERED_MAX = 600 };

/* Which of the tasks that were submitted through number() have ended. */
static _Atomic(bool) has_ended[NUMBERED_MAX];
static int numbered;

static void on_numbered(dt_task *task) {
    *(_Atomic(bool) *)task->user = true;
    task->user = &ends;
    fake_on_end(task);
}

static void number(dt_sched *s, dt_task *task) {
    ck_assert_int_lt(numbered, NUMBERED_MAX);
    task->user = &has_ended[numbered++];
    task->on_end = on_numbered;
    dt_sched_submit(s, task);
}

/* A fence, and what it found when it ended. */
typedef struct mark {
    fake_ends own;
    int after;     /* tasks submitted before it */
    int not_ended; /* of those */
} mark;

static void on_mark(dt_task *task) {
    mark *m = task->user;
    for (int k = 0; k < m->after; k++) m->not_ended += !has_ended[k];
    fake_on_end(task); /* own is first */
}

static void submit_mark(dt_sched *s, mark *m) {
    dt_task *task = bare_task(DT_TASK_FENCE, NULL, &m->own);
    task->after_all = true;
    task->user = m;
    task->on_end = on_mark;
    m->after = numbered;
    dt_sched_submit(s, task);
}

static void submit_busy(dt_sched *s, dt_tensor *t, int64_t busy_ns) {
    dt_task *task = fake_task(&ends, t, NULL, 0, NULL, 0, 1);
    task->call.params.i[FAKE_BUSY_NS] = busy_ns;
    number(s, task);
}

static void submit_timer(dt_sched *s, int64_t delay_ns) {
    dt_task *timer = bare_task(DT_TASK_TIMER, NULL, &ends);
    timer->io.delay_ns = delay_ns;
    number(s, timer);
}

START_TEST(fence_after_all_of_nothing_ends_at_once) {
    dt_sched *s = start(1, _i);
    mark m[2] = {0};
    for (int k = 0; k < 2; k++) submit_mark(s, &m[k]);
    for (int k = 0; k < 2; k++) fake_await(&m[k].own, 1);
    fake_drain(s);
    stop(s);
}
END_TEST

/* Tasks that end out of order: timers, a chain, independent ones; fences between and after. */
START_TEST(fence_after_all_waits_for_everything_before_and_nothing_behind) {
    dt_sched *s = start(2, _i);
    mark m[4] = {0};
    dt_tensor *t[4];
    for (int k = 0; k < 4; k++) t[k] = fake_tensor(8);
    submit_timer(s, 60000000);
    submit_busy(s, t[0], 1000000);
    submit_busy(s, t[0], 1000000);
    submit_mark(s, &m[0]);
    submit_mark(s, &m[1]);                                     /* nothing between the two */
    for (int k = 1; k < 4; k++) submit_busy(s, t[k], 1000000); /* end before the timer */
    submit_mark(s, &m[2]);
    fake_gate gate = {0};
    dt_task *behind = fake_task(&ends, NULL, NULL, 0, NULL, 0, 1);
    behind->call.params.i[FAKE_GATE] = (int64_t)(intptr_t)&gate;
    number(s, behind);
    submit_mark(s, &m[3]);
    for (int k = 0; k < 3; k++) fake_await(&m[k].own, 1);
    ck_assert(!has_ended[6]);
    ck_assert_int_eq(m[3].own.count, 0);
    fake_gate_open(&gate);
    fake_await(&m[3].own, 1);
    for (int k = 0; k < 4; k++) ck_assert_int_eq(m[k].not_ended, 0);
    for (int k = 0; k < 4; k++) dt_tensor_release(t[k]);
    fake_drain(s);
    stop(s);
}
END_TEST

/* A failed task has ended too, and the fence itself does not fail. */
START_TEST(fence_after_all_does_not_mind_failures) {
    dt_sched *s = start(2, _i);
    mark m = {0};
    dt_tensor *t = fake_tensor(8);
    dt_task *task = fake_task(&ends, t, NULL, 0, NULL, 0, 7);
    task->call.params.i[FAKE_FAIL] = DT_E_INDEX;
    task->call.params.i[FAKE_BUSY_NS] = 5000000;
    number(s, task);
    submit_mark(s, &m);
    fake_await(&m.own, 1);
    ck_assert_int_eq(m.not_ended, 0);
    ck_assert_int_eq(m.own.failed, 0);
    dt_tensor_release(t);
    fake_drain(s);
    stop(s);
}
END_TEST

/* Any mix of tasks, direct ones and timers among them, and fences. */
START_TEST(many_fences_after_all_among_many_tasks) {
    dt_sched *s = start(3, _i);
    static mark m[NUMBERED_MAX];
    memset(m, 0, sizeof m);
    dt_tensor *t[4];
    for (int k = 0; k < 4; k++) t[k] = fake_tensor(8);
    uint32_t random = 12345;
    for (int k = 0; k < NUMBERED_MAX; k++) {
        random = random * 1664525 + 1013904223;
        int64_t ns = (int64_t)(random >> 8 & 31) * 1000;
        if (random >> 24 & 7) {
            submit_busy(s, t[random >> 20 & 3], ns);
        } else {
            submit_timer(s, 50 * ns);
        }
        if (random >> 28 < 6) submit_mark(s, &m[k]);
        if (random >> 24 == 255) fake_await(&ends, (uint32_t)k / 2); /* so that workers get idle */
    }
    fake_drain(s);
    int fences = 0;
    for (int k = 0; k < NUMBERED_MAX; k++) {
        fences += (int)m[k].own.count;
        ck_assert_int_eq(m[k].not_ended, 0);
    }
    ck_assert_int_gt(fences, 100);
    for (int k = 0; k < 4; k++) dt_tensor_release(t[k]);
    stop(s);
}
END_TEST

/* A stop ends what they wait for, and then them. */
START_TEST(fences_after_all_end_at_a_stop) {
    dt_sched *s = start(1, _i);
    mark m[2] = {0};
    submit_timer(s, INT64_MAX);
    submit_mark(s, &m[0]);
    submit_mark(s, &m[1]);
    dt_sched_stop(s);
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(m[k].own.count, 1);
        ck_assert_int_eq(m[k].not_ended, 0);
        fake_ends_clear(&m[k].own);
    }
    fake_ends_clear(&ends);
    test_assert_no_leak(before);
}
END_TEST

/* ---- timers --------------------------------------------------------------------------------- */

static _Atomic(int64_t) timer_due_ns[4]; /* in the order in which they rang; 0: early */
static _Atomic(int) timer_count;

static void on_timer(dt_task *task) {
    int64_t due_ns = task->time_submit_ns + task->io.delay_ns;
    int k = atomic_fetch_add(&timer_count, 1);
    atomic_store(&timer_due_ns[k], task->time_end_ns >= due_ns ? due_ns : 0);
    task->user = &ends;
    fake_on_end(task);
}

START_TEST(timers_ring_in_order_and_not_early) {
    dt_sched *s = start(1, _i);
    static const int ms[] = {30, 5, 60, 15};
    for (int k = 0; k < 4; k++) {
        dt_task *task = bare_task(DT_TASK_TIMER, NULL, &ends);
        task->io.delay_ns = ms[k] * 1000000;
        task->on_end = on_timer;
        dt_sched_submit(s, task);
    }
    fake_await(&ends, 4);
    for (int k = 0; k < 4; k++) ck_assert_int_gt(timer_due_ns[k], k > 0 ? timer_due_ns[k - 1] : 0);
    dt_task *task = bare_task(DT_TASK_TIMER, NULL, &ends);
    task->io.delay_ns = -5; /* at once */
    dt_sched_submit(s, task);
    task = bare_task(DT_TASK_TIMER, NULL, &ends);
    task->io.delay_ns = INT64_MAX; /* never: ended by stop */
    dt_sched_submit(s, task);
    fake_await(&ends, 5);
    ck_assert_int_eq(ends.failed, 0);
    stop(s);
}
END_TEST

/* A far timer does not keep others from ending, nor does it make the controller spin. */
START_TEST(waiting_timer_costs_nothing) {
    dt_sched *s = start(1, _i);
    dt_task *task = bare_task(DT_TASK_TIMER, NULL, &ends);
    task->io.delay_ns = 50000000;
    dt_sched_submit(s, task);
    fake_await(&ends, 1);
    fake_drain(s);
    ck_assert_int_le(stats_of(s).controller_wakeups, 8);
    stop(s);
}
END_TEST

/* ---- files ---------------------------------------------------------------------------------- */

START_TEST(files_take_part_in_the_graph) {
    io_make_file(8000);
    dt_sched *s = start(2, _i);
    dt_file *file;
    ck_assert_ok(dt_file_open(io_path, false, &file));
    dt_tensor *in = fake_tensor(1000), *twice = fake_tensor(1000);
    dt_sched_submit(s, io_task(&ends, file, false, in, 0));
    dt_sched_submit(s, fake_task(&ends, twice, in, 2, NULL, 0, 0));
    fake_await(&ends, 2);
    ck_assert_int_eq(*fake_at(twice, 999), 2 * (999 * 3 + 1));
    dt_file_release(file);
    /* A save followed by an in-place add: the file holds the value before (cases.md 19). */
    ck_assert_ok(dt_file_open(io_path, true, &file));
    dt_task *slow = fake_task(&ends, twice, NULL, 0, NULL, 0, 1);
    slow->call.params.i[FAKE_BUSY_NS] = 5000000;
    dt_sched_submit(s, slow);
    dt_sched_submit(s, io_task(&ends, file, true, twice, 0));
    dt_sched_submit(s, fake_task(&ends, twice, twice, 1, NULL, 0, 1));
    dt_file_release(file);
    fake_await(&ends, 5);
    ck_assert_int_eq(*fake_at(twice, 0), 2);
    ck_assert_ok(dt_file_open(io_path, false, &file));
    dt_sched_submit(s, io_task(&ends, file, false, in, 0));
    fake_await(&ends, 6);
    for (int k = 0; k < 1000; k += 111) ck_assert_int_eq(*fake_at(in, k), 1);
    /* Beyond the end: the reader fails, and who needs it. */
    dt_sched_submit(s, io_task(&ends, file, false, in, 500));
    dt_sched_submit(s, fake_task(&ends, twice, in, 2, NULL, 0, 0));
    fake_await(&ends, 8);
    ck_assert_int_eq(ends.failed, 2);
    ck_assert_ptr_nonnull(strstr(dt_error_message(ends.error), "truncated"));
    fake_drain(s);
    dt_sched_stats stats = stats_of(s);
    ck_assert_int_eq(stats.io_reads, 3 + 0);
    ck_assert_int_eq(stats.io_writes, 1);
    dt_tensor_release(in);
    dt_tensor_release(twice);
    dt_file_release(file);
    stop(s);
    io_remove_file();
}
END_TEST

/* ---- hops ----------------------------------------------------------------------------------- */

/* Until everybody sleeps; a worker that comes to rest last may wake the controller once more. */
static void await_rest(dt_sched *s) {
    fake_drain(s);
    while (!dt_gate_is_closed(&s->gate) || !dt__pool_has_idle(s->pool)) sched_yield();
}

/* On an idle machine a lone task goes straight to a worker. */
START_TEST(lone_task_is_direct) {
    dt_sched *s = start(2, _i);
    dt_tensor *x = fake_full(8, 1);
    uint32_t count = 0;
    while (stats_of(s).direct < 10) {
        ck_assert_uint_lt(count, 1000);
        await_rest(s);
        dt_sched_submit(s, fake_task(&ends, x, x, 1, NULL, 0, 1));
        fake_await(&ends, ++count);
    }
    fake_drain(s);
    ck_assert_int_eq(*fake_at(x, 7), 1 + count);
    dt_tensor_release(x);
    stop(s);
}
END_TEST

/* Followers of a direct task are linked behind it, whenever they come. */
START_TEST(followers_of_direct_tasks) {
    dt_sched *s = start(2, _i);
    uint64_t seed = 3;
    dt_tensor *x = fake_full(8, 0);
    uint32_t count = 0;
    for (int round = 0; round < 300; round++) {
        int n = (int)test_random_in(&seed, 1, 4);
        for (int k = 0; k < n; k++, count++) {
            dt_task *task = fake_task(&ends, x, x, 1, NULL, 0, 1);
            task->call.params.i[FAKE_BUSY_NS] = test_random_in(&seed, 0, 30000);
            dt_sched_submit(s, task);
            fake_busy(test_random_in(&seed, 0, 20000));
        }
        if (round % 3 == 0) fake_await(&ends, count);
        if (round % 10 == 0) await_rest(s);
    }
    fake_await(&ends, count);
    for (int i = 0; i < 8; i++) ck_assert_int_eq(*fake_at(x, i), count);
    ck_assert_int_ge(stats_of(s).direct, 10);
    dt_tensor_release(x);
    stop(s);
}
END_TEST

/* Submits `chains` interleaved chains of n tasks; all wait for `gate`. */
static void submit_chains(dt_sched *s, dt_tensor *gate, int chains, int n, int64_t busy_ns,
                          int meet) {
    dt_tensor *last[8];
    for (int c = 0; c < chains; c++) last[c] = dt_tensor_retain(gate);
    for (int k = 0; k < n; k++) {
        for (int c = 0; c < chains; c++) {
            dt_tensor *next = fake_tensor(8);
            dt_task *task = fake_task(&ends, next, last[c], 1, NULL, 0, 1);
            task->call.params.i[FAKE_BUSY_NS] = busy_ns;
            task->call.params.i[FAKE_MEET] = meet;
            dt_sched_submit(s, task);
            dt_tensor_release(last[c]);
            last[c] = next;
        }
    }
    for (int c = 0; c < chains; c++) dt_tensor_release(last[c]);
}

/* A task that others can wait for until most are submitted. */
static dt_tensor *submit_gate(dt_sched *s, int64_t busy_ns) {
    dt_tensor *gate = fake_tensor(8);
    dt_task *task = fake_task(&ends, gate, NULL, 0, NULL, 0, 0);
    task->call.params.i[FAKE_BUSY_NS] = busy_ns;
    dt_sched_submit(s, task);
    return gate;
}

START_TEST(chain_costs_few_hops) {
    dt_sched *s = start(2, _i);
    fake_gate open = {0};
    dt_tensor *gate = fake_tensor(8);
    submit_gated(s, &open, gate);
    submit_chains(s, gate, 1, 100, 10000, 0);
    dt_tensor_release(gate);
    settle(s);
    fake_gate_open(&open);
    fake_await(&ends, 101);
    fake_drain(s);
    dt_sched_stats stats = stats_of(s);
    ck_assert_int_le(stats.runs, 16);
    ck_assert_int_eq(stats.runs + stats.chained, 101);
    stop(s);
}
END_TEST

/* Runs until another one stands behind it in its run: 20 s at most. */
static dt_task *followed[100];

static dt_status run_until_followed(const dt_call *call, const dt_part *part) {
    int k = (int)call->params.i[FAKE_C];
    int64_t end_ns = dt_clock_ns() + 20000000000;
    do {
        fake_busy(1000000);
    } while (k < 99 && atomic_load(&followed[k]->run_next) == NULL && dt_clock_ns() < end_ns);
    (void)part;
    *fake_at(dt_call_out(call, 0), 7) += 1;
    return DT_OK;
}

static const dt_kernel followed_kernel = {
    .name = "followed", .run = run_until_followed, .cost_ns = fake_cost};

/* Workers tell of what ended in the middle of a run, so that the controller can make it longer. */
START_TEST(run_is_prolonged_while_it_runs) {
    dt_sched *s = start(2, _i);
    dt_tensor *t = fake_full(8, 0);
    for (int k = 0; k < 100; k++) {
        followed[k] = fake_task(&ends, t, t, 1, NULL, 0, k);
        followed[k]->call.kernel = &followed_kernel;
        followed[k]->call.params.i[FAKE_COST_NS] = 10000; /* so 20 of them make a run */
        dt_sched_submit(s, followed[k]);
    }
    fake_await(&ends, 100);
    fake_drain(s);
    ck_assert_int_le(stats_of(s).runs, 3);
    ck_assert_int_eq(*fake_at(t, 7), 100);
    dt_tensor_release(t);
    stop(s);
}
END_TEST

START_TEST(independent_chains_run_side_by_side) {
    dt_sched *s = start(2, _i);
    dt_tensor *gate = submit_gate(s, 10000000);
    atomic_store(&fake_running_max, 0);
    submit_chains(s, gate, 2, 10, 2000000, 2);
    dt_tensor_release(gate);
    fake_await(&ends, 21);
    ck_assert_int_eq(atomic_load(&fake_running_max), 2);
    stop(s);
}
END_TEST

/* A fork in the middle of a run: the other branch starts while the run goes on. */
START_TEST(branches_start_at_once) {
    dt_sched *s = start(2, _i);
    dt_tensor *gate = submit_gate(s, 10000000), *mid = fake_tensor(8), *outs[2];
    atomic_store(&fake_running_max, 0);
    dt_sched_submit(s, fake_task(&ends, mid, gate, 1, NULL, 0, 0));
    for (int branch = 0; branch < 2; branch++) {
        outs[branch] = fake_tensor(8);
        dt_task *task = fake_task(&ends, outs[branch], mid, 1, NULL, 0, 0);
        task->call.params.i[FAKE_MEET] = 2;
        task->call.params.i[FAKE_COST_NS] = 1000; /* so that one of them joins the run */
        dt_sched_submit(s, task);
    }
    fake_await(&ends, 4);
    ck_assert_int_eq(atomic_load(&fake_running_max), 2);
    for (int branch = 0; branch < 2; branch++) dt_tensor_release(outs[branch]);
    dt_tensor_release(gate);
    dt_tensor_release(mid);
    stop(s);
}
END_TEST

/* More chains than workers: none of them starves another beyond a run. */
START_TEST(chains_share_workers) {
    dt_sched *s = start(1, _i);
    dt_tensor *gate = submit_gate(s, 30000000);
    submit_chains(s, gate, 4, 100, 10000, 0);
    dt_tensor_release(gate);
    fake_await(&ends, 401);
    fake_drain(s);
    ck_assert_int_ge(stats_of(s).runs, 4 * 100 * 10000 / (int)DT__RUN_COST_NS_MAX);
    stop(s);
}
END_TEST

/* ---- order ---------------------------------------------------------------------------------- */

static _Atomic(int) begun_count;
static int begun[1000];

static dt_status note_begin(const dt_call *call, const dt_part *part) {
    (void)part;
    begun[atomic_fetch_add(&begun_count, 1)] = (int)call->params.i[FAKE_C];
    return DT_OK;
}

static const dt_kernel noting_kernel = {.name = "noting", .run = note_begin, .cost_ns = fake_cost};

/* With one worker, ready tasks start in program order, also those that became ready late. */
START_TEST(ready_tasks_start_in_program_order) {
    dt_sched *s = start(1, _i);
    dt_tensor *gate = submit_gate(s, 20000000);
    for (int k = 0; k < 1000; k++) {
        /* Half of them wait for the gate, half are ready before. */
        dt_task *task = fake_task(&ends, NULL, k % 2 ? gate : NULL, 1, NULL, 0, k);
        task->call.kernel = &noting_kernel;
        task->call.params.i[FAKE_COST_NS] = 100000;
        dt_sched_submit(s, task);
    }
    dt_tensor_release(gate);
    fake_await(&ends, 1001);
    int inversions = 0; /* what was in the worker's queue before the gate opened may be early */
    for (int k = 1; k < 1000; k++) inversions += begun[k] < begun[k - 1];
    ck_assert_int_le(inversions, 6);
    stop(s);
}
END_TEST

/* A burst does not delay what was submitted before it. */
START_TEST(burst_is_linked_in_rounds) {
    dt_sched *s = start(2, _i);
    for (int k = 0; k < 20000; k++) dt_sched_submit(s, fake_task(&ends, NULL, NULL, 0, NULL, 0, 0));
    fake_await(&ends, 20000);
    fake_drain(s);
    dt_sched_stats stats = stats_of(s);
    ck_assert_int_eq(stats.submitted, 20000);
    ck_assert_int_eq(stats.ended, 20000);
    stop(s);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("controller");
    TCase *tcase = tcase_create("both");
    tcase_add_loop_test(tcase, fence_ends_after_what_it_reads, 0, 2);
    tcase_add_loop_test(tcase, fence_after_all_of_nothing_ends_at_once, 0, 2);
    tcase_add_loop_test(tcase, fence_after_all_waits_for_everything_before_and_nothing_behind, 0,
                        2);
    tcase_add_loop_test(tcase, fence_after_all_does_not_mind_failures, 0, 2);
    tcase_add_loop_test(tcase, many_fences_after_all_among_many_tasks, 0, 2);
    tcase_add_loop_test(tcase, fences_after_all_end_at_a_stop, 0, 2);
    tcase_add_loop_test(tcase, timers_ring_in_order_and_not_early, 0, 2);
    tcase_add_loop_test(tcase, waiting_timer_costs_nothing, 0, 2);
    tcase_add_loop_test(tcase, files_take_part_in_the_graph, 0, 2);
    tcase_add_loop_test(tcase, lone_task_is_direct, 0, 2);
    tcase_add_loop_test(tcase, followers_of_direct_tasks, 0, 2);
    tcase_add_loop_test(tcase, chain_costs_few_hops, 0, 2);
    tcase_add_loop_test(tcase, run_is_prolonged_while_it_runs, 0, 2);
    tcase_add_loop_test(tcase, independent_chains_run_side_by_side, 0, 2);
    tcase_add_loop_test(tcase, branches_start_at_once, 0, 2);
    tcase_add_loop_test(tcase, chains_share_workers, 0, 2);
    tcase_add_loop_test(tcase, ready_tasks_start_in_program_order, 0, 2);
    tcase_add_loop_test(tcase, burst_is_linked_in_rounds, 0, 2);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
