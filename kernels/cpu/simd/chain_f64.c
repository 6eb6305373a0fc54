/* Register chains of f64. Made from kernels/ew.def by chain_steps.inc. */
#define CHAIN_DTYPE f64
#define CHAIN_T double
#define CHAIN_FLT CHAIN_ON
#define CHAIN_NUM CHAIN_ON
#define CHAIN_ALL CHAIN_ON
#define CHAIN_MAX_512 _mm512_max_pd
#include "kernels/cpu/simd/chain_steps.inc"
