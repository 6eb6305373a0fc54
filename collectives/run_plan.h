/* run_plan.h: carries a plan out. */
#ifndef DT_COLLECTIVES_RUN_PLAN_H
#define DT_COLLECTIVES_RUN_PLAN_H

#include "collectives/collectives.h"
#include "collectives/plan.h"

/* parts: of the source, borrowed. out: the target's parts, owned, which share no bytes with the
 * source's nor with each other; on failure none is left. Nothing has to have run when this returns.
 */
dt_status dt_plan_run(const dt_plan *plan, const dt_collectives *table, dt_tensor *const *parts,
                      dt_tensor **out) DT_MUST_CHECK;

#endif
