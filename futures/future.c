/* future.c: the completion state of a task, and who waits for it.
 *
 * Two ways to wait.  Waiters are nodes in a list that is taken whole by the exchange that completes
 * the future, and their owners are told by a call.  A blocked thread sleeps on the state itself, a
 * futex, so that it leaves no node behind when its time is up.
 *
 *   state     PENDING -> READY | FAILED | CANCELLED       stored before the list is taken
 *   waiters   NULL <-> nodes (LIFO) -> CLOSED              no node is added after that
 *
 * I1: error is set before state leaves PENDING and released with the future.
 * I2: a waiter that was added before CLOSED is woken by the thread that closed the list; one that
 *     came later was told so.
 * I3: sleepers and state are sequentially consistent: either the completing thread sees the sleeper
 *     or the sleeper sees the state.
 * I4: a pending future of another process (before a fork) counts as failed: its task went with the
 *     threads of the parent.
 */
#include "futures/future.h"

#include <errno.h>
#include <pthread.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "scheduler/futex.h"

#define CLOSED ((dt_waiter *)(uintptr_t)1)
#define SLICE_NS 20000000 /* between two looks at `interrupted` */

struct dt_future {
    _Atomic(uint32_t) refs;
    _Atomic(uint32_t) state; /* dt_future_state; a futex word */
    _Atomic(uint32_t) sleepers;
    _Atomic(uint32_t) wants;
    _Atomic(bool) abandoned;
    uint32_t process; /* which process made it, see I4 */
    uint32_t call;    /* see dt_future_set_call */
    _Atomic(dt_waiter *) waiters;
    dt_error *error;
};

_Static_assert(sizeof(dt_future) <= 48, "a future fits its size class");

static _Atomic(uint32_t) process_number; /* raised in each forked child */
static _Atomic(dt_error *) fork_error;   /* made when first asked for; never released */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void in_child(void) { atomic_fetch_add_explicit(&process_number, 1, memory_order_relaxed); }
static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }

static inline bool is_lost(const dt_future *f) {
    return f->process != atomic_load_explicit(&process_number, memory_order_relaxed);
}

/* The error of futures lost in a fork, shared by all of them. */
static dt_error *lost_error(void) {
    dt_error *error = atomic_load_explicit(&fork_error, memory_order_acquire);
    if (error != NULL) return error;
    dt_status status =
        dt_fail(DT_E_SHUTDOWN, "the tensor was still being computed when this process was forked: "
                               "its value exists in the parent process only");
    dt_error *made = dt_error_capture(status);
    if (atomic_compare_exchange_strong_explicit(&fork_error, &error, made, memory_order_acq_rel,
                                                memory_order_acquire))
        return made;
    dt_error_release(made);
    return error;
}

dt_status dt_future_new(dt_future **out) {
    pthread_once(&fork_once, watch_forks);
    dt_future *f;
    DT_ALLOC_OR_FAIL(f, sizeof *f);
    atomic_init(&f->refs, 1);
    atomic_init(&f->state, DT_FUTURE_PENDING);
    atomic_init(&f->sleepers, 0);
    atomic_init(&f->wants, 0);
    atomic_init(&f->abandoned, false);
    f->process = atomic_load_explicit(&process_number, memory_order_relaxed);
    f->call = 0;
    atomic_init(&f->waiters, NULL);
    f->error = NULL;
    *out = f;
    return DT_OK;
}

dt_future *dt_future_retain(dt_future *f) {
    atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    return f;
}

void dt_future_release(dt_future *f) {
    if (f == NULL) return;
    if (atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1) return;
    dt_error_release(f->error);
    dt_free(f, sizeof *f);
}

static inline dt_future_state own_state(const dt_future *f) {
    return (dt_future_state)atomic_load_explicit(&f->state, memory_order_acquire);
}

dt_future_state dt_future_get_state(const dt_future *f) {
    dt_future_state state = own_state(f);
    if (DT_UNLIKELY(state == DT_FUTURE_PENDING && is_lost(f))) return DT_FUTURE_FAILED;
    return state;
}

dt_error *dt_future_error(const dt_future *f) {
    dt_future_state state = own_state(f);
    if (DT_UNLIKELY(state == DT_FUTURE_PENDING && is_lost(f))) return lost_error();
    return state == DT_FUTURE_PENDING ? NULL : f->error;
}

void dt_future_set_call(dt_future *f, uint32_t call) { f->call = call; }
uint32_t dt_future_call(const dt_future *f) { return f->call; }

static void wake_waiters(dt_waiter *newest) {
    dt_waiter *oldest_first = NULL;
    while (newest != NULL) {
        dt_waiter *next = newest->next;
        newest->next = oldest_first;
        oldest_first = newest;
        newest = next;
    }
    while (oldest_first != NULL) {
        dt_waiter *waiter = oldest_first;
        oldest_first = waiter->next; /* first: wake may free it */
        waiter->wake(waiter);
    }
}

/* The caller holds a reference: a thread that sees the state may drop its own. */
void dt_future_complete(dt_future *f, dt_error *error) {
    DT_ASSERT(own_state(f) == DT_FUTURE_PENDING);
    f->error = dt_error_retain(error);
    dt_error_arm(error); /* before anybody can see it, or let go of it */
    uint32_t state = DT_FUTURE_READY;
    if (error != NULL)
        state = dt_error_status(error) == DT_E_CANCELLED ? DT_FUTURE_CANCELLED : DT_FUTURE_FAILED;
    atomic_store_explicit(&f->state, state, memory_order_seq_cst);
    if (atomic_load_explicit(&f->sleepers, memory_order_seq_cst) != 0)
        dt_futex_wake(&f->state, INT32_MAX);
    wake_waiters(atomic_exchange_explicit(&f->waiters, CLOSED, memory_order_acq_rel));
}

/* ---- who waits ------------------------------------------------------------------------------ */

void dt_future_want(dt_future *f) {
    atomic_fetch_add_explicit(&f->wants, 1, memory_order_seq_cst);
    atomic_store_explicit(&f->abandoned, false, memory_order_seq_cst);
}

void dt_future_unwant(dt_future *f) {
    uint32_t before = atomic_fetch_sub_explicit(&f->wants, 1, memory_order_seq_cst);
    DT_ASSERT(before > 0);
}

/* Clients want and give up under their lock, so that the last one is known. */
bool dt_future_give_up(dt_future *f) {
    dt_future_unwant(f);
    if (dt_future_is_wanted(f) || dt_future_get_state(f) != DT_FUTURE_PENDING) return false;
    atomic_store_explicit(&f->abandoned, true, memory_order_seq_cst);
    return true;
}

bool dt_future_is_wanted(const dt_future *f) {
    return atomic_load_explicit(&f->wants, memory_order_seq_cst) != 0;
}

bool dt_future_is_abandoned(const dt_future *f) {
    return atomic_load_explicit(&f->abandoned, memory_order_seq_cst);
}

/* ---- waiters -------------------------------------------------------------------------------- */

bool dt_future_add_waiter(dt_future *f, dt_waiter *waiter) {
    if (DT_UNLIKELY(is_lost(f))) return false;
    dt_waiter *head = atomic_load_explicit(&f->waiters, memory_order_acquire);
    do {
        if (head == CLOSED) return false;
        waiter->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&f->waiters, &head, waiter,
                                                    memory_order_release, memory_order_acquire));
    return true;
}

/* Sleeps until complete, the deadline, or a question is due. */
static void sleep_slice(dt_future *f, int64_t left_ns, bool asks) {
    int64_t slice_ns = left_ns;
    if (asks && (left_ns < 0 || left_ns > SLICE_NS)) slice_ns = SLICE_NS;
    atomic_fetch_add_explicit(&f->sleepers, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&f->state, memory_order_seq_cst) == DT_FUTURE_PENDING)
        dt_futex_wait(&f->state, DT_FUTURE_PENDING, slice_ns);
    atomic_fetch_sub_explicit(&f->sleepers, 1, memory_order_relaxed);
}

dt_status dt_future_wait(dt_future *f, int64_t timeout_ns, int (*interrupted)(void *context),
                         void *context) {
    int64_t deadline_ns = -1;
    if (timeout_ns >= 0 && __builtin_add_overflow(dt_clock_ns(), timeout_ns, &deadline_ns))
        deadline_ns = -1;
    bool asked = true; /* a short wait ends without the question, which may cost a lock */
    while (dt_future_get_state(f) == DT_FUTURE_PENDING) {
        if (!asked && interrupted != NULL && interrupted(context) != 0) return DT_IN_PROGRESS;
        asked = false;
        int64_t left_ns = -1;
        if (deadline_ns >= 0) {
            left_ns = deadline_ns - dt_clock_ns();
            if (left_ns <= 0) return DT_IN_PROGRESS;
        }
        sleep_slice(f, left_ns, interrupted != NULL);
    }
    return DT_OK;
}
