/* test_ready.c: the heap of tasks and the queue of ready ones, against sorting and a model. */
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

/* ---- priorities ----------------------------------------------------------------------------- */

#define MS 1000000

/* Ready, submitted at `ms` with `priority`. */
static dt_task *add(dt_ready *ready, int k, dt_priority priority, int64_t ms) {
    tasks[k] =
        (dt_task){.seq = (uint64_t)k + 1, .priority = (uint8_t)priority, .time_submit_ns = ms * MS};
    dt__ready_push_last(ready, &tasks[k]);
    return &tasks[k];
}

/* Interactive work overtakes, but not what was submitted more than 50 ms before it. */
START_TEST(interactive_overtakes_for_a_bounded_time) {
    dt_ready ready = {0};
    dt_task *old = add(&ready, 0, DT_PRIORITY_NORMAL, 1000);
    dt_task *young = add(&ready, 1, DT_PRIORITY_NORMAL, 1002);
    dt_task *urgent = add(&ready, 2, DT_PRIORITY_INTERACTIVE, 1051);
    ck_assert_ptr_eq(dt__ready_pop(&ready), old);
    ck_assert_ptr_eq(dt__ready_pop(&ready), urgent);
    ck_assert_ptr_eq(dt__ready_pop(&ready), young);
    ck_assert_ptr_null(dt__ready_pop(&ready));
}
END_TEST

/* Bulk work is overtaken by what comes within 200 ms, and within 250 by interactive work. */
START_TEST(bulk_waits_for_a_bounded_time) {
    dt_ready ready = {0};
    dt_task *bulk = add(&ready, 0, DT_PRIORITY_BULK, 1000);
    dt_task *order[] = {add(&ready, 1, DT_PRIORITY_NORMAL, 1199),
                        add(&ready, 2, DT_PRIORITY_INTERACTIVE, 1249), bulk,
                        add(&ready, 3, DT_PRIORITY_NORMAL, 1201),
                        add(&ready, 4, DT_PRIORITY_INTERACTIVE, 1252)};
    for (int k = 0; k < 5; k++) ck_assert_ptr_eq(dt__ready_pop(&ready), order[k]);
    ck_assert_int_eq(ready.count, 0);
}
END_TEST

/* When it counts as submitted, worked out here. */
static int64_t counts_from(const dt_task *task) {
    if (task->priority == DT_PRIORITY_INTERACTIVE) return task->time_submit_ns - 50 * MS;
    if (task->priority == DT_PRIORITY_BULK) return task->time_submit_ns + 200 * MS;
    return task->time_submit_ns;
}

/* The one that comes first of all that are inside, by looking at each. */
static int first_of(const bool *inside) {
    int best = -1;
    for (int k = 0; k < COUNT; k++) {
        if (!inside[k]) continue;
        int64_t least = best >= 0 ? counts_from(&tasks[best]) : INT64_MAX;
        bool earlier = counts_from(&tasks[k]) < least;
        bool equal = counts_from(&tasks[k]) == least && tasks[k].priority < tasks[best].priority;
        if (earlier || equal) best = k;
    }
    return best;
}

/* Pushed into list and heap, taken out from the middle, put back, popped: always the right one, and
 * none is lost. */
START_TEST(ready_agrees_with_a_model) {
    uint64_t seed = 21;
    dt_ready ready = {0};
    bool inside[COUNT] = {false};
    int next = 0, count = 0, removed_from[2] = {0};
    int64_t now_ns = 1;
    while (next < COUNT || count > 0) {
        uint64_t what = test_random(&seed) % 4, dice = test_random(&seed) % 4;
        int k = (int)test_random_in(&seed, 0, next < COUNT ? next : COUNT - 1);
        if (what == 3 && next < COUNT) {
            now_ns += test_random_in(&seed, 0, 3) * MS;
            tasks[next] = (dt_task){.seq = (uint64_t)next + 1, .time_submit_ns = now_ns};
            tasks[next].priority = (uint8_t)test_random_in(&seed, 0, DT_PRIORITY_COUNT - 1);
            if (dice != 0) {
                dt__ready_push_last(&ready, &tasks[next]);
                inside[next] = true;
                count++;
            }
            next++;
        } else if (what == 0 && k < next && inside[k]) {
            removed_from[tasks[k].place == DT_PLACE_READY_HEAP]++;
            dt__ready_remove(&ready, &tasks[k]);
            inside[k] = false;
            count--;
        } else if (what == 2 && k < next && !inside[k] && next < COUNT) {
            dt__ready_push(&ready, &tasks[k]); /* again, or late */
            inside[k] = true;
            count++;
        } else if (what == 1 && (dice == 0 || next == COUNT)) {
            int first = first_of(inside);
            ck_assert_ptr_eq(dt__ready_first(&ready), first >= 0 ? &tasks[first] : NULL);
            ck_assert_ptr_eq(dt__ready_pop(&ready), first >= 0 ? &tasks[first] : NULL);
            if (first < 0) continue;
            ck_assert_int_eq(tasks[first].place, DT_PLACE_NONE);
            inside[first] = false;
            count--;
        }
        ck_assert_int_eq(ready.count, count);
    }
    for (int k = 0; k < 2; k++) ck_assert_int_gt(removed_from[k], 20);
    ck_assert_ptr_null(dt__ready_first(&ready));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ready");
    TEST_CASE(suite, "heap", heap_pops_in_order_of_keys);
    TEST_CASE(suite, "ready", ready_pops_in_program_order);
    TEST_CASE(suite, "priorities", interactive_overtakes_for_a_bounded_time,
              bulk_waits_for_a_bounded_time, ready_agrees_with_a_model);
    return test_run(suite);
}
