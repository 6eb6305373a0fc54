/* run_plan.c: see run_plan.h.
 *
 * Steps go from parts to parts.  Local steps make views where they can; what is still a view of
 * the source at the end is copied.  Piece by piece, the same steps run on slices of the source, one
 * after the other: results go to windows of the target's parts, and what is made in between to
 * buffers that all slices share, so that a slice waits, in its tasks, until the one before has
 * left them.
 */
#include "collectives/run_plan.h"

#include <string.h>

#include "collectives/assemble.h"
#include "collectives/exchange.h"
#include "futures/dispatch.h"
#include "futures/place.h"
#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "runtime/rules.h"

typedef struct run {
    const dt_plan *plan;
    const dt_collectives *table;
    dt_layout now;
    dt_tensor **parts; /* owned, by index in now.mesh */
    bool *fresh;       /* has bytes of its own, which nobody else knows */
    /* Piece by piece: */
    int64_t first, length; /* the slice */
    dt_tensor **buffers; /* owned: rows of `row_size` for each step, and for the copies at the end;
                            NULL: each step makes fresh tensors */
    int row_size;        /* devices of the larger mesh */
} run;

static void release_parts(dt_tensor **parts, int n) {
    for (int k = 0; k < n; k++)
        if (parts[k] != NULL) dt_tensor_release(parts[k]);
}

/* Takes `part`. */
static void swap_part(run *r, int k, dt_tensor *part, bool fresh) {
    dt_tensor_release(r->parts[k]);
    r->parts[k] = part;
    r->fresh[k] = fresh;
}

static void box_of(const run *r, const dt_layout *l, int index, dt_box *box) {
    int64_t shape[DT_RANK_MAX];
    memcpy(shape, r->plan->shape, sizeof shape);
    if (r->buffers != NULL) shape[r->plan->piece_dim] = r->length;
    dt_layout_part(l->mesh, l->placements, r->plan->rank, shape, index, box);
}

/* ---- where results go ------------------------------------------------------------------------ */

/* Of step `row`, or of the copies at the end (row plan->count), for the device at `index`: NULL, or
 * an owned window to write to. */
static dt_status target_of(const run *r, int row, int index, dt_tensor **out) {
    *out = NULL;
    if (r->buffers == NULL) return DT_OK;
    dt_tensor *whole = r->buffers[row * r->row_size + index];
    int dim = r->plan->piece_dim;
    bool result = whole->shape[dim] == r->plan->shape[dim];
    return dt_narrow_view(whole, dim, result ? r->first : 0, r->length, out);
}

static dt_status targets_of(const run *r, int row, int size, dt_tensor **out) {
    memset(out, 0, sizeof *out * (size_t)size);
    for (int k = 0; k < size; k++) {
        dt_status status = target_of(r, row, k, &out[k]);
        if (status == DT_OK) continue;
        release_parts(out, k);
        return status;
    }
    return DT_OK;
}

/* ---- local steps ----------------------------------------------------------------------------- */

/* What leaves a sum, or a product, as it is, in that shape: one element, repeated. */
static dt_status neutral(dt_dtype dtype, bool product, int rank, const int64_t *size,
                         dt_tensor **out) {
    static const int64_t still[DT_RANK_MAX] = {0};
    dt_scalar value =
        dt_place_identity(product ? DT_PARTIAL_PRODUCT : DT_PARTIAL_SUM, dt_dtype_is_float(dtype));
    dt_tensor *one;
    DT_TRY(dt_tensor_new_scalar(value, dtype, false, &one));
    dt_status status = dt_tensor_new_view(one, dtype, rank, size, still, 0, out);
    dt_tensor_release(one);
    return status;
}

static dt_status cut(run *r, const dt_step *step) {
    dt_layout after = {step->mesh, step->placements};
    for (int k = 0; k < step->mesh->size; k++) {
        dt_box have, want;
        dt_tensor *view;
        box_of(r, &r->now, k, &have);
        box_of(r, &after, k, &want);
        if (memcmp(have.size, want.size, sizeof *have.size * (size_t)r->plan->rank) == 0) continue;
        for (int d = 0; d < r->plan->rank; d++) want.start[d] -= have.start[d];
        DT_TRY(dt_box_view(r->parts[k], want.start, want.size, &view));
        swap_part(r, k, view, false);
    }
    return DT_OK;
}

static dt_status keep_once(run *r, const dt_step *step) {
    int m = __builtin_ctz(step->mesh_dims);
    dt_placement_kind kind = (dt_placement_kind)step->placements[m].kind;
    if (kind != DT_PARTIAL_SUM && kind != DT_PARTIAL_PRODUCT) return DT_OK;
    for (int k = 0; k < step->mesh->size; k++) {
        if (dt_mesh_coordinate(step->mesh, k, m) == 0) continue;
        /* The analyser does not know that there are mesh->size parts.
         * NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign) */
        dt_tensor *view, *part = r->parts[k];
        DT_TRY(neutral((dt_dtype)part->dtype, kind == DT_PARTIAL_PRODUCT, part->rank, part->shape,
                       &view));
        swap_part(r, k, view, false);
    }
    return DT_OK;
}

/* The device's own part, with what counts nothing before and behind it along the dim that is cut.
 */
static dt_status pad_one(const run *r, const dt_step *step, int k, dt_tensor **out) {
    int m = __builtin_ctz(step->mesh_dims), d = r->now.placements[m].dim, n = 0;
    bool product = step->placements[m].kind == DT_PARTIAL_PRODUCT;
    dt_layout after = {step->mesh, step->placements};
    dt_box have, want;
    dt_tensor *pieces[3], *part = r->parts[k];
    box_of(r, &r->now, k, &have);
    box_of(r, &after, k, &want);
    int64_t size[DT_RANK_MAX], before = have.start[d] - want.start[d];
    int64_t lengths[3] = {before, have.size[d], want.size[d] - before - have.size[d]};
    memcpy(size, part->shape, sizeof size);
    dt_status status = DT_OK;
    for (; n < 3 && status == DT_OK; n++) {
        size[d] = lengths[n];
        if (n == 1)
            pieces[n] = dt_tensor_retain(part);
        else
            status = neutral((dt_dtype)part->dtype, product, part->rank, size, &pieces[n]);
        if (status != DT_OK) break;
    }
    if (status == DT_OK) {
        dt_assembly how = {.rank = part->rank, .divisor = 1};
        for (int e = 0; e < part->rank; e++) how.grid[e] = e == d ? 3 : 1;
        status = dt_assemble(&how, 3, pieces, 1, out);
    }
    release_parts(pieces, n);
    return status;
}

static dt_status pad(run *r, const dt_step *step) {
    for (int k = 0; k < step->mesh->size; k++) {
        dt_tensor *padded = NULL;
        DT_TRY(pad_one(r, step, k, &padded));
        swap_part(r, k, padded, true);
    }
    return DT_OK;
}

/* ---- collectives ----------------------------------------------------------------------------- */

static bool is_first_of_group(const dt_mesh *mesh, uint32_t mask, int index) {
    for (int m = 0; m < mesh->rank; m++)
        if (mask >> m & 1 && dt_mesh_coordinate(mesh, index, m) != 0) return false;
    return true;
}

static dt_status call(const dt_collectives *table, dt_step_kind kind, const dt_collective *c) {
    switch (kind) {
    case DT_STEP_ALL_GATHER:
        return table->all_gather(c);
    case DT_STEP_REDUCE_SCATTER:
        return table->reduce_scatter(c);
    case DT_STEP_ALL_REDUCE:
        return table->all_reduce(c);
    case DT_STEP_ALL_TO_ALL:
        return table->all_to_all(c);
    case DT_STEP_BROADCAST:
        return table->broadcast(c);
    case DT_STEP_SCATTER:
        return table->scatter(c);
    default:
        DT_ASSERT(kind == DT_STEP_GATHER);
        return table->gather(c);
    }
}

/* The lengths along dim d of the members' parts in a layout. */
static void lengths_of(const run *r, const dt_layout *l, const dt_collective *c, int d,
                       int64_t *lengths) {
    for (int k = 0; k < c->n; k++) {
        dt_box box;
        box_of(r, l, c->members[k], &box);
        lengths[k] = box.size[d];
    }
}

/* One group of a step within a mesh; made: by index, as dt_assemble's out. */
static dt_status run_group(const run *r, const dt_step *step, int first, const int *offsets, int n,
                           dt_tensor **made) {
    int members[DT_MESH_DEVICES_MAX];
    int64_t lengths[DT_MESH_DEVICES_MAX];
    dt_tensor *in[DT_MESH_DEVICES_MAX], *out[DT_MESH_DEVICES_MAX];
    dt_layout after = {step->mesh, step->placements};
    int m = __builtin_ctz(step->mesh_dims);
    dt_placement had = r->now.placements[m], gets = step->placements[m];
    dt_collective c = {.mesh = step->mesh,
                       .n = n,
                       .members = members,
                       .in = in,
                       .out = out,
                       .join_dim = had.dim,
                       .cut_dim = gets.dim,
                       .lengths = lengths,
                       .reduction = (dt_placement_kind)had.kind};
    for (int k = 0; k < n; k++) {
        /* ... nor that there are n offsets.
         * NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult) */
        members[k] = first + offsets[k];
        in[k] = r->parts[members[k]];
        out[k] = made[members[k]];
    }
    if (gets.kind == DT_SHARD) lengths_of(r, &after, &c, gets.dim, lengths);
    dt_status status = call(r->table, (dt_step_kind)step->kind, &c);
    for (int k = 0; k < n && status == DT_OK; k++) made[members[k]] = out[k];
    return status;
}

static dt_status run_groups(const run *r, const dt_step *step, dt_tensor **made) {
    int offsets[DT_MESH_DEVICES_MAX];
    int n = dt__group_offsets(step->mesh, step->mesh_dims, offsets);
    for (int first = 0; first < step->mesh->size; first++)
        if (is_first_of_group(step->mesh, step->mesh_dims, first))
            DT_TRY(run_group(r, step, first, offsets, n, made));
    return DT_OK;
}

/* Between one device and those of a mesh. */
static dt_status run_root(const run *r, const dt_step *step, dt_tensor **made) {
    int members[DT_MESH_DEVICES_MAX];
    int64_t lengths[DT_MESH_DEVICES_MAX];
    dt_layout after = {step->mesh, step->placements};
    bool gathers = step->kind == DT_STEP_GATHER;
    const dt_mesh *group = gathers ? r->now.mesh : step->mesh;
    dt_collective c = {.mesh = group,
                       .n = group->size,
                       .members = members,
                       .in = r->parts,
                       .out = made,
                       .join_dim = r->now.placements[0].dim,
                       .cut_dim = step->placements[0].dim,
                       .lengths = lengths};
    for (int k = 0; k < c.n; k++) members[k] = k;
    if (step->kind == DT_STEP_SCATTER) lengths_of(r, &after, &c, c.cut_dim, lengths);
    return call(r->table, (dt_step_kind)step->kind, &c);
}

static dt_status run_exchange(const run *r, const dt_step *step, dt_tensor **made) {
    dt_layout after = {step->mesh, step->placements};
    int64_t shape[DT_RANK_MAX];
    memcpy(shape, r->plan->shape, sizeof shape);
    if (r->buffers != NULL) shape[r->plan->piece_dim] = r->length;
    return r->table->exchange(r->plan->rank, shape, &r->now, r->parts, &after, made);
}

static dt_status communicate(run *r, const dt_step *step, int row) {
    dt_tensor *made[DT_MESH_DEVICES_MAX];
    DT_TRY(targets_of(r, row, step->mesh->size, made));
    dt_status status = step->kind == DT_STEP_EXCHANGE ? run_exchange(r, step, made)
                       : step->mesh_dims == 0         ? run_root(r, step, made)
                                                      : run_groups(r, step, made);
    if (status != DT_OK) {
        release_parts(made, step->mesh->size);
        return status;
    }
    release_parts(r->parts, r->now.mesh->size);
    memcpy(r->parts, made, sizeof *made * (size_t)step->mesh->size);
    for (int k = 0; k < step->mesh->size; k++) r->fresh[k] = true;
    return DT_OK;
}

/* ---- all steps ------------------------------------------------------------------------------- */

static dt_status run_step(run *r, int row) {
    const dt_step *step = &r->plan->steps[row];
    dt_status status;
    if (step->kind == DT_STEP_CUT)
        status = cut(r, step);
    else if (step->kind == DT_STEP_KEEP_ONCE)
        status = keep_once(r, step);
    else if (step->kind == DT_STEP_PAD)
        status = pad(r, step);
    else
        status = communicate(r, step, row);
    if (status == DT_OK) r->now = (dt_layout){step->mesh, step->placements};
    return status;
}

/* The row whose results are the target's parts. */
static int result_row(const dt_plan *plan) {
    bool copies = plan->count == 0 || plan->steps[plan->count - 1].kind == DT_STEP_CUT;
    return copies ? plan->count : plan->count - 1;
}

static dt_status make_fresh(run *r) {
    bool all = r->buffers != NULL && result_row(r->plan) == r->plan->count;
    for (int k = 0; k < r->now.mesh->size; k++) {
        if (r->fresh[k] && !all) continue;
        dt_tensor *copy;
        DT_TRY(target_of(r, r->plan->count, k, &copy));
        dt_status status = dt_assemble_copy(r->parts[k], &copy);
        if (status != DT_OK) {
            if (copy != NULL) dt_tensor_release(copy);
            return status;
        }
        swap_part(r, k, copy, true);
    }
    return DT_OK;
}

/* From the source's parts, or slices of them, which are taken. */
static dt_status run_steps(run *r) {
    r->now = r->plan->from;
    memset(r->fresh, 0, sizeof *r->fresh * (size_t)r->now.mesh->size);
    for (int row = 0; row < r->plan->count; row++) DT_TRY(run_step(r, row));
    return make_fresh(r);
}

/* ---- piece by piece -------------------------------------------------------------------------- */

static const dt_mesh *mesh_of_row(const dt_plan *plan, int row) {
    return row < plan->count ? plan->steps[row].mesh : plan->to.mesh;
}

static dt_status make_buffer(const run *r, int row, int index, int64_t length, dt_tensor **out) {
    const dt_plan *plan = r->plan;
    const dt_placement *placements =
        row < plan->count ? plan->steps[row].placements : plan->to.placements;
    dt_box box;
    dt_layout_part(mesh_of_row(plan, row), placements, plan->rank, plan->shape, index, &box);
    if (row != result_row(plan)) box.size[plan->piece_dim] = length;
    return dt_tensor_new((dt_dtype)plan->dtype, plan->rank, box.size, out);
}

static dt_status make_buffers(const run *r, int64_t length) {
    for (int row = 0; row <= r->plan->count; row++)
        for (int k = 0; k < mesh_of_row(r->plan, row)->size; k++)
            DT_TRY(make_buffer(r, row, k, length, &r->buffers[row * r->row_size + k]));
    return DT_OK;
}

static dt_status run_slice(run *r, dt_tensor *const *parts) {
    int n = r->plan->from.mesh->size;
    for (int k = 0; k < n; k++) {
        dt_status status =
            dt_narrow_view(parts[k], r->plan->piece_dim, r->first, r->length, &r->parts[k]);
        if (status == DT_OK) continue;
        release_parts(r->parts, k);
        return status;
    }
    dt_status status = run_steps(r);
    release_parts(r->parts, r->now.mesh->size);
    return status;
}

static dt_status run_pieces(run *r, dt_tensor *const *parts, dt_tensor **out) {
    const dt_plan *plan = r->plan;
    int size = plan->to.mesh->size;
    int64_t whole = plan->shape[plan->piece_dim];
    int64_t length = (whole + plan->pieces - 1) / plan->pieces;
    dt_status status = make_buffers(r, length);
    for (r->first = 0; r->first < whole && status == DT_OK; r->first += length) {
        r->length = whole - r->first < length ? whole - r->first : length;
        status = run_slice(r, parts);
    }
    for (int k = 0; k < size && status == DT_OK; k++)
        out[k] = dt_tensor_retain(r->buffers[result_row(plan) * r->row_size + k]);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static dt_status run_whole(run *r, dt_tensor *const *parts, dt_tensor **out) {
    for (int k = 0; k < r->plan->from.mesh->size; k++) r->parts[k] = dt_tensor_retain(parts[k]);
    dt_status status = run_steps(r);
    if (status == DT_OK)
        memcpy(out, r->parts, sizeof *out * (size_t)r->now.mesh->size);
    else
        release_parts(r->parts, r->now.mesh->size);
    return status;
}

dt_status dt_plan_run(const dt_plan *plan, const dt_collectives *table, dt_tensor *const *parts,
                      dt_tensor **out) {
    dt_tensor *now[DT_MESH_DEVICES_MAX];
    bool fresh[DT_MESH_DEVICES_MAX];
    run r = {.plan = plan, .table = table, .parts = now, .fresh = fresh};
    if (plan->pieces <= 1) return run_whole(&r, parts, out);
    int sizes[2] = {plan->from.mesh->size, plan->to.mesh->size};
    r.row_size = sizes[0] > sizes[1] ? sizes[0] : sizes[1];
    size_t count = (size_t)(plan->count + 1) * (size_t)r.row_size;
    r.buffers = dt_alloc_zeroed(sizeof(dt_tensor *) * count);
    if (r.buffers == NULL) return dt_fail(DT_E_NO_MEMORY, "out of memory: cannot redistribute");
    dt_status status = run_pieces(&r, parts, out);
    release_parts(r.buffers, (int)count);
    dt_free(r.buffers, sizeof(dt_tensor *) * count);
    return status;
}
