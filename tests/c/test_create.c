/* arange, linspace, eye and the triangles against their definitions. */
#include "tests/c/ew_support.h"

extern const dt_kernel dt_kernel_arange, dt_kernel_linspace, dt_kernel_eye, dt_kernel_tri;

static void create(const dt_kernel *kernel, dt_tensor *out, double f0, double f1, int64_t i0,
                   int64_t i1, int parts) {
    ew_case c = ew_case_new(kernel, (dt_dtype)out->dtype, out, 0, NULL);
    c.call.params.f[0] = f0;
    c.call.params.f[1] = f1;
    c.call.params.i[0] = i0;
    c.call.params.i[1] = i1;
    c.parts = parts;
    ck_assert_int_eq(ew_case_run(&c), DT_OK);
    dt_call_fini(&c.call);
}

static double as_dtype(dt_dtype t, double x) {
    uint64_t bytes;
    dt_scalar_store((dt_scalar){.category = DT_CAT_FLOAT, .f = x}, t, &bytes);
    return dt_scalar_f64(dt_scalar_load(t, &bytes));
}

START_TEST(arange) {
    dt_dtype t = (dt_dtype)_i;
    for (int parts = 1; parts < 5; parts += 3) {
        dt_tensor *out = ew_vector(t, 1300);
        bool floats = dt_dtype_is_float(t);
        create(&dt_kernel_arange, out, 1.5, 0.25, 1, -2, parts);
        for (int64_t i = 0; i < out->numel; i++) {
            if (floats)
                ck_assert_double_eq(ew_get(out, i), as_dtype(t, 1.5 + 0.25 * (double)i));
            else if (t == DT_I16 || t == DT_I32 || t == DT_I64)
                ck_assert_int_eq(ew_get_int(out, i), 1 - 2 * i);
            else if (t == DT_U8)
                ck_assert_int_eq(ew_get_int(out, i), (uint8_t)(1 - 2 * i));
        }
        dt_tensor_release(out);
    }
}
END_TEST

START_TEST(arange_of_large_integers) {
    dt_tensor *out = ew_vector(DT_I64, 3);
    int64_t start = INT64_MAX - 2;
    create(&dt_kernel_arange, out, (double)start, 1, start, 1, 1);
    for (int64_t i = 0; i < 3; i++) ck_assert_int_eq(ew_get_int(out, i), start + i);
    dt_tensor_release(out);
}
END_TEST

START_TEST(linspace) {
    static const int64_t steps[] = {0, 1, 2, 7, 1000};
    for (int k = 0; k < 5; k++) {
        for (int dtype = DT_F16; dtype <= DT_F64; dtype++) {
            dt_tensor *out = ew_vector((dt_dtype)dtype, steps[k]);
            create(&dt_kernel_linspace, out, -3.25, 5.5, steps[k], 0, 1 + k % 3);
            if (steps[k] > 0) ck_assert_double_eq(ew_get(out, 0), -3.25);
            if (steps[k] > 1) ck_assert_double_eq(ew_get(out, steps[k] - 1), 5.5);
            for (int64_t i = 0; i < steps[k]; i++) {
                double want =
                    steps[k] == 1 ? -3.25 : -3.25 + 8.75 * (double)i / (double)(steps[k] - 1);
                double off = fabs(ew_get(out, i) - want);
                ck_assert(off <= (dtype == DT_F64 ? 1e-14 : dtype == DT_F32 ? 1e-6 : 2e-2));
            }
            dt_tensor_release(out);
        }
        dt_tensor *out = ew_vector(DT_I32, steps[k]);
        create(&dt_kernel_linspace, out, 0.9, 100.9, steps[k], 0, 1);
        for (int64_t i = 0; i + 1 < steps[k]; i++)
            ck_assert_int_eq(ew_get_int(out, i) -
                                 (int64_t)(100.0 * (double)i / (double)(steps[k] - 1) + 1e-9),
                             0);
        if (steps[k] > 1) ck_assert_int_eq(ew_get_int(out, steps[k] - 1), 100);
        dt_tensor_release(out);
    }
}
END_TEST

START_TEST(eye) {
    static const int64_t shapes[][2] = {{0, 3}, {3, 0}, {1, 1}, {4, 7}, {7, 4}, {90, 90}};
    for (int k = 0; k < 6; k++) {
        for (int dtype = 0; dtype < DT_DTYPE_COUNT; dtype++) {
            dt_tensor *out = ew_tensor((dt_dtype)dtype, 2, shapes[k]);
            for (int64_t i = 0; i < out->numel; i++) ew_set_int(out, i, 1); /* to be overwritten */
            create(&dt_kernel_eye, out, 0, 0, 0, 0, 1 + k % 3);
            for (int64_t i = 0; i < out->numel; i++)
                ck_assert_double_eq(ew_get(out, i), i / shapes[k][1] == i % shapes[k][1]);
            dt_tensor_release(out);
        }
    }
}
END_TEST

START_TEST(triangles) {
    static const int64_t diagonals[] = {0, 1, -1, 3, -40, 40, INT64_MAX, INT64_MIN};
    const int64_t shape[] = {2, 5, 6};
    for (int k = 0; k < 8; k++) {
        for (int upper = 0; upper < 2; upper++) {
            for (int turned = 0; turned < 2; turned++) {
                dt_tensor *base = ew_vector(DT_I16, 60), *out = ew_tensor(DT_I16, 3, shape);
                for (int64_t i = 0; i < 60; i++) ew_set_int(base, i, i + 1);
                const int64_t strides[2][3] = {{30, 6, 1}, {1, 2, 10}};
                dt_tensor *in = ew_view(base, 3, shape, strides[turned], 0);
                ew_case c = ew_case_new(&dt_kernel_tri, DT_I16, out, 1, &in);
                c.call.params.i[0] = diagonals[k];
                c.call.params.i[1] = upper;
                c.parts = 3;
                ck_assert_int_eq(ew_case_run(&c), DT_OK);
                dt_call_fini(&c.call);
                for (int64_t i = 0; i < 60; i++) {
                    int64_t row = i / 6 % 5, column = i % 6;
                    bool kept = upper ? column - row >= diagonals[k] : column - row <= diagonals[k];
                    ck_assert_int_eq(ew_get_int(out, i), kept ? ew_get_int(in, i) : 0);
                }
                dt_tensor_release(in);
                dt_tensor_release(out);
                dt_tensor_release(base);
            }
        }
    }
}
END_TEST

START_TEST(triangle_in_place) {
    const int64_t shape[] = {70, 70};
    dt_tensor *x = ew_tensor(DT_F32, 2, shape);
    for (int64_t i = 0; i < x->numel; i++) ew_set(x, i, (double)i + 1);
    ew_case c = ew_case_new(&dt_kernel_tri, DT_F32, x, 1, &x);
    ck_assert_int_eq(ew_case_run(&c), DT_OK);
    dt_call_fini(&c.call);
    for (int64_t i = 0; i < x->numel; i++)
        ck_assert_double_eq(ew_get(x, i), i % 70 <= i / 70 ? (double)i + 1 : 0);
    dt_tensor_release(x);
}
END_TEST

int main(void) {
    Suite *s = suite_create("create");
    TCase *ranges = tcase_create("ranges");
    tcase_add_loop_test(ranges, arange, DT_U8, DT_DTYPE_COUNT);
    suite_add_tcase(s, ranges);
    TEST_CASE(s, "values", arange_of_large_integers, linspace, eye, triangles, triangle_in_place);
    return test_run(s);
}
