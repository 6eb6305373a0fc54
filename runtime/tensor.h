/* tensor.h: metadata over a storage.
 *
 * Immutable after creation and reference-counted, so that the client, a queued task and several
 * Python handles may share one.  An op that changes metadata in place (t_(), set_()) gives its
 * handle another dt_tensor.  Strides and offset are in elements.
 */
#ifndef DT_RUNTIME_TENSOR_H
#define DT_RUNTIME_TENSOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/dtype.h"
#include "runtime/shape.h"
#include "runtime/storage.h"

typedef struct dt_tensor {
    _Atomic(uint32_t) refs;
    uint8_t dtype; /* dt_dtype */
    uint8_t rank;
    bool contiguous; /* row-major without gaps */
    bool wrapped;    /* came from a Python number: takes part in promotion as one */
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
