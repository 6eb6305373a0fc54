/* Element-wise expressions: exponentials, logarithms and what is made of them. Made from
 * kernels/ew.def by ew_tile.h. */
#define EW_GROUP_MATH EW_ON
#include "kernels/cpu/simd/ew_tile.h"

#include "kernels/ew.def"
