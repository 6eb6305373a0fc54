/* list.h: an intrusive list of tasks from which any of them can be taken.
 *
 * I1: a task is in one list or heap at most; task->place says in which.
 */
#ifndef DT_SCHEDULER_LIST_H
#define DT_SCHEDULER_LIST_H

#include "runtime/assert.h"
#include "scheduler/sched.h"

typedef struct dt_list {
    dt_task *first, *last;
} dt_list;

/* Behind `after`, which is in the list; NULL: as the first. */
static inline void dt__list_insert(dt_list *list, dt_task *task, dt_task *after, dt_place place) {
    DT_ASSERT(task->place == DT_PLACE_NONE);
    task->place = (uint8_t)place;
    dt_task **next = after != NULL ? &after->list_next : &list->first;
    task->list_prev = after;
    task->list_next = *next;
    *next = task;
    if (task->list_next != NULL) {
        task->list_next->list_prev = task;
    } else {
        list->last = task;
    }
}

static inline void dt__list_push(dt_list *list, dt_task *task, dt_place place) {
    dt__list_insert(list, task, list->last, place);
}

static inline void dt__list_remove(dt_list *list, dt_task *task) {
    DT_ASSERT(task->place != DT_PLACE_NONE);
    task->place = DT_PLACE_NONE;
    if (task->list_prev != NULL) {
        task->list_prev->list_next = task->list_next;
    } else {
        list->first = task->list_next;
    }
    if (task->list_next != NULL) {
        task->list_next->list_prev = task->list_prev;
    } else {
        list->last = task->list_prev;
    }
}

static inline dt_task *dt__list_pop(dt_list *list) {
    dt_task *task = list->first;
    if (task != NULL) dt__list_remove(list, task);
    return task;
}

#endif
