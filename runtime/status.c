/* status.c: error text of each thread, and errors that outlive their thread.
 *
 * The current error of a thread is a fixed thread-local buffer: failing never allocates, and a text
 * longer than the buffer ends in "...".  A captured error is one block with the text behind its
 * header.  When even that block cannot be had, the capture is a static object whose count nobody
 * touches, so that the way of reporting out-of-memory needs no memory.
 *
 * I1: a message is formatted into a scratch buffer first: dt_fail's arguments may point into the
 *     current text (an outer layer that prefixes an inner error).
 * I2: refs of no_memory_error is never read or written.
 * I3: a captured error's fate only gains bits; with SEEN the last release frees it.
 */
#include "runtime/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"

#define TEXT_MAX 2048

enum fate { ARMED = 1, SEEN = 2 };

struct dt_error {
    _Atomic(uint32_t) refs;
    _Atomic(uint32_t) fate; /* bits of enum fate */
    dt_status status;
    int errnum;
    uint32_t op, site; /* see dt_error_set_origin */
    dt_grave grave;    /* the unseen hook's */
    uint32_t length;   /* of message, without its terminator */
    char message[];
};

static struct {
    struct dt_error error;
    char message[16];
} no_memory_error = {{.refs = 1, .status = DT_E_NO_MEMORY, .length = 13}, "out of memory"};

static _Atomic(uintptr_t) unseen_hook; /* void (*)(dt_error *), or 0 */

static _Thread_local char current_text[TEXT_MAX];
static _Thread_local int current_errno;

/* Marks a text that vsnprintf had to cut. */
static void mark_truncation(char *buffer, int size, int wanted) {
    if (wanted >= size) memcpy(buffer + size - 4, "...", 4);
}

/* In parentheses: see status.h for when these are macros too. */
dt_status(dt_fail)(dt_status status, const char *format, ...) {
    DT_ASSERT(status < 0);
    char scratch[TEXT_MAX];
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(scratch, sizeof scratch, format, args);
    va_end(args);
    if (wanted < 0) scratch[0] = 0;
    mark_truncation(scratch, sizeof scratch, wanted);
    memcpy(current_text, scratch, strlen(scratch) + 1);
    current_errno = 0;
    return status;
}

dt_status(dt_fail_errno)(int errnum, const char *format, ...) {
    char scratch[TEXT_MAX];
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(scratch, sizeof scratch, format, args);
    va_end(args);
    if (wanted < 0) scratch[0] = 0;
    mark_truncation(scratch, sizeof scratch, wanted);

    /* The GNU strerror_r: it may return a text of its own instead of using the buffer. */
    char buffer[128];
    const char *description = strerror_r(errnum, buffer, sizeof buffer);
    size_t used = strlen(scratch);
    if (used + 3 < sizeof scratch) {
        size_t room = sizeof scratch - used;
        int more = snprintf(scratch + used, room, "%s%s", used ? ": " : "", description);
        mark_truncation(scratch + used, (int)room, more);
    }
    memcpy(current_text, scratch, strlen(scratch) + 1);
    current_errno = errnum;
    return DT_E_OS;
}

const char *dt_error_text(void) { return current_text; }
int dt_error_errno(void) { return current_errno; }

const char *dt_status_name(dt_status status) {
    static const char *const errors[] = {
        [-DT_OK] = "ok",
        [-DT_E_RUNTIME] = "runtime error",
        [-DT_E_VALUE] = "value error",
        [-DT_E_TYPE] = "type error",
        [-DT_E_INDEX] = "index error",
        [-DT_E_ZERO_DIVISION] = "division by zero",
        [-DT_E_NO_MEMORY] = "out of memory",
        [-DT_E_NOT_IMPLEMENTED] = "not implemented",
        [-DT_E_OS] = "OS error",
        [-DT_E_CANCELLED] = "cancelled",
        [-DT_E_QUEUE_FULL] = "queue full",
        [-DT_E_OVERFLOW] = "overflow",
        [-DT_E_PLACEMENT] = "placement error",
        [-DT_E_SHUTDOWN] = "runtime shut down",
        [-DT_E_PYTHON] = "Python exception",
    };
    _Static_assert(sizeof errors / sizeof errors[0] == -DT_STATUS_MIN + 1, "name every status");
    if (status == DT_IN_PROGRESS) return "in progress";
    if (status > DT_OK || status < DT_STATUS_MIN) return "unknown status";
    return errors[-status];
}

dt_error *dt_error_capture(dt_status status) {
    DT_ASSERT(status < 0);
    size_t length = strlen(current_text);
    dt_error *error = dt_alloc(sizeof(dt_error) + length + 1);
    if (error == NULL) return &no_memory_error.error;
    atomic_init(&error->refs, 1);
    atomic_init(&error->fate, 0);
    error->status = status;
    error->errnum = current_errno;
    error->op = error->site = 0;
    error->grave = (dt_grave){NULL, NULL};
    error->length = (uint32_t)length;
    memcpy(error->message, current_text, length + 1);
    return error;
}

dt_error *dt_error_retain(dt_error *error) {
    if (error != NULL && error != &no_memory_error.error)
        atomic_fetch_add_explicit(&error->refs, 1, memory_order_relaxed);
    return error;
}

void dt_error_release(dt_error *error) {
    if (error == NULL || error == &no_memory_error.error) return;
    if (atomic_fetch_sub_explicit(&error->refs, 1, memory_order_acq_rel) != 1) return;
    if (DT_UNLIKELY(atomic_load_explicit(&error->fate, memory_order_relaxed) == ARMED)) {
        void (*hook)(dt_error *) =
            (void (*)(dt_error *))atomic_load_explicit(&unseen_hook, memory_order_acquire);
        if (hook != NULL) {
            dt_error_mark_seen(error); /* I3: the next last release frees it */
            atomic_store_explicit(&error->refs, 1, memory_order_relaxed);
            hook(error);
            return;
        }
    }
    dt_free(error, sizeof(dt_error) + error->length + 1);
}

void dt_error_arm(dt_error *error) {
    if (error == NULL || error == &no_memory_error.error) return;
    if (error->status == DT_E_CANCELLED || error->status == DT_E_SHUTDOWN) return;
    /* Looked at first: a failure is armed again for each dependent that fails with it. */
    if ((atomic_load_explicit(&error->fate, memory_order_relaxed) & ARMED) == 0)
        atomic_fetch_or_explicit(&error->fate, ARMED, memory_order_relaxed);
}

void dt_error_mark_seen(const dt_error *error) {
    /* No error is a const object: const is for what callers can read of it. */
    _Atomic(uint32_t) *fate = &((dt_error *)error)->fate;
    if ((atomic_load_explicit(fate, memory_order_relaxed) & SEEN) == 0)
        atomic_fetch_or_explicit(fate, SEEN, memory_order_relaxed);
}

void dt_error_set_unseen_hook(void (*hook)(dt_error *error)) {
    atomic_store_explicit(&unseen_hook, (uintptr_t)hook, memory_order_release);
}

dt_grave *dt_error_grave(dt_error *error) { return &error->grave; }

dt_error *dt_error_of_grave(dt_grave *grave) {
    return (dt_error *)((char *)grave - offsetof(dt_error, grave));
}

dt_status dt_error_status(const dt_error *error) { return error->status; }
int dt_error_captured_errno(const dt_error *error) { return error->errnum; }

void dt_error_set_origin(dt_error *error, uint32_t op, uint32_t site) {
    if (error == &no_memory_error.error) return; /* everybody's */
    error->op = op;
    error->site = site;
}
uint32_t dt_error_op(const dt_error *error) { return error->op; }
uint32_t dt_error_site(const dt_error *error) { return error->site; }

const char *dt_error_message(const dt_error *error) {
    /* The static object's text is a member beside it, not behind its flexible array. */
    return error == &no_memory_error.error ? no_memory_error.message : error->message;
}

dt_status dt_error_restore(const dt_error *error) {
    const char *message = dt_error_message(error);
    dt_error_mark_seen(error);
    memcpy(current_text, message, strlen(message) + 1);
    current_errno = error->errnum;
    return error->status;
}
