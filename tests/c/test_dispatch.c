/* test_dispatch.c: the way of one op: lanes, order, failures, targets, external memory, no memory.
 *
 * The controller lane is forced by a task that holds a tensor for a while without changing it.
 */
#include "tests/c/dispatch_support.h"

/* ---- lanes
 * ------------------------------------------------------------------------------------------ */

START_TEST(ready_and_cheap_runs_here) {
    device();
    dt_tensor *a = VECTOR(DT_F32, 1, 2, 3), *b = VECTOR(DT_F32, 10, 20, 30), *c;
    ck_assert_ok(add_new(&c, a, b));
    ck_assert(!dt_runtime_started());
    ck_assert(!pending(c));
    ck_assert(value_at(c, 2) == 33);
    uint32_t version = atomic_load(&c->storage->version);
    ck_assert_ok(add_into(c, a));
    ck_assert_uint_eq(atomic_load(&c->storage->version), version + 1);
    ck_assert(value_at(c, 2) == 36);
    dt_tensor_release(a);
    dt_tensor_release(b);
    dt_tensor_release(c);
}
END_TEST

/* The same ops, with inputs ready or pending. */
START_TEST(both_lanes_give_equal_values) {
    device();
    dt_tensor *x = tensor_laid_out(DT_F32, SHAPE(6, 10), TRANSPOSED), *results[2][7];
    fill_random(x, 51);
    dt_tensor *index = VECTOR(DT_I64, 3, 0, 5);
    for (int lane = 0; lane < 2; lane++) {
        dt_tensor **r = results[lane];
        dt_arg a = arg_tensor(x), no = arg_bool(false);
        if (lane == 1) ck_assert_ok(hold_on(x, DT_OK));
        ck_assert_int_eq(pending(x), lane);
        ck_assert_ok(DO(&r[0], DT_OP_exp, a));
        ck_assert_ok(DO(&r[1], DT_OP_add, a, arg_float(0.3), arg_float(2)));
        ck_assert_ok(DO(&r[2], DT_OP_sum, a, arg_dims(1), no, arg_none()));
        ck_assert_ok(DO(&r[3], DT_OP_softmax, a, arg_int(0), arg_none()));
        ck_assert_ok(DO(&r[4], DT_OP_index_select, a, arg_int(0), arg_tensor(index)));
        ck_assert_ok(DO(&r[5], DT_OP_cumsum, a, arg_int(1), arg_dtype(DT_F64)));
        ck_assert_ok(DO(&r[6], DT_OP_softmax, a, arg_int(1), arg_dtype(DT_F64)));
        if (lane == 1) ck_assert(pending(r[0]) && pending(r[3]));
        atomic_store(&let_go, true);
        for (int k = 0; k < 7; k++) ck_assert_ok(await(r[k]));
    }
    for (int k = 0; k < 7; k++) {
        assert_same_bits(results[1][k], results[0][k], "lane");
        for (int lane = 0; lane < 2; lane++) dt_tensor_release(results[lane][k]);
    }
    dt_tensor_release(x);
    dt_tensor_release(index);
}
END_TEST

/* nonzero: of ready inputs its size is known at once, of pending ones when it has run. */
START_TEST(sizes_come_with_the_value) {
    device();
    dt_tensor *x = VECTOR(DT_F32, 0, 2, 0, 3), *places, *copy;
    for (int lane = 0; lane < 2; lane++) {
        if (lane == 1) ck_assert_ok(hold_on(x, DT_OK));
        ck_assert_ok(DO(&places, DT_OP_nonzero__new, arg_tensor(x)));
        ck_assert_int_eq(dt_tensor_is_deferred(places), lane);
        if (lane == 1) {
            ck_assert(pending(places) && dt_tensor_is_deferred(places));
            ck_assert_ok(DO(&copy, DT_OP_clone__deferred, arg_tensor(places)));
            atomic_store(&let_go, true);
            ck_assert_ok(await(copy));
            ck_assert(!dt_tensor_is_deferred(copy) && copy->shape[0] == 2);
            ck_assert_ok(await(places));
            assert_same_bits(copy, places, "copy");
            dt_tensor_release(copy);
        }
        ck_assert_ok(await(places));
        ck_assert(!dt_tensor_is_deferred(places) && places->shape[0] == 2);
        ck_assert(value_at(places, 0) == 1 && value_at(places, 1) == 3);
        dt_tensor_release(places);
    }
    dt_tensor_release(x);
}
END_TEST

START_TEST(sizes_of_what_failed_stay_unknown) {
    device();
    dt_tensor *x = VECTOR(DT_F32, 0, 2), *places, *dropped, *later;
    ck_assert_ok(hold_on(x, DT_E_VALUE));
    ck_assert_ok(DO(&places, DT_OP_nonzero__new, arg_tensor(x)));
    ck_assert_ok(DO(&dropped, DT_OP_nonzero__new, arg_tensor(x)));
    dt_tensor_release(dropped);
    atomic_store(&let_go, true);
    ck_assert_int_eq(await(places), DT_E_VALUE);
    ck_assert(dt_tensor_is_deferred(places));
    ck_assert_ok(DO(&later, DT_OP_clone__deferred, arg_tensor(places)));
    ck_assert_int_eq(await(later), DT_E_VALUE);
    ck_assert(dt_tensor_is_deferred(later));
    dt_tensor *all[] = {x, places, later};
    for (int k = 0; k < 3; k++) dt_tensor_release(all[k]);
}
END_TEST

START_TEST(a_view_of_a_pending_tensor_is_pending) {
    device();
    dt_tensor *x = VECTOR(DT_I64, 1, 2, 3, 4), *v, *y;
    ck_assert_ok(hold_on(x, DT_OK));
    ck_assert_ok(
        DO(&v, DT_OP_slice__dim, arg_tensor(x), arg_int(0), arg_int(1), arg_int(4), arg_int(2)));
    ck_assert(pending(v));
    ck_assert_ok(add_new(&y, v, v));
    ck_assert(pending(y));
    atomic_store(&let_go, true);
    ck_assert_ok(await(y));
    ck_assert(value_at(y, 0) == 4 && value_at(y, 1) == 8);
    dt_tensor_release(x);
    dt_tensor_release(v);
    dt_tensor_release(y);
}
END_TEST

/* ---- program order
 * ------------------------------------------------------------------------------------ */

#define STORAGES 4
#define CELLS 24
#define SUMS 400

typedef struct place {
    int storage, offset, step, n;
} place;

static uint64_t cells[STORAGES][CELLS]; /* what a run op by op gives */
static dt_tensor *bases[STORAGES];

static place random_place(uint64_t *seed, int n) {
    place p = {.storage = (int)test_random_in(seed, 0, STORAGES - 1), .n = n};
    p.step = (int)test_random_in(seed, 1, 3);
    p.offset = (int)test_random_in(seed, 0, CELLS - 1 - (n - 1) * p.step);
    return p;
}

static dt_tensor *view_at(place p) {
    return view_of(bases[p.storage], SHAPE(p.n), (int64_t[]){p.step}, p.offset);
}

static uint64_t *cell(place p, int k) { return &cells[p.storage][p.offset + k * p.step]; }

static void step_of_program(uint64_t *seed, dt_tensor **sums, uint64_t *wanted, int *count) {
    int n = (int)test_random_in(seed, 1, 8), kind = (int)test_random_in(seed, 0, 7);
    place to = random_place(seed, n), from = random_place(seed, n);
    dt_tensor *a = view_at(to), *b = view_at(from), *fresh;
    uint64_t values[8];
    for (int k = 0; k < n; k++) values[k] = *cell(from, k);
    switch (kind) {
    case 0:
    case 1: { /* to += from; dense operands that meet are refused */
        dt_status status = add_into(a, b);
        if (status == DT_OK)
            for (int k = 0; k < n; k++) *cell(to, k) += values[k];
        else
            ck_assert(status == DT_E_RUNTIME && to.storage == from.storage);
        break;
    }
    case 2:
        ck_assert_ok(fill(a, 7));
        for (int k = 0; k < n; k++) *cell(to, k) = 7;
        break;
    case 3:
        ck_assert_ok(hold(a, test_random_in(seed, 0, 200000), DT_OK));
        break;
    case 4: /* to[:] = (from + from).clone(), by way of a tensor that dies at once */
        ck_assert_ok(add_new(&fresh, b, b));
        ck_assert_ok(dt_copy_into(a, fresh));
        dt_tensor_release(fresh);
        for (int k = 0; k < n; k++) *cell(to, k) = values[k] * 2;
        break;
    case 5: /* out= of an op that cannot write there by itself; reads what it overwrites */
        ck_assert_ok(DO_OUT(a, DT_OP_cumsum, arg_tensor(b), arg_int(0), arg_none()));
        for (int k = 0; k < n; k++) *cell(to, k) = values[k] + (k ? *cell(to, k - 1) : 0);
        break;
    case 6:
        ck_assert_ok(DO_OUT(a, DT_OP_mul, arg_tensor(a), arg_integer(3)));
        for (int k = 0; k < n; k++) *cell(to, k) *= 3;
        break;
    default:
        if (*count == SUMS) break;
        ck_assert_ok(
            DO(&sums[*count], DT_OP_sum, arg_tensor(b), arg_none(), arg_bool(false), arg_none()));
        wanted[*count] = 0;
        for (int k = 0; k < n; k++) wanted[*count] += values[k];
        ++*count;
    }
    dt_tensor_release(a);
    dt_tensor_release(b);
}

static void run_program(uint64_t program) {
    static dt_tensor *sums[SUMS];
    static uint64_t wanted[SUMS];
    int count = 0;
    uint64_t seed = program;
    for (int s = 0; s < STORAGES; s++) {
        bases[s] = tensor_new(DT_I64, SHAPE(CELLS));
        for (int k = 0; k < CELLS; k++) cells[s][k] = (uint64_t)s * 100 + (uint64_t)k;
        memcpy(dt_tensor_data(bases[s]), cells[s], sizeof cells[s]);
    }
    for (int k = 0; k < 150; k++) step_of_program(&seed, sums, wanted, &count);
    for (int k = 0; k < count; k++) {
        ck_assert_ok(await(sums[k]));
        EXPECT(*(uint64_t *)dt_tensor_data(sums[k]) == wanted[k],
               "program %d: sum %d is %lld, not %lld", (int)program, k,
               (long long)value_at(sums[k], 0), (long long)wanted[k]);
        dt_tensor_release(sums[k]);
    }
    for (int s = 0; s < STORAGES; s++) {
        ck_assert_ok(await(bases[s]));
        for (int k = 0; k < CELLS; k++)
            EXPECT(((uint64_t *)dt_tensor_data(bases[s]))[k] == cells[s][k],
                   "program %d: storage %d cell %d is %lld, not %lld", (int)program, s, k,
                   (long long)value_at(bases[s], k), (long long)cells[s][k]);
        dt_tensor_release(bases[s]);
    }
}

START_TEST(random_programs_run_in_order) {
    device();
    for (uint64_t program = 1; program <= (TEST_SANITIZED ? 20 : 60); program++)
        run_program(program);
}
END_TEST

/* ---- failures
 * --------------------------------------------------------------------------------------- */

static dt_status divide(dt_tensor **out, dt_tensor *a, dt_tensor *b) {
    return DO(out, DT_OP_floor_divide, arg_tensor(a), arg_tensor(b));
}

/* int // 0 shows when it is read, with the inputs ready and pending. */
START_TEST(value_errors_are_late_in_both_lanes) {
    device();
    for (int lane = 0; lane < 2; lane++) {
        dt_tensor *a = VECTOR(DT_I64, 1, 2), *zero = VECTOR(DT_I64, 1, 0), *q, *y, *s;
        if (lane == 1) ck_assert_ok(hold(a, 10 * MS, DT_OK));
        ck_assert_ok(divide(&q, a, zero));
        ck_assert_ok(add_new(&y, q, a)); /* fails with the same error, without running */
        ck_assert_ok(DO(&s, DT_OP_sum, arg_tensor(y), arg_none(), arg_bool(false), arg_none()));
        ck_assert_fails(await(q), DT_E_ZERO_DIVISION, "ZeroDivisionError");
        ck_assert_fails(await(y), DT_E_ZERO_DIVISION, "ZeroDivisionError");
        ck_assert_fails(await(s), DT_E_ZERO_DIVISION, "ZeroDivisionError");
        ck_assert_ok(await(a)); /* only read: as good as before */
        ck_assert_ok(add_into(a, a));
        ck_assert(value_at(a, 1) == 4);
        dt_tensor_release(a);
        dt_tensor_release(zero);
        dt_tensor_release(q);
        dt_tensor_release(y);
        dt_tensor_release(s);
    }
}
END_TEST

/* Whether the failure is known at the call or not, an op that overwrites the bytes gives the same.
 */
START_TEST(a_failed_storage_stays_failed) {
    device();
    for (int lane = 0; lane < 3; lane++) {
        dt_tensor *x = VECTOR(DT_I64, 1, 2, 3), *zero = VECTOR(DT_I64, 0, 0, 0), *y;
        if (lane == 0) {
            ck_assert_ok(DO_INPLACE(x, DT_OP_floor_divide, arg_tensor(x), arg_tensor(zero)));
        } else {
            ck_assert_ok(hold(x, 5 * MS, DT_E_ZERO_DIVISION));
            if (lane == 2) ck_assert_int_eq(await(x), DT_E_ZERO_DIVISION);
        }
        ck_assert_ok(fill(x, 9));
        ck_assert_int_eq(await(x), DT_E_ZERO_DIVISION);
        ck_assert_ok(add_new(&y, x, x));
        ck_assert_int_eq(await(y), DT_E_ZERO_DIVISION);
        dt_tensor_release(x);
        dt_tensor_release(zero);
        dt_tensor_release(y);
    }
}
END_TEST

/* A failed input does not reach back to ops that were called before. */
START_TEST(failures_keep_the_order) {
    device();
    dt_tensor *x = VECTOR(DT_I64, 1, 2), *zero = VECTOR(DT_I64, 0, 0), *bad, *before;
    ck_assert_ok(divide(&bad, x, zero));
    ck_assert_ok(hold(x, 10 * MS, DT_OK));
    ck_assert_ok(add_new(&before, x, x));
    ck_assert_ok(add_into(x, bad));
    ck_assert_fails(await(x), DT_E_ZERO_DIVISION, "ZeroDivisionError");
    ck_assert_ok(await(before));
    ck_assert(value_at(before, 1) == 4);
    dt_tensor_release(x);
    dt_tensor_release(zero);
    dt_tensor_release(bad);
    dt_tensor_release(before);
}
END_TEST

START_TEST(a_failed_rule_leaves_nothing) {
    device();
    dt_memory_stats before = test_memory();
    dt_tensor *a = VECTOR(DT_F32, 1, 2, 3), *b = VECTOR(DT_F32, 1, 2);
    ck_assert_fails(add_new(&(dt_tensor *){NULL}, a, b), DT_E_RUNTIME,
                    "The size of tensor a (3) must match the size of tensor b (2) at non-singleton "
                    "dimension 0");
    ck_assert_uint_eq(atomic_load(&a->refs), 1);
    dt_tensor_release(a);
    dt_tensor_release(b);
    test_assert_no_leak(before);
}
END_TEST

/* ---- targets
 * ------------------------------------------------------------------------------------------ */

START_TEST(in_place_checks) {
    device();
    dt_tensor *i = VECTOR(DT_I64, 1, 2, 3), *f = VECTOR(DT_F32, 0.5, 1, 2);
    ck_assert_fails(add_into(i, f), DT_E_RUNTIME,
                    "result type Float can't be cast to the desired output type Long");
    dt_tensor *wide = tensor_new(DT_I64, SHAPE(2, 3));
    ck_assert_fails(add_into(i, wide), DT_E_RUNTIME,
                    "output with shape [3] doesn't match the broadcast shape [2, 3]");
    ck_assert_ok(add_into(f, i)); /* Long into Float is fine */
    ck_assert(value_at(f, 0) == 1.5L);
    dt_tensor *one = VECTOR(DT_F32, 1), *spread = view_of(one, SHAPE(3), (int64_t[]){0}, 0);
    ck_assert_fails(DO_INPLACE(spread, DT_OP_cos, arg_tensor(spread)), DT_E_RUNTIME,
                    "unsupported operation: more than one element of the written-to tensor refers "
                    "to a single memory location. Please clone() the tensor before performing the "
                    "operation.");
    dt_tensor *x = VECTOR(DT_I64, 1, 2, 3, 4, 5);
    dt_tensor *head = view_of(x, SHAPE(4), (int64_t[]){1}, 0),
              *tail = view_of(x, SHAPE(4), (int64_t[]){1}, 1);
    ck_assert_fails(add_into(tail, head), DT_E_RUNTIME,
                    "unsupported operation: some elements of the input tensor and the written-to "
                    "tensor refer to a single memory location. Please clone() the tensor before "
                    "performing the operation.");
    dt_tensor *copy;
    ck_assert_ok(DO(&copy, DT_OP_clone, arg_tensor(head)));
    ck_assert_ok(dt_copy_into(tail, copy));
    for (int k = 0; k < 5; k++) ck_assert(value_at(x, k) == (k ? k : 1));
    dt_tensor *all[] = {i, f, wide, one, spread, x, head, tail, copy};
    for (int k = 0; k < 9; k++) dt_tensor_release(all[k]);
}
END_TEST

/* Strided operands that interleave: the input is copied first. */
START_TEST(interleaved_overlap_is_copied) {
    device();
    for (int lane = 0; lane < 2; lane++) {
        dt_tensor *x = VECTOR(DT_I64, 1, 2, 3, 4, 5, 6, 7);
        dt_tensor *even = view_of(x, SHAPE(3), (int64_t[]){2}, 2);
        dt_tensor *from = view_of(x, SHAPE(3), (int64_t[]){2}, 0);
        if (lane) ck_assert_ok(hold(x, 5 * MS, DT_OK));
        ck_assert_ok(add_into(even, from)); /* 3+1, 5+3, 7+5 */
        ck_assert_ok(await(x));
        const int want[] = {1, 2, 4, 4, 8, 6, 12};
        for (int k = 0; k < 7; k++) ck_assert(value_at(x, k) == want[k]);
        dt_tensor_release(x);
        dt_tensor_release(even);
        dt_tensor_release(from);
    }
}
END_TEST

START_TEST(out_of_another_dtype_layout_and_shape) {
    device();
    dt_tensor *a = tensor_new(DT_F32, SHAPE(2, 3));
    fill_random(a, 61);
    dt_tensor *wide = tensor_laid_out(DT_F64, SHAPE(2, 3), TRANSPOSED);
    ck_assert_ok(DO_OUT(wide, DT_OP_add, arg_tensor(a), arg_tensor(a), arg_integer(1)));
    for (int k = 0; k < 6; k++) ck_assert(value_at(wide, k) == 2 * value_at(a, k));
    dt_tensor *sums =
        tensor_laid_out(DT_F64, SHAPE(2, 3), SLICED); /* a kernel that needs a copy after */
    ck_assert_ok(DO_OUT(sums, DT_OP_cumsum, arg_tensor(a), arg_int(1), arg_none()));
    for (int k = 0; k < 2; k++)
        ck_assert(value_at(sums, 3 * k + 1) == value_at(a, 3 * k) + value_at(a, 3 * k + 1));
    dt_tensor *small = tensor_new(DT_F32, SHAPE(1));
    dt_op_call c;
    op_prepare(&c, DT_OP_neg, ARGS(arg_tensor(a)));
    c.target = small;
    ck_assert_ok(dt_dispatch(&c));
    ck_assert(c.replace_target && c.outs[0] != small);
    ck_assert(value_at(c.outs[0], 5) == -value_at(a, 5));
    dt_tensor_release(c.outs[0]);
    dt_tensor *ints = tensor_new(DT_I32, SHAPE(2, 3));
    ck_assert_fails(DO_OUT(ints, DT_OP_exp, arg_tensor(a)), DT_E_RUNTIME,
                    "result type Float can't be cast to the desired output type Int");
    dt_tensor *all[] = {a, wide, sums, small, ints};
    for (int k = 0; k < 5; k++) dt_tensor_release(all[k]);
}
END_TEST

/* ---- external memory
 * ------------------------------------------------------------------------------------ */

static void no_release(void *context) { ++*(int *)context; }

static dt_tensor *foreign(float *data, int64_t n, int *released, uint32_t flags) {
    dt_storage *s =
        dt_storage_new_foreign(data, sizeof(float) * (size_t)n, no_release, released, flags);
    dt_tensor *t = NULL;
    ck_assert_ptr_nonnull(s);
    ck_assert_ok(dt_tensor_new_over(s, DT_F32, 1, &n, (int64_t[]){1}, 0, &t));
    return t;
}

START_TEST(ops_are_done_with_external_memory_when_they_return) {
    device();
    enum { SMALL = 100, LARGE = 200000, HUGE_ONE = 400000 };
    static float data[HUGE_ONE];
    const int64_t sizes[] = {SMALL, LARGE, HUGE_ONE}; /* here; bytes copied; waited for */
    int released = 0;
    for (int k = 0; k < 3; k++)
        for (int held = 0; held < 2; held++) {
            int64_t n = sizes[k];
            for (int64_t i = 0; i < n; i++) data[i] = 1;
            dt_tensor *x = foreign(data, n, &released, 0), *w = tensor_new(DT_F32, SHAPE(1)), *y;
            set_value(w, 0, 2);
            if (held) ck_assert_ok(hold(w, 10 * MS, DT_OK));
            ck_assert_ok(add_new(&y, x, w));
            for (int64_t i = 0; i < n; i++) data[i] = 100; /* the outsider writes */
            ck_assert_ok(await(y));
            for (int64_t i = 0; i < n; i++) EXPECT(value_at(y, i) == 3, "element %d", (int)i);
            if (held) ck_assert_ok(hold(w, 10 * MS, DT_OK));
            ck_assert_ok(add_into(x, w));
            for (int64_t i = 0; i < n; i++)
                EXPECT(data[i] == 102, "element %d: %g", (int)i, data[i]);
            dt_tensor_release(x);
            dt_tensor_release(w);
            dt_tensor_release(y);
            for (int wait = 0; wait < 15000 && released < 2 * k + held + 1; wait++) {
                nanosleep(&(struct timespec){0, MS}, NULL);
                dt_graveyard_drain();
            }
            ck_assert_int_eq(released, 2 * k + held + 1);
        }
}
END_TEST

START_TEST(an_exported_storage_is_external_a_frozen_one_is_not) {
    device();
    static float data[8];
    int released = 0;
    dt_tensor *frozen = foreign(data, 8, &released, DT_STORAGE_FROZEN);
    dt_tensor *w = VECTOR(DT_F32, 1), *t = tensor_new(DT_F32, SHAPE(8)), *y, *z;
    memset(dt_tensor_data(t), 0, 32);
    ck_assert_ok(hold_on(w, DT_OK));
    ck_assert_ok(add_new(&y, frozen, w));
    ck_assert(pending(y));
    atomic_store(&let_go, true);
    ck_assert_ok(hold(w, 20 * MS, DT_OK));
    atomic_fetch_add(&t->storage->exports, 1);
    ck_assert_ok(add_new(&z, t, w));
    ck_assert(!pending(z));
    atomic_fetch_sub(&t->storage->exports, 1);
    ck_assert_ok(await(y));
    dt_tensor *all[] = {frozen, w, t, y, z};
    for (int k = 0; k < 5; k++) dt_tensor_release(all[k]);
}
END_TEST

START_TEST(read_only_memory_is_not_written) {
    device();
    static float data[4];
    int released = 0;
    dt_tensor *x = foreign(data, 4, &released, DT_STORAGE_FROZEN | DT_STORAGE_READONLY);
    ck_assert_fails(add_into(x, x), DT_E_RUNTIME,
                    "the tensor to be written shares read-only memory");
    dt_tensor_release(x);
}
END_TEST

/* ---- fences
 * ------------------------------------------------------------------------------------------- */

START_TEST(fences_wait_for_readers_and_writers) {
    device();
    dt_tensor *x = VECTOR(DT_I64, 1, 2), *slow = VECTOR(DT_I64, 3, 4), *y;
    dt_future *fence;
    ck_assert_ok(dt_tensor_fence(x, true, &fence));
    ck_assert_ptr_null(fence);
    ck_assert_ok(hold_on(slow, DT_OK));
    ck_assert_ok(add_new(&y, x, slow)); /* reads x once slow is there */
    ck_assert_ok(dt_tensor_fence(x, false, &fence));
    ck_assert_ptr_null(fence);
    ck_assert_ok(dt_tensor_fence(x, true, &fence));
    ck_assert_ptr_nonnull(fence);
    atomic_store(&let_go, true);
    ck_assert_ok(dt_future_wait(fence, -1, NULL, NULL));
    ck_assert(!pending(y));
    dt_future_release(fence);
    ck_assert_ok(hold_on(x, DT_E_VALUE));
    ck_assert_ok(dt_tensor_fence(x, true, &fence));
    atomic_store(&let_go, true);
    ck_assert_int_eq(await(x), DT_E_VALUE); /* not the fence's state */
    dt_future_release(fence);
    dt_tensor_release(x);
    dt_tensor_release(slow);
    dt_tensor_release(y);
}
END_TEST

/* ---- no memory
 * ------------------------------------------------------------------------------------------- */

static float outside[1000];
static int outside_released;

/* A dozen ops in both lanes; the first error, early or late. */
static dt_status dozen(void) {
    enum { RESULTS = 12 };
    dt_tensor *r[RESULTS] = {NULL}, *x = NULL, *big = NULL, *list[3];
    const int64_t n = 30, wide = 3000;
    dt_status status = dt_tensor_new(DT_F32, 1, &n, &x);
    if (status == DT_OK) status = dt_storage_materialize(x->storage);
    if (status == DT_OK) status = dt_tensor_new(DT_F32, 1, &wide, &big);
    if (status == DT_OK) status = fill(big, 2);
    if (status == DT_OK) status = fill(x, 1);
    if (status == DT_OK) status = hold(x, 100000, DT_OK);
    dt_arg a = arg_tensor(x), b = arg_tensor(big), no = arg_bool(false);
#define STEP(expr)                                                                                 \
    if (status == DT_OK) status = (expr)
    STEP(DO(&r[0], DT_OP_exp, a));
    STEP(DO(&r[1], DT_OP_sum, b, arg_none(), no, arg_none()));
    STEP(DO(&r[2], DT_OP_slice__dim, a, arg_int(0), arg_int(0), arg_int(30), arg_int(2)));
    STEP(DO(&r[3], DT_OP_contiguous, arg_tensor(r[2])));
    STEP(DO(&r[4], DT_OP_softmax, a, arg_int(0), arg_dtype(DT_F64)));
    STEP(DO_OUT(r[0], DT_OP_cumsum, a, arg_int(0), arg_none()));
    STEP(add_into(r[0], x));
    if (status == DT_OK) list[0] = list[2] = x, list[1] = r[4];
    STEP(DO(&r[5], DT_OP_cat, arg_list(list, 3), arg_int(0)));
    STEP(DO(&r[6], DT_OP_stack, arg_list(list, 3), arg_int(1)));
    STEP(DO(&r[7], DT_OP_max__dim, b, arg_int(0), no));
    STEP(await(x));
    STEP(DO(&r[8], DT_OP_mul, a, arg_float(3)));
    STEP(DO(&r[9], DT_OP_reshape, arg_tensor(r[2]), arg_dims(3, 5)));
    STEP(DO(&r[10], DT_OP_div, b, arg_float(3), arg_none()));
    for (int k = 0; k < RESULTS; k++) {
        if (!r[k]) continue;
        dt_status late = await(r[k]);
        if (status == DT_OK) status = late;
        dt_tensor_release(r[k]);
    }
    if (x) {
        dt_status late = await(x);
        if (status == DT_OK) status = late;
        dt_tensor_release(x);
    }
    if (big) dt_tensor_release(big);
    return status;
}

static dt_status external(void) {
    int64_t n = 1000;
    dt_storage *s =
        dt_storage_new_foreign(outside, sizeof outside, no_release, &outside_released, 0);
    if (!s) return dt_fail(DT_E_NO_MEMORY, "storage");
    dt_tensor *t = NULL, *y = NULL;
    dt_status status = dt_tensor_new_over(s, DT_F32, 1, &n, (int64_t[]){1}, 0, &t);
    if (status != DT_OK) dt_storage_release(s);
    STEP(DO(&y, DT_OP_cumsum, arg_tensor(t), arg_int(0), arg_dtype(DT_F64)));
    STEP(await(y));
    STEP(DO_INPLACE(t, DT_OP_erf, arg_tensor(t)));
    STEP(await(t));
    if (y) dt_tensor_release(y);
    if (t) dt_tensor_release(t);
    dt_graveyard_drain();
    return status;
}

/* External inputs beside others that are still to come: foreign ones, frozen ones, and storages
 * that were handed out; small ones are copied, the others waited for. */
static dt_status external_and_pending(void) {
    enum { RESULTS = 4 };
    dt_tensor *r[RESULTS] = {NULL}, *t = NULL, *frozen = NULL, *own = NULL, *slow = NULL;
    int64_t n = 1000;
    dt_status status = DT_OK;
    for (int k = 0; k < 2 && status == DT_OK; k++) {
        dt_storage *s = dt_storage_new_foreign(outside, sizeof outside, no_release,
                                               &outside_released, k == 1 ? DT_STORAGE_FROZEN : 0);
        if (!s) status = dt_fail(DT_E_NO_MEMORY, "storage");
        STEP(dt_tensor_new_over(s, DT_F32, 1, &n, (int64_t[]){1}, 0, k == 1 ? &frozen : &t));
        if (s && status != DT_OK) dt_storage_release(s);
    }
    STEP(dt_tensor_new(DT_F32, 1, &n, &own));
    STEP(fill(own, 2));
    STEP(await(own));
    STEP(dt_tensor_new(DT_F32, 1, &n, &slow));
    STEP(fill(slow, 1));
    STEP(hold(slow, 100000, DT_OK));
    STEP(add_new(&r[0], t, slow));
    STEP(add_new(&r[1], frozen, slow));
    if (own) atomic_fetch_add(&own->storage->exports, 1);
    STEP(DO(&r[2], DT_OP_cumsum, arg_tensor(own), arg_int(0), arg_dtype(DT_F64)));
    STEP(add_new(&r[3], own, slow));
    STEP(add_into(own, slow));
    STEP(await(own));
    if (own) atomic_fetch_sub(&own->storage->exports, 1);
    for (int k = 0; k < RESULTS; k++) {
        if (!r[k]) continue;
        dt_status late = await(r[k]);
        if (status == DT_OK) status = late;
        dt_tensor_release(r[k]);
    }
    if (slow) (void)!await(slow);
    dt_tensor *all[] = {t, frozen, own, slow};
    for (int k = 0; k < 4; k++)
        if (all[k]) dt_tensor_release(all[k]);
    dt_graveyard_drain();
    return status;
}

/* The controller frees tasks some time after their end, and a thread that starts late what it was
 * started with: less than before is what counts from then on. */
static void settle(dt_memory_stats *before) {
    for (int k = 0; k < 50000; k++) {
        dt_memory_stats now = test_memory();
        if (now.objects <= before->objects && now.live_bytes <= before->live_bytes) {
            *before = now;
            return;
        }
        nanosleep(&(struct timespec){0, MS / 5}, NULL);
        dt_graveyard_drain();
    }
    test_assert_no_leak(*before);
}

static void every_allocation_fails(dt_status (*scenario)(void)) {
    ck_assert_ok(scenario()); /* starts the runtime */
    dt_memory_stats before = test_memory();
    for (int calm = 0; calm < 20; calm++) { /* until the first run's tasks are gone */
        nanosleep(&(struct timespec){0, 5 * MS}, NULL);
        dt_memory_stats now = test_memory();
        if (now.objects != before.objects || now.live_bytes != before.live_bytes) calm = 0;
        before = now;
    }
    for (int n = 1, calm = 0; calm < 3; n++) {
        ck_assert_int_lt(n, 2000);
        dt_alloc_fail_at(n, false);
        dt_status status = scenario();
        settle(&before);
        int64_t counted = dt_alloc_fail_at(0, false);
        ck_assert_msg(status == DT_OK || status == DT_E_NO_MEMORY, "allocation %d: %s", n,
                      dt_status_name(status));
        calm = counted < n ? calm + 1 : 0; /* the threads' own allocations vary a little */
    }
}

START_TEST(no_memory_for_ops) {
    device();
    every_allocation_fails(dozen);
}
END_TEST

START_TEST(no_memory_for_external_ops) {
    device();
    every_allocation_fails(external);
}
END_TEST

START_TEST(no_memory_for_external_ops_that_wait) {
    device();
    every_allocation_fails(external_and_pending);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("dispatch");
    TEST_CASE(suite, "lanes", ready_and_cheap_runs_here, both_lanes_give_equal_values,
              sizes_come_with_the_value, sizes_of_what_failed_stay_unknown,
              a_view_of_a_pending_tensor_is_pending, random_programs_run_in_order);
    TEST_CASE(suite, "failures", value_errors_are_late_in_both_lanes, a_failed_storage_stays_failed,
              failures_keep_the_order, a_failed_rule_leaves_nothing);
    TEST_CASE(suite, "targets", in_place_checks, interleaved_overlap_is_copied,
              out_of_another_dtype_layout_and_shape);
    TEST_CASE(suite, "external", ops_are_done_with_external_memory_when_they_return,
              an_exported_storage_is_external_a_frozen_one_is_not, read_only_memory_is_not_written,
              fences_wait_for_readers_and_writers);
    TEST_CASE(suite, "memory", no_memory_for_ops, no_memory_for_external_ops,
              no_memory_for_external_ops_that_wait);
    return test_run(suite);
}
