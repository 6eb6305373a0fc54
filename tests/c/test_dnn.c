/* Tests of kernels/cpu/dnn.c: products by oneDNN beside loops in double, on one thread each, with
 * the user's OpenMP settings left alone. Without fast code for a type on this CPU its tests are
 * empty. */
#include <dirent.h>
#include <dlfcn.h>

#include "kernel_call.h"
#include "kernels/cpu/dnn.h"

static const dt_dtype dtypes[] = {DT_F32, DT_BF16, DT_F16};

typedef struct operands {
    dt_tensor *a, *b, *c, *bias;
    dt__dnn_product product;
} operands;

static operands operands_of(dt_dtype dtype, int64_t m, int64_t n, int64_t k, int layout,
                            bool bias) {
    int64_t a[2] = {m, k}, b[2] = {k, n}, c[2] = {m, n}, row[1] = {n};
    operands o = {.a = kc_tensor(dtype, 2, a, layout & 1 ? KC_TRANSPOSED : KC_PLAIN),
                  .b = kc_tensor(dtype, 2, b, layout & 2 ? KC_TRANSPOSED : KC_PLAIN),
                  .c = kc_tensor(dtype, 2, c, KC_PLAIN)};
    if (bias) o.bias = kc_tensor(dtype, 1, row, KC_PLAIN);
    o.product = (dt__dnn_product){.m = m,
                                  .n = n,
                                  .k = k,
                                  .sam = o.a->strides[0],
                                  .sak = o.a->strides[1],
                                  .sbk = o.b->strides[0],
                                  .sbn = o.b->strides[1],
                                  .scm = o.c->strides[0],
                                  .dtype = dtype,
                                  .bias = bias};
    return o;
}

static void operands_free(operands *o) {
    dt_tensor_release(o->a);
    dt_tensor_release(o->b);
    dt_tensor_release(o->c);
    if (o->bias) dt_tensor_release(o->bias);
}

static dt_status compute(const operands *o) {
    return dt__dnn_run(&o->product, dt_tensor_data(o->a), dt_tensor_data(o->b),
                       o->bias ? dt_tensor_data(o->bias) : NULL, dt_tensor_data(o->c));
}

/* The number of elements that are wrong. */
static int wrong(const operands *o) {
    double rounding = o->product.dtype == DT_F32 ? 1e-7 : o->product.dtype == DT_F16 ? 5e-4 : 4e-3;
    int count = 0;
    for (int64_t i = 0; i < o->product.m; i++)
        for (int64_t j = 0; j < o->product.n; j++) {
            double want = o->bias ? kc_load(o->bias, o->bias->offset + j) : 0, size = fabs(want);
            for (int64_t p = 0; p < o->product.k; p++) {
                double x = kc_load(o->a, kc_at2(o->a, i, p)) * kc_load(o->b, kc_at2(o->b, p, j));
                want += x;
                size += fabs(x);
            }
            double got = kc_load(o->c, kc_at2(o->c, i, j));
            if (!(fabs(got - want) <= rounding * fabs(want) + 4e-7 * size + 1e-30)) count++;
        }
    return count;
}

START_TEST(values) {
    dt_dtype dtype = dtypes[_i];
    if (!dt__dnn_has(dtype)) return;
    for (int layout = 0; layout < 4; layout++)
        for (int bias = 0; bias < 2; bias++)
            for (int size = 1; size < 70; size = size * 3 + 1) {
                operands o = operands_of(dtype, size, 65 - size / 2, 3 * size, layout, bias);
                dt_status status = compute(&o);
                if (status != DT_E_NOT_IMPLEMENTED) {
                    ck_assert_msg(status == DT_OK, "%s", dt_error_text());
                    ck_assert_int_eq(wrong(&o), 0);
                }
                operands_free(&o);
            }
}
END_TEST

/* More shapes than are kept, each twice: what was thrown away is compiled again. */
START_TEST(many_shapes) {
    if (!dt__dnn_has(DT_F32)) return;
    for (int turn = 0; turn < 2; turn++)
        for (int64_t m = 1; m <= 40; m++) {
            operands o = operands_of(DT_F32, m, 16, 8, 0, false);
            ck_assert_msg(compute(&o) == DT_OK, "%s", dt_error_text());
            ck_assert_int_eq(wrong(&o), 0);
            operands_free(&o);
        }
}
END_TEST

static void *worker(void *failures) {
    for (int i = 0; i < 12; i++) {
        operands o = operands_of(DT_F32, 10 + i % 3, 32, 24, i % 4, true);
        if (compute(&o) != DT_OK || wrong(&o)) atomic_fetch_add((_Atomic(int) *)failures, 1);
        operands_free(&o);
    }
    return NULL;
}

START_TEST(threads_come_and_go) {
    if (!dt__dnn_has(DT_F32)) return;
    _Atomic(int) failures = 0;
    for (int round = 0; round < 3; round++) {
        pthread_t id[3];
        for (int i = 0; i < 3; i++)
            ck_assert_int_eq(pthread_create(&id[i], NULL, worker, &failures), 0);
        for (int i = 0; i < 3; i++) pthread_join(id[i], NULL);
    }
    ck_assert_int_eq(failures, 0);
}
END_TEST

static int thread_count(void) {
    DIR *dir = opendir("/proc/self/task");
    int count = 0;
    while (dir && readdir(dir)) count++;
    if (dir) closedir(dir);
    return count;
}

START_TEST(openmp_is_left_alone) {
    void (*set)(int) = (void (*)(int))(uintptr_t)dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    int (*get)(void) = (int (*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    ck_assert(set && get);
    set(5);
    int before = thread_count();
    if (dt__dnn_has(DT_F32)) {
        operands o = operands_of(DT_F32, 300, 300, 64, 0, false);
        ck_assert_msg(compute(&o) == DT_OK, "%s", dt_error_text());
        ck_assert_int_eq(wrong(&o), 0);
        operands_free(&o);
    }
    ck_assert_int_eq(get(), 5);
    ck_assert_int_eq(thread_count(), before);
}
END_TEST

START_TEST(types_it_has_not) {
    ck_assert(!dt__dnn_has(DT_I64));
    ck_assert(!dt__dnn_has(DT_BOOL));
    ck_assert(!dt__dnn_has(DT_F64));
    char version[64];
    ck_assert_int_eq(strncmp(dt_dnn_version(version, sizeof version), "oneDNN 3.", 9), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("dnn");
    TCase *tc = tcase_create("dnn");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, values, 0, 3);
    tcase_add_test(tc, many_shapes);
    tcase_add_test(tc, threads_come_and_go);
    tcase_add_test(tc, openmp_is_left_alone);
    tcase_add_test(tc, types_it_has_not);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
