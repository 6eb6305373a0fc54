/* ew_expr.h: the overloaded functions (ew_*) that the expressions of kernels/ew.def are made of.
 *
 * Each is a family of scalar functions, one for each type it is defined on, chosen by _Generic at
 * compile time.  They are written so that a plain loop over them vectorises; the exceptions are
 * functions on f64 and 64-bit integer division.
 *
 * E1: integers wrap around: arithmetic runs on an unsigned type of at least 32 bits.
 * E2: no undefined behaviour and no trap for any operand; where the result would be an error
 *     (x // 0) it is 0 here, and the caller has looked before.
 */
#ifndef DT_KERNELS_CPU_SIMD_EW_EXPR_H
#define DT_KERNELS_CPU_SIMD_EW_EXPR_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/simd/half_bits.h"
#include "kernels/cpu/simd/math.h"
#include "kernels/cpu/simd/math_double.h"

/* Expressions are written once for all types: for some x < 0 is never true. */
#pragma GCC diagnostic ignored "-Wtype-limits"
#pragma GCC diagnostic ignored "-Wbool-compare"

#define EW_FN static inline __attribute__((always_inline, unused))

#define EW_INT_CASES(f)                                                                            \
    uint8_t:                                                                                       \
    f##_u8, int8_t : f##_i8, int16_t : f##_i16, int32_t : f##_i32, int64_t : f##_i64
#define EW_FLT_CASES(f) float : f##_f32, double : f##_f64

#define EW_GENERIC_ALL(f, x) _Generic((x), bool : f##_bool, EW_INT_CASES(f), EW_FLT_CASES(f))
#define EW_GENERIC_NUM(f, x) _Generic((x), EW_INT_CASES(f), EW_FLT_CASES(f))
#define EW_GENERIC_BITS(f, x) _Generic((x), bool : f##_bool, EW_INT_CASES(f))
#define EW_GENERIC_INT(f, x) _Generic((x), EW_INT_CASES(f))
#define EW_GENERIC_FLT(f, x) _Generic((x), EW_FLT_CASES(f))

/* X(name, type, unsigned type of the arithmetic, type in which a quotient is exact) */
#define EW_INT_TYPES(X)                                                                            \
    X(u8, uint8_t, uint32_t, float)                                                                \
    X(i8, int8_t, uint32_t, float)                                                                 \
    X(i16, int16_t, uint32_t, float)                                                               \
    X(i32, int32_t, uint32_t, double)

/* ---- arithmetic on integers ----------------------------------------------------------------- */

#define EW_INT_BASICS(N, T, U, Q)                                                                  \
    EW_FN T ew_add_##N(T x, T y) { return (T)((U)x + (U)y); }                                      \
    EW_FN T ew_sub_##N(T x, T y) { return (T)((U)x - (U)y); }                                      \
    EW_FN T ew_mul_##N(T x, T y) { return (T)((U)x * (U)y); }                                      \
    EW_FN T ew_neg_##N(T x) { return (T)(0 - (U)x); }                                              \
    EW_FN T ew_abs_##N(T x) { return x < 0 ? ew_neg_##N(x) : x; }                                  \
    EW_FN T ew_not_##N(T x) { return (T)~x; }                                                      \
    EW_FN T ew_floor_##N(T x) { return x; }                                                        \
    EW_FN T ew_ceil_##N(T x) { return x; }                                                         \
    EW_FN T ew_trunc_##N(T x) { return x; }                                                        \
    EW_FN T ew_round_##N(T x, int64_t decimals) {                                                  \
        (void)decimals;                                                                            \
        return x;                                                                                  \
    }                                                                                              \
    EW_FN bool ew_isinf_##N(T x) { return x != x; }                                                \
    EW_FN bool ew_isfinite_##N(T x) { return x == x; }                                             \
    EW_FN T ew_clamp_##N(T x, T lo, T hi) {                                                        \
        T raised = lo > x ? lo : x;                                                                \
        return hi < raised ? hi : raised;                                                          \
    }                                                                                              \
    /* As torch: a shift by a negative count, or by the width or more, shifts everything out. */   \
    EW_FN T ew_shl_##N(T x, T y) {                                                                 \
        const int width = (int)sizeof(T) * 8;                                                      \
        bool out = (y < 0) | (y >= width);                                                         \
        U shifted = (U)x << (out ? 0 : (int)y);                                                    \
        return out ? 0 : (T)shifted;                                                               \
    }                                                                                              \
    EW_FN T ew_shr_##N(T x, T y) {                                                                 \
        const int most = (int)sizeof(T) * 8 - ((T)-1 < 0);                                         \
        bool out = (y < 0) | (y >= most);                                                          \
        int by = out ? most : (int)y;                                                              \
        return (T)(by >= (int)sizeof(T) * 8 ? 0 : x >> (by & ((int)sizeof(U) * 8 - 1)));           \
    }                                                                                              \
    /* Square and multiply; negative exponents leave 1 and -1, and make the rest 0. */             \
    EW_FN T ew_pow_##N(T x, T y) {                                                                 \
        if (y < 0) return x == 1 ? 1 : (x == (T)-1 ? (T)(y % 2 == 0 ? 1 : (T)-1) : 0);             \
        U base = (U)x, result = 1;                                                                 \
        for (T left = y; left > 0; left = (T)(left >> 1)) {                                        \
            if (left & 1) result *= base;                                                          \
            base *= base;                                                                          \
        }                                                                                          \
        return (T)result;                                                                          \
    }

EW_INT_TYPES(EW_INT_BASICS)
EW_INT_BASICS(i64, int64_t, uint64_t, double)

/* Quotient and remainders. Up to 32 bits the quotient of two Q is close enough that cutting it off
 * is exact, which vectorises; the least int over -1 comes out as itself by the conversion of
 * x86. */
#define EW_INT_QUOTIENT(N, T, U, Q)                                                                \
    EW_FN T ew_div_trunc_##N(T x, T y, int half) {                                                 \
        (void)half;                                                                                \
        Q d = (Q)(y == 0 ? 1 : y);                                                                 \
        T q = (T)(int32_t)((Q)x / d);                                                              \
        return y == 0 ? 0 : q;                                                                     \
    }

#if DT_ISA_BASE_ONLY /* other machines saturate there */
#undef EW_INT_QUOTIENT
#define EW_INT_QUOTIENT(N, T, U, Q)                                                                \
    EW_FN T ew_div_trunc_##N(T x, T y, int half) {                                                 \
        (void)half;                                                                                \
        if (y == 0) return 0;                                                                      \
        return y == (T)-1 && (T)-1 < 0 ? ew_neg_##N(x) : (T)(x / y);                               \
    }
#endif

EW_INT_TYPES(EW_INT_QUOTIENT)

EW_FN int64_t ew_div_trunc_i64(int64_t x, int64_t y, int half) {
    (void)half;
    if (y == 0) return 0;
    return y == -1 ? ew_neg_i64(x) : x / y;
}

#define EW_INT_REMAINDERS(N, T, U, Q)                                                              \
    EW_FN T ew_fmod_##N(T x, T y) {                                                                \
        return y == 0 ? 0 : ew_sub_##N(x, ew_mul_##N(ew_div_trunc_##N(x, y, 0), y));               \
    }                                                                                              \
    EW_FN T ew_remainder_##N(T x, T y) {                                                           \
        T r = ew_fmod_##N(x, y);                                                                   \
        return ((r != 0) & ((r < 0) != (y < 0))) ? ew_add_##N(r, y) : r;                           \
    }                                                                                              \
    EW_FN T ew_div_floor_##N(T x, T y, int half) {                                                 \
        T q = ew_div_trunc_##N(x, y, half);                                                        \
        T r = ew_sub_##N(x, ew_mul_##N(q, y));                                                     \
        return ((y != 0) & (r != 0) & ((r < 0) != (y < 0))) ? (T)(q - 1) : q;                      \
    }

EW_INT_TYPES(EW_INT_REMAINDERS)
EW_INT_REMAINDERS(i64, int64_t, uint64_t, double)

/* ---- bool ----------------------------------------------------------------------------------- */

EW_FN bool ew_add_bool(bool x, bool y) { return x | y; }
EW_FN bool ew_mul_bool(bool x, bool y) { return x & y; }
EW_FN bool ew_not_bool(bool x) { return !x; }
EW_FN bool ew_isinf_bool(bool x) { return (void)x, false; }
EW_FN bool ew_isfinite_bool(bool x) { return (void)x, true; }

/* ---- arithmetic on floats ------------------------------------------------------------------- */

#define EW_FLT_BASICS(N, T, S)                                                                     \
    EW_FN T ew_add_##N(T x, T y) { return x + y; }                                                 \
    EW_FN T ew_sub_##N(T x, T y) { return x - y; }                                                 \
    EW_FN T ew_mul_##N(T x, T y) { return x * y; }                                                 \
    EW_FN T ew_neg_##N(T x) { return -x; }                                                         \
    EW_FN T ew_abs_##N(T x) { return __builtin_fabs##S(x); }                                       \
    EW_FN T ew_sqrt_##N(T x) { return __builtin_sqrt##S(x); }                                      \
    EW_FN T ew_floor_##N(T x) { return __builtin_floor##S(x); }                                    \
    EW_FN T ew_ceil_##N(T x) { return __builtin_ceil##S(x); }                                      \
    EW_FN T ew_trunc_##N(T x) { return __builtin_trunc##S(x); }                                    \
    EW_FN T ew_round_##N(T x, int64_t decimals) {                                                  \
        if (decimals == 0) return __builtin_rint##S(x);                                            \
        T ten = (T)pow(10.0, (double)(decimals < 0 ? -decimals : decimals));                       \
        return decimals < 0 ? __builtin_rint##S(x / ten) * ten : __builtin_rint##S(x * ten) / ten; \
    }                                                                                              \
    EW_FN bool ew_isinf_##N(T x) { return __builtin_fabs##S(x) == (T)HUGE_VAL; }                   \
    EW_FN bool ew_isfinite_##N(T x) { return __builtin_fabs##S(x) < (T)HUGE_VAL; }                 \
    EW_FN T ew_clamp_##N(T x, T lo, T hi) {                                                        \
        T raised = ((lo > x) | (lo != lo)) ? lo : x;                                               \
        return ((hi < raised) | (hi != hi)) ? hi : raised;                                         \
    }                                                                                              \
    /* From the nearer end, as torch does. */                                                      \
    EW_FN T ew_lerp_##N(T x, T y, T w) {                                                           \
        T d = y - x;                                                                               \
        T low = x + w * d, high = y - d * (1 - w);                                                 \
        return __builtin_fabs##S(w) < (T)0.5 ? low : high;                                         \
    }

EW_FLT_BASICS(f32, float, f)
EW_FLT_BASICS(f64, double, )

/* ---- functions of math.h and math_double.h -------------------------------------------------- */

// clang-format off
#define EW_FUNCTIONS(X)                                                                            \
    X(exp) X(exp2) X(expm1) X(log) X(log2) X(log10) X(log1p) X(sin) X(cos) X(tan) X(asin) X(acos)  \
    X(atan) X(sinh) X(cosh) X(tanh) X(erf) X(erfc) X(sigmoid) X(silu) X(gelu) X(gelu_tanh)
// clang-format on

#define EW_FUNCTION(fn)                                                                            \
    EW_FN float ew_##fn##_f32(float x) { return dt_##fn##f(x); }                                   \
    EW_FN double ew_##fn##_f64(double x) { return dt_##fn(x); }
EW_FUNCTIONS(EW_FUNCTION)

#define EW_FUNCTION2(name, fn)                                                                     \
    EW_FN float ew_##name##_f32(float x, float y) { return dt_##fn##f(x, y); }                     \
    EW_FN double ew_##name##_f64(double x, double y) { return dt_##fn(x, y); }
EW_FUNCTION2(pow, pow)
EW_FUNCTION2(atan2, atan2)
EW_FUNCTION2(fmod, fmod)

EW_FN float ew_remainder_f32(float x, float y) { return dt_remainderf_py(x, y); }
EW_FN double ew_remainder_f64(double x, double y) { return dt_remainder_py(x, y); }
/* torch's rounded divisions of halves round every step to the half: (5 / 3 as a half) cut off. */
EW_FN float ew_narrow(float x, int half) {
    if (half == 0) return x;
    return half == 1 ? dt__f16_bits_to_f32(dt__f32_to_f16_bits(x))
                     : dt__bf16_bits_to_f32(dt__f32_to_bf16_bits(x));
}

EW_FN float ew_div_trunc_f32(float x, float y, int half) {
    return dt_truncf(ew_narrow(x / y, half));
}
EW_FN double ew_div_trunc_f64(double x, double y, int half) {
    return (void)half, __builtin_trunc(x / y);
}
EW_FN float ew_div_floor_f32(float x, float y, int half) {
    if (half == 0) return dt_floor_dividef(x, y);
    float m = dt_fmodf(x, y);
    float d = ew_narrow(ew_narrow(x - m, half) / y, half);
    float less = (y < 0.0f) != (m < 0.0f) ? ew_narrow(d - 1.0f, half) : d;
    d = m == 0.0f ? d : less;
    float whole = dt_floorf(d);
    float up = d - whole > 0.5f ? ew_narrow(whole + 1.0f, half) : whole;
    float z = d == 0.0f ? dt__copysign(0.0f, x / y) : up;
    return y == 0.0f ? x / y : z;
}
EW_FN double ew_div_floor_f64(double x, double y, int half) {
    return (void)half, dt_floor_divide(x, y);
}
EW_FN float ew_softplus_f32(float x, float beta, float threshold) {
    return dt_softplusf(x, beta, threshold);
}
EW_FN double ew_softplus_f64(double x, double beta, double threshold) {
    return dt_softplus(x, beta, threshold);
}

/* ---- the overloads -------------------------------------------------------------------------- */

#define ew_add(x, y) EW_GENERIC_ALL(ew_add, x)(x, y)
#define ew_mul(x, y) EW_GENERIC_ALL(ew_mul, x)(x, y)
#define ew_isinf(x) EW_GENERIC_ALL(ew_isinf, x)(x)
#define ew_isfinite(x) EW_GENERIC_ALL(ew_isfinite, x)(x)
#define ew_sub(x, y) EW_GENERIC_NUM(ew_sub, x)(x, y)
#define ew_neg(x) EW_GENERIC_NUM(ew_neg, x)(x)
#define ew_abs(x) EW_GENERIC_NUM(ew_abs, x)(x)
#define ew_floor(x) EW_GENERIC_NUM(ew_floor, x)(x)
#define ew_ceil(x) EW_GENERIC_NUM(ew_ceil, x)(x)
#define ew_trunc(x) EW_GENERIC_NUM(ew_trunc, x)(x)
#define ew_round(x, decimals) EW_GENERIC_NUM(ew_round, x)(x, decimals)
#define ew_clamp(x, lo, hi) EW_GENERIC_NUM(ew_clamp, x)(x, lo, hi)
#define ew_div_trunc(x, y, half) EW_GENERIC_NUM(ew_div_trunc, x)(x, y, half)
#define ew_div_floor(x, y, half) EW_GENERIC_NUM(ew_div_floor, x)(x, y, half)
#define ew_remainder(x, y) EW_GENERIC_NUM(ew_remainder, x)(x, y)
#define ew_fmod(x, y) EW_GENERIC_NUM(ew_fmod, x)(x, y)
#define ew_pow(x, y) EW_GENERIC_NUM(ew_pow, x)(x, y)
#define ew_not(x) EW_GENERIC_BITS(ew_not, x)(x)
#define ew_shl(x, y) EW_GENERIC_INT(ew_shl, x)(x, y)
#define ew_shr(x, y) EW_GENERIC_INT(ew_shr, x)(x, y)
#define ew_sqrt(x) EW_GENERIC_FLT(ew_sqrt, x)(x)
#define ew_lerp(x, y, w) EW_GENERIC_FLT(ew_lerp, x)(x, y, w)
#define ew_atan2(x, y) EW_GENERIC_FLT(ew_atan2, x)(x, y)
#define ew_exp(x) EW_GENERIC_FLT(ew_exp, x)(x)
#define ew_exp2(x) EW_GENERIC_FLT(ew_exp2, x)(x)
#define ew_expm1(x) EW_GENERIC_FLT(ew_expm1, x)(x)
#define ew_log(x) EW_GENERIC_FLT(ew_log, x)(x)
#define ew_log2(x) EW_GENERIC_FLT(ew_log2, x)(x)
#define ew_log10(x) EW_GENERIC_FLT(ew_log10, x)(x)
#define ew_log1p(x) EW_GENERIC_FLT(ew_log1p, x)(x)
#define ew_sin(x) EW_GENERIC_FLT(ew_sin, x)(x)
#define ew_cos(x) EW_GENERIC_FLT(ew_cos, x)(x)
#define ew_tan(x) EW_GENERIC_FLT(ew_tan, x)(x)
#define ew_asin(x) EW_GENERIC_FLT(ew_asin, x)(x)
#define ew_acos(x) EW_GENERIC_FLT(ew_acos, x)(x)
#define ew_atan(x) EW_GENERIC_FLT(ew_atan, x)(x)
#define ew_sinh(x) EW_GENERIC_FLT(ew_sinh, x)(x)
#define ew_cosh(x) EW_GENERIC_FLT(ew_cosh, x)(x)
#define ew_tanh(x) EW_GENERIC_FLT(ew_tanh, x)(x)
#define ew_erf(x) EW_GENERIC_FLT(ew_erf, x)(x)
#define ew_erfc(x) EW_GENERIC_FLT(ew_erfc, x)(x)
#define ew_sigmoid(x) EW_GENERIC_FLT(ew_sigmoid, x)(x)
#define ew_silu(x) EW_GENERIC_FLT(ew_silu, x)(x)
#define ew_gelu(x) EW_GENERIC_FLT(ew_gelu, x)(x)
#define ew_gelu_tanh(x) EW_GENERIC_FLT(ew_gelu_tanh, x)(x)
#define ew_softplus(x, beta, threshold) EW_GENERIC_FLT(ew_softplus, x)(x, beta, threshold)

#endif
