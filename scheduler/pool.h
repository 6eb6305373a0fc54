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
    /* The same, of a worker that has nothing else to do: it may look itself. NULL: notify. */
    void (*idle)(void *context);
    /* Names the last of the things that have come but that the owner was not woken for, since a
     * worker was awake (dt__pool_watches); NULL: there is none. The owner is told once nothing
     * else has come for DT__POOL_UNHEARD_NS, or no worker is awake any more. */
    const void *(*unheard)(void *context);
} dt_pool_events;

#define DT__POOL_NOTIFY_NS 60000
#define DT__POOL_UNHEARD_NS 20000

dt_status dt__pool_start(int threads, const dt_pool_events *events, dt_pool **out) DT_MUST_CHECK;
/* Joins the workers. Nothing is queued or running any more. */
void dt__pool_stop(dt_pool *pool);

/* Hands over runs, a list through task->next with `count` entries, in order. The tasks' state is
 * DT_TASK_HANDED. `stays`: the caller does not go to sleep soon. Any thread. */
void dt__pool_push(dt_pool *pool, dt_task *first, int count, bool stays);
/* The same, by a client that goes on to help: nobody is woken for a first run that it may take. */
void dt__pool_push_and_help(dt_pool *pool, dt_task *first, int count);

/* From now on tasks that have not begun end with DT_E_SHUTDOWN. Any thread. */
void dt__pool_shut_down(dt_pool *pool);

dt_status dt__pool_set_threads(dt_pool *pool, int threads) DT_MUST_CHECK;
int dt__pool_threads(const dt_pool *pool);

/* A client thread that is about to sleep until done(context) works meanwhile: it stands in for an
 * idle worker, so that there are never more at work than `threads`, computes what is queued as long
 * as that is short, and helps with split tasks.  Comes back when done, when there is nothing to do
 * for patience_ns, or when no worker is idle.  Between dt__pool_helper_enter (while it is certain
 * that the pool is there) and _leave the pool is not freed. True: the owner should look at what has
 * ended, for `notify` is not called. */
void dt__pool_helper_enter(dt_pool *pool);
void dt__pool_helper_leave(dt_pool *pool);
bool dt__pool_help(dt_pool *pool, int64_t patience_ns, bool (*done)(void *context), void *context);

/* Hints, without the lock. */
bool dt__pool_has_idle(const dt_pool *pool);
/* Whether a worker waits awake and looks for what is unheard. Certain for the thread that has just
 * brought something: a worker that it does not see here sees that. */
bool dt__pool_watches(const dt_pool *pool);
/* The count of run.h. */
_Atomic(int32_t) *dt__pool_waited_for(dt_pool *pool);
int dt__pool_queued(const dt_pool *pool); /* runs not begun */
double dt__pool_queued_cost_ns(const dt_pool *pool);
int64_t dt__pool_wakeups(const dt_pool *pool);
int64_t dt__pool_runs(const dt_pool *pool);

#endif
