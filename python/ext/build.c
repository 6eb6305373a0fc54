/* build.c: tensors from Python data: numbers, nested sequences, buffers, other tensors.
 *
 * As torch does it: sizes follow from the first element of each level, the dtype from all elements
 * (promoted; Python floats count as the default dtype), and then the elements are stored one by
 * one; whatever does not fit the sizes is an error.
 *
 *   measure -> infer dtype -> dt_tensor_new -> store
 *
 * I1: a fresh tensor is filled before anybody else can see it, hence without a task.
 */
#include "python/ext/core.h"

#include <math.h>

#include "runtime/graveyard.h"

/* ---- what an element is ---------------------------------------------------------------------- */

static bool is_numpy_array(PyObject *o) {
    return strcmp(Py_TYPE(o)->tp_name, "numpy.ndarray") == 0;
}

/* Sequences that make a dimension. str and bytes are none: torch refuses them. */
static bool is_level(PyObject *o) {
    if (PyList_Check(o) || PyTuple_Check(o)) return true;
    if (PyUnicode_Check(o) || PyBytes_Check(o) || PyDict_Check(o)) return false;
    if (dt_py_tensor_check(o)) return dt_py_tensor_get(o)->rank > 0;
    if (is_numpy_array(o) || dt_py_is_torch_tensor(o)) {
        PyObject *rank = PyObject_GetAttrString(o, "ndim");
        long n = rank != NULL ? PyLong_AsLong(rank) : 0;
        Py_XDECREF(rank);
        if (n < 0 || PyErr_Occurred()) PyErr_Clear();
        return n > 0;
    }
    return PySequence_Check(o);
}

/* A number as torch.tensor takes it: also a one-element tensor. 1 yes, 0 no, -1 error. */
static int element(PyObject *o, dt_scalar *s, dt_dtype *dtype, dt_dtype default_float) {
    if (dt_py_tensor_check(o)) {
        dt_tensor *t = dt_py_tensor_known(o, "dtorch.tensor()");
        if (t == NULL) return -1;
        if (t->numel != 1) {
            PyErr_SetString(PyExc_ValueError,
                            "only one element tensors can be converted to Python scalars");
            return -1;
        }
        *dtype = (dt_dtype)t->dtype;
        return dt_py_tensor_item(t, "dtorch.tensor()", s) < 0 ? -1 : 1;
    }
    if (dt_py_is_torch_tensor(o) || is_numpy_array(o)) {
        PyObject *item = PyObject_CallMethod(o, "item", NULL);
        if (item == NULL) return -1;
        int ok = element(item, s, dtype, default_float);
        Py_DECREF(item);
        return ok;
    }
    int ok = dt_py_scalar_from_object(o, s);
    if (ok <= 0) return ok;
    *dtype = s->category == DT_CAT_BOOL  ? DT_BOOL
             : s->category == DT_CAT_INT ? DT_I64
                                         : default_float;
    if (strncmp(Py_TYPE(o)->tp_name, "numpy.", 6) == 0) {
        dt_dtype named = dt_dtype_parse(Py_TYPE(o)->tp_name + 6);
        if (named != DT_DTYPE_NONE) *dtype = named;
    }
    return 1;
}

static int no_dtype(PyObject *o) {
    const char *name = Py_TYPE(o)->tp_name;
    if (PyUnicode_Check(o) || PyBytes_Check(o))
        PyErr_Format(PyExc_TypeError, "new(): invalid data type '%s'", name);
    else if (PyComplex_Check(o))
        PyErr_SetString(PyExc_NotImplementedError, "complex numbers are not supported yet");
    else
        PyErr_Format(PyExc_RuntimeError, "Could not infer dtype of %s", name);
    return -1;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static int measure(PyObject *data, dt_dims *sizes) {
    sizes->rank = 0;
    PyObject *level = Py_NewRef(data);
    while (is_level(level)) {
        Py_ssize_t n = PySequence_Size(level);
        if (n < 0) break;
        if (sizes->rank == DT_RANK_MAX) {
            PyErr_Format(PyExc_ValueError, "too many dimensions: at most %d are supported",
                         DT_RANK_MAX);
            break;
        }
        sizes->v[sizes->rank++] = n;
        if (n == 0) break;
        PyObject *first = PySequence_GetItem(level, 0);
        Py_DECREF(level);
        level = first;
        if (level == NULL) return -1;
    }
    Py_DECREF(level);
    return PyErr_Occurred() ? -1 : 0;
}

static int infer(PyObject *data, int depth, dt_dtype default_float, dt_dtype *dtype) {
    if (!is_level(data)) {
        dt_scalar s;
        dt_dtype found;
        int ok = element(data, &s, &found, default_float);
        if (ok < 0) return -1;
        if (ok == 0) return no_dtype(data);
        *dtype = *dtype == DT_DTYPE_NONE ? found : dt_dtype_promote(*dtype, found);
        return 0;
    }
    if (depth >= DT_RANK_MAX) {
        PyErr_Format(PyExc_ValueError, "too many dimensions: at most %d are supported",
                     DT_RANK_MAX);
        return -1;
    }
    if (dt_py_tensor_check(data)) {
        dt_dtype found = (dt_dtype)dt_py_tensor_get(data)->dtype;
        *dtype = *dtype == DT_DTYPE_NONE ? found : dt_dtype_promote(*dtype, found);
        return 0;
    }
    PyObject *fast = PySequence_Fast(data, "not a sequence");
    if (fast == NULL) return -1;
    int status = 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast) && status == 0; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(fast, i);
        /* The usual leaf without a function call for each step. */
        if (PyFloat_CheckExact(item) && *dtype == default_float) continue;
        Py_INCREF(item);
        status = infer(item, depth + 1, default_float, dtype);
        Py_DECREF(item);
    }
    Py_DECREF(fast);
    return status;
}

/* ---- storing --------------------------------------------------------------------------------- */

/* torch's checked conversion: an integer dtype takes no number outside its range (unsigned ones
 * take negative integers that wrap around); a float dtype takes any number. */
static bool fits(dt_scalar s, dt_dtype dtype) {
    static const int64_t least[] = {[DT_U8] = -255,
                                    [DT_I8] = INT8_MIN,
                                    [DT_I16] = INT16_MIN,
                                    [DT_I32] = INT32_MIN,
                                    [DT_I64] = INT64_MIN};
    static const int64_t most[] = {[DT_U8] = 255,
                                   [DT_I8] = INT8_MAX,
                                   [DT_I16] = INT16_MAX,
                                   [DT_I32] = INT32_MAX,
                                   [DT_I64] = INT64_MAX};
    if (dt_dtype_category(dtype) != DT_CAT_INT) return true;
    if (s.category == DT_CAT_FLOAT) {
        if (dtype == DT_I64) return s.f >= -0x1p63 && s.f < 0x1p63;
        return s.f >= (dtype == DT_U8 ? 0 : (double)least[dtype]) && s.f <= (double)most[dtype];
    }
    return s.i >= least[dtype] && s.i <= most[dtype];
}

static int store_one(PyObject *o, dt_dtype dtype, char *to) {
    dt_scalar s;
    dt_dtype ignored;
    if (dt_dtype_is_float(dtype) && PyLong_CheckExact(o)) { /* integers beyond int64 */
        s.category = DT_CAT_FLOAT;
        s.f = PyLong_AsDouble(o);
        if (s.f == -1.0 && PyErr_Occurred()) return -1;
        dt_scalar_store(s, dtype, to);
        return 0;
    }
    int ok = element(o, &s, &ignored, DT_F32);
    if (ok < 0) return -1;
    if (ok == 0) return no_dtype(o);
    if (!fits(s, dtype)) {
        PyErr_Format(PyExc_RuntimeError, "value cannot be converted to type %s without overflow",
                     dt_dtype_table[dtype].name);
        return -1;
    }
    if (s.category == DT_CAT_FLOAT && dt_dtype_category(dtype) == DT_CAT_INT) {
        s.i = (int64_t)s.f; /* in range, by fits() */
        s.category = DT_CAT_INT;
    }
    dt_scalar_store(s, dtype, to);
    return 0;
}

static int store(PyObject *data, const dt_tensor *t, int dim, char *to) {
    if (dim == t->rank) {
        if (is_level(data)) {
            PyErr_SetString(PyExc_TypeError,
                            "a sequence where the first element of its level is a number");
            return -1;
        }
        return store_one(data, (dt_dtype)t->dtype, to);
    }
    if (!is_level(data)) {
        PyErr_SetString(PyExc_TypeError, "not a sequence");
        return -1;
    }
    PyObject *fast = PySequence_Fast(data, "not a sequence");
    if (fast == NULL) return -1;
    int status = 0;
    int64_t n = PySequence_Fast_GET_SIZE(fast);
    int64_t step = t->strides[dim] * (int64_t)dt_dtype_size((dt_dtype)t->dtype);
    if (n != t->shape[dim]) {
        PyErr_Format(PyExc_ValueError, "expected sequence of length %lld at dim %d (got %lld)",
                     (long long)t->shape[dim], dim, (long long)n);
        status = -1;
    }
    for (int64_t i = 0; i < n && status == 0; i++) {
        if (i >= PySequence_Fast_GET_SIZE(fast)) { /* __index__ of an element changed the list */
            PyErr_SetString(PyExc_RuntimeError, "the data changed while it was read");
            status = -1;
            break;
        }
        PyObject *item = PySequence_Fast_GET_ITEM(fast, i);
        if (dim + 1 == t->rank && t->dtype == DT_F32 && PyFloat_CheckExact(item)) {
            *(float *)(void *)(to + i * step) = (float)PyFloat_AS_DOUBLE(item);
            continue;
        }
        Py_INCREF(item);
        status = store(item, t, dim + 1, to + i * step);
        Py_DECREF(item);
    }
    Py_DECREF(fast);
    return status;
}

static dt_tensor *from_sequence(PyObject *data, dt_dtype dtype, dt_dtype default_float) {
    dt_dims sizes;
    if (measure(data, &sizes) < 0) return NULL;
    if (dtype == DT_DTYPE_NONE) {
        if (infer(data, 0, default_float, &dtype) < 0) return NULL;
        if (dtype == DT_DTYPE_NONE) dtype = default_float; /* no element at all */
    }
    dt_tensor *t;
    dt_status status = dt_tensor_new(dtype, sizes.rank, sizes.v, &t);
    if (status == DT_OK && (status = dt_storage_materialize(t->storage)) != DT_OK)
        dt_tensor_release(t);
    if (status != DT_OK) {
        (void)dt_py_raise(status);
        return NULL;
    }
    if (store(data, t, 0, dt_tensor_data(t)) == 0) return t;
    dt_tensor_release(t);
    return NULL;
}

/* ---- entry ----------------------------------------------------------------------------------- */

dt_tensor *dt_py_tensor_clone(dt_tensor *t, dt_dtype dtype) {
    dt_op_call call;
    dt_op_id id = dtype == (dt_dtype)t->dtype ? DT_OP_clone : DT_OP_copy__to;
    dt_op_call_init(&call, id);
    call.nargs = 2;
    call.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = t};
    call.args[1].kind = DT_ARG_NONE;
    if (id == DT_OP_copy__to) call.args[1] = (dt_arg){.kind = DT_ARG_DTYPE, .dtype = dtype};
    dt_status status = dt_py_dispatch(&call);
    if (status == DT_OK) return call.outs[0];
    (void)dt_py_raise(status);
    return NULL;
}

dt_tensor *dt_py_tensor_dense(dt_tensor *t, dt_dtype dtype) {
    dt_tensor *copy = dt_py_tensor_clone(t, dtype); /* keeps the order of strides */
    if (copy == NULL || copy->contiguous) return copy;
    dt_op_call call;
    dt_op_call_init(&call, DT_OP_contiguous);
    call.nargs = 2;
    call.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = copy};
    call.args[1].kind = DT_ARG_NONE;
    dt_status status = dt_py_dispatch(&call);
    dt_tensor_release(copy);
    if (status == DT_OK) return call.outs[0];
    (void)dt_py_raise(status);
    return NULL;
}

/* A copy of what `shared` looks at, which is let go. */
static dt_tensor *copy_and_drop(dt_tensor *shared, dt_dtype dtype) {
    if (shared == NULL) return NULL;
    dt_tensor *t =
        dt_py_tensor_clone(shared, dtype == DT_DTYPE_NONE ? (dt_dtype)shared->dtype : dtype);
    dt_tensor_release(shared);
    dt_graveyard_drain(); /* the outsider's reference goes now, not at the next call */
    return t;
}

dt_tensor *dt_py_tensor_from_data(PyObject *data, dt_dtype dtype, dt_dtype default_float) {
    if (dt_py_tensor_check(data)) {
        dt_tensor *t = dt_py_tensor_known(data, "dtorch.tensor()");
        if (t == NULL) return NULL;
        return dt_py_tensor_clone(t, dtype == DT_DTYPE_NONE ? (dt_dtype)t->dtype : dtype);
    }
    if (dt_py_is_torch_tensor(data))
        return copy_and_drop(dt_py_tensor_from_torch(data, false), dtype);
    if (is_numpy_array(data)) {
        dt_tensor *copy = dt_py_tensor_from_buffer(data, false, true);
        if (copy == NULL || dtype == DT_DTYPE_NONE || dtype == (dt_dtype)copy->dtype) return copy;
        return copy_and_drop(copy, dtype);
    }
    return from_sequence(data, dtype, default_float);
}

/* _C.tensor(data, dtype=None): what the package's tensor() and as_tensor() stand on. */
static PyObject *function_tensor(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    (void)module;
    dt_dtype dtype;
    if (n != 2) {
        PyErr_SetString(PyExc_TypeError, "tensor(data, dtype) takes two arguments");
        return NULL;
    }
    dt_graveyard_drain();
    if (dt_py_dtype_or_none(args[1], &dtype) < 0) return NULL;
    dt_tensor *t = dt_py_tensor_from_data(args[0], dtype, dt_default_dtype());
    return t != NULL ? dt_py_tensor_wrap(t) : NULL;
}

/* _C.dims(name, args): a size given as *args, as a tuple; errors name the function. */
static PyObject *function_dims(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    (void)module;
    if (n != 2 || !PyUnicode_Check(args[0]) || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "dims(name, args) takes a str and a tuple");
        return NULL;
    }
    const char *name = PyUnicode_AsUTF8(args[0]);
    dt_dims dims;
    if (name == NULL || dt_py_dims_from_varargs(name, &PyTuple_GET_ITEM(args[1], 0),
                                                PyTuple_GET_SIZE(args[1]), &dims) < 0)
        return NULL;
    return dt_py_size_object(dims.rank, dims.v);
}

/* _C.from_bytes(data, dtype, shape): a new tensor with these bytes, in row-major order. */
static PyObject *function_from_bytes(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer data;
    PyObject *dtype_object, *shape;
    dt_dtype dtype;
    dt_dims dims;
    dt_tensor *t = NULL;
    if (!PyArg_ParseTuple(args, "y*OO!:from_bytes", &data, &dtype_object, &PyTuple_Type, &shape))
        return NULL;
    if (dt_py_dtype_from_object(dtype_object, &dtype) == 0 &&
        dt_py_dims_from_varargs("from_bytes", &PyTuple_GET_ITEM(shape, 0), PyTuple_GET_SIZE(shape),
                                &dims) == 0) {
        dt_status status = dt_tensor_new(dtype, dims.rank, dims.v, &t);
        if (status == DT_OK && (status = dt_storage_materialize(t->storage)) != DT_OK)
            dt_tensor_release(t);
        if (status != DT_OK) {
            t = NULL;
            (void)dt_py_raise(status);
        }
    }
    if (t != NULL && t->numel * (int64_t)dt_dtype_size(dtype) != (int64_t)data.len) {
        PyErr_Format(PyExc_ValueError, "from_bytes(): %zd bytes do not make up the shape",
                     data.len);
        dt_tensor_release(t);
        t = NULL;
    }
    if (t != NULL && data.len > 0) memcpy(dt_tensor_data(t), data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return t != NULL ? dt_py_tensor_wrap(t) : NULL;
}

static PyMethodDef functions[] = {
    {"from_bytes", function_from_bytes, METH_VARARGS, NULL},
    {"dims", (PyCFunction)(void (*)(void))function_dims, METH_FASTCALL, NULL},
    {"tensor", (PyCFunction)(void (*)(void))function_tensor, METH_FASTCALL,
     "tensor(data, dtype): a new tensor from Python data; copies."},
    {NULL, NULL, 0, NULL},
};

int dt_py_build_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
