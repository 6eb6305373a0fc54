/* rules_support.h: checks of one rule: the metadata of its output, or its error. Texts and strides
 * in the tests that use it are torch 2.13's own answers. */
#ifndef DT_TESTS_RULES_SUPPORT_H
#define DT_TESTS_RULES_SUPPORT_H

#include "tests/c/op_support.h"

/* Inputs live until the end of a test. */
static dt_tensor *kept[512];
static int kept_count;

static OP_UNUSED dt_tensor *keep(dt_tensor *t) {
    ck_assert_int_lt(kept_count, 512);
    kept[kept_count++] = t;
    return t;
}

static OP_UNUSED void release_kept(void) {
    while (kept_count > 0) dt_tensor_release(kept[--kept_count]);
}

/* A tensor of ones. */
static OP_UNUSED dt_tensor *ones_of(dt_dtype dtype, dt_dims shape) {
    dt_tensor *t = keep(tensor_new(dtype, shape));
    for (int64_t i = 0; i < t->numel; i++) set_value(t, i, 1);
    return t;
}
#define ONES(dtype, ...) arg_tensor(ones_of(dtype, SHAPE(__VA_ARGS__)))
#define F32(...) ONES(DT_F32, __VA_ARGS__)
#define F64(...) ONES(DT_F64, __VA_ARGS__)
#define I64(...) ONES(DT_I64, __VA_ARGS__)
#define BOOLS(...) ONES(DT_BOOL, __VA_ARGS__)
#define ZERO_DIM(dtype) arg_tensor(ones_of(dtype, SCALAR_SHAPE))

static OP_UNUSED dt_arg transposed(dt_arg a) {
    dt_tensor *t = a.t;
    return arg_tensor(keep(
        view_of(t, SHAPE(t->shape[1], t->shape[0]), (int64_t[]){t->strides[1], t->strides[0]}, 0)));
}

static OP_UNUSED dt_status rule_invoke(dt_op_call *c) { return op_run_parts(c, 1); }

/* The rule alone: outs[0]'s metadata, released again. */
static OP_UNUSED void check_meta(int line, dt_dtype dtype, dt_dims shape, dt_dims strides,
                                 dt_op_id id, int nargs, const dt_arg *args) {
    dt_op_call c;
    op_prepare(&c, id, nargs, args);
    dt_rule_invoke = rule_invoke;
    test_assert_ok(c.op->rule(&c), dt_op_table[id].full_name, line);
    const dt_tensor *t = c.outs[0];
    char got[200], want[200];
    ck_assert_msg(t->dtype == dtype, "line %d: dtype %s", line, dt_dtype_table[t->dtype].name);
    ck_assert_msg(strcmp(dt_shape_format(t->rank, t->shape, got, 200),
                         dt_shape_format(shape.rank, shape.v, want, 200)) == 0,
                  "line %d: shape %s, not %s", line, got, want);
    ck_assert_msg(strcmp(dt_shape_format(t->rank, t->strides, got, 200),
                         dt_shape_format(strides.rank, strides.v, want, 200)) == 0,
                  "line %d: strides %s, not %s", line, got, want);
    ck_assert_int_eq(t->contiguous, dt_shape_is_contiguous(t->rank, t->shape, t->strides));
    dt_op_call_clear(&c);
}
#define META(dtype, shape, strides, id, ...)                                                       \
    check_meta(__LINE__, dtype, shape, strides, id, ARGS(__VA_ARGS__))

/* The rule fails with this error and leaves nothing behind. */
static OP_UNUSED void check_error(int line, dt_status status, const char *text, dt_op_id id,
                                  int nargs, const dt_arg *args) {
    dt_op_call c;
    op_prepare(&c, id, nargs, args);
    dt_rule_invoke = rule_invoke;
    dt_memory_stats before = test_memory();
    test_assert_fails(c.op->rule(&c), status, text, line);
    dt_op_call_clear(&c);
    test_assert_no_leak(before);
}
#define ERROR(status, text, id, ...) check_error(__LINE__, status, text, id, ARGS(__VA_ARGS__))

#define RULE_TESTS(suite_name, ...)                                                                \
    int main(void) {                                                                               \
        Suite *suite = suite_create(suite_name);                                                   \
        TCase *tcase = tcase_create(suite_name);                                                   \
        const TTest *const tests[] = {__VA_ARGS__};                                                \
        tcase_add_checked_fixture(tcase, NULL, release_kept);                                      \
        for (size_t k = 0; k < sizeof tests / sizeof tests[0]; k++)                                \
            tcase_add_test(tcase, tests[k]);                                                       \
        suite_add_tcase(suite, tcase);                                                             \
        return test_run(suite);                                                                    \
    }

#endif
