/* test_redistribute.c: whole redistributes with every allocation failing, with late and failed
 * parts, on meshes of many devices. What they compute is tests/python/test_redistribute.py's. */
#include "collectives/redistribute.h"
#include "tests/c/dispatch_support.h"
#include "tests/c/mesh_support.h"

static const dt_mesh *mesh;
static dt_tensor *source;
static dt_placement target[2];

static dt_status redistribute_once(void) {
    dt_tensor *out;
    DT_TRY(dt_redistribute(source, mesh, target, &out));
    dt_future *ignored;
    (void)dt_tensor_state(out, &ignored);
    dt_tensor_release(out);
    return DT_OK;
}

/* What an op reports late is no leak of the call: outputs that failed for want of memory are. */
static void every_allocation_fails(void) {
    ck_assert_ok(redistribute_once());
    for (int n = 1; n < 400; n++) {
        dt_memory_stats before = test_memory();
        dt_alloc_fail_at(n, false);
        dt_status status = redistribute_once();
        int64_t counted = dt_alloc_fail_at(0, false);
        test_assert_no_leak(before);
        ck_assert(status == DT_OK || status == DT_E_NO_MEMORY);
        if (counted < n) {
            ck_assert_ok(status);
            return;
        }
    }
    ck_abort_msg("it never succeeds");
}

START_TEST(memory_may_run_out_anywhere) {
    static const dt_placement cases[][4] = {
        {SHARD(0), REPLICATE, REPLICATE, SHARD(1)},
        {PARTIAL(SUM), PARTIAL(SUM), REPLICATE, SHARD(0)},
        {SHARD(0), SHARD(0), REPLICATE, SHARD(0)},
        {SHARD(0), REPLICATE, PARTIAL(SUM), SHARD(1)},
        {REPLICATE, PARTIAL(SUM), PARTIAL(PRODUCT), SHARD(0)},
        {PARTIAL(SUM), SHARD(1), REPLICATE, REPLICATE},
    };
    device();
    mesh = mesh_of(2, 2);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        source = dist_of(mesh, cases[k], SHAPE(3, 5, 4));
        memcpy(target, cases[k] + 2, sizeof target);
        every_allocation_fails();
        dt_redistribute_set_memory(16);
        every_allocation_fails();
        dt_redistribute_set_memory(-1);
        dt_tensor_release(source);
    }
}
END_TEST

START_TEST(a_late_part_is_waited_for) {
    const dt_placement s[] = {SHARD(0)}, r[] = {REPLICATE};
    dt_tensor *out;
    device();
    mesh = mesh_of(3, 0);
    source = dist_of(mesh, s, SHAPE(5));
    ck_assert_ok(hold_on(dt_dist_of(source)->parts[1], DT_OK));
    ck_assert_ok(dt_redistribute(source, mesh, r, &out));
    ck_assert(pending(out));
    atomic_store(&let_go, true);
    ck_assert_ok(await(dt_dist_of(out)->parts[2]));
    static const double want[] = {0, 1, 100, 101, 200};
    for (int64_t i = 0; i < 5; i++)
        ck_assert((double)value_at(dt_dist_of(out)->parts[2], i) == want[i]);
    dt_tensor_release(out);
    dt_tensor_release(source);
}
END_TEST

START_TEST(a_failed_part_fails_the_result) {
    const dt_placement s[] = {SHARD(0)}, r[] = {REPLICATE};
    dt_tensor *out;
    device();
    mesh = mesh_of(3, 0);
    source = dist_of(mesh, s, SHAPE(5));
    ck_assert_ok(hold(dt_dist_of(source)->parts[1], MS, DT_E_VALUE));
    ck_assert_ok(dt_redistribute(source, mesh, r, &out));
    ck_assert_fails(await(dt_dist_of(out)->parts[0]), DT_E_VALUE, "held and dropped");
    dt_tensor_release(out);
    dt_tensor_release(source);
}
END_TEST

/* The order of limits: more members than one call has outputs, more devices than any machine. */
START_TEST(many_devices) {
    static int32_t ids[DT_MESH_DEVICES_MAX];
    const int32_t shape[] = {DT_MESH_DEVICES_MAX};
    const dt_placement s[] = {SHARD(0)}, r[] = {REPLICATE}, p[] = {PARTIAL(SUM)};
    dt_tensor *t = tensor_new(DT_I32, SHAPE(1500)), *cut, *whole, *sum, *back;
    device();
    for (int k = 0; k < DT_MESH_DEVICES_MAX; k++) ids[k] = k;
    ck_assert_ok(dt_mesh_get(DT_DEVICE_CPU, 1, shape, ids, NULL, &mesh));
    for (int64_t i = 0; i < 1500; i++) set_value(t, i, (double)i);
    ck_assert_ok(dt_redistribute(t, mesh, s, &cut));
    ck_assert_ok(dt_redistribute(cut, mesh, r, &whole));
    ck_assert_ok(dt_redistribute(whole, mesh, p, &sum));
    ck_assert_ok(dt_redistribute(sum, NULL, NULL, &back));
    ck_assert_ok(await(back));
    for (int64_t i = 0; i < 1500; i++) require(value_at(back, i) == (long double)i);
    dt_tensor *const all[] = {t, cut, whole, sum, back};
    for (int k = 0; k < 5; k++) dt_tensor_release(all[k]);
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("redistribute");
    TEST_CASE(s, "redistribute", memory_may_run_out_anywhere, a_late_part_is_waited_for,
              a_failed_part_fails_the_result, many_devices);
    return s;
}

int main(void) { return test_run(suite()); }
