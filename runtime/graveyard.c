/* graveyard.c: a lock-free stack that producers push to and a drain takes whole.
 *
 *   empty --post: CAS NULL -> grave, notify--> non-empty --drain: exchange NULL--> empty
 *
 * A drain reverses what it took, so that burials run in the order in which they were posted.
 *
 * I1: a grave belongs to the queue from its post until its bury() is called, once.
 * I2: notify is called by exactly the post that found the queue empty.
 * I3: a drain reads a grave's link before it buries it: bury frees it, and may drain again.
 */
#include "runtime/graveyard.h"

#include <stddef.h>
#include <stdint.h>

_Atomic(dt_grave *) dt_graveyard_head;

static _Atomic(uintptr_t) notify_hook; /* void (*)(void), or 0 */

void dt_graveyard_post(dt_grave *grave) {
    dt_grave *head = atomic_load_explicit(&dt_graveyard_head, memory_order_relaxed);
    do {
        grave->next = head;
        /* Release: what the dying object holds must be seen by the thread that buries it. */
    } while (!atomic_compare_exchange_weak_explicit(&dt_graveyard_head, &head, grave,
                                                    memory_order_release, memory_order_relaxed));
    if (head == NULL) {
        void (*notify)(void) =
            (void (*)(void))atomic_load_explicit(&notify_hook, memory_order_acquire);
        if (notify != NULL) notify();
    }
}

static dt_grave *take_in_order(void) {
    dt_grave *taken = atomic_exchange_explicit(&dt_graveyard_head, NULL, memory_order_acquire);
    dt_grave *ordered = NULL;
    while (taken != NULL) {
        dt_grave *next = taken->next;
        taken->next = ordered;
        ordered = taken;
        taken = next;
    }
    return ordered;
}

void dt_graveyard_drain_slow(void) {
    /* A burial may let other objects die, so go on until nothing is left; every round buries what
     * was posted before it, and each object is posted once. */
    for (dt_grave *grave = take_in_order(); grave != NULL; grave = take_in_order()) {
        while (grave != NULL) {
            dt_grave *next = grave->next;
            grave->bury(grave);
            grave = next;
        }
    }
}

void dt_graveyard_set_notify(void (*notify)(void)) {
    atomic_store_explicit(&notify_hook, (uintptr_t)notify, memory_order_release);
}
