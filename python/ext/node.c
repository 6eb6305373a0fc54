/* node.c: completion nodes: from the thread that completes a future to a place with the GIL.
 *
 *   new --arm--> waiting --fire (once)--> queued at a bridge --deliver--> done
 *                   |                          '--(loop gone) graveyard--> buried
 *                   '--detach--> empty: still woken by its futures, delivers nothing
 *
 * References of a node: the caller of dt__node_new, one for each future that has not woken it, one
 * for the queue it is in.  Any of them may be the last.
 *
 * I1: wake() touches no Python object and takes no lock.
 * I2: when the last reference goes in a C thread, the Python references are gone: the caller keeps
 *     its reference until it detached the node, or gave the node away to be fired.
 */
#include "python/ext/await.h"

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "runtime/trace.h"

static size_t node_size(size_t count) { return sizeof(dt_node) + count * sizeof(dt_link); }

static void free_last(dt_node *node) {
    DT_ASSERT(node->target == NULL && node->owner == NULL && node->context == NULL);
    if (node->bridge != NULL) dt__bridge_release(node->bridge);
    dt_free(node, node_size(node->count));
}

void dt__node_release(dt_node *node) {
    if (atomic_fetch_sub_explicit(&node->refs, 1, memory_order_acq_rel) == 1) free_last(node);
}

dt_node *dt__node_retain(dt_node *node) {
    atomic_fetch_add_explicit(&node->refs, 1, memory_order_relaxed);
    return node;
}

static void drop_python(dt_node *node) {
    /* All are taken off first: dropping one may run any code, which may come back here. */
    PyObject *target = node->target, *owner = node->owner, *context = node->context;
    node->target = node->owner = node->context = NULL;
    Py_XDECREF(target);
    Py_XDECREF(context);
    Py_XDECREF(owner);
}

void dt__node_enlist(dt_node *node, dt_node_list *list) {
    node->list = list;
    node->list_place = list->end;
    *list->end = node;
    list->end = &node->list_next;
}

void dt__node_unlist(dt_node *node) {
    if (node->list == NULL) return;
    *node->list_place = node->list_next;
    if (node->list_next != NULL)
        node->list_next->list_place = node->list_place;
    else
        node->list->end = node->list_place;
    node->list = NULL;
    node->list_next = NULL;
    node->list_place = NULL;
}

void dt__node_bury(dt_node *node) {
    dt__node_unlist(node);
    drop_python(node);
    dt__node_release(node);
}

void dt__node_detach(dt_node *node) { dt__node_bury(node); }

static dt_node *node_of_grave(dt_grave *grave) {
    return (dt_node *)((char *)grave - offsetof(dt_node, grave));
}

void dt__node_deliver(dt_node *node) {
    bool traced = DT_UNLIKELY(dt_trace_is_on()) && node->target != NULL;
    if (DT_LIKELY(!traced)) {
        node->deliver(node);
        return;
    }
    dt_py_trace_thread();
    dt_trace_record r = {
        .kind = DT_TRACE_DELIVER, .call = node->call, .start_ns = dt_trace_now_ns()};
    node->deliver(node);
    r.end_ns = dt_trace_now_ns();
    dt_trace_append(&r);
}

static void deliver_without_loop(dt_grave *grave) {
    dt_node *node = node_of_grave(grave);
    dt__node_deliver(node);
    dt__node_bury(node);
}

void dt__node_fire(dt_node *node, uint32_t call) {
    if (atomic_exchange_explicit(&node->fired, true, memory_order_acq_rel)) return;
    node->call = call;
    dt__node_retain(node); /* the queue's */
    if (node->bridge != NULL) {
        dt__bridge_push(node->bridge, node);
    } else {
        node->grave.bury = deliver_without_loop;
        dt_graveyard_post(&node->grave);
    }
}

static bool has_failed(const dt_future *future) {
    dt_future_state state = dt_future_get_state(future);
    return state == DT_FUTURE_FAILED || state == DT_FUTURE_CANCELLED;
}

/* Runs in the thread that completes the future. */
static void wake(dt_waiter *waiter) {
    dt_link *link = (dt_link *)((char *)waiter - offsetof(dt_link, waiter));
    dt_node *node = link->node;
    bool failed = node->count > 1 && has_failed(link->future);
    bool last = atomic_fetch_sub_explicit(&node->left, 1, memory_order_acq_rel) == 1;
    if (last || failed) dt__node_fire(node, dt_future_call(link->future));
    dt__node_release(node);
}

dt_node *dt__node_new(dt_bridge *bridge, Py_ssize_t count, void (*deliver)(dt_node *node)) {
    DT_ASSERT(count >= 0 && count < UINT32_MAX / 2);
    dt_node *node = dt_alloc(node_size((size_t)count));
    if (node == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    atomic_init(&node->refs, 1);
    atomic_init(&node->left, 0);
    atomic_init(&node->fired, false);
    node->count = (uint32_t)count;
    node->call = 0;
    node->next = NULL;
    node->bridge = bridge != NULL ? dt__bridge_retain(bridge) : NULL;
    node->deliver = deliver;
    node->target = node->owner = node->context = NULL;
    node->list = NULL;
    node->list_next = NULL;
    node->list_place = NULL;
    node->grave = (dt_grave){NULL, NULL};
    for (Py_ssize_t i = 0; i < count; i++) node->links[i] = (dt_link){{NULL, wake}, node, NULL};
    return node;
}

bool dt__node_arm(dt_node *node, dt_future *const *futures) {
    /* The one more keeps a future that completes now from firing a half-armed node. */
    atomic_store_explicit(&node->left, node->count + 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&node->refs, node->count, memory_order_relaxed);
    bool failed = false;
    uint32_t complete = 0;
    for (uint32_t i = 0; i < node->count; i++) {
        node->links[i].future = futures[i];
        if (dt_future_add_waiter(futures[i], &node->links[i].waiter)) continue;
        complete++;
        failed |= has_failed(futures[i]);
    }
    uint32_t before = atomic_fetch_sub_explicit(&node->left, complete + 1, memory_order_acq_rel);
    for (uint32_t i = 0; i < complete; i++) dt__node_release(node);
    return before != complete + 1 && !failed;
}
