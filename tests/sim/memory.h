/* memory.h: the simulator's own memory, see memory.c. */
#ifndef DT_TESTS_SIM_MEMORY_H
#define DT_TESTS_SIM_MEMORY_H

#include <stdint.h>

#define SIM_MEMORY_FRESH 0x5a /* every byte that was never written */

extern int64_t sim_memory_failures; /* allocations that were made to fail in this seed */

void sim_memory_start(void);
/* At the end of a seed: everything was freed, once, and not touched again. */
void sim_memory_check(void);

#endif
