/* collectives.h: what a backend of communication between devices offers, as one table.
 *
 * A collective works on a group: devices of one mesh in a fixed order, each with its tensor.  All
 * of it is asynchronous: a call submits tasks and returns, and results are tensors like any other.
 * local.c is the backend for devices that share this process's memory.
 *
 * C1: results share no bytes with inputs, nor with each other.
 * C2: a reduction goes through the members in their order, halves in f32: every member gets the
 *     same bits, each time.
 */
#ifndef DT_COLLECTIVES_COLLECTIVES_H
#define DT_COLLECTIVES_COLLECTIVES_H

#include "collectives/exchange.h"
#include "runtime/mesh.h"
#include "runtime/tensor.h"

typedef struct dt_collective {
    const dt_mesh *mesh;
    int n;
    const int *members;     /* n indices into the mesh */
    dt_tensor *const *in;   /* by member; of broadcast and scatter only in[0], the root's */
    dt_tensor **out;        /* by member, as dt_assemble's; of gather only out[0], the root's */
    int join_dim;           /* along which what comes in is laid side by side */
    int cut_dim;            /* along which what goes out is cut ... */
    const int64_t *lengths; /* ... in n pieces of these lengths */
    const int *sources;     /* of send_recv: the member from whom each receives */
    dt_placement_kind reduction;
} dt_collective;

typedef struct dt_collectives {
    const char *name;
    dt_status (*all_gather)(const dt_collective *c);     /* join_dim */
    dt_status (*reduce_scatter)(const dt_collective *c); /* reduction, cut_dim */
    dt_status (*all_reduce)(const dt_collective *c);     /* reduction */
    dt_status (*all_to_all)(const dt_collective *c);     /* cut_dim, join_dim */
    dt_status (*broadcast)(const dt_collective *c);
    dt_status (*scatter)(const dt_collective *c); /* cut_dim */
    dt_status (*gather)(const dt_collective *c);  /* join_dim */
    dt_status (*send_recv)(const dt_collective *c);
    dt_status (*exchange)(int rank, const int64_t *shape, const dt_layout *from,
                          dt_tensor *const *parts, const dt_layout *to, dt_tensor **out);
} dt_collectives;

extern const dt_collectives dt_collectives_local;

#endif
