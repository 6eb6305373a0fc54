/* Building blocks of math.h: bit casts, selects on the sign, rounding.
 *
 * Everything here is one or two vector instructions on x86-64-v2 and later. */
#ifndef DT_KERNELS_CPU_SIMD_MATH_BASE_H
#define DT_KERNELS_CPU_SIMD_MATH_BASE_H

#include <stdint.h>

/* Helpers must vanish into the loop that uses them, whatever the inliner thinks of their size. */
#define DT_MATH static inline __attribute__((always_inline, unused))

#define DT_INF __builtin_inff()
#define DT_NAN __builtin_nanf("")

DT_MATH int32_t dt__bits(float x) {
    int32_t i;
    __builtin_memcpy(&i, &x, sizeof i);
    return i;
}

DT_MATH float dt__float(int32_t i) {
    float x;
    __builtin_memcpy(&x, &i, sizeof x);
    return x;
}

DT_MATH int64_t dt__bits64(double x) {
    int64_t i;
    __builtin_memcpy(&i, &x, sizeof i);
    return i;
}

DT_MATH double dt__double(int64_t i) {
    double x;
    __builtin_memcpy(&x, &i, sizeof x);
    return x;
}

DT_MATH float dt__abs(float x) { return __builtin_fabsf(x); }

/* |x| with the sign bit of s. */
DT_MATH float dt__copysign(float x, float s) {
    return dt__float((dt__bits(x) & INT32_MAX) | (dt__bits(s) & INT32_MIN));
}

/* The smaller of x and hi > 0, compared as integers: one instruction, where GCC makes a compare,
 * a blend and often a second copy of what follows out of a select on floats. A NaN may be lost
 * (become hi). */
DT_MATH float dt__min_bits(float x, float hi) {
    int32_t i = dt__bits(x), j = dt__bits(hi);
    return dt__float(i < j ? i : j);
}

/* All ones if `condition` holds, else 0. */
DT_MATH int32_t dt__mask(int condition) { return -(int32_t)(condition != 0); }

/* a where the mask is set, else b. */
DT_MATH float dt__select(int32_t mask, float a, float b) {
    return dt__float((dt__bits(a) & mask) | (dt__bits(b) & ~mask));
}

/* 2^n for -126 <= n <= 127. */
DT_MATH float dt__exp2i(int32_t n) { return dt__float((int32_t)((uint32_t)(n + 127) << 23)); }

/* x rounded to the nearest integer, even on ties, as a float and as an int; for |x| < 2^22.
 * Adding 1.5 * 2^23 leaves the integer in the low bits of the sum; no conversion instruction and
 * no undefined cast is needed. */
DT_MATH float dt__nearest(float x, int32_t *n) {
    const float magic = 12582912.0f;
    float t = x + magic;
    *n = (int32_t)((uint32_t)dt__bits(t) - (uint32_t)dt__bits(magic));
    return t - magic;
}

/* The same in double, for |x| < 2^51; *n has the low 32 bits of the integer. */
DT_MATH double dt__nearest64(double x, int32_t *n) {
    const double magic = 6755399441055744.0;
    double t = x + magic;
    *n = (int32_t)(uint32_t)(uint64_t)dt__bits64(t);
    return t - magic;
}

/* With SSE4.1 these are one roundps; GCC needs -fno-trapping-math to vectorise them. */
DT_MATH float dt_floorf(float x) { return __builtin_floorf(x); }
DT_MATH float dt_ceilf(float x) { return __builtin_ceilf(x); }
DT_MATH float dt_truncf(float x) { return __builtin_truncf(x); }
DT_MATH float dt_rintf(float x) { return __builtin_rintf(x); } /* half to even */
DT_MATH float dt_sqrtf(float x) { return __builtin_sqrtf(x); }

#endif
