/* random.c: the kernels of random creation ops.
 *
 * Params (rules_create.c): i[0] seed, i[1] first counter, f[0..1] low and high or mean and std,
 * i[2..3] low and high of integers, i[4] how many levels this part of a whole has, each of a number
 * of elements and their distance in the whole (i[5], i[6] the innermost).  Halves and small
 * integers are drawn wide and converted.
 */
#include "kernels/cpu/random.h"

#include "kernels/cpu/cast.h"
#include "runtime/kernel.h"
#include "runtime/op.h"

#define CHUNK 1024

/* The half before `high` in the direction of `low`, as a float. */
static float half_below(dt_dtype dtype, double low, double high) {
    if (dtype == DT_F16) {
        dt_f16 h = dt_f32_to_f16((float)high);
        float value = dt_f16_to_f32(h);
        if (!(low < value)) return (float)low;
        h.bits = (uint16_t)(value == 0 ? 0x8001 : value > 0 ? h.bits - 1 : h.bits + 1);
        return dt_f16_to_f32(h);
    }
    dt_bf16 h = dt_f32_to_bf16((float)high);
    float value = dt_bf16_to_f32(h);
    if (!(low < value)) return (float)low;
    h.bits = (uint16_t)(value == 0 ? 0x8001 : value > 0 ? h.bits - 1 : h.bits + 1);
    return dt_bf16_to_f32(h);
}

/* A half has fewer bits than a draw: cut off before it is rounded, and kept below `high` where
 * halves are coarser than the draw. */
static void uniform_half(const dt__random_ops *ops, const dt_params *p, uint64_t counter, int64_t n,
                         dt_dtype dtype, float *out) {
    const float grid = dtype == DT_F16 ? 2048.0f : 256.0f;
    ops->uniform_f32((uint64_t)p->i[0], counter, n, 0, 1, out);
    const float low = (float)p->f[0], span = (float)p->f[1] - low;
    const float last = half_below(dtype, p->f[0], p->f[1]);
    for (int64_t k = 0; k < n; k++) {
        float x = (float)(int32_t)(out[k] * grid) * (1.0f / grid) * span + low;
        out[k] = x < last ? x : last;
    }
}

/* n elements from number `from` of the whole on, counted from the part's first one. */
static void draw_run(const dt_call *call, int64_t from, int64_t n, dt_dtype math, void *out) {
    const dt__random_ops *ops = dt__random_find();
    const dt_params *p = &call->params;
    uint64_t seed = (uint64_t)p->i[0], counter = (uint64_t)p->i[1] + (uint64_t)from;
    bool wide = math == DT_F64;
    if (math == DT_I64)
        ops->integer(seed, counter, n, p->i[2], p->i[3], out);
    else if (call->op == DT_OP_rand__new && (call->compute == DT_F16 || call->compute == DT_BF16))
        uniform_half(ops, p, counter, n, (dt_dtype)call->compute, out);
    else if (call->op == DT_OP_rand__new)
        (wide ? ops->uniform_f64 : ops->uniform_f32)(seed, counter, n, p->f[0], p->f[1], out);
    else
        (wide ? ops->normal_f64 : ops->normal_f32)(seed, counter, n, p->f[0], p->f[1], out);
}

static int64_t place_in_whole(const dt_params *p, int64_t index) {
    int64_t place = 0;
    for (int64_t k = 0; k < p->i[4]; k++) {
        place += index % p->i[5 + 2 * k] * p->i[6 + 2 * k];
        index /= p->i[5 + 2 * k];
    }
    return place;
}

/* n elements of this part from number `from` on, in runs that are in one piece in the whole. */
static void draw(const dt_call *call, int64_t from, int64_t n, dt_dtype math, void *out) {
    const dt_params *p = &call->params;
    if (p->i[4] == 0) {
        draw_run(call, from, n, math, out);
        return;
    }
    int64_t row = p->i[6] == 1 ? p->i[5] : 1, size = (int64_t)dt_dtype_size(math);
    for (char *to = out; n > 0;) {
        int64_t run = row - from % row;
        if (run > n) run = n;
        draw_run(call, place_in_whole(p, from), run, math, to);
        to += run * size;
        from += run;
        n -= run;
    }
}

static dt_status random_run(const dt_call *call, const dt_part *part) {
    const dt_tensor *out = dt_call_out(call, 0);
    dt_dtype dtype = (dt_dtype)out->dtype;
    dt_dtype math = call->op == DT_OP_randint__new ? DT_I64 : dtype == DT_F64 ? DT_F64 : DT_F32;
    int64_t size = (int64_t)dt_dtype_size(dtype);
    int64_t first = out->numel * part->index / part->count;
    int64_t last = out->numel * (part->index + 1) / part->count;
    char *to = dt_tensor_data(out);
    if (dtype == math) {
        draw(call, first, last - first, math, to + first * size);
        return DT_OK;
    }
    _Alignas(64) char wide[CHUNK * 8];
    for (int64_t from = first; from < last; from += CHUNK) {
        int64_t n = last - from < CHUNK ? last - from : CHUNK;
        draw(call, from, n, math, wide);
        dt_cast(n, to + from * size, dtype, wide, math);
    }
    return DT_OK;
}

static double random_cost(const dt_call *call) {
    double each = call->op == DT_OP_randn__new ? 4 : 2;
    if (call->compute == DT_F64 && call->op == DT_OP_randn__new) each = 30;
    return 60 + each * (double)dt_call_out(call, 0)->numel;
}

static int random_parts(const dt_call *call, int threads) {
    int64_t parts = (int64_t)(random_cost(call) / 50000);
    if (parts > threads) parts = threads;
    return parts < 1 ? 1 : (int)parts;
}

#define KERNEL(name_)                                                                              \
    const dt_kernel dt_kernel_##name_ = {.name = #name_,                                           \
                                         .run = random_run,                                        \
                                         .parts = random_parts,                                    \
                                         .cost_ns = random_cost,                                   \
                                         .flags = DT_KERNEL_CONTIGUOUS_OUT};

KERNEL(random_uniform)
KERNEL(random_normal)
KERNEL(random_int)
