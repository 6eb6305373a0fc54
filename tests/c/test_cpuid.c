/* The choice of an instruction set: environment, refusals, and that the choice is kept. */
#include "kernels/cpu/cpuid.h"

#include <string.h>

#include "tests/c/test_support.h"

START_TEST(best_by_default) {
    unsetenv("DTORCH_CPU");
    ck_assert_int_eq(dt_cpu_init(), DT_OK);
    ck_assert_int_eq(dt_cpu_level_now(), dt_cpu_best());
}
END_TEST

START_TEST(settles_by_itself) { ck_assert_int_le(dt_cpu_level_now(), dt_cpu_best()); }
END_TEST

START_TEST(environment) {
    setenv("DTORCH_CPU", "base", 1);
    ck_assert_int_eq(dt_cpu_init(), DT_OK);
    ck_assert_int_eq(dt_cpu_level_now(), DT_CPU_BASE);
    ck_assert_str_eq(dt_cpu_level_name(dt_cpu_level_now()), "base");
}
END_TEST

START_TEST(environment_that_is_empty) {
    setenv("DTORCH_CPU", "", 1);
    ck_assert_int_eq(dt_cpu_init(), DT_OK);
    ck_assert_int_eq(dt_cpu_level_now(), dt_cpu_best());
}
END_TEST

START_TEST(environment_that_is_wrong) {
    setenv("DTORCH_CPU", "sse9", 1);
    ck_assert_int_eq(dt_cpu_init(), DT_E_VALUE);
    ck_assert_str_eq(dt_error_text(), "DTORCH_CPU=sse9: expected base, avx2 or avx512");
    ck_assert_int_eq(dt_cpu_level_now(), dt_cpu_best());
    ck_assert_int_eq(dt_cpu_init(), DT_E_VALUE); /* again, for whoever asks later */
}
END_TEST

START_TEST(select_by_name) {
    static const char *const names[] = {"base", "avx2", "avx512"};
    for (int level = 0; level < DT_CPU_LEVELS; level++) {
        dt_status status = dt_cpu_select(names[level]);
        if (level <= (int)dt_cpu_best()) {
            ck_assert_int_eq(status, DT_OK);
            ck_assert_int_eq(dt_cpu_level_now(), level);
        } else {
            ck_assert_int_eq(status, DT_E_VALUE);
            ck_assert_ptr_nonnull(strstr(dt_error_text(), "this CPU has only"));
        }
    }
    dt_cpu_level before = dt_cpu_level_now();
    ck_assert_int_eq(dt_cpu_select("AVX2"), DT_E_VALUE);
    ck_assert_int_eq(dt_cpu_level_now(), before);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cpuid");
    TEST_CASE(s, "level", best_by_default, settles_by_itself, environment,
              environment_that_is_empty, environment_that_is_wrong, select_by_name);
    return test_run(s);
}
