/* test_join.c: cat, stack, embedding, index_select, gather against plain loops; indices out of
 * range are errors, never reads. */
#include "tests/c/op_support.h"

/* ---- cat and stack
 * -------------------------------------------------------------------------------- */

/* Checks out == inputs side by side along dim. */
static void check_cat(dt_tensor *const *inputs, int n, int dim, int parts) {
    dt_tensor *out = RUN_PARTS(parts, DT_OP_cat, arg_list(inputs, n), arg_int(dim));
    int64_t inner = 1, start = 0;
    for (int d = dim + 1; d < out->rank; d++) inner *= out->shape[d];
    for (int k = 0; k < n; k++) {
        int64_t size = inputs[k]->shape[dim];
        for (int64_t i = 0; i < inputs[k]->numel; i++) {
            int64_t outer = i / inner / size, at = i / inner % size;
            int64_t to = (outer * out->shape[dim] + start + at) * inner + i % inner;
            EXPECT(value_at(out, to) == value_at(inputs[k], i), "input %d element %d", k, (int)i);
        }
        start += size;
    }
    ck_assert_int_eq(start, out->shape[dim]);
    dt_tensor_release(out);
}

START_TEST(cat_of_every_dtype_dim_and_layout) {
    for (int dtype = 0; dtype < DT_DTYPE_COUNT; dtype++)
        for (int dim = 0; dim < 3; dim++) {
            dt_tensor *inputs[5];
            for (int k = 0; k < 5; k++) {
                dt_dims shape = SHAPE(3, 4, 5);
                shape.v[dim] = k == 2 ? 0 : k + 1;
                inputs[k] = tensor_laid_out((dt_dtype)dtype, shape, (layout)(k % LAYOUTS));
                fill_random(inputs[k], 70 + (uint64_t)k);
            }
            for (int n = 1; n <= 5; n++)
                for (int parts = 1; parts <= n; parts++) check_cat(inputs, n, dim, parts);
            for (int k = 0; k < 5; k++) dt_tensor_release(inputs[k]);
        }
}
END_TEST

START_TEST(cat_of_many) {
    enum { N = 3000 };
    static dt_tensor *inputs[N];
    dt_tensor *one = VECTOR(DT_I16, 1, 2);
    for (int k = 0; k < N; k++) inputs[k] = one;
    check_cat(inputs, N, 0, 7);
    dt_tensor_release(one);
}
END_TEST

START_TEST(cat_promotes_and_ignores_legacy_empties) {
    dt_tensor *a = VECTOR(DT_I32, 1, 2), *b = VECTOR(DT_F32, 0.5),
              *none = tensor_new(DT_F32, SHAPE(0));
    dt_tensor *matrix = tensor_of(DT_F32, SHAPE(1, 2), (double[]){3, 4});
    dt_tensor *out = RUN(DT_OP_cat, arg_list(((dt_tensor *[]){a, b}), 2), arg_int(0));
    ck_assert_int_eq(out->dtype, DT_F32);
    ck_assert(value_at(out, 1) == 2 && value_at(out, 2) == 0.5L);
    dt_tensor_release(out);
    out = RUN(DT_OP_cat, arg_list(((dt_tensor *[]){none, matrix, none}), 3), arg_int(1));
    ck_assert_int_eq(out->rank, 2);
    ck_assert(value_at(out, 1) == 4);
    dt_tensor_release(out);
    dt_tensor *all[] = {a, b, none, matrix};
    for (int k = 0; k < 4; k++) dt_tensor_release(all[k]);
}
END_TEST

START_TEST(stack_makes_a_new_dim) {
    dt_tensor *inputs[3];
    for (int k = 0; k < 3; k++) {
        inputs[k] = tensor_laid_out(DT_F64, SHAPE(2, 4), (layout)k);
        fill_random(inputs[k], 80 + (uint64_t)k);
    }
    const int64_t steps[3] = {8, 4, 1}; /* of the new dim in the output */
    for (int dim = 0; dim < 3; dim++) {
        dt_tensor *out = RUN(DT_OP_stack, arg_list(inputs, 3), arg_int(dim));
        ck_assert_int_eq(out->rank, 3);
        ck_assert_int_eq(out->shape[dim], 3);
        for (int k = 0; k < 3; k++)
            for (int64_t i = 0; i < 8; i++) {
                int64_t step = steps[dim], to = i / step * step * 3 + k * step + i % step;
                ck_assert(value_at(out, to) == value_at(inputs[k], i));
            }
        dt_tensor_release(out);
    }
    for (int k = 0; k < 3; k++) dt_tensor_release(inputs[k]);
}
END_TEST

/* ---- lookups
 * -------------------------------------------------------------------------------------------- */

static dt_tensor *indices(dt_dtype dtype, dt_dims shape, layout how, int64_t limit) {
    dt_tensor *t = tensor_laid_out(dtype, shape, how);
    uint64_t seed = 90;
    for (int64_t i = 0; i < t->numel; i++)
        set_value(t, i, (double)test_random_in(&seed, 0, limit - 1));
    return t;
}

START_TEST(embedding_takes_rows) {
    for (int dtype = 0; dtype < DT_DTYPE_COUNT; dtype++)
        for (int how = 0; how < LAYOUTS; how++)
            for (int wide = 0; wide < 2; wide++) {
                dt_tensor *weight = tensor_laid_out((dt_dtype)dtype, SHAPE(11, 7), (layout)how);
                fill_random(weight, 85);
                dt_tensor *index = indices(wide ? DT_I64 : DT_I32, SHAPE(3, 5), (layout)how, 11);
                for (int parts = 1; parts <= 7; parts += 3) {
                    dt_tensor *out = RUN_PARTS(parts, DT_OP_embedding__new, arg_tensor(weight),
                                               arg_tensor(index));
                    ck_assert_int_eq(out->rank, 3);
                    for (int64_t i = 0; i < out->numel; i++) {
                        int64_t row = (int64_t)value_at(index, i / 7);
                        EXPECT(value_at(out, i) == value_at(weight, row * 7 + i % 7), "%d", (int)i);
                    }
                    dt_tensor_release(out);
                }
                dt_tensor_release(weight);
                dt_tensor_release(index);
            }
}
END_TEST

START_TEST(index_select_along_every_dim) {
    for (int how = 0; how < LAYOUTS; how++)
        for (int dim = 0; dim < 3; dim++) {
            dt_tensor *t = tensor_laid_out(DT_F32, SHAPE(3, 4, 5), (layout)how);
            fill_random(t, 86);
            dt_tensor *index = indices(DT_I64, SHAPE(6), (layout)how, t->shape[dim]);
            dt_tensor *out =
                RUN(DT_OP_index_select, arg_tensor(t), arg_int(dim), arg_tensor(index));
            int64_t inner = dim == 0 ? 20 : dim == 1 ? 5 : 1;
            for (int64_t i = 0; i < out->numel; i++) {
                int64_t at = (int64_t)value_at(index, i / inner % 6);
                int64_t from = (i / inner / 6 * t->shape[dim] + at) * inner + i % inner;
                EXPECT(value_at(out, i) == value_at(t, from), "element %d", (int)i);
            }
            dt_tensor_release(t);
            dt_tensor_release(index);
            dt_tensor_release(out);
        }
}
END_TEST

START_TEST(gather_along_every_dim) {
    for (int how = 0; how < LAYOUTS; how++)
        for (int dim = 0; dim < 2; dim++)
            for (int parts = 1; parts <= 7; parts += 3) {
                dt_tensor *t = tensor_laid_out(DT_I16, SHAPE(6, 9), (layout)how);
                fill_random(t, 87);
                dt_tensor *index = indices(DT_I64, SHAPE(4, 8), (layout)how, t->shape[dim]);
                dt_tensor *out = RUN_PARTS(parts, DT_OP_gather__dim, arg_tensor(t), arg_int(dim),
                                           arg_tensor(index));
                for (int64_t i = 0; i < 32; i++) {
                    int64_t at = (int64_t)value_at(index, i);
                    int64_t from = dim == 0 ? at * 9 + i % 8 : i / 8 * 9 + at;
                    EXPECT(value_at(out, i) == value_at(t, from), "element %d", (int)i);
                }
                dt_tensor_release(t);
                dt_tensor_release(index);
                dt_tensor_release(out);
            }
}
END_TEST

START_TEST(indices_out_of_range) {
    dt_tensor *t = tensor_new(DT_F32, SHAPE(4, 3)), *empty = tensor_new(DT_F32, SHAPE(0, 3));
    fill_random(t, 88);
    const int64_t bad[] = {4, -1, INT64_MAX, INT64_MIN};
    for (int k = 0; k < 4; k++) {
        dt_tensor *index = tensor_new(DT_I64, SHAPE(1)), *square = tensor_new(DT_I64, SHAPE(1, 1));
        *(int64_t *)dt_tensor_data(index) = *(int64_t *)dt_tensor_data(square) = bad[k];
        ck_assert_fails(STATUS(DT_OP_embedding__new, arg_tensor(t), arg_tensor(index)), DT_E_INDEX,
                        "index out of range in self");
        ck_assert_fails(STATUS(DT_OP_index_select, arg_tensor(t), arg_int(0), arg_tensor(index)),
                        DT_E_INDEX, "index out of range in self");
        char text[100];
        snprintf(text, sizeof text, "index %lld is out of bounds for dimension 0 with size 4",
                 (long long)bad[k]);
        ck_assert_fails(STATUS(DT_OP_gather__dim, arg_tensor(t), arg_int(0), arg_tensor(square)),
                        DT_E_RUNTIME, text);
        *(int64_t *)dt_tensor_data(index) = 0;
        ck_assert_int_eq(STATUS(DT_OP_embedding__new, arg_tensor(empty), arg_tensor(index)),
                         DT_E_INDEX);
        dt_tensor_release(index);
        dt_tensor_release(square);
    }
    dt_tensor_release(t);
    dt_tensor_release(empty);
}
END_TEST

START_TEST(zero_dim_and_empty_lookups) {
    dt_tensor *scalar = tensor_of(DT_F32, SCALAR_SHAPE, (double[]){5}), *zero = VECTOR(DT_I64, 0);
    dt_tensor *index = tensor_of(DT_I64, SCALAR_SHAPE, (double[]){2}), *v = VECTOR(DT_F32, 7, 8, 9);
    dt_tensor *none = tensor_new(DT_I64, SHAPE(0)), *out;
    out = RUN(DT_OP_index_select, arg_tensor(scalar), arg_int(0), arg_tensor(zero));
    ck_assert(out->rank == 0 && value_at(out, 0) == 5);
    dt_tensor_release(out);
    out = RUN(DT_OP_index_select, arg_tensor(v), arg_int(0), arg_tensor(index));
    ck_assert(out->rank == 1 && out->numel == 1 && value_at(out, 0) == 9);
    dt_tensor_release(out);
    out = RUN(DT_OP_gather__dim, arg_tensor(v), arg_int(0), arg_tensor(index));
    ck_assert(out->rank == 0 && value_at(out, 0) == 9);
    dt_tensor_release(out);
    out = RUN(DT_OP_gather__dim, arg_tensor(scalar), arg_int(0), arg_tensor(zero));
    ck_assert(out->rank == 1 && value_at(out, 0) == 5);
    dt_tensor_release(out);
    out = RUN(DT_OP_index_select, arg_tensor(v), arg_int(0), arg_tensor(none));
    ck_assert_int_eq(out->numel, 0);
    dt_tensor_release(out);
    dt_tensor *all[] = {scalar, zero, index, v, none};
    for (int k = 0; k < 5; k++) dt_tensor_release(all[k]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("join");
    TEST_CASE(suite, "cat", cat_of_every_dtype_dim_and_layout, cat_of_many,
              cat_promotes_and_ignores_legacy_empties, stack_makes_a_new_dim);
    TEST_CASE(suite, "lookup", embedding_takes_rows, index_select_along_every_dim,
              gather_along_every_dim, indices_out_of_range, zero_dim_and_empty_lookups);
    return test_run(suite);
}
