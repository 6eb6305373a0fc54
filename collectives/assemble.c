/* assemble.c: see assemble.h. */
#include "collectives/assemble.h"

#include <string.h>

#include "futures/dispatch.h"
#include "runtime/rules.h"

static dt_status assemble_some(const dt_assembly *how, int n, dt_tensor *const *pieces, int copies,
                               dt_tensor **out) {
    dt_op_call c;
    dt_dims grid = {.rank = how->rank};
    memcpy(grid.v, how->grid, sizeof *grid.v * (size_t)how->rank);
    dt_op_call_init(&c, DT_OP_assemble__pieces);
    c.nargs = out[0] != NULL ? 6 : 5;
    c.args[0].kind = DT_ARG_TENSORS;
    c.args[0].list.v = pieces;
    c.args[0].list.n = n;
    c.args[1] = (dt_arg){.kind = DT_ARG_DIMS, .dims = &grid};
    c.args[2] = (dt_arg){.kind = DT_ARG_INT, .i = copies};
    c.args[3] = (dt_arg){.kind = DT_ARG_INT, .i = how->reduction};
    c.args[4] = (dt_arg){.kind = DT_ARG_INT, .i = how->divisor};
    c.args[5].kind = DT_ARG_TENSORS;
    c.args[5].list.v = out;
    c.args[5].list.n = copies;
    DT_TRY(dt_dispatch(&c));
    for (int k = 0; k < copies; k++) {
        if (out[k] != NULL)
            dt_tensor_release(c.outs[k]);
        else
            out[k] = c.outs[k];
    }
    return DT_OK;
}

dt_status dt_assemble(const dt_assembly *how, int n, dt_tensor *const *pieces, int copies,
                      dt_tensor **out) {
    bool fresh = out[0] == NULL;
    for (int done = 0; done < copies;) {
        int some = copies - done < DT_OUTS_MAX ? copies - done : DT_OUTS_MAX;
        dt_status status = assemble_some(how, n, pieces, some, out + done);
        if (status != DT_OK) {
            for (int k = 0; k < done && fresh; k++) {
                dt_tensor_release(out[k]);
                out[k] = NULL;
            }
            return status;
        }
        done += some;
    }
    return DT_OK;
}

dt_status dt_box_view(const dt_tensor *t, const int64_t *start, const int64_t *size,
                      dt_tensor **out) {
    int64_t offset = t->offset;
    for (int d = 0; d < t->rank; d++) offset += start[d] * t->strides[d];
    return dt_tensor_new_view(t, (dt_dtype)t->dtype, t->rank, size, t->strides, offset, out);
}

dt_status dt_narrow_view(const dt_tensor *t, int dim, int64_t start, int64_t length,
                         dt_tensor **out) {
    int64_t size[DT_RANK_MAX];
    memcpy(size, t->shape, sizeof size);
    size[dim] = length;
    return dt_tensor_new_view(t, (dt_dtype)t->dtype, t->rank, size, t->strides,
                              t->offset + start * t->strides[dim], out);
}

dt_status dt_assemble_copy(dt_tensor *t, dt_tensor **out) {
    dt_assembly how = {.rank = t->rank, .divisor = 1};
    for (int d = 0; d < t->rank; d++) how.grid[d] = 1;
    return dt_assemble(&how, 1, &t, 1, out);
}
