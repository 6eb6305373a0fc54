/* storage.h: reference-counted bytes on one device.
 *
 * A storage is created by the client when an op is called; its memory is taken when the first task
 * that writes it starts (dt_storage_materialize), except for small ones, whose bytes sit behind the
 * header.  A deferred storage is one whose size only its writer finds out (the result of nonzero):
 * it has neither size nor memory before the kernel gives it both (dt_storage_produce).
 * Three parties keep notes in it, each in fields of its own:
 *   client      (under the client lock: the GIL in Python, a mutex in C tests): last_write
 *   controller  (the controller thread only): graph_queue, graph_owner
 *   anyone      atomics: refs, readers, writers, exports, version, data, failure
 *
 * I1: readers/writers count tasks submitted and not yet ended that read/write the bytes; the client
 *     raises them before it submits, the thread that ends a task lowers them (release) after the
 *     task's last access.  writers == 0 (acquire) therefore means that the bytes are final.
 * I2: data goes from NULL to its block once and stays until the storage dies.
 * I3: a foreign block is released through the graveyard, never by a C thread itself.
 *     That of a deferred storage, and with it bytes and count, is set by its first writer alone.
 * I4: failure goes from NULL to the error of the first task that failed to write the bytes, before
 *     that task lowers writers, and stays until the storage dies: whoever saw writers == 0
 * (acquire) and then failure == NULL has good bytes.
 */
#ifndef DT_RUNTIME_STORAGE_H
#define DT_RUNTIME_STORAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/graveyard.h"
#include "runtime/status.h"

struct dt_future;       /* futures/ */
struct dt_graph_access; /* scheduler/: one entry of the queue */

#define DT_STORAGE_INLINE_MAX 256 /* bytes at most that live behind the header */

enum {
    DT_STORAGE_FOREIGN = 1u << 0,  /* memory belongs to an outsider (from_torch, from_numpy) */
    DT_STORAGE_FROZEN = 1u << 1,   /* the outsider promised not to write: treat as internal */
    DT_STORAGE_READONLY = 1u << 2, /* must not be written (a read-only numpy array) */
    DT_STORAGE_EMBEDDED = 1u << 3, /* lies in one block behind its first tensor; runtime/'s own */
    DT_STORAGE_DEFERRED = 1u << 4, /* size and memory come from its first writer */
};

typedef struct dt_storage {
    _Atomic(uint32_t) refs;
    _Atomic(uint32_t) readers;
    _Atomic(uint32_t) writers;
    _Atomic(uint32_t) exports; /* outsiders that hold a view of the bytes now */
    _Atomic(void *) data;
    size_t bytes;
    uint16_t flags;
    _Atomic(uint8_t) derived;     /* someone keeps what he made of the bytes, see below */
    uint8_t graph_owner;          /* controller: whose graph_queue that is, see graph.h */
    _Atomic(uint32_t) version;    /* raised by every write, for autograd later */
    struct dt_future *last_write; /* client lock; owned reference, NULL when known to be ready */
    _Atomic(struct dt_error *) failure;     /* owned; why the bytes are no good, see I4 */
    struct dt_graph_access *graph_queue;    /* controller: who uses the bytes, in program order */
    void (*foreign_release)(void *context); /* run from the graveyard */
    union {
        void *foreign_context;
        int64_t count; /* DEFERRED: the size that its first tensor did not know; valid with data */
    };
    dt_grave grave;
    _Alignas(16) unsigned char inline_bytes[];
} dt_storage;

/* A storage of `bytes` bytes, memory not yet taken beyond the inline limit. NULL: out of memory. */
dt_storage *dt_storage_new(size_t bytes);

/* A storage whose size and memory its first writer brings. NULL: out of memory. */
dt_storage *dt_storage_new_deferred(void);

/* By the kernel that writes a deferred storage: takes `bytes` bytes. A kernel that ran out of
 * memory for another output and is run again finds them there. */
dt_status dt_storage_produce(dt_storage *s, int64_t count, size_t bytes) DT_MUST_CHECK;

/* A storage over foreign memory; release(context) runs once, under the GIL, when it dies.  Takes
 * `context` only on success. */
dt_storage *dt_storage_new_foreign(void *data, size_t bytes, void (*release)(void *context),
                                   void *context, uint32_t flags);

static inline dt_storage *dt_storage_retain(dt_storage *s) {
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}
void dt_storage_free_last(dt_storage *s);
static inline void dt_storage_release(dt_storage *s) {
    /* Who sees 1 holds the only reference, and nobody can make another: no locked operation. */
    if (atomic_load_explicit(&s->refs, memory_order_acquire) == 1 ||
        atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1)
        dt_storage_free_last(s);
}

/* Takes the memory if that has not happened. Only one thread at a time may do so for one storage
 * (the writer that starts). Nothing happens to a deferred one. */
dt_status dt_storage_materialize(dt_storage *s) DT_MUST_CHECK;

/* True while an outsider can touch the bytes: ops on it are done with it before they return. */
static inline bool dt_storage_is_external(const dt_storage *s) {
    return ((s->flags & (DT_STORAGE_FOREIGN | DT_STORAGE_FROZEN)) == DT_STORAGE_FOREIGN) ||
           atomic_load_explicit(&s->exports, memory_order_acquire) != 0;
}

/* Kernels may keep something they made of the bytes (packed weights) for the next call.  Who does
 * sets `derived` first, while he may read the bytes; `drop` is then called, in any thread, whenever
 * the bytes are about to change or to go away: by dt_storage_materialize (a writer starts), when
 * the storage dies, and by whoever hands the bytes to an outsider.  Set once. */
void dt_storage_set_derived_drop(void (*drop)(dt_storage *storage));
void dt_storage_drop_derived(dt_storage *s);
static inline void dt_storage_changes(dt_storage *s) {
    if (atomic_load_explicit(&s->derived, memory_order_acquire)) dt_storage_drop_derived(s);
}

/* Set once by futures/: how a storage drops its last_write reference when it dies (any thread). */
void dt_storage_set_future_release(void (*release)(struct dt_future *future));

#endif
