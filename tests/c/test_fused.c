/* Fused passes against the same calls run one after the other: every bit of every live output, for
 * random passes of all expressions, dtypes, layouts and lengths; and what may stand together. */
#include <stdio.h>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/table.h"
#include "runtime/alloc.h"
#include "tests/c/ew_support.h"

#define EW1(group, name, ...) extern const dt_kernel dt_kernel_ew_##name;
#define EW2 EW1
#define EW3 EW1
#include "kernels/ew.def"
#undef EW1
#undef EW2
#undef EW3

static const dt_kernel *const kernels[] = {
#define EW1(group, name, ...) &dt_kernel_ew_##name,
#define EW2 EW1
#define EW3 EW1
#include "kernels/ew.def"
    &dt_kernel_ew_copy, /* the last */
};
static const dt_op_id reductions[] = {DT_OP_sum,  DT_OP_prod, DT_OP_mean, DT_OP_amax,
                                      DT_OP_amin, DT_OP_any,  DT_OP_all,  DT_OP_norm__new};
#define KERNELS ((int)(sizeof kernels / sizeof kernels[0]))

static const dt_fuse_ops *fuse(void) { return dt_cpu_device.fuse; }

/* ---- a pass on paper ------------------------------------------------------------------------ */

typedef enum layout { PLAIN, OFFSET, ELEMENT, ROW, COLUMN, GAPS, TURNED, LAYOUTS } layout;

#define SOURCES 8
#define TENSORS (SOURCES + DT_FUSE_MAX)
#define NUMBER (-1)

typedef struct paper_call {
    const dt_kernel *kernel;
    dt_dtype compute, dtype; /* of the output */
    int nin, in[3];          /* tensors, or NUMBER */
    dt_scalar numbers[3];
    dt_params params;
    int target; /* in place over this tensor; -1: fresh */
    bool view;  /* ... by another dt_tensor of the same elements */
} paper_call;

typedef struct paper {
    int rank;
    int64_t shape[3];
    struct {
        layout layout;
        dt_dtype dtype;
    } source[SOURCES];
    bool alike; /* one dtype and simple expressions: what becomes chains */
    int count;
    paper_call call[DT_FUSE_MAX];
    uint32_t dead;
    uint64_t seed;
    /* The last call: */
    int reduced; /* the tensor that it reduces; NUMBER: no reduction */
    dt_op_id op;
    int dims; /* reduced, from the last on */
    double p;
    dt_dtype acc, out; /* `compute` and the output's dtype */
} paper;

static uint64_t below(uint64_t *seed, uint64_t n) { return ew_random(seed) % n; }

static dt_dtype tensor_dtype(const paper *p, int t) {
    return t < SOURCES ? p->source[t].dtype : p->call[t - SOURCES].dtype;
}

/* The tensor whose storage tensor t lies in. */
static int root(const paper *p, int t) {
    while (t >= SOURCES && p->call[t - SOURCES].target >= 0) t = p->call[t - SOURCES].target;
    return t;
}

static bool can_be_target(const paper *p, int t) {
    return t >= SOURCES || p->source[t].layout == PLAIN || p->source[t].layout == OFFSET;
}

static dt_scalar some_number(uint64_t *seed) {
    static const double floats[] = {2, 3, 0.5, -0.5, -1, -2, 0.1, 1.7, 0, INFINITY};
    if (below(seed, 3) == 0)
        return (dt_scalar){.category = DT_CAT_INT, .i = (int64_t)below(seed, 9) - 3};
    return (dt_scalar){.category = DT_CAT_FLOAT, .f = floats[below(seed, 10)]};
}

static int some_tensor(int calls, uint64_t *seed) {
    /* Late results more often: chains. */
    if (calls > 0 && below(seed, 2)) return SOURCES + calls - 1;
    return (int)below(seed, (uint64_t)(SOURCES + calls));
}

static dt_dtype some_dtype(const paper *p, dt_dtype usual, uint64_t *seed) {
    return p->alike || below(seed, 4) ? usual : (dt_dtype)below(seed, DT_DTYPE_COUNT);
}

static void draw_call(paper *p, int at, dt_dtype usual, uint64_t *seed) {
    paper_call *c = &p->call[at];
    *c = (paper_call){.target = -1, .compute = some_dtype(p, usual, seed)};
    int k = (int)below(seed, KERNELS + 8);
    if (p->alike && below(seed, 8)) k %= DT__EW_fmin + 1; /* the arithmetic ones */
    c->kernel = kernels[k < KERNELS ? k : KERNELS - 1];
    const dt_ew_family *family = c->kernel->family;
    c->nin = family == NULL ? 1 : family->nin;
    for (int i = 0; i < c->nin; i++) {
        c->in[i] = below(seed, 4) == 0 ? NUMBER : some_tensor(at, seed);
        c->numbers[i] = some_number(seed);
    }
    c->params.f[0] = 1.3;
    c->params.f[1] = 3;
    c->params.i[0] = dt_dtype_is_float(c->compute) ? (int64_t)below(seed, 3) : 3;
    c->params.i[1] = 3;
    bool compares = family != NULL && family->flags & DT_EW_BOOL_OUT;
    c->dtype = some_dtype(p, compares ? DT_BOOL : c->compute, seed);
    int target = some_tensor(at, seed);
    if (below(seed, 3) == 0 && can_be_target(p, target)) {
        c->target = target;
        c->view = below(seed, 2);
        c->dtype = tensor_dtype(p, target);
    }
}

static void draw_reduction(paper *p, dt_dtype usual, uint64_t *seed) {
    static const double powers[] = {2, 1, 0, INFINITY, -INFINITY, 3};
    int t = below(seed, 2) ? SOURCES + p->count - 1 : (int)below(seed, TENSORS);
    p->reduced = NUMBER;
    if (p->count == DT_FUSE_MAX || t >= SOURCES + p->count || !can_be_target(p, t)) return;
    p->reduced = t;
    p->op = reductions[below(seed, sizeof reductions / sizeof reductions[0])];
    p->dims = 1 + (int)below(seed, (uint64_t)p->rank);
    p->p = powers[below(seed, 6)];
    p->acc = p->out = some_dtype(p, usual, seed);
    bool floats = p->op == DT_OP_mean || p->op == DT_OP_norm__new;
    if (floats && !dt_dtype_is_float(p->acc)) p->acc = p->out = DT_F32;
    if (p->op == DT_OP_any || p->op == DT_OP_all) p->out = DT_BOOL;
}

/* ---- a pass with memory --------------------------------------------------------------------- */

typedef struct world {
    dt_tensor *t[TENSORS];
    dt_call call[DT_FUSE_MAX];
    int calls;
    dt_tensor *reduced; /* NULL: no reduction; else of the last call */
} world;

static dt_tensor *source_new(const paper *p, int s, bool filled) {
    int64_t whole[3], strides[3], offset = 0, size = 1;
    layout how = p->source[s].layout;
    for (int d = 0; d < p->rank; d++) whole[d] = p->shape[d];
    dt_shape_contiguous_strides(p->rank, p->shape, strides);
    for (int d = 0; d < p->rank; d++) size *= p->shape[d];
    if (how == ELEMENT)
        for (int d = 0; d < p->rank; d++) strides[d] = 0;
    if (how == ROW)
        for (int d = 0; d + 1 < p->rank; d++) strides[d] = 0;
    if (how == COLUMN) strides[p->rank - 1] = 0;
    if (how == GAPS)
        for (int d = 0; d < p->rank; d++) strides[d] *= 3;
    if (how == TURNED)
        for (int64_t d = 0, step = 1; d < p->rank; d++) {
            strides[d] = step;
            step *= whole[d] > 0 ? whole[d] : 1;
        }
    if (how != PLAIN) offset = 5;
    size *= how == GAPS ? 3 : 1;
    dt_tensor *base = ew_vector(p->source[s].dtype, (how == ELEMENT ? 0 : size) + 8);
    if (filled) ew_fill_random(base, p->seed + (uint64_t)s);
    dt_tensor *t = ew_view(base, p->rank, p->shape, strides, offset);
    dt_tensor_release(base);
    return t;
}

static void world_add(world *w, const paper *p, int at) {
    const paper_call *c = &p->call[at];
    dt_tensor *out = NULL, **made = &w->t[SOURCES + at];
    if (c->target < 0) {
        ck_assert_int_eq(dt_tensor_new(c->dtype, p->rank, p->shape, &out), DT_OK);
    } else {
        dt_tensor *old = w->t[c->target];
        out = c->view ? ew_view(old, p->rank, p->shape, old->strides, old->offset)
                      : dt_tensor_retain(old);
    }
    *made = out;
    dt_call *call = &w->call[at];
    ck_assert_int_eq(dt_call_init(call, 1, c->nin), DT_OK);
    call->kernel = c->kernel;
    call->compute = (uint8_t)c->compute;
    call->params = c->params;
    call->operands[0] = dt_tensor_retain(out);
    for (int k = 0; k < c->nin; k++) {
        if (c->in[k] == NUMBER)
            call->immediates[k] = c->numbers[k];
        else
            call->operands[1 + k] = dt_tensor_retain(w->t[c->in[k]]);
    }
    w->calls = at + 1;
}

static void world_add_reduction(world *w, const paper *p) {
    dt_call *call = &w->call[w->calls++];
    int kept = p->rank - p->dims;
    ck_assert_int_eq(dt_tensor_new(p->out, kept, p->shape, &w->reduced), DT_OK);
    ck_assert_int_eq(dt_call_init(call, 1, 1), DT_OK);
    call->kernel = dt_cpu_device.kernels[p->op];
    call->op = (uint16_t)p->op;
    call->compute = (uint8_t)p->acc;
    call->params.f[0] = p->p;
    for (int d = kept; d < p->rank; d++) call->params.i[0] |= 1 << d;
    call->operands[0] = dt_tensor_retain(w->reduced);
    call->operands[1] = dt_tensor_retain(w->t[p->reduced]);
}

static void world_pop(world *w) {
    int at = --w->calls;
    dt_call_fini(&w->call[at]);
    if (w->reduced != NULL) {
        dt_tensor_release(w->reduced);
        w->reduced = NULL;
        return;
    }
    dt_tensor_release(w->t[SOURCES + at]);
}

static void world_init(world *w, const paper *p, bool filled) {
    w->calls = 0;
    w->reduced = NULL;
    for (int s = 0; s < SOURCES; s++) w->t[s] = source_new(p, s, filled);
}

static void world_free(world *w) {
    while (w->calls > 0) world_pop(w);
    for (int s = 0; s < SOURCES; s++) dt_tensor_release(w->t[s]);
}

static bool should_be_fusible(const dt_call *call) {
    const dt_ew_family *family = call->kernel->family;
    dt__ew_op op;
    if (family == NULL) return true;
    if (!dt__ew_op_find(call, &op)) return false;
    bool errors = (op.family->flags & (DT_EW_DIVISOR | DT_EW_POWER)) != 0;
    return !errors || dt_dtype_is_float(op.math);
}

/* The reduction of a pass is fusible, unless it is over nothing, and stands behind all else. */
static void check_reduction(world *w, paper *p) {
    world_add_reduction(w, p);
    const dt_call *call = &w->call[p->count];
    int64_t elements = 1;
    for (int d = p->rank - p->dims; d < p->rank; d++) elements *= p->shape[d];
    ck_assert(fuse()->fusible(call) == (elements > 0));
    if (elements == 0) {
        p->reduced = NUMBER;
        return;
    }
    ck_assert(fuse()->ends(call));
    for (int k = 0; k < p->count; k++) {
        ck_assert(fuse()->joins(&w->call[k], call));
        ck_assert(!fuse()->joins(call, &w->call[k]));
    }
}

static void draw_paper(paper *p, int shape, uint64_t seed) {
    static const struct {
        int rank;
        int64_t shape[3];
    } shapes[] = {{1, {0}},       {1, {1}},         {1, {63}},      {1, {64}},
                  {1, {65}},      {3, {5, 0, 3}},   {2, {1, 64}},   {2, {64, 1}},
                  {2, {40, 33}},  {3, {7, 11, 13}}, {2, {300, 5}},  {3, {12, 1, 90}},
                  {1, {30001}},   {2, {130, 131}},  {2, {2, 9000}}, {1, {8192}},
                  {3, {1, 1, 1}}, {2, {70, 128}}};
    shape %= (int)(sizeof shapes / sizeof shapes[0]);
    *p = (paper){.rank = shapes[shape].rank, .seed = seed, .reduced = NUMBER};
    memcpy(p->shape, shapes[shape].shape, sizeof p->shape);
    static const dt_dtype of_chains[] = {DT_F32, DT_F64, DT_I32, DT_I64};
    p->alike = below(&seed, 2);
    dt_dtype usual = p->alike ? of_chains[below(&seed, 4)] : (dt_dtype)below(&seed, DT_DTYPE_COUNT);
    for (int s = 0; s < SOURCES; s++) {
        p->source[s].layout = s < 2 ? PLAIN : (layout)below(&seed, LAYOUTS);
        p->source[s].dtype = some_dtype(p, usual, &seed);
    }
    int count = 2 + (int)below(&seed, below(&seed, 4) ? 7 : DT_FUSE_MAX - 1);
    world w;
    world_init(&w, p, false);
    while (p->count < count) { /* what cannot be fused is drawn again */
        draw_call(p, p->count, usual, &seed);
        world_add(&w, p, p->count);
        const dt_call *call = &w.call[p->count];
        bool fusible = fuse()->fusible(call);
        ck_assert_msg(fusible == should_be_fusible(call), "%s of %s", call->kernel->name,
                      dt_dtype_table[call->compute].name);
        if (!fusible) {
            world_pop(&w);
            continue;
        }
        for (int k = 0; k < p->count; k++)
            ck_assert_msg(fuse()->joins(&w.call[k], call), "seed %llu: %d behind %d",
                          (unsigned long long)p->seed, p->count, k);
        p->count++;
    }
    if (below(&seed, 2)) draw_reduction(p, usual, &seed);
    if (p->reduced != NUMBER) check_reduction(&w, p);
    world_free(&w);
    if (p->reduced != NUMBER && below(&seed, 8) == 0) p->dead = 1u << count;
    uint32_t roots = (uint32_t)ew_random(&seed) | (uint32_t)ew_random(&seed);
    for (int k = 0; k < count; k++) {
        int r = root(p, SOURCES + k);
        if (r >= SOURCES && roots >> (r - SOURCES) & 1) p->dead |= 1u << k;
    }
}

/* Runs a pass as `parts` parts, the last one first. */
static void run_pass(const dt_pass *pass, int parts) {
    dt_part part = {.count = parts, .scratch_bytes = fuse()->scratch_bytes(pass, parts)};
    if (part.scratch_bytes > 0) {
        part.scratch = dt_bytes_alloc(part.scratch_bytes);
        memset(part.scratch, 0x5a, part.scratch_bytes);
    }
    for (part.index = parts - 1; part.index >= 0; part.index--) fuse()->run(pass, &part);
    part.index = 0;
    fuse()->finish(pass, &part);
    if (part.scratch != NULL) dt_bytes_free(part.scratch, part.scratch_bytes);
}

static void run_fused(world *w, const paper *p, int parts) {
    const dt_call *calls[DT_FUSE_MAX];
    for (int k = 0; k < w->calls; k++) {
        calls[k] = &w->call[k];
        dt_storage *s = dt_call_out(calls[k], 0)->storage;
        if (!(p->dead >> k & 1))
            ck_assert_int_eq(dt_storage_materialize(s), DT_OK);
        else if (s->data != NULL) /* behind its header */
            memset(s->data, 0x77, s->bytes);
    }
    dt_pass *pass = NULL;
    ck_assert_int_eq(fuse()->build(calls, w->calls, p->dead, &pass), DT_OK);
    run_pass(pass, parts);
    fuse()->free(pass);
}

static bool same_value(dt_dtype dtype, const void *a, const void *b) {
    if (!memcmp(a, b, dt_dtype_size(dtype))) return true;
    if (!dt_dtype_is_float(dtype)) return false;
    return isnan(dt_scalar_load(dtype, a).f) && isnan(dt_scalar_load(dtype, b).f);
}

static void describe(const paper *p) {
    for (int k = 0; k < p->count; k++) {
        const paper_call *c = &p->call[k];
        fprintf(stderr, "%2d: %s%s %s %s ->%s", k, p->dead >> k & 1 ? "dead " : "", c->kernel->name,
                dt_dtype_table[c->compute].name, c->target >= 0 ? "in place" : "",
                dt_dtype_table[c->dtype].name);
        if (c->target >= 0) fprintf(stderr, " over %d", c->target - SOURCES);
        for (int i = 0; i < c->nin; i++)
            fprintf(stderr, " (%d %s)", c->in[i] == NUMBER ? -99 : c->in[i] - SOURCES,
                    c->in[i] == NUMBER ? "" : dt_dtype_table[tensor_dtype(p, c->in[i])].name);
        fprintf(stderr, "\n");
    }
    if (p->reduced != NUMBER)
        fprintf(stderr, "    %s in %s of %d over %d dims\n", dt_op_table[p->op].full_name,
                dt_dtype_table[p->acc].name, p->reduced - SOURCES, p->dims);
}

static void compare_tensor(const paper *p, int t, const dt_tensor *a, const dt_tensor *b) {
    for (int64_t i = 0; i < a->numel; i++) {
        if (__builtin_expect(same_value((dt_dtype)a->dtype, ew_at(a, i), ew_at(b, i)), 1)) continue;
        describe(p);
        ck_abort_msg("seed %llu: tensor %d (%s), element %lld: %a, not %a",
                     (unsigned long long)p->seed, t - SOURCES, dt_dtype_table[a->dtype].name,
                     (long long)i, ew_get(a, i), ew_get(b, i));
    }
}

static void compare(const paper *p, const world *got, const world *want) {
    for (int t = 0; t < SOURCES + p->count; t++) {
        if (t >= SOURCES && p->dead >> (t - SOURCES) & 1) {
            const dt_storage *s = got->t[t]->storage;
            const unsigned char *bytes = s->data;
            for (size_t i = 0; bytes != NULL && i < s->bytes; i++)
                ck_assert_msg(bytes[i] == 0x77, "seed %llu: wrote to a dead output",
                              (unsigned long long)p->seed);
            continue;
        }
        compare_tensor(p, t, got->t[t], want->t[t]);
    }
    if (got->reduced != NULL && !(p->dead >> p->count & 1))
        compare_tensor(p, TENSORS, got->reduced, want->reduced);
}

static void check_paper(const paper *p, int parts) {
    world alone, fused;
    world_init(&alone, p, true);
    world_init(&fused, p, true);
    for (int k = 0; k < p->count; k++) {
        world_add(&alone, p, k);
        world_add(&fused, p, k);
        ck_assert_int_eq(dt_call_run_inline(&alone.call[k]), DT_OK);
    }
    if (p->reduced != NUMBER) {
        world_add_reduction(&alone, p);
        world_add_reduction(&fused, p);
        ck_assert_int_eq(dt_call_run_inline(&alone.call[p->count]), DT_OK);
    }
    run_fused(&fused, p, parts);
    compare(p, &fused, &alone);
    world_free(&alone);
    world_free(&fused);
}

#define SEEDS 60

START_TEST(random_passes) {
    for (int k = 0; k < SEEDS; k++) {
        uint64_t seed = (uint64_t)_i * SEEDS + (uint64_t)k, draw = seed;
        paper p;
        ck_assert_int_eq(dt_cpu_select(ew_levels[below(&draw, (uint64_t)ew_level_count())]), DT_OK);
        draw_paper(&p, k, seed);
        check_paper(&p, 1 + (int)below(&draw, 5));
    }
}
END_TEST

/* Each expression and dtype at least once between two others. */
START_TEST(every_kernel_and_dtype) {
    for (int k = 0; k < KERNELS; k++) {
        const dt_ew_family *family = kernels[k]->family;
        paper p = {.rank = 1, .shape = {3000}, .count = 3, .seed = (uint64_t)k, .reduced = NUMBER};
        dt_dtype t = (dt_dtype)_i;
        for (int s = 0; s < SOURCES; s++) p.source[s].dtype = t;
        p.call[0] = (paper_call){
            .kernel = &dt_kernel_ew_copy, .compute = t, .dtype = t, .nin = 1, .target = -1};
        p.call[1] = (paper_call){.kernel = kernels[k],
                                 .compute = t,
                                 .dtype = t,
                                 .nin = family ? family->nin : 1,
                                 .in = {SOURCES, 1, 2},
                                 .target = -1};
        p.call[1].params.f[0] = 1.3;
        p.call[1].params.f[1] = p.call[1].params.i[0] = 2;
        p.call[2] = (paper_call){.kernel = &dt_kernel_ew_copy,
                                 .compute = t,
                                 .dtype = DT_F64,
                                 .nin = 1,
                                 .in = {SOURCES + 1},
                                 .target = -1};
        p.dead = 3;
        world w;
        world_init(&w, &p, false);
        world_add(&w, &p, 0);
        world_add(&w, &p, 1);
        bool fusible = fuse()->fusible(&w.call[1]);
        ck_assert(fusible == should_be_fusible(&w.call[1]));
        world_free(&w);
        if (fusible) check_paper(&p, 1);
    }
}
END_TEST

/* Every reduction over the last dim, the last two and all, of rows shorter and longer than a tile
 * and a block. */
START_TEST(reductions_at_the_end) {
    static const int64_t shapes[][3] = {{2, 3, 1},    {3, 50, 7},   {2, 2, 4095},
                                        {2, 3, 4096}, {1, 3, 4097}, {2, 2, 9000}};
    static const dt_dtype dtypes[] = {DT_F32, DT_BF16, DT_F64, DT_I32, DT_BOOL};
    for (int k = 0; k < (int)(sizeof reductions / sizeof reductions[0]); k++) {
        dt_dtype t = dtypes[_i];
        paper p = {.rank = 3, .count = 2, .seed = (uint64_t)k, .op = reductions[k], .p = 2};
        for (int s = 0; s < SOURCES; s++) {
            p.source[s].dtype = t;
            p.source[s].layout = s < 3 ? PLAIN : ELEMENT; /* the latter are cheap to make */
        }
        for (int c = 0; c < 2; c++)
            p.call[c] = (paper_call){.kernel = &dt_kernel_ew_add,
                                     .compute = t,
                                     .dtype = t,
                                     .nin = 2,
                                     .in = {c == 0 ? 0 : SOURCES, c + 1},
                                     .target = -1};
        p.reduced = SOURCES + 1;
        bool floats = p.op == DT_OP_mean || p.op == DT_OP_norm__new;
        p.acc = floats && !dt_dtype_is_float(t) ? DT_F64 : t;
        p.out = p.op == DT_OP_any || p.op == DT_OP_all ? DT_BOOL : p.acc;
        for (size_t shape = 0; shape < sizeof shapes / sizeof shapes[0]; shape++) {
            memcpy(p.shape, shapes[shape], sizeof p.shape);
            for (p.dims = 1; p.dims <= 3; p.dims++) {
                p.dead = p.dims == 2 ? 0 : 3;
                check_paper(&p, 1 + k % 4);
            }
        }
    }
}
END_TEST

/* ---- what may stand together ---------------------------------------------------------------- */

static dt_tensor *view2(dt_tensor *base, int64_t rows, int64_t columns, int64_t s0, int64_t s1,
                        int64_t offset) {
    return ew_view(base, 2, (int64_t[]){rows, columns}, (int64_t[]){s0, s1}, offset);
}

/* out[i] = a + b; whether the one may stand behind the other. */
static bool joined(dt_tensor *out1, dt_tensor *a1, dt_tensor *out2, dt_tensor *a2) {
    ew_case m = ew_case_new(&dt_kernel_ew_add, DT_F32, out1, 2, (dt_tensor *[]){a1, a1});
    ew_case n = ew_case_new(&dt_kernel_ew_add, DT_F32, out2, 2, (dt_tensor *[]){a2, NULL});
    m.call.operands = m.call.operands_inline;
    n.call.operands = n.call.operands_inline;
    ck_assert(fuse()->fusible(&m.call));
    ck_assert(fuse()->fusible(&n.call));
    ck_assert(!fuse()->ends(&m.call));
    bool joins = fuse()->joins(&m.call, &n.call);
    dt_call_fini(&m.call);
    dt_call_fini(&n.call);
    return joins;
}

START_TEST(who_joins) {
    int64_t shape[2] = {6, 6};
    dt_tensor *a = ew_tensor(DT_F32, 2, shape), *b = ew_tensor(DT_F32, 2, shape);
    dt_tensor *c = ew_tensor(DT_F32, 2, shape), *flat = ew_vector(DT_F32, 36);
    dt_tensor *again = view2(b, 6, 6, 6, 1, 0), *turned = view2(b, 6, 6, 1, 6, 0);
    dt_tensor *row = view2(b, 6, 6, 0, 1, 0),
              *b36 = ew_view(b, 1, (int64_t[]){36}, (int64_t[]){1}, 0);
    ck_assert(joined(b, a, c, a));
    ck_assert(joined(b, a, c, b));
    ck_assert(joined(b, a, c, again));
    ck_assert(joined(b, a, a, b)); /* write after read */
    ck_assert(joined(b, a, b, b));
    ck_assert(joined(b, b, again, b));
    ck_assert(!joined(b, a, c, turned));
    ck_assert(!joined(b, a, c, row));
    ck_assert(!joined(c, turned, b, a));
    ck_assert(!joined(c, row, b, a));
    ck_assert(joined(c, row, a, turned)); /* nobody writes b */
    ck_assert(!joined(b, a, flat, b36));  /* another shape */
    ck_assert(!joined(b, a, flat, flat));
    dt_tensor *all[] = {a, b, c, flat, again, turned, row, b36};
    for (int k = 0; k < 8; k++) dt_tensor_release(all[k]);
}
END_TEST

START_TEST(who_joins_in_one_storage) {
    dt_tensor *base = ew_vector(DT_F32, 40), *other = ew_vector(DT_F32, 12);
    dt_tensor *v[4];
    for (int k = 0; k < 4; k++)
        v[k] = ew_view(base, 1, (int64_t[]){12}, (int64_t[]){1}, (int64_t[]){0, 6, 12, 0}[k]);
    ck_assert(!joined(v[0], other, v[1], other));
    ck_assert(!joined(v[0], other, v[2], other)); /* could, but is not worth a proof */
    ck_assert(!joined(other, v[0], v[1], v[1]));
    ck_assert(joined(other, v[0], v[3], v[3]));
    for (int k = 0; k < 4; k++) dt_tensor_release(v[k]);
    dt_tensor_release(base);
    dt_tensor_release(other);
}
END_TEST

START_TEST(who_is_fusible) {
    dt_tensor *base = ew_vector(DT_F32, 100), *ints = ew_vector(DT_I32, 40);
    int64_t n = 40, one = 1, two = 2;
    dt_tensor *plain = ew_view(base, 1, &n, &one, 0), *late = ew_view(base, 1, &n, &one, 1);
    dt_tensor *gaps = ew_view(base, 1, &n, &two, 1), *fresh = ew_vector(DT_F32, 40);
    const struct {
        const dt_kernel *kernel;
        dt_dtype compute;
        dt_tensor *out, *in;
        bool fusible;
    } rows[] = {
        {&dt_kernel_ew_add, DT_F32, fresh, plain, true},
        {&dt_kernel_ew_add, DT_F32, plain, fresh, true},
        {&dt_kernel_ew_add, DT_F32, plain, plain, true},
        {&dt_kernel_ew_add, DT_F32, fresh, gaps, true},
        {&dt_kernel_ew_add, DT_F32, gaps, fresh, false},
        {&dt_kernel_ew_add, DT_F32, late, plain, false}, /* reads what it has written */
        {&dt_kernel_ew_add, DT_F32, ints, plain, true},
        {&dt_kernel_ew_remainder, DT_F32, fresh, plain, true},
        {&dt_kernel_ew_remainder, DT_I32, ints, ints, false},
        {&dt_kernel_ew_pow, DT_I32, ints, ints, false},
        {&dt_kernel_ew_pow, DT_F32, fresh, plain, true},
        {&dt_kernel_ew_exp, DT_I32, ints, ints, false}, /* not defined */
        {&dt_kernel_ew_copy, DT_F32, ints, gaps, true},
        {&dt_kernel_ew_copy, DT_F32, gaps, fresh, false},
    };
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        ew_case c = ew_case_new(rows[k].kernel, rows[k].compute, rows[k].out, 2,
                                (dt_tensor *[]){rows[k].in, rows[k].in});
        c.call.operands = c.call.operands_inline;
        ck_assert_msg(fuse()->fusible(&c.call) == rows[k].fusible, "row %zu", k);
        if (rows[k].fusible) ck_assert(fuse()->cost_ns(&c.call) > 0);
        dt_call_fini(&c.call);
    }
    dt_tensor *all[] = {base, ints, plain, late, gaps, fresh};
    for (int k = 0; k < 6; k++) dt_tensor_release(all[k]);
    ck_assert(!fuse()->fusible(&(dt_call){.kernel = dt_cpu_device.kernels[DT_OP_matmul]}));
}
END_TEST

static bool ends(dt_op_id op, dt_tensor *in, uint32_t mask, dt_tensor *behind) {
    dt_tensor *out = ew_vector(DT_F32, 1), *fresh = ew_tensor(DT_F32, behind->rank, behind->shape);
    ew_case r = ew_case_new(dt_cpu_device.kernels[op], DT_F32, out, 1, &in);
    ew_case c = ew_case_new(&dt_kernel_ew_abs, DT_F32, behind, 1, &fresh);
    r.call.operands = r.call.operands_inline;
    c.call.operands = c.call.operands_inline;
    r.call.op = (uint16_t)op;
    r.call.params.i[0] = mask;
    r.call.params.f[0] = 2;
    bool ends = fuse()->ends(&r.call), fusible = fuse()->fusible(&r.call);
    if (fusible) ck_assert(fuse()->cost_ns(&r.call) > 0);
    ck_assert(ends == fusible);
    bool joins = ends && fuse()->joins(&c.call, &r.call);
    dt_call_fini(&r.call);
    dt_call_fini(&c.call);
    dt_tensor_release(out);
    dt_tensor_release(fresh);
    return joins;
}

START_TEST(which_reductions_end) {
    int64_t shape[3] = {4, 1, 6};
    dt_tensor *x = ew_tensor(DT_F32, 3, shape), *flat = ew_vector(DT_F32, 24);
    dt_tensor *turned = ew_view(x, 3, shape, (int64_t[]){1, 4, 4}, 0);
    dt_tensor *other = ew_tensor(DT_F32, 3, shape);
    ck_assert(ends(DT_OP_sum, x, 4, x));
    ck_assert(ends(DT_OP_sum, x, 6, x));
    ck_assert(ends(DT_OP_sum, x, 7, x));
    ck_assert(ends(DT_OP_sum, x, 5, x)); /* a dim of size 1 between them */
    ck_assert(!ends(DT_OP_sum, x, 1, x));
    ck_assert(!ends(DT_OP_sum, x, 3, x));
    ck_assert(ends(DT_OP_norm__new, x, 4, x));
    ck_assert(!ends(DT_OP_var__new, x, 4, x)); /* walks twice */
    ck_assert(!ends(DT_OP_logsumexp, x, 4, x));
    ck_assert(!ends(DT_OP_argmax, x, 4, x));
    ck_assert(!ends(DT_OP_sum, turned, 4, other));
    ck_assert(!ends(DT_OP_sum, x, 4, flat)); /* of another shape */
    ck_assert(ends(DT_OP_sum, flat, 1, flat));
    dt_tensor_release(x);
    dt_tensor_release(flat);
    dt_tensor_release(turned);
    dt_tensor_release(other);
}
END_TEST

/* ---- the pass as a thing -------------------------------------------------------------------- */

static void chain_of(paper *p, int count, int64_t n) {
    *p = (paper){.rank = 1, .shape = {n}, .count = count, .seed = 5, .reduced = NUMBER};
    for (int s = 0; s < SOURCES; s++) p->source[s].dtype = DT_F32;
    for (int k = 0; k < count; k++)
        p->call[k] = (paper_call){.kernel = &dt_kernel_ew_add,
                                  .compute = DT_F32,
                                  .dtype = DT_F32,
                                  .nin = 2,
                                  .in = {k == 0 ? 0 : SOURCES + k - 1, 1},
                                  .target = -1};
    p->dead = (count < 32 ? 1u << (count - 1) : 0x80000000u) - 1;
}

START_TEST(longest_pass) {
    paper p;
    chain_of(&p, DT_FUSE_MAX, 20000);
    check_paper(&p, 3);
    for (int k = 0; k < DT_FUSE_MAX; k++) { /* as many steps and values as there can be */
        p.call[k].kernel = &dt_kernel_ew_lerp;
        p.call[k].compute = k % 2 ? DT_F16 : DT_BF16;
        p.call[k].dtype = DT_I16;
        p.call[k].nin = 3;
        p.call[k].in[1] = 2 + k % 6;
        p.call[k].in[2] = k < 2 ? 2 : SOURCES + k - 2;
    }
    for (int s = 0; s < SOURCES; s++) p.source[s].layout = GAPS;
    check_paper(&p, 2);
}
END_TEST

/* x is read before a half is written over it as f32: no shortcut may write it earlier. */
START_TEST(casts_keep_their_place) {
    paper p;
    chain_of(&p, 3, 1000);
    p.call[0].compute = p.call[0].dtype = DT_BF16;
    p.call[1].in[0] = 0;
    p.call[2] = (paper_call){
        .kernel = &dt_kernel_ew_copy, .dtype = DT_F32, .nin = 1, .in = {SOURCES}, .target = 0};
    p.dead = 1;
    check_paper(&p, 1);
}
END_TEST

START_TEST(more_parts_than_elements) {
    paper p;
    chain_of(&p, 4, 70);
    check_paper(&p, 9);
}
END_TEST

START_TEST(parts_follow_the_work) {
    static const struct {
        int64_t n;
        int least, most;
    } rows[] = {{0, 1, 1}, {100, 1, 1}, {10000, 1, 1}, {4000000, 2, 8 * 8}};
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        dt_tensor *x = NULL;
        ck_assert_int_eq(dt_tensor_new(DT_F32, 1, &rows[k].n, &x), DT_OK);
        ew_case c = ew_case_new(&dt_kernel_ew_add, DT_F32, x, 2, (dt_tensor *[]){x, x});
        c.call.operands = c.call.operands_inline;
        const dt_call *calls[2] = {&c.call, &c.call};
        dt_pass *pass = NULL;
        ck_assert_int_eq(fuse()->build(calls, 2, 0, &pass), DT_OK);
        ck_assert_int_eq(fuse()->parts(pass, 1), 1);
        ck_assert_int_ge(fuse()->parts(pass, 8), rows[k].least);
        ck_assert_int_le(fuse()->parts(pass, 8), rows[k].most);
        if (rows[k].least > 1)
            ck_assert_int_eq(fuse()->parts(pass, 8) % 8, 0); /* as many for each */
        fuse()->free(pass);
        dt_call_fini(&c.call);
        dt_tensor_release(x);
    }
}
END_TEST

static dt_status build_only(void) {
    paper p;
    world w;
    chain_of(&p, 3, 100);
    world_init(&w, &p, false);
    for (int k = 0; k < p.count; k++) world_add(&w, &p, k);
    const dt_call *calls[3] = {&w.call[0], &w.call[1], &w.call[2]};
    dt_pass *pass = NULL;
    dt_alloc_fail_at(1, false);
    dt_status status = fuse()->build(calls, 3, p.dead, &pass);
    dt_alloc_fail_at(0, false);
    ck_assert_ptr_null(pass);
    world_free(&w);
    return status;
}

START_TEST(no_memory) {
    dt_memory_stats before = test_memory();
    ck_assert_int_eq(build_only(), DT_E_NO_MEMORY);
    test_assert_no_leak(before);
    paper p;
    chain_of(&p, 3, 100);
    check_paper(&p, 1);
    test_assert_no_leak(before);
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("fused");
    TCase *passes = tcase_create("passes");
    tcase_add_loop_test(passes, random_passes, 0, 20);
    tcase_add_loop_test(passes, every_kernel_and_dtype, 0, DT_DTYPE_COUNT);
    tcase_add_loop_test(passes, reductions_at_the_end, 0, 5);
    suite_add_tcase(s, passes);
    TEST_CASE(s, "rules", which_reductions_end, who_joins, who_joins_in_one_storage,
              who_is_fusible);
    TEST_CASE(s, "pass", longest_pass, casts_keep_their_place, more_parts_than_elements,
              parts_follow_the_work, no_memory);
    return s;
}

int main(void) { return test_run(suite()); }
