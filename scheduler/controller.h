/* controller.h: the scheduler's state, shared by sched.c (clients) and controller.c (thread). */
#ifndef DT_SCHEDULER_CONTROLLER_H
#define DT_SCHEDULER_CONTROLLER_H

#include <pthread.h>
#include <semaphore.h>

#include "scheduler/io.h"
#include "scheduler/mpsc.h"
#include "scheduler/pool.h"
#include "scheduler/ready.h"
#include "scheduler/sched.h"

/* Where the controller's time comes from; a simulator brings its own. */
typedef struct dt_clock {
    int64_t (*now_ns)(void *context);
    void *context;
} dt_clock;

/* The controller's alone. */
typedef struct dt_controller {
    dt_clock clock;
    dt_mpsc_node *taken_first, *taken_last; /* submissions not yet linked */
    dt_ready ready;                         /* compute tasks */
    dt_task *now_first, *now_last;          /* tasks of other kinds that can start at once */
    dt_task *timers;                        /* heap by deadline */
    dt_task *fences_first, *fences_last;    /* with after_all, in program order */
    int64_t open; /* other tasks linked behind the last such fence and not retired */
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

    uint64_t seq; /* client lock */

    /* clients that wait for room */
    _Atomic(int32_t) room_waiters;
    pthread_mutex_t room_lock;
    pthread_cond_t room;

    _Alignas(64) dt_controller controller;
};

/* The controller thread. */
void *dt__controller_main(void *sched);

/* Any thread: there is something in the queues. */
static inline void dt__sched_knock(dt_sched *s) {
    if (dt_gate_knock(&s->gate)) dt__io_wake(s->io);
}

#endif
