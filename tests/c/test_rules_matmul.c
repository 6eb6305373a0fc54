/* test_rules_matmul.c: shapes and errors of products. */
#include "tests/c/rules_support.h"

#define ONE arg_integer(1)

START_TEST(shapes) {
    META(DT_F32, SHAPE(2, 4), SHAPE(4, 1), DT_OP_matmul, F32(2, 3), F32(3, 4));
    META(DT_F32, SHAPE(2, 3, 5), SHAPE(15, 5, 1), DT_OP_matmul, F32(2, 3, 4), F32(4, 5));
    META(DT_F32, SHAPE(5, 4, 2, 2), SHAPE(16, 4, 2, 1), DT_OP_matmul, F32(5, 1, 2, 3),
         F32(4, 3, 2));
    META(DT_F32, SHAPE(2, 4), SHAPE(4, 1), DT_OP_matmul, F32(3), F32(2, 3, 4));
    META(DT_F32, SHAPE(2, 4), SHAPE(4, 1), DT_OP_matmul, F32(2, 4, 3), F32(3));
    META(DT_F32, SCALAR_SHAPE, SCALAR_SHAPE, DT_OP_dot, F32(3), F32(3));
    META(DT_I64, SHAPE(2), SHAPE(1), DT_OP_mv, I64(2, 3), I64(3));
    META(DT_F64, SHAPE(2, 2, 2), SHAPE(4, 2, 1), DT_OP_bmm, F64(2, 2, 3), F64(2, 3, 2));
    META(DT_F32, SHAPE(2, 2), SHAPE(2, 1), DT_OP_addmm, F32(2), F32(2, 3), F32(3, 2), ONE, ONE);
    META(DT_F32, SHAPE(2, 5, 4), SHAPE(20, 4, 1), DT_OP_linear, F32(2, 5, 3), F32(4, 3), F32(4));
    META(DT_F32, SHAPE(2, 0), SHAPE(1, 1), DT_OP_matmul, F32(2, 3), F32(3, 0));
}
END_TEST

START_TEST(errors) {
    ERROR(DT_E_RUNTIME, "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)", DT_OP_matmul,
          F32(2, 3), F32(2, 3));
    ERROR(DT_E_RUNTIME, "expected m1 and m2 to have the same dtype, but got: float != double",
          DT_OP_matmul, F32(2, 3), F64(3, 2));
    ERROR(DT_E_RUNTIME, "both arguments to matmul need to be at least 1D, but they are 0D and 1D",
          DT_OP_matmul, ZERO_DIM(DT_F32), F32(2));
    ERROR(DT_E_RUNTIME,
          "inconsistent tensor size, expected tensor [2] and src [3] to have the same number of "
          "elements, but got 2 and 3 elements respectively",
          DT_OP_dot, F32(2), F32(3));
    ERROR(DT_E_RUNTIME, "size mismatch, got input (2), mat (2x3), vec (2)", DT_OP_matmul, F32(2, 3),
          F32(2));
    ERROR(DT_E_RUNTIME, "self must be a matrix", DT_OP_mm, F32(2), F32(2, 2));
    ERROR(DT_E_RUNTIME, "mat2 must be a matrix", DT_OP_mm, F32(2, 2), F32(2));
    ERROR(DT_E_RUNTIME,
          "Expected size for first two dimensions of batch2 tensor to be: [2, 3] but got: [2, 2].",
          DT_OP_bmm, F32(2, 2, 3), F32(2, 2, 3));
    ERROR(DT_E_RUNTIME,
          "Expected size for first two dimensions of batch2 tensor to be: [2, 3] but got: [2, 2].",
          DT_OP_matmul, F32(2, 2, 3), F32(2, 2, 3));
    ERROR(DT_E_RUNTIME, "batch1 must be a 3D tensor", DT_OP_bmm, F32(2, 2), F32(2, 2, 3));
    ERROR(
        DT_E_RUNTIME,
        "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0",
        DT_OP_matmul, F32(2, 2, 3), F32(3, 3, 2));
    ERROR(DT_E_RUNTIME, "1D tensors expected, but got 2D and 1D tensors", DT_OP_dot, F32(2, 2),
          F32(3));
    ERROR(DT_E_RUNTIME,
          "dot : expected both vectors to have same dtype, but found Float and Double", DT_OP_dot,
          F32(2), F64(2));
    ERROR(DT_E_RUNTIME, "vector + matrix @ vector expected, got 1, 1, 1", DT_OP_mv, F32(2), F32(2));
    ERROR(DT_E_RUNTIME,
          "The expanded size of the tensor (2) must match the existing size (5) at non-singleton "
          "dimension 1.  Target sizes: [2, 2].  Tensor sizes: [5]",
          DT_OP_addmm, F32(5), F32(2, 3), F32(3, 2), ONE, ONE);
    ERROR(DT_E_RUNTIME, "mat1 must be a matrix, got 1-D tensor", DT_OP_addmm, F32(2), F32(2),
          F32(3, 2), ONE, ONE);
    ERROR(DT_E_RUNTIME, "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x2)", DT_OP_addmm,
          F32(2), F32(2, 3), F32(2, 2), ONE, ONE);
    ERROR(DT_E_RUNTIME, "self and mat2 must have the same dtype, but got Double and Float",
          DT_OP_addmm, F64(2), F32(2, 3), F32(3, 2), ONE, ONE);
    ERROR(DT_E_NOT_IMPLEMENTED, "\"addmm_impl_cpu_\" not implemented for 'Bool'", DT_OP_matmul,
          BOOLS(2, 2), BOOLS(2, 2));
    ERROR(DT_E_RUNTIME, "mat1 and mat2 shapes cannot be multiplied (2x3 and 5x4)", DT_OP_linear,
          F32(2, 3), F32(4, 5), arg_none());
    ERROR(DT_E_RUNTIME,
          "The expanded size of the tensor (4) must match the existing size (5) at non-singleton "
          "dimension 1.  Target sizes: [2, 4].  Tensor sizes: [5]",
          DT_OP_linear, F32(2, 3), F32(4, 3), F32(5));
}
END_TEST

RULE_TESTS("rules_matmul", shapes, errors)
