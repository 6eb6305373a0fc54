/* reduce_plan.h: an input's dims sorted into kept and reduced ones, and how to walk them.
 *
 * Outputs are numbered in the row-major order of the kept dims, the elements of one output in that
 * of the reduced dims; neighbouring dims that step evenly are merged.  Strides and offsets are in
 * bytes.
 */
#ifndef DT_KERNELS_CPU_REDUCE_PLAN_H
#define DT_KERNELS_CPU_REDUCE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/tensor.h"

typedef struct dt__dims_walk {
    int rank; /* outermost first */
    int64_t shape[DT_RANK_MAX], strides[DT_RANK_MAX];
} dt__dims_walk;

typedef struct dt__reduce_plan {
    dt__dims_walk kept, reduced;
    int64_t outputs, elements; /* how many outputs, and input elements for each */
    int64_t line;              /* outputs side by side in memory (columns) */
    bool columns;              /* walking rows of outputs is the faster way */
    uint8_t dtype;
    const char *data;
} dt__reduce_plan;

/* `mask`: bit d is set when dim d of t is reduced. */
void dt__reduce_plan_init(dt__reduce_plan *plan, const dt_tensor *t, uint32_t mask);

/* Byte offset of number `at` in a walk. */
int64_t dt__dims_walk_offset(const dt__dims_walk *walk, int64_t at);

/* Address of the first element of an output. */
static inline const char *dt__reduce_plan_base(const dt__reduce_plan *plan, int64_t output) {
    return plan->data + dt__dims_walk_offset(&plan->kept, output);
}

static inline int64_t dt__reduce_plan_offset(const dt__reduce_plan *plan, int64_t element) {
    return plan->reduced.rank == 1 ? element * plan->reduced.strides[0]
                                   : dt__dims_walk_offset(&plan->reduced, element);
}

/* Elements [from, from + n) of the output at `base`, contiguous and of dtype `to`: where they are
 * in memory when that holds already, else in `buffer`. */
const void *dt__reduce_plan_gather(const dt__reduce_plan *plan, const char *base, int64_t from,
                                   int64_t n, dt_dtype to, void *buffer);

#endif
