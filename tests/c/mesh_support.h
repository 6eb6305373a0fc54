/* mesh_support.h: meshes and tensors on them, for C tests. */
#ifndef DT_TESTS_MESH_SUPPORT_H
#define DT_TESTS_MESH_SUPPORT_H

#include "runtime/dist.h"
#include "runtime/shard.h"
#include "tests/c/op_support.h"

#define MESH_UNUSED __attribute__((unused))

/* A mesh of devices 0, 1, ... of that shape (ends with 0). */
static MESH_UNUSED const dt_mesh *mesh_of(int a, int b) {
    int32_t shape[2] = {a, b}, ids[64];
    int rank = b > 0 ? 2 : 1, size = a * (b > 0 ? b : 1);
    for (int k = 0; k < size; k++) ids[k] = k;
    const dt_mesh *mesh = NULL;
    ck_assert_ok(dt_mesh_get(DT_DEVICE_CUDA, rank, shape, ids, NULL, &mesh));
    return mesh;
}

#define REPLICATE ((dt_placement){DT_REPLICATE, 0})
#define SHARD(d) ((dt_placement){DT_SHARD, (d)})
#define PARTIAL(kind) ((dt_placement){DT_PARTIAL_##kind, 0})

/* A tensor on the mesh whose values are not set. */
static MESH_UNUSED dt_tensor *dist_unset(dt_dtype dtype, const dt_mesh *mesh,
                                         const dt_placement *placements, dt_dims shape) {
    dt_tensor *parts[64], *t = NULL;
    for (int k = 0; k < mesh->size; k++) {
        dt_box box;
        dt_layout_part(mesh, placements, shape.rank, shape.v, k, &box);
        dt_dims part = {.rank = shape.rank};
        memcpy(part.v, box.size, sizeof(int64_t) * (size_t)shape.rank);
        parts[k] = tensor_new(dtype, part);
    }
    ck_assert_ok(dt_dist_new(dtype, shape.rank, shape.v, NULL, 0, mesh, placements, parts, &t));
    return t;
}

/* A float32 tensor on the mesh whose element i of part p has value i + 100 p (as Replicate: i). */
static MESH_UNUSED dt_tensor *dist_of(const dt_mesh *mesh, const dt_placement *placements,
                                      dt_dims shape) {
    dt_tensor *t = dist_unset(DT_F32, mesh, placements, shape);
    bool alike = true;
    for (int m = 0; m < mesh->rank; m++)
        /* The analyser does not know that there is a placement for each mesh dim.
         * NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult) */
        alike = alike && placements[m].kind == DT_REPLICATE;
    int count;
    dt_tensor *const *parts = dt_tensor_parts(&t, &count);
    for (int k = 0; k < count; k++)
        for (int64_t i = 0; i < parts[k]->numel; i++)
            set_value(parts[k], i, (double)i + (alike ? 0 : 100.0 * k));
    return t;
}

#endif
