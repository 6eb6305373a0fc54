/* test_keys.c: keys sort as elements do, come back as elements, and are sorted right. */
#include "kernels/cpu/keys.h"

#include "tests/c/op_support.h"

/* Ascending values of a dtype, NaN last; `count` of them. */
static dt_tensor *ascending(dt_dtype dtype) {
    if (dtype == DT_BOOL) return VECTOR(DT_BOOL, 0, 1);
    if (dtype == DT_U8) return VECTOR(DT_U8, 0, 1, 127, 128, 255);
    if (!dt_dtype_is_float(dtype)) {
        double top = exp2((double)dt_dtype_size(dtype) * 8 - 1);
        if (dtype == DT_I64) top = exp2(62); /* exactly a double */
        return VECTOR(dtype, -top, -100, -1, 0, 1, 100, top - 1);
    }
    return VECTOR(dtype, -INFINITY, -1000, -1.5, -1e-4, 0, 1e-4, 1.5, 1000, INFINITY, NAN);
}

START_TEST(keys_order_and_come_back) {
    for (int d = 0; d < DT_DTYPE_COUNT; d++) {
        dt_dtype dtype = (dt_dtype)d;
        dt_tensor *t = ascending(dtype);
        uint64_t keys[16] = {0};
        uint32_t narrow[16] = {0};
        dt__keys_u64(t->numel, keys, dt_tensor_data(t), dtype);
        if (dt_dtype_size(dtype) <= 4) dt__keys_u32(t->numel, narrow, dt_tensor_data(t), dtype);
        for (int64_t i = 0; i < t->numel; i++) {
            double back;
            if (i > 0) require(keys[i - 1] < keys[i]);
            if (dt_dtype_size(dtype) <= 4)
                require(narrow[i] == (uint32_t)keys[i] && (i == 0 || narrow[i - 1] < narrow[i]));
            dt__key_element(keys[i], dtype, &back);
            dt_scalar s = dt_scalar_load(dtype, &back);
            if (s.category == DT_CAT_FLOAT && isnan(s.f))
                require(isnan(value_at(t, i)) && keys[i] == DT__KEY_NAN);
            else
                require(memcmp(&back, element_at(t, i), dt_dtype_size(dtype)) == 0);
        }
        dt_tensor_release(t);
    }
    int64_t least = INT64_MIN, most = INT64_MAX, back;
    uint64_t a, b;
    dt__keys_u64(1, &a, &least, DT_I64);
    dt__keys_u64(1, &b, &most, DT_I64);
    ck_assert(a == 0 && b == UINT64_MAX);
    dt__key_element(b, DT_I64, &back);
    ck_assert_int_eq(back, INT64_MAX);
}
END_TEST

START_TEST(zeros_and_nans_have_one_key_each) {
    static const dt_dtype floats[] = {DT_F16, DT_BF16, DT_F32, DT_F64};
    for (int k = 0; k < 4; k++) {
        dt_tensor *t = VECTOR(floats[k], 0.0, -0.0, NAN, -NAN);
        uint64_t keys[4];
        dt__keys_u64(4, keys, dt_tensor_data(t), floats[k]);
        ck_assert(keys[0] == keys[1] && keys[2] == keys[3] && keys[2] == DT__KEY_NAN);
        dt_tensor_release(t);
    }
    unsigned char bytes[2] = {0x40, 0};
    uint64_t keys[2];
    dt__keys_u64(2, keys, bytes, DT_BOOL);
    ck_assert(keys[0] == 1 && keys[1] == 0);
}
END_TEST

static int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

START_TEST(sorts_against_qsort) {
    enum { N = 20000 };
    static uint64_t keys[N], other[N], want[N];
    static uint32_t narrow[N], narrow_other[N];
    const int64_t sizes[] = {1, 2, 47, 48, 49, 300, N};
    /* All digits, low digits, one digit, a few values, descending, equal. */
    const uint64_t masks[] = {UINT64_MAX, 0xffff, 0xff00, 3, 0, 0xffff000000000000};
    uint64_t seed = 9;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t m = 0; m < sizeof masks / sizeof masks[0]; m++) {
            int64_t n = sizes[s];
            for (int64_t i = 0; i < n; i++) {
                keys[i] = test_random(&seed) & masks[m];
                if (m == 4) keys[i] = (uint64_t)(n - i);
                narrow[i] = (uint32_t)(keys[i] ^ keys[i] >> 32);
            }
            memcpy(want, keys, sizeof *keys * (size_t)n);
            qsort(want, (size_t)n, sizeof *want, compare_u64);
            const uint64_t *got = dt__keys_sort_u64(n, keys, other);
            for (int64_t i = 0; i < n; i++) require(got[i] == want[i]);
            for (int64_t i = 0; i < n; i++) want[i] = narrow[i];
            qsort(want, (size_t)n, sizeof *want, compare_u64);
            const uint32_t *got_narrow = dt__keys_sort_u32(n, narrow, narrow_other);
            for (int64_t i = 0; i < n; i++) require(got_narrow[i] == want[i]);
        }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("keys");
    TEST_CASE(suite, "keys", keys_order_and_come_back, zeros_and_nans_have_one_key_each,
              sorts_against_qsort);
    return test_run(suite);
}
