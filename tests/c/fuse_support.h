/* fuse_support.h: a device that computes fake calls in passes, for the tests of scheduler/.
 *
 * Calls of fusing_kernel may be computed together when they have as many elements, are in classes
 * that go together (params.i[FAKE_CLASS]: any two but 1 and 2), and touch what one of them writes
 * at the same place or not at all.  FAKE_ENDS: nothing may follow in the pass.  What is dead is
 * kept in a variable, never in memory.
 */
#ifndef DT_TESTS_FUSE_SUPPORT_H
#define DT_TESTS_FUSE_SUPPORT_H

#include "runtime/device.h"
#include "tests/c/sched_support.h"

struct dt_pass {
    int count;
    uint32_t dead;
    const dt_call *calls[DT_FUSE_MAX];
};

/* Passes ever made, finished and freed, and what the last one was. */
static _Atomic(int) fuse_built, fuse_finished, fuse_freed, fuse_last_count;
static _Atomic(uint32_t) fuse_last_dead;

static double fuse_cost(const dt_call *call) {
    int64_t marginal_ns = call->params.i[FAKE_MARGINAL_NS];
    return marginal_ns != 0 ? (double)marginal_ns : fake_cost(call) / 10;
}

static FAKE_UNUSED const dt_kernel fusing_kernel = {
    .name = "fusing",
    .run = fake_run,
    .parts = fake_parts,
    .scratch_bytes = fake_scratch,
    .finish = fake_finish,
    .cost_ns = fake_cost,
    .flags = DT_KERNEL_FUSIBLE,
};

static bool fuse_fusible(const dt_call *call) {
    return call->kernel == &fusing_kernel && call->nout == 1;
}

static bool fuse_same_place(const dt_tensor *a, const dt_tensor *b) {
    return a->storage == b->storage && a->offset == b->offset && a->strides[0] == b->strides[0];
}

/* Whether an operand of `call` lies in the storage that `writer` writes, but elsewhere. */
static bool fuse_clash(const dt_call *writer, const dt_call *call) {
    const dt_tensor *out = dt_call_out(writer, 0);
    for (int k = 0; k < call->nout + call->nin; k++)
        if (call->operands[k]->storage == out->storage && !fuse_same_place(call->operands[k], out))
            return true;
    return false;
}

static bool fuse_joins(const dt_call *member, const dt_call *next) {
    if (dt_call_out(member, 0)->numel != dt_call_out(next, 0)->numel) return false;
    if (member->params.i[FAKE_CLASS] + next->params.i[FAKE_CLASS] == 3) return false;
    return !fuse_clash(member, next) && !fuse_clash(next, member);
}

static bool fuse_ends(const dt_call *call) { return call->params.i[FAKE_ENDS] != 0; }

static dt_status fuse_build(const dt_call *const *calls, int count, uint32_t dead, dt_pass **out) {
    dt_pass *pass;
    ck_assert(count >= 2 && count <= DT_FUSE_MAX);
    DT_ALLOC_OR_FAIL(pass, sizeof *pass);
    *pass = (dt_pass){.count = count, .dead = dead};
    for (int k = 0; k < count; k++) {
        pass->calls[k] = calls[k];
        for (int m = 0; m < k; m++) ck_assert(fuse_joins(calls[m], calls[k]));
        ck_assert(k == count - 1 || !fuse_ends(calls[k]));
        if (!(dead >> k & 1))
            ck_assert_ptr_nonnull(atomic_load(&dt_call_out(calls[k], 0)->storage->data));
    }
    atomic_fetch_add(&fuse_built, 1);
    atomic_store(&fuse_last_count, count);
    atomic_store(&fuse_last_dead, dead);
    *out = pass;
    return DT_OK;
}

static int fuse_parts(const dt_pass *pass, int threads) {
    return fake_parts(pass->calls[0], threads);
}

static size_t fuse_scratch(const dt_pass *pass, int parts) {
    return fake_scratch(pass->calls[0], parts);
}

/* Element i of t as calls[k] finds it. */
static int64_t fuse_read(const dt_pass *pass, int k, const dt_tensor *t, int64_t i,
                         const int64_t *results) {
    for (int m = k - 1; m >= 0; m--)
        if (fuse_same_place(dt_call_out(pass->calls[m], 0), t)) return results[m];
    return *fake_at(t, i);
}

static void fuse_element(const dt_pass *pass, int64_t i) {
    int64_t results[DT_FUSE_MAX];
    for (int k = 0; k < pass->count; k++) {
        const dt_call *call = pass->calls[k];
        const int64_t *p = call->params.i;
        uint64_t value = (uint64_t)p[FAKE_C];
        for (int n = 0; n < call->nin; n++)
            value += (uint64_t)p[n == 0 ? FAKE_A : FAKE_B] *
                     (uint64_t)fuse_read(pass, k, dt_call_in(call, n), i, results);
        results[k] = (int64_t)value;
        if (!(pass->dead >> k & 1)) *fake_at(dt_call_out(call, 0), i) = results[k];
    }
}

static void fuse_run(const dt_pass *pass, const dt_part *part) {
    int64_t n = dt_call_out(pass->calls[0], 0)->numel;
    fake_enter();
    for (int k = 0; k < pass->count; k++) fake_busy(pass->calls[k]->params.i[FAKE_BUSY_NS]);
    for (int64_t i = n * part->index / part->count; i < n * (part->index + 1) / part->count; i++)
        fuse_element(pass, i);
    if (part->scratch != NULL) ((char *)part->scratch)[part->index] = (char)(part->index + 1);
    atomic_fetch_sub(&fake_running, 1);
}

static void fuse_finish(const dt_pass *pass, const dt_part *part) {
    ck_assert_ok(fake_finish(pass->calls[0], part));
    atomic_fetch_add(&fuse_finished, 1);
}

static void fuse_free(dt_pass *pass) {
    dt_free(pass, sizeof *pass);
    atomic_fetch_add(&fuse_freed, 1);
}

static const dt_fuse_ops fuse_ops = {
    .fusible = fuse_fusible,
    .joins = fuse_joins,
    .ends = fuse_ends,
    .cost_ns = fuse_cost,
    .build = fuse_build,
    .parts = fuse_parts,
    .scratch_bytes = fuse_scratch,
    .run = fuse_run,
    .finish = fuse_finish,
    .free = fuse_free,
};
static const dt_kernel *const fuse_no_kernels[1];
static const dt_device_ops fuse_device = {
    .type = "fake", .kernels = fuse_no_kernels, .fuse = &fuse_ops};

/* Once, before the first test. */
static FAKE_UNUSED void fuse_register(void) { dt_device_register_cpu(&fuse_device); }

/* As fake_task. */
static FAKE_UNUSED dt_task *fuse_task(fake_ends *ends, dt_tensor *out, dt_tensor *x, int64_t a,
                                      dt_tensor *y, int64_t b, int64_t c) {
    dt_task *task = fake_task(ends, out, x, a, y, b, c);
    task->call.kernel = &fusing_kernel;
    return task;
}

#endif
