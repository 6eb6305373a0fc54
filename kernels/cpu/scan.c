/* scan.c: cumsum and cumprod along one dim.
 *
 * A line (all elements along the dim) is walked in order with one accumulator: float64 for floats,
 * as torch accumulates there, int64 for integers.  Parts split the lines.
 */
#include <string.h>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/iter.h"
#include "kernels/cpu/reduce_plan.h"
#include "runtime/kernel.h"
#include "runtime/op.h"

#define CHUNK 1024

typedef struct scan_state {
    bool product;
    double f;
    uint64_t i; /* wraps around, as torch's integers do */
} scan_state;

static void scan_floats(scan_state *s, double *x, int64_t n) {
    for (int64_t k = 0; k < n; k++) x[k] = s->f = s->product ? s->f * x[k] : s->f + x[k];
}

static void scan_integers(scan_state *s, uint64_t *x, int64_t n) {
    for (int64_t k = 0; k < n; k++) x[k] = s->i = s->product ? s->i * x[k] : s->i + x[k];
}

typedef struct line {
    const char *in;
    char *out;
    int64_t n, in_step, out_step; /* bytes */
    dt_dtype in_dtype, out_dtype;
} line;

static void scan_line(const line *l, bool product) {
    _Alignas(64) char raw[CHUNK * 8], wide[CHUNK * 8], result[CHUNK * 8];
    int64_t in_size = (int64_t)dt_dtype_size(l->in_dtype);
    int64_t out_size = (int64_t)dt_dtype_size(l->out_dtype);
    bool floats = dt_dtype_is_float(l->out_dtype);
    dt_dtype math = floats ? DT_F64 : DT_I64;
    scan_state s = {product, product ? 1 : 0, product ? 1 : 0};
    for (int64_t from = 0; from < l->n; from += CHUNK) {
        int64_t n = l->n - from < CHUNK ? l->n - from : CHUNK;
        const char *at = l->in + from * l->in_step;
        if (l->in_step != in_size) {
            dt__gather(in_size, n, raw, at, l->in_step);
            at = raw;
        }
        dt_cast(n, wide, math, at, l->in_dtype);
        if (floats)
            scan_floats(&s, (double *)wide, n);
        else
            scan_integers(&s, (uint64_t *)wide, n);
        char *to = l->out + from * l->out_step;
        if (l->out_step == out_size) {
            dt_cast(n, to, l->out_dtype, wide, math);
        } else {
            dt_cast(n, result, l->out_dtype, wide, math);
            dt__scatter(out_size, n, to, l->out_step, result);
        }
    }
}

static dt_status scan_run(const dt_call *call, const dt_part *part) {
    const dt_tensor *in = dt_call_in(call, 0), *out = dt_call_out(call, 0);
    int d = (int)call->params.i[1]; /* -1: a 0-dim tensor */
    uint32_t mask = d < 0 ? 0 : 1u << d;
    dt__reduce_plan from, to;
    dt__reduce_plan_init(&from, in, mask);
    dt__reduce_plan_init(&to, out, mask);
    line l = {.n = d < 0 ? 1 : in->shape[d],
              .in_dtype = (dt_dtype)in->dtype,
              .out_dtype = (dt_dtype)out->dtype};
    l.in_step = d < 0 ? 0 : in->strides[d] * (int64_t)dt_dtype_size(l.in_dtype);
    l.out_step = d < 0 ? 0 : out->strides[d] * (int64_t)dt_dtype_size(l.out_dtype);
    int64_t first = from.outputs * part->index / part->count;
    int64_t last = from.outputs * (part->index + 1) / part->count;
    for (int64_t k = first; k < last && in->numel > 0; k++) {
        l.in = dt__reduce_plan_base(&from, k);
        l.out = (char *)dt__reduce_plan_base(&to, k);
        scan_line(&l, call->op == DT_OP_cumprod);
    }
    return DT_OK;
}

static double scan_cost(const dt_call *call) {
    return 60 + 2.5 * (double)dt_call_in(call, 0)->numel;
}

static int scan_parts(const dt_call *call, int threads) {
    const dt_tensor *in = dt_call_in(call, 0);
    int d = (int)call->params.i[1];
    int64_t lines = d < 0 || in->shape[d] == 0 ? 1 : in->numel / in->shape[d];
    int64_t parts = (int64_t)(scan_cost(call) / 50000);
    if (parts > threads) parts = threads;
    if (parts > lines) parts = lines;
    return parts < 1 ? 1 : (int)parts;
}

#define KERNEL(name_)                                                                              \
    const dt_kernel dt_kernel_##name_ = {                                                          \
        .name = #name_, .run = scan_run, .parts = scan_parts, .cost_ns = scan_cost};

KERNEL(scan_sum)
KERNEL(scan_prod)
