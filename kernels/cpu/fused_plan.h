/* fused_plan.h: a pass of element-wise calls as a list of steps over one tile.
 *
 * A step reads and writes places.  A place is memory of a tensor, which moves on with the tiles, or
 * something that stays: a buffer of one tile, an element.  Whoever runs a pass turns places into
 * addresses once and then only walks the steps.
 *
 * Where a reduction ends the pass, a tile is some whole rows of it or, of longer rows, one block.
 */
#ifndef DT_KERNELS_CPU_FUSED_PLAN_H
#define DT_KERNELS_CPU_FUSED_PLAN_H

#include "kernels/cpu/chain.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/reduce_tail.h"
#include "runtime/fuse.h"

/* For each call: three inputs, each with two casts at most, and the result in three dtypes. */
#define DT__FUSED_VALUES_MAX (DT_FUSE_MAX * 12)
_Static_assert(DT__FUSED_VALUES_MAX <= DT__CHAIN_PLACES_MAX, "places of a pass");

typedef enum dt__fused_where {
    DT__AT_MEMORY,   /* of `tensor`, from the first element of the tile on */
    DT__AT_BUFFER,   /* `offset` bytes into the part's scratch, a tile long */
    DT__AT_REGISTER, /* nowhere: the value is computed and used within a chain */
    DT__AT_SLOT,     /* one element, `offset` bytes into the part's scratch */
    DT__AT_ONE,      /* the one element of `tensor` */
    DT__AT_NUMBER,   /* `number` */
} dt__fused_where;

typedef struct dt__fused_place {
    uint8_t where; /* dt__fused_where */
    uint8_t size;  /* of an element */
    union {
        const dt_tensor *tensor; /* borrowed from the call */
        int64_t offset;
        dt__ew_slot number;
    };
} dt__fused_place;

typedef enum dt__fused_kind {
    DT__STEP_TILE,   /* tile(n, out, in, step, params) */
    DT__STEP_CAST,   /* out = in[0] as another dtype; or the same: a copy */
    DT__STEP_ROUND,  /* out = in[0], f32 both, rounded to the half `to` */
    DT__STEP_FILL,   /* out = n times the element in[0] */
    DT__STEP_GATHER, /* out = elements of `tensor`, however they lie */
    DT__STEP_CHAIN,  /* several tile functions, in registers */
} dt__fused_kind;

typedef struct dt__fused_step {
    uint8_t kind;     /* dt__fused_kind */
    uint8_t from, to; /* dtypes of a cast */
    uint8_t row, nin; /* of a tile function: its expression and how many operands it has */
    int16_t gather;   /* the number of a gather among its kind */
    int16_t out, in[DT_EW_INPUTS_MAX];
    union {
        dt_ew_tile tile;
        const dt_tensor *tensor;
        const dt__chain *chain;
    };
    const dt_params *params;
    int64_t step[DT_EW_INPUTS_MAX];
} dt__fused_step;

struct dt_pass {
    const dt_tensor *shape; /* any output: all have this shape */
    int64_t numel, tile;
    double cost_ns;     /* of all, on one thread */
    size_t bytes;       /* of this block */
    size_t part_bytes;  /* of scratch, for each part */
    size_t whole_bytes; /* of scratch behind that of all parts: the values of blocks */
    int64_t gathers_at; /* where in a part's the gathers keep their cursors */
    int64_t values_at;  /* ... and a tile of rows its values */
    int gathers;
    int places_count, moving; /* places[0 .. moving) are memory */
    int steps_count, once;    /* steps[0 .. once) are for one element, done once */
    const dt_call *reduction; /* NULL: none */
    dt__reduce_tail tail;
    int reduced; /* the place of what is reduced */
    dt__fused_step *steps;
    dt__fused_place *places;
    dt_params narrow[]; /* parameters that are not the call's own */
};

/* Bytes of scratch that one gather wants, see dt_pass.gathers_at. */
extern const size_t dt__fused_gather_bytes;

/* See dt_fuse_ops.build. */
dt_status dt__fused_plan(const dt_call *const *calls, int count, uint32_t dead, dt_pass **out)
    DT_MUST_CHECK;

#endif
