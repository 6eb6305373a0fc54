/* test_shard_view.c: which placements views take and give; that the parts are right is seen by
 * tests/python/test_shard_view.py. */
#include "tests/c/shard_support.h"

/* The view of a tensor of that shape, placed so on two mesh dims, which stays what it is. */
static void view_gives(const char *text, const dt_mesh *mesh, const dt_placement *p, dt_dims shape,
                       dt_op_id id, int nargs, const dt_arg *more) {
    asked a;
    ck_assert_int_eq(mesh->rank, 2);
    dt_arg args[DT_ARGS_MAX] = {arg_tensor(dist_of(mesh, p, shape))};
    memcpy(args + 1, more, sizeof *more * (size_t)nargs);
    ask(&a, NULL, mesh, id, nargs + 1, args);
    for (int m = 0; m < 2 && a.status == DT_OK; m++)
        ck_assert(dt_placement_equal(a.chosen[2 * m], p[m]));
    assert_gives(&a, text);
    forget(&a);
}
#define VIEW(text, mesh, shape, a, b, id, ...)                                                     \
    view_gives(text, mesh, (const dt_placement[]){a, b}, shape, id, ARGS(__VA_ARGS__))

START_TEST(lenses) {
    const dt_mesh *m = mesh_of(2, 2);
    const dt_dims x = SHAPE(4, 1, 6);
    VIEW("[S2, R]", m, x, SHARD(0), REPLICATE, DT_OP_transpose, arg_int(0), arg_int(2));
    VIEW("[S1, S2]", m, x, SHARD(0), SHARD(1), DT_OP_permute, arg_dims(2, 0, 1));
    VIEW("[S2, S0]", m, x, SHARD(0), SHARD(1), DT_OP_movedim, arg_dims(0), arg_dims(2));
    VIEW("[S0, S1]", m, x, SHARD(0), SHARD(2), DT_OP_squeeze, arg_none());
    VIEW("refused", m, x, SHARD(1), REPLICATE, DT_OP_squeeze, arg_none());
    VIEW("[P(max), S3]", m, x, PARTIAL(MAX), SHARD(2), DT_OP_unsqueeze, arg_int(0));
    VIEW("[S1, S3]", m, x, SHARD(0), SHARD(2), DT_OP_expand, arg_dims(3, 4, 5, 6));
    VIEW("refused", m, x, SHARD(1), REPLICATE, DT_OP_expand, arg_dims(4, 5, 6));
    VIEW("[S1, R]", m, x, SHARD(2), REPLICATE, DT_OP_select, arg_int(0), arg_int(1));
    VIEW("refused", m, x, SHARD(0), REPLICATE, DT_OP_select, arg_int(0), arg_int(3));
    VIEW("[S2, R]", m, x, SHARD(2), REPLICATE, DT_OP_narrow, arg_int(0), arg_int(1), arg_int(2));
    VIEW("refused", m, x, SHARD(0), REPLICATE, DT_OP_narrow, arg_int(0), arg_int(0), arg_int(2));
    VIEW("[S0, R]", m, x, SHARD(0), REPLICATE, DT_OP_narrow, arg_int(0), arg_int(1), arg_int(2));
    VIEW("[S0, R]", m, x, SHARD(0), REPLICATE, DT_OP_narrow, arg_int(0), arg_int(0), arg_int(3));
    VIEW("[S0, S0]", m, x, SHARD(0), SHARD(0), DT_OP_narrow, arg_int(0), arg_int(0), arg_int(3));
    VIEW("refused", m, x, SHARD(0), SHARD(0), DT_OP_narrow, arg_int(0), arg_int(1), arg_int(3));
}
END_TEST

START_TEST(order) {
    const dt_mesh *m = mesh_of(2, 2);
    VIEW("[S0, S1]", m, SHAPE(4, 6), SHARD(0), SHARD(0), DT_OP_view, arg_dims(2, 2, 6));
    VIEW("[S0, S0]", m, SHAPE(2, 2, 6), SHARD(0), SHARD(1), DT_OP_view, arg_dims(-1));
    VIEW("[S0, S0]", m, SHAPE(8, 3), SHARD(0), SHARD(0), DT_OP_flatten, arg_int(0), arg_int(-1));
    VIEW("refused", m, SHAPE(6, 3), SHARD(0), SHARD(0), DT_OP_flatten, arg_int(0), arg_int(-1));
    VIEW("refused", m, SHAPE(4, 6), SHARD(1), REPLICATE, DT_OP_view, arg_dims(24));
    VIEW("[S1, P(sum)]", m, SHAPE(6, 4), SHARD(1), PARTIAL(SUM), DT_OP_view, arg_dims(6, 4, 1));
    VIEW("[S0, R]", m, SHAPE(6, 1), SHARD(1), REPLICATE, DT_OP_view, arg_dims(1, 6));
    VIEW("[S0, R]", m, SHAPE(0, 4), SHARD(0), REPLICATE, DT_OP_reshape, arg_dims(0, 3));
    VIEW("[R, R]", m, SHAPE(0, 4), SHARD(1), REPLICATE, DT_OP_reshape, arg_dims(3, 0));
    VIEW("[S1, R]", m, SHAPE(3, 8), SHARD(1), REPLICATE, DT_OP_unflatten, arg_int(1),
         arg_dims(4, -1));
}
END_TEST

/* [R, S1] of (4, 6) could be flattened by four devices that keep a row each. */
START_TEST(replicate_is_not_cut) {
    const dt_mesh *m = mesh_of(4, 2);
    VIEW("[S0, S0]", m, SHAPE(4, 6), SHARD(0), SHARD(1), DT_OP_view, arg_dims(24));
    VIEW("refused", m, SHAPE(4, 6), REPLICATE, SHARD(1), DT_OP_view, arg_dims(24));
}
END_TEST

START_TEST(another_shape) {
    const dt_mesh *mesh = mesh_of(2, 0);
    const dt_placement s[] = {SHARD(0)}, p[] = {PARTIAL(SUM)};
    CHOOSES("[S0, P(sum), S0]", mesh, DT_OP_expand_as, arg_tensor(dist_of(mesh, s, SHAPE(4, 1))),
            arg_tensor(dist_of(mesh, p, SHAPE(4, 3))));
}
END_TEST

int main(void) {
    dt_device_register_cpu(&dt_cpu_device);
    Suite *suite = suite_create("shard_view");
    TEST_CASE(suite, "shard_view", lenses, order, replicate_is_not_cut, another_shape);
    return test_run(suite);
}
