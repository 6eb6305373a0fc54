/* test_ring.c: what only the io_uring backend does: bursts of wake-ups, and sleeping with reads
 * under way. Skipped where the kernel has no io_uring. */
#include <check.h>

#include "tests/c/io_support.h"

static bool has_uring(void) {
    dt_io_engine *engine;
    ck_assert_ok(dt__io_open(NULL, &engine));
    bool uring = engine->backend == &dt__io_uring;
    if (uring) ck_assert_str_eq(engine->reason, "io_uring works here");
    dt__io_close(engine);
    return uring;
}

/* More wake-ups than the completion queue has room for: the poll is armed again and goes on. */
START_TEST(poll_survives_an_overflow) {
    if (!has_uring()) return;
    dt_io_engine *engine = io_engine("uring");
    for (int round = 0; round < 5; round++) {
        for (int k = 0; k < 3000; k++) dt__io_wake(engine);
        dt__io_wait(engine, -1);
        for (int k = 0; k < 50; k++) dt__io_wait(engine, 0);
        dt__io_wait(engine, dt_clock_ns() + 1000000);
    }
    dt__io_wake(engine);
    dt__io_wait(engine, -1);
    dt__io_close(engine);
}
END_TEST

START_TEST(reads_end_the_sleep) {
    if (!has_uring()) return;
    io_make_file(800000);
    dt_memory_stats before = test_memory();
    dt_io_engine *engine = io_engine("uring");
    fake_ends ends = {0};
    dt_file *file;
    ck_assert_ok(dt_file_open(io_path, false, &file));
    for (uint32_t k = 0; k < 50; k++) {
        dt_tensor *t = fake_tensor(1000);
        io_submit(engine, io_task(&ends, file, false, t, k));
        while (atomic_load(&ends.count) == k) {
            dt__io_wait(engine, -1);
            dt__io_finish(engine, io_ended, NULL);
        }
        ck_assert_int_eq(*fake_at(t, 999), (999 + (int64_t)k) * 3 + 1);
        dt_tensor_release(t);
    }
    dt_file_release(file);
    dt__io_close(engine);
    test_assert_no_leak(before);
    io_remove_file();
}
END_TEST

/* Polling without a sleep also finds what has ended. */
START_TEST(reads_are_found_without_sleeping) {
    if (!has_uring()) return;
    io_make_file(80000);
    dt_io_engine *engine = io_engine("uring");
    fake_ends ends = {0};
    dt_file *file;
    ck_assert_ok(dt_file_open(io_path, false, &file));
    dt_tensor *t = fake_tensor(1000);
    io_submit(engine, io_task(&ends, file, false, t, 0));
    int64_t deadline_ns = dt_clock_ns() + 20000000000;
    while (atomic_load(&ends.count) == 0 && dt_clock_ns() < deadline_ns) {
        dt__io_wait(engine, 0);
        dt__io_finish(engine, io_ended, NULL);
    }
    ck_assert_int_eq(ends.count, 1);
    dt_tensor_release(t);
    dt_file_release(file);
    dt__io_close(engine);
    io_remove_file();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ring");
    TEST_CASE(suite, "ring", poll_survives_an_overflow, reads_end_the_sleep,
              reads_are_found_without_sleeping);
    return test_run(suite);
}
