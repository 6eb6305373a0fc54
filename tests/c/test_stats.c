/* test_stats.c: buckets, and histograms of several threads, also of those that have ended. */
#include "runtime/stats.h"

#include <pthread.h>
#include <stdint.h>

#include "tests/c/test_support.h"

START_TEST(buckets_are_powers_of_two) {
    ck_assert_uint_eq(dt_histogram_bucket(INT64_MIN), 0);
    ck_assert_uint_eq(dt_histogram_bucket(0), 0);
    ck_assert_uint_eq(dt_histogram_bucket(1), 1);
    ck_assert_uint_eq(dt_histogram_bucket(2), 2);
    ck_assert_uint_eq(dt_histogram_bucket(3), 2);
    ck_assert_uint_eq(dt_histogram_bucket(1023), 10);
    ck_assert_uint_eq(dt_histogram_bucket(1024), 11);
    ck_assert_uint_eq(dt_histogram_bucket(INT64_MAX), DT_HISTOGRAM_BUCKETS - 1);
}
END_TEST

static int64_t count(const dt_histogram *h) {
    int64_t n = 0;
    for (int k = 0; k < DT_HISTOGRAM_BUCKETS; k++) n += h->buckets[k];
    return n;
}

static void *worker(void *argument) {
    for (int k = 0; k < 1000; k++) dt_stats_add_task((intptr_t)argument, 100);
    return NULL;
}

START_TEST(threads_add_up) {
    dt_time_stats s;
    pthread_t threads[4];
    for (int round = 1; round <= 3; round++) { /* later threads go on with the blocks of earlier */
        for (intptr_t k = 0; k < 4; k++)
            ck_assert_int_eq(pthread_create(&threads[k], NULL, worker, (void *)(k * 1000)), 0);
        dt_stats_times_get(&s); /* meanwhile: no more than there will be */
        ck_assert_int_le(count(&s.queue_ns), 4000 * round);
        for (int k = 0; k < 4; k++) pthread_join(threads[k], NULL);
        dt_stats_times_get(&s);
        ck_assert_int_eq(count(&s.queue_ns), 4000 * round);
        ck_assert_int_eq(count(&s.run_ns), 4000 * round);
        ck_assert_int_eq(s.queue_ns.buckets[0], 1000 * round);
        ck_assert_int_eq(s.queue_ns.buckets[dt_histogram_bucket(1000)], 1000 * round);
        ck_assert_int_eq(s.queue_ns.sum, (1000 + 2000 + 3000) * INT64_C(1000) * round);
        ck_assert_int_eq(s.run_ns.buckets[7], 4000 * round);
        ck_assert_int_eq(s.run_ns.sum, 100 * INT64_C(4000) * round);
    }
}
END_TEST

START_TEST(negative_times_count_as_none) {
    dt_stats_add_task(-5, 3);
    dt_time_stats s;
    dt_stats_times_get(&s);
    ck_assert_int_eq(s.queue_ns.buckets[0], 1);
    ck_assert_int_eq(s.queue_ns.sum, 0);
    ck_assert_int_eq(s.run_ns.sum, 3);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("stats");
    TEST_CASE(suite, "stats", buckets_are_powers_of_two, threads_add_up,
              negative_times_count_as_none);
    return test_run(suite);
}
