/* local.c: collectives between devices that share this process's memory.
 *
 * Nobody sends: each result is assembled in one pass from the members' own tensors (assemble.h),
 * by a task that waits for those that write them.  Members that get equal values are written by
 * one task, which reads and reduces once.
 */
#include "collectives/collectives.h"

#include "collectives/assemble.h"
#include "runtime/assert.h"

static dt_assembly plain(const dt_tensor *t) {
    dt_assembly how = {.rank = t->rank, .divisor = 1};
    for (int d = 0; d < t->rank; d++) how.grid[d] = 1;
    return how;
}

static dt_assembly joined(const dt_collective *c) {
    dt_assembly how = plain(c->in[0]);
    how.grid[c->join_dim] = c->n;
    return how;
}

static dt_assembly reduced(const dt_collective *c) {
    dt_assembly how = plain(c->in[0]);
    how.reduction = c->reduction;
    how.divisor = c->reduction == DT_PARTIAL_AVG ? c->n : 1;
    return how;
}

/* The results so far of a collective that fails in the middle. */
static dt_status undo(const dt_collective *c, bool fresh, int made, dt_status status) {
    while (fresh && made > 0) {
        dt_tensor_release(c->out[--made]);
        c->out[made] = NULL;
    }
    return status;
}

/* Each member gets its piece, cut from each of the inputs, put together as `how` says. */
static dt_status cut_and_assemble(const dt_collective *c, const dt_assembly *how, int inputs) {
    dt_tensor *pieces[DT_MESH_DEVICES_MAX];
    bool fresh = c->out[0] == NULL;
    int64_t start = 0;
    DT_ASSERT(inputs <= DT_MESH_DEVICES_MAX);
    for (int k = 0; k < c->n; k++) {
        int count = 0;
        dt_status status = DT_OK;
        while (count < inputs && status == DT_OK) {
            status = dt_narrow_view(c->in[count], c->cut_dim, start, c->lengths[k], &pieces[count]);
            if (status == DT_OK) count++;
        }
        if (status == DT_OK) status = dt_assemble(how, count, pieces, 1, &c->out[k]);
        while (count > 0) dt_tensor_release(pieces[--count]);
        if (status != DT_OK) return undo(c, fresh, k, status);
        start += c->lengths[k];
    }
    return DT_OK;
}

static dt_status all_gather(const dt_collective *c) {
    dt_assembly how = joined(c);
    return dt_assemble(&how, c->n, c->in, c->n, c->out);
}

static dt_status reduce_scatter(const dt_collective *c) {
    dt_assembly how = reduced(c);
    return cut_and_assemble(c, &how, c->n);
}

static dt_status all_reduce(const dt_collective *c) {
    dt_assembly how = reduced(c);
    return dt_assemble(&how, c->n, c->in, c->n, c->out);
}

static dt_status all_to_all(const dt_collective *c) {
    dt_assembly how = joined(c);
    return cut_and_assemble(c, &how, c->n);
}

static dt_status broadcast(const dt_collective *c) {
    dt_assembly how = plain(c->in[0]);
    return dt_assemble(&how, 1, c->in, c->n, c->out);
}

static dt_status scatter(const dt_collective *c) {
    dt_assembly how = plain(c->in[0]);
    return cut_and_assemble(c, &how, 1);
}

static dt_status gather(const dt_collective *c) {
    dt_assembly how = joined(c);
    return dt_assemble(&how, c->n, c->in, 1, c->out);
}

static dt_status send_recv(const dt_collective *c) {
    bool fresh = c->out[0] == NULL;
    for (int k = 0; k < c->n; k++) {
        dt_status status = dt_assemble_copy(c->in[c->sources[k]], &c->out[k]);
        if (status != DT_OK) return undo(c, fresh, k, status);
    }
    return DT_OK;
}

const dt_collectives dt_collectives_local = {
    .name = "local",
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .all_reduce = all_reduce,
    .all_to_all = all_to_all,
    .broadcast = broadcast,
    .scatter = scatter,
    .gather = gather,
    .send_recv = send_recv,
    .exchange = dt_exchange,
};
