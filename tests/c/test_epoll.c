/* test_epoll.c: what only the epoll backend does: its timer and its threads. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "tests/c/io_support.h"

/* Threads of this process whose name begins with `prefix`. */
static int threads_named(const char *prefix) {
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *f = fopen(path, "r");
        if (f == NULL) continue;
        if (fgets(name, sizeof name, f) != NULL && strncmp(name, prefix, strlen(prefix)) == 0) n++;
        fclose(f);
    }
    closedir(dir);
    return n;
}

START_TEST(threads_come_with_the_first_read_and_go) {
    io_make_file(800000);
    dt_memory_stats before = test_memory();
    dt_io_engine *engine = io_engine("epoll");
    fake_ends ends = {0};
    dt_file *file;
    ck_assert_ok(dt_file_open(io_path, false, &file));
    ck_assert_int_eq(threads_named("dt-io-"), 0);
    dt_tensor *t[40];
    for (int k = 0; k < 40; k++) {
        t[k] = fake_tensor(1000);
        io_submit(engine, io_task(&ends, file, false, t[k], k));
    }
    io_drive(engine, &ends, 40);
    int threads = threads_named("dt-io-");
    ck_assert_int_ge(threads, 1);
    ck_assert_int_le(threads, 4);
    for (int k = 0; k < 40; k++) {
        ck_assert_int_eq(*fake_at(t[k], 999), (999 + k) * 3 + 1);
        dt_tensor_release(t[k]);
    }
    dt_file_release(file);
    dt__io_close(engine);
    while (threads_named("dt-io-") > 0) sched_yield(); /* joined ones are listed for a moment */
    test_assert_no_leak(before);
    io_remove_file();
}
END_TEST

/* The timer is set to another deadline, off, and to the same one after it has rung. */
START_TEST(timer_is_set_again) {
    dt_io_engine *engine = io_engine("epoll");
    int64_t late_ns = dt_clock_ns() + 60000000000;
    dt__io_wake(engine);
    dt__io_wait(engine, late_ns);
    int64_t soon_ns = dt_clock_ns() + 2000000;
    while (dt_clock_ns() < soon_ns) dt__io_wait(engine, soon_ns);
    for (int k = 0; k < 10; k++) dt__io_wait(engine, soon_ns); /* past: returns at once */
    dt__io_wake(engine);
    dt__io_wait(engine, -1);
    dt__io_close(engine);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("epoll");
    TEST_CASE(suite, "epoll", threads_come_with_the_first_read_and_go, timer_is_set_again);
    return test_run(suite);
}
