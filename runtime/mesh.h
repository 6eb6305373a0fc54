/* mesh.h: device meshes, placements, and the layout that follows from both.
 *
 * A mesh is an array of devices of one type; mesh dim 0 is the outermost one.  Meshes are interned
 * and live as long as the process: equal ones are the same pointer, and a small number names one.
 * A *coordinate* is given as the device's row-major index in the mesh ("index").
 *
 * A tensor on a mesh has one placement for each mesh dim:
 *   Replicate    every device along that mesh dim has the same values
 *   Shard(d)     dim d is cut along the mesh dim as torch.chunk cuts: ceil(size / n) each, the last
 *                parts shorter or empty; when several mesh dims shard d, each cuts what the one
 *                before has left ("chunk of chunk", from the outermost mesh dim on)
 *   Partial(op)  the value is the reduction of the devices' parts along the mesh dim
 *
 * I1: a mesh never changes and is never freed.
 * I2: dt_layout_part is the only place that says which elements a device holds.
 */
#ifndef DT_RUNTIME_MESH_H
#define DT_RUNTIME_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/shape.h"
#include "runtime/status.h"

#define DT_MESH_RANK_MAX 6
#define DT_MESH_DEVICES_MAX 1024
#define DT_MESH_NAME_MAX 31

typedef enum dt_device_type { DT_DEVICE_CPU, DT_DEVICE_CUDA, DT_DEVICE_TYPES } dt_device_type;

typedef enum dt_placement_kind {
    DT_REPLICATE,
    DT_SHARD,
    DT_PARTIAL_SUM,
    DT_PARTIAL_AVG,
    DT_PARTIAL_MIN,
    DT_PARTIAL_MAX,
    DT_PARTIAL_PRODUCT,
    DT_PLACEMENT_KINDS,
} dt_placement_kind;

typedef struct dt_placement {
    uint8_t kind; /* dt_placement_kind */
    uint8_t dim;  /* of SHARD, never negative; else 0 */
} dt_placement;

static inline dt_placement dt_replicate(void) { return (dt_placement){DT_REPLICATE, 0}; }
static inline dt_placement dt_shard(int dim) { return (dt_placement){DT_SHARD, (uint8_t)dim}; }
static inline dt_placement dt_partial(dt_placement_kind kind) {
    return (dt_placement){(uint8_t)kind, 0};
}
static inline bool dt_placement_equal(dt_placement a, dt_placement b) {
    return a.kind == b.kind && a.dim == b.dim;
}
static inline bool dt_placement_is_shard(dt_placement p, int dim) {
    return p.kind == DT_SHARD && p.dim == dim;
}
static inline bool dt_placement_is_partial(dt_placement p) { return p.kind >= DT_PARTIAL_SUM; }
/* Whether a tensor may be Partial(a) along one mesh dim and Partial(b) along another: the order in
 * which they are reduced must not matter. */
bool dt_partial_commutes(dt_placement_kind a, dt_placement_kind b);

typedef struct dt_mesh {
    uint32_t id;
    uint8_t type; /* dt_device_type */
    uint8_t rank; /* at least 1 */
    bool named;
    int32_t size; /* number of devices, at least 1 */
    int32_t shape[DT_MESH_RANK_MAX];
    int32_t stride[DT_MESH_RANK_MAX]; /* of the index */
    char names[DT_MESH_RANK_MAX][DT_MESH_NAME_MAX + 1];
    int32_t ids[]; /* by index */
} dt_mesh;

/* The mesh of these devices, interned. names may be NULL. DT_E_VALUE for an empty shape, a size of
 * 0, more than DT_MESH_DEVICES_MAX devices, an id that comes twice, a name that is empty, too long
 * or comes twice. Client lock. */
dt_status dt_mesh_get(dt_device_type type, int rank, const int32_t *shape, const int32_t *ids,
                      const char *const *names, const dt_mesh **out) DT_MUST_CHECK;
const dt_mesh *dt_mesh_by_id(uint32_t id); /* NULL: there is none. Client lock. */

/* The same devices in the same arrangement; names may differ. */
bool dt_mesh_same(const dt_mesh *a, const dt_mesh *b);

static inline int dt_mesh_coordinate(const dt_mesh *m, int index, int mesh_dim) {
    return index / m->stride[mesh_dim] % m->shape[mesh_dim];
}

/* Writes "cuda(2x2)" and returns buffer. */
const char *dt_mesh_format(const dt_mesh *m, char *buffer, size_t size);
/* Writes "[S0, R, P(sum)]" and returns buffer. */
const char *dt_placements_format(int count, const dt_placement *p, char *buffer, size_t size);
const char *dt_placement_format(dt_placement p, char *buffer, size_t size);

/* Part k of n of a dim, as torch.chunk has it: ceil(size / n) elements each, the last ones fewer or
 * none. An empty part starts at `size`. */
static inline void dt_chunk(int64_t size, int n, int k, int64_t *start, int64_t *length) {
    int64_t each = (size + n - 1) / n, from = each * k, to = from + each;
    *start = from < size ? from : size;
    *length = (to < size ? to : size) - *start;
}

/* Which elements of a tensor of that shape the device holds: a box, `start` and `size` by dim. */
typedef struct dt_box {
    int64_t start[DT_RANK_MAX];
    int64_t size[DT_RANK_MAX];
} dt_box;
void dt_layout_part(const dt_mesh *m, const dt_placement *placements, int rank,
                    const int64_t *shape, int index, dt_box *box);

#endif
