/* bridge.c: how completions reach an asyncio loop: one eventfd and one queue for each loop.
 *
 *   C threads --push: CAS--> head --(latch not set: write the eventfd)--> loop's selector
 *   loop: reader() --read the eventfd, clear the latch, take all--> backlog --at most 256-->
deliver
 *
 * The loop knows the bridge only through its reader, a callable whose one strong reference is the
 * loop's handle.  A loop that is closed or collected drops the handle, the reader's deallocation
 * shuts the bridge, and nodes that come later go to the graveyard.  Producers and the reader co-own
 * the bridge, so that no number is ever written after reuse; the last one leaves it to the
graveyard to close the eventfd: a loop may drop the reader just before it takes the number out of
its selector (uvloop does), but does both without letting go of the GIL.
 *
 * I1: latch set: the eventfd is readable or its writer is about to make it so.  Hence the order in
 *     a drain: read, clear, take (clearing before the read could swallow a later write).
 * I2: while a backlog is left, the eventfd is readable.
 * I3: head is SHUT from the reader's end on, for ever.
 * I4: bridges of a parent process are dead here: their eventfd is not read, written or closed.
 * I5: live_bridges, loop_ref and backlog are touched with the GIL only.
 */
#include "python/ext/await.h"

#include <errno.h>
#include <pthread.h>
#include <structmember.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "runtime/stats.h"

#define DELIVERIES_PER_DRAIN_MAX 256

struct dt_bridge {
    _Atomic(uint32_t) refs;
    _Atomic(bool) latch;
    int fd;
    uint32_t generation;
    _Atomic(dt_node *) head; /* newest first, or SHUT */
    dt_node *backlog;        /* oldest first */
    dt_node **backlog_end;
    PyObject *loop_ref; /* a weak reference; cleared with the reader */
    dt_bridge *next;    /* of live_bridges */
    dt_grave grave;
};

static dt_node shut_mark;
#define SHUT (&shut_mark)

static dt_bridge *live_bridges; /* those whose reader lives, last used first */
static _Atomic(uint32_t) generation;

uint32_t dt__fork_generation(void) {
    return atomic_load_explicit(&generation, memory_order_relaxed);
}

/* ---- producers ----------------------------------------------------------------------------- */

dt_bridge *dt__bridge_retain(dt_bridge *bridge) {
    atomic_fetch_add_explicit(&bridge->refs, 1, memory_order_relaxed);
    return bridge;
}

static void bury_bridge(dt_grave *grave) {
    dt_bridge *bridge = (dt_bridge *)((char *)grave - offsetof(dt_bridge, grave));
    if (bridge->generation == dt__fork_generation()) close(bridge->fd);
    dt_free(bridge, sizeof *bridge);
}

void dt__bridge_release(dt_bridge *bridge) {
    if (atomic_fetch_sub_explicit(&bridge->refs, 1, memory_order_acq_rel) != 1) return;
    bridge->grave.bury = bury_bridge;
    dt_graveyard_post(&bridge->grave);
}

static void ring(dt_bridge *bridge) {
    if (atomic_exchange_explicit(&bridge->latch, true, memory_order_seq_cst)) return;
    const uint64_t one = 1;
    /* It can only fail by being interrupted: the counter never gets near its end. */
    while (write(bridge->fd, &one, sizeof one) < 0 && errno == EINTR) continue;
}

static void bury_node(dt_grave *grave) {
    dt__node_bury((dt_node *)((char *)grave - offsetof(dt_node, grave)));
}

void dt__bridge_push(dt_bridge *bridge, dt_node *node) {
    dt_node *head = atomic_load_explicit(&bridge->head, memory_order_acquire);
    do {
        if (head == SHUT || bridge->generation != dt__fork_generation()) {
            node->grave.bury = bury_node;
            dt_graveyard_post(&node->grave);
            return;
        }
        node->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&bridge->head, &head, node,
                                                    memory_order_seq_cst, memory_order_acquire));
    /* From here on the node may be gone; its owner's reference to the bridge is the caller's. */
    ring(bridge);
}

/* ---- the loop's side ----------------------------------------------------------------------- */

/* Moves what the producers queued to the end of the backlog, in order. */
static void take_all(dt_bridge *bridge, dt_node *leave) {
    dt_node *taken = atomic_exchange_explicit(&bridge->head, leave, memory_order_seq_cst);
    if (taken == NULL || taken == SHUT) return;
    dt_node *ordered = NULL, *newest = taken;
    while (taken != NULL) {
        dt_node *next = taken->next;
        taken->next = ordered;
        ordered = taken;
        taken = next;
    }
    *bridge->backlog_end = ordered;
    bridge->backlog_end = &newest->next;
}

static dt_node *backlog_pop(dt_bridge *bridge) {
    dt_node *node = bridge->backlog;
    if (node == NULL) return NULL;
    bridge->backlog = node->next;
    if (bridge->backlog == NULL) bridge->backlog_end = &bridge->backlog;
    return node;
}

/* `woken`: somebody wrote the eventfd; else the drain before it left something. */
static void count_drain(int delivered, bool woken) {
    dt_counts.loop_wakeups += woken;
    dt_counts.deliveries += delivered;
    dt_counts.batches[dt_histogram_bucket(delivered)]++;
}

static void drain(dt_bridge *bridge) {
    if (bridge->generation != dt__fork_generation()) return;
    bool woken = bridge->backlog == NULL;
    if (woken) {
        uint64_t count;
        while (read(bridge->fd, &count, sizeof count) < 0 && errno == EINTR) continue;
        atomic_store_explicit(&bridge->latch, false, memory_order_seq_cst);
        take_all(bridge, NULL);
    }
    dt_node *node;
    int delivered = 0;
    while (delivered < DELIVERIES_PER_DRAIN_MAX && (node = backlog_pop(bridge)) != NULL) {
        dt__node_deliver(node);
        dt__node_bury(node);
        delivered++;
    }
    count_drain(delivered, woken);
    if (bridge->backlog != NULL) ring(bridge);
    dt_graveyard_drain();
}

static void forget(dt_bridge *bridge) {
    for (dt_bridge **place = &live_bridges; *place != NULL; place = &(*place)->next) {
        if (*place != bridge) continue;
        *place = bridge->next;
        return;
    }
}

/* The reader's end: nobody will drain again. */
static void shut(dt_bridge *bridge) {
    forget(bridge);
    Py_CLEAR(bridge->loop_ref);
    take_all(bridge, SHUT);
    dt_node *node;
    while ((node = backlog_pop(bridge)) != NULL) dt__node_bury(node);
}

typedef struct reader {
    PyObject_HEAD vectorcallfunc vectorcall;
    dt_bridge *bridge;
} reader;

static PyObject *reader_vectorcall(PyObject *self, PyObject *const *args, size_t nargs,
                                   PyObject *kwnames) {
    (void)args, (void)nargs, (void)kwnames;
    dt_bridge *bridge = ((reader *)self)->bridge;
    if (bridge != NULL) {
        /* A delivery may end the loop's interest in the reader; the bridge outlives this call. */
        dt__bridge_retain(bridge);
        drain(bridge);
        dt__bridge_release(bridge);
    }
    Py_RETURN_NONE;
}

static void reader_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    dt_bridge *bridge = ((reader *)self)->bridge;
    if (bridge != NULL) {
        shut(bridge);
        dt__bridge_release(bridge);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

/* ---- finding and making -------------------------------------------------------------------- */

static bool refers_to(PyObject *weak, PyObject *object) {
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *found;
    if (PyWeakref_GetRef(weak, &found) <= 0) {
        PyErr_Clear();
        return false;
    }
    bool same = found == object;
    Py_DECREF(found);
    return same;
#else
    return PyWeakref_GET_OBJECT(weak) == object;
#endif
}

static dt_bridge *find(PyObject *loop) {
    uint32_t now = dt__fork_generation();
    for (dt_bridge **place = &live_bridges; *place != NULL; place = &(*place)->next) {
        dt_bridge *bridge = *place;
        if (bridge->generation != now || !refers_to(bridge->loop_ref, loop)) continue;
        *place = bridge->next;
        bridge->next = live_bridges;
        live_bridges = bridge;
        return bridge;
    }
    return NULL;
}

/* A bridge with one reference, unknown to any loop yet. */
static dt_bridge *bridge_new(PyObject *loop) {
    dt_bridge *bridge = dt_alloc(sizeof *bridge);
    if (bridge == NULL) return (dt_bridge *)PyErr_NoMemory();
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    PyObject *loop_ref = fd < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyWeakref_NewRef(loop, NULL);
    if (loop_ref == NULL) {
        if (fd >= 0) close(fd);
        dt_free(bridge, sizeof *bridge);
        return NULL;
    }
    atomic_init(&bridge->refs, 1);
    atomic_init(&bridge->latch, false);
    bridge->fd = fd;
    bridge->generation = dt__fork_generation();
    atomic_init(&bridge->head, NULL);
    bridge->backlog = NULL;
    bridge->backlog_end = &bridge->backlog;
    bridge->loop_ref = loop_ref;
    bridge->next = NULL;
    return bridge;
}

/* loop.add_reader(fd, reader), in an empty context: the loop's handle would otherwise keep the
 * context variables of whoever came first for as long as the loop lives. */
static int add_reader(PyObject *loop, int fd, PyObject *callback) {
    PyObject *context = PyContext_New();
    if (context == NULL) return -1;
    int failed = PyContext_Enter(context);
    if (!failed) {
        PyObject *number = PyLong_FromLong(fd);
        PyObject *args[] = {loop, number, callback};
        PyObject *result =
            number == NULL ? NULL : PyObject_VectorcallMethod(dt__names.add_reader, args, 3, NULL);
        failed = result == NULL ? -1 : 0;
        Py_XDECREF(result);
        Py_XDECREF(number);
        if (PyContext_Exit(context) < 0) failed = -1;
    }
    Py_DECREF(context);
    return failed;
}

dt_bridge *dt__bridge_for(PyObject *loop) {
    dt_bridge *bridge = find(loop);
    if (bridge != NULL) return dt__bridge_retain(bridge);
    PyTypeObject *type = dt_state->bridge_type;
    reader *self = (reader *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->vectorcall = reader_vectorcall;
    bridge = self->bridge = bridge_new(loop);
    if (bridge != NULL) {
        bridge->next = live_bridges;
        live_bridges = bridge;
        dt__bridge_retain(bridge); /* the caller's */
        if (add_reader(loop, bridge->fd, (PyObject *)self) < 0) {
            dt__bridge_release(bridge);
            bridge = NULL;
        }
    }
    Py_DECREF(self);
    return bridge;
}

int dt__running_loop(PyObject **loop) {
    *loop = NULL;
    if (dt_state->get_running_loop == NULL) {
        /* Whoever runs a loop has imported asyncio; nobody else pays for it. */
        PyObject *modules = PyImport_GetModuleDict();
        PyObject *events = PyDict_GetItemString(modules, "asyncio.events");
        if (events == NULL) return 0;
        dt_state->get_running_loop = PyObject_GetAttrString(events, "_get_running_loop");
        if (dt_state->get_running_loop == NULL) return -1;
    }
    PyObject *found = PyObject_CallNoArgs(dt_state->get_running_loop);
    if (found == NULL) return -1;
    if (found == Py_None) {
        Py_DECREF(found);
        return 0;
    }
    *loop = found;
    return 1;
}

/* _warm(): starts the runtime, and ties the running loop, if there is one, to it. */
static PyObject *warm(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    dt_sched *sched;
    dt_status status = dt_runtime_get(&sched);
    if (status != DT_OK) return dt_py_raise(status);
    PyObject *loop;
    int running = dt__running_loop(&loop);
    if (running < 0) return NULL;
    if (running == 0) Py_RETURN_NONE;
    dt_bridge *bridge = dt__bridge_for(loop);
    Py_DECREF(loop);
    if (bridge == NULL) return NULL;
    dt__bridge_release(bridge);
    Py_RETURN_NONE;
}

/* ---- set-up -------------------------------------------------------------------------------- */

static void after_fork_in_child(void) {
    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
}

static PyMemberDef reader_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(reader, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, reader_members},
    {Py_tp_doc, "Delivers completions to the event loop that holds it."},
    {0, NULL},
};

static PyType_Spec reader_spec = {
    .name = "dtorch._C.Bridge",
    .basicsize = sizeof(reader),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = reader_slots,
};

static PyMethodDef functions[] = {
    {"_warm", warm, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int dt_py_bridge_init(PyObject *module) {
    static bool handlers_installed; /* they stay for the life of the process */
    if (dt__names_init() < 0) return -1;
    if (!handlers_installed) {
        int failed = pthread_atfork(NULL, NULL, after_fork_in_child);
        if (failed) {
            errno = failed;
            PyErr_SetFromErrno(PyExc_OSError);
            return -1;
        }
        handlers_installed = true;
    }
    dt_state->bridge_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &reader_spec, NULL);
    return dt_state->bridge_type == NULL ? -1 : PyModule_AddFunctions(module, functions);
}
