/* reduce.h: the row and column functions that reductions are made of, one table for each variant.
 *
 * Every reduction follows one tree that depends on the number of elements alone: blocks of
 * DT__BLOCK elements; in a block DT__LANES interleaved accumulators, folded in halves; block
 * results merged in pairs (a binary counter).  `row` walks one output's elements side by side in
 * memory, `column` adds a row of many outputs to one lane of each: both give the same bits.
 */
#ifndef DT_KERNELS_CPU_REDUCE_H
#define DT_KERNELS_CPU_REDUCE_H

#include <stdint.h>

#include "kernels/cpu/cpuid.h"

#define DT__LANES 64
#define DT__BLOCK 4096 /* elements: 64 for each lane; 16 KiB of float */

/* The accumulator types. */
typedef enum dt__acc { DT__ACC_F32, DT__ACC_F64, DT__ACC_I64, DT__ACC_U8, DT__ACC_COUNT } dt__acc;

/* X(name): an associative combination of mapped elements. */
#define DT__REDUCERS(X)                                                                            \
    X(sum)                                                                                         \
    X(prod)                                                                                        \
    X(max) X(min) X(sumsq) X(sumabs) X(maxabs) X(minabs) X(count) X(sumpow) X(sumexp) X(sqdiff)

typedef enum dt__reducer {
#define X(name) DT__RED_##name,
    DT__REDUCERS(X)
#undef X
        DT__RED_COUNT,
} dt__reducer;

typedef struct dt__reduce_ops {
    /* One block: n <= DT__BLOCK contiguous elements of the accumulator type to one. */
    void (*row)(const void *x, int64_t n, double p, void *out);
    /* lane[i] = combine(lane[i], map(x[i])) */
    void (*column)(void *lane, const void *x, int64_t n, double p);
    /* a[i] = combine(a[i], b[i]) */
    void (*merge)(void *a, const void *b, int64_t n);
    void (*identity)(void *a, int64_t n);
} dt__reduce_ops;

typedef const dt__reduce_ops dt__reduce_table[DT__ACC_COUNT][DT__RED_COUNT];
extern dt__reduce_table dt__reduce_base, dt__reduce_avx2, dt__reduce_avx512;

static inline const dt__reduce_ops *dt__reduce_find(dt__acc acc, dt__reducer reducer) {
    static dt__reduce_table *const tables[DT_CPU_LEVELS] = {
#if DT_ISA_BASE_ONLY
        &dt__reduce_base,
        &dt__reduce_base,
        &dt__reduce_base
#else
        &dt__reduce_base,
        &dt__reduce_avx2,
        &dt__reduce_avx512
#endif
    };
    return &(*tables[dt_cpu_level_now()])[acc][reducer];
}

#endif
