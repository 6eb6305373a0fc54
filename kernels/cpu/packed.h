/* packed.h: packed copies of weights, kept from call to call.
 *
 * A product with more than a few rows reads b in panels (gemm.h).  Where b is the same storage
 * again and again, as weights are, the panels are kept: blocks of DT__GEMM_BLOCK columns, made
 * when a block is asked for the second time.  A copy never outlives the bytes it was made of
 * (dt_storage.derived).
 */
#ifndef DT_KERNELS_CPU_PACKED_H
#define DT_KERNELS_CPU_PACKED_H

#include <stdint.h>

#include "runtime/storage.h"

typedef struct dt__packed dt__packed; /* reference-counted, immutable */

/* Which elements: f32, `offset` from the storage's start, strides in elements. */
typedef struct dt__packed_key {
    int64_t offset, k, n, sbk, sbn;
} dt__packed_key;

/* A retained copy of these columns, or NULL: not kept (yet). The caller reads the storage now. */
dt__packed *dt__packed_acquire(dt_storage *storage, const dt__packed_key *key);
void dt__packed_release(dt__packed *packed);           /* NULL passes through */
const void *dt__packed_data(const dt__packed *packed); /* NULL passes through */

typedef struct dt__packed_stats {
    int64_t entries, bytes, hits, made;
} dt__packed_stats;

void dt__packed_stats_get(dt__packed_stats *stats);
void dt__packed_limit_set(int64_t bytes); /* for tests; what is kept already stays */

#endif
