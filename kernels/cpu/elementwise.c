/* elementwise.c: the kernels ew_* of the registry, all but ew_copy, made from kernels/ew.def.
 *
 * One run() for all.  When every operand is contiguous, of the dtype in which the expression runs
 * and no more than a number or an expanded scalar otherwise, the tile function is called once on
 * the whole part.  Else the part is walked in runs (iter.h): an operand that lies apart or has
 * another dtype is brought into a buffer that stays in L1, the rest is used where it is.
 *
 * Dtypes: input -> compute (a cast as by to()) -> math (f32 for halves), expression, math ->
 * compute (the one rounding) -> output.
 *
 * I1: which of the two ways is taken never changes a bit, since both call the same tile function.
 * I2: parts are ranges of positions, cut at multiples of 64 elements.
 */
#include "runtime/elementwise.h"

#include <string.h>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/cpuid.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/iter.h"
#include "kernels/cpu/turn.h"
#include "runtime/assert.h"
#include "runtime/op.h"

#define RUN_MAX 1024         /* elements of a run where some operand needs a buffer */
#define RUN_MAX_DIRECT 16384 /* elsewhere; also how far a check runs ahead of its division */
#define ELEMENT_MAX 8        /* bytes */
#define BLOCK_ACROSS 64      /* a block that is turned: RUN_MAX elements, and in the other */
#define BLOCK_DOWN 16        /* direction a cache line of f32 */

/* ---- the families --------------------------------------------------------------------------- */

static dt_ew_tile family_lookup(const dt_ew_family *family, dt_dtype compute, dt_dtype *math,
                                dt_dtype *out) {
    const dt_ew_tile *tiles = family->tiles[dt_cpu_level_now()];
    *math = compute;
    dt_ew_tile tile = tiles[compute];
    if (tile == NULL && (compute == DT_F16 || compute == DT_BF16)) {
        *math = DT_F32;
        tile = tiles[DT_F32];
    }
    *out = family->flags & DT_EW_BOOL_OUT ? DT_BOOL : *math;
    return tile;
}

#define ANY_ZERO(T)                                                                                \
    do {                                                                                           \
        const T *y = in1;                                                                          \
        for (int64_t i = 0; i < n; i++) zero |= y[i] == 0;                                         \
    } while (0)

static dt_status check_divisor(dt_dtype math, int64_t n, const void *in1, int64_t step) {
    bool zero = false;
    if (step == 0) n = 1;
    switch (math) {
    case DT_U8:
    case DT_I8:
        zero = memchr(in1, 0, (size_t)n) != NULL;
        break;
    case DT_I16:
        ANY_ZERO(int16_t);
        break;
    case DT_I32:
        ANY_ZERO(int32_t);
        break;
    case DT_I64:
        ANY_ZERO(int64_t);
        break;
    default:
        break; /* floats divide by zero */
    }
    return zero ? dt_fail(DT_E_ZERO_DIVISION, "ZeroDivisionError") : DT_OK;
}

#define EW_FLAGS_SAME 0
#define EW_FLAGS_BOOL DT_EW_BOOL_OUT
#define EW_FAMILY(n, name_, out_, flags_, cost_)                                                   \
    extern const dt_ew_tile dt__ew_##name_##_base[DT_DTYPE_COUNT];                                 \
    extern const dt_ew_tile dt__ew_##name_##_avx2[DT_DTYPE_COUNT];                                 \
    extern const dt_ew_tile dt__ew_##name_##_avx512[DT_DTYPE_COUNT];                               \
    static const dt_ew_family family_##name_ = {                                                   \
        .name = #name_,                                                                            \
        .nin = n,                                                                                  \
        .flags = (flags_) | EW_FLAGS_##out_,                                                       \
        .row = DT__EW_##name_,                                                                     \
        .cost = cost_,                                                                             \
        .tiles = DT_CPU_VARIANTS(dt__ew_##name_),                                                  \
        .lookup = family_lookup,                                                                   \
        .check = (flags_)&DT_EW_DIVISOR ? check_divisor : NULL,                                    \
    };                                                                                             \
    const dt_kernel dt_kernel_ew_##name_ = {                                                       \
        .name = "ew_" #name_,                                                                      \
        .run = dt__ew_run,                                                                         \
        .parts = dt__ew_parts,                                                                     \
        .cost_ns = dt__ew_cost_ns,                                                                 \
        .family = &family_##name_,                                                                 \
        .flags = DT_KERNEL_ELEMENTWISE | DT_KERNEL_OUT_CASTS,                                      \
    };
#define EW1(group, name, types, out, flags, cost, ...) EW_FAMILY(1, name, out, flags, cost)
#define EW2(group, name, types, out, flags, cost, ...) EW_FAMILY(2, name, out, flags, cost)
#define EW3(group, name, types, out, flags, cost, ...) EW_FAMILY(3, name, out, flags, cost)

#include "kernels/ew.def"

const dt_ew_family *dt_ew_resolve(const dt_call *call) {
    const dt_ew_family *family = call->kernel->family;
    if (DT_LIKELY(family != &family_pow) || dt_call_in(call, 1) != NULL) return family;
    /* f16 has no short ways in torch: pow(-inf, 0.5) is inf there, and sqrt(-inf) NaN. */
    if (!dt_dtype_is_float((dt_dtype)call->compute) || call->compute == DT_F16) return family;
    double e = dt_scalar_f64(call->immediates[1]);
    return e == 2.0    ? &family_square
           : e == 3.0  ? &family_cube
           : e == 0.5  ? &family_sqrt
           : e == -0.5 ? &family_rsqrt
           : e == -1.0 ? &family_reciprocal
           : e == -2.0 ? &family_inv_square
                       : family;
}

/* ---- one call ------------------------------------------------------------------------------- */

void dt__ew_number(const dt__ew_op *op, int k, dt_scalar value, dt__ew_slot *to) {
    dt_dtype math = dt__ew_input_math(op, k);
    if (math == DT_F32 && (op->compute == DT_F32 || op->family->flags & DT_EW_WIDE_NUMBER)) {
        to->f32 = value.category == DT_CAT_FLOAT ? (float)value.f : (float)value.i;
    } else if (math == op->compute || dt__ew_input_compute(op, k) == math) {
        dt_cast_scalar(value, math, to);
    } else {
        dt__ew_slot rounded;
        dt_cast_scalar(value, op->compute, &rounded);
        dt_cast(1, to, math, &rounded, op->compute);
    }
}

static dt_status check_number_exponent(const dt__ew_op *op, const dt_call *call) {
    if (dt_dtype_is_float(op->math) || dt_call_in(call, 1) != NULL) return DT_OK;
    if (dt_scalar_f64(call->immediates[1]) >= 0) return DT_OK;
    return dt_fail(DT_E_RUNTIME, "Integers to negative integer powers are not allowed.");
}

static void keep_number_wide(const dt_call *call, dt__ew_op *op) {
    if (op->math != DT_F16 && op->math != DT_BF16) return;
    for (int k = 0; k < op->family->nin; k++) {
        if (dt_call_in(call, k) != NULL) continue;
        op->tile = family_lookup(op->family, DT_F32, &op->math, &op->tile_out);
        return;
    }
}

bool dt__ew_op_find(const dt_call *call, dt__ew_op *op) {
    op->family = dt_ew_resolve(call);
    op->compute = (dt_dtype)call->compute;
    DT_ASSERT(op->compute < DT_DTYPE_COUNT && call->nin >= op->family->nin);
    op->tile = family_lookup(op->family, op->compute, &op->math, &op->tile_out);
    if (DT_UNLIKELY(op->tile == NULL)) return false;
    if (DT_UNLIKELY(op->family->flags & DT_EW_WIDE_NUMBER) && op->math != DT_F32)
        keep_number_wide(call, op);
    return true;
}

static dt_status find_op(const dt_call *call, dt__ew_op *op) {
    if (DT_UNLIKELY(!dt__ew_op_find(call, op)))
        return dt_fail(DT_E_NOT_IMPLEMENTED, "\"%s_cpu\" not implemented for '%s'",
                       op->family->name, dt_dtype_table[op->compute].long_name);
    if (DT_UNLIKELY(op->family->flags & DT_EW_POWER)) return check_number_exponent(op, call);
    return DT_OK;
}

/* A second operand of one element and another dtype is treated as a number is: torch takes its
 * value as it is. */
static bool is_wide_number(const dt__ew_op *op, int k, const dt_tensor *t) {
    return (op->family->flags & DT_EW_WIDE_NUMBER) && k == 1 && dt__ew_one_element(t);
}

int dt__ew_input_casts(const dt__ew_op *op, int k, const dt_tensor *t, dt_dtype dtype,
                       dt_dtype *to) {
    dt_dtype compute = dt__ew_input_compute(op, k), math = dt__ew_input_math(op, k);
    int n = 0;
    if (compute != math && dtype != compute && !is_wide_number(op, k, t)) to[n++] = dtype = compute;
    if (dtype != math) to[n++] = math;
    return n;
}

int dt__ew_output_casts(const dt__ew_op *op, dt_dtype want, dt_dtype *to) {
    dt_dtype dtype = op->tile_out;
    int n = 0;
    if (dt__ew_rounds(op) && want != op->compute) to[n++] = dtype = op->compute;
    if (dtype != want) to[n++] = want;
    return n;
}

/* The operands as the tile function wants them, when no buffer is needed. */
static bool direct_inputs(const dt__ew_op *op, const dt_call *call, int64_t begin,
                          dt__ew_slot *slots, const void **in, int64_t *step) {
    for (int k = 0; k < op->family->nin; k++) {
        const dt_tensor *t = dt_call_in(call, k);
        step[k] = 0;
        if (t == NULL) {
            dt__ew_number(op, k, call->immediates[k], &slots[k]);
            in[k] = &slots[k];
            continue;
        }
        dt_dtype math = dt__ew_input_math(op, k);
        if ((dt_dtype)t->dtype != math || dt__ew_input_compute(op, k) != math) return false;
        in[k] = dt_tensor_data(t);
        if (t->contiguous && t->numel == dt_call_out(call, 0)->numel) {
            step[k] = 1;
            in[k] = (const char *)in[k] + begin * (int64_t)dt_dtype_size(math);
        } else if (!dt__ew_one_element(t)) {
            return false;
        }
    }
    return true;
}

static dt_status run_tile(const dt__ew_op *op, int64_t n, void *out, const void *const *in,
                          const int64_t *step, const dt_params *params) {
    if (DT_LIKELY(op->family->check == NULL) || dt_dtype_is_float(op->math)) {
        op->tile(n, out, in, step, params);
        return DT_OK;
    }
    DT_ASSERT(op->family->nin >= 2);
    DT_TRY(op->family->check(op->math, n, in[1], step[1]));
    op->tile(n, out, in, step, params);
    return DT_OK;
}

/* ---- operands that need buffers ------------------------------------------------------------- */

typedef struct buffers {
    _Alignas(64) unsigned char in[DT_EW_INPUTS_MAX][RUN_MAX * ELEMENT_MAX];
    _Alignas(64) unsigned char out[RUN_MAX * ELEMENT_MAX];
    _Alignas(64) unsigned char raw[RUN_MAX * ELEMENT_MAX];
    _Alignas(64) unsigned char half[RUN_MAX * 2];
    dt__ew_slot slots[DT_EW_INPUTS_MAX];
} buffers;

typedef struct staged {
    const dt__ew_op *op;
    const dt_call *call;
    const dt_params *params;
    dt__iter it;
    dt__cursor at;
    bool out_direct;                      /* the tile function writes the output itself */
    int64_t kept[DT_EW_INPUTS_MAX];       /* elements in b->in[k] that fit every aligned run */
    const char *turned[DT_EW_INPUTS_MAX]; /* the current row of input k, already gathered */
} staged;

static void cast_input(const dt__ew_op *op, int k, const dt_tensor *t, int64_t n, void *to,
                       const void *from, buffers *b) {
    dt_dtype dtype = (dt_dtype)t->dtype, path[2];
    if (dt__ew_input_casts(op, k, t, dtype, path) == 2) {
        dt_cast(n, b->half, path[0], from, dtype);
        from = b->half;
        dtype = path[0];
    }
    dt_cast(n, to, dt__ew_input_math(op, k), from, dtype);
}

static bool input_needs_cast(const dt__ew_op *op, int k, const dt_tensor *t) {
    dt_dtype path[2];
    return dt__ew_input_casts(op, k, t, (dt_dtype)t->dtype, path) != 0;
}

/* Whether each row of input k is the same, so that one aligned run of several rows fits all. */
static bool rows_alike(const dt__iter *it, int k) {
    for (int d = 1; d < it->rank; d++)
        if (it->strides[k][d] != 0) return false;
    return true;
}

/* Where n elements of input k from the cursor on lie one after the other, in the input's dtype. */
static const void *contiguous_input(const staged *s, int k, int64_t n, void *buffer) {
    if (s->turned[k] != NULL) return s->turned[k];
    if (dt__iter_direct(&s->it, k + 1)) return dt__cursor_at(&s->it, &s->at, k + 1);
    dt__cursor_gather(&s->it, &s->at, k + 1, n, buffer);
    return buffer;
}

/* Brings n elements of input k from the cursor on to where the tile function may read them. */
static const void *stage_input(staged *s, int k, int64_t n, buffers *b, int64_t *step) {
    const dt_tensor *t = dt_call_in(s->call, k);
    *step = 0;
    if (t == NULL) return &b->slots[k];
    bool cast = input_needs_cast(s->op, k, t);
    if (dt__iter_repeats(&s->it, k + 1)) {
        const void *one = dt__cursor_at(&s->it, &s->at, k + 1);
        if (!cast) return one;
        cast_input(s->op, k, t, 1, &b->slots[k], one, b);
        return &b->slots[k];
    }
    *step = 1;
    bool aligned = s->at.index[0] == 0;
    if (aligned && n <= s->kept[k]) return b->in[k];
    const void *from = contiguous_input(s, k, n, cast ? b->raw : b->in[k]);
    if (cast) {
        cast_input(s->op, k, t, n, b->in[k], from, b);
        from = b->in[k];
    }
    if (!s->it.by_rows && from == b->in[k])
        s->kept[k] = aligned && rows_alike(&s->it, k + 1) ? n : 0;
    return from;
}

/* Writes the n results in b->out to the output, rounded to `compute` and cast to its dtype. */
static void unstage_output(const staged *s, int64_t n, buffers *b) {
    dt_dtype dtype = s->op->tile_out, want = (dt_dtype)dt_call_out(s->call, 0)->dtype, path[2];
    const void *from = b->out;
    bool direct = dt__iter_direct(&s->it, 0);
    void *memory = dt__cursor_at(&s->it, &s->at, 0);
    if (dt__ew_output_casts(s->op, want, path) == 2) {
        dt_cast(n, b->half, path[0], from, dtype);
        from = b->half;
        dtype = path[0];
    }
    if (direct) {
        dt_cast(n, memory, want, from, dtype);
        return;
    }
    if (dtype != want) {
        dt_cast(n, b->raw, want, from, dtype);
        from = b->raw;
    }
    dt__cursor_scatter(&s->it, &s->at, 0, n, from);
}

/* Whether any operand of any run will need a buffer. */
static bool needs_buffers(const staged *s) {
    if (!s->out_direct) return true;
    for (int k = 0; k < s->op->family->nin; k++) {
        const dt_tensor *t = dt_call_in(s->call, k);
        if (t == NULL || dt__iter_repeats(&s->it, k + 1)) continue;
        if (input_needs_cast(s->op, k, t) || !dt__iter_direct(&s->it, k + 1)) return true;
    }
    return false;
}

static double round_through(dt_dtype half, double value) {
    uint16_t bits;
    dt_cast(1, &bits, half, &value, DT_F64);
    dt_cast(1, &value, DT_F64, &bits, half);
    return value;
}

const dt_params *dt__ew_params(const dt__ew_op *op, const dt_call *call, dt_params *narrow) {
    if (!(op->family->flags & DT_EW_NARROW_PARAM) || op->compute == op->math) return &call->params;
    *narrow = call->params;
    narrow->f[0] = round_through(op->compute, narrow->f[0]);
    return narrow;
}

/* One run of n elements at the cursor. */
static dt_status run_at_cursor(staged *s, int64_t n, buffers *b) {
    const void *in[DT_EW_INPUTS_MAX];
    int64_t step[DT_EW_INPUTS_MAX];
    for (int k = 0; k < s->op->family->nin; k++) in[k] = stage_input(s, k, n, b, &step[k]);
    void *to = s->out_direct ? (void *)dt__cursor_at(&s->it, &s->at, 0) : b->out;
    DT_TRY(run_tile(s->op, n, to, in, step, s->params));
    if (!s->out_direct) unstage_output(s, n, b);
    return DT_OK;
}

static dt_status run_in_order(staged *s, int64_t begin, int64_t end, buffers *b) {
    int64_t limit = needs_buffers(s) ? RUN_MAX : RUN_MAX_DIRECT;
    int64_t row = s->it.by_rows ? 1 : s->it.shape[0];
    dt__cursor_seek(&s->it, &s->at, begin);
    while (s->at.position < end) {
        /* Runs of several rows end where a row does, so that the next one is aligned. */
        int64_t most = limit - limit % row - s->at.position % row;
        int64_t n = dt__cursor_run(&s->it, &s->at, most, end);
        DT_TRY(run_at_cursor(s, n, b));
        dt__cursor_next(&s->it, &s->at, n);
    }
    return DT_OK;
}

/* ---- operands whose rows run along another dim ---- */

typedef struct turned_buffers {
    _Alignas(64) unsigned char block[DT_EW_INPUTS_MAX][RUN_MAX * ELEMENT_MAX];
} turned_buffers;

static void turn_inputs(const staged *s, int dim, int64_t across, int64_t down, turned_buffers *t) {
    for (int k = 0; k < s->op->family->nin; k++)
        if (dt_call_in(s->call, k) != NULL && dt__turned_dim(&s->it, k + 1) == dim)
            dt__turn(s->it.size[k + 1], down, across, dt__cursor_at(&s->it, &s->at, k + 1),
                     s->it.strides[k + 1][0], t->block[k], BLOCK_ACROSS);
}

/* The walk goes by blocks; in each the rows of the output follow each other. */
static __attribute__((noinline)) dt_status run_turned(staged *s, int dim, const dt_part *part,
                                                      buffers *b) {
    turned_buffers t;
    dt__blocks blocks = dt__blocks_of(&s->it, dim, BLOCK_ACROSS, BLOCK_DOWN);
    int64_t parts = part->count < 1 ? 1 : part->count;
    int64_t end = blocks.count * (part->index + 1) / parts;
    for (int64_t number = blocks.count * part->index / parts; number < end; number++) {
        int64_t across, down;
        dt__blocks_seek(&blocks, number, &s->at, &across, &down);
        turn_inputs(s, dim, across, down, &t);
        for (int64_t r = 0; r < down; r++) {
            for (int k = 0; k < s->op->family->nin; k++)
                if (dt__turned_dim(&s->it, k + 1) == dim)
                    s->turned[k] = (const char *)t.block[k] + r * BLOCK_ACROSS * s->it.size[k + 1];
            DT_TRY(run_at_cursor(s, across, b));
            for (int k = 0; k < s->it.count; k++) s->at.offset[k] += s->it.strides[k][dim];
        }
    }
    return DT_OK;
}

static int first_turned_dim(const staged *s) {
    if (s->it.shape[0] < BLOCK_DOWN || s->it.numel < RUN_MAX) return 0;
    for (int k = 0; k < s->op->family->nin; k++) {
        int dim = dt_call_in(s->call, k) == NULL ? 0 : dt__turned_dim(&s->it, k + 1);
        if (dim != 0) return dim;
    }
    return 0;
}

static __attribute__((noinline)) dt_status run_staged(const dt__ew_op *op, const dt_call *call,
                                                      const dt_part *part, int64_t begin,
                                                      int64_t end) {
    staged s = {.op = op, .call = call};
    buffers b;
    dt_params narrow;
    dt__iter_init(&s.it, 1 + op->family->nin, call->operands);
    for (int k = 0; k < op->family->nin; k++)
        if (dt_call_in(call, k) == NULL) dt__ew_number(op, k, call->immediates[k], &b.slots[k]);
    s.params = dt__ew_params(op, call, &narrow);
    int dim = first_turned_dim(&s);
    if (dim != 0) s.it.by_rows = true; /* a row of a block stays in its row */
    s.out_direct = (dt_dtype)dt_call_out(call, 0)->dtype == op->tile_out && !dt__ew_rounds(op) &&
                   dt__iter_direct(&s.it, 0);
    return dim != 0 ? run_turned(&s, dim, part, &b) : run_in_order(&s, begin, end, &b);
}

/* ---- the kernel's functions ----------------------------------------------------------------- */

dt_status dt__ew_run(const dt_call *call, const dt_part *part) {
    dt__ew_op op;
    DT_TRY(find_op(call, &op));
    const dt_tensor *out = dt_call_out(call, 0);
    int64_t begin, end;
    dt__ew_range(out->numel, part, &begin, &end);
    if (out->numel == 0) return DT_OK;
    dt__ew_slot slots[DT_EW_INPUTS_MAX];
    const void *in[DT_EW_INPUTS_MAX];
    int64_t step[DT_EW_INPUTS_MAX];
    bool plain = out->contiguous && (dt_dtype)out->dtype == op.tile_out &&
                 (op.compute == op.math || op.tile_out == DT_BOOL);
    if (!plain || !direct_inputs(&op, call, begin, slots, in, step))
        return run_staged(&op, call, part, begin, end);
    if (begin >= end) return DT_OK; /* more parts than blocks of 64 */
    void *to = (char *)dt_tensor_data(out) + begin * (int64_t)dt_dtype_size(op.tile_out);
    return run_tile(&op, end - begin, to, in, step, &call->params);
}

static double element_ns(const dt__ew_op *op) {
    static const double level[DT_CPU_LEVELS] = {3.0, 1.6, 1.0};
    double ns = (double)op->family->cost / 16.0 * level[dt_cpu_level_now()];
    bool integers = !dt_dtype_is_float(op->math);
    if (integers && op->family->flags & DT_EW_POWER) return 30.0; /* a loop for each element */
    if (op->math == DT_F64) return op->family->cost > 4 ? 12.0 + ns : 2 * ns;
    if (op->math == DT_I64) return op->family->cost > 4 ? 4.0 : 2 * ns;
    return ns;
}

/* Cost of bringing operand t (dtype `want` expected) to the tile function, for one element. */
static double operand_ns(const dt_tensor *t, dt_dtype want, double *bytes) {
    double ns = 0;
    *bytes += (double)dt_dtype_size((dt_dtype)t->dtype);
    if ((dt_dtype)t->dtype != want) ns += 0.2;
    if (!t->contiguous && !dt__ew_one_element(t)) ns += 1.0;
    return ns;
}

double dt__ew_compute_ns(const dt__ew_op *op, const dt_call *call, double *bytes) {
    double ns = element_ns(op);
    *bytes = 0;
    for (int k = 0; k < op->family->nin; k++) {
        const dt_tensor *t = dt_call_in(call, k);
        if (t != NULL) ns += operand_ns(t, dt__ew_input_math(op, k), bytes);
    }
    return ns + operand_ns(dt_call_out(call, 0), op->tile_out, bytes);
}

double dt__ew_cost_ns(const dt_call *call) {
    dt__ew_op op;
    double bytes;
    dt__ew_op_find(call, &op); /* without a tile the call fails, at whatever cost */
    double n = (double)dt_call_out(call, 0)->numel;
    double computed = dt__ew_compute_ns(&op, call, &bytes) * n;
    double moved = dt__ew_moved_ns(bytes * n);
    return 15.0 + (computed > moved ? computed : moved);
}

int dt__ew_parts_for(double cost_ns, int64_t numel, int threads, double split_ns) {
    if (cost_ns < split_ns || threads <= 1) return 1;
    double parts = cost_ns / (split_ns / 2);
    /* More than threads, so that one that is late with its own leaves little to wait for. */
    if (parts > 8.0 * threads) parts = 8.0 * threads;
    if (parts > (double)numel / RUN_MAX) parts = (double)numel / RUN_MAX;
    if (parts <= threads) return parts < 1 ? 1 : (int)parts;
    return (int)(parts / threads + 0.5) * threads; /* or all but one wait for the last */
}

int dt__ew_parts(const dt_call *call, int threads) {
    return dt__ew_parts_for(dt__ew_cost_ns(call), dt_call_out(call, 0)->numel, threads,
                            DT__EW_SPLIT_NS);
}
