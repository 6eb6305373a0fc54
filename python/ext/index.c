/* index.c: x[...] and x[...] = value.
 *
 * Basic indices (ints, slices, None, Ellipsis, bools) only change metadata: the view is computed
 * here and costs no dispatch.  At most one more index may be advanced, a list or tensor of ints or
 * a mask: it stays in the view as a whole dimension, and index_select, masked_fill or a blocking
 * look at the mask finish the work.
 *
 *   x[i]      walk -> view -> (advanced: gather)
 *   x[i] = v  walk -> view -> fill or copy of v, broadcast to the view
 *
 * I1: a walk that failed has set an exception and left nothing behind but references that
 *     cursor_fini releases.
 */
#include "python/ext/core.h"

#include <stddef.h>

#include "runtime/graveyard.h"

typedef struct cursor {
    dt_tensor *source; /* retained */
    int in;            /* next dim of source */
    int out;           /* dims of the view so far */
    int position;      /* of the index in its tuple, for messages */
    bool copies;       /* a bool index: torch gives a copy */
    int64_t offset;
    int64_t shape[DT_RANK_MAX], strides[DT_RANK_MAX];
    dt_tensor *index; /* the advanced index, owned; NULL: none */
    int index_at;     /* the view's dim that it indexes */
    int index_in;     /* the source's dim that it stands at, for messages */
} cursor;

static void cursor_fini(cursor *c) {
    dt_tensor_release(c->source);
    if (c->index != NULL) dt_tensor_release(c->index);
}

static int push(cursor *c, int64_t size, int64_t stride) {
    if (c->out == DT_RANK_MAX) {
        PyErr_Format(PyExc_IndexError, "the result would have more than %d dimensions",
                     DT_RANK_MAX);
        return -1;
    }
    c->shape[c->out] = size;
    c->strides[c->out] = stride;
    c->out++;
    return 0;
}

static int too_many(const cursor *c) {
    PyErr_Format(PyExc_IndexError, "too many indices for tensor of dimension %d", c->source->rank);
    return -1;
}

static int walk_int(cursor *c, int64_t i) {
    if (c->in >= c->source->rank) return too_many(c);
    int64_t size = c->source->shape[c->in];
    if (i < -size || i >= size) {
        PyErr_Format(PyExc_IndexError,
                     "index %lld is out of bounds for dimension %d with size %lld", (long long)i,
                     c->position, (long long)size);
        return -1;
    }
    if (i < 0) i += size;
    c->offset += i * c->source->strides[c->in];
    c->in++;
    return 0;
}

static int walk_slice(cursor *c, PyObject *slice) {
    if (c->in >= c->source->rank) return too_many(c);
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(slice, &start, &stop, &step) < 0) return -1;
    if (step <= 0) {
        PyErr_SetString(PyExc_ValueError, "step must be greater than zero");
        return -1;
    }
    int64_t stride = c->source->strides[c->in];
    Py_ssize_t n = PySlice_AdjustIndices((Py_ssize_t)c->source->shape[c->in], &start, &stop, step);
    if (n > 0) c->offset += start * stride;
    c->in++;
    return push(c, n, stride * step);
}

static int walk_rest(cursor *c, int until) {
    for (; c->in < until; c->in++)
        if (push(c, c->source->shape[c->in], c->source->strides[c->in]) < 0) return -1;
    return 0;
}

/* ---- advanced -------------------------------------------------------------------------------- */

/* A bool index: a dimension of size 1 (True) or 0 (False), as None with or without its element. */
static int walk_bool(cursor *c, bool value) {
    c->copies = true;
    return push(c, value, 0);
}

/* The places where a ready mask is true, as int64. NULL with an exception. */
static dt_tensor *mask_places(dt_tensor *mask) {
    if (dt_py_tensor_wait(mask, "indexing with a mask") < 0) return NULL;
    dt_tensor *dense = dt_py_tensor_dense(mask, DT_BOOL);
    if (dense == NULL) return NULL;
    dt_tensor *places = NULL;
    if (dt_py_tensor_wait(dense, "indexing with a mask") == 0) {
        const uint8_t *bytes = dt_tensor_data(dense);
        int64_t count = 0;
        for (int64_t i = 0; i < dense->numel; i++) count += bytes[i] != 0;
        dt_status status = dt_tensor_new(DT_I64, 1, &count, &places);
        if (status == DT_OK && (status = dt_storage_materialize(places->storage)) != DT_OK)
            dt_tensor_release(places);
        if (status == DT_OK) {
            int64_t *to = dt_tensor_data(places);
            for (int64_t i = 0; i < dense->numel; i++)
                if (bytes[i] != 0) *to++ = i;
        } else {
            places = NULL;
            (void)dt_py_raise(status);
        }
    }
    dt_tensor_release(dense);
    return places;
}

/* A mask covers mask->rank dims of source: these become one dim (a view, else a copy of all). */
static int walk_mask(cursor *c, dt_tensor *mask) {
    const dt_tensor *s = c->source;
    for (int d = 0; d < mask->rank; d++) {
        if (c->in + d < s->rank && mask->shape[d] == s->shape[c->in + d]) continue;
        if (c->in + mask->rank > s->rank) return too_many(c);
        char a[160], b[160];
        PyErr_Format(PyExc_IndexError,
                     "The shape of the mask %s at index %d does not match the shape of the indexed "
                     "tensor %s at index %d",
                     dt_shape_format(mask->rank, mask->shape, a, sizeof a), d,
                     dt_shape_format(s->rank, s->shape, b, sizeof b), c->in + d);
        return -1;
    }
    int64_t stride, numel = mask->numel;
    if (!dt_shape_view_strides(mask->rank, s->shape + c->in, s->strides + c->in, 1, &numel,
                               &stride)) {
        PyErr_SetString(
            PyExc_NotImplementedError,
            "a mask over several dimensions needs them to be dense: call contiguous() on "
            "the tensor first");
        return -1;
    }
    c->index = mask_places(mask);
    if (c->index == NULL) return -1;
    c->index_at = c->out;
    c->index_in = c->in;
    c->in += mask->rank;
    return push(c, numel, stride);
}

static int walk_tensor(cursor *c, dt_tensor *index) {
    if (c->index != NULL) {
        PyErr_SetString(PyExc_NotImplementedError,
                        "indexing with several lists or tensors is not supported yet; use one, or "
                        "index_select() and gather()");
        return -1;
    }
    if (index->dtype == DT_BOOL) return walk_mask(c, index);
    if (dt_dtype_category((dt_dtype)index->dtype) != DT_CAT_INT || index->dtype == DT_I8 ||
        index->dtype == DT_I16 || index->dtype == DT_U8) {
        PyErr_SetString(PyExc_IndexError,
                        index->dtype == DT_U8
                            ? "uint8 tensors as masks are not supported: convert the index to bool"
                            : "tensors used as indices must be long, int, byte or bool tensors");
        return -1;
    }
    if (c->in >= c->source->rank) return too_many(c);
    c->index = dt_tensor_retain(index);
    c->index_at = c->out;
    c->index_in = c->in;
    int64_t size = c->source->shape[c->in], stride = c->source->strides[c->in];
    c->in++;
    return push(c, size, stride);
}

/* x[[0, 1]]: a list, or a tuple inside an index tuple, of ints or bools. */
static int walk_sequence(cursor *c, PyObject *object) {
    dt_tensor *index = dt_py_tensor_from_data(object, DT_DTYPE_NONE, DT_F32);
    if (index == NULL) return -1;
    if (index->numel == 0 && dt_dtype_is_float((dt_dtype)index->dtype)) { /* [] is a list of ints */
        dt_tensor *ints = dt_py_tensor_clone(index, DT_I64);
        dt_tensor_release(index);
        if (ints == NULL) return -1;
        index = ints;
    }
    int status = walk_tensor(c, index);
    dt_tensor_release(index);
    return status;
}

/* ---- walking --------------------------------------------------------------------------------- */

static int bad_index(PyObject *index) {
    if (dt_py_is_torch_tensor(index) || strcmp(Py_TYPE(index)->tp_name, "numpy.ndarray") == 0)
        PyErr_Format(PyExc_TypeError, "a %s cannot be an index: convert it with dtorch.tensor()",
                     dt_py_type_name(index));
    else if (PyUnicode_Check(index))
        PyErr_SetString(PyExc_TypeError, "new(): invalid data type 'str'");
    else
        PyErr_Format(
            PyExc_IndexError,
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables "
            "are valid indices (got %s)",
            dt_py_type_name(index));
    return -1;
}

static int walk_tensor_object(cursor *c, PyObject *item) {
    dt_tensor *index = dt_tensor_retain(dt_py_tensor_get(item));
    int status = -1;
    if (index->rank == 0 && !dt_dtype_is_float((dt_dtype)index->dtype)) {
        dt_scalar s;
        if (dt_py_tensor_item(index, "indexing with a 0-dim tensor", &s) == 0)
            status = index->dtype == DT_BOOL ? walk_bool(c, s.i != 0) : walk_int(c, s.i);
    } else {
        status = walk_tensor(c, index);
    }
    dt_tensor_release(index);
    return status;
}

/* How many dims of the source an index takes; for placing the Ellipsis. */
static int dims_taken(PyObject *item) {
    if (item == Py_None || item == Py_Ellipsis || PyBool_Check(item)) return 0;
    if (!dt_py_tensor_check(item)) return 1;
    const dt_tensor *t = dt_py_tensor_get(item);
    return t->dtype == DT_BOOL ? t->rank : 1;
}

static int walk_item(cursor *c, PyObject *item, int rest) {
    if (item == Py_None) return push(c, 1, 0);
    if (item == Py_Ellipsis) {
        int until = c->source->rank - rest;
        return until > c->in ? walk_rest(c, until) : 0;
    }
    if (PyBool_Check(item)) return walk_bool(c, item == Py_True);
    if (PySlice_Check(item)) return walk_slice(c, item);
    if (dt_py_tensor_check(item)) return walk_tensor_object(c, item);
    int64_t i;
    int ok = dt_py_int_from_object(item, &i);
    if (ok != 0) return ok > 0 ? walk_int(c, i) : -1;
    if (PyList_Check(item) || PyTuple_Check(item) || PyRange_Check(item))
        return walk_sequence(c, item);
    return bad_index(item);
}

static int walk(cursor *c, PyObject *self, PyObject *index) {
    memset(c, 0, offsetof(cursor, shape));
    c->index = NULL;
    c->source = dt_tensor_retain(dt_py_tensor_get(self));
    c->offset = c->source->offset;
    if (!PyTuple_Check(index)) {
        if (c->source->rank == 0 && !PyBool_Check(index) && PyIndex_Check(index) &&
            !dt_py_tensor_check(index)) {
            PyErr_SetString(PyExc_IndexError,
                            "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or "
                            "`tensor.item<T>()` in C++ to convert a 0-dim tensor to a number");
            return -1;
        }
        if (walk_item(c, index, 0) < 0) return -1;
    } else {
        Py_ssize_t n = PyTuple_GET_SIZE(index);
        int rest = 0;
        for (Py_ssize_t i = 0; i < n; i++) rest += dims_taken(PyTuple_GET_ITEM(index, i));
        if (rest > c->source->rank) return too_many(c);
        for (Py_ssize_t i = 0; i < n; i++) {
            PyObject *item = PyTuple_GET_ITEM(index, i);
            rest -= dims_taken(item);
            c->position = (int)i;
            if (walk_item(c, item, rest) < 0) return -1;
        }
    }
    return walk_rest(c, c->source->rank);
}

static dt_tensor *make_view(const cursor *c) {
    dt_tensor *view;
    const dt_tensor *s = c->source;
    dt_status status =
        dt_tensor_new_view(s, (dt_dtype)s->dtype, c->out, c->shape, c->strides, c->offset, &view);
    if (status == DT_OK) return view;
    (void)dt_py_raise(status);
    return NULL;
}

PyObject *dt_py_tensor_select0(PyObject *self, int64_t i) {
    const dt_tensor *t = dt_py_tensor_get(self);
    dt_tensor *view;
    dt_status status = dt_tensor_new_view(t, (dt_dtype)t->dtype, t->rank - 1, t->shape + 1,
                                          t->strides + 1, t->offset + i * t->strides[0], &view);
    if (status != DT_OK) return dt_py_raise(status);
    return dt_py_tensor_wrap_view(self, view);
}

/* ---- ops on tensors, without handles --------------------------------------------------------- */

static dt_tensor *run_one(dt_op_call *call) {
    dt_status status = dt_py_dispatch(call);
    if (status == DT_OK) return call->outs[0];
    (void)dt_py_raise(status);
    return NULL;
}

static dt_tensor *reshaped(dt_tensor *t, const dt_dims *shape) {
    dt_op_call call;
    dt_op_call_init(&call, DT_OP_reshape);
    call.nargs = 2;
    call.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = t};
    call.args[1] = (dt_arg){.kind = DT_ARG_DIMS, .dims = shape};
    return run_one(&call);
}

static dt_tensor *index_selected(dt_tensor *t, int dim, dt_tensor *index) {
    dt_op_call call;
    dt_op_call_init(&call, DT_OP_index_select);
    call.nargs = 3;
    call.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = t};
    call.args[1] = (dt_arg){.kind = DT_ARG_INT, .i = dim};
    call.args[2] = (dt_arg){.kind = DT_ARG_TENSOR, .t = index};
    return run_one(&call);
}

/* The index with negative entries counted from the end: i + size * (i < 0). Owned. */
static dt_tensor *wrapped_index(dt_tensor *index, int64_t size, int dim) {
    int64_t n = index->numel;
    if (dt_py_tensor_wait(index, "indexing with a tensor") < 0) return NULL;
    dt_tensor *dense = dt_py_tensor_dense(index, DT_I64);
    if (dense == NULL) return NULL;
    bool ok = dt_py_tensor_wait(dense, "indexing with a tensor") == 0;
    int64_t *v = ok && n > 0 ? dt_tensor_data(dense) : NULL;
    for (int64_t i = 0; i < n && ok; i++) {
        if (v[i] < -size || v[i] >= size) {
            PyErr_Format(PyExc_IndexError,
                         "index %lld is out of bounds for dimension %d with size %lld",
                         (long long)v[i], dim, (long long)size);
            ok = false;
        } else if (v[i] < 0) {
            v[i] += size;
        }
    }
    if (ok) return dense;
    dt_tensor_release(dense);
    return NULL;
}

/* view[..., index, ...] with index of any rank: select by the flat index, then spread its dims out.
 */
static dt_tensor *gather(const cursor *c, dt_tensor *view) {
    dt_tensor *index = wrapped_index(c->index, c->shape[c->index_at], c->index_in);
    if (index == NULL) return NULL;
    dt_dims flat = {.rank = 1, .v = {index->numel}};
    dt_tensor *flat_index = reshaped(index, &flat);
    dt_tensor *picked = flat_index != NULL ? index_selected(view, c->index_at, flat_index) : NULL;
    dt_tensor *result = picked;
    if (picked != NULL && index->rank != 1) {
        dt_dims shape = {.rank = 0};
        if (c->out - 1 + index->rank > DT_RANK_MAX) {
            PyErr_Format(PyExc_IndexError, "the result would have more than %d dimensions",
                         DT_RANK_MAX);
            result = NULL;
        } else {
            for (int d = 0; d < c->out; d++) {
                if (d != c->index_at)
                    shape.v[shape.rank++] = c->shape[d];
                else
                    for (int k = 0; k < index->rank; k++) shape.v[shape.rank++] = index->shape[k];
            }
            result = reshaped(picked, &shape);
        }
        dt_tensor_release(picked);
    }
    if (flat_index != NULL) dt_tensor_release(flat_index);
    dt_tensor_release(index);
    return result;
}

/* ---- x[index] -------------------------------------------------------------------------------- */

PyObject *dt_py_tensor_getitem(PyObject *self, PyObject *index) {
    cursor c;
    PyObject *result = NULL;
    if (walk(&c, self, index) == 0) {
        dt_tensor *view = make_view(&c);
        if (view != NULL && c.index != NULL) {
            dt_tensor *gathered = gather(&c, view);
            dt_tensor_release(view);
            if (gathered != NULL) result = dt_py_tensor_wrap(gathered);
        } else if (view != NULL && c.copies) {
            dt_tensor *copy = dt_py_tensor_clone(view, (dt_dtype)view->dtype);
            dt_tensor_release(view);
            if (copy != NULL) result = dt_py_tensor_wrap(copy);
        } else if (view != NULL) {
            result = dt_py_tensor_wrap_view(self, view);
        }
    }
    cursor_fini(&c);
    return result;
}

/* ---- x[index] = value ------------------------------------------------------------------------ */

static int fill(dt_tensor *view, dt_scalar s) {
    dt_op_call call;
    dt_op_call_init(&call, DT_OP_fill);
    call.nargs = 2;
    call.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = view};
    call.args[1] = (dt_arg){.kind = DT_ARG_SCALAR, .s = s};
    call.target = view;
    call.inplace = true;
    dt_status status = dt_py_dispatch(&call);
    if (status != DT_OK) {
        (void)dt_py_raise(status);
        return -1;
    }
    if (call.outs[0] != NULL) dt_tensor_release(call.outs[0]);
    return 0;
}

/* value seen in the shape of view; owned; NULL with torch's error. */
static dt_tensor *expanded(dt_tensor *value, const dt_tensor *view) {
    int skip = 0; /* leading ones of value that view does not have */
    while (value->rank - skip > view->rank && value->shape[skip] == 1) skip++;
    int rank = value->rank - skip, pad = view->rank - rank;
    char to[160], from[160];
    if (pad < 0) {
        PyErr_Format(
            PyExc_RuntimeError,
            "expand(torch.%sTensor{%s}, size=%s): the number of sizes provided (%d) must be "
            "greater or equal to the number of dimensions in the tensor (%d)",
            dt_dtype_table[value->dtype].long_name,
            dt_shape_format(rank, value->shape + skip, from, sizeof from),
            dt_shape_format(view->rank, view->shape, to, sizeof to), view->rank, rank);
        return NULL;
    }
    int64_t strides[DT_RANK_MAX];
    for (int d = 0; d < view->rank; d++) {
        int64_t size = d < pad ? 1 : value->shape[skip + d - pad];
        strides[d] = size == 1 ? 0 : value->strides[skip + d - pad];
        if (size == 1 || size == view->shape[d]) continue;
        PyErr_Format(
            PyExc_RuntimeError,
            "The expanded size of the tensor (%lld) must match the existing size (%lld) at "
            "non-singleton dimension %d.  Target sizes: %s.  Tensor sizes: %s",
            (long long)view->shape[d], (long long)size, d,
            dt_shape_format(view->rank, view->shape, to, sizeof to),
            dt_shape_format(rank, value->shape + skip, from, sizeof from));
        return NULL;
    }
    dt_tensor *result;
    dt_status status = dt_tensor_new_view(value, (dt_dtype)value->dtype, view->rank, view->shape,
                                          strides, value->offset, &result);
    if (status == DT_OK) return result;
    (void)dt_py_raise(status);
    return NULL;
}

static int copy_into(dt_tensor *view, dt_tensor *value) {
    dt_tensor *source = expanded(value, view);
    if (source == NULL) return -1;
    dt_status status = dt_copy_into(view, source);
    dt_tensor_release(source);
    if (status == DT_OK) return 0;
    (void)dt_py_raise(status);
    return -1;
}

/* The value as a number (1) or a tensor (0, owned); -1 error. */
static int take_value(PyObject *value, const dt_tensor *view, dt_scalar *s, dt_tensor **t) {
    if (dt_py_tensor_check(value)) {
        *t = dt_tensor_retain(dt_py_tensor_get(value));
        return 0;
    }
    int ok = dt_py_scalar_from_object(value, s);
    if (ok != 0) return ok;
    PyErr_Format(PyExc_TypeError, "can't assign a %s to a torch.%sTensor%s", dt_py_type_name(value),
                 dt_dtype_table[view->dtype].long_name,
                 dt_py_is_torch_tensor(value) ? ": convert it with dtorch.Tensor()" : "");
    return -1;
}

/* view[at: row] = value[at: i], or the number when value is NULL. */
static int write_row(const dt_tensor *view, int at, int64_t row, const dt_tensor *value, int64_t i,
                     dt_scalar s) {
    int64_t shape[DT_RANK_MAX];
    memcpy(shape, view->shape, sizeof shape);
    shape[at] = 1;
    dt_tensor *target = NULL, *source = NULL;
    dt_status status =
        dt_tensor_new_view(view, (dt_dtype)view->dtype, view->rank, shape, view->strides,
                           view->offset + row * view->strides[at], &target);
    if (status == DT_OK && value != NULL)
        status =
            dt_tensor_new_view(value, (dt_dtype)value->dtype, view->rank, shape, value->strides,
                               value->offset + i * value->strides[at], &source);
    if (status == DT_OK && value != NULL) status = dt_copy_into(target, source);
    int result = status == DT_OK && value == NULL ? fill(target, s) : 0;
    if (status != DT_OK) {
        (void)dt_py_raise(status);
        result = -1;
    }
    if (source != NULL) dt_tensor_release(source);
    if (target != NULL) dt_tensor_release(target);
    return result;
}

/* Masks and lists: the rows that the index names are written one by one, each a view. */
static int scatter(const cursor *c, dt_tensor *view, int kind, dt_scalar s, dt_tensor *value) {
    dt_tensor *index = wrapped_index(c->index, c->shape[c->index_at], c->index_in);
    if (index == NULL) return -1;
    int status = -1, at = c->index_at, extra = index->rank;
    dt_tensor *spread = NULL; /* value in the shape of view[index] */
    int64_t n = index->numel;
    if (extra != 1) {
        PyErr_SetString(
            PyExc_NotImplementedError,
            "assigning through an index of more than one dimension is not supported yet");
        goto done;
    }
    if (kind == 0) {
        dt_tensor shape_of = *view; /* only rank and shape are read */
        shape_of.shape[at] = n;
        spread = expanded(value, &shape_of);
        if (spread == NULL) goto done;
    }
    const int64_t *rows = n > 0 ? dt_tensor_data(index) : NULL;
    for (int64_t i = 0; i < n; i++)
        if (write_row(view, at, rows[i], spread, i, s) < 0) goto done;
    status = 0;
done:
    if (spread != NULL) dt_tensor_release(spread);
    dt_tensor_release(index);
    return status;
}

/* x[mask] = number, without looking at the mask. 1 done, 0 not of this form, -1 error. */
static int fill_masked(PyObject *self, PyObject *index, PyObject *value) {
    dt_scalar s;
    if (!dt_py_tensor_check(index)) return 0;
    dt_tensor *t = dt_py_tensor_get(self), *mask = dt_py_tensor_get(index);
    if (mask->dtype != DT_BOOL || mask->rank == 0 || mask->rank > t->rank) return 0;
    for (int d = 0; d < mask->rank; d++)
        if (mask->shape[d] != t->shape[d]) return 0;
    int ok = dt_py_tensor_check(value) ? 0 : dt_py_scalar_from_object(value, &s);
    if (ok <= 0) return ok;
    if (s.category == DT_CAT_FLOAT && !dt_dtype_is_float((dt_dtype)t->dtype) && s.f > -0x1p63 &&
        s.f < 0x1p63) {
        s.i = t->dtype == DT_BOOL ? s.f != 0 : (int64_t)s.f; /* as assignment casts */
        s.category = DT_CAT_INT;
    }
    int64_t shape[DT_RANK_MAX], strides[DT_RANK_MAX];
    for (int d = 0; d < t->rank; d++) {
        shape[d] = d < mask->rank ? mask->shape[d] : 1;
        strides[d] = d < mask->rank ? mask->strides[d] : 0;
    }
    dt_tensor *wide;
    dt_status status =
        dt_tensor_new_view(mask, DT_BOOL, t->rank, shape, strides, mask->offset, &wide);
    if (status == DT_OK) {
        dt_op_call call;
        dt_op_call_init(&call, DT_OP_masked_fill);
        call.nargs = 3;
        call.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = dt_tensor_retain(t)};
        call.args[1] = (dt_arg){.kind = DT_ARG_TENSOR, .t = wide};
        call.args[2] = (dt_arg){.kind = DT_ARG_SCALAR, .s = s};
        call.target = t;
        call.inplace = true;
        status = dt_py_dispatch(&call);
        if (status == DT_OK && call.outs[0] != NULL) dt_tensor_release(call.outs[0]);
        dt_tensor_release(wide);
        dt_tensor_release(t);
    }
    if (status == DT_OK) return 1;
    (void)dt_py_raise(status);
    return -1;
}

int dt_py_tensor_setitem(PyObject *self, PyObject *index, PyObject *value) {
    if (value == NULL) {
        PyErr_SetString(PyExc_TypeError, "Tensor does not support deleting items");
        return -1;
    }
    dt_graveyard_drain();
    int masked = fill_masked(self, index, value);
    if (masked != 0) return masked > 0 ? 0 : -1;
    cursor c;
    int status = -1;
    dt_tensor *view = NULL, *t = NULL;
    if (walk(&c, self, index) == 0) view = make_view(&c);
    if (view != NULL) {
        dt_scalar s = {0};
        int kind = take_value(value, view, &s, &t);
        if (kind >= 0 && c.index != NULL)
            status = scatter(&c, view, kind, s, t);
        else if (kind == 1)
            status = fill(view, s);
        else if (kind == 0)
            status = copy_into(view, t);
        if (t != NULL) dt_tensor_release(t);
        dt_tensor_release(view);
    }
    cursor_fini(&c);
    return status;
}

/* copy_ broadcasts src to self, and says so in other words than an assignment. */
static int check_broadcast(const dt_tensor *to, const dt_tensor *from) {
    dt_dims a = dt_tensor_dims(to), b = dt_tensor_dims(from), both;
    dt_status status = dt_shape_broadcast(&a, &b, &both);
    if (status == DT_OK &&
        (both.rank != a.rank || memcmp(both.v, a.v, sizeof *a.v * (size_t)a.rank) != 0)) {
        char x[160], y[160];
        status = dt_fail(DT_E_RUNTIME, "output with shape %s doesn't match the broadcast shape %s",
                         dt_shape_format(a.rank, a.v, x, sizeof x),
                         dt_shape_format(both.rank, both.v, y, sizeof y));
    }
    if (status == DT_OK) return 0;
    (void)dt_py_raise(status);
    return -1;
}

/* _C.copy_into(self, src): self.copy_(src). */
static PyObject *function_copy_into(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    (void)module;
    if (n != 2 || !dt_py_tensor_check(args[0]) || !dt_py_tensor_check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "copy_into(self, src) takes two tensors");
        return NULL;
    }
    dt_graveyard_drain();
    dt_tensor *to = dt_tensor_retain(dt_py_tensor_get(args[0]));
    dt_tensor *from = dt_tensor_retain(dt_py_tensor_get(args[1]));
    int status = check_broadcast(to, from) < 0 ? -1 : copy_into(to, from);
    dt_tensor_release(to);
    dt_tensor_release(from);
    return status == 0 ? Py_NewRef(args[0]) : NULL;
}

static PyMethodDef functions[] = {
    {"copy_into", (PyCFunction)(void (*)(void))function_copy_into, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int dt_py_index_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
