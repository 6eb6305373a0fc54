/* shard_nn.c: softmax, normalisation and attention on a mesh.
 *
 * What is normalised together stays whole: the softmax's dim, the trailing dims of a normalisation,
 * the keys of an attention.  All else goes through.
 */
#include "runtime/infer.h"
#include "runtime/shard.h"

/* input 0 and the result cut along `dim`. */
static dt_placement *way_through(const dt_ask *ask, dt_ways *ways, int dim) {
    dt_placement *way = dt_way(ways);
    way[0] = dt_shard(dim);
    *dt_way_out(ask, way, 0) = dt_shard(dim);
    return way;
}

void dt_shard_softmax(const dt_ask *ask, dt_ways *ways) {
    const dt_tensor *x = ask->in[0].t;
    int64_t dim = ask->call->args[1].i;
    if (dim < 0) dim += x->rank;
    for (int d = 0; d < x->rank; d++)
        if (d != dim) way_through(ask, ways, d);
}

/* y = normal(x) * weight + bias is linear in weight and bias together. Without a weight a bias is
 * not: normal(x) must be added once only. */
void dt_shard_norm(const dt_ask *ask, dt_ways *ways) {
    const dt_tensor *x = ask->in[0].t;
    int rows = x->rank - ask->call->args[1].dims->rank;
    for (int d = 0; d < rows; d++) way_through(ask, ways, d);
    int weight = dt_ask_find(ask, 2), bias = ask->call->op->id == DT_OP_layer_norm ? 3 : -1;
    if (bias >= 0) bias = dt_ask_find(ask, bias);
    if (weight < 0) return;
    for (int kind = DT_PARTIAL_SUM; kind <= DT_PARTIAL_AVG; kind++) {
        dt_placement p = dt_partial((dt_placement_kind)kind), *way = dt_way(ways);
        way[weight] = *dt_way_out(ask, way, 0) = p;
        if (bias >= 0) way[bias] = p;
    }
}

/* query [..., L, E], key [..., S, E], value [..., S, Ev], mask [..., L, S] -> [..., L, Ev]. The
 * result is linear in the values; a causal kernel is told at which row of L it begins. */
void dt_shard_sdpa(const dt_ask *ask, dt_ways *ways) {
    const dt_tensor *out = ask->out[0];
    int rank = out->rank, mask = dt_ask_find(ask, 3), tensors = mask >= 0 ? 4 : 3;
    for (int d = 0; d < rank - 2; d++) {
        dt_placement *way = dt_way(ways);
        for (int i = 0; i < tensors; i++) dt_way_cut(ask, way, i, d);
        *dt_way_out(ask, way, 0) = dt_shard(d);
    }
    dt_placement *rows = dt_way(ways);
    rows[0] = dt_shard(ask->in[0].t->rank - 2);
    if (mask >= 0) dt_way_cut(ask, rows, mask, rank - 2);
    *dt_way_out(ask, rows, 0) = dt_shard(rank - 2);
    dt_ways_one(ask, ways, 2, dt_shard(ask->in[2].t->rank - 1), dt_shard(rank - 1));
    for (int kind = DT_PARTIAL_SUM; kind <= DT_PARTIAL_AVG; kind++)
        dt_ways_one(ask, ways, 2, dt_partial((dt_placement_kind)kind),
                    dt_partial((dt_placement_kind)kind));
}
