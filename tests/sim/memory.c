/* memory.c: runtime/alloc.h once more, in the place of runtime/alloc.c and alloc_bytes.c.
 *
 * Blocks are cut from one arena and not used again before the seed is over; what is freed is filled
 * with a pattern.  So a use after free meets nonsense, or is seen at the end because the pattern
 * was written over, a second free is seen at once, and what is left over can be listed.
 *
 * I1: no block is used twice within a seed.
 * I2: memory that was never written holds FRESH bytes: what it reads as is known.
 */
#include "tests/sim/memory.h"

#include <stdio.h>
#include <string.h>

#include "runtime/alloc.h"
#include "runtime/alloc_impl.h"
#include "tests/sim/world.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(p, n) __asan_poison_memory_region(p, n)
#define UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
#define POISON(p, n) ((void)0)
#define UNPOISON(p, n) ((void)0)
#endif

enum { ARENA_BYTES = 24 << 20, FREED = 0xDD };

typedef struct block {
    uint64_t magic;
    uint64_t size;
    struct block *next; /* all of this seed, the youngest first */
    int64_t number;
    uint8_t is_bytes, pad[31];
} block;

#define LIVE_MAGIC 0x6c697665626c6f63
#define FREED_MAGIC 0x6672656564626c6f
_Static_assert(sizeof(block) == 64, "what follows is 64-byte aligned");

static _Alignas(64) unsigned char arena[ARENA_BYTES];
static size_t used;
static block *youngest;
static int64_t objects, live_bytes, limit_bytes, number;
static int64_t fail_countdown, fail_counted;
static bool fail_armed, fail_sticky;
static bool watch_lock;
static void (*watch_freed)(void *context);
static void *watch_context;
int64_t sim_memory_failures;

void sim_memory_start(void) {
    used = 0;
    youngest = NULL;
    objects = live_bytes = limit_bytes = number = 0;
    fail_armed = false;
    watch_freed = NULL;
    sim_memory_failures = 0;
}

bool dt__alloc_injected(void) {
    if (!fail_armed) return false;
    fail_counted++;
    int64_t before = fail_countdown--;
    if (before != 1 && !(before < 1 && fail_sticky)) return false;
    sim_memory_failures++;
    sim_event("an allocation fails", 0, 0, 0, 0);
    return true;
}

int64_t dt_alloc_fail_at(int64_t n, bool sticky) {
    int64_t counted = fail_counted;
    fail_counted = 0;
    fail_countdown = n;
    fail_sticky = sticky;
    fail_armed = n > 0;
    return counted;
}

static void *take(size_t size, bool is_bytes) {
    size_t room = (size + 63) / 64 * 64;
    if (used + sizeof(block) + room > ARENA_BYTES) sim_violation("the simulator's arena is full");
    block *b = (block *)(arena + used);
    used += sizeof(block) + room;
    UNPOISON(b, sizeof *b + size);
    *b = (block){.magic = LIVE_MAGIC, .size = size, .next = youngest, .number = ++number};
    b->is_bytes = is_bytes;
    youngest = b;
    memset(b + 1, SIM_MEMORY_FRESH, size);
    POISON((char *)(b + 1) + size, room - size);
    return b + 1;
}

static void give(void *p, size_t size, bool is_bytes) {
    block *b = (block *)p - 1;
    if (b->magic == FREED_MAGIC)
        sim_violation("block %lld (%zu bytes) is freed twice", (long long)b->number, size);
    if (b->magic != LIVE_MAGIC || b->size != size || b->is_bytes != is_bytes)
        sim_violation("a block of %zu bytes is freed that is none, or is of %llu", size,
                      (unsigned long long)b->size);
    b->magic = FREED_MAGIC;
    memset(p, FREED, size);
    POISON(p, size);
}

void *dt_alloc(size_t size) {
    if (dt__alloc_injected()) return NULL;
    objects++;
    return take(size, false);
}

void *dt_alloc_zeroed(size_t size) {
    void *p = dt_alloc(size);
    if (p != NULL) memset(p, 0, size);
    return p;
}

void dt_free(void *p, size_t size) {
    if (p == NULL) return;
    objects--;
    give(p, size, false);
}

void *dt_bytes_alloc(size_t size) {
    if (dt__alloc_injected()) return NULL;
    if (limit_bytes != 0 && live_bytes + (int64_t)size > limit_bytes) {
        sim_event("%lld bytes more would pass the limit (%lld are in use)", (int64_t)size,
                  live_bytes, 0, 0);
        return NULL;
    }
    live_bytes += (int64_t)size;
    return take(size, true);
}

void dt_bytes_free(void *p, size_t size) {
    if (p == NULL) return;
    live_bytes -= (int64_t)size;
    give(p, size, true);
    if (watch_freed == NULL) return;
    sim_lock(&watch_lock);
    if (watch_freed != NULL) watch_freed(watch_context);
    sim_unlock(&watch_lock);
}

void dt_memory_watch(void (*freed)(void *context), void *context) {
    sim_lock(&watch_lock);
    watch_freed = freed;
    watch_context = context;
    sim_unlock(&watch_lock);
}

void dt_memory_stats_get(dt_memory_stats *stats) {
    *stats = (dt_memory_stats){.live_bytes = live_bytes, .objects = objects};
}

int64_t dt__objects(void) { return objects; }
int64_t dt__bytes_limit(void) { return limit_bytes; }
int64_t dt_memory_limit(void) { return limit_bytes; }
int64_t dt_memory_live(void) { return live_bytes; }
void dt_memory_limit_set(int64_t bytes) { limit_bytes = bytes > 0 ? bytes : 0; }
void dt_memory_stats_reset_peak(void) {}
void dt_memory_cache_empty(void) {}

void sim_memory_check(void) {
    for (block *b = youngest; b != NULL; b = b->next) {
        if (b->magic == LIVE_MAGIC)
            sim_violation("block %lld of %llu bytes is left over (%lld objects, %lld bytes)",
                          (long long)b->number, (unsigned long long)b->size, (long long)objects,
                          (long long)live_bytes);
        UNPOISON(b + 1, b->size);
        const unsigned char *p = (const unsigned char *)(b + 1);
        for (uint64_t k = 0; k < b->size; k++)
            if (p[k] != FREED)
                sim_violation("block %lld of %llu bytes was written after it was freed",
                              (long long)b->number, (unsigned long long)b->size);
    }
    if (objects != 0 || live_bytes != 0) sim_violation("the counts of memory are wrong");
}
