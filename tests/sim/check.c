/* check.c: what must hold, while the scheduler runs and when the program is done once more.
 *
 * Each storage has a list of the tasks that use it, in program order.  Whoever begins to compute is
 * held against it: all that conflict and come before have ended, and none that comes behind has
 * begun.  What tasks wrote is not looked at then, but noted where a client reads it; after the end
 * the program is executed from the first task to the last, one after the other, with the failures
 * that chance brought (memory, shutdown), and every failure and every value must be the same.
 *
 * I1: program order is the order of sim_check_submit and sim_check_observe: the client lock.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/alloc.h"
#include "scheduler/controller.h"
#include "scheduler/graph.h"
#include "tests/sim/memory.h"
#include "tests/sim/sim.h"
#include "tests/sim/world.h"

#ifndef SIM_TSAN
#define SIM_TSAN 0
#endif

enum { OVERTAKEN_MAX = 12 };

typedef struct use {
    int16_t task;
    bool write;
} use;

typedef struct storage {
    int64_t elements;
    int handles;
    int uses_count, settled; /* the first `settled` uses have ended */
    use uses[SIM_TASKS_MAX];
    /* the replay */
    int64_t values[SIM_ELEMENTS_MAX];
    dt_error *cause;
    bool dropped;
} storage;

typedef struct entry {
    int task; /* negative: an observation */
    sim_view view;
    dt_error *failure;
    int64_t values[SIM_ELEMENTS_MAX];
} entry;

sim_task sim_tasks[SIM_TASKS_MAX];
int sim_tasks_count;
dt_sched *sim_sched;
bool sim_stopping, sim_memory_fails, sim_limited;
int sim_threads_allowed, sim_working;
int64_t sim_acts, sim_last_need;
int sim_room_waiters;
int64_t sim_covered[SIM_COVER_COUNT];

static storage storages[SIM_STORAGES_MAX];
static int storages_count;
static entry entries[SIM_LOG_MAX];
static int entries_count;

static void explain(void);

void sim_check_start_seed(void) {
    sim_tasks_count = storages_count = entries_count = 0;
    sim_sched = NULL;
    sim_stopping = sim_memory_fails = sim_limited = false;
    sim_working = sim_room_waiters = 0;
    sim_acts = sim_last_need = 0;
    sim_explain = explain;
}

int sim_storage_new(int64_t elements) {
    if (storages_count == SIM_STORAGES_MAX) sim_violation("too many storages");
    storage *s = &storages[storages_count];
    s->elements = elements;
    s->handles = s->uses_count = s->settled = 0;
    s->cause = NULL;
    s->dropped = false;
    memset(s->values, SIM_MEMORY_FRESH, sizeof s->values);
    return storages_count++;
}

void sim_storage_handles(int storage, int change) {
    if ((storages[storage].handles += change) < 0) sim_violation("handles of a client");
}

/* ---- program order --------------------------------------------------------------------------- */

static void add_use(const sim_task *t, int at, bool write) {
    storage *to = &storages[at];
    if (to->uses_count > 0 && to->uses[to->uses_count - 1].task == t->index) return;
    to->uses[to->uses_count++] = (use){(int16_t)t->index, write};
}

void sim_check_submit(sim_task *t) {
    if (entries_count == SIM_LOG_MAX) sim_violation("the program is too long");
    for (int k = 0; k < t->nout + t->nin; k++) add_use(t, t->at[k].storage, k < t->nout);
    entries[entries_count++].task = t->index;
    t->submit_ns = sim_now();
    sim_cover(tasks);
}

void sim_check_observe(sim_view v, const int64_t *values, dt_error *failure) {
    if (entries_count == SIM_LOG_MAX) sim_violation("the program is too long");
    entry *e = &entries[entries_count++];
    e->task = -1;
    e->view = v;
    e->failure = dt_error_retain(failure);
    if (failure == NULL) memcpy(e->values, values, (size_t)v.n * sizeof *values);
}

int sim_storage_last_writer(int storage) {
    const struct storage *s = &storages[storage];
    for (int k = s->uses_count - 1; k >= 0; k--)
        if (s->uses[k].write && sim_tasks[s->uses[k].task].kind != DT_TASK_FENCE)
            return s->uses[k].task;
    return -1;
}

/* `passed`: a direct task has gone past the other one, whose counts were lowered by then; that the
 * client is told of its end may come later. */
static void check_pair(const sim_task *t, const sim_task *other, bool passed) {
    if (t->pass != 0 && t->pass == other->pass) return;
    if (other->index > t->index) {
        /* A fence's counts are lowered before it is heard of. */
        if (other->started && !(t->kind == DT_TASK_FENCE && other->direct))
            sim_violation("T%d begins after T%d, which comes behind it", t->index, other->index);
    } else if (passed ? other->inside > 0 : other->ends == 0) {
        sim_violation("T%d begins before T%d has ended", t->index, other->index);
    }
}

/* Whether t, or one between, is direct and had to find that use over. */
static bool is_passed(const sim_task *t, const storage *at, int use) {
    bool passed = t->direct;
    for (int k = use + 1; k < at->uses_count && at->uses[k].task < t->index; k++)
        passed |= sim_tasks[at->uses[k].task].direct && (at->uses[k].write || at->uses[use].write);
    return passed;
}

static void check_order(const sim_task *t, int s, bool write) {
    storage *at = &storages[s];
    while (at->settled < at->uses_count && sim_tasks[at->uses[at->settled].task].ends > 0)
        at->settled++;
    for (int k = at->settled; k < at->uses_count; k++) {
        const use *u = &at->uses[k];
        if (u->task != t->index && (write || u->write))
            check_pair(t, &sim_tasks[u->task], is_passed(t, at, k));
    }
}

static void check_operands(const sim_task *t) {
    for (int k = 0; k < t->nout + t->nin; k++) {
        bool written = k < t->nout;
        for (int j = 0; j < t->nout; j++) written |= t->at[j].storage == t->at[k].storage;
        check_order(t, t->at[k].storage, written);
    }
}

/* When a task's turn comes, among those that wait for nothing. */
static int64_t turn_ns(const sim_task *t) {
    return t->submit_ns + (t->priority == DT_PRIORITY_BULK          ? DT__READY_BULK_NS
                           : t->priority == DT_PRIORITY_INTERACTIVE ? -DT__READY_INTERACTIVE_NS
                                                                    : 0);
}

/* Whether it has stood aside of itself: it has begun, ended, or nobody asks for it. */
static bool is_aside(const sim_task *t) {
    return !t->free_to_run || t->started || t->ends > 0 || t->gave_up ||
           (t->task != NULL && t->task->parked);
}

/* Counts t for those that come before it and have not begun. What is queued may be in between. */
static void check_overtaking(const sim_task *t) {
    /* These two go other ways, those wait for memory. */
    if (t->direct || !t->free_to_run || sim_limited || sim_memory_fails) return;
    for (int k = 0; k < t->index; k++) {
        sim_task *other = &sim_tasks[k];
        if (is_aside(other)) continue;
        if (other->priority == DT_PRIORITY_BULK && t->priority != DT_PRIORITY_BULK)
            sim_cover(bulk_overtaken);
        if (turn_ns(other) < turn_ns(t) && ++other->overtaken > OVERTAKEN_MAX)
            sim_violation("T%d (priority %d) is overtaken again and again", other->index,
                          other->priority);
    }
    for (int k = t->index + 1; k < sim_tasks_count; k++) {
        sim_task *other = &sim_tasks[k];
        if (is_aside(other)) continue;
        if (turn_ns(other) < turn_ns(t) && ++other->overtaken > OVERTAKEN_MAX)
            sim_violation("T%d (priority %d) has to wait for less urgent ones", other->index,
                          other->priority);
    }
}

void sim_check_begin(sim_task *t) {
    if (t->ends > 0) sim_violation("T%d is computed after its end", t->index);
    if (t->task->kind == DT_TASK_COMPUTE) t->direct = t->task->direct;
    check_operands(t);
    if (!t->started && t->kind == DT_TASK_COMPUTE) {
        check_overtaking(t);
        if (t->idle_at != 0 && t->idle_at == sim_acts)
            sim_violation("T%d is computed though nobody asks for it", t->index);
    }
    t->started = true;
}

/* ---- the end of a task ----------------------------------------------------------------------- */

static void check_fence(const sim_task *t) {
    if (t->error != NULL && dt_error_status(t->error) == DT_E_NO_MEMORY) return; /* not linked */
    check_operands(t);
    for (int k = 0; t->after_all && k < t->index; k++)
        if (sim_tasks[k].ends == 0) sim_violation("fence T%d ends before T%d has", t->index, k);
}

/* Only who starves longest may fail, when nothing that runs could free memory for it. */
static void check_out_of_memory(const sim_task *t) {
    for (int k = 0; k < sim_tasks_count; k++)
        if (k != t->index && sim_tasks[k].error == t->error) return; /* that one's failure */
    sim_cover(out_of_memory);
    if (!sim_limited && !sim_memory_fails) sim_violation("T%d is out of memory", t->index);
    if (sim_memory_failures > 0 || t->kind != DT_TASK_COMPUTE) return;
    if (!t->task->last_chance) sim_violation("T%d is out of memory at the first try", t->index);
    int64_t wanted = 0;
    for (int k = 0; k < t->nout; k++)
        wanted += (int64_t)dt_call_out(&t->task->call, k)->storage->bytes;
    if (wanted > dt_memory_limit()) return; /* whatever others free */
    for (int k = 0; k < t->index; k++)
        if (sim_tasks[k].inside > 0 && sim_tasks[k].kind == DT_TASK_COMPUTE)
            sim_violation("T%d is out of memory while T%d may free some", t->index, k);
}

static void check_failure(const sim_task *t) {
    dt_status status = dt_error_status(t->error);
    if (status == DT_E_SHUTDOWN) {
        sim_cover(shut_down);
        if (!sim_stopping) sim_violation("T%d is shut down", t->index);
    }
    if (status == DT_E_NO_MEMORY && t->fails == DT_OK) check_out_of_memory(t);
    for (int k = 0; t->dropped && k < t->nout; k++)
        if (storages[t->at[k].storage].handles > 0)
            sim_violation("T%d is dropped, but a client has a handle of its result", t->index);
}

static void cover_end(const sim_task *t) {
    if (t->kind == DT_TASK_FENCE) sim_cover(fences);
    if (t->after_all) sim_cover(fences_after_all);
    if (t->kind == DT_TASK_TIMER) sim_cover(timers);
    if (t->kind == DT_TASK_READ) sim_cover(reads);
    if (t->kind == DT_TASK_WRITE) sim_cover(writes);
    if (t->error != NULL && !t->dropped) sim_cover(failed);
    if (t->error != NULL && t->io_fate != SIM_IO_GOOD) sim_cover(io_errors);
}

void sim_check_ended(dt_task *task) {
    sim_task *t = task->user;
    if (++t->ends > 1) sim_violation("T%d ends twice", t->index);
    t->dropped = task->dropped;
    t->error = dt_error_retain(task->error);
    sim_event(t->dropped         ? "T%lld is dropped"
              : t->error != NULL ? "T%lld fails (%lld)"
                                 : "T%lld ends",
              t->index, t->error != NULL ? dt_error_status(t->error) : 0, 0, 0);
    if (t->inside > 0) sim_violation("T%d ends while it is computed", t->index);
    if (t->kind != DT_TASK_TIMER && t->kind != DT_TASK_FENCE && t->error == NULL && !t->started)
        sim_violation("T%d ends well without having been computed", t->index);
    if (t->kind == DT_TASK_FENCE) check_fence(t);
    if (t->kind == DT_TASK_TIMER && t->error == NULL &&
        sim_now() < task->time_submit_ns + t->delay_ns)
        sim_violation("timer T%d is early", t->index);
    if (t->error != NULL) check_failure(t);
    cover_end(t);
    t->task = NULL;
    sim_wake(t, INT32_MAX);
}

/* ---- the scheduler's own state --------------------------------------------------------------- */

/* A submission that nobody was told of, direct ones apart. */
static bool has_unseen_submission(const dt_sched *s) {
    for (const dt_mpsc_node *n = s->submitted.head; n != NULL; n = n->next)
        if (!DT_MPSC_OWNER((uintptr_t)n, dt_task, submit_node)->direct) return true;
    return false;
}

/* Nobody can go on: what somebody has given up, and nobody has asked for since, must not begin
 * before a client does something.  More is taken for needed here than the scheduler does. */
static void note_unasked(void) {
    bool needed[SIM_TASKS_MAX] = {false};
    bool all = sim_room_waiters > 0;
    for (int k = sim_tasks_count - 1; k >= 0; k--) {
        sim_task *t = &sim_tasks[k];
        if (t->ends > 0) continue;
        all |= t->after_all;
        needed[k] |= all || t->kind != DT_TASK_COMPUTE || t->waiters > 0;
        if (!needed[k]) t->idle_at = t->gave_up && t->gave_up_at > sim_last_need ? sim_acts : 0;
        for (int n = 0; needed[k] && n < t->nout + t->nin; n++) {
            const storage *s = &storages[t->at[n].storage];
            for (int u = s->settled; u < s->uses_count && s->uses[u].task < k; u++)
                needed[s->uses[u].task] = true;
        }
    }
}

void sim_check_quiet(void) {
    sim_cover(quiet_moments);
    const dt_sched *s = sim_sched;
    if (s == NULL || SIM_TSAN) return;     /* which would see a race */
    if (!sim_memory_fails) note_unasked(); /* then a word may be lost */
    const dt_controller *c = &s->controller;
    if (has_unseen_submission(s)) sim_violation("a submission was slept over");
    if (s->ended.head != NULL && sim_working == 0) sim_violation("an end was slept over");
    if (!dt__pool_has_idle(s->pool)) return;
    if (dt__pool_queued(s->pool) > 0) sim_violation("a run waits while a worker is idle");
    if (c->ready.count > 0 && !sim_limited) /* near the limit they take turns */
        sim_violation("a ready task waits while a worker is idle");
    if (c->held.first != NULL) sim_violation("a task is held back for ever");
    if (s->memory_freed) sim_violation("freed memory was slept over");
    if (c->starved.first != NULL && c->handed == 0 && s->io->pieces_under_way == 0 &&
        c->mercy_ns == 0)
        sim_violation("a task starves while nothing runs");
}

static void print_task(const dt_task *task) {
    static const char *const states[] = {"new",   "linked",  "handed",    "running",
                                         "ended", "dropped", "taken back"};
    static const char *const places[] = {"",       ", ready",  ", ready",
                                         ", held", ", parked", ", starved"};
    const sim_task *t = task->user;
    fprintf(stderr, "  T%d %s%s, waits for %d%s%s%s\n", t->index, states[task->state],
            places[task->place], task->blockers, task->parked ? ", is parked" : "",
            task->run != NULL ? ", in a run" : "", t->waiters > 0 ? ", is wanted" : "");
}

static void explain(void) {
    if (sim_sched == NULL) return;
    const dt_sched *s = sim_sched;
    for (const dt_task *t = s->controller.oldest; t != NULL; t = t->younger) print_task(t);
    fprintf(stderr, "  the gate is %s, %lld handed, %d queued, %lld ready, %d parks\n",
            s->gate.closed ? "closed" : "open", (long long)s->controller.handed,
            dt__pool_queued(s->pool), (long long)s->controller.ready.count, s->parks);
}

static void look_at(const dt_task *task) {
    static uint64_t starved_seq, back_seq, held_seq;
    sim_task *t = task->user;
    if (task->place == DT_PLACE_STARVED && starved_seq != task->seq) {
        starved_seq = task->seq;
        sim_cover(starved);
        t->starved = true;
    } else if (t->starved && task->state == DT_TASK_RUNNING && t->inside > 0) {
        t->starved = false;
        sim_cover(starved_and_fed);
    }
    if (task->state == DT_TASK_TAKEN_BACK && back_seq != task->seq) {
        back_seq = task->seq;
        sim_cover(taken_back);
    }
    if (task->state == DT_TASK_DROPPED && !t->told_dropped) {
        t->told_dropped = true;
        sim_cover(dropped_in_run);
    }
    if (task->place == DT_PLACE_HELD && held_seq != task->seq) {
        held_seq = task->seq;
        sim_cover(held);
    }
#if !SIM_TSAN /* which would take this for an access of the controller's */
    for (int k = 0; k < task->accesses_count; k++)
        if (!dt__graph_queue_is_valid(task->accesses[k].storage))
            sim_violation("the queue of a storage of T%d is not valid", t->index);
#endif
}

void sim_check_step(void) {
    if (sim_sched == NULL) return;
    const dt_task *before = NULL;
    for (dt_task *t = sim_sched->controller.oldest; t != NULL; before = t, t = t->younger) {
        if (t->older != before) sim_violation("the list of all tasks is broken");
        if (before != NULL && before->seq >= t->seq) sim_violation("it is out of order");
        look_at(t);
    }
}

/* ---- the replay ------------------------------------------------------------------------------ */

static void replay_values(const sim_task *t) {
    int64_t n = t->nout > 0 ? t->at[0].n : 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t in[SIM_OPERANDS_MAX];
        for (int k = 0; k < t->nin; k++) {
            const sim_view *v = &t->at[t->nout + k];
            in[k] = storages[v->storage].values[v->offset + (v->n == 1 ? 0 : i * v->stride)];
        }
        for (int k = 0; k < t->nout; k++) {
            const sim_view *v = &t->at[k];
            storages[v->storage].values[v->offset + i * v->stride] =
                t->kind == DT_TASK_READ ? sim_file_value(t->file_offset + 8 * i)
                                        : sim_compute(t, k, i, in);
        }
    }
}

static void replay_write(const sim_task *t) {
    const sim_view *v = &t->at[0];
    for (int64_t i = 0; i < v->n; i++)
        if (sim_file_written(t->file_offset + 8 * i) != storages[v->storage].values[v->offset + i])
            sim_violation("what T%d wrote to a file is wrong at element %lld", t->index,
                          (long long)i);
}

/* Whether chance may have made it fail so. */
static bool is_bad_luck(dt_status status) {
    return (status == DT_E_SHUTDOWN && sim_stopping) ||
           (status == DT_E_NO_MEMORY && (sim_memory_fails || sim_limited));
}

static bool is_own_failure(const sim_task *t, dt_status status) {
    if (t->fails != DT_OK) return status == t->fails;
    if (t->io_fate == SIM_IO_ERROR) return status == DT_E_OS;
    return t->io_fate == SIM_IO_TRUNCATED &&
           (status == DT_E_VALUE || (status == DT_E_OS && t->kind == DT_TASK_WRITE));
}

static void replay_failure(const sim_task *t, dt_error *cause, bool of_dropped) {
    dt_status status = dt_error_status(t->error);
    if (cause != NULL && !t->dropped && of_dropped && !is_bad_luck(status))
        sim_violation("T%d needs what was dropped", t->index);
    bool good = t->dropped || is_bad_luck(status) ||
                (cause != NULL ? t->error == cause : is_own_failure(t, status));
    if (!good)
        sim_violation("T%d fails with %s: %s", t->index, dt_status_name(status),
                      dt_error_message(t->error));
    if (cause != NULL) sim_cover(failed_with_cause);
    for (int k = 0; k < t->nout && t->kind != DT_TASK_FENCE; k++) {
        storage *s = &storages[t->at[k].storage];
        if (s->cause != NULL) continue;
        s->cause = t->error;
        s->dropped = t->dropped;
    }
}

static void replay_task(const sim_task *t) {
    if (t->ends != 1) sim_violation("T%d has not ended", t->index);
    dt_error *cause = NULL;
    bool of_dropped = false;
    for (int k = 0; k < t->nout + t->nin && cause == NULL; k++) {
        cause = storages[t->at[k].storage].cause;
        of_dropped = storages[t->at[k].storage].dropped;
    }
    if (t->error != NULL) {
        replay_failure(t, cause, of_dropped);
        return;
    }
    if (cause != NULL) sim_violation("T%d does not fail as what it needs did", t->index);
    if (t->fails != DT_OK || t->io_fate != SIM_IO_GOOD)
        sim_violation("T%d does not fail", t->index);
    if (t->kind == DT_TASK_WRITE) replay_write(t);
    if (t->kind == DT_TASK_COMPUTE || t->kind == DT_TASK_READ) replay_values(t);
}

static void replay_observation(const entry *e) {
    const storage *s = &storages[e->view.storage];
    if (e->failure != s->cause)
        sim_violation("a client sees %s in storage %d, which %s",
                      e->failure != NULL ? dt_error_message(e->failure) : "values", e->view.storage,
                      s->cause != NULL ? dt_error_message(s->cause) : "is good");
    if (e->failure != NULL) {
        sim_cover(observed_failures);
        return;
    }
    sim_cover(observed_values);
    for (int64_t i = 0; i < e->view.n; i++) {
        int64_t at = e->view.offset + i * e->view.stride, right = s->values[at];
        if (e->values[i] != right)
            sim_violation("element %lld of storage %d is %lld where %lld is right", (long long)at,
                          e->view.storage, (long long)e->values[i], (long long)right);
    }
}

void sim_check_replay(void) {
    for (int k = 0; k < entries_count; k++) {
        const entry *e = &entries[k];
        if (e->task >= 0)
            replay_task(&sim_tasks[e->task]);
        else
            replay_observation(e);
    }
}

void sim_check_release(void) {
    for (int k = 0; k < sim_tasks_count; k++) dt_error_release(sim_tasks[k].error);
    for (int k = 0; k < entries_count; k++)
        if (entries[k].task < 0) dt_error_release(entries[k].failure);
}
