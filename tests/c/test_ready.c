/* test_ready.c: the heap of tasks and the queue of ready ones, against sorting. */
#include <check.h>

#include "scheduler/heap.h"
#include "scheduler/ready.h"
#include "tests/c/test_support.h"

#define COUNT 500

static dt_task tasks[COUNT];

START_TEST(heap_pops_in_order_of_keys) {
    uint64_t seed = 11;
    dt_task *heap = NULL;
    int in_heap = 0;
    bool inside[COUNT] = {false};
    ck_assert_ptr_null(dt__heap_pop(&heap));
    for (int step = 0; step < 20000; step++) {
        int k = (int)test_random_in(&seed, 0, COUNT - 1);
        if (!inside[k]) {
            dt__heap_push(&heap, &tasks[k], test_random(&seed) % 100);
            inside[k] = true;
            in_heap++;
        } else if (in_heap > 0 && test_random(&seed) % 2) {
            uint64_t least = UINT64_MAX;
            for (int j = 0; j < COUNT; j++)
                if (inside[j] && tasks[j].heap_key < least) least = tasks[j].heap_key;
            dt_task *top = dt__heap_pop(&heap);
            ck_assert_uint_eq(top->heap_key, least);
            ck_assert(inside[top - tasks]);
            inside[top - tasks] = false;
            in_heap--;
        }
    }
    for (; in_heap > 0; in_heap--) ck_assert_ptr_nonnull(dt__heap_pop(&heap));
    ck_assert_ptr_null(dt__heap_pop(&heap));
}
END_TEST

/* Tasks come in order; some are released later, in any order. What is popped is the earliest. */
START_TEST(ready_pops_in_program_order) {
    uint64_t seed = 5;
    dt_ready ready = {0};
    int state[COUNT] = {0}; /* 0 to come, 1 held back, 2 ready, 3 popped */
    int next = 0, popped = 0;
    for (int k = 0; k < COUNT; k++) tasks[k].seq = (uint64_t)k + 1;
    ck_assert_ptr_null(dt__ready_pop(&ready));
    while (popped < COUNT) {
        uint64_t what = test_random(&seed) % 4;
        if (what == 0 && next < COUNT) {
            state[next] = 1;
            if (test_random(&seed) % 2) {
                dt__ready_push_last(&ready, &tasks[next]);
                state[next] = 2;
            }
            next++;
        } else if (what == 1) {
            int k = (int)test_random_in(&seed, 0, COUNT - 1);
            if (state[k] == 1) {
                dt__ready_push(&ready, &tasks[k]);
                state[k] = 2;
            }
        } else {
            int least = 0;
            while (least < COUNT && state[least] != 2) least++;
            dt_task *task = dt__ready_pop(&ready);
            if (least == COUNT) {
                ck_assert_ptr_null(task);
                continue;
            }
            ck_assert_ptr_eq(task, &tasks[least]);
            state[least] = 3;
            popped++;
        }
    }
    ck_assert_int_eq(ready.count, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ready");
    TEST_CASE(suite, "heap", heap_pops_in_order_of_keys);
    TEST_CASE(suite, "ready", ready_pops_in_program_order);
    return test_run(suite);
}
