/* assemble.h: the one op that local collectives are made of, as a call.
 *
 * Pieces lie in a grid as runtime/rules_collect.c says; every result is a fresh tensor.  The op is
 * dispatched like any other: inline when small, queued and split over the pool when large.
 */
#ifndef DT_COLLECTIVES_ASSEMBLE_H
#define DT_COLLECTIVES_ASSEMBLE_H

#include "runtime/mesh.h"
#include "runtime/tensor.h"

typedef struct dt_assembly {
    int rank;
    int64_t grid[DT_RANK_MAX];
    dt_placement_kind reduction; /* of the pieces of one cell; DT_REPLICATE: it has only one */
    int divisor;                 /* what their sum is divided by */
} dt_assembly;

/* pieces: the cells row-major, those of a cell one after the other; borrowed. out[0..copies), which
 * get equal values: all NULL, then they become owned tensors with bytes of their own, on failure
 * none; or tensors of the right shape to write to. */
dt_status dt_assemble(const dt_assembly *how, int n, dt_tensor *const *pieces, int copies,
                      dt_tensor **out) DT_MUST_CHECK;

/* The box of t, a view; owned. */
dt_status dt_box_view(const dt_tensor *t, const int64_t *start, const int64_t *size,
                      dt_tensor **out) DT_MUST_CHECK;

/* t with dim cut to [start, start + length), a view; owned. */
dt_status dt_narrow_view(const dt_tensor *t, int dim, int64_t start, int64_t length,
                         dt_tensor **out) DT_MUST_CHECK;

/* A copy of t, contiguous; *out as above. */
dt_status dt_assemble_copy(dt_tensor *t, dt_tensor **out) DT_MUST_CHECK;

#endif
