/* mpsc.h: a lock-free intrusive queue with many producers and one consumer, and the gate that says
 * whether its consumer has to be woken.
 *
 * Producers push by compare-and-swap; the consumer takes everything with one exchange and reverses
 * it into the order of pushing.  There is no pop of single nodes and hence no ABA problem.
 *
 * The gate makes a wake-up cost nothing while the consumer is awake:
 *   producer   push; if dt_gate_knock(): wake the consumer (one eventfd write)
 *   consumer   dt_gate_close(); if the queue is empty: sleep; dt_gate_open(); take
 *
 * I1: push and knock, and close and the look at the queue, are sequentially consistent: either the
 *     producer sees the gate closed or the consumer sees the node.
 * I2: the gate is opened before the queue is taken, so a push after the take knocks again once the
 *     gate closes, or is seen by the look that follows the closing.
 * I3: one knock is answered for each closing: many producers cost one wake-up.
 */
#ifndef DT_SCHEDULER_MPSC_H
#define DT_SCHEDULER_MPSC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct dt_mpsc_node {
    struct dt_mpsc_node *next;
} dt_mpsc_node;

typedef struct dt_mpsc {
    _Atomic(dt_mpsc_node *) head; /* the newest */
} dt_mpsc;

#define DT_MPSC_OWNER(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

static inline void dt_mpsc_push(dt_mpsc *queue, dt_mpsc_node *node) {
    dt_mpsc_node *head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    do {
        node->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&queue->head, &head, node, memory_order_seq_cst,
                                                    memory_order_relaxed));
}

/* Any thread; a hint unless it is the consumer's look after dt_gate_close. */
static inline bool dt_mpsc_is_empty(dt_mpsc *queue) {
    return atomic_load_explicit(&queue->head, memory_order_seq_cst) == NULL;
}

/* Consumer only: everything pushed so far, the oldest first. */
static inline dt_mpsc_node *dt_mpsc_take(dt_mpsc *queue) {
    dt_mpsc_node *node = atomic_exchange_explicit(&queue->head, NULL, memory_order_acq_rel);
    dt_mpsc_node *oldest_first = NULL;
    while (node != NULL) {
        dt_mpsc_node *next = node->next;
        node->next = oldest_first;
        oldest_first = node;
        node = next;
    }
    return oldest_first;
}

typedef struct dt_gate {
    _Atomic(bool) closed; /* the consumer sleeps, or is about to */
} dt_gate;

static inline void dt_gate_close(dt_gate *gate) {
    atomic_store_explicit(&gate->closed, true, memory_order_seq_cst);
}
static inline void dt_gate_open(dt_gate *gate) {
    atomic_store_explicit(&gate->closed, false, memory_order_seq_cst);
}
static inline bool dt_gate_is_closed(dt_gate *gate) {
    return atomic_load_explicit(&gate->closed, memory_order_seq_cst);
}
/* True: the caller, and nobody else, has to wake the consumer. */
static inline bool dt_gate_knock(dt_gate *gate) {
    return dt_gate_is_closed(gate) &&
           atomic_exchange_explicit(&gate->closed, false, memory_order_seq_cst);
}

#endif
