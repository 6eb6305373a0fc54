/* sched.h: what the rest of dtorch knows of the scheduler.
 *
 * Tasks are submitted in program order by clients (serialised by the client lock), linked by the
 * controller thread through the storages they read and write, run by workers (compute) or by the
 * ring (I/O), and ended exactly once through task->on_end.
 *
 *   submit --(mpsc)--> controller: link --ready--> pool / ring --end--> on_end, completion queue
 *                          ^                                                   |
 *                          '-------------- release dependents, retire ---------'
 *
 * Who may call what:
 *   client      dt_task_new, dt_sched_submit, dt_sched_* queries
 *   controller  everything named dt__graph, dt__ring, ...
 *   worker      dt__pool_*; ends tasks
 *
 * I1: a task's fields other than the atomics belong to the client until submit, then to the
 *     controller until it is handed to a worker, then to that worker until its end is published,
 *     then to the controller again, which frees it.
 * I2: on_end runs once for each submitted task, in the thread that ended it, before any dependent
 *     starts and after the task's last access to its operands' bytes; readers/writers counts have
 *     been lowered by then.
 * I3: a failed task fails its dependents with the same dt_error without running them (unless the
 *     dependency is write-after-read only).
 */
#ifndef DT_SCHEDULER_SCHED_H
#define DT_SCHEDULER_SCHED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/kernel.h"
#include "runtime/status.h"

typedef struct dt_task dt_task;
typedef struct dt_sched dt_sched;

typedef enum dt_task_kind {
    DT_TASK_COMPUTE, /* call.kernel on a worker */
    DT_TASK_READ,    /* io: file bytes -> operand 0 (an output, contiguous) */
    DT_TASK_WRITE,   /* io: operand 0 (an input, contiguous) -> file */
    DT_TASK_FENCE,   /* nothing to run: ends when what it reads is ready */
    DT_TASK_TIMER,   /* io.delay_ns after submission */
} dt_task_kind;

/* A file kept open by the tasks that use it. */
typedef struct dt_file dt_file;
dt_status dt_file_open(const char *path, bool for_writing, dt_file **out) DT_MUST_CHECK;
dt_file *dt_file_retain(dt_file *file);
void dt_file_release(dt_file *file); /* the last one closes it, any thread */
int dt_file_fd(const dt_file *file);
int64_t dt_file_size(const dt_file *file); /* as of opening */

typedef struct dt_io {
    dt_file *file;    /* owned by the task */
    int64_t offset;   /* bytes in the file */
    int64_t length;   /* bytes; a short read is an error that says so */
    int64_t delay_ns; /* DT_TASK_TIMER */
} dt_io;

struct dt_graph_access;

struct dt_task {
    dt_task *next; /* link of whichever queue the task is in */
    uint8_t kind;
    uint8_t priority;
    _Atomic(uint8_t) state;
    uint64_t seq;         /* program order; set by submit */
    dt_call call;         /* operands (retained): reads and writes follow from it */
    dt_io io;
    void (*on_end)(dt_task *task); /* any C thread: must not block nor take the GIL */
    void *user;           /* on_end's; the futures layer keeps its dt_future here */
    dt_error *error;      /* set before on_end when the task failed; owned */

    /* pool */
    _Atomic(int32_t) parts_next; /* next part to claim */
    _Atomic(int32_t) parts_left; /* parts not yet ended */
    int32_t parts;
    void *scratch;
    size_t scratch_bytes;
    _Atomic(int32_t) part_failed;

    /* graph, controller only */
    int32_t blockers;            /* unfinished tasks that this one waits for */
    dt_task **dependents;
    int32_t dependents_count, dependents_capacity;
    struct dt_graph_access *accesses;
    dt_task *run_next;           /* the next task of the run (chain) this one is in */
    double cost_ns;
    int64_t time_submit_ns, time_start_ns, time_end_ns; /* CLOCK_MONOTONIC, for traces */
};

/* A zeroed task of `kind` with call set up for nout/nin operands. NULL operands must be filled in
 * (retained) before submit. */
dt_status dt_task_new(dt_task_kind kind, int nout, int nin, dt_task **out) DT_MUST_CHECK;
void dt_task_free(dt_task *task); /* only before submit */

typedef struct dt_sched_options {
    int threads;        /* workers; 0: min(affinity, cgroup cpu.max) */
    const char *io;     /* "uring", "epoll" or NULL: uring, stepping down on any error */
    int64_t records_max; /* run-ahead bound; 0: 10^6 */
} dt_sched_options;

dt_status dt_sched_start(const dt_sched_options *options, dt_sched **out) DT_MUST_CHECK;

/* Ends every task not yet started with DT_E_SHUTDOWN, waits for running ones, joins all threads and
 * frees. The caller must not hold the GIL. */
void dt_sched_stop(dt_sched *sched);

/* In a forked child: forgets the parent's threads and ring (touching none of them). The memory of
 * the old scheduler is abandoned. */
void dt_sched_abandon(dt_sched *sched);

/* Hands the task over; the scheduler owns it from here. Client lock held. Raises the counts of
 * readers/writers of the operands' storages itself. Never blocks, never fails: the queue is
 * intrusive. Ask dt_sched_full first. */
void dt_sched_submit(dt_sched *sched, dt_task *task);

bool dt_sched_full(const dt_sched *sched);    /* records_max tasks are in flight */
int64_t dt_sched_in_flight(const dt_sched *sched);

/* Blocks until fewer than records_max tasks are in flight or timeout_ns passed. No GIL. */
dt_status dt_sched_wait_room(dt_sched *sched, int64_t timeout_ns);

int dt_sched_threads(const dt_sched *sched);
dt_status dt_sched_set_threads(dt_sched *sched, int threads); /* 1..DT_THREADS_MAX */
#define DT_THREADS_MAX 1024
const char *dt_sched_io_backend(const dt_sched *sched); /* "uring" or "epoll" */
const char *dt_sched_io_reason(const dt_sched *sched);  /* why that one, a sentence */
int dt_sched_default_threads(void);

typedef struct dt_sched_stats {
    int64_t submitted, ended, failed;
    int64_t runs;            /* hand-overs to workers; tasks / runs is the length of chains */
    int64_t controller_wakeups, worker_wakeups;
    int64_t io_reads, io_writes, io_bytes;
} dt_sched_stats;
void dt_sched_stats_get(const dt_sched *sched, dt_sched_stats *stats);

#endif
