/* test_rules_create.c: sizes and errors of creation ops; random ops count their draws. */
#include "tests/c/rules_support.h"

#define F arg_dtype(DT_F32)
#define I arg_dtype(DT_I64)
#define N(i) arg_integer(i)

START_TEST(sizes) {
    META(DT_I64, SHAPE(4), SHAPE(1), DT_OP_arange__new, N(0), N(10), N(3), I);
    META(DT_I64, SHAPE(4), SHAPE(1), DT_OP_arange__new, N(10), N(0), N(-3), I);
    META(DT_I64, SHAPE(0), SHAPE(1), DT_OP_arange__new, N(3), N(3), N(1), I);
    META(DT_F32, SHAPE(4), SHAPE(1), DT_OP_arange__new, arg_float(0), arg_float(1), arg_float(0.3),
         F);
    META(DT_F32, SHAPE(5), SHAPE(1), DT_OP_linspace__new, N(0), N(1), arg_int(5), F);
    META(DT_F32, SHAPE(2, 3), SHAPE(3, 1), DT_OP_eye__new, arg_int(2), arg_int(3), F);
    META(DT_BOOL, SHAPE(2, 2), SHAPE(2, 1), DT_OP_full__new, arg_dims(2, 2), N(1),
         arg_dtype(DT_BOOL));
    META(DT_F32, SHAPE(3, 2), SHAPE(2, 1), DT_OP_tril, transposed(F32(2, 3)), arg_int(0));
    META(DT_F32, SHAPE(0, 2), SHAPE(2, 1), DT_OP_empty__new, arg_dims(0, 2), F);
}
END_TEST

START_TEST(draws_are_counted) {
    dt_default_generator.offset = 10;
    META(DT_F32, SHAPE(2, 3), SHAPE(3, 1), DT_OP_rand__new, arg_dims(2, 3), N(0), N(1), F);
    ck_assert_uint_eq(dt_default_generator.offset, 16);
    ERROR(DT_E_RUNTIME, "Trying to create tensor with negative dimension -1: [2, -1]",
          DT_OP_rand__new, arg_dims(2, -1), N(0), N(1), F);
    ck_assert_uint_eq(dt_default_generator.offset, 16);
}
END_TEST

START_TEST(errors) {
    ERROR(DT_E_RUNTIME, "step must be nonzero", DT_OP_arange__new, N(0), N(5), N(0), I);
    ERROR(DT_E_RUNTIME, "upper bound and lower bound inconsistent with step sign",
          DT_OP_arange__new, N(5), N(0), N(1), I);
    ERROR(DT_E_RUNTIME, "unsupported range: 0 -> inf", DT_OP_arange__new, N(0), arg_float(INFINITY),
          N(1), F);
    ERROR(DT_E_RUNTIME, "number of steps must be non-negative", DT_OP_linspace__new, N(0), N(1),
          arg_int(-1), F);
    ERROR(DT_E_RUNTIME, "n must be greater or equal to 0, got -1", DT_OP_eye__new, arg_int(-1),
          arg_int(-1), F);
    ERROR(DT_E_RUNTIME, "m must be greater or equal to 0, got -2", DT_OP_eye__new, arg_int(1),
          arg_int(-2), F);
    ERROR(DT_E_RUNTIME, "random_ expects 'from' to be less than 'to', but got from=3 >= to=3",
          DT_OP_randint__new, arg_dims(2), N(3), N(3), I);
    ERROR(DT_E_RUNTIME, "to - 1 is out of bounds for unsigned char", DT_OP_randint__new,
          arg_dims(2), N(0), N(300), arg_dtype(DT_U8));
    ERROR(DT_E_NOT_IMPLEMENTED, "\"normal_kernel_cpu\" not implemented for 'Long'",
          DT_OP_randn__new, arg_dims(2), N(0), N(1), I);
    ERROR(DT_E_NOT_IMPLEMENTED, "\"check_uniform_bounds\" not implemented for 'Long'",
          DT_OP_rand__new, arg_dims(2), N(0), N(1), I);
    ERROR(DT_E_RUNTIME, "uniform_ expects to return a [from, to) range, but found from=2 > to=1",
          DT_OP_rand__new, arg_dims(2), N(2), N(1), F);
    ERROR(DT_E_RUNTIME, "normal expects std >= 0.0, but found std -1", DT_OP_randn__new,
          arg_dims(2), N(0), N(-1), F);
    ERROR(DT_E_RUNTIME, "tril: input tensor must have at least 2 dimensions", DT_OP_tril, F32(3),
          arg_int(0));
    ERROR(DT_E_RUNTIME, "Trying to create tensor with negative dimension -1: [2, -1]",
          DT_OP_empty__new, arg_dims(2, -1), F);
}
END_TEST

RULE_TESTS("rules_create", sizes, draws_are_counted, errors)
