/* future.h: the completion state of a task, and who waits for it.
 *
 *   PENDING --dt_future_complete--> READY | FAILED | CANCELLED      (once; by the ending thread)
 *
 * The waiters form a lock-free list: pushed by CAS, taken whole by the exchange that completes the
 * future.  A waiter's wake() runs in the completing thread, in the order of registration, and must
 * not block nor take the GIL.
 *
 * I1: state changes once, and error is set before it does.
 * I2: every waiter added with success is woken exactly once, unless it was removed by its owner
 *     through an `abandoned` flag of its own (nodes are never unlinked).
 * I3: a future made before a fork and still pending in the child reports DT_E_SHUTDOWN there.
 */
#ifndef DT_FUTURES_FUTURE_H
#define DT_FUTURES_FUTURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/status.h"

typedef enum dt_future_state {
    DT_FUTURE_PENDING,
    DT_FUTURE_READY,
    DT_FUTURE_FAILED,
    DT_FUTURE_CANCELLED,
} dt_future_state;

typedef struct dt_waiter {
    struct dt_waiter *next;
    void (*wake)(struct dt_waiter *waiter);
} dt_waiter;

typedef struct dt_future dt_future;

dt_status dt_future_new(dt_future **out) DT_MUST_CHECK;
dt_future *dt_future_retain(dt_future *future);
void dt_future_release(dt_future *future); /* NULL passes through; any thread */

dt_future_state dt_future_get_state(const dt_future *future); /* acquire */

/* Completes: READY when error is NULL, CANCELLED for DT_E_CANCELLED, else FAILED. Retains error,
 * and arms it: a failure wants to be seen (status.h). Wakes the waiters. */
void dt_future_complete(dt_future *future, dt_error *error);

/* False when the future is complete already (the waiter was not added, wake() is not called). */
bool dt_future_add_waiter(dt_future *future, dt_waiter *waiter);

/* Who waits.  Everybody who waits for a future, in whatever way, counts as wanting it until then;
 * whoever gives up before it is complete says so, and when nobody is left the future is abandoned
 * until somebody wants it again (scheduler/demand.c parks its task). Any thread. */
void dt_future_want(dt_future *future);
void dt_future_unwant(dt_future *future);  /* the wait is over */
bool dt_future_give_up(dt_future *future); /* ... too early: true when nobody is left */
bool dt_future_is_wanted(const dt_future *future);
bool dt_future_is_abandoned(const dt_future *future);

/* The number of the task in the profile that is being recorded (trace.h); set before others know
 * the future. 0: none. */
void dt_future_set_call(dt_future *future, uint32_t call);
uint32_t dt_future_call(const dt_future *future);

/* The error of a failed or cancelled future, borrowed; NULL otherwise. */
dt_error *dt_future_error(const dt_future *future);

/* Blocks this thread (no GIL held) until complete or timeout_ns passed (negative: for ever).
 * Wakes every slice_ns to call `interrupted(context)` where given; a nonzero answer ends the wait
 * with DT_IN_PROGRESS. DT_OK: complete (in whatever state). DT_IN_PROGRESS: timed out. */
dt_status dt_future_wait(dt_future *future, int64_t timeout_ns, int (*interrupted)(void *context),
                         void *context) DT_MUST_CHECK;

#endif
