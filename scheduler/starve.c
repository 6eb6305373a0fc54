/* starve.c: tasks that cannot start for want of memory.
 *
 *   a worker gives the task back --> starved --memory was freed--> ready, and tries again
 *                                       |
 *                                       '--no task is left that could free any, and for MERCY_NS no
 *                                          client has: its last chance, and if that fails its error
 *
 * Before it comes to that, near the limit, tasks are started one after the other (is_near).  Memory
 * that is freed is the oldest's: it alone is fed, and while it starves a younger task that takes
 * much joins it untried (yields).  Else those younger could come between, each with a temporary
 * that only its next task lets go of, and none of these would ever have room.  But what a younger
 * one leads to may be what a client waits for to free something, so after GRACE_NS without any
 * progress those that fit into the present room are tried as well, which takes nothing the oldest
 * could use.
 *
 * I1: from the first that starves until nobody does, frees are watched (dt_memory_watch): in any
 *     thread they set memory_freed and knock.  The oldest stays watched for while it tries.
 * I2: `starved` is sorted by seq.
 */
#include "runtime/alloc.h"
#include "scheduler/controller.h"
#include "scheduler/plant.h"

#define GRACE_NS 20000000  /* without progress, until younger ones are tried */
#define MERCY_NS 250000000 /* ... until somebody fails for it */
#define MUCH 16            /* what takes more than this part of what the oldest needs */

static void on_memory_freed(void *context) {
    dt_sched *s = context;
    atomic_store_explicit(&s->memory_freed, true, memory_order_seq_cst);
    dt__sched_knock(s);
}

static void watch(dt_sched *s, bool on) {
    s->controller.watches = on;
    if (on)
        dt_memory_watch(on_memory_freed, s);
    else
        dt_memory_watch(NULL, NULL);
}

/* What the task's outputs would take. */
static int64_t needs(const dt_task *task) {
    int64_t bytes = 0;
    for (int k = 0; k < task->call.nout; k++) {
        const dt_storage *s = dt_call_out(&task->call, k)->storage;
        if (atomic_load_explicit(&s->data, memory_order_relaxed) == NULL)
            bytes += (int64_t)s->bytes;
    }
    return bytes;
}

/* What is left below the limit when all that was handed over has its memory. */
static int64_t room(const dt_sched *s) {
    int64_t limit = dt_memory_limit();
    return limit == 0 ? INT64_MAX : limit - dt_memory_live() - s->controller.handed_bytes;
}

void dt__starve(dt_sched *s, dt_task *task) {
    dt_controller *c = &s->controller;
    int64_t limit = dt_memory_limit();
    if (limit != 0 && needs(task) > limit) { /* whatever others free */
        task->last_chance = true;
        dt__controller_place(s, task);
        return;
    }
    if (!c->watches) {
        watch(s, true);
        on_memory_freed(s); /* some may have been before we watched */
    }
    task->starved_ns = dt__now(s);
    dt_task *after = c->starved.last;
    while (after != NULL && after->seq > task->seq) after = after->list_prev;
    dt__list_insert(&c->starved, task, after, DT_PLACE_STARVED);
}

void dt__starve_leave(dt_sched *s, dt_task *task) {
    dt_controller *c = &s->controller;
    dt__list_remove(&c->starved, task);
    c->mercy_ns = 0;
}

bool dt__starve_is_near(dt_sched *s, dt_task *task) {
    int64_t limit = dt_memory_limit();
    if (DT_LIKELY(limit == 0)) return false;
    return room(s) - needs(task) < limit - limit / 2;
}

bool dt__starve_yields(dt_sched *s, dt_task *task) {
    dt_controller *c = &s->controller;
    const dt_task *oldest = c->starved.first;
    if (DT_LIKELY(oldest == NULL) || dt_memory_limit() == 0 || c->stopping) return false;
    if (task->seq < oldest->seq || task->seq == c->hungry.picked_seq || task->last_chance)
        return false;
    int64_t wanted = needs(oldest);
    return wanted <= room(s) || needs(task) > wanted / MUCH;
}

void dt__starve_note_handed(dt_sched *s, dt_task *task) {
    task->tries = task->starved_ns != 0;
    s->controller.trying += task->tries;
    if (DT_LIKELY(dt_memory_limit() == 0)) return;
    task->handed_bytes = needs(task);
    s->controller.handed_bytes += task->handed_bytes;
}

void dt__starve_note_back(dt_sched *s, dt_task *task) {
    dt_controller *c = &s->controller;
    c->trying -= task->tries;
    task->tries = false;
    c->handed_bytes -= task->handed_bytes;
    task->handed_bytes = 0;
    if (DT_UNLIKELY(task->last_chance)) c->hungry.failed = task->error != NULL;
}

static void feed(dt_sched *s, dt_task *task) {
    dt__starve_leave(s, task);
    dt__controller_place(s, task);
}

/* Memory may have been freed: the oldest that starves tries again, if there is enough now. */
void dt__starve_feed(dt_sched *s) {
    dt_controller *c = &s->controller;
    if (DT_LIKELY(!c->watches)) return;
    dt_task *oldest = c->starved.first;
    if (oldest == NULL && c->trying == 0)
        watch(s, false);
    else if (oldest != NULL && needs(oldest) <= room(s))
        feed(s, oldest);
}

/* Since when nothing gets on, as far as whoever starves longest is concerned: neither has it become
 * another one's turn, nor is there less in use than ever since.  Where the one before has failed,
 * clients have had most of their time. */
static int64_t hungry_since(dt_sched *s) {
    dt_controller *c = &s->controller;
    uint64_t seq = c->starved.first->seq;
    int64_t live = dt_memory_live();
    if (seq != c->hungry.seq || live < c->hungry.live) {
        bool failed = c->hungry.failed && seq != c->hungry.seq && live >= c->hungry.live;
        c->hungry.since_ns = dt__now(s) - (failed ? MERCY_NS - GRACE_NS : 0);
        c->hungry.seq = seq;
        c->hungry.live = live;
        c->hungry.failed = false;
    }
    return c->hungry.since_ns;
}

/* The oldest of the others that has room and has not been tried since `since_ns`. */
static dt_task *another(dt_sched *s, int64_t since_ns) {
    int64_t left = room(s);
    for (dt_task *t = s->controller.starved.first->list_next; t != NULL; t = t->list_next)
        if (t->starved_ns < since_ns && needs(t) <= left) return t;
    return NULL;
}

/* Nothing that runs can free memory any more: for a while clients may, who hold results that they
 * are about to drop; then whoever starves longest has its last chance. */
void dt__starve_wait_or_fail(dt_sched *s) {
    dt_controller *c = &s->controller;
    if (DT_PLANT(13) || c->starved.first == NULL || c->held.first != NULL || c->ready.count > 0 ||
        c->handed > 0 || s->io->pieces_under_way > 0)
        return;
    dt_task *oldest = c->starved.first;
    if (!c->stopping) {
        int64_t since_ns = hungry_since(s), now_ns = dt__now(s), grace_ns = since_ns + GRACE_NS;
        dt_task *other = another(s, grace_ns);
        if (other != NULL && now_ns >= grace_ns) {
            c->hungry.picked_seq = other->seq;
            feed(s, other);
            return;
        }
        c->mercy_ns = other != NULL ? grace_ns : since_ns + MERCY_NS;
        if (now_ns < c->mercy_ns) return;
    }
    oldest->last_chance = true;
    feed(s, oldest);
}
