/* rows.h: functions on one row of floats for softmax and normalisation, one table per variant. */
#ifndef DT_KERNELS_CPU_ROWS_H
#define DT_KERNELS_CPU_ROWS_H

#include <stdint.h>

#include "kernels/cpu/cpuid.h"

typedef struct dt__row_ops {
    /* y = exp(x - max) / sum exp(x - max); y may be x. n > 0. */
    void (*softmax)(const void *x, void *y, int64_t n);
    /* y = x - max - log(sum exp(x - max)) */
    void (*log_softmax)(const void *x, void *y, int64_t n);
    /* y = (x - mean) / sqrt(var + eps) * w + b; w, b may be NULL; y may be x. */
    void (*layer_norm)(const void *x, void *y, int64_t n, const void *w, const void *b, double eps);
    /* y = x / sqrt(mean(x * x) + eps) * w */
    void (*rms_norm)(const void *x, void *y, int64_t n, const void *w, const void *b, double eps);
} dt__row_ops;

typedef const dt__row_ops dt__row_table[2]; /* float, double */
extern dt__row_table dt__rows_base, dt__rows_avx2, dt__rows_avx512;

static inline const dt__row_ops *dt__row_find(int is_double) {
    static dt__row_table *const tables[DT_CPU_LEVELS] = {
#if DT_ISA_BASE_ONLY
        &dt__rows_base,
        &dt__rows_base,
        &dt__rows_base
#else
        &dt__rows_base,
        &dt__rows_avx2,
        &dt__rows_avx512
#endif
    };
    return &(*tables[dt_cpu_level_now()])[is_double];
}

#endif
