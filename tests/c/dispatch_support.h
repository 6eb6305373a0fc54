/* dispatch_support.h: ops through dispatch, and tasks that keep a tensor pending for a while. */
#ifndef DT_TESTS_DISPATCH_SUPPORT_H
#define DT_TESTS_DISPATCH_SUPPORT_H

#include <time.h>

#include "futures/dispatch.h"
#include "tests/c/op_support.h"

#define DISPATCH_UNUSED __attribute__((unused))

static DISPATCH_UNUSED void device(void) {
    dt_device_register_cpu(&dt_cpu_device);
    dt_storage_set_future_release(dt_future_release);
}

static DISPATCH_UNUSED dt_status dispatch(dt_tensor **out, dt_tensor *target, bool inplace,
                                          dt_op_id id, int nargs, const dt_arg *args) {
    dt_op_call c;
    op_prepare(&c, id, nargs, args);
    c.target = target;
    c.inplace = inplace;
    DT_TRY(dt_dispatch(&c));
    for (int k = 1; k < c.nout; k++) dt_tensor_release(c.outs[k]);
    if (out)
        *out = c.outs[0];
    else
        dt_tensor_release(c.outs[0]);
    return DT_OK;
}
#define DO(out, id, ...) dispatch(out, NULL, false, id, ARGS(__VA_ARGS__))
#define DO_INPLACE(t, id, ...) dispatch(NULL, t, true, id, ARGS(__VA_ARGS__))
#define DO_OUT(t, id, ...) dispatch(NULL, t, false, id, ARGS(__VA_ARGS__))

static DISPATCH_UNUSED dt_status add_into(dt_tensor *to, dt_tensor *t) {
    return DO_INPLACE(to, DT_OP_add, arg_tensor(to), arg_tensor(t), arg_integer(1));
}

static DISPATCH_UNUSED dt_status add_new(dt_tensor **out, dt_tensor *a, dt_tensor *b) {
    return DO(out, DT_OP_add, arg_tensor(a), arg_tensor(b), arg_integer(1));
}

static DISPATCH_UNUSED dt_status fill(dt_tensor *t, int64_t value) {
    return DO_INPLACE(t, DT_OP_fill, arg_tensor(t), arg_integer(value));
}

/* Waits until t's bytes are there; the error of whoever should have written them. */
static DISPATCH_UNUSED dt_status await(dt_tensor *t) {
    dt_future *future;
    while (dt_tensor_state(t, &future) == DT_FUTURE_PENDING) /* of a mesh: part by part */
        DT_TRY(dt_future_wait(future, -1, NULL, NULL));
    dt_future_state state = dt_tensor_state(t, &future);
    ck_assert_int_ne(state, DT_FUTURE_PENDING);
    return state == DT_FUTURE_READY ? DT_OK : dt_error_restore(dt_future_error(future));
}

static _Atomic(bool) let_go;

static DISPATCH_UNUSED dt_status hold_run(const dt_call *call, const dt_part *part) {
    (void)part;
    struct timespec ts = {0, (long)call->params.i[0]};
    do {
        nanosleep(&ts, NULL);
    } while (call->params.i[2] && !atomic_load(&let_go));
    return call->params.i[1] ? dt_fail((dt_status)call->params.i[1], "held and dropped") : DT_OK;
}
static DISPATCH_UNUSED double hold_cost(const dt_call *call) { return (double)call->params.i[0]; }
static DISPATCH_UNUSED const dt_kernel hold_kernel = {
    .name = "hold", .run = hold_run, .cost_ns = hold_cost};

/* Keeps t pending for `ns`, then lets it go as it was, or failed with `status`. */
static DISPATCH_UNUSED dt_status hold(dt_tensor *t, int64_t ns, dt_status status) {
    dt_task *task;
    DT_TRY(dt_task_new(DT_TASK_COMPUTE, 1, 0, &task));
    task->call.kernel = &hold_kernel;
    task->call.operands[0] = dt_tensor_retain(t);
    task->call.params.i[0] = ns;
    task->call.params.i[1] = status;
    return dt_runtime_submit(task, NULL);
}

/* Keeps t pending until let_go is set. */
static DISPATCH_UNUSED dt_status hold_on(dt_tensor *t, dt_status status) {
    atomic_store(&let_go, false);
    dt_task *task;
    DT_TRY(dt_task_new(DT_TASK_COMPUTE, 1, 0, &task));
    task->call.kernel = &hold_kernel;
    task->call.operands[0] = dt_tensor_retain(t);
    task->call.params.i[0] = 1000000;
    task->call.params.i[1] = status;
    task->call.params.i[2] = true;
    return dt_runtime_submit(task, NULL);
}

static DISPATCH_UNUSED bool pending(dt_tensor *t) {
    return dt_tensor_state(t, NULL) == DT_FUTURE_PENDING;
}
#define MS 1000000

#endif
