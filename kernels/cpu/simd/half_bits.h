/* half_bits.h: half.h for files that also see dtype.h, whose functions on dt_f16 have the same
 * names. */
#ifndef DT_KERNELS_CPU_SIMD_HALF_BITS_H
#define DT_KERNELS_CPU_SIMD_HALF_BITS_H

#define dt_f16_to_f32 dt__f16_bits_to_f32
#define dt_f32_to_f16 dt__f32_to_f16_bits
#define dt_bf16_to_f32 dt__bf16_bits_to_f32
#define dt_f32_to_bf16 dt__f32_to_bf16_bits
#include "kernels/cpu/simd/half.h"
#undef dt_f16_to_f32
#undef dt_f32_to_f16
#undef dt_bf16_to_f32
#undef dt_f32_to_bf16

#endif
