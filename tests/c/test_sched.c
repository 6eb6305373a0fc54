/* test_sched.c: the scheduler from submit to stop, with fake kernels, on both I/O backends. */
#include <check.h>
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/c/sched_support.h"

static const char *const backends[] = {"uring", "epoll"};

START_TEST(one_task) {
    dt_memory_stats before = test_memory();
    dt_sched *s = fake_sched(2, backends[_i]);
    dt_tensor *x = fake_full(1000, 7), *out = fake_tensor(1000);
    fake_ends ends = {0};
    dt_sched_submit(s, fake_task(&ends, out, x, 3, NULL, 0, 1));
    fake_await(&ends, 1);
    ck_assert_int_eq(ends.failed, 0);
    for (int k = 0; k < 1000; k++) ck_assert_int_eq(*fake_at(out, k), 22);
    dt_tensor_release(x);
    dt_tensor_release(out);
    dt_sched_stop(s);
    test_assert_no_leak(before);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("sched");
    TCase *tcase = tcase_create("basic");
    tcase_add_loop_test(tcase, one_task, 0, 2);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
