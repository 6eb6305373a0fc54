/* reduce_arg.c: reductions that tell where the extremum is: argmax, argmin, max and min over a dim.
 *
 * Each output walks its elements block by block: the block's extremum comes from the vectorised row
 * function, and only a block that beats the best so far is searched for the place.
 *
 * A1: the first of equal extrema wins; a NaN beats everything, the first NaN wins (as torch has
 * it).
 */
#include <string.h>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cpu/reduce_plan.h"
#include "runtime/assert.h"
#include "runtime/kernel.h"
#include "runtime/op.h"

typedef enum arg_kind { ARG_F32, ARG_F64, ARG_I64 } arg_kind;

static arg_kind kind_of(dt_dtype dtype) {
    return dtype == DT_F64 ? ARG_F64 : dt_dtype_is_float(dtype) ? ARG_F32 : ARG_I64;
}

#define DEFINE_BEST(NAME, T)                                                                       \
    static bool better_##NAME(const void *a, const void *b, bool max) {                            \
        T x = *(const T *)a, y = *(const T *)b;                                                    \
        if (y != y) return false;                                                                  \
        return x != x || (max ? x > y : x < y);                                                    \
    }                                                                                              \
    static int64_t find_##NAME(const void *data, int64_t n, const void *value) {                   \
        const T *x = data;                                                                         \
        T v = *(const T *)value;                                                                   \
        for (int64_t i = 0; i < n; i++)                                                            \
            if (x[i] == v || (v != v && x[i] != x[i])) return i;                                   \
        return 0;                                                                                  \
    }

DEFINE_BEST(f32, float)
DEFINE_BEST(f64, double)
DEFINE_BEST(i64, int64_t)

static const struct arg_type {
    dt_dtype dtype;
    dt__acc acc;
    bool (*better)(const void *a, const void *b, bool max);
    int64_t (*find)(const void *data, int64_t n, const void *value);
} arg_types[] = {
    [ARG_F32] = {DT_F32, DT__ACC_F32, better_f32, find_f32},
    [ARG_F64] = {DT_F64, DT__ACC_F64, better_f64, find_f64},
    [ARG_I64] = {DT_I64, DT__ACC_I64, better_i64, find_i64},
};

static bool wants_max(const dt_call *call) {
    return call->op == DT_OP_argmax || call->op == DT_OP_max__dim;
}

static int64_t search(const dt__reduce_plan *plan, const struct arg_type *type, bool max,
                      int64_t output, void *best) {
    _Alignas(64) char buffer[DT__BLOCK * 8], value[8];
    const dt__reduce_ops *ops = dt__reduce_find(type->acc, max ? DT__RED_max : DT__RED_min);
    const char *base = dt__reduce_plan_base(plan, output);
    int64_t place = -1;
    for (int64_t from = 0; from < plan->elements; from += DT__BLOCK) {
        int64_t n = plan->elements - from < DT__BLOCK ? plan->elements - from : DT__BLOCK;
        const void *x = dt__reduce_plan_gather(plan, base, from, n, type->dtype, buffer);
        ops->row(x, n, 0, value);
        if (place >= 0 && !type->better(value, best, max)) continue;
        int64_t at = type->find(x, n, value);
        size_t size = dt_dtype_size(type->dtype);
        memcpy(best, (const char *)x + (size_t)at * size, size); /* of 0.0 and -0.0 the first one */
        place = from + at;
    }
    return place;
}

/* Outputs: the place alone (argmax), or the value and the place (max over a dim). */
static dt_status arg_run(const dt_call *call, const dt_part *part) {
    dt__reduce_plan plan;
    dt__reduce_plan_init(&plan, dt_call_in(call, 0), (uint32_t)call->params.i[0]);
    const struct arg_type *type = &arg_types[kind_of((dt_dtype)plan.dtype)];
    bool max = wants_max(call);
    dt_tensor *values = call->nout == 2 ? dt_call_out(call, 0) : NULL;
    int64_t *places = dt_tensor_data(dt_call_out(call, call->nout - 1));
    int64_t from = plan.outputs * part->index / part->count;
    int64_t to = plan.outputs * (part->index + 1) / part->count;
    for (int64_t k = from; k < to; k++) {
        _Alignas(16) char best[8];
        places[k] = search(&plan, type, max, k, best);
        if (!values) continue;
        char *out = dt_tensor_data(values);
        dt_cast(1, out + k * (int64_t)dt_dtype_size((dt_dtype)values->dtype),
                (dt_dtype)values->dtype, best, type->dtype);
    }
    return DT_OK;
}

static double arg_cost(const dt_call *call) {
    const dt_tensor *in = dt_call_in(call, 0);
    double each = in->contiguous && (in->dtype == DT_F32 || in->dtype == DT_F64) ? 0.3 : 1.0;
    return 60 + (double)in->numel * each + (double)dt_call_out(call, 0)->numel * 40;
}

static int arg_parts(const dt_call *call, int threads) {
    int64_t parts = (int64_t)(arg_cost(call) / 50000);
    int64_t outputs = dt_call_out(call, 0)->numel;
    if (parts > threads) parts = threads;
    if (parts > outputs) parts = outputs;
    return parts < 1 ? 1 : (int)parts;
}

#define KERNEL(name_)                                                                              \
    const dt_kernel dt_kernel_##name_ = {.name = #name_,                                           \
                                         .run = arg_run,                                           \
                                         .parts = arg_parts,                                       \
                                         .cost_ns = arg_cost,                                      \
                                         .flags = DT_KERNEL_CONTIGUOUS_OUT};

KERNEL(reduce_argmax)
KERNEL(reduce_argmin)
KERNEL(reduce_max_dim)
KERNEL(reduce_min_dim)
