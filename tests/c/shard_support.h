/* shard_support.h: which placements an op is given on a mesh, asked without dispatch. */
#ifndef DT_TESTS_SHARD_SUPPORT_H
#define DT_TESTS_SHARD_SUPPORT_H

#include "tests/c/mesh_support.h"

typedef struct asked {
    dt_op_call call;
    dt_ask ask;
    dt_status status; /* of dt_shard_choose */
    dt_placement chosen[DT_CHOSEN_INLINE];
} asked;

/* Runs the row's rule on the metadata, as dispatch does, and chooses a way. */
static MESH_UNUSED void ask(asked *a, const dt_placement *wanted, const dt_mesh *mesh, dt_op_id id,
                            int nargs, const dt_arg *args) {
    op_prepare(&a->call, id, nargs, args);
    dt_rule_metadata_only++;
    ck_assert_ok(a->call.op->rule(&a->call));
    dt_rule_metadata_only--;
    ck_assert_ok(dt_ask_init(&a->ask, &a->call, mesh));
    a->status = dt_shard_choose(&a->ask, wanted, a->chosen);
}
#define ASK(a, mesh, id, ...) ask(a, NULL, mesh, id, ARGS(__VA_ARGS__))

/* Releases the tensors that were asked about, too. */
static MESH_UNUSED void forget(asked *a) {
    for (int i = 0; i < a->ask.nin; i++)
        if (a->ask.in[i].t != NULL) dt_tensor_release((dt_tensor *)(uintptr_t)a->ask.in[i].t);
    dt_ask_fini(&a->ask);
    dt_op_call_clear(&a->call);
}

static MESH_UNUSED void assert_placements(const dt_placement *p, int n, const char *text) {
    char buffer[256];
    ck_assert_str_eq(dt_placements_format(n, p, buffer, sizeof buffer), text);
}

/* What was chosen: for each mesh dim that of all inputs and outputs. */
static MESH_UNUSED void assert_chosen(const asked *a, const char *text) {
    ck_assert_ok(a->status);
    assert_placements(a->chosen, a->ask.mesh->rank * (a->ask.nin + a->ask.nout), text);
}

/* What output 0 was given; "refused" where there is no way. */
static MESH_UNUSED void assert_gives(const asked *a, const char *text) {
    dt_placement out[DT_MESH_RANK_MAX];
    if (a->status == DT_E_PLACEMENT) {
        ck_assert_str_eq("refused", text);
        return;
    }
    ck_assert_ok(a->status);
    for (int m = 0; m < a->ask.mesh->rank; m++)
        out[m] = a->chosen[m * (a->ask.nin + a->ask.nout) + a->ask.nin];
    assert_placements(out, a->ask.mesh->rank, text);
}

static MESH_UNUSED void chooses(const char *text, const dt_placement *wanted, const dt_mesh *mesh,
                                dt_op_id id, int nargs, const dt_arg *args) {
    asked a;
    ask(&a, wanted, mesh, id, nargs, args);
    assert_chosen(&a, text);
    forget(&a);
}
#define CHOOSES(text, mesh, id, ...) chooses(text, NULL, mesh, id, ARGS(__VA_ARGS__))

static MESH_UNUSED void gives(const char *text, const dt_mesh *mesh, dt_op_id id, int nargs,
                              const dt_arg *args) {
    asked a;
    ask(&a, NULL, mesh, id, nargs, args);
    assert_gives(&a, text);
    forget(&a);
}
#define GIVES(text, mesh, id, ...) gives(text, mesh, id, ARGS(__VA_ARGS__))

#endif
