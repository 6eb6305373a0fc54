/* test_alloc_bytes.c: alignment, counters, the limit, and what the caches keep.
 *
 * Under AddressSanitizer there are no caches, and the tests of them are left out.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "runtime/alloc.h"
#include "tests/c/test_support.h"

#if defined(__SANITIZE_ADDRESS__)
#define CACHES 0
#else
#define CACHES 1
#endif

#define KB ((size_t)1 << 10)
#define MB ((size_t)1 << 20)

static char *checked_alloc(size_t size) {
    char *p = dt_bytes_alloc(size);
    require(p != NULL && (uintptr_t)p % DT_BYTES_ALIGN == 0);
    return p;
}

/* Writes the first and last bytes of every page of the block. */
static void touch(char *p, size_t size) {
    if (size == 0) return;
    for (size_t k = 0; k < size; k += 4096) p[k] = 1;
    p[size - 1] = 1;
}

START_TEST(sizes_around_every_border) {
    dt_memory_stats before = test_memory();
    for (size_t base = 64; base <= 16 * MB; base += base / 8)
        for (int by = -1; by <= 1; by++) {
            size_t size = base + (size_t)by;
            char *p = checked_alloc(size), *q = checked_alloc(size);
            ck_assert(p + size <= q || q + size <= p);
            touch(p, size);
            touch(q, size);
            ck_assert_int_eq(test_memory().live_bytes, before.live_bytes + 2 * (int64_t)size);
            dt_bytes_free(p, size);
            dt_bytes_free(q, size);
        }
    char *empty = checked_alloc(0);
    ck_assert_int_eq(test_memory().live_bytes, before.live_bytes);
    dt_bytes_free(empty, 0);
    dt_bytes_free(NULL, 100);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(small_sizes) {
    dt_memory_stats before = test_memory();
    static char *blocks[4200];
    for (size_t size = 0; size < 4200; size++) memset(blocks[size] = checked_alloc(size), 1, size);
    ck_assert_int_eq(test_memory().objects, before.objects); /* bytes are no objects */
    for (size_t size = 0; size < 4200; size++) {
        char sum = 1;
        for (size_t k = 0; k < size; k++) sum &= blocks[size][k];
        ck_assert_int_eq(sum, 1);
        dt_bytes_free(blocks[size], size);
    }
    test_assert_no_leak(before);
}
END_TEST

START_TEST(peak) {
    dt_memory_stats before = test_memory();
    dt_memory_stats_reset_peak();
    ck_assert_int_eq(test_memory().peak_bytes, before.live_bytes);
    char *a = checked_alloc(1000), *b = checked_alloc(3 * MB);
    dt_bytes_free(a, 1000);
    char *c = checked_alloc(500);
    ck_assert_int_eq(test_memory().peak_bytes, before.live_bytes + 3 * (int64_t)MB + 1000);
    dt_bytes_free(b, 3 * MB);
    dt_memory_stats_reset_peak();
    ck_assert_int_eq(test_memory().peak_bytes, before.live_bytes + 500);
    dt_bytes_free(c, 500);
    ck_assert_int_eq(test_memory().peak_bytes, before.live_bytes + 500);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(limit) {
    dt_memory_stats before = test_memory();
    dt_memory_limit_set(before.live_bytes + 1000);
    char *a = checked_alloc(600);
    ck_assert_ptr_null(dt_bytes_alloc(401));
    char *b = checked_alloc(400); /* just so */
    ck_assert_ptr_null(dt_bytes_alloc(1));
    dt_bytes_free(a, 600);
    a = checked_alloc(600);
    dt_memory_limit_set(0);
    char *c = checked_alloc(MB);
    dt_memory_limit_set(-5); /* none */
    char *d = checked_alloc(MB);
    dt_bytes_free(a, 600);
    dt_bytes_free(b, 400);
    dt_bytes_free(c, MB);
    dt_bytes_free(d, MB);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(sizes_nobody_has) {
    dt_memory_stats before = test_memory();
    ck_assert_ptr_null(dt_bytes_alloc(SIZE_MAX));
    ck_assert_ptr_null(dt_bytes_alloc((size_t)1 << 63));
    ck_assert_ptr_null(dt_bytes_alloc((size_t)1 << 47));
    test_assert_no_leak(before);
}
END_TEST

#if CACHES
START_TEST(blocks_are_reused) {
    const size_t sizes[] = {5000, 64 * KB, MB - 1, MB, 3 * MB, 8 * MB, 50 * MB};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        size_t size = sizes[k];
        dt_memory_cache_empty();
        ck_assert_int_eq(test_memory().cached_bytes, 0);
        char *p = checked_alloc(size);
        dt_bytes_free(p, size);
        int64_t cached = test_memory().cached_bytes;
        ck_assert_int_ge(cached, (int64_t)size);
        ck_assert_int_le(cached, (int64_t)(size + size / 8 + 64));
        ck_assert_ptr_eq(dt_bytes_alloc(size), p);
        ck_assert_int_eq(test_memory().cached_bytes, 0);
        dt_bytes_free(p, size);
    }
}
END_TEST

START_TEST(large_blocks_fit_within_a_quarter) {
    dt_memory_cache_empty();
    char *p = checked_alloc(20 * MB);
    touch(p, 20 * MB);
    dt_bytes_free(p, 20 * MB);
    char *small = checked_alloc(10 * MB); /* far too small for it */
    ck_assert_ptr_ne(small, p);
    ck_assert_ptr_eq(dt_bytes_alloc(16 * MB), p); /* its tail is given back */
    ck_assert_int_eq(test_memory().cached_bytes, 0);
    touch(p, 16 * MB);
    dt_bytes_free(p, 16 * MB);
    ck_assert_int_eq(test_memory().cached_bytes, 16 * (int64_t)MB);
    char *larger = checked_alloc(20 * MB);
    ck_assert_ptr_ne(larger, p);
    touch(larger, 20 * MB);
    dt_bytes_free(larger, 20 * MB);
    dt_bytes_free(small, 10 * MB);
    dt_memory_cache_empty();
    ck_assert_int_eq(test_memory().cached_bytes, 0);
}
END_TEST

/* The size of the address space. */
static int64_t mapped_bytes(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%ld", &pages), 1);
    fclose(file);
    return (int64_t)pages * 4096;
}

START_TEST(nothing_stays_mapped) {
    int64_t start = 0;
    for (int round = 0; round < 20; round++) {
        dt_memory_cache_empty();
        if (round == 5) start = mapped_bytes();
        /* Two of a size that is no multiple of a huge page: one must be moved to its alignment. */
        char *p = checked_alloc(9 * MB), *q = checked_alloc(9 * MB);
        dt_bytes_free(p, 9 * MB);
        p = checked_alloc(8 * MB); /* cut from it */
        dt_bytes_free(p, 8 * MB);
        dt_bytes_free(q, 9 * MB);
    }
    dt_memory_cache_empty();
    ck_assert_int_lt(mapped_bytes() - start, TEST_SANITIZED ? 4 << 20 : 1 << 20);
}
END_TEST

START_TEST(large_blocks_lie_on_huge_pages) {
    for (size_t size = 4 * MB; size <= 40 * MB; size += 3 * MB + 12345) {
        char *p = checked_alloc(size);
        ck_assert_uint_eq((uintptr_t)p % (2 * MB), 0);
        dt_bytes_free(p, size);
    }
    dt_memory_cache_empty();
}
END_TEST

START_TEST(the_cache_is_bounded) {
    enum { COUNT = 64 };
    static char *blocks[COUNT];
    dt_memory_cache_empty();
    dt_memory_stats_reset_peak();
    for (int round = 0; round < 2; round++) { /* 320 MiB live, then 1 GiB live (untouched) */
        int count = round == 0 ? 20 : COUNT;
        for (int k = 0; k < count; k++) *(blocks[k] = checked_alloc(16 * MB)) = 1;
        for (int k = 0; k < count; k++) dt_bytes_free(blocks[k], 16 * MB);
        ck_assert_int_eq(test_memory().cached_bytes, (int64_t)(round == 0 ? 256 : 512) * MB);
    }
    /* Those freed last are kept. */
    ck_assert_ptr_eq(dt_bytes_alloc(16 * MB), blocks[COUNT - 1]);
    dt_bytes_free(blocks[COUNT - 1], 16 * MB);
    dt_memory_cache_empty();
    ck_assert_int_eq(test_memory().cached_bytes, 0);

    /* Medium blocks: 100 MiB of them freed, 64 MiB kept. */
    enum { MEDIUM = 200 };
    static char *medium[MEDIUM];
    for (int k = 0; k < MEDIUM; k++) medium[k] = checked_alloc(512 * KB);
    for (int k = 0; k < MEDIUM; k++) dt_bytes_free(medium[k], 512 * KB);
    ck_assert_int_eq(test_memory().cached_bytes, 64 * (int64_t)MB);
    dt_memory_cache_empty();
    ck_assert_int_eq(test_memory().cached_bytes, 0);
}
END_TEST

START_TEST(caches_are_emptied_before_failing) {
    dt_bytes_free(checked_alloc(8 * MB), 8 * MB);
    ck_assert_int_gt(test_memory().cached_bytes, 0);
    ck_assert_ptr_null(dt_bytes_alloc((size_t)1 << 47));
    ck_assert_int_eq(test_memory().cached_bytes, 0);
}
END_TEST
#endif

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 4, SLOTS = 24, ROUNDS = TEST_SANITIZED ? 3000 : 20000 };

typedef struct head {
    size_t size;
} head;

static _Atomic(head *) slots[SLOTS];
static int64_t limit_bytes;

static void checked_free(head *h) {
    if (h == NULL) return;
    require(*(size_t *)((char *)h + (h->size / 8 - 1) * 8) == h->size);
    dt_bytes_free(h, h->size);
}

static void *stress(void *context) {
    uint64_t seed = (uintptr_t)context;
    for (int k = 0; k < ROUNDS; k++) {
        size_t size =
            16 + ((size_t)test_random_in(&seed, 0, 8 << 20) >> test_random_in(&seed, 0, 18));
        head *h = dt_bytes_alloc(size);
        if (h == NULL) continue; /* the limit */
        h->size = size;
        *(size_t *)((char *)h + (size / 8 - 1) * 8) = size;
        checked_free(atomic_exchange(&slots[test_random_in(&seed, 0, SLOTS - 1)], h));
    }
    return NULL;
}

START_TEST(stress_across_threads) {
    dt_memory_stats before = test_memory();
    pthread_t threads[THREADS];
    limit_bytes = before.live_bytes + 24 * (int64_t)MB;
    dt_memory_stats_reset_peak();
    dt_memory_limit_set(limit_bytes);
    for (uintptr_t t = 0; t < THREADS; t++)
        ck_assert_int_eq(pthread_create(&threads[t], NULL, stress, (void *)(t + 1)), 0);
    for (int k = 0; k < 20; k++) dt_memory_cache_empty(); /* meanwhile */
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    dt_memory_limit_set(0);
    ck_assert_int_le(test_memory().peak_bytes, limit_bytes); /* never passed, not even briefly */
    ck_assert_int_gt(test_memory().peak_bytes, limit_bytes / 2);
    for (int k = 0; k < SLOTS; k++) checked_free(atomic_exchange(&slots[k], NULL));
    test_assert_no_leak(before);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("alloc_bytes");
    TEST_CASE(suite, "blocks", sizes_around_every_border, small_sizes, sizes_nobody_has);
    TEST_CASE(suite, "counters", peak, limit);
#if CACHES
    TEST_CASE(suite, "caches", blocks_are_reused, large_blocks_fit_within_a_quarter,
              nothing_stays_mapped, large_blocks_lie_on_huge_pages, the_cache_is_bounded,
              caches_are_emptied_before_failing);
#endif
    TEST_CASE(suite, "threads", stress_across_threads);
    return test_run(suite);
}
