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
 * I1: look() is the only code here that runs between slices, and it holds the GIL while it does.
 */
#include "python/ext/await.h"

#include <math.h>

#include "python/ext/core.h"
#include "runtime/assert.h"
#include "runtime/dist.h"
#include "runtime/trace.h"

typedef enum policy { ALLOW, WARN, ERROR, POLICY_COUNT } policy;

static const char *const policy_names[POLICY_COUNT] = {"allow", "warn", "error"};
static policy blocking_policy = WARN;
static PyObject *warned_sites;   /* a set of call sites */
static PyObject *blocking_error; /* dtorch.BlockingError */

/* ---- policy -------------------------------------------------------------------------------- */

/* A call site is known by file, line and instruction: code that is compiled again is no news. */
static PyObject *site_key(const dt_py_caller *at, int line) {
    return Py_BuildValue("(Oii)", at->code->co_filename, line, at->offset);
}

/* 0, or -1: the warning was turned into an exception. */
static int warn_once(const char *what) {
    dt_py_caller at;
    if (!dt_py_caller_find(&at)) return 0;
    int line = PyCode_Addr2Line(at.code, at.offset), result = -1;
    PyObject *message = NULL;
    PyObject *key = site_key(&at, line);
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
    PyObject *module = PyDict_GetItemString(at.globals, "__name__"); /* borrowed, NULL: none */
    result = PyErr_WarnExplicitObject(dt_state->blocking_warning, message, at.code->co_filename,
                                      line, module, NULL);
    if (result == 0) result = PySet_Add(warned_sites, key);
out:
    Py_XDECREF(message);
    Py_XDECREF(key);
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

PyObject *dt__current_task(PyObject *loop) {
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
        w.task = dt__current_task(loop);
        if (w.task != NULL) w.cancelling = cancel_requests(w.task);
    }
    Py_XDECREF(loop);
    dt_future_retain(future); /* the owner may let go of it while we have no GIL */
    dt_trace_record r = {.kind = DT_TRACE_WAIT};
    if (DT_UNLIKELY(dt_trace_is_on())) {
        dt_py_trace_thread();
        r.name = dt_py_trace_text(what);
        r.start_ns = dt_trace_now_ns();
    }
    dt_wait_begin(future, timeout_s < 0);
    dt_sched *sched = timeout_s < 0 ? dt_wait_block_begin() : NULL; /* who helps may be late */
    w.thread = PyEval_SaveThread();
    dt_status status = dt_wait_block(sched, future, timeout_ns_of(timeout_s), look, &w);
    PyEval_RestoreThread(w.thread);
    dt_wait_end(future);
    bool complete = dt_future_get_state(future) != DT_FUTURE_PENDING;
    if (DT_UNLIKELY(r.start_ns != 0)) {
        r.end_ns = dt_trace_now_ns();
        if (complete) r.call = dt_future_call(future);
        dt_trace_append(&r);
    }
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

static int wait_for_parts(dt_tensor *t, const char *what) {
    dt_dist *d = dt_dist_of(t);
    for (int k = 0; k < d->mesh->size; k++)
        if (dt_py_tensor_wait(d->parts[k], what) < 0) return -1;
    if (dt_tensor_is_deferred(t)) dt_dist_settle(t);
    return 0;
}

int dt_py_tensor_wait(dt_tensor *t, const char *what) {
    if (DT_UNLIKELY(dt_tensor_is_dist(t))) return wait_for_parts(t, what);
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
    /* Not state READY for sure: another thread may have submitted a write meanwhile. */
    if (result == 0 && dt_tensor_is_deferred(t)) dt_tensor_settle(t);
    return result;
}

/* The handle may be given another tensor while we wait: what it holds then is looked at. */
dt_tensor *dt_py_tensor_settled(PyObject *o, const char *what) {
    for (;;) {
        dt_tensor *t = dt_py_tensor_get(o);
        if (!dt_tensor_is_deferred(t)) return t;
        dt_tensor_retain(t);
        int status = dt_py_tensor_wait(t, what);
        bool known = !dt_tensor_is_deferred(t);
        dt_tensor_release(t);
        if (status < 0) return NULL;
        DT_ASSERT(known);
    }
}

/* How the core waits in a client's thread when an op touches memory that others can see. */
static dt_status wait_hook(dt_future *future) {
    if (dt_py_wait(future, -1, "An operation on memory shared with others") != 0)
        return DT_E_PYTHON;
    if (dt_future_error(future) == NULL) return DT_OK;
    dt__raise_failure(future);
    return DT_E_PYTHON;
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
