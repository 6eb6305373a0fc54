/* mask_walk.c: see mask_walk.h.
 *
 * M1: runs come in row-major order of the mask and cover [from, to) exactly once.
 * M2: a byte of a run's mask may have any value; only 0 means no.
 */
#include "kernels/cpu/mask_walk.h"

#include <string.h>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/iter.h"
#include "runtime/assert.h"

static void add_dim(dt__mask_walk *w, int64_t size, int64_t mask_stride, int64_t stride,
                    bool keep_dims) {
    int last = w->rank - 1;
    if (!keep_dims && w->rank > 0 && w->mask_strides[last] == mask_stride * size &&
        w->strides[last] == stride * size) {
        w->shape[last] *= size;
        w->mask_strides[last] = mask_stride;
        w->strides[last] = stride;
        return;
    }
    w->shape[w->rank] = size;
    w->mask_strides[w->rank] = mask_stride;
    w->strides[w->rank] = stride;
    w->rank++;
}

void dt__mask_walk_init(dt__mask_walk *w, const dt_tensor *mask, const int64_t *strides,
                        int64_t size, bool keep_dims) {
    int64_t item = (int64_t)dt_dtype_size((dt_dtype)mask->dtype);
    w->rank = 0;
    w->numel = mask->numel;
    w->mask = dt_tensor_data(mask);
    w->dtype = (dt_dtype)mask->dtype;
    for (int d = 0; d < mask->rank; d++) {
        if (!keep_dims && mask->shape[d] == 1) continue;
        /* Without another tensor: one whose steps never keep dims apart. */
        int64_t stride = strides != NULL ? strides[d] * size : mask->strides[d];
        add_dim(w, mask->shape[d], mask->strides[d] * item, stride, keep_dims);
    }
    if (w->rank == 0) add_dim(w, 1, item, size, true);
    w->direct = w->dtype == DT_BOOL && w->mask_strides[w->rank - 1] == 1;
}

void dt__mask_cursor_init(const dt__mask_walk *w, dt__mask_cursor *c, int64_t from, int64_t to) {
    DT_ASSERT(from >= 0 && to <= w->numel);
    c->position = from;
    c->end = to;
    c->mask_offset = 0;
    c->offset = 0;
    if (from >= to) return;
    for (int d = w->rank - 1; d >= 0; d--) {
        c->index[d] = d > 0 ? from % w->shape[d] : from;
        from = d > 0 ? from / w->shape[d] : 0;
        c->mask_offset += c->index[d] * w->mask_strides[d];
        c->offset += c->index[d] * w->strides[d];
    }
}

/* The next n flags as bytes. */
static const uint8_t *flags_of(const dt__mask_walk *w, dt__mask_cursor *c, int64_t n) {
    const char *at = w->mask + c->mask_offset;
    if (w->direct) return (const uint8_t *)at;
    int64_t stride = w->mask_strides[w->rank - 1], item = (int64_t)dt_dtype_size(w->dtype);
    const void *elements = at;
    if (stride != item) {
        dt__gather(item, n, w->dtype == DT_BOOL ? (void *)c->flags : c->elements, at, stride);
        if (w->dtype == DT_BOOL) return c->flags;
        elements = c->elements;
    }
    dt_cast(n, c->flags, DT_BOOL, elements, w->dtype);
    return c->flags;
}

static void move_on(const dt__mask_walk *w, dt__mask_cursor *c, int64_t n) {
    int d = w->rank - 1;
    c->position += n;
    c->index[d] += n;
    c->mask_offset += n * w->mask_strides[d];
    c->offset += n * w->strides[d];
    for (; d > 0 && c->index[d] == w->shape[d]; d--) {
        c->index[d] = 0;
        c->index[d - 1]++;
        c->mask_offset += w->mask_strides[d - 1] - w->shape[d] * w->mask_strides[d];
        c->offset += w->strides[d - 1] - w->shape[d] * w->strides[d];
    }
}

bool dt__mask_cursor_next(const dt__mask_walk *w, dt__mask_cursor *c, dt__mask_run *run) {
    if (c->position >= c->end) return false;
    int64_t n = c->end - c->position, row = w->shape[w->rank - 1] - c->index[w->rank - 1];
    if (n > row) n = row;
    if (n > DT__MASK_RUN_MAX) n = DT__MASK_RUN_MAX;
    run->mask = flags_of(w, c, n);
    run->n = n;
    run->position = c->position;
    run->offset = c->offset;
    move_on(w, c, n);
    return true;
}

/* Eight counters side by side in a word; none passes 255 within a run. */
static int64_t count_run(const uint8_t *mask, int64_t n) {
    const uint64_t low = 0x7f7f7f7f7f7f7f7f, ones = 0x0101010101010101;
    _Static_assert(DT__MASK_RUN_MAX / 8 <= 255, "a counter is one byte");
    uint64_t counters = 0, total = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word = dt__mask_word(mask + i);
        counters += ((word | ((word & low) + low)) >> 7) & ones; /* 1 for each byte that is not 0 */
    }
    for (int k = 0; k < 8; k++) total += counters >> (8 * k) & 0xff;
    for (; i < n; i++) total += mask[i] != 0;
    return (int64_t)total;
}

int64_t dt__mask_count(const dt__mask_walk *w, dt__mask_cursor *c, int64_t from, int64_t to) {
    int64_t total = 0;
    dt__mask_run run;
    dt__mask_cursor_init(w, c, from, to);
    while (dt__mask_cursor_next(w, c, &run)) total += count_run(run.mask, run.n);
    return total;
}
