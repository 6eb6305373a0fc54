/* ready.h: compute tasks that wait for a worker.
 *
 * For each priority, tasks that are ready when they are linked come in program order and go into a
 * list; those that become ready later go into a heap.  The next one of a priority is the earlier of
 * the two fronts.  Of the three that are then left the next is the one that was submitted first,
 * where interactive work counts as submitted earlier than it was and bulk work as later: so it is
 * overtaken, but only by what comes within that time.
 */
#ifndef DT_SCHEDULER_READY_H
#define DT_SCHEDULER_READY_H

#include "scheduler/heap.h"
#include "scheduler/list.h"
#include "scheduler/plant.h"

#define DT__READY_INTERACTIVE_NS 50000000 /* how much earlier */
#define DT__READY_BULK_NS 200000000       /* how much later */

typedef struct dt_ready_level {
    dt_list list;
    dt_task *heap;
} dt_ready_level;

typedef struct dt_ready {
    dt_ready_level levels[DT_PRIORITY_COUNT];
    int64_t count;
} dt_ready;

/* task->seq is greater than that of every task of its priority pushed this way before. */
static inline void dt__ready_push_last(dt_ready *ready, dt_task *task) {
    dt__list_push(&ready->levels[task->priority].list, task, DT_PLACE_READY);
    ready->count++;
}

static inline void dt__ready_push(dt_ready *ready, dt_task *task) {
    DT_ASSERT(task->place == DT_PLACE_NONE);
    task->place = DT_PLACE_READY_HEAP;
    dt__heap_push(&ready->levels[task->priority].heap, task, task->seq);
    ready->count++;
}

static inline void dt__ready_remove(dt_ready *ready, dt_task *task) {
    dt_ready_level *level = &ready->levels[task->priority];
    if (task->place == DT_PLACE_READY) {
        dt__list_remove(&level->list, task);
    } else {
        DT_ASSERT(task->place == DT_PLACE_READY_HEAP);
        dt__heap_remove(&level->heap, task);
        task->place = DT_PLACE_NONE;
    }
    ready->count--;
}

static inline dt_task *dt__ready_level_first(const dt_ready_level *level) {
    dt_task *a = level->list.first, *b = level->heap;
    return b == NULL || (a != NULL && a->seq < b->seq) ? a : b;
}

static inline int64_t dt__ready_time_ns(const dt_task *task) {
    if (DT_PLANT(20) && task->priority == DT_PRIORITY_BULK) return INT64_MAX;
    return task->time_submit_ns + (task->priority == DT_PRIORITY_BULK ? DT__READY_BULK_NS
                                   : task->priority == DT_PRIORITY_INTERACTIVE
                                       ? -DT__READY_INTERACTIVE_NS * !DT_PLANT(30)
                                       : 0);
}

/* The next one, which stays; NULL: none. */
static inline dt_task *dt__ready_first(const dt_ready *ready) {
    dt_task *first = NULL;
    for (int k = 0; k < DT_PRIORITY_COUNT; k++) {
        dt_task *task = dt__ready_level_first(&ready->levels[k]);
        if (task == NULL) continue;
        if (first == NULL || dt__ready_time_ns(task) < dt__ready_time_ns(first)) first = task;
    }
    return first;
}

static inline dt_task *dt__ready_pop(dt_ready *ready) {
    dt_task *task = dt__ready_first(ready);
    if (task != NULL) dt__ready_remove(ready, task);
    return task;
}

#endif
