/* test_place.c: one call on a mesh: parts, changed inputs, targets, failures, memory. */
#include "futures/place.h"
#include "tests/c/dispatch_support.h"
#include "tests/c/mesh_support.h"

static double part_value(const dt_tensor *t, int part, int64_t i) {
    return (double)value_at(dt_dist_of(t)->parts[part], i);
}

START_TEST(each_device_computes_its_part) {
    device();
    const dt_mesh *mesh = mesh_of(2, 0);
    const dt_placement s[] = {SHARD(0)}, r[] = {REPLICATE};
    dt_tensor *a = dist_of(mesh, s, SHAPE(3)), *b = dist_of(mesh, r, SHAPE(3)), *c = NULL;
    ck_assert_ok(add_new(&c, a, b));
    ck_assert(dt_tensor_is_dist(c));
    ck_assert(dt_placement_is_shard(dt_dist_of(c)->placements[0], 0));
    ck_assert(part_value(c, 0, 1) == 2);   /* 1 + 1 */
    ck_assert(part_value(c, 1, 0) == 102); /* 100 + 2, of b cut to its last row */
    dt_tensor_release(a);
    dt_tensor_release(b);
    dt_tensor_release(c);
}
END_TEST

/* arange of Partial(sum): a number counts once, at coordinate 0. */
START_TEST(a_number_joins_a_sum_once) {
    device();
    const dt_mesh *mesh = mesh_of(2, 2);
    const dt_placement p[] = {PARTIAL(SUM), REPLICATE}, r[] = {REPLICATE, REPLICATE};
    dt_tensor *a = dist_of(mesh, p, SHAPE(2)), *b = dist_of(mesh, r, SHAPE(2)), *c, *d;
    ck_assert_ok(DO(&c, DT_OP_add, arg_tensor(a), arg_integer(10), arg_integer(1)));
    ck_assert_ok(DO(&d, DT_OP_add, arg_tensor(b), arg_tensor(a), arg_integer(1)));
    for (int k = 0; k < 4; k++) {
        ck_assert(part_value(c, k, 1) == 100 * k + 1 + (k < 2 ? 10 : 0));
        ck_assert(part_value(d, k, 1) == 100 * k + 1 + (k < 2 ? 1 : 0));
    }
    dt_tensor_release(a);
    dt_tensor_release(b);
    dt_tensor_release(c);
    dt_tensor_release(d);
}
END_TEST

START_TEST(targets_keep_their_placements) {
    device();
    const dt_mesh *mesh = mesh_of(2, 0);
    const dt_placement s[] = {SHARD(0)}, r[] = {REPLICATE};
    dt_tensor *a = dist_of(mesh, s, SHAPE(3)), *b = dist_of(mesh, r, SHAPE(3));
    ck_assert_ok(add_into(a, b));
    ck_assert(part_value(a, 1, 0) == 102);
    ck_assert_int_eq(add_into(b, a), DT_E_PLACEMENT);
    ck_assert(strstr(dt_error_text(), "the result must have [R]") != NULL);
    ck_assert(part_value(b, 0, 2) == 2); /* untouched */
    dt_tensor *plain = VECTOR(DT_F32, 1, 2, 3);
    ck_assert_int_eq(add_into(plain, a), DT_E_PLACEMENT);
    ck_assert_int_eq(DO_OUT(plain, DT_OP_neg, arg_tensor(a)), DT_E_PLACEMENT);
    ck_assert_ok(DO_OUT(a, DT_OP_neg, arg_tensor(b)));
    ck_assert(part_value(a, 1, 0) == -2);
    dt_tensor_release(a);
    dt_tensor_release(b);
    dt_tensor_release(plain);
}
END_TEST

START_TEST(meshes_do_not_mix) {
    device();
    const dt_placement r[] = {REPLICATE, REPLICATE};
    dt_tensor *a = dist_of(mesh_of(2, 0), r, SHAPE(3)), *b = dist_of(mesh_of(3, 0), r, SHAPE(3));
    dt_tensor *plain = VECTOR(DT_F32, 1, 2, 3), *scalar = tensor_new(DT_F32, SCALAR_SHAPE), *c;
    set_value(scalar, 0, 5);
    ck_assert_fails(add_new(&c, a, b), DT_E_PLACEMENT,
                    "add: the inputs are on different meshes, cuda(2) and cuda(3): redistribute() "
                    "one of them first");
    ck_assert_fails(add_new(&c, a, plain), DT_E_PLACEMENT,
                    "add: one input is on mesh cuda(2), another one, of shape [3], on the CPU "
                    "alone: redistribute() it to that mesh first");
    ck_assert_ok(add_new(&c, a, scalar)); /* 0-dim: as a number */
    ck_assert(part_value(c, 1, 2) == 7);
    dt_tensor_release(c);
    dt_tensor_release(a);
    dt_tensor_release(b);
    dt_tensor_release(plain);
    dt_tensor_release(scalar);
}
END_TEST

START_TEST(pending_parts_make_it_pending) {
    device();
    const dt_mesh *mesh = mesh_of(2, 0);
    const dt_placement s[] = {SHARD(0)};
    dt_tensor *a = dist_of(mesh, s, SHAPE(4)), *b;
    ck_assert_ok(hold_on(dt_dist_of(a)->parts[1], DT_OK));
    ck_assert(pending(a));
    ck_assert_ok(DO(&b, DT_OP_neg, arg_tensor(a)));
    ck_assert(pending(b) && !pending(dt_dist_of(b)->parts[0]));
    atomic_store(&let_go, true);
    ck_assert_ok(await(b));
    ck_assert(part_value(b, 1, 1) == -101);
    dt_tensor_release(a);
    dt_tensor_release(b);
}
END_TEST

START_TEST(one_failed_part_fails_it) {
    device();
    const dt_mesh *mesh = mesh_of(2, 0);
    const dt_placement s[] = {SHARD(0)};
    dt_tensor *a = dist_of(mesh, s, SHAPE(4)), *b;
    ck_assert_ok(hold(dt_dist_of(a)->parts[1], MS, DT_E_VALUE));
    ck_assert_ok(DO(&b, DT_OP_neg, arg_tensor(a)));
    ck_assert_int_eq(await(b), DT_E_VALUE);
    ck_assert_int_eq(await(a), DT_E_VALUE);
    ck_assert(part_value(b, 0, 1) == -1);
    dt_tensor_release(a);
    dt_tensor_release(b);
}
END_TEST

/* Errors of the metadata are the row's own, with the global shapes. */
START_TEST(errors_speak_of_the_whole) {
    device();
    const dt_placement s[] = {SHARD(0)};
    dt_tensor *a = dist_of(mesh_of(2, 0), s, SHAPE(4)), *b = dist_of(mesh_of(2, 0), s, SHAPE(3)),
              *c;
    ck_assert_fails(add_new(&c, a, b), DT_E_RUNTIME,
                    "The size of tensor a (4) must match the size of tensor b (3) at "
                    "non-singleton dimension 0");
    dt_tensor_release(a);
    dt_tensor_release(b);
}
END_TEST

START_TEST(a_dropped_handle_drops_its_parts) {
    device();
    const dt_placement s[] = {SHARD(0)};
    dt_tensor *a = dist_of(mesh_of(2, 0), s, SHAPE(4)), *b;
    for (int k = 0; k < 2; k++) ck_assert_ok(hold_on(dt_dist_of(a)->parts[k], DT_OK));
    ck_assert_ok(DO(&b, DT_OP_neg, arg_tensor(a)));
    dt_tensor_drop_handle(b);
    atomic_store(&let_go, true);
    ck_assert_ok(await(a));
    dt_future *fence;
    ck_assert_ok(dt_runtime_fence(&fence));
    if (fence != NULL) {
        ck_assert_ok(dt_future_wait(fence, -1, NULL, NULL));
        dt_future_release(fence);
    }
    dt_sched_stats stats;
    dt_sched_stats_get(dt_runtime(), &stats);
    ck_assert_int_eq(stats.dropped, 2);
    dt_tensor_release(a);
}
END_TEST

static dt_status sums(void) {
    const dt_placement p[] = {PARTIAL(SUM), SHARD(0)}, r[] = {REPLICATE, REPLICATE};
    static dt_tensor *a, *b;
    if (a == NULL) {
        a = dist_of(mesh_of(2, 2), p, SHAPE(5));
        b = dist_of(mesh_of(2, 2), r, SHAPE(5));
    }
    dt_tensor *c, *d;
    DT_TRY(add_new(&c, a, b));
    dt_status status = DO(&d, DT_OP_add, arg_tensor(c), arg_integer(3), arg_integer(1));
    dt_tensor_release(c);
    if (status == DT_OK) dt_tensor_release(d);
    return status;
}

START_TEST(no_memory) {
    device();
    ck_assert_ok(sums()); /* makes the inputs */
    ck_assert_int_gt(test_every_allocation_fails(sums), 10);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("place");
    TEST_CASE(suite, "calls", each_device_computes_its_part, a_number_joins_a_sum_once,
              targets_keep_their_placements, meshes_do_not_mix, errors_speak_of_the_whole);
    TEST_CASE(suite, "futures", pending_parts_make_it_pending, one_failed_part_fails_it,
              a_dropped_handle_drops_its_parts, no_memory);
    return test_run(suite);
}
