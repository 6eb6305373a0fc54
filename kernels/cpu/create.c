/* create.c: arange, linspace, eye and the triangles.
 *
 * Values are computed from an element's index alone, never from its neighbour, in f64 (f32 results
 * in the steps torch takes, so that they are torch's to the bit), in runs of a buffer that is cast
 * to the output's dtype and stored in its layout.
 *
 * Params: as rules_create.c fills them in.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/iter.h"
#include "runtime/assert.h"

#define RUN_MAX 512

static double create_cost_ns(const dt_call *call) {
    return 30.0 + 0.8 * (double)dt_call_out(call, 0)->numel;
}

static int create_parts(const dt_call *call, int threads) {
    return dt__ew_parts_for(create_cost_ns(call), dt_call_out(call, 0)->numel, threads,
                            DT__EW_SPLIT_NS);
}

/* Writes n values, element `at` and those after it, of dtype values_dtype to `values`. */
typedef void (*create_values)(const dt_call *call, int64_t at, int64_t n, void *values);

/* Outputs have one dim, so a position is an index; `first` is that of the output's first element,
 * which on a mesh is some element of the whole. */
static void create_runs(const dt_call *call, const dt_part *part, int64_t first,
                        dt_dtype values_dtype, create_values write) {
    dt_tensor *out = dt_call_out(call, 0);
    dt_dtype to = (dt_dtype)out->dtype;
    int64_t begin, end;
    dt__ew_range(out->numel, part, &begin, &end);
    if (begin >= end) return;
    int64_t values[RUN_MAX], cast[RUN_MAX];
    dt__iter it;
    dt__cursor at;
    dt__iter_init(&it, 1, &out);
    dt__cursor_seek(&it, &at, begin);
    while (at.position < end) {
        int64_t n = dt__cursor_run(&it, &at, RUN_MAX, end);
        write(call, first + at.position, n, values);
        dt_cast(n, cast, to, values, values_dtype);
        dt__cursor_scatter(&it, &at, 0, n, cast);
        dt__cursor_next(&it, &at, n);
    }
}

/* ---- arange: f[0] start, f[1] step; i[0], i[1] the same as integers; i[2] first element ------ */

static void arange_integers(const dt_call *call, int64_t at, int64_t n, void *values) {
    int64_t *v = values;
    uint64_t start = (uint64_t)call->params.i[0], step = (uint64_t)call->params.i[1];
    for (int64_t k = 0; k < n; k++) v[k] = (int64_t)(start + step * (uint64_t)(at + k));
}

static void arange_floats(const dt_call *call, int64_t at, int64_t n, void *values) {
    double *v = values, start = call->params.f[0], step = call->params.f[1];
    for (int64_t k = 0; k < n; k++) v[k] = start + step * (double)(at + k);
}

static dt_status arange_run(const dt_call *call, const dt_part *part) {
    if (dt_dtype_is_float((dt_dtype)dt_call_out(call, 0)->dtype))
        create_runs(call, part, call->params.i[2], DT_F64, arange_floats);
    else
        create_runs(call, part, call->params.i[2], DT_I64, arange_integers);
    return DT_OK;
}

/* ---- linspace: f[0] start, f[1] end, i[0] steps, i[1] first element -------------------------- */

/* From the nearer end, so that both ends are exact. In f32 for f32 and the halves, as torch. */
static void linspace_f32(const dt_call *call, int64_t at, int64_t n, void *values) {
    float *v = values, start = (float)call->params.f[0], end = (float)call->params.f[1];
    int64_t steps = call->params.i[0];
    float step = (end - start) / (float)(steps - 1);
    for (int64_t k = 0; k < n; k++) {
        int64_t i = at + k;
        v[k] = i < steps / 2 ? start + step * (float)i : end - step * (float)(steps - i - 1);
    }
}

/* For integers both ends are cut off first. */
static void linspace_f64(const dt_call *call, int64_t at, int64_t n, void *values) {
    double *v = values, start = call->params.f[0], end = call->params.f[1];
    if (!dt_dtype_is_float((dt_dtype)dt_call_out(call, 0)->dtype)) {
        start = trunc(start);
        end = trunc(end);
    }
    int64_t steps = call->params.i[0];
    double step = (end - start) / (double)(steps - 1);
    for (int64_t k = 0; k < n; k++) {
        int64_t i = at + k;
        v[k] = i < steps / 2 ? start + step * (double)i : end - step * (double)(steps - i - 1);
    }
}

static void only_start(const dt_call *call, int64_t at, int64_t n, void *values) {
    (void)at, (void)n;
    memcpy(values, &call->params.f[0], sizeof(double));
}

static dt_status linspace_run(const dt_call *call, const dt_part *part) {
    dt_dtype dtype = (dt_dtype)dt_call_out(call, 0)->dtype;
    int64_t first = call->params.i[1];
    DT_ASSERT(first + dt_call_out(call, 0)->numel <= call->params.i[0]);
    if (call->params.i[0] == 1)
        create_runs(call, part, first, DT_F64, only_start);
    else if (dt_dtype_is_float(dtype) && dtype != DT_F64)
        create_runs(call, part, first, DT_F32, linspace_f32);
    else
        create_runs(call, part, first, DT_F64, linspace_f64);
    return DT_OK;
}

/* ---- eye: zeros, and ones on the diagonal; i[0], i[1] first row and column ------------------- */

static dt_status eye_run(const dt_call *call, const dt_part *part) {
    dt_tensor *out = dt_call_out(call, 0);
    DT_ASSERT(out->rank == 2);
    int64_t rows = out->shape[0], columns = out->shape[1];
    int64_t size = (int64_t)dt_dtype_size((dt_dtype)out->dtype);
    int64_t count = part->count < 1 ? 1 : part->count;
    int64_t begin = rows * part->index / count, end = rows * (part->index + 1) / count;
    uint64_t one = 0, zero = 0;
    dt_cast_scalar((dt_scalar){.category = DT_CAT_INT, .i = 1}, (dt_dtype)out->dtype, &one);
    for (int64_t r = begin; r < end && columns > 0; r++) {
        char *row = (char *)dt_tensor_data(out) + r * out->strides[0] * size;
        int64_t stride = out->strides[1] * size;
        if (stride == size)
            memset(row, 0, (size_t)(columns * size));
        else
            for (int64_t c = 0; c < columns; c++) memcpy(row + c * stride, &zero, (size_t)size);
        int64_t one_at = call->params.i[0] + r - call->params.i[1];
        if (one_at >= 0 && one_at < columns) memcpy(row + one_at * stride, &one, (size_t)size);
    }
    return DT_OK;
}

/* ---- tril, triu: i[0] diagonal, i[1] 1 for the upper part ----------------------------------- */

typedef struct triangle {
    const dt_tensor *out, *in;
    int64_t size;
    int64_t diagonal;
    bool upper;
} triangle;

static void move_columns(const triangle *t, char *to, const char *from, int64_t begin, int64_t end,
                         bool keep) {
    int r = t->out->rank - 1;
    int64_t to_stride = t->out->strides[r] * t->size, from_stride = t->in->strides[r] * t->size;
    if (begin >= end) return;
    if (to_stride == t->size && (!keep || from_stride == t->size)) {
        size_t bytes = (size_t)((end - begin) * t->size);
        if (keep)
            memmove(to + begin * t->size, from + begin * t->size, bytes);
        else
            memset(to + begin * t->size, 0, bytes);
        return;
    }
    for (int64_t c = begin; c < end; c++) {
        if (keep)
            memmove(to + c * to_stride, from + c * from_stride, (size_t)t->size);
        else
            memset(to + c * to_stride, 0, (size_t)t->size);
    }
}

/* Row `number` counts over all dims but the last. */
static void triangle_row(const triangle *t, int64_t number) {
    int rank = t->out->rank;
    int64_t columns = t->out->shape[rank - 1], r = number % t->out->shape[rank - 2];
    int64_t to = 0, from = 0;
    for (int d = rank - 2; d >= 0; d--) {
        int64_t i = number % t->out->shape[d];
        number /= t->out->shape[d];
        to += i * t->out->strides[d];
        from += i * t->in->strides[d];
    }
    char *dst = (char *)dt_tensor_data(t->out) + to * t->size;
    const char *src = (const char *)dt_tensor_data(t->in) + from * t->size;
    /* The first column above the kept diagonal (lower) or on it (upper). */
    int64_t cut = r + t->diagonal + (t->upper ? 0 : 1);
    cut = cut < 0 ? 0 : (cut > columns ? columns : cut);
    move_columns(t, dst, src, 0, cut, !t->upper);
    move_columns(t, dst, src, cut, columns, t->upper);
}

static dt_status tri_run(const dt_call *call, const dt_part *part) {
    triangle t = {.out = dt_call_out(call, 0), .in = dt_call_in(call, 0)};
    DT_ASSERT(t.out->rank >= 2 && t.out->dtype == t.in->dtype && t.in->rank == t.out->rank);
    if (t.out->numel == 0) return DT_OK;
    t.size = (int64_t)dt_dtype_size((dt_dtype)t.out->dtype);
    t.upper = call->params.i[1] != 0;
    /* Beyond the matrix all diagonals are alike; cutting them off keeps the sums small. */
    int64_t most = t.out->shape[t.out->rank - 2] + t.out->shape[t.out->rank - 1];
    t.diagonal = call->params.i[0];
    t.diagonal = t.diagonal > most ? most : (t.diagonal < -most ? -most : t.diagonal);
    int64_t rows = t.out->numel / t.out->shape[t.out->rank - 1];
    int64_t count = part->count < 1 ? 1 : part->count;
    int64_t end = rows * (part->index + 1) / count;
    for (int64_t r = rows * part->index / count; r < end; r++) triangle_row(&t, r);
    return DT_OK;
}

#define CREATE_KERNEL(name_)                                                                       \
    const dt_kernel dt_kernel_##name_ = {                                                          \
        .name = #name_,                                                                            \
        .run = name_##_run,                                                                        \
        .parts = create_parts,                                                                     \
        .cost_ns = create_cost_ns,                                                                 \
    };

CREATE_KERNEL(arange)
CREATE_KERNEL(linspace)
CREATE_KERNEL(eye)
CREATE_KERNEL(tri)
