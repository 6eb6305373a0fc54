/* rules_reduce.c: shapes and dtypes of reductions and scans.
 *
 * Params: i[0] bit mask of the reduced input dims; arg reductions and scans: i[1] the dim (-1: all
 * elements, row-major); var/std f[0] correction; norm f[0] p.  i[2] is the number of elements that
 * make one of the result, on a mesh of the whole: by it a mean divides, and a part that has none of
 * them gives what changes nothing.  call.compute is the dtype of the result; kernels accumulate
 * halves in float.
 */
#include <math.h>

#include "runtime/infer.h"
#include "runtime/rules.h"
#include "runtime/shard.h"

static const dt_dims *optional_dims(const dt_op_call *c, int k) {
    return dt_arg_given(c, k) ? c->args[k].dims : NULL;
}

static int64_t elements_reduced(const dt_op_call *c, const dt_tensor *t, uint32_t mask) {
    if (c->spot != NULL) return c->spot->ask->call->call.params.i[2];
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        if (mask >> d & 1) n *= t->shape[d];
    return n;
}

static dt_status reduction(dt_op_call *c, dt_tensor *t, const dt_dims *dims, bool keepdim,
                           dt_dtype compute, dt_dtype out_dtype) {
    uint32_t mask;
    dt_dims shape;
    DT_TRY(dt_rule_reduced_dims(t, dims, keepdim, &mask, &shape));
    DT_TRY(dt_rule_call(c, 1, 1, &t));
    c->call.compute = (uint8_t)compute;
    c->call.params.i[0] = mask;
    c->call.params.i[2] = elements_reduced(c, t, mask);
    return dt_rule_out(c, out_dtype, &shape);
}

/* sum, prod: integers accumulate in int64. */
dt_status dt_infer_reduce_sum(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    dt_dtype dtype = dt_arg_given(c, 3)                      ? c->args[3].dtype
                     : dt_dtype_is_float((dt_dtype)t->dtype) ? (dt_dtype)t->dtype
                                                             : DT_I64;
    const dt_dims *dims = optional_dims(c, 1);
    if (c->op->id == DT_OP_prod && dims && dims->rank > 1)
        return dt_fail(DT_E_TYPE, "prod(): argument 'dim' must be int, not tuple of ints");
    return reduction(c, t, dims, c->args[2].i, dtype, dtype);
}

dt_status dt_infer_reduce_mean(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    dt_dtype dtype = dt_arg_given(c, 3) ? c->args[3].dtype : (dt_dtype)t->dtype;
    if (!dt_dtype_is_float(dtype))
        return dt_fail(
            DT_E_RUNTIME,
            dt_arg_given(c, 3)
                ? "mean(): could not infer output dtype. Optional dtype must be either a "
                  "floating point or complex dtype. Got: %s"
                : "mean(): could not infer output dtype. Input dtype must be either a "
                  "floating point or complex dtype. Got: %s",
            dt_dtype_table[dtype].long_name);
    return reduction(c, t, optional_dims(c, 1), c->args[2].i, dtype, dtype);
}

/* Reductions without an identity need at least one element in each reduced dim. */
static dt_status check_not_empty(const dt_op_call *c, const dt_tensor *t, uint32_t mask,
                                 bool dims_given, dt_status error) {
    char name[48];
    dt_op_display_name(c->op, name, sizeof name);
    if (t->numel != 0 || c->spot != NULL) return DT_OK; /* a part may be empty */
    if (!dims_given)
        return dt_fail(
            error, "%s(): Expected reduction dim to be specified for input.numel() == 0.%s", name,
            c->op->id == DT_OP_argmax || c->op->id == DT_OP_argmin
                ? ""
                : " Specify the reduction dim with the 'dim' argument.");
    for (int d = 0; d < t->rank; d++)
        if ((mask >> d & 1) && t->shape[d] == 0)
            return dt_fail(error, "%s(): Expected reduction dim %d to have non-zero size.", name,
                           d);
    return DT_OK;
}

dt_status dt_infer_reduce_minmax(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    const dt_dims *dims = optional_dims(c, 1);
    DT_TRY(reduction(c, t, dims, c->args[2].i, (dt_dtype)t->dtype, (dt_dtype)t->dtype));
    bool given = dims && dims->rank > 0;
    return check_not_empty(c, t, (uint32_t)c->call.params.i[0], given,
                           given ? DT_E_INDEX : DT_E_RUNTIME);
}

static dt_status single_dim(dt_tensor *t, int64_t dim, dt_dims *dims) {
    int d;
    DT_TRY(dt_shape_wrap_dim(dim, t->rank, true, &d));
    *dims = (dt_dims){.rank = 1, .v = {d}};
    return DT_OK;
}

dt_status dt_infer_reduce_arg(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    if (t->dtype == DT_BOOL)
        return dt_fail(DT_E_RUNTIME, "%s(): does not support bool input", c->op->full_name);
    dt_dims dims;
    bool given = dt_arg_given(c, 1);
    if (given) DT_TRY(single_dim(t, c->args[1].i, &dims));
    DT_TRY(reduction(c, t, given ? &dims : NULL, c->args[2].i, (dt_dtype)t->dtype, DT_I64));
    c->call.params.i[1] = given && t->rank ? dims.v[0] : -1;
    return check_not_empty(c, t, (uint32_t)c->call.params.i[0], given, DT_E_INDEX);
}

dt_status dt_infer_reduce_minmax_dim(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    dt_dims dims, shape;
    uint32_t mask;
    DT_TRY(single_dim(t, c->args[1].i, &dims));
    DT_TRY(dt_rule_reduced_dims(t, &dims, c->args[2].i, &mask, &shape));
    DT_TRY(check_not_empty(c, t, mask, true, DT_E_INDEX));
    DT_TRY(dt_rule_call(c, 2, 1, &t));
    c->call.compute = t->dtype;
    c->call.params.i[0] = mask;
    c->call.params.i[1] = t->rank ? dims.v[0] : -1;
    DT_TRY(dt_rule_out(c, (dt_dtype)t->dtype, &shape));
    return dt_rule_out(c, DT_I64, &shape);
}

/* any, all: bool, but uint8 stays uint8 as in torch. */
dt_status dt_infer_reduce_bool(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    dt_dtype out = t->dtype == DT_U8 ? DT_U8 : DT_BOOL;
    return reduction(c, t, optional_dims(c, 1), c->args[2].i, (dt_dtype)t->dtype, out);
}

dt_status dt_infer_reduce_var(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    if (!dt_dtype_is_float((dt_dtype)t->dtype))
        return dt_fail(DT_E_RUNTIME, "%s only support floating point and complex dtypes",
                       c->op->id == DT_OP_var__new ? "std and var" : "std and var");
    DT_TRY(
        reduction(c, t, optional_dims(c, 1), c->args[3].i, (dt_dtype)t->dtype, (dt_dtype)t->dtype));
    c->call.params.f[0] = dt_scalar_f64(c->args[2].s);
    return DT_OK;
}

dt_status dt_infer_reduce_norm(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    dt_dtype dtype = dt_arg_given(c, 4) ? c->args[4].dtype : (dt_dtype)t->dtype;
    if (!dt_dtype_is_float(dtype))
        return dt_fail(DT_E_RUNTIME,
                       "linalg.vector_norm: Expected a floating point or complex tensor as input. "
                       "Got %s",
                       dt_dtype_table[dtype].long_name);
    DT_TRY(reduction(c, t, optional_dims(c, 2), c->args[3].i, dtype, dtype));
    c->call.params.f[0] = dt_scalar_f64(c->args[1].s);
    return DT_OK;
}

dt_status dt_infer_reduce_lse(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    dt_dtype dtype =
        dt_dtype_is_float((dt_dtype)t->dtype) ? (dt_dtype)t->dtype : dt_default_dtype();
    return reduction(c, t, c->args[1].dims, c->args[2].i, dtype, dtype);
}

dt_status dt_infer_scan(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    int d;
    DT_TRY(dt_shape_wrap_dim(c->args[1].i, t->rank, true, &d));
    dt_dtype dtype = dt_arg_given(c, 2)                      ? c->args[2].dtype
                     : dt_dtype_is_float((dt_dtype)t->dtype) ? (dt_dtype)t->dtype
                                                             : DT_I64;
    dt_dims shape = dt_tensor_dims(t);
    DT_TRY(dt_rule_call(c, 1, 1, &t));
    c->call.compute = (uint8_t)dtype;
    c->call.params.i[1] = t->rank ? d : -1;
    return dt_rule_out(c, dtype, &shape);
}
