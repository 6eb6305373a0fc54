/* shape.c: shapes, strides, and which elements of two of them meet in memory.
 *
 * Texts of errors are torch's.  Overlap is decided by quick tests first and, where those cannot
 * tell, by a bounded search for an index at which two accesses meet (a small integer equation);
 * when the search grows too long the answer is "may".
 *
 * I1: nothing here allocates or reads memory through strides.
 * I2: sums and products that user input can make overflow are checked (numel, infer) or done
 *     unsigned where the value is of no use (strides of a shape without elements).
 */
#include "runtime/shape.h"

#include <stdio.h>
#include <string.h>

#include "runtime/assert.h"

#define FORMAT_MAX 400 /* 16 dims of 20 digits with separators fit */

dt_status dt_shape_numel(int rank, const int64_t *shape, int64_t item_size, int64_t *numel) {
    DT_ASSERT(rank >= 0 && rank <= DT_RANK_MAX && item_size > 0);
    char text[FORMAT_MAX];
    int64_t n = 1, stride = 1, bytes;
    bool overflow = false, stride_overflow = false;
    for (int d = 0; d < rank; d++) {
        if (DT_UNLIKELY(shape[d] < 0))
            return dt_fail(DT_E_RUNTIME, "Trying to create tensor with negative dimension %lld: %s",
                           (long long)shape[d], dt_shape_format(rank, shape, text, sizeof text));
        overflow |= __builtin_mul_overflow(n, shape[d], &n);
    }
    overflow |= __builtin_mul_overflow(n, item_size, &bytes);
    if (DT_UNLIKELY(n == 0 || overflow))
        for (int d = rank - 1; d > 0; d--)
            stride_overflow |= __builtin_mul_overflow(stride, shape[d] > 1 ? shape[d] : 1, &stride);
    if (DT_UNLIKELY(overflow))
        return dt_fail(DT_E_RUNTIME, "Storage size calculation overflowed with sizes=%s",
                       dt_shape_format(rank, shape, text, sizeof text));
    if (DT_UNLIKELY(stride_overflow)) return dt_fail(DT_E_RUNTIME, "Stride calculation overflowed");
    *numel = n;
    return DT_OK;
}

void dt_shape_contiguous_strides(int rank, const int64_t *shape, int64_t *strides) {
    uint64_t stride = 1;
    for (int d = rank - 1; d >= 0; d--) {
        strides[d] = (int64_t)stride;
        if (shape[d] > 1) stride *= (uint64_t)shape[d];
    }
}

bool dt_shape_is_contiguous(int rank, const int64_t *shape, const int64_t *strides) {
    int64_t expected = 1;
    bool dense = true;
    for (int d = rank - 1; d >= 0; d--) {
        if (shape[d] == 0) return true;
        if (shape[d] == 1) continue;
        dense &= strides[d] == expected;
        if (!dense) expected = 0; /* only zero sizes are still looked for */
        expected *= shape[d];
    }
    return dense;
}

dt_status dt_shape_wrap_dim(int64_t dim, int rank, bool wrap_scalar, int *out) {
    int64_t span = rank;
    if (DT_UNLIKELY(rank == 0)) {
        if (!wrap_scalar)
            return dt_fail(DT_E_INDEX, "Dimension specified as %lld but tensor has no dimensions",
                           (long long)dim);
        span = 1;
    }
    if (DT_UNLIKELY(dim < -span || dim >= span))
        return dt_fail(DT_E_INDEX,
                       "Dimension out of range (expected to be in range of [%lld, %lld], but got "
                       "%lld)",
                       (long long)-span, (long long)span - 1, (long long)dim);
    *out = (int)(dim < 0 ? dim + span : dim);
    return DT_OK;
}

dt_status dt_shape_broadcast(const dt_dims *a, const dt_dims *b, dt_dims *out) {
    int rank = a->rank > b->rank ? a->rank : b->rank;
    dt_dims result; /* out may be a or b, and stays as it was on failure */
    result.rank = rank;
    for (int d = rank - 1; d >= 0; d--) {
        int da = d - (rank - a->rank), db = d - (rank - b->rank);
        int64_t na = da >= 0 ? a->v[da] : 1, nb = db >= 0 ? b->v[db] : 1;
        if (DT_UNLIKELY(na != nb && na != 1 && nb != 1))
            return dt_fail(DT_E_RUNTIME,
                           "The size of tensor a (%lld) must match the size of tensor b (%lld) at "
                           "non-singleton dimension %d",
                           (long long)na, (long long)nb, d);
        result.v[d] = na == 1 ? nb : na;
    }
    out->rank = rank;
    memcpy(out->v, result.v, sizeof(int64_t) * (size_t)rank);
    return DT_OK;
}

dt_status dt_shape_infer(dt_dims *shape, int64_t numel) {
    char text[FORMAT_MAX];
    int unknown = -1;
    int64_t known = 1;
    bool overflow = false, has_zero = false;
    for (int d = 0; d < shape->rank; d++) {
        int64_t n = shape->v[d];
        if (n == -1) {
            if (unknown >= 0) return dt_fail(DT_E_RUNTIME, "only one dimension can be inferred");
            unknown = d;
        } else if (n < 0) {
            return dt_fail(DT_E_RUNTIME, "invalid shape dimension %lld at index %d of shape %s",
                           (long long)n, d,
                           dt_shape_format(shape->rank, shape->v, text, sizeof text));
        } else {
            has_zero |= n == 0;
            overflow |= __builtin_mul_overflow(known, n, &known);
        }
    }
    dt_shape_format(shape->rank, shape->v, text, sizeof text);
    if (overflow && has_zero && numel == 0)
        return dt_fail(DT_E_RUNTIME, "numel: integer multiplication overflow");
    bool fits = unknown >= 0 && known > 0 ? numel % known == 0 : numel == known;
    if (overflow || !fits)
        return dt_fail(DT_E_RUNTIME, "shape '%s' is invalid for input of size %lld", text,
                       (long long)numel);
    if (unknown < 0) return DT_OK;
    if (known == 0)
        return dt_fail(DT_E_RUNTIME,
                       "cannot reshape tensor of 0 elements into shape %s because the unspecified "
                       "dimension size -1 can be any value and is ambiguous",
                       text);
    shape->v[unknown] = numel / known;
    return DT_OK;
}

/* Takes new dims from the right (of *left still to place) for one run of `size` old elements that
 * lie `stride` apart. False when they do not multiply to size. */
static bool place_run(int64_t size, int64_t stride, const int64_t *new_shape, int64_t *new_strides,
                      int *left) {
    int64_t placed = 1;
    while (*left > 0 && (placed < size || new_shape[*left - 1] == 1)) {
        (*left)--;
        new_strides[*left] = placed * stride;
        placed *= new_shape[*left];
    }
    return placed == size;
}

bool dt_shape_view_strides(int old_rank, const int64_t *old_shape, const int64_t *old_strides,
                           int new_rank, const int64_t *new_shape, int64_t *new_strides) {
    bool empty = false;
    for (int d = 0; d < old_rank; d++) empty |= old_shape[d] == 0;
    if (empty || old_rank == 0) {
        size_t size = sizeof(int64_t) * (size_t)old_rank;
        if (empty && old_rank == new_rank && memcmp(old_shape, new_shape, size) == 0)
            memmove(new_strides, old_strides, size);
        else
            dt_shape_contiguous_strides(new_rank, new_shape, new_strides);
        return true;
    }
    /* A run is a maximal row of old dims that one stride walks through. */
    int left = new_rank;
    int64_t size = old_shape[old_rank - 1], stride = old_strides[old_rank - 1];
    for (int d = old_rank - 2; d >= 0; d--) {
        if (old_shape[d] == 1) continue;
        if (old_strides[d] == size * stride) {
            size *= old_shape[d];
            continue;
        }
        if (!place_run(size, stride, new_shape, new_strides, &left)) return false;
        size = old_shape[d];
        stride = old_strides[d];
    }
    return place_run(size, stride, new_shape, new_strides, &left) && left == 0;
}

/* ---- overlap --------------------------------------------------------------------------------- */

#define TERMS_MAX (2 * DT_RANK_MAX)
#define SEARCH_STEPS_MAX 4096

/* The question: are there integers y[k] in [0, n[k]] with sum of c[k] * y[k] == target? */
typedef struct search {
    int count;
    int steps;
    int64_t c[TERMS_MAX]; /* positive, falling */
    int64_t n[TERMS_MAX];
    int64_t reach[TERMS_MAX + 1]; /* greatest sum of the terms from k on */
    int64_t gcd[TERMS_MAX + 1];   /* what every such sum is a multiple of */
} search;

/* Keeps c falling; equal coefficients become one term. */
static void search_add(search *s, int64_t c, int64_t n) {
    int at = 0;
    while (at < s->count && s->c[at] > c) at++;
    if (at < s->count && s->c[at] == c) {
        s->n[at] += n;
        return;
    }
    for (int k = s->count++; k > at; k--) {
        s->c[k] = s->c[k - 1];
        s->n[k] = s->n[k - 1];
    }
    s->c[at] = c;
    s->n[at] = n;
}

/* False when sums overflow: nothing can be said then. */
static bool search_prepare(search *s) {
    s->steps = 0;
    s->reach[s->count] = 0;
    s->gcd[s->count] = 0;
    for (int k = s->count - 1; k >= 0; k--) {
        int64_t most, a = s->c[k], b = s->gcd[k + 1];
        if (__builtin_mul_overflow(s->c[k], s->n[k], &most) ||
            __builtin_add_overflow(most, s->reach[k + 1], &s->reach[k]))
            return false;
        while (b != 0) {
            int64_t rest = a % b;
            a = b;
            b = rest;
        }
        s->gcd[k] = a;
    }
    return true;
}

/* True also when the search was given up. Strides of real tensors nest, so that each level has one
 * or two candidates. */
static bool search_from(search *s, int k, int64_t target) {
    if (target < 0 || target > s->reach[k]) return false;
    if (target == 0) return true;
    if (target % s->gcd[k] != 0) return false;
    int64_t most = target / s->c[k] < s->n[k] ? target / s->c[k] : s->n[k];
    int64_t short_by = target - s->reach[k + 1];
    int64_t least = short_by > 0 ? (short_by - 1) / s->c[k] + 1 : 0;
    for (int64_t y = most; y >= least; y--) {
        if (++s->steps > SEARCH_STEPS_MAX) return true;
        if (search_from(s, k + 1, target - y * s->c[k])) return true;
    }
    return false;
}

/* Two different indices differ first (in the order of falling strides) in some dim k. Their
 * addresses are equal when step[k] * (1 + y) is balanced by the dims of smaller strides, whose
 * differences run from -extent to extent. */
static bool meets_itself(int count, const int64_t *step, const int64_t *extent) {
    for (int k = 0; k < count; k++) {
        search s = {.count = 0};
        int64_t target = -step[k];
        search_add(&s, step[k], extent[k] - 1);
        for (int m = k + 1; m < count; m++) {
            search_add(&s, step[m], 2 * extent[m]);
            if (__builtin_add_overflow(target, step[m] * extent[m], &target)) return true;
        }
        if (!search_prepare(&s) || search_from(&s, 0, target)) return true;
    }
    return false;
}

bool dt_shape_may_self_overlap(int rank, const int64_t *shape, const int64_t *strides) {
    int64_t extent[DT_RANK_MAX], step[DT_RANK_MAX];
    int count = 0;
    bool expanded = false;
    for (int d = 0; d < rank; d++) {
        if (shape[d] == 0) return false;
        if (shape[d] == 1) continue;
        int64_t s = strides[d] < 0 ? -strides[d] : strides[d];
        expanded |= s == 0;
        int at = count++;
        for (; at > 0 && step[at - 1] < s; at--) { /* falling */
            step[at] = step[at - 1];
            extent[at] = extent[at - 1];
        }
        step[at] = s;
        extent[at] = shape[d] - 1;
    }
    if (expanded) return true;
    int64_t reach = 0;
    bool nested = true; /* each stride steps over everything that smaller ones reach */
    for (int k = count - 1; k >= 0; k--) {
        int64_t most;
        nested &= step[k] > reach;
        if (__builtin_mul_overflow(step[k], extent[k], &most) ||
            __builtin_add_overflow(reach, most, &reach))
            return true;
    }
    return !nested && meets_itself(count, step, extent);
}

/* Adds the terms of one operand; its reach in *last. False: overflow, or strides below 0. */
static bool search_add_dims(search *s, int rank, const int64_t *shape, const int64_t *strides,
                            int64_t *last) {
    *last = 0;
    for (int d = 0; d < rank; d++) {
        int64_t most;
        if (shape[d] == 1 || strides[d] == 0) continue;
        if (strides[d] < 0 || __builtin_mul_overflow(shape[d] - 1, strides[d], &most) ||
            __builtin_add_overflow(*last, most, last))
            return false;
        search_add(s, strides[d], shape[d] - 1);
    }
    return true;
}

bool dt_shape_may_meet(int a_rank, const int64_t *a_shape, const int64_t *a_strides, int b_rank,
                       const int64_t *b_shape, const int64_t *b_strides, int64_t b_minus_a) {
    for (int d = 0; d < a_rank; d++)
        if (a_shape[d] == 0) return false;
    for (int d = 0; d < b_rank; d++)
        if (b_shape[d] == 0) return false;
    /* i * sa - j * sb == b_minus_a; with j counted from the end instead, all terms are positive. */
    search s = {.count = 0};
    int64_t a_last, b_last, target;
    if (!search_add_dims(&s, a_rank, a_shape, a_strides, &a_last) ||
        !search_add_dims(&s, b_rank, b_shape, b_strides, &b_last))
        return true;
    if (__builtin_add_overflow(b_minus_a, b_last, &target) || !search_prepare(&s)) return true;
    return search_from(&s, 0, target);
}

const char *dt_shape_format(int rank, const int64_t *shape, char *buffer, int size) {
    DT_ASSERT(size >= 5);
    int used = snprintf(buffer, (size_t)size, "[");
    for (int d = 0; d < rank && used < size; d++)
        used += snprintf(buffer + used, (size_t)(size - used), d ? ", %lld" : "%lld",
                         (long long)shape[d]);
    if (used < size) used += snprintf(buffer + used, (size_t)(size - used), "]");
    if (used >= size) memcpy(buffer + size - 4, "...", 4);
    return buffer;
}
