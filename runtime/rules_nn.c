/* rules_nn.c: softmax, normalisation, attention.
 *
 * Params: softmax i[0] dim; layer_norm and rms_norm i[0] number of trailing dims normalised, i[1]
 * bit 0: weight given, bit 1: bias given, f[0] eps; sdpa i[0] 1: causal, i[1] mask: 0 none, 1 bool,
 * 2 additive (third input, expanded to [..., L, S]), i[2] L and i[3] the first row, of the whole
 * where this is a part of it, f[0] scale.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "runtime/infer.h"
#include "runtime/rules.h"
#include "runtime/shard.h"

dt_status dt_infer_softmax(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    int d;
    dt_dtype dtype = dt_arg_given(c, 2) ? c->args[2].dtype : (dt_dtype)t->dtype;
    DT_TRY(dt_shape_wrap_dim(c->args[1].i, t->rank, true, &d));
    if (!dt_dtype_is_float(dtype) && t->numel > 0) /* torch looks at the dtype when it computes */
        return dt_fail(DT_E_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'",
                       c->op->id == DT_OP_softmax ? "softmax_lastdim_kernel_impl"
                                                  : "log_softmax_lastdim_kernel_impl",
                       dt_dtype_table[dtype].long_name);
    dt_dims shape = dt_tensor_dims(t);
    DT_TRY(dt_rule_call(c, 1, 1, NULL));
    DT_TRY(dt_rule_to_dtype(t, dtype, &c->call.operands[1]));
    c->call.compute = (uint8_t)dtype;
    c->call.params.i[0] = t->rank ? d : -1;
    return dt_rule_out(c, dtype, &shape);
}

static dt_status check_normalized(const dt_tensor *t, const dt_dims *normalized,
                                  const dt_tensor *weight, const dt_tensor *bias,
                                  const char *what) {
    char a[200], b[200];
    int n = normalized->rank;
    if (n == 0)
        return dt_fail(
            DT_E_RUNTIME,
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at "
            "least one element, but got normalized_shape = []");
    const dt_tensor *given[2] = {weight, bias};
    for (int k = 0; k < 2; k++) {
        if (!given[k]) continue;
        bool same = given[k]->rank == n &&
                    !memcmp(given[k]->shape, normalized->v, sizeof(int64_t) * (size_t)n);
        if (!same)
            return dt_fail(
                DT_E_RUNTIME,
                "Expected %s to be of same shape as normalized_shape, but got %s of shape "
                "%s and normalized_shape = %s",
                k ? "bias" : "weight", k ? "bias" : "weight",
                dt_shape_format(given[k]->rank, given[k]->shape, a, sizeof a),
                dt_shape_format(n, normalized->v, b, sizeof b));
        if (given[k]->dtype != t->dtype)
            return dt_fail(DT_E_RUNTIME,
                           "mixed dtype (CPU): expect parameter to have scalar type of %s",
                           dt_dtype_table[t->dtype].long_name);
    }
    bool fits =
        t->rank >= n && !memcmp(t->shape + t->rank - n, normalized->v, sizeof(int64_t) * (size_t)n);
    if (!fits)
        return dt_fail(DT_E_RUNTIME,
                       "Given normalized_shape=%s, expected input with shape [*, %s, but got input "
                       "of size%s",
                       dt_shape_format(n, normalized->v, a, sizeof a), a + 1,
                       dt_shape_format(t->rank, t->shape, b, sizeof b));
    if (!dt_dtype_is_float((dt_dtype)t->dtype))
        return dt_fail(DT_E_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", what,
                       dt_dtype_table[t->dtype].long_name);
    return DT_OK;
}

static dt_status normalize(dt_op_call *c, dt_tensor *weight, dt_tensor *bias, double eps) {
    dt_tensor *t = c->args[0].t;
    dt_tensor *inputs[3] = {t, NULL, NULL};
    int nin = 1;
    if (weight) inputs[nin++] = weight;
    if (bias) inputs[nin++] = bias;
    dt_dims shape = dt_tensor_dims(t);
    DT_TRY(dt_rule_call(c, 1, nin, inputs));
    c->call.compute = t->dtype;
    c->call.params.i[0] = c->args[1].dims->rank;
    c->call.params.i[1] = (weight ? 1 : 0) | (bias ? 2 : 0);
    c->call.params.f[0] = eps;
    return dt_rule_out(c, (dt_dtype)t->dtype, &shape);
}

dt_status dt_infer_layer_norm(dt_op_call *c) {
    dt_tensor *weight = dt_arg_given(c, 2) ? c->args[2].t : NULL;
    dt_tensor *bias = dt_arg_given(c, 3) ? c->args[3].t : NULL;
    DT_TRY(check_normalized(c->args[0].t, c->args[1].dims, weight, bias, "LayerNormKernelImpl"));
    return normalize(c, weight, bias, dt_scalar_f64(c->args[4].s));
}

dt_status dt_infer_rms_norm(dt_op_call *c) {
    dt_tensor *t = c->args[0].t, *weight = dt_arg_given(c, 2) ? c->args[2].t : NULL;
    DT_TRY(check_normalized(t, c->args[1].dims, weight, NULL, "rms_norm"));
    double eps = t->dtype == DT_F64 ? DBL_EPSILON : FLT_EPSILON;
    if (dt_arg_given(c, 3)) eps = dt_scalar_f64(c->args[3].s);
    return normalize(c, weight, NULL, eps);
}

/* query [..., L, E], key [..., S, E], value [..., S, Ev], mask broadcast to [..., L, S]. */
dt_status dt_infer_sdpa(dt_op_call *c) {
    dt_tensor *q = c->args[0].t, *k = c->args[1].t, *v = c->args[2].t;
    dt_tensor *mask = dt_arg_given(c, 3) ? c->args[3].t : NULL;
    bool causal = c->args[4].i;
    if (q->dtype != k->dtype || q->dtype != v->dtype)
        return dt_fail(
            DT_E_RUNTIME,
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            "%s key.dtype: %s and value.dtype: %s instead.",
            dt_rule_c_name(q->dtype), dt_rule_c_name(k->dtype), dt_rule_c_name(v->dtype));
    if (q->rank < 2 || k->rank < 2 || v->rank < 2)
        return dt_fail(DT_E_RUNTIME,
                       "Expected query, key, and value to all be  at least 2 dimensional, but got "
                       "query.dim: %d key.dim: %d and value.dim: %d instead.",
                       q->rank, k->rank, v->rank);
    if (!dt_dtype_is_float((dt_dtype)q->dtype) && (q->shape[q->rank - 2] > 0))
        return dt_fail(DT_E_RUNTIME,
                       "scaled_dot_product_attention: expected floating point inputs, "
                       "got %s",
                       dt_dtype_table[q->dtype].long_name);
    if (mask && causal)
        return dt_fail(DT_E_RUNTIME,
                       "_scaled_dot_product_attention: Explicit attn_mask should not be set when "
                       "is_causal=True");
    if (mask && mask->dtype != DT_BOOL && mask->dtype != q->dtype)
        return dt_fail(DT_E_RUNTIME,
                       "Expected attn_mask dtype to be bool or float or to match query dtype, but "
                       "got attn_mask.dtype: %s and  query.dtype: %s instead.",
                       dt_dtype_table[mask->dtype].name, dt_dtype_table[q->dtype].name);
    int64_t l = q->shape[q->rank - 2], e = q->shape[q->rank - 1];
    int64_t s = k->shape[k->rank - 2], ev = v->shape[v->rank - 1];
    if (k->shape[k->rank - 1] != e || v->shape[v->rank - 2] != s)
        return dt_fail(DT_E_RUNTIME,
                       "scaled_dot_product_attention: query [.., %lld, %lld], key [.., %lld, %lld] "
                       "and value [.., %lld, %lld] do not fit: query and key share the last size, "
                       "key and value the one before",
                       (long long)l, (long long)e, (long long)s, (long long)k->shape[k->rank - 1],
                       (long long)v->shape[v->rank - 2], (long long)ev);
    dt_dims bq = {.rank = q->rank - 2}, bk = {.rank = k->rank - 2}, bv = {.rank = v->rank - 2};
    memcpy(bq.v, q->shape, sizeof(int64_t) * (size_t)bq.rank);
    memcpy(bk.v, k->shape, sizeof(int64_t) * (size_t)bk.rank);
    memcpy(bv.v, v->shape, sizeof(int64_t) * (size_t)bv.rank);
    dt_dims joint, batch;
    DT_TRY(dt_shape_broadcast(&bq, &bk, &joint));
    DT_TRY(dt_shape_broadcast(&joint, &bv, &batch));
    dt_dims sq = batch, sk = batch, sv = batch, sm = batch, so = batch;
    int r = batch.rank;
    sq.v[r] = so.v[r] = sm.v[r] = l;
    sk.v[r] = sv.v[r] = sm.v[r + 1] = s;
    sq.v[r + 1] = sk.v[r + 1] = e;
    sv.v[r + 1] = so.v[r + 1] = ev;
    sq.rank = sk.rank = sv.rank = sm.rank = so.rank = r + 2;
    DT_TRY(dt_rule_call(c, 1, mask ? 4 : 3, NULL));
    c->call.compute = q->dtype;
    DT_TRY(dt_rule_expand(q, &sq, &c->call.operands[1]));
    DT_TRY(dt_rule_expand(k, &sk, &c->call.operands[2]));
    DT_TRY(dt_rule_expand(v, &sv, &c->call.operands[3]));
    if (mask) {
        dt_dims ms = dt_tensor_dims(mask), both;
        DT_TRY(dt_shape_broadcast(&ms, &sm, &both));
        if (both.rank != sm.rank || memcmp(both.v, sm.v, sizeof(int64_t) * (size_t)sm.rank))
            return dt_fail(DT_E_RUNTIME, "attn_mask does not broadcast to [..., %lld, %lld]",
                           (long long)l, (long long)s);
        DT_TRY(dt_rule_expand(mask, &sm, &c->call.operands[4]));
    }
    c->call.params.i[0] = causal;
    c->call.params.i[1] = !mask ? 0 : mask->dtype == DT_BOOL ? 1 : 2;
    c->call.params.i[2] = l;
    c->call.params.i[3] = 0;
    if (c->spot != NULL) {
        dt_box box;
        dt_spot_out(c->spot, 0, &box);
        c->call.params.i[2] = c->spot->ask->call->call.params.i[2];
        c->call.params.i[3] = box.start[so.rank - 2];
    }
    c->call.params.f[0] =
        dt_arg_given(c, 5) ? dt_scalar_f64(c->args[5].s) : 1.0 / sqrt((double)(e > 0 ? e : 1));
    /* [B, H, L, Ev] laid out as [B, L, H, Ev], so that joining the heads again is a view. */
    int64_t strides[DT_RANK_MAX];
    dt_shape_contiguous_strides(so.rank, so.v, strides);
    if (r >= 1) {
        int64_t heads = so.v[r - 1];
        strides[r - 1] = ev > 0 ? ev : 1;
        strides[r] = heads * ev > 0 ? heads * ev : 1;
    }
    DT_TRY(dt_tensor_new_strided((dt_dtype)q->dtype, so.rank, so.v, strides, &c->outs[0]));
    c->nout = 1;
    if (!dt_dtype_is_float((dt_dtype)q->dtype)) { /* torch lets empty integers pass */
        if (!dt_rule_metadata_only) DT_TRY(dt_storage_materialize(c->outs[0]->storage));
        c->done = true;
    }
    return DT_OK;
}
