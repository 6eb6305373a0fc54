/* kernel.c: building, moving and running calls.
 *
 * dt_call_run_inline is the inline lane and the reference for the pool: it takes the outputs'
 * memory and the scratch, runs the parts one after the other, then finish.
 *
 * I1: operands points at operands_inline exactly when nout + nin <= DT_CALL_OPERANDS_INLINE.
 * I2: a part that fails ends the call: later parts and finish do not run.
 */
#include "runtime/kernel.h"

#include <string.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"

#define SCRATCH_ON_STACK 4096

static size_t operand_count(const dt_call *call) { return (size_t)call->nout + call->nin; }

dt_status dt_call_init(dt_call *call, int nout, int nin) {
    DT_ASSERT(nout >= 0 && nout <= UINT8_MAX && nin >= 0 && nin <= UINT16_MAX);
    memset(call, 0, sizeof *call);
    call->nout = (uint8_t)nout;
    call->nin = (uint16_t)nin;
    call->operands = call->operands_inline;
    size_t count = operand_count(call);
    if (DT_UNLIKELY(count > DT_CALL_OPERANDS_INLINE)) {
        dt_tensor **heap = dt_alloc_zeroed(count * sizeof *heap);
        if (heap == NULL) {
            call->nout = 0;
            call->nin = 0; /* so that dt_call_fini of what failed is harmless */
            return dt_fail(DT_E_NO_MEMORY, "out of memory: a call of %zu operands", count);
        }
        call->operands = heap;
    }
    return DT_OK;
}

void dt_call_fini(dt_call *call) {
    size_t count = operand_count(call);
    for (size_t k = 0; k < count; k++)
        if (call->operands[k] != NULL) dt_tensor_release(call->operands[k]);
    if (count > DT_CALL_OPERANDS_INLINE) dt_free(call->operands, count * sizeof *call->operands);
    if (call->params.owned != NULL) dt_free(call->params.owned, call->params.owned_size);
    call->params.owned = NULL;
    call->operands = call->operands_inline;
    call->nout = 0;
    call->nin = 0;
}

void dt_call_move(dt_call *to, dt_call *from) {
    DT_ASSERT(to != from);
    memcpy(to, from, sizeof *to);
    if (from->operands == from->operands_inline) to->operands = to->operands_inline;
    from->operands = from->operands_inline;
    from->nout = 0;
    from->nin = 0;
    from->params.owned = NULL;
}

dt_status dt_call_materialize(const dt_call *call) {
    for (int k = 0; k < call->nout; k++)
        if (call->operands[k] != NULL) DT_TRY(dt_storage_materialize(call->operands[k]->storage));
    return DT_OK;
}

static dt_status run_parts(const dt_call *call, dt_part *part) {
    const dt_kernel *kernel = call->kernel;
    for (part->index = 0; part->index < part->count; part->index++) DT_TRY(kernel->run(call, part));
    if (kernel->finish == NULL) return DT_OK;
    part->index = 0;
    return kernel->finish(call, part);
}

/* Its own function, so that calls without scratch do not pay for the buffer's stack pages. */
static __attribute__((noinline)) dt_status run_with_scratch(const dt_call *call, dt_part *part) {
    _Alignas(64) char buffer[SCRATCH_ON_STACK];
    if (part->scratch_bytes <= sizeof buffer) {
        part->scratch = buffer;
        return run_parts(call, part);
    }
    part->scratch = dt_bytes_alloc(part->scratch_bytes);
    if (part->scratch == NULL)
        return dt_fail(DT_E_NO_MEMORY, "out of memory: %zu bytes of scratch for %s",
                       part->scratch_bytes, call->kernel->name);
    dt_status status = run_parts(call, part);
    dt_bytes_free(part->scratch, part->scratch_bytes);
    return status;
}

dt_status dt_call_run_inline(const dt_call *call) {
    const dt_kernel *kernel = call->kernel;
    DT_TRY(dt_call_materialize(call));
    dt_part part = {.index = 0, .count = 1, .scratch = NULL, .scratch_bytes = 0};
    if (kernel->parts != NULL) part.count = kernel->parts(call, 1);
    DT_ASSERT(part.count >= 1);
    if (kernel->scratch_bytes != NULL) part.scratch_bytes = kernel->scratch_bytes(call, part.count);
    return part.scratch_bytes == 0 ? run_parts(call, &part) : run_with_scratch(call, &part);
}
