/* test_local.c: each collective of the in-process backend, on groups of one, three and twenty. */
#include "collectives/collectives.h"
#include "tests/c/dispatch_support.h"
#include "tests/c/mesh_support.h"

#define N_MAX 20

typedef struct group {
    int members[N_MAX];
    dt_tensor *in[N_MAX], *out[N_MAX];
    int64_t lengths[N_MAX];
    dt_collective c;
} group;

/* Member k has 2 rows and 4 columns; element (i, j) is 100 k + 10 i + j. */
static void init_group(group *g, int n) {
    device();
    for (int k = 0; k < n; k++) {
        g->members[k] = k;
        g->out[k] = NULL;
        g->lengths[k] = k == 0 ? 4 - (n > 1) : k == 1; /* of 4 columns: 3, 1, 0, 0, ... */
        g->in[k] = tensor_new(DT_F32, SHAPE(2, 4));
        for (int i = 0; i < 8; i++) {
            int row = i / 4, column = i % 4;
            set_value(g->in[k], i, 100 * k + 10 * row + column);
        }
    }
    g->c = (dt_collective){.mesh = mesh_of(n, 0),
                           .n = n,
                           .members = g->members,
                           .in = g->in,
                           .out = g->out,
                           .lengths = g->lengths};
}

static void free_group(group *g) {
    for (int k = 0; k < g->c.n; k++) {
        dt_tensor_release(g->in[k]);
        if (g->out[k] != NULL) dt_tensor_release(g->out[k]);
    }
}

static void assert_shape(const dt_tensor *t, int64_t rows, int64_t columns) {
    ck_assert_int_eq(t->shape[0], rows);
    ck_assert_int_eq(t->shape[1], columns);
}

/* No result has bytes of an input or of another result. */
static void assert_apart(const group *g, int results) {
    for (int k = 0; k < results; k++) {
        for (int i = 0; i < g->c.n; i++) ck_assert_ptr_ne(g->out[k]->storage, g->in[i]->storage);
        for (int i = 0; i < k; i++) ck_assert_ptr_ne(g->out[k]->storage, g->out[i]->storage);
    }
}

static const int sizes[] = {1, 3, N_MAX};
#define EACH_SIZE(n) for (int s_ = 0, n = sizes[0]; s_ < 3; s_++, n = s_ < 3 ? sizes[s_] : 0)

START_TEST(all_gather) {
    EACH_SIZE(n) {
        group g;
        init_group(&g, n);
        g.c.join_dim = 0;
        ck_assert_ok(dt_collectives_local.all_gather(&g.c));
        for (int k = 0; k < n; k++) {
            assert_shape(g.out[k], 2 * n, 4);
            for (int64_t i = 0; i < 8 * n; i++)
                require(value_at(g.out[k], i) == value_at(g.in[i / 8], i % 8));
        }
        assert_apart(&g, n);
        free_group(&g);
    }
}
END_TEST

START_TEST(all_reduce) {
    EACH_SIZE(n) {
        for (int kind = DT_PARTIAL_SUM; kind <= DT_PARTIAL_MAX; kind++) {
            group g;
            init_group(&g, n);
            g.c.reduction = (dt_placement_kind)kind;
            ck_assert_ok(dt_collectives_local.all_reduce(&g.c));
            for (int k = 0; k < n; k++)
                for (int64_t i = 0; i < 8; i++) {
                    double first = (double)value_at(g.in[0], i), all = 0;
                    for (int m = 0; m < n; m++) all += (double)value_at(g.in[m], i);
                    double want = kind == DT_PARTIAL_SUM   ? all
                                  : kind == DT_PARTIAL_AVG ? (float)all / (float)n
                                  : kind == DT_PARTIAL_MIN ? first
                                                           : first + 100 * (n - 1);
                    require((double)value_at(g.out[k], i) == want);
                }
            assert_apart(&g, n);
            free_group(&g);
        }
    }
}
END_TEST

/* Of column j of the whole, member 0 gets the first three, member 1 the last. */
START_TEST(reduce_scatter) {
    EACH_SIZE(n) {
        group g;
        init_group(&g, n);
        g.c.reduction = DT_PARTIAL_MAX;
        g.c.cut_dim = 1;
        ck_assert_ok(dt_collectives_local.reduce_scatter(&g.c));
        int64_t start = 0;
        for (int k = 0; k < n; k++) {
            assert_shape(g.out[k], 2, g.lengths[k]);
            for (int64_t i = 0; i < g.out[k]->numel; i++) {
                int64_t from = i / g.lengths[k] * 4 + start + i % g.lengths[k];
                require(value_at(g.out[k], i) == value_at(g.in[n - 1], from));
            }
            start += g.lengths[k];
        }
        assert_apart(&g, n);
        free_group(&g);
    }
}
END_TEST

START_TEST(all_to_all) {
    EACH_SIZE(n) {
        group g;
        init_group(&g, n);
        g.c.cut_dim = 1;
        g.c.join_dim = 0;
        ck_assert_ok(dt_collectives_local.all_to_all(&g.c));
        int64_t start = 0;
        for (int k = 0; k < n; k++) {
            int64_t width = g.lengths[k];
            assert_shape(g.out[k], 2 * n, width);
            for (int64_t i = 0; i < g.out[k]->numel; i++) {
                int64_t row = i / width, from = row % 2 * 4 + start + i % width;
                require(value_at(g.out[k], i) == value_at(g.in[row / 2], from));
            }
            start += width;
        }
        assert_apart(&g, n);
        free_group(&g);
    }
}
END_TEST

START_TEST(from_one_and_to_one) {
    EACH_SIZE(n) {
        group g;
        init_group(&g, n);
        ck_assert_ok(dt_collectives_local.broadcast(&g.c));
        for (int k = 0; k < n; k++) {
            for (int64_t i = 0; i < 8; i++) require(value_at(g.out[k], i) == value_at(g.in[0], i));
        }
        assert_apart(&g, n);
        for (int k = 0; k < n; k++) {
            dt_tensor_release(g.out[k]);
            g.out[k] = NULL;
        }
        g.c.cut_dim = 1;
        ck_assert_ok(dt_collectives_local.scatter(&g.c));
        int64_t start = 0;
        for (int k = 0; k < n; k++) {
            assert_shape(g.out[k], 2, g.lengths[k]);
            for (int64_t i = 0; i < g.out[k]->numel; i++)
                require(value_at(g.out[k], i) ==
                        value_at(g.in[0], i / g.lengths[k] * 4 + start + i % g.lengths[k]));
            start += g.lengths[k];
        }
        for (int k = 0; k < n; k++) {
            dt_tensor_release(g.out[k]);
            g.out[k] = NULL;
        }
        g.c.join_dim = 1;
        ck_assert_ok(dt_collectives_local.gather(&g.c));
        assert_shape(g.out[0], 2, 4 * n);
        for (int64_t i = 0; i < 8 * n; i++) {
            int64_t row = i / (4 * n), column = i % (4 * n);
            require(value_at(g.out[0], i) == value_at(g.in[column / 4], row * 4 + column % 4));
        }
        for (int k = 1; k < n; k++) ck_assert_ptr_null(g.out[k]);
        free_group(&g);
    }
}
END_TEST

START_TEST(send_and_receive) {
    EACH_SIZE(n) {
        group g;
        int sources[N_MAX];
        init_group(&g, n);
        for (int k = 0; k < n; k++) sources[k] = (k + 1) % n; /* a ring */
        g.c.sources = sources;
        ck_assert_ok(dt_collectives_local.send_recv(&g.c));
        for (int k = 0; k < n; k++)
            require(value_at(g.out[k], 5) == value_at(g.in[(k + 1) % n], 5));
        assert_apart(&g, n);
        free_group(&g);
    }
}
END_TEST

/* A member that is late, or fails, holds up or fails those that need it. */
START_TEST(late_and_failed_members) {
    group g;
    init_group(&g, 3);
    g.c.join_dim = 0;
    ck_assert_ok(hold_on(g.in[1], DT_OK));
    ck_assert_ok(dt_collectives_local.all_gather(&g.c));
    ck_assert(pending(g.out[2]));
    atomic_store(&let_go, true);
    ck_assert_ok(await(g.out[2]));
    require(value_at(g.out[2], 15) == 113);
    for (int k = 0; k < 3; k++) {
        dt_tensor_release(g.out[k]);
        g.out[k] = NULL;
    }
    ck_assert_ok(hold(g.in[1], MS, DT_E_VALUE));
    g.c.reduction = DT_PARTIAL_SUM;
    ck_assert_ok(dt_collectives_local.all_reduce(&g.c));
    for (int k = 0; k < 3; k++) ck_assert_fails(await(g.out[k]), DT_E_VALUE, "held and dropped");
    free_group(&g);
}
END_TEST

START_TEST(nothing_is_left_when_memory_is_out) {
    group g;
    init_group(&g, 3); /* whatever is made once */
    free_group(&g);
    dt_memory_stats before = test_memory();
    for (int n = 1; n < 200; n++) {
        init_group(&g, 3);
        g.c.cut_dim = 1;
        g.c.join_dim = 0;
        dt_alloc_fail_at(n, false);
        dt_status status = dt_collectives_local.all_to_all(&g.c);
        int64_t counted = dt_alloc_fail_at(0, false);
        for (int k = 0; k < 3; k++) ck_assert((g.out[k] != NULL) == (status == DT_OK));
        free_group(&g);
        test_assert_no_leak(before);
        if (counted < n) return;
    }
    ck_abort_msg("it never succeeds");
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("local");
    TEST_CASE(s, "local", all_gather, all_reduce, reduce_scatter, all_to_all, from_one_and_to_one,
              send_and_receive, late_and_failed_members, nothing_is_left_when_memory_is_out);
    return s;
}

int main(void) { return test_run(suite()); }
