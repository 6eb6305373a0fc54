/* Element-wise expressions: division with a remainder, and bits. Made from kernels/ew.def by
 * ew_tile.h. */
#define EW_GROUP_INT EW_ON
#include "kernels/cpu/simd/ew_tile.h"

#include "kernels/ew.def"
