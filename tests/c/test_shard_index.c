/* test_shard_index.c: which placements joins, lookups and masks take and give; that the parts are
 * right is seen by tests/python/test_shard_index.py. */
#include "tests/c/shard_support.h"

static const dt_placement whole[] = {{DT_REPLICATE, 0}, {DT_REPLICATE, 0}};

START_TEST(lookups) {
    const dt_mesh *m = mesh_of(2, 2);
    const dt_placement s0r[] = {SHARD(0), REPLICATE}, s00[] = {SHARD(0), SHARD(0)};
    const dt_placement s01[] = {SHARD(0), SHARD(1)}, max[] = {PARTIAL(MAX), REPLICATE};
    const dt_placement rs1[] = {REPLICATE, SHARD(1)}, maxs0[] = {PARTIAL(MAX), SHARD(0)};
#define WEIGHT(p) arg_tensor(dist_of(m, p, SHAPE(7, 4)))
#define INDEX(p, ...) arg_tensor(dist_unset(DT_I64, m, p, SHAPE(__VA_ARGS__)))
    GIVES("[P(sum), R]", m, DT_OP_embedding__new, WEIGHT(s0r), INDEX(whole, 3, 5));
    GIVES("[P(sum), P(sum)]", m, DT_OP_embedding__new, WEIGHT(s00), INDEX(whole, 3, 5));
    GIVES("[P(sum), S2]", m, DT_OP_embedding__new, WEIGHT(s01), INDEX(whole, 3, 5));
    GIVES("[P(sum), S1]", m, DT_OP_embedding__new, WEIGHT(s0r), INDEX(rs1, 3, 5));
    GIVES("[S0, S1]", m, DT_OP_embedding__new, WEIGHT(whole), INDEX(s01, 3, 5));
    GIVES("[P(max), R]", m, DT_OP_embedding__new, WEIGHT(max), INDEX(whole, 3));
    /* A sum of what is the greatest is not the greatest of sums. */
    GIVES("refused", m, DT_OP_embedding__new, WEIGHT(maxs0), INDEX(whole, 3));
    GIVES("[P(sum), S1]", m, DT_OP_index_select, WEIGHT(s01), arg_int(0), INDEX(whole, 2));
    GIVES("[S0, R]", m, DT_OP_index_select, WEIGHT(s0r), arg_int(1), INDEX(whole, 2));
    GIVES("[S1, R]", m, DT_OP_index_select, WEIGHT(whole), arg_int(1), INDEX(s0r, 2));
    GIVES("[S0, R]", m, DT_OP_gather__dim, WEIGHT(s0r), arg_int(1), INDEX(s0r, 7, 2));
    GIVES("[S0, R]", m, DT_OP_gather__dim, WEIGHT(whole), arg_int(1), INDEX(s0r, 3, 2));
    GIVES("refused", m, DT_OP_gather__dim, WEIGHT(s0r), arg_int(1), INDEX(s0r, 3, 2));
    GIVES("[P(sum), S1]", m, DT_OP_gather__dim, WEIGHT(s0r), arg_int(0), INDEX(rs1, 3, 2));
}
END_TEST

START_TEST(joins) {
    const dt_mesh *m = mesh_of(2, 0);
    const dt_placement s0[] = {SHARD(0)}, s1[] = {SHARD(1)}, sum[] = {PARTIAL(SUM)};
    dt_tensor *list[2];
#define JOIN(text, id, a, b, dim)                                                                  \
    list[0] = a;                                                                                   \
    list[1] = b;                                                                                   \
    GIVES(text, m, id, arg_list(list, 2), arg_int(dim))
    JOIN("[S1]", DT_OP_cat, dist_of(m, s1, SHAPE(2, 3)), dist_of(m, whole, SHAPE(4, 3)), 0);
    JOIN("refused", DT_OP_cat, dist_of(m, s0, SHAPE(2, 3)), dist_of(m, whole, SHAPE(4, 3)), 0);
    JOIN("[S0]", DT_OP_cat, dist_of(m, s0, SHAPE(2, 3)), dist_of(m, whole, SHAPE(0, 3)), 0);
    JOIN("[S1]", DT_OP_cat, dist_of(m, s0, SHAPE(0)), dist_of(m, s1, SHAPE(4, 3)), 0);
    JOIN("[P(sum)]", DT_OP_cat, dist_of(m, sum, SHAPE(2, 3)), dist_of(m, whole, SHAPE(4, 3)), 0);
    JOIN("refused", DT_OP_cat, dist_of(m, sum, SHAPE(2, 3)), dist_of(m, s1, SHAPE(4, 3)), 0);
    JOIN("[S2]", DT_OP_stack, dist_of(m, s1, SHAPE(2, 3)), dist_of(m, s1, SHAPE(2, 3)), 0);
    JOIN("[S0]", DT_OP_stack, dist_of(m, s0, SHAPE(2, 3)), dist_of(m, s0, SHAPE(2, 3)), 1);
}
END_TEST

START_TEST(masks) {
    const dt_mesh *m = mesh_of(2, 0);
    const dt_placement s0[] = {SHARD(0)}, s1[] = {SHARD(1)}, sum[] = {PARTIAL(SUM)};
#define DATA(p) arg_tensor(dist_of(m, p, SHAPE(4, 3)))
#define MASK(p) arg_tensor(dist_unset(DT_BOOL, m, p, SHAPE(4)))
    GIVES("[S1]", m, DT_OP_index__mask, DATA(s1), MASK(whole), arg_int(0));
    GIVES("refused", m, DT_OP_index__mask, DATA(s0), MASK(s0), arg_int(0));
    GIVES("[P(sum)]", m, DT_OP_index__mask, DATA(sum), MASK(whole), arg_int(0));
    dt_tensor *one = dist_of(m, whole, SHAPE(1, 3)), *each = dist_of(m, whole, SHAPE(2, 3));
    GIVES("[S0]", m, DT_OP_index_put__mask, DATA(s0), MASK(s0), arg_tensor(dt_tensor_retain(one)),
          arg_int(0));
    GIVES("refused", m, DT_OP_index_put__mask, DATA(s0), MASK(s0),
          arg_tensor(dt_tensor_retain(each)), arg_int(0));
    GIVES("[S1]", m, DT_OP_index_put__mask, DATA(s1), MASK(whole),
          arg_tensor(dt_tensor_retain(each)), arg_int(0));
    /* The copies would differ. */
    GIVES("refused", m, DT_OP_index_put__mask, DATA(whole), MASK(s0),
          arg_tensor(dt_tensor_retain(one)), arg_int(0));
    dt_tensor_release(one);
    dt_tensor_release(each);
}
END_TEST

int main(void) {
    dt_device_register_cpu(&dt_cpu_device);
    Suite *suite = suite_create("shard_index");
    TEST_CASE(suite, "shard_index", lookups, joins, masks);
    return test_run(suite);
}
