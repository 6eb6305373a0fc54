/* task.h: what the scheduler's own files do with a task. See task.c. */
#ifndef DT_SCHEDULER_TASK_H
#define DT_SCHEDULER_TASK_H

#include "scheduler/sched.h"

#define DT__TASK_ACCESSES_MIN 4 /* room in every task, for calls moved in after dt_task_new */

/* Raises readers/writers of the operands' storages. Returns whether nothing in flight conflicted
 * with the task before, and its inputs have their memory. Client lock. */
bool dt__task_raise_counts(dt_task *task);

/* The memory of a storage that is read though nobody has ever written it. (dt_storage_materialize
 * alone would also tell that the bytes change.) Controller. */
static inline dt_status dt__task_materialize_input(dt_storage *s) {
    if (atomic_load_explicit(&s->data, memory_order_acquire) != NULL) return DT_OK;
    return dt_storage_materialize(s);
}

/* Makes this thread's current error the task's (the first one stays). The owner of the task. */
void dt__task_fail(dt_task *task, dt_status status);

/* Ends without being computed, because nobody can see what it would write. The owner of the task.
 */
void dt__task_drop(dt_task *task);

/* How often the operands of the task are t. */
uint32_t dt__task_references(const dt_task *task, const dt_tensor *t);

/* Whether there are no references to t and its bytes but these. Who has none cannot get one, so
 * what is true stays true. t comes first: whoever holds it may be making another tensor of its
 * bytes, and let go of t then. */
static inline bool dt__task_is_held_by(const dt_tensor *t, uint32_t references) {
    uint32_t held = atomic_load_explicit(&t->refs, memory_order_acquire);
    return held == references && atomic_load_explicit(&t->storage->refs, memory_order_acquire) == 1;
}

/* Whether nobody but the task, and `others` more references to each output, can see what it would
 * write. False for a task without outputs. */
bool dt__task_is_unobservable(const dt_task *task, uint32_t others);

/* Everything that ending means for the outside: failure noted in the outputs, counts lowered,
 * on_end called. The thread that ended the task; it still owns it afterwards. */
void dt__task_end(dt_task *task, int64_t now_ns);

/* Releases all that an ended (or never submitted) task holds, and itself. */
void dt__task_destroy(dt_task *task);

#endif
