/* rules_join.c: cat, stack and lookups by index.
 *
 * Params: cat i[0] the dim along which inputs (all of the output's dtype) are laid side by side;
 * lookups i[0] the dim, i[1] the number of the first row there is, i[2] of how many that there are
 * in all (a device may have some only).  Indices are checked by the kernel when it runs: an index
 * out of range is an error of the value, raised at await or read.
 */
#include <string.h>

#include "runtime/alloc.h"
#include "runtime/infer.h"
#include "runtime/rules.h"
#include "runtime/shard.h"

/* torch lets a 1-D tensor of size 0 take part in any cat, ignored. */
static bool is_legacy_empty(const dt_tensor *t) { return t->rank == 1 && t->shape[0] == 0; }

static dt_dtype joint_dtype(dt_tensor *const *inputs, int n) {
    dt_promotion p = DT_PROMOTION_INIT;
    for (int k = 0; k < n; k++) dt_promotion_add_tensor(&p, inputs[k]);
    return dt_promotion_result(&p);
}

/* What a call can hold: its count of inputs is 16 bits wide. */
static dt_status check_count(const char *op, int n) {
    if (n <= UINT16_MAX) return DT_OK;
    return dt_fail(DT_E_RUNTIME, "%s(): %d tensors are more than %d, the most that one call takes",
                   op, n, UINT16_MAX);
}

/* Fills c for a cat of n inputs of equal rank along dim. */
static dt_status join(dt_op_call *c, dt_tensor *const *inputs, int n, int dim, const dt_dims *shape,
                      dt_dtype dtype) {
    DT_TRY(dt_rule_call(c, 1, n, NULL));
    c->call.compute = (uint8_t)dtype;
    c->call.params.i[0] = dim;
    for (int k = 0; k < n; k++)
        DT_TRY(dt_rule_to_dtype(inputs[k], dtype, &c->call.operands[1 + k]));
    return dt_rule_out(c, dtype, shape);
}

static dt_status cat_checked(dt_op_call *c, dt_tensor **inputs, int n) {
    const dt_tensor *first = NULL;
    dt_dtype dtype = joint_dtype(inputs, n); /* ignored ones count here */
    for (int k = 0; k < n; k++) {
        if (inputs[k]->rank == 0)
            return dt_fail(DT_E_RUNTIME,
                           "zero-dimensional tensor (at position %d) cannot be concatenated", k);
        if (!first && !is_legacy_empty(inputs[k])) first = inputs[k];
    }
    if (!first) first = inputs[0];
    int d, kept = 0;
    DT_TRY(dt_shape_wrap_dim(c->args[1].i, first->rank, true, &d));
    dt_dims shape = dt_tensor_dims(first);
    int64_t total = 0;
    for (int k = 0; k < n; k++) {
        dt_tensor *t = inputs[k];
        if (is_legacy_empty(t) && first->rank != 1) continue;
        if (t->rank != first->rank)
            return dt_fail(DT_E_RUNTIME,
                           "Tensors must have same number of dimensions: got %d and %d",
                           first->rank, t->rank);
        for (int e = 0; e < t->rank; e++)
            if (e != d && t->shape[e] != first->shape[e])
                return dt_fail(DT_E_RUNTIME,
                               "Sizes of tensors must match except in dimension %d. Expected size "
                               "%lld but got size %lld for tensor number %d in the list.",
                               d, (long long)first->shape[e], (long long)t->shape[e], k);
        total += t->shape[d];
        inputs[kept++] = t;
    }
    shape.v[d] = total;
    return join(c, inputs, kept, d, &shape, dtype);
}

dt_status dt_infer_cat(dt_op_call *c) {
    int n = c->args[0].list.n;
    if (n == 0) return dt_fail(DT_E_VALUE, "torch.cat(): expected a non-empty list of Tensors");
    DT_TRY(check_count("cat", n));
    size_t size = sizeof(dt_tensor *) * (size_t)n;
    dt_tensor **inputs;
    DT_ALLOC_OR_FAIL(inputs, size);
    memcpy(inputs, c->args[0].list.v, size);
    dt_status status = cat_checked(c, inputs, n);
    dt_free(inputs, size);
    return status;
}

/* A view of t with a dim of 1 put in at `at`. */
static dt_status with_new_dim(dt_tensor *t, int at, dt_tensor **out) {
    dt_dims shape = {.rank = t->rank + 1};
    int64_t strides[DT_RANK_MAX];
    for (int d = 0, from = 0; d < shape.rank; d++) {
        bool fresh = d == at;
        shape.v[d] = fresh ? 1 : t->shape[from];
        strides[d] =
            fresh ? (from < t->rank ? t->shape[from] * t->strides[from] : 1) : t->strides[from];
        if (!fresh) from++;
    }
    return dt_tensor_new_view(t, (dt_dtype)t->dtype, shape.rank, shape.v, strides, t->offset, out);
}

dt_status dt_infer_stack(dt_op_call *c) {
    int n = c->args[0].list.n;
    dt_tensor *const *inputs = c->args[0].list.v;
    if (n == 0) return dt_fail(DT_E_RUNTIME, "stack expects a non-empty TensorList");
    DT_TRY(check_count("stack", n));
    int rank = inputs[0]->rank, d;
    if (rank == DT_RANK_MAX) return dt_fail(DT_E_RUNTIME, "stack: more than %d dims", DT_RANK_MAX);
    DT_TRY(dt_shape_wrap_dim(c->args[1].i, rank + 1, false, &d));
    for (int k = 1; k < n; k++)
        if (!dt_tensor_same_shape(inputs[0], inputs[k])) {
            char a[200], b[200];
            return dt_fail(
                DT_E_RUNTIME,
                "stack expects each tensor to be equal size, but got %s at entry 0 and %s "
                "at entry %d",
                dt_shape_format(rank, inputs[0]->shape, a, sizeof a),
                dt_shape_format(inputs[k]->rank, inputs[k]->shape, b, sizeof b), k);
        }
    size_t size = sizeof(dt_tensor *) * (size_t)n;
    dt_tensor **views;
    DT_ALLOC_OR_FAIL(views, size);
    int made = 0;
    dt_status status = DT_OK;
    while (made < n && status == DT_OK) {
        status = with_new_dim(inputs[made], d, &views[made]);
        if (status == DT_OK) made++;
    }
    if (status == DT_OK) {
        dt_dims shape = dt_tensor_dims(views[0]);
        shape.v[d] = n;
        status = join(c, views, n, d, &shape, joint_dtype(views, n));
    }
    while (made > 0) dt_tensor_release(views[--made]);
    dt_free(views, size);
    return status;
}

static bool is_index(const dt_tensor *t) { return t->dtype == DT_I64 || t->dtype == DT_I32; }

/* Which rows of dim d the call's first tensor has: all, or this device's. */
static void set_rows(dt_op_call *c, int d) {
    const dt_tensor *whole = dt_spot_whole(c, 0);
    dt_box box = {.start = {0}};
    if (c->spot != NULL) dt_spot_in(c->spot, 0, &box);
    c->call.params.i[0] = d;
    c->call.params.i[1] = whole->rank > 0 ? box.start[d] : 0;
    c->call.params.i[2] = whole->rank > 0 ? whole->shape[d] : 1;
}

dt_status dt_infer_embedding(dt_op_call *c) {
    dt_tensor *weight = c->args[0].t, *index = c->args[1].t;
    if (weight->rank != 2) return dt_fail(DT_E_RUNTIME, "'weight' must be 2-D");
    if (!is_index(index))
        return dt_fail(
            DT_E_RUNTIME,
            "Expected tensor for argument #1 'indices' to have one of the following "
            "scalar types: Long, Int; but got torch.%sTensor instead (while checking arguments for "
            "embedding)",
            dt_dtype_table[index->dtype].long_name);
    if (index->rank == DT_RANK_MAX)
        return dt_fail(DT_E_RUNTIME, "embedding: more than %d dims", DT_RANK_MAX);
    dt_dims shape = dt_tensor_dims(index);
    shape.v[shape.rank++] = weight->shape[1];
    dt_tensor *inputs[2] = {weight, index};
    DT_TRY(dt_rule_call(c, 1, 2, inputs));
    c->call.compute = weight->dtype;
    set_rows(c, 0);
    return dt_rule_out(c, (dt_dtype)weight->dtype, &shape);
}

dt_status dt_infer_index_select(dt_op_call *c) {
    dt_tensor *t = c->args[0].t, *index = c->args[2].t;
    int d;
    DT_TRY(dt_shape_wrap_dim(c->args[1].i, t->rank, true, &d));
    if (index->rank > 1)
        return dt_fail(DT_E_INDEX, "index_select(): Index is supposed to be a vector");
    if (!is_index(index))
        return dt_fail(DT_E_RUNTIME, "index_select(): Expected dtype int32 or int64 for index");
    dt_dims shape = dt_tensor_dims(t);
    if (t->rank == 0 && index->numel != 1)
        return dt_fail(DT_E_RUNTIME,
                       "index_select(): Index to scalar can have only 1 value, got %lld value(s)",
                       (long long)index->numel);
    if (t->rank > 0) shape.v[d] = index->numel;
    dt_tensor *inputs[2] = {t, index};
    DT_TRY(dt_rule_call(c, 1, 2, inputs));
    c->call.compute = t->dtype;
    set_rows(c, d);
    return dt_rule_out(c, (dt_dtype)t->dtype, &shape);
}

/* t from where this device's part of the index begins, along dims in which only that is cut. */
static dt_status beside_index(const dt_op_call *c, dt_tensor *t, int dim, dt_tensor **out) {
    dt_box in, index;
    int64_t offset = t->offset, shape[DT_RANK_MAX];
    dt_spot_in(c->spot, 0, &in);
    dt_spot_in(c->spot, 1, &index);
    for (int d = 0; d < t->rank; d++) {
        shape[d] = t->shape[d];
        if (d == dim || index.size[d] == 0 || index.start[d] == in.start[d]) continue;
        offset += (index.start[d] - in.start[d]) * t->strides[d];
        shape[d] = index.size[d];
    }
    return dt_tensor_new_view(t, (dt_dtype)t->dtype, t->rank, shape, t->strides, offset, out);
}

dt_status dt_infer_gather(dt_op_call *c) {
    dt_tensor *t = c->args[0].t, *index = c->args[2].t;
    int d;
    DT_TRY(dt_shape_wrap_dim(c->args[1].i, t->rank, true, &d));
    if (!is_index(index))
        return dt_fail(DT_E_RUNTIME, "gather(): Expected dtype int32/int64 for index");
    int rank_t = t->rank ? t->rank : 1, rank_i = index->rank ? index->rank : 1;
    if (rank_t != rank_i)
        return dt_fail(DT_E_RUNTIME,
                       "Index tensor must have the same number of dimensions as input tensor");
    for (int e = 0; e < t->rank && e < index->rank; e++)
        if (e != d && index->shape[e] > t->shape[e]) {
            char a[200], b[200];
            return dt_fail(DT_E_RUNTIME,
                           "Size does not match at dimension %d expected index %s to be no larger "
                           "than self %s apart from dimension %d",
                           e, dt_shape_format(index->rank, index->shape, a, sizeof a),
                           dt_shape_format(t->rank, t->shape, b, sizeof b), d);
        }
    dt_dims shape = dt_tensor_dims(index);
    dt_tensor *inputs[2] = {t, index}, *beside = NULL;
    if (c->spot != NULL && t->rank > 0 && index->rank > 0) {
        DT_TRY(beside_index(c, t, d, &beside));
        inputs[0] = beside;
    }
    dt_status status = dt_rule_call(c, 1, 2, inputs);
    if (beside != NULL) dt_tensor_release(beside);
    DT_TRY(status);
    c->call.compute = t->dtype;
    set_rows(c, d);
    return dt_rule_out(c, (dt_dtype)t->dtype, &shape);
}
