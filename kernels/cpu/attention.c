/* attention.c: scaled dot product attention as one kernel.
 *
 *     out [..., L, Ev] = softmax(scale * q [..., L, E] @ k [..., S, E]^T + mask) @ v [..., S, Ev]
 *
 * A unit of work is a block of rows of one head (one index of the batch dims).  For a head, k is
 * packed transposed into panels, and v too where it does not lie in panels already; for a block of
 * rows the scores [rows, S] are computed, turned into weights in place, and multiplied with v; the
 * division by the sum of the weights comes last.  With few rows (decoding) the scores are dot
 * products and k is read as it lies. Sums are in f32 for halves, and everything is in f64 for f64.
 *
 * A row in which nothing is left (all masked, or S == 0) is 0, as in torch.  What a mask takes
 * away is added as -inf, so that a NaN score stays NaN even there, also as in torch.
 *
 * I1: blocks of rows depend on shapes alone; a part is some of them, in order, and packs k once
 *     for each head.
 * I2: a head's blocks skip the keys that causality hides from all of their rows.
 *
 * Params: i[0] causal; i[1] mask: 0 none, 1 bool, 2 additive (third input); i[2] L of the whole, by
 * which the form is chosen, and i[3] the row of the whole at which this part begins; f[0] scale.
 */
#include "kernels/cpu/attention.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/iter.h"
#include "runtime/assert.h"
#include "runtime/kernel.h"

enum { ROWS_MAX = 56, SCORES_MAX = 1 << 16, DOT_ROWS = 4 };
#define SPLIT_NS_MIN 100e3
#define PART_NS_MIN 40e3

typedef struct matrix {
    const dt_tensor *t;
    int64_t row, column; /* strides */
    const char *data;    /* of the current head */
} matrix;

typedef struct attention {
    dt_dtype dtype, sum; /* of the tensors; of the work */
    int rank;            /* of the batch */
    int64_t heads, l, s, e, ev;
    matrix q, k, v, mask, out;
    bool causal;
    int64_t first; /* row of the whole, for causality */
    int mask_kind;
    double scale;
    const dt__gemm_ops *ops;
    int64_t block;         /* rows */
    int64_t blocks;        /* of rows, for each head */
    int64_t s_pad, ev_pad; /* multiples of a panel and of DT__ATTENTION_PAD */
    bool direct_k, direct_v, direct_q;
    int64_t item; /* bytes of a sum */
    size_t at_k, at_v, at_wide, at_q, at_scores, at_out, at_mask,
        scratch; /* in one part's scratch */
} attention;

/* ---- set-up ---------------------------------------------------------------------------------- */

static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

static matrix matrix_of(const dt_tensor *t) {
    return (matrix){.t = t, .row = t->strides[t->rank - 2], .column = t->strides[t->rank - 1]};
}

static size_t take(attention *a, int64_t elements) {
    size_t at = a->scratch;
    a->scratch += (size_t)round_up(elements * a->item, 64);
    return at;
}

static void lay_out(attention *a) {
    bool half = a->sum != a->dtype;
    int64_t kept = greater(a->e * (a->direct_k ? 0 : a->s), a->ev * (a->direct_v ? 0 : a->s));
    a->scratch = 0;
    a->at_k = take(a, a->direct_k ? 0 : a->e * a->s_pad);
    a->at_v = take(a, a->direct_v ? 0 : a->ev_pad * a->s);
    a->at_wide = take(a, half ? kept : 0);
    a->at_q = take(a, a->direct_q ? 0 : a->block * a->e);
    a->at_scores = take(a, a->block * a->s_pad);
    a->at_out = take(a, a->block * a->ev_pad);
    a->at_mask = take(a, a->mask_kind ? a->s : 0);
}

static void attention_of(const dt_call *call, attention *a) {
    memset(a, 0, sizeof *a);
    a->q = matrix_of(dt_call_in(call, 0));
    a->k = matrix_of(dt_call_in(call, 1));
    a->v = matrix_of(dt_call_in(call, 2));
    a->out = matrix_of(dt_call_out(call, 0));
    const dt_tensor *q = a->q.t, *v = a->v.t;
    int r = a->rank = q->rank - 2;
    a->dtype = (dt_dtype)q->dtype;
    a->sum = dt__gemm_sum_type(a->dtype);
    a->item = (int64_t)dt_dtype_size(a->sum);
    a->l = q->shape[r];
    a->e = q->shape[r + 1];
    a->s = v->shape[r];
    a->ev = v->shape[r + 1];
    a->heads = 1;
    for (int d = 0; d < r; d++) a->heads *= q->shape[d];
    a->causal = call->params.i[0] != 0;
    a->first = call->params.i[3];
    a->mask_kind = (int)call->params.i[1];
    if (a->mask_kind) a->mask = matrix_of(dt_call_in(call, 3));
    a->scale = call->params.f[0];
    a->ops = dt__gemm_ops_now(a->sum);
    a->s_pad = round_up(a->s, greater(a->ops->width, DT__ATTENTION_PAD));
    a->ev_pad = round_up(a->ev, a->ops->width);
    a->block = lesser(a->l, lesser(ROWS_MAX, greater(8, SCORES_MAX / greater(a->s_pad, 1))));
    a->blocks = a->block ? (a->l + a->block - 1) / a->block : 0;
    bool wide = a->sum == a->dtype;
    a->direct_k = wide && greater(a->l, call->params.i[2]) <= DOT_ROWS && a->k.column == 1;
    a->direct_v = wide && a->v.column == 1 && a->ev == a->ev_pad;
    a->direct_q = wide && a->q.column == 1;
    lay_out(a);
}

/* ---- moving pieces --------------------------------------------------------------------------- */

static const char *head_data(const matrix *m, int rank, int64_t head) {
    int64_t offset = 0;
    for (int d = rank - 1; d >= 0; d--) {
        offset += head % m->t->shape[d] * m->t->strides[d];
        head /= m->t->shape[d];
    }
    return (const char *)dt_tensor_data(m->t) +
           offset * (int64_t)dt_dtype_size((dt_dtype)m->t->dtype);
}

/* rows x columns of m, from `row` on, as sums in contiguous rows. */
static void widen(const attention *a, const matrix *m, int64_t row, int64_t rows, int64_t columns,
                  char *to) {
    int64_t item = (int64_t)dt_dtype_size(a->dtype);
    for (int64_t i = 0; i < rows; i++)
        dt__gemm_gather(columns, to + i * columns * a->item, a->sum,
                        m->data + (row + i) * m->row * item, m->column, a->dtype);
}

static void pack_k(const attention *a, char *scratch) {
    const char *k = a->k.data;
    int64_t row = a->k.row, column = a->k.column;
    if (a->sum != a->dtype) {
        widen(a, &a->k, 0, a->s, a->e, scratch + a->at_wide);
        k = scratch + a->at_wide;
        row = a->e;
        column = 1;
    }
    a->ops->pack(a->e, a->s, k, column, row, scratch + a->at_k, a->e * a->ops->width);
}

static void pack_v(const attention *a, char *scratch) {
    const char *v = a->v.data;
    int64_t row = a->v.row, column = a->v.column;
    if (a->sum != a->dtype) {
        widen(a, &a->v, 0, a->s, a->ev, scratch + a->at_wide);
        v = scratch + a->at_wide;
        row = a->ev;
        column = 1;
    }
    a->ops->pack(a->s, a->ev, v, row, column, scratch + a->at_v, a->s * a->ops->width);
}

static void enter_head(attention *a, int64_t head, char *scratch) {
    a->q.data = head_data(&a->q, a->rank, head);
    a->k.data = head_data(&a->k, a->rank, head);
    a->v.data = head_data(&a->v, a->rank, head);
    a->out.data = head_data(&a->out, a->rank, head);
    if (a->mask_kind) a->mask.data = head_data(&a->mask, a->rank, head);
    if (!a->direct_k) pack_k(a, scratch);
    if (!a->direct_v) pack_v(a, scratch);
}

/* ---- a block of rows ------------------------------------------------------------------------- */

/* Scores of rows against the first `keys` keys. */
static void scores(const attention *a, int64_t row, int64_t rows, int64_t keys, char *scratch) {
    char *to = scratch + a->at_scores;
    const char *q = a->q.data + row * a->q.row * a->item;
    int64_t sq = a->q.row;
    if (!a->direct_q) {
        widen(a, &a->q, row, rows, a->e, scratch + a->at_q);
        q = scratch + a->at_q;
        sq = a->e;
    }
    if (a->direct_k) {
        dt__gemm_end end = {.alpha = 1};
        a->ops->dot(rows, keys, a->e, q, sq, a->k.data, a->k.row, to, a->s_pad, 1, &end);
        return;
    }
    int64_t width = a->ops->width;
    for (int64_t j = 0; j < keys; j += width)
        a->ops->panel(rows, a->e, q, sq, scratch + a->at_k + j * a->e * a->item, width,
                      to + j * a->item, a->s_pad, (int)width, true);
}

/* One row of the mask as numbers to add. */
static const void *mask_row(const attention *a, int64_t row, int64_t keys, char *to) {
    const matrix *m = &a->mask;
    if (a->mask_kind == 2) {
        const char *from = m->data + row * m->row * (int64_t)dt_dtype_size(a->dtype);
        if (a->sum == a->dtype && m->column == 1) return from;
        dt__gemm_gather(keys, to, a->sum, from, m->column, a->dtype);
        return to;
    }
    const uint8_t *from = (const uint8_t *)m->data + row * m->row;
    float *f32 = (float *)(void *)to;
    double *f64 = (double *)(void *)to;
    if (a->sum == DT_F32)
        for (int64_t j = 0; j < keys; j++) f32[j] = from[j * m->column] ? 0 : -INFINITY;
    else
        for (int64_t j = 0; j < keys; j++) f64[j] = from[j * m->column] ? 0 : -INFINITY;
    return to;
}

static double weights_f64(int64_t n, double *x, double scale, const double *mask) {
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++) {
        x[j] = x[j] * scale + (mask ? mask[j] : 0);
        if (x[j] > top) top = x[j];
    }
    if (isinf(top) && top < 0) top = 0;
    for (int64_t j = 0; j < n; j++) {
        x[j] = exp(x[j] - top);
        sum += x[j];
    }
    return sum == 0 ? 0 : 1 / sum;
}

static dt__attention_row row_now(void) {
    static const dt__attention_row *const rows[DT_CPU_LEVELS] =
#if DT_ISA_BASE_ONLY
        {&dt__attention_row_base, &dt__attention_row_base, &dt__attention_row_base};
#else
        {&dt__attention_row_base, &dt__attention_row_avx2, &dt__attention_row_avx512};
#endif
    return *rows[dt_cpu_level_now()];
}

/* Scores to weights; factor[i] is what row i of the product has to be multiplied with. */
static void weights(const attention *a, int64_t row, int64_t rows, int64_t keys, double *factor,
                    char *scratch) {
    for (int64_t i = 0; i < rows; i++) {
        char *x = scratch + a->at_scores + i * a->s_pad * a->item;
        int64_t seen = a->causal ? lesser(keys, a->first + row + i + 1) : keys;
        const void *mask = a->mask_kind ? mask_row(a, row + i, seen, scratch + a->at_mask) : NULL;
        if (a->sum == DT_F32)
            factor[i] = row_now()(seen, (float *)(void *)x, (float)a->scale, mask);
        else
            factor[i] = weights_f64(seen, (double *)(void *)x, a->scale, mask);
        memset(x + seen * a->item, 0, (size_t)((keys - seen) * a->item));
    }
}

/* A row of sums to a row of the output. */
static void put_row(const attention *a, const char *from, char *to) {
    int64_t item = (int64_t)dt_dtype_size(a->dtype);
    if (a->out.column == 1) {
        if (a->sum == a->dtype)
            memcpy(to, from, (size_t)(a->ev * item));
        else
            dt_cast(a->ev, to, a->dtype, from, a->sum);
        return;
    }
    char buffer[512];
    int64_t step = (int64_t)sizeof buffer / item;
    for (int64_t j = 0; j < a->ev; j += step) {
        int64_t count = lesser(step, a->ev - j);
        const char *x = from + j * a->item;
        if (a->sum != a->dtype) {
            dt_cast(count, buffer, a->dtype, x, a->sum);
            x = buffer;
        }
        dt__scatter(item, count, to + j * a->out.column * item, a->out.column * item, x);
    }
}

/* Rows of the product, divided and rounded, to where they belong. */
static void put(const attention *a, int64_t row, int64_t rows, const double *factor,
                char *scratch) {
    int64_t item = (int64_t)dt_dtype_size(a->dtype);
    for (int64_t i = 0; i < rows; i++) {
        char *x = scratch + a->at_out + i * a->ev_pad * a->item;
        char *to = (char *)(uintptr_t)a->out.data + (row + i) * a->out.row * item;
        dt__gemm_end end = {.alpha = factor[i]};
        a->ops->finish(1, a->ev, x, a->ev_pad, &end);
        put_row(a, x, to);
    }
}

static void block_of_rows(const attention *a, int64_t row, char *scratch) {
    double factor[ROWS_MAX];
    int64_t rows = lesser(a->block, a->l - row), width = a->ops->width;
    int64_t keys = a->causal ? lesser(a->s, a->first + row + rows) : a->s;
    scores(a, row, rows, keys, scratch);
    weights(a, row, rows, keys, factor, scratch);
    for (int64_t j = 0; j < a->ev; j += width) {
        const char *v =
            a->direct_v ? a->v.data + j * a->item : scratch + a->at_v + j * a->s * a->item;
        a->ops->panel(rows, keys, scratch + a->at_scores, a->s_pad, v,
                      a->direct_v ? a->v.row : width, scratch + a->at_out + j * a->item, a->ev_pad,
                      (int)width, true);
    }
    put(a, row, rows, factor, scratch);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

static dt_status sdpa_run(const dt_call *call, const dt_part *part) {
    attention a;
    attention_of(call, &a);
    DT_ASSERT(a.scratch * (size_t)part->count <= part->scratch_bytes);
    char *scratch = (char *)part->scratch + (size_t)part->index * a.scratch;
    int64_t units = a.ev ? a.heads * a.blocks : 0, head = -1;
    int64_t from = units * part->index / part->count, to = units * (part->index + 1) / part->count;
    for (int64_t unit = from; unit < to; unit++) {
        if (unit / a.blocks != head) {
            head = unit / a.blocks;
            enter_head(&a, head, scratch);
        }
        block_of_rows(&a, unit % a.blocks * a.block, scratch);
    }
    return DT_OK;
}

static double sdpa_cost(const dt_call *call) {
    attention a;
    attention_of(call, &a);
    double l = (double)a.l, s = (double)a.s, e = (double)a.e, ev = (double)a.ev;
    double products = dt__gemm_cost_ns(a.sum, l, s, e) + dt__gemm_cost_ns(a.sum, l, ev, s);
    static const double per_weight[DT_CPU_LEVELS] = {2.5, 0.9, 0.5};
    double weight = a.sum == DT_F64 ? 8 : per_weight[dt_cpu_level_now()];
    double pack = a.direct_k ? 0 : 0.3 * s * e;
    if (!a.direct_v) pack += 0.1 * s * ev;
    return 300 + (double)a.heads * (products + weight * l * (double)a.s_pad + pack + 20 * l);
}

static int sdpa_parts(const dt_call *call, int threads) {
    double cost = sdpa_cost(call);
    if (threads <= 1 || cost < SPLIT_NS_MIN) return 1;
    attention a;
    attention_of(call, &a);
    int64_t parts = lesser(threads, (int64_t)(cost / PART_NS_MIN));
    return (int)greater(1, lesser(parts, a.heads * a.blocks));
}

static size_t sdpa_scratch(const dt_call *call, int parts) {
    attention a;
    attention_of(call, &a);
    return a.scratch * (size_t)parts;
}

const dt_kernel dt_kernel_sdpa = {
    .name = "sdpa",
    .run = sdpa_run,
    .parts = sdpa_parts,
    .scratch_bytes = sdpa_scratch,
    .cost_ns = sdpa_cost,
};
