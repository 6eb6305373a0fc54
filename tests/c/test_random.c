/* test_random.c: Philox known answers, independence of parts, dtypes and levels, ranges, moments.
 */
#include "kernels/cpu/random.h"

#include "tests/c/op_support.h"

/* ---- the generator
 * ---------------------------------------------------------------------------------- */

/* Philox 4x32-10 as the paper states it, for any counter and key. */
static void philox(uint32_t c[4], uint32_t k0, uint32_t k1) {
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b,
                            (uint32_t)(a >> 32) ^ c[3] ^ k1, (uint32_t)a};
        memcpy(c, next, sizeof next);
    }
}

START_TEST(the_reference_gives_the_known_answers) {
    uint32_t zero[4] = {0};
    philox(zero, 0, 0);
    ck_assert_mem_eq(zero, ((uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}), 16);
    uint32_t ones[4] = {~0u, ~0u, ~0u, ~0u};
    philox(ones, ~0u, ~0u);
    ck_assert_mem_eq(ones, ((uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}), 16);
    uint32_t pi[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
    philox(pi, 0xa4093822, 0x299f31d0);
    ck_assert_mem_eq(pi, ((uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}), 16);
}
END_TEST

static const uint64_t seeds[] = {0, 1, 0xffffffffffffffffu, 0x123456789abcdef0u};

START_TEST(draws_are_the_words_of_philox) {
    const uint64_t counters[] = {0, 77, 0xffffffffu, 0xfffffffffffffff0u};
    for (int level = 0; level < levels_count(); level++)
        for (int s = 0; s < 4; s++)
            for (int k = 0; k < 4; k++) {
                select_level(level);
                const dt__random_ops *ops = dt__random_find();
                enum { N = 600 };
                static float f[N];
                static double d[N];
                static int64_t i[N];
                ops->uniform_f32(seeds[s], counters[k], N, 0, 1, f);
                ops->uniform_f64(seeds[s], counters[k], N, 0, 1, d);
                ops->integer(seeds[s], counters[k], N, INT64_MIN, INT64_MAX, i);
                for (int n = 0; n < N; n++) {
                    uint64_t at = counters[k] + (uint64_t)n;
                    uint32_t c[4] = {(uint32_t)at, (uint32_t)(at >> 32), 0, 0};
                    philox(c, (uint32_t)seeds[s], (uint32_t)(seeds[s] >> 32));
                    EXPECT(f[n] == (float)(c[0] >> 8) / 16777216.0f, "uniform float %d", n);
                    uint64_t both = (uint64_t)c[0] << 32 | c[1];
                    EXPECT(d[n] == (double)(both >> 11) / 9007199254740992.0, "uniform double %d",
                           n);
                    unsigned __int128 product = (unsigned __int128)both * UINT64_MAX;
                    EXPECT(i[n] == (int64_t)((uint64_t)(product >> 64) + (1ull << 63)),
                           "integer %d", n);
                }
            }
}
END_TEST

/* ---- the ops
 * ------------------------------------------------------------------------------------------ */

static dt_tensor *draw(dt_op_id id, int parts, dt_dims size, dt_arg a, dt_arg b, dt_dtype dtype,
                       uint64_t offset) {
    dt_default_generator.seed = 1234;
    dt_default_generator.offset = offset;
    dt_arg dims = {.kind = DT_ARG_DIMS, .dims = &size};
    dt_tensor *t = RUN_PARTS(parts, id, dims, a, b, arg_dtype(dtype));
    ck_assert_uint_eq(dt_default_generator.offset, offset + (uint64_t)t->numel);
    return t;
}

static const dt_op_id draws[] = {DT_OP_rand__new, DT_OP_randn__new, DT_OP_randint__new};

static dt_tensor *draw_number(int k, int parts, int64_t n, dt_dtype dtype, uint64_t offset) {
    dt_arg low = k == 2 ? arg_integer(-50) : arg_float(0),
           high = k == 2 ? arg_integer(50) : arg_float(1);
    return draw(draws[k], parts, SHAPE(n), low, high, dtype, offset);
}

START_TEST(an_element_depends_on_seed_and_index_alone) {
    const dt_dtype dtypes[] = {DT_F16, DT_BF16, DT_F32, DT_F64, DT_I64, DT_I32, DT_I8};
    for (int k = 0; k < 3; k++)
        for (int d = 0; d < 7; d++) {
            if (k != 2 && !dt_dtype_is_float(dtypes[d])) continue;
            select_level(0);
            dt_tensor *whole = draw_number(k, 1, 3000, dtypes[d], 100);
            for (int level = 0; level < levels_count(); level++) {
                select_level(level);
                for (int parts = 1; parts <= 7; parts++) {
                    dt_tensor *again = draw_number(k, parts, 3000, dtypes[d], 100);
                    assert_same_bits(again, whole, dt_op_table[draws[k]].full_name);
                    dt_tensor_release(again);
                }
                dt_tensor *tail = draw_number(k, 2, 1777, dtypes[d], 100 + 1223);
                for (int64_t i = 0; i < tail->numel; i++)
                    EXPECT(value_at(tail, i) == value_at(whole, i + 1223), "element %d", (int)i);
                dt_tensor_release(tail);
            }
            dt_tensor_release(whole);
        }
    select_level((int)dt_cpu_best());
}
END_TEST

START_TEST(another_seed_gives_other_numbers) {
    dt_tensor *a = draw_number(0, 1, 1000, DT_F32, 0), *b = draw_number(0, 1, 1000, DT_F32, 1000);
    int equal = 0;
    for (int64_t i = 0; i < 1000; i++) equal += value_at(a, i) == value_at(b, i);
    ck_assert_int_lt(equal, 5);
    dt_tensor_release(a);
    dt_tensor_release(b);
}
END_TEST

#define MANY 200000

START_TEST(moments) {
    for (int dtype = DT_F16; dtype <= DT_F64; dtype++)
        for (int k = 0; k < 2; k++) {
            dt_tensor *t = draw_number(k, 1, MANY, (dt_dtype)dtype, 5);
            long double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
            for (int64_t i = 0; i < MANY; i++) {
                long double v = value_at(t, i) - (k ? 0.0L : 0.5L);
                m1 += v / MANY, m2 += v * v / MANY, m3 += v * v * v / MANY;
                m4 += v * v * v * v / MANY;
            }
            /* a half's uniforms are cut off: half a step of 1/256 (1/2048) below the middle */
            long double cut = k                  ? 0
                              : dtype == DT_BF16 ? 0.5L / 256
                              : dtype == DT_F16  ? 0.5L / 2048
                                                 : 0;
            ck_assert(fabsl(m1 + cut) < (k ? 0.01L : 0.003L));
            ck_assert(fabsl(m2 - (k ? 1.0L : 1.0L / 12)) < (k ? 0.02L : 0.002L));
            ck_assert(fabsl(m3) < (k ? 0.05L : 0.003L));
            ck_assert(fabsl(m4 - (k ? 3.0L : 1.0L / 80)) < (k ? 0.1L : 0.002L));
            dt_tensor_release(t);
        }
}
END_TEST

START_TEST(mean_and_deviation) {
    dt_tensor *z = draw_number(1, 1, 1000, DT_F64, 9);
    dt_tensor *t = draw(DT_OP_randn__new, 1, SHAPE(1000), arg_float(-3), arg_float(0.5), DT_F64, 9);
    for (int64_t i = 0; i < 1000; i++)
        ck_assert(value_at(t, i) == (long double)((double)value_at(z, i) * 0.5 + -3.0));
    dt_tensor_release(z);
    dt_tensor_release(t);
}
END_TEST

/* Ranges in which low + u * span would round to high. */
START_TEST(the_end_of_a_range_is_never_drawn) {
    static const double ranges[][2] = {{0, 1},    {1, 2},     {1000, 1001}, {-1, 0},     {-2, -1},
                                       {0, 1e-3}, {-1e30, 1}, {3, 3},       {4096, 4100}};
    for (int dtype = DT_F16; dtype <= DT_F64; dtype++)
        for (size_t k = 0; k < sizeof ranges / sizeof ranges[0]; k++) {
            double low = ranges[k][0], high = ranges[k][1];
            if (dtype == DT_F16 && low < -60000) continue;
            dt_tensor *t = draw(DT_OP_rand__new, 1, SHAPE(MANY), arg_float(low), arg_float(high),
                                (dt_dtype)dtype, 3);
            dt_tensor *ends = VECTOR((dt_dtype)dtype, low, high); /* rounded to the dtype */
            long double first = value_at(ends, 0), end = value_at(ends, 1);
            for (int64_t i = 0; i < MANY; i++) {
                long double v = value_at(t, i);
                EXPECT(v >= first && (v < end || (v == first && first == end)),
                       "%s [%g, %g): %.12Lg", dt_dtype_table[dtype].name, low, high, v);
            }
            dt_tensor_release(t);
            dt_tensor_release(ends);
        }
}
END_TEST

START_TEST(integers_cover_their_range_evenly) {
    dt_tensor *t =
        draw(DT_OP_randint__new, 1, SHAPE(MANY), arg_integer(-3), arg_integer(7), DT_I8, 1);
    int counts[10] = {0};
    for (int64_t i = 0; i < MANY; i++) {
        int64_t v = (int64_t)value_at(t, i);
        EXPECT(v >= -3 && v < 7, "%d", (int)v);
        counts[v + 3]++;
    }
    for (int k = 0; k < 10; k++) ck_assert_int_lt(abs(counts[k] - MANY / 10), 700); /* 5 sigma */
    dt_tensor_release(t);
}
END_TEST

START_TEST(integers_up_to_the_widest_range) {
    dt_tensor *t = draw(DT_OP_randint__new, 1, SHAPE(1000), arg_integer(INT64_MIN),
                        arg_integer(INT64_MAX), DT_I64, 1);
    int negative = 0;
    for (int64_t i = 0; i < 1000; i++) negative += value_at(t, i) < 0;
    ck_assert(negative > 400 && negative < 600);
    dt_tensor_release(t);
    t = draw(DT_OP_randint__new, 1, SHAPE(100), arg_integer(5), arg_integer(6), DT_F32, 1);
    for (int64_t i = 0; i < 100; i++) ck_assert(value_at(t, i) == 5);
    dt_tensor_release(t);
}
END_TEST

START_TEST(empty_draws) {
    for (int k = 0; k < 3; k++) {
        dt_tensor *t = draw_number(k, 1, 0, DT_F32, 8);
        ck_assert_int_eq(t->numel, 0);
        dt_tensor_release(t);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("random");
    TEST_CASE(suite, "philox", the_reference_gives_the_known_answers,
              draws_are_the_words_of_philox);
    TEST_CASE(suite, "draws", an_element_depends_on_seed_and_index_alone,
              another_seed_gives_other_numbers, moments, mean_and_deviation,
              the_end_of_a_range_is_never_drawn, integers_cover_their_range_evenly,
              integers_up_to_the_widest_range, empty_draws);
    return test_run(suite);
}
