/* cast.c: see cast.h. Same types are a copy; halves go by way of f32 in pieces that stay in L1. */
#include "kernels/cpu/cast.h"

#include <string.h>

#include "kernels/cpu/cast_tables.h"
#include "kernels/cpu/cpuid.h"

#define PIECE 512 /* elements */

static const dt__cast_table *const tables[DT_CPU_LEVELS] = DT_CPU_VARIANTS(&dt__casts);
static const dt__round_table *const rounds[DT_CPU_LEVELS] = DT_CPU_VARIANTS(&dt__rounds);

static void cast_by_f32(const dt__cast_table *casts, int64_t n, void *to, dt_dtype to_dtype,
                        const void *from, dt_dtype from_dtype) {
    dt__cast_fn widen = (*casts)[from_dtype][DT_F32], narrow = (*casts)[DT_F32][to_dtype];
    DT_ASSERT(widen != NULL && narrow != NULL);
    const char *s = from;
    char *d = to;
    float piece[PIECE];
    while (n > 0) {
        int64_t m = n < PIECE ? n : PIECE;
        widen(m, piece, s);
        narrow(m, d, piece);
        s += m * (int64_t)dt_dtype_size(from_dtype);
        d += m * (int64_t)dt_dtype_size(to_dtype);
        n -= m;
    }
}

void dt_cast(int64_t n, void *to, dt_dtype to_dtype, const void *from, dt_dtype from_dtype) {
    if (to_dtype == from_dtype) {
        if (to != from) memcpy(to, from, (size_t)n * dt_dtype_size(to_dtype));
        return;
    }
    const dt__cast_table *casts = tables[dt_cpu_level_now()];
    dt__cast_fn direct = (*casts)[from_dtype][to_dtype];
    if (direct != NULL)
        direct(n, to, from);
    else
        cast_by_f32(casts, n, to, to_dtype, from, from_dtype);
}

void dt_round(int64_t n, float *to, dt_dtype half, const float *from) {
    dt__cast_fn round = (*rounds[dt_cpu_level_now()])[half];
    DT_ASSERT(round != NULL);
    round(n, to, from);
}

void dt_cast_scalar(dt_scalar value, dt_dtype dtype, void *to) {
    if (value.category == DT_CAT_FLOAT)
        dt_cast(1, to, dtype, &value.f, DT_F64);
    else
        dt_cast(1, to, dtype, &value.i, DT_I64);
}
