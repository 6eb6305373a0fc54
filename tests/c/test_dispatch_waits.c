/* test_dispatch_waits.c: what waits, waits given up and handles dropped do to what is computed. */
#include "tests/c/dispatch_support.h"

/* Kernels that stand until the test lets them go on: nothing is decided by who is faster. */
static _Atomic(int) gates_open, gates_reached;

static dt_status gate_run(const dt_call *call, const dt_part *part) {
    (void)call;
    (void)part;
    atomic_fetch_add(&gates_reached, 1);
    while (!atomic_load(&gates_open)) nanosleep(&(struct timespec){0, 100000}, NULL);
    return DT_OK;
}
static const dt_kernel gate_kernel = {.name = "gate", .run = gate_run, .cost_ns = hold_cost};

/* t is written once the gate is open; the runtime's only worker stands before it. */
static void gate(dt_tensor *t) {
    dt_task *task;
    atomic_store(&gates_open, 0);
    int reached = atomic_load(&gates_reached);
    ck_assert_ok(dt_task_new(DT_TASK_COMPUTE, 1, 0, &task));
    task->call.kernel = &gate_kernel;
    task->call.operands[0] = dt_tensor_retain(t);
    task->call.params.i[0] = 1000000;
    ck_assert_ok(dt_runtime_submit(task, NULL));
    ck_assert_ok(dt_sched_set_threads(dt_runtime(), 1));
    while (atomic_load(&gates_reached) == reached) nanosleep(&(struct timespec){0, 100000}, NULL);
}
static void open_gate(void) { atomic_store(&gates_open, 1); }

/* Until what was submitted and told so far has been heard. */
static void settle_words(void) {
    dt_task *task;
    dt_future *future;
    ck_assert_ok(dt_task_new(DT_TASK_FENCE, 0, 0, &task));
    ck_assert_ok(dt_runtime_submit(task, &future));
    ck_assert_ok(dt_future_wait(future, -1, NULL, NULL));
    dt_future_release(future);
}

static dt_sched_stats counted(void) {
    dt_sched_stats stats;
    dt_sched_stats_get(dt_runtime(), &stats);
    return stats;
}

/* ---- who waits
 * ------------------------------------------------------------------------------------------- */

static dt_future *future_of(dt_tensor *t) {
    dt_future *future;
    ck_assert_int_eq(dt_tensor_state(t, &future), DT_FUTURE_PENDING);
    return future;
}

/* A wait that is given up puts the rest of the chain aside; waiting again brings it back. */
START_TEST(who_gives_up_parks_what_he_waited_for) {
    device();
    dt_tensor *x = VECTOR(DT_I64, 1, 2, 3), *t[3], *prev = x;
    gate(x);
    for (int k = 0; k < 3; k++, prev = t[k - 1]) ck_assert_ok(add_new(&t[k], prev, prev));
    dt_future *future = future_of(t[2]);
    dt_wait_begin(future, false);
    ck_assert(dt_future_is_wanted(future));
    dt_wait_begin(future, false); /* a second waiter */
    dt_wait_give_up(future);
    settle_words();
    ck_assert_int_eq(counted().parked, 0);
    dt_wait_give_up(future);
    ck_assert(dt_future_is_abandoned(future));
    settle_words();
    ck_assert_int_eq(counted().parked, 3);
    open_gate();
    ck_assert_ok(await(x));
    dt_tensor *other = VECTOR(DT_I64, 1);
    ck_assert_ok(hold(other, 100000, DT_OK)); /* the worker has given them back by the time ... */
    ck_assert_ok(await(other));
    settle_words(); /* ... and the controller has heard of it */
    for (int k = 0; k < 3; k++) ck_assert(pending(t[k]));
    dt_future_retain(future);
    dt_wait_begin(future, true); /* tells that what is parked is asked for */
    ck_assert_ok(dt_wait_block(dt_wait_block_begin(), future, -1, NULL, NULL));
    dt_wait_end(future);
    ck_assert(!dt_future_is_wanted(future));
    dt_future_release(future);
    ck_assert_ok(await(t[2]));
    ck_assert(value_at(t[2], 2) == 24);
    dt_tensor *all[] = {x, t[0], t[1], t[2], other};
    for (int k = 0; k < 5; k++) dt_tensor_release(all[k]);
}
END_TEST

/* A wait that is over, or whose outcome nobody cares about any more, parks nothing. */
START_TEST(the_end_of_a_wait_parks_nothing) {
    device();
    dt_tensor *x = VECTOR(DT_I64, 1, 2, 3), *y;
    gate(x);
    ck_assert_ok(add_new(&y, x, x));
    dt_future *future = future_of(y);
    dt_wait_begin(future, false);
    dt_wait_end(future);
    settle_words();
    ck_assert(!dt_future_is_wanted(future) && !dt_future_is_abandoned(future));
    ck_assert_int_eq(counted().parked, 0);
    open_gate();
    ck_assert_ok(await(y));
    ck_assert(value_at(y, 1) == 4);
    dt_tensor_release(x);
    dt_tensor_release(y);
}
END_TEST

/* The last handle of a value still to be computed: neither it nor what only it needs is.  The ops
 * cost too much to join the run of the gate, where only the last one would be dropped. */
START_TEST(dropped_handles_save_the_work) {
    device();
    dt_tensor *x = tensor_new(DT_I64, SHAPE(2000000)), *t[4], *prev = x;
    gate(x);
    for (int k = 0; k < 4; k++, prev = t[k - 1])
        ck_assert_ok(DO(&t[k], DT_OP_cumsum, arg_tensor(prev), arg_int(0), arg_none()));
    for (int k = 0; k < 3; k++) dt_tensor_drop_handle(t[k]); /* which are still read */
    settle_words();
    ck_assert_int_eq(counted().dropped, 0);
    dt_tensor_drop_handle(t[3]);
    settle_words();
    ck_assert_int_eq(counted().dropped, 4);
    open_gate();
    ck_assert_ok(await(x));
    ck_assert_int_eq(counted().failed, 0);
    dt_tensor_release(x);
}
END_TEST

/* Not the last one: another handle, a view, a reader that is kept, or the value is there. */
START_TEST(handles_that_others_stand_behind_save_nothing) {
    device();
    dt_tensor *x = VECTOR(DT_I64, 1, 2, 3), *a, *b, *c, *view, *reader;
    gate(x);
    ck_assert_ok(add_new(&a, x, x));
    ck_assert_ok(add_new(&b, x, x));
    ck_assert_ok(add_new(&c, x, x));
    dt_tensor_drop_handle(dt_tensor_retain(a));
    ck_assert_ok(
        DO(&view, DT_OP_slice__dim, arg_tensor(b), arg_int(0), arg_int(1), arg_int(3), arg_int(1)));
    dt_tensor_drop_handle(b);
    ck_assert_ok(add_new(&reader, c, c));
    dt_tensor_drop_handle(c);
    settle_words();
    open_gate();
    ck_assert_ok(await(a));
    ck_assert_ok(await(view));
    ck_assert_ok(await(reader));
    ck_assert(value_at(a, 0) == 2 && value_at(view, 1) == 6 && value_at(reader, 2) == 12);
    ck_assert_int_eq(counted().dropped, 0);
    dt_tensor *all[] = {x, a, view, reader};
    for (int k = 0; k < 4; k++) dt_tensor_drop_handle(all[k]); /* which are final */
    ck_assert_int_eq(counted().dropped, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("dispatch waits");
    TEST_CASE(suite, "waiting", who_gives_up_parks_what_he_waited_for,
              the_end_of_a_wait_parks_nothing, dropped_handles_save_the_work,
              handles_that_others_stand_behind_save_nothing);
    return test_run(suite);
}
