/* dist.c: reading tensors on a mesh: the whole of one, or what one device holds.
 *
 * A tensor on a mesh has no bytes of its own.  Who wants its value asks for the whole, an ordinary
 * tensor that is computed from the parts as any op is (nothing waits here), or for the part of the
 * current device, which is what to_torch() and its kin hand out.
 *
 * I1: nothing in python/ext touches the storage of a tensor on a mesh: every reader comes by here.
 */
#include "python/ext/core.h"

#include "collectives/redistribute.h"
#include "runtime/dist.h"

static PyObject *current_device; /* a context variable: number of the current GPU */

/* ---- the current device ---------------------------------------------------------------------- */

/* The number, or -1 with an exception. */
static long current(void) {
    PyObject *value;
    if (PyContextVar_Get(current_device, NULL, &value) < 0) return -1;
    long number = value != NULL ? PyLong_AsLong(value) : 0;
    Py_XDECREF(value);
    return number;
}

int dt_py_dist_here(const dt_tensor *t) {
    const dt_mesh *mesh = dt_dist_of(t)->mesh;
    long number = mesh->type == DT_DEVICE_CUDA ? current() : 0;
    if (number < 0) return -1;
    for (int k = 0; k < mesh->size; k++)
        if (mesh->ids[k] == number && mesh->type == DT_DEVICE_CUDA) return k;
    return 0;
}

dt_tensor *dt_py_tensor_local(dt_tensor *t) {
    if (DT_LIKELY(!dt_tensor_is_dist(t))) return dt_tensor_retain(t);
    int here = dt_py_dist_here(t);
    return here < 0 ? NULL : dt_tensor_retain(dt_dist_of(t)->parts[here]);
}

/* ---- the whole ------------------------------------------------------------------------------- */

dt_tensor *dt_py_tensor_whole_own(dt_tensor *t) {
    if (DT_LIKELY(!dt_tensor_is_dist(t))) return dt_tensor_retain(t);
    dt_tensor *whole;
    dt_status status = dt_redistribute(t, NULL, NULL, &whole);
    if (status == DT_OK) return whole;
    (void)dt_py_raise(status);
    return NULL;
}

static bool is_replicate(const dt_dist *d) {
    for (int m = 0; m < d->mesh->rank; m++)
        if (d->placements[m].kind != DT_REPLICATE) return false;
    return true;
}

dt_tensor *dt_py_tensor_whole(dt_tensor *t) {
    if (DT_UNLIKELY(dt_tensor_is_dist(t)) && is_replicate(dt_dist_of(t)))
        return dt_tensor_retain(dt_dist_of(t)->parts[0]);
    return dt_py_tensor_whole_own(t);
}

/* ---- functions ------------------------------------------------------------------------------- */

static int check_tensor(PyObject *object) {
    if (dt_py_tensor_check(object)) return 0;
    PyErr_Format(PyExc_TypeError, "a dtorch.Tensor is needed, not %.100s", dt_py_type_name(object));
    return -1;
}

/* dist_full(tensor) -> the whole of it, in bytes of its own; an ordinary tensor itself */
static PyObject *dist_full(PyObject *module, PyObject *object) {
    (void)module;
    if (check_tensor(object) < 0) return NULL;
    dt_tensor *t = dt_py_tensor_known(object, "Tensor.full_tensor()");
    if (t == NULL) return NULL;
    if (!dt_tensor_is_dist(t)) return Py_NewRef(object);
    dt_tensor_retain(t); /* the handle may change while we wait */
    dt_tensor *whole = dt_py_tensor_whole_own(t);
    dt_tensor_release(t);
    return whole != NULL ? dt_py_tensor_wrap(whole) : NULL;
}

/* dist_whole(tensor) -> the whole of it, to be read only: it may share a part's bytes */
static PyObject *dist_whole(PyObject *module, PyObject *object) {
    (void)module;
    if (check_tensor(object) < 0) return NULL;
    dt_tensor *t = dt_py_tensor_known(object, "reading a Tensor");
    if (t == NULL) return NULL;
    dt_tensor_retain(t);
    dt_tensor *whole = dt_py_tensor_whole(t);
    dt_tensor_release(t);
    return whole != NULL ? dt_py_tensor_wrap(whole) : NULL;
}

/* dist_here(tensor) -> index of the current device in its mesh */
static PyObject *dist_here(PyObject *module, PyObject *object) {
    (void)module;
    if (check_tensor(object) < 0) return NULL;
    const dt_tensor *t = dt_py_tensor_get(object);
    int here = dt_tensor_is_dist(t) ? dt_py_dist_here(t) : 0;
    return here < 0 ? NULL : PyLong_FromLong(here);
}

static PyObject *get_current_device(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    long number = current();
    return number < 0 ? NULL : PyLong_FromLong(number);
}

/* set_current_device(number) -> what it was, in this context */
static PyObject *set_current_device(PyObject *module, PyObject *number) {
    PyObject *before = get_current_device(module, NULL);
    PyObject *token = before != NULL ? PyContextVar_Set(current_device, number) : NULL;
    if (token == NULL) Py_CLEAR(before);
    Py_XDECREF(token);
    return before;
}

static PyMethodDef functions[] = {
    {"dist_full", dist_full, METH_O, NULL},
    {"dist_whole", dist_whole, METH_O, NULL},
    {"dist_here", dist_here, METH_O, NULL},
    {"current_device", get_current_device, METH_NOARGS, NULL},
    {"set_current_device", set_current_device, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

int dt_py_dist_init(PyObject *module) {
    current_device = PyContextVar_New("dtorch.current_device", NULL);
    if (current_device == NULL) return -1;
    return PyModule_AddFunctions(module, functions);
}
