/* await.h: what the files of the awaiting half share: completion nodes, bridges, running loops.
 *
 *   Tensor / TensorFuture / gather        await.c, future.c
 *        | dt__node_new, dt__node_arm
 *        v
 *   dt_node --(waiter)--> dt_future       node.c; woken by C threads
 *        | dt__node_fire: once
 *        v
 *   dt_bridge --(queue, eventfd)--> loop  bridge.c; delivers with the GIL, in the loop's thread
 *
 * I1: target, owner and context of a node are Python references; they are read, set and dropped
 *     only with the GIL held, and dropped at the latest when the node is delivered or buried.
 * I2: a node fires at most once, whoever asks (the last future, a failed one, a cancel).
 */
#ifndef DT_PYTHON_AWAIT_H
#define DT_PYTHON_AWAIT_H

#include "python/ext/ext.h"
#include "runtime/assert.h"

typedef struct dt_bridge dt_bridge;
typedef struct dt_node dt_node;

/* The nodes that wait for one TensorFuture, in the order in which they came. GIL. */
typedef struct dt_node_list {
    dt_node *first;
    dt_node **end; /* where the next one goes */
} dt_node_list;

/* One future that a node waits for. */
typedef struct dt_link {
    dt_waiter waiter;
    dt_node *node;
    const dt_future *future; /* borrowed: alive while it wakes its waiters */
} dt_link;

struct dt_node {
    _Atomic(uint32_t) refs;
    _Atomic(uint32_t) left; /* futures not complete yet, and one while the node is being armed */
    _Atomic(bool) fired;
    uint32_t count;                 /* links */
    uint32_t call;                  /* whose end fired it, for profiles (dt_future_call) */
    dt_node *next;                  /* of the bridge's queue */
    dt_bridge *bridge;              /* owned; NULL: no loop, delivered from the graveyard */
    void (*deliver)(dt_node *node); /* with the GIL; not called when the loop is gone */
    PyObject *target;
    PyObject *owner;
    PyObject *context;
    dt_node_list *list; /* that this node is in, or NULL; GIL */
    dt_node *list_next;
    dt_node **list_place; /* what points at this node there */
    dt_grave grave;
    dt_link links[];
};

/* ---- node.c -------------------------------------------------------------------------------- */

/* A node for `count` futures, with one reference for the caller. Retains the bridge (NULL: none).
 * NULL with an exception. */
dt_node *dt__node_new(dt_bridge *bridge, Py_ssize_t count, void (*deliver)(dt_node *node));
dt_node *dt__node_retain(dt_node *node);
/* Registers with the futures. False: there is nothing to wait for any more (all are complete, or
 * one has failed), and the node may never fire. */
bool dt__node_arm(dt_node *node, dt_future *const *futures);
/* Hands the node over for delivery, the first time; `call` says whose end it was. Any thread. */
void dt__node_fire(dt_node *node, uint32_t call);
/* In the loop's thread, or whichever empties the graveyard: the delivery itself. GIL. */
void dt__node_deliver(dt_node *node);
/* Drops the Python references and the caller's reference: nothing will be delivered. GIL. */
void dt__node_detach(dt_node *node);
void dt__node_release(dt_node *node); /* any thread */
/* As detach, by the queue with its own reference: after delivery, or in place of it. GIL. */
void dt__node_bury(dt_node *node);
void dt__node_enlist(dt_node *node, dt_node_list *list);
void dt__node_unlist(dt_node *node); /* in no list: does nothing */

/* ---- bridge.c ------------------------------------------------------------------------------ */

/* The running loop of this thread: 1 and a new reference, 0 when there is none, -1 on an error. */
int dt__running_loop(PyObject **loop);
/* The same loop's bridge, made and registered at the first call in that loop; owned. NULL with an
 * exception. The loop must be the running one. */
dt_bridge *dt__bridge_for(PyObject *loop);
dt_bridge *dt__bridge_retain(dt_bridge *bridge);
void dt__bridge_release(dt_bridge *bridge); /* any thread; after the last the fd is closed */
/* Queues the node (takes a reference) and wakes the loop. Any thread, never blocks. */
void dt__bridge_push(dt_bridge *bridge, dt_node *node);
/* Counts forks: what was made under another number belongs to a parent process. */
uint32_t dt__fork_generation(void);

/* ---- await.c ------------------------------------------------------------------------------- */

/* Interned names, made once. */
typedef struct dt_names {
    PyObject *create_future, *set_result, *blocking, *call_soon, *add_reader, *context, *done;
} dt_names;
extern dt_names dt__names;
int dt__names_init(void);

/* Where a set of futures stands: FAILED as soon as one failed or was cancelled (*failed is that
 * one), READY when all are. */
dt_future_state dt__futures_state(dt_future *const *futures, Py_ssize_t count, dt_future **failed);
/* Raises the error of a failed or cancelled future as a new exception object. */
void dt__raise_failure(const dt_future *future);
/* The future that failed as dt_tensor_state said; borrowed. */
dt_future *dt__tensor_failure(dt_tensor *t, dt_future *told);
/* An attribute of asyncio, new reference; the module is imported when first needed. */
PyObject *dt__asyncio_get(const char *name);

/* An iterator that waits for `future` (retained) and gives `owner`. */
PyObject *dt__await_new_for(PyObject *owner, dt_future *future);
/* An iterator that waits for the TensorFuture `owner`. */
PyObject *dt__await_new_for_future(PyObject *owner);

/* ---- future.c ------------------------------------------------------------------------------ */

/* A TensorFuture over futures (taken: the array is PyMem memory, the entries owned) that resolves
 * to `value`, or, when that is NULL, to a torch.Tensor over `snapshot`. References are taken also
 * on failure. */
PyObject *dt__future_new(dt_future **futures, Py_ssize_t count, dt_tensor *snapshot,
                         PyObject *value);
bool dt__future_is_done(PyObject *self);
/* The result, new reference; NULL with its exception, or InvalidStateError. */
PyObject *dt__future_result(PyObject *self);
/* A node with that target (borrowed) that fires when self is done, a reference for the caller; NULL
 * and no exception when it is done already. */
dt_node *dt__future_watch(PyObject *self, dt_bridge *bridge, void (*deliver)(dt_node *node),
                          PyObject *target);

/* ---- turn.c -------------------------------------------------------------------------------- */

/* Awaits until the next look at the clock, at least 1; for all threads together. GIL. */
extern uint32_t dt__turn_left;
/* 1: the loop has waited for too long, yield; 0: go on; -1: exception. */
int dt__turn_check(void);
/* What each await asks that has nothing to wait for. */
static inline int dt__turn_over(void) {
    if (DT_LIKELY(--dt__turn_left != 0)) return 0;
    return dt__turn_check();
}

/* ---- limit.c ------------------------------------------------------------------------------- */

extern int64_t dt__limits_alive; /* limits that were ever entered and live; GIL */
/* Counts a call in the limits of this context until its future is complete. */
void dt__limits_count(dt_future *future);

/* ---- wait.c -------------------------------------------------------------------------------- */

/* As dt_py_wait; also ends, with 0, when *stop becomes true (NULL: never). */
int dt__wait(dt_future *future, double timeout_s, const char *what, const _Atomic(bool) *stop);
/* The current task of the running loop; new reference, NULL: none. No exception. */
PyObject *dt__current_task(PyObject *loop);

#endif
