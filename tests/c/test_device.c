/* test_device.c: the table is there for everyone once it was registered. */
#include <check.h>
#include <pthread.h>
#include <signal.h>

#include "runtime/device.h"
#include "tests/c/test_support.h"

static const char *describe(void) { return "made up"; }

static const dt_kernel *const kernels[DT_OP_COUNT];
static const dt_device_ops device = {.type = "cpu", .kernels = kernels, .describe = describe};

static void *look(void *context) {
    (void)context;
    return (void *)dt_device_cpu();
}

START_TEST(registered_table_is_found) {
    ck_assert_ptr_null(dt_device_cpu());
    dt_device_register_cpu(&device);
    ck_assert_ptr_eq(dt_device_cpu(), &device);
    dt_device_register_cpu(&device); /* the same again is fine */
    ck_assert_str_eq(dt_device_cpu()->describe(), "made up");
    pthread_t thread;
    void *seen = NULL;
    ck_assert_int_eq(pthread_create(&thread, NULL, look, NULL), 0);
    pthread_join(thread, &seen);
    ck_assert_ptr_eq(seen, &device);
}
END_TEST

START_TEST(another_table_is_refused) {
    static const dt_device_ops other = {.type = "cpu", .kernels = kernels, .describe = describe};
    dt_device_register_cpu(&device);
    dt_device_register_cpu(&other); /* aborts */
}
END_TEST

int main(void) {
    Suite *suite = suite_create("device");
    TCase *tcase = tcase_create("device");
    tcase_add_test(tcase, registered_table_is_found);
    tcase_add_test_raise_signal(tcase, another_table_is_refused, SIGABRT);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
