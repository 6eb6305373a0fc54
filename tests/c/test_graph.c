/* test_graph.c: the access queues against a direct reading of the rules.
 *
 * The model: a task is blocked while an earlier unretired task conflicts with it, i.e. uses one of
 * its storages and one of the two writes it.
 */
#include <check.h>

#include "scheduler/graph.h"
#include "scheduler/task.h"
#include "tests/c/sched_support.h"

#define STORAGES 6
#define WINDOW 40

static dt_tensor *tensors[STORAGES];
static uint64_t seq;

/* A task that writes the storages of `outs` and reads those of `ins` (bit masks). */
static dt_task *make_task(unsigned outs, unsigned ins) {
    dt_task *task;
    ck_assert_ok(
        dt_task_new(DT_TASK_COMPUTE, __builtin_popcount(outs), __builtin_popcount(ins), &task));
    dt_tensor **operand = task->call.operands;
    for (int k = 0; k < STORAGES; k++)
        if (outs >> k & 1) *operand++ = dt_tensor_retain(tensors[k]);
    for (int k = 0; k < STORAGES; k++)
        if (ins >> k & 1) *operand++ = dt_tensor_retain(tensors[k]);
    task->seq = ++seq;
    return task;
}

static void make_tensors(void) {
    for (int k = 0; k < STORAGES; k++) tensors[k] = fake_tensor(4);
}

static void check_queues(void) {
    for (int k = 0; k < STORAGES; k++) ck_assert(dt__graph_queue_is_valid(tensors[k]->storage));
}

static void release_tensors(void) {
    for (int k = 0; k < STORAGES; k++) {
        ck_assert_ptr_null(tensors[k]->storage->graph_queue);
        dt_tensor_release(tensors[k]);
    }
}

/* Collects what became ready. */
typedef struct ready_list {
    dt_task *tasks[WINDOW];
    int count;
} ready_list;

static void on_ready(void *context, dt_task *task) {
    ready_list *list = context;
    ck_assert_int_lt(list->count, WINDOW);
    list->tasks[list->count++] = task;
}

static bool contains(const ready_list *list, const dt_task *task) {
    for (int k = 0; k < list->count; k++)
        if (list->tasks[k] == task) return true;
    return false;
}

START_TEST(read_after_write_and_write_after_read) {
    make_tensors();
    dt_memory_stats before = test_memory();
    dt_task *w1 = make_task(1, 0), *r2 = make_task(2, 1), *r3 = make_task(4, 1);
    dt_task *w4 = make_task(1, 0), *r5 = make_task(8, 1);
    dt_task *all[] = {w1, r2, r3, w4, r5};
    for (int k = 0; k < 5; k++) ck_assert_ok(dt__graph_link(all[k], 1));
    ck_assert_int_eq(w1->blockers, 0);
    ck_assert_int_eq(r2->blockers, 1);
    ck_assert_int_eq(w4->blockers, 1);
    check_queues();
    ready_list list = {0};
    dt__graph_unlink(w1, on_ready, &list);
    ck_assert_int_eq(list.count, 2);
    ck_assert(contains(&list, r2) && contains(&list, r3));
    list.count = 0;
    dt__graph_unlink(r3, on_ready, &list);
    ck_assert_int_eq(list.count, 0); /* r2 still reads */
    dt__graph_unlink(r2, on_ready, &list);
    ck_assert_int_eq(list.count, 1);
    ck_assert_ptr_eq(list.tasks[0], w4);
    list.count = 0;
    dt__graph_unlink(w4, on_ready, &list);
    ck_assert_ptr_eq(list.tasks[0], r5);
    dt__graph_unlink(r5, on_ready, &list);
    for (int k = 0; k < 5; k++) dt__task_destroy(all[k]);
    test_assert_no_leak(before);
    release_tensors();
}
END_TEST

START_TEST(one_access_for_each_storage) {
    make_tensors();
    dt_task *task = make_task(1, 1); /* in place */
    dt_task *twice;
    ck_assert_ok(dt_task_new(DT_TASK_COMPUTE, 0, 3, &twice));
    for (int k = 0; k < 3; k++) twice->call.operands[k] = dt_tensor_retain(tensors[k / 2]);
    twice->seq = ++seq;
    ck_assert_ok(dt__graph_link(task, 1));
    ck_assert_ok(dt__graph_link(twice, 1));
    ck_assert_int_eq(task->accesses_count, 1);
    ck_assert_int_eq(task->blockers, 0);
    ck_assert_int_eq(twice->accesses_count, 2);
    ck_assert_int_eq(twice->blockers, 1);
    ready_list list = {0};
    dt__graph_unlink(task, on_ready, &list);
    ck_assert_int_eq(list.count, 1);
    dt__graph_unlink(twice, on_ready, &list);
    dt__task_destroy(task);
    dt__task_destroy(twice);
    release_tensors();
}
END_TEST

static bool conflicts(const dt_task *a, const dt_task *b) {
    for (int k = 0; k < a->call.nout + a->call.nin; k++)
        for (int j = 0; j < b->call.nout + b->call.nin; j++)
            if (a->call.operands[k]->storage == b->call.operands[j]->storage &&
                (k < a->call.nout || j < b->call.nout))
                return true;
    return false;
}

static bool is_blocked(dt_task *const *window, int count, int k) {
    (void)count;
    for (int j = 0; j < k; j++)
        if (conflicts(window[j], window[k])) return true;
    return false;
}

/* Random programs; any ready task may be the next to be retired. */
START_TEST(random_programs_agree_with_the_model) {
    make_tensors();
    dt_memory_stats before = test_memory();
    uint64_t seed = (uint64_t)_i;
    dt_task *window[WINDOW];
    int count = 0;
    for (int step = 0; step < 3000 || count > 0; step++) {
        bool add = step < 3000 && count < WINDOW && (count == 0 || test_random(&seed) % 2);
        if (add) {
            unsigned outs = 1u << test_random(&seed) % STORAGES;
            unsigned ins = (unsigned)(test_random(&seed) & test_random(&seed)) % (1u << STORAGES);
            if (test_random(&seed) % 8 == 0) outs = 0;
            window[count] = make_task(outs, ins);
            ck_assert_ok(dt__graph_link(window[count], 1));
            count++;
        } else {
            int k;
            do {
                k = (int)test_random_in(&seed, 0, count - 1);
            } while (window[k]->blockers > 0);
            bool was_blocked[WINDOW];
            for (int j = 0; j < count; j++) was_blocked[j] = is_blocked(window, count, j);
            dt_task *gone = window[k];
            ready_list list = {0};
            dt__graph_unlink(gone, on_ready, &list);
            for (int j = k; j + 1 < count; j++) {
                window[j] = window[j + 1];
                was_blocked[j] = was_blocked[j + 1];
            }
            count--;
            for (int j = 0; j < count; j++) {
                bool freed = was_blocked[j] && !is_blocked(window, count, j);
                ck_assert_int_eq(contains(&list, window[j]), freed);
            }
            dt__task_destroy(gone);
        }
        for (int j = 0; j < count; j++)
            ck_assert_int_eq(window[j]->blockers > 0, is_blocked(window, count, j));
        check_queues();
    }
    test_assert_no_leak(before);
    release_tensors();
}
END_TEST

/* A direct task may leave before one that stands before it. */
START_TEST(direct_task_leaves_out_of_order) {
    make_tensors();
    dt_task *p = make_task(0, 1), *direct = make_task(1, 0), *reader = make_task(2, 1);
    direct->direct = true;
    ck_assert_ok(dt__graph_link(p, 1));
    ck_assert_ok(dt__graph_link(direct, 1));
    ck_assert_ok(dt__graph_link(reader, 1));
    ready_list list = {0};
    dt__graph_unlink(direct, on_ready, &list);
    check_queues();
    dt__graph_unlink(p, on_ready, &list);
    ck_assert_int_eq(list.count, 1);
    ck_assert_ptr_eq(list.tasks[0], reader);
    dt__graph_unlink(reader, on_ready, &list);
    dt__task_destroy(p);
    dt__task_destroy(direct);
    dt__task_destroy(reader);
    release_tensors();
}
END_TEST

/* More operands than the task was made for: moved in, as a dispatcher may do. */
START_TEST(large_call_moved_in) {
    make_tensors();
    dt_memory_stats before = test_memory();
    for (int fail = 0; fail < 2; fail++) {
        dt_task *task;
        dt_call call;
        ck_assert_ok(dt_task_new(DT_TASK_COMPUTE, 0, 0, &task));
        ck_assert_ok(dt_call_init(&call, 1, 29));
        for (int k = 0; k < 30; k++) call.operands[k] = dt_tensor_retain(tensors[k % STORAGES]);
        dt_call_move(&task->call, &call);
        task->seq = ++seq;
        if (fail) dt_alloc_fail_at(1, false);
        dt_status status = dt__graph_link(task, 1);
        dt_alloc_fail_at(0, false);
        ck_assert_int_eq(status, fail ? DT_E_NO_MEMORY : DT_OK);
        ck_assert_int_eq(task->accesses_count, fail ? 0 : STORAGES);
        ready_list list = {0};
        dt__graph_unlink(task, on_ready, &list);
        dt__task_destroy(task);
    }
    test_assert_no_leak(before);
    release_tensors();
}
END_TEST

/* What the scheduler of a parent process left behind blocks nobody in a forked child. */
START_TEST(queue_of_another_owner_is_dropped) {
    make_tensors();
    dt_task *stale = make_task(1, 2), *writer = make_task(3, 0), *reader = make_task(0, 1);
    ck_assert_ok(dt__graph_link(stale, 1));
    ck_assert_ok(dt__graph_link(writer, 2));
    ck_assert_ok(dt__graph_link(reader, 2));
    ck_assert_int_eq(writer->blockers, 0);
    ck_assert_int_eq(reader->blockers, 1);
    ready_list list = {0};
    dt__graph_unlink(writer, on_ready, &list);
    dt__graph_unlink(reader, on_ready, &list);
    stale->accesses_count = 0;
    dt__task_destroy(stale);
    dt__task_destroy(writer);
    dt__task_destroy(reader);
    release_tensors();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("graph");
    TEST_CASE(suite, "rules", read_after_write_and_write_after_read, one_access_for_each_storage,
              direct_task_leaves_out_of_order, large_call_moved_in,
              queue_of_another_owner_is_dropped);
    TCase *tcase = tcase_create("random");
    tcase_add_loop_test(tcase, random_programs_agree_with_the_model, 0, 8);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
