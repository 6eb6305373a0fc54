/* ew_support.h: building tensors and running one kernel, for the tests of element-wise kernels. */
#ifndef DT_TESTS_EW_SUPPORT_H
#define DT_TESTS_EW_SUPPORT_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpuid.h"
#include "runtime/elementwise.h"
#include "runtime/kernel.h"
#include "runtime/tensor.h"
#include "tests/c/test_support.h"

static const char *const ew_levels[] = {"base", "avx2", "avx512"};

static inline uint64_t ew_random(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A contiguous tensor with its memory taken and zeroed. */
static inline dt_tensor *ew_tensor(dt_dtype dtype, int rank, const int64_t *shape) {
    dt_tensor *t = NULL;
    ck_assert_int_eq(dt_tensor_new(dtype, rank, shape, &t), DT_OK);
    ck_assert_int_eq(dt_storage_materialize(t->storage), DT_OK);
    if (t->numel > 0) memset(dt_tensor_data(t), 0, (size_t)t->numel * dt_dtype_size(dtype));
    return t;
}

static inline dt_tensor *ew_vector(dt_dtype dtype, int64_t n) { return ew_tensor(dtype, 1, &n); }

static inline dt_tensor *ew_view(dt_tensor *base, int rank, const int64_t *shape,
                                 const int64_t *strides, int64_t offset) {
    dt_tensor *t = NULL;
    ck_assert_int_eq(
        dt_tensor_new_view(base, (dt_dtype)base->dtype, rank, shape, strides, offset, &t), DT_OK);
    return t;
}

/* Element `index` in row-major order of the shape, whatever the strides. */
static inline char *ew_at(const dt_tensor *t, int64_t index) {
    int64_t at = 0;
    for (int d = t->rank - 1; d >= 0; d--) {
        at += index % t->shape[d] * t->strides[d];
        index /= t->shape[d];
    }
    return (char *)dt_tensor_data(t) + at * (int64_t)dt_dtype_size((dt_dtype)t->dtype);
}

static inline double ew_get(const dt_tensor *t, int64_t index) {
    return dt_scalar_f64(dt_scalar_load((dt_dtype)t->dtype, ew_at(t, index)));
}
static inline int64_t ew_get_int(const dt_tensor *t, int64_t index) {
    return dt_scalar_i64(dt_scalar_load((dt_dtype)t->dtype, ew_at(t, index)));
}
static inline void ew_set(dt_tensor *t, int64_t index, double value) {
    dt_scalar_store((dt_scalar){.category = DT_CAT_FLOAT, .f = value}, (dt_dtype)t->dtype,
                    ew_at(t, index));
}
static inline void ew_set_int(dt_tensor *t, int64_t index, int64_t value) {
    dt_scalar_store((dt_scalar){.category = DT_CAT_INT, .i = value}, (dt_dtype)t->dtype,
                    ew_at(t, index));
}

static inline void ew_fill_random(dt_tensor *t, uint64_t seed) {
    static const double special[] = {0.0, -0.0, 1.0, -1.0, 0.5, 2.5, INFINITY, -INFINITY, NAN};
    for (int64_t i = 0; i < t->numel; i++) {
        uint64_t r = ew_random(&seed);
        if (dt_dtype_is_float((dt_dtype)t->dtype)) {
            double x = ((double)(r >> 11) * 0x1p-53 - 0.5) * 12;
            ew_set(t, i, r % 16 == 0 ? special[(r >> 8) % 9] : x);
        } else {
            ew_set_int(t, i, r % 4 == 0 ? (int64_t)r : (int64_t)((r >> 8) % 21) - 10);
        }
    }
}

typedef struct ew_case {
    dt_call call;
    int parts;
} ew_case;

/* Operands are borrowed by the caller's variables and retained by the call. */
static inline ew_case ew_case_new(const dt_kernel *kernel, dt_dtype compute, dt_tensor *out,
                                  int nin, dt_tensor *const *in) {
    ew_case c = {.parts = 1};
    ck_assert_int_eq(dt_call_init(&c.call, 1, nin), DT_OK);
    c.call.kernel = kernel;
    c.call.compute = (uint8_t)compute;
    c.call.operands[0] = dt_tensor_retain(out);
    for (int k = 0; k < nin; k++)
        /* The analyser does not know that callers pass nin pointers.
         * NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult) */
        if (in[k] != NULL) c.call.operands[1 + k] = dt_tensor_retain(in[k]);
    return c;
}

static inline dt_status ew_case_run(ew_case *c) {
    if (c->call.operands == NULL || c->call.nout == 1) c->call.operands = c->call.operands_inline;
    dt_status status = DT_OK;
    for (int p = 0; p < c->parts && status == DT_OK; p++) {
        dt_part part = {.index = p, .count = c->parts};
        status = c->call.kernel->run(&c->call, &part);
    }
    return status;
}

static inline dt_status ew_run(const dt_kernel *kernel, dt_dtype compute, int parts, dt_tensor *out,
                               int nin, dt_tensor *const *in) {
    ew_case c = ew_case_new(kernel, compute, out, nin, in);
    c.parts = parts;
    dt_status status = ew_case_run(&c);
    dt_call_fini(&c.call);
    return status;
}

static inline int ew_level_count(void) { return (int)dt_cpu_best() + 1; }

#endif
