/* test_sched.c: the scheduler from submit to stop, with fake kernels, on both I/O backends.
 *
 * Random programs with fixed seeds run on views that share storages, one in three in passes, and
 * everything they computed is compared with the same program run step by step on plain arrays.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/c/fuse_support.h"
#include "tests/c/sched_fixture.h"
#include "tests/c/sleep_support.h"

START_TEST(one_task) {
    dt_sched *s = start(2, _i);
    ck_assert_str_eq(dt_sched_io_backend(s), backends[_i]);
    ck_assert_int_eq(dt_sched_threads(s), 2);
    dt_tensor *x = fake_full(1000, 7), *out = fake_tensor(1000);
    dt_sched_submit(s, fake_task(&ends, out, x, 3, NULL, 0, 1));
    fake_await(&ends, 1);
    ck_assert_int_eq(ends.failed, 0);
    ck_assert_int_eq(*fake_at(out, 0), 22);
    ck_assert_int_eq(*fake_at(out, 999), 22);
    fake_drain(s);
    dt_sched_stats stats = stats_of(s);
    ck_assert_int_eq(stats.submitted, 1);
    ck_assert_int_eq(stats.ended, 1);
    ck_assert_int_eq(stats.failed, 0);
    dt_tensor_release(x);
    dt_tensor_release(out);
    stop(s);
}
END_TEST

/* ---- random programs ------------------------------------------------------------------------ */

#define BASES 5
#define WORDS 64
#define STEPS 1500

/* A view, in both worlds. */
typedef struct pair {
    dt_tensor *t;
    int64_t *ref;
    int64_t stride;
} pair;

typedef struct program {
    dt_sched *s;
    uint64_t seed;
    bool fuses;
    dt_tensor *base[BASES];
    int64_t ref[BASES][WORDS];
} program;

static pair random_view(program *p, int base, int64_t n) {
    int64_t stride = test_random_in(&p->seed, 1, 2);
    int64_t offset = test_random_in(&p->seed, 0, WORDS - 1 - (n - 1) * stride);
    return (pair){fake_view(p->base[base], offset, n, stride), &p->ref[base][offset], stride};
}

static dt_task *random_task(program *p, int64_t n, const pair *out, const pair *x, const pair *y) {
    int64_t a = test_random_in(&p->seed, -2, 2), b = test_random_in(&p->seed, -2, 2);
    int64_t c = test_random_in(&p->seed, -9, 9);
    dt_task *task = p->fuses ? fuse_task(&ends, out->t, x->t, a, y->t, b, c)
                             : fake_task(&ends, out->t, x->t, a, y->t, b, c);
    if (p->fuses && test_random(&p->seed) % 4 == 0) task->call.params.i[FAKE_COST_NS] = 60000;
    if (test_random(&p->seed) % 8 == 0)
        task->call.params.i[FAKE_BUSY_NS] = test_random_in(&p->seed, 0, 50000);
    /* Unsigned, as in fake_run: values wrap around. */
    for (int64_t i = 0; i < n; i++)
        out->ref[i * out->stride] =
            (int64_t)((uint64_t)a * (uint64_t)x->ref[i * x->stride] +
                      (uint64_t)b * (uint64_t)y->ref[i * y->stride] + (uint64_t)c);
    return task;
}

static void run_program(program *p, int steps) {
    for (int step = 0; step < steps; step++) {
        int64_t n = p->fuses ? WORDS / 4 : test_random_in(&p->seed, 1, WORDS / 4);
        pair view[3];
        for (int k = 0; k < 3; k++)
            view[k] = random_view(p, (int)test_random_in(&p->seed, 0, BASES - 1), n);
        dt_sched_submit(p->s, random_task(p, n, &view[0], &view[1], &view[2]));
        for (int k = 0; k < 3; k++) dt_tensor_release(view[k].t);
        if (test_random(&p->seed) % 30 == 0) dt_sched_demand(p->s, false);
        if (test_random(&p->seed) % 200 == 0) fake_await(&ends, (uint32_t)step / 2);
    }
}

static void start_program(program *p, int index, int threads) {
    memset(p, 0, sizeof *p);
    p->seed = (uint64_t)index * 1000 + 17;
    p->fuses = index % 3 == 2;
    p->s = start(threads, index % 2);
    for (int k = 0; k < BASES; k++) {
        p->base[k] = fake_full(WORDS, k + 1);
        for (int i = 0; i < WORDS; i++) p->ref[k][i] = k + 1;
    }
}

static void check_program(program *p) {
    for (int k = 0; k < BASES; k++) {
        ck_assert_mem_eq(dt_tensor_data(p->base[k]), p->ref[k], sizeof p->ref[k]);
        ck_assert_int_eq(atomic_load(&p->base[k]->storage->readers), 0);
        ck_assert_int_eq(atomic_load(&p->base[k]->storage->writers), 0);
        dt_tensor_release(p->base[k]);
    }
}

START_TEST(random_programs_keep_program_order) {
    program p;
    start_program(&p, _i, 1 + _i % 4);
    run_program(&p, STEPS);
    fake_await(&ends, STEPS);
    ck_assert_int_eq(ends.failed, 0);
    if (p.fuses) ck_assert_int_gt(fuse_built, 0);
    check_program(&p);
    stop(p.s);
}
END_TEST

/* A chain of temporaries, each released as soon as it is used: as y = y + 1 in a loop. */
START_TEST(temporaries_die_on_the_way) {
    dt_sched *s = start(2, _i);
    dt_tensor *y = fake_full(100, 0);
    for (int k = 0; k < 5000; k++) {
        dt_tensor *next = fake_tensor(100);
        dt_sched_submit(s, fake_task(&ends, next, y, 1, NULL, 0, 1));
        dt_tensor_release(y);
        y = next;
    }
    fake_await(&ends, 5000);
    ck_assert_int_eq(*fake_at(y, 99), 5000);
    dt_tensor_release(y);
    stop(s);
}
END_TEST

/* Reads of memory that nobody has written yet (an empty tensor) must not crash. */
START_TEST(unwritten_input) {
    dt_sched *s = start(2, _i);
    dt_tensor *empty = fake_tensor(1000);
    for (int k = 0; k < 20; k++) dt_sched_submit(s, fake_task(&ends, NULL, empty, 1, NULL, 0, 0));
    fake_await(&ends, 20);
    ck_assert_int_eq(ends.failed, 0);
    dt_tensor_release(empty);
    stop(s);
}
END_TEST

/* ---- many clients --------------------------------------------------------------------------- */

#define CLIENTS 4
#define CLIENT_STEPS 400

static pthread_mutex_t client_lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct client {
    pthread_t thread;
    dt_sched *s;
    dt_tensor *shared; /* every client adds to it */
    int64_t result;
    fake_ends ends;
} client;

static void *client_main(void *argument) {
    client *c = argument;
    dt_tensor *own = fake_full(8, 0);
    for (int k = 0; k < CLIENT_STEPS; k++) {
        pthread_mutex_lock(&client_lock);
        dt_sched_submit(c->s, fake_task(&c->ends, c->shared, c->shared, 1, NULL, 0, 1));
        dt_sched_submit(c->s, fake_task(&c->ends, own, own, 1, NULL, 0, 2));
        pthread_mutex_unlock(&client_lock);
        if (k % 50 == 0) fake_await(&c->ends, (uint32_t)k);
    }
    fake_await(&c->ends, 2 * CLIENT_STEPS);
    c->result = *fake_at(own, 7);
    dt_tensor_release(own);
    return NULL;
}

START_TEST(many_client_threads) {
    dt_sched *s = start(3, _i);
    dt_tensor *shared = fake_full(8, 0);
    client clients[CLIENTS];
    memset(clients, 0, sizeof clients);
    for (int k = 0; k < CLIENTS; k++) {
        clients[k].s = s;
        clients[k].shared = shared;
        pthread_create(&clients[k].thread, NULL, client_main, &clients[k]);
    }
    for (int k = 0; k < CLIENTS; k++) {
        pthread_join(clients[k].thread, NULL);
        ck_assert_int_eq(clients[k].result, 2 * CLIENT_STEPS);
        ck_assert_int_eq(clients[k].ends.failed, 0);
    }
    for (int i = 0; i < 8; i++) ck_assert_int_eq(*fake_at(shared, i), CLIENTS * CLIENT_STEPS);
    dt_tensor_release(shared);
    stop(s);
}
END_TEST

/* ---- failures ------------------------------------------------------------------------------- */

START_TEST(failure_reaches_what_depends_on_it) {
    dt_sched *s = start(2, _i);
    dt_tensor *x = fake_full(8, 1), *bad = fake_tensor(8), *next = fake_tensor(8);
    dt_tensor *good = fake_tensor(8);
    dt_task *task = fake_task(&ends, bad, x, 1, NULL, 0, 5);
    task->call.params.i[FAKE_FAIL] = DT_E_ZERO_DIVISION;
    task->call.params.i[FAKE_BUSY_NS] = 200000;
    dt_sched_submit(s, task);
    dt_sched_submit(s, fake_task(&ends, next, bad, 1, NULL, 0, 0)); /* reads it */
    dt_sched_submit(s, fake_task(&ends, x, x, 1, NULL, 0, 1));      /* only waits for its read */
    dt_sched_submit(s, fake_task(&ends, good, x, 1, NULL, 0, 0));
    fake_await(&ends, 4);
    ck_assert_int_eq(ends.failed, 2);
    ck_assert_int_eq(*fake_at(good, 7), 2);
    dt_error *error = atomic_load(&bad->storage->failure);
    ck_assert_str_eq(dt_error_message(error), "fake failure 5");
    ck_assert_ptr_eq(atomic_load(&next->storage->failure), error);
    ck_assert_ptr_null(atomic_load(&x->storage->failure));
    fake_drain(s);
    /* Long forgotten, but still the same error: for readers and for writers. */
    dt_sched_submit(s, fake_task(&ends, good, next, 1, NULL, 0, 0));
    dt_sched_submit(s, fake_task(&ends, bad, NULL, 0, NULL, 0, 3));
    fake_await(&ends, 6);
    ck_assert_int_eq(ends.failed, 4);
    ck_assert_ptr_eq(atomic_load(&good->storage->failure), error);
    dt_tensor *all[] = {x, bad, next, good};
    for (int k = 0; k < 4; k++) dt_tensor_release(all[k]);
    stop(s);
}
END_TEST

/* Each task's outcome. */
typedef struct outcome {
    fake_ends *ends;
    int message; /* of its error, or 0 */
    int expected;
} outcome;

static void note_outcome(dt_task *task) {
    outcome *o = task->user;
    if (task->error != NULL &&
        sscanf(dt_error_message(task->error), "fake failure %d", &o->message) != 1)
        o->message = -1;
    task->user = o->ends;
    fake_on_end(task);
}

#define FAIL_STEPS 600

/* Random programs in which one task in 40 fails: whom it drags along is decided by the model. */
START_TEST(random_failures) {
    dt_sched *s = start(1 + _i % 3, _i % 2);
    uint64_t seed = 99 + (uint64_t)_i;
    enum { POOL = 12 };
    dt_tensor *t[POOL];
    dt_tensor *old[FAIL_STEPS]; /* kept, for what nobody can see is not computed */
    int olds = 0;
    int failed[POOL] = {0}; /* the number of the failure, or 0 */
    outcome *outcomes = calloc(FAIL_STEPS, sizeof *outcomes);
    for (int k = 0; k < POOL; k++) t[k] = fake_full(4, k);
    for (int step = 0; step < FAIL_STEPS; step++) {
        int out = (int)test_random_in(&seed, 0, POOL - 1),
            x = (int)test_random_in(&seed, 0, POOL - 1);
        int y = (int)test_random_in(&seed, 0, POOL - 1);
        if (test_random(&seed) % 3 == 0) { /* a new tensor in its place */
            dt_tensor *fresh = fake_tensor(4);
            if (x == out || y == out) x = y = (out + 1) % POOL;
            old[olds++] = t[out];
            t[out] = fresh;
            failed[out] = 0;
        }
        outcome *o = &outcomes[step];
        dt_task *task = fake_task(&ends, t[out], t[x], 1, t[y], 1, step + 1);
        o->ends = &ends;
        task->user = o;
        task->on_end = note_outcome;
        o->expected = failed[out] ? failed[out] : failed[x] ? failed[x] : failed[y];
        if (test_random(&seed) % 40 == 0) {
            task->call.params.i[FAKE_FAIL] = DT_E_RUNTIME;
            if (o->expected == 0) o->expected = step + 1;
        }
        if (test_random(&seed) % 10 == 0) task->call.params.i[FAKE_BUSY_NS] = 20000;
        if (o->expected != 0 && failed[out] == 0) failed[out] = o->expected;
        dt_sched_submit(s, task);
    }
    fake_await(&ends, FAIL_STEPS);
    int failures = 0;
    for (int step = 0; step < FAIL_STEPS; step++) {
        ck_assert_int_eq(outcomes[step].message, outcomes[step].expected);
        failures += outcomes[step].expected != 0;
    }
    ck_assert_int_gt(failures, 10);
    ck_assert_int_lt(failures, FAIL_STEPS - 10);
    ck_assert_int_eq(ends.failed, failures);
    for (int k = 0; k < POOL; k++) dt_tensor_release(t[k]);
    for (int k = 0; k < olds; k++) dt_tensor_release(old[k]);
    free(outcomes);
    stop(s);
}
END_TEST

/* ---- stop ----------------------------------------------------------------------------------- */

typedef struct stopped_at {
    dt_sched *s;
    fake_gate gate;
} stopped_at;

static void *open_when_it_stops(void *argument) {
    stopped_at *at = argument;
    while (!atomic_load(&at->s->stop)) sched_yield(); /* it is there until its workers are done */
    fake_gate_open(&at->gate);
    return NULL;
}

/* Whatever is queued, linked, ready, timed or waiting for others ends with DT_E_SHUTDOWN. */
START_TEST(stop_with_work_queued) {
    dt_sched *s = start(2, _i);
    stopped_at at = {.s = s};
    dt_tensor *t[40];
    t[0] = fake_full(8, 0);
    for (int k = 0; k < 2; k++) submit_gated(s, &at.gate, NULL);
    while (atomic_load(&at.gate.entered) < 2) sched_yield();
    uint32_t count = 2;
    for (int k = 1; k < 40; k++) {
        t[k] = fake_tensor(8);
        dt_sched_submit(s, fake_task(&ends, t[k], t[k - 1], 1, NULL, 0, 1));
        count++;
    }
    for (int k = 0; k < 100; k++, count++)
        dt_sched_submit(s, fake_task(&ends, NULL, NULL, 0, NULL, 0, 0));
    for (int k = 0; k < 5; k++, count++) {
        dt_task *timer = bare_task(DT_TASK_TIMER, NULL, &ends);
        timer->io.delay_ns = 3600 * (int64_t)1000000000;
        dt_sched_submit(s, timer);
        dt_sched_submit(s, bare_task(DT_TASK_FENCE, t[39], &ends));
        count++;
    }
    pthread_t thread;
    pthread_create(&thread, NULL, open_when_it_stops, &at);
    dt_sched_stop(s);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(ends.count, count);
    ck_assert_uint_eq(ends.failed, count - 2);
    ck_assert_int_eq(dt_error_status(ends.error), DT_E_SHUTDOWN);
    for (int k = 0; k < 40; k++) dt_tensor_release(t[k]);
    fake_ends_clear(&ends);
    test_assert_no_leak(before);
}
END_TEST

START_TEST(start_and_stop_many_times) {
    for (int k = 0; k < 20; k++) {
        dt_sched *s = start(1 + k % 3, _i);
        if (k % 2) dt_sched_submit(s, fake_task(&ends, NULL, NULL, 0, NULL, 0, 0));
        stop(s);
    }
}
END_TEST

/* ---- fork ----------------------------------------------------------------------------------- */

/* `busy` has a reader and a writer under way in the parent. */
static int child_of_fork(dt_sched *old, dt_tensor *busy) {
    dt_sched_abandon(old);
    dt_sched_options options = {.threads = 2};
    dt_sched *s;
    if (dt_sched_start(&options, &s) != DT_OK) return 1;
    fake_ends own = {0};
    dt_tensor *x = fake_full(8, 4), *out = fake_tensor(8);
    dt_sched_submit(s, fake_task(&own, out, x, 2, NULL, 0, 1));
    fake_await(&own, 1);
    if (*fake_at(out, 7) != 9) return 2;
    dt_sched_submit(s, fake_task(&own, busy, NULL, 0, NULL, 0, 6));
    dt_sched_submit(s, fake_task(&own, out, busy, 2, NULL, 0, 0));
    fake_await(&own, 3);
    if (own.failed != 0 || *fake_at(out, 7) != 12) return 3;
    dt_tensor_release(x);
    dt_tensor_release(out);
    dt_sched_stop(s);
    return 0;
}

START_TEST(forked_child_starts_anew) {
#ifdef __SANITIZE_THREAD__
    return; /* ThreadSanitizer does not support threads in the child */
#endif
    dt_sched *s = start(2, _i);
    dt_tensor *busy = fake_full(8, 1);
    for (int round = 0; round < 6; round++) {
        /* In the middle of things, or all of them behind one that runs.  The sanitizer's malloc
         * does not survive a fork in the middle of a malloc. */
        bool gated = TEST_SANITIZED || round % 2;
        fake_gate gate = {0};
        if (gated) submit_gated(s, &gate, busy);
        for (int k = 0; k < 20; k++) {
            dt_task *task = fake_task(&ends, k % 3 && !gated ? NULL : busy, busy, 1, NULL, 0, 0);
            task->call.params.i[FAKE_BUSY_NS] = k % 2 ? 2000000 : 1000;
            dt_sched_submit(s, task);
        }
        if (gated) {
            settle(s);
            test_await_sleep(s);
        }
        pid_t pid = fork();
        if (pid == 0) _exit(child_of_fork(s, busy));
        int status;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_int_eq(status, 0);
        fake_gate_open(&gate);
        fake_drain(s);
    }
    ck_assert_int_eq(ends.failed, 0);
    dt_tensor_release(busy);
    stop(s);
}
END_TEST

/* ---- memory --------------------------------------------------------------------------------- */

static int scenario_backend;

/* A bit of everything; returns the first error that it met. */
static dt_status scenario(void) {
    dt_sched_options options = {.threads = 2, .io = backends[scenario_backend]};
    dt_sched *s;
    DT_TRY(dt_sched_start(&options, &s));
    fake_ends own = {0};
    dt_tensor *t[6] = {NULL};
    dt_status status = DT_OK;
    int64_t n = 1000;
    uint32_t count = 0;
    for (int k = 0; k < 6 && status == DT_OK; k++) status = dt_tensor_new(DT_I64, 1, &n, &t[k]);
    for (int k = 1; k < 6 && status == DT_OK; k++) {
        dt_task *task;
        status = dt_task_new(DT_TASK_COMPUTE, 1, 1, &task);
        if (status != DT_OK) break;
        task->call.operands[0] = dt_tensor_retain(t[k]);
        task->call.operands[1] = dt_tensor_retain(t[k - 1]);
        task->call.kernel = &fake_kernel;
        task->call.params.i[FAKE_PARTS] = 3;
        task->call.params.i[FAKE_SCRATCH] = 1;
        task->call.params.i[FAKE_COST_NS] = k % 2 ? 50000 : 1000;
        task->user = &own;
        task->on_end = fake_on_end;
        dt_sched_submit(s, task);
        count++;
    }
    fake_await(&own, count);
    dt_error *error = atomic_load(&own.error);
    if (status == DT_OK && error != NULL) status = dt_error_restore(error);
    for (int k = 0; k < 6; k++)
        if (t[k] != NULL) dt_tensor_release(t[k]);
    dt_sched_stop(s);
    fake_ends_clear(&own);
    return status;
}

/* Some failures are survived: a run less, epoll instead of io_uring. */
START_TEST(every_allocation_may_fail) {
    scenario_backend = _i;
    int errors = 0;
    int64_t counted;
    int n = 0;
    do {
        n++;
        dt_memory_stats memory = test_memory();
        dt_alloc_fail_at(n, false);
        dt_status status = scenario();
        counted = dt_alloc_fail_at(0, false);
        test_assert_no_leak(memory);
        ck_assert(status == DT_OK || status == DT_E_NO_MEMORY);
        errors += status != DT_OK;
        ck_assert_int_lt(n, 300);
    } while (counted >= n);
    ck_assert_int_gt(errors, 15);
}
END_TEST

/* ---- bursts --------------------------------------------------------------------------------- */

/* Submits one of the kind while the worker is busy and the controller's role is taken, so that the
 * task is still there; whether it is worth holding back. */
static bool submit_light(dt_sched *s, dt_tensor *out, int64_t cost_ns) {
    dt_task *task = fuse_task(&ends, out, NULL, 0, NULL, 0, 1);
    task->call.params.i[FAKE_COST_NS] = cost_ns;
    dt_sched_submit(s, task);
    return task->holdable;
}

/* What came close behind the last ones of a kind foretells whether something comes behind the next.
 * Light tasks are never held, heavy ones always. */
START_TEST(bursts_are_foretold) {
    dt_sched *s = start(1, _i);
    fake_gate gate = {0};
    dt_tensor *small = fake_tensor(100), *large = fake_tensor(1000);
    submit_gated(s, &gate, NULL);
    settle(s);
    pthread_mutex_lock(&s->role);
    ck_assert(!submit_light(s, small, 5000)); /* nothing is known */
    ck_assert(!submit_light(s, small, 5000)); /* one had another behind it */
    ck_assert(submit_light(s, small, 5000));  /* two had */
    ck_assert(!submit_light(s, large, 5000)); /* another kind, of which nothing is known */
    ck_assert(submit_light(s, small, 5000));
    ck_assert(!submit_light(s, small, 3999));
    ck_assert(submit_light(s, large, 50000)); /* heavy */
    for (int k = 0; k < 2; k++) { /* somebody waits at once: the counter goes down, from three */
        ck_assert(submit_light(s, small, 5000));
        for (int n = 0; n < 4; n++) dt_sched_demand(s, false); /* the same wait: counts once */
    }
    ck_assert(!submit_light(s, small, 5000));
    dt_sched_set_fusion(s, false);
    ck_assert(!submit_light(s, large, 50000));
    pthread_mutex_unlock(&s->role);
    fake_gate_open(&gate);
    fake_drain(s);
    dt_tensor_release(small);
    dt_tensor_release(large);
    stop(s);
}
END_TEST

/* ---- options, room -------------------------------------------------------------------------- */

START_TEST(bad_options) {
    dt_sched *s;
    ck_assert_int_eq(dt_sched_start(&(dt_sched_options){.threads = -1}, &s), DT_E_VALUE);
    ck_assert_int_eq(dt_sched_start(&(dt_sched_options){.threads = DT_THREADS_MAX + 1}, &s),
                     DT_E_VALUE);
    ck_assert_int_eq(dt_sched_start(&(dt_sched_options){.records_max = -1}, &s), DT_E_VALUE);
    ck_assert_int_eq(dt_sched_start(&(dt_sched_options){.io = "select"}, &s), DT_E_VALUE);
    ck_assert_str_eq(dt_error_text(), "DTORCH_IO must be 'uring' or 'epoll', not 'select'");
    ck_assert_ok(dt_sched_start(&(dt_sched_options){0}, &s));
    ck_assert_int_eq(dt_sched_threads(s), dt_sched_default_threads());
    ck_assert_int_eq(dt_sched_set_threads(s, 0), DT_E_VALUE);
    ck_assert_ok(dt_sched_set_threads(s, 3));
    ck_assert_int_eq(dt_sched_threads(s), 3);
    ck_assert_ptr_nonnull(dt_sched_io_reason(s));
    dt_sched_stop(s);
    setenv("DTORCH_IO", "epoll", 1);
    ck_assert_ok(dt_sched_start(&(dt_sched_options){.threads = 1}, &s));
    ck_assert_str_eq(dt_sched_io_backend(s), "epoll");
    dt_sched_stop(s);
    unsetenv("DTORCH_IO");
}
END_TEST

START_TEST(room) {
    before = test_memory();
    dt_sched *s;
    ck_assert_ok(dt_sched_start(&(dt_sched_options){.threads = 1, .records_max = 10}, &s));
    fake_gate gate = {0};
    for (int k = 0; k < 10; k++) {
        ck_assert(!dt_sched_full(s));
        if (k == 0)
            submit_gated(s, &gate, NULL);
        else
            dt_sched_submit(s, fake_task(&ends, NULL, NULL, 0, NULL, 0, 0));
    }
    ck_assert(dt_sched_full(s));
    ck_assert_int_eq(dt_sched_wait_room(s, 0), DT_IN_PROGRESS);
    ck_assert_int_eq(dt_sched_wait_room(s, 2000000), DT_IN_PROGRESS);
    fake_gate_open(&gate);
    ck_assert_int_eq(dt_sched_wait_room(s, -1), DT_OK);
    ck_assert_int_lt(dt_sched_in_flight(s), 10);
    ck_assert_int_eq(dt_sched_wait_room(s, 0), DT_OK);
    stop(s);
}
END_TEST

int main(void) {
    fuse_register();
    Suite *suite = suite_create("sched");
    BOTH_BACKENDS(suite, "basic", one_task, temporaries_die_on_the_way, unwritten_input,
                  many_client_threads, failure_reaches_what_depends_on_it, stop_with_work_queued,
                  start_and_stop_many_times, forked_child_starts_anew, every_allocation_may_fail);
    BOTH_BACKENDS(suite, "bursts", bursts_are_foretold);
    TEST_CASE(suite, "options", bad_options, room);
    TCase *random = tcase_create("random");
    tcase_add_loop_test(random, random_programs_keep_program_order, 0, 12);
    tcase_add_loop_test(random, random_failures, 0, 8);
    suite_add_tcase(suite, random);
    return test_run(suite);
}
