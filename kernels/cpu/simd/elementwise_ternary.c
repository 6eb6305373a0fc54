/* Element-wise expressions: three operands. Made from kernels/ew.def by ew_tile.h. */
#define EW_GROUP_TERNARY EW_ON
#include "kernels/cpu/simd/ew_tile.h"

#include "kernels/ew.def"
