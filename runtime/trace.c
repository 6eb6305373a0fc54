/* trace.c: the threads' lists of records.
 *
 *   registry --> buffer of a thread --> chunk --> chunk --> ...
 *
 * A thread makes its buffer with its first record and keeps it; when the thread ends the buffer
 * stays until the next clear.  Each buffer has a lock that its thread takes for each record and the
 * stopping thread takes once: it is free but for that moment, so that no thread waits for another,
 * and it makes "off" mean that nobody is halfway through a record.
 *
 * I1: chunks of a buffer are touched by its thread with its lock while tracing is on, and by the
 *     caller of start, clear and write while it is off.
 * I2: buffers are added at the front of the registry, under its lock, and freed by clear once their
 *     thread is gone; a live thread's buffer stays, since it may be about to lock it.
 * I3: in a forked child every buffer but that of its thread counts as gone, and locks are new.
 */
#include "runtime/trace.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"

#define NAME_BYTES 64

typedef struct buffer {
    pthread_mutex_t lock;
    struct buffer *next;
    dt_trace_chunk *first, *last;
    _Atomic(bool) gone; /* its thread has ended */
    bool named;
    int64_t tid;
    char name[NAME_BYTES];
} buffer;

_Static_assert(sizeof(dt_trace_chunk) <= 65536, "a chunk is at most 64 KiB");

_Atomic(bool) dt_trace_on;

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static buffer *registry;
static pthread_key_t exit_key;
static bool exit_key_made;

static _Atomic(int64_t) chunks_left, dropped;
static _Atomic(uint32_t) calls; /* numbers given so far, in all profiles */
static uint32_t calls_before;   /* ... when this profile began */
static int64_t started_ns, stopped_ns;

static _Thread_local buffer *mine;
static _Thread_local dt_trace_nesting nesting;

/* ---- threads --------------------------------------------------------------------------------- */

static void thread_exit(void *argument) {
    buffer *b = argument;
    mine = NULL;
    atomic_store_explicit(&b->gone, true, memory_order_release);
}

static void fork_prepare(void) { pthread_mutex_lock(&registry_lock); }
static void fork_parent(void) { pthread_mutex_unlock(&registry_lock); }

static void fork_child(void) {
    atomic_store_explicit(&dt_trace_on, false, memory_order_relaxed);
    for (buffer *b = registry; b != NULL; b = b->next) {
        pthread_mutex_init(&b->lock, NULL); /* I3: whoever held it does not exist here */
        if (b != mine) atomic_store_explicit(&b->gone, true, memory_order_relaxed);
    }
    if (mine != NULL) mine->tid = syscall(SYS_gettid);
    pthread_mutex_unlock(&registry_lock);
}

static __attribute__((constructor)) void set_up(void) {
    exit_key_made = pthread_key_create(&exit_key, thread_exit) == 0;
    (void)pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* The calling thread's buffer; NULL: out of memory. */
static buffer *my_buffer(void) {
    if (DT_LIKELY(mine != NULL)) return mine;
    buffer *b = dt_alloc_zeroed(sizeof *b);
    if (b == NULL) return NULL;
    pthread_mutex_init(&b->lock, NULL);
    b->tid = syscall(SYS_gettid);
    if (pthread_getname_np(pthread_self(), b->name, sizeof b->name) != 0) b->name[0] = 0;
    /* Where this fails the buffer outlives its thread's profile, no more. */
    if (exit_key_made) (void)pthread_setspecific(exit_key, b);
    pthread_mutex_lock(&registry_lock);
    b->next = registry;
    registry = b;
    pthread_mutex_unlock(&registry_lock);
    mine = b;
    return b;
}

void dt_trace_name_thread(const char *name) {
    buffer *b = my_buffer();
    if (b == NULL) return;
    pthread_mutex_lock(&b->lock);
    size_t length = strnlen(name, NAME_BYTES - 1);
    while (length > 0 && (name[length] & 0xc0) == 0x80) length--; /* a whole character of UTF-8 */
    memcpy(b->name, name, length);
    b->name[length] = 0;
    b->named = true;
    pthread_mutex_unlock(&b->lock);
}

bool dt_trace_thread_is_named(void) {
    if (mine == NULL) return false;
    pthread_mutex_lock(&mine->lock); /* a new profile begins without names */
    bool named = mine->named;
    pthread_mutex_unlock(&mine->lock);
    return named;
}

dt_trace_nesting *dt_trace_nesting_get(void) { return &nesting; }

uint32_t dt_trace_next_call(void) {
    uint32_t call = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1;
    return call != 0 ? call : dt_trace_next_call();
}

/* ---- records --------------------------------------------------------------------------------- */

static void drop(void) { atomic_fetch_add_explicit(&dropped, 1, memory_order_relaxed); }

/* A new last chunk of b; NULL: no room, or no memory. There is room for a thread's first one. */
static dt_trace_chunk *grow(buffer *b) {
    if (atomic_fetch_sub_explicit(&chunks_left, 1, memory_order_relaxed) <= 0 && b->first != NULL) {
        atomic_fetch_add_explicit(&chunks_left, 1, memory_order_relaxed);
        return NULL;
    }
    dt_trace_chunk *chunk = dt_alloc(sizeof *chunk);
    if (chunk == NULL) {
        atomic_fetch_add_explicit(&chunks_left, 1, memory_order_relaxed);
        return NULL;
    }
    chunk->next = NULL;
    chunk->count = 0;
    if (b->last != NULL)
        b->last->next = chunk;
    else
        b->first = chunk;
    b->last = chunk;
    return chunk;
}

void dt_trace_append(const dt_trace_record *record) {
    buffer *b = my_buffer();
    if (DT_UNLIKELY(b == NULL)) {
        drop();
        return;
    }
    pthread_mutex_lock(&b->lock);
    if (DT_LIKELY(dt_trace_is_on())) { /* stop has not passed this lock */
        dt_trace_chunk *chunk = b->last;
        if (chunk == NULL || chunk->count == DT_TRACE_CHUNK_RECORDS) chunk = grow(b);
        if (DT_LIKELY(chunk != NULL))
            chunk->records[chunk->count++] = *record;
        else
            drop();
    }
    pthread_mutex_unlock(&b->lock);
}

/* ---- from outside ---------------------------------------------------------------------------- */

dt_status dt_trace_start(int64_t records_max) {
    if (dt_trace_is_on()) return dt_fail(DT_E_RUNTIME, "a profile is being recorded already");
    if (records_max < 1)
        return dt_fail(DT_E_VALUE, "a profile needs room for at least 1 record, not %lld",
                       (long long)records_max);
    dt_trace_clear();
    int64_t chunks = (records_max - 1) / DT_TRACE_CHUNK_RECORDS + 1;
    atomic_store_explicit(&chunks_left, chunks, memory_order_relaxed);
    calls_before = atomic_load_explicit(&calls, memory_order_relaxed);
    started_ns = dt_trace_now_ns();
    atomic_store_explicit(&dt_trace_on, true, memory_order_release);
    return DT_OK;
}

void dt_trace_stop(void) {
    if (!dt_trace_is_on()) return;
    atomic_store_explicit(&dt_trace_on, false, memory_order_seq_cst);
    pthread_mutex_lock(&registry_lock);
    for (buffer *b = registry; b != NULL; b = b->next) {
        pthread_mutex_lock(&b->lock); /* whoever comes after us sees that it is off */
        pthread_mutex_unlock(&b->lock);
    }
    pthread_mutex_unlock(&registry_lock);
    stopped_ns = dt_trace_now_ns();
}

static void empty(buffer *b) {
    while (b->first != NULL) {
        dt_trace_chunk *chunk = b->first;
        b->first = chunk->next;
        dt_free(chunk, sizeof *chunk);
    }
    b->last = NULL;
    b->named = false;
}

void dt_trace_clear(void) {
    DT_ASSERT(!dt_trace_is_on());
    pthread_mutex_lock(&registry_lock);
    for (buffer **place = &registry; *place != NULL;) {
        buffer *b = *place;
        pthread_mutex_lock(&b->lock); /* its thread may be finding out that it is off */
        empty(b);
        pthread_mutex_unlock(&b->lock);
        if (atomic_load_explicit(&b->gone, memory_order_acquire)) {
            *place = b->next;
            pthread_mutex_destroy(&b->lock);
            dt_free(b, sizeof *b);
        } else {
            place = &b->next;
        }
    }
    pthread_mutex_unlock(&registry_lock);
    atomic_store_explicit(&dropped, 0, memory_order_relaxed);
}

void dt_trace_visit(void (*visit)(void *context, const dt_trace_track *track), void *context) {
    DT_ASSERT(!dt_trace_is_on());
    pthread_mutex_lock(&registry_lock);
    buffer *b = registry;
    pthread_mutex_unlock(&registry_lock);
    for (; b != NULL; b = b->next) { /* only clear takes buffers off */
        if (b->first == NULL) continue;
        dt_trace_track track = {b->name, b->named, b->tid, b->first};
        visit(context, &track);
    }
}

static void count_records(void *context, const dt_trace_track *track) {
    for (const dt_trace_chunk *c = track->chunks; c != NULL; c = c->next)
        *(int64_t *)context += c->count;
}

void dt_trace_totals_get(dt_trace_totals *totals) {
    int64_t records = 0;
    dt_trace_visit(count_records, &records);
    *totals = (dt_trace_totals){
        .records = records,
        .dropped = atomic_load_explicit(&dropped, memory_order_relaxed),
        .start_ns = started_ns,
        .stop_ns = stopped_ns,
        .first_call = calls_before + 1,
        .calls = atomic_load_explicit(&calls, memory_order_relaxed) - calls_before,
    };
}
