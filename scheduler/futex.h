/* futex.h: the two futex calls that we use, process-private.
 *
 * I1: a wait is always inside a loop that looks at the word again: it may end for no reason.
 */
#ifndef DT_SCHEDULER_FUTEX_H
#define DT_SCHEDULER_FUTEX_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleeps while *word == value, at most timeout_ns (negative: for ever). Returns 0 or an errno:
 * EAGAIN, EINTR, ETIMEDOUT. */
static inline int dt_futex_wait(_Atomic(uint32_t) *word, uint32_t value, int64_t timeout_ns) {
    struct timespec ts = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    long rc =
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout_ns < 0 ? NULL : &ts, NULL, 0);
    return rc == 0 ? 0 : errno;
}

/* Wakes at most count waiters. */
static inline void dt_futex_wake(_Atomic(uint32_t) *word, int count) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* Between two looks of a thread that waits awake. */
static inline void dt_spin_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static inline int64_t dt_clock_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000000 + ts.tv_nsec;
}

#endif
