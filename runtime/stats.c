/* stats.c: the threads' histograms.
 *
 *   all --> block --> block ...        a block is a live thread's, or free for the next new one
 *
 * Blocks are never given back: a process has as many as it ever had threads that ended tasks at one
 * time.  They are not objects of dt_alloc, whose count tells tests about leaks.
 *
 * I1: a block is written by the thread that has it alone, with relaxed stores: readers may see a
 *     task's queue time before its run time.
 * I2: what a block counted before its thread ended stays in it.
 */
#include "runtime/stats.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/assert.h"

typedef struct counted {
    _Atomic(int64_t) buckets[DT_HISTOGRAM_BUCKETS];
    _Atomic(int64_t) sum;
} counted;

typedef struct block {
    counted queue, run;
    struct block *next;
    bool taken; /* lock */
} block;

dt_client_counts dt_counts;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *all;
static pthread_key_t exit_key;
static bool exit_key_made;
static _Thread_local block *mine;

static void thread_exit(void *argument) {
    block *b = argument;
    mine = NULL;
    pthread_mutex_lock(&lock);
    b->taken = false;
    pthread_mutex_unlock(&lock);
}

static void fork_prepare(void) { pthread_mutex_lock(&lock); }
static void fork_parent(void) { pthread_mutex_unlock(&lock); }
static void fork_child(void) {
    for (block *b = all; b != NULL; b = b->next)
        if (b != mine) b->taken = false; /* its thread does not exist here */
    pthread_mutex_unlock(&lock);
}

static __attribute__((constructor)) void set_up(void) {
    exit_key_made = pthread_key_create(&exit_key, thread_exit) == 0;
    (void)pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* NULL: out of memory, and the task is not counted. */
static __attribute__((noinline, cold)) block *take_block(void) {
    pthread_mutex_lock(&lock);
    block *b = all;
    while (b != NULL && b->taken) b = b->next;
    if (b == NULL && (b = calloc(1, sizeof *b)) != NULL) {
        b->next = all;
        all = b;
    }
    if (b != NULL) b->taken = true;
    pthread_mutex_unlock(&lock);
    if (b != NULL && exit_key_made) (void)pthread_setspecific(exit_key, b);
    mine = b;
    return b;
}

static inline void add(_Atomic(int64_t) *to, int64_t n) {
    atomic_store_explicit(to, atomic_load_explicit(to, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static inline void count(counted *h, int64_t value) {
    add(&h->buckets[dt_histogram_bucket(value)], 1);
    add(&h->sum, value > 0 ? value : 0);
}

void dt_stats_add_task(int64_t queue_ns, int64_t run_ns) {
    block *b = mine;
    if (DT_UNLIKELY(b == NULL) && (b = take_block()) == NULL) return;
    count(&b->queue, queue_ns);
    count(&b->run, run_ns);
}

static void sum_up(dt_histogram *to, const counted *from) {
    for (int k = 0; k < DT_HISTOGRAM_BUCKETS; k++)
        to->buckets[k] += atomic_load_explicit(&from->buckets[k], memory_order_relaxed);
    to->sum += atomic_load_explicit(&from->sum, memory_order_relaxed);
}

void dt_stats_times_get(dt_time_stats *out) {
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&lock);
    for (const block *b = all; b != NULL; b = b->next) {
        sum_up(&out->queue_ns, &b->queue);
        sum_up(&out->run_ns, &b->run);
    }
    pthread_mutex_unlock(&lock);
}
