/* Elementary functions on float that GCC turns into SIMD code.
 *
 * Each function is a scalar `static inline` without branches, calls or tables, so that a plain
 * loop over it vectorises at -O3 -fno-math-errno -fno-trapping-math for x86-64-v2, v3 and v4.
 * The file is included once for each ISA.
 *
 * M1: no FMA (-ffp-contract=off), one order of evaluation: an element has the same bits in the
 *     vector body, in the scalar tail and on every ISA.
 * M2: the sign and payload of a NaN are no exception. Where two NaNs could meet, which one wins
 *     would be up to the compiler's order of operands: such a function selects its NaN at the
 *     end.
 * M3: special values as in C99 Annex F; denormals are neither flushed nor lost.
 * M4: an argument is limited by dt__min_bits, not by a select on floats: GCC would follow the
 *     constant through the rest of the function and blend whole results.
 *
 * Coefficients come from scripts/fit_math.py by way of math_coef.h. The bounds in ulp are
 * measured on millions of arguments, not proven; tests/c/test_math.c asserts them against libm in
 * double.
 *
 * Names without the f suffix (math_double.h) are the same functions on double. */
#ifndef DT_KERNELS_CPU_SIMD_MATH_H
#define DT_KERNELS_CPU_SIMD_MATH_H

#include "math_base.h"
#include "math_coef.h"

#define DT_LOG2E 1.44269504f
#define DT_LN2 0.693147181f
#define DT_LN2_HI 0.693145752f     /* 16 bits: n * DT_LN2_HI is exact for |n| < 256 */
#define DT_LN2_LO 1.42860682e-6f   /* ln2 - DT_LN2_HI */
#define DT_PI_2_HI 1.57079637f     /* pi/2 rounded to float */
#define DT_PI_2_LO -4.37113883e-8f /* pi/2 - DT_PI_2_HI */

/* ---- exponentials ---- */

/* x = n ln2 + r + lo with |r| <= ln2/2, for |at| < 1000. n is taken from `at`, which is x within
 * its limits: a NaN, and an x beyond them, then still show in r. */
DT_MATH float dt__exp_reduce(float x, float at, int32_t *n, float *lo) {
    float k = dt__nearest(at * DT_LOG2E, n);
    float hi = x - k * DT_LN2_HI;
    float cut = k * DT_LN2_LO;
    float r = hi - cut;
    *lo = (hi - r) - cut;
    return r;
}

/* exp(r) for |r| <= ln2/2; inf at inf. */
DT_MATH float dt__exp_poly(float r) { return 1.0f + (r + r * r * dt__poly_exp(r)); }

/* p * 2^n for n in [-252, 254]: two factors, so that a denormal result is rounded once. */
DT_MATH float dt__scale(float p, int32_t n) {
    int32_t half = n >> 1;
    return p * dt__exp2i(half) * dt__exp2i(n - half);
}

/* exp(x) = 2^n exp(r), with a polynomial of degree 6 for exp(r). Above 90 n stays and r grows:
 * both are large enough for inf. At most 1.1 ulp. */
DT_MATH float dt_expf(float x) {
    int32_t n;
    float lo;
    float c = x < -105.0f ? -105.0f : x;
    float r = dt__exp_reduce(c, dt__min_bits(c, 90.0f), &n, &lo);
    return dt__scale(dt__exp_poly(r), n);
}

/* exp(-a) for a >= 0. */
DT_MATH float dt__exp_negative(float a) {
    int32_t n;
    float lo;
    float r = dt__exp_reduce(-a, -dt__min_bits(a, 105.0f), &n, &lo);
    float y = dt__scale(dt__exp_poly(r), n);
    return a > 105.0f ? 0.0f : y;
}

/* exp(-a) for 0 <= a < 87, where no denormal comes up. */
DT_MATH float dt__exp_negative_normal(float a) {
    int32_t n;
    float lo;
    float r = dt__exp_reduce(-a, -a, &n, &lo);
    return dt__exp_poly(r) * dt__exp2i(n);
}

/* exp(a) / 2 for a >= 0. */
DT_MATH float dt__exp_half(float a) {
    int32_t n;
    float lo;
    float r = dt__exp_reduce(a, dt__min_bits(a, 90.0f), &n, &lo);
    return dt__scale(dt__exp_poly(r), n - 1);
}

/* 2^x: x - rint(x) is exact. At most 1.2 ulp. */
DT_MATH float dt_exp2f(float x) {
    int32_t n;
    float c = x < -152.0f ? -152.0f : x;
    float r = c - dt__nearest(dt__min_bits(c, 130.0f), &n);
    return dt__scale(1.0f + (r * DT_LN2 + r * r * dt__poly_exp2(r)), n);
}

/* exp(x) - 1 = (2^n - 1 + 2^n r) + 2^n (r^2 Q(r) + lo), where the rounding error of the first
 * sum is known exactly (|2^n r| < |2^n - 1| unless n = 0, and then the sum is r) and goes into
 * the second. At most 1.4 ulp. */
DT_MATH float dt_expm1f(float x) {
    int32_t n;
    float lo;
    float c = dt__min_bits(x < -30.0f ? -30.0f : x, 90.0f);
    float r = dt__exp_reduce(c, c, &n, &lo);
    int32_t top = n > 127 ? 127 : n; /* 2^128 is not a float: the last doubling comes at the end */
    float s = dt__exp2i(top);
    float rest = r * r * dt__poly_expm1(r) + lo;
    float base = s - 1.0f;
    float sum = base + s * r;
    float err = s * r - (sum - base);
    float y = sum + (err + s * rest);
    /* For n > 128 the factor is too small, but the product is inf all the same. */
    y = y * (float)(n - top + 1);
    return dt__abs(x) > 0.0f ? y : x + x;
}

/* ---- logarithms ---- */

/* x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); for normal x > 0. */
DT_MATH float dt__log_reduce_normal(float x, int32_t *e) {
    const int32_t root = 0x3f3504f3; /* sqrt(1/2) */
    int32_t i = (int32_t)((uint32_t)dt__bits(x) - (uint32_t)root);
    *e = i >> 23;
    return dt__float((i & 0x007fffff) + root) - 1.0f;
}

/* The same for any finite x > 0: denormals are scaled first. For other x the parts are finite
 * and mean nothing. */
DT_MATH float dt__log_reduce(float x, float *e) {
    int32_t i;
    int32_t tiny = dt__mask(dt__bits(x) < 0x00800000);
    float scaled = x * 8388608.0f;
    float f = dt__log_reduce_normal(dt__select(tiny, scaled, x), &i);
    *e = (float)(i - (23 & tiny));
    return f;
}

/* What is added to a logarithm that knows no special values: inf and NaN as they are, -inf at 0,
 * NaN below. One sum of masks instead of selects, which GCC would make copies of the whole
 * function for. */
DT_MATH float dt__log_special(float x, float y) {
    int32_t add = dt__bits(x) & dt__mask(!(x < DT_INF));
    add |= dt__bits(-DT_INF) & dt__mask(x <= 0.0f);
    add |= dt__mask(x < 0.0f);
    return y + dt__float(add);
}

/* e ln2 + log(1 + f). The parts are summed from small to large; e DT_LN2_HI is exact. */
DT_MATH float dt__log_sum(float e, float f) {
    float half = 0.5f * f * f;
    float rest = f * f * f * dt__poly_log(f) + e * DT_LN2_LO;
    return e * DT_LN2_HI + (f + (rest - half));
}

/* At most 1 ulp. */
DT_MATH float dt_logf(float x) {
    float e;
    float f = dt__log_reduce(x, &e);
    return dt__log_special(x, dt__log_sum(e, f));
}

/* log2(1 + f) = f/ln2 + f^2 P(f). f and 1/ln2 are cut into 12 leading bits, whose product is
 * exact, and the rest. At most 1.4 ulp. */
DT_MATH float dt_log2f(float x) {
    const float c_hi = 1.442382812f, c_lo = 3.122284889e-4f; /* 1/ln2 */
    float e;
    float f = dt__log_reduce(x, &e);
    float hi = dt__float(dt__bits(f) & ~0xfff);
    float rest = (f - hi) * c_hi + f * c_lo + f * f * dt__poly_log2(f);
    return dt__log_special(x, e + (hi * c_hi + rest));
}

/* As log2, with the exponent times log10(2) in two parts. At most 1.1 ulp. */
DT_MATH float dt_log10f(float x) {
    const float c_hi = 0.434326172f, c_lo = -3.16899717e-5f; /* 1/ln10 */
    const float e_hi = 0.301025391f, e_lo = 4.605038981e-6f; /* log10(2) */
    float e;
    float f = dt__log_reduce(x, &e);
    float hi = dt__float(dt__bits(f) & ~0xfff);
    float rest = (f - hi) * c_hi + f * c_lo + (f * f * dt__poly_log10(f) + e * e_lo);
    return dt__log_special(x, e * e_hi + (hi * c_hi + rest));
}

/* log(1 + x) = log(u) + lost / u, where u = 1 + x is rounded and `lost` is what it lost. It is
 * added, scaled, to the reduced argument; for e = 0 that gives x. */
DT_MATH float dt__log1p_parts(float u, float lost) {
    int32_t e;
    float f = dt__log_reduce_normal(u, &e);
    /* 2^-e; for the largest u, where nothing that matters was lost, it is 0. */
    int32_t back = e < 127 ? 127 - e : 0;
    f = f + lost * dt__float((int32_t)((uint32_t)back << 23));
    return dt__log_sum((float)e, f);
}

/* For finite x > -1. */
DT_MATH float dt__log1p_core(float x) {
    float u = 1.0f + x;
    float big = x > 1.0f ? x : 1.0f;
    float small = x > 1.0f ? 1.0f : x;
    return dt__log1p_parts(u, small - (u - big));
}

/* For 0 <= x <= 1. */
DT_MATH float dt__log1p_unit(float x) {
    float u = 1.0f + x;
    return dt__log1p_parts(u, x - (u - 1.0f));
}

/* At most 1.5 ulp. */
DT_MATH float dt_log1pf(float x) {
    float low = x < -1.0f ? DT_NAN : -DT_INF;
    float y = dt__log1p_core(x);
    y = x < DT_INF ? y : x + x;
    y = x <= -1.0f ? low : y;
    return x == 0.0f ? x : y;
}

/* ---- trigonometric functions ---- */

/* x = (pi/2) n + 2 pi t, |t| <= 1/8, n modulo 4; returns t. A float x >= 2^(24 + e) is a
 * multiple of 2^e, so that whole turns can be taken out of 2^e / (2 pi) beforehand (Payne and
 * Hanek's idea). Three rows of constants cover all floats; a table by exponent would be a
 * gather, which GCC 12 does not make here. x hi and x mid are exact in double, and so is what is
 * left of them without whole turns. The error in t is below 2^-54, and a small t, which no float
 * beyond denormals brings below 2^-33, has much less. Needs doubles: floats would take seven
 * parts for |x| < 1e5 alone. */
DT_MATH double dt__trig_reduce(float x, int32_t *n) {
    double d = (double)x;
    double a = __builtin_fabs(d);
    double hi = a < 0x1p59 ? DT_TURN_HI_0 : DT_TURN_HI_35;
    double mid = a < 0x1p59 ? DT_TURN_MID_0 : DT_TURN_MID_35;
    double lo = a < 0x1p59 ? DT_TURN_LO_0 : DT_TURN_LO_35;
    hi = a < 0x1p94 ? hi : DT_TURN_HI_70;
    mid = a < 0x1p94 ? mid : DT_TURN_MID_70;
    lo = a < 0x1p94 ? lo : DT_TURN_LO_70;
    double p = d * hi;
    double q = d * mid;
    p = p - __builtin_rint(p);
    q = q - __builtin_rint(q);
    double rest = d * lo;
    const double magic =
        1688849860263936.0; /* 1.5 * 2^50: as in dt__nearest64, but to the nearest quarter */
    double sum = ((p + q) + rest) + magic;
    *n = (int32_t)(uint32_t)(uint64_t)dt__bits64(sum);
    return ((p - (sum - magic)) + q) + rest;
}

DT_MATH double dt__sin_poly(double r) {
    double z = r * r;
    return r * (1.0 + z * dt__poly_sin(z));
}

DT_MATH double dt__cos_poly(double r) {
    double z = r * r;
    return 1.0 + z * dt__poly_cos(z);
}

/* sin((pi/2) n + 2 pi t): a polynomial in double, rounded once; the quadrant is chosen on
 * floats. */
DT_MATH float dt__sin_quadrant(int32_t n, double t) {
    double r = t * 6.283185307179586;
    float s = (float)dt__sin_poly(r);
    float c = (float)dt__cos_poly(r);
    float y = (n & 1) != 0 ? c : s;
    return dt__float(dt__bits(y) ^ (int32_t)((uint32_t)(n & 2) << 30));
}

/* NaN at inf. At most 0.6 ulp. */
DT_MATH float dt_sinf(float x) {
    int32_t n;
    double t = dt__trig_reduce(x, &n);
    float y = dt__sin_quadrant(n, t);
    y = x == 0.0f ? x : y;
    return dt__abs(x) < DT_INF ? y : x - x;
}

/* At most 0.6 ulp. */
DT_MATH float dt_cosf(float x) {
    int32_t n;
    double t = dt__trig_reduce(x, &n);
    float y = dt__sin_quadrant(n + 1, t);
    return dt__abs(x) < DT_INF ? y : x - x;
}

/* sin/cos or -cos/sin, divided in double. At most 0.6 ulp. */
DT_MATH float dt_tanf(float x) {
    int32_t n;
    double t = dt__trig_reduce(x, &n);
    double r = t * 6.283185307179586;
    double s = dt__sin_poly(r);
    double c = dt__cos_poly(r);
    int64_t odd = -(int64_t)(n & 1);
    int64_t sb = dt__bits64(s), cb = dt__bits64(c);
    double num = dt__double((sb & ~odd) | (cb & odd));
    double den = dt__double((cb & ~odd) | (sb & odd));
    float y = (float)(num / den);
    y = dt__float(dt__bits(y) ^ (int32_t)((uint32_t)n << 31));
    y = x == 0.0f ? x : y;
    return dt__abs(x) < DT_INF ? y : x - x;
}

/* ---- inverse trigonometric functions ---- */

/* Up to 9/16 the odd polynomial; beyond, asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)), with a root
 * below 1/2, so that the doubled error is small against the result. At most 1.5 ulp. */
DT_MATH float dt_asinf(float x) {
    float a = dt__abs(x);
    int32_t far = a > 0.5625f;
    float half = 0.5f * (1.0f - a);
    float t = far ? dt_sqrtf(half) : a;
    float z = far ? half : a * a;
    float p = t + t * z * dt__poly_asin(z);
    float y = far ? DT_PI_2_HI - (2.0f * p - DT_PI_2_LO) : p;
    return dt__copysign(y, x);
}

/* acos(x) = pi/2 - asin(x) up to 9/16; 2 asin(sqrt((1 - x) / 2)) beyond, and pi minus that on
 * the left. At most 1.3 ulp. */
DT_MATH float dt_acosf(float x) {
    float a = dt__abs(x);
    int32_t far = a > 0.5625f;
    float half = 0.5f * (1.0f - a);
    float t = far ? dt_sqrtf(half) : x;
    float z = far ? half : x * x;
    float rest = t * z * dt__poly_asin(z);
    float near_y = DT_PI_2_HI - (t - (DT_PI_2_LO - rest));
    float right = 2.0f * (t + rest);
    float left = 2.0f * (DT_PI_2_HI - (t + (rest - DT_PI_2_LO)));
    float y = x < 0.0f ? left : right;
    return far ? y : near_y;
}

/* atan(t) for 0 <= t <= 1. */
DT_MATH float dt__atan_unit(float t) {
    float z = t * t;
    return t + t * z * dt__poly_atan(z);
}

/* Above 1, pi/2 - atan(1/x). At most 1.7 ulp. */
DT_MATH float dt_atanf(float x) {
    float a = dt__abs(x);
    int32_t far = a > 1.0f;
    float p = dt__atan_unit(far ? 1.0f / a : a);
    float y = far ? DT_PI_2_HI - (p - DT_PI_2_LO) : p;
    return dt__copysign(y, x);
}

/* The angle of the smaller over the larger of |y|, |x|, reflected into the right octant.
 * At most 1.8 ulp. */
DT_MATH float dt_atan2f(float y, float x) {
    float ay = dt__abs(y), ax = dt__abs(x);
    int32_t steep = ay > ax;
    float num = steep ? ax : ay;
    float den = steep ? ay : ax;
    float t = num / den;
    t = den == 0.0f ? 0.0f : t;
    t = num == DT_INF ? 1.0f : t;
    float p = dt__atan_unit(t);
    p = steep ? DT_PI_2_HI - (p - DT_PI_2_LO) : p;
    p = dt__bits(x) < 0 ? 2.0f * DT_PI_2_HI - (p - 2.0f * DT_PI_2_LO) : p;
    p = dt__copysign(p, y);
    p = y != y ? y + y : p;
    return x != x ? x + x : p;
}

/* ---- hyperbolic functions ---- */

/* Up to 0.82 the odd polynomial; beyond, 1 - 2 / (exp(2x) + 1). At most 1.3 ulp. */
DT_MATH float dt_tanhf(float x) {
    float a = dt__abs(x);
    float z = a * a;
    float p = a + a * z * dt__poly_tanh(z);
    float c = 2.0f * dt__min_bits(a, 10.0f);
    int32_t n;
    float lo;
    float r = dt__exp_reduce(c, c, &n, &lo);
    float s = dt__exp2i(n);
    float e = (s + 1.0f) + s * (r + r * r * dt__poly_exp(r)); /* exp(c) + 1 */
    float q = 1.0f - 2.0f / e;
    float y = a > 0.82f ? q : p;
    return dt__copysign(y, x);
}

/* Up to 1 the odd polynomial; beyond, (exp(x) - exp(-x)) / 2, halved inside exp so that it does
 * not overflow early. At most 1.8 ulp. */
DT_MATH float dt_sinhf(float x) {
    float a = dt__abs(x);
    float z = a * a;
    float p = a + a * z * dt__poly_sinh(z);
    float h = dt__exp_half(a);
    float q = h - 0.25f / h;
    float y = a > 1.0f ? q : p;
    return dt__copysign(y, x);
}

/* At most 1.6 ulp. */
DT_MATH float dt_coshf(float x) {
    float h = dt__exp_half(dt__abs(x));
    return h + 0.25f / h;
}

/* Up to 1/2 the odd polynomial; beyond, log1p(a + a^2 / (1 + sqrt(a^2 + 1))), for large a log(a)
 * + ln2. At most 2 ulp. */
DT_MATH float dt_asinhf(float x) {
    float a = dt__abs(x);
    float z = a * a;
    float p = a + a * z * dt__poly_asinh(z);
    int32_t huge = a > 1e9f;
    float q = dt__log1p_core(huge ? 0.5f * a : a + z / (1.0f + dt_sqrtf(z + 1.0f)));
    q = huge ? q + 2.0f * DT_LN2 : q;
    float y = a > 0.5f ? q : p;
    y = a == DT_INF ? a : y;
    y = a != a ? a + a : y;
    return dt__copysign(y, x);
}

/* log1p(t + sqrt(2t + t^2)) with t = x - 1; for large x log(x) + ln2. At most 2 ulp. */
DT_MATH float dt_acoshf(float x) {
    float t = x - 1.0f;
    int32_t huge = x > 1e9f;
    float y = dt__log1p_core(huge ? 0.5f * x : t + dt_sqrtf(t + t + t * t));
    y = huge ? y + 2.0f * DT_LN2 : y;
    y = x == DT_INF ? x : y;
    y = x < 1.0f ? DT_NAN : y;
    return x != x ? x + x : y;
}

/* Up to 1/2 the odd polynomial; beyond, log1p(2a / (1 - a)) / 2. At most 1.3 ulp. */
DT_MATH float dt_atanhf(float x) {
    float a = dt__abs(x);
    float z = a * a;
    float p = a + a * z * dt__poly_atanh(z);
    float q = 0.5f * dt__log1p_core(2.0f * a / (1.0f - a));
    float y = a > 0.5f ? q : p;
    y = a == 1.0f ? DT_INF : y;
    y = a > 1.0f ? DT_NAN : y;
    y = a != a ? a + a : y;
    return dt__copysign(y, x);
}

/* ---- error functions ---- */

/* Up to 1, x + x P(x^2); beyond, 1 - exp(-T(x)), where T fits -log(erfc(x)) and only its
 * absolute error counts. At most 1.4 ulp. */
DT_MATH float dt_erff(float x) {
    float a = dt__abs(x);
    float p = a + a * dt__poly_erf(a * a);
    float c = dt__min_bits(a, 3.93f);
    float q = 1.0f - dt__exp_negative_normal(dt__poly_erf_tail(c));
    float y = a > 1.0f ? q : p;
    return dt__copysign(y, x);
}

/* exp(-x^2 scale) erfcx(t) for 0 <= x <= 15 with t^2 = x^2 scale <= 115 and scale 1 or 1/2. x^2
 * is cut into a leading part that is exact and a rest; erfcx(t) = u P(u - 1/2), u = 1 / (t + 1). */
DT_MATH float dt__erfc_core(float x, float t, float scale) {
    float cut = dt__float(dt__bits(x) & ~0xfff);
    float hi = cut * cut * scale;
    float rest = (x - cut) * (x + cut) * scale;
    int32_t n;
    float k = dt__nearest((hi + rest) * -DT_LOG2E, &n);
    float r = (-hi - k * DT_LN2_HI) - (rest + k * DT_LN2_LO);
    float u = 1.0f / (t + 1.0f);
    return dt__scale(dt__exp_poly(r) * (u * dt__poly_erfcx(u - 0.5f)), n);
}

/* From 1/2 up the scaled form, below -1/2 two minus that, and 1 - erf(x) between. At most 6 ulp. */
DT_MATH float dt_erfcf(float x) {
    float a = dt__abs(x);
    float c = dt__min_bits(a, 10.5f);
    float q = dt__erfc_core(c, c, 1.0f);
    float p = 1.0f - (x + x * dt__poly_erf(x * x));
    q = x < 0.0f ? 2.0f - q : q;
    return a >= 0.5f ? q : p;
}

/* ---- powers and roots ---- */

/* Two roundings. At most 1.5 ulp. */
DT_MATH float dt_rsqrtf(float x) { return 1.0f / dt_sqrtf(x); }

/* 2^(y log2(x)) in double for a finite a > 0 and any y: log2 by an atanh series to 2^-43 (a
 * ratio), exp2 to 2^-29, one rounding at the end. Doubles are needed: y log2(a) goes up to 150
 * and its absolute error is the result's relative one. */
DT_MATH float dt__pow_positive(float a, float y) {
    float e;
    double f = (double)dt__log_reduce(a, &e);
    double s = f / (2.0 + f);
    double log2_a = (double)e + s * dt__poly_pow_log(s * s);
    double t = (double)dt__copysign(dt__min_bits(dt__abs(y), 3e38f), y) * log2_a; /* 1^inf is 1 */
    t = t < -200.0 ? -200.0 : t;
    t = t > 200.0 ? 200.0 : t;
    const double magic =
        6755399441055744.0; /* as in dt__nearest64, but the integer goes right into the exponent */
    double sum = t + magic;
    uint64_t p = (uint64_t)dt__bits64(dt__poly_pow_exp(t - (sum - magic)));
    return (float)dt__double((int64_t)(p + ((uint64_t)dt__bits64(sum) << 52)));
}

/* At most 0.6 ulp. */
DT_MATH float dt_powf(float x, float y) {
    float a = dt__abs(x);
    float half = 0.5f * y;
    int32_t integer = y == dt_truncf(y);
    int32_t odd = half != dt_truncf(half); /* if y is an integer */
    int32_t sign = dt__bits(x) & INT32_MIN;
    float p = dt__pow_positive(a, y);
    float at_zero = y < 0.0f ? DT_INF : 0.0f;
    float at_inf = y < 0.0f ? 0.0f : DT_INF;
    p = a == 0.0f ? at_zero : p;
    p = a == DT_INF ? at_inf : p;
    float signed_p = dt__float(dt__bits(p) ^ sign);
    float flipped = odd ? signed_p : p;
    float other = x < 0.0f && a < DT_INF ? DT_NAN : p;
    p = integer ? flipped : other;
    p = x != x ? x + x : p;
    p = y != y ? y + y : p;
    p = y == 0.0f ? 1.0f : p;
    return x == 1.0f ? 1.0f : p;
}

/* ---- remainders ---- */

/* The exact remainder of x / y with the sign of x. x starts at 2^-252 of its size; ten times a
 * multiple of y is taken off and what is left grows by 2^28, so that every quotient is below
 * 2^29, every product has at most 53 bits and every difference is exact. The quotients come from
 * one reciprocal and may be off by one, which the next step repairs. */
DT_MATH float dt_fmodf(float x, float y) {
    double b = (double)dt__abs(y);
    double inverse = 1.0 / b;
    double r = (double)dt__abs(x) * 0x1p-252;
    int32_t unused;
#pragma GCC unroll 9
    for (int step = 0; step < 9; step++) {
        r = r - dt__nearest64(r * inverse, &unused) * b;
        r = r * 0x1p28;
    }
    r = r - dt__nearest64(r * inverse, &unused) * b;
    r = r < 0.0 ? r + b : r;
    float z = dt__copysign((float)r, x);
    z = dt__abs(y) == DT_INF ? x : z;
    z = dt__abs(x) == DT_INF ? DT_NAN : z;
    z = y == 0.0f ? DT_NAN : z;
    z = y != y ? y + y : z;
    return x != x ? x + x : z;
}

/* torch.remainder: the sign of y. */
DT_MATH float dt_remainderf_py(float x, float y) {
    float m = dt_fmodf(x, y);
    float moved = (y < 0.0f) != (m < 0.0f) ? m + y : m;
    return m == 0.0f ? m : moved;
}

/* torch.floor_divide: (x - remainder) / y, brought to the integer it stands for; x / y if y is
 * 0. */
DT_MATH float dt_floor_dividef(float x, float y) {
    float m = dt_fmodf(x, y);
    float d = (x - m) / y;
    float less = (y < 0.0f) != (m < 0.0f) ? d - 1.0f : d;
    d = m == 0.0f ? d : less;
    float whole = dt_floorf(d);
    float up = d - whole > 0.5f ? whole + 1.0f : whole;
    float quotient = x / y;
    float z = d == 0.0f ? dt__copysign(0.0f, quotient) : up;
    return y == 0.0f ? quotient : z;
}

/* ---- activations ---- */

/* 1 / (1 + exp(-x)), from exp(-|x|) so that small results keep their precision. At most 2.5 ulp. */
DT_MATH float dt_sigmoidf(float x) {
    float e = dt__exp_negative(dt__abs(x));
    float num = x < 0.0f ? e : 1.0f;
    return num / (1.0f + e);
}

/* x sigmoid(x); NaN at -inf, as torch. At most 3.5 ulp. */
DT_MATH float dt_siluf(float x) {
    float e = dt__exp_negative(dt__abs(x));
    float num = x < 0.0f ? x * e : x;
    return num / (1.0f + e);
}

/* x (1 + erf(x / sqrt(2))) / 2 = x - h for x > 0 and h below, h = x erfc(|x| / sqrt(2)) / 2: no
 * cancellation for x < 0. NaN at -inf, as torch. At most 6 ulp. */
DT_MATH float dt_geluf(float x) {
    float c = dt__min_bits(dt__abs(x), 15.0f);
    float finite = dt__min_bits(x, 1e30f);
    float h = 0.5f * finite * dt__erfc_core(c, c * 0.707106781f, 0.5f);
    return x <= 0.0f ? h : x - h;
}

/* x (1 + tanh(u)) / 2 = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3). The rounding of u
 * costs relative accuracy where exp(2u) is small: as many ulp as |2u|. At most 200 ulp. */
DT_MATH float dt_gelu_tanhf(float x) {
    float u2 = x * (1.59576912f + 0.0713548163f * (x * x));
    float e = dt__exp_negative(dt__abs(u2));
    float num = x < 0.0f ? x * e : x;
    return num / (1.0f + e);
}

/* log(1 + exp(beta x)) / beta, and x where beta x > threshold. At most 2 ulp. */
DT_MATH float dt_softplusf(float x, float beta, float threshold) {
    float z = x * beta;
    float positive = z > 0.0f ? z : 0.0f;
    float y = (positive + dt__log1p_unit(dt__exp_negative(dt__abs(z)))) / beta;
    y = z != z ? z : y;
    return z > threshold ? x : y;
}

/* log(sigmoid(x)) = min(x, 0) - log1p(exp(-|x|)). At most 2 ulp. */
DT_MATH float dt_logsigmoidf(float x) {
    float negative = x > 0.0f ? 0.0f : x; /* keeps NaN */
    return negative - dt__log1p_unit(dt__exp_negative(dt__abs(x)));
}

/* x tanh(log1p(exp(x))) = x w / (w + 2), w = e (e + 2), e = exp(x); for x > 20 that is x.
 * At most 4 ulp. */
DT_MATH float dt_mishf(float x) {
    float e = dt_expf(dt__min_bits(x, 20.0f));
    float w = e * (e + 2.0f);
    return x * (w / (w + 2.0f));
}

#endif
