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

/* The next access behind `a`, from `from` on, that waits for it; NULL: none that is near. */
static const dt_graph_access *next_waiting(const dt_graph_access *a, const dt_graph_access *from) {
    const dt_graph_access *n = from->next;
    if (from != a && from->write) return NULL; /* what stands behind waits for that one */
    for (int step = 0; n != NULL && step < DT__RUN_LOOK_MAX; step++, n = n->next)
        if (!n->granted && (a->write || n->write)) return n;
    return NULL;
}

/* The earliest task that waits for `tail` and may be appended. */
static dt_task *follower(dt_task *tail, bool others_wait) {
    dt_task *best = NULL;
    for (int k = 0; k < tail->accesses_count; k++) {
        const dt_graph_access *a = &tail->accesses[k];
        int looks = 0;
        for (const dt_graph_access *n = a; (n = next_waiting(a, n)) != NULL;) {
            if (++looks > DT__RUN_LOOK_MAX) break;
            bool earlier = best == NULL || n->task->seq < best->seq;
            if (earlier && may_append(tail, n->task, others_wait)) best = n->task;
        }
    }
    return best;
}

static void mark_waited_for(dt_task *task, _Atomic(int32_t) *waited_for) {
    if (task->waited_for) return;
    task->waited_for = true;
    atomic_fetch_add_explicit(waited_for, 1, memory_order_seq_cst);
}

/* `next` follows `task` in its run: do others wait for it too? */
static void note_others(dt_task *task, const dt_task *next, _Atomic(int32_t) *waited_for) {
    for (int k = 0; k < task->accesses_count; k++) {
        const dt_graph_access *a = &task->accesses[k];
        const dt_graph_access *n = next_waiting(a, a);
        if (n != NULL && n->task == next) n = next_waiting(a, n);
        if (n == NULL || task_state(n->task) != DT_TASK_LINKED) continue;
        mark_waited_for(task, waited_for);
        return;
    }
}

int dt__run_extend(dt_task *tail, bool others_wait, _Atomic(int32_t) *waited_for) {
    int count = 0;
    for (;;) {
        dt_task *task = follower(tail, others_wait);
        if (task == NULL || !dt__run_append(tail, task, others_wait)) return count;
        note_others(tail, task, waited_for);
        tail = task;
        count++;
    }
}

/* The nearest access that `a`, not granted, waits for; NULL: too far away. */
static dt_graph_access *nearest_blocker(const dt_graph_access *a) {
    dt_graph_access *p = a->prev;
    for (int step = 0; step < DT__RUN_LOOK_MAX; step++, p = p->prev) {
        if (a->write || p->write) return p;
        if (p == a->storage->graph_queue) break;
    }
    return NULL;
}

bool dt__run_join(dt_task *task, bool others_wait, _Atomic(int32_t) *waited_for) {
    for (int k = 0; k < task->accesses_count; k++) {
        dt_graph_access *a = &task->accesses[k];
        const dt_graph_access *blocker = a->granted ? NULL : nearest_blocker(a);
        if (blocker == NULL) continue;
        if (task_state(blocker->task) < DT_TASK_HANDED) return false; /* which waits itself */
        if (!dt__run_append(blocker->task, task, others_wait)) continue;
        note_others(blocker->task, task, waited_for);
        return true;
    }
    for (int k = 0; k < task->accesses_count; k++) {
        dt_graph_access *a = &task->accesses[k];
        const dt_graph_access *blocker = a->granted ? NULL : nearest_blocker(a);
        if (blocker == NULL || blocker->task->run == NULL) continue;
        if (blocker->task->run->tail != blocker->task) mark_waited_for(blocker->task, waited_for);
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
