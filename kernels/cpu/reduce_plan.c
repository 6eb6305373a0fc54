/* reduce_plan.c: see reduce_plan.h. */
#include "kernels/cpu/reduce_plan.h"

#include "kernels/cpu/cast.h"
#include "kernels/cpu/iter.h"

#define COLUMNS_MIN 8  /* outputs side by side that make columns worth it */
#define GATHER_RUN 512 /* elements gathered at a time before they are converted */

static void walk_add(dt__dims_walk *walk, int64_t shape, int64_t stride) {
    if (shape == 1) return;
    if (walk->rank > 0 && walk->strides[walk->rank - 1] == shape * stride) {
        walk->shape[walk->rank - 1] *= shape;
        walk->strides[walk->rank - 1] = stride;
        return;
    }
    walk->shape[walk->rank] = shape;
    walk->strides[walk->rank++] = stride;
}

static int64_t walk_finish(dt__dims_walk *walk) {
    int64_t count = 1;
    if (walk->rank == 0) {
        walk->shape[0] = 1;
        walk->strides[0] = 0;
        walk->rank = 1;
    }
    for (int d = 0; d < walk->rank; d++) count *= walk->shape[d];
    return count;
}

void dt__reduce_plan_init(dt__reduce_plan *plan, const dt_tensor *t, uint32_t mask) {
    int64_t size = (int64_t)dt_dtype_size((dt_dtype)t->dtype);
    plan->kept.rank = plan->reduced.rank = 0;
    for (int d = 0; d < t->rank; d++)
        walk_add(mask >> d & 1 ? &plan->reduced : &plan->kept, t->shape[d], t->strides[d] * size);
    plan->outputs = walk_finish(&plan->kept);
    plan->elements = walk_finish(&plan->reduced);
    plan->dtype = t->dtype;
    plan->data = dt_tensor_data(t);
    const dt__dims_walk *k = &plan->kept, *r = &plan->reduced;
    plan->line = k->shape[k->rank - 1];
    plan->columns = k->strides[k->rank - 1] == size && plan->line >= COLUMNS_MIN &&
                    r->strides[r->rank - 1] != size && plan->elements > 1;
}

int64_t dt__dims_walk_offset(const dt__dims_walk *walk, int64_t at) {
    int64_t offset = 0;
    for (int d = walk->rank - 1; d > 0; d--) {
        offset += at % walk->shape[d] * walk->strides[d];
        at /= walk->shape[d];
    }
    return offset + at * walk->strides[0];
}

const void *dt__reduce_plan_gather(const dt__reduce_plan *plan, const char *base, int64_t from,
                                   int64_t n, dt_dtype to, void *buffer) {
    const dt__dims_walk *walk = &plan->reduced;
    dt_dtype dtype = (dt_dtype)plan->dtype;
    int64_t size = (int64_t)dt_dtype_size(dtype), inner = walk->shape[walk->rank - 1];
    int64_t step = walk->strides[walk->rank - 1];
    if (walk->rank == 1 && step == size && dtype == to) return base + from * size;
    _Alignas(64) char raw[GATHER_RUN * 8];
    char *out = buffer;
    while (n > 0) {
        const char *at = base + dt__reduce_plan_offset(plan, from);
        int64_t run = inner - from % inner;
        if (run > n) run = n;
        if (run > GATHER_RUN) run = GATHER_RUN;
        if (step != size) {
            dt__gather(size, run, raw, at, step);
            at = raw;
        }
        dt_cast(run, out, to, at, dtype);
        out += run * (int64_t)dt_dtype_size(to);
        from += run;
        n -= run;
    }
    return buffer;
}
