/* world.c: see world.h. Fibers, their scheduler, the clock, and what stands for the system's calls.
 *
 * Who goes on next is drawn in one of two ways, chosen by the seed.  Either any fiber, after a
 * number of points drawn anew each time; or by priorities that change now and then, so that one
 * fiber can be left behind for long: lost wake-ups hide in the first, deep races in the second.
 */
#include "tests/sim/world.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "runtime/assert.h"
#include "runtime/status.h"
#include "scheduler/threads.h"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if SIM_TSAN
#include <sanitizer/tsan_interface.h>
#endif

enum { FIBERS_MAX = 512, STACK_BYTES = 256 << 10, STEPS_MAX = 400000, EVENTS_KEPT = 64 };

typedef enum fiber_state { FREE, RUNNABLE, BLOCKED, DONE } fiber_state;

struct sim_fiber {
    fiber_state state;
    char name[20];
    void (*run)(void *);
    void *argument;
    void *(*thread_main)(void *); /* when it stands for a thread of the scheduler */
    const void *waits_on;
    int64_t deadline_ns;
    bool woken;
    int64_t priority;
    void *sp;
#if !defined(__x86_64__)
    ucontext_t context;
#endif
    void *fake_stack; /* AddressSanitizer's */
    void *shadow;     /* ThreadSanitizer's */
    char *stack;
};

/* interpose.h's */
int sim_points_left = INT32_MAX;
void sim_point(void);
void sim_preempt(void);

bool sim_tracing;
uint64_t sim_seed;
void (*sim_explain)(void);
bool sim_starts_fail;

static sim_fiber fibers[FIBERS_MAX];
static int fibers_count;   /* of this seed, those that have ended too */
static sim_fiber *current; /* NULL: the fibers' scheduler itself */
static int64_t now_ns, steps_all, steps_here;
static uint64_t random_state;
static int points_mean;  /* between two points at which the fiber may be changed */
static bool by_priority; /* else any fiber goes on */
static char *main_stack;
static size_t main_stack_bytes;

/* ---- chance ---------------------------------------------------------------------------------- */

uint64_t sim_random(void) { /* splitmix64 */
    uint64_t z = (random_state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* ---- what happened --------------------------------------------------------------------------- */

typedef struct event {
    const char *format;
    int64_t value[4];
    int64_t now_ns;
    const char *fiber;
} event;

static event events[EVENTS_KEPT];
static int64_t events_count;

const char *sim_fiber_name(void) { return current != NULL ? current->name : "-"; }

static void print_event(FILE *to, const event *e) {
    fprintf(to, "%12.3f us  %-9s ", (double)e->now_ns / 1000, e->fiber);
    /* The formats are this program's own, and all take long longs. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    fprintf(to, e->format, (long long)e->value[0], (long long)e->value[1], (long long)e->value[2],
            (long long)e->value[3]);
#pragma GCC diagnostic pop
    fputc('\n', to);
}

void sim_event(const char *format, int64_t a, int64_t b, int64_t c, int64_t d) {
    event *e = &events[events_count++ % EVENTS_KEPT];
    *e = (event){format, {a, b, c, d}, now_ns, sim_fiber_name()};
    if (sim_tracing) print_event(stdout, e);
}

static void print_last_events(void) {
    int64_t from = events_count > EVENTS_KEPT ? events_count - EVENTS_KEPT : 0;
    for (int64_t k = from; k < events_count && !sim_tracing; k++)
        print_event(stderr, &events[k % EVENTS_KEPT]);
}

static void print_fibers(void) {
    static const char *const names[] = {"free", "runnable", "blocked", "done"};
    for (int k = 0; k < fibers_count; k++)
        if (fibers[k].state != FREE)
            fprintf(stderr, "  %-9s %s%s\n", fibers[k].name, names[fibers[k].state],
                    &fibers[k] == current ? " (here)" : "");
}

_Noreturn void sim_violation(const char *format, ...) {
    static bool explained;
    fflush(stdout);
    print_last_events();
    print_fibers();
    if (sim_explain != NULL && !explained) {
        explained = true; /* what is broken may not let itself be explained */
        sim_explain();
    }
    fprintf(stderr, "sim: seed %llu, %.3f us, %s: ", (unsigned long long)sim_seed,
            (double)now_ns / 1000, sim_fiber_name());
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nsim: replay with --seed %llu --trace\n", (unsigned long long)sim_seed);
    fflush(stderr);
    _exit(1);
}

/* In the place of runtime/assert.c. */
_Noreturn void dt_assert_failed(const char *expr, const char *file, int line) {
    sim_violation("%s:%d: assertion failed: %s", file, line, expr);
}

#if SIM_TSAN
/* ThreadSanitizer has found something. */
void __tsan_on_report(void *report);
void __tsan_on_report(void *report) {
    (void)report;
    fprintf(stderr, "sim: seed %llu\n", (unsigned long long)sim_seed);
}
#endif

static void on_signal(int number) { sim_violation("signal %d (%s)", number, strsignal(number)); }

static void catch_signals(void) {
#if !defined(__SANITIZE_ADDRESS__)
    static bool done;
    static char stack[64 << 10];
    if (done) return;
    done = true;
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, NULL);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++)
        sigaction(numbers[k], &action, NULL);
#else
    (void)on_signal;
#endif
}

/* ---- switching ------------------------------------------------------------------------------- */

#if defined(__x86_64__)

void sim_switch(void **save_sp, void *to_sp);
__asm__(".text\n.globl sim_switch\n.type sim_switch, @function\n"
        "sim_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n.size sim_switch, .-sim_switch\n");

static void *main_sp;

static void prepare(sim_fiber *f, void (*entry)(void)) {
    uintptr_t top = ((uintptr_t)f->stack + STACK_BYTES - 64) & ~(uintptr_t)15;
    void **sp = (void **)top;
    *--sp = NULL;                     /* where entry would return to: it does not */
    *--sp = (void *)(uintptr_t)entry; /* sim_switch's return address */
    for (int k = 0; k < 6; k++) *--sp = NULL;
    f->sp = (void *)sp;
}

static void swap_to(sim_fiber *from, sim_fiber *to) {
    sim_switch(from != NULL ? &from->sp : &main_sp, to != NULL ? to->sp : main_sp);
}

#else

static ucontext_t main_context;

static void prepare(sim_fiber *f, void (*entry)(void)) {
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = NULL;
    makecontext(&f->context, entry, 0);
}

static void swap_to(sim_fiber *from, sim_fiber *to) {
    swapcontext(from != NULL ? &from->context : &main_context,
                to != NULL ? &to->context : &main_context);
}

#endif

static __attribute__((unused)) void *main_fake_stack, *main_shadow;

/* Goes to `to`, or to the fibers' scheduler when it is NULL. */
static void switch_to(sim_fiber *to) {
    sim_fiber *from = current;
    current = to;
#if defined(__SANITIZE_ADDRESS__)
    void **save = from != NULL ? &from->fake_stack : &main_fake_stack;
    bool ends = from != NULL && from->state == DONE;
    __sanitizer_start_switch_fiber(ends ? NULL : save, to != NULL ? to->stack : main_stack,
                                   to != NULL ? STACK_BYTES : main_stack_bytes);
#endif
#if SIM_TSAN
    __tsan_switch_to_fiber(to != NULL ? to->shadow : main_shadow, __tsan_switch_to_fiber_no_sync);
#endif
    swap_to(from, to);
#if defined(__SANITIZE_ADDRESS__)
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(*save, &bottom, &bytes);
#else
    (void)main_stack;
    (void)main_stack_bytes;
#endif
}

static void entry(void) {
#if defined(__SANITIZE_ADDRESS__)
    const void *bottom;
    __sanitizer_finish_switch_fiber(NULL, &bottom, &main_stack_bytes);
    main_stack = (char *)(uintptr_t)bottom;
#endif
    sim_fiber *self = current;
    sim_hear(&self->state);
    if (self->thread_main != NULL)
        (void)self->thread_main(self->argument);
    else
        self->run(self->argument);
    self->state = DONE;
    sim_tell(self);
    sim_wake(self, INT32_MAX);
    switch_to(NULL);
    sim_violation("a fiber that has ended goes on");
}

/* ---- fibers ---------------------------------------------------------------------------------- */

static sim_fiber *new_fiber(const char *name) {
    if (fibers_count == FIBERS_MAX) sim_violation("more than %d threads", FIBERS_MAX);
    sim_fiber *f = fibers + fibers_count++;
    char *stack = f->stack;
    if (stack == NULL) stack = malloc(STACK_BYTES);
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stack, STACK_BYTES); /* of who had it before and never returned */
#endif
    *f = (sim_fiber){.state = RUNNABLE, .stack = stack, .priority = sim_below(1000000)};
    snprintf(f->name, sizeof f->name, "%s", name);
    prepare(f, entry);
#if SIM_TSAN
    f->shadow = __tsan_create_fiber(0);
#endif
    sim_tell(&f->state);
    return f;
}

sim_fiber *sim_spawn(const char *name, void (*run)(void *argument), void *argument) {
    sim_fiber *f = new_fiber(name);
    f->run = run;
    f->argument = argument;
    return f;
}

void sim_join(sim_fiber *fiber) {
    while (fiber->state != DONE) sim_block(fiber, -1);
    sim_hear(fiber);
}

static void draw_points(void) {
    sim_points_left =
        by_priority ? 1 + (int)sim_below(4 * points_mean) * 8 : 1 + (int)sim_below(2 * points_mean);
}

void sim_point(void) {
    if (--sim_points_left <= 0) sim_preempt();
}

void sim_preempt(void) {
    if (current == NULL) {
        sim_points_left = INT32_MAX;
        return;
    }
    if (by_priority) current->priority = sim_below(1000000);
    switch_to(NULL);
}

bool sim_block(const void *on, int64_t deadline_ns) {
    sim_fiber *self = current;
    if (self == NULL) sim_violation("the fibers' scheduler would block");
    if (deadline_ns >= 0 && deadline_ns <= now_ns) return false;
    self->waits_on = on;
    self->deadline_ns = deadline_ns;
    self->woken = false;
    self->state = BLOCKED;
    switch_to(NULL);
    self->waits_on = NULL;
    return self->woken;
}

void sim_wake(const void *on, int count) {
    while (count-- > 0) {
        sim_fiber *found = NULL;
        int seen = 0;
        for (sim_fiber *f = fibers; f < fibers + fibers_count; f++)
            if (f->state == BLOCKED && f->waits_on == on && sim_one_in(++seen)) found = f;
        if (found == NULL) return;
        found->woken = true;
        found->state = RUNNABLE;
    }
}

bool sim_anyone_waits(const void *on) {
    for (sim_fiber *f = fibers; f < fibers + fibers_count; f++)
        if (f->state == BLOCKED && f->waits_on == on) return true;
    return false;
}

void sim_tell(const void *at) {
#if SIM_TSAN
    __tsan_release((void *)(uintptr_t)at);
#else
    (void)at;
#endif
}

void sim_hear(const void *at) {
#if SIM_TSAN
    __tsan_acquire((void *)(uintptr_t)at);
#else
    (void)at;
#endif
}

static const char nothing_at_all;

void sim_sleep(int64_t ns) {
    int64_t until_ns = now_ns + ns;
    while (sim_block(&nothing_at_all, until_ns)) {}
}

void sim_lock(bool *lock) {
    while (*lock) sim_block(lock, -1);
    *lock = true;
    sim_hear(lock);
}

void sim_unlock(bool *lock) {
    *lock = false;
    sim_tell(lock);
    sim_wake(lock, INT32_MAX);
}

int64_t sim_now(void) { return now_ns; }

/* ---- the fibers' scheduler ------------------------------------------------------------------- */

static void expire(void) {
    for (sim_fiber *f = fibers; f < fibers + fibers_count; f++)
        if (f->state == BLOCKED && f->deadline_ns >= 0 && f->deadline_ns <= now_ns)
            f->state = RUNNABLE;
}

static sim_fiber *pick(void) {
    sim_fiber *found = NULL;
    int seen = 0;
    for (sim_fiber *f = fibers; f < fibers + fibers_count; f++) {
        if (f->state != RUNNABLE) continue;
        seen++;
        if (by_priority ? found == NULL || f->priority > found->priority : sim_one_in(seen))
            found = f;
    }
    return found;
}

/* The next moment at which somebody wakes by himself; negative: never. */
static int64_t next_deadline(void) {
    int64_t next = -1;
    for (sim_fiber *f = fibers; f < fibers + fibers_count; f++)
        if (f->state == BLOCKED && f->deadline_ns >= 0 && (next < 0 || f->deadline_ns < next))
            next = f->deadline_ns;
    return next;
}

static bool is_over(void) {
    for (sim_fiber *f = fibers; f < fibers + fibers_count; f++)
        if (f->state == RUNNABLE || f->state == BLOCKED) return false;
    return true;
}

static void end_fiber(sim_fiber *f) {
    sim_hear(f);
    f->state = FREE;
#if SIM_TSAN
    __tsan_destroy_fiber(f->shadow);
#endif
}

static void run_one(sim_fiber *f) {
    steps_here++;
    draw_points();
    switch_to(f);
    sim_points_left = INT32_MAX;
}

int64_t sim_steps(void) { return steps_all; }

void sim_world_run(uint64_t seed, void (*first)(void *argument), void (*quiet)(void),
                   void (*step)(void)) {
    catch_signals();
#if SIM_TSAN
    main_shadow = __tsan_get_current_fiber();
#endif
    sim_seed = seed;
    random_state = seed * 0xd1342543de82ef95 + 1;
    static const int means[] = {1, 2, 3, 6, 12, 40};
    points_mean = means[sim_below(6)];
    by_priority = sim_one_in(3);
    now_ns = 1000000;
    events_count = steps_here = 0;
    sim_spawn("client-0", first, NULL);
    while (!is_over()) {
        now_ns += 1 + sim_below(150);
        if (sim_one_in(256) && next_deadline() > now_ns) now_ns = next_deadline();
        expire();
        sim_fiber *f = pick();
        if (f == NULL) {
            quiet();
            int64_t next = next_deadline();
            if (next < 0) sim_violation("hang: nobody can go on");
            now_ns = next;
            continue;
        }
        run_one(f);
        if (steps_here % 16 == 0) step();
        if (steps_here > STEPS_MAX) sim_violation("no end after %d steps", STEPS_MAX);
    }
    steps_all += steps_here;
    for (sim_fiber *f = fibers; f < fibers + fibers_count; f++) end_fiber(f);
    fibers_count = 0;
}

/* ---- the system's calls, as the scheduler makes them ----------------------------------------- */

typedef struct sim_mutex {
    int held;
} sim_mutex;
_Static_assert(sizeof(sim_mutex) <= sizeof(pthread_mutex_t), "it lies in the system's");

int sim_mutex_init(sim_mutex *m, const void *attributes);
int sim_mutex_destroy(sim_mutex *m);
int sim_mutex_lock(sim_mutex *m);
int sim_mutex_trylock(sim_mutex *m);
int sim_mutex_unlock(sim_mutex *m);
int sim_cond_init(void *cond, const void *attributes);
int sim_cond_destroy(void *cond);
int sim_cond_timedwait(void *cond, sim_mutex *m, const struct timespec *until);
int sim_cond_wait(void *cond, sim_mutex *m);
int sim_cond_broadcast(void *cond);
int sim_sem_init(int *s, int shared, unsigned value);
int sim_sem_destroy(int *s);
int sim_sem_wait(int *s);
int sim_sem_post(int *s);
int sim_thread_join(pthread_t thread, void **result);
int sim_yield(void);
int sim_getcpu(void);
int sim_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set);
int sim_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set);
pid_t sim_gettid(void);
int sim_clock_gettime(clockid_t clock, struct timespec *ts);
int sim_futex_wait(_Atomic(uint32_t) *word, uint32_t value, int64_t timeout_ns);
void sim_futex_wake(_Atomic(uint32_t) *word, int count);
void sim_spin_pause(void);
int64_t sim_clock_ns(void);

int sim_mutex_init(sim_mutex *m, const void *attributes) {
    (void)attributes;
    m->held = 0;
    return 0;
}

int sim_mutex_destroy(sim_mutex *m) {
    if (m->held) sim_violation("a lock is destroyed while it is held");
    return 0;
}

int sim_mutex_lock(sim_mutex *m) {
    sim_point();
    while (m->held) sim_block(m, -1);
    m->held = 1;
    sim_hear(m);
    return 0;
}

int sim_mutex_trylock(sim_mutex *m) {
    sim_point();
    if (m->held) return EBUSY;
    m->held = 1;
    sim_hear(m);
    return 0;
}

int sim_mutex_unlock(sim_mutex *m) {
    if (!m->held) sim_violation("a lock is given back that nobody holds");
    m->held = 0;
    sim_tell(m);
    sim_wake(m, INT32_MAX);
    sim_point();
    return 0;
}

int sim_cond_init(void *cond, const void *attributes) {
    (void)cond;
    (void)attributes;
    return 0;
}

int sim_cond_destroy(void *cond) {
    if (sim_anyone_waits(cond)) sim_violation("a condition is destroyed while somebody waits");
    return 0;
}

static int wait_cond(void *cond, sim_mutex *m, int64_t deadline_ns) {
    m->held = 0;
    sim_tell(m);
    sim_wake(m, INT32_MAX);
    bool woken = sim_one_in(16) || sim_block(cond, deadline_ns);
    while (m->held) sim_block(m, -1);
    m->held = 1;
    sim_hear(m);
    return woken ? 0 : ETIMEDOUT;
}

int sim_cond_timedwait(void *cond, sim_mutex *m, const struct timespec *until) {
    return wait_cond(cond, m, until->tv_sec * 1000000000 + until->tv_nsec);
}

int sim_cond_wait(void *cond, sim_mutex *m) { return wait_cond(cond, m, -1); }

int sim_cond_broadcast(void *cond) {
    sim_point();
    sim_wake(cond, INT32_MAX);
    return 0;
}

int sim_sem_init(int *s, int shared, unsigned value) {
    (void)shared;
    *s = (int)value;
    return 0;
}

int sim_sem_destroy(int *s) {
    (void)s;
    return 0;
}

int sim_sem_wait(int *s) {
    if (sim_one_in(8)) {
        errno = EINTR;
        return -1;
    }
    while (*s == 0) sim_block(s, -1);
    --*s;
    sim_hear(s);
    return 0;
}

int sim_sem_post(int *s) {
    ++*s;
    sim_tell(s);
    sim_wake(s, 1);
    sim_point();
    return 0;
}

/* In the place of threads.c. */
dt_status dt__thread_start(pthread_t *thread, void *(*main)(void *), void *argument,
                           const char *name_format, int index) {
    if (sim_starts_fail && sim_one_in(6)) return dt_fail_errno(EAGAIN, "cannot start a thread");
    char name[20];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(name, sizeof name, name_format, index);
#pragma GCC diagnostic pop
    sim_fiber *f = new_fiber(name);
    f->thread_main = main;
    f->argument = argument;
    *thread = (pthread_t)(f - fibers);
    sim_point();
    return DT_OK;
}

int dt_sched_default_threads(void) { return 2; }

int sim_thread_join(pthread_t thread, void **result) {
    (void)result;
    sim_join(&fibers[thread]);
    return 0;
}

int sim_yield(void) {
    now_ns += 1000 + sim_below(8000);
    sim_preempt();
    return 0;
}

int sim_getcpu(void) { return (int)sim_below(2); }

int sim_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set) {
    (void)pid;
    memset(set, 0, bytes);
    CPU_SET(0, set);
    CPU_SET(1, set);
    return 0;
}

int sim_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set) {
    (void)pid;
    (void)bytes;
    (void)set;
    return 0;
}

pid_t sim_gettid(void) { return 1; }

int sim_clock_gettime(clockid_t clock, struct timespec *ts) {
    (void)clock;
    *ts = (struct timespec){now_ns / 1000000000, now_ns % 1000000000};
    return 0;
}

int sim_futex_wait(_Atomic(uint32_t) *word, uint32_t value, int64_t timeout_ns) {
    sim_point();
    if (sim_one_in(16)) return EINTR;
    if (*word != value) return EAGAIN;
    return sim_block(word, timeout_ns < 0 ? -1 : now_ns + timeout_ns) ? 0 : ETIMEDOUT;
}

void sim_futex_wake(_Atomic(uint32_t) *word, int count) {
    sim_point();
    sim_wake(word, count);
}

void sim_spin_pause(void) {
    now_ns += 100 + sim_below(1500);
    sim_point();
}

int64_t sim_clock_ns(void) {
    now_ns += 1 + sim_below(40);
    sim_point();
    return now_ns;
}
