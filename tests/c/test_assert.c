/* test_assert.c: a failed assertion says where, and aborts. */
#include <check.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/assert.h"
#include "tests/c/test_support.h"

START_TEST(true_passes) {
    int evaluated = 0;
    DT_ASSERT(++evaluated == 1);
    ck_assert_int_eq(evaluated, 1);
}
END_TEST

START_TEST(false_aborts_with_a_message) {
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(fds[1], STDERR_FILENO);
        DT_ASSERT(1 + 1 == 3);
        _exit(0);
    }
    close(fds[1]);
    char text[1024] = {0};
    size_t used = 0;
    for (ssize_t n; (n = read(fds[0], text + used, sizeof text - 1 - used)) > 0;) used += (size_t)n;
    close(fds[0]);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status));
    ck_assert_int_eq(WTERMSIG(status), SIGABRT);
    ck_assert_ptr_nonnull(strstr(text, "test_assert.c:"));
    ck_assert_ptr_nonnull(strstr(text, "assertion failed: 1 + 1 == 3\n"));
}
END_TEST

START_TEST(debug_assert_evaluates_only_in_debug_builds) {
    int evaluated = 0;
    DT_DEBUG_ASSERT(++evaluated == 1);
#ifdef DT_DEBUG
    ck_assert_int_eq(evaluated, 1);
#else
    ck_assert_int_eq(evaluated, 0);
#endif
}
END_TEST

int main(void) {
    Suite *suite = suite_create("assert");
    TEST_CASE(suite, "assert", true_passes, false_aborts_with_a_message,
              debug_assert_evaluates_only_in_debug_builds);
    return test_run(suite);
}
