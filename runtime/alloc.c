/* alloc.c: memory of the C core (first version: over malloc). */
#include "runtime/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic(int64_t) objects, live, peak, limit_bytes, fail_in, counted;
static _Atomic(bool) fail_sticky, fail_on;

static bool injected(void) {
    if (!atomic_load_explicit(&fail_on, memory_order_relaxed)) return false;
    atomic_fetch_add(&counted, 1);
    int64_t left = atomic_fetch_sub(&fail_in, 1) - 1;
    return left == 0 || (left < 0 && atomic_load(&fail_sticky));
}

void *dt_alloc(size_t size) {
    if (injected()) return NULL;
    void *p = malloc(size ? size : 1);
    if (p) atomic_fetch_add_explicit(&objects, 1, memory_order_relaxed);
    return p;
}

void *dt_alloc_zeroed(size_t size) {
    void *p = dt_alloc(size);
    if (p) memset(p, 0, size);
    return p;
}

void dt_free(void *block, size_t size) {
    (void)size;
    if (block == NULL) return;
    atomic_fetch_sub_explicit(&objects, 1, memory_order_relaxed);
    free(block);
}

void *dt_bytes_alloc(size_t size) {
    if (injected()) return NULL;
    int64_t limit = atomic_load(&limit_bytes);
    int64_t now = atomic_fetch_add(&live, (int64_t)size) + (int64_t)size;
    void *p = NULL;
    if (limit != 0 && now > limit) goto fail;
    if (posix_memalign(&p, DT_BYTES_ALIGN, size ? size : 1) != 0) goto fail;
    int64_t old = atomic_load(&peak);
    while (now > old && !atomic_compare_exchange_weak(&peak, &old, now)) {}
    return p;
fail:
    atomic_fetch_sub(&live, (int64_t)size);
    return NULL;
}

void dt_bytes_free(void *block, size_t size) {
    if (block == NULL) return;
    atomic_fetch_sub(&live, (int64_t)size);
    free(block);
}

void dt_memory_stats_get(dt_memory_stats *stats) {
    stats->live_bytes = atomic_load(&live);
    stats->peak_bytes = atomic_load(&peak);
    stats->cached_bytes = 0;
    stats->objects = atomic_load(&objects);
}

void dt_memory_stats_reset_peak(void) { atomic_store(&peak, atomic_load(&live)); }
void dt_memory_cache_empty(void) {}
void dt_memory_limit_set(int64_t bytes) { atomic_store(&limit_bytes, bytes); }

int64_t dt_alloc_fail_at(int64_t n, bool sticky) {
    int64_t c = atomic_exchange(&counted, 0);
    atomic_store(&fail_on, n != 0);
    atomic_store(&fail_sticky, sticky);
    atomic_store(&fail_in, n);
    return c;
}
