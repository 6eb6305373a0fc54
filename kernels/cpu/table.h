/* table.h: the CPU as a device, for whoever wires the layers together (python/, tests, bench). */
#ifndef DT_KERNELS_CPU_TABLE_H
#define DT_KERNELS_CPU_TABLE_H

#include "runtime/device.h"

extern const dt_device_ops dt_cpu_device;

#endif
