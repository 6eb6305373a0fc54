/* test_unique.c: different elements against quadratic loops: values, inverse, counts. */
#include "tests/c/op_support.h"

typedef struct answer {
    dt_tensor *values, *inverse, *counts;
} answer;

static answer run(dt_op_id id, dt_tensor *t) {
    dt_op_call c;
    op_prepare(&c, id, ARGS(arg_tensor(t), arg_bool(true), arg_bool(true)));
    ck_assert_ok(op_run_parts(&c, 1));
    ck_assert_int_eq(c.nout, 3);
    return (answer){c.outs[0], c.outs[1], c.outs[2]};
}

static void release(answer a) {
    dt_tensor_release(a.values);
    dt_tensor_release(a.inverse);
    dt_tensor_release(a.counts);
}

/* The op without inverse or counts, or with one of them, gives the same. */
static void check_other_forms(dt_op_id id, dt_tensor *t, answer a) {
    dt_tensor *alone = RUN(id, arg_tensor(t), arg_bool(false), arg_bool(false));
    dt_tensor *counts = op_output(1, 1, id, ARGS(arg_tensor(t), arg_bool(false), arg_bool(true)));
    dt_tensor *inverse = op_output(1, 1, id, ARGS(arg_tensor(t), arg_bool(true), arg_bool(false)));
    assert_same_bits(alone, a.values, "values alone");
    assert_same_bits(counts, a.counts, "counts alone");
    assert_same_bits(inverse, a.inverse, "inverse alone");
    dt_tensor *all[] = {alone, counts, inverse};
    for (int k = 0; k < 3; k++) dt_tensor_release(all[k]);
}

/* Whether an element and a value are the same one for unique. */
static bool same(long double a, long double b) { return a == b || (isnan(a) && isnan(b)); }

static void check_unique(dt_tensor *t) {
    answer a = run(DT_OP_unique__new, t);
    int64_t n = a.values->numel, total = 0;
    ck_assert(a.values->dtype == t->dtype && a.values->rank == 1 && a.counts->numel == n);
    ck_assert(dt_tensor_same_shape(a.inverse, t));
    for (int64_t k = 1; k < n; k++) {
        long double low = value_at(a.values, k - 1), high = value_at(a.values, k);
        EXPECT(low < high || isnan(high), "value %lld: %Lg after %Lg", (long long)k, high, low);
    }
    for (int64_t k = 0; k < n; k++) total += (int64_t)value_at(a.counts, k);
    ck_assert_int_eq(total, t->numel);
    int64_t nan = -1;
    for (int64_t i = 0; i < t->numel; i++) {
        int64_t at = (int64_t)value_at(a.inverse, i);
        EXPECT(at >= 0 && at < n && same(value_at(a.values, at), value_at(t, i)), "inverse %lld",
               (long long)i);
        if (!isnan(value_at(t, i))) continue;
        EXPECT(nan == -1 ? at == 0 || !isnan(value_at(a.values, at - 1)) : at == nan + 1,
               "NaN number %lld", (long long)i);
        EXPECT(value_at(a.counts, at) == 1, "a NaN that counts twice");
        nan = at;
    }
    for (int64_t k = 0; k < n; k++) {
        int64_t count = 0;
        for (int64_t i = 0; i < t->numel; i++) count += value_at(a.inverse, i) == k;
        EXPECT(value_at(a.counts, k) == count && count > 0, "count %lld", (long long)k);
    }
    check_other_forms(DT_OP_unique__new, t, a);
    release(a);
}

static void check_consecutive(dt_tensor *t) {
    answer a = run(DT_OP_unique_consecutive__new, t);
    int64_t n = 0, start = 0;
    for (int64_t i = 0; i < t->numel; i++) {
        bool begins = i == 0 || value_at(t, i) != value_at(t, i - 1); /* NaN begins always */
        if (begins) {
            if (n > 0) EXPECT(value_at(a.counts, n - 1) == i - start, "count %lld", (long long)n);
            EXPECT(n < a.values->numel && memcmp(element_at(a.values, n), element_at(t, i),
                                                 dt_dtype_size((dt_dtype)t->dtype)) == 0,
                   "value %lld", (long long)n);
            n++;
            start = i;
        }
        EXPECT(value_at(a.inverse, i) == n - 1, "inverse %lld", (long long)i);
    }
    ck_assert_int_eq(a.values->numel, n);
    ck_assert_int_eq(a.counts->numel, n);
    if (n > 0) ck_assert(value_at(a.counts, n - 1) == t->numel - start);
    check_other_forms(DT_OP_unique_consecutive__new, t, a);
    release(a);
}

START_TEST(every_dtype_and_size) {
    dt_memory_stats before = test_memory();
    uint64_t seed = 77;
    const dt_dims shapes[] = {SCALAR_SHAPE, SHAPE(0),   SHAPE(0, 3),   SHAPE(1),
                              SHAPE(30),    SHAPE(600), SHAPE(13, 101)};
    for (int dtype = 0; dtype < DT_DTYPE_COUNT; dtype++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            for (int spread = 1; spread <= 1000; spread *= 10) {
                dt_tensor *t = tensor_new((dt_dtype)dtype, shapes[s]);
                for (int64_t i = 0; i < t->numel; i++) {
                    int64_t v = test_random_in(&seed, -spread, spread);
                    if (dtype == DT_BOOL || dtype == DT_U8) v = v < 0 ? -v : v;
                    if (dtype == DT_BOOL) v &= 1;
                    if (dt_dtype_size((dt_dtype)dtype) == 1) v %= 100;
                    bool special = dt_dtype_is_float((dt_dtype)dtype) && v == spread;
                    set_value(t, i, special ? (double)NAN : (double)v / (v % 2 ? 1 : 4));
                }
                check_unique(t);
                check_consecutive(t);
                dt_tensor_release(t);
            }
    test_assert_no_leak(before);
}
END_TEST

START_TEST(extremes) {
    dt_tensor *wide = tensor_new(DT_I64, SHAPE(4)), *narrow = tensor_new(DT_I32, SHAPE(4));
    memcpy(dt_tensor_data(wide), (int64_t[]){INT64_MAX, INT64_MIN, INT64_MAX, -1}, 32);
    memcpy(dt_tensor_data(narrow), (int32_t[]){INT32_MAX, INT32_MIN, INT32_MAX, -1}, 16);
    answer a = run(DT_OP_unique__new, wide), b = run(DT_OP_unique__new, narrow);
    ck_assert_int_eq(a.values->numel, 3);
    ck_assert(memcmp(dt_tensor_data(a.values), (int64_t[]){INT64_MIN, -1, INT64_MAX}, 24) == 0);
    ck_assert(memcmp(dt_tensor_data(a.counts), (int64_t[]){1, 1, 2}, 24) == 0);
    ck_assert(memcmp(dt_tensor_data(a.inverse), (int64_t[]){2, 0, 2, 1}, 32) == 0);
    ck_assert_int_eq(b.values->numel, 3);
    ck_assert(memcmp(dt_tensor_data(b.values), (int32_t[]){INT32_MIN, -1, INT32_MAX}, 12) == 0);
    release(a);
    release(b);
    dt_tensor *infinite = VECTOR(DT_BF16, INFINITY, NAN, -INFINITY, 0, NAN);
    check_unique(infinite);
    dt_tensor *all[] = {wide, narrow, infinite};
    for (int k = 0; k < 3; k++) dt_tensor_release(all[k]);
}
END_TEST

START_TEST(the_first_zero_stays) {
    static const dt_dtype floats[] = {DT_F16, DT_BF16, DT_F32, DT_F64};
    for (int k = 0; k < 4; k++)
        for (int negative = 0; negative < 2; negative++) {
            dt_tensor *t = VECTOR(floats[k], 1, negative ? -0.0 : 0.0, negative ? 0.0 : -0.0, -1);
            dt_tensor *out =
                RUN(DT_OP_unique__new, arg_tensor(t), arg_bool(false), arg_bool(false));
            ck_assert(out->numel == 3 && value_at(out, 1) == 0);
            ck_assert_int_eq(signbit((double)value_at(out, 1)) != 0, negative);
            dt_tensor_release(out);
            dt_tensor_release(t);
        }
}
END_TEST

START_TEST(large) {
    dt_tensor *t = tensor_new(DT_I64, SHAPE(200000));
    int64_t *v = dt_tensor_data(t);
    for (int64_t i = 0; i < t->numel; i++) v[i] = i * 7919 % 50021 - 25000;
    answer a = run(DT_OP_unique__new, t);
    ck_assert_int_eq(a.values->numel, 50021);
    const int64_t *values = dt_tensor_data(a.values), *inverse = dt_tensor_data(a.inverse);
    for (int64_t k = 0; k < 50021; k++) require(values[k] == k - 25000);
    for (int64_t i = 0; i < t->numel; i++) require(values[inverse[i]] == v[i]);
    release(a);
    dt_tensor_release(t);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("unique");
    TEST_CASE(suite, "unique", every_dtype_and_size, extremes, the_first_zero_stays, large);
    return test_run(suite);
}
