/* opfunc.c: one object type for every function, method and in-place method of the registry.
 *
 * An OpFunction pairs a compiled schema with a mode.  It is called by vectorcall; being a method
 * descriptor, `x.add(y)` calls it with self in front and makes no bound method.  What a schema
 * cannot say (x.view(dtype), x.max(1)) goes to a Python overload: it is called with the same
 * arguments when parsing them by the schema raised a TypeError, so that the common form pays
 * nothing for it.
 *
 *   call -> parse (args.c) -> target (in-place, out=) -> dt_py_dispatch -> wrap
 *
 * I1: a failed call leaves its arguments as they were.
 */
#include "python/ext/core.h"

#include <stddef.h>
#include <structmember.h>

#include "runtime/graveyard.h"

#define ROOM_SLICE_NS (50 * 1000 * 1000) /* between two looks at signals */

typedef struct op_function {
    PyObject_HEAD vectorcallfunc vectorcall;
    const dt_py_spec *spec;
    dt_py_op_mode mode;
    int fast; /* operands of a call that ops.c may compute at once; 0: never */
    char name[40];
    PyObject *overload; /* NULL, or a Python callable */
    PyObject *doc;      /* NULL, or a str */
} op_function;

/* ---- dispatch -------------------------------------------------------------------------------- */

static bool inside_loop(void) {
    PyObject *loop = PyObject_CallNoArgs(dt_state->get_running_loop);
    if (loop == NULL) {
        PyErr_Clear();
        return false;
    }
    bool inside = loop != Py_None;
    Py_DECREF(loop);
    return inside;
}

/* The queue is full: dispatch waits for room here, outside a loop; inside one it is an error, since
 * the loop's own tasks may be what has to go on. */
static dt_status wait_for_room(dt_sched *sched) {
    if (inside_loop())
        return dt_fail(
            DT_E_QUEUE_FULL,
            "%lld operations are in flight: await some of their results before calling more",
            (long long)dt_sched_in_flight(sched));
    dt_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = dt_sched_wait_room(sched, ROOM_SLICE_NS);
    Py_END_ALLOW_THREADS;
    if (PyErr_CheckSignals() < 0) return DT_E_PYTHON;
    return status < 0 ? status : DT_OK;
}

dt_status dt_py_dispatch(dt_op_call *call) {
    dt_status status = dt_dispatch(call);
    /* A wait inside dispatch may have ended with a Python exception (KeyboardInterrupt). */
    if (DT_UNLIKELY(status != DT_OK) && PyErr_Occurred()) return DT_E_PYTHON;
    return status;
}

PyObject *dt_py_dispatch_one(dt_op_call *call) {
    dt_status status = dt_py_dispatch(call);
    if (DT_UNLIKELY(status != DT_OK)) return dt_py_raise(status);
    return dt_py_tensor_wrap(call->outs[0]);
}

/* ---- results --------------------------------------------------------------------------------- */

static PyObject *wrap_several(dt_op_call *call) {
    PyObject *tuple = PyTuple_New(call->nout);
    for (int i = 0; i < call->nout; i++) {
        PyObject *item = dt_py_tensor_wrap(call->outs[i]);
        if (item == NULL || tuple == NULL) {
            for (int k = i + 1; k < call->nout; k++) dt_tensor_release(call->outs[k]);
            Py_XDECREF(item);
            Py_XDECREF(tuple);
            return NULL;
        }
        PyTuple_SET_ITEM(tuple, i, item);
    }
    return tuple;
}

static PyObject *wrap_outs(const op_function *f, dt_op_call *call, PyObject *input) {
    if (call->nout != 1) return wrap_several(call);
    dt_op_id id = (dt_op_id)f->spec->op->id;
    if ((id == DT_OP_contiguous || id == DT_OP_positive) && input != NULL &&
        call->outs[0] == dt_py_tensor_get(input)) { /* nothing to do: the tensor itself */
        dt_tensor_release(call->outs[0]);
        return Py_NewRef(input);
    }
    if (dt_op_has(f->spec->op, 'V') && input != NULL)
        return dt_py_tensor_wrap_view(input, call->outs[0]);
    return dt_py_tensor_wrap(call->outs[0]);
}

static PyObject *run_into(PyObject *handle, dt_op_call *call, bool inplace) {
    dt_tensor *target = dt_py_tensor_known(handle, DT_PY_AN_OPERATION);
    if (target == NULL) return NULL;
    dt_tensor_retain(target);
    call->target = target;
    call->inplace = inplace;
    dt_status status = dt_py_dispatch(call);
    dt_tensor_release(target);
    if (status != DT_OK) return dt_py_raise(status);
    if (call->replace_target)
        dt_py_tensor_replace(handle, call->outs[0]);
    else if (call->outs[0] != NULL)
        dt_tensor_release(call->outs[0]);
    return Py_NewRef(handle);
}

static PyObject *run(const op_function *f, dt_py_args *args, PyObject *input) {
    dt_op_call *call = &args->call;
    if (f->mode == DT_PY_OP_INPLACE) return run_into(input, call, true);
    if (args->out != NULL && args->out != Py_None) return run_into(args->out, call, false);
    dt_status status = dt_py_dispatch(call);
    if (DT_UNLIKELY(status != DT_OK)) return dt_py_raise(status);
    if (f->mode == DT_PY_OP_INPLACE_VIEW) {
        dt_py_tensor_replace(input, call->outs[0]);
        return Py_NewRef(input);
    }
    return wrap_outs(f, call, input);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static PyObject *call_overload(const op_function *f, PyObject *const *objects, size_t nargsf,
                               PyObject *kwnames) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *result = PyObject_Vectorcall(f->overload, objects, nargsf, kwnames);
    if (result == NULL && PyErr_ExceptionMatches(PyExc_NotImplementedError)) {
        PyErr_Clear(); /* the overload does not know this form either: the schema's error stands */
        PyErr_Restore(type, value, traceback);
        return NULL;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return result;
}

static PyObject *op_function_call(PyObject *self, PyObject *const *objects, size_t nargsf,
                                  PyObject *kwnames) {
    const op_function *f = (const op_function *)self;
    Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    bool method = f->mode != DT_PY_OP_FUNCTION;
    if (n == f->fast && kwnames == NULL && n > 0 &&
        (!method || Py_TYPE(objects[0]) == dt_state->tensor_type)) {
        PyObject *fast = dt_py_fast_call((dt_op_id)f->spec->op->id, objects, n);
        if (fast != NULL || PyErr_Occurred()) return fast;
    }
    dt_graveyard_drain();
    if (method && (n == 0 || !dt_py_tensor_check(objects[0]))) {
        PyErr_Format(PyExc_TypeError, "Tensor.%s() needs a dtorch.Tensor as its first argument",
                     f->name);
        return NULL;
    }
    dt_py_args args;
    PyObject *result = NULL;
    if (dt_py_args_parse(f->spec, f->name, method, objects, n, kwnames, &args) == 0) {
        PyObject *input = n > 0 && dt_py_tensor_check(objects[0]) ? objects[0] : NULL;
        result = run(f, &args, input);
        dt_py_args_fini(&args);
        return result;
    }
    dt_py_args_fini(&args);
    if (f->overload != NULL && PyErr_ExceptionMatches(PyExc_TypeError))
        return call_overload(f, objects, nargsf, kwnames);
    return NULL;
}

/* ---- the type -------------------------------------------------------------------------------- */

PyObject *dt_py_op_function_new(const dt_py_spec *spec, dt_py_op_mode mode) {
    op_function *f = (op_function *)PyType_GenericAlloc(dt_state->op_function_type, 0);
    if (f == NULL) return NULL;
    f->vectorcall = op_function_call;
    f->spec = spec;
    f->mode = mode;
    f->overload = NULL;
    f->doc = NULL;
    bool fresh = mode == DT_PY_OP_FUNCTION || mode == DT_PY_OP_METHOD;
    f->fast = fresh ? dt_py_fast_operands((dt_op_id)spec->op->id) : 0;
    bool underscore = mode == DT_PY_OP_INPLACE || mode == DT_PY_OP_INPLACE_VIEW;
    (void)snprintf(f->name, sizeof f->name, "%s%s", spec->name, underscore ? "_" : "");
    return (PyObject *)f;
}

static int op_function_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((op_function *)self)->overload);
    return 0;
}

static int op_function_clear(PyObject *self) {
    Py_CLEAR(((op_function *)self)->overload);
    return 0;
}

static void op_function_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)op_function_clear(self);
    Py_CLEAR(((op_function *)self)->doc);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *op_function_get(PyObject *self, PyObject *object, PyObject *type) {
    (void)type;
    if (object == NULL || object == Py_None) return Py_NewRef(self);
    return PyMethod_New(self, object);
}

static PyObject *op_function_repr(PyObject *self) {
    const op_function *f = (const op_function *)self;
    return PyUnicode_FromFormat(f->mode == DT_PY_OP_FUNCTION ? "<function dtorch.%s>"
                                                             : "<method '%s' of 'dtorch.Tensor'>",
                                f->name);
}

/* "(input, other, *, alpha=1, out=None)" */
static PyObject *signature_text(const op_function *f) {
    PyObject *text = PyUnicode_FromString("(");
    bool star = false;
    for (int i = 0; i < f->spec->count && text != NULL; i++) {
        const dt_py_param *p = &f->spec->params[i];
        bool is_self = i == 0 && f->mode != DT_PY_OP_FUNCTION;
        const char *opener = i == 0 ? "" : ", ";
        const char *marker = p->keyword_only && !star ? "*, " : "";
        star |= p->keyword_only;
        PyObject *piece =
            PyUnicode_FromFormat("%s%s%s%s%s", opener, marker, is_self ? "self" : p->text,
                                 p->has_default ? "=" : "", p->has_default ? p->default_text : "");
        PyUnicode_Append(&text, piece);
        Py_XDECREF(piece);
    }
    bool out = f->spec->takes_out && f->mode == DT_PY_OP_FUNCTION;
    PyObject *end = PyUnicode_FromFormat("%s)", !out ? "" : star ? ", out=None" : ", *, out=None");
    if (text != NULL) PyUnicode_Append(&text, end);
    Py_XDECREF(end);
    return text;
}

static PyObject *get_name(PyObject *self, void *closure) {
    (void)closure;
    return PyUnicode_FromString(((op_function *)self)->name);
}

static PyObject *get_qualname(PyObject *self, void *closure) {
    (void)closure;
    const op_function *f = (const op_function *)self;
    return PyUnicode_FromFormat("%s%s", f->mode == DT_PY_OP_FUNCTION ? "" : "Tensor.", f->name);
}

static PyObject *get_module(PyObject *self, void *closure) {
    (void)self, (void)closure;
    return PyUnicode_FromString("dtorch");
}

static PyObject *get_text_signature(PyObject *self, void *closure) {
    (void)closure;
    return signature_text((op_function *)self);
}

static PyObject *get_doc(PyObject *self, void *closure) {
    (void)closure;
    const op_function *f = (const op_function *)self;
    if (f->doc != NULL) return Py_NewRef(f->doc);
    PyObject *signature = signature_text(f);
    if (signature == NULL) return NULL;
    PyObject *doc =
        PyUnicode_FromFormat("%s%U -> Tensor\n\nAs torch.%s%s, awaitable.", f->name, signature,
                             f->mode == DT_PY_OP_FUNCTION ? "" : "Tensor.", f->name);
    Py_DECREF(signature);
    return doc;
}

static int set_doc(PyObject *self, PyObject *value, void *closure) {
    (void)closure;
    Py_XINCREF(value);
    Py_XSETREF(((op_function *)self)->doc, value);
    return 0;
}

static PyObject *get_row(PyObject *self, void *closure) {
    (void)closure;
    return PyUnicode_FromString(((op_function *)self)->spec->op->full_name);
}

static PyObject *op_function_reduce(PyObject *self, PyObject *ignored) {
    (void)ignored;
    return get_qualname(self, NULL); /* pickled by name, as functions are */
}

static PyObject *set_overload(PyObject *self, PyObject *callable) {
    Py_INCREF(callable);
    Py_XSETREF(((op_function *)self)->overload, callable);
    Py_RETURN_NONE;
}

static PyMemberDef op_function_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(op_function, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef op_function_getset[] = {
    {"__name__", get_name, NULL, NULL, NULL},
    {"__qualname__", get_qualname, NULL, NULL, NULL},
    {"__module__", get_module, NULL, NULL, NULL},
    {"__text_signature__", get_text_signature, NULL, NULL, NULL},
    {"__doc__", get_doc, set_doc, NULL, NULL},
    {"_row", get_row, NULL, "The registry row's name.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef op_function_methods[] = {
    {"_set_overload", set_overload, METH_O,
     "Called with the same arguments when they do not fit the schema."},
    {"__reduce__", op_function_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot op_function_slots[] = {
    {Py_tp_dealloc, op_function_dealloc}, {Py_tp_traverse, op_function_traverse},
    {Py_tp_clear, op_function_clear},     {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, op_function_get},   {Py_tp_repr, op_function_repr},
    {Py_tp_members, op_function_members}, {Py_tp_getset, op_function_getset},
    {Py_tp_methods, op_function_methods}, {0, NULL},
};

static PyType_Spec op_function_spec = {
    .name = "dtorch.OpFunction",
    .basicsize = sizeof(op_function),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = op_function_slots,
};

int dt_py_opfunc_init(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &op_function_spec, NULL);
    if (type == NULL) return -1;
    dt_state->op_function_type = (PyTypeObject *)type;
    dt_dispatch_set_room_hook(wait_for_room);
    return PyModule_AddObjectRef(module, "OpFunction", type);
}
