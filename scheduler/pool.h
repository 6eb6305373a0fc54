/* pool.h: the workers. See pool.c. */
#ifndef DT_SCHEDULER_POOL_H
#define DT_SCHEDULER_POOL_H

#include "scheduler/mpsc.h"
#include "scheduler/sched.h"

typedef struct dt_pool dt_pool;

/* What the pool tells its owner. */
typedef struct dt_pool_events {
    void *context;
    /* Any worker: a task has ended (dt__task_end has been called) and belongs to the owner again.
     * Must not block nor wake anyone. */
    void (*ended)(void *context, dt_task *task);
    /* Any worker: look at what has ended. Called when a worker finds no more work, and now and then
     * while it has some: after DT__POOL_NOTIFY_NS, by the clock or by the tasks' estimates, or when
     * an idle worker could go on with what waits for a task (dt__pool_waited_for). */
    void (*notify)(void *context);
} dt_pool_events;

#define DT__POOL_NOTIFY_NS 60000

dt_status dt__pool_start(int threads, const dt_pool_events *events, dt_pool **out) DT_MUST_CHECK;
/* Joins the workers. Nothing is queued or running any more. */
void dt__pool_stop(dt_pool *pool);

/* Hands over runs, a list through task->next with `count` entries, in order. The tasks' state is
 * DT_TASK_HANDED. Any thread. */
void dt__pool_push(dt_pool *pool, dt_task *first, int count);

/* From now on tasks that have not begun end with DT_E_SHUTDOWN. Any thread. */
void dt__pool_shut_down(dt_pool *pool);

dt_status dt__pool_set_threads(dt_pool *pool, int threads) DT_MUST_CHECK;
int dt__pool_threads(const dt_pool *pool);

/* Hints, without the lock. */
bool dt__pool_has_idle(const dt_pool *pool);
/* The count of run.h. */
_Atomic(int32_t) *dt__pool_waited_for(dt_pool *pool);
int dt__pool_queued(const dt_pool *pool); /* runs not begun */
double dt__pool_queued_cost_ns(const dt_pool *pool);
int64_t dt__pool_wakeups(const dt_pool *pool);
int64_t dt__pool_runs(const dt_pool *pool);

#endif
