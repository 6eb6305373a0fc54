/* dist.c: see dist.h. */
#include "runtime/dist.h"

#include <pthread.h>
#include <string.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "runtime/storage_impl.h"

/* ---- the storage without bytes ------------------------------------------------------------- */

static dt_storage no_bytes;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init_no_bytes(void) {
    /* As large as any view of global metadata may ask for; never materialised. */
    dt__storage_init(&no_bytes, (size_t)INT64_MAX, 0);
}

static dt_storage *shared_storage(void) {
    (void)pthread_once(&once, init_no_bytes);
    return dt_storage_retain(&no_bytes);
}

/* ---- life ------------------------------------------------------------------------------------ */

static size_t size_of(const dt_mesh *mesh) {
    return sizeof(dt_dist) + sizeof(dt_tensor *) * (size_t)mesh->size;
}

dt_status dt_dist_new(dt_dtype dtype, int rank, const int64_t *shape, const int64_t *strides,
                      int64_t offset, const dt_mesh *mesh, const dt_placement *placements,
                      dt_tensor *const *parts, dt_tensor **out) {
    dt_dist *d;
    DT_ASSERT(rank >= 0 && rank <= DT_RANK_MAX);
    DT_ALLOC_OR_FAIL(d, size_of(mesh));
    dt_tensor *t = &d->t;
    atomic_init(&t->refs, 1);
    t->dtype = (uint8_t)dtype;
    t->rank = (uint8_t)rank;
    t->flags = DT_TENSOR_DIST;
    t->contiguous = false;
    t->numel = 1;
    t->offset = offset;
    t->storage = shared_storage();
    for (int k = 0; k < rank; k++) {
        t->shape[k] = shape[k];
        t->numel *= shape[k];
    }
    bool unknown = false, pending = false; /* a size that depends on values; and not known yet */
    for (int k = 0; k < rank; k++) unknown = unknown || shape[k] == -1;
    for (int k = 0; k < mesh->size; k++) pending = pending || dt_tensor_is_deferred(parts[k]);
    if (unknown) {
        t->flags |= DT_TENSOR_DEFERRED;
        t->numel = 0;
        memset(t->strides, 0, sizeof(int64_t) * (size_t)rank);
    } else if (strides != NULL) {
        memcpy(t->strides, strides, sizeof(int64_t) * (size_t)rank);
    } else {
        dt_shape_contiguous_strides(rank, shape, t->strides);
    }
    d->mesh = mesh;
    memcpy(d->placements, placements, sizeof *placements * mesh->rank);
    memcpy(d->parts, parts, sizeof *parts * (size_t)mesh->size);
    if (unknown && !pending) dt_dist_settle(t);
    *out = t;
    return DT_OK;
}

dt_status dt_dist_new_like(const dt_tensor *meta, const dt_mesh *mesh,
                           const dt_placement *placements, dt_tensor *const *parts,
                           dt_tensor **out) {
    return dt_dist_new((dt_dtype)meta->dtype, meta->rank, meta->shape, meta->strides, meta->offset,
                       mesh, placements, parts, out);
}

void dt__dist_free(dt_tensor *t) {
    dt_dist *d = dt_dist_of(t);
    for (int32_t k = 0; k < d->mesh->size; k++) dt_tensor_release(d->parts[k]);
    dt_storage *storage = t->storage;
    dt_free(d, size_of(d->mesh));
    dt_storage_release(storage);
}

void dt_dist_settle(dt_tensor *t) {
    const dt_tensor *part = dt_dist_of(t)->parts[0];
    DT_ASSERT(dt_tensor_is_deferred(t) && !dt_tensor_is_deferred(part));
    t->numel = 1;
    for (int d = 0; d < t->rank; d++) {
        if (t->shape[d] == -1) t->shape[d] = part->shape[d]; /* never a dim that is cut */
        t->numel *= t->shape[d];
    }
    if (dt_tensor_same_shape(t, part))
        memcpy(t->strides, part->strides, sizeof t->strides);
    else
        dt_shape_contiguous_strides(t->rank, t->shape, t->strides);
    t->flags = DT_TENSOR_DIST;
}
