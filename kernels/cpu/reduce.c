/* reduce.c: reductions over any set of dims: sum, mean, prod, norms, extrema, any, all, var,
 * logsumexp, and the ones that also tell where (argmax, max over a dim).
 *
 * The input's dims fall into kept and reduced ones.  Two walks give the same bits (reduce.h):
 *   rows     each output gathers its elements, block by block, into a buffer of the accumulator
 * type columns  where outputs lie side by side in memory: a tile of them takes one row after
 * another Parts split the outputs; when there are too few, they split the blocks, leave block
 * results in the scratch and finish() merges them in the tree's order.
 *
 * R1: the tree of an output depends on the number of its elements alone.
 * R2: halves are accumulated in float, integers in int64.
 */
#include "kernels/cpu/reduce.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/iter.h"
#include "kernels/cpu/reduce_plan.h"
#include "kernels/cpu/reduce_tail.h"
#include "runtime/assert.h"
#include "runtime/kernel.h"
#include "runtime/op.h"

#define TILE 64       /* outputs in one column tile; 64 lanes of them fit the L1 cache */
#define LEVELS_MAX 48 /* of the binary counter */

typedef struct dt__reduction {
    uint8_t reducer;
    uint8_t prepass; /* DT__PRE_*: what p is made of before the pass itself */
    double (*finish_f64)(double value, int64_t n, const dt_params *params); /* NULL: identity */
    float (*finish_f32)(float value, int64_t n, const dt_params *params);
    double empty; /* the result over no elements at all, before finish */
} dt__reduction;

enum { DT__PRE_NONE, DT__PRE_MEAN, DT__PRE_MAX };

static const dt__acc acc_of_dtype[DT_DTYPE_COUNT] = {
    [DT_BOOL] = DT__ACC_I64, [DT_U8] = DT__ACC_I64,   [DT_I8] = DT__ACC_I64,
    [DT_I16] = DT__ACC_I64,  [DT_I32] = DT__ACC_I64,  [DT_I64] = DT__ACC_I64,
    [DT_F16] = DT__ACC_F32,  [DT_BF16] = DT__ACC_F32, [DT_F32] = DT__ACC_F32,
    [DT_F64] = DT__ACC_F64};

static const dt_dtype dtype_of_acc[DT__ACC_COUNT] = {
    [DT__ACC_F32] = DT_F32, [DT__ACC_F64] = DT_F64, [DT__ACC_I64] = DT_I64, [DT__ACC_U8] = DT_BOOL};

/* ---- what each kernel reduces with ---------------------------------------------------------- */

static double mean_f64(double v, int64_t n, const dt_params *p) {
    (void)p;
    return v / (double)n;
}
static float mean_f32(float v, int64_t n, const dt_params *p) {
    (void)p;
    return v / (float)n;
}

static double freedom(int64_t n, const dt_params *p) {
    double d = (double)n - p->f[0];
    return d > 0 ? d : 0;
}
static double var_f64(double v, int64_t n, const dt_params *p) { return v / freedom(n, p); }
static float var_f32(float v, int64_t n, const dt_params *p) { return v / (float)freedom(n, p); }
static double std_f64(double v, int64_t n, const dt_params *p) { return sqrt(v / freedom(n, p)); }
static float std_f32(float v, int64_t n, const dt_params *p) {
    return sqrtf(v / (float)freedom(n, p));
}
static double sqrt_f64(double v, int64_t n, const dt_params *p) {
    (void)n, (void)p;
    return sqrt(v);
}
static float sqrt_f32(float v, int64_t n, const dt_params *p) {
    (void)n, (void)p;
    return sqrtf(v);
}
static double root_f64(double v, int64_t n, const dt_params *p) {
    (void)n;
    return pow(v, 1.0 / p->f[0]);
}
static float root_f32(float v, int64_t n, const dt_params *p) {
    (void)n;
    return powf(v, (float)(1.0 / p->f[0]));
}

static const dt__reduction red_sum = {.reducer = DT__RED_sum};
static const dt__reduction red_prod = {.reducer = DT__RED_prod, .empty = 1};
static const dt__reduction red_mean = {
    .reducer = DT__RED_sum, .finish_f64 = mean_f64, .finish_f32 = mean_f32};
static const dt__reduction red_max = {.reducer = DT__RED_max};
static const dt__reduction red_min = {.reducer = DT__RED_min, .empty = 1};
static const dt__reduction red_var = {.reducer = DT__RED_sqdiff,
                                      .prepass = DT__PRE_MEAN,
                                      .finish_f64 = var_f64,
                                      .finish_f32 = var_f32,
                                      .empty = NAN};
static const dt__reduction red_std = {.reducer = DT__RED_sqdiff,
                                      .prepass = DT__PRE_MEAN,
                                      .finish_f64 = std_f64,
                                      .finish_f32 = std_f32,
                                      .empty = NAN};
static const dt__reduction red_lse = {.reducer = DT__RED_sumexp, .prepass = DT__PRE_MAX};
static const dt__reduction norm_0 = {.reducer = DT__RED_count};
static const dt__reduction norm_1 = {.reducer = DT__RED_sumabs};
static const dt__reduction norm_2 = {
    .reducer = DT__RED_sumsq, .finish_f64 = sqrt_f64, .finish_f32 = sqrt_f32};
static const dt__reduction norm_inf = {.reducer = DT__RED_maxabs};
static const dt__reduction norm_minus_inf = {.reducer = DT__RED_minabs};
static const dt__reduction norm_p = {
    .reducer = DT__RED_sumpow, .finish_f64 = root_f64, .finish_f32 = root_f32};

static const dt__reduction *reduction_of(const dt_call *call) {
    const dt__reduction *red = call->kernel->family;
    if (red) return red;
    double p = call->params.f[0]; /* reduce_norm */
    return p == 2           ? &norm_2
           : p == 1         ? &norm_1
           : p == 0         ? &norm_0
           : p == INFINITY  ? &norm_inf
           : p == -INFINITY ? &norm_minus_inf
                            : &norm_p;
}

/* ---- values in the accumulator type --------------------------------------------------------- */

static size_t acc_size(dt__acc acc) { return dt_dtype_size(dtype_of_acc[acc]); }

static void acc_store(dt__acc acc, double value, void *out) {
    dt_scalar s = {.category = DT_CAT_FLOAT, .f = value};
    dt_scalar_store(s, dtype_of_acc[acc], out);
}

static double acc_load(dt__acc acc, const void *value) {
    return dt_scalar_f64(dt_scalar_load(dtype_of_acc[acc], value));
}

/* Merges block results in pairs as a binary counter carries; `count` are in already. */
typedef struct counter {
    char *levels; /* LEVELS_MAX values of `bytes` */
    int64_t bytes, n, count;
    const dt__reduce_ops *ops;
} counter;

static void counter_push(counter *c, void *value) {
    int level = 0;
    for (int64_t bits = c->count; bits & 1; bits >>= 1, level++) {
        char *older = c->levels + level * c->bytes;
        c->ops->merge(older, value, c->n);
        memcpy(value, older, (size_t)c->bytes);
    }
    memcpy(c->levels + level * c->bytes, value, (size_t)c->bytes);
    c->count++;
}

static void counter_result(counter *c, void *value) {
    c->ops->identity(value, c->n);
    bool first = true;
    int level = 0;
    for (int64_t bits = c->count; bits; bits >>= 1, level++) {
        if (!(bits & 1)) continue;
        char *older = c->levels + level * c->bytes;
        if (!first) c->ops->merge(older, value, c->n);
        memcpy(value, older, (size_t)c->bytes);
        first = false;
    }
}

/* ---- one call
 * ------------------------------------------------------------------------------------- */

typedef struct job {
    const dt_call *call;
    const dt__reduction *red;
    const dt__reduce_ops *ops;
    dt__acc acc;
    size_t size; /* of an accumulator */
    dt__reduce_plan plan;
    int64_t whole;         /* elements of an output; on a mesh there may be fewer of them here */
    int64_t blocks, tiles; /* tiles of outputs: 1 by rows, TILE by columns */
    int64_t tile_width;
} job;

static dt__acc acc_of_call(const dt_call *call) {
    bool logical = call->op == DT_OP_any || call->op == DT_OP_all;
    return logical ? DT__ACC_U8 : acc_of_dtype[call->compute];
}

static int64_t whole_of(const dt_call *call, const dt__reduce_plan *plan) {
    int64_t whole = call->params.i[2];
    return whole > plan->elements ? whole : plan->elements;
}

static void job_init(job *j, const dt_call *call) {
    j->call = call;
    j->red = reduction_of(call);
    j->acc = acc_of_call(call);
    j->ops = dt__reduce_find(j->acc, (dt__reducer)j->red->reducer);
    j->size = acc_size(j->acc);
    dt__reduce_plan_init(&j->plan, dt_call_in(call, 0), (uint32_t)call->params.i[0]);
    j->whole = whole_of(call, &j->plan);
    bool columns = j->plan.columns && j->red->prepass == DT__PRE_NONE;
    j->plan.columns = columns;
    j->tile_width = columns ? TILE : 1;
    int64_t lines = columns ? j->plan.outputs / j->plan.line : j->plan.outputs;
    j->tiles = columns ? lines * ((j->plan.line + TILE - 1) / TILE) : lines;
    j->blocks = (j->plan.elements + DT__BLOCK - 1) / DT__BLOCK;
}

/* First output of a tile, and how many it has. */
static int64_t tile_outputs(const job *j, int64_t tile, int64_t *first) {
    if (!j->plan.columns) {
        *first = tile;
        return 1;
    }
    int64_t per_line = (j->plan.line + TILE - 1) / TILE;
    int64_t line = tile / per_line, at = tile % per_line * TILE;
    *first = line * j->plan.line + at;
    return j->plan.line - at < TILE ? j->plan.line - at : TILE;
}

/* Elements [from, from + n) of one output as accumulators: in place where they are that already. */
static const void *row_elements(const job *j, const char *base, int64_t from, int64_t n,
                                void *buffer) {
    return dt__reduce_plan_gather(&j->plan, base, from, n, dtype_of_acc[j->acc], buffer);
}

static void block_by_rows(const job *j, const char *base, int64_t block, double p, void *out) {
    _Alignas(64) char buffer[DT__BLOCK * 8];
    int64_t from = block * DT__BLOCK, n = j->plan.elements - from;
    if (n > DT__BLOCK) n = DT__BLOCK;
    j->ops->row(row_elements(j, base, from, n, buffer), n, p, out);
}

static void block_by_columns(const job *j, const char *base, int64_t width, int64_t block, double p,
                             void *out) {
    _Alignas(64) char lanes[DT__LANES * TILE * 8], converted[TILE * 8];
    int64_t from = block * DT__BLOCK, n = j->plan.elements - from;
    if (n > DT__BLOCK) n = DT__BLOCK;
    int used = 1;
    while (used < DT__LANES && used < n) used *= 2;
    size_t line = j->size * TILE;
    j->ops->identity(lanes, (int64_t)used * TILE);
    dt_dtype from_dtype = (dt_dtype)j->plan.dtype, to_dtype = dtype_of_acc[j->acc];
    for (int64_t r = 0; r < n; r++) {
        const void *x = base + dt__reduce_plan_offset(&j->plan, from + r);
        if (from_dtype != to_dtype) {
            dt_cast(width, converted, to_dtype, x, from_dtype);
            x = converted;
        }
        j->ops->column(lanes + (size_t)(r % DT__LANES) * line, x, width, p);
    }
    for (int half = used / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            j->ops->merge(lanes + (size_t)l * line, lanes + (size_t)(l + half) * line, width);
    memcpy(out, lanes, j->size * (size_t)width);
}

static void reduce_block(const job *j, int64_t first, int64_t width, int64_t block, double p,
                         void *out) {
    const char *base = dt__reduce_plan_base(&j->plan, first);
    if (j->plan.columns)
        block_by_columns(j, base, width, block, p, out);
    else
        block_by_rows(j, base, block, p, out);
}

/* All blocks of one tile with the given ops. */
static void reduce_tile(const job *j, const dt__reduce_ops *ops, int64_t first, int64_t width,
                        double p, void *out) {
    if (j->blocks == 1) {
        job with = *j;
        with.ops = ops;
        reduce_block(&with, first, width, 0, p, out);
        return;
    }
    _Alignas(64) char levels[LEVELS_MAX * TILE * 8], value[TILE * 8];
    counter c = {levels, (int64_t)j->size * width, width, 0, ops};
    job with = *j;
    with.ops = ops;
    for (int64_t block = 0; block < j->blocks; block++) {
        reduce_block(&with, first, width, block, p, value);
        counter_push(&c, value);
    }
    counter_result(&c, out);
}

static double prepass(const job *j, int64_t first) {
    _Alignas(16) char value[8];
    if (j->red->prepass == DT__PRE_NONE) return j->call->params.f[0];
    dt__reducer reducer = j->red->prepass == DT__PRE_MEAN ? DT__RED_sum : DT__RED_max;
    reduce_tile(j, dt__reduce_find(j->acc, reducer), first, 1, 0, value);
    double v = acc_load(j->acc, value);
    if (j->red->prepass == DT__PRE_MEAN) return v / (double)j->plan.elements;
    return isinf(v) ? 0 : v; /* logsumexp: an infinite maximum must not give inf - inf */
}

/* What changes nothing, as a value of the outputs' dtype: of a part that has none of the elements.
 */
static void store_identity(const job *j, void *v) {
    j->ops->identity(v, 1);
    if (j->acc == DT__ACC_U8) acc_store(j->acc, j->red->empty, v); /* any: 0, all: 1 */
    if (j->acc != DT__ACC_I64) return;
    dt_dtype dtype = (dt_dtype)dt_call_out(j->call, 0)->dtype;
    int bits = dtype == DT_BOOL ? 1 : 8 * (int)dt_dtype_size(dtype);
    bool is_signed = dtype != DT_BOOL && dtype != DT_U8;
    int64_t greatest = (int64_t)(UINT64_MAX >> (64 - bits + is_signed));
    if (j->red->reducer == DT__RED_max) *(int64_t *)v = is_signed ? -greatest - 1 : 0;
    if (j->red->reducer == DT__RED_min) *(int64_t *)v = greatest;
}

static void finish_values(const job *j, void *values, int64_t n, double p) {
    for (int64_t k = 0; k < n; k++) {
        char *v = (char *)values + (size_t)k * j->size;
        if (j->whole == 0)
            acc_store(j->acc, j->red->empty, v);
        else if (j->plan.elements == 0)
            store_identity(j, v);
        if (j->red->prepass == DT__PRE_MAX)
            acc_store(j->acc, log(acc_load(j->acc, v)) + p, v);
        else if (j->acc == DT__ACC_F32 && j->red->finish_f32)
            *(float *)v = j->red->finish_f32(*(float *)v, j->whole, &j->call->params);
        else if (j->acc == DT__ACC_F64 && j->red->finish_f64)
            *(double *)v = j->red->finish_f64(*(double *)v, j->whole, &j->call->params);
    }
}

static void write_outputs(const job *j, int64_t first, int64_t n, void *values, double p) {
    finish_values(j, values, n, p);
    const dt_tensor *out = dt_call_out(j->call, 0);
    char *to = (char *)dt_tensor_data(out) + first * (int64_t)dt_dtype_size((dt_dtype)out->dtype);
    dt_cast(n, to, (dt_dtype)out->dtype, values, dtype_of_acc[j->acc]);
}

static void tile_to_output(const job *j, int64_t tile) {
    _Alignas(64) char values[TILE * 8];
    int64_t first, width = tile_outputs(j, tile, &first);
    double p = 0;
    if (j->plan.elements > 0) {
        p = prepass(j, first);
        reduce_tile(j, j->ops, first, width, p, values);
    }
    write_outputs(j, first, width, values, p);
}

/* Too few tiles for the parts: split blocks instead. Prepasses need all elements first. */
static bool splits_blocks(const job *j, int parts) {
    return parts > 1 && j->tiles < parts && j->red->prepass == DT__PRE_NONE && j->blocks >= parts;
}

static dt_status reduce_run(const dt_call *call, const dt_part *part) {
    job j;
    job_init(&j, call);
    if (!splits_blocks(&j, part->count)) {
        int64_t from = j.tiles * part->index / part->count;
        int64_t to = j.tiles * (part->index + 1) / part->count;
        for (int64_t tile = from; tile < to; tile++) tile_to_output(&j, tile);
        return DT_OK;
    }
    int64_t from = j.blocks * part->index / part->count;
    int64_t to = j.blocks * (part->index + 1) / part->count;
    for (int64_t tile = 0; tile < j.tiles; tile++) {
        int64_t first, width = tile_outputs(&j, tile, &first);
        for (int64_t block = from; block < to; block++) {
            char *value = (char *)part->scratch + (size_t)(first + block * j.plan.outputs) * j.size;
            reduce_block(&j, first, width, block, call->params.f[0], value);
        }
    }
    return DT_OK;
}

/* All outputs, from the values of their blocks. */
static void merge_blocks(const job *j, const char *values) {
    _Alignas(64) char levels[LEVELS_MAX * TILE * 8], value[TILE * 8];
    for (int64_t tile = 0; tile < j->tiles; tile++) {
        int64_t first, width = tile_outputs(j, tile, &first);
        counter c = {levels, (int64_t)j->size * width, width, 0, j->ops};
        for (int64_t block = 0; block < j->blocks; block++) {
            memcpy(value, values + (size_t)(first + block * j->plan.outputs) * j->size,
                   (size_t)c.bytes);
            counter_push(&c, value);
        }
        counter_result(&c, value);
        write_outputs(j, first, width, value, j->call->params.f[0]);
    }
}

static dt_status reduce_finish(const dt_call *call, const dt_part *part) {
    job j;
    job_init(&j, call);
    if (!splits_blocks(&j, part->count)) return DT_OK;
    merge_blocks(&j, part->scratch);
    return DT_OK;
}

/* ---- the end of a fused pass ---------------------------------------------------------------- */

/* As job_init for rows of a contiguous input, which may have no memory. False: it is another. */
static bool tail_job(const dt_call *call, job *j) {
    if (call->kernel->run != reduce_run) return false;
    const dt_tensor *in = dt_call_in(call, 0);
    uint32_t mask = (uint32_t)call->params.i[0];
    bool kept = false; /* seen a kept dim, from the innermost on */
    j->plan.outputs = j->plan.elements = 1;
    for (int d = in->rank - 1; d >= 0; d--) {
        bool reduced = mask >> d & 1;
        if (reduced && kept && in->shape[d] != 1) return false;
        if (!reduced && in->shape[d] != 1) kept = true;
        *(reduced ? &j->plan.elements : &j->plan.outputs) *= in->shape[d];
    }
    j->call = call;
    j->whole = whole_of(call, &j->plan);
    j->red = reduction_of(call);
    j->acc = acc_of_call(call);
    j->ops = dt__reduce_find(j->acc, (dt__reducer)j->red->reducer);
    j->size = acc_size(j->acc);
    j->plan.columns = false;
    j->blocks = (j->plan.elements + DT__BLOCK - 1) / DT__BLOCK;
    j->tiles = j->plan.outputs;
    j->tile_width = 1;
    return in->contiguous && j->plan.elements > 0 && j->red->prepass == DT__PRE_NONE;
}

bool dt__reduce_tail_of(const dt_call *call, dt__reduce_tail *tail) {
    job j;
    if (!tail_job(call, &j)) return false;
    *tail = (dt__reduce_tail){.ops = j.ops,
                              .p = call->params.f[0],
                              .dtype = dtype_of_acc[j.acc],
                              .size = (int64_t)j.size,
                              .outputs = j.plan.outputs,
                              .elements = j.plan.elements,
                              .blocks = j.blocks};
    return true;
}

void dt__reduce_tail_write(const dt_call *call, int64_t first, int64_t n, void *values) {
    job j;
    bool tail = tail_job(call, &j);
    DT_ASSERT(tail && j.blocks == 1);
    write_outputs(&j, first, n, values, call->params.f[0]);
}

void dt__reduce_tail_merge(const dt_call *call, const void *values) {
    job j;
    bool tail = tail_job(call, &j);
    DT_ASSERT(tail);
    merge_blocks(&j, values);
}

static double reduce_cost(const dt_call *call) {
    const dt_tensor *in = dt_call_in(call, 0), *out = dt_call_out(call, 0);
    const dt__reduction *red = reduction_of(call);
    double each = in->dtype == DT_F32 || in->dtype == DT_F64 ? 0.1 : 0.4;
    if (!in->contiguous) each += 0.4;
    if (red->prepass != DT__PRE_NONE) each *= 2;
    if (red->reducer == DT__RED_sumexp) each += 0.5;
    if (red->reducer == DT__RED_sumpow) each += 4;
    return 60 + (double)in->numel * each + (double)out->numel * 12;
}

static int reduce_parts(const dt_call *call, int threads) {
    int64_t parts = (int64_t)(reduce_cost(call) / 50000);
    if (parts > threads) parts = threads;
    return parts < 1 ? 1 : (int)parts;
}

static size_t reduce_scratch(const dt_call *call, int parts) {
    job j;
    job_init(&j, call);
    if (!splits_blocks(&j, parts)) return 0;
    return (size_t)(j.blocks * j.plan.outputs) * j.size;
}

#define KERNEL(name_, family_)                                                                     \
    const dt_kernel dt_kernel_##name_ = {.name = #name_,                                           \
                                         .run = reduce_run,                                        \
                                         .parts = reduce_parts,                                    \
                                         .scratch_bytes = reduce_scratch,                          \
                                         .finish = reduce_finish,                                  \
                                         .cost_ns = reduce_cost,                                   \
                                         .family = family_,                                        \
                                         .flags = DT_KERNEL_CONTIGUOUS_OUT};

KERNEL(reduce_sum, &red_sum)
KERNEL(reduce_prod, &red_prod)
KERNEL(reduce_mean, &red_mean)
KERNEL(reduce_amax, &red_max)
KERNEL(reduce_amin, &red_min)
KERNEL(reduce_any, &red_max)
KERNEL(reduce_all, &red_min)
KERNEL(reduce_var, &red_var)
KERNEL(reduce_std, &red_std)
KERNEL(reduce_logsumexp, &red_lse)
KERNEL(reduce_norm, NULL)
