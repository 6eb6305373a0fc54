/* fuse.h: several element-wise calls computed in one pass over memory; what a device offers.
 *
 * A pass takes calls in an order in which each may use the results of those before it, and computes
 * them tile by tile: all calls on one tile, then the next tile.  Every call runs the very tile
 * function that it would run alone, and rounds where it would round alone, so that no bit differs.
 * An output that only later calls of the pass read ("dead": nobody else can ever see it) stays in
 * a buffer of the size of a tile and is never written to memory.
 *
 * The scheduler decides which calls stand together and when; the device says which may, and does
 * it.  All functions are pure but for run: any thread.
 *
 * I1: joins() is asked for each earlier member of the pass; a call may join when all agree.  The
 *     answers do not depend on which other members there are, so what may join a pass may join any
 *     later part of it.
 * I2: build() fails for want of memory only. It keeps the calls by reference: they outlive it.
 * I3: run() never fails: calls whose values can be illegal are not fusible.
 */
#ifndef DT_RUNTIME_FUSE_H
#define DT_RUNTIME_FUSE_H

#include <stdbool.h>

#include "runtime/kernel.h"

#define DT_FUSE_MAX 32 /* calls in one pass */

typedef struct dt_pass dt_pass;

typedef struct dt_fuse_ops {
    /* Whether the call can be a member of a pass at all; looks at the call alone. */
    bool (*fusible)(const dt_call *call);
    /* Whether `next` may stand behind `member`, both fusible: the same elements in the same order,
     * and no memory that one of them writes and the other touches at another place. */
    bool (*joins)(const dt_call *member, const dt_call *next);
    /* Whether the pass is over with this call, as after a reduction. */
    bool (*ends)(const dt_call *call);
    /* The marginal nanoseconds, on one thread, of one more call in a pass. */
    double (*cost_ns)(const dt_call *call);
    /* Bit k of `dead`: the output of calls[k] is not written, and its storage has no memory.  All
     * others are materialised. count: 2 to DT_FUSE_MAX. */
    dt_status (*build)(const dt_call *const *calls, int count, uint32_t dead, dt_pass **out);
    int (*parts)(const dt_pass *pass, int threads);
    size_t (*scratch_bytes)(const dt_pass *pass, int parts);
    void (*run)(const dt_pass *pass, const dt_part *part);
    void (*finish)(const dt_pass *pass, const dt_part *part); /* once, after all parts */
    void (*free)(dt_pass *pass);
} dt_fuse_ops;

#endif
