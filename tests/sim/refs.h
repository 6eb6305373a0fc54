/* refs.h: see refs.c. */
#ifndef DT_TESTS_SIM_REFS_H
#define DT_TESTS_SIM_REFS_H

#include <stdbool.h>

struct dt_tensor;
struct dt_error;

struct dt_tensor *sim_retain(struct dt_tensor *t);
void sim_release(struct dt_tensor *t);
bool sim_is_final(const struct dt_tensor *t); /* nobody is going to write it any more */
struct dt_error *sim_failure(const struct dt_tensor *t);

#endif
