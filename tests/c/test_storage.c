/* test_storage.c: memory taken at creation or at the first write, foreign memory, the last release.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "runtime/storage.h"
#include "runtime/tensor.h"
#include "tests/c/test_support.h"

START_TEST(small_ones_have_their_bytes_at_once) {
    dt_memory_stats before = test_memory();
    const size_t sizes[] = {0, 1, 16, 17, DT_STORAGE_INLINE_MAX};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        dt_storage *s = dt_storage_new(sizes[k]);
        ck_assert_ptr_nonnull(s);
        char *data = atomic_load(&s->data);
        ck_assert_ptr_nonnull(data);
        ck_assert_uint_eq((uintptr_t)data % 16, 0);
        memset(data, 0xff, sizes[k]);
        ck_assert_uint_eq(s->bytes, sizes[k]);
        ck_assert_uint_eq(atomic_load(&s->refs), 1);
        ck_assert_uint_eq(atomic_load(&s->readers) + atomic_load(&s->writers), 0);
        ck_assert_ptr_null(s->last_write);
        ck_assert(!dt_storage_is_external(s));
        ck_assert_ok(dt_storage_materialize(s));
        ck_assert_ptr_eq(atomic_load(&s->data), data);
        dt_storage_release(s);
    }
    test_assert_no_leak(before);
}
END_TEST

START_TEST(large_ones_take_memory_when_asked) {
    dt_memory_stats before = test_memory();
    const size_t sizes[] = {DT_STORAGE_INLINE_MAX + 1, 5000, 3 << 20};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        dt_storage *s = dt_storage_new(sizes[k]);
        ck_assert_ptr_null(atomic_load(&s->data));
        ck_assert_int_eq(test_memory().live_bytes, before.live_bytes);
        ck_assert_ok(dt_storage_materialize(s));
        char *data = atomic_load(&s->data);
        ck_assert_uint_eq((uintptr_t)data % DT_BYTES_ALIGN, 0);
        memset(data, 0xff, sizes[k]);
        ck_assert_int_eq(test_memory().live_bytes, before.live_bytes + (int64_t)sizes[k]);
        ck_assert_ok(dt_storage_materialize(s)); /* once */
        ck_assert_ptr_eq(atomic_load(&s->data), data);
        dt_storage_retain(s);
        dt_storage_release(s);
        ck_assert_int_eq(test_memory().live_bytes, before.live_bytes + (int64_t)sizes[k]);
        dt_storage_release(s);
        test_assert_no_leak(before);
    }
    dt_storage_release(dt_storage_new(1 << 20)); /* never materialised */
    test_assert_no_leak(before);
}
END_TEST

START_TEST(deferred_ones_take_memory_when_their_size_is_known) {
    dt_memory_stats before = test_memory();
    const size_t sizes[] = {0, 8, 5000};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        dt_storage *s = dt_storage_new_deferred();
        ck_assert_ptr_null(atomic_load(&s->data));
        ck_assert_uint_eq(s->bytes, 0);
        ck_assert_ok(dt_storage_materialize(s)); /* left to the writer */
        ck_assert_ptr_null(atomic_load(&s->data));
        ck_assert_ok(dt_storage_produce(s, (int64_t)sizes[k] / 4, sizes[k]));
        char *data = atomic_load(&s->data);
        ck_assert_ptr_nonnull(data);
        memset(data, 0xff, sizes[k]);
        ck_assert_uint_eq(s->bytes, sizes[k]);
        ck_assert_int_eq(s->count, (int64_t)sizes[k] / 4);
        ck_assert_ok(dt_storage_produce(s, (int64_t)sizes[k] / 4, sizes[k])); /* run again */
        ck_assert_ptr_eq(atomic_load(&s->data), data);
        ck_assert_ok(dt_storage_materialize(s)); /* a later writer */
        ck_assert_ptr_eq(atomic_load(&s->data), data);
        dt_storage_release(s);
        test_assert_no_leak(before);
    }
    dt_storage_release(dt_storage_new_deferred()); /* its writer failed */
    test_assert_no_leak(before);
}
END_TEST

START_TEST(memory_that_cannot_be_had) {
    dt_memory_stats before = test_memory();
    dt_storage *s = dt_storage_new((size_t)1 << 60);
    ck_assert_ptr_nonnull(s);
    ck_assert_fails(dt_storage_materialize(s), DT_E_NO_MEMORY,
                    "DefaultCPUAllocator: can't allocate memory: you tried to allocate "
                    "1152921504606846976 bytes.");
    ck_assert_ptr_null(atomic_load(&s->data));
    dt_storage_release(s);
    s = dt_storage_new(SIZE_MAX);
    ck_assert_ptr_nonnull(s);
    ck_assert_int_eq(dt_storage_materialize(s), DT_E_NO_MEMORY);
    dt_storage_release(s);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(memory_beyond_the_limit) {
    ck_assert_int_eq(test_memory().live_bytes, 0);
    dt_storage *a = dt_storage_new(600), *b = dt_storage_new(500);
    dt_memory_limit_set(1000);
    ck_assert_ok(dt_storage_materialize(a));
    ck_assert_fails(dt_storage_materialize(b), DT_E_NO_MEMORY,
                    "DefaultCPUAllocator: can't allocate memory: you tried to allocate 500 bytes. "
                    "The memory limit is 1000 bytes, and 600 are in use.");
    dt_storage_release(a);
    ck_assert_ok(dt_storage_materialize(b));
    dt_storage_release(b);
    dt_memory_limit_set(0);
}
END_TEST

START_TEST(materialize_again_after_a_failure) {
    dt_storage *s = dt_storage_new(1000);
    dt_alloc_fail_at(1, false);
    ck_assert_int_eq(dt_storage_materialize(s), DT_E_NO_MEMORY);
    dt_alloc_fail_at(0, false);
    ck_assert_ok(dt_storage_materialize(s));
    dt_storage_release(s);
}
END_TEST

/* ---- foreign memory -------------------------------------------------------------------------- */

static int released;
static void *released_context;

static void release_foreign(void *context) {
    released++;
    released_context = context;
}

START_TEST(foreign_memory_is_released_from_the_graveyard) {
    dt_memory_stats before = test_memory();
    float values[4] = {1, 2, 3, 4};
    dt_storage *s = dt_storage_new_foreign(values, sizeof values, release_foreign, &before, 0);
    ck_assert_ptr_eq(atomic_load(&s->data), values);
    ck_assert(dt_storage_is_external(s));
    ck_assert_ok(dt_storage_materialize(s));
    dt_storage_retain(s);
    dt_storage_release(s);
    dt_graveyard_drain();
    ck_assert_int_eq(released, 0);
    dt_storage_release(s);
    ck_assert_int_eq(released, 0); /* not by the thread that lets go */
    dt_graveyard_drain();
    ck_assert_int_eq(released, 1);
    ck_assert_ptr_eq(released_context, &before);
    ck_assert_float_eq(values[3], 4);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(foreign_flags) {
    char bytes[8];
    dt_storage *s = dt_storage_new_foreign(bytes, 8, NULL, NULL, DT_STORAGE_FROZEN);
    ck_assert(!dt_storage_is_external(s));
    ck_assert_uint_eq(s->flags, DT_STORAGE_FOREIGN | DT_STORAGE_FROZEN);
    atomic_fetch_add(&s->exports, 1);
    ck_assert(dt_storage_is_external(s));
    atomic_fetch_sub(&s->exports, 1);
    ck_assert(!dt_storage_is_external(s));
    dt_storage_release(s);
    s = dt_storage_new_foreign(bytes, 8, NULL, NULL, DT_STORAGE_READONLY);
    ck_assert(dt_storage_is_external(s));
    ck_assert((s->flags & DT_STORAGE_READONLY) != 0);
    dt_storage_release(s);
    dt_graveyard_drain();

    s = dt_storage_new_foreign(NULL, 0, release_foreign, NULL, 0); /* an empty array */
    ck_assert_ptr_nonnull(atomic_load(&s->data));
    ck_assert_ok(dt_storage_materialize(s));
    dt_storage_release(s);
    dt_graveyard_drain();
    ck_assert_int_eq(released, 1);
}
END_TEST

START_TEST(context_stays_with_the_caller_on_failure) {
    char bytes[8];
    dt_alloc_fail_at(1, false);
    dt_storage *s = dt_storage_new_foreign(bytes, 8, release_foreign, NULL, 0);
    dt_alloc_fail_at(0, false);
    ck_assert_ptr_null(s);
    dt_graveyard_drain();
    ck_assert_int_eq(released, 0);
}
END_TEST

/* ---- last_write ------------------------------------------------------------------------------ */

static struct dt_future *dropped;

static void drop_future(struct dt_future *future) { dropped = future; }

START_TEST(last_write_is_dropped) {
    dt_memory_stats before = test_memory();
    char bytes[8], future;
    dt_storage_set_future_release(drop_future);
    dt_storage *own = dt_storage_new(8);
    own->last_write = (struct dt_future *)&future;
    dt_storage_release(own);
    ck_assert_ptr_eq(dropped, (struct dt_future *)&future);
    dropped = NULL;
    dt_storage *foreign = dt_storage_new_foreign(bytes, 8, NULL, NULL, 0);
    foreign->last_write = (struct dt_future *)&future;
    dt_storage_release(foreign);
    ck_assert_ptr_eq(dropped, (struct dt_future *)&future);
    dt_graveyard_drain();
    test_assert_no_leak(before);
}
END_TEST

START_TEST(failure_is_released) {
    dt_memory_stats before = test_memory();
    dt_storage *s = dt_storage_new(8);
    (void)!dt_fail(DT_E_VALUE, "bad bytes");
    atomic_store(&s->failure, dt_error_capture(DT_E_VALUE));
    dt_storage_release(s);
    test_assert_no_leak(before);
}
END_TEST

static dt_storage *changed[8];
static int changes;

static void note_change(dt_storage *s) { changed[changes++] = s; }

START_TEST(derived_is_dropped_before_the_bytes_change) {
    char bytes[8];
    dt_storage_set_derived_drop(note_change);
    dt_tensor *small = NULL; /* embedded where that is done */
    ck_assert_ok(dt_tensor_new(DT_F32, 1, &(int64_t){2}, &small));
    dt_storage *all[] = {dt_storage_new(8), dt_storage_new(5000),
                         dt_storage_new_foreign(bytes, 8, NULL, NULL, 0),
                         dt_storage_retain(small->storage)};
    for (int k = 0; k < 4; k++) {
        dt_storage *s = all[k];
        changes = 0;
        ck_assert_ok(dt_storage_materialize(s));
        ck_assert_ok(dt_storage_materialize(s));
        ck_assert_int_eq(changes, 0); /* nobody keeps anything */
        atomic_store(&s->derived, 1);
        ck_assert_ok(dt_storage_materialize(s)); /* a writer starts */
        ck_assert_int_eq(changes, 1);
        ck_assert_ptr_eq(changed[0], s);
        ck_assert_ok(dt_storage_materialize(s));
        ck_assert_int_eq(changes, 1); /* once */
        atomic_store(&s->derived, 1);
        if (k == 3) dt_tensor_release(small);
        ck_assert_int_eq(changes, 1);
        dt_storage_release(s);
        ck_assert_int_eq(changes, 2);
        ck_assert_ptr_eq(changed[1], s);
    }
    dt_graveyard_drain();
    ck_assert_int_eq(changes, 2);
}
END_TEST

/* ---- threads --------------------------------------------------------------------------------- */

static void *retain_and_release(void *context) {
    for (int k = 0; k < 20000; k++) dt_storage_release(dt_storage_retain(context));
    char *data = atomic_load(&((dt_storage *)context)->data);
    ck_assert_int_eq(data[0], 7);
    dt_storage_release(context);
    return NULL;
}

START_TEST(the_last_of_many_threads_frees) {
    dt_memory_stats before = test_memory();
    for (int round = 0; round < 20; round++) {
        pthread_t threads[4];
        dt_storage *s = dt_storage_new(round % 2 ? 16 : 5000);
        ck_assert_ok(dt_storage_materialize(s));
        *(char *)atomic_load(&s->data) = 7;
        for (int t = 0; t < 4; t++)
            ck_assert_int_eq(
                pthread_create(&threads[t], NULL, retain_and_release, dt_storage_retain(s)), 0);
        dt_storage_release(s);
        for (int t = 0; t < 4; t++) pthread_join(threads[t], NULL);
    }
    test_assert_no_leak(before);
}
END_TEST

static dt_status make_all_kinds(void) {
    char bytes[8];
    dt_storage *small = dt_storage_new(16), *large = dt_storage_new(100000);
    dt_storage *foreign = dt_storage_new_foreign(bytes, 8, NULL, NULL, 0);
    dt_status status = DT_OK;
    if (small == NULL || large == NULL || foreign == NULL)
        status = dt_fail(DT_E_NO_MEMORY, "a header");
    else
        status = dt_storage_materialize(large);
    if (small != NULL) dt_storage_release(small);
    if (large != NULL) dt_storage_release(large);
    if (foreign != NULL) dt_storage_release(foreign);
    dt_graveyard_drain();
    return status;
}

START_TEST(every_allocation_fails) {
    ck_assert_int_eq(test_every_allocation_fails(make_all_kinds), 4);
}
END_TEST

static void reset(void) {
    released = 0;
    dropped = NULL;
}

int main(void) {
    Suite *suite = suite_create("storage");
    TEST_CASE(suite, "memory", small_ones_have_their_bytes_at_once,
              large_ones_take_memory_when_asked, deferred_ones_take_memory_when_their_size_is_known,
              memory_that_cannot_be_had, memory_beyond_the_limit, materialize_again_after_a_failure,
              every_allocation_fails, the_last_of_many_threads_frees);
    TCase *tcase = tcase_create("foreign");
    tcase_add_checked_fixture(tcase, reset, NULL);
    tcase_add_test(tcase, foreign_memory_is_released_from_the_graveyard);
    tcase_add_test(tcase, foreign_flags);
    tcase_add_test(tcase, context_stays_with_the_caller_on_failure);
    tcase_add_test(tcase, last_write_is_dropped);
    tcase_add_test(tcase, failure_is_released);
    tcase_add_test(tcase, derived_is_dropped_before_the_bytes_change);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
