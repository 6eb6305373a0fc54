/* shard_matmul.c: products on a mesh.
 *
 *   out [batch..., m, n] = a [batch..., m, k] @ b [batch..., k, n] (+ bias)
 *
 * Dims of the result go through, in whatever operands have them; a cut k leaves sums of products to
 * be summed: Partial(sum).  A product is linear in each operand while the other one is whole.  A
 * bias is an operand of the last sum: it must be Partial where the products are.
 */
#include <math.h>

#include "runtime/infer.h"
#include "runtime/shard.h"

static dt_placement sum(void) { return dt_partial(DT_PARTIAL_SUM); }

/* The inputs of a product. */
typedef struct factors {
    int a, b, bias; /* bias -1: there is none */
    int m, k;       /* dims of a; m -1: a is a vector */
    int bk, n;      /* dims of b; n -1: b is a vector */
} factors;

static const dt_tensor *tensor_at(const dt_ask *ask, int input) { return ask->in[input].t; }

static factors factors_of(const dt_ask *ask, int a, int b, int bias) {
    int ra = tensor_at(ask, a)->rank, rb = tensor_at(ask, b)->rank;
    return (factors){.a = a,
                     .b = b,
                     .bias = bias,
                     .m = ra > 1 ? ra - 2 : -1,
                     .k = ra - 1,
                     .bk = rb > 1 ? rb - 2 : 0,
                     .n = rb > 1 ? rb - 1 : -1};
}

/* ---- dims that go through -------------------------------------------------------------------- */

/* Batch dims are counted from the matrix on. */
static void cut_batch(const dt_ask *ask, dt_placement *way, int input, int dim, int batch) {
    const dt_tensor *t = tensor_at(ask, input);
    int own = dim - (batch - (t->rank - 2));
    if (t->rank > 2 && own >= 0 && t->shape[own] == ask->out[0]->shape[dim])
        way[input] = dt_shard(own);
}

/* A new way that cuts the result, and the bias with it. */
static dt_placement *way_cutting(const dt_ask *ask, dt_ways *ways, const factors *f, int dim) {
    dt_placement *way = dt_way(ways);
    if (f->bias >= 0) dt_way_cut(ask, way, f->bias, dim);
    *dt_way_out(ask, way, 0) = dt_shard(dim);
    return way;
}

static void ways_through(const dt_ask *ask, dt_ways *ways, const factors *f) {
    int rank = ask->out[0]->rank, batch = rank - (f->m >= 0) - (f->n >= 0);
    for (int d = 0; d < batch; d++) {
        dt_placement *way = way_cutting(ask, ways, f, d);
        cut_batch(ask, way, f->a, d, batch);
        cut_batch(ask, way, f->b, d, batch);
    }
    if (f->m >= 0) way_cutting(ask, ways, f, batch)[f->a] = dt_shard(f->m);
    if (f->n >= 0) way_cutting(ask, ways, f, rank - 1)[f->b] = dt_shard(f->n);
}

/* ---- sums ------------------------------------------------------------------------------------ */

static void way_of_sums(const dt_ask *ask, dt_ways *ways, const factors *f, dt_placement a,
                        dt_placement b, dt_placement out) {
    dt_placement *way = dt_way(ways);
    way[f->a] = a;
    way[f->b] = b;
    if (f->bias >= 0) way[f->bias] = out;
    *dt_way_out(ask, way, 0) = out;
}

static void ways_of_sums(const dt_ask *ask, dt_ways *ways, const factors *f) {
    const dt_placement whole = dt_replicate(), avg = dt_partial(DT_PARTIAL_AVG);
    way_of_sums(ask, ways, f, dt_shard(f->k), dt_shard(f->bk), sum());
    way_of_sums(ask, ways, f, sum(), whole, sum());
    way_of_sums(ask, ways, f, whole, sum(), sum());
    way_of_sums(ask, ways, f, avg, whole, avg);
    way_of_sums(ask, ways, f, whole, avg, avg);
}

/* ---- the ops --------------------------------------------------------------------------------- */

void dt_shard_matmul(const dt_ask *ask, dt_ways *ways) {
    factors f = factors_of(ask, 0, 1, -1);
    ways_through(ask, ways, &f);
    ways_of_sums(ask, ways, &f);
}

/* beta * bias + alpha * (a @ b): inf times the nothing that stands for a bias elsewhere is NaN. */
void dt_shard_addmm(const dt_ask *ask, dt_ways *ways) {
    factors f = factors_of(ask, 1, 2, 0);
    ways_through(ask, ways, &f);
    const dt_arg *args = ask->call->args;
    if (isfinite(dt_scalar_f64(args[3].s)) && isfinite(dt_scalar_f64(args[4].s)))
        ways_of_sums(ask, ways, &f);
}

/* x [..., k], weight [n, k] or [k], bias [n]: the dims of x are rows, none of them is a batch. */
void dt_shard_linear(const dt_ask *ask, dt_ways *ways) {
    const dt_tensor *x = tensor_at(ask, 0), *w = tensor_at(ask, 1);
    factors f = {.a = 0,
                 .b = 1,
                 .bias = dt_ask_find(ask, 2),
                 .k = x->rank - 1,
                 .bk = w->rank - 1,
                 .n = w->rank > 1 ? 0 : -1};
    for (int d = 0; d + 1 < x->rank; d++) {
        dt_placement *way = dt_way(ways);
        way[0] = dt_shard(d);
        *dt_way_out(ask, way, 0) = dt_shard(d);
    }
    if (f.n >= 0) way_cutting(ask, ways, &f, ask->out[0]->rank - 1)[1] = dt_shard(0);
    ways_of_sums(ask, ways, &f);
}
