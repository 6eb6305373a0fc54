/* pool.c: the one pool of worker threads.
 *
 * A queue of runs in the order of hand-over, a list of split tasks whose parts are being computed,
 * and a stack of idle workers, all under one lock that is held for some instructions only and never
 * while a thread is woken.  A worker that finds nothing puts itself on the idle stack and sleeps on
 * a futex word of its own; whoever brings work takes as many workers off the stack as can help.
 *
 * One worker takes a whole run and computes its tasks one after the other (run.h).  A large task is
 * split (dt_kernel.parts): the worker that has it opens it for others, idle workers join, each one
 * claims part after part by fetch-add.  The last one to leave runs finish(), ends the task and goes
 * on with the run; the others look for other work.
 *
 * I1: workers with an index below `threads` run; the others are parked.  So never more than
 *     `threads` tasks' parts are computed at one time once the workers have noticed.
 * I2: a worker may join a split task only under the lock and while split_open; the first one that
 *     finds no part left closes it before it leaves.  Hence nobody can touch the task after
 *     parts_left has reached zero.
 * I3: every ended task is reported (events.ended), and before a worker sleeps it has notified.
 * I4: the pool allocates nothing but its workers.
 */
#include "scheduler/pool.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "scheduler/futex.h"
#include "scheduler/run.h"
#include "scheduler/task.h"
#include "scheduler/threads.h"

#define WAKE_FANOUT 2             /* workers that one worker wakes to help with a split task */
#define SPLIT_COST_NS_MIN 20000.0 /* below that a task is not worth another wake-up */
#define LINGER_NS 150000          /* how long a worker that helped stays awake for the next split */
#define LINGER_SPINS 8            /* between two looks at the clock */

/* Values of worker.wake. */
enum { ASLEEP, WOKEN, LINGERING };

typedef struct worker {
    dt_pool *pool;
    pthread_t thread;
    int index;
    _Atomic(uint32_t) wake;   /* futex word: WOKEN once there is something to look for */
    struct worker *idle_next; /* pool lock */
    bool parked;              /* pool lock */
    bool helped;              /* with a split task since it last slept */
    bool unnotified;          /* a task ended since the last notify */
    bool omp_set;
    int64_t notified_ns; /* or when the first task after that began */
    double unnotified_cost_ns;
    int64_t now_ns; /* as of the last look at the clock */
} worker;

struct dt_pool {
    dt_pool_events events;
    pthread_mutex_t lock;
    dt_task *queue_first, *queue_last;
    dt_task *splits; /* open split tasks, the oldest first */
    worker *idle;
    int started; /* workers that exist */
    bool exiting;
    _Atomic(int) threads;
    _Atomic(int) idle_count;
    _Atomic(int) queued;
    _Atomic(int64_t) queued_cost_ns;
    _Atomic(int32_t) waited_for;
    _Atomic(bool) shut_down;
    _Atomic(int64_t) wakeups, runs;
    worker *workers[DT_THREADS_MAX];
};

/* Libraries with OpenMP inside are told to use the calling thread alone: the pool is where the
 * parallelism is.  Weak, since only some builds have an OpenMP runtime linked in. */
extern void omp_set_num_threads(int count) __attribute__((weak));

static void limit_omp(worker *w) {
    if (w->omp_set) return;
    w->omp_set = true;
    void (*set)(int) = omp_set_num_threads;
    if (set == NULL) set = (void (*)(int))(uintptr_t)dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set != NULL) set(1);
}

/* ---- waking --------------------------------------------------------------------------------- */

/* Takes up to `count` workers off the idle stack: a list through idle_next. Pool lock. */
static worker *take_idle(dt_pool *pool, int count) {
    worker *taken = NULL;
    while (count-- > 0 && pool->idle != NULL) {
        worker *w = pool->idle;
        pool->idle = w->idle_next;
        w->idle_next = taken;
        taken = w;
        atomic_fetch_sub_explicit(&pool->idle_count, 1, memory_order_relaxed);
    }
    return taken;
}

/* Not under the lock: a woken worker would run into it. */
static void wake_all(dt_pool *pool, worker *list) {
    while (list != NULL) {
        worker *w = list;
        list = w->idle_next; /* before the wake: then it is w's again */
        atomic_fetch_add_explicit(&pool->wakeups, 1, memory_order_relaxed);
        if (atomic_exchange_explicit(&w->wake, WOKEN, memory_order_acq_rel) == ASLEEP)
            dt_futex_wake(&w->wake, 1);
    }
}

static void notify(worker *w, int64_t now_ns) {
    w->unnotified = false;
    w->unnotified_cost_ns = 0;
    w->notified_ns = now_ns;
    w->pool->events.notify(w->pool->events.context);
}

/* ---- one task ------------------------------------------------------------------------------- */

/* Whether the task may run; it has an error otherwise. */
static bool prepare(worker *w, dt_task *task) {
    if (DT_UNLIKELY(atomic_load_explicit(&w->pool->shut_down, memory_order_relaxed))) {
        dt__task_fail(task, dt_fail(DT_E_SHUTDOWN, "the dtorch runtime has been shut down"));
        return false;
    }
    dt_error *failure = dt_call_operand_failure(&task->call);
    if (DT_UNLIKELY(failure != NULL)) {
        task->error = dt_error_retain(failure);
        return false;
    }
    if (task->kind != DT_TASK_COMPUTE) return true;
    dt_status status = dt_call_materialize(&task->call);
    if (DT_UNLIKELY(status != DT_OK)) dt__task_fail(task, status);
    return status == DT_OK;
}

static dt_status take_scratch(dt_task *task, int parts) {
    const dt_kernel *kernel = task->call.kernel;
    task->parts = parts;
    task->scratch = NULL;
    task->scratch_bytes = 0;
    if (kernel->scratch_bytes == NULL) return DT_OK;
    size_t bytes = kernel->scratch_bytes(&task->call, parts);
    if (bytes == 0) return DT_OK;
    task->scratch = dt_bytes_alloc(bytes);
    if (task->scratch == NULL)
        return dt_fail(DT_E_NO_MEMORY, "out of memory: %zu bytes of scratch for %s", bytes,
                       kernel->name);
    task->scratch_bytes = bytes;
    return DT_OK;
}

/* One part; the first that fails gives the task its error. */
static void run_part(dt_task *task, int index) {
    dt_part part = {index, task->parts, task->scratch, task->scratch_bytes};
    dt_status status = task->call.kernel->run(&task->call, &part);
    if (DT_LIKELY(status == DT_OK)) return;
    int32_t none = 0;
    if (atomic_compare_exchange_strong_explicit(&task->part_failed, &none, 1, memory_order_relaxed,
                                                memory_order_relaxed))
        dt__task_fail(task, status);
}

/* All parts have ended, in whatever threads. */
static void finish_parts(dt_task *task) {
    const dt_kernel *kernel = task->call.kernel;
    if (kernel->finish != NULL && task->error == NULL) {
        dt_part part = {0, task->parts, task->scratch, task->scratch_bytes};
        dt_status status = kernel->finish(&task->call, &part);
        if (status != DT_OK) dt__task_fail(task, status);
    }
    if (task->scratch != NULL) dt_bytes_free(task->scratch, task->scratch_bytes);
    task->scratch = NULL;
}

/* Opens a task of several parts for idle workers. */
static void open_split(dt_pool *pool, dt_task *task) {
    atomic_store_explicit(&task->parts_next, 0, memory_order_relaxed);
    atomic_store_explicit(&task->parts_left, 1, memory_order_relaxed);
    pthread_mutex_lock(&pool->lock);
    task->split_open = true;
    task->next = NULL;
    dt_task **end = &pool->splits;
    while (*end != NULL) end = &(*end)->next;
    *end = task;
    int helpers = task->parts - 1;
    worker *woken = take_idle(pool, helpers < WAKE_FANOUT ? helpers : WAKE_FANOUT);
    pthread_mutex_unlock(&pool->lock);
    wake_all(pool, woken);
}

/* Pool lock. */
static void close_split(dt_pool *pool, dt_task *task) {
    dt_task **link = &pool->splits;
    while (*link != task) link = &(*link)->next;
    *link = task->next;
    task->split_open = false;
}

/* Computes parts of a split task. True: this worker was the last to leave. */
static bool work_on_split(worker *w, dt_task *task) {
    dt_pool *pool = w->pool;
    for (;;) {
        int32_t index = atomic_fetch_add_explicit(&task->parts_next, 1, memory_order_relaxed);
        if (index >= task->parts) break;
        if (!atomic_load_explicit(&task->part_failed, memory_order_relaxed)) run_part(task, index);
    }
    pthread_mutex_lock(&pool->lock);
    if (task->split_open) close_split(pool, task);
    pthread_mutex_unlock(&pool->lock);
    return atomic_fetch_sub_explicit(&task->parts_left, 1, memory_order_acq_rel) == 1;
}

/* Computes a task that is prepared. False: another worker will end it. */
static bool compute(worker *w, dt_task *task) {
    const dt_kernel *kernel = task->call.kernel;
    if (kernel->flags & DT_KERNEL_USES_OMP) limit_omp(w);
    int threads = task->cost_ns < SPLIT_COST_NS_MIN
                      ? 1
                      : atomic_load_explicit(&w->pool->threads, memory_order_relaxed);
    int parts = kernel->parts != NULL ? kernel->parts(&task->call, threads) : 1;
    DT_ASSERT(parts >= 1);
    dt_status status = take_scratch(task, parts);
    if (status != DT_OK) {
        dt__task_fail(task, status);
        return true;
    }
    if (parts > 1 && threads > 1) {
        open_split(w->pool, task);
        if (!work_on_split(w, task)) return false;
    } else {
        for (int k = 0; k < parts && task->error == NULL; k++) run_part(task, k);
    }
    finish_parts(task);
    return true;
}

/* Ends a task and returns the next one of its run. The task may be gone after this. */
static dt_task *end(worker *w, dt_task *task) {
    int64_t now_ns = dt_clock_ns();
    w->now_ns = now_ns;
    w->unnotified_cost_ns += task->cost_ns;
    dt__task_end(task, now_ns);
    dt_task *next = dt__run_close(task);
    atomic_store_explicit(&task->state, DT_TASK_ENDED, memory_order_relaxed);
    w->pool->events.ended(w->pool->events.context, task);
    w->unnotified = true;
    /* After the report: either we see the mark or whoever sets it sees the report. */
    bool due = atomic_load_explicit(&w->pool->waited_for, memory_order_seq_cst) > 0 &&
               dt__pool_has_idle(w->pool);
    if (due || now_ns - w->notified_ns > DT__POOL_NOTIFY_NS ||
        w->unnotified_cost_ns > DT__POOL_NOTIFY_NS)
        notify(w, now_ns);
    return next;
}

/* Starts at w->now_ns. */
static void run_chain(worker *w, dt_task *task) {
    while (task != NULL) {
        uint8_t handed = DT_TASK_HANDED;
        bool mine = atomic_compare_exchange_strong_explicit(
            &task->state, &handed, DT_TASK_RUNNING, memory_order_relaxed, memory_order_relaxed);
        DT_ASSERT(mine); /* nobody takes tasks back yet */
        task->time_start_ns = w->now_ns;
        if (prepare(w, task) && task->kind == DT_TASK_COMPUTE && !compute(w, task)) return;
        task = end(w, task);
    }
}

/* ---- the worker ----------------------------------------------------------------------------- */

/* Joins the oldest split task that has parts left. Pool lock. */
static dt_task *join_split(dt_pool *pool, worker **woken) {
    for (dt_task *task = pool->splits; task != NULL; task = task->next) {
        int left = task->parts - atomic_load_explicit(&task->parts_next, memory_order_relaxed);
        if (left <= 0) continue;
        atomic_fetch_add_explicit(&task->parts_left, 1, memory_order_relaxed);
        left--;
        *woken = take_idle(pool, left < WAKE_FANOUT ? left : WAKE_FANOUT);
        return task;
    }
    return NULL;
}

/* Pool lock. */
static dt_task *pop(dt_pool *pool) {
    dt_task *task = pool->queue_first;
    if (task == NULL) return NULL;
    pool->queue_first = task->next;
    if (pool->queue_first == NULL) pool->queue_last = NULL;
    atomic_fetch_sub_explicit(&pool->queued, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&pool->queued_cost_ns, (int64_t)task->cost_ns, memory_order_relaxed);
    return task;
}

static inline void spin_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* The large tasks of one request follow each other within microseconds, and to wake a sleeper takes
 * longer than such a task's share. So a worker that has just helped waits for the next one awake: a
 * bounded time, once for each task that it helped with, and its waker saves the system call. */
static void linger(worker *w) {
    int64_t until_ns = dt_clock_ns() + LINGER_NS;
    do {
        for (int k = 0; k < LINGER_SPINS; k++) {
            if (atomic_load_explicit(&w->wake, memory_order_acquire) == WOKEN) return;
            spin_pause();
        }
        sched_yield(); /* the controller or a client may want this core */
    } while (dt_clock_ns() < until_ns);
    uint32_t lingering = LINGERING;
    (void)atomic_compare_exchange_strong_explicit(&w->wake, &lingering, ASLEEP,
                                                  memory_order_relaxed, memory_order_relaxed);
}

/* Sleeps until woken. Enters with the pool lock, leaves without. */
static void sleep_unlock(worker *w) {
    dt_pool *pool = w->pool;
    bool lingers =
        w->helped && w->index < atomic_load_explicit(&pool->threads, memory_order_relaxed);
    w->helped = false;
    atomic_store_explicit(&w->wake, lingers ? LINGERING : ASLEEP, memory_order_relaxed);
    if (w->index < atomic_load_explicit(&pool->threads, memory_order_relaxed)) {
        w->idle_next = pool->idle;
        pool->idle = w;
        atomic_fetch_add_explicit(&pool->idle_count, 1, memory_order_seq_cst);
    } else {
        w->parked = true;
    }
    pthread_mutex_unlock(&pool->lock);
    /* Either the worker that ended a task sees us idle, or we report it. */
    bool due = atomic_load_explicit(&pool->waited_for, memory_order_seq_cst) > 0;
    if (w->unnotified || due) notify(w, dt_clock_ns());
    if (lingers) linger(w);
    while (atomic_load_explicit(&w->wake, memory_order_acquire) == ASLEEP)
        dt_futex_wait(&w->wake, ASLEEP, -1);
}

static void *worker_main(void *argument) {
    worker *w = argument;
    dt_pool *pool = w->pool;
    for (;;) {
        pthread_mutex_lock(&pool->lock);
        w->parked = false;
        bool surplus = w->index >= atomic_load_explicit(&pool->threads, memory_order_relaxed);
        worker *woken = NULL;
        dt_task *split = surplus ? NULL : join_split(pool, &woken);
        dt_task *run = surplus || split != NULL ? NULL : pop(pool);
        if (split == NULL && run == NULL) {
            if (pool->exiting) {
                pthread_mutex_unlock(&pool->lock);
                break;
            }
            sleep_unlock(w);
            continue;
        }
        pthread_mutex_unlock(&pool->lock);
        wake_all(pool, woken);
        w->now_ns = dt_clock_ns();
        if (w->unnotified && dt__pool_has_idle(pool)) notify(w, w->now_ns);
        if (!w->unnotified) w->notified_ns = w->now_ns;
        if (split != NULL) {
            w->helped = true;
            if (split->call.kernel->flags & DT_KERNEL_USES_OMP) limit_omp(w);
            if (!work_on_split(w, split)) continue;
            finish_parts(split);
            run = end(w, split);
        }
        run_chain(w, run);
    }
    if (w->unnotified) notify(w, dt_clock_ns());
    return NULL;
}

/* ---- from outside --------------------------------------------------------------------------- */

void dt__pool_push(dt_pool *pool, dt_task *first, int count) {
    if (count == 0) return;
    int64_t cost_ns = 0;
    dt_task *last = first;
    for (dt_task *t = first; t != NULL; last = t, t = t->next) cost_ns += (int64_t)t->cost_ns;
    pthread_mutex_lock(&pool->lock);
    if (pool->queue_last != NULL) {
        pool->queue_last->next = first;
    } else {
        pool->queue_first = first;
    }
    pool->queue_last = last;
    atomic_fetch_add_explicit(&pool->queued, count, memory_order_relaxed);
    atomic_fetch_add_explicit(&pool->queued_cost_ns, cost_ns, memory_order_relaxed);
    worker *woken = take_idle(pool, count);
    pthread_mutex_unlock(&pool->lock);
    atomic_fetch_add_explicit(&pool->runs, count, memory_order_relaxed);
    wake_all(pool, woken);
}

void dt__pool_shut_down(dt_pool *pool) {
    atomic_store_explicit(&pool->shut_down, true, memory_order_relaxed);
}

/* One thread at a time. */
static dt_status start_workers(dt_pool *pool, int threads) {
    while (pool->started < threads) {
        worker *w;
        DT_ALLOC_OR_FAIL(w, sizeof *w);
        memset(w, 0, sizeof *w);
        w->pool = pool;
        w->index = pool->started;
        dt_status status = dt__thread_start(&w->thread, worker_main, w, "dt-wrk-%d", w->index);
        if (status != DT_OK) {
            dt_free(w, sizeof *w);
            return status;
        }
        pool->workers[pool->started++] = w;
    }
    return DT_OK;
}

/* Every worker looks around once. */
static void wake_everyone(dt_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    worker *woken = take_idle(pool, DT_THREADS_MAX);
    for (int k = 0; k < pool->started; k++) {
        worker *w = pool->workers[k];
        if (!w->parked) continue;
        w->parked = false;
        w->idle_next = woken;
        woken = w;
    }
    pthread_mutex_unlock(&pool->lock);
    wake_all(pool, woken);
}

dt_status dt__pool_set_threads(dt_pool *pool, int threads) {
    DT_ASSERT(threads >= 1 && threads <= DT_THREADS_MAX);
    int before = atomic_load_explicit(&pool->threads, memory_order_relaxed);
    pthread_mutex_lock(&pool->lock); /* workers compare under the lock before they sleep */
    atomic_store_explicit(&pool->threads, threads, memory_order_relaxed);
    pthread_mutex_unlock(&pool->lock);
    dt_status status = start_workers(pool, threads);
    if (status != DT_OK) {
        int possible = pool->started < before ? before : pool->started;
        pthread_mutex_lock(&pool->lock);
        atomic_store_explicit(&pool->threads, possible, memory_order_relaxed);
        pthread_mutex_unlock(&pool->lock);
    }
    wake_everyone(pool);
    return status;
}

dt_status dt__pool_start(int threads, const dt_pool_events *events, dt_pool **out) {
    dt_pool *pool;
    DT_ALLOC_OR_FAIL(pool, sizeof *pool);
    memset(pool, 0, sizeof *pool);
    pool->events = *events;
    pthread_mutex_init(&pool->lock, NULL);
    atomic_init(&pool->threads, threads);
    dt_status status = start_workers(pool, threads);
    if (status != DT_OK) {
        dt__pool_stop(pool);
        return status;
    }
    *out = pool;
    return DT_OK;
}

void dt__pool_stop(dt_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    DT_ASSERT(pool->queue_first == NULL && pool->splits == NULL);
    pool->exiting = true;
    pthread_mutex_unlock(&pool->lock);
    wake_everyone(pool);
    for (int k = 0; k < pool->started; k++) {
        pthread_join(pool->workers[k]->thread, NULL);
        dt_free(pool->workers[k], sizeof(worker));
    }
    pthread_mutex_destroy(&pool->lock);
    dt_free(pool, sizeof *pool);
}

int dt__pool_threads(const dt_pool *pool) {
    return atomic_load_explicit(&pool->threads, memory_order_relaxed);
}
bool dt__pool_has_idle(const dt_pool *pool) {
    return atomic_load_explicit(&pool->idle_count, memory_order_seq_cst) > 0;
}
_Atomic(int32_t) *dt__pool_waited_for(dt_pool *pool) { return &pool->waited_for; }
int dt__pool_queued(const dt_pool *pool) {
    return atomic_load_explicit(&pool->queued, memory_order_relaxed);
}
double dt__pool_queued_cost_ns(const dt_pool *pool) {
    return (double)atomic_load_explicit(&pool->queued_cost_ns, memory_order_relaxed);
}
int64_t dt__pool_wakeups(const dt_pool *pool) {
    return atomic_load_explicit(&pool->wakeups, memory_order_relaxed);
}
int64_t dt__pool_runs(const dt_pool *pool) {
    return atomic_load_explicit(&pool->runs, memory_order_relaxed);
}
