/* fused.c: passes of element-wise calls, see runtime/fuse.h for the contract.
 *
 * Which calls may stand together is decided here; fused_plan.c makes the list of steps; here they
 * are run.  A part turns the places of the plan into addresses, does the steps that are for one
 * element, then walks its range tile by tile, all steps on each: a step is one call of a tile
 * function on what lies in L1, or a chain (chain.h) of expressions that need no store in between.
 *
 * With a reduction at the end each tile is some of its rows or one block of a row: reduced by the
 * reduction's own function, so that its tree is the same as alone.  Rows of one block are written
 * at once; the values of other blocks wait for finish().
 *
 * I1: a part's range is cut at multiples of 64 elements, as that of a kernel alone; before a
 *     reduction at its rows or blocks.
 * I2: the scratch holds, for each part, its buffers, single elements and cursors.
 */
#include "kernels/cpu/fused.h"

#include "kernels/cpu/cast.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/fused_plan.h"
#include "kernels/cpu/iter.h"
#include "runtime/alloc.h"
#include "runtime/assert.h"

/* ---- what may stand together ---------------------------------------------------------------- */

static bool inputs_fit(const dt_call *call, const dt_tensor *out) {
    for (int k = 0; k < call->nin; k++) {
        const dt_tensor *t = dt_call_in(call, k);
        if (t == NULL) continue;
        if (t->rank != out->rank && t->numel != 1) return false;
        if (dt_tensor_partial_overlap(out, t)) return false;
    }
    return true;
}

static bool values_can_be_illegal(const dt__ew_op *op) {
    if (dt_dtype_is_float(op->math)) return false;
    return op->family->check != NULL || (op->family->flags & (DT_EW_DIVISOR | DT_EW_POWER)) != 0;
}

static bool fuse_ends(const dt_call *call) {
    dt__reduce_tail tail;
    return dt__reduce_tail_of(call, &tail);
}

static bool fuse_fusible(const dt_call *call) {
    if (fuse_ends(call)) return dt_call_out(call, 0)->contiguous;
    bool copies = call->kernel == &dt_kernel_ew_copy;
    if (!copies && !(call->kernel->flags & DT_KERNEL_ELEMENTWISE)) return false;
    const dt_tensor *out = dt_call_out(call, 0);
    if (call->nout != 1 || !out->contiguous || !inputs_fit(call, out)) return false;
    dt__ew_op op;
    return copies || (dt__ew_op_find(call, &op) && !values_can_be_illegal(&op));
}

/* Whether writing one and touching the other only ever meets at equal positions. */
static bool agree(const dt_tensor *written, const dt_tensor *touched) {
    if (written->storage != touched->storage) return true;
    if (written->dtype != touched->dtype || written->offset != touched->offset) return false;
    if (!dt_tensor_same_shape(written, touched)) return false;
    return !dt_tensor_partial_overlap(written, touched);
}

static bool agree_with_inputs(const dt_tensor *written, const dt_call *call) {
    for (int k = 0; k < call->nin; k++) {
        const dt_tensor *t = dt_call_in(call, k);
        if (t != NULL && !agree(written, t)) return false;
    }
    return true;
}

static bool fuse_joins(const dt_call *member, const dt_call *next) {
    const dt_tensor *a = dt_call_out(member, 0), *b = dt_call_out(next, 0);
    const dt_tensor *walked = fuse_ends(next) ? dt_call_in(next, 0) : b;
    return !fuse_ends(member) && dt_tensor_same_shape(a, walked) && agree(a, b) &&
           agree_with_inputs(a, next) && agree_with_inputs(b, member);
}

/* Whether the result and the operand that comes from the call before can stay in registers. */
static bool can_chain(const dt_call *call, const dt__ew_op *op) {
    return (dt_dtype)dt_call_out(call, 0)->dtype == op->math && op->compute == op->math &&
           dt__chain_knows(op->math, op->family->row);
}

static double fuse_cost_ns(const dt_call *call) {
    double bytes, ns;
    dt__ew_op op;
    if (fuse_ends(call)) return call->kernel->cost_ns(call);
    if (call->kernel == &dt_kernel_ew_copy) {
        const dt_tensor *in = dt_call_in(call, 0), *out = dt_call_out(call, 0);
        bytes = 2 * (double)dt_dtype_size((dt_dtype)out->dtype);
        ns = in == NULL || in->dtype == out->dtype ? 0 : 0.1;
    } else {
        dt__ew_op_find(call, &op);
        ns = dt__ew_compute_ns(&op, call, &bytes);
        double size = (double)dt_dtype_size(op.math);
        if (can_chain(call, &op) && bytes >= 2 * size) {
            ns -= DT__CHAIN_SAVED_NS * size;
            bytes -= 2 * size;
        }
    }
    return (ns + 0.02 * bytes) * (double)dt_call_out(call, 0)->numel;
}

/* ---- running -------------------------------------------------------------------------------- */

typedef struct gather {
    dt__iter it;
    dt__cursor at;
} gather;

const size_t dt__fused_gather_bytes = (sizeof(gather) + 63) / 64 * 64;

/* A walk over t in the order of the pass.  The walk's output is made up: a dead one, or one that is
 * not written yet, has no memory to ask for. */
static void gather_init(gather *g, const dt_pass *pass, const dt_tensor *t, int64_t begin) {
    dt_tensor like = {
        .dtype = t->dtype, .rank = pass->shape->rank, .numel = pass->numel, .storage = t->storage};
    for (int d = 0; d < like.rank; d++) {
        like.shape[d] = pass->shape->shape[d];
        like.strides[d] = pass->shape->strides[d];
    }
    dt__iter_init(&g->it, 2, (dt_tensor *[]){&like, (dt_tensor *)t});
    dt__cursor_seek(&g->it, &g->at, begin);
}

static void gather_next(gather *g, int64_t n, char *to) {
    DT_ASSERT(g != NULL);
    int64_t end = g->at.position + n;
    while (g->at.position < end) {
        int64_t run = dt__cursor_run(&g->it, &g->at, n, end);
        dt__cursor_gather(&g->it, &g->at, 1, run, to);
        dt__cursor_next(&g->it, &g->at, run);
        to += run * g->it.size[1];
    }
}

static void resolve_places(const dt_pass *pass, char *scratch, int64_t begin, char **at) {
    for (int q = 0; q < pass->places_count; q++) {
        const dt__fused_place *place = &pass->places[q];
        switch ((dt__fused_where)place->where) {
        case DT__AT_MEMORY:
            at[q] = (char *)dt_tensor_data(place->tensor) + begin * place->size;
            break;
        case DT__AT_BUFFER:
        case DT__AT_SLOT:
            at[q] = scratch + place->offset;
            break;
        case DT__AT_ONE:
            at[q] = dt_tensor_data(place->tensor);
            break;
        case DT__AT_NUMBER:
            at[q] = (char *)&place->number;
            break;
        case DT__AT_REGISTER: /* has no place */
            break;
        }
    }
}

static inline void run_steps(const dt__fused_step *s, const dt__fused_step *end, int64_t n,
                             char *const *at, gather *gathers) {
    for (; s < end; s++) {
        char *out = at[s->out];
        switch ((dt__fused_kind)s->kind) {
        case DT__STEP_TILE: {
            const void *in[DT_EW_INPUTS_MAX] = {at[s->in[0]], at[s->in[1]], at[s->in[2]]};
            s->tile(n, out, in, s->step, s->params);
            break;
        }
        case DT__STEP_CAST:
            dt_cast(n, out, (dt_dtype)s->to, at[s->in[0]], (dt_dtype)s->from);
            break;
        case DT__STEP_ROUND:
            dt_round(n, (float *)out, (dt_dtype)s->to, (const float *)at[s->in[0]]);
            break;
        case DT__STEP_FILL:
            dt__fill((int64_t)dt_dtype_size((dt_dtype)s->to), n, out, at[s->in[0]]);
            break;
        case DT__STEP_GATHER:
            gather_next(&gathers[s->gather], n, out);
            break;
        case DT__STEP_CHAIN:
            dt__chain_run(s->chain, n, at);
            break;
        }
    }
}

/* What a part keeps while it runs. */
typedef struct running {
    const dt_pass *pass;
    char *scratch; /* the part's */
    gather *gathers;
    char *at[DT__FUSED_VALUES_MAX]; /* by place */
} running;

static void start(running *r, const dt_pass *pass, const dt_part *part, int64_t begin) {
    r->pass = pass;
    r->scratch = (char *)part->scratch + (size_t)part->index * pass->part_bytes;
    r->gathers = (gather *)(r->scratch + pass->gathers_at);
    resolve_places(pass, r->scratch, begin, r->at);
    run_steps(pass->steps, pass->steps + pass->once, 1, r->at, NULL);
    for (int i = pass->once; i < pass->steps_count; i++) {
        const dt__fused_step *s = &pass->steps[i];
        if (s->kind == DT__STEP_GATHER) gather_init(&r->gathers[s->gather], pass, s->tensor, begin);
    }
}

static inline void run_tile(running *r, int64_t n) {
    const dt_pass *pass = r->pass;
    run_steps(pass->steps + pass->once, pass->steps + pass->steps_count, n, r->at, r->gathers);
}

static inline void next_tile(running *r, int64_t n) {
    for (int q = 0; q < r->pass->moving; q++) r->at[q] += n * r->pass->places[q].size;
}

/* Rows of one block: as many of them at a time as a tile holds. */
static void run_rows(const dt_pass *pass, const dt_part *part) {
    const dt__reduce_tail *tail = &pass->tail;
    int64_t row = tail->outputs * part->index / part->count;
    int64_t end = tail->outputs * (part->index + 1) / part->count;
    if (row >= end) return;
    running r = {0};
    start(&r, pass, part, row * tail->elements);
    char *values = r.scratch + pass->values_at;
    for (int64_t rows = pass->tile / tail->elements; row < end; row += rows) {
        if (rows > end - row) rows = end - row;
        run_tile(&r, rows * tail->elements);
        const char *x = r.at[pass->reduced];
        for (int64_t k = 0; k < rows; k++, x += tail->elements * tail->size)
            tail->ops->row(x, tail->elements, tail->p, values + k * tail->size);
        dt__reduce_tail_write(pass->reduction, row, rows, values);
        next_tile(&r, rows * tail->elements);
    }
}

/* Longer rows: block by block. */
static void run_blocks(const dt_pass *pass, const dt_part *part) {
    const dt__reduce_tail *tail = &pass->tail;
    int64_t count = tail->outputs * tail->blocks;
    int64_t block = count * part->index / part->count;
    int64_t end = count * (part->index + 1) / part->count;
    if (block >= end) return;
    running r = {0};
    int64_t row = block / tail->blocks, in_row = block % tail->blocks;
    start(&r, pass, part, row * tail->elements + in_row * DT__BLOCK);
    char *values = (char *)part->scratch + (size_t)part->count * pass->part_bytes;
    for (; block < end; block++) {
        int64_t n = tail->elements - in_row * DT__BLOCK;
        if (n > DT__BLOCK) n = DT__BLOCK;
        run_tile(&r, n);
        tail->ops->row(r.at[pass->reduced], n, tail->p,
                       values + (in_row * tail->outputs + row) * tail->size);
        next_tile(&r, n);
        if (++in_row < tail->blocks) continue;
        in_row = 0;
        row++;
    }
}

static void run_elements(const dt_pass *pass, const dt_part *part) {
    int64_t begin, end;
    dt__ew_range(pass->numel, part, &begin, &end);
    if (begin >= end) return;
    running r = {0};
    start(&r, pass, part, begin);
    for (int64_t n = pass->tile; begin < end; begin += n) {
        if (n > end - begin) n = end - begin;
        run_tile(&r, n);
        next_tile(&r, n);
    }
}

static void fuse_run(const dt_pass *pass, const dt_part *part) {
    if (pass->reduction == NULL)
        run_elements(pass, part);
    else if (pass->tail.blocks == 1)
        run_rows(pass, part);
    else
        run_blocks(pass, part);
}

static void fuse_finish(const dt_pass *pass, const dt_part *part) {
    if (pass->reduction == NULL || pass->tail.blocks == 1) return;
    const char *values = (char *)part->scratch + (size_t)part->count * pass->part_bytes;
    dt__reduce_tail_merge(pass->reduction, values);
}

/* ---- the pass ------------------------------------------------------------------------------- */

static dt_status fuse_build(const dt_call *const *calls, int count, uint32_t dead, dt_pass **out) {
    return dt__fused_plan(calls, count, dead, out);
}

static int fuse_parts(const dt_pass *pass, int threads) {
    int parts = dt__ew_parts_for(pass->cost_ns, pass->numel, threads, DT__EW_SPLIT_PASS_NS);
    if (pass->reduction == NULL) return parts;
    int64_t most = pass->tail.outputs * pass->tail.blocks;
    return parts <= most ? parts : most < 1 ? 1 : (int)most;
}

static size_t fuse_scratch_bytes(const dt_pass *pass, int parts) {
    return pass->part_bytes * (size_t)parts + pass->whole_bytes;
}

static void fuse_free(dt_pass *pass) { dt_free(pass, pass->bytes); }

const dt_fuse_ops dt_cpu_fuse = {
    .fusible = fuse_fusible,
    .joins = fuse_joins,
    .ends = fuse_ends,
    .cost_ns = fuse_cost_ns,
    .build = fuse_build,
    .parts = fuse_parts,
    .scratch_bytes = fuse_scratch_bytes,
    .run = fuse_run,
    .finish = fuse_finish,
    .free = fuse_free,
};
