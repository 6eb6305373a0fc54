/* test_rules.c: what rules share: promotion tiers, reduced dims, expansion, reshape, dying calls.
 */
#include "tests/c/rules_support.h"

static dt_dtype promoted(const dt_arg *args, int n) {
    dt_promotion p = DT_PROMOTION_INIT;
    for (int k = 0; k < n; k++) {
        if (args[k].kind == DT_ARG_TENSOR)
            dt_promotion_add_tensor(&p, args[k].t);
        else
            dt_promotion_add_scalar(&p, args[k].s);
    }
    return dt_promotion_result(&p);
}
#define PROMOTED(...)                                                                              \
    promoted(((dt_arg[]){__VA_ARGS__}), sizeof((dt_arg[]){__VA_ARGS__}) / sizeof(dt_arg))

/* torch.result_type's answers. */
START_TEST(dims_beat_zero_dims_beat_numbers) {
    ck_assert_int_eq(PROMOTED(ONES(DT_I8, 2), ZERO_DIM(DT_I64)), DT_I8);
    ck_assert_int_eq(PROMOTED(ONES(DT_I8, 2), ZERO_DIM(DT_F64)), DT_F64);
    ck_assert_int_eq(PROMOTED(ONES(DT_F16, 2), ZERO_DIM(DT_F64)), DT_F16);
    ck_assert_int_eq(PROMOTED(ONES(DT_BOOL, 2), ZERO_DIM(DT_U8)), DT_U8);
    ck_assert_int_eq(PROMOTED(ONES(DT_BOOL, 2), arg_integer(3)), DT_I64);
    ck_assert_int_eq(PROMOTED(ONES(DT_U8, 2), arg_integer(300)), DT_U8);
    ck_assert_int_eq(PROMOTED(ONES(DT_U8, 2), arg_float(3)), DT_F32);
    ck_assert_int_eq(PROMOTED(ONES(DT_BF16, 2), arg_float(3)), DT_BF16);
    ck_assert_int_eq(PROMOTED(ZERO_DIM(DT_F16), arg_float(3)), DT_F16);
    ck_assert_int_eq(PROMOTED(ZERO_DIM(DT_I32), arg_float(3)), DT_F32);
    ck_assert_int_eq(PROMOTED(arg_integer(3), arg_truth(true)), DT_I64);
    ck_assert_int_eq(PROMOTED(ONES(DT_F16, 2), ONES(DT_I64, 2), ZERO_DIM(DT_F64)), DT_F16);
    ck_assert_ok(dt_default_dtype_set(DT_F64));
    ck_assert_int_eq(PROMOTED(ONES(DT_U8, 2), arg_float(3)), DT_F64);
    ck_assert_ok(dt_default_dtype_set(DT_F32));
}
END_TEST

START_TEST(reduced_dims) {
    dt_tensor *t = ones_of(DT_F32, SHAPE(2, 3, 4));
    uint32_t mask;
    dt_dims shape;
    ck_assert_ok(dt_rule_reduced_dims(t, NULL, false, &mask, &shape));
    ck_assert(mask == 7 && shape.rank == 0);
    ck_assert_ok(dt_rule_reduced_dims(t, &SHAPE(-1, 0), false, &mask, &shape));
    ck_assert(mask == 5 && shape.rank == 1 && shape.v[0] == 3);
    ck_assert_ok(dt_rule_reduced_dims(t, &SHAPE(1), true, &mask, &shape));
    ck_assert(mask == 2 && shape.rank == 3 && shape.v[1] == 1 && shape.v[2] == 4);
}
END_TEST

START_TEST(reshape_copies_only_where_it_must) {
    dt_rule_invoke = rule_invoke;
    dt_tensor *t = ones_of(DT_F32, SHAPE(2, 3)), *out, *flipped = transposed(arg_tensor(t)).t;
    ck_assert_ok(dt_rule_reshape_to(t, &SHAPE(6), &out));
    ck_assert_ptr_eq(out->storage, t->storage);
    dt_tensor_release(out);
    ck_assert_ok(dt_rule_reshape_to(flipped, &SHAPE(6), &out));
    ck_assert_ptr_ne(out->storage, t->storage);
    dt_tensor_release(out);
    ck_assert_ok(dt_rule_to_dtype(t, DT_F32, &out));
    ck_assert_ptr_eq(out, t);
    dt_tensor_release(out);
}
END_TEST

/* Rules of all sorts meet no memory at each of their allocations. */
static dt_status rules_once(void) {
    const struct {
        dt_op_id id;
        int nargs;
        const dt_arg *args;
    } calls[] = {
        {DT_OP_add, ARGS(arg_tensor(kept[0]), arg_tensor(kept[1]), arg_integer(1))},
        {DT_OP_stack, ARGS(arg_list(kept, 2), arg_int(0))},
        {DT_OP_cat, ARGS(arg_list(kept, 2), arg_int(0))},
        {DT_OP_max__dim, ARGS(arg_tensor(kept[0]), arg_int(0), arg_bool(false))},
        {DT_OP_matmul, ARGS(arg_tensor(kept[0]), arg_tensor(kept[2]))},
        {DT_OP_softmax, ARGS(arg_tensor(kept[0]), arg_int(0), arg_dtype(DT_F64))},
        {DT_OP_reshape, ARGS(arg_tensor(kept[2]), arg_dims(9))},
        {DT_OP_linear, ARGS(arg_tensor(kept[2]), arg_tensor(kept[0]), arg_none())},
    };
    for (size_t k = 0; k < sizeof calls / sizeof calls[0]; k++) {
        dt_op_call c;
        op_prepare(&c, calls[k].id, calls[k].nargs, calls[k].args);
        dt_status status = c.op->rule(&c);
        dt_op_call_clear(&c); /* also of a rule that failed */
        DT_TRY(status);
    }
    return DT_OK;
}

START_TEST(every_allocation_fails) {
    dt_rule_invoke = rule_invoke;
    ones_of(DT_F32, SHAPE(3, 3));
    ones_of(DT_F32, SHAPE(3, 3));
    keep(view_of(kept[0], SHAPE(3, 3), (int64_t[]){1, 3}, 0));
    ck_assert_int_gt(test_every_allocation_fails(rules_once), 15);
}
END_TEST

RULE_TESTS("rules", dims_beat_zero_dims_beat_numbers, reduced_dims,
           reshape_copies_only_where_it_must, every_allocation_fails)
