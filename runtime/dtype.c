/* dtype.c: the tables of element types, promotion, and the conversions of single elements.
 *
 * Promotion is computed, not tabulated: a higher category wins, equal categories take the wider
 * type, and the three pairs where neither type holds the other (uint8 with a signed type, float16
 * with bfloat16) are named.  tests/c/test_dtype.c holds torch's full table beside it.
 *
 * The conversions to and from halves here are the scalar reference: SIMD kernels must give the
 * same bits, NaN payloads included (top bits kept, quiet bit set, as F16C does).
 *
 * I1: no conversion here has undefined behaviour: a float that an integer cannot hold gives what
 *     x86's cvttsd2si gives (INT64_MIN), cut to the narrower type, as torch does on x86.
 */
#include "runtime/dtype.h"

#include <string.h>

#include "runtime/assert.h"

const dt_dtype_info dt_dtype_table[DT_DTYPE_COUNT] = {
#define X(E, n, ctype, cat, tname, longname)                                                       \
    [DT_##E] = {tname, longname, sizeof(ctype), DT_CAT_##cat},
    DT_DTYPES(X)
#undef X
};

dt_dtype dt_dtype_parse(const char *name) {
    static const struct {
        const char *name;
        dt_dtype dtype;
    } aliases[] = {
        {"float", DT_F32}, {"double", DT_F64}, {"half", DT_F16},
        {"short", DT_I16}, {"int", DT_I32},    {"long", DT_I64},
    };
    if (name == NULL) return DT_DTYPE_NONE;
    if (strncmp(name, "torch.", 6) == 0) name += 6;
    for (int t = 0; t < DT_DTYPE_COUNT; t++)
        if (strcmp(name, dt_dtype_table[t].name) == 0) return (dt_dtype)t;
    for (size_t a = 0; a < sizeof aliases / sizeof aliases[0]; a++)
        if (strcmp(name, aliases[a].name) == 0) return aliases[a].dtype;
    return DT_DTYPE_NONE;
}

dt_dtype dt_dtype_promote(dt_dtype a, dt_dtype b) {
    DT_ASSERT(a < DT_DTYPE_COUNT && b < DT_DTYPE_COUNT);
    if (a == b) return a;
    dt_category ca = dt_dtype_category(a), cb = dt_dtype_category(b);
    if (ca != cb) return ca > cb ? a : b;
    /* The enum is in order of width inside a category; what follows is where width does not
     * decide. */
    dt_dtype low = a < b ? a : b, high = a < b ? b : a;
    if (low == DT_U8 && high == DT_I8) return DT_I16;
    if (low == DT_F16 && high == DT_BF16) return DT_F32;
    return high;
}

bool dt_dtype_can_cast(dt_dtype from, dt_dtype to) {
    DT_ASSERT(from < DT_DTYPE_COUNT && to < DT_DTYPE_COUNT);
    return dt_dtype_category(from) <= dt_dtype_category(to);
}

/* ---- halves ---------------------------------------------------------------------------------- */

static inline uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

float dt_f16_to_f32(dt_f16 h) {
    uint32_t sign = (uint32_t)(h.bits & 0x8000) << 16;
    uint32_t exponent = (h.bits >> 10) & 0x1f;
    uint32_t mantissa = h.bits & 0x3ff;
    if (exponent == 0x1f) { /* inf, NaN: a signalling one becomes quiet, as the hardware does */
        uint32_t quiet = mantissa != 0 ? 0x400000u : 0;
        return float_of(sign | 0x7f800000u | quiet | mantissa << 13);
    }
    if (exponent == 0) { /* zero and subnormals: mantissa * 2^-24 is exact in float */
        float magnitude = (float)mantissa * 0x1p-24f;
        return float_of(sign | bits_of(magnitude));
    }
    return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

dt_f16 dt_f32_to_f16(float f) {
    uint32_t u = bits_of(f);
    uint32_t sign = u >> 16 & 0x8000;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (dt_f16){(uint16_t)(sign | 0x7e00 | (u >> 13 & 0x3ff))};
    if (u >= 0x477ff000u) return (dt_f16){(uint16_t)(sign | 0x7c00)}; /* rounds to 2^16 or is inf */
    if (u < 0x38800000u) { /* below 2^-14: a subnormal half */
        /* At 0.5 the float's last bit is worth 2^-24, the unit of subnormal halves: the addition
         * rounds to nearest even and leaves the count of units in the low bits. */
        float shifted = float_of(u) + 0.5f;
        return (dt_f16){(uint16_t)(sign | (bits_of(shifted) - 0x3f000000u))};
    }
    uint32_t odd = u >> 13 & 1;
    u += 0xfffu + odd; /* to nearest, ties to even; a carry moves into the exponent as it should */
    return (dt_f16){(uint16_t)(sign | ((u >> 13) - (112u << 10)))};
}

float dt_bf16_to_f32(dt_bf16 h) { return float_of((uint32_t)h.bits << 16); }

dt_bf16 dt_f32_to_bf16(float f) {
    uint32_t u = bits_of(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (dt_bf16){(uint16_t)(u >> 16 | 0x40)};
    u += 0x7fffu + (u >> 16 & 1);
    return (dt_bf16){(uint16_t)(u >> 16)};
}

/* ---- scalars --------------------------------------------------------------------------------- */

static int64_t truncated(double f) {
    /* 2^63 itself is out of range; the comparison is false for NaN. */
    return f >= -0x1p63 && f < 0x1p63 ? (int64_t)f : INT64_MIN;
}

/* One element of any dtype. */
typedef union element {
    uint8_t u8;
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    dt_f16 f16;
    dt_bf16 bf16;
    float f32;
    double f64;
} element;

void dt_scalar_store(dt_scalar s, dt_dtype dtype, void *dst) {
    DT_ASSERT(dtype < DT_DTYPE_COUNT);
    bool is_float = s.category == DT_CAT_FLOAT;
    int64_t i = is_float ? truncated(s.f) : s.i;
    float f = is_float ? (float)s.f : (float)s.i; /* an integer is rounded once */
    element e;
    switch (dtype) {
    case DT_BOOL:
        e.u8 = dt_scalar_bool(s);
        break;
    case DT_U8:
        e.u8 = (uint8_t)i;
        break;
    case DT_I8:
        e.i8 = (int8_t)i;
        break;
    case DT_I16:
        e.i16 = (int16_t)i;
        break;
    case DT_I32:
        e.i32 = (int32_t)i;
        break;
    case DT_I64:
        e.i64 = i;
        break;
    case DT_F16:
        e.f16 = dt_f32_to_f16(f);
        break;
    case DT_BF16:
        e.bf16 = dt_f32_to_bf16(f);
        break;
    case DT_F32:
        e.f32 = f;
        break;
    case DT_F64:
        e.f64 = dt_scalar_f64(s);
        break;
    case DT_DTYPE_COUNT:
    case DT_DTYPE_NONE:
        return;
    }
    memcpy(dst, &e, dt_dtype_size(dtype));
}

dt_scalar dt_scalar_load(dt_dtype dtype, const void *src) {
    DT_ASSERT(dtype < DT_DTYPE_COUNT);
    dt_scalar s = {.category = dt_dtype_table[dtype].category, .i = 0};
    element e;
    memcpy(&e, src, dt_dtype_size(dtype));
    switch (dtype) {
    case DT_BOOL:
        s.i = e.u8 != 0;
        break;
    case DT_U8:
        s.i = e.u8;
        break;
    case DT_I8:
        s.i = e.i8;
        break;
    case DT_I16:
        s.i = e.i16;
        break;
    case DT_I32:
        s.i = e.i32;
        break;
    case DT_I64:
        s.i = e.i64;
        break;
    case DT_F16:
        s.f = dt_f16_to_f32(e.f16);
        break;
    case DT_BF16:
        s.f = dt_bf16_to_f32(e.bf16);
        break;
    case DT_F32:
        s.f = e.f32;
        break;
    case DT_F64:
        s.f = e.f64;
        break;
    case DT_DTYPE_COUNT:
    case DT_DTYPE_NONE:
        break;
    }
    return s;
}
