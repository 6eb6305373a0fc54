/* test_shard_ew.c: which casts go together with which reductions, by trying all small values. What
 * the ops take and give is in tests/python/test_shard_ew.py. */
#include "runtime/shard.h"
#include "tests/c/mesh_support.h"

static double cast(double value, dt_dtype to) {
    char bytes[8];
    dt_scalar s = {.category = DT_CAT_FLOAT, .f = value};
    if (value == (double)(int64_t)value)
        s = (dt_scalar){.category = DT_CAT_INT, .i = (int64_t)value};
    dt_scalar_store(s, to, bytes);
    dt_scalar loaded = dt_scalar_load(to, bytes);
    return loaded.category == DT_CAT_FLOAT ? loaded.f : (double)loaded.i;
}

static double reduce(dt_placement_kind kind, dt_dtype dtype, double a, double b) {
    switch (kind) {
    case DT_PARTIAL_SUM:
        return dtype == DT_BOOL ? a != 0 || b != 0 : cast(a + b, dtype);
    case DT_PARTIAL_AVG:
        return cast((a + b) / 2, dtype);
    case DT_PARTIAL_PRODUCT:
        return dtype == DT_BOOL ? a != 0 && b != 0 : cast(a * b, dtype);
    case DT_PARTIAL_MIN:
        return a < b ? a : b;
    default:
        return a > b ? a : b;
    }
}

/* No cast that is said to commute changes a reduction of values that fit both dtypes' range as
 * sums, and those of min and max of any. */
START_TEST(casts) {
    static const dt_dtype dtypes[] = {DT_BOOL, DT_U8, DT_I8, DT_I32, DT_I64, DT_F32, DT_F64};
    static const double values[] = {0, 1, 2, -1, -5, 7, 0.5, -2.5};
    enum { DTYPES = sizeof dtypes / sizeof *dtypes, VALUES = sizeof values / sizeof *values };
    int commuting = 0;
    for (int k = DT_PARTIAL_SUM; k < DT_PLACEMENT_KINDS; k++)
        for (int f = 0; f < DTYPES; f++)
            for (int t = 0; t < DTYPES; t++) {
                dt_placement_kind kind = (dt_placement_kind)k;
                dt_dtype from = dtypes[f], to = dtypes[t];
                bool average_of_ints = kind == DT_PARTIAL_AVG && !dt_dtype_is_float(from);
                if (average_of_ints || !dt_cast_commutes(kind, from, to)) continue;
                commuting++;
                for (int i = 0; i < VALUES * VALUES; i++) {
                    double a = cast(values[i % VALUES], from), b = cast(values[i / VALUES], from);
                    bool wraps =
                        from == DT_U8 && (values[i % VALUES] < 0 || values[i / VALUES] < 0);
                    if (wraps && kind != DT_PARTIAL_MIN && kind != DT_PARTIAL_MAX) continue;
                    double before = cast(reduce(kind, from, a, b), to);
                    double after = reduce(kind, to, cast(a, to), cast(b, to));
                    ck_assert_msg(before == after, "kind %d, %d to %d: %g, %g", k, from, to, a, b);
                }
            }
    ck_assert_int_gt(commuting, 80);
    ck_assert(!dt_cast_commutes(DT_PARTIAL_SUM, DT_F32, DT_I64));
    ck_assert(!dt_cast_commutes(DT_PARTIAL_SUM, DT_BOOL, DT_I64));
    ck_assert(!dt_cast_commutes(DT_PARTIAL_MAX, DT_I64, DT_I8));
    ck_assert(!dt_cast_commutes(DT_PARTIAL_MIN, DT_F32, DT_I64));
    ck_assert(!dt_cast_commutes(DT_PARTIAL_MAX, DT_I64, DT_BOOL));
    ck_assert(dt_cast_commutes(DT_PARTIAL_SUM, DT_F32, DT_F16));
    ck_assert(dt_cast_commutes(DT_PARTIAL_MAX, DT_U8, DT_I32));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("shard_ew");
    TEST_CASE(suite, "shard_ew", casts);
    return test_run(suite);
}
