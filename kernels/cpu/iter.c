/* iter.c: see iter.h.
 *
 * I1: dims of size 1 are dropped and dims are merged when for every operand the outer stride is the
 *     inner one times the inner size, so that contiguous operands always end as one row.
 * I2: offset[k] is the sum over dims of index[d] * strides[k][d].
 */
#include "kernels/cpu/iter.h"

#include <string.h>

#include "runtime/assert.h"

static int64_t operand_stride(const dt_tensor *t, const dt_tensor *out, int d) {
    if (t->rank == out->rank) return t->shape[d] == 1 ? 0 : t->strides[d];
    return 0; /* one element for all */
}

/* Dims by the output's stride, smallest first; equal ones keep their order. */
static void sort_dims(const dt_tensor *out, int *order, int rank) {
    for (int k = 1; k < rank; k++) {
        int dim = order[k], at = k;
        while (at > 0 && out->strides[order[at - 1]] > out->strides[dim]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = dim;
    }
}

static bool can_merge(const dt__iter *it, int inner, const int64_t *outer_strides) {
    for (int k = 0; k < it->count; k++)
        if (outer_strides[k] != it->strides[k][inner] * it->shape[inner]) return false;
    return true;
}

static void add_dim(dt__iter *it, int64_t size, const int64_t *strides) {
    if (it->rank > 0 && can_merge(it, it->rank - 1, strides)) {
        it->shape[it->rank - 1] *= size;
        return;
    }
    it->shape[it->rank] = size;
    for (int k = 0; k < it->count; k++) it->strides[k][it->rank] = strides[k];
    it->rank++;
}

static void classify(dt__iter *it) {
    it->by_rows = it->rank == 1 || it->shape[0] >= DT__RUN_ROW_MIN;
    for (int k = 0; k < it->count; k++) {
        int64_t expected = it->size[k];
        it->constant[k] = true;
        it->linear[k] = true;
        for (int d = 0; d < it->rank; d++) {
            if (it->strides[k][d] != 0) it->constant[k] = false;
            if (it->strides[k][d] != expected) it->linear[k] = false;
            expected *= it->shape[d];
        }
    }
}

void dt__iter_init(dt__iter *it, int count, dt_tensor *const *tensors) {
    DT_ASSERT(count >= 1 && count <= DT__ITER_OPERANDS);
    const dt_tensor *out = tensors[0];
    int order[DT_RANK_MAX], rank = 0;
    for (int d = out->rank - 1; d >= 0; d--)
        if (out->shape[d] != 1) order[rank++] = d;
    sort_dims(out, order, rank);
    it->rank = 0;
    it->count = count;
    it->numel = out->numel;
    for (int k = 0; k < count; k++) {
        const dt_tensor *t = tensors[k];
        DT_ASSERT(t == NULL || t->numel == 1 || t->rank == out->rank);
        it->base[k] = t == NULL ? NULL : dt_tensor_data(t);
        it->size[k] = t == NULL ? 0 : (int64_t)dt_dtype_size((dt_dtype)t->dtype);
    }
    for (int r = 0; r < rank; r++) {
        int64_t strides[DT__ITER_OPERANDS];
        for (int k = 0; k < count; k++)
            strides[k] =
                tensors[k] == NULL ? 0 : operand_stride(tensors[k], out, order[r]) * it->size[k];
        add_dim(it, out->shape[order[r]], strides);
    }
    if (it->rank == 0) {
        int64_t strides[DT__ITER_OPERANDS];
        for (int k = 0; k < count; k++) strides[k] = it->size[k];
        add_dim(it, 1, strides);
    }
    classify(it);
}

void dt__cursor_seek(const dt__iter *it, dt__cursor *c, int64_t position) {
    c->position = position;
    for (int k = 0; k < it->count; k++) c->offset[k] = 0;
    for (int d = 0; d < it->rank; d++) {
        c->index[d] = d + 1 < it->rank ? position % it->shape[d] : position;
        position = d + 1 < it->rank ? position / it->shape[d] : 0;
        for (int k = 0; k < it->count; k++) c->offset[k] += c->index[d] * it->strides[k][d];
    }
}

void dt__cursor_next(const dt__iter *it, dt__cursor *c, int64_t n) {
    if (c->index[0] + n > it->shape[0]) {
        dt__cursor_seek(it, c, c->position + n);
        return;
    }
    c->position += n;
    c->index[0] += n;
    for (int k = 0; k < it->count; k++) c->offset[k] += n * it->strides[k][0];
    for (int d = 0; d + 1 < it->rank && c->index[d] == it->shape[d]; d++) {
        c->index[d] = 0;
        c->index[d + 1]++;
        for (int k = 0; k < it->count; k++)
            c->offset[k] += it->strides[k][d + 1] - it->shape[d] * it->strides[k][d];
    }
}

/* Eight bytes full of the element at `value`. */
static uint64_t repeated(int64_t size, const void *value) {
    uint8_t one;
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    switch (size) {
    case 1:
        memcpy(&one, value, sizeof one);
        return one * 0x0101010101010101u;
    case 2:
        memcpy(&two, value, sizeof two);
        return two * 0x0001000100010001u;
    case 4:
        memcpy(&four, value, sizeof four);
        return four * 0x0000000100000001u;
    default:
        DT_ASSERT(size == 8);
        memcpy(&eight, value, sizeof eight);
        return eight;
    }
}

void dt__fill(int64_t size, int64_t n, void *to, const void *value) {
    uint64_t word = repeated(size, value), words[8];
    size_t bytes = (size_t)(n * size);
    if (word == (word & 0xff) * 0x0101010101010101u) { /* 0, more often than not */
        memset(to, (int)(word & 0xff), bytes);
        return;
    }
    char *at = to;
    for (int k = 0; k < 8; k++) words[k] = word;
    for (; bytes >= sizeof words; bytes -= sizeof words, at += sizeof words)
        memcpy(at, words, sizeof words);
    memcpy(at, words, bytes);
}

#define GATHER(T)                                                                                  \
    do {                                                                                           \
        T *dst = to;                                                                               \
        for (int64_t i = 0; i < n; i++) {                                                          \
            T v;                                                                                   \
            memcpy(&v, from + i * stride, sizeof v);                                               \
            dst[i] = v;                                                                            \
        }                                                                                          \
    } while (0)

void dt__gather(int64_t size, int64_t n, void *to, const char *from, int64_t stride) {
    if (stride == size) {
        memcpy(to, from, (size_t)(n * size));
        return;
    }
    if (stride == 0) {
        dt__fill(size, n, to, from);
        return;
    }
    switch (size) {
    case 1:
        GATHER(uint8_t);
        break;
    case 2:
        GATHER(uint16_t);
        break;
    case 4:
        GATHER(uint32_t);
        break;
    default:
        DT_ASSERT(size == 8);
        GATHER(uint64_t);
    }
}

#define SCATTER(T)                                                                                 \
    do {                                                                                           \
        const T *src = from;                                                                       \
        for (int64_t i = 0; i < n; i++) memcpy(to + i * stride, &src[i], sizeof(T));               \
    } while (0)

void dt__scatter(int64_t size, int64_t n, char *to, int64_t stride, const void *from) {
    if (stride == size) {
        memcpy(to, from, (size_t)(n * size));
        return;
    }
    switch (size) {
    case 1:
        SCATTER(uint8_t);
        break;
    case 2:
        SCATTER(uint16_t);
        break;
    case 4:
        SCATTER(uint32_t);
        break;
    default:
        DT_ASSERT(size == 8);
        SCATTER(uint64_t);
    }
}

/* ---- runs over several rows ---- */

/* Steps `index` to the next row and returns its start for operand k. */
static inline char *next_row(const dt__iter *it, int k, int64_t *index, char *row) {
    for (int d = 1; d < it->rank; d++) {
        row += it->strides[k][d];
        if (++index[d] < it->shape[d]) break;
        row -= it->shape[d] * it->strides[k][d];
        index[d] = 0;
    }
    return row;
}

/* Calls move(row pointer, elements of that row) along n elements. */
#define EACH_ROW(move)                                                                             \
    do {                                                                                           \
        int64_t index[DT_RANK_MAX];                                                                \
        const int64_t stride = it->strides[k][0];                                                  \
        memcpy(index, c->index, (size_t)it->rank * sizeof *index);                                 \
        char *at = dt__cursor_at(it, c, k), *row = at - index[0] * stride;                         \
        int64_t take = it->shape[0] - index[0];                                                    \
        for (;;) {                                                                                 \
            if (take > n) take = n;                                                                \
            move;                                                                                  \
            n -= take;                                                                             \
            if (n == 0) break;                                                                     \
            at = row = next_row(it, k, index, row);                                                \
            take = it->shape[0];                                                                   \
        }                                                                                          \
    } while (0)

/* Rows are short here, so that a call for each would cost more than its bytes. */
#define GATHER_ROWS(T)                                                                             \
    do {                                                                                           \
        T *to = buffer;                                                                            \
        EACH_ROW(for (int64_t i = 0; i < take; i++, to++) memcpy(to, at + i * stride, sizeof(T))); \
    } while (0)

#define SCATTER_ROWS(T)                                                                            \
    do {                                                                                           \
        const T *from = buffer;                                                                    \
        EACH_ROW(for (int64_t i = 0; i < take; i++, from++)                                        \
                     memcpy(at + i * stride, from, sizeof(T)));                                    \
    } while (0)

void dt__cursor_gather(const dt__iter *it, const dt__cursor *c, int k, int64_t n, void *buffer) {
    if (it->by_rows) {
        dt__gather(it->size[k], n, buffer, dt__cursor_at(it, c, k), it->strides[k][0]);
        return;
    }
    switch (it->size[k]) {
    case 1:
        GATHER_ROWS(uint8_t);
        break;
    case 2:
        GATHER_ROWS(uint16_t);
        break;
    case 4:
        GATHER_ROWS(uint32_t);
        break;
    default:
        DT_ASSERT(it->size[k] == 8);
        GATHER_ROWS(uint64_t);
    }
}

void dt__cursor_scatter(const dt__iter *it, const dt__cursor *c, int k, int64_t n,
                        const void *buffer) {
    if (it->by_rows) {
        dt__scatter(it->size[k], n, dt__cursor_at(it, c, k), it->strides[k][0], buffer);
        return;
    }
    switch (it->size[k]) {
    case 1:
        SCATTER_ROWS(uint8_t);
        break;
    case 2:
        SCATTER_ROWS(uint16_t);
        break;
    case 4:
        SCATTER_ROWS(uint32_t);
        break;
    default:
        DT_ASSERT(it->size[k] == 8);
        SCATTER_ROWS(uint64_t);
    }
}
