/* rules_create.c: shapes and dtypes of creation ops.
 *
 * Params: arange f[0] start f[1] step, i[0] start i[1] step; linspace f[0] start f[1] end i[0]
 * steps; eye none; random i[0] seed i[1] first counter, f[0] low|mean f[1] high|std, i[2] low i[3]
 * high; tri i[0] diagonal, i[1] 1 for the upper part.
 */
#include <math.h>

#include "runtime/infer.h"
#include "runtime/rules.h"

static dt_status creation(dt_op_call *c, dt_dtype dtype, const dt_dims *shape) {
    DT_TRY(dt_rule_call(c, 1, 0, NULL));
    c->call.compute = (uint8_t)dtype;
    return dt_rule_out(c, dtype, shape);
}

/* No kernel, no values: the memory is taken by whoever touches it first. */
dt_status dt_infer_empty(dt_op_call *c) {
    DT_TRY(dt_rule_out(c, c->args[1].dtype, c->args[0].dims));
    DT_TRY(dt_storage_materialize(c->outs[0]->storage));
    c->done = true;
    return DT_OK;
}

dt_status dt_infer_full(dt_op_call *c) {
    DT_TRY(dt_rule_call(c, 1, 1, NULL));
    dt_dtype dtype = c->args[2].dtype;
    c->call.compute = (uint8_t)dtype;
    c->call.immediates[0] = c->args[1].s;
    return dt_rule_out(c, dtype, c->args[0].dims);
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
    DT_TRY(creation(c, dtype, &shape));
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
    DT_TRY(creation(c, c->args[3].dtype, &shape));
    c->call.params.f[0] = dt_scalar_f64(c->args[0].s);
    c->call.params.f[1] = dt_scalar_f64(c->args[1].s);
    c->call.params.i[0] = steps;
    return DT_OK;
}

dt_status dt_infer_eye(dt_op_call *c) {
    int64_t n = c->args[0].i, m = c->args[1].i;
    if (n < 0)
        return dt_fail(DT_E_RUNTIME, "n must be greater or equal to 0, got %lld", (long long)n);
    if (m < 0)
        return dt_fail(DT_E_RUNTIME, "m must be greater or equal to 0, got %lld", (long long)m);
    dt_dims shape = {.rank = 2, .v = {n, m}};
    return creation(c, c->args[2].dtype, &shape);
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
    DT_TRY(creation(c, dtype, c->args[0].dims));
    c->call.params.i[0] = (int64_t)dt_default_generator.seed;
    c->call.params.i[1] = (int64_t)dt_default_generator.offset;
    c->call.params.i[2] = dt_scalar_i64(a);
    c->call.params.i[3] = dt_scalar_i64(b);
    c->call.params.f[0] = dt_scalar_f64(a);
    c->call.params.f[1] = dt_scalar_f64(b);
    dt_default_generator.offset += (uint64_t)c->outs[0]->numel;
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
    c->call.params.i[1] = c->op->id == DT_OP_triu;
    return dt_rule_out(c, (dt_dtype)t->dtype, &shape);
}
