/* test_controller_round.c: rounds of the controller that clients do, clients that compute, and
 * tasks that are held back for others; on both backends.
 */
#include <check.h>

#include "tests/c/fuse_support.h"
#include "tests/c/io_support.h"
#include "tests/c/sched_fixture.h"

/* ---- clients that do the controller's round -------------------------------------------------- */

/* Whoever comes, it ends in `count` ends: a client that looks now and then. */
static void assist_until(dt_sched *s, fake_ends *e, uint32_t count) {
    while (atomic_load(&e->count) < count) {
        (void)dt__controller_assist(s, DT_BY_CLIENT);
        sched_yield();
    }
}

static int64_t wakeups(dt_sched *s) { return stats_of(s).controller_wakeups; }

/* Links, hands over, retires, hands over what was waiting, without the controller's thread: the
 * client, or the worker that has nothing left to do. */
START_TEST(client_does_the_round) {
    dt_sched *s = start(1, _i);
    dt_tensor *x = fake_full(8, 1), *y = fake_tensor(8), *z = fake_tensor(8);
    lull(s);
    int64_t slept = wakeups(s);
    for (int k = 0; k < 2; k++) {
        dt_task *task = fake_task(&ends, k == 0 ? y : z, k == 0 ? x : y, 2, NULL, 0, 1);
        task->call.params.i[FAKE_COST_NS] = 1000000; /* in no run */
        dt_sched_submit(s, task);
    }
    ck_assert(!dt_mpsc_is_empty(&s->submitted));
    assist_until(s, &ends, 2);
    ck_assert_int_eq(*fake_at(z, 7), 7);
    while (dt_sched_in_flight(s) > 0) (void)dt__controller_assist(s, DT_BY_CLIENT);
    ck_assert_int_eq(wakeups(s), slept);
    wake(s);
    dt_tensor *all[] = {x, y, z};
    for (int k = 0; k < 3; k++) dt_tensor_release(all[k]);
    stop(s);
}
END_TEST

/* A demand does it, where something is waiting to be linked. */
START_TEST(demand_is_a_round) {
    dt_sched *s = start(1, _i);
    lull(s);
    int64_t slept = wakeups(s);
    dt_sched_submit(s, fake_task(&ends, NULL, NULL, 0, NULL, 0, 0));
    dt_sched_demand(s, false);
    ck_assert(dt_mpsc_is_empty(&s->submitted));
    fake_await(&ends, 1);
    ck_assert_int_eq(wakeups(s), slept);
    wake(s);
    stop(s);
}
END_TEST

/* The client that goes on to help computes the task itself; no thread is woken for it. */
static pthread_t computed_in;

static dt_status note_self(const dt_call *call, const dt_part *part) {
    (void)call;
    (void)part;
    computed_in = pthread_self();
    return DT_OK;
}

static const dt_kernel self_kernel = {.name = "self", .run = note_self, .cost_ns = fake_cost};

static bool has_one_ended(void *context) { return atomic_load(&((fake_ends *)context)->count) > 0; }

START_TEST(client_computes_its_own_task) {
    dt_sched *s = start(1, _i);
    lull(s);
    while (!dt__pool_has_idle(s->pool)) sched_yield();
    dt_sched_stats slept = stats_of(s);
    dt_task *task = fake_task(&ends, NULL, NULL, 0, NULL, 0, 0);
    task->call.kernel = &self_kernel;
    dt_sched_submit(s, task);
    dt_sched_helper_enter(s);
    dt_sched_demand(s, true);
    ck_assert_int_eq(ends.count, 0);
    dt_sched_help(s, has_one_ended, &ends);
    ck_assert_int_eq(ends.count, 1);
    ck_assert(pthread_equal(computed_in, pthread_self()));
    ck_assert_int_eq(dt_sched_in_flight(s), 0); /* it looked at what had ended, too */
    ck_assert_int_eq(stats_of(s).worker_wakeups, slept.worker_wakeups);
    ck_assert_int_eq(stats_of(s).controller_wakeups, slept.controller_wakeups);
    wake(s);
    stop(s);
}
END_TEST

/* I/O, timers and fences are for the controller's own thread, which the client wakes for them. */
START_TEST(client_leaves_io_and_timers) {
    io_make_file(8000);
    dt_sched *s = start(1, _i);
    dt_file *file;
    ck_assert_ok(dt_file_open(io_path, false, &file));
    dt_tensor *in = fake_tensor(1000);
    for (int kind = 0; kind < 3; kind++) {
        lull(s);
        if (kind == 0) dt_sched_submit(s, io_task(&ends, file, false, in, 0));
        if (kind == 1) dt_sched_submit(s, bare_task(DT_TASK_TIMER, NULL, &ends));
        if (kind == 2) {
            dt_task *fence = bare_task(DT_TASK_FENCE, NULL, &ends);
            fence->after_all = true;
            dt_sched_submit(s, fence);
        }
        int64_t slept = wakeups(s);
        ck_assert(dt__controller_assist(s, DT_BY_CLIENT));
        fake_await(&ends, (uint32_t)kind + 1);
        fake_drain(s);
        while (wakeups(s) == slept) sched_yield(); /* it has been up */
    }
    ck_assert_int_eq(*fake_at(in, 999), 999 * 3 + 1);
    dt_tensor_release(in);
    dt_file_release(file);
    stop(s);
    io_remove_file();
}
END_TEST

/* Not while another one is at it, not with a crowd in flight, and nothing after a stop. */
START_TEST(client_leaves_the_round_to_others) {
    dt_sched *s = start(1, _i);
    fake_gate gate = {0};
    submit_gated(s, &gate, NULL);
    settle(s);
    pthread_mutex_lock(&s->role);
    ck_assert(!dt__controller_assist(s, DT_BY_CLIENT));
    for (int k = 0; k < 256; k++) dt_sched_submit(s, fake_task(&ends, NULL, NULL, 0, NULL, 0, 0));
    ck_assert_int_eq(dt_sched_in_flight(s), 257);
    pthread_mutex_unlock(&s->role);
    ck_assert(!dt__controller_assist(s, DT_BY_CLIENT));
    fake_gate_open(&gate);
    fake_await(&ends, 257);
    fake_drain(s);
    fake_gate second = {0};
    submit_gated(s, &second, NULL); /* no worker is idle: what comes is the controller's */
    pthread_mutex_lock(&s->role);   /* which sees both at once */
    dt_sched_submit(s, fake_task(&ends, NULL, NULL, 0, NULL, 0, 0));
    atomic_store(&s->stop, true);
    pthread_mutex_unlock(&s->role);
    (void)dt__controller_assist(s,
                                DT_BY_CLIENT); /* wakes the controller, which ends what there is */
    fake_await(&ends, 258);
    ck_assert_int_eq(ends.failed, 1);
    ck_assert_int_eq(dt_error_status(ends.error), DT_E_SHUTDOWN);
    fake_gate_open(&second);
    stop(s);
}
END_TEST

/* A client may be helping while the scheduler stops. */
static void *help_main(void *argument) {
    dt_sched_help(argument, has_one_ended, &(fake_ends){0});
    return NULL;
}

START_TEST(stop_waits_for_a_helping_client) {
    for (int round = 0; round < 20; round++) {
        dt_sched *s = start(2, _i);
        pthread_t thread;
        for (int k = 0; k < 50; k++)
            dt_sched_submit(s, fake_task(&ends, NULL, NULL, 0, NULL, 0, 0));
        dt_sched_helper_enter(s);
        pthread_create(&thread, NULL, help_main, s);
        dt_sched_stop(s);
        pthread_join(thread, NULL);
        ck_assert_int_eq(ends.count, 50);
        fake_ends_clear(&ends);
        test_assert_no_leak(before);
    }
}
END_TEST

/* ---- holding -------------------------------------------------------------------------------- */

/* With the controller's time at `offset_ns` before the one at which tasks are submitted. */
static dt_sched *start_held(int threads, int backend, int64_t offset_ns) {
    dt_sched *s = start(threads, backend);
    freeze(s, dt_clock_ns() - offset_ns);
    while (!dt__pool_has_idle(s->pool)) sched_yield();
    return s;
}

/* Heavy enough to be held. */
static dt_task *heavy_fusing(dt_tensor *out, dt_tensor *x) {
    dt_task *task = fuse_task(&ends, out, x, 1, NULL, 0, 1);
    task->call.params.i[FAKE_COST_NS] = 100000;
    return task;
}

static int held_count(dt_sched *s) {
    int n = 0;
    pthread_mutex_lock(&s->role);
    for (dt_task *task = s->controller.held.first; task != NULL; task = task->list_next) n++;
    pthread_mutex_unlock(&s->role);
    return n;
}

enum { HELD = 4, FAR_NS = 1000000000 };

typedef struct held {
    dt_tensor *t[HELD + 1];
} held;

/* A chain of which the first one is held; nothing of it has started. */
static held submit_held(dt_sched *s) {
    held h;
    h.t[0] = fake_full(1000, 5);
    for (int k = 0; k < HELD; k++) {
        h.t[k + 1] = fake_tensor(1000);
        dt_sched_submit(s, heavy_fusing(h.t[k + 1], h.t[k]));
    }
    settle(s);
    ck_assert_int_eq(held_count(s), 1);
    ck_assert_int_eq(fake_started, 0);
    return h;
}

/* All of it was computed in one pass. */
static void finish_held(dt_sched *s, held *h) {
    fake_await(&ends, HELD);
    for (int k = 0; k <= HELD; k++) {
        ck_assert_int_eq(*fake_at(h->t[k], 999), 5 + k);
        dt_tensor_release(h->t[k]);
    }
    fake_drain(s);
    ck_assert_int_eq(held_count(s), 0);
    ck_assert_int_eq(stats_of(s).passes, 1);
    ck_assert_int_ge(stats_of(s).fused, HELD);
}

START_TEST(hold_ends_when_somebody_waits) {
    dt_sched *s = start_held(1, _i, FAR_NS);
    held h = submit_held(s);
    dt_sched_demand(s, false);
    finish_held(s, &h);
    ck_assert_int_eq(stats_of(s).direct, 0);
    stop(s);
}
END_TEST

/* 20 us after the last submission; not before. */
START_TEST(hold_ends_when_clients_go_quiet) {
    dt_sched *s = start_held(1, _i, FAR_NS);
    held h = submit_held(s);
    pthread_mutex_lock(&s->role);
    int64_t submitted_ns = s->controller.submitted_ns;
    pthread_mutex_unlock(&s->role);
    atomic_store(&time_ns, submitted_ns + 19999);
    pthread_mutex_lock(&s->role); /* has it been held for too long, instead? */
    s->controller.held_since_ns = submitted_ns;
    pthread_mutex_unlock(&s->role);
    struct timespec ts = {0, 1000000};
    nanosleep(&ts, NULL);
    ck_assert_int_eq(held_count(s), 1);
    atomic_store(&time_ns, submitted_ns + 20000);
    finish_held(s, &h);
    stop(s);
}
END_TEST

/* However busy the clients are. */
START_TEST(hold_ends_after_half_a_millisecond) {
    dt_sched *s = start_held(1, _i, FAR_NS);
    held h = submit_held(s);
    atomic_fetch_add(&time_ns, 499999);
    struct timespec ts = {0, 1000000};
    nanosleep(&ts, NULL);
    ck_assert_int_eq(held_count(s), 1);
    atomic_fetch_add(&time_ns, 1);
    finish_held(s, &h);
    stop(s);
}
END_TEST

/* Or the next ones fill a pass. */
START_TEST(hold_ends_with_a_full_pass) {
    dt_sched *s = start_held(1, _i, FAR_NS);
    dt_tensor *x = fake_full(8, 0);
    dt_sched_submit(s, heavy_fusing(x, x));
    settle(s);
    ck_assert_int_eq(held_count(s), 1);
    for (int k = 0; k < DT_FUSE_MAX; k++) dt_sched_submit(s, heavy_fusing(x, x));
    /* settle's fence counts as well: whether one or two are held again depends on when the
     * controller looked. */
    fake_await(&ends, DT_FUSE_MAX - 1);
    dt_sched_demand(s, false);
    fake_await(&ends, DT_FUSE_MAX + 1);
    ck_assert_int_eq(*fake_at(x, 7), DT_FUSE_MAX + 1);
    fake_drain(s);
    dt_tensor_release(x);
    stop(s);
}
END_TEST

START_TEST(hold_ends_before_a_fence_and_at_a_stop) {
    dt_sched *s = start_held(1, _i, FAR_NS);
    held h = submit_held(s);
    fake_ends fence = {0};
    dt_task *task = bare_task(DT_TASK_FENCE, NULL, &fence);
    task->after_all = true;
    dt_sched_submit(s, task);
    fake_await(&fence, 1);
    finish_held(s, &h);
    fake_ends_clear(&ends);
    dt_tensor *x = fake_full(8, 0);
    while (!dt__pool_has_idle(s->pool)) sched_yield();
    dt_sched_submit(s, heavy_fusing(x, x));
    settle(s);
    ck_assert_int_eq(held_count(s), 1);
    dt_sched_stop(s);
    ck_assert_int_eq(dt_error_status(ends.error), DT_E_SHUTDOWN);
    dt_tensor_release(x);
    fake_ends_clear(&ends);
    test_assert_no_leak(before);
}
END_TEST

/* What is held is dropped when it goes. */
START_TEST(held_task_is_dropped) {
    dt_sched *s = start_held(1, _i, FAR_NS);
    dt_tensor *x = fake_full(8, 0), *out = fake_tensor(8);
    dt_sched_submit(s, heavy_fusing(out, x));
    settle(s);
    ck_assert_int_eq(held_count(s), 1);
    dt_sched_tell(s, DT_TASK_RELEASE, out);
    fake_await(&ends, 1);
    fake_drain(s);
    ck_assert_int_eq(held_count(s), 0);
    ck_assert_int_eq(stats_of(s).dropped, 1);
    dt_tensor_release(x);
    stop(s);
}
END_TEST

/* Not held: what was demanded already, light tasks, tasks that do not fuse, any task while no
 * worker is idle, and with fusion off. */
START_TEST(what_is_never_held) {
    dt_sched *s = start_held(1, _i, FAR_NS);
    dt_tensor *x = fake_full(8, 0);
    uint32_t count = 0;
    dt_task *light = fuse_task(&ends, x, x, 1, NULL, 0, 1);
    dt_sched_submit(s, light);
    fake_await(&ends, ++count);
    dt_task *other = fake_task(&ends, x, x, 1, NULL, 0, 1);
    other->call.params.i[FAKE_COST_NS] = 100000;
    dt_sched_submit(s, other);
    fake_await(&ends, ++count);
    dt_sched_set_fusion(s, false);
    for (int k = 0; k < 3; k++) {
        dt_sched_submit(s, heavy_fusing(x, x));
        fake_await(&ends, ++count);
    }
    dt_sched_set_fusion(s, true);
    fake_gate gate = {0};
    submit_gated(s, &gate, NULL);
    dt_sched_submit(s, heavy_fusing(x, x));
    settle(s);
    ck_assert_int_eq(held_count(s), 0);
    fake_gate_open(&gate);
    fake_await(&ends, count + 2);
    fake_drain(s);
    dt_tensor_release(x);
    stop(s);
}
END_TEST

int main(void) {
    fuse_register();
    Suite *suite = suite_create("controller round");
    BOTH_BACKENDS(suite, "clients", client_does_the_round, demand_is_a_round,
                  client_computes_its_own_task, client_leaves_io_and_timers,
                  client_leaves_the_round_to_others, stop_waits_for_a_helping_client);
    BOTH_BACKENDS(suite, "holding", hold_ends_when_somebody_waits, hold_ends_when_clients_go_quiet,
                  hold_ends_after_half_a_millisecond, hold_ends_with_a_full_pass,
                  hold_ends_before_a_fence_and_at_a_stop, held_task_is_dropped, what_is_never_held);
    return test_run(suite);
}
