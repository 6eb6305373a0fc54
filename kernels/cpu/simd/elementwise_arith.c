/* Element-wise expressions: arithmetic, rounding, minimum and maximum. Made from kernels/ew.def by
 * ew_tile.h. */
#define EW_GROUP_ARITH EW_ON
#include "kernels/cpu/simd/ew_tile.h"

#include "kernels/ew.def"
