/* Element-wise kernels: values against libm and plain integer arithmetic, layouts against element
 * by element indexing, and the promise that an element's bits depend on nothing but its
 * operands. */
#include "tests/c/ew_support.h"

#include <float.h>

#define EW1(group, name, ...) extern const dt_kernel dt_kernel_ew_##name;
#define EW2 EW1
#define EW3 EW1
#include "kernels/ew.def"
#undef EW1
#undef EW2
#undef EW3

static const struct {
    const dt_kernel *kernel;
    int nin;
} kernels[] = {
#define EW1(group, name, ...) {&dt_kernel_ew_##name, 1},
#define EW2(group, name, ...) {&dt_kernel_ew_##name, 2},
#define EW3(group, name, ...) {&dt_kernel_ew_##name, 3},
#include "kernels/ew.def"
};
#define KERNELS ((int)(sizeof kernels / sizeof kernels[0]))

static const dt_dtype floats[] = {DT_F16, DT_BF16, DT_F32, DT_F64};
static const dt_dtype ints[] = {DT_U8, DT_I8, DT_I16, DT_I32, DT_I64};

/* ---- values of float functions -------------------------------------------------------------- */

static double ref_relu(double x) { return x < 0 ? 0 : x; }
static double ref_square(double x) { return x * x; }
static double ref_reciprocal(double x) { return 1 / x; }
static double ref_rsqrt(double x) { return 1 / sqrt(x); }
static double ref_sign(double x) { return (x > 0) - (x < 0); }
static double ref_neg(double x) { return -x; }
static double ref_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double ref_silu(double x) { return x / (1 + exp(-x)); }
static double ref_gelu(double x) { return x * 0.5 * erfc(-x * M_SQRT1_2); }
static double ref_gelu_tanh(double x) {
    return x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static const struct {
    const dt_kernel *kernel;
    double (*ref)(double);
    double ulps; /* f32 and f64; halves round once, so one step at most where the f32 is off */
} unary[] = {
    {&dt_kernel_ew_abs, fabs, 0},
    {&dt_kernel_ew_neg, ref_neg, 0},
    {&dt_kernel_ew_sign, ref_sign, 0},
    {&dt_kernel_ew_relu, ref_relu, 0},
    {&dt_kernel_ew_square, ref_square, 0.5},
    {&dt_kernel_ew_reciprocal, ref_reciprocal, 0.5},
    {&dt_kernel_ew_sqrt, sqrt, 0.5},
    {&dt_kernel_ew_rsqrt, ref_rsqrt, 1.5},
    {&dt_kernel_ew_floor, floor, 0},
    {&dt_kernel_ew_ceil, ceil, 0},
    {&dt_kernel_ew_trunc, trunc, 0},
    {&dt_kernel_ew_round, rint, 0},
    {&dt_kernel_ew_exp, exp, 2},
    {&dt_kernel_ew_exp2, exp2, 2},
    {&dt_kernel_ew_expm1, expm1, 2},
    {&dt_kernel_ew_log, log, 2},
    {&dt_kernel_ew_log2, log2, 2},
    {&dt_kernel_ew_log10, log10, 2},
    {&dt_kernel_ew_log1p, log1p, 2},
    {&dt_kernel_ew_tanh, tanh, 2},
    {&dt_kernel_ew_sigmoid, ref_sigmoid, 3},
    {&dt_kernel_ew_silu, ref_silu, 4},
    {&dt_kernel_ew_erf, erf, 2},
    {&dt_kernel_ew_erfc, erfc, 3},
    {&dt_kernel_ew_gelu, ref_gelu, 6},
    {&dt_kernel_ew_gelu_tanh, ref_gelu_tanh, 100}, /* an ulp of 2u counts 2u times */
    {&dt_kernel_ew_sin, sin, 2},
    {&dt_kernel_ew_cos, cos, 2},
    {&dt_kernel_ew_tan, tan, 2},
    {&dt_kernel_ew_asin, asin, 2},
    {&dt_kernel_ew_acos, acos, 2},
    {&dt_kernel_ew_atan, atan, 2},
    {&dt_kernel_ew_sinh, sinh, 2},
    {&dt_kernel_ew_cosh, cosh, 2},
};

/* How far got is from want, in units of the last place of dtype at want. */
static double ulps_off(dt_dtype dtype, double got, double want) {
    static const int bits[DT_DTYPE_COUNT] = {
        [DT_F16] = 10, [DT_BF16] = 7, [DT_F32] = 23, [DT_F64] = 52};
    static const int least[DT_DTYPE_COUNT] = {
        [DT_F16] = -14, [DT_BF16] = -126, [DT_F32] = -126, [DT_F64] = -1022};
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (got == want) return 0;
    if (isinf(got) || isinf(want)) return INFINITY;
    int e;
    frexp(want, &e);
    e = e - 1 < least[dtype] ? least[dtype] : e - 1;
    return fabs(got - want) / ldexp(1.0, e - bits[dtype]);
}

/* A double as the dtype holds it. */
static double rounded(dt_dtype dtype, double x) {
    uint64_t bytes;
    dt_scalar_store((dt_scalar){.category = DT_CAT_FLOAT, .f = x}, dtype, &bytes);
    return dt_scalar_f64(dt_scalar_load(dtype, &bytes));
}

START_TEST(unary_values) {
    dt_dtype dtype = floats[_i];
    dt_tensor *x = ew_vector(dtype, 1500), *y = ew_vector(dtype, 1500);
    ew_fill_random(x, 1);
    for (size_t k = 0; k < sizeof unary / sizeof unary[0]; k++) {
        ck_assert_int_eq(ew_run(unary[k].kernel, dtype, 1, y, 1, &x), DT_OK);
        double allowed = unary[k].ulps;
        bool half = dtype == DT_F16 || dtype == DT_BF16;
        if (half) allowed = allowed > 0.5 ? 1 : 0;
        for (int64_t i = 0; i < x->numel; i++) {
            double want = rounded(dtype, unary[k].ref(ew_get(x, i)));
            double off = ulps_off(dtype, ew_get(y, i), want);
            ck_assert_msg(off <= allowed, "%s(%a) as %s: %a, not %a: %g ulp", unary[k].kernel->name,
                          ew_get(x, i), dt_dtype_table[dtype].name, ew_get(y, i), want, off);
        }
    }
    dt_tensor_release(x);
    dt_tensor_release(y);
}
END_TEST

static double ref_add(double x, double y) { return x + y; }
static double ref_sub(double x, double y) { return x - y; }
static double ref_mul(double x, double y) { return x * y; }
static double ref_div(double x, double y) { return x / y; }
static double ref_max(double x, double y) { return isnan(x) || isnan(y) ? NAN : (y > x ? y : x); }
static double ref_min(double x, double y) { return isnan(x) || isnan(y) ? NAN : (y < x ? y : x); }
static double ref_fmax(double x, double y) { return isnan(x) ? y : (isnan(y) || x >= y ? x : y); }
static double ref_fmin(double x, double y) { return isnan(x) ? y : (isnan(y) || x <= y ? x : y); }
static double ref_remainder(double x, double y) {
    double r = fmod(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

static const struct {
    const dt_kernel *kernel;
    double (*ref)(double, double);
    double ulps;
} binary[] = {
    {&dt_kernel_ew_add, ref_add, 0},       {&dt_kernel_ew_sub, ref_sub, 0},
    {&dt_kernel_ew_mul, ref_mul, 0},       {&dt_kernel_ew_div, ref_div, 0},
    {&dt_kernel_ew_maximum, ref_max, 0},   {&dt_kernel_ew_minimum, ref_min, 0},
    {&dt_kernel_ew_clamp_min, ref_max, 0}, {&dt_kernel_ew_clamp_max, ref_min, 0},
    {&dt_kernel_ew_fmax, ref_fmax, 0},     {&dt_kernel_ew_fmin, ref_fmin, 0},
    {&dt_kernel_ew_fmod, fmod, 0},         {&dt_kernel_ew_remainder, ref_remainder, 0.5},
    {&dt_kernel_ew_atan2, atan2, 2},       {&dt_kernel_ew_pow, pow, 2},
};

START_TEST(binary_values) {
    dt_dtype dtype = floats[_i];
    dt_tensor *in[2] = {ew_vector(dtype, 1500), ew_vector(dtype, 1500)};
    dt_tensor *out = ew_vector(dtype, 1500);
    ew_fill_random(in[0], 2);
    ew_fill_random(in[1], 3);
    for (size_t k = 0; k < sizeof binary / sizeof binary[0]; k++) {
        ck_assert_int_eq(ew_run(binary[k].kernel, dtype, 1, out, 2, in), DT_OK);
        for (int64_t i = 0; i < out->numel; i++) {
            double x = ew_get(in[0], i), y = ew_get(in[1], i);
            double off = ulps_off(dtype, ew_get(out, i), rounded(dtype, binary[k].ref(x, y)));
            ck_assert_msg(off <= binary[k].ulps, "%s(%a, %a) as %s: %a, not %a",
                          binary[k].kernel->name, x, y, dt_dtype_table[dtype].name, ew_get(out, i),
                          binary[k].ref(x, y));
        }
    }
    for (int k = 0; k < 2; k++) dt_tensor_release(in[k]);
    dt_tensor_release(out);
}
END_TEST

static dt_scalar number(double f) { return (dt_scalar){.category = DT_CAT_FLOAT, .f = f}; }

/* One value through a kernel with numbers for whatever is not given. */
static double once(const dt_kernel *kernel, dt_dtype dtype, int nin, double x, double y, double z,
                   double p0, double p1) {
    dt_tensor *in[3] = {ew_vector(dtype, 1), NULL, NULL}, *out = ew_vector(dtype, 1);
    ew_set(in[0], 0, x);
    ew_case c = ew_case_new(kernel, dtype, out, nin, in);
    c.call.immediates[1] = number(y);
    c.call.immediates[2] = number(z);
    c.call.params.f[0] = p0;
    c.call.params.f[1] = p1;
    c.call.params.i[0] = (int64_t)p0;
    ck_assert_int_eq(ew_case_run(&c), DT_OK);
    double got = ew_get(out, 0);
    dt_call_fini(&c.call);
    dt_tensor_release(in[0]);
    dt_tensor_release(out);
    return got;
}

START_TEST(parameters_and_three_operands) {
    ck_assert_double_eq(once(&dt_kernel_ew_leaky_relu, DT_F32, 1, -2, 0, 0, 0.25, 0), -0.5);
    ck_assert_double_eq(once(&dt_kernel_ew_elu, DT_F64, 1, -1, 0, 0, 2, 0), 2 * expm1(-1));
    ck_assert_double_eq(once(&dt_kernel_ew_softplus, DT_F64, 1, 30, 0, 0, 1, 20), 30);
    ck_assert_double_eq_tol(once(&dt_kernel_ew_softplus, DT_F32, 1, 1, 0, 0, 2, 20),
                            log1p(exp(2)) / 2, 1e-6);
    ck_assert_double_eq(once(&dt_kernel_ew_add_alpha, DT_F32, 2, 1, 3, 0, 2, 0), 7);
    ck_assert_double_eq(once(&dt_kernel_ew_sub_alpha, DT_F32, 2, 1, 3, 0, 2, 0), -5);
    ck_assert_double_eq(once(&dt_kernel_ew_clamp, DT_F32, 3, 5, -1, 2, 0, 0), 2);
    ck_assert_double_eq(once(&dt_kernel_ew_clamp, DT_F32, 3, 5, 9, 7, 0, 0), 7);
    ck_assert_double_nan(once(&dt_kernel_ew_clamp, DT_F32, 3, NAN, -1, 2, 0, 0));
    ck_assert_double_nan(once(&dt_kernel_ew_clamp, DT_F32, 3, 1, NAN, 2, 0, 0));
    ck_assert_double_eq(once(&dt_kernel_ew_addcmul, DT_F32, 3, 1, 2, 3, 0.5, 0), 4);
    ck_assert_double_eq(once(&dt_kernel_ew_addcdiv, DT_F32, 3, 1, 6, 3, 0.5, 0), 2);
    ck_assert_double_eq(once(&dt_kernel_ew_lerp, DT_F32, 3, 2, 4, 0.25, 0, 0), 2.5);
    ck_assert_double_eq(once(&dt_kernel_ew_lerp, DT_F32, 3, 2, 4, 1, 0, 0), 4);
    ck_assert_double_eq(once(&dt_kernel_ew_round, DT_F64, 1, 1.25, 0, 0, 1, 0), 1.2);
    ck_assert_double_eq(once(&dt_kernel_ew_round, DT_F32, 1, 25, 0, 0, -1, 0), 20);
    /* torch's short ways, and none for f16 */
    ck_assert_double_eq(once(&dt_kernel_ew_pow, DT_F32, 2, 3, 2, 0, 0, 0), 9);
    ck_assert_double_eq(once(&dt_kernel_ew_pow, DT_F32, 2, -2, 3, 0, 0, 0), -8);
    ck_assert_double_nan(once(&dt_kernel_ew_pow, DT_F32, 2, -INFINITY, 0.5, 0, 0, 0));
    ck_assert_double_eq(once(&dt_kernel_ew_pow, DT_F16, 2, -INFINITY, 0.5, 0, 0, 0), INFINITY);
    ck_assert_double_eq(once(&dt_kernel_ew_pow, DT_F64, 2, 2, -2, 0, 0, 0), 0.25);
    ck_assert_double_eq(once(&dt_kernel_ew_pow, DT_I32, 2, -3, 3, 0, 0, 0), -27);
}
END_TEST

/* A number beside a half is rounded for add, kept in f32 for mul (torch: 3.3 + 0.1, 3 * 0.1). */
START_TEST(numbers_beside_halves) {
    float tenth_f32 = 0.1f;
    double tenth_bf16 = rounded(DT_BF16, 0.1), x = 3;
    ck_assert_double_eq(once(&dt_kernel_ew_mul, DT_BF16, 2, x, 0.1, 0, 0, 0),
                        rounded(DT_BF16, (float)x * tenth_f32));
    ck_assert_double_eq(once(&dt_kernel_ew_add, DT_BF16, 2, 0.001, 0.1, 0, 0, 0),
                        rounded(DT_BF16, (float)rounded(DT_BF16, 0.001) + (float)tenth_bf16));
    /* (3 * 0.1) would be 0.30078125 either way; 0.7 tells them apart */
    ck_assert_double_eq(once(&dt_kernel_ew_mul, DT_BF16, 2, 1.0078125, 0.7, 0, 0, 0),
                        rounded(DT_BF16, 1.0078125f * 0.7f));
    ck_assert_double_ne(rounded(DT_BF16, 1.0078125f * 0.7f),
                        rounded(DT_BF16, 1.0078125f * (float)rounded(DT_BF16, 0.7)));
    ck_assert_double_eq(once(&dt_kernel_ew_add_alpha, DT_F16, 2, 0, 2.5, 0, 0.3, 0),
                        rounded(DT_F16, (float)rounded(DT_F16, 0.3) * 2.5f));
}
END_TEST

/* Between tensors torch rounds the quotient to the half before it cuts it off; beside a number it
 * does not. */
START_TEST(halves_round_quotients) {
    static const struct {
        dt_dtype dtype;
        const dt_kernel *kernel;
        double x, y, tensors, number;
    } rows[] = {
        {DT_F16, &dt_kernel_ew_div_trunc, -156.25, 0.326904296875, -478, -477},
        {DT_BF16, &dt_kernel_ew_div_trunc, 3.34375, 0.3046875, 11, 10},
        {DT_BF16, &dt_kernel_ew_div_floor, 244.0, 0.66015625, 370, 368},
    };
    for (int k = 0; k < 3; k++) {
        dt_tensor *in[2] = {ew_vector(rows[k].dtype, 40), ew_vector(rows[k].dtype, 40)};
        dt_tensor *out = ew_vector(rows[k].dtype, 40);
        for (int i = 0; i < 40; i++) {
            ew_set(in[0], i, rows[k].x);
            ew_set(in[1], i, rows[k].y);
        }
        ck_assert_int_eq(ew_run(rows[k].kernel, rows[k].dtype, 1, out, 2, in), DT_OK);
        for (int i = 0; i < 40; i++) ck_assert_double_eq(ew_get(out, i), rows[k].tensors);
        ck_assert_double_eq(once(rows[k].kernel, rows[k].dtype, 2, rows[k].x, rows[k].y, 0, 0, 0),
                            rows[k].number);
        for (int j = 0; j < 2; j++) dt_tensor_release(in[j]);
        dt_tensor_release(out);
    }
}
END_TEST

/* An operand of another dtype is rounded to the half first, and so is the result before it goes on
 * to an output of another dtype. */
START_TEST(halves_round_other_dtypes) {
    const int64_t n = 50, gap = 2;
    for (int strided = 0; strided < 2; strided++) {
        dt_tensor *base = ew_vector(DT_I32, 2 * n), *one = ew_vector(DT_F16, n);
        dt_tensor *x = ew_view(base, 1, &n, strided ? &gap : &(int64_t){1}, 0);
        dt_tensor *out = ew_vector(DT_F32, n), *ints = ew_vector(DT_I64, n);
        for (int64_t i = 0; i < n; i++) {
            ew_set_int(x, i, 2049 + i % 2 * 2); /* halves between 2048 and 4096 are even */
            ew_set(one, i, 1);
        }
        dt_tensor *in[2] = {x, one};
        ck_assert_int_eq(ew_run(&dt_kernel_ew_add, DT_F16, 1, out, 2, in), DT_OK);
        ck_assert_int_eq(ew_run(&dt_kernel_ew_add, DT_F16, 1, ints, 2, in), DT_OK);
        for (int64_t i = 0; i < n; i++) {
            int64_t want = i % 2 ? 2052 : 2048; /* 2051 -> 2052, + 1 -> 2052; 2049 -> 2048 */
            ck_assert_double_eq(ew_get(out, i), (double)want);
            ck_assert_int_eq(ew_get_int(ints, i), want);
        }
        dt_tensor_release(base);
        dt_tensor_release(x);
        dt_tensor_release(one);
        dt_tensor_release(out);
        dt_tensor_release(ints);
    }
}
END_TEST

/* ---- integers ------------------------------------------------------------------------------- */

static int64_t wrap(dt_dtype dtype, __int128 v) {
    int64_t bytes = 0;
    int64_t low = (int64_t)(uint64_t)v;
    dt_scalar_store((dt_scalar){.category = DT_CAT_INT, .i = low}, dtype, &bytes);
    return dt_scalar_load(dtype, &bytes).i;
}

static __int128 floor_div(__int128 x, __int128 y) {
    __int128 q = x / y;
    return x % y != 0 && (x < 0) != (y < 0) ? q - 1 : q;
}

static void check_int_row(dt_dtype t, const dt_kernel *kernel, dt_tensor *const *in,
                          __int128 (*ref)(dt_dtype, int64_t, int64_t)) {
    dt_tensor *out = ew_vector(t, in[0]->numel);
    ck_assert_int_eq(ew_run(kernel, t, 1, out, 2, in), DT_OK);
    for (int64_t i = 0; i < out->numel; i++) {
        int64_t x = ew_get_int(in[0], i), y = ew_get_int(in[1], i);
        ck_assert_msg(ew_get_int(out, i) == wrap(t, ref(t, x, y)), "%s(%lld, %lld) as %s: %lld",
                      kernel->name, (long long)x, (long long)y, dt_dtype_table[t].name,
                      (long long)ew_get_int(out, i));
    }
    dt_tensor_release(out);
}

static __int128 int_add(dt_dtype t, int64_t x, int64_t y) { return (void)t, (__int128)x + y; }
static __int128 int_sub(dt_dtype t, int64_t x, int64_t y) { return (void)t, (__int128)x - y; }
static __int128 int_mul(dt_dtype t, int64_t x, int64_t y) { return (void)t, (__int128)x * y; }
static __int128 int_max(dt_dtype t, int64_t x, int64_t y) { return (void)t, x > y ? x : y; }
static __int128 int_min(dt_dtype t, int64_t x, int64_t y) { return (void)t, x < y ? x : y; }
static __int128 int_trunc(dt_dtype t, int64_t x, int64_t y) { return (void)t, (__int128)x / y; }
static __int128 int_fmod(dt_dtype t, int64_t x, int64_t y) { return (void)t, (__int128)x % y; }
static __int128 int_floor(dt_dtype t, int64_t x, int64_t y) { return (void)t, floor_div(x, y); }
static __int128 int_remainder(dt_dtype t, int64_t x, int64_t y) {
    return (void)t, x - floor_div(x, y) * y;
}
static __int128 int_shl(dt_dtype t, int64_t x, int64_t y) {
    int width = (int)dt_dtype_size(t) * 8;
    return y < 0 || y >= width ? 0 : (__int128)((unsigned __int128)(__int128)x << y);
}
static __int128 int_shr(dt_dtype t, int64_t x, int64_t y) {
    int width = (int)dt_dtype_size(t) * 8;
    if (y < 0 || y >= width) return x < 0 ? -1 : 0;
    return x >> y;
}
static __int128 int_pow(dt_dtype t, int64_t x, int64_t y) {
    (void)t;
    if (y < 0) return x == 1 ? 1 : (x == -1 ? (y % 2 == 0 ? 1 : -1) : 0);
    uint64_t r = 1;
    for (int64_t k = 0; k < y; k++) r *= (uint64_t)x;
    return (__int128)r;
}

START_TEST(integer_values) {
    dt_dtype t = ints[_i];
    dt_tensor *in[2] = {ew_vector(t, 700), ew_vector(t, 700)};
    ew_fill_random(in[0], 5);
    ew_fill_random(in[1], 6);
    int64_t least = t == DT_U8 ? 0 : -((int64_t)1 << (dt_dtype_size(t) * 8 - 2)) * 2;
    ew_set_int(in[0], 0, least);
    ew_set_int(in[1], 0, -1); /* the quotient that does not exist */
    check_int_row(t, &dt_kernel_ew_add, in, int_add);
    check_int_row(t, &dt_kernel_ew_sub, in, int_sub);
    check_int_row(t, &dt_kernel_ew_mul, in, int_mul);
    check_int_row(t, &dt_kernel_ew_maximum, in, int_max);
    check_int_row(t, &dt_kernel_ew_fmin, in, int_min);
    for (int64_t i = 0; i < in[1]->numel; i++)
        if (ew_get_int(in[1], i) == 0) ew_set_int(in[1], i, 7);
    check_int_row(t, &dt_kernel_ew_div_trunc, in, int_trunc);
    check_int_row(t, &dt_kernel_ew_div_floor, in, int_floor);
    check_int_row(t, &dt_kernel_ew_remainder, in, int_remainder);
    check_int_row(t, &dt_kernel_ew_fmod, in, int_fmod);
    for (int64_t i = 0; i < in[1]->numel; i++) ew_set_int(in[1], i, i % 75 - (t == DT_U8 ? 0 : 4));
    check_int_row(t, &dt_kernel_ew_shl, in, int_shl);
    check_int_row(t, &dt_kernel_ew_shr, in, int_shr);
    check_int_row(t, &dt_kernel_ew_pow, in, int_pow);
    for (int k = 0; k < 2; k++) dt_tensor_release(in[k]);
}
END_TEST

START_TEST(integer_division_by_zero) {
    static const dt_kernel *const dividing[] = {&dt_kernel_ew_div_trunc, &dt_kernel_ew_div_floor,
                                                &dt_kernel_ew_remainder, &dt_kernel_ew_fmod};
    dt_dtype t = ints[_i];
    for (int64_t at = 0; at < 2000; at += 1999) {
        dt_tensor *in[2] = {ew_vector(t, 2000), ew_vector(t, 2000)}, *out = ew_vector(t, 2000);
        for (int64_t i = 0; i < 2000; i++) ew_set_int(in[1], i, i == at ? 0 : 3);
        for (int k = 0; k < 4; k++) {
            ck_assert_int_eq(ew_run(dividing[k], t, 1, out, 2, in), DT_E_ZERO_DIVISION);
            ck_assert_str_eq(dt_error_text(), "ZeroDivisionError");
            ew_case c = ew_case_new(dividing[k], t, out, 2, (dt_tensor *[]){in[0], NULL});
            ck_assert_int_eq(ew_case_run(&c), DT_E_ZERO_DIVISION);
            dt_call_fini(&c.call);
        }
        for (int k = 0; k < 2; k++) dt_tensor_release(in[k]);
        dt_tensor_release(out);
    }
}
END_TEST

START_TEST(refused) {
    dt_tensor *x = ew_vector(DT_BOOL, 3), *y = ew_vector(DT_BOOL, 3);
    ck_assert_int_eq(ew_run(&dt_kernel_ew_abs, DT_BOOL, 1, y, 1, &x), DT_E_NOT_IMPLEMENTED);
    ck_assert_str_eq(dt_error_text(), "\"abs_cpu\" not implemented for 'Bool'");
    dt_tensor *i = ew_vector(DT_I64, 3);
    ew_case c = ew_case_new(&dt_kernel_ew_pow, DT_I64, i, 2, (dt_tensor *[]){i, NULL});
    c.call.immediates[1] = (dt_scalar){.category = DT_CAT_INT, .i = -1};
    ck_assert_int_eq(ew_case_run(&c), DT_E_RUNTIME);
    ck_assert_str_eq(dt_error_text(), "Integers to negative integer powers are not allowed.");
    dt_call_fini(&c.call);
    dt_tensor_release(x);
    dt_tensor_release(y);
    dt_tensor_release(i);
}
END_TEST

/* ---- bool ----------------------------------------------------------------------------------- */

START_TEST(bools_and_comparisons) {
    static const struct {
        const dt_kernel *kernel;
        const char *table; /* results for (0,0) (0,1) (1,0) (1,1) */
    } rows[] = {
        {&dt_kernel_ew_add, "0111"},         {&dt_kernel_ew_mul, "0001"},
        {&dt_kernel_ew_maximum, "0111"},     {&dt_kernel_ew_minimum, "0001"},
        {&dt_kernel_ew_bitwise_and, "0001"}, {&dt_kernel_ew_bitwise_or, "0111"},
        {&dt_kernel_ew_bitwise_xor, "0110"}, {&dt_kernel_ew_logical_and, "0001"},
        {&dt_kernel_ew_logical_or, "0111"},  {&dt_kernel_ew_logical_xor, "0110"},
        {&dt_kernel_ew_eq, "1001"},          {&dt_kernel_ew_ne, "0110"},
        {&dt_kernel_ew_lt, "0100"},          {&dt_kernel_ew_le, "1101"},
        {&dt_kernel_ew_gt, "0010"},          {&dt_kernel_ew_ge, "1011"},
    };
    const int64_t n = 260; /* vector body and tail */
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        for (int dtype = 0; dtype < DT_DTYPE_COUNT; dtype++) {
            if (k < 7 && dtype != DT_BOOL) continue; /* those compute, on other types */
            dt_tensor *in[2] = {ew_vector((dt_dtype)dtype, n), ew_vector((dt_dtype)dtype, n)};
            dt_tensor *out = ew_vector(DT_BOOL, n);
            for (int64_t i = 0; i < n; i++) {
                ew_set_int(in[0], i, i >> 1 & 1);
                ew_set_int(in[1], i, i & 1);
            }
            ck_assert_int_eq(ew_run(rows[k].kernel, (dt_dtype)dtype, 1, out, 2, in), DT_OK);
            for (int64_t i = 0; i < n; i++)
                ck_assert_msg(*ew_at(out, i) == rows[k].table[i & 3] - '0', "%s",
                              rows[k].kernel->name);
            for (int j = 0; j < 2; j++) dt_tensor_release(in[j]);
            dt_tensor_release(out);
        }
    }
}
END_TEST

START_TEST(nan_and_infinity_tests) {
    static const double values[] = {0, 1.5, INFINITY, -INFINITY, NAN};
    static const struct {
        const dt_kernel *kernel;
        const char *table;
    } rows[] = {{&dt_kernel_ew_isnan, "00001"},
                {&dt_kernel_ew_isinf, "00110"},
                {&dt_kernel_ew_isfinite, "11000"},
                {&dt_kernel_ew_logical_not, "10000"}};
    for (int f = 0; f < 4; f++) {
        dt_tensor *x = ew_vector(floats[f], 100), *out = ew_vector(DT_BOOL, 100);
        for (int i = 0; i < 100; i++) ew_set(x, i, values[i % 5]);
        for (int k = 0; k < 4; k++) {
            ck_assert_int_eq(ew_run(rows[k].kernel, floats[f], 1, out, 1, &x), DT_OK);
            for (int i = 0; i < 100; i++)
                ck_assert_int_eq(*ew_at(out, i), rows[k].table[i % 5] - '0');
        }
        dt_tensor_release(x);
        dt_tensor_release(out);
    }
}
END_TEST

/* ---- layouts -------------------------------------------------------------------------------- */

typedef struct layout {
    int rank;
    int64_t shape[4];
} layout;

static const layout layouts[] = {
    {0, {0}},        {1, {1}},          {1, {7}},          {1, {5000}},
    {2, {3, 0}},     {2, {40, 130}},    {2, {500, 3}},     {2, {130, 70}},
    {3, {5, 1, 70}}, {3, {2, 3, 4}},    {4, {3, 5, 7, 9}}, {4, {2, 40, 3, 33}},
    {2, {2, 1100}},  {3, {11, 2, 100}},
};
#define LAYOUTS ((int)(sizeof layouts / sizeof layouts[0]))

enum { PLAIN, SLICED, TURNED, EXPANDED, ONE, OFFSET, VARIANTS };

/* A tensor of the layout's shape whose memory is arranged in one of several ways. */
static dt_tensor *arranged(dt_dtype dtype, const layout *l, int variant, uint64_t seed) {
    int64_t shape[4], strides[4], big[4];
    memcpy(shape, l->shape, sizeof shape);
    int rank = l->rank;
    int64_t offset = 0, stride = 1;
    for (int d = rank - 1; d >= 0; d--) {
        big[d] = shape[d] * (variant == SLICED ? 2 + d % 2 : 1) + (variant == OFFSET ? 3 : 0);
        strides[d] = stride * (variant == SLICED ? 2 + d % 2 : 1);
        stride *= big[d];
    }
    if (variant == OFFSET && rank > 0) offset = 1;
    if (variant == TURNED) {
        stride = 1;
        for (int d = 0; d < rank; d++) {
            strides[d] = stride;
            stride *= shape[d];
        }
    }
    int64_t room = stride + offset;
    if (variant == EXPANDED)
        for (int d = 0; d < rank; d += 2) strides[d] = 0;
    if (variant == ONE)
        for (int d = 0; d < rank; d++) strides[d] = 0;
    dt_tensor *base = ew_vector(dtype, room);
    ew_fill_random(base, seed);
    dt_tensor *t = ew_view(base, rank, shape, strides, offset);
    dt_tensor_release(base);
    return t;
}

static void check_sum(const dt_tensor *a, const dt_tensor *b, const dt_tensor *out) {
    for (int64_t i = 0; i < out->numel; i++) {
        float want = (float)ew_get(a, i) + (float)ew_get(b, i);
        double got = ew_get(out, i);
        ck_assert_msg(got == want || (isnan(got) && isnan(want)), "element %lld: %g, not %g",
                      (long long)i, got, want);
    }
}

START_TEST(layouts_of_add) {
    const layout *l = &layouts[_i];
    static const int parts[] = {1, 2, 7}, outputs[] = {PLAIN, SLICED, TURNED, OFFSET};
    for (int va = 0; va < VARIANTS; va++) {
        for (int vb = 0; vb < VARIANTS; vb++) {
            for (int pick = 0; pick < 2; pick++) { /* two of the outputs for each pair */
                int vo = outputs[(va * VARIANTS + vb + va / 2 + pick) % 4];
                dt_tensor *in[2] = {arranged(DT_F32, l, va, 1), arranged(DT_F32, l, vb, 2)};
                dt_tensor *out = arranged(DT_F32, l, vo, 3);
                int count = parts[(va + vb + vo) % 3];
                ck_assert_int_eq(ew_run(&dt_kernel_ew_add, DT_F32, count, out, 2, in), DT_OK);
                check_sum(in[0], in[1], out);
                for (int k = 0; k < 2; k++) dt_tensor_release(in[k]);
                dt_tensor_release(out);
            }
        }
    }
}
END_TEST

/* u8 + f32 in f32, written as i16 (cut off) in another order of dims. */
START_TEST(layouts_with_casts) {
    const layout *l = &layouts[_i];
    for (int variant = 0; variant < VARIANTS; variant++) {
        dt_tensor *in[2] = {arranged(DT_U8, l, variant, 1), arranged(DT_F32, l, PLAIN, 2)};
        int vo = variant == EXPANDED || variant == ONE ? PLAIN : variant;
        dt_tensor *out = arranged(DT_I16, l, vo, 3);
        for (int64_t i = 0; i < in[1]->numel; i++)
            if (!isfinite(ew_get(in[1], i))) ew_set(in[1], i, 1.75);
        ck_assert_int_eq(ew_run(&dt_kernel_ew_sub, DT_F32, 3, out, 2, in), DT_OK);
        for (int64_t i = 0; i < out->numel; i++)
            ck_assert_int_eq(ew_get_int(out, i),
                             (int64_t)((float)ew_get(in[0], i) - (float)ew_get(in[1], i)));
        for (int k = 0; k < 2; k++) dt_tensor_release(in[k]);
        dt_tensor_release(out);
    }
}
END_TEST

START_TEST(layouts_of_where) {
    const layout *l = &layouts[_i];
    for (int dtype = 0; dtype < DT_DTYPE_COUNT; dtype++) {
        for (int variant = 0; variant < VARIANTS; variant++) {
            dt_dtype t = (dt_dtype)dtype;
            dt_tensor *in[3] = {arranged(DT_BOOL, l, variant, 1), arranged(t, l, PLAIN, 2),
                                arranged(t, l, TURNED, 4)};
            dt_tensor *out = arranged(t, l, variant == TURNED ? TURNED : PLAIN, 3);
            ck_assert_int_eq(ew_run(&dt_kernel_ew_where, t, 2, out, 3, in), DT_OK);
            for (int64_t i = 0; i < out->numel; i++)
                ck_assert_mem_eq(ew_at(out, i), ew_at(in[*ew_at(in[0], i) ? 1 : 2], i),
                                 dt_dtype_size(t));
            for (int k = 0; k < 3; k++) dt_tensor_release(in[k]);
            dt_tensor_release(out);
        }
    }
}
END_TEST

/* out is one of the inputs: contiguous, strided, of another dtype than the expression. */
START_TEST(in_place) {
    const layout *l = &layouts[_i];
    static const int variants[] = {PLAIN, SLICED, TURNED, OFFSET};
    for (int k = 0; k < 4; k++) {
        dt_tensor *x = arranged(DT_F32, l, variants[k], 1),
                  *was = arranged(DT_F32, l, variants[k], 1);
        dt_tensor *y = arranged(DT_F32, l, EXPANDED, 2);
        ck_assert_int_eq(ew_run(&dt_kernel_ew_add, DT_F32, 3, x, 2, (dt_tensor *[]){x, y}), DT_OK);
        check_sum(was, y, x);
        dt_tensor_release(x);
        x = arranged(DT_F32, l, variants[k], 1);
        ck_assert_int_eq(ew_run(&dt_kernel_ew_lt, DT_F32, 1, x, 2, (dt_tensor *[]){x, y}), DT_OK);
        for (int64_t i = 0; i < x->numel; i++)
            ck_assert_double_eq(ew_get(x, i), ew_get(was, i) < ew_get(y, i));
        dt_tensor_release(x);
        dt_tensor_release(was);
        dt_tensor_release(y);
    }
}
END_TEST

/* ---- one element, one result ---------------------------------------------------------------- */

static bool same_value(dt_dtype dtype, const void *a, const void *b) {
    if (!memcmp(a, b, dt_dtype_size(dtype))) return true;
    if (!dt_dtype_is_float(dtype)) return false;
    return isnan(dt_scalar_load(dtype, a).f) && isnan(dt_scalar_load(dtype, b).f);
}

static void run_kernel(int k, dt_dtype dtype, dt_tensor *out, dt_tensor *const *in) {
    ew_case c = ew_case_new(kernels[k].kernel, dtype, out, kernels[k].nin, in);
    c.call.params.f[0] = 1.25;
    c.call.params.f[1] = 3;
    c.call.params.i[1] = 3;
    dt_status status = ew_case_run(&c);
    if (status == DT_E_NOT_IMPLEMENTED) status = DT_OK; /* a dtype that the row leaves out */
    ck_assert_msg(status == DT_OK, "%s: %s", kernels[k].kernel->name, dt_error_text());
    dt_call_fini(&c.call);
}

static void no_zeros(dt_tensor *t) {
    for (int64_t i = 0; i < t->numel; i++)
        if (!dt_dtype_is_float((dt_dtype)t->dtype) && ew_get_int(t, i) == 0) ew_set_int(t, i, 3);
}

/* Every kernel, dtype and instruction set; and each short stretch, which runs in tails, against the
 * whole, which runs in vectors. */
START_TEST(bits_depend_on_operands_alone) {
    const int64_t n = 150;
    dt_dtype t = (dt_dtype)_i;
    dt_tensor *in[3], *whole = ew_vector(t, n), *other = ew_vector(t, n);
    for (int k = 0; k < 3; k++) {
        in[k] = ew_vector(t, n);
        ew_fill_random(in[k], 10 + (uint64_t)k);
    }
    no_zeros(in[1]);
    for (int k = 0; k < KERNELS; k++) {
        ck_assert_int_eq(dt_cpu_select("base"), DT_OK);
        run_kernel(k, t, whole, in);
        for (int level = 0; level < ew_level_count(); level++) {
            ck_assert_int_eq(dt_cpu_select(ew_levels[level]), DT_OK);
            for (int64_t length = n; length > 0; length = length == n ? 37 : length - 9) {
                for (int64_t at = 0; at + length <= n; at += 29) {
                    dt_tensor *view[3], *out = ew_view(other, 1, &length, &(int64_t){1}, at);
                    for (int j = 0; j < 3; j++)
                        view[j] = ew_view(in[j], 1, &length, &(int64_t){1}, at);
                    run_kernel(k, t, out, view);
                    for (int64_t i = 0; i < length; i++)
                        ck_assert_msg(same_value(t, ew_at(out, i), ew_at(whole, at + i)),
                                      "%s %s %s: element %lld of [%lld, %lld): %a, not %a",
                                      kernels[k].kernel->name, dt_dtype_table[t].name,
                                      ew_levels[level], (long long)i, (long long)at,
                                      (long long)(at + length), ew_get(out, i),
                                      ew_get(whole, at + i));
                    for (int j = 0; j < 3; j++) dt_tensor_release(view[j]);
                    dt_tensor_release(out);
                }
            }
        }
    }
    for (int k = 0; k < 3; k++) dt_tensor_release(in[k]);
    dt_tensor_release(whole);
    dt_tensor_release(other);
}
END_TEST

/* An operand as a number, as an expanded element and as a full tensor gives the same. */
START_TEST(steps_do_not_matter) {
    const int64_t n = 70, zero = 0;
    for (int k = 0; k < KERNELS; k++) {
        if (kernels[k].nin == 1 || kernels[k].kernel == &dt_kernel_ew_pow) continue;
        for (int mask = 1; mask < 1 << kernels[k].nin; mask++) {
            dt_tensor *full[3], *mixed[3], *out[2] = {ew_vector(DT_F32, n), ew_vector(DT_F32, n)};
            for (int j = 0; j < 3; j++) {
                full[j] = ew_vector(DT_F32, n);
                ew_fill_random(full[j], 20 + (uint64_t)j);
                mixed[j] = dt_tensor_retain(full[j]);
                if (!(mask >> j & 1)) continue;
                for (int64_t i = 1; i < n; i++) ew_set(full[j], i, ew_get(full[j], 0));
                dt_tensor_release(mixed[j]);
                mixed[j] = ew_view(full[j], 1, &n, &zero, 0);
            }
            run_kernel(k, DT_F32, out[0], full);
            run_kernel(k, DT_F32, out[1], mixed);
            for (int64_t i = 0; i < n; i++)
                ck_assert_msg(same_value(DT_F32, ew_at(out[0], i), ew_at(out[1], i)), "%s mask %d",
                              kernels[k].kernel->name, mask);
            for (int j = 0; j < 3; j++) {
                dt_tensor_release(full[j]);
                dt_tensor_release(mixed[j]);
            }
            dt_tensor_release(out[0]);
            dt_tensor_release(out[1]);
        }
    }
}
END_TEST

/* ---- the family, costs ---------------------------------------------------------------------- */

START_TEST(family_gives_tiles) {
    static const dt_kernel *table[DT_OP_COUNT];
    static const dt_device_ops device = {.type = "cpu", .kernels = table};
    table[DT_OP_add] = &dt_kernel_ew_add;
    table[DT_OP_lt] = &dt_kernel_ew_lt;
    dt_device_register_cpu(&device);
    dt_dtype out;
    float x[5] = {1, 2, 3, 4, 5}, y = 10, z[5];
    const void *in[2] = {x, &y};
    const int64_t step[2] = {1, 0};
    static const dt_params none;
    dt_ew_tile tile = dt_ew_tile_lookup(DT_OP_add, DT_F32, &out);
    ck_assert_ptr_nonnull(tile);
    ck_assert_int_eq(out, DT_F32);
    tile(5, z, in, step, &none);
    for (int i = 0; i < 5; i++) ck_assert_float_eq(z[i], x[i] + 10);
    ck_assert_ptr_nonnull(dt_ew_tile_lookup(DT_OP_lt, DT_F64, &out));
    ck_assert_int_eq(out, DT_BOOL);
    ck_assert_ptr_null(dt_ew_tile_lookup(DT_OP_add, DT_F16, &out));
    ck_assert_ptr_null(dt_ew_tile_lookup(DT_OP_mul, DT_F32, &out));
}
END_TEST

START_TEST(costs_and_parts) {
    for (int k = 0; k < KERNELS; k++) {
        double before = 0;
        for (int64_t n = 4; n <= 4000000; n *= 1000) {
            dt_tensor *x = NULL;
            ck_assert_int_eq(dt_tensor_new(DT_F32, 1, &n, &x), DT_OK);
            dt_tensor *in[3] = {x, x, x};
            ew_case c = ew_case_new(kernels[k].kernel, DT_F32, x, kernels[k].nin, in);
            c.call.operands = c.call.operands_inline;
            double cost = c.call.kernel->cost_ns(&c.call);
            ck_assert(cost > before);
            ck_assert(n > 4 || cost < 5000);
            int parts = c.call.kernel->parts(&c.call, 8);
            ck_assert_int_eq(c.call.kernel->parts(&c.call, 1), 1);
            if (n == 4) ck_assert_int_eq(parts, 1);
            if (n == 4000000) ck_assert(parts > 1 && parts <= 64 && (parts <= 8 || parts % 8 == 0));
            before = cost;
            dt_call_fini(&c.call);
            dt_tensor_release(x);
        }
    }
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("elementwise");
    TCase *values = tcase_create("values");
    tcase_add_loop_test(values, unary_values, 0, 4);
    tcase_add_loop_test(values, binary_values, 0, 4);
    tcase_add_loop_test(values, integer_values, 0, 5);
    tcase_add_loop_test(values, integer_division_by_zero, 0, 5);
    suite_add_tcase(s, values);
    TEST_CASE(s, "rules", parameters_and_three_operands, numbers_beside_halves,
              halves_round_quotients, halves_round_other_dtypes, refused, bools_and_comparisons,
              nan_and_infinity_tests, family_gives_tiles, costs_and_parts);
    TCase *shapes = tcase_create("layouts");
    tcase_add_loop_test(shapes, layouts_of_add, 0, LAYOUTS);
    tcase_add_loop_test(shapes, layouts_with_casts, 0, LAYOUTS);
    tcase_add_loop_test(shapes, layouts_of_where, 0, LAYOUTS);
    tcase_add_loop_test(shapes, in_place, 0, LAYOUTS);
    suite_add_tcase(s, shapes);
    TCase *bits = tcase_create("bits");
    tcase_add_loop_test(bits, bits_depend_on_operands_alone, 0, DT_DTYPE_COUNT);
    tcase_add_test(bits, steps_do_not_matter);
    suite_add_tcase(s, bits);
    return s;
}

int main(void) { return test_run(suite()); }
