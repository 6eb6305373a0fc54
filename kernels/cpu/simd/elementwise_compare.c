/* Element-wise expressions: comparisons and logic. Made from kernels/ew.def by ew_tile.h. */
#define EW_GROUP_COMPARE EW_ON
#include "kernels/cpu/simd/ew_tile.h"

#include "kernels/ew.def"
