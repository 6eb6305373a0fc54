/* device.c: the one device table there is so far.
 *
 * I1: registered once, before the first op; the release/acquire pair makes a table that was built
 *     at run time visible to workers that started earlier.
 */
#include "runtime/device.h"

#include <stdatomic.h>

#include "runtime/assert.h"

static _Atomic(const dt_device_ops *) cpu_device;

void dt_device_register_cpu(const dt_device_ops *ops) {
    DT_ASSERT(ops != NULL && ops->type != NULL && ops->kernels != NULL);
    const dt_device_ops *before = atomic_load_explicit(&cpu_device, memory_order_acquire);
    /* A second sub-interpreter or test suite may register the same table again. */
    DT_ASSERT(before == NULL || before == ops);
    atomic_store_explicit(&cpu_device, ops, memory_order_release);
}

const dt_device_ops *dt_device_cpu(void) {
    return atomic_load_explicit(&cpu_device, memory_order_acquire);
}
