/* test_task.c: memory of tasks, counts, failure of operands. */
#include <check.h>

#include "scheduler/task.h"
#include "tests/c/sched_support.h"

START_TEST(new_and_free) {
    dt_memory_stats before = test_memory();
    dt_task *task;
    ck_assert_ok(dt_task_new(DT_TASK_COMPUTE, 1, 2, &task));
    ck_assert_int_eq(task->call.nout, 1);
    ck_assert_int_eq(task->call.nin, 2);
    ck_assert_int_ge(task->accesses_capacity, 3);
    dt_task_free(task);
    ck_assert_ok(dt_task_new(DT_TASK_FENCE, 0, 100, &task));
    ck_assert_int_eq(task->accesses_capacity, 100);
    dt_task_free(task);
    dt_task_free(NULL);
    test_assert_no_leak(before);
}
END_TEST

static dt_status new_task_scenario(void) {
    dt_task *task;
    DT_TRY(dt_task_new(DT_TASK_COMPUTE, 2, 40, &task)); /* operands on the heap */
    dt_task_free(task);
    return DT_OK;
}

START_TEST(every_allocation_fails) {
    ck_assert_int_eq(test_every_allocation_fails(new_task_scenario), 2);
}
END_TEST

static uint32_t readers(dt_tensor *t) { return atomic_load(&t->storage->readers); }
static uint32_t writers(dt_tensor *t) { return atomic_load(&t->storage->writers); }

START_TEST(counts_and_conflicts) {
    dt_memory_stats before = test_memory();
    dt_tensor *x = fake_full(4, 0), *y = fake_full(4, 0), *out = fake_tensor(4);
    fake_ends ends = {0};
    dt_task *a = fake_task(&ends, out, x, 1, y, 1, 0);
    ck_assert(dt__task_raise_counts(a));
    ck_assert_int_eq(readers(x), 1);
    ck_assert_int_eq(readers(y), 1);
    ck_assert_int_eq(writers(out), 1);
    dt_task *reader = fake_task(&ends, y, x, 1, NULL, 0, 0);
    ck_assert(!dt__task_raise_counts(reader)); /* writes y, which a reads */
    dt_task *again = fake_task(&ends, NULL, x, 1, x, 1, 0);
    ck_assert(dt__task_raise_counts(again)); /* reads only what others read */
    ck_assert_int_eq(readers(x), 4);
    dt_task *inplace = fake_task(&ends, out, out, 1, NULL, 0, 0);
    ck_assert(!dt__task_raise_counts(inplace));
    ck_assert_int_eq(writers(out), 2);
    ck_assert_int_eq(readers(out), 1);
    dt_task *all[] = {a, reader, again, inplace};
    for (int k = 0; k < 4; k++) {
        dt__task_end(all[k], 1);
        dt__task_destroy(all[k]);
    }
    ck_assert_int_eq(ends.count, 4);
    ck_assert_int_eq(readers(x) + writers(x) + readers(y) + writers(y), 0);
    ck_assert_int_eq(readers(out) + writers(out), 0);
    dt_tensor_release(x);
    dt_tensor_release(y);
    dt_tensor_release(out);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(input_without_memory_is_not_direct) {
    dt_tensor *x = fake_tensor(1000), *out = fake_tensor(1000);
    dt_task *task = fake_task(NULL, out, x, 1, NULL, 0, 0);
    ck_assert(!dt__task_raise_counts(task));
    dt__task_end(task, 1);
    dt__task_destroy(task);
    dt_tensor_release(x);
    dt_tensor_release(out);
}
END_TEST

/* The first failure stays in the storage, and the storage keeps it alive. */
START_TEST(failure_is_kept_by_the_outputs) {
    dt_memory_stats before = test_memory();
    dt_tensor *x = fake_full(4, 0), *out = fake_tensor(4);
    for (int k = 0; k < 2; k++) {
        dt_task *task = fake_task(NULL, out, x, 1, NULL, 0, 0);
        ck_assert_ptr_eq(dt_call_operand_failure(&task->call), atomic_load(&out->storage->failure));
        (void)dt__task_raise_counts(task);
        dt__task_fail(task, dt_fail(DT_E_VALUE, "failure %d", k));
        dt__task_fail(task, dt_fail(DT_E_VALUE, "not this one"));
        dt__task_end(task, 1);
        dt__task_destroy(task);
    }
    ck_assert_ptr_null(atomic_load(&x->storage->failure));
    ck_assert_str_eq(dt_error_message(atomic_load(&out->storage->failure)), "failure 0");
    dt_tensor_release(x);
    dt_tensor_release(out);
    test_assert_no_leak(before);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("task");
    TEST_CASE(suite, "task", new_and_free, every_allocation_fails, counts_and_conflicts,
              input_without_memory_is_not_direct, failure_is_kept_by_the_outputs);
    return test_run(suite);
}
