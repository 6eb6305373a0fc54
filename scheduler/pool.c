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
 * I5: what came while a worker lingered is heard of: whoever brings something counts the watchers
 *     after he has brought it, and a worker looks for it after it has ceased to be one.
 */
#include "scheduler/pool.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "scheduler/futex.h"
#include "scheduler/plant.h"
#include "scheduler/task.h"
#include "scheduler/threads.h"
#include "scheduler/trace_task.h"
#include "scheduler/work.h"

#define WAKE_FANOUT 2            /* workers that one worker wakes to help with a split task */
#define LINGER_NS 150000         /* how long a worker that helped stays awake for the next split */
#define PARTS_BY_CPU_MAX 64      /* bits of dt_task.parts_taken */
#define UNHEARD_NS_MAX 60000     /* DT__POOL_UNHEARD_NS, however much comes */
#define FEW_CPUS 8               /* see cpu_to_avoid */
#define MUCH_NS 200000           /* see keep_off */
#define LINGER_SPINS 8           /* between two looks at the clock */
#define LENT_COST_NS 100000      /* a split that costs more is worth a wake, see take_lent */
#define HELP_COST_NS_MAX 2000000 /* a client that helps is deaf to signals meanwhile */

/* Values of worker.wake. */
enum { ASLEEP, WOKEN, LINGERING };

typedef struct worker {
    dt_pool *pool;
    pthread_t thread;
    int index;
    pid_t tid;                /* set before it is idle for the first time */
    int keeps_off;            /* the CPU that it was told to keep off; -1: none */
    _Atomic(int) cpu;         /* where it works, or was woken to; -1: nowhere, or not known */
    _Atomic(uint32_t) wake;   /* futex word: WOKEN once there is something to look for */
    struct worker *idle_next; /* pool lock */
    bool parked;              /* pool lock */
    bool lent;                /* pool lock: a client has its place, and no work */
    bool helped;              /* with a split task since it last slept, or was woken to */
    bool unnotified;          /* a task ended since the last notify */
    bool omp_set;
    bool (*done)(void *context); /* a client stands in for it, until that is true */
    void *done_context;
    int client_omp;      /* that client's OpenMP threads; 0: not changed */
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
    int lent;             /* workers that are */
    _Atomic(int) started; /* workers that exist; stored after each one */
    int cpus;             /* that this process may use ... */
    cpu_set_t mask;
    bool exiting;
    _Atomic(int) threads;
    _Atomic(int) idle_count;
    _Atomic(int) watchers;   /* lingering workers */
    _Atomic(int) unnotified; /* workers that are */
    _Atomic(int) queued;
    _Atomic(int64_t) queued_cost_ns;
    _Atomic(int32_t) waited_for;
    _Atomic(bool) shut_down;
    _Atomic(int) helpers; /* clients between dt__pool_helper_enter and the end of dt__pool_help */
    _Atomic(int64_t) wakeups, runs;
    worker *workers[DT_THREADS_MAX];
};

/* Libraries with OpenMP inside are told to use the calling thread alone: the pool is where the
 * parallelism is.  Weak, since only some builds have an OpenMP runtime linked in.  A client that
 * helps gets its own number back. */
extern void omp_set_num_threads(int count) __attribute__((weak));
extern int omp_get_max_threads(void) __attribute__((weak));

static void *omp_function(void *linked, const char *name) {
    return linked != NULL ? linked : dlsym(RTLD_DEFAULT, name);
}

static void set_omp(int count) {
    void (*set)(int) = (void (*)(int))(uintptr_t)omp_function(
        (void *)(uintptr_t)omp_set_num_threads, "omp_set_num_threads");
    if (set != NULL) set(count);
}

static void limit_omp(worker *w) {
    if (w->omp_set) return;
    w->omp_set = true;
    if (w->done != NULL) {
        int (*get)(void) = (int (*)(void))(uintptr_t)omp_function(
            (void *)(uintptr_t)omp_get_max_threads, "omp_get_max_threads");
        w->client_omp = get != NULL ? get() : 0;
    }
    set_omp(1);
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

static int started(const dt_pool *pool) {
    return atomic_load_explicit(&pool->started, memory_order_acquire);
}

/* Pool lock. */
static void set_lent(worker *w, bool lent) {
    if (w->lent == lent) return;
    w->lent = lent;
    w->pool->lent += lent ? 1 : -1;
}

/* One whose place a client has that looks for work: it may not take so large a task, or wait for
 * the CPU of whoever has it while the worker has another one.  It has to go and wait, then. Pool
 * lock. */
static worker *take_lent(dt_pool *pool) {
    for (int k = 0; k < started(pool) && pool->lent > 0; k++) {
        worker *w = pool->workers[k];
        if (!w->lent) continue;
        set_lent(w, false);
        w->idle_next = NULL;
        return w;
    }
    return NULL;
}

/* The same for parts of a split task. Who comes too late for them lingers as well: else it would be
 * asleep again, and late again, when the next one comes. */
static worker *take_helpers(dt_pool *pool, const dt_task *task, int parts) {
    worker *taken = take_idle(pool, parts < WAKE_FANOUT ? parts : WAKE_FANOUT);
    if (taken == NULL && parts > 0 && task->cost_ns > LENT_COST_NS) taken = take_lent(pool);
    for (worker *w = taken; w != NULL; w = w->idle_next) w->helped = true;
    return taken;
}

/* The one that is least likely to be awake still. Pool lock. */
static worker *take_longest_idle(dt_pool *pool) {
    worker **link = &pool->idle, *w = pool->idle;
    if (w == NULL) return NULL;
    while (w->idle_next != NULL) {
        link = &w->idle_next;
        w = w->idle_next;
    }
    *link = NULL;
    atomic_fetch_sub_explicit(&pool->idle_count, 1, memory_order_relaxed);
    return w;
}

/* A kernel may well put a woken thread on the CPU of its waker, or leave it on that of another
 * worker, to take turns there while another CPU is idle; what both were to compute side by side
 * then comes one after the other.  So a worker that is woken is told to keep off a CPU; which, and
 * where it is expected to run, is its waker's until it wakes.  One that has much to do frees itself
 * of that, for the kernel to move it as it sees fit. */
static void keep_off(dt_pool *pool, worker *w, int cpu) {
    if (w->keeps_off == cpu || pool->cpus < 2 || cpu >= CPU_SETSIZE) return;
    cpu_set_t mask = pool->mask;
    if (cpu >= 0) CPU_CLR(cpu, &mask);
    if (sched_setaffinity(w->tid, sizeof mask, &mask) == 0) w->keeps_off = cpu;
}

/* The only CPU but that one; -1: there are others. */
static int only_other(const dt_pool *pool, int cpu) {
    for (int other = 0; pool->cpus == 2 && cpu >= 0 && other < CPU_SETSIZE; other++)
        if (other != cpu && CPU_ISSET(other, &pool->mask)) return other;
    return -1;
}

/* Which CPU a worker has to keep off that a thread here wakes, which goes on running if it `stays`;
 * -1: none.  Where all others compute, here is the best place: who brings work has less to do than
 * who computes.  With more than a few CPUs the kernel will find an idle one. */
static int cpu_to_avoid(const dt_pool *pool, int here, bool stays) {
    int count = pool->cpus <= FEW_CPUS ? started(pool) : 0, busy = -1, taken = 0;
    for (int k = 0; k < count; k++) {
        int cpu = atomic_load_explicit(&pool->workers[k]->cpu, memory_order_relaxed);
        if (cpu < 0 || cpu == here) continue;
        busy = cpu;
        taken++;
    }
    return busy >= 0 && (!stays || taken >= pool->cpus - 1) ? busy : stays ? here : -1;
}

/* Not under the lock: a woken worker would run into it. `stays`: this thread goes on running. */
static void wake_all(dt_pool *pool, worker *list, bool stays) {
    int here = list != NULL ? sched_getcpu() : -1;
    while (list != NULL) {
        worker *w = list;
        list = w->idle_next;                             /* before the wake: then it is w's again */
        if (!pthread_equal(w->thread, pthread_self())) { /* else it brings work, and takes it */
            int cpu = cpu_to_avoid(pool, here, stays);
            keep_off(pool, w, cpu);
            atomic_store_explicit(&w->cpu, only_other(pool, cpu), memory_order_relaxed);
        }
        atomic_fetch_add_explicit(&pool->wakeups, 1, memory_order_relaxed);
        if (atomic_exchange_explicit(&w->wake, WOKEN, memory_order_acq_rel) == ASLEEP)
            dt_futex_wake(&w->wake, 1);
    }
}

static void mark_unnotified(worker *w) {
    if (w->unnotified) return;
    w->unnotified = true;
    atomic_fetch_add_explicit(&w->pool->unnotified, 1, memory_order_seq_cst);
}

/* Whether it was. */
static bool mark_notified(worker *w) {
    w->unnotified_cost_ns = 0;
    if (!w->unnotified) return false;
    w->unnotified = false;
    atomic_fetch_sub_explicit(&w->pool->unnotified, 1, memory_order_seq_cst);
    return true;
}

static void notify(worker *w, int64_t now_ns) {
    (void)mark_notified(w);
    w->notified_ns = now_ns;
    w->pool->events.notify(w->pool->events.context);
}

/* Of a worker that is idle now, or whose place is free: whether another one has ended something
 * that it could go on with. Either whoever ended it sees that a worker is idle, or we see it. */
static bool is_idle_for_others(dt_pool *pool) {
    return atomic_load_explicit(&pool->waited_for, memory_order_seq_cst) > 0 ||
           atomic_load_explicit(&pool->unnotified, memory_order_seq_cst) > 0;
}

/* By a worker that has nothing to do. */
static void report_idle(dt_pool *pool) {
    const dt_pool_events *events = &pool->events;
    (events->idle != NULL ? events->idle : events->notify)(events->context);
}

static const void *unheard(dt_pool *pool) {
    return pool->events.unheard != NULL ? pool->events.unheard(pool->events.context) : NULL;
}

/* ---- one task ------------------------------------------------------------------------------- */

/* Opens a task of several parts for idle workers. */
static void open_split(dt_pool *pool, dt_task *task) {
    atomic_store_explicit(&task->parts_next, 0, memory_order_relaxed);
    atomic_store_explicit(&task->parts_taken, 0, memory_order_relaxed);
    atomic_store_explicit(&task->parts_left, 1, memory_order_relaxed);
    pthread_mutex_lock(&pool->lock);
    task->split_open = true;
    task->next = NULL;
    dt_task **end = &pool->splits;
    while (*end != NULL) end = &(*end)->next;
    *end = task;
    int helpers = task->parts - 1;
    worker *woken = take_helpers(pool, task, helpers);
    pthread_mutex_unlock(&pool->lock);
    wake_all(pool, woken, true);
}

/* Pool lock. */
static void close_split(dt_pool *pool, dt_task *task) {
    dt_task **link = &pool->splits;
    while (*link != task) link = &(*link)->next;
    *link = task->next;
    task->split_open = false;
}

/* Which part this thread would rather take: parts are ranges of the same operands in task after
 * task, and what a CPU has written or read of them is in its caches. */
static int favourite_part(const dt_pool *pool, int parts) {
    int cpu = sched_getcpu();
    return cpu < 0 || pool->cpus < 2 ? 0 : cpu % pool->cpus * parts / pool->cpus;
}

/* The next part to compute, from the favourite on and around; -1: none is left. */
static int claim_part(dt_task *task, int favourite) {
    if (task->parts > PARTS_BY_CPU_MAX) {
        int32_t next = atomic_fetch_add_explicit(&task->parts_next, 1, memory_order_relaxed);
        return next < task->parts ? next : -1;
    }
    uint64_t all = ~(uint64_t)0 >> (PARTS_BY_CPU_MAX - task->parts);
    uint64_t taken = atomic_load_explicit(&task->parts_taken, memory_order_relaxed);
    for (;;) {
        uint64_t left = all & ~taken, ahead = left & ~(uint64_t)0 << favourite;
        if (left == 0) return -1;
        int part = __builtin_ctzll(ahead != 0 ? ahead : left);
        if (!atomic_compare_exchange_weak_explicit(&task->parts_taken, &taken,
                                                   taken | (uint64_t)1 << part,
                                                   memory_order_relaxed, memory_order_relaxed))
            continue;
        atomic_fetch_add_explicit(&task->parts_next, 1, memory_order_relaxed);
        return part;
    }
}

/* Computes parts of a split task. True: this worker was the last to leave. start_ns: see
 * dt__trace_share_begin. */
static bool work_on_split(worker *w, dt_task *task, int64_t start_ns) {
    dt_pool *pool = w->pool;
    dt_trace_share share;
    dt__trace_share_begin(&share, task, start_ns);
    int parts = 0, part;
    int favourite = favourite_part(pool, task->parts);
    for (; (part = claim_part(task, favourite)) >= 0; parts++) {
        if (!atomic_load_explicit(&task->part_failed, memory_order_relaxed))
            dt__work_part(task, part);
    }
    pthread_mutex_lock(&pool->lock);
    if (task->split_open && !DT_PLANT(21)) close_split(pool, task);
    pthread_mutex_unlock(&pool->lock);
    dt__trace_share_end(&share, parts);
    return atomic_fetch_sub_explicit(&task->parts_left, 1, memory_order_acq_rel) == 1;
}

/* Computes a task that has begun. False: another worker will end it. */
static bool compute(worker *w, dt_task *task) {
    if (task->call.kernel->flags & DT_KERNEL_USES_OMP) limit_omp(w);
    if (task->parts > 1 && atomic_load_explicit(&w->pool->threads, memory_order_relaxed) > 1) {
        w->helped = true;
        open_split(w->pool, task);
        if (!work_on_split(w, task, task->time_start_ns)) return false;
    } else {
        for (int k = 0; k < task->parts && task->error == NULL; k++) dt__work_part(task, k);
    }
    dt__work_finish(task);
    return true;
}

/* Ends a task, or the tasks of a pass, and returns the next one of the run. */
static dt_task *end(worker *w, dt_task *task) {
    dt_pool *pool = w->pool;
    int64_t now_ns = dt_clock_ns();
    w->now_ns = now_ns;
    w->unnotified_cost_ns += task->cost_ns;
    dt_task *next = dt__work_end(task, now_ns, pool->events.ended, pool->events.context);
    mark_unnotified(w);
    /* After the report: either we see the mark or whoever sets it sees the report. */
    bool due = atomic_load_explicit(&pool->waited_for, memory_order_seq_cst) > 0 &&
               dt__pool_has_idle(pool);
    if (next == NULL) return NULL; /* reported before it takes something else, or by idle */
    if (due || now_ns - w->notified_ns > DT__POOL_NOTIFY_NS ||
        w->unnotified_cost_ns > DT__POOL_NOTIFY_NS)
        notify(w, now_ns);
    return next;
}

static void give_back(worker *w, dt_task *task) {
    dt_pool *pool = w->pool;
    bool starved = atomic_load_explicit(&task->state, memory_order_relaxed) == DT_TASK_RUNNING;
    dt__work_return(task, starved, pool->events.ended, pool->events.context);
    notify(w, dt_clock_ns());
}

/* Starts at w->now_ns. */
static void run_chain(worker *w, dt_task *task) {
    dt_pool *pool = w->pool;
    while (task != NULL) {
        int threads = atomic_load_explicit(&pool->threads, memory_order_relaxed);
        bool shut_down = atomic_load_explicit(&pool->shut_down, memory_order_relaxed);
        dt_work_step step = dt__work_begin(task, threads, shut_down, w->now_ns);
        if (step == DT_WORK_RETURN) {
            give_back(w, task);
            return;
        }
        if (step == DT_WORK_COMPUTE && !compute(w, task)) return;
        task = end(w, task);
        if (DT_UNLIKELY(w->done != NULL) && task != NULL && w->done(w->done_context)) {
            task->next = NULL;
            dt__pool_push(pool, task, 1, true); /* the client has what it waited for */
            return;
        }
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
        *woken = take_helpers(pool, task, left);
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

/* Awake in the owner's stead, see dt_pool_events.unheard. */
typedef struct watch {
    const void *last;
    int64_t since_ns, last_ns;
} watch;

static bool is_due(dt_pool *pool, watch *look, int64_t now_ns) {
    const void *last = unheard(pool);
    if (look->last == NULL) look->since_ns = now_ns;
    if (look->last != last) look->last_ns = now_ns;
    look->last = last;
    return last != NULL && (now_ns - look->last_ns >= DT__POOL_UNHEARD_NS ||
                            now_ns - look->since_ns >= UNHEARD_NS_MAX);
}

/* The large tasks of one request follow each other within microseconds, and to wake a sleeper takes
 * longer than such a task's share. So a worker that has just helped waits for the next one awake: a
 * bounded time, once for each task that it helped with, and its waker saves the system call.  So
 * does who submits meanwhile, since it watches in the owner's stead. */
static void linger(worker *w) {
    dt_pool *pool = w->pool;
    int64_t now_ns = dt_clock_ns(), until_ns = now_ns + LINGER_NS;
    watch look = {0};
    while (now_ns < until_ns) {
        for (int k = 0; k < LINGER_SPINS; k++) {
            if (atomic_load_explicit(&w->wake, memory_order_acquire) == WOKEN) break;
            dt_spin_pause();
        }
        if (atomic_load_explicit(&w->wake, memory_order_acquire) == WOKEN) break;
        sched_yield(); /* the controller or a client may want this core */
        now_ns = dt_clock_ns();
        if (!is_due(pool, &look, now_ns)) continue;
        look.last = NULL;
        report_idle(pool);
    }
    uint32_t lingering = LINGERING;
    if (DT_PLANT(27)) atomic_store(&w->wake, ASLEEP);
    (void)atomic_compare_exchange_strong_explicit(&w->wake, &lingering, ASLEEP,
                                                  memory_order_relaxed, memory_order_relaxed);
    /* Either who submits sees that nobody watches, or we see what was submitted. */
    atomic_fetch_sub_explicit(&pool->watchers, 1, memory_order_seq_cst);
    if (unheard(pool) != NULL && !DT_PLANT(31)) pool->events.notify(pool->events.context);
}

/* Sleeps until woken. Enters with the pool lock, leaves without. */
static void sleep_unlock(worker *w) {
    dt_pool *pool = w->pool;
    bool lingers =
        w->helped && w->index < atomic_load_explicit(&pool->threads, memory_order_relaxed);
    bool unnotified = mark_notified(w);
    w->helped = false;
    atomic_store_explicit(&w->cpu, -1, memory_order_relaxed);
    if (lingers) atomic_fetch_add_explicit(&pool->watchers, 1, memory_order_seq_cst);
    atomic_store_explicit(&w->wake, lingers ? LINGERING : ASLEEP, memory_order_relaxed);
    if (w->index < atomic_load_explicit(&pool->threads, memory_order_relaxed)) {
        w->idle_next = pool->idle;
        pool->idle = w;
        atomic_fetch_add_explicit(&pool->idle_count, 1, memory_order_seq_cst);
    } else {
        w->parked = true;
    }
    pthread_mutex_unlock(&pool->lock);
    /* From here on a client may stand in for w: all but w->wake is his. */
    if ((unnotified && !DT_PLANT(26)) || is_idle_for_others(pool)) report_idle(pool);
    if (lingers) linger(w);
    while (atomic_load_explicit(&w->wake, memory_order_acquire) == ASLEEP)
        dt_futex_wait(&w->wake, ASLEEP, -1);
}

/* Parts of a split task, or a run; and what follows it. */
static void work_on(worker *w, dt_task *split, dt_task *run) {
    atomic_store_explicit(&w->cpu, sched_getcpu(), memory_order_relaxed);
    if (w->done == NULL && (split != NULL ? split : run)->cost_ns > MUCH_NS)
        keep_off(w->pool, w, -1);
    w->now_ns = dt_clock_ns();
    if (w->unnotified && dt__pool_has_idle(w->pool)) notify(w, w->now_ns);
    if (!w->unnotified) w->notified_ns = w->now_ns;
    if (split != NULL) {
        w->helped = true;
        if (split->call.kernel->flags & DT_KERNEL_USES_OMP) limit_omp(w);
        run = NULL;
        if (work_on_split(w, split, 0)) {
            dt__work_finish(split);
            run = end(w, split);
        }
    }
    run_chain(w, run);
    atomic_store_explicit(&w->cpu, -1, memory_order_relaxed);
}

static void *worker_main(void *argument) {
    worker *w = argument;
    dt_pool *pool = w->pool;
    w->tid = gettid();
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
        wake_all(pool, woken, true);
        work_on(w, split, run);
    }
    if (w->unnotified) notify(w, dt_clock_ns());
    return NULL;
}

/* ---- clients that help ----------------------------------------------------------------------- */

void dt__pool_helper_enter(dt_pool *pool) {
    atomic_fetch_add_explicit(&pool->helpers, 1, memory_order_relaxed);
}

void dt__pool_helper_leave(dt_pool *pool) {
    atomic_fetch_sub_explicit(&pool->helpers, 1, memory_order_release);
}

static bool client_may_take(const dt_task *run) {
    return run->kind == DT_TASK_COMPUTE && run->cost_ns <= HELP_COST_NS_MAX;
}

/* The next piece of work that a client may do. Pool lock. */
static dt_task *take_for_client(dt_pool *pool, dt_task **run, worker **woken) {
    *run = NULL;
    if (pool->splits != NULL && pool->splits->cost_ns <= HELP_COST_NS_MAX) {
        dt_task *split = join_split(pool, woken);
        if (split != NULL) return split;
    }
    const dt_task *first = pool->queue_first;
    if (first == NULL || !client_may_take(first)) return NULL;
    *run = pop(pool);
    return NULL;
}

typedef enum help { HELP_NOTHING, HELP_WORKED, HELP_LOST } help;

/* By the client that stands in for w, until its place is lost (take_lent): then w is w's again. */
static help help_once(worker *w, bool (*done)(void *context), void *context) {
    dt_pool *pool = w->pool;
    dt_task *run = NULL, *split = NULL;
    worker *woken = NULL;
    pthread_mutex_lock(&pool->lock);
    bool lost = !w->lent;
    if (!lost) {
        if (!DT_PLANT(32)) set_lent(w, false); /* before helpers are looked for */
        split = take_for_client(pool, &run, &woken);
        set_lent(w, split == NULL && run == NULL);
    }
    pthread_mutex_unlock(&pool->lock);
    if (split == NULL && run == NULL) return lost ? HELP_LOST : HELP_NOTHING;
    wake_all(pool, woken, true);
    bool omp_set = w->omp_set;
    w->omp_set = false;
    w->done = done;
    w->done_context = context;
    work_on(w, split, run);
    if (w->client_omp != 0) set_omp(w->client_omp);
    w->client_omp = 0;
    w->omp_set = omp_set;
    w->done = NULL;
    pthread_mutex_lock(&pool->lock);
    set_lent(w, true);
    pthread_mutex_unlock(&pool->lock);
    return HELP_WORKED;
}

/* The worker that the client stood in for is idle again, or has to see to what came meanwhile. */
static bool stand_down(worker *w) {
    dt_pool *pool = w->pool;
    pthread_mutex_lock(&pool->lock);
    if (!w->lent) { /* lost just now */
        pthread_mutex_unlock(&pool->lock);
        return false;
    }
    set_lent(w, false);
    bool work = pool->queue_first != NULL || pool->splits != NULL || pool->exiting ||
                w->index >= atomic_load_explicit(&pool->threads, memory_order_relaxed);
    w->idle_next = NULL;
    bool unnotified = mark_notified(w);
    if (!work) {
        worker **end = &pool->idle; /* where it was */
        while (*end != NULL) end = &(*end)->idle_next;
        *end = w;
        atomic_fetch_add_explicit(&pool->idle_count, 1, memory_order_seq_cst);
    }
    pthread_mutex_unlock(&pool->lock);
    bool due = unnotified || is_idle_for_others(pool);
    if (work) wake_all(pool, w, false);
    return due;
}

bool dt__pool_help(dt_pool *pool, int64_t patience_ns, bool (*done)(void *context), void *context) {
    pthread_mutex_lock(&pool->lock);
    worker *w = take_longest_idle(pool);
    if (w != NULL) set_lent(w, true);
    pthread_mutex_unlock(&pool->lock);
    if (w == NULL) return false;
    int64_t until_ns = dt_clock_ns() + patience_ns;
    while (!done(context) && !atomic_load_explicit(&pool->shut_down, memory_order_relaxed)) {
        help what = help_once(w, done, context);
        if (what == HELP_LOST) return false;
        if (what == HELP_WORKED) {
            until_ns = dt_clock_ns() + patience_ns;
        } else if (dt_clock_ns() > until_ns) {
            break;
        }
        for (int k = 0; k < LINGER_SPINS; k++) dt_spin_pause();
        sched_yield(); /* the controller may want this core to bring the work */
    }
    return stand_down(w);
}

/* ---- from outside --------------------------------------------------------------------------- */

static void push(dt_pool *pool, dt_task *first, int count, int wakes, bool stays) {
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
    worker *woken = take_idle(pool, wakes);
    pthread_mutex_unlock(&pool->lock);
    atomic_fetch_add_explicit(&pool->runs, count, memory_order_relaxed);
    wake_all(pool, woken, stays);
}

void dt__pool_push(dt_pool *pool, dt_task *first, int count, bool stays) {
    if (count > 0) push(pool, first, count, count, stays);
}

void dt__pool_push_and_help(dt_pool *pool, dt_task *first, int count) {
    if (count > 0) push(pool, first, count, client_may_take(first) ? count - 1 : count, true);
}

void dt__pool_shut_down(dt_pool *pool) {
    atomic_store_explicit(&pool->shut_down, true, memory_order_relaxed);
}

/* One thread at a time. */
static dt_status start_workers(dt_pool *pool, int threads) {
    for (int k = started(pool); k < threads; k++) {
        worker *w;
        DT_ALLOC_OR_FAIL(w, sizeof *w);
        memset(w, 0, sizeof *w);
        w->pool = pool;
        w->keeps_off = -1;
        atomic_init(&w->cpu, -1);
        w->index = k;
        dt_status status = dt__thread_start(&w->thread, worker_main, w, "dt-wrk-%d", w->index);
        if (status != DT_OK) {
            dt_free(w, sizeof *w);
            return status;
        }
        pool->workers[k] = w;
        atomic_store_explicit(&pool->started, k + 1, memory_order_release);
    }
    return DT_OK;
}

/* Every worker looks around once. */
static void wake_everyone(dt_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    worker *woken = take_idle(pool, DT_THREADS_MAX);
    for (int k = 0; k < started(pool); k++) {
        worker *w = pool->workers[k];
        if (!w->parked) continue;
        w->parked = false;
        w->idle_next = woken;
        woken = w;
    }
    pthread_mutex_unlock(&pool->lock);
    wake_all(pool, woken, false);
}

dt_status dt__pool_set_threads(dt_pool *pool, int threads) {
    DT_ASSERT(threads >= 1 && threads <= DT_THREADS_MAX);
    int before = atomic_load_explicit(&pool->threads, memory_order_relaxed);
    pthread_mutex_lock(&pool->lock); /* workers compare under the lock before they sleep */
    atomic_store_explicit(&pool->threads, threads, memory_order_relaxed);
    pthread_mutex_unlock(&pool->lock);
    dt_status status = start_workers(pool, threads);
    if (status != DT_OK) {
        int possible = started(pool) < before ? before : started(pool);
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
    if (sched_getaffinity(0, sizeof pool->mask, &pool->mask) == 0)
        pool->cpus = CPU_COUNT(&pool->mask);
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
    while (atomic_load_explicit(&pool->helpers, memory_order_acquire) > 0) sched_yield();
    wake_everyone(pool);
    for (int k = 0; k < started(pool); k++) {
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
bool dt__pool_watches(const dt_pool *pool) {
    return atomic_load_explicit(&pool->watchers, memory_order_seq_cst) > 0;
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
