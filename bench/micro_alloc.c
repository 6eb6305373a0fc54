/* micro_alloc.c: memory: small objects and blocks of storages, taken and given back by one thread
 * or by two, beside malloc.
 *
 * "Batch" takes a thousand blocks before it gives the first one back, so that the caches of both
 * are really used.  "Across threads" is a batch taken here and given back by another thread, both
 * timed together with the two hand-overs; that is what happens to a task and to a result.  Blocks
 * are not written, so the page faults of fresh memory are not in these numbers.
 */
#include <pthread.h>

#include "bench/micro.h"
#include "runtime/alloc.h"

#define BATCH 1000
#define BIG_BATCH 16
#define MIB (1u << 20)

typedef struct side {
    void *(*take)(size_t size);
    void (*give)(void *block, size_t size);
    size_t size;
    int count;
    void *blocks[BATCH];
    /* the other thread */
    pthread_t thread;
    _Atomic(uint32_t) turn; /* odd: the other's; 0 at rest */
    bool stop;
} side;

static void *libc_take(size_t size) { return malloc(size); }
static void libc_give(void *block, size_t size) {
    (void)size;
    free(block);
}
static void *libc_take_aligned(size_t size) { return aligned_alloc(DT_BYTES_ALIGN, size); }

static void pairs(void *context) {
    side *s = context;
    for (int i = 0; i < s->count; i++) {
        void *block = s->take(s->size);
        micro_keep(block);
        s->give(block, s->size);
    }
}

static void take_all(side *s) {
    for (int i = 0; i < s->count; i++)
        if ((s->blocks[i] = s->take(s->size)) == NULL) micro_die("out of memory");
    micro_keep(s->blocks);
}

static void give_all(side *s) {
    for (int i = 0; i < s->count; i++) s->give(s->blocks[i], s->size);
}

static void batch(void *context) {
    take_all(context);
    give_all(context);
}

static void pass_turn(side *s) {
    atomic_fetch_add(&s->turn, 1);
    dt_futex_wake(&s->turn, 1);
}

/* Until the lowest bit of turn is `mine`. */
static void await_turn(side *s, uint32_t mine) {
    uint32_t turn;
    while (((turn = atomic_load(&s->turn)) & 1) != mine) dt_futex_wait(&s->turn, turn, -1);
}

static void *giver(void *context) {
    side *s = context;
    for (;;) {
        await_turn(s, 1);
        if (s->stop) return NULL;
        give_all(s);
        pass_turn(s);
    }
}

static void across(void *context) {
    side *s = context;
    take_all(s);
    pass_turn(s);
    await_turn(s, 0);
}

static void run_across(const char *name, side *s) {
    if (pthread_create(&s->thread, NULL, giver, s) != 0) micro_die("no thread");
    micro_run(name, s->count, across, s);
    s->stop = true;
    pass_turn(s);
    pthread_join(s->thread, NULL);
    s->stop = false;
    atomic_store(&s->turn, 0);
}

static void run_side(const char *label, void *(*take)(size_t), void (*give)(void *, size_t),
                     size_t size, int count) {
    side *s = micro_alloc(sizeof *s);
    memset(s, 0, sizeof *s);
    s->take = take;
    s->give = give;
    s->size = size;
    s->count = count;
    char name[64];
    snprintf(name, sizeof name, "%s: pair", label);
    micro_run(name, count, pairs, s);
    snprintf(name, sizeof name, "%s: batch", label);
    micro_run(name, count, batch, s);
    snprintf(name, sizeof name, "%s: across threads", label);
    run_across(name, s);
    free(s);
}

int main(int argc, char **argv) {
    micro_begin(argc, argv, "memory, taken and given back");
    run_side("dt_alloc 64 B", dt_alloc, dt_free, 64, BATCH);
    run_side("malloc 64 B", libc_take, libc_give, 64, BATCH);
    run_side("dt_alloc 512 B", dt_alloc, dt_free, 512, BATCH);
    run_side("malloc 512 B", libc_take, libc_give, 512, BATCH);
    run_side("dt_bytes 4 KiB", dt_bytes_alloc, dt_bytes_free, 4096, BATCH);
    run_side("aligned_alloc 4 KiB", libc_take_aligned, libc_give, 4096, BATCH);
    run_side("dt_bytes 1 MiB", dt_bytes_alloc, dt_bytes_free, MIB, BIG_BATCH);
    run_side("aligned_alloc 1 MiB", libc_take_aligned, libc_give, MIB, BIG_BATCH);
    return micro_end();
}
