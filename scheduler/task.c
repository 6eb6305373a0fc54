/* task.c: the memory of tasks, the counts of the storages they touch, and how a task ends.
 *
 *   dt_task_new --dt_sched_submit--> (raise counts) ... dt__task_end (lower counts, on_end)
 *        |                                                   |
 *        '----------- dt_task_free                           '--> dt__task_destroy (controller)
 *
 * A task and its accesses (graph.h) are one block, so that submitting and linking allocate nothing.
 * Only a call with more operands than dt_task_new was told, moved in later, makes the controller
 * allocate.
 *
 * I1: dt__task_end orders: failure of the outputs, then the counts (release), then on_end.
 */
#include "scheduler/task.h"

#include <string.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "scheduler/graph.h"
#include "scheduler/plant.h"
#include "scheduler/trace_task.h"

dt_status dt_task_new(dt_task_kind kind, int nout, int nin, dt_task **out) {
    int capacity = nout + nin > DT__TASK_ACCESSES_MIN ? nout + nin : DT__TASK_ACCESSES_MIN;
    size_t header = (sizeof(dt_task) + 15) & ~(size_t)15;
    size_t bytes = header + (size_t)capacity * sizeof(dt_graph_access);
    dt_task *task;
    DT_ALLOC_OR_FAIL(task, bytes);
    memset(task, 0, sizeof *task);
    dt_status status = dt_call_init(&task->call, nout, nin);
    if (status != DT_OK) {
        dt_free(task, bytes);
        return status;
    }
    task->kind = (uint8_t)kind;
    task->accesses = (dt_graph_access *)((char *)task + header);
    task->accesses_capacity = capacity;
    task->block_bytes = bytes;
    *out = task;
    return DT_OK;
}

void dt__task_destroy(dt_task *task) {
    if (task->on_free != NULL) task->on_free(task);
    dt_call_fini(&task->call);
    dt_file_release(task->io.file);
    dt_error_release(task->error);
    size_t header = (sizeof(dt_task) + 15) & ~(size_t)15;
    if ((char *)task->accesses != (char *)task + header)
        dt_free(task->accesses, (size_t)task->accesses_capacity * sizeof(dt_graph_access));
    dt_free(task, task->block_bytes);
}

void dt_task_free(dt_task *task) {
    if (task == NULL) return;
    DT_ASSERT(atomic_load_explicit(&task->state, memory_order_relaxed) == DT_TASK_NEW);
    dt__task_destroy(task);
}

static inline bool output_is_free(dt_storage *s) {
    return atomic_load_explicit(&s->writers, memory_order_acquire) == 0 &&
           (atomic_load_explicit(&s->readers, memory_order_acquire) == 0 || DT_PLANT(25));
}

static inline bool input_is_ready(dt_storage *s) {
    return atomic_load_explicit(&s->writers, memory_order_acquire) == 0 &&
           atomic_load_explicit(&s->data, memory_order_acquire) != NULL;
}

bool dt__task_raise_counts(dt_task *task) {
    const dt_call *call = &task->call;
    bool free = true;
    for (int k = 0; k < call->nout; k++) free &= output_is_free(dt_call_out(call, k)->storage);
    for (int k = 0; k < call->nin; k++)
        if (dt_call_in(call, k) != NULL) free &= input_is_ready(dt_call_in(call, k)->storage);
    for (int k = 0; k < call->nout; k++)
        atomic_fetch_add_explicit(&dt_call_out(call, k)->storage->writers, 1, memory_order_relaxed);
    for (int k = 0; k < call->nin; k++) {
        dt_tensor *t = dt_call_in(call, k);
        if (t != NULL) atomic_fetch_add_explicit(&t->storage->readers, 1, memory_order_relaxed);
    }
    return free;
}

static void lower_counts(const dt_call *call) {
    for (int k = 0; k < call->nout; k++)
        atomic_fetch_sub_explicit(&dt_call_out(call, k)->storage->writers, 1, memory_order_release);
    for (int k = 0; k < call->nin; k++) {
        dt_tensor *t = dt_call_in(call, k);
        if (t != NULL) atomic_fetch_sub_explicit(&t->storage->readers, 1, memory_order_release);
    }
}

void dt_call_fail_outputs(const dt_call *call, dt_error *error) {
    for (int k = 0; k < call->nout; k++) {
        dt_error *none = NULL;
        if (dt_call_out(call, k) == NULL) continue;
        dt_storage *s = dt_call_out(call, k)->storage;
        dt_error_retain(error);
        if (!atomic_compare_exchange_strong_explicit(&s->failure, &none, error,
                                                     memory_order_acq_rel, memory_order_acquire))
            dt_error_release(error);
    }
}

dt_error *dt_call_operand_failure(const dt_call *call) {
    for (int k = 0; k < call->nout + call->nin; k++) {
        dt_tensor *t = call->operands[k];
        if (t == NULL) continue;
        dt_error *e = atomic_load_explicit(&t->storage->failure, memory_order_acquire);
        if (DT_UNLIKELY(e != NULL)) return e;
    }
    return NULL;
}

void dt__task_fail(dt_task *task, dt_status status) {
    if (task->error != NULL) return;
    task->error = dt_error_capture(status);
    uint32_t op = task->kind == DT_TASK_COMPUTE ? (uint32_t)task->call.op + 1 : 0;
    dt_error_set_origin(task->error, op, task->site);
}

void dt__task_drop(dt_task *task) {
    task->dropped = true;
    dt__task_fail(task, dt_fail(DT_E_CANCELLED, "the result was given up before it was computed"));
}

uint32_t dt__task_references(const dt_task *task, const dt_tensor *t) {
    const dt_call *call = &task->call;
    uint32_t n = 0;
    for (int k = 0; k < call->nout + call->nin; k++) n += call->operands[k] == t;
    return n;
}

bool dt__task_is_unobservable(const dt_task *task, uint32_t others) {
    const dt_call *call = &task->call;
    for (int k = 0; k < call->nout; k++) {
        const dt_tensor *t = dt_call_out(call, k);
        if (!dt__task_is_held_by(t, dt__task_references(task, t) + others)) return false;
    }
    return call->nout > 0;
}

void dt__task_end(dt_task *task, int64_t now_ns) {
    task->time_end_ns = now_ns;
    if (DT_PLANT(18)) lower_counts(&task->call);
    /* A fence writes nothing. */
    if (DT_UNLIKELY(task->error != NULL) && task->kind != DT_TASK_FENCE)
        dt_call_fail_outputs(&task->call, task->error);
    dt__trace_ended(task);
    if (!DT_PLANT(18)) lower_counts(&task->call);
    if (task->on_end != NULL) task->on_end(task);
}
