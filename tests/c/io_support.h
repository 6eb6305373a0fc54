/* io_support.h: an I/O engine without a controller, for the tests of io.c, ring.c and epoll.c. */
#ifndef DT_TESTS_IO_SUPPORT_H
#define DT_TESTS_IO_SUPPORT_H

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scheduler/io.h"
#include "scheduler/task.h"
#include "tests/c/sched_support.h"

static FAKE_UNUSED char io_path[64];

/* A file of `bytes` bytes in which the 8-byte word w has the value w * 3 + 1. */
static FAKE_UNUSED void io_make_file(int64_t bytes) {
    snprintf(io_path, sizeof io_path, "/tmp/dt_test_io_XXXXXX");
    int fd = mkstemp(io_path);
    ck_assert_int_ge(fd, 0);
    FILE *f = fdopen(fd, "w");
    int64_t missing = 0;
    for (int64_t w = 0; w * 8 < bytes; w++) {
        int64_t value = w * 3 + 1;
        size_t n = bytes - w * 8 < 8 ? (size_t)(bytes - w * 8) : 8;
        missing += (int64_t)(n - fwrite(&value, 1, n, f));
    }
    ck_assert_int_eq(missing, 0);
    ck_assert_int_eq(fclose(f), 0);
}

static FAKE_UNUSED void io_remove_file(void) { unlink(io_path); }

/* A task that reads n words at word `first` into `out`, or writes `out` there. */
static FAKE_UNUSED dt_task *io_task(fake_ends *ends, dt_file *file, bool write, dt_tensor *t,
                                    int64_t first) {
    dt_task *task;
    ck_assert_ok(dt_task_new(write ? DT_TASK_WRITE : DT_TASK_READ, !write, write, &task));
    task->call.operands[0] = dt_tensor_retain(t);
    task->io.file = dt_file_retain(file);
    task->io.offset = first * 8;
    task->io.length = t->numel * 8;
    task->user = ends;
    task->on_end = fake_on_end;
    return task;
}

static FAKE_UNUSED void io_ended(void *context, dt_task *task) {
    (void)context;
    dt__task_end(task, 1);
    dt__task_destroy(task);
}

static FAKE_UNUSED dt_io_engine *io_engine(const char *backend) {
    dt_io_engine *engine;
    ck_assert_ok(dt__io_open(backend, &engine));
    ck_assert_str_eq(engine->backend->name, backend);
    return engine;
}

static FAKE_UNUSED void io_submit(dt_io_engine *engine, dt_task *task) {
    (void)dt__task_raise_counts(task);
    dt__io_submit(engine, task, io_ended, NULL);
}

/* Until `count` tasks have ended. */
static FAKE_UNUSED void io_drive(dt_io_engine *engine, fake_ends *ends, uint32_t count) {
    int64_t deadline_ns = dt_clock_ns() + 60000000000;
    while (atomic_load(&ends->count) < count) {
        ck_assert_int_lt(dt_clock_ns(), deadline_ns);
        dt__io_wait(engine, deadline_ns);
        dt__io_finish(engine, io_ended, NULL);
    }
}

#endif
