/* limit.c: how many submitted calls of a group are in flight, and who waits for room among them.
 *
 *   call submitted in a block --count--> in_flight + 1 --its future completes, any thread--> - 1
 *   room wanted --none--> a place in the queue --granted, in turn--> its dt_future completes
 *                             '--leave (cancelled)--> out of the queue, or the next one's turn
 *
 * A place that was granted counts like a call until whoever waited has gone on and had the rest of
 * its step in the loop: what it submits there is counted by then, and nobody else was let in
 * between.  While somebody waits, what is in flight counts as wanted: calls that were put aside
 * when their own waiters gave up would else keep their room for ever.  The limit of a block is
 * found through a context variable, a tuple of limits, the outermost first; python/dtorch/_limit.py
 * has the rest.
 *
 * I1: the fields behind `lock` are touched under it only; nothing is called that waits or takes the
 *     GIL while it is held.  Threads that end calls touch nothing else of a place.
 * I2: in_flight + granted < n only while nobody waits.
 * I3: a limit outlives its Python object for as long as calls that it counts are in flight.
 * I4: in a forked child a limit starts anew: its calls are the parent's.
 * I5: while somebody waits, all calls are wanted, so that in `calls`, the newest first, those that
 *     are not wanted come before those that are.
 */
#include "python/ext/await.h"

#include <pthread.h>

#include "python/ext/core.h"
#include "runtime/alloc.h"
#include "runtime/assert.h"

typedef struct place place;

typedef struct limit {
    _Atomic(uint32_t) refs;
    uint32_t generation; /* GIL */
    int64_t n;
    pthread_mutex_t lock;
    int64_t in_flight;
    int64_t granted; /* places whose waiters have not gone on yet */
    place *first;    /* who waits; borrowed: they leave before they die */
    place **end;
    struct counted *calls; /* what is in flight */
} limit;

typedef enum place_state { WAITING, GRANTED, LEFT } place_state;

struct place {
    PyObject_HEAD limit *of; /* owned */
    uint32_t generation;
    dt_future *future;
    place_state state; /* lock */
    place *next;       /* lock, as the next one: the queue */
    place **where;
};

/* The Python object. */
typedef struct core {
    PyObject_HEAD limit *limit; /* owned */
    bool entered;               /* counted in dt__limits_alive */
} core;

/* One call that one limit counts. */
typedef struct counted {
    dt_waiter waiter;
    limit *limit;                  /* owned */
    dt_future *future;             /* owned */
    bool wanted;                   /* lock; by those who wait for room */
    struct counted *next, **where; /* lock */
} counted;

static PyTypeObject *core_type, *place_type;
static PyObject *variable; /* the context variable */
int64_t dt__limits_alive;

/* ---- the count ------------------------------------------------------------------------------ */

static void begin(limit *l) {
    pthread_mutex_init(&l->lock, NULL);
    l->generation = dt__fork_generation();
    l->in_flight = l->granted = 0;
    l->first = NULL;
    l->end = &l->first;
    l->calls = NULL;
}

static limit *limit_retain(limit *l) {
    atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
    return l;
}

static void limit_release(limit *l) {
    if (atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1) return;
    pthread_mutex_destroy(&l->lock);
    dt_free(l, sizeof *l);
}

static void unlink_place(limit *l, place *p) {
    *p->where = p->next;
    if (p->next != NULL)
        p->next->where = p->where;
    else
        l->end = p->where;
    p->next = NULL;
    p->where = NULL;
}

/* The future of the next one in turn for whom there is room, a reference; NULL: none. */
static dt_future *next_in_turn(limit *l) {
    dt_future *future = NULL;
    pthread_mutex_lock(&l->lock);
    place *p = l->first;
    if (p != NULL && l->in_flight + l->granted < l->n) {
        unlink_place(l, p);
        p->state = GRANTED;
        l->granted++;
        future = dt_future_retain(p->future);
    }
    pthread_mutex_unlock(&l->lock);
    return future;
}

/* Any thread. */
static void grant(limit *l) {
    dt_future *future;
    while ((future = next_in_turn(l)) != NULL) {
        dt_future_complete(future, NULL);
        dt_future_release(future);
    }
}

static void unlink_call(limit *l, counted *call) {
    *call->where = call->next;
    if (call->next != NULL) call->next->where = call->where;
    l->in_flight--;
}

static void link_call(limit *l, counted *call) {
    call->next = l->calls;
    call->where = &l->calls;
    if (call->next != NULL) call->next->where = &call->next;
    l->calls = call;
    l->in_flight++;
}

/* In the thread that completes the call's future. */
static void call_ended(dt_waiter *waiter) {
    counted *call = (counted *)waiter;
    limit *l = call->limit;
    pthread_mutex_lock(&l->lock);
    unlink_call(l, call);
    pthread_mutex_unlock(&l->lock);
    if (call->wanted) dt_wait_end(call->future);
    dt_future_release(call->future);
    dt_free(call, sizeof *call);
    grant(l);
    limit_release(l);
}

/* Marks a call as wanted by those who wait for room. Lock held. */
static void want(counted *call) {
    call->wanted = true;
    dt_future_want(call->future);
}

/* Has what is in flight run, as somebody waits for it. GIL. */
static void want_calls(limit *l) {
    dt_future *one = NULL;
    pthread_mutex_lock(&l->lock);
    /* I5: those that are not wanted yet come first. */
    for (counted *call = l->calls; call != NULL && !call->wanted; call = call->next) {
        want(call);
        if (one == NULL) one = dt_future_retain(call->future);
    }
    pthread_mutex_unlock(&l->lock);
    if (one == NULL) return;
    dt_wait_begin(one, false); /* tells the scheduler, for all of them */
    dt_wait_end(one);
    dt_future_release(one);
}

/* In a child of the process that it was made in, a limit forgets. GIL. */
static limit *limit_of(core *self) {
    limit *l = self->limit;
    if (DT_UNLIKELY(l->generation != dt__fork_generation())) begin(l);
    return l;
}

static void count_one(core *self, dt_future *future) {
    counted *call = dt_alloc(sizeof *call);
    if (call == NULL) return; /* a call too many is better than none */
    limit *l = limit_of(self);
    *call = (counted){.waiter.wake = call_ended, .limit = limit_retain(l)};
    call->future = dt_future_retain(future);
    pthread_mutex_lock(&l->lock);
    link_call(l, call);
    if (l->first != NULL) want(call);
    pthread_mutex_unlock(&l->lock);
    /* Not submitted yet, so that it cannot have ended: it is linked for as long as it is pending.
     */
    if (!dt_future_add_waiter(future, &call->waiter)) call_ended(&call->waiter);
}

static bool among(PyObject *limits, Py_ssize_t count, const PyObject *one) {
    for (Py_ssize_t i = 0; i < count; i++)
        if (PyTuple_GET_ITEM(limits, i) == one) return true;
    return false;
}

/* The limits of this context: a new reference, or NULL: none. No exception. */
static PyObject *limits_here(void) {
    PyObject *limits = NULL;
    if (PyContextVar_Get(variable, NULL, &limits) < 0) PyErr_Clear();
    return limits;
}

void dt__limits_count(dt_future *future) {
    PyObject *limits = limits_here();
    if (limits == NULL) return;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(limits); i++) {
        PyObject *one = PyTuple_GET_ITEM(limits, i);
        if (!among(limits, i, one)) count_one((core *)one, future);
    }
    Py_DECREF(limits);
}

/* ---- places --------------------------------------------------------------------------------- */

static place *place_new(limit *l) {
    place *p = (place *)place_type->tp_alloc(place_type, 0);
    if (p == NULL) return NULL;
    p->state = LEFT;
    p->generation = l->generation;
    dt_status status = dt_future_new(&p->future);
    if (status != DT_OK) {
        Py_DECREF(p);
        (void)dt_py_raise(status);
        return NULL;
    }
    p->of = limit_retain(l);
    return p;
}

static void leave(place *p) {
    limit *l = p->of;
    if (l == NULL || p->generation != dt__fork_generation()) return;
    pthread_mutex_lock(&l->lock);
    if (p->state == WAITING) unlink_place(l, p);
    if (p->state == GRANTED) l->granted--;
    p->state = LEFT;
    pthread_mutex_unlock(&l->lock);
    grant(l);
}

static PyObject *place_leave(PyObject *self, PyObject *ignored) {
    (void)ignored;
    leave((place *)self);
    Py_RETURN_NONE;
}

static PyObject *place_await(PyObject *self) {
    return dt__await_new_for(self, ((place *)self)->future);
}

static void place_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    place *p = (place *)self;
    leave(p);
    dt_future_release(p->future);
    if (p->of != NULL) limit_release(p->of);
    type->tp_free(self);
    Py_DECREF(type);
}

/* ---- the Python object ----------------------------------------------------------------------- */

/* request(): None where there is room and nobody waits for it, else a place to await. */
static PyObject *core_request(PyObject *self, PyObject *ignored) {
    (void)ignored;
    limit *l = limit_of((core *)self);
    pthread_mutex_lock(&l->lock);
    bool room = l->first == NULL && l->in_flight + l->granted < l->n;
    pthread_mutex_unlock(&l->lock);
    if (room) Py_RETURN_NONE;
    place *p = place_new(l);
    if (p == NULL) return NULL;
    pthread_mutex_lock(&l->lock);
    p->state = WAITING;
    p->where = l->end;
    *l->end = p;
    l->end = &p->next;
    pthread_mutex_unlock(&l->lock);
    grant(l); /* the last call may have ended meanwhile */
    want_calls(l);
    return (PyObject *)p;
}

static int set_limits(PyObject *limits) {
    PyObject *token = limits != NULL ? PyContextVar_Set(variable, limits) : NULL;
    Py_XDECREF(token);
    return token != NULL ? 0 : -1;
}

/* enter(): calls of this context are counted from here on. */
static PyObject *core_enter(PyObject *self, PyObject *ignored) {
    (void)ignored;
    PyObject *before = limits_here();
    Py_ssize_t n = before != NULL ? PyTuple_GET_SIZE(before) : 0;
    PyObject *limits = PyTuple_New(n + 1);
    for (Py_ssize_t i = 0; i < n && limits != NULL; i++)
        PyTuple_SET_ITEM(limits, i, Py_NewRef(PyTuple_GET_ITEM(before, i)));
    if (limits != NULL) PyTuple_SET_ITEM(limits, n, Py_NewRef(self));
    int failed = set_limits(limits);
    Py_XDECREF(limits);
    Py_XDECREF(before);
    if (failed) return NULL;
    core *c = (core *)self;
    if (!c->entered) dt__limits_alive++;
    c->entered = true;
    Py_RETURN_NONE;
}

/* exit(): undoes the last enter() of this limit in this context; without one, nothing. */
static PyObject *core_exit(PyObject *self, PyObject *ignored) {
    (void)ignored;
    PyObject *before = limits_here();
    Py_ssize_t n = before != NULL ? PyTuple_GET_SIZE(before) : 0, last = n;
    while (last > 0 && PyTuple_GET_ITEM(before, last - 1) != self) last--;
    int failed = 0;
    if (last > 0) {
        PyObject *limits = PyTuple_New(n - 1);
        for (Py_ssize_t i = 0, k = 0; i < n && limits != NULL; i++)
            if (i != last - 1)
                PyTuple_SET_ITEM(limits, k++, Py_NewRef(PyTuple_GET_ITEM(before, i)));
        failed = set_limits(limits);
        Py_XDECREF(limits);
    }
    Py_XDECREF(before);
    return failed ? NULL : Py_NewRef(Py_None);
}

static PyObject *core_in_flight(PyObject *self, void *ignored) {
    (void)ignored;
    limit *l = limit_of((core *)self);
    pthread_mutex_lock(&l->lock);
    int64_t count = l->in_flight;
    pthread_mutex_unlock(&l->lock);
    return PyLong_FromLongLong(count);
}

static PyObject *core_n(PyObject *self, void *ignored) {
    (void)ignored;
    return PyLong_FromLongLong(((core *)self)->limit->n);
}

/* 0 or -1 with an exception. */
static int parse_n(PyObject *object, int64_t *n) {
    int ok = dt_py_int_from_object(object, n);
    if (ok < 0) return -1;
    if (ok == 0) {
        PyErr_Format(PyExc_TypeError, "limit(): n must be an int, not %s", dt_py_type_name(object));
        return -1;
    }
    if (*n >= 1) return 0;
    PyErr_Format(PyExc_ValueError, "limit(): n must be at least 1, not %lld", (long long)*n);
    return -1;
}

static PyObject *core_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    PyObject *object;
    int64_t n;
    if (!PyArg_ParseTuple(args, "O:limit", &object) || parse_n(object, &n) < 0) return NULL;
    core *self = (core *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->limit = dt_alloc(sizeof(limit));
    if (self->limit == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    atomic_init(&self->limit->refs, 1);
    self->limit->n = n;
    begin(self->limit);
    return (PyObject *)self;
}

static void core_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    core *c = (core *)self;
    if (c->entered) dt__limits_alive--;
    if (c->limit != NULL) limit_release(c->limit);
    type->tp_free(self);
    Py_DECREF(type);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static PyMethodDef core_methods[] = {
    {"request", core_request, METH_NOARGS, NULL},
    {"enter", core_enter, METH_NOARGS, NULL},
    {"exit", core_exit, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef core_getset[] = {
    {"in_flight", core_in_flight, NULL, NULL, NULL},
    {"n", core_n, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot core_slots[] = {
    {Py_tp_new, core_new},
    {Py_tp_dealloc, core_dealloc},
    {Py_tp_methods, core_methods},
    {Py_tp_getset, core_getset},
    {0, NULL},
};

static PyType_Spec core_spec = {
    .name = "dtorch._C.Limit",
    .basicsize = sizeof(core),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = core_slots,
};

static PyMethodDef place_methods[] = {
    {"leave", place_leave, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot place_slots[] = {
    {Py_tp_dealloc, place_dealloc},
    {Py_am_await, place_await},
    {Py_tp_methods, place_methods},
    {0, NULL},
};

static PyType_Spec place_spec = {
    .name = "dtorch._C.Place",
    .basicsize = sizeof(place),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = place_slots,
};

int dt_py_limit_init(PyObject *module) {
    variable = PyContextVar_New("dtorch.limits", NULL);
    if (variable == NULL) return -1;
    core_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &core_spec, NULL);
    if (core_type == NULL) return -1;
    place_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &place_spec, NULL);
    if (place_type == NULL) return -1;
    return PyModule_AddObjectRef(module, "_Limit", (PyObject *)core_type);
}
