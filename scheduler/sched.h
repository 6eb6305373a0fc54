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
 *     then to the controller again, which frees it.  (A direct task is with a worker while the
 *     controller links it: the worker keeps to the fields of the pool, the controller to those of
 *     the graph.)
 * I2: on_end runs once for each submitted task, in the thread that ended it, before any task that
 *     was waiting for it starts and after its last access to its operands' bytes; readers/writers
 *     counts have been lowered by then: a task submitted from then on may start before on_end.
 * I3: a task that touches bytes which a failed task should have written fails with the same
 *     dt_error, without running.  The error is kept in the storage (dt_storage.failure), so this
 *     holds also when the failed task has long been forgotten, and however late the client learns
 *     of the failure.  Bytes that a failed task only read are as good as before.
 * I4: one thread, the controller, owns the graph and frees tasks.
 */
#ifndef DT_SCHEDULER_SCHED_H
#define DT_SCHEDULER_SCHED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/kernel.h"
#include "runtime/status.h"
#include "scheduler/mpsc.h"

typedef struct dt_task dt_task;
typedef struct dt_sched dt_sched;

typedef enum dt_task_kind {
    DT_TASK_COMPUTE, /* call.kernel on a worker */
    DT_TASK_READ,    /* io: file bytes -> operand 0 (an output, contiguous) */
    DT_TASK_WRITE,   /* io: operand 0 (an input, contiguous) -> file */
    DT_TASK_FENCE, /* nothing to run: ends when what it reads is ready; as an output, when all that
                      use it have ended (the bytes are not written); see after_all too */
    DT_TASK_TIMER, /* io.delay_ns after submission */
    DT_TASK_ASK,   /* not a task, but a word to the controller: somebody waits again */
    DT_TASK_ABANDON, /* ... somebody has given up waiting: see dt_sched_tell */
    DT_TASK_RELEASE, /* ... user, a dt_tensor, has lost its last handle */
} dt_task_kind;

/* A file kept open by the tasks that use it. Opening fails with DT_E_OS and the errno: for what is
 * missing, not permitted, a directory, or no regular file. For writing it is created or emptied. */
typedef struct dt_file dt_file;
dt_status dt_file_open(const char *path, bool for_writing, dt_file **out) DT_MUST_CHECK;
dt_file *dt_file_retain(dt_file *file); /* NULL passes through, as below */
void dt_file_release(dt_file *file);    /* the last one closes it, any thread */
int dt_file_fd(const dt_file *file);
int64_t dt_file_size(const dt_file *file); /* as of opening */
const char *dt_file_path(const dt_file *file);

typedef struct dt_io {
    dt_file *file;    /* owned by the task */
    int64_t offset;   /* bytes in the file */
    int64_t length;   /* bytes; a short read is an error that says so */
    int64_t delay_ns; /* DT_TASK_TIMER */
    int64_t issued;   /* controller: bytes that pieces were cut from so far */
    int32_t pieces;   /* controller: pieces under way */
} dt_io;

struct dt_graph_access; /* graph.h */
struct dt_run;          /* run.h */

/* Which of two ready tasks starts first. Bulk work is overtaken for a bounded time only. */
typedef enum dt_priority {
    DT_PRIORITY_NORMAL,
    DT_PRIORITY_INTERACTIVE,
    DT_PRIORITY_BULK,
    DT_PRIORITY_COUNT,
} dt_priority;

/* Whether somebody waits for a task. */
typedef enum dt_want {
    DT_WANT_NEVER,     /* nobody has waited for it so far: it runs when its turn comes */
    DT_WANTED,         /* somebody waits now */
    DT_WANT_ABANDONED, /* who waited has given up */
} dt_want;

/* Which of the controller's lists or heaps a task is in. */
typedef enum dt_place {
    DT_PLACE_NONE,
    DT_PLACE_READY,
    DT_PLACE_READY_HEAP,
    DT_PLACE_HELD,    /* ready, and held back for others that may fuse with it */
    DT_PLACE_PARKED,  /* ready, and nobody asks for it */
    DT_PLACE_STARVED, /* ready, but for want of memory */
} dt_place;

/* NEW -> LINKED -> HANDED -> RUNNING -> ENDED, or from NEW to HANDED when direct.  The worker that
 * takes a task does it by compare-and-swap from HANDED, as does the controller that decides
 * otherwise meanwhile: DROPPED and TAKEN_BACK tell the worker, when it comes to the task, to end it
 * at once, or to give it back, after which it is LINKED again. */
typedef enum dt_task_state {
    DT_TASK_NEW,    /* the client's */
    DT_TASK_LINKED, /* the controller's: in the graph, perhaps ready */
    DT_TASK_HANDED, /* in a run that a worker has or will have */
    DT_TASK_RUNNING,
    DT_TASK_ENDED,
    DT_TASK_DROPPED,
    DT_TASK_TAKEN_BACK,
} dt_task_state;

struct dt_task {
    dt_mpsc_node submit_node; /* submission queue */
    dt_mpsc_node end_node;    /* completion queue; a direct task can be in both at once */
    dt_task *next;            /* ready queue, pool queue: wherever else it waits */
    uint8_t kind;             /* dt_task_kind */
    bool fusible;             /* may be computed in one pass with others (fuse.h) ... */
    bool holdable;            /* ... and worth holding back for them */
    uint8_t priority;         /* dt_priority */
    bool direct;              /* went straight to a worker (see dt_sched_submit) */
    bool linked;              /* controller: in the graph */
    bool after_all;           /* a fence without operands that ends when all earlier tasks have */
    _Atomic(uint8_t) state;   /* dt_task_state */
    uint64_t seq;             /* program order; set by submit */
    dt_call call;             /* operands (retained): reads and writes follow from it */
    dt_io io;
    void (*on_end)(dt_task *task);  /* any C thread: must not block nor take the GIL */
    void *user;                     /* on_end's; the futures layer keeps its dt_future here */
    void (*on_free)(dt_task *task); /* controller or client: user may go; NULL: nothing to do */
    dt_want (*want)(const dt_task *task); /* any thread; NULL: DT_WANT_NEVER */
    dt_error *error;                      /* set before on_end when the task failed; owned */
    double cost_ns;                       /* kernel->cost_ns of the call; 0: submit asks for it */
    uint32_t site;   /* the client's call site, for errors and traces; 0: unknown */
    uint32_t client; /* the number of its call in a profile (trace.h); 0: none */
    int64_t time_submit_ns, time_start_ns, time_end_ns; /* CLOCK_MONOTONIC, for traces */

    /* pool */
    _Atomic(dt_task *) run_next;   /* the next task of the run; closed once this one has ended */
    _Atomic(int32_t) parts_next;   /* parts claimed */
    _Atomic(uint64_t) parts_taken; /* which, as bits, where there are few */
    _Atomic(int32_t) parts_left;   /* workers that may still touch a split task */
    _Atomic(int32_t) part_failed;
    int32_t parts;
    bool split_open; /* pool lock: others may still join */
    bool returned;   /* the worker gave it back, not computed ... */
    bool starved;    /* ... for want of memory */
    bool dropped;
    int32_t members;      /* of the pass that it leads; 1: alone */
    struct dt_pass *pass; /* of more than one */
    uint64_t leader_seq;  /* of the pass that it was computed in; 0: alone */
    void *scratch;
    size_t scratch_bytes;

    /* graph, controller only */
    int32_t blockers; /* accesses not granted yet */
    int32_t accesses_count, accesses_capacity;
    struct dt_graph_access *accesses;
    struct dt_run *run;
    double run_cost_ns;   /* what it counts for in its run */
    int64_t handed_bytes; /* see starve.c */
    int64_t starved_ns;   /* when it last began to; 0: never */
    bool tries;           /* handed over, after it has starved */
    bool waited_for;      /* others wait for this task, which is not the last of its run */
    bool fuses;           /* with those before it in its run, as far back as they fuse */
    bool parked;          /* nobody asks for it any more: not to be started */
    bool marked_needed, marked_abandoned; /* by those that wait for it, during a sweep */
    bool last_chance;         /* nothing before it can free memory: out of memory is final */
    uint8_t place;            /* dt_place: which of the controller's lists it is in */
    dt_task *older, *younger; /* all linked tasks, in program order */
    dt_task *list_prev, *list_next;
    int64_t open; /* after_all: tasks between the fence of this sort before it and it, not
                     retired yet */
    dt_task *heap_child, *heap_sibling, *heap_prev; /* ready and timer heaps */
    uint64_t heap_key;
    size_t block_bytes; /* of the memory block that this task is */
};

/* A zeroed task of `kind` with call set up for nout/nin operands. NULL operands must be filled in
 * (retained) before submit. */
dt_status dt_task_new(dt_task_kind kind, int nout, int nin, dt_task **out) DT_MUST_CHECK;
void dt_task_free(dt_task *task); /* only before submit; NULL passes through */

/* Marks what the call would have written as failed (dt_storage.failure; the first error stays). For
 * ops that fail in the client; tasks do it themselves. */
void dt_call_fail_outputs(const dt_call *call, dt_error *error);
/* The error of the first operand whose writer failed, borrowed; NULL: all good. */
dt_error *dt_call_operand_failure(const dt_call *call);

typedef struct dt_sched_options {
    int threads;         /* workers; 0: min(affinity, cgroup cpu.max) */
    const char *io;      /* "uring", "epoll" or NULL: uring, stepping down on any error */
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
 * intrusive. Ask dt_sched_full first. Not concurrent with, nor after, dt_sched_stop.
 *
 * Direct tasks: when the controller sleeps, a worker is idle and no task in flight conflicts with
 * this one (by the storages' counts, which only clients raise, under their lock), and memory is
 * not limited, it needs no decision: it goes to the worker at once, and to the controller's queue
 * without waking it.  The controller hears of it no later than of its end, because it takes
 * completions before submissions, and until then nobody can have been linked behind it. */
void dt_sched_submit(dt_sched *sched, dt_task *task);

/* Somebody is about to wait for something that was submitted: nothing submitted so far is held back
 * any longer for others that it could be computed with.  When the controller sleeps, the client
 * does its work: a wake-up takes longer.  `helps`: dt_sched_help follows. Client lock. */
void dt_sched_demand(dt_sched *sched, bool helps);

/* For a client thread that is about to sleep until done(context): it computes meanwhile what is
 * queued, in place of an idle worker.  _enter under the client lock, then _help without (and
 * without the GIL), once. */
void dt_sched_helper_enter(dt_sched *sched);
void dt_sched_help(dt_sched *sched, bool (*done)(void *context), void *context);

/* Words of clients about who waits, in their turn among the submissions.  ASK: somebody waits for a
 * task again (its want() says so already); needed only when dt_sched_has_parked.  ABANDON: want()
 * of a task now says so.  RELEASE: the last handle of `t` has gone while it was still to be
 * written; takes the reference.  Client lock.  Out of memory loses no ASK and no reference. */
void dt_sched_tell(dt_sched *sched, dt_task_kind word, struct dt_tensor *t);
bool dt_sched_has_parked(const dt_sched *sched);

/* Whether element-wise tasks are computed in one pass where possible: true unless the environment
 * has DTORCH_FUSION=0. Never changes a result. */
void dt_sched_set_fusion(dt_sched *sched, bool on);

bool dt_sched_full(const dt_sched *sched); /* records_max tasks are in flight */
int64_t dt_sched_in_flight(const dt_sched *sched);

/* Blocks until fewer than records_max tasks are in flight or timeout_ns passed. No GIL. */
dt_status dt_sched_wait_room(dt_sched *sched, int64_t timeout_ns);

int dt_sched_threads(const dt_sched *sched);
/* 1..DT_THREADS_MAX. Returns at once: workers beyond the new number stop after their current run.
 */
dt_status dt_sched_set_threads(dt_sched *sched, int threads) DT_MUST_CHECK;
#define DT_THREADS_MAX 1024
const char *dt_sched_io_backend(const dt_sched *sched); /* "uring" or "epoll" */
const char *dt_sched_io_reason(const dt_sched *sched);  /* why that one, a sentence */
int dt_sched_default_threads(void);

typedef struct dt_sched_stats {
    int64_t submitted, ended, failed;
    int64_t direct;  /* tasks that skipped the controller on their way to a worker */
    int64_t chained; /* tasks that followed another one in its run */
    int64_t fused;   /* tasks computed in a pass with others */
    int64_t passes;
    int64_t dropped; /* not computed, since nobody could see the result */
    int64_t parked;  /* times that a task was put aside because its waiters had given up */
    int64_t runs;    /* hand-overs to workers; tasks / runs is the length of chains */
    int64_t controller_wakeups, worker_wakeups;
    int64_t io_reads, io_writes, io_bytes;
} dt_sched_stats;
void dt_sched_stats_get(const dt_sched *sched, dt_sched_stats *stats);

#endif
