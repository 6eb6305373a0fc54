/* assign.c: x[...] = value, and copy_().
 *
 *   x[i] = v  walk -> view -> fill or copy of v, broadcast to the view (or masked_fill, index_put)
 *   on a mesh: walk -> dist_index.c, but for masks, which are ops like any other
 */
#include "python/ext/index.h"

#include "runtime/dist.h"
#include "runtime/graveyard.h"

/* ---- x[index] = value ------------------------------------------------------------------------ */

/* target.op_(...), whose arguments are set. 0 or -1. */
static int run_inplace(dt_op_call *call, dt_tensor *target) {
    call->target = target;
    call->inplace = true;
    dt_status status = dt_py_dispatch(call);
    if (status == DT_OK) {
        if (call->outs[0] != NULL) dt_tensor_release(call->outs[0]);
        return 0;
    }
    (void)dt_py_raise(status);
    return -1;
}

int dt__index_fill(dt_tensor *view, dt_scalar s) {
    dt_op_call call;
    dt_op_call_init(&call, DT_OP_fill);
    call.nargs = 2;
    call.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = view};
    call.args[1] = (dt_arg){.kind = DT_ARG_SCALAR, .s = s};
    return run_inplace(&call, view);
}

/* The strides of value, spread to a shape; -1 with torch's error. */
static int spread(const dt_tensor *value, int to_rank, const int64_t *shape, int64_t *strides) {
    int skip = 0; /* leading ones of value that the shape does not have */
    while (value->rank - skip > to_rank && value->shape[skip] == 1) skip++;
    int rank = value->rank - skip, pad = to_rank - rank;
    char to[160], from[160];
    if (pad < 0) {
        PyErr_Format(
            PyExc_RuntimeError,
            "expand(torch.%sTensor{%s}, size=%s): the number of sizes provided (%d) must be "
            "greater or equal to the number of dimensions in the tensor (%d)",
            dt_dtype_table[value->dtype].long_name,
            dt_shape_format(rank, value->shape + skip, from, sizeof from),
            dt_shape_format(to_rank, shape, to, sizeof to), to_rank, rank);
        return -1;
    }
    for (int d = 0; d < to_rank; d++) {
        int64_t size = d < pad ? 1 : value->shape[skip + d - pad];
        strides[d] = size == 1 ? 0 : value->strides[skip + d - pad];
        if (size == 1 || size == shape[d]) continue;
        PyErr_Format(
            PyExc_RuntimeError,
            "The expanded size of the tensor (%lld) must match the existing size (%lld) at "
            "non-singleton dimension %d.  Target sizes: %s.  Tensor sizes: %s",
            (long long)shape[d], (long long)size, d, dt_shape_format(to_rank, shape, to, sizeof to),
            dt_shape_format(rank, value->shape + skip, from, sizeof from));
        return -1;
    }
    return 0;
}

/* value seen in that shape; owned; NULL with torch's error. */
static dt_tensor *expanded(dt_tensor *value, int rank, const int64_t *shape) {
    int64_t strides[DT_RANK_MAX];
    dt_tensor *result;
    if (spread(value, rank, shape, strides) < 0) return NULL;
    if (dt_tensor_is_dist(value)) {
        PyErr_SetString(dt_state->placement_error,
                        "assignment: the value is on a mesh, what it is written to is not: take "
                        "the value's full_tensor() or to_local()");
        return NULL;
    }
    dt_status status = dt_tensor_new_view(value, (dt_dtype)value->dtype, rank, shape, strides,
                                          value->offset, &result);
    if (status == DT_OK) return result;
    (void)dt_py_raise(status);
    return NULL;
}

static int copy_into(dt_tensor *view, dt_tensor *value) {
    dt_tensor *source = expanded(value, view->rank, view->shape);
    if (source == NULL) return -1;
    dt_status status = dt_copy_into(view, source);
    dt_tensor_release(source);
    if (status == DT_OK) return 0;
    (void)dt_py_raise(status);
    return -1;
}

/* ---- through a mask -------------------------------------------------------------------------- */

/* t with other dims, which only add or leave out ones. Owned. */
static dt_tensor *with_shape(dt_tensor *t, int rank, const int64_t *shape, const int64_t *strides) {
    dt_tensor *result;
    bool same = rank == t->rank;
    for (int d = 0; d < rank && same; d++) same = shape[d] == t->shape[d];
    if (same) return dt_tensor_retain(t);
    if (dt_tensor_is_dist(t)) {
        dt_dims dims = {.rank = rank};
        for (int d = 0; d < rank; d++) dims.v[d] = shape[d];
        return dt__index_reshaped(t, &dims);
    }
    dt_status status =
        dt_tensor_new_view(t, (dt_dtype)t->dtype, rank, shape, strides, t->offset, &result);
    if (status == DT_OK) return result;
    (void)dt_py_raise(status);
    return NULL;
}

/* view[mask] = one value: masked_fill with the mask's dims in their places, ones around them. */
static int fill_masked(const dt_cursor *c, dt_tensor *view, dt_arg value) {
    dt_tensor *mask = c->index;
    int64_t shape[DT_RANK_MAX], strides[DT_RANK_MAX];
    for (int d = 0; d < view->rank; d++) {
        bool covered = d >= c->index_at && d < c->index_at + mask->rank;
        shape[d] = covered ? mask->shape[d - c->index_at] : 1;
        strides[d] = covered ? mask->strides[d - c->index_at] : 0;
    }
    dt_tensor *wide = with_shape(mask, view->rank, shape, strides);
    if (wide == NULL) return -1;
    dt_op_call call;
    dt_op_call_init(&call, DT_OP_masked_fill);
    call.nargs = 3;
    call.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = view};
    call.args[1] = (dt_arg){.kind = DT_ARG_TENSOR, .t = wide};
    call.args[2] = value;
    int result = run_inplace(&call, view);
    dt_tensor_release(wide);
    return result;
}

static int fill_masked_number(const dt_cursor *c, dt_tensor *view, dt_scalar s) {
    if (s.category == DT_CAT_FLOAT && !dt_dtype_is_float((dt_dtype)view->dtype) && s.f > -0x1p63 &&
        s.f < 0x1p63) {
        s.i = view->dtype == DT_BOOL ? s.f != 0 : (int64_t)s.f; /* as assignment casts */
        s.category = DT_CAT_INT;
    }
    return fill_masked(c, view, (dt_arg){.kind = DT_ARG_SCALAR, .s = s});
}

/* One element, of whatever shape and dtype; copied, as it may be one of view's own. */
static int fill_masked_tensor(const dt_cursor *c, dt_tensor *view, dt_tensor *value) {
    dt_tensor *number = with_shape(value, 0, NULL, NULL);
    if (number == NULL) return -1;
    dt_tensor *copy = dt_py_tensor_clone(number, (dt_dtype)view->dtype);
    dt_tensor_release(number);
    if (copy == NULL) return -1;
    int result = fill_masked(c, view, (dt_arg){.kind = DT_ARG_TENSOR, .t = copy});
    dt_tensor_release(copy);
    return result;
}

/* value in view's dtype, without the leading ones that view[mask] has no dims for; a copy when it
 * shares view's bytes, since elements move from one place to another. Owned. */
static dt_tensor *value_for_mask(const dt_cursor *c, const dt_tensor *view, dt_tensor *value) {
    int rank = view->rank - c->index->rank + 1, skip = 0;
    while (value->rank - skip > rank && value->shape[skip] == 1) skip++;
    bool casts = value->dtype != view->dtype; /* as any assignment does; torch refuses it here */
    dt_tensor *source = casts || value->storage == view->storage
                            ? dt_py_tensor_clone(value, (dt_dtype)(casts ? view : value)->dtype)
                            : dt_tensor_retain(value);
    if (source == NULL || skip == 0) return source;
    dt_tensor *result =
        with_shape(source, source->rank - skip, source->shape + skip, source->strides + skip);
    dt_tensor_release(source);
    return result;
}

/* view[..., mask, ...] = a number (kind 1) or a tensor. Waits for nothing: a count of true places
 * that does not fit the value is an error of the value, raised when view's tensor is read. */
static int put_masked(const dt_cursor *c, dt_tensor *view, int kind, dt_scalar s,
                      dt_tensor *value) {
    if (kind == 1) return fill_masked_number(c, view, s);
    if (value->numel == 1) return fill_masked_tensor(c, view, value);
    dt_tensor *source = value_for_mask(c, view, value);
    if (source == NULL) return -1;
    dt_op_call call;
    dt_op_call_init(&call, DT_OP_index_put__mask);
    call.nargs = 4;
    call.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = view};
    call.args[1] = (dt_arg){.kind = DT_ARG_TENSOR, .t = c->index};
    call.args[2] = (dt_arg){.kind = DT_ARG_TENSOR, .t = source};
    call.args[3] = (dt_arg){.kind = DT_ARG_INT, .i = c->index_at};
    int result = run_inplace(&call, view);
    dt_tensor_release(source);
    return result;
}

/* ---- through an index ------------------------------------------------------------------------ */

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
    int result = status == DT_OK && value == NULL ? dt__index_fill(target, s) : 0;
    if (status != DT_OK) {
        (void)dt_py_raise(status);
        result = -1;
    }
    if (source != NULL) dt_tensor_release(source);
    if (target != NULL) dt_tensor_release(target);
    return result;
}

static int write_rows(const dt_cursor *c, dt_tensor *view, int64_t n, const int64_t *rows,
                      const dt_assigned *v) {
    dt_tensor *spread = NULL;
    int status = 0, at = c->index_at;
    if (v->t != NULL) {
        int64_t shape[DT_RANK_MAX];
        memcpy(shape, view->shape, sizeof shape);
        shape[at] = n;
        spread = expanded(v->t, view->rank, shape);
        if (spread == NULL) return -1;
    }
    for (int64_t i = 0; i < n && status == 0; i++)
        status = write_row(view, at, rows[i], spread, i, v->s);
    if (spread != NULL) dt_tensor_release(spread);
    return status;
}

static int assign_dist_rows(dt_cursor *c, int64_t n, const int64_t *rows, dt_assigned *v) {
    int64_t strides[DT_RANK_MAX];
    int at = c->index_at, status = 0;
    dt_index_dim *dim = &c->at[c->from[at]];
    c->shape[at] = n;
    if (v->t != NULL && spread(v->t, c->out, c->shape, strides) < 0) return -1;
    c->shape[at] = 1;
    for (int64_t i = 0; i < n && status == 0; i++) {
        dim->start = rows[i];
        v->start[at] = i;
        status = dt__dist_assign(c, v);
    }
    return status;
}

/* The rows that the index names are written one by one, each a view. view: NULL on a mesh. */
static int scatter(dt_cursor *c, dt_tensor *view, dt_assigned *v) {
    if (c->index->rank != 1) {
        PyErr_SetString(
            PyExc_NotImplementedError,
            "assigning through an index of more than one dimension is not supported yet");
        return -1;
    }
    dt_tensor *whole = dt_py_tensor_whole(c->index);
    if (whole == NULL) return -1;
    dt_tensor *index = dt__index_wrapped(whole, c->shape[c->index_at], c->index_in);
    dt_tensor_release(whole);
    if (index == NULL) return -1;
    const int64_t *rows = index->numel > 0 ? dt_tensor_data(index) : NULL;
    int status = view != NULL ? write_rows(c, view, index->numel, rows, v)
                              : assign_dist_rows(c, index->numel, rows, v);
    dt_tensor_release(index);
    return status;
}

/* ---- x[index] = value, the call -------------------------------------------------------------- */

/* The value as a number or a tensor, owned. 0 or -1. */
static int take_value(PyObject *value, const dt_tensor *target, dt_assigned *v) {
    if (dt_py_tensor_check(value)) {
        dt_tensor *known = dt_py_tensor_known(value, "assigning a tensor");
        if (known == NULL) return -1;
        v->t = dt_tensor_retain(known);
        return 0;
    }
    int ok = dt_py_scalar_from_object(value, &v->s);
    if (ok != 0) return ok < 0 ? -1 : 0;
    PyErr_Format(PyExc_TypeError, "can't assign a %s to a torch.%sTensor%s", dt_py_type_name(value),
                 dt_dtype_table[target->dtype].long_name,
                 dt_py_is_torch_tensor(value) ? ": convert it with dtorch.Tensor()" : "");
    return -1;
}

static int assign(dt_cursor *c, dt_assigned *v) {
    bool mask = c->index != NULL && c->index->dtype == DT_BOOL;
    bool dist = dt_tensor_is_dist(c->source);
    if (dist && !mask) {
        int64_t strides[DT_RANK_MAX];
        if (c->index != NULL) return scatter(c, NULL, v);
        if (v->t != NULL && spread(v->t, c->out, c->shape, strides) < 0) return -1;
        return dt__dist_assign(c, v);
    }
    dt_tensor *view = dt__index_view(c);
    if (view == NULL) return -1;
    int status;
    if (mask)
        status = put_masked(c, view, v->t == NULL, v->s, v->t);
    else if (c->index != NULL)
        status = scatter(c, view, v);
    else if (v->t == NULL)
        status = dt__index_fill(view, v->s);
    else
        status = copy_into(view, v->t);
    dt_tensor_release(view);
    return status;
}

int dt_py_tensor_setitem(PyObject *self, PyObject *index, PyObject *value) {
    if (value == NULL) {
        PyErr_SetString(PyExc_TypeError, "Tensor does not support deleting items");
        return -1;
    }
    dt_graveyard_drain();
    dt_cursor c;
    dt_assigned v = {.t = NULL};
    int status = dt__index_walk(&c, self, index);
    if (status == 0) status = take_value(value, c.source, &v);
    if (status == 0) status = assign(&c, &v);
    if (v.t != NULL) dt_tensor_release(v.t);
    dt__index_fini(&c);
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

static int copy_into_dist(dt_tensor *to, dt_tensor *from) {
    dt_cursor c;
    dt_assigned v = {.t = from};
    c.source = to;
    c.out = to->rank;
    for (int d = 0; d < to->rank; d++) {
        c.shape[d] = to->shape[d];
        c.from[d] = d;
        c.at[d] = (dt_index_dim){0, 1, false};
    }
    return dt__dist_assign(&c, &v);
}

/* _C.copy_into(self, src): self.copy_(src). */
static PyObject *function_copy_into(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    (void)module;
    if (n != 2 || !dt_py_tensor_check(args[0]) || !dt_py_tensor_check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "copy_into(self, src) takes two tensors");
        return NULL;
    }
    dt_graveyard_drain();
    dt_tensor *to = dt_py_tensor_known(args[0], "Tensor.copy_()");
    if (to == NULL) return NULL;
    dt_tensor_retain(to); /* the second may have to be waited for, too */
    dt_tensor *from = dt_py_tensor_known(args[1], "Tensor.copy_()");
    if (from == NULL) {
        dt_tensor_release(to);
        return NULL;
    }
    dt_tensor_retain(from);
    int status = check_broadcast(to, from);
    if (status == 0)
        status = dt_tensor_is_dist(to) ? copy_into_dist(to, from) : copy_into(to, from);
    dt_tensor_release(to);
    dt_tensor_release(from);
    return status == 0 ? Py_NewRef(args[0]) : NULL;
}

static PyMethodDef functions[] = {
    {"copy_into", (PyCFunction)(void (*)(void))function_copy_into, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int dt_py_assign_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
