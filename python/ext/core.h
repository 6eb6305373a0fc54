/* core.h: what the files of the extension's core share among themselves: argument parsing, op
 * functions, tensor creation, indexing.  ext.h is what the asynchronous half may use too.
 *
 * I1: everything here runs with the GIL.
 */
#ifndef DT_PYTHON_CORE_H
#define DT_PYTHON_CORE_H

#include "python/ext/ext.h"
#include "runtime/assert.h"
#include "runtime/rules.h"

/* ---- args.c: schemas and arguments --------------------------------------------------------- */

typedef struct dt_py_param {
    char letter;   /* T S n i f b s D Z L d v, see runtime/op.h */
    bool nullable; /* takes None */
    bool keyword_only;
    bool has_default;
    dt_arg fallback;       /* the default, ready to use */
    dt_dims fallback_dims; /* what fallback.dims points at */
    PyObject *name;        /* interned */
    const char *text;      /* its UTF-8 */
    char default_text[16]; /* as the schema wrote it, for signatures */
} dt_py_param;

/* A compiled schema; lives as long as the process. */
typedef struct dt_py_spec {
    const dt_op *op;
    char name[32]; /* as the user knows it */
    int count;
    int positional;    /* how many may come by position */
    int required;      /* how many of those have no default */
    bool takes_out;    /* has an out= keyword */
    bool needs_tensor; /* its S parameters may not all be numbers */
    dt_py_param params[DT_ARGS_MAX];
} dt_py_spec;

extern dt_py_spec dt_py_specs[DT_OP_COUNT];

#define DT_PY_DIMS_MAX 3     /* parameters of kind D and Z in one schema */
#define DT_PY_LIST_INLINE 16 /* tensors of an L parameter that need no heap block */

/* Arguments of one call, and what keeps them alive.  Tensors are retained: a call may wait without
 * the GIL while another thread changes the handle. */
typedef struct dt_py_args {
    dt_op_call call;
    dt_dims dims[DT_PY_DIMS_MAX];
    int ndims;
    dt_tensor **list;
    int nlist;
    int list_capacity; /* of a heap block; 0: list_inline */
    dt_tensor *list_inline[DT_PY_LIST_INLINE];
    PyObject *out; /* borrowed; NULL or None: not given */
} dt_py_args;

/* Compiles every row of the registry. 0 or -1. */
int dt_py_specs_compile(void);

/* Fills args from a vectorcall. `name` is what errors call the function, `method` says that args[0]
 * is self. 0, or -1 with torch's exception; dt_py_args_fini in either case. */
int dt_py_args_parse(const dt_py_spec *spec, const char *name, bool method,
                     PyObject *const *objects, Py_ssize_t nobjects, PyObject *kwnames,
                     dt_py_args *args);
void dt_py_args_fini(dt_py_args *args);

/* One value as an int64 (bools refused, 0-dim integer tensors read). 1 yes, 0 not an int, -1 error.
 */
int dt_py_int_from_object(PyObject *object, int64_t *out);

/* An int or a sequence of ints into dims. 1 yes, 0 wrong type, -1 error set. */
int dt_py_dims_from_object(PyObject *object, dt_dims *out);

/* A size given as *args: ints, or one sequence of them. 0 or -1. */
int dt_py_dims_from_varargs(const char *function, PyObject *const *objects, Py_ssize_t count,
                            dt_dims *out);

/* The type of an object as error messages name it ("torch.Tensor", "int"); borrowed. */
const char *dt_py_type_name(PyObject *object);

/* ---- opfunc.c ------------------------------------------------------------------------------ */

typedef enum dt_py_op_mode {
    DT_PY_OP_FUNCTION,
    DT_PY_OP_METHOD,
    DT_PY_OP_INPLACE,      /* add_: writes into self */
    DT_PY_OP_INPLACE_VIEW, /* t_: gives self other metadata */
} dt_py_op_mode;

PyObject *dt_py_op_function_new(const dt_py_spec *spec, dt_py_op_mode mode);
int dt_py_opfunc_init(PyObject *module);

/* dt_dispatch; DT_E_PYTHON when a wait inside it ended with a Python exception. */
dt_status dt_py_dispatch(dt_op_call *call);
/* Dispatches and wraps the only output; NULL with an exception. */
PyObject *dt_py_dispatch_one(dt_op_call *call);

/* ---- ops.c --------------------------------------------------------------------------------- */

/* a <op> b for operators; NotImplemented for operands of other types. */
PyObject *dt_py_binary(dt_op_id id, PyObject *a, PyObject *b);
PyObject *dt_py_binary_inplace(dt_op_id id, PyObject *a, PyObject *b);
PyObject *dt_py_unary(dt_op_id id, PyObject *a);
/* The result where the fast path takes a call of these one or two operands; NULL otherwise, with an
 * exception only for a number that is out of range. */
PyObject *dt_py_fast_call(dt_op_id id, PyObject *const *objects, Py_ssize_t n);
/* How many operands such a call has, 1 or 2; 0: the fast path never takes this op. */
int dt_py_fast_operands(dt_op_id id);
/* The slots of Tensor that call ops. */
extern PyType_Slot dt_py_number_slots[];
PyObject *dt_py_richcompare(PyObject *a, PyObject *b, int operation);

/* ---- tensor.c ------------------------------------------------------------------------------ */

/* What a handle holds.  Of a deferred tensor only dtype, rank and storage may be looked at: who
 * reads sizes or hands the tensor to an op asks dt_py_tensor_known. */
static inline dt_tensor *dt_py_tensor_get(PyObject *o) { return ((dt_py_tensor *)o)->t; }
/* The same with all metadata known; a deferred tensor is waited for (wait.c), `what` names the
 * caller for warnings. NULL with an exception: its own failure, or the blocking policy's. */
dt_tensor *dt_py_tensor_settled(PyObject *o, const char *what);
#define DT_PY_AN_OPERATION "An operation on a result whose size is not known yet"
static inline dt_tensor *dt_py_tensor_known(PyObject *o, const char *what) {
    dt_tensor *t = dt_py_tensor_get(o);
    return DT_LIKELY(!dt_tensor_is_deferred(t)) ? t : dt_py_tensor_settled(o, what);
}
/* A view of self, remembering its base. Takes t. */
PyObject *dt_py_tensor_wrap_view(PyObject *self, dt_tensor *t);
/* As dt_py_tensor_wrap, of a subclass. */
PyObject *dt_py_tensor_wrap_as(PyTypeObject *type, dt_tensor *t);
/* Gives self other metadata; takes t. */
void dt_py_tensor_replace(PyObject *self, dt_tensor *t);
PyObject *dt_py_size_object(int rank, const int64_t *shape); /* dtorch.Size */
extern PyMethodDef dt_py_tensor_methods[];                   /* methods.c */
extern PyGetSetDef dt_py_tensor_getset[];

/* A nested list of numbers from ready bytes. */
PyObject *dt_py_tensor_tolist_ready(const dt_tensor *t);
/* The one element of t (waits), whose metadata is known; `what` names the caller for warnings. 0 or
 * -1. */
int dt_py_tensor_item(dt_tensor *t, const char *what, dt_scalar *out);

/* ---- index.c ------------------------------------------------------------------------------- */

PyObject *dt_py_tensor_getitem(PyObject *self, PyObject *index);
int dt_py_tensor_setitem(PyObject *self, PyObject *index, PyObject *value);
/* self[i] of the first dim; the caller has checked i. */
PyObject *dt_py_tensor_select0(PyObject *self, int64_t i);

/* ---- build.c: tensors from Python data ------------------------------------------------------ */

/* A new tensor from a number, nested sequences, a buffer, or a tensor (copied).  dtype may be
 * DT_DTYPE_NONE: torch's inference, with default_float for Python floats. */
dt_tensor *dt_py_tensor_from_data(PyObject *data, dt_dtype dtype, dt_dtype default_float);

/* A fresh copy of t in dtype; finished before this returns when t is external. */
dt_tensor *dt_py_tensor_clone(dt_tensor *t, dt_dtype dtype);
/* As dt_py_tensor_clone, in row-major order. */
dt_tensor *dt_py_tensor_dense(dt_tensor *t, dt_dtype dtype);
int dt_py_build_init(PyObject *module);

/* ---- interop.c, dlpack.c, buffer.c ----------------------------------------------------------- */

bool dt_py_is_torch_tensor(PyObject *object); /* without importing torch */
/* A tensor over torch's bytes. NULL with an exception. */
dt_tensor *dt_py_tensor_from_torch(PyObject *torch_tensor, bool frozen);
/* A tensor over the bytes of a numpy array. With copy: a fresh one with its values. */
dt_tensor *dt_py_tensor_from_buffer(PyObject *array, bool frozen, bool copy);
dt_tensor *dt_py_tensor_from_dlpack(PyObject *object, bool frozen);

/* Hands t's bytes to an outsider: from here on its storage is external; then waits for every
 * earlier task that reads or writes it. 0, or -1 with an exception (and not exported). Every
 * success is paired with one dt_py_export_end, which any thread may call and which releases the
 * reference to t that dt_py_export_begin took. */
int dt_py_export_begin(dt_tensor *t, const char *what);
void dt_py_export_end(dt_tensor *t);

/* A DLPack capsule over ready t; counted as an export until its consumer lets go. */
PyObject *dt_py_dlpack_capsule(dt_tensor *t, bool versioned, bool copied);
extern PyMethodDef dt_py_interop_methods[]; /* of Tensor */
extern PyMethodDef dt_py_dlpack_methods[];
/* An object with the buffer protocol over t; takes the export that the caller has begun. */
PyObject *dt_py_buffer_object(dt_tensor *t);
int dt_py_buffer_init(PyObject *module);

/* ---- dist.c: tensors on a mesh --------------------------------------------------------------- */

/* Index of the device whose part to_torch() and its kin give; -1 with an exception. */
int dt_py_dist_here(const dt_tensor *t);
/* The part of that device, t itself where it is on no mesh. Owned; NULL with an exception. */
dt_tensor *dt_py_tensor_local(dt_tensor *t);
/* The whole of t, whose metadata is known: t itself where it is on no mesh, else computed from the
 * parts (a part itself where each has it all). Waits for nothing. Owned; NULL with an exception. */
dt_tensor *dt_py_tensor_whole(dt_tensor *t);
dt_tensor *dt_py_tensor_whole_own(dt_tensor *t); /* ... and never a part itself */

/* ---- control.c ------------------------------------------------------------------------------- */

int dt_py_control_init(PyObject *module); /* threads, seeds, memory, configuration */

/* ---- mesh.c ---------------------------------------------------------------------------------- */

/* The mesh with that number; NULL with ValueError. */
const struct dt_mesh *dt_py_mesh_from_object(PyObject *object);
/* A sequence of codes, one for each mesh dim. 0, or -1 with an exception. */
int dt_py_placements_from_object(const struct dt_mesh *mesh, PyObject *object,
                                 struct dt_placement *out);

/* ---- dtype.c, errors.c ----------------------------------------------------------------------- */

/* As dt_py_dtype_from_object; None gives DT_DTYPE_NONE. */
int dt_py_dtype_or_none(PyObject *object, dt_dtype *out);
/* True when object is a dtype of ours (or its name); sets no error. */
bool dt_py_dtype_try(PyObject *object, dt_dtype *out);

/* Calls function `name` of module dtorch.`module` with the given object (NULL: none). */
PyObject *dt_py_call_helper(const char *module, const char *name, PyObject *argument);

#endif
