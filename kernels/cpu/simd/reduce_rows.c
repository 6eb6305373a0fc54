/* reduce_rows.c: row and column functions of reductions (reduce.h), for one instruction set.
 *
 * One line of the list below gives a reducer: how an element is mapped (x, with the parameter p)
 * and how two mapped values combine (a, b), and the value that changes nothing.
 *
 * R1: lanes live in memory, not in registers: the compiler vectorises over lanes, and the additions
 *     of one lane stay in order, so that every variant gives the same bits.
 */
#include "kernels/cpu/reduce.h"

#include <math.h>
#include <stdint.h>

#include "kernels/cpu/simd/math.h"
#include "kernels/cpu/simd/math_double.h"

#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)

#define SUM(a, b) ((a) + (b))
#define PROD(a, b) ((a) * (b))
#define MAX(a, b) (((a) > (b) || (a) != (a)) ? (a) : (b))
#define MIN(a, b) (((a) < (b) || (a) != (a)) ? (a) : (b))

#define DEFINE(name, A, T, MAP, COMBINE, IDENTITY)                                                 \
    static void name##_row_##A(const void *data, int64_t n, double parameter, void *out) {         \
        const T *in = data;                                                                        \
        const T p = (T)parameter;                                                                  \
        T lanes[DT__LANES];                                                                        \
        int64_t i = 0;                                                                             \
        (void)p;                                                                                   \
        for (int l = 0; l < DT__LANES; l++) lanes[l] = IDENTITY;                                   \
        for (; i + DT__LANES <= n; i += DT__LANES)                                                 \
            for (int l = 0; l < DT__LANES; l++) {                                                  \
                const T x = in[i + l];                                                             \
                lanes[l] = COMBINE(lanes[l], (MAP));                                               \
            }                                                                                      \
        for (int l = 0; i + l < n; l++) {                                                          \
            const T x = in[i + l];                                                                 \
            lanes[l] = COMBINE(lanes[l], (MAP));                                                   \
        }                                                                                          \
        for (int half = DT__LANES / 2; half > 0; half /= 2)                                        \
            for (int l = 0; l < half; l++) lanes[l] = COMBINE(lanes[l], lanes[l + half]);          \
        *(T *)out = lanes[0];                                                                      \
    }                                                                                              \
    static void name##_column_##A(void *lane, const void *data, int64_t n, double parameter) {     \
        T *restrict to = lane;                                                                     \
        const T *restrict in = data;                                                               \
        const T p = (T)parameter;                                                                  \
        (void)p;                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const T x = in[i];                                                                     \
            to[i] = COMBINE(to[i], (MAP));                                                         \
        }                                                                                          \
    }                                                                                              \
    static void name##_merge_##A(void *a, const void *b, int64_t n) {                              \
        T *restrict to = a;                                                                        \
        const T *restrict from = b;                                                                \
        for (int64_t i = 0; i < n; i++) to[i] = COMBINE(to[i], from[i]);                           \
    }                                                                                              \
    static void name##_identity_##A(void *a, int64_t n) {                                          \
        T *to = a;                                                                                 \
        for (int64_t i = 0; i < n; i++) to[i] = IDENTITY;                                          \
    }

/* Adding -0.0 changes no float, not even a -0.0. */
#define DEFINE_FLOAT(A, T, ABS, EXP, POW)                                                          \
    DEFINE(sum, A, T, x, SUM, (T)-0.0)                                                             \
    DEFINE(prod, A, T, x, PROD, (T)1)                                                              \
    DEFINE(max, A, T, x, MAX, (T)-INFINITY)                                                        \
    DEFINE(min, A, T, x, MIN, (T)INFINITY)                                                         \
    DEFINE(sumsq, A, T, x *x, SUM, (T)-0.0)                                                        \
    DEFINE(sumabs, A, T, ABS(x), SUM, (T)-0.0)                                                     \
    DEFINE(maxabs, A, T, ABS(x), MAX, (T)-INFINITY)                                                \
    DEFINE(minabs, A, T, ABS(x), MIN, (T)INFINITY)                                                 \
    DEFINE(count, A, T, (T)(x != 0), SUM, (T)-0.0)                                                 \
    DEFINE(sumpow, A, T, POW(ABS(x), p), SUM, (T)-0.0)                                             \
    DEFINE(sumexp, A, T, EXP(x - p), SUM, (T)-0.0)                                                 \
    DEFINE(sqdiff, A, T, (x - p) * (x - p), SUM, (T)-0.0)

DEFINE_FLOAT(f32, float, __builtin_fabsf, dt_expf, dt_powf)
DEFINE_FLOAT(f64, double, __builtin_fabs, dt_exp, dt_pow)

/* Integers wrap around, as torch's do: sums and products run on the unsigned type. */
DEFINE(sum, i64, uint64_t, x, SUM, 0)
DEFINE(prod, i64, uint64_t, x, PROD, 1)
DEFINE(max, i64, int64_t, x, MAX, INT64_MIN)
DEFINE(min, i64, int64_t, x, MIN, INT64_MAX)
DEFINE(count, i64, int64_t, x != 0, SUM, 0)
DEFINE(max, u8, uint8_t, x, MAX, 0)
DEFINE(min, u8, uint8_t, x, MIN, 255)

#define OPS(name, A)                                                                               \
    { name##_row_##A, name##_column_##A, name##_merge_##A, name##_identity_##A }

dt__reduce_table JOIN(dt__reduce, DT_ISA_SUFFIX) = {
#define ROW(name) [DT__RED_##name] = OPS(name, f32),
    [DT__ACC_F32] = {DT__REDUCERS(ROW)},
#undef ROW
#define ROW(name) [DT__RED_##name] = OPS(name, f64),
    [DT__ACC_F64] = {DT__REDUCERS(ROW)},
#undef ROW
#define ROW(name) [DT__RED_##name] = OPS(name, i64),
    [DT__ACC_I64] = {ROW(sum) ROW(prod) ROW(max) ROW(min) ROW(count)},
#undef ROW
#define ROW(name) [DT__RED_##name] = OPS(name, u8),
    [DT__ACC_U8] = {ROW(max) ROW(min)},
};
