/* mesh.c: see mesh.h. Meshes are kept in one table, which only grows. */
#include "runtime/mesh.h"

#include <stdio.h>
#include <string.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"

static const dt_mesh **meshes;
static uint32_t mesh_count, mesh_capacity;

bool dt_partial_commutes(dt_placement_kind a, dt_placement_kind b) {
    bool linear_a = a == DT_PARTIAL_SUM || a == DT_PARTIAL_AVG;
    bool linear_b = b == DT_PARTIAL_SUM || b == DT_PARTIAL_AVG;
    return a == b || (linear_a && linear_b);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static dt_status check_names(int rank, const char *const *names) {
    for (int d = 0; d < rank; d++) {
        size_t length = strlen(names[d]);
        if (length == 0 || length > DT_MESH_NAME_MAX)
            return dt_fail(DT_E_VALUE, "mesh_dim_names[%d] must have 1 to %d characters, got '%s'",
                           d, DT_MESH_NAME_MAX, names[d]);
        for (int k = 0; k < d; k++)
            if (strcmp(names[d], names[k]) == 0)
                return dt_fail(DT_E_VALUE, "mesh_dim_names must differ, got '%s' twice", names[d]);
    }
    return DT_OK;
}

static dt_status check_ids(int64_t size, const int32_t *ids) {
    uint64_t seen[DT_MESH_DEVICES_MAX / 64] = {0};
    for (int64_t k = 0; k < size; k++) {
        if (ids[k] < 0 || ids[k] >= DT_MESH_DEVICES_MAX)
            return dt_fail(DT_E_VALUE, "a device id of a mesh must be 0 to %d, got %d",
                           DT_MESH_DEVICES_MAX - 1, ids[k]);
        uint64_t bit = (uint64_t)1 << ids[k] % 64;
        if (seen[ids[k] / 64] & bit)
            return dt_fail(DT_E_VALUE, "device %d comes twice in the mesh", ids[k]);
        seen[ids[k] / 64] |= bit;
    }
    return DT_OK;
}

static dt_status check_shape(int rank, const int32_t *shape, int64_t *size) {
    if (rank < 1 || rank > DT_MESH_RANK_MAX)
        return dt_fail(DT_E_VALUE, "a mesh must have 1 to %d dims, got %d", DT_MESH_RANK_MAX, rank);
    *size = 1;
    for (int d = 0; d < rank; d++) {
        if (shape[d] < 1)
            return dt_fail(DT_E_VALUE, "dim %d of a mesh must have a size of at least 1, got %d", d,
                           shape[d]);
        *size *= shape[d];
        if (*size > DT_MESH_DEVICES_MAX)
            return dt_fail(DT_E_VALUE, "a mesh must not have more than %d devices",
                           DT_MESH_DEVICES_MAX);
    }
    return DT_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

bool dt_mesh_same(const dt_mesh *a, const dt_mesh *b) {
    return a == b || (a->type == b->type && a->rank == b->rank && a->size == b->size &&
                      memcmp(a->shape, b->shape, sizeof(int32_t) * a->rank) == 0 &&
                      memcmp(a->ids, b->ids, sizeof(int32_t) * (size_t)a->size) == 0);
}

static bool is_equal(const dt_mesh *a, const dt_mesh *b) {
    return a->named == b->named && dt_mesh_same(a, b) &&
           memcmp(a->names, b->names, sizeof a->names) == 0;
}

static dt_status make_room(void) {
    if (mesh_count < mesh_capacity) return DT_OK;
    uint32_t capacity = mesh_capacity == 0 ? 16 : mesh_capacity * 2;
    const dt_mesh **grown;
    DT_ALLOC_OR_FAIL(grown, capacity * sizeof *grown);
    if (mesh_count > 0) {
        memcpy(grown, meshes, mesh_count * sizeof *grown);
        dt_free(meshes, mesh_capacity * sizeof *grown);
    }
    meshes = grown;
    mesh_capacity = capacity;
    return DT_OK;
}

static void fill(dt_mesh *m, dt_device_type type, int rank, const int32_t *shape,
                 const int32_t *ids, const char *const *names) {
    m->type = (uint8_t)type;
    m->rank = (uint8_t)rank;
    m->named = names != NULL;
    int32_t stride = 1;
    for (int d = rank - 1; d >= 0; d--) {
        m->shape[d] = shape[d];
        m->stride[d] = stride;
        stride *= shape[d];
        if (names != NULL) (void)snprintf(m->names[d], sizeof m->names[d], "%s", names[d]);
    }
    m->size = stride;
    memcpy(m->ids, ids, sizeof(int32_t) * (size_t)stride);
}

dt_status dt_mesh_get(dt_device_type type, int rank, const int32_t *shape, const int32_t *ids,
                      const char *const *names, const dt_mesh **out) {
    int64_t size = 0;
    DT_TRY(check_shape(rank, shape, &size));
    DT_TRY(check_ids(size, ids));
    if (names != NULL) DT_TRY(check_names(rank, names));
    DT_TRY(make_room());
    size_t bytes = sizeof(dt_mesh) + sizeof(int32_t) * (size_t)size;
    dt_mesh *m;
    DT_ALLOC_OR_FAIL(m, bytes);
    memset(m, 0, bytes);
    fill(m, type, rank, shape, ids, names);
    for (uint32_t k = 0; k < mesh_count; k++) {
        if (!is_equal(meshes[k], m)) continue;
        dt_free(m, bytes);
        *out = meshes[k];
        return DT_OK;
    }
    m->id = mesh_count;
    meshes[mesh_count++] = m;
    *out = m;
    return DT_OK;
}

const dt_mesh *dt_mesh_by_id(uint32_t id) { return id < mesh_count ? meshes[id] : NULL; }

/* ---- layout ---------------------------------------------------------------------------------- */

void dt_layout_part(const dt_mesh *m, const dt_placement *placements, int rank,
                    const int64_t *shape, int index, dt_box *box) {
    for (int d = 0; d < rank; d++) {
        box->start[d] = 0;
        box->size[d] = shape[d];
    }
    for (int k = 0; k < m->rank; k++) {
        if (placements[k].kind != DT_SHARD) continue;
        int d = placements[k].dim;
        DT_DEBUG_ASSERT(d < rank);
        int64_t start, length;
        dt_chunk(box->size[d], m->shape[k], dt_mesh_coordinate(m, index, k), &start, &length);
        box->start[d] += start;
        box->size[d] = length;
    }
}

/* ---- text ------------------------------------------------------------------------------------ */

const char *dt_mesh_format(const dt_mesh *m, char *buffer, size_t size) {
    static const char *const types[DT_DEVICE_TYPES] = {"cpu", "cuda"};
    size_t at = (size_t)snprintf(buffer, size, "%s(", types[m->type]);
    for (int d = 0; d < m->rank && at < size; d++)
        at += (size_t)snprintf(buffer + at, size - at, "%s%d", d > 0 ? "x" : "", m->shape[d]);
    if (at < size) (void)snprintf(buffer + at, size - at, ")");
    return buffer;
}

const char *dt_placement_format(dt_placement p, char *buffer, size_t size) {
    static const char *const names[DT_PLACEMENT_KINDS] = {
        [DT_REPLICATE] = "R",        [DT_PARTIAL_SUM] = "P(sum)",
        [DT_PARTIAL_AVG] = "P(avg)", [DT_PARTIAL_MIN] = "P(min)",
        [DT_PARTIAL_MAX] = "P(max)", [DT_PARTIAL_PRODUCT] = "P(product)",
    };
    if (p.kind == DT_SHARD)
        (void)snprintf(buffer, size, "S%d", p.dim);
    else
        (void)snprintf(buffer, size, "%s", names[p.kind]);
    return buffer;
}

const char *dt_placements_format(int count, const dt_placement *p, char *buffer, size_t size) {
    char one[24];
    size_t at = (size_t)snprintf(buffer, size, "[");
    for (int k = 0; k < count && at < size; k++)
        at += (size_t)snprintf(buffer + at, size - at, "%s%s", k > 0 ? ", " : "",
                               dt_placement_format(p[k], one, sizeof one));
    if (at < size) (void)snprintf(buffer + at, size - at, "]");
    return buffer;
}
