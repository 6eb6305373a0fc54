/* fused_plan.c: from calls to steps, see fused_plan.h.
 *
 * First every call is taken apart into steps over values, each value written by one step: inputs
 * are found or brought in, cast the way elementwise.c casts them, computed by the very tile
 * function, rounded and cast the way out.  What is needed twice (a cast, a gathered operand) is
 * made once.  Then runs of steps each of which needs the one before become chains (chain.h), whose
 * intermediate values have no memory at all; and values that are neither memory nor one element get
 * buffers, and a buffer is free again after the last step that reads it.  A reduction at the end is
 * no step: what it reads has to be whole in the tile.
 *
 * I1: a value in memory is read before a later call of the pass overwrites it: steps stand in the
 *     order of their calls, and a tensor's value is asked for by its last writer in the pass.
 * I2: a step may write the buffer of an input that dies with it, if their elements have one size.
 * I3: of a dead output nothing is looked at but its metadata.
 */
#include "kernels/cpu/fused_plan.h"

#include <string.h>

#include "kernels/cpu/cast.h"
#include "runtime/alloc.h"
#include "runtime/assert.h"

#define STEPS_MAX DT__FUSED_VALUES_MAX
/* What a tile's buffers and stretches of memory may take of the L1 cache, and the bounds of what
 * follows from it. */
#define L1_BYTES 24576
#define TILE_MIN 256
#define TILE_MAX 4096
#define TILE_STEP 128 /* a multiple of the elements in a chain's block */
#define ALIGN 64

typedef struct value {
    uint8_t where, dtype;
    bool freed;
    int16_t cast_of;         /* the value that this one is a cast of, or -1 */
    int16_t last_use;        /* the last step that touches it */
    int16_t place;           /* -1: none yet */
    int16_t buffer;          /* DT__AT_BUFFER */
    const dt_tensor *tensor; /* where it is, or was gathered from; NULL else */
    dt__ew_slot number;
} value;

typedef struct plan {
    const dt_call *const *calls;
    int count; /* without the reduction */
    uint32_t dead;
    const dt_call *reduction; /* NULL: none */
    dt__reduce_tail tail;
    int reduced; /* the value that it reads */
    int values_count, steps_count, once_count, gathers, narrow_count, buffers_count, slots_count;
    int16_t result[DT_FUSE_MAX]; /* the value of each call's output */
    bool narrow[DT_FUSE_MAX];    /* calls whose parameters are not their own */
    double compute_ns, memory_bytes;
    value values[DT__FUSED_VALUES_MAX];
    dt__fused_step steps[STEPS_MAX], once[STEPS_MAX];
    int16_t acc[STEPS_MAX]; /* the operand that a step of a chain has in registers; -1: no chain */
    bool linked[STEPS_MAX]; /* it is the result of the step before */
    int chains, chain_insns;
    uint8_t buffer_size[DT__FUSED_VALUES_MAX]; /* bytes for each element of a tile */
    int16_t free_buffers[DT__FUSED_VALUES_MAX];
    int free_count;
} plan;

/* ---- values --------------------------------------------------------------------------------- */

static bool is_one(const value *v) { return v->where >= DT__AT_SLOT; }

static int value_new(plan *p, dt__fused_where where, dt_dtype dtype) {
    DT_ASSERT(p->values_count < DT__FUSED_VALUES_MAX);
    value *v = &p->values[p->values_count];
    v->where = (uint8_t)where;
    v->dtype = (uint8_t)dtype;
    v->freed = false;
    v->cast_of = v->last_use = v->place = v->buffer = -1;
    v->tensor = NULL;
    return p->values_count++;
}

/* A step that writes `out`; one that computes a single element is done once for all tiles. */
static dt__fused_step *step_new(plan *p, dt__fused_kind kind, int out) {
    bool once = is_one(&p->values[out]);
    int *count = once ? &p->once_count : &p->steps_count;
    DT_ASSERT(*count < STEPS_MAX);
    dt__fused_step *s = &(once ? p->once : p->steps)[(*count)++];
    s->kind = (uint8_t)kind;
    s->from = s->to = p->values[out].dtype;
    s->out = (int16_t)out;
    s->gather = 0;
    s->row = s->nin = 0;
    s->params = NULL;
    for (int k = 0; k < DT_EW_INPUTS_MAX; k++) {
        s->in[k] = (int16_t)out; /* some place, never read */
        s->step[k] = 0;
    }
    return s;
}

/* As step_new for what brings an operand in, before the tile functions that stand last and do not
 * write `from` (-1: it is memory that the pass has not written): they stay together. */
static dt__fused_step *step_early(plan *p, dt__fused_kind kind, int out, int from) {
    dt__fused_step *s = step_new(p, kind, out), step = *s;
    if (is_one(&p->values[out])) return s;
    for (; s > p->steps && s[-1].kind == DT__STEP_TILE && s[-1].out != from; s--) *s = s[-1];
    *s = step;
    return s;
}

static bool same_elements(const dt_tensor *a, const dt_tensor *b) {
    if (a == b) return true;
    if (a->storage != b->storage || a->dtype != b->dtype || a->offset != b->offset) return false;
    if (!dt_tensor_same_shape(a, b)) return false;
    for (int d = 0; d < a->rank; d++)
        if (a->shape[d] != 1 && a->strides[d] != b->strides[d]) return false;
    return true;
}

static int external_value(plan *p, const dt_tensor *t) {
    for (int v = 0; v < p->values_count; v++)
        if (p->values[v].tensor != NULL && same_elements(p->values[v].tensor, t)) return v;
    dt_dtype dtype = (dt_dtype)t->dtype;
    bool linear = t->contiguous && t->numel == dt_call_out(p->calls[0], 0)->numel;
    bool one = !linear && dt__ew_one_element(t);
    int v = value_new(p, linear ? DT__AT_MEMORY : one ? DT__AT_ONE : DT__AT_BUFFER, dtype);
    p->values[v].tensor = t;
    double bytes = (double)t->numel * (double)dt_dtype_size(dtype), all = (double)t->storage->bytes;
    p->memory_bytes += one ? 0 : bytes < all ? bytes : all; /* a broadcast row is read once */
    if (linear || one) return v;
    dt__fused_step *s = step_early(p, DT__STEP_GATHER, v, -1);
    s->tensor = t;
    s->gather = (int16_t)p->gathers++;
    return v;
}

/* The value that call number `at` reads as t. */
static int operand_value(plan *p, int at, const dt_tensor *t) {
    for (int k = at - 1; k >= 0; k--)
        if (dt_call_out(p->calls[k], 0)->storage == t->storage) return p->result[k];
    return external_value(p, t);
}

static void set_cast(plan *p, dt__fused_step *s, int from) {
    s->in[0] = (int16_t)from;
    s->from = p->values[from].dtype;
}

static int cast_value(plan *p, int from, dt_dtype dtype) {
    for (int v = 0; v < p->values_count; v++)
        if (p->values[v].cast_of == from && p->values[v].dtype == dtype) return v;
    bool one = is_one(&p->values[from]);
    int v = value_new(p, one ? DT__AT_SLOT : DT__AT_BUFFER, dtype);
    p->values[v].cast_of = (int16_t)from;
    set_cast(p, step_early(p, DT__STEP_CAST, v, from), from);
    return v;
}

static int number_value(plan *p, dt_dtype dtype) { return value_new(p, DT__AT_NUMBER, dtype); }

/* Where the output of call number `at` goes. */
static int output_value(plan *p, int at) {
    const dt_tensor *out = dt_call_out(p->calls[at], 0);
    bool dead = p->dead >> at & 1;
    int v = value_new(p, dead ? DT__AT_BUFFER : DT__AT_MEMORY, (dt_dtype)out->dtype);
    if (dead) return v;
    p->values[v].tensor = out;
    bool again = false; /* the lines are in the cache */
    for (int k = 0; k < at; k++) again |= dt_call_out(p->calls[k], 0)->storage == out->storage;
    if (!again) p->memory_bytes += (double)out->numel * (double)dt_dtype_size((dt_dtype)out->dtype);
    return v;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static int input_value(plan *p, int at, const dt__ew_op *op, int k) {
    const dt_call *call = p->calls[at];
    const dt_tensor *t = dt_call_in(call, k);
    if (t == NULL) {
        int v = number_value(p, dt__ew_input_math(op, k));
        dt__ew_number(op, k, call->immediates[k], &p->values[v].number);
        return v;
    }
    dt_dtype path[2];
    int v = operand_value(p, at, t);
    int casts = dt__ew_input_casts(op, k, t, (dt_dtype)p->values[v].dtype, path);
    for (int c = 0; c < casts; c++) v = cast_value(p, v, path[c]);
    return v;
}

static void plan_elementwise(plan *p, int at) {
    const dt_call *call = p->calls[at];
    dt__ew_op op;
    bool found = dt__ew_op_find(call, &op);
    DT_ASSERT(found);
    int in[DT_EW_INPUTS_MAX] = {0};
    for (int k = 0; k < op.family->nin; k++) in[k] = input_value(p, at, &op, k);
    dt_dtype path[2];
    int casts = dt__ew_output_casts(&op, (dt_dtype)dt_call_out(call, 0)->dtype, path);
    int v = casts == 0 ? output_value(p, at) : value_new(p, DT__AT_BUFFER, op.tile_out);
    dt__fused_step *s = step_new(p, DT__STEP_TILE, v);
    s->tile = op.tile;
    s->row = op.family->row;
    s->nin = op.family->nin;
    s->params = &call->params;
    for (int k = 0; k < op.family->nin; k++) {
        s->in[k] = (int16_t)in[k];
        s->step[k] = !is_one(&p->values[in[k]]);
    }
    if (casts == 2) v = cast_value(p, v, path[0]);
    if (casts > 0) {
        int result = output_value(p, at);
        set_cast(p, step_new(p, DT__STEP_CAST, result), v);
        v = result;
    }
    p->result[at] = (int16_t)v;
    dt_params narrow;
    p->narrow[at] = dt__ew_params(&op, call, &narrow) != &call->params;
    p->narrow_count += p->narrow[at];
    double bytes;
    p->compute_ns += dt__ew_compute_ns(&op, call, &bytes);
}

static void plan_copy(plan *p, int at) {
    const dt_call *call = p->calls[at];
    const dt_tensor *t = dt_call_in(call, 0);
    dt_dtype dtype = (dt_dtype)dt_call_out(call, 0)->dtype;
    int from;
    if (t == NULL) {
        from = number_value(p, dtype);
        dt_cast_scalar(call->immediates[0], dtype, &p->values[from].number);
    } else {
        from = operand_value(p, at, t);
        if (is_one(&p->values[from]) && p->values[from].dtype != dtype)
            from = cast_value(p, from, dtype);
    }
    int result = output_value(p, at);
    if (is_one(&p->values[from]))
        step_new(p, DT__STEP_FILL, result)->in[0] = (int16_t)from;
    else
        set_cast(p, step_new(p, DT__STEP_CAST, result), from);
    p->result[at] = (int16_t)result;
    p->narrow[at] = false;
    p->compute_ns += 0.1;
}

static void plan_reduction(plan *p) {
    const dt_tensor *in = dt_call_in(p->reduction, 0);
    bool suits = dt__reduce_tail_of(p->reduction, &p->tail);
    DT_ASSERT(suits);
    int v = operand_value(p, p->count, in);
    p->reduced = p->values[v].dtype == p->tail.dtype ? v : cast_value(p, v, p->tail.dtype);
    DT_ASSERT(!is_one(&p->values[p->reduced]));
    p->compute_ns += p->reduction->kernel->cost_ns(p->reduction) / (double)in->numel;
}

/* ---- halves --------------------------------------------------------------------------------- */

/* The last step of each value that reads it, and how many there are. */
typedef struct readers {
    int16_t last[DT__FUSED_VALUES_MAX], count[DT__FUSED_VALUES_MAX];
} readers;

static void find_readers(const plan *p, readers *r) {
    for (int v = 0; v < p->values_count; v++) r->count[v] = 0;
    for (int i = 0; i < p->steps_count; i++)
        for (int k = 0; k < DT_EW_INPUTS_MAX; k++) {
            int v = p->steps[i].in[k];
            if (v == p->steps[i].out) continue; /* not an input */
            r->last[v] = (int16_t)i;
            r->count[v]++;
        }
    if (p->reduction != NULL) r->count[p->reduced]++;
}

/* f32 to a half that nobody reads but as f32 again: one step that rounds. */
static void join_casts_of_halves(plan *p) {
    readers r;
    find_readers(p, &r);
    bool gone[STEPS_MAX] = {false};
    int kept = 0;
    for (int i = 0; i < p->steps_count; i++) {
        dt__fused_step *s = &p->steps[i];
        if (gone[i]) continue;
        bool narrows =
            s->kind == DT__STEP_CAST && s->from == DT_F32 && (s->to == DT_F16 || s->to == DT_BF16);
        if (narrows && p->values[s->out].where == DT__AT_BUFFER && r.count[s->out] == 1) {
            int next = r.last[s->out];
            const dt__fused_step *back = &p->steps[next];
            bool widens = back->kind == DT__STEP_CAST && back->to == DT_F32;
            if (widens && p->values[back->out].where == DT__AT_BUFFER) { /* memory has its order */
                s->kind = DT__STEP_ROUND;
                s->out = s->in[1] = s->in[2] = back->out;
                gone[next] = true;
            }
        }
        p->steps[kept++] = *s;
    }
    p->steps_count = kept;
}

static void find_last_uses(plan *p) {
    for (int i = 0; i < p->steps_count; i++) {
        const dt__fused_step *s = &p->steps[i];
        p->values[s->out].last_use = (int16_t)i;
        for (int k = 0; k < DT_EW_INPUTS_MAX; k++) p->values[s->in[k]].last_use = (int16_t)i;
    }
    if (p->reduction != NULL) p->values[p->reduced].last_use = (int16_t)p->steps_count;
}

/* ---- chains --------------------------------------------------------------------------------- */

static void operands_of(const plan *p, const dt__fused_step *s, int acc, dt__chain_operand *o) {
    for (int k = 0; k < s->nin; k++)
        o[k] = s->in[k] == acc                ? DT__CHAIN_A
               : is_one(&p->values[s->in[k]]) ? DT__CHAIN_O
                                              : DT__CHAIN_M;
}

/* Whether step i can be computed with the value `acc` in registers. */
static bool can_chain(const plan *p, int i, int acc) {
    const dt__fused_step *s = &p->steps[i];
    dt__chain_operand o[DT_EW_INPUTS_MAX];
    if (s->kind != DT__STEP_TILE) return false;
    operands_of(p, s, acc, o);
    return dt__chain_has((dt_dtype)p->values[s->out].dtype, s->row, s->nin, o);
}

/* The operand with which a chain could begin at step i, or -1. */
static int first_operand(const plan *p, int i) {
    const dt__fused_step *s = &p->steps[i];
    for (int k = 0; k < s->nin; k++)
        if (!is_one(&p->values[s->in[k]]) && can_chain(p, i, s->in[k])) return s->in[k];
    return -1;
}

/* Whether the value of step i is used by the next one only. */
static bool used_at_once(const plan *p, int i) {
    const value *v = &p->values[p->steps[i].out];
    return v->where == DT__AT_BUFFER && v->last_use == i + 1;
}

/* The values of a chain that need memory. */
typedef struct touched {
    int count;
    int16_t values[DT__CHAIN_MEMORY_MAX];
} touched;

/* False: they are too many. */
static bool touch(touched *t, int v) {
    for (int k = 0; k < t->count; k++)
        if (t->values[k] == v) return true;
    if (t->count == DT__CHAIN_MEMORY_MAX) return false;
    t->values[t->count++] = (int16_t)v;
    return true;
}

/* There is always room for one more: the value of the last step. */
static bool touch_step(touched *t, const plan *p, int i, int acc) {
    const dt__fused_step *s = &p->steps[i];
    bool room = used_at_once(p, i) || touch(t, s->out);
    for (int k = 0; k < s->nin && room; k++)
        if (s->in[k] != acc && !is_one(&p->values[s->in[k]])) room = touch(t, s->in[k]);
    return room && t->count < DT__CHAIN_MEMORY_MAX;
}

/* Makes a chain of step i and as many as can follow it; returns the first that does not. */
static int link_from(plan *p, int i) {
    int acc = first_operand(p, i), end = i + 1;
    touched t = {0};
    p->acc[i] = -1;
    p->linked[i] = false;
    if (acc < 0 || !touch(&t, acc) || !touch_step(&t, p, i, acc)) return end;
    while (end < p->steps_count && can_chain(p, end, p->steps[end - 1].out) &&
           touch_step(&t, p, end, p->steps[end - 1].out))
        end++;
    if (end == i + 1) return end;
    p->acc[i] = (int16_t)acc;
    for (int k = i + 1; k < end; k++) {
        p->acc[k] = p->steps[k - 1].out;
        p->linked[k] = true;
        value *v = &p->values[p->acc[k]];
        if (!used_at_once(p, k - 1)) continue;
        v->where = DT__AT_REGISTER;
        p->compute_ns -= DT__CHAIN_SAVED_NS * (double)dt_dtype_size((dt_dtype)v->dtype);
    }
    p->chains++;
    p->chain_insns += 2 * (end - i) + 2; /* each with a store, load, end */
    return end;
}

static void link_steps(plan *p) {
    find_last_uses(p);
    p->chains = p->chain_insns = 0;
    for (int i = 0; i < p->steps_count;) i = link_from(p, i);
}

/* Whether the pass is one chain from memory to memory. */
static bool is_one_chain(const plan *p) {
    if (p->chains != 1 || p->buffers_count > 0) return false;
    for (int i = 1; i < p->steps_count; i++)
        if (!p->linked[i]) return false;
    return true;
}

/* ---- buffers -------------------------------------------------------------------------------- */

static void free_buffer(plan *p, value *v, int step) {
    if (v->where != DT__AT_BUFFER || v->last_use != step || v->freed) return;
    v->freed = true;
    p->free_buffers[p->free_count++] = v->buffer;
}

static void take_buffer(plan *p, value *v) {
    if (v->where != DT__AT_BUFFER) return;
    int b = p->free_count > 0 ? p->free_buffers[--p->free_count] : p->buffers_count++;
    uint8_t size = (uint8_t)dt_dtype_size((dt_dtype)v->dtype);
    v->buffer = (int16_t)b;
    if (p->buffer_size[b] < size) p->buffer_size[b] = size;
}

static void assign_buffers(plan *p) {
    find_last_uses(p);
    p->buffers_count = p->free_count = 0;
    memset(p->buffer_size, 0, sizeof p->buffer_size);
    for (int i = 0; i < p->steps_count; i++) {
        const dt__fused_step *s = &p->steps[i];
        value *out = &p->values[s->out];
        size_t size = dt_dtype_size((dt_dtype)out->dtype);
        for (int k = 0; k < DT_EW_INPUTS_MAX; k++) {
            value *in = &p->values[s->in[k]];
            if (in != out && dt_dtype_size((dt_dtype)in->dtype) == size) free_buffer(p, in, i);
        }
        take_buffer(p, out);
        for (int k = 0; k < DT_EW_INPUTS_MAX; k++) free_buffer(p, &p->values[s->in[k]], i);
        free_buffer(p, out, i);
    }
}

/* ---- the pass ------------------------------------------------------------------------------- */

static int place_new(dt_pass *pass, const value *v) {
    dt__fused_place *place = &pass->places[pass->places_count];
    place->where = v->where;
    place->size = (uint8_t)dt_dtype_size((dt_dtype)v->dtype);
    return pass->places_count++;
}

/* Memory first.  Values that lie in the same memory share a place. */
static void place_memory(plan *p, dt_pass *pass) {
    for (int k = 0; k < p->values_count; k++) {
        value *v = &p->values[k];
        if (v->where != DT__AT_MEMORY) continue;
        for (int q = 0; q < pass->places_count && v->place < 0; q++)
            if (same_elements(pass->places[q].tensor, v->tensor)) v->place = (int16_t)q;
        if (v->place >= 0) continue;
        v->place = (int16_t)place_new(pass, v);
        pass->places[v->place].tensor = v->tensor;
    }
    pass->moving = pass->places_count;
}

/* Fewer elements the more lie in the cache at a time; a multiple of TILE_STEP but for whole rows.
 */
static int64_t tile_of(const plan *p, const dt_pass *pass) {
    int64_t bytes = 0;
    for (int b = 0; b < p->buffers_count; b++) bytes += p->buffer_size[b];
    for (int q = 0; q < pass->moving; q++) bytes += pass->places[q].size;
    int64_t tile = L1_BYTES / (bytes > 0 ? bytes : 1) / TILE_STEP * TILE_STEP;
    if (p->reduction == NULL && is_one_chain(p)) return pass->numel; /* goes by blocks of its own */
    tile = tile < TILE_MIN ? TILE_MIN : tile > TILE_MAX ? TILE_MAX : tile;
    if (p->reduction == NULL) return tile;
    int64_t row = p->tail.elements;
    return row >= DT__BLOCK ? DT__BLOCK : row >= tile ? row : tile / row * row;
}

static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static void place_buffers(plan *p, dt_pass *pass) {
    int64_t offset = 0, tile = (int64_t)aligned((size_t)pass->tile);
    int first = pass->places_count;
    for (int b = 0; b < p->buffers_count; b++) {
        dt__fused_place *place = &pass->places[pass->places_count++];
        *place = (dt__fused_place){.where = DT__AT_BUFFER, .size = p->buffer_size[b]};
        place->offset = offset;
        offset += tile * p->buffer_size[b];
    }
    for (int k = 0; k < p->values_count; k++) {
        value *v = &p->values[k];
        if (v->where == DT__AT_BUFFER) v->place = (int16_t)(first + v->buffer);
        if (v->where != DT__AT_SLOT) continue;
        v->place = (int16_t)place_new(pass, v);
        pass->places[v->place].offset = offset;
        offset += (int64_t)sizeof(dt__ew_slot);
    }
    size_t bytes = aligned((size_t)offset);
    pass->gathers_at = (int64_t)bytes;
    bytes += aligned((size_t)p->gathers * dt__fused_gather_bytes);
    pass->values_at = (int64_t)bytes;
    if (p->reduction != NULL && p->tail.blocks == 1)
        bytes += aligned((size_t)(pass->tile / p->tail.elements * p->tail.size));
    pass->part_bytes = bytes;
    if (p->reduction != NULL && p->tail.blocks > 1)
        pass->whole_bytes = (size_t)(p->tail.outputs * p->tail.blocks * p->tail.size);
}

static void place_elements(plan *p, dt_pass *pass) {
    for (int k = 0; k < p->values_count; k++) {
        value *v = &p->values[k];
        if (v->where != DT__AT_ONE && v->where != DT__AT_NUMBER) continue;
        v->place = (int16_t)place_new(pass, v);
        dt__fused_place *place = &pass->places[v->place];
        if (v->where == DT__AT_ONE)
            place->tensor = v->tensor;
        else
            place->number = v->number;
    }
}

static void move_steps(const plan *p, dt_pass *pass, const dt__fused_step *steps, int count) {
    for (int i = 0; i < count; i++) {
        dt__fused_step *s = &pass->steps[pass->steps_count++];
        *s = steps[i];
        s->out = p->values[s->out].place;
        for (int k = 0; k < DT_EW_INPUTS_MAX; k++) s->in[k] = p->values[s->in[k]].place;
    }
}

/* Steps from i on as a chain at `c`; returns the first that is not in it. */
static int build_chain(const plan *p, int i, dt__chain *c) {
    dt__chain_begin(c, (dt_dtype)p->values[p->acc[i]].dtype, p->values[p->acc[i]].place);
    do {
        const dt__fused_step *s = &p->steps[i];
        const value *out = &p->values[s->out];
        dt__chain_operand o[DT_EW_INPUTS_MAX];
        int16_t places[DT_EW_INPUTS_MAX];
        operands_of(p, s, p->acc[i], o);
        for (int k = 0; k < s->nin; k++) places[k] = p->values[s->in[k]].place;
        dt__chain_add(c, s->row, s->nin, o, places, s->params);
        if (out->where != DT__AT_REGISTER) dt__chain_store(c, out->place);
        i++;
    } while (i < p->steps_count && p->linked[i]);
    dt__chain_end(c);
    return i;
}

static void move_chained_steps(plan *p, dt_pass *pass, char *room) {
    for (int i = 0; i < p->steps_count;) {
        if (p->acc[i] < 0) {
            move_steps(p, pass, &p->steps[i++], 1);
            continue;
        }
        dt__chain *c = (dt__chain *)room;
        int next = build_chain(p, i, c);
        dt__fused_step *s = &pass->steps[pass->steps_count++];
        *s = (dt__fused_step){.kind = DT__STEP_CHAIN, .chain = c};
        s->out = p->values[p->steps[next - 1].out].place;
        room += dt__chain_bytes(c->count);
        i = next;
    }
}

/* The parameters of calls that round them: their steps point at copies in the pass. */
static void narrow_params(plan *p, dt_pass *pass) {
    int next = 0;
    for (int at = 0; at < p->count; at++) {
        if (!p->narrow[at]) continue;
        const dt_call *call = p->calls[at];
        dt__ew_op op;
        bool found = dt__ew_op_find(call, &op);
        DT_ASSERT(found);
        const dt_params *narrow = dt__ew_params(&op, call, &pass->narrow[next++]);
        for (int i = 0; i < p->steps_count; i++)
            if (p->steps[i].params == &call->params) p->steps[i].params = narrow;
    }
}

static dt_status pass_new(plan *p, dt_pass **out) {
    size_t head = sizeof(dt_pass) + (size_t)p->narrow_count * sizeof(dt_params);
    size_t steps = (size_t)(p->steps_count + p->once_count) * sizeof(dt__fused_step);
    size_t places = (size_t)p->values_count * sizeof(dt__fused_place);
    size_t chains =
        (size_t)p->chains * sizeof(dt__chain) + (size_t)p->chain_insns * sizeof(dt__chain_insn);
    size_t bytes = head + steps + places + chains;
    dt_pass *pass;
    DT_ALLOC_OR_FAIL(pass, bytes);
    *pass = (dt_pass){.shape = dt_call_out(p->calls[0], 0), .bytes = bytes};
    pass->numel = pass->shape->numel;
    pass->steps = (dt__fused_step *)((char *)pass + head);
    pass->places = (dt__fused_place *)((char *)pass->steps + steps);
    pass->gathers = p->gathers;
    pass->once = p->once_count;
    double computed = p->compute_ns * (double)pass->numel, moved = dt__ew_moved_ns(p->memory_bytes);
    pass->cost_ns = computed > moved ? computed : moved;
    pass->reduction = p->reduction;
    narrow_params(p, pass);
    place_memory(p, pass);
    pass->tile = tile_of(p, pass);
    place_buffers(p, pass);
    place_elements(p, pass);
    move_steps(p, pass, p->once, p->once_count);
    move_chained_steps(p, pass, (char *)pass->places + places);
    if (p->reduction != NULL) {
        pass->tail = p->tail;
        pass->reduced = p->values[p->reduced].place;
    }
    *out = pass;
    return DT_OK;
}

dt_status dt__fused_plan(const dt_call *const *calls, int count, uint32_t dead, dt_pass **out) {
    DT_ASSERT(count >= 1 && count <= DT_FUSE_MAX);
    plan p; /* not cleared: 60 KiB of which a pass uses a little */
    p.calls = calls;
    p.count = count;
    p.dead = dead;
    p.values_count = p.steps_count = p.once_count = p.gathers = p.narrow_count = 0;
    p.compute_ns = p.memory_bytes = 0;
    dt__reduce_tail tail;
    bool reduces = dt__reduce_tail_of(calls[count - 1], &tail);
    if (reduces) p.count--; /* and one whose output nobody sees is not done at all */
    p.reduction = reduces && !(dead >> (count - 1) & 1) ? calls[count - 1] : NULL;
    DT_ASSERT(p.count >= 1);
    for (int at = 0; at < p.count; at++) {
        if (calls[at]->kernel->flags & DT_KERNEL_ELEMENTWISE)
            plan_elementwise(&p, at);
        else
            plan_copy(&p, at);
    }
    if (p.reduction != NULL) plan_reduction(&p);
    join_casts_of_halves(&p);
    link_steps(&p);
    assign_buffers(&p);
    return pass_new(&p, out);
}
