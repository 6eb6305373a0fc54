/* alloc_bytes.c: the bytes of storages.
 *
 *   up to 4 KiB     size classes of alloc.c, rounded up to 64 bytes
 *   below 1 MiB     "medium": classes with a stack of free blocks each, over the C library's heap
 *   from 1 MiB on   "large": mappings of their own, on huge pages from 4 MiB on, cached in bins
 *
 * Size classes are eight for each doubling, so a block's capacity follows from the size it was
 * asked with and nobody has to record it.  A cached mapping up to 1.25 times as long as wanted is
 * taken too: its tail is unmapped, which is far cheaper than faulting in a new one.
 *
 * What is cached is bounded by the greater of CACHE_MIN and half of the live peak, for medium
 * blocks also by MEDIUM_CACHE_MAX; the mapping cached longest goes first.  When memory is out the
 * caches are emptied before an allocation fails.
 *
 * I1: live_bytes counts what was asked for, by one atomic addition for each call: exact at any
 * time, and the limit is never passed, also not by two threads at once. I2: a cached block holds
 * its links in its own first bytes; the caches allocate nothing. I3: nothing is unmapped or freed
 * under a lock. I4: the locks are leaves: nothing is called under them, and fork holds them all.
 */
#include "runtime/alloc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/alloc_impl.h"
#include "runtime/assert.h"

#define LARGE_MIN ((size_t)1 << 20)
#define HUGE_MIN ((size_t)4 << 20)
#define HUGE_PAGE ((size_t)2 << 20)
#define PAGE ((size_t)4096)
#define CACHE_MIN ((int64_t)256 << 20)
#define MEDIUM_CACHE_MAX ((int64_t)64 << 20)
#define BYTES_MAX ((size_t)1 << 47) /* more than user space has: keeps sums from overflowing */

/* ---- counters -------------------------------------------------------------------------------- */

static _Atomic(int64_t) live_bytes, peak_bytes, limit_bytes;
static _Atomic(int64_t) medium_cached, large_cached;

static bool count_live(int64_t size) {
    int64_t now = atomic_fetch_add_explicit(&live_bytes, size, memory_order_relaxed) + size;
    int64_t limit = atomic_load_explicit(&limit_bytes, memory_order_relaxed);
    if (DT_UNLIKELY(limit != 0 && now > limit)) {
        atomic_fetch_sub_explicit(&live_bytes, size, memory_order_relaxed);
        return false;
    }
    int64_t peak = atomic_load_explicit(&peak_bytes, memory_order_relaxed);
    while (DT_UNLIKELY(now > peak) &&
           !atomic_compare_exchange_weak_explicit(&peak_bytes, &peak, now, memory_order_relaxed,
                                                  memory_order_relaxed)) {}
    return true;
}

static void uncount_live(int64_t size) {
    atomic_fetch_sub_explicit(&live_bytes, size, memory_order_relaxed);
}

static int64_t cached_now(void) {
    return atomic_load_explicit(&medium_cached, memory_order_relaxed) +
           atomic_load_explicit(&large_cached, memory_order_relaxed);
}

#if DT_ALLOC_BYPASS

static void *block_alloc(size_t size) {
    void *p = NULL;
    if (size > (size_t)1 << 39) return NULL; /* the sanitizer would end the process */
    return posix_memalign(&p, DT_BYTES_ALIGN, size ? size : 1) == 0 ? p : NULL;
}
static void block_free(void *p, size_t size) {
    (void)size;
    free(p);
}
void dt_memory_cache_empty(void) { dt__small_trim(); }

#else

static int64_t cache_max(void) {
    int64_t half = atomic_load_explicit(&peak_bytes, memory_order_relaxed) / 2;
    return half > CACHE_MIN ? half : CACHE_MIN;
}

/* ---- classes: eight for each doubling -------------------------------------------------------- */

enum { STEPS = 8, MEDIUM_CLASSES = 8 * STEPS, LARGE_CLASSES = 27 * STEPS + 1 };

/* The class of size among those above `base` (a power of two), and the capacity of that class:
 * class 0 ends at base * 9/8. size > base - base/16 or so; sizes at or below base are class -1. */
static int class_above(size_t base, size_t size, size_t *capacity) {
    if (size <= base) {
        *capacity = base;
        return -1;
    }
    int log2 = 63 - __builtin_clzll(size - 1); /* base <= 2^log2 < size */
    size_t step = ((size_t)1 << log2) / STEPS;
    size_t k = (size - ((size_t)1 << log2) + step - 1) / step; /* 1..STEPS */
    *capacity = ((size_t)1 << log2) + k * step;
    return (log2 - __builtin_ctzll(base)) * STEPS + (int)k - 1;
}

/* ---- medium blocks --------------------------------------------------------------------------- */

typedef struct medium {
    struct medium *next;
} medium;

/* One lock for each doubling; not for each class, since fork takes them all and ThreadSanitizer
 * does not follow more than 64 held at once. */
enum { MEDIUM_LOCKS = MEDIUM_CLASSES / STEPS };

typedef struct medium_lock_line {
    _Alignas(64) pthread_mutex_t mutex;
} medium_lock_line;

static medium_lock_line medium_locks[MEDIUM_LOCKS];
static medium *medium_bins[MEDIUM_CLASSES];

static pthread_mutex_t *medium_lock(int cls) { return &medium_locks[cls / STEPS].mutex; }

static void *medium_alloc(size_t size) {
    size_t capacity;
    int cls = class_above(DT_SMALL_MAX, size, &capacity);
    pthread_mutex_lock(medium_lock(cls));
    medium *m = medium_bins[cls];
    if (m != NULL) medium_bins[cls] = m->next;
    pthread_mutex_unlock(medium_lock(cls));
    if (m != NULL) {
        atomic_fetch_sub_explicit(&medium_cached, (int64_t)capacity, memory_order_relaxed);
        return m;
    }
    return aligned_alloc(DT_BYTES_ALIGN, capacity);
}

static void medium_free(void *p, size_t size) {
    size_t capacity;
    int cls = class_above(DT_SMALL_MAX, size, &capacity);
    int64_t cached = atomic_load_explicit(&medium_cached, memory_order_relaxed);
    if (cached + (int64_t)capacity > MEDIUM_CACHE_MAX) {
        free(p);
        return;
    }
    atomic_fetch_add_explicit(&medium_cached, (int64_t)capacity, memory_order_relaxed);
    medium *m = p;
    pthread_mutex_lock(medium_lock(cls));
    m->next = medium_bins[cls];
    medium_bins[cls] = m;
    pthread_mutex_unlock(medium_lock(cls));
}

static void medium_empty(void) {
    for (int cls = 0; cls < MEDIUM_CLASSES; cls++) {
        pthread_mutex_lock(medium_lock(cls));
        medium *m = medium_bins[cls];
        medium_bins[cls] = NULL;
        pthread_mutex_unlock(medium_lock(cls));
        size_t capacity = 0;
        while (m != NULL) {
            medium *next = m->next;
            /* Any size of the class has its capacity; find it by the class's own bounds. */
            int log2 = 12 + cls / STEPS;
            capacity = ((size_t)1 << log2) / STEPS * (size_t)(STEPS + cls % STEPS + 1);
            atomic_fetch_sub_explicit(&medium_cached, (int64_t)capacity, memory_order_relaxed);
            free(m);
            m = next;
        }
    }
}

/* ---- large blocks ---------------------------------------------------------------------------- */

typedef struct large {
    struct large *bin_prev, *bin_next; /* same class, newest first */
    struct large *old_prev, *old_next; /* all cached, newest first */
    size_t capacity;
    int cls;
} large;

static pthread_mutex_t large_lock = PTHREAD_MUTEX_INITIALIZER;
static large *large_bins[LARGE_CLASSES];
static large *newest, *oldest;

static void cache_unlink(large *l) {
    if (l->bin_prev != NULL)
        l->bin_prev->bin_next = l->bin_next;
    else
        large_bins[l->cls] = l->bin_next;
    if (l->bin_next != NULL) l->bin_next->bin_prev = l->bin_prev;
    if (l->old_prev != NULL)
        l->old_prev->old_next = l->old_next;
    else
        newest = l->old_next;
    if (l->old_next != NULL)
        l->old_next->old_prev = l->old_prev;
    else
        oldest = l->old_prev;
    atomic_fetch_sub_explicit(&large_cached, (int64_t)l->capacity, memory_order_relaxed);
}

static void cache_link(large *l) {
    l->bin_prev = NULL;
    l->bin_next = large_bins[l->cls];
    if (l->bin_next != NULL) l->bin_next->bin_prev = l;
    large_bins[l->cls] = l;
    l->old_prev = NULL;
    l->old_next = newest;
    if (newest != NULL)
        newest->old_prev = l;
    else
        oldest = l;
    newest = l;
    atomic_fetch_add_explicit(&large_cached, (int64_t)l->capacity, memory_order_relaxed);
}

/* Unlinks the oldest mappings until at most `keep` bytes are cached; a list through old_next. */
static large *cache_evict_locked(int64_t keep) {
    large *evicted = NULL;
    while (oldest != NULL && cached_now() > keep) {
        large *l = oldest;
        cache_unlink(l);
        l->old_next = evicted;
        evicted = l;
    }
    return evicted;
}

static void unmap_all(large *l) {
    while (l != NULL) {
        large *next = l->old_next;
        munmap(l, l->capacity);
        l = next;
    }
}

static int large_class(size_t size, size_t *capacity) {
    return class_above(LARGE_MIN, size, capacity) + 1; /* class 0 is 1 MiB itself */
}

static large *cache_take(int cls, size_t capacity) {
    large *found = NULL;
    pthread_mutex_lock(&large_lock);
    for (int c = cls; c < LARGE_CLASSES && c <= cls + 2 && found == NULL; c++)
        if (large_bins[c] != NULL && large_bins[c]->capacity <= capacity + capacity / 4)
            found = large_bins[c];
    if (found != NULL) cache_unlink(found);
    pthread_mutex_unlock(&large_lock);
    return found;
}

static void *large_map(size_t capacity) {
    if (capacity < HUGE_MIN) return dt__map_aligned(capacity, PAGE);
    void *p = dt__map_aligned(capacity, HUGE_PAGE);
    /* Only whole huge pages: a part of one at the end would be resident whole when touched. The
     * kernel may refuse; then these are pages like any other. */
    if (p != NULL) (void)madvise(p, capacity / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    return p;
}

static void *large_alloc(size_t size) {
    size_t capacity;
    int cls = large_class(size, &capacity);
    large *l = cache_take(cls, capacity);
    if (l != NULL) {
        size_t tail = l->capacity - capacity;
        if (tail != 0) munmap((char *)l + capacity, tail);
        return l;
    }
    void *p = large_map(capacity);
    if (p != NULL || cached_now() == 0) return p;
    dt_memory_cache_empty();
    return large_map(capacity);
}

static void large_free(void *p, size_t size) {
    large *l = p;
    size_t capacity;
    int cls = large_class(size, &capacity);
    int64_t keep = cache_max();
    if ((int64_t)capacity > keep) {
        munmap(p, capacity);
        return;
    }
    l->capacity = capacity;
    l->cls = cls;
    pthread_mutex_lock(&large_lock);
    cache_link(l);
    large *evicted = cache_evict_locked(keep);
    pthread_mutex_unlock(&large_lock);
    unmap_all(evicted);
}

void dt_memory_cache_empty(void) {
    medium_empty();
    pthread_mutex_lock(&large_lock);
    large *evicted = cache_evict_locked(-1);
    pthread_mutex_unlock(&large_lock);
    unmap_all(evicted);
    dt__small_trim();
}

/* ---- fork ------------------------------------------------------------------------------------ */

static void fork_prepare(void) {
    for (int k = 0; k < MEDIUM_LOCKS; k++) pthread_mutex_lock(&medium_locks[k].mutex);
    pthread_mutex_lock(&large_lock);
}

static void fork_done(void) {
    pthread_mutex_unlock(&large_lock);
    for (int k = 0; k < MEDIUM_LOCKS; k++) pthread_mutex_unlock(&medium_locks[k].mutex);
}

static __attribute__((constructor)) void start(void) {
    for (int k = 0; k < MEDIUM_LOCKS; k++) pthread_mutex_init(&medium_locks[k].mutex, NULL);
    (void)pthread_atfork(fork_prepare, fork_done, fork_done);
}

static void *block_alloc(size_t size) {
    if (size <= DT_SMALL_MAX) return dt__small_alloc(size <= 64 ? 64 : (size + 63) / 64 * 64);
    if (size >= LARGE_MIN) return large_alloc(size);
    void *p = medium_alloc(size);
    if (p != NULL || cached_now() == 0) return p;
    dt_memory_cache_empty();
    return medium_alloc(size);
}

static void block_free(void *p, size_t size) {
    if (size <= DT_SMALL_MAX)
        dt__small_free(p, size <= 64 ? 64 : (size + 63) / 64 * 64);
    else if (size >= LARGE_MIN)
        large_free(p, size);
    else
        medium_free(p, size);
}

#endif

/* ---- who waits for memory -------------------------------------------------------------------- */

static _Atomic(bool) watched;
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static void (*watch_freed)(void *context);
static void *watch_context;

void dt_memory_watch(void (*freed)(void *context), void *context) {
    pthread_mutex_lock(&watch_lock);
    watch_freed = freed;
    watch_context = context;
    atomic_store_explicit(&watched, freed != NULL, memory_order_seq_cst);
    pthread_mutex_unlock(&watch_lock);
}

static __attribute__((noinline, cold)) void tell_watcher(void) {
    pthread_mutex_lock(&watch_lock);
    if (watch_freed != NULL) watch_freed(watch_context);
    pthread_mutex_unlock(&watch_lock);
}

static void forget_watcher_in_child(void) {
    pthread_mutex_init(&watch_lock, NULL);
    watch_freed = NULL;
    atomic_store_explicit(&watched, false, memory_order_relaxed);
}

static __attribute__((constructor)) void watch_forks(void) {
    (void)pthread_atfork(NULL, NULL, forget_watcher_in_child);
}

/* ---- the public side ------------------------------------------------------------------------- */

void *dt_bytes_alloc(size_t size) {
    if (DT_UNLIKELY(size > BYTES_MAX) || dt__alloc_injected()) return NULL;
    if (DT_UNLIKELY(!count_live((int64_t)size))) return NULL;
    void *p = block_alloc(size);
    if (DT_UNLIKELY(p == NULL)) uncount_live((int64_t)size);
    return p;
}

void dt_bytes_free(void *block, size_t size) {
    if (block == NULL) return;
    block_free(block, size);
    uncount_live((int64_t)size);
    if (DT_UNLIKELY(atomic_load_explicit(&watched, memory_order_seq_cst))) tell_watcher();
}

void dt_memory_stats_get(dt_memory_stats *stats) {
    stats->live_bytes = atomic_load_explicit(&live_bytes, memory_order_relaxed);
    stats->peak_bytes = atomic_load_explicit(&peak_bytes, memory_order_relaxed);
    stats->cached_bytes = cached_now();
    stats->objects = dt__objects();
}

void dt_memory_stats_reset_peak(void) {
    int64_t now = atomic_load_explicit(&live_bytes, memory_order_relaxed);
    atomic_store_explicit(&peak_bytes, now, memory_order_relaxed);
}

int64_t dt_memory_live(void) { return atomic_load_explicit(&live_bytes, memory_order_relaxed); }

int64_t dt_memory_limit(void) { return atomic_load_explicit(&limit_bytes, memory_order_relaxed); }

void dt_memory_limit_set(int64_t bytes) {
    atomic_store_explicit(&limit_bytes, bytes > 0 ? bytes : 0, memory_order_relaxed);
}
