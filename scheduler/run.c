/* run.c: the decisions on runs. See run.h.
 *
 * Pure functions of the graph: no clock, no thread; the one interaction with a worker is the
 * compare-and-swap on run_next.
 */
#include "scheduler/run.h"

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "scheduler/task.h"

static inline int task_state(const dt_task *task) {
    return atomic_load_explicit(&task->state, memory_order_relaxed);
}

/* The run of a handed-over task, made when a second one is about to follow. NULL: out of memory,
 * which only means a run less. */
static dt_run *run_of(dt_task *task) {
    if (task->run != NULL) return task->run;
    dt_run *run = dt_alloc(sizeof *run);
    if (run == NULL) return NULL;
    *run = (dt_run){.tail = task, .tasks = 1, .cost_ns = task->cost_ns, .total_ns = task->cost_ns};
    task->run = run;
    return run;
}

static inline bool is_in_run(const dt_task *task, const dt_run *run, const dt_task *tail) {
    return task == tail || (run != NULL && task->run == run);
}

/* Whether everything that `a` waits for is in the run. Whatever stands before a writer of the run
 * need not be looked at: that writer waited for it. */
static bool waits_only_for_run(const dt_graph_access *a, const dt_run *run, const dt_task *tail) {
    const dt_graph_access *first = a->storage->graph_queue;
    const dt_graph_access *p = a;
    for (int step = 0; step < DT__RUN_LOOK_MAX; step++) {
        DT_ASSERT(p != first);
        p = p->prev;
        bool inside = is_in_run(p->task, run, tail);
        if (p->write) return inside;
        if (a->write && !inside) return false;
        if (p == first) return a->write;
    }
    return false;
}

static bool may_append(const dt_task *tail, const dt_task *task, bool others_wait) {
    const dt_run *run = tail->run;
    if (task->kind != DT_TASK_COMPUTE && task->kind != DT_TASK_FENCE) return false;
    if (tail->kind != DT_TASK_COMPUTE && tail->kind != DT_TASK_FENCE) return false;
    if (task_state(task) != DT_TASK_LINKED || task->blockers == 0) return false;
    if (run != NULL && run->tail != tail) return false;
    bool alone = run == NULL || run->tasks == 1;
    double ahead = run != NULL ? run->cost_ns : tail->cost_ns;
    double total = run != NULL ? run->total_ns : tail->cost_ns;
    if (task->cost_ns + (alone ? 0 : ahead) > DT__RUN_COST_NS_MAX) return false;
    if (others_wait && task->cost_ns + total > DT__RUN_COST_NS_MAX) return false;
    for (int k = 0; k < task->accesses_count; k++) {
        const dt_graph_access *a = &task->accesses[k];
        if (!a->granted && !waits_only_for_run(a, run, tail)) return false;
    }
    return true;
}

dt_status dt__run_materialize_inputs(dt_task *task) {
    for (int k = 0; k < task->accesses_count; k++) {
        dt_graph_access *a = &task->accesses[k];
        if (!a->write && a->granted) DT_TRY(dt__task_materialize_input(a->storage));
    }
    return DT_OK;
}

bool dt__run_append(dt_task *tail, dt_task *task, bool others_wait) {
    if (!may_append(tail, task, others_wait)) return false;
    if (dt__run_materialize_inputs(task) != DT_OK) return false; /* fails when it is ready */
    dt_run *run = run_of(tail);
    if (run == NULL) return false;
    atomic_store_explicit(&task->state, DT_TASK_HANDED, memory_order_relaxed);
    dt_task *none = NULL;
    if (!atomic_compare_exchange_strong_explicit(&tail->run_next, &none, task, memory_order_release,
                                                 memory_order_relaxed)) {
        atomic_store_explicit(&task->state, DT_TASK_LINKED, memory_order_relaxed);
        return false;
    }
    task->run = run;
    run->tail = task;
    run->tasks++;
    run->cost_ns += task->cost_ns;
    run->total_ns += task->cost_ns;
    return true;
}

/* The earliest task that waits for `tail` in one of its queues and may be appended. */
static dt_task *follower(dt_task *tail, bool others_wait) {
    dt_task *best = NULL;
    for (int k = 0; k < tail->accesses_count; k++) {
        dt_graph_access *a = tail->accesses[k].next;
        for (int step = 0; a != NULL && step < DT__RUN_LOOK_MAX; step++, a = a->next) {
            bool earlier = best == NULL || a->task->seq < best->seq;
            if (!a->granted && earlier && may_append(tail, a->task, others_wait)) best = a->task;
            if (a->write) break; /* what stands behind waits for this one */
        }
    }
    return best;
}

int dt__run_extend(dt_task *tail, bool others_wait) {
    int count = 0;
    for (;;) {
        dt_task *task = follower(tail, others_wait);
        if (task == NULL || !dt__run_append(tail, task, others_wait)) return count;
        tail = task;
        count++;
    }
}

bool dt__run_join(dt_task *task, bool others_wait) {
    for (int k = 0; k < task->accesses_count; k++) {
        dt_graph_access *a = &task->accesses[k];
        if (a->granted) continue;
        dt_task *tail = a->prev->task;
        if (task_state(tail) < DT_TASK_HANDED) return false; /* what it waits for waits itself */
        if (dt__run_append(tail, task, others_wait)) return true;
    }
    return false;
}

dt_task *dt__run_leave(dt_task *task) {
    dt_run *run = task->run;
    if (run == NULL) return NULL;
    task->run = NULL;
    run->cost_ns -= task->cost_ns;
    if (--run->tasks == 0) {
        DT_ASSERT(run->tail == task);
        dt_free(run, sizeof *run);
        return NULL;
    }
    DT_ASSERT(run->tail != task);
    return run->tail;
}
