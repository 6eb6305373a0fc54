/* kernel_call.h: for tests of kernels: tensors with given values, and calls run in any number of
 * parts. */
#ifndef DT_TESTS_KERNEL_CALL_H
#define DT_TESTS_KERNEL_CALL_H

#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpuid.h"
#include "runtime/alloc.h"
#include "runtime/kernel.h"

#define KC_OK(expr) ck_assert_msg((expr) == DT_OK, "%s: %s", #expr, dt_error_text())

static _Thread_local uint64_t kc_random_state = 0x9e3779b97f4a7c15u;
static inline uint64_t kc_random(void) {
    kc_random_state ^= kc_random_state << 13;
    kc_random_state ^= kc_random_state >> 7;
    return kc_random_state ^= kc_random_state << 17;
}

static inline double kc_load(const dt_tensor *t, int64_t offset) {
    const char *p = atomic_load(&t->storage->data);
    dt_dtype dtype = (dt_dtype)t->dtype;
    return dt_scalar_f64(dt_scalar_load(dtype, p + offset * (int64_t)dt_dtype_size(dtype)));
}

static inline void kc_store(const dt_tensor *t, int64_t offset, double value) {
    char *p = atomic_load(&t->storage->data);
    dt_dtype dtype = (dt_dtype)t->dtype;
    dt_scalar s = {.category = DT_CAT_FLOAT, .f = value};
    if (!dt_dtype_is_float(dtype)) s = (dt_scalar){.category = DT_CAT_INT, .i = (int64_t)value};
    dt_scalar_store(s, dtype, p + offset * (int64_t)dt_dtype_size(dtype));
}

/* A number that every dtype holds: quarters for floats, small integers else. */
static inline double kc_number(dt_dtype dtype) {
    if (!dt_dtype_is_float(dtype))
        return (double)(int64_t)(kc_random() % 200) - (dtype == DT_U8 ? 0 : 100);
    if (dtype == DT_F32 || dtype == DT_F64)
        return (double)(int64_t)(kc_random() % 20001) / 10000 - 1;
    return (double)(int64_t)(kc_random() % 17) / 4 - 2;
}

/* How a tensor lies in memory. */
typedef enum kc_layout { KC_PLAIN, KC_TRANSPOSED, KC_GAPS, KC_REVERSED_DIMS, KC_LAYOUTS } kc_layout;

/* A tensor of the shape with random values; `gap` elements of NaN (or 77) around and between. */
static inline dt_tensor *kc_tensor(dt_dtype dtype, int rank, const int64_t *shape,
                                   kc_layout layout) {
    int64_t strides[DT_RANK_MAX], size = 1;
    int order[DT_RANK_MAX]; /* from the innermost */
    for (int d = 0; d < rank; d++) order[d] = rank - 1 - d;
    if (layout == KC_TRANSPOSED && rank >= 2) order[0] = rank - 2, order[1] = rank - 1;
    if (layout == KC_REVERSED_DIMS)
        for (int d = 0; d < rank; d++) order[d] = d;
    for (int d = 0; d < rank; d++) {
        if (layout == KC_GAPS) size *= d == 0 ? 2 : 1;
        strides[order[d]] = size;
        size *= shape[order[d]] > 0 ? shape[order[d]] : 1;
        if (layout == KC_GAPS) size += 3;
    }
    int64_t total = size + 5;
    dt_tensor *base, *view;
    KC_OK(dt_tensor_new(dtype, 1, &total, &base));
    KC_OK(dt_storage_materialize(base->storage));
    for (int64_t i = 0; i < total; i++)
        kc_store(base, i, dt_dtype_is_float(dtype) ? (double)NAN : 77.0);
    KC_OK(dt_tensor_new_view(base, dtype, rank, shape, strides, layout == KC_PLAIN ? 0 : 2, &view));
    dt_tensor_release(base);
    int64_t index[DT_RANK_MAX] = {0};
    for (int64_t i = 0; i < view->numel; i++) {
        int64_t at = view->offset;
        for (int d = 0; d < rank; d++) at += index[d] * strides[d];
        kc_store(view, at, kc_number(dtype));
        for (int d = rank - 1; d >= 0 && ++index[d] == shape[d]; d--) index[d] = 0;
    }
    return view;
}

/* The same values with other metadata; takes t. */
static inline dt_tensor *kc_view(dt_tensor *t, int rank, const int64_t *shape,
                                 const int64_t *strides) {
    dt_tensor *view;
    KC_OK(dt_tensor_new_view(t, (dt_dtype)t->dtype, rank, shape, strides, t->offset, &view));
    dt_tensor_release(t);
    return view;
}

static inline int64_t kc_at2(const dt_tensor *t, int64_t i, int64_t j) {
    return t->offset + i * t->strides[t->rank - 2] + j * t->strides[t->rank - 1];
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct kc_thread {
    const dt_call *call;
    dt_part part;
    dt_status status;
} kc_thread;

static inline void *kc_run_part(void *arg) {
    kc_thread *t = arg;
    t->status = t->call->kernel->run(t->call, &t->part);
    return NULL;
}

/* Runs the call in `parts` parts, each on a thread of its own when `threads`. */
static inline void kc_run(const dt_call *call, int parts, bool threads) {
    KC_OK(dt_call_materialize(call));
    const dt_kernel *k = call->kernel;
    ck_assert(k->cost_ns(call) >= 0);
    size_t bytes = k->scratch_bytes ? k->scratch_bytes(call, parts) : 0;
    /* Exactly as many bytes as asked for: AddressSanitizer sees one more. */
    char *scratch = bytes ? dt_bytes_alloc(bytes) : NULL;
    ck_assert(!bytes || scratch);
    if (bytes) memset(scratch, 0xff, bytes);
    kc_thread part[64];
    pthread_t id[64];
    ck_assert_int_le(parts, 64);
    for (int i = 0; i < parts; i++) {
        part[i] = (kc_thread){call, {i, parts, scratch, bytes}, DT_OK};
        if (threads)
            ck_assert_int_eq(pthread_create(&id[i], NULL, kc_run_part, &part[i]), 0);
        else
            kc_run_part(&part[i]);
    }
    for (int i = 0; i < parts; i++) {
        if (threads) pthread_join(id[i], NULL);
        ck_assert_msg(part[i].status == DT_OK, "part %d: %s", i, threads ? "?" : dt_error_text());
    }
    if (bytes) dt_bytes_free(scratch, bytes);
}

/* Every instruction set of this machine, one after the other. */
#define KC_FOR_EACH_ISA(level)                                                                     \
    for (int level = 0; level <= (int)dt_cpu_best(); level++)                                      \
        if (dt_cpu_select(dt_cpu_level_name((dt_cpu_level)level)) == DT_OK)

#endif
