/* test_rules_reduce.c: shapes, dtypes and errors of reductions and scans. */
#include "tests/c/rules_support.h"

#define NO arg_bool(false)
#define YES arg_bool(true)
#define NONE arg_none()

START_TEST(shapes_and_dtypes) {
    META(DT_I64, SCALAR_SHAPE, SCALAR_SHAPE, DT_OP_sum, I64(2, 3), NONE, NO, NONE);
    META(DT_I64, SHAPE(3), SHAPE(1), DT_OP_sum, BOOLS(2, 3), arg_dims(0), NO, NONE);
    META(DT_F16, SHAPE(2, 1), SHAPE(1, 1), DT_OP_mean, ONES(DT_F16, 2, 3), arg_dims(-1), YES, NONE);
    META(DT_F64, SHAPE(1, 1), SHAPE(1, 1), DT_OP_sum, F32(2, 3), arg_dims(0, 1), YES,
         arg_dtype(DT_F64));
    META(DT_U8, SCALAR_SHAPE, SCALAR_SHAPE, DT_OP_any, ONES(DT_U8, 2), NONE, NO);
    META(DT_BOOL, SCALAR_SHAPE, SCALAR_SHAPE, DT_OP_all, F32(2), NONE, NO);
    META(DT_I64, SHAPE(2), SHAPE(1), DT_OP_argmax, F32(2, 3), arg_int(1), NO);
    META(DT_I64, SHAPE(1, 1), SHAPE(1, 1), DT_OP_argmax, F32(2, 3), NONE, YES);
    META(DT_F32, SHAPE(3), SHAPE(1), DT_OP_max__dim, F32(2, 3), arg_int(0), NO);
    META(DT_I64, SHAPE(2), SHAPE(1), DT_OP_cumsum, BOOLS(2), arg_int(0), NONE);
    META(DT_F32, SCALAR_SHAPE, SCALAR_SHAPE, DT_OP_sum, ZERO_DIM(DT_F32), arg_dims(-1), NO, NONE);
}
END_TEST

START_TEST(errors) {
    ERROR(DT_E_INDEX, "Dimension out of range (expected to be in range of [-2, 1], but got 2)",
          DT_OP_sum, F32(2, 3), arg_dims(2), NO, NONE);
    ERROR(DT_E_RUNTIME, "dim 0 appears multiple times in the list of dims", DT_OP_sum, F32(2, 3),
          arg_dims(0, -2), NO, NONE);
    ERROR(DT_E_RUNTIME,
          "mean(): could not infer output dtype. Input dtype must be either a floating point or "
          "complex dtype. Got: Long",
          DT_OP_mean, I64(2), NONE, NO, NONE);
    ERROR(DT_E_RUNTIME,
          "mean(): could not infer output dtype. Optional dtype must be either a floating point or "
          "complex dtype. Got: Long",
          DT_OP_mean, F32(2), NONE, NO, arg_dtype(DT_I64));
    ERROR(DT_E_RUNTIME,
          "amax(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
          "reduction dim with the 'dim' argument.",
          DT_OP_amax, F32(0), arg_no_dims(), NO);
    ERROR(DT_E_INDEX, "amax(): Expected reduction dim 1 to have non-zero size.", DT_OP_amax,
          F32(2, 0), arg_dims(1), NO);
    ERROR(DT_E_INDEX, "argmax(): Expected reduction dim to be specified for input.numel() == 0.",
          DT_OP_argmax, F32(0), NONE, NO);
    ERROR(DT_E_RUNTIME, "argmax(): does not support bool input", DT_OP_argmax, BOOLS(2), NONE, NO);
    ERROR(DT_E_INDEX, "max(): Expected reduction dim 1 to have non-zero size.", DT_OP_max__dim,
          F32(2, 0), arg_int(1), NO);
    ERROR(DT_E_RUNTIME, "std and var only support floating point and complex dtypes",
          DT_OP_var__new, I64(2), NONE, arg_integer(1), NO);
    ERROR(DT_E_RUNTIME,
          "linalg.vector_norm: Expected a floating point or complex tensor as input. Got Long",
          DT_OP_norm__new, I64(2), arg_integer(2), NONE, NO, NONE);
    ERROR(DT_E_INDEX, "Dimension out of range (expected to be in range of [-1, 0], but got 1)",
          DT_OP_cumsum, F32(2), arg_int(1), NONE);
}
END_TEST

RULE_TESTS("rules_reduce", shapes_and_dtypes, errors)
