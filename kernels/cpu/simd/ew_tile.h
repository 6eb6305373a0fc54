/* ew_tile.h: turns rows of kernels/ew.def into tile functions for one instruction set.
 *
 * A file of this folder defines EW_GROUP_<group> as EW_ON for the groups it instantiates and
 * includes this header and then ew.def.  Each row gives, for each of its types, one function of
 * type dt_ew_tile with a loop for each useful pattern of steps, and one table of them by dtype:
 *     const dt_ew_tile dt__ew_<name>_<isa>[DT_DTYPE_COUNT]
 *
 * T1: `ivdep` holds because an output is an input exactly or does not touch it (elementwise.h, I1).
 */
#ifndef DT_KERNELS_CPU_SIMD_EW_TILE_H
#define DT_KERNELS_CPU_SIMD_EW_TILE_H

#include "kernels/cpu/simd/ew_expr.h"
#include "runtime/elementwise.h"

#define EW_JOIN3(a, b, c) a##b##c
#define EW_ISA_NAME(name, isa) EW_JOIN3(dt__ew_##name, _, isa)
#define EW_TABLE(name) EW_ISA_NAME(name, DT_ISA_SUFFIX)

/* Types: M(enumerator, category, storage type, type of the expression, row...) */
#define EW_BOOL_TYPES(M, ...) M(BOOL, INT, uint8_t, bool, __VA_ARGS__)
#define EW_INT(M, ...)                                                                             \
    M(U8, INT, uint8_t, uint8_t, __VA_ARGS__)                                                      \
    M(I8, INT, int8_t, int8_t, __VA_ARGS__)                                                        \
    M(I16, INT, int16_t, int16_t, __VA_ARGS__)                                                     \
    M(I32, INT, int32_t, int32_t, __VA_ARGS__)                                                     \
    M(I64, INT, int64_t, int64_t, __VA_ARGS__)
#define EW_FLT(M, ...)                                                                             \
    M(F32, FLT, float, float, __VA_ARGS__)                                                         \
    M(F64, FLT, double, double, __VA_ARGS__)
/* Halves, for the few expressions that round in between; the rest goes by way of f32. */
#define EW_HALF(M, ...)                                                                            \
    M(F16, F16, uint16_t, float, __VA_ARGS__)                                                      \
    M(BF16, BF16, uint16_t, float, __VA_ARGS__)
#define EW_NUM_HALF(M, ...) EW_NUM(M, __VA_ARGS__) EW_HALF(M, __VA_ARGS__)
#define EW_NUM(M, ...) EW_INT(M, __VA_ARGS__) EW_FLT(M, __VA_ARGS__)
#define EW_ALL(M, ...) EW_BOOL_TYPES(M, __VA_ARGS__) EW_NUM(M, __VA_ARGS__)
#define EW_BITS(M, ...) EW_BOOL_TYPES(M, __VA_ARGS__) EW_INT(M, __VA_ARGS__)
/* Elements that are only moved: their size is all that matters. */
#define EW_RAW(M, ...)                                                                             \
    M(U8, INT, uint8_t, uint8_t, __VA_ARGS__)                                                      \
    M(I16, INT, uint16_t, uint16_t, __VA_ARGS__)                                                   \
    M(I32, INT, uint32_t, uint32_t, __VA_ARGS__)                                                   \
    M(I64, INT, uint64_t, uint64_t, __VA_ARGS__)

#define EW_OUT_SAME(S) S
#define EW_OUT_BOOL(S) uint8_t
/* By category: parameters, from storage to the expression and back, H for ew_narrow. */
#define EW_P_INT(k) params->i[k]
#define EW_P_FLT(k) params->f[k]
#define EW_P_F16(k) params->f[k]
#define EW_P_BF16(k) params->f[k]
#define EW_LOAD_INT(v) (T)(v)
#define EW_LOAD_FLT(v) (T)(v)
#define EW_LOAD_F16(v) dt__f16_bits_to_f32(v)
#define EW_LOAD_BF16(v) dt__bf16_bits_to_f32(v)
#define EW_STORE_INT(v) (O)(v)
#define EW_STORE_FLT(v) (O)(v)
#define EW_STORE_F16(v) dt__f32_to_f16_bits(v)
#define EW_STORE_BF16(v) dt__f32_to_bf16_bits(v)
#define EW_H_INT 0
#define EW_H_FLT 0
#define EW_H_F16 1
#define EW_H_BF16 2

/* What every tile function starts with. */
#define EW_PROLOGUE(C, S, TT, OUT)                                                                 \
    typedef TT T;                                                                                  \
    typedef EW_OUT_##OUT(S) O;                                                                     \
    const T p0 = (T)EW_P_##C(0), p1 = (T)EW_P_##C(1);                                              \
    const int64_t i0 = params->i[0];                                                               \
    enum { H = EW_H_##C };                                                                         \
    O *o = out;                                                                                    \
    (void)p0, (void)p1, (void)i0

#define EW_LOOP _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)

#define EW_TILE_HEAD(name, E)                                                                      \
    static void name##_##E(int64_t n, void *out, const void *const *in, const int64_t *step,       \
                           const dt_params *params)

#define EW_FILL(C, ...)                                                                            \
    const O v = EW_STORE_##C(__VA_ARGS__);                                                         \
    EW_LOOP o[i] = v

#define EW_TILE1(E, C, S, TT, name, OUT, ...)                                                      \
    EW_TILE_HEAD(name, E) {                                                                        \
        EW_PROLOGUE(C, S, TT, OUT);                                                                \
        const S *a = in[0];                                                                        \
        if (step[0]) {                                                                             \
            EW_LOOP {                                                                              \
                const T x = EW_LOAD_##C(a[i]);                                                     \
                o[i] = EW_STORE_##C(__VA_ARGS__);                                                  \
            }                                                                                      \
        } else {                                                                                   \
            const T x = EW_LOAD_##C(a[0]);                                                         \
            EW_FILL(C, __VA_ARGS__);                                                               \
        }                                                                                          \
    }

#define EW_TILE2(E, C, S, TT, name, OUT, ...)                                                      \
    EW_TILE_HEAD(name, E) {                                                                        \
        EW_PROLOGUE(C, S, TT, OUT);                                                                \
        const S *a = in[0], *b = in[1];                                                            \
        if (step[0] & step[1]) {                                                                   \
            EW_LOOP {                                                                              \
                const T x = EW_LOAD_##C(a[i]), y = EW_LOAD_##C(b[i]);                              \
                o[i] = EW_STORE_##C(__VA_ARGS__);                                                  \
            }                                                                                      \
        } else if (step[0]) {                                                                      \
            const T y = EW_LOAD_##C(b[0]);                                                         \
            EW_LOOP {                                                                              \
                const T x = EW_LOAD_##C(a[i]);                                                     \
                o[i] = EW_STORE_##C(__VA_ARGS__);                                                  \
            }                                                                                      \
        } else if (step[1]) {                                                                      \
            const T x = EW_LOAD_##C(a[0]);                                                         \
            EW_LOOP {                                                                              \
                const T y = EW_LOAD_##C(b[i]);                                                     \
                o[i] = EW_STORE_##C(__VA_ARGS__);                                                  \
            }                                                                                      \
        } else {                                                                                   \
            const T x = EW_LOAD_##C(a[0]), y = EW_LOAD_##C(b[0]);                                  \
            EW_FILL(C, __VA_ARGS__);                                                               \
        }                                                                                          \
    }

/* Three operands: all steps 1; the last two 0 (clamp); the last 0 (lerp, where); anything else. */
#define EW_TILE3(E, C, S, TT, name, OUT, ...)                                                      \
    EW_TILE_HEAD(name, E) {                                                                        \
        EW_PROLOGUE(C, S, TT, OUT);                                                                \
        typedef EW_FIRST_##name(S) A;                                                              \
        const A *a = in[0];                                                                        \
        const S *b = in[1], *c = in[2];                                                            \
        const int64_t sa = step[0], sb = step[1], sc = step[2];                                    \
        if (sa & sb & sc) {                                                                        \
            EW_LOOP {                                                                              \
                const A x = a[i];                                                                  \
                const T y = b[i], z = c[i];                                                        \
                o[i] = (O)(__VA_ARGS__);                                                           \
            }                                                                                      \
        } else if (sa & !(sb | sc)) {                                                              \
            const T y = b[0], z = c[0];                                                            \
            EW_LOOP {                                                                              \
                const A x = a[i];                                                                  \
                o[i] = (O)(__VA_ARGS__);                                                           \
            }                                                                                      \
        } else if (sa & sb) {                                                                      \
            const T z = c[0];                                                                      \
            EW_LOOP {                                                                              \
                const A x = a[i];                                                                  \
                const T y = b[i];                                                                  \
                o[i] = (O)(__VA_ARGS__);                                                           \
            }                                                                                      \
        } else if (sa & sc) {                                                                      \
            const T y = b[0];                                                                      \
            EW_LOOP {                                                                              \
                const A x = a[i];                                                                  \
                const T z = c[i];                                                                  \
                o[i] = (O)(__VA_ARGS__);                                                           \
            }                                                                                      \
        } else {                                                                                   \
            const A x = a[0];                                                                      \
            EW_LOOP {                                                                              \
                const T y = b[sb * i], z = c[sc * i];                                              \
                o[i] = (O)(__VA_ARGS__);                                                           \
            }                                                                                      \
        }                                                                                          \
    }

/* The type of the first of three operands: bool for where, else that of the others. */
#define EW_FIRST_where(S) uint8_t
#define EW_FIRST_clamp(S) S
#define EW_FIRST_addcmul(S) S
#define EW_FIRST_addcdiv(S) S
#define EW_FIRST_lerp(S) S

#define EW_ENTRY(E, C, S, TT, name) [DT_##E] = name##_##E,
#define EW_ENTRIES(types, name) EW_##types(EW_ENTRY, name)
#define EW_ENTRIES_RAW(name)                                                                       \
    [DT_BOOL] = name##_U8, [DT_U8] = name##_U8, [DT_I8] = name##_U8, [DT_I16] = name##_I16,        \
    [DT_F16] = name##_I16, [DT_BF16] = name##_I16, [DT_I32] = name##_I32, [DT_F32] = name##_I32,   \
    [DT_I64] = name##_I64, [DT_F64] = name##_I64,
#define EW_LIST_FLT(name) EW_ENTRIES(FLT, name)
#define EW_LIST_INT(name) EW_ENTRIES(INT, name)
#define EW_LIST_NUM(name) EW_ENTRIES(NUM, name)
#define EW_LIST_NUM_HALF(name) EW_ENTRIES(NUM_HALF, name)
#define EW_LIST_ALL(name) EW_ENTRIES(ALL, name)
#define EW_LIST_BITS(name) EW_ENTRIES(BITS, name)
#define EW_LIST_RAW(name) EW_ENTRIES_RAW(name)

#define EW_EMIT(tile, types, name, OUT, ...)                                                       \
    EW_##types(tile, name, OUT,                                                                    \
               __VA_ARGS__) extern const dt_ew_tile EW_TABLE(name)[DT_DTYPE_COUNT];                \
    const dt_ew_tile EW_TABLE(name)[DT_DTYPE_COUNT] = {EW_LIST_##types(name)};

#define EW_ON(...) EW_EMIT(__VA_ARGS__)
#define EW_OFF(...)
#ifndef EW_GROUP_ARITH
#define EW_GROUP_ARITH EW_OFF
#endif
#ifndef EW_GROUP_INT
#define EW_GROUP_INT EW_OFF
#endif
#ifndef EW_GROUP_COMPARE
#define EW_GROUP_COMPARE EW_OFF
#endif
#ifndef EW_GROUP_MATH
#define EW_GROUP_MATH EW_OFF
#endif
#ifndef EW_GROUP_TRIG
#define EW_GROUP_TRIG EW_OFF
#endif
#ifndef EW_GROUP_TERNARY
#define EW_GROUP_TERNARY EW_OFF
#endif

#define EW1(group, name, types, out, flags, cost, ...)                                             \
    EW_GROUP_##group(EW_TILE1, types, name, out, __VA_ARGS__)
#define EW2(group, name, types, out, flags, cost, ...)                                             \
    EW_GROUP_##group(EW_TILE2, types, name, out, __VA_ARGS__)
#define EW3(group, name, types, out, flags, cost, ...)                                             \
    EW_GROUP_##group(EW_TILE3, types, name, out, __VA_ARGS__)

#endif
