/* controller.h: the scheduler's state, shared by sched.c (clients) and controller.c (thread). */
#ifndef DT_SCHEDULER_CONTROLLER_H
#define DT_SCHEDULER_CONTROLLER_H

#include <pthread.h>
#include <semaphore.h>

#include "scheduler/io.h"
#include "scheduler/mpsc.h"
#include "scheduler/pool.h"
#include "scheduler/ready.h"
#include "scheduler/run.h"
#include "scheduler/sched.h"

#define DT__HOLD_COST_NS 50000.0 /* fusible tasks that cost less are never held */

#define DT__BURSTS 256 /* see sched.c: how often tasks of a kind had others close behind */

/* Where the controller's time comes from; a simulator brings its own. */
typedef struct dt_clock {
    int64_t (*now_ns)(void *context);
    void *context;
} dt_clock;

/* The controller's alone. */
typedef struct dt_controller {
    dt_clock clock;
    dt_mpsc_node *taken_first, *taken_last; /* submissions not yet linked */
    dt_task *oldest, *youngest;             /* all linked tasks that are not retired */
    dt_ready ready;                         /* compute tasks */
    dt_list held, parked, starved;          /* ready, but see dt_place */
    dt_task *now_first, *now_last;          /* tasks of other kinds that can start at once */
    dt_task *timers;                        /* heap by deadline */
    dt_task *fences_first, *fences_last;    /* with after_all, in program order */
    int64_t open;          /* other tasks linked behind the last such fence and not retired */
    int64_t handed;        /* tasks that a worker has or will have */
    int64_t handed_bytes;  /* of memory that those may still take, where there is a limit */
    int64_t submitted_ns;  /* when the youngest linked task was submitted */
    int64_t linger_ns;     /* until when the controller stays awake */
    int64_t held_since_ns; /* when the first of the held tasks began to be */
    int64_t linked;        /* tasks ever linked */
    int64_t mercy_ns;      /* until when those that starve wait for clients; 0: they do not */
    struct {               /* starve.c: the oldest that starves when nothing else can run */
        uint64_t seq, picked_seq; /* and the younger one that may try */
        int64_t since_ns, live;   /* the least that was in use since then, bytes */
        bool failed;              /* the one before did */
    } hungry;
    int64_t trying; /* handed over, after they have starved */
    bool watches;   /* frees of memory */
    bool sweep_due; /* who waits for what has changed */
    bool spares;    /* the last sweep: a task nobody waits for but one behind it */
    bool stopping;
    dt_task *batch_first, *batch_last; /* runs to hand over at the end of this round */
    int batch_count;
    double batch_cost_ns;
} dt_controller;

struct dt_sched {
    /* any thread */
    _Alignas(64) dt_mpsc submitted;
    _Alignas(64) dt_mpsc ended;
    _Alignas(64) dt_gate gate;
    _Atomic(bool) stop;
    _Atomic(int64_t) in_flight;
    _Atomic(int64_t) stat_submitted, stat_ended, stat_failed, stat_direct, stat_chained;
    _Atomic(int64_t) stat_wakeups, stat_reads, stat_writes, stat_bytes;
    _Atomic(int64_t) stat_fused, stat_passes, stat_dropped, stat_parked;
    _Atomic(uint64_t) demanded; /* somebody waits: nothing up to this seq is held back */
    _Atomic(bool) parks;        /* something is parked, or is about to be */
    _Atomic(bool) wants_all;    /* unpark all */
    _Atomic(bool) fuses;        /* see dt_sched_set_fusion */
    _Atomic(bool) memory_freed; /* by anybody, since a task began to starve */

    /* fixed after start */
    _Alignas(64) dt_pool *pool;
    dt_io_engine *io;
    uint8_t owner; /* this scheduler's number, see graph.h */
    void *block;   /* the memory that this struct lies in */
    int64_t records_max;
    pthread_t thread;

    /* start */
    const char *io_wanted;
    dt_error *start_error;
    sem_t started;

    pthread_mutex_t role; /* held by whoever does a round; guards `controller` */
    _Atomic(uint32_t) rounds;

    uint64_t seq; /* client lock, as is all of the following */
    struct {      /* the last fusible task, see sched.c */
        uint32_t kind;
        bool alone;
    } last;
    uint8_t bursts[DT__BURSTS];
    bool quiet; /* nobody was woken for the last task */

    /* clients that wait for room */
    _Atomic(int32_t) room_waiters;
    pthread_mutex_t room_lock;
    pthread_cond_t room;

    _Alignas(64) dt_controller controller;
};

static inline int64_t dt__now(dt_sched *s) {
    dt_clock *clock = &s->controller.clock;
    return clock->now_ns(clock->context);
}

/* The controller thread. */
void *dt__controller_main(void *sched);

/* Who does a round: the controller's thread; a client that goes on with something else, or to
 * dt_sched_help; a worker that has nothing to do. */
typedef enum dt_round_by { DT_BY_CONTROLLER, DT_BY_CLIENT, DT_BY_HELPER, DT_BY_WORKER } dt_round_by;

/* Another thread's turn at the loop, when nobody else is at it: all but I/O and timers.  False:
 * somebody else is at it, or there is too much to do. */
bool dt__controller_assist(dt_sched *s, dt_round_by by);

/* One turn of its loop, in three: closes the gate and says until when to sleep (0: not at all;
 * negative: until woken), and opens the gate again and does what there is to do. */
int64_t dt__controller_before_wait(dt_sched *s);
void dt__controller_round(dt_sched *s);
bool dt__controller_is_over(dt_sched *s);

/* ---- shared by controller.c and demand.c; the controller thread ---- */

/* Ends a task that no worker has, and retires it. */
void dt__controller_end(dt_sched *s, dt_task *task);
/* Puts a ready compute task, which is in no list, where it belongs. */
void dt__controller_place(dt_sched *s, dt_task *task);
/* Takes it out of whichever list it is in. */
void dt__controller_displace(dt_sched *s, dt_task *task);

/* starve.c: for want of memory. */
void dt__starve(dt_sched *s, dt_task *task);       /* in no list; a worker has given it back */
void dt__starve_leave(dt_sched *s, dt_task *task); /* leaves the list */
/* Whether memory would run short with the task: then tasks start one after the other, so that what
 * the older ones free is there for the younger. */
bool dt__starve_is_near(dt_sched *s, dt_task *task);
/* Whether the task has to stand back for an older one that starves. */
bool dt__starve_yields(dt_sched *s, dt_task *task);
/* A task is handed over, and a worker has done with it or given it back. */
void dt__starve_note_handed(dt_sched *s, dt_task *task);
void dt__starve_note_back(dt_sched *s, dt_task *task);
void dt__starve_feed(dt_sched *s);         /* memory may have been freed */
void dt__starve_wait_or_fail(dt_sched *s); /* when all has been handed over that can be */

/* demand.c: a word of a client has come in its turn; takes the node. */
void dt__demand_hear(dt_sched *s, dt_task *word);
/* Whether somebody outside waits for the task, as for all that has effects outside. */
dt_want dt__demand_want(const dt_task *task);
/* Brings what is parked into line with who waits. */
void dt__demand_sweep(dt_sched *s);

/* Any thread: there is something in the queues. */
static inline void dt__sched_knock(dt_sched *s) {
    if (dt_gate_knock(&s->gate)) dt__io_wake(s->io);
}

#endif
