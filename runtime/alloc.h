/* alloc.h: all memory of the C core.
 *
 * Two sides.  dt_alloc/dt_free serve small objects (tensors, storages, tasks, waiters) from size
 * classes with a cache for each thread; a block freed by another thread goes back to its owner.
 * dt_bytes_alloc/dt_bytes_free serve the bytes of storages: 64-byte aligned, small ones from the
 * same size classes, large ones (>= 1 MiB) cached and, where the kernel lets us, on huge pages.
 * Every allocation of either side can be made to fail (dt_alloc_fail_at) for tests.
 *
 * I1: memory is returned with the size it was asked with.
 * I2: no function here ever aborts on failure: NULL, and the caller reports DT_E_NO_MEMORY.
 * I3: pthread_atfork keeps the locks usable in a child.
 */
#ifndef DT_RUNTIME_ALLOC_H
#define DT_RUNTIME_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/status.h"

void *dt_alloc(size_t size);            /* 16-byte aligned; not zeroed; any thread */
void *dt_alloc_zeroed(size_t size);     /* as dt_alloc, zeroed */
void dt_free(void *block, size_t size); /* NULL passes through; any thread */

#define DT_BYTES_ALIGN 64
void *dt_bytes_alloc(size_t size); /* 64-byte aligned, not zeroed; size 0 gives non-NULL */
void dt_bytes_free(void *block, size_t size);

typedef struct dt_memory_stats {
    int64_t live_bytes;   /* bytes of storages handed out */
    int64_t peak_bytes;   /* greatest live_bytes since the last reset */
    int64_t cached_bytes; /* held back for reuse */
    int64_t objects;      /* small objects alive: 0 at the end of a leak-free test */
} dt_memory_stats;

void dt_memory_stats_get(dt_memory_stats *stats);
void dt_memory_stats_reset_peak(void);
void dt_memory_cache_empty(void);        /* gives cached large blocks back to the OS */
void dt_memory_limit_set(int64_t bytes); /* live storage bytes; 0: none */
int64_t dt_memory_limit(void);
int64_t dt_memory_live(void);

/* freed(context) is called, in whatever thread, whenever bytes of a storage are given back, until
 * this is called again (NULL: nobody). One at a time in the process; after the return the former
 * one is not called any more. It must not allocate, free or block. */
void dt_memory_watch(void (*freed)(void *context), void *context);

/* Test hook: the n-th allocation from now (1 = next), in any thread, fails, and all later ones when
 * `sticky`; 0 switches it off. Returns the number of allocations counted since the last call. */
int64_t dt_alloc_fail_at(int64_t n, bool sticky);

/* dt_alloc that reports. */
#define DT_ALLOC_OR_FAIL(ptr, size)                                                                \
    do {                                                                                           \
        (ptr) = dt_alloc(size);                                                                    \
        if (__builtin_expect((ptr) == NULL, 0))                                                    \
            return dt_fail(DT_E_NO_MEMORY, "out of memory: %zu bytes for %s", (size_t)(size),      \
                           __func__);                                                              \
    } while (0)

#endif
