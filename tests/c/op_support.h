/* op_support.h: what the tests of rules and kernels share: tensors of any layout filled with given
 * values, op calls built argument by argument, and kernels run in any number of parts.
 *
 * Values go in and out as long double by logical (row-major) index, so that a reference needs
 * neither strides nor dtypes.
 */
#ifndef DT_TESTS_OP_SUPPORT_H
#define DT_TESTS_OP_SUPPORT_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cpu/cpuid.h"
#include "kernels/cpu/table.h"
#include "runtime/device.h"
#include "runtime/op.h"
#include "runtime/rules.h"
#include "tests/c/test_support.h"

#define OP_UNUSED __attribute__((unused))
#define SHAPE(...)                                                                                 \
    ((dt_dims){.rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                  \
               .v = {__VA_ARGS__}})
#define SCALAR_SHAPE ((dt_dims){.rank = 0})

/* ck_assert tells libcheck of each success, which is too slow for every element of a tensor. */
#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) ck_abort_msg(__VA_ARGS__);                                               \
    } while (0)

/* ---- tensors -------------------------------------------------------------------------------- */

static OP_UNUSED int64_t element_offset(const dt_tensor *t, int64_t i) {
    int64_t offset = 0;
    for (int d = t->rank - 1; d >= 0; d--) {
        offset += i % t->shape[d] * t->strides[d];
        i /= t->shape[d];
    }
    return offset * (int64_t)dt_dtype_size((dt_dtype)t->dtype);
}

static OP_UNUSED void *element_at(const dt_tensor *t, int64_t i) {
    return (char *)dt_tensor_data(t) + element_offset(t, i);
}

static OP_UNUSED long double value_at(const dt_tensor *t, int64_t i) {
    dt_scalar s = dt_scalar_load((dt_dtype)t->dtype, element_at(t, i));
    return s.category == DT_CAT_FLOAT ? (long double)s.f : (long double)s.i;
}

static OP_UNUSED void set_value(const dt_tensor *t, int64_t i, double value) {
    dt_scalar s = {.category = DT_CAT_FLOAT, .f = value};
    if (!dt_dtype_is_float((dt_dtype)t->dtype))
        s = (dt_scalar){.category = DT_CAT_INT, .i = (int64_t)value};
    dt_scalar_store(s, (dt_dtype)t->dtype, element_at(t, i));
}

static OP_UNUSED dt_tensor *tensor_new(dt_dtype dtype, dt_dims shape) {
    dt_tensor *t = NULL;
    ck_assert_ok(dt_tensor_new(dtype, shape.rank, shape.v, &t));
    ck_assert_ok(dt_storage_materialize(t->storage));
    return t;
}

static OP_UNUSED dt_tensor *tensor_of(dt_dtype dtype, dt_dims shape, const double *values) {
    dt_tensor *t = tensor_new(dtype, shape);
    for (int64_t i = 0; i < t->numel; i++)
        /* The analyser does not know that callers pass numel values.
         * NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage) */
        set_value(t, i, values[i]);
    return t;
}

#define VECTOR(dtype, ...)                                                                         \
    tensor_of(                                                                                     \
        dtype,                                                                                     \
        (dt_dims){.rank = 1, .v = {(int64_t)(sizeof((double[]){__VA_ARGS__}) / sizeof(double))}},  \
        (double[]){__VA_ARGS__})

static OP_UNUSED dt_tensor *view_of(dt_tensor *base, dt_dims shape, const int64_t *strides,
                                    int64_t offset) {
    dt_tensor *t = NULL;
    ck_assert_ok(dt_tensor_new_view(base, (dt_dtype)base->dtype, shape.rank, shape.v, strides,
                                    base->offset + offset, &t));
    return t;
}

typedef enum layout { CONTIGUOUS, TRANSPOSED, SLICED, LAYOUTS } layout;

/* A tensor of `shape`, its elements uninitialised, laid out as told. Owned. */
static OP_UNUSED dt_tensor *tensor_laid_out(dt_dtype dtype, dt_dims shape, layout how) {
    if (how == CONTIGUOUS || shape.rank == 0) return tensor_new(dtype, shape);
    dt_dims whole = shape;
    int64_t strides[DT_RANK_MAX], offset = 0, step = 1;
    if (how == TRANSPOSED) {
        for (int d = 0; d < shape.rank; d++) {
            strides[d] = step;
            step *= shape.v[d] > 0 ? shape.v[d] : 1;
        }
    } else { /* every second element of each dim, from the second on */
        for (int d = 0; d < shape.rank; d++) whole.v[d] = shape.v[d] * 2 + 1;
        for (int d = shape.rank - 1; d >= 0; d--) {
            strides[d] = step * 2;
            offset += step;
            step *= whole.v[d];
        }
    }
    dt_tensor *base = tensor_new(dtype, whole);
    memset(dt_tensor_data(base), 0x5a, base->storage->bytes);
    bool empty = false;
    for (int d = 0; d < shape.rank; d++) empty |= shape.v[d] == 0;
    dt_tensor *t = view_of(base, shape, strides, empty ? 0 : offset);
    dt_tensor_release(base);
    return t;
}

/* Values of a float are in quarters of [-8, 8); of an integer what fits all of them. */
static OP_UNUSED void fill_random(const dt_tensor *t, uint64_t seed) {
    for (int64_t i = 0; i < t->numel; i++) {
        int64_t v = test_random_in(&seed, -32, 31);
        if (t->dtype == DT_BOOL)
            set_value(t, i, (double)(v & 1));
        else if (t->dtype == DT_U8)
            set_value(t, i, (double)(v + 32));
        else if (!dt_dtype_is_float((dt_dtype)t->dtype))
            set_value(t, i, (double)v);
        else
            set_value(t, i, (double)v / 4);
    }
}

static OP_UNUSED void assert_same_bits(const dt_tensor *a, const dt_tensor *b, const char *what) {
    size_t size = dt_dtype_size((dt_dtype)a->dtype);
    ck_assert_int_eq(a->dtype, b->dtype);
    ck_assert_int_eq(a->numel, b->numel);
    for (int64_t i = 0; i < a->numel; i++)
        EXPECT(memcmp(element_at(a, i), element_at(b, i), size) == 0,
               "%s: element %lld is %.17Lg instead of %.17Lg", what, (long long)i, value_at(a, i),
               value_at(b, i));
}

/* |got - want| <= tolerance * max(1, |want|); NaN equals NaN, an infinity itself. */
static OP_UNUSED void assert_close(long double got, long double want, double tolerance,
                                   const char *what) {
    if (isnan(want)) {
        EXPECT(isnan(got), "%s: %Lg instead of NaN", what, got);
    } else if (isinf(want)) {
        EXPECT(got == want, "%s: %Lg instead of %Lg", what, got, want);
    } else {
        long double scale = fabsl(want) > 1 ? fabsl(want) : 1;
        EXPECT(fabsl(got - want) <= (long double)tolerance * scale, "%s: %.12Lg instead of %.12Lg",
               what, got, want);
    }
}

static OP_UNUSED double tolerance_of(dt_dtype dtype) {
    switch (dtype) {
    case DT_F16:
        return 1e-3;
    case DT_BF16:
        return 8e-3;
    case DT_F32:
        return 1e-6;
    case DT_F64:
        return 1e-14;
    default:
        return 0;
    }
}

/* ---- calls
 * ------------------------------------------------------------------------------------------ */

static OP_UNUSED dt_arg arg_tensor(dt_tensor *t) { return (dt_arg){.kind = DT_ARG_TENSOR, .t = t}; }
static OP_UNUSED dt_arg arg_int(int64_t i) { return (dt_arg){.kind = DT_ARG_INT, .i = i}; }
static OP_UNUSED dt_arg arg_bool(bool b) { return (dt_arg){.kind = DT_ARG_BOOL, .i = b}; }
static OP_UNUSED dt_arg arg_string(const char *s) { return (dt_arg){.kind = DT_ARG_STR, .str = s}; }
static OP_UNUSED dt_arg arg_dtype(dt_dtype d) { return (dt_arg){.kind = DT_ARG_DTYPE, .dtype = d}; }
static OP_UNUSED dt_arg arg_none(void) { return (dt_arg){.kind = DT_ARG_NONE}; }
static OP_UNUSED dt_arg arg_float(double f) {
    return (dt_arg){.kind = DT_ARG_SCALAR, .s = {.category = DT_CAT_FLOAT, .f = f}};
}
static OP_UNUSED dt_arg arg_integer(int64_t i) {
    return (dt_arg){.kind = DT_ARG_SCALAR, .s = {.category = DT_CAT_INT, .i = i}};
}
static OP_UNUSED dt_arg arg_truth(bool b) {
    return (dt_arg){.kind = DT_ARG_SCALAR, .s = {.category = DT_CAT_BOOL, .i = b}};
}
static OP_UNUSED dt_arg arg_list(dt_tensor *const *v, int n) {
    return (dt_arg){.kind = DT_ARG_TENSORS, .list = {v, n}};
}
#define arg_dims(...) ((dt_arg){.kind = DT_ARG_DIMS, .dims = &SHAPE(__VA_ARGS__)})
#define arg_no_dims() ((dt_arg){.kind = DT_ARG_DIMS, .dims = &SCALAR_SHAPE})

static OP_UNUSED void op_prepare(dt_op_call *c, dt_op_id id, int nargs, const dt_arg *args) {
    dt_op_call_init(c, id);
    ck_assert_int_le(nargs, DT_ARGS_MAX);
    c->nargs = nargs;
    memcpy(c->args, args, sizeof(dt_arg) * (size_t)nargs);
}

#define ARGS(...)                                                                                  \
    (int)(sizeof((dt_arg[]){__VA_ARGS__}) / sizeof(dt_arg)), (const dt_arg[]) { __VA_ARGS__ }

/* Runs a call as `parts` parts: what the pool does, in one thread. */
static OP_UNUSED dt_status call_run_parts(const dt_call *call, int parts) {
    const dt_kernel *kernel = call->kernel;
    DT_TRY(dt_call_materialize(call));
    dt_part part = {.index = 0, .count = parts};
    if (kernel->scratch_bytes) part.scratch_bytes = kernel->scratch_bytes(call, parts);
    if (part.scratch_bytes > 0) {
        part.scratch = dt_bytes_alloc(part.scratch_bytes);
        memset(part.scratch, 0x5a, part.scratch_bytes);
    }
    dt_status status = DT_OK;
    for (part.index = parts - 1; part.index >= 0 && status == DT_OK; part.index--)
        status = kernel->run(call, &part);
    part.index = 0;
    if (status == DT_OK && kernel->finish) status = kernel->finish(call, &part);
    if (part.scratch) dt_bytes_free(part.scratch, part.scratch_bytes);
    return status;
}

/* What dispatch does between a rule and the kernel. */
static OP_UNUSED dt_status op_run_parts(dt_op_call *c, int parts) {
    dt_status status = c->op->rule(c);
    if (status == DT_OK && !c->done) {
        c->call.kernel = dt_cpu_device.kernels[c->call.op];
        for (int k = 0; k < c->call.nout; k++)
            if (!c->call.operands[k]) c->call.operands[k] = dt_tensor_retain(c->outs[k]);
        status = call_run_parts(&c->call, parts);
    }
    for (int k = 0; k < c->nout && status == DT_OK; k++)
        if (dt_tensor_is_deferred(c->outs[k])) dt_tensor_settle(c->outs[k]);
    if (status != DT_OK)
        dt_op_call_clear(c);
    else
        dt_call_fini(&c->call);
    return status;
}

static OP_UNUSED dt_status op_run_one(dt_op_call *c) { return op_run_parts(c, 1); }

/* The output number `k` of an op; the others are released. */
static OP_UNUSED dt_tensor *op_output(int k, int parts, dt_op_id id, int nargs,
                                      const dt_arg *args) {
    dt_op_call c;
    op_prepare(&c, id, nargs, args);
    dt_rule_invoke = op_run_one;
    ck_assert_ok(op_run_parts(&c, parts));
    for (int o = 0; o < c.nout; o++)
        if (o != k) dt_tensor_release(c.outs[o]);
    return c.outs[k];
}
#define RUN(id, ...) op_output(0, 1, id, ARGS(__VA_ARGS__))
#define RUN_PARTS(parts, id, ...) op_output(0, parts, id, ARGS(__VA_ARGS__))

/* The status of an op that should fail, in its rule or in its kernel. */
static OP_UNUSED dt_status op_status(dt_op_id id, int nargs, const dt_arg *args) {
    dt_op_call c;
    op_prepare(&c, id, nargs, args);
    dt_rule_invoke = op_run_one;
    dt_status status = op_run_parts(&c, 1);
    if (status == DT_OK)
        for (int o = 0; o < c.nout; o++) dt_tensor_release(c.outs[o]);
    return status;
}
#define STATUS(id, ...) op_status(id, ARGS(__VA_ARGS__))

/* ---- instruction sets
 * ------------------------------------------------------------------------------- */

static OP_UNUSED int levels_count(void) { return (int)dt_cpu_best() + 1; }
static OP_UNUSED void select_level(int level) {
    ck_assert_ok(dt_cpu_select(dt_cpu_level_name((dt_cpu_level)level)));
}

#endif
