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
 * I2: the unretired tasks of a run that follow the first cost at most DT__RUN_COST_NS_MAX together;
 *     while other tasks wait for a worker that holds for the run as a whole, so that one chain does
 *     not keep a worker for ever.
 */
#ifndef DT_SCHEDULER_RUN_H
#define DT_SCHEDULER_RUN_H

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
} dt_run;

/* Appends `task` (linked, not ready) behind `tail` if the rules above allow it and tail has not
 * ended. Then the task is handed over. */
bool dt__run_append(dt_task *tail, dt_task *task, bool others_wait);

/* Appends what can follow `tail`, as far as it goes. Returns how many. */
int dt__run_extend(dt_task *tail, bool others_wait, _Atomic(int32_t) *waited_for);

/* A task that has just been linked and must wait: appends it to the run of a task that it waits
 * for. */
bool dt__run_join(dt_task *task, bool others_wait, _Atomic(int32_t) *waited_for);

/* `task` (ended) leaves its run; call it before dt__graph_unlink. Returns the tail of what is left
 * of the run, or NULL. */
dt_task *dt__run_leave(dt_task *task);

/* Takes the memory of inputs that nobody ever wrote (an empty tensor that is read), for accesses
 * that are granted: the controller is the one thread that does so. */
dt_status dt__run_materialize_inputs(dt_task *task) DT_MUST_CHECK;

/* Worker: no task can be appended to `task` any more; returns the one that was. */
static inline dt_task *dt__run_close(dt_task *task) {
    return atomic_exchange_explicit(&task->run_next, DT__RUN_CLOSED, memory_order_acq_rel);
}

#endif
