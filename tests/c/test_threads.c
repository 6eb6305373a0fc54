/* test_threads.c: how threads are started, and cgroup quotas. */
#include <check.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

#include "scheduler/sched.h"
#include "scheduler/threads.h"
#include "tests/c/test_support.h"

typedef struct seen {
    char name[16];
    sigset_t blocked;
    _Atomic(int) go;
} seen;

static void *look(void *argument) {
    seen *s = argument;
    while (!s->go) sched_yield(); /* the starter gives the name after the start */
    pthread_getname_np(pthread_self(), s->name, sizeof s->name);
    pthread_sigmask(SIG_BLOCK, NULL, &s->blocked);
    return NULL;
}

START_TEST(thread_has_a_name_and_blocks_signals) {
    seen s = {0};
    pthread_t thread;
    sigset_t before, after;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    ck_assert_ok(dt__thread_start(&thread, look, &s, "dt-wrk-%d", 42));
    s.go = 1;
    pthread_join(thread, NULL);
    ck_assert_str_eq(s.name, "dt-wrk-42");
    for (int sig = 1; sig < 32; sig++)
        if (sig != SIGKILL && sig != SIGSTOP) ck_assert(sigismember(&s.blocked, sig));
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    ck_assert_int_eq(sigismember(&after, SIGINT), sigismember(&before, SIGINT));
}
END_TEST

START_TEST(cpu_max) {
    ck_assert_int_eq(dt__threads_parse_cpu_max("max 100000\n"), 0);
    ck_assert_int_eq(dt__threads_parse_cpu_max("100000 100000\n"), 1);
    ck_assert_int_eq(dt__threads_parse_cpu_max("150000 100000\n"), 2);
    ck_assert_int_eq(dt__threads_parse_cpu_max("50000 100000"), 1);
    ck_assert_int_eq(dt__threads_parse_cpu_max("-1 100000"), 0);
    ck_assert_int_eq(dt__threads_parse_cpu_max("1 0"), 0);
    ck_assert_int_eq(dt__threads_parse_cpu_max(""), 0);
    ck_assert_int_eq(dt__threads_parse_cpu_max("9000000000000 100"), 0);
}
END_TEST

START_TEST(default_follows_affinity) {
    cpu_set_t before, one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    int all = dt_sched_default_threads();
    ck_assert_int_ge(all, 1);
    ck_assert_int_le(all, CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (int k = 0; k < CPU_SETSIZE; k++) {
        if (!CPU_ISSET(k, &before)) continue;
        CPU_SET(k, &one);
        break;
    }
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    ck_assert_int_eq(dt_sched_default_threads(), 1);
    ck_assert_int_eq(sched_setaffinity(0, sizeof before, &before), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("threads");
    TEST_CASE(suite, "threads", thread_has_a_name_and_blocks_signals, cpu_max,
              default_follows_affinity);
    return test_run(suite);
}
