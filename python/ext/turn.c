/* turn.c: awaits that are always ready give control back to the loop once in a while.
 *
 *   await ready --every k-th--> clock: has the loop had control in the last MARK_AFTER_NS?
 *       no: loop.call_soon(marker), at most one at a time
 *       marker still not called after HELD_NS, and the same task still runs --> yield once
 *
 * A coroutine that awaits only what is ready never suspends, and asyncio runs nothing else until it
 * does.  Whether the loop has had control is what the marker shows: it is called as soon as the
 * loop runs its next callback.  As callbacks run in the order in which they came, a task that gave
 * control back and was resumed was resumed after the marker.  Another task may come before it, in
 * the same turn of the loop: its time starts anew.
 *
 * The clock is read at each k-th await only, k being small when awaits are far apart: a ready await
 * costs one decrement more.  All threads share that count: a thread-local one of a loaded module
 * costs a call, and being asked a few awaits later does no harm.
 *
 * The loop's own look at its sockets lets go of the GIL for a moment only: whoever waits for it is
 * woken, finds it taken, and begins to wait anew, for seconds on end (CPython asks a thread to give
 * it up only when nobody has let go of it for the switch interval).  So where there are other
 * threads of Python, every few milliseconds we let go of it for as long as waking one takes; less
 * often when nobody has wanted it.
 *
 * I1: an await yields at most once for this reason, and never without a running task.
 * I2: a thread's marker is owned by the thread's state, and by the loop while it waits to be
 *     called: a loop that is closed or dies leaves nothing behind that looks pending.
 */
#include "python/ext/await.h"

#include <structmember.h>
#include <time.h>

#include "scheduler/futex.h"

#define MARK_AFTER_NS 200000
#define HELD_NS 400000
#define STRIDE_MAX 16
#define STRIDE_SHORT_NS 25000 /* between two looks at the clock: look half as often */
#define STRIDE_LONG_NS 50000  /* look each time */

#define GIVE_EVERY_MIN_NS 5000000
#define GIVE_EVERY_MAX_NS 20000000
#define GIVE_FOR_NS 50000
#define WANTED_NS 10000 /* to have the GIL back takes longer only where another thread had it */

#define DICT_KEY "dtorch.turn"

typedef struct marker {
    PyObject_HEAD vectorcallfunc vectorcall;
    const PyObject *loop; /* where it was scheduled; borrowed, compared only */
    const PyObject *task; /* who has held the loop since; borrowed, compared only */
    int64_t since_ns;
    int64_t called_ns; /* 0: not called since it was scheduled */
    int64_t gave_ns, give_every_ns;
} marker;

static PyTypeObject *marker_type;

uint32_t dt__turn_left = 1;
static uint32_t stride = 1; /* awaits between two looks */
static int64_t checked_ns;

/* The marker of this thread; its last one's, and dead perhaps, under another thread state. */
static _Thread_local marker *my_marker;
static _Thread_local uint64_t my_thread_id;

/* In the loop's thread: the loop has control. */
static PyObject *marker_call(PyObject *self, PyObject *const *args, size_t nargs,
                             PyObject *kwnames) {
    (void)args, (void)nargs, (void)kwnames;
    ((marker *)self)->called_ns = dt_clock_ns();
    Py_RETURN_NONE;
}

static void marker_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

/* This thread's marker, borrowed, or NULL: it has none, or had it under another thread state. */
static marker *marker_here(void) {
    if (my_thread_id != PyThreadState_GetID(PyThreadState_Get())) return NULL;
    return my_marker;
}

static marker *marker_new_here(void) {
    PyObject *dict = PyThreadState_GetDict(); /* NULL: it cannot be had now */
    if (dict == NULL) return NULL;
    marker *m = (marker *)marker_type->tp_alloc(marker_type, 0);
    if (m == NULL) return NULL;
    m->vectorcall = marker_call;
    m->give_every_ns = GIVE_EVERY_MIN_NS;
    int failed = PyDict_SetItemString(dict, DICT_KEY, (PyObject *)m);
    Py_DECREF(m); /* the dictionary's from here on */
    if (failed) return NULL;
    my_marker = m;
    my_thread_id = PyThreadState_GetID(PyThreadState_Get());
    return m;
}

static bool is_queued(const marker *m) { return Py_REFCNT(m) > 1; }

static bool has_other_threads(void) {
    PyThreadState *first = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    return first != NULL && PyThreadState_Next(first) != NULL;
}

/* Other threads have their turn with the GIL. */
static void give_gil(marker *m, int64_t now_ns) {
    if (now_ns - m->gave_ns < m->give_every_ns || !has_other_threads()) return;
    int64_t woke_ns;
    Py_INCREF(m);
    Py_BEGIN_ALLOW_THREADS;
    nanosleep(&(struct timespec){.tv_nsec = GIVE_FOR_NS}, NULL);
    woke_ns = dt_clock_ns();
    Py_END_ALLOW_THREADS;
    m->gave_ns = dt_clock_ns();
    m->give_every_ns *= 2;
    if (m->give_every_ns > GIVE_EVERY_MAX_NS) m->give_every_ns = GIVE_EVERY_MAX_NS;
    if (m->gave_ns - woke_ns > WANTED_NS) m->give_every_ns = GIVE_EVERY_MIN_NS;
    Py_DECREF(m);
}

/* 0, or -1 with an exception. */
static int schedule(PyObject *loop, marker *m, int64_t now_ns) {
    /* One that another loop still holds stays that loop's. */
    if (m == NULL || is_queued(m)) m = marker_new_here();
    if (m == NULL) return PyErr_Occurred() ? -1 : 0;
    give_gil(m, now_ns);
    Py_INCREF(m);
    PyObject *task = dt__current_task(loop);
    m->loop = loop;
    m->task = task;
    m->since_ns = now_ns;
    m->called_ns = 0;
    PyObject *args[] = {loop, (PyObject *)m};
    PyObject *handle = PyObject_VectorcallMethod(dt__names.call_soon, args, 2, NULL);
    Py_XDECREF(handle);
    Py_XDECREF(task);
    Py_DECREF(m);
    return handle != NULL ? 0 : -1;
}

/* The marker waits in this loop: whether whoever runs now has held the loop for too long. */
static int has_held(PyObject *loop, marker *m, int64_t now_ns) {
    if (now_ns - m->since_ns < HELD_NS) return 0;
    PyObject *task = dt__current_task(loop);
    bool same = task == m->task;
    m->task = task;
    if (!same) m->since_ns = now_ns;
    Py_XDECREF(task);
    return same && task != NULL;
}

/* What is asked first, as it is cheap: nothing can be due yet, whatever loop this is. */
static bool is_early(const marker *m, int64_t now_ns) {
    if (m->called_ns != 0) return now_ns - m->called_ns < MARK_AFTER_NS;
    return now_ns - m->since_ns < HELD_NS && is_queued(m);
}

static void adapt_stride(int64_t passed_ns) {
    if (passed_ns > STRIDE_LONG_NS)
        stride = 1;
    else if (passed_ns < STRIDE_SHORT_NS && stride < STRIDE_MAX)
        stride *= 2;
    dt__turn_left = stride;
}

int dt__turn_check(void) {
    int64_t now_ns = dt_clock_ns();
    adapt_stride(now_ns - checked_ns);
    checked_ns = now_ns;
    marker *m = marker_here();
    if (m != NULL && is_early(m, now_ns)) return 0;
    PyObject *loop;
    int running = dt__running_loop(&loop);
    if (running <= 0) return running;
    int result;
    if (m != NULL && m->called_ns == 0 && m->loop == loop && is_queued(m))
        result = has_held(loop, m, now_ns);
    else
        result = schedule(loop, m, now_ns);
    Py_DECREF(loop);
    return result;
}

static PyMemberDef marker_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(marker, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot marker_slots[] = {
    {Py_tp_dealloc, marker_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, marker_members},
    {Py_tp_doc, "Called by the event loop when it has control."},
    {0, NULL},
};

static PyType_Spec marker_spec = {
    .name = "dtorch._C.Turn",
    .basicsize = sizeof(marker),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = marker_slots,
};

int dt_py_turn_init(PyObject *module) {
    marker_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &marker_spec, NULL);
    return marker_type == NULL ? -1 : 0;
}
