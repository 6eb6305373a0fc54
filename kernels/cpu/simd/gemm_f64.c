/* Tiles, dot products and packing of matrix products of double. */
#define GT_TYPE double
#define GT_VEC gv_f64
#define GT_LANES GV_F64_LANES
#define GT(name) gv_f64_##name
#define GT_JOIN_(a, b) a##b
#define GT_JOIN(a, b) GT_JOIN_(a, b)
#define GT_TABLE GT_JOIN(dt__gemm_f64_, DT_ISA_SUFFIX)
#include "kernels/cpu/simd/gemm_tile.inc"
