/* test_trace_task.c: what a scheduler tells of its tasks: records, times, failures, file I/O. */
#include "scheduler/trace_task.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/c/sched_support.h"

enum { RECORDS_MAX = 200 };

static dt_trace_record found[RECORDS_MAX];
static char threads[RECORDS_MAX][16];
static int found_count;

static void note(void *context, const dt_trace_track *track) {
    const int *kind = context;
    for (const dt_trace_chunk *c = track->chunks; c != NULL; c = c->next)
        for (int32_t k = 0; k < c->count; k++) {
            if (c->records[k].kind != *kind) continue;
            ck_assert_int_lt(found_count, RECORDS_MAX);
            snprintf(threads[found_count], sizeof threads[0], "%.15s", track->name);
            found[found_count++] = c->records[k];
        }
}

static int by_seq(const void *a, const void *b) {
    const dt_trace_record *x = a, *y = b;
    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* The records of a kind, by seq (threads stay as they were found). */
static void find(int kind) {
    dt_trace_stop();
    found_count = 0;
    dt_trace_visit(note, &kind);
    qsort(found, (size_t)found_count, sizeof *found, by_seq);
}

START_TEST(tasks_are_recorded_where_they_end) {
    dt_sched *s = fake_sched(2, NULL);
    fake_ends ends = {0};
    dt_tensor *x = fake_full(100, 1), *y = fake_tensor(100);
    int64_t start_ns = dt_clock_ns();
    ck_assert_ok(dt_trace_start(1000));
    for (int k = 0; k < 5; k++) {
        dt_task *task = fake_task(&ends, y, x, 1, NULL, 0, k);
        task->client = (uint32_t)k + 1;
        task->site = 77;
        task->call.params.i[FAKE_BUSY_NS] = 20000;
        dt_sched_submit(s, task);
    }
    fake_await(&ends, 5);
    find(DT_TRACE_TASK);
    ck_assert_int_eq(found_count, 5);
    for (int k = 0; k < 5; k++) {
        const dt_trace_record *r = &found[k];
        ck_assert_uint_eq(r->seq, (uint64_t)k + 1);
        ck_assert_uint_eq(r->call, (uint32_t)k + 1);
        ck_assert_str_eq(r->label, "fake");
        ck_assert_int_eq(r->bytes, 2 * 100 * 8);
        ck_assert_int_le(start_ns, r->submit_ns);
        ck_assert_int_le(r->submit_ns, r->start_ns);
        ck_assert_int_le(r->start_ns + 20000, r->end_ns);
        if (k > 0) ck_assert_int_le(found[k - 1].end_ns, r->start_ns); /* they write the same */
        ck_assert_int_eq(r->flags & DT_TRACE_FAILED, 0);
        ck_assert_int_eq(strncmp(threads[k], "dt-wrk-", 7), 0);
    }
    dt_trace_clear();
    dt_tensor_release(x);
    dt_tensor_release(y);
    fake_drain(s);
    dt_sched_stop(s);
}
END_TEST

START_TEST(failures_and_those_behind_them) {
    dt_sched *s = fake_sched(1, NULL);
    fake_ends ends = {0};
    dt_tensor *x = fake_tensor(4), *y = fake_tensor(4);
    ck_assert_ok(dt_trace_start(1000));
    dt_task *task = fake_task(&ends, x, NULL, 0, NULL, 0, 1);
    task->call.params.i[FAKE_FAIL] = DT_E_VALUE;
    dt_sched_submit(s, task);
    dt_sched_submit(s, fake_task(&ends, y, x, 1, NULL, 0, 0));
    fake_await(&ends, 2);
    find(DT_TRACE_TASK);
    ck_assert_int_eq(found_count, 2);
    for (int k = 0; k < 2; k++) {
        ck_assert_int_ne(found[k].flags & DT_TRACE_FAILED, 0);
        ck_assert_int_eq(found[k].count, DT_E_VALUE);
    }
    dt_trace_clear();
    fake_ends_clear(&ends);
    dt_tensor_release(x);
    dt_tensor_release(y);
    fake_drain(s);
    dt_sched_stop(s);
}
END_TEST

START_TEST(tasks_without_a_kernel) {
    dt_sched *s = fake_sched(1, NULL);
    fake_ends ends = {0};
    char path[] = "/tmp/dt-trace-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_eq(write(fd, "0123456789abcdef", 16), 16);
    close(fd);
    ck_assert_ok(dt_trace_start(1000));
    dt_task *read, *timer, *fence;
    ck_assert_ok(dt_task_new(DT_TASK_READ, 1, 0, &read));
    ck_assert_ok(dt_file_open(path, false, &read->io.file));
    read->io.length = 16;
    read->call.operands[0] = fake_tensor(2);
    ck_assert_ok(dt_task_new(DT_TASK_TIMER, 0, 0, &timer));
    timer->io.delay_ns = 1000000;
    ck_assert_ok(dt_task_new(DT_TASK_FENCE, 0, 0, &fence));
    fence->after_all = true;
    dt_task *const tasks[] = {read, timer, fence};
    for (int k = 0; k < 3; k++) {
        tasks[k]->user = &ends;
        tasks[k]->on_end = fake_on_end;
        dt_sched_submit(s, tasks[k]);
    }
    fake_await(&ends, 3);
    find(DT_TRACE_TASK);
    ck_assert_int_eq(found_count, 3);
    static const char *const labels[] = {"read file", "timer", "fence"};
    for (int k = 0; k < 3; k++) {
        ck_assert_str_eq(found[k].label, labels[k]);
        ck_assert_str_eq(threads[k], "dt-ctl");
        ck_assert_int_eq(found[k].bytes, k == 0 ? 16 : 0);
        ck_assert(k == 0 ? found[k].start_ns > 0 : found[k].start_ns == 0);
    }
    dt_trace_clear();
    unlink(path);
    fake_drain(s);
    dt_sched_stop(s);
}
END_TEST

/* Times of tasks that ran are counted, whether or not a profile is recorded. */
START_TEST(times_are_counted) {
    dt_sched *s = fake_sched(2, NULL);
    fake_ends ends = {0};
    dt_tensor *x = fake_tensor(4);
    for (int k = 0; k < 10; k++) {
        dt_task *task = fake_task(&ends, x, NULL, 0, NULL, 0, k);
        task->call.params.i[FAKE_BUSY_NS] = 100000;
        dt_sched_submit(s, task);
    }
    fake_await(&ends, 10);
    dt_time_stats stats;
    dt_stats_times_get(&stats);
    int64_t count = 0;
    for (int k = 0; k < DT_HISTOGRAM_BUCKETS; k++) count += stats.run_ns.buckets[k];
    ck_assert_int_eq(count, 10);
    ck_assert_int_ge(stats.run_ns.sum, 10 * 100000);
    for (unsigned k = 0; k < dt_histogram_bucket(100000); k++)
        ck_assert_int_eq(stats.run_ns.buckets[k], 0);
    dt_tensor_release(x);
    fake_drain(s);
    dt_sched_stop(s);
}
END_TEST

START_TEST(shares_and_rounds) {
    dt_task *task = fake_task(NULL, NULL, NULL, 0, NULL, 0, 0);
    dt_trace_share share;
    dt__trace_share_begin(&share, task, 5);
    dt__trace_share_end(&share, 3); /* not traced */
    ck_assert_ok(dt_trace_start(1000));
    dt__trace_share_end(&share, 3);
    task->seq = 9;
    dt__trace_share_begin(&share, task, 5);
    dt__trace_share_end(&share, 3);
    dt__trace_share_begin(&share, task, 0);
    dt__trace_share_end(&share, 0); /* found nothing to do */
    dt_trace_round round;
    dt__trace_round_begin(&round, 10, 20, 30);
    dt__trace_round_end(&round, 10, 20, 30); /* nothing was done */
    dt__trace_round_end(&round, 11, 22, 33);
    find(DT_TRACE_PARTS);
    ck_assert_int_eq(found_count, 1);
    ck_assert_int_eq(found[0].start_ns, 5);
    ck_assert_uint_eq(found[0].seq, 9);
    ck_assert_int_eq(found[0].count, 3);
    find(DT_TRACE_ROUND);
    ck_assert_int_eq(found_count, 1);
    ck_assert_int_eq(found[0].start_ns, round.start_ns);
    ck_assert_uint_eq(found[0].seq, 1);
    ck_assert_uint_eq(found[0].leader, 2);
    ck_assert_int_eq(found[0].count, 3);
    dt_trace_clear();
    dt_task_free(task);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("trace_task");
    TEST_CASE(suite, "tasks", tasks_are_recorded_where_they_end, failures_and_those_behind_them,
              tasks_without_a_kernel, times_are_counted, shares_and_rounds);
    return test_run(suite);
}
