/* Tests of kernels/cpu/attention.c (and simd/attention_rows.c): beside loops in double, with
 * torch's rules for masked rows, NaN and infinity. */
#include "kernel_call.h"

extern const dt_kernel dt_kernel_sdpa;

typedef enum mask_kind { NO_MASK, MASK_BOOL, MASK_ADDED, CAUSAL, MASK_KINDS } mask_kind;

typedef struct setup {
    dt_dtype dtype;
    int64_t batch, heads, l, s, e, ev;
    kc_layout layout;
    mask_kind mask;
    bool shared_mask; /* one for all heads */
} setup;

/* q, k and v as the heads of one projection: [B, L, H, E] seen as [B, H, L, E]. */
static dt_tensor *heads_of(const setup *s, int64_t rows, int64_t columns) {
    int64_t shape[4] = {s->batch, s->heads, rows, columns};
    if (s->layout != KC_PLAIN) return kc_tensor(s->dtype, 4, shape, s->layout);
    int64_t lying[4] = {s->batch, rows, s->heads, columns};
    dt_tensor *t = kc_tensor(s->dtype, 4, lying, KC_PLAIN);
    int64_t strides[4] = {t->strides[0], t->strides[2], t->strides[1], t->strides[3]};
    return kc_view(t, 4, shape, strides);
}

static dt_tensor *mask_of(const setup *s) {
    int64_t full[4] = {s->batch, s->heads, s->l, s->s};
    int64_t own[4] = {s->batch, s->shared_mask ? 1 : s->heads, s->shared_mask ? 1 : s->l, s->s};
    dt_tensor *t = kc_tensor(s->mask == MASK_BOOL ? DT_U8 : s->dtype, 4, own, KC_PLAIN);
    int64_t strides[4];
    for (int d = 0; d < 4; d++) strides[d] = own[d] == full[d] ? t->strides[d] : 0;
    for (int64_t i = 0; i < t->numel; i++)
        if (s->mask == MASK_BOOL)
            kc_store(t, t->offset + i, (double)(kc_random() % 3 != 0));
        else if (kc_random() % 4 == 0)
            kc_store(t, t->offset + i, (double)-INFINITY);
    dt_tensor *view;
    KC_OK(dt_tensor_new_view(t, s->mask == MASK_BOOL ? DT_BOOL : s->dtype, 4, full, strides,
                             t->offset, &view));
    dt_tensor_release(t);
    return view;
}

static void sdpa_call(dt_call *call, const setup *s) {
    bool mask = s->mask == MASK_BOOL || s->mask == MASK_ADDED;
    KC_OK(dt_call_init(call, 1, mask ? 4 : 3));
    call->kernel = &dt_kernel_sdpa;
    call->compute = (uint8_t)s->dtype;
    call->params.i[0] = s->mask == CAUSAL;
    call->params.i[1] = s->mask == MASK_BOOL ? 1 : s->mask == MASK_ADDED ? 2 : 0;
    call->params.f[0] = 0.3;
    call->operands[0] = heads_of(s, s->l, s->ev);
    call->operands[1] = heads_of(s, s->l, s->e);
    call->operands[2] = heads_of(s, s->s, s->e);
    call->operands[3] = heads_of(s, s->s, s->ev);
    if (mask) call->operands[4] = mask_of(s);
}

static int64_t at4(const dt_tensor *t, int64_t b, int64_t h, int64_t i, int64_t j) {
    return t->offset + b * t->strides[0] + h * t->strides[1] + i * t->strides[2] +
           j * t->strides[3];
}

/* Weights of one row, not yet divided; returns their sum. */
static double reference_weights(const dt_call *call, int64_t b, int64_t h, int64_t i, int64_t n,
                                double *w) {
    const dt_tensor *q = dt_call_in(call, 0), *k = dt_call_in(call, 1);
    const dt_tensor *mask = call->nin == 4 ? dt_call_in(call, 3) : NULL;
    double top = -(double)INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++) {
        double x = 0;
        for (int64_t e = 0; e < q->shape[3]; e++)
            x += kc_load(q, at4(q, b, h, i, e)) * kc_load(k, at4(k, b, h, j, e));
        x *= call->params.f[0];
        if (mask) {
            double y = kc_load(mask, at4(mask, b, h, i, j));
            x += mask->dtype == DT_BOOL ? (y != 0 ? 0 : -(double)INFINITY) : y;
        }
        if (call->params.i[0] && j > i) x = -(double)INFINITY;
        w[j] = x;
        if (x > top) top = x;
    }
    for (int64_t j = 0; j < n; j++) {
        w[j] = isinf(top) && top < 0 && !isnan(w[j]) ? 0 : exp(w[j] - top);
        sum += w[j];
    }
    return sum;
}

static void check_call(const dt_call *call, const char *what) {
    const dt_tensor *out = dt_call_out(call, 0), *v = dt_call_in(call, 2);
    int64_t s = v->shape[2];
    dt_dtype dtype = (dt_dtype)out->dtype;
    double *w = malloc(sizeof *w * (size_t)(s + 1));
    double relative = dtype == DT_F64   ? 1e-13
                      : dtype == DT_F32 ? 3e-6
                      : dtype == DT_F16 ? 6e-4
                                        : 5e-3;
    for (int64_t b = 0; b < out->shape[0]; b++)
        for (int64_t h = 0; h < out->shape[1]; h++)
            for (int64_t i = 0; i < out->shape[2]; i++) {
                double sum = reference_weights(call, b, h, i, s, w);
                for (int64_t e = 0; e < out->shape[3]; e++) {
                    double want = 0, size = 0;
                    for (int64_t j = 0; j < s && sum != 0; j++) {
                        double x = w[j] / sum * kc_load(v, at4(v, b, h, j, e));
                        want += x;
                        size += fabs(x);
                    }
                    double got = kc_load(out, at4(out, b, h, i, e));
                    bool ok = isnan(want) ? isnan(got) : fabs(got - want) <= relative * size + 1e-7;
                    ck_assert_msg(ok, "%s [%d, %d, %d, %d]: %.9g, not %.9g", what, (int)b, (int)h,
                                  (int)i, (int)e, got, want);
                }
            }
    free(w);
}

static const dt_dtype dtypes[] = {DT_F32, DT_F64, DT_F16, DT_BF16};

START_TEST(every_type_mask_and_layout) {
    static const int64_t sizes[][4] = {
        /* L, S, E, Ev */
        {7, 7, 32, 32},   {1, 40, 16, 16}, {3, 5, 8, 48}, {60, 33, 5, 7}, {33, 60, 32, 1},
        {4, 130, 64, 64}, {0, 3, 4, 4},    {3, 0, 4, 4},  {2, 3, 0, 4},   {2, 3, 4, 0}};
    KC_FOR_EACH_ISA(level) {
        for (int z = 0; z < 10; z++) {
            for (int turn = 0; turn < MASK_KINDS * KC_LAYOUTS; turn++) {
                setup s = {.dtype = dtypes[_i],
                           .batch = 2,
                           .heads = 3,
                           .l = sizes[z][0],
                           .s = sizes[z][1],
                           .e = sizes[z][2],
                           .ev = sizes[z][3],
                           .layout = (kc_layout)(turn % KC_LAYOUTS),
                           .mask = (mask_kind)(turn / KC_LAYOUTS),
                           .shared_mask = turn & 1};
                char what[200];
                snprintf(what, sizeof what, "%s %s L %d S %d E %d Ev %d layout %d mask %d",
                         dt_dtype_table[s.dtype].name, dt_cpu_level_name(dt_cpu_level_now()),
                         (int)s.l, (int)s.s, (int)s.e, (int)s.ev, s.layout, s.mask);
                dt_call call;
                sdpa_call(&call, &s);
                kc_run(&call, 1 + turn % 3, false);
                check_call(&call, what);
                dt_call_fini(&call);
            }
        }
    }
}
END_TEST

/* More rows than a block, and scores so long that a block has few rows. */
START_TEST(long_sequences) {
    for (int turn = 0; turn < 4; turn++) {
        setup s = {.dtype = dtypes[_i],
                   .batch = 1,
                   .heads = turn == 3 ? 1 : 2,
                   .l = turn == 3 ? 9 : 150,
                   .s = turn == 3 ? 9000 : 170,
                   .e = 12,
                   .ev = 20,
                   .mask = (mask_kind)turn};
        dt_call call;
        sdpa_call(&call, &s);
        kc_run(&call, 2, false);
        check_call(&call, "long");
        dt_call_fini(&call);
    }
}
END_TEST

START_TEST(no_batch_dims) {
    int64_t q[2] = {5, 8}, k[2] = {6, 8};
    dt_call call;
    KC_OK(dt_call_init(&call, 1, 3));
    call.kernel = &dt_kernel_sdpa;
    call.params.f[0] = 1;
    call.operands[0] = kc_tensor(DT_F32, 2, q, KC_PLAIN);
    call.operands[1] = kc_tensor(DT_F32, 2, q, KC_PLAIN);
    call.operands[2] = kc_tensor(DT_F32, 2, k, KC_PLAIN);
    call.operands[3] = kc_tensor(DT_F32, 2, k, KC_PLAIN);
    kc_run(&call, 1, false);
    for (int o = 0; o < 4; o++) {
        dt_tensor *t = call.operands[o];
        int64_t shape[4] = {1, 1, t->shape[0], t->shape[1]},
                strides[4] = {0, 0, t->strides[0], t->strides[1]};
        call.operands[o] = kc_view(t, 4, shape, strides);
    }
    check_call(&call, "no batch");
    dt_call_fini(&call);
}
END_TEST

/* ---- what torch gives ------------------------------------------------------------------------ */

static setup plain(dt_dtype dtype, mask_kind mask) {
    return (setup){.dtype = dtype,
                   .batch = 1,
                   .heads = 1,
                   .l = 3,
                   .s = 5,
                   .e = 4,
                   .ev = 4,
                   .mask = mask,
                   .layout = KC_REVERSED_DIMS};
}

START_TEST(a_row_without_keys_is_zero) {
    for (int added = 0; added < 2; added++) {
        setup s = plain(dtypes[_i], added ? MASK_ADDED : MASK_BOOL);
        dt_call call;
        sdpa_call(&call, &s);
        for (int64_t j = 0; j < 5; j++) {
            kc_store(call.operands[4], at4(call.operands[4], 0, 0, 0, j), added ? 0.0 : 1.0);
            kc_store(call.operands[4], at4(call.operands[4], 0, 0, 1, j),
                     added ? -(double)INFINITY : 0.0);
        }
        kc_run(&call, 1, false);
        for (int64_t e = 0; e < 4; e++)
            ck_assert(kc_load(call.operands[0], at4(call.operands[0], 0, 0, 1, e)) == 0);
        check_call(&call, "masked row");
        dt_call_fini(&call);
    }
}
END_TEST

/* NaN at a key, masked or not, makes the rows NaN; NaN at a value too (its weight of 0 times NaN).
 */
START_TEST(nan_passes_masks) {
    for (int turn = 0; turn < 4; turn++) {
        setup s = plain(dtypes[_i], turn & 1 ? MASK_ADDED : MASK_BOOL);
        dt_call call;
        sdpa_call(&call, &s);
        dt_tensor *poisoned = call.operands[turn & 2 ? 3 : 2];
        kc_store(poisoned, at4(poisoned, 0, 0, 2, 1), (double)NAN);
        for (int64_t i = 0; i < 3; i++)
            kc_store(call.operands[4], at4(call.operands[4], 0, 0, i, 2),
                     turn & 1 ? -(double)INFINITY : 0.0);
        kc_run(&call, 1, false);
        for (int64_t i = 0; i < 3; i++)
            ck_assert(isnan(kc_load(call.operands[0], at4(call.operands[0], 0, 0, i, 1))));
        dt_call_fini(&call);
    }
}
END_TEST

/* A score of +inf leaves inf - inf, NaN; one of -inf is as good as masked. */
START_TEST(infinite_scores) {
    setup s = plain(dtypes[_i], NO_MASK);
    dt_call call;
    sdpa_call(&call, &s);
    dt_tensor *q = call.operands[1], *k = call.operands[2];
    for (int64_t e = 0; e < 4; e++)
        for (int64_t i = 0; i < 3; i++) kc_store(q, at4(q, 0, 0, i, e), i == 0 ? 1.0 : -1.0);
    kc_store(k, at4(k, 0, 0, 2, 0), (double)INFINITY);
    kc_run(&call, 1, false);
    ck_assert(isnan(kc_load(call.operands[0], at4(call.operands[0], 0, 0, 0, 0))));
    ck_assert(!isnan(kc_load(call.operands[0], at4(call.operands[0], 0, 0, 1, 0))));
    check_call(&call, "infinite");
    dt_call_fini(&call);
}
END_TEST

START_TEST(parts_change_no_bit) {
    setup s = {.dtype = dtypes[_i],
               .batch = 2,
               .heads = 2,
               .l = 130,
               .s = 70,
               .e = 16,
               .ev = 16,
               .mask = CAUSAL};
    dt_call call;
    sdpa_call(&call, &s);
    dt_tensor *out = call.operands[0];
    size_t bytes = (size_t)out->numel * dt_dtype_size(s.dtype);
    void *first = malloc(bytes);
    for (int parts = 1; parts <= 7; parts++) {
        memset(dt_tensor_data(out), 0x55, bytes);
        kc_run(&call, parts, parts > 3);
        if (parts == 1)
            memcpy(first, dt_tensor_data(out), bytes);
        else
            ck_assert_mem_eq(first, dt_tensor_data(out), bytes);
    }
    free(first);
    ck_assert_int_eq(call.kernel->parts(&call, 1), 1);
    ck_assert_int_ge(call.kernel->parts(&call, 4), 1);
    dt_call_fini(&call);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("attention");
    TCase *tc = tcase_create("attention");
    tcase_set_tags(tc, "threadless");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, every_type_mask_and_layout, 0, 4);
    tcase_add_loop_test(tc, long_sequences, 0, 4);
    tcase_add_test(tc, no_batch_dims);
    tcase_add_loop_test(tc, a_row_without_keys_is_zero, 0, 4);
    tcase_add_loop_test(tc, nan_passes_masks, 0, 4);
    tcase_add_loop_test(tc, infinite_scores, 0, 4);
    suite_add_tcase(suite, tc);

    tc = tcase_create("threads");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, parts_change_no_bit, 0, 4);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
