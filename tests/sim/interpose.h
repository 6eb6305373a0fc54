/* interpose.h: what makes the scheduler's own sources run in the simulator's world.
 *
 * The build includes this file before each source of scheduler/ (gcc -include).  Every atomic
 * operation becomes a point at which the simulator may let another thread go on, and the calls to
 * the system (threads, locks, futexes, semaphores, the eventfd, the clock) go to world.c.  Nothing
 * in those sources knows of it.
 */
#ifndef DT_TESTS_SIM_INTERPOSE_H
#define DT_TESTS_SIM_INTERPOSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- points ---------------------------------------------------------------------------------- */

#if defined(__SANITIZE_THREAD__)
void sim_point(void); /* out of its sight */
#else
extern int sim_points_left;
void sim_preempt(void);

static inline void sim_point(void) {
    if (__builtin_expect(--sim_points_left <= 0, 0)) sim_preempt();
}
#endif

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak_explicit
#undef atomic_fetch_add
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub
#undef atomic_fetch_sub_explicit

/* What the macros of <stdatomic.h> do in either compiler, after a point. */
#if defined(__clang__)
#define SIM_VALUE(p) __typeof__(__c11_atomic_load(p, 0))
#define SIM_LOAD(p, to, order) (*(to) = __c11_atomic_load(p, order))
#define SIM_STORE(p, from, order) __c11_atomic_store(p, *(from), order)
#define SIM_EXCHANGE(p, from, to, order) (*(to) = __c11_atomic_exchange(p, *(from), order))
#define SIM_COMPARE(p, expected, from, good, bad)                                                  \
    __c11_atomic_compare_exchange_strong(p, expected, *(from), good, bad)
#define SIM_ADD(p, v, order) __c11_atomic_fetch_add(p, v, order)
#define SIM_SUB(p, v, order) __c11_atomic_fetch_sub(p, v, order)
#else
#define SIM_VALUE(p) __typeof__((void)0, *(p))
#define SIM_LOAD(p, to, order) __atomic_load(p, to, order)
#define SIM_STORE(p, from, order) __atomic_store(p, from, order)
#define SIM_EXCHANGE(p, from, to, order) __atomic_exchange(p, from, to, order)
#define SIM_COMPARE(p, expected, from, good, bad)                                                  \
    __atomic_compare_exchange(p, expected, from, 0, good, bad)
#define SIM_ADD(p, v, order) __atomic_fetch_add(p, v, order)
#define SIM_SUB(p, v, order) __atomic_fetch_sub(p, v, order)
#endif

#define atomic_load_explicit(p, order)                                                             \
    __extension__({                                                                                \
        sim_point();                                                                               \
        __auto_type sim_at = (p);                                                                  \
        SIM_VALUE(sim_at) sim_value;                                                               \
        SIM_LOAD(sim_at, &sim_value, order);                                                       \
        sim_value;                                                                                 \
    })
#define atomic_store_explicit(p, v, order)                                                         \
    __extension__({                                                                                \
        __auto_type sim_at = (p);                                                                  \
        SIM_VALUE(sim_at) sim_value = (v);                                                         \
        sim_point();                                                                               \
        SIM_STORE(sim_at, &sim_value, order);                                                      \
    })
#define atomic_exchange_explicit(p, v, order)                                                      \
    __extension__({                                                                                \
        __auto_type sim_at = (p);                                                                  \
        SIM_VALUE(sim_at) sim_value = (v);                                                         \
        SIM_VALUE(sim_at) sim_before;                                                              \
        sim_point();                                                                               \
        SIM_EXCHANGE(sim_at, &sim_value, &sim_before, order);                                      \
        sim_before;                                                                                \
    })
#define SIM_COMPARE_EXCHANGE(p, expected, v, success, failure)                                     \
    __extension__({                                                                                \
        __auto_type sim_at = (p);                                                                  \
        SIM_VALUE(sim_at) sim_value = (v);                                                         \
        sim_point();                                                                               \
        SIM_COMPARE(sim_at, expected, &sim_value, success, failure);                               \
    })
#define atomic_compare_exchange_strong_explicit SIM_COMPARE_EXCHANGE
#define atomic_compare_exchange_weak_explicit SIM_COMPARE_EXCHANGE
#define atomic_fetch_add_explicit(p, v, order) (sim_point(), SIM_ADD(p, v, order))
#define atomic_fetch_sub_explicit(p, v, order) (sim_point(), SIM_SUB(p, v, order))
#define atomic_fetch_add(p, v) atomic_fetch_add_explicit(p, v, __ATOMIC_SEQ_CST)
#define atomic_fetch_sub(p, v) atomic_fetch_sub_explicit(p, v, __ATOMIC_SEQ_CST)

/* ---- the system ------------------------------------------------------------------------------ */

/* These names mean the simulator's functions in the object file; declarations stay the system's. */
#pragma redefine_extname pthread_join sim_thread_join
#pragma redefine_extname pthread_mutex_init sim_mutex_init
#pragma redefine_extname pthread_mutex_destroy sim_mutex_destroy
#pragma redefine_extname pthread_mutex_lock sim_mutex_lock
#pragma redefine_extname pthread_mutex_trylock sim_mutex_trylock
#pragma redefine_extname pthread_mutex_unlock sim_mutex_unlock
#pragma redefine_extname pthread_cond_init sim_cond_init
#pragma redefine_extname pthread_cond_destroy sim_cond_destroy
#pragma redefine_extname pthread_cond_wait sim_cond_wait
#pragma redefine_extname pthread_cond_timedwait sim_cond_timedwait
#pragma redefine_extname pthread_cond_broadcast sim_cond_broadcast
#pragma redefine_extname sem_init sim_sem_init
#pragma redefine_extname sem_destroy sim_sem_destroy
#pragma redefine_extname sem_wait sim_sem_wait
#pragma redefine_extname sem_post sim_sem_post
#pragma redefine_extname sched_yield sim_yield
#pragma redefine_extname sched_getcpu sim_getcpu
#pragma redefine_extname sched_getaffinity sim_getaffinity
#pragma redefine_extname sched_setaffinity sim_setaffinity
#pragma redefine_extname gettid sim_gettid
#pragma redefine_extname clock_gettime sim_clock_gettime
#pragma redefine_extname eventfd sim_eventfd
#pragma redefine_extname write sim_write
#pragma redefine_extname close sim_close

/* In the place of futex.h, whose functions are inline. */
#define DT_SCHEDULER_FUTEX_H
#include <errno.h>
#include <time.h>
#include <unistd.h>
int sim_futex_wait(_Atomic(uint32_t) *word, uint32_t value, int64_t timeout_ns);
void sim_futex_wake(_Atomic(uint32_t) *word, int count);
void sim_spin_pause(void);
int64_t sim_clock_ns(void);
#define dt_futex_wait sim_futex_wait
#define dt_futex_wake sim_futex_wake
#define dt_spin_pause sim_spin_pause
#define dt_clock_ns sim_clock_ns

#endif
