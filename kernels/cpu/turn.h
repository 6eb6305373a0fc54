/* turn.h: blocks of an operand whose rows in memory run along another dim than those of the
 * walk. */
#ifndef DT_KERNELS_CPU_TURN_H
#define DT_KERNELS_CPU_TURN_H

#include <stdint.h>

#include "kernels/cpu/iter.h"

/* The dim along which operand k is contiguous, when that is not the innermost one but long enough
 * to turn blocks of it; else 0. */
int dt__turned_dim(const dt__iter *it, int k);

/* to[r * pitch + c] = element r of column c, for r < rows, c < columns: the elements of a column
 * are contiguous, columns are `stride` bytes apart. */
void dt__turn(int64_t size, int64_t rows, int64_t columns, const char *from, int64_t stride,
              void *to, int64_t pitch);

/* The blocks of a walk: `across` elements of the innermost dim by `down` of dim `dim`. */
typedef struct dt__blocks {
    const dt__iter *it;
    int dim;
    int64_t across, down;
    int64_t columns, rows; /* how many blocks along each */
    int64_t count;
} dt__blocks;

dt__blocks dt__blocks_of(const dt__iter *it, int dim, int64_t across, int64_t down);
/* Sets the cursor to the first element of block `number` and says how large the block is. */
void dt__blocks_seek(const dt__blocks *b, int64_t number, dt__cursor *c, int64_t *across,
                     int64_t *down);

#endif
