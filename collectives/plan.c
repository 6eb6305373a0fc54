/* plan.c: see plan.h: Dijkstra's search over the placement lists on the source's mesh.
 *
 * A state is a choice for each mesh dim among the placements that matter: the source's, the
 * target's, Replicate, and a Shard of every dim that source or target cut.  There are a few dozen
 * as a rule.
 */
#include "collectives/plan.h"

#include <string.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"

#define CHOICES_MAX (3 + 2 * DT_MESH_RANK_MAX)
#define STATES_MAX 1024
#define STATES_INLINE 64

/* What decides between paths of equal bytes. */
#define WEIGHT_LOCAL 1
#define WEIGHT_EXCHANGE 18 /* a cut and a collective are better */
#define WEIGHT_COLLECTIVE 16

typedef struct node {
    int64_t bytes, step_bytes;
    int32_t weight, previous;
    uint8_t kind, mesh_dims; /* of the step that led here */
    bool reached, done;
} node;

typedef struct search {
    dt_plan *plan;
    const dt_mesh *mesh; /* the source's */
    bool one_mesh;
    dt_placement target[DT_MESH_RANK_MAX]; /* on the source's mesh; of another mesh: unused */
    int count[DT_MESH_RANK_MAX];           /* of choices */
    dt_placement choice[DT_MESH_RANK_MAX][CHOICES_MAX];
    int shards; /* the dims that are cut at all */
    uint8_t shard[2 * DT_MESH_RANK_MAX];
    int states;
    node *nodes;
    node inline_nodes[STATES_INLINE];
    bool direct; /* an exchange from the start has been offered */
    int now;     /* the state that is being left */
    int end;     /* the target's state; -1: it is on another mesh */
    dt_placement have[DT_MESH_RANK_MAX];
    /* Of another mesh: the best state from which to go there. */
    node across;
} search;

/* ---- states ---------------------------------------------------------------------------------- */

static void add_choice(search *s, int m, dt_placement p) {
    for (int k = 0; k < s->count[m]; k++)
        if (dt_placement_equal(s->choice[m][k], p)) return;
    s->choice[m][s->count[m]++] = p;
}

static void add_shard(search *s, dt_placement p) {
    if (p.kind != DT_SHARD || memchr(s->shard, p.dim, (size_t)s->shards) != NULL) return;
    s->shard[s->shards++] = p.dim;
}

static int count_states(const search *s) {
    int64_t n = 1;
    for (int m = 0; m < s->mesh->rank; m++) n *= s->count[m];
    return n > STATES_MAX ? STATES_MAX + 1 : (int)n;
}

static void list_choices(search *s, bool all_shards) {
    for (int m = 0; m < s->mesh->rank; m++) {
        s->count[m] = 0;
        add_choice(s, m, s->plan->from.placements[m]);
        add_choice(s, m, s->target[m]);
        add_choice(s, m, dt_replicate());
        for (int k = 0; all_shards && k < s->shards; k++) add_choice(s, m, dt_shard(s->shard[k]));
    }
}

/* -1: that placement is none of the choices. */
static int state_of(const search *s, const dt_placement *placements) {
    int state = 0;
    for (int m = 0; m < s->mesh->rank; m++) {
        int k = 0;
        while (k < s->count[m] && !dt_placement_equal(s->choice[m][k], placements[m])) k++;
        if (k == s->count[m]) return -1;
        state = state * s->count[m] + k;
    }
    return state;
}

static void placements_of(const search *s, int state, dt_placement *out) {
    for (int m = s->mesh->rank - 1; m >= 0; m--) {
        out[m] = s->choice[m][state % s->count[m]];
        state /= s->count[m];
    }
}

static dt_status init_search(search *s, dt_plan *plan) {
    s->plan = plan;
    s->mesh = plan->from.mesh;
    s->one_mesh = dt_mesh_same(plan->from.mesh, plan->to.mesh);
    s->shards = 0;
    memset(s->count, 0, sizeof s->count);
    memset(s->choice, 0, sizeof s->choice);
    for (int m = 0; m < s->mesh->rank; m++) {
        s->target[m] = s->one_mesh ? plan->to.placements[m] : dt_replicate();
        add_shard(s, plan->from.placements[m]);
        add_shard(s, s->target[m]);
    }
    for (int m = 0; m < plan->to.mesh->rank; m++) add_shard(s, plan->to.placements[m]);
    list_choices(s, true);
    if (count_states(s) > STATES_MAX) list_choices(s, false);
    s->states = count_states(s);
    DT_ASSERT(s->states <= STATES_MAX);
    s->nodes = s->inline_nodes;
    if (s->states > STATES_INLINE) DT_ALLOC_OR_FAIL(s->nodes, sizeof(node) * (size_t)s->states);
    memset(s->nodes, 0, sizeof(node) * (size_t)s->states);
    s->across.reached = false;
    memset(s->have, 0, sizeof s->have);
    s->direct = false;
    s->end = s->one_mesh ? state_of(s, s->target) : -1;
    return DT_OK;
}

static void fini_search(search *s) {
    if (s->nodes != s->inline_nodes) dt_free(s->nodes, sizeof(node) * (size_t)s->states);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Of a part: the first device's is as large as any. */
static int64_t part_bytes(const dt_plan *plan, const dt_mesh *mesh,
                          const dt_placement *placements) {
    dt_box box;
    dt_layout_part(mesh, placements, plan->rank, plan->shape, 0, &box);
    int64_t n = (int64_t)dt_dtype_size(plan->dtype);
    for (int d = 0; d < plan->rank; d++) n *= box.size[d];
    return n;
}

static int64_t exchange_bytes(const search *s, const dt_layout *to) {
    dt_layout from = {s->mesh, s->have};
    return dt_exchange_bytes(s->plan->rank, s->plan->shape, (int64_t)dt_dtype_size(s->plan->dtype),
                             &from, to);
}

/* What a device has not got of its part as it is to be. */
static int64_t missing_bytes(const search *s, const dt_placement *to) {
    dt_layout layout = {s->mesh, to};
    return exchange_bytes(s, &layout);
}

static int group_size(const search *s, uint32_t mask) {
    int n = 1;
    for (int m = 0; m < s->mesh->rank; m++)
        if (mask >> m & 1) n *= s->mesh->shape[m];
    return n;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void relax(node *to, int from, const node *cost) {
    if (to->reached &&
        (to->bytes < cost->bytes || (to->bytes == cost->bytes && to->weight <= cost->weight)))
        return;
    *to = *cost;
    to->previous = from;
    to->reached = true;
}

static void offer(search *s, const dt_placement *to, dt_step_kind kind, uint32_t mask,
                  int64_t bytes) {
    int state = state_of(s, to);
    if (state < 0 || s->nodes[state].done) return;
    const node *here = &s->nodes[s->now], *end = s->end < 0 ? &s->across : &s->nodes[s->end];
    if (end->reached && here->bytes + bytes > end->bytes) return;
    int weight = !dt_step_moves(kind)       ? WEIGHT_LOCAL
                 : kind == DT_STEP_EXCHANGE ? WEIGHT_EXCHANGE
                                            : WEIGHT_COLLECTIVE;
    node cost = {.bytes = here->bytes + bytes,
                 .step_bytes = bytes,
                 .weight = here->weight + weight,
                 .kind = (uint8_t)kind,
                 .mesh_dims = (uint8_t)mask};
    relax(&s->nodes[state], s->now, &cost);
}

/* Whether no mesh dim after the first in the mask, but those in it, cuts dim d: see P1. */
static bool is_innermost(const search *s, const dt_placement *p, int d, uint32_t mask) {
    bool after = false;
    for (int m = 0; m < s->mesh->rank; m++) {
        bool in = mask >> m & 1;
        if (after && !in && s->mesh->shape[m] > 1 && dt_placement_is_shard(p[m], d)) return false;
        after = after || in;
    }
    return true;
}

static bool may_become_partial(const search *s, int m, dt_placement_kind kind) {
    for (int k = 0; k < s->mesh->rank; k++)
        if (k != m && dt_placement_is_partial(s->have[k]) &&
            !dt_partial_commutes((dt_placement_kind)s->have[k].kind, kind))
            return false;
    return true;
}

static void set_all(const search *s, uint32_t mask, dt_placement p, dt_placement *out) {
    memcpy(out, s->have, sizeof *out * s->mesh->rank);
    for (int m = 0; m < s->mesh->rank; m++)
        if (mask >> m & 1) out[m] = p;
}

static void offer_from_replicate(search *s, int m) {
    dt_placement to[DT_MESH_RANK_MAX], want = s->target[m];
    uint32_t mask = 1u << m;
    for (int k = 0; k < s->shards; k++) {
        if (!is_innermost(s, s->have, s->shard[k], mask)) continue;
        set_all(s, mask, dt_shard(s->shard[k]), to);
        offer(s, to, DT_STEP_CUT, mask, 0);
    }
    if (dt_placement_is_partial(want) && may_become_partial(s, m, (dt_placement_kind)want.kind)) {
        set_all(s, mask, want, to);
        offer(s, to, DT_STEP_KEEP_ONCE, mask, 0);
    }
}

static void offer_from_shard(search *s, int m) {
    dt_placement to[DT_MESH_RANK_MAX], want = s->target[m];
    uint32_t mask = 1u << m;
    int d = s->have[m].dim;
    if (!is_innermost(s, s->have, d, mask)) return;
    for (int k = 0; k < s->shards; k++) {
        if (s->shard[k] == d || !is_innermost(s, s->have, s->shard[k], mask)) continue;
        set_all(s, mask, dt_shard(s->shard[k]), to);
        offer(s, to, DT_STEP_ALL_TO_ALL, mask, missing_bytes(s, to));
    }
    bool pads = want.kind == DT_PARTIAL_SUM || want.kind == DT_PARTIAL_PRODUCT;
    if (pads && may_become_partial(s, m, (dt_placement_kind)want.kind)) {
        set_all(s, mask, want, to);
        offer(s, to, DT_STEP_PAD, mask, 0);
    }
}

/* A mesh dim of size 1 may be said to be anything. */
static void offer_alone(search *s, int m) {
    dt_placement to[DT_MESH_RANK_MAX];
    for (int k = 0; k < s->count[m]; k++) {
        dt_placement p = s->choice[m][k];
        if (dt_placement_is_partial(p) && !may_become_partial(s, m, (dt_placement_kind)p.kind))
            continue;
        set_all(s, 1u << m, p, to);
        offer(s, to, DT_STEP_CUT, 1u << m, 0);
    }
}

/* Collectives among all devices that differ along the mesh dims of the mask, which are alike. */
static void offer_group(search *s, uint32_t mask) {
    dt_placement to[DT_MESH_RANK_MAX];
    int first = __builtin_ctz(mask), n = group_size(s, mask);
    dt_placement have = s->have[first];
    for (int m = first; m < s->mesh->rank; m++) {
        if (!(mask >> m & 1)) continue;
        if (s->mesh->shape[m] == 1 || !dt_placement_equal(s->have[m], have)) return;
    }
    if (have.kind == DT_SHARD && is_innermost(s, s->have, have.dim, mask)) {
        set_all(s, mask, dt_replicate(), to);
        offer(s, to, DT_STEP_ALL_GATHER, mask, missing_bytes(s, to));
    }
    if (!dt_placement_is_partial(have)) return;
    set_all(s, mask, dt_replicate(), to);
    offer(s, to, DT_STEP_ALL_REDUCE, mask, part_bytes(s->plan, s->mesh, to) * 2 * (n - 1) / n);
    for (int k = 0; k < s->shards; k++) {
        if (!is_innermost(s, s->have, s->shard[k], mask)) continue;
        set_all(s, mask, dt_shard(s->shard[k]), to);
        offer(s, to, DT_STEP_REDUCE_SCATTER, mask, part_bytes(s->plan, s->mesh, to) * (n - 1));
    }
}

/* The target with what is to become Partial still Replicate: where an exchange can go. */
static void before_partial(const search *s, const dt_layout *target, dt_placement *out) {
    for (int m = 0; m < target->mesh->rank; m++) {
        dt_placement p = target->placements[m];
        bool kept = s->one_mesh && dt_placement_equal(p, s->have[m]);
        out[m] = dt_placement_is_partial(p) && !kept ? dt_replicate() : p;
    }
}

/* Whether something is Partial that the target is not. */
static bool has_to_reduce(const search *s) {
    for (int m = 0; m < s->mesh->rank; m++)
        if (dt_placement_is_partial(s->have[m]) &&
            !(s->one_mesh && dt_placement_equal(s->have[m], s->target[m])))
            return true;
    return false;
}

static bool has_partial(const search *s) {
    for (int m = 0; m < s->mesh->rank; m++)
        if (dt_placement_is_partial(s->have[m])) return true;
    return false;
}

/* Not before everything is reduced, which an exchange does for each device anew.  From a start with
 * nothing to reduce it moves what must move and no more: no way round is better, but by padding. */
static void offer_exchange(search *s) {
    dt_placement to[DT_MESH_RANK_MAX];
    if (has_to_reduce(s) || (s->direct && !has_partial(s))) return;
    s->direct = s->direct || s->nodes[s->now].previous < 0;
    dt_layout target = {s->plan->to.mesh, to};
    before_partial(s, &s->plan->to, to);
    if (s->one_mesh) {
        if (state_of(s, to) != s->now)
            offer(s, to, DT_STEP_EXCHANGE, 0, exchange_bytes(s, &target));
        return;
    }
    const node *here = &s->nodes[s->now];
    node cost = {.weight = here->weight + WEIGHT_EXCHANGE, .kind = DT_STEP_EXCHANGE};
    cost.step_bytes = exchange_bytes(s, &target);
    cost.bytes = here->bytes + cost.step_bytes;
    relax(&s->across, s->now, &cost);
}

static void leave(search *s) {
    offer_exchange(s); /* first: what it costs bounds the rest */
    for (int m = 0; m < s->mesh->rank; m++) {
        if (s->mesh->shape[m] == 1)
            offer_alone(s, m);
        else if (s->have[m].kind == DT_REPLICATE)
            offer_from_replicate(s, m);
        else if (s->have[m].kind == DT_SHARD)
            offer_from_shard(s, m);
    }
    for (uint32_t mask = 1; mask < 1u << s->mesh->rank; mask++) offer_group(s, mask);
}

/* ---- one step that is best without looking further ------------------------------------------- */

/* The only mesh dim whose placement differs; -1: there are several. */
static int only_change(const search *s) {
    int found = -1;
    for (int m = 0; m < s->mesh->rank; m++) {
        if (dt_placement_equal(s->have[m], s->target[m])) continue;
        if (found >= 0) return -1;
        found = m;
    }
    return found;
}

/* Cuts, gathers and changes of the dim that is cut move no more than they must; a reduction may be
 * cheaper by way of mesh dims that are Replicate, if there are any. */
static bool go_at_once(search *s) {
    memcpy(s->have, s->plan->from.placements, sizeof *s->have * s->mesh->rank);
    int m = only_change(s);
    if (m < 0 || s->mesh->shape[m] == 1) return false;
    dt_placement have = s->have[m], want = s->target[m];
    if (dt_placement_is_partial(have) && dt_placement_is_partial(want)) return false;
    for (int k = 0; k < s->mesh->rank && dt_placement_is_partial(have); k++)
        if (k != m && s->have[k].kind == DT_REPLICATE && s->mesh->shape[k] > 1) return false;
    s->now = state_of(s, s->have);
    s->nodes[s->now] = (node){.previous = -1, .reached = true};
    if (have.kind == DT_REPLICATE)
        offer_from_replicate(s, m);
    else if (have.kind == DT_SHARD)
        offer_from_shard(s, m);
    offer_group(s, 1u << m);
    return s->nodes[s->end].reached;
}

/* ---- the search ------------------------------------------------------------------------------ */

static int nearest(const search *s) {
    int best = -1;
    for (int k = 0; k < s->states; k++) {
        const node *a = &s->nodes[k], *b = best < 0 ? NULL : &s->nodes[best];
        if (!a->reached || a->done) continue;
        if (b == NULL || a->bytes < b->bytes || (a->bytes == b->bytes && a->weight < b->weight))
            best = k;
    }
    return best;
}

/* Leaves states, the nearest first, until the target is the nearest. */
static void find_path(search *s) {
    memset(s->nodes, 0, sizeof(node) * (size_t)s->states);
    int start = state_of(s, s->plan->from.placements);
    s->nodes[start] = (node){.previous = -1, .reached = true};
    for (;;) {
        s->now = nearest(s);
        if (s->now < 0 || s->now == s->end) return;
        node *here = &s->nodes[s->now];
        if (!s->one_mesh && s->across.reached && s->across.bytes < here->bytes) return;
        here->done = true;
        placements_of(s, s->now, s->have);
        leave(s);
    }
}

static void add_step(dt_plan *plan, const node *n, const dt_mesh *mesh,
                     const dt_placement *placements) {
    DT_ASSERT(plan->count < DT_PLAN_STEPS_MAX);
    dt_step *step = &plan->steps[plan->count++];
    step->kind = n->kind;
    step->mesh_dims = n->mesh_dims;
    step->bytes = n->step_bytes;
    step->mesh = mesh;
    memcpy(step->placements, placements, sizeof *placements * mesh->rank);
    plan->bytes += n->step_bytes;
}

static void write_path(search *s, int state) {
    int path[DT_PLAN_STEPS_MAX], n = 0;
    for (; s->nodes[state].previous >= 0; state = s->nodes[state].previous) {
        DT_ASSERT(n < DT_PLAN_STEPS_MAX);
        path[n++] = state;
    }
    while (n > 0) {
        dt_placement placements[DT_MESH_RANK_MAX];
        placements_of(s, path[--n], placements);
        add_step(s->plan, &s->nodes[path[n]], s->mesh, placements);
    }
}

/* What an exchange with one device alone on a side is called. */
static dt_step_kind name_exchange(const dt_layout *from, const dt_layout *to) {
    int cuts = 0;
    if (from->mesh->size == 1 && to->mesh->size == 1) return DT_STEP_EXCHANGE;
    const dt_layout *many = from->mesh->size == 1 ? to : from;
    for (int m = 0; m < many->mesh->rank; m++) {
        if (dt_placement_is_partial(many->placements[m])) return DT_STEP_EXCHANGE;
        if (many->placements[m].kind == DT_SHARD) cuts++;
    }
    if (from->mesh->size == 1 && cuts == 0) return DT_STEP_BROADCAST;
    if (cuts != 1 || many->mesh->rank != 1) return DT_STEP_EXCHANGE;
    return from->mesh->size == 1 ? DT_STEP_SCATTER
           : to->mesh->size == 1 ? DT_STEP_GATHER
                                 : DT_STEP_EXCHANGE;
}

/* The step to another mesh, and what becomes Partial there. */
static void write_across(search *s) {
    dt_plan *plan = s->plan;
    dt_placement to[DT_MESH_RANK_MAX] = {{0, 0}}, from[DT_MESH_RANK_MAX] = {{0, 0}};
    dt_layout target = {plan->to.mesh, to}, source = {s->mesh, from};
    placements_of(s, s->across.previous, from);
    before_partial(s, &plan->to, to);
    s->across.kind = (uint8_t)name_exchange(&source, &target);
    add_step(plan, &s->across, plan->to.mesh, to);
    for (int m = 0; m < plan->to.mesh->rank; m++) {
        if (dt_placement_equal(to[m], plan->to.placements[m])) continue;
        to[m] = plan->to.placements[m];
        node local = {.kind = DT_STEP_KEEP_ONCE, .mesh_dims = (uint8_t)(1u << m)};
        add_step(plan, &local, plan->to.mesh, to);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int64_t step_memory(const dt_plan *plan, const dt_step *step) {
    if (step->kind == DT_STEP_CUT) return 0;
    return part_bytes(plan, step->mesh, step->placements);
}

/* All that steps make but the result: that of the last one, if it is not a cut, which is copied. */
static void count_memory(dt_plan *plan) {
    plan->memory_bytes = 0;
    for (int k = 0; k < plan->count; k++) {
        bool last = k == plan->count - 1;
        if (!last) plan->memory_bytes += step_memory(plan, &plan->steps[k]);
    }
}

/* Whether no step, nor either end, has to do with dim d: then the plan is right for any slice. */
static bool is_bystander(const dt_plan *plan, int d) {
    for (int m = 0; m < plan->from.mesh->rank; m++)
        if (dt_placement_is_shard(plan->from.placements[m], d)) return false;
    for (int k = 0; k < plan->count; k++)
        for (int m = 0; m < plan->steps[k].mesh->rank; m++)
            if (dt_placement_is_shard(plan->steps[k].placements[m], d)) return false;
    return true;
}

#define PIECES_MAX 256

/* Cuts the work into pieces along the largest dim that allows it. False: there is none. */
static bool cut_into_pieces(dt_plan *plan, int64_t memory_max) {
    int best = -1;
    for (int k = 0; k < plan->count; k++)
        if (plan->steps[k].kind == DT_STEP_KEEP_ONCE || plan->steps[k].kind == DT_STEP_PAD)
            return false;
    for (int d = 0; d < plan->rank; d++)
        if (is_bystander(plan, d) && (best < 0 || plan->shape[d] > plan->shape[best])) best = d;
    if (best < 0 || plan->shape[best] < 2) return false;
    int64_t row = (plan->memory_bytes + plan->shape[best] - 1) / plan->shape[best];
    int64_t rows = memory_max / row;
    if (rows == 0) return false;
    int64_t pieces = (plan->shape[best] + rows - 1) / rows;
    if (pieces > PIECES_MAX) return false;
    plan->pieces = (int)pieces;
    plan->piece_dim = best;
    plan->memory_bytes = row * ((plan->shape[best] + pieces - 1) / pieces);
    return true;
}

/* One exchange, which needs no memory in between, whatever it moves. */
static void go_directly(search *s) {
    dt_plan *plan = s->plan;
    plan->count = 0;
    plan->bytes = 0;
    memcpy(s->have, plan->from.placements, sizeof *s->have * s->mesh->rank);
    s->across = (node){.kind = DT_STEP_EXCHANGE};
    dt_placement to[DT_MESH_RANK_MAX];
    dt_layout target = {plan->to.mesh, to};
    before_partial(s, &plan->to, to);
    s->across.step_bytes = exchange_bytes(s, &target);
    s->across.previous = state_of(s, plan->from.placements);
    write_across(s);
    count_memory(plan);
}

static void keep_to_memory(search *s, int64_t memory_max) {
    dt_plan *plan = s->plan;
    count_memory(plan);
    if (memory_max < 0 || plan->memory_bytes <= memory_max) return;
    if (!cut_into_pieces(plan, memory_max)) go_directly(s);
}

dt_status dt_plan_make(dt_plan *plan, int64_t memory_max) {
    search s;
    plan->count = 0;
    plan->bytes = 0;
    plan->pieces = 1;
    plan->piece_dim = -1;
    DT_TRY(init_search(&s, plan));
    if (!s.one_mesh || !go_at_once(&s)) find_path(&s);
    if (s.one_mesh) {
        write_path(&s, s.end);
    } else {
        write_path(&s, s.across.previous);
        write_across(&s);
    }
    keep_to_memory(&s, memory_max);
    fini_search(&s);
    return DT_OK;
}
