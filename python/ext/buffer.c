/* buffer.c: the buffer protocol, both ways: numpy arrays as tensors, tensors as numpy arrays.
 *
 * In: a Py_buffer of the array is held by the storage; its release runs from the graveyard, since
 * it needs the GIL.  Out: numpy is given a Buffer object, which exports a tensor's bytes; the
 * tensor's storage is external for as long as the Buffer lives.
 *
 * I1: a Buffer owns one export (dt_py_export_begin) of its tensor.
 */
#include "python/ext/core.h"

#include "runtime/graveyard.h"

/* struct's letter for each dtype; NULL: numpy has no such type. */
static const char *const formats[DT_DTYPE_COUNT] = {
    [DT_BOOL] = "?", [DT_U8] = "B",  [DT_I8] = "b",  [DT_I16] = "h", [DT_I32] = "i",
    [DT_I64] = "l",  [DT_F16] = "e", [DT_F32] = "f", [DT_F64] = "d",
};

/* ---- in -------------------------------------------------------------------------------------- */

static dt_dtype dtype_of_format(const char *format, Py_ssize_t itemsize) {
    if (format == NULL) return DT_U8;
    if (*format == '@' || *format == '=' || *format == '<') format++; /* x86 and arm are '<' */
    if (format[0] == 0 || format[1] != 0) return DT_DTYPE_NONE;
    switch (*format) {
    case '?':
        return DT_BOOL;
    case 'B':
        return DT_U8;
    case 'b':
        return DT_I8;
    case 'h':
        return DT_I16;
    case 'i':
    case 'l':
    case 'q':
        return itemsize == 8 ? DT_I64 : itemsize == 4 ? DT_I32 : DT_DTYPE_NONE;
    case 'e':
        return DT_F16;
    case 'f':
        return DT_F32;
    case 'd':
        return DT_F64;
    default:
        return DT_DTYPE_NONE;
    }
}

static int wrong_format(PyObject *array) {
    PyErr_Clear();
    PyObject *dtype = PyObject_GetAttrString(array, "dtype");
    PyObject *native = dtype != NULL ? PyObject_GetAttrString(dtype, "isnative") : NULL;
    bool swapped = native == Py_False;
    PyObject *type = dtype != NULL ? PyObject_GetAttrString(dtype, "type") : NULL;
    PyErr_Clear();
    if (swapped)
        PyErr_SetString(PyExc_ValueError,
                        "given numpy array has byte order different from the native byte order. "
                        "Conversion between byte orders is currently not supported.");
    else
        PyErr_Format(PyExc_TypeError,
                     "can't convert np.ndarray of type %s. The only supported types are: float64, "
                     "float32, float16, int64, int32, int16, int8, uint8, and bool.",
                     type != NULL && PyType_Check(type) ? ((PyTypeObject *)type)->tp_name : "?");
    Py_XDECREF(dtype);
    Py_XDECREF(native);
    Py_XDECREF(type);
    return -1;
}

/* Acquires the view and translates its dtype. On success the caller releases it. */
static int acquire(PyObject *array, Py_buffer *view, dt_dtype *dtype) {
    if (PyObject_GetBuffer(array, view, PyBUF_RECORDS_RO) < 0) return wrong_format(array);
    *dtype = dtype_of_format(view->format, view->itemsize);
    if (*dtype != DT_DTYPE_NONE && view->ndim <= DT_RANK_MAX) return 0;
    if (*dtype == DT_DTYPE_NONE)
        (void)wrong_format(array);
    else
        PyErr_Format(PyExc_ValueError, "the array has %d dimensions; at most %d are supported",
                     view->ndim, DT_RANK_MAX);
    PyBuffer_Release(view);
    return -1;
}

static dt_tensor *copy_of(Py_buffer *view, dt_dtype dtype) {
    int64_t shape[DT_RANK_MAX];
    for (int d = 0; d < view->ndim; d++) shape[d] = view->shape[d];
    dt_tensor *t;
    dt_status status = dt_tensor_new(dtype, view->ndim, shape, &t);
    if (status == DT_OK && (status = dt_storage_materialize(t->storage)) != DT_OK)
        dt_tensor_release(t);
    if (status != DT_OK) {
        (void)dt_py_raise(status);
        return NULL;
    }
    if (view->len > 0 && PyBuffer_ToContiguous(dt_tensor_data(t), view, view->len, 'C') < 0) {
        dt_tensor_release(t);
        return NULL;
    }
    return t;
}

static void release_buffer(void *context) {
    PyBuffer_Release(context);
    PyMem_Free(context);
}

/* Takes the view. */
static dt_tensor *over(Py_buffer *view, dt_dtype dtype, uint32_t flags) {
    int64_t shape[DT_RANK_MAX], strides[DT_RANK_MAX], span = 0, numel = 1;
    for (int d = 0; d < view->ndim; d++) {
        shape[d] = view->shape[d];
        numel *= shape[d];
        if (view->strides[d] < 0) {
            PyErr_SetString(
                PyExc_ValueError,
                "At least one stride in the given numpy array is negative, and tensors "
                "with negative strides are not currently supported. (You can probably "
                "work around this by making a copy of your array  with array.copy().) ");
            return NULL;
        }
        if (view->strides[d] % view->itemsize != 0) {
            PyErr_SetString(PyExc_ValueError,
                            "given numpy array strides not a multiple of the element byte size. "
                            "Copy the numpy array to reallocate the memory.");
            return NULL;
        }
        strides[d] = view->strides[d] / view->itemsize;
        span += (shape[d] - 1) * strides[d];
    }
    if ((uintptr_t)view->buf % (size_t)view->itemsize != 0) {
        PyErr_SetString(PyExc_ValueError,
                        "the given numpy array is not aligned to its element size: copy it first");
        return NULL;
    }
    Py_buffer *kept = PyMem_New(Py_buffer, 1);
    if (kept == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    *kept = *view;
    size_t bytes = numel > 0 ? (size_t)((span + 1) * view->itemsize) : 0;
    dt_storage *storage = dt_storage_new_foreign(view->buf, bytes, release_buffer, kept, flags);
    if (storage == NULL) {
        PyMem_Free(kept);
        PyErr_NoMemory();
        return NULL;
    }
    view->obj = NULL; /* the storage has it */
    dt_tensor *t;
    dt_status status = dt_tensor_new_over(storage, dtype, view->ndim, shape, strides, 0, &t);
    if (status == DT_OK) return t;
    dt_storage_release(storage);
    (void)dt_py_raise(status);
    return NULL;
}

dt_tensor *dt_py_tensor_from_buffer(PyObject *array, bool frozen, bool copy) {
    Py_buffer view;
    dt_dtype dtype = DT_DTYPE_NONE;
    if (acquire(array, &view, &dtype) < 0) return NULL;
    uint32_t flags = DT_STORAGE_FOREIGN | (frozen ? DT_STORAGE_FROZEN : 0) |
                     (view.readonly ? DT_STORAGE_READONLY : 0);
    dt_tensor *t = copy ? copy_of(&view, dtype) : over(&view, dtype, flags);
    if (view.obj != NULL) PyBuffer_Release(&view);
    return t;
}

/* ---- out ------------------------------------------------------------------------------------- */

typedef struct buffer_object {
    PyObject_HEAD dt_tensor *t; /* its reference comes with the export */
    Py_ssize_t shape[DT_RANK_MAX], strides[DT_RANK_MAX];
} buffer_object;

PyObject *dt_py_buffer_object(dt_tensor *t) {
    if (formats[t->dtype] == NULL) {
        PyErr_Format(PyExc_TypeError, "Got unsupported ScalarType %s",
                     dt_dtype_table[t->dtype].long_name);
        dt_py_export_end(t);
        return NULL;
    }
    buffer_object *self = PyObject_New(buffer_object, dt_state->buffer_type);
    if (self == NULL) {
        dt_py_export_end(t);
        return NULL;
    }
    self->t = t;
    for (int d = 0; d < t->rank; d++) {
        self->shape[d] = (Py_ssize_t)t->shape[d];
        self->strides[d] = (Py_ssize_t)(t->strides[d] * (int64_t)dt_dtype_size((dt_dtype)t->dtype));
    }
    return (PyObject *)self;
}

static void buffer_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    dt_py_export_end(((buffer_object *)object)->t);
    PyObject_Free(object);
    Py_DECREF(type);
}

static int buffer_get(PyObject *object, Py_buffer *view, int flags) {
    buffer_object *self = (buffer_object *)object;
    const dt_tensor *t = self->t;
    bool readonly = (t->storage->flags & DT_STORAGE_READONLY) != 0;
    if (readonly && (flags & PyBUF_WRITABLE)) {
        PyErr_SetString(PyExc_BufferError, "the tensor's bytes are read-only");
        return -1;
    }
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !t->contiguous) {
        PyErr_SetString(PyExc_BufferError, "the tensor is not contiguous");
        return -1;
    }
    view->obj = Py_NewRef(object);
    view->buf = dt_tensor_data(t);
    view->itemsize = (Py_ssize_t)dt_dtype_size((dt_dtype)t->dtype);
    view->len = (Py_ssize_t)t->numel * view->itemsize;
    view->readonly = readonly;
    view->ndim = t->rank;
    view->format = flags & PyBUF_FORMAT ? (char *)formats[t->dtype] : NULL;
    view->shape = flags & PyBUF_ND ? self->shape : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->strides : NULL;
    view->suboffsets = NULL;
    view->internal = NULL;
    return 0;
}

static PyType_Slot buffer_slots[] = {
    {Py_tp_dealloc, buffer_dealloc},
    {Py_bf_getbuffer, buffer_get},
    {Py_tp_doc, "A tensor's bytes, by the buffer protocol."},
    {0, NULL},
};

static PyType_Spec buffer_spec = {
    .name = "dtorch._C.Buffer",
    .basicsize = sizeof(buffer_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = buffer_slots,
};

int dt_py_buffer_init(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &buffer_spec, NULL);
    dt_state->buffer_type = (PyTypeObject *)type;
    return type != NULL ? 0 : -1;
}
