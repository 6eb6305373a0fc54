/* Element-wise expressions: trigonometric functions and powers. Made from kernels/ew.def by
 * ew_tile.h. */
#define EW_GROUP_TRIG EW_ON
#include "kernels/cpu/simd/ew_tile.h"

#include "kernels/ew.def"
