/* test_shape.c: torch's texts, and strides and overlap against enumeration of addresses. */
#include <check.h>
#include <string.h>

#include "runtime/shape.h"
#include "tests/c/test_support.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})
#define RANK(...) ((int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))
#define LIST(...) RANK(__VA_ARGS__), DIMS(__VA_ARGS__)

static dt_dims dims_of(int rank, const int64_t *v) {
    dt_dims d = {.rank = rank};
    for (int k = 0; k < rank; k++) d.v[k] = v[k];
    return d;
}

static void assert_dims(const dt_dims *d, int rank, const int64_t *expected) {
    ck_assert_int_eq(d->rank, rank);
    for (int k = 0; k < rank; k++) ck_assert_int_eq(d->v[k], expected[k]);
}

/* ---- sizes ---------------------------------------------------------------------------------- */

START_TEST(numel) {
    int64_t n = -7;
    ck_assert_ok(dt_shape_numel(0, NULL, 4, &n));
    ck_assert_int_eq(n, 1);
    ck_assert_ok(dt_shape_numel(LIST(2, 3, 4), 4, &n));
    ck_assert_int_eq(n, 24);
    ck_assert_ok(dt_shape_numel(LIST(2, 0, 4), 4, &n));
    ck_assert_int_eq(n, 0);
    ck_assert_ok(dt_shape_numel(LIST(0, (int64_t)1 << 40), 8, &n));
    ck_assert_int_eq(n, 0);
    ck_assert_ok(dt_shape_numel(LIST(((int64_t)1 << 60) - 1), 8, &n));
    ck_assert_int_eq(n, ((int64_t)1 << 60) - 1);
}
END_TEST

START_TEST(numel_errors) {
    int64_t n = -7;
    ck_assert_fails(dt_shape_numel(LIST(2, -1), 4, &n), DT_E_RUNTIME,
                    "Trying to create tensor with negative dimension -1: [2, -1]");
    ck_assert_fails(dt_shape_numel(LIST(-3, -1), 4, &n), DT_E_RUNTIME,
                    "Trying to create tensor with negative dimension -3: [-3, -1]");
    ck_assert_fails(dt_shape_numel(LIST((int64_t)1 << 40, (int64_t)1 << 40), 4, &n), DT_E_RUNTIME,
                    "Storage size calculation overflowed with sizes=[1099511627776, "
                    "1099511627776]");
    ck_assert_fails(dt_shape_numel(LIST((int64_t)1 << 62, (int64_t)1 << 62, 0), 4, &n),
                    DT_E_RUNTIME,
                    "Storage size calculation overflowed with sizes=[4611686018427387904, "
                    "4611686018427387904, 0]");
    ck_assert_fails(dt_shape_numel(LIST(0, (int64_t)1 << 62, (int64_t)1 << 62), 4, &n),
                    DT_E_RUNTIME, "Stride calculation overflowed");
    ck_assert_fails(dt_shape_numel(LIST((int64_t)1 << 60), 8, &n), DT_E_RUNTIME,
                    "Storage size calculation overflowed with sizes=[1152921504606846976]");
    ck_assert_int_eq(n, -7); /* outputs are written on success only */
}
END_TEST

START_TEST(contiguous_strides) {
    static const struct {
        int rank;
        int64_t shape[4], strides[4]; /* torch.empty(shape).stride() */
    } cases[] = {
        {1, {1}, {1}},
        {2, {2, 3}, {3, 1}},
        {3, {2, 1, 3}, {3, 3, 1}},
        {3, {2, 0, 3}, {3, 3, 1}},
        {3, {0, 0, 3}, {3, 3, 1}},
        {4, {2, 3, 4, 5}, {60, 20, 5, 1}},
        {0, {0}, {0}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        int64_t strides[4] = {0};
        dt_shape_contiguous_strides(cases[c].rank, cases[c].shape, strides);
        for (int d = 0; d < cases[c].rank; d++) ck_assert_int_eq(strides[d], cases[c].strides[d]);
        ck_assert(dt_shape_is_contiguous(cases[c].rank, cases[c].shape, strides));
    }
    ck_assert(!dt_shape_is_contiguous(2, DIMS(2, 3), DIMS(1, 2)));
    ck_assert(!dt_shape_is_contiguous(2, DIMS(2, 3), DIMS(4, 1)));
    ck_assert(!dt_shape_is_contiguous(1, DIMS(3), DIMS(0)));
    ck_assert(!dt_shape_is_contiguous(1, DIMS(3), DIMS(2)));
    ck_assert(dt_shape_is_contiguous(3, DIMS(2, 1, 3), DIMS(3, 77, 1)));
    ck_assert(dt_shape_is_contiguous(2, DIMS(1, 1), DIMS(5, 9)));
    ck_assert(dt_shape_is_contiguous(3, DIMS(3, 0, 2), DIMS(1, 7, 9)));
    ck_assert(dt_shape_is_contiguous(3, DIMS(0, 3, 2), DIMS(1, 7, 9)));
    ck_assert(!dt_shape_is_contiguous(3, DIMS(2, 3, 2), DIMS(7, 2, 1)));
}
END_TEST

/* ---- dims, broadcasting, inference ----------------------------------------------------------- */

START_TEST(wrap_dim) {
    int d = -9;
    ck_assert_ok(dt_shape_wrap_dim(1, 2, true, &d));
    ck_assert_int_eq(d, 1);
    ck_assert_ok(dt_shape_wrap_dim(-2, 2, false, &d));
    ck_assert_int_eq(d, 0);
    ck_assert_ok(dt_shape_wrap_dim(-1, 0, true, &d));
    ck_assert_int_eq(d, 0);
    ck_assert_fails(dt_shape_wrap_dim(2, 2, true, &d), DT_E_INDEX,
                    "Dimension out of range (expected to be in range of [-2, 1], but got 2)");
    ck_assert_fails(dt_shape_wrap_dim(-3, 2, true, &d), DT_E_INDEX,
                    "Dimension out of range (expected to be in range of [-2, 1], but got -3)");
    ck_assert_fails(dt_shape_wrap_dim(1, 0, true, &d), DT_E_INDEX,
                    "Dimension out of range (expected to be in range of [-1, 0], but got 1)");
    ck_assert_fails(dt_shape_wrap_dim(0, 0, false, &d), DT_E_INDEX,
                    "Dimension specified as 0 but tensor has no dimensions");
    ck_assert_fails(dt_shape_wrap_dim(INT64_MIN, 2, true, &d), DT_E_INDEX,
                    "Dimension out of range (expected to be in range of [-2, 1], but got "
                    "-9223372036854775808)");
    ck_assert_int_eq(d, 0);
}
END_TEST

START_TEST(broadcast) {
    dt_dims out, a = dims_of(LIST(5, 1, 3)), b = dims_of(LIST(4, 1)), none = {.rank = 0};
    ck_assert_ok(dt_shape_broadcast(&a, &b, &out));
    assert_dims(&out, LIST(5, 4, 3));
    ck_assert_ok(dt_shape_broadcast(&b, &a, &out));
    assert_dims(&out, LIST(5, 4, 3));
    ck_assert_ok(dt_shape_broadcast(&none, &a, &out));
    assert_dims(&out, LIST(5, 1, 3));
    ck_assert_ok(dt_shape_broadcast(&none, &none, &out));
    ck_assert_int_eq(out.rank, 0);
    dt_dims empty = dims_of(LIST(0)), one = dims_of(LIST(1)), two = dims_of(LIST(2));
    ck_assert_ok(dt_shape_broadcast(&empty, &one, &out));
    assert_dims(&out, LIST(0));
    ck_assert_fails(dt_shape_broadcast(&empty, &two, &out), DT_E_RUNTIME,
                    "The size of tensor a (0) must match the size of tensor b (2) at "
                    "non-singleton dimension 0");
    assert_dims(&out, LIST(0)); /* untouched */
    dt_dims c = dims_of(LIST(5, 2, 3)), d = dims_of(LIST(4, 3));
    ck_assert_fails(dt_shape_broadcast(&c, &d, &out), DT_E_RUNTIME,
                    "The size of tensor a (2) must match the size of tensor b (4) at "
                    "non-singleton dimension 1");
    ck_assert_ok(dt_shape_broadcast(&a, &b, &a)); /* in place */
    assert_dims(&a, LIST(5, 4, 3));
}
END_TEST

static void infer(int rank, const int64_t *shape, int64_t elements, const int64_t *expected) {
    dt_dims d = dims_of(rank, shape);
    ck_assert_ok(dt_shape_infer(&d, elements));
    assert_dims(&d, rank, expected);
}

static void infer_fails(int rank, const int64_t *shape, int64_t elements, const char *text) {
    dt_dims d = dims_of(rank, shape);
    ck_assert_fails(dt_shape_infer(&d, elements), DT_E_RUNTIME, text);
    assert_dims(&d, rank, shape);
}

START_TEST(infer_sizes) {
    infer(LIST(2, 3), 6, DIMS(2, 3));
    infer(LIST(-1, 3), 6, DIMS(2, 3));
    infer(LIST(-1), 0, DIMS(0));
    infer(LIST(-1, 3), 0, DIMS(0, 3));
    infer(LIST(3, 0), 0, DIMS(3, 0));
    infer(LIST(-1), 1, DIMS(1));
    infer(0, NULL, 1, NULL);
    infer(LIST(0, (int64_t)1 << 40, (int64_t)1 << 40), 0,
          DIMS(0, (int64_t)1 << 40, (int64_t)1 << 40));
    infer_fails(LIST(2, 5), 6, "shape '[2, 5]' is invalid for input of size 6");
    infer_fails(LIST(-1, 4), 6, "shape '[-1, 4]' is invalid for input of size 6");
    infer_fails(LIST(-1, 0), 6, "shape '[-1, 0]' is invalid for input of size 6");
    infer_fails(LIST(-1, -1), 6, "only one dimension can be inferred");
    infer_fails(LIST(-2, 3), 6, "invalid shape dimension -2 at index 0 of shape [-2, 3]");
    infer_fails(LIST(1, -5, 2), 6, "invalid shape dimension -5 at index 1 of shape [1, -5, 2]");
    infer_fails(0, NULL, 6, "shape '[]' is invalid for input of size 6");
    infer_fails(LIST(-1, 0), 0,
                "cannot reshape tensor of 0 elements into shape [-1, 0] because the unspecified "
                "dimension size -1 can be any value and is ambiguous");
    int64_t big = (int64_t)1 << 40;
    infer_fails(LIST(big, big), 6,
                "shape '[1099511627776, 1099511627776]' is invalid for input of size 6");
    infer_fails(LIST(-1, big, big), 6,
                "shape '[-1, 1099511627776, 1099511627776]' is invalid for input of size 6");
    infer_fails(LIST(big, big, 0), 0, "numel: integer multiplication overflow");
}
END_TEST

START_TEST(format) {
    char buffer[64];
    ck_assert_str_eq(dt_shape_format(0, NULL, buffer, sizeof buffer), "[]");
    ck_assert_str_eq(dt_shape_format(LIST(2), buffer, sizeof buffer), "[2]");
    ck_assert_str_eq(dt_shape_format(LIST(2, -3, 40), buffer, sizeof buffer), "[2, -3, 40]");
    ck_assert_str_eq(dt_shape_format(LIST(2, -3, 40), buffer, 12), "[2, -3, 40]");
    ck_assert_str_eq(dt_shape_format(LIST(2, -3, 40), buffer, 11), "[2, -3,...");
    ck_assert_str_eq(dt_shape_format(LIST(1234567, 7), buffer, 8), "[123...");
    ck_assert_str_eq(dt_shape_format(LIST(1234567, 7), buffer, 5), "[...");
    int64_t widest[DT_RANK_MAX];
    char wide[512];
    for (int d = 0; d < DT_RANK_MAX; d++) widest[d] = INT64_MIN;
    dt_shape_format(DT_RANK_MAX, widest, wide, sizeof wide);
    ck_assert_int_eq(wide[strlen(wide) - 1], ']');
    ck_assert_uint_lt(strlen(wide), 400); /* what shape.c reserves for its messages */
}
END_TEST

/* ---- against enumeration --------------------------------------------------------------------- */

enum { ADDRESSES_MAX = 4096 };

/* All addresses in row-major order of the indices; returns how many. */
static int enumerate(int rank, const int64_t *shape, const int64_t *strides, int64_t *addresses) {
    int count = 1;
    for (int d = 0; d < rank; d++) count *= (int)shape[d];
    ck_assert_int_le(count, ADDRESSES_MAX);
    for (int k = 0; k < count; k++) {
        int64_t rest = k, address = 0;
        for (int d = rank - 1; d >= 0; d--) {
            address += rest % shape[d] * strides[d];
            rest /= shape[d];
        }
        addresses[k] = address;
    }
    return count;
}

/* Splits n into a random shape with some ones in it. */
static int random_shape(uint64_t *seed, int64_t n, int64_t *shape) {
    int rank = 0;
    while (rank < 6) {
        int64_t factor = test_random_in(seed, 1, 4);
        if (n % factor != 0) factor = 1;
        if (n == 1 && test_random_in(seed, 0, 1)) break;
        shape[rank++] = factor;
        n /= factor;
    }
    if (n > 1 || rank == 0) shape[rank++] = n;
    return rank;
}

START_TEST(view_strides_address_the_same_elements) {
    static int64_t old[ADDRESSES_MAX], new[ADDRESSES_MAX];
    uint64_t seed = 1;
    int found = 0, refused = 0;
    for (int round = 0; round < 20000; round++) {
        int64_t old_shape[16], old_strides[16], new_shape[16], new_strides[16];
        int64_t n = DIMS(1, 2, 6, 12, 24, 36, 64)[test_random_in(&seed, 0, 6)];
        int old_rank = random_shape(&seed, n, old_shape);
        int new_rank = random_shape(&seed, n, new_shape);
        dt_shape_contiguous_strides(old_rank, old_shape, old_strides);
        for (int swaps = (int)test_random_in(&seed, 0, 2); swaps > 0; swaps--) {
            int i = (int)test_random_in(&seed, 0, old_rank - 1);
            int j = (int)test_random_in(&seed, 0, old_rank - 1);
            int64_t size = old_shape[i], stride = old_strides[i];
            old_shape[i] = old_shape[j], old_strides[i] = old_strides[j];
            old_shape[j] = size, old_strides[j] = stride;
        }
        if (test_random_in(&seed, 0, 3) == 0)
            old_strides[test_random_in(&seed, 0, old_rank - 1)] = test_random_in(&seed, 0, 9);

        int count = enumerate(old_rank, old_shape, old_strides, old);
        bool ok = dt_shape_view_strides(old_rank, old_shape, old_strides, new_rank, new_shape,
                                        new_strides);
        if (!ok) {
            /* Were there a view, its strides would be what single steps along each dim show. */
            int64_t step = 1;
            for (int d = new_rank - 1; d >= 0; d--) {
                new_strides[d] = new_shape[d] > 1 ? old[step] : 0;
                step *= new_shape[d];
            }
        }
        enumerate(new_rank, new_shape, new_strides, new);
        ck_assert_int_eq(memcmp(old, new, sizeof(int64_t) * (size_t)count) == 0, ok);
        found += ok;
        refused += !ok;
    }
    ck_assert_int_gt(found, 1000);
    ck_assert_int_gt(refused, 1000);
}
END_TEST

START_TEST(view_strides_of_torch) {
    static const struct {
        int old_rank;
        int64_t old_shape[4], old_strides[4];
        int new_rank;
        int64_t new_shape[4], new_strides[4]; /* as torch's view() has them */
    } cases[] = {
        {2, {2, 3}, {3, 1}, 1, {6}, {1}},
        {2, {2, 3}, {6, 2}, 1, {6}, {2}},
        {2, {3, 1}, {1, 7}, 3, {1, 3, 1}, {3, 1, 7}},
        {0, {0}, {0}, 2, {1, 1}, {1, 1}},
        {3, {2, 0, 3}, {1, 7, 9}, 3, {2, 0, 3}, {1, 7, 9}},
        {3, {2, 0, 3}, {1, 7, 9}, 2, {0, 5}, {5, 1}},
        {1, {6}, {2}, 3, {3, 1, 2}, {4, 4, 2}},
        {1, {3}, {0}, 2, {3, 1}, {0, 0}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        int64_t strides[4] = {0};
        ck_assert(dt_shape_view_strides(cases[c].old_rank, cases[c].old_shape, cases[c].old_strides,
                                        cases[c].new_rank, cases[c].new_shape, strides));
        for (int d = 0; d < cases[c].new_rank; d++)
            ck_assert_msg(strides[d] == cases[c].new_strides[d], "case %zu dim %d", c, d);
    }
}
END_TEST

static int compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

START_TEST(self_overlap_is_exact) {
    static int64_t addresses[ADDRESSES_MAX];
    uint64_t seed = 2;
    int overlapping = 0, rounds = 30000;
    for (int round = 0; round < rounds; round++) {
        int64_t shape[4], strides[4];
        int rank = (int)test_random_in(&seed, 0, 4);
        for (int d = 0; d < rank; d++) {
            shape[d] = test_random_in(&seed, round % 16 == 0 ? 0 : 1, 5);
            strides[d] = test_random_in(&seed, round % 8 == 0 ? 0 : 1, 30);
        }
        int count = enumerate(rank, shape, strides, addresses);
        qsort(addresses, (size_t)count, sizeof addresses[0], compare);
        bool expected = false;
        for (int k = 1; k < count; k++) expected |= addresses[k] == addresses[k - 1];
        ck_assert_int_eq(dt_shape_may_self_overlap(rank, shape, strides), expected);
        overlapping += expected;
    }
    ck_assert_int_gt(overlapping, rounds / 10);
    ck_assert_int_lt(overlapping, rounds - rounds / 10);
    ck_assert(dt_shape_may_self_overlap(1, DIMS(3), DIMS(0)));
    ck_assert(!dt_shape_may_self_overlap(1, DIMS(1), DIMS(0)));
    ck_assert(!dt_shape_may_self_overlap(2, DIMS(3, 0), DIMS(0, 1)));
    ck_assert(!dt_shape_may_self_overlap(2, DIMS(2, 3), DIMS(3, 2))); /* 0 2 4 3 5 7 */
    int64_t far = (int64_t)1 << 62;
    ck_assert(dt_shape_may_self_overlap(2, DIMS(4, 4), DIMS(far, far - 1))); /* overflow: may */
}
END_TEST

START_TEST(meeting_is_exact) {
    static int64_t a[ADDRESSES_MAX], b[ADDRESSES_MAX];
    uint64_t seed = 3;
    int meeting = 0, rounds = 30000;
    for (int round = 0; round < rounds; round++) {
        int64_t shapes[2][3], strides[2][3];
        int ranks[2];
        for (int t = 0; t < 2; t++) {
            ranks[t] = (int)test_random_in(&seed, 0, 3);
            for (int d = 0; d < ranks[t]; d++) {
                shapes[t][d] = test_random_in(&seed, round % 16 == 0 ? 0 : 1, 4);
                strides[t][d] = test_random_in(&seed, 0, 24) * (round % 3 + 1);
            }
        }
        int64_t apart = test_random_in(&seed, -40, 40);
        int a_count = enumerate(ranks[0], shapes[0], strides[0], a);
        int b_count = enumerate(ranks[1], shapes[1], strides[1], b);
        bool expected = false;
        for (int i = 0; i < a_count; i++)
            for (int j = 0; j < b_count; j++) expected |= a[i] == b[j] + apart;
        ck_assert_int_eq(dt_shape_may_meet(ranks[0], shapes[0], strides[0], ranks[1], shapes[1],
                                           strides[1], apart),
                         expected);
        meeting += expected;
    }
    ck_assert_int_gt(meeting, rounds / 10);
    ck_assert_int_lt(meeting, rounds - rounds / 10);
}
END_TEST

START_TEST(long_searches_end) {
    /* Sixteen dims whose strides share no structure: the answer may be "may", but soon. */
    int64_t shape[16], strides[16];
    uint64_t seed = 4;
    for (int round = 0; round < 200; round++) {
        for (int d = 0; d < 16; d++) {
            shape[d] = test_random_in(&seed, 2, 1000);
            strides[d] = test_random_in(&seed, 1, 1000000);
        }
        (void)dt_shape_may_self_overlap(16, shape, strides);
        (void)dt_shape_may_meet(16, shape, strides, 16, shape, strides, 1);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("shape");
    TEST_CASE(suite, "sizes", numel, numel_errors, contiguous_strides);
    TEST_CASE(suite, "dims", wrap_dim, broadcast, infer_sizes, format);
    TEST_CASE(suite, "enumeration", view_strides_address_the_same_elements, view_strides_of_torch,
              self_overlap_is_exact, meeting_is_exact, long_searches_end);
    return test_run(suite);
}
