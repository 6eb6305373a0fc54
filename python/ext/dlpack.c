/* dlpack.c: DLPack, both ways.
 *
 * The structs are those of the public DLPack specification, versions 0.8 (unversioned) and 1.0.
 * Out: a capsule whose deleter ends the export of the storage; a consumer may call it in any
 * thread, with or without the GIL, so it only touches atomics and C memory.  In: the producer's
 * deleter may need the GIL, so it runs from the graveyard.
 *
 * I1: a capsule is consumed by renaming it; an unconsumed one calls the deleter itself.
 * I2: strides are passed on as they are, also where a dimension has one element or none.
 */
#include "python/ext/core.h"

#include <stddef.h>

#include "runtime/alloc.h"
#include "runtime/graveyard.h"

/* ---- the specification ----------------------------------------------------------------------- */

enum { DL_CPU = 1 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6 };
enum { DL_FLAG_READ_ONLY = 1u << 0, DL_FLAG_IS_COPIED = 1u << 1 };

typedef struct dl_device {
    int32_t device_type;
    int32_t device_id;
} dl_device;

typedef struct dl_data_type {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} dl_data_type;

typedef struct dl_tensor {
    void *data;
    dl_device device;
    int32_t ndim;
    dl_data_type dtype;
    int64_t *shape;
    int64_t *strides; /* elements; NULL: row-major */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *manager;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

typedef struct dl_managed_versioned {
    uint32_t major, minor;
    void *manager;
    void (*deleter)(struct dl_managed_versioned *self);
    uint64_t flags;
    dl_tensor tensor;
} dl_managed_versioned;

_Static_assert(sizeof(dl_tensor) == 48 && offsetof(dl_managed, deleter) == 56 &&
                   offsetof(dl_managed_versioned, tensor) == 32,
               "the layout of the specification");

#define NAME "dltensor"
#define NAME_USED "used_dltensor"
#define NAME_VERSIONED "dltensor_versioned"
#define NAME_VERSIONED_USED "used_dltensor_versioned"

static const dl_data_type types[DT_DTYPE_COUNT] = {
    [DT_BOOL] = {DL_BOOL, 8, 1},  [DT_U8] = {DL_UINT, 8, 1},      [DT_I8] = {DL_INT, 8, 1},
    [DT_I16] = {DL_INT, 16, 1},   [DT_I32] = {DL_INT, 32, 1},     [DT_I64] = {DL_INT, 64, 1},
    [DT_F16] = {DL_FLOAT, 16, 1}, [DT_BF16] = {DL_BFLOAT, 16, 1}, [DT_F32] = {DL_FLOAT, 32, 1},
    [DT_F64] = {DL_FLOAT, 64, 1},
};

/* ---- out ------------------------------------------------------------------------------------- */

typedef struct exported {
    dt_tensor *t;
    int64_t shape[DT_RANK_MAX], strides[DT_RANK_MAX];
    union {
        dl_managed plain;
        dl_managed_versioned versioned;
    };
} exported;

static void exported_free(exported *e) { /* any thread */
    dt_py_export_end(e->t);
    dt_free(e, sizeof *e);
}

static void delete_plain(dl_managed *m) { exported_free(m->manager); }
static void delete_versioned(dl_managed_versioned *m) { exported_free(m->manager); }

static void capsule_free(PyObject *capsule) {
    void *managed;
    if (PyCapsule_IsValid(capsule, NAME)) {
        managed = PyCapsule_GetPointer(capsule, NAME);
        delete_plain(managed);
    } else if (PyCapsule_IsValid(capsule, NAME_VERSIONED)) {
        managed = PyCapsule_GetPointer(capsule, NAME_VERSIONED);
        delete_versioned(managed);
    }
}

static void describe(exported *e, dl_tensor *out) {
    const dt_tensor *t = e->t;
    memcpy(e->shape, t->shape, (size_t)t->rank * sizeof *e->shape);
    memcpy(e->strides, t->strides, (size_t)t->rank * sizeof *e->strides);
    *out = (dl_tensor){
        .data = dt_tensor_data(t),
        .device = {DL_CPU, 0},
        .ndim = t->rank,
        .dtype = types[t->dtype],
        .shape = e->shape,
        .strides = e->strides,
    };
}

PyObject *dt_py_dlpack_capsule(dt_tensor *t, bool versioned, bool copied) {
    if (dt_py_export_begin(t, "Tensor.__dlpack__()") < 0) return NULL;
    exported *e = dt_alloc(sizeof *e);
    if (e == NULL) {
        dt_py_export_end(t);
        return PyErr_NoMemory();
    }
    e->t = t;
    PyObject *capsule;
    if (versioned) {
        bool readonly = (t->storage->flags & DT_STORAGE_READONLY) != 0;
        e->versioned = (dl_managed_versioned){.major = 1,
                                              .manager = e,
                                              .deleter = delete_versioned,
                                              .flags = (readonly ? DL_FLAG_READ_ONLY : 0) |
                                                       (copied ? DL_FLAG_IS_COPIED : 0)};
        describe(e, &e->versioned.tensor);
        capsule = PyCapsule_New(&e->versioned, NAME_VERSIONED, capsule_free);
    } else {
        e->plain = (dl_managed){.manager = e, .deleter = delete_plain};
        describe(e, &e->plain.tensor);
        capsule = PyCapsule_New(&e->plain, NAME, capsule_free);
    }
    if (capsule == NULL) exported_free(e);
    return capsule;
}

/* max_version=(major, minor): is a versioned capsule understood? -1 error. */
static int wants_versioned(PyObject *max_version) {
    if (max_version == Py_None) return 0;
    PyObject *major = PySequence_GetItem(max_version, 0);
    long value = major != NULL ? PyLong_AsLong(major) : -1;
    Py_XDECREF(major);
    if (value == -1 && PyErr_Occurred()) return -1;
    return value >= 1;
}

/* dl_device=(type, id): only the CPU. 0 or -1. */
static int check_device(PyObject *device) {
    if (device == Py_None) return 0;
    PyObject *type = PySequence_GetItem(device, 0);
    long value = type != NULL ? PyLong_AsLong(type) : -1;
    Py_XDECREF(type);
    if (value == -1 && PyErr_Occurred()) return -1;
    if (value == DL_CPU) return 0;
    PyErr_Format(PyExc_BufferError,
                 "__dlpack__(): a CPU tensor cannot be exported to device type %ld", value);
    return -1;
}

static PyObject *local_capsule(dt_tensor *t, bool versioned, PyObject *copy) {
    bool readonly = (t->storage->flags & DT_STORAGE_READONLY) != 0;
    bool copied = copy == Py_True || (readonly && !versioned && copy != Py_False);
    if (readonly && !versioned && copy == Py_False) {
        PyErr_SetString(
            PyExc_BufferError,
            "__dlpack__(): the tensor's bytes are read-only, which the consumer's version "
            "of DLPack cannot say; copy=True gives it a copy");
        return NULL;
    }
    if (!copied) return dt_py_dlpack_capsule(t, versioned, false);
    dt_tensor *own = dt_py_tensor_clone(t, (dt_dtype)t->dtype);
    if (own == NULL) return NULL;
    PyObject *capsule = dt_py_dlpack_capsule(own, versioned, true);
    dt_tensor_release(own);
    return capsule;
}

static PyObject *method_dlpack(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
    dt_graveyard_drain();
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream,
                                     &max_version, &device, &copy))
        return NULL;
    if (stream != Py_None && !(PyLong_Check(stream) && PyLong_AsLong(stream) == -1)) {
        PyErr_Clear();
        PyErr_SetString(PyExc_BufferError, "__dlpack__(): a CPU tensor takes no stream");
        return NULL;
    }
    int versioned = wants_versioned(max_version);
    if (versioned < 0 || check_device(device) < 0) return NULL;
    if (((dt_py_tensor *)self)->requires_grad) {
        PyErr_SetString(PyExc_BufferError,
                        "Can't export tensors that require gradient, use tensor.detach()");
        return NULL;
    }
    dt_tensor *known = dt_py_tensor_known(self, "Tensor.__dlpack__()");
    dt_tensor *t = known != NULL ? dt_py_tensor_local(known) : NULL;
    if (t == NULL) return NULL;
    PyObject *capsule = local_capsule(t, versioned == 1, copy);
    dt_tensor_release(t);
    return capsule;
}

static PyObject *method_dlpack_device(PyObject *self, PyObject *ignored) {
    (void)self, (void)ignored;
    return Py_BuildValue("(ii)", DL_CPU, 0);
}

PyMethodDef dt_py_dlpack_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))method_dlpack, METH_VARARGS | METH_KEYWORDS,
     "A DLPack capsule that shares the bytes; waits for every earlier task on them."},
    {"__dlpack_device__", method_dlpack_device, METH_NOARGS, "(1, 0): the CPU."},
    {NULL, NULL, 0, NULL},
};

/* ---- in -------------------------------------------------------------------------------------- */

static void release_plain(void *context) {
    dl_managed *m = context;
    if (m->deleter != NULL) m->deleter(m);
}

static void release_versioned(void *context) {
    dl_managed_versioned *m = context;
    if (m->deleter != NULL) m->deleter(m);
}

static int dtype_of(dl_data_type type, dt_dtype *out) {
    for (int d = 0; d < DT_DTYPE_COUNT; d++) {
        if (types[d].code != type.code || types[d].bits != type.bits || type.lanes != 1) continue;
        *out = (dt_dtype)d;
        return 0;
    }
    PyErr_Format(PyExc_RuntimeError,
                 "from_dlpack(): elements with code %d, %d bits and %d lanes are not supported",
                 type.code, type.bits, type.lanes);
    return -1;
}

/* Checks what the producer says, and puts its strides and extent together. */
static int understand(const dl_tensor *d, dt_dtype *dtype, int64_t *strides, size_t *bytes) {
    if (d->device.device_type != DL_CPU) {
        PyErr_Format(
            PyExc_RuntimeError,
            "from_dlpack(): device type %d is not supported; move the data to the CPU first",
            d->device.device_type);
        return -1;
    }
    if (d->ndim < 0 || d->ndim > DT_RANK_MAX) {
        PyErr_Format(PyExc_RuntimeError, "from_dlpack(): %d dimensions; at most %d are supported",
                     d->ndim, DT_RANK_MAX);
        return -1;
    }
    if (dtype_of(d->dtype, dtype) < 0) return -1;
    int64_t numel, span = 1;
    dt_status status = dt_shape_numel(d->ndim, d->shape, (int64_t)dt_dtype_size(*dtype), &numel);
    if (status != DT_OK) {
        (void)dt_py_raise(status);
        return -1;
    }
    if (d->strides != NULL)
        memcpy(strides, d->strides, (size_t)d->ndim * sizeof *strides);
    else
        dt_shape_contiguous_strides(d->ndim, d->shape, strides);
    for (int k = 0; k < d->ndim; k++) {
        if (strides[k] < 0) {
            PyErr_SetString(
                PyExc_RuntimeError,
                "from_dlpack(): negative strides are not supported; copy the data first");
            return -1;
        }
        if (d->shape[k] > 1) span += (d->shape[k] - 1) * strides[k];
    }
    *bytes = numel > 0 ? (size_t)span * dt_dtype_size(*dtype) : 0;
    uintptr_t address = (uintptr_t)d->data + d->byte_offset;
    if (numel > 0 && address % dt_dtype_size(*dtype) != 0) {
        PyErr_SetString(PyExc_RuntimeError,
                        "from_dlpack(): the data is not aligned to its element size");
        return -1;
    }
    return 0;
}

static dt_tensor *consume(PyObject *capsule, bool frozen) {
    bool versioned = PyCapsule_IsValid(capsule, NAME_VERSIONED);
    if (!versioned && !PyCapsule_IsValid(capsule, NAME)) {
        PyErr_SetString(PyExc_ValueError,
                        "from_dlpack(): expected a DLPack capsule that has not been consumed yet");
        return NULL;
    }
    void *managed = PyCapsule_GetPointer(capsule, versioned ? NAME_VERSIONED : NAME);
    const dl_managed_versioned *v = managed;
    if (versioned && v->major > 1) {
        PyErr_Format(PyExc_BufferError, "from_dlpack(): DLPack version %u.%u is not understood",
                     v->major, v->minor);
        return NULL;
    }
    const dl_tensor *d = versioned ? &v->tensor : &((const dl_managed *)managed)->tensor;
    dt_dtype dtype;
    int64_t strides[DT_RANK_MAX];
    size_t bytes;
    if (understand(d, &dtype, strides, &bytes) < 0) return NULL;
    uint32_t flags = DT_STORAGE_FOREIGN | (frozen ? DT_STORAGE_FROZEN : 0);
    if (versioned && (v->flags & DL_FLAG_READ_ONLY)) flags |= DT_STORAGE_READONLY;
    static char nowhere[64]; /* empty tensors may come without an address */
    char *data = d->data != NULL ? (char *)d->data + d->byte_offset : nowhere;
    dt_storage *storage = dt_storage_new_foreign(
        data, bytes, versioned ? release_versioned : release_plain, managed, flags);
    if (storage == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    /* From here on the storage owns what the capsule held. */
    (void)PyCapsule_SetName(capsule, versioned ? NAME_VERSIONED_USED : NAME_USED);
    dt_tensor *t;
    dt_status status = dt_tensor_new_over(storage, dtype, d->ndim, d->shape, strides, 0, &t);
    if (status == DT_OK) return t;
    dt_storage_release(storage);
    (void)dt_py_raise(status);
    return NULL;
}

/* The producer's capsule, of the newest version that it knows. */
static PyObject *request(PyObject *object) {
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
    if (method == NULL) return NULL;
    PyObject *version = Py_BuildValue("{s(ii)}", "max_version", 1, 0);
    PyObject *none = PyTuple_New(0), *capsule = NULL;
    if (version != NULL && none != NULL) capsule = PyObject_Call(method, none, version);
    if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        capsule = PyObject_CallNoArgs(method);
    }
    Py_XDECREF(version);
    Py_XDECREF(none);
    Py_DECREF(method);
    return capsule;
}

dt_tensor *dt_py_tensor_from_dlpack(PyObject *object, bool frozen) {
    if (dt_py_tensor_check(object)) return dt_tensor_retain(dt_py_tensor_get(object));
    if (PyCapsule_CheckExact(object)) return consume(object, frozen);
    PyObject *capsule = request(object);
    if (capsule == NULL) return NULL;
    dt_tensor *t = NULL;
    if (PyCapsule_CheckExact(capsule))
        t = consume(capsule, frozen);
    else
        PyErr_Format(PyExc_TypeError, "__dlpack__() returned a %s, not a capsule",
                     Py_TYPE(capsule)->tp_name);
    Py_DECREF(capsule);
    return t;
}
