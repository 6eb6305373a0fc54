/* sched.c: the clients' side of the scheduler: start, submit, questions, stop.
 *
 * I1: dt_sched_submit neither blocks nor allocates nor fails.
 * I2: after dt_sched_stop nothing of the scheduler is left: no thread, no descriptor, no memory.
 */
#include "scheduler/sched.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "runtime/device.h"
#include "scheduler/controller.h"
#include "scheduler/futex.h"
#include "scheduler/plant.h"
#include "scheduler/run.h"
#include "scheduler/task.h"
#include "scheduler/threads.h"

#define SCHED_ALIGN 64
#define RECORDS_MAX 1000000
#define HELP_PATIENCE_NS 40000 /* how long a client that could help looks for something to do */
#define COST_NS_MIN 500.0      /* what any task costs a worker, with its end */

static int64_t monotonic_ns(void *context) {
    (void)context;
    return dt_clock_ns();
}

/* Differs between a scheduler and those of parent processes, whose traces a fork leaves in
 * storages; the counter is inherited. Never 0, which is what a new storage says. */
static uint8_t next_owner(void) {
    static _Atomic(uint32_t) starts;
    return (uint8_t)(atomic_fetch_add_explicit(&starts, 1, memory_order_relaxed) % 255 + 1);
}

/* ---- what workers tell ---------------------------------------------------------------------- */

static void on_task_ended(void *context, dt_task *task) {
    dt_sched *s = context;
    dt_mpsc_push(&s->ended, &task->end_node);
}

static void on_pool_notify(void *context) { dt__sched_knock(context); }

static void on_pool_idle(void *context) {
    if (!dt__controller_assist(context, DT_BY_WORKER)) dt__sched_knock(context);
}

static const void *last_unheard(void *context) {
    dt_sched *s = context;
    return atomic_load_explicit(&s->submitted.head, memory_order_seq_cst);
}

/* ---- start and stop ------------------------------------------------------------------------- */

static dt_status join_and_restore(dt_sched *s) {
    pthread_join(s->thread, NULL);
    dt_status status = dt_error_restore(s->start_error);
    dt_error_release(s->start_error);
    return status;
}

static dt_status start_controller(dt_sched *s, const char *io) {
    s->io_wanted = io;
    sem_init(&s->started, 0, 0);
    dt_status status = dt__thread_start(&s->thread, dt__controller_main, s, "dt-ctl", 0);
    if (status == DT_OK) {
        while (sem_wait(&s->started) != 0) {} /* EINTR */
        if (s->start_error != NULL) status = join_and_restore(s);
    }
    sem_destroy(&s->started);
    return status;
}

static void stop_controller(dt_sched *s) {
    atomic_store_explicit(&s->stop, true, memory_order_seq_cst);
    dt__io_wake(s->io);
    pthread_join(s->thread, NULL);
}

static void init_locks(dt_sched *s) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->role, NULL);
    pthread_mutex_init(&s->room_lock, NULL);
    pthread_cond_init(&s->room, &attr);
    pthread_condattr_destroy(&attr);
}

static void free_sched(dt_sched *s) {
    pthread_cond_destroy(&s->room);
    pthread_mutex_destroy(&s->room_lock);
    pthread_mutex_destroy(&s->role);
    dt_free(s->block, sizeof *s + SCHED_ALIGN);
}

dt_status dt_sched_start(const dt_sched_options *options, dt_sched **out) {
    int threads = options->threads != 0 ? options->threads : dt_sched_default_threads();
    if (threads < 1 || threads > DT_THREADS_MAX)
        return dt_fail(DT_E_VALUE, "the number of threads must be 1 to %d, not %d", DT_THREADS_MAX,
                       threads);
    if (options->records_max < 0) return dt_fail(DT_E_VALUE, "records_max must not be negative");
    void *block;
    DT_ALLOC_OR_FAIL(block, sizeof(dt_sched) + SCHED_ALIGN);
    dt_sched *s =
        (dt_sched *)(((uintptr_t)block + SCHED_ALIGN - 1) & ~(uintptr_t)(SCHED_ALIGN - 1));
    memset(s, 0, sizeof *s);
    s->block = block;
    s->owner = next_owner();
    s->records_max = options->records_max != 0 ? options->records_max : RECORDS_MAX;
    s->controller.clock.now_ns = monotonic_ns;
    const char *fusion = getenv("DTORCH_FUSION");
    atomic_init(&s->fuses, fusion == NULL || strcmp(fusion, "0") != 0);
    init_locks(s);
    dt_pool_events events = {s, on_task_ended, on_pool_notify, on_pool_idle, last_unheard};
    dt_status status = dt__pool_start(threads, &events, &s->pool);
    if (status == DT_OK) {
        status = start_controller(s, options->io != NULL ? options->io : getenv("DTORCH_IO"));
        if (status != DT_OK) dt__pool_stop(s->pool);
    }
    if (status != DT_OK) {
        free_sched(s);
        return status;
    }
    *out = s;
    return DT_OK;
}

void dt_sched_stop(dt_sched *s) {
    dt__pool_shut_down(s->pool);
    stop_controller(s);
    DT_ASSERT(dt_mpsc_is_empty(&s->submitted) && dt_mpsc_is_empty(&s->ended));
    dt__pool_stop(s->pool);
    dt__io_close(s->io);
    free_sched(s);
}

void dt_sched_abandon(dt_sched *s) {
    /* Its threads do not exist here, and its ring and eventfd are still the parent's: nothing may
     * be waited for, woken or closed. */
    (void)s;
}

/* ---- bursts ---------------------------------------------------------------------------------
 *
 * Whether a fusible task is worth holding back depends on what comes next, which is foretold from
 * what came the last times: for each kind of task (op, dtype, size) a counter goes up when another
 * fusible one followed before anybody waited, and down when somebody waited for it alone.  Heavy
 * tasks are held in any case. */

#define BURST_COST_NS 4000.0 /* less is not worth foretelling */
#define BURST_LIKELY 2       /* of 3 */

static uint32_t burst_kind(const dt_task *task) {
    uint64_t size = (uint64_t)dt_call_out(&task->call, 0)->numel;
    uint64_t key = size * 2654435761u + task->call.op * 40503u + task->call.compute;
    return (uint32_t)(key ^ key >> 15) % DT__BURSTS;
}

static void note_burst(dt_sched *s, const dt_task *task) {
    if (s->last.alone && s->bursts[s->last.kind] < 3) s->bursts[s->last.kind]++;
    s->last.kind = burst_kind(task);
    s->last.alone = true;
}

static void note_wait(dt_sched *s) {
    if (s->last.alone && s->bursts[s->last.kind] > 0) s->bursts[s->last.kind]--;
    s->last.alone = false;
}

/* Whether others that can be computed in the same pass may be close behind. */
static bool is_holdable(dt_sched *s, const dt_task *task) {
    if (!task->fusible || !atomic_load_explicit(&s->fuses, memory_order_relaxed)) return false;
    note_burst(s, task);
    if (task->cost_ns >= DT__HOLD_COST_NS) return true;
    return task->cost_ns >= BURST_COST_NS && s->bursts[s->last.kind] >= BURST_LIKELY;
}

/* ---- submit --------------------------------------------------------------------------------- */

static void estimate_cost(dt_task *task) {
    if (task->kind == DT_TASK_COMPUTE && !(task->cost_ns > 0))
        task->cost_ns = task->call.kernel->cost_ns(&task->call);
    if (!(task->cost_ns > COST_NS_MIN)) task->cost_ns = COST_NS_MIN;
    if (task->kind != DT_TASK_COMPUTE || !(task->call.kernel->flags & DT_KERNEL_FUSIBLE)) return;
    const dt_fuse_ops *fuse = dt_device_cpu()->fuse;
    task->fusible = fuse != NULL && fuse->fusible(&task->call);
}

/* Whether it is enough that somebody sees it before long who is awake anyway: it would be held
 * back, or goes on from what is. */
static bool can_be_quiet(const dt_sched *s, const dt_task *task) {
    return task->holdable || (task->fusible && s->quiet);
}

void dt_sched_submit(dt_sched *s, dt_task *task) {
    DT_ASSERT(atomic_load_explicit(&task->state, memory_order_relaxed) == DT_TASK_NEW);
    DT_ASSERT(task->kind != DT_TASK_COMPUTE || task->call.kernel != NULL);
    DT_ASSERT(!task->after_all ||
              (task->kind == DT_TASK_FENCE && task->call.nout + task->call.nin == 0));
    estimate_cost(task);
    task->seq = ++s->seq;
    task->time_submit_ns = dt_clock_ns();
    bool unblocked = dt__task_raise_counts(task);
    task->holdable = is_holdable(s, task);
    atomic_fetch_add_explicit(&s->in_flight, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->stat_submitted, 1, memory_order_relaxed);
    task->direct = unblocked && task->kind == DT_TASK_COMPUTE &&
                   task->call.nout + task->call.nin <= task->accesses_capacity && !task->holdable &&
                   dt_memory_limit() == 0 && dt_gate_is_closed(&s->gate) &&
                   dt__pool_has_idle(s->pool);
    if (!task->direct) {
        bool awake = DT_PLANT(1) && !dt_gate_is_closed(&s->gate);
        bool quiet = can_be_quiet(s, task);
        dt_mpsc_push(&s->submitted, &task->submit_node);
        /* From here on the task may be gone. */
        s->quiet = quiet && dt__pool_watches(s->pool);
        if (!awake && !s->quiet) dt__sched_knock(s);
        return;
    }
    atomic_fetch_add_explicit(&s->stat_direct, 1, memory_order_relaxed);
    atomic_store_explicit(&task->state, DT_TASK_HANDED, memory_order_relaxed);
    task->next = NULL;
    dt_mpsc_push(&s->submitted, &task->submit_node); /* first: see controller.c, I1 */
    dt__pool_push(s->pool, task, 1, true);
}

void dt_sched_demand(dt_sched *s, bool helps) {
    note_wait(s);
    s->quiet = false;
    if (atomic_load_explicit(&s->demanded, memory_order_relaxed) < s->seq)
        atomic_store_explicit(&s->demanded, s->seq, memory_order_release);
    if (dt_mpsc_is_empty(&s->submitted)) return;
    if (!dt__controller_assist(s, helps ? DT_BY_HELPER : DT_BY_CLIENT)) dt__sched_knock(s);
}

void dt_sched_helper_enter(dt_sched *s) { dt__pool_helper_enter(s->pool); }

void dt_sched_help(dt_sched *s, bool (*done)(void *context), void *context) {
    bool due = dt__pool_help(s->pool, HELP_PATIENCE_NS, done, context);
    if (due && !dt__controller_assist(s, DT_BY_CLIENT)) dt__sched_knock(s);
    dt__pool_helper_leave(s->pool);
}

bool dt_sched_has_parked(const dt_sched *s) {
    return atomic_load_explicit(&s->parks, memory_order_seq_cst);
}

static void want_all(dt_sched *s) {
    atomic_store_explicit(&s->wants_all, true, memory_order_seq_cst);
    dt__sched_knock(s);
}

void dt_sched_tell(dt_sched *s, dt_task_kind word, struct dt_tensor *t) {
    DT_ASSERT(word >= DT_TASK_ASK && (word == DT_TASK_RELEASE) == (t != NULL));
    dt_task *task;
    if (dt_task_new(word, 0, 0, &task) != DT_OK) {
        if (word == DT_TASK_ASK) want_all(s);
        if (t != NULL) dt_tensor_release(t);
        return;
    }
    task->user = t;
    dt_mpsc_push(&s->submitted, &task->submit_node);
    dt__sched_knock(s);
}

void dt_sched_set_fusion(dt_sched *s, bool on) {
    atomic_store_explicit(&s->fuses, on, memory_order_relaxed);
}

/* ---- room ----------------------------------------------------------------------------------- */

int64_t dt_sched_in_flight(const dt_sched *s) {
    return atomic_load_explicit(&s->in_flight, memory_order_relaxed);
}

bool dt_sched_full(const dt_sched *s) { return dt_sched_in_flight(s) >= s->records_max; }

dt_status dt_sched_wait_room(dt_sched *s, int64_t timeout_ns) {
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    int64_t nsec = deadline.tv_nsec + (timeout_ns > 0 ? timeout_ns % 1000000000 : 0);
    deadline.tv_sec += (timeout_ns > 0 ? timeout_ns / 1000000000 : 0) + nsec / 1000000000;
    deadline.tv_nsec = nsec % 1000000000;
    int rc = 0;
    pthread_mutex_lock(&s->room_lock);
    atomic_fetch_add_explicit(&s->room_waiters, 1, memory_order_seq_cst);
    if (dt_sched_has_parked(s)) want_all(s); /* they take room, and nobody may ever ask */
    while (atomic_load_explicit(&s->in_flight, memory_order_seq_cst) >= s->records_max && rc == 0)
        rc = timeout_ns < 0 ? pthread_cond_wait(&s->room, &s->room_lock)
                            : pthread_cond_timedwait(&s->room, &s->room_lock, &deadline);
    atomic_fetch_sub_explicit(&s->room_waiters, 1, memory_order_relaxed);
    pthread_mutex_unlock(&s->room_lock);
    return rc == ETIMEDOUT && dt_sched_full(s) ? DT_IN_PROGRESS : DT_OK;
}

/* ---- questions ------------------------------------------------------------------------------ */

int dt_sched_threads(const dt_sched *s) { return dt__pool_threads(s->pool); }

dt_status dt_sched_set_threads(dt_sched *s, int threads) {
    if (threads < 1 || threads > DT_THREADS_MAX)
        return dt_fail(DT_E_VALUE, "the number of threads must be 1 to %d, not %d", DT_THREADS_MAX,
                       threads);
    dt_status status = dt__pool_set_threads(s->pool, threads);
    dt__sched_knock(s); /* more of them want more work */
    return status;
}

const char *dt_sched_io_backend(const dt_sched *s) { return s->io->backend->name; }
const char *dt_sched_io_reason(const dt_sched *s) { return s->io->reason; }

static int64_t stat(const _Atomic(int64_t) *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void dt_sched_stats_get(const dt_sched *s, dt_sched_stats *stats) {
    *stats = (dt_sched_stats){
        .submitted = stat(&s->stat_submitted),
        .ended = stat(&s->stat_ended),
        .failed = stat(&s->stat_failed),
        .direct = stat(&s->stat_direct),
        .chained = stat(&s->stat_chained),
        .fused = stat(&s->stat_fused),
        .passes = stat(&s->stat_passes),
        .dropped = stat(&s->stat_dropped),
        .parked = stat(&s->stat_parked),
        .runs = dt__pool_runs(s->pool),
        .controller_wakeups = stat(&s->stat_wakeups),
        .worker_wakeups = dt__pool_wakeups(s->pool),
        .io_reads = stat(&s->stat_reads),
        .io_writes = stat(&s->stat_writes),
        .io_bytes = stat(&s->stat_bytes),
    };
}
