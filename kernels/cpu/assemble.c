/* assemble.c: tensors put together from pieces, see runtime/rules_collect.c for the grid.
 *
 * One pass: every byte of an output is written once.  A cell with one piece is a copy; one with
 * several is reduced in blocks that stay in L1, piece after piece in the order of the list, halves
 * in f32.  With several outputs a block is computed once and stored in all of them.  Parts of a
 * call take their share of every cell.
 *
 * A1: the bits of a result depend on values and the order of the pieces alone.
 */
#include <string.h>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/iter.h"
#include "kernels/cpu/stream.h"
#include "kernels/cpu/turn.h"
#include "runtime/assert.h"
#include "runtime/mesh.h"
#include "runtime/op.h"

#define BLOCK 2048  /* elements */
#define ROW_MIN 256 /* elements */
#define ITERS_KEPT 8

typedef union block {
    char bytes[BLOCK * 8];
    float f32[BLOCK];
    double f64[BLOCK];
    int64_t i64[BLOCK];
} block;

static bool streams(const dt_call *call) {
    const dt_tensor *out = dt_call_out(call, 0);
    size_t bytes = (size_t)out->numel * dt_dtype_size((dt_dtype)out->dtype);
    return bytes * call->nout >= (size_t)DT__STREAM_BYTES;
}

static void put(bool stream, void *to, const void *from, size_t bytes) {
    if (stream)
        dt__stream(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

/* ---- the grid -------------------------------------------------------------------------------- */

typedef struct cell {
    dt_tensor window[DT_OUTS_MAX]; /* the cell in each output; on the stack, never shared */
    dt_tensor *const *pieces;
} cell;

static void window_of(const dt_tensor *out, const int64_t *start, const int64_t *size,
                      dt_tensor *window) {
    window->dtype = out->dtype;
    window->rank = out->rank;
    window->flags = 0;
    window->storage = out->storage;
    window->offset = out->offset;
    window->numel = 1;
    for (int d = 0; d < out->rank; d++) {
        window->shape[d] = size[d];
        window->strides[d] = out->strides[d];
        window->offset += start[d] * out->strides[d];
        window->numel *= size[d];
    }
    window->contiguous = dt_shape_is_contiguous(out->rank, window->shape, window->strides);
}

typedef struct walk {
    const dt_call *call;
    int rank, each;
    int64_t grid[DT_RANK_MAX], at[DT_RANK_MAX], start[DT_RANK_MAX];
    int number; /* of the cell */
} walk;

static void walk_init(walk *w, const dt_call *call) {
    *w = (walk){.call = call, .rank = dt_call_out(call, 0)->rank, .each = (int)call->params.i[1]};
    for (int d = 0; d < w->rank; d++) w->grid[d] = call->params.i[3 + d];
}

static dt_tensor *const *pieces_now(const walk *w) {
    return w->call->operands + w->call->nout + w->number * w->each;
}

/* False after the last cell. */
static bool walk_next(walk *w) {
    const int64_t *size = pieces_now(w)[0]->shape;
    for (int d = w->rank - 1; d >= 0; d--) {
        w->start[d] += size[d];
        if (++w->at[d] < w->grid[d]) {
            w->number++;
            return true;
        }
        w->at[d] = w->start[d] = 0;
    }
    return false;
}

static void walk_cell(const walk *w, cell *c) {
    DT_ASSERT(w->call->nout > 0);
    c->pieces = pieces_now(w);
    for (int k = 0; k < w->call->nout; k++)
        window_of(dt_call_out(w->call, k), w->start, c->pieces[0]->shape, &c->window[k]);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static dt_status copy_plain(dt_tensor *to, dt_tensor *from, const dt_part *part) {
    dt_call copy = {.kernel = &dt_kernel_ew_copy,
                    .op = DT_OP_copy__to,
                    .compute = from->dtype,
                    .nout = 1,
                    .nin = 1,
                    .operands = copy.operands_inline,
                    .operands_inline = {to, from}};
    return dt_kernel_ew_copy.run(&copy, part);
}

/* One read, however many writes, block by block. */
static void copy_to_all(const dt_call *call, cell *c, dt__iter *it, const dt_part *part) {
    int64_t begin, end;
    block buffer;
    dt__cursor at;
    char *base[DT_OUTS_MAX];
    bool out_direct = dt__iter_direct(it, 0), in_direct = dt__iter_direct(it, 1);
    bool stream = streams(call);
    for (int k = 0; k < call->nout; k++) base[k] = dt_tensor_data(&c->window[k]);
    dt__ew_range(it->numel, part, &begin, &end);
    if (begin >= end) return;
    dt__cursor_seek(it, &at, begin);
    while (at.position < end) {
        int64_t n = dt__cursor_run(it, &at, BLOCK, end);
        const void *from = dt__cursor_at(it, &at, 1);
        if (!in_direct) {
            dt__cursor_gather(it, &at, 1, n, buffer.bytes);
            from = buffer.bytes;
        }
        for (int k = 0; k < call->nout; k++) {
            it->base[0] = base[k];
            if (out_direct)
                put(stream, dt__cursor_at(it, &at, 0), from, (size_t)(n * it->size[0]));
            else
                dt__cursor_scatter(it, &at, 0, n, from);
        }
        dt__cursor_next(it, &at, n);
    }
}

static dt_status copy_cell(const dt_call *call, cell *c, const dt_part *part) {
    dt_tensor *from = c->pieces[0];
    dt__iter it;
    dt__iter_init(&it, 2, (dt_tensor *[]){&c->window[0], from});
    if (dt__turned_dim(&it, 1) == 0) {
        copy_to_all(call, c, &it, part);
        return DT_OK;
    }
    for (int k = 0; k < call->nout; k++) DT_TRY(copy_plain(&c->window[k], from, part));
    return DT_OK;
}

/* ---- reductions ------------------------------------------------------------------------------ */

typedef struct reducer {
    const dt_call *call;
    cell *cell;
    int each;
    dt_dtype dtype, math; /* halves are reduced in f32 */
    dt_ew_tile tile, divide;
    double divisor;
    bool stream;
    int64_t row; /* blocks end where rows of this length do, so that pieces are read in place */
    dt__iter iters[ITERS_KEPT]; /* of (window, piece), for the first pieces */
} reducer;

static dt_op_id op_of(dt_placement_kind kind) {
    switch (kind) {
    case DT_PARTIAL_MIN:
        return DT_OP_minimum;
    case DT_PARTIAL_MAX:
        return DT_OP_maximum;
    case DT_PARTIAL_PRODUCT:
        return DT_OP_mul;
    default:
        DT_ASSERT(kind == DT_PARTIAL_SUM || kind == DT_PARTIAL_AVG);
        return DT_OP_add;
    }
}

static void reducer_init(reducer *r, const dt_call *call) {
    dt_dtype out;
    r->call = call;
    r->each = (int)call->params.i[1];
    r->dtype = (dt_dtype)dt_call_out(call, 0)->dtype;
    r->math = r->dtype == DT_F16 || r->dtype == DT_BF16 ? DT_F32 : r->dtype;
    r->tile = dt_ew_tile_lookup(op_of((dt_placement_kind)call->params.i[0]), r->math, &out);
    r->divisor = (double)call->params.i[2];
    r->stream = streams(call);
    r->divide = r->divisor == 1 ? NULL : dt_ew_tile_lookup(DT_OP_div, r->math, &out);
    DT_ASSERT(r->tile != NULL && (r->divisor == 1 || r->divide != NULL));
}

/* The length of rows that are contiguous in the piece and long enough to go by them; else BLOCK. */
static int64_t row_of(const dt__iter *it, const dt_tensor *piece) {
    bool rows = !piece->contiguous && dt__iter_direct(it, 1) && it->shape[0] >= ROW_MIN;
    return rows && it->shape[0] < BLOCK ? it->shape[0] : BLOCK;
}

static void start_cell(reducer *r, cell *c) {
    r->cell = c;
    r->row = BLOCK;
    for (int k = 0; k < r->each && k < ITERS_KEPT; k++) {
        dt__iter_init(&r->iters[k], 2, (dt_tensor *[]){&c->window[0], c->pieces[k]});
        int64_t row = row_of(&r->iters[k], c->pieces[k]);
        if (row < r->row) r->row = row;
    }
}

/* n elements of piece k from a position on, side by side: where they are, or in `room`. */
static const void *fetch(const reducer *r, int k, int64_t position, int64_t n, char *room) {
    const dt_tensor *piece = r->cell->pieces[k];
    if (piece->contiguous)
        return (char *)dt_tensor_data(piece) + position * (int64_t)dt_dtype_size(r->dtype);
    dt__iter own;
    const dt__iter *it = &r->iters[k < ITERS_KEPT ? k : 0];
    if (k >= ITERS_KEPT) {
        dt__iter_init(&own, 2, (dt_tensor *[]){&r->cell->window[0], (dt_tensor *)piece});
        it = &own;
    }
    dt__cursor at;
    dt__cursor_seek(it, &at, position);
    if (dt__iter_direct(it, 1) && dt__cursor_run(it, &at, n, position + n) == n)
        return dt__cursor_at(it, &at, 1);
    for (int64_t done = 0; done < n;) {
        int64_t take = dt__cursor_run(it, &at, n - done, position + n);
        dt__cursor_gather(it, &at, 1, take, room + done * it->size[1]);
        dt__cursor_next(it, &at, take);
        done += take;
    }
    return room;
}

static void store(const reducer *r, int k, int64_t position, int64_t n, const char *from) {
    const dt_tensor *window = &r->cell->window[k];
    int64_t size = (int64_t)dt_dtype_size(r->dtype);
    if (window->contiguous) {
        char *to = (char *)dt_tensor_data(window) + position * size;
        if (to != from) put(r->stream, to, from, (size_t)(n * size));
        return;
    }
    dt__iter it;
    dt__cursor at;
    dt__iter_init(&it, 1, (dt_tensor *[]){(dt_tensor *)window});
    dt__cursor_seek(&it, &at, position);
    for (int64_t done = 0; done < n;) {
        int64_t take = dt__cursor_run(&it, &at, n - done, position + n);
        dt__cursor_scatter(&it, &at, 0, take, from + done * size);
        dt__cursor_next(&it, &at, take);
        done += take;
    }
}

/* Piece k in the dtype that is computed in. */
static const void *widened(const reducer *r, int k, int64_t position, int64_t n, block *raw,
                           void *wide) {
    if (r->math == r->dtype) return fetch(r, k, position, n, wide);
    dt_cast(n, wide, r->math, fetch(r, k, position, n, raw->bytes), r->dtype);
    return wide;
}

/* One block: reduced in `sum`, which is the first output's own memory where that is possible. */
static void reduce_block(const reducer *r, int64_t position, int64_t n) {
    static const int64_t both[2] = {1, 1}, first[2] = {1, 0};
    block raw, next, own;
    const dt_tensor *window = &r->cell->window[0];
    void *sum = own.bytes;
    bool in_place = r->math == r->dtype && window->contiguous && !r->stream;
    if (in_place)
        sum = (char *)dt_tensor_data(window) + position * (int64_t)dt_dtype_size(r->dtype);
    const void *left = widened(r, 0, position, n, &raw, own.bytes);
    for (int k = 1; k < r->each; k++) {
        const void *right = widened(r, k, position, n, &raw, next.bytes);
        r->tile(n, sum, (const void *[]){left, right}, both, &r->call->params);
        left = sum;
    }
    if (r->divide != NULL) {
        block number;
        if (r->math == DT_F64)
            number.f64[0] = r->divisor;
        else
            number.f32[0] = (float)r->divisor;
        r->divide(n, sum, (const void *[]){sum, number.bytes}, first, &r->call->params);
    }
    const void *result = sum;
    if (r->math != r->dtype) {
        dt_cast(n, raw.bytes, r->dtype, sum, r->math);
        result = raw.bytes;
    }
    for (int k = 0; k < r->call->nout; k++) store(r, k, position, n, result);
}

static void reduce_cell(const reducer *r, const dt_part *part) {
    int64_t begin, end;
    dt__ew_range(r->cell->window[0].numel, part, &begin, &end);
    while (begin < end) {
        int64_t n = r->row - begin % r->row;
        if (n > end - begin) n = end - begin;
        reduce_block(r, begin, n);
        begin += n;
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

static dt_status copy_all(const dt_call *call, const dt_part *part) {
    walk w;
    cell c;
    walk_init(&w, call);
    do {
        walk_cell(&w, &c);
        if (c.window[0].numel > 0) DT_TRY(copy_cell(call, &c, part));
    } while (walk_next(&w));
    return DT_OK;
}

static dt_status reduce_all(const dt_call *call, const dt_part *part) {
    walk w;
    cell c;
    reducer r;
    walk_init(&w, call);
    reducer_init(&r, call);
    do {
        walk_cell(&w, &c);
        if (c.window[0].numel == 0) continue;
        start_cell(&r, &c);
        reduce_cell(&r, part);
    } while (walk_next(&w));
    return DT_OK;
}

static dt_status assemble_run(const dt_call *call, const dt_part *part) {
    if (dt_call_out(call, 0)->numel == 0) return DT_OK;
    dt_status status = call->params.i[1] == 1 ? copy_all(call, part) : reduce_all(call, part);
    dt__stream_end();
    return status;
}

static double assemble_cost(const dt_call *call) {
    const dt_tensor *out = dt_call_out(call, 0);
    double bytes = (double)out->numel * (double)dt_dtype_size((dt_dtype)out->dtype);
    double moved = dt__ew_moved_ns(bytes * (double)(call->params.i[1] + call->nout));
    return 40.0 * (1 + call->nin) + moved;
}

static int assemble_parts(const dt_call *call, int threads) {
    return dt__ew_parts_for(assemble_cost(call), dt_call_out(call, 0)->numel, threads,
                            DT__EW_SPLIT_NS);
}

const dt_kernel dt_kernel_assemble = {
    .name = "assemble",
    .run = assemble_run,
    .parts = assemble_parts,
    .cost_ns = assemble_cost,
};
