/* controller.c: the one thread that owns the graph and decides what runs.
 *
 * Each round goes through the same phases:
 *
 *   wait        until woken, a piece of I/O ends or a timer is due; the gate says who must wake us
 *   take        completions first, then submissions
 *   link        submissions, in program order: into the graph, perhaps to the end of a run
 *   finish I/O  the pieces that ended
 *   retire      what ended: dependents become ready, runs go on, memory is released
 *   timers      those that are due
 *   dispatch    fences, timers and I/O at once; compute tasks in program order, as long as workers
 *               want some, each with the run that can follow it
 *
 * I1: completions are taken before submissions. A direct task is submitted before it is computed,
 *     so when its end is taken it is among the submissions that have been taken, if not linked yet.
 * I2: a task is retired once, after its end; only retiring frees tasks.
 * I3: callbacks of clients (on_end) see no state of the controller and run from end_here alone.
 * I4: a fence with after_all has ended when, and only when, every task submitted before it has been
 *     retired.  A task counts for the first such fence behind it alone, since they end in order.
 * I5: the controller never sleeps while it could hand something over: what it keeps back is more
 *     than the workers' queue holds, and workers notify before that runs dry.
 */
#include "scheduler/controller.h"

#include <string.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "scheduler/futex.h"
#include "scheduler/graph.h"
#include "scheduler/run.h"
#include "scheduler/task.h"

#define QUEUED_COST_NS 200000.0 /* work for each worker in the pool's queue */
#define QUEUED_RUNS_MAX 4096    /* and at most so many runs altogether */
#define LINK_MAX 256            /* submissions linked in one round, lest a burst delay all else */

static inline int64_t now(dt_sched *s) {
    dt_clock *clock = &s->controller.clock;
    return clock->now_ns(clock->context);
}

static inline int task_state(const dt_task *task) {
    return atomic_load_explicit(&task->state, memory_order_relaxed);
}

static inline void set_state(dt_task *task, dt_task_state state) {
    atomic_store_explicit(&task->state, (uint8_t)state, memory_order_relaxed);
}

static inline void count(_Atomic(int64_t) *counter, int64_t n) {
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static bool others_wait(dt_sched *s) {
    return s->controller.ready.count > 0 || dt__pool_queued(s->pool) > 0;
}

static void push_now(dt_controller *c, dt_task *task) {
    task->next = NULL;
    if (c->now_last != NULL) {
        c->now_last->next = task;
    } else {
        c->now_first = task;
    }
    c->now_last = task;
}

/* ---- fences after all ------------------------------------------------------------------------ */

static void start_fences(dt_controller *c) {
    while (c->fences_first != NULL && c->fences_first->open == 0) {
        dt_task *fence = c->fences_first;
        c->fences_first = fence->next;
        if (c->fences_first == NULL) c->fences_last = NULL;
        push_now(c, fence);
    }
}

static void link_fence(dt_controller *c, dt_task *fence) {
    fence->open = c->open;
    c->open = 0;
    fence->next = NULL;
    if (c->fences_last != NULL) {
        c->fences_last->next = fence;
    } else {
        c->fences_first = fence;
    }
    c->fences_last = fence;
    start_fences(c);
}

/* ---- retire --------------------------------------------------------------------------------- */

/* Of dt__graph_unlink: the last blocker of a task is gone. */
static void on_ready(void *context, dt_task *task) {
    dt_sched *s = context;
    if (task_state(task) != DT_TASK_LINKED) return; /* in a run, or direct */
    if (task->kind == DT_TASK_COMPUTE) {
        dt__ready_push(&s->controller.ready, task);
    } else {
        push_now(&s->controller, task);
    }
}

static void release_room(dt_sched *s) {
    atomic_fetch_sub_explicit(&s->in_flight, 1, memory_order_seq_cst);
    if (DT_LIKELY(atomic_load_explicit(&s->room_waiters, memory_order_seq_cst) == 0)) return;
    pthread_mutex_lock(&s->room_lock);
    pthread_cond_broadcast(&s->room);
    pthread_mutex_unlock(&s->room_lock);
}

/* One task fewer before the fences: starts those with nothing left before them. */
static void count_retired(dt_controller *c, const dt_task *task) {
    if (task->after_all) return;
    if (c->fences_first == NULL || task->seq > c->fences_last->seq) {
        c->open--;
        DT_ASSERT(c->open >= 0);
        return;
    }
    dt_task *fence = c->fences_first; /* nearly always the one: old tasks end first */
    while (fence->seq < task->seq) fence = fence->next;
    fence->open--;
    DT_ASSERT(fence->open >= 0);
    start_fences(c);
}

static void retire(dt_sched *s, dt_task *task) {
    count(&s->stat_ended, 1);
    count_retired(&s->controller, task);
    if (task->error != NULL) count(&s->stat_failed, 1);
    if (task->waited_for)
        atomic_fetch_sub_explicit(dt__pool_waited_for(s->pool), 1, memory_order_relaxed);
    dt_task *tail = dt__run_leave(task);
    dt__graph_unlink(task, on_ready, s);
    if (tail != NULL)
        count(&s->stat_chained, dt__run_extend(tail, others_wait(s), dt__pool_waited_for(s->pool)));
    dt__task_destroy(task);
    release_room(s);
}

/* Ends a task that no worker had. */
static void end_here(dt_sched *s, dt_task *task) {
    set_state(task, DT_TASK_ENDED);
    dt__task_end(task, now(s));
    retire(s, task);
}

static void fail_here(dt_sched *s, dt_task *task, dt_status status) {
    dt__task_fail(task, status);
    end_here(s, task);
}

static void shut_down_here(dt_sched *s, dt_task *task) {
    fail_here(s, task, dt_fail(DT_E_SHUTDOWN, "the dtorch runtime has been shut down"));
}

static void on_io_ended(void *context, dt_task *task) { end_here(context, task); }

/* ---- link ----------------------------------------------------------------------------------- */

static void link_task(dt_sched *s, dt_task *task) {
    if (!task->direct) set_state(task, DT_TASK_LINKED);
    task->linked = true;
    if (!task->after_all) s->controller.open++;
    dt_status status = dt__graph_link(task, s->owner);
    if (task->direct) {
        DT_ASSERT(status == DT_OK);
        return;
    }
    if (status != DT_OK) {
        fail_here(s, task, status);
    } else if (task->blockers > 0) {
        if (dt__run_join(task, others_wait(s), dt__pool_waited_for(s->pool)))
            count(&s->stat_chained, 1);
    } else if (task->after_all) {
        link_fence(&s->controller, task);
    } else if (task->kind == DT_TASK_COMPUTE) {
        dt__ready_push_last(&s->controller.ready, task);
    } else {
        push_now(&s->controller, task);
    }
}

static void link_next(dt_sched *s) {
    dt_controller *c = &s->controller;
    dt_mpsc_node *node = c->taken_first;
    DT_ASSERT(node != NULL);
    c->taken_first = node->next;
    if (c->taken_first == NULL) c->taken_last = NULL;
    link_task(s, DT_MPSC_OWNER(node, dt_task, submit_node));
}

static void take_submissions(dt_sched *s) {
    dt_controller *c = &s->controller;
    dt_mpsc_node *node = dt_mpsc_take(&s->submitted);
    if (node == NULL) return;
    if (c->taken_last != NULL) {
        c->taken_last->next = node;
    } else {
        c->taken_first = node;
    }
    while (node->next != NULL) node = node->next;
    c->taken_last = node;
}

/* ---- timers --------------------------------------------------------------------------------- */

static void run_timers(dt_sched *s) {
    dt_controller *c = &s->controller;
    if (c->timers == NULL) return;
    uint64_t now_ns = (uint64_t)now(s);
    while (c->timers != NULL && (c->stopping || c->timers->heap_key <= now_ns)) {
        dt_task *task = dt__heap_pop(&c->timers);
        if (c->stopping) {
            shut_down_here(s, task);
        } else {
            end_here(s, task);
        }
    }
}

static void start_timer(dt_sched *s, dt_task *task) {
    int64_t delay_ns = task->io.delay_ns > 0 ? task->io.delay_ns : 0;
    int64_t deadline_ns;
    if (__builtin_add_overflow(task->time_submit_ns, delay_ns, &deadline_ns))
        deadline_ns = INT64_MAX;
    dt__heap_push(&s->controller.timers, task, (uint64_t)deadline_ns);
}

/* ---- dispatch ------------------------------------------------------------------------------- */

static void start_other(dt_sched *s, dt_task *task) {
    dt_error *failure = dt_call_operand_failure(&task->call);
    if (failure != NULL) {
        task->error = dt_error_retain(failure);
        end_here(s, task);
    } else if (s->controller.stopping) {
        shut_down_here(s, task);
    } else if (task->kind == DT_TASK_FENCE) {
        end_here(s, task);
    } else if (task->kind == DT_TASK_TIMER) {
        start_timer(s, task);
    } else {
        task->time_start_ns = now(s);
        dt__io_submit(s->io, task, on_io_ended, s);
    }
}

static bool pool_wants_more(dt_sched *s) {
    const dt_controller *c = &s->controller;
    int threads = dt__pool_threads(s->pool);
    int runs = dt__pool_queued(s->pool) + c->batch_count;
    if (runs < 2 * threads) return true;
    double cost_ns = dt__pool_queued_cost_ns(s->pool) + c->batch_cost_ns;
    return runs < QUEUED_RUNS_MAX && cost_ns < QUEUED_COST_NS * threads;
}

/* Adds a ready task, and what can follow it, to the batch. */
static void hand_over(dt_sched *s, dt_task *task) {
    dt_controller *c = &s->controller;
    if (c->stopping) {
        shut_down_here(s, task);
        return;
    }
    dt_status status = dt__run_materialize_inputs(task);
    if (status != DT_OK) {
        fail_here(s, task, status);
        return;
    }
    set_state(task, DT_TASK_HANDED);
    count(&s->stat_chained, dt__run_extend(task, others_wait(s), dt__pool_waited_for(s->pool)));
    task->next = NULL;
    if (c->batch_last != NULL) {
        c->batch_last->next = task;
    } else {
        c->batch_first = task;
    }
    c->batch_last = task;
    c->batch_count++;
    c->batch_cost_ns += task->cost_ns;
}

static void push_batch(dt_sched *s) {
    dt_controller *c = &s->controller;
    if (c->batch_count == 0) return;
    dt__pool_push(s->pool, c->batch_first, c->batch_count);
    c->batch_first = c->batch_last = NULL;
    c->batch_count = 0;
    c->batch_cost_ns = 0;
}

static void dispatch(dt_sched *s) {
    dt_controller *c = &s->controller;
    for (;;) {
        dt_task *task = c->now_first;
        if (task != NULL) {
            c->now_first = task->next;
            if (c->now_first == NULL) c->now_last = NULL;
            start_other(s, task);
        } else if (c->ready.count > 0 && (c->stopping || pool_wants_more(s))) {
            hand_over(s, dt__ready_pop(&c->ready));
        } else {
            break;
        }
    }
    push_batch(s);
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void notice_stop(dt_sched *s) {
    dt_controller *c = &s->controller;
    if (c->stopping || !atomic_load_explicit(&s->stop, memory_order_acquire)) return;
    c->stopping = true;
    dt__io_shut_down(s->io, on_io_ended, s);
}

static void wait_for_work(dt_sched *s) {
    dt_controller *c = &s->controller;
    int64_t deadline_ns = -1;
    if (c->timers != NULL)
        deadline_ns = c->timers->heap_key == 0 ? 1 : (int64_t)c->timers->heap_key;
    dt_gate_close(&s->gate);
    bool unseen_stop = !c->stopping && atomic_load_explicit(&s->stop, memory_order_seq_cst);
    if (c->taken_first != NULL || !dt_mpsc_is_empty(&s->submitted) ||
        !dt_mpsc_is_empty(&s->ended) || unseen_stop) {
        deadline_ns = 0;
    } else {
        count(&s->stat_wakeups, 1);
    }
    dt__io_wait(s->io, deadline_ns);
    dt_gate_open(&s->gate);
}

static void do_round(dt_sched *s) {
    dt_mpsc_node *ended = dt_mpsc_take(&s->ended);
    take_submissions(s);
    for (int k = 0; k < LINK_MAX && s->controller.taken_first != NULL; k++) link_next(s);
    notice_stop(s);
    dt__io_finish(s->io, on_io_ended, s);
    while (ended != NULL) {
        dt_task *task = DT_MPSC_OWNER(ended, dt_task, end_node);
        ended = ended->next;
        while (!task->linked) link_next(s); /* a direct one, I1 */
        retire(s, task);
    }
    run_timers(s);
    dispatch(s);
}

static void publish_io_stats(dt_sched *s) {
    atomic_store_explicit(&s->stat_reads, s->io->reads, memory_order_relaxed);
    atomic_store_explicit(&s->stat_writes, s->io->writes, memory_order_relaxed);
    atomic_store_explicit(&s->stat_bytes, s->io->bytes, memory_order_relaxed);
}

static bool is_over(dt_sched *s) {
    return s->controller.stopping && atomic_load_explicit(&s->in_flight, memory_order_acquire) == 0;
}

void *dt__controller_main(void *argument) {
    dt_sched *s = argument;
    dt_status status = dt__io_open(s->io_wanted, &s->io);
    if (status != DT_OK) s->start_error = dt_error_capture(status);
    sem_post(&s->started);
    if (status != DT_OK) return NULL;
    while (!is_over(s)) {
        wait_for_work(s);
        do_round(s);
        publish_io_stats(s);
    }
    return NULL;
}
