/* test_mesh.c: meshes are interned and checked; the layout is torch.chunk's, nested. */
#include "tests/c/mesh_support.h"

static dt_status get(int rank, const int32_t *shape, const int32_t *ids, const char *const *names,
                     const dt_mesh **out) {
    return dt_mesh_get(DT_DEVICE_CPU, rank, shape, ids, names, out);
}

START_TEST(equal_meshes_are_one) {
    const int32_t shape[] = {2, 2}, flat[] = {4, 1}, ids[] = {0, 1, 2, 3}, others[] = {3, 2, 1, 0};
    const char *names[] = {"dp", "tp"};
    const dt_mesh *a = NULL, *b = NULL, *named = NULL;
    ck_assert_ok(get(2, shape, ids, NULL, &a));
    ck_assert_ok(get(2, shape, ids, NULL, &b));
    ck_assert_ptr_eq(a, b);
    ck_assert_ptr_eq(dt_mesh_by_id(a->id), a);
    ck_assert_ok(get(2, shape, ids, names, &named));
    ck_assert_ptr_ne(a, named);
    ck_assert(dt_mesh_same(a, named));
    ck_assert_ok(get(2, shape, others, NULL, &b));
    ck_assert(!dt_mesh_same(a, b));
    ck_assert_ok(get(2, flat, ids, NULL, &b));
    ck_assert(!dt_mesh_same(a, b));
    ck_assert_ok(dt_mesh_get(DT_DEVICE_CUDA, 2, shape, ids, NULL, &b));
    ck_assert(!dt_mesh_same(a, b));
    ck_assert_ptr_null(dt_mesh_by_id(1000000));
    for (int k = 0; k < 4; k++) {
        ck_assert_int_eq(dt_mesh_coordinate(a, k, 0), k / 2);
        ck_assert_int_eq(dt_mesh_coordinate(a, k, 1), k % 2);
    }
}
END_TEST

START_TEST(many_meshes_stay_found) {
    const dt_mesh *meshes[50];
    for (int32_t k = 0; k < 50; k++) {
        const int32_t shape[] = {1}, ids[] = {k};
        ck_assert_ok(get(1, shape, ids, NULL, &meshes[k]));
    }
    for (int k = 0; k < 50; k++) ck_assert_ptr_eq(dt_mesh_by_id(meshes[k]->id), meshes[k]);
}
END_TEST

START_TEST(bad_meshes_are_refused) {
    const int32_t ids[] = {0, 1, 2, 3}, twice[] = {0, 1, 1, 3}, negative[] = {0, -1};
    const int32_t two[] = {2}, four[] = {4}, none[] = {2, 0}, huge[] = {1024, 2};
    const int32_t seven[] = {1, 1, 1, 1, 1, 1, 1};
    const char *empty[] = {""}, *same[] = {"x", "x"};
    const char *longest[] = {"a name of more than thirty-one characters"};
    const int32_t square[] = {2, 2};
    const dt_mesh *m = NULL;
    ck_assert_fails(get(0, two, ids, NULL, &m), DT_E_VALUE, "a mesh must have 1 to 6 dims, got 0");
    ck_assert_fails(get(7, seven, ids, NULL, &m), DT_E_VALUE,
                    "a mesh must have 1 to 6 dims, got 7");
    ck_assert_fails(get(2, none, ids, NULL, &m), DT_E_VALUE,
                    "dim 1 of a mesh must have a size of at least 1, got 0");
    ck_assert_fails(get(2, huge, ids, NULL, &m), DT_E_VALUE,
                    "a mesh must not have more than 1024 devices");
    ck_assert_fails(get(1, four, twice, NULL, &m), DT_E_VALUE, "device 1 comes twice in the mesh");
    ck_assert_fails(get(1, two, negative, NULL, &m), DT_E_VALUE,
                    "a device id of a mesh must be 0 to 1023, got -1");
    ck_assert_fails(get(1, two, ids, empty, &m), DT_E_VALUE,
                    "mesh_dim_names[0] must have 1 to 31 characters, got ''");
    ck_assert_int_eq(get(1, two, ids, longest, &m), DT_E_VALUE);
    ck_assert_fails(get(2, square, ids, same, &m), DT_E_VALUE,
                    "mesh_dim_names must differ, got 'x' twice");
    ck_assert_ptr_null(m);
}
END_TEST

START_TEST(chunks_are_those_of_torch) {
    static const struct {
        int64_t size;
        int n;
        int64_t lengths[5];
    } cases[] = {{5, 4, {2, 2, 1, 0}},   {6, 4, {2, 2, 2, 0}}, {0, 2, {0, 0}},
                 {1, 3, {1, 0, 0}},      {7, 3, {3, 3, 1}},    {8, 4, {2, 2, 2, 2}},
                 {5, 5, {1, 1, 1, 1, 1}}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        int64_t next = 0;
        for (int k = 0; k < cases[c].n; k++) {
            int64_t start, length;
            dt_chunk(cases[c].size, cases[c].n, k, &start, &length);
            ck_assert_int_eq(length, cases[c].lengths[k]);
            ck_assert_int_eq(start, next);
            next += length;
        }
        ck_assert_int_eq(next, cases[c].size);
    }
}
END_TEST

/* Two mesh dims on one dim: each chunk is cut again. 7 rows over 2 x 3: 4 = 2 2 0, 3 = 1 1 1. */
START_TEST(nested_shards_are_chunks_of_chunks) {
    static const int64_t starts[] = {0, 2, 4, 4, 5, 6}, sizes[] = {2, 2, 0, 1, 1, 1};
    const dt_mesh *mesh = mesh_of(2, 3);
    const dt_placement both[] = {SHARD(0), SHARD(0)}, one[] = {REPLICATE, SHARD(1)};
    const int64_t shape[] = {7, 4};
    for (int k = 0; k < 6; k++) {
        dt_box box;
        dt_layout_part(mesh, both, 2, shape, k, &box);
        ck_assert_int_eq(box.start[0], starts[k]);
        ck_assert_int_eq(box.size[0], sizes[k]);
        ck_assert_int_eq(box.start[1], 0);
        ck_assert_int_eq(box.size[1], 4);
        dt_layout_part(mesh, one, 2, shape, k, &box);
        ck_assert_int_eq(box.size[0], 7);
        ck_assert_int_eq(box.start[1], k % 3 * 2);
        ck_assert_int_eq(box.size[1], k % 3 == 2 ? 0 : 2);
    }
}
END_TEST

START_TEST(only_sum_and_avg_mix) {
    for (int a = DT_PARTIAL_SUM; a < DT_PLACEMENT_KINDS; a++) {
        for (int b = DT_PARTIAL_SUM; b < DT_PLACEMENT_KINDS; b++) {
            bool mix = a == b || (a <= DT_PARTIAL_AVG && b <= DT_PARTIAL_AVG);
            ck_assert(dt_partial_commutes((dt_placement_kind)a, (dt_placement_kind)b) == mix);
        }
    }
}
END_TEST

START_TEST(text) {
    char buffer[64];
    const dt_placement all[] = {REPLICATE, SHARD(12), PARTIAL(SUM), PARTIAL(PRODUCT)};
    ck_assert_str_eq(dt_mesh_format(mesh_of(2, 3), buffer, sizeof buffer), "cuda(2x3)");
    ck_assert_str_eq(dt_mesh_format(mesh_of(4, 0), buffer, sizeof buffer), "cuda(4)");
    ck_assert_str_eq(dt_placements_format(4, all, buffer, sizeof buffer),
                     "[R, S12, P(sum), P(product)]");
    ck_assert_str_eq(dt_placements_format(4, all, buffer, 8), "[R, S12");
    ck_assert_str_eq(dt_mesh_format(mesh_of(4, 0), buffer, 4), "cud");
}
END_TEST

START_TEST(no_memory) {
    for (int n = 1; n < 20; n++) {
        const int32_t shape[] = {2}, ids[] = {500 + n, 700 + n};
        const dt_mesh *m = NULL;
        dt_alloc_fail_at(n, false);
        dt_status status = get(1, shape, ids, NULL, &m);
        int64_t counted = dt_alloc_fail_at(0, false);
        if (status == DT_OK && counted < n) return;
        ck_assert_int_eq(status, DT_E_NO_MEMORY);
        ck_assert_ptr_null(m);
    }
    ck_abort_msg("it never succeeded");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mesh");
    TEST_CASE(suite, "meshes", equal_meshes_are_one, many_meshes_stay_found, bad_meshes_are_refused,
              no_memory);
    TEST_CASE(suite, "layout", chunks_are_those_of_torch, nested_shards_are_chunks_of_chunks,
              only_sum_and_avg_mix, text);
    return test_run(suite);
}
