/* wait.c: blocking waits: without the GIL, open to signals, and frowned upon inside a running loop.
 *
 *   dt__wait: complete? --yes--> 0
 *                |no
 *             policy (only where a loop runs in this thread): allow | warn once a call site | error
 *                |
 *             release the GIL, dt_future_wait; between its slices look(): signals, a cancelled task
 *
 * A signal handler runs between two slices.  asyncio.run's handler for SIGINT cancels the main task
 * and raises nothing, so a wait inside that task also ends when the task was asked to cancel since
 * the wait began: with CancelledError, as an await would.
 *
 * A call site is the file, line and instruction of the innermost frame that is not dtorch's own.
 *
 * I1: look() is the only code here that runs between slices, and it holds the GIL while it does.
 */
#include "python/ext/await.h"

#include <frameobject.h>
#include <math.h>

typedef enum policy { ALLOW, WARN, ERROR, POLICY_COUNT } policy;

static const char *const policy_names[POLICY_COUNT] = {"allow", "warn", "error"};
static policy blocking_policy = WARN;
static PyObject *warned_sites;   /* a set of call sites */
static PyObject *blocking_error; /* dtorch.BlockingError */

/* ---- call sites ---------------------------------------------------------------------------- */

typedef struct site {
    PyObject *file;   /* owned */
    PyObject *module; /* owned, NULL: unknown */
    int line;
    int instruction;
} site;

static bool is_own_module(PyObject *name) {
    if (name == NULL || !PyUnicode_Check(name)) return false;
    const char *text = PyUnicode_AsUTF8(name);
    if (text == NULL) {
        PyErr_Clear();
        return false;
    }
    return strncmp(text, "dtorch", 6) == 0 && (text[6] == 0 || text[6] == '.');
}

static int instruction_of(PyFrameObject *frame) {
#if PY_VERSION_HEX >= 0x030B0000
    return PyFrame_GetLasti(frame);
#else
    PyObject *value = PyObject_GetAttrString((PyObject *)frame, "f_lasti");
    long found = value != NULL ? PyLong_AsLong(value) : -1;
    Py_XDECREF(value);
    PyErr_Clear();
    return (int)found;
#endif
}

/* The `__name__` in a frame's globals; new reference or NULL, no exception. */
static PyObject *module_of(PyFrameObject *frame) {
    PyObject *globals = PyObject_GetAttrString((PyObject *)frame, "f_globals");
    PyObject *name = NULL;
    if (globals != NULL && PyDict_Check(globals))
        name = Py_XNewRef(PyDict_GetItemString(globals, "__name__"));
    Py_XDECREF(globals);
    if (PyErr_Occurred()) PyErr_Clear();
    return name;
}

/* False when no Python code of a user runs in this thread. */
static bool find_site(site *out) {
    PyFrameObject *frame = PyEval_GetFrame();
    Py_XINCREF(frame);
    while (frame != NULL) {
        PyObject *module = module_of(frame);
        if (!is_own_module(module)) {
            PyCodeObject *code = PyFrame_GetCode(frame);
            out->file = Py_NewRef(code->co_filename);
            out->module = module;
            out->line = PyFrame_GetLineNumber(frame);
            out->instruction = instruction_of(frame);
            Py_DECREF(code);
            Py_DECREF(frame);
            return true;
        }
        Py_XDECREF(module);
        PyFrameObject *outer = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = outer;
    }
    return false;
}

/* ---- policy -------------------------------------------------------------------------------- */

/* 0, or -1: the warning was turned into an exception. */
static int warn_once(const char *what) {
    site at;
    if (!find_site(&at)) return 0;
    int result = -1;
    PyObject *message = NULL;
    PyObject *key = Py_BuildValue("(Oii)", at.file, at.line, at.instruction);
    int known = key != NULL ? PySet_Contains(warned_sites, key) : -1;
    if (known != 0) {
        result = known > 0 ? 0 : -1;
        goto out;
    }
    message = PyUnicode_FromFormat(
        "%s waits for a tensor that is not computed yet, and stops the running event loop until it "
        "is: await the tensor first. (Said once for each place; see dtorch.set_blocking_policy.)",
        what);
    if (message == NULL) goto out;
    result = PyErr_WarnExplicitObject(dt_state->blocking_warning, message, at.file, at.line,
                                      at.module, NULL);
    if (result == 0) result = PySet_Add(warned_sites, key);
out:
    Py_XDECREF(message);
    Py_XDECREF(key);
    Py_DECREF(at.file);
    Py_XDECREF(at.module);
    return result;
}

static int apply_policy(const char *what) {
    if (blocking_policy == ALLOW) return 0;
    if (blocking_policy == WARN) return warn_once(what);
    PyErr_Format(
        blocking_error,
        "%s would wait for a tensor that is not computed yet, inside a running event loop: "
        "await the tensor first",
        what);
    return -1;
}

static PyObject *set_policy(PyObject *module, PyObject *name) {
    (void)module;
    for (int i = 0; PyUnicode_Check(name) && i < POLICY_COUNT; i++) {
        if (PyUnicode_CompareWithASCIIString(name, policy_names[i]) != 0) continue;
        PyObject *before = PyUnicode_FromString(policy_names[blocking_policy]);
        if (before != NULL) blocking_policy = (policy)i;
        return before;
    }
    PyErr_Format(PyExc_ValueError, "policy must be 'allow', 'warn' or 'error', not %R", name);
    return NULL;
}

static PyObject *get_policy(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    return PyUnicode_FromString(policy_names[blocking_policy]);
}

/* ---- waiting ------------------------------------------------------------------------------- */

typedef struct waiting {
    PyThreadState *thread;
    const _Atomic(bool) *stop;
    PyObject *task;  /* the task that waits, NULL: none */
    long cancelling; /* how often it had been asked to cancel when the wait began */
    bool raised;
} waiting;

/* How often the task was asked to cancel; 3.10 only knows whether. No exception. */
static long cancel_requests(PyObject *task) {
    long count = 0;
    PyObject *value = PyObject_CallMethod(task, "cancelling", NULL);
    if (value == NULL) {
        PyErr_Clear();
        value = PyObject_GetAttrString(task, "_must_cancel");
        count = value == Py_True;
    } else {
        count = PyLong_AsLong(value);
    }
    Py_XDECREF(value);
    PyErr_Clear();
    return count;
}

/* Called between slices, without the GIL; nonzero ends the wait. */
static int look(void *context) {
    waiting *w = context;
    if (w->stop != NULL && atomic_load(w->stop)) return 1;
    PyEval_RestoreThread(w->thread);
    w->raised = PyErr_CheckSignals() < 0;
    if (!w->raised && w->task != NULL && cancel_requests(w->task) > w->cancelling) {
        PyErr_SetNone(dt_state->cancelled_error);
        w->raised = true;
    }
    w->thread = PyEval_SaveThread();
    return w->raised;
}

/* The current task of the running loop; new reference, NULL: none. No exception. */
static PyObject *current_task(PyObject *loop) {
    PyObject *function = dt__asyncio_get("current_task");
    PyObject *task = function != NULL ? PyObject_CallOneArg(function, loop) : NULL;
    Py_XDECREF(function);
    if (task == NULL) PyErr_Clear();
    if (task == Py_None) Py_CLEAR(task);
    return task;
}

static int64_t timeout_ns_of(double seconds) {
    if (seconds < 0) return -1;
    return seconds >= 9e9 ? INT64_MAX / 2 : (int64_t)ceil(seconds * 1e9);
}

int dt__wait(dt_future *future, double timeout_s, const char *what, const _Atomic(bool) *stop) {
    if (future == NULL || dt_future_get_state(future) != DT_FUTURE_PENDING) return 0;
    PyObject *loop;
    int running = dt__running_loop(&loop);
    if (running < 0) return -1;
    waiting w = {.stop = stop};
    if (running && timeout_s != 0) {
        if (apply_policy(what) < 0) {
            Py_DECREF(loop);
            return -1;
        }
        w.task = current_task(loop);
        if (w.task != NULL) w.cancelling = cancel_requests(w.task);
    }
    Py_XDECREF(loop);
    dt_future_retain(future); /* the owner may let go of it while we have no GIL */
    w.thread = PyEval_SaveThread();
    dt_status status = dt_future_wait(future, timeout_ns_of(timeout_s), look, &w);
    PyEval_RestoreThread(w.thread);
    bool complete = dt_future_get_state(future) != DT_FUTURE_PENDING;
    dt_future_release(future);
    Py_XDECREF(w.task);
    if (w.raised) return -1;
    if (status < 0) {
        dt_py_raise(status);
        return -1;
    }
    dt_graveyard_drain();
    if (complete || (stop != NULL && atomic_load(stop))) return 0;
    return 1;
}

int dt_py_wait(dt_future *future, double timeout_s, const char *what) {
    return dt__wait(future, timeout_s, what, NULL);
}

int dt_py_tensor_wait(dt_tensor *t, const char *what) {
    dt_future *future = NULL;
    dt_future_state state = dt_tensor_state(t, &future);
    if (state == DT_FUTURE_READY) return 0;
    if (state != DT_FUTURE_PENDING) {
        dt__raise_failure(dt__tensor_failure(t, future));
        return -1;
    }
    dt_future_retain(future);
    int result = dt_py_wait(future, -1, what);
    if (result == 0 && dt_future_get_state(future) != DT_FUTURE_READY) {
        dt__raise_failure(future);
        result = -1;
    }
    dt_future_release(future);
    return result;
}

/* How the core waits in a client's thread when an op touches memory that others can see. */
static dt_status wait_hook(dt_future *future) {
    if (dt_py_wait(future, -1, "An operation on memory shared with others") != 0)
        return DT_E_PYTHON;
    const dt_error *error = dt_future_error(future);
    return error != NULL ? dt_error_restore(error) : DT_OK;
}

/* ---- set-up -------------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"set_blocking_policy", set_policy, METH_O,
     "set_blocking_policy(policy)\n--\n\n"
     "What happens when item(), to_torch(), print() and the like have to wait inside a running\n"
     "event loop: 'allow' waits, 'warn' (the default) also warns with dtorch.BlockingWarning, "
     "once\n"
     "for each place in the code, 'error' raises dtorch.BlockingError. Returns the former policy."},
    {"get_blocking_policy", get_policy, METH_NOARGS,
     "get_blocking_policy()\n--\n\n'allow', 'warn' or 'error'."},
    {NULL, NULL, 0, NULL},
};

int dt_py_wait_init(PyObject *module) {
    warned_sites = PySet_New(NULL);
    if (warned_sites == NULL) return -1;
    blocking_error = PyErr_NewExceptionWithDoc("dtorch.BlockingError",
                                               "A call would have blocked the event loop's thread.",
                                               PyExc_RuntimeError, NULL);
    if (blocking_error == NULL) return -1;
    if (PyModule_AddObjectRef(module, "BlockingError", blocking_error) < 0) return -1;
    dt_dispatch_set_wait_hook(wait_hook);
    return PyModule_AddFunctions(module, functions);
}
