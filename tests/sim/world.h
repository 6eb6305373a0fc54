/* world.h: the machine that the scheduler believes to run on: threads, locks, a clock, chance.
 *
 * Its threads are fibers of one real thread.  At each point (interpose.h) and wherever one blocks
 * the next to go on is drawn from the seed, so that a seed is a program, an interleaving and all
 * the bad luck together, and plays again exactly.
 *
 * I1: nothing here or in the rest of the simulator depends on an address or on the real clock.
 * I2: one fiber runs at a time, and only points, locks and waits switch: the simulator's own code
 *     between two of them is atomic.
 */
#ifndef DT_TESTS_SIM_WORLD_H
#define DT_TESTS_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

/* ---- chance ---------------------------------------------------------------------------------- */

uint64_t sim_random(void);
static inline int64_t sim_below(int64_t n) { return (int64_t)(sim_random() % (uint64_t)n); }
/* True once in n times. */
static inline bool sim_one_in(int64_t n) { return sim_below(n) == 0; }

/* ---- fibers ---------------------------------------------------------------------------------- */

typedef struct sim_fiber sim_fiber;

sim_fiber *sim_spawn(const char *name, void (*run)(void *argument), void *argument);
void sim_join(sim_fiber *fiber);
const char *sim_fiber_name(void); /* of the one that runs */

/* Blocks the running fiber until sim_wake(on) or the clock has reached deadline_ns (negative:
 * never). False: it was the deadline. */
bool sim_block(const void *on, int64_t deadline_ns);
/* Lets at most `count` fibers that wait for it go on, drawn at random. */
void sim_wake(const void *on, int count);
extern bool sim_starts_fail; /* threads and devices may fail to start */
bool sim_anyone_waits(const void *on);
void sim_sleep(int64_t ns);
/* What happened before tell(at) in one fiber comes before what follows hear(at) in another, for
 * ThreadSanitizer, which knows of the fibers but not of how they wait for each other. */
void sim_tell(const void *at);
void sim_hear(const void *at);
/* A lock of the simulator's own. */
void sim_lock(bool *lock);
void sim_unlock(bool *lock);
int64_t sim_now(void); /* without a point */

/* Runs fibers until all have ended. quiet() is called whenever none can go on before the clock has
 * moved; step() after every sixteenth step. */
void sim_world_run(uint64_t seed, void (*first)(void *argument), void (*quiet)(void),
                   void (*step)(void));
int64_t sim_steps(void); /* of all runs */

/* ---- what happened --------------------------------------------------------------------------- */

extern bool sim_tracing;
extern uint64_t sim_seed;

/* Notes an event: a format with at most four int64_t (%lld). Printed when tracing, and the last
 * ones when something is wrong. */
void sim_event(const char *format, int64_t a, int64_t b, int64_t c, int64_t d);

/* Prints more about a violation, where set. */
extern void (*sim_explain)(void);

/* Something that must never be: prints it with the seed and the last events, and exits with 1. */
_Noreturn void sim_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
