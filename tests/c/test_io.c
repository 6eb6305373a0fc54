/* test_io.c: reads and writes in pieces, errors, and the choice of a backend; on both backends. */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "tests/c/io_support.h"

static const char *const backends[] = {"uring", "epoll"};
static fake_ends ends;
static dt_memory_stats before;

static dt_io_engine *start(int which) {
    before = test_memory();
    return io_engine(backends[which]);
}

static void stop(dt_io_engine *engine) {
    dt__io_close(engine);
    fake_ends_clear(&ends);
    test_assert_no_leak(before);
    io_remove_file();
}

static void check_words(dt_tensor *t, int64_t first) {
    int64_t wrong = 0; /* an assertion for each word would take seconds */
    for (int64_t i = 0; i < t->numel; i++) wrong += *fake_at(t, i) != (first + i) * 3 + 1;
    ck_assert_int_eq(wrong, 0);
}

START_TEST(read_in_pieces) {
    int64_t words = 3 * DT__IO_PIECE_BYTES / 8 + 1000;
    io_make_file(words * 8);
    dt_io_engine *engine = start(_i);
    dt_file *file;
    ck_assert_ok(dt_file_open(io_path, false, &file));
    dt_tensor *all = fake_tensor(words), *part = fake_tensor(700000);
    dt_tensor *few = fake_tensor(10), *none = fake_tensor(0);
    io_submit(engine, io_task(&ends, file, false, all, 0));
    io_submit(engine, io_task(&ends, file, false, part, 123));
    io_submit(engine, io_task(&ends, file, false, few, words - 10));
    io_submit(engine, io_task(&ends, file, false, none, 5));
    io_drive(engine, &ends, 4);
    ck_assert_int_eq(ends.failed, 0);
    check_words(all, 0);
    check_words(part, 123);
    check_words(few, words - 10);
    ck_assert_int_eq(engine->reads, 4 + 2 + 1);
    ck_assert_int_eq(engine->bytes, (words + 700000 + 10) * 8);
    dt_tensor *tensors[] = {all, part, few, none};
    for (int k = 0; k < 4; k++) dt_tensor_release(tensors[k]);
    dt_file_release(file);
    stop(engine);
}
END_TEST

/* More tasks than pieces may be under way. */
START_TEST(many_reads) {
    io_make_file(80000);
    dt_io_engine *engine = start(_i);
    dt_file *file;
    ck_assert_ok(dt_file_open(io_path, false, &file));
    dt_tensor *t[300];
    for (int k = 0; k < 300; k++) {
        t[k] = fake_tensor(100);
        io_submit(engine, io_task(&ends, file, false, t[k], k * 30));
    }
    io_drive(engine, &ends, 300);
    for (int k = 0; k < 300; k++) {
        check_words(t[k], k * 30);
        dt_tensor_release(t[k]);
    }
    dt_file_release(file);
    stop(engine);
}
END_TEST

START_TEST(truncated_file) {
    io_make_file(DT__IO_PIECE_BYTES + 804);
    dt_io_engine *engine = start(_i);
    dt_file *file;
    ck_assert_ok(dt_file_open(io_path, false, &file));
    int64_t words = DT__IO_PIECE_BYTES / 8;
    dt_tensor *t = fake_tensor(words + 500), *beyond = fake_tensor(4);
    io_submit(engine, io_task(&ends, file, false, t, 0));
    io_drive(engine, &ends, 1);
    ck_assert_int_eq(ends.failed, 1);
    ck_assert_int_eq(dt_error_status(ends.error), DT_E_VALUE);
    char text[256];
    snprintf(text, sizeof text, "'%s' is truncated: it ends at byte %d of the %d needed", io_path,
             DT__IO_PIECE_BYTES + 804, DT__IO_PIECE_BYTES + 4000);
    ck_assert_str_eq(dt_error_message(ends.error), text);
    ck_assert_ptr_eq(atomic_load(&t->storage->failure), ends.error);
    io_submit(engine, io_task(&ends, file, false, beyond, 10 * words));
    io_drive(engine, &ends, 2);
    ck_assert_int_eq(ends.failed, 2);
    dt_tensor_release(t);
    dt_tensor_release(beyond);
    dt_file_release(file);
    stop(engine);
}
END_TEST

START_TEST(write_and_read_back) {
    io_make_file(8);
    dt_io_engine *engine = start(_i);
    int64_t words = 2 * DT__IO_PIECE_BYTES / 8 + 77;
    dt_tensor *t = fake_tensor(words), *back = fake_tensor(words);
    ck_assert_ok(dt_storage_materialize(t->storage));
    for (int64_t i = 0; i < words; i++) *fake_at(t, i) = (i + 9) * 3 + 1;
    dt_file *file;
    ck_assert_ok(dt_file_open(io_path, true, &file));
    io_submit(engine, io_task(&ends, file, true, t, 9));
    dt_file_release(file);
    io_drive(engine, &ends, 1);
    ck_assert_int_eq(engine->writes, 3);
    ck_assert_ok(dt_file_open(io_path, false, &file));
    ck_assert_int_eq(dt_file_size(file), (words + 9) * 8);
    io_submit(engine, io_task(&ends, file, false, back, 9));
    io_drive(engine, &ends, 2);
    ck_assert_int_eq(ends.failed, 0);
    check_words(back, 9);
    dt_tensor_release(t);
    dt_tensor_release(back);
    dt_file_release(file);
    stop(engine);
}
END_TEST

/* A file opened for reading cannot be written: the kernel's error reaches the task. */
START_TEST(errors_of_the_kernel) {
    io_make_file(800);
    dt_io_engine *engine = start(_i);
    dt_file *file;
    ck_assert_ok(dt_file_open(io_path, false, &file));
    dt_tensor *t = fake_full(10, 1);
    io_submit(engine, io_task(&ends, file, true, t, 0));
    io_drive(engine, &ends, 1);
    ck_assert_int_eq(ends.failed, 1);
    ck_assert_int_eq(dt_error_status(ends.error), DT_E_OS);
    ck_assert_int_eq(dt_error_captured_errno(ends.error), EBADF);
    ck_assert_ptr_nonnull(strstr(dt_error_message(ends.error), io_path));
    dt_tensor_release(t);
    dt_file_release(file);
    if (access("/dev/full", W_OK) == 0) {
        fake_ends_clear(&ends);
        dt_tensor *u = fake_full(10, 1);
        ck_assert_ok(dt_file_open("/dev/full", true, &file));
        io_submit(engine, io_task(&ends, file, true, u, 0));
        io_drive(engine, &ends, 1);
        ck_assert_int_eq(dt_error_captured_errno(ends.error), ENOSPC);
        dt_tensor_release(u);
        dt_file_release(file);
    }
    stop(engine);
}
END_TEST

START_TEST(no_memory_for_a_read) {
    io_make_file(80000);
    dt_io_engine *engine = start(_i);
    dt_file *file;
    ck_assert_ok(dt_file_open(io_path, false, &file));
    dt_tensor *t = fake_tensor(1000);
    dt_task *task = io_task(&ends, file, false, t, 0);
    dt_alloc_fail_at(1, true);
    io_submit(engine, task);
    dt_alloc_fail_at(0, false);
    ck_assert_int_eq(ends.failed, 1);
    ck_assert_int_eq(dt_error_status(ends.error), DT_E_NO_MEMORY);
    dt_tensor_release(t);
    dt_file_release(file);
    stop(engine);
}
END_TEST

/* What was not started ends with DT_E_SHUTDOWN, the rest when its pieces are back. */
START_TEST(shut_down) {
    io_make_file(80000);
    dt_io_engine *engine = start(_i);
    dt_file *file;
    ck_assert_ok(dt_file_open(io_path, false, &file));
    dt_tensor *t[100];
    for (int k = 0; k < 100; k++) {
        t[k] = fake_tensor(100);
        io_submit(engine, io_task(&ends, file, false, t[k], k * 30));
    }
    dt__io_shut_down(engine, io_ended, NULL);
    ck_assert_int_eq(ends.failed, 100 - DT__IO_PIECES_MAX);
    ck_assert_int_eq(dt_error_status(ends.error), DT_E_SHUTDOWN);
    io_drive(engine, &ends, 100);
    ck_assert_int_eq(ends.failed, 100 - DT__IO_PIECES_MAX);
    for (int k = 0; k < 100; k++) dt_tensor_release(t[k]);
    dt_file_release(file);
    stop(engine);
}
END_TEST

/* ---- sleeping ------------------------------------------------------------------------------- */

START_TEST(deadline_ends_the_sleep) {
    io_make_file(8);
    dt_io_engine *engine = start(_i);
    for (int k = 0; k < 5; k++) {
        int64_t deadline_ns = dt_clock_ns() + 3000000;
        int waits = 0;
        while (dt_clock_ns() < deadline_ns) {
            dt__io_wait(engine, deadline_ns);
            ck_assert_int_lt(++waits, 100);
        }
    }
    dt__io_wait(engine, 1); /* long past */
    dt__io_wait(engine, 0); /* no sleep */
    stop(engine);
}
END_TEST

static void *wake_later(void *argument) {
    struct timespec ts = {0, 2000000};
    for (int k = 0; k < 20; k++) {
        nanosleep(&ts, NULL);
        dt__io_wake(argument);
    }
    return NULL;
}

/* Sleeps without end are ended by wake-ups alone; one that comes while awake is not lost. */
START_TEST(wakes) {
    io_make_file(8);
    dt_io_engine *engine = start(_i);
    dt__io_wake(engine);
    dt__io_wake(engine);
    dt__io_wait(engine, -1);
    pthread_t thread;
    int64_t begin_ns = dt_clock_ns(); /* 40 ms at least before the last wake-up */
    pthread_create(&thread, NULL, wake_later, engine);
    int waits = 0;
    while (dt_clock_ns() - begin_ns < 30000000) {
        dt__io_wait(engine, -1);
        ck_assert_int_lt(++waits, 1000);
    }
    pthread_join(thread, NULL);
    stop(engine);
}
END_TEST

/* ---- the choice ----------------------------------------------------------------------------- */

static dt_io_engine *open_with_fault(const char *wanted, int error) {
    dt_io_engine *engine;
    dt__io_fail_setup("uring", error);
    ck_assert_ok(dt__io_open(wanted, &engine));
    dt__io_fail_setup("uring", 0);
    return engine;
}

START_TEST(any_setup_error_steps_down) {
    dt_memory_stats memory = test_memory();
    static const int errors[] = {ENOSYS, EPERM, EINVAL, ENOMEM, EMFILE};
    for (int k = 0; k < 10; k++) {
        int error = errors[k % 5];
        dt_io_engine *engine = open_with_fault(k < 5 ? NULL : "uring", error);
        ck_assert_str_eq(engine->backend->name, "epoll");
        char text[128];
        snprintf(text, sizeof text, "io_uring cannot be used: io_uring_setup: %s", strerror(error));
        ck_assert_str_eq(engine->reason, text);
        dt__io_close(engine);
    }
    test_assert_no_leak(memory);
}
END_TEST

START_TEST(reasons) {
    dt_io_engine *engine;
    ck_assert_ok(dt__io_open("epoll", &engine));
    ck_assert_str_eq(engine->reason, "epoll was asked for");
    dt__io_close(engine);
    ck_assert_int_eq(dt__io_open("kqueue", &engine), DT_E_VALUE);
    ck_assert_str_eq(dt_error_text(), "DTORCH_IO must be 'uring' or 'epoll', not 'kqueue'");
    dt__io_fail_setup("epoll", EMFILE);
    ck_assert_int_eq(dt__io_open("epoll", &engine), DT_E_OS);
    ck_assert_int_eq(dt_error_errno(), EMFILE);
    dt__io_fail_setup("epoll", 0);
}
END_TEST

static const char *scenario_backend;

static dt_status open_scenario(void) {
    dt_io_engine *engine;
    DT_TRY(dt__io_open(scenario_backend, &engine));
    dt__io_close(engine);
    return DT_OK;
}

START_TEST(every_allocation_fails) {
    scenario_backend = "epoll";
    ck_assert_int_eq(test_every_allocation_fails(open_scenario), 2);
    for (int n = 1; n <= 2; n++) { /* a ring without memory steps down: not an error */
        dt_io_engine *engine;
        dt_alloc_fail_at(n, false);
        dt_status status = dt__io_open("uring", &engine);
        dt_alloc_fail_at(0, false);
        ck_assert_int_eq(status, n == 1 ? DT_E_NO_MEMORY : DT_OK);
        if (status != DT_OK) continue;
        ck_assert_str_eq(engine->backend->name, "epoll");
        dt__io_close(engine);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("io");
    TCase *tcase = tcase_create("both");
    tcase_add_loop_test(tcase, read_in_pieces, 0, 2);
    tcase_add_loop_test(tcase, many_reads, 0, 2);
    tcase_add_loop_test(tcase, truncated_file, 0, 2);
    tcase_add_loop_test(tcase, write_and_read_back, 0, 2);
    tcase_add_loop_test(tcase, errors_of_the_kernel, 0, 2);
    tcase_add_loop_test(tcase, no_memory_for_a_read, 0, 2);
    tcase_add_loop_test(tcase, shut_down, 0, 2);
    tcase_add_loop_test(tcase, deadline_ends_the_sleep, 0, 2);
    tcase_add_loop_test(tcase, wakes, 0, 2);
    suite_add_tcase(suite, tcase);
    TEST_CASE(suite, "choice", any_setup_error_steps_down, reasons, every_allocation_fails);
    return test_run(suite);
}
