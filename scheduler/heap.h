/* heap.h: an intrusive pairing heap of tasks by heap_key, the smallest first.
 *
 * Pushing is O(1), popping and removing O(log n) amortised, and nothing is allocated.  Used for
 * ready tasks (key: program order) and timers (key: deadline).
 *
 * I1: a task is in one heap at most; its links are meaningless outside.
 * I2: heap_prev is the parent of a first child, the sibling to the left of any other; NULL: root.
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
    if (b->heap_sibling != NULL) b->heap_sibling->heap_prev = b;
    b->heap_prev = a;
    a->heap_child = b;
    return a;
}

static inline void dt__heap_push(dt_task **heap, dt_task *task, uint64_t key) {
    task->heap_key = key;
    task->heap_child = NULL;
    task->heap_sibling = NULL;
    task->heap_prev = NULL;
    *heap = dt__heap_join(*heap, task);
}

/* One heap of the siblings from `child` on. They are joined in pairs, then the pairs into one: that
 * order is what makes popping cheap. */
static inline dt_task *dt__heap_join_siblings(dt_task *child) {
    dt_task *pairs = NULL; /* a list of heaps through heap_sibling */
    while (child != NULL) {
        dt_task *a = child;
        dt_task *b = a->heap_sibling;
        child = b != NULL ? b->heap_sibling : NULL;
        a->heap_sibling = a->heap_prev = NULL;
        if (b != NULL) b->heap_sibling = b->heap_prev = NULL;
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
    return root;
}

/* The smallest, or NULL. */
static inline dt_task *dt__heap_pop(dt_task **heap) {
    dt_task *top = *heap;
    if (top == NULL) return NULL;
    *heap = dt__heap_join_siblings(top->heap_child);
    top->heap_child = NULL;
    return top;
}

/* Takes out a task that is in the heap. */
static inline void dt__heap_remove(dt_task **heap, dt_task *task) {
    if (task == *heap) {
        (void)dt__heap_pop(heap);
        return;
    }
    if (task->heap_prev->heap_child == task)
        task->heap_prev->heap_child = task->heap_sibling;
    else
        task->heap_prev->heap_sibling = task->heap_sibling;
    if (task->heap_sibling != NULL) task->heap_sibling->heap_prev = task->heap_prev;
    *heap = dt__heap_join(*heap, dt__heap_join_siblings(task->heap_child));
    task->heap_child = task->heap_sibling = task->heap_prev = NULL;
}

#endif
