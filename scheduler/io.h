/* io.h: how the controller sleeps, is woken, and moves bytes between files and memory.
 *
 * Two backends behind one table: ring.c (io_uring) and epoll.c (epoll, eventfd, timerfd and some
 * threads that call pread and pwrite).  What is common to both, cutting a task into pieces, short
 * reads, errors, is in io.c.
 *
 * Everything here belongs to the controller thread, dt__io_wake excepted.
 */
#ifndef DT_SCHEDULER_IO_H
#define DT_SCHEDULER_IO_H

#include "scheduler/sched.h"

#define DT__IO_PIECE_BYTES (4 << 20) /* pieces end at multiples of this in the file */
#define DT__IO_PIECES_MAX 32         /* under way at one time, of all tasks together */
#define DT__IO_REASON_MAX 256

/* One read or write of one piece. */
typedef struct dt_io_piece {
    struct dt_io_piece *next; /* free list, backend's queue, or the list of finished ones */
    dt_mpsc_node done_node;   /* epoll: from a thread back to the controller */
    dt_task *task;
    char *data;
    int64_t offset; /* in the file */
    uint32_t length;
    int32_t result; /* bytes moved, or -errno */
    int fd;
    bool write;
} dt_io_piece;

typedef struct dt_io_engine dt_io_engine;

typedef struct dt_io_backend {
    const char *name;
    /* Sets up engine->state. On an error nothing is left behind and the text says what failed. */
    dt_status (*open)(dt_io_engine *engine);
    void (*close)(dt_io_engine *engine); /* no piece is under way */
    /* Starts a piece. Never fails: an error becomes the piece's result. */
    void (*start)(dt_io_engine *engine, dt_io_piece *piece);
    /* Sleeps until dt__io_wake, the end of a piece, or now >= deadline_ns (CLOCK_MONOTONIC;
     * negative: none; 0: does not sleep). May also return for no reason. Finished pieces are put on
     * engine->finished. */
    void (*wait)(dt_io_engine *engine, int64_t deadline_ns);
} dt_io_backend;

extern const dt_io_backend dt__io_uring, dt__io_epoll;

struct dt_io_engine {
    const dt_io_backend *backend;
    void *state; /* the backend's */
    int wake_fd; /* eventfd; its counter is never read, each write is an event */
    int pieces_under_way;
    dt_io_piece *finished; /* in any order */
    dt_io_piece *free;
    dt_task *first, *last; /* tasks with pieces not yet started, through task->next */
    int64_t reads, writes, bytes;
    char reason[DT__IO_REASON_MAX]; /* why this backend */
    dt_io_piece pieces[DT__IO_PIECES_MAX];
};

/* Chooses and opens a backend. wanted: "uring", "epoll", or NULL for uring if it can be had. Must
 * be called by the thread that will use the engine. */
dt_status dt__io_open(const char *wanted, dt_io_engine **out) DT_MUST_CHECK;
void dt__io_close(dt_io_engine *engine);

/* Any thread. */
void dt__io_wake(dt_io_engine *engine);

/* Takes a task that reads or writes a file and is ready to start. ended(context, task) is called,
 * now or from dt__io_finish, when it is over; task->error says how it went. */
typedef void (*dt_io_ended)(void *context, dt_task *task);
void dt__io_submit(dt_io_engine *engine, dt_task *task, dt_io_ended ended, void *context);

static inline void dt__io_wait(dt_io_engine *engine, int64_t deadline_ns) {
    engine->backend->wait(engine, deadline_ns);
}

/* Deals with finished pieces and starts further ones. */
void dt__io_finish(dt_io_engine *engine, dt_io_ended ended, void *context);

/* No further pieces are started: tasks end with DT_E_SHUTDOWN once theirs are back. */
void dt__io_shut_down(dt_io_engine *engine, dt_io_ended ended, void *context);

/* Tests: the set-up of the named backend fails with this errno (0: off). */
void dt__io_fail_setup(const char *backend, int error);
int dt__io_setup_error(const char *backend);

#endif
