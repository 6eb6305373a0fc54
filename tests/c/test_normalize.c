/* test_normalize.c: softmax and normalisation against long double, for every layout and dim. */
#include "tests/c/op_support.h"

typedef struct row {
    int64_t n;
    long double x[8192], want[8192];
} row;
static row r;

static void softmax_row(bool logarithm) {
    long double top = -INFINITY, sum = 0;
    for (int64_t k = 0; k < r.n; k++)
        if (isnan(r.x[k]) || r.x[k] > top) top = r.x[k];
    for (int64_t k = 0; k < r.n; k++) sum += expl(r.x[k] - top);
    for (int64_t k = 0; k < r.n; k++)
        r.want[k] = logarithm ? r.x[k] - top - logl(sum) : expl(r.x[k] - top) / sum;
}

static void norm_row(bool layer, double eps, const dt_tensor *w, const dt_tensor *b) {
    long double mean = 0, squares = 0;
    for (int64_t k = 0; k < r.n && layer; k++) mean += r.x[k] / r.n;
    for (int64_t k = 0; k < r.n; k++) squares += (r.x[k] - mean) * (r.x[k] - mean) / r.n;
    for (int64_t k = 0; k < r.n; k++) {
        r.want[k] = (r.x[k] - mean) / sqrtl(squares + eps);
        if (w) r.want[k] *= value_at(w, k);
        if (b) r.want[k] += value_at(b, k);
    }
}

/* Index of element k of line `line` along dim. */
static int64_t line_index(const dt_tensor *t, int dim, int64_t line, int64_t k) {
    int64_t inner = 1;
    for (int d = dim + 1; d < t->rank; d++) inner *= t->shape[d];
    return line / inner * inner * t->shape[dim] + line % inner + k * inner;
}

static void check_softmax(dt_tensor *t, int dim, bool logarithm, int parts) {
    dt_op_id id = logarithm ? DT_OP_log_softmax : DT_OP_softmax;
    dt_tensor *out = RUN_PARTS(parts, id, arg_tensor(t), arg_int(dim), arg_none());
    double tolerance = tolerance_of((dt_dtype)t->dtype) * 2;
    r.n = t->shape[dim];
    for (int64_t line = 0; line < t->numel / r.n; line++) {
        for (int64_t k = 0; k < r.n; k++) r.x[k] = value_at(t, line_index(t, dim, line, k));
        softmax_row(logarithm);
        for (int64_t k = 0; k < r.n; k++)
            assert_close(value_at(out, line_index(t, dim, line, k)), r.want[k], tolerance,
                         logarithm ? "log_softmax" : "softmax");
    }
    dt_tensor_release(out);
}

START_TEST(softmax_of_every_layout) {
    for (int dtype = DT_F16; dtype <= DT_F64; dtype++)
        for (int how = 0; how < LAYOUTS; how++) {
            dt_tensor *t = tensor_laid_out((dt_dtype)dtype, SHAPE(3, 7, 70), (layout)how);
            fill_random(t, 41);
            for (int dim = 0; dim < 3; dim++)
                for (int parts = 1; parts <= 7; parts += 2) {
                    check_softmax(t, dim, false, parts);
                    check_softmax(t, dim, true, parts);
                }
            dt_tensor_release(t);
        }
}
END_TEST

static dt_tensor *normalized(bool layer, int parts, dt_tensor *t, dt_dims *last, dt_tensor *w,
                             dt_tensor *b) {
    dt_arg dims = {.kind = DT_ARG_DIMS, .dims = last};
    dt_arg weight = w ? arg_tensor(w) : arg_none(), bias = b ? arg_tensor(b) : arg_none();
    if (layer)
        return RUN_PARTS(parts, DT_OP_layer_norm, arg_tensor(t), dims, weight, bias,
                         arg_float(1e-5));
    return RUN_PARTS(parts, DT_OP_rms_norm, arg_tensor(t), dims, weight, arg_float(1e-5));
}

static void check_norm(bool layer, int parts, dt_tensor *t, int trailing, dt_tensor *w,
                       dt_tensor *b) {
    dt_dims last = {.rank = trailing};
    r.n = 1;
    for (int d = 0; d < trailing; d++) {
        last.v[d] = t->shape[t->rank - trailing + d];
        r.n *= last.v[d];
    }
    dt_tensor *out = normalized(layer, parts, t, &last, w, b);
    double tolerance = tolerance_of((dt_dtype)t->dtype) * 4;
    for (int64_t line = 0; line < t->numel / r.n; line++) {
        for (int64_t k = 0; k < r.n; k++) r.x[k] = value_at(t, line * r.n + k);
        norm_row(layer, 1e-5, w, b);
        for (int64_t k = 0; k < r.n; k++)
            assert_close(value_at(out, line * r.n + k), r.want[k], tolerance, "norm");
    }
    dt_tensor_release(out);
}

START_TEST(norms_of_every_layout) {
    for (int dtype = DT_F16; dtype <= DT_F64; dtype++)
        for (int how = 0; how < LAYOUTS; how++)
            for (int trailing = 1; trailing <= 2; trailing++) {
                dt_tensor *t = tensor_laid_out((dt_dtype)dtype, SHAPE(5, 4, 36), (layout)how);
                dt_dims last = trailing == 1 ? SHAPE(36) : SHAPE(4, 36);
                dt_tensor *w = tensor_laid_out((dt_dtype)dtype, last, (layout)how);
                dt_tensor *b = tensor_laid_out((dt_dtype)dtype, last, CONTIGUOUS);
                fill_random(t, 42);
                fill_random(w, 43);
                fill_random(b, 44);
                for (int parts = 1; parts <= 7; parts += 3)
                    for (int given = 0; given < 4; given++) {
                        dt_tensor *weight = given & 1 ? w : NULL, *bias = given & 2 ? b : NULL;
                        check_norm(true, parts, t, trailing, weight, bias);
                        if (!bias) check_norm(false, parts, t, trailing, weight, NULL);
                    }
                dt_tensor_release(t);
                dt_tensor_release(w);
                dt_tensor_release(b);
            }
}
END_TEST

/* Numbers whose sums depend on the order of additions. */
static void fill_rough(const dt_tensor *t) {
    uint64_t seed = 45;
    for (int64_t i = 0; i < t->numel; i++)
        set_value(t, i, (double)test_random_in(&seed, -1000000, 1000000) / 99983.0);
}

static dt_tensor *run_family(int k, int parts, dt_tensor *t) {
    dt_dims last = SHAPE(t->shape[t->rank - 1]);
    if (k >= 2) return normalized(k == 2, parts, t, &last, NULL, NULL);
    return RUN_PARTS(parts, k ? DT_OP_log_softmax : DT_OP_softmax, arg_tensor(t), arg_int(-1),
                     arg_none());
}

START_TEST(same_bits_for_layouts_parts_and_levels) {
    for (int dtype = DT_F16; dtype <= DT_F64; dtype++)
        for (int k = 0; k < 4; k++) {
            dt_tensor *plain = tensor_new((dt_dtype)dtype, SHAPE(9, 387));
            fill_rough(plain);
            select_level(0);
            dt_tensor *want = run_family(k, 1, plain);
            for (int how = 0; how < LAYOUTS; how++) {
                dt_tensor *t = tensor_laid_out((dt_dtype)dtype, SHAPE(9, 387), (layout)how);
                for (int64_t i = 0; i < t->numel; i++)
                    memcpy(element_at(t, i), element_at(plain, i), dt_dtype_size((dt_dtype)dtype));
                for (int level = 0; level < levels_count(); level++)
                    for (int parts = 1; parts <= 7; parts += 3) {
                        select_level(level);
                        dt_tensor *got = run_family(k, parts, t);
                        assert_same_bits(got, want, "normalize");
                        dt_tensor_release(got);
                    }
                dt_tensor_release(t);
            }
            dt_tensor_release(want);
            dt_tensor_release(plain);
        }
}
END_TEST

/* Rows side by side are taken in batches: every number of them, merged differently in and out. */
START_TEST(columns) {
    for (int64_t width = 1; width <= 40; width += width < 20 ? 1 : 7) {
        dt_tensor *t = tensor_new(DT_F32, SHAPE(2, 33, width));
        fill_rough(t);
        for (int parts = 1; parts <= 7; parts += 2) {
            check_softmax(t, 1, false, parts);
            check_softmax(t, 0, true, parts);
        }
        dt_tensor *base =
            tensor_new(DT_F64, SHAPE(9, 3, width)); /* [3, 9, width], dims 0 and 2 merge */
        fill_rough(base);
        dt_tensor *u = view_of(base, SHAPE(3, 9, width), (int64_t[]){width, 3 * width, 1}, 0);
        check_softmax(u, 1, false, 1);
        check_softmax(u, 1, true, 2);
        dt_tensor_release(u);
        dt_tensor_release(base);
        dt_tensor_release(t);
    }
}
END_TEST

START_TEST(long_rows) {
    dt_tensor *t = tensor_new(DT_F32, SHAPE(2, 8000));
    fill_rough(t);
    check_softmax(t, 1, false, 1);
    check_softmax(t, 1, true, 1);
    check_norm(true, 1, t, 1, NULL, NULL);
    dt_tensor_release(t);
}
END_TEST

/* A mean far from 0 must not eat the variance. */
START_TEST(large_mean) {
    dt_tensor *t = tensor_new(DT_F32, SHAPE(1, 512));
    for (int64_t i = 0; i < 512; i++) set_value(t, i, 10000 + (double)(i % 8));
    check_norm(true, 1, t, 1, NULL, NULL);
    dt_tensor_release(t);
}
END_TEST

static void check_corner(dt_op_id id, dt_tensor *t, int n, const double *want) {
    dt_tensor *out = RUN(id, arg_tensor(t), arg_int(0), arg_none());
    ck_assert_int_eq(out->numel, n);
    for (int k = 0; k < n; k++) assert_close(value_at(out, k), want[k], 1e-6, "corner");
    dt_tensor_release(out);
    dt_tensor_release(t);
}

START_TEST(corners) {
    const double nan2[] = {NAN, NAN}, half[] = {0.5, 0.5, 0}, first[] = {1, 0};
    for (int level = 0; level < levels_count(); level++) {
        select_level(level);
        check_corner(DT_OP_softmax, VECTOR(DT_F32, -INFINITY, -INFINITY), 2, nan2);
        check_corner(DT_OP_softmax, VECTOR(DT_F32, NAN, 1), 2, nan2);
        check_corner(DT_OP_softmax, VECTOR(DT_F32, INFINITY, 1), 2, nan2);
        check_corner(DT_OP_softmax, VECTOR(DT_F32, 1, 1, -INFINITY), 3, half);
        check_corner(DT_OP_softmax, VECTOR(DT_F64, 1e4, -1e4), 2, first);
        check_corner(DT_OP_log_softmax, VECTOR(DT_F32, 1e4, -1e4), 2, (double[]){0, -2e4});
    }
    check_corner(DT_OP_softmax, tensor_of(DT_F32, SCALAR_SHAPE, (double[]){7}), 1, first);
    check_corner(DT_OP_softmax, tensor_new(DT_F32, SHAPE(0)), 0, first);
    check_corner(DT_OP_softmax, tensor_new(DT_F32, SHAPE(0, 4)), 0, first);
    check_corner(DT_OP_softmax, tensor_new(DT_F32, SHAPE(4, 0)), 0, first);
}
END_TEST

START_TEST(softmax_converts_first) {
    dt_tensor *t = VECTOR(DT_I32, 0, 0, 0, 0);
    dt_tensor *out = RUN(DT_OP_softmax, arg_tensor(t), arg_int(0), arg_dtype(DT_F64));
    ck_assert_int_eq(out->dtype, DT_F64);
    for (int k = 0; k < 4; k++) ck_assert(value_at(out, k) == 0.25L);
    dt_tensor_release(out);
    dt_tensor_release(t);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("normalize");
    TEST_CASE(suite, "softmax", softmax_of_every_layout, columns, corners, softmax_converts_first);
    TEST_CASE(suite, "norm", norms_of_every_layout, large_mean, long_rows);
    TEST_CASE(suite, "bits", same_bits_for_layouts_parts_and_levels);
    return test_run(suite);
}
