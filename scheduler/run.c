/* run.c: the decisions on runs. See run.h.
 *
 * Pure functions of the graph: no clock, no thread; the one interaction with a worker is the
 * compare-and-swap on run_next.
 */
#include "scheduler/run.h"

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "runtime/device.h"
#include "scheduler/plant.h"
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
    run->pass[run->pass_end++] = task;
    task->run = run;
    task->run_cost_ns = task->cost_ns;
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

/* Whether the task may be computed together with the tasks at the end of tail's run. */
static bool may_fuse(const dt_task *tail, const dt_task *task) {
    if (!tail->fusible || !task->fusible || task->priority != tail->priority) return false;
    const dt_fuse_ops *fuse = dt_device_cpu()->fuse;
    if (fuse->ends(&tail->call)) return false;
    const dt_run *run = tail->run;
    if (run == NULL) return fuse->joins(&tail->call, &task->call);
    if (run->pass_end == DT_FUSE_MAX) return false;
    for (int k = DT_PLANT(8) ? run->pass_end - 1 : run->pass_from; k < run->pass_end; k++)
        if (!fuse->joins(&run->pass[k]->call, &task->call)) return false;
    return true;
}

static bool fits(const dt_task *tail, const dt_task *task, bool others_wait) {
    const dt_run *run = tail->run;
    bool alone = run == NULL || run->tasks == 1;
    double ahead = run != NULL ? run->cost_ns : tail->cost_ns;
    double total = run != NULL ? run->total_ns : tail->cost_ns;
    if (task->cost_ns + (alone ? 0 : ahead) > DT__RUN_COST_NS_MAX) return false;
    return !others_wait || task->cost_ns + total <= DT__RUN_COST_NS_MAX;
}

static bool can_follow(const dt_task *tail, const dt_task *task) {
    const dt_run *run = tail->run;
    if (task->kind != DT_TASK_COMPUTE && task->kind != DT_TASK_FENCE) return false;
    if (tail->kind != DT_TASK_COMPUTE && tail->kind != DT_TASK_FENCE) return false;
    if (task_state(task) != DT_TASK_LINKED || task->parked || task->dropped) return false;
    if (run != NULL && (run->tail != tail || run->closed)) return false;
    for (int k = 0; k < task->accesses_count; k++) {
        const dt_graph_access *a = &task->accesses[k];
        if (!a->granted && !waits_only_for_run(a, run, tail)) return false;
    }
    return true;
}

/* Whether the task may be appended; *fuses: it may be computed together with those before it. */
static bool may_append(const dt_task *tail, const dt_task *task, const dt_run_context *context,
                       bool *fuses) {
    if (!can_follow(tail, task)) return false;
    *fuses = context->fuses && may_fuse(tail, task);
    return *fuses || (task->blockers > 0 && fits(tail, task, context->others_wait));
}

/* Whether a task that stands before the read `a` writes the bytes; a fence does not. */
static bool will_be_written(const dt_graph_access *a) {
    const dt_graph_access *first = a->storage->graph_queue;
    while (a != first) {
        a = a->prev;
        if (a->write && a->task->kind != DT_TASK_FENCE) return true;
    }
    return false;
}

dt_status dt__run_materialize_inputs(dt_task *task) {
    for (int k = 0; k < task->accesses_count; k++) {
        dt_graph_access *a = &task->accesses[k];
        if (a->write || (!a->granted && will_be_written(a))) continue;
        DT_TRY(dt__task_materialize_input(a->storage));
    }
    return DT_OK;
}

static void add_to_pass(dt_run *run, dt_task *task) {
    if (!task->fuses) run->pass_from = run->pass_end = 0; /* it begins a new one */
    run->pass[run->pass_end++] = task;
}

bool dt__run_append(dt_task *tail, dt_task *task, const dt_run_context *context) {
    bool fuses;
    if (!may_append(tail, task, context, &fuses)) return false;
    if (dt__run_materialize_inputs(task) != DT_OK) return false; /* fails when it is ready */
    dt_run *run = run_of(tail);
    if (run == NULL) return false;
    task->fuses = fuses;
    atomic_store_explicit(&task->state, DT_TASK_HANDED, memory_order_relaxed);
    dt_task *none = NULL;
    if (!atomic_compare_exchange_strong_explicit(&tail->run_next, &none, task, memory_order_release,
                                                 memory_order_relaxed) &&
        !DT_PLANT(9)) {
        atomic_store_explicit(&task->state, DT_TASK_LINKED, memory_order_relaxed);
        task->fuses = false;
        return false;
    }
    if (task->place != DT_PLACE_NONE) context->taken(context->owner, task);
    task->run = run;
    task->run_cost_ns = fuses ? dt_device_cpu()->fuse->cost_ns(&task->call) : task->cost_ns;
    run->tail = task;
    run->tasks++;
    run->cost_ns += task->run_cost_ns;
    run->total_ns += task->run_cost_ns;
    add_to_pass(run, task);
    return true;
}

bool dt__run_take_back(dt_task *task) {
    uint8_t handed = DT_TASK_HANDED;
    if (!atomic_compare_exchange_strong_explicit(&task->state, &handed, DT_TASK_TAKEN_BACK,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return false;
    if (task->run != NULL) task->run->closed = true;
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
static dt_task *follower(dt_task *tail, const dt_run_context *context) {
    dt_task *best = NULL;
    bool fuses;
    for (int k = 0; k < tail->accesses_count; k++) {
        const dt_graph_access *a = &tail->accesses[k];
        int looks = 0;
        for (const dt_graph_access *n = a; (n = next_waiting(a, n)) != NULL;) {
            if (++looks > DT__RUN_LOOK_MAX) break;
            bool earlier = best == NULL || n->task->seq < best->seq;
            if (earlier && may_append(tail, n->task, context, &fuses)) best = n->task;
        }
    }
    return best;
}

/* The earliest task, ready or not, that uses what `member` uses and may join the pass at tail. */
static dt_task *sibling_of(const dt_task *member, dt_task *tail, const dt_run_context *context) {
    dt_task *best = NULL;
    bool fuses;
    for (int k = 0; k < member->accesses_count; k++) {
        const dt_graph_access *n = member->accesses[k].next;
        for (int step = 0; n != NULL && step < DT__RUN_LOOK_MAX; step++, n = n->next) {
            dt_task *task = n->task;
            if (!task->fusible || (best != NULL && task->seq > best->seq)) continue;
            if (may_append(tail, task, context, &fuses) && fuses) best = task;
        }
    }
    return best;
}

static dt_task *sibling(dt_task *tail, const dt_run_context *context) {
    if (!context->fuses || !context->siblings || !tail->fusible) return NULL;
    const dt_run *run = tail->run;
    if (run == NULL) return sibling_of(tail, tail, context);
    for (int k = run->pass_from; k < run->pass_end; k++) {
        dt_task *found = sibling_of(run->pass[k], tail, context);
        if (found != NULL) return found;
    }
    return NULL;
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

int dt__run_extend(dt_task *tail, const dt_run_context *context) {
    int count = 0;
    for (;;) {
        dt_task *task = follower(tail, context);
        if (task == NULL) task = sibling(tail, context);
        if (task == NULL || !dt__run_append(tail, task, context)) return count;
        note_others(tail, task, context->waited_for);
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

bool dt__run_join(dt_task *task, const dt_run_context *context) {
    for (int k = 0; k < task->accesses_count; k++) {
        dt_graph_access *a = &task->accesses[k];
        const dt_graph_access *blocker = a->granted ? NULL : nearest_blocker(a);
        if (blocker == NULL) continue;
        if (task_state(blocker->task) < DT_TASK_HANDED) return false; /* which waits itself */
        if (!dt__run_append(blocker->task, task, context)) continue;
        note_others(blocker->task, task, context->waited_for);
        return true;
    }
    for (int k = 0; k < task->accesses_count; k++) {
        dt_graph_access *a = &task->accesses[k];
        const dt_graph_access *blocker = a->granted ? NULL : nearest_blocker(a);
        if (blocker == NULL || blocker->task->run == NULL) continue;
        if (blocker->task->run->tail != blocker->task)
            mark_waited_for(blocker->task, context->waited_for);
    }
    return false;
}

dt_task *dt__run_leave(dt_task *task) {
    dt_run *run = task->run;
    if (run == NULL) return NULL;
    task->run = NULL;
    run->cost_ns -= task->run_cost_ns;
    if (run->pass_from < run->pass_end && run->pass[run->pass_from] == task) run->pass_from++;
    if (--run->tasks == 0) {
        DT_ASSERT(run->tail == task);
        dt_free(run, sizeof *run);
        return NULL;
    }
    DT_ASSERT(run->tail != task);
    return run->tail;
}
