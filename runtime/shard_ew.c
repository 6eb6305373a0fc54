/* shard_ew.c: element-wise ops on a mesh.
 *
 * Shards go through every one of them.  What comes in as Partial passes only where the expression
 * commutes with the reduction, for every value that a part may have:
 *
 *   linear        sum, avg; an affine expression avg alone, which is two operands of which one may
 *                 be Replicate
 *   homomorphic   product: f(ab) = f(a) f(b)
 *   monotone      min, max; a falling one swaps them
 *
 * A device that has no element of a reduction has the identity of min or max as its part, the limit
 * of the dtype.  So integers are monotone only where nothing can wrap, and what is NaN outside its
 * domain passes Partial(min) where the domain is bounded below, and nothing else.
 */
#include "runtime/infer.h"
#include "runtime/shard.h"

static dt_placement sum(void) { return dt_partial(DT_PARTIAL_SUM); }
static dt_placement avg(void) { return dt_partial(DT_PARTIAL_AVG); }
static dt_placement least(void) { return dt_partial(DT_PARTIAL_MIN); }
static dt_placement most(void) { return dt_partial(DT_PARTIAL_MAX); }
static dt_placement product(void) { return dt_partial(DT_PARTIAL_PRODUCT); }

/* ---- casts ----------------------------------------------------------------------------------- */

/* Of bools a sum is `or`, a product `and`. */
bool dt_cast_commutes(dt_placement_kind kind, dt_dtype from, dt_dtype to) {
    bool from_float = dt_dtype_is_float(from), to_float = dt_dtype_is_float(to);
    if (from == to) return true;
    if (to == DT_BOOL) return false;
    switch (kind) {
    case DT_PARTIAL_SUM:
        return from != DT_BOOL && (to_float || !from_float);
    case DT_PARTIAL_PRODUCT:
        return to_float || !from_float;
    case DT_PARTIAL_AVG:
        return from_float && to_float;
    default: /* min, max: rounding keeps the order, wrapping does not */
        return to_float || from == DT_BOOL || (!from_float && dt_dtype_promote(from, to) == to);
    }
}

static bool is_anywhere(const dt_ask *ask, int i, dt_placement p) {
    for (int m = 0; m < ask->mesh->rank; m++)
        if (dt_placement_equal(dt_ask_placement(ask, i, m), p)) return true;
    return false;
}

static dt_dtype compute_dtype(const dt_ask *ask) { return (dt_dtype)ask->call->call.compute; }
static bool computes_floats(const dt_ask *ask) { return dt_dtype_is_float(compute_dtype(ask)); }

/* ---- ways ------------------------------------------------------------------------------------ */

/* The inputs of the mask are placed as p, all others whole. No way when an operand that is p would
 * have to be cast in a manner that does not go together with it. */
static void add_way(const dt_ask *ask, dt_ways *ways, uint32_t inputs, dt_placement p,
                    dt_placement out) {
    for (int i = 0; i < ask->nin; i++) {
        const dt_tensor *t = ask->in[i].t;
        if (!(inputs >> i & 1) || t == NULL || !is_anywhere(ask, i, p)) continue;
        if (!dt_cast_commutes((dt_placement_kind)p.kind, (dt_dtype)t->dtype, compute_dtype(ask)))
            return;
    }
    dt_placement *way = dt_way(ways);
    for (int i = 0; i < ask->nin; i++)
        if (inputs >> i & 1) way[i] = p;
    *dt_way_out(ask, way, 0) = out;
}

#define ONLY(i) (1u << (i))
#define BOTH (ONLY(0) | ONLY(1))

static void linear(const dt_ask *ask, dt_ways *ways, uint32_t inputs) {
    add_way(ask, ways, inputs, sum(), sum());
    add_way(ask, ways, inputs, avg(), avg());
}

static void rising(const dt_ask *ask, dt_ways *ways, int input) {
    add_way(ask, ways, ONLY(input), least(), least());
    add_way(ask, ways, ONLY(input), most(), most());
}

static void falling(const dt_ask *ask, dt_ways *ways, int input) {
    add_way(ask, ways, ONLY(input), least(), most());
    add_way(ask, ways, ONLY(input), most(), least());
}

static void by_sign(const dt_ask *ask, dt_ways *ways, int input, double sign) {
    if (sign > 0) rising(ask, ways, input);
    if (sign < 0) falling(ask, ways, input);
}

/* The number that input i is. False: a tensor, or no finite number. */
static bool number(const dt_ask *ask, int i, double *value) {
    if (i < 0 || i >= ask->nin || ask->in[i].t != NULL) return false;
    *value = dt_scalar_f64(ask->call->args[ask->in[i].arg].s);
    return *value - *value == 0;
}

/* ---- one operand ----------------------------------------------------------------------------- */

void dt_shard_whole(const dt_ask *ask, dt_ways *ways) {
    (void)ask, (void)ways; /* all Replicate, which is listed already */
}

void dt_shard_ew(const dt_ask *ask, dt_ways *ways) { dt_ways_elementwise(ask, ways); }

/* Copies, to another dtype too. */
void dt_shard_ew_copy(const dt_ask *ask, dt_ways *ways) {
    dt_dtype from = (dt_dtype)ask->in[0].t->dtype, to = (dt_dtype)ask->out[0]->dtype;
    dt_ways_elementwise(ask, ways);
    for (int kind = DT_PARTIAL_SUM; kind < DT_PLACEMENT_KINDS; kind++) {
        dt_placement p = dt_partial((dt_placement_kind)kind);
        if (dt_cast_commutes((dt_placement_kind)kind, from, to)) dt_ways_one(ask, ways, 0, p, p);
    }
}

void dt_shard_ew_neg(const dt_ask *ask, dt_ways *ways) {
    dt_ways_elementwise(ask, ways);
    linear(ask, ways, ONLY(0));
    if (computes_floats(ask)) falling(ask, ways, 0);
}

void dt_shard_ew_up(const dt_ask *ask, dt_ways *ways) {
    dt_ways_elementwise(ask, ways);
    rising(ask, ways, 0);
}

void dt_shard_ew_down(const dt_ask *ask, dt_ways *ways) {
    dt_ways_elementwise(ask, ways);
    falling(ask, ways, 0);
}

/* Rising, and NaN below some value: the least part tells whether the result is NaN. */
void dt_shard_ew_up_from(const dt_ask *ask, dt_ways *ways) {
    dt_ways_elementwise(ask, ways);
    add_way(ask, ways, ONLY(0), least(), least());
}

/* abs, square, reciprocal */
void dt_shard_ew_factor(const dt_ask *ask, dt_ways *ways) {
    dt_ways_elementwise(ask, ways);
    add_way(ask, ways, ONLY(0), product(), product());
}

/* The sign of NaN is 0, so that it does not rise over floats. */
void dt_shard_ew_sign(const dt_ask *ask, dt_ways *ways) {
    dt_shard_ew_factor(ask, ways);
    if (!computes_floats(ask)) rising(ask, ways, 0);
}

/* A NaN among the parts is the least and the greatest of them. */
void dt_shard_ew_isnan(const dt_ask *ask, dt_ways *ways) {
    dt_ways_elementwise(ask, ways);
    add_way(ask, ways, ONLY(0), least(), most());
    add_way(ask, ways, ONLY(0), most(), most());
}

void dt_shard_ew_leaky_relu(const dt_ask *ask, dt_ways *ways) {
    double slope;
    dt_ways_elementwise(ask, ways);
    if (number(ask, 1, &slope) && slope > 0) rising(ask, ways, 0);
}

void dt_shard_ew_elu(const dt_ask *ask, dt_ways *ways) {
    double alpha;
    dt_ways_elementwise(ask, ways);
    if (number(ask, 1, &alpha) && alpha >= 0) rising(ask, ways, 0);
}

/* Where it turns into the identity it falls by exp(-threshold) / beta: nothing from 20 on. */
void dt_shard_ew_softplus(const dt_ask *ask, dt_ways *ways) {
    double beta, threshold;
    dt_ways_elementwise(ask, ways);
    if (number(ask, 1, &beta) && number(ask, 2, &threshold) && beta > 0 && threshold >= 20)
        rising(ask, ways, 0);
}

/* ---- two operands ---------------------------------------------------------------------------- */

/* a + factor * b; a factor (alpha) is never Partial. */
static void sum_of_two(const dt_ask *ask, dt_ways *ways, double sign_a, double sign_b) {
    dt_ways_elementwise(ask, ways);
    linear(ask, ways, BOTH);
    if (!computes_floats(ask)) return;
    by_sign(ask, ways, 0, sign_a);
    by_sign(ask, ways, 1, sign_b);
}

static double factor(const dt_ask *ask) {
    double alpha = 1;
    return ask->nin < 3 ? 1 : number(ask, 2, &alpha) ? alpha : 0;
}

void dt_shard_ew_add(const dt_ask *ask, dt_ways *ways) { sum_of_two(ask, ways, 1, factor(ask)); }
void dt_shard_ew_sub(const dt_ask *ask, dt_ways *ways) { sum_of_two(ask, ways, 1, -factor(ask)); }
void dt_shard_ew_rsub(const dt_ask *ask, dt_ways *ways) { sum_of_two(ask, ways, -factor(ask), 1); }

void dt_shard_ew_mul(const dt_ask *ask, dt_ways *ways) {
    double by;
    dt_ways_elementwise(ask, ways);
    linear(ask, ways, ONLY(0));
    linear(ask, ways, ONLY(1));
    add_way(ask, ways, BOTH, product(), product());
    for (int i = 0; i < 2; i++)
        if (number(ask, 1 - i, &by) && computes_floats(ask)) by_sign(ask, ways, i, by);
}

/* Rounded quotients are monotone, but floor(-inf / x) is NaN and the least integer has no negative.
 */
static void rounded_quotient(const dt_ask *ask, dt_ways *ways, bool floors) {
    double by;
    dt_ways_elementwise(ask, ways);
    bool floats = computes_floats(ask);
    if (!number(ask, 1, &by) || (floats ? floors : by < 0)) return;
    by_sign(ask, ways, 0, by);
}

void dt_shard_ew_div_trunc(const dt_ask *ask, dt_ways *ways) { rounded_quotient(ask, ways, false); }
void dt_shard_ew_div_floor(const dt_ask *ask, dt_ways *ways) { rounded_quotient(ask, ways, true); }

void dt_shard_ew_div(const dt_ask *ask, dt_ways *ways) {
    double by;
    const dt_op_call *call = ask->call;
    if (call->nargs > 2 && call->args[2].kind != DT_ARG_NONE) {
        rounded_quotient(ask, ways, call->call.op == DT_OP_floor_divide);
        return;
    }
    dt_ways_elementwise(ask, ways);
    linear(ask, ways, ONLY(0));
    add_way(ask, ways, BOTH, product(), product());
    if (number(ask, 1, &by)) by_sign(ask, ways, 0, by);
}

/* x to a whole power: of products any, of floats an odd one rises. */
void dt_shard_ew_pow(const dt_ask *ask, dt_ways *ways) {
    double power;
    dt_ways_elementwise(ask, ways);
    if (!number(ask, 1, &power) || power < 1 || power > 1000) return;
    int whole = (int)power;
    if (whole != power) return;
    add_way(ask, ways, ONLY(0), product(), product());
    if (whole % 2 == 1 && computes_floats(ask)) rising(ask, ways, 0);
}

/* min and max are a distributive lattice: max(min(a, b), c) = min(max(a, c), max(b, c)). */
static void lattice(const dt_ask *ask, dt_ways *ways, dt_placement own, dt_placement other) {
    add_way(ask, ways, BOTH, own, own);
    add_way(ask, ways, ONLY(0), other, other);
    add_way(ask, ways, ONLY(1), other, other);
}

void dt_shard_ew_max(const dt_ask *ask, dt_ways *ways) {
    dt_ways_elementwise(ask, ways);
    lattice(ask, ways, most(), least());
}

void dt_shard_ew_min(const dt_ask *ask, dt_ways *ways) {
    dt_ways_elementwise(ask, ways);
    lattice(ask, ways, least(), most());
}

/* They do not see a NaN, which a Partial of floats would. */
void dt_shard_ew_fmax(const dt_ask *ask, dt_ways *ways) {
    dt_ways_elementwise(ask, ways);
    if (!computes_floats(ask)) lattice(ask, ways, most(), least());
}

void dt_shard_ew_fmin(const dt_ask *ask, dt_ways *ways) {
    dt_ways_elementwise(ask, ways);
    if (!computes_floats(ask)) lattice(ask, ways, least(), most());
}

/* greater > less. With a NaN on either side it is false: that agrees with `and`, not with `or`. */
static void comparison(const dt_ask *ask, dt_ways *ways, int greater, int less) {
    dt_ways_elementwise(ask, ways);
    add_way(ask, ways, ONLY(greater), least(), least());
    add_way(ask, ways, ONLY(less), most(), least());
    if (computes_floats(ask)) return;
    add_way(ask, ways, ONLY(greater), most(), most());
    add_way(ask, ways, ONLY(less), least(), most());
}

void dt_shard_ew_greater(const dt_ask *ask, dt_ways *ways) { comparison(ask, ways, 0, 1); }
void dt_shard_ew_less(const dt_ask *ask, dt_ways *ways) { comparison(ask, ways, 1, 0); }

/* Of bools `and` is min, `or` max. Other numbers count as true or false in no order. */
static bool partials_are_bools(const dt_ask *ask) {
    for (int i = 0; i < ask->nin; i++) {
        const dt_tensor *t = ask->in[i].t;
        bool partial = is_anywhere(ask, i, least()) || is_anywhere(ask, i, most());
        if (partial && t->dtype != DT_BOOL) return false;
    }
    return true;
}

void dt_shard_ew_and(const dt_ask *ask, dt_ways *ways) {
    dt_ways_elementwise(ask, ways);
    if (partials_are_bools(ask)) lattice(ask, ways, least(), most());
}

void dt_shard_ew_or(const dt_ask *ask, dt_ways *ways) {
    dt_ways_elementwise(ask, ways);
    if (partials_are_bools(ask)) lattice(ask, ways, most(), least());
}

void dt_shard_ew_not(const dt_ask *ask, dt_ways *ways) {
    dt_ways_elementwise(ask, ways);
    if (partials_are_bools(ask)) falling(ask, ways, 0);
}

/* A product with a power of two, wrapping as sums do. */
void dt_shard_ew_shl(const dt_ask *ask, dt_ways *ways) {
    dt_ways_elementwise(ask, ways);
    add_way(ask, ways, ONLY(0), sum(), sum());
}

/* ---- three operands -------------------------------------------------------------------------- */

/* Each element is that of one operand or the other. */
static void choice(const dt_ask *ask, dt_ways *ways, uint32_t operands) {
    dt_ways_elementwise(ask, ways);
    for (int kind = DT_PARTIAL_SUM; kind < DT_PLACEMENT_KINDS; kind++) {
        dt_placement p = dt_partial((dt_placement_kind)kind);
        add_way(ask, ways, operands, p, p);
    }
}

void dt_shard_where(const dt_ask *ask, dt_ways *ways) { choice(ask, ways, ONLY(1) | ONLY(2)); }
void dt_shard_masked_fill(const dt_ask *ask, dt_ways *ways) {
    choice(ask, ways, ONLY(0) | ONLY(2));
}

void dt_shard_addcmul(const dt_ask *ask, dt_ways *ways) {
    dt_ways_elementwise(ask, ways);
    linear(ask, ways, ONLY(0) | ONLY(1));
    linear(ask, ways, ONLY(0) | ONLY(2));
}

/* addcdiv, and lerp: linear in the first two. */
void dt_shard_linear_in_two(const dt_ask *ask, dt_ways *ways) {
    dt_ways_elementwise(ask, ways);
    linear(ask, ways, BOTH);
}

/* ---- fill ------------------------------------------------------------------------------------ */

/* The input is asked for its shape alone. */
void dt_shard_refill(const dt_ask *ask, dt_ways *ways) {
    int value = dt_ask_find(ask, 1);
    for (int d = 0; d < ask->out[0]->rank; d++) dt_ways_one(ask, ways, 0, dt_shard(d), dt_shard(d));
    for (int kind = DT_PARTIAL_SUM; kind < DT_PLACEMENT_KINDS; kind++) {
        dt_placement p = dt_partial((dt_placement_kind)kind);
        const dt_tensor *t = ask->in[value].t;
        if (t != NULL && is_anywhere(ask, value, p) &&
            !dt_cast_commutes((dt_placement_kind)kind, (dt_dtype)t->dtype, compute_dtype(ask)))
            continue;
        dt_placement *way = dt_way(ways);
        way[0] = way[value] = p;
        *dt_way_out(ask, way, 0) = p;
    }
    dt_ways_one(ask, ways, 0, dt_any(), dt_replicate());
}
