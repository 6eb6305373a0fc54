/* controller.c: the one thread that owns the graph and decides what runs.
 *
 * A client that is about to wait may do a round in its stead, all but I/O and timers, when nobody
 * is at it, and so may a worker with nothing to do: waking this thread takes longer than the round.
 * Whoever does one holds the role.
 *
 * Each round goes through the same phases:
 *
 *   wait        until woken, a piece of I/O ends or a timer is due; the gate says who must wake us
 *   take        completions first, then submissions
 *   link        submissions, in program order: into the graph, perhaps to the end of a run
 *   finish I/O  the pieces that ended
 *   retire      what ended: dependents become ready, runs go on, memory is released; what a worker
 *               gave back is put where it belongs
 *   sweep       what is parked, if who waits for what has changed (demand.c)
 *   timers      those that are due
 *   dispatch    fences, timers and I/O at once; compute tasks in program order, as long as workers
 *               want some, each with the run that can follow it
 *
 * A fusible task with much to do is not handed to an idle worker at once: others that can be
 * computed in the same pass may be a microsecond away.  It is held until somebody waits, until
 * HOLD_NS have passed without a submission, or until what is held fills a pass; meanwhile the
 * controller looks around instead of sleeping, so that neither the clients' submissions nor their
 * wait costs a system call.
 *
 * A task for which there is no memory is given back and starves until somebody frees some.  Only
 * when no task is left that could, and no client has for MERCY_NS (starve.c), is its next failure
 * final.
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

#include <sched.h>
#include <string.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "scheduler/futex.h"
#include "scheduler/graph.h"
#include "scheduler/plant.h"
#include "scheduler/run.h"
#include "scheduler/task.h"
#include "scheduler/trace_task.h"

#define QUEUED_COST_NS 200000.0 /* work for each worker in the pool's queue */
#define QUEUED_RUNS_MAX 4096    /* and at most so many runs altogether */
#define LINK_MAX 256            /* submissions linked in one round, lest a burst delay all else */
#define HOLD_NS 20000           /* without a submission */
#define HOLD_NS_MAX 500000      /* altogether */
#define ASSIST_MAX 256          /* tasks in flight up to which a client does a round */
#define LINGER_NS 60000         /* that the controller stays awake after a burst */
#define HOLD_SPINS 16           /* between two looks at the clock */

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

static void on_taken(void *owner, dt_task *task) { dt__controller_displace(owner, task); }

static dt_run_context run_context(dt_sched *s) {
    return (dt_run_context){
        .others_wait = others_wait(s),
        .fuses = atomic_load_explicit(&s->fuses, memory_order_relaxed),
        .siblings = dt_memory_limit() == 0, /* their results would all live at one time */
        .waited_for = dt__pool_waited_for(s->pool),
        .taken = on_taken,
        .owner = s,
    };
}

/* While somebody starves every task is looked at on its own (dt__starve_yields). */
static bool has_runs(const dt_sched *s) { return DT_LIKELY(s->controller.starved.first == NULL); }

static void extend(dt_sched *s, dt_task *tail) {
    if (!has_runs(s)) return;
    dt_run_context context = run_context(s);
    int n = dt__run_extend(tail, &context);
    count(&s->stat_chained, n);
    s->controller.handed += n;
}

/* ---- where ready tasks are ------------------------------------------------------------------ */

void dt__controller_place(dt_sched *s, dt_task *task) {
    dt_controller *c = &s->controller;
    if (task->parked && !c->stopping)
        dt__list_push(&c->parked, task, DT_PLACE_PARKED);
    else
        dt__ready_push(&c->ready, task);
}

void dt__controller_displace(dt_sched *s, dt_task *task) {
    dt_controller *c = &s->controller;
    switch ((dt_place)task->place) {
    case DT_PLACE_NONE:
        break;
    case DT_PLACE_READY:
    case DT_PLACE_READY_HEAP:
        dt__ready_remove(&c->ready, task);
        break;
    case DT_PLACE_HELD:
        dt__list_remove(&c->held, task);
        break;
    case DT_PLACE_PARKED:
        dt__list_remove(&c->parked, task);
        break;
    case DT_PLACE_STARVED:
        dt__starve_leave(s, task);
        break;
    }
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
    while (c->fences_first != NULL && c->fences_first->open <= DT_PLANT(15)) {
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
    if (task_state(task) != DT_TASK_LINKED || task->dropped) return; /* in a run, or direct */
    if (task->kind == DT_TASK_COMPUTE) {
        dt__controller_place(s, task);
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

static void add_to_all(dt_controller *c, dt_task *task) {
    task->younger = NULL;
    task->older = c->youngest;
    if (c->youngest != NULL) {
        c->youngest->younger = task;
    } else {
        c->oldest = task;
    }
    c->youngest = task;
}

static void remove_from_all(dt_controller *c, dt_task *task) {
    if (task->older != NULL) {
        task->older->younger = task->younger;
    } else {
        c->oldest = task->younger;
    }
    if (task->younger != NULL) {
        task->younger->older = task->older;
    } else {
        c->youngest = task->older;
    }
}

static void count_end(dt_sched *s, const dt_task *task) {
    count(&s->stat_ended, 1);
    if (task->dropped)
        count(&s->stat_dropped, 1);
    else if (task->error != NULL)
        count(&s->stat_failed, 1);
    if (task->leader_seq == 0) return;
    count(&s->stat_fused, 1);
    if (task->leader_seq == task->seq) count(&s->stat_passes, 1);
}

static void retire(dt_sched *s, dt_task *task) {
    count_end(s, task);
    count_retired(&s->controller, task);
    remove_from_all(&s->controller, task);
    if (task->waited_for)
        atomic_fetch_sub_explicit(dt__pool_waited_for(s->pool), 1, memory_order_relaxed);
    dt_task *tail = dt__run_leave(task);
    dt__graph_unlink(task, on_ready, s);
    if (tail != NULL) extend(s, tail);
    dt__task_destroy(task);
    release_room(s);
    dt__starve_feed(s);
}

/* A worker had it. */
static void retire_handed(dt_sched *s, dt_task *task) {
    s->controller.handed--;
    dt__starve_note_back(s, task);
    retire(s, task);
}

/* Ends a task that no worker has. */
static void end_here(dt_sched *s, dt_task *task) {
    set_state(task, DT_TASK_ENDED);
    if (task->kind == DT_TASK_COMPUTE) task->time_start_ns = 0; /* if it began, it was given back */
    dt__task_end(task, dt__now(s));
    retire(s, task);
}

void dt__controller_end(dt_sched *s, dt_task *task) { end_here(s, task); }

static void fail_here(dt_sched *s, dt_task *task, dt_status status) {
    dt__task_fail(task, status);
    end_here(s, task);
}

static void shut_down_here(dt_sched *s, dt_task *task) {
    fail_here(s, task, dt_fail(DT_E_SHUTDOWN, "the dtorch runtime has been shut down"));
}

static void on_io_ended(void *context, dt_task *task) { end_here(context, task); }

/* A worker has given the task back, as it was. */
static void take_back(dt_sched *s, dt_task *task) {
    dt_controller *c = &s->controller;
    bool dropped = task_state(task) == DT_TASK_DROPPED;
    c->handed--;
    dt__starve_note_back(s, task);
    task->returned = task->direct = task->fuses = false;
    /* A sweep passes over what runs, and over what that waits for. */
    if (task->parked || atomic_load_explicit(&s->parks, memory_order_relaxed) ||
        dt__demand_want(task) == DT_WANT_ABANDONED)
        c->sweep_due = true;
    (void)dt__run_leave(task);
    atomic_store_explicit(&task->run_next, NULL, memory_order_relaxed);
    set_state(task, DT_TASK_LINKED);
    if (dropped) {
        dt__task_drop(task);
        end_here(s, task);
    } else if (task->blockers > 0) {
        return; /* for what was given back before it */
    } else if (task->kind != DT_TASK_COMPUTE) {
        push_now(c, task);
    } else if (task->starved && !task->parked) {
        dt__starve(s, task);
    } else {
        dt__controller_place(s, task);
    }
}

/* ---- link ----------------------------------------------------------------------------------- */

static void link_waiting(dt_sched *s, dt_task *task) {
    if (!has_runs(s)) return;
    dt_run_context context = run_context(s);
    if (!dt__run_join(task, &context)) return;
    count(&s->stat_chained, 1);
    s->controller.handed++;
}

static void link_task(dt_sched *s, dt_task *task) {
    dt_controller *c = &s->controller;
    if (task->kind >= DT_TASK_ASK) {
        dt__demand_hear(s, task);
        return;
    }
    if (!task->direct) set_state(task, DT_TASK_LINKED);
    task->linked = true;
    if (task->time_submit_ns > c->submitted_ns) c->submitted_ns = task->time_submit_ns;
    add_to_all(c, task);
    c->linked++;
    if (!task->after_all) c->open++;
    dt_status status = dt__graph_link(task, s->owner);
    if (task->direct) {
        DT_ASSERT(status == DT_OK);
        c->handed++;
        return;
    }
    if (atomic_load_explicit(&s->parks, memory_order_relaxed) && dt__demand_want(task) == DT_WANTED)
        c->sweep_due = true; /* for what it waits for */
    if (status != DT_OK) {
        fail_here(s, task, status);
    } else if (task->blockers > 0) {
        link_waiting(s, task);
    } else if (task->after_all) {
        link_fence(c, task);
    } else if (task->kind == DT_TASK_COMPUTE) {
        dt__ready_push_last(&c->ready, task);
    } else {
        push_now(c, task);
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
    uint64_t now_ns = (uint64_t)dt__now(s) + (DT_PLANT(19) ? 5000 : 0);
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
        task->time_start_ns = dt__now(s);
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
    if (dt__starve_yields(s, task)) {
        dt__starve(s, task);
        return;
    }
    if (c->handed > 0) task->last_chance = false; /* others have come since that may free some */
    dt_status status = dt__run_materialize_inputs(task);
    if (status == DT_E_NO_MEMORY && !task->last_chance) {
        dt__starve(s, task);
        return;
    }
    if (status != DT_OK) {
        fail_here(s, task, status);
        return;
    }
    set_state(task, DT_TASK_HANDED);
    c->handed++;
    dt__starve_note_handed(s, task);
    extend(s, task);
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

/* ---- holding -------------------------------------------------------------------------------- */

/* Whether so many have been submitted since that a pass from the task on is full. */
static bool fills_a_pass(const dt_controller *c, const dt_task *task) {
    return c->youngest->seq - task->seq + 1 >= DT_FUSE_MAX;
}

/* Whether somebody waits, the clients have gone quiet, or it has taken long enough. */
static bool hold_is_over(dt_sched *s, int64_t now_ns) {
    const dt_controller *c = &s->controller;
    return c->stopping || c->fences_first != NULL || c->starved.first != NULL ||
           atomic_load_explicit(&s->demanded, memory_order_acquire) >= c->held.first->seq ||
           now_ns - c->submitted_ns >= HOLD_NS || now_ns - c->held_since_ns >= HOLD_NS_MAX ||
           fills_a_pass(c, c->held.first) || !dt__pool_has_idle(s->pool);
}

/* Whether a ready task is better kept back for others to join it; then it is among the held. */
static bool hold(dt_sched *s, dt_task *task) {
    dt_controller *c = &s->controller;
    if (!task->holdable || c->stopping) return false;
    if (!atomic_load_explicit(&s->fuses, memory_order_relaxed)) return false;
    if (!dt__pool_has_idle(s->pool)) return false; /* others can join it in the queue */
    if (fills_a_pass(c, task)) return false;
    int64_t now_ns = dt__now(s);
    if (atomic_load_explicit(&s->demanded, memory_order_acquire) >= task->seq) {
        c->linger_ns = now_ns + LINGER_NS; /* such a client will be back soon */
        return false;
    }
    if (now_ns - c->submitted_ns >= HOLD_NS) return false;
    if (c->held.first == NULL) c->held_since_ns = now_ns;
    dt__list_push(&c->held, task, DT_PLACE_HELD);
    return true;
}

static void release_held(dt_sched *s) {
    dt_controller *c = &s->controller;
    if (c->held.first == NULL || !hold_is_over(s, dt__now(s))) return;
    if (atomic_load_explicit(&s->demanded, memory_order_relaxed) >= c->held.first->seq)
        c->linger_ns = dt__now(s) + LINGER_NS;
    dt_task *task;
    while ((task = dt__list_pop(&c->held)) != NULL) {
        if (c->stopping || pool_wants_more(s))
            hand_over(s, task); /* which may take others of the held with it */
        else
            dt__ready_push(&c->ready, task);
    }
}

/* What a hold ends with, as far as it can be seen without the role. */
typedef struct watch {
    uint64_t demanded;
    uint32_t rounds;
    int64_t until_ns;
} watch;

static watch watch_begin(dt_sched *s) {
    const dt_controller *c = &s->controller;
    int64_t quiet_ns = c->submitted_ns + HOLD_NS, end_ns = c->held_since_ns + HOLD_NS_MAX;
    return (watch){
        .demanded = atomic_load_explicit(&s->demanded, memory_order_relaxed),
        .rounds = atomic_load_explicit(&s->rounds, memory_order_relaxed),
        .until_ns = quiet_ns < end_ns ? quiet_ns : end_ns,
    };
}

/* When there is nothing to do but to wait: looks around until something comes or the hold ends. */
static void watch_awake(dt_sched *s, const watch *w) {
    while (dt_mpsc_is_empty(&s->submitted) && dt_mpsc_is_empty(&s->ended) &&
           atomic_load_explicit(&s->demanded, memory_order_relaxed) == w->demanded &&
           atomic_load_explicit(&s->rounds, memory_order_relaxed) == w->rounds &&
           !atomic_load_explicit(&s->stop, memory_order_relaxed) && dt__now(s) < w->until_ns) {
        for (int k = 0; k < HOLD_SPINS; k++) dt_spin_pause();
        sched_yield(); /* a worker or a client may want this core */
    }
}

static void push_batch(dt_sched *s, dt_round_by by) {
    dt_controller *c = &s->controller;
    if (c->batch_count == 0) return;
    if (by == DT_BY_HELPER)
        dt__pool_push_and_help(s->pool, c->batch_first, c->batch_count);
    else
        dt__pool_push(s->pool, c->batch_first, c->batch_count, by != DT_BY_CONTROLLER);
    c->batch_first = c->batch_last = NULL;
    c->batch_count = 0;
    c->batch_cost_ns = 0;
}

static bool can_hand_over(dt_sched *s) {
    const dt_controller *c = &s->controller;
    if (c->ready.count == 0) return false;
    if (c->stopping) return true;
    return pool_wants_more(s) &&
           (c->handed == 0 || !dt__starve_is_near(s, dt__ready_first(&c->ready)));
}

static void dispatch_compute(dt_sched *s, dt_round_by by) {
    release_held(s);
    while (can_hand_over(s)) {
        dt_task *task = dt__ready_pop(&s->controller.ready);
        if (!hold(s, task)) hand_over(s, task);
    }
    push_batch(s, by);
}

static void dispatch(dt_sched *s) {
    dt_controller *c = &s->controller;
    do {
        dt_task *task;
        while ((task = c->now_first) != NULL) {
            c->now_first = task->next;
            if (c->now_first == NULL) c->now_last = NULL;
            start_other(s, task);
        }
        dispatch_compute(s, DT_BY_CONTROLLER);
        dt__starve_wait_or_fail(s);
    } while (c->now_first != NULL || can_hand_over(s));
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void notice_stop(dt_sched *s) {
    dt_controller *c = &s->controller;
    if (c->stopping || !atomic_load_explicit(&s->stop, memory_order_acquire)) return;
    c->stopping = true;
    dt__io_shut_down(s->io, on_io_ended, s);
}

/* What is left over when the loop stops has no other end. */
static void end_leftovers(dt_sched *s) {
    dt_controller *c = &s->controller;
    dt_task *starved;
    while ((starved = c->starved.first) != NULL) {
        dt__starve_leave(s, starved);
        dt__ready_push(&c->ready, starved);
    }
    dt_list *lists[] = {&c->held, &c->parked};
    for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++) {
        dt_task *task;
        while ((task = dt__list_pop(lists[k])) != NULL) dt__ready_push(&c->ready, task);
    }
}

int64_t dt__controller_before_wait(dt_sched *s) {
    dt_controller *c = &s->controller;
    int64_t deadline_ns = -1;
    if (c->timers != NULL)
        deadline_ns = c->timers->heap_key == 0 ? 1 : (int64_t)c->timers->heap_key;
    if (c->mercy_ns != 0 && (deadline_ns < 0 || c->mercy_ns < deadline_ns))
        deadline_ns = c->mercy_ns;
    if (!DT_PLANT(2)) dt_gate_close(&s->gate);
    bool unseen_stop = !c->stopping && atomic_load_explicit(&s->stop, memory_order_seq_cst);
    bool idle = !can_hand_over(s) && (c->held.first == NULL || !pool_wants_more(s));
    if (c->taken_first != NULL || !dt_mpsc_is_empty(&s->submitted) ||
        !dt_mpsc_is_empty(&s->ended) || unseen_stop || !idle || c->sweep_due ||
        atomic_load_explicit(&s->wants_all, memory_order_seq_cst) ||
        atomic_load_explicit(&s->memory_freed, memory_order_seq_cst))
        return 0;
    if (DT_PLANT(2)) dt_gate_close(&s->gate);
    count(&s->stat_wakeups, 1);
    return deadline_ns;
}

/* Bursts of fusible ops that somebody waits for come in loops: for a moment after one the
 * controller stays awake, so that the next one costs its client no system call. */
static bool lingers(dt_sched *s, watch *w) {
    const dt_controller *c = &s->controller;
    if (c->linger_ns == 0 || c->stopping || c->taken_first != NULL || c->sweep_due ||
        can_hand_over(s) || dt__pool_watches(s->pool) ||
        atomic_load_explicit(&s->stop, memory_order_relaxed) ||
        atomic_load_explicit(&s->wants_all, memory_order_relaxed) ||
        atomic_load_explicit(&s->memory_freed, memory_order_relaxed))
        return false;
    w->until_ns = c->linger_ns;
    return dt__now(s) < c->linger_ns;
}

static void wait_for_work(dt_sched *s) {
    dt_controller *c = &s->controller;
    pthread_mutex_lock(&s->role);
    watch w = watch_begin(s);
    bool awake = c->held.first != NULL ? !hold_is_over(s, dt__now(s)) : lingers(s, &w);
    int64_t deadline_ns = awake ? 0 : dt__controller_before_wait(s);
    pthread_mutex_unlock(&s->role);
    if (awake) {
        watch_awake(s, &w);
    } else {
        dt__io_wait(s->io, deadline_ns);
        dt_gate_open(&s->gate);
    }
}

static void retire_all(dt_sched *s, dt_mpsc_node *ended) {
    while (ended != NULL) {
        dt_task *task = DT_MPSC_OWNER(ended, dt_task, end_node);
        ended = ended->next;
        while (!task->linked) link_next(s); /* a direct one, I1 */
        if (DT_UNLIKELY(task->returned))
            take_back(s, task);
        else
            retire_handed(s, task);
    }
}

static void look_at_wants(dt_sched *s) {
    if (s->controller.sweep_due || atomic_load_explicit(&s->wants_all, memory_order_relaxed))
        dt__demand_sweep(s);
}

void dt__controller_round(dt_sched *s) {
    dt_controller *c = &s->controller;
    dt_mpsc_node *ended = dt_mpsc_take(&s->ended);
    take_submissions(s);
    for (int k = 0; k < LINK_MAX && c->taken_first != NULL; k++) link_next(s);
    notice_stop(s);
    dt__io_finish(s->io, on_io_ended, s);
    retire_all(s, ended);
    run_timers(s);
    if (atomic_exchange_explicit(&s->memory_freed, false, memory_order_seq_cst)) dt__starve_feed(s);
    look_at_wants(s);
    if (c->stopping) end_leftovers(s);
    dispatch(s);
}

static inline int64_t ended_count(dt_sched *s) {
    return atomic_load_explicit(&s->stat_ended, memory_order_relaxed);
}

static inline dt_trace_round begin_trace(dt_sched *s) {
    dt_trace_round round;
    dt__trace_round_begin(&round, s->controller.linked, ended_count(s), dt__pool_runs(s->pool));
    return round;
}

static inline void end_trace(dt_sched *s, const dt_trace_round *round) {
    dt__trace_round_end(round, s->controller.linked, ended_count(s), dt__pool_runs(s->pool));
}

/* Whether a client leaves something that only the controller's own thread does. */
static bool is_left_over(dt_sched *s) {
    const dt_controller *c = &s->controller;
    return c->now_first != NULL || c->taken_first != NULL || c->held.first != NULL ||
           c->starved.first != NULL || c->fences_first != NULL || can_hand_over(s);
}

bool dt__controller_assist(dt_sched *s, dt_round_by by) {
    dt_controller *c = &s->controller;
    if (atomic_load_explicit(&s->in_flight, memory_order_relaxed) > ASSIST_MAX ||
        pthread_mutex_trylock(&s->role) != 0)
        return false;
    bool stops = atomic_load_explicit(&s->stop, memory_order_acquire);
    bool left = stops;
    if (!stops) {
        atomic_fetch_add_explicit(&s->rounds, 1, memory_order_relaxed);
        dt_trace_round traced = begin_trace(s);
        dt_mpsc_node *ended = dt_mpsc_take(&s->ended);
        take_submissions(s);
        for (int k = 0; k < LINK_MAX && c->taken_first != NULL; k++) link_next(s);
        retire_all(s, ended);
        look_at_wants(s);
        dispatch_compute(s, by);
        end_trace(s, &traced);
        left = is_left_over(s);
    }
    pthread_mutex_unlock(&s->role);
    if (left) dt__io_wake(s->io);
    return true;
}

static void publish_io_stats(dt_sched *s) {
    atomic_store_explicit(&s->stat_reads, s->io->reads, memory_order_relaxed);
    atomic_store_explicit(&s->stat_writes, s->io->writes, memory_order_relaxed);
    atomic_store_explicit(&s->stat_bytes, s->io->bytes, memory_order_relaxed);
}

bool dt__controller_is_over(dt_sched *s) {
    return s->controller.stopping &&
           atomic_load_explicit(&s->in_flight, memory_order_acquire) <= DT_PLANT(23) &&
           s->controller.taken_first == NULL && dt_mpsc_is_empty(&s->submitted);
}

void *dt__controller_main(void *argument) {
    dt_sched *s = argument;
    dt_status status = dt__io_open(s->io_wanted, &s->io);
    if (status != DT_OK) s->start_error = dt_error_capture(status);
    sem_post(&s->started);
    if (status != DT_OK) return NULL;
    for (bool over = false; !over;) {
        wait_for_work(s);
        pthread_mutex_lock(&s->role);
        dt_trace_round traced = begin_trace(s);
        dt__controller_round(s);
        end_trace(s, &traced);
        over = dt__controller_is_over(s);
        pthread_mutex_unlock(&s->role);
        publish_io_stats(s);
    }
    return NULL;
}
