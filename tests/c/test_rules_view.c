/* test_rules_view.c: shapes, strides and errors of views. */
#include "tests/c/rules_support.h"

START_TEST(strides_of_views) {
    META(DT_F32, SHAPE(3, 2), SHAPE(1, 3), DT_OP_transpose, F32(2, 3), arg_int(0), arg_int(1));
    META(DT_F32, SHAPE(0, 3), SHAPE(1, 1), DT_OP_t, F32(3, 0));
    META(DT_F32, SHAPE(4, 2, 3), SHAPE(1, 12, 4), DT_OP_permute, F32(2, 3, 4), arg_dims(2, 0, 1));
    META(DT_F32, SHAPE(3, 2), SHAPE(1, 3), DT_OP_movedim, F32(2, 3), arg_dims(0), arg_dims(1));
    META(DT_F32, SHAPE(2), SHAPE(1), DT_OP_squeeze, F32(1, 2, 1), arg_none());
    META(DT_F32, SHAPE(2, 1), SHAPE(1, 1), DT_OP_squeeze, F32(1, 2, 1), arg_dims(0));
    META(DT_F32, SHAPE(2, 3, 1), SHAPE(3, 1, 1), DT_OP_unsqueeze, F32(2, 3), arg_int(-1));
    META(DT_F32, SHAPE(1, 3), SHAPE(3, 1), DT_OP_unsqueeze, F32(3), arg_int(0));
    META(DT_F32, SHAPE(3, 1, 2), SHAPE(1, 6, 3), DT_OP_unsqueeze, transposed(F32(2, 3)),
         arg_int(1));
    META(DT_F32, SHAPE(3, 2), SHAPE(0, 1), DT_OP_expand, F32(2), arg_dims(3, 2));
    META(DT_F32, SHAPE(2, 12), SHAPE(12, 1), DT_OP_flatten, F32(2, 3, 4), arg_int(1), arg_int(-1));
    META(DT_F32, SHAPE(3), SHAPE(5), DT_OP_diagonal, F32(3, 4), arg_int(1), arg_int(0), arg_int(1));
    META(DT_F32, SHAPE(2, 2), SHAPE(3, 1), DT_OP_narrow, F32(2, 3), arg_int(1), arg_int(1),
         arg_int(2));
    META(DT_F32, SHAPE(2, 2), SHAPE(3, 2), DT_OP_slice__dim, F32(2, 3), arg_int(1), arg_int(0),
         arg_int(INT64_MAX), arg_int(2));
    META(DT_F32, SHAPE(3), SHAPE(1), DT_OP_select, F32(2, 3), arg_int(0), arg_int(-1));
    META(DT_F32, SHAPE(3, 2), SHAPE(2, 1), DT_OP_reshape, F32(2, 3), arg_dims(3, -1));
    META(DT_F32, SHAPE(6), SHAPE(1), DT_OP_reshape, transposed(F32(2, 3)),
         arg_dims(6)); /* a copy */
    META(DT_F32, SHAPE(3, 2), SHAPE(2, 1), DT_OP_unflatten, F32(6), arg_int(0), arg_dims(3, -1));
}
END_TEST

START_TEST(errors) {
    ERROR(DT_E_RUNTIME, "shape '[5]' is invalid for input of size 6", DT_OP_view, F32(2, 3),
          arg_dims(5));
    ERROR(DT_E_RUNTIME, "only one dimension can be inferred", DT_OP_view, F32(2, 3),
          arg_dims(-1, -1));
    ERROR(DT_E_RUNTIME,
          "view size is not compatible with input tensor's size and stride (at least one dimension "
          "spans across two contiguous subspaces). Use .reshape(...) instead.",
          DT_OP_view, transposed(F32(2, 3)), arg_dims(6));
    ERROR(DT_E_RUNTIME, "shape '[4, -1]' is invalid for input of size 6", DT_OP_reshape, F32(2, 3),
          arg_dims(4, -1));
    ERROR(
        DT_E_RUNTIME,
        "cannot reshape tensor of 0 elements into shape [-1, 0] because the unspecified dimension "
        "size -1 can be any value and is ambiguous",
        DT_OP_view, F32(0, 3), arg_dims(-1, 0));
    ERROR(DT_E_INDEX, "Dimension out of range (expected to be in range of [-2, 1], but got 2)",
          DT_OP_transpose, F32(2, 3), arg_int(0), arg_int(2));
    ERROR(DT_E_RUNTIME, "t() expects a tensor with <= 2 dimensions, but self is 3D", DT_OP_t,
          F32(2, 3, 4));
    ERROR(DT_E_RUNTIME,
          "permute(sparse_coo): number of dimensions in the tensor input does not match the length "
          "of "
          "the desired ordering of dimensions i.e. input.dim() = 2 is not equal to len(dims) = 1",
          DT_OP_permute, F32(2, 3), arg_dims(0));
    ERROR(DT_E_RUNTIME, "permute(): duplicate dims are not allowed.", DT_OP_permute, F32(2, 3),
          arg_dims(0, 0));
    ERROR(DT_E_RUNTIME, "movedim: repeated dim in `source` ([0, 0])", DT_OP_movedim, F32(2, 3),
          arg_dims(0, 0), arg_dims(0, 1));
    ERROR(
        DT_E_RUNTIME,
        "movedim: Invalid source or destination dims: source ([0, 1] dims) should contain the same "
        "number of dims as destination ([0] dims)",
        DT_OP_movedim, F32(2, 3), arg_dims(0, 1), arg_dims(0));
    ERROR(DT_E_RUNTIME, "dim 0 appears multiple times in the list of dims", DT_OP_squeeze,
          F32(1, 2, 1), arg_dims(0, 0));
    ERROR(DT_E_INDEX, "Dimension out of range (expected to be in range of [-2, 1], but got 3)",
          DT_OP_unsqueeze, F32(2), arg_int(3));
    ERROR(DT_E_RUNTIME,
          "expand(torch.FloatTensor{[2, 3]}, size=[3]): the number of sizes provided (1) must be "
          "greater or equal to the number of dimensions in the tensor (2)",
          DT_OP_expand, F32(2, 3), arg_dims(3));
    ERROR(DT_E_RUNTIME,
          "The expanded size of the tensor (4) must match the existing size (3) at non-singleton "
          "dimension 1.  Target sizes: [2, 4].  Tensor sizes: [2, 3]",
          DT_OP_expand, F32(2, 3), arg_dims(2, 4));
    ERROR(
        DT_E_RUNTIME,
        "The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension 0",
        DT_OP_expand, F32(2), arg_dims(-1, 2));
    ERROR(DT_E_RUNTIME,
          "The expanded size of the tensor (-2) must match the existing size (2) at non-singleton "
          "dimension 0.  Target sizes: [-2].  Tensor sizes: [2]",
          DT_OP_expand, F32(2), arg_dims(-2));
    ERROR(DT_E_INDEX, "select(): index 2 out of range for tensor of size [2, 3] at dimension 0",
          DT_OP_select, F32(2, 3), arg_int(0), arg_int(2));
    ERROR(DT_E_INDEX, "select() cannot be applied to a 0-dim tensor.", DT_OP_select,
          ZERO_DIM(DT_F32), arg_int(0), arg_int(0));
    ERROR(DT_E_RUNTIME, "start (2) + length (2) exceeds dimension size (3).", DT_OP_narrow, F32(3),
          arg_int(0), arg_int(2), arg_int(2));
    ERROR(DT_E_RUNTIME, "narrow(): length must be non-negative.", DT_OP_narrow, F32(3), arg_int(0),
          arg_int(0), arg_int(-1));
    ERROR(DT_E_INDEX, "start out of range (expected to be in range of [-3, 3], but got 4)",
          DT_OP_narrow, F32(3), arg_int(0), arg_int(4), arg_int(0));
    ERROR(DT_E_RUNTIME, "flatten() has invalid args: start_dim cannot come after end_dim",
          DT_OP_flatten, F32(2, 3), arg_int(1), arg_int(0));
    ERROR(
        DT_E_RUNTIME,
        "unflatten: Provided sizes [4, 2] don't multiply up to the size of dim 0 (6) in the input "
        "tensor",
        DT_OP_unflatten, F32(6), arg_int(0), arg_dims(4, 2));
    ERROR(DT_E_RUNTIME, "diagonal dimensions cannot be identical 1, 1", DT_OP_diagonal, F32(2, 3),
          arg_int(0), arg_int(1), arg_int(1));
    ERROR(DT_E_RUNTIME, "The `+` operator, on a bool tensor is not supported.", DT_OP_positive,
          BOOLS(2));
}
END_TEST

START_TEST(as_strided_stays_in_its_storage) {
    META(DT_F32, SHAPE(2, 2), SHAPE(1, 2), DT_OP_as_strided, F32(5), arg_dims(2, 2), arg_dims(1, 2),
         arg_int(1));
    ERROR(
        DT_E_RUNTIME,
        "setStorage: sizes [3], strides [1], storage offset 0, and itemsize 4 requiring a storage "
        "size of 12 are out of bounds for storage of size 8",
        DT_OP_as_strided, F32(2), arg_dims(3), arg_dims(1), arg_none());
    ERROR(DT_E_RUNTIME,
          "as_strided: Negative strides are not supported at the moment, got strides: [-1]",
          DT_OP_as_strided, F32(2), arg_dims(1), arg_dims(-1), arg_none());
    ERROR(DT_E_RUNTIME, "mismatch in length of strides and shape", DT_OP_as_strided, F32(2),
          arg_dims(1, 1), arg_dims(1), arg_none());
    dt_op_call c; /* spans that overflow are out of bounds, too */
    op_prepare(&c, DT_OP_as_strided,
               ARGS(F32(2), arg_dims(INT64_MAX, 3), arg_dims(INT64_MAX, INT64_MAX), arg_none()));
    ck_assert_int_eq(c.op->rule(&c), DT_E_RUNTIME);
}
END_TEST

RULE_TESTS("rules_view", strides_of_views, errors, as_strided_stays_in_its_storage)
