/* turn.c: see turn.h.
 *
 * Four by four elements of 4 bytes (two by two of 8) are turned in vector registers; every cache
 * line of the input is read once, and what is written stays in L1.
 */
#include "kernels/cpu/turn.h"

#include <string.h>

#include "runtime/assert.h"

#define TURNED_MIN 4 /* elements of either dim from which blocks pay */

int dt__turned_dim(const dt__iter *it, int k) {
    if (it->strides[k][0] == it->size[k] || it->strides[k][0] == 0) return 0;
    if (it->shape[0] < TURNED_MIN) return 0;
    for (int d = 1; d < it->rank; d++)
        if (it->strides[k][d] == it->size[k] && it->shape[d] >= TURNED_MIN) return d;
    return 0;
}

dt__blocks dt__blocks_of(const dt__iter *it, int dim, int64_t across, int64_t down) {
    dt__blocks b = {.it = it, .dim = dim, .across = across, .down = down};
    b.columns = (it->shape[0] + across - 1) / across;
    b.rows = (it->shape[dim] + down - 1) / down;
    b.count = b.columns * b.rows;
    for (int d = 1; d < it->rank; d++)
        if (d != dim) b.count *= it->shape[d];
    return b;
}

/* Along dim 0 first, then `dim`, then the other dims. */
void dt__blocks_seek(const dt__blocks *b, int64_t number, dt__cursor *c, int64_t *across,
                     int64_t *down) {
    const dt__iter *it = b->it;
    int64_t rest = number / b->columns / b->rows;
    c->index[0] = number % b->columns * b->across;
    for (int d = 1; d < it->rank; d++) {
        if (d == b->dim) {
            c->index[d] = number / b->columns % b->rows * b->down;
            continue;
        }
        c->index[d] = rest % it->shape[d];
        rest /= it->shape[d];
    }
    for (int k = 0; k < it->count; k++) {
        c->offset[k] = 0;
        for (int d = 0; d < it->rank; d++) c->offset[k] += c->index[d] * it->strides[k][d];
    }
    *across = it->shape[0] - c->index[0];
    *down = it->shape[b->dim] - c->index[b->dim];
    if (*across > b->across) *across = b->across;
    if (*down > b->down) *down = b->down;
}

typedef uint32_t vec4 __attribute__((vector_size(16), aligned(4)));
typedef uint64_t vec2 __attribute__((vector_size(16), aligned(8)));

static void turn_4x4(const char *from, int64_t stride, uint32_t *to, int64_t pitch) {
    vec4 a, b, c, d;
    memcpy(&a, from, 16);
    memcpy(&b, from + stride, 16);
    memcpy(&c, from + 2 * stride, 16);
    memcpy(&d, from + 3 * stride, 16);
    vec4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    vec4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    vec4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    vec4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    vec4 rows[4] = {
        __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
        __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
        __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
        __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7),
    };
    for (int r = 0; r < 4; r++) memcpy(to + r * pitch, &rows[r], 16);
}

static void turn_2x2(const char *from, int64_t stride, uint64_t *to, int64_t pitch) {
    vec2 a, b;
    memcpy(&a, from, 16);
    memcpy(&b, from + stride, 16);
    vec2 first = __builtin_shufflevector(a, b, 0, 2), second = __builtin_shufflevector(a, b, 1, 3);
    memcpy(to, &first, 16);
    memcpy(to + pitch, &second, 16);
}

#define TURN_EDGE(T, r0, c0)                                                                       \
    do {                                                                                           \
        T *t = to;                                                                                 \
        for (int64_t c = 0; c < columns; c++) {                                                    \
            const T *s = (const T *)(from + c * stride);                                           \
            for (int64_t r = c < (c0) ? (r0) : 0; r < rows; r++) t[r * pitch + c] = s[r];          \
        }                                                                                          \
    } while (0)

void dt__turn(int64_t size, int64_t rows, int64_t columns, const char *from, int64_t stride,
              void *to, int64_t pitch) {
    int64_t r4 = rows & ~(int64_t)3, c4 = columns & ~(int64_t)3;
    switch (size) {
    case 1:
        TURN_EDGE(uint8_t, 0, 0);
        break;
    case 2:
        TURN_EDGE(uint16_t, 0, 0);
        break;
    case 4:
        for (int64_t c = 0; c < c4; c += 4)
            for (int64_t r = 0; r < r4; r += 4)
                turn_4x4(from + c * stride + r * 4, stride, (uint32_t *)to + r * pitch + c, pitch);
        TURN_EDGE(uint32_t, r4, c4);
        break;
    default:
        DT_ASSERT(size == 8);
        for (int64_t c = 0; c < c4; c += 2)
            for (int64_t r = 0; r < r4; r += 2)
                turn_2x2(from + c * stride + r * 8, stride, (uint64_t *)to + r * pitch + c, pitch);
        TURN_EDGE(uint64_t, r4, c4);
    }
}
