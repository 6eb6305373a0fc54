/* packed.c: the table of packed weights.
 *
 * One table for the process behind one lock, which is held for look-ups only, never while packing:
 * two threads may pack the same block at once, and the second throws its copy away.  A block is
 * packed the second time that it is asked for; first times are noted in a small table of hashes.
 *
 *   asked once (a hash) --asked again--> packed, in the table
 *     --storage changes or dies--> out of the table
 *     --table full, and idle for long--> out of the table
 *
 * When the table is full, only a copy that was idle for several rounds of look-ups makes room:
 * weights that are cycled through and do not all fit would otherwise be packed again at every
 * call.
 *
 * I1: an entry in the table equals the bytes of its storage: the storage is marked `derived`
 *     before the copy is made, under a reader's right to the bytes, and drop() runs before a
 *     writer starts.
 * I2: an entry holds no reference to its storage; drop() runs before the storage's memory is
 *     reused.
 * I3: storages that an outsider may write (external) have no entries.
 * I4: the lock is a leaf, and fork holds it.
 */
#include "kernels/cpu/packed.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/cpu/gemm.h"
#include "runtime/alloc.h"
#include "runtime/assert.h"

#define BUCKETS 1024
#define SEEN 1024
#define BYTES_MAX ((int64_t)512 << 20)
#define IDLE_ROUNDS 4

struct dt__packed {
    _Atomic(uint32_t) refs;
    uint32_t version;
    int32_t width;       /* of a panel: another instruction set is another copy */
    dt_storage *storage; /* borrowed: for comparing only */
    dt__packed_key key;
    uint64_t last_use;
    struct dt__packed *next;          /* in its bucket */
    struct dt__packed *older, *newer; /* in order of use */
    void *data;
    size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    dt__packed *buckets[BUCKETS];
    dt__packed *oldest, *newest;
    uint64_t seen[SEEN];
    uint64_t clock; /* look-ups so far */
    int64_t entries, bytes, limit, hits, made;
} table = {.limit = BYTES_MAX};

static void fork_prepare(void) { pthread_mutex_lock(&lock); }
static void fork_done(void) { pthread_mutex_unlock(&lock); }

static uint64_t mix(uint64_t h, uint64_t x) {
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

static uint64_t hash_of(const dt_storage *s, const dt__packed_key *key) {
    uint64_t h = mix((uintptr_t)s, (uint64_t)key->offset);
    h = mix(h, (uint64_t)key->k);
    h = mix(h, (uint64_t)key->n);
    h = mix(h, (uint64_t)key->sbk);
    return mix(h, (uint64_t)key->sbn);
}

/* ---- the table, under the lock --------------------------------------------------------------- */

static void use_unlink(dt__packed *p) {
    if (p->older)
        p->older->newer = p->newer;
    else
        table.oldest = p->newer;
    if (p->newer)
        p->newer->older = p->older;
    else
        table.newest = p->older;
}

static void use_link_newest(dt__packed *p) {
    p->older = table.newest;
    p->newer = NULL;
    if (table.newest)
        table.newest->newer = p;
    else
        table.oldest = p;
    table.newest = p;
    p->last_use = table.clock;
}

static dt__packed *find(const dt_storage *s, const dt__packed_key *key, int width, uint64_t hash) {
    uint32_t version = atomic_load_explicit(&s->version, memory_order_relaxed);
    for (dt__packed *p = table.buckets[hash % BUCKETS]; p; p = p->next)
        if (p->storage == s && p->version == version && p->width == width &&
            !memcmp(&p->key, key, sizeof *key))
            return p;
    return NULL;
}

/* Takes p out; its reference goes to the caller's list `gone`. */
static void take_out(dt__packed *p, dt__packed **gone) {
    dt__packed **at = &table.buckets[hash_of(p->storage, &p->key) % BUCKETS];
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    use_unlink(p);
    table.entries--;
    table.bytes -= (int64_t)p->bytes;
    p->next = *gone;
    *gone = p;
}

/* Room for `bytes` more, by giving up what was idle for long. */
static bool make_room(int64_t bytes, dt__packed **gone) {
    while (table.bytes + bytes > table.limit) {
        dt__packed *p = table.oldest;
        uint64_t patience = (uint64_t)IDLE_ROUNDS * (uint64_t)(table.entries + 1);
        if (!p || table.clock - p->last_use < patience) return false;
        take_out(p, gone);
    }
    return true;
}

/* Whether this is not the first time. */
static bool seen_before(const dt_storage *s, uint64_t hash) {
    uint64_t mark = mix(hash, atomic_load_explicit(&s->version, memory_order_relaxed)) | 1;
    uint64_t *slot = &table.seen[hash % SEEN];
    if (*slot == mark) return true;
    *slot = mark;
    return false;
}

/* ---- entries --------------------------------------------------------------------------------- */

void dt__packed_release(dt__packed *p) {
    if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1) return;
    dt_bytes_free(p->data, p->bytes);
    dt_free(p, sizeof *p);
}

const void *dt__packed_data(const dt__packed *packed) { return packed ? packed->data : NULL; }

static void release_all(dt__packed *list) {
    while (list) {
        dt__packed *next = list->next;
        dt__packed_release(list);
        list = next;
    }
}

static void drop(dt_storage *s) {
    dt__packed *gone = NULL;
    pthread_mutex_lock(&lock);
    for (dt__packed *p = table.oldest, *newer; p; p = newer) {
        newer = p->newer;
        if (p->storage == s) take_out(p, &gone);
    }
    pthread_mutex_unlock(&lock);
    release_all(gone);
}

static void set_up(void) {
    dt_storage_set_derived_drop(drop);
    pthread_atfork(fork_prepare, fork_done, fork_done);
}

/* A copy with one reference, not in the table yet. NULL: out of memory, which only costs speed. */
static dt__packed *make(dt_storage *s, const dt__packed_key *key) {
    const dt__gemm_ops *ops = dt__gemm_ops_now(DT_F32);
    dt__packed *p = dt_alloc_zeroed(sizeof *p);
    if (!p) return NULL;
    int64_t panels = (key->n + ops->width - 1) / ops->width;
    p->bytes = (size_t)(panels * ops->width * key->k) * sizeof(float);
    p->data = dt_bytes_alloc(p->bytes);
    if (!p->data) {
        dt_free(p, sizeof *p);
        return NULL;
    }
    atomic_init(&p->refs, 1);
    p->version = atomic_load_explicit(&s->version, memory_order_relaxed);
    p->width = ops->width;
    p->storage = s;
    p->key = *key;
    const float *b = atomic_load_explicit(&s->data, memory_order_acquire);
    ops->pack(key->k, key->n, b + key->offset, key->sbk, key->sbn, p->data, key->k * ops->width);
    return p;
}

/* Puts p into the table, or finds that another thread was faster. The caller's reference is kept.
 */
static void publish(dt__packed *p, uint64_t hash) {
    dt__packed *gone = NULL;
    pthread_mutex_lock(&lock);
    bool wanted = !find(p->storage, &p->key, p->width, hash) && make_room((int64_t)p->bytes, &gone);
    if (wanted) {
        atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
        p->next = table.buckets[hash % BUCKETS];
        table.buckets[hash % BUCKETS] = p;
        use_link_newest(p);
        table.entries++;
        table.bytes += (int64_t)p->bytes;
        table.made++;
    }
    pthread_mutex_unlock(&lock);
    release_all(gone);
}

dt__packed *dt__packed_acquire(dt_storage *s, const dt__packed_key *key) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_up);
    if (dt_storage_is_external(s)) return NULL;
    int width = dt__gemm_ops_now(DT_F32)->width;
    uint64_t hash = hash_of(s, key);
    pthread_mutex_lock(&lock);
    table.clock++;
    dt__packed *p = find(s, key, width, hash);
    if (p) {
        atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
        use_unlink(p);
        use_link_newest(p);
        table.hits++;
    }
    int64_t bytes = (key->k * (key->n + width)) * (int64_t)sizeof(float);
    dt__packed *gone = NULL;
    bool worth = !p && seen_before(s, hash) && make_room(bytes, &gone);
    pthread_mutex_unlock(&lock);
    release_all(gone);
    if (!worth) return p;
    atomic_store_explicit(&s->derived, 1, memory_order_release);
    p = make(s, key);
    if (p) publish(p, hash);
    return p;
}

void dt__packed_stats_get(dt__packed_stats *stats) {
    pthread_mutex_lock(&lock);
    *stats = (dt__packed_stats){table.entries, table.bytes, table.hits, table.made};
    pthread_mutex_unlock(&lock);
}

void dt__packed_limit_set(int64_t bytes) {
    pthread_mutex_lock(&lock);
    table.limit = bytes;
    pthread_mutex_unlock(&lock);
}
