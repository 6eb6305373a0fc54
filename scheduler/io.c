/* io.c: what both backends share: choosing one, and tasks in pieces.
 *
 * A read or write is cut into pieces that end at multiples of DT__IO_PIECE_BYTES of the file, so
 * that large ones proceed in parallel and page-aligned, and one huge file does not keep others from
 * starting: tasks with pieces left take turns.
 *
 * I1: a piece is free, under way (the backend's), or finished.
 * I2: a task has ended when no piece of it is under way and either all were issued or it has an
 *     error; after an error no further ones are.
 */
#include "scheduler/io.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "scheduler/plant.h"
#include "scheduler/task.h"

/* ---- opening -------------------------------------------------------------------------------- */

static struct {
    const char *backend;
    int error;
} setup_fault;

void dt__io_fail_setup(const char *backend, int error) {
    setup_fault.backend = backend;
    setup_fault.error = error;
}

int dt__io_setup_error(const char *backend) {
    bool hit = setup_fault.error != 0 && strcmp(setup_fault.backend, backend) == 0;
    return hit ? setup_fault.error : 0;
}

/* Tries uring first unless epoll is wanted; whatever goes wrong there is the reason for epoll. */
static dt_status open_backend(dt_io_engine *engine, const char *wanted) {
    if (wanted != NULL && strcmp(wanted, "epoll") == 0) {
        snprintf(engine->reason, sizeof engine->reason, "epoll was asked for");
    } else {
        engine->backend = &dt__io_uring;
        dt_status status = engine->backend->open(engine);
        if (status == DT_OK) {
            if (engine->reason[0] == 0)
                snprintf(engine->reason, sizeof engine->reason,
                         wanted != NULL ? "uring was asked for" : "io_uring works here");
            return DT_OK;
        }
        snprintf(engine->reason, sizeof engine->reason, "io_uring cannot be used: %s",
                 dt_error_text());
    }
    engine->backend = &dt__io_epoll;
    return engine->backend->open(engine);
}

dt_status dt__io_open(const char *wanted, dt_io_engine **out) {
    if (wanted != NULL && strcmp(wanted, "uring") != 0 && strcmp(wanted, "epoll") != 0)
        return dt_fail(DT_E_VALUE, "DTORCH_IO must be 'uring' or 'epoll', not '%s'", wanted);
    dt_io_engine *engine;
    DT_ALLOC_OR_FAIL(engine, sizeof *engine);
    memset(engine, 0, sizeof *engine);
    engine->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    dt_status status = DT_OK;
    if (engine->wake_fd < 0) status = dt_fail_errno(errno, "eventfd");
    if (status == DT_OK) status = open_backend(engine, wanted);
    if (status != DT_OK) {
        if (engine->wake_fd >= 0) close(engine->wake_fd);
        dt_free(engine, sizeof *engine);
        return status;
    }
    for (int k = DT__IO_PIECES_MAX - 1; k >= 0; k--) {
        engine->pieces[k].next = engine->free;
        engine->free = &engine->pieces[k];
    }
    *out = engine;
    return DT_OK;
}

void dt__io_close(dt_io_engine *engine) {
    DT_ASSERT(engine->pieces_under_way == 0 && engine->first == NULL);
    engine->backend->close(engine);
    close(engine->wake_fd);
    dt_free(engine, sizeof *engine);
}

void dt__io_wake(dt_io_engine *engine) {
    uint64_t one = 1;
    ssize_t n;
    do {
        n = write(engine->wake_fd, &one, sizeof one);
    } while (n < 0 && errno == EINTR);
    DT_ASSERT(n == sizeof one); /* the counter would overflow after 2^64 wake-ups */
}

/* ---- pieces --------------------------------------------------------------------------------- */

static inline bool is_issued(const dt_task *task) {
    return task->error != NULL || task->io.issued == task->io.length;
}

/* The task's next piece is under way. */
static void issue_piece(dt_io_engine *engine, dt_task *task) {
    dt_io_piece *piece = engine->free;
    engine->free = piece->next;
    dt_io *io = &task->io;
    int64_t start = io->offset + io->issued;
    int64_t left = io->length - io->issued;
    int64_t to_boundary = DT__IO_PIECE_BYTES - start % DT__IO_PIECE_BYTES;
    int64_t length = left < to_boundary ? left : to_boundary;
    *piece = (dt_io_piece){
        .task = task,
        .data = (char *)dt_tensor_data(task->call.operands[0]) + io->issued,
        .offset = start,
        .length = (uint32_t)length,
        .fd = dt_file_fd(io->file),
        .write = task->kind == DT_TASK_WRITE,
    };
    io->issued += length;
    io->pieces++;
    engine->pieces_under_way++;
    if (piece->write) {
        engine->writes++;
    } else {
        engine->reads++;
    }
    engine->backend->start(engine, piece);
}

static void enqueue(dt_io_engine *engine, dt_task *task) {
    task->next = NULL;
    if (engine->last != NULL) {
        engine->last->next = task;
    } else {
        engine->first = task;
    }
    engine->last = task;
}

static dt_task *dequeue(dt_io_engine *engine) {
    dt_task *task = engine->first;
    engine->first = task->next;
    if (engine->first == NULL) engine->last = NULL;
    task->next = NULL;
    return task;
}

/* Starts pieces as long as there is room, one of each task in turn. Memory is taken with the first
 * piece of a task, so that queued reads hold none. */
static void pump(dt_io_engine *engine, dt_io_ended ended, void *context) {
    while (engine->first != NULL && engine->free != NULL) {
        dt_task *task = dequeue(engine);
        if (task->io.issued == 0) {
            dt_storage *storage = task->call.operands[0]->storage;
            dt_status status = task->kind == DT_TASK_WRITE ? dt__task_materialize_input(storage)
                                                           : dt_storage_materialize(storage);
            if (status != DT_OK) dt__task_fail(task, status);
        }
        if (!is_issued(task)) issue_piece(engine, task);
        if (!is_issued(task)) {
            enqueue(engine, task);
        } else if (task->io.pieces == 0) {
            ended(context, task);
        }
    }
}

static void check_task(const dt_task *task) {
    const dt_io *io = &task->io;
    bool write = task->kind == DT_TASK_WRITE;
    DT_ASSERT(task->call.nout + task->call.nin == 1 && task->call.nout == (write ? 0 : 1));
    DT_ASSERT(io->file != NULL && io->offset >= 0 && io->length >= 0);
    const dt_tensor *t = task->call.operands[0];
    DT_ASSERT(t->contiguous);
    DT_ASSERT(io->length == t->numel * (int64_t)dt_dtype_size((dt_dtype)t->dtype));
}

void dt__io_submit(dt_io_engine *engine, dt_task *task, dt_io_ended ended, void *context) {
    check_task(task);
    task->io.issued = 0;
    task->io.pieces = 0;
    enqueue(engine, task);
    pump(engine, ended, context);
}

/* Whether the piece has to go on (interrupted, or moved a part); else the task knows the result. */
static bool judge_piece(dt_io_engine *engine, dt_io_piece *piece) {
    dt_task *task = piece->task;
    const char *path = dt_file_path(task->io.file);
    if (piece->result > 0) {
        engine->bytes += piece->result;
        if ((uint32_t)piece->result == piece->length || DT_PLANT(28)) return false;
        piece->data += piece->result;
        piece->offset += piece->result;
        piece->length -= (uint32_t)piece->result;
        return task->error == NULL;
    }
    if (piece->result == -EINTR || piece->result == -EAGAIN) return task->error == NULL;
    if (task->error != NULL) return false;
    dt_status status;
    if (piece->result < 0) {
        status =
            dt_fail_errno(-piece->result, "cannot %s '%s'", piece->write ? "write" : "read", path);
    } else if (piece->write) {
        status = dt_fail_errno(ENOSPC, "cannot write '%s'", path);
    } else {
        status =
            dt_fail(DT_E_VALUE, "'%s' is truncated: it ends at byte %lld of the %lld needed", path,
                    (long long)piece->offset, (long long)(task->io.offset + task->io.length));
    }
    dt__task_fail(task, status);
    return false;
}

/* A task in the list of those with pieces left must leave it before it ends. */
static void forget(dt_io_engine *engine, dt_task *task) {
    dt_task *before = NULL;
    for (dt_task *t = engine->first; t != NULL; before = t, t = t->next) {
        if (t != task) continue;
        if (before != NULL) {
            before->next = t->next;
        } else {
            engine->first = t->next;
        }
        if (engine->last == t) engine->last = before;
        t->next = NULL;
        return;
    }
}

void dt__io_finish(dt_io_engine *engine, dt_io_ended ended, void *context) {
    dt_io_piece *piece = engine->finished;
    engine->finished = NULL;
    while (piece != NULL) {
        dt_io_piece *next = piece->next;
        dt_task *task = piece->task;
        if (judge_piece(engine, piece)) {
            engine->backend->start(engine, piece);
        } else {
            piece->next = engine->free;
            engine->free = piece;
            engine->pieces_under_way--;
            if (--task->io.pieces == 0 && is_issued(task)) {
                forget(engine, task);
                ended(context, task);
            }
        }
        piece = next;
    }
    pump(engine, ended, context);
}

void dt__io_shut_down(dt_io_engine *engine, dt_io_ended ended, void *context) {
    while (engine->first != NULL) {
        dt_task *task = dequeue(engine);
        dt__task_fail(task, dt_fail(DT_E_SHUTDOWN, "the dtorch runtime has been shut down"));
        if (task->io.pieces == 0) ended(context, task);
    }
}
