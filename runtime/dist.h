/* dist.h: a tensor on a mesh: global metadata and one ordinary tensor for each device.
 *
 * It is a dt_tensor with DT_TENSOR_DIST set, so that handles, schemas and rules see the global
 * dtype, shape and strides as those of any tensor.  Its storage is one that all of them share, has
 * no bytes and never will: who wants values goes to the parts.  `contiguous` is false whatever the
 * strides say, so that the fast paths decline it by the test that they make anyway.
 *
 * D1: parts[i] is the tensor of the device with index i in the mesh; its shape is what
 *     dt_layout_part says, its dtype the global one.
 * D2: like every tensor, it is immutable, but for settling (dt_dist_settle).
 */
#ifndef DT_RUNTIME_DIST_H
#define DT_RUNTIME_DIST_H

#include "runtime/mesh.h"
#include "runtime/tensor.h"

typedef struct dt_dist {
    dt_tensor t; /* first */
    const dt_mesh *mesh;
    dt_placement placements[DT_MESH_RANK_MAX]; /* mesh->rank of them */
    dt_tensor *parts[];                        /* mesh->size of them, owned */
} dt_dist;

static inline bool dt_tensor_is_dist(const dt_tensor *t) {
    return (t->flags & DT_TENSOR_DIST) != 0;
}
static inline dt_dist *dt_dist_of(const dt_tensor *t) { return (dt_dist *)(uintptr_t)t; }

/* The tensors that have bytes: t itself, or the parts of one on a mesh. */
static inline dt_tensor *const *dt_tensor_parts(dt_tensor *const *t, int *count) {
    if (!dt_tensor_is_dist(*t)) {
        *count = 1;
        return t;
    }
    dt_dist *d = dt_dist_of(*t);
    *count = d->mesh->size;
    return d->parts;
}

/* A tensor on the mesh. strides may be NULL (row-major). Takes the parts, on success only. A -1
 * in shape is a size that depends on values: until every part knows it, the tensor is deferred. */
dt_status dt_dist_new(dt_dtype dtype, int rank, const int64_t *shape, const int64_t *strides,
                      int64_t offset, const dt_mesh *mesh, const dt_placement *placements,
                      dt_tensor *const *parts, dt_tensor **out) DT_MUST_CHECK;

/* The same metadata as `meta`, a result of a rule. */
dt_status dt_dist_new_like(const dt_tensor *meta, const dt_mesh *mesh,
                           const dt_placement *placements, dt_tensor *const *parts, dt_tensor **out)
    DT_MUST_CHECK;

/* By the client, once the parts have been settled. */
void dt_dist_settle(dt_tensor *t);

/* Of dt_tensor_free_last. */
void dt__dist_free(dt_tensor *t);

#endif
