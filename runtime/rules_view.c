/* rules_view.c: ops that only change metadata, and reshape/flatten, which copy where they must.
 *
 * Most look at their input through a lens (lens.h).  view and reshape keep the order of elements
 * instead: on a mesh a device's part becomes its part of the result (shard_view.c has seen to it
 * that these are the same elements).
 */
#include "runtime/assert.h"
#include "runtime/infer.h"
#include "runtime/lens.h"
#include "runtime/rules.h"
#include "runtime/shard.h"

static const char *fmt_shape(const dt_dims *d, char *buffer, int size) {
    return dt_shape_format(d->rank, d->v, buffer, size);
}

dt_status dt_infer_alias(dt_op_call *c) {
    const dt_tensor *t = c->args[0].t;
    dt_dims shape = dt_tensor_dims(t);
    return dt_rule_view(c, t, &shape, t->strides, t->offset);
}

dt_status dt_infer_positive(dt_op_call *c) {
    if (c->args[0].t->dtype == DT_BOOL)
        return dt_fail(DT_E_RUNTIME, "The `+` operator, on a bool tensor is not supported.");
    c->outs[0] = dt_tensor_retain(c->args[0].t);
    c->nout = 1;
    c->done = true;
    return DT_OK;
}

/* The shape that is asked for, or this device's part of it. */
static dt_status resolved(const dt_op_call *c, const dt_tensor *t, const dt_dims *wanted,
                          dt_dims *shape) {
    *shape = c->spot != NULL ? dt_spot_out_dims(c->spot, 0) : *wanted;
    return dt_shape_infer(shape, t->numel);
}

static dt_status view_as_shape(dt_op_call *c, const dt_tensor *t, const dt_dims *wanted) {
    dt_dims shape;
    DT_TRY(resolved(c, t, wanted, &shape));
    int64_t strides[DT_RANK_MAX];
    if (!dt_shape_view_strides(t->rank, t->shape, t->strides, shape.rank, shape.v, strides))
        return dt_fail(DT_E_RUNTIME,
                       "view size is not compatible with input tensor's size and stride (at least "
                       "one dimension spans across two contiguous subspaces). Use .reshape(...) "
                       "instead.");
    return dt_rule_view(c, t, &shape, strides, t->offset);
}

dt_status dt_infer_view(dt_op_call *c) { return view_as_shape(c, c->args[0].t, c->args[1].dims); }

dt_status dt_infer_view_as(dt_op_call *c) {
    dt_dims shape = dt_tensor_dims(c->args[1].t);
    return view_as_shape(c, c->args[0].t, &shape);
}

static dt_status reshaped(dt_op_call *c, dt_tensor *t, const dt_dims *wanted) {
    dt_dims shape;
    DT_TRY(resolved(c, t, wanted, &shape));
    DT_TRY(dt_rule_reshape_to(t, &shape, &c->outs[0]));
    c->nout = 1;
    c->done = true;
    return DT_OK;
}

dt_status dt_infer_reshape(dt_op_call *c) { return reshaped(c, c->args[0].t, c->args[1].dims); }

dt_status dt_infer_flatten(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    int start, end;
    DT_TRY(dt_shape_wrap_dim(c->args[1].i, t->rank, true, &start));
    DT_TRY(dt_shape_wrap_dim(c->args[2].i, t->rank, true, &end));
    if (start > end)
        return dt_fail(DT_E_RUNTIME,
                       "flatten() has invalid args: start_dim cannot come after end_dim");
    dt_dims shape = {.rank = 0};
    if (t->rank == 0) {
        shape = (dt_dims){.rank = 1, .v = {1}};
        return reshaped(c, t, &shape);
    }
    if (start == end) return dt_infer_alias(c);
    for (int d = 0; d < t->rank; d++) {
        if (d > start && d <= end)
            shape.v[shape.rank - 1] *= t->shape[d];
        else
            shape.v[shape.rank++] = t->shape[d];
    }
    return reshaped(c, t, &shape);
}

dt_status dt_infer_unflatten(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    int d;
    DT_TRY(dt_shape_wrap_dim(c->args[1].i, t->rank, false, &d));
    dt_dims sizes = *c->args[2].dims, shape = {.rank = 0};
    if (c->spot != NULL) return view_as_shape(c, t, &sizes);
    if (sizes.rank == 0) return dt_fail(DT_E_RUNTIME, "unflatten: sizes must be non-empty");
    char text[160];
    fmt_shape(&sizes, text, sizeof text);
    if (dt_shape_infer(&sizes, t->shape[d]) != DT_OK)
        return dt_fail(
            DT_E_RUNTIME,
            "unflatten: Provided sizes %s don't multiply up to the size of dim %d (%lld) "
            "in the input tensor",
            text, d, (long long)t->shape[d]);
    if (t->rank - 1 + sizes.rank > DT_RANK_MAX)
        return dt_fail(DT_E_RUNTIME, "unflatten: more than %d dimensions", DT_RANK_MAX);
    for (int k = 0; k < d; k++) shape.v[shape.rank++] = t->shape[k];
    for (int k = 0; k < sizes.rank; k++) shape.v[shape.rank++] = sizes.v[k];
    for (int k = d + 1; k < t->rank; k++) shape.v[shape.rank++] = t->shape[k];
    return view_as_shape(c, t, &shape);
}

/* ---- through a lens -------------------------------------------------------------------------- */

#define DT_INFER_THROUGH(name)                                                                     \
    dt_status dt_infer_##name(dt_op_call *c) {                                                     \
        dt_lens lens;                                                                              \
        DT_TRY(dt_lens_##name(c, &lens));                                                          \
        return dt_lens_rule(c, &lens);                                                             \
    }
DT_INFER_THROUGH(transpose)
DT_INFER_THROUGH(t)
DT_INFER_THROUGH(permute)
DT_INFER_THROUGH(movedim)
DT_INFER_THROUGH(squeeze)
DT_INFER_THROUGH(unsqueeze)
DT_INFER_THROUGH(expand)
DT_INFER_THROUGH(expand_as)
DT_INFER_THROUGH(select)
DT_INFER_THROUGH(narrow)
DT_INFER_THROUGH(slice)
DT_INFER_THROUGH(diagonal)

static void start_at_zero(dt_lens *lens, const dt_tensor *t) {
    lens->rank = 0;
    lens->also = -1;
    for (int d = 0; d < t->rank; d++) lens->start[d] = 0;
}

static void add_dim(dt_lens *lens, int64_t size, int from, int64_t step) {
    int e = lens->rank++;
    lens->shape[e] = size;
    lens->from[e] = (int8_t)from;
    lens->step[e] = step;
}

/* View dim k is dim order[k] of t. */
static dt_status permuted(dt_lens *lens, const dt_tensor *t, const int *order) {
    start_at_zero(lens, t);
    for (int k = 0; k < t->rank; k++) add_dim(lens, t->shape[order[k]], order[k], 1);
    return DT_OK;
}

static dt_status swapped(dt_lens *lens, const dt_tensor *t, int a, int b) {
    int order[DT_RANK_MAX];
    for (int d = 0; d < t->rank; d++) order[d] = d == a ? b : d == b ? a : d;
    return permuted(lens, t, order);
}

dt_status dt_lens_transpose(const dt_op_call *c, dt_lens *lens) {
    const dt_tensor *t = dt_spot_whole(c, 0);
    int a, b;
    DT_TRY(dt_shape_wrap_dim(c->args[1].i, t->rank, true, &a));
    DT_TRY(dt_shape_wrap_dim(c->args[2].i, t->rank, true, &b));
    return swapped(lens, t, a, b);
}

dt_status dt_lens_t(const dt_op_call *c, dt_lens *lens) {
    const dt_tensor *t = dt_spot_whole(c, 0);
    if (t->rank > 2)
        return dt_fail(DT_E_RUNTIME, "t() expects a tensor with <= 2 dimensions, but self is %dD",
                       t->rank);
    return swapped(lens, t, 0, t->rank - 1);
}

dt_status dt_lens_permute(const dt_op_call *c, dt_lens *lens) {
    const dt_tensor *t = dt_spot_whole(c, 0);
    const dt_dims *dims = c->args[1].dims;
    if (dims->rank != t->rank)
        return dt_fail(DT_E_RUNTIME,
                       "permute(sparse_coo): number of dimensions in the tensor input does not "
                       "match the length of the desired ordering of dimensions i.e. input.dim() = "
                       "%d is not equal to len(dims) = %d",
                       t->rank, dims->rank);
    uint32_t seen = 0;
    int order[DT_RANK_MAX];
    for (int k = 0; k < t->rank; k++) {
        DT_TRY(dt_shape_wrap_dim(dims->v[k], t->rank, false, &order[k]));
        if (seen >> order[k] & 1)
            return dt_fail(DT_E_RUNTIME, "permute(): duplicate dims are not allowed.");
        seen |= 1u << order[k];
    }
    return permuted(lens, t, order);
}

/* Puts the dims that were not named into the places that are left. */
static void fill_order(int rank, uint32_t used, int *order) {
    int next = 0;
    for (int d = 0; d < rank; d++) {
        if (order[d] >= 0) continue;
        while (used >> next & 1) next++;
        order[d] = next++;
    }
}

dt_status dt_lens_movedim(const dt_op_call *c, dt_lens *lens) {
    const dt_tensor *t = dt_spot_whole(c, 0);
    const dt_dims *from = c->args[1].dims, *to = c->args[2].dims;
    char source[160], target[160];
    fmt_shape(from, source, sizeof source);
    fmt_shape(to, target, sizeof target);
    if (from->rank != to->rank)
        return dt_fail(DT_E_RUNTIME,
                       "movedim: Invalid source or destination dims: source (%s dims) should "
                       "contain the same number of dims as destination (%s dims)",
                       source, target);
    int order[DT_RANK_MAX];
    uint32_t used = 0;
    for (int d = 0; d < t->rank; d++) order[d] = -1;
    for (int k = 0; k < from->rank; k++) {
        int s, d;
        DT_TRY(dt_shape_wrap_dim(from->v[k], t->rank, true, &s));
        DT_TRY(dt_shape_wrap_dim(to->v[k], t->rank, true, &d));
        if (t->rank == 0) continue;
        if (used >> s & 1)
            return dt_fail(DT_E_RUNTIME, "movedim: repeated dim in `source` (%s)", source);
        if (order[d] >= 0)
            return dt_fail(DT_E_RUNTIME, "movedim: repeated dim in `destination` (%s)", target);
        used |= 1u << s;
        order[d] = s;
    }
    fill_order(t->rank, used, order);
    return permuted(lens, t, order);
}

dt_status dt_lens_squeeze(const dt_op_call *c, dt_lens *lens) {
    const dt_tensor *t = dt_spot_whole(c, 0);
    uint32_t chosen = ~0u;
    if (dt_arg_given(c, 1)) {
        chosen = 0;
        for (int k = 0; k < c->args[1].dims->rank; k++) {
            int d;
            DT_TRY(dt_shape_wrap_dim(c->args[1].dims->v[k], t->rank, true, &d));
            if (chosen >> d & 1)
                return dt_fail(DT_E_RUNTIME, "dim %d appears multiple times in the list of dims",
                               d);
            chosen |= 1u << d;
        }
    }
    start_at_zero(lens, t);
    for (int d = 0; d < t->rank; d++)
        if (t->shape[d] != 1 || !(chosen >> d & 1)) add_dim(lens, t->shape[d], d, 1);
    return DT_OK;
}

dt_status dt_lens_unsqueeze(const dt_op_call *c, dt_lens *lens) {
    const dt_tensor *t = dt_spot_whole(c, 0);
    int at;
    if (t->rank == DT_RANK_MAX)
        return dt_fail(DT_E_RUNTIME, "unsqueeze: more than %d dimensions", DT_RANK_MAX);
    DT_TRY(dt_shape_wrap_dim(c->args[1].i, t->rank + 1, false, &at));
    start_at_zero(lens, t);
    for (int d = 0; d <= t->rank; d++) {
        if (d == at) add_dim(lens, 1, -1, 0);
        if (d < t->rank) add_dim(lens, t->shape[d], d, 1);
    }
    return DT_OK;
}

static dt_status expanded(dt_lens *lens, const dt_tensor *t, const dt_dims *wanted) {
    int lead = wanted->rank - t->rank;
    char wanted_text[200], own_text[200];
    dt_dims own = dt_tensor_dims(t);
    if (lead < 0)
        return dt_fail(
            DT_E_RUNTIME,
            "expand(torch.%sTensor{%s}, size=%s): the number of sizes provided (%d) must "
            "be greater or equal to the number of dimensions in the tensor (%d)",
            dt_dtype_table[t->dtype].long_name, fmt_shape(&own, own_text, sizeof own_text),
            fmt_shape(wanted, wanted_text, sizeof wanted_text), wanted->rank, t->rank);
    start_at_zero(lens, t);
    for (int e = 0; e < wanted->rank; e++) {
        int d = e - lead;
        int64_t have = d >= 0 ? t->shape[d] : -1, want = wanted->v[e];
        if (want == -1 && d < 0)
            return dt_fail(DT_E_RUNTIME,
                           "The expanded size of the tensor (-1) isn't allowed in a leading, "
                           "non-existing dimension %d",
                           e);
        if (want == -1) want = have;
        if (want < 0 || (have != -1 && have != 1 && have != want))
            return dt_fail(
                DT_E_RUNTIME,
                "The expanded size of the tensor (%lld) must match the existing size "
                "(%lld) at non-singleton dimension %d.  Target sizes: %s.  Tensor sizes: "
                "%s",
                (long long)want, (long long)have, e,
                fmt_shape(wanted, wanted_text, sizeof wanted_text),
                fmt_shape(&own, own_text, sizeof own_text));
        add_dim(lens, want, d < 0 ? -1 : d, have == want);
    }
    return DT_OK;
}

dt_status dt_lens_expand(const dt_op_call *c, dt_lens *lens) {
    return expanded(lens, dt_spot_whole(c, 0), c->args[1].dims);
}

dt_status dt_lens_expand_as(const dt_op_call *c, dt_lens *lens) {
    dt_dims shape = dt_tensor_dims(dt_spot_whole(c, 1));
    return expanded(lens, dt_spot_whole(c, 0), &shape);
}

dt_status dt_lens_select(const dt_op_call *c, dt_lens *lens) {
    const dt_tensor *t = dt_spot_whole(c, 0);
    int dim;
    if (t->rank == 0) return dt_fail(DT_E_INDEX, "select() cannot be applied to a 0-dim tensor.");
    DT_TRY(dt_shape_wrap_dim(c->args[1].i, t->rank, false, &dim));
    int64_t index = c->args[2].i, size = t->shape[dim];
    if (index < -size || index >= size)
        return dt_fail(
            DT_E_INDEX, "select(): index %lld out of range for tensor of size %s at dimension %d",
            (long long)index, dt_shape_format(t->rank, t->shape, (char[200]){0}, 200), dim);
    start_at_zero(lens, t);
    lens->start[dim] = index < 0 ? index + size : index;
    for (int d = 0; d < t->rank; d++)
        if (d != dim) add_dim(lens, t->shape[d], d, 1);
    return DT_OK;
}

static dt_status sliced(dt_lens *lens, const dt_tensor *t, int dim, int64_t start, int64_t length,
                        int64_t step) {
    start_at_zero(lens, t);
    if (length > 0) lens->start[dim] = start;
    for (int d = 0; d < t->rank; d++)
        add_dim(lens, d == dim ? length : t->shape[d], d, d == dim ? step : 1);
    return DT_OK;
}

dt_status dt_lens_narrow(const dt_op_call *c, dt_lens *lens) {
    const dt_tensor *t = dt_spot_whole(c, 0);
    int d;
    if (t->rank == 0) return dt_fail(DT_E_RUNTIME, "narrow() cannot be applied to a 0-dim tensor.");
    DT_TRY(dt_shape_wrap_dim(c->args[1].i, t->rank, false, &d));
    int64_t start = c->args[2].i, length = c->args[3].i, size = t->shape[d];
    if (length < 0) return dt_fail(DT_E_RUNTIME, "narrow(): length must be non-negative.");
    if (start < -size || start > size)
        return dt_fail(DT_E_INDEX,
                       "start out of range (expected to be in range of [%lld, %lld], "
                       "but got %lld)",
                       (long long)-size, (long long)size, (long long)start);
    if (start < 0) start += size;
    if (start > size - length)
        return dt_fail(DT_E_RUNTIME, "start (%lld) + length (%lld) exceeds dimension size (%lld).",
                       (long long)start, (long long)length, (long long)size);
    return sliced(lens, t, d, start, length, 1);
}

/* x[start:end:step] along one dim; start and end are clamped as Python slices are. */
dt_status dt_lens_slice(const dt_op_call *c, dt_lens *lens) {
    const dt_tensor *t = dt_spot_whole(c, 0);
    int d;
    if (t->rank == 0) return dt_fail(DT_E_INDEX, "slice() cannot be applied to a 0-dim tensor.");
    DT_TRY(dt_shape_wrap_dim(c->args[1].i, t->rank, false, &d));
    int64_t start = c->args[2].i, end = c->args[3].i, step = c->args[4].i, size = t->shape[d];
    if (step <= 0) return dt_fail(DT_E_VALUE, "step must be greater than zero");
    if (start < 0) start += size;
    if (end < 0) end += size;
    start = start < 0 ? 0 : start > size ? size : start;
    end = end < start ? start : end > size ? size : end;
    int64_t length = (end - start) / step + ((end - start) % step != 0);
    return sliced(lens, t, d, start, length, step);
}

dt_status dt_lens_diagonal(const dt_op_call *c, dt_lens *lens) {
    const dt_tensor *t = dt_spot_whole(c, 0);
    int a, b;
    DT_TRY(dt_shape_wrap_dim(c->args[2].i, t->rank, false, &a));
    DT_TRY(dt_shape_wrap_dim(c->args[3].i, t->rank, false, &b));
    if (a == b)
        return dt_fail(DT_E_RUNTIME, "diagonal dimensions cannot be identical %d, %d", a, b);
    int64_t offset = c->args[1].i, rows = t->shape[a], columns = t->shape[b];
    int64_t length = offset >= 0 ? (rows < columns - offset ? rows : columns - offset)
                                 : (rows + offset < columns ? rows + offset : columns);
    if (length < 0) length = 0;
    start_at_zero(lens, t);
    if (length > 0) lens->start[offset >= 0 ? b : a] = offset >= 0 ? offset : -offset;
    for (int d = 0; d < t->rank; d++)
        if (d != a && d != b) add_dim(lens, t->shape[d], d, 1);
    add_dim(lens, length, a, 1);
    lens->also = (int8_t)b;
    return DT_OK;
}

/* ---- by memory ------------------------------------------------------------------------------- */

/* Strides and offset speak of the whole tensor's memory: a part has to lie just so. */
static dt_status check_memory_of_part(const dt_op_call *c) {
    const dt_tensor *t = c->args[0].t, *whole = dt_spot_whole(c, 0);
    bool same = t->offset == whole->offset;
    for (int d = 0; same && d < t->rank; d++) same = t->strides[d] == whole->strides[d];
    if (same) return DT_OK;
    return dt_fail(DT_E_PLACEMENT,
                   "as_strided: the parts of this tensor lie in memory in another way than the "
                   "tensor says: clone() it first");
}

dt_status dt_infer_as_strided(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    const dt_dims *size = c->args[1].dims, *stride = c->args[2].dims;
    int64_t offset = dt_arg_given(c, 3) ? c->args[3].i : t->offset;
    if (size->rank != stride->rank)
        return dt_fail(DT_E_RUNTIME, "mismatch in length of strides and shape");
    char sizes[160], strides[160];
    int64_t last = offset;
    bool empty = false, over = false;
    for (int d = 0; d < size->rank; d++) {
        if (stride->v[d] < 0)
            return dt_fail(DT_E_RUNTIME,
                           "as_strided: Negative strides are not supported at the moment, got "
                           "strides: %s",
                           fmt_shape(stride, strides, sizeof strides));
        if (size->v[d] < 0)
            return dt_fail(DT_E_RUNTIME, "as_strided: negative size in %s",
                           fmt_shape(size, sizes, sizeof sizes));
        if (size->v[d] == 0)
            empty = true;
        else {
            int64_t span;
            over |= __builtin_mul_overflow(size->v[d] - 1, stride->v[d], &span) ||
                    __builtin_add_overflow(last, span, &last);
        }
    }
    int64_t item = (int64_t)dt_dtype_size((dt_dtype)t->dtype);
    int64_t limit = (int64_t)t->storage->bytes / item;
    if (offset < 0)
        return dt_fail(DT_E_RUNTIME, "Tensor: invalid storage offset %lld", (long long)offset);
    if (!empty && (over || last >= limit))
        return dt_fail(DT_E_RUNTIME,
                       "setStorage: sizes %s, strides %s, storage offset %lld, and itemsize %lld "
                       "requiring a storage size of %lld are out of bounds for storage of size %zu",
                       fmt_shape(size, sizes, sizeof sizes),
                       fmt_shape(stride, strides, sizeof strides), (long long)offset,
                       (long long)item, over ? -1LL : (long long)((last + 1) * item),
                       t->storage->bytes);
    if (c->spot != NULL) DT_TRY(check_memory_of_part(c));
    return dt_rule_view(c, t, size, stride->v, offset);
}
