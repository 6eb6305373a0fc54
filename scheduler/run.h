/* run.h: chains of tasks that a worker gets in one hop.
 *
 * A run is a list of tasks through run_next, each of which needs the one before and nothing that is
 * not in the run or retired.  The controller appends to the end of it, also while a worker is at
 * work on it: the append is one compare-and-swap on the last task's run_next, and the worker closes
 * run_next with an exchange when that task has ended.  Whoever comes first decides; if the worker
 * does, the task is made ready in the usual way once the end of the last one has been heard of.
 *
 *   T1 -> T2 -> T3 -> NULL       append T4: CAS(T3.run_next, NULL, T4)
 *   worker at T2                 ends T3:   exchange(T3.run_next, CLOSED) == T4, or NULL: run over
 *
 * Where others too wait for a task inside a run, an idle worker could start them while the run goes
 * on.  Such tasks are marked waited_for and counted in *waited_for until they are retired; while
 * the count is not zero, workers report every end at once if one of them is idle.
 *
 * I1: a struct dt_run lives from the second task of a run (or the first, while there is only one)
 *     until its last task is retired; only the controller touches it.
 * Element-wise tasks over the same elements can be computed in one pass (fuse.h).  A task that may
 * join the ones at the end of a run is marked `fuses`; the worker that comes to them takes as many
 * together as are there by then.  Such a task may be appended although it waits for nothing, when
 * it shares bytes with a member, and it costs what it adds to the pass.
 *
 * I2: the unretired tasks of a run that follow the first cost at most DT__RUN_COST_NS_MAX together;
 *     while other tasks wait for a worker that holds for the run as a whole, so that one chain does
 *     not keep a worker for ever.  Tasks that fuse are bounded by DT_FUSE_MAX instead.
 * I3: the tasks of a pass are neighbours in the run, each joins() all the others before it, and
 * none of them ends a pass but the last.
 */
#ifndef DT_SCHEDULER_RUN_H
#define DT_SCHEDULER_RUN_H

#include "runtime/fuse.h"
#include "scheduler/graph.h"
#include "scheduler/sched.h"

#define DT__RUN_COST_NS_MAX 200000.0
#define DT__RUN_LOOK_MAX 8 /* accesses of one queue looked at, in either direction */
#define DT__RUN_CLOSED ((dt_task *)(uintptr_t)1)

typedef struct dt_run {
    dt_task *tail;
    int32_t tasks;   /* not retired */
    double cost_ns;  /* of those */
    double total_ns; /* of all that ever were in it */
    bool closed;     /* a task was taken back: nothing may follow */
    /* Members of the pass at the tail (I3), those not retired: pass[pass_from..pass_end). */
    uint8_t pass_from, pass_end;
    dt_task *pass[DT_FUSE_MAX];
} dt_run;

/* What the decisions depend on beside the graph. */
typedef struct dt_run_context {
    bool others_wait; /* other tasks wait for a worker */
    bool fuses;       /* tasks may be computed together ... */
    bool siblings;    /* ... also those that do not wait for one another */
    _Atomic(int32_t) *waited_for;
    /* A ready task has joined a run: it leaves the list that it is in. */
    void (*taken)(void *owner, dt_task *task);
    void *owner;
} dt_run_context;

/* Appends `task` (linked) behind `tail` if the rules above allow it and tail has not ended. Then
 * the task is handed over. */
bool dt__run_append(dt_task *tail, dt_task *task, const dt_run_context *context);

/* Appends what can follow `tail`, as far as it goes. Returns how many. */
int dt__run_extend(dt_task *tail, const dt_run_context *context);

/* A task that has just been linked and must wait: appends it to the run of a task that it waits
 * for. */
bool dt__run_join(dt_task *task, const dt_run_context *context);

/* The worker that has the run will give back `task`, which it has not begun, and all behind it.
 * False: too late. */
bool dt__run_take_back(dt_task *task);

/* `task` (ended) leaves its run; call it before dt__graph_unlink. Returns the tail of what is left
 * of the run, or NULL. */
dt_task *dt__run_leave(dt_task *task);

/* Takes the memory of inputs that nobody ever wrote (an empty tensor that is read), nor will before
 * the task: the controller is the one thread that does so. */
dt_status dt__run_materialize_inputs(dt_task *task) DT_MUST_CHECK;

/* Worker: no task can be appended to `task` any more; returns the one that was. */
static inline dt_task *dt__run_close(dt_task *task) {
    return atomic_exchange_explicit(&task->run_next, DT__RUN_CLOSED, memory_order_acq_rel);
}

#endif
