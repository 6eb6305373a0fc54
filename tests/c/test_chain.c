/* test_chain.c: register chains against the tile functions of the same expressions, for each
 * instruction set: every expression, form and dtype on all pairs of special values and on random
 * bits, every length, stores in between, in place; which instructions there are; and what of a pass
 * becomes a chain (test_fused.c has its values). */
#include "kernels/cpu/chain.h"
#include "kernels/cpu/fused_plan.h"
#include "kernels/cpu/table.h"
#include "tests/c/ew_support.h"

#define EW1(group, name, ...) extern const dt_kernel dt_kernel_ew_##name;
#define EW2 EW1
#define EW3 EW1
#include "kernels/ew.def"
#undef EW1
#undef EW2
#undef EW3

#define GROUP_ARITH 1
#define GROUP_TERNARY 1
#define GROUP_INT 0
#define GROUP_COMPARE 0
#define GROUP_MATH 0
#define GROUP_TRIG 0
static const struct {
    const dt_kernel *kernel;
    const char *types;
    bool in_chains;
} rows[DT__EW_ROWS] = {
#define EW1(group, name, types, ...)                                                               \
    [DT__EW_##name] = {&dt_kernel_ew_##name, #types, GROUP_##group},
#define EW2 EW1
#define EW3 EW1
#include "kernels/ew.def"
#undef EW1
#undef EW2
#undef EW3
};

static const dt_dtype dtypes[] = {DT_F32, DT_F64, DT_I32, DT_I64};
#define DTYPES 4

static const dt_ew_family *family_of(int row) { return rows[row].kernel->family; }

static const dt_params params = {.f = {-1.3, 0.7}, .i = {-3, 2}};

static dt_ew_tile tile_of(int row, dt_dtype dtype) {
    const dt_ew_family *family = family_of(row);
    dt_dtype math, out;
    dt_ew_tile tile = family->lookup(family, dtype, &math, &out);
    ck_assert(tile != NULL && math == dtype && out == dtype);
    return tile;
}

/* ---- arrays --------------------------------------------------------------------------------- */

/* Exactly as long as it is said, so that the address sanitizer sees every element too many. */
static char *array_new(dt_dtype dtype, int64_t n) {
    char *a = malloc((size_t)n * dt_dtype_size(dtype));
    ck_assert_ptr_nonnull(a);
    return a;
}

static const double specials[] = {0.0,    -0.0,   1.0,      -1.0,     0.5,       -0.5,      1.5,
                                  2.5,    -2.5,   3.0,      1e10,     -1e10,     0x1p23,    0x1p31,
                                  0x1p52, 0x1p63, 0x1p-126, 1e-42,    -1e-42,    0x1p-1074, 1e300,
                                  -1e300, 1e-300, 0x1p1023, INFINITY, -INFINITY, NAN,       -NAN};
#define SPECIALS ((int64_t)(sizeof specials / sizeof specials[0]))

static void set_special(dt_dtype dtype, char *a, int64_t i, int64_t k) {
    size_t size = dt_dtype_size(dtype);
    const int64_t ints[] = {0, 1, -1, 2, -2, 7, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    k %= SPECIALS;
    if (dt_dtype_is_float(dtype))
        dt_scalar_store((dt_scalar){.category = DT_CAT_FLOAT, .f = specials[k]}, dtype,
                        a + (size_t)i * size);
    else
        memcpy(a + (size_t)i * size, &ints[k % 10], size);
}

/* Random bits, special values between them. */
static void fill(dt_dtype dtype, char *a, int64_t n, uint64_t *seed) {
    size_t size = dt_dtype_size(dtype);
    for (int64_t i = 0; i < n; i++) {
        uint64_t r = ew_random(seed);
        memcpy(a + (size_t)i * size, &r, size);
        if (r % 4 == 0) set_special(dtype, a, i, (int64_t)(r >> 8 & 0xffff));
        if (r % 4 == 1 && dt_dtype_is_float(dtype)) /* of a size that does not overflow at once */
            dt_scalar_store((dt_scalar){.category = DT_CAT_FLOAT, .f = (double)(r >> 11) * 0x1p-50},
                            dtype, a + (size_t)i * size);
    }
}

/* Equal bits, or NaN both. */
static bool same(dt_dtype dtype, const char *a, const char *b, int64_t i) {
    size_t size = dt_dtype_size(dtype);
    a += (size_t)i * size;
    b += (size_t)i * size;
    if (!memcmp(a, b, size)) return true;
    if (!dt_dtype_is_float(dtype)) return false;
    return isnan(dt_scalar_load(dtype, a).f) && isnan(dt_scalar_load(dtype, b).f);
}

static void check_same(dt_dtype dtype, const char *got, const char *want, int64_t n,
                       const char *what) {
    size_t size = dt_dtype_size(dtype);
    for (int64_t i = 0; i < n; i++) {
        if (__builtin_expect(same(dtype, got, want, i), 1)) continue;
        ck_abort_msg("%s %s %s, element %lld of %lld: %a, not %a",
                     dt_cpu_level_name(dt_cpu_level_now()), dt_dtype_table[dtype].name, what,
                     (long long)i, (long long)n,
                     dt_scalar_f64(dt_scalar_load(dtype, got + (size_t)i * size)),
                     dt_scalar_f64(dt_scalar_load(dtype, want + (size_t)i * size)));
    }
}

/* ---- which instructions there are ----------------------------------------------------------- */

/* Form number `code`, or false: the expression has fewer operands. */
static bool operands_of(int nin, int code, dt__chain_operand *operands) {
    static const int codes[] = {1, 3, 9, 27};
    if (code >= codes[nin]) return false;
    for (int k = 0; k < 3; k++, code /= 3) operands[k] = (dt__chain_operand)(code % 3);
    return true;
}

static bool should_have(int row, dt_dtype dtype, int nin, const dt__chain_operand *o) {
    bool i64 = dtype == DT_I64 && dt_cpu_level_now() == DT_CPU_BASE;
    if (!rows[row].in_chains || i64 || !strcmp(rows[row].types, "RAW")) return false;
    if (!dt_dtype_is_float(dtype) && !strcmp(rows[row].types, "FLT")) return false;
    if (nin == 1) return o[0] == DT__CHAIN_A;
    if (nin == 2) return o[0] == DT__CHAIN_A || o[1] == DT__CHAIN_A;
    return o[0] == DT__CHAIN_A && o[1] != DT__CHAIN_A && o[2] >= o[1];
}

START_TEST(what_there_is) {
    int count = 0;
    ck_assert_int_eq(dt_cpu_select(ew_levels[_i]), DT_OK);
    for (int row = 0; row < DT__EW_ROWS; row++) {
        int nin = family_of(row)->nin;
        dt__chain_operand o[3];
        ck_assert_int_eq(family_of(row)->row, row);
        for (int code = 0; code < 27 && operands_of(nin, code, o); code++) {
            for (int t = 0; t < DTYPES; t++) {
                bool has = dt__chain_has(dtypes[t], row, nin, o);
                ck_assert_msg(has == should_have(row, dtypes[t], nin, o), "%s of %s, form %d",
                              family_of(row)->name, dt_dtype_table[dtypes[t]].name, code);
                count += has;
            }
            require(!dt__chain_has(DT_BF16, row, nin, o) && !dt__chain_has(DT_F16, row, nin, o));
            require(!dt__chain_has(DT_BOOL, row, nin, o) && !dt__chain_has(DT_U8, row, nin, o));
        }
    }
    ck_assert_int_gt(count, 200);
}
END_TEST

/* ---- one expression ------------------------------------------------------------------------- */

enum { IN0, IN1, IN2, OUT, PLACES };

/* One expression whose operand k lies at place k, and at IN0 where it is the accumulators. */
static void check_one(int row, dt_dtype dtype, const dt__chain_operand *o, int64_t n, char **at,
                      const char *what) {
    int nin = family_of(row)->nin;
    union {
        dt__chain chain;
        char bytes[1024];
    } room;
    ck_assert_uint_le(dt__chain_bytes(4), sizeof room);
    dt__chain_begin(&room.chain, dtype, IN0);
    int16_t place[3];
    const void *in[3];
    int64_t step[3];
    for (int k = 0; k < nin; k++) {
        place[k] = (int16_t)(o[k] == DT__CHAIN_A ? IN0 : k == 0 ? IN1 : k);
        in[k] = at[place[k]];
        step[k] = o[k] != DT__CHAIN_O;
    }
    dt__chain_add(&room.chain, row, nin, o, place, &params);
    dt__chain_store(&room.chain, OUT);
    dt__chain_end(&room.chain);
    dt__chain_run(&room.chain, n, at);
    char *want = array_new(dtype, n);
    tile_of(row, dtype)(n, want, in, step, &params);
    check_same(dtype, at[OUT], want, n, what);
    free(want);
}

/* All pairs of special values, triples of some, and random bits; for operands O all in turn. */
static void check_row(int row, dt_dtype dtype, const dt__chain_operand *o, uint64_t seed) {
    const int64_t pairs = SPECIALS * SPECIALS, n = pairs + 333;
    int nin = family_of(row)->nin, ones = 0;
    char *at[PLACES];
    for (int k = 0; k < PLACES; k++) {
        at[k] = array_new(dtype, n);
        fill(dtype, at[k], n, &seed);
    }
    for (int64_t i = 0; i < pairs; i++) {
        set_special(dtype, at[IN0], i, i % SPECIALS);
        set_special(dtype, at[IN1], i, i / SPECIALS);
        set_special(dtype, at[IN2], i, i % 13);
    }
    for (int k = 0; k < nin; k++) ones += o[k] == DT__CHAIN_O;
    int64_t turns = ones == 0 ? 1 : ones == 1 ? SPECIALS : pairs;
    for (int64_t turn = 0; turn < turns; turn++) {
        set_special(dtype, at[IN1], 0, turn % SPECIALS); /* the operands O, if they are */
        set_special(dtype, at[IN2], 0, ones == 1 ? turn : turn / SPECIALS);
        check_one(row, dtype, o, turn == 0 ? n : SPECIALS, at, family_of(row)->name);
    }
    for (int k = 0; k < PLACES; k++) free(at[k]);
}

START_TEST(each_expression) {
    ck_assert_int_eq(dt_cpu_select(ew_levels[_i / DTYPES]), DT_OK);
    dt_dtype dtype = dtypes[_i % DTYPES];
    for (int row = 0; row < DT__EW_ROWS; row++) {
        dt__chain_operand o[3];
        for (int code = 0; code < 27 && operands_of(family_of(row)->nin, code, o); code++)
            if (dt__chain_has(dtype, row, family_of(row)->nin, o))
                check_row(row, dtype, o, (uint64_t)row * 27 + (uint64_t)code);
    }
}
END_TEST

/* ---- chains of several ---------------------------------------------------------------------- */

#define STEPS_MAX 32
#define SOURCES 6 /* arrays */
#define ONES 4    /* elements */

/* A random chain over arrays that it reads and writes, and the same with tile functions. */
static void check_random(uint64_t seed, dt_dtype dtype, int64_t n) {
    int steps = 1 + (int)(ew_random(&seed) % STEPS_MAX);
    char *at[SOURCES + ONES], *alone[SOURCES + ONES], *acc = array_new(dtype, n);
    size_t bytes = (size_t)n * dt_dtype_size(dtype);
    for (int k = 0; k < SOURCES + ONES; k++) {
        at[k] = array_new(dtype, k < SOURCES ? n : 1);
        alone[k] = array_new(dtype, k < SOURCES ? n : 1);
        fill(dtype, at[k], k < SOURCES ? n : 1, &seed);
        memcpy(alone[k], at[k], k < SOURCES ? bytes : dt_dtype_size(dtype));
    }
    dt__chain *c = malloc(dt__chain_bytes(2 + 2 * STEPS_MAX));
    ck_assert_ptr_nonnull(c);
    int first = (int)(ew_random(&seed) % SOURCES);
    dt__chain_begin(c, dtype, first);
    memcpy(acc, at[first], bytes);
    for (int s = 0; s < steps;) {
        int row = (int)(ew_random(&seed) % DT__EW_ROWS), nin = family_of(row)->nin;
        dt__chain_operand o[3];
        if (!operands_of(nin, (int)(ew_random(&seed) % 27), o)) continue;
        if (!dt__chain_has(dtype, row, nin, o)) continue;
        int16_t place[3] = {0};
        const void *in[3];
        int64_t step[3];
        for (int k = 0; k < nin; k++) {
            uint64_t r = ew_random(&seed);
            place[k] = (int16_t)(o[k] == DT__CHAIN_O ? SOURCES + r % ONES : r % SOURCES);
            in[k] = o[k] == DT__CHAIN_A ? acc : alone[place[k]];
            step[k] = o[k] != DT__CHAIN_O;
        }
        dt__chain_add(c, row, nin, o, place, &params);
        tile_of(row, dtype)(n, acc, in, step, &params);
        if (++s == steps || ew_random(&seed) % 4 == 0) {
            int to = (int)(ew_random(&seed) % SOURCES);
            dt__chain_store(c, to);
            memcpy(alone[to], acc, bytes);
        }
    }
    dt__chain_end(c);
    dt__chain_run(c, n, at);
    for (int k = 0; k < SOURCES; k++) check_same(dtype, at[k], alone[k], n, "random chain");
    for (int k = 0; k < SOURCES + ONES; k++) {
        free(at[k]);
        free(alone[k]);
    }
    free(acc);
    free(c);
}

START_TEST(random_chains) {
    ck_assert_int_eq(dt_cpu_select(ew_levels[_i / DTYPES]), DT_OK);
    dt_dtype dtype = dtypes[_i % DTYPES];
    dt__chain_operand unary = DT__CHAIN_A;
    if (!dt__chain_has(dtype, DT__EW_neg, 1, &unary)) return;
    for (int64_t n = 1; n <= 300; n++) check_random((uint64_t)(n * DTYPES + _i), dtype, n);
    check_random(7, dtype, 30011);
}
END_TEST

/* x * one, then + what `form` says: one instruction where there is one, with the bits of two. */
static void check_pair(dt_dtype dtype, dt__chain_operand form, int64_t n, char **at) {
    const dt__chain_operand by_one[] = {DT__CHAIN_A, DT__CHAIN_O}, by_form[] = {DT__CHAIN_A, form};
    const int16_t one[] = {IN0, IN1}, other[] = {IN0, IN2};
    union {
        dt__chain chain;
        char bytes[1024];
    } room;
    dt__chain_begin(&room.chain, dtype, IN0);
    dt__chain_add(&room.chain, DT__EW_mul, 2, by_one, one, &params);
    dt__chain_add(&room.chain, DT__EW_add, 2, by_form, other, &params);
    dt__chain_store(&room.chain, OUT);
    dt__chain_end(&room.chain);
    ck_assert_int_eq(room.chain.count, form == DT__CHAIN_A ? 4 : 3); /* with load; store and end */
    dt__chain_run(&room.chain, n, at);
    char *want = array_new(dtype, n);
    const int64_t steps_of_mul[] = {1, 0}, steps_of_add[] = {1, form != DT__CHAIN_O};
    tile_of(DT__EW_mul, dtype)(n, want, (const void *[]){at[IN0], at[IN1]}, steps_of_mul, &params);
    const void *added = form == DT__CHAIN_A ? want : at[IN2];
    tile_of(DT__EW_add, dtype)(n, want, (const void *[]){want, added}, steps_of_add, &params);
    check_same(dtype, at[OUT], want, n, "mul and add");
    free(want);
}

START_TEST(pairs) {
    ck_assert_int_eq(dt_cpu_select(ew_levels[_i / DTYPES]), DT_OK);
    dt_dtype dtype = dtypes[_i % DTYPES];
    dt__chain_operand unary = DT__CHAIN_A;
    if (!dt__chain_has(dtype, DT__EW_neg, 1, &unary)) return;
    const int64_t special = SPECIALS * SPECIALS, n = special + 5000;
    uint64_t seed = 11;
    char *at[PLACES];
    for (int k = 0; k < PLACES; k++) {
        at[k] = array_new(dtype, n);
        fill(dtype, at[k], n, &seed);
    }
    for (int64_t i = 0; i < special; i++) {
        set_special(dtype, at[IN0], i, i % SPECIALS);
        set_special(dtype, at[IN2], i, i / SPECIALS);
    }
    for (int64_t turn = 0; turn < special; turn++) {
        set_special(dtype, at[IN1], 0, turn % SPECIALS);
        set_special(dtype, at[IN2], 0, turn / SPECIALS);
        for (dt__chain_operand form = DT__CHAIN_A; form <= DT__CHAIN_O; form++)
            check_pair(dtype, form, turn == 0 ? n : turn < SPECIALS ? special : SPECIALS, at);
    }
    for (int k = 0; k < PLACES; k++) free(at[k]);
}
END_TEST

START_TEST(nothing_of_nothing) {
    char *at[1] = {NULL};
    union {
        dt__chain chain;
        char bytes[1024];
    } room;
    dt__chain_begin(&room.chain, DT_F32, 0);
    dt__chain_store(&room.chain, 0);
    dt__chain_end(&room.chain);
    dt__chain_run(&room.chain, 0, at);
}
END_TEST

/* ---- passes --------------------------------------------------------------------------------- */

#define VECTORS 6 /* the first inputs, all but the last two contiguous and of the pass's dtype */
#define APART 4
#define CAST 5
#define NUMBER (-1)
#define RESULT(k) (VECTORS + (k)) /* of call k */

typedef struct sketch {
    int calls;
    int in[DT_FUSE_MAX][2]; /* of each add; a second one of NUMBER: a number */
    const dt_kernel *kernel[DT_FUSE_MAX];
    uint32_t dead;
} sketch;

/* x + y + y ... */
static sketch chain_of(int calls) {
    sketch s = {.calls = calls, .dead = (calls < 32 ? 1u << (calls - 1) : 0x80000000u) - 1};
    for (int k = 0; k < calls; k++) {
        s.in[k][0] = k == 0 ? 0 : RESULT(k - 1);
        s.in[k][1] = 1;
        s.kernel[k] = &dt_kernel_ew_add;
    }
    return s;
}

static void check_counts(const dt_pass *pass, int tiles, int gathers, int chains, int line) {
    int counts[DT__STEP_CHAIN + 1] = {0};
    for (int i = 0; i < pass->steps_count; i++) counts[pass->steps[i].kind]++;
    ck_assert_msg(counts[DT__STEP_TILE] == tiles && counts[DT__STEP_GATHER] == gathers &&
                      counts[DT__STEP_CHAIN] == chains,
                  "line %d: %d tile functions, %d gathers, %d chains", line, counts[DT__STEP_TILE],
                  counts[DT__STEP_GATHER], counts[DT__STEP_CHAIN]);
}

static void check_sketch(const sketch *s, dt_dtype dtype, int tiles, int gathers, int chains,
                         int line) {
    const int64_t n = 1000, two = 2;
    dt_tensor *t[VECTORS + DT_FUSE_MAX];
    for (int k = 0; k < VECTORS; k++)
        t[k] = ew_vector(k == CAST ? DT_I8 : dtype, k == APART ? 2 * n : n);
    dt_tensor *apart = ew_view(t[APART], 1, &n, &two, 0);
    dt_tensor_release(t[APART]);
    t[APART] = apart;
    dt_call call[DT_FUSE_MAX];
    const dt_call *calls[DT_FUSE_MAX];
    for (int k = 0; k < s->calls; k++) {
        t[RESULT(k)] = ew_vector(dtype, n);
        int nin = ((const dt_ew_family *)s->kernel[k]->family)->nin;
        ck_assert_ok(dt_call_init(&call[k], 1, nin));
        call[k].kernel = s->kernel[k];
        call[k].compute = (uint8_t)dtype;
        call[k].operands[0] = dt_tensor_retain(t[RESULT(k)]);
        for (int i = 0; i < nin; i++)
            if (s->in[k][i] != NUMBER) call[k].operands[1 + i] = dt_tensor_retain(t[s->in[k][i]]);
        calls[k] = &call[k];
    }
    dt_pass *pass = NULL;
    ck_assert_ok(dt_cpu_device.fuse->build(calls, s->calls, s->dead, &pass));
    check_counts(pass, tiles, gathers, chains, line);
    dt_cpu_device.fuse->free(pass);
    for (int k = 0; k < s->calls; k++) dt_call_fini(&call[k]);
    for (int k = 0; k < VECTORS + s->calls; k++) dt_tensor_release(t[k]);
}

#define CHECK(s, dtype, tiles, gathers, chains)                                                    \
    check_sketch(s, dtype, tiles, gathers, chains, __LINE__)

START_TEST(dtypes_of_chains) {
    ck_assert_int_eq(dt_cpu_select(ew_levels[_i]), DT_OK);
    sketch s = chain_of(9);
    for (int t = 0; t < DT_DTYPE_COUNT; t++) {
        bool chain = t == DT_F32 || t == DT_F64 || t == DT_I32 || (t == DT_I64 && _i > 0);
        if (t != DT_F16 && t != DT_BF16) CHECK(&s, (dt_dtype)t, chain ? 0 : 9, 0, chain);
    }
}
END_TEST

START_TEST(chains_of_passes) {
    ck_assert_int_eq(dt_cpu_select(ew_levels[_i]), DT_OK);
    sketch s = chain_of(9);
    for (int k = 0; k < 9; k += 2) s.in[k][1] = NUMBER;
    CHECK(&s, DT_F32, 0, 0, 1);
    s.dead &= ~(1u << 4); /* stored in between */
    CHECK(&s, DT_F32, 0, 0, 1);
    s.in[3][1] = RESULT(0); /* and this one is kept for later */
    CHECK(&s, DT_F32, 0, 0, 1);
    s.kernel[5] = &dt_kernel_ew_exp;
    CHECK(&s, DT_F32, 1, 0, 2);
    s.in[4][0] = 2; /* does not go on from the one before */
    CHECK(&s, DT_F32, 2, 0, 2);
    s = chain_of(4);
    s.in[1][0] = s.in[2][0] = s.in[3][0] = 2; /* each for itself */
    CHECK(&s, DT_F32, 4, 0, 0);
    s = chain_of(DT_FUSE_MAX);
    CHECK(&s, DT_F32, 0, 0, 1);
    s.dead = 0; /* more memory than one chain may touch */
    CHECK(&s, DT_F32, 0, 0, 3);
}
END_TEST

/* Operands that have to be brought in do not stand between the steps of a chain. */
START_TEST(chains_over_gathers_and_casts) {
    ck_assert_int_eq(dt_cpu_select(ew_levels[_i]), DT_OK);
    sketch s = chain_of(6);
    s.in[1][1] = APART;
    CHECK(&s, DT_F32, 0, 1, 1);
    s.in[3][1] = CAST;
    CHECK(&s, DT_F32, 0, 1, 1);
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("chain");
    TCase *chains = tcase_create("chains");
    int levels = ew_level_count();
    tcase_add_loop_test(chains, what_there_is, 0, levels);
    tcase_add_loop_test(chains, each_expression, 0, levels * DTYPES);
    tcase_add_loop_test(chains, pairs, 0, levels * DTYPES);
    tcase_add_loop_test(chains, random_chains, 0, levels * DTYPES);
    tcase_add_test(chains, nothing_of_nothing);
    suite_add_tcase(s, chains);
    TCase *passes = tcase_create("passes");
    tcase_add_loop_test(passes, dtypes_of_chains, 0, levels);
    tcase_add_loop_test(passes, chains_of_passes, 0, levels);
    tcase_add_loop_test(passes, chains_over_gathers_and_casts, 0, levels);
    suite_add_tcase(s, passes);
    return s;
}

int main(void) { return test_run(suite()); }
