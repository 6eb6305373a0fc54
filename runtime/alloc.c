/* alloc.c: small objects.
 *
 * Memory is cut into slabs of 64 KiB, each at a multiple of its size and full of blocks of one size
 * class, so that a block's slab is found by masking its address.  A slab belongs to a heap, and a
 * heap to at most one thread:
 *
 *   alloc        pops from the current slab of the class: no lock, no atomic operation
 *   free, owner  pushes onto the block's slab
 *   free, other  pushes onto heap->remote (CAS); the owner sorts those blocks into their slabs when
 *                a current slab runs empty, a bounded number at a time, so that no single
 *                allocation pays for a long list
 *   thread exit  free slabs go to the pool, the heap to the orphans; the next new thread adopts it
 *
 *   slab:  pool --take_slab--> current --full--> unlisted --a block comes back--> avail --+
 *            ^                    ^                                                       |
 *            '----give_slab-------+-------------------------------------------------------'
 *
 * Slabs in the pool beyond POOL_KEEP keep only their first page resident.
 *
 * I1: only the owner touches a heap's fields, except remote, and its slabs' headers, except that
 *     any thread that holds a block may read slab->heap.
 * I2: slab->heap changes only while no block of the slab is handed out.
 * I3: a slab is listed when it is current or in avail; one that is not listed has no free block.
 * I4: slab->used counts blocks handed out, those on remote or pending lists included.
 * I5: the number of objects is the sum over all heaps and `objects_without_heap`; a heap's own
 *     count may be negative (objects freed by another thread than made them).
 * I6: after a fork the child uses its one thread's heap; the heaps of threads that are gone, which
 *     may have been caught halfway, are never adopted (their remote lists stay usable).
 */
#include "runtime/alloc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/alloc_impl.h"
#include "runtime/assert.h"

#if DT_ALLOC_BYPASS
#include <malloc.h>
#endif

/* ---- failure injection ----------------------------------------------------------------------- */

static _Atomic(bool) fail_armed, fail_sticky;
static _Atomic(int64_t) fail_countdown, fail_counted;

static __attribute__((noinline, cold)) bool injected_slow(void) {
    atomic_fetch_add_explicit(&fail_counted, 1, memory_order_relaxed);
    int64_t before = atomic_fetch_sub_explicit(&fail_countdown, 1, memory_order_relaxed);
    return before == 1 || (before < 1 && atomic_load_explicit(&fail_sticky, memory_order_relaxed));
}

static inline bool injected(void) {
    return DT_UNLIKELY(atomic_load_explicit(&fail_armed, memory_order_relaxed)) && injected_slow();
}

bool dt__alloc_injected(void) { return injected(); }

int64_t dt_alloc_fail_at(int64_t n, bool sticky) {
    atomic_store(&fail_armed, false);
    int64_t counted = atomic_exchange(&fail_counted, 0);
    atomic_store(&fail_sticky, sticky);
    atomic_store(&fail_countdown, n);
    atomic_store(&fail_armed, n > 0);
    return counted;
}

/* ---- size classes ---------------------------------------------------------------------------- */

/* Four classes for each doubling from 128 on, so that at most a fifth of a block is lost. */
static const uint16_t class_size[] = {
    16,  32,  48,  64,  80,  96,   112,  128,  160,  192,  224,  256,  320,  384,
    448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096,
};

enum { CLASS_COUNT = sizeof class_size / sizeof class_size[0], UNIT = 16 };

static uint8_t class_of_units[DT_SMALL_MAX / UNIT + 1]; /* by size rounded up to units; see start */

static inline unsigned class_of(size_t size) { return class_of_units[(size + UNIT - 1) / UNIT]; }

/* ---- heaps ----------------------------------------------------------------------------------- */

#define SLAB_BYTES ((size_t)64 << 10)
#define SLAB_COLOURS 16    /* header positions: else all headers fall into one set of L1 */
#define REGION_SLABS 64    /* slabs mapped at once */
#define POOL_KEEP 256      /* free slabs whose pages stay resident */
#define CARVE_BYTES 2048   /* blocks are threaded into the free list this many bytes at a time */
#define COLLECT_BLOCKS 256 /* remote blocks sorted at most by one refill */

typedef struct block {
    struct block *next;
} block;

typedef struct heap heap;

typedef struct slab {
    heap *heap;
    block *free;
    uint32_t used;
    uint32_t bump; /* offset of the first block never carved */
    uint32_t block_size;
    uint8_t cls;
    bool listed;
    bool trimmed;             /* pages behind the first were given back */
    struct slab *prev, *next; /* in avail; next: in the pool */
} slab;

_Static_assert(sizeof(slab) <= 64, "a slab's header is one cache line");

struct heap {
    slab *current[CLASS_COUNT];
    slab *avail[CLASS_COUNT];
    bool has_empty[CLASS_COUNT]; /* one slab without blocks in use stays in avail */
    block *pending;              /* taken from remote, not yet sorted */
    _Atomic(int64_t) objects;    /* written by the owner only */
    heap *next;                  /* in all_heaps */
    heap *next_orphan;
    _Alignas(64) _Atomic(block *) remote; /* on a line of its own: others write it */
};

/* What current points at while a class has no slab: it is read, never written. */
static slab no_slab;

/* The lock of the cold parts below it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static heap *all_heaps;
static heap *orphans;
static slab *pool;
static char *region_at, *region_end;
static _Atomic(int) pool_count;

static _Atomic(int64_t) objects_without_heap;
static pthread_key_t exit_key;
static bool exit_key_made;

static _Thread_local heap *my_heap;

static inline slab *slab_of(const void *p) {
    uintptr_t base = (uintptr_t)p & ~(SLAB_BYTES - 1);
    return (slab *)(base + base / SLAB_BYTES % SLAB_COLOURS * 64);
}

static inline void count_object(heap *h, int64_t by) {
    if (DT_LIKELY(h != NULL)) {
        int64_t n = atomic_load_explicit(&h->objects, memory_order_relaxed);
        atomic_store_explicit(&h->objects, n + by, memory_order_relaxed);
    } else {
        atomic_fetch_add_explicit(&objects_without_heap, by, memory_order_relaxed);
    }
}

/* ---- slabs: pool and lists ------------------------------------------------------------------- */

void *dt__map_aligned(size_t bytes, size_t align) {
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if ((uintptr_t)p % align == 0) return p;
    munmap(p, bytes);
    p = mmap(NULL, bytes + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t before = -(uintptr_t)p % align, after = align - before;
    if (before != 0) munmap(p, before);
    if (after != 0) munmap(p + before + bytes, after);
    return p + before;
}

static slab *take_slab_locked(void) {
    slab *s = pool;
    if (s != NULL) {
        pool = s->next;
        atomic_fetch_sub_explicit(&pool_count, 1, memory_order_relaxed);
        return s;
    }
    if (region_at == region_end) {
        char *region = dt__map_aligned(REGION_SLABS * SLAB_BYTES, SLAB_BYTES);
        if (region == NULL) return NULL;
        region_at = region;
        region_end = region + REGION_SLABS * SLAB_BYTES;
    }
    s = slab_of(region_at);
    region_at += SLAB_BYTES;
    return s;
}

/* Where a slab's blocks begin: behind its header, at a multiple of 64. */
static uint32_t first_offset(const slab *s) {
    return (uint32_t)(((uintptr_t)(s + 1) + 63) / 64 * 64 % SLAB_BYTES);
}

static slab *take_slab(heap *h, unsigned cls) {
    pthread_mutex_lock(&lock);
    slab *s = take_slab_locked();
    pthread_mutex_unlock(&lock);
    if (s == NULL) return NULL;
    s->heap = h;
    s->free = NULL;
    s->used = 0;
    s->bump = first_offset(s);
    s->block_size = class_size[cls];
    s->cls = (uint8_t)cls;
    s->listed = true;
    s->trimmed = false;
    return s;
}

static void trim_slab(slab *s) {
    size_t page = 4096; /* the header lies in the first one */
    char *base = (char *)((uintptr_t)s & ~(SLAB_BYTES - 1));
    if (!s->trimmed) madvise(base + page, SLAB_BYTES - page, MADV_DONTNEED);
    s->trimmed = true;
}

static void give_slab(slab *s) {
    if (atomic_load_explicit(&pool_count, memory_order_relaxed) >= POOL_KEEP) trim_slab(s);
    pthread_mutex_lock(&lock);
    s->next = pool;
    pool = s;
    atomic_fetch_add_explicit(&pool_count, 1, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

static void avail_link(heap *h, slab *s) {
    s->prev = NULL;
    s->next = h->avail[s->cls];
    if (s->next != NULL) s->next->prev = s;
    h->avail[s->cls] = s;
    s->listed = true;
}

static void avail_unlink(heap *h, slab *s) {
    if (s->prev != NULL)
        s->prev->next = s->next;
    else
        h->avail[s->cls] = s->next;
    if (s->next != NULL) s->next->prev = s->prev;
}

/* ---- the owner's side ------------------------------------------------------------------------ */

/* The slab was unlisted, or is without used blocks now. */
static __attribute__((noinline)) void free_rare(heap *h, slab *s) {
    if (!s->listed) avail_link(h, s);
    if (s->used != 0 || s == h->current[s->cls]) return;
    if (!h->has_empty[s->cls]) {
        h->has_empty[s->cls] = true;
        return;
    }
    avail_unlink(h, s);
    give_slab(s);
}

static inline void free_own(heap *h, slab *s, block *b) {
    DT_DEBUG_ASSERT(s->used > 0);
    b->next = s->free;
    s->free = b;
    s->used--;
    if (DT_UNLIKELY(s->used == 0 || !s->listed)) free_rare(h, s);
}

/* Sorts at most `max` remotely freed blocks into their slabs. */
static void collect(heap *h, int max) {
    for (int n = 0; n < max; n++) {
        if (h->pending == NULL) {
            if (atomic_load_explicit(&h->remote, memory_order_relaxed) == NULL) return;
            h->pending = atomic_exchange_explicit(&h->remote, NULL, memory_order_acquire);
        }
        block *b = h->pending;
        h->pending = b->next;
        free_own(h, slab_of(b), b);
    }
}

/* Threads some never used blocks of s into its free list. */
static bool carve(slab *s) {
    char *base = (char *)((uintptr_t)s & ~(SLAB_BYTES - 1));
    uint32_t size = s->block_size, left = (uint32_t)SLAB_BYTES - s->bump;
    uint32_t n = CARVE_BYTES / size > 0 ? CARVE_BYTES / size : 1;
    if (size == 0 || left < size) return false;
    if (n > left / size) n = left / size;
    block *first = (block *)(base + s->bump), *b = first;
    for (uint32_t k = 1; k < n; k++, b = b->next) b->next = (block *)((char *)b + size);
    b->next = NULL;
    s->free = first;
    s->bump += n * size;
    return true;
}

/* I3 and I4 for one slab. */
static bool slab_is_valid(const heap *h, const slab *s, unsigned cls) {
    uint32_t carved = (s->bump - first_offset(s)) / s->block_size, free = 0;
    for (const block *b = s->free; b != NULL && free <= carved; b = b->next) {
        if (slab_of(b) != s) return false;
        free++;
    }
    return s->heap == h && s->cls == cls && s->block_size == class_size[cls] && s->listed &&
           s->bump <= SLAB_BYTES && s->used + free == carved;
}

/* The slabs of one class that the heap knows of. */
static __attribute__((unused)) bool class_is_valid(const heap *h, unsigned cls) {
    const slab *current = h->current[cls], *prev = NULL;
    int empty = 0;
    if (current != &no_slab && !slab_is_valid(h, current, cls)) return false;
    for (const slab *s = h->avail[cls]; s != NULL; prev = s, s = s->next) {
        if (s == current || s->prev != prev || !slab_is_valid(h, s, cls)) return false;
        empty += s->used == 0;
    }
    return empty == h->has_empty[cls];
}

/* Replaces a current slab that has nothing left. */
static slab *next_slab(heap *h, unsigned cls) {
    slab *s = h->avail[cls];
    if (s != NULL) {
        avail_unlink(h, s);
        if (s->used == 0) h->has_empty[cls] = false;
    } else {
        s = take_slab(h, cls);
    }
    return s;
}

static __attribute__((noinline, unused)) void *refill(heap *h, unsigned cls) {
    slab *s = h->current[cls];
    collect(h, COLLECT_BLOCKS);
    while (s->free == NULL && (s == &no_slab || !carve(s))) {
        if (s != &no_slab) s->listed = false;
        h->current[cls] = &no_slab; /* a failure below must leave a valid heap */
        s = next_slab(h, cls);
        if (s == NULL) return NULL;
        h->current[cls] = s;
    }
    block *b = s->free;
    s->free = b->next;
    s->used++;
    DT_DEBUG_ASSERT(class_is_valid(h, cls));
    return b;
}

/* ---- threads --------------------------------------------------------------------------------- */

static void release_empty_slabs(heap *h) {
    collect(h, INT32_MAX);
    for (unsigned cls = 0; cls < CLASS_COUNT; cls++) {
        slab *s = h->current[cls];
        if (s != &no_slab) {
            /* An exhausted current slab is not listed: its blocks come back as remote ones. */
            s->listed = false;
            h->current[cls] = &no_slab;
            if (s->used == 0)
                give_slab(s);
            else if (s->free != NULL || SLAB_BYTES - s->bump >= s->block_size)
                avail_link(h, s);
        }
        for (slab *next = h->avail[cls]; (s = next) != NULL;) {
            next = s->next;
            if (s->used != 0) continue;
            avail_unlink(h, s);
            give_slab(s);
        }
        h->has_empty[cls] = false;
    }
}

static void thread_exit(void *context) {
    heap *h = context;
    my_heap = NULL;
    release_empty_slabs(h);
    pthread_mutex_lock(&lock);
    h->next_orphan = orphans;
    orphans = h;
    pthread_mutex_unlock(&lock);
}

/* This thread's heap: an orphan, or a new one; NULL: out of memory. */
static __attribute__((noinline, cold)) heap *adopt_heap(void) {
    pthread_mutex_lock(&lock);
    heap *h = orphans;
    if (h != NULL) orphans = h->next_orphan;
    pthread_mutex_unlock(&lock);
    if (h == NULL) {
        h = aligned_alloc(64, sizeof *h);
        if (h == NULL) return NULL;
        memset(h, 0, sizeof *h);
        for (unsigned cls = 0; cls < CLASS_COUNT; cls++) h->current[cls] = &no_slab;
        pthread_mutex_lock(&lock);
        h->next = all_heaps;
        all_heaps = h;
        pthread_mutex_unlock(&lock);
    }
    my_heap = h;
    /* Where this fails, the heap is only never adopted by another thread. */
    if (exit_key_made) (void)pthread_setspecific(exit_key, h);
    return h;
}

static void fork_prepare(void) { pthread_mutex_lock(&lock); }
static void fork_done(void) { pthread_mutex_unlock(&lock); }

static __attribute__((constructor)) void start(void) {
    unsigned cls = 0;
    for (size_t units = 0; units < sizeof class_of_units; units++) {
        if (units * UNIT > class_size[cls]) cls++;
        class_of_units[units] = (uint8_t)cls;
    }
    exit_key_made = pthread_key_create(&exit_key, thread_exit) == 0;
    (void)pthread_atfork(fork_prepare, fork_done, fork_done);
}

/* ---- small blocks ---------------------------------------------------------------------------- */

#if !DT_ALLOC_BYPASS

static __attribute__((noinline, cold)) void *small_alloc_first(size_t size) {
    heap *h = adopt_heap();
    return h == NULL ? NULL : refill(h, class_of(size));
}

static inline void *small_alloc(heap *h, size_t size) {
    if (DT_UNLIKELY(h == NULL)) return small_alloc_first(size);
    unsigned cls = class_of(size);
    slab *s = h->current[cls];
    block *b = s->free;
    if (DT_UNLIKELY(b == NULL)) return refill(h, cls);
    s->free = b->next;
    s->used++;
    return b;
}

static __attribute__((noinline)) void free_remote(slab *s, block *b) {
    heap *owner = s->heap;
    block *head = atomic_load_explicit(&owner->remote, memory_order_relaxed);
    do {
        b->next = head;
        /* Release: the owner's later use of the block comes after ours. */
    } while (!atomic_compare_exchange_weak_explicit(&owner->remote, &head, b, memory_order_release,
                                                    memory_order_relaxed));
}

static inline void small_free(heap *h, void *p, size_t size) {
    slab *s = slab_of(p);
    DT_DEBUG_ASSERT(s->cls == class_of(size));
    (void)size;
    if (DT_LIKELY(s->heap == h))
        free_own(h, s, p);
    else
        free_remote(s, p);
}

#endif

void *dt__small_alloc(size_t size) {
    DT_DEBUG_ASSERT(size <= DT_SMALL_MAX);
#if DT_ALLOC_BYPASS
    void *p = NULL;
    return posix_memalign(&p, size % 64 == 0 ? 64 : 16, size ? size : 1) == 0 ? p : NULL;
#else
    return small_alloc(my_heap, size);
#endif
}

void dt__small_free(void *p, size_t size) {
#if DT_ALLOC_BYPASS
    DT_ASSERT(malloc_usable_size(p) == (size ? size : 1)); /* I1 of alloc.h */
    free(p);
#else
    small_free(my_heap, p, size);
#endif
}

void dt__small_trim(void) {
    pthread_mutex_lock(&lock);
    heap *taken = orphans;
    orphans = NULL;
    pthread_mutex_unlock(&lock);
    for (heap *h = taken; h != NULL; h = h->next_orphan) release_empty_slabs(h);
    pthread_mutex_lock(&lock);
    while (taken != NULL) {
        heap *h = taken;
        taken = h->next_orphan;
        h->next_orphan = orphans;
        orphans = h;
    }
    for (slab *s = pool; s != NULL; s = s->next) trim_slab(s);
    pthread_mutex_unlock(&lock);
}

/* ---- objects --------------------------------------------------------------------------------- */

void *dt_alloc(size_t size) {
    if (injected()) return NULL;
#if DT_ALLOC_BYPASS
    if (my_heap == NULL && adopt_heap() == NULL) return NULL;
    void *p = malloc(size ? size : 1);
    heap *h = my_heap;
#else
    heap *h = my_heap;
    void *p = DT_LIKELY(size <= DT_SMALL_MAX) ? small_alloc(h, size) : malloc(size);
    if (DT_UNLIKELY(h == NULL)) h = my_heap;
#endif
    if (DT_UNLIKELY(p == NULL)) return NULL;
    count_object(h, 1);
    return p;
}

void *dt_alloc_zeroed(size_t size) {
    void *p = dt_alloc(size);
    if (DT_LIKELY(p != NULL)) memset(p, 0, size);
    return p;
}

void dt_free(void *p, size_t size) {
    if (DT_UNLIKELY(p == NULL)) return;
    heap *h = my_heap;
    count_object(h, -1);
#if DT_ALLOC_BYPASS
    DT_ASSERT(malloc_usable_size(p) == (size ? size : 1)); /* I1 of alloc.h */
    free(p);
#else
    if (DT_LIKELY(size <= DT_SMALL_MAX))
        small_free(h, p, size);
    else
        free(p);
#endif
}

int64_t dt__objects(void) {
    int64_t sum = atomic_load_explicit(&objects_without_heap, memory_order_relaxed);
    pthread_mutex_lock(&lock);
    for (heap *h = all_heaps; h != NULL; h = h->next)
        sum += atomic_load_explicit(&h->objects, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
    return sum;
}
