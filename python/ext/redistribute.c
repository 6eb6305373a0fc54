/* redistribute.c: what the package's redistribute methods ask of collectives/. */
#include "python/ext/core.h"

#include "collectives/redistribute.h"
#include "futures/place.h"

#define PLAN_TEXT 8192

/* ---- arguments ------------------------------------------------------------------------------- */

typedef struct question {
    dt_tensor *t; /* owned: the handle may be given another while this waits for room */
    const dt_mesh *mesh;
    dt_placement placements[DT_MESH_RANK_MAX];
} question;

/* (tensor, mesh number, placement codes); the number None: whole, on no mesh. 0 or -1. */
static int read_question(PyObject *const *objects, Py_ssize_t n, question *q) {
    if (n != 3 || !dt_py_tensor_check(objects[0])) {
        PyErr_SetString(PyExc_TypeError, "expected (tensor, mesh, placements)");
        return -1;
    }
    q->mesh = NULL;
    if (objects[1] != Py_None) {
        q->mesh = dt_py_mesh_from_object(objects[1]);
        if (q->mesh == NULL || dt_py_placements_from_object(q->mesh, objects[2], q->placements) < 0)
            return -1;
    }
    dt_tensor *t = dt_py_tensor_known(objects[0], "Tensor.redistribute()");
    if (t == NULL) return -1;
    q->t = dt_tensor_retain(t);
    return 0;
}

/* ---- redistribute ---------------------------------------------------------------------------- */

/* redistribute(tensor, mesh number, placement codes) -> Tensor */
static PyObject *redistribute(PyObject *module, PyObject *const *objects, Py_ssize_t n) {
    (void)module;
    question q;
    dt_tensor *out;
    if (read_question(objects, n, &q) < 0) return NULL;
    dt_status status = dt_redistribute(q.t, q.mesh, q.placements, &out);
    bool same = status == DT_OK && out == q.t;
    dt_tensor_release(q.t);
    if (status != DT_OK) return dt_py_raise(status);
    if (!same) return dt_py_tensor_wrap(out);
    dt_tensor_release(out);
    Py_INCREF(objects[0]);
    return objects[0];
}

/* ---- plans ----------------------------------------------------------------------------------- */

static PyObject *codes_of(const dt_mesh *mesh, const dt_placement *placements) {
    PyObject *codes = PyTuple_New(mesh->rank);
    for (int m = 0; m < mesh->rank && codes != NULL; m++) {
        PyObject *code = PyLong_FromLong(placements[m].kind + 256L * placements[m].dim);
        if (code == NULL)
            Py_CLEAR(codes);
        else
            PyTuple_SET_ITEM(codes, m, code);
    }
    return codes;
}

static PyObject *mesh_dims_of(const dt_step *step) {
    PyObject *dims = PyTuple_New(__builtin_popcount(step->mesh_dims));
    for (int m = 0, n = 0; m < step->mesh->rank && dims != NULL; m++) {
        if (!(step->mesh_dims >> m & 1)) continue;
        PyObject *dim = PyLong_FromLong(m);
        if (dim == NULL)
            Py_CLEAR(dims);
        else
            PyTuple_SET_ITEM(dims, n++, dim);
    }
    return dims;
}

static PyObject *step_object(const dt_step *step) {
    PyObject *dims = mesh_dims_of(step), *codes = codes_of(step->mesh, step->placements);
    if (dims == NULL || codes == NULL) {
        Py_XDECREF(dims);
        Py_XDECREF(codes);
        return NULL;
    }
    return Py_BuildValue("(sNLkN)", dt_step_name((dt_step_kind)step->kind), dims,
                         (long long)step->bytes, (unsigned long)step->mesh->id, codes);
}

static PyObject *steps_of(const dt_plan *plan) {
    PyObject *steps = PyTuple_New(plan->count);
    for (int k = 0; k < plan->count && steps != NULL; k++) {
        PyObject *step = step_object(&plan->steps[k]);
        if (step == NULL)
            Py_CLEAR(steps);
        else
            PyTuple_SET_ITEM(steps, k, step);
    }
    return steps;
}

/* redistribute_plan(tensor, mesh number, placement codes) -> (text, steps, bytes, memory, pieces);
 * a step: (name, mesh dims, bytes, mesh number, placement codes) */
static PyObject *redistribute_plan(PyObject *module, PyObject *const *objects, Py_ssize_t n) {
    (void)module;
    question q;
    dt_plan plan;
    char text[PLAN_TEXT];
    PyObject *result = NULL;
    if (read_question(objects, n, &q) < 0) return NULL;
    dt_status status = dt_redistribute_plan(q.t, q.mesh, q.placements, &plan);
    if (status == DT_OK) {
        PyObject *steps = steps_of(&plan);
        (void)dt_plan_format(&plan, text, sizeof text);
        if (steps != NULL)
            result = Py_BuildValue("(sNLLi)", text, steps, (long long)plan.bytes,
                                   (long long)plan.memory_bytes, plan.pieces);
    } else {
        (void)dt_py_raise(status);
    }
    dt_tensor_release(q.t);
    return result;
}

/* redistribute_memory(bytes; negative: any number) -> what it was */
static PyObject *redistribute_memory(PyObject *module, PyObject *object) {
    (void)module;
    long long bytes = PyLong_AsLongLong(object);
    if (bytes == -1 && PyErr_Occurred()) return NULL;
    return PyLong_FromLongLong(dt_redistribute_set_memory(bytes));
}

/* ---- implicit redistributes ------------------------------------------------------------------ */

/* A context variable: the innermost implicit_redistribute() block, or None. The core asks in all
 * contexts as long as there is a block in any. */
static PyObject *implicit_block;

static dt_status redistribute_implicitly(dt_tensor *t, const dt_mesh *mesh,
                                         const dt_placement *placements, dt_tensor **out) {
    PyObject *block;
    if (PyContextVar_Get(implicit_block, Py_None, &block) < 0) return DT_E_PYTHON;
    dt_status status = DT_E_PLACEMENT;
    if (block == Py_None)
        (void)dt_fail(status, "not inside implicit_redistribute()");
    else
        status = dt_redistribute(t, mesh, placements, out);
    if (status == DT_OK) {
        PyObject *nothing = PyObject_CallMethod(block, "_inserted", NULL);
        if (nothing == NULL) {
            dt_tensor_release(*out);
            status = DT_E_PYTHON;
        }
        Py_XDECREF(nothing);
    }
    Py_DECREF(block);
    return status;
}

static PyMethodDef functions[] = {
    {"redistribute", (PyCFunction)(void (*)(void))redistribute, METH_FASTCALL, NULL},
    {"redistribute_plan", (PyCFunction)(void (*)(void))redistribute_plan, METH_FASTCALL, NULL},
    {"redistribute_memory", redistribute_memory, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

int dt_py_redistribute_init(PyObject *module) {
    implicit_block = PyContextVar_New("dtorch_implicit_redistribute", NULL);
    if (implicit_block == NULL) return -1;
    dt_place_set_redistribute_hook(redistribute_implicitly);
    if (PyModule_AddObjectRef(module, "_implicit_block", implicit_block) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}
