/* epoll.c: the backend for where io_uring is forbidden or unknown.
 *
 * The controller sleeps in epoll_wait on the wake eventfd (edge-triggered, so that it need not be
 * read) and a timerfd.  Files cannot be polled: a few threads call pread and pwrite.
 *
 * I1: the queue of pieces is under the lock; the way back is a lock-free queue and the eventfd.
 * I2: timerfd and epoll belong to the controller.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "scheduler/io.h"
#include "scheduler/threads.h"

#define FILE_THREADS 4

typedef struct epoll_state {
    int epoll_fd, timer_fd;
    int64_t timer_ns; /* what timer_fd is set to; 0: off */
    pthread_mutex_t lock;
    pthread_cond_t more;
    dt_io_piece *first, *last;
    bool exiting;
    int threads_count; /* started with the first piece */
    int threads_idle;
    int queued; /* pieces between first and last */
    pthread_t threads[FILE_THREADS];
    dt_mpsc done;
    dt_gate gate; /* closed while the controller sleeps */
    dt_io_engine *engine;
} epoll_state;

static int32_t move_bytes(const dt_io_piece *piece) {
    ssize_t n = piece->write ? pwrite(piece->fd, piece->data, piece->length, piece->offset)
                             : pread(piece->fd, piece->data, piece->length, piece->offset);
    return n < 0 ? -errno : (int32_t)n;
}

static void *file_thread(void *argument) {
    epoll_state *e = argument;
    pthread_mutex_lock(&e->lock);
    for (;;) {
        while (e->first == NULL && !e->exiting) {
            e->threads_idle++;
            pthread_cond_wait(&e->more, &e->lock);
            e->threads_idle--;
        }
        dt_io_piece *piece = e->first;
        if (piece == NULL) break;
        e->first = piece->next;
        if (e->first == NULL) e->last = NULL;
        e->queued--;
        pthread_mutex_unlock(&e->lock);
        piece->result = move_bytes(piece);
        dt_mpsc_push(&e->done, &piece->done_node);
        if (dt_gate_knock(&e->gate)) dt__io_wake(e->engine);
        pthread_mutex_lock(&e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

static void epoll_close(dt_io_engine *engine) {
    epoll_state *e = engine->state;
    pthread_mutex_lock(&e->lock);
    e->exiting = true;
    pthread_mutex_unlock(&e->lock);
    pthread_cond_broadcast(&e->more);
    for (int k = 0; k < e->threads_count; k++) pthread_join(e->threads[k], NULL);
    if (e->timer_fd >= 0) close(e->timer_fd);
    if (e->epoll_fd >= 0) close(e->epoll_fd);
    pthread_cond_destroy(&e->more);
    pthread_mutex_destroy(&e->lock);
    dt_free(e, sizeof *e);
    engine->state = NULL;
}

static dt_status watch(epoll_state *e, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return dt_fail_errno(errno, "epoll_ctl");
    return DT_OK;
}

static dt_status open_fds(epoll_state *e, int wake_fd) {
    int error = dt__io_setup_error("epoll");
    if (error != 0) return dt_fail_errno(error, "epoll_create1");
    e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (e->epoll_fd < 0) return dt_fail_errno(errno, "epoll_create1");
    e->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (e->timer_fd < 0) return dt_fail_errno(errno, "timerfd_create");
    DT_TRY(watch(e, wake_fd, EPOLLIN | EPOLLET));
    return watch(e, e->timer_fd, EPOLLIN | EPOLLET);
}

static dt_status epoll_open(dt_io_engine *engine) {
    epoll_state *e;
    DT_ALLOC_OR_FAIL(e, sizeof *e);
    memset(e, 0, sizeof *e);
    e->epoll_fd = e->timer_fd = -1;
    e->engine = engine;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->more, NULL);
    engine->state = e;
    dt_status status = open_fds(e, engine->wake_fd);
    if (status != DT_OK) epoll_close(engine);
    return status;
}

static void epoll_start(dt_io_engine *engine, dt_io_piece *piece) {
    epoll_state *e = engine->state;
    piece->next = NULL;
    pthread_mutex_lock(&e->lock);
    bool enough = e->threads_idle > e->queued || e->threads_count == FILE_THREADS;
    pthread_mutex_unlock(&e->lock);
    if (!enough) {
        int k = e->threads_count;
        dt_status status = dt__thread_start(&e->threads[k], file_thread, e, "dt-io-%d", k);
        if (status == DT_OK) {
            e->threads_count++;
        } else if (k == 0) {
            piece->result = -ENOMEM; /* no thread to be had; EAGAIN would mean: try again */
            dt_mpsc_push(&e->done, &piece->done_node);
            return;
        }
    }
    pthread_mutex_lock(&e->lock);
    if (e->last != NULL) {
        e->last->next = piece;
    } else {
        e->first = piece;
    }
    e->last = piece;
    e->queued++;
    pthread_mutex_unlock(&e->lock);
    pthread_cond_signal(&e->more);
}

/* The timer rings at deadline_ns; it is only touched when that changes. */
static void set_timer(epoll_state *e, int64_t deadline_ns) {
    if (deadline_ns == e->timer_ns) return;
    struct itimerspec spec = {.it_value = {deadline_ns / 1000000000, deadline_ns % 1000000000}};
    int rc = timerfd_settime(e->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
    DT_ASSERT(rc == 0);
    e->timer_ns = deadline_ns;
}

static void sleep_until(epoll_state *e, int64_t deadline_ns) {
    dt_gate_close(&e->gate);
    if (dt_mpsc_is_empty(&e->done)) {
        set_timer(e, deadline_ns < 0 ? 0 : deadline_ns);
        struct epoll_event events[4];
        int n = epoll_wait(e->epoll_fd, events, 4, -1);
        DT_ASSERT(n >= 0 || errno == EINTR);
        /* A timer that has rung is set again also for the same deadline. */
        for (int k = 0; k < n; k++)
            if (events[k].data.fd == e->timer_fd) e->timer_ns = 0;
    }
    dt_gate_open(&e->gate);
}

static void epoll_wait_events(dt_io_engine *engine, int64_t deadline_ns) {
    epoll_state *e = engine->state;
    if (deadline_ns != 0) sleep_until(e, deadline_ns);
    dt_mpsc_node *node = dt_mpsc_take(&e->done);
    while (node != NULL) {
        dt_io_piece *piece = DT_MPSC_OWNER(node, dt_io_piece, done_node);
        node = node->next;
        piece->next = engine->finished;
        engine->finished = piece;
    }
}

const dt_io_backend dt__io_epoll = {
    .name = "epoll",
    .open = epoll_open,
    .close = epoll_close,
    .start = epoll_start,
    .wait = epoll_wait_events,
};
