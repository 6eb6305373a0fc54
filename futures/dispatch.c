/* dispatch.c: see dispatch.h for the way of one op.
 *
 * I1: a failed rule leaves nothing behind; from submission on errors are the future's.
 * I2: outs[] hold references of their own, the task holds others: either may die first.
 * I3: an op that touches an external storage has ended when dt_dispatch returns, unless it only
 *     reads small ones, whose bytes are then copied at the call.
 */
#include "futures/dispatch.h"

#include <string.h>

#include "futures/place.h"
#include "runtime/assert.h"
#include "runtime/device.h"
#include "runtime/dist.h"
#include "runtime/rules.h"
#include "runtime/stats.h"
#include "scheduler/trace_task.h"

#define EXTERNAL_COPY_BYTES_MAX (1 << 20)

static dt_wait_hook wait_hook;
static dt_room_hook room_hook;
static dt_note_hook note_hook;

void dt_dispatch_set_wait_hook(dt_wait_hook hook) { wait_hook = hook; }
void dt_dispatch_set_room_hook(dt_room_hook hook) { room_hook = hook; }
void dt_dispatch_set_note_hook(dt_note_hook hook) { note_hook = hook; }

static dt_status wait_for(dt_future *future) {
    if (wait_hook) return wait_hook(future);
    dt_wait_begin(future, true);
    dt_status status = dt_wait_block(dt_wait_block_begin(), future, -1, NULL, NULL);
    dt_wait_end(future);
    return status;
}

/* ---- who waits ------------------------------------------------------------------------------- */

void dt_wait_begin(dt_future *future, bool blocks) {
    dt_future_want(future);
    if (!dt_runtime_started()) return; /* a forked child, or the end */
    dt_sched *sched = dt_runtime();
    if (DT_UNLIKELY(dt_sched_has_parked(sched))) dt_sched_tell(sched, DT_TASK_ASK, NULL);
    dt_sched_demand(sched, blocks);
}

void dt_wait_end(dt_future *future) { dt_future_unwant(future); }

void dt_wait_give_up(dt_future *future) {
    if (dt_future_give_up(future) && dt_runtime_started())
        dt_sched_tell(dt_runtime(), DT_TASK_ABANDON, NULL);
}

dt_sched *dt_wait_block_begin(void) {
    if (!dt_runtime_started()) return NULL;
    dt_sched *sched = dt_runtime();
    dt_sched_helper_enter(sched);
    return sched;
}

static bool is_complete(void *future) { return dt_future_get_state(future) != DT_FUTURE_PENDING; }

dt_status dt_wait_block(dt_sched *sched, dt_future *future, int64_t timeout_ns,
                        int (*interrupted)(void *context), void *context) {
    if (sched != NULL) dt_sched_help(sched, is_complete, future);
    return dt_future_wait(future, timeout_ns, interrupted, context);
}

/* Whether the handle that goes may be the last that could see a value still to be computed: beside
 * it only the writer's operand is left, t itself or another view of the bytes. The controller sees
 * whether that is so. */
static bool may_be_last(const dt_tensor *t) {
    const dt_storage *s = t->storage;
    if (atomic_load_explicit(&s->readers, memory_order_relaxed) != 0) return false;
    uint32_t bytes_refs = atomic_load_explicit(&s->refs, memory_order_relaxed);
    uint32_t refs = atomic_load_explicit(&t->refs, memory_order_relaxed);
    return (bytes_refs == 1 && refs == 2) || (bytes_refs == 2 && refs == 1);
}

/* The handle held the only reference to the parts, each of which may be computed for nobody now. */
static void drop_parts(dt_tensor *t) {
    int count;
    dt_tensor *const *parts = dt_tensor_parts(&t, &count);
    dt_tensor *kept[DT_MESH_DEVICES_MAX];
    for (int k = 0; k < count; k++) kept[k] = dt_tensor_retain(parts[k]);
    dt_tensor_release(t);
    for (int k = 0; k < count; k++) dt_tensor_drop_handle(kept[k]);
}

void dt_tensor_drop_handle(dt_tensor *t) {
    if (DT_UNLIKELY(dt_tensor_is_dist(t))) {
        if (atomic_load_explicit(&t->refs, memory_order_acquire) == 1)
            drop_parts(t);
        else
            dt_tensor_release(t);
        return;
    }
    bool final = atomic_load_explicit(&t->storage->writers, memory_order_relaxed) == 0;
    if (DT_LIKELY(final) || !may_be_last(t) || !dt_runtime_started())
        dt_tensor_release(t);
    else
        dt_sched_tell(dt_runtime(), DT_TASK_RELEASE, t);
}

/* ---- state of a tensor ---------------------------------------------------------------------- */

/* FAILED as soon as one part has failed. */
static dt_future_state state_of_parts(dt_tensor *t, dt_future **future) {
    dt_dist *d = dt_dist_of(t);
    dt_future_state all = DT_FUTURE_READY;
    for (int k = 0; k < d->mesh->size; k++) {
        dt_future *one;
        dt_future_state state = dt_tensor_state(d->parts[k], &one);
        if (state == DT_FUTURE_READY) continue;
        if (future && (all == DT_FUTURE_READY || state != DT_FUTURE_PENDING)) *future = one;
        all = state;
        if (state != DT_FUTURE_PENDING) break;
    }
    if (all == DT_FUTURE_READY && dt_tensor_is_deferred(t)) dt_dist_settle(t);
    return all;
}

dt_future_state dt_tensor_state(dt_tensor *t, dt_future **future) {
    dt_storage *s = t->storage;
    if (future) *future = NULL;
    if (DT_UNLIKELY(dt_tensor_is_dist(t))) return state_of_parts(t, future);
    if (DT_LIKELY(s->last_write == NULL)) return DT_FUTURE_READY;
    dt_future_state state = dt_future_get_state(s->last_write);
    if (state == DT_FUTURE_READY) {
        dt_future *done = s->last_write;
        s->last_write = NULL;
        dt_future_release(done);
        if (DT_UNLIKELY(dt_tensor_is_deferred(t))) dt_tensor_settle(t);
        return state;
    }
    if (future) *future = s->last_write;
    return state;
}

static void set_last_write(dt_storage *s, dt_future *future) {
    dt_future *old = s->last_write;
    s->last_write = dt_future_retain(future);
    dt_future_release(old);
}

/* ---- submission
 * ---------------------------------------------------------------------------------- */

static void task_ended(dt_task *task) { dt_future_complete(task->user, task->error); }

/* Not when it has ended: until then the controller may ask for its want. */
static void task_freed(dt_task *task) { dt_future_release(task->user); }

static dt_want task_want(const dt_task *task) {
    const dt_future *future = task->user;
    if (dt_future_is_wanted(future)) return DT_WANTED;
    return dt_future_is_abandoned(future) ? DT_WANT_ABANDONED : DT_WANT_NEVER;
}

static dt_status ensure_room(dt_sched *sched) {
    while (DT_UNLIKELY(dt_sched_full(sched))) {
        if (room_hook)
            DT_TRY(room_hook(sched));
        else
            DT_TRY(dt_sched_wait_room(sched, -1));
    }
    return DT_OK;
}

static dt_client_note take_note(dt_future *future) {
    dt_client_note note = {.future = future};
    if (note_hook) note_hook(&note);
    return note;
}

/* Gives the task the number that ties its records together. */
static void trace_submission(dt_task *task, dt_future *future, const dt_client_note *note) {
    dt_trace_nesting *nesting = dt_trace_nesting_get();
    bool inside = nesting->depth > 0 && task->kind == DT_TASK_COMPUTE;
    task->client = dt_trace_next_call();
    dt_future_set_call(future, task->client);
    nesting->last_call = task->client;
    int64_t now_ns = dt_trace_now_ns();
    dt_trace_append(&(dt_trace_record){
        .kind = DT_TRACE_SUBMIT,
        .flags = inside ? DT_TRACE_INSIDE : 0,
        .start_ns = now_ns,
        .end_ns = now_ns,
        .call = task->client,
        .op = task->call.op,
        .label = dt_task_label(task),
        .site = note->site,
        .name = note->client,
    });
}

dt_status dt_runtime_submit(dt_task *task, dt_future **future_out) {
    dt_sched *sched;
    dt_future *future = NULL;
    dt_status status = dt_runtime_get(&sched);
    /* A drain must be possible when the queue is full, of all times. */
    if (status == DT_OK && !task->after_all) status = ensure_room(sched);
    if (status == DT_OK) status = dt_future_new(&future);
    if (status != DT_OK) {
        dt_task_free(task);
        return status;
    }
    task->user = dt_future_retain(future); /* the task's */
    task->on_end = task_ended;
    task->on_free = task_freed;
    task->want = task_want;
    dt_client_note note = take_note(future);
    task->site = note.site;
    task->priority = note.priority;
    if (DT_UNLIKELY(dt_trace_is_on())) trace_submission(task, future, &note);
    DT_ASSERT(task->kind != DT_TASK_WRITE || task->call.nout == 0);
    for (int k = 0; k < task->call.nout; k++) {
        dt_storage *s = task->call.operands[k]->storage;
        set_last_write(s, future);
        atomic_fetch_add_explicit(&s->version, 1, memory_order_relaxed);
    }
    dt_sched_submit(sched, task);
    if (future_out)
        *future_out = future;
    else
        dt_future_release(future);
    return DT_OK;
}

dt_status dt_tensor_fence(dt_tensor *t, bool readers, dt_future **out) {
    dt_storage *s = t->storage;
    *out = NULL;
    bool busy = atomic_load_explicit(&s->writers, memory_order_acquire) != 0 ||
                (readers && atomic_load_explicit(&s->readers, memory_order_acquire) != 0);
    if (!busy) return DT_OK;
    if (!readers && s->last_write) {
        *out = dt_future_retain(s->last_write);
        return DT_OK;
    }
    dt_task *task;
    DT_TRY(dt_task_new(DT_TASK_FENCE, readers ? 1 : 0, readers ? 0 : 1, &task));
    task->call.operands[0] = dt_tensor_retain(t);
    dt_future *previous = s->last_write ? dt_future_retain(s->last_write) : NULL;
    dt_status status = dt_runtime_submit(task, out);
    /* A fence writes nothing: what the tensor's value hangs on stays the task before it. */
    if (status == DT_OK && readers && previous) set_last_write(s, previous);
    dt_future_release(previous);
    return status;
}

dt_status dt_runtime_fence(dt_future **out) {
    *out = NULL;
    if (!dt_runtime_started() || dt_sched_in_flight(dt_runtime()) == 0) return DT_OK;
    dt_task *task;
    DT_TRY(dt_task_new(DT_TASK_FENCE, 0, 0, &task));
    task->after_all = true;
    return dt_runtime_submit(task, out);
}

/* ---- lanes ---------------------------------------------------------------------------------- */

typedef struct dt_lane {
    bool ready;        /* every operand may be touched now */
    bool external;     /* an outsider can see an operand */
    bool external_out; /* ... that is written */
    int64_t external_in_bytes;
    dt_error *failure; /* of an operand that nobody works on any more; borrowed */
} dt_lane;

static int64_t tensor_bytes(const dt_tensor *t) {
    return t->numel * (int64_t)dt_dtype_size((dt_dtype)t->dtype);
}

/* Of a failed last writer. Kept in the storage as well: a future lost in a fork never got that far.
 */
static void look_at_writer(dt_lane *lane, dt_tensor *t) {
    dt_future *future;
    dt_future_state state = dt_tensor_state(t, &future);
    if (state != DT_FUTURE_FAILED && state != DT_FUTURE_CANCELLED) return;
    dt_error *none = NULL;
    lane->failure = dt_future_error(future);
    if (!atomic_compare_exchange_strong(&t->storage->failure, &none,
                                        dt_error_retain(lane->failure)))
        dt_error_release(lane->failure);
}

/* The counts are lowered after a failure was noted, so that none is missed behind a 0. A storage
 * that failed stays so, as it does for tasks (storage.h I4). */
static void look_at(dt_lane *lane, dt_tensor *t, bool written) {
    dt_storage *s = t->storage;
    if (DT_UNLIKELY(s->last_write != NULL)) look_at_writer(lane, t);
    bool busy = atomic_load_explicit(&s->writers, memory_order_acquire) != 0;
    dt_error *failure = atomic_load_explicit(&s->failure, memory_order_acquire);
    if (DT_UNLIKELY(failure != NULL))
        lane->failure = failure;
    else if (busy)
        lane->ready = false;
    if (written && atomic_load_explicit(&s->readers, memory_order_acquire) != 0)
        lane->ready = false;
    if (DT_UNLIKELY(dt_storage_is_external(s))) {
        lane->external = true;
        lane->external_out |= written;
        if (!written) lane->external_in_bytes += tensor_bytes(t);
    }
}

static void look_at_operands(const dt_call *call, dt_lane *lane) {
    *lane = (dt_lane){.ready = true};
    for (int k = 0; k < call->nout; k++) look_at(lane, dt_call_out(call, k), true);
    for (int k = 0; k < call->nin; k++)
        if (dt_call_in(call, k)) look_at(lane, dt_call_in(call, k), false);
}

/* A failed future for every output: the error shows at await or read. */
static dt_status fail_outputs(const dt_call *call, dt_error *error) {
    dt_future *future;
    DT_TRY(dt_future_new(&future));
    dt_call_fail_outputs(call, error);
    dt_future_complete(future, error);
    for (int k = 0; k < call->nout; k++) set_last_write(dt_call_out(call, k)->storage, future);
    dt_future_release(future);
    return DT_OK;
}

static void bump_versions(const dt_call *call) {
    for (int k = 0; k < call->nout; k++)
        atomic_fetch_add_explicit(&dt_call_out(call, k)->storage->version, 1, memory_order_relaxed);
}

static dt_status submit_call(dt_call *call, bool wait) {
    dt_task *task;
    DT_TRY(dt_task_new(DT_TASK_COMPUTE, call->nout, call->nin, &task));
    dt_call_fini(&task->call);
    dt_call_move(&task->call, call);
    dt_future *future;
    DT_TRY(dt_runtime_submit(task, &future));
    dt_status status = wait ? wait_for(future) : DT_OK;
    dt_future_release(future);
    return status;
}

/* Nothing was computed for want of an output's memory, and tasks are in flight that may free some:
 * the call can wait for that. */
static bool others_may_free_memory(const dt_call *call) {
    bool untouched = false;
    for (int k = 0; k < call->nout; k++)
        untouched |= atomic_load_explicit(&dt_call_out(call, k)->storage->data,
                                          memory_order_relaxed) == NULL;
    return untouched && dt_runtime_started() && dt_sched_in_flight(dt_runtime()) > 0;
}

static dt_status run_here(dt_call *call) {
    dt_status status = dt_call_run_inline(call);
    if (DT_UNLIKELY(status == DT_E_NO_MEMORY) && others_may_free_memory(call))
        return submit_call(call, false);
    dt_counts.inlined++;
    bump_versions(call);
    if (DT_LIKELY(status == DT_OK)) {
        for (int k = 0; k < call->nout; k++) {
            dt_tensor *t = dt_call_out(call, k);
            dt_storage *s = t->storage;
            if (DT_UNLIKELY(dt_tensor_is_deferred(t))) dt_tensor_settle(t);
            if (DT_UNLIKELY(s->last_write != NULL)) { /* an earlier write that ended well */
                dt_future *done = s->last_write;
                s->last_write = NULL;
                dt_future_release(done);
            }
        }
        return DT_OK;
    }
    dt_trace_nesting_get()->failed = true;
    dt_error *error = dt_error_capture(status);
    dt_error_set_origin(error, (uint32_t)call->op + 1, take_note(NULL).site);
    status = fail_outputs(call, error);
    dt_error_release(error);
    return status;
}

/* Swaps small external inputs for copies of their bytes, so that the op itself may run later. */
static dt_status copy_external_inputs(dt_call *call) {
    for (int k = 0; k < call->nin; k++) {
        dt_tensor *t = dt_call_in(call, k);
        if (!t || !dt_storage_is_external(t->storage)) continue;
        dt_op_call copy;
        dt_op_call_init(&copy, DT_OP_clone);
        copy.nargs = 1;
        copy.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = t};
        dt_status status = copy.op->rule(&copy);
        if (status == DT_OK) {
            copy.call.operands[0] = dt_tensor_retain(copy.outs[0]);
            copy.call.kernel = dt_device_cpu()->kernels[DT_OP_clone];
            status = dt_call_run_inline(&copy.call); /* not run_here: no late errors */
        }
        if (status == DT_OK) {
            call->operands[call->nout + k] = dt_tensor_retain(copy.outs[0]);
            dt_tensor_release(t);
        }
        dt_op_call_clear(&copy);
        DT_TRY(status);
    }
    return DT_OK;
}

static dt_status place_and_run(dt_call *call) {
    dt_lane lane;
    look_at_operands(call, &lane);
    if (DT_UNLIKELY(lane.failure != NULL) && lane.ready) return fail_outputs(call, lane.failure);
    bool cheap = lane.ready && call->kernel->cost_ns(call) <= DT_INLINE_COST_NS_MAX;
    if (cheap) return run_here(call);
    if (DT_UNLIKELY(lane.external)) {
        if (lane.external_out || lane.external_in_bytes > EXTERNAL_COPY_BYTES_MAX || !lane.ready)
            return submit_call(call, true);
        DT_TRY(copy_external_inputs(call));
    }
    return submit_call(call, false);
}

/* ---- targets: in-place and out=
 * -------------------------------------------------------------------- */

dt_status dt__check_target(const dt_op_call *c) {
    const dt_tensor *target = c->target, *result = c->outs[0];
    char a[200], b[200];
    if (!dt_tensor_same_shape(target, result) && c->inplace)
        return dt_fail(DT_E_RUNTIME, "output with shape %s doesn't match the broadcast shape %s",
                       dt_shape_format(target->rank, target->shape, a, sizeof a),
                       dt_shape_format(result->rank, result->shape, b, sizeof b));
    if (!dt_dtype_can_cast((dt_dtype)result->dtype, (dt_dtype)target->dtype))
        return dt_fail(DT_E_RUNTIME, "result type %s can't be cast to the desired output type %s",
                       dt_dtype_table[result->dtype].long_name,
                       dt_dtype_table[target->dtype].long_name);
    if (target->storage->flags & DT_STORAGE_READONLY)
        return dt_fail(DT_E_RUNTIME, "the tensor to be written shares read-only memory");
    if (dt_shape_may_self_overlap(target->rank, target->shape, target->strides))
        return dt_fail(
            DT_E_RUNTIME,
            "unsupported operation: more than one element of the written-to tensor refers "
            "to a single memory location. Please clone() the tensor before performing the "
            "operation.");
    return DT_OK;
}

static bool is_dense(const dt_tensor *t) {
    int64_t span = 1;
    for (int d = 0; d < t->rank; d++)
        if (t->shape[d] > 1) span += (t->shape[d] - 1) * t->strides[d];
    return t->numel == 0 || span == t->numel;
}

/* Inputs that meet the target in memory: an error as in torch where that is certain (both dense), a
 * copy of the input where strides interleave. */
static dt_status resolve_overlaps(dt_op_call *c) {
    for (int k = 0; k < c->call.nin; k++) {
        dt_tensor *in = dt_call_in(&c->call, k);
        if (!in || !dt_tensor_partial_overlap(c->target, in)) continue;
        if (is_dense(c->target) && is_dense(in))
            return dt_fail(
                DT_E_RUNTIME,
                "unsupported operation: some elements of the input tensor and the "
                "written-to tensor refer to a single memory location. Please clone() the "
                "tensor before performing the operation.");
        dt_op_call copy;
        dt_op_call_init(&copy, DT_OP_clone);
        copy.nargs = 1;
        copy.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = in};
        DT_TRY(dt_dispatch(&copy));
        c->call.operands[c->call.nout + k] = copy.outs[0];
        dt_tensor_release(in);
    }
    return DT_OK;
}

/* Redirects the write into the target where the kernel can, else tells to copy afterwards. */
static dt_status redirect(dt_op_call *c, const dt_kernel *kernel, bool *copy_after) {
    *copy_after = false;
    DT_TRY(dt__check_target(c));
    if (!dt_tensor_same_shape(c->target, c->outs[0])) { /* out= of another shape: torch resizes */
        c->replace_target = true;
        return DT_OK;
    }
    bool plain_out = !(kernel->flags & DT_KERNEL_CONTIGUOUS_OUT) || c->target->contiguous;
    bool casts = c->target->dtype == c->outs[0]->dtype || (kernel->flags & DT_KERNEL_OUT_CASTS);
    /* Kernels that cast as they store read every input before they write its place. */
    bool may_alias = kernel->flags & DT_KERNEL_OUT_CASTS;
    if (!plain_out || !casts || !may_alias || c->call.operands[0] != NULL || c->nout != 1) {
        *copy_after = true;
        return DT_OK;
    }
    DT_TRY(resolve_overlaps(c));
    dt_tensor_release(c->outs[0]);
    c->outs[0] = dt_tensor_retain(c->target);
    return DT_OK;
}

/* ---- the op
 * ----------------------------------------------------------------------------------------- */

static dt_status make_inputs_contiguous(dt_call *call) {
    for (int k = 0; k < call->nin; k++) {
        dt_tensor *t = dt_call_in(call, k), *flat;
        if (!t || t->contiguous) continue;
        DT_TRY(dt_rule_make_contiguous(t, &flat));
        call->operands[call->nout + k] = flat;
        dt_tensor_release(t);
    }
    return DT_OK;
}

static dt_status finish_view_target(dt_op_call *c) {
    if (!c->target) return DT_OK;
    DT_TRY(dt__check_target(c));
    if (!dt_tensor_same_shape(c->target, c->outs[0])) {
        c->replace_target = true;
        return DT_OK;
    }
    return dt_copy_into(c->target, c->outs[0]);
}

static dt_status dispatch_inferred(dt_op_call *c) {
    if (c->done) return finish_view_target(c);
    const dt_kernel *kernel = dt_device_cpu()->kernels[c->call.op];
    DT_ASSERT(kernel != NULL);
    c->call.kernel = kernel;
    bool copy_after = false;
    if (DT_UNLIKELY(c->target != NULL)) DT_TRY(redirect(c, kernel, &copy_after));
    if (kernel->flags & DT_KERNEL_CONTIGUOUS_IN) DT_TRY(make_inputs_contiguous(&c->call));
    for (int k = 0; k < c->call.nout; k++)
        if (!c->call.operands[k]) c->call.operands[k] = dt_tensor_retain(c->outs[k]);
    DT_TRY(place_and_run(&c->call));
    if (copy_after) {
        DT_TRY(dt_copy_into(c->target, c->outs[0]));
        dt_tensor_release(c->outs[0]);
        c->outs[0] = dt_tensor_retain(c->target);
    }
    return DT_OK;
}

/* All but letting go of the call, whose operands are still to be looked at. */
static dt_status dispatch(dt_op_call *c) {
    dt_status status;
    const dt_mesh *mesh;
    if (DT_UNLIKELY(dt_rule_metadata_only)) {
        status = c->op->rule(c);
    } else {
        dt_graveyard_drain();
        dt_counts.dispatched++;
        if (DT_UNLIKELY((mesh = dt__place_mesh(c)) != NULL)) {
            status = dt__place_dispatch(c, mesh);
        } else {
            status = c->op->rule(c);
            if (DT_LIKELY(status == DT_OK)) status = dispatch_inferred(c);
        }
    }
    if (DT_UNLIKELY(status != DT_OK)) dt_op_call_clear(c);
    return status;
}

static __attribute__((noinline, cold)) dt_status dispatch_traced(dt_op_call *c) {
    dt_trace_nesting *nesting = dt_trace_nesting_get(), outer = *nesting;
    dt_client_note note = take_note(NULL);
    int64_t inlined = dt_counts.inlined;
    dt_trace_record r = {.kind = DT_TRACE_OP, .op = c->op->id, .start_ns = dt_trace_now_ns()};
    *nesting = (dt_trace_nesting){.depth = outer.depth + 1};
    dt_status status = dispatch(c);
    r.end_ns = dt_trace_now_ns();
    r.call = nesting->last_call;
    r.site = note.site;
    r.name = note.client;
    if (dt_counts.inlined != inlined) r.flags |= DT_TRACE_INLINE;
    if (status != DT_OK || nesting->failed) r.flags |= DT_TRACE_FAILED;
    if (status == DT_OK && r.call == 0) r.bytes = dt_call_bytes(&c->call);
    *nesting = outer;
    if (r.call != 0) nesting->last_call = r.call;
    dt_trace_append(&r);
    return status;
}

dt_status dt_dispatch(dt_op_call *c) {
    dt_status status = DT_UNLIKELY(dt_trace_is_on()) ? dispatch_traced(c) : dispatch(c);
    if (DT_LIKELY(status == DT_OK)) dt_call_fini(&c->call);
    return status;
}

dt_status dt_copy_into(dt_tensor *dst, dt_tensor *src) {
    DT_ASSERT(dt_tensor_same_shape(dst, src));
    dt_op_call copy;
    dt_op_call_init(&copy, DT_OP_copy__to);
    copy.nargs = 2;
    copy.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = src};
    copy.args[1] = (dt_arg){.kind = DT_ARG_DTYPE, .dtype = (dt_dtype)dst->dtype};
    copy.target = dst;
    copy.inplace = true;
    DT_TRY(dt_dispatch(&copy));
    dt_tensor_release(copy.outs[0]);
    return DT_OK;
}

/* What lower layers reach back for, installed before anything can run. */
__attribute__((constructor)) static void install_hooks(void) {
    dt_rule_invoke = dt_dispatch;
    dt_storage_set_future_release(dt_future_release);
}
