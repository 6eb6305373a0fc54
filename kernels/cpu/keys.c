/* keys.c: see keys.h.
 *
 * K1: key order is the order of values: a signed integer with its sign bit turned over; a float's
 *     bits with the sign turned over, or all of them when it is negative.
 * K2: the sort makes as many passes as there are digits that differ, each stable.
 */
#include "kernels/cpu/keys.h"

#include <string.h>

#include "runtime/assert.h"

#define SMALL 48 /* keys that are sorted by insertion */

/* ---- keys ------------------------------------------------------------------------------------ */

/* U: the unsigned integer of the element's width; BITS of it; INF: the bits of infinity. */
#define FLOAT_KEYS(NAME, K, U, BITS, INF, NAN_KEY)                                                 \
    static void NAME(int64_t n, K *keys, const void *from) {                                       \
        const U *bits = from, sign = (U)((U)1 << ((BITS)-1));                                      \
        for (int64_t i = 0; i < n; i++) {                                                          \
            U b = bits[i], magnitude = (U)(b & (U)~sign);                                          \
            U key = b & sign ? (U)~b : (U)(b | sign);                                              \
            if (magnitude == 0) key = sign;                                                        \
            keys[i] = magnitude > (U)(INF) ? (NAN_KEY) : key;                                      \
        }                                                                                          \
    }
#define INT_KEYS(NAME, K, U, FLIP)                                                                 \
    static void NAME(int64_t n, K *keys, const void *from) {                                       \
        const U *bits = from;                                                                      \
        for (int64_t i = 0; i < n; i++) keys[i] = (U)(bits[i] ^ (U)(FLIP));                        \
    }
#define BOTH_WIDTHS(KIND, NAME, ...)                                                               \
    KIND(NAME##_u32, uint32_t, __VA_ARGS__)                                                        \
    KIND(NAME##_u64, uint64_t, __VA_ARGS__)

FLOAT_KEYS(f16_u32, uint32_t, uint16_t, 16, 0x7c00, UINT32_MAX)
FLOAT_KEYS(f16_u64, uint64_t, uint16_t, 16, 0x7c00, UINT64_MAX)
FLOAT_KEYS(bf16_u32, uint32_t, uint16_t, 16, 0x7f80, UINT32_MAX)
FLOAT_KEYS(bf16_u64, uint64_t, uint16_t, 16, 0x7f80, UINT64_MAX)
FLOAT_KEYS(f32_u32, uint32_t, uint32_t, 32, 0x7f800000, UINT32_MAX)
FLOAT_KEYS(f32_u64, uint64_t, uint32_t, 32, 0x7f800000, UINT64_MAX)
FLOAT_KEYS(f64_u64, uint64_t, uint64_t, 64, 0x7ff0000000000000, UINT64_MAX)
BOTH_WIDTHS(INT_KEYS, u8, uint8_t, 0)
BOTH_WIDTHS(INT_KEYS, i8, uint8_t, 0x80)
BOTH_WIDTHS(INT_KEYS, i16, uint16_t, 0x8000)
BOTH_WIDTHS(INT_KEYS, i32, uint32_t, 0x80000000)
INT_KEYS(i64_u64, uint64_t, uint64_t, 0x8000000000000000)

/* Bytes of a bool that is no 0 are all true. */
#define BOOL_KEYS(NAME, K)                                                                         \
    static void NAME(int64_t n, K *keys, const void *from) {                                       \
        const uint8_t *bytes = from;                                                               \
        for (int64_t i = 0; i < n; i++) keys[i] = bytes[i] != 0;                                   \
    }
BOOL_KEYS(bool_u32, uint32_t)
BOOL_KEYS(bool_u64, uint64_t)

void dt__keys_u64(int64_t n, uint64_t *keys, const void *from, dt_dtype dtype) {
    static void (*const make[DT_DTYPE_COUNT])(int64_t, uint64_t *, const void *) = {
        [DT_BOOL] = bool_u64, [DT_U8] = u8_u64,   [DT_I8] = i8_u64,   [DT_I16] = i16_u64,
        [DT_I32] = i32_u64,   [DT_I64] = i64_u64, [DT_F16] = f16_u64, [DT_BF16] = bf16_u64,
        [DT_F32] = f32_u64,   [DT_F64] = f64_u64,
    };
    make[dtype](n, keys, from);
}

void dt__keys_u32(int64_t n, uint32_t *keys, const void *from, dt_dtype dtype) {
    static void (*const make[DT_DTYPE_COUNT])(int64_t, uint32_t *, const void *) = {
        [DT_BOOL] = bool_u32, [DT_U8] = u8_u32,   [DT_I8] = i8_u32,     [DT_I16] = i16_u32,
        [DT_I32] = i32_u32,   [DT_F16] = f16_u32, [DT_BF16] = bf16_u32, [DT_F32] = f32_u32,
    };
    DT_ASSERT(make[dtype] != NULL);
    make[dtype](n, keys, from);
}

/* ---- back ------------------------------------------------------------------------------------ */

static uint64_t float_bits(uint64_t key, int bits, uint64_t nan) {
    uint64_t sign = (uint64_t)1 << (bits - 1);
    if (key == DT__KEY_NAN) return nan;
    return key & sign ? key ^ sign : ~key & (sign | (sign - 1));
}

void dt__key_element(uint64_t key, dt_dtype dtype, void *to) {
    size_t size = dt_dtype_size(dtype);
    uint64_t bits = key;
    switch (dtype) {
    case DT_I8:
    case DT_I16:
    case DT_I32:
    case DT_I64:
        bits = key ^ (uint64_t)1 << (size * 8 - 1);
        break;
    case DT_F16:
        bits = float_bits(key, 16, 0x7e00);
        break;
    case DT_BF16:
        bits = float_bits(key, 16, 0x7fc0);
        break;
    case DT_F32:
        bits = float_bits(key, 32, 0x7fc00000);
        break;
    case DT_F64:
        bits = float_bits(key, 64, 0x7ff8000000000000);
        break;
    default: /* bool, uint8: as they are */
        break;
    }
    memcpy(to, &bits, size); /* little-endian, as the rest of the CPU kernels */
}

/* ---- sorting --------------------------------------------------------------------------------- */

#define DEFINE_SORT(NAME, K, DIGITS)                                                               \
    static void insertion_##NAME(int64_t n, K *keys) {                                             \
        for (int64_t i = 1; i < n; i++) {                                                          \
            K key = keys[i];                                                                       \
            int64_t at = i;                                                                        \
            for (; at > 0 && keys[at - 1] > key; at--) keys[at] = keys[at - 1];                    \
            keys[at] = key;                                                                        \
        }                                                                                          \
    }                                                                                              \
    K *dt__keys_sort_##NAME(int64_t n, K *keys, K *other) {                                        \
        if (n <= SMALL) {                                                                          \
            insertion_##NAME(n, keys);                                                             \
            return keys;                                                                           \
        }                                                                                          \
        int64_t counts[DIGITS][256];                                                               \
        memset(counts, 0, sizeof counts);                                                          \
        for (int64_t i = 0; i < n; i++)                                                            \
            for (int d = 0; d < (DIGITS); d++) counts[d][keys[i] >> (8 * d) & 255]++;              \
        for (int d = 0; d < (DIGITS); d++) {                                                       \
            if (counts[d][keys[0] >> (8 * d) & 255] == n) continue; /* all the same */             \
            int64_t start = 0;                                                                     \
            for (int v = 0; v < 256; v++) {                                                        \
                int64_t count = counts[d][v];                                                      \
                counts[d][v] = start;                                                              \
                start += count;                                                                    \
            }                                                                                      \
            for (int64_t i = 0; i < n; i++)                                                        \
                other[counts[d][keys[i] >> (8 * d) & 255]++] = keys[i];                            \
            K *swap = keys;                                                                        \
            keys = other;                                                                          \
            other = swap;                                                                          \
        }                                                                                          \
        return keys;                                                                               \
    }

DEFINE_SORT(u32, uint32_t, 4)
DEFINE_SORT(u64, uint64_t, 8)
