/* ew_copy: every pair of dtypes, every arrangement of memory, fills. */
#include "tests/c/ew_support.h"

#include "kernels/cpu/cast.h"

extern const dt_kernel dt_kernel_ew_copy;

static const double awkward[] = {
    0,   -0.0,  1,      -1,           1.5,           -1.5,     2.5,       127,  128,          255,
    256, 300.7, -200.2, 32768,        65504,         65520,    70000,     1e-8, 6e-8,         1e-40,
    3e9, -3e9,  1e20,   1.0009765625, 1.00048828125, INFINITY, -INFINITY, NAN,  8589934599.0, 0.3};
#define AWKWARD ((int)(sizeof awkward / sizeof awkward[0]))

/* What torch on x86 gives for a float that is cast to an integer type. */
static int64_t float_to_int(double x, dt_dtype to) {
    if (to == DT_BOOL) return x != 0;
    if (to == DT_I64) return fabs(x) < 0x1p63 ? (int64_t)x : INT64_MIN;
    int32_t low = x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN;
    switch (to) {
    case DT_U8:
        return (uint8_t)low;
    case DT_I8:
        return (int8_t)low;
    case DT_I16:
        return (int16_t)low;
    default:
        return low;
    }
}

static void check_cast(dt_dtype from, dt_dtype to, const dt_tensor *x, const dt_tensor *y) {
    for (int64_t i = 0; i < x->numel; i++) {
        dt_scalar v = dt_scalar_load(from, ew_at(x, i));
        uint64_t want = 0;
        if (dt_dtype_is_float(from) && !dt_dtype_is_float(to))
            dt_scalar_store((dt_scalar){.category = DT_CAT_INT, .i = float_to_int(v.f, to)}, to,
                            &want);
        else
            dt_scalar_store(v, to, &want);
        bool nan = dt_dtype_is_float(from) && isnan(v.f) && dt_dtype_is_float(to);
        bool same = nan ? isnan(ew_get(y, i)) : !memcmp(ew_at(y, i), &want, dt_dtype_size(to));
        ck_assert_msg(same, "%s -> %s: %a gives %a", dt_dtype_table[from].name,
                      dt_dtype_table[to].name, dt_scalar_f64(v), ew_get(y, i));
    }
}

START_TEST(casts) {
    dt_dtype from = (dt_dtype)_i;
    const int64_t n = 1300;
    dt_tensor *x = ew_vector(from, n);
    uint64_t seed = 4;
    for (int64_t i = 0; i < n; i++) {
        if (dt_dtype_is_float(from))
            ew_set(x, i,
                   i % 2 ? awkward[i / 2 % AWKWARD] : (double)(int64_t)ew_random(&seed) * 1e-15);
        else
            ew_set_int(x, i, (int64_t)ew_random(&seed) >> (i % 50));
    }
    for (int level = 0; level < ew_level_count(); level++) {
        ck_assert_int_eq(dt_cpu_select(ew_levels[level]), DT_OK);
        for (int to = 0; to < DT_DTYPE_COUNT; to++) {
            dt_tensor *y = ew_vector((dt_dtype)to, n);
            ck_assert_int_eq(ew_run(&dt_kernel_ew_copy, from, 1, y, 1, &x), DT_OK);
            check_cast(from, (dt_dtype)to, x, y);
            dt_tensor_release(y);
        }
    }
    dt_tensor_release(x);
}
END_TEST

START_TEST(halves_exhaustively) {
    static const dt_dtype halves[] = {DT_F16, DT_BF16};
    for (int h = 0; h < 2; h++) {
        dt_tensor *x = ew_vector(halves[h], 65536), *y = ew_vector(DT_F32, 65536);
        dt_tensor *back = ew_vector(halves[h], 65536);
        for (int64_t i = 0; i < 65536; i++) {
            uint16_t bits = (uint16_t)i;
            memcpy(ew_at(x, i), &bits, 2);
        }
        for (int level = 0; level < ew_level_count(); level++) {
            ck_assert_int_eq(dt_cpu_select(ew_levels[level]), DT_OK);
            ck_assert_int_eq(ew_run(&dt_kernel_ew_copy, halves[h], 1, y, 1, &x), DT_OK);
            ck_assert_int_eq(ew_run(&dt_kernel_ew_copy, DT_F32, 1, back, 1, &y), DT_OK);
            for (int64_t i = 0; i < 65536; i++) {
                double want = ew_get(x, i), got = ew_get(y, i);
                ck_assert(got == want || (isnan(got) && isnan(want)));
                ck_assert(isnan(want) || !memcmp(ew_at(back, i), ew_at(x, i), 2));
            }
        }
        dt_tensor_release(x);
        dt_tensor_release(y);
        dt_tensor_release(back);
    }
}
END_TEST

static void number_elements(dt_tensor *t) {
    for (int64_t i = 0; i < t->numel; i++) ew_set_int(t, i, i % 101 - 20);
}

static void check_copy(const dt_tensor *from, dt_dtype to, int rank, const int64_t *out_strides,
                       int parts) {
    int64_t room = 1;
    for (int d = 0; d < rank; d++)
        if (from->shape[d] > 0) room += (from->shape[d] - 1) * out_strides[d];
    dt_tensor *base = ew_vector(to, room);
    dt_tensor *out = ew_view(base, rank, from->shape, out_strides, 0);
    ck_assert_int_eq(
        ew_run(&dt_kernel_ew_copy, to, parts, out, 1, (dt_tensor *[]){(dt_tensor *)from}), DT_OK);
    for (int64_t i = 0; i < out->numel; i++)
        ck_assert_msg(ew_get(out, i) == ew_get(from, i), "element %lld of %lld", (long long)i,
                      (long long)out->numel);
    dt_tensor_release(out);
    dt_tensor_release(base);
}

START_TEST(transposes) {
    static const dt_dtype types[][2] = {
        {DT_I8, DT_I8},   {DT_F16, DT_F16}, {DT_F32, DT_F32}, {DT_F64, DT_F64},
        {DT_F32, DT_I64}, {DT_F16, DT_F32}, {DT_I16, DT_I8},
    };
    static const int64_t sizes[] = {1, 3, 4, 8, 16, 63, 64, 65, 130, 200};
    dt_dtype from = types[_i][0], to = types[_i][1];
    for (int a = 0; a < 10; a++) {
        for (int b = 0; b < 10; b++) {
            int64_t rows = sizes[a], columns = sizes[b];
            dt_tensor *base = ew_vector(from, rows * columns);
            number_elements(base);
            dt_tensor *t = ew_view(base, 2, (int64_t[]){rows, columns}, (int64_t[]){1, rows}, 0);
            check_copy(t, to, 2, (int64_t[]){columns, 1}, 1 + (a + b) % 3);
            check_copy(t, to, 2, (int64_t[]){columns * 2 + 1, 2}, 2);
            dt_tensor_release(t);
            dt_tensor_release(base);
        }
    }
}
END_TEST

START_TEST(permutations) {
    const int64_t shape[4] = {3, 34, 5, 70}, strides[4] = {34 * 5 * 70, 5 * 70, 70, 1};
    dt_tensor *base = ew_vector(DT_F32, 3 * 34 * 5 * 70);
    number_elements(base);
    for (int p = 0; p < 24; p++) {
        int dims[4] = {0, 1, 2, 3}, order[4], code = p;
        for (int k = 0, left = 4; k < 4; k++, left--) {
            int pick = code % left;
            code /= left;
            order[k] = dims[pick];
            for (int m = pick; m + 1 < left; m++) dims[m] = dims[m + 1];
        }
        int64_t s[4], st[4], plain[4];
        for (int k = 0; k < 4; k++) {
            s[k] = shape[order[k]];
            st[k] = strides[order[k]];
        }
        dt_shape_contiguous_strides(4, s, plain);
        dt_tensor *t = ew_view(base, 4, s, st, 0);
        check_copy(t, DT_F32, 4, plain, 1 + p % 4);
        check_copy(t, DT_F16, 4, plain, 1 + p % 4);
        dt_tensor_release(t);
    }
    dt_tensor_release(base);
}
END_TEST

START_TEST(repeats_and_gaps) {
    dt_tensor *base = ew_vector(DT_I32, 4000);
    number_elements(base);
    static const struct {
        int64_t shape[3], strides[3], out[3];
    } rows[] = {
        {{20, 50, 3}, {0, 0, 0}, {150, 3, 1}},   {{20, 50, 3}, {0, 0, 1}, {150, 3, 1}},
        {{20, 50, 3}, {3, 0, 1}, {150, 3, 1}},   {{20, 50, 3}, {1, 0, 0}, {150, 3, 1}},
        {{20, 3, 50}, {3, 1, 0}, {150, 50, 1}},  {{20, 3, 50}, {150, 50, 1}, {400, 120, 2}},
        {{2, 1, 1500}, {1500, 7, 1}, {1, 1, 2}}, {{2, 900, 2}, {0, 2, 1}, {1800, 2, 1}},
        {{4, 0, 3}, {3, 3, 1}, {3, 3, 1}},
    };
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        dt_tensor *t = ew_view(base, 3, rows[k].shape, rows[k].strides, 0);
        for (int parts = 1; parts < 5; parts += 3) {
            check_copy(t, DT_I32, 3, rows[k].out, parts);
            check_copy(t, DT_F64, 3, rows[k].out, parts);
        }
        dt_tensor_release(t);
    }
    dt_tensor_release(base);
}
END_TEST

START_TEST(fills) {
    dt_dtype t = (dt_dtype)_i;
    const dt_scalar values[] = {{.category = DT_CAT_INT, .i = 0},
                                {.category = DT_CAT_INT, .i = -3},
                                {.category = DT_CAT_FLOAT, .f = 1.1},
                                {.category = DT_CAT_BOOL, .i = 1}};
    for (int v = 0; v < 4; v++) {
        for (int strided = 0; strided < 2; strided++) {
            dt_tensor *base = ew_vector(t, 6000);
            for (int64_t i = 0; i < 6000; i++) ew_set_int(base, i, 1);
            const int64_t shape[] = {2, 1500}, strides[] = {3000, 1 + strided};
            dt_tensor *out = ew_view(base, 2, shape, strides, 0);
            ew_case c = ew_case_new(&dt_kernel_ew_copy, t, out, 1, (dt_tensor *[]){NULL});
            c.call.immediates[0] = values[v];
            c.parts = 3;
            ck_assert_int_eq(ew_case_run(&c), DT_OK);
            dt_call_fini(&c.call);
            uint64_t want, one;
            dt_scalar_store(values[v], t, &want);
            dt_scalar_store((dt_scalar){.category = DT_CAT_INT, .i = 1}, t, &one);
            for (int64_t i = 0; i < 6000; i++) {
                bool inside = strided ? i % 2 == 0 : i % 3000 < 1500;
                ck_assert_mem_eq(ew_at(base, i), inside ? &want : &one, dt_dtype_size(t));
            }
            dt_tensor_release(out);
            dt_tensor_release(base);
        }
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("copy");
    TCase *pairs = tcase_create("dtypes");
    tcase_add_loop_test(pairs, casts, 0, DT_DTYPE_COUNT);
    tcase_add_test(pairs, halves_exhaustively);
    suite_add_tcase(s, pairs);
    TCase *shapes = tcase_create("layouts");
    tcase_add_loop_test(shapes, transposes, 0, 7);
    tcase_add_test(shapes, permutations);
    tcase_add_test(shapes, repeats_and_gaps);
    tcase_add_loop_test(shapes, fills, 0, DT_DTYPE_COUNT);
    suite_add_tcase(s, shapes);
    return test_run(s);
}
