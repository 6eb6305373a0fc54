/* Tests of kernels/cpu/matmul.c: matmul and linear over types, layouts, sizes, parts and
 * instruction sets, beside loops in double (in integers modulo 2^64 for the integer types). */
#include "kernel_call.h"

extern const dt_kernel dt_kernel_matmul, dt_kernel_linear;

/* ---- reference ------------------------------------------------------------------------------- */

typedef struct sum {
    double value, size; /* size: the same with absolute values, for the tolerance */
    uint64_t integer;
} sum;

static sum element(const dt_call *call, int64_t a0, int64_t b0, int64_t bias0, int64_t i, int64_t j,
                   bool linear) {
    const dt_tensor *a = dt_call_in(call, 0), *b = dt_call_in(call, 1);
    const dt_tensor *bias = call->nin == 3 ? dt_call_in(call, 2) : NULL;
    double alpha = linear ? 1 : call->params.f[0], beta = linear ? 1 : call->params.f[1];
    sum s = {0, 0, 0};
    int64_t k = a->shape[a->rank - 1];
    for (int64_t p = 0; p < k; p++) {
        double x = kc_load(a, a0 + kc_at2(a, i, p));
        double y = kc_load(b, b0 + (linear ? kc_at2(b, j, p) : kc_at2(b, p, j)));
        s.value += x * y;
        s.size += fabs(x * y);
        if (!dt_dtype_is_float((dt_dtype)a->dtype))
            s.integer += (uint64_t)(int64_t)x * (uint64_t)(int64_t)y;
    }
    s.value *= alpha;
    s.size *= fabs(alpha);
    s.integer *= (uint64_t)(int64_t)alpha;
    if (bias) {
        int64_t at = linear ? bias->offset + j * bias->strides[0] : bias0 + kc_at2(bias, i, j);
        double z = kc_load(bias, at);
        s.value += beta * z;
        s.size += fabs(beta * z);
        s.integer += (uint64_t)(int64_t)beta * (uint64_t)(int64_t)z;
    }
    return s;
}

static void check_element(dt_dtype dtype, double got, sum want, const char *what, int64_t i,
                          int64_t j) {
    if (!dt_dtype_is_float(dtype)) {
        char bytes[8];
        dt_scalar_store((dt_scalar){.category = DT_CAT_INT, .i = (int64_t)want.integer}, dtype,
                        bytes);
        double value = dt_scalar_f64(dt_scalar_load(dtype, bytes));
        ck_assert_msg(got == value, "%s [%d, %d]: %g, not %g", what, (int)i, (int)j, got, value);
        return;
    }
    if (isnan(want.value)) {
        ck_assert_msg(isnan(got), "%s [%d, %d]: %g, not NaN", what, (int)i, (int)j, got);
        return;
    }
    double rounding = dtype == DT_F64   ? 0
                      : dtype == DT_F32 ? 6e-8
                      : dtype == DT_F16 ? 4.9e-4
                                        : 3.92e-3;
    double summing = dtype == DT_F64 ? 4e-15 : 4e-7;
    double tolerance = rounding * fabs(want.value) + summing * want.size + 1e-30;
    if (dtype == DT_F16) tolerance += 3e-8; /* denormals */
    ck_assert_msg(got == want.value || fabs(got - want.value) <= tolerance,
                  "%s [%d, %d]: %.9g, not %.9g (off by %g, allowed %g)", what, (int)i, (int)j, got,
                  want.value, got - want.value, tolerance);
}

static void check_call(const dt_call *call, bool linear, const char *what) {
    const dt_tensor *c = dt_call_out(call, 0), *a = dt_call_in(call, 0), *b = dt_call_in(call, 1);
    const dt_tensor *bias = call->nin == 3 ? dt_call_in(call, 2) : NULL;
    int batch_rank = c->rank - 2;
    int64_t batch = 1;
    for (int d = 0; d < batch_rank; d++) batch *= c->shape[d];
    for (int64_t n = 0; n < batch; n++) {
        int64_t at[4] = {0}, rest = n;
        for (int d = batch_rank - 1; d >= 0; d--) {
            int64_t index = rest % c->shape[d];
            rest /= c->shape[d];
            at[0] += index * c->strides[d];
            at[1] += index * a->strides[d];
            at[2] += index * b->strides[d];
            if (bias) at[3] += index * bias->strides[d];
        }
        /* Of large products every seventh element, another one in each row. */
        int64_t step = c->numel * a->shape[a->rank - 1] > 300000 ? 7 : 1;
        for (int64_t i = 0; i < c->shape[batch_rank]; i++) {
            for (int64_t j = i % step; j < c->shape[batch_rank + 1]; j += step) {
                sum want = element(call, at[1], at[2], at[3], i, j, linear);
                double got = kc_load(c, at[0] + kc_at2(c, i, j));
                check_element((dt_dtype)c->dtype, got, want, what, i, j);
            }
        }
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

typedef enum bias_kind {
    NO_BIAS,
    BIAS_MATRIX,
    BIAS_ROW,
    BIAS_COLUMN,
    BIAS_NUMBER,
    BIAS_KINDS
} bias_kind;

typedef struct setup {
    dt_dtype dtype;
    int64_t m, n, k;
    kc_layout a, b, c;
    bias_kind bias;
    double alpha, beta;
} setup;

static dt_tensor *bias_tensor(const setup *s) {
    int64_t shape[2] = {s->m, s->n};
    int64_t own[2] = {s->bias == BIAS_MATRIX || s->bias == BIAS_COLUMN ? s->m : 1,
                      s->bias == BIAS_MATRIX || s->bias == BIAS_ROW ? s->n : 1};
    dt_tensor *t = kc_tensor(s->dtype, 2, own, s->bias == BIAS_MATRIX ? KC_GAPS : KC_PLAIN);
    int64_t strides[2] = {own[0] == s->m ? t->strides[0] : 0, own[1] == s->n ? t->strides[1] : 0};
    return kc_view(t, 2, shape, strides);
}

static void matmul_call(dt_call *call, const setup *s) {
    int64_t a[2] = {s->m, s->k}, b[2] = {s->k, s->n}, c[2] = {s->m, s->n};
    KC_OK(dt_call_init(call, 1, s->bias ? 3 : 2));
    call->kernel = &dt_kernel_matmul;
    call->compute = (uint8_t)s->dtype;
    call->params.f[0] = s->alpha;
    call->params.f[1] = s->beta;
    call->operands[0] = kc_tensor(s->dtype, 2, c, s->c);
    call->operands[1] = kc_tensor(s->dtype, 2, a, s->a);
    call->operands[2] = kc_tensor(s->dtype, 2, b, s->b);
    if (s->bias) call->operands[3] = bias_tensor(s);
}

static void linear_call(dt_call *call, const setup *s) {
    int64_t x[2] = {s->m, s->k}, w[2] = {s->n, s->k}, c[2] = {s->m, s->n}, bias[1] = {s->n};
    KC_OK(dt_call_init(call, 1, s->bias ? 3 : 2));
    call->kernel = &dt_kernel_linear;
    call->compute = (uint8_t)s->dtype;
    call->operands[0] = kc_tensor(s->dtype, 2, c, s->c);
    call->operands[1] = kc_tensor(s->dtype, 2, x, s->a);
    call->operands[2] = kc_tensor(s->dtype, 2, w, s->b);
    if (!s->bias) return;
    call->operands[3] = kc_tensor(s->dtype, 1, bias, s->bias == BIAS_MATRIX ? KC_GAPS : KC_PLAIN);
    int64_t none[1] = {0};
    if (s->bias == BIAS_NUMBER) call->operands[3] = kc_view(call->operands[3], 1, bias, none);
}

static void run_and_check(const setup *s, bool linear, int parts) {
    dt_call call;
    char what[200];
    if (linear)
        linear_call(&call, s);
    else
        matmul_call(&call, s);
    snprintf(what, sizeof what, "%s %s %s %dx%dx%d layouts %d%d%d bias %d parts %d",
             linear ? "linear" : "matmul", dt_dtype_table[s->dtype].name,
             dt_cpu_level_name(dt_cpu_level_now()), (int)s->m, (int)s->n, (int)s->k, s->a, s->b,
             s->c, s->bias, parts);
    kc_run(&call, parts, false);
    check_call(&call, linear, what);
    dt_call_fini(&call);
}

static const dt_dtype dtypes[] = {DT_U8,  DT_I8,   DT_I16, DT_I32, DT_I64,
                                  DT_F16, DT_BF16, DT_F32, DT_F64};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* Sizes around the edges of tiles, vectors, panels, groups of rows, and of what goes to oneDNN. */
static const int64_t sizes[][3] = {
    {1, 1, 1},   {1, 1, 9},   {1, 33, 17},  {33, 1, 17}, {7, 3, 5},    {3, 40, 33},   {12, 17, 16},
    {13, 31, 8}, {8, 70, 40}, {30, 64, 31}, {29, 7, 64}, {57, 129, 3}, {15, 257, 20}, {100, 12, 33},
    {0, 3, 2},   {3, 0, 2},   {3, 4, 0},    {40, 33, 0}, {0, 0, 0},
};
enum { SIZES = sizeof sizes / sizeof *sizes };

START_TEST(every_type_layout_and_size) {
    dt_dtype dtype = dtypes[_i];
    KC_FOR_EACH_ISA(level) {
        for (int z = 0; z < SIZES; z++) {
            for (int l = 0; l < KC_LAYOUTS * KC_LAYOUTS; l++) {
                int turn = z * 7 + l;
                setup s = {.dtype = dtype,
                           .m = sizes[z][0],
                           .n = sizes[z][1],
                           .k = sizes[z][2],
                           .a = (kc_layout)(l % KC_LAYOUTS),
                           .b = (kc_layout)(l / KC_LAYOUTS),
                           .c = (kc_layout)(turn % KC_LAYOUTS),
                           .bias = (bias_kind)(turn % BIAS_KINDS),
                           .alpha = turn % 3 ? 1 : -2,
                           .beta = turn % 2 ? 1 : 3};
                run_and_check(&s, false, 1 + turn % 3);
                run_and_check(&s, true, 1 + turn % 3);
            }
        }
    }
}
END_TEST

/* Sizes beyond one block of rows, columns and k; halves large enough for oneDNN. */
START_TEST(larger_than_a_block) {
    static const int64_t large[][3] = {
        {350, 20, 300}, {20, 400, 520}, {130, 140, 150}, {14, 900, 260}};
    dt_dtype dtype = dtypes[_i];
    KC_FOR_EACH_ISA(level) {
        for (int z = 0; z < 4; z++) {
            for (int turn = 0; turn < 4; turn++) {
                setup s = {.dtype = dtype,
                           .m = large[z][0],
                           .n = large[z][1],
                           .k = large[z][2],
                           .a = (kc_layout)(turn % 3),
                           .b = (kc_layout)((turn + 1) % 2),
                           .c = turn == 3 ? KC_TRANSPOSED : KC_PLAIN,
                           .bias = turn == 1   ? BIAS_ROW
                                   : turn == 2 ? BIAS_MATRIX
                                               : NO_BIAS,
                           .alpha = turn == 2 ? 0.5 : 1,
                           .beta = 1};
                if (!dt_dtype_is_float(dtype)) s.alpha = turn == 2 ? 3 : 1;
                if (level < (int)dt_cpu_best() && turn > 1) continue;
                run_and_check(&s, turn & 1, 1 + turn);
            }
        }
    }
}
END_TEST

/* a whose rows are a page apart is copied. */
START_TEST(rows_a_page_apart) {
    KC_FOR_EACH_ISA(level) {
        setup s = {.dtype = DT_F32, .m = 20, .n = 50, .k = 1024, .alpha = 1, .beta = 1};
        run_and_check(&s, false, 2);
        s.dtype = DT_F64;
        s.k = 512;
        run_and_check(&s, false, 2);
    }
}
END_TEST

/* ---- batches --------------------------------------------------------------------------------- */

START_TEST(batches_and_broadcasting) {
    dt_dtype dtype = dtypes[_i];
    for (int turn = 0; turn < 24; turn++) {
        int64_t m = turn % 2 ? 5 : 14, k = turn % 3 ? 9 : 33, n = turn % 5 ? 18 : 2;
        int64_t batch = turn == 23 ? 0 : 3;
        int64_t a_shape[4] = {turn & 1 ? 1 : 2, batch, m, k},
                b_shape[4] = {2, turn & 4 ? 1 : batch, k, n};
        int64_t a_full[4] = {2, batch, m, k}, b_full[4] = {2, batch, k, n},
                c_shape[4] = {2, batch, m, n};
        int64_t bias_shape[4] = {1, batch, 1, n};
        dt_call call;
        KC_OK(dt_call_init(&call, 1, turn & 8 ? 3 : 2));
        call.kernel = &dt_kernel_matmul;
        call.params.f[0] = 1;
        call.params.f[1] = 2;
        dt_tensor *a = kc_tensor(dtype, 4, a_shape, (kc_layout)(turn % KC_LAYOUTS));
        dt_tensor *b = kc_tensor(dtype, 4, b_shape, (kc_layout)(turn / 3 % KC_LAYOUTS));
        int64_t sa[4], sb[4];
        memcpy(sa, a->strides, sizeof sa);
        memcpy(sb, b->strides, sizeof sb);
        if (a_shape[0] == 1) sa[0] = 0;
        if (b_shape[1] == 1) sb[1] = 0;
        call.operands[0] =
            kc_tensor(dtype, 4, c_shape, turn % 7 == 3 ? KC_REVERSED_DIMS : KC_PLAIN);
        call.operands[1] = kc_view(a, 4, a_full, sa);
        call.operands[2] = kc_view(b, 4, b_full, sb);
        if (turn & 8) {
            dt_tensor *bias = kc_tensor(dtype, 4, bias_shape, KC_PLAIN);
            int64_t strides[4] = {0, bias->strides[1], 0, bias->strides[3]};
            call.operands[3] = kc_view(bias, 4, c_shape, strides);
        }
        kc_run(&call, 1 + turn % 8, false);
        check_call(&call, false, "batch");
        dt_call_fini(&call);
    }
}
END_TEST

/* An operand that repeats one number, or one row, within the matrix. */
START_TEST(strides_of_zero_inside_a_matrix) {
    dt_dtype dtype = dtypes[_i];
    for (int turn = 0; turn < 4; turn++) {
        setup s = {.dtype = dtype, .m = 14, .n = 40, .k = 20, .alpha = 1, .beta = 1};
        dt_call call;
        matmul_call(&call, &s);
        int64_t a[2] = {s.m, s.k}, b[2] = {s.k, s.n};
        int64_t sa[2] = {turn & 1 ? 0 : s.k, turn & 1 ? 1 : 0},
                sb[2] = {turn & 2 ? 0 : s.n, turn & 2 ? 1 : 0};
        call.operands[1] = kc_view(call.operands[1], 2, a, sa);
        call.operands[2] = kc_view(call.operands[2], 2, b, sb);
        kc_run(&call, 2, false);
        check_call(&call, false, "strides of 0");
        dt_call_fini(&call);
    }
}
END_TEST

/* ---- special values, bits -------------------------------------------------------------------- */

START_TEST(inf_times_zero_is_nan) {
    KC_FOR_EACH_ISA(level) {
        for (int m = 1; m <= 20; m += 19) {
            setup s = {
                .dtype = _i ? DT_F64 : DT_F32, .m = m, .n = 37, .k = 21, .alpha = 1, .beta = 1};
            for (int linear = 0; linear < 2; linear++) {
                dt_call call;
                if (linear)
                    linear_call(&call, &s);
                else
                    matmul_call(&call, &s);
                dt_tensor *a = call.operands[1], *b = call.operands[2];
                kc_store(a, kc_at2(a, 0, 20), 0);
                kc_store(b, linear ? kc_at2(b, 36, 20) : kc_at2(b, 20, 36), (double)INFINITY);
                kc_store(b, linear ? kc_at2(b, 3, 2) : kc_at2(b, 2, 3), (double)NAN);
                kc_run(&call, 1, false);
                check_call(&call, linear, "special");
                ck_assert(isnan(kc_load(call.operands[0], kc_at2(call.operands[0], 0, 36))));
                ck_assert(isnan(kc_load(call.operands[0], kc_at2(call.operands[0], m - 1, 3))));
                ck_assert(!isnan(kc_load(call.operands[0], kc_at2(call.operands[0], 0, 0))));
                dt_call_fini(&call);
            }
        }
    }
}
END_TEST

/* Bytes of row i of the output. */
static const void *row_bytes(const dt_call *call, int64_t i) {
    const dt_tensor *c = dt_call_out(call, 0);
    return (char *)dt_tensor_data(c) +
           i * c->strides[0] * (int64_t)dt_dtype_size((dt_dtype)c->dtype);
}

/* A row alone, and as row `at` of m rows, at other places and beside other rows: the same bits. */
START_TEST(a_row_has_the_same_bits_among_others) {
    dt_dtype dtype = _i ? DT_F64 : DT_F32;
    KC_FOR_EACH_ISA(level) {
        for (int64_t m = 2; m <= 12; m++) {
            setup one = {.dtype = dtype, .m = 1, .n = 51, .k = 77, .bias = BIAS_ROW};
            setup many = one;
            many.m = m;
            dt_call a, b;
            linear_call(&a, &one);
            linear_call(&b, &many);
            for (int k = 2; k <= 3; k++) {
                dt_tensor_release(b.operands[k]);
                b.operands[k] = dt_tensor_retain(a.operands[k]);
            }
            int64_t at = m - 1 - m % 2;
            for (int64_t p = 0; p < 77; p++)
                kc_store(b.operands[1], kc_at2(b.operands[1], at, p),
                         kc_load(a.operands[1], kc_at2(a.operands[1], 0, p)));
            kc_run(&a, 1, false);
            kc_run(&b, 3, false);
            ck_assert_mem_eq(row_bytes(&a, 0), row_bytes(&b, at), 51 * dt_dtype_size(dtype));
            dt_call_fini(&a);
            dt_call_fini(&b);
        }
    }
}
END_TEST

START_TEST(parts_change_no_bit) {
    static const int64_t shapes[][3] = {
        {5, 300, 100}, {40, 300, 100}, {300, 40, 100}, {200, 260, 300}, {1000, 6, 50}};
    dt_dtype dtype = dtypes[_i];
    for (int z = 0; z < 5; z++) {
        setup s = {.dtype = dtype,
                   .m = shapes[z][0],
                   .n = shapes[z][1],
                   .k = shapes[z][2],
                   .bias = BIAS_ROW,
                   .b = KC_TRANSPOSED,
                   .alpha = 1,
                   .beta = 1};
        dt_call call;
        matmul_call(&call, &s);
        dt_tensor *c = call.operands[0];
        size_t bytes = (size_t)c->numel * dt_dtype_size(dtype);
        void *first = malloc(bytes);
        for (int parts = 1; parts <= 8; parts++) {
            memset(dt_tensor_data(c), 0x55, bytes);
            kc_run(&call, parts, parts > 4);
            if (parts == 1)
                memcpy(first, dt_tensor_data(c), bytes);
            else
                ck_assert_mem_eq(first, dt_tensor_data(c), bytes);
        }
        free(first);
        dt_call_fini(&call);
    }
}
END_TEST

/* Weights asked for again and again are packed, which shows in no bit; written, they are packed
 * anew. */
START_TEST(packing_changes_no_bit) {
    setup s = {
        .dtype = DT_F32, .m = 20, .n = 300, .k = 200, .bias = BIAS_ROW, .alpha = 1, .beta = 1};
    dt_call call;
    linear_call(&call, &s);
    dt_tensor *c = call.operands[0], *w = call.operands[2];
    size_t bytes = (size_t)c->numel * sizeof(float);
    void *first = malloc(bytes);
    for (int write = 0; write < 3; write++) {
        for (int turn = 0; turn < 5; turn++) {
            memset(dt_tensor_data(c), 0x55, bytes);
            kc_run(&call, 1 + turn % 3, false);
            if (turn == 0)
                memcpy(first, dt_tensor_data(c), bytes);
            else
                ck_assert_mem_eq(first, dt_tensor_data(c), bytes);
        }
        check_call(&call, true, "packed");
        KC_OK(dt_storage_materialize(w->storage)); /* what every writer does first */
        for (int64_t p = 0; p < s.k; p++)
            kc_store(w, kc_at2(w, 7 + write, p), 0.5 * (double)(write + 1));
    }
    free(first);
    dt_call_fini(&call);
}
END_TEST

/* f32 of a size that goes to oneDNN, some elements of it, in any number of parts. */
START_TEST(large_products) {
    setup s = {
        .dtype = DT_F32, .m = 300, .n = 80, .k = 5600, .bias = BIAS_ROW, .alpha = 1, .beta = 1};
    dt_call call;
    matmul_call(&call, &s);
    dt_tensor *c = call.operands[0];
    size_t bytes = (size_t)c->numel * sizeof(float);
    void *first = malloc(bytes);
    for (int parts = 1; parts <= 3; parts++) {
        memset(dt_tensor_data(c), 0x55, bytes);
        kc_run(&call, parts, parts == 3);
        if (parts == 1)
            memcpy(first, dt_tensor_data(c), bytes);
        else
            ck_assert_mem_eq(first, dt_tensor_data(c), bytes);
    }
    for (int64_t i = 0; i < s.m; i += 13)
        for (int64_t j = 0; j < s.n; j += 7)
            check_element(DT_F32, kc_load(c, kc_at2(c, i, j)), element(&call, 0, 0, 0, i, j, false),
                          "large", i, j);
    free(first);
    dt_call_fini(&call);
}
END_TEST

START_TEST(costs_and_parts_are_sane) {
    setup small = {.dtype = DT_F32, .m = 4, .n = 4, .k = 4, .alpha = 1, .beta = 1};
    setup large = {.dtype = DT_F32, .m = 512, .n = 512, .k = 512, .alpha = 1, .beta = 1};
    dt_call call;
    matmul_call(&call, &small);
    ck_assert(call.kernel->cost_ns(&call) < 1000);
    ck_assert_int_eq(call.kernel->parts(&call, 8), 1);
    dt_call_fini(&call);
    matmul_call(&call, &large);
    ck_assert(call.kernel->cost_ns(&call) > 500e3);
    ck_assert_int_eq(call.kernel->parts(&call, 1), 1);
    ck_assert_int_ge(call.kernel->parts(&call, 4), 3);
    ck_assert_int_le(call.kernel->parts(&call, 4), 16);
    dt_call_fini(&call);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("matmul");
    TCase *tc = tcase_create("matmul");
    tcase_set_tags(tc, "threadless");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, every_type_layout_and_size, 0, DTYPES);
    tcase_add_loop_test(tc, larger_than_a_block, 0, DTYPES);
    tcase_add_test(tc, rows_a_page_apart);
    tcase_add_loop_test(tc, batches_and_broadcasting, 0, DTYPES);
    tcase_add_loop_test(tc, strides_of_zero_inside_a_matrix, 0, DTYPES);
    tcase_add_loop_test(tc, inf_times_zero_is_nan, 0, 2);
    tcase_add_loop_test(tc, a_row_has_the_same_bits_among_others, 0, 2);
    tcase_add_test(tc, packing_changes_no_bit);
    tcase_add_test(tc, costs_and_parts_are_sane);
    suite_add_tcase(suite, tc);

    tc = tcase_create("threads");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, parts_change_no_bit, 0, DTYPES);
    tcase_add_test(tc, large_products);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
