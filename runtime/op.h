/* op.h: the registry. One row of ops.def makes an op.
 *
 * OP(name, rule, kernel, dtypes, api, schema, shard)
 *   name    enumerator suffix (DT_OP_name) and, unless it ends in "__x" (an overload), the
 *           Python name
 *   rule    dt_infer_<rule>(dt_op_call *): checks the arguments, creates outs, fills call
 *   kernel  K(x): the device's dt_kernel_x, or NONE (views, composites)
 *   dtypes  which dtype rule the shape rule applies (dt_dtype_rule), see below
 *   api     any of F (function), M (method), I (in-place method name_), O (takes out=), V (view)
 *   schema  the Python parameters: "T input, S other, *, n alpha=1"
 *           T tensor   S tensor or number   n number   i int   f float   b bool   s str
 *           D dims: int or sequence of ints   Z size: ints or one sequence (varargs when last
 *           positional)   L sequence of tensors   d dtype   v device (only the CPU now)
 *           a "?" after the letter also takes None; "=x" gives a default (an int, a float, True,
 *           False, None or a quoted 'string'); "*" starts keyword-only parameters
 *   shard   dt_shard_<shard>(const dt_ask *, dt_ways *): how the op runs on a mesh without
 *           communication, see shard.h
 *
 * From the rows come the enum, the table dt_op_table, the Python functions, methods and in-place
 * methods, the type stub, and the list that tests and benches walk.
 */
#ifndef DT_RUNTIME_OP_H
#define DT_RUNTIME_OP_H

#include "runtime/dtype.h"
#include "runtime/kernel.h"
#include "runtime/shape.h"
#include "runtime/status.h"
#include "runtime/tensor.h"

typedef enum dt_op_id {
#define OP(name, rule, kernel, dtypes, api, schema, shard) DT_OP_##name,
#include "runtime/ops.def"
#undef OP
    DT_OP_COUNT,
} dt_op_id;

typedef enum dt_dtype_rule {
    DT_DTYPES_NONE,      /* the rule function decides */
    DT_DTYPES_SAME,      /* output = input */
    DT_DTYPES_PROMOTE,   /* torch.result_type of the inputs */
    DT_DTYPES_FLOAT,     /* as PROMOTE; integers and bools become the default float (float32) */
    DT_DTYPES_COMPARE,   /* computed in the promoted type, output bool */
    DT_DTYPES_BITWISE,   /* as PROMOTE; floats are a TypeError-like NotImplemented as in torch */
    DT_DTYPES_NOBOOL,    /* as PROMOTE; bool is refused as torch does (neg, sub) */
    DT_DTYPES_NUMBER,    /* as PROMOTE; bool is not implemented (abs, floor, remainder) */
    DT_DTYPES_SQUARE,    /* SAME, but bool becomes int64 (square is pow(x, 2)) */
    DT_DTYPES_SHIFT,     /* BITWISE without bool */
    DT_DTYPES_FLOATONLY, /* SAME; integers are refused as torch does */
} dt_dtype_rule;

typedef enum dt_arg_kind {
    DT_ARG_NONE,
    DT_ARG_TENSOR,
    DT_ARG_SCALAR, /* n, S with a number, f */
    DT_ARG_INT,
    DT_ARG_BOOL,
    DT_ARG_STR,
    DT_ARG_DIMS,
    DT_ARG_TENSORS,
    DT_ARG_DTYPE,
} dt_arg_kind;

typedef struct dt_arg {
    dt_arg_kind kind;
    union {
        dt_tensor *t; /* borrowed */
        dt_scalar s;
        int64_t i; /* INT and BOOL */
        const char *str;
        const dt_dims *dims; /* borrowed */
        struct {
            dt_tensor *const *v; /* borrowed */
            int n;
        } list;
        dt_dtype dtype;
    };
} dt_arg;

#define DT_ARGS_MAX 14
#define DT_OUTS_MAX                                                                                \
    DT_RANK_MAX /* nonzero as a tuple; split and unbind are composites in Python                   \
                 */

typedef struct dt_op_call dt_op_call;
struct dt_ask;
struct dt_ways;
struct dt_spot;
struct dt_mesh;
struct dt_placement;

typedef struct dt_op {
    const char *full_name; /* the row's; dt_op_display_name gives the user's */
    dt_status (*rule)(dt_op_call *call);
    void (*shard)(const struct dt_ask *ask, struct dt_ways *ways);
    const char *schema;
    uint16_t id;     /* dt_op_id */
    uint8_t dtypes;  /* dt_dtype_rule */
    const char *api; /* the row's letters; ask dt_op_has */
} dt_op;

static inline bool dt_op_has(const dt_op *op, char letter) {
    for (const char *c = op->api; *c; c++)
        if (*c == letter) return true;
    return false;
}

extern const dt_op dt_op_table[DT_OP_COUNT];

/* The Python name: the row's without an overload suffix ("max__dim" -> "max"). Returns buffer. */
const char *dt_op_display_name(const dt_op *op, char *buffer, size_t size);

/* torch.get_default_dtype / set_default_dtype, for dtorch alone. Client lock. */
dt_dtype dt_default_dtype(void);
dt_status dt_default_dtype_set(dt_dtype dtype) DT_MUST_CHECK;

/* One call of an op, from arguments to outputs. */
struct dt_op_call {
    const dt_op *op;
    int nargs;
    dt_arg args[DT_ARGS_MAX]; /* in the order of the schema, defaults filled in */
    /* In-place or out=: where the result goes; borrowed; NULL: fresh. The rule ignores it: dispatch
     * checks shape, dtype and overlap and redirects the write. */
    dt_tensor *target;
    bool inplace; /* target is args[0] (add_), not out= */
    /* Where the result of an op without tensors goes (zeros, arange); NULL: to the CPU. placements:
     * mesh->rank of them. Borrowed. */
    const struct dt_mesh *mesh;
    const struct dt_placement *placements;
    /* Set by dispatch while it runs one device's part of a call on a mesh: rules whose arguments
     * speak of the whole (sizes, offsets, counts) ask it (shard.h). */
    const struct dt_spot *spot;

    /* Filled in by the rule. */
    int nout;
    dt_tensor *outs[DT_OUTS_MAX]; /* owned by whoever called dispatch once it succeeds */
    dt_call call;                 /* inputs (retained), immediates, params. NULL output operands are
                                     filled from outs[] by dispatch, call.kernel from call.op */
    bool done;                    /* the rule has produced outs completely (view, composite) */
    bool replace_target;          /* set by dispatch: out= had another shape, the handle of out must
                                     take outs[0] over (torch resizes there) */
};

#endif
