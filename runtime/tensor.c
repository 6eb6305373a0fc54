/* tensor.c: making and freeing tensors.
 *
 * Every constructor ends in one of two places: new_tensor allocates and fills the metadata, and the
 * public functions give it a storage.  A small contiguous tensor costs two blocks of the calling
 * thread's caches: the metadata, and the storage with its bytes.
 *
 * I1: a tensor owns one reference to its storage, and its last element lies inside it.
 * I2: on failure nothing is left behind and *out is untouched.
 */
#include "runtime/tensor.h"

#include <string.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"

/* Fills all fields but the storage; NULL: out of memory. */
static inline dt_tensor *new_tensor(dt_dtype dtype, int rank, const int64_t *shape, int64_t numel,
                                    int64_t offset) {
    dt_tensor *t = dt_alloc(sizeof *t);
    if (DT_UNLIKELY(t == NULL)) return NULL;
    atomic_init(&t->refs, 1);
    t->dtype = (uint8_t)dtype;
    t->rank = (uint8_t)rank;
    t->wrapped = false;
    t->numel = numel;
    t->offset = offset;
    for (int d = 0; d < rank; d++) t->shape[d] = shape[d];
    return t;
}

static dt_status no_memory(void) {
    return dt_fail(DT_E_NO_MEMORY, "out of memory: cannot allocate a tensor's metadata");
}

static void check_arguments(dt_dtype dtype, int rank) {
    DT_ASSERT(dtype < DT_DTYPE_COUNT);
    DT_ASSERT(rank >= 0 && rank <= DT_RANK_MAX);
}

static dt_status new_owning(dt_dtype dtype, int rank, const int64_t *shape, dt_tensor **out) {
    check_arguments(dtype, rank);
    int64_t numel, size = (int64_t)dt_dtype_size(dtype);
    DT_TRY(dt_shape_numel(rank, shape, size, &numel));
    dt_storage *storage = dt_storage_new((size_t)(numel * size));
    if (DT_UNLIKELY(storage == NULL)) return no_memory();
    dt_tensor *t = new_tensor(dtype, rank, shape, numel, 0);
    if (DT_UNLIKELY(t == NULL)) {
        dt_storage_release(storage);
        return no_memory();
    }
    t->storage = storage;
    *out = t;
    return DT_OK;
}

dt_status dt_tensor_new(dt_dtype dtype, int rank, const int64_t *shape, dt_tensor **out) {
    dt_tensor *t;
    DT_TRY(new_owning(dtype, rank, shape, &t));
    dt_shape_contiguous_strides(rank, t->shape, t->strides);
    t->contiguous = true;
    *out = t;
    return DT_OK;
}

/* Offset of the last element from the first, in elements; strides are not negative. */
static int64_t span(int rank, const int64_t *shape, const int64_t *strides) {
    int64_t last = 0;
    for (int d = 0; d < rank; d++) {
        DT_ASSERT(strides[d] >= 0);
        last += (shape[d] - 1) * strides[d];
    }
    return last;
}

dt_status dt_tensor_new_strided(dt_dtype dtype, int rank, const int64_t *shape,
                                const int64_t *strides, dt_tensor **out) {
    dt_tensor *t;
    DT_TRY(new_owning(dtype, rank, shape, &t));
    DT_ASSERT(t->numel == 0 || span(rank, shape, strides) < t->numel);
    DT_DEBUG_ASSERT(!dt_shape_may_self_overlap(rank, shape, strides));
    for (int d = 0; d < rank; d++) t->strides[d] = strides[d];
    t->contiguous = dt_shape_is_contiguous(rank, shape, strides);
    *out = t;
    return DT_OK;
}

dt_status dt_tensor_new_over(dt_storage *storage, dt_dtype dtype, int rank, const int64_t *shape,
                             const int64_t *strides, int64_t offset, dt_tensor **out) {
    check_arguments(dtype, rank);
    int64_t numel, size = (int64_t)dt_dtype_size(dtype);
    /* Not dt_shape_numel: an expanded shape may have more bytes than there are, up to overflow. */
    numel = 1;
    for (int d = 0; d < rank; d++) {
        DT_ASSERT(shape[d] >= 0);
        if (__builtin_mul_overflow(numel, shape[d], &numel))
            return dt_fail(DT_E_RUNTIME, "numel: integer multiplication overflow");
    }
    DT_ASSERT(offset >= 0);
    if (numel != 0)
        DT_ASSERT((offset + span(rank, shape, strides) + 1) * size <= (int64_t)storage->bytes);
    dt_tensor *t = new_tensor(dtype, rank, shape, numel, offset);
    if (DT_UNLIKELY(t == NULL)) return no_memory();
    for (int d = 0; d < rank; d++) t->strides[d] = strides[d];
    t->contiguous = dt_shape_is_contiguous(rank, shape, strides);
    t->storage = storage;
    *out = t;
    return DT_OK;
}

dt_status dt_tensor_new_view(const dt_tensor *base, dt_dtype dtype, int rank, const int64_t *shape,
                             const int64_t *strides, int64_t offset, dt_tensor **out) {
    DT_TRY(dt_tensor_new_over(base->storage, dtype, rank, shape, strides, offset, out));
    dt_storage_retain(base->storage);
    return DT_OK;
}

dt_status dt_tensor_new_scalar(dt_scalar value, dt_dtype dtype, bool wrapped, dt_tensor **out) {
    dt_tensor *t;
    DT_TRY(dt_tensor_new(dtype, 0, NULL, &t));
    t->wrapped = wrapped;
    dt_scalar_store(value, dtype, dt_tensor_data(t));
    *out = t;
    return DT_OK;
}

void dt_tensor_free_last(dt_tensor *t) {
    dt_storage_release(t->storage);
    dt_free(t, sizeof *t);
}

bool dt_tensor_partial_overlap(const dt_tensor *t, const dt_tensor *u) {
    if (t->storage != u->storage || t->numel == 0 || u->numel == 0) return false;
    int64_t ts = (int64_t)dt_dtype_size((dt_dtype)t->dtype);
    int64_t us = (int64_t)dt_dtype_size((dt_dtype)u->dtype);
    int64_t t0 = t->offset * ts, u0 = u->offset * us;
    int64_t t1 = t0 + (span(t->rank, t->shape, t->strides) + 1) * ts;
    int64_t u1 = u0 + (span(u->rank, u->shape, u->strides) + 1) * us;
    if (t1 <= u0 || u1 <= t0) return false;
    if (ts != us || t0 != u0 || !dt_tensor_same_shape(t, u)) return true;
    for (int d = 0; d < t->rank; d++)
        if (t->shape[d] > 1 && t->strides[d] != u->strides[d]) return true;
    return false;
}
