/* Register chains of i64. Made from kernels/ew.def by chain_steps.inc. */
#define CHAIN_DTYPE i64
#define CHAIN_T int64_t
#define CHAIN_FLT CHAIN_OFF
#if DT_ISA_LEVEL > 0
#define CHAIN_NUM CHAIN_ON
#define CHAIN_ALL CHAIN_ON
#else /* products and comparisons go through memory there: slower than the tile functions */
#define CHAIN_NUM CHAIN_OFF
#define CHAIN_ALL CHAIN_OFF
#endif
#include "kernels/cpu/simd/chain_steps.inc"
