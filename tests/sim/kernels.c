/* kernels.c: what the workers compute, alone or in passes, and what they look at on the way.
 *
 * out[k][i] = a * x[i] + b * y[i] + ... + c in wrapping int64.  Half of the elements are computed
 * when a part begins and half when its time is over, so that whatever runs at the same time but
 * must not shows in the numbers as well as in check.c.
 *
 * Passes go through their range tile by tile, the odd parts backwards, and keep what nobody will
 * see in buffers: calls that must not be fused give other numbers then.
 */
#include <stddef.h>
#include <string.h>

#include "runtime/alloc.h"
#include "runtime/device.h"
#include "tests/sim/sim.h"
#include "tests/sim/world.h"

enum { TILE = 4 };

static dt_task *task_of(const dt_call *call) {
    return (dt_task *)((char *)(uintptr_t)call - offsetof(dt_task, call));
}

static sim_task *sim_of(const dt_call *call) { return task_of(call)->user; }

int64_t sim_compute(const sim_task *t, int k, int64_t i, const int64_t *inputs) {
    uint64_t value = (uint64_t)t->c + (t->nin == 0 ? (uint64_t)i : 0);
    uint64_t weights[SIM_OPERANDS_MAX] = {(uint64_t)t->a, (uint64_t)t->b, 3, 5, 7, 11, 13};
    for (int n = 0; n < t->nin; n++) value += weights[n] * (uint64_t)inputs[n];
    return (int64_t)(value * (uint64_t)(2 * k + 1) + (uint64_t)k);
}

static int64_t *element(const dt_tensor *t, int64_t i) {
    if (t->storage->data == NULL) sim_violation("a storage that is used has no memory");
    return (int64_t *)dt_tensor_data(t) + (t->numel == 1 ? 0 : i * t->strides[0]);
}

static void compute_range(const sim_task *t, const dt_call *call, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        int64_t in[SIM_OPERANDS_MAX] = {0};
        for (int n = 0; n < call->nin; n++) in[n] = *element(dt_call_in(call, n), i);
        for (int k = 0; k < call->nout; k++)
            *element(dt_call_out(call, k), i) = sim_compute(t, k, i, in);
    }
}

/* ---- who works now --------------------------------------------------------------------------- */

static void enter(void) {
    if (++sim_working > sim_threads_allowed)
        sim_violation("%d workers compute, %d may", sim_working, sim_threads_allowed);
}

static void leave(void) { sim_working--; }

/* ---- one task alone -------------------------------------------------------------------------- */

static dt_status run(const dt_call *call, const dt_part *part) {
    sim_task *t = sim_of(call);
    if (part->index < 0 || part->index >= part->count || t->ends != 0)
        sim_violation("part %d of %d of T%d", part->index, part->count, t->index);
    sim_check_begin(t);
    enter();
    t->inside++;
    sim_event("T%lld part %lld/%lld", t->index, part->index, part->count, 0);
    if (part->count > 1 && t->inside > 1) sim_cover(split_helped);
    int64_t n = call->nout > 0 ? dt_call_out(call, 0)->numel : 0;
    int64_t begin = n * part->index / part->count, end = n * (part->index + 1) / part->count;
    int64_t middle = (begin + end) / 2;
    compute_range(t, call, begin, middle);
    sim_sleep(t->takes_ns / part->count + 1);
    compute_range(t, call, middle, end);
    t->inside--;
    t->parts_done++;
    leave();
    if (part->scratch != NULL) ((char *)part->scratch)[part->index] = (char)(part->index + 1);
    if (t->fails != DT_OK && part->index == part->count / 2)
        return dt_fail(t->fails, "T%d fails", t->index);
    return DT_OK;
}

static int parts(const dt_call *call, int threads) {
    sim_task *t = sim_of(call);
    if (threads == 1 || t->parts == 1) return 1;
    sim_cover(splits);
    return t->parts;
}

static size_t scratch_bytes(const dt_call *call, int count) {
    return sim_of(call)->scratch ? (size_t)count : 0;
}

static dt_status finish(const dt_call *call, const dt_part *part) {
    sim_task *t = sim_of(call);
    if (t->parts_done != part->count || t->inside != 0)
        sim_violation("T%d is finished after %d of %d parts", t->index, t->parts_done, part->count);
    for (int k = 0; part->scratch != NULL && k < part->count; k++)
        if (((char *)part->scratch)[k] != (char)(k + 1))
            sim_violation("the scratch of T%d has changed", t->index);
    return DT_OK;
}

static double cost_ns(const dt_call *call) { return (double)sim_of(call)->cost_ns; }

const dt_kernel sim_kernel = {
    .name = "plain",
    .run = run,
    .parts = parts,
    .scratch_bytes = scratch_bytes,
    .finish = finish,
    .cost_ns = cost_ns,
};

const dt_kernel sim_kernel_fusible = {
    .name = "fusible",
    .run = run,
    .parts = parts,
    .scratch_bytes = scratch_bytes,
    .finish = finish,
    .cost_ns = cost_ns,
    .flags = DT_KERNEL_FUSIBLE,
};

/* ---- passes ---------------------------------------------------------------------------------- */

struct dt_pass {
    const dt_call *calls[DT_FUSE_MAX];
    int count, dead_count, number;
    int parts_done;
    uint32_t dead;
};

static bool fusible(const dt_call *call) { return sim_of(call)->fusible; }

static bool same_place(const dt_tensor *a, const dt_tensor *b) {
    return a->offset == b->offset && a->numel == b->numel && a->strides[0] == b->strides[0];
}

static bool agree(const dt_tensor *written, const dt_tensor *touched) {
    return written->storage != touched->storage || same_place(written, touched);
}

static bool joins(const dt_call *member, const dt_call *next) {
    const dt_tensor *a = dt_call_out(member, 0), *b = dt_call_out(next, 0);
    bool good = a->numel == b->numel && agree(a, b);
    for (int k = 0; k < next->nin; k++) good &= agree(a, dt_call_in(next, k));
    for (int k = 0; k < member->nin; k++) good &= agree(b, dt_call_in(member, k));
    return good;
}

static bool ends(const dt_call *call) { return sim_of(call)->ends_pass; }

static double pass_cost_ns(const dt_call *call) { return (double)sim_of(call)->cost_ns / 4; }

static dt_status build(const dt_call *const *calls, int count, uint32_t dead, dt_pass **out) {
    static int number;
    if (count < 2 || count > DT_FUSE_MAX) sim_violation("a pass of %d", count);
    dt_pass *pass;
    DT_ALLOC_OR_FAIL(pass, sizeof *pass);
    *pass = (dt_pass){.count = count, .dead = dead, .number = ++number};
    for (int k = 0; k < count; k++) {
        pass->calls[k] = calls[k];
        sim_of(calls[k])->pass = pass->number;
        void *data = dt_call_out(calls[k], 0)->storage->data;
        if (!(dead >> k & 1) && data == NULL)
            sim_violation("T%d of a pass has no memory", sim_of(calls[k])->index);
    }
    pass->dead_count = __builtin_popcount(dead);
    *out = pass;
    return DT_OK;
}

static int pass_parts(const dt_pass *pass, int threads) { return parts(pass->calls[0], threads); }

/* One byte for each part, to be seen by finish; then its buffers. */
static size_t pass_scratch_bytes(const dt_pass *pass, int count) {
    return (size_t)(count * pass->dead_count * TILE) * sizeof(int64_t);
}

/* Where member k writes its element i, `from` being the first of the tile: a buffer when dead. */
static int64_t *pass_out(const dt_pass *pass, int k, int64_t *buffers, int64_t from, int64_t i) {
    if (!(pass->dead >> k & 1)) return element(dt_call_out(pass->calls[k], 0), i);
    int slot = __builtin_popcount(pass->dead & ((1u << k) - 1));
    return buffers + slot * TILE + (i - from);
}

/* Where it reads element i of its input t: where the last member before it that makes t writes. */
static int64_t *pass_in(const dt_pass *pass, int k, const dt_tensor *t, int64_t *buffers,
                        int64_t from, int64_t i) {
    for (int m = k - 1; m >= 0; m--)
        if (dt_call_out(pass->calls[m], 0) == t) return pass_out(pass, m, buffers, from, i);
    return element(t, i);
}

static void pass_tile(const dt_pass *pass, int64_t *buffers, int64_t from, int64_t to) {
    for (int k = 0; k < pass->count; k++) {
        const dt_call *call = pass->calls[k];
        for (int64_t i = from; i < to; i++) {
            int64_t in[SIM_OPERANDS_MAX] = {0};
            for (int n = 0; n < call->nin; n++)
                in[n] = *pass_in(pass, k, dt_call_in(call, n), buffers, from, i);
            *pass_out(pass, k, buffers, from, i) = sim_compute(sim_of(call), 0, i, in);
        }
    }
}

static void pass_run(const dt_pass *pass, const dt_part *part) {
    for (int k = 0; k < pass->count; k++) {
        if (sim_of(pass->calls[k])->pass != pass->number) sim_violation("a pass has lost a member");
        sim_check_begin(sim_of(pass->calls[k]));
    }
    enter();
    for (int k = 0; k < pass->count; k++) sim_of(pass->calls[k])->inside++;
    sim_event("pass of %lld led by T%lld, part %lld/%lld", pass->count,
              sim_of(pass->calls[0])->index, part->index, part->count);
    int64_t *buffers = (int64_t *)part->scratch + part->index * pass->dead_count * TILE;
    int64_t n = dt_call_out(pass->calls[0], 0)->numel;
    int64_t begin = n * part->index / part->count, end = n * (part->index + 1) / part->count;
    int64_t tiles = (end - begin + TILE - 1) / TILE;
    for (int64_t k = 0; k < tiles; k++) {
        int64_t from = begin + (part->index % 2 == 1 ? tiles - 1 - k : k) * TILE;
        pass_tile(pass, buffers, from, from + TILE < end ? from + TILE : end);
        if (k == tiles / 2)
            sim_sleep(sim_of(pass->calls[0])->takes_ns * (2 + pass->count) / 4 / part->count + 1);
    }
    for (int k = 0; k < pass->count; k++) sim_of(pass->calls[k])->inside--;
    ((dt_pass *)(uintptr_t)pass)->parts_done++;
    leave();
}

static void pass_finish(const dt_pass *pass, const dt_part *part) {
    if (pass->parts_done != part->count)
        sim_violation("a pass is finished after %d of %d parts", pass->parts_done, part->count);
    sim_covered[SIM_COVER_dead_intermediates] += pass->dead_count;
}

static void pass_free(dt_pass *pass) {
    if (pass->parts_done == 0) sim_cover(passes_given_up);
    for (int k = 0; k < pass->count; k++)
        if (pass->parts_done == 0) sim_of(pass->calls[k])->pass = 0;
    dt_free(pass, sizeof *pass);
}

static const dt_fuse_ops fuse = {
    .fusible = fusible,
    .joins = joins,
    .ends = ends,
    .cost_ns = pass_cost_ns,
    .build = build,
    .parts = pass_parts,
    .scratch_bytes = pass_scratch_bytes,
    .run = pass_run,
    .finish = pass_finish,
    .free = pass_free,
};

void sim_kernels_register(void) {
    static const dt_kernel *const none[DT_OP_COUNT];
    static const dt_device_ops device = {.type = "sim", .kernels = none, .fuse = &fuse};
    dt_device_register_cpu(&device);
}
