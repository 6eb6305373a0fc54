/* methods.c: Tensor's properties and the methods that are not ops: metadata, reading, copying.
 *
 * Metadata never waits, but for the sizes of a tensor that its kernel has yet to find out
 * (tensor.h, deferred).  Reading (item, tolist, data_ptr, ...) waits for the bytes through wait.c,
 * which knows about event loops.
 *
 * I1: a wait may run other Python code; self->t is retained across it.
 */
#include "python/ext/core.h"

#include <stddef.h>

#include "runtime/dist.h"
#include "runtime/rules.h"

/* ---- metadata -------------------------------------------------------------------------------- */

PyObject *dt_py_size_object(int rank, const int64_t *shape) {
    PyTypeObject *type = dt_state->size_type != NULL ? dt_state->size_type : &PyTuple_Type;
    PyObject *size = type->tp_alloc(type, rank);
    if (size == NULL) return NULL;
    for (int d = 0; d < rank; d++) {
        PyObject *item = PyLong_FromLongLong(shape[d]);
        if (item == NULL) {
            Py_DECREF(size);
            return NULL;
        }
        PyTuple_SET_ITEM(size, d, item);
    }
    return size;
}

static PyObject *get_shape(PyObject *self, void *closure) {
    (void)closure;
    const dt_tensor *t = dt_py_tensor_known(self, "Tensor.shape");
    return t != NULL ? dt_py_size_object(t->rank, t->shape) : NULL;
}

static PyObject *get_dtype(PyObject *self, void *closure) {
    (void)closure;
    return dt_py_dtype_object((dt_dtype)dt_py_tensor_get(self)->dtype);
}

static PyObject *get_dtype_name(PyObject *self, void *closure) {
    (void)closure;
    return PyUnicode_FromString(dt_dtype_table[dt_py_tensor_get(self)->dtype].name);
}

static PyObject *get_helper(PyObject *self, void *closure) {
    (void)self;
    return dt_py_call_helper("_torch", (const char *)closure, NULL);
}

static PyObject *get_ndim(PyObject *self, void *closure) {
    (void)closure;
    return PyLong_FromLong(dt_py_tensor_get(self)->rank);
}

static PyObject *get_itemsize(PyObject *self, void *closure) {
    (void)closure;
    return PyLong_FromSize_t(dt_dtype_size((dt_dtype)dt_py_tensor_get(self)->dtype));
}

static PyObject *get_nbytes(PyObject *self, void *closure) {
    (void)closure;
    const dt_tensor *t = dt_py_tensor_known(self, "Tensor.nbytes");
    if (t == NULL) return NULL;
    return PyLong_FromLongLong(t->numel * (int64_t)dt_dtype_size((dt_dtype)t->dtype));
}

static const dt_mesh *mesh_of(PyObject *self) {
    const dt_tensor *t = dt_py_tensor_get(self);
    return DT_UNLIKELY(dt_tensor_is_dist(t)) ? dt_dist_of(t)->mesh : NULL;
}

static PyObject *get_device(PyObject *self, void *closure) {
    (void)closure;
    const dt_mesh *mesh = mesh_of(self);
    return dt_py_call_helper(
        "_torch", mesh != NULL && mesh->type == DT_DEVICE_CUDA ? "cuda_device" : "cpu_device",
        NULL);
}

static PyObject *get_is_type(PyObject *self, void *closure) {
    const dt_mesh *mesh = mesh_of(self);
    dt_device_type type = mesh != NULL ? (dt_device_type)mesh->type : DT_DEVICE_CPU;
    return PyBool_FromLong(type == (dt_device_type)(intptr_t)closure);
}

static PyObject *get_false(PyObject *self, void *closure) {
    (void)self, (void)closure;
    Py_RETURN_FALSE;
}

/* Of a tensor on a mesh each write counts for every part. */
static PyObject *get_version(PyObject *self, void *closure) {
    (void)closure;
    dt_tensor *t = dt_py_tensor_get(self);
    int count;
    const dt_tensor *first = dt_tensor_parts(&t, &count)[0];
    return PyLong_FromUnsignedLong(
        atomic_load_explicit(&first->storage->version, memory_order_relaxed));
}

/* ---- autograd's room ------------------------------------------------------------------------- */

static PyObject *get_object(PyObject *self, void *closure) {
    PyObject *object = *(PyObject **)((char *)self + (Py_ssize_t)(intptr_t)closure);
    return Py_NewRef(object != NULL ? object : Py_None);
}

static int set_grad(PyObject *self, PyObject *value, void *closure) {
    (void)closure;
    PyObject **slot = &((dt_py_tensor *)self)->grad;
    if (value == NULL || value == Py_None) {
        Py_CLEAR(*slot);
        return 0;
    }
    if (!dt_py_tensor_check(value)) {
        PyErr_Format(PyExc_TypeError,
                     "assigned grad expected to be a Tensor or None but got grad of type %s",
                     dt_py_type_name(value));
        return -1;
    }
    if (value == self) {
        PyErr_SetString(PyExc_RuntimeError, "can't assign Variable as its own grad");
        return -1;
    }
    const dt_tensor *t = dt_py_tensor_known(self, "Tensor.grad");
    const dt_tensor *grad = t != NULL ? dt_py_tensor_known(value, "Tensor.grad") : NULL;
    if (grad == NULL) return -1;
    if (!dt_tensor_same_shape(dt_py_tensor_get(self), grad)) {
        PyErr_SetString(PyExc_RuntimeError, "assigned grad has data of a different size");
        return -1;
    }
    Py_XSETREF(*slot, Py_NewRef(value));
    return 0;
}

static PyObject *get_requires_grad(PyObject *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(((dt_py_tensor *)self)->requires_grad);
}

static int set_requires_grad(PyObject *self, PyObject *value, void *closure) {
    (void)closure;
    if (value == NULL || !PyBool_Check(value)) {
        PyErr_SetString(PyExc_RuntimeError, "requires_grad must be a bool");
        return -1;
    }
    if (value == Py_True && !dt_dtype_is_float((dt_dtype)dt_py_tensor_get(self)->dtype)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "only Tensors of floating point dtype can require gradients");
        return -1;
    }
    ((dt_py_tensor *)self)->requires_grad = value == Py_True;
    return 0;
}

static PyObject *method_requires_grad(PyObject *self, PyObject *const *args, Py_ssize_t n,
                                      PyObject *kwnames) {
    Py_ssize_t total = n + (kwnames != NULL ? PyTuple_GET_SIZE(kwnames) : 0);
    if (total > 1) {
        PyErr_SetString(PyExc_TypeError, "requires_grad_() takes 1 argument, requires_grad=True");
        return NULL;
    }
    if (total == 1 && !PyBool_Check(args[0])) {
        PyErr_Format(PyExc_TypeError,
                     "requires_grad_(): argument 'requires_grad' (position 1) must be bool, not %s",
                     dt_py_type_name(args[0]));
        return NULL;
    }
    if (set_requires_grad(self, total == 1 ? args[0] : Py_True, NULL) < 0) return NULL;
    return Py_NewRef(self);
}

static PyObject *get_is_leaf(PyObject *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(((dt_py_tensor *)self)->is_leaf);
}

static PyObject *get_data(PyObject *self, void *closure) {
    (void)closure;
    return dt_py_tensor_wrap(dt_tensor_retain(dt_py_tensor_get(self)));
}

static int set_data(PyObject *self, PyObject *value, void *closure) {
    (void)closure;
    if (value == NULL || !dt_py_tensor_check(value)) {
        PyErr_Format(PyExc_TypeError, "Variable data has to be a tensor, but got %s",
                     value != NULL ? dt_py_type_name(value) : "nothing");
        return -1;
    }
    dt_py_tensor_replace(self, dt_tensor_retain(dt_py_tensor_get(value)));
    return 0;
}

/* ---- transposes ------------------------------------------------------------------------------ */

static PyObject *dist_permuted(PyObject *self, dt_tensor *t, const int *order) {
    dt_op_call call;
    dt_dims dims = {.rank = t->rank};
    for (int d = 0; d < t->rank; d++) dims.v[d] = order[d];
    dt_op_call_init(&call, DT_OP_permute);
    call.nargs = 2;
    call.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = t};
    call.args[1] = (dt_arg){.kind = DT_ARG_DIMS, .dims = &dims};
    dt_status status = dt_py_dispatch(&call);
    return status == DT_OK ? dt_py_tensor_wrap_view(self, call.outs[0]) : dt_py_raise(status);
}

static PyObject *view_permuted(PyObject *self, const int *order) {
    dt_tensor *t = dt_py_tensor_known(self, DT_PY_AN_OPERATION);
    if (t == NULL) return NULL;
    if (DT_UNLIKELY(dt_tensor_is_dist(t))) return dist_permuted(self, t, order);
    int64_t shape[DT_RANK_MAX], strides[DT_RANK_MAX];
    for (int d = 0; d < t->rank; d++) {
        shape[d] = t->shape[order[d]];
        strides[d] = t->strides[order[d]];
    }
    dt_tensor *view;
    dt_status status =
        dt_tensor_new_view(t, (dt_dtype)t->dtype, t->rank, shape, strides, t->offset, &view);
    if (status != DT_OK) return dt_py_raise(status);
    return dt_py_tensor_wrap_view(self, view);
}

static PyObject *get_T(PyObject *self, void *closure) {
    int rank = dt_py_tensor_get(self)->rank, order[DT_RANK_MAX] = {0};
    if (closure != NULL && rank != 2 && rank != 0) { /* H */
        PyErr_Format(PyExc_RuntimeError,
                     "tensor.H is only supported on matrices (2-D tensors). Got %d-D tensor.%s",
                     rank, rank > 2 ? " For batches of matrices, consider using tensor.mH" : "");
        return NULL;
    }
    for (int d = 0; d < rank; d++) order[d] = rank - 1 - d;
    return view_permuted(self, order);
}

static PyObject *get_mT(PyObject *self, void *closure) {
    int rank = dt_py_tensor_get(self)->rank, order[DT_RANK_MAX] = {0};
    if (rank == 1) {
        PyErr_Format(
            PyExc_RuntimeError,
            "tensor.%s is only supported on matrices or batches of matrices. Got %d-D tensor.",
            (const char *)closure, rank);
        return NULL;
    }
    for (int d = 0; d < rank; d++) order[d] = d;
    if (rank >= 2) { /* 0-dim: the identity */
        order[rank - 1] = rank - 2;
        order[rank - 2] = rank - 1;
    }
    return view_permuted(self, order);
}

static PyObject *get_dict(PyObject *self, void *closure) {
    PyObject *dict = PyObject_GenericGetDict(self, closure);
    if (dict != NULL && !PyObject_GC_IsTracked(self)) PyObject_GC_Track(self); /* tensor.c, I2 */
    return dict;
}

#define OFFSET(field) ((void *)(intptr_t)offsetof(dt_py_tensor, field))

PyGetSetDef dt_py_tensor_getset[] = {
    {"__dict__", get_dict, PyObject_GenericSetDict, NULL, NULL},
    {"shape", get_shape, NULL, "The size of each dimension, a dtorch.Size.", NULL},
    {"dtype", get_dtype, NULL, "The element type: torch's own dtype object.", NULL},
    {"_dtype_name", get_dtype_name, NULL, "The element type's name, without importing torch.",
     NULL},
    {"device", get_device, NULL, "Where the tensor is, a torch.device; on a mesh without index.",
     NULL},
    {"layout", get_helper, NULL, "torch.strided.", (void *)"strided_layout"},
    {"ndim", get_ndim, NULL, "The number of dimensions.", NULL},
    {"itemsize", get_itemsize, NULL, "Bytes of one element.", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of all elements.", NULL},
    {"requires_grad", get_requires_grad, set_requires_grad, NULL, NULL},
    {"grad", get_object, set_grad, NULL, OFFSET(grad)},
    {"grad_fn", get_object, NULL, NULL, OFFSET(grad_fn)},
    {"_base", get_object, NULL, "The tensor that this one is a view of, or None.", OFFSET(base)},
    {"is_leaf", get_is_leaf, NULL, NULL, NULL},
    {"data", get_data, set_data, "The same bytes, apart from autograd.", NULL},
    {"T", get_T, NULL, "All dimensions reversed.", NULL},
    {"H", get_T, NULL, "The conjugate transpose of a matrix.", (void *)"H"},
    {"mT", get_mT, NULL, "The last two dimensions exchanged.", (void *)"mT"},
    {"mH", get_mT, NULL, "The last two dimensions exchanged.", (void *)"mH"},
    {"_version", get_version, NULL, "How often the bytes have been written in place.", NULL},
    {"is_cpu", get_is_type, NULL, NULL, (void *)(intptr_t)DT_DEVICE_CPU},
    {"is_cuda", get_is_type, NULL, NULL, (void *)(intptr_t)DT_DEVICE_CUDA},
    {"is_meta", get_false, NULL, NULL, NULL},
    {"is_sparse", get_false, NULL, NULL, NULL},
    {"is_quantized", get_false, NULL, NULL, NULL},
    {"is_nested", get_false, NULL, NULL, NULL},
    {"is_mkldnn", get_false, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* ---- metadata methods ------------------------------------------------------------------------ */

/* The only optional argument, by position or as `name`. 1 given, 0 not, -1 error. */
static int one_argument(const char *function, const char *name, PyObject *const *args, Py_ssize_t n,
                        PyObject *kwnames, PyObject **out) {
    Py_ssize_t keywords = kwnames != NULL ? PyTuple_GET_SIZE(kwnames) : 0;
    if (n + keywords > 1) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most 1 argument (%zd given)", function,
                     n + keywords);
        return -1;
    }
    if (keywords == 1 &&
        PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), name) != 0) {
        PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", function,
                     PyTuple_GET_ITEM(kwnames, 0));
        return -1;
    }
    *out = n + keywords == 1 ? args[0] : NULL;
    return *out != NULL && *out != Py_None;
}

/* A dim argument, wrapped. */
static int dim_argument(const char *function, PyObject *object, int rank, int *dim) {
    int64_t value;
    int ok = dt_py_int_from_object(object, &value);
    if (ok < 0) return -1;
    if (ok == 0) {
        PyErr_Format(PyExc_TypeError, "%s(): argument 'dim' (position 1) must be int, not %s",
                     function, dt_py_type_name(object));
        return -1;
    }
    dt_status status = dt_shape_wrap_dim(value, rank, false, dim);
    if (status == DT_OK) return 0;
    (void)dt_py_raise(status);
    return -1;
}

static PyObject *method_size(PyObject *self, PyObject *const *args, Py_ssize_t n,
                             PyObject *kwnames) {
    const dt_tensor *t = dt_py_tensor_known(self, "Tensor.size()");
    if (t == NULL) return NULL;
    PyObject *object;
    int given = one_argument("size", "dim", args, n, kwnames, &object), dim;
    if (given < 0) return NULL;
    if (given == 0) return dt_py_size_object(t->rank, t->shape);
    if (dim_argument("size", object, t->rank, &dim) < 0) return NULL;
    return PyLong_FromLongLong(dt_py_tensor_get(self)->shape[dim]);
}

static PyObject *method_stride(PyObject *self, PyObject *const *args, Py_ssize_t n,
                               PyObject *kwnames) {
    const dt_tensor *t = dt_py_tensor_known(self, "Tensor.stride()");
    if (t == NULL) return NULL;
    PyObject *object;
    int given = one_argument("stride", "dim", args, n, kwnames, &object), dim;
    if (given < 0) return NULL;
    if (given > 0) {
        if (dim_argument("stride", object, t->rank, &dim) < 0) return NULL;
        return PyLong_FromLongLong(dt_py_tensor_get(self)->strides[dim]);
    }
    PyObject *tuple = PyTuple_New(t->rank);
    for (int d = 0; d < t->rank && tuple != NULL; d++) {
        PyObject *item = PyLong_FromLongLong(t->strides[d]);
        if (item == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, d, item);
    }
    return tuple;
}

static PyObject *method_dim(PyObject *self, PyObject *ignored) {
    (void)ignored;
    return PyLong_FromLong(dt_py_tensor_get(self)->rank);
}

static PyObject *method_numel(PyObject *self, PyObject *ignored) {
    (void)ignored;
    const dt_tensor *t = dt_py_tensor_known(self, "Tensor.numel()");
    return t != NULL ? PyLong_FromLongLong(t->numel) : NULL;
}

static PyObject *method_element_size(PyObject *self, PyObject *ignored) {
    (void)ignored;
    return get_itemsize(self, NULL);
}

static PyObject *method_storage_offset(PyObject *self, PyObject *ignored) {
    (void)ignored;
    return PyLong_FromLongLong(dt_py_tensor_get(self)->offset);
}

static PyObject *method_is_contiguous(PyObject *self, PyObject *const *args, Py_ssize_t n,
                                      PyObject *kwnames) {
    PyObject *format;
    int given = one_argument("is_contiguous", "memory_format", args, n, kwnames, &format);
    if (given < 0) return NULL;
    const dt_tensor *t = dt_py_tensor_known(self, "Tensor.is_contiguous()");
    if (t == NULL) return NULL;
    if (given > 0) {
        PyObject *text = PyObject_Str(format);
        if (text == NULL) return NULL;
        bool plain = PyUnicode_CompareWithASCIIString(text, "torch.contiguous_format") == 0;
        Py_DECREF(text);
        if (!plain) {
            PyErr_SetString(PyExc_NotImplementedError,
                            "is_contiguous(): only torch.contiguous_format is supported");
            return NULL;
        }
    }
    return PyBool_FromLong(dt_shape_is_contiguous(t->rank, t->shape, t->strides));
}

static PyObject *method_is_floating_point(PyObject *self, PyObject *ignored) {
    (void)ignored;
    return PyBool_FromLong(dt_dtype_is_float((dt_dtype)dt_py_tensor_get(self)->dtype));
}

static PyObject *method_is_signed(PyObject *self, PyObject *ignored) {
    (void)ignored;
    dt_dtype d = (dt_dtype)dt_py_tensor_get(self)->dtype;
    return PyBool_FromLong(d != DT_BOOL && d != DT_U8);
}

static PyObject *method_false(PyObject *self, PyObject *ignored) {
    (void)self, (void)ignored;
    Py_RETURN_FALSE;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* t, which is taken, once its bytes are final and materialised; NULL with an exception. */
static dt_tensor *made_ready(dt_tensor *t, const char *what) {
    if (t == NULL) return NULL;
    if (dt_py_tensor_wait(t, what) == 0) {
        dt_status status = dt_storage_materialize(t->storage);
        if (status == DT_OK) return t;
        (void)dt_py_raise(status);
    }
    dt_tensor_release(t);
    return NULL;
}

/* The whole value, its bytes final; owned. */
static dt_tensor *ready(PyObject *self, const char *what) {
    dt_tensor *t = dt_tensor_retain(dt_py_tensor_get(self));
    if (DT_LIKELY(!dt_tensor_is_dist(t))) return made_ready(t, what);
    bool known = !dt_tensor_is_deferred(t) || dt_py_tensor_wait(t, what) == 0;
    dt_tensor *whole = known ? dt_py_tensor_whole(t) : NULL;
    dt_tensor_release(t);
    return made_ready(whole, what);
}

static PyObject *method_item(PyObject *self, PyObject *ignored) {
    (void)ignored;
    dt_tensor *t = dt_py_tensor_known(self, "Tensor.item()");
    if (t == NULL) return NULL;
    dt_dtype dtype = (dt_dtype)t->dtype;
    dt_scalar s;
    if (dt_py_tensor_item(t, "Tensor.item()", &s) < 0) return NULL;
    return dt_py_scalar_object(s, dtype);
}

static PyObject *list_level(const dt_tensor *t, int dim, const char *at) {
    size_t size = dt_dtype_size((dt_dtype)t->dtype);
    if (dim == t->rank)
        return dt_py_scalar_object(dt_scalar_load((dt_dtype)t->dtype, at), (dt_dtype)t->dtype);
    PyObject *list = PyList_New((Py_ssize_t)t->shape[dim]);
    for (int64_t i = 0; i < t->shape[dim] && list != NULL; i++) {
        PyObject *item = list_level(t, dim + 1, at + i * t->strides[dim] * (int64_t)size);
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

PyObject *dt_py_tensor_tolist_ready(const dt_tensor *t) {
    return list_level(t, 0, dt_tensor_data(t));
}

static PyObject *method_tolist(PyObject *self, PyObject *ignored) {
    (void)ignored;
    dt_tensor *t = ready(self, "Tensor.tolist()");
    if (t == NULL) return NULL;
    PyObject *list = dt_py_tensor_tolist_ready(t);
    dt_tensor_release(t);
    return list;
}

static PyObject *method_data_ptr(PyObject *self, PyObject *ignored) {
    (void)ignored;
    dt_tensor *t = made_ready(dt_py_tensor_local(dt_py_tensor_get(self)), "Tensor.data_ptr()");
    if (t == NULL) return NULL;
    PyObject *address = PyLong_FromVoidPtr(t->numel > 0 ? dt_tensor_data(t) : NULL);
    dt_tensor_release(t);
    return address;
}

/* The elements' bytes in row-major order. */
static PyObject *method_tobytes(PyObject *self, PyObject *ignored) {
    (void)ignored;
    dt_tensor *known = dt_py_tensor_known(self, "Tensor.tobytes()");
    if (known == NULL) return NULL;
    dt_tensor *t = dt_py_tensor_whole(known);
    if (t == NULL) return NULL;
    dt_tensor *dense =
        t->contiguous ? dt_tensor_retain(t) : dt_py_tensor_dense(t, (dt_dtype)t->dtype);
    dt_tensor_release(t);
    dense = made_ready(dense, "Tensor.tobytes()");
    if (dense == NULL) return NULL;
    PyObject *bytes = PyBytes_FromStringAndSize(
        dense->numel > 0 ? dt_tensor_data(dense) : NULL,
        (Py_ssize_t)(dense->numel * (int64_t)dt_dtype_size((dt_dtype)dense->dtype)));
    dt_tensor_release(dense);
    return bytes;
}

/* _wait(what): blocks until the value is there; `what` names the caller in warnings. */
static PyObject *method_wait(PyObject *self, PyObject *what) {
    const char *text = PyUnicode_Check(what) ? PyUnicode_AsUTF8(what) : "Tensor._wait()";
    if (text == NULL) return NULL;
    dt_tensor *t = dt_tensor_retain(dt_py_tensor_get(self));
    int status = dt_py_tensor_wait(t, text);
    dt_tensor_release(t);
    if (status < 0) return NULL;
    Py_RETURN_NONE;
}

/* Whether t's value is there (or its failure): reading would not block. */
static PyObject *method_is_ready(PyObject *self, PyObject *ignored) {
    (void)ignored;
    dt_future *future = NULL;
    return PyBool_FromLong(dt_tensor_state(dt_py_tensor_get(self), &future) != DT_FUTURE_PENDING);
}

/* ---- copying --------------------------------------------------------------------------------- */

static PyObject *method_copy(PyObject *self, PyObject *ignored) {
    (void)ignored;
    PyObject *copy = dt_py_tensor_wrap_as(Py_TYPE(self), dt_tensor_retain(dt_py_tensor_get(self)));
    if (copy != NULL) ((dt_py_tensor *)copy)->requires_grad = ((dt_py_tensor *)self)->requires_grad;
    return copy;
}

static PyObject *method_deepcopy(PyObject *self, PyObject *memo) {
    PyObject *key = PyLong_FromVoidPtr(self);
    if (key == NULL) return NULL;
    PyObject *copy = PyDict_Check(memo) ? PyDict_GetItemWithError(memo, key) : NULL;
    if (copy != NULL || PyErr_Occurred()) {
        Py_DECREF(key);
        return Py_XNewRef(copy);
    }
    dt_tensor *t = dt_py_tensor_known(self, "copy.deepcopy()");
    if (t != NULL) t = dt_py_tensor_clone(t, (dt_dtype)t->dtype);
    copy = t != NULL ? dt_py_tensor_wrap_as(Py_TYPE(self), t) : NULL;
    if (copy != NULL) {
        ((dt_py_tensor *)copy)->requires_grad = ((dt_py_tensor *)self)->requires_grad;
        if (PyDict_Check(memo) && PyDict_SetItem(memo, key, copy) < 0) Py_CLEAR(copy);
    }
    Py_DECREF(key);
    return copy;
}

static PyObject *method_reduce(PyObject *self, PyObject *protocol) {
    (void)protocol;
    return dt_py_call_helper("_pickle", "reduce_tensor", self);
}

/* Gives self the metadata and storage of another tensor: Tensor.set_. */
static PyObject *method_replace(PyObject *self, PyObject *other) {
    if (!dt_py_tensor_check(other)) {
        PyErr_Format(PyExc_TypeError, "_replace() needs a dtorch.Tensor, not %s",
                     dt_py_type_name(other));
        return NULL;
    }
    dt_py_tensor_replace(self, dt_tensor_retain(dt_py_tensor_get(other)));
    return Py_NewRef(self);
}

/* The dims from the outermost in memory to the innermost, on one device. */
static PyObject *method_dims_in_memory(PyObject *self, PyObject *unused) {
    (void)unused;
    dt_tensor *t = dt_py_tensor_known(self, DT_PY_AN_OPERATION);
    if (t == NULL) return NULL;
    dt_dims shape = dt_tensor_dims(t);
    int order[DT_RANK_MAX];
    dt_rule_dims_in_memory(&shape, &t, 1, order);
    PyObject *list = PyList_New(t->rank);
    for (int k = 0; k < t->rank && list != NULL; k++) {
        PyObject *dim = PyLong_FromLong(order[k]);
        if (dim == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, k, dim);
    }
    return list;
}

/* The same bytes as another dtype of the same size, strides kept. */
static PyObject *method_view_dtype(PyObject *self, PyObject *object) {
    dt_dtype dtype;
    if (dt_py_dtype_from_object(object, &dtype) < 0) return NULL;
    const dt_tensor *t = dt_py_tensor_known(self, DT_PY_AN_OPERATION);
    if (t == NULL) return NULL;
    if (dt_tensor_is_dist(t)) {
        PyErr_SetString(PyExc_TypeError, "_view_dtype() takes no tensor on a mesh");
        return NULL;
    }
    int64_t shape[DT_RANK_MAX], strides[DT_RANK_MAX], offset = t->offset;
    memcpy(shape, t->shape, sizeof shape);
    memcpy(strides, t->strides, sizeof strides);
    int64_t old = (int64_t)dt_dtype_size((dt_dtype)t->dtype), size = (int64_t)dt_dtype_size(dtype);
    int last = t->rank - 1;
    if (old != size) {
        const char *direction = size > old ? "larger" : "smaller";
        if (t->rank == 0) {
            PyErr_Format(PyExc_RuntimeError,
                         "self.dim() cannot be 0 to view %s as %s (different "
                         "element sizes)",
                         dt_dtype_table[t->dtype].long_name, dt_dtype_table[dtype].long_name);
            return NULL;
        }
        if (strides[last] != 1 && !(size < old && t->numel == 0)) {
            PyErr_Format(
                PyExc_RuntimeError,
                "self.stride(-1) must be 1 to view %s as %s (different element sizes), but "
                "got %lld",
                dt_dtype_table[t->dtype].long_name, dt_dtype_table[dtype].long_name,
                (long long)strides[last]);
            return NULL;
        }
        bool fits = size < old || (shape[last] * old) % size == 0;
        fits = fits && (size < old || (offset * old) % size == 0);
        for (int d = 0; d < last; d++)
            fits = fits && (size < old || (strides[d] * old) % size == 0);
        if (!fits) {
            PyErr_Format(
                PyExc_RuntimeError,
                "the last dimension, the strides and the offset must be divisible by %lld to "
                "view %s as %s (a %s element)",
                (long long)(size / old), dt_dtype_table[t->dtype].long_name,
                dt_dtype_table[dtype].long_name, direction);
            return NULL;
        }
        shape[last] = shape[last] * old / size;
        for (int d = 0; d < last; d++) strides[d] = strides[d] * old / size;
        offset = offset * old / size;
    }
    dt_tensor *view;
    dt_status status = dt_tensor_new_view(t, dtype, t->rank, shape, strides, offset, &view);
    if (status != DT_OK) return dt_py_raise(status);
    return dt_py_tensor_wrap_view(self, view);
}

#define FAST(f) ((PyCFunction)(void (*)(void))(f)), METH_FASTCALL | METH_KEYWORDS

PyMethodDef dt_py_tensor_methods[] = {
    {"size", FAST(method_size), "size(dim=None): the shape, or one of its entries."},
    {"stride", FAST(method_stride),
     "stride(dim=None): elements between neighbours of a dimension."},
    {"dim", method_dim, METH_NOARGS, "The number of dimensions."},
    {"ndimension", method_dim, METH_NOARGS, "The number of dimensions."},
    {"numel", method_numel, METH_NOARGS, "The number of elements."},
    {"nelement", method_numel, METH_NOARGS, "The number of elements."},
    {"element_size", method_element_size, METH_NOARGS, "Bytes of one element."},
    {"storage_offset", method_storage_offset, METH_NOARGS, "The first element's place."},
    {"data_ptr", method_data_ptr, METH_NOARGS, "The first element's address; waits."},
    {"is_contiguous", FAST(method_is_contiguous), "Whether elements lie in row-major order."},
    {"is_floating_point", method_is_floating_point, METH_NOARGS, NULL},
    {"is_signed", method_is_signed, METH_NOARGS, NULL},
    {"is_complex", method_false, METH_NOARGS, NULL},
    {"is_conj", method_false, METH_NOARGS, NULL},
    {"is_neg", method_false, METH_NOARGS, NULL},
    {"is_inference", method_false, METH_NOARGS, NULL},
    {"is_pinned", method_false, METH_NOARGS, NULL},
    {"is_shared", method_false, METH_NOARGS, NULL},
    {"is_ready", method_is_ready, METH_NOARGS, "Whether reading the value would not block."},
    {"item", method_item, METH_NOARGS, "The only element as a Python number; waits."},
    {"tolist", method_tolist, METH_NOARGS, "The elements as nested lists; waits."},
    {"_wait", method_wait, METH_O, "Waits for the value."},
    {"_tobytes", method_tobytes, METH_NOARGS, "The elements' bytes in row-major order; waits."},
    {"_dims_in_memory", method_dims_in_memory, METH_NOARGS, "The dims, outermost in memory first."},
    {"_view_dtype", method_view_dtype, METH_O, "The same bytes as another dtype."},
    {"_replace", method_replace, METH_O, "Takes another tensor's metadata and storage."},
    {"requires_grad_", FAST(method_requires_grad), "requires_grad_(requires_grad=True) -> self"},
    {"to_torch_async", dt_py_to_torch_async, METH_NOARGS,
     "A TensorFuture of a torch.Tensor with the value as of this call."},
    {"__copy__", method_copy, METH_NOARGS, NULL},
    {"__deepcopy__", method_deepcopy, METH_O, NULL},
    {"__reduce_ex__", method_reduce, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
