/* test_kernel.c: building, moving and running calls, with kernels made up here. */
#include <check.h>
#include <string.h>

#include "runtime/kernel.h"
#include "tests/c/test_support.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

static dt_tensor *vector(int64_t n) {
    dt_tensor *t = NULL;
    ck_assert_ok(dt_tensor_new(DT_I64, 1, &n, &t));
    return t;
}

/* ---- made-up kernels ------------------------------------------------------------------------- */

static int runs, finishes, parts_wanted, fail_at_part;
static size_t scratch_wanted;

static void reset(void) {
    runs = finishes = 0;
    parts_wanted = 1;
    fail_at_part = -1;
    scratch_wanted = 0;
}

static int wanted_parts(const dt_call *call, int threads) {
    (void)call;
    ck_assert_int_eq(threads, 1);
    return parts_wanted;
}

static size_t wanted_scratch(const dt_call *call, int parts) {
    (void)call;
    ck_assert_int_eq(parts, parts_wanted);
    return scratch_wanted;
}

static double no_cost(const dt_call *call) {
    (void)call;
    return 1;
}

static void check_part(const dt_call *call, const dt_part *part) {
    ck_assert_int_eq(part->count, parts_wanted);
    ck_assert_uint_eq(part->scratch_bytes, scratch_wanted);
    if (scratch_wanted != 0) {
        ck_assert_ptr_nonnull(part->scratch);
        ck_assert_uint_eq((uintptr_t)part->scratch % 64, 0);
    }
    for (int k = 0; k < call->nout; k++)
        ck_assert_ptr_nonnull(atomic_load(&dt_call_out(call, k)->storage->data));
}

/* Every part counts in the shared scratch; finish writes the sum to the output. */
static dt_status count_run(const dt_call *call, const dt_part *part) {
    check_part(call, part);
    ck_assert_int_eq(part->index, runs++);
    if (part->index == fail_at_part) return dt_fail(DT_E_VALUE, "part %d", part->index);
    if (scratch_wanted != 0) memset(part->scratch, part->index, part->scratch_bytes);
    return DT_OK;
}

static dt_status count_finish(const dt_call *call, const dt_part *part) {
    check_part(call, part);
    finishes++;
    if (scratch_wanted != 0) {
        const unsigned char *scratch = part->scratch;
        ck_assert_int_eq(scratch[0], parts_wanted - 1); /* the parts' scratch, still there */
        ck_assert_int_eq(scratch[scratch_wanted - 1], parts_wanted - 1);
    }
    int64_t *out = dt_tensor_data(dt_call_out(call, 0));
    out[0] = runs;
    return DT_OK;
}

static const dt_kernel counting = {
    .name = "counting",
    .run = count_run,
    .parts = wanted_parts,
    .scratch_bytes = wanted_scratch,
    .finish = count_finish,
    .cost_ns = no_cost,
};

static dt_status add_run(const dt_call *call, const dt_part *part) {
    ck_assert_int_eq(part->index, 0);
    ck_assert_int_eq(part->count, 1);
    ck_assert_uint_eq(part->scratch_bytes, 0);
    int64_t *out = dt_tensor_data(dt_call_out(call, 0));
    const int64_t *a = dt_tensor_data(dt_call_in(call, 0));
    for (int64_t k = 0; k < dt_call_out(call, 0)->numel; k++) {
        const dt_tensor *b = dt_call_in(call, 1);
        out[k] = a[k] + (b != NULL ? ((const int64_t *)dt_tensor_data(b))[k]
                                   : dt_scalar_i64(call->immediates[1]));
    }
    return DT_OK;
}

static const dt_kernel add = {.name = "add", .run = add_run, .cost_ns = no_cost};

/* ---- running --------------------------------------------------------------------------------- */

START_TEST(simple_call) {
    dt_memory_stats before = test_memory();
    dt_call call;
    ck_assert_ok(dt_call_init(&call, 1, 2));
    call.kernel = &add;
    call.operands[0] = vector(100);
    call.operands[1] = vector(100);
    ck_assert_ptr_eq(dt_call_out(&call, 0), call.operands[0]);
    ck_assert_ptr_eq(dt_call_in(&call, 0), call.operands[1]);
    ck_assert_ptr_null(dt_call_in(&call, 1));
    call.immediates[1] = (dt_scalar){.category = DT_CAT_INT, .i = 5};
    ck_assert_ok(dt_storage_materialize(call.operands[1]->storage));
    int64_t *in = dt_tensor_data(call.operands[1]);
    for (int k = 0; k < 100; k++) in[k] = k;
    ck_assert_ok(dt_call_run_inline(&call)); /* also takes the output's memory */
    for (int k = 0; k < 100; k++)
        ck_assert_int_eq(((int64_t *)dt_tensor_data(call.operands[0]))[k], k + 5);
    dt_call_fini(&call);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(parts_scratch_and_finish) {
    dt_memory_stats before = test_memory();
    const size_t scratches[] = {0, 1, 64, 4096, 4097, 3 << 20};
    for (size_t s = 0; s < sizeof scratches / sizeof scratches[0]; s++)
        for (int parts = 1; parts <= 4; parts += 3) {
            reset();
            scratch_wanted = scratches[s];
            parts_wanted = parts;
            dt_call call;
            ck_assert_ok(dt_call_init(&call, 1, 0));
            call.kernel = &counting;
            call.operands[0] = vector(1);
            ck_assert_ok(dt_call_run_inline(&call));
            ck_assert_int_eq(runs, parts);
            ck_assert_int_eq(finishes, 1);
            ck_assert_int_eq(*(int64_t *)dt_tensor_data(call.operands[0]), parts);
            dt_call_fini(&call);
            test_assert_no_leak(before);
        }
}
END_TEST

START_TEST(a_failed_part_ends_the_call) {
    dt_memory_stats before = test_memory();
    for (size_t scratch = 0; scratch <= 10000; scratch += 5000) {
        reset();
        scratch_wanted = scratch;
        parts_wanted = 5;
        fail_at_part = 2;
        dt_call call;
        ck_assert_ok(dt_call_init(&call, 1, 0));
        call.kernel = &counting;
        call.operands[0] = vector(1);
        ck_assert_fails(dt_call_run_inline(&call), DT_E_VALUE, "part 2");
        ck_assert_int_eq(runs, 3);
        ck_assert_int_eq(finishes, 0);
        dt_call_fini(&call);
        test_assert_no_leak(before);
    }
}
END_TEST

START_TEST(materialize_takes_every_output) {
    dt_call call;
    ck_assert_ok(dt_call_init(&call, 2, 1));
    for (int k = 0; k < 3; k++) call.operands[k] = vector(1000);
    ck_assert_ok(dt_call_materialize(&call));
    ck_assert_ptr_nonnull(atomic_load(&call.operands[0]->storage->data));
    ck_assert_ptr_nonnull(atomic_load(&call.operands[1]->storage->data));
    ck_assert_ptr_null(atomic_load(&call.operands[2]->storage->data)); /* an input */
    dt_call_fini(&call);
}
END_TEST

/* ---- building and moving --------------------------------------------------------------------- */

START_TEST(init_is_empty) {
    dt_call call;
    memset(&call, 0xff, sizeof call);
    ck_assert_ok(dt_call_init(&call, 2, 3));
    ck_assert_int_eq(call.nout, 2);
    ck_assert_int_eq(call.nin, 3);
    ck_assert_ptr_eq(call.operands, call.operands_inline);
    for (int k = 0; k < DT_CALL_OPERANDS_INLINE; k++) ck_assert_ptr_null(call.operands[k]);
    for (int k = 0; k < DT_PARAMS_I; k++) ck_assert_int_eq(call.params.i[k], 0);
    ck_assert_ptr_null(call.params.owned);
    ck_assert_ptr_null(call.kernel);
    dt_call_fini(&call);
}
END_TEST

START_TEST(many_operands_are_on_the_heap) {
    dt_memory_stats before = test_memory();
    for (int nin = DT_CALL_OPERANDS_INLINE - 2; nin <= 1000; nin += nin < 12 ? 1 : 494) {
        dt_call call, moved;
        ck_assert_ok(dt_call_init(&call, 1, nin));
        ck_assert_int_eq(call.operands == call.operands_inline, 1 + nin <= DT_CALL_OPERANDS_INLINE);
        dt_tensor *shared = vector(3);
        for (int k = 0; k <= nin; k += 2) call.operands[k] = dt_tensor_retain(shared);
        dt_call_move(&moved, &call);
        ck_assert_int_eq(moved.nin, nin);
        ck_assert_int_eq(moved.operands == moved.operands_inline,
                         1 + nin <= DT_CALL_OPERANDS_INLINE);
        for (int k = 0; k <= nin; k++)
            ck_assert_ptr_eq(moved.operands[k], k % 2 == 0 ? shared : NULL);
        ck_assert_int_eq(call.nout + call.nin, 0);
        dt_call_fini(&call); /* harmless */
        dt_call_fini(&moved);
        ck_assert_uint_eq(atomic_load(&shared->refs), 1);
        dt_tensor_release(shared);
        dt_call_fini(&moved); /* and twice */
    }
    test_assert_no_leak(before);
}
END_TEST

START_TEST(owned_params_are_freed_once) {
    dt_memory_stats before = test_memory();
    dt_call call, moved;
    ck_assert_ok(dt_call_init(&call, 0, 0));
    call.params.owned = dt_alloc(100);
    call.params.owned_size = 100;
    call.params.i[3] = 42;
    dt_call_move(&moved, &call);
    ck_assert_ptr_null(call.params.owned);
    ck_assert_int_eq(moved.params.i[3], 42);
    dt_call_fini(&call);
    dt_call_fini(&moved);
    test_assert_no_leak(before);
}
END_TEST

static dt_status build_and_run(void) {
    reset();
    scratch_wanted = 5000;
    dt_call call;
    DT_TRY(dt_call_init(&call, 1, 20));
    call.kernel = &counting;
    dt_status status = DT_OK;
    for (int k = 0; k < 3 && status == DT_OK; k++)
        status = dt_tensor_new(DT_I64, 1, DIMS(500), &call.operands[k]);
    if (status == DT_OK) status = dt_call_run_inline(&call);
    ck_assert_int_eq(finishes, status == DT_OK ? 1 : 0);
    dt_call_fini(&call);
    return status;
}

START_TEST(every_allocation_fails) {
    /* operand list, three tensors of two blocks, the output's bytes, scratch */
    ck_assert_int_eq(test_every_allocation_fails(build_and_run), 9);
}
END_TEST

START_TEST(fini_after_a_failed_init) {
    dt_call call;
    memset(&call, 0xff, sizeof call);
    dt_alloc_fail_at(1, false);
    ck_assert_int_eq(dt_call_init(&call, 1, 100), DT_E_NO_MEMORY);
    dt_alloc_fail_at(0, false);
    dt_call_fini(&call);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernel");
    TCase *tcase = tcase_create("run");
    tcase_add_checked_fixture(tcase, reset, NULL);
    tcase_add_test(tcase, simple_call);
    tcase_add_test(tcase, parts_scratch_and_finish);
    tcase_add_test(tcase, a_failed_part_ends_the_call);
    tcase_add_test(tcase, materialize_takes_every_output);
    tcase_add_test(tcase, every_allocation_fails);
    suite_add_tcase(suite, tcase);
    TEST_CASE(suite, "build", init_is_empty, many_operands_are_on_the_heap,
              owned_params_are_freed_once, fini_after_a_failed_init);
    return test_run(suite);
}
