/* lens.c: see lens.h. */
#include "runtime/lens.h"

#include "runtime/rules.h"
#include "runtime/shard.h"

/* ---- making the view ------------------------------------------------------------------------- */

static int64_t stride_of(const dt_lens *lens, const dt_tensor *t, int e) {
    int64_t stride = t->strides[lens->from[e]] * lens->step[e];
    return lens->also >= 0 && e == lens->rank - 1 ? stride + t->strides[lens->also] : stride;
}

static void set_strides(const dt_lens *lens, const dt_tensor *t, const dt_dims *shape,
                        int64_t *strides) {
    for (int e = shape->rank - 1; e >= 0; e--) {
        if (lens->from[e] >= 0)
            strides[e] = stride_of(lens, t, e);
        else if (lens->shape[e] != 1)
            strides[e] = 0;
        else
            strides[e] = e + 1 < shape->rank ? shape->v[e + 1] * strides[e + 1] : 1;
    }
}

static bool is_empty(const dt_dims *shape) {
    for (int e = 0; e < shape->rank; e++)
        if (shape->v[e] == 0) return true;
    return false;
}

/* The first element of a device's part of the view. */
static int64_t offset_of_part(const dt_spot *spot, const dt_lens *lens, const dt_tensor *t,
                              const int64_t *strides) {
    dt_box in, out;
    dt_spot_in(spot, 0, &in);
    dt_spot_out(spot, 0, &out);
    int64_t offset = t->offset;
    for (int d = 0; d < t->rank; d++) offset += (lens->start[d] - in.start[d]) * t->strides[d];
    for (int e = 0; e < lens->rank; e++) offset += out.start[e] * strides[e];
    return offset;
}

dt_status dt_lens_rule(dt_op_call *c, const dt_lens *lens) {
    const dt_tensor *t = c->args[0].t;
    int64_t strides[DT_RANK_MAX] = {0}, offset = t->offset;
    dt_dims shape = {.rank = lens->rank};
    if (c->spot != NULL)
        shape = dt_spot_out_dims(c->spot, 0);
    else
        for (int e = 0; e < shape.rank; e++) shape.v[e] = lens->shape[e];
    set_strides(lens, t, &shape, strides);
    if (c->spot == NULL)
        for (int d = 0; d < t->rank; d++) offset += lens->start[d] * t->strides[d];
    else if (!is_empty(&shape))
        offset = offset_of_part(c->spot, lens, t, strides);
    return dt_rule_view(c, t, &shape, strides, offset);
}

/* ---- boxes ----------------------------------------------------------------------------------- */

static int64_t ceil_divide(int64_t a, int64_t b) { return a / b + (a % b > 0); }

typedef struct range {
    int64_t from, to;
} range;

/* Narrows r to the indices k for which start + k * step is in the box's dim d. */
static void narrow(range *r, const dt_lens *lens, int64_t step, const dt_box *in, int d) {
    int64_t from = ceil_divide(in->start[d] - lens->start[d], step);
    int64_t to = ceil_divide(in->start[d] + in->size[d] - lens->start[d], step);
    if (from > r->from) r->from = from;
    if (to < r->to) r->to = to;
}

uint32_t dt_lens_walkers(const dt_lens *lens, int d) {
    uint32_t walkers = 0;
    for (int e = 0; e < lens->rank; e++)
        if (lens->from[e] == d && lens->step[e] != 0) walkers |= 1u << e;
    if (lens->also == d && lens->rank > 0) walkers |= 1u << (lens->rank - 1);
    return walkers;
}

bool dt_lens_fits(const dt_lens *lens, int in_rank, const dt_box *in, const dt_box *out) {
    range ranges[DT_RANK_MAX];
    bool shows_none = false, wants_none = false, same = true;
    for (int e = 0; e < lens->rank; e++) ranges[e] = (range){0, lens->shape[e]};
    for (int d = 0; d < in_rank; d++) {
        uint32_t walkers = dt_lens_walkers(lens, d);
        bool has_start =
            lens->start[d] >= in->start[d] && lens->start[d] < in->start[d] + in->size[d];
        if (walkers == 0 && !has_start) shows_none = true;
        for (int e = 0; walkers >> e != 0; e++)
            if (walkers >> e & 1)
                narrow(&ranges[e], lens, d == lens->also ? 1 : lens->step[e], in, d);
    }
    for (int e = 0; e < lens->rank; e++) {
        shows_none = shows_none || ranges[e].from >= ranges[e].to;
        wants_none = wants_none || out->size[e] == 0;
        same =
            same && ranges[e].from == out->start[e] && ranges[e].to == out->start[e] + out->size[e];
    }
    return shows_none || wants_none ? shows_none && wants_none : same;
}
