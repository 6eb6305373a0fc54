/* plan.h: the way of a redistribute, worked out on metadata alone.
 *
 * A plan is a list of steps.  Each is local, or one collective among the devices that differ along
 * some mesh dims, or an exchange, in which every device puts its part together from whoever has it.
 *
 *   cut             Replicate -> Shard          nothing moves
 *   keep_once       Replicate -> Partial        nothing moves: sum and product count coordinate 0
 *   pad             Shard -> Partial            nothing moves: sum, product
 *   all_gather      Shard -> Replicate
 *   reduce_scatter  Partial -> Shard
 *   all_reduce      Partial -> Replicate
 *   all_to_all      Shard(d) -> Shard(e)
 *   exchange        anything, also to another mesh (exchange.h)
 *   broadcast, scatter, gather                  exchanges from one device, or to one
 *
 * The plan is the one that moves fewest bytes (received by the device that receives most, rings
 * assumed), then has fewest steps that move any, then prefers collectives to exchanges: the
 * shortest path over all placement lists that mix what source and target have.
 *
 * P1: a step that is no exchange is legal as it stands: a dim that several mesh dims cut is cut, or
 *     put together, from the right, so that parts stay chunks of chunks (runtime/mesh.h).
 * P2: no state in between mixes kinds of Partial that do not commute.
 */
#ifndef DT_COLLECTIVES_PLAN_H
#define DT_COLLECTIVES_PLAN_H

#include "collectives/exchange.h"
#include "runtime/dtype.h"

typedef enum dt_step_kind {
    DT_STEP_CUT,
    DT_STEP_KEEP_ONCE,
    DT_STEP_PAD,
    DT_STEP_ALL_GATHER,
    DT_STEP_REDUCE_SCATTER,
    DT_STEP_ALL_REDUCE,
    DT_STEP_ALL_TO_ALL,
    DT_STEP_EXCHANGE,
    DT_STEP_BROADCAST,
    DT_STEP_SCATTER,
    DT_STEP_GATHER,
    DT_STEP_KINDS,
} dt_step_kind;

static inline bool dt_step_moves(dt_step_kind kind) { return kind >= DT_STEP_ALL_GATHER; }
const char *dt_step_name(dt_step_kind kind);

typedef struct dt_step {
    uint8_t kind;      /* dt_step_kind */
    uint8_t mesh_dims; /* bit mask: along which; 0 for exchanges */
    int64_t bytes;     /* received by the device that receives most */
    const dt_mesh *mesh;
    dt_placement placements[DT_MESH_RANK_MAX]; /* both as they are afterwards */
} dt_step;

#define DT_PLAN_STEPS_MAX 24

typedef struct dt_plan {
    int rank;
    int64_t shape[DT_RANK_MAX];
    dt_dtype dtype;
    dt_layout from, to; /* borrowed */
    int count;
    dt_step steps[DT_PLAN_STEPS_MAX];
    int64_t bytes;        /* of all steps */
    int64_t memory_bytes; /* a device's parts in between, at most */
    int pieces;           /* more than 1: run piece by piece along piece_dim, to need less memory */
    int piece_dim;
} dt_plan;

/* Fills plan, whose shape, dtype, from and to the caller has set and checked. memory_max: what
 * memory_bytes should not exceed; negative: anything. */
dt_status dt_plan_make(dt_plan *plan, int64_t memory_max) DT_MUST_CHECK;

/* Writes the plan as text, some lines, truncated to size. Returns its whole length. */
int dt_plan_format(const dt_plan *plan, char *buffer, int size);

#endif
