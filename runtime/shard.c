/* shard.c: see shard.h: collecting the question, choosing among the ways, and saying why none will
 * do. */
#include "runtime/shard.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "runtime/rules.h"

/* ---- the question ---------------------------------------------------------------------------- */

static int count_inputs(const dt_op_call *call) {
    int n = 0;
    for (int k = 0; k < call->nargs; k++) {
        const dt_arg *a = &call->args[k];
        n += a->kind == DT_ARG_TENSORS ? a->list.n
                                       : a->kind == DT_ARG_TENSOR || a->kind == DT_ARG_SCALAR;
    }
    return n;
}

dt_status dt_ask_init(dt_ask *ask, const dt_op_call *call, const dt_mesh *mesh) {
    ask->call = call;
    ask->mesh = mesh;
    ask->nout = call->nout;
    ask->out = call->outs;
    ask->in = ask->in_inline;
    ask->in_bytes = 0;
    ask->nin = 0;
    int n = count_inputs(call);
    if (n > DT_ASK_INPUTS_INLINE) {
        size_t bytes = sizeof *ask->in * (size_t)n;
        DT_ALLOC_OR_FAIL(ask->in, bytes);
        ask->in_bytes = bytes;
    }
    for (int k = 0; k < call->nargs; k++) {
        const dt_arg *a = &call->args[k];
        if (a->kind == DT_ARG_TENSOR)
            ask->in[ask->nin++] = (dt_shard_input){a->t, (int16_t)k, -1};
        else if (a->kind == DT_ARG_SCALAR)
            ask->in[ask->nin++] = (dt_shard_input){NULL, (int16_t)k, -1};
        else if (a->kind == DT_ARG_TENSORS)
            for (int i = 0; i < a->list.n; i++)
                ask->in[ask->nin++] = (dt_shard_input){a->list.v[i], (int16_t)k, (int16_t)i};
    }
    return DT_OK;
}

void dt_ask_fini(dt_ask *ask) {
    if (ask->in_bytes > 0) dt_free(ask->in, ask->in_bytes);
    ask->in_bytes = 0;
}

int dt_ask_find(const dt_ask *ask, int arg) {
    for (int i = 0; i < ask->nin; i++)
        if (ask->in[i].arg == arg) return i;
    return -1;
}

dt_placement dt_ask_placement(const dt_ask *ask, int i, int mesh_dim) {
    const dt_tensor *t = ask->in[i].t;
    if (t == NULL || !dt_tensor_is_dist(t)) return dt_replicate();
    return dt_dist_of(t)->placements[mesh_dim];
}

/* ---- ways ------------------------------------------------------------------------------------ */

static void init_ways(dt_ways *ways, const dt_ask *ask) {
    ways->width = ask->nin + ask->nout;
    ways->count = 0;
    ways->rows = ways->inline_rows;
    ways->capacity = DT_WAYS_INLINE / (ways->width > 0 ? ways->width : 1);
    ways->joint = NULL;
    ways->shares = false;
    ways->no_memory = false;
}

static size_t bytes_of(const dt_ways *ways) {
    return sizeof *ways->rows * (size_t)ways->width * (size_t)ways->capacity;
}

static void fini_ways(dt_ways *ways) {
    if (ways->rows != ways->inline_rows) dt_free(ways->rows, bytes_of(ways));
}

static bool grow(dt_ways *ways) {
    dt_ways old = {.width = ways->width, .rows = ways->rows, .capacity = ways->capacity};
    bool was_inline = ways->rows == ways->inline_rows;
    ways->capacity = old.capacity < 8 ? 16 : old.capacity * 2;
    dt_placement *rows = dt_alloc(bytes_of(ways));
    if (rows == NULL) {
        ways->capacity = old.capacity;
        return false;
    }
    memcpy(rows, ways->rows, sizeof *rows * (size_t)ways->width * (size_t)ways->count);
    if (!was_inline) dt_free(old.rows, bytes_of(&old));
    ways->rows = rows;
    return true;
}

dt_placement *dt_way(dt_ways *ways) {
    if (ways->count == ways->capacity && (ways->no_memory || !grow(ways))) {
        ways->no_memory = true; /* the last row is given again: the call will fail anyway */
        if (ways->count == 0) return ways->inline_rows;
        ways->count--;
    }
    dt_placement *row = ways->rows + (size_t)ways->width * (size_t)ways->count++;
    memset(row, 0, sizeof *row * (size_t)ways->width);
    return row;
}

void dt_way_set(const dt_ask *ask, dt_placement *way, dt_placement in, dt_placement out) {
    for (int i = 0; i < ask->nin; i++)
        if (ask->in[i].t != NULL && ask->in[i].t->rank > 0) way[i] = in;
    for (int k = 0; k < ask->nout; k++) way[ask->nin + k] = out;
}

void dt_way_cut(const dt_ask *ask, dt_placement *way, int i, int dim) {
    const dt_tensor *t = ask->in[i].t, *out = ask->out[0];
    int own = t != NULL ? dim - (out->rank - t->rank) : -1;
    if (own >= 0 && t->shape[own] == out->shape[dim]) way[i] = dt_shard(own);
}

void dt_ways_one(const dt_ask *ask, dt_ways *ways, int i, dt_placement in, dt_placement out) {
    dt_placement *way = dt_way(ways);
    way[i] = in;
    for (int k = 0; k < ask->nout; k++) way[ask->nin + k] = out;
}

void dt_ways_all(const dt_ask *ask, dt_ways *ways, dt_placement in, dt_placement out) {
    dt_placement *way = dt_way(ways);
    for (int i = 0; i < ask->nin; i++) way[i] = in;
    for (int k = 0; k < ask->nout; k++) way[ask->nin + k] = out;
}

void dt_ways_elementwise(const dt_ask *ask, dt_ways *ways) {
    const dt_tensor *out = ask->out[0];
    for (int d = 0; d < out->rank; d++) {
        dt_placement *way = dt_way(ways);
        for (int i = 0; i < ask->nin; i++) dt_way_cut(ask, way, i, d);
        for (int k = 0; k < ask->nout; k++) way[ask->nin + k] = dt_shard(d);
    }
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* Whether input i may go from `from` to `to` along mesh dim m without moving anything; placements
 * along later mesh dims are final already. Along a mesh dim of one device all mean the same. */
static bool is_local_change(const dt_ask *ask, const dt_placement *chosen, int width, int i, int m,
                            dt_placement from, dt_placement to) {
    if (ask->mesh->shape[m] > 1 && from.kind != DT_REPLICATE) return false;
    for (int later = m + 1; later < ask->mesh->rank; later++) {
        dt_placement p = chosen[later * width + i];
        /* A later mesh dim that cuts the same dim cut the whole of it, not our part. */
        if (ask->mesh->shape[m] > 1 && to.kind == DT_SHARD && dt_placement_is_shard(p, to.dim))
            return false;
    }
    for (int other = 0; dt_placement_is_partial(to) && other < ask->mesh->rank; other++) {
        dt_placement p = other > m ? chosen[other * width + i] : dt_ask_placement(ask, i, other);
        if (other != m && dt_placement_is_partial(p) &&
            !dt_partial_commutes((dt_placement_kind)p.kind, (dt_placement_kind)to.kind))
            return false;
    }
    return true;
}

/* Whether the op lets input i be changed. */
static bool may_change(const dt_ask *ask, const dt_ways *ways, int i, int m) {
    return !ways->shares || i > 0 || ask->mesh->shape[m] == 1;
}

/* Whether an output that is Partial that way along m may be what later mesh dims make of it. */
static bool outputs_commute(const dt_ask *ask, const dt_placement *way, const dt_placement *chosen,
                            int m) {
    int width = ask->nin + ask->nout;
    for (int k = ask->nin; k < width; k++) {
        if (!dt_placement_is_partial(way[k])) continue;
        for (int later = m + 1; later < ask->mesh->rank; later++) {
            dt_placement p = chosen[later * width + k];
            if (dt_placement_is_partial(p) &&
                !dt_partial_commutes((dt_placement_kind)p.kind, (dt_placement_kind)way[k].kind))
                return false;
        }
    }
    return true;
}

static bool is_any(dt_placement p) { return dt_placement_equal(p, dt_any()); }

/* How many inputs have to change for the way, or -1: it will not do. */
static int changes(const dt_ask *ask, const dt_ways *ways, const dt_placement *way,
                   const dt_placement *wanted, const dt_placement *chosen, int m) {
    int width = ask->nin + ask->nout, n = 0;
    for (int i = 0; i < ask->nin; i++) {
        dt_placement have = dt_ask_placement(ask, i, m);
        if (is_any(way[i]) || dt_placement_equal(have, way[i])) continue;
        if (!may_change(ask, ways, i, m)) return -1;
        if (!is_local_change(ask, chosen, width, i, m, have, way[i])) return -1;
        n++;
    }
    if (wanted != NULL && !dt_placement_equal(way[ask->nin], wanted[m])) return -1;
    return outputs_commute(ask, way, chosen, m) ? n : -1;
}

static void ask_op(const dt_ask *ask, dt_ways *ways) {
    init_ways(ways, ask);
    (void)dt_way(ways); /* all Replicate */
    ask->call->op->shard(ask, ways);
}

static const dt_placement *way_at(const dt_ways *ways, int w) {
    return ways->rows + (size_t)w * (size_t)ways->width;
}

static void take_way(const dt_ask *ask, const dt_placement *way, int m, dt_placement *chosen) {
    int width = ask->nin + ask->nout;
    memcpy(chosen + m * width, way, sizeof *chosen * (size_t)width);
    for (int i = 0; i < ask->nin; i++)
        if (is_any(way[i])) chosen[m * width + i] = dt_ask_placement(ask, i, m);
}

#define TRIES_MAX 10000 /* ways looked at, of all mesh dims together */

/* A search through the ways of all mesh dims, the innermost one first. */
typedef struct search {
    const dt_ask *ask;
    const dt_ways *ways;
    const dt_placement *wanted;
    dt_placement *chosen;
    int tries;
    bool jointly_refused; /* some combination; the error text says why */
    /* Of the nearest legal call: */
    dt_placement *best;
    double least; /* cost of best, negative: there is none yet */
} search;

static bool is_joint(search *s) {
    if (s->ways->joint == NULL || s->ways->joint(s->ask, s->chosen) == DT_OK) return true;
    s->jointly_refused = true;
    return false;
}

/* Chooses ways for mesh dims m, m - 1, ... 0. */
static bool choose(search *s, int m) {
    if (m < 0) return is_joint(s);
    for (int n = 0, more = true; more && n <= s->ask->nin; n++) {
        more = false; /* a way that takes more than n changes */
        for (int w = 0; w < s->ways->count; w++) {
            const dt_placement *way = way_at(s->ways, w);
            int needed = changes(s->ask, s->ways, way, s->wanted, s->chosen, m);
            more = more || needed > n;
            if (needed != n) continue;
            if (s->tries++ >= TRIES_MAX) return false;
            take_way(s->ask, way, m, s->chosen);
            if (choose(s, m - 1)) return true;
        }
    }
    return false;
}

/* ---- the nearest legal call ------------------------------------------------------------------ */

/* Roughly the share of a tensor that each device has to receive. */
static double share_moved(dt_placement from, dt_placement to, int n) {
    if (dt_placement_equal(from, to) || from.kind == DT_REPLICATE) return 0;
    double part = 1.0 / n;
    if (from.kind == DT_SHARD) return to.kind == DT_SHARD ? part * (1 - part) : 1 - part;
    return to.kind == DT_SHARD ? 1 - part : 2 * (1 - part); /* reduce-scatter; all-reduce */
}

/* What it takes to give the inputs that way along m, negative: it cannot be done. */
static double cost_of(const search *s, const dt_placement *way, int m) {
    const dt_ask *ask = s->ask;
    double cost = 0;
    if (s->wanted != NULL && !dt_placement_equal(way[ask->nin], s->wanted[m])) return -1;
    if (!outputs_commute(ask, way, s->chosen, m)) return -1;
    for (int i = 0; i < ask->nin; i++) {
        const dt_tensor *t = ask->in[i].t;
        dt_placement have = dt_ask_placement(ask, i, m);
        if (is_any(way[i]) || dt_placement_equal(have, way[i])) continue;
        bool whole = have.kind == DT_REPLICATE;
        /* A redistribute never makes a Partial of what is none. */
        if (dt_placement_is_partial(way[i]) && !whole) return -1;
        if (whole && (!may_change(ask, s->ways, i, m) ||
                      !is_local_change(ask, s->chosen, s->ways->width, i, m, have, way[i])))
            return -1;
        cost += 1; /* of ways that move alike, the one that changes least */
        if (t != NULL && dt_tensor_is_dist(t))
            cost += share_moved(have, way[i], ask->mesh->shape[m]) * (double)t->numel *
                    (double)dt_dtype_size((dt_dtype)t->dtype);
    }
    return cost;
}

static void find_nearest(search *s, int m, double cost) {
    if (s->least >= 0 && cost >= s->least) return;
    if (m < 0) {
        if (!is_joint(s)) return;
        s->least = cost;
        memcpy(s->best, s->chosen,
               sizeof *s->best * (size_t)s->ways->width * (size_t)s->ask->mesh->rank);
        return;
    }
    for (int w = 0; w < s->ways->count; w++) {
        double more = cost_of(s, way_at(s->ways, w), m);
        if (more < 0 || s->tries++ >= TRIES_MAX) continue;
        take_way(s->ask, way_at(s->ways, w), m, s->chosen);
        find_nearest(s, m - 1, cost + more);
    }
}

bool dt_shard_nearest(const dt_ask *ask, const dt_placement *wanted, dt_placement *nearest) {
    dt_ways ways;
    dt_placement chosen[DT_CHOSEN_INLINE];
    size_t n = (size_t)(ask->nin + ask->nout) * ask->mesh->rank;
    search s = {.ask = ask, .ways = &ways, .wanted = wanted, .chosen = chosen};
    if (n > DT_CHOSEN_INLINE) s.chosen = dt_alloc(n * sizeof *chosen);
    if (s.chosen == NULL) return false;
    s.best = nearest;
    s.least = -1;
    ask_op(ask, &ways);
    find_nearest(&s, ask->mesh->rank - 1, 0);
    fini_ways(&ways);
    if (s.chosen != chosen) dt_free(s.chosen, n * sizeof *chosen);
    return s.least >= 0;
}

/* ---- why not --------------------------------------------------------------------------------- */

typedef struct text {
    char *to;
    size_t left;
} text;

static void add(text *t, const char *format, ...) DT_PRINTF(2, 3);
static void add(text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->to, t->left, format, args);
    va_end(args);
    size_t used = n < 0 ? 0 : (size_t)n < t->left ? (size_t)n : t->left > 0 ? t->left - 1 : 0;
    t->to += used;
    t->left -= used;
}

static void add_input(text *out, const dt_ask *ask, int i, int *said) {
    char shape[160], placements[160];
    const dt_tensor *t = ask->in[i].t;
    if (t == NULL || !dt_tensor_is_dist(t)) return;
    add(out, "%sinput %d: shape %s, %s", (*said)++ > 0 ? "; " : "", i,
        dt_shape_format(t->rank, t->shape, shape, sizeof shape),
        dt_placements_format(ask->mesh->rank, dt_dist_of(t)->placements, placements,
                             sizeof placements));
}

static void add_way(text *out, const dt_ask *ask, const dt_placement *way) {
    char one[24];
    add(out, "(");
    for (int i = 0, n = 0; i < ask->nin; i++) {
        if (ask->in[i].t == NULL) continue;
        const char *text = is_any(way[i]) ? "any" : dt_placement_format(way[i], one, sizeof one);
        add(out, "%s%s", n++ > 0 ? ", " : "", text);
    }
    add(out, ")");
    for (int k = 0; k < ask->nout; k++)
        add(out, "%s%s", k > 0 ? ", " : " -> ",
            dt_placement_format(way[ask->nin + k], one, sizeof one));
}

static void add_remedy(text *out, const dt_ask *ask, const dt_placement *wanted) {
    dt_placement nearest[DT_CHOSEN_INLINE] = {{0, 0}}, target[DT_MESH_RANK_MAX];
    int width = ask->nin + ask->nout, said = 0;
    if (width * ask->mesh->rank > DT_CHOSEN_INLINE) return; /* nobody reads so much */
    if (!dt_shard_nearest(ask, wanted, nearest)) return;
    for (int i = 0; i < ask->nin; i++) {
        char placements[160];
        const dt_tensor *t = ask->in[i].t;
        if (t == NULL || !dt_tensor_is_dist(t)) continue;
        bool same = true;
        for (int m = 0; m < ask->mesh->rank; m++) {
            dt_placement have = dt_ask_placement(ask, i, m);
            /* What is done locally anyway need not be asked for. */
            target[m] = have.kind == DT_REPLICATE ? have : nearest[m * width + i];
            same = same && dt_placement_equal(target[m], have);
        }
        if (same) continue;
        add(out, "%sinput %d.redistribute(placements=%s)", said++ > 0 ? " and " : ". Legal after ",
            i, dt_placements_format(ask->mesh->rank, target, placements, sizeof placements));
    }
}

static dt_status refuse(const dt_ask *ask, const dt_ways *ways, const dt_placement *wanted,
                        const char *why) {
    char buffer[3072], name[64], mesh[64], placements[160];
    text out = {buffer, sizeof buffer};
    add(&out, "%s: %s on mesh %s: ", dt_op_display_name(ask->call->op, name, sizeof name),
        why != NULL ? why : "illegal placements", dt_mesh_format(ask->mesh, mesh, sizeof mesh));
    int said = 0;
    for (int i = 0; i < ask->nin; i++) add_input(&out, ask, i, &said);
    if (wanted != NULL)
        add(&out, "; the result must have %s",
            dt_placements_format(ask->mesh->rank, wanted, placements, sizeof placements));
    add(&out, ". Legal along each mesh dim: ");
    for (int w = 0; w < ways->count; w++) {
        if (w == 24) {
            add(&out, ", and %d more", ways->count - w);
            break;
        }
        if (w > 0) add(&out, ", ");
        add_way(&out, ask, ways->rows + (size_t)w * (size_t)ways->width);
    }
    add(&out, "%s", ways->shares ? "" : " (Replicate inputs are cut as needed)");
    add_remedy(&out, ask, wanted);
    return dt_fail(DT_E_PLACEMENT, "%s", buffer);
}

dt_status dt_shard_choose(const dt_ask *ask, const dt_placement *wanted, dt_placement *chosen) {
    dt_ways ways;
    ask_op(ask, &ways);
    dt_status status = DT_OK;
    search s = {.ask = ask, .ways = &ways, .wanted = wanted, .chosen = chosen};
    if (ways.no_memory)
        status = dt_fail(DT_E_NO_MEMORY, "out of memory: cannot choose placements");
    else if (!choose(&s, ask->mesh->rank - 1))
        status = refuse(ask, &ways, wanted, s.jointly_refused ? dt_error_text() : NULL);
    fini_ways(&ways);
    return status;
}

/* ---- one device ------------------------------------------------------------------------------ */

const dt_tensor *dt_spot_whole(const dt_op_call *call, int arg) {
    if (call->spot == NULL) return call->args[arg].t;
    const dt_ask *ask = call->spot->ask;
    return ask->in[dt_ask_find(ask, arg)].t;
}

static void spot_box(const dt_spot *spot, const dt_tensor *t, int column, dt_box *box) {
    const dt_ask *ask = spot->ask;
    dt_placement placements[DT_MESH_RANK_MAX];
    int width = ask->nin + ask->nout;
    for (int m = 0; m < ask->mesh->rank; m++) placements[m] = spot->chosen[m * width + column];
    dt_layout_part(ask->mesh, placements, t->rank, t->shape, spot->index, box);
}

void dt_spot_in(const dt_spot *spot, int i, dt_box *box) {
    spot_box(spot, spot->ask->in[i].t, i, box);
}

void dt_spot_out(const dt_spot *spot, int k, dt_box *box) {
    spot_box(spot, spot->ask->out[k], spot->ask->nin + k, box);
}

dt_dims dt_spot_out_dims(const dt_spot *spot, int k) {
    dt_box box;
    dt_spot_out(spot, k, &box);
    dt_dims dims = {.rank = spot->ask->out[k]->rank};
    memcpy(dims.v, box.size, sizeof(int64_t) * (size_t)dims.rank);
    return dims;
}
