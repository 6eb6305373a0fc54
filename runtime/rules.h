/* rules.h: what the rule functions of the registry share.
 *
 * A rule turns arguments into metadata: it checks them (every error that metadata can show is
 * raised here, at the user's line), creates outs[], and fills call with inputs, immediates and
 * params. Rules never look at values and never communicate; a composite calls other ops through
 * dt_rule_invoke, which dispatch installs.
 *
 * I1: a rule that fails leaves call and outs in a state that dt_op_call_clear can clean up.
 */
#ifndef DT_RUNTIME_RULES_H
#define DT_RUNTIME_RULES_H

#include "runtime/op.h"

/* Accumulates torch.result_type over operands: dims beat 0-dim tensors beat Python numbers. */
typedef struct dt_promotion {
    dt_dtype dim, zero, wrapped;
} dt_promotion;
#define DT_PROMOTION_INIT                                                                          \
    { DT_DTYPE_NONE, DT_DTYPE_NONE, DT_DTYPE_NONE }
void dt_promotion_add_tensor(dt_promotion *p, const dt_tensor *t);
void dt_promotion_add_scalar(dt_promotion *p, dt_scalar s);
dt_dtype dt_promotion_result(const dt_promotion *p);

/* One element-wise call over `n` operands (args of kind TENSOR or SCALAR): broadcasts, creates the
 * output in out_dtype with torch's stride order, and fills call. */
dt_status dt_rule_elementwise(dt_op_call *c, const dt_arg *const *operands, int n, dt_dtype compute,
                              dt_dtype out_dtype) DT_MUST_CHECK;

/* The dims of `shape` from the outermost in memory to the innermost, as torch's TensorIterator
 * sorts them: by insertion, the first operand that tells two dims apart decides, by its strides and
 * then by size; a stride of 0 tells nothing.  Operands are of that shape, or NULL. */
void dt_rule_dims_in_memory(const dt_dims *shape, dt_tensor *const *operands, int n, int *order);

/* t seen as `shape` (broadcast by stride 0); owned. */
dt_status dt_rule_expand(dt_tensor *t, const dt_dims *shape, dt_tensor **out) DT_MUST_CHECK;

/* The bit mask of reduced dims for `dims` (NULL or empty: all), and the output's shape. */
dt_status dt_rule_reduced_dims(const dt_tensor *t, const dt_dims *dims, bool keepdim,
                               uint32_t *mask, dt_dims *shape) DT_MUST_CHECK;

/* The C++ name that torch says in some of its messages: "float", "c10::Half". */
const char *dt_rule_c_name(int dtype);

/* Sets call up for nout outputs (operands NULL: taken from outs[]) and the given inputs, which are
 * retained. */
dt_status dt_rule_call(dt_op_call *c, int nout, int nin, dt_tensor *const *inputs) DT_MUST_CHECK;

/* A fresh contiguous output number c->nout. */
dt_status dt_rule_out(dt_op_call *c, dt_dtype dtype, const dt_dims *shape) DT_MUST_CHECK;

/* The same, deferred: the entry of shape that is -1 becomes known when the kernel runs. */
dt_status dt_rule_out_deferred(dt_op_call *c, dt_dtype dtype, const dt_dims *shape, bool columns)
    DT_MUST_CHECK;

/* Finishes a view: outs[0] over base's storage. */
dt_status dt_rule_view(dt_op_call *c, const dt_tensor *base, const dt_dims *shape,
                       const int64_t *strides, int64_t offset) DT_MUST_CHECK;

/* Runs another op from within a rule; set by dispatch. */
extern dt_status (*dt_rule_invoke)(dt_op_call *call);

/* While not 0, rules are run for the metadata of tensors on a mesh alone: what they invoke runs no
 * kernel, and they take no memory. Client lock. */
extern int dt_rule_metadata_only;

/* out = op(t converted to dtype) helpers for composites; owned results. */
dt_status dt_rule_to_dtype(dt_tensor *t, dt_dtype dtype, dt_tensor **out) DT_MUST_CHECK;
dt_status dt_rule_make_contiguous(dt_tensor *t, dt_tensor **out) DT_MUST_CHECK;
/* reshape: a view where strides allow, else a contiguous copy. */
dt_status dt_rule_reshape_to(dt_tensor *t, const dt_dims *shape, dt_tensor **out) DT_MUST_CHECK;

/* Releases outs and call of an unfinished call. */
void dt_op_call_clear(dt_op_call *call);
void dt_op_call_init(dt_op_call *call, dt_op_id id);

/* dtorch's generator: the Philox key and the next free counter. Client lock. */
typedef struct dt_generator {
    uint64_t seed;
    uint64_t offset;
} dt_generator;
extern dt_generator dt_default_generator;

static inline dt_dims dt_tensor_dims(const dt_tensor *t) {
    dt_dims d;
    d.rank = t->rank;
    for (int i = 0; i < t->rank; i++) d.v[i] = t->shape[i];
    return d;
}

static inline const dt_tensor *dt_arg_tensor(const dt_op_call *c, int k) { return c->args[k].t; }
static inline bool dt_arg_given(const dt_op_call *c, int k) {
    return k < c->nargs && c->args[k].kind != DT_ARG_NONE;
}

#endif
