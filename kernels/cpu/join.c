/* join.c: cat and lookups by index: embedding, index_select, gather.
 *
 * cat hands each input to the copy kernel with a window of the output as its target.  Lookups check
 * every index before they use it: one out of range fails the task (an error of the value).
 *
 * A device may have some of the rows only: of others it gives what leaves a sum as it is.
 *
 * J1: no byte outside the looked-up tensor is ever read.
 */
#include <string.h>

#include "kernels/cpu/iter.h"
#include "kernels/cpu/reduce_plan.h"
#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "runtime/kernel.h"
#include "runtime/op.h"

extern const dt_kernel dt_kernel_ew_copy;

/* ---- cat ------------------------------------------------------------------------------------ */

/* t narrowed to [start, start + size) of dim, on the caller's stack. Its count of references is
 * left out: others change t's meanwhile. */
static void window_of(const dt_tensor *t, int dim, int64_t start, int64_t size, dt_tensor *window) {
    window->dtype = t->dtype;
    window->rank = t->rank;
    window->flags = 0;
    window->storage = t->storage;
    window->offset = t->offset;
    window->numel = 1;
    memcpy(window->shape, t->shape, sizeof(int64_t) * t->rank);
    memcpy(window->strides, t->strides, sizeof(int64_t) * t->rank);
    if (t->rank > 0) {
        window->shape[dim] = size;
        window->offset += start * t->strides[dim];
    }
    for (int d = 0; d < t->rank; d++) window->numel *= window->shape[d];
    window->contiguous = dt_shape_is_contiguous(t->rank, window->shape, window->strides);
}

static dt_status copy_window(dt_tensor *to, dt_tensor *from) {
    if (to->numel == 0) return DT_OK;
    dt_call copy = {.kernel = &dt_kernel_ew_copy,
                    .op = DT_OP_copy__to,
                    .compute = from->dtype,
                    .nout = 1,
                    .nin = 1,
                    .operands = copy.operands_inline,
                    .operands_inline = {to, from}};
    dt_part whole = {.index = 0, .count = 1};
    return dt_kernel_ew_copy.run(&copy, &whole);
}

static dt_status cat_run(const dt_call *call, const dt_part *part) {
    const dt_tensor *out = dt_call_out(call, 0);
    int dim = (int)call->params.i[0];
    int64_t start = 0;
    int from = (int)((int64_t)call->nin * part->index / part->count);
    int to = (int)((int64_t)call->nin * (part->index + 1) / part->count);
    for (int k = 0; k < to; k++) {
        dt_tensor *in = dt_call_in(call, k);
        if (k >= from && in->numel > 0) {
            dt_tensor window;
            window_of(out, dim, start, in->shape[dim], &window);
            DT_TRY(copy_window(&window, in));
        }
        start += in->shape[dim];
    }
    return DT_OK;
}

static double bytes_cost(const dt_tensor *out, double each_ns) {
    return 60 + each_ns * (double)out->numel * (double)dt_dtype_size((dt_dtype)out->dtype);
}

static double cat_cost(const dt_call *call) {
    return bytes_cost(dt_call_out(call, 0), 0.1) + 60.0 * call->nin;
}

static int by_cost(double cost_ns, int64_t pieces, int threads) {
    int64_t parts = (int64_t)(cost_ns / 50000);
    if (parts > threads) parts = threads;
    if (parts > pieces) parts = pieces;
    return parts < 1 ? 1 : (int)parts;
}

static int cat_parts(const dt_call *call, int threads) {
    return by_cost(cat_cost(call), call->nin, threads);
}

const dt_kernel dt_kernel_cat = {
    .name = "cat", .run = cat_run, .parts = cat_parts, .cost_ns = cat_cost};

/* ---- lookups
 * ------------------------------------------------------------------------------------- */

static inline int64_t index_at(const dt_tensor *index, const char *at) {
    return index->dtype == DT_I32 ? *(const int32_t *)at : *(const int64_t *)at;
}

/* Number k of an index tensor, row-major. */
static int64_t index_number(const dt__reduce_plan *plan, const dt_tensor *index, int64_t k) {
    return index_at(index, plan->data + dt__reduce_plan_offset(plan, k));
}

static void plan_all(dt__reduce_plan *plan, const dt_tensor *t) {
    dt__reduce_plan_init(plan, t, t->rank ? (uint32_t)((1ull << t->rank) - 1) : 0);
}

static dt_status out_of_range(int64_t value) {
    (void)value;
    return dt_fail(DT_E_INDEX, "index out of range in self");
}

/* Of rows that are not here, but exist: what a sum leaves as it is. */
static void absent_value(dt_dtype dtype, char *to) {
    dt_scalar s = {.category = DT_CAT_INT};
    if (dt_dtype_is_float(dtype)) s = (dt_scalar){.category = DT_CAT_FLOAT, .f = -0.0};
    dt_scalar_store(s, dtype, to);
}

typedef struct row_place {
    int64_t at;   /* in what is here */
    bool is_here; /* else some other device has it */
} row_place;

/* Where row number `value` is. False: there is none. */
static inline bool find_row(const dt_call *call, int64_t have, int64_t value, row_place *place) {
    place->at = value - call->params.i[1];
    place->is_here = place->at >= 0 && place->at < have;
    return value >= 0 && value < call->params.i[2];
}

static dt_status embedding_run(const dt_call *call, const dt_part *part) {
    const dt_tensor *weight = dt_call_in(call, 0), *index = dt_call_in(call, 1);
    const dt_tensor *out = dt_call_out(call, 0);
    int64_t size = (int64_t)dt_dtype_size((dt_dtype)weight->dtype), width = weight->shape[1];
    int64_t row = weight->strides[0] * size, step = weight->strides[1] * size;
    const char *data = dt_tensor_data(weight);
    char *to = dt_tensor_data(out);
    dt__reduce_plan plan;
    plan_all(&plan, index);
    char absent[8];
    absent_value((dt_dtype)weight->dtype, absent);
    int64_t first = index->numel * part->index / part->count;
    int64_t last = index->numel * (part->index + 1) / part->count;
    for (int64_t k = first; k < last; k++) {
        row_place place;
        int64_t number = index_number(&plan, index, k);
        if (!find_row(call, weight->shape[0], number, &place)) return out_of_range(number);
        char *target = to + k * width * size;
        if (!place.is_here)
            dt__gather(size, width, target, absent, 0);
        else if (step == size)
            memcpy(target, data + place.at * row, (size_t)(width * size));
        else
            dt__gather(size, width, target, data + place.at * row, step);
    }
    return DT_OK;
}

static double lookup_cost(const dt_call *call) {
    return bytes_cost(dt_call_out(call, 0), 0.15) + 12.0 * (double)dt_call_in(call, 1)->numel;
}

static int embedding_parts(const dt_call *call, int threads) {
    return by_cost(lookup_cost(call), dt_call_in(call, 1)->numel, threads);
}

const dt_kernel dt_kernel_embedding = {.name = "embedding",
                                       .run = embedding_run,
                                       .parts = embedding_parts,
                                       .cost_ns = lookup_cost,
                                       .flags = DT_KERNEL_CONTIGUOUS_OUT};

static void fill_absent(const dt_tensor *window) {
    char absent[8], *to = dt_tensor_data(window);
    int64_t size = (int64_t)dt_dtype_size((dt_dtype)window->dtype);
    absent_value((dt_dtype)window->dtype, absent);
    dt__reduce_plan plan;
    plan_all(&plan, window);
    for (int64_t k = 0; k < window->numel; k++)
        memcpy(to + dt__reduce_plan_offset(&plan, k), absent, (size_t)size);
}

/* Copies in[..., at, ...] to out[..., k, ...] for every index: the copy kernel on two windows. */
static dt_status index_select_run(const dt_call *call, const dt_part *part) {
    (void)part;
    const dt_tensor *in = dt_call_in(call, 0), *index = dt_call_in(call, 1);
    const dt_tensor *out = dt_call_out(call, 0);
    int dim = (int)call->params.i[0];
    int64_t have = in->rank ? in->shape[dim] : 1;
    dt__reduce_plan plan;
    plan_all(&plan, index);
    for (int64_t k = 0; k < index->numel; k++) {
        row_place place;
        int64_t number = index_number(&plan, index, k);
        if (!find_row(call, have, number, &place)) return out_of_range(number);
        dt_tensor from, to;
        window_of(out, dim, k, 1, &to);
        if (!place.is_here) {
            fill_absent(&to);
            continue;
        }
        window_of(in, dim, place.at, 1, &from);
        DT_TRY(copy_window(&to, &from));
    }
    return DT_OK;
}

static double index_select_cost(const dt_call *call) {
    return bytes_cost(dt_call_out(call, 0), 0.2) + 80.0 * (double)dt_call_in(call, 1)->numel;
}

const dt_kernel dt_kernel_index_select = {
    .name = "index_select", .run = index_select_run, .cost_ns = index_select_cost};

/* out[i][j] = in[index[i][j]][j] for dim 0, and so on for others. */
static dt_status gather_run(const dt_call *call, const dt_part *part) {
    const dt_tensor *in = dt_call_in(call, 0), *index = dt_call_in(call, 1);
    const dt_tensor *out = dt_call_out(call, 0);
    int dim = (int)call->params.i[0];
    int64_t size = (int64_t)dt_dtype_size((dt_dtype)in->dtype);
    int64_t have = in->rank ? in->shape[dim] : 1;
    char absent[8];
    absent_value((dt_dtype)in->dtype, absent);
    const char *data = dt_tensor_data(in), *indices = dt_tensor_data(index);
    char *to = dt_tensor_data(out);
    int64_t width = (int64_t)dt_dtype_size((dt_dtype)index->dtype);
    int64_t first = index->numel * part->index / part->count;
    int64_t last = index->numel * (part->index + 1) / part->count;
    for (int64_t k = first; k < last; k++) {
        int64_t rest = k, from = 0, where = 0, target = 0;
        for (int d = index->rank - 1; d >= 0; d--) {
            int64_t at = rest % index->shape[d];
            rest /= index->shape[d];
            where += at * index->strides[d];
            target += at * out->strides[d];
            if (d != dim && d < in->rank) from += at * in->strides[d];
        }
        row_place place;
        int64_t number = index_at(index, indices + where * width);
        if (!find_row(call, have, number, &place))
            return dt_fail(DT_E_RUNTIME,
                           "index %lld is out of bounds for dimension %d with size %lld",
                           (long long)number, dim, (long long)call->params.i[2]);
        if (in->rank) from += place.at * in->strides[dim];
        memcpy(to + target * size, place.is_here ? data + from * size : absent, (size_t)size);
    }
    return DT_OK;
}

static double gather_cost(const dt_call *call) {
    return 60 + 8.0 * (double)dt_call_in(call, 1)->numel;
}

static int gather_parts(const dt_call *call, int threads) {
    return by_cost(gather_cost(call), dt_call_in(call, 1)->numel, threads);
}

const dt_kernel dt_kernel_gather = {
    .name = "gather", .run = gather_run, .parts = gather_parts, .cost_ns = gather_cost};
