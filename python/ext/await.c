/* await.c: what `await` runs on: the iterator behind Tensor, TensorFuture and gather.
 *
 *   FRESH --(already complete)----------------------------------------> DONE
 *     |--(complete, but the loop has waited for long)--> YIELDED -send-> DONE     (turn.c)
 *     '--(pending: loop.create_future(), a node)--> SUSPENDED --send--> DONE
 *                                                       '--dealloc, throw, close: give_up
 *
 * An await of a tensor binds to the tensor's last writer when the iterator is made.  The node owns
 * the loop's future until it is delivered: a task that waits is otherwise held by nothing but the
 * cycle that it forms with that future, and a garbage collection would end it.  The value, or a new
 * exception object for each awaiter, is taken after the wake-up; the loop's future carries None.
 *
 * A ready tensor costs one object of a free list.  It is tracked by the collector only once it
 * waits.
 *
 * I1: am_send and tp_iternext do the same (3.11 calls the one, 3.12 and later the other).
 * I2: an iterator that is not SUSPENDED has neither node nor loop future.
 */
#include "python/ext/await.h"

#include "runtime/assert.h"
#include "runtime/dist.h"

#define FREE_ITERATORS_MAX 128

typedef enum stage { FRESH, YIELDED, SUSPENDED, DONE } stage;
typedef enum kind { OF_TENSOR, OF_FUTURE, OF_GATHER } kind;

typedef struct iterator {
    PyObject_HEAD PyObject *owner; /* Tensor, TensorFuture, or gather; NULL once it is DONE */
    uint8_t stage;
    uint8_t kind;
    bool tracked;
    dt_future *one;      /* OF_TENSOR: what futures points at, NULL: the tensor is ready */
    dt_future **futures; /* &one, or PyMem memory of OF_GATHER; the entries are owned */
    Py_ssize_t count;
    dt_node *node;
    PyObject *loop_future;
} iterator;

typedef struct gather {
    PyObject_HEAD PyObject *tensors; /* a tuple */
} gather;

static iterator *free_iterators[FREE_ITERATORS_MAX];
static int free_count;
static PyTypeObject *gather_type;

dt_names dt__names;

int dt__names_init(void) {
    static const struct {
        PyObject **place;
        const char *text;
    } names[] = {
        {&dt__names.create_future, "create_future"},
        {&dt__names.set_result, "set_result"},
        {&dt__names.blocking, "_asyncio_future_blocking"},
        {&dt__names.call_soon, "call_soon"},
        {&dt__names.add_reader, "add_reader"},
        {&dt__names.context, "context"},
        {&dt__names.done, "done"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (*names[i].place != NULL) continue;
        *names[i].place = PyUnicode_InternFromString(names[i].text);
        if (*names[i].place == NULL) return -1;
    }
    return 0;
}

PyObject *dt__asyncio_get(const char *name) {
    PyObject *asyncio = PyImport_ImportModule("asyncio");
    PyObject *found = asyncio != NULL ? PyObject_GetAttrString(asyncio, name) : NULL;
    Py_XDECREF(asyncio);
    return found;
}

/* ---- where futures stand ------------------------------------------------------------------- */

dt_future_state dt__futures_state(dt_future *const *futures, Py_ssize_t count, dt_future **failed) {
    dt_future_state all = DT_FUTURE_READY;
    for (Py_ssize_t i = 0; i < count; i++) {
        dt_future_state state = dt_future_get_state(futures[i]);
        if (state == DT_FUTURE_PENDING) {
            all = DT_FUTURE_PENDING;
        } else if (state != DT_FUTURE_READY) {
            *failed = futures[i];
            return state;
        }
    }
    return all;
}

void dt__raise_failure(const dt_future *future) {
    const dt_error *error = future != NULL ? dt_future_error(future) : NULL;
    if (error == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the computation of this tensor failed");
        return;
    }
    PyObject *exception = dt_py_error_object(error);
    if (exception == NULL) return;
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_DECREF(exception);
}

dt_future *dt__tensor_failure(dt_tensor *t, dt_future *told) {
    return told != NULL ? told : t->storage->last_write;
}

/* ---- the iterator -------------------------------------------------------------------------- */

static iterator *iterator_new(PyObject *owner, kind kind) {
    iterator *self;
    if (free_count > 0) {
        self = free_iterators[--free_count];
        PyObject_Init((PyObject *)self, dt_state->await_type);
    } else {
        self = PyObject_GC_New(iterator, dt_state->await_type);
        if (self == NULL) return NULL;
    }
    self->owner = Py_NewRef(owner);
    self->stage = FRESH;
    self->kind = (uint8_t)kind;
    self->tracked = false;
    self->one = NULL;
    self->futures = NULL;
    self->count = 0;
    self->node = NULL;
    self->loop_future = NULL;
    return self;
}

/* Gives up waiting; the node may live on in its futures' lists, empty. */
static void unhook(iterator *self) {
    dt_node *node = self->node;
    PyObject *loop_future = self->loop_future;
    self->node = NULL;
    self->loop_future = NULL;
    if (node != NULL) dt__node_detach(node);
    Py_XDECREF(loop_future);
}

static void drop_futures(iterator *self) {
    for (Py_ssize_t i = 0; i < self->count; i++) {
        if (self->stage == SUSPENDED) dt_wait_end(self->futures[i]);
        dt_future_release(self->futures[i]);
    }
    if (self->futures != &self->one) PyMem_Free(self->futures);
    self->futures = NULL;
    self->one = NULL;
    self->count = 0;
}

/* Ends the iterator; what it waited for no longer matters to it. */
static void finish(iterator *self) {
    PyObject *owner = self->owner;
    if (self->count > 0 || self->futures != NULL) drop_futures(self);
    self->stage = DONE;
    self->owner = NULL;
    unhook(self);
    Py_XDECREF(owner);
}

/* Ends the iterator before its time: the await was cancelled, or its coroutine is gone. */
static void abandon(iterator *self) {
    if (self->stage == SUSPENDED) {
        for (Py_ssize_t i = 0; i < self->count; i++) {
            dt_wait_give_up(self->futures[i]);
            dt_future_release(self->futures[i]);
        }
        self->count = 0;
    }
    finish(self);
}

static void iterator_dealloc(PyObject *object) {
    iterator *self = (iterator *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->tracked) PyObject_GC_UnTrack(object);
    if (self->stage != DONE) abandon(self);
    if (free_count < FREE_ITERATORS_MAX)
        free_iterators[free_count++] = self;
    else
        PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int iterator_traverse(PyObject *object, visitproc visit, void *arg) {
    iterator *self = (iterator *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->owner);
    Py_VISIT(self->loop_future);
    return 0;
}

static int iterator_clear(PyObject *object) {
    iterator *self = (iterator *)object;
    if (self->stage != DONE) abandon(self);
    return 0;
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* In the loop's thread: ends the wait of one iterator. */
static void deliver_await(dt_node *node) {
    PyObject *loop_future = node->target;
    node->target = NULL;
    if (loop_future == NULL) return;
    /* An awaiter that was cancelled just now has not let go of its node yet. */
    PyObject *done = PyObject_CallMethodNoArgs(loop_future, dt__names.done);
    PyObject *set = NULL;
    if (done == Py_False) {
        set = PyObject_CallMethodOneArg(loop_future, dt__names.set_result, Py_None);
        if (set == NULL) PyErr_WriteUnraisable(loop_future);
    } else if (done == NULL) {
        PyErr_WriteUnraisable(loop_future);
    }
    Py_XDECREF(set);
    Py_XDECREF(done);
    Py_DECREF(loop_future);
}

/* The node for what self waits for, armed; NULL without an exception: nothing to wait for. */
static dt_node *hook(iterator *self, dt_bridge *bridge, PyObject *loop_future) {
    dt_node *node;
    if (self->kind == OF_FUTURE) {
        node = dt__future_watch(self->owner, bridge, deliver_await, loop_future);
        return node;
    }
    node = dt__node_new(bridge, self->count, deliver_await);
    if (node == NULL) return NULL;
    /* Set before arming: it may be delivered by another thread as soon as the GIL is let go, but
     * not earlier, so that the order of these two lines is for the reader only. */
    node->target = Py_NewRef(loop_future);
    if (dt__node_arm(node, self->futures)) return node;
    dt__node_detach(node);
    return NULL;
}

/* The iterator outlives this call, in a coroutine that does not run. */
static void stay(iterator *self, stage stage) {
    self->stage = (uint8_t)stage;
    if (self->tracked) return;
    PyObject_GC_Track((PyObject *)self);
    self->tracked = true;
}

/* 1: suspended, *yielded is what to hand to the task. 0: nothing to wait for. -1: exception. */
static int suspend(iterator *self, PyObject **yielded) {
    PyObject *loop;
    int running = dt__running_loop(&loop);
    if (running < 0) return -1;
    if (running == 0) {
        PyErr_SetString(PyExc_RuntimeError,
                        "no running event loop: a tensor that is not computed yet can be awaited "
                        "in asyncio only; elsewhere use .item(), .numpy(), .to_torch() or .get()");
        return -1;
    }
    int result = -1;
    PyObject *loop_future = NULL;
    dt_bridge *bridge = dt__bridge_for(loop);
    if (bridge == NULL) goto out;
    loop_future = PyObject_CallMethodNoArgs(loop, dt__names.create_future);
    if (loop_future == NULL) goto out;
    if (PyObject_SetAttr(loop_future, dt__names.blocking, Py_True) < 0) goto out;
    self->node = hook(self, bridge, loop_future);
    if (self->node == NULL) {
        result = PyErr_Occurred() ? -1 : 0;
        goto out;
    }
    self->loop_future = Py_NewRef(loop_future);
    stay(self, SUSPENDED);
    for (Py_ssize_t i = 0; i < self->count; i++) dt_wait_begin(self->futures[i], false);
    *yielded = Py_NewRef(loop_future);
    result = 1;
out:
    Py_XDECREF(loop_future);
    if (bridge != NULL) dt__bridge_release(bridge);
    Py_DECREF(loop);
    return result;
}

static bool is_pending(iterator *self) {
    if (self->kind == OF_FUTURE) return !dt__future_is_done(self->owner);
    dt_future *failed;
    return dt__futures_state(self->futures, self->count, &failed) == DT_FUTURE_PENDING;
}

/* The value or the exception; ends the iterator. */
static PySendResult settle(iterator *self, PyObject **result) {
    PyObject *value = NULL;
    if (self->kind == OF_FUTURE) {
        value = dt__future_result(self->owner);
    } else {
        dt_future *failed = NULL;
        (void)dt__futures_state(self->futures, self->count, &failed);
        if (failed != NULL)
            dt__raise_failure(failed);
        else if (self->kind == OF_TENSOR)
            value = Py_NewRef(self->owner);
        else
            value = PySequence_List(((gather *)self->owner)->tensors);
    }
    if (value == NULL) {
        PyObject *type, *exception, *traceback;
        PyErr_Fetch(&type, &exception, &traceback); /* finish() may run any code */
        finish(self);
        PyErr_Restore(type, exception, traceback);
        *result = NULL;
        return PYGEN_ERROR;
    }
    finish(self);
    *result = value;
    return PYGEN_RETURN;
}

/* Nothing to wait for: goes on at once, or lets others run first. A bare yield makes asyncio's
 * tasks come back in the loop's next turn. */
static PySendResult go_on(iterator *self, PyObject **result) {
    int over = self->stage == FRESH ? dt__turn_over() : 0;
    if (DT_LIKELY(over == 0)) return settle(self, result);
    *result = NULL;
    if (over < 0) return PYGEN_ERROR;
    stay(self, YIELDED);
    *result = Py_NewRef(Py_None);
    return PYGEN_NEXT;
}

static PySendResult send_slow(iterator *self, PyObject **result) {
    *result = NULL;
    if (self->stage == DONE) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse an already awaited iterator");
        return PYGEN_ERROR;
    }
    if (is_pending(self)) {
        if (self->stage == SUSPENDED) {
            PyErr_SetString(PyExc_RuntimeError, "await wasn't used with the event loop's future");
            return PYGEN_ERROR;
        }
        int suspended = suspend(self, result);
        if (suspended > 0) return PYGEN_NEXT;
        if (suspended < 0) return PYGEN_ERROR;
    }
    return go_on(self, result);
}

static PySendResult iterator_send(PyObject *object, PyObject *argument, PyObject **result) {
    (void)argument;
    iterator *self = (iterator *)object;
    if (self->kind == OF_TENSOR && self->count == 0 && self->stage == FRESH && dt__turn_left > 1) {
        dt__turn_left--;
        *result = self->owner; /* its reference goes to the caller */
        self->owner = NULL;
        self->stage = DONE;
        return PYGEN_RETURN;
    }
    return send_slow(self, result);
}

/* StopIteration(value); a tuple would be taken for its arguments. */
static void set_stop_iteration(PyObject *value) {
    if (!PyTuple_Check(value) && !PyExceptionInstance_Check(value)) {
        PyErr_SetObject(PyExc_StopIteration, value);
        return;
    }
    PyObject *exception = PyObject_CallOneArg(PyExc_StopIteration, value);
    if (exception == NULL) return;
    PyErr_SetObject(PyExc_StopIteration, exception);
    Py_DECREF(exception);
}

static PyObject *iterator_next(PyObject *object) {
    PyObject *result;
    switch (iterator_send(object, Py_None, &result)) {
    case PYGEN_NEXT:
        return result;
    case PYGEN_RETURN:
        set_stop_iteration(result);
        Py_DECREF(result);
        return NULL;
    case PYGEN_ERROR:
        break;
    }
    return NULL;
}

/* ---- its methods: for `yield from` in Python and for coroutines compiled by others ----------- */

static PyObject *iterator_send_method(PyObject *self, PyObject *argument) {
    (void)argument;
    return iterator_next(self);
}

static PyObject *iterator_close(PyObject *object, PyObject *ignored) {
    (void)ignored;
    iterator *self = (iterator *)object;
    if (self->stage != DONE) abandon(self);
    Py_RETURN_NONE;
}

static PyObject *iterator_throw(PyObject *object, PyObject *args) {
    PyObject *type, *value = NULL, *traceback = NULL;
    if (!PyArg_ParseTuple(args, "O|OO:throw", &type, &value, &traceback)) return NULL;
    iterator *self = (iterator *)object;
    if (self->stage != DONE) abandon(self);
    if (value == Py_None) value = NULL;
    if (traceback == Py_None) traceback = NULL;
    if (traceback != NULL && !PyTraceBack_Check(traceback)) {
        PyErr_SetString(PyExc_TypeError, "throw() third argument must be a traceback object");
        return NULL;
    }
    if (PyExceptionInstance_Check(type) && value == NULL) {
        value = type;
        type = (PyObject *)Py_TYPE(value);
    } else if (!PyExceptionClass_Check(type)) {
        PyErr_SetString(PyExc_TypeError,
                        "exceptions must be classes deriving BaseException or instances of such");
        return NULL;
    }
    if (traceback == NULL && value != NULL && PyExceptionInstance_Check(value))
        traceback = PyException_GetTraceback(value);
    else
        Py_XINCREF(traceback);
    PyErr_Restore(Py_NewRef(type), Py_XNewRef(value), traceback);
    return NULL;
}

/* ---- Tensor and TensorFuture ----------------------------------------------------------------- */

static void wait_for_one(iterator *it, dt_future *future) {
    it->one = dt_future_retain(future);
    it->futures = &it->one;
    it->count = 1;
}

/* Makes the iterator wait also for what t waits for: the last writer of each part that is not
 * ready. `room` for that many futures is taken at the first. 0, or -1 with an exception. */
static int wait_for_tensor(iterator *it, dt_tensor *t, Py_ssize_t room) {
    int count;
    dt_tensor *const *parts = dt_tensor_parts(&t, &count);
    for (int k = 0; k < count; k++) {
        dt_future *future = NULL;
        dt_future_state state = dt_tensor_state(parts[k], &future);
        if (state == DT_FUTURE_READY) continue;
        if (it->futures == NULL) it->futures = PyMem_New(dt_future *, (size_t)room);
        if (it->futures == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        if (state != DT_FUTURE_PENDING) future = dt__tensor_failure(parts[k], future);
        DT_ASSERT(future != NULL && it->count < room);
        it->futures[it->count++] = dt_future_retain(future);
    }
    return 0;
}

static Py_ssize_t parts_of(dt_tensor *t) {
    int count;
    (void)dt_tensor_parts(&t, &count);
    return count;
}

static PyObject *await_parts(PyObject *self, dt_tensor *t) {
    iterator *it = iterator_new(self, OF_TENSOR);
    if (it != NULL && wait_for_tensor(it, t, parts_of(t)) < 0) Py_CLEAR(it);
    return (PyObject *)it;
}

PyObject *dt_py_tensor_await(PyObject *self) {
    dt_tensor *t = ((dt_py_tensor *)self)->t;
    if (DT_UNLIKELY(dt_tensor_is_dist(t))) return await_parts(self, t);
    dt_future *future = NULL;
    dt_future_state state = dt_tensor_state(t, &future);
    iterator *it = iterator_new(self, OF_TENSOR);
    if (it == NULL || state == DT_FUTURE_READY) return (PyObject *)it;
    if (state != DT_FUTURE_PENDING) future = dt__tensor_failure(t, future);
    DT_ASSERT(future != NULL);
    wait_for_one(it, future);
    return (PyObject *)it;
}

PyObject *dt__await_new_for(PyObject *owner, dt_future *future) {
    iterator *it = iterator_new(owner, OF_TENSOR);
    if (it != NULL) wait_for_one(it, future);
    return (PyObject *)it;
}

PyObject *dt__await_new_for_future(PyObject *owner) {
    return (PyObject *)iterator_new(owner, OF_FUTURE);
}

/* ---- gather ---------------------------------------------------------------------------------- */

PyObject *dt_py_gather(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    for (Py_ssize_t i = 0; i < nargs; i++) {
        if (dt_py_tensor_check(args[i])) continue;
        PyErr_Format(PyExc_TypeError,
                     "gather(): argument %zd must be a dtorch.Tensor, not %.200s (pass tensors one "
                     "by one: gather(*tensors))",
                     i + 1, Py_TYPE(args[i])->tp_name);
        return NULL;
    }
    gather *self = PyObject_GC_New(gather, gather_type);
    if (self == NULL) return NULL;
    self->tensors = PyTuple_New(nargs);
    if (self->tensors == NULL) {
        PyObject_GC_Del(self);
        Py_DECREF(gather_type);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < nargs; i++) PyTuple_SET_ITEM(self->tensors, i, Py_NewRef(args[i]));
    PyObject_GC_Track((PyObject *)self);
    return (PyObject *)self;
}

/* Binds to the last writer of each tensor that is not ready. */
static PyObject *gather_await(PyObject *object) {
    PyObject *tensors = ((gather *)object)->tensors;
    Py_ssize_t n = PyTuple_GET_SIZE(tensors);
    iterator *it = iterator_new(object, OF_GATHER);
    if (it == NULL) return NULL;
    Py_ssize_t room = 0;
    for (Py_ssize_t i = 0; i < n; i++)
        room += parts_of(((dt_py_tensor *)PyTuple_GET_ITEM(tensors, i))->t);
    for (Py_ssize_t i = 0; i < n; i++) {
        if (wait_for_tensor(it, ((dt_py_tensor *)PyTuple_GET_ITEM(tensors, i))->t, room) == 0)
            continue;
        Py_DECREF(it);
        return NULL;
    }
    return (PyObject *)it;
}

static void gather_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_CLEAR(((gather *)object)->tensors);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int gather_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((gather *)object)->tensors);
    return 0;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static PyMethodDef iterator_methods[] = {
    {"send", iterator_send_method, METH_O, NULL},
    {"throw", iterator_throw, METH_VARARGS, NULL},
    {"close", iterator_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot iterator_slots[] = {
    {Py_tp_dealloc, iterator_dealloc}, {Py_tp_traverse, iterator_traverse},
    {Py_tp_clear, iterator_clear},     {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, iterator_next},   {Py_am_send, iterator_send},
    {Py_tp_methods, iterator_methods}, {0, NULL},
};

static PyType_Spec iterator_spec = {
    .name = "dtorch._C.Await",
    .basicsize = sizeof(iterator),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = iterator_slots,
};

static PyType_Slot gather_slots[] = {
    {Py_tp_dealloc, gather_dealloc},
    {Py_tp_traverse, gather_traverse},
    {Py_am_await, gather_await},
    {Py_tp_doc, "Awaitable for many tensors; made by dtorch.gather()."},
    {0, NULL},
};

static PyType_Spec gather_spec = {
    .name = "dtorch._C.Gather",
    .basicsize = sizeof(gather),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = gather_slots,
};

static PyMethodDef functions[] = {
    {"_gather", (PyCFunction)(void (*)(void))dt_py_gather, METH_FASTCALL,
     "_gather(*tensors)\n--\n\n"
     "Awaits many tensors with one waiter: what dtorch.gather() gives for tensors.\n\n"
     "Gives the list of the tensors, in order, once all are computed. When one fails, its error "
     "is\n"
     "raised at once, and the others go on being computed."},
    {NULL, NULL, 0, NULL},
};

int dt_py_await_init(PyObject *module) {
    if (dt__names_init() < 0) return -1;
    dt_state->await_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &iterator_spec, NULL);
    if (dt_state->await_type == NULL) return -1;
    gather_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &gather_spec, NULL);
    if (gather_type == NULL) return -1;
    return PyModule_AddFunctions(module, functions);
}
