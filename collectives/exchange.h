/* exchange.h: every device puts its part together from the boxes of those that hold them.
 *
 * The most general step of a redistribute: between any two layouts of one tensor, on one mesh or
 * two, with reductions of what is Partial.  Each part is written in one pass, and nothing is kept
 * in between.
 *
 * E1: along a mesh dim that is the same Partial in both layouts (of one mesh) parts stay where they
 *     are, unreduced; any other Partial of `from` is reduced; `to` has no other Partial.
 */
#ifndef DT_COLLECTIVES_EXCHANGE_H
#define DT_COLLECTIVES_EXCHANGE_H

#include "runtime/mesh.h"
#include "runtime/tensor.h"

/* How a tensor lies on a mesh. Borrows. */
typedef struct dt_layout {
    const dt_mesh *mesh;
    const dt_placement *placements;
} dt_layout;

/* parts: by index in from->mesh, borrowed. out, by index in to->mesh: all NULL, then they become
 * owned tensors with bytes of their own, on failure none; or tensors to write to. */
dt_status dt_exchange(int rank, const int64_t *shape, const dt_layout *from,
                      dt_tensor *const *parts, const dt_layout *to, dt_tensor **out) DT_MUST_CHECK;

/* Bytes that the device that receives most receives, with elements of `item` bytes. */
int64_t dt_exchange_bytes(int rank, const int64_t *shape, int64_t item, const dt_layout *from,
                          const dt_layout *to);

/* The indices of all coordinates along the mesh dims in the mask, relative to the first one, in
 * order. Returns how many. */
int dt__group_offsets(const dt_mesh *mesh, uint32_t mask, int *out);

#endif
