/* test_dist.c: tensors on a mesh own their parts and have no bytes of their own. */
#include "tests/c/mesh_support.h"

START_TEST(metadata_is_global) {
    const dt_mesh *mesh = mesh_of(2, 2);
    const dt_placement placements[] = {SHARD(0), REPLICATE};
    dt_tensor *t = dist_of(mesh, placements, SHAPE(5, 4));
    ck_assert(dt_tensor_is_dist(t));
    ck_assert_int_eq(t->rank, 2);
    ck_assert_int_eq(t->numel, 20);
    ck_assert_int_eq(t->strides[0], 4);
    ck_assert(!t->contiguous); /* or a fast path would look for bytes */
    ck_assert_ptr_null(atomic_load(&t->storage->data));
    int count = 0;
    dt_tensor *const *parts = dt_tensor_parts(&t, &count);
    ck_assert_int_eq(count, 4);
    ck_assert_int_eq(parts[0]->shape[0], 3);
    ck_assert_int_eq(parts[3]->shape[0], 2);
    dt_tensor *plain = parts[1];
    ck_assert_ptr_eq(*dt_tensor_parts(&plain, &count), plain);
    ck_assert_int_eq(count, 1);
    dt_tensor_release(t);
}
END_TEST

START_TEST(parts_live_as_long_as_anyone_has_them) {
    const dt_placement placements[] = {SHARD(0)};
    dt_tensor *t = dist_of(mesh_of(2, 0), placements, SHAPE(4));
    dt_tensor *part = dt_tensor_retain(dt_dist_of(t)->parts[1]);
    dt_tensor_release(dt_tensor_retain(t));
    dt_tensor_release(t);
    ck_assert(value_at(part, 1) == 101);
    ck_assert_uint_eq(atomic_load(&part->refs), 1);
    dt_tensor_release(part);
}
END_TEST

START_TEST(views_of_the_metadata_need_no_bytes) {
    const dt_placement placements[] = {REPLICATE};
    dt_tensor *t = dist_of(mesh_of(2, 0), placements, SHAPE(4, 6));
    const int64_t strides[] = {1, 6};
    dt_tensor *view = view_of(t, SHAPE(6, 4), strides, 0);
    ck_assert_ptr_eq(view->storage, t->storage);
    ck_assert(!dt_tensor_is_dist(view)); /* until it is given parts */
    dt_tensor *parts[2], *joined;
    for (int k = 0; k < 2; k++) {
        dt_dist *d = dt_dist_of(t);
        parts[k] = view_of(d->parts[k], SHAPE(6, 4), strides, 0);
    }
    ck_assert_ok(dt_dist_new_like(view, mesh_of(2, 0), placements, parts, &joined));
    dt_tensor_release(view);
    dt_tensor_release(t);
    ck_assert_int_eq(joined->strides[1], 6);
    ck_assert(value_at(dt_dist_of(joined)->parts[1], 1) == 6);
    dt_tensor_release(joined);
}
END_TEST

START_TEST(deferred_until_the_parts_are_known) {
    const dt_placement placements[] = {REPLICATE};
    const int64_t shape[] = {-1, 2};
    dt_tensor *parts[2], *t = NULL;
    for (int k = 0; k < 2; k++)
        ck_assert_ok(dt_tensor_new_deferred(DT_I64, 2, shape, false, &parts[k]));
    ck_assert_ok(dt_dist_new(DT_I64, 2, shape, NULL, 0, mesh_of(2, 0), placements, parts, &t));
    ck_assert(dt_tensor_is_deferred(t) && dt_tensor_is_dist(t));
    for (int k = 0; k < 2; k++) {
        ck_assert_ok(dt_tensor_produce(parts[k], 3));
        dt_tensor_settle(parts[k]);
    }
    dt_dist_settle(t);
    ck_assert(!dt_tensor_is_deferred(t) && dt_tensor_is_dist(t));
    ck_assert_int_eq(t->shape[0], 3);
    ck_assert_int_eq(t->numel, 6);
    dt_tensor_release(t);
}
END_TEST

START_TEST(no_memory_leaves_the_parts_alone) {
    const dt_placement placements[] = {REPLICATE};
    const dt_mesh *mesh = mesh_of(2, 0);
    dt_tensor *parts[] = {tensor_new(DT_F32, SHAPE(3)), tensor_new(DT_F32, SHAPE(3))}, *t = NULL;
    dt_alloc_fail_at(1, false);
    ck_assert_int_eq(dt_dist_new_like(parts[0], mesh, placements, parts, &t), DT_E_NO_MEMORY);
    (void)dt_alloc_fail_at(0, false);
    ck_assert_ptr_null(t);
    for (int k = 0; k < 2; k++) {
        ck_assert_uint_eq(atomic_load(&parts[k]->refs), 1);
        dt_tensor_release(parts[k]);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("dist");
    TEST_CASE(suite, "dist", metadata_is_global, parts_live_as_long_as_anyone_has_them,
              views_of_the_metadata_need_no_bytes, deferred_until_the_parts_are_known,
              no_memory_leaves_the_parts_alone);
    return test_run(suite);
}
