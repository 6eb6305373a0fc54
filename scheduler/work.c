/* work.c: see work.h. No thread, no lock and no clock in here. */
#include "scheduler/work.h"

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "runtime/device.h"
#include "scheduler/plant.h"
#include "scheduler/run.h"
#include "scheduler/task.h"

#define SPLIT_COST_NS_MIN 20000.0 /* below that a task is not worth another wake-up */

static inline const dt_fuse_ops *fuse(void) { return dt_device_cpu()->fuse; }

/* ---- claim ---------------------------------------------------------------------------------- */

static bool claim(dt_task *task) {
    uint8_t handed = DT_TASK_HANDED;
    return atomic_compare_exchange_strong_explicit(&task->state, &handed, DT_TASK_RUNNING,
                                                   memory_order_acq_rel, memory_order_acquire);
}

/* Whether the task may run; it has an error otherwise. */
static bool may_run(dt_task *task, bool shut_down) {
    if (DT_UNLIKELY(shut_down)) {
        dt__task_fail(task, dt_fail(DT_E_SHUTDOWN, "the dtorch runtime has been shut down"));
        return false;
    }
    dt_error *failure = dt_call_operand_failure(&task->call);
    if (DT_LIKELY(failure == NULL) || DT_PLANT(17)) return true;
    task->error = dt_error_retain(failure);
    return false;
}

static dt_status take_scratch(dt_task *task, size_t bytes, const char *name) {
    task->scratch = NULL;
    task->scratch_bytes = 0;
    if (bytes == 0) return DT_OK;
    task->scratch = dt_bytes_alloc(bytes);
    if (task->scratch == NULL)
        return dt_fail(DT_E_NO_MEMORY, "out of memory: %zu bytes of scratch for %s", bytes, name);
    task->scratch_bytes = bytes;
    return DT_OK;
}

/* A task alone: the memory of its outputs, and its parts. */
static dt_status prepare_alone(dt_task *task, int threads) {
    const dt_kernel *kernel = task->call.kernel;
    DT_TRY(dt_call_materialize(&task->call));
    if (task->cost_ns < SPLIT_COST_NS_MIN) threads = 1;
    task->parts = kernel->parts != NULL ? kernel->parts(&task->call, threads) : 1;
    DT_ASSERT(task->parts >= 1);
    size_t bytes =
        kernel->scratch_bytes != NULL ? kernel->scratch_bytes(&task->call, task->parts) : 0;
    return take_scratch(task, bytes, kernel->name);
}

/* ---- passes --------------------------------------------------------------------------------- */

/* Claims those that follow `first` in its run and fuse with it. */
static int gather(dt_task *first, dt_task **members) {
    members[0] = first;
    int count = 1;
    while (count < DT_FUSE_MAX) {
        dt_task *next = atomic_load_explicit(&members[count - 1]->run_next, memory_order_acquire);
        if (next == NULL || next == DT__RUN_CLOSED || !next->fuses) break;
        if (dt_call_operand_failure(&next->call) != NULL || !claim(next)) break;
        members[count++] = next;
    }
    return count;
}

/* Gives up the claims on all but the first: they will be computed one by one. */
static void scatter(dt_task *const *members, int count) {
    for (int k = 1 + DT_PLANT(24); k < count; k++)
        atomic_store_explicit(&members[k]->state, DT_TASK_HANDED, memory_order_release);
}

/* Whether the first member that touches t reads it: what nobody ever wrote, which takes memory. */
static bool is_read_first(dt_task *const *members, const dt_tensor *t) {
    uint32_t references;
    while ((references = dt__task_references(*members, t)) == 0) members++;
    return references > 1 || dt_call_out(&(*members)->call, 0) != t;
}

/* Whether nobody but the members can see the result of members[k], and it has no memory yet. */
static bool is_dead(dt_task *const *members, int count, int k) {
    const dt_tensor *t = dt_call_out(&members[k]->call, 0);
    if (atomic_load_explicit(&t->storage->data, memory_order_acquire) != NULL) return false;
    uint32_t references = 0;
    for (int m = 0; m < count; m++) references += dt__task_references(members[m], t);
    if (DT_PLANT(7)) return true;
    return dt__task_is_held_by(t, references) && !is_read_first(members, t);
}

/* The memory of what a pass writes, and its program. */
static dt_status build_pass(dt_task *const *members, int count) {
    const dt_call *calls[DT_FUSE_MAX];
    uint32_t dead = 0;
    for (int k = 0; k < count; k++) {
        calls[k] = &members[k]->call;
        if (k + 1 < count && is_dead(members, count, k))
            dead |= 1u << k;
        else
            DT_TRY(dt_call_materialize(&members[k]->call));
    }
    return fuse()->build(calls, count, dead, &members[0]->pass);
}

static dt_status prepare_pass(dt_task *const *members, int count, int threads) {
    dt_task *leader = members[0];
    DT_TRY(build_pass(members, count));
    leader->parts = fuse()->parts(leader->pass, threads);
    DT_ASSERT(leader->parts >= 1);
    dt_status status =
        take_scratch(leader, fuse()->scratch_bytes(leader->pass, leader->parts), "a fused pass");
    if (status != DT_OK) {
        fuse()->free(leader->pass);
        leader->pass = NULL;
    }
    return status;
}

static bool begin_pass(dt_task *task, int threads, int64_t now_ns) {
    dt_task *members[DT_FUSE_MAX];
    int count = gather(task, members);
    if (count == 1) return false;
    if (prepare_pass(members, count, threads) != DT_OK) {
        scatter(members, count);
        return false;
    }
    task->members = count;
    for (int k = 1; k < count; k++) members[k]->time_start_ns = now_ns;
    return true;
}

/* ---- begin ---------------------------------------------------------------------------------- */

dt_work_step dt__work_begin(dt_task *task, int threads, bool shut_down, int64_t now_ns) {
    task->members = 1;
    task->pass = NULL;
    task->time_start_ns = now_ns;
    if (DT_UNLIKELY(!claim(task))) {
        if (atomic_load_explicit(&task->state, memory_order_acquire) == DT_TASK_TAKEN_BACK)
            return DT_WORK_RETURN;
        dt__task_drop(task);
        return DT_WORK_END;
    }
    if (!may_run(task, shut_down) || task->kind != DT_TASK_COMPUTE) return DT_WORK_END;
    if (DT_UNLIKELY(dt__task_is_unobservable(task, 0))) {
        dt__task_drop(task);
        return DT_WORK_END;
    }
    if (task->fusible && begin_pass(task, threads, now_ns)) return DT_WORK_COMPUTE;
    dt_status status = prepare_alone(task, threads);
    if (DT_LIKELY(status == DT_OK)) return DT_WORK_COMPUTE;
    if (status == DT_E_NO_MEMORY && !task->last_chance && !DT_PLANT(14)) return DT_WORK_RETURN;
    dt__task_fail(task, status);
    return DT_WORK_END;
}

/* ---- compute -------------------------------------------------------------------------------- */

void dt__work_part(dt_task *leader, int index) {
    dt_part part = {index, leader->parts, leader->scratch, leader->scratch_bytes};
    if (leader->pass != NULL) {
        fuse()->run(leader->pass, &part);
        return;
    }
    dt_status status = leader->call.kernel->run(&leader->call, &part);
    if (DT_LIKELY(status == DT_OK)) return;
    int32_t none = 0;
    if (atomic_compare_exchange_strong_explicit(&leader->part_failed, &none, 1,
                                                memory_order_relaxed, memory_order_relaxed))
        dt__task_fail(leader, status);
}

void dt__work_finish(dt_task *leader) {
    const dt_kernel *kernel = leader->call.kernel;
    dt_part part = {0, leader->parts, leader->scratch, leader->scratch_bytes};
    if (leader->pass != NULL) {
        fuse()->finish(leader->pass, &part);
        fuse()->free(leader->pass);
        leader->pass = NULL;
    } else if (kernel->finish != NULL && leader->error == NULL) {
        dt_status status = kernel->finish(&leader->call, &part);
        if (status != DT_OK) dt__task_fail(leader, status);
    }
    if (leader->scratch != NULL) dt_bytes_free(leader->scratch, leader->scratch_bytes);
    leader->scratch = NULL;
}

/* ---- end ------------------------------------------------------------------------------------ */

dt_task *dt__work_end(dt_task *leader, int64_t now_ns, void (*ended)(void *context, dt_task *task),
                      void *context) {
    int left = leader->members;
    uint64_t leader_seq = left > 1 ? leader->seq : 0;
    dt_task *task = leader;
    do {
        task->leader_seq = leader_seq;
        dt__task_end(task, now_ns);
        dt_task *next = dt__run_close(task);
        atomic_store_explicit(&task->state, DT_TASK_ENDED, memory_order_relaxed);
        ended(context, task);
        task = next;
    } while (--left > 0);
    return task;
}

void dt__work_return(dt_task *task, bool starved, void (*ended)(void *context, dt_task *task),
                     void *context) {
    while (task != NULL) {
        (void)claim(task); /* or it was dropped or taken back: the controller will know */
        task->returned = true;
        task->starved = starved;
        starved = false;
        dt_task *next = dt__run_close(task);
        ended(context, task);
        task = DT_PLANT(10) ? NULL : next;
    }
}
