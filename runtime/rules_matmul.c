/* rules_matmul.c: products.
 *
 * All of them become one kernel form: out [..., m, n] = alpha * a [..., m, k] @ b [..., k, n] +
 * beta * bias, batch dims broadcast by stride 0, operands possibly strided.  Params: f[0] alpha,
 * f[1] beta; with nin == 3 the third input is the bias, expanded to the output's shape.  `linear`
 * has its own kernel (x [m, k], weight [n, k], bias [n] or absent) so that packed weights can be
 * kept. i[0..2]: by what the kernel chooses its form: m, n, and on a mesh PART and whether the
 * operands lie along k; there all of it is the whole's, so that a part has the bits that it has in
 * it.
 */
#include <string.h>

#include "runtime/assert.h"
#include "runtime/infer.h"
#include "runtime/rules.h"
#include "runtime/shard.h"

static dt_status check_dtypes(const dt_tensor *a, const dt_tensor *b) {
    if (a->dtype != b->dtype)
        return dt_fail(DT_E_RUNTIME, "expected m1 and m2 to have the same dtype, but got: %s != %s",
                       dt_rule_c_name(a->dtype), dt_rule_c_name(b->dtype));
    if (a->dtype == DT_BOOL && a->numel > 0 && b->numel > 0)
        return dt_fail(DT_E_NOT_IMPLEMENTED, "\"addmm_impl_cpu_\" not implemented for 'Bool'");
    return DT_OK;
}

static dt_status shapes_differ(const dt_tensor *a, const dt_tensor *b) {
    return dt_fail(DT_E_RUNTIME,
                   "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)",
                   (long long)a->shape[a->rank - 2], (long long)a->shape[a->rank - 1],
                   (long long)b->shape[b->rank - 2], (long long)b->shape[b->rank - 1]);
}

static int64_t stride_of_k(const dt_call *call, int input) {
    const dt_tensor *t = dt_call_in(call, input);
    bool k_last = input == 0 || call->op == DT_OP_linear;
    return t->strides[t->rank - (k_last ? 1 : 2)];
}

static void set_sizes(dt_op_call *c, int64_t m, int64_t n) {
    const dt_call *whole = c->spot != NULL ? &c->spot->ask->call->call : NULL;
    c->call.params.i[0] = whole != NULL ? whole->params.i[0] : m;
    c->call.params.i[1] = whole != NULL ? whole->params.i[1] : n;
    c->call.params.i[2] = whole != NULL ? DT_PRODUCT_PART : 0;
    if (whole == NULL) return;
    if (stride_of_k(whole, 0) == 1) c->call.params.i[2] |= DT_PRODUCT_A_ALONG_K;
    if (stride_of_k(whole, 1) == 1) c->call.params.i[2] |= DT_PRODUCT_B_ALONG_K;
}

/* Fills c: out of `out_shape` seen as [batch, m, n] (same storage), a and b expanded to the batch.
 */
static dt_status product(dt_op_call *c, dt_tensor *a, dt_tensor *b, dt_tensor *bias,
                         const dt_dims *batch, const dt_dims *out_shape) {
    int64_t m = a->shape[a->rank - 2], k = a->shape[a->rank - 1], n = b->shape[b->rank - 1];
    dt_dims sa = *batch, sb = *batch, so = *batch;
    sa.v[sa.rank++] = m;
    sa.v[sa.rank++] = k;
    sb.v[sb.rank++] = k;
    sb.v[sb.rank++] = n;
    so.v[so.rank++] = m;
    so.v[so.rank++] = n;
    DT_TRY(dt_rule_call(c, 1, bias ? 3 : 2, NULL));
    c->call.op = DT_OP_matmul;
    c->call.compute = a->dtype;
    c->call.params.f[0] = 1.0;
    c->call.params.f[1] = 1.0;
    set_sizes(c, m, n);
    DT_TRY(dt_rule_expand(a, &sa, &c->call.operands[1]));
    DT_TRY(dt_rule_expand(b, &sb, &c->call.operands[2]));
    if (bias) DT_TRY(dt_rule_expand(bias, &so, &c->call.operands[3]));
    DT_TRY(dt_rule_out(c, (dt_dtype)a->dtype, out_shape));
    int64_t strides[DT_RANK_MAX];
    dt_shape_contiguous_strides(so.rank, so.v, strides);
    return dt_tensor_new_view(c->outs[0], (dt_dtype)a->dtype, so.rank, so.v, strides, 0,
                              &c->call.operands[0]);
}

/* A view of t with rows (or columns) of 1: [k] -> [1, k] or [k, 1]. */
static dt_status as_matrix(dt_tensor *t, bool row, dt_tensor **out) {
    if (t->rank >= 2) {
        *out = dt_tensor_retain(t);
        return DT_OK;
    }
    int64_t shape[2] = {row ? 1 : t->shape[0], row ? t->shape[0] : 1};
    int64_t strides[2] = {row ? t->shape[0] * t->strides[0] : t->strides[0],
                          row ? t->strides[0] : 1};
    return dt_tensor_new_view(t, (dt_dtype)t->dtype, 2, shape, strides, t->offset, out);
}

static void batch_of(const dt_tensor *t, dt_dims *batch) {
    batch->rank = t->rank - 2;
    for (int d = 0; d < batch->rank; d++) batch->v[d] = t->shape[d];
}

static dt_status matmul_matrices(dt_op_call *c, dt_tensor *a, dt_tensor *b, bool drop_row,
                                 bool drop_column) {
    if (a->shape[a->rank - 1] != b->shape[b->rank - 2]) {
        if (a->rank <= 2 || b->rank <= 2) return shapes_differ(a, b);
        return dt_fail(
            DT_E_RUNTIME,
            "Expected size for first two dimensions of batch2 tensor to be: [%lld, %lld] "
            "but got: [%lld, %lld].",
            (long long)b->shape[0], (long long)a->shape[a->rank - 1], (long long)b->shape[0],
            (long long)b->shape[b->rank - 2]);
    }
    dt_dims ba, bb, batch;
    batch_of(a, &ba);
    batch_of(b, &bb);
    DT_TRY(dt_shape_broadcast(&ba, &bb, &batch));
    if (batch.rank + 2 > DT_RANK_MAX)
        return dt_fail(DT_E_RUNTIME, "matmul: more than %d dims", DT_RANK_MAX);
    dt_dims out = batch;
    if (!drop_row) out.v[out.rank++] = a->shape[a->rank - 2];
    if (!drop_column) out.v[out.rank++] = b->shape[b->rank - 1];
    /* [..., m, k] @ [k, n]: one tall product instead of a batch of them, where no copy is needed.
     */
    int64_t tall[DT_RANK_MAX];
    dt_dims flat = {.rank = 2, .v = {1, a->shape[a->rank - 1]}};
    for (int d = 0; d < a->rank - 1; d++) flat.v[0] *= a->shape[d];
    if (b->rank == 2 && a->rank > 2 &&
        dt_shape_view_strides(a->rank, a->shape, a->strides, 2, flat.v, tall)) {
        dt_tensor *view;
        DT_TRY(dt_tensor_new_view(a, (dt_dtype)a->dtype, 2, flat.v, tall, a->offset, &view));
        dt_dims none = {.rank = 0};
        dt_status status = product(c, view, b, NULL, &none, &out);
        dt_tensor_release(view);
        return status;
    }
    return product(c, a, b, NULL, &batch, &out);
}

dt_status dt_infer_matmul(dt_op_call *c) {
    dt_tensor *a = c->args[0].t, *b = c->args[1].t;
    if (a->rank == 0 || b->rank == 0)
        return dt_fail(DT_E_RUNTIME,
                       "both arguments to matmul need to be at least 1D, but they are %dD and %dD",
                       a->rank, b->rank);
    DT_TRY(check_dtypes(a, b));
    if (a->rank == 1 && b->rank == 1 && a->shape[0] != b->shape[0])
        return dt_fail(
            DT_E_RUNTIME,
            "inconsistent tensor size, expected tensor [%lld] and src [%lld] to have the "
            "same number of elements, but got %lld and %lld elements respectively",
            (long long)a->shape[0], (long long)b->shape[0], (long long)a->shape[0],
            (long long)b->shape[0]);
    if (a->rank == 2 && b->rank == 1 && a->shape[1] != b->shape[0])
        return dt_fail(DT_E_RUNTIME, "size mismatch, got input (%lld), mat (%lldx%lld), vec (%lld)",
                       (long long)a->shape[0], (long long)a->shape[0], (long long)a->shape[1],
                       (long long)b->shape[0]);
    dt_tensor *ma, *mb;
    DT_TRY(as_matrix(a, true, &ma));
    dt_status status = as_matrix(b, false, &mb);
    if (status == DT_OK) {
        status = matmul_matrices(c, ma, mb, a->rank == 1, b->rank == 1);
        dt_tensor_release(mb);
    }
    dt_tensor_release(ma);
    return status;
}

dt_status dt_infer_mm(dt_op_call *c) {
    if (c->args[0].t->rank != 2) return dt_fail(DT_E_RUNTIME, "self must be a matrix");
    if (c->args[1].t->rank != 2) return dt_fail(DT_E_RUNTIME, "mat2 must be a matrix");
    return dt_infer_matmul(c);
}

static dt_status check_batches(const dt_tensor *a, const dt_tensor *b) {
    if (a->rank != 3) return dt_fail(DT_E_RUNTIME, "batch1 must be a 3D tensor");
    if (b->rank != 3) return dt_fail(DT_E_RUNTIME, "batch2 must be a 3D tensor");
    if (a->shape[0] != b->shape[0] || a->shape[2] != b->shape[1])
        return dt_fail(
            DT_E_RUNTIME,
            "Expected size for first two dimensions of batch2 tensor to be: [%lld, %lld] "
            "but got: [%lld, %lld].",
            (long long)a->shape[0], (long long)a->shape[2], (long long)b->shape[0],
            (long long)b->shape[1]);
    return DT_OK;
}

dt_status dt_infer_bmm(dt_op_call *c) {
    DT_TRY(check_batches(c->args[0].t, c->args[1].t));
    return dt_infer_matmul(c);
}

dt_status dt_infer_mv(dt_op_call *c) {
    if (c->args[0].t->rank != 2 || c->args[1].t->rank != 1)
        return dt_fail(DT_E_RUNTIME, "vector + matrix @ vector expected, got 1, %d, %d",
                       c->args[0].t->rank, c->args[1].t->rank);
    return dt_infer_matmul(c);
}

dt_status dt_infer_dot(dt_op_call *c) {
    dt_tensor *a = c->args[0].t, *b = c->args[1].t;
    if (a->rank != 1 || b->rank != 1)
        return dt_fail(DT_E_RUNTIME, "1D tensors expected, but got %dD and %dD tensors", a->rank,
                       b->rank);
    if (a->dtype != b->dtype)
        return dt_fail(DT_E_RUNTIME,
                       "dot : expected both vectors to have same dtype, but found %s and %s",
                       dt_dtype_table[a->dtype].long_name, dt_dtype_table[b->dtype].long_name);
    return dt_infer_matmul(c);
}

/* A bias must be expandable to the output. */
static dt_status check_bias(const dt_tensor *bias, const dt_dims *out) {
    char want[200], have[200];
    dt_shape_format(out->rank, out->v, want, sizeof want);
    dt_shape_format(bias->rank, bias->shape, have, sizeof have);
    int lead = out->rank - bias->rank;
    if (lead < 0)
        return dt_fail(
            DT_E_RUNTIME,
            "expand(torch.%sTensor{%s}, size=%s): the number of sizes provided (%d) must "
            "be greater or equal to the number of dimensions in the tensor (%d)",
            dt_dtype_table[bias->dtype].long_name, have, want, out->rank, bias->rank);
    for (int d = out->rank - 1; d >= lead; d--)
        if (bias->shape[d - lead] != 1 && bias->shape[d - lead] != out->v[d])
            return dt_fail(
                DT_E_RUNTIME,
                "The expanded size of the tensor (%lld) must match the existing size "
                "(%lld) at non-singleton dimension %d.  Target sizes: %s.  Tensor sizes: "
                "%s",
                (long long)out->v[d], (long long)bias->shape[d - lead], d, want, have);
    return DT_OK;
}

static dt_status with_bias(dt_op_call *c, dt_tensor *bias, dt_tensor *a, dt_tensor *b) {
    dt_scalar beta = c->args[3].s, alpha = c->args[4].s;
    DT_TRY(check_dtypes(a, b));
    if (a->shape[a->rank - 1] != b->shape[b->rank - 2]) return shapes_differ(a, b);
    if (bias->dtype != a->dtype)
        return dt_fail(DT_E_RUNTIME, "self and mat2 must have the same dtype, but got %s and %s",
                       dt_dtype_table[bias->dtype].long_name, dt_dtype_table[b->dtype].long_name);
    bool ints = !dt_dtype_is_float((dt_dtype)a->dtype);
    if (ints && (alpha.category == DT_CAT_FLOAT || beta.category == DT_CAT_FLOAT))
        return dt_fail(DT_E_RUNTIME,
                       "For integral input tensors, argument %s must not be a floating point "
                       "number.",
                       alpha.category == DT_CAT_FLOAT ? "alpha" : "beta");
    dt_dims batch, out;
    batch_of(a, &batch);
    out = batch;
    out.v[out.rank++] = a->shape[a->rank - 2];
    out.v[out.rank++] = b->shape[b->rank - 1];
    DT_TRY(check_bias(bias, &out));
    double f_beta = dt_scalar_f64(beta);
    DT_TRY(product(c, a, b, f_beta == 0 ? NULL : bias, &batch, &out));
    c->call.params.f[0] = dt_scalar_f64(alpha);
    c->call.params.f[1] = f_beta;
    return DT_OK;
}

dt_status dt_infer_addmm(dt_op_call *c) {
    dt_tensor *a = c->args[1].t, *b = c->args[2].t;
    if (a->rank != 2)
        return dt_fail(DT_E_RUNTIME, "mat1 must be a matrix, got %d-D tensor", a->rank);
    if (b->rank != 2)
        return dt_fail(DT_E_RUNTIME, "mat2 must be a matrix, got %d-D tensor", b->rank);
    return with_bias(c, c->args[0].t, a, b);
}

dt_status dt_infer_baddbmm(dt_op_call *c) {
    DT_TRY(check_batches(c->args[1].t, c->args[2].t));
    return with_bias(c, c->args[0].t, c->args[1].t, c->args[2].t);
}

/* x [..., k], weight [n, k] (or [k]), bias [n] -> [..., n] */
dt_status dt_infer_linear(dt_op_call *c) {
    dt_tensor *x = c->args[0].t, *w = c->args[1].t;
    dt_tensor *bias = dt_arg_given(c, 2) ? c->args[2].t : NULL;
    if (x->rank == 0 || w->rank == 0 || w->rank > 2)
        return dt_fail(DT_E_RUNTIME,
                       "both arguments to linear need to be at least 1D, but they are %dD and %dD",
                       x->rank, w->rank);
    DT_TRY(check_dtypes(x, w));
    if (bias && bias->dtype != x->dtype)
        return dt_fail(DT_E_RUNTIME, "self and mat2 must have the same dtype, but got %s and %s",
                       dt_dtype_table[bias->dtype].long_name, dt_dtype_table[w->dtype].long_name);
    int64_t k = x->shape[x->rank - 1], n = w->rank == 2 ? w->shape[0] : 1;
    int64_t rows = 1;
    for (int d = 0; d + 1 < x->rank; d++) rows *= x->shape[d];
    if (w->shape[w->rank - 1] != k)
        return dt_fail(
            DT_E_RUNTIME, "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)",
            (long long)rows, (long long)k, (long long)w->shape[w->rank - 1], (long long)n);
    if (bias &&
        !((bias->rank == 1 && (bias->shape[0] == n || bias->shape[0] == 1)) || bias->rank == 0))
        return check_bias(bias, &(dt_dims){.rank = 2, .v = {rows, n}}) != DT_OK
                   ? DT_E_RUNTIME
                   : dt_fail(DT_E_RUNTIME, "linear: bias must be 1-D, got %d-D", bias->rank);
    dt_dims out = dt_tensor_dims(x);
    if (w->rank == 2)
        out.v[out.rank - 1] = n;
    else
        out.rank--;
    DT_TRY(dt_rule_call(c, 1, bias ? 3 : 2, NULL));
    c->call.op = DT_OP_linear;
    c->call.compute = x->dtype;
    set_sizes(c, rows, n);
    dt_dims flat = {.rank = 2, .v = {rows, k}}, matrix = {.rank = 2, .v = {n, k}};
    dt_dims vector = {.rank = 1, .v = {n}}, rows_out = {.rank = 2, .v = {rows, n}};
    DT_TRY(dt_rule_reshape_to(x, &flat, &c->call.operands[1]));
    DT_TRY(dt_rule_reshape_to(w, &matrix, &c->call.operands[2]));
    if (bias) DT_TRY(dt_rule_expand(bias, &vector, &c->call.operands[3]));
    DT_TRY(dt_rule_out(c, (dt_dtype)x->dtype, &out));
    return dt_rule_reshape_to(c->outs[0], &rows_out, &c->call.operands[0]);
}
