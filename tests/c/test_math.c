/* Tests of kernels/cpu/simd/math.h and half.h.
 *
 * Accuracy: every function of one argument on every 4099th float (of all 2^32) and on special
 * values, those of two on pairs of such, against libm in double; the bound in ulp of each is in
 * math_list.inc. Bits: plain loops over the same functions, compiled for x86-64-v2, v3 and v4 at
 * all offsets and with a ragged tail, against one call for each element. Both in one pass. The
 * copies of the loops differ only in their target attribute. Run with an argument to print the
 * measured errors. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/simd/half.h"
#include "kernels/cpu/simd/math.h"
#include "kernels/cpu/simd/math_double.h"

enum { BLOCK = 1003, OFFSETS = 16, STRIDE = 4099, ISAS = 3 };

static bool print_errors;

/* ---- one call, and loops for each ISA ---- */

typedef float fn1(float);
typedef float fn2(float, float);
typedef double ref1(double);
typedef double ref2(double, double);
typedef void loop1(const float *x, float *z, size_t n);
typedef void loop2(const float *x, const float *y, float *z, size_t n);

static inline float softplus_1(float x) { return dt_softplusf(x, 1.0f, 20.0f); }
static inline float softplus_2(float x) { return dt_softplusf(x, 2.0f, 5.0f); }

#ifdef __x86_64__
#define ISA(name) target("arch=" name)
#else
#define ISA(name) /* one instruction set: the copies of a loop are the same */
#endif

#define LOOP1(name, isa, fn)                                                                       \
    __attribute__((noinline, ISA(isa))) static void name(const float *restrict x,                  \
                                                         float *restrict z, size_t n) {            \
        for (size_t i = 0; i < n; i++) z[i] = fn(x[i]);                                            \
    }
#define LOOP2(name, isa, fn)                                                                       \
    __attribute__((noinline, ISA(isa))) static void name(                                          \
        const float *restrict x, const float *restrict y, float *restrict z, size_t n) {           \
        for (size_t i = 0; i < n; i++) z[i] = fn(x[i], y[i]);                                      \
    }

#define F1(fn, ref, ulp, e_min)                                                                    \
    __attribute__((noinline, ISA("x86-64-v2"))) static float one_##fn(float x) { return fn(x); }   \
    LOOP1(v2_##fn, "x86-64-v2", fn) LOOP1(v3_##fn, "x86-64-v3", fn) LOOP1(v4_##fn, "x86-64-v4", fn)
#define F2(fn, ref, ulp, e_min)                                                                    \
    __attribute__((noinline, ISA("x86-64-v2"))) static float one_##fn(float x, float y) {          \
        return fn(x, y);                                                                           \
    }                                                                                              \
    LOOP2(v2_##fn, "x86-64-v2", fn) LOOP2(v3_##fn, "x86-64-v3", fn) LOOP2(v4_##fn, "x86-64-v4", fn)
#include "math_list.inc"
#undef F1
#undef F2

/* ---- references ---- */

static double ref_rsqrt(double x) { return 1 / sqrt(x); }
static double ref_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double ref_silu(double x) { return x / (1 + exp(-x)); }
static double ref_gelu(double x) { return x * (0.5 * erfc(-x * M_SQRT1_2)); }
static double ref_gelu_tanh(double x) {
    return x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
static double ref_softplus_1(double x) { return x > 20 ? x : log1p(exp(x)); }
static double ref_softplus_2(double x) { return 2 * x > 5 ? x : log1p(exp(2 * x)) / 2; }
static double ref_logsigmoid(double x) { return x < 0 ? x - log1p(exp(x)) : 0 - log1p(exp(-x)); }
static double ref_mish(double x) {
    double e = exp(x), w = e * (e + 2);
    return x > 40 ? x : x * (w / (w + 2));
}
static double ref_remainder(double x, double y) {
    float m = (float)fmod(x, y);
    return m != 0 && (y < 0) != (m < 0) ? m + (float)y : m;
}
static double ref_floor_divide(double x, double y) {
    float a = (float)x, b = (float)y;
    if (b == 0) return a / b;
    float m = (float)fmod(x, y), d = (a - m) / b;
    if (m != 0 && (b < 0) != (m < 0)) d -= 1;
    if (d == 0) return copysignf(0, a / b);
    float whole = floorf(d);
    return d - whole > 0.5f ? whole + 1 : whole;
}

typedef struct {
    const char *name;
    double ulp_max;
    int e_min;
    fn1 *one;
    ref1 *ref;
    loop1 *loop[ISAS];
    fn2 *one2;
    ref2 *ref2;
    loop2 *loop2[ISAS];
} Case;

static const Case cases[] = {
#define F1(fn, ref, ulp, e_min)                                                                    \
    {#fn, ulp, e_min, one_##fn, ref, {v2_##fn, v3_##fn, v4_##fn}, NULL, NULL, {NULL}},
#define F2(fn, ref, ulp, e_min)                                                                    \
    {#fn, ulp, e_min, NULL, NULL, {NULL}, one_##fn, ref, {v2_##fn, v3_##fn, v4_##fn}},
#include "math_list.inc"
#undef F1
#undef F2
};
enum { CASES = sizeof cases / sizeof *cases };

static bool cpu_has(int isa) {
#ifdef __x86_64__
    __builtin_cpu_init();
    if (isa == 0) return __builtin_cpu_supports("sse4.2");
    if (isa == 1) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512cd");
#else
    return isa == 0;
#endif
}

/* ---- comparing ---- */

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The distance of `got` from `want` in units in the last place of a float at `want`; infinity
 * counts as 2^128. A zero must have the sign of a zero. Below 2^e_min the units are those of
 * 2^e_min (-126: no more than denormals need). */
static double ulps(float got, double want, int e_min) {
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (want == 0 && got == 0) return !signbit(want) == !signbit(got) ? 0 : INFINITY;
    if (isinf(want)) return (double)got == want ? 0 : INFINITY;
    double g = isinf(got) ? copysign(0x1p128, got) : (double)got;
    double w = fabs(want) > 0x1p128 ? copysign(0x1p128, want) : want;
    int e = w == 0 ? e_min : ilogb(w);
    e = e < e_min ? e_min : (e > 127 ? 127 : e);
    return fabs(g - w) / ldexp(1, e - 23);
}

static const float specials[] = {
    0.0f,           -0.0f,         1.0f,          -1.0f,       2.0f,
    -2.0f,          0.5f,          -0.5f,         1.5f,        -1.5f,
    2.5f,           -2.5f,         3.0f,          -3.0f,       INFINITY,
    -INFINITY,      FLT_MAX,       -FLT_MAX,      FLT_MIN,     -FLT_MIN,
    0x1p-149f,      -0x1p-149f,    0x1.8p-127f,   88.72283f,   88.72284f,
    89.41598f,      89.41600f,     -87.33655f,    -103.97208f, -103.972084f,
    -104.0f,        127.99999f,    128.0f,        -149.5f,     -150.0f,
    0x1p23f,        0x1p24f,       0x1p25f,       -0x1p23f,    -0x1.000002p24f,
    8388609.0f,     16777215.0f,   0x1p59f,       0x1p94f,     1.5707964f,
    3.1415927f,     6.2831855f,    0.99999994f,   1.0000001f,  -0.99999994f,
    1e30f,          1e-30f,        0.82f,         0.25f,       0.70710677f,
    0.70710683f,    1.4142135f,    1.4142137f,    0.3465736f,  -0.3465736f,
    0x1.47d0fep34f, 0x1.f9cbe2p7f, 0x1.33333p13f, 33.0f,       -33.0f,
    0x1.fffffep22f, 4194303.5f,    0.49999997f,   10.1f,       9.2f,
};
enum { SPECIALS = sizeof specials / sizeof *specials };

static const uint32_t nan_bits[] = {0x7fc00000, 0xffc00000, 0x7f800001,
                                    0xff800001, 0x7fc12345, 0xffffffff};
enum { NANS = sizeof nan_bits / sizeof *nan_bits };

static float special(size_t i) {
    return i < SPECIALS ? specials[i] : float_of(nan_bits[i - SPECIALS]);
}

/* A fixed sequence of 32-bit numbers (Weyl sequence and a mixing function). */
static uint32_t random_bits(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)((z ^ (z >> 27)) * 0x94d049bb133111ebu >> 32);
}

typedef struct {
    float x[BLOCK + OFFSETS], y[BLOCK + OFFSETS], z[BLOCK + OFFSETS];
    float want[BLOCK];
    size_t offset, n;
    double worst;
    float worst_x, worst_y;
} Block;

/* Checks the inputs gathered in `b` and empties it; the next block starts at the next offset. No
 * ck_assert for each element: check writes to a pipe at each. */
static void flush(const Case *c, Block *b) {
    const float *x = b->x + b->offset, *y = b->y + b->offset;
    for (size_t i = 0; i < b->n; i++) {
        b->want[i] = c->one ? c->one(x[i]) : c->one2(x[i], y[i]);
        double ref = c->one ? c->ref((double)x[i]) : c->ref2((double)x[i], (double)y[i]);
        double err = ulps(b->want[i], ref, c->e_min);
        if (err > b->worst) b->worst = err, b->worst_x = x[i], b->worst_y = y[i];
        if (!(err <= c->ulp_max))
            ck_abort_msg("%s(%a, %a) = %a, not %a: %g ulp", c->name, (double)x[i],
                         c->one ? 0.0 : (double)y[i], (double)b->want[i], ref, err);
    }
    for (int isa = 0; isa < ISAS; isa++) {
        if (!cpu_has(isa)) continue;
        float *z = b->z + (b->offset + (size_t)isa) % OFFSETS;
        if (c->one)
            c->loop[isa](x, z, b->n);
        else
            c->loop2[isa](x, y, z, b->n);
        for (size_t i = 0; i < b->n; i++)
            if (bits_of(z[i]) != bits_of(b->want[i]))
                ck_abort_msg("%s(%a, %a): %08x in a loop for v%d, else %08x", c->name, (double)x[i],
                             (double)y[i], bits_of(z[i]), isa + 2, bits_of(b->want[i]));
    }
    b->offset = (b->offset + 1) % OFFSETS;
    b->n = 0;
}

static void add(const Case *c, Block *b, float x, float y) {
    b->x[b->offset + b->n] = x;
    b->y[b->offset + b->n] = y;
    if (++b->n == BLOCK) flush(c, b);
}

static void feed_one(const Case *c, Block *b) {
    for (size_t i = 0; i < SPECIALS + NANS; i++) add(c, b, special(i), 0);
    for (uint64_t i = 0; i < UINT64_C(1) << 32; i += STRIDE) add(c, b, float_of((uint32_t)i), 0);
    uint64_t seed = 1; /* and more where the functions are not trivial: sizes 2^-12 to 2^8 */
    for (int i = 0; i < 500000; i++) {
        uint32_t r = random_bits(&seed);
        add(c, b, float_of((r & 0x807fffff) | ((115 + (r >> 23) % 20) << 23)), 0);
    }
}

static void feed_two(const Case *c, Block *b) {
    for (size_t i = 0; i < SPECIALS + NANS; i++)
        for (size_t j = 0; j < SPECIALS + NANS; j++) add(c, b, special(i), special(j));
    uint64_t seed = 2;
    for (int i = 0; i < 600000; i++)
        add(c, b, float_of(random_bits(&seed)), float_of(random_bits(&seed)));
    for (int i = 0; i < 600000; i++) { /* sizes near 1, and small integers for y */
        uint32_t r = random_bits(&seed), s = random_bits(&seed);
        float x = float_of((r & 0x807fffff) | ((120 + (r >> 23) % 16) << 23));
        float y = float_of((s & 0x807fffff) | ((120 + (s >> 23) % 16) << 23));
        add(c, b, x, i % 3 == 0 ? truncf(y) : y);
    }
    for (int i = 0; i < 200000;
         i++) { /* x near 1 and large y: where a logarithm must be most precise */
        uint32_t r = random_bits(&seed);
        float x = float_of(0x3f800000 + (r & 0xffff) - 0x4000);
        add(c, b, x,
            (float)(90 * (double)(int32_t)random_bits(&seed) * 0x1p-31 / log((double)x + 1e-9)));
    }
}

START_TEST(accuracy_and_bits) {
    const Case *c = &cases[_i];
    Block *b = calloc(1, sizeof *b);
    ck_assert_ptr_nonnull(b);
    if (c->one)
        feed_one(c, b);
    else
        feed_two(c, b);
    flush(c, b);
    if (print_errors)
        printf("%-18s %.3f ulp at %a, %a\n", c->name, b->worst, (double)b->worst_x,
               (double)b->worst_y);
    fflush(stdout);
    free(b);
}
END_TEST

/* ---- sin and cos of the floats that are nearest to multiples of pi/2 ---- */

START_TEST(trig_worst) {
    float worst[] = {0x1.921fb6p0f,   0x1.921fb6p1f,   0x1.2d97c8p2f,   0x1.d7a3a8p25f,
                     0x1.6ac5b2p36f,  0x1.4d3664p36f,  0x1.b64c2cp40f,  0x1.52f00ep52f,
                     0x1.0c9614p79f,  0x1.a4e69ep100f, 0x1.fffffep127f, 0x1.2cbbf4p118f,
                     0x1.ee1d52p103f, 0x1.86a0p16f,    0x1.47d0fep34f};
    for (size_t i = 0; i < sizeof worst / sizeof *worst; i++) {
        double x = (double)worst[i];
        ck_assert_double_le(ulps(dt_sinf(worst[i]), sin(x), -126), 0.6);
        ck_assert_double_le(ulps(dt_cosf(worst[i]), cos(x), -126), 0.6);
    }
}
END_TEST

/* ---- halves ---- */

typedef void widen_loop(const uint16_t *h, float *z, size_t n);
typedef void narrow_loop(const float *x, uint16_t *h, size_t n);
typedef void round_loop(const float *x, float *z, size_t n);

#define WIDEN(name, isa, fn)                                                                       \
    __attribute__((noinline, ISA(isa))) static void name(const uint16_t *restrict h,               \
                                                         float *restrict z, size_t n) {            \
        for (size_t i = 0; i < n; i++) z[i] = fn(h[i]);                                            \
    }
#define NARROW(name, isa, fn)                                                                      \
    __attribute__((noinline, ISA(isa))) static void name(const float *restrict x,                  \
                                                         uint16_t *restrict h, size_t n) {         \
        for (size_t i = 0; i < n; i++) h[i] = fn(x[i]);                                            \
    }
#define ROUND(name, isa, fn)                                                                       \
    __attribute__((noinline, ISA(isa))) static void name(const float *restrict x,                  \
                                                         float *restrict z, size_t n) {            \
        for (size_t i = 0; i < n; i++) z[i] = fn(x[i]);                                            \
    }
WIDEN(f16_v2, "x86-64-v2", dt_f16_to_f32)
WIDEN(f16_v3, "x86-64-v3", dt_f16_to_f32)
WIDEN(f16_v4, "x86-64-v4", dt_f16_to_f32)
WIDEN(bf16_v2, "x86-64-v2", dt_bf16_to_f32)
WIDEN(bf16_v3, "x86-64-v3", dt_bf16_to_f32)
WIDEN(bf16_v4, "x86-64-v4", dt_bf16_to_f32)
NARROW(to_f16_v2, "x86-64-v2", dt_f32_to_f16)
NARROW(to_f16_v3, "x86-64-v3", dt_f32_to_f16)
NARROW(to_f16_v4, "x86-64-v4", dt_f32_to_f16)
NARROW(to_bf16_v2, "x86-64-v2", dt_f32_to_bf16)
NARROW(to_bf16_v3, "x86-64-v3", dt_f32_to_bf16)
NARROW(to_bf16_v4, "x86-64-v4", dt_f32_to_bf16)
ROUND(round_f16_v2, "x86-64-v2", dt_round_to_f16)
ROUND(round_f16_v3, "x86-64-v3", dt_round_to_f16)
ROUND(round_f16_v4, "x86-64-v4", dt_round_to_f16)
ROUND(round_bf16_v2, "x86-64-v2", dt_round_to_bf16)
ROUND(round_bf16_v3, "x86-64-v3", dt_round_to_bf16)
ROUND(round_bf16_v4, "x86-64-v4", dt_round_to_bf16)

/* The value of a 16-bit float with `digits` bits of fraction and exponent bias `bias`, from its
 * definition. */
static double half_value(uint16_t h, int digits, int bias) {
    int fraction = h & ((1 << digits) - 1), e = (h & 0x7fff) >> digits;
    double s = h & 0x8000 ? -1 : 1;
    if (e == (0x7fff >> digits)) return fraction ? (double)NAN : s * INFINITY;
    if (e == 0) return s * ldexp(fraction, 1 - bias - digits);
    return s * ldexp(fraction + (1 << digits), e - bias - digits);
}

START_TEST(half_to_float) {
    static uint16_t in[65536];
    static float out[65536];
    static widen_loop *const loops[2][ISAS] = {{f16_v2, f16_v3, f16_v4},
                                               {bf16_v2, bf16_v3, bf16_v4}};
    int digits = _i ? 7 : 10, bias = _i ? 127 : 15;
    for (int i = 0; i < 65536; i++) in[i] = (uint16_t)i;
    for (int isa = -1; isa < ISAS; isa++) {
        if (isa >= 0 && !cpu_has(isa)) continue;
        if (isa >= 0) loops[_i][isa](in, out, 65536);
        for (int i = 0; i < 65536; i++) {
            float x = isa >= 0 ? out[i] : (_i ? dt_bf16_to_f32(in[i]) : dt_f16_to_f32(in[i]));
            float want = (float)half_value(in[i], digits, bias);
            if (isnan(want))
                want = float_of(((uint32_t)in[i] & 0x8000) << 16 | 0x7fc00000 |
                                ((uint32_t)in[i] & ((1u << digits) - 1)) << (23 - digits));
            if (bits_of(x) != bits_of(want))
                ck_abort_msg("half %04x is %08x", (unsigned)i, bits_of(x));
        }
    }
}
END_TEST

/* The nearest 16-bit float to x, from the definition: |x| as a multiple of the unit at its size,
 * rounded by rint. */
static uint16_t nearest_half(float x, int digits, int bias) {
    uint32_t bits = bits_of(x);
    uint32_t sign = bits >> 16 & 0x8000, top = 0x7fffu >> digits << digits;
    if (isnan(x))
        return (uint16_t)(sign | top | 1u << (digits - 1) | (bits & 0x7fffff) >> (23 - digits));
    double a = fabs((double)x);
    if (isinf(x)) return (uint16_t)(sign | top);
    int e = a == 0 ? 1 - bias : ilogb(a);
    e = e < 1 - bias ? 1 - bias : e;
    uint32_t units = (uint32_t)rint(ldexp(a, digits - e));
    uint32_t h = ((uint32_t)(e + bias - 1) << digits) + units;
    return (uint16_t)(sign | (h > top ? top : h));
}

/* Rounded as a float, x is what its half is as a float. */
static void check_rounded(const float *x, const float *rounded, const uint16_t *h, size_t n,
                          int bf16) {
    for (size_t i = 0; i < n; i++) {
        float want = bf16 ? dt_bf16_to_f32(h[i]) : dt_f16_to_f32(h[i]);
        if (bits_of(rounded[i]) != bits_of(want))
            ck_abort_msg("%a (%08x) is rounded to %08x, not %08x", (double)x[i], bits_of(x[i]),
                         bits_of(rounded[i]), bits_of(want));
    }
}

START_TEST(float_to_half) {
    static float in[BLOCK + OFFSETS], rounded[BLOCK + OFFSETS];
    static uint16_t out[BLOCK + OFFSETS];
    static narrow_loop *const loops[2][ISAS] = {{to_f16_v2, to_f16_v3, to_f16_v4},
                                                {to_bf16_v2, to_bf16_v3, to_bf16_v4}};
    static round_loop *const rounds[2][ISAS] = {{round_f16_v2, round_f16_v3, round_f16_v4},
                                                {round_bf16_v2, round_bf16_v3, round_bf16_v4}};
    int digits = _i ? 7 : 10, bias = _i ? 127 : 15;
    uint64_t next = 0, block = 0;
    while (next < UINT64_C(1) << 32) {
        float *x = in + block % OFFSETS;
        uint16_t *h = out + block * 3 % OFFSETS;
        size_t n = 0;
        if (block < 66) { /* every half, and what lies half-way to the next and beside that */
            for (uint32_t i = (uint32_t)block * 1000; n < 1000 && i < 65535; i++, n++) {
                double lo = half_value((uint16_t)i, digits, bias),
                       hi = half_value((uint16_t)(i + 1), digits, bias);
                float mid = (float)(isfinite(lo + hi) ? (lo + hi) / 2 : lo);
                x[n] = float_of(bits_of(mid) + (uint32_t)(i % 3) - 1);
            }
        } else {
            for (; n < BLOCK && next < UINT64_C(1) << 32; next += 1021)
                x[n++] = float_of((uint32_t)next);
        }
        for (int isa = -1; isa < ISAS; isa++) {
            if (isa >= 0 && !cpu_has(isa)) continue;
            if (isa >= 0) loops[_i][isa](x, h, n);
            for (size_t i = 0; i < n; i++) {
                uint16_t got = isa >= 0 ? h[i] : (_i ? dt_f32_to_bf16(x[i]) : dt_f32_to_f16(x[i]));
                uint16_t want = nearest_half(x[i], digits, bias);
                if (got != want)
                    ck_abort_msg("%a (%08x) gives %04x, not %04x", (double)x[i], bits_of(x[i]), got,
                                 want);
                if (isa < 0) h[i] = got;
                if (isa < 0) rounded[i] = _i ? dt_round_to_bf16(x[i]) : dt_round_to_f16(x[i]);
            }
            if (isa >= 0) rounds[_i][isa](x, rounded, n);
            check_rounded(x, rounded, h, n, _i);
        }
        block++;
    }
}
END_TEST

/* ---- double ---- */

START_TEST(doubles) {
    ck_assert_double_eq(dt_exp(1.0), exp(1.0));
    ck_assert_double_eq(dt_remainder_py(-7.0, 3.0), 2.0);
    ck_assert_double_eq(dt_remainder_py(7.0, -3.0), -2.0);
    ck_assert_double_eq(dt_floor_divide(-7.0, 2.0), -4.0);
    ck_assert_double_eq(dt_floor_divide(1.0, 0.0), (double)INFINITY);
    uint64_t seed = 3;
    for (int i = 0; i < 100000; i++) {
        double x = (double)(int32_t)random_bits(&seed) * 0x1p-27;
        struct {
            double got, want;
        } pairs[] = {
            {dt_sigmoid(x), ref_sigmoid(x)},
            {dt_silu(x), ref_silu(x)},
            {dt_gelu(x), ref_gelu(x)},
            {dt_gelu_tanh(x), ref_gelu_tanh(x)},
            {dt_softplus(x, 1, 20), ref_softplus_1(x)},
            {dt_logsigmoid(x), ref_logsigmoid(x)},
            {dt_mish(x), ref_mish(x)},
            {dt_rsqrt(x * x), ref_rsqrt(x * x)},
        };
        for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
            if (!(fabs(pairs[k].got - pairs[k].want) <= 1e-12 * fabs(pairs[k].want)))
                ck_abort_msg("%zu at %a: %a %a", k, x, pairs[k].got, pairs[k].want);
    }
}
END_TEST

int main(int argc, char **argv) {
    (void)argv;
    print_errors = argc > 1;
    Suite *suite = suite_create("math");
    TCase *tc = tcase_create("math");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, accuracy_and_bits, 0, CASES);
    tcase_add_test(tc, trig_worst);
    tcase_add_loop_test(tc, half_to_float, 0, 2);
    tcase_add_loop_test(tc, float_to_half, 0, 2);
    tcase_add_test(tc, doubles);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
