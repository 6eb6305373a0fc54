/* micro_task.c: what a task costs that does nothing: its latency in each lane, and how many of them
 * go through in a second, chained and independent.
 *
 * Latency is from dt_sched_submit to the start of on_end, on an idle scheduler; making the task is
 * not in it.  The lane is checked against the scheduler's own counts.  Throughput is from the first
 * submission to the last end, making the tasks included; the rows "the client's part" are the time
 * until the last submission returned.
 */
#include "bench/micro.h"
#include "runtime/graveyard.h"
#include "scheduler/sched.h"

#define TASKS 100000
#define LATENCIES 2000
#define PENDING_BYTES 4096 /* too large to lie behind the header of its storage */

static dt_status nothing_run(const dt_call *call, const dt_part *part) {
    (void)call;
    (void)part;
    return DT_OK;
}
static double nothing_cost(const dt_call *call) {
    (void)call;
    return 100;
}
static const dt_kernel nothing = {.name = "nothing", .run = nothing_run, .cost_ns = nothing_cost};

typedef struct ends {
    _Atomic(uint32_t) left;
    int64_t last_ns; /* where there is one task only; set before left becomes 0 */
} ends;

static void on_end(dt_task *task) {
    ends *e = task->user;
    int64_t now_ns = dt_clock_ns();
    if (task->error != NULL) micro_die(dt_error_message(task->error));
    if (atomic_load(&e->left) == 1) e->last_ns = now_ns;
    /* The waiter may be gone by the time of the wake-up, which takes the address only. */
    if (atomic_fetch_sub(&e->left, 1) == 1) dt_futex_wake(&e->left, 1);
}

static void await_ends(ends *e) {
    for (uint32_t left; (left = atomic_load(&e->left)) > 0;) dt_futex_wait(&e->left, left, -1);
}

static void nap(long ns) {
    struct timespec ts = {0, ns};
    nanosleep(&ts, NULL);
}

/* Until the controller has retired all, so that the next measurement finds it idle. */
static void drain(dt_sched *s) {
    while (dt_sched_in_flight(s) > 0) nap(50000);
    dt_graveyard_drain();
}

static dt_tensor *tensor_new(int64_t bytes) {
    dt_tensor *t;
    MICRO_OK(dt_tensor_new(DT_U8, 1, &bytes, &t));
    return t;
}

/* t = nothing(t), or nothing(in) where that is given. */
static dt_task *task_new(dt_tensor *t, dt_tensor *in, ends *e) {
    dt_task *task;
    MICRO_OK(dt_task_new(DT_TASK_COMPUTE, 1, in != NULL, &task));
    task->call.kernel = &nothing;
    task->call.operands[0] = dt_tensor_retain(t);
    if (in != NULL) task->call.operands[1] = dt_tensor_retain(in);
    task->on_end = on_end;
    task->user = e;
    return task;
}

/* ---- latency */

/* An input whose memory was never taken sends a task to the controller, which takes it. */
static double latency_ns(dt_sched *s, bool direct) {
    ends e = {.left = 1};
    dt_tensor *t = tensor_new(8), *in = direct ? NULL : tensor_new(PENDING_BYTES);
    dt_task *task = task_new(t, in, &e);
    int64_t begin_ns = dt_clock_ns();
    dt_sched_submit(s, task);
    await_ends(&e);
    double ns = (double)(e.last_ns - begin_ns);
    drain(s);
    dt_tensor_release(t);
    if (in != NULL) dt_tensor_release(in);
    return ns;
}

static void run_latency(dt_sched *s, const char *name, bool direct) {
    static double samples[LATENCIES];
    int count = micro_samples(LATENCIES), other = 0;
    for (int i = 0; i < count; i++) {
        dt_sched_stats before, after;
        dt_sched_stats_get(s, &before);
        nap(200000); /* controller and workers fall asleep */
        samples[i] = latency_ns(s, direct);
        dt_sched_stats_get(s, &after);
        if ((after.direct > before.direct) != direct) other++;
    }
    if (other > count / 10) {
        fprintf(stderr, "%s: %d of %d tasks took the other lane\n", name, other, count);
        exit(1);
    }
    char text[64];
    micro_each(name, samples, count, 1);
    double p99[1] = {micro_percentile(samples, count, 99)};
    snprintf(text, sizeof text, "%s, p99", name);
    micro_each(text, p99, 1, 1);
}

/* ---- throughput */

typedef struct load {
    dt_sched *sched;
    dt_tensor **tensors; /* one for each task, or one for all */
    bool chained;
    double *client_ns; /* where the client's part of the next run goes */
} load;

static void submit_all(void *context) {
    load *l = context;
    ends e = {.left = TASKS};
    int64_t begin_ns = dt_clock_ns();
    for (int i = 0; i < TASKS; i++) {
        dt_tensor *t = l->tensors[l->chained ? 0 : i];
        dt_sched_submit(l->sched, task_new(t, l->chained ? t : NULL, &e));
    }
    *l->client_ns++ = (double)(dt_clock_ns() - begin_ns);
    await_ends(&e);
}

static void run_throughput(dt_sched *s, const char *name, dt_tensor **tensors, bool chained) {
    double client_ns[MICRO_SAMPLES + MICRO_WARM];
    load l = {.sched = s, .tensors = tensors, .chained = chained, .client_ns = client_ns};
    micro_run(name, TASKS, submit_all, &l);
    micro_rate("M tasks/s", 1e3);
    drain(s);
    char text[64];
    snprintf(text, sizeof text, "%s: the client's part", name);
    micro_each(text, client_ns + MICRO_WARM, (int)(l.client_ns - client_ns) - MICRO_WARM, TASKS);
}

int main(int argc, char **argv) {
    micro_begin(argc, argv, "tasks that do nothing");
    dt_sched *s;
    dt_sched_options options = {0};
    MICRO_OK(dt_sched_start(&options, &s));
    run_latency(s, "latency, direct lane", true);
    run_latency(s, "latency, controller lane", false);

    dt_tensor **tensors = micro_alloc(sizeof *tensors * TASKS);
    for (int i = 0; i < TASKS; i++) tensors[i] = tensor_new(8);
    run_throughput(s, "100,000 chained", tensors, true);
    run_throughput(s, "100,000 independent", tensors, false);
    for (int i = 0; i < TASKS; i++) dt_tensor_release(tensors[i]);
    free(tensors);
    dt_sched_stop(s);
    return micro_end();
}
