/* test_plan.c: plans on metadata alone: random meshes of up to six dims, the text, the limits. */
#include "collectives/plan.h"
#include "tests/c/mesh_support.h"

static const dt_mesh *random_mesh(uint64_t *seed) {
    int32_t shape[DT_MESH_RANK_MAX], ids[64];
    int rank = (int)test_random_in(seed, 1, DT_MESH_RANK_MAX), size = 1;
    for (int m = 0; m < rank; m++) {
        int n = (int)test_random_in(seed, 1, 3);
        shape[m] = size * n > 64 ? 1 : n;
        size *= shape[m];
    }
    int first = (int)test_random_in(seed, 0, 3);
    for (int k = 0; k < size; k++) ids[k] = first + k;
    const dt_mesh *mesh = NULL;
    ck_assert_ok(dt_mesh_get(DT_DEVICE_CUDA, rank, shape, ids, NULL, &mesh));
    return mesh;
}

static void random_placements(uint64_t *seed, const dt_mesh *mesh, int rank, dt_placement *out) {
    dt_placement_kind kind = (dt_placement_kind)test_random_in(seed, DT_PARTIAL_SUM, 6);
    for (int m = 0; m < mesh->rank; m++) {
        int64_t pick = test_random_in(seed, -2, rank - 1);
        out[m] = pick == -2 ? dt_replicate() : pick == -1 ? dt_partial(kind) : dt_shard((int)pick);
    }
}

/* The kinds of Partial in every state in between commute, and each step does what its name says. */
static void check_steps(const dt_plan *plan) {
    const dt_mesh *mesh = plan->from.mesh;
    const dt_placement *now = plan->from.placements;
    int64_t bytes = 0;
    for (int k = 0; k < plan->count; k++) {
        const dt_step *step = &plan->steps[k];
        bytes += step->bytes;
        for (int m = 0; m < step->mesh->rank; m++)
            for (int n = 0; n < m; n++)
                require(!dt_placement_is_partial(step->placements[m]) ||
                        !dt_placement_is_partial(step->placements[n]) ||
                        dt_partial_commutes((dt_placement_kind)step->placements[m].kind,
                                            (dt_placement_kind)step->placements[n].kind));
        require(dt_step_moves((dt_step_kind)step->kind) || step->bytes == 0);
        for (int m = 0; m < mesh->rank && step->mesh_dims != 0 && step->mesh == mesh; m++)
            require(step->mesh_dims >> m & 1 || dt_placement_equal(now[m], step->placements[m]));
        mesh = step->mesh;
        now = step->placements;
    }
    require(bytes == plan->bytes);
    require(dt_mesh_same(mesh, plan->to.mesh));
    require(memcmp(now, plan->to.placements, sizeof *now * mesh->rank) == 0);
}

START_TEST(random_meshes) {
    uint64_t seed = 1;
    for (int round = 0; round < 3000; round++) {
        dt_placement a[DT_MESH_RANK_MAX], b[DT_MESH_RANK_MAX];
        dt_plan plan = {.dtype = DT_F32, .rank = (int)test_random_in(&seed, 0, 3)};
        for (int d = 0; d < plan.rank; d++) plan.shape[d] = test_random_in(&seed, 0, 9);
        plan.from = (dt_layout){random_mesh(&seed), a};
        bool stays = test_random_in(&seed, 0, 2) > 0;
        plan.to = (dt_layout){stays ? plan.from.mesh : random_mesh(&seed), b};
        random_placements(&seed, plan.from.mesh, plan.rank, a);
        random_placements(&seed, plan.to.mesh, plan.rank, b);
        ck_assert_ok(dt_plan_make(&plan, test_random_in(&seed, -1, 100)));
        check_steps(&plan);
    }
}
END_TEST

static dt_plan plan_of(const dt_mesh *mesh, const dt_placement *a, const dt_placement *b,
                       dt_dims shape, int64_t memory_max) {
    dt_plan plan = {.dtype = DT_F32, .rank = shape.rank, .from = {mesh, a}, .to = {mesh, b}};
    memcpy(plan.shape, shape.v, sizeof plan.shape);
    ck_assert_ok(dt_plan_make(&plan, memory_max));
    return plan;
}

START_TEST(text) {
    const dt_placement a[] = {SHARD(0), REPLICATE}, b[] = {REPLICATE, SHARD(1)};
    dt_plan plan = plan_of(mesh_of(2, 2), a, b, SHAPE(4, 6), -1);
    char buffer[1000], small[20];
    static const char *const want =
        "redistribute float32 [4, 6]: cuda(2x2) [S0, R] -> cuda(2x2) [R, S1]\n"
        "  1. cut along mesh dim 1 -> [S0, S1]: local\n"
        "  2. all_gather along mesh dim 0, groups of 2 -> [R, S1]: 24 bytes\n"
        "bytes received by a device at most: 24; memory in between: 0 bytes";
    int length = dt_plan_format(&plan, buffer, sizeof buffer);
    ck_assert_str_eq(buffer, want);
    ck_assert_int_eq(length, (int)strlen(want));
    ck_assert_int_eq(dt_plan_format(&plan, small, sizeof small), length);
    ck_assert_int_eq((int)strlen(small), (int)sizeof small - 1);
    plan = plan_of(mesh_of(2, 2), a, a, SHAPE(4, 6), -1);
    (void)dt_plan_format(&plan, buffer, sizeof buffer);
    ck_assert(strstr(buffer, "nothing to do") != NULL);
}
END_TEST

START_TEST(memory_limits) {
    const dt_placement a[] = {PARTIAL(SUM), SHARD(1)}, b[] = {REPLICATE, REPLICATE};
    dt_dims shape = SHAPE(100, 8, 10);
    const dt_mesh *mesh = mesh_of(2, 2);
    dt_plan free = plan_of(mesh, a, b, shape, -1);
    ck_assert_int_eq(free.pieces, 1);
    ck_assert_int_eq(free.memory_bytes, 100 * 8 * 10 / 2 * 4);
    dt_plan pieces = plan_of(mesh, a, b, shape, 1700); /* ten rows of 160 bytes */
    ck_assert_int_eq(pieces.pieces, 10);
    ck_assert_int_eq(pieces.piece_dim, 0);
    ck_assert_int_eq(pieces.memory_bytes, 1600);
    ck_assert_int_eq(pieces.bytes, free.bytes);
    dt_plan none = plan_of(mesh, a, b, shape, 0); /* moves more, needs nothing */
    ck_assert_int_eq(none.pieces, 1);
    ck_assert_int_eq(none.memory_bytes, 0);
    ck_assert_int_eq(none.count, 1);
    ck_assert_int_eq(none.steps[0].kind, DT_STEP_EXCHANGE);
    ck_assert_int_gt(none.bytes, free.bytes);
    const dt_placement c[] = {PARTIAL(SUM), SHARD(0)};
    dt_plan flat = plan_of(mesh, c, b, SHAPE(50), 10); /* no dim to go along */
    ck_assert_int_eq(flat.pieces, 1);
    ck_assert_int_eq(flat.memory_bytes, 0);
}
END_TEST

static dt_status plan_large(void) {
    const dt_placement a[] = {SHARD(0), PARTIAL(SUM), SHARD(1), SHARD(2)};
    const dt_placement b[] = {SHARD(1), SHARD(0), REPLICATE, PARTIAL(SUM)};
    static const int32_t shape[] = {2, 2, 2, 2};
    int32_t ids[16];
    const dt_mesh *mesh;
    for (int k = 0; k < 16; k++) ids[k] = k;
    ck_assert_ok(dt_mesh_get(DT_DEVICE_CUDA, 4, shape, ids, NULL, &mesh));
    dt_plan plan = {
        .dtype = DT_F32, .rank = 3, .shape = {8, 8, 8}, .from = {mesh, a}, .to = {mesh, b}};
    DT_TRY(dt_plan_make(&plan, -1));
    check_steps(&plan);
    return DT_OK;
}

START_TEST(memory_may_run_out) {
    ck_assert_ok(plan_large()); /* interns the mesh */
    dt_memory_stats before = test_memory();
    for (int n = 1; n < 20; n++) {
        dt_alloc_fail_at(n, true);
        dt_status status = DT_OK;
        dt_plan plan;
        const dt_placement a[] = {SHARD(0), SHARD(1), SHARD(2), PARTIAL(SUM)};
        const dt_placement b[] = {SHARD(1), SHARD(0), REPLICATE, SHARD(2)};
        const dt_mesh *mesh = NULL;
        for (uint32_t id = 0; mesh == NULL || mesh->rank != 4; id++) mesh = dt_mesh_by_id(id);
        plan = (dt_plan){
            .dtype = DT_F32, .rank = 3, .shape = {8, 8, 8}, .from = {mesh, a}, .to = {mesh, b}};
        status = dt_plan_make(&plan, -1);
        int64_t counted = dt_alloc_fail_at(0, false);
        test_assert_no_leak(before);
        if (counted < n) {
            ck_assert_ok(status);
            ck_assert_int_gt(n, 1);
            return;
        }
        ck_assert_int_eq(status, DT_E_NO_MEMORY);
    }
    ck_abort_msg("it never succeeds");
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("plan");
    TEST_CASE(s, "plan", random_meshes, text, memory_limits, memory_may_run_out);
    return s;
}

int main(void) { return test_run(suite()); }
