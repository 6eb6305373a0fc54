/* sched_support.h: what the tests of scheduler/ share: fake kernels, tasks over int64 vectors, and
 * waiting for their ends.
 *
 * The fake kernel computes out[i] = a * x[i] + b * y[i] + c in wrapping int64, elements of a
 * strided vector, after an optional busy time, in an optional number of parts, or fails.
 */
#ifndef DT_TESTS_SCHED_SUPPORT_H
#define DT_TESTS_SCHED_SUPPORT_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "scheduler/futex.h"
#include "scheduler/sched.h"
#include "tests/c/test_support.h"

#define FAKE_UNUSED __attribute__((unused))

/* params.i of a fake call */
enum {
    FAKE_A,
    FAKE_B,
    FAKE_C,
    FAKE_BUSY_NS,
    FAKE_FAIL,
    FAKE_PARTS,
    FAKE_COST_NS,
    FAKE_SCRATCH,
    FAKE_GATE,  /* a fake_gate that the kernel has to pass, or 0 */
    FAKE_MEET,  /* waits until so many kernels have run at one time, 20 s at most */
    FAKE_CLASS, /* this and the rest: see fuse_support.h */
    FAKE_ENDS,
    FAKE_MARGINAL_NS,
};

/* Kernels running now, and the most there ever were. */
static _Atomic(int) fake_running, fake_running_max, fake_started;
static _Atomic(int) fake_finishes;

/* Long times are slept, so that kernels overlap however few CPUs there are. */
static void fake_busy(int64_t ns) {
    if (ns >= 1000000) {
        struct timespec ts = {ns / 1000000000, ns % 1000000000};
        nanosleep(&ts, NULL);
        return;
    }
    int64_t end = dt_clock_ns() + ns;
    while (ns > 0 && dt_clock_ns() < end) {}
}

/* Kernels stand before it until the test opens it: the worker is busy as long as it takes. */
typedef struct fake_gate {
    _Atomic(uint32_t) entered, open;
} fake_gate;

static FAKE_UNUSED void fake_gate_pass(fake_gate *gate) {
    atomic_fetch_add(&gate->entered, 1);
    dt_futex_wake(&gate->entered, INT32_MAX);
    while (atomic_load(&gate->open) == 0) dt_futex_wait(&gate->open, 0, -1);
}

static FAKE_UNUSED void fake_gate_open(fake_gate *gate) {
    atomic_store(&gate->open, 1);
    dt_futex_wake(&gate->open, INT32_MAX);
}

/* Until a kernel stands before it. */
static FAKE_UNUSED void fake_gate_await(fake_gate *gate) {
    while (atomic_load(&gate->entered) == 0) dt_futex_wait(&gate->entered, 0, -1);
}

static void fake_enter(void) {
    atomic_fetch_add(&fake_started, 1);
    int n = atomic_fetch_add(&fake_running, 1) + 1;
    int max = atomic_load(&fake_running_max);
    while (n > max && !atomic_compare_exchange_weak(&fake_running_max, &max, n)) {}
}

static void fake_meet(int64_t count) {
    int64_t end_ns = dt_clock_ns() + 20000000000;
    while (atomic_load(&fake_running_max) < count && dt_clock_ns() < end_ns) fake_busy(1000000);
}

static int64_t *fake_at(const dt_tensor *t, int64_t i) {
    return (int64_t *)dt_tensor_data(t) + i * t->strides[0];
}

static dt_status fake_run(const dt_call *call, const dt_part *part) {
    const int64_t *p = call->params.i;
    fake_enter();
    if (p[FAKE_GATE] != 0) fake_gate_pass((fake_gate *)(intptr_t)p[FAKE_GATE]);
    fake_meet(p[FAKE_MEET]);
    fake_busy(p[FAKE_BUSY_NS]);
    dt_status status = DT_OK;
    if (p[FAKE_FAIL] != 0 && part->index == part->count / 2)
        status = dt_fail((dt_status)p[FAKE_FAIL], "fake failure %d", (int)p[FAKE_C]);
    dt_tensor *out = call->nout > 0 ? dt_call_out(call, 0) : NULL;
    dt_tensor *x = call->nin > 0 ? dt_call_in(call, 0) : NULL;
    dt_tensor *y = call->nin > 1 ? dt_call_in(call, 1) : NULL;
    if (out != NULL && status == DT_OK) {
        int64_t begin = out->numel * part->index / part->count;
        int64_t end = out->numel * (part->index + 1) / part->count;
        for (int64_t i = begin; i < end; i++) {
            uint64_t value = (uint64_t)p[FAKE_C];
            if (x != NULL) value += (uint64_t)p[FAKE_A] * (uint64_t)*fake_at(x, i);
            if (y != NULL) value += (uint64_t)p[FAKE_B] * (uint64_t)*fake_at(y, i);
            *fake_at(out, i) = (int64_t)value;
        }
    }
    if (part->scratch != NULL) ((char *)part->scratch)[part->index] = (char)(part->index + 1);
    atomic_fetch_sub(&fake_running, 1);
    return status;
}

static int fake_parts(const dt_call *call, int threads) {
    return threads > 1 && call->params.i[FAKE_PARTS] > 1 ? (int)call->params.i[FAKE_PARTS] : 1;
}

static size_t fake_scratch(const dt_call *call, int parts) {
    return call->params.i[FAKE_SCRATCH] != 0 ? (size_t)parts : 0;
}

/* All parts must have run, and left their mark. */
static dt_status fake_finish(const dt_call *call, const dt_part *part) {
    (void)call;
    atomic_fetch_add(&fake_finishes, 1);
    for (int k = 0; part->scratch != NULL && k < part->count; k++)
        if (((char *)part->scratch)[k] != (char)(k + 1))
            return dt_fail(DT_E_RUNTIME, "part %d has not run", k);
    return DT_OK;
}

static double fake_cost(const dt_call *call) {
    int64_t cost_ns = call->params.i[FAKE_COST_NS];
    return (double)(cost_ns != 0 ? cost_ns : call->params.i[FAKE_BUSY_NS] + 100);
}

static FAKE_UNUSED const dt_kernel fake_kernel = {
    .name = "fake",
    .run = fake_run,
    .parts = fake_parts,
    .scratch_bytes = fake_scratch,
    .finish = fake_finish,
    .cost_ns = fake_cost,
};

/* ---- tensors -------------------------------------------------------------------------------- */

static FAKE_UNUSED dt_tensor *fake_tensor(int64_t n) {
    dt_tensor *t;
    ck_assert_ok(dt_tensor_new(DT_I64, 1, &n, &t));
    return t;
}

/* With its memory, all elements `value`. */
static FAKE_UNUSED dt_tensor *fake_full(int64_t n, int64_t value) {
    dt_tensor *t = fake_tensor(n);
    ck_assert_ok(dt_storage_materialize(t->storage));
    for (int64_t i = 0; i < n; i++) *fake_at(t, i) = value;
    return t;
}

/* Elements offset, offset + stride, ... of base. */
static FAKE_UNUSED dt_tensor *fake_view(dt_tensor *base, int64_t offset, int64_t n,
                                        int64_t stride) {
    dt_tensor *t;
    ck_assert_ok(dt_tensor_new_view(base, DT_I64, 1, &n, &stride, base->offset + offset, &t));
    return t;
}

/* ---- tasks ---------------------------------------------------------------------------------- */

/* Counts ends; a task's `user` points at one. */
typedef struct fake_ends {
    _Atomic(uint32_t) count;
    _Atomic(uint32_t) failed;
    _Atomic(int64_t) last_ns;
    _Atomic(dt_error *) error; /* retained: of the task that failed first */
} fake_ends;

static FAKE_UNUSED void fake_on_end(dt_task *task) {
    fake_ends *ends = task->user;
    if (task->error != NULL) {
        dt_error *none = NULL;
        dt_error_retain(task->error);
        if (!atomic_compare_exchange_strong(&ends->error, &none, task->error))
            dt_error_release(task->error);
        atomic_fetch_add(&ends->failed, 1);
    }
    atomic_store(&ends->last_ns, dt_clock_ns());
    atomic_fetch_add(&ends->count, 1);
    dt_futex_wake(&ends->count, INT32_MAX);
}

/* Waits (at most 60 s) until `count` tasks have ended. */
static FAKE_UNUSED void fake_await(fake_ends *ends, uint32_t count) {
    int64_t deadline_ns = dt_clock_ns() + 60000000000;
    for (;;) {
        uint32_t now = atomic_load(&ends->count);
        if (now >= count) return;
        int64_t left_ns = deadline_ns - dt_clock_ns();
        ck_assert_msg(left_ns > 0, "only %u of %u tasks have ended", now, count);
        dt_futex_wait(&ends->count, now, left_ns);
    }
}

static FAKE_UNUSED void fake_ends_clear(fake_ends *ends) {
    dt_error_release(atomic_load(&ends->error));
    memset(ends, 0, sizeof *ends);
}

/* out = a x + b y + c; x and y may be NULL. Borrows the tensors. */
static FAKE_UNUSED dt_task *fake_task(fake_ends *ends, dt_tensor *out, dt_tensor *x, int64_t a,
                                      dt_tensor *y, int64_t b, int64_t c) {
    dt_task *task;
    int nin = x == NULL ? 0 : y == NULL ? 1 : 2;
    ck_assert_ok(dt_task_new(DT_TASK_COMPUTE, out != NULL, nin, &task));
    dt_tensor **operand = task->call.operands;
    if (out != NULL) *operand++ = dt_tensor_retain(out);
    if (nin > 0) *operand++ = dt_tensor_retain(x);
    if (nin > 1) *operand++ = dt_tensor_retain(y);
    task->call.kernel = &fake_kernel;
    task->call.params.i[FAKE_A] = a;
    task->call.params.i[FAKE_B] = b;
    task->call.params.i[FAKE_C] = c;
    task->user = ends;
    if (ends != NULL) task->on_end = fake_on_end;
    return task;
}

static FAKE_UNUSED dt_sched *fake_sched(int threads, const char *io) {
    dt_sched *s;
    dt_sched_options options = {.threads = threads, .io = io};
    ck_assert_ok(dt_sched_start(&options, &s));
    return s;
}

/* Waits until the controller has retired everything. */
static FAKE_UNUSED void fake_drain(dt_sched *s) {
    int64_t deadline_ns = dt_clock_ns() + 60000000000;
    while (dt_sched_in_flight(s) > 0) {
        ck_assert_msg(dt_clock_ns() < deadline_ns, "tasks stay in flight");
        struct timespec ts = {0, 100000};
        nanosleep(&ts, NULL);
    }
}

#endif
