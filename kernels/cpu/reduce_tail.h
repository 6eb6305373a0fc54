/* reduce_tail.h: a reduction of rows that somebody else walks: the last call of a fused pass.
 *
 * The outputs are numbered in row-major order; each has `elements` of the pass, one after the
 * other, in blocks of DT__BLOCK (the last one shorter).  The caller reduces each block with `row`,
 * then hands the values on: at once where an output has one block, else all in the end.
 */
#ifndef DT_KERNELS_CPU_REDUCE_TAIL_H
#define DT_KERNELS_CPU_REDUCE_TAIL_H

#include "kernels/cpu/reduce.h"
#include "runtime/kernel.h"

typedef struct dt__reduce_tail {
    const dt__reduce_ops *ops;
    double p;                          /* parameter of ops->row */
    dt_dtype dtype;                    /* in which elements are to be given */
    int64_t size;                      /* of one */
    int64_t outputs, elements, blocks; /* blocks of one output */
} dt__reduce_tail;

/* Whether the call is a reduction that can be walked so: of the trailing dims of a contiguous
 * input. *tail is filled in when it is. */
bool dt__reduce_tail_of(const dt_call *call, dt__reduce_tail *tail);

/* Writes outputs [first, first + n) of one block each; changes `values`. */
void dt__reduce_tail_write(const dt_call *call, int64_t first, int64_t n, void *values);

/* Writes all outputs; the value of block b of output o is at values[b * outputs + o]. */
void dt__reduce_tail_merge(const dt_call *call, const void *values);

#endif
