/* test_index_mask.c: what a mask picks and what is written through one, against plain loops. */
#include "tests/c/op_support.h"

static void fill_mask(const dt_tensor *mask, int sparse, uint64_t *seed) {
    for (int64_t i = 0; i < mask->numel; i++)
        set_value(mask, i, sparse > 0 && test_random_in(seed, 0, sparse - 1) == 0 ? 1 : 0);
}

static int64_t count_true(const dt_tensor *mask) {
    int64_t count = 0;
    for (int64_t i = 0; i < mask->numel; i++) count += value_at(mask, i) != 0;
    return count;
}

/* Elements of t before dim, in the mask's dims, and after them. */
typedef struct groups {
    int64_t outer, middle, rest;
} groups;

static groups groups_of(const dt_tensor *t, const dt_tensor *mask, int dim) {
    groups g = {1, mask->numel, 1};
    for (int d = 0; d < dim; d++) g.outer *= t->shape[d];
    for (int d = dim + mask->rank; d < t->rank; d++) g.rest *= t->shape[d];
    return g;
}

static void check_take(dt_tensor *t, dt_tensor *mask, int dim, int parts) {
    groups g = groups_of(t, mask, dim);
    int64_t count = count_true(mask);
    dt_tensor *out =
        RUN_PARTS(parts, DT_OP_index__mask, arg_tensor(t), arg_tensor(mask), arg_int(dim));
    ck_assert(out->contiguous && out->rank == t->rank - mask->rank + 1);
    ck_assert(out->shape[dim] == count && out->dtype == t->dtype);
    for (int64_t l = 0; l < g.outer; l++)
        for (int64_t m = 0, k = 0; m < g.middle; m++) {
            if (value_at(mask, m) == 0) continue;
            for (int64_t r = 0; r < g.rest; r++) {
                long double want = value_at(t, (l * g.middle + m) * g.rest + r);
                EXPECT(value_at(out, (l * count + k) * g.rest + r) == want, "%lld %lld %lld",
                       (long long)l, (long long)m, (long long)r);
            }
            k++;
        }
    dt_tensor_release(out);
}

/* Values that are (l, k, r) numbered, spread where `spread` leaves a dim (bits 0 to 2). */
static void check_put(dt_tensor *t, dt_tensor *mask, int dim, int spread, layout how) {
    groups g = groups_of(t, mask, dim);
    int64_t count = count_true(mask);
    dt_dims shape = {.rank = 0};
    for (int d = 0; d < dim; d++) shape.v[shape.rank++] = spread & 1 ? t->shape[d] : 1;
    shape.v[shape.rank++] = spread & 2 ? count : 1;
    for (int d = dim + mask->rank; d < t->rank; d++)
        shape.v[shape.rank++] = spread & 4 ? t->shape[d] : 1;
    dt_tensor *value = tensor_laid_out((dt_dtype)t->dtype, shape, how);
    fill_random(value, 31 + (uint64_t)spread);
    dt_tensor *before = RUN(DT_OP_clone, arg_tensor(t), arg_none());
    dt_tensor *out = RUN(DT_OP_index_put__mask, arg_tensor(t), arg_tensor(mask), arg_tensor(value),
                         arg_int(dim));
    ck_assert_ptr_eq(out, t);
    int64_t outer = spread & 1 ? g.outer : 1, middle = spread & 2 ? count : 1;
    int64_t rest = spread & 4 ? g.rest : 1;
    for (int64_t l = 0; l < g.outer; l++)
        for (int64_t m = 0, k = 0; m < g.middle; m++) {
            bool written = value_at(mask, m) != 0;
            for (int64_t r = 0; r < g.rest; r++) {
                int64_t at = (l * g.middle + m) * g.rest + r;
                int64_t from = (l % outer * middle + k % (middle > 0 ? middle : 1)) * rest +
                               r % (rest > 0 ? rest : 1);
                long double want = written ? value_at(value, from) : value_at(before, at);
                EXPECT(value_at(t, at) == want, "%lld %lld %lld", (long long)l, (long long)m,
                       (long long)r);
            }
            k += written;
        }
    dt_tensor *all[] = {value, before, out};
    for (int k = 0; k < 3; k++) dt_tensor_release(all[k]);
}

static const struct {
    dt_dims shape;
    int dim, covered;
} forms[] = {
    {{.rank = 0}, 0, 0},       {{1, {1}}, 0, 1},       {{1, {700}}, 0, 1},
    {{1, {3000}}, 0, 1},       {{2, {13, 17}}, 0, 2},  {{2, {13, 17}}, 0, 1},
    {{2, {13, 17}}, 1, 1},     {{2, {5, 3}}, 1, 0},    {{2, {5, 3}}, 2, 0},
    {{3, {4, 5, 6}}, 1, 1},    {{3, {4, 5, 6}}, 1, 2}, {{3, {4, 5, 6}}, 0, 2},
    {{4, {3, 1, 5, 2}}, 1, 2}, {{2, {0, 4}}, 0, 1},    {{2, {4, 0}}, 0, 1},
    {{2, {4, 0}}, 1, 1},
};

START_TEST(every_dtype_form_and_layout) {
    dt_memory_stats before = test_memory();
    uint64_t seed = 21;
    const int sparse[] = {0, 1, 2, 30};
    for (int dtype = 0; dtype < DT_DTYPE_COUNT; dtype++)
        for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++)
            for (int k = 0; k < LAYOUTS * 4; k++) {
                dt_dims covered = {.rank = forms[f].covered};
                for (int d = 0; d < covered.rank; d++)
                    covered.v[d] = forms[f].shape.v[forms[f].dim + d];
                layout how = (layout)(k % LAYOUTS);
                dt_tensor *t = tensor_laid_out((dt_dtype)dtype, forms[f].shape, how);
                dt_tensor *mask =
                    tensor_laid_out(DT_BOOL, covered, (layout)((k + dtype) % LAYOUTS));
                fill_random(t, 40 + (uint64_t)k);
                fill_mask(mask, sparse[k / LAYOUTS], &seed);
                check_take(t, mask, forms[f].dim, 1);
                if (t->rank == mask->rank && t->rank > 0) check_take(t, mask, forms[f].dim, 4);
                for (int spread = 0; spread < 8; spread++)
                    check_put(t, mask, forms[f].dim, spread, (layout)(spread % LAYOUTS));
                dt_tensor_release(t);
                dt_tensor_release(mask);
            }
    test_assert_no_leak(before);
}
END_TEST

START_TEST(masked_select_broadcasts_both) {
    dt_tensor *row = VECTOR(DT_I32, 1, 2, 3);
    dt_tensor *column = tensor_of(DT_BOOL, SHAPE(2, 1), (double[]){0, 1});
    dt_tensor *out = RUN(DT_OP_masked_select__new, arg_tensor(row), arg_tensor(column));
    ck_assert(out->rank == 1 && out->numel == 3 && value_at(out, 2) == 3);
    dt_tensor_release(out);
    dt_tensor *five = tensor_of(DT_F64, SCALAR_SHAPE, (double[]){5});
    dt_tensor *mask = VECTOR(DT_BOOL, 1, 0, 1);
    for (int parts = 1; parts <= 2; parts++) {
        out = RUN_PARTS(parts, DT_OP_masked_select__new, arg_tensor(five), arg_tensor(mask));
        ck_assert(out->numel == 2 && value_at(out, 0) == 5 && value_at(out, 1) == 5);
        dt_tensor_release(out);
    }
    dt_tensor *all[] = {row, column, five, mask};
    for (int k = 0; k < 4; k++) dt_tensor_release(all[k]);
}
END_TEST

START_TEST(a_wrong_count_writes_nothing) {
    dt_tensor *t = tensor_of(DT_F32, SHAPE(2, 3), (double[]){1, 2, 3, 4, 5, 6});
    dt_tensor *mask = VECTOR(DT_BOOL, 1, 0),
              *flat = tensor_of(DT_BOOL, SHAPE(2, 3), (double[]){1, 1, 1, 0, 0, 1});
    dt_tensor *two = tensor_new(DT_F32, SHAPE(2, 3)), *five = tensor_new(DT_F32, SHAPE(5));
    ck_assert_fails(
        STATUS(DT_OP_index_put__mask, arg_tensor(t), arg_tensor(mask), arg_tensor(two), arg_int(0)),
        DT_E_RUNTIME,
        "shape mismatch: value tensor of shape [2, 3] cannot be broadcast to indexing "
        "result of shape [1, 3]");
    ck_assert_fails(STATUS(DT_OP_index_put__mask, arg_tensor(t), arg_tensor(flat), arg_tensor(five),
                           arg_int(0)),
                    DT_E_RUNTIME,
                    "shape mismatch: value tensor of shape [5] cannot be broadcast to indexing "
                    "result of shape [4]");
    for (int64_t i = 0; i < 6; i++) ck_assert(value_at(t, i) == (long double)(i + 1));
    dt_tensor *all[] = {t, mask, flat, two, five};
    for (int k = 0; k < 5; k++) dt_tensor_release(all[k]);
}
END_TEST

START_TEST(clones_of_deferred_tensors) {
    for (int size = 0; size < 100; size += 33) {
        dt_tensor *t, *copy;
        ck_assert_ok(dt_tensor_new_deferred(DT_I32, 2, (int64_t[]){-1, 2}, true, &t));
        dt_op_call c;
        op_prepare(&c, DT_OP_clone__deferred, ARGS(arg_tensor(t)));
        ck_assert_ok(c.op->rule(&c)); /* before anybody knows the size */
        ck_assert_ok(dt_tensor_produce(t, size));
        memset(dt_tensor_data(t), 0x11 + size, t->storage->bytes);
        c.call.operands[0] = dt_tensor_retain(c.outs[0]);
        c.call.kernel = dt_cpu_device.kernels[DT_OP_clone__deferred];
        ck_assert_ok(call_run_parts(&c.call, 1));
        dt_call_fini(&c.call);
        copy = c.outs[0];
        dt_tensor_settle(t);
        dt_tensor_settle(copy);
        ck_assert(copy->shape[0] == size && copy->strides[1] == size && copy->numel == 2 * size);
        assert_same_bits(copy, t, "copy");
        dt_tensor *again = RUN(DT_OP_clone__deferred, arg_tensor(t)); /* settled meanwhile */
        assert_same_bits(again, t, "copy of a settled one");
        dt_tensor *all[] = {t, copy, again};
        for (int k = 0; k < 3; k++) dt_tensor_release(all[k]);
    }
}
END_TEST

static dt_tensor *input, *input_mask;
static int input_dim;

static dt_status take_in_parts(void) {
    dt_op_call c;
    op_prepare(&c, DT_OP_index__mask,
               ARGS(arg_tensor(input), arg_tensor(input_mask), arg_int(input_dim)));
    dt_status status = c.op->rule(&c);
    if (status != DT_OK) {
        dt_op_call_clear(&c);
        return status;
    }
    const dt_kernel *kernel = c.call.kernel = dt_cpu_device.kernels[DT_OP_index__mask];
    c.call.operands[0] = dt_tensor_retain(c.outs[0]);
    _Alignas(64) char scratch[1024];
    int parts = input_dim == 0 ? 3 : 1;
    dt_part part = {.count = parts, .scratch = scratch, .scratch_bytes = sizeof scratch};
    for (; part.index < parts && status == DT_OK; part.index++)
        status = kernel->run(&c.call, &part);
    part.index = 0;
    if (status == DT_OK) status = kernel->finish(&c.call, &part);
    dt_op_call_clear(&c);
    return status;
}

START_TEST(no_memory_leaves_nothing) {
    uint64_t seed = 7;
    input = tensor_new(DT_F32, SHAPE(90, 30));
    fill_random(input, 1);
    input_mask = tensor_new(DT_BOOL, SHAPE(90, 30));
    fill_mask(input_mask, 2, &seed);
    input_dim = 0;
    ck_assert_int_ge(test_every_allocation_fails(take_in_parts), 3 + 1);
    dt_tensor_release(input_mask);
    input_mask = tensor_new(DT_BOOL, SHAPE(30));
    fill_mask(input_mask, 2, &seed);
    input_dim = 1;
    ck_assert_int_ge(test_every_allocation_fails(take_in_parts), 2);
    dt_tensor_release(input_mask);
    dt_tensor_release(input);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("index_mask");
    TEST_CASE(suite, "index_mask", every_dtype_form_and_layout, masked_select_broadcasts_both,
              a_wrong_count_writes_nothing, clones_of_deferred_tensors, no_memory_leaves_nothing);
    return test_run(suite);
}
