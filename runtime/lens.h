/* lens.h: views that walk what they look at with strides: transpose, slice, expand, diagonal ...
 *
 * A lens says which element of the input each element of the view is, in indices of both, not in
 * memory: index k of view dim e moves the place by k * step[e] in input dim from[e].  So one lens
 * serves the whole tensor and, with a dt_spot, one device's part of it; and whether a view needs no
 * communication is a question of boxes.
 *
 * L1: shapes of a lens are those of the whole, also while a part is being made.
 */
#ifndef DT_RUNTIME_LENS_H
#define DT_RUNTIME_LENS_H

#include "runtime/mesh.h"
#include "runtime/op.h"

typedef struct dt_lens {
    int rank; /* of the view */
    int64_t shape[DT_RANK_MAX];
    int64_t step[DT_RANK_MAX]; /* 0: every index shows the same place (expand) */
    int8_t from[DT_RANK_MAX];  /* -1: a dim that the input has not */
    int8_t also;               /* the last view dim walks this input dim too (diagonal); -1: none */
    int64_t start[DT_RANK_MAX]; /* by input dim: where the view's first element is */
} dt_lens;

/* The lens of a call, or the error that the user shall see. */
dt_status dt_lens_transpose(const dt_op_call *c, dt_lens *lens) DT_MUST_CHECK;
dt_status dt_lens_t(const dt_op_call *c, dt_lens *lens) DT_MUST_CHECK;
dt_status dt_lens_permute(const dt_op_call *c, dt_lens *lens) DT_MUST_CHECK;
dt_status dt_lens_movedim(const dt_op_call *c, dt_lens *lens) DT_MUST_CHECK;
dt_status dt_lens_squeeze(const dt_op_call *c, dt_lens *lens) DT_MUST_CHECK;
dt_status dt_lens_unsqueeze(const dt_op_call *c, dt_lens *lens) DT_MUST_CHECK;
dt_status dt_lens_expand(const dt_op_call *c, dt_lens *lens) DT_MUST_CHECK;
dt_status dt_lens_expand_as(const dt_op_call *c, dt_lens *lens) DT_MUST_CHECK;
dt_status dt_lens_select(const dt_op_call *c, dt_lens *lens) DT_MUST_CHECK;
dt_status dt_lens_narrow(const dt_op_call *c, dt_lens *lens) DT_MUST_CHECK;
dt_status dt_lens_slice(const dt_op_call *c, dt_lens *lens) DT_MUST_CHECK;
dt_status dt_lens_diagonal(const dt_op_call *c, dt_lens *lens) DT_MUST_CHECK;

/* Finishes a rule: args[0], or this device's part of it, seen through the lens. */
dt_status dt_lens_rule(dt_op_call *c, const dt_lens *lens) DT_MUST_CHECK;

/* Whether what the lens shows of `in`, a box of the input, is exactly `out`, a box of the view. */
bool dt_lens_fits(const dt_lens *lens, int in_rank, const dt_box *in, const dt_box *out);

/* The dims of the view that walk input dim d, as a bit mask. */
uint32_t dt_lens_walkers(const dt_lens *lens, int d);

#endif
