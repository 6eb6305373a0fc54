/* test_rules_join.c: shapes, dtypes and errors of cat, stack and lookups. */
#include "tests/c/rules_support.h"

#define LIST(...)                                                                                  \
    arg_list(                                                                                      \
        list_of((int)(sizeof((dt_arg[]){__VA_ARGS__}) / sizeof(dt_arg)), (dt_arg[]){__VA_ARGS__}), \
        (int)(sizeof((dt_arg[]){__VA_ARGS__}) / sizeof(dt_arg)))

static dt_tensor **list_of(int n, const dt_arg *args) {
    static dt_tensor *list[8];
    for (int k = 0; k < n; k++) list[k] = args[k].t;
    return list;
}

START_TEST(shapes_and_dtypes) {
    META(DT_F32, SHAPE(5, 3), SHAPE(3, 1), DT_OP_cat, LIST(F32(2, 3), I64(3, 3)), arg_int(0));
    META(DT_F64, SHAPE(2, 2), SHAPE(2, 1), DT_OP_cat, LIST(F64(0), F32(2, 2)), arg_int(0));
    META(DT_F32, SHAPE(2, 3, 2), SHAPE(6, 2, 1), DT_OP_stack, LIST(F32(2, 3), F32(2, 3)),
         arg_int(-1));
    META(DT_F32, SHAPE(2, 2, 4), SHAPE(8, 4, 1), DT_OP_embedding__new, F32(5, 4), I64(2, 2));
    META(DT_F32, SHAPE(3, 7), SHAPE(7, 1), DT_OP_index_select, F32(3, 2), arg_int(1), I64(7));
    META(DT_F32, SHAPE(1, 2), SHAPE(2, 1), DT_OP_gather__dim, F32(3, 2), arg_int(0),
         ONES(DT_I32, 1, 2));
}
END_TEST

START_TEST(errors) {
    ERROR(DT_E_VALUE, "torch.cat(): expected a non-empty list of Tensors", DT_OP_cat,
          arg_list(NULL, 0), arg_int(0));
    ERROR(DT_E_RUNTIME, "zero-dimensional tensor (at position 0) cannot be concatenated", DT_OP_cat,
          LIST(ZERO_DIM(DT_F32), F32(2)), arg_int(0));
    ERROR(DT_E_RUNTIME, "Tensors must have same number of dimensions: got 1 and 2", DT_OP_cat,
          LIST(F32(2), F32(2, 2)), arg_int(0));
    ERROR(DT_E_RUNTIME,
          "Sizes of tensors must match except in dimension 0. Expected size 3 but got size 4 for "
          "tensor number 1 in the list.",
          DT_OP_cat, LIST(F32(2, 3), F32(2, 4)), arg_int(0));
    ERROR(DT_E_INDEX, "Dimension out of range (expected to be in range of [-1, 0], but got 3)",
          DT_OP_cat, LIST(F32(2)), arg_int(3));
    ERROR(DT_E_RUNTIME, "stack expects a non-empty TensorList", DT_OP_stack, arg_list(NULL, 0),
          arg_int(0));
    ERROR(DT_E_RUNTIME,
          "stack expects each tensor to be equal size, but got [2] at entry 0 and [3] at entry 1",
          DT_OP_stack, LIST(F32(2), F32(3)), arg_int(0));
    ERROR(DT_E_INDEX, "Dimension out of range (expected to be in range of [-2, 1], but got 3)",
          DT_OP_stack, LIST(F32(2)), arg_int(3));
    ERROR(DT_E_RUNTIME, "'weight' must be 2-D", DT_OP_embedding__new, F32(3), I64(1));
    ERROR(DT_E_RUNTIME,
          "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
          "Long, Int; but got torch.FloatTensor instead (while checking arguments for embedding)",
          DT_OP_embedding__new, F32(3, 2), F32(1));
    ERROR(DT_E_INDEX, "index_select(): Index is supposed to be a vector", DT_OP_index_select,
          F32(3, 2), arg_int(0), I64(1, 1));
    ERROR(DT_E_RUNTIME, "index_select(): Expected dtype int32 or int64 for index",
          DT_OP_index_select, F32(3), arg_int(0), F32(1));
    ERROR(DT_E_RUNTIME, "index_select(): Index to scalar can have only 1 value, got 2 value(s)",
          DT_OP_index_select, ZERO_DIM(DT_F32), arg_int(0), I64(2));
    ERROR(DT_E_RUNTIME, "gather(): Expected dtype int32/int64 for index", DT_OP_gather__dim, F32(3),
          arg_int(0), F32(1));
    ERROR(DT_E_RUNTIME, "Index tensor must have the same number of dimensions as input tensor",
          DT_OP_gather__dim, F32(3, 2), arg_int(0), I64(1));
    ERROR(
        DT_E_RUNTIME,
        "Size does not match at dimension 1 expected index [1, 5] to be no larger than self [3, 2] "
        "apart from dimension 0",
        DT_OP_gather__dim, F32(3, 2), arg_int(0), I64(1, 5));
}
END_TEST

START_TEST(more_inputs_than_a_call_holds) {
    enum { N = 70000 };
    static dt_tensor *list[N];
    dt_tensor *one = ones_of(DT_F32, SHAPE(1));
    for (int k = 0; k < N; k++) list[k] = one;
    ERROR(DT_E_RUNTIME, "cat(): 70000 tensors are more than 65535, the most that one call takes",
          DT_OP_cat, arg_list(list, N), arg_int(0));
    ERROR(DT_E_RUNTIME, "stack(): 70000 tensors are more than 65535, the most that one call takes",
          DT_OP_stack, arg_list(list, N), arg_int(0));
}
END_TEST

RULE_TESTS("rules_join", shapes_and_dtypes, errors, more_inputs_than_a_call_holds)
