/* test_runtime.c: the process's scheduler: start, environment, shutdown, fork. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "futures/dispatch.h"
#include "tests/c/op_support.h"
#include "tests/c/sleep_support.h"

static OP_UNUSED void device(void) {
    dt_device_register_cpu(&dt_cpu_device);
    dt_storage_set_future_release(dt_future_release);
    unsetenv("DTORCH_NUM_THREADS");
}

static _Atomic(int) waits_begun;
static _Atomic(bool) forked;

static dt_status wait_run(const dt_call *call, const dt_part *part) {
    (void)part;
    atomic_fetch_add(&waits_begun, 1);
    if (call->params.i[0] > 0) usleep((useconds_t)call->params.i[0]);
    while (call->params.i[0] == 0 && !atomic_load(&forked)) usleep(1000);
    return DT_OK;
}
static double wait_cost(const dt_call *call) { return (double)call->params.i[0] * 1000; }
static const dt_kernel wait_kernel = {.name = "wait", .run = wait_run, .cost_ns = wait_cost};

/* us: 0 is until it has been forked. */
static dt_status hold(dt_tensor *t, int64_t us) {
    dt_task *task;
    DT_TRY(dt_task_new(DT_TASK_COMPUTE, 1, 0, &task));
    task->call.kernel = &wait_kernel;
    task->call.operands[0] = dt_tensor_retain(t);
    task->call.params.i[0] = us;
    return dt_runtime_submit(task, NULL);
}

static dt_status negate(dt_tensor *t, dt_tensor **out) {
    dt_op_call c;
    op_prepare(&c, DT_OP_neg, ARGS(arg_tensor(t)));
    DT_TRY(dt_dispatch(&c));
    *out = c.outs[0];
    return DT_OK;
}

static dt_status await(dt_tensor *t) {
    dt_future *future;
    if (dt_tensor_state(t, &future) == DT_FUTURE_PENDING)
        DT_TRY(dt_future_wait(future, -1, NULL, NULL));
    if (dt_tensor_state(t, &future) == DT_FUTURE_READY) return DT_OK;
    return dt_error_restore(dt_future_error(future));
}

START_TEST(starts_once_at_first_use) {
    ck_assert(!dt_runtime_started());
    dt_sched *first = dt_runtime();
    ck_assert_ptr_nonnull(first);
    ck_assert(dt_runtime_started());
    ck_assert_ptr_eq(dt_runtime(), first);
    ck_assert_int_eq(dt_sched_threads(first), dt_sched_default_threads());
    dt_runtime_shutdown();
}
END_TEST

START_TEST(the_environment_is_heeded) {
    setenv("DTORCH_NUM_THREADS", "3", 1);
    setenv("DTORCH_IO", "epoll", 1);
    dt_sched *sched = dt_runtime();
    ck_assert_ptr_nonnull(sched);
    ck_assert_int_eq(dt_sched_threads(sched), 3);
    ck_assert_str_eq(dt_sched_io_backend(sched), "epoll");
    dt_runtime_shutdown();
    unsetenv("DTORCH_IO");
}
END_TEST

/* An error of the environment keeps its class when an op meets it, and is one that can be mended.
 */
START_TEST(bad_settings_are_value_errors) {
    const char *bad[] = {"abc", "0", "-1", "1025", "2x", "99999999999999999999"};
    dt_tensor *t = VECTOR(DT_F32, 1);
    for (int k = 0; k < 6; k++) {
        setenv("DTORCH_NUM_THREADS", bad[k], 1);
        char text[160];
        snprintf(text, sizeof text,
                 "DTORCH_NUM_THREADS is '%s'; legal is an integer from 1 to 1024", bad[k]);
        ck_assert_ptr_null(dt_runtime());
        ck_assert_str_eq(dt_error_text(), text);
        ck_assert_fails(hold(t, 1), DT_E_VALUE, text);
        ck_assert(!dt_runtime_started());
    }
    unsetenv("DTORCH_NUM_THREADS");
    setenv("DTORCH_IO", "smoke", 1);
    ck_assert_int_eq(hold(t, 1), DT_E_VALUE);
    ck_assert_ptr_nonnull(strstr(dt_error_text(), "smoke"));
    unsetenv("DTORCH_IO"); /* mended: the next op starts the runtime */
    ck_assert_ok(hold(t, 1));
    ck_assert_ok(await(t));
    dt_tensor_release(t);
    dt_runtime_shutdown();
}
END_TEST

START_TEST(after_shutdown_no_task_starts) {
    dt_tensor *x = VECTOR(DT_F32, 1, 2), *y, *z;
    ck_assert_ok(hold(x, 20000));
    ck_assert_ok(negate(x, &y));
    dt_runtime_shutdown();
    ck_assert(!dt_runtime_started());
    ck_assert(dt_tensor_state(y, NULL) != DT_FUTURE_PENDING); /* ran, or ended with an error */
    dt_tensor *w = VECTOR(DT_F32, 5);
    ck_assert_fails(hold(w, 1), DT_E_SHUTDOWN,
                    "dtorch has been shut down: no op can be started any more");
    ck_assert_ok(negate(w, &z)); /* the inline lane needs no threads */
    ck_assert(value_at(z, 0) == -5);
    dt_runtime_shutdown(); /* twice is once */
    dt_tensor *all[] = {x, y, z, w};
    for (int k = 0; k < 4; k++) dt_tensor_release(all[k]);
}
END_TEST

/* ThreadSanitizer cannot follow new threads in the child of a threaded parent. */
#ifdef __SANITIZE_THREAD__
static const bool under_tsan = true;
#else
static const bool under_tsan = false;
#endif

/* The exit status of a child tells which check failed. */
static int in_child(dt_tensor *ready, dt_tensor *held) {
    dt_tensor *y, *z, *fresh;
    if (dt_runtime_started()) return 1;
    if (await(ready) != DT_OK || value_at(ready, 1) != 2) return 2;
    if (await(held) != DT_E_SHUTDOWN) return 3;
    if (!strstr(dt_error_text(), "forked")) return 4;
    if (negate(held, &y) != DT_OK || await(y) != DT_E_SHUTDOWN) return 5;
    if (negate(ready, &z) != DT_OK || await(z) != DT_OK || value_at(z, 1) != -2) return 6;
    int64_t n = 2;
    if (dt_tensor_new(DT_F32, 1, &n, &fresh) != DT_OK) return 7;
    if (dt_storage_materialize(fresh->storage) != DT_OK) return 8;
    set_value(fresh, 0, 1), set_value(fresh, 1, 3);
    if (hold(fresh, 1000) != DT_OK) return 9; /* a scheduler of the child's own */
    dt_tensor *late;
    if (negate(fresh, &late) != DT_OK || await(late) != DT_OK || value_at(late, 1) != -3) return 10;
    dt_runtime_shutdown();
    return 0;
}

START_TEST(a_forked_child_starts_anew) {
    dt_tensor *ready = VECTOR(DT_F32, 1, 2), *held = VECTOR(DT_F32, 7, 8), *y;
    ck_assert_ok(hold(ready, 100));
    ck_assert_ok(await(ready));
    ck_assert_ok(hold(held, 0));
    ck_assert_ok(negate(held, &y));
    if (TEST_SANITIZED) { /* whose malloc does not survive a fork in its middle */
        while (atomic_load(&waits_begun) < 2) sched_yield();
        test_await_sleep(dt_runtime());
    }
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) _exit(in_child(ready, held));
    atomic_store(&forked, true);
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %x", status);
    ck_assert_ok(await(y)); /* the parent goes on as if nothing had been */
    ck_assert(value_at(y, 1) == -8);
    dt_tensor_release(ready);
    dt_tensor_release(held);
    dt_tensor_release(y);
    dt_runtime_shutdown();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("runtime");
    TCase *tcase = tcase_create("runtime");
    tcase_add_checked_fixture(tcase, device, NULL);
    tcase_add_test(tcase, starts_once_at_first_use);
    tcase_add_test(tcase, the_environment_is_heeded);
    tcase_add_test(tcase, bad_settings_are_value_errors);
    tcase_add_test(tcase, after_shutdown_no_task_starts);
    if (!under_tsan) tcase_add_test(tcase, a_forked_child_starts_anew);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
