/* status.h: the one status type, thread-local error text, and captured errors.
 *
 * Every fallible function returns dt_status: 0 is success, positive is "in progress", negative an
 * error.  The text of an error is set once, where it was first seen (dt_fail), and lives in the
 * failing thread until the next dt_fail there.  An error that has to outlive its thread (a failed
 * task) is captured into a reference-counted dt_error.
 *
 * I1: a negative status always has a text in dt_error_text() of the thread that returned it.
 * I2: a captured dt_error is immutable, but for who has come to know of it.
 * I3: a failure that was armed and that nobody saw goes to the unseen hook once, with its last
 *     reference.
 */
#ifndef DT_RUNTIME_STATUS_H
#define DT_RUNTIME_STATUS_H

#include <stdint.h>

#include "runtime/graveyard.h"

typedef enum dt_status {
    DT_OK = 0,
    DT_IN_PROGRESS = 1,
    DT_E_RUNTIME = -1,         /* RuntimeError */
    DT_E_VALUE = -2,           /* ValueError */
    DT_E_TYPE = -3,            /* TypeError */
    DT_E_INDEX = -4,           /* IndexError */
    DT_E_ZERO_DIVISION = -5,   /* RuntimeError "ZeroDivisionError", as torch has it */
    DT_E_NO_MEMORY = -6,       /* dtorch.OutOfMemoryError */
    DT_E_NOT_IMPLEMENTED = -7, /* NotImplementedError */
    DT_E_OS = -8,              /* OSError with errno */
    DT_E_CANCELLED = -9,       /* asyncio.CancelledError */
    DT_E_QUEUE_FULL = -10,     /* dtorch.QueueFullError */
    DT_E_OVERFLOW = -11,       /* OverflowError */
    DT_E_PLACEMENT = -12,      /* dtorch.PlacementError */
    DT_E_SHUTDOWN = -13,       /* RuntimeError: the runtime has been shut down, or forked */
    DT_E_PYTHON = -14,         /* a Python exception is set already (python/ only) */
    DT_STATUS_MIN = -14,
} dt_status;

#define DT_MUST_CHECK __attribute__((warn_unused_result))
#define DT_PRINTF(a, b) __attribute__((format(printf, a, b)))

/* Evaluates expr and leaves the calling function with its status when that is not DT_OK. */
#define DT_TRY(expr)                                                                               \
    do {                                                                                           \
        dt_status dt_try_status_ = (expr);                                                         \
        if (__builtin_expect(dt_try_status_ != DT_OK, 0)) return dt_try_status_;                   \
    } while (0)

/* Sets this thread's error text and returns status. */
dt_status dt_fail(dt_status status, const char *format, ...) DT_PRINTF(2, 3) __attribute__((cold));

/* As dt_fail with DT_E_OS: keeps errnum for dt_error_errno and appends its description. */
dt_status dt_fail_errno(int errnum, const char *format, ...) DT_PRINTF(2, 3) __attribute__((cold));

#ifdef __clang_analyzer__
/* Static analysis does not see the definitions: tell it that a failure is never DT_OK. */
#define dt_fail(status, ...) ((void)dt_fail(status, __VA_ARGS__), (status))
#define dt_fail_errno(errnum, ...) ((void)dt_fail_errno(errnum, __VA_ARGS__), DT_E_OS)
#endif

/* The text of the last dt_fail in this thread; valid until the next one. */
const char *dt_error_text(void);
int dt_error_errno(void);

const char *dt_status_name(dt_status status);

typedef struct dt_error dt_error; /* immutable, reference-counted, any thread */

/* Captures this thread's current error text under status. Never NULL: when memory is out, a static
 * object that says so is returned. */
dt_error *dt_error_capture(dt_status status);
dt_error *dt_error_retain(dt_error *error); /* NULL passes through */
void dt_error_release(dt_error *error);     /* NULL passes through */
dt_status dt_error_status(const dt_error *error);
int dt_error_captured_errno(const dt_error *error);
const char *dt_error_message(const dt_error *error);

/* Where a late error comes from: the op (dt_op_id + 1; 0: unknown) and the client's call site (a
 * number that only the client can read; 0: unknown). Set by whoever captured it, before others can
 * see it. */
void dt_error_set_origin(dt_error *error, uint32_t op, uint32_t site);
uint32_t dt_error_op(const dt_error *error);
uint32_t dt_error_site(const dt_error *error);

/* Makes a captured error this thread's current one, and returns its status. Counts as seen. */
dt_status dt_error_restore(const dt_error *error);

/* Failures that nobody observes.  Arming says that somebody ought to see the error (whatever is
 * cancelled or shut down is not worth that, nor is the static out-of-memory object); seeing it ends
 * that for good, also before it is armed. */
void dt_error_arm(dt_error *error); /* any thread; NULL passes through */
void dt_error_mark_seen(const dt_error *error);

/* Called (any thread, must not block nor take the GIL) when the last reference to an armed, unseen
 * error is dropped.  The hook gets that reference: it posts the grave, and whoever buries it
 * releases the error, which is then freed. NULL: such errors are freed in silence. */
void dt_error_set_unseen_hook(void (*hook)(dt_error *error));
dt_grave *dt_error_grave(dt_error *error);
dt_error *dt_error_of_grave(dt_grave *grave);

#endif
