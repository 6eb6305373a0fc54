/* storage.c: the life of a storage.
 *
 *   dt_storage_new (small) ----------------------------------> has bytes (behind the header)
 *   dt_storage_new (large) --> no bytes --dt_storage_materialize--> has bytes (dt_bytes_alloc)
 *   dt_storage_new_foreign ----------------------------------> has bytes (an outsider's)
 *
 *   last release: own bytes are freed at once; a foreign storage is posted to the graveyard, header
 *   and all, and freed there after its outsider was told.
 *
 * I1: the size of the header block follows from flags and bytes alone (header_size), so that it is
 *     freed with the size it was taken with.
 */
#include "runtime/storage.h"

#include <string.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"

_Static_assert(offsetof(dt_storage, inline_bytes) % 16 == 0, "inline bytes serve 16-byte loads");
_Static_assert(sizeof(dt_storage) <= 96, "the header of a 4-float tensor fits a small class");

static _Atomic(uintptr_t) future_release_hook; /* void (*)(struct dt_future *), or 0 */

void dt_storage_set_future_release(void (*release)(struct dt_future *future)) {
    atomic_store_explicit(&future_release_hook, (uintptr_t)release, memory_order_release);
}

static inline bool bytes_are_inline(uint32_t flags, size_t bytes) {
    return (flags & DT_STORAGE_FOREIGN) == 0 && bytes <= DT_STORAGE_INLINE_MAX;
}

static inline size_t header_size(uint32_t flags, size_t bytes) {
    return sizeof(dt_storage) + (bytes_are_inline(flags, bytes) ? bytes : 0);
}

static dt_storage *new_header(size_t bytes, uint32_t flags) {
    dt_storage *s = dt_alloc(header_size(flags, bytes));
    if (DT_UNLIKELY(s == NULL)) return NULL;
    memset(s, 0, sizeof *s); /* every atomic of ours is valid as zero bits */
    atomic_init(&s->refs, 1);
    s->bytes = bytes;
    s->flags = flags;
    return s;
}

dt_storage *dt_storage_new(size_t bytes) {
    dt_storage *s = new_header(bytes, 0);
    if (DT_UNLIKELY(s == NULL)) return NULL;
    if (bytes_are_inline(0, bytes)) atomic_init(&s->data, s->inline_bytes);
    return s;
}

dt_storage *dt_storage_new_foreign(void *data, size_t bytes, void (*release)(void *context),
                                   void *context, uint32_t flags) {
    dt_storage *s = new_header(bytes, flags | DT_STORAGE_FOREIGN);
    if (s == NULL) return NULL;
    s->foreign_release = release;
    s->foreign_context = context;
    /* An empty tensor of an outsider may have no address; ours always have one (I2: non-NULL is
     * what "materialised" means). Nobody reads or writes through it. */
    atomic_init(&s->data, data != NULL || bytes != 0 ? data : (void *)s);
    return s;
}

dt_status dt_storage_materialize(dt_storage *s) {
    if (DT_LIKELY(atomic_load_explicit(&s->data, memory_order_acquire) != NULL)) return DT_OK;
    DT_ASSERT((s->flags & DT_STORAGE_FOREIGN) == 0);
    void *block = dt_bytes_alloc(s->bytes);
    if (block == NULL)
        return dt_fail(DT_E_NO_MEMORY,
                       "DefaultCPUAllocator: can't allocate memory: you tried to allocate %zu "
                       "bytes.",
                       s->bytes);
    atomic_store_explicit(&s->data, block, memory_order_release);
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
    if (s->flags & DT_STORAGE_FOREIGN) {
        s->grave.bury = bury_foreign;
        dt_graveyard_post(&s->grave);
        return;
    }
    void *data = atomic_load_explicit(&s->data, memory_order_acquire);
    if (!bytes_are_inline(s->flags, s->bytes)) {
        if (data != NULL) dt_bytes_free(data, s->bytes);
    }
    dt_free(s, header_size(s->flags, s->bytes));
}
