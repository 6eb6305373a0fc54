/* sim.h: what the parts of the simulator share: the tasks that were submitted, and what is known of
 * them.
 *
 *   client.c   programs: what clients do
 *   kernels.c  kernels, passes and what they find when they run
 *   device.c   files and the device that reads and writes them
 *   check.c    the order that must hold while it runs, and afterwards the same program once more,
 *              one operation after the other
 */
#ifndef DT_TESTS_SIM_SIM_H
#define DT_TESTS_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/sched.h"

enum {
    SIM_OPERANDS_MAX = 7,
    SIM_ELEMENTS_MAX = 64,
    SIM_TASKS_MAX = 400,
    SIM_STORAGES_MAX = 400,
    SIM_LOG_MAX = 2000,
};

/* Elements offset, offset + stride, ... of a storage. */
typedef struct sim_view {
    int storage; /* -1: nothing */
    int64_t offset, stride, n;
} sim_view;

typedef enum sim_io_fate { SIM_IO_GOOD, SIM_IO_ERROR, SIM_IO_TRUNCATED } sim_io_fate;

/* A task as it was submitted, and what became of it. */
typedef struct sim_task {
    int index;
    dt_task_kind kind;
    int nout, nin;
    sim_view at[SIM_OPERANDS_MAX]; /* outputs, then inputs */
    int64_t a, b, c;
    dt_status fails;  /* DT_OK, or how the kernel fails */
    int64_t cost_ns;  /* what it says it takes */
    int64_t takes_ns; /* what it takes */
    int parts;        /* into how many it can be split */
    bool scratch, fusible, ends_pass, after_all, direct;
    sim_io_fate io_fate;
    int64_t file_offset, delay_ns;
    dt_priority priority;

    dt_task *task; /* until it has ended */
    int64_t submit_ns;
    bool started;
    int inside; /* parts that are being computed */
    int parts_done;
    int pass; /* the number of the pass that it is in; 0: none */
    int ends; /* how often on_end was called */
    bool dropped;
    dt_error *error; /* retained */

    int waiters;
    bool gave_up;
    bool free_to_run; /* it waits for nothing */
    int64_t gave_up_at;
    int64_t idle_at; /* see check_unasked */
    int overtaken;
    bool starved, told_dropped; /* as seen by check.c */
} sim_task;

extern sim_task sim_tasks[SIM_TASKS_MAX];
extern int sim_tasks_count;
extern dt_sched *sim_sched;   /* NULL before it is started and while it is being stopped */
extern bool sim_stopping;     /* a stop has begun */
extern bool sim_memory_fails; /* allocations may fail in this seed */
extern bool sim_limited;      /* ... because of the limit */
extern int sim_threads_allowed, sim_working;
extern int64_t sim_last_need; /* the last act by which somebody asked for something */
extern int64_t sim_acts;      /* what clients have done so far */
extern int sim_room_waiters;

/* ---- check.c: while it runs ---- */

void sim_check_start_seed(void);
/* A task is about to be submitted, client lock held: it is the next of the program. */
void sim_check_submit(sim_task *t);
/* What an await or a read finds now, in its turn of the program. */
void sim_check_observe(sim_view v, const int64_t *values, dt_error *failure);
/* One part of a task, or of the pass that it is a member of, is about to be computed, or a piece of
 * its file to be moved. */
void sim_check_begin(sim_task *t);
void sim_check_ended(dt_task *task); /* every task's on_end */
void sim_check_quiet(void);          /* nobody can go on before the clock moves */
void sim_check_step(void);           /* now and then */
/* After the stop: everything once more, in program order. */
void sim_check_replay(void);
void sim_check_release(void); /* the errors that were kept */

int sim_storage_new(int64_t elements);
void sim_storage_handles(int storage, int change); /* that clients hold */
int sim_storage_last_writer(int storage);          /* its task, or -1 */

/* ---- kernels.c ---- */

struct dt_kernel;
extern const struct dt_kernel sim_kernel, sim_kernel_fusible;
void sim_kernels_register(void);
/* Element i of output k of t, given its inputs' elements. */
int64_t sim_compute(const sim_task *t, int k, int64_t i, const int64_t *inputs);

/* ---- device.c ---- */

int64_t sim_file_value(int64_t offset); /* what a file holds at a multiple of 8 */
dt_file *sim_file_new(void);
int64_t sim_file_written(int64_t offset);
void sim_files_start(void);

/* ---- client.c ---- */

void sim_client_main(void *unused);

/* ---- coverage: what was reached, over all seeds ---- */

#define SIM_COVER(X)                                                                               \
    X(seeds)                                                                                       \
    X(starts_failed)                                                                               \
    X(tasks)                                                                                       \
    X(direct)                                                                                      \
    X(chained)                                                                                     \
    X(fused)                                                                                       \
    X(passes)                                                                                      \
    X(dead_intermediates)                                                                          \
    X(passes_given_up)                                                                             \
    X(splits)                                                                                      \
    X(split_helped)                                                                                \
    X(dropped)                                                                                     \
    X(dropped_in_run)                                                                              \
    X(parked)                                                                                      \
    X(taken_back)                                                                                  \
    X(asked_again)                                                                                 \
    X(held)                                                                                        \
    X(starved)                                                                                     \
    X(starved_and_fed)                                                                             \
    X(out_of_memory)                                                                               \
    X(allocations_failed)                                                                          \
    X(failed)                                                                                      \
    X(failed_with_cause)                                                                           \
    X(reads)                                                                                       \
    X(writes)                                                                                      \
    X(io_errors)                                                                                   \
    X(short_moves)                                                                                 \
    X(fences)                                                                                      \
    X(fences_after_all)                                                                            \
    X(timers)                                                                                      \
    X(awaits)                                                                                      \
    X(cancels)                                                                                     \
    X(observed_values)                                                                             \
    X(observed_failures)                                                                           \
    X(waits_for_room)                                                                              \
    X(threads_changed)                                                                             \
    X(stopped_at_work)                                                                             \
    X(shut_down)                                                                                   \
    X(controller_slept)                                                                            \
    X(quiet_moments)                                                                               \
    X(bulk_overtaken)

typedef enum sim_cover {
#define X(name) SIM_COVER_##name,
    SIM_COVER(X)
#undef X
        SIM_COVER_COUNT
} sim_cover;
extern int64_t sim_covered[SIM_COVER_COUNT];
#define sim_cover(name) (sim_covered[SIM_COVER_##name]++)

#endif
