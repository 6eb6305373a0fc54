/* test_nonzero.c: places of what is not zero against plain loops, in any number of parts. */
#include "tests/c/op_support.h"

/* Row-major number `at` of t as an index along dim d. */
static int64_t index_of(const dt_tensor *t, int64_t at, int d) {
    for (int k = t->rank - 1; k > d; k--) at /= t->shape[k];
    return at % t->shape[d];
}

static void check(dt_tensor *t, int parts) {
    dt_tensor *places = RUN_PARTS(parts, DT_OP_nonzero__new, arg_tensor(t));
    dt_tensor *columns[DT_RANK_MAX];
    int rank = t->rank > 0 ? t->rank : 1;
    for (int d = 0; d < rank; d++)
        columns[d] = op_output(d, parts, DT_OP_nonzero__tuple, ARGS(arg_tensor(t)));
    int64_t k = 0;
    for (int64_t i = 0; i < t->numel; i++) {
        if (value_at(t, i) == 0) continue;
        for (int d = 0; d < t->rank; d++) {
            EXPECT(value_at(places, k * t->rank + d) == (long double)index_of(t, i, d),
                   "place %lld, dim %d", (long long)k, d);
            EXPECT(value_at(columns[d], k) == (long double)index_of(t, i, d), "column %d", d);
        }
        k++;
    }
    ck_assert(places->rank == 2 && places->shape[0] == k && places->shape[1] == t->rank);
    ck_assert(places->strides[0] == 1 && places->strides[1] == k);
    for (int d = 0; d < rank; d++) {
        ck_assert(columns[d]->rank == 1 && columns[d]->shape[0] == k && columns[d]->contiguous);
        dt_tensor_release(columns[d]);
    }
    dt_tensor_release(places);
}

/* One in `sparse` elements is not zero; 0: none, 1: all. */
static void fill_sparse(const dt_tensor *t, int sparse, uint64_t *seed) {
    for (int64_t i = 0; i < t->numel; i++)
        set_value(t, i, sparse > 0 && test_random_in(seed, 0, sparse - 1) == 0 ? 1 : 0);
}

START_TEST(every_dtype_layout_and_parts) {
    dt_memory_stats before = test_memory();
    uint64_t seed = 11;
    const dt_dims shapes[] = {SCALAR_SHAPE, SHAPE(1),       SHAPE(3001),      SHAPE(17, 33),
                              SHAPE(0),     SHAPE(3, 0, 2), SHAPE(4, 1, 3, 5)};
    const int sparse[] = {0, 1, 2, 40};
    for (int dtype = 0; dtype < DT_DTYPE_COUNT; dtype++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            for (int k = 0; k < LAYOUTS * 4; k++) {
                dt_tensor *t = tensor_laid_out((dt_dtype)dtype, shapes[s], (layout)(k % LAYOUTS));
                fill_sparse(t, sparse[k / LAYOUTS], &seed);
                check(t, 1);
                if (t->rank > 0) check(t, 5);
                dt_tensor_release(t);
            }
    test_assert_no_leak(before);
}
END_TEST

START_TEST(nan_is_not_zero_and_minus_zero_is) {
    dt_tensor *t = VECTOR(DT_F16, 0.0, NAN, -0.0, INFINITY);
    dt_tensor *places = RUN(DT_OP_nonzero__new, arg_tensor(t));
    ck_assert(places->shape[0] == 2 && value_at(places, 0) == 1 && value_at(places, 1) == 3);
    dt_tensor_release(places);
    dt_tensor_release(t);
}
END_TEST

static dt_tensor *input;

static dt_status in_parts(void) {
    dt_op_call c;
    op_prepare(&c, DT_OP_nonzero__tuple, ARGS(arg_tensor(input)));
    dt_status status = c.op->rule(&c);
    if (status != DT_OK) {
        dt_op_call_clear(&c);
        return status;
    }
    c.call.kernel = dt_cpu_device.kernels[DT_OP_nonzero__tuple];
    for (int k = 0; k < c.nout; k++) c.call.operands[k] = dt_tensor_retain(c.outs[k]);
    const dt_kernel *kernel = c.call.kernel;
    _Alignas(64) char scratch[1024];
    dt_part part = {.count = 3, .scratch = scratch, .scratch_bytes = sizeof scratch};
    ck_assert(kernel->scratch_bytes(&c.call, 3) <= sizeof scratch);
    for (; part.index < 3 && status == DT_OK; part.index++) status = kernel->run(&c.call, &part);
    part.index = 0;
    if (status == DT_OK) status = kernel->finish(&c.call, &part);
    dt_op_call_clear(&c);
    return status;
}

START_TEST(no_memory_leaves_nothing) {
    uint64_t seed = 3;
    input = tensor_new(DT_F32, SHAPE(40, 500));
    fill_sparse(input, 2, &seed);
    ck_assert_int_ge(test_every_allocation_fails(in_parts), 3 + 2);
    dt_tensor_release(input);
}
END_TEST

START_TEST(parts_are_bounded) {
    dt_tensor *t = tensor_new(DT_BOOL, SHAPE(1000000)), *small = tensor_new(DT_BOOL, SHAPE(100));
    const dt_kernel *kernel = dt_cpu_device.kernels[DT_OP_nonzero__new];
    dt_op_call c;
    op_prepare(&c, DT_OP_nonzero__new, ARGS(arg_tensor(t)));
    ck_assert_ok(c.op->rule(&c));
    ck_assert_int_eq(kernel->parts(&c.call, 2), 2);
    ck_assert(kernel->cost_ns(&c.call) > 100000);
    dt_op_call_clear(&c);
    op_prepare(&c, DT_OP_nonzero__new, ARGS(arg_tensor(small)));
    ck_assert_ok(c.op->rule(&c));
    ck_assert_int_eq(kernel->parts(&c.call, 2), 1);
    ck_assert(kernel->cost_ns(&c.call) < 5000);
    dt_op_call_clear(&c);
    dt_tensor_release(t);
    dt_tensor_release(small);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("nonzero");
    TEST_CASE(suite, "nonzero", every_dtype_layout_and_parts, nan_is_not_zero_and_minus_zero_is,
              no_memory_leaves_nothing, parts_are_bounded);
    return test_run(suite);
}
