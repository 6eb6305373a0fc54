/* interop.c: memory shared with torch and numpy, and the functions for it.
 *
 * While an outsider holds the bytes of a storage (exports > 0, or it is foreign), dispatch finishes
 * every op on it before the call returns; so program order holds across the border.  An export
 * begins by raising the count, and only then waits for earlier tasks: what another thread calls
 * during that wait already sees the storage as external.
 *
 * torch tensors come in by address, with torch's own strides (its DLPack export changes those of
 * dimensions with one element); a detached handle of theirs keeps the bytes alive.
 *
 * I1: torch and numpy are imported only when a function here needs them.
 */
#include "python/ext/core.h"

#include "runtime/dist.h"
#include "runtime/graveyard.h"

/* ---- exports --------------------------------------------------------------------------------- */

void dt_py_export_end(dt_tensor *t) {
    atomic_fetch_sub_explicit(&t->storage->exports, 1, memory_order_release);
    dt_tensor_release(t);
}

int dt_py_export_begin(dt_tensor *t, const char *what) {
    DT_ASSERT(!dt_tensor_is_dist(t));
    dt_tensor_retain(t);
    atomic_fetch_add_explicit(&t->storage->exports, 1, memory_order_acq_rel);
    dt_future *fence = NULL;
    dt_status status = dt_tensor_fence(t, true, &fence);
    int waited = 0;
    if (status == DT_OK && fence != NULL) {
        waited = dt_py_wait(fence, -1, what);
        dt_future_release(fence);
    }
    if (status == DT_OK && waited == 0) waited = dt_py_tensor_wait(t, what);
    if (status == DT_OK && waited == 0) status = dt_storage_materialize(t->storage);
    if (status == DT_OK && waited == 0) {
        dt_storage_changes(t->storage); /* the outsider may write */
        return 0;
    }
    if (status != DT_OK) (void)dt_py_raise(status);
    dt_py_export_end(t);
    return -1;
}

/* ---- torch ----------------------------------------------------------------------------------- */

bool dt_py_is_torch_tensor(PyObject *object) {
    static PyObject *torch_tensor; /* torch.Tensor, once torch has been imported by anybody */
    if (torch_tensor == NULL) {
        PyObject *modules = PyImport_GetModuleDict();
        PyObject *torch = PyDict_GetItemString(modules, "torch");
        if (torch != NULL) torch_tensor = PyObject_GetAttrString(torch, "Tensor");
        if (torch_tensor == NULL) {
            PyErr_Clear();
            return false;
        }
    }
    int is = PyObject_IsInstance(object, torch_tensor);
    if (is < 0) PyErr_Clear();
    return is == 1;
}

static void release_object(void *context) { Py_DECREF((PyObject *)context); }

/* object.name as a C string compared with text; false also on errors, which stay set. */
static bool attribute_is(PyObject *object, const char *name, const char *text) {
    PyObject *value = PyObject_GetAttrString(object, name);
    PyObject *str = value != NULL ? PyObject_Str(value) : NULL;
    bool same = str != NULL && PyUnicode_CompareWithASCIIString(str, text) == 0;
    Py_XDECREF(value);
    Py_XDECREF(str);
    return same;
}

/* A sequence of ints (torch.Size, a tuple) into v; its length or -1. */
static int read_ints(PyObject *sequence, int64_t *v) {
    if (sequence == NULL) return -1;
    dt_dims dims;
    int ok = dt_py_dims_from_object(sequence, &dims);
    Py_DECREF(sequence);
    if (ok == 0) PyErr_SetString(PyExc_TypeError, "from_torch(): sizes and strides must be ints");
    if (ok <= 0) return -1;
    memcpy(v, dims.v, (size_t)dims.rank * sizeof *v);
    return dims.rank;
}

/* dtype, shape, strides and address of a torch tensor. 0 or -1. */
static int inspect(PyObject *x, dt_dtype *dtype, int *rank, int64_t *shape, int64_t *strides,
                   void **data) {
    if (!attribute_is(x, "layout", "torch.strided")) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError,
                            "from_torch(): only strided (dense) tensors are supported");
        return -1;
    }
    PyObject *device = PyObject_GetAttrString(x, "device");
    bool cpu = device != NULL && attribute_is(device, "type", "cpu");
    Py_XDECREF(device);
    if (!cpu) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_RuntimeError,
                            "from_torch(): only CPU tensors are supported; call .cpu() first");
        return -1;
    }
    PyObject *type = PyObject_GetAttrString(x, "dtype");
    int status = type != NULL ? dt_py_dtype_from_object(type, dtype) : -1;
    Py_XDECREF(type);
    if (status < 0) return -1;
    *rank = read_ints(PyObject_GetAttrString(x, "shape"), shape);
    if (*rank < 0 || read_ints(PyObject_CallMethod(x, "stride", NULL), strides) != *rank) return -1;
    PyObject *address = PyObject_CallMethod(x, "data_ptr", NULL);
    if (address == NULL) return -1;
    *data = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    return PyErr_Occurred() ? -1 : 0;
}

dt_tensor *dt_py_tensor_from_torch(PyObject *torch_tensor, bool frozen) {
    static char nowhere[64]; /* empty tensors have no address */
    dt_dtype dtype;
    int rank;
    int64_t shape[DT_RANK_MAX], strides[DT_RANK_MAX], span = 1, numel = 1;
    void *data;
    PyObject *handle = PyObject_CallMethod(torch_tensor, "detach", NULL);
    if (handle == NULL) return NULL;
    if (inspect(handle, &dtype, &rank, shape, strides, &data) < 0) {
        Py_DECREF(handle);
        return NULL;
    }
    for (int d = 0; d < rank; d++) {
        numel *= shape[d];
        span += (shape[d] - 1) * strides[d];
    }
    size_t bytes = numel > 0 ? (size_t)span * dt_dtype_size(dtype) : 0;
    uint32_t flags = DT_STORAGE_FOREIGN | (frozen ? DT_STORAGE_FROZEN : 0);
    dt_storage *storage =
        dt_storage_new_foreign(numel > 0 ? data : nowhere, bytes, release_object, handle, flags);
    if (storage == NULL) {
        Py_DECREF(handle);
        PyErr_NoMemory();
        return NULL;
    }
    dt_tensor *t;
    dt_status status = dt_tensor_new_over(storage, dtype, rank, shape, strides, 0, &t);
    if (status == DT_OK) return t;
    dt_storage_release(storage);
    (void)dt_py_raise(status);
    return NULL;
}

PyObject *dt_py_tensor_to_torch_ready(dt_tensor *t) {
    static PyObject *from_dlpack;
    if (from_dlpack == NULL) {
        from_dlpack = dt_py_call_helper("_torch", "from_dlpack_function", NULL);
        if (from_dlpack == NULL) return NULL;
    }
    dt_tensor *shared = t;
    if (t->storage->flags & DT_STORAGE_READONLY) { /* torch knows no read-only tensors */
        shared = dt_py_tensor_clone(t, (dt_dtype)t->dtype);
        if (shared == NULL) return NULL;
    }
    PyObject *capsule = dt_py_dlpack_capsule(shared, false, false);
    if (shared != t) dt_tensor_release(shared);
    if (capsule == NULL) return NULL;
    PyObject *result = PyObject_CallOneArg(from_dlpack, capsule);
    Py_DECREF(capsule);
    return result;
}

static PyObject *method_to_torch(PyObject *self, PyObject *ignored) {
    (void)ignored;
    dt_graveyard_drain();
    dt_tensor *t = dt_py_tensor_local(dt_py_tensor_get(self));
    PyObject *result = NULL;
    if (t == NULL) return NULL;
    if (dt_py_tensor_wait(t, "Tensor.to_torch()") == 0) result = dt_py_tensor_to_torch_ready(t);
    dt_tensor_release(t);
    return result;
}

/* ---- numpy ----------------------------------------------------------------------------------- */

static PyObject *method_numpy(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"force", NULL};
    int force = 0;
    dt_graveyard_drain();
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$p:numpy", names, &force)) return NULL;
    if (((dt_py_tensor *)self)->requires_grad && !force) {
        PyErr_SetString(PyExc_RuntimeError, "Can't call numpy() on Tensor that requires grad. Use "
                                            "tensor.detach().numpy() instead.");
        return NULL;
    }
    dt_tensor *t = dt_py_tensor_get(self);
    if (dt_tensor_is_dist(t) && (t = dt_py_tensor_settled(self, "Tensor.numpy()")) == NULL)
        return NULL;
    t = dt_py_tensor_whole_own(t);
    if (t == NULL) return NULL;
    int exported = dt_py_export_begin(t, "Tensor.numpy()");
    dt_tensor_release(t); /* an export has its own reference */
    if (exported < 0) return NULL;
    PyObject *buffer = dt_py_buffer_object(t);
    if (buffer == NULL) return NULL;
    PyObject *array = dt_py_call_helper("_torch", "asarray", buffer);
    Py_DECREF(buffer);
    return array;
}

PyMethodDef dt_py_interop_methods[] = {
    {"to_torch", method_to_torch, METH_NOARGS, "A torch.Tensor that shares the bytes; waits."},
    {"numpy", (PyCFunction)(void (*)(void))method_numpy, METH_VARARGS | METH_KEYWORDS,
     "numpy(*, force=False): an array that shares the bytes; waits."},
    {NULL, NULL, 0, NULL},
};

/* ---- functions ------------------------------------------------------------------------------- */

static PyObject *wrap_or_null(dt_tensor *t) { return t != NULL ? dt_py_tensor_wrap(t) : NULL; }

static PyObject *function_from_torch(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"tensor", "frozen", NULL};
    PyObject *x;
    int frozen = 0;
    dt_graveyard_drain();
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p:from_torch", names, &x, &frozen))
        return NULL;
    if (!dt_py_is_torch_tensor(x)) {
        PyErr_Format(PyExc_TypeError, "from_torch(): expected a torch.Tensor (got %s)",
                     dt_py_tensor_check(x) ? "dtorch.Tensor" : Py_TYPE(x)->tp_name);
        return NULL;
    }
    return wrap_or_null(dt_py_tensor_from_torch(x, frozen));
}

static PyObject *function_from_numpy(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"ndarray", "frozen", NULL};
    PyObject *x;
    int frozen = 0;
    dt_graveyard_drain();
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p:from_numpy", names, &x, &frozen))
        return NULL;
    if (strcmp(Py_TYPE(x)->tp_name, "numpy.ndarray") != 0) {
        PyErr_Format(PyExc_TypeError, "expected np.ndarray (got %s)", Py_TYPE(x)->tp_name);
        return NULL;
    }
    return wrap_or_null(dt_py_tensor_from_buffer(x, frozen, false));
}

static PyObject *function_from_dlpack(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"ext_tensor", "frozen", NULL};
    PyObject *x;
    int frozen = 0;
    dt_graveyard_drain();
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$p:from_dlpack", names, &x, &frozen))
        return NULL;
    return wrap_or_null(dt_py_tensor_from_dlpack(x, frozen));
}

#define KEYWORDS(f) ((PyCFunction)(void (*)(void))(f)), METH_VARARGS | METH_KEYWORDS

static PyMethodDef functions[] = {
    {"from_torch", KEYWORDS(function_from_torch),
     "from_torch(tensor, frozen=False) -> Tensor\n\nA tensor that shares torch's bytes. With "
     "frozen the "
     "caller promises that nobody writes them from outside, and ops on it are asynchronous."},
    {"from_numpy", KEYWORDS(function_from_numpy),
     "from_numpy(ndarray, frozen=False) -> Tensor\n\nA tensor that shares the array's bytes; "
     "frozen as "
     "for from_torch()."},
    {"from_dlpack", KEYWORDS(function_from_dlpack),
     "from_dlpack(ext_tensor, *, frozen=False) -> Tensor\n\nA tensor that shares the bytes of any "
     "object "
     "with __dlpack__, or of a capsule; frozen as for from_torch()."},
    {NULL, NULL, 0, NULL},
};

int dt_py_interop_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
