/* test_status.c: texts, truncation, threads, captured errors. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "runtime/status.h"
#include "tests/c/test_support.h"

START_TEST(fail_sets_text_and_returns_status) {
    ck_assert_int_eq(dt_fail(DT_E_VALUE, "bad %s %d", "thing", 3), DT_E_VALUE);
    ck_assert_str_eq(dt_error_text(), "bad thing 3");
    ck_assert_int_eq(dt_error_errno(), 0);
}
END_TEST

START_TEST(fail_may_quote_the_current_text) {
    (void)!dt_fail(DT_E_VALUE, "inner");
    (void)!dt_fail(DT_E_RUNTIME, "outer: %s", dt_error_text());
    ck_assert_str_eq(dt_error_text(), "outer: inner");
}
END_TEST

START_TEST(fail_errno_describes) {
    ck_assert_int_eq(dt_fail_errno(ENOENT, "open '%s'", "x"), DT_E_OS);
    ck_assert_str_eq(dt_error_text(), "open 'x': No such file or directory");
    ck_assert_int_eq(dt_error_errno(), ENOENT);
    (void)!dt_fail_errno(ENOENT, "%s", "");
    ck_assert_str_eq(dt_error_text(), "No such file or directory");
    (void)!dt_fail(DT_E_VALUE, "other");
    ck_assert_int_eq(dt_error_errno(), 0);
}
END_TEST

START_TEST(long_text_is_cut) {
    char text[5000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    (void)!dt_fail(DT_E_VALUE, "%s", text);
    size_t length = strlen(dt_error_text());
    ck_assert_uint_ge(length, 1000);
    ck_assert_uint_lt(length, sizeof text - 1);
    ck_assert_str_eq(dt_error_text() + length - 4, "a...");

    for (int room = 0; room < 40; room++) { /* the description does not fit, or just so */
        text[length - (size_t)room] = 0;
        (void)!dt_fail_errno(ENOENT, "%s", text);
        ck_assert_uint_le(strlen(dt_error_text()), length);
        ck_assert_int_eq(dt_error_errno(), ENOENT);
        text[length - (size_t)room] = 'a';
    }
    (void)!dt_fail_errno(ENOENT, "%s", text);
    ck_assert_uint_eq(strlen(dt_error_text()), length);
}
END_TEST

static void *other_thread(void *context) {
    ck_assert_str_eq(dt_error_text(), "");
    (void)!dt_fail(DT_E_TYPE, "theirs");
    return context;
}

START_TEST(text_belongs_to_the_thread) {
    pthread_t thread;
    (void)!dt_fail(DT_E_TYPE, "ours");
    ck_assert_int_eq(pthread_create(&thread, NULL, other_thread, NULL), 0);
    pthread_join(thread, NULL);
    ck_assert_str_eq(dt_error_text(), "ours");
}
END_TEST

START_TEST(every_status_has_a_name) {
    for (int s = DT_STATUS_MIN; s <= DT_IN_PROGRESS; s++) {
        const char *name = dt_status_name((dt_status)s);
        ck_assert_ptr_nonnull(name);
        ck_assert_str_ne(name, "unknown status");
        for (int other = DT_STATUS_MIN; other < s; other++)
            ck_assert_str_ne(name, dt_status_name((dt_status)other));
    }
    ck_assert_str_eq(dt_status_name((dt_status)7), "unknown status");
    ck_assert_str_eq(dt_status_name((dt_status)(DT_STATUS_MIN - 1)), "unknown status");
}
END_TEST

static void *restore_elsewhere(void *context) {
    ck_assert_int_eq(dt_error_restore(context), DT_E_OS);
    ck_assert_str_eq(dt_error_text(), "read: Input/output error");
    ck_assert_int_eq(dt_error_errno(), EIO);
    dt_error_release(context);
    return NULL;
}

START_TEST(captured_error_outlives_its_thread_and_text) {
    dt_memory_stats before = test_memory();
    (void)!dt_fail_errno(EIO, "read");
    dt_error *error = dt_error_capture(DT_E_OS);
    (void)!dt_fail(DT_E_VALUE, "something else");
    ck_assert_int_eq(dt_error_status(error), DT_E_OS);
    ck_assert_int_eq(dt_error_captured_errno(error), EIO);
    ck_assert_str_eq(dt_error_message(error), "read: Input/output error");

    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, restore_elsewhere, dt_error_retain(error)), 0);
    pthread_join(thread, NULL);
    ck_assert_str_eq(dt_error_message(error), "read: Input/output error");
    dt_error_release(error);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(null_passes_through) {
    ck_assert_ptr_null(dt_error_retain(NULL));
    dt_error_release(NULL);
}
END_TEST

START_TEST(capture_without_memory_gives_a_static_error) {
    dt_memory_stats before = test_memory();
    (void)!dt_fail(DT_E_VALUE, "lost");
    dt_alloc_fail_at(1, true);
    dt_error *error = dt_error_capture(DT_E_VALUE);
    dt_error *again = dt_error_capture(DT_E_VALUE);
    dt_alloc_fail_at(0, false);
    ck_assert_ptr_nonnull(error);
    ck_assert_ptr_eq(error, again);
    ck_assert_int_eq(dt_error_status(error), DT_E_NO_MEMORY);
    ck_assert_str_eq(dt_error_message(error), "out of memory");
    for (int k = 0; k < 3; k++) dt_error_release(error);
    ck_assert_ptr_eq(dt_error_retain(error), error);
    ck_assert_int_eq(dt_error_restore(error), DT_E_NO_MEMORY);
    ck_assert_str_eq(dt_error_text(), "out of memory");
    test_assert_no_leak(before);
}
END_TEST

/* ---- failures that nobody saw ---------------------------------------------------------------- */

static int unseen_count;
static char unseen_text[64];

/* As python/ does it: posted by whoever drops the last reference, released where it is buried. */
static void bury_unseen(dt_grave *grave) {
    dt_error *error = dt_error_of_grave(grave);
    unseen_count++;
    (void)snprintf(unseen_text, sizeof unseen_text, "%s", dt_error_message(error));
    dt_error_release(error);
}

static void post_unseen(dt_error *error) {
    dt_error_grave(error)->bury = bury_unseen;
    dt_graveyard_post(dt_error_grave(error));
}

static dt_error *captured(dt_status status) { return dt_error_capture(dt_fail(status, "lost")); }

static void watch_unseen(void) {
    unseen_count = 0;
    dt_error_set_unseen_hook(post_unseen);
}

static int unseen(void) {
    dt_graveyard_drain();
    return unseen_count;
}

START_TEST(unseen_failure_is_told_once_with_its_last_reference) {
    dt_memory_stats before = test_memory();
    watch_unseen();
    dt_error *error = captured(DT_E_VALUE);
    for (int k = 0; k < 3; k++) dt_error_arm(error); /* as dependents do */
    dt_error_retain(error);
    dt_error_release(error);
    ck_assert_int_eq(unseen(), 0);
    dt_error_release(error);
    ck_assert_int_eq(unseen_count, 0); /* not before it is buried */
    ck_assert_int_eq(unseen(), 1);
    ck_assert_str_eq(unseen_text, "lost");
    ck_assert_int_eq(unseen(), 1);
    dt_error_set_unseen_hook(NULL);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(seen_or_unarmed_failures_are_not_told) {
    dt_memory_stats before = test_memory();
    watch_unseen();
    dt_error_release(captured(DT_E_VALUE)); /* never armed: raised at the call */
    dt_error *error = captured(DT_E_VALUE);
    dt_error_arm(error);
    ck_assert_int_eq(dt_error_restore(error), DT_E_VALUE);
    dt_error_arm(error);
    dt_error_release(error);
    error = captured(DT_E_VALUE);
    dt_error_mark_seen(error);
    dt_error_arm(error);
    dt_error_release(error);
    static const dt_status quiet[] = {DT_E_CANCELLED, DT_E_SHUTDOWN};
    for (int k = 0; k < 2; k++) {
        error = captured(quiet[k]);
        dt_error_arm(error);
        dt_error_release(error);
    }
    dt_error_arm(NULL);
    ck_assert_int_eq(unseen(), 0);
    dt_error_set_unseen_hook(NULL);
    error = captured(DT_E_VALUE);
    dt_error_arm(error);
    dt_error_release(error); /* nobody listens */
    ck_assert_int_eq(unseen(), 0);
    test_assert_no_leak(before);
}
END_TEST

static void *drop_reference(void *error) {
    dt_error_release(error);
    return NULL;
}

START_TEST(unseen_failure_is_told_once_by_racing_threads) {
    dt_memory_stats before = test_memory();
    watch_unseen();
    for (int round = 1; round <= 50; round++) {
        pthread_t threads[4];
        dt_error *error = captured(DT_E_INDEX);
        dt_error_arm(error);
        for (int k = 0; k < 4; k++)
            ck_assert_int_eq(
                pthread_create(&threads[k], NULL, drop_reference, dt_error_retain(error)), 0);
        dt_error_release(error);
        for (int k = 0; k < 4; k++) pthread_join(threads[k], NULL);
        ck_assert_int_eq(unseen(), round);
    }
    dt_error_set_unseen_hook(NULL);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(static_error_is_never_told) {
    watch_unseen();
    (void)!dt_fail(DT_E_VALUE, "lost");
    dt_alloc_fail_at(1, true);
    dt_error *error = dt_error_capture(DT_E_VALUE);
    dt_alloc_fail_at(0, false);
    dt_error_arm(error);
    dt_error_release(error);
    ck_assert_int_eq(unseen(), 0);
    dt_error_set_unseen_hook(NULL);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("status");
    TEST_CASE(suite, "text", fail_sets_text_and_returns_status, fail_may_quote_the_current_text,
              fail_errno_describes, long_text_is_cut, text_belongs_to_the_thread,
              every_status_has_a_name);
    TEST_CASE(suite, "captured", captured_error_outlives_its_thread_and_text, null_passes_through,
              capture_without_memory_gives_a_static_error);
    TEST_CASE(suite, "unseen", unseen_failure_is_told_once_with_its_last_reference,
              seen_or_unarmed_failures_are_not_told, unseen_failure_is_told_once_by_racing_threads,
              static_error_is_never_told);
    return test_run(suite);
}
