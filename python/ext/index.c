/* index.c: x[...], and how an index is walked through.
 *
 * Basic indices (ints, slices, None, Ellipsis, bools) only change metadata: the view is computed
 * here and costs no dispatch.  At most one more index may be advanced, a list or tensor of ints or
 * a mask: what it indexes stays in the view as whole dimensions, and an op finishes the work:
 * index_select (which waits for the index), or one of the ops on masks, which wait for nothing.
 *
 *   x[i]      walk -> view -> (advanced: gather, or index__mask)
 *
 * On a mesh the view is made by ops (dist_index.c), and so is what wraps the index. Assignments:
 * assign.c.
 *
 * I1: a walk that failed has set an exception and left nothing behind but references that
 *     dt__index_fini releases.
 */
#include "python/ext/index.h"

#include <stddef.h>

#include "runtime/dist.h"
#include "runtime/graveyard.h"

void dt__index_fini(dt_cursor *c) {
    if (c->source != NULL) dt_tensor_release(c->source);
    if (c->index != NULL) dt_tensor_release(c->index);
}

static int push(dt_cursor *c, int64_t size, int64_t stride) {
    if (c->out == DT_RANK_MAX) {
        PyErr_Format(PyExc_IndexError, "the result would have more than %d dimensions",
                     DT_RANK_MAX);
        return -1;
    }
    c->shape[c->out] = size;
    c->strides[c->out] = stride;
    c->from[c->out] = -1;
    c->out++;
    return 0;
}

/* The view's next dim is every step-th of the source's next one, from start on. */
static int push_range(dt_cursor *c, int64_t size, int64_t start, int64_t step) {
    if (push(c, size, c->source->strides[c->in] * step) < 0) return -1;
    c->from[c->out - 1] = c->in;
    c->at[c->in] = (dt_index_dim){start, step, false};
    c->in++;
    return 0;
}

static int too_many(const dt_cursor *c) {
    PyErr_Format(PyExc_IndexError, "too many indices for tensor of dimension %d", c->source->rank);
    return -1;
}

static int walk_int(dt_cursor *c, int64_t i) {
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
    c->at[c->in] = (dt_index_dim){i, 1, true};
    c->in++;
    return 0;
}

static int walk_slice(dt_cursor *c, PyObject *slice) {
    if (c->in >= c->source->rank) return too_many(c);
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(slice, &start, &stop, &step) < 0) return -1;
    if (step <= 0) {
        PyErr_SetString(PyExc_ValueError, "step must be greater than zero");
        return -1;
    }
    Py_ssize_t n = PySlice_AdjustIndices((Py_ssize_t)c->source->shape[c->in], &start, &stop, step);
    if (n > 0) c->offset += start * c->source->strides[c->in];
    return push_range(c, n, start, step);
}

static int walk_rest(dt_cursor *c, int until) {
    while (c->in < until)
        if (push_range(c, c->source->shape[c->in], 0, 1) < 0) return -1;
    return 0;
}

/* ---- advanced -------------------------------------------------------------------------------- */

/* A bool index: a dimension of size 1 (True) or 0 (False), as None with or without its element. */
static int walk_bool(dt_cursor *c, bool value) {
    c->copies = true;
    return push(c, value, 0);
}

/* A mask stays pending: it covers mask->rank dims, which the view keeps; what counts of them is
 * found out when it is there. */
static int walk_mask(dt_cursor *c, dt_tensor *mask) {
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
    c->index = dt_tensor_retain(mask);
    c->index_at = c->out;
    c->index_in = c->in;
    return walk_rest(c, c->in + mask->rank);
}

static int walk_tensor(dt_cursor *c, dt_tensor *index) {
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
    return push_range(c, c->source->shape[c->in], 0, 1);
}

/* x[[0, 1]]: a list, or a tuple inside an index tuple, of ints or bools. */
static int walk_sequence(dt_cursor *c, PyObject *object) {
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
    if (status == 0 && dt_tensor_is_dist(c->source)) { /* a list is at home on any mesh */
        dt_tensor *there = dt__dist_replicate(c->index, c->source);
        if (there == NULL) return -1;
        dt_tensor_release(c->index);
        c->index = there;
    }
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

static int walk_tensor_object(dt_cursor *c, PyObject *item) {
    dt_tensor *index = dt_py_tensor_known(item, "indexing with a tensor");
    if (index == NULL) return -1;
    dt_tensor_retain(index);
    int status = -1;
    if (index->rank == 0 && dt_dtype_category((dt_dtype)index->dtype) == DT_CAT_INT) {
        dt_scalar s;
        if (dt_py_tensor_item(index, "indexing with a 0-dim tensor", &s) == 0)
            status = walk_int(c, s.i);
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

static int walk_item(dt_cursor *c, PyObject *item, int rest) {
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

int dt__index_walk(dt_cursor *c, PyObject *self, PyObject *index) {
    memset(c, 0, offsetof(dt_cursor, shape));
    c->index = NULL;
    c->source = dt_py_tensor_known(self, "indexing a tensor");
    if (c->source == NULL) return -1;
    dt_tensor_retain(c->source);
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

static dt_tensor *run_one(dt_op_call *call) {
    dt_status status = dt_py_dispatch(call);
    if (status == DT_OK) return call->outs[0];
    (void)dt_py_raise(status);
    return NULL;
}

dt_tensor *dt__index_view(const dt_cursor *c) {
    dt_tensor *view;
    const dt_tensor *s = c->source;
    if (DT_UNLIKELY(dt_tensor_is_dist(s))) return dt__dist_view(c);
    dt_status status =
        dt_tensor_new_view(s, (dt_dtype)s->dtype, c->out, c->shape, c->strides, c->offset, &view);
    if (status == DT_OK) return view;
    (void)dt_py_raise(status);
    return NULL;
}

static dt_tensor *selected0(dt_tensor *t, int64_t i) {
    dt_op_call call;
    dt_op_call_init(&call, DT_OP_select);
    call.nargs = 3;
    call.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = t};
    call.args[1] = (dt_arg){.kind = DT_ARG_INT, .i = 0};
    call.args[2] = (dt_arg){.kind = DT_ARG_INT, .i = i};
    return run_one(&call);
}

PyObject *dt_py_tensor_select0(PyObject *self, int64_t i) {
    dt_tensor *t = dt_py_tensor_get(self), *view;
    if (DT_UNLIKELY(dt_tensor_is_dist(t))) {
        view = selected0(t, i);
        return view != NULL ? dt_py_tensor_wrap_view(self, view) : NULL;
    }
    dt_status status = dt_tensor_new_view(t, (dt_dtype)t->dtype, t->rank - 1, t->shape + 1,
                                          t->strides + 1, t->offset + i * t->strides[0], &view);
    if (status != DT_OK) return dt_py_raise(status);
    return dt_py_tensor_wrap_view(self, view);
}

/* ---- ops on tensors, without handles --------------------------------------------------------- */

dt_tensor *dt__index_reshaped(dt_tensor *t, const dt_dims *shape) {
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

/* view[..., mask, ...] */
static dt_tensor *masked(const dt_cursor *c, dt_tensor *view) {
    dt_op_call call;
    dt_op_call_init(&call, DT_OP_index__mask);
    call.nargs = 3;
    call.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = view};
    call.args[1] = (dt_arg){.kind = DT_ARG_TENSOR, .t = c->index};
    call.args[2] = (dt_arg){.kind = DT_ARG_INT, .i = c->index_at};
    return run_one(&call);
}

/* The index with negative entries counted from the end: i + size * (i < 0). Owned. */
dt_tensor *dt__index_wrapped(dt_tensor *index, int64_t size, int dim) {
    int64_t n = index->numel;
    if (DT_UNLIKELY(dt_tensor_is_dist(index))) return dt__dist_wrapped_index(index, size);
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
static dt_tensor *gather(const dt_cursor *c, dt_tensor *view) {
    dt_tensor *index = dt__index_wrapped(c->index, c->shape[c->index_at], c->index_in);
    if (index == NULL) return NULL;
    dt_dims flat = {.rank = 1, .v = {index->numel}};
    dt_tensor *flat_index =
        index->rank == 1 ? dt_tensor_retain(index) : dt__index_reshaped(index, &flat);
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
            result = dt__index_reshaped(picked, &shape);
        }
        dt_tensor_release(picked);
    }
    if (flat_index != NULL) dt_tensor_release(flat_index);
    dt_tensor_release(index);
    return result;
}

/* ---- x[index] -------------------------------------------------------------------------------- */

PyObject *dt_py_tensor_getitem(PyObject *self, PyObject *index) {
    dt_cursor c;
    PyObject *result = NULL;
    if (dt__index_walk(&c, self, index) == 0) {
        dt_tensor *view = dt__index_view(&c);
        if (view != NULL && c.index != NULL) {
            dt_tensor *gathered = c.index->dtype == DT_BOOL ? masked(&c, view) : gather(&c, view);
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
    dt__index_fini(&c);
    return result;
}
