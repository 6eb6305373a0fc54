/* dist_index.c: x[...] and x[...] = value where x is on a mesh.
 *
 * Reading goes through the ops select, slice__dim and unsqueeze, so that their sharding decides
 * what is legal.  Writing does not: a sharded dim may be sliced, since every device writes just
 * what it holds of the range, which moves nothing as long as it also holds that of the value.
 *
 *   for each device: box of the part & index -> a view of the part, and which range of the view it
 * is value: the same range, of an ordinary tensor, or of the part that the device has of it
 *
 * I1: nothing is written before every device is known to have its share of the value.
 */
#include "python/ext/index.h"

#include "runtime/dist.h"
#include "runtime/shard.h"

/* ---- ops ------------------------------------------------------------------------------------- */

/* Replaces *t, which is owned, by what the call makes of it. */
static int apply(dt_op_call *call, dt_tensor **t) {
    call->args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = *t};
    dt_status status = dt_py_dispatch(call);
    dt_tensor_release(*t);
    *t = NULL;
    if (status == DT_OK) {
        *t = call->outs[0];
        return 0;
    }
    (void)dt_py_raise(status);
    return -1;
}

static int apply_ints(dt_op_id id, dt_tensor **t, int n, const int64_t *ints) {
    dt_op_call call;
    dt_op_call_init(&call, id);
    call.nargs = n + 1;
    for (int k = 0; k < n; k++) call.args[k + 1] = (dt_arg){.kind = DT_ARG_INT, .i = ints[k]};
    return apply(&call, t);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int take(const dt_cursor *c, int dim, int64_t count, dt_tensor **t) {
    const dt_index_dim *at = &c->at[dim];
    if (at->single) return apply_ints(DT_OP_select, t, 2, (int64_t[]){dim, at->start});
    if (at->start == 0 && at->step == 1 && count == c->source->shape[dim]) return 0;
    int64_t start = count > 0 ? at->start : 0;
    int64_t end = count > 0 ? start + (count - 1) * at->step + 1 : 0;
    return apply_ints(DT_OP_slice__dim, t, 4, (int64_t[]){dim, start, end, at->step});
}

dt_tensor *dt__dist_view(const dt_cursor *c) {
    int64_t count[DT_RANK_MAX] = {0};
    dt_tensor *t = dt_tensor_retain(c->source);
    for (int v = 0; v < c->out; v++)
        if (c->from[v] >= 0) count[c->from[v]] = c->shape[v];
    for (int d = c->source->rank - 1; d >= 0; d--)
        if (take(c, d, count[d], &t) < 0) return NULL;
    for (int v = 0; v < c->out; v++) {
        if (c->from[v] >= 0) continue;
        if (apply_ints(DT_OP_unsqueeze, &t, 1, (int64_t[]){v}) < 0) return NULL;
        if (c->shape[v] == 0 && apply_ints(DT_OP_slice__dim, &t, 4, (int64_t[]){v, 0, 0, 1}) < 0)
            return NULL;
    }
    if (t == c->source && apply_ints(DT_OP_detach, &t, 0, NULL) < 0) return NULL;
    return t;
}

dt_tensor *dt__dist_replicate(dt_tensor *t, const dt_tensor *on) {
    const dt_mesh *mesh = dt_dist_of(on)->mesh;
    dt_placement placements[DT_MESH_RANK_MAX] = {{DT_REPLICATE, 0}};
    dt_tensor *parts[DT_MESH_DEVICES_MAX], *out;
    for (int k = 0; k < mesh->size; k++) parts[k] = dt_tensor_retain(t);
    dt_status status = dt_dist_new((dt_dtype)t->dtype, t->rank, t->shape, t->strides, 0, mesh,
                                   placements, parts, &out);
    if (status == DT_OK) return out;
    for (int k = 0; k < mesh->size; k++) dt_tensor_release(parts[k]);
    (void)dt_py_raise(status);
    return NULL;
}

/* a <id> the number, in `t`. */
static int apply_number(dt_op_id id, dt_tensor **t, int64_t number) {
    dt_op_call call;
    dt_op_call_init(&call, id);
    call.nargs = 2;
    call.args[1].kind = DT_ARG_SCALAR;
    call.args[1].s = (dt_scalar){.category = DT_CAT_INT, .i = number};
    return apply(&call, t);
}

dt_tensor *dt__dist_wrapped_index(dt_tensor *index, int64_t size) {
    dt_tensor *shift = dt_tensor_retain(index), *result = NULL;
    if (apply_number(DT_OP_lt, &shift, 0) < 0) return NULL;
    dt_op_call call;
    dt_op_call_init(&call, DT_OP_copy__to);
    call.nargs = 2;
    call.args[1] = (dt_arg){.kind = DT_ARG_DTYPE, .dtype = DT_I64};
    if (apply(&call, &shift) < 0 || apply_number(DT_OP_mul, &shift, size) < 0) return NULL;
    dt_op_call add;
    dt_op_call_init(&add, DT_OP_add);
    add.nargs = 3;
    add.args[1] = (dt_arg){.kind = DT_ARG_TENSOR, .t = index};
    add.args[2].kind = DT_ARG_SCALAR;
    add.args[2].s = (dt_scalar){.category = DT_CAT_INT, .i = 1};
    if (apply(&add, &shift) == 0) result = shift;
    return result;
}

/* ---- a device's share of an assignment ------------------------------------------------------- */

typedef struct share {
    bool empty;
    int64_t offset; /* of the part's view */
    /* By dims of the view: which of its elements, and the strides in the part. */
    int64_t first[DT_RANK_MAX], count[DT_RANK_MAX], strides[DT_RANK_MAX];
} share;

static int64_t ceil_div(int64_t a, int64_t b) { return a <= 0 ? 0 : (a + b - 1) / b; }

/* Elements [*first, *first + *count) of a range of n are in [from, from + size). */
static void intersect(const dt_index_dim *at, int64_t n, int64_t from, int64_t size, int64_t *first,
                      int64_t *count) {
    int64_t low = ceil_div(from - at->start, at->step);
    int64_t high = ceil_div(from + size - at->start, at->step);
    if (high > n) high = n;
    *first = low;
    *count = high > low ? high - low : 0;
}

static void share_of(const dt_cursor *c, int index, share *s) {
    const dt_dist *d = dt_dist_of(c->source);
    const dt_tensor *part = d->parts[index];
    dt_box box;
    dt_layout_part(d->mesh, d->placements, c->source->rank, c->source->shape, index, &box);
    *s = (share){.offset = part->offset};
    for (int k = 0; k < c->source->rank; k++) {
        const dt_index_dim *at = &c->at[k];
        if (!at->single) continue;
        s->empty = s->empty || at->start < box.start[k] || at->start >= box.start[k] + box.size[k];
        s->offset += (at->start - box.start[k]) * part->strides[k];
    }
    for (int v = 0; v < c->out; v++) {
        int k = c->from[v];
        s->count[v] = c->shape[v];
        if (k >= 0) {
            const dt_index_dim *at = &c->at[k];
            intersect(at, c->shape[v], box.start[k], box.size[k], &s->first[v], &s->count[v]);
            s->strides[v] = part->strides[k] * at->step;
            s->offset += (at->start + s->first[v] * at->step - box.start[k]) * part->strides[k];
        }
        s->empty = s->empty || s->count[v] == 0;
    }
}

/* ---- the value ------------------------------------------------------------------------------- */

static dt_placement placement_of(const dt_tensor *t, int mesh_dim) {
    return dt_tensor_is_dist(t) ? dt_dist_of(t)->placements[mesh_dim] : dt_replicate();
}

/* Whether this device leaves the value to those at coordinate 0, and what it has instead: a neutral
 * number for the reduction; DT_REPLICATE: it has the value. */
static dt_placement_kind neutral_kind(const dt_cursor *c, const dt_tensor *value, int index) {
    const dt_dist *d = dt_dist_of(c->source);
    for (int m = 0; m < d->mesh->rank; m++) {
        dt_placement p = d->placements[m];
        bool once = p.kind == DT_PARTIAL_SUM || p.kind == DT_PARTIAL_PRODUCT;
        bool same = value != NULL && dt_placement_equal(placement_of(value, m), p);
        if (once && !same && dt_mesh_coordinate(d->mesh, index, m) != 0)
            return (dt_placement_kind)p.kind;
    }
    return DT_REPLICATE;
}

static dt_scalar neutral_number(const dt_tensor *t, dt_placement_kind kind) {
    bool product = kind == DT_PARTIAL_PRODUCT;
    dt_scalar s = {.category = DT_CAT_INT, .i = product};
    if (dt_dtype_is_float((dt_dtype)t->dtype))
        s = (dt_scalar){.category = DT_CAT_FLOAT, .f = product ? 1.0 : -0.0};
    return s;
}

static void refuse(const dt_cursor *c, const dt_tensor *value) {
    char a[200], b[200], to[96], from[96];
    const dt_dist *d = dt_dist_of(c->source), *v = dt_dist_of(value);
    PyErr_Format(dt_state->placement_error,
                 "assignment: the value, shape %s, %s on mesh %s, does not lie where the target, "
                 "shape %s, %s on mesh %s, is written: redistribute() the value first",
                 dt_shape_format(value->rank, value->shape, a, sizeof a),
                 dt_placements_format(v->mesh->rank, v->placements, from, sizeof from),
                 dt_mesh_format(v->mesh, (char[64]){0}, 64),
                 dt_shape_format(c->source->rank, c->source->shape, b, sizeof b),
                 dt_placements_format(d->mesh->rank, d->placements, to, sizeof to),
                 dt_mesh_format(d->mesh, (char[64]){0}, 64));
}

static bool meshes_fit(const dt_cursor *c, const dt_tensor *value) {
    const dt_dist *d = dt_dist_of(c->source);
    if (!dt_tensor_is_dist(value)) return true;
    if (!dt_mesh_same(dt_dist_of(value)->mesh, d->mesh)) return false;
    for (int m = 0; m < d->mesh->rank; m++) {
        dt_placement p = placement_of(value, m);
        if (!dt_placement_is_partial(p)) continue;
        if (!dt_placement_equal(p, d->placements[m])) return false;
        /* Each part is cast by itself. */
        if (!dt_cast_commutes((dt_placement_kind)p.kind, (dt_dtype)value->dtype,
                              (dt_dtype)c->source->dtype))
            return false;
    }
    return true;
}

/* The range of the value that belongs to the share, a view of the bytes that the device has; false:
 * it does not have them. With out NULL it only looks. */
static bool piece_of(const dt_cursor *c, const dt_assigned *v, const share *s, int index,
                     dt_tensor **out) {
    const dt_tensor *value = v->t, *bytes = value;
    dt_box box = {{0}, {0}};
    memcpy(box.size, value->shape, sizeof *value->shape * (size_t)value->rank);
    if (dt_tensor_is_dist(value)) {
        const dt_dist *d = dt_dist_of(value);
        bytes = d->parts[index];
        dt_layout_part(d->mesh, d->placements, value->rank, value->shape, index, &box);
    }
    int64_t strides[DT_RANK_MAX] = {0}, offset = bytes->offset;
    for (int w = 0; w < value->rank; w++) {
        int k = w + c->out - value->rank; /* below 0: leading ones that the view does not have */
        bool spread = value->shape[w] == 1;
        int64_t from = spread || k < 0 ? 0 : v->start[k] + s->first[k];
        int64_t count = spread || k < 0 ? 1 : s->count[k];
        if (from < box.start[w] || from + count > box.start[w] + box.size[w]) return false;
        offset += (from - box.start[w]) * bytes->strides[w];
        if (k >= 0 && !spread) strides[k] = bytes->strides[w];
    }
    if (out == NULL) return true;
    return dt_tensor_new_view(bytes, (dt_dtype)bytes->dtype, c->out, s->count, strides, offset,
                              out) == DT_OK;
}

static int check_value(const dt_cursor *c, const dt_assigned *v) {
    bool fits = meshes_fit(c, v->t);
    for (int k = 0; k < dt_dist_of(c->source)->mesh->size && fits; k++) {
        share s;
        share_of(c, k, &s);
        fits = s.empty || neutral_kind(c, v->t, k) != DT_REPLICATE || piece_of(c, v, &s, k, NULL);
    }
    if (fits) return 0;
    refuse(c, v->t);
    return -1;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int assign_piece(const dt_cursor *c, const dt_assigned *v, const share *s, int index,
                        dt_tensor *view) {
    dt_placement_kind kind = neutral_kind(c, v->t, index);
    if (kind != DT_REPLICATE) return dt__index_fill(view, neutral_number(view, kind));
    if (v->t == NULL) return dt__index_fill(view, v->s);
    dt_tensor *piece;
    dt_status status = DT_E_NO_MEMORY;
    if (piece_of(c, v, s, index, &piece)) {
        status = dt_copy_into(view, piece);
        dt_tensor_release(piece);
    }
    if (status == DT_OK) return 0;
    (void)dt_py_raise(status);
    return -1;
}

static int assign_part(const dt_cursor *c, const dt_assigned *v, int index) {
    const dt_tensor *part = dt_dist_of(c->source)->parts[index];
    share s;
    share_of(c, index, &s);
    if (s.empty) { /* a write of the tensor counts for all of its parts */
        atomic_fetch_add_explicit(&part->storage->version, 1, memory_order_relaxed);
        return 0;
    }
    dt_tensor *view;
    dt_status status = dt_tensor_new_view(part, (dt_dtype)part->dtype, c->out, s.count, s.strides,
                                          s.offset, &view);
    if (status != DT_OK) {
        (void)dt_py_raise(status);
        return -1;
    }
    int result = assign_piece(c, v, &s, index, view);
    dt_tensor_release(view);
    return result;
}

int dt__dist_assign(const dt_cursor *c, const dt_assigned *v) {
    if (v->t != NULL && check_value(c, v) < 0) return -1;
    for (int k = 0; k < dt_dist_of(c->source)->mesh->size; k++)
        if (assign_part(c, v, k) < 0) return -1;
    return 0;
}
