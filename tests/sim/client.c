/* client.c: the programs: what clients do with tensors, drawn from the seed.
 *
 * Two or three clients share some slots, each of which holds a tensor or a view of one, and do one
 * thing after the other under the client lock, as Python's threads do: they submit, drop handles,
 * wait, give up waiting, and change settings.  The first one starts the scheduler, waits for the
 * others, and stops it, with everything done or in the middle of it.
 *
 * Two views of one storage that an operation uses are the same or have nothing in common, as
 * dispatch sees to.
 */
#include <stddef.h>
#include <string.h>

#include "runtime/alloc.h"
#include "scheduler/io.h"
#include "tests/sim/memory.h"
#include "tests/sim/refs.h"
#include "tests/sim/sim.h"
#include "tests/sim/world.h"

enum { SLOTS = 8, CLIENTS_MAX = 3, THREADS_MAX = 4 };

typedef struct slot {
    dt_tensor *t;
    sim_view view;
} slot;

/* What sort of seed this is. */
static struct {
    int clients, operations;
    bool fails, files, views, heavy, fused, cancels, drops, faults;
} mood;

static slot slots[SLOTS];
static bool locked;
static dt_sched *sched; /* NULL before the start and from the stop on */
static int64_t file_offset;

/* ---- the client lock ------------------------------------------------------------------------- */

static void lock(void) { sim_lock(&locked); }
static void unlock(void) { sim_unlock(&locked); }

/* ---- slots ----------------------------------------------------------------------------------- */

static bool is_last_handle(const slot *of) {
    for (int k = 0; k < SLOTS; k++)
        if (&slots[k] != of && slots[k].t == of->t) return false;
    return true;
}

static void drop(slot *at) {
    dt_tensor *t = at->t;
    if (t == NULL) return;
    bool last = is_last_handle(at);
    sim_event("storage %lld loses a handle", at->view.storage, 0, 0, 0);
    sim_storage_handles(at->view.storage, -1);
    at->t = NULL;
    if (last && sched != NULL && !sim_is_final(t))
        dt_sched_tell(sched, DT_TASK_RELEASE, t);
    else
        sim_release(t);
}

static void put(slot *at, dt_tensor *t, sim_view view) {
    drop(at);
    *at = (slot){t, view};
    sim_storage_handles(view.storage, 1);
}

static slot *any_slot(void) { return &slots[sim_below(SLOTS)]; }

static slot *used_slot(void) {
    for (int k = 0; k < 4; k++) {
        slot *at = any_slot();
        if (at->t != NULL) return at;
    }
    return NULL;
}

static int64_t some_length(void) {
    static const int64_t lengths[] = {8, 40, 64, 1};
    return lengths[sim_below(mood.views ? 4 : 3)];
}

static bool new_tensor(int64_t n, dt_tensor **t, sim_view *view) {
    if (dt_tensor_new(DT_I64, 1, &n, t) != DT_OK) return false;
    *view = (sim_view){sim_storage_new(n), 0, 1, n};
    return true;
}

static bool same_view(const sim_view *a, const sim_view *b) {
    return a->offset == b->offset && a->n == b->n && (a->n == 1 || a->stride == b->stride);
}

/* Whether an operation may write a and touch b. */
static bool get_along(const sim_view *a, const sim_view *b) {
    if (a->storage != b->storage || same_view(a, b)) return true;
    uint64_t places = 0;
    for (int64_t i = 0; i < a->n; i++) places |= (uint64_t)1 << (a->offset + i * a->stride);
    for (int64_t i = 0; i < b->n; i++)
        if (places >> (b->offset + i * b->stride) & 1) return false;
    return true;
}

/* n elements of a slot into another one. */
static bool part_of(const slot *at, int64_t from, int64_t stride, int64_t n, slot *to) {
    sim_view view = {at->view.storage, at->view.offset + from * at->view.stride,
                     stride * at->view.stride, n};
    dt_tensor *t;
    if (dt_tensor_new_view(at->t, DT_I64, 1, &n, &view.stride, view.offset, &t) != DT_OK)
        return false;
    put(to, t, view);
    return true;
}

/* The same view some elements further on, where there is room and memory: the two overlap. */
static bool shift(const slot *at, slot *shifted) {
    sim_view view = at->view;
    if (view.n == 1) return false;
    view.offset += 1 + sim_below(3);
    int64_t end = view.offset + (view.n - 1) * view.stride;
    if (end >= (int64_t)(at->t->storage->bytes / sizeof(int64_t))) return false;
    dt_tensor *t;
    if (dt_tensor_new_view(at->t, DT_I64, 1, &view.n, &view.stride, view.offset, &t) != DT_OK)
        return false;
    put(shifted, t, view);
    return true;
}

/* ---- submitting ------------------------------------------------------------------------------ */

static dt_want want(const dt_task *task) {
    const sim_task *t = task->user;
    return t->waiters > 0 ? DT_WANTED : t->gave_up ? DT_WANT_ABANDONED : DT_WANT_NEVER;
}

static int64_t some_cost(void) {
    if (mood.heavy) return 1000000 + sim_below(9000000);
    switch (sim_below(10)) {
    case 0:
    case 1:
        return 50000 + sim_below(200000);
    case 2:
    case 3:
    case 4:
        return 5000 + sim_below(50000);
    default:
        return 100 + sim_below(4000);
    }
}

static dt_priority some_priority(void) {
    if (!mood.heavy && !sim_one_in(8)) return DT_PRIORITY_NORMAL;
    return (dt_priority)sim_below(DT_PRIORITY_COUNT);
}

/* The next task of the program, zeroed; NULL: it is long enough. */
static sim_task *next_task(dt_task_kind kind) {
    if (sim_tasks_count == SIM_TASKS_MAX) return NULL;
    sim_task *t = &sim_tasks[sim_tasks_count];
    *t = (sim_task){.index = sim_tasks_count, .kind = kind, .parts = 1};
    return t;
}

static void submit(sim_task *t, dt_task *task) {
    sim_tasks_count++;
    t->task = task;
    task->user = t;
    task->on_end = sim_check_ended;
    task->want = want;
    task->priority = (uint8_t)t->priority;
    task->after_all = t->after_all;
    sim_acts++;
    if (t->kind != DT_TASK_COMPUTE) sim_last_need = sim_acts;
    sim_check_submit(t);
    sim_event("submits T%lld, kind %lld, out storage %lld, in %lld", t->index, t->kind,
              t->nout > 0 ? t->at[0].storage : -1, t->nin > 0 ? t->at[t->nout].storage : -1);
    dt_sched_submit(sched, task);
}

/* A task over these operands (borrowed), outputs first; NULL: out of memory.  Sometimes its call is
 * moved in after the task was made, as dispatch does, so that it has more than there is room for.
 */
static dt_task *make_task(sim_task *t, dt_tensor *const *operands) {
    bool moved_in = sim_one_in(4);
    dt_task *task;
    if (dt_task_new(t->kind, moved_in ? 0 : t->nout, moved_in ? 0 : t->nin, &task) != DT_OK)
        return NULL;
    if (moved_in && dt_call_init(&task->call, t->nout, t->nin) != DT_OK) {
        dt_task_free(task);
        return NULL;
    }
    for (int k = 0; k < t->nout + t->nin; k++) task->call.operands[k] = sim_retain(operands[k]);
    return task;
}

/* ---- compute tasks --------------------------------------------------------------------------- */

static void draw_kernel(sim_task *t) {
    t->a = sim_below(9) - 4;
    t->b = sim_below(9) - 4;
    t->c = sim_below(1000);
    t->cost_ns = some_cost();
    t->takes_ns = 1 + t->cost_ns / (mood.heavy ? 1 : 1 + sim_below(8)) * (sim_one_in(4) ? 3 : 1);
    t->fusible = mood.fused && t->nout == 1 && !mood.heavy && !sim_one_in(5);
    t->ends_pass = sim_one_in(12);
    t->parts = sim_one_in(4) ? 2 + (int)sim_below(5) : 1;
    t->scratch = sim_one_in(3);
    t->priority = some_priority();
    if (mood.fails && !t->fusible && sim_one_in(8))
        t->fails = sim_one_in(2) ? DT_E_INDEX : DT_E_ZERO_DIVISION;
}

/* Draws inputs among the slots that fit `out`. */
static void draw_inputs(sim_task *t, dt_tensor **operands, int wanted) {
    for (int tries = 0; tries < 8 && t->nin < wanted; tries++) {
        const slot *at = any_slot();
        if (at->t == NULL || (at->view.n != t->at[0].n && at->view.n != 1)) continue;
        bool good = true;
        for (int k = 0; k < t->nout; k++) good &= get_along(&t->at[k], &at->view);
        if (!good) continue;
        int k = t->nout + t->nin++;
        t->at[k] = at->view;
        operands[k] = at->t;
    }
}

static void submit_compute(sim_task *t, dt_tensor **operands) {
    draw_kernel(t);
    dt_task *task = make_task(t, operands);
    if (task == NULL) return;
    task->call.kernel = t->fusible ? &sim_kernel_fusible : &sim_kernel;
    task->cost_ns = (double)t->cost_ns;
    submit(t, task);
}

static int some_inputs(void) {
    if (mood.heavy) return 0;
    return sim_one_in(8) ? (int)sim_below(SIM_OPERANDS_MAX - 1) : (int)sim_below(3);
}

static void in_place(void) {
    const slot *at = used_slot();
    sim_task *t = next_task(DT_TASK_COMPUTE);
    if (at == NULL || t == NULL) return;
    dt_tensor *operands[SIM_OPERANDS_MAX] = {at->t};
    t->nout = 1;
    t->at[0] = at->view;
    if (sim_one_in(2)) { /* y += ... */
        t->nin = 1;
        t->at[1] = at->view;
        operands[1] = at->t;
    }
    draw_inputs(t, operands, t->nin + some_inputs() / 2);
    submit_compute(t, operands);
}

/* A new result into a slot, whose tensor goes. `temporary`: nobody keeps it. */
static void fresh_into(slot *to, int64_t n, bool temporary) {
    sim_task *t = next_task(DT_TASK_COMPUTE);
    dt_tensor *operands[SIM_OPERANDS_MAX];
    if (t == NULL) return;
    int nout = sim_one_in(8) ? 2 : 1;
    for (; t->nout < nout; t->nout++)
        if (!new_tensor(n, &operands[t->nout], &t->at[t->nout])) break;
    nout = t->nout;
    if (nout == 0) return;
    draw_inputs(t, operands, some_inputs());
    t->free_to_run = mood.heavy && t->nin == 0;
    sim_view views[2] = {t->at[0], t->at[1]};
    int submitted = sim_tasks_count;
    submit_compute(t, operands);
    submitted = sim_tasks_count - submitted;
    for (int k = 0; k < nout; k++) {
        slot only = {0};
        put(submitted && k == 0 && !temporary ? to : &only, operands[k], views[k]);
        drop(&only);
    }
}

static void fresh(void) { fresh_into(any_slot(), some_length(), sim_one_in(mood.drops ? 4 : 20)); }

/* x += ...; y = f(x); z = g(y, x from a place further on): z must not share a pass with the first.
 */
static void entangle(void) {
    slot x = {0}, shifted = {0}, *to = any_slot();
    const slot *at = used_slot();
    if (!mood.views || at == NULL || at->view.n < 40) return;
    if (!part_of(at, 0, 1, at->view.n == 64 ? 40 : 8, &x)) return;
    if (!shift(&x, &shifted)) {
        drop(&x);
        return;
    }
    const slot *inputs[] = {&x, NULL, &shifted};
    for (int k = 0; k < 3; k++) {
        sim_task *t = next_task(DT_TASK_COMPUTE);
        dt_tensor *operands[SIM_OPERANDS_MAX] = {x.t};
        if (t == NULL) break;
        t->at[0] = x.view;
        t->nout = 1;
        if (k > 0 && !new_tensor(x.view.n, &operands[0], &t->at[0])) break;
        if (k == 2 && to->t != NULL && to->view.n == x.view.n) {
            operands[1] = to->t;
            t->at[1] = to->view;
            t->nin = 1;
        }
        const slot *in = inputs[k] != NULL ? inputs[k] : &x;
        operands[t->nout + t->nin] = in->t;
        t->at[t->nout + t->nin++] = in->view;
        sim_view view = t->at[0];
        submit_compute(t, operands);
        if (k > 0) put(to, operands[0], view);
    }
    drop(&x);
    drop(&shifted);
}

/* y = f(g(h(x))), whose intermediates nobody keeps. */
static void chain(void) {
    slot *to = any_slot();
    int64_t n = some_length();
    for (int left = 2 + (int)sim_below(5); left > 0; left--) {
        sim_task *t = next_task(DT_TASK_COMPUTE);
        dt_tensor *operands[SIM_OPERANDS_MAX];
        if (t == NULL || !new_tensor(n, &operands[0], &t->at[0])) return;
        t->nout = 1;
        if (to->t != NULL && (to->view.n == n || to->view.n == 1)) {
            t->nin = 1;
            t->at[1] = to->view;
            operands[1] = to->t;
        }
        draw_inputs(t, operands, t->nin + some_inputs() / 2);
        sim_view view = t->at[0];
        submit_compute(t, operands);
        put(to, operands[0], view);
    }
}

/* ---- tensors without tasks ------------------------------------------------------------------- */

static void empty(void) {
    dt_tensor *t;
    sim_view view;
    if (new_tensor(some_length(), &t, &view)) put(any_slot(), t, view);
}

static void view_of(void) {
    const slot *at = used_slot();
    slot *to = any_slot();
    if (at == NULL || to == at || at->view.n < 8) return;
    static const int64_t lengths[] = {8, 1, 40};
    int64_t n = lengths[sim_below(3)];
    int64_t stride = sim_one_in(3) ? 2 : 1;
    if ((n - 1) * stride + 1 > at->view.n) stride = 1;
    if (n > at->view.n) return;
    (void)part_of(at, sim_below(at->view.n - (n - 1) * stride), stride, n, to);
}

static void shifted_view(void) {
    const slot *at = used_slot();
    slot *to = any_slot();
    slot shifted = {0};
    if (at == NULL || to == at || !shift(at, &shifted)) return;
    drop(to);
    *to = shifted;
}

static void another_handle(void) {
    const slot *at = used_slot();
    slot *to = any_slot();
    if (at != NULL && to != at && to->t != at->t) put(to, sim_retain(at->t), at->view);
}

/* ---- files, fences, timers ------------------------------------------------------------------- */

static void use_file(bool writes) {
    sim_task *t = next_task(writes ? DT_TASK_WRITE : DT_TASK_READ);
    slot *at = used_slot(), fresh_one = {0};
    if (t == NULL) return;
    if (!writes && (at == NULL || !at->t->contiguous || sim_one_in(2))) {
        if (!new_tensor(some_length(), &fresh_one.t, &fresh_one.view)) return;
        sim_storage_handles(fresh_one.view.storage, 1);
        at = &fresh_one;
    }
    if (at == NULL || !at->t->contiguous) return;
    t->nout = !writes;
    t->nin = writes;
    t->at[0] = at->view;
    /* Some lie across the end of a piece. */
    file_offset += 1024;
    if (sim_one_in(3)) file_offset += DT__IO_PIECE_BYTES - file_offset % DT__IO_PIECE_BYTES - 16;
    t->file_offset = file_offset;
    if (mood.fails && sim_one_in(6)) t->io_fate = sim_one_in(2) ? SIM_IO_ERROR : SIM_IO_TRUNCATED;
    dt_file *file = sim_file_new();
    dt_task *task = file != NULL ? make_task(t, &at->t) : NULL;
    if (task == NULL) {
        dt_file_release(file);
    } else {
        task->io = (dt_io){.file = file, .offset = file_offset, .length = 8 * at->view.n};
        submit(t, task);
    }
    if (at == &fresh_one) {
        sim_storage_handles(fresh_one.view.storage, -1);
        put(any_slot(), fresh_one.t, fresh_one.view);
    }
}

static void wait_for(sim_task *t, int64_t timeout_ns);

/* A fence on some slots, or after all. */
static void fence(bool after_all) {
    sim_task *t = next_task(DT_TASK_FENCE);
    if (t == NULL) return;
    dt_tensor *operands[SIM_OPERANDS_MAX];
    t->after_all = after_all;
    for (int k = 0; k < 2 && !after_all; k++) {
        const slot *at = used_slot();
        if (at == NULL || (k == 1 && t->at[0].storage == at->view.storage)) continue;
        int n = t->nout + t->nin;
        if (t->nin == 0 && sim_one_in(2))
            t->nout++;
        else
            t->nin++;
        t->at[n] = at->view;
        operands[n] = at->t;
    }
    dt_task *task = make_task(t, operands);
    if (task == NULL) return;
    submit(t, task);
    if (sim_one_in(3)) wait_for(t, sim_one_in(3) ? sim_below(1000000) : -1);
}

static void timer(void) {
    sim_task *t = next_task(DT_TASK_TIMER);
    dt_task *task = t != NULL ? make_task(t, &(dt_tensor *){NULL}) : NULL;
    if (task == NULL) return;
    t->delay_ns = sim_one_in(8) ? 0 : sim_below(sim_one_in(4) ? 20000000 : 200000);
    task->io.delay_ns = t->delay_ns;
    submit(t, task);
    if (sim_one_in(4)) wait_for(t, -1);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static bool has_ended(void *t) { return ((const sim_task *)t)->ends > 0; }

/* Until t has ended, or the time is over: then the wait is given up. Client lock. */
static void wait_for(sim_task *t, int64_t timeout_ns) {
    if (t->ends > 0) return;
    t->waiters++;
    sim_last_need = ++sim_acts;
    bool helps = sim_one_in(2);
    if (dt_sched_has_parked(sched)) {
        if (t->gave_up) sim_cover(asked_again);
        sim_event("asks for T%lld", t->index, 0, 0, 0);
        dt_sched_tell(sched, DT_TASK_ASK, NULL);
    }
    dt_sched *from = sched;
    if (helps) dt_sched_helper_enter(from);
    dt_sched_demand(from, helps);
    sim_event(helps ? "waits for T%lld, and helps" : "waits for T%lld", t->index, 0, 0, 0);
    sim_cover(awaits);
    unlock();
    int64_t deadline_ns = timeout_ns < 0 ? -1 : sim_now() + timeout_ns;
    if (helps) dt_sched_help(from, has_ended, t);
    while (t->ends == 0 && (deadline_ns < 0 || sim_now() < deadline_ns)) sim_block(t, deadline_ns);
    lock();
    t->waiters--;
    if (t->ends > 0 || t->waiters > 0 || sched == NULL) return;
    sim_event("gives up T%lld", t->index, 0, 0, 0);
    sim_cover(cancels);
    t->gave_up = true;
    t->gave_up_at = ++sim_acts;
    dt_sched_tell(sched, DT_TASK_ABANDON, NULL);
}

/* What a client sees in a slot, if it is final. */
static void observe(const slot *at) {
    if (at->t == NULL || !sim_is_final(at->t)) return;
    dt_storage *s = at->t->storage;
    dt_error *failure = sim_failure(at->t);
    int64_t values[SIM_ELEMENTS_MAX];
    if (failure == NULL && s->data == NULL) {
        if (sim_storage_last_writer(at->view.storage) >= 0)
            sim_violation("storage %d was written and has no memory", at->view.storage);
        return;
    }
    for (int64_t i = 0; i < at->view.n && failure == NULL; i++)
        values[i] = *((int64_t *)dt_tensor_data(at->t) + i * at->t->strides[0]);
    sim_check_observe(at->view, values, failure);
}

/* Waits for what is being written, but not for long. */
static void give_up_on(const slot *at) {
    int writer = at != NULL ? sim_storage_last_writer(at->view.storage) : -1;
    if (writer >= 0) wait_for(&sim_tasks[writer], sim_below(sim_one_in(2) ? 2000 : 50000));
}

/* Whoever gave up asks again. */
static void ask_again(void) {
    for (int k = sim_tasks_count - 1; k >= 0; k--) {
        sim_task *t = &sim_tasks[k];
        if (t->ends > 0 || !t->gave_up || !sim_one_in(2)) continue;
        wait_for(t, -1);
        return;
    }
}

/* Whoever waits for a tensor has a handle of it, whatever others put into its slot meanwhile. */
static void await(void) {
    const slot *at = used_slot();
    if (at == NULL) return;
    int writer = sim_storage_last_writer(at->view.storage);
    if (writer >= 0) {
        bool gives_up = mood.cancels && sim_one_in(2);
        slot own = {0};
        put(&own, sim_retain(at->t), at->view);
        wait_for(&sim_tasks[writer], gives_up ? sim_below(sim_one_in(2) ? 2000 : 100000) : -1);
        drop(&own);
    }
    observe(at); /* whatever is in the slot by now */
}

/* Looks again and again without waiting for anything, as the inline lane does. */
static void look(void) {
    const slot *at = used_slot();
    for (int k = 0; k < 8 && at != NULL && sim_is_final(at->t); k++) at = used_slot();
    if (at == NULL) return;
    const dt_tensor *t = at->t;
    for (int k = 0; k < 60 && at->t == t && !sim_is_final(t); k++) {
        unlock();
        sim_sleep(sim_below(k < 30 ? 200 : 2000));
        lock();
    }
    if (at->t == t) observe(at);
}

/* ---- settings and accidents ------------------------------------------------------------------ */

static void change_threads(void) {
    int threads = 1 + (int)sim_below(THREADS_MAX);
    sim_cover(threads_changed);
    if (threads > sim_threads_allowed) sim_threads_allowed = threads;
    sim_event("%lld threads from now on", threads, 0, 0, 0);
    if (dt_sched_set_threads(sched, threads) != DT_OK && !mood.faults)
        sim_violation("set_threads fails");
}

static void fail_allocations(void) {
    if (!mood.faults) return;
    bool sticky = sim_one_in(4);
    sim_event("an allocation is to fail", 0, 0, 0, 0);
    dt_alloc_fail_at(1 + sim_below(12), sticky);
    if (!sticky) return;
    unlock();
    sim_sleep(sim_below(20000));
    lock();
    dt_alloc_fail_at(0, false);
}

static void change_limit(void) {
    if (sim_limited) dt_memory_limit_set(320 * (3 + sim_below(12)));
}

/* ---- a client -------------------------------------------------------------------------------- */

static void fence_some(void) { fence(false); }
static void fence_all(void) { fence(true); }
static void drop_one(void) { drop(any_slot()); }
static void toggle_fusion(void) { dt_sched_set_fusion(sched, !sim_one_in(4)); }

static void move_bytes(void) {
    if (mood.files) use_file(sim_one_in(2));
}

/* More pieces than can be under way at one time. */
static void flood(void) {
    for (int k = 0; mood.files && k < 24; k++) use_file(false);
}

static void take_view(void) {
    if (!mood.views) return;
    if (sim_one_in(2))
        view_of();
    else
        shifted_view();
}

static void do_something(void) {
    static const struct {
        int share;
        void (*act)(void);
    } acts[] = {
        {29, fresh},
        {14, in_place},
        {8, chain},
        {13, await},
        {7, look},
        {4, ask_again},
        {5, drop_one},
        {3, another_handle},
        {3, empty},
        {8, take_view},
        {5, entangle},
        {4, fence_some},
        {2, fence_all},
        {2, timer},
        {4, move_bytes},
        {1, flood},
        {1, change_threads},
        {1, change_limit},
        {2, fail_allocations},
        {1, toggle_fusion},
    };
    int64_t choice = sim_below(117);
    for (size_t k = 0; k < sizeof acts / sizeof acts[0]; k++) {
        if (choice < acts[k].share) {
            acts[k].act();
            return;
        }
        choice -= acts[k].share;
    }
}

static void wait_for_room(void) {
    if (sched == NULL || !dt_sched_full(sched)) return;
    sim_cover(waits_for_room);
    sim_event("waits for room", 0, 0, 0, 0);
    sim_room_waiters++;
    sim_last_need = ++sim_acts;
    unlock();
    dt_status status = dt_sched_wait_room(sched, sim_one_in(4) ? sim_below(100000) : -1);
    if (status != DT_OK && status != DT_IN_PROGRESS) sim_violation("the wait for room fails");
    lock();
    sim_room_waiters--;
    sim_last_need = ++sim_acts; /* until now everything was needed */
}

/* More than the workers can do, of all priorities, and somebody wants all of it. */
static void do_much(void) {
    slot *to = any_slot();
    fresh_into(to, 8, false);
    sim_task *t = next_task(DT_TASK_FENCE);
    if (t == NULL || to->t == NULL) return;
    t->nin = 1;
    t->at[0] = to->view;
    dt_task *task = make_task(t, &to->t);
    if (task != NULL) submit(t, task);
}

static void run_client(void *unused) {
    (void)unused;
    for (int k = 0; k < mood.operations; k++) {
        lock();
        wait_for_room();
        if (sched == NULL) { /* another one has stopped it */
            unlock();
            return;
        }
        if (mood.heavy && !sim_one_in(8))
            do_much();
        else
            do_something();
        if (mood.fails && sched != NULL && sim_one_in(5)) look();
        unlock();
        if (sim_one_in(3)) sim_sleep(sim_below(sim_one_in(4) ? 150000 : 3000));
        if (mood.heavy) sim_sleep(sim_below(4000000));
    }
}

/* ---- begin and end --------------------------------------------------------------------------- */

static void draw_mood(void) {
    memset(&mood, 0, sizeof mood);
    mood.clients = sim_one_in(3) ? 1 + (int)sim_below(CLIENTS_MAX) : 1;
    mood.heavy = sim_one_in(16);
    mood.operations = (mood.heavy ? 170 : 5 + (int)sim_below(60)) / mood.clients;
    mood.fails = sim_one_in(3);
    mood.files = sim_one_in(3);
    mood.views = sim_one_in(2);
    mood.fused = !sim_one_in(3);
    mood.cancels = sim_one_in(2);
    mood.drops = sim_one_in(2);
    mood.faults = sim_one_in(6);
    sim_limited = sim_one_in(5);
    sim_memory_fails = mood.faults;
    sim_starts_fail = mood.faults && sim_one_in(2);
    if (sim_limited) dt_memory_limit_set(320 * (3 + sim_below(12)));
}

static dt_sched *start(void) {
    static const int64_t rooms[] = {0, 0, 0, 3, 10};
    dt_sched_options options = {.threads = 1 + (int)sim_below(mood.heavy ? 2 : THREADS_MAX),
                                .records_max = rooms[sim_below(5)],
                                .io = sim_one_in(2) ? "uring" : "epoll"};
    dt_sched *s = NULL;
    if (mood.faults && sim_one_in(4)) dt_alloc_fail_at(1 + sim_below(5), false);
    while (dt_sched_start(&options, &s) != DT_OK) {
        if (!mood.faults) sim_violation("the start fails: %s", dt_error_text());
        sim_cover(starts_failed);
    }
    sim_threads_allowed = options.threads;
    if (sim_one_in(8)) dt_sched_set_fusion(s, false);
    return s;
}

/* Everything is done and looked at before the stop. */
static void wind_up(void) {
    dt_alloc_fail_at(0, false);
    if (sim_one_in(2)) {
        sim_task *t = next_task(DT_TASK_FENCE);
        if (t != NULL) {
            t->after_all = true;
            dt_task *task = make_task(t, &(dt_tensor *){NULL});
            submit(t, task);
            wait_for(t, -1);
        }
    }
    for (int k = 0; k < SLOTS; k++) {
        int writer = slots[k].t != NULL ? sim_storage_last_writer(slots[k].view.storage) : -1;
        if (writer < 0) continue;
        wait_for(&sim_tasks[writer], -1);
        if (sim_tasks[writer].ends == 0) sim_violation("T%d has not ended", writer);
        observe(&slots[k]);
    }
}

static void note_stats(dt_sched *s) {
    dt_sched_stats stats;
    dt_sched_stats_get(s, &stats);
    sim_covered[SIM_COVER_direct] += stats.direct;
    sim_covered[SIM_COVER_chained] += stats.chained;
    sim_covered[SIM_COVER_fused] += stats.fused;
    sim_covered[SIM_COVER_passes] += stats.passes;
    sim_covered[SIM_COVER_dropped] += stats.dropped;
    sim_covered[SIM_COVER_parked] += stats.parked;
}

/* Client lock, which is given up meanwhile. */
static void stop(void) {
    dt_sched *stopped = sched;
    if (dt_sched_in_flight(stopped) > 0) sim_cover(stopped_at_work);
    note_stats(stopped);
    sim_stopping = true;
    sim_sched = sched = NULL;
    sim_event("stops", 0, 0, 0, 0);
    unlock();
    dt_sched_stop(stopped);
    lock();
}

void sim_client_main(void *unused) {
    sim_fiber *others[CLIENTS_MAX] = {0};
    memset(slots, 0, sizeof slots);
    locked = false;
    file_offset = 0;
    draw_mood();
    sim_sched = sched = start();
    for (int k = 1; k < mood.clients; k++) {
        char name[] = "client-0";
        name[sizeof name - 2] = (char)('0' + k);
        others[k] = sim_spawn(name, run_client, NULL);
    }
    run_client(unused);
    bool joined = !sim_one_in(4);
    for (int k = 1; joined && k < mood.clients; k++) sim_join(others[k]);
    lock();
    if (!sim_one_in(3)) wind_up();
    if (sim_one_in(2))
        for (int k = 0; k < SLOTS; k++) drop(&slots[k]);
    for (int k = 0; mood.cancels && k < 3; k++) give_up_on(used_slot());
    while (sim_room_waiters > 0) { /* that must not be cut off */
        unlock();
        sim_sleep(10000);
        lock();
    }
    stop();
    unlock();
    for (int k = 1; !joined && k < mood.clients; k++) sim_join(others[k]);
    for (int k = 0; k < SLOTS; k++) drop(&slots[k]);
    sim_cover(seeds);
}
