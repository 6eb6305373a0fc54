/* test_mask_walk.c: runs of a mask cover every element once, in order, with the right offsets. */
#include "kernels/cpu/mask_walk.h"

#include "tests/c/op_support.h"

/* The walk of `mask` beside `other` (of its shape; NULL: none), against index arithmetic. */
static void check_walk(const dt_tensor *mask, const dt_tensor *other, int64_t from, int64_t to,
                       bool keep_dims) {
    static dt__mask_cursor c;
    dt__mask_walk w;
    dt__mask_run run;
    int64_t size = other ? (int64_t)dt_dtype_size((dt_dtype)other->dtype) : 0;
    int64_t at = from, count = 0;
    dt__mask_walk_init(&w, mask, other ? other->strides : NULL, size, keep_dims);
    ck_assert(!keep_dims || mask->rank == 0 || w.rank == mask->rank);
    int64_t step = w.strides[w.rank - 1];
    dt__mask_cursor_init(&w, &c, from, to);
    while (dt__mask_cursor_next(&w, &c, &run)) {
        ck_assert(run.position == at && run.n >= 1 && run.n <= DT__MASK_RUN_MAX);
        for (int64_t i = 0; i < run.n; i++, at++) {
            bool want = value_at(mask, at) != 0;
            EXPECT((run.mask[i] != 0) == want, "flag %lld", (long long)at);
            count += want;
            if (other)
                EXPECT(run.offset + i * step == element_offset(other, at), "offset %lld",
                       (long long)at);
        }
    }
    ck_assert_int_eq(at, to > from ? to : from);
    ck_assert_int_eq(dt__mask_count(&w, &c, from, to), count);
}

START_TEST(every_dtype_layout_and_range) {
    uint64_t seed = 5;
    const dt_dims shapes[] = {SCALAR_SHAPE,   SHAPE(1),    SHAPE(5000),      SHAPE(7, 9),
                              SHAPE(3, 2000), SHAPE(0, 4), SHAPE(4, 1, 3, 5)};
    for (int dtype = 0; dtype < DT_DTYPE_COUNT; dtype++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            for (int k = 0; k < LAYOUTS * LAYOUTS; k++) {
                dt_tensor *mask =
                    tensor_laid_out((dt_dtype)dtype, shapes[s], (layout)(k / LAYOUTS));
                dt_tensor *other = tensor_laid_out(DT_F32, shapes[s], (layout)(k % LAYOUTS));
                for (int64_t i = 0; i < mask->numel; i++)
                    set_value(mask, i, test_random_in(&seed, 0, 3) == 0 ? 1 : 0);
                check_walk(mask, other, 0, mask->numel, k % 2 == 0);
                check_walk(mask, NULL, 0, mask->numel, k % 2 == 1);
                int64_t from = mask->numel / 3, to = mask->numel - mask->numel / 5;
                check_walk(mask, other, from, to, k % 2 == 1);
                check_walk(mask, other, from, from, false);
                dt_tensor_release(mask);
                dt_tensor_release(other);
            }
}
END_TEST

START_TEST(expanded_masks_and_special_values) {
    dt_tensor *row = tensor_of(DT_BOOL, SHAPE(1, 3), (double[]){1, 0, 1});
    dt_tensor *wide = view_of(row, SHAPE(4, 3), (int64_t[]){0, 1}, 0);
    dt_tensor *column = view_of(row, SHAPE(3, 5), (int64_t[]){1, 0}, 0);
    dt_tensor *other = tensor_new(DT_F64, SHAPE(4, 3));
    dt_tensor *turned = tensor_laid_out(DT_I8, SHAPE(3, 5), TRANSPOSED);
    check_walk(wide, other, 0, 12, false);
    check_walk(wide, other, 2, 11, true);
    check_walk(column, turned, 0, 15, false);
    check_walk(column, NULL, 4, 14, true);
    dt_tensor *special = VECTOR(DT_F32, NAN, 0.0, -0.0, INFINITY, 1e-45);
    check_walk(special, NULL, 0, 5, false);
    /* Bytes of a bool that are no 1 are true all the same. */
    dt_tensor *bytes = tensor_new(DT_BOOL, SHAPE(100));
    memset(dt_tensor_data(bytes), 0x80, 100);
    static dt__mask_cursor c;
    dt__mask_walk w;
    dt__mask_walk_init(&w, bytes, NULL, 0, false);
    ck_assert_int_eq(dt__mask_count(&w, &c, 0, 100), 100);
    dt_tensor *all[] = {row, wide, column, other, turned, special, bytes};
    for (int k = 0; k < 7; k++) dt_tensor_release(all[k]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mask_walk");
    TEST_CASE(suite, "walk", every_dtype_layout_and_range, expanded_masks_and_special_values);
    return test_run(suite);
}
