/* plant.h: planted bugs, to see that the simulator (tests/sim) finds what it is for.
 *
 * DT_PLANT(n) is false, and costs nothing, but in the simulator's own build of these sources, where
 * it is true when the bug with that number was asked for (sim --plant n).  Each is one a person
 * could make.
 */
#ifndef DT_SCHEDULER_PLANT_H
#define DT_SCHEDULER_PLANT_H

#define DT_PLANTS 32 /* their number */

#ifdef DT_SIM
extern int dt_planted;
#define DT_PLANT(n) __builtin_expect(dt_planted == (n), 0)
#else
#define DT_PLANT(n) 0
#endif

#endif
