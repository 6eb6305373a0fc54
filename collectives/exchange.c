/* exchange.c: see exchange.h.
 *
 * Each mesh dim cuts one tensor dim at most, so the boxes of the source lie in a grid whose axes
 * can be cut one by one: what a device needs along dim d are the intervals of the source that meet
 * its own, and its box is the grid of all of them.
 */
#include "collectives/exchange.h"

#include <string.h>

#include "collectives/assemble.h"
#include "runtime/assert.h"

#define INTERVALS_MAX (DT_MESH_DEVICES_MAX + DT_RANK_MAX)

/* A piece of one tensor dim. */
typedef struct interval {
    int64_t start; /* in the part that holds it */
    int64_t size;
    int index; /* what its coordinates add to the index of the device */
} interval;

typedef struct exchange {
    int rank;
    const int64_t *shape;
    const dt_layout *from, *to;
    dt_tensor *const *parts;
    bool kept[DT_MESH_RANK_MAX]; /* Partial on both sides, see E1 */
    int reduced;                 /* devices whose parts make one value */
    dt_placement_kind reduction;
    int divisor;
    int shift[DT_MESH_DEVICES_MAX];  /* ... and where they are, from the first */
    int copies;                      /* devices of `to` that get the same part */
    int repeat[DT_MESH_DEVICES_MAX]; /* ... and where they are, from the first */
} exchange;

/* ---- which devices --------------------------------------------------------------------------- */

int dt__group_offsets(const dt_mesh *mesh, uint32_t mask, int *out) {
    int n = 1;
    out[0] = 0;
    for (int m = mesh->rank - 1; m >= 0; m--) {
        if (!(mask >> m & 1)) continue;
        for (int k = 1; k < mesh->shape[m]; k++)
            for (int i = 0; i < n; i++) out[k * n + i] = out[i] + k * mesh->stride[m];
        n *= mesh->shape[m];
    }
    return n;
}

static void find_devices(exchange *x) {
    uint32_t reduced = 0, repeated = 0;
    bool one_mesh = dt_mesh_same(x->from->mesh, x->to->mesh);
    x->reduction = DT_REPLICATE;
    x->divisor = 1;
    memset(x->kept, 0, sizeof x->kept);
    for (int m = 0; m < x->from->mesh->rank; m++) {
        dt_placement p = x->from->placements[m];
        if (!dt_placement_is_partial(p)) continue;
        x->kept[m] = one_mesh && dt_placement_equal(p, x->to->placements[m]);
        if (x->kept[m]) continue;
        reduced |= 1u << m;
        if (p.kind == DT_PARTIAL_AVG) x->divisor *= x->from->mesh->shape[m];
        x->reduction = (dt_placement_kind)p.kind; /* sum and avg add up alike */
    }
    for (int m = 0; m < x->to->mesh->rank; m++) {
        bool kept = x->kept[m];
        DT_ASSERT(kept || !dt_placement_is_partial(x->to->placements[m]));
        if (!kept && x->to->placements[m].kind == DT_REPLICATE) repeated |= 1u << m;
    }
    x->reduced = dt__group_offsets(x->from->mesh, reduced, x->shift);
    x->copies = dt__group_offsets(x->to->mesh, repeated, x->repeat);
}

/* The lists are long, so only what is used of them is written. */
static void init_exchange(exchange *x, int rank, const int64_t *shape, const dt_layout *from,
                          const dt_layout *to) {
    x->rank = rank;
    x->shape = shape;
    x->from = from;
    x->to = to;
    x->parts = NULL;
    find_devices(x);
}

/* Whether the device is the first of those that get the same part. */
static bool is_first(const exchange *x, int index) {
    for (int m = 0; m < x->to->mesh->rank; m++) {
        if (!x->kept[m] && x->to->placements[m].kind == DT_REPLICATE &&
            dt_mesh_coordinate(x->to->mesh, index, m) != 0)
            return false;
    }
    return true;
}

/* ---- which boxes ----------------------------------------------------------------------------- */

/* The intervals of dim d of the source that meet [low, high), from mesh dim m on. */
static int cut_dim(const dt_layout *from, int m, int d, int64_t start, int64_t size, int index,
                   int64_t low, int64_t high, interval *out) {
    while (m < from->mesh->rank && !dt_placement_is_shard(from->placements[m], d)) m++;
    if (m == from->mesh->rank) {
        int64_t first = start > low ? start : low;
        int64_t last = start + size < high ? start + size : high;
        *out = (interval){first - start, last - first, index};
        return 1;
    }
    int n = 0;
    for (int k = 0; k < from->mesh->shape[m]; k++) {
        int64_t at, length;
        dt_chunk(size, from->mesh->shape[m], k, &at, &length);
        at += start;
        if (length == 0 || at >= high || at + length <= low) continue;
        n += cut_dim(from, m + 1, d, at, length, index + k * from->mesh->stride[m], low, high,
                     out + n);
    }
    return n;
}

typedef struct grid {
    dt_assembly how;
    int first[DT_RANK_MAX]; /* of the intervals of each dim */
    interval intervals[INTERVALS_MAX];
    int cells;
} grid;

static void cut_box(const exchange *x, const dt_box *box, grid *g) {
    int used = 0;
    g->how.rank = x->rank;
    g->how.reduction = x->reduction;
    g->how.divisor = x->divisor;
    g->cells = 1;
    for (int d = 0; d < x->rank; d++) {
        g->first[d] = used;
        int n = cut_dim(x->from, 0, d, 0, x->shape[d], 0, box->start[d],
                        box->start[d] + box->size[d], g->intervals + used);
        DT_ASSERT(n > 0 && used + n <= INTERVALS_MAX);
        g->how.grid[d] = n;
        g->cells *= n;
        used += n;
    }
}

static bool is_empty(int rank, const int64_t *size) {
    for (int d = 0; d < rank; d++)
        if (size[d] == 0) return true;
    return false;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static dt_status piece_of(const exchange *x, int index, const int64_t *start, const int64_t *size,
                          dt_tensor **out) {
    dt_tensor *part = x->parts[index];
    if (memcmp(size, part->shape, sizeof *size * (size_t)x->rank) == 0) {
        *out = dt_tensor_retain(part);
        return DT_OK;
    }
    return dt_box_view(part, start, size, out);
}

/* Fills pieces, whose count is in *made also on failure. base: what replicated and kept mesh dims
 * add to an index of the source. */
static dt_status collect_pieces(const exchange *x, const grid *g, int base, dt_tensor **pieces,
                                int *made) {
    for (int cell = 0; cell < g->cells; cell++) {
        int64_t start[DT_RANK_MAX], size[DT_RANK_MAX];
        int rest = cell, index = base;
        for (int d = x->rank - 1; d >= 0; d--) {
            /* The analyser does not know that cut_box has set as many as there are dims.
             * NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult) */
            const interval *v = &g->intervals[g->first[d] + rest % (int)g->how.grid[d]];
            rest /= (int)g->how.grid[d];
            start[d] = v->start;
            size[d] = v->size;
            index += v->index;
        }
        for (int k = 0; k < x->reduced; k++) {
            DT_TRY(piece_of(x, index + x->shift[k], start, size, &pieces[*made]));
            ++*made;
        }
    }
    return DT_OK;
}

/* What replicated and kept mesh dims of the source add to the index of those whom the device
 * `index` of the target takes its pieces from: itself where it can be, else the replicas take
 * turns. */
static int base_of(const exchange *x, int index) {
    const dt_mesh *from = x->from->mesh;
    bool one_mesh = dt_mesh_same(from, x->to->mesh);
    int base = 0, turn = index;
    for (int m = 0; m < from->rank; m++) {
        if (x->from->placements[m].kind != DT_REPLICATE && !x->kept[m]) continue;
        int at = one_mesh ? dt_mesh_coordinate(from, index, m) : turn % from->shape[m];
        turn /= from->shape[m];
        base += at * from->stride[m];
    }
    return base;
}

/* The parts of the devices at `index` and its repeats; made: as dt_assemble's out. */
static dt_status make_parts(const exchange *x, int index, dt_tensor **made) {
    dt_box box;
    dt_layout_part(x->to->mesh, x->to->placements, x->rank, x->shape, index, &box);
    if (is_empty(x->rank, box.size)) {
        if (made[0] != NULL) return DT_OK;
        for (int k = 0; k < x->copies; k++) {
            dt_status status =
                dt_tensor_new((dt_dtype)x->parts[0]->dtype, x->rank, box.size, &made[k]);
            if (status == DT_OK) continue;
            while (k > 0) dt_tensor_release(made[--k]);
            return status;
        }
        return DT_OK;
    }
    grid g;
    dt_tensor *pieces[DT_MESH_DEVICES_MAX];
    int count = 0;
    cut_box(x, &box, &g);
    dt_status status = collect_pieces(x, &g, base_of(x, index), pieces, &count);
    if (status == DT_OK) status = dt_assemble(&g.how, count, pieces, x->copies, made);
    while (count > 0) dt_tensor_release(pieces[--count]);
    return status;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static int64_t volume(int rank, const int64_t *size) {
    int64_t n = 1;
    for (int d = 0; d < rank; d++) n *= size[d];
    return n;
}

static int64_t common_volume(int rank, const dt_box *a, const dt_box *b) {
    int64_t n = 1;
    for (int d = 0; d < rank; d++) {
        int64_t first = a->start[d] > b->start[d] ? a->start[d] : b->start[d];
        int64_t a_end = a->start[d] + a->size[d], b_end = b->start[d] + b->size[d];
        int64_t last = a_end < b_end ? a_end : b_end;
        if (last <= first) return 0;
        n *= last - first;
    }
    return n;
}

/* The index that a device of `to` has in `from`; -1: it is not there. */
static int index_in(const dt_mesh *from, const dt_mesh *to, int index) {
    if (dt_mesh_same(from, to)) return index;
    if (from->type != to->type) return -1;
    for (int k = 0; k < from->size; k++)
        if (from->ids[k] == to->ids[index]) return k;
    return -1;
}

int64_t dt_exchange_bytes(int rank, const int64_t *shape, int64_t item, const dt_layout *from,
                          const dt_layout *to) {
    exchange x;
    int64_t most = 0;
    init_exchange(&x, rank, shape, from, to);
    for (int index = 0; index < to->mesh->size; index++) {
        dt_box want, have;
        dt_layout_part(to->mesh, to->placements, rank, shape, index, &want);
        int64_t n = volume(rank, want.size) * x.reduced;
        int own = index_in(from->mesh, to->mesh, index);
        if (own >= 0) {
            dt_layout_part(from->mesh, from->placements, rank, shape, own, &have);
            n -= common_volume(rank, &want, &have);
        }
        if (n > most) most = n;
    }
    return most * item;
}

/* ---- the whole ------------------------------------------------------------------------------- */

dt_status dt_exchange(int rank, const int64_t *shape, const dt_layout *from,
                      dt_tensor *const *parts, const dt_layout *to, dt_tensor **out) {
    exchange x;
    dt_tensor *made[DT_MESH_DEVICES_MAX];
    bool fresh = out[0] == NULL;
    dt_status status = DT_OK;
    made[0] = NULL;
    init_exchange(&x, rank, shape, from, to);
    x.parts = parts;
    for (int index = 0; index < to->mesh->size && status == DT_OK; index++) {
        if (!is_first(&x, index)) continue;
        for (int k = 0; k < x.copies; k++) made[k] = out[index + x.repeat[k]];
        status = make_parts(&x, index, made);
        for (int k = 0; k < x.copies && status == DT_OK; k++) out[index + x.repeat[k]] = made[k];
    }
    for (int k = 0; k < to->mesh->size && fresh && status != DT_OK; k++) {
        if (out[k] != NULL) dt_tensor_release(out[k]);
        out[k] = NULL;
    }
    return status;
}
