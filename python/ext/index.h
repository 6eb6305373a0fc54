/* index.h: what index.c, assign.c and dist_index.c share: an index, walked through. */
#ifndef DT_PYTHON_INDEX_H
#define DT_PYTHON_INDEX_H

#include "python/ext/core.h"

/* What an index takes of one dim of the source: a place, or every step-th from start on. */
typedef struct dt_index_dim {
    int64_t start, step;
    bool single; /* an int: the view does not have the dim */
} dt_index_dim;

typedef struct dt_cursor {
    dt_tensor *source; /* retained */
    int in;            /* next dim of source */
    int out;           /* dims of the view so far */
    int position;      /* of the index in its tuple, for messages */
    bool copies;       /* a bool index: torch gives a copy */
    bool listed;       /* the advanced index was a list: it may go to any mesh */
    int64_t offset;
    dt_tensor *index; /* the advanced index, owned; NULL: none */
    int index_at;     /* the view's dim that it indexes; a mask: the first of index->rank */
    int index_in;     /* the source's dim that it stands at, for messages */
    /* Of the view: sizes, strides, and the source's dim that each comes from, -1: a new one. */
    int64_t shape[DT_RANK_MAX], strides[DT_RANK_MAX];
    int from[DT_RANK_MAX];
    dt_index_dim at[DT_RANK_MAX]; /* of the source's dims */
} dt_cursor;

/* What is assigned: a number where t is NULL. */
typedef struct dt_assigned {
    dt_scalar s;
    dt_tensor *t;               /* broadcast to the view */
    int64_t start[DT_RANK_MAX]; /* by dims of the view: where in t, spread to it, the view begins */
} dt_assigned;

/* index.c. walk: 0, or -1 with an exception; dt__index_fini in any case. The others: owned, NULL
 * with an exception. */
int dt__index_walk(dt_cursor *c, PyObject *self, PyObject *index);
void dt__index_fini(dt_cursor *c);
dt_tensor *dt__index_view(const dt_cursor *c);
dt_tensor *dt__index_reshaped(dt_tensor *t, const dt_dims *shape);
/* The index with negative entries counted from the end; waits for it, unless it is on a mesh. */
dt_tensor *dt__index_wrapped(dt_tensor *index, int64_t size, int dim);

/* assign.c: writes a number into a tensor. 0 or -1. */
int dt__index_fill(dt_tensor *view, dt_scalar s);

/* dist_index.c: the view of a source on a mesh, by ops. Owned; NULL with an exception. */
dt_tensor *dt__dist_view(const dt_cursor *c);
/* ... source[...] = v: what each device holds of the view is written there. v->t may be an ordinary
 * tensor. 0, or -1 with nothing written. */
int dt__dist_assign(const dt_cursor *c, const dt_assigned *v);
/* t, an ordinary tensor, replicated on the mesh of `on`, sharing its bytes. Owned. */
dt_tensor *dt__dist_replicate(dt_tensor *t, const dt_tensor *on);
/* index + size * (index < 0), of an index on a mesh. Owned. */
dt_tensor *dt__dist_wrapped_index(dt_tensor *index, int64_t size);

#endif
