/* test_reduce.c: reductions against plain loops in long double; one tree for every layout, number
 * of parts and instruction set. */
#include "tests/c/op_support.h"

/* ---- calls with a mask of dims
 * ------------------------------------------------------------------- */

static const dt_op_id ops[] = {DT_OP_sum,      DT_OP_prod,     DT_OP_mean, DT_OP_amax,
                               DT_OP_amin,     DT_OP_any,      DT_OP_all,  DT_OP_var__new,
                               DT_OP_std__new, DT_OP_logsumexp};
static const double norms[] = {0, 1, 2, 3, -2, INFINITY, -INFINITY};
#define OPS (int)(sizeof ops / sizeof ops[0])
#define NORMS (int)(sizeof norms / sizeof norms[0])
#define FAMILY (OPS + NORMS) /* member k: an op, or norm__new with one p */

static dt_op_id member_op(int k) { return k < OPS ? ops[k] : DT_OP_norm__new; }
static double norm_of(int k) { return k >= OPS && k < FAMILY ? norms[k - OPS] : 2; }

static void member_call(dt_op_call *c, int k, dt_tensor *t, const dt_dims *dims) {
    dt_arg x = arg_tensor(t), d = {.kind = DT_ARG_DIMS, .dims = dims};
    dt_arg keep = arg_bool(false);
    switch (member_op(k)) {
    case DT_OP_var__new:
    case DT_OP_std__new:
        op_prepare(c, ops[k], ARGS(x, d, arg_integer(1), keep));
        break;
    case DT_OP_norm__new:
        op_prepare(c, DT_OP_norm__new, ARGS(x, arg_float(norm_of(k)), d, keep, arg_none()));
        break;
    default:
        op_prepare(c, ops[k], ARGS(x, d, keep, arg_none()));
        break;
    }
}

/* Whether torch has it for the dtype; logsumexp of integers is by the float kernel. */
static bool member_takes(int k, dt_dtype dtype) {
    dt_op_id op = member_op(k);
    bool floats = op == DT_OP_mean || op == DT_OP_var__new || op == DT_OP_std__new ||
                  op == DT_OP_norm__new || op == DT_OP_logsumexp;
    return !floats || dt_dtype_is_float(dtype);
}

static uint32_t all_dims(const dt_tensor *t) { return (1u << t->rank) - 1; }

/* prod takes one dim or all. */
static bool member_takes_mask(int k, const dt_tensor *t, uint32_t mask) {
    return member_op(k) != DT_OP_prod || mask == all_dims(t) || (mask & (mask - 1)) == 0;
}

static dt_tensor *member_run(int k, int parts, dt_tensor *t, uint32_t mask) {
    dt_dims dims = {.rank = 0}; /* empty: all */
    for (int d = 0; d < t->rank && mask != all_dims(t); d++)
        if (mask >> d & 1) dims.v[dims.rank++] = d;
    dt_op_call c;
    member_call(&c, k, t, &dims);
    ck_assert_ok(op_run_parts(&c, parts));
    return c.outs[0];
}

/* ---- the reference
 * --------------------------------------------------------------------------------- */

static bool beats(long double a, long double b, bool max) {
    return isnan(a) || (!isnan(b) && (max ? a > b : a < b));
}

static long double fold(int k, const long double *x, int64_t n) {
    dt_op_id op = member_op(k);
    long double p = op == DT_OP_norm__new ? norm_of(k) : 0, s = 0, mean = 0, top = -INFINITY;
    for (int64_t i = 0; i < n; i++) mean += x[i] / n;
    for (int64_t i = 0; i < n; i++) top = beats(x[i], top, true) ? x[i] : top;
    bool extreme = op == DT_OP_amax || op == DT_OP_amin;
    if (extreme) s = x[0];
    if (op == DT_OP_prod || op == DT_OP_all) s = 1;
    if (op == DT_OP_norm__new && isinf(p)) s = fabsl(x[0]);
    for (int64_t i = 0; i < n; i++) {
        long double v = x[i], a = fabsl(v);
        switch (op) {
        case DT_OP_sum:
        case DT_OP_mean:
            s += v;
            break;
        case DT_OP_prod:
            s *= v;
            break;
        case DT_OP_amax:
            s = beats(v, s, true) ? v : s;
            break;
        case DT_OP_amin:
            s = beats(v, s, false) ? v : s;
            break;
        case DT_OP_any:
            s = s != 0 || v != 0;
            break;
        case DT_OP_all:
            s = s != 0 && v != 0;
            break;
        case DT_OP_logsumexp:
            s += expl(v - top);
            break;
        case DT_OP_norm__new:
            if (isinf(p))
                s = beats(a, s, p > 0) ? a : s;
            else
                s += p == 0 ? v != 0 : powl(a, p);
            break;
        default:
            s += (v - mean) * (v - mean);
            break;
        }
    }
    switch (op) {
    case DT_OP_mean:
        return s / n;
    case DT_OP_var__new:
        return s / (n - 1);
    case DT_OP_std__new:
        return sqrtl(s / (n - 1));
    case DT_OP_logsumexp:
        return logl(s) + top;
    case DT_OP_norm__new:
        return p == 0 || isinf(p) ? s : powl(s, 1 / p);
    default:
        return s;
    }
}

/* Where element i of t goes when the dims of mask are reduced. */
static int64_t output_index(const dt_tensor *t, uint32_t mask, int64_t i) {
    int64_t to = 0, step = 1;
    for (int d = t->rank - 1; d >= 0; d--) {
        int64_t at = i % t->shape[d];
        i /= t->shape[d];
        if (mask >> d & 1) continue;
        to += at * step;
        step *= t->shape[d];
    }
    return to;
}

static void check_member(int k, dt_tensor *t, uint32_t mask, const char *what) {
    if (!member_takes_mask(k, t, mask)) return;
    dt_tensor *out = member_run(k, 1, t, mask);
    int64_t n = t->numel / out->numel, *filled = calloc((size_t)out->numel, sizeof *filled);
    long double *x = calloc((size_t)t->numel, sizeof *x);
    ck_assert(filled && x);
    for (int64_t i = 0; i < t->numel; i++) {
        int64_t o = output_index(t, mask, i);
        x[o * n + filled[o]++] = value_at(t, i);
    }
    dt_dtype result = (dt_dtype)out->dtype;
    for (int64_t o = 0; o < out->numel; o++)
        assert_close(value_at(out, o), fold(k, x + o * n, n), tolerance_of(result) * 4, what);
    free(filled);
    free(x);
    dt_tensor_release(out);
}

static void fill_for(int k, const dt_tensor *t) {
    fill_random(t, 7 + (uint64_t)k);
    if (member_op(k) == DT_OP_prod) /* stays exact and small */
        for (int64_t i = 0; i < t->numel; i++)
            set_value(t, i, (double)(i * 7 % 5 == 0 && t->dtype != DT_BOOL ? 2 : i % 31 != 30));
    if (member_op(k) == DT_OP_norm__new && norm_of(k) < 0)
        for (int64_t i = 0; i < t->numel; i++) set_value(t, i, (double)(1 + i % 7) / 2);
}

START_TEST(values_of_every_dtype_and_layout) {
    for (int dtype = 0; dtype < DT_DTYPE_COUNT; dtype++)
        for (int how = 0; how < LAYOUTS; how++)
            for (int k = 0; k < FAMILY; k++) {
                if (!member_takes(k, (dt_dtype)dtype)) continue;
                dt_tensor *t = tensor_laid_out((dt_dtype)dtype, SHAPE(3, 5, 9), (layout)how);
                fill_for(k, t);
                char what[80];
                snprintf(what, sizeof what, "%s(%g) of %s, layout %d",
                         dt_op_table[member_op(k)].full_name, norm_of(k),
                         dt_dtype_table[dtype].name, how);
                for (uint32_t mask = 1; mask < 8; mask++) check_member(k, t, mask, what);
                dt_tensor_release(t);
            }
}
END_TEST

START_TEST(expanded_inputs) {
    dt_tensor *base = tensor_new(DT_F32, SHAPE(4, 1));
    fill_random(base, 3);
    dt_tensor *t = view_of(base, SHAPE(6, 4, 10), (int64_t[]){0, 1, 0}, 0);
    for (int k = 0; k < FAMILY; k++) {
        if (member_op(k) == DT_OP_prod) continue;
        if (k >= OPS && norm_of(k) == -2) continue;
        for (uint32_t mask = 1; mask < 8; mask++) {
            check_member(k, t, mask, "expanded");
        }
    }
    dt_tensor_release(t);
    dt_tensor_release(base);
}
END_TEST

/* ---- one tree
 * ---------------------------------------------------------------------------------------- */

/* Values whose sums depend on the order of additions. */
static void fill_rough(const dt_tensor *t) {
    uint64_t seed = 11;
    for (int64_t i = 0; i < t->numel; i++)
        set_value(t, i, (double)test_random_in(&seed, -1000000, 1000000) / 999983.0 + 1e-3);
}

static void check_tree(dt_dtype dtype, dt_dims shape, uint32_t mask) {
    dt_tensor *plain = tensor_laid_out(dtype, shape, CONTIGUOUS);
    fill_rough(plain);
    for (int k = 0; k < FAMILY; k++) {
        if (!member_takes_mask(k, plain, mask)) continue;
        select_level(0);
        dt_tensor *want = member_run(k, 1, plain, mask);
        for (int how = 0; how < LAYOUTS; how++) {
            dt_tensor *t = tensor_laid_out(dtype, shape, (layout)how);
            for (int64_t i = 0; i < t->numel; i++)
                memcpy(element_at(t, i), element_at(plain, i), dt_dtype_size(dtype));
            for (int level = 0; level < levels_count(); level++) {
                select_level(level);
                for (int parts = 1; parts <= 7; parts += how == CONTIGUOUS ? 1 : 3) {
                    dt_tensor *got = member_run(k, parts, t, mask);
                    char what[120];
                    snprintf(what, sizeof what, "%s member %d layout %d level %d parts %d",
                             dt_op_table[member_op(k)].full_name, k, how, level, parts);
                    assert_same_bits(got, want, what);
                    dt_tensor_release(got);
                }
            }
            dt_tensor_release(t);
        }
        dt_tensor_release(want);
    }
    dt_tensor_release(plain);
}

START_TEST(one_tree_for_every_walk) {
    /* transposed, the first one is walked by columns; over one block and over several */
    check_tree(DT_F32, SHAPE(40, 130), 1);
    check_tree(DT_F32, SHAPE(4, 20), 1);
    check_tree(DT_F64, SHAPE(64, 10), 1);
    check_tree(DT_F32, SHAPE(130, 40), 2);
    check_tree(DT_F64, SHAPE(4500, 9), 1);
    check_tree(DT_F16, SHAPE(70, 12), 1);
    check_tree(DT_F32, SHAPE(3, 70, 20), 5);
    check_tree(DT_F32, SHAPE(3, 70, 20), 2);
}
END_TEST

START_TEST(one_tree_for_long_rows) {
    check_tree(DT_F32, SHAPE(30011), 1);
    check_tree(DT_F64, SHAPE(2, 13001), 3);
}
END_TEST

/* Blocks and lanes have edges: every length near one. */
START_TEST(every_length) {
    static const int64_t lengths[] = {1, 2, 31, 63, 64, 65, 127, 128, 4095, 4096, 4097, 8192, 8193};
    for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
        dt_tensor *t = tensor_new(DT_F64, SHAPE(lengths[k]));
        for (int64_t i = 0; i < t->numel; i++) set_value(t, i, (double)(i + 1));
        for (int parts = 1; parts <= 3; parts++) {
            dt_tensor *sum = member_run(0, parts, t, 1), *top = member_run(3, parts, t, 1);
            int64_t total = lengths[k] * (lengths[k] + 1) / 2;
            ck_assert(value_at(sum, 0) == (long double)total);
            ck_assert(value_at(top, 0) == (long double)lengths[k]);
            dt_tensor_release(sum);
            dt_tensor_release(top);
        }
        dt_tensor_release(t);
    }
}
END_TEST

/* ---- corners
 * ------------------------------------------------------------------------------------------- */

static void check_value(dt_tensor *t, int k, long double want) {
    dt_tensor *out = member_run(k, 1, t, t->rank ? 1 : 0);
    ck_assert_int_eq(out->rank, 0);
    assert_close(value_at(out, 0), want, 0, dt_op_table[member_op(k)].full_name);
    dt_tensor_release(out);
    dt_tensor_release(t);
}

START_TEST(nan_and_infinity) {
    for (int level = 0; level < levels_count(); level++) {
        select_level(level);
        check_value(VECTOR(DT_F32, 1, NAN, 3), 0, NAN);
        check_value(VECTOR(DT_F32, 1, NAN, 3), 3, NAN);
        check_value(VECTOR(DT_F32, 1, NAN, 3), 4, NAN);
        check_value(VECTOR(DT_F64, NAN, INFINITY, 3), 3, NAN);
        check_value(VECTOR(DT_F16, NAN, 0, 0), 5, 1); /* NaN is true */
        check_value(VECTOR(DT_F32, INFINITY, 1), 0, INFINITY);
        check_value(VECTOR(DT_F32, INFINITY, -INFINITY), 0, NAN);
        check_value(VECTOR(DT_F32, -INFINITY, -INFINITY), 3, -INFINITY);
        check_value(VECTOR(DT_F32, INFINITY, INFINITY), 4, INFINITY);
        check_value(VECTOR(DT_F32, -INFINITY, -INFINITY), 9, -INFINITY); /* logsumexp */
        check_value(VECTOR(DT_F32, INFINITY, 1), 9, INFINITY);
        check_value(VECTOR(DT_F32, NAN, 1), 9, NAN);
        check_value(VECTOR(DT_F64, 5), 7, NAN); /* var of one */
    }
}
END_TEST

START_TEST(empty_and_zero_dim) {
    for (int dtype = 0; dtype < DT_DTYPE_COUNT; dtype++) {
        bool floats = dt_dtype_is_float((dt_dtype)dtype);
        check_value(tensor_new((dt_dtype)dtype, SHAPE(0)), 0, 0);
        check_value(tensor_new((dt_dtype)dtype, SHAPE(0)), 1, 1);
        check_value(tensor_new((dt_dtype)dtype, SHAPE(0)), 5, 0);
        check_value(tensor_new((dt_dtype)dtype, SHAPE(0)), 6, 1);
        check_value(tensor_of((dt_dtype)dtype, SCALAR_SHAPE, (double[]){1}), 0, 1);
        check_value(tensor_of((dt_dtype)dtype, SCALAR_SHAPE, (double[]){1}), 3, 1);
        if (!floats) continue;
        check_value(tensor_new((dt_dtype)dtype, SHAPE(0)), 2, NAN);
        check_value(tensor_new((dt_dtype)dtype, SHAPE(0)), 7, NAN);
        check_value(tensor_new((dt_dtype)dtype, SHAPE(0)), 9, -INFINITY);
        check_value(tensor_new((dt_dtype)dtype, SHAPE(0)), OPS + 2, 0);
    }
    dt_tensor *t = tensor_new(DT_F32, SHAPE(3, 0, 20));
    for (int parts = 1; parts < 4; parts++) {
        dt_tensor *by_middle = member_run(0, parts, t, 2), *by_first = member_run(0, parts, t, 1);
        ck_assert_int_eq(by_middle->numel, 60);
        for (int64_t i = 0; i < 60; i++) ck_assert(value_at(by_middle, i) == 0);
        ck_assert_int_eq(by_first->numel, 0);
        dt_tensor_release(by_middle);
        dt_tensor_release(by_first);
    }
    dt_tensor_release(t);
}
END_TEST

START_TEST(halves_accumulate_in_float) {
    check_value(VECTOR(DT_F16, 40000, 40000, 40000), 2, 40000);
    dt_tensor *t = tensor_new(DT_BF16, SHAPE(5000));
    for (int64_t i = 0; i < 5000; i++) set_value(t, i, 1);
    check_value(t, 0, 4992); /* 5000 to 8 bits; by bfloat16 additions it would stop at 256 */
}
END_TEST

START_TEST(integers_accumulate_in_int64) {
    dt_tensor *t = tensor_new(DT_U8, SHAPE(300));
    for (int64_t i = 0; i < 300; i++) set_value(t, i, 255);
    check_value(t, 0, 76500);
    int64_t big[2] = {INT64_MAX, 2};
    t = tensor_new(DT_I64, SHAPE(2));
    memcpy(dt_tensor_data(t), big, sizeof big);
    check_value(t, 0, (long double)(INT64_MIN + 1));
}
END_TEST

START_TEST(a_given_dtype) {
    dt_tensor *t = VECTOR(DT_F32, 1.5, 2.5, -0.75);
    dt_tensor *ints = RUN(DT_OP_sum, arg_tensor(t), arg_none(), arg_bool(false), arg_dtype(DT_I32));
    ck_assert_int_eq(ints->dtype, DT_I32);
    ck_assert(value_at(ints, 0) == 3); /* cut off before they are added */
    dt_tensor *u = VECTOR(DT_I32, 1, 2);
    dt_tensor *mean =
        RUN(DT_OP_mean, arg_tensor(u), arg_none(), arg_bool(false), arg_dtype(DT_F64));
    ck_assert(value_at(mean, 0) == 1.5);
    dt_tensor_release(t);
    dt_tensor_release(ints);
    dt_tensor_release(u);
    dt_tensor_release(mean);
}
END_TEST

START_TEST(ten_million_floats) {
    const int64_t n = TEST_SANITIZED ? 1000000 : 10000000;
    dt_tensor *t = tensor_new(DT_F32, SHAPE(n));
    float *x = dt_tensor_data(t);
    uint64_t seed = 5;
    long double want = 0;
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)(test_random(&seed) >> 40) * 0x1p-24f;
        want += x[i];
    }
    for (int parts = 1; parts <= 4; parts += 3) {
        dt_tensor *sum = member_run(0, parts, t, 1);
        ck_assert(fabsl(value_at(sum, 0) - want) <= want * 1e-6L);
        dt_tensor_release(sum);
    }
    dt_tensor_release(t);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("reduce");
    TEST_CASE(suite, "values", values_of_every_dtype_and_layout, expanded_inputs, every_length);
    TEST_CASE(suite, "tree", one_tree_for_every_walk, one_tree_for_long_rows);
    TEST_CASE(suite, "corners", nan_and_infinity, empty_and_zero_dim, halves_accumulate_in_float,
              integers_accumulate_in_int64, a_given_dtype, ten_million_floats);
    return test_run(suite);
}
