/* note.c: what the client's context says of each call that it submits: line, priority, limits.
 *
 *   dt_runtime_submit --note_hook--> site.c: the user's line
 *                                    priority: a context variable, looked up once it was ever set
 *                                    limit.c: counts the call, while there is a limit
 *                                    while a profile is recorded: the coroutine
 *
 * The variable of the priority holds (level, what it held outside): leaving a block needs no token,
 * so that one object of dtorch.priority can be used by many tasks at once.
 *
 * I1: the hook runs for every task: it runs no Python code (but for a profile, which asks for the
 *     coroutine's name), leaves no exception, and costs nothing for what the process never used.
 */
#include "python/ext/await.h"
#include "python/ext/core.h"
#include "runtime/trace.h"

/* ---- priority ------------------------------------------------------------------------------- */

static const char *const level_names[] = {
    [DT_PRIORITY_NORMAL] = "normal",
    [DT_PRIORITY_INTERACTIVE] = "interactive",
    [DT_PRIORITY_BULK] = "bulk",
};
#define LEVELS (int)(sizeof level_names / sizeof *level_names)

static PyObject *priority_variable;
static bool priority_used; /* for the life of the process */

/* What the variable holds in this context: a new reference, or NULL: nothing. No exception. */
static PyObject *priority_frame(void) {
    PyObject *value = NULL;
    if (!priority_used) return NULL;
    if (PyContextVar_Get(priority_variable, NULL, &value) < 0) PyErr_Clear();
    if (value == Py_None) Py_CLEAR(value);
    return value;
}

static dt_priority priority_now(void) {
    PyObject *frame = priority_frame();
    long level = frame != NULL ? PyLong_AsLong(PyTuple_GET_ITEM(frame, 0)) : DT_PRIORITY_NORMAL;
    Py_XDECREF(frame);
    return (dt_priority)level;
}

static int set_priority_frame(PyObject *frame) {
    PyObject *token = PyContextVar_Set(priority_variable, frame);
    Py_XDECREF(token);
    return token != NULL ? 0 : -1;
}

/* The level of that name, or -1 with an exception. */
static int level_of(PyObject *name) {
    for (int i = 0; PyUnicode_Check(name) && i < LEVELS; i++)
        if (PyUnicode_CompareWithASCIIString(name, level_names[i]) == 0) return i;
    PyErr_Format(PyExc_ValueError,
                 "priority(): level must be 'interactive', 'normal' or 'bulk', not %R", name);
    return -1;
}

static PyObject *priority_check(PyObject *module, PyObject *name) {
    (void)module;
    return level_of(name) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *priority_enter(PyObject *module, PyObject *name) {
    (void)module;
    int level = level_of(name);
    if (level < 0) return NULL;
    PyObject *outside = priority_frame();
    PyObject *frame = Py_BuildValue("(iO)", level, outside != NULL ? outside : Py_None);
    int failed = frame == NULL ? -1 : set_priority_frame(frame);
    Py_XDECREF(frame);
    Py_XDECREF(outside);
    if (failed) return NULL;
    priority_used = true;
    Py_RETURN_NONE;
}

static PyObject *priority_leave(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    PyObject *frame = priority_frame();
    if (frame == NULL) Py_RETURN_NONE; /* entered in another context */
    int failed = set_priority_frame(PyTuple_GET_ITEM(frame, 1));
    Py_DECREF(frame);
    return failed ? NULL : Py_NewRef(Py_None);
}

static PyObject *priority_name(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    return PyUnicode_FromString(level_names[priority_now()]);
}

/* ---- the hook ------------------------------------------------------------------------------- */

static void take_note(dt_client_note *note) {
    note->site = dt_py_site();
    if (DT_UNLIKELY(priority_used)) note->priority = (uint8_t)priority_now();
    if (DT_UNLIKELY(dt_trace_is_on())) note->client = dt_py_trace_client();
    if (DT_UNLIKELY(dt__limits_alive != 0) && note->future != NULL) dt__limits_count(note->future);
}

/* What the hook says of a call made here, for tests: (site, level). */
static PyObject *note_here(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    dt_client_note note = {0};
    take_note(&note);
    return Py_BuildValue("(Is)", note.site, level_names[note.priority]);
}

static PyMethodDef functions[] = {
    {"_note", note_here, METH_NOARGS, NULL},
    {"_priority_check", priority_check, METH_O, NULL},
    {"_priority_enter", priority_enter, METH_O, NULL},
    {"_priority_leave", priority_leave, METH_NOARGS, NULL},
    {"get_priority", priority_name, METH_NOARGS,
     "get_priority()\n--\n\n"
     "The level that operations called here get: 'interactive', 'normal' or 'bulk'."},
    {NULL, NULL, 0, NULL},
};

int dt_py_note_init(PyObject *module) {
    priority_variable = PyContextVar_New("dtorch.priority", NULL);
    if (priority_variable == NULL) return -1;
    dt_dispatch_set_note_hook(take_note);
    return PyModule_AddFunctions(module, functions);
}
