/* rules_create.c: shapes and dtypes of creation ops.
 *
 * Params: arange f[0] start f[1] step, i[0] start i[1] step, i[2] first element; linspace f[0]
 * start f[1] end i[0] steps i[1] first element; eye i[0] first row i[1] first column; random i[0]
 * seed i[1] first counter, f[0] low|mean f[1] high|std, i[2] low i[3] high, i[4] and those after
 * it: how elements lie in the whole (lie_in_whole); tri i[0] diagonal, i[1] 1 for the upper part.
 */
#include <math.h>
#include <string.h>

#include "runtime/assert.h"
#include "runtime/infer.h"
#include "runtime/rules.h"
#include "runtime/shard.h"

/* Whether this device has to leave a Partial value, which counts once, to another one: what it has
 * instead. */
static bool leaves_to_others(const dt_op_call *c, dt_dtype dtype, dt_scalar *neutral) {
    const dt_spot *spot = c->spot;
    for (int m = 0; spot != NULL && m < spot->ask->mesh->rank; m++) {
        int kind = spot->chosen[m * (spot->ask->nin + spot->ask->nout) + spot->ask->nin].kind;
        if (kind != DT_PARTIAL_SUM && kind != DT_PARTIAL_PRODUCT) continue;
        if (dt_mesh_coordinate(spot->ask->mesh, spot->index, m) == 0) continue;
        bool product = kind == DT_PARTIAL_PRODUCT;
        *neutral = (dt_scalar){.category = DT_CAT_INT, .i = product};
        if (dt_dtype_is_float(dtype))
            *neutral = (dt_scalar){.category = DT_CAT_FLOAT, .f = product ? 1.0 : -0.0};
        return true;
    }
    return false;
}

static dt_status make_full(dt_op_call *c, dt_scalar value, dt_dtype dtype, const dt_dims *shape) {
    dt_op_call call;
    dt_op_call_init(&call, DT_OP_full__new);
    call.nargs = 3;
    call.args[0] = (dt_arg){.kind = DT_ARG_DIMS, .dims = shape};
    call.args[1] = (dt_arg){.kind = DT_ARG_SCALAR, .s = value};
    call.args[2] = (dt_arg){.kind = DT_ARG_DTYPE, .dtype = dtype};
    DT_TRY(dt_rule_invoke(&call));
    c->outs[0] = call.outs[0];
    c->nout = 1;
    c->done = true;
    return DT_OK;
}

/* outs[0] of that shape, or this device's part of it, and where in the whole that begins. */
static dt_status creation(dt_op_call *c, dt_dtype dtype, const dt_dims *shape, dt_box *box) {
    memset(box->start, 0, sizeof box->start);
    dt_dims own = *shape;
    if (c->spot != NULL) {
        dt_spot_out(c->spot, 0, box);
        own = dt_spot_out_dims(c->spot, 0);
        dt_scalar neutral;
        if (leaves_to_others(c, dtype, &neutral)) return make_full(c, neutral, dtype, &own);
    }
    DT_TRY(dt_rule_call(c, 1, 0, NULL));
    c->call.compute = (uint8_t)dtype;
    return dt_rule_out(c, dtype, &own);
}

/* The size that the call asks for, or this device's part of it. */
static dt_dims size_of(const dt_op_call *c) {
    return c->spot != NULL ? dt_spot_out_dims(c->spot, 0) : *c->args[0].dims;
}

/* No kernel, no values: the memory is taken by whoever touches it first. */
dt_status dt_infer_empty(dt_op_call *c) {
    dt_dims shape = size_of(c);
    DT_TRY(dt_rule_out(c, c->args[1].dtype, &shape));
    if (!dt_rule_metadata_only) DT_TRY(dt_storage_materialize(c->outs[0]->storage));
    c->done = true;
    return DT_OK;
}

dt_status dt_infer_full(dt_op_call *c) {
    DT_TRY(dt_rule_call(c, 1, 1, NULL));
    dt_dtype dtype = c->args[2].dtype;
    c->call.compute = (uint8_t)dtype;
    c->call.immediates[0] = c->args[1].s;
    dt_dims shape = size_of(c);
    return dt_rule_out(c, dtype, &shape);
}

dt_status dt_infer_arange(dt_op_call *c) {
    dt_scalar start = c->args[0].s, end = c->args[1].s, step = c->args[2].s;
    dt_dtype dtype = c->args[3].dtype;
    double fstart = dt_scalar_f64(start), fend = dt_scalar_f64(end), fstep = dt_scalar_f64(step);
    bool integers = start.category != DT_CAT_FLOAT && end.category != DT_CAT_FLOAT &&
                    step.category != DT_CAT_FLOAT;
    if (fstep == 0) return dt_fail(DT_E_RUNTIME, "step must be nonzero");
    if (!isfinite(fstart) || !isfinite(fend))
        return dt_fail(DT_E_RUNTIME, "unsupported range: %g -> %g", fstart, fend);
    if ((fstep > 0 && fend < fstart) || (fstep < 0 && fend > fstart))
        return dt_fail(DT_E_RUNTIME, "upper bound and lower bound inconsistent with step sign");
    double size;
    if (integers) {
        __int128 span = (__int128)end.i - start.i, s = step.i;
        __int128 count = (span + s + (s > 0 ? -1 : 1)) / s;
        size = (double)count;
    } else {
        size = ceil((fend - fstart) / fstep);
    }
    if (size > 9.0e15) return dt_fail(DT_E_RUNTIME, "invalid size, possible overflow?");
    dt_dims shape = {.rank = 1, .v = {(int64_t)size}};
    dt_box box;
    DT_TRY(creation(c, dtype, &shape, &box));
    c->call.params.i[2] = box.start[0];
    c->call.params.f[0] = fstart;
    c->call.params.f[1] = fstep;
    c->call.params.i[0] = dt_scalar_i64(start);
    c->call.params.i[1] = dt_scalar_i64(step);
    return DT_OK;
}

dt_status dt_infer_linspace(dt_op_call *c) {
    int64_t steps = c->args[2].i;
    if (steps < 0) return dt_fail(DT_E_RUNTIME, "number of steps must be non-negative");
    dt_dims shape = {.rank = 1, .v = {steps}};
    dt_box box;
    DT_TRY(creation(c, c->args[3].dtype, &shape, &box));
    c->call.params.f[0] = dt_scalar_f64(c->args[0].s);
    c->call.params.f[1] = dt_scalar_f64(c->args[1].s);
    c->call.params.i[0] = steps;
    c->call.params.i[1] = box.start[0];
    return DT_OK;
}

dt_status dt_infer_eye(dt_op_call *c) {
    int64_t n = c->args[0].i, m = c->args[1].i;
    if (n < 0)
        return dt_fail(DT_E_RUNTIME, "n must be greater or equal to 0, got %lld", (long long)n);
    if (m < 0)
        return dt_fail(DT_E_RUNTIME, "m must be greater or equal to 0, got %lld", (long long)m);
    dt_dims shape = {.rank = 2, .v = {n, m}};
    dt_box box;
    DT_TRY(creation(c, c->args[2].dtype, &shape, &box));
    c->call.params.i[0] = box.start[0];
    c->call.params.i[1] = box.start[1];
    return DT_OK;
}

/* [low, high) must fit the dtype. */
static dt_status check_integer_range(dt_dtype dtype, int64_t low, int64_t high) {
    static const int64_t least[] = {
        [DT_BOOL] = 0, [DT_U8] = 0, [DT_I8] = INT8_MIN, [DT_I16] = INT16_MIN, [DT_I32] = INT32_MIN};
    static const int64_t greatest[] = {[DT_BOOL] = 1,
                                       [DT_U8] = UINT8_MAX,
                                       [DT_I8] = INT8_MAX,
                                       [DT_I16] = INT16_MAX,
                                       [DT_I32] = INT32_MAX};
    if (dtype > DT_I32) return DT_OK;
    if (low < least[dtype] || low > greatest[dtype])
        return dt_fail(DT_E_RUNTIME, "from is out of bounds for %s", dt_rule_c_name(dtype));
    if (high - 1 > greatest[dtype])
        return dt_fail(DT_E_RUNTIME, "to - 1 is out of bounds for %s", dt_rule_c_name(dtype));
    return DT_OK;
}

/* How this part lies in the whole, as levels from the innermost one on: i[4] says how many, and
 * level k has i[5 + 2k] elements, which lie i[6 + 2k] apart there. Neighbouring dims that are not
 * cut are one level; a part in one piece has none. Returns where the part begins. */
static int64_t lie_in_whole(dt_params *params, const dt_tensor *whole, const dt_box *box) {
    int64_t first = 0, stride = 1, *level = &params->i[5];
    int levels = 0;
    for (int d = whole->rank - 1; d >= 0; d--) {
        first += box->start[d] * stride;
        if (levels > 0 && level[2 * levels - 2] * level[2 * levels - 1] == stride) {
            level[2 * levels - 2] *= box->size[d];
        } else if (box->size[d] != 1) {
            DT_ASSERT(levels <= DT_MESH_RANK_MAX);
            level[2 * levels] = box->size[d];
            level[2 * levels + 1] = stride;
            levels++;
        }
        stride *= whole->shape[d];
    }
    params->i[4] = levels > 1 || (levels == 1 && level[1] != 1) ? levels : 0;
    return first;
}

/* The whole takes its counters at the call; a part has those of its elements. */
static void set_counters(dt_op_call *c, const dt_box *box) {
    dt_params *params = &c->call.params;
    if (c->spot == NULL) {
        params->i[0] = (int64_t)dt_default_generator.seed;
        params->i[1] = (int64_t)dt_default_generator.offset;
        dt_default_generator.offset += (uint64_t)c->outs[0]->numel;
        return;
    }
    const dt_op_call *whole = c->spot->ask->call;
    params->i[0] = whole->call.params.i[0];
    params->i[1] = whole->call.params.i[1];
    if (!c->done && c->outs[0]->numel > 0)
        params->i[1] += lie_in_whole(params, whole->outs[0], box);
}

/* uniform, normal and integer draws: one counter for each element, assigned at the call. */
dt_status dt_infer_random(dt_op_call *c) {
    dt_scalar a = c->args[1].s, b = c->args[2].s;
    dt_dtype dtype = c->args[3].dtype;
    bool ints = c->op->id == DT_OP_randint__new;
    if (!ints && !dt_dtype_is_float(dtype))
        return dt_fail(DT_E_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'",
                       c->op->id == DT_OP_rand__new ? "check_uniform_bounds" : "normal_kernel_cpu",
                       dt_dtype_table[dtype].long_name);
    if (ints && dt_scalar_i64(a) >= dt_scalar_i64(b))
        return dt_fail(DT_E_RUNTIME,
                       "random_ expects 'from' to be less than 'to', but got from=%lld >= to=%lld",
                       (long long)dt_scalar_i64(a), (long long)dt_scalar_i64(b));
    if (ints) DT_TRY(check_integer_range(dtype, dt_scalar_i64(a), dt_scalar_i64(b)));
    if (c->op->id == DT_OP_rand__new && dt_scalar_f64(a) > dt_scalar_f64(b))
        return dt_fail(DT_E_RUNTIME,
                       "uniform_ expects to return a [from, to) range, but found from=%g > to=%g",
                       dt_scalar_f64(a), dt_scalar_f64(b));
    if (c->op->id == DT_OP_randn__new && dt_scalar_f64(b) < 0)
        return dt_fail(DT_E_RUNTIME, "normal expects std >= 0.0, but found std %g",
                       dt_scalar_f64(b));
    dt_box box;
    DT_TRY(creation(c, dtype, c->args[0].dims, &box));
    set_counters(c, &box);
    c->call.params.i[2] = dt_scalar_i64(a);
    c->call.params.i[3] = dt_scalar_i64(b);
    c->call.params.f[0] = dt_scalar_f64(a);
    c->call.params.f[1] = dt_scalar_f64(b);
    return DT_OK;
}

dt_status dt_infer_tri(dt_op_call *c) {
    dt_tensor *t = c->args[0].t;
    if (t->rank < 2)
        return dt_fail(DT_E_RUNTIME, "%s: input tensor must have at least 2 dimensions",
                       c->op->full_name);
    dt_dims shape = dt_tensor_dims(t);
    DT_TRY(dt_rule_call(c, 1, 1, &t));
    c->call.compute = t->dtype;
    c->call.params.i[0] = c->args[1].i;
    if (c->spot != NULL) { /* the diagonal of the whole, seen from this part's corner */
        dt_box box;
        dt_spot_out(c->spot, 0, &box);
        c->call.params.i[0] += box.start[t->rank - 2] - box.start[t->rank - 1];
    }
    c->call.params.i[1] = c->op->id == DT_OP_triu;
    return dt_rule_out(c, (dt_dtype)t->dtype, &shape);
}
