/* trace_task.h: what the scheduler tells traces and statistics, one line at each place.
 *
 *   dt__trace_ended              the thread that ended a task, before anybody else hears of the end
 *   dt__trace_share_begin        a worker begins to compute parts of a task that others help with
 * ... dt__trace_share_end          ... and has done its share dt__trace_round_begin/_end   the
 * controller, around a round of its loop
 *
 * I1: dt__trace_ended is called while the task's operands are held and its times are set.
 * I2: a share is begun while the task cannot end, and ended with what was noted then: the task may
 *     be gone.
 */
#ifndef DT_SCHEDULER_TRACE_TASK_H
#define DT_SCHEDULER_TRACE_TASK_H

#include "runtime/assert.h"
#include "runtime/stats.h"
#include "runtime/trace.h"
#include "scheduler/sched.h"

/* What a task is called in a trace: a static string, or NULL for the name of its op. */
const char *dt_task_label(const dt_task *task);

int64_t dt_call_bytes(const dt_call *call); /* of all operands */

void dt__trace_task(const dt_task *task); /* when tracing is on */

static inline void dt__trace_ended(const dt_task *task) {
    if (task->kind == DT_TASK_COMPUTE && task->time_start_ns != 0 && !task->dropped)
        dt_stats_add_task(task->time_start_ns - task->time_submit_ns,
                          task->time_end_ns - task->time_start_ns);
    if (DT_UNLIKELY(dt_trace_is_on())) dt__trace_task(task);
}

/* A share in the making; start_ns 0: not traced. */
typedef struct dt_trace_share {
    dt_trace_record record;
} dt_trace_share;

void dt__trace_share_note(dt_trace_share *share, const dt_task *task, int64_t start_ns);
void dt__trace_share_append(dt_trace_share *share, int parts);

/* start_ns: 0 for now. The worker that opened the task gives the task's own start. */
static inline void dt__trace_share_begin(dt_trace_share *share, const dt_task *task,
                                         int64_t start_ns) {
    share->record.start_ns = 0;
    if (DT_UNLIKELY(dt_trace_is_on())) dt__trace_share_note(share, task, start_ns);
}

static inline void dt__trace_share_end(dt_trace_share *share, int parts) {
    if (DT_UNLIKELY(share->record.start_ns != 0)) dt__trace_share_append(share, parts);
}

/* As of the beginning of a round; start_ns 0: not traced. */
typedef struct dt_trace_round {
    int64_t start_ns;
    int64_t linked, ended, runs; /* ever */
} dt_trace_round;

static inline void dt__trace_round_begin(dt_trace_round *round, int64_t linked, int64_t ended,
                                         int64_t runs) {
    *round = (dt_trace_round){.linked = linked, .ended = ended, .runs = runs};
    if (DT_UNLIKELY(dt_trace_is_on())) round->start_ns = dt_trace_now_ns();
}

void dt__trace_round_append(const dt_trace_round *round, int64_t linked, int64_t ended,
                            int64_t runs);

static inline void dt__trace_round_end(const dt_trace_round *round, int64_t linked, int64_t ended,
                                       int64_t runs) {
    if (DT_UNLIKELY(round->start_ns != 0)) dt__trace_round_append(round, linked, ended, runs);
}

#endif
