/* ext.h: what the files of the extension share: module state, the Tensor object, and helpers.
 *
 * The module is single-interpreter (multi-phase init says so), hence one static pointer to its
 * state, dt_state, set while the module lives.
 *
 * I1: everything here runs with the GIL unless its comment says otherwise.
 * I2: a Python object never owns a C-thread-visible reference to another Python object, except
 *     through a completion node (await.c), which is buried through the graveyard.
 */
#ifndef DT_PYTHON_EXT_H
#define DT_PYTHON_EXT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "futures/dispatch.h"
#include "futures/future.h"
#include "runtime/op.h"
#include "runtime/status.h"
#include "runtime/tensor.h"

typedef struct dt_py_tensor {
    PyObject_HEAD dt_tensor *t; /* owned; replaced by ops that change metadata in place */
    PyObject *weakrefs;
    PyObject *grad; /* NULL: None. Room for autograd: */
    PyObject *grad_fn;
    PyObject *base; /* the tensor that this one is a view of, NULL */
    PyObject *dict; /* attributes that users set, NULL until the first one */
    bool requires_grad;
    bool is_leaf;
} dt_py_tensor;

typedef struct dt_module_state {
    PyTypeObject *tensor_type;
    PyTypeObject *op_function_type; /* opfunc.c: a vectorcall object for a registry row */
    PyTypeObject *buffer_type;      /* buffer.c: a tensor's bytes by the buffer protocol */
    PyTypeObject *size_type;        /* dtorch.Size, set by the package */
    PyTypeObject *await_type;       /* await.c: what Tensor.__await__ returns */
    PyTypeObject *future_type;      /* future.c: TensorFuture */
    PyTypeObject *bridge_type;      /* bridge.c: one asyncio loop's completion queue */
    PyObject *out_of_memory_error;  /* dtorch.OutOfMemoryError(MemoryError? RuntimeError) */
    PyObject *queue_full_error;
    PyObject *placement_error;
    PyObject *blocking_warning;       /* dtorch.BlockingWarning */
    PyObject *dtypes[DT_DTYPE_COUNT]; /* torch's (or stand-ins), filled when first asked */
    PyObject *bridges;                /* WeakKeyDictionary: loop -> bridge */
    PyObject *get_running_loop;       /* asyncio.events._get_running_loop */
    PyObject *cancelled_error;        /* asyncio.CancelledError */
    PyObject *python_module;          /* the package dtorch, for helpers written in Python */
} dt_module_state;

extern dt_module_state *dt_state;

static inline bool dt_py_tensor_check(PyObject *o) {
    return Py_TYPE(o) == dt_state->tensor_type || PyObject_TypeCheck(o, dt_state->tensor_type);
}

/* tensor.c: wraps t (takes the reference, also on failure). */
PyObject *dt_py_tensor_wrap(dt_tensor *t);

/* errors.c: turns a status (with this thread's error text) into the Python exception; NULL. */
PyObject *dt_py_raise(dt_status status);
/* A new exception object for a captured error (each awaiter gets its own); NULL with one set. The
 * error counts as seen. */
PyObject *dt_py_error_object(const dt_error *error);
/* From here on failures that nobody saw are forgotten in silence: the interpreter shuts down. */
void dt_py_errors_fall_silent(void);

/* site.c: the user's place in the code: the innermost frame that is not dtorch's own. */
typedef struct dt_py_caller {
    PyCodeObject *code; /* all borrowed: the frame is running */
    PyObject *globals;
    int offset; /* of the instruction, as PyCode_Addr2Line takes it */
} dt_py_caller;
bool dt_py_caller_find(dt_py_caller *out); /* false: no Python code of a user runs here */
/* The same as a number to keep, 0: unknown. Runs no Python code, sets no exception. */
uint32_t dt_py_site(void);
/* What such a number means, a new reference; NULL without an exception: it is not known any more.
 */
PyCodeObject *dt_py_site_code(uint32_t site, int *line);
PyObject *dt_py_code_name(PyCodeObject *code); /* qualified where Python knows it; borrowed */

/* wait.c: blocks until `future` is complete (NULL: returns at once), without the GIL,
 * interruptible by signals; warns or raises under a running loop as the blocking policy says,
 * naming `what` ("Tensor.item()"). Returns 0, or -1 with an exception: KeyboardInterrupt, the
 * policy's error; a failed future is NOT raised here. timeout_s < 0: for ever; 1 on timeout. */
int dt_py_wait(dt_future *future, double timeout_s, const char *what);
/* Waits until t's bytes are final, and raises its failure. 0 or -1. */
int dt_py_tensor_wait(dt_tensor *t, const char *what);

/* await.c */
PyObject *dt_py_tensor_await(PyObject *self); /* am_await slot of Tensor */
PyObject *dt_py_to_torch_async(PyObject *self, PyObject *ignored);
PyObject *dt_py_gather(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
int dt_py_await_init(PyObject *module); /* adds types and functions; each file has one */
int dt_py_future_init(PyObject *module);
int dt_py_bridge_init(PyObject *module);
int dt_py_wait_init(PyObject *module);
int dt_py_site_init(PyObject *module);
int dt_py_note_init(PyObject *module);
int dt_py_limit_init(PyObject *module);
int dt_py_turn_init(PyObject *module);
int dt_py_tensor_init(PyObject *module);
int dt_py_ops_init(PyObject *module);
int dt_py_interop_init(PyObject *module);
int dt_py_io_init(PyObject *module);
int dt_py_mesh_init(PyObject *module);
int dt_py_redistribute_init(PyObject *module);
int dt_py_assign_init(PyObject *module);
int dt_py_dist_init(PyObject *module);
int dt_py_errors_init(PyObject *module);
int dt_py_dtype_init(PyObject *module);

/* profile.c */
int dt_py_profile_init(PyObject *module);
/* While a profile is recorded: gives this thread's track its Python name; the number of the
 * coroutine that runs now, for dt_client_note.client; that of any text. 0: none. None raises. */
void dt_py_trace_thread(void);
uint32_t dt_py_trace_client(void);
uint32_t dt_py_trace_text(const char *text);

/* interop.c: a torch.Tensor that shares t's bytes (ready, waited for by the caller); counts as an
 * outsider until torch lets go. */
PyObject *dt_py_tensor_to_torch_ready(dt_tensor *t);

/* dtype.c */
PyObject *dt_py_dtype_object(dt_dtype dtype);                 /* new reference */
int dt_py_dtype_from_object(PyObject *object, dt_dtype *out); /* 0, or -1 with TypeError */
/* 1 yes, 0 not a number, -1 error. */
int dt_py_scalar_from_object(PyObject *number, dt_scalar *out);
PyObject *dt_py_scalar_object(dt_scalar value, dt_dtype dtype); /* bool, int or float */

#endif
