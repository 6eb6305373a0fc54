/* tensor.h: metadata over a storage.
 *
 * Immutable after creation and reference-counted, so that the client, a queued task and several
 * Python handles may share one.  An op that changes metadata in place (t_(), set_()) gives its
 * handle another dt_tensor.  Strides and offset are in elements.
 *
 * Deferred tensors: the result of an op whose size depends on values (nonzero) has one dim that
 * nobody knows before its kernel has run.  Dtype and rank are known; shape says -1 for that dim,
 * numel and strides are 0, contiguous is false.  The kernel tells its storage the size
 * (dt_tensor_produce) and never touches the tensor; the client completes the metadata when it
 * next looks and the storage's writer has ended (dt_tensor_settle).  So all metadata is the
 * client's, and no reader needs an atomic.
 *
 * D1: until it is settled, storage->last_write is the future of its producer, which is what to wait
 *     for. A producer that fails leaves the tensor deferred for good.
 * D2: a deferred tensor is no operand of a task, but of its producer and of kernels that look at
 *     its storage alone (clone__deferred).
 */
#ifndef DT_RUNTIME_TENSOR_H
#define DT_RUNTIME_TENSOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/dtype.h"
#include "runtime/shape.h"
#include "runtime/storage.h"

enum {
    DT_TENSOR_WRAPPED = 1u << 0,  /* came from a Python number: takes part in promotion as one */
    DT_TENSOR_DEFERRED = 1u << 1, /* see above */
    DT_TENSOR_COLUMNS = 1u << 2,  /* ... and the unknown dim will be the innermost one in memory */
    DT_TENSOR_DIST = 1u << 3,     /* one of a mesh, see dist.h: no bytes of its own */
};

typedef struct dt_tensor {
    _Atomic(uint32_t) refs;
    uint8_t dtype; /* dt_dtype */
    uint8_t rank;
    bool contiguous; /* row-major without gaps */
    uint8_t flags;
    int64_t numel;
    int64_t offset;
    dt_storage *storage; /* owned reference */
    int64_t shape[DT_RANK_MAX];
    int64_t strides[DT_RANK_MAX];
} dt_tensor;

/* A new contiguous tensor with a storage of its own. shape may have any rank up to DT_RANK_MAX. */
dt_status dt_tensor_new(dt_dtype dtype, int rank, const int64_t *shape, dt_tensor **out)
    DT_MUST_CHECK;

/* As dt_tensor_new, with strides given (non-overlapping and dense, e.g. a permutation). */
dt_status dt_tensor_new_strided(dt_dtype dtype, int rank, const int64_t *shape,
                                const int64_t *strides, dt_tensor **out) DT_MUST_CHECK;

/* A view: another metadata over base's storage (retained). Bounds are asserted. */
dt_status dt_tensor_new_view(const dt_tensor *base, dt_dtype dtype, int rank, const int64_t *shape,
                             const int64_t *strides, int64_t offset, dt_tensor **out) DT_MUST_CHECK;

/* Over a storage that exists already; takes the storage reference on success. */
dt_status dt_tensor_new_over(dt_storage *storage, dt_dtype dtype, int rank, const int64_t *shape,
                             const int64_t *strides, int64_t offset, dt_tensor **out) DT_MUST_CHECK;

/* A deferred tensor with a storage of its own; exactly one entry of shape is -1. `columns`: that
 * dim's elements will lie side by side, the other dims row-major around them. */
dt_status dt_tensor_new_deferred(dt_dtype dtype, int rank, const int64_t *shape, bool columns,
                                 dt_tensor **out) DT_MUST_CHECK;
static inline bool dt_tensor_is_deferred(const dt_tensor *t) {
    return (t->flags & DT_TENSOR_DEFERRED) != 0;
}
/* By the kernel, for each deferred output: takes the memory for that size. */
dt_status dt_tensor_produce(const dt_tensor *t, int64_t size) DT_MUST_CHECK;
/* By the client, under its lock, after the producer has ended well. */
void dt_tensor_settle(dt_tensor *t);

/* A ready 0-dim tensor holding a number; `wrapped` as above. */
dt_status dt_tensor_new_scalar(dt_scalar value, dt_dtype dtype, bool wrapped, dt_tensor **out)
    DT_MUST_CHECK;

static inline dt_tensor *dt_tensor_retain(dt_tensor *t) {
    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}
void dt_tensor_free_last(dt_tensor *t);
static inline void dt_tensor_release(dt_tensor *t) {
    /* Who sees 1 holds the only reference, and nobody can make another: no locked operation. */
    if (atomic_load_explicit(&t->refs, memory_order_acquire) == 1 ||
        atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) == 1)
        dt_tensor_free_last(t);
}

/* First element; only once the storage is materialised (kernels, or a ready tensor). */
static inline void *dt_tensor_data(const dt_tensor *t) {
    char *base = atomic_load_explicit(&t->storage->data, memory_order_acquire);
    return base + t->offset * (int64_t)dt_dtype_size((dt_dtype)t->dtype);
}

static inline bool dt_tensor_same_shape(const dt_tensor *a, const dt_tensor *b) {
    if (a->rank != b->rank) return false;
    for (int d = 0; d < a->rank; d++)
        if (a->shape[d] != b->shape[d]) return false;
    return true;
}

/* Whether writing `t` while reading `u` may meet in memory other than at equal indices: the same
 * storage, at least one address in common, and not the very same shape, strides and offset. x[1:]
 * and x[:-1] do; x[::2] and x[1::2], or two columns of a matrix, do not. */
bool dt_tensor_partial_overlap(const dt_tensor *t, const dt_tensor *u);

#endif
