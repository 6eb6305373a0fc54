/* test_shard.c: choosing ways: fewest changes, legal cuts only, and errors that tell the story. */
#include "tests/c/shard_support.h"

#define PLACED(p, ...) arg_tensor(dist_of(mesh, p, SHAPE(__VA_ARGS__)))

START_TEST(what_fits_is_left_alone) {
    const dt_mesh *mesh = mesh_of(2, 2);
    const dt_placement p[] = {SHARD(0), REPLICATE};
    CHOOSES("[S0, S0, S0, R, R, R]", mesh, DT_OP_mul, PLACED(p, 5, 4), PLACED(p, 5, 4));
}
END_TEST

/* alpha is a number, and the third input. b has no dim 0 of the result: along the second mesh dim
 * it stays whole. */
START_TEST(replicate_is_cut_to_the_others_shard) {
    const dt_mesh *mesh = mesh_of(2, 2);
    const dt_placement p[] = {SHARD(1), SHARD(0)}, r[] = {REPLICATE, REPLICATE};
    CHOOSES("[S1, S0, R, S1, S0, R, R, S0]", mesh, DT_OP_add, PLACED(p, 5, 4), PLACED(r, 4),
            arg_integer(1));
}
END_TEST

/* A later mesh dim has cut the whole dim: the earlier one cannot cut that part as its own. */
START_TEST(a_cut_keeps_the_nesting) {
    const dt_mesh *mesh = mesh_of(2, 2);
    const dt_placement inner[] = {REPLICATE, SHARD(0)}, both[] = {SHARD(0), SHARD(0)};
    const dt_placement outer[] = {SHARD(0), REPLICATE};
    GIVES("refused", mesh, DT_OP_mul, PLACED(inner, 8), PLACED(both, 8));
    CHOOSES("[S0, S0, S0, S0, S0, S0]", mesh, DT_OP_mul, PLACED(outer, 8), PLACED(both, 8));
}
END_TEST

START_TEST(kinds_of_partial_do_not_mix) {
    const dt_mesh *mesh = mesh_of(2, 2);
    const dt_placement sum[] = {PARTIAL(SUM), REPLICATE}, max[] = {REPLICATE, PARTIAL(MAX)};
    GIVES("refused", mesh, DT_OP_maximum, PLACED(sum, 3), PLACED(max, 3));
}
END_TEST

START_TEST(the_result_can_be_wanted) {
    const dt_mesh *mesh = mesh_of(2, 0);
    const dt_placement r[] = {REPLICATE}, s[] = {SHARD(1)}, sum[] = {PARTIAL(SUM)};
    chooses("[S1, S1, R, S1]", s, mesh, DT_OP_add,
            ARGS(PLACED(r, 3, 4), PLACED(r, 3, 4), arg_integer(1)));
    chooses("[P(sum), P(sum), R, P(sum)]", sum, mesh, DT_OP_add, /* alpha stays */
            ARGS(PLACED(r, 3, 4), PLACED(r, 3, 4), arg_integer(1)));
}
END_TEST

START_TEST(a_refusal_tells_the_story) {
    const dt_mesh *mesh = mesh_of(2, 0);
    const dt_placement sum[] = {PARTIAL(SUM)}, s[] = {SHARD(0)};
    asked a;
    ASK(&a, mesh, DT_OP_mul, PLACED(sum, 3), PLACED(s, 3));
    ck_assert_int_eq(a.status, DT_E_PLACEMENT);
    const char *text = dt_error_text();
    static const char *const said[] = {
        "mul: illegal placements on mesh cuda(2)",
        "input 0: shape [3], [P(sum)]; input 1: shape [3], [S0]",
        "(S0, S0) -> S0",
        "(P(sum), R) -> P(sum)",
        "Legal after input 0.redistribute(placements=[S0])",
    };
    for (size_t k = 0; k < sizeof said / sizeof said[0]; k++)
        ck_assert_msg(strstr(text, said[k]) != NULL, "'%s' is not in '%s'", said[k], text);
    dt_placement nearest[3];
    ck_assert(dt_shard_nearest(&a.ask, NULL, nearest));
    assert_placements(nearest, 3, "[S0, S0, S0]");
    forget(&a);
}
END_TEST

/* More ways than fit without the heap: rank 16 with a long list of inputs. */
START_TEST(many_inputs_and_ways) {
    const dt_mesh *mesh = mesh_of(2, 0);
    const dt_placement r[] = {REPLICATE};
    enum { N = 40 };
    dt_tensor *list[N];
    for (int k = 0; k < N; k++) list[k] = dist_of(mesh, r, SHAPE(1, 2));
    asked a;
    ASK(&a, mesh, DT_OP_cat, arg_list(list, N), arg_int(0));
    ck_assert_ok(a.status);
    ck_assert_int_eq(a.ask.nin, N);
    ck_assert_int_eq(a.ask.in[N - 1].item, N - 1);
    ck_assert_int_eq(dt_ask_find(&a.ask, 0), 0);
    ck_assert_int_eq(dt_ask_find(&a.ask, 1), -1);
    for (int k = 0; k <= N; k++) ck_assert_int_eq(a.chosen[k].kind, DT_REPLICATE);
    forget(&a);
}
END_TEST

/* Of a mesh dim with one device all placements mean the same. */
START_TEST(a_mesh_dim_of_one_device) {
    const dt_mesh *mesh = mesh_of(1, 2);
    const dt_placement p[] = {SHARD(0), SHARD(0)}, sum[] = {PARTIAL(SUM), SHARD(0)};
    asked a;
    ASK(&a, mesh, DT_OP_maximum, PLACED(p, 5), PLACED(sum, 5));
    ck_assert_ok(a.status);
    ck_assert(dt_placement_equal(a.chosen[0], a.chosen[1]));
    ck_assert(dt_placement_equal(a.chosen[3], SHARD(0)));
    forget(&a);
}
END_TEST

/* Every row has a sharding function that answers, and all Replicate is always legal. */
START_TEST(every_row_answers) {
    for (int id = 0; id < DT_OP_COUNT; id++) ck_assert_ptr_nonnull(dt_op_table[id].shard);
}
END_TEST

int main(void) {
    dt_device_register_cpu(&dt_cpu_device);
    Suite *suite = suite_create("shard");
    TEST_CASE(suite, "choose", what_fits_is_left_alone, replicate_is_cut_to_the_others_shard,
              a_cut_keeps_the_nesting, kinds_of_partial_do_not_mix, the_result_can_be_wanted,
              a_refusal_tells_the_story, many_inputs_and_ways, a_mesh_dim_of_one_device,
              every_row_answers);
    return test_run(suite);
}
