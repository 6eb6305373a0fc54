/* test_lens.c: what a lens shows of a box, against looking at every element. */
#include "runtime/lens.h"
#include "tests/c/mesh_support.h"

/* For each element of the view: whether its source lies in the box. */
static bool fits_by_looking(const dt_lens *lens, int in_rank, const dt_box *in, const dt_box *out) {
    int64_t at[DT_RANK_MAX] = {0}, total = 1;
    for (int e = 0; e < lens->rank; e++) total *= lens->shape[e];
    for (int64_t k = 0; k < total; k++) {
        int64_t rest = k;
        bool wanted = true, shown = true;
        for (int e = lens->rank - 1; e >= 0; e--) {
            at[e] = rest % lens->shape[e];
            rest /= lens->shape[e];
            wanted = wanted && at[e] >= out->start[e] && at[e] < out->start[e] + out->size[e];
        }
        for (int d = 0; d < in_rank; d++) {
            int64_t place = lens->start[d];
            for (int e = 0; e < lens->rank; e++) {
                if (lens->from[e] == d) place += at[e] * lens->step[e];
                if (lens->also == d && e == lens->rank - 1) place += at[e];
            }
            shown = shown && place >= in->start[d] && place < in->start[d] + in->size[d];
        }
        if (wanted != shown) return false;
    }
    return true;
}

/* All boxes of the input against all boxes of the view. */
static void compare(dt_op_id id, int nargs, const dt_arg *args,
                    dt_status (*lens_of)(const dt_op_call *, dt_lens *)) {
    dt_op_call call;
    op_prepare(&call, id, nargs, args);
    const dt_tensor *t = call.args[0].t;
    dt_lens lens;
    ck_assert_ok(lens_of(&call, &lens));
    ck_assert_int_eq(t->rank, 2);
    ck_assert_int_le(lens.rank, 2);
    int fitting = 0;
    for (int a = 0; a < 4 * 4 * 4 * 4; a++) {
        dt_box in = {.start = {a % 4, a / 4 % 4}, .size = {a / 16 % 4, a / 64}};
        for (int b = 0; b < 4 * 4 * 4 * 4; b++) {
            dt_box out = {.start = {b % 4, b / 4 % 4}, .size = {b / 16 % 4, b / 64}};
            bool inside = true;
            for (int e = 0; e < lens.rank; e++)
                inside = inside && out.start[e] + out.size[e] <= lens.shape[e];
            if (!inside) continue;
            bool fits = dt_lens_fits(&lens, 2, &in, &out);
            ck_assert_int_eq(fits, fits_by_looking(&lens, 2, &in, &out));
            fitting += fits;
        }
    }
    ck_assert_int_gt(fitting, 0);
    dt_tensor_release(call.args[0].t);
    dt_op_call_clear(&call);
}
#define COMPARE(id, lens_of, ...) compare(id, ARGS(__VA_ARGS__), lens_of)
#define INPUT(...) arg_tensor(tensor_new(DT_F32, SHAPE(__VA_ARGS__)))

START_TEST(boxes_are_those_of_the_elements) {
    COMPARE(DT_OP_transpose, dt_lens_transpose, INPUT(2, 3), arg_int(0), arg_int(1));
    COMPARE(DT_OP_t, dt_lens_t, INPUT(3, 0));
    COMPARE(DT_OP_select, dt_lens_select, INPUT(3, 3), arg_int(0), arg_int(1));
    COMPARE(DT_OP_select, dt_lens_select, INPUT(3, 2), arg_int(1), arg_int(-1));
    COMPARE(DT_OP_narrow, dt_lens_narrow, INPUT(3, 2), arg_int(0), arg_int(1), arg_int(2));
    COMPARE(DT_OP_narrow, dt_lens_narrow, INPUT(3, 2), arg_int(0), arg_int(3), arg_int(0));
    COMPARE(DT_OP_slice__dim, dt_lens_slice, INPUT(4, 2), arg_int(0), arg_int(1), arg_int(4),
            arg_int(2));
    COMPARE(DT_OP_slice__dim, dt_lens_slice, INPUT(5, 3), arg_int(0), arg_int(0), arg_int(5),
            arg_int(3));
    COMPARE(DT_OP_expand, dt_lens_expand, INPUT(1, 3), arg_dims(3, 3));
    COMPARE(DT_OP_expand, dt_lens_expand, INPUT(1, 3), arg_dims(0, 3));
    COMPARE(DT_OP_expand, dt_lens_expand, INPUT(1, 1), arg_dims(1, 3));
    COMPARE(DT_OP_squeeze, dt_lens_squeeze, INPUT(1, 3), arg_none());
    COMPARE(DT_OP_squeeze, dt_lens_squeeze, INPUT(1, 1), arg_none());
    COMPARE(DT_OP_diagonal, dt_lens_diagonal, INPUT(3, 3), arg_int(0), arg_int(0), arg_int(1));
    COMPARE(DT_OP_diagonal, dt_lens_diagonal, INPUT(3, 3), arg_int(1), arg_int(0), arg_int(1));
    COMPARE(DT_OP_diagonal, dt_lens_diagonal, INPUT(3, 2), arg_int(1), arg_int(1), arg_int(0));
    COMPARE(DT_OP_diagonal, dt_lens_diagonal, INPUT(3, 2), arg_int(-4), arg_int(0), arg_int(1));
}
END_TEST

START_TEST(a_step_past_the_end) {
    dt_op_call call;
    dt_lens lens;
    dt_tensor *t = tensor_new(DT_F32, SHAPE(3));
    const dt_arg args[] = {arg_tensor(t), arg_int(0), arg_int(1), arg_int(INT64_MAX),
                           arg_int(INT64_MAX)};
    op_prepare(&call, DT_OP_slice__dim, 5, args);
    ck_assert_ok(dt_lens_slice(&call, &lens));
    ck_assert_int_eq(lens.shape[0], 1);
    ck_assert_int_eq(lens.start[0], 1);
    dt_op_call_clear(&call);
    dt_tensor_release(t);
}
END_TEST

int main(void) {
    dt_device_register_cpu(&dt_cpu_device);
    Suite *suite = suite_create("lens");
    TEST_CASE(suite, "lens", boxes_are_those_of_the_elements, a_step_past_the_end);
    return test_run(suite);
}
