/* graveyard.h: where C threads leave what only a thread with the GIL may release.
 *
 * Foreign deleters (DLPack, buffer owners) and Python references take the GIL or run user code, so
 * no C thread ever runs them: it posts them here, and client calls, loop drains and
 * Py_AddPendingCall (through the notify hook) empty the queue.  Lock-free multi-producer; one drain
 * at a time (callers hold the GIL).
 */
#ifndef DT_RUNTIME_GRAVEYARD_H
#define DT_RUNTIME_GRAVEYARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Intrusive: embed one in the object that dies, so that posting cannot fail. */
typedef struct dt_grave {
    struct dt_grave *next;
    void (*bury)(struct dt_grave *grave); /* runs under the GIL; frees the object */
} dt_grave;

extern _Atomic(dt_grave *) dt_graveyard_head;

void dt_graveyard_post(dt_grave *grave); /* any thread */
/* Runs all posted burials; the caller holds the GIL and no lock of ours. */
void dt_graveyard_drain_slow(void);
static inline void dt_graveyard_drain(void) {
    if (__builtin_expect(atomic_load_explicit(&dt_graveyard_head, memory_order_relaxed) != NULL, 0))
        dt_graveyard_drain_slow();
}
/* Called (any thread, must not block) when the queue turns non-empty; python/ sets it. */
void dt_graveyard_set_notify(void (*notify)(void));

#endif
