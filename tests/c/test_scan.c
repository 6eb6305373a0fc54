/* test_scan.c: cumsum and cumprod against running values in long double. */
#include "tests/c/op_support.h"

static void check_scan(dt_tensor *t, int dim, bool product, int parts) {
    dt_tensor *out = RUN_PARTS(parts, product ? DT_OP_cumprod : DT_OP_cumsum, arg_tensor(t),
                               arg_int(dim), arg_none());
    ck_assert_int_eq(out->dtype, dt_dtype_is_float((dt_dtype)t->dtype) ? t->dtype : DT_I64);
    ck_assert(dt_tensor_same_shape(out, t));
    int64_t inner = 1, n = t->shape[dim];
    for (int d = dim + 1; d < t->rank; d++) inner *= t->shape[d];
    for (int64_t line = 0; n > 0 && line < t->numel / n; line++) {
        long double state = product ? 1 : 0;
        for (int64_t k = 0; k < n; k++) {
            int64_t i = line / inner * inner * n + line % inner + k * inner;
            state = product ? state * value_at(t, i) : state + value_at(t, i);
            assert_close(value_at(out, i), state, tolerance_of((dt_dtype)t->dtype), "scan");
        }
    }
    dt_tensor_release(out);
}

START_TEST(every_dtype_dim_and_layout) {
    for (int dtype = 0; dtype < DT_DTYPE_COUNT; dtype++)
        for (int how = 0; how < LAYOUTS; how++) {
            dt_tensor *t = tensor_laid_out((dt_dtype)dtype, SHAPE(3, 8, 5), (layout)how);
            fill_random(t, 31);
            for (int dim = 0; dim < 3; dim++)
                for (int parts = 1; parts <= 7; parts++) check_scan(t, dim, false, parts);
            for (int64_t i = 0; i < t->numel; i++) set_value(t, i, 1 + (double)(i % 3 == 1));
            for (int dim = 0; dim < 3; dim++) check_scan(t, dim, true, 1);
            dt_tensor_release(t);
        }
}
END_TEST

START_TEST(longer_than_a_chunk) {
    dt_tensor *t = tensor_laid_out(DT_I16, SHAPE(2, 5000), SLICED);
    fill_random(t, 32);
    check_scan(t, 1, false, 2);
    dt_tensor_release(t);
}
END_TEST

START_TEST(sums_leave_the_small_dtype) {
    dt_tensor *t = tensor_new(DT_U8, SHAPE(300));
    for (int64_t i = 0; i < 300; i++) set_value(t, i, 1);
    dt_tensor *out = RUN(DT_OP_cumsum, arg_tensor(t), arg_int(0), arg_none());
    ck_assert(value_at(out, 299) == 300);
    dt_tensor *bytes = RUN(DT_OP_cumsum, arg_tensor(t), arg_int(0), arg_dtype(DT_U8));
    ck_assert_int_eq(bytes->dtype, DT_U8);
    ck_assert(value_at(bytes, 299) == 300 - 256);
    dt_tensor *floats = RUN(DT_OP_cumsum, arg_tensor(t), arg_int(0), arg_dtype(DT_F32));
    ck_assert(value_at(floats, 299) == 300);
    dt_tensor_release(t);
    dt_tensor_release(out);
    dt_tensor_release(bytes);
    dt_tensor_release(floats);
}
END_TEST

START_TEST(zero_dim_empty_and_nan) {
    dt_tensor *t = tensor_of(DT_F32, SCALAR_SHAPE, (double[]){4});
    dt_tensor *out = RUN(DT_OP_cumsum, arg_tensor(t), arg_int(-1), arg_none());
    ck_assert_int_eq(out->rank, 0);
    ck_assert(value_at(out, 0) == 4);
    dt_tensor_release(out);
    dt_tensor_release(t);
    t = tensor_new(DT_F64, SHAPE(3, 0));
    out = RUN(DT_OP_cumprod, arg_tensor(t), arg_int(1), arg_none());
    ck_assert_int_eq(out->numel, 0);
    dt_tensor_release(out);
    out = RUN(DT_OP_cumprod, arg_tensor(t), arg_int(0), arg_none());
    ck_assert_int_eq(out->numel, 0);
    dt_tensor_release(out);
    dt_tensor_release(t);
    t = VECTOR(DT_F32, 1, NAN, 2);
    out = RUN(DT_OP_cumsum, arg_tensor(t), arg_int(0), arg_none());
    ck_assert(value_at(out, 0) == 1 && isnan(value_at(out, 1)) && isnan(value_at(out, 2)));
    dt_tensor_release(out);
    dt_tensor_release(t);
}
END_TEST

START_TEST(integers_wrap_around) {
    dt_tensor *t = tensor_new(DT_I64, SHAPE(2));
    memcpy(dt_tensor_data(t), (int64_t[]){INT64_MAX, 1}, 16);
    dt_tensor *out = RUN(DT_OP_cumsum, arg_tensor(t), arg_int(0), arg_none());
    ck_assert_int_eq(((int64_t *)dt_tensor_data(out))[1], INT64_MIN);
    dt_tensor_release(out);
    dt_tensor_release(t);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scan");
    TEST_CASE(suite, "scan", every_dtype_dim_and_layout, longer_than_a_chunk,
              sums_leave_the_small_dtype, zero_dim_empty_and_nan, integers_wrap_around);
    return test_run(suite);
}
