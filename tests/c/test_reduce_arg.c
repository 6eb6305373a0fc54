/* test_reduce_arg.c: places of extrema against plain loops; ties, NaN, blocks, parts. */
#include "tests/c/op_support.h"

static bool is_max(dt_op_id id) { return id == DT_OP_argmax || id == DT_OP_max__dim; }

/* torch's order: the first NaN, else the first extremum. */
static bool beats(long double a, long double b, bool max) {
    if (isnan(b)) return false;
    return isnan(a) || (max ? a > b : a < b);
}

static int64_t naive_place(const dt_tensor *t, int dim, int64_t output, bool max) {
    int64_t inner = 1;
    for (int d = dim + 1; d < t->rank; d++) inner *= t->shape[d];
    int64_t first = output / inner * inner * t->shape[dim] + output % inner, best = 0;
    for (int64_t k = 1; k < t->shape[dim]; k++)
        if (beats(value_at(t, first + k * inner), value_at(t, first + best * inner), max)) best = k;
    return best;
}

static long double value_in(const dt_tensor *t, int dim, int64_t output, int64_t place) {
    int64_t inner = 1;
    for (int d = dim + 1; d < t->rank; d++) inner *= t->shape[d];
    return value_at(t, output / inner * inner * t->shape[dim] + output % inner + place * inner);
}

static void check_dim(dt_tensor *t, int dim, int parts) {
    const dt_op_id ids[] = {DT_OP_argmax, DT_OP_argmin, DT_OP_max__dim, DT_OP_min__dim};
    for (int k = 0; k < 4; k++) {
        bool both = k >= 2;
        if (!both && t->dtype == DT_BOOL) continue;
        dt_op_call c;
        op_prepare(&c, ids[k], ARGS(arg_tensor(t), arg_int(dim), arg_bool(false)));
        ck_assert_ok(op_run_parts(&c, parts));
        ck_assert_int_eq(c.nout, both ? 2 : 1);
        dt_tensor *places = c.outs[c.nout - 1];
        ck_assert_int_eq(places->dtype, DT_I64);
        for (int64_t o = 0; o < places->numel; o++) {
            int64_t want = naive_place(t, dim, o, is_max(ids[k]));
            ck_assert_int_eq((int64_t)value_at(places, o), want);
            if (both) assert_close(value_at(c.outs[0], o), value_in(t, dim, o, want), 0, "value");
        }
        for (int o = 0; o < c.nout; o++) dt_tensor_release(c.outs[o]);
    }
}

START_TEST(every_dtype_dim_and_layout) {
    for (int dtype = 0; dtype < DT_DTYPE_COUNT; dtype++)
        for (int how = 0; how < LAYOUTS; how++) {
            dt_tensor *t = tensor_laid_out((dt_dtype)dtype, SHAPE(4, 17, 6), (layout)how);
            fill_random(t, 21); /* 64 different values: many ties */
            for (int level = 0; level < levels_count(); level++) {
                select_level(level);
                for (int dim = 0; dim < 3; dim++)
                    for (int parts = 1; parts <= 7; parts += 3) check_dim(t, dim, parts);
            }
            dt_tensor_release(t);
        }
}
END_TEST

START_TEST(over_many_blocks) {
    dt_tensor *t = tensor_laid_out(DT_F32, SHAPE(2, 20000), SLICED);
    fill_random(t, 22);
    check_dim(t, 1, 1);
    set_value(t, 15000, 100);
    set_value(t, 20000 + 4096, -100);
    set_value(t, 20000 + 8192, -100);
    check_dim(t, 1, 2);
    set_value(t, 9000, NAN);
    set_value(t, 9001, NAN);
    check_dim(t, 1, 1);
    dt_tensor_release(t);
}
END_TEST

static int64_t place_of(dt_op_id id, dt_tensor *t) {
    dt_tensor *out = RUN(id, arg_tensor(t), arg_none(), arg_bool(false));
    ck_assert_int_eq(out->rank, 0);
    int64_t place = (int64_t)value_at(out, 0);
    dt_tensor_release(out);
    dt_tensor_release(t);
    return place;
}

START_TEST(nan_ties_and_ends) {
    ck_assert_int_eq(place_of(DT_OP_argmax, VECTOR(DT_F32, NAN, 4.6)), 0);
    ck_assert_int_eq(place_of(DT_OP_argmin, VECTOR(DT_F64, 4.6, NAN, NAN)), 1);
    ck_assert_int_eq(place_of(DT_OP_argmax, VECTOR(DT_F16, 1, INFINITY, NAN)), 2);
    ck_assert_int_eq(place_of(DT_OP_argmax, VECTOR(DT_F32, -INFINITY, -INFINITY)), 0);
    ck_assert_int_eq(place_of(DT_OP_argmin, VECTOR(DT_F32, INFINITY, INFINITY)), 0);
    ck_assert_int_eq(place_of(DT_OP_argmax, VECTOR(DT_I32, 3, 7, 7)), 1);
    ck_assert_int_eq(place_of(DT_OP_argmax, VECTOR(DT_F32, -0.0, 0.0)), 0);
    ck_assert_int_eq(place_of(DT_OP_argmax, tensor_of(DT_F32, SCALAR_SHAPE, (double[]){4})), 0);
    dt_tensor *t = tensor_laid_out(DT_I64, SHAPE(2, 3), TRANSPOSED); /* all: row-major numbers */
    for (int64_t i = 0; i < 6; i++) set_value(t, i, i == 2 ? 9 : 0);
    ck_assert_int_eq(place_of(DT_OP_argmax, t), 2);
    t = tensor_new(DT_I64, SHAPE(2));
    memcpy(dt_tensor_data(t), (int64_t[]){INT64_MIN, INT64_MIN}, 16);
    ck_assert_int_eq(place_of(DT_OP_argmax, t), 0);
}
END_TEST

START_TEST(the_value_is_that_of_the_place) {
    dt_tensor *t = VECTOR(DT_F32, -0.0, 0.0);
    dt_tensor *value = RUN(DT_OP_max__dim, arg_tensor(t), arg_int(0), arg_bool(false));
    ck_assert(signbit(value_at(value, 0)));
    dt_tensor_release(value);
    dt_tensor_release(t);
}
END_TEST

START_TEST(no_outputs) {
    dt_tensor *t = tensor_new(DT_F32, SHAPE(0, 3));
    dt_tensor *out = RUN(DT_OP_argmax, arg_tensor(t), arg_int(1), arg_bool(false));
    ck_assert_int_eq(out->numel, 0);
    dt_tensor_release(out);
    ck_assert_fails(STATUS(DT_OP_argmax, arg_tensor(t), arg_int(0), arg_bool(false)), DT_E_INDEX,
                    "argmax(): Expected reduction dim 0 to have non-zero size.");
    dt_tensor_release(t);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("reduce_arg");
    TEST_CASE(suite, "arg", every_dtype_dim_and_layout, over_many_blocks, nan_ties_and_ends,
              the_value_is_that_of_the_place, no_outputs);
    return test_run(suite);
}
