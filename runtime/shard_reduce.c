/* shard_reduce.c: reductions and scans on a mesh.
 *
 * Dims that are kept go through.  A cut dim that is reduced leaves results to be reduced further:
 * Partial of the reduction's kind, where it has one; where it has none (var, argmax, a scan along
 * the dim) the dim must be whole.  Reductions that commute take Partial in as well.
 */
#include <math.h>

#include "runtime/infer.h"
#include "runtime/shard.h"

static dt_placement partial(dt_placement_kind kind) { return dt_partial(kind); }

/* The reduced dims as the rule has left them. */
static bool is_reduced(const dt_ask *ask, int dim) {
    return ask->call->call.params.i[0] >> dim & 1;
}

/* Where dim d of the input is in the outputs. */
static int place_of(const dt_ask *ask, int dim) {
    const dt_tensor *x = ask->in[0].t;
    if (ask->out[0]->rank == x->rank) return dim;
    int place = 0;
    for (int d = 0; d < dim; d++) place += !is_reduced(ask, d);
    return place;
}

static void through(const dt_ask *ask, dt_ways *ways) {
    for (int d = 0; d < ask->in[0].t->rank; d++)
        if (!is_reduced(ask, d)) dt_ways_one(ask, ways, 0, dt_shard(d), dt_shard(place_of(ask, d)));
}

static void reduced_to(const dt_ask *ask, dt_ways *ways, dt_placement_kind kind) {
    for (int d = 0; d < ask->in[0].t->rank; d++)
        if (is_reduced(ask, d)) dt_ways_one(ask, ways, 0, dt_shard(d), partial(kind));
}

static void passes(const dt_ask *ask, dt_ways *ways, dt_placement_kind kind) {
    dt_ways_one(ask, ways, 0, partial(kind), partial(kind));
}

/* Of one element each, what is computed is the element. */
static void passes_alone(const dt_ask *ask, dt_ways *ways) {
    const dt_tensor *x = ask->in[0].t;
    if (x->dtype != ask->out[0]->dtype) return;
    for (int d = 0; d < x->rank; d++)
        if (is_reduced(ask, d) && x->shape[d] != 1) return;
    for (int kind = DT_PARTIAL_SUM; kind < DT_PLACEMENT_KINDS; kind++)
        passes(ask, ways, (dt_placement_kind)kind);
}

/* Whether a sum, or product, of parts stays that in the result's type. Integers narrower than the
 * result wrap around in their own type only, and floats lose their fractions as integers. */
static bool type_is_linear(const dt_ask *ask) {
    dt_dtype in = (dt_dtype)ask->in[0].t->dtype, out = (dt_dtype)ask->out[0]->dtype;
    return in == out || (dt_dtype_is_float(out) && (dt_dtype_is_float(in) || in == DT_I64));
}

static void passes_sums(const dt_ask *ask, dt_ways *ways) {
    if (!type_is_linear(ask)) return;
    passes(ask, ways, DT_PARTIAL_SUM);
    if (dt_dtype_is_float((dt_dtype)ask->in[0].t->dtype)) passes(ask, ways, DT_PARTIAL_AVG);
}

/* sum, and mean, whose parts divide by the number of elements of the whole. */
void dt_shard_sum(const dt_ask *ask, dt_ways *ways) {
    through(ask, ways);
    reduced_to(ask, ways, DT_PARTIAL_SUM);
    passes_sums(ask, ways);
    passes_alone(ask, ways);
}

void dt_shard_prod(const dt_ask *ask, dt_ways *ways) {
    through(ask, ways);
    reduced_to(ask, ways, DT_PARTIAL_PRODUCT);
    if (type_is_linear(ask)) passes(ask, ways, DT_PARTIAL_PRODUCT);
    passes_alone(ask, ways);
}

static void extremum(const dt_ask *ask, dt_ways *ways, dt_placement_kind kind) {
    through(ask, ways);
    reduced_to(ask, ways, kind);
    passes(ask, ways, kind);
    passes_alone(ask, ways);
}

void dt_shard_amax(const dt_ask *ask, dt_ways *ways) { extremum(ask, ways, DT_PARTIAL_MAX); }
void dt_shard_amin(const dt_ask *ask, dt_ways *ways) { extremum(ask, ways, DT_PARTIAL_MIN); }

/* any is the maximum of truths, all the minimum; of numbers only where none is below 0. */
static void logical(const dt_ask *ask, dt_ways *ways, dt_placement_kind kind) {
    dt_dtype in = (dt_dtype)ask->in[0].t->dtype;
    through(ask, ways);
    reduced_to(ask, ways, kind);
    if (in == DT_BOOL || in == DT_U8) passes(ask, ways, kind);
}

void dt_shard_any(const dt_ask *ask, dt_ways *ways) { logical(ask, ways, DT_PARTIAL_MAX); }
void dt_shard_all(const dt_ask *ask, dt_ways *ways) { logical(ask, ways, DT_PARTIAL_MIN); }

/* sum |x| and the count of what is not 0 are sums; max |x| and min |x| extrema; the others' roots
 * are neither. */
void dt_shard_vector_norm(const dt_ask *ask, dt_ways *ways) {
    double p = dt_scalar_f64(ask->call->args[1].s);
    through(ask, ways);
    if (p == 0 || p == 1) reduced_to(ask, ways, DT_PARTIAL_SUM);
    if (isinf(p)) reduced_to(ask, ways, p > 0 ? DT_PARTIAL_MAX : DT_PARTIAL_MIN);
}

/* var, std, logsumexp, and those that tell where. */
void dt_shard_reduce_whole(const dt_ask *ask, dt_ways *ways) { through(ask, ways); }

/* Along which dim a scan goes; params.i[0] has no mask. */
static void through_scan(const dt_ask *ask, dt_ways *ways) {
    for (int d = 0; d < ask->in[0].t->rank; d++)
        if (d != ask->call->call.params.i[1]) dt_ways_one(ask, ways, 0, dt_shard(d), dt_shard(d));
}

void dt_shard_cumsum(const dt_ask *ask, dt_ways *ways) {
    through_scan(ask, ways);
    passes_sums(ask, ways);
}

void dt_shard_cumprod(const dt_ask *ask, dt_ways *ways) {
    through_scan(ask, ways);
    if (type_is_linear(ask)) passes(ask, ways, DT_PARTIAL_PRODUCT);
}
