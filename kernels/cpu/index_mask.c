/* index_mask.c: elements picked by a mask (x[:, mask], masked_select), elements written through one
 * (x[:, mask] = value), and copies of what nobody knows the size of yet.
 *
 * A call has three groups of dims: those before the mask's, the mask's, which become one, and the
 * rest.  Where only the mask's are there, elements go straight from run to run of the mask.  Else
 * the byte offsets of the mask's true places are listed once, and for each outer index a block (the
 * rest) is copied for each of them.
 *
 *   take   out[l][k][r] = in[l][place(k)][r]         out is deferred: its middle size is the count
 *   put    out[l][place(k)][r] = value[l][k][r]      value broadcasts; a count that does not fit is
 *                                                    an error of the value
 *
 * X1: put writes nothing when it fails.
 * X2: split (take without other dims), parts own blocks in the scratch as in nonzero.c.
 */
#include <string.h>

#include "kernels/cpu/iter.h"
#include "kernels/cpu/mask_walk.h"
#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "runtime/kernel.h"

#define STRETCH_MIN 65536 /* elements of a mask that are worth a part */

/* ---- straight from run to run ---------------------------------------------------------------- */

/* Each pair of bodies is written once for each size of an element. */
#define TAKE_RUN(T)                                                                                \
    do {                                                                                           \
        T *dst = (T *)to;                                                                          \
        for (int64_t i = 0; i < run->n; i += 8) {                                                  \
            int64_t n = run->n - i;                                                                \
            if (n >= 8 && dt__mask_word(run->mask + i) == 0) continue;                             \
            if (n >= 8 && k + 8 <= limit) {                                                        \
                for (int j = 0; j < 8; j++) {                                                      \
                    memcpy(&dst[k], from + (i + j) * stride, sizeof(T));                           \
                    k += run->mask[i + j] != 0;                                                    \
                }                                                                                  \
                continue;                                                                          \
            }                                                                                      \
            for (int j = 0; j < (n < 8 ? n : 8); j++)                                              \
                if (run->mask[i + j] != 0) memcpy(&dst[k++], from + (i + j) * stride, sizeof(T));  \
        }                                                                                          \
    } while (0)

/* The elements of one run that count, from number k on of `limit`; returns the next k. */
static int64_t take_run(int64_t size, const dt__mask_run *run, const char *from, int64_t stride,
                        char *to, int64_t k, int64_t limit) {
    switch (size) {
    case 1:
        TAKE_RUN(uint8_t);
        break;
    case 2:
        TAKE_RUN(uint16_t);
        break;
    case 4:
        TAKE_RUN(uint32_t);
        break;
    default:
        DT_ASSERT(size == 8);
        TAKE_RUN(uint64_t);
    }
    return k;
}

/* Where 8 more values can be read, whether they count or not, no branch depends on the mask: what
 * it leaves out is written again as it is. */
#define PUT_RUN(T)                                                                                 \
    do {                                                                                           \
        for (int64_t i = 0; i < run->n; i += 8) {                                                  \
            int64_t n = run->n - i < 8 ? run->n - i : 8;                                           \
            if (n == 8 && dt__mask_word(run->mask + i) == 0) continue;                             \
            bool room = k + 8 <= limit;                                                            \
            for (int j = 0; j < n && room; j++) {                                                  \
                T old, new;                                                                        \
                char *at = to + (i + j) * stride;                                                  \
                bool counts = run->mask[i + j] != 0;                                               \
                memcpy(&old, at, sizeof(T));                                                       \
                memcpy(&new, from + k * step, sizeof(T));                                          \
                old = counts ? new : old;                                                          \
                memcpy(at, &old, sizeof(T));                                                       \
                k += counts;                                                                       \
            }                                                                                      \
            for (int j = 0; j < n && !room; j++)                                                   \
                if (run->mask[i + j] != 0)                                                         \
                    memcpy(to + (i + j) * stride, from + k++ * step, sizeof(T));                   \
        }                                                                                          \
    } while (0)

/* Values, `step` bytes apart and `limit` of them, from number k on into the elements of one run
 * that count; returns the next k. */
static int64_t put_run(int64_t size, const dt__mask_run *run, char *to, int64_t stride,
                       const char *from, int64_t step, int64_t k, int64_t limit) {
    switch (size) {
    case 1:
        PUT_RUN(uint8_t);
        break;
    case 2:
        PUT_RUN(uint16_t);
        break;
    case 4:
        PUT_RUN(uint32_t);
        break;
    default:
        DT_ASSERT(size == 8);
        PUT_RUN(uint64_t);
    }
    return k;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Dims that two tensors walk together, strides in bytes, outermost first, merged. */
typedef struct block {
    int rank;
    int64_t size, numel;
    int64_t shape[DT_RANK_MAX], to[DT_RANK_MAX], from[DT_RANK_MAX];
} block;

static void block_add(block *b, int64_t n, int64_t to, int64_t from) {
    int last = b->rank - 1;
    b->numel *= n;
    if (n == 1) return;
    if (b->rank > 0 && b->to[last] == to * n && b->from[last] == from * n) {
        b->shape[last] *= n;
        b->to[last] = to;
        b->from[last] = from;
        return;
    }
    b->shape[b->rank] = n;
    b->to[b->rank] = to;
    b->from[b->rank] = from;
    b->rank++;
}

static void copy_line(int64_t size, int64_t n, char *to, int64_t to_step, const char *from,
                      int64_t from_step) {
    if (to_step == size && from_step == size) {
        memcpy(to, from, (size_t)(n * size));
        return;
    }
    if (to_step == size) {
        dt__gather(size, n, to, from, from_step);
        return;
    }
    if (from_step == size) {
        dt__scatter(size, n, to, to_step, from);
        return;
    }
    for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, (size_t)size);
}

static void copy_dims(const block *b, int d, char *to, const char *from) {
    if (d == b->rank - 1) {
        copy_line(b->size, b->shape[d], to, b->to[d], from, b->from[d]);
        return;
    }
    for (int64_t i = 0; i < b->shape[d]; i++)
        copy_dims(b, d + 1, to + i * b->to[d], from + i * b->from[d]);
}

/* ---- the plan of a call ---------------------------------------------------------------------- */

/* The side with a mask's dims, `wide`, and the side with one dim for them, `narrow`. */
typedef struct plan {
    dt__mask_walk walk; /* offsets in the wide side */
    block outer, rest;  /* to: the side that is written */
    int64_t step;       /* bytes from one block of the narrow side to the next */
    bool straight;      /* no other dims */
} plan;

/* strides of the narrow side are in elements; `wide_written`: put. */
static void plan_init(plan *p, const dt_tensor *wide, const dt_tensor *mask, int dim,
                      const int64_t *narrow_strides, bool wide_written) {
    int64_t size = (int64_t)dt_dtype_size((dt_dtype)wide->dtype);
    dt__mask_walk_init(&p->walk, mask, wide->strides + dim, size, false);
    p->outer = (block){.size = size, .numel = 1};
    p->rest = (block){.size = size, .numel = 1};
    for (int d = 0; d < wide->rank; d++) {
        if (d >= dim && d < dim + mask->rank) continue;
        bool before = d < dim;
        int64_t a = wide->strides[d] * size;
        int64_t b = narrow_strides[before ? d : d - mask->rank + 1] * size;
        block_add(before ? &p->outer : &p->rest, wide->shape[d], wide_written ? a : b,
                  wide_written ? b : a);
    }
    p->step = narrow_strides[dim] * size;
    p->straight = p->outer.numel == 1 && p->rest.numel == 1;
}

/* The true places as byte offsets in the wide side, one after the other. */
static dt_status list_places(const plan *p, dt__mask_cursor *c, int64_t count, int64_t **out) {
    int64_t *places = dt_bytes_alloc((size_t)count * sizeof *places), k = 0;
    if (places == NULL)
        return dt_fail(DT_E_NO_MEMORY, "out of memory: the places of %lld elements",
                       (long long)count);
    int64_t stride = p->walk.strides[p->walk.rank - 1];
    dt__mask_run run;
    dt__mask_cursor_init(&p->walk, c, 0, p->walk.numel);
    while (k < count && dt__mask_cursor_next(&p->walk, c, &run))
        for (int64_t i = 0; i < run.n; i++)
            if (run.mask[i] != 0) places[k++] = run.offset + i * stride;
    DT_DEBUG_ASSERT(k == count);
    *out = places;
    return DT_OK;
}

#define COPY_ELEMENTS(T)                                                                           \
    do {                                                                                           \
        for (int64_t k = 0; k < count; k++, narrow += step)                                        \
            memcpy(to + (wide_written ? places[k] : narrow),                                       \
                   from + (wide_written ? narrow : places[k]), sizeof(T));                         \
    } while (0)

/* As copy_blocks for one outer index and blocks of one element. */
static void copy_elements(int64_t size, const int64_t *places, int64_t count, int64_t step,
                          bool wide_written, char *to, const char *from) {
    int64_t narrow = 0;
    switch (size) {
    case 1:
        COPY_ELEMENTS(uint8_t);
        break;
    case 2:
        COPY_ELEMENTS(uint16_t);
        break;
    case 4:
        COPY_ELEMENTS(uint32_t);
        break;
    default:
        DT_ASSERT(size == 8);
        COPY_ELEMENTS(uint64_t);
    }
}

/* For each outer index and each place one block: to + or from + the place, as wide_written says. */
static void copy_blocks(const plan *p, const int64_t *places, int64_t count, bool wide_written,
                        char *to, const char *from) {
    int64_t index[DT_RANK_MAX] = {0};
    for (int64_t l = 0; l < p->outer.numel; l++) {
        if (p->rest.rank == 0)
            copy_elements(p->rest.size, places, count, p->step, wide_written, to, from);
        for (int64_t k = 0; p->rest.rank > 0 && k < count; k++) {
            int64_t wide = places[k], narrow = k * p->step;
            copy_dims(&p->rest, 0, to + (wide_written ? wide : narrow),
                      from + (wide_written ? narrow : wide));
        }
        for (int d = p->outer.rank - 1; d >= 0; d--) {
            to += p->outer.to[d];
            from += p->outer.from[d];
            if (++index[d] < p->outer.shape[d]) break;
            index[d] = 0;
            to -= p->outer.shape[d] * p->outer.to[d];
            from -= p->outer.shape[d] * p->outer.from[d];
        }
    }
}

/* ---- take ------------------------------------------------------------------------------------ */

/* The strides that the output will have with `count` in its middle. */
static void plan_take(const dt_call *call, int64_t count, plan *p) {
    const dt_tensor *in = dt_call_in(call, 0), *mask = dt_call_in(call, 1);
    const dt_tensor *out = dt_call_out(call, 0);
    int64_t shape[DT_RANK_MAX], strides[DT_RANK_MAX];
    for (int d = 0; d < out->rank; d++) shape[d] = out->shape[d] == -1 ? count : out->shape[d];
    dt_shape_contiguous_strides(out->rank, shape, strides);
    plan_init(p, in, mask, (int)call->params.i[0], strides, false);
}

static void take_straight(const plan *p, dt__mask_cursor *c, int64_t from, int64_t to,
                          const char *data, char *out, int64_t count) {
    int64_t stride = p->walk.strides[p->walk.rank - 1], k = 0;
    dt__mask_run run;
    dt__mask_cursor_init(&p->walk, c, from, to);
    while (k < count && dt__mask_cursor_next(&p->walk, c, &run))
        k = take_run(p->rest.size, &run, data + run.offset, stride, out, k, count);
    DT_DEBUG_ASSERT(k == count);
}

typedef struct stretch {
    int64_t count;
    char *elements; /* NULL: there was no memory */
} stretch;

static void take_stretch(const plan *p, const char *data, int64_t from, int64_t to, stretch *s) {
    dt__mask_cursor c;
    s->count = dt__mask_count(&p->walk, &c, from, to);
    s->elements = dt_bytes_alloc((size_t)(s->count * p->rest.size));
    if (s->elements != NULL) take_straight(p, &c, from, to, data, s->elements, s->count);
}

static dt_status take_finish(const dt_call *call, const dt_part *part) {
    if (part->count == 1) return DT_OK;
    const dt_tensor *out = dt_call_out(call, 0);
    stretch *stretches = part->scratch;
    size_t size = dt_dtype_size((dt_dtype)out->dtype), at = 0;
    int64_t total = 0;
    dt_status status = DT_OK;
    for (int p = 0; p < part->count; p++) {
        total += stretches[p].count;
        if (stretches[p].elements == NULL)
            status = dt_fail(DT_E_NO_MEMORY, "out of memory: %lld elements picked by a mask",
                             (long long)stretches[p].count);
    }
    if (status == DT_OK) status = dt_tensor_produce(out, total);
    char *to = status == DT_OK ? dt_tensor_data(out) : NULL;
    for (int p = 0; p < part->count; p++) {
        size_t bytes = (size_t)stretches[p].count * size;
        if (stretches[p].elements == NULL) continue;
        if (to != NULL) memcpy(to + at, stretches[p].elements, bytes);
        at += bytes;
        dt_bytes_free(stretches[p].elements, bytes);
    }
    return status;
}

static dt_status take_run_whole(const dt_call *call) {
    const dt_tensor *in = dt_call_in(call, 0), *out = dt_call_out(call, 0);
    dt__mask_cursor c;
    plan p;
    plan_take(call, 0, &p);
    int64_t count = dt__mask_count(&p.walk, &c, 0, p.walk.numel);
    plan_take(call, count, &p);
    DT_TRY(dt_tensor_produce(out, count));
    char *to = dt_tensor_data(out);
    const char *data = dt_tensor_data(in);
    if (p.straight) {
        take_straight(&p, &c, 0, p.walk.numel, data, to, count);
        return DT_OK;
    }
    int64_t *places;
    if (count == 0 || p.outer.numel == 0 || p.rest.numel == 0) return DT_OK;
    DT_TRY(list_places(&p, &c, count, &places));
    copy_blocks(&p, places, count, false, to, data);
    dt_bytes_free(places, (size_t)count * sizeof *places);
    return DT_OK;
}

static dt_status take_kernel_run(const dt_call *call, const dt_part *part) {
    if (part->count == 1) return take_run_whole(call);
    plan p;
    plan_take(call, 0, &p);
    int64_t from = p.walk.numel * part->index / part->count;
    int64_t to = p.walk.numel * (part->index + 1) / part->count;
    take_stretch(&p, dt_tensor_data(dt_call_in(call, 0)), from, to,
                 (stretch *)part->scratch + part->index);
    return DT_OK;
}

static double take_cost(const dt_call *call) {
    const dt_tensor *in = dt_call_in(call, 0), *mask = dt_call_in(call, 1);
    return 150 + 1.5 * (double)mask->numel +
           0.1 * (double)in->numel * (double)dt_dtype_size((dt_dtype)in->dtype);
}

static int take_parts(const dt_call *call, int threads) {
    const dt_tensor *mask = dt_call_in(call, 1);
    int64_t parts = mask->numel / STRETCH_MIN;
    if (dt_call_in(call, 0)->rank != mask->rank || parts < 1) return 1;
    return parts < threads ? (int)parts : threads;
}

static size_t take_scratch(const dt_call *call, int parts) {
    (void)call;
    return parts > 1 ? (size_t)parts * sizeof(stretch) : 0;
}

const dt_kernel dt_kernel_index_mask = {.name = "index_mask",
                                        .run = take_kernel_run,
                                        .parts = take_parts,
                                        .scratch_bytes = take_scratch,
                                        .finish = take_finish,
                                        .cost_ns = take_cost};

/* ---- put ------------------------------------------------------------------------------------- */

/* The strides of value, broadcast to the picked dims of out; an error when the count forbids it. */
static dt_status broadcast_value(const dt_call *call, int64_t count, int64_t *strides) {
    const dt_tensor *out = dt_call_out(call, 0), *mask = dt_call_in(call, 0);
    const dt_tensor *value = dt_call_in(call, 1);
    int dim = (int)call->params.i[0], rank = out->rank - mask->rank + 1;
    int lead = rank - value->rank;
    int64_t shape[DT_RANK_MAX];
    bool fits = true;
    for (int d = 0; d < rank; d++) {
        int64_t size = d >= lead ? value->shape[d - lead] : 1;
        shape[d] = d < dim ? out->shape[d] : d == dim ? count : out->shape[d + mask->rank - 1];
        strides[d] = size != 1 ? value->strides[d - lead] : 0;
        fits &= size == 1 || size == shape[d];
    }
    if (fits) return DT_OK;
    char a[200], b[200];
    return dt_fail(
        DT_E_RUNTIME,
        "shape mismatch: value tensor of shape %s cannot be broadcast to indexing result "
        "of shape %s",
        dt_shape_format(value->rank, value->shape, a, sizeof a),
        dt_shape_format(rank, shape, b, sizeof b));
}

static dt_status put_kernel_run(const dt_call *call, const dt_part *part) {
    (void)part;
    const dt_tensor *out = dt_call_out(call, 0), *mask = dt_call_in(call, 0);
    const dt_tensor *value = dt_call_in(call, 1);
    int64_t strides[DT_RANK_MAX] = {0};
    dt__mask_cursor c;
    plan p;
    plan_init(&p, out, mask, (int)call->params.i[0], strides, true);
    int64_t count = dt__mask_count(&p.walk, &c, 0, p.walk.numel);
    DT_TRY(broadcast_value(call, count, strides));
    if (count == 0 || p.outer.numel == 0 || p.rest.numel == 0) return DT_OK;
    plan_init(&p, out, mask, (int)call->params.i[0], strides, true);
    char *to = dt_tensor_data(out);
    const char *from = dt_tensor_data(value);
    if (p.straight) {
        int64_t stride = p.walk.strides[p.walk.rank - 1], k = 0;
        dt__mask_run run;
        dt__mask_cursor_init(&p.walk, &c, 0, p.walk.numel);
        while (k < count && dt__mask_cursor_next(&p.walk, &c, &run))
            k = put_run(p.rest.size, &run, to + run.offset, stride, from, p.step, k, count);
        return DT_OK;
    }
    int64_t *places;
    DT_TRY(list_places(&p, &c, count, &places));
    copy_blocks(&p, places, count, true, to, from);
    dt_bytes_free(places, (size_t)count * sizeof *places);
    return DT_OK;
}

static double put_cost(const dt_call *call) {
    const dt_tensor *out = dt_call_out(call, 0), *mask = dt_call_in(call, 0);
    return 150 + 2.0 * (double)mask->numel +
           0.1 * (double)out->numel * (double)dt_dtype_size((dt_dtype)out->dtype);
}

/* OUT_CASTS lets dispatch point the output at the target; the dtypes are equal all the same. */
const dt_kernel dt_kernel_index_put_mask = {.name = "index_put_mask",
                                            .run = put_kernel_run,
                                            .cost_ns = put_cost,
                                            .flags = DT_KERNEL_OUT_CASTS};

/* ---- copies of deferred tensors -------------------------------------------------------------- */

/* Only storages are looked at: the client may complete the input's metadata meanwhile. */
static dt_status clone_deferred_run(const dt_call *call, const dt_part *part) {
    (void)part;
    dt_storage *from = dt_call_in(call, 0)->storage, *to = dt_call_out(call, 0)->storage;
    const void *data = atomic_load_explicit(&from->data, memory_order_acquire);
    if (to->flags & DT_STORAGE_DEFERRED) DT_TRY(dt_storage_produce(to, from->count, from->bytes));
    DT_ASSERT(to->bytes == from->bytes);
    memcpy(atomic_load_explicit(&to->data, memory_order_acquire), data, from->bytes);
    return DT_OK;
}

/* Unknown before it runs: as of something that is worth a worker. */
static double clone_deferred_cost(const dt_call *call) {
    (void)call;
    return 6000;
}

const dt_kernel dt_kernel_clone_deferred = {
    .name = "clone_deferred", .run = clone_deferred_run, .cost_ns = clone_deferred_cost};
