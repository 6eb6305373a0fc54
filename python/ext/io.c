/* io.c: files of tensors: what dtorch/_safetensors.py stands on.
 *
 * Python opens a file, reads or builds the header and checks it; here each tensor becomes one task
 * of the scheduler's ring, DT_TASK_READ into a new storage of its own or DT_TASK_WRITE from the
 * tensor's storage.  Both are ordered with all other work on that storage: a tensor that is being
 * read can be used and awaited at once, and a write saves the value as of the call even when the
 * tensor is changed in place right after it.
 *
 * I1: a capsule owns a reference to its dt_file, each task another; the last one closes it.
 * I2: an outsider's bytes are copied before a write is submitted: no order holds them still.
 */
#include "python/ext/await.h"
#include "python/ext/core.h"

#include <errno.h>
#include <unistd.h>

#include "runtime/dist.h"

#define CAPSULE_NAME "dtorch.file"

/* ---- files --------------------------------------------------------------------------------- */

static dt_file *file_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, CAPSULE_NAME); }

static void free_capsule(PyObject *capsule) { dt_file_release(file_of(capsule)); }

/* _file_open(path, writing) */
static PyObject *file_open(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *path;
    int writing;
    if (!PyArg_ParseTuple(args, "O&p:_file_open", PyUnicode_FSConverter, &path, &writing))
        return NULL;
    dt_file *file = NULL;
    dt_status status;
    const char *text = PyBytes_AS_STRING(path);
    Py_BEGIN_ALLOW_THREADS;
    status = dt_file_open(text, writing, &file);
    Py_END_ALLOW_THREADS;
    Py_DECREF(path);
    if (status != DT_OK) return dt_py_raise(status);
    PyObject *capsule = PyCapsule_New(file, CAPSULE_NAME, free_capsule);
    if (capsule == NULL) dt_file_release(file);
    return capsule;
}

/* _file_size(file) */
static PyObject *file_size(PyObject *module, PyObject *capsule) {
    (void)module;
    const dt_file *file = file_of(capsule);
    return file != NULL ? PyLong_FromLongLong(dt_file_size(file)) : NULL;
}

/* _file_pread(file, offset, length): bytes, fewer than length at the end of the file. */
static PyObject *file_pread(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *capsule;
    long long offset;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "OLn:_file_pread", &capsule, &offset, &length)) return NULL;
    const dt_file *file = file_of(capsule);
    PyObject *bytes = file != NULL ? PyBytes_FromStringAndSize(NULL, length) : NULL;
    if (bytes == NULL) return NULL;
    char *to = PyBytes_AS_STRING(bytes);
    Py_ssize_t done = 0;
    ssize_t got = 1;
    Py_BEGIN_ALLOW_THREADS;
    while (done < length && got > 0) {
        got = pread(dt_file_fd(file), to + done, (size_t)(length - done), offset + done);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got > 0)
            done += got;
    }
    Py_END_ALLOW_THREADS;
    if (got < 0) {
        Py_DECREF(bytes);
        return PyErr_SetFromErrnoWithFilename(PyExc_OSError, dt_file_path(file));
    }
    if (done < length) (void)_PyBytes_Resize(&bytes, done);
    return bytes;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Takes the task; length 0 is not for the ring. */
static dt_status submit(dt_task *task, dt_file *file, int64_t offset, int64_t length,
                        dt_future **future) {
    task->io.file = dt_file_retain(file);
    task->io.offset = offset;
    task->io.length = length;
    return dt_runtime_submit(task, future);
}

static int64_t bytes_of(const dt_tensor *t) {
    return t->numel * (int64_t)dt_dtype_size((dt_dtype)t->dtype);
}

static dt_status start_read(dt_file *file, dt_dtype dtype, const dt_dims *shape, int64_t offset,
                            dt_tensor **out) {
    dt_tensor *t;
    DT_TRY(dt_tensor_new(dtype, shape->rank, shape->v, &t));
    dt_status status = DT_OK;
    if (bytes_of(t) > 0) {
        dt_task *task;
        status = dt_task_new(DT_TASK_READ, 1, 0, &task);
        if (status == DT_OK) {
            task->call.operands[0] = dt_tensor_retain(t);
            status = submit(task, file, offset, bytes_of(t), NULL);
        }
    }
    if (status == DT_OK)
        *out = t;
    else
        dt_tensor_release(t);
    return status;
}

/* One entry (dtype name, shape, offset) of _file_load; a new Tensor. */
static PyObject *load_one(dt_file *file, PyObject *entry) {
    const char *name;
    PyObject *shape;
    long long offset;
    dt_dims dims;
    dt_tensor *t;
    if (!PyTuple_Check(entry)) {
        PyErr_SetString(PyExc_TypeError, "_file_load(): entries are tuples");
        return NULL;
    }
    if (!PyArg_ParseTuple(entry, "sOL:_file_load", &name, &shape, &offset)) return NULL;
    dt_dtype dtype = dt_dtype_parse(name);
    if (dtype == DT_DTYPE_NONE) {
        PyErr_Format(PyExc_ValueError, "unknown dtype '%s'", name);
        return NULL;
    }
    int ok = dt_py_dims_from_object(shape, &dims);
    if (ok < 0) return NULL;
    if (ok == 0) {
        PyErr_SetString(PyExc_TypeError, "_file_load(): a shape is a sequence of ints");
        return NULL;
    }
    dt_status status = start_read(file, dtype, &dims, offset, &t);
    return status == DT_OK ? dt_py_tensor_wrap(t) : dt_py_raise(status);
}

/* _file_load(file, entries): a list of tensors whose reads have been submitted. */
static PyObject *file_load(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *capsule, *entries;
    if (!PyArg_ParseTuple(args, "OO!:_file_load", &capsule, &PyList_Type, &entries)) return NULL;
    dt_file *file = file_of(capsule);
    if (file == NULL) return NULL;
    dt_graveyard_drain();
    PyObject *result = PyList_New(0);
    for (Py_ssize_t i = 0; result != NULL && i < PyList_GET_SIZE(entries); i++) {
        PyObject *entry = Py_NewRef(PyList_GET_ITEM(entries, i));
        PyObject *tensor = load_one(file, entry);
        Py_DECREF(entry);
        if (tensor == NULL || PyList_Append(result, tensor) < 0) Py_CLEAR(result);
        Py_XDECREF(tensor);
    }
    return result;
}

/* ---- writing ------------------------------------------------------------------------------- */

typedef struct saving {
    dt_file *file;
    dt_future **futures; /* PyMem memory */
    Py_ssize_t count;
} saving;

static dt_status write_tensor(saving *s, dt_tensor *t, int64_t offset) {
    dt_future *future = NULL;
    dt_future_state state = dt_tensor_state(t, &future);
    if (state == DT_FUTURE_FAILED || state == DT_FUTURE_CANCELLED) {
        /* There is nothing to write, and the save fails with the same error. */
        s->futures[s->count++] = dt_future_retain(dt__tensor_failure(t, future));
        return DT_OK;
    }
    if (bytes_of(t) == 0) return DT_OK;
    /* Bytes that nothing ever wrote, of empty(), have no memory yet. */
    if (state == DT_FUTURE_READY) DT_TRY(dt_storage_materialize(t->storage));
    dt_task *task;
    DT_TRY(dt_task_new(DT_TASK_WRITE, 0, 1, &task));
    task->call.operands[0] = dt_tensor_retain(t);
    DT_TRY(submit(task, s->file, offset, bytes_of(t), &future));
    s->futures[s->count++] = future;
    return DT_OK;
}

static dt_status write_bytes(saving *s, PyObject *bytes, int64_t offset) {
    int64_t length = PyBytes_GET_SIZE(bytes);
    dt_tensor *t;
    DT_TRY(dt_tensor_new(DT_U8, 1, &length, &t));
    dt_status status = dt_storage_materialize(t->storage);
    if (status == DT_OK) {
        memcpy(dt_tensor_data(t), PyBytes_AS_STRING(bytes), (size_t)length);
        status = write_tensor(s, t, offset);
    }
    dt_tensor_release(t);
    return status;
}

/* t itself where its bytes may be written as they are, else a row-major copy. */
static dt_status for_writing(dt_tensor *t, dt_tensor **out) {
    if (t->contiguous && !dt_storage_is_external(t->storage)) {
        *out = dt_tensor_retain(t);
        return DT_OK;
    }
    dt_op_call call;
    dt_op_call_init(&call, DT_OP_clone);
    call.nargs = 2;
    call.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = t};
    call.args[1] = (dt_arg){.kind = DT_ARG_STR, .str = "torch.contiguous_format"};
    DT_TRY(dt_py_dispatch(&call));
    *out = call.outs[0];
    return DT_OK;
}

static int write_one(saving *s, PyObject *piece) {
    PyObject *what;
    long long offset;
    if (!PyTuple_Check(piece)) {
        PyErr_SetString(PyExc_TypeError, "_file_save(): pieces are tuples");
        return -1;
    }
    if (!PyArg_ParseTuple(piece, "OL:_file_save", &what, &offset)) return -1;
    dt_status status;
    if (PyBytes_Check(what)) {
        status = write_bytes(s, what, offset);
    } else if (dt_py_tensor_check(what)) {
        dt_tensor *given = dt_py_tensor_known(what, "save_safetensors()"), *t;
        if (given == NULL) return -1;
        given = dt_py_tensor_whole(given);
        if (given == NULL) return -1;
        status = for_writing(given, &t);
        dt_tensor_release(given);
        if (status == DT_OK) {
            status = write_tensor(s, t, offset);
            dt_tensor_release(t);
        }
    } else {
        PyErr_Format(PyExc_TypeError, "_file_save(): a piece is bytes or a Tensor, not %.200s",
                     Py_TYPE(what)->tp_name);
        return -1;
    }
    if (status == DT_OK) return 0;
    (void)dt_py_raise(status);
    return -1;
}

/* _file_save(file, pieces): a TensorFuture of None over the writes of pieces (bytes or Tensor,
 * offset). */
static PyObject *file_save(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *capsule, *pieces;
    if (!PyArg_ParseTuple(args, "OO!:_file_save", &capsule, &PyList_Type, &pieces)) return NULL;
    saving s = {.file = file_of(capsule)};
    if (s.file == NULL) return NULL;
    dt_graveyard_drain();
    Py_ssize_t n = PyList_GET_SIZE(pieces);
    s.futures = PyMem_New(dt_future *, (size_t)n + 1);
    if (s.futures == NULL) return PyErr_NoMemory();
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < n && i < PyList_GET_SIZE(pieces); i++) {
        PyObject *piece = Py_NewRef(PyList_GET_ITEM(pieces, i));
        failed = write_one(&s, piece);
        Py_DECREF(piece);
    }
    if (!failed) return dt__future_new(s.futures, s.count, NULL, Py_NewRef(Py_None));
    for (Py_ssize_t i = 0; i < s.count; i++) dt_future_release(s.futures[i]);
    PyMem_Free(s.futures);
    return NULL;
}

/* ---- time ---------------------------------------------------------------------------------- */

static dt_status hold_one(dt_tensor *t, double seconds) {
    dt_task *task = NULL;
    /* A queued writer takes the memory itself, perhaps at this moment, in a worker. */
    bool written = atomic_load_explicit(&t->storage->writers, memory_order_acquire) != 0;
    if (!written) DT_TRY(dt_storage_materialize(t->storage));
    DT_TRY(dt_task_new(DT_TASK_TIMER, 1, 0, &task));
    task->call.operands[0] = dt_tensor_retain(t);
    task->io.delay_ns = seconds > 0 ? (int64_t)(seconds * 1e9) : 0;
    return dt_runtime_submit(task, NULL);
}

/* _hold(tensor, seconds): tensor, which counts as being written until the time has passed; nothing
 * is written. Tests have pending tensors from it without work for the machine. */
static PyObject *hold(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *tensor;
    double seconds;
    if (!PyArg_ParseTuple(args, "O!d:_hold", dt_state->tensor_type, &tensor, &seconds)) return NULL;
    int count;
    dt_tensor *t = ((dt_py_tensor *)tensor)->t, *const *parts = dt_tensor_parts(&t, &count);
    dt_status status = DT_OK;
    for (int k = 0; k < count && status == DT_OK; k++) status = hold_one(parts[k], seconds);
    return status == DT_OK ? Py_NewRef(tensor) : dt_py_raise(status);
}

/* ---- set-up -------------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"_file_open", file_open, METH_VARARGS, NULL},
    {"_file_size", file_size, METH_O, NULL},
    {"_file_pread", file_pread, METH_VARARGS, NULL},
    {"_file_load", file_load, METH_VARARGS, NULL},
    {"_file_save", file_save, METH_VARARGS, NULL},
    {"_hold", hold, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int dt_py_io_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
