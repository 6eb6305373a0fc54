/* test_trace_json.c: records as JSON: escaping, times, arrows, passes, parts, errors of writing.
 *
 * The Python tests parse whole traces; here single records are given and their text is looked at.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/op.h"
#include "runtime/trace.h"
#include "tests/c/test_support.h"

static const char *text_of(const void *context, uint32_t number) {
    (void)context;
    static const char *const texts[] = {NULL,           "a \"quoted\" \\ path:1",
                                        "tab\tand\x01", "caf\xc3\xa9",
                                        "bad\xff\xc3",  "\xed\xa0\x80"};
    return number < sizeof texts / sizeof texts[0] ? texts[number] : NULL;
}

static const dt_trace_texts texts = {text_of, text_of, NULL};

/* What is written; valid until the next call. */
static const char *written(void) {
    static char buffer[1 << 16];
    int fd = memfd_create("trace", 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_ok(dt_trace_write(fd, &texts));
    ssize_t n = pread(fd, buffer, sizeof buffer - 1, 0);
    ck_assert_int_gt(n, 0);
    buffer[n] = 0;
    close(fd);
    return buffer;
}

static int occurrences(const char *text, const char *what) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++) n++;
    return n;
}

static void append(dt_trace_record record) { dt_trace_append(&record); }

/* Where the trace's time begins in these tests: tasks may have been submitted before the profile.
 */
#define ORIGIN 1000000
enum { US = 1000 };

static dt_trace_record task(uint64_t seq, int64_t submit_us, int64_t start_us, int64_t end_us) {
    return (dt_trace_record){.kind = DT_TRACE_TASK,
                             .seq = seq,
                             .op = DT_OP_matmul,
                             .submit_ns = ORIGIN + submit_us * US,
                             .start_ns = start_us < 0 ? 0 : ORIGIN + start_us * US,
                             .end_ns = ORIGIN + end_us * US};
}

/* This thread plays a worker or the controller from here on. */
static void begin(const char *thread) {
    pthread_setname_np(pthread_self(), thread);
    ck_assert_ok(dt_trace_start(10000));
}

/* ---- texts ----------------------------------------------------------------------------------- */

START_TEST(texts_are_escaped) {
    begin("client");
    int64_t now_ns = dt_trace_now_ns();
    for (uint32_t k = 1; k <= 6; k++)
        append((dt_trace_record){
            .kind = DT_TRACE_OP, .op = DT_OP_add, .start_ns = now_ns, .end_ns = now_ns, .site = k});
    dt_trace_name_thread("a \"thread\"");
    dt_trace_stop();
    const char *json = written();
    ck_assert_int_eq(occurrences(json, "\"site\":\"a \\\"quoted\\\" \\\\ path:1\""), 1);
    ck_assert_int_eq(occurrences(json, "\"site\":\"tab\\u0009and\\u0001\""), 1);
    ck_assert_int_eq(occurrences(json, "\"site\":\"caf\xc3\xa9\""), 1);
    ck_assert_int_eq(occurrences(json, "\"site\":\"bad\\ufffd\\ufffd\""), 1);
    ck_assert_int_eq(occurrences(json, "\"site\":\"\\ufffd\\ufffd\\ufffd\""), 1);
    ck_assert_int_eq(occurrences(json, "\"site\":"), 5); /* 6 is unknown */
    ck_assert_int_eq(occurrences(json, "\"name\":\"client a \\\"thread\\\"\""), 1);
    dt_trace_clear();
}
END_TEST

/* ---- tasks ----------------------------------------------------------------------------------- */

START_TEST(a_run_and_its_wait) {
    begin("dt-wrk-3");
    dt_trace_record r = task(7, 0, 5, 12);
    r.end_ns += 34; /* a fraction of a us */
    r.bytes = 4096;
    r.flags = DT_TRACE_DIRECT;
    append(r);
    dt_trace_stop();
    const char *json = written();
    ck_assert_int_eq(occurrences(json, "\"name\":\"worker 3\""), 1);
    ck_assert_int_eq(occurrences(json, "{\"sort_index\":5}"), 1);
    ck_assert_int_eq(occurrences(json, "\"ts\":5.000,\"dur\":7.034"), 1);
    ck_assert_int_eq(occurrences(json, "\"name\":\"matmul\",\"cat\":\"run\",\"args\":{\"seq\":7,"
                                       "\"bytes\":4096,\"queue_us\":5.000,\"direct\":true}"),
                     1);
    ck_assert_int_eq(occurrences(json, "\"ph\":\"b\",\"cat\":\"queue\",\"id\":\"queue7\""), 1);
    ck_assert_int_eq(occurrences(json, "\"ph\":\"e\",\"cat\":\"queue\",\"id\":\"queue7\""), 1);
    ck_assert_int_eq(occurrences(json, "\"ph\":\"s\""), 0); /* begun before the profile */
    dt_trace_clear();
}
END_TEST

START_TEST(a_task_that_never_ran) {
    begin("dt-ctl");
    dt_trace_record r = task(9, 0, -1, 30);
    r.flags = DT_TRACE_FAILED | DT_TRACE_DROPPED;
    r.count = DT_E_CANCELLED;
    append(r);
    dt_trace_stop();
    const char *json = written();
    ck_assert_int_eq(occurrences(json, "\"name\":\"controller\""), 1);
    ck_assert_int_eq(occurrences(json, "\"ts\":30.000,\"dur\":0.000"), 1);
    ck_assert_int_eq(occurrences(json, "\"queue_us\":30.000,\"dropped\":true,\"failed\":"), 1);
    ck_assert_int_eq(occurrences(json, dt_status_name(DT_E_CANCELLED)), 1);
    ck_assert_int_eq(occurrences(json, "\"cat\":\"run\""), 0);
    dt_trace_clear();
}
END_TEST

START_TEST(a_pass_is_one_slice) {
    begin("dt-wrk-0");
    static const dt_op_id ops[] = {DT_OP_add, DT_OP_mul, DT_OP_relu};
    for (uint64_t k = 0; k < 3; k++) {
        dt_trace_record r = task(20 + k, (int64_t)k, 10, 20);
        r.leader = 20;
        r.op = (uint16_t)ops[k];
        append(r);
    }
    append(task(23, 5, 20, 21)); /* alone */
    dt_trace_stop();
    const char *json = written();
    ck_assert_int_eq(occurrences(json, "\"name\":\"pass of 3: add mul relu\""), 1);
    ck_assert_int_eq(occurrences(json, "\"cat\":\"run\""), 2);
    ck_assert_int_eq(occurrences(json, "\"members\":[{\"op\":\"add\",\"seq\":20,"), 1);
    ck_assert_int_eq(occurrences(json, ",{\"op\":\"relu\",\"seq\":22,"), 1);
    ck_assert_int_eq(occurrences(json, "\"ph\":\"b\""), 4);
    dt_trace_clear();
}
END_TEST

START_TEST(a_large_pass_has_a_short_name) {
    begin("dt-wrk-0");
    for (uint64_t k = 0; k < 32; k++) {
        dt_trace_record r = task(k + 1, 0, 10, 20);
        r.leader = 1;
        append(r);
    }
    dt_trace_stop();
    const char *json = written();
    ck_assert_int_eq(occurrences(json, "\"pass of 32: matmul matmul matmul matmul matmul matmul "
                                       "...\""),
                     1);
    ck_assert_int_eq(occurrences(json, "{\"op\":\"matmul\""), 32);
    dt_trace_clear();
}
END_TEST

/* Two threads computed a task's parts; the second one ended it. Its own run would not nest. */
START_TEST(parts_are_slices_and_the_end_a_mark) {
    begin("dt-wrk-1");
    dt_trace_record r = task(5, 0, 10, 50);
    append((dt_trace_record){.kind = DT_TRACE_PARTS,
                             .seq = 5,
                             .op = DT_OP_matmul,
                             .count = 3,
                             .start_ns = ORIGIN + 20 * US,
                             .end_ns = ORIGIN + 45 * US});
    append(r);
    dt_trace_stop();
    const char *json = written();
    ck_assert_int_eq(occurrences(json, "\"ts\":20.000,\"dur\":25.000"), 1);
    ck_assert_int_eq(occurrences(json, "\"parts\":3"), 1);
    ck_assert_int_eq(occurrences(json, "\"ts\":50.000,\"dur\":0.000"), 1);
    ck_assert_int_eq(occurrences(json, "\"cat\":\"run\""), 1);
    dt_trace_clear();
}
END_TEST

START_TEST(file_io_may_overlap) {
    begin("dt-ctl");
    for (uint64_t k = 1; k <= 2; k++) {
        dt_trace_record r = task(k, 0, 10, 20 + (int64_t)k);
        r.label = "read file";
        r.flags = DT_TRACE_IO;
        append(r);
    }
    dt_trace_stop();
    const char *json = written();
    ck_assert_int_eq(occurrences(json, "\"cat\":\"io\",\"id\":\"io1\""), 2);
    ck_assert_int_eq(occurrences(json, "\"cat\":\"io\",\"id\":\"io2\""), 2);
    ck_assert_int_eq(occurrences(json, "\"dur\":0.000"), 2);
    dt_trace_clear();
}
END_TEST

/* ---- arrows ---------------------------------------------------------------------------------- */

/* A call, its run, and its deliveries, in one thread for once. */
static uint32_t call_with(int deliveries, bool run, bool submit) {
    uint32_t call = dt_trace_next_call();
    int64_t now_ns = dt_trace_now_ns();
    if (submit)
        append((dt_trace_record){
            .kind = DT_TRACE_SUBMIT, .call = call, .start_ns = now_ns, .end_ns = now_ns});
    dt_trace_record r = task(call, 0, 10, 20);
    r.call = call;
    if (run) append(r);
    for (int64_t k = 0; k < deliveries; k++)
        append((dt_trace_record){.kind = k % 2 == 0 ? DT_TRACE_DELIVER : DT_TRACE_WAIT,
                                 .call = call,
                                 .start_ns = now_ns + k,
                                 .end_ns = now_ns + k});
    return call;
}

static void assert_arrows(int starts, int steps, int ends, int unfinished) {
    dt_trace_stop();
    const char *json = written();
    char text[40];
    snprintf(text, sizeof text, "\"unfinished\":%d}", unfinished);
    ck_assert_int_eq(occurrences(json, "\"ph\":\"s\""), starts);
    ck_assert_int_eq(occurrences(json, "\"ph\":\"t\""), steps);
    ck_assert_int_eq(occurrences(json, "\"ph\":\"f\""), ends);
    ck_assert_msg(occurrences(json, text) == 1, "%s in %s", text, json);
    dt_trace_clear();
}

START_TEST(arrows_have_two_ends) {
    begin("dt-wrk-0");
    call_with(0, true, true);
    assert_arrows(1, 0, 1, 0);
    begin("dt-wrk-0");
    call_with(1, true, true);
    assert_arrows(1, 1, 1, 0);
    begin("dt-wrk-0");
    call_with(3, true, true);
    assert_arrows(1, 3, 1, 0);
    begin("dt-wrk-0");
    call_with(1, false, true); /* the run's record was dropped */
    assert_arrows(1, 0, 1, 0);
    begin("dt-wrk-0");
    call_with(0, false, true);
    assert_arrows(0, 0, 0, 1);
    begin("dt-wrk-0");
    call_with(2, true, false);
    assert_arrows(0, 0, 0, 0);
}
END_TEST

START_TEST(an_arrow_goes_to_the_first_part) {
    begin("dt-wrk-0");
    uint32_t call = call_with(0, true, true);
    for (int64_t k = 2; k > 0; k--)
        append((dt_trace_record){.kind = DT_TRACE_PARTS,
                                 .call = call,
                                 .seq = call,
                                 .count = 1,
                                 .start_ns = ORIGIN + k * 5 * US,
                                 .end_ns = ORIGIN + 20 * US});
    dt_trace_stop();
    const char *json = written();
    ck_assert_int_eq(occurrences(json, "\"bp\":\"e\",\"ts\":5.000"), 1);
    ck_assert_int_eq(occurrences(json, "\"ph\":\"f\""), 1);
    dt_trace_clear();
}
END_TEST

/* A task submitted under an earlier profile ends in this one; so does a call begun then. */
START_TEST(records_of_an_earlier_profile_do_not_mix) {
    begin("dt-wrk-0");
    int64_t then_ns = dt_trace_now_ns();
    uint32_t old = dt_trace_next_call();
    dt_trace_stop();
    begin("dt-wrk-0");
    dt_trace_record r = task(1, 0, 10, 20);
    r.call = old;
    append(r);
    append((dt_trace_record){.kind = DT_TRACE_OP, .start_ns = then_ns, .end_ns = then_ns + 1});
    append((dt_trace_record){.kind = DT_TRACE_DELIVER, .call = old, .start_ns = dt_trace_now_ns()});
    dt_trace_stop();
    const char *json = written();
    ck_assert_int_eq(occurrences(json, "\"ph\":\"f\"") + occurrences(json, "\"ph\":\"t\""), 0);
    ck_assert_int_eq(occurrences(json, "\"cat\":\"call\""), 0);
    ck_assert_int_eq(occurrences(json, "\"cat\":\"run\""), 1);
    dt_trace_clear();
}
END_TEST

/* ---- writing --------------------------------------------------------------------------------- */

START_TEST(writing_can_fail) {
    begin("dt-wrk-0");
    call_with(1, true, true);
    append((dt_trace_record){.kind = DT_TRACE_PARTS, .seq = 1});
    dt_trace_stop();
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(dt_trace_write(fd, &texts), DT_E_OS);
    ck_assert_int_eq(dt_error_errno(), ENOSPC);
    close(fd);
    ck_assert_int_eq(dt_trace_write(-1, &texts), DT_E_OS);
    dt_memory_stats before = test_memory();
    for (int n = 1; n <= 3; n++) {
        dt_alloc_fail_at(n, false);
        ck_assert_int_eq(dt_trace_write(-1, &texts), DT_E_NO_MEMORY);
        dt_alloc_fail_at(0, false);
        test_assert_no_leak(before);
    }
    dt_trace_clear();
}
END_TEST

START_TEST(more_than_a_buffer_is_written_whole) {
    begin("dt-wrk-0");
    for (uint64_t k = 1; k <= 8000; k++) append(task(k, 0, (int64_t)k, (int64_t)k + 1));
    dt_trace_stop();
    int fd = memfd_create("trace", 0);
    ck_assert_ok(dt_trace_write(fd, &texts));
    off_t size = lseek(fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)size + 1);
    ck_assert_int_eq(pread(fd, text, (size_t)size, 0), size);
    ck_assert_int_eq(occurrences(text, "\"cat\":\"run\""), 8000);
    ck_assert_int_eq(occurrences(text, "\n"), 8000 * 3 + 3 + 2);
    free(text);
    close(fd);
    dt_trace_clear();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("trace_json");
    TEST_CASE(suite, "texts", texts_are_escaped);
    TEST_CASE(suite, "tasks", a_run_and_its_wait, a_task_that_never_ran, a_pass_is_one_slice,
              a_large_pass_has_a_short_name, parts_are_slices_and_the_end_a_mark,
              file_io_may_overlap);
    TEST_CASE(suite, "arrows", arrows_have_two_ends, an_arrow_goes_to_the_first_part,
              records_of_an_earlier_profile_do_not_mix);
    TEST_CASE(suite, "writing", writing_can_fail, more_than_a_buffer_is_written_whole);
    return test_run(suite);
}
