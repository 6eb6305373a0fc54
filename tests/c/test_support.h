/* test_support.h: what the tests of runtime/ share.
 *
 * Header only, so that any C test can be built by hand from its one file and libcheck.
 */
#ifndef DT_TESTS_TEST_SUPPORT_H
#define DT_TESTS_TEST_SUPPORT_H

#include <check.h>
#include <stdint.h>
#include <stdlib.h>

#include "runtime/alloc.h"
#include "runtime/status.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1
#else
#define TEST_SANITIZED 0
#endif

/* As ck_assert, for loops: libcheck notes each assertion that passes in a file, under a lock. */
#define require(expr)                                                                              \
    do {                                                                                           \
        if (__builtin_expect(!(expr), 0)) ck_abort_msg("line %d: %s", __LINE__, #expr);            \
    } while (0)

/* A case of `name` with the tests that follow. */
#define TEST_CASE(suite, name, ...)                                                                \
    do {                                                                                           \
        TCase *tcase_ = tcase_create(name);                                                        \
        const TTest *const tests_[] = {__VA_ARGS__};                                               \
        for (size_t k_ = 0; k_ < sizeof tests_ / sizeof tests_[0]; k_++)                           \
            tcase_add_test(tcase_, tests_[k_]);                                                    \
        suite_add_tcase(suite, tcase_);                                                            \
    } while (0)

#define ck_assert_ok(expr) test_assert_ok((expr), #expr, __LINE__)
#define ck_assert_fails(expr, status, text) test_assert_fails((expr), status, text, __LINE__)

static inline __attribute__((unused)) void test_assert_ok(dt_status status, const char *what,
                                                          int line) {
    ck_assert_msg(status == DT_OK, "line %d: %s: %s (%s)", line, what, dt_error_text(),
                  dt_status_name(status));
}

static inline __attribute__((unused)) void test_assert_fails(dt_status got, dt_status status,
                                                             const char *text, int line) {
    ck_assert_msg(got == status, "line %d: status %s instead of %s", line, dt_status_name(got),
                  dt_status_name(status));
    ck_assert_str_eq(dt_error_text(), text);
}

static inline __attribute__((unused)) int test_run(Suite *suite) {
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Objects and storage bytes alive: taken before and compared after. */
static inline __attribute__((unused)) dt_memory_stats test_memory(void) {
    dt_memory_stats stats;
    dt_memory_stats_get(&stats);
    return stats;
}

static inline __attribute__((unused)) void test_assert_no_leak(dt_memory_stats before) {
    dt_memory_stats after = test_memory();
    ck_assert_int_eq(after.objects, before.objects);
    ck_assert_int_eq(after.live_bytes, before.live_bytes);
}

/* Runs `scenario`, which frees all it makes, with its first allocation failing, then its second,
 * and so on until it succeeds. Returns how many failures it took. */
static inline __attribute__((unused)) int test_every_allocation_fails(dt_status (*scenario)(void)) {
    for (int n = 1;; n++) {
        dt_memory_stats before = test_memory();
        dt_alloc_fail_at(n, false);
        dt_status status = scenario();
        int64_t counted = dt_alloc_fail_at(0, false);
        test_assert_no_leak(before);
        if (counted < n) {
            ck_assert_int_eq(status, DT_OK);
            return n - 1;
        }
        ck_assert_int_eq(status, DT_E_NO_MEMORY);
        ck_assert_msg(dt_error_text()[0] != 0, "no text for failure %d", n);
        ck_assert_int_lt(n, 1000);
    }
}

/* A small generator with a fixed seed, so that a failure repeats. */
static inline __attribute__((unused)) uint64_t test_random(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Uniform in [low, high]. */
static inline __attribute__((unused)) int64_t test_random_in(uint64_t *state, int64_t low,
                                                             int64_t high) {
    return low + (int64_t)(test_random(state) % (uint64_t)(high - low + 1));
}

#endif
