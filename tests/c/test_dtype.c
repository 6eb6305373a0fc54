/* test_dtype.c: torch's promotion table, names, conversions of halves and scalars.
 *
 * The tables below were printed by torch.promote_types and torch.can_cast.  Conversions of halves
 * are compared with the definition of rounding, in double arithmetic.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "runtime/dtype.h"
#include "tests/c/test_support.h"

START_TEST(promotion_is_torchs) {
#define R(a, b, c, d, e, f, g, h, i, j)                                                            \
    { DT_##a, DT_##b, DT_##c, DT_##d, DT_##e, DT_##f, DT_##g, DT_##h, DT_##i, DT_##j }
    static const uint8_t expected[DT_DTYPE_COUNT][DT_DTYPE_COUNT] = {
        R(BOOL, U8, I8, I16, I32, I64, F16, BF16, F32, F64),
        R(U8, U8, I16, I16, I32, I64, F16, BF16, F32, F64),
        R(I8, I16, I8, I16, I32, I64, F16, BF16, F32, F64),
        R(I16, I16, I16, I16, I32, I64, F16, BF16, F32, F64),
        R(I32, I32, I32, I32, I32, I64, F16, BF16, F32, F64),
        R(I64, I64, I64, I64, I64, I64, F16, BF16, F32, F64),
        R(F16, F16, F16, F16, F16, F16, F16, F32, F32, F64),
        R(BF16, BF16, BF16, BF16, BF16, BF16, F32, BF16, F32, F64),
        R(F32, F32, F32, F32, F32, F32, F32, F32, F32, F64),
        R(F64, F64, F64, F64, F64, F64, F64, F64, F64, F64),
    };
#undef R
    for (int a = 0; a < DT_DTYPE_COUNT; a++)
        for (int b = 0; b < DT_DTYPE_COUNT; b++)
            ck_assert_msg(dt_dtype_promote((dt_dtype)a, (dt_dtype)b) == expected[a][b],
                          "%s with %s", dt_dtype_table[a].name, dt_dtype_table[b].name);
}
END_TEST

START_TEST(can_cast_is_torchs) {
    static const char *const expected[DT_DTYPE_COUNT] = {
        "1111111111", "0111111111", "0111111111", "0111111111", "0111111111",
        "0111111111", "0000001111", "0000001111", "0000001111", "0000001111",
    };
    for (int a = 0; a < DT_DTYPE_COUNT; a++)
        for (int b = 0; b < DT_DTYPE_COUNT; b++)
            ck_assert_int_eq(dt_dtype_can_cast((dt_dtype)a, (dt_dtype)b), expected[a][b] == '1');
}
END_TEST

START_TEST(table_and_names) {
    static const uint8_t sizes[DT_DTYPE_COUNT] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};
    for (int t = 0; t < DT_DTYPE_COUNT; t++) {
        ck_assert_uint_eq(dt_dtype_size((dt_dtype)t), sizes[t]);
        ck_assert_int_eq(dt_dtype_parse(dt_dtype_table[t].name), t);
        ck_assert_int_eq(dt_dtype_is_float((dt_dtype)t), t >= DT_F16);
    }
    static const struct {
        const char *name;
        dt_dtype dtype;
    } names[] = {
        {"float", DT_F32},
        {"double", DT_F64},
        {"half", DT_F16},
        {"short", DT_I16},
        {"int", DT_I32},
        {"long", DT_I64},
        {"torch.float32", DT_F32},
        {"torch.long", DT_I64},
        {"torch.bool", DT_BOOL},
        {"uint8", DT_U8},
        {"bfloat16", DT_BF16},
        {"", DT_DTYPE_NONE},
        {"torch.", DT_DTYPE_NONE},
        {"Float", DT_DTYPE_NONE},
        {"float3", DT_DTYPE_NONE},
        {"float322", DT_DTYPE_NONE},
        {"complex64", DT_DTYPE_NONE},
        {" int8", DT_DTYPE_NONE},
    };
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        ck_assert_msg(dt_dtype_parse(names[k].name) == names[k].dtype, "'%s'", names[k].name);
    ck_assert_int_eq(dt_dtype_parse(NULL), DT_DTYPE_NONE);
    ck_assert_int_eq(dt_dtype_category(DT_BOOL), DT_CAT_BOOL);
    ck_assert_int_eq(dt_dtype_category(DT_U8), DT_CAT_INT);
    ck_assert_int_eq(dt_dtype_category(DT_BF16), DT_CAT_FLOAT);
}
END_TEST

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

START_TEST(every_f16_to_f32_and_back) {
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint16_t bits = (uint16_t)h;
        float got = dt_f16_to_f32((dt_f16){bits});
        int exponent = (int)(h >> 10 & 31);
        double mantissa = h & 1023, sign = h & 0x8000 ? -1 : 1;
        if (exponent == 31 && mantissa != 0) {
            ck_assert(isnan(got));
            require(bits_of(got) == ((h & 0x8000) << 16 | 0x7fc00000 | (h & 0x3ff) << 13));
            require(dt_f32_to_f16(got).bits == (h | 0x200));
            continue;
        }
        double expected = exponent == 31  ? INFINITY
                          : exponent == 0 ? ldexp(mantissa, -24)
                                          : ldexp(1024 + mantissa, exponent - 25);
        require(bits_of(got) == bits_of((float)(sign * expected)));
        require(dt_f32_to_f16(got).bits == h);
    }
}
END_TEST

static void check_to_f16(uint32_t u) {
    float f = float_of(u);
    uint16_t got = dt_f32_to_f16(f).bits;
    if (isnan(f)) {
        require((got & 0x7e00) == 0x7e00); /* a quiet NaN of the same sign */
        require(got >> 15 == u >> 31);
        return;
    }
    /* rint rounds to nearest even; the unit is that of the binade, at least 2^-24. */
    int exponent = f == 0 || isinf(f) ? 0 : ilogb((double)f);
    double unit = ldexp(1, exponent < -14 ? -24 : exponent - 10);
    double expected = isinf(f) ? (double)f : rint((double)f / unit) * unit;
    if (fabs(expected) >= 65536) expected = copysign(INFINITY, expected);
    float value = dt_f16_to_f32((dt_f16){got}); /* tested for every half above */
    if (bits_of(value) != bits_of((float)expected))
        ck_abort_msg("%a (%08x): %a instead of %a", (double)f, u, (double)value, expected);
}

START_TEST(f32_to_f16_rounds_to_nearest_even) {
    /* Around every half and around the middle to the next one. */
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float low = dt_f16_to_f32((dt_f16){(uint16_t)h});
        float high = h == 0x7bff ? 65536.0f : dt_f16_to_f32((dt_f16){(uint16_t)(h + 1)});
        float middle = (low + high) / 2; /* exact: one bit more than a half has */
        const float near[] = {low, middle};
        for (int k = 0; k < 2; k++)
            for (int step = -1; step <= 1; step++)
                for (uint32_t sign = 0; sign < 2; sign++) {
                    uint32_t u = bits_of(near[k]);
                    if (u == 0 && step < 0) continue;
                    check_to_f16((u + (uint32_t)step) | sign << 31);
                }
    }
    uint32_t stride = TEST_SANITIZED ? 65537 : 2053; /* odd: all low bits come up */
    for (uint64_t u = 0; u <= UINT32_MAX; u += stride) check_to_f16((uint32_t)u);
}
END_TEST

START_TEST(every_bf16_to_f32_and_back) {
    for (uint32_t h = 0; h < 0x10000; h++) {
        float got = dt_bf16_to_f32((dt_bf16){(uint16_t)h});
        require(bits_of(got) == h << 16);
        uint32_t back = isnan(float_of(h << 16)) ? h | 0x40 : h;
        require(dt_f32_to_bf16(float_of(h << 16)).bits == back);
    }
}
END_TEST

static void check_to_bf16(uint32_t u) {
    float f = float_of(u);
    uint16_t got = dt_f32_to_bf16(f).bits;
    if (isnan(f)) {
        require((got & 0x7fc0) == 0x7fc0);
        require(got >> 15 == u >> 31);
        return;
    }
    if (isinf(f)) {
        ck_assert_uint_eq(got, u >> 16);
        return;
    }
    /* The two neighbours, as doubles; beyond the greatest one the next would be 2^128. */
    uint32_t low = u >> 16, high = low + 1;
    double value = fabs((double)f), at_low = fabs((double)float_of(low << 16));
    double at_high = (high & 0x7fff) == 0x7f80 ? 0x1p128 : fabs((double)float_of(high << 16));
    double below = value - at_low, above = at_high - value;
    uint32_t expected = below < above ? low : above < below ? high : low % 2 == 0 ? low : high;
    if (got != expected)
        ck_abort_msg("%a (%08x): %04x instead of %04x", (double)f, u, got, expected);
}

START_TEST(f32_to_bf16_rounds_to_nearest_even) {
    for (uint32_t h = 0; h < 0x10000; h++) {
        static const uint32_t low_bits[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
        for (int k = 0; k < 6; k++) check_to_bf16(h << 16 | low_bits[k]);
    }
    uint32_t stride = TEST_SANITIZED ? 65537 : 2053;
    for (uint64_t u = 0; u <= UINT32_MAX; u += stride) check_to_bf16((uint32_t)u);
}
END_TEST

static dt_scalar number_i(int64_t i) { return (dt_scalar){.category = DT_CAT_INT, .i = i}; }
static dt_scalar number_f(double f) { return (dt_scalar){.category = DT_CAT_FLOAT, .f = f}; }

/* Stores and loads; the guard bytes around must stay. */
static dt_scalar through(dt_scalar s, dt_dtype dtype) {
    unsigned char bytes[24];
    memset(bytes, 0xa5, sizeof bytes);
    dt_scalar_store(s, dtype, bytes + 7); /* also unaligned */
    for (size_t k = 0; k < sizeof bytes; k++)
        if (k < 7 || k >= 7 + dt_dtype_size(dtype)) ck_assert_uint_eq(bytes[k], 0xa5);
    return dt_scalar_load(dtype, bytes + 7);
}

START_TEST(scalars_round_trip) {
    for (int t = 0; t < DT_DTYPE_COUNT; t++) {
        dt_dtype dtype = (dt_dtype)t;
        for (int64_t i = dtype == DT_U8 || dtype == DT_BOOL ? 0 : -128;
             i <= (dtype == DT_BOOL ? 1 : 127); i++) {
            dt_scalar s = through(number_i(i), dtype);
            ck_assert_int_eq(s.category, dt_dtype_category(dtype));
            ck_assert_double_eq(dt_scalar_f64(s), (double)i);
            s = through(number_f((double)i), dtype);
            ck_assert_double_eq(dt_scalar_f64(s), (double)i);
        }
    }
    ck_assert_int_eq(through(number_i(INT64_MAX), DT_I64).i, INT64_MAX);
    ck_assert_int_eq(through(number_i(INT64_MIN), DT_I64).i, INT64_MIN);
    ck_assert_int_eq(through(number_i(INT32_MIN), DT_I32).i, INT32_MIN);
    ck_assert_int_eq(through(number_i(255), DT_U8).i, 255);
    ck_assert_int_eq(through(number_i(-32768), DT_I16).i, -32768);
    ck_assert_double_eq(through(number_f(0.1), DT_F64).f, 0.1);
    ck_assert_double_eq(through(number_f(0.1), DT_F32).f, (double)0.1f);
}
END_TEST

START_TEST(scalars_convert_as_casts_do) {
    ck_assert_int_eq(through(number_f(2.9), DT_I32).i, 2);
    ck_assert_int_eq(through(number_f(-2.9), DT_I32).i, -2);
    ck_assert_int_eq(through(number_i(300), DT_U8).i, 44); /* modulo 256, as torch on x86 */
    ck_assert_int_eq(through(number_i(-1), DT_U8).i, 255);
    ck_assert_int_eq(through(number_f(NAN), DT_I64).i, INT64_MIN);
    ck_assert_int_eq(through(number_f(1e300), DT_I64).i, INT64_MIN);
    ck_assert_int_eq(through(number_f(-0x1p63), DT_I64).i, INT64_MIN);
    ck_assert_int_eq(through(number_f(0x1.fffffffffffffp62), DT_I64).i, 0x7ffffffffffffc00);
    ck_assert_int_eq(through(number_i(2), DT_BOOL).i, 1);
    ck_assert_int_eq(through(number_f(0.5), DT_BOOL).i, 1);
    ck_assert_int_eq(through(number_f(-0.0), DT_BOOL).i, 0);
    ck_assert_int_eq(through(number_f(NAN), DT_BOOL).i, 1);
    ck_assert(isnan(through(number_f(NAN), DT_F16).f));
    ck_assert(isnan(through(number_f(NAN), DT_BF16).f));
    ck_assert_double_eq(through(number_f(65520), DT_F16).f, INFINITY);
    ck_assert_double_eq(through(number_f(65519), DT_F16).f, 65504);
    ck_assert_double_eq(through(number_f(1e300), DT_F32).f, INFINITY);
    ck_assert_double_eq(through(number_i(16777217), DT_F32).f, 16777216);
    ck_assert_double_eq(through(number_i(INT64_MAX), DT_F64).f, 0x1p63);
    ck_assert(signbit(through(number_f(-0.0), DT_BF16).f));
    ck_assert_int_eq(dt_scalar_i64(number_f(-1.5)), -1);
    ck_assert(dt_scalar_bool(number_f(NAN)));
    unsigned char two = 2; /* a bool byte other than 0 and 1 still reads as true */
    ck_assert_int_eq(dt_scalar_load(DT_BOOL, &two).i, 1);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("dtype");
    TEST_CASE(suite, "rules", promotion_is_torchs, can_cast_is_torchs, table_and_names);
    TEST_CASE(suite, "halves", every_f16_to_f32_and_back, f32_to_f16_rounds_to_nearest_even,
              every_bf16_to_f32_and_back, f32_to_bf16_rounds_to_nearest_even);
    TEST_CASE(suite, "scalars", scalars_round_trip, scalars_convert_as_casts_do);
    return test_run(suite);
}
