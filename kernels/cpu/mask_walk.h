/* mask_walk.h: walking a mask in row-major order, along with what it selects from.
 *
 * A run is a stretch of the innermost dim: bytes that are not 0 where the element counts, and the
 * place of the first of them in the other tensor.  The mask may be of any dtype (nonzero): what is
 * not a dense bool is gathered and converted block by block.
 */
#ifndef DT_KERNELS_CPU_MASK_WALK_H
#define DT_KERNELS_CPU_MASK_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/tensor.h"

#define DT__MASK_RUN_MAX 1024 /* elements of a run at most */

typedef struct dt__mask_walk {
    int rank; /* at least 1; the outermost dim first */
    int64_t numel;
    int64_t shape[DT_RANK_MAX];
    int64_t mask_strides[DT_RANK_MAX]; /* bytes */
    int64_t strides[DT_RANK_MAX];      /* bytes, of the other tensor */
    const char *mask;
    dt_dtype dtype; /* of the mask */
    bool direct;    /* runs lie in the mask as they are needed */
} dt__mask_walk;

typedef struct dt__mask_run {
    const uint8_t *mask;
    int64_t n;
    int64_t position; /* of its first element, row-major in the mask */
    int64_t offset;   /* bytes, of its first element in the other tensor */
} dt__mask_run;

typedef struct dt__mask_cursor {
    int64_t position, end;
    int64_t index[DT_RANK_MAX];
    int64_t mask_offset, offset; /* bytes */
    uint8_t flags[DT__MASK_RUN_MAX];
    _Alignas(64) char elements[DT__MASK_RUN_MAX * 8];
} dt__mask_cursor;

/* strides: of the tensor that the mask selects from, in elements, for the mask's dims; NULL: there
 * is none. Dims that both step through evenly become one, unless `keep_dims`. */
void dt__mask_walk_init(dt__mask_walk *w, const dt_tensor *mask, const int64_t *strides,
                        int64_t size, bool keep_dims);

/* Positions [from, to). */
void dt__mask_cursor_init(const dt__mask_walk *w, dt__mask_cursor *c, int64_t from, int64_t to);
bool dt__mask_cursor_next(const dt__mask_walk *w, dt__mask_cursor *c, dt__mask_run *run);

/* The mask of 8 elements: 0 when none of them counts. */
static inline uint64_t dt__mask_word(const uint8_t *mask) {
    uint64_t word;
    __builtin_memcpy(&word, mask, sizeof word);
    return word;
}

/* How many of the positions [from, to) count. */
int64_t dt__mask_count(const dt__mask_walk *w, dt__mask_cursor *c, int64_t from, int64_t to);

#endif
