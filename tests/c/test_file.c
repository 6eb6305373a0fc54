/* test_file.c: opening files, and what cannot be opened. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scheduler/sched.h"
#include "tests/c/test_support.h"

static char folder[64];

static void make_folder(void) {
    strcpy(folder, "/tmp/dt_test_file_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static const char *in_folder(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void refused(const char *path, bool for_writing, int error) {
    dt_file *file;
    ck_assert_int_eq(dt_file_open(path, for_writing, &file), DT_E_OS);
    ck_assert_int_eq(dt_error_errno(), error);
    ck_assert_ptr_nonnull(strstr(dt_error_text(), path));
}

START_TEST(write_then_read) {
    dt_memory_stats before = test_memory();
    dt_file *file;
    ck_assert_ok(dt_file_open(in_folder("a"), true, &file));
    ck_assert_int_eq(pwrite(dt_file_fd(file), "hello", 5, 0), 5);
    dt_file_release(file);
    ck_assert_ok(dt_file_open(in_folder("a"), false, &file));
    ck_assert_int_eq(dt_file_size(file), 5);
    ck_assert_str_eq(dt_file_path(file), in_folder("a"));
    ck_assert_ptr_eq(dt_file_retain(file), file);
    dt_file_release(file);
    int fd = dt_file_fd(file);
    ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
    dt_file_release(file);
    ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
    dt_file_release(NULL);
    ck_assert_ptr_null(dt_file_retain(NULL));
    ck_assert_ok(dt_file_open(in_folder("a"), true, &file)); /* emptied */
    dt_file_release(file);
    ck_assert_ok(dt_file_open(in_folder("a"), false, &file));
    ck_assert_int_eq(dt_file_size(file), 0);
    dt_file_release(file);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(what_cannot_be_opened) {
    dt_memory_stats before = test_memory();
    refused(in_folder("missing"), false, ENOENT);
    refused(in_folder("missing/deeper"), true, ENOENT);
    refused(folder, false, EISDIR);
    refused(folder, true, EISDIR);
    ck_assert_int_eq(mkfifo(in_folder("pipe"), 0600), 0);
    refused(in_folder("pipe"), false, EINVAL); /* and does not wait for a writer */
    refused("/dev/zero", false, EINVAL);
    if (geteuid() != 0) {
        dt_file *file;
        ck_assert_ok(dt_file_open(in_folder("secret"), true, &file));
        dt_file_release(file);
        ck_assert_int_eq(chmod(in_folder("secret"), 0), 0);
        refused(in_folder("secret"), false, EACCES);
    }
    test_assert_no_leak(before);
}
END_TEST

static dt_status open_scenario(void) {
    dt_file *file;
    DT_TRY(dt_file_open("/proc/self/exe", false, &file));
    dt_file_release(file);
    return DT_OK;
}

START_TEST(every_allocation_fails) {
    ck_assert_int_eq(test_every_allocation_fails(open_scenario), 1);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("file");
    TCase *tcase = tcase_create("file");
    tcase_add_checked_fixture(tcase, make_folder, remove_folder);
    tcase_add_test(tcase, write_then_read);
    tcase_add_test(tcase, what_cannot_be_opened);
    tcase_add_test(tcase, every_allocation_fails);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
