/* storage_impl.h: what storage.c and tensor.c share about the layout of a storage.
 *
 * Inside runtime/ only.
 */
#ifndef DT_RUNTIME_STORAGE_IMPL_H
#define DT_RUNTIME_STORAGE_IMPL_H

#include <string.h>

#include "runtime/assert.h"
#include "runtime/storage.h"
#include "runtime/tensor.h"

/* An embedded storage: the tensor that was created with it comes first in the same block, which
 * belongs to the storage.  The tensor's memory is not used again before the storage dies, but the
 * tensor itself ends with its own last reference. */
typedef struct dt__embedded {
    dt_tensor tensor;
    dt_storage storage;
} dt__embedded;

static inline size_t dt__embedded_size(size_t bytes) { return sizeof(dt__embedded) + bytes; }

static inline bool dt__storage_is_inline(uint32_t flags, size_t bytes) {
    return (flags & (DT_STORAGE_FOREIGN | DT_STORAGE_DEFERRED)) == 0 &&
           bytes <= DT_STORAGE_INLINE_MAX;
}

/* Sets up the header of a storage with one reference; every atomic is valid as zero bits. */
static inline void dt__storage_init(dt_storage *s, size_t bytes, uint32_t flags) {
    memset(s, 0, sizeof *s);
    atomic_init(&s->refs, 1);
    s->bytes = bytes;
    s->flags = (uint16_t)flags;
    if (dt__storage_is_inline(flags, bytes)) atomic_init(&s->data, s->inline_bytes);
}

#endif
