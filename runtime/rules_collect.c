/* rules_collect.c: what collectives are made of on one machine: a tensor put together from pieces.
 *
 * assemble__pieces: pieces lie in a grid, row-major; dim d of the result is cut into grid[d]
 * intervals, whose sizes the pieces' shapes tell.  Each cell has the same number of pieces, one
 * after the other in the list, which are reduced in that order.  `copies` outputs get the same
 * values: fresh tensors, or those that the call brings along.
 *
 * Params: i[0] reduction (dt_placement_kind), i[1] pieces of a cell, i[2] what a sum is divided by,
 * i[3 + d] grid.
 */
#include <string.h>

#include "runtime/assert.h"
#include "runtime/infer.h"
#include "runtime/mesh.h"
#include "runtime/rules.h"

_Static_assert(3 + DT_RANK_MAX <= DT_PARAMS_I, "a grid of any rank fits");

static int cells_of(const dt_dims *grid) {
    int64_t cells = 1;
    for (int d = 0; d < grid->rank; d++) cells *= grid->v[d];
    return (int)cells;
}

/* The result's shape, from the pieces along each axis of the grid. */
static dt_dims shape_of(dt_tensor *const *pieces, const dt_dims *grid, int each) {
    dt_dims shape = {.rank = grid->rank};
    int stride = each;
    for (int d = grid->rank - 1; d >= 0; d--) {
        shape.v[d] = 0;
        for (int k = 0; k < grid->v[d]; k++) shape.v[d] += pieces[k * stride]->shape[d];
        stride *= (int)grid->v[d];
    }
    return shape;
}

/* Every piece has the sizes that those along the axes of the grid have. */
static bool fits(dt_tensor *const *pieces, int n, const dt_dims *grid, int each) {
    for (int k = 0; k < n; k++) {
        if (pieces[k]->rank != grid->rank || pieces[k]->dtype != pieces[0]->dtype) return false;
        int rest = k / each, stride = each;
        for (int d = grid->rank - 1; d >= 0; d--) {
            int at = rest % (int)grid->v[d];
            if (pieces[k]->shape[d] != pieces[at * stride]->shape[d]) return false;
            rest /= (int)grid->v[d];
            stride *= (int)grid->v[d];
        }
    }
    return true;
}

dt_status dt_infer_assemble(dt_op_call *c) {
    dt_tensor *const *pieces = c->args[0].list.v;
    const dt_dims *grid = c->args[1].dims;
    int n = c->args[0].list.n, cells = cells_of(grid), copies = (int)c->args[2].i;
    DT_ASSERT(n > 0 && cells > 0 && n % cells == 0 && copies > 0 && copies <= DT_OUTS_MAX);
    if (n > UINT16_MAX)
        return dt_fail(DT_E_RUNTIME, "a tensor cannot be put together from %d pieces", n);
    int each = n / cells;
    if (!fits(pieces, n, grid, each))
        return dt_fail(DT_E_RUNTIME, "the parts of a tensor on a mesh do not fit together");
    dt_dtype dtype = (dt_dtype)pieces[0]->dtype;
    if (c->args[4].i != 1 && !dt_dtype_is_float(dtype))
        return dt_fail(DT_E_PLACEMENT, "Partial('avg') needs a tensor of floats, not of %s",
                       dt_dtype_table[dtype].name);
    DT_TRY(dt_rule_call(c, copies, n, pieces));
    c->call.compute = (uint8_t)dtype;
    c->call.params.i[0] = c->args[3].i;
    c->call.params.i[1] = each;
    c->call.params.i[2] = c->args[4].i;
    for (int d = 0; d < grid->rank; d++) c->call.params.i[3 + d] = grid->v[d];
    dt_dims shape = shape_of(pieces, grid, each);
    if (!dt_arg_given(c, 5)) {
        for (int k = 0; k < copies; k++) DT_TRY(dt_rule_out(c, dtype, &shape));
        return DT_OK;
    }
    for (; c->nout < copies; c->nout++) {
        dt_tensor *out = c->args[5].list.v[c->nout];
        DT_ASSERT(out->dtype == dtype && out->rank == shape.rank &&
                  memcmp(out->shape, shape.v, sizeof *shape.v * (size_t)shape.rank) == 0);
        c->outs[c->nout] = dt_tensor_retain(out);
    }
    return DT_OK;
}
