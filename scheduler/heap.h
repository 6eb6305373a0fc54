/* heap.h: an intrusive pairing heap of tasks by heap_key, the smallest first.
 *
 * Pushing is O(1), popping O(log n) amortised, and nothing is allocated.  Used for ready tasks
 * (key: program order) and timers (key: deadline).
 *
 * I1: a task is in one heap at most; its links are meaningless outside.
 */
#ifndef DT_SCHEDULER_HEAP_H
#define DT_SCHEDULER_HEAP_H

#include "scheduler/sched.h"

/* Joins two heaps; either may be NULL. Roots have no sibling. Of equal keys, a's comes first. */
static inline dt_task *dt__heap_join(dt_task *a, dt_task *b) {
    if (a == NULL) return b;
    if (b == NULL) return a;
    if (b->heap_key < a->heap_key) {
        dt_task *t = a;
        a = b;
        b = t;
    }
    b->heap_sibling = a->heap_child;
    a->heap_child = b;
    return a;
}

static inline void dt__heap_push(dt_task **heap, dt_task *task, uint64_t key) {
    task->heap_key = key;
    task->heap_child = NULL;
    task->heap_sibling = NULL;
    *heap = dt__heap_join(*heap, task);
}

/* The smallest, or NULL. The children of the old root are joined in pairs, then the pairs into one:
 * that order is what makes popping cheap. */
static inline dt_task *dt__heap_pop(dt_task **heap) {
    dt_task *top = *heap;
    if (top == NULL) return NULL;
    dt_task *pairs = NULL; /* a list of heaps through heap_sibling */
    dt_task *child = top->heap_child;
    while (child != NULL) {
        dt_task *a = child;
        dt_task *b = a->heap_sibling;
        child = b != NULL ? b->heap_sibling : NULL;
        a->heap_sibling = NULL;
        if (b != NULL) b->heap_sibling = NULL;
        a = dt__heap_join(a, b);
        a->heap_sibling = pairs;
        pairs = a;
    }
    dt_task *root = NULL;
    while (pairs != NULL) {
        dt_task *next = pairs->heap_sibling;
        pairs->heap_sibling = NULL;
        root = dt__heap_join(root, pairs);
        pairs = next;
    }
    *heap = root;
    top->heap_child = NULL;
    return top;
}

#endif
