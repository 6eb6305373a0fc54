/* redistribute.h: a tensor's value under other placements, or on other devices.
 *
 * All of it is ordinary ops on the parts, dispatched in the client: nothing here waits, and every
 * part can be awaited, dropped or failed like any tensor.
 */
#ifndef DT_COLLECTIVES_REDISTRIBUTE_H
#define DT_COLLECTIVES_REDISTRIBUTE_H

#include "collectives/plan.h"
#include "runtime/dist.h"

/* t, of known size, on the mesh with those placements; t may be on another mesh, or on none.  mesh
 * NULL: as a tensor on none, whole.  *out is owned: t itself when nothing changes, else it shares
 * no bytes with t.  DT_E_PLACEMENT: a Shard of a dim that t does not have, kinds of Partial that do
 * not commute, an average of integers. Client lock. */
dt_status dt_redistribute(dt_tensor *t, const dt_mesh *mesh, const dt_placement *placements,
                          dt_tensor **out) DT_MUST_CHECK;

/* What dt_redistribute would do; `placements` and t must live as long as the plan. */
dt_status dt_redistribute_plan(dt_tensor *t, const dt_mesh *mesh, const dt_placement *placements,
                               dt_plan *plan) DT_MUST_CHECK;

/* How many bytes of each device a redistribute may need beside source and result; negative: any
 * number. Returns what it was. Client lock. */
int64_t dt_redistribute_set_memory(int64_t bytes);

#endif
