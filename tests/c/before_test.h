/* before_test.h: comes before every C test (DtTests.cmake). libcheck writes to a file at every
 * assertion that holds, so that it can say after which one a test crashed: in a loop over elements
 * these writes were most of a test's time. The same line again tells it nothing new. */
#ifndef DT_TESTS_BEFORE_TEST_H
#define DT_TESTS_BEFORE_TEST_H

#include <check.h>

static inline void dt_mark_point(const char *file, int line) {
    static _Thread_local const char *last_file;
    static _Thread_local int last_line;
    if (line == last_line && file == last_file) return;
    last_file = file;
    last_line = line;
    _mark_point(file, line);
}

/* What libcheck's assertions call. */
#define _mark_point dt_mark_point /* NOLINT(bugprone-reserved-identifier): libcheck's name */

/* ThreadSanitizer is not asked about tests that DtTests.cmake lists as without threads. */
#ifdef DT_TEST_THREADLESS
#include <pthread.h>
#define pthread_create(...) (ck_abort_msg("DtTests.cmake lists this test as without threads"), 0)
#endif

#endif
