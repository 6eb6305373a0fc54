/* shard.h: how an op runs on a mesh without communication.
 *
 * An op's sharding function lists *ways*: for one mesh dim, which placement each input must have
 * and which one each output then gets, so that running the op on every device's parts gives every
 * device's part of the result.  "All Replicate" is always a way and need not be listed.  A way is
 * about one mesh dim; dt_shard_choose picks one for each mesh dim, and may change inputs where that
 * moves nothing:
 *
 *   Replicate -> Shard      the device takes its part of what it has
 *   Replicate -> Partial    sum, product: coordinate 0 keeps the value, others have -0.0 (or 1);
 *                           avg, min, max: all keep it
 *
 * Inputs are the tensors and numbers of the schema in order (lists item by item; None, which an
 * optional argument may be, is no input).  A number, a factor such as alpha too, counts as a 0-dim
 * tensor that is Replicate.
 *
 *   void dt_shard_softmax(const dt_ask *ask, dt_ways *ways) {
 *       const dt_tensor *x = ask->in[0].t;
 *       int dim = ...;
 *       for (int d = 0; d < x->rank; d++)
 *           if (d != dim) dt_way_set(ask, dt_way(ways), dt_shard(d), dt_shard(d));
 *   }
 *
 * What the arguments of the call say of the whole (a size, an offset, a count) the op's rule looks
 * up in call->spot when it runs on one device's parts; spot is NULL elsewhere.
 *
 * W1: a way is right for every size, uneven and empty parts included, or its `joint` check refuses.
 * W2: the ways depend on shapes and arguments, never on values, mesh sizes or device counts.
 */
#ifndef DT_RUNTIME_SHARD_H
#define DT_RUNTIME_SHARD_H

#include "runtime/dist.h"
#include "runtime/mesh.h"
#include "runtime/op.h"

typedef struct dt_shard_input {
    const dt_tensor *t; /* global metadata; NULL: a number */
    int16_t arg;        /* index into call->args */
    int16_t item;       /* of a list argument; -1: not one */
} dt_shard_input;

#define DT_ASK_INPUTS_INLINE 16

/* The question: one call, with the row's rule run on the global metadata. */
typedef struct dt_ask {
    const dt_op_call *call; /* args, outs and call.params as the rule has left them */
    const dt_mesh *mesh;
    int nin, nout;
    dt_shard_input *in;
    dt_tensor *const *out; /* global metadata: call->outs */
    dt_shard_input in_inline[DT_ASK_INPUTS_INLINE];
    size_t in_bytes; /* of a heap block, 0: inline */
} dt_ask;

/* The input that came from args[arg], or -1: None, or not given. */
int dt_ask_find(const dt_ask *ask, int arg);

#define DT_WAYS_INLINE 1024

/* `chosen` as in dt_spot. False, with text set by dt_fail(DT_E_PLACEMENT, ...): the combination of
 * ways of several mesh dims, or the sizes, are not legal. Other combinations are tried then. */
typedef dt_status (*dt_ways_joint)(const dt_ask *ask, const dt_placement *chosen);

/* The answer. Each row has ask->nin + ask->nout placements. */
typedef struct dt_ways {
    int width, count, capacity;
    dt_placement *rows;
    dt_ways_joint joint; /* NULL: any combination will do */
    /* The result shares bytes with input 0 (a view), or is input 0 (a write to a part of it): that
     * one is taken as it is placed, since the copies of a Replicate one would differ afterwards. */
    bool shares;
    bool no_memory;
    dt_placement inline_rows[DT_WAYS_INLINE];
} dt_ways;

/* Of an input whose values the op does not look at: whatever it has. In the placements that were
 * chosen it is that. */
static inline dt_placement dt_any(void) { return (dt_placement){UINT8_MAX, 0}; }

/* A new row, all Replicate. Never NULL. */
dt_placement *dt_way(dt_ways *ways);
/* Sets all inputs that are tensors of rank above 0 to `in` and all outputs to `out`. */
void dt_way_set(const dt_ask *ask, dt_placement *way, dt_placement in, dt_placement out);
/* Cuts input i along what is dim `dim` of output 0, if it has that dim (counted from the last) and
 * does not broadcast it. */
void dt_way_cut(const dt_ask *ask, dt_placement *way, int i, int dim);
static inline dt_placement *dt_way_out(const dt_ask *ask, dt_placement *way, int k) {
    return way + ask->nin + k;
}

/* Where one device stands in a call. placements of input i along mesh dim m: chosen[m * (nin +
 * nout) + i]; outputs follow the inputs. */
typedef struct dt_spot {
    const dt_ask *ask;
    const dt_placement *chosen;
    int index; /* of the device in the mesh */
} dt_spot;

/* The tensor that the user passed as that argument; call->args has this device's part of it. */
const dt_tensor *dt_spot_whole(const dt_op_call *call, int arg);
/* The box that this device holds of input i or output k. */
void dt_spot_in(const dt_spot *spot, int i, dt_box *box);
void dt_spot_out(const dt_spot *spot, int k, dt_box *box);
/* The shape of this device's part of output k, as rules take shapes. */
dt_dims dt_spot_out_dims(const dt_spot *spot, int k);

/* Collects the inputs of a call whose rule has run. dt_ask_fini in any case. */
dt_status dt_ask_init(dt_ask *ask, const dt_op_call *call, const dt_mesh *mesh) DT_MUST_CHECK;
void dt_ask_fini(dt_ask *ask);

#define DT_CHOSEN_INLINE 192 /* placements, for callers' own buffers */

/* Asks the op, and chooses a way for each mesh dim: the one that changes fewest inputs, of those
 * the first listed; others when these do not go together. `chosen` has room for mesh->rank * (nin +
 * nout). wanted: the placements that output 0 must get (in-place, out=), or NULL. DT_E_PLACEMENT
 * with the whole story as text. */
dt_status dt_shard_choose(const dt_ask *ask, const dt_placement *wanted, dt_placement *chosen)
    DT_MUST_CHECK;

/* The placement that input i has along mesh dim m: that of its tensor, Replicate for others. */
dt_placement dt_ask_placement(const dt_ask *ask, int i, int mesh_dim);

/* The inputs' placements that would make the call legal and move least: as `chosen`. False: there
 * are none (an output that must have other placements), or no memory to look. */
bool dt_shard_nearest(const dt_ask *ask, const dt_placement *wanted, dt_placement *nearest);

/* Whether a reduction of that kind before a cast gives what it gives after it, wrapped sums of
 * narrow integers aside. */
bool dt_cast_commutes(dt_placement_kind kind, dt_dtype from, dt_dtype to);

/* ---- ways that many ops share --------------------------------------------------------------- */

/* Element-wise: every dim of output 0 may be cut, in all inputs that have it; other outputs are
 * shaped alike. */
void dt_ways_elementwise(const dt_ask *ask, dt_ways *ways);
/* Input i with that placement, the other inputs Replicate, all outputs `out`. */
void dt_ways_one(const dt_ask *ask, dt_ways *ways, int i, dt_placement in, dt_placement out);
/* All inputs with that placement, factors such as alpha included; all outputs `out`. */
void dt_ways_all(const dt_ask *ask, dt_ways *ways, dt_placement in, dt_placement out);

#endif
