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
#include "scheduler/controller.h"
#include "scheduler/futex.h"
#include "scheduler/run.h"
#include "scheduler/task.h"
#include "scheduler/threads.h"

#define SCHED_ALIGN 64
#define RECORDS_MAX 1000000
#define COST_NS_MIN 500.0 /* what any task costs a worker, with its end */

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
    pthread_mutex_init(&s->room_lock, NULL);
    pthread_cond_init(&s->room, &attr);
    pthread_condattr_destroy(&attr);
}

static void free_sched(dt_sched *s) {
    pthread_cond_destroy(&s->room);
    pthread_mutex_destroy(&s->room_lock);
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
    init_locks(s);
    dt_pool_events events = {s, on_task_ended, on_pool_notify};
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

/* ---- submit --------------------------------------------------------------------------------- */

static void estimate_cost(dt_task *task) {
    if (task->kind == DT_TASK_COMPUTE && !(task->cost_ns > 0))
        task->cost_ns = task->call.kernel->cost_ns(&task->call);
    if (!(task->cost_ns > COST_NS_MIN)) task->cost_ns = COST_NS_MIN;
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
    atomic_fetch_add_explicit(&s->in_flight, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->stat_submitted, 1, memory_order_relaxed);
    task->direct = unblocked && task->kind == DT_TASK_COMPUTE &&
                   task->call.nout + task->call.nin <= task->accesses_capacity &&
                   dt_gate_is_closed(&s->gate) && dt__pool_has_idle(s->pool);
    if (!task->direct) {
        dt_mpsc_push(&s->submitted, &task->submit_node);
        dt__sched_knock(s);
        return;
    }
    atomic_fetch_add_explicit(&s->stat_direct, 1, memory_order_relaxed);
    atomic_store_explicit(&task->state, DT_TASK_HANDED, memory_order_relaxed);
    task->next = NULL;
    dt_mpsc_push(&s->submitted, &task->submit_node); /* first: see controller.c, I1 */
    dt__pool_push(s->pool, task, 1);
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
    return dt__pool_set_threads(s->pool, threads);
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
        .runs = dt__pool_runs(s->pool),
        .controller_wakeups = stat(&s->stat_wakeups),
        .worker_wakeups = dt__pool_wakeups(s->pool),
        .io_reads = stat(&s->stat_reads),
        .io_writes = stat(&s->stat_writes),
        .io_bytes = stat(&s->stat_bytes),
    };
}
