/* ring.c: the io_uring backend, the only file that calls liburing.
 *
 * One ring, made and entered by the controller alone: SINGLE_ISSUER and DEFER_TASKRUN, so that
 * completions are made in the controller's own time; older kernels get fewer flags, step by step.
 * A multishot poll on the wake eventfd ends the controller's sleep.  The eventfd is not read: the
 * poll reports every write, whatever the counter is, and so a wake-up costs no further system call.
 *
 * I1: only the controller touches the ring (the kernel insists).
 * I2: the poll is armed whenever the controller sleeps: a completion without F_MORE arms it again
 *     with the next submission, which the sleep includes.
 * I3: reads and writes carry IOSQE_ASYNC: one that finds its data in the page cache would otherwise
 *     be copied inside the submission, in the controller.
 */
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "scheduler/futex.h"
#include "scheduler/io.h"

#define RING_ENTRIES 128
#define TAG_WAKE 1 /* user_data of the poll; pieces are pointers, hence even */
#define SELF_TEST_NS 1000000000

_Static_assert(DT__IO_PIECES_MAX < RING_ENTRIES,
               "all pieces and the poll fit the submission queue");

typedef struct ring_state {
    struct io_uring ring;
    bool armed;
} ring_state;

/* A free entry; the queue is large enough for everything that can be under way. */
static struct io_uring_sqe *get_sqe(ring_state *r) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
    if (DT_UNLIKELY(sqe == NULL)) {
        io_uring_submit(&r->ring);
        sqe = io_uring_get_sqe(&r->ring);
    }
    DT_ASSERT(sqe != NULL);
    return sqe;
}

static void arm(dt_io_engine *engine) {
    ring_state *r = engine->state;
    struct io_uring_sqe *sqe = get_sqe(r);
    io_uring_prep_poll_multishot(sqe, engine->wake_fd, POLLIN);
    io_uring_sqe_set_data64(sqe, TAG_WAKE);
    r->armed = true;
}

/* Should the poll end with each event, it would find the counter still raised and end again at
 * once: therefore the counter is read here, while the controller is awake and about to look at its
 * queues anyway, so that no wake-up is lost. */
static void arm_again(dt_io_engine *engine) {
    uint64_t count;
    ssize_t n = read(engine->wake_fd, &count, sizeof count);
    DT_ASSERT(n == sizeof count || errno == EAGAIN || errno == EINTR);
    arm(engine);
}

/* Takes what the completion queue holds. Returns the error of the poll, if it had one. */
static int reap(dt_io_engine *engine, int *woken) {
    ring_state *r = engine->state;
    struct io_uring_cqe *cqe;
    unsigned head, count = 0;
    int error = 0;
    io_uring_for_each_cqe(&r->ring, head, cqe) {
        count++;
        if (cqe->user_data == TAG_WAKE) {
            if (cqe->res < 0) error = -cqe->res;
            if (!(cqe->flags & IORING_CQE_F_MORE)) r->armed = false;
            (*woken)++;
            continue;
        }
        dt_io_piece *piece = (dt_io_piece *)(uintptr_t)cqe->user_data;
        piece->result = cqe->res;
        piece->next = engine->finished;
        engine->finished = piece;
    }
    io_uring_cq_advance(&r->ring, count);
    if (DT_UNLIKELY(!r->armed)) arm_again(engine);
    return error;
}

/* Submits, sleeps as told, and returns a negative errno for what should not happen. */
static int enter(ring_state *r, int64_t deadline_ns) {
    int rc;
    if (deadline_ns < 0) {
        rc = io_uring_submit_and_wait(&r->ring, 1);
    } else if (deadline_ns == 0) {
        rc = io_uring_submit_and_get_events(&r->ring);
    } else {
        int64_t left = deadline_ns - dt_clock_ns();
        if (left < 0) left = 0;
        struct __kernel_timespec ts = {left / 1000000000, left % 1000000000};
        struct io_uring_cqe *cqe;
        rc = io_uring_submit_and_wait_timeout(&r->ring, &cqe, 1, &ts, NULL);
    }
    /* EBUSY and EAGAIN: the kernel is short of something; completions free it. */
    bool usual = rc >= 0 || rc == -EINTR || rc == -ETIME || rc == -EBUSY || rc == -EAGAIN;
    return usual ? 0 : rc;
}

/* Shows that the ring, the poll and the flags work together before anyone relies on them. */
static dt_status self_test(dt_io_engine *engine) {
    ring_state *r = engine->state;
    int64_t deadline_ns = dt_clock_ns() + SELF_TEST_NS;
    int woken = 0;
    dt__io_wake(engine);
    while (woken == 0) {
        int rc = enter(r, deadline_ns);
        if (rc < 0) return dt_fail_errno(-rc, "io_uring_enter");
        int error = reap(engine, &woken);
        if (error != 0) return dt_fail_errno(error, "multishot poll");
        if (woken == 0 && dt_clock_ns() > deadline_ns)
            return dt_fail(DT_E_RUNTIME, "the ring does not report a wake-up");
    }
    return DT_OK;
}

/* The best flags that the kernel takes. */
static dt_status setup(ring_state *r) {
    static const unsigned steps[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN,
        IORING_SETUP_COOP_TASKRUN,
        0,
    };
    int rc = -dt__io_setup_error("uring");
    for (size_t k = 0; rc == 0 && k < sizeof steps / sizeof *steps; k++) {
        rc = io_uring_queue_init(RING_ENTRIES, &r->ring, steps[k]);
        if (rc == 0) break;
        if (rc == -EINVAL && k + 1 < sizeof steps / sizeof *steps) rc = 0;
    }
    if (rc < 0) return dt_fail_errno(-rc, "io_uring_setup");
    (void)io_uring_register_ring_fd(&r->ring); /* saves a look-up for each call, where known */
    return DT_OK;
}

static void ring_close(dt_io_engine *engine) {
    ring_state *r = engine->state;
    io_uring_queue_exit(&r->ring);
    dt_free(r, sizeof *r);
    engine->state = NULL;
}

static dt_status ring_open(dt_io_engine *engine) {
    ring_state *r;
    DT_ALLOC_OR_FAIL(r, sizeof *r);
    memset(r, 0, sizeof *r);
    dt_status status = setup(r);
    if (status != DT_OK) {
        dt_free(r, sizeof *r);
        return status;
    }
    engine->state = r;
    arm(engine);
    status = self_test(engine);
    if (status != DT_OK) ring_close(engine);
    return status;
}

static void ring_start(dt_io_engine *engine, dt_io_piece *piece) {
    struct io_uring_sqe *sqe = get_sqe(engine->state);
    if (piece->write) {
        io_uring_prep_write(sqe, piece->fd, piece->data, piece->length, (uint64_t)piece->offset);
    } else {
        io_uring_prep_read(sqe, piece->fd, piece->data, piece->length, (uint64_t)piece->offset);
    }
    io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
    io_uring_sqe_set_data(sqe, piece);
}

static void ring_wait(dt_io_engine *engine, int64_t deadline_ns) {
    ring_state *r = engine->state;
    bool idle =
        deadline_ns == 0 && engine->pieces_under_way == 0 && io_uring_sq_ready(&r->ring) == 0;
    if (!idle) {
        int rc = enter(r, deadline_ns);
        DT_ASSERT(rc == 0);
    }
    int woken = 0;
    (void)reap(engine, &woken); /* an error of the poll at this stage: it has been armed again */
}

const dt_io_backend dt__io_uring = {
    .name = "uring",
    .open = ring_open,
    .close = ring_close,
    .start = ring_start,
    .wait = ring_wait,
};
