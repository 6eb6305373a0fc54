/* graph.c: the access queues. See graph.h for the idea.
 *
 * I1: the queue of a storage is in program order, since tasks are linked in that order.
 * I2: the granted accesses are a prefix of the queue: one write, or reads only.
 *     (A direct task runs whether its accesses are granted or not, and may leave a queue before a
 *     task that stands before it and has ended as well.  What follows is then granted when the
 *     front leaves, which it is about to.)
 * I3: one task has one access at most in one queue: a write when it writes through any operand.
 */
#include "scheduler/graph.h"

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "scheduler/plant.h"

static bool is_first(const dt_graph_access *a) { return a->storage->graph_queue == a; }

static void append(dt_task *task, dt_storage *s, bool write, uint8_t owner) {
    if (DT_UNLIKELY(s->graph_owner != owner)) {
        s->graph_queue = NULL;
        s->graph_owner = owner;
    }
    dt_graph_access *first = s->graph_queue;
    dt_graph_access *last = first != NULL ? first->prev : NULL;
    /* Outputs come first, so an access of this task that is there already covers this one too. */
    if (last != NULL && last->task == task) return;
    dt_graph_access *a = &task->accesses[task->accesses_count++];
    *a = (dt_graph_access){.task = task, .storage = s, .write = write};
    if (last == NULL) {
        s->graph_queue = a;
        a->prev = a;
        a->granted = true;
        return;
    }
    a->prev = last;
    last->next = a;
    first->prev = a;
    a->granted = last->granted && (!write || DT_PLANT(last->write ? 4 : 3)) &&
                 (!last->write || (write && DT_PLANT(4)));
    if (!a->granted) task->blockers++;
}

dt_status dt__graph_link(dt_task *task, uint8_t owner) {
    const dt_call *call = &task->call;
    int operands = call->nout + call->nin;
    if (DT_UNLIKELY(operands > task->accesses_capacity)) {
        dt_graph_access *more;
        DT_ALLOC_OR_FAIL(more, (size_t)operands * sizeof *more);
        task->accesses = more;
        task->accesses_capacity = operands;
    }
    for (int k = 0; k < call->nout; k++) append(task, dt_call_out(call, k)->storage, true, owner);
    for (int k = 0; k < call->nin; k++)
        if (dt_call_in(call, k) != NULL) append(task, dt_call_in(call, k)->storage, false, owner);
    return DT_OK;
}

static void grant(dt_graph_access *a, void (*ready)(void *context, dt_task *task), void *context) {
    a->granted = true;
    DT_ASSERT(a->task->blockers > 0);
    if (--a->task->blockers == 0) ready(context, a->task);
}

/* Grants what now stands at the front. */
static void grant_front(dt_storage *s, void (*ready)(void *context, dt_task *task), void *context) {
    dt_graph_access *a = s->graph_queue;
    if (a == NULL || a->granted) return;
    if (a->write) {
        grant(a, ready, context);
        return;
    }
    for (; a != NULL && (!a->write || DT_PLANT(5)); a = a->next)
        if (!a->write) grant(a, ready, context);
}

static void remove_access(dt_graph_access *a) {
    dt_storage *s = a->storage;
    dt_graph_access *first = s->graph_queue;
    if (a->next != NULL) {
        a->next->prev = a->prev; /* when a is first: the new first now points at the last */
    } else if (a != first) {
        first->prev = a->prev;
    }
    if (a == first) {
        s->graph_queue = a->next;
    } else {
        a->prev->next = a->next;
    }
}

void dt__graph_unlink(dt_task *task, void (*ready)(void *context, dt_task *task), void *context) {
    for (int k = 0; k < task->accesses_count; k++) {
        dt_graph_access *a = &task->accesses[k];
        dt_storage *s = a->storage;
        bool was_first = is_first(a);
        remove_access(a);
        if (was_first) grant_front(s, ready, context);
    }
    task->accesses_count = 0;
}

bool dt__graph_queue_is_valid(const dt_storage *storage) {
    const dt_graph_access *first = storage->graph_queue;
    if (first == NULL) return true;
    if (!first->granted) return false;
    const dt_graph_access *last = first;
    for (const dt_graph_access *a = first; a != NULL; last = a, a = a->next) {
        if (a->storage != storage) return false;
        if (a == first) continue;
        if (a->prev != last || a->task->seq <= last->task->seq) return false;
        if (a->granted && (a->write || last->write || !last->granted)) return false;
    }
    return first->prev == last;
}
