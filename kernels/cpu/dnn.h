/* dnn.h: matrix products by oneDNN, on the calling thread alone.
 *
 * Used for products of halves, where it drives matrix units and half instructions that plain C
 * does not reach, and for large ones of f32 (matmul.c).  Everything here may be called from any
 * thread.
 */
#ifndef DT_KERNELS_CPU_DNN_H
#define DT_KERNELS_CPU_DNN_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/dtype.h"
#include "runtime/status.h"

/* c [m, n] = a [m, k] @ b [k, n] (+ bias [n]); strides in elements; c's rows are contiguous. */
typedef struct dt__dnn_product {
    int64_t m, n, k;  /* at least 1 each */
    int64_t sam, sak; /* one of them 1 */
    int64_t sbk, sbn; /* one of them 1 */
    int64_t scm;
    dt_dtype dtype;
    bool bias; /* contiguous */
} dt__dnn_product;

/* Whether oneDNN has fast code for products of this type here (asked once, then remembered). */
bool dt__dnn_has(dt_dtype dtype);

/* Computes one product. Rounds once, from f32 sums. DT_E_NOT_IMPLEMENTED: no fast code for this
 * very product, nothing was written; any other error is oneDNN's own. */
dt_status dt__dnn_run(const dt__dnn_product *product, const void *a, const void *b,
                      const void *bias, void *c) DT_MUST_CHECK;

/* "oneDNN 3.2.0", for show_config. Returns buffer. */
const char *dt_dnn_version(char *buffer, int size);

#endif
