/* dispatch.h: the way of one op in the client: infer, check, place, run inline or submit.
 *
 * All functions here need the client lock (the GIL in Python) unless they say otherwise.
 *
 *   dt_dispatch(call)
 *     rule           outs, operands, immediates, params from the arguments; metadata errors
 *     target         in-place / out=: shape, dtype and overlap checks, the write redirected
 *     lane           inline when every input is ready, nothing conflicts and the cost is small;
 *                    else a dt_task with a dt_future goes to the scheduler
 *
 * I1: an op that returned DT_OK has owned references in outs[0..nout).
 * I2: storage->last_write is set before the task is submitted, so that an await that follows in
 *     program order binds to it.
 */
#ifndef DT_FUTURES_DISPATCH_H
#define DT_FUTURES_DISPATCH_H

#include "futures/future.h"
#include "runtime/op.h"
#include "scheduler/sched.h"

#define DT_INLINE_COST_NS_MAX 5000.0

/* Runs one op. On DT_OK call->outs are owned by the caller; on an error nothing is left behind. */
dt_status dt_dispatch(dt_op_call *call) DT_MUST_CHECK;

/* Where the bytes of t stand.
 * READY: no task writes them; FAILED: the last writer failed; PENDING: *future is what to wait for
 * (borrowed; may be NULL otherwise). Drops last_write when it has completed well, and settles t
 * when it was deferred: after READY all metadata is known. */
dt_future_state dt_tensor_state(dt_tensor *t, dt_future **future);

/* The shared scheduler, started at first use with the environment's settings (DTORCH_IO,
 * DTORCH_NUM_THREADS). After a fork the child gets a new one. NULL with error text on failure. */
dt_sched *dt_runtime(void);
dt_status dt_runtime_get(dt_sched **out) DT_MUST_CHECK; /* the same, with the error's status */
bool dt_runtime_started(void);
/* Stops the shared scheduler (interpreter shutdown); later calls fail with DT_E_SHUTDOWN. Not with
 * the GIL held. */
void dt_runtime_shutdown(void);

/* Submits a task that another part has built (reads of files, fences): attaches a new future to
 * it, sets last_write of the outputs, hands it over. *future_out (optional) is an owned reference.
 * Takes the task in any case. */
dt_status dt_runtime_submit(dt_task *task, dt_future **future_out) DT_MUST_CHECK;

/* A future that completes when everything submitted so far that touches t (readers too when
 * `readers`) has ended; NULL in *out when there is nothing to wait for. */
dt_status dt_tensor_fence(dt_tensor *t, bool readers, dt_future **out) DT_MUST_CHECK;

/* A future that completes when everything submitted so far, by any thread, has ended, well or not;
 * NULL in *out when nothing is in flight. */
dt_status dt_runtime_fence(dt_future **out) DT_MUST_CHECK;

/* Around every wait for a future; `blocks`: dt_wait_block follows.  begin: what was held back for
 * others to join starts, what is parked upstream runs again, and the future counts as wanted; end:
 * the wait is over, or nobody cares any more whether it is; give_up: the waiter was cancelled:
 * unless others wait, what has not started of the computation is put aside until somebody waits
 * again. */
void dt_wait_begin(dt_future *future, bool blocks);
void dt_wait_end(dt_future *future);
void dt_wait_give_up(dt_future *future);

/* Waits for the future in this thread, which computes meanwhile what it can (see dt_sched_help),
 * and then sleeps: as dt_future_wait.  _begin with the client lock, before dt_wait_begin's count is
 * given back; the wait itself without. */
dt_sched *dt_wait_block_begin(void);
dt_status dt_wait_block(dt_sched *sched, dt_future *future, int64_t timeout_ns,
                        int (*interrupted)(void *context), void *context) DT_MUST_CHECK;

/* The last reference that a user's handle held; the value is not computed if nobody else can see
 * it. */
void dt_tensor_drop_handle(dt_tensor *t);

/* Copy of src into dst (cast, broadcast already applied: same shapes). */
dt_status dt_copy_into(dt_tensor *dst, dt_tensor *src) DT_MUST_CHECK;

/* What only the client knows of a call: asked for each task that is submitted, and for each op that
 * failed inline. python/ installs it; without one all is 0. */
typedef struct dt_client_note {
    uint32_t site;     /* the user's line, see dt_error_set_origin */
    uint32_t client;   /* the coroutine or thread, for traces */
    uint8_t priority;  /* dt_priority */
    dt_future *future; /* told, not asked: of the task that is about to be submitted, borrowed;
                          NULL: an op failed inline */
} dt_client_note;
typedef void (*dt_note_hook)(dt_client_note *note);
void dt_dispatch_set_note_hook(dt_note_hook hook);

/* Called when the client has to wait (an op on external memory); python/ installs how to do so
 * without the GIL. Returns DT_OK once the
 * future is complete, in whatever state; DT_E_PYTHON when a signal handler raised. */
typedef dt_status (*dt_wait_hook)(dt_future *future);
void dt_dispatch_set_wait_hook(dt_wait_hook hook);

/* Called when records_max tasks are in flight: DT_OK to look again (it waited, without the GIL), or
 * DT_E_QUEUE_FULL (inside a running loop). */
typedef dt_status (*dt_room_hook)(dt_sched *sched);
void dt_dispatch_set_room_hook(dt_room_hook hook);

#endif
