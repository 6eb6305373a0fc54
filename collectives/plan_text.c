/* plan_text.c: a plan as text, for people. */
#include <stdarg.h>
#include <stdio.h>

#include "collectives/plan.h"

typedef struct text {
    char *to;
    int size, used; /* used counts on beyond size */
} text;

static void add(text *t, const char *format, ...) DT_PRINTF(2, 3);
static void add(text *t, const char *format, ...) {
    va_list args;
    int left = t->used < t->size ? t->size - t->used : 0;
    va_start(args, format);
    int n = vsnprintf(left > 0 ? t->to + t->used : NULL, (size_t)left, format, args);
    va_end(args);
    t->used += n < 0 ? 0 : n;
}

const char *dt_step_name(dt_step_kind kind) {
    static const char *const names[DT_STEP_KINDS] = {
        [DT_STEP_CUT] = "cut",
        [DT_STEP_KEEP_ONCE] = "keep_once",
        [DT_STEP_PAD] = "pad",
        [DT_STEP_ALL_GATHER] = "all_gather",
        [DT_STEP_REDUCE_SCATTER] = "reduce_scatter",
        [DT_STEP_ALL_REDUCE] = "all_reduce",
        [DT_STEP_ALL_TO_ALL] = "all_to_all",
        [DT_STEP_EXCHANGE] = "exchange",
        [DT_STEP_BROADCAST] = "broadcast",
        [DT_STEP_SCATTER] = "scatter",
        [DT_STEP_GATHER] = "gather",
    };
    return names[kind];
}

static void add_layout(text *t, const dt_layout *l) {
    char mesh[64], placements[160];
    add(t, "%s %s", dt_mesh_format(l->mesh, mesh, sizeof mesh),
        dt_placements_format(l->mesh->rank, l->placements, placements, sizeof placements));
}

/* "0 (dp), 1 (tp)" */
static void add_mesh_dims(text *t, const dt_mesh *mesh, uint32_t mask) {
    const char *comma = "";
    for (int m = 0; m < mesh->rank; m++) {
        if (!(mask >> m & 1)) continue;
        add(t, "%s%d", comma, m);
        if (mesh->named) add(t, " (%s)", mesh->names[m]);
        comma = ", ";
    }
}

static int group_size(const dt_step *step) {
    int n = 1;
    for (int m = 0; m < step->mesh->rank; m++)
        if (step->mesh_dims >> m & 1) n *= step->mesh->shape[m];
    return n;
}

static void add_step(text *t, int number, const dt_step *step) {
    char placements[160];
    add(t, "\n  %d. %s", number, dt_step_name((dt_step_kind)step->kind));
    if (step->mesh_dims != 0) {
        add(t, " along mesh dim ");
        add_mesh_dims(t, step->mesh, step->mesh_dims);
        if (dt_step_moves((dt_step_kind)step->kind)) add(t, ", groups of %d", group_size(step));
    }
    add(t, " -> %s: ",
        dt_placements_format(step->mesh->rank, step->placements, placements, sizeof placements));
    if (dt_step_moves((dt_step_kind)step->kind))
        add(t, "%lld bytes", (long long)step->bytes);
    else
        add(t, "local");
}

int dt_plan_format(const dt_plan *plan, char *buffer, int size) {
    char shape[200];
    text t = {buffer, size, 0};
    if (size > 0) buffer[0] = 0;
    add(&t, "redistribute %s %s: ", dt_dtype_table[plan->dtype].name,
        dt_shape_format(plan->rank, plan->shape, shape, sizeof shape));
    add_layout(&t, &plan->from);
    add(&t, " -> ");
    add_layout(&t, &plan->to);
    if (plan->count == 0) add(&t, "\n  nothing to do");
    for (int k = 0; k < plan->count; k++) add_step(&t, k + 1, &plan->steps[k]);
    add(&t, "\nbytes received by a device at most: %lld; memory in between: %lld bytes",
        (long long)plan->bytes, (long long)plan->memory_bytes);
    if (plan->pieces > 1) add(&t, ", in %d pieces along dim %d", plan->pieces, plan->piece_dim);
    return t.used;
}
