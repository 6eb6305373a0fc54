/* rules_elementwise.c: shapes and dtypes of element-wise ops.
 *
 * One path for all: collect operands (tensors and numbers), promote, broadcast, create the output
 * with torch's stride order, fill the call.  A number stays an immediate of the call; it never
 * becomes a tensor.
 */
#include <string.h>

#include "runtime/assert.h"
#include "runtime/infer.h"
#include "runtime/rules.h"
#include "runtime/shard.h"

#define OPERANDS_MAX 4

/* Which of dims a and b lies outside the other in memory, by the first operand that tells: 1 is a,
 * -1 is b, 0 is not known. */
static int compare_dims(int a, int b, const dt_dims *shape, dt_tensor *const *operands, int n) {
    for (int k = 0; k < n; k++) {
        if (!operands[k]) continue;
        int64_t sa = operands[k]->strides[a], sb = operands[k]->strides[b];
        if (sa == 0 || sb == 0) continue;
        if (sa != sb) return sa > sb ? 1 : -1;
        if (shape->v[a] < shape->v[b]) return -1;
    }
    return 0;
}

void dt_rule_dims_in_memory(const dt_dims *shape, dt_tensor *const *operands, int n, int *order) {
    for (int d = 0; d < shape->rank; d++) order[d] = d;
    for (int first = shape->rank - 2; first >= 0; first--) {
        int at = first;
        for (int k = first + 1; k < shape->rank; k++) {
            int found = compare_dims(order[at], order[k], shape, operands, n);
            if (found > 0) break;
            if (found == 0) continue; /* the next one may tell */
            int outer = order[k];
            order[k] = order[at];
            order[at] = outer;
            at = k;
        }
    }
}

/* Where no operand is a number, and all lie without gaps in the same way, torch takes their strides
 * as they are, those of dims of size 1 included; these say where such a dim lies in a later op. */
static void keep_unit_strides(const dt_dims *shape, dt_tensor *const *inputs, int n,
                              int64_t *strides) {
    for (int k = 0; k < n; k++) {
        if (!inputs[k]) return;
        for (int d = 0; d < shape->rank; d++) {
            int64_t stride = shape->v[d] == 1 ? inputs[0]->strides[d] : strides[d];
            if (inputs[k]->strides[d] != stride) return;
        }
    }
    memcpy(strides, inputs[0]->strides, sizeof(int64_t) * (size_t)shape->rank);
}

static void output_strides(const dt_dims *shape, dt_tensor *const *inputs, int n,
                           int64_t *strides) {
    int order[DT_RANK_MAX] = {0};
    dt_rule_dims_in_memory(shape, inputs, n, order);
    int64_t stride = 1;
    for (int k = shape->rank - 1; k >= 0; k--) {
        strides[order[k]] = stride;
        stride *= shape->v[order[k]] > 1 ? shape->v[order[k]] : 1;
    }
    keep_unit_strides(shape, inputs, n, strides);
}

static dt_status create_output(dt_op_call *c, dt_dtype out_dtype, const dt_dims *shape,
                               dt_tensor *const *inputs, int n) {
    bool plain = true;
    for (int k = 0; k < n; k++)
        if (inputs[k] && !inputs[k]->contiguous) plain = false;
    if (plain) return dt_rule_out(c, out_dtype, shape);
    int64_t strides[DT_RANK_MAX];
    output_strides(shape, inputs, n, strides);
    DT_TRY(dt_tensor_new_strided(out_dtype, shape->rank, shape->v, strides, &c->outs[0]));
    c->nout = 1;
    return DT_OK;
}

static dt_status broadcast_operands(const dt_arg *const *operands, int n, dt_dims *shape) {
    bool any = false;
    shape->rank = 0;
    for (int k = 0; k < n; k++) {
        if (operands[k]->kind != DT_ARG_TENSOR) continue;
        const dt_tensor *t = operands[k]->t;
        if (!any || t->rank == 0) {
            if (!any || shape->rank == 0) *shape = dt_tensor_dims(t);
            any = true;
            continue;
        }
        bool same = shape->rank == t->rank &&
                    !memcmp(shape->v, t->shape, sizeof(int64_t) * (size_t)t->rank);
        if (same) continue;
        dt_dims other = dt_tensor_dims(t), joint;
        DT_TRY(dt_shape_broadcast(shape, &other, &joint));
        *shape = joint;
    }
    return DT_OK;
}

/* The call but for its output, which has that shape. */
static dt_status fill_call(dt_op_call *c, const dt_arg *const *operands, int n, dt_dtype compute,
                           dt_dims *shape) {
    DT_ASSERT(n >= 1 && n <= OPERANDS_MAX);
    DT_TRY(broadcast_operands(operands, n, shape));
    DT_TRY(dt_rule_call(c, 1, n, NULL));
    c->call.compute = (uint8_t)compute;
    for (int k = 0; k < n; k++) {
        if (operands[k]->kind == DT_ARG_SCALAR) {
            c->call.immediates[k] = operands[k]->s;
            continue;
        }
        dt_tensor *t = operands[k]->t;
        bool same = t->rank == shape->rank &&
                    !memcmp(t->shape, shape->v, sizeof(int64_t) * (size_t)shape->rank);
        if (same)
            c->call.operands[1 + k] = dt_tensor_retain(t);
        else
            DT_TRY(dt_rule_expand(t, shape, &c->call.operands[1 + k]));
    }
    return DT_OK;
}

dt_status dt_rule_elementwise(dt_op_call *c, const dt_arg *const *operands, int n, dt_dtype compute,
                              dt_dtype out_dtype) {
    dt_dims shape;
    DT_TRY(fill_call(c, operands, n, compute, &shape));
    return create_output(c, out_dtype, &shape, c->call.operands + 1, n);
}

/* ---- dtype rules ---------------------------------------------------------------------------- */

static dt_status refuse_bool(const dt_op_call *c, int bools, int n) {
    switch (c->op->id) {
    case DT_OP_neg:
    case DT_OP_negative:
        return dt_fail(DT_E_RUNTIME,
                       "Negation, the `-` operator, on a bool tensor is not supported. If you are "
                       "trying to invert a mask, use the `~` or `logical_not()` operator instead.");
    case DT_OP_relu:
        return dt_fail(DT_E_RUNTIME, "Boolean inputs not supported for relu");
    default:
        if (bools == n)
            return dt_fail(DT_E_RUNTIME,
                           "Subtraction, the `-` operator, with two bool tensors is not supported. "
                           "Use the `^` or `logical_xor()` operator instead.");
        return dt_fail(DT_E_RUNTIME,
                       "Subtraction, the `-` operator, with a bool tensor is not supported. If you "
                       "are trying to invert a mask, use the `~` or `logical_not()` operator "
                       "instead.");
    }
}

static bool arg_is_bool(const dt_arg *a) {
    return a->kind == DT_ARG_TENSOR ? a->t->dtype == DT_BOOL
                                    : a->kind == DT_ARG_SCALAR && a->s.category == DT_CAT_BOOL;
}

static dt_status unsupported(const dt_op_call *c, dt_dtype dtype) {
    char name[48];
    if (c->op->id == DT_OP_gelu)
        return dt_fail(DT_E_NOT_IMPLEMENTED, "\"GeluKernelImpl\" not implemented for '%s'",
                       dt_dtype_table[dtype].long_name);
    return dt_fail(DT_E_NOT_IMPLEMENTED, "\"%s_cpu\" not implemented for '%s'",
                   dt_op_display_name(c->op, name, sizeof name), dt_dtype_table[dtype].long_name);
}

/* compute and output dtype of c's row for operands of promoted type `common`. */
static dt_status apply_dtype_rule(dt_op_call *c, const dt_arg *const *operands, int n,
                                  dt_dtype common, dt_dtype *compute, dt_dtype *out) {
    *compute = common;
    *out = common;
    switch ((dt_dtype_rule)c->op->dtypes) {
    case DT_DTYPES_NONE:
    case DT_DTYPES_SAME:
    case DT_DTYPES_PROMOTE:
        return DT_OK;
    case DT_DTYPES_NUMBER:
        return common == DT_BOOL ? unsupported(c, common) : DT_OK;
    case DT_DTYPES_SQUARE:
        if (common == DT_BOOL) *compute = *out = DT_I64;
        return DT_OK;
    case DT_DTYPES_FLOAT:
        if (!dt_dtype_is_float(common)) *compute = *out = dt_default_dtype();
        return DT_OK;
    case DT_DTYPES_COMPARE:
        *out = DT_BOOL;
        return DT_OK;
    case DT_DTYPES_SHIFT:
        if (common == DT_BOOL) return unsupported(c, common);
        /* fall through */
    case DT_DTYPES_BITWISE:
        if (dt_dtype_is_float(common)) return unsupported(c, common);
        return DT_OK;
    case DT_DTYPES_NOBOOL: {
        int bools = 0;
        for (int k = 0; k < n; k++) bools += arg_is_bool(operands[k]);
        if (bools > 0) return refuse_bool(c, bools, n);
        return DT_OK;
    }
    case DT_DTYPES_FLOATONLY:
        if (!dt_dtype_is_float(common)) return unsupported(c, common);
        return DT_OK;
    }
    return DT_OK;
}

static dt_status elementwise_args(dt_op_call *c, const dt_arg *const *operands, int n) {
    dt_promotion p = DT_PROMOTION_INIT;
    for (int k = 0; k < n; k++) {
        if (operands[k]->kind == DT_ARG_TENSOR)
            dt_promotion_add_tensor(&p, operands[k]->t);
        else
            dt_promotion_add_scalar(&p, operands[k]->s);
    }
    dt_dtype compute, out;
    DT_TRY(apply_dtype_rule(c, operands, n, dt_promotion_result(&p), &compute, &out));
    return dt_rule_elementwise(c, operands, n, compute, out);
}

static int collect(const dt_op_call *c, int limit, const dt_arg **operands) {
    int n = 0;
    for (int k = 0; k < c->nargs && n < limit; k++)
        if (c->args[k].kind == DT_ARG_TENSOR || c->args[k].kind == DT_ARG_SCALAR)
            operands[n++] = &c->args[k];
    return n;
}

/* All tensor and number arguments are operands. */
dt_status dt_infer_ew(dt_op_call *c) {
    const dt_arg *operands[OPERANDS_MAX];
    int n = collect(c, OPERANDS_MAX, operands);
    return elementwise_args(c, operands, n);
}

static dt_status set_param(dt_op_call *c, int k, dt_scalar s, const char *what) {
    dt_dtype compute = (dt_dtype)c->call.compute;
    if (s.category == DT_CAT_FLOAT && !dt_dtype_is_float(compute))
        return dt_fail(DT_E_RUNTIME,
                       "For integral input tensors, argument %s must not be a floating point "
                       "number.",
                       what);
    if (s.category == DT_CAT_BOOL && compute != DT_BOOL)
        return dt_fail(DT_E_RUNTIME, "Boolean %s only supported for Boolean results.", what);
    c->call.params.f[k] = dt_scalar_f64(s);
    c->call.params.i[k] = dt_scalar_i64(s);
    return DT_OK;
}

/* The last argument is the parameter p0, all before are operands. */
dt_status dt_infer_ew_p1(dt_op_call *c) {
    const dt_arg *operands[OPERANDS_MAX];
    DT_ASSERT(c->nargs >= 2);
    int n = 0;
    bool integers = true;
    for (int k = 0; k + 1 < c->nargs; k++) {
        operands[n++] = &c->args[k];
        integers &=
            c->args[k].kind == DT_ARG_TENSOR && !dt_dtype_is_float((dt_dtype)c->args[k].t->dtype);
    }
    if (c->op->id == DT_OP_addcdiv && integers)
        return dt_fail(DT_E_RUNTIME,
                       "Integer division with addcdiv is not supported: use input + value * "
                       "trunc(tensor1 / tensor2) or floating-point tensors");
    DT_TRY(elementwise_args(c, operands, n));
    dt_scalar p = c->args[c->nargs - 1].s;
    const char *what =
        c->op->id == DT_OP_elu || c->op->id == DT_OP_addcmul || c->op->id == DT_OP_addcdiv
            ? "value"
            : "alpha";
    return set_param(c, 0, p, what);
}

static void switch_op(dt_op_call *c, dt_op_id id) {
    c->call.op = (uint16_t)id; /* the kernel; c->op stays what the user called */
}

/* a (+|-) alpha * b with operands in the given order. */
static dt_status with_alpha(dt_op_call *c, const dt_arg *a, const dt_arg *b, dt_op_id plain,
                            dt_op_id scaled) {
    const dt_arg *operands[2] = {a, b};
    dt_scalar alpha = c->args[2].s;
    bool one = alpha.category == DT_CAT_FLOAT ? alpha.f == 1.0 : alpha.i == 1;
    switch_op(c, one ? plain : scaled);
    DT_TRY(elementwise_args(c, operands, 2));
    return one ? DT_OK : set_param(c, 0, alpha, "alpha");
}

dt_status dt_infer_add(dt_op_call *c) {
    return with_alpha(c, &c->args[0], &c->args[1], DT_OP_add, DT_OP_add__alpha);
}
dt_status dt_infer_sub(dt_op_call *c) {
    return with_alpha(c, &c->args[0], &c->args[1], DT_OP_sub, DT_OP_sub__alpha);
}
dt_status dt_infer_rsub(dt_op_call *c) {
    return with_alpha(c, &c->args[1], &c->args[0], DT_OP_sub, DT_OP_sub__alpha);
}

dt_status dt_infer_div(dt_op_call *c) {
    const dt_arg *operands[2] = {&c->args[0], &c->args[1]};
    if (!dt_arg_given(c, 2)) return elementwise_args(c, operands, 2);
    const char *mode = c->args[2].str;
    const dt_op *op = c->op;
    if (!strcmp(mode, "trunc"))
        c->op = &dt_op_table[DT_OP_div__trunc];
    else if (!strcmp(mode, "floor"))
        c->op = &dt_op_table[DT_OP_floor_divide];
    else
        return dt_fail(
            DT_E_RUNTIME,
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
            "'%s'",
            mode);
    switch_op(c, (dt_op_id)c->op->id);
    dt_status status = elementwise_args(c, operands, 2); /* by the rounded op's dtype rule */
    c->op = op;
    return status;
}

dt_status dt_infer_round(dt_op_call *c) {
    const dt_arg *operands[1] = {&c->args[0]};
    DT_TRY(elementwise_args(c, operands, 1));
    c->call.params.i[0] = c->args[1].i;
    c->call.params.f[0] = (double)c->args[1].i;
    if (c->args[1].i != 0 && !dt_dtype_is_float((dt_dtype)c->call.compute))
        return unsupported(c, (dt_dtype)c->call.compute);
    return DT_OK;
}

dt_status dt_infer_gelu(dt_op_call *c) {
    const dt_arg *operands[1] = {&c->args[0]};
    const char *mode = c->args[1].str;
    if (!strcmp(mode, "tanh"))
        switch_op(c, DT_OP_gelu__tanh);
    else if (strcmp(mode, "none"))
        return dt_fail(DT_E_RUNTIME, "approximate argument must be either none or tanh.");
    return elementwise_args(c, operands, 1);
}

dt_status dt_infer_softplus(dt_op_call *c) {
    const dt_arg *operands[1] = {&c->args[0]};
    DT_TRY(elementwise_args(c, operands, 1));
    DT_TRY(set_param(c, 0, c->args[1].s, "beta"));
    return set_param(c, 1, c->args[2].s, "threshold");
}

/* A float exponent that has a simpler op with the same value, as torch does. */
static bool pow_shortcut(dt_op_call *c, double e) {
    dt_op_id id = e == 2.0    ? DT_OP_square
                  : e == 0.5  ? DT_OP_sqrt
                  : e == -1.0 ? DT_OP_reciprocal
                  : e == -0.5 ? DT_OP_rsqrt
                              : DT_OP_COUNT;
    if (id == DT_OP_COUNT) return false;
    switch_op(c, id);
    return true;
}

dt_status dt_infer_pow(dt_op_call *c) {
    const dt_arg *operands[2] = {&c->args[0], &c->args[1]};
    dt_promotion p = DT_PROMOTION_INIT;
    for (int k = 0; k < 2; k++) {
        if (operands[k]->kind == DT_ARG_TENSOR)
            dt_promotion_add_tensor(&p, operands[k]->t);
        else
            dt_promotion_add_scalar(&p, operands[k]->s);
    }
    dt_dtype common = dt_promotion_result(&p);
    const dt_arg *e = operands[1];
    if (e->kind == DT_ARG_SCALAR) {
        double exponent = dt_scalar_f64(e->s);
        if (!dt_dtype_is_float(common)) {
            if (exponent < 0)
                return dt_fail(DT_E_RUNTIME,
                               "Integers to negative integer powers are not allowed.");
        } else if (operands[0]->kind == DT_ARG_TENSOR && common != DT_F16 &&
                   pow_shortcut(c, exponent)) { /* torch has no shortcut for float16 */
            return dt_rule_elementwise(c, operands, 1, common, common);
        }
    }
    return dt_rule_elementwise(c, operands, 2, common, common);
}

dt_status dt_infer_where(dt_op_call *c) {
    const dt_arg *operands[3] = {&c->args[0], &c->args[1], &c->args[2]};
    if (operands[0]->t->dtype != DT_BOOL)
        return dt_fail(DT_E_RUNTIME,
                       "where expected condition to be a boolean tensor, but got a tensor with "
                       "dtype %s",
                       dt_dtype_table[operands[0]->t->dtype].long_name);
    dt_promotion p = DT_PROMOTION_INIT;
    for (int k = 1; k < 3; k++) {
        if (operands[k]->kind == DT_ARG_TENSOR)
            dt_promotion_add_tensor(&p, operands[k]->t);
        else
            dt_promotion_add_scalar(&p, operands[k]->s);
    }
    dt_dtype common = dt_promotion_result(&p);
    return dt_rule_elementwise(c, operands, 3, common, common);
}

dt_status dt_infer_masked_fill(dt_op_call *c) {
    dt_tensor *input = c->args[0].t, *mask = c->args[1].t;
    if (mask->dtype != DT_BOOL)
        return dt_fail(DT_E_RUNTIME,
                       "masked_fill_ only supports boolean masks, but got mask with dtype %s",
                       dt_rule_c_name(mask->dtype));
    if (c->args[2].kind == DT_ARG_TENSOR && c->args[2].t->rank != 0)
        return dt_fail(DT_E_RUNTIME,
                       "masked_fill_ only supports a 0-dimensional value tensor, but got tensor "
                       "with %d dimension(s).",
                       c->args[2].t->rank);
    const dt_arg *operands[3] = {&c->args[1], &c->args[2], &c->args[0]};
    dt_dtype dtype = (dt_dtype)input->dtype;
    dt_dims shape;
    DT_TRY(fill_call(c, operands, 3, dtype, &shape));
    return dt_rule_out(c, dtype, &shape); /* row-major, whatever the input is */
}

dt_status dt_infer_clamp(dt_op_call *c) {
    const dt_arg *operands[3] = {&c->args[0], NULL, NULL};
    bool low = dt_arg_given(c, 1), high = dt_arg_given(c, 2);
    if (!low && !high)
        return dt_fail(DT_E_RUNTIME,
                       "torch.clamp: At least one of 'min' or 'max' must not be None");
    if (low && high && c->args[1].kind != c->args[2].kind)
        return dt_fail(
            DT_E_TYPE,
            "clamp(): arguments 'min' and 'max' must both be tensors or both be numbers");
    int n = 1;
    if (low) operands[n++] = &c->args[1];
    if (high) operands[n++] = &c->args[2];
    const dt_op *op = c->op;
    if (n == 2 && operands[1]->kind == DT_ARG_TENSOR) /* of a tensor: defined for bool too */
        c->op = &dt_op_table[low ? DT_OP_maximum : DT_OP_minimum];
    else if (n == 2)
        c->op = &dt_op_table[low ? DT_OP_clamp__min : DT_OP_clamp__max];
    switch_op(c, (dt_op_id)c->op->id);
    dt_status status = elementwise_args(c, operands, n);
    c->op = op;
    return status;
}

dt_status dt_infer_lerp(dt_op_call *c) {
    const dt_arg *operands[3] = {&c->args[0], &c->args[1], &c->args[2]};
    if (operands[0]->t->dtype != operands[1]->t->dtype)
        return dt_fail(DT_E_RUNTIME, "expected dtype %s for `end` but got dtype %s",
                       dt_rule_c_name(operands[0]->t->dtype),
                       dt_rule_c_name(operands[1]->t->dtype));
    if (!dt_dtype_is_float((dt_dtype)operands[0]->t->dtype))
        return unsupported(c, (dt_dtype)operands[0]->t->dtype);
    return elementwise_args(c, operands, 3);
}

/* ---- copies and fills
 * ----------------------------------------------------------------------------- */

static dt_status copy_rule(dt_op_call *c, dt_dtype dtype, bool row_major) {
    const dt_arg *operands[1] = {&c->args[0]};
    if (!row_major) {
        DT_TRY(dt_rule_elementwise(c, operands, 1, (dt_dtype)c->args[0].t->dtype, dtype));
    } else {
        DT_TRY(dt_rule_call(c, 1, 1, &c->args[0].t));
        dt_dims shape = dt_tensor_dims(c->args[0].t);
        c->call.compute = c->args[0].t->dtype;
        DT_TRY(dt_rule_out(c, dtype, &shape));
    }
    return DT_OK;
}

dt_status dt_infer_copy(dt_op_call *c) {
    dt_dtype dtype = dt_arg_given(c, 1) ? c->args[1].dtype : (dt_dtype)c->args[0].t->dtype;
    return copy_rule(c, dtype, false);
}

dt_status dt_infer_clone(dt_op_call *c) {
    bool row_major = dt_arg_given(c, 1) && strstr(c->args[1].str, "contiguous") != NULL;
    return copy_rule(c, (dt_dtype)c->args[0].t->dtype, row_major);
}

/* A contiguous input is returned itself, as an alias: no kernel. */
dt_status dt_infer_contiguous(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    if (t->contiguous) {
        c->outs[0] = dt_tensor_retain(t);
        c->nout = 1;
        c->done = true;
        return DT_OK;
    }
    return copy_rule(c, (dt_dtype)t->dtype, true);
}

/* fill(input, value): the value's tensor must be 0-dim. In place this is fill_. */
dt_status dt_infer_fill(dt_op_call *c) {
    dt_tensor *input = c->args[0].t;
    if (c->args[1].kind == DT_ARG_TENSOR && c->args[1].t->rank != 0)
        return dt_fail(DT_E_RUNTIME,
                       "fill_ only supports 0-dimension value tensor but got tensor with %d "
                       "dimensions.",
                       c->args[1].t->rank);
    dt_dims shape = c->spot != NULL ? dt_spot_out_dims(c->spot, 0) : dt_tensor_dims(input);
    DT_TRY(dt_rule_call(c, 1, 1, NULL));
    c->call.compute = input->dtype;
    if (c->args[1].kind == DT_ARG_TENSOR)
        DT_TRY(dt_rule_expand(c->args[1].t, &shape, &c->call.operands[1]));
    else
        c->call.immediates[0] = c->args[1].s;
    return dt_rule_out(c, (dt_dtype)input->dtype, &shape);
}
