/* Tiles, dot products and packing of matrix products of float. */
#define GT_TYPE float
#define GT_VEC gv_f32
#define GT_LANES GV_F32_LANES
#define GT(name) gv_f32_##name
#define GT_JOIN_(a, b) a##b
#define GT_JOIN(a, b) GT_JOIN_(a, b)
#define GT_TABLE GT_JOIN(dt__gemm_f32_, DT_ISA_SUFFIX)
#include "kernels/cpu/simd/gemm_tile.inc"
