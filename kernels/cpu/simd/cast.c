/* Conversions of contiguous elements, one loop for each pair of types.
 *
 *     const dt__cast_fn dt__casts_<isa>[DT_DTYPE_COUNT][DT_DTYPE_COUNT]     [from][to]
 *
 *     const dt__cast_fn dt__rounds_<isa>[DT_DTYPE_COUNT]                    f32 by way of a half
 *
 * Halves only convert to and from f32: dt_cast (cast.c) goes that way for the rest, which is also
 * how torch rounds.  Pairs of one type are NULL.
 *
 * C leaves a float that does not fit into an integer undefined; the conversion instructions of x86
 * give the least integer, in their scalar and vector forms alike, and that is what torch shows.
 */
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/cast_tables.h"
#include "kernels/cpu/simd/half_bits.h"

#if DT_ISA_BASE_ONLY
/* Other machines saturate. */
static inline int32_t to_i32(double x) {
    return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN;
}
static inline int64_t to_i64(double x) {
    return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
}
#else
#define to_i32(x) ((int32_t)(x))
#define to_i64(x) ((int64_t)(x))
#endif

#define CAST(S_, s_type, D_, d_type, expression)                                                   \
    static void S_##_to_##D_(int64_t n, void *to, const void *from) {                              \
        const s_type *s = from;                                                                    \
        d_type *d = to;                                                                            \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {                                     \
            const s_type x = s[i];                                                                 \
            d[i] = (d_type)(expression);                                                           \
        }                                                                                          \
    }

/* From S to every type that is not a half; the row's own type gives a loop that nobody calls. */
#define CASTS_FROM(S_, s_type, value, narrow, wide)                                                \
    CAST(S_, s_type, BOOL, uint8_t, (x) != 0)                                                      \
    CAST(S_, s_type, U8, uint8_t, narrow(value))                                                   \
    CAST(S_, s_type, I8, int8_t, narrow(value))                                                    \
    CAST(S_, s_type, I16, int16_t, narrow(value))                                                  \
    CAST(S_, s_type, I32, int32_t, narrow(value))                                                  \
    CAST(S_, s_type, I64, int64_t, wide(value))                                                    \
    CAST(S_, s_type, F32, float, value)                                                            \
    CAST(S_, s_type, F64, double, value)

#define AS_IS(x) (x)
CASTS_FROM(BOOL, uint8_t, (x != 0), AS_IS, AS_IS)
CASTS_FROM(U8, uint8_t, x, AS_IS, AS_IS)
CASTS_FROM(I8, int8_t, x, AS_IS, AS_IS)
CASTS_FROM(I16, int16_t, x, AS_IS, AS_IS)
CASTS_FROM(I32, int32_t, x, AS_IS, AS_IS)
CASTS_FROM(I64, int64_t, x, AS_IS, AS_IS)
CASTS_FROM(F32, float, x, to_i32, to_i64)
CASTS_FROM(F64, double, x, to_i32, to_i64)

CAST(F16, uint16_t, F32, float, dt__f16_bits_to_f32(x))
CAST(BF16, uint16_t, F32, float, dt__bf16_bits_to_f32(x))
CAST(F32, float, F16, uint16_t, dt__f32_to_f16_bits(x))
CAST(F32, float, BF16, uint16_t, dt__f32_to_bf16_bits(x))
CAST(ROUNDED_F16, float, F32, float, dt_round_to_f16(x))
CAST(ROUNDED_BF16, float, F32, float, dt_round_to_bf16(x))

#define ROW(S_)                                                                                    \
    [DT_BOOL] = S_##_to_BOOL, [DT_U8] = S_##_to_U8, [DT_I8] = S_##_to_I8, [DT_I16] = S_##_to_I16,  \
    [DT_I32] = S_##_to_I32, [DT_I64] = S_##_to_I64, [DT_F32] = S_##_to_F32, [DT_F64] = S_##_to_F64

#define JOIN(a, b) a##b
#define TABLE_OF(isa) JOIN(dt__casts_, isa)

const dt__cast_table TABLE_OF(DT_ISA_SUFFIX) = {
    [DT_BOOL] = {ROW(BOOL)},
    [DT_U8] = {ROW(U8)},
    [DT_I8] = {ROW(I8)},
    [DT_I16] = {ROW(I16)},
    [DT_I32] = {ROW(I32)},
    [DT_I64] = {ROW(I64)},
    [DT_F32] = {ROW(F32), [DT_F16] = F32_to_F16, [DT_BF16] = F32_to_BF16},
    [DT_F64] = {ROW(F64)},
    [DT_F16] = {[DT_F32] = F16_to_F32},
    [DT_BF16] = {[DT_F32] = BF16_to_F32},
};

#define ROUNDS_OF(isa) JOIN(dt__rounds_, isa)
const dt__round_table ROUNDS_OF(DT_ISA_SUFFIX) = {
    [DT_F16] = ROUNDED_F16_to_F32,
    [DT_BF16] = ROUNDED_BF16_to_F32,
};
