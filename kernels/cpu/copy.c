/* copy.c: ew_copy: copies, casts and fills between any two layouts.
 *
 * From plain to hard: a number fills; contiguous operands are one memcpy or one cast; where the
 * output's rows and the input's rows run along different dims, square blocks are turned in a buffer
 * that stays in L1; everything else goes in runs (iter.h).
 *
 * Operands: out, in (NULL: immediates[0]).  call->compute is not looked at: the input's dtype and
 * the output's say it all.
 */
#include <string.h>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/iter.h"
#include "kernels/cpu/turn.h"
#include "runtime/assert.h"

#define RUN_MAX 1024
#define BLOCK 64 /* elements of a side of a turned block */
/* A row of the buffer, so that its columns spread over the cache's sets. */
#define PITCH (BLOCK + 8)
#define ELEMENT_MAX 8

/* ---- fills ---------------------------------------------------------------------------------- */

static void fill_any(const dt_tensor *out, const void *value, int64_t begin, int64_t end) {
    int64_t size = (int64_t)dt_dtype_size((dt_dtype)out->dtype);
    if (out->contiguous) {
        dt__fill(size, end - begin, (char *)dt_tensor_data(out) + begin * size, value);
        return;
    }
    dt__iter it;
    dt__cursor at;
    uint64_t row[RUN_MAX];
    dt__iter_init(&it, 1, (dt_tensor *[]){(dt_tensor *)out});
    dt__fill(size, end - begin < RUN_MAX ? end - begin : RUN_MAX, row, value);
    dt__cursor_seek(&it, &at, begin);
    while (at.position < end) {
        int64_t n = dt__cursor_run(&it, &at, RUN_MAX, end);
        if (dt__iter_direct(&it, 0))
            dt__fill(size, n, dt__cursor_at(&it, &at, 0), value);
        else
            dt__cursor_scatter(&it, &at, 0, n, row);
        dt__cursor_next(&it, &at, n);
    }
}

/* ---- turned blocks -------------------------------------------------------------------------- */

static void copy_turned(const dt__iter *it, int dim, const dt_part *part, dt_dtype to,
                        dt_dtype from) {
    _Alignas(64) unsigned char block[BLOCK * PITCH * ELEMENT_MAX];
    _Alignas(64) unsigned char line[BLOCK * ELEMENT_MAX];
    dt__blocks blocks = dt__blocks_of(it, dim, BLOCK, BLOCK);
    int64_t parts = part->count < 1 ? 1 : part->count;
    int64_t end = blocks.count * (part->index + 1) / parts;
    for (int64_t number = blocks.count * part->index / parts; number < end; number++) {
        dt__cursor at;
        int64_t columns, rows;
        dt__blocks_seek(&blocks, number, &at, &columns, &rows);
        dt__turn(it->size[1], rows, columns, dt__cursor_at(it, &at, 1), it->strides[1][0], block,
                 PITCH);
        for (int64_t r = 0; r < rows; r++) {
            const void *row = block + r * PITCH * it->size[1];
            char *dst = dt__cursor_at(it, &at, 0) + r * it->strides[0][dim];
            if (it->strides[0][0] == it->size[0]) {
                dt_cast(columns, dst, to, row, from);
                continue;
            }
            dt_cast(columns, line, to, row, from);
            dt__scatter(it->size[0], columns, dst, it->strides[0][0], line);
        }
    }
}

/* ---- everything else ------------------------------------------------------------------------ */

static void copy_runs(const dt__iter *it, int64_t begin, int64_t end, dt_dtype to, dt_dtype from) {
    uint64_t raw[RUN_MAX], cast[RUN_MAX], one;
    dt__cursor at;
    bool out_direct = dt__iter_direct(it, 0), in_direct = dt__iter_direct(it, 1);
    bool repeats = dt__iter_repeats(it, 1);
    int64_t limit = out_direct && in_direct && !repeats ? INT64_MAX : RUN_MAX;
    dt__cursor_seek(it, &at, begin);
    while (at.position < end) {
        int64_t n = dt__cursor_run(it, &at, limit, end);
        const void *src = dt__cursor_at(it, &at, 1);
        void *dst = dt__cursor_at(it, &at, 0);
        if (repeats) {
            dt_cast(1, &one, to, src, from);
            dt__fill(it->size[0], n, out_direct ? dst : cast, &one);
            src = cast;
        } else {
            if (!in_direct) {
                void *gathered = out_direct && to == from ? dst : raw;
                dt__cursor_gather(it, &at, 1, n, gathered);
                src = gathered;
            }
            if (out_direct) {
                dt_cast(n, dst, to, src, from);
            } else if (to != from) {
                dt_cast(n, cast, to, src, from);
                src = cast;
            }
        }
        if (!out_direct) dt__cursor_scatter(it, &at, 0, n, src);
        dt__cursor_next(it, &at, n);
    }
}

static dt_status copy_run(const dt_call *call, const dt_part *part) {
    dt_tensor *out = dt_call_out(call, 0), *in = dt_call_in(call, 0);
    dt_dtype to = (dt_dtype)out->dtype;
    int64_t begin, end;
    dt__ew_range(out->numel, part, &begin, &end);
    if (out->numel == 0) return DT_OK;
    if (in == NULL) {
        uint64_t value = 0;
        dt_cast_scalar(call->immediates[0], to, &value);
        if (begin < end) fill_any(out, &value, begin, end);
        return DT_OK;
    }
    dt_dtype from = (dt_dtype)in->dtype;
    if (out->contiguous && in->contiguous && out->numel == in->numel) {
        dt_cast(end - begin, (char *)dt_tensor_data(out) + begin * (int64_t)dt_dtype_size(to), to,
                (char *)dt_tensor_data(in) + begin * (int64_t)dt_dtype_size(from), from);
        return DT_OK;
    }
    dt__iter it;
    dt__iter_init(&it, 2, call->operands);
    int dim = dt__turned_dim(&it, 1);
    if (dim != 0)
        copy_turned(&it, dim, part, to, from);
    else if (begin < end)
        copy_runs(&it, begin, end, to, from);
    return DT_OK;
}

static double copy_cost_ns(const dt_call *call) {
    const dt_tensor *out = dt_call_out(call, 0), *in = dt_call_in(call, 0);
    double bytes = (double)dt_dtype_size((dt_dtype)out->dtype), ns = 0.02;
    if (!out->contiguous) ns += 0.5;
    if (in != NULL) {
        bytes += (double)dt_dtype_size((dt_dtype)in->dtype);
        if (!in->contiguous) ns += 0.5;
        if (in->dtype != out->dtype) ns += 0.1;
    }
    double total = bytes * (double)out->numel;
    double moved = total * (total > DT__EW_CACHE_BYTES ? 0.12 : 0.02);
    double computed = ns * (double)out->numel;
    return 15.0 + (computed > moved ? computed : moved);
}

static int copy_parts(const dt_call *call, int threads) {
    return dt__ew_parts_for(copy_cost_ns(call), dt_call_out(call, 0)->numel, threads,
                            DT__EW_SPLIT_NS);
}

const dt_kernel dt_kernel_ew_copy = {
    .name = "ew_copy",
    .run = copy_run,
    .parts = copy_parts,
    .cost_ns = copy_cost_ns,
    .flags = DT_KERNEL_OUT_CASTS,
};
