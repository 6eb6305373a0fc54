/* demand.c: what is not worth computing: tasks that nobody can see the result of, and tasks whose
 * waiters have given up.
 *
 * Dropped: the outputs are held by the task alone.  The client tells when the last handle of a
 * tensor that is still to be written has gone (DT_TASK_RELEASE, which carries that handle's
 * reference); then its writer is looked at, and when that goes, the writers of what it read.
 *
 * Parked: somebody waited for the task, or for one that needs it, has given up, and nobody else
 * waits.  Parked tasks stay in the graph and are not started; they run when somebody waits again,
 * which the client tells (DT_TASK_ASK) whenever something is parked at all.  Which tasks are parked
 * is worked out anew by one walk over all tasks from the youngest to the oldest, so that each is
 * reached after all that wait for it:
 *
 *   needed     somebody waits for it, or a needed task does; I/O, timers and fences always are
 *   abandoned  its waiters have given up, or those of a task that waits for it
 *   parked     abandoned and not needed
 *
 * A needed task that is dropped no longer needs what stands before it: then the walk is due again.
 *
 * I1: marks are set by younger tasks on older ones and cleared when the walk reaches them.
 * I2: `parks` is set before the walk asks who waits, and clients count themselves as waiting before
 *     they look at `parks`: either the walk sees the waiter or the waiter tells the controller. So
 *     do those who wait for room, which what is parked takes: while there are any, nothing is.
 *     A task that is waited for but not linked during the walk has another one when it is.
 */
#include "runtime/assert.h"
#include "scheduler/controller.h"
#include "scheduler/plant.h"
#include "scheduler/task.h"

static inline int task_state(const dt_task *task) {
    return atomic_load_explicit(&task->state, memory_order_relaxed);
}

/* ---- dropping ------------------------------------------------------------------------------- */

static bool can_be_dropped(dt_task *task) {
    int state = task_state(task);
    /* `dropped` of a task that is handed over is its worker's. */
    return task->kind == DT_TASK_COMPUTE &&
           (state == DT_TASK_HANDED || (state == DT_TASK_LINKED && !task->dropped)) &&
           dt__task_is_unobservable(task, 0);
}

/* The writer of what `a` reads, if it is looked at when a's task has gone: nobody reads it beside
 * that one, or writes after it. NULL: none. */
static dt_task *writer_before(const dt_graph_access *a) {
    if (a->write || a == a->storage->graph_queue || a->next != NULL || !a->prev->write) return NULL;
    return a->prev->task;
}

/* Ends a task that has not started, and then those that only it had a use for. */
static void drop(dt_sched *s, dt_task *task) {
    dt_list pending = {0};
    dt__controller_displace(s, task);
    dt__list_push(&pending, task, DT_PLACE_PARKED);
    task->dropped = true; /* from here on nobody else touches it */
    s->controller.sweep_due |= s->controller.spares;
    while ((task = dt__list_pop(&pending)) != NULL) {
        dt_task *writers[DT_CALL_OPERANDS_INLINE];
        int count = 0;
        for (int k = 0; k < task->accesses_count && count < DT_CALL_OPERANDS_INLINE; k++) {
            writers[count] = writer_before(&task->accesses[k]);
            if (writers[count] != NULL) count++;
        }
        dt__task_drop(task);
        dt__controller_end(s, task);
        for (int k = 0; k < count; k++) {
            if (!can_be_dropped(writers[k])) continue;
            uint8_t handed = DT_TASK_HANDED;
            if (task_state(writers[k]) != DT_TASK_LINKED &&
                !DT_PLANT(16)) { /* perhaps a worker's by now */
                (void)atomic_compare_exchange_strong(&writers[k]->state, &handed, DT_TASK_DROPPED);
                continue;
            }
            dt__controller_displace(s, writers[k]);
            dt__list_push(&pending, writers[k], DT_PLACE_PARKED);
            writers[k]->dropped = true;
        }
    }
}

/* The last handle of t has gone. */
static void release(dt_sched *s, dt_task *word) {
    dt_tensor *t = word->user;
    dt_graph_access *first = t->storage->graph_queue;
    dt_task *writer = NULL;
    if (t->storage->graph_owner == s->owner && first != NULL && first->prev->write)
        writer = first->prev->task;
    if (!DT_PLANT(22)) dt_tensor_release(t); /* the writer holds another one */
    if (DT_PLANT(6) && writer != NULL) dt_tensor_release(t);
    if (writer == NULL || !can_be_dropped(writer)) return;
    uint8_t handed = DT_TASK_HANDED;
    if (task_state(writer) == DT_TASK_LINKED)
        drop(s, writer);
    else
        (void)atomic_compare_exchange_strong(&writer->state, &handed, DT_TASK_DROPPED);
}

/* ---- parking -------------------------------------------------------------------------------- */

/* Marks the tasks that `a` waits for: for a read the write before it, for a write also the reads
 * between. */
static void mark_blockers(const dt_graph_access *a, bool needed) {
    if (a->granted) return;
    const dt_graph_access *first = a->storage->graph_queue;
    for (const dt_graph_access *p = a->prev;; p = p->prev) {
        if (a->write || p->write) {
            p->task->marked_needed |= needed;
            p->task->marked_abandoned |= !needed;
        }
        if (p->write || p == first) return;
    }
}

static void park(dt_sched *s, dt_task *task) {
    atomic_fetch_add_explicit(&s->stat_parked, 1, memory_order_relaxed);
    task->parked = true;
    if (task_state(task) == DT_TASK_HANDED) {
        (void)dt__run_take_back(task);
    } else if (task->place != DT_PLACE_NONE) {
        dt__controller_displace(s, task);
        dt__controller_place(s, task);
    }
}

static void unpark(dt_sched *s, dt_task *task) {
    task->parked = false;
    if (task->place != DT_PLACE_PARKED || DT_PLANT(11)) return;
    dt__controller_displace(s, task);
    dt__controller_place(s, task);
}

dt_want dt__demand_want(const dt_task *task) {
    if (task->kind != DT_TASK_COMPUTE) return DT_WANTED;
    return task->want != NULL ? task->want(task) : DT_WANT_NEVER;
}

void dt__demand_sweep(dt_sched *s) {
    dt_controller *c = &s->controller;
    c->sweep_due = false;
    atomic_store_explicit(&s->parks, true, memory_order_seq_cst);
    bool all = atomic_exchange_explicit(&s->wants_all, false, memory_order_seq_cst) ||
               atomic_load_explicit(&s->room_waiters, memory_order_seq_cst) > 0 || c->stopping;
    bool any = false;
    c->spares = false;
    for (dt_task *task = c->youngest; task != NULL; task = task->older) {
        if (task->after_all) all = true;
        dt_want want = dt__demand_want(task);
        bool needed = all || task->marked_needed || want == DT_WANTED;
        bool abandoned = task->marked_abandoned || want == DT_WANT_ABANDONED;
        bool parks = abandoned && !needed;
        task->marked_needed = task->marked_abandoned = false;
        int state = task_state(task);
        if (state != DT_TASK_LINKED && state != DT_TASK_HANDED && state != DT_TASK_TAKEN_BACK)
            continue;
        if (needed || parks)
            for (int k = 0; k < task->accesses_count; k++)
                mark_blockers(&task->accesses[k], needed);
        any |= parks;
        c->spares |= abandoned && needed;
        if (parks && !task->parked) park(s, task);
        if (!parks && task->parked) unpark(s, task);
    }
    if (!any) atomic_store_explicit(&s->parks, false, memory_order_seq_cst);
}

void dt__demand_hear(dt_sched *s, dt_task *word) {
    if (word->kind == DT_TASK_RELEASE) {
        release(s, word);
    } else {
        s->controller.sweep_due |= !DT_PLANT(word->kind == DT_TASK_ASK ? 12 : 29);
    }
    dt__task_destroy(word);
}
