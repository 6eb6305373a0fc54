/* elementwise.h: what dt_kernel.family points at for kernels flagged DT_KERNEL_ELEMENTWISE.
 *
 * A tile function evaluates one expression over a run of elements that lie next to each other in
 * memory.  The kernels themselves, the inline lane and the fusion pass call the same functions, so
 * that whatever takes part in computing an element, its bits are the same.
 *
 * Types: an expression runs in dt_call.compute.  Most expressions have no tile function for f16 and
 * bf16: operands are widened to f32 (the `math` dtype), and the result is rounded once to
 * `compute`.
 *
 * I1: a tile function reads in[k][i] (step[k] == 1) or in[k][0] (step[k] == 0) for 0 <= i < n, n >
 *     0, and writes out[i].  out may be exactly an input of step 1 and the same element size; any
 *     other overlap is the caller's fault.
 * I2: the bits of out[i] depend on the operands' values at i and the parameters alone.
 * I3: a tile function never fails.  Where values can be illegal (DT_EW_DIVISOR) it writes something
 *     and the caller asks dt_ew_family.check first.
 */
#ifndef DT_RUNTIME_ELEMENTWISE_H
#define DT_RUNTIME_ELEMENTWISE_H

#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/kernel.h"

#define DT_EW_INPUTS_MAX 3

typedef void (*dt_ew_tile)(int64_t n, void *out, const void *const *in, const int64_t *step,
                           const dt_params *params);

enum {
    DT_EW_DIVISOR = 1u << 0, /* integer: a 0 in input 1 is an error (ZeroDivisionError) */
    DT_EW_POWER = 1u << 1,   /* integer: a negative number as exponent is an error */
    DT_EW_COND = 1u << 2,    /* input 0 is bool, whatever `compute` is */
    /* Halves: a number operand stays f32 instead of being rounded; a call with one runs the f32
     * tile even where there is one for halves. */
    DT_EW_WIDE_NUMBER = 1u << 3,
    DT_EW_BOOL_OUT = 1u << 4,     /* writes bool */
    DT_EW_NARROW_PARAM = 1u << 5, /* halves: params.f[0] is rounded to `compute`, as torch does */
};

typedef struct dt_ew_family {
    const char *name;
    uint8_t nin;
    uint8_t flags;
    uint8_t row;                /* its place in kernels/ew.def */
    float cost;                 /* about ns for 16 elements of f32 with AVX-512, in L1 */
    const dt_ew_tile *tiles[3]; /* by instruction set, then by dtype; NULL where there is none */
    /* The tile function for `compute` on this CPU, or NULL when the expression is not defined
     * there. *math: the dtype of its inputs (bool for input 0 under DT_EW_COND); *out: of its
     * output. */
    dt_ew_tile (*lookup)(const struct dt_ew_family *family, dt_dtype compute, dt_dtype *math,
                         dt_dtype *out);
    /* Are these n values of input 1 (of the math dtype) legal? DT_OK or the error; NULL: always. */
    dt_status (*check)(dt_dtype math, int64_t n, const void *in1, int64_t step);
} dt_ew_family;

/* The family that computes this call: the kernel's own, but pow with a number like 2 or 0.5 as its
 * exponent is a product or a root, as in torch. */
const dt_ew_family *dt_ew_resolve(const dt_call *call);

/* A tile function that works on arrays of `compute` itself, for callers without buffers; NULL where
 * there is none (halves, as a rule). */
static inline dt_ew_tile dt_ew_tile_lookup(dt_op_id op, dt_dtype compute, dt_dtype *out_dtype) {
    const dt_kernel *kernel = dt_device_cpu()->kernels[op];
    if (kernel == NULL || !(kernel->flags & DT_KERNEL_ELEMENTWISE)) return NULL;
    const dt_ew_family *family = kernel->family;
    dt_dtype math;
    dt_ew_tile tile = family->lookup(family, compute, &math, out_dtype);
    return math == compute ? tile : NULL;
}

#endif
