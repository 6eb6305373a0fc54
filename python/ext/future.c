/* future.c: TensorFuture, what to_torch_async() and save_safetensors() return.
 *
 * It resolves to a value once a set of dt_futures is complete.  It belongs to no loop: any number
 * of loops and threads may await it, block on it or hang callbacks on it.  Hence it has no
 * _asyncio_future_blocking; asyncio's ensure_future (gather, wait_for, shield, TaskGroup through a
 * coroutine) treats it as an awaitable, and asyncio.wait of 3.11 and later as what it duck-types:
 * done, cancelled, exception, add_done_callback, remove_done_callback.
 *
 *   pending --all futures ready--> done --first result()--> value made, kept
 *      |--one failed-------------> done, a new exception object for each who asks
 *      '--cancel()---------------> cancelled: this object; and of the computation what has not
 *                                  started and nobody else waits for, until somebody asks again
 *
 * to_torch_async() resolves to the value as of its call, whatever is written later: it enqueues a
 * copy in program order, and torch gets that copy, which nobody else can reach.
 *
 * A callback runs in the loop in which it was added, through call_soon with its context; one added
 * where no loop runs is called by whichever thread next empties the graveyard (the main thread,
 * through Py_AddPendingCall, at the latest).
 *
 * I1: nodes are in the list while they may still have to be fired by cancel().
 * I2: a node of a callback owns the TensorFuture, one of an await is owned by an iterator that
 * does.
 */
#include "python/ext/await.h"

#include <structmember.h>
#include <time.h>

#include "python/ext/core.h"
#include "runtime/assert.h"

typedef struct tensor_future {
    PyObject_HEAD dt_future **futures; /* PyMem memory; the entries are owned */
    Py_ssize_t count;
    dt_tensor *snapshot; /* until value is made of it */
    PyObject *value;
    _Atomic(bool) cancelled;
    bool wants;               /* it counts as waiting for its futures */
    PyObject *cancel_message; /* cancel()'s msg; NULL: none. Set before cancelled is. */
    dt_node_list nodes;
    PyObject *weakrefs;
} tensor_future;

static tensor_future *as_future(PyObject *self) { return (tensor_future *)self; }

/* ---- state --------------------------------------------------------------------------------- */

static dt_future_state state_of(PyObject *object, dt_future **failed) {
    tensor_future *self = as_future(object);
    if (atomic_load(&self->cancelled)) return DT_FUTURE_CANCELLED;
    return dt__futures_state(self->futures, self->count, failed);
}

bool dt__future_is_done(PyObject *self) {
    dt_future *failed;
    return state_of(self, &failed) != DT_FUTURE_PENDING;
}

static void raise_invalid_state(const char *text) {
    PyObject *type = dt__asyncio_get("InvalidStateError");
    if (type == NULL) return;
    PyErr_SetString(type, text);
    Py_DECREF(type);
}

/* A new CancelledError for each who asks, with the message that cancel() was given. */
static void raise_cancelled(tensor_future *self) {
    if (self->cancel_message == NULL) {
        PyErr_SetNone(dt_state->cancelled_error);
        return;
    }
    PyObject *error = PyObject_CallOneArg(dt_state->cancelled_error, self->cancel_message);
    if (error == NULL) return;
    PyErr_SetObject(dt_state->cancelled_error, error);
    Py_DECREF(error);
}

/* The value, made at the first call; new reference. */
static PyObject *value_of(tensor_future *self) {
    if (self->value == NULL) {
        dt_tensor *snapshot = self->snapshot;
        DT_ASSERT(snapshot != NULL);
        dt_tensor_retain(snapshot);
        (void)dt_tensor_state(snapshot, NULL); /* it is ready: now its size is known */
        PyObject *value = dt_py_tensor_to_torch_ready(snapshot);
        dt_tensor_release(snapshot);
        if (value == NULL) return NULL;
        if (self->value == NULL) { /* another thread may have come first */
            self->value = value;
            self->snapshot = NULL;
            dt_tensor_release(snapshot);
        } else {
            Py_DECREF(value);
        }
    }
    return Py_NewRef(self->value);
}

PyObject *dt__future_result(PyObject *self) {
    dt_future *failed = NULL;
    switch (state_of(self, &failed)) {
    case DT_FUTURE_READY:
        return value_of(as_future(self));
    case DT_FUTURE_PENDING:
        raise_invalid_state("Result is not set.");
        return NULL;
    case DT_FUTURE_FAILED:
        dt__raise_failure(failed);
        return NULL;
    case DT_FUTURE_CANCELLED:
        if (atomic_load(&as_future(self)->cancelled))
            raise_cancelled(as_future(self));
        else
            dt__raise_failure(failed);
        return NULL;
    }
    return NULL;
}

static PyObject *future_result(PyObject *self, PyObject *ignored) {
    (void)ignored;
    return dt__future_result(self);
}

static PyObject *future_exception(PyObject *self, PyObject *ignored) {
    (void)ignored;
    dt_future *failed = NULL;
    switch (state_of(self, &failed)) {
    case DT_FUTURE_READY:
        Py_RETURN_NONE;
    case DT_FUTURE_PENDING:
        raise_invalid_state("Exception is not set.");
        break;
    case DT_FUTURE_FAILED:
        return dt_py_error_object(dt_future_error(failed));
    case DT_FUTURE_CANCELLED:
        return dt__future_result(self); /* raises it */
    }
    return NULL;
}

static PyObject *future_done(PyObject *self, PyObject *ignored) {
    (void)ignored;
    return PyBool_FromLong(dt__future_is_done(self));
}

static PyObject *future_cancelled(PyObject *self, PyObject *ignored) {
    (void)ignored;
    dt_future *failed;
    return PyBool_FromLong(state_of(self, &failed) == DT_FUTURE_CANCELLED);
}

/* Nobody can get the result any more through this object. */
static void give_up(tensor_future *self) {
    if (!self->wants) return;
    self->wants = false;
    for (Py_ssize_t i = 0; i < self->count; i++) dt_wait_give_up(self->futures[i]);
}

static PyObject *future_cancel(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"msg", NULL};
    PyObject *message = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:cancel", names, &message)) return NULL;
    if (dt__future_is_done(object)) Py_RETURN_FALSE;
    tensor_future *self = as_future(object);
    if (message != Py_None) self->cancel_message = Py_XNewRef(message);
    atomic_store(&self->cancelled, true);
    give_up(self);
    while (self->nodes.first != NULL) {
        dt_node *node = dt__node_retain(self->nodes.first);
        dt__node_unlist(node);
        dt__node_fire(node, 0);
        dt__node_release(node);
    }
    Py_RETURN_TRUE;
}

static PyObject *future_repr(PyObject *self) {
    dt_future *failed;
    static const char *const words[] = {
        [DT_FUTURE_PENDING] = "pending",
        [DT_FUTURE_READY] = "finished",
        [DT_FUTURE_FAILED] = "failed",
        [DT_FUTURE_CANCELLED] = "cancelled",
    };
    return PyUnicode_FromFormat("<TensorFuture %s>", words[state_of(self, &failed)]);
}

/* ---- blocking ------------------------------------------------------------------------------ */

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* None: -1. 0 or -1 with an exception. */
static int parse_timeout(PyObject *timeout, double *seconds) {
    *seconds = -1;
    if (timeout == NULL || timeout == Py_None) return 0;
    double value = PyFloat_AsDouble(timeout);
    if (value == -1 && PyErr_Occurred()) return -1;
    if (value != value) {
        PyErr_SetString(PyExc_ValueError, "timeout must not be NaN");
        return -1;
    }
    *seconds = value < 0 ? 0 : value;
    return 0;
}

static PyObject *future_get(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"timeout", NULL};
    PyObject *timeout = NULL;
    double seconds;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:get", names, &timeout)) return NULL;
    if (parse_timeout(timeout, &seconds) < 0) return NULL;
    tensor_future *self = as_future(object);
    double end = seconds < 0 ? 0 : now_s() + seconds;
    /* In turn: a failed one ends the wait as soon as it is reached, at the latest with the last. */
    for (Py_ssize_t i = 0; i < self->count && !dt__future_is_done(object); i++) {
        double left = seconds < 0 ? -1 : end - now_s();
        if (seconds >= 0 && left < 0) left = 0;
        int result = dt__wait(self->futures[i], left, "TensorFuture.get()", &self->cancelled);
        if (result < 0) return NULL;
        if (result > 0 && !dt__future_is_done(object)) {
            PyErr_Format(PyExc_TimeoutError, "TensorFuture.get(): not done after %R seconds",
                         timeout);
            return NULL;
        }
    }
    return dt__future_result(object);
}

/* ---- callbacks ----------------------------------------------------------------------------- */

/* function(self) in its context, now, where no loop can take it. */
static void call_here(PyObject *function, PyObject *self, PyObject *context) {
    PyObject *result = NULL;
    if (PyContext_Enter(context) == 0) {
        result = PyObject_CallOneArg(function, self);
        if (result == NULL) PyErr_WriteUnraisable(function);
        if (PyContext_Exit(context) < 0) PyErr_WriteUnraisable(function);
    } else {
        PyErr_WriteUnraisable(function);
    }
    Py_XDECREF(result);
}

/* loop.call_soon(function, self, context=context). */
static int call_soon(PyObject *loop, PyObject *function, PyObject *self, PyObject *context) {
    PyObject *names = PyTuple_Pack(1, dt__names.context);
    if (names == NULL) return -1;
    PyObject *args[] = {loop, function, self, context};
    PyObject *handle = PyObject_VectorcallMethod(dt__names.call_soon, args, 3, names);
    Py_DECREF(names);
    Py_XDECREF(handle);
    return handle == NULL ? -1 : 0;
}

/* Takes the node's references: what they lead to may look at the node's list again. */
static void deliver_callback(dt_node *node) {
    PyObject *function = node->target, *self = node->owner, *context = node->context;
    if (function == NULL) return;
    node->target = node->owner = node->context = NULL;
    dt__node_unlist(node);
    PyObject *loop = NULL;
    if (node->bridge != NULL && dt__running_loop(&loop) < 0) PyErr_Clear();
    if (loop == NULL)
        call_here(function, self, context);
    else if (call_soon(loop, function, self, context) < 0)
        PyErr_WriteUnraisable(function);
    Py_XDECREF(loop);
    Py_DECREF(function);
    Py_DECREF(context);
    Py_DECREF(self);
}

dt_node *dt__future_watch(PyObject *object, dt_bridge *bridge, void (*deliver)(dt_node *node),
                          PyObject *target) {
    tensor_future *self = as_future(object);
    if (dt__future_is_done(object)) return NULL;
    dt_node *node = dt__node_new(bridge, self->count, deliver);
    if (node == NULL) return NULL;
    node->target = Py_NewRef(target);
    dt__node_enlist(node, &self->nodes);
    if (dt__node_arm(node, self->futures)) return node;
    dt__node_detach(node);
    return NULL;
}

/* 1: it will be called. 0: self is done. -1: exception. */
static int watch_callback(PyObject *self, PyObject *loop, PyObject *function, PyObject *context) {
    dt_bridge *bridge = NULL;
    if (loop != NULL && (bridge = dt__bridge_for(loop)) == NULL) return -1;
    dt_node *node = dt__future_watch(self, bridge, deliver_callback, function);
    if (bridge != NULL) dt__bridge_release(bridge);
    if (node == NULL) return PyErr_Occurred() ? -1 : 0;
    /* Delivery needs the GIL, so these are in time. */
    node->owner = Py_NewRef(self);
    node->context = Py_NewRef(context);
    dt__node_release(node); /* its futures and later its queue keep it */
    return 1;
}

static PyObject *future_add_done_callback(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"fn", "context", NULL};
    PyObject *function, *context = NULL, *loop = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$O:add_done_callback", names, &function,
                                     &context))
        return NULL;
    if (context == Py_None) context = NULL;
    if (context != NULL && !PyContext_CheckExact(context)) {
        PyErr_Format(PyExc_TypeError, "context must be a contextvars.Context, not %.200s",
                     Py_TYPE(context)->tp_name);
        return NULL;
    }
    context = context != NULL ? Py_NewRef(context) : PyContext_CopyCurrent();
    if (context == NULL) return NULL;
    int result = -1;
    if (dt__running_loop(&loop) >= 0) {
        result = dt__future_is_done(self) ? 0 : watch_callback(self, loop, function, context);
        if (result == 0 && loop != NULL)
            result = call_soon(loop, function, self, context);
        else if (result == 0)
            call_here(function, self, context);
    }
    Py_XDECREF(loop);
    Py_DECREF(context);
    if (result < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *future_remove_done_callback(PyObject *object, PyObject *function) {
    tensor_future *self = as_future(object);
    Py_ssize_t removed = 0;
    dt_node *node = self->nodes.first;
    while (node != NULL) {
        int same = 0;
        dt__node_retain(node); /* the comparison may run any code */
        if (node->deliver == deliver_callback && node->target != NULL) {
            PyObject *target = Py_NewRef(node->target);
            same = PyObject_RichCompareBool(target, function, Py_EQ);
            Py_DECREF(target);
        }
        bool listed = node->list != NULL;
        dt_node *next = listed ? node->list_next : self->nodes.first;
        if (same > 0 && listed) {
            removed++;
            dt__node_detach(node);    /* with the reference just taken */
            next = self->nodes.first; /* dropping the callback may have run any code too */
        } else {
            dt__node_release(node);
        }
        if (same < 0) return NULL;
        node = next;
    }
    return PyLong_FromSsize_t(removed);
}

/* ---- life ---------------------------------------------------------------------------------- */

static void free_futures(dt_future **futures, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) dt_future_release(futures[i]);
    PyMem_Free(futures);
}

PyObject *dt__future_new(dt_future **futures, Py_ssize_t count, dt_tensor *snapshot,
                         PyObject *value) {
    PyTypeObject *type = dt_state->future_type;
    tensor_future *self = (tensor_future *)type->tp_alloc(type, 0);
    if (self == NULL) {
        free_futures(futures, count);
        if (snapshot != NULL) dt_tensor_release(snapshot);
        Py_XDECREF(value);
        return NULL;
    }
    self->futures = futures;
    self->count = count;
    self->snapshot = snapshot;
    self->value = value;
    self->nodes.end = &self->nodes.first;
    self->wants = true; /* to be asked for a value is to be waited for */
    for (Py_ssize_t i = 0; i < count; i++) dt_wait_begin(futures[i], false);
    return (PyObject *)self;
}

static int future_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(as_future(self)->value);
    Py_VISIT(as_future(self)->cancel_message);
    return 0;
}

static int future_clear(PyObject *self) {
    Py_CLEAR(as_future(self)->value);
    Py_CLEAR(as_future(self)->cancel_message);
    return 0;
}

static void future_dealloc(PyObject *object) {
    tensor_future *self = as_future(object);
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    DT_ASSERT(self->nodes.first == NULL);
    if (self->weakrefs != NULL) PyObject_ClearWeakRefs(object);
    give_up(self);
    free_futures(self->futures, self->count);
    if (self->snapshot != NULL) dt_tensor_drop_handle(self->snapshot);
    Py_CLEAR(self->value);
    Py_CLEAR(self->cancel_message);
    type->tp_free(object);
    Py_DECREF(type);
}

/* ---- Tensor.to_torch_async ------------------------------------------------------------------- */

/* A private copy, in program order. Its size may be as unknown as that of t: nobody waits here. */
static dt_tensor *snapshot_of(dt_tensor *t) {
    if (!dt_tensor_is_deferred(t)) return dt_py_tensor_clone(t, (dt_dtype)t->dtype);
    dt_op_call call;
    dt_op_call_init(&call, DT_OP_clone__deferred);
    call.nargs = 1;
    call.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = t};
    dt_status status = dt_py_dispatch(&call);
    if (status == DT_OK) return call.outs[0];
    (void)dt_py_raise(status);
    return NULL;
}

PyObject *dt_py_to_torch_async(PyObject *self, PyObject *ignored) {
    (void)ignored;
    dt_graveyard_drain();
    dt_tensor *t =
        dt_py_tensor_local(((dt_py_tensor *)self)->t); /* the copy may let go of the GIL */
    if (t == NULL) return NULL;
    dt_tensor *snapshot = snapshot_of(t);
    dt_tensor_release(t);
    if (snapshot == NULL) return NULL;
    dt_future *future = NULL;
    dt_future_state state = dt_tensor_state(snapshot, &future);
    if (state == DT_FUTURE_READY) return dt__future_new(NULL, 0, snapshot, NULL);
    if (state != DT_FUTURE_PENDING) future = dt__tensor_failure(snapshot, future);
    DT_ASSERT(future != NULL);
    dt_future **futures = PyMem_New(dt_future *, 1);
    if (futures == NULL) {
        dt_tensor_release(snapshot);
        return PyErr_NoMemory();
    }
    futures[0] = dt_future_retain(future);
    return dt__future_new(futures, 1, snapshot, NULL);
}

/* ---- dtorch.drain ---------------------------------------------------------------------------- */

static PyObject *drain_future(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    dt_graveyard_drain();
    dt_future *fence;
    dt_status status = dt_runtime_fence(&fence);
    if (status != DT_OK) return dt_py_raise(status);
    if (fence == NULL) return dt__future_new(NULL, 0, NULL, Py_NewRef(Py_True));
    dt_future **futures = PyMem_New(dt_future *, 1);
    if (futures == NULL) {
        dt_future_release(fence);
        return PyErr_NoMemory();
    }
    futures[0] = fence;
    return dt__future_new(futures, 1, NULL, Py_NewRef(Py_True));
}

/* ---- set-up ---------------------------------------------------------------------------------- */

#define METHOD_KEYWORDS(f) (PyCFunction)(void (*)(void))(f), METH_VARARGS | METH_KEYWORDS

static PyMethodDef methods[] = {
    {"get", METHOD_KEYWORDS(future_get),
     "get(timeout=None)\n--\n\n"
     "Blocks until done and gives the result. Raises TimeoutError after `timeout` seconds."},
    {"result", future_result, METH_NOARGS,
     "result()\n--\n\n"
     "The result, without waiting: asyncio.InvalidStateError while it is not there."},
    {"exception", future_exception, METH_NOARGS,
     "exception()\n--\n\nThe error of a failed computation as a new object, or None."},
    {"done", future_done, METH_NOARGS,
     "done()\n--\n\nWhether it has a result, has failed or was cancelled."},
    {"is_ready", future_done, METH_NOARGS,
     "is_ready()\n--\n\nThe same as done(): get() would not wait."},
    {"cancel", METHOD_KEYWORDS(future_cancel),
     "cancel(msg=None)\n--\n\n"
     "Ends the waiting for this object with CancelledError(msg); False when it is done already.\n"
     "Others that wait for the same tensor are not touched."},
    {"cancelled", future_cancelled, METH_NOARGS, "cancelled()\n--\n\nWhether it was cancelled."},
    {"add_done_callback", METHOD_KEYWORDS(future_add_done_callback),
     "add_done_callback(fn, *, context=None)\n--\n\n"
     "Calls fn(self) when done: in the running loop, through call_soon with `context` (default: a\n"
     "copy of the current one); where no loop runs, at once if it is done, else in some thread\n"
     "that uses dtorch, at the latest the main thread."},
    {"remove_done_callback", future_remove_done_callback, METH_O,
     "remove_done_callback(fn)\n--\n\nRemoves each occurrence of fn; returns how many."},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef functions[] = {
    {"_drain", drain_future, METH_NOARGS,
     "_drain() -> TensorFuture\n\n"
     "True once everything that was submitted before the call has ended."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(tensor_future, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, future_dealloc},
    {Py_tp_traverse, future_traverse},
    {Py_tp_clear, future_clear},
    {Py_tp_repr, future_repr},
    {Py_am_await, dt__await_new_for_future},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_doc, "The outcome of to_torch_async() or save_safetensors(): awaitable in any loop."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "dtorch.TensorFuture",
    .basicsize = sizeof(tensor_future),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

int dt_py_future_init(PyObject *module) {
    if (dt__names_init() < 0) return -1;
    dt_state->future_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    if (dt_state->future_type == NULL || PyModule_AddFunctions(module, functions) < 0) return -1;
    return PyModule_AddObjectRef(module, "TensorFuture", (PyObject *)dt_state->future_type);
}
