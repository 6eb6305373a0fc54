/* test_rules_select.c: what is known before the kernel runs, and errors, of ops whose result's size
 * depends on values. */
#include "tests/c/rules_support.h"

/* Output number k of the rule: dtype, and the shape with -1 for what is unknown. */
static void check_out(int line, int k, int nout, dt_dtype dtype, dt_dims shape, dt_op_id id,
                      int nargs, const dt_arg *args) {
    dt_op_call c;
    op_prepare(&c, id, nargs, args);
    test_assert_ok(c.op->rule(&c), dt_op_table[id].full_name, line);
    ck_assert_msg(c.nout == nout, "line %d: %d outputs", line, c.nout);
    const dt_tensor *t = c.outs[k];
    char got[200], want[200];
    ck_assert_msg(t->dtype == dtype, "line %d: dtype %s", line, dt_dtype_table[t->dtype].name);
    ck_assert_msg(strcmp(dt_shape_format(t->rank, t->shape, got, 200),
                         dt_shape_format(shape.rank, shape.v, want, 200)) == 0,
                  "line %d: shape %s, not %s", line, got, want);
    bool unknown = false;
    for (int d = 0; d < shape.rank; d++) unknown |= shape.v[d] == -1;
    ck_assert_msg(dt_tensor_is_deferred(t) == unknown, "line %d: deferred", line);
    ck_assert(!unknown || (t->storage->flags & DT_STORAGE_DEFERRED));
    dt_op_call_clear(&c);
}
#define OUT(k, nout, dtype, shape, id, ...)                                                        \
    check_out(__LINE__, k, nout, dtype, shape, id, ARGS(__VA_ARGS__))

START_TEST(what_is_known) {
    OUT(0, 1, DT_I64, SHAPE(-1, 2), DT_OP_nonzero__new, F32(2, 3));
    OUT(0, 1, DT_I64, SHAPE(-1, 0), DT_OP_nonzero__new, ZERO_DIM(DT_BOOL));
    OUT(1, 2, DT_I64, SHAPE(-1), DT_OP_nonzero__tuple, F32(2, 3));
    OUT(0, 1, DT_I64, SHAPE(-1), DT_OP_nonzero__tuple, ZERO_DIM(DT_F32));
    OUT(4, 5, DT_I64, SHAPE(-1), DT_OP_nonzero__tuple, F32(1, 1, 1, 1, 1));
    OUT(0, 1, DT_F64, SHAPE(-1), DT_OP_masked_select__new, F64(2, 3), BOOLS(3));
    OUT(0, 1, DT_F64, SHAPE(-1), DT_OP_masked_select__new, F64(2, 1), BOOLS(1, 4));
    OUT(0, 1, DT_F32, SHAPE(-1, 4), DT_OP_index__mask, F32(2, 3, 4), BOOLS(2, 3), arg_int(0));
    OUT(0, 1, DT_F32, SHAPE(2, -1, 4), DT_OP_index__mask, F32(2, 3, 4), BOOLS(3), arg_int(1));
    OUT(0, 1, DT_F32, SHAPE(2, -1), DT_OP_index__mask, F32(2, 3, 4), BOOLS(3, 4), arg_int(1));
    OUT(0, 1, DT_F32, SHAPE(2, -1, 3), DT_OP_index__mask, F32(2, 3), ZERO_DIM(DT_BOOL), arg_int(1));
    OUT(0, 1, DT_I64, SHAPE(-1), DT_OP_unique__new, I64(2, 3), arg_bool(0), arg_bool(0));
    OUT(1, 3, DT_I64, SHAPE(2, 3), DT_OP_unique__new, F32(2, 3), arg_bool(1), arg_bool(1));
    OUT(2, 3, DT_I64, SHAPE(-1), DT_OP_unique__new, F32(2, 3), arg_bool(1), arg_bool(1));
    OUT(1, 2, DT_I64, SHAPE(-1), DT_OP_unique_consecutive__new, F32(2, 3), arg_bool(0),
        arg_bool(1));
}
END_TEST

START_TEST(a_put_writes_into_its_input) {
    dt_op_call c;
    dt_arg x = F32(2, 3);
    op_prepare(&c, DT_OP_index_put__mask, ARGS(x, BOOLS(2), F32(3), arg_int(0)));
    ck_assert_ok(c.op->rule(&c));
    ck_assert(c.nout == 1 && c.outs[0] == x.t);
    dt_op_call_clear(&c);
    /* Values that fit whatever the count, or once it is known. */
    OUT(0, 1, DT_F32, SHAPE(2, 3), DT_OP_index_put__mask, x, BOOLS(2), F32(1, 3), arg_int(0));
    OUT(0, 1, DT_F32, SHAPE(2, 3), DT_OP_index_put__mask, x, BOOLS(2), F32(9, 3), arg_int(0));
    OUT(0, 1, DT_F32, SHAPE(2, 3), DT_OP_index_put__mask, x, BOOLS(3), F32(2, 1), arg_int(1));
    OUT(0, 1, DT_F32, SHAPE(2, 3), DT_OP_index_put__mask, x, BOOLS(2, 3), F32(0), arg_int(0));
}
END_TEST

START_TEST(clones_of_deferred_and_of_settled_tensors) {
    dt_tensor *t;
    ck_assert_ok(dt_tensor_new_deferred(DT_I64, 2, (int64_t[]){-1, 2}, true, &t));
    keep(t);
    OUT(0, 1, DT_I64, SHAPE(-1, 2), DT_OP_clone__deferred, arg_tensor(t));
    ck_assert_ok(dt_tensor_produce(t, 3));
    OUT(0, 1, DT_I64, SHAPE(-1, 2), DT_OP_clone__deferred, arg_tensor(t));
    dt_tensor_settle(t);
    OUT(0, 1, DT_I64, SHAPE(3, 2), DT_OP_clone__deferred, arg_tensor(t));
    META(DT_I64, SHAPE(3, 2), SHAPE(1, 3), DT_OP_clone__deferred, arg_tensor(t));
}
END_TEST

START_TEST(errors) {
    ERROR(DT_E_RUNTIME, "masked_select: expected BoolTensor for mask", DT_OP_masked_select__new,
          F32(3), I64(3));
    ERROR(DT_E_RUNTIME,
          "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension "
          "0",
          DT_OP_masked_select__new, F32(3), BOOLS(2));
    ERROR(DT_E_INDEX, "tensors used as masks must be bool tensors", DT_OP_index__mask, F32(3),
          F32(3), arg_int(0));
    ERROR(DT_E_INDEX,
          "The shape of the mask [2] at index 0 does not match the shape of the indexed tensor "
          "[3, 4] at index 1",
          DT_OP_index__mask, F32(3, 4), BOOLS(2), arg_int(1));
    ERROR(DT_E_INDEX,
          "The shape of the mask [3, 5] at index 1 does not match the shape of the indexed tensor "
          "[3, 4] at index 1",
          DT_OP_index_put__mask, F32(3, 4), BOOLS(3, 5), F32(1), arg_int(0));
    ERROR(DT_E_INDEX, "the result would have more than 16 dimensions", DT_OP_index__mask,
          F32(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), ZERO_DIM(DT_BOOL), arg_int(0));
    ERROR(DT_E_RUNTIME,
          "Index put requires the source and destination dtypes match, got Float for the "
          "destination and Long for the source.",
          DT_OP_index_put__mask, F32(3), BOOLS(3), I64(2), arg_int(0));
    ERROR(DT_E_RUNTIME,
          "shape mismatch: value tensor of shape [2, 3] cannot be broadcast to indexing result of "
          "shape [?, 4]",
          DT_OP_index_put__mask, F32(3, 4), BOOLS(3), F32(2, 3), arg_int(0));
    ERROR(DT_E_RUNTIME,
          "shape mismatch: value tensor of shape [5, 1] cannot be broadcast to indexing result of "
          "shape [?]",
          DT_OP_index_put__mask, F32(3), BOOLS(3), F32(5, 1), arg_int(0));
}
END_TEST

RULE_TESTS("rules_select", what_is_known, a_put_writes_into_its_input,
           clones_of_deferred_and_of_settled_tensors, errors)
