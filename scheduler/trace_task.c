/* trace_task.c: records of tasks, made of what the task itself knows. See trace_task.h. */
#include "scheduler/trace_task.h"

#include "runtime/device.h"
#include "runtime/op.h"

const char *dt_task_label(const dt_task *task) {
    static const char *const other_kinds[DT_TASK_ASK] = {
        [DT_TASK_READ] = "read file",
        [DT_TASK_WRITE] = "write file",
        [DT_TASK_FENCE] = "fence",
        [DT_TASK_TIMER] = "timer",
    };
    if (task->kind != DT_TASK_COMPUTE) return other_kinds[task->kind];
    const dt_device_ops *cpu = dt_device_cpu();
    bool of_the_registry = cpu != NULL && task->call.op < DT_OP_COUNT &&
                           cpu->kernels[task->call.op] == task->call.kernel;
    return of_the_registry ? NULL : task->call.kernel->name;
}

int64_t dt_call_bytes(const dt_call *call) {
    int64_t bytes = 0;
    for (int k = 0; k < call->nout + call->nin; k++) {
        const dt_tensor *t = call->operands[k];
        if (t == NULL) continue;
        /* The numel of a deferred tensor is the client's, who may be about to find it out. */
        bool deferred = (t->storage->flags & DT_STORAGE_DEFERRED) != 0;
        bytes += deferred ? (int64_t)t->storage->bytes
                          : t->numel * (int64_t)dt_dtype_size((dt_dtype)t->dtype);
    }
    return bytes;
}

static int64_t bytes_of(const dt_task *task) {
    if (task->kind == DT_TASK_READ || task->kind == DT_TASK_WRITE) return task->io.length;
    return task->kind == DT_TASK_COMPUTE ? dt_call_bytes(&task->call) : 0;
}

static dt_trace_record about(const dt_task *task, dt_trace_kind kind) {
    return (dt_trace_record){
        .kind = (uint8_t)kind,
        .seq = task->seq,
        .call = task->client,
        .op = task->call.op,
        .label = dt_task_label(task),
    };
}

void dt__trace_task(const dt_task *task) {
    dt_trace_record r = about(task, DT_TRACE_TASK);
    r.submit_ns = task->time_submit_ns;
    r.start_ns = task->time_start_ns;
    r.end_ns = task->time_end_ns;
    r.bytes = bytes_of(task);
    r.leader = task->leader_seq;
    if (task->dropped) {
        r.flags |= DT_TRACE_DROPPED;
        r.start_ns = 0; /* a worker may have come as far as that */
    }
    if (task->kind == DT_TASK_READ || task->kind == DT_TASK_WRITE) r.flags |= DT_TRACE_IO;
    if (task->direct) r.flags |= DT_TRACE_DIRECT;
    if (task->error != NULL) {
        r.flags |= DT_TRACE_FAILED;
        r.count = dt_error_status(task->error);
    }
    dt_trace_append(&r);
}

void dt__trace_share_note(dt_trace_share *share, const dt_task *task, int64_t start_ns) {
    share->record = about(task, DT_TRACE_PARTS);
    if (task->members > 1) share->record.label = "fused pass";
    share->record.start_ns = start_ns != 0 ? start_ns : dt_trace_now_ns();
}

void dt__trace_share_append(dt_trace_share *share, int parts) {
    if (parts == 0) return; /* it came too late */
    share->record.end_ns = dt_trace_now_ns();
    share->record.count = parts;
    dt_trace_append(&share->record);
}

void dt__trace_round_append(const dt_trace_round *round, int64_t linked, int64_t ended,
                            int64_t runs) {
    dt_trace_record r = {
        .kind = DT_TRACE_ROUND,
        .start_ns = round->start_ns,
        .seq = (uint64_t)(linked - round->linked),
        .leader = (uint64_t)(ended - round->ended),
        .count = (int32_t)(runs - round->runs),
    };
    if (r.seq + r.leader == 0 && r.count == 0) return;
    r.end_ns = dt_trace_now_ns();
    dt_trace_append(&r);
}
