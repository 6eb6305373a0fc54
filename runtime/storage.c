/* storage.c: the life of a storage.
 *
 *   dt_storage_new (small) ----------------------------------> has bytes (behind the header)
 *   dt_tensor_new (small) -----------------------------------> has bytes (embedded, one block)
 *   dt_storage_new (large) --> no bytes --dt_storage_materialize--> has bytes (dt_bytes_alloc)
 *   dt_storage_new_deferred -> no bytes ---dt_storage_produce---> has bytes (dt_bytes_alloc)
 *   dt_storage_new_foreign ----------------------------------> has bytes (an outsider's)
 *
 *   last release: own bytes are freed at once; a foreign storage is posted to the graveyard, header
 *   and all, and freed there after its outsider was told.
 *
 * I1: the size of the header block follows from flags and bytes alone (header_size, or
 *     dt__embedded_size), so that it is freed with the size it was taken with.
 */
#include "runtime/storage.h"

#include <stdio.h>

#include "runtime/alloc.h"
#include "runtime/alloc_impl.h"
#include "runtime/assert.h"
#include "runtime/storage_impl.h"

_Static_assert(offsetof(dt_storage, inline_bytes) % 16 == 0, "inline bytes serve 16-byte loads");
_Static_assert(sizeof(dt_storage) <= 96, "the header of a 4-float tensor fits a small class");

static _Atomic(uintptr_t) future_release_hook; /* void (*)(struct dt_future *), or 0 */

void dt_storage_set_future_release(void (*release)(struct dt_future *future)) {
    atomic_store_explicit(&future_release_hook, (uintptr_t)release, memory_order_release);
}

static _Atomic(uintptr_t) derived_drop_hook; /* void (*)(dt_storage *), or 0 */

void dt_storage_set_derived_drop(void (*drop)(dt_storage *storage)) {
    atomic_store_explicit(&derived_drop_hook, (uintptr_t)drop, memory_order_release);
}

void dt_storage_drop_derived(dt_storage *s) {
    void (*drop)(dt_storage *) =
        (void (*)(dt_storage *))atomic_load_explicit(&derived_drop_hook, memory_order_acquire);
    DT_ASSERT(drop != NULL);
    atomic_store_explicit(&s->derived, 0, memory_order_relaxed);
    drop(s);
}

static size_t header_size(uint32_t flags, size_t bytes) {
    return sizeof(dt_storage) + (dt__storage_is_inline(flags, bytes) ? bytes : 0);
}

dt_storage *dt_storage_new(size_t bytes) {
    dt_storage *s = dt_alloc(header_size(0, bytes));
    if (DT_LIKELY(s != NULL)) dt__storage_init(s, bytes, 0);
    return s;
}

dt_storage *dt_storage_new_deferred(void) {
    dt_storage *s = dt_alloc(header_size(DT_STORAGE_DEFERRED, 0));
    if (s == NULL) return NULL;
    dt__storage_init(s, 0, DT_STORAGE_DEFERRED);
    return s;
}

dt_storage *dt_storage_new_foreign(void *data, size_t bytes, void (*release)(void *context),
                                   void *context, uint32_t flags) {
    DT_ASSERT((flags & DT_STORAGE_EMBEDDED) == 0);
    DT_ASSERT(data != NULL || bytes == 0);
    flags |= DT_STORAGE_FOREIGN;
    dt_storage *s = dt_alloc(header_size(flags, bytes));
    if (s == NULL) return NULL;
    dt__storage_init(s, bytes, flags);
    s->foreign_release = release;
    s->foreign_context = context;
    /* An empty array of an outsider may have no address; ours has one, since NULL means that the
     * memory is not taken yet. Nobody reads or writes through it. */
    atomic_init(&s->data, data != NULL ? data : (void *)s->inline_bytes);
    return s;
}

static __attribute__((noinline, cold)) dt_status no_memory(size_t bytes) {
    int64_t limit = dt_memory_limit();
    char why[96] = "";
    dt_memory_stats stats;
    dt_memory_stats_get(&stats);
    if (limit != 0 && ((uint64_t)limit < bytes || stats.live_bytes > limit - (int64_t)bytes))
        snprintf(why, sizeof why, " The memory limit is %lld bytes, and %lld are in use.",
                 (long long)limit, (long long)stats.live_bytes);
    return dt_fail(DT_E_NO_MEMORY,
                   "DefaultCPUAllocator: can't allocate memory: you tried to allocate %zu bytes.%s",
                   bytes, why);
}

static dt_status take_memory(dt_storage *s, size_t bytes) {
    void *block = dt_bytes_alloc(bytes);
    if (block == NULL) return no_memory(bytes);
    atomic_store_explicit(&s->data, block, memory_order_release);
    return DT_OK;
}

dt_status dt_storage_materialize(dt_storage *s) {
    if (DT_LIKELY(atomic_load_explicit(&s->data, memory_order_acquire) != NULL)) {
        dt_storage_changes(s);
        return DT_OK;
    }
    DT_ASSERT((s->flags & DT_STORAGE_FOREIGN) == 0);
    if (s->flags & DT_STORAGE_DEFERRED) return DT_OK; /* dt_storage_produce will */
    return take_memory(s, s->bytes);
}

dt_status dt_storage_produce(dt_storage *s, int64_t count, size_t bytes) {
    DT_ASSERT(s->flags & DT_STORAGE_DEFERRED);
    DT_ASSERT(count >= 0);
    if (DT_UNLIKELY(atomic_load_explicit(&s->data, memory_order_relaxed) != NULL)) {
        DT_ASSERT(s->count == count && s->bytes == bytes);
        return DT_OK;
    }
    s->count = count;
    DT_TRY(take_memory(s, bytes));
    s->bytes = bytes; /* read only by who knows that the writer has ended */
    return DT_OK;
}

static void bury_foreign(dt_grave *grave) {
    dt_storage *s = (dt_storage *)((char *)grave - offsetof(dt_storage, grave));
    void (*release)(void *context) = s->foreign_release;
    void *context = s->foreign_context;
    /* The header goes first: release may run a garbage collection that looks at our counts. */
    dt_free(s, header_size(s->flags, s->bytes));
    if (release != NULL) release(context);
}

void dt_storage_free_last(dt_storage *s) {
    DT_DEBUG_ASSERT(atomic_load(&s->readers) == 0 && atomic_load(&s->writers) == 0);
    if (s->last_write != NULL) {
        void (*release)(struct dt_future *) = (void (*)(struct dt_future *))atomic_load_explicit(
            &future_release_hook, memory_order_acquire);
        DT_ASSERT(release != NULL);
        release(s->last_write);
        s->last_write = NULL;
    }
    dt_error_release(atomic_load_explicit(&s->failure, memory_order_acquire));
    dt_storage_changes(s);
    if (s->flags & DT_STORAGE_FOREIGN) {
        s->grave.bury = bury_foreign;
        dt_graveyard_post(&s->grave);
        return;
    }
    if (s->flags & DT_STORAGE_EMBEDDED) {
        dt_free((char *)s - offsetof(dt__embedded, storage), dt__embedded_size(s->bytes));
        return;
    }
    if (!dt__storage_is_inline(s->flags, s->bytes)) {
        void *data = atomic_load_explicit(&s->data, memory_order_acquire);
        if (data != NULL) dt_bytes_free(data, s->bytes);
    }
    dt_free(s, header_size(s->flags, s->bytes));
}
