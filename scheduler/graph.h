/* graph.h: which task waits for which, through the storages that they use.
 *
 * Every storage has a queue of accesses in program order.  An access is granted when nothing that
 * conflicts stands before it: a read when only reads do, a write when it stands first.  A task
 * whose accesses are all granted is ready.  When a task is retired its accesses leave their queues,
 * and what comes to the front is granted.  So read-after-write, write-after-read and
 * write-after-write need no edges, no counts of readers and no memory of their own, and each access
 * is looked at once when it comes and once when it is granted.
 *
 *   queue of s:   W1   R2 R3   W4   R5        W1 retired: R2, R3 granted; both retired: W4 ...
 *                 ^granted
 *
 * Everything here is the controller's and pure: no clock, no thread, no I/O.
 */
#ifndef DT_SCHEDULER_GRAPH_H
#define DT_SCHEDULER_GRAPH_H

#include "scheduler/sched.h"

typedef struct dt_graph_access {
    struct dt_graph_access *prev; /* of the first: the last */
    struct dt_graph_access *next; /* of the last: NULL */
    dt_task *task;
    dt_storage *storage;
    bool write;
    bool granted;
} dt_graph_access;

/* Appends the task's accesses to the queues; task->blockers says how many are not granted.  `owner`
 * numbers the scheduler: a queue that another one left behind is a forked child's copy of what the
 * parent was doing; it points at tasks that nobody will retire here, and is dropped unseen.  Fails
 * (nothing linked) only when a call was moved in that has more operands than the task has room for
 * and memory is out. */
dt_status dt__graph_link(dt_task *task, uint8_t owner) DT_MUST_CHECK;

/* Removes them. ready(context, t) is called for every task whose last blocker this was. */
void dt__graph_unlink(dt_task *task, void (*ready)(void *context, dt_task *task), void *context);

/* Whole-structure check of one storage's queue (debug builds and tests). */
bool dt__graph_queue_is_valid(const dt_storage *storage);

#endif
