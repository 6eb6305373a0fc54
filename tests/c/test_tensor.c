/* test_tensor.c: constructors, views that outlive their base, overlap, failures. */
#include <check.h>
#include <pthread.h>
#include <string.h>

#include "runtime/tensor.h"
#include "tests/c/test_support.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

static dt_tensor *new_tensor(dt_dtype dtype, int rank, const int64_t *shape) {
    dt_tensor *t = NULL;
    ck_assert_ok(dt_tensor_new(dtype, rank, shape, &t));
    return t;
}

static dt_tensor *new_view(const dt_tensor *base, int rank, const int64_t *shape,
                           const int64_t *strides, int64_t offset) {
    dt_tensor *t = NULL;
    ck_assert_ok(dt_tensor_new_view(base, (dt_dtype)base->dtype, rank, shape, strides, offset, &t));
    return t;
}

START_TEST(new_is_contiguous) {
    dt_memory_stats before = test_memory();
    for (int dtype = 0; dtype < DT_DTYPE_COUNT; dtype++) {
        dt_tensor *t = new_tensor((dt_dtype)dtype, 3, DIMS(2, 1, 3));
        ck_assert_int_eq(t->dtype, dtype);
        ck_assert_int_eq(t->rank, 3);
        ck_assert_int_eq(t->numel, 6);
        ck_assert_int_eq(t->offset, 0);
        ck_assert(t->contiguous && t->flags == 0);
        ck_assert_uint_eq(atomic_load(&t->refs), 1);
        ck_assert_uint_eq(atomic_load(&t->storage->refs), 1);
        ck_assert_uint_eq(t->storage->bytes, 6 * dt_dtype_size((dt_dtype)dtype));
        static const int64_t shape[] = {2, 1, 3}, strides[] = {3, 3, 1};
        ck_assert_int_eq(memcmp(t->shape, shape, sizeof shape), 0);
        ck_assert_int_eq(memcmp(t->strides, strides, sizeof strides), 0);
        memset(dt_tensor_data(t), 0xff, t->storage->bytes);
        dt_tensor_release(t);
    }
    test_assert_no_leak(before);
}
END_TEST

START_TEST(sizes_around_the_inline_limit) {
    dt_memory_stats before = test_memory();
    for (int64_t n = 0; n <= 2 * DT_STORAGE_INLINE_MAX; n++) {
        dt_tensor *t = new_tensor(DT_U8, 1, &n);
        bool ready = atomic_load(&t->storage->data) != NULL;
        ck_assert_int_eq(ready, n <= DT_STORAGE_INLINE_MAX);
        ck_assert_ok(dt_storage_materialize(t->storage));
        ck_assert_uint_eq((uintptr_t)dt_tensor_data(t) % 16, 0);
        memset(dt_tensor_data(t), 0xff, (size_t)n);
        dt_tensor_release(t);
    }
    int64_t ones[DT_RANK_MAX];
    for (int d = 0; d < DT_RANK_MAX; d++) ones[d] = 1;
    dt_tensor *t = new_tensor(DT_F64, DT_RANK_MAX, ones);
    ck_assert_int_eq(t->numel, 1);
    ck_assert_int_eq(t->strides[0], 1);
    dt_tensor_release(t);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(bad_shapes) {
    dt_memory_stats before = test_memory();
    dt_tensor *t = NULL;
    ck_assert_fails(dt_tensor_new(DT_F32, 2, DIMS(2, -1), &t), DT_E_RUNTIME,
                    "Trying to create tensor with negative dimension -1: [2, -1]");
    ck_assert_int_eq(dt_tensor_new(DT_F32, 2, DIMS((int64_t)1 << 40, (int64_t)1 << 40), &t),
                     DT_E_RUNTIME);
    ck_assert_ptr_null(t);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(strided) {
    dt_memory_stats before = test_memory();
    for (int64_t n = 2; n <= 200; n += 99) {
        dt_tensor *t = NULL;
        ck_assert_ok(dt_tensor_new_strided(DT_F32, 2, DIMS(n, 3), DIMS(1, n), &t));
        ck_assert(!t->contiguous);
        ck_assert_int_eq(t->numel, 3 * n);
        ck_assert_uint_eq(t->storage->bytes, 12 * (size_t)n);
        ck_assert_int_eq(t->strides[1], n);
        dt_tensor_release(t);
    }
    dt_tensor *t = NULL;
    ck_assert_ok(dt_tensor_new_strided(DT_F32, 2, DIMS(1, 3), DIMS(77, 1), &t));
    ck_assert(t->contiguous);
    dt_tensor_release(t);
    ck_assert_ok(dt_tensor_new_strided(DT_F32, 2, DIMS(0, 3), DIMS(1, 2), &t));
    ck_assert_int_eq(t->numel, 0);
    dt_tensor_release(t);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(views_outlive_their_base) {
    dt_memory_stats before = test_memory();
    for (int64_t n = 4; n <= 1024; n += 1020) { /* embedded, and not */
        dt_tensor *base = new_tensor(DT_I32, 2, DIMS(n, 4));
        ck_assert_ok(dt_storage_materialize(base->storage));
        int32_t *data = dt_tensor_data(base);
        for (int32_t k = 0; k < n * 4; k++) data[k] = k;
        dt_tensor *column = new_view(base, 1, DIMS(n), DIMS(4), 2);
        dt_tensor *of_column = new_view(column, 1, DIMS(2), DIMS(8), 6);
        ck_assert_uint_eq(atomic_load(&base->storage->refs), 3);
        ck_assert(!column->contiguous);
        dt_tensor_release(base);
        ck_assert_int_eq(((int32_t *)dt_tensor_data(column))[0], 2);
        ck_assert_int_eq(column->storage->bytes, 16 * n);
        dt_tensor_release(column);
        ck_assert_int_eq(((int32_t *)dt_tensor_data(of_column))[8], 14);
        dt_tensor_release(of_column);
    }
    test_assert_no_leak(before);
}
END_TEST

START_TEST(views_of_other_kinds) {
    dt_memory_stats before = test_memory();
    dt_tensor *base = new_tensor(DT_F32, 1, DIMS(6));
    float *data = dt_tensor_data(base);
    for (int k = 0; k < 6; k++) data[k] = (float)k;

    dt_tensor *expanded = new_view(base, 2, DIMS(1000000, 6), DIMS(0, 1), 0);
    ck_assert_int_eq(expanded->numel, 6000000);
    ck_assert(!expanded->contiguous);
    dt_tensor *empty = new_view(base, 1, DIMS(0), DIMS(1), 6); /* x[6:] */
    ck_assert_int_eq(empty->numel, 0);
    ck_assert(empty->contiguous);
    dt_tensor *bits = NULL;
    ck_assert_ok(dt_tensor_new_view(base, DT_I16, 1, DIMS(12), DIMS(1), 0, &bits));
    ck_assert_ptr_eq(dt_tensor_data(bits), (void *)data);
    dt_tensor *late = NULL;
    ck_assert_ok(dt_tensor_new_view(base, DT_I16, 1, DIMS(3), DIMS(2), 7, &late));
    ck_assert_ptr_eq(dt_tensor_data(late), (char *)data + 14);
    dt_tensor *huge = NULL;
    ck_assert_fails(dt_tensor_new_view(base, DT_F32, 3,
                                       DIMS((int64_t)1 << 30, (int64_t)1 << 30, (int64_t)1 << 30),
                                       DIMS(0, 0, 0), 0, &huge),
                    DT_E_RUNTIME, "numel: integer multiplication overflow");
    ck_assert_ptr_null(huge);
    dt_tensor_release(base);
    dt_tensor_release(expanded);
    dt_tensor_release(empty);
    dt_tensor_release(bits);
    dt_tensor_release(late);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(over_takes_the_storage) {
    dt_memory_stats before = test_memory();
    dt_storage *s = dt_storage_new(24);
    dt_tensor *t = NULL;
    ck_assert_ok(dt_tensor_new_over(s, DT_I64, 1, DIMS(2), DIMS(1), 1, &t));
    ck_assert_ptr_eq(t->storage, s);
    ck_assert_uint_eq(atomic_load(&s->refs), 1);
    dt_tensor_release(t);
    test_assert_no_leak(before);

    s = dt_storage_new(24);
    t = NULL;
    dt_alloc_fail_at(1, false);
    ck_assert_int_eq(dt_tensor_new_over(s, DT_I64, 1, DIMS(2), DIMS(1), 1, &t), DT_E_NO_MEMORY);
    dt_alloc_fail_at(0, false);
    ck_assert_ptr_null(t);
    ck_assert_uint_eq(atomic_load(&s->refs), 1); /* still the caller's */
    dt_storage_release(s);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(scalars) {
    dt_memory_stats before = test_memory();
    dt_tensor *t = NULL;
    dt_scalar value = {.category = DT_CAT_FLOAT, .f = 2.5};
    ck_assert_ok(dt_tensor_new_scalar(value, DT_BF16, true, &t));
    ck_assert((t->flags & DT_TENSOR_WRAPPED) && t->contiguous);
    ck_assert_int_eq(t->rank, 0);
    ck_assert_int_eq(t->numel, 1);
    ck_assert_double_eq(dt_scalar_load(DT_BF16, dt_tensor_data(t)).f, 2.5);
    dt_tensor_release(t);
    value = (dt_scalar){.category = DT_CAT_INT, .i = -3};
    ck_assert_ok(dt_tensor_new_scalar(value, DT_I64, false, &t));
    ck_assert(t->flags == 0);
    ck_assert_int_eq(*(int64_t *)dt_tensor_data(t), -3);
    dt_tensor_release(t);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(same_shape) {
    dt_tensor *a = new_tensor(DT_F32, 2, DIMS(2, 3)), *b = new_tensor(DT_U8, 2, DIMS(2, 3));
    dt_tensor *c = new_tensor(DT_F32, 1, DIMS(2)), *d = new_tensor(DT_F32, 2, DIMS(2, 4));
    ck_assert(dt_tensor_same_shape(a, b));
    ck_assert(!dt_tensor_same_shape(a, c));
    ck_assert(!dt_tensor_same_shape(a, d));
    dt_tensor_release(a);
    dt_tensor_release(b);
    dt_tensor_release(c);
    dt_tensor_release(d);
}
END_TEST

/* ---- overlap --------------------------------------------------------------------------------- */

/* Whether two views of one matrix overlap partially, asked in both directions. */
static bool overlap(int t_rank, const int64_t *t_shape, const int64_t *t_strides, int64_t t_offset,
                    int u_rank, const int64_t *u_shape, const int64_t *u_strides,
                    int64_t u_offset) {
    dt_tensor *base = new_tensor(DT_F32, 2, DIMS(8, 8));
    dt_tensor *t = new_view(base, t_rank, t_shape, t_strides, t_offset);
    dt_tensor *u = new_view(base, u_rank, u_shape, u_strides, u_offset);
    bool result = dt_tensor_partial_overlap(t, u);
    ck_assert_int_eq(dt_tensor_partial_overlap(u, t), result);
    ck_assert(!dt_tensor_partial_overlap(t, t));
    dt_tensor_release(base);
    dt_tensor_release(t);
    dt_tensor_release(u);
    return result;
}

START_TEST(partial_overlap) {
    /* x[1:] with x[:-1]; x[:32] with x[32:]; x[::2] with x[1::2] and with x[2::2] */
    ck_assert(overlap(1, DIMS(63), DIMS(1), 1, 1, DIMS(63), DIMS(1), 0));
    ck_assert(!overlap(1, DIMS(32), DIMS(1), 0, 1, DIMS(32), DIMS(1), 32));
    ck_assert(!overlap(1, DIMS(32), DIMS(2), 0, 1, DIMS(32), DIMS(2), 1));
    ck_assert(overlap(1, DIMS(31), DIMS(2), 0, 1, DIMS(31), DIMS(2), 2));
    /* m[:, :4] with m[:, 4:], with m[:, 3:7], and m[0] with m[:, 0] */
    ck_assert(!overlap(2, DIMS(8, 4), DIMS(8, 1), 0, 2, DIMS(8, 4), DIMS(8, 1), 4));
    ck_assert(overlap(2, DIMS(8, 4), DIMS(8, 1), 0, 2, DIMS(8, 4), DIMS(8, 1), 3));
    ck_assert(overlap(1, DIMS(8), DIMS(1), 0, 1, DIMS(8), DIMS(8), 0));
    ck_assert(!overlap(1, DIMS(8), DIMS(1), 8, 1, DIMS(1), DIMS(8), 0));
    /* m with m.t(); the same view twice; the same but for the stride of a dim of size 1 */
    ck_assert(overlap(2, DIMS(8, 8), DIMS(8, 1), 0, 2, DIMS(8, 8), DIMS(1, 8), 0));
    ck_assert(!overlap(2, DIMS(8, 8), DIMS(8, 1), 0, 2, DIMS(8, 8), DIMS(8, 1), 0));
    ck_assert(!overlap(2, DIMS(1, 8), DIMS(8, 1), 0, 2, DIMS(1, 8), DIMS(64, 1), 0));
    /* other shapes over the same bytes; something with nothing */
    ck_assert(overlap(1, DIMS(64), DIMS(1), 0, 2, DIMS(8, 8), DIMS(8, 1), 0));
    ck_assert(!overlap(1, DIMS(0), DIMS(1), 3, 1, DIMS(64), DIMS(1), 0));
    /* x[0], x[5] with x[5]; with x[3] */
    ck_assert(overlap(1, DIMS(2), DIMS(5), 0, 1, DIMS(1), DIMS(1), 5));
    ck_assert(!overlap(1, DIMS(2), DIMS(5), 0, 1, DIMS(1), DIMS(1), 3));
    /* an expanded read of what is written */
    ck_assert(overlap(1, DIMS(8), DIMS(1), 0, 1, DIMS(8), DIMS(0), 0));
}
END_TEST

START_TEST(partial_overlap_of_dtypes_and_storages) {
    dt_tensor *base = new_tensor(DT_F32, 1, DIMS(8)), *other = new_tensor(DT_F32, 1, DIMS(8));
    dt_tensor *bits = NULL, *halves = NULL, *tail = NULL;
    ck_assert(!dt_tensor_partial_overlap(base, other));
    ck_assert_ok(dt_tensor_new_view(base, DT_I32, 1, DIMS(8), DIMS(1), 0, &bits));
    ck_assert(!dt_tensor_partial_overlap(base, bits)); /* equal indices, equal bytes */
    ck_assert_ok(dt_tensor_new_view(base, DT_F16, 1, DIMS(8), DIMS(1), 0, &halves));
    ck_assert(dt_tensor_partial_overlap(base, halves));
    ck_assert_ok(dt_tensor_new_view(base, DT_F32, 1, DIMS(4), DIMS(1), 4, &tail));
    ck_assert(!dt_tensor_partial_overlap(tail, halves)); /* bytes 16.. and bytes ..16 */
    dt_tensor_release(base);
    dt_tensor_release(other);
    dt_tensor_release(bits);
    dt_tensor_release(halves);
    dt_tensor_release(tail);
}
END_TEST

/* ---- deferred -------------------------------------------------------------------------------- */

START_TEST(deferred_until_settled) {
    dt_memory_stats before = test_memory();
    const struct {
        int rank;
        int64_t shape[3], size;
        bool columns;
        int64_t strides[3];
    } cases[] = {
        {1, {-1}, 7, false, {1}},
        {2, {3, -1}, 4, false, {4, 1}},
        {3, {2, -1, 5}, 3, false, {15, 5, 1}},
        {2, {-1, 3}, 4, true, {1, 4}},
        {2, {-1, 3}, 0, true, {1, 0}},
        {2, {-1, 0}, 2, true, {1, 2}},
        {3, {2, -1, 3}, 4, true, {12, 1, 4}},
        {2, {-1, 3}, 0, false, {3, 1}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        dt_tensor *t;
        int64_t numel = 1;
        ck_assert_ok(
            dt_tensor_new_deferred(DT_I16, cases[k].rank, cases[k].shape, cases[k].columns, &t));
        ck_assert(dt_tensor_is_deferred(t) && !t->contiguous && t->numel == 0);
        ck_assert_ok(dt_tensor_produce(t, cases[k].size));
        ck_assert(dt_tensor_is_deferred(t)); /* the kernel leaves metadata alone */
        dt_tensor_settle(t);
        ck_assert(t->flags == 0 && t->rank == cases[k].rank && t->dtype == DT_I16);
        for (int d = 0; d < t->rank; d++) {
            int64_t size = cases[k].shape[d] == -1 ? cases[k].size : cases[k].shape[d];
            ck_assert_int_eq(t->shape[d], size);
            ck_assert_int_eq(t->strides[d], cases[k].strides[d]);
            numel *= size;
        }
        ck_assert_int_eq(t->numel, numel);
        ck_assert_uint_eq(t->storage->bytes, (size_t)numel * 2);
        ck_assert_int_eq(t->contiguous, dt_shape_is_contiguous(t->rank, t->shape, t->strides));
        memset(dt_tensor_data(t), 0xff, t->storage->bytes);
        dt_tensor_release(t);
        test_assert_no_leak(before);
    }
}
END_TEST

START_TEST(deferred_sizes_that_cannot_be) {
    dt_tensor *t;
    ck_assert_ok(dt_tensor_new_deferred(DT_F64, 2, DIMS(-1, INT64_MAX / 4), false, &t));
    ck_assert_int_eq(dt_tensor_produce(t, 8), DT_E_RUNTIME);
    dt_tensor_release(t);
    ck_assert_ok(dt_tensor_new_deferred(DT_F64, 1, DIMS(-1), false, &t));
    dt_alloc_fail_at(1, true);
    dt_status status = dt_tensor_produce(t, 1000000);
    dt_alloc_fail_at(0, false);
    ck_assert_int_eq(status, DT_E_NO_MEMORY);
    ck_assert(dt_tensor_is_deferred(t));
    dt_tensor_release(t);
}
END_TEST

/* ---- threads and failures -------------------------------------------------------------------- */

static void *release_elsewhere(void *context) {
    dt_tensor **tensors = context;
    for (int k = 0; k < 1000; k++) dt_tensor_release(tensors[k]);
    return NULL;
}

START_TEST(released_by_another_thread) {
    dt_memory_stats before = test_memory();
    static dt_tensor *tensors[1000];
    for (int round = 0; round < 5; round++) {
        pthread_t threads[2];
        for (int k = 0; k < 1000; k++) {
            tensors[k] = new_tensor(DT_F32, 1, DIMS(k % 100));
            dt_tensor_retain(tensors[k]);
        }
        for (int t = 0; t < 2; t++)
            ck_assert_int_eq(pthread_create(&threads[t], NULL, release_elsewhere, tensors), 0);
        for (int t = 0; t < 2; t++) pthread_join(threads[t], NULL);
    }
    test_assert_no_leak(before);
}
END_TEST

static dt_status make_all_kinds(void) {
    dt_tensor *small = NULL, *large = NULL, *view = NULL, *strided = NULL, *scalar = NULL;
    dt_tensor *deferred = NULL;
    dt_scalar one = {.category = DT_CAT_INT, .i = 1};
    dt_status status = dt_tensor_new(DT_F32, 1, DIMS(4), &small);
    if (status == DT_OK) status = dt_tensor_new(DT_F32, 1, DIMS(4000), &large);
    if (status == DT_OK) status = dt_tensor_new_view(large, DT_F32, 1, DIMS(10), DIMS(2), 5, &view);
    if (status == DT_OK)
        status = dt_tensor_new_strided(DT_F32, 2, DIMS(2, 3), DIMS(1, 2), &strided);
    if (status == DT_OK) status = dt_tensor_new_scalar(one, DT_I64, true, &scalar);
    if (status == DT_OK) status = dt_storage_materialize(view->storage);
    if (status == DT_OK) status = dt_tensor_new_deferred(DT_I64, 1, DIMS(-1), false, &deferred);
    if (status == DT_OK) status = dt_tensor_produce(deferred, 50);
    dt_tensor *all[] = {small, large, view, strided, scalar, deferred};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        if (all[k] != NULL) dt_tensor_release(all[k]);
    return status;
}

START_TEST(every_allocation_fails) {
    ck_assert_int_ge(test_every_allocation_fails(make_all_kinds), 7);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tensor");
    TEST_CASE(suite, "new", new_is_contiguous, sizes_around_the_inline_limit, bad_shapes, strided,
              over_takes_the_storage, scalars, same_shape);
    TEST_CASE(suite, "views", views_outlive_their_base, views_of_other_kinds);
    TEST_CASE(suite, "overlap", partial_overlap, partial_overlap_of_dtypes_and_storages);
    TEST_CASE(suite, "deferred", deferred_until_settled, deferred_sizes_that_cannot_be);
    TEST_CASE(suite, "life", released_by_another_thread, every_allocation_fails);
    return test_run(suite);
}
