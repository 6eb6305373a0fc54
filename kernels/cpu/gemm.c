/* gemm.c: a product of matrices of any size, layout and type, cut into the calls of gemm.h.
 *
 *   for each block of columns (NC), for each block of rows (MC), for each block of k (KC):
 *     b [KC, NC] is packed into panels (unless it lies in panels already),
 *     a [MC, KC] is copied (when it is not contiguous along k, is half, or its rows are apart by a
 *     multiple of the page size, where they would push each other out of the first cache),
 *     and for each panel the tiles add to c.
 * With the last block of k the sums get alpha, beta and bias, and where they were kept in scratch
 * (halves, columns of c apart) they go to c, rounded once.
 *
 * I1: the sum of an element runs over k from the front, one product after the other; blocks change
 *     no bit.
 * I2: the scratch is laid out by plan() alone, which looks at sizes and strides, not at pointers.
 */
#include "kernels/cpu/gemm.h"

#include <string.h>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/iter.h"
#include "runtime/alloc.h"
#include "runtime/assert.h"

enum { KC = 256, MC = 336, NC = 3 * DT__GEMM_BLOCK, PAD = 16 };
#define PAGE 4096

const dt__gemm_ops *dt__gemm_ops_now(dt_dtype sum_type) {
    static const dt__gemm_ops *const f32[DT_CPU_LEVELS] =
#if DT_ISA_BASE_ONLY
        {&dt__gemm_f32_base, &dt__gemm_f32_base, &dt__gemm_f32_base};
#else
        {&dt__gemm_f32_base, &dt__gemm_f32_avx2, &dt__gemm_f32_avx512};
#endif
    static const dt__gemm_ops *const f64[DT_CPU_LEVELS] =
#if DT_ISA_BASE_ONLY
        {&dt__gemm_f64_base, &dt__gemm_f64_base, &dt__gemm_f64_base};
#else
        {&dt__gemm_f64_base, &dt__gemm_f64_avx2, &dt__gemm_f64_avx512};
#endif
    DT_ASSERT(sum_type == DT_F32 || sum_type == DT_F64);
    return sum_type == DT_F32 ? f32[dt_cpu_level_now()] : f64[dt_cpu_level_now()];
}

dt__gemm_int dt__gemm_int_now(dt_dtype dtype) {
    static const dt__gemm_int *const ints[DT_CPU_LEVELS] = DT_CPU_VARIANTS(dt__gemm_ints);
    return ints[dt_cpu_level_now()][dtype];
}

/* ---- the plan -------------------------------------------------------------------------------- */

typedef struct plan {
    dt_dtype sum; /* type of the sums and of everything in scratch */
    bool is_float;
    bool copy_a, pack_b, pack_tail, keep_c, widen_b;
    int64_t kc, mc, nc, width;
    int64_t lda, ldb, ldc;       /* of the copies */
    size_t a, b, c, wide, total; /* where they begin, in bytes */
} plan;

static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
static size_t align_up(size_t n) { return (n + 63) & ~(size_t)63; }
static int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

static void lay_out(plan *p) {
    size_t item = dt_dtype_size(p->sum), at = 0;
    p->a = at;
    if (p->copy_a) at += align_up((size_t)(p->mc * p->lda) * item);
    p->b = at;
    if (p->pack_b)
        at += align_up((size_t)(p->kc * round_up(p->nc, p->width)) * item);
    else if (p->pack_tail)
        at += align_up((size_t)(p->kc * p->width) * item);
    p->c = at;
    if (p->keep_c) at += align_up((size_t)(p->mc * p->ldc) * item);
    p->wide = at;
    if (p->widen_b) at += align_up((size_t)(p->kc * lesser(p->nc, DT__GEMM_BLOCK)) * item);
    p->total = at;
}

static void plan_ints(const dt__gemm_job *j, plan *p) {
    p->width = 1;
    p->kc = lesser(j->k, KC);
    p->mc = lesser(j->m, MC);
    p->nc = lesser(j->n, NC);
    p->pack_b = j->sbn != 1;
    p->keep_c = j->scn != 1;
    p->ldb = p->ldc = p->nc;
    lay_out(p);
}

static void make_plan(const dt__gemm_job *j, plan *p) {
    memset(p, 0, sizeof *p);
    p->sum = dt__gemm_sum_type(j->dtype);
    p->is_float = dt_dtype_is_float(j->dtype);
    if (!p->is_float) {
        plan_ints(j, p);
        return;
    }
    bool half = p->sum != j->dtype;
    int64_t item = (int64_t)dt_dtype_size(p->sum);
    p->width = dt__gemm_ops_now(p->sum)->width;
    p->kc = lesser(j->k, KC);
    p->mc = lesser(j->m, MC);
    p->nc = lesser(j->n, NC);
    p->copy_a = half || j->sak != 1 || (j->m > 6 && j->k > 64 && j->sam * item % PAGE == 0);
    bool direct = !half && j->sbn == 1 && (j->m <= 28 || j->k * j->n * item <= 128 * 1024);
    p->pack_b = !direct;
    p->pack_tail = direct && j->n % p->width != 0;
    p->widen_b = half;
    p->keep_c = half || j->scn != 1;
    p->lda = p->kc + PAD;
    p->ldc = round_up(p->nc, PAD);
    lay_out(p);
}

size_t dt__gemm_scratch(const dt__gemm_job *job) {
    plan p;
    make_plan(job, &p);
    return p.total;
}

/* One step of the loops: rows m0.., columns n0.., and k0.. of the sums. */
typedef struct block {
    int64_t k0, kc, m0, mc, n0, nc;
    const char *a;
    int64_t sa;
    char *c;
    int64_t ldc;
    bool first, last;
} block;

/* ---- moving pieces --------------------------------------------------------------------------- */

void dt__gemm_gather(int64_t n, void *to, dt_dtype to_dtype, const void *from, int64_t stride,
                     dt_dtype dtype) {
    int64_t size = (int64_t)dt_dtype_size(dtype);
    if (to_dtype == dtype) {
        if (stride == 1)
            memcpy(to, from, (size_t)(n * size));
        else
            dt__gather(size, n, to, from, stride * size);
        return;
    }
    if (stride == 1) {
        dt_cast(n, to, to_dtype, from, dtype);
        return;
    }
    char buffer[2048];
    int64_t step = (int64_t)sizeof buffer / size, to_size = (int64_t)dt_dtype_size(to_dtype);
    for (int64_t i = 0; i < n; i += step) {
        int64_t count = lesser(step, n - i);
        dt__gather(size, count, buffer, (const char *)from + i * stride * size, stride * size);
        dt_cast(count, (char *)to + i * to_size, to_dtype, buffer, dtype);
    }
}

static const char *element(const void *base, dt_dtype dtype, int64_t index) {
    return (const char *)base + index * (int64_t)dt_dtype_size(dtype);
}

/* rows x columns into contiguous rows of the sum type, `ld` apart. */
static void copy_rows(const plan *p, dt_dtype dtype, int64_t rows, int64_t columns,
                      const char *from, int64_t sr, int64_t sc, char *to, int64_t ld) {
    int64_t item = (int64_t)dt_dtype_size(dtype), sum_item = (int64_t)dt_dtype_size(p->sum);
    for (int64_t r = 0; r < rows; r++)
        dt__gemm_gather(columns, to + r * ld * sum_item, p->sum, from + r * sr * item, sc, dtype);
}

static const void *packed_at(const dt__gemm_job *j, int64_t column) {
    return j->packed ? j->packed[column / DT__GEMM_BLOCK] : NULL;
}

/* Packs b [k0.., kc] x [n0.., nc]. */
static void pack_columns(const dt__gemm_job *j, const plan *p, int64_t k0, int64_t kc, int64_t n0,
                         int64_t nc, char *scratch, char *to) {
    const dt__gemm_ops *ops = dt__gemm_ops_now(p->sum);
    const char *b = element(j->b, j->dtype, k0 * j->sbk + n0 * j->sbn);
    int64_t sbk = j->sbk, sbn = j->sbn;
    if (p->widen_b) {
        bool by_k = sbk == 1 && sbn != 1; /* keep the direction in which b is contiguous */
        if (by_k)
            copy_rows(p, j->dtype, nc, kc, b, sbn, sbk, scratch + p->wide, kc);
        else
            copy_rows(p, j->dtype, kc, nc, b, sbk, sbn, scratch + p->wide, nc);
        b = scratch + p->wide;
        sbk = by_k ? 1 : nc;
        sbn = by_k ? kc : 1;
    }
    ops->pack(kc, nc, b, sbk, sbn, to, kc * p->width);
}

/* Packs what at's columns of b lack. */
static void pack_block(const dt__gemm_job *j, const plan *p, const block *at, char *scratch) {
    int64_t item = (int64_t)dt_dtype_size(p->sum);
    for (int64_t n = 0; n < at->nc; n += DT__GEMM_BLOCK) {
        int64_t count = lesser(DT__GEMM_BLOCK, at->nc - n);
        if (packed_at(j, at->n0 + n)) continue;
        pack_columns(j, p, at->k0, at->kc, at->n0 + n, count, scratch,
                     scratch + p->b + n * at->kc * item);
    }
}

/* ---- the product ----------------------------------------------------------------------------- */

static dt__gemm_end end_at(const dt__gemm_job *j, int64_t m0, int64_t n0) {
    dt__gemm_end end = j->end;
    if (end.bias) end.bias = element(end.bias, j->dtype, m0 * end.bias_m + n0 * end.bias_n);
    return end;
}

static bool needs_finish(const dt__gemm_end *end) { return end->bias || end->alpha != 1.0; }

/* alpha, bias and beta for rows of sums; the bias of halves is widened row by row. */
static void finish_rows(const dt__gemm_job *j, const plan *p, int64_t m0, int64_t m, int64_t n0,
                        int64_t n, char *c, int64_t ldc) {
    const dt__gemm_ops *ops = dt__gemm_ops_now(p->sum);
    dt__gemm_end end = end_at(j, m0, n0);
    if (!needs_finish(&end)) return;
    if (!end.bias || p->sum == j->dtype) {
        ops->finish(m, n, c, ldc, &end);
        return;
    }
    float wide[64];
    for (int64_t i = 0; i < m; i++) {
        for (int64_t at = 0; at < n; at += 64) {
            int64_t count = lesser(64, n - at);
            dt__gemm_end row = end;
            const char *bias = element(end.bias, j->dtype, i * end.bias_m + at * end.bias_n);
            dt__gemm_gather(count, wide, p->sum, bias, end.bias_n, j->dtype);
            row.bias = wide;
            row.bias_n = 1;
            ops->finish(1, count, (float *)(void *)c + i * ldc + at, ldc, &row);
        }
    }
}

static void panels(const dt__gemm_job *j, const plan *p, const block *at, char *scratch) {
    const dt__gemm_ops *ops = dt__gemm_ops_now(p->sum);
    int64_t item = (int64_t)dt_dtype_size(p->sum), w = p->width;
    for (int64_t n = 0; n < at->nc; n += w) {
        int64_t count = lesser(w, at->nc - n), ldb = w;
        const char *b;
        const void *packed = packed_at(j, at->n0 + n);
        if (packed) {
            int64_t inside = (at->n0 + n) % DT__GEMM_BLOCK;
            b = (const char *)packed + (inside * j->k + at->k0 * w) * item;
        } else if (p->pack_b) {
            b = scratch + p->b + n * at->kc * item;
        } else {
            b = element(j->b, j->dtype, at->k0 * j->sbk + (at->n0 + n) * j->sbn);
            ldb = j->sbk;
            if (count < w) {
                ops->pack(at->kc, count, b, j->sbk, j->sbn, scratch + p->b, 0);
                b = scratch + p->b;
                ldb = w;
            }
        }
        char *c = at->c + n * item;
        ops->panel(at->mc, at->kc, at->a, at->sa, b, ldb, c, at->ldc, (int)count, at->first);
        if (at->last) finish_rows(j, p, at->m0, at->mc, at->n0 + n, count, c, at->ldc);
    }
}

/* Sums in scratch to c. */
static void put_rows(const dt__gemm_job *j, const plan *p, const block *at) {
    int64_t item = (int64_t)dt_dtype_size(j->dtype), sum_item = (int64_t)dt_dtype_size(p->sum);
    for (int64_t i = 0; i < at->mc; i++) {
        char *from = at->c + i * at->ldc * sum_item;
        char *to = (char *)j->c + ((at->m0 + i) * j->scm + at->n0 * j->scn) * item;
        char row[NC * 8];
        if (p->sum != j->dtype) {
            dt_cast(at->nc, j->scn == 1 ? to : row, j->dtype, from, p->sum);
            from = row;
        }
        if (j->scn != 1) dt__scatter(item, at->nc, to, j->scn * item, from);
    }
}

static void float_block(const dt__gemm_job *j, const plan *p, block *at, char *scratch) {
    int64_t item = (int64_t)dt_dtype_size(p->sum);
    at->c = p->keep_c ? scratch + p->c : (char *)j->c + (at->m0 * j->scm + at->n0) * item;
    at->ldc = p->keep_c ? p->ldc : j->scm;
    at->k0 = 0;
    do { /* once at least: without k the sums are 0 */
        at->kc = lesser(p->kc, j->k - at->k0);
        at->first = at->k0 == 0;
        at->last = at->k0 + at->kc == j->k;
        if (p->pack_b && at->kc > 0) pack_block(j, p, at, scratch);
        at->a = element(j->a, j->dtype, at->m0 * j->sam + at->k0 * j->sak);
        at->sa = j->sam;
        if (p->copy_a) {
            copy_rows(p, j->dtype, at->mc, at->kc, at->a, j->sam, j->sak, scratch + p->a, p->lda);
            at->a = scratch + p->a;
            at->sa = p->lda;
        }
        panels(j, p, at, scratch);
        at->k0 += at->kc;
    } while (at->k0 < j->k);
    if (p->keep_c) put_rows(j, p, at);
}

/* ---- integers -------------------------------------------------------------------------------- */

#define FINISH_INTS(type)                                                                          \
    for (int64_t i = 0; i < at->mc; i++)                                                           \
        for (int64_t n = 0; n < at->nc; n++) {                                                     \
            type *c = (type *)(void *)at->c + i * at->ldc + n;                                     \
            uint64_t v = alpha * (uint64_t)*c;                                                     \
            if (end.bias)                                                                          \
                v += beta * (uint64_t)((const type *)end.bias)[i * end.bias_m + n * end.bias_n];   \
            *c = (type)v;                                                                          \
        }

static void finish_ints(const dt__gemm_job *j, const block *at) {
    dt__gemm_end end = end_at(j, at->m0, at->n0);
    if (!needs_finish(&end)) return;
    uint64_t alpha = (uint64_t)(int64_t)end.alpha, beta = (uint64_t)(int64_t)end.beta;
    switch (dt_dtype_size(j->dtype)) { /* modulo 2^bits, signs do not matter */
    case 1:
        FINISH_INTS(uint8_t) break;
    case 2:
        FINISH_INTS(uint16_t) break;
    case 4:
        FINISH_INTS(uint32_t) break;
    default:
        FINISH_INTS(uint64_t) break;
    }
}

static void int_block(const dt__gemm_job *j, const plan *p, block *at, char *scratch) {
    dt__gemm_int gemm = dt__gemm_int_now(j->dtype);
    int64_t item = (int64_t)dt_dtype_size(j->dtype);
    at->c = p->keep_c ? scratch + p->c : (char *)j->c + (at->m0 * j->scm + at->n0) * item;
    at->ldc = p->keep_c ? p->ldc : j->scm;
    for (int64_t i = 0; i < at->mc; i++)
        memset(at->c + i * at->ldc * item, 0, (size_t)(at->nc * item));
    for (at->k0 = 0; at->k0 < j->k; at->k0 += at->kc) {
        at->kc = lesser(p->kc, j->k - at->k0);
        const char *a = element(j->a, j->dtype, at->m0 * j->sam + at->k0 * j->sak);
        const char *b = element(j->b, j->dtype, at->k0 * j->sbk + at->n0 * j->sbn);
        int64_t ldb = j->sbk;
        if (p->pack_b) {
            copy_rows(p, j->dtype, at->kc, at->nc, b, j->sbk, j->sbn, scratch + p->b, p->ldb);
            b = scratch + p->b;
            ldb = p->ldb;
        }
        gemm(at->mc, at->nc, at->kc, a, j->sam, j->sak, b, ldb, at->c, at->ldc);
    }
    finish_ints(j, at);
    if (p->keep_c) put_rows(j, p, at);
}

void dt__gemm_run(const dt__gemm_job *j, void *scratch) {
    plan p;
    make_plan(j, &p);
    DT_ASSERT(p.total == 0 || scratch != NULL);
    block at = {0};
    for (at.n0 = 0; at.n0 < j->n; at.n0 += at.nc) {
        at.nc = lesser(p.nc, j->n - at.n0);
        for (at.m0 = 0; at.m0 < j->m; at.m0 += at.mc) {
            at.mc = lesser(p.mc, j->m - at.m0);
            if (p.is_float)
                float_block(j, &p, &at, scratch);
            else
                int_block(j, &p, &at, scratch);
        }
    }
}

/* ---- estimates ------------------------------------------------------------------------------- */

double dt__gemm_cost_ns(dt_dtype dtype, double m, double n, double k) {
    /* Operations (a product and a sum are two) in a nanosecond, measured on one core of a server.
     */
    static const double f32[DT_CPU_LEVELS] = {18, 70, 140};
    double rate = f32[dt_cpu_level_now()];
    if (dtype == DT_F64)
        rate /= 2;
    else if (!dt_dtype_is_float(dtype))
        rate /= (double)(dt_dtype_size(dtype) * 2);
    double item = (double)dt_dtype_size(dtype);
    double compute = 2 * m * n * k / rate, stream = item * (n * k + m * k + m * n) / 25;
    return 150 + (compute > stream ? compute : stream);
}
