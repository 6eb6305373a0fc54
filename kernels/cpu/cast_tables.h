/* cast_tables.h: what simd/cast.c leaves behind for each instruction set. */
#ifndef DT_KERNELS_CPU_CAST_TABLES_H
#define DT_KERNELS_CPU_CAST_TABLES_H

#include <stdint.h>

#include "runtime/dtype.h"

typedef void (*dt__cast_fn)(int64_t n, void *to, const void *from);
/* [from][to]; NULL: not in one step. */
typedef dt__cast_fn dt__cast_table[DT_DTYPE_COUNT][DT_DTYPE_COUNT];
/* f32 to f32, rounded to a half; NULL: not a half. */
typedef dt__cast_fn dt__round_table[DT_DTYPE_COUNT];

extern const dt__cast_table dt__casts_base;
extern const dt__cast_table dt__casts_avx2;
extern const dt__cast_table dt__casts_avx512;
extern const dt__round_table dt__rounds_base;
extern const dt__round_table dt__rounds_avx2;
extern const dt__round_table dt__rounds_avx512;

#endif
