/* float16 and bfloat16 to float and back, on integers, so that plain loops vectorise on every
 * ISA with the same bits.
 *
 * Rounding is to nearest, ties to even; denormals are kept on both sides; a NaN keeps its sign
 * and the upper part of its payload and comes out quiet, as the F16C instructions do it. F16C
 * itself is not used: GCC 12 does not vectorise it, and the integer form is as fast as memory. */
#ifndef DT_KERNELS_CPU_SIMD_HALF_H
#define DT_KERNELS_CPU_SIMD_HALF_H

#include <stdint.h>

#include "math_base.h"

/* The fields move to their places in a float and the exponent is rebiased. A denormal half is
 * read as if it had a leading one, which is then subtracted: exact, and no float denormal (slow
 * on some CPUs) appears on the way. */
DT_MATH float dt_f16_to_f32(uint16_t h) {
    int32_t magnitude = (h & 0x7fff) << 13;
    int32_t sign = (int32_t)((uint32_t)(h & 0x8000) << 16);
    int32_t normal = magnitude + ((127 - 15) << 23);
    int32_t special = magnitude | 0x7f800000;
    special = magnitude > 0x0f800000 ? special | 0x00400000 : special;
    int32_t tiny = dt__bits(dt__float(magnitude + (113 << 23)) - 6.103515625e-05f); /* 2^-14 */
    int32_t bits = magnitude < 0x00800000 ? tiny : normal;
    bits = magnitude >= 0x0f800000 ? special : bits;
    return dt__float(bits | sign);
}

/* Normal results: half a unit less one, plus the last kept bit, is added before the cut; a carry
 * moves into the exponent and at the top to infinity. Denormal results: adding 1/2 makes the FPU
 * round to multiples of 2^-24. */
DT_MATH uint16_t dt_f32_to_f16(float x) {
    int32_t bits = dt__bits(x);
    int32_t magnitude = bits & INT32_MAX;
    int32_t rounded = magnitude - ((127 - 15) << 23) + 0xfff + ((magnitude >> 13) & 1);
    int32_t normal = rounded >> 13;
    int32_t tiny = dt__bits(dt__float(magnitude) + 0.5f) - 0x3f000000;
    int32_t nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
    int32_t half = magnitude < (113 << 23) ? tiny : normal;
    half = magnitude >= ((127 + 16) << 23) ? 0x7c00 : half;
    half = magnitude > 0x7f800000 ? nan : half;
    return (uint16_t)(half | ((bits >> 16) & 0x8000));
}

DT_MATH float dt_bf16_to_f32(uint16_t h) {
    int32_t bits = (int32_t)((uint32_t)h << 16);
    return dt__float((bits & INT32_MAX) > 0x7f800000 ? bits | 0x00400000 : bits);
}

DT_MATH uint16_t dt_f32_to_bf16(float x) {
    int32_t bits = dt__bits(x);
    int32_t nan = (bits >> 16) | 0x0040;
    int32_t rounded = (int32_t)((uint32_t)bits + 0x7fffu + (((uint32_t)bits >> 16) & 1u)) >> 16;
    return (uint16_t)((bits & INT32_MAX) > 0x7f800000 ? nan : rounded);
}

/* What a float is once it has been a half, with fewer instructions than going there and back.
 *
 * Adding 2^13 times the power of two below |x| makes the FPU round to eleven bits; the least power
 * is that of the denormals, the greatest that of the last finite half.  A NaN comes out quiet. */
DT_MATH float dt_round_to_f16(float x) {
    int32_t bits = dt__bits(x);
    int32_t magnitude = bits & INT32_MAX;
    int32_t power = magnitude & 0x7f800000;
    power = power > (113 << 23) ? power : 113 << 23;
    power = power < (142 << 23) ? power : 142 << 23;
    float step = dt__float(power + (13 << 23));
    int32_t rounded = dt__bits(dt__float(magnitude) + step - step);
    int32_t beyond = rounded > 0x7f800000 ? rounded : 0x7f800000;
    rounded = rounded >= (143 << 23) ? beyond : rounded;
    return dt__float((rounded & ~0x1fff) | (bits & INT32_MIN));
}

DT_MATH float dt_round_to_bf16(float x) {
    int32_t bits = dt__bits(x);
    int32_t rounded = (int32_t)((uint32_t)bits + 0x7fffu + (((uint32_t)bits >> 16) & 1u));
    rounded = (bits & INT32_MAX) > 0x7f800000 ? bits | 0x00400000 : rounded;
    return dt__float(rounded & ~0xffff);
}

#endif
