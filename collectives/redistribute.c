/* redistribute.c: see redistribute.h. */
#include "collectives/redistribute.h"

#include <string.h>

#include "collectives/run_plan.h"
#include "runtime/assert.h"

/* ---- what is asked --------------------------------------------------------------------------- */

typedef struct asked {
    const dt_tensor *t;
    dt_layout from, to;
    dt_tensor *const *parts;
} asked;

static const dt_placement alone = {DT_REPLICATE, 0}; /* of a tensor on no mesh */

/* A tensor on no mesh lies on this one. */
static dt_status no_mesh(const dt_mesh **out) {
    static const int32_t one[1] = {1}, zero[1] = {0};
    return dt_mesh_get(DT_DEVICE_CPU, 1, one, zero, NULL, out);
}

static dt_status check_placements(const dt_tensor *t, const dt_layout *l, const char *which) {
    char text[160];
    bool averages = false;
    for (int m = 0; m < l->mesh->rank; m++) {
        dt_placement p = l->placements[m];
        if (p.kind == DT_SHARD && p.dim >= t->rank)
            return dt_fail(DT_E_PLACEMENT,
                           "redistribute: placements[%d] is Shard(%d), but the tensor has %d "
                           "dimensions",
                           m, p.dim, t->rank);
        averages = averages || p.kind == DT_PARTIAL_AVG;
        for (int k = 0; k < m && dt_placement_is_partial(p); k++) {
            dt_placement q = l->placements[k];
            if (dt_placement_is_partial(q) &&
                !dt_partial_commutes((dt_placement_kind)p.kind, (dt_placement_kind)q.kind))
                return dt_fail(
                    DT_E_PLACEMENT,
                    "redistribute: %s placements %s mix kinds of Partial whose order "
                    "matters; sum and avg may be mixed",
                    which, dt_placements_format(l->mesh->rank, l->placements, text, sizeof text));
        }
    }
    if (averages && !dt_dtype_is_float((dt_dtype)t->dtype))
        return dt_fail(DT_E_PLACEMENT,
                       "redistribute: Partial('avg') needs a tensor of floats, not of %s",
                       dt_dtype_table[t->dtype].name);
    return DT_OK;
}

static dt_status read_question(asked *q, dt_tensor *const *t, const dt_mesh *mesh,
                               const dt_placement *placements) {
    int count;
    q->t = *t;
    q->parts = dt_tensor_parts(t, &count);
    if (dt_tensor_is_dist(*t)) {
        const dt_dist *d = dt_dist_of(*t);
        q->from = (dt_layout){d->mesh, d->placements};
    } else {
        q->from.placements = &alone;
        DT_TRY(no_mesh(&q->from.mesh));
    }
    q->to = (dt_layout){mesh, placements};
    if (mesh == NULL) {
        q->to.placements = &alone;
        DT_TRY(no_mesh(&q->to.mesh));
    }
    DT_TRY(check_placements(q->t, &q->from, "the tensor's"));
    return check_placements(q->t, &q->to, "the target's");
}

/* ---- the whole ------------------------------------------------------------------------------- */

static bool same_layout(const dt_layout *a, const dt_layout *b) {
    DT_ASSERT(a->mesh != NULL && b->mesh != NULL);
    return dt_mesh_same(a->mesh, b->mesh) &&
           memcmp(a->placements, b->placements, sizeof *a->placements * a->mesh->rank) == 0;
}

static int64_t memory_max = -1;

int64_t dt_redistribute_set_memory(int64_t bytes) {
    int64_t was = memory_max;
    memory_max = bytes;
    return was;
}

/* False: t is what is asked for. */
static bool is_change(const dt_tensor *t, const dt_mesh *mesh, const asked *q) {
    bool same_mesh = dt_tensor_is_dist(t) ? q->from.mesh == mesh : mesh == NULL;
    return !same_mesh || !same_layout(&q->from, &q->to);
}

static dt_status plan_of(const asked *q, dt_plan *plan) {
    const dt_tensor *t = q->t;
    plan->rank = t->rank;
    memcpy(plan->shape, t->shape, sizeof plan->shape);
    plan->dtype = (dt_dtype)t->dtype;
    plan->from = q->from;
    plan->to = q->to;
    return dt_plan_make(plan, memory_max);
}

static dt_status wrap(const asked *q, dt_tensor **parts, dt_tensor **out) {
    const dt_mesh *mesh = q->to.mesh;
    dt_status status = dt_dist_new((dt_dtype)q->t->dtype, q->t->rank, q->t->shape, NULL, 0, mesh,
                                   q->to.placements, parts, out);
    for (int k = 0; k < mesh->size && status != DT_OK; k++) dt_tensor_release(parts[k]);
    return status;
}

dt_status dt_redistribute(dt_tensor *t, const dt_mesh *mesh, const dt_placement *placements,
                          dt_tensor **out) {
    asked q;
    dt_plan plan;
    dt_tensor *parts[DT_MESH_DEVICES_MAX];
    DT_ASSERT(!dt_tensor_is_deferred(t));
    DT_TRY(read_question(&q, &t, mesh, placements));
    if (!is_change(t, mesh, &q)) {
        *out = dt_tensor_retain(t);
        return DT_OK;
    }
    DT_TRY(plan_of(&q, &plan));
    DT_TRY(dt_plan_run(&plan, &dt_collectives_local, q.parts, parts));
    if (mesh != NULL) return wrap(&q, parts, out);
    *out = parts[0];
    return DT_OK;
}

dt_status dt_redistribute_plan(dt_tensor *t, const dt_mesh *mesh, const dt_placement *placements,
                               dt_plan *plan) {
    asked q;
    DT_ASSERT(!dt_tensor_is_deferred(t));
    DT_TRY(read_question(&q, &t, mesh, placements));
    DT_TRY(plan_of(&q, plan));
    return DT_OK;
}
