/* attention.h: rows of scores to weights, for every instruction set (simd/attention_rows.c). */
#ifndef DT_KERNELS_CPU_ATTENTION_H
#define DT_KERNELS_CPU_ATTENTION_H

#include <stdint.h>

#define DT__ATTENTION_PAD 32 /* rows of scores have a multiple of this many places */

/* x[j] = exp(scale * x[j] + mask[j] - greatest) for j < n, 0 up to the multiple of
 * DT__ATTENTION_PAD; mask may be NULL. Returns 1 / their sum; 0 for a row without anything in it
 * (no j, or all -inf). */
typedef float (*dt__attention_row)(int64_t n, float *x, float scale, const float *mask);

extern const dt__attention_row dt__attention_row_base, dt__attention_row_avx2,
    dt__attention_row_avx512;

#endif
