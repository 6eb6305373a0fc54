/* fused.h: several element-wise calls in one pass over memory: the CPU's dt_fuse_ops. */
#ifndef DT_KERNELS_CPU_FUSED_H
#define DT_KERNELS_CPU_FUSED_H

#include "runtime/fuse.h"

extern const dt_fuse_ops dt_cpu_fuse;

#endif
