/* test_trace.c: the records of threads: order, bounds, memory that runs out, threads and forks. */
#include "runtime/trace.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/c/test_support.h"

static void append(uint64_t seq) {
    dt_trace_append(&(dt_trace_record){.kind = DT_TRACE_TASK, .seq = seq, .start_ns = 1});
}

static dt_trace_totals totals(void) {
    dt_trace_totals t;
    dt_trace_totals_get(&t);
    return t;
}

/* ---- one thread ------------------------------------------------------------------------------ */

START_TEST(nothing_is_recorded_while_off) {
    append(1);
    ck_assert_int_eq(totals().records, 0);
    ck_assert_ok(dt_trace_start(1000));
    append(2);
    dt_trace_stop();
    append(3);
    ck_assert_int_eq(totals().records, 1);
    ck_assert_int_eq(totals().dropped, 0);
    ck_assert_int_le(totals().start_ns, totals().stop_ns);
    dt_trace_clear();
    ck_assert_int_eq(totals().records, 0);
}
END_TEST

static uint64_t expected;

static void in_order(void *context, const dt_trace_track *track) {
    (void)context;
    for (const dt_trace_chunk *c = track->chunks; c != NULL; c = c->next)
        for (int32_t k = 0; k < c->count; k++) require(c->records[k].seq == expected++);
}

START_TEST(records_come_back_in_order) {
    enum { N = 3 * DT_TRACE_CHUNK_RECORDS + 17 };
    for (int round = 0; round < 2; round++) { /* a second profile forgets the first */
        ck_assert_ok(dt_trace_start(N));
        for (uint64_t k = 0; k < N; k++) append(k);
        dt_trace_stop();
        expected = 0;
        dt_trace_visit(in_order, NULL);
        ck_assert_uint_eq(expected, N);
        ck_assert_int_eq(totals().records, N);
    }
    dt_trace_clear();
}
END_TEST

START_TEST(beyond_the_bound_records_are_counted) {
    ck_assert_ok(dt_trace_start(DT_TRACE_CHUNK_RECORDS + 1)); /* two chunks */
    for (uint64_t k = 0; k < 2 * DT_TRACE_CHUNK_RECORDS + 100; k++) append(k);
    dt_trace_stop();
    ck_assert_int_eq(totals().records, 2 * DT_TRACE_CHUNK_RECORDS);
    ck_assert_int_eq(totals().dropped, 100);
    ck_assert_ok(dt_trace_start(1)); /* there is room again */
    append(1);
    dt_trace_stop();
    ck_assert_int_eq(totals().records, 1);
    ck_assert_int_eq(totals().dropped, 0);
    dt_trace_clear();
}
END_TEST

START_TEST(without_memory_records_are_counted) {
    ck_assert_ok(dt_trace_start(100000));
    append(0);
    dt_trace_stop();
    dt_trace_clear();
    dt_memory_stats before = test_memory();
    ck_assert_ok(dt_trace_start(100000));
    dt_alloc_fail_at(1, true);
    for (uint64_t k = 0; k < 5; k++) append(k);
    dt_alloc_fail_at(0, false);
    append(5);
    dt_trace_stop();
    ck_assert_int_eq(totals().records, 1);
    ck_assert_int_eq(totals().dropped, 5);
    dt_trace_clear();
    test_assert_no_leak(before);
}
END_TEST

START_TEST(wrong_starts) {
    ck_assert_fails(dt_trace_start(0), DT_E_VALUE,
                    "a profile needs room for at least 1 record, not 0");
    ck_assert_ok(dt_trace_start(10));
    ck_assert_fails(dt_trace_start(10), DT_E_RUNTIME, "a profile is being recorded already");
    ck_assert(dt_trace_is_on());
    dt_trace_stop();
    dt_trace_stop();
    dt_trace_clear();
}
END_TEST

START_TEST(calls_are_numbered_on) {
    ck_assert_ok(dt_trace_start(10));
    uint32_t a = dt_trace_next_call(), b = dt_trace_next_call();
    dt_trace_stop();
    ck_assert_uint_eq(totals().first_call, a);
    ck_assert_uint_eq(totals().calls, 2);
    ck_assert_uint_eq(b, a + 1);
    ck_assert_ok(dt_trace_start(10));
    ck_assert_uint_eq(dt_trace_next_call(), b + 1);
    dt_trace_stop();
    ck_assert_uint_eq(totals().first_call, b + 1);
    dt_trace_clear();
}
END_TEST

/* ---- several threads ------------------------------------------------------------------------- */

enum { THREADS = 4, EACH = 5000 };

static _Atomic(bool) stopped;
static _Atomic(int) appending;

static void *appender(void *argument) {
    atomic_fetch_add(&appending, 1);
    for (int k = 0; k < EACH; k++) append((uint64_t)(uintptr_t)argument);
    return NULL;
}

static void *endless_appender(void *argument) {
    atomic_fetch_add(&appending, 1);
    while (!atomic_load(&stopped)) append((uint64_t)(uintptr_t)argument);
    return NULL;
}

static void start_threads(pthread_t *threads, void *(*function)(void *)) {
    atomic_store(&appending, 0);
    for (uintptr_t k = 0; k < THREADS; k++)
        ck_assert_int_eq(pthread_create(&threads[k], NULL, function, (void *)(k + 1)), 0);
}

static void join_threads(const pthread_t *threads) {
    for (int k = 0; k < THREADS; k++) pthread_join(threads[k], NULL);
}

static int tracks;

static void one_seq_a_track(void *context, const dt_trace_track *track) {
    uint64_t seq = track->chunks->records[0].seq;
    int n = 0;
    for (const dt_trace_chunk *c = track->chunks; c != NULL; c = c->next)
        for (int32_t k = 0; k < c->count; k++, n++) require(c->records[k].seq == seq);
    if (context != NULL) ck_assert_int_eq(n, EACH);
    tracks++;
}

START_TEST(records_of_threads_that_ended_stay) {
    pthread_t threads[THREADS];
    ck_assert_ok(dt_trace_start(THREADS * (EACH + DT_TRACE_CHUNK_RECORDS)));
    start_threads(threads, appender);
    join_threads(threads);
    dt_trace_stop();
    int each = EACH;
    tracks = 0;
    dt_trace_visit(one_seq_a_track, &each);
    ck_assert_int_eq(tracks, THREADS);
    dt_trace_clear();
    dt_trace_visit(one_seq_a_track, &each);
    ck_assert_int_eq(tracks, THREADS);
}
END_TEST

/* However many threads there are, each has room for its first chunk. */
START_TEST(every_thread_has_some_room) {
    pthread_t threads[THREADS];
    ck_assert_ok(dt_trace_start(1));
    start_threads(threads, appender);
    join_threads(threads);
    dt_trace_stop();
    ck_assert_int_eq(totals().records, THREADS * DT_TRACE_CHUNK_RECORDS);
    ck_assert_int_eq(totals().dropped, THREADS * (EACH - DT_TRACE_CHUNK_RECORDS));
    dt_trace_clear();
}
END_TEST

/* Stops, reads and starts anew below running threads; TSan says whether that is safe. */
START_TEST(stops_while_threads_append) {
    pthread_t threads[THREADS];
    atomic_store(&stopped, false);
    ck_assert_ok(dt_trace_start(20000));
    start_threads(threads, endless_appender);
    while (atomic_load(&appending) < THREADS) sched_yield();
    for (int round = 0; round < 20; round++) {
        usleep(1000);
        dt_trace_stop();
        int64_t records = totals().records;
        tracks = 0;
        dt_trace_visit(one_seq_a_track, NULL);
        ck_assert_int_eq(totals().records, records);
        ck_assert_ok(dt_trace_start(20000));
    }
    atomic_store(&stopped, true);
    join_threads(threads);
    dt_trace_stop();
    dt_trace_clear();
}
END_TEST

static void name_is(void *context, const dt_trace_track *track) {
    ck_assert_str_eq(track->name, context);
    ck_assert(track->named);
    ck_assert_int_eq(track->tid, gettid());
}

START_TEST(names_are_cut_between_characters) {
    ck_assert_ok(dt_trace_start(10));
    ck_assert(!dt_trace_thread_is_named());
    char name[200], cut[64];
    memset(name, 'x', sizeof name);
    memcpy(name + 61, "\xe2\x82\xac", 3); /* bytes 61 to 63; there is room for 63 */
    name[sizeof name - 1] = 0;
    dt_trace_name_thread(name);
    ck_assert(dt_trace_thread_is_named());
    append(1);
    dt_trace_stop();
    memset(cut, 'x', 61);
    cut[61] = 0;
    dt_trace_visit(name_is, cut);
    dt_trace_clear();
    ck_assert(!dt_trace_thread_is_named());
}
END_TEST

/* The allocators of the sanitizers, unlike the C library's, do not survive a fork in the middle of
 * a malloc: there each thread has first had all the memory that it will ever get. */
enum { ROOM = 100000, BEFORE_FORK = TEST_SANITIZED ? ROOM + DT_TRACE_CHUNK_RECORDS : 1 };

static void *until_stopped(void *argument) {
    for (int k = 0; k < BEFORE_FORK; k++) append(1);
    atomic_fetch_add(&appending, 1);
    while (!atomic_load(&stopped)) append(1);
    return argument;
}

START_TEST(a_forked_child_starts_without) {
    pthread_t threads[THREADS];
    atomic_store(&stopped, false);
    ck_assert_ok(dt_trace_start(ROOM));
    append(1);
    start_threads(threads, until_stopped);
    while (atomic_load(&appending) < THREADS) sched_yield();
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        bool good = !dt_trace_is_on();
        dt_trace_clear();
        good = good && totals().records == 0 && dt_trace_start(10) == DT_OK;
        append(7);
        dt_trace_stop();
        _exit(good && totals().records == 1 ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert(dt_trace_is_on()); /* the parent goes on */
    atomic_store(&stopped, true);
    join_threads(threads);
    dt_trace_stop();
    ck_assert_int_gt(totals().records, THREADS);
    dt_trace_clear();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("trace");
    TEST_CASE(suite, "one thread", nothing_is_recorded_while_off, records_come_back_in_order,
              beyond_the_bound_records_are_counted, without_memory_records_are_counted,
              wrong_starts, calls_are_numbered_on);
    TEST_CASE(suite, "threads", records_of_threads_that_ended_stay, every_thread_has_some_room,
              stops_while_threads_append, names_are_cut_between_characters,
              a_forked_child_starts_without);
    return test_run(suite);
}
