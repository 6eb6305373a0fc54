/* test_assemble.c: tensors put together from a grid of pieces, against plain loops over elements:
 * every dtype, layout and reduction, any number of copies and parts of a call. */
#include "collectives/assemble.h"
#include "runtime/mesh.h"
#include "tests/c/dispatch_support.h"

#define PIECES_MAX 24

/* The wanted value of element i of the result, in the order in which pieces are reduced. */
typedef struct wanted {
    dt_dims grid, starts[DT_RANK_MAX]; /* where each interval of a dim begins */
    dt_tensor **pieces;
    int each;
    dt_placement_kind kind;
    int divisor;
    dt_dtype dtype;
} wanted;

static long double rounded(const wanted *w, long double value) {
    if (w->dtype == DT_F32 || w->dtype == DT_F16 || w->dtype == DT_BF16) return (float)value;
    return w->dtype == DT_F64 ? (double)value : value;
}

static long double reduce(const wanted *w, long double a, long double b) {
    switch (w->kind) {
    case DT_PARTIAL_MIN:
        return b < a ? b : a;
    case DT_PARTIAL_MAX:
        return b > a ? b : a;
    case DT_PARTIAL_PRODUCT:
        return rounded(w, a * b);
    default:
        return w->dtype == DT_BOOL ? (a != 0 || b != 0) : rounded(w, a + b);
    }
}

static long double wanted_at(const wanted *w, const dt_dims *shape, int64_t i) {
    int64_t index[DT_RANK_MAX], inside = 0, cell = 0;
    for (int d = shape->rank - 1; d >= 0; d--) {
        index[d] = i % shape->v[d];
        i /= shape->v[d];
    }
    const int64_t *size = NULL;
    int at[DT_RANK_MAX];
    for (int d = 0; d < shape->rank; d++) {
        at[d] = (int)w->grid.v[d] - 1;
        while (w->starts[d].v[at[d]] > index[d]) at[d]--;
        cell = cell * w->grid.v[d] + at[d];
    }
    dt_tensor **pieces = w->pieces + cell * w->each;
    size = pieces[0]->shape;
    for (int d = 0; d < shape->rank; d++)
        inside = inside * size[d] + index[d] - w->starts[d].v[at[d]];
    long double value = value_at(pieces[0], inside);
    for (int k = 1; k < w->each; k++) value = reduce(w, value, value_at(pieces[k], inside));
    return w->divisor == 1 ? value : rounded(w, value / w->divisor);
}

static void check_values(const wanted *w, const dt_tensor *out) {
    dt_dims shape = dt_tensor_dims(out);
    dt_tensor *want = tensor_new(w->dtype, SHAPE(1));
    int64_t step = 1 + out->numel / 20000; /* of large ones not every element */
    for (int64_t i = 0; i < out->numel; i += step) {
        set_value(want, 0, (double)wanted_at(w, &shape, i)); /* rounds halves once */
        EXPECT(value_at(out, i) == value_at(want, 0), "element %lld: %Lg instead of %Lg",
               (long long)i, value_at(out, i), value_at(want, 0));
    }
    dt_tensor_release(want);
}

/* Pieces of a grid whose intervals have the sizes 2, 0, 3, 1, ... times `scale`. */
static void make_pieces(wanted *w, int64_t scale, uint64_t seed) {
    static const int64_t sizes[] = {2, 0, 3, 1};
    int cells = 1;
    for (int d = 0; d < w->grid.rank; d++) {
        int64_t start = 0;
        w->starts[d].rank = (int)w->grid.v[d];
        for (int k = 0; k < w->grid.v[d]; k++) {
            w->starts[d].v[k] = start;
            start += sizes[(k + 2 * d) % 4] * scale;
        }
        cells *= (int)w->grid.v[d];
    }
    for (int k = 0; k < cells * w->each; k++) {
        int rest = k / w->each;
        dt_dims shape = {.rank = w->grid.rank};
        for (int d = w->grid.rank - 1; d >= 0; d--) {
            shape.v[d] = sizes[(rest % (int)w->grid.v[d] + 2 * d) % 4] * scale;
            rest /= (int)w->grid.v[d];
        }
        w->pieces[k] = tensor_laid_out(w->dtype, shape, (layout)(k % LAYOUTS));
        fill_random(w->pieces[k], seed + (uint64_t)k);
    }
}

static int count_of(const wanted *w) {
    int n = w->each;
    for (int d = 0; d < w->grid.rank; d++) n *= (int)w->grid.v[d];
    return n;
}

static void check(wanted *w, int64_t scale, int copies, int parts) {
    dt_tensor *pieces[PIECES_MAX];
    w->pieces = pieces;
    make_pieces(w, scale, 5);
    ck_assert_int_le(count_of(w), PIECES_MAX);
    dt_op_call c;
    op_prepare(&c, DT_OP_assemble__pieces,
               ARGS(arg_list(pieces, count_of(w)),
                    ((dt_arg){.kind = DT_ARG_DIMS, .dims = &w->grid}), arg_int(copies),
                    arg_int(w->kind), arg_int(w->divisor)));
    ck_assert_ok(op_run_parts(&c, parts));
    ck_assert_int_eq(c.nout, copies);
    for (int k = 0; k < copies; k++) {
        check_values(w, c.outs[k]);
        dt_tensor_release(c.outs[k]);
    }
    for (int k = 0; k < count_of(w); k++) dt_tensor_release(pieces[k]);
}

START_TEST(grids_of_every_dtype) {
    for (int dtype = 0; dtype < DT_DTYPE_COUNT; dtype++)
        for (int copies = 1; copies <= 3; copies++)
            for (int parts = 1; parts <= 5; parts += 4) {
                wanted w = {.grid = SHAPE(3, 2, 4), .each = 1, .divisor = 1};
                w.dtype = (dt_dtype)dtype;
                check(&w, 1, copies, parts);
                check(&w, 7, copies, parts);
            }
}
END_TEST

START_TEST(reductions_of_every_dtype) {
    device();
    for (int level = 0; level < levels_count(); level++) {
        select_level(level);
        for (int dtype = 0; dtype < DT_DTYPE_COUNT; dtype++)
            for (int kind = DT_PARTIAL_SUM; kind < DT_PLACEMENT_KINDS; kind++)
                for (int each = 2; each <= 11; each += 9) {
                    bool is_float = dt_dtype_is_float((dt_dtype)dtype);
                    if (kind == DT_PARTIAL_AVG && !is_float) continue;
                    if (kind == DT_PARTIAL_PRODUCT && each > 2) continue; /* may overflow */
                    if (kind == DT_PARTIAL_SUM && each > 2 && !is_float) continue;
                    if (dtype <= DT_I16 && kind == DT_PARTIAL_PRODUCT) continue;
                    wanted w = {.grid = SHAPE(1, 2), .each = each, .divisor = 1};
                    w.dtype = (dt_dtype)dtype;
                    w.kind = (dt_placement_kind)kind;
                    if (kind == DT_PARTIAL_AVG) w.divisor = each;
                    check(&w, 9, 2, 1);
                    check(&w, 9, 1, 3);
                }
    }
    select_level(levels_count() - 1);
}
END_TEST

/* Rows shorter and longer than the blocks in which a reduction goes, and streamed results. */
START_TEST(large_pieces) {
    device();
    for (int each = 1; each <= 3; each += 2) {
        wanted w = {.grid = SHAPE(2, 1), .each = each, .divisor = 1, .dtype = DT_F32};
        w.kind = each > 1 ? DT_PARTIAL_SUM : DT_REPLICATE;
        check(&w, 401, 1, 3);
        check(&w, 800, 1, 4);
        wanted wide = w;
        wide.grid = SHAPE(1, 3);
        check(&wide, 300, 3, 2);
    }
}
END_TEST

START_TEST(scalars_and_nothing) {
    dt_tensor *a = tensor_of(DT_F32, SCALAR_SHAPE, (double[]){2}), *out[2] = {NULL, NULL};
    dt_tensor *both[] = {a, a}, *none = tensor_new(DT_I8, SHAPE(0, 3)), *empty = NULL;
    dt_assembly how = {.rank = 0, .reduction = DT_PARTIAL_SUM, .divisor = 1};
    device();
    ck_assert_ok(dt_assemble(&how, 2, both, 2, out));
    ck_assert(value_at(out[0], 0) == 4 && value_at(out[1], 0) == 4);
    ck_assert_ptr_ne(out[0]->storage, out[1]->storage);
    ck_assert_ok(dt_assemble_copy(none, &empty));
    ck_assert_int_eq(empty->numel, 0);
    ck_assert_int_eq(empty->shape[1], 3);
    dt_tensor *const all[] = {a, none, empty, out[0], out[1]};
    for (int k = 0; k < 5; k++) dt_tensor_release(all[k]);
}
END_TEST

/* Into windows of tensors that are there already, and more copies than one call has outputs. */
START_TEST(results_are_written_where_told) {
    enum { COPIES = DT_OUTS_MAX + 3 };
    dt_tensor *a = VECTOR(DT_F32, 1, 2), *whole[COPIES], *out[COPIES];
    dt_assembly how = {.rank = 1, .grid = {1}, .divisor = 1};
    device();
    for (int k = 0; k < COPIES; k++) {
        whole[k] = VECTOR(DT_F32, 7, 7, 7, 7);
        ck_assert_ok(dt_narrow_view(whole[k], 0, 1, 2, &out[k]));
    }
    ck_assert_ok(dt_assemble(&how, 1, &a, COPIES, out));
    for (int k = 0; k < COPIES; k++) {
        ck_assert(value_at(whole[k], 0) == 7 && value_at(whole[k], 1) == 1);
        ck_assert(value_at(whole[k], 2) == 2 && value_at(whole[k], 3) == 7);
        dt_tensor_release(out[k]);
        dt_tensor_release(whole[k]);
    }
    dt_tensor_release(a);
}
END_TEST

START_TEST(pieces_that_do_not_fit) {
    dt_tensor *a = VECTOR(DT_F32, 1, 2), *b = VECTOR(DT_F32, 1), *c = VECTOR(DT_I32, 1, 2);
    dt_tensor *out = NULL;
    dt_assembly how = {.rank = 1, .grid = {1}, .reduction = DT_PARTIAL_SUM, .divisor = 1};
    device();
    ck_assert_fails(dt_assemble(&how, 2, (dt_tensor *[]){a, b}, 1, &out), DT_E_RUNTIME,
                    "the parts of a tensor on a mesh do not fit together");
    ck_assert_fails(dt_assemble(&how, 2, (dt_tensor *[]){a, c}, 1, &out), DT_E_RUNTIME,
                    "the parts of a tensor on a mesh do not fit together");
    how.divisor = 2;
    ck_assert_fails(dt_assemble(&how, 2, (dt_tensor *[]){c, c}, 1, &out), DT_E_PLACEMENT,
                    "Partial('avg') needs a tensor of floats, not of int32");
    dt_tensor_release(a);
    dt_tensor_release(b);
    dt_tensor_release(c);
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("assemble");
    TEST_CASE(s, "assemble", grids_of_every_dtype, reductions_of_every_dtype, large_pieces,
              scalars_and_nothing, results_are_written_where_told, pieces_that_do_not_fit);
    return s;
}

int main(void) { return test_run(suite()); }
