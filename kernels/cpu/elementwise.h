/* elementwise.h: what the element-wise kernels and ew_copy share. */
#ifndef DT_KERNELS_CPU_ELEMENTWISE_H
#define DT_KERNELS_CPU_ELEMENTWISE_H

#include "runtime/kernel.h"

#define DT__EW_SPLIT_NS 50e3   /* work above this is split into parts */
#define DT__EW_CACHE_BYTES 2e6 /* beyond this, memory bounds simple expressions */

dt_status dt__ew_run(const dt_call *call, const dt_part *part);
double dt__ew_cost_ns(const dt_call *call);
int dt__ew_parts(const dt_call *call, int threads);
int dt__ew_parts_for(double cost_ns, int64_t numel, int threads);

/* The positions [begin, end) of a part. */
static inline void dt__ew_range(int64_t numel, const dt_part *part, int64_t *begin, int64_t *end) {
    if (part->count <= 1) {
        *begin = 0;
        *end = numel;
        return;
    }
    int64_t blocks = numel / 64; /* the last part takes what is left of a block */
    *begin = blocks * part->index / part->count * 64;
    *end = part->index + 1 == part->count ? numel : blocks * (part->index + 1) / part->count * 64;
}

#endif
