/* elementwise.h: what the element-wise kernels, ew_copy and fused passes share. */
#ifndef DT_KERNELS_CPU_ELEMENTWISE_H
#define DT_KERNELS_CPU_ELEMENTWISE_H

#include "runtime/elementwise.h"
#include "runtime/kernel.h"

#define DT__EW_SPLIT_PASS_NS 16e3 /* a pass: somebody waits for it as a rule */
#define DT__EW_SPLIT_NS 50e3      /* work above this is split into parts */
#define DT__EW_CACHE_BYTES 2e6    /* beyond this, memory bounds simple expressions */

extern const dt_kernel dt_kernel_ew_copy;

dt_status dt__ew_run(const dt_call *call, const dt_part *part);
double dt__ew_cost_ns(const dt_call *call);
int dt__ew_parts(const dt_call *call, int threads);
int dt__ew_parts_for(double cost_ns, int64_t numel, int threads, double split_ns);

/* The expressions, dt_ew_family.row. */
#define EW1(group, name, ...) DT__EW_##name,
#define EW2 EW1
#define EW3 EW1
typedef enum dt__ew_row {
#include "kernels/ew.def"
    DT__EW_ROWS,
} dt__ew_row;
#undef EW1
#undef EW2
#undef EW3

/* What computes a call. */
typedef struct dt__ew_op {
    const dt_ew_family *family;
    dt_ew_tile tile;
    dt_dtype compute, math, tile_out; /* see runtime/elementwise.h */
} dt__ew_op;

typedef union dt__ew_slot { /* one element of any dtype */
    double f64;
    float f32;
    int64_t i64;
    unsigned char bytes[8];
} dt__ew_slot;

/* False when the expression is not defined for the call's dtype. */
bool dt__ew_op_find(const dt_call *call, dt__ew_op *op);

/* What input k is cast to, and what its tile function reads. */
static inline dt_dtype dt__ew_input_compute(const dt__ew_op *op, int k) {
    return k == 0 && (op->family->flags & DT_EW_COND) ? DT_BOOL : op->compute;
}
static inline dt_dtype dt__ew_input_math(const dt__ew_op *op, int k) {
    return k == 0 && (op->family->flags & DT_EW_COND) ? DT_BOOL : op->math;
}
/* Whether results are to be rounded to `compute` before anybody sees them. */
static inline bool dt__ew_rounds(const dt__ew_op *op) {
    return op->tile_out == DT_F32 && op->compute != op->math;
}

/* The dtypes through which an element goes, one cast each, at most two: of input k, which is t,
 * from `dtype` to what the tile function reads, and from what it writes to `want`. */
int dt__ew_input_casts(const dt__ew_op *op, int k, const dt_tensor *t, dt_dtype dtype,
                       dt_dtype *to);
int dt__ew_output_casts(const dt__ew_op *op, dt_dtype want, dt_dtype *to);

/* A number as the tile function reads it. */
void dt__ew_number(const dt__ew_op *op, int k, dt_scalar value, dt__ew_slot *to);
/* The call's parameters as the tile function reads them: its own, or *narrow. */
const dt_params *dt__ew_params(const dt__ew_op *op, const dt_call *call, dt_params *narrow);

/* Whether all of t is one element, expanded or alone. */
static inline bool dt__ew_one_element(const dt_tensor *t) {
    for (int d = 0; d < t->rank; d++)
        if (t->strides[d] != 0 && t->shape[d] != 1) return false;
    return true;
}

/* For one element: nanoseconds in L1, casts and strides included, and bytes of the operands. */
double dt__ew_compute_ns(const dt__ew_op *op, const dt_call *call, double *bytes);
/* Nanoseconds in which that many bytes go through one core. */
static inline double dt__ew_moved_ns(double bytes) {
    return bytes * (bytes > DT__EW_CACHE_BYTES ? 0.12 : 0.02);
}

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
