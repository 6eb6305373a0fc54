/* shard_view.c: views on a mesh.
 *
 * A view moves nothing: a device's part of it is made of the device's part of the input, or the
 * call is refused.  Which placement the view may have is guessed for each mesh dim from the dims
 * that belong together; whether that is so is then checked for each device, all mesh dims at once:
 *
 *   through a lens      the lens shows of the device's box just the box of the view
 *   in order (view)     both boxes name the same elements in the same order
 *
 * So uneven, empty and nested shards need no thought of their own.  Every Partial passes: a view
 * changes no value.
 */
#include "runtime/infer.h"
#include "runtime/lens.h"
#include "runtime/rules.h"
#include "runtime/shard.h"

/* ---- what both have in common ---------------------------------------------------------------- */

/* Input 0 placed so gives the view placed so; a second input is asked for its shape alone. */
static void add_way(const dt_ask *ask, dt_ways *ways, dt_placement in, dt_placement out) {
    dt_placement *way = dt_way(ways);
    for (int i = 0; i < ask->nin; i++) way[i] = i == 0 ? in : dt_any();
    *dt_way_out(ask, way, 0) = out;
}

static void add_common(const dt_ask *ask, dt_ways *ways) {
    ways->shares = true;
    if (ask->nin > 1) add_way(ask, ways, dt_replicate(), dt_replicate());
    for (int kind = DT_PARTIAL_SUM; kind < DT_PLACEMENT_KINDS; kind++) {
        dt_placement p = dt_partial((dt_placement_kind)kind);
        add_way(ask, ways, p, p);
    }
    /* Of nothing everybody has all. */
    if (ask->out[0]->numel > 0) return;
    for (int d = 0; d < ask->in[0].t->rank; d++) add_way(ask, ways, dt_shard(d), dt_replicate());
}

/* A shard of a dim of one element is that element on the first device: as any other such dim. */
static void pair_ones(const dt_ask *ask, dt_ways *ways) {
    const dt_tensor *t = ask->in[0].t, *view = ask->out[0];
    for (int d = 0; d < t->rank; d++)
        for (int e = 0; e < view->rank; e++)
            if (t->shape[d] == 1 && view->shape[e] == 1)
                add_way(ask, ways, dt_shard(d), dt_shard(e));
}

/* What is left of a dim after one mesh dim has cut it may be a single element, or none; then even
 * dims that have nothing to do with each other can stand for one another. */
static void pair_all(const dt_ask *ask, dt_ways *ways) {
    if (ask->mesh->rank == 1) return;
    for (int d = 0; d < ask->in[0].t->rank; d++)
        for (int e = 0; e < ask->out[0]->rank; e++) add_way(ask, ways, dt_shard(d), dt_shard(e));
}

typedef struct boxes {
    dt_box in, out;
} boxes;

static void boxes_of(const dt_ask *ask, const dt_placement *chosen, int index, boxes *b) {
    dt_spot spot = {ask, chosen, index};
    dt_spot_in(&spot, 0, &b->in);
    dt_spot_out(&spot, 0, &b->out);
}

static dt_status other_elements(const dt_ask *ask, int index) {
    char in[200], out[200];
    const dt_tensor *t = ask->in[0].t, *view = ask->out[0];
    return dt_fail(DT_E_PLACEMENT,
                   "no view: what device %d has of %s is not its part of the result of shape %s",
                   index, dt_shape_format(t->rank, t->shape, in, sizeof in),
                   dt_shape_format(view->rank, view->shape, out, sizeof out));
}

/* ---- through a lens -------------------------------------------------------------------------- */

typedef dt_status (*lens_of_call)(const dt_op_call *call, dt_lens *lens);

static void lens_ways(const dt_ask *ask, dt_ways *ways, lens_of_call lens_of) {
    dt_lens lens;
    if (lens_of(ask->call, &lens) == DT_OK) { /* the rule has run: it is */
        for (int d = 0; d < ask->in[0].t->rank; d++) {
            uint32_t walkers = dt_lens_walkers(&lens, d);
            for (int e = 0; walkers >> e != 0; e++)
                if (walkers >> e & 1) add_way(ask, ways, dt_shard(d), dt_shard(e));
        }
    }
    add_common(ask, ways);
}

static dt_status lens_joint(const dt_ask *ask, const dt_placement *chosen, lens_of_call lens_of) {
    dt_lens lens;
    DT_TRY(lens_of(ask->call, &lens));
    for (int index = 0; index < ask->mesh->size; index++) {
        boxes b;
        boxes_of(ask, chosen, index, &b);
        if (!dt_lens_fits(&lens, ask->in[0].t->rank, &b.in, &b.out))
            return other_elements(ask, index);
    }
    return DT_OK;
}

#define DT_SHARD_THROUGH(name)                                                                     \
    static dt_status joint_##name(const dt_ask *ask, const dt_placement *chosen) {                 \
        return lens_joint(ask, chosen, dt_lens_##name);                                            \
    }                                                                                              \
    void dt_shard_##name(const dt_ask *ask, dt_ways *ways) {                                       \
        lens_ways(ask, ways, dt_lens_##name);                                                      \
        ways->joint = joint_##name;                                                                \
    }
DT_SHARD_THROUGH(transpose)
DT_SHARD_THROUGH(t)
DT_SHARD_THROUGH(permute)
DT_SHARD_THROUGH(movedim)
DT_SHARD_THROUGH(squeeze)
DT_SHARD_THROUGH(unsqueeze)
DT_SHARD_THROUGH(expand)
DT_SHARD_THROUGH(expand_as)
DT_SHARD_THROUGH(select)
DT_SHARD_THROUGH(narrow)
DT_SHARD_THROUGH(slice)
DT_SHARD_THROUGH(diagonal)

/* ---- in order -------------------------------------------------------------------------------- */

/* The row-major numbers of a box's elements, in order: `count` steps of `stride` in each of a few
 * loops, the innermost first.  Loops that go on where the inner ones end are one, and a loop of one
 * step is none, so that equal sequences have equal loops. */
typedef struct sequence {
    int loops;
    int64_t first;
    int64_t count[DT_RANK_MAX], stride[DT_RANK_MAX];
} sequence;

/* False: the box is empty. */
static bool sequence_of(const dt_tensor *t, const dt_box *box, sequence *s) {
    int64_t stride = 1;
    s->loops = 0;
    s->first = 0;
    for (int d = t->rank - 1; d >= 0; d--) {
        if (box->size[d] == 0) return false;
        s->first += box->start[d] * stride;
        int last = s->loops - 1;
        if (box->size[d] > 1 && last >= 0 && s->count[last] * s->stride[last] == stride) {
            s->count[last] *= box->size[d];
        } else if (box->size[d] > 1) {
            s->count[s->loops] = box->size[d];
            s->stride[s->loops++] = stride;
        }
        stride *= t->shape[d];
    }
    return true;
}

static bool same_sequence(const dt_tensor *t, const dt_box *box, const dt_tensor *view,
                          const dt_box *view_box) {
    sequence a, b;
    bool any = sequence_of(t, box, &a);
    if (any != sequence_of(view, view_box, &b)) return false;
    if (!any) return true;
    bool same = a.loops == b.loops && a.first == b.first;
    for (int k = 0; same && k < a.loops; k++)
        same = a.count[k] == b.count[k] && a.stride[k] == b.stride[k];
    return same;
}

static dt_status joint_view(const dt_ask *ask, const dt_placement *chosen) {
    for (int index = 0; index < ask->mesh->size; index++) {
        boxes b;
        boxes_of(ask, chosen, index, &b);
        if (!same_sequence(ask->in[0].t, &b.in, ask->out[0], &b.out))
            return other_elements(ask, index);
    }
    return DT_OK;
}

/* A run of input dims that together become a run of the view's dims. Any of these may be what a
 * mesh dim cuts: which, depends on the other mesh dims. */
static void pair_group(const dt_ask *ask, dt_ways *ways, int d_from, int d_to, int e_from,
                       int e_to) {
    const dt_tensor *t = ask->in[0].t, *view = ask->out[0];
    for (int d = d_from; d < d_to; d++)
        for (int e = e_from; e < e_to; e++)
            if (t->shape[d] > 1 && view->shape[e] > 1) add_way(ask, ways, dt_shard(d), dt_shard(e));
}

static void pair_groups(const dt_ask *ask, dt_ways *ways) {
    const dt_tensor *t = ask->in[0].t, *view = ask->out[0];
    int d = 0, e = 0;
    while (d < t->rank && e < view->rank) {
        int d_from = d, e_from = e;
        int64_t a = t->shape[d++], b = view->shape[e++];
        while (a != b) {
            if (a < b)
                a *= t->shape[d++];
            else
                b *= view->shape[e++];
        }
        pair_group(ask, ways, d_from, d, e_from, e);
    }
}

void dt_shard_view(const dt_ask *ask, dt_ways *ways) {
    const dt_tensor *t = ask->in[0].t, *view = ask->out[0];
    if (t->numel > 0) {
        pair_groups(ask, ways);
        pair_ones(ask, ways);
    } else {
        for (int d = 0; d < t->rank && d < view->rank; d++)
            if (t->shape[d] == view->shape[d]) add_way(ask, ways, dt_shard(d), dt_shard(d));
    }
    add_common(ask, ways);
    pair_all(ask, ways);
    ways->joint = joint_view;
}

/* ---- others ---------------------------------------------------------------------------------- */

/* Dims stay what they are, and so do values. */
void dt_shard_alias(const dt_ask *ask, dt_ways *ways) {
    for (int d = 0; d < ask->in[0].t->rank; d++) add_way(ask, ways, dt_shard(d), dt_shard(d));
    add_common(ask, ways);
}

/* By memory: of the whole. */
void dt_shard_as_strided(const dt_ask *ask, dt_ways *ways) { add_common(ask, ways); }
