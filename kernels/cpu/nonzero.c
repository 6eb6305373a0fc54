/* nonzero.c: the places of what is not 0, as columns: one for each dim, or one output for each.
 *
 * Two passes over the input: count, take the memory, write.  Split, each part counts its stretch
 * and writes the places to a block of its own, and finish() puts the blocks behind one another:
 * what is written once more is the result, not the input.
 *
 * N1: places come in row-major order, whatever the parts.
 * N2: a block belongs to its part's entry in the scratch until finish() frees it; a part that gets
 *     no block says so there and does not fail, so that finish() frees those of the others.
 */
#include <string.h>

#include "kernels/cpu/mask_walk.h"
#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "runtime/kernel.h"

#define STRETCH_MIN 32768 /* elements that are worth a part */

typedef struct columns {
    int count; /* at least 1, but for the places of a number that are no tuple */
    int64_t *at[DT_RANK_MAX];
} columns;

/* The places of one run in the last column, from number k on of `limit`; returns the next k. */
static int64_t emit_run(const dt__mask_run *run, int64_t first, int64_t *to, int64_t k,
                        int64_t limit) {
    for (int64_t i = 0; i < run->n; i += 8) {
        int64_t n = run->n - i;
        if (n >= 8 && dt__mask_word(run->mask + i) == 0) continue;
        if (n >= 8 && k + 8 <= limit) {
            for (int j = 0; j < 8; j++) { /* written whether it counts or not: there is room */
                to[k] = first + i + j;
                k += run->mask[i + j] != 0;
            }
            continue;
        }
        for (int j = 0; j < (n < 8 ? n : 8); j++)
            if (run->mask[i + j] != 0) to[k++] = first + i + j;
    }
    return k;
}

/* The places among positions [from, to), `limit` of them. */
static void emit(const dt__mask_walk *w, dt__mask_cursor *c, int64_t from, int64_t to,
                 const columns *columns, int64_t limit) {
    if (columns->count == 0) return;
    int last = columns->count - 1;
    int64_t k = 0, index[DT_RANK_MAX];
    dt__mask_run run;
    dt__mask_cursor_init(w, c, from, to);
    for (;;) {
        memcpy(index, c->index, (size_t)w->rank * sizeof *index);
        if (k == limit || !dt__mask_cursor_next(w, c, &run)) break;
        int64_t start = k;
        DT_ASSERT(columns->at[last] != NULL);
        k = emit_run(&run, index[last], columns->at[last], k, limit);
        for (int d = 0; d < last; d++) {
            int64_t *to = columns->at[d];
            DT_ASSERT(to != NULL);
            for (int64_t j = start; j < k; j++) to[j] = index[d];
        }
    }
    DT_DEBUG_ASSERT(k == limit);
}

/* Takes the memory of all outputs. */
static dt_status take_outputs(const dt_call *call, int64_t count, columns *columns) {
    const dt_tensor *in = dt_call_in(call, 0);
    for (int k = 0; k < call->nout; k++) DT_TRY(dt_tensor_produce(dt_call_out(call, k), count));
    if (call->params.i[0]) {
        columns->count = call->nout;
        for (int k = 0; k < call->nout; k++) columns->at[k] = dt_tensor_data(dt_call_out(call, k));
        return DT_OK;
    }
    columns->count = in->rank;
    int64_t *data = dt_tensor_data(dt_call_out(call, 0));
    for (int d = 0; d < in->rank; d++) columns->at[d] = data + d * count;
    return DT_OK;
}

static void walk_of(const dt_call *call, dt__mask_walk *w) {
    dt__mask_walk_init(w, dt_call_in(call, 0), NULL, 0, true);
}

/* ---- split ----------------------------------------------------------------------------------- */

typedef struct stretch {
    int64_t count;
    int64_t *places; /* columns of `count` behind one another; NULL: there was no memory */
} stretch;

static void run_stretch(const dt__mask_walk *w, int columns_count, int64_t from, int64_t to,
                        stretch *s) {
    dt__mask_cursor c;
    columns columns = {.count = columns_count};
    s->count = dt__mask_count(w, &c, from, to);
    s->places = dt_bytes_alloc((size_t)(s->count * columns_count) * sizeof(int64_t));
    if (s->places == NULL) return;
    for (int d = 0; d < columns_count; d++) columns.at[d] = s->places + d * s->count;
    emit(w, &c, from, to, &columns, s->count);
}

static dt_status nonzero_finish(const dt_call *call, const dt_part *part) {
    if (part->count == 1) return DT_OK;
    stretch *stretches = part->scratch;
    int columns_count = dt_call_in(call, 0)->rank;
    int64_t total = 0, at = 0;
    dt_status status = DT_OK;
    for (int p = 0; p < part->count; p++) {
        total += stretches[p].count;
        if (stretches[p].places == NULL)
            status = dt_fail(DT_E_NO_MEMORY, "out of memory: %lld places of nonzero()",
                             (long long)stretches[p].count);
    }
    columns columns = {.count = 0};
    if (status == DT_OK) status = take_outputs(call, total, &columns);
    for (int p = 0; p < part->count; p++) {
        const stretch *s = &stretches[p];
        if (s->places == NULL) continue;
        for (int d = 0; status == DT_OK && d < columns_count; d++)
            memcpy(columns.at[d] + at, s->places + d * s->count,
                   (size_t)s->count * sizeof(int64_t));
        at += s->count;
        dt_bytes_free(s->places, (size_t)(s->count * columns_count) * sizeof(int64_t));
    }
    return status;
}

static dt_status nonzero_run(const dt_call *call, const dt_part *part) {
    dt__mask_walk w;
    walk_of(call, &w);
    if (part->count > 1) {
        int64_t from = w.numel * part->index / part->count;
        int64_t to = w.numel * (part->index + 1) / part->count;
        run_stretch(&w, dt_call_in(call, 0)->rank, from, to,
                    (stretch *)part->scratch + part->index);
        return DT_OK;
    }
    dt__mask_cursor c;
    columns columns;
    int64_t count = dt__mask_count(&w, &c, 0, w.numel);
    DT_TRY(take_outputs(call, count, &columns));
    emit(&w, &c, 0, w.numel, &columns, count);
    return DT_OK;
}

/* ---- estimates ------------------------------------------------------------------------------- */

static double nonzero_cost(const dt_call *call) {
    const dt_tensor *in = dt_call_in(call, 0);
    double rows = in->rank > 1 ? (double)in->numel / (double)(in->shape[in->rank - 1] + 1) : 0;
    return 100 + 1.5 * (double)in->numel + 10 * rows;
}

static int nonzero_parts(const dt_call *call, int threads) {
    const dt_tensor *in = dt_call_in(call, 0);
    int64_t parts = in->numel / STRETCH_MIN;
    if (in->rank == 0 || parts < 1) return 1;
    return parts < threads ? (int)parts : threads;
}

static size_t nonzero_scratch(const dt_call *call, int parts) {
    (void)call;
    return parts > 1 ? (size_t)parts * sizeof(stretch) : 0;
}

const dt_kernel dt_kernel_nonzero = {.name = "nonzero",
                                     .run = nonzero_run,
                                     .parts = nonzero_parts,
                                     .scratch_bytes = nonzero_scratch,
                                     .finish = nonzero_finish,
                                     .cost_ns = nonzero_cost};
