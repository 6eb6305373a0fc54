/* shard_create.c: ops that make tensors of nothing, on a mesh. */
#include "runtime/infer.h"
#include "runtime/shard.h"

/* What the rule makes from an element's place in the whole: any part of it. As Partial the rule
 * counts it once (sum, product), or every device has it. */
void dt_shard_by_place(const dt_ask *ask, dt_ways *ways) {
    const dt_tensor *out = ask->out[0];
    for (int d = 0; d < out->rank; d++) *dt_way_out(ask, dt_way(ways), 0) = dt_shard(d);
    for (int kind = DT_PARTIAL_SUM; kind < DT_PLACEMENT_KINDS; kind++)
        if (kind != DT_PARTIAL_AVG || dt_dtype_is_float((dt_dtype)out->dtype))
            *dt_way_out(ask, dt_way(ways), 0) = dt_partial((dt_placement_kind)kind);
}

/* Every element alike: any part of it, and any Partial, whose value the first argument that is a
 * number stands for. */
void dt_shard_fill(const dt_ask *ask, dt_ways *ways) {
    for (int d = 0; d < ask->out[0]->rank; d++) dt_ways_all(ask, ways, dt_replicate(), dt_shard(d));
    for (int kind = DT_PARTIAL_SUM; kind < DT_PLACEMENT_KINDS; kind++)
        dt_ways_all(ask, ways, dt_partial((dt_placement_kind)kind),
                    dt_partial((dt_placement_kind)kind));
}
