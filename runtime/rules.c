/* rules.c: helpers of the rule functions, and the rules that no family owns.
 *
 * I1: promotion is torch's: within a tier dtypes promote; a lower tier (0-dim tensors, then Python
 *     numbers) changes the result only when its category is higher.
 */
#include "runtime/rules.h"

#include <string.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"

dt_status (*dt_rule_invoke)(dt_op_call *call);
int dt_rule_metadata_only;
dt_generator dt_default_generator = {.seed = 67280421310721u, .offset = 0};

const char *dt_rule_c_name(int dtype) {
    static const char *const names[DT_DTYPE_COUNT] = {
        [DT_BOOL] = "bool",      [DT_U8] = "unsigned char",
        [DT_I8] = "signed char", [DT_I16] = "short",
        [DT_I32] = "int",        [DT_I64] = "long",
        [DT_F16] = "c10::Half",  [DT_BF16] = "c10::BFloat16",
        [DT_F32] = "float",      [DT_F64] = "double"};
    return names[dtype];
}

static dt_dtype promote_or(dt_dtype a, dt_dtype b) {
    if (a == DT_DTYPE_NONE) return b;
    if (b == DT_DTYPE_NONE) return a;
    return dt_dtype_promote(a, b);
}

void dt_promotion_add_tensor(dt_promotion *p, const dt_tensor *t) {
    dt_dtype dtype = (dt_dtype)t->dtype;
    if (t->flags & DT_TENSOR_WRAPPED)
        p->wrapped = promote_or(p->wrapped, dt_dtype_is_float(dtype) ? dt_default_dtype() : dtype);
    else if (t->rank == 0)
        p->zero = promote_or(p->zero, dtype);
    else
        p->dim = promote_or(p->dim, dtype);
}

void dt_promotion_add_scalar(dt_promotion *p, dt_scalar s) {
    dt_dtype dtype = s.category == DT_CAT_BOOL  ? DT_BOOL
                     : s.category == DT_CAT_INT ? DT_I64
                                                : dt_default_dtype();
    p->wrapped = promote_or(p->wrapped, dtype);
}

static dt_dtype combine_tiers(dt_dtype higher, dt_dtype lower) {
    if (higher == DT_DTYPE_NONE) return lower;
    if (lower == DT_DTYPE_NONE || dt_dtype_is_float(higher)) return higher;
    if (higher == DT_BOOL || dt_dtype_is_float(lower)) return dt_dtype_promote(higher, lower);
    return higher;
}

dt_dtype dt_promotion_result(const dt_promotion *p) {
    return combine_tiers(p->dim, combine_tiers(p->zero, p->wrapped));
}

void dt_op_call_init(dt_op_call *call, dt_op_id id) {
    call->op = &dt_op_table[id];
    call->nargs = 0;
    call->target = NULL;
    call->inplace = false;
    call->mesh = NULL;
    call->placements = NULL;
    call->spot = NULL;
    call->nout = 0;
    call->done = false;
    call->replace_target = false;
    call->call.kernel = NULL;
    call->call.op = (uint16_t)id;
    call->call.nout = 0;
    call->call.nin = 0;
    call->call.operands = call->call.operands_inline;
    call->call.params.owned = NULL;
}

void dt_op_call_clear(dt_op_call *call) {
    for (int k = 0; k < call->nout; k++) dt_tensor_release(call->outs[k]);
    call->nout = 0;
    dt_call_fini(&call->call);
}

dt_status dt_rule_call(dt_op_call *c, int nout, int nin, dt_tensor *const *inputs) {
    uint16_t op = c->call.op;
    DT_TRY(dt_call_init(&c->call, nout, nin));
    c->call.op = op;
    for (int k = 0; k < nin; k++)
        c->call.operands[nout + k] = inputs && inputs[k] ? dt_tensor_retain(inputs[k]) : NULL;
    return DT_OK;
}

dt_status dt_rule_out(dt_op_call *c, dt_dtype dtype, const dt_dims *shape) {
    DT_ASSERT(c->nout < DT_OUTS_MAX);
    DT_TRY(dt_tensor_new(dtype, shape->rank, shape->v, &c->outs[c->nout]));
    c->nout++;
    return DT_OK;
}

dt_status dt_rule_out_deferred(dt_op_call *c, dt_dtype dtype, const dt_dims *shape, bool columns) {
    DT_ASSERT(c->nout < DT_OUTS_MAX);
    DT_TRY(dt_tensor_new_deferred(dtype, shape->rank, shape->v, columns, &c->outs[c->nout]));
    c->nout++;
    return DT_OK;
}

dt_status dt_rule_view(dt_op_call *c, const dt_tensor *base, const dt_dims *shape,
                       const int64_t *strides, int64_t offset) {
    DT_TRY(dt_tensor_new_view(base, (dt_dtype)base->dtype, shape->rank, shape->v, strides, offset,
                              &c->outs[0]));
    c->nout = 1;
    c->done = true;
    return DT_OK;
}

dt_status dt_rule_expand(dt_tensor *t, const dt_dims *shape, dt_tensor **out) {
    int lead = shape->rank - t->rank;
    DT_ASSERT(lead >= 0);
    int64_t strides[DT_RANK_MAX];
    for (int d = shape->rank - 1; d >= 0; d--) {
        int64_t size = d >= lead ? t->shape[d - lead] : 1;
        strides[d] = d >= lead             ? t->strides[d - lead]
                     : d + 1 < shape->rank ? shape->v[d + 1] * strides[d + 1]
                                           : 1;
        if (size != shape->v[d]) strides[d] = 0;
    }
    return dt_tensor_new_view(t, (dt_dtype)t->dtype, shape->rank, shape->v, strides, t->offset,
                              out);
}

dt_status dt_rule_reduced_dims(const dt_tensor *t, const dt_dims *dims, bool keepdim,
                               uint32_t *mask, dt_dims *shape) {
    uint32_t bits = 0;
    if (!dims || dims->rank == 0) {
        bits = t->rank ? (uint32_t)((1ull << t->rank) - 1) : 0;
    } else {
        for (int k = 0; k < dims->rank; k++) {
            int d;
            DT_TRY(dt_shape_wrap_dim(dims->v[k], t->rank, true, &d));
            if (bits >> d & 1)
                return dt_fail(DT_E_RUNTIME, "dim %d appears multiple times in the list of dims",
                               d);
            bits |= 1u << d;
        }
        if (t->rank == 0) bits = 0;
    }
    shape->rank = 0;
    for (int d = 0; d < t->rank; d++) {
        if (bits >> d & 1) {
            if (keepdim) shape->v[shape->rank++] = 1;
        } else {
            shape->v[shape->rank++] = t->shape[d];
        }
    }
    *mask = bits;
    return DT_OK;
}

static dt_status invoke_unary(dt_op_id id, dt_tensor *t, dt_dtype dtype, dt_tensor **out) {
    dt_op_call call;
    dt_op_call_init(&call, id);
    call.nargs = 2;
    call.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = t};
    call.args[1] =
        (dt_arg){.kind = dtype == DT_DTYPE_NONE ? DT_ARG_NONE : DT_ARG_DTYPE, .dtype = dtype};
    DT_TRY(dt_rule_invoke(&call));
    *out = call.outs[0];
    return DT_OK;
}

dt_status dt_rule_to_dtype(dt_tensor *t, dt_dtype dtype, dt_tensor **out) {
    if (t->dtype == dtype) {
        *out = dt_tensor_retain(t);
        return DT_OK;
    }
    return invoke_unary(DT_OP_copy__to, t, dtype, out);
}

dt_status dt_rule_make_contiguous(dt_tensor *t, dt_tensor **out) {
    if (t->contiguous) {
        *out = dt_tensor_retain(t);
        return DT_OK;
    }
    return invoke_unary(DT_OP_contiguous, t, DT_DTYPE_NONE, out);
}

dt_status dt_rule_reshape_to(dt_tensor *t, const dt_dims *shape, dt_tensor **out) {
    int64_t strides[DT_RANK_MAX];
    if (dt_shape_view_strides(t->rank, t->shape, t->strides, shape->rank, shape->v, strides))
        return dt_tensor_new_view(t, (dt_dtype)t->dtype, shape->rank, shape->v, strides, t->offset,
                                  out);
    dt_tensor *flat;
    DT_TRY(dt_rule_make_contiguous(t, &flat));
    dt_shape_contiguous_strides(shape->rank, shape->v, strides);
    dt_status status = dt_tensor_new_view(flat, (dt_dtype)t->dtype, shape->rank, shape->v, strides,
                                          flat->offset, out);
    dt_tensor_release(flat);
    return status;
}
