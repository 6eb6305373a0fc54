/* ready.h: compute tasks that wait for a worker, in program order.
 *
 * Tasks that are ready when they are linked come in program order and go into a list; those that
 * become ready later go into a heap.  The next one is the earlier of the two fronts.
 */
#ifndef DT_SCHEDULER_READY_H
#define DT_SCHEDULER_READY_H

#include "scheduler/heap.h"

typedef struct dt_ready {
    dt_task *first, *last; /* through task->next */
    dt_task *heap;
    int64_t count;
} dt_ready;

/* task->seq is greater than that of every task pushed this way before. */
static inline void dt__ready_push_last(dt_ready *ready, dt_task *task) {
    task->next = NULL;
    if (ready->last != NULL) {
        ready->last->next = task;
    } else {
        ready->first = task;
    }
    ready->last = task;
    ready->count++;
}

static inline void dt__ready_push(dt_ready *ready, dt_task *task) {
    dt__heap_push(&ready->heap, task, task->seq);
    ready->count++;
}

static inline dt_task *dt__ready_pop(dt_ready *ready) {
    if (ready->count == 0) return NULL;
    ready->count--;
    dt_task *task = ready->first;
    if (task == NULL || (ready->heap != NULL && ready->heap->seq < task->seq))
        return dt__heap_pop(&ready->heap);
    ready->first = task->next;
    if (ready->first == NULL) ready->last = NULL;
    task->next = NULL;
    return task;
}

#endif
