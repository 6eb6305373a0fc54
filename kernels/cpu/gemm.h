/* gemm.h: the building blocks of matrix products on the CPU.
 *
 * Two forms, both compiled for every instruction set (simd/gemm_*.c):
 *   dot    out[i][j] = x row i . w row j, both contiguous along k.  Streams w once, for few rows.
 *   panel  out += a @ b for a b that lies in panels: `width` columns next to each other for every
 *          k. gemm.c cuts a product of any size, layout and float type into such calls.
 *
 * I1: the order of the additions that make one element depends on k and the form alone: not on m,
 *     n, the row's or column's place, the blocks, or the threads.
 * I2: `scratch` is 64-byte aligned and belongs to one part.
 */
#ifndef DT_KERNELS_CPU_GEMM_H
#define DT_KERNELS_CPU_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/cpuid.h"
#include "runtime/dtype.h"

/* What happens to a finished sum: alpha * sum + beta * bias[i * bias_m + j * bias_n]. */
typedef struct dt__gemm_end {
    double alpha, beta;
    const void *bias; /* NULL: none; of the sums' type in simd/, of the outputs' type in gemm.c */
    int64_t bias_m, bias_n;
} dt__gemm_end;

/* One float type on one instruction set. Strides are in elements, pointers are to that type. */
typedef struct dt__gemm_ops {
    int width; /* columns of a panel */
    int rows;  /* rows of the largest tile; a multiple of them wastes nothing */
    /* c [m, nc] (+)= a [m, k] @ b [k, nc]; a's k stride is 1; rows of b are ldb apart and have
     * `width` readable columns; nc <= width columns of c are read (unless first) and written. */
    void (*panel)(int64_t m, int64_t k, const void *a, int64_t sa, const void *b, int64_t ldb,
                  void *c, int64_t ldc, int nc, bool first);
    /* Writes b [k, n] as ceil(n / width) panels of [k, width], columns beyond n as zeros; a panel
     * begins `panel_step` elements after the one before. */
    void (*pack)(int64_t k, int64_t n, const void *b, int64_t sbk, int64_t sbn, void *to,
                 int64_t panel_step);
    /* Applies `end` to c [m, n] in place. */
    void (*finish)(int64_t m, int64_t n, void *c, int64_t ldc, const dt__gemm_end *end);
    /* y[i * sym + j * syn] = end(x[i] . w[j]) for i < m, j < n. */
    void (*dot)(int64_t m, int64_t n, int64_t k, const void *x, int64_t sx, const void *w,
                int64_t sw, void *y, int64_t sym, int64_t syn, const dt__gemm_end *end);
} dt__gemm_ops;

/* c [m, n] += a [m, k] @ b [k, n] with wraparound; columns of b and c lie next to each other. */
typedef void (*dt__gemm_int)(int64_t m, int64_t n, int64_t k, const void *a, int64_t sam,
                             int64_t sak, const void *b, int64_t ldb, void *c, int64_t ldc);

extern const dt__gemm_ops dt__gemm_f32_base, dt__gemm_f32_avx2, dt__gemm_f32_avx512;
extern const dt__gemm_ops dt__gemm_f64_base, dt__gemm_f64_avx2, dt__gemm_f64_avx512;
extern const dt__gemm_int dt__gemm_ints_base[DT_DTYPE_COUNT], dt__gemm_ints_avx2[DT_DTYPE_COUNT],
    dt__gemm_ints_avx512[DT_DTYPE_COUNT];

/* The type in which sums of `dtype` are kept. */
static inline dt_dtype dt__gemm_sum_type(dt_dtype dtype) {
    return dtype == DT_F16 || dtype == DT_BF16 ? DT_F32 : dtype;
}

/* The building blocks for sums in F32 or F64. */
const dt__gemm_ops *dt__gemm_ops_now(dt_dtype sum_type);
dt__gemm_int dt__gemm_int_now(dt_dtype dtype);

#define DT__GEMM_BLOCK 128 /* columns: a multiple of every panel's width */

/* One product of matrices; strides in elements. */
typedef struct dt__gemm_job {
    dt_dtype dtype;
    int64_t m, n, k;
    const void *a;
    int64_t sam, sak;
    const void *b;
    int64_t sbk, sbn;
    /* NULL, or for each DT__GEMM_BLOCK columns of b the same as dt__gemm_ops.pack leaves it
     * (panel_step k * width), or NULL where there is no such copy. Not for halves. */
    const void *const *packed;
    void *c;
    int64_t scm, scn;
    dt__gemm_end end;
} dt__gemm_job;

/* Scratch that dt__gemm_run wants for this job (pointers are not looked at). */
size_t dt__gemm_scratch(const dt__gemm_job *job);
void dt__gemm_run(const dt__gemm_job *job, void *scratch);

/* About how long a product takes on one thread, in nanoseconds. */
double dt__gemm_cost_ns(dt_dtype dtype, double m, double n, double k);

/* n elements of dtype, `stride` apart, to contiguous ones of to_dtype. */
void dt__gemm_gather(int64_t n, void *to, dt_dtype to_dtype, const void *from, int64_t stride,
                     dt_dtype dtype);

#endif
