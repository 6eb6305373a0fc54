/* shard_index.c: joining, lookups by index, masks and triangles on a mesh.
 *
 * A lookup along a sharded dim needs no communication: a device is told which rows it has, and
 * gives for an index of another's rows what leaves a sum as it is.  So the result is Partial.
 */
#include "runtime/infer.h"
#include "runtime/rules.h"
#include "runtime/shard.h"

static dt_placement partial(int kind) { return dt_partial((dt_placement_kind)kind); }

/* The first two inputs, others whole. */
static void add_pair(const dt_ask *ask, dt_ways *ways, dt_placement a, dt_placement b,
                     dt_placement out) {
    dt_placement *way = dt_way(ways);
    way[0] = a;
    way[1] = b;
    *dt_way_out(ask, way, 0) = out;
}

/* Elements are moved, not changed. */
static void add_partials(const dt_ask *ask, dt_ways *ways) {
    for (int kind = DT_PARTIAL_SUM; kind < DT_PLACEMENT_KINDS; kind++)
        dt_ways_one(ask, ways, 0, partial(kind), partial(kind));
}

/* ---- joining --------------------------------------------------------------------------------- */

static bool may_be_partial(const dt_ask *ask, int i, int kind) {
    for (int m = 0; m < ask->mesh->rank; m++)
        if (dt_ask_placement(ask, i, m).kind == kind)
            return dt_cast_commutes((dt_placement_kind)kind, (dt_dtype)ask->in[i].t->dtype,
                                    (dt_dtype)ask->out[0]->dtype);
    return true;
}

/* torch lets a 1-D tensor of size 0 take part in a cat of others. */
static bool is_ignored(const dt_ask *ask, int i) {
    const dt_tensor *t = ask->in[i].t;
    return t->rank == 1 && t->shape[0] == 0 && ask->out[0]->rank > 1;
}

static void join_way(const dt_ask *ask, dt_ways *ways, dt_placement in, dt_placement out) {
    dt_placement *way = dt_way(ways);
    for (int i = 0; i < ask->nin; i++) way[i] = is_ignored(ask, i) ? dt_any() : in;
    *dt_way_out(ask, way, 0) = out;
}

static void join_partials(const dt_ask *ask, dt_ways *ways, bool ignores) {
    for (int kind = DT_PARTIAL_SUM; kind < DT_PLACEMENT_KINDS; kind++) {
        bool all = true;
        for (int i = 0; i < ask->nin; i++) all = all && may_be_partial(ask, i, kind);
        if (all && ignores)
            join_way(ask, ways, partial(kind), partial(kind));
        else if (all)
            dt_ways_all(ask, ways, partial(kind), partial(kind));
    }
}

void dt_shard_cat(const dt_ask *ask, dt_ways *ways) {
    int dim = (int)ask->call->call.params.i[0], long_ones = 0;
    for (int i = 0; i < ask->nin; i++)
        long_ones += !is_ignored(ask, i) && ask->in[i].t->shape[dim] > 0;
    join_way(ask, ways, dt_replicate(), dt_replicate());
    for (int d = 0; d < ask->out[0]->rank; d++) /* along dim itself where nothing is joined */
        if (d != dim || long_ones <= 1) join_way(ask, ways, dt_shard(d), dt_shard(d));
    join_partials(ask, ways, true);
}

void dt_shard_stack(const dt_ask *ask, dt_ways *ways) {
    int dim = (int)ask->call->call.params.i[0];
    for (int d = 0; d < ask->in[0].t->rank; d++)
        dt_ways_all(ask, ways, dt_shard(d), dt_shard(d < dim ? d : d + 1));
    join_partials(ask, ways, false);
}

/* ---- lookups --------------------------------------------------------------------------------- */

/* What a device's share of a lookup among all rows is. */
static dt_placement of_some_rows(const dt_ask *ask) {
    return partial(ask->in[0].t->dtype == DT_BOOL ? DT_PARTIAL_MAX : DT_PARTIAL_SUM);
}

void dt_shard_embedding(const dt_ask *ask, dt_ways *ways) {
    int rank = ask->in[1].t->rank;
    for (int d = 0; d < rank; d++) add_pair(ask, ways, dt_replicate(), dt_shard(d), dt_shard(d));
    dt_ways_one(ask, ways, 0, dt_shard(1), dt_shard(rank));
    dt_ways_one(ask, ways, 0, dt_shard(0), of_some_rows(ask));
    add_partials(ask, ways);
}

void dt_shard_index_select(const dt_ask *ask, dt_ways *ways) {
    const dt_tensor *t = ask->in[0].t;
    int dim = (int)ask->call->call.params.i[0];
    for (int d = 0; d < t->rank; d++)
        dt_ways_one(ask, ways, 0, dt_shard(d), d == dim ? of_some_rows(ask) : dt_shard(d));
    if (t->rank > 0 && ask->in[1].t->rank > 0)
        add_pair(ask, ways, dt_replicate(), dt_shard(0), dt_shard(dim));
    add_partials(ask, ways);
}

/* Beside the dim of the lookup both go along with each other; an index that is shorter there starts
 * where its part does, in a tensor that is whole (dt_infer_gather). */
void dt_shard_gather(const dt_ask *ask, dt_ways *ways) {
    const dt_tensor *t = ask->in[0].t, *index = ask->in[1].t;
    int dim = (int)ask->call->call.params.i[0];
    for (int d = 0; d < index->rank; d++) {
        bool along = d != dim && d < t->rank && t->shape[d] == index->shape[d];
        add_pair(ask, ways, along ? dt_shard(d) : dt_replicate(), dt_shard(d), dt_shard(d));
    }
    if (t->rank > 0) dt_ways_one(ask, ways, 0, dt_shard(dim), of_some_rows(ask));
    add_partials(ask, ways);
}

/* ---- masks ----------------------------------------------------------------------------------- */

void dt_shard_masked_select(const dt_ask *ask, dt_ways *ways) { add_partials(ask, ways); }

/* Dims that the mask does not cover; how many places count is then the same everywhere. */
void dt_shard_index_mask(const dt_ask *ask, dt_ways *ways) {
    int first = (int)ask->call->call.params.i[0], end = first + ask->in[1].t->rank;
    for (int d = 0; d < ask->in[0].t->rank; d++) {
        if (d >= first && d < end) continue;
        int out = d < first ? d : d - end + first + 1;
        dt_ways_one(ask, ways, 0, dt_shard(d), dt_shard(out));
    }
    add_partials(ask, ways);
}

/* x[:, mask] = value. Along dims that the mask covers, only where one value goes to all places. */
void dt_shard_index_put_mask(const dt_ask *ask, dt_ways *ways) {
    const dt_tensor *t = ask->in[0].t, *mask = ask->in[1].t, *value = ask->in[2].t;
    int first = (int)ask->call->call.params.i[0], end = first + mask->rank;
    int lead = t->rank - mask->rank + 1 - value->rank; /* dims that value lacks */
    ways->shares = true;
    for (int d = 0; d < t->rank; d++) {
        bool covered = d >= first && d < end;
        int own = (d < first ? d : covered ? first : d - end + first + 1) - lead;
        bool one = own < 0 || value->shape[own] == 1;
        if (covered && !one) continue;
        dt_placement *way = dt_way(ways);
        way[0] = *dt_way_out(ask, way, 0) = dt_shard(d);
        if (covered) way[1] = dt_shard(d - first);
        if (!one) way[2] = dt_shard(own);
    }
    for (int kind = DT_PARTIAL_SUM; kind < DT_PLACEMENT_KINDS; kind++) {
        dt_placement *way = dt_way(ways);
        way[0] = way[2] = *dt_way_out(ask, way, 0) = partial(kind);
    }
}

/* ---- triangles ------------------------------------------------------------------------------- */

/* The rule moves the diagonal to where the part lies. What is cut off is 0 in every part. */
void dt_shard_tri(const dt_ask *ask, dt_ways *ways) {
    dt_ways_elementwise(ask, ways);
    add_partials(ask, ways);
}
