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

/* Everything that ending means for the outside: failure noted in the outputs, counts lowered,
 * on_end called. The thread that ended the task; it still owns it afterwards. */
void dt__task_end(dt_task *task, int64_t now_ns);

/* Releases all that an ended (or never submitted) task holds, and itself. */
void dt__task_destroy(dt_task *task);

#endif
