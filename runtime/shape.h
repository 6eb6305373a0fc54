/* shape.h: arithmetic on shapes and strides (element units), no allocation.
 *
 * Everything here works on plain int64_t arrays of at most DT_RANK_MAX entries, so that it can be
 * tested alone and used by the client, the kernels and the planner alike.
 */
#ifndef DT_RUNTIME_SHAPE_H
#define DT_RUNTIME_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/status.h"

#define DT_RANK_MAX 16

/* A shape or a list of dims, by value. */
typedef struct dt_dims {
    int rank;
    int64_t v[DT_RANK_MAX];
} dt_dims;

/* Product of shape; DT_E_RUNTIME when it (times item_size bytes) overflows int64 or a dim is
 * negative ("Trying to create tensor with negative dimension -1: [2, -1]"). */
dt_status dt_shape_numel(int rank, const int64_t *shape, int64_t item_size, int64_t *numel)
    DT_MUST_CHECK;

/* Row-major strides; dims of size 0 or 1 count as 1, as torch does. */
void dt_shape_contiguous_strides(int rank, const int64_t *shape, int64_t *strides);
bool dt_shape_is_contiguous(int rank, const int64_t *shape, const int64_t *strides);

/* Wraps a negative dim; DT_E_INDEX "Dimension out of range (expected to be in range of [-2, 1], but
 * got 2)". rank 0 is treated as rank 1, as torch does, when wrap_scalar. */
dt_status dt_shape_wrap_dim(int64_t dim, int rank, bool wrap_scalar, int *out) DT_MUST_CHECK;

/* Broadcast of a and b into out; DT_E_RUNTIME "The size of tensor a (3) must match the size of
 * tensor b (4) at non-singleton dimension 1". */
dt_status dt_shape_broadcast(const dt_dims *a, const dt_dims *b, dt_dims *out) DT_MUST_CHECK;

/* Resolves one -1 in shape against numel; torch's errors "shape '[2, 5]' is invalid for input of
 * size 6", "only one dimension can be inferred". */
dt_status dt_shape_infer(dt_dims *shape, int64_t numel) DT_MUST_CHECK;

/* Strides of a view with new_shape (same numel) over old shape/strides; false when there is none
 * without a copy. */
bool dt_shape_view_strides(int old_rank, const int64_t *old_shape, const int64_t *old_strides,
                           int new_rank, const int64_t *new_shape, int64_t *new_strides);

/* True when two different indices can address one element: expanded dims, else the sorted-stride
 * test, else an exact search (true when that grows long). */
bool dt_shape_may_self_overlap(int rank, const int64_t *shape, const int64_t *strides);

/* True when an element of a and one of b can be at the same address; b's first element lies
 * b_minus_a elements behind a's. Exact unless the strides make the search long, then true. */
bool dt_shape_may_meet(int a_rank, const int64_t *a_shape, const int64_t *a_strides, int b_rank,
                       const int64_t *b_shape, const int64_t *b_strides, int64_t b_minus_a);

/* Writes "[2, 3]" to buffer (truncated with "..." when it does not fit) and returns buffer. */
const char *dt_shape_format(int rank, const int64_t *shape, char *buffer, int size);

#endif
