/* tensor.c: making and freeing tensors.
 *
 * A small contiguous tensor is one block of the calling thread's cache: metadata, storage header
 * and bytes (dt__embedded); that is what an op on four floats pays for.  Others are two blocks, and
 * the bytes follow when the first writer starts.  Under AddressSanitizer nothing is embedded, so
 * that a use of a dead tensor is seen also while its storage lives on.
 *
 * I1: a tensor owns one reference to its storage, and its last element lies inside it.
 * I2: on failure nothing is left behind and *out is untouched.
 */
#include "runtime/tensor.h"

#include "runtime/alloc.h"
#include "runtime/alloc_impl.h"
#include "runtime/assert.h"
#include "runtime/dist.h"
#include "runtime/storage_impl.h"

_Static_assert(sizeof(dt_tensor) == 288, "see the size classes before letting it grow");
_Static_assert(sizeof(dt__embedded) % 64 == 0, "embedded bytes are aligned as the block is");

/* Fills all fields but storage, shape, strides and contiguous. */
static inline void init_tensor(dt_tensor *t, dt_dtype dtype, int rank, int64_t numel,
                               int64_t offset) {
    atomic_init(&t->refs, 1);
    t->dtype = (uint8_t)dtype;
    t->rank = (uint8_t)rank;
    t->flags = 0;
    t->numel = numel;
    t->offset = offset;
}

static dt_status no_memory(void) {
    return dt_fail(DT_E_NO_MEMORY, "out of memory: cannot allocate a tensor's metadata");
}

static inline void check_arguments(dt_dtype dtype, int rank) {
    DT_ASSERT(dtype < DT_DTYPE_COUNT);
    DT_ASSERT(rank >= 0 && rank <= DT_RANK_MAX);
}

/* Metadata and storage of `bytes` bytes, refs and storage set up; NULL: out of memory. */
static inline dt_tensor *new_pair(size_t bytes) {
    if (!DT_ALLOC_BYPASS && bytes <= DT_STORAGE_INLINE_MAX) {
        dt__embedded *e = dt_alloc(dt__embedded_size(bytes));
        if (DT_UNLIKELY(e == NULL)) return NULL;
        dt__storage_init(&e->storage, bytes, DT_STORAGE_EMBEDDED);
        e->tensor.storage = &e->storage;
        return &e->tensor;
    }
    dt_storage *storage = dt_storage_new(bytes);
    if (DT_UNLIKELY(storage == NULL)) return NULL;
    dt_tensor *t = dt_alloc(sizeof *t);
    if (DT_UNLIKELY(t == NULL)) {
        dt_storage_release(storage);
        return NULL;
    }
    t->storage = storage;
    return t;
}

dt_status dt_tensor_new(dt_dtype dtype, int rank, const int64_t *shape, dt_tensor **out) {
    check_arguments(dtype, rank);
    int64_t numel, size = (int64_t)dt_dtype_size(dtype);
    DT_TRY(dt_shape_numel(rank, shape, size, &numel));
    dt_tensor *t = new_pair((size_t)(numel * size));
    if (DT_UNLIKELY(t == NULL)) return no_memory();
    init_tensor(t, dtype, rank, numel, 0);
    for (int d = 0; d < rank; d++) t->shape[d] = shape[d];
    dt_shape_contiguous_strides(rank, shape, t->strides);
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

static inline void set_layout(dt_tensor *t, const int64_t *shape, const int64_t *strides) {
    for (int d = 0; d < t->rank; d++) {
        t->shape[d] = shape[d];
        t->strides[d] = strides[d];
    }
    t->contiguous = dt_shape_is_contiguous(t->rank, shape, strides);
}

dt_status dt_tensor_new_strided(dt_dtype dtype, int rank, const int64_t *shape,
                                const int64_t *strides, dt_tensor **out) {
    check_arguments(dtype, rank);
    int64_t numel, size = (int64_t)dt_dtype_size(dtype);
    DT_TRY(dt_shape_numel(rank, shape, size, &numel));
    DT_ASSERT(numel == 0 || span(rank, shape, strides) < numel);
    DT_DEBUG_ASSERT(!dt_shape_may_self_overlap(rank, shape, strides));
    dt_tensor *t = new_pair((size_t)(numel * size));
    if (DT_UNLIKELY(t == NULL)) return no_memory();
    init_tensor(t, dtype, rank, numel, 0);
    set_layout(t, shape, strides);
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
    dt_tensor *t = dt_alloc(sizeof *t);
    if (DT_UNLIKELY(t == NULL)) return no_memory();
    init_tensor(t, dtype, rank, numel, offset);
    set_layout(t, shape, strides);
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

/* ---- deferred -------------------------------------------------------------------------------- */

static int unknown_dim(const dt_tensor *t) {
    int d = 0;
    while (d < t->rank && t->shape[d] != -1) d++;
    DT_ASSERT(d < t->rank);
    return d;
}

dt_status dt_tensor_new_deferred(dt_dtype dtype, int rank, const int64_t *shape, bool columns,
                                 dt_tensor **out) {
    check_arguments(dtype, rank);
    dt_storage *storage = dt_storage_new_deferred();
    dt_tensor *t = storage != NULL ? dt_alloc(sizeof *t) : NULL;
    if (DT_UNLIKELY(t == NULL)) {
        if (storage != NULL) dt_storage_release(storage);
        return no_memory();
    }
    t->storage = storage;
    init_tensor(t, dtype, rank, 0, 0);
    t->flags = DT_TENSOR_DEFERRED | (columns ? DT_TENSOR_COLUMNS : 0);
    for (int d = 0; d < rank; d++) {
        DT_ASSERT(shape[d] >= -1);
        t->shape[d] = shape[d];
        t->strides[d] = 0;
    }
    t->contiguous = false;
    (void)unknown_dim(t);
    *out = t;
    return DT_OK;
}

dt_status dt_tensor_produce(const dt_tensor *t, int64_t size) {
    int64_t shape[DT_RANK_MAX], numel, item = (int64_t)dt_dtype_size((dt_dtype)t->dtype);
    /* No race with dt_tensor_settle: the client waits for the end of this very task. */
    for (int d = 0; d < t->rank; d++) shape[d] = t->shape[d] == -1 ? size : t->shape[d];
    DT_TRY(dt_shape_numel(t->rank, shape, item, &numel));
    return dt_storage_produce(t->storage, size, (size_t)(numel * item));
}

void dt_tensor_settle(dt_tensor *t) {
    DT_ASSERT(dt_tensor_is_deferred(t));
    DT_ASSERT(atomic_load_explicit(&t->storage->data, memory_order_acquire) != NULL);
    int unknown = unknown_dim(t);
    int64_t size = t->storage->count, rest = 1;
    t->shape[unknown] = size;
    dt_shape_contiguous_strides(t->rank, t->shape, t->strides);
    if (t->flags & DT_TENSOR_COLUMNS) {
        for (int d = t->rank - 1; d >= 0; d--) {
            if (d == unknown) continue;
            t->strides[d] = rest * size; /* 0 when there is nothing, as torch has it */
            rest *= t->shape[d] > 1 ? t->shape[d] : 1;
        }
        t->strides[unknown] = 1;
    }
    t->numel = 1;
    for (int d = 0; d < t->rank; d++) t->numel *= t->shape[d];
    t->contiguous = dt_shape_is_contiguous(t->rank, t->shape, t->strides);
    t->flags = 0;
}

dt_status dt_tensor_new_scalar(dt_scalar value, dt_dtype dtype, bool wrapped, dt_tensor **out) {
    dt_tensor *t;
    DT_TRY(dt_tensor_new(dtype, 0, NULL, &t));
    t->flags = wrapped ? DT_TENSOR_WRAPPED : 0;
    dt_scalar_store(value, dtype, dt_tensor_data(t));
    *out = t;
    return DT_OK;
}

void dt_tensor_free_last(dt_tensor *t) {
    if (DT_UNLIKELY(dt_tensor_is_dist(t))) {
        dt__dist_free(t);
        return;
    }
    dt_storage *storage = t->storage;
    /* An embedded pair: the block is the storage's. A view of it has a block of its own. */
    bool embedded = (storage->flags & DT_STORAGE_EMBEDDED) != 0 &&
                    (char *)storage == (char *)t + offsetof(dt__embedded, storage);
    if (!embedded) dt_free(t, sizeof *t);
    dt_storage_release(storage);
}

bool dt_tensor_partial_overlap(const dt_tensor *t, const dt_tensor *u) {
    if (t->storage != u->storage || t->numel == 0 || u->numel == 0) return false;
    int64_t t_size = (int64_t)dt_dtype_size((dt_dtype)t->dtype);
    int64_t u_size = (int64_t)dt_dtype_size((dt_dtype)u->dtype);
    int64_t t_begin = t->offset * t_size, u_begin = u->offset * u_size;
    int64_t t_end = t_begin + (span(t->rank, t->shape, t->strides) + 1) * t_size;
    int64_t u_end = u_begin + (span(u->rank, u->shape, u->strides) + 1) * u_size;
    if (t_end <= u_begin || u_end <= t_begin) return false;
    /* Elements of two sizes (view(dtype)): one may cover parts of another, ranges must do. */
    if (t_size != u_size) return true;
    bool same = t->offset == u->offset && dt_tensor_same_shape(t, u);
    for (int d = 0; same && d < t->rank; d++)
        same = t->shape[d] == 1 || t->strides[d] == u->strides[d];
    return !same && dt_shape_may_meet(t->rank, t->shape, t->strides, u->rank, u->shape, u->strides,
                                      u->offset - t->offset);
}
