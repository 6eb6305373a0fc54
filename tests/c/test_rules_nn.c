/* test_rules_nn.c: shapes and errors of softmax, normalisation and attention. */
#include "tests/c/rules_support.h"

#define NONE arg_none()
#define EPS arg_float(1e-5)
#define NO arg_bool(false)

START_TEST(shapes) {
    META(DT_F32, SHAPE(2, 3), SHAPE(3, 1), DT_OP_softmax, transposed(F32(3, 2)), arg_int(-1), NONE);
    META(DT_F64, SHAPE(3), SHAPE(1), DT_OP_log_softmax, I64(3), arg_int(0), arg_dtype(DT_F64));
    META(DT_F32, SHAPE(2, 3), SHAPE(3, 1), DT_OP_layer_norm, F32(2, 3), arg_dims(3), F32(3), NONE,
         EPS);
    META(DT_F16, SHAPE(2, 3), SHAPE(3, 1), DT_OP_rms_norm, ONES(DT_F16, 2, 3), arg_dims(2, 3), NONE,
         NONE);
    /* heads are laid out so that joining them again is a view */
    META(DT_F32, SHAPE(2, 4, 5, 3), SHAPE(60, 3, 12, 1), DT_OP_sdpa, F32(2, 4, 5, 8),
         F32(2, 4, 6, 8), F32(2, 4, 6, 3), NONE, NO, NONE);
}
END_TEST

START_TEST(errors) {
    ERROR(DT_E_NOT_IMPLEMENTED, "\"softmax_lastdim_kernel_impl\" not implemented for 'Long'",
          DT_OP_softmax, I64(2), arg_int(0), NONE);
    ERROR(DT_E_INDEX, "Dimension out of range (expected to be in range of [-1, 0], but got 1)",
          DT_OP_softmax, F32(2), arg_int(1), NONE);
    ERROR(DT_E_RUNTIME,
          "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
          "element, but got normalized_shape = []",
          DT_OP_layer_norm, F32(2, 3), arg_no_dims(), NONE, NONE, EPS);
    ERROR(
        DT_E_RUNTIME,
        "Given normalized_shape=[4], expected input with shape [*, 4], but got input of size[2, 3]",
        DT_OP_layer_norm, F32(2, 3), arg_dims(4), NONE, NONE, EPS);
    ERROR(
        DT_E_RUNTIME,
        "Expected weight to be of same shape as normalized_shape, but got weight of shape [4] and "
        "normalized_shape = [3]",
        DT_OP_layer_norm, F32(2, 3), arg_dims(3), F32(4), NONE, EPS);
    ERROR(DT_E_NOT_IMPLEMENTED, "\"LayerNormKernelImpl\" not implemented for 'Long'",
          DT_OP_layer_norm, I64(2, 3), arg_dims(3), NONE, NONE, EPS);
    ERROR(DT_E_RUNTIME, "mixed dtype (CPU): expect parameter to have scalar type of Float",
          DT_OP_layer_norm, F32(2, 3), arg_dims(3), F64(3), NONE, EPS);
    ERROR(DT_E_RUNTIME,
          "Expected query, key, and value to have the same dtype, but got query.dtype: float "
          "key.dtype: double and value.dtype: float instead.",
          DT_OP_sdpa, F32(2, 3), F64(2, 3), F32(2, 3), NONE, NO, NONE);
    ERROR(DT_E_RUNTIME,
          "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True",
          DT_OP_sdpa, F32(2, 3), F32(2, 3), F32(2, 3), F32(2, 2), arg_bool(true), NONE);
    ERROR(DT_E_RUNTIME,
          "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: 1 "
          "key.dim: 2 and value.dim: 2 instead.",
          DT_OP_sdpa, F32(3), F32(2, 3), F32(2, 3), NONE, NO, NONE);
}
END_TEST

RULE_TESTS("rules_nn", shapes, errors)
