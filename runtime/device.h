/* device.h: the table through which everyone but the device itself reaches its kernels.
 *
 * kernels/cpu/table.c expands ops.def into dt_cpu_device; python/, tests and bench register it.  A
 * row whose kernel is missing fails to link.
 */
#ifndef DT_RUNTIME_DEVICE_H
#define DT_RUNTIME_DEVICE_H

#include "runtime/fuse.h"
#include "runtime/kernel.h"
#include "runtime/op.h"

typedef struct dt_device_ops {
    const char *type;                /* "cpu" */
    const dt_kernel *const *kernels; /* DT_OP_COUNT entries, NULL where a row says NONE */
    const char *(*describe)(void);   /* "avx512": which variants run, for show_config */
    const dt_fuse_ops *fuse;         /* NULL: every call runs alone */
} dt_device_ops;

void dt_device_register_cpu(const dt_device_ops *ops); /* once, before the first op */
const dt_device_ops *dt_device_cpu(void);

#endif
