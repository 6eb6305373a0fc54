/* matmul.c: the kernels of matmul and linear.
 *
 * A call is seen as a batch of products of matrices; each takes one of three forms:
 *   DOT   few rows against many that lie contiguous along k: every weight is read once, as it lies
 *   GEMM  blocks and panels (gemm.c), b's panels kept between calls where b is a weight (packed.h)
 *   DNN   oneDNN: halves, which it computes on matrix units, and large products of f32
 * Else our own code is used: oneDNN compiles each new size (0.5 ms and more), which only large
 * products are worth; ours is faster up to 256 x 256 x 256 and with few rows, and gives an element
 * the same bits however many rows, columns and threads there are.
 *
 * A product that is high and narrow is computed as its transpose, so that the few rows come first.
 *
 * I1: the form follows from types, sizes and strides (not pointers): parts, scratch_bytes and run
 *     agree on it.  Of a part of a product on a mesh the sizes are those of the whole, so that an
 *     element has the same bits in both; but not where oneDNN takes large products of f32.
 * I2: units (batch x rows x columns) are cut for the number of parts, which changes no bit with
 *     DOT and GEMM; with DNN the cut depends on the sizes alone.
 * I3: one row gives the same bits alone and among up to FEW rows.
 *
 * Params: i[0], i[1] the whole's m and n (0: as here), i[2] DT_PRODUCT_ flags; matmul f[0] alpha,
 * f[1] beta.
 */
#include <string.h>

#include "kernels/cpu/dnn.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/packed.h"
#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "runtime/kernel.h"

enum {
    FEW = 12,             /* rows that DOT takes */
    DNN_ROWS = 128,       /* of a unit: fewer cost time, for oneDNN packs b for each unit; */
    DNN_ROWS_LARGE = 256, /* ... of large products */
    DNN_COLUMNS = 256,    /* at least, of a unit of f32 */
    DNN_UNITS_MAX = 16,
    PACKED_AT_ONCE = 64,    /* blocks of columns in one job */
    PACKED_ROWS_MAX = 1024, /* with more rows packing costs nothing, compared */
};
/* Products of numbers from which on oneDNN pays for its compiling of new sizes. */
#define DNN_HALF_WORK_MIN ((double)(1 << 21))
#define DNN_F32_WORK_MIN ((double)(1 << 27))
#define DNN_WEIGHTS_WORK_MIN ((double)(1 << 30)) /* linear: sizes change from call to call */
#define PACKED_ELEMENTS_MIN (1 << 15)
#define DNN_UNIT_WORK ((double)(1 << 29)) /* multiply-adds of a unit of f32 */
#define SPLIT_NS_MIN 20e3
#define PART_NS_MIN 10e3
#define PARTS_PER_THREAD 2 /* so that a thread that comes late still finds something to do */

typedef enum form { FORM_GEMM, FORM_DOT, FORM_DNN } form;
enum { A, B, C, BIAS, OPERANDS };

typedef struct problem {
    dt__gemm_job job;   /* sizes, strides, end; pointers are those of the first product */
    const dt_tensor *b; /* whose matrix job.b is */
    int64_t whole_m, whole_n;
    form form;
    bool packed;
    int rank; /* of the batch */
    int64_t batch;
    int64_t shape[DT_RANK_MAX];
    const int64_t *strides[OPERANDS]; /* of the batch dims; NULL: no such operand */
    int64_t grid_m, grid_n, align_n;
} problem;

/* ---- from a call to a problem ---------------------------------------------------------------- */

static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }

/* A dim of size 1 may come with any stride; here it gets the one that suits us. */
static void settle_strides(dt__gemm_job *j) {
    if (j->m == 1) j->sam = j->k;
    if (j->k == 1) j->sak = 1;
    if (j->k == 1) j->sbk = j->sbn == 1 ? j->n : 1;
    if (j->n == 1) j->sbn = j->sbk == 1 ? j->k : 1;
    if (j->n == 1) j->scn = 1;
    if (j->m == 1) j->scm = j->n;
    if (j->m == 1) j->end.bias_m = 0;
}

static void swap_operands(problem *p, const dt_tensor *a) {
    const dt__gemm_job j = p->job;
    dt__gemm_job *t = &p->job;
    t->m = j.n, t->n = j.m;
    t->a = j.b, t->sam = j.sbn, t->sak = j.sbk;
    t->b = j.a, t->sbk = j.sak, t->sbn = j.sam;
    t->scm = j.scn, t->scn = j.scm;
    t->end.bias_m = j.end.bias_n, t->end.bias_n = j.end.bias_m;
    const int64_t *strides = p->strides[A];
    p->strides[A] = p->strides[B];
    p->strides[B] = strides;
    p->b = a;
    settle_strides(t);
}

/* Contiguous rows (or columns) that do not overlap: what oneDNN's fast code knows. */
static bool dnn_layout(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
    return (column_stride == 1 && row_stride >= columns) ||
           (row_stride == 1 && column_stride >= rows);
}

/* f32 by the part's own size: its bits in oneDNN depend on sizes anyhow. */
static bool dnn_size(const problem *p, bool weights) {
    const dt__gemm_job *j = &p->job;
    if (j->dtype == DT_F16 || j->dtype == DT_BF16)
        return (double)p->whole_m * (double)p->whole_n * (double)j->k >= DNN_HALF_WORK_MIN &&
               j->m > 0 && j->n > 0 && dt_cpu_level_now() == DT_CPU_AVX512;
    double work = (double)j->m * (double)j->n * (double)j->k;
    return j->dtype == DT_F32 && work >= (weights ? DNN_WEIGHTS_WORK_MIN : DNN_F32_WORK_MIN) &&
           j->m >= DNN_ROWS && j->n >= 64 && j->k >= 64 && dt_cpu_level_now() == dt_cpu_best();
}

static bool dnn_takes(const problem *p, bool weights) {
    const dt__gemm_job *j = &p->job;
    if (!dnn_size(p, weights)) return false;
    bool plain_bias = !j->end.bias || (j->end.beta == 1.0 && j->end.bias_m == 0 &&
                                       (j->end.bias_n == 1 || j->n == 1));
    return j->end.alpha == 1.0 && plain_bias && j->scn == 1 && j->scm >= j->n &&
           dnn_layout(j->m, j->k, j->sam, j->sak) && dnn_layout(j->k, j->n, j->sbk, j->sbn) &&
           dt__dnn_has(j->dtype);
}

static bool b_is_shared(const problem *p) {
    for (int d = 0; d < p->rank; d++)
        if (p->shape[d] != 1 && p->strides[B][d] != 0) return false;
    return true;
}

/* Whether b, after swapping, lies along k, in the whole where this is a part. */
static bool along_k(const problem *p, const dt_call *call, bool swapped) {
    int64_t flags = call->params.i[2];
    if (!(flags & DT_PRODUCT_PART)) return p->job.sbk == 1;
    return flags & (swapped ? DT_PRODUCT_A_ALONG_K : DT_PRODUCT_B_ALONG_K);
}

static void choose_form(problem *p, const dt_call *call, bool weights) {
    dt__gemm_job *j = &p->job;
    int64_t m = p->whole_m = greater(j->m, call->params.i[0]);
    int64_t n = p->whole_n = greater(j->n, call->params.i[1]);
    bool wide = j->dtype == DT_F32 || j->dtype == DT_F64;
    p->form = dnn_takes(p, weights) ? FORM_DNN : FORM_GEMM;
    if (!wide || j->k == 0 || p->form == FORM_DNN) return;
    bool swap = n < m && n <= FEW;
    if (swap) swap_operands(p, dt_call_in(call, 0));
    bool few = (swap ? n : m) <= FEW, both_few = few && (swap ? m : n) <= FEW;
    if (both_few || (few && along_k(p, call, swap))) p->form = FORM_DOT;
    p->packed = p->form == FORM_GEMM && j->dtype == DT_F32 && j->m <= PACKED_ROWS_MAX &&
                j->k * j->n >= PACKED_ELEMENTS_MIN && b_is_shared(p);
}

static void fill_common(problem *p, const dt_tensor *a, const dt_tensor *b, const dt_tensor *c) {
    p->b = b;
    p->packed = false;
    p->grid_m = p->grid_n = p->align_n = 1;
    p->batch = 1;
    for (int d = 0; d < p->rank; d++) {
        p->shape[d] = c->shape[d];
        p->batch *= c->shape[d];
    }
    p->strides[A] = a->strides;
    p->strides[B] = b->strides;
    p->strides[C] = c->strides;
    p->strides[BIAS] = NULL;
}

static bool has_bias(const dt_call *call) { return call->nin == 3; }

/* Strides, sizes and form. bias in job.end is only a mark until run() sets the pointers. */
static void problem_matmul(const dt_call *call, problem *p) {
    const dt_tensor *c = dt_call_out(call, 0), *a = dt_call_in(call, 0), *b = dt_call_in(call, 1);
    int r = p->rank = c->rank - 2;
    DT_DEBUG_ASSERT(a->rank == c->rank && b->rank == c->rank);
    fill_common(p, a, b, c);
    p->job = (dt__gemm_job){.dtype = (dt_dtype)c->dtype,
                            .m = c->shape[r],
                            .n = c->shape[r + 1],
                            .k = a->shape[r + 1],
                            .sam = a->strides[r],
                            .sak = a->strides[r + 1],
                            .sbk = b->strides[r],
                            .sbn = b->strides[r + 1],
                            .scm = c->strides[r],
                            .scn = c->strides[r + 1],
                            .end = {.alpha = call->params.f[0], .beta = call->params.f[1]}};
    if (has_bias(call)) {
        const dt_tensor *bias = dt_call_in(call, 2);
        p->strides[BIAS] = bias->strides;
        p->job.end.bias = bias;
        p->job.end.bias_m = bias->strides[r];
        p->job.end.bias_n = bias->strides[r + 1];
    }
    settle_strides(&p->job);
    choose_form(p, call, false);
}

static void problem_linear(const dt_call *call, problem *p) {
    const dt_tensor *c = dt_call_out(call, 0), *x = dt_call_in(call, 0), *w = dt_call_in(call, 1);
    p->rank = 0;
    fill_common(p, x, w, c);
    p->job = (dt__gemm_job){.dtype = (dt_dtype)c->dtype,
                            .m = c->shape[0],
                            .n = c->shape[1],
                            .k = x->shape[1],
                            .sam = x->strides[0],
                            .sak = x->strides[1],
                            .sbk = w->strides[1],
                            .sbn = w->strides[0],
                            .scm = c->strides[0],
                            .scn = c->strides[1],
                            .end = {.alpha = 1, .beta = 1}};
    if (has_bias(call)) {
        p->job.end.bias = dt_call_in(call, 2);
        p->job.end.bias_n = dt_call_in(call, 2)->strides[0];
    }
    settle_strides(&p->job);
    choose_form(p, call, true);
}

/* ---- cutting into units ---------------------------------------------------------------------- */

static double problem_cost(const problem *p) {
    const dt__gemm_job *j = &p->job;
    double m = (double)j->m, n = (double)j->n, k = (double)j->k;
    if (p->form == FORM_DNN && j->dtype != DT_F32)
        return (double)p->batch * (1500 + 2 * m * n * k / 500);
    return (double)p->batch * dt__gemm_cost_ns(j->dtype, m, n, k);
}

/* oneDNN packs what it reads for each unit anew: two large units of 1024^3 lose 5 % against torch
 * on two threads, four 10 %, eight 15 %. So units are large, and columns are cut before rows. */
static void cut_for_dnn(problem *p) {
    const dt__gemm_job *j = &p->job;
    double work = (double)j->m * (double)j->n * (double)j->k;
    if (j->dtype != DT_F32 || work < DNN_UNIT_WORK) {
        int64_t rows = j->m >= 4 * DNN_ROWS_LARGE ? DNN_ROWS_LARGE : DNN_ROWS;
        p->grid_m = greater(1, lesser(DNN_UNITS_MAX, j->m / rows));
        return;
    }
    int64_t units = lesser(DNN_UNITS_MAX, (int64_t)(work / DNN_UNIT_WORK));
    if (units < 2) units = 2;
    p->grid_n = greater(1, lesser(units, j->n / DNN_COLUMNS));
    p->grid_m = greater(1, lesser(units / p->grid_n, j->m / DNN_ROWS));
}

/* Cuts each product so that there are about `parts` units. */
static void cut(problem *p, int parts) {
    const dt__gemm_job *j = &p->job;
    p->grid_m = p->grid_n = 1;
    p->align_n = p->packed ? DT__GEMM_BLOCK : 32;
    if (p->form == FORM_DNN) { /* by size alone: oneDNN's bits may depend on it */
        cut_for_dnn(p);
        return;
    }
    if (p->batch == 0 || parts <= p->batch) return;
    int64_t wanted = (parts + p->batch - 1) / p->batch;
    p->grid_n = greater(1, lesser(wanted, j->n / p->align_n));
    if (p->form == FORM_DOT) return;
    p->grid_m = greater(1, lesser((wanted + p->grid_n - 1) / p->grid_n, j->m / 28));
}

static int64_t unit_count(const problem *p) { return p->batch * p->grid_m * p->grid_n; }

static int problem_parts(problem *p, int threads) {
    double cost = problem_cost(p);
    if (threads <= 1 || cost < SPLIT_NS_MIN) return 1;
    int64_t parts = lesser((int64_t)threads * PARTS_PER_THREAD, (int64_t)(cost / PART_NS_MIN));
    cut(p, (int)parts);
    return (int)greater(1, lesser(parts, unit_count(p)));
}

typedef struct cell {
    int64_t m0, m, n0, n;
} cell;

static cell cell_at(const problem *p, int64_t im, int64_t in) {
    const dt__gemm_job *j = &p->job;
    int64_t blocks = (j->n + p->align_n - 1) / p->align_n;
    int64_t n0 = blocks * in / p->grid_n * p->align_n;
    int64_t n1 = lesser(j->n, blocks * (in + 1) / p->grid_n * p->align_n);
    int64_t m0 = j->m * im / p->grid_m, m1 = j->m * (im + 1) / p->grid_m;
    return (cell){m0, m1 - m0, n0, n1 - n0};
}

static size_t align_up(size_t n) { return (n + 63) & ~(size_t)63; }

static size_t dot_scratch(const dt__gemm_job *j) {
    size_t item = dt_dtype_size(j->dtype), a = 0, b = 0;
    if (j->sak != 1) a = align_up((size_t)(j->m * j->k) * item);
    if (j->sbk != 1) b = align_up((size_t)(j->n * j->k) * item);
    return a + b;
}

/* Scratch for one part. */
static size_t part_scratch(const problem *p) {
    if (p->form == FORM_DNN) return 0;
    if (p->form == FORM_DOT) return dot_scratch(&p->job);
    size_t most = 0;
    for (int64_t im = 0; im < p->grid_m; im++) {
        for (int64_t in = 0; in < p->grid_n; in++) {
            cell at = cell_at(p, im, in);
            dt__gemm_job j = p->job;
            j.m = at.m;
            j.n = at.n;
            size_t bytes = dt__gemm_scratch(&j);
            if (bytes > most) most = bytes;
        }
    }
    return align_up(most);
}

/* ---- running --------------------------------------------------------------------------------- */

static const char *moved(const void *base, const dt__gemm_job *j, int64_t elements) {
    return base ? (const char *)base + elements * (int64_t)dt_dtype_size(j->dtype) : NULL;
}

/* The product of one batch index: the same sizes, moved pointers. */
static dt__gemm_job job_of(const problem *p, int64_t index) {
    dt__gemm_job j = p->job;
    int64_t offset[OPERANDS] = {0};
    for (int d = p->rank - 1; d >= 0; d--) {
        int64_t at = index % p->shape[d];
        index /= p->shape[d];
        for (int k = 0; k < OPERANDS; k++)
            if (p->strides[k]) offset[k] += at * p->strides[k][d];
    }
    j.a = moved(j.a, &j, offset[A]);
    j.b = moved(j.b, &j, offset[B]);
    j.c = (char *)j.c + offset[C] * (int64_t)dt_dtype_size(j.dtype);
    j.end.bias = moved(j.end.bias, &j, offset[BIAS]);
    return j;
}

static dt__gemm_job job_cell(const dt__gemm_job *whole, const cell *at) {
    dt__gemm_job j = *whole;
    j.m = at->m;
    j.n = at->n;
    j.a = moved(j.a, &j, at->m0 * j.sam);
    j.b = moved(j.b, &j, at->n0 * j.sbn);
    j.c = (char *)j.c + (at->m0 * j.scm + at->n0 * j.scn) * (int64_t)dt_dtype_size(j.dtype);
    j.end.bias = moved(j.end.bias, &j, at->m0 * j.end.bias_m + at->n0 * j.end.bias_n);
    return j;
}

/* Rows that are not contiguous, into scratch. */
static const void *straighten(const dt__gemm_job *j, const void *from, int64_t rows, int64_t stride,
                              int64_t step, char **scratch) {
    int64_t item = (int64_t)dt_dtype_size(j->dtype);
    char *to = *scratch;
    for (int64_t r = 0; r < rows; r++)
        dt__gemm_gather(j->k, to + r * j->k * item, j->dtype, moved(from, j, r * stride), step,
                        j->dtype);
    *scratch += align_up((size_t)(rows * j->k * item));
    return to;
}

static void run_dot(dt__gemm_job *j, char *scratch) {
    int64_t sx = j->sam, sw = j->sbn;
    const void *x = j->a, *w = j->b;
    if (j->sak != 1) {
        x = straighten(j, x, j->m, j->sam, j->sak, &scratch);
        sx = j->k;
    }
    if (j->sbk != 1) {
        w = straighten(j, w, j->n, j->sbn, j->sbk, &scratch);
        sw = j->k;
    }
    dt__gemm_ops_now(j->dtype)->dot(j->m, j->n, j->k, x, sx, w, sw, j->c, j->scm, j->scn, &j->end);
}

/* A product whose b may have packed copies: in jobs of at most PACKED_AT_ONCE blocks of columns. */
static void run_packed(const problem *p, const dt__gemm_job *whole, char *scratch) {
    dt_storage *storage = p->b->storage;
    const float *base = dt_tensor_data(p->b);
    for (int64_t n0 = 0; n0 < whole->n; n0 += PACKED_AT_ONCE * DT__GEMM_BLOCK) {
        cell at = {0, whole->m, n0, lesser(PACKED_AT_ONCE * DT__GEMM_BLOCK, whole->n - n0)};
        dt__gemm_job j = job_cell(whole, &at);
        dt__packed *held[PACKED_AT_ONCE];
        const void *data[PACKED_AT_ONCE];
        int64_t count = (j.n + DT__GEMM_BLOCK - 1) / DT__GEMM_BLOCK;
        int64_t first = p->b->offset + ((const float *)j.b - base);
        for (int64_t i = 0; i < count; i++) {
            int64_t column = i * DT__GEMM_BLOCK;
            dt__packed_key key = {first + column * j.sbn, j.k, lesser(DT__GEMM_BLOCK, j.n - column),
                                  j.sbk, j.sbn};
            held[i] = dt__packed_acquire(storage, &key);
            data[i] = dt__packed_data(held[i]);
        }
        j.packed = data;
        dt__gemm_run(&j, scratch);
        for (int64_t i = 0; i < count; i++) dt__packed_release(held[i]);
    }
}

/* By our own code, with memory of its own: for the rare product that oneDNN turned out not to
 * have. */
static dt_status run_own(const dt__gemm_job *j) {
    size_t bytes = dt__gemm_scratch(j);
    void *scratch = dt_bytes_alloc(bytes);
    if (!scratch)
        return dt_fail(DT_E_NO_MEMORY, "out of memory: %zu bytes of scratch for a product", bytes);
    dt__gemm_run(j, scratch);
    dt_bytes_free(scratch, bytes);
    return DT_OK;
}

static dt_status run_dnn(const dt__gemm_job *j) {
    dt__dnn_product product = {.m = j->m,
                               .n = j->n,
                               .k = j->k,
                               .sam = j->sam,
                               .sak = j->sak,
                               .sbk = j->sbk,
                               .sbn = j->sbn,
                               .scm = j->scm,
                               .dtype = j->dtype,
                               .bias = j->end.bias != NULL};
    dt_status status = dt__dnn_run(&product, j->a, j->b, j->end.bias, j->c);
    return status == DT_E_NOT_IMPLEMENTED ? run_own(j) : status;
}

static dt_status run_unit(const problem *p, int64_t unit, char *scratch) {
    int64_t cells = p->grid_m * p->grid_n;
    dt__gemm_job whole = job_of(p, unit / cells);
    cell at = cell_at(p, unit % cells / p->grid_n, unit % cells % p->grid_n);
    if (at.m == 0 || at.n == 0) return DT_OK;
    dt__gemm_job j = job_cell(&whole, &at);
    if (p->form == FORM_DNN) return run_dnn(&j);
    if (p->form == FORM_DOT)
        run_dot(&j, scratch);
    else if (p->packed)
        run_packed(p, &j, scratch);
    else
        dt__gemm_run(&j, scratch);
    return DT_OK;
}

static dt_status run_part(problem *p, const dt_call *call, const dt_part *part) {
    if (p->job.m == 0 || p->job.n == 0 || p->batch == 0) return DT_OK;
    bool swapped = p->b != dt_call_in(call, 1);
    p->job.a = dt_tensor_data(dt_call_in(call, swapped ? 1 : 0));
    p->job.b = dt_tensor_data(dt_call_in(call, swapped ? 0 : 1));
    p->job.c = dt_tensor_data(dt_call_out(call, 0));
    if (has_bias(call)) p->job.end.bias = dt_tensor_data(dt_call_in(call, 2));
    cut(p, part->count);
    size_t bytes = part_scratch(p);
    DT_ASSERT(bytes * (size_t)part->count <= part->scratch_bytes);
    char *scratch = bytes ? (char *)part->scratch + (size_t)part->index * bytes : NULL;
    int64_t units = unit_count(p);
    int64_t from = units * part->index / part->count, to = units * (part->index + 1) / part->count;
    for (int64_t unit = from; unit < to; unit++) DT_TRY(run_unit(p, unit, scratch));
    return DT_OK;
}

static size_t problem_scratch(problem *p, int parts) {
    if (p->job.m == 0 || p->job.n == 0 || p->batch == 0) return 0;
    cut(p, parts);
    return part_scratch(p) * (size_t)parts;
}

#define KERNEL(op)                                                                                 \
    static dt_status op##_run(const dt_call *call, const dt_part *part) {                          \
        problem p;                                                                                 \
        problem_##op(call, &p);                                                                    \
        return run_part(&p, call, part);                                                           \
    }                                                                                              \
    static int op##_parts(const dt_call *call, int threads) {                                      \
        problem p;                                                                                 \
        problem_##op(call, &p);                                                                    \
        return problem_parts(&p, threads);                                                         \
    }                                                                                              \
    static size_t op##_scratch(const dt_call *call, int parts) {                                   \
        problem p;                                                                                 \
        problem_##op(call, &p);                                                                    \
        return problem_scratch(&p, parts);                                                         \
    }                                                                                              \
    static double op##_cost(const dt_call *call) {                                                 \
        problem p;                                                                                 \
        problem_##op(call, &p);                                                                    \
        return problem_cost(&p);                                                                   \
    }                                                                                              \
    const dt_kernel dt_kernel_##op = {                                                             \
        .name = #op,                                                                               \
        .run = op##_run,                                                                           \
        .parts = op##_parts,                                                                       \
        .scratch_bytes = op##_scratch,                                                             \
        .cost_ns = op##_cost,                                                                      \
        .flags = DT_KERNEL_USES_OMP,                                                               \
    };
KERNEL(matmul)
KERNEL(linear)
