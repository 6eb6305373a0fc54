/* iter.h: walking several strided operands of one shape at once, in runs.
 *
 * The dims are put into the order of the output's strides and merged where every operand allows it;
 * a position is then a number in [0, numel) in that order.  A run is some elements from a position
 * on; for an operand whose elements lie apart it is gathered into a buffer, or scattered from one.
 */
#ifndef DT_KERNELS_CPU_ITER_H
#define DT_KERNELS_CPU_ITER_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/tensor.h"

#define DT__ITER_OPERANDS 4
#define DT__RUN_ROW_MIN 32 /* rows at least this long are walked one by one */

typedef struct dt__iter {
    int rank; /* at least 1 */
    int count;
    int64_t numel;
    int64_t shape[DT_RANK_MAX];                      /* [0] is the innermost dim */
    int64_t strides[DT__ITER_OPERANDS][DT_RANK_MAX]; /* in bytes */
    char *base[DT__ITER_OPERANDS];
    int64_t size[DT__ITER_OPERANDS];
    bool constant[DT__ITER_OPERANDS]; /* every stride is 0 */
    bool linear[DT__ITER_OPERANDS];   /* elements follow each other in the order of positions */
    bool by_rows;                     /* a run never leaves its row (innermost dim) */
} dt__iter;

typedef struct dt__cursor {
    int64_t position;
    int64_t index[DT_RANK_MAX];
    int64_t offset[DT__ITER_OPERANDS]; /* bytes from base */
} dt__cursor;

/* tensors[0] is the output; all others have its shape, or one element. NULL ones take no part. */
void dt__iter_init(dt__iter *it, int count, dt_tensor *const *tensors);
void dt__cursor_seek(const dt__iter *it, dt__cursor *c, int64_t position);
/* Moves on by n, which is the length of a run. */
void dt__cursor_next(const dt__iter *it, dt__cursor *c, int64_t n);

/* The longest run from here of at most `limit` elements that ends before `end`. */
static inline int64_t dt__cursor_run(const dt__iter *it, const dt__cursor *c, int64_t limit,
                                     int64_t end) {
    int64_t n = end - c->position;
    if (n > limit) n = limit;
    if (it->by_rows && n > it->shape[0] - c->index[0]) n = it->shape[0] - c->index[0];
    return n;
}

static inline char *dt__cursor_at(const dt__iter *it, const dt__cursor *c, int k) {
    return it->base[k] + c->offset[k];
}

/* Whether runs of operand k are contiguous in memory, and whether all of a run is one element. */
static inline bool dt__iter_direct(const dt__iter *it, int k) {
    return it->linear[k] || (it->by_rows && it->strides[k][0] == it->size[k]);
}
static inline bool dt__iter_repeats(const dt__iter *it, int k) {
    return it->constant[k] || (it->by_rows && it->strides[k][0] == 0);
}

void dt__cursor_gather(const dt__iter *it, const dt__cursor *c, int k, int64_t n, void *buffer);
void dt__cursor_scatter(const dt__iter *it, const dt__cursor *c, int k, int64_t n,
                        const void *buffer);

/* n elements of `size` bytes, `stride` bytes apart, to or from contiguous memory. */
void dt__gather(int64_t size, int64_t n, void *to, const char *from, int64_t stride);
void dt__scatter(int64_t size, int64_t n, char *to, int64_t stride, const void *from);

/* n times the element of `size` bytes at `value`, which `to` must not cover. */
void dt__fill(int64_t size, int64_t n, void *to, const void *value);

#endif
