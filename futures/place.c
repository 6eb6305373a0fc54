/* place.c: see place.h.
 *
 * P1: dt__place_dispatch leaves call->outs as dt_dispatch does, and nothing behind on failure.
 * P2: a part of a result has the shape that the layout says; a sharding function that is wrong
 *     about that is an error here, never a tensor with wrong numbers.
 */
#include "futures/place.h"

#include <string.h>

#include "futures/dispatch.h"
#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "runtime/rules.h"

static dt_redistribute_hook redistribute_hook;
static bool implicit;
static int64_t implicit_count;

void dt_place_set_redistribute_hook(dt_redistribute_hook hook) { redistribute_hook = hook; }
int64_t dt_place_implicit_count(void) { return implicit_count; }

bool dt_place_set_implicit(bool on) {
    bool was = implicit;
    implicit = on;
    return was;
}

/* ---- which mesh ------------------------------------------------------------------------------ */

static const dt_mesh *mesh_of(const dt_tensor *t) {
    return t != NULL && dt_tensor_is_dist(t) ? dt_dist_of(t)->mesh : NULL;
}

const dt_mesh *dt__place_mesh(const dt_op_call *call) {
    if (call->mesh != NULL) return call->mesh;
    for (int k = 0; k < call->nargs; k++) {
        const dt_arg *a = &call->args[k];
        const dt_mesh *m = NULL;
        if (a->kind == DT_ARG_TENSOR) m = mesh_of(a->t);
        for (int i = 0; a->kind == DT_ARG_TENSORS && i < a->list.n && m == NULL; i++)
            m = mesh_of(a->list.v[i]);
        if (m != NULL) return m;
    }
    return mesh_of(call->target);
}

static dt_status check_one(const dt_op_call *call, const dt_tensor *t, const dt_mesh *mesh) {
    char name[64], a[64], b[64];
    const dt_mesh *own = mesh_of(t);
    if (own == NULL && t->rank == 0) return DT_OK;
    if (own != NULL && dt_mesh_same(own, mesh)) return DT_OK;
    dt_op_display_name(call->op, name, sizeof name);
    dt_mesh_format(mesh, a, sizeof a);
    if (own == NULL)
        return dt_fail(DT_E_PLACEMENT,
                       "%s: one input is on mesh %s, another one, of shape %s, on the CPU alone: "
                       "redistribute() it to that mesh first",
                       name, a, dt_shape_format(t->rank, t->shape, (char[200]){0}, 200));
    dt_mesh_format(own, b, sizeof b);
    if (strcmp(a, b) != 0)
        return dt_fail(DT_E_PLACEMENT,
                       "%s: the inputs are on different meshes, %s and %s: redistribute() one of "
                       "them first",
                       name, a, b);
    return dt_fail(DT_E_PLACEMENT,
                   "%s: the inputs are on meshes %s of different devices (%d, ... and %d, ...): "
                   "redistribute() one of them first",
                   name, a, mesh->ids[0], own->ids[0]);
}

static dt_status check_meshes(const dt_op_call *call, const dt_mesh *mesh) {
    for (int k = 0; k < call->nargs; k++) {
        const dt_arg *a = &call->args[k];
        if (a->kind == DT_ARG_TENSOR) DT_TRY(check_one(call, a->t, mesh));
        for (int i = 0; a->kind == DT_ARG_TENSORS && i < a->list.n; i++)
            DT_TRY(check_one(call, a->list.v[i], mesh));
    }
    if (call->target == NULL) return DT_OK;
    if (mesh_of(call->target) == NULL) { /* 0-dim too: a result on a mesh does not fit there */
        char name[64];
        return dt_fail(DT_E_PLACEMENT,
                       "%s: the result is on a mesh, what it is to be written to is "
                       "not: redistribute() that first",
                       dt_op_display_name(call->op, name, sizeof name));
    }
    return check_one(call, call->target, mesh);
}

/* ---- one call on the mesh -------------------------------------------------------------------- */

typedef struct placing {
    dt_op_call *call; /* the user's, with global metadata */
    const dt_mesh *mesh;
    dt_ask ask;
    dt_placement *chosen;
    dt_placement chosen_inline[DT_CHOSEN_INLINE];
    size_t chosen_bytes; /* of a heap block, 0: inline */
    dt_tensor **parts;   /* of the outputs: nout rows of mesh->size */
    dt_tensor *parts_inline[16];
    size_t parts_bytes;
} placing;

static int width_of(const placing *p) { return p->ask.nin + p->ask.nout; }

static dt_status init_placing(placing *p, dt_op_call *call, const dt_mesh *mesh) {
    p->call = call;
    p->mesh = mesh;
    p->chosen = p->chosen_inline;
    p->parts = p->parts_inline;
    p->chosen_bytes = p->parts_bytes = 0;
    DT_TRY(dt_ask_init(&p->ask, call, mesh));
    size_t n = (size_t)width_of(p) * mesh->rank;
    if (n > DT_CHOSEN_INLINE) {
        DT_ALLOC_OR_FAIL(p->chosen, n * sizeof *p->chosen);
        p->chosen_bytes = n * sizeof *p->chosen;
    }
    n = (size_t)call->nout * (size_t)mesh->size;
    if (n > sizeof p->parts_inline / sizeof *p->parts_inline) {
        DT_ALLOC_OR_FAIL(p->parts, n * sizeof(dt_tensor *));
        p->parts_bytes = n * sizeof(dt_tensor *);
    }
    memset(p->parts, 0, n * sizeof(dt_tensor *));
    return DT_OK;
}

static void fini_placing(placing *p) {
    for (int k = 0; k < p->call->nout * p->mesh->size && p->parts != NULL; k++)
        if (p->parts[k] != NULL) dt_tensor_release(p->parts[k]);
    if (p->parts_bytes > 0) dt_free(p->parts, p->parts_bytes);
    if (p->chosen_bytes > 0) dt_free(p->chosen, p->chosen_bytes);
    dt_ask_fini(&p->ask);
}

/* ---- changing Replicate inputs -------------------------------------------------------------- */

dt_scalar dt_place_identity(dt_placement_kind kind, bool is_float) {
    dt_scalar s = {.category = is_float ? DT_CAT_FLOAT : DT_CAT_INT};
    bool product = kind == DT_PARTIAL_PRODUCT;
    if (is_float)
        s.f = product ? 1.0 : -0.0;
    else
        s.i = product ? 1 : 0;
    return s;
}

/* Whether the device, which is at `index`, has to give up what it has of a value that becomes
 * Partial: the kind of reduction, or DT_REPLICATE when it keeps it. */
static dt_placement_kind gives_up(const placing *p, int input, int index) {
    for (int m = 0; m < p->mesh->rank; m++) {
        dt_placement_kind to = (dt_placement_kind)p->chosen[m * width_of(p) + input].kind;
        bool counts_once = to == DT_PARTIAL_SUM || to == DT_PARTIAL_PRODUCT;
        if (!counts_once || dt_ask_placement(&p->ask, input, m).kind != DT_REPLICATE) continue;
        if (dt_mesh_coordinate(p->mesh, index, m) != 0) return to;
    }
    return DT_REPLICATE;
}

static dt_status invoke_one(dt_op_call *call, dt_tensor **out) {
    DT_TRY(dt_dispatch(call));
    *out = call->outs[0];
    return DT_OK;
}

static dt_status full_like(const dt_tensor *t, dt_scalar value, dt_tensor **out) {
    dt_op_call call;
    dt_dims size = dt_tensor_dims(t);
    dt_op_call_init(&call, DT_OP_full__new);
    call.nargs = 3;
    call.args[0] = (dt_arg){.kind = DT_ARG_DIMS, .dims = &size};
    call.args[1] = (dt_arg){.kind = DT_ARG_SCALAR, .s = value};
    call.args[2] = (dt_arg){.kind = DT_ARG_DTYPE, .dtype = (dt_dtype)t->dtype};
    return invoke_one(&call, out);
}

static dt_status narrow(dt_tensor *t, int dim, int64_t start, int64_t length, dt_tensor **out) {
    dt_op_call call;
    dt_op_call_init(&call, DT_OP_narrow);
    call.nargs = 4;
    call.args[0] = (dt_arg){.kind = DT_ARG_TENSOR, .t = t};
    call.args[1] = (dt_arg){.kind = DT_ARG_INT, .i = dim};
    call.args[2] = (dt_arg){.kind = DT_ARG_INT, .i = start};
    call.args[3] = (dt_arg){.kind = DT_ARG_INT, .i = length};
    return invoke_one(&call, out);
}

/* Cuts `part`, a device's part of t as it is placed, down to the box that the way wants. Takes part
 * on success. */
static dt_status cut(const dt_spot *spot, int input, dt_tensor **part) {
    const dt_tensor *t = spot->ask->in[input].t;
    dt_box have, want;
    dt_layout_part(spot->ask->mesh, dt_dist_of(t)->placements, t->rank, t->shape, spot->index,
                   &have);
    dt_spot_in(spot, input, &want);
    for (int d = 0; d < t->rank; d++) {
        if (have.start[d] == want.start[d] && have.size[d] == want.size[d]) continue;
        dt_tensor *piece;
        int64_t start = want.size[d] > 0 ? want.start[d] - have.start[d] : 0;
        DT_TRY(narrow(*part, d, start, want.size[d], &piece));
        dt_tensor_release(*part);
        *part = piece;
    }
    return DT_OK;
}

static bool is_changed(const placing *p, int input) {
    for (int m = 0; m < p->mesh->rank; m++)
        if (!dt_placement_equal(dt_ask_placement(&p->ask, input, m),
                                p->chosen[m * width_of(p) + input]))
            return true;
    return false;
}

/* The tensor that the device uses for a tensor input; owned. */
static dt_status input_of_device(const placing *p, const dt_spot *spot, int input,
                                 dt_tensor **out) {
    const dt_tensor *t = p->ask.in[input].t;
    bool dist = dt_tensor_is_dist(t);
    dt_tensor *part =
        dt_tensor_retain(dist ? dt_dist_of(t)->parts[spot->index] : (dt_tensor *)(uintptr_t)t);
    dt_status status = DT_OK;
    if (is_changed(p, input)) {
        if (dist) status = cut(spot, input, &part);
        dt_placement_kind kind = gives_up(p, input, spot->index);
        if (status == DT_OK && kind != DT_REPLICATE) {
            dt_tensor *neutral;
            dt_scalar value = dt_place_identity(kind, dt_dtype_is_float((dt_dtype)t->dtype));
            status = full_like(part, value, &neutral);
            if (status == DT_OK) {
                dt_tensor_release(part);
                part = neutral;
                if (t->flags & DT_TENSOR_WRAPPED) part->flags |= DT_TENSOR_WRAPPED;
            }
        }
    }
    if (status != DT_OK) {
        dt_tensor_release(part);
        return status;
    }
    *out = part;
    return DT_OK;
}

/* ---- one device ------------------------------------------------------------------------------ */

#define LIST_INLINE 16

typedef struct device_call {
    dt_op_call call;
    dt_spot spot;
    dt_tensor *owned[DT_ARGS_MAX]; /* tensor arguments */
    dt_tensor **list;              /* of the one list argument */
    int nlist;
    dt_tensor *list_inline[LIST_INLINE];
} device_call;

static dt_status set_list(const placing *p, device_call *d, int arg, int *input) {
    int n = p->call->args[arg].list.n;
    if (n > LIST_INLINE) DT_ALLOC_OR_FAIL(d->list, sizeof *d->list * (size_t)n);
    for (int i = 0; i < n; i++) {
        DT_TRY(input_of_device(p, &d->spot, (*input)++, &d->list[i]));
        d->nlist++;
    }
    d->call.args[arg].list.v = d->list;
    return DT_OK;
}

static dt_status set_arguments(const placing *p, device_call *d) {
    int input = 0;
    for (int k = 0; k < p->call->nargs; k++) {
        dt_arg *a = &d->call.args[k];
        *a = p->call->args[k];
        if (a->kind == DT_ARG_TENSOR) {
            DT_TRY(input_of_device(p, &d->spot, input++, &d->owned[k]));
            a->t = d->owned[k];
        } else if (a->kind == DT_ARG_TENSORS) {
            DT_ASSERT(d->nlist == 0);
            DT_TRY(set_list(p, d, k, &input));
        } else if (a->kind == DT_ARG_SCALAR) {
            dt_placement_kind kind = gives_up(p, input++, d->spot.index);
            bool floats = a->s.category == DT_CAT_FLOAT ||
                          dt_dtype_is_float((dt_dtype)p->call->outs[0]->dtype);
            bool is_bool = a->s.category == DT_CAT_BOOL;
            if (kind != DT_REPLICATE) a->s = dt_place_identity(kind, floats);
            if (is_bool && !floats) a->s.category = DT_CAT_BOOL; /* promotes as it did */
        }
    }
    return DT_OK;
}

static void free_device_call(device_call *d, int list_capacity) {
    for (int k = 0; k < DT_ARGS_MAX; k++)
        if (d->owned[k] != NULL) dt_tensor_release(d->owned[k]);
    for (int i = 0; i < d->nlist; i++) dt_tensor_release(d->list[i]);
    if (d->list != d->list_inline) dt_free(d->list, sizeof *d->list * (size_t)list_capacity);
}

static int list_length(const dt_op_call *call) {
    for (int k = 0; k < call->nargs; k++)
        if (call->args[k].kind == DT_ARG_TENSORS) return call->args[k].list.n;
    return 0;
}

static dt_status check_part(const placing *p, const dt_spot *spot, int k, const dt_tensor *part) {
    if (dt_tensor_is_deferred(part)) return DT_OK;
    dt_dims want = dt_spot_out_dims(spot, k);
    bool same = want.rank == part->rank;
    for (int d = 0; same && d < want.rank; d++) /* -1: its size depends on values */
        same = want.v[d] == part->shape[d] || want.v[d] == -1;
    if (same) return DT_OK;
    char a[200], b[200], name[64];
    return dt_fail(DT_E_PLACEMENT,
                   "%s: the part of device %d has shape %s where the layout says %s: "
                   "redistribute the inputs to Replicate",
                   dt_op_display_name(p->call->op, name, sizeof name), spot->index,
                   dt_shape_format(part->rank, part->shape, a, sizeof a),
                   dt_shape_format(want.rank, want.v, b, sizeof b));
}

static dt_status run_device(placing *p, int index) {
    device_call d;
    d.list = d.list_inline;
    d.nlist = 0;
    memset(d.owned, 0, sizeof d.owned);
    d.spot = (dt_spot){&p->ask, p->chosen, index};
    dt_op_call *c = &d.call;
    dt_op_call_init(c, (dt_op_id)p->call->op->id);
    c->nargs = p->call->nargs;
    c->spot = &d.spot;
    if (p->call->target != NULL && !p->call->replace_target) {
        c->target = dt_dist_of(p->call->target)->parts[index];
        c->inplace = p->call->inplace;
    }
    int capacity = list_length(p->call);
    dt_status status = set_arguments(p, &d);
    if (status == DT_OK) status = dt_dispatch(c);
    if (status == DT_OK) {
        for (int k = 0; k < c->nout; k++) {
            p->parts[k * p->mesh->size + index] = c->outs[k];
            if (status == DT_OK) status = check_part(p, &d.spot, k, c->outs[k]);
        }
    }
    free_device_call(&d, capacity);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void out_placements(const placing *p, int k, dt_placement *placements) {
    for (int m = 0; m < p->mesh->rank; m++)
        placements[m] = p->chosen[m * width_of(p) + p->ask.nin + k];
}

/* Swaps the global metadata in call->outs for tensors on the mesh. */
static dt_status join(placing *p) {
    dt_op_call *c = p->call;
    for (int k = 0; k < c->nout; k++) {
        dt_tensor *joined;
        dt_tensor **parts = p->parts + k * p->mesh->size;
        if (k == 0 && c->target != NULL && !c->replace_target) {
            joined = dt_tensor_retain(c->target);
        } else {
            dt_placement placements[DT_MESH_RANK_MAX];
            out_placements(p, k, placements);
            DT_TRY(dt_dist_new_like(c->outs[k], p->mesh, placements, parts, &joined));
            memset(parts, 0, sizeof *parts * (size_t)p->mesh->size);
        }
        dt_tensor_release(c->outs[k]);
        c->outs[k] = joined;
    }
    return DT_OK;
}

static dt_status check_target(dt_op_call *c) {
    if (c->target == NULL) return DT_OK;
    DT_TRY(dt__check_target(c));
    c->replace_target = !dt_tensor_same_shape(c->target, c->outs[0]);
    return DT_OK;
}

static dt_status infer(dt_op_call *c) {
    dt_rule_metadata_only++;
    dt_status status = c->op->rule(c);
    dt_rule_metadata_only--;
    return status == DT_OK ? check_target(c) : status;
}

/* Of an op without inputs: the placements that the user asked for, checked. */
static dt_status choose_given(const placing *p) {
    const dt_tensor *out = p->call->outs[0];
    for (int m = 0; m < p->mesh->rank; m++) {
        dt_placement want = p->call->placements[m];
        if (want.kind == DT_SHARD && want.dim >= out->rank)
            return dt_fail(DT_E_PLACEMENT,
                           "placements[%d] is Shard(%d), but the tensor has %d dimensions", m,
                           want.dim, out->rank);
    }
    return DT_OK;
}

static dt_status run(placing *p) {
    for (int index = 0; index < p->mesh->size; index++) DT_TRY(run_device(p, index));
    return join(p);
}

static const dt_placement *wanted_of(const dt_op_call *c) {
    if (c->placements != NULL) return c->placements;
    if (c->target == NULL || c->replace_target) return NULL;
    return dt_dist_of(c->target)->placements;
}

/* ---- implicit redistributes ------------------------------------------------------------------ */

/* What took the place of a call's inputs. */
typedef struct mended {
    dt_arg before[DT_ARGS_MAX];
    dt_tensor **owned;     /* by input */
    dt_tensor **list;      /* of the one list argument */
    dt_placement *nearest; /* as `chosen` */
} mended;

static void replace_input(dt_op_call *c, const dt_shard_input *in, dt_tensor *t, mended *m) {
    dt_arg *a = &c->args[in->arg];
    if (in->item < 0) {
        a->t = t;
        return;
    }
    if (a->list.v != m->list) {
        memcpy(m->list, a->list.v, sizeof *m->list * (size_t)a->list.n);
        a->list.v = m->list;
    }
    m->list[in->item] = t;
}

static dt_tensor *input_tensor(const dt_op_call *c, const dt_shard_input *in) {
    const dt_arg *a = &c->args[in->arg];
    return in->item < 0 ? a->t : a->list.v[in->item];
}

/* The call with its inputs redistributed to what is nearest. */
static dt_status redistribute_inputs(dt_op_call *c, const placing *p, mended *m) {
    for (int i = 0; i < p->ask.nin; i++) {
        const dt_shard_input *in = &p->ask.in[i];
        if (in->t == NULL || !dt_tensor_is_dist(in->t)) continue;
        dt_placement to[DT_MESH_RANK_MAX];
        bool same = true;
        for (int k = 0; k < p->mesh->rank; k++) {
            dt_placement have = dt_ask_placement(&p->ask, i, k);
            to[k] = have.kind == DT_REPLICATE ? have : m->nearest[k * width_of(p) + i];
            same = same && dt_placement_equal(to[k], have);
        }
        if (same) continue;
        if (c->inplace && in->arg == 0) return DT_E_PLACEMENT; /* it stays as it is placed */
        DT_TRY(redistribute_hook(input_tensor(c, in), p->mesh, to, &m->owned[i]));
        replace_input(c, in, m->owned[i], m);
        implicit_count++;
    }
    return DT_OK;
}

/* Once: with the inputs as they should be, the op is legal. */
static dt_status run_mended(placing *p, mended *m) {
    dt_op_call *c = p->call;
    DT_TRY(redistribute_inputs(c, p, m));
    bool was = dt_place_set_implicit(false);
    dt_op_call again;
    dt_op_call_init(&again, (dt_op_id)c->op->id);
    again.nargs = c->nargs;
    memcpy(again.args, c->args, sizeof again.args);
    again.target = c->target;
    again.inplace = c->inplace;
    dt_status status = dt_dispatch(&again);
    if (status == DT_OK) {
        for (int k = 0; k < c->nout; k++) {
            dt_tensor_release(c->outs[k]);
            c->outs[k] = again.outs[k];
        }
        c->replace_target = again.replace_target;
    }
    (void)dt_place_set_implicit(was);
    return status;
}

static dt_status mend(placing *p) {
    dt_op_call *c = p->call;
    size_t nin = (size_t)p->ask.nin;
    size_t bytes = 2 * nin * sizeof(dt_tensor *) +
                   (size_t)(width_of(p) * p->mesh->rank) * sizeof(dt_placement);
    mended m;
    DT_ALLOC_OR_FAIL(m.owned, bytes);
    memset(m.owned, 0, bytes);
    m.list = m.owned + nin;
    m.nearest = (dt_placement *)(m.list + nin);
    memcpy(m.before, c->args, sizeof m.before);
    dt_status status =
        dt_shard_nearest(&p->ask, wanted_of(c), m.nearest) ? run_mended(p, &m) : DT_E_PLACEMENT;
    memcpy(c->args, m.before, sizeof m.before);
    for (size_t i = 0; i < nin; i++)
        if (m.owned[i] != NULL) dt_tensor_release(m.owned[i]);
    dt_free(m.owned, bytes);
    return status;
}

static dt_status place(placing *p) {
    dt_op_call *c = p->call;
    if (c->placements != NULL) DT_TRY(choose_given(p));
    dt_status status = dt_shard_choose(&p->ask, wanted_of(c), p->chosen);
    if (DT_LIKELY(status == DT_OK)) return run(p);
    if (status == DT_E_PLACEMENT && implicit && redistribute_hook != NULL) {
        dt_error *story = dt_error_capture(status);
        status = mend(p);
        if (status == DT_E_PLACEMENT) status = dt_error_restore(story);
        dt_error_release(story);
    }
    return status;
}

dt_status dt__place_dispatch(dt_op_call *c, const dt_mesh *mesh) {
    DT_TRY(check_meshes(c, mesh));
    DT_TRY(infer(c));
    placing p;
    dt_status status = init_placing(&p, c, mesh);
    if (status == DT_OK) status = place(&p);
    fini_placing(&p);
    return status;
}
