/* test_alloc.c: small objects in one thread and in many, threads that come and go, fork, injection.
 *
 * What is said about reuse of memory holds for the size classes only; under AddressSanitizer all
 * blocks come from malloc, and those tests are left out.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/alloc.h"
#include "tests/c/test_support.h"

#if defined(__SANITIZE_ADDRESS__)
#define CACHES 0
#else
#define CACHES 1
#endif

static void *checked_alloc(size_t size) {
    void *p = dt_alloc(size);
    require(p != NULL);
    return p;
}

#if CACHES
static int64_t resident_bytes(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%*d %ld", &pages), 1);
    fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}
#endif

/* ---- one thread ------------------------------------------------------------------------------ */

START_TEST(every_size) {
    dt_memory_stats before = test_memory();
    for (size_t size = 0; size <= 5000; size++) {
        unsigned char *p = checked_alloc(size), *q = checked_alloc(size);
        ck_assert_uint_eq((uintptr_t)p % 16, 0);
        ck_assert_ptr_ne(p, q);
        memset(p, 0xaa, size);
        memset(q, 0x55, size);
        for (size_t k = 0; k < size; k += 97) require(p[k] == 0xaa);
        require(size == 0 || p[size - 1] == 0xaa);
        ck_assert_int_eq(test_memory().objects, before.objects + 2);
        dt_free(p, size);
        dt_free(q, size);
    }
    dt_free(NULL, 10);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(zeroed) {
    for (size_t size = 1; size <= 9000; size += 503) {
        unsigned char *p = checked_alloc(size);
        memset(p, 0xff, size);
        dt_free(p, size);
        p = dt_alloc_zeroed(size);
        ck_assert_ptr_nonnull(p);
        for (size_t k = 0; k < size; k++) require(p[k] == 0);
        dt_free(p, size);
    }
}
END_TEST

typedef struct live {
    unsigned char *p;
    size_t size;
    unsigned char mark;
} live;

static void live_fill(live *l, size_t size, uint64_t *seed) {
    l->size = size;
    l->mark = (unsigned char)test_random(seed);
    l->p = checked_alloc(size);
    memset(l->p, l->mark, size);
}

static void live_check_and_free(live *l) {
    for (size_t k = 0; k < l->size; k++)
        if (l->p[k] != l->mark) ck_abort_msg("a block of %zu bytes was overwritten", l->size);
    dt_free(l->p, l->size);
    l->p = NULL;
}

START_TEST(blocks_do_not_overlap) {
    enum { LIVE = 3000 };
    static live all[LIVE];
    dt_memory_stats before = test_memory();
    uint64_t seed = 1;
    for (int k = 0; k < LIVE * 10; k++) {
        live *l = &all[test_random_in(&seed, 0, LIVE - 1)];
        if (l->p != NULL)
            live_check_and_free(l);
        else
            live_fill(l, (size_t)test_random_in(&seed, 1, k % 10 == 0 ? 6000 : 700), &seed);
    }
    for (int k = 0; k < LIVE; k++)
        if (all[k].p != NULL) live_check_and_free(&all[k]);
    test_assert_no_leak(before);
}
END_TEST

#if CACHES
START_TEST(freed_block_is_the_next_one) {
    void *keep = checked_alloc(200);
    void *p = checked_alloc(200);
    dt_free(p, 200);
    ck_assert_ptr_eq(checked_alloc(200), p);
    dt_free(p, 200);
    dt_free(keep, 200);
}
END_TEST

START_TEST(memory_of_a_burst_goes_back) {
    enum { BURST = 100000, SIZE = 1000 };
    static void *blocks[BURST];
    dt_memory_cache_empty();
    int64_t start = resident_bytes();
    for (int round = 0; round < 3; round++) {
        for (int k = 0; k < BURST; k++) memset(blocks[k] = checked_alloc(SIZE), 1, SIZE);
        ck_assert_int_gt(resident_bytes() - start, (int64_t)BURST * SIZE);
        for (int k = 0; k < BURST; k++) dt_free(blocks[k], SIZE);
        /* At most the pool (16 MiB) and first pages of slabs (4 of each 64 KiB) stay. */
        if (!TEST_SANITIZED) ck_assert_int_lt(resident_bytes() - start, 32 << 20);
    }
}
END_TEST
#endif

/* ---- threads --------------------------------------------------------------------------------- */

enum { PASSED = 5000 };

static void *passed[PASSED];

static void *free_passed(void *context) {
    size_t size = *(size_t *)context;
    for (int k = 0; k < PASSED; k++) dt_free(passed[k], size);
    return NULL;
}

static void *alloc_passed(void *context) {
    size_t size = *(size_t *)context;
    for (int k = 0; k < PASSED; k++) passed[k] = checked_alloc(size);
    return NULL;
}

static void in_thread(void *(*function)(void *), size_t size) {
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, function, &size), 0);
    pthread_join(thread, NULL);
}

START_TEST(objects_are_counted_across_threads) {
    dt_memory_stats before = test_memory();
    for (size_t size = 100; size <= 5100; size += 2500) { /* the last one is beyond the classes */
        alloc_passed(&size);
        ck_assert_int_eq(test_memory().objects, before.objects + PASSED);
        in_thread(free_passed, size);
        test_assert_no_leak(before);
        in_thread(alloc_passed, size);
        ck_assert_int_eq(test_memory().objects, before.objects + PASSED);
        free_passed(&size);
        test_assert_no_leak(before);
    }
}
END_TEST

#if CACHES
START_TEST(blocks_return_to_their_owner) {
    size_t size = 512;
    int64_t start = 0;
    for (int round = 0; round < 60; round++) { /* 2.5 MB each */
        alloc_passed(&size);
        in_thread(free_passed, size);
        if (round == 5) start = resident_bytes();
    }
    ck_assert_int_lt(resident_bytes() - start, TEST_SANITIZED ? 60 << 20 : 10 << 20);
}
END_TEST

START_TEST(heaps_of_ended_threads_are_adopted) {
    int64_t start = 0;
    for (int round = 0; round < 60; round++) {
        in_thread(alloc_passed, 512);
        free_passed(&(size_t){512}); /* after the owner has ended */
        if (round == 5) start = resident_bytes();
    }
    ck_assert_int_lt(resident_bytes() - start, TEST_SANITIZED ? 60 << 20 : 10 << 20);
}
END_TEST
#endif

/* Threads take and put blocks in shared slots, so that most are freed by another thread. */
enum { SLOTS = 256, STRESS_THREADS = 4, STRESS_ROUNDS = TEST_SANITIZED ? 20000 : 100000 };

typedef struct stressed {
    size_t size;
    uint64_t mark;
} stressed;

static _Atomic(stressed *) slots[SLOTS];

static uint64_t *last_word(stressed *s) { return (uint64_t *)((char *)s + s->size - 8); }

static void stress_free(stressed *s) {
    if (s == NULL) return;
    require(s->mark == (uintptr_t)s * 31 + s->size);
    require(*last_word(s) == s->mark);
    dt_free(s, s->size);
}

static void *stress(void *context) {
    uint64_t seed = (uintptr_t)context;
    for (int k = 0; k < STRESS_ROUNDS; k++) {
        size_t size = (size_t)test_random_in(&seed, 3, k % 50 == 0 ? 700 : 80) * 8;
        stressed *s = checked_alloc(size);
        s->size = size;
        s->mark = (uintptr_t)s * 31 + size;
        *last_word(s) = s->mark;
        stress_free(atomic_exchange(&slots[test_random_in(&seed, 0, SLOTS - 1)], s));
    }
    return NULL;
}

START_TEST(stress_across_threads) {
    dt_memory_stats before = test_memory();
    for (int round = 0; round < 2; round++) { /* the second round's threads adopt heaps */
        pthread_t threads[STRESS_THREADS];
        for (uintptr_t t = 0; t < STRESS_THREADS; t++)
            ck_assert_int_eq(pthread_create(&threads[t], NULL, stress, (void *)(t + 1)), 0);
        for (int t = 0; t < STRESS_THREADS; t++) pthread_join(threads[t], NULL);
        dt_memory_cache_empty();
    }
    for (int k = 0; k < SLOTS; k++) stress_free(atomic_exchange(&slots[k], NULL));
    test_assert_no_leak(before);
}
END_TEST

/* A destructor of another library may run after ours, and use the allocator. */
static pthread_key_t late_key;

static void late_destructor(void *context) {
    static _Thread_local int times;
    if (++times < 2) {
        pthread_setspecific(late_key, context); /* once more, behind everyone else's */
        return;
    }
    dt_free(context, 64);
    void *p = dt_alloc(64);
    ck_assert_ptr_nonnull(p);
    dt_free(p, 64);
}

static void *set_late(void *context) {
    pthread_setspecific(late_key, checked_alloc(64));
    return context;
}

START_TEST(use_after_the_threads_destructor) {
    dt_memory_stats before = test_memory();
    ck_assert_int_eq(pthread_key_create(&late_key, late_destructor), 0);
    for (int round = 0; round < 10; round++) in_thread(set_late, 0);
    test_assert_no_leak(before);
}
END_TEST

/* ---- fork
 * -----------------------------------------------------------------------------------------------
 * Not under AddressSanitizer: its own allocator is not usable in the child of a busy process. */

#if CACHES

static _Atomic(bool) churning;

static void *churn(void *context) {
    uint64_t seed = (uintptr_t)context;
    while (atomic_load(&churning)) {
        size_t size = (size_t)test_random_in(&seed, 1, 3 << 20) >> test_random_in(&seed, 0, 16);
        void *p = dt_alloc(size % 5000), *q = dt_bytes_alloc(size);
        require(p != NULL && q != NULL);
        (void)test_memory(); /* under the lock of the slabs */
        dt_free(p, size % 5000);
        dt_bytes_free(q, size);
    }
    return NULL;
}

static void use_everything(void) {
    for (size_t size = 1; size <= (4 << 20); size *= 2) {
        void *p = dt_alloc(size), *q = dt_bytes_alloc(size);
        if (p == NULL || q == NULL) _exit(2);
        dt_free(p, size);
        dt_bytes_free(q, size);
    }
}

START_TEST(child_of_a_busy_process) {
    pthread_t threads[2];
    atomic_store(&churning, true);
    size_t size = 100;
    in_thread(alloc_passed, size); /* blocks of a heap that the child has no thread for */
    for (uintptr_t t = 0; t < 2; t++)
        ck_assert_int_eq(pthread_create(&threads[t], NULL, churn, (void *)(t + 1)), 0);
    for (int round = 0; round < (TEST_SANITIZED ? 10 : 50); round++) {
        pid_t child = fork();
        if (child == 0) { /* nothing of libcheck here: it has a lock of its own */
            alarm(20);    /* a lock held by a thread that is gone would hang */
            use_everything();
            free_passed(&size);
            dt_memory_cache_empty();
            use_everything();
            _exit(0);
        }
        int status;
        ck_assert_int_gt(child, 0);
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert(WIFEXITED(status));
        ck_assert_int_eq(WEXITSTATUS(status), 0);
    }
    atomic_store(&churning, false);
    for (int t = 0; t < 2; t++) pthread_join(threads[t], NULL);
    free_passed(&size);
}
END_TEST

#endif

/* ---- injection ------------------------------------------------------------------------------- */

static int failures_of(int count) {
    int failures = 0;
    for (int k = 0; k < count; k++) {
        bool bytes = k % 2 != 0;
        void *p = bytes ? dt_bytes_alloc(100) : dt_alloc(100);
        failures = failures * 2 + (p == NULL);
        if (p != NULL) bytes ? dt_bytes_free(p, 100) : dt_free(p, 100);
    }
    return failures;
}

static void *fail_here(void *context) {
    *(int *)context = failures_of(3);
    return NULL;
}

START_TEST(injection) {
    dt_memory_stats before = test_memory();
    ck_assert_int_eq(failures_of(5), 0);
    dt_alloc_fail_at(1, false);
    ck_assert_int_eq(failures_of(5), 16);
    ck_assert_int_eq(dt_alloc_fail_at(3, false), 5);
    ck_assert_int_eq(failures_of(5), 4);
    ck_assert_int_eq(dt_alloc_fail_at(3, true), 5);
    ck_assert_int_eq(failures_of(5), 7);
    ck_assert_int_eq(dt_alloc_fail_at(6, true), 5);
    ck_assert_int_eq(failures_of(5), 0);
    ck_assert_ptr_null(dt_alloc_zeroed(10));
    ck_assert_ptr_null(dt_alloc(100000));
    ck_assert_int_eq(dt_alloc_fail_at(2, false), 7);
    int there = 0;
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, fail_here, &there), 0);
    pthread_join(thread, NULL);
    ck_assert_int_eq(there, 2);
    ck_assert_int_eq(dt_alloc_fail_at(0, false), 3);
    ck_assert_int_eq(failures_of(5), 0);
    ck_assert_int_eq(dt_alloc_fail_at(0, false), 0);
    test_assert_no_leak(before);
}
END_TEST

static dt_status alloc_or_fail(void) {
    char *p, *q;
    DT_ALLOC_OR_FAIL(p, 10);
    q = dt_alloc(20);
    dt_free(p, 10);
    if (q == NULL) return dt_fail(DT_E_NO_MEMORY, "q");
    dt_free(q, 20);
    return DT_OK;
}

START_TEST(alloc_or_fail_reports) {
    dt_alloc_fail_at(1, false);
    ck_assert_fails(alloc_or_fail(), DT_E_NO_MEMORY, "out of memory: 10 bytes for alloc_or_fail");
    dt_alloc_fail_at(0, false);
    ck_assert_int_eq(test_every_allocation_fails(alloc_or_fail), 2);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("alloc");
    TEST_CASE(suite, "one thread", every_size, zeroed, blocks_do_not_overlap);
    TEST_CASE(suite, "threads", objects_are_counted_across_threads, stress_across_threads,
              use_after_the_threads_destructor);
#if CACHES
    TEST_CASE(suite, "reuse", freed_block_is_the_next_one, memory_of_a_burst_goes_back,
              blocks_return_to_their_owner, heaps_of_ended_threads_are_adopted);
    TEST_CASE(suite, "fork", child_of_a_busy_process);
#endif
    TEST_CASE(suite, "injection", injection, alloc_or_fail_reports);
    return test_run(suite);
}
