/* test_work.c: what a worker does with a run, without a worker: claims, passes, memory, ends. */
#include <check.h>

#include "scheduler/run.h"
#include "scheduler/task.h"
#include "scheduler/work.h"
#include "tests/c/fuse_support.h"

enum { LENGTH = 1000 }; /* too long to lie behind a storage's header */
enum { ENDED_MAX = 64 };

static fake_ends ends;
static dt_task *ended[ENDED_MAX];
static int ended_count;

static void on_ended(void *context, dt_task *task) {
    ck_assert_ptr_eq(context, &ends);
    ck_assert_int_lt(ended_count, ENDED_MAX);
    ended[ended_count++] = task;
}

/* As the client and the controller leave a task. */
static dt_task *handed(dt_task *task) {
    static uint64_t seq;
    task->cost_ns = task->call.kernel != NULL ? task->call.kernel->cost_ns(&task->call) : 0;
    task->fusible = task->kind == DT_TASK_COMPUTE && fuse_fusible(&task->call);
    task->seq = ++seq;
    (void)dt__task_raise_counts(task);
    atomic_store(&task->state, DT_TASK_HANDED);
    return task;
}

static dt_task *behind(dt_task *tail, dt_task *task) {
    atomic_store(&tail->run_next, task);
    return task;
}

static dt_work_step begin(dt_task *task) { return dt__work_begin(task, 2, false, 1000); }

static void compute(dt_task *leader) {
    for (int k = 0; k < leader->parts; k++) dt__work_part(leader, k);
    dt__work_finish(leader);
}

static dt_task *end(dt_task *leader) { return dt__work_end(leader, 2000, on_ended, &ends); }

/* As a worker: the whole run. */
static void work(dt_task *task) {
    while (task != NULL) {
        dt_work_step step = begin(task);
        ck_assert_int_ne(step, DT_WORK_RETURN);
        if (step == DT_WORK_COMPUTE) compute(task);
        task = end(task);
    }
}

static void destroy_ended(void) {
    for (int k = 0; k < ended_count; k++) dt__task_destroy(ended[k]);
    ended_count = 0;
}

/* A run of `n` tasks: task[k] computes t[k + 1] = t[k] + 1, where t[0] is 5. */
typedef struct chain {
    int n;
    dt_memory_stats before;
    dt_tensor *t[ENDED_MAX + 1];
    dt_task *task[ENDED_MAX];
} chain;

static chain make_chain(int n) {
    chain c = {.n = n, .before = test_memory()};
    c.t[0] = fake_full(LENGTH, 5);
    for (int k = 0; k < n; k++) {
        c.t[k + 1] = fake_tensor(LENGTH);
        c.task[k] = handed(fuse_task(&ends, c.t[k + 1], c.t[k], 1, NULL, 0, 1));
        if (k > 0) behind(c.task[k - 1], c.task[k])->fuses = true;
    }
    return c;
}

static void give_up(dt_tensor **t) {
    dt_tensor_release(*t);
    *t = NULL;
}

static void free_chain(chain *c) {
    destroy_ended();
    for (int k = 0; k <= c->n; k++)
        if (c->t[k] != NULL) dt_tensor_release(c->t[k]);
    fake_ends_clear(&ends);
    test_assert_no_leak(c->before);
    ck_assert_int_eq(fuse_built, fuse_freed);
}

static bool has_memory(const dt_task *task) {
    return atomic_load(&dt_call_out(&task->call, 0)->storage->data) != NULL;
}

/* ---- one task ------------------------------------------------------------------------------- */

START_TEST(task_goes_from_handed_to_ended) {
    dt_tensor *x = fake_full(LENGTH, 2), *out = fake_tensor(LENGTH);
    dt_task *task = handed(fake_task(&ends, out, x, 3, NULL, 0, 1));
    dt_task *next = behind(task, handed(fake_task(&ends, NULL, x, 3, NULL, 0, 1)));
    ck_assert_int_eq(begin(task), DT_WORK_COMPUTE);
    ck_assert_int_eq(task->state, DT_TASK_RUNNING);
    ck_assert_int_eq(next->state, DT_TASK_HANDED);
    ck_assert_int_eq(task->members, 1);
    ck_assert_int_eq(task->parts, 1);
    ck_assert_ptr_null(task->scratch);
    ck_assert_int_eq(task->time_start_ns, 1000);
    compute(task);
    ck_assert_uint_eq(atomic_load(&out->storage->writers), 1);
    ck_assert_ptr_eq(end(task), next);
    ck_assert_uint_eq(atomic_load(&out->storage->writers), 0);
    ck_assert_int_eq(task->state, DT_TASK_ENDED);
    ck_assert_int_eq(task->time_end_ns, 2000);
    ck_assert_uint_eq(task->leader_seq, 0);
    ck_assert_ptr_eq(task->run_next, DT__RUN_CLOSED);
    ck_assert_int_eq(*fake_at(out, LENGTH - 1), 7);
    work(next);
    ck_assert_int_eq(ends.count, 2);
    ck_assert_ptr_null(next->error);
    destroy_ended();
    dt_tensor_release(x);
    dt_tensor_release(out);
}
END_TEST

static dt_task *task_of_parts(dt_tensor *out, int parts, double cost_ns) {
    dt_task *task = fake_task(&ends, out, NULL, 0, NULL, 0, 4);
    task->call.params.i[FAKE_PARTS] = parts;
    task->call.params.i[FAKE_SCRATCH] = 1;
    task->call.params.i[FAKE_COST_NS] = (int64_t)cost_ns;
    return handed(task);
}

/* Small tasks, and all on one thread, stay whole; scratch has the size for the parts. */
START_TEST(parts_and_scratch) {
    dt_tensor *out = fake_full(LENGTH, 0);
    dt_memory_stats memory = test_memory();
    const struct {
        double cost_ns;
        int threads, parts;
    } cases[] = {{20000, 2, 5}, {19999, 2, 1}, {20000, 1, 1}};
    for (int k = 0; k < 3; k++) {
        dt_task *task = task_of_parts(out, 5, cases[k].cost_ns);
        ck_assert_int_eq(dt__work_begin(task, cases[k].threads, false, 1), DT_WORK_COMPUTE);
        ck_assert_int_eq(task->parts, cases[k].parts);
        ck_assert_uint_eq(task->scratch_bytes, (size_t)cases[k].parts);
        compute(task); /* whose finish checks that each part wrote its scratch */
        ck_assert_ptr_null(task->scratch);
        ck_assert_ptr_null(end(task));
        ck_assert_ptr_null(task->error);
        destroy_ended();
        test_assert_no_leak(memory);
    }
    ck_assert_int_eq(fake_finishes, 3);
    dt_tensor_release(out);
}
END_TEST

/* The first part that fails says why; finish is left out; the scratch goes. */
START_TEST(failing_part) {
    dt_tensor *out = fake_full(LENGTH, 0);
    dt_memory_stats memory = test_memory();
    dt_task *task = task_of_parts(out, 5, 1e6);
    task->call.params.i[FAKE_FAIL] = DT_E_INDEX;
    ck_assert_int_eq(begin(task), DT_WORK_COMPUTE);
    for (int k = 0; k < 5; k++) {
        dt__work_part(task, k);
        ck_assert_int_eq(task->error != NULL, k >= 2);
    }
    dt_error *error = task->error;
    dt__work_part(task, 2); /* fails as well */
    ck_assert_ptr_eq(task->error, error);
    dt__work_finish(task);
    ck_assert_int_eq(fake_finishes, 0);
    (void)end(task);
    ck_assert_int_eq(dt_error_status(error), DT_E_INDEX);
    ck_assert_str_eq(dt_error_message(error), "fake failure 4");
    ck_assert_ptr_eq(atomic_load(&out->storage->failure), error);
    ck_assert_int_eq(ends.failed, 1);
    destroy_ended();
    fake_ends_clear(&ends);
    dt_tensor_release(out);
    ck_assert_int_eq(test_memory().live_bytes, memory.live_bytes - LENGTH * 8);
}
END_TEST

START_TEST(failing_finish) {
    dt_tensor *out = fake_full(LENGTH, 0);
    dt_task *task = task_of_parts(out, 3, 1e6);
    ck_assert_int_eq(begin(task), DT_WORK_COMPUTE);
    for (int k = 0; k < 2; k++) dt__work_part(task, k);
    ((char *)task->scratch)[2] = 0; /* of the part that has not run */
    dt__work_finish(task);
    (void)end(task);
    ck_assert_str_eq(dt_error_message(task->error), "part 2 has not run");
    ck_assert_ptr_nonnull(atomic_load(&out->storage->failure));
    destroy_ended();
    fake_ends_clear(&ends);
    dt_tensor_release(out);
}
END_TEST

/* ---- nothing to compute --------------------------------------------------------------------- */

START_TEST(failed_operands_fail_the_task) {
    for (int written = 0; written < 2; written++) {
        dt_tensor *x = fake_full(LENGTH, 0), *out = fake_tensor(LENGTH);
        dt_error *error = dt_error_capture(dt_fail(DT_E_VALUE, "earlier"));
        dt_task *bad = fake_task(NULL, written ? out : x, NULL, 0, NULL, 0, 0);
        dt_call_fail_outputs(&bad->call, error);
        dt_task_free(bad);
        dt_task *task = handed(fake_task(&ends, out, x, 1, NULL, 0, 0));
        ck_assert_int_eq(begin(task), DT_WORK_END);
        ck_assert_ptr_null(end(task));
        ck_assert_ptr_eq(task->error, error);
        ck_assert_ptr_eq(atomic_load(&out->storage->failure), error);
        ck_assert(!has_memory(task));
        ck_assert(!task->dropped);
        destroy_ended();
        dt_error_release(error);
        dt_tensor_release(x);
        dt_tensor_release(out);
    }
    ck_assert_int_eq(fake_started, 0);
    ck_assert_int_eq(ends.failed, 2);
    fake_ends_clear(&ends);
}
END_TEST

START_TEST(shut_down_fails_the_task) {
    chain c = make_chain(3);
    for (int k = 0; k < 3; k++) {
        ck_assert_int_eq(dt__work_begin(c.task[k], 2, true, 1), DT_WORK_END);
        ck_assert_int_eq(c.task[k]->members, 1);
        ck_assert_ptr_eq(end(c.task[k]), k < 2 ? c.task[k + 1] : NULL);
        ck_assert_int_eq(dt_error_status(c.task[k]->error), DT_E_SHUTDOWN);
    }
    ck_assert_int_eq(fake_started, 0);
    free_chain(&c);
}
END_TEST

START_TEST(fence_computes_nothing) {
    dt_tensor *x = fake_tensor(LENGTH); /* which is not written either */
    for (int out = 0; out < 2; out++) {
        dt_task *fence;
        ck_assert_ok(dt_task_new(DT_TASK_FENCE, out, !out, &fence));
        fence->call.operands[0] = dt_tensor_retain(x);
        ck_assert_int_eq(begin(handed(fence)), DT_WORK_END);
        (void)end(fence);
        ck_assert_ptr_null(fence->error);
        ck_assert_ptr_null(atomic_load(&x->storage->data));
        destroy_ended();
    }
    dt_tensor_release(x);
}
END_TEST

START_TEST(what_nobody_can_see_is_dropped) {
    dt_memory_stats before = test_memory();
    dt_tensor *x = fake_full(LENGTH, 0), *view = NULL;
    for (int held = 0; held < 4; held++) {
        dt_tensor *out = fake_tensor(LENGTH);
        /* held 1: the handle; 2: a view; 3: nobody, but it is read and written by the task */
        dt_task *task = handed(fake_task(&ends, out, held == 3 ? out : x, 1, NULL, 0, 0));
        if (held == 2) view = fake_view(out, 0, LENGTH / 2, 2);
        if (held != 1) dt_tensor_release(out);
        bool computed = held == 1 || held == 2;
        ck_assert_int_eq(begin(task), computed ? DT_WORK_COMPUTE : DT_WORK_END);
        ck_assert_int_eq(task->dropped, !computed);
        ck_assert_int_eq(has_memory(task), computed);
        if (computed) compute(task);
        (void)end(task);
        if (!computed) ck_assert_int_eq(dt_error_status(task->error), DT_E_CANCELLED);
        destroy_ended();
        if (held == 1) dt_tensor_release(out);
    }
    dt_task *effect = handed(fake_task(&ends, NULL, x, 1, NULL, 0, 0)); /* without outputs */
    ck_assert_int_eq(begin(effect), DT_WORK_COMPUTE);
    compute(effect);
    (void)end(effect);
    ck_assert_int_eq(fake_started, 3);
    destroy_ended();
    dt_tensor_release(view);
    dt_tensor_release(x);
    fake_ends_clear(&ends);
    test_assert_no_leak(before);
}
END_TEST

/* The controller decided so while the worker had it. The run goes on. */
START_TEST(dropped_in_the_queue) {
    chain c = make_chain(3);
    for (int k = 0; k < 3; k++) c.task[k]->fuses = false;
    atomic_store(&c.task[1]->state, DT_TASK_DROPPED);
    work(c.task[0]);
    ck_assert_int_eq(ended_count, 3);
    ck_assert_ptr_null(c.task[0]->error);
    ck_assert(c.task[1]->dropped);
    ck_assert_int_eq(dt_error_status(c.task[1]->error), DT_E_CANCELLED);
    ck_assert_ptr_eq(c.task[2]->error, c.task[1]->error); /* it read that */
    ck_assert(!c.task[2]->dropped);
    ck_assert_int_eq(fake_started, 1);
    free_chain(&c);
}
END_TEST

/* ---- given back ----------------------------------------------------------------------------- */

/* With all that follows; nothing of it has ended, and nobody can append to it. */
START_TEST(taken_back_with_all_that_follow) {
    chain c = make_chain(5);
    for (int k = 0; k < 5; k++) c.task[k]->fuses = false;
    ck_assert(dt__run_take_back(c.task[1]));
    ck_assert(dt__run_take_back(c.task[3]));
    atomic_store(&c.task[4]->state, DT_TASK_DROPPED);
    ck_assert_int_eq(begin(c.task[0]), DT_WORK_COMPUTE);
    ck_assert(!dt__run_take_back(c.task[0])); /* too late */
    compute(c.task[0]);
    ck_assert_ptr_eq(end(c.task[0]), c.task[1]);
    ck_assert_int_eq(begin(c.task[1]), DT_WORK_RETURN);
    dt__work_return(c.task[1], false, on_ended, &ends);
    ck_assert_int_eq(ended_count, 5);
    ck_assert_int_eq(ends.count, 1);
    for (int k = 1; k < 5; k++) {
        ck_assert_ptr_eq(ended[k], c.task[k]);
        ck_assert(c.task[k]->returned && !c.task[k]->starved && c.task[k]->error == NULL);
        ck_assert_ptr_eq(c.task[k]->run_next, DT__RUN_CLOSED);
        ck_assert_uint_eq(atomic_load(&c.t[k + 1]->storage->writers), 1);
        ck_assert(!has_memory(c.task[k]));
    }
    ck_assert_int_eq(c.task[1]->state, DT_TASK_TAKEN_BACK);
    ck_assert_int_eq(c.task[2]->state, DT_TASK_RUNNING); /* so that nobody takes it back now */
    ck_assert_int_eq(c.task[3]->state, DT_TASK_TAKEN_BACK);
    ck_assert_int_eq(c.task[4]->state, DT_TASK_DROPPED);
    for (int k = 1; k < 5; k++) dt__task_end(c.task[k], 1);
    free_chain(&c);
}
END_TEST

/* Without memory a task starves, and those behind it wait; as a last chance it fails. */
START_TEST(no_memory_starves) {
    for (int scratch = 0; scratch < 2; scratch++) {
        dt_memory_stats before = test_memory();
        dt_tensor *out = fake_tensor(LENGTH);
        if (scratch) ck_assert_ok(dt_storage_materialize(out->storage));
        dt_task *task = task_of_parts(out, 3, 1e6);
        dt_task *next = behind(task, handed(fake_task(&ends, NULL, out, 1, NULL, 0, 0)));
        dt_alloc_fail_at(1, true);
        dt_work_step step = begin(task);
        dt_alloc_fail_at(0, false);
        ck_assert_int_eq(step, DT_WORK_RETURN);
        ck_assert_ptr_null(task->error);
        dt__work_return(task, true, on_ended, &ends);
        ck_assert_int_eq(ended_count, 2);
        ck_assert(task->returned && task->starved && next->returned && !next->starved);
        ck_assert_int_eq(ends.count, 0);
        ended_count = 0;
        /* Again, as the controller hands it over once more. */
        atomic_store(&task->run_next, NULL);
        atomic_store(&task->state, DT_TASK_HANDED);
        task->last_chance = true;
        dt_alloc_fail_at(1, true);
        step = begin(task);
        dt_alloc_fail_at(0, false);
        ck_assert_int_eq(step, DT_WORK_END);
        (void)end(task);
        ck_assert_int_eq(dt_error_status(task->error), DT_E_NO_MEMORY);
        dt__task_end(next, 1);
        dt__task_destroy(next);
        destroy_ended();
        fake_ends_clear(&ends);
        dt_tensor_release(out);
        test_assert_no_leak(before);
    }
}
END_TEST

/* ---- passes --------------------------------------------------------------------------------- */

START_TEST(pass_takes_those_that_fuse) {
    chain c = make_chain(5);
    c.task[3]->fuses = false;
    ck_assert_int_eq(begin(c.task[0]), DT_WORK_COMPUTE);
    ck_assert_int_eq(c.task[0]->members, 3);
    for (int k = 0; k < 5; k++)
        ck_assert_int_eq(c.task[k]->state, k < 3 ? DT_TASK_RUNNING : DT_TASK_HANDED);
    for (int k = 0; k < 3; k++) ck_assert_int_eq(c.task[k]->time_start_ns, 1000);
    compute(c.task[0]);
    ck_assert_ptr_null(c.task[0]->pass);
    ck_assert_ptr_eq(end(c.task[0]), c.task[3]);
    for (int k = 0; k < 3; k++) {
        ck_assert_ptr_eq(ended[k], c.task[k]);
        ck_assert_uint_eq(ended[k]->leader_seq, c.task[0]->seq);
        ck_assert_int_eq(ended[k]->state, DT_TASK_ENDED);
    }
    ck_assert_int_eq(fuse_built, 1);
    ck_assert_int_eq(fuse_last_count, 3);
    ck_assert_uint_eq(fuse_last_dead, 0);
    work(c.task[3]); /* with the last one */
    ck_assert_int_eq(fuse_built, 2);
    ck_assert_uint_eq(c.task[4]->leader_seq, c.task[3]->seq);
    for (int k = 0; k <= 5; k++) ck_assert_int_eq(*fake_at(c.t[k], LENGTH - 1), 5 + k);
    ck_assert_int_eq(ends.failed, 0);
    ck_assert_int_eq(fake_started, 2);
    free_chain(&c);
}
END_TEST

START_TEST(pass_has_a_limit) {
    chain c = make_chain(DT_FUSE_MAX + 8);
    ck_assert_int_eq(begin(c.task[0]), DT_WORK_COMPUTE);
    ck_assert_int_eq(c.task[0]->members, DT_FUSE_MAX);
    compute(c.task[0]);
    dt_task *next = end(c.task[0]);
    ck_assert_ptr_eq(next, c.task[DT_FUSE_MAX]);
    work(next);
    ck_assert_int_eq(fuse_last_count, 8);
    ck_assert_int_eq(*fake_at(c.t[c.n], 0), 5 + c.n);
    free_chain(&c);
}
END_TEST

/* One that is not fusible leads no pass, whatever follows. */
START_TEST(leader_must_be_fusible) {
    chain c = make_chain(2);
    c.task[0]->fusible = false;
    work(c.task[0]);
    ck_assert_int_eq(fuse_built, 0);
    ck_assert_int_eq(*fake_at(c.t[2], 0), 7);
    free_chain(&c);
}
END_TEST

/* Split over several parts, with scratch, as one task. */
START_TEST(pass_in_parts) {
    chain c = make_chain(4);
    c.task[0]->call.params.i[FAKE_PARTS] = 7;
    c.task[0]->call.params.i[FAKE_SCRATCH] = 1;
    ck_assert_int_eq(begin(c.task[0]), DT_WORK_COMPUTE);
    ck_assert_int_eq(c.task[0]->parts, 7);
    ck_assert_uint_eq(c.task[0]->scratch_bytes, 7);
    compute(c.task[0]);
    (void)end(c.task[0]);
    for (int i = 0; i < LENGTH; i++) ck_assert_int_eq(*fake_at(c.t[4], i), 9);
    ck_assert_int_eq(fuse_finished, 1);
    free_chain(&c);
}
END_TEST

/* Only members hold t[1] and t[2]; t[3] has its handle; t[4] is read by a task behind the pass too;
 * the last result is written in any case. */
START_TEST(dead_results_have_no_memory) {
    chain c = make_chain(5);
    dt_tensor *sum = fake_tensor(LENGTH);
    dt_task *last = handed(fake_task(&ends, sum, c.t[4], 1, c.t[5], 1, 0));
    behind(c.task[4], last);
    give_up(&c.t[1]);
    give_up(&c.t[2]);
    give_up(&c.t[4]);
    ck_assert_int_eq(begin(c.task[0]), DT_WORK_COMPUTE);
    ck_assert_int_eq(fuse_last_count, 5);
    ck_assert_uint_eq(fuse_last_dead, 3);
    compute(c.task[0]);
    for (int k = 0; k < 5; k++) ck_assert_int_eq(has_memory(c.task[k]), k >= 2);
    work(end(c.task[0]));
    for (int i = 0; i < LENGTH; i += 37) {
        ck_assert_int_eq(*fake_at(c.t[3], i), 8);
        ck_assert_int_eq(*fake_at(c.t[5], i), 10);
        ck_assert_int_eq(*fake_at(sum, i), 9 + 10);
    }
    dt_tensor_release(sum);
    free_chain(&c);
}
END_TEST

/* Also one that nobody can see any more. */
START_TEST(last_result_is_never_dead) {
    chain c = make_chain(3);
    for (int k = 1; k <= 3; k++) give_up(&c.t[k]);
    ck_assert_int_eq(begin(c.task[0]), DT_WORK_COMPUTE);
    ck_assert_uint_eq(fuse_last_dead, 3);
    ck_assert(has_memory(c.task[2]));
    compute(c.task[0]);
    ck_assert_int_eq(*fake_at(dt_call_out(&c.task[2]->call, 0), 3), 8);
    (void)end(c.task[0]);
    free_chain(&c);
}
END_TEST

/* A result that only a view shows, or whose bytes are there already, is written. */
START_TEST(viewed_and_present_results_are_written) {
    chain c = make_chain(4);
    dt_tensor *view = fake_view(c.t[1], 0, LENGTH / 2, 2);
    give_up(&c.t[1]);
    ck_assert_ok(dt_storage_materialize(c.t[2]->storage));
    give_up(&c.t[2]);
    give_up(&c.t[3]);
    work(c.task[0]);
    ck_assert_int_eq(fuse_last_count, 4);
    ck_assert_uint_eq(fuse_last_dead, 4);
    for (int i = 0; i < LENGTH / 2; i++) ck_assert_int_eq(*fake_at(view, i), 6);
    ck_assert_int_eq(*fake_at(c.t[4], 0), 9);
    dt_tensor_release(view);
    free_chain(&c);
}
END_TEST

/* A tensor that nobody ever wrote is read by a member, and only the members hold it: it needs
 * memory to be read, but not where a member writes it first. */
START_TEST(unwritten_results_that_are_read_have_memory) {
    for (int first = 0; first < 2; first++) { /* read first, or written first */
        dt_memory_stats before = test_memory();
        dt_tensor *t = fake_tensor(LENGTH), *out = fake_tensor(LENGTH);
        dt_task *task[3] = {fuse_task(&ends, t, first == 0 ? t : NULL, 1, NULL, 0, 1),
                            fuse_task(&ends, t, t, 1, NULL, 0, 1),
                            fuse_task(&ends, out, t, 1, NULL, 0, 0)};
        for (int k = 0; k < 3; k++) handed(task[k]);
        for (int k = 1; k < 3; k++) behind(task[k - 1], task[k])->fuses = true;
        dt_tensor_release(t);
        work(task[0]);
        ck_assert_int_eq(fuse_last_count, 3);
        ck_assert_uint_eq(fuse_last_dead, first == 0 ? 0 : 3);
        ck_assert_int_eq(has_memory(task[0]), first == 0);
        if (first == 1) ck_assert_int_eq(*fake_at(out, LENGTH - 1), 2);
        destroy_ended();
        dt_tensor_release(out);
        test_assert_no_leak(before);
    }
}
END_TEST

/* What others have done to a task since it was appended: it is not taken into the pass. */
START_TEST(pass_stops_at_what_cannot_be_claimed) {
    for (int what = 0; what < 3; what++) {
        chain c = make_chain(4);
        dt_error *error = dt_error_capture(dt_fail(DT_E_VALUE, "earlier"));
        if (what == 0) atomic_store(&c.task[2]->state, DT_TASK_DROPPED);
        if (what == 1) ck_assert(dt__run_take_back(c.task[2]));
        if (what == 2) dt_call_fail_outputs(&c.task[2]->call, error);
        ck_assert_int_eq(begin(c.task[0]), DT_WORK_COMPUTE);
        ck_assert_int_eq(c.task[0]->members, 2);
        compute(c.task[0]);
        dt_task *next = end(c.task[0]);
        ck_assert_ptr_eq(next, c.task[2]);
        if (what == 1) {
            ck_assert_int_eq(begin(next), DT_WORK_RETURN);
            dt__work_return(next, false, on_ended, &ends);
            ck_assert_int_eq(ends.count, 2);
            for (int k = 2; k < 4; k++) dt__task_end(c.task[k], 1);
        } else {
            work(next);
            ck_assert_int_eq(ends.failed, 2);
            ck_assert_int_eq(c.task[2]->dropped, what == 0);
            ck_assert_ptr_eq(c.task[3]->error, c.task[2]->error);
        }
        ck_assert_ptr_null(c.task[1]->error);
        ck_assert_int_eq(*fake_at(c.t[2], 0), 7);
        dt_error_release(error);
        free_chain(&c);
    }
}
END_TEST

/* Whatever a pass lacks, its members are computed one by one, with the same values. */
START_TEST(without_memory_members_run_alone) {
    int scattered = 0;
    for (int n = 1;; n++) {
        chain c = make_chain(3);
        c.task[0]->call.params.i[FAKE_SCRATCH] = 1;
        give_up(&c.t[1]);
        fuse_built = fuse_freed = 0;
        dt_alloc_fail_at(n, false);
        ck_assert_int_eq(begin(c.task[0]), DT_WORK_COMPUTE);
        int64_t counted = dt_alloc_fail_at(0, false);
        bool alone = c.task[0]->members == 1;
        for (int k = 1; k < 3; k++)
            ck_assert_int_eq(c.task[k]->state, alone ? DT_TASK_HANDED : DT_TASK_RUNNING);
        if (alone) {
            ck_assert_ptr_null(c.task[0]->pass);
            c.task[1]->fuses = c.task[2]->fuses = false;
        }
        compute(c.task[0]);
        dt_task *next = end(c.task[0]);
        ck_assert_ptr_eq(next, alone ? c.task[1] : NULL);
        work(next);
        ck_assert_int_eq(ends.failed, 0);
        ck_assert_int_eq(*fake_at(c.t[2], 5), 7);
        ck_assert_int_eq(*fake_at(c.t[3], LENGTH - 1), 8);
        free_chain(&c);
        scattered += alone;
        if (counted < n) break;
    }
    ck_assert_int_eq(scattered, 4); /* two results, the pass, its scratch */
}
END_TEST

/* Each member ends, and may be gone, before the next one does. */
static int members_left;

static void on_member_ended(void *context, dt_task *task) {
    chain *c = context;
    int k = c->n - members_left--;
    ck_assert_ptr_eq(task, c->task[k]);
    ck_assert_int_eq(ends.count, k + 1);
    for (int m = 0; m < c->n; m++)
        ck_assert_uint_eq(atomic_load(&c->t[m + 1]->storage->writers), m > k);
    ck_assert_uint_eq(task->leader_seq, c->n > 1);
    dt__task_destroy(task);
}

START_TEST(members_end_one_by_one) {
    chain c = make_chain(6);
    for (int k = 0; k < 6; k++) c.task[k]->seq = (uint64_t)k + 1;
    ck_assert_int_eq(begin(c.task[0]), DT_WORK_COMPUTE);
    compute(c.task[0]);
    members_left = 6;
    ck_assert_ptr_null(dt__work_end(c.task[0], 9, on_member_ended, &c));
    ck_assert_int_eq(members_left, 0);
    free_chain(&c);
}
END_TEST

int main(void) {
    fuse_register();
    Suite *suite = suite_create("work");
    TEST_CASE(suite, "alone", task_goes_from_handed_to_ended, parts_and_scratch, failing_part,
              failing_finish);
    TEST_CASE(suite, "nothing", failed_operands_fail_the_task, shut_down_fails_the_task,
              fence_computes_nothing, what_nobody_can_see_is_dropped, dropped_in_the_queue);
    TEST_CASE(suite, "return", taken_back_with_all_that_follow, no_memory_starves);
    TEST_CASE(suite, "passes", pass_takes_those_that_fuse, pass_has_a_limit, leader_must_be_fusible,
              pass_in_parts, dead_results_have_no_memory, last_result_is_never_dead,
              viewed_and_present_results_are_written, unwritten_results_that_are_read_have_memory,
              pass_stops_at_what_cannot_be_claimed, without_memory_members_run_alone,
              members_end_one_by_one);
    return test_run(suite);
}
