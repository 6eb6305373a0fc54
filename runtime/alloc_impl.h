/* alloc_impl.h: what the two halves of the allocator share (alloc.c: small, alloc_bytes.c: bytes).
 *
 * Inside runtime/ only.
 */
#ifndef DT_RUNTIME_ALLOC_IMPL_H
#define DT_RUNTIME_ALLOC_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Under AddressSanitizer every block comes from malloc with exactly its size, so that overruns and
 * uses after free are seen; there are no caches then. */
#if defined(__SANITIZE_ADDRESS__)
#define DT_ALLOC_BYPASS 1
#else
#define DT_ALLOC_BYPASS 0
#endif

#define DT_SMALL_MAX 4096 /* greatest size that the size classes of alloc.c serve */

/* A block of a size class: 16-byte aligned, and 64-byte aligned when size is a multiple of 64.
 * size <= DT_SMALL_MAX. Counts nothing and injects nothing. */
void *dt__small_alloc(size_t size);
void dt__small_free(void *block, size_t size);

/* Gives free slabs of exited threads, and pages of pooled slabs, back to the OS. */
void dt__small_trim(void);

/* Objects alive, over all threads (dt_memory_stats.objects). */
int64_t dt__objects(void);

/* True when the allocation being made is to fail (dt_alloc_fail_at). */
bool dt__alloc_injected(void);

/* Anonymous memory of `bytes` (a multiple of the page size) at a multiple of `align` (a power of
 * two, at least the page size); NULL on failure. */
void *dt__map_aligned(size_t bytes, size_t align);

#endif
