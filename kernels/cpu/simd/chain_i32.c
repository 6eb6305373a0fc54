/* Register chains of i32. Made from kernels/ew.def by chain_steps.inc. */
#define CHAIN_DTYPE i32
#define CHAIN_T int32_t
#define CHAIN_FLT CHAIN_OFF
#define CHAIN_NUM CHAIN_ON
#define CHAIN_ALL CHAIN_ON
#include "kernels/cpu/simd/chain_steps.inc"
