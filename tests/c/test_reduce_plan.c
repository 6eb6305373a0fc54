/* test_reduce_plan.c: walks of kept and reduced dims, against offsets computed dim by dim. */
#include "kernels/cpu/reduce_plan.h"

#include "tests/c/op_support.h"

/* Byte offset of number `at` over the dims of `mask`, row-major. */
static int64_t naive_offset(const dt_tensor *t, uint32_t mask, int64_t at) {
    int64_t offset = 0;
    for (int d = t->rank - 1; d >= 0; d--) {
        if (!(mask >> d & 1)) continue;
        offset += at % t->shape[d] * t->strides[d];
        at /= t->shape[d];
    }
    return offset * (int64_t)dt_dtype_size((dt_dtype)t->dtype);
}

static void check_plan(const dt_tensor *t, uint32_t mask) {
    dt__reduce_plan plan;
    dt__reduce_plan_init(&plan, t, mask);
    int64_t outputs = 1, elements = 1;
    for (int d = 0; d < t->rank; d++) *(mask >> d & 1 ? &elements : &outputs) *= t->shape[d];
    ck_assert_int_eq(plan.outputs, outputs);
    ck_assert_int_eq(plan.elements, elements);
    if (t->numel == 0) return;
    for (int64_t o = 0; o < outputs; o++)
        EXPECT(dt__reduce_plan_base(&plan, o) - (char *)dt_tensor_data(t) ==
                   naive_offset(t, ~mask, o),
               "output %d", (int)o);
    for (int64_t e = 0; e < elements; e++)
        EXPECT(dt__reduce_plan_offset(&plan, e) == naive_offset(t, mask, e), "element %d", (int)e);
    double got[64];
    for (int64_t o = 0; o < outputs; o++)
        for (int64_t from = 0; from < elements; from += 5) {
            int64_t n = elements - from < 13 ? elements - from : 13;
            const char *base = dt__reduce_plan_base(&plan, o);
            const double *x = dt__reduce_plan_gather(&plan, base, from, n, DT_F64, got);
            for (int64_t k = 0; k < n; k++) {
                const void *at = base + naive_offset(t, mask, from + k);
                EXPECT(x[k] == dt_scalar_f64(dt_scalar_load((dt_dtype)t->dtype, at)), "gather");
            }
        }
}

START_TEST(every_mask_of_every_layout) {
    const dt_dims shapes[] = {SHAPE(3, 4, 2, 5), SHAPE(1, 7, 1), SHAPE(6),
                              SHAPE(2, 0, 3),    SCALAR_SHAPE,   SHAPE(1, 1)};
    const dt_dtype dtypes[] = {DT_F64, DT_F32, DT_I16, DT_U8};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int how = 0; how < LAYOUTS; how++)
            for (int k = 0; k < 4; k++) {
                dt_tensor *t = tensor_laid_out(dtypes[k], shapes[s], (layout)how);
                fill_random(t, s + 1);
                for (uint32_t mask = 0; mask < 1u << t->rank; mask++) check_plan(t, mask);
                dt_tensor_release(t);
            }
}
END_TEST

START_TEST(expanded_dims) {
    dt_tensor *base = tensor_new(DT_F32, SHAPE(5));
    fill_random(base, 9);
    dt_tensor *t = view_of(base, SHAPE(3, 5, 4), (int64_t[]){0, 1, 0}, 0);
    for (uint32_t mask = 0; mask < 8; mask++) check_plan(t, mask);
    dt_tensor_release(t);
    dt_tensor_release(base);
}
END_TEST

START_TEST(even_steps_are_merged) {
    dt_tensor *t = tensor_new(DT_F32, SHAPE(2, 3, 4, 5));
    dt__reduce_plan plan;
    dt__reduce_plan_init(&plan, t, 0xf);
    ck_assert_int_eq(plan.reduced.rank, 1);
    ck_assert_int_eq(plan.kept.rank, 1);
    dt__reduce_plan_init(&plan, t, 3); /* leading dims: columns of 20 */
    ck_assert_int_eq(plan.reduced.rank, 1);
    ck_assert(plan.columns);
    ck_assert_int_eq(plan.line, 20);
    dt__reduce_plan_init(&plan, t, 0xc);
    ck_assert(!plan.columns);
    dt__reduce_plan_init(&plan, t, 5);
    ck_assert_int_eq(plan.reduced.rank, 2);
    dt_tensor_release(t);
}
END_TEST

START_TEST(no_copy_where_none_is_needed) {
    dt_tensor *t = tensor_new(DT_F32, SHAPE(4, 100));
    dt__reduce_plan plan;
    dt__reduce_plan_init(&plan, t, 2);
    float buffer[100];
    const char *base = dt__reduce_plan_base(&plan, 2);
    const void *got = dt__reduce_plan_gather(&plan, base, 30, 50, DT_F32, buffer);
    ck_assert_ptr_eq(got, (float *)dt_tensor_data(t) + 230);
    dt_tensor_release(t);
}
END_TEST

/* Longer than the buffer in which strided elements are converted. */
START_TEST(long_gathers) {
    dt_tensor *t = tensor_laid_out(DT_I32, SHAPE(3, 1700), SLICED);
    for (int64_t i = 0; i < t->numel; i++) set_value(t, i, (double)i);
    dt__reduce_plan plan;
    dt__reduce_plan_init(&plan, t, 3);
    static double got[5100];
    const double *x = dt__reduce_plan_gather(&plan, plan.data, 0, 5100, DT_F64, got);
    for (int k = 0; k < 5100; k++) EXPECT(x[k] == k, "element %d", k);
    x = dt__reduce_plan_gather(&plan, plan.data, 1234, 3000, DT_F64, got);
    for (int k = 0; k < 3000; k++) EXPECT(x[k] == k + 1234, "element %d", k);
    dt_tensor_release(t);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("reduce_plan");
    TEST_CASE(suite, "plan", every_mask_of_every_layout, expanded_dims, even_steps_are_merged,
              no_copy_where_none_is_needed, long_gathers);
    return test_run(suite);
}
