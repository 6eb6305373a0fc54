/* normalize.c: softmax, log_softmax, layer_norm and rms_norm.
 *
 * A row is what is normalised together: the elements along the softmax's dim, or the trailing dims
 * of a normalisation.  Contiguous rows of float and double are worked on in place; others are
 * gathered and widened into the part's piece of the scratch first.  Rows whose elements lie apart
 * while the rows themselves lie side by side (a softmax over dim 0) are taken BATCH at a time, so
 * that a cache line is read once.  Parts split the rows.
 */
#include <string.h>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/iter.h"
#include "kernels/cpu/reduce_plan.h"
#include "kernels/cpu/rows.h"
#include "runtime/assert.h"
#include "runtime/kernel.h"
#include "runtime/op.h"

static bool is_double(const dt_call *call) { return call->compute == DT_F64; }
static dt_dtype math_of(const dt_call *call) { return is_double(call) ? DT_F64 : DT_F32; }
static size_t aligned(int64_t bytes) { return ((size_t)bytes + 63) & ~(size_t)63; }

/* The dims that make up a row. */
static uint32_t row_mask(const dt_call *call) {
    const dt_tensor *in = dt_call_in(call, 0);
    if (call->op == DT_OP_softmax || call->op == DT_OP_log_softmax)
        return call->params.i[0] < 0 ? 0 : 1u << call->params.i[0];
    uint32_t all = in->rank ? (uint32_t)((1ull << in->rank) - 1) : 0;
    return all & ~(uint32_t)((1ull << (in->rank - call->params.i[0])) - 1);
}

static int64_t row_length(const dt_call *call) {
    const dt_tensor *in = dt_call_in(call, 0);
    uint32_t mask = row_mask(call);
    int64_t n = 1;
    for (int d = 0; d < in->rank; d++)
        if (mask >> d & 1) n *= in->shape[d];
    return n;
}

/* Writes a finished row of `math` to where the output has it. */
static void store_row(const dt__reduce_plan *to, char *base, dt_dtype dtype, dt_dtype math,
                      const char *row, char *narrow) {
    int64_t size = (int64_t)dt_dtype_size(dtype);
    int64_t inner = to->reduced.shape[to->reduced.rank - 1];
    int64_t step = to->reduced.strides[to->reduced.rank - 1];
    if (dtype != math) {
        dt_cast(to->elements, narrow, dtype, row, math);
        row = narrow;
    }
    for (int64_t from = 0; from < to->elements; from += inner) {
        char *at = base + dt__reduce_plan_offset(to, from);
        if (step == size)
            memcpy(at, row + from * size, (size_t)(inner * size));
        else
            dt__scatter(size, inner, at, step, row + from * size);
    }
}

typedef struct row_job {
    const dt_call *call;
    const dt__row_ops *ops;
    const void *weight, *bias; /* of the math dtype, contiguous */
} row_job;

static void compute_row(const row_job *j, const void *x, void *y, int64_t n) {
    switch (j->call->op) {
    case DT_OP_softmax:
        j->ops->softmax(x, y, n);
        break;
    case DT_OP_log_softmax:
        j->ops->log_softmax(x, y, n);
        break;
    case DT_OP_layer_norm:
        j->ops->layer_norm(x, y, n, j->weight, j->bias, j->call->params.f[0]);
        break;
    default:
        j->ops->rms_norm(x, y, n, j->weight, j->bias, j->call->params.f[0]);
        break;
    }
}

/* weight or bias in the math dtype: in place, or in `buffer`. */
static const void *affine(const dt_call *call, int k, int64_t n, char *buffer) {
    const dt_tensor *t = dt_call_in(call, k);
    if (t->contiguous && t->dtype == math_of(call)) return dt_tensor_data(t);
    dt__reduce_plan plan;
    dt__reduce_plan_init(&plan, t, t->rank ? (uint32_t)((1ull << t->rank) - 1) : 0);
    return dt__reduce_plan_gather(&plan, plan.data, 0, n, math_of(call), buffer);
}

/* ---- rows side by side
 * ---------------------------------------------------------------------------- */

#define BATCH 16     /* floats of a cache line */
#define BATCH_GAP 64 /* bytes between rows of a batch, so that they do not share a cache set */

static bool takes_batches(const dt_call *call, const dt__reduce_plan *from) {
    return from->columns && (dt_dtype)from->dtype == math_of(call);
}

/* How many rows from number k on lie side by side, BATCH at most. */
static int64_t batch_at(const dt__reduce_plan *plan, int64_t k, int64_t last) {
    int64_t count = plan->line - k % plan->line;
    if (count > BATCH) count = BATCH;
    return count < last - k ? count : last - k;
}

static void take_columns(const dt__reduce_plan *plan, const char *base, int64_t count, char *rows,
                         size_t pitch) {
    for (int64_t e = 0; e < plan->elements; e++) {
        const char *x = base + dt__reduce_plan_offset(plan, e);
        if (plan->dtype == DT_F32)
            for (int64_t r = 0; r < count; r++)
                ((float *)(rows + (size_t)r * pitch))[e] = ((const float *)x)[r];
        else
            for (int64_t r = 0; r < count; r++)
                ((double *)(rows + (size_t)r * pitch))[e] = ((const double *)x)[r];
    }
}

static void put_columns(const dt__reduce_plan *plan, char *base, int64_t count, const char *rows,
                        size_t pitch) {
    for (int64_t e = 0; e < plan->elements; e++) {
        char *y = base + dt__reduce_plan_offset(plan, e);
        if (plan->dtype == DT_F32)
            for (int64_t r = 0; r < count; r++)
                ((float *)y)[r] = ((const float *)(rows + (size_t)r * pitch))[e];
        else
            for (int64_t r = 0; r < count; r++)
                ((double *)y)[r] = ((const double *)(rows + (size_t)r * pitch))[e];
    }
}

/* Scratch of a part: a row, weight, bias, and a narrowed row or a batch. */
static size_t part_scratch(const dt_call *call, const dt__reduce_plan *from, size_t line) {
    return takes_batches(call, from) ? 3 * line + BATCH * (line + BATCH_GAP) : 4 * line;
}

static dt_status rows_run(const dt_call *call, const dt_part *part) {
    const dt_tensor *in = dt_call_in(call, 0), *out = dt_call_out(call, 0);
    int64_t n = row_length(call);
    if (in->numel == 0) return DT_OK;
    dt_dtype math = math_of(call), dtype = (dt_dtype)out->dtype;
    size_t line = aligned(n * (int64_t)dt_dtype_size(math));
    dt__reduce_plan from, to;
    dt__reduce_plan_init(&from, in, row_mask(call));
    char *row = (char *)part->scratch + part_scratch(call, &from, line) * (size_t)part->index;
    dt__reduce_plan_init(&to, out, row_mask(call));
    row_job j = {.call = call, .ops = dt__row_find(is_double(call))};
    int next = 1;
    bool normalizes = call->op == DT_OP_layer_norm || call->op == DT_OP_rms_norm;
    if (normalizes && (call->params.i[1] & 1)) j.weight = affine(call, next++, n, row + line);
    if (normalizes && (call->params.i[1] & 2)) j.bias = affine(call, next++, n, row + 2 * line);
    bool direct = dtype == math && to.reduced.rank == 1 &&
                  to.reduced.strides[0] == (int64_t)dt_dtype_size(dtype);
    int64_t first = from.outputs * part->index / part->count;
    int64_t last = from.outputs * (part->index + 1) / part->count;
    bool batches = takes_batches(call, &from);
    for (int64_t k = first; k < last;) {
        int64_t count = batches ? batch_at(&from, k, last) : 1;
        const char *base = dt__reduce_plan_base(&from, k);
        char *batch = row + 3 * line;
        bool put = count > 1 && !direct && to.columns && k % to.line + count <= to.line;
        if (count > 1) take_columns(&from, base, count, batch, line + BATCH_GAP);
        for (int64_t r = 0; r < count; r++) {
            char *own = count > 1 ? batch + (size_t)r * (line + BATCH_GAP) : row;
            const void *x = own;
            if (count == 1) x = dt__reduce_plan_gather(&from, base, 0, n, math, row);
            char *y = (char *)dt__reduce_plan_base(&to, k + r);
            compute_row(&j, x, direct ? y : own, n);
            if (!direct && !put) store_row(&to, y, dtype, math, own, row + 3 * line);
        }
        if (put)
            put_columns(&to, (char *)dt__reduce_plan_base(&to, k), count, batch, line + BATCH_GAP);
        k += count;
    }
    return DT_OK;
}

static double rows_cost(const dt_call *call) {
    const dt_tensor *in = dt_call_in(call, 0);
    bool exps = call->op == DT_OP_softmax || call->op == DT_OP_log_softmax;
    double each = is_double(call) ? (exps ? 6.0 : 1.0) : (exps ? 0.8 : 0.35);
    if (in->dtype != math_of(call)) each += 0.4;
    int64_t n = row_length(call);
    int64_t rows = n > 0 ? in->numel / n : 0;
    return 60 + (double)rows * 60 + each * (double)in->numel;
}

static int rows_parts(const dt_call *call, int threads) {
    int64_t n = row_length(call), rows = n > 0 ? dt_call_in(call, 0)->numel / n : 1;
    int64_t parts = (int64_t)(rows_cost(call) / 50000);
    if (parts > threads) parts = threads;
    if (parts > rows) parts = rows;
    return parts < 1 ? 1 : (int)parts;
}

static size_t rows_scratch(const dt_call *call, int parts) {
    dt__reduce_plan from;
    dt__reduce_plan_init(&from, dt_call_in(call, 0), row_mask(call));
    size_t line = aligned(row_length(call) * (int64_t)dt_dtype_size(math_of(call)));
    return (size_t)parts * part_scratch(call, &from, line);
}

#define KERNEL(name_)                                                                              \
    const dt_kernel dt_kernel_##name_ = {.name = #name_,                                           \
                                         .run = rows_run,                                          \
                                         .parts = rows_parts,                                      \
                                         .scratch_bytes = rows_scratch,                            \
                                         .cost_ns = rows_cost};

KERNEL(softmax)
KERNEL(log_softmax)
KERNEL(layer_norm)
KERNEL(rms_norm)
