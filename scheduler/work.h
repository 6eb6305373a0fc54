/* work.h: what a worker does with the tasks of a run, apart from threads: claim, prepare, compute,
 * end. The pool and the simulator share it.
 *
 *   claim --> nothing to compute (failed inputs, a fence, dropped) ---------------> end
 *     |  '--> in parts, perhaps by several workers: part, part, ..., finish ------> end
 *     '-----> not to be computed now (taken back, or no memory) ------------------> give back
 *
 * A run is walked task by task (run.h).  Tasks that may be computed in one pass over memory with
 * the ones before them (`fuses`) are claimed together: the first is the leader, which stands for
 * all of them until they end.  It is decided here, when the work starts, which results of a pass
 * nobody can see.
 *
 * I1: a task is claimed by compare-and-swap from HANDED, so that the controller can drop it or take
 *     it back until then.
 * I2: members of a pass are neighbours in one run, and all are claimed by the worker that has it.
 * I3: whoever claimed a task ends it or gives it back, exactly once.
 */
#ifndef DT_SCHEDULER_WORK_H
#define DT_SCHEDULER_WORK_H

#include "scheduler/sched.h"

typedef enum dt_work_step {
    DT_WORK_COMPUTE, /* task->parts parts wait for dt__work_part, then dt__work_finish */
    DT_WORK_END,     /* nothing to compute */
    DT_WORK_RETURN,  /* the controller's again: report it as returned */
} dt_work_step;

/* Claims the next task of a run, and those that fuse with it. */
dt_work_step dt__work_begin(dt_task *task, int threads, bool shut_down, int64_t now_ns);
/* One part of leader's work; any worker that joined. */
void dt__work_part(dt_task *leader, int index);
/* Once, after all parts. */
void dt__work_finish(dt_task *leader);
/* Ends leader and, one after the other, the other members of its pass: outputs, counts, on_end,
 * then ended(context, task), after which that task may be gone. Returns what follows in the run. */
dt_task *dt__work_end(dt_task *leader, int64_t now_ns, void (*ended)(void *context, dt_task *task),
                      void *context);
/* Gives a task back and all that follow it in its run. `starved`: for want of memory. */
void dt__work_return(dt_task *task, bool starved, void (*ended)(void *context, dt_task *task),
                     void *context);

#endif
