/* rules_select.c: ops whose result's size depends on values, and writes through a mask.
 *
 * Their outputs are deferred (tensor.h): the one size that only the kernel finds out is -1 in the
 * shape.  Everything else about a call is checked here.
 *
 * Params: nonzero i[0] = 1: one output for each dim; index and index_put i[0] the first dim of
 * inputs[0] (of the output) that the mask covers; unique i[0], i[1] whether there is an inverse,
 * and counts.
 *
 * S1: a mask is a bool tensor of exactly the sizes of the dims that it covers.
 */
#include <string.h>

#include "runtime/infer.h"
#include "runtime/rules.h"

/* ---- nonzero --------------------------------------------------------------------------------- */

dt_status dt_infer_nonzero(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    DT_TRY(dt_rule_call(c, 1, 1, &t));
    c->call.params.i[0] = 0;
    /* Columns, as torch has it: what nonzero(as_tuple=True) takes apart is dense. */
    return dt_rule_out_deferred(c, DT_I64, &(dt_dims){.rank = 2, .v = {-1, t->rank}}, true);
}

/* One vector of places for each dim; a number counts as a vector of one. */
dt_status dt_infer_nonzero_tuple(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    int count = t->rank > 0 ? t->rank : 1;
    DT_TRY(dt_rule_call(c, count, 1, &t));
    c->call.params.i[0] = 1;
    for (int k = 0; k < count; k++)
        DT_TRY(dt_rule_out_deferred(c, DT_I64, &(dt_dims){.rank = 1, .v = {-1}}, false));
    return DT_OK;
}

/* ---- by a mask ------------------------------------------------------------------------------- */

dt_status dt_infer_masked_select(dt_op_call *c) {
    dt_tensor *t = c->args[0].t, *mask = c->args[1].t, *inputs[2] = {NULL, NULL};
    if (mask->dtype != DT_BOOL)
        return dt_fail(DT_E_RUNTIME, "masked_select: expected BoolTensor for mask");
    dt_dims a = dt_tensor_dims(mask), b = dt_tensor_dims(t), both;
    DT_TRY(dt_shape_broadcast(&a, &b, &both));
    dt_status status = dt_rule_expand(t, &both, &inputs[0]);
    if (status == DT_OK) status = dt_rule_expand(mask, &both, &inputs[1]);
    if (status == DT_OK) status = dt_rule_call(c, 1, 2, inputs);
    for (int k = 0; k < 2; k++)
        if (inputs[k] != NULL) dt_tensor_release(inputs[k]);
    DT_TRY(status);
    c->call.params.i[0] = 0;
    return dt_rule_out_deferred(c, (dt_dtype)t->dtype, &(dt_dims){.rank = 1, .v = {-1}}, false);
}

/* The text is that of the index: at dims of the mask, and of what it indexes. */
static dt_status check_mask(const dt_tensor *t, const dt_tensor *mask, int dim) {
    if (mask->dtype != DT_BOOL)
        return dt_fail(DT_E_INDEX, "tensors used as masks must be bool tensors");
    for (int d = 0; d < mask->rank; d++) {
        char a[200], b[200];
        if (dim + d < t->rank && mask->shape[d] == t->shape[dim + d]) continue;
        return dt_fail(DT_E_INDEX,
                       "The shape of the mask %s at index %d does not match the shape of the "
                       "indexed tensor %s at index %d",
                       dt_shape_format(mask->rank, mask->shape, a, sizeof a), d,
                       dt_shape_format(t->rank, t->shape, b, sizeof b), dim + d);
    }
    return DT_OK;
}

/* t[:, mask]: the dims that the mask covers become one, of unknown size. */
static dt_status selected_shape(const dt_tensor *t, const dt_tensor *mask, int dim,
                                dt_dims *shape) {
    if (t->rank - mask->rank + 1 > DT_RANK_MAX)
        return dt_fail(DT_E_INDEX, "the result would have more than %d dimensions", DT_RANK_MAX);
    shape->rank = 0;
    for (int d = 0; d < dim; d++) shape->v[shape->rank++] = t->shape[d];
    shape->v[shape->rank++] = -1;
    for (int d = dim + mask->rank; d < t->rank; d++) shape->v[shape->rank++] = t->shape[d];
    return DT_OK;
}

dt_status dt_infer_index_mask(dt_op_call *c) {
    dt_tensor *inputs[2] = {c->args[0].t, c->args[1].t};
    int dim = (int)c->args[2].i;
    dt_dims shape;
    DT_TRY(check_mask(inputs[0], inputs[1], dim));
    DT_TRY(selected_shape(inputs[0], inputs[1], dim, &shape));
    DT_TRY(dt_rule_call(c, 1, 2, inputs));
    c->call.params.i[0] = dim;
    return dt_rule_out_deferred(c, (dt_dtype)inputs[0]->dtype, &shape, false);
}

/* "[2, -1]" with "?" for what is unknown. */
static const char *format_selected(const dt_dims *shape, char *buffer, int size) {
    char *unknown = strstr(dt_shape_format(shape->rank, shape->v, buffer, size), "-1");
    if (unknown != NULL) {
        *unknown = '?';
        memmove(unknown + 1, unknown + 2, strlen(unknown + 2) + 1);
    }
    return buffer;
}

/* Whether value broadcasts to shape as far as that is known. */
static dt_status check_value(const dt_tensor *value, const dt_dims *shape) {
    int lead = shape->rank - value->rank;
    bool fits = lead >= 0;
    for (int d = 0; fits && d < value->rank; d++) {
        int64_t want = shape->v[lead + d];
        fits = value->shape[d] == 1 || want == -1 || value->shape[d] == want;
    }
    if (fits) return DT_OK;
    char a[200], b[200];
    return dt_fail(
        DT_E_RUNTIME,
        "shape mismatch: value tensor of shape %s cannot be broadcast to indexing result "
        "of shape %s",
        dt_shape_format(value->rank, value->shape, a, sizeof a),
        format_selected(shape, b, sizeof b));
}

/* t[:, mask] = value, in place: the output is t itself, of which the kernel writes a part. */
dt_status dt_infer_index_put_mask(dt_op_call *c) {
    dt_tensor *t = c->args[0].t, *inputs[2] = {c->args[1].t, c->args[2].t};
    int dim = (int)c->args[3].i;
    dt_dims shape;
    DT_TRY(check_mask(t, inputs[0], dim));
    DT_TRY(selected_shape(t, inputs[0], dim, &shape));
    if (t->dtype != inputs[1]->dtype)
        return dt_fail(DT_E_RUNTIME,
                       "Index put requires the source and destination dtypes match, got %s for the "
                       "destination and %s for the source.",
                       dt_dtype_table[t->dtype].long_name,
                       dt_dtype_table[inputs[1]->dtype].long_name);
    DT_TRY(check_value(inputs[1], &shape));
    DT_TRY(dt_rule_call(c, 1, 2, inputs));
    c->call.params.i[0] = dim;
    c->outs[c->nout++] = dt_tensor_retain(t);
    return DT_OK;
}

/* ---- unique ---------------------------------------------------------------------------------- */

/* values, and as asked for: where each element went, how often each value occurs. */
dt_status dt_infer_unique(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    bool inverse = c->args[1].i != 0, counts = c->args[2].i != 0;
    dt_dims unknown = {.rank = 1, .v = {-1}}, shape = dt_tensor_dims(t);
    DT_TRY(dt_rule_call(c, 1 + inverse + counts, 1, &t));
    c->call.params.i[0] = inverse;
    c->call.params.i[1] = counts;
    DT_TRY(dt_rule_out_deferred(c, (dt_dtype)t->dtype, &unknown, false));
    if (inverse) DT_TRY(dt_rule_out(c, DT_I64, &shape));
    if (counts) DT_TRY(dt_rule_out_deferred(c, DT_I64, &unknown, false));
    return DT_OK;
}

/* ---- deferred tensors themselves ------------------------------------------------------------- */

/* A copy of a deferred tensor, without waiting for it: to_torch_async(). It may have been settled
 * since the caller looked; then it still lies as its producer made it, without gaps. */
dt_status dt_infer_clone_deferred(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    dt_dims shape = dt_tensor_dims(t);
    DT_TRY(dt_rule_call(c, 1, 1, &t));
    if (!dt_tensor_is_deferred(t)) {
        DT_TRY(dt_tensor_new_strided((dt_dtype)t->dtype, t->rank, t->shape, t->strides, c->outs));
        c->nout = 1;
        return DT_OK;
    }
    return dt_rule_out_deferred(c, (dt_dtype)t->dtype, &shape, t->flags & DT_TENSOR_COLUMNS);
}
