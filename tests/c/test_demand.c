/* test_demand.c: what is dropped because nobody can see it, and parked because nobody waits.
 *
 * One worker stands before a gate while the tests submit, give up and ask, so that nothing is
 * decided by who is faster.  Heavy tasks join no run: they wait in the graph.
 */
#include <check.h>

#include "scheduler/run.h"
#include "tests/c/io_support.h"
#include "tests/c/sched_fixture.h"

enum { LENGTH = 1000, HEAVY_NS = 1000000 };

static fake_gate gate;
static dt_tensor *source; /* written by the task that stands before the gate */

/* The worker is busy until fake_gate_open(&gate). */
static dt_sched *start_gated(int backend) {
    dt_sched *s = start(1, backend);
    source = fake_tensor(LENGTH);
    submit_gated(s, &gate, source);
    settle(s);
    return s;
}

static void stop_gated(dt_sched *s) {
    fake_gate_open(&gate);
    if (source != NULL) dt_tensor_release(source);
    fake_drain(s);
    stop(s);
}

/* out = x + 1 in a fresh tensor. */
static dt_task *heavy_task(dt_tensor **out, dt_tensor *x, dt_tensor *y) {
    *out = fake_tensor(LENGTH);
    dt_task *task = fake_task(&ends, *out, x, 1, y, 1, 1);
    task->call.params.i[FAKE_COST_NS] = HEAVY_NS;
    return task;
}

static dt_tensor *submit_heavy(dt_sched *s, dt_tensor *x, dt_tensor *y) {
    dt_tensor *out;
    dt_sched_submit(s, heavy_task(&out, x, y));
    return out;
}

/* t[1] to t[n], each from the one before; t[0] is `source`. */
static void submit_chain(dt_sched *s, dt_tensor **t, int n) {
    t[0] = source;
    for (int k = 1; k <= n; k++) t[k] = submit_heavy(s, t[k - 1], NULL);
}

/* The last handle, as dispatch gives it up. */
static void give_up(dt_sched *s, dt_tensor *t) { dt_sched_tell(s, DT_TASK_RELEASE, t); }

/* ---- dropping ------------------------------------------------------------------------------- */

START_TEST(chain_is_dropped_from_its_end) {
    dt_sched *s = start_gated(_i);
    dt_tensor *t[6];
    submit_chain(s, t, 5);
    for (int k = 1; k < 5; k++) dt_tensor_release(t[k]);
    settle(s);
    ck_assert_int_eq(stats_of(s).dropped, 0);
    give_up(s, t[5]);
    settle(s);
    ck_assert_int_eq(stats_of(s).dropped, 5);
    ck_assert_int_eq(ends.count, 5);
    ck_assert_int_eq(dt_error_status(ends.error), DT_E_CANCELLED);
    fake_gate_open(&gate);
    fake_await(&ends, 6);
    ck_assert_int_eq(ends.failed, 5); /* not the one that ran */
    ck_assert_int_eq(fake_started, 1);
    fake_drain(s);
    ck_assert_int_eq(stats_of(s).failed, 0);
    stop_gated(s);
}
END_TEST

/* What stops it: t[2] is still read by another task, held, or seen through a view. */
START_TEST(dropping_stops_at_what_is_still_wanted) {
    for (int how = 0; how < 3; how++) {
        atomic_store(&gate.open, 0);
        atomic_store(&gate.entered, 0);
        atomic_store(&fake_started, 0);
        dt_sched *s = start_gated(_i);
        dt_tensor *t[6], *kept = NULL;
        submit_chain(s, t, 5);
        if (how == 0) kept = submit_heavy(s, t[2], NULL);
        if (how == 1) kept = dt_tensor_retain(t[2]);
        if (how == 2) kept = fake_view(t[2], 0, LENGTH / 2, 2);
        for (int k = 1; k < 5; k++) dt_tensor_release(t[k]);
        give_up(s, t[5]);
        settle(s);
        ck_assert_int_eq(stats_of(s).dropped, 3);
        ck_assert_int_eq(ends.count, 3);
        fake_gate_open(&gate);
        fake_await(&ends, how == 0 ? 7 : 6);
        ck_assert_int_eq(ends.failed, 3);
        ck_assert_int_eq(fake_started, how == 0 ? 4 : 3);
        ck_assert_int_eq(*fake_at(kept, 0), how == 0 ? 3 : 2);
        dt_tensor_release(kept);
        stop_gated(s);
    }
}
END_TEST

/* A handle of the same tensor, or of its bytes, that is not the last one drops nothing. */
START_TEST(handles_that_are_not_the_last) {
    dt_sched *s = start_gated(_i);
    dt_tensor *a = submit_heavy(s, source, NULL), *view = fake_view(a, 0, 10, 1);
    give_up(s, dt_tensor_retain(a));
    give_up(s, a);
    settle(s);
    ck_assert_int_eq(stats_of(s).dropped, 0);
    give_up(s, view);
    settle(s);
    ck_assert_int_eq(stats_of(s).dropped, 1);
    stop_gated(s);
}
END_TEST

/* What reads it is behind it: it is looked at again when that one goes. */
START_TEST(what_is_read_goes_with_its_last_reader) {
    dt_sched *s = start_gated(_i);
    dt_tensor *a = submit_heavy(s, source, NULL);
    dt_tensor *b = submit_heavy(s, a, NULL), *c = submit_heavy(s, a, NULL);
    give_up(s, a);
    give_up(s, b);
    settle(s);
    ck_assert_int_eq(stats_of(s).dropped, 1);
    give_up(s, c);
    settle(s);
    ck_assert_int_eq(stats_of(s).dropped, 3);
    stop_gated(s);
}
END_TEST

/* In place: y = x; y = 2 y; y = 2 y, then y goes. The tasks hold it for each other: at most the
 * last one is not computed. */
START_TEST(writers_in_place_hold_what_they_write) {
    dt_sched *s = start_gated(_i);
    dt_tensor *y = submit_heavy(s, source, NULL);
    for (int k = 0; k < 2; k++) {
        dt_task *task = fake_task(&ends, y, y, 2, NULL, 0, 0);
        task->call.params.i[FAKE_COST_NS] = HEAVY_NS;
        dt_sched_submit(s, task);
    }
    give_up(s, y);
    settle(s);
    ck_assert_int_eq(stats_of(s).dropped, 0);
    fake_gate_open(&gate);
    fake_drain(s);
    ck_assert_int_eq(ends.failed, stats_of(s).dropped);
    ck_assert_int_ge(fake_started, 3);
    ck_assert_int_eq(stats_of(s).dropped + fake_started, 4);
    stop_gated(s);
}
END_TEST

/* What runs, and what has run, is left alone. */
START_TEST(running_and_ended_tasks_are_not_dropped) {
    dt_sched *s = start_gated(_i);
    give_up(s, source);
    source = NULL;
    settle(s);
    ck_assert_int_eq(ends.count, 0);
    fake_gate_open(&gate);
    fake_await(&ends, 1);
    ck_assert_int_eq(ends.failed, 0);
    dt_tensor *x = fake_full(LENGTH, 1), *done = submit_heavy(s, x, NULL);
    fake_await(&ends, 2);
    give_up(s, done);
    fake_drain(s);
    ck_assert_int_eq(ends.failed, 0);
    ck_assert_int_eq(stats_of(s).dropped, 0);
    dt_tensor_release(x);
    stop_gated(s);
}
END_TEST

/* Of several outputs one is not enough. */
START_TEST(all_outputs_must_be_given_up) {
    dt_sched *s = start_gated(_i);
    dt_tensor *out[2] = {fake_tensor(LENGTH), fake_tensor(LENGTH)};
    dt_task *task;
    ck_assert_ok(dt_task_new(DT_TASK_COMPUTE, 2, 1, &task));
    for (int k = 0; k < 2; k++) task->call.operands[k] = dt_tensor_retain(out[k]);
    task->call.operands[2] = dt_tensor_retain(source);
    task->call.kernel = &fake_kernel;
    task->call.params.i[FAKE_COST_NS] = HEAVY_NS;
    task->user = &ends;
    task->on_end = fake_on_end;
    dt_sched_submit(s, task);
    give_up(s, out[1]);
    settle(s);
    ck_assert_int_eq(stats_of(s).dropped, 0);
    give_up(s, out[0]);
    settle(s);
    ck_assert_int_eq(stats_of(s).dropped, 1);
    stop_gated(s);
}
END_TEST

/* Effects are not undone: what is written to a file, and the tasks that it needs. */
START_TEST(files_are_written_and_read) {
    io_make_file(LENGTH * 8);
    dt_sched *s = start_gated(_i);
    dt_file *file, *other;
    ck_assert_ok(dt_file_open(io_path, false, &other));
    dt_tensor *in = fake_tensor(LENGTH);
    dt_sched_submit(s, io_task(&ends, other, false, in, 0));
    give_up(s, in);
    fake_await(&ends, 1);
    dt_file_release(other);
    ck_assert_ok(dt_file_open(io_path, true, &file));
    dt_tensor *a = submit_heavy(s, source, NULL);
    dt_sched_submit(s, io_task(&ends, file, true, a, 0));
    dt_file_release(file);
    give_up(s, a);
    settle(s);
    ck_assert_int_eq(stats_of(s).dropped, 0);
    fake_gate_open(&gate);
    fake_await(&ends, 4);
    ck_assert_int_eq(ends.failed, 0);
    io_remove_file();
    stop_gated(s);
}
END_TEST

/* In a worker's hands, behind the gate: the worker ends it when it comes to it. What follows in the
 * run is computed. */
START_TEST(handed_task_is_dropped_by_the_worker) {
    dt_sched *s = start_gated(_i);
    dt_tensor *a = fake_tensor(LENGTH), *b = fake_tensor(LENGTH);
    dt_task *first = fake_task(&ends, a, source, 1, NULL, 0, 1);
    dt_sched_submit(s, first); /* joins the run */
    dt_sched_submit(s, fake_task(&ends, b, source, 1, NULL, 0, 2));
    settle(s);
    ck_assert_int_eq(stats_of(s).chained, 1);
    ck_assert_int_eq(first->state, DT_TASK_HANDED);
    give_up(s, a);
    settle(s);
    ck_assert_int_eq(ends.count, 0);
    ck_assert_int_eq(first->state, DT_TASK_DROPPED);
    fake_gate_open(&gate);
    fake_await(&ends, 3);
    fake_drain(s);
    ck_assert_int_eq(ends.failed, 1);
    ck_assert_int_eq(stats_of(s).dropped, 1);
    ck_assert_int_eq(*fake_at(b, 0), 2);
    dt_tensor_release(b);
    stop_gated(s);
}
END_TEST

/* A chain whose end waits in the graph and whose beginning is with the worker. */
START_TEST(dropping_reaches_into_the_queue) {
    dt_sched *s = start_gated(_i);
    dt_tensor *a = fake_tensor(LENGTH);
    dt_task *first = fake_task(&ends, a, source, 1, NULL, 0, 1);
    dt_sched_submit(s, first); /* joins the run */
    dt_tensor *b = submit_heavy(s, a, NULL);
    dt_tensor_release(a);
    give_up(s, b);
    settle(s);
    ck_assert_int_eq(ends.count, 1);
    ck_assert_int_eq(first->state, DT_TASK_DROPPED);
    fake_gate_open(&gate);
    fake_await(&ends, 3);
    fake_drain(s);
    ck_assert_int_eq(stats_of(s).dropped, 2);
    ck_assert_int_eq(fake_started, 1);
    stop_gated(s);
}
END_TEST

/* The word needs memory; without, the reference goes all the same. */
START_TEST(word_without_memory_loses_no_reference) {
    dt_sched *s = start_gated(_i);
    dt_tensor *a = submit_heavy(s, source, NULL);
    settle(s);
    dt_alloc_fail_at(1, true);
    give_up(s, a);
    dt_alloc_fail_at(0, false);
    stop_gated(s); /* no leak; whether it was computed is not said */
}
END_TEST

/* ---- parking -------------------------------------------------------------------------------- */

/* Who waits for a task. */
typedef struct wish {
    fake_ends own; /* first: the task's user */
    _Atomic(int) want;
} wish;

static dt_want want_of(const dt_task *task) {
    return (dt_want)atomic_load(&((const wish *)task->user)->want);
}

static dt_tensor *submit_wanted(dt_sched *s, dt_tensor *x, dt_tensor *y, wish *w, dt_want want) {
    dt_tensor *out;
    dt_task *task = heavy_task(&out, x, y);
    atomic_store(&w->want, want);
    task->user = w;
    task->want = want_of;
    dt_sched_submit(s, task);
    return out;
}

static void abandon(dt_sched *s, wish *w) {
    atomic_store(&w->want, DT_WANT_ABANDONED);
    dt_sched_tell(s, DT_TASK_ABANDON, NULL);
}

/* As a client that begins to wait. */
static void ask(dt_sched *s, wish *w) {
    atomic_store(&w->want, DT_WANTED);
    if (dt_sched_has_parked(s)) dt_sched_tell(s, DT_TASK_ASK, NULL);
}

static bool has_ended(wish *w) { return atomic_load(&w->own.count) != 0; }

/* Opens the gate and waits until nothing is left that could start of itself.  With one worker, a
 * bulk task ends after all that was ready when it was submitted: each lets chains get one further.
 */
static void let_run(dt_sched *s) {
    fake_ends last = {0};
    fake_gate_open(&gate);
    fake_await(&ends, 1);
    for (uint32_t round = 1; round <= 5; round++) {
        settle(s);
        dt_task *task = fake_task(&last, NULL, NULL, 0, NULL, 0, 0);
        task->priority = DT_PRIORITY_BULK;
        task->call.params.i[FAKE_COST_NS] = HEAVY_NS;
        dt_sched_submit(s, task);
        fake_await(&last, round);
    }
    settle(s);
}

static void clear_wishes(wish *w, int n) {
    for (int k = 0; k < n; k++) fake_ends_clear(&w[k].own);
}

static void release_all(dt_tensor **t, int n) {
    for (int k = 0; k < n; k++) dt_tensor_release(t[k]);
}

START_TEST(abandoned_chain_is_parked_until_asked_for) {
    dt_sched *s = start_gated(_i);
    wish w[4] = {0};
    dt_tensor *t[4], *x = source;
    for (int k = 0; k < 4; k++) x = t[k] = submit_wanted(s, x, NULL, &w[k], DT_WANT_NEVER);
    atomic_store(&w[3].want, DT_WANTED);
    settle(s);
    ck_assert(!dt_sched_has_parked(s));
    abandon(s, &w[3]);
    settle(s);
    ck_assert_int_eq(stats_of(s).parked, 4);
    ck_assert(dt_sched_has_parked(s));
    ask(s, &w[3]);
    settle(s);
    abandon(s, &w[3]); /* once more */
    settle(s);
    ck_assert_int_eq(stats_of(s).parked, 8);
    let_run(s);
    for (int k = 0; k < 4; k++) ck_assert(!has_ended(&w[k]));
    ask(s, &w[3]);
    fake_await(&w[3].own, 1);
    ck_assert_int_eq(*fake_at(t[3], 0), 4);
    fake_drain(s);
    settle(s);
    ck_assert(!dt_sched_has_parked(s));
    ck_assert_int_eq(stats_of(s).parked, 8);
    release_all(t, 4);
    clear_wishes(w, 4);
    stop_gated(s);
}
END_TEST

/* w[0] is needed by w[1], which nobody wants any more, and by w[2], which somebody does. */
START_TEST(what_another_waiter_needs_is_not_parked) {
    dt_sched *s = start_gated(_i);
    wish w[3] = {0};
    dt_tensor *t[3];
    t[0] = submit_wanted(s, source, NULL, &w[0], DT_WANT_NEVER);
    t[1] = submit_wanted(s, t[0], NULL, &w[1], DT_WANTED);
    t[2] = submit_wanted(s, t[0], NULL, &w[2], DT_WANTED);
    abandon(s, &w[1]);
    settle(s);
    ck_assert_int_eq(stats_of(s).parked, 1);
    let_run(s);
    ck_assert(has_ended(&w[0]) && !has_ended(&w[1]) && has_ended(&w[2]));
    abandon(s, &w[2]); /* too late to matter */
    settle(s);
    ask(s, &w[1]);
    fake_await(&w[1].own, 1);
    release_all(t, 3);
    clear_wishes(w, 3);
    stop_gated(s);
}
END_TEST

/* w[0] is needed by w[1] alone, and that one only because w[2], which somebody wants, writes what
 * it reads.  When w[1] is dropped, w[0] is not needed any more. */
START_TEST(what_only_a_dropped_task_needed_is_parked) {
    dt_sched *s = start_gated(_i);
    wish w[3] = {0};
    dt_tensor *read = submit_heavy(s, source, NULL);
    dt_tensor *first = submit_wanted(s, source, NULL, &w[0], DT_WANTED);
    dt_tensor *reader = submit_wanted(s, first, read, &w[1], DT_WANT_NEVER);
    dt_task *write = fake_task(&w[2].own, read, read, 1, NULL, 0, 100);
    atomic_store(&w[2].want, DT_WANTED);
    write->want = want_of;
    write->call.params.i[FAKE_COST_NS] = HEAVY_NS;
    dt_sched_submit(s, write);
    abandon(s, &w[0]);
    settle(s);
    ck_assert_int_eq(stats_of(s).parked, 0);
    give_up(s, reader);
    settle(s);
    ck_assert_int_eq(stats_of(s).dropped, 1);
    ck_assert_int_eq(stats_of(s).parked, 1);
    let_run(s);
    ck_assert(!has_ended(&w[0]) && has_ended(&w[2]));
    ask(s, &w[0]);
    fake_await(&w[0].own, 1);
    ck_assert_int_eq(*fake_at(read, 0), 101);
    dt_tensor_release(first);
    dt_tensor_release(read);
    clear_wishes(w, 3);
    stop_gated(s);
}
END_TEST

/* Two abandoned branches of one stem: asking for one brings back that one and the stem. */
START_TEST(asking_brings_back_what_is_needed_and_no_more) {
    dt_sched *s = start_gated(_i);
    wish w[4] = {0};
    dt_tensor *t[4];
    t[0] = submit_wanted(s, source, NULL, &w[0], DT_WANT_NEVER);
    t[1] = submit_wanted(s, t[0], NULL, &w[1], DT_WANT_NEVER);
    t[2] = submit_wanted(s, t[1], NULL, &w[2], DT_WANTED);
    t[3] = submit_wanted(s, t[1], NULL, &w[3], DT_WANTED);
    abandon(s, &w[2]);
    abandon(s, &w[3]);
    settle(s);
    ck_assert_int_eq(stats_of(s).parked, 4);
    ask(s, &w[3]);
    let_run(s);
    ck_assert(has_ended(&w[0]) && has_ended(&w[1]) && !has_ended(&w[2]) && has_ended(&w[3]));
    ck_assert(dt_sched_has_parked(s));
    ask(s, &w[2]);
    fake_await(&w[2].own, 1);
    release_all(t, 4);
    clear_wishes(w, 4);
    stop_gated(s);
}
END_TEST

/* A new task that needs a parked one: it is parked with it until somebody waits for the new one. */
START_TEST(new_task_behind_a_parked_one) {
    dt_sched *s = start_gated(_i);
    wish w[3] = {0};
    dt_tensor *t[3];
    t[0] = submit_wanted(s, source, NULL, &w[0], DT_WANT_ABANDONED);
    abandon(s, &w[0]);
    settle(s);
    t[1] = submit_wanted(s, t[0], NULL, &w[1], DT_WANT_NEVER);
    let_run(s);
    ck_assert(!has_ended(&w[0]) && !has_ended(&w[1]));
    t[2] = submit_wanted(s, t[0], NULL, &w[2], DT_WANTED); /* without a word */
    fake_await(&w[2].own, 1);
    fake_await(&w[1].own, 1);
    ck_assert_int_eq(*fake_at(t[2], 0), 2);
    release_all(t, 3);
    clear_wishes(w, 3);
    stop_gated(s);
}
END_TEST

/* Nobody has ever waited: that is no reason to park, beside parked tasks or before them. */
START_TEST(tasks_that_nobody_awaits_run) {
    dt_sched *s = start_gated(_i);
    wish w[3] = {0};
    dt_tensor *t[3];
    t[0] = submit_wanted(s, source, NULL, &w[0], DT_WANT_NEVER);
    t[1] = submit_wanted(s, source, NULL, &w[1], DT_WANT_ABANDONED);
    t[2] = submit_wanted(s, source, NULL, &w[2], DT_WANT_NEVER);
    abandon(s, &w[1]);
    settle(s);
    ck_assert_int_eq(stats_of(s).parked, 1);
    let_run(s);
    ck_assert(has_ended(&w[0]) && !has_ended(&w[1]) && has_ended(&w[2]));
    ask(s, &w[1]);
    fake_await(&w[1].own, 1);
    release_all(t, 3);
    clear_wishes(w, 3);
    stop_gated(s);
}
END_TEST

/* For a write in place it is also the readers before it that are needed. */
START_TEST(readers_before_a_wanted_write_are_needed) {
    dt_sched *s = start_gated(_i);
    wish w[4] = {0};
    dt_tensor *t[3];
    t[0] = submit_wanted(s, source, NULL, &w[0], DT_WANT_NEVER);
    t[1] = submit_wanted(s, t[0], NULL, &w[1], DT_WANTED);
    t[2] = submit_wanted(s, t[0], NULL, &w[2], DT_WANTED);
    dt_task *write = fake_task(&w[3].own, t[0], t[0], 1, NULL, 0, 100);
    write->want = want_of;
    write->call.params.i[FAKE_COST_NS] = HEAVY_NS;
    dt_sched_submit(s, write);
    abandon(s, &w[1]);
    abandon(s, &w[2]);
    settle(s);
    ck_assert_int_eq(stats_of(s).parked, 3); /* w[0] too */
    let_run(s);
    for (int k = 0; k < 4; k++) ck_assert(!has_ended(&w[k]));
    ask(s, &w[3]);
    for (int k = 0; k < 4; k++) fake_await(&w[k].own, 1);
    ck_assert_int_eq(*fake_at(t[0], 0), 101);
    ck_assert_int_eq(*fake_at(t[1], 0), 2);
    release_all(t, 3);
    clear_wishes(w, 4);
    stop_gated(s);
}
END_TEST

/* Fences on a tensor, fences after all, and files ask for what they need; not for what is younger.
 */
START_TEST(fences_and_files_ask) {
    for (int how = 0; how < 3; how++) {
        atomic_store(&gate.open, 0);
        atomic_store(&gate.entered, 0);
        io_make_file(LENGTH * 8);
        dt_sched *s = start_gated(_i);
        wish w[3] = {0};
        dt_tensor *t[3];
        for (int k = 0; k < 2; k++) {
            t[k] = submit_wanted(s, source, NULL, &w[k], DT_WANTED);
            abandon(s, &w[k]);
        }
        settle(s);
        ck_assert_int_eq(stats_of(s).parked, 2);
        fake_ends asked = {0};
        if (how == 0) dt_sched_submit(s, bare_task(DT_TASK_FENCE, t[1], &asked));
        if (how == 1) {
            dt_task *fence = bare_task(DT_TASK_FENCE, NULL, &asked);
            fence->after_all = true;
            dt_sched_submit(s, fence);
        }
        if (how == 2) {
            dt_file *file;
            ck_assert_ok(dt_file_open(io_path, true, &file));
            dt_sched_submit(s, io_task(&asked, file, true, t[1], 0));
            dt_file_release(file);
        }
        t[2] = submit_wanted(s, source, NULL, &w[2], DT_WANTED);
        abandon(s, &w[2]);
        let_run(s);
        fake_await(&asked, 1);
        ck_assert_int_eq(asked.failed, 0);
        ck_assert(has_ended(&w[1]) && !has_ended(&w[2]));
        ck_assert_int_eq(has_ended(&w[0]), how == 1);
        for (int k = 0; k < 3; k += 2) ask(s, &w[k]);
        for (int k = 0; k < 3; k++) fake_await(&w[k].own, 1);
        release_all(t, 3);
        clear_wishes(w, 3);
        fake_drain(s);
        stop_gated(s);
        io_remove_file();
    }
}
END_TEST

/* Who waits for room cannot know for whose. */
START_TEST(waiting_for_room_asks_for_all) {
    before = test_memory();
    dt_sched *s;
    ck_assert_ok(dt_sched_start(
        &(dt_sched_options){.threads = 1, .records_max = 3, .io = backends[_i]}, &s));
    wish w[3] = {0};
    dt_tensor *t[3], *x = fake_full(LENGTH, 1), *none = fake_tensor(LENGTH);
    submit_gated(s, &gate, none);
    for (int k = 0; k < 3; k++) {
        t[k] = submit_wanted(s, x, NULL, &w[k], DT_WANT_ABANDONED);
        abandon(s, &w[k]);
    }
    settle(s);
    let_run(s);
    ck_assert(dt_sched_full(s));
    ck_assert_int_eq(stats_of(s).parked, 3);
    ck_assert_int_eq(dt_sched_wait_room(s, -1), DT_OK);
    for (int k = 0; k < 3; k++) fake_await(&w[k].own, 1);
    fake_drain(s);
    release_all(t, 3);
    clear_wishes(w, 3);
    dt_tensor_release(x);
    dt_tensor_release(none);
    source = NULL;
    stop_gated(s);
}
END_TEST

static void *wait_for_room(void *sched) {
    ck_assert_int_eq(dt_sched_wait_room(sched, -1), DT_OK);
    return NULL;
}

/* Who has been waiting for longer, too: while somebody does, nothing is parked. */
START_TEST(nothing_is_parked_while_somebody_waits_for_room) {
    before = test_memory();
    dt_sched *s;
    ck_assert_ok(dt_sched_start(
        &(dt_sched_options){.threads = 1, .records_max = 2, .io = backends[_i]}, &s));
    wish w = {0};
    source = fake_tensor(LENGTH);
    submit_gated(s, &gate, source);
    dt_tensor *out = submit_wanted(s, source, NULL, &w, DT_WANTED);
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_room, s);
    while (atomic_load(&s->room_waiters) == 0) sched_yield();
    abandon(s, &w);
    settle(s);
    ck_assert_int_eq(stats_of(s).parked, 0);
    fake_gate_open(&gate);
    pthread_join(thread, NULL);
    fake_await(&w.own, 1);
    dt_tensor_release(out);
    clear_wishes(&w, 1);
    stop_gated(s);
}
END_TEST

/* Somebody waits again, and there is no memory for the word: then all come back. */
START_TEST(asking_without_memory_asks_for_all) {
    dt_sched *s = start_gated(_i);
    wish w[2] = {0};
    dt_tensor *t[2];
    for (int k = 0; k < 2; k++) {
        t[k] = submit_wanted(s, source, NULL, &w[k], DT_WANTED);
        abandon(s, &w[k]);
    }
    let_run(s);
    ck_assert_int_eq(stats_of(s).parked, 2);
    dt_alloc_fail_at(1, false); /* the word alone: what runs then needs memory */
    ask(s, &w[0]);
    dt_alloc_fail_at(0, false);
    for (int k = 0; k < 2; k++) fake_await(&w[k].own, 1);
    release_all(t, 2);
    clear_wishes(w, 2);
    stop_gated(s);
}
END_TEST

/* In a run behind the gate: taken back, given back by the worker, parked; or asked for before. */
START_TEST(handed_chain_is_taken_back) {
    for (int early = 0; early < 2; early++) {
        atomic_store(&gate.open, 0);
        atomic_store(&gate.entered, 0);
        dt_sched *s = start_gated(_i);
        wish w[4] = {0};
        dt_tensor *t[4], *x = source;
        for (int k = 0; k < 4; k++) {
            t[k] = fake_tensor(LENGTH);
            dt_task *task = fake_task(&w[k].own, t[k], x, 1, NULL, 0, 1);
            task->want = want_of;
            dt_sched_submit(s, task);
            x = t[k];
        }
        settle(s);
        ck_assert_int_eq(stats_of(s).chained, 4);
        abandon(s, &w[3]);
        settle(s);
        ck_assert_int_eq(stats_of(s).parked, 4);
        if (early) {
            ask(s, &w[2]);
            settle(s);
        }
        let_run(s);
        ck_assert_int_eq(has_ended(&w[2]), early);
        ck_assert(!has_ended(&w[3]));
        ask(s, &w[3]);
        fake_await(&w[3].own, 1);
        for (int k = 0; k < 4; k++) {
            ck_assert_int_eq(w[k].own.count, 1);
            ck_assert_int_eq(w[k].own.failed, 0);
        }
        ck_assert_int_eq(*fake_at(t[3], LENGTH - 1), 4);
        release_all(t, 4);
        clear_wishes(w, 4);
        stop_gated(s);
    }
}
END_TEST

/* A parked task whose handles go as well is dropped. */
START_TEST(parked_task_is_dropped) {
    dt_sched *s = start_gated(_i);
    wish w[2] = {0};
    dt_tensor *a = submit_wanted(s, source, NULL, &w[0], DT_WANT_NEVER);
    dt_tensor *b = submit_wanted(s, a, NULL, &w[1], DT_WANTED);
    abandon(s, &w[1]);
    let_run(s);
    ck_assert_int_eq(stats_of(s).parked, 2);
    dt_tensor_release(a);
    give_up(s, b);
    settle(s);
    ck_assert_int_eq(stats_of(s).dropped, 2);
    ck_assert(has_ended(&w[0]) && has_ended(&w[1]));
    clear_wishes(w, 2);
    stop_gated(s);
}
END_TEST

/* A stop ends what is parked, whether it was ready or not, and parks nothing more. */
START_TEST(stop_ends_what_is_parked) {
    for (int late = 0; late < 2; late++) {
        atomic_store(&gate.open, 0);
        atomic_store(&gate.entered, 0);
        dt_sched *s = start_gated(_i);
        wish w[4] = {0};
        dt_tensor *t[4], *x = source;
        for (int k = 0; k < 3; k++) x = t[k] = submit_wanted(s, x, NULL, &w[k], DT_WANT_NEVER);
        abandon(s, &w[2]);
        let_run(s);
        ck_assert_int_eq(stats_of(s).parked, 3);
        t[3] = submit_wanted(s, source, NULL, &w[3], DT_WANT_NEVER);
        if (late) abandon(s, &w[3]);
        dt_sched_stop(s);
        for (int k = 0; k < 4; k++) {
            ck_assert_int_eq(w[k].own.count, 1);
            if (k < 3) ck_assert_int_eq(dt_error_status(w[k].own.error), DT_E_SHUTDOWN);
        }
        release_all(t, 4);
        clear_wishes(w, 4);
        dt_tensor_release(source);
        fake_ends_clear(&ends);
        test_assert_no_leak(before);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("demand");
    BOTH_BACKENDS(suite, "dropping", chain_is_dropped_from_its_end,
                  dropping_stops_at_what_is_still_wanted, handles_that_are_not_the_last,
                  what_is_read_goes_with_its_last_reader, writers_in_place_hold_what_they_write,
                  running_and_ended_tasks_are_not_dropped, all_outputs_must_be_given_up,
                  files_are_written_and_read, handed_task_is_dropped_by_the_worker,
                  dropping_reaches_into_the_queue, word_without_memory_loses_no_reference);
    BOTH_BACKENDS(
        suite, "parking", abandoned_chain_is_parked_until_asked_for,
        what_another_waiter_needs_is_not_parked, what_only_a_dropped_task_needed_is_parked,
        asking_brings_back_what_is_needed_and_no_more, new_task_behind_a_parked_one,
        tasks_that_nobody_awaits_run, readers_before_a_wanted_write_are_needed,
        fences_and_files_ask, waiting_for_room_asks_for_all,
        nothing_is_parked_while_somebody_waits_for_room, asking_without_memory_asks_for_all,
        handed_chain_is_taken_back, parked_task_is_dropped, stop_ends_what_is_parked);
    return test_run(suite);
}
