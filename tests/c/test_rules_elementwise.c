/* test_rules_elementwise.c: promotion, stride order and errors of element-wise ops. */
#include "tests/c/rules_support.h"

#define ONE arg_integer(1)
#define NONE arg_none()

START_TEST(promotion) {
    META(DT_F32, SHAPE(2), SHAPE(1), DT_OP_add, I64(2), arg_float(1.5), ONE);
    META(DT_I32, SHAPE(2), SHAPE(1), DT_OP_add, ONES(DT_I32, 2), ZERO_DIM(DT_I64), ONE);
    META(DT_F32, SHAPE(2), SHAPE(1), DT_OP_add, ZERO_DIM(DT_F64), F32(2), ONE);
    META(DT_I16, SHAPE(2), SHAPE(1), DT_OP_add, ONES(DT_U8, 2), ONES(DT_I8, 2), ONE);
    META(DT_F32, SHAPE(2), SHAPE(1), DT_OP_add, ONES(DT_F16, 2), ONES(DT_BF16, 2), ONE);
    META(DT_F32, SHAPE(2), SHAPE(1), DT_OP_div, I64(2), arg_integer(2), NONE);
    META(DT_I64, SHAPE(2), SHAPE(1), DT_OP_div, I64(2), arg_integer(2), arg_string("floor"));
    META(DT_I64, SHAPE(2), SHAPE(1), DT_OP_mul, BOOLS(2), arg_integer(2));
    META(DT_BOOL, SHAPE(2), SHAPE(1), DT_OP_add, BOOLS(2), arg_truth(true), ONE);
    META(DT_BOOL, SHAPE(2), SHAPE(1), DT_OP_lt, I64(2), arg_float(1.5));
    META(DT_F32, SHAPE(2), SHAPE(1), DT_OP_clamp, I64(2), arg_float(0.5), NONE);
    META(DT_I64, SHAPE(2), SHAPE(1), DT_OP_clamp, BOOLS(2), arg_integer(0), NONE);
    META(DT_F32, SHAPE(2), SHAPE(1), DT_OP_exp, I64(2));
    META(DT_I64, SHAPE(2), SHAPE(1), DT_OP_square, BOOLS(2));
    META(DT_F32, SHAPE(2), SHAPE(1), DT_OP_pow, I64(2), arg_float(2));
    META(DT_F32, SHAPE(2), SHAPE(1), DT_OP_where, BOOLS(2), arg_integer(1), arg_float(2.5));
    META(DT_I64, SHAPE(2), SHAPE(1), DT_OP_bitwise_left_shift, BOOLS(2), arg_integer(1));
    META(DT_I64, SHAPE(2), SHAPE(1), DT_OP_masked_fill, I64(2), BOOLS(2), arg_float(1.5));
}
END_TEST

START_TEST(stride_order) {
    META(DT_F32, SHAPE(3, 2), SHAPE(1, 3), DT_OP_add, transposed(F32(2, 3)), F32(3, 2), ONE);
    dt_tensor *base = ones_of(DT_F32, SHAPE(2, 3, 4));
    dt_arg permuted = arg_tensor(keep(view_of(base, SHAPE(4, 2, 3), (int64_t[]){1, 12, 4}, 0)));
    META(DT_F32, SHAPE(4, 2, 3), SHAPE(1, 12, 4), DT_OP_mul, permuted, arg_float(2));
    dt_arg spread =
        arg_tensor(keep(view_of(ones_of(DT_F32, SHAPE(3, 1)), SHAPE(3, 4), (int64_t[]){1, 0}, 0)));
    META(DT_F32, SHAPE(3, 4), SHAPE(4, 1), DT_OP_add, spread, ONE, ONE);
    META(DT_F32, SHAPE(2, 3), SHAPE(3, 1), DT_OP_add, F32(2, 1), F32(3), ONE);
}
END_TEST

START_TEST(errors) {
    ERROR(
        DT_E_RUNTIME,
        "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
        DT_OP_add, F32(2, 3), F32(2, 4), ONE);
    ERROR(DT_E_RUNTIME,
          "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to "
          "invert "
          "a mask, use the `~` or `logical_not()` operator instead.",
          DT_OP_neg, BOOLS(2));
    ERROR(DT_E_RUNTIME,
          "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
          "`logical_xor()` operator instead.",
          DT_OP_sub, BOOLS(2), BOOLS(2), ONE);
    ERROR(
        DT_E_RUNTIME,
        "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to "
        "invert a mask, use the `~` or `logical_not()` operator instead.",
        DT_OP_sub, F32(2), BOOLS(2), ONE);
    ERROR(DT_E_NOT_IMPLEMENTED, "\"bitwise_and_cpu\" not implemented for 'Float'",
          DT_OP_bitwise_and, F32(2), F32(2));
    ERROR(DT_E_RUNTIME,
          "For integral input tensors, argument alpha must not be a floating point number.",
          DT_OP_add, I64(2), ONE, arg_float(1.5));
    ERROR(DT_E_RUNTIME, "Boolean alpha only supported for Boolean results.", DT_OP_add, F32(2), ONE,
          arg_truth(false));
    ERROR(DT_E_RUNTIME,
          "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found 'x'",
          DT_OP_div, F32(2), ONE, arg_string("x"));
    ERROR(DT_E_RUNTIME, "Integers to negative integer powers are not allowed.", DT_OP_pow, I64(2),
          arg_integer(-1));
    ERROR(DT_E_RUNTIME,
          "where expected condition to be a boolean tensor, but got a tensor with dtype Float",
          DT_OP_where, F32(2), F32(2), F32(2));
    ERROR(DT_E_RUNTIME, "masked_fill_ only supports boolean masks, but got mask with dtype float",
          DT_OP_masked_fill, F32(2), F32(2), ONE);
    ERROR(DT_E_RUNTIME,
          "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with 1 "
          "dimension(s).",
          DT_OP_masked_fill, F32(2), BOOLS(2), F32(2));
    ERROR(DT_E_RUNTIME, "torch.clamp: At least one of 'min' or 'max' must not be None", DT_OP_clamp,
          F32(2), NONE, NONE);
    ERROR(DT_E_RUNTIME, "expected dtype float for `end` but got dtype double", DT_OP_lerp, F32(2),
          F64(2), arg_float(0.5));
    ERROR(DT_E_RUNTIME, "approximate argument must be either none or tanh.", DT_OP_gelu, F32(2),
          arg_string("x"));
    ERROR(DT_E_NOT_IMPLEMENTED, "\"GeluKernelImpl\" not implemented for 'Long'", DT_OP_gelu, I64(2),
          arg_string("none"));
    ERROR(DT_E_NOT_IMPLEMENTED, "\"round_cpu\" not implemented for 'Long'", DT_OP_round, I64(2),
          arg_int(2));
    ERROR(DT_E_RUNTIME,
          "fill_ only supports 0-dimension value tensor but got tensor with 1 dimensions.",
          DT_OP_fill, F32(2), F32(2));
    ERROR(DT_E_RUNTIME, "Boolean inputs not supported for relu", DT_OP_relu, BOOLS(2));
}
END_TEST

RULE_TESTS("rules_elementwise", promotion, stride_order, errors)
