/* place.h: an op on a mesh: from the user's call to one call for each device.
 *
 *   rule       the row's own, on the global metadata: torch's errors, dtype, shape
 *   choose     a way for each mesh dim (runtime/shard.h), or PlacementError
 *   change     Replicate inputs that the way wants cut, or counted once: views, fills
 *   expand     for each device an ordinary op call on its parts, with a dt_spot: inline, queued,
 *              fused, dropped like any other
 *   join       the parts of each output become one tensor on the mesh
 *
 * All of it happens in the client, so that a part's life is that of any tensor.
 */
#ifndef DT_FUTURES_PLACE_H
#define DT_FUTURES_PLACE_H

#include "runtime/op.h"
#include "runtime/shard.h"

/* The mesh that a call has to do with; NULL: none, it is an ordinary op. */
const dt_mesh *dt__place_mesh(const dt_op_call *call);

/* Runs a call that has to do with `mesh`; as dt_dispatch. */
dt_status dt__place_dispatch(dt_op_call *call, const dt_mesh *mesh) DT_MUST_CHECK;

/* dispatch.c: whether the result fits what it is to be written to. */
dt_status dt__check_target(const dt_op_call *call) DT_MUST_CHECK;

/* What leaves a sum or a product as it is, as a float or an integer. */
dt_scalar dt_place_identity(dt_placement_kind kind, bool is_float);

/* How a tensor is given other placements when implicit_redistribute is on; collectives/ installs
 * it. NULL: never. Owned result. */
typedef dt_status (*dt_redistribute_hook)(dt_tensor *t, const dt_mesh *mesh,
                                          const dt_placement *placements, dt_tensor **out);
void dt_place_set_redistribute_hook(dt_redistribute_hook hook);
/* Whether illegal placements are mended by the cheapest redistribute instead of refused. Returns
 * what it was. Client lock. */
bool dt_place_set_implicit(bool on);
int64_t dt_place_implicit_count(void); /* redistributes that were inserted so far */

#endif
