/* keys.h: elements as unsigned integers that sort as torch sorts the elements, and their sort.
 *
 * -0.0 and 0.0 have one key; every NaN has the greatest one, DT__KEY_NAN, which no number has.
 */
#ifndef DT_KERNELS_CPU_KEYS_H
#define DT_KERNELS_CPU_KEYS_H

#include <stdint.h>

#include "runtime/dtype.h"

#define DT__KEY_NAN UINT64_MAX /* of floats only: an int64 may have this key too */

/* n contiguous elements as keys; those of types up to 4 bytes fit 32 bits but for DT__KEY_NAN,
 * which is UINT32_MAX in the 32-bit form. */
void dt__keys_u64(int64_t n, uint64_t *keys, const void *from, dt_dtype dtype);
void dt__keys_u32(int64_t n, uint32_t *keys, const void *from, dt_dtype dtype);

/* The element with this key; of NaNs and zeros one with a fixed sign. */
void dt__key_element(uint64_t key, dt_dtype dtype, void *to);

/* Sorts by digits of 8 bits, from the lowest on; a digit that all keys share costs no pass. The
 * result is in the returned one of the two arrays. */
uint64_t *dt__keys_sort_u64(int64_t n, uint64_t *keys, uint64_t *other);
uint32_t *dt__keys_sort_u32(int64_t n, uint32_t *keys, uint32_t *other);

#endif
