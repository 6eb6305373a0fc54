/* refs.c: how clients touch what they share with the scheduler: counts of references, and what a
 * storage says of itself.
 *
 * Apart from the rest of the simulator, so that ThreadSanitizer, which is not to watch that, sees
 * the order that these make.
 */
#include "tests/sim/refs.h"

#include "runtime/tensor.h"

struct dt_tensor *sim_retain(struct dt_tensor *t) {
    return dt_tensor_retain(t);
}
void sim_release(struct dt_tensor *t) { dt_tensor_release(t); }

bool sim_is_final(const struct dt_tensor *t) {
    return atomic_load_explicit(&t->storage->writers, memory_order_acquire) == 0;
}

struct dt_error *sim_failure(const struct dt_tensor *t) {
    return atomic_load_explicit(&t->storage->failure, memory_order_acquire);
}
