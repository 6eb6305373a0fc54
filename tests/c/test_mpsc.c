/* test_mpsc.c: order, many producers, and the gate that saves wake-ups. */
#include <check.h>
#include <pthread.h>

#include "scheduler/futex.h"
#include "scheduler/mpsc.h"
#include "tests/c/test_support.h"

typedef struct item {
    dt_mpsc_node node;
    int producer, number;
} item;

START_TEST(takes_in_order_of_pushing) {
    dt_mpsc queue = {NULL};
    item items[5];
    ck_assert(dt_mpsc_is_empty(&queue));
    ck_assert_ptr_null(dt_mpsc_take(&queue));
    for (int k = 0; k < 5; k++) {
        items[k].number = k;
        dt_mpsc_push(&queue, &items[k].node);
    }
    ck_assert(!dt_mpsc_is_empty(&queue));
    dt_mpsc_node *node = dt_mpsc_take(&queue);
    for (int k = 0; k < 5; k++, node = node->next)
        ck_assert_int_eq(DT_MPSC_OWNER(node, item, node)->number, k);
    ck_assert_ptr_null(node);
    ck_assert(dt_mpsc_is_empty(&queue));
}
END_TEST

#define PRODUCERS 4
#define ITEMS 20000

typedef struct shared {
    dt_mpsc queue;
    dt_gate gate;
    _Atomic(uint32_t) word; /* the consumer's futex: the number of wake-ups */
} shared;

typedef struct producer {
    shared *shared;
    item *items;
} producer;

static void *produce(void *argument) {
    producer *p = argument;
    for (int k = 0; k < ITEMS; k++) {
        dt_mpsc_push(&p->shared->queue, &p->items[k].node);
        if (!dt_gate_knock(&p->shared->gate)) continue;
        atomic_fetch_add(&p->shared->word, 1);
        dt_futex_wake(&p->shared->word, 1);
    }
    return NULL;
}

/* A lost wake-up would make the consumer sleep for ever (and the test time out). */
START_TEST(many_producers_and_a_sleeping_consumer) {
    shared sh = {0};
    producer producers[PRODUCERS];
    pthread_t threads[PRODUCERS];
    for (int p = 0; p < PRODUCERS; p++) {
        producers[p] = (producer){&sh, calloc(ITEMS, sizeof(item))};
        for (int k = 0; k < ITEMS; k++) {
            producers[p].items[k].producer = p;
            producers[p].items[k].number = k;
        }
        pthread_create(&threads[p], NULL, produce, &producers[p]);
    }
    int next[PRODUCERS] = {0}, total = 0, closings = 0;
    while (total < PRODUCERS * ITEMS) {
        uint32_t word = atomic_load(&sh.word);
        dt_gate_close(&sh.gate);
        closings++;
        if (dt_mpsc_is_empty(&sh.queue))
            while (atomic_load(&sh.word) == word) dt_futex_wait(&sh.word, word, -1);
        dt_gate_open(&sh.gate);
        for (dt_mpsc_node *n = dt_mpsc_take(&sh.queue); n != NULL; n = n->next) {
            item *it = DT_MPSC_OWNER(n, item, node);
            ck_assert_int_eq(it->number, next[it->producer]); /* each producer's own order */
            next[it->producer]++;
            total++;
        }
    }
    for (int p = 0; p < PRODUCERS; p++) {
        pthread_join(threads[p], NULL);
        free(producers[p].items);
    }
    ck_assert_int_le((int)atomic_load(&sh.word), closings); /* one knock for each, at most */
}
END_TEST

START_TEST(gate_wakes_once_for_each_closing) {
    dt_gate gate = {false};
    ck_assert(!dt_gate_knock(&gate));
    dt_gate_close(&gate);
    ck_assert(dt_gate_is_closed(&gate));
    ck_assert(dt_gate_knock(&gate));
    ck_assert(!dt_gate_knock(&gate));
    dt_gate_close(&gate);
    dt_gate_open(&gate);
    ck_assert(!dt_gate_knock(&gate));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mpsc");
    TEST_CASE(suite, "queue", takes_in_order_of_pushing, many_producers_and_a_sleeping_consumer);
    TEST_CASE(suite, "gate", gate_wakes_once_for_each_closing);
    return test_run(suite);
}
