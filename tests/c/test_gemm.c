/* Tests of kernels/cpu/gemm.c and the tiles under it (simd/gemm_*): packing, single panels,
 * scratch, and that cutting into blocks changes no bit. test_matmul.c has products of all types and
 * layouts. */
#include "kernel_call.h"
#include "kernels/cpu/gemm.h"

static const dt_dtype sums[] = {DT_F32, DT_F64};

static double get(dt_dtype t, const void *p, int64_t i) {
    return t == DT_F32 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}
static void set(dt_dtype t, void *p, int64_t i, double x) {
    if (t == DT_F32)
        ((float *)p)[i] = (float)x;
    else
        ((double *)p)[i] = x;
}
static void *numbers(dt_dtype t, int64_t n) {
    void *p = malloc((size_t)n * dt_dtype_size(t));
    for (int64_t i = 0; i < n; i++) set(t, p, i, kc_number(t));
    return p;
}

START_TEST(packing) {
    dt_dtype t = sums[_i];
    KC_FOR_EACH_ISA(level) {
        const dt__gemm_ops *ops = dt__gemm_ops_now(t);
        for (int64_t n = 0; n <= 70; n += 7)
            for (int64_t k = 0; k <= 9; k++)
                for (int kind = 0; kind < 3; kind++) {
                    int64_t sbk = kind == 0 ? n + 1 : kind == 1 ? 1 : 2;
                    int64_t sbn = kind == 0 ? 1 : kind == 1 ? k + 2 : 2 * k + 3;
                    void *b = numbers(t, 2 * (n + 2) * (k + 4) + n * (2 * k + 3));
                    int64_t panels = (n + ops->width - 1) / ops->width, step = k * ops->width;
                    void *to = numbers(t, panels * step + 1);
                    double guard = get(t, to, panels * step);
                    ops->pack(k, n, b, sbk, sbn, to, step);
                    int wrong = get(t, to, panels * step) != guard;
                    for (int64_t j = 0; j < panels * ops->width; j++)
                        for (int64_t p = 0; p < k; p++) {
                            double want = j < n ? get(t, b, p * sbk + j * sbn) : 0;
                            int64_t at = j / ops->width * step + p * ops->width + j % ops->width;
                            wrong += get(t, to, at) != want;
                        }
                    ck_assert_int_eq(wrong, 0);
                    free(b);
                    free(to);
                }
    }
}
END_TEST

/* A panel writes nc columns and nothing beside them, and goes on from what is there. */
START_TEST(panels_keep_to_their_columns) {
    enum { K = 5, LDC = 40 };
    dt_dtype t = sums[_i];
    KC_FOR_EACH_ISA(level) {
        const dt__gemm_ops *ops = dt__gemm_ops_now(t);
        for (int64_t m = 1; m <= 30; m++)
            for (int nc = 1; nc <= ops->width; nc += 3) {
                void *a = numbers(t, m * K), *b = numbers(t, K * ops->width),
                     *c = numbers(t, m * LDC);
                void *before = malloc((size_t)(m * LDC) * dt_dtype_size(t));
                memcpy(before, c, (size_t)(m * LDC) * dt_dtype_size(t));
                bool first = nc % 2;
                ops->panel(m, K, a, K, b, ops->width, c, LDC, nc, first);
                int wrong = 0;
                for (int64_t i = 0; i < m; i++)
                    for (int j = 0; j < LDC; j++) {
                        double want = first && j < nc ? 0 : get(t, before, i * LDC + j);
                        for (int p = 0; p < K && j < nc; p++)
                            want += get(t, a, i * K + p) * get(t, b, p * ops->width + j);
                        double off = fabs(get(t, c, i * LDC + j) - want);
                        wrong += j < nc ? !(off < 1e-5) : off != 0;
                    }
                ck_assert_int_eq(wrong, 0);
                free(a), free(b), free(c), free(before);
            }
    }
}
END_TEST

static void run_job(dt__gemm_job *j) {
    size_t bytes = dt__gemm_scratch(j);
    unsigned char *scratch = dt_bytes_alloc(bytes + 64);
    memset(scratch, 0xee, bytes + 64);
    dt__gemm_run(j, scratch);
    for (int i = 0; i < 64; i++) ck_assert_int_eq(scratch[bytes + (size_t)i], 0xee);
    dt_bytes_free(scratch, bytes + 64);
}

/* One large product, and the same element by element, row by row and column by column: equal bits.
 */
START_TEST(blocks_change_no_bit) {
    enum { M = 400, N = 420, K = 600 };
    dt_dtype t = sums[_i];
    size_t item = dt_dtype_size(t);
    void *a = numbers(t, M * K), *b = numbers(t, K * N), *c = numbers(t, M * N),
         *d = numbers(t, M * N);
    dt__gemm_job whole = {.dtype = t,
                          .m = M,
                          .n = N,
                          .k = K,
                          .a = a,
                          .sam = K,
                          .sak = 1,
                          .b = b,
                          .sbk = N,
                          .sbn = 1,
                          .c = c,
                          .scm = N,
                          .scn = 1,
                          .end = {.alpha = 1}};
    run_job(&whole);
    for (int64_t i = 0; i < M; i += 37)
        for (int64_t n = 0; n < N; n += 41) {
            double want = 0;
            for (int64_t p = 0; p < K; p++) want += get(t, a, i * K + p) * get(t, b, p * N + n);
            ck_assert_double_eq_tol(get(t, c, i * N + n), want, (t == DT_F32 ? 1e-4 : 1e-12));
        }
    for (int turn = 0; turn < 60; turn++) {
        int64_t i = turn * 397 % M, n = turn * 211 % N;
        dt__gemm_job piece = whole;
        piece.m = turn % 3 ? 1 : M - i;
        piece.n = turn % 2 ? 1 : N - n;
        piece.a = (char *)a + (size_t)(i * K) * item;
        piece.b = (char *)b + (size_t)n * item;
        piece.c = (char *)d + (size_t)(i * N + n) * item;
        run_job(&piece);
        for (int64_t r = 0; r < piece.m; r++) {
            size_t at = (size_t)((i + r) * N + n) * item;
            ck_assert_mem_eq((char *)c + at, (char *)d + at, (size_t)piece.n * item);
        }
    }
    free(a), free(b), free(c), free(d);
}
END_TEST

START_TEST(gathering) {
    dt_f16 half[3000];
    float wide[1500];
    for (int i = 0; i < 3000; i++) half[i] = dt_f32_to_f16((float)(i % 2000));
    dt__gemm_gather(1500, wide, DT_F32, half, 2, DT_F16);
    for (int i = 0; i < 1500; i++) ck_assert(wide[i] == (float)(2 * i % 2000));
    dt__gemm_gather(1500, wide, DT_F32, half, 0, DT_F16);
    ck_assert(wide[1499] == 0);
}
END_TEST

START_TEST(costs_grow) {
    ck_assert(dt__gemm_cost_ns(DT_F32, 10, 10, 10) < dt__gemm_cost_ns(DT_F32, 100, 100, 100));
    ck_assert(dt__gemm_cost_ns(DT_F32, 500, 500, 500) < dt__gemm_cost_ns(DT_F64, 500, 500, 500));
    ck_assert(dt__gemm_cost_ns(DT_I64, 0, 0, 0) > 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("gemm");
    TCase *tc = tcase_create("gemm");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, packing, 0, 2);
    tcase_add_loop_test(tc, panels_keep_to_their_columns, 0, 2);
    tcase_add_loop_test(tc, blocks_change_no_bit, 0, 2);
    tcase_add_test(tc, gathering);
    tcase_add_test(tc, costs_grow);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
