/* cast.h: conversion between element types, as torch's copy_ does it on x86.
 *
 * Floats are cut off towards zero; what an int32 (int64 for that target) cannot hold, NaN too,
 * turns into its least value before it is cut to the target's width.  Everything but 0 is true.
 * Halves are rounded to nearest even, by way of f32.
 */
#ifndef DT_KERNELS_CPU_CAST_H
#define DT_KERNELS_CPU_CAST_H

#include <stdint.h>

#include "runtime/dtype.h"

/* Converts n contiguous elements; `to` and `from` do not overlap, or are the same memory and types
 * of one size. */
void dt_cast(int64_t n, void *to, dt_dtype to_dtype, const void *from, dt_dtype from_dtype);

/* Rounds n floats to what a half holds: as dt_cast to it and back. to may be from. */
void dt_round(int64_t n, float *to, dt_dtype half, const float *from);

/* As dt_cast for one number, by way of its own type (int64 or f64). */
void dt_cast_scalar(dt_scalar value, dt_dtype dtype, void *to);

#endif
