/* tensor.c: the Tensor type: life, slots, attributes that users set.
 *
 * A handle (dt_py_tensor) owns one dt_tensor.  Making one is on the path of every op, so dead
 * handles of the exact type go to a free list, and a handle is known to the garbage collector only
 * from the moment it can take part in a cycle (an attribute, a grad).
 *
 * I1: self->t is never NULL outside tp_new and tp_dealloc.
 * I2: a handle whose dict, grad or grad_fn is set is tracked by the collector.
 */
#include "python/ext/core.h"

#include <stddef.h>
#include <structmember.h>

#include "runtime/dist.h"
#include "runtime/graveyard.h"

#define FREE_MAX 128

static dt_py_tensor *free_list[FREE_MAX];
static int free_count;

/* ---- life ------------------------------------------------------------------------------------ */

static dt_py_tensor *handle_new(PyTypeObject *type) {
    dt_py_tensor *self;
    if (DT_LIKELY(type == dt_state->tensor_type)) {
        if (DT_LIKELY(free_count > 0)) {
            self = free_list[--free_count];
            (void)PyObject_Init((PyObject *)self, type);
        } else {
            self = PyObject_GC_New(dt_py_tensor, type);
            if (self == NULL) return NULL;
        }
        self->t = NULL;
        self->weakrefs = NULL;
        self->grad = NULL;
        self->grad_fn = NULL;
        self->base = NULL;
        self->dict = NULL;
    } else {
        self = (dt_py_tensor *)type->tp_alloc(type, 0); /* zeroed */
        if (self == NULL) return NULL;
    }
    self->requires_grad = false;
    self->is_leaf = true;
    return self;
}

PyObject *dt_py_tensor_wrap_as(PyTypeObject *type, dt_tensor *t) {
    dt_py_tensor *self = handle_new(type);
    if (DT_UNLIKELY(self == NULL)) {
        dt_tensor_release(t);
        return NULL;
    }
    self->t = t;
    return (PyObject *)self;
}

PyObject *dt_py_tensor_wrap(dt_tensor *t) { return dt_py_tensor_wrap_as(dt_state->tensor_type, t); }

PyObject *dt_py_tensor_wrap_view(PyObject *self, dt_tensor *t) {
    dt_py_tensor *view = (dt_py_tensor *)dt_py_tensor_wrap(t);
    if (DT_LIKELY(view != NULL) && t->storage == dt_py_tensor_get(self)->storage) {
        PyObject *base = ((dt_py_tensor *)self)->base;
        view->base = Py_NewRef(base != NULL ? base : self);
    }
    return (PyObject *)view;
}

void dt_py_tensor_replace(PyObject *self, dt_tensor *t) {
    dt_tensor *old = ((dt_py_tensor *)self)->t;
    ((dt_py_tensor *)self)->t = t;
    dt_tensor_drop_handle(old);
}

static int tensor_traverse(PyObject *object, visitproc visit, void *arg) {
    dt_py_tensor *self = (dt_py_tensor *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->grad);
    Py_VISIT(self->grad_fn);
    Py_VISIT(self->base);
    Py_VISIT(self->dict);
    return 0;
}

static int tensor_clear(PyObject *object) {
    dt_py_tensor *self = (dt_py_tensor *)object;
    Py_CLEAR(self->grad);
    Py_CLEAR(self->grad_fn);
    Py_CLEAR(self->base);
    Py_CLEAR(self->dict);
    return 0;
}

static void tensor_dealloc(PyObject *object) {
    dt_py_tensor *self = (dt_py_tensor *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (DT_UNLIKELY(self->weakrefs != NULL)) PyObject_ClearWeakRefs(object);
    if (self->base != NULL || self->dict != NULL || self->grad != NULL || self->grad_fn != NULL)
        (void)tensor_clear(object);
    if (DT_LIKELY(self->t != NULL)) {
        dt_tensor_drop_handle(self->t);
        self->t = NULL;
    }
    if (DT_LIKELY(type == dt_state->tensor_type && free_count < FREE_MAX))
        free_list[free_count++] = self;
    else
        type->tp_free(object);
    Py_DECREF(type);
}

static int tensor_setattro(PyObject *object, PyObject *name, PyObject *value) {
    int status = PyObject_GenericSetAttr(object, name, value);
    const dt_py_tensor *self = (dt_py_tensor *)object;
    if (status == 0 && (self->dict != NULL || self->grad != NULL) && !PyObject_GC_IsTracked(object))
        PyObject_GC_Track(object);
    return status;
}

/* ---- Tensor(...) ----------------------------------------------------------------------------- */

/* Tensor(2, 3) and Tensor(Size): not initialised, of the default dtype. */
static dt_tensor *new_of_size(PyObject *args) {
    dt_dims dims;
    dt_tensor *t = NULL;
    PyObject *const *items = &PyTuple_GET_ITEM(args, 0);
    if (PyTuple_GET_SIZE(args) == 0) {
        dims.rank = 1;
        dims.v[0] = 0;
    } else if (dt_py_dims_from_varargs("new", items, PyTuple_GET_SIZE(args), &dims) < 0) {
        return NULL;
    }
    dt_op_call call;
    dt_op_call_init(&call, DT_OP_empty__new);
    call.nargs = 2;
    call.args[0].kind = DT_ARG_DIMS;
    call.args[0].dims = &dims;
    call.args[1].kind = DT_ARG_DTYPE;
    call.args[1].dtype = dt_default_dtype();
    dt_status status = dt_py_dispatch(&call);
    if (status == DT_OK)
        t = call.outs[0];
    else
        (void)dt_py_raise(status);
    return t;
}

static dt_tensor *new_of_data(PyObject *data) {
    dt_tensor *t = NULL;
    if (dt_py_tensor_check(data)) return dt_tensor_retain(dt_py_tensor_get(data));
    if (dt_py_is_torch_tensor(data)) {
        dt_tensor *shared = dt_py_tensor_from_torch(data, false);
        if (shared == NULL) return NULL;
        t = dt_py_tensor_clone(shared, (dt_dtype)shared->dtype);
        dt_tensor_release(shared);
        dt_graveyard_drain();
        return t;
    }
    if (PyUnicode_Check(data)) {
        PyErr_Format(PyExc_TypeError, "new(): invalid data type '%s'", Py_TYPE(data)->tp_name);
        return NULL;
    }
    if (!PySequence_Check(data) && !PyObject_CheckBuffer(data)) {
        PyErr_Format(PyExc_TypeError, "new(): data must be a sequence (got %s)",
                     Py_TYPE(data)->tp_name);
        return NULL;
    }
    return dt_py_tensor_from_data(data, dt_default_dtype(), dt_default_dtype());
}

static bool is_size(PyObject *args) {
    if (PyTuple_GET_SIZE(args) != 1) return true;
    PyObject *first = PyTuple_GET_ITEM(args, 0);
    return (PyLong_Check(first) && !PyBool_Check(first)) || Py_TYPE(first) == dt_state->size_type ||
           strcmp(Py_TYPE(first)->tp_name, "torch.Size") == 0;
}

static dt_tensor *new_plain(PyObject *args) {
    return is_size(args) ? new_of_size(args) : new_of_data(PyTuple_GET_ITEM(args, 0));
}

/* What the keywords, or the default mesh, make of it. 0: nothing, *out is NULL. */
static int new_placed(PyObject *args, PyObject *kwargs, dt_tensor **out) {
    *out = NULL;
    PyObject *given = PyTuple_Pack(2, args, kwargs != NULL ? kwargs : Py_None);
    PyObject *made = given != NULL ? dt_py_call_helper("_dist", "construct", given) : NULL;
    Py_XDECREF(given);
    if (made == NULL) return -1;
    if (made != Py_None) *out = dt_tensor_retain(dt_py_tensor_get(made));
    Py_DECREF(made);
    return 0;
}

static bool default_mesh_is_set; /* somebody once set one: it is worth a look */

static PyObject *tensor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    dt_graveyard_drain();
    dt_tensor *t = NULL;
    bool named = kwargs != NULL && PyDict_GET_SIZE(kwargs) != 0;
    if (DT_UNLIKELY(named || default_mesh_is_set) && new_placed(args, kwargs, &t) < 0) return NULL;
    if (t == NULL) t = new_plain(args);
    return t != NULL ? dt_py_tensor_wrap_as(type, t) : NULL;
}

/* is_size(args): whether Tensor(*args) says a size, not data */
static PyObject *function_is_size(PyObject *module, PyObject *args) {
    (void)module;
    if (PyTuple_Check(args)) return PyBool_FromLong(is_size(args));
    PyErr_SetString(PyExc_TypeError, "is_size() takes a tuple");
    return NULL;
}

/* construct_plain(args): Tensor(*args) on no mesh, whatever the default */
static PyObject *function_construct_plain(PyObject *module, PyObject *args) {
    (void)module;
    if (!PyTuple_Check(args)) {
        PyErr_SetString(PyExc_TypeError, "construct_plain() takes a tuple");
        return NULL;
    }
    dt_tensor *t = new_plain(args);
    return t != NULL ? dt_py_tensor_wrap(t) : NULL;
}

static PyObject *function_default_mesh_is_set(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    default_mesh_is_set = true;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"is_size", function_is_size, METH_O, NULL},
    {"construct_plain", function_construct_plain, METH_O, NULL},
    {"_default_mesh_is_set", function_default_mesh_is_set, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* ---- reading --------------------------------------------------------------------------------- */

/* No task writes the bytes and none ever failed to: nothing to wait for. */
static inline bool is_plainly_ready(const dt_tensor *t) {
    return t->storage->last_write == NULL &&
           atomic_load_explicit(&t->storage->failure, memory_order_relaxed) == NULL &&
           atomic_load_explicit(&t->storage->writers, memory_order_acquire) == 0 &&
           atomic_load_explicit(&t->storage->data, memory_order_acquire) != NULL;
}

static int item_of_whole(dt_tensor *t, const char *what, dt_scalar *out) {
    dt_tensor *whole = dt_py_tensor_whole(t);
    if (whole == NULL) return -1;
    int status = dt_py_tensor_item(whole, what, out);
    dt_tensor_release(whole);
    return status;
}

int dt_py_tensor_item(dt_tensor *t, const char *what, dt_scalar *out) {
    if (DT_UNLIKELY(dt_tensor_is_dist(t)) && t->numel == 1) return item_of_whole(t, what, out);
    if (t->numel != 1) {
        PyErr_Format(PyExc_RuntimeError,
                     "a Tensor with %lld elements cannot be converted to Scalar",
                     (long long)t->numel);
        return -1;
    }
    if (!is_plainly_ready(t)) {
        dt_tensor_retain(t); /* the handle may change while we wait */
        int status = dt_py_tensor_wait(t, what);
        dt_status ready = status == 0 ? dt_storage_materialize(t->storage) : DT_OK;
        if (status == 0 && ready == DT_OK)
            *out = dt_scalar_load((dt_dtype)t->dtype, dt_tensor_data(t));
        dt_tensor_release(t);
        if (ready != DT_OK) (void)dt_py_raise(ready);
        return status == 0 && ready == DT_OK ? 0 : -1;
    }
    *out = dt_scalar_load((dt_dtype)t->dtype, dt_tensor_data(t));
    return 0;
}

static int to_scalar(PyObject *self, const char *what, dt_scalar *out) {
    dt_tensor *t = dt_py_tensor_known(self, what);
    if (t == NULL) return -1;
    if (t->numel != 1) {
        PyErr_SetString(PyExc_ValueError,
                        "only one element tensors can be converted to Python scalars");
        return -1;
    }
    return dt_py_tensor_item(t, what, out);
}

static int tensor_bool(PyObject *self) {
    dt_tensor *t = dt_py_tensor_known(self, "bool(Tensor)");
    dt_scalar s;
    if (t == NULL) return -1;
    if (t->numel != 1) {
        PyErr_Format(PyExc_RuntimeError, "Boolean value of Tensor with %s is ambiguous",
                     t->numel == 0 ? "no values" : "more than one value");
        return -1;
    }
    if (dt_py_tensor_item(t, "bool(Tensor)", &s) < 0) return -1;
    return dt_scalar_bool(s);
}

static PyObject *tensor_int(PyObject *self) {
    dt_scalar s;
    if (to_scalar(self, "int(Tensor)", &s) < 0) return NULL;
    if (s.category == DT_CAT_FLOAT) return PyLong_FromDouble(s.f);
    return PyLong_FromLongLong(s.i);
}

static PyObject *tensor_float(PyObject *self) {
    dt_scalar s;
    if (to_scalar(self, "float(Tensor)", &s) < 0) return NULL;
    return PyFloat_FromDouble(dt_scalar_f64(s));
}

static PyObject *tensor_index(PyObject *self) {
    dt_tensor *t = dt_py_tensor_known(self, "Tensor.__index__()");
    dt_scalar s;
    if (t == NULL) return NULL;
    if (t->numel != 1 || dt_dtype_is_float((dt_dtype)t->dtype)) {
        PyErr_SetString(PyExc_TypeError,
                        "only integer tensors of a single element can be converted to an index");
        return NULL;
    }
    if (dt_py_tensor_item(t, "Tensor.__index__()", &s) < 0) return NULL;
    return PyLong_FromLongLong(s.i);
}

/* ---- containers ------------------------------------------------------------------------------ */

static Py_ssize_t tensor_length(PyObject *self) {
    const dt_tensor *t = dt_py_tensor_known(self, "len(Tensor)");
    if (t == NULL) return -1;
    if (t->rank == 0) {
        PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
        return -1;
    }
    return (Py_ssize_t)t->shape[0];
}

static PyObject *tensor_item_at(PyObject *self, Py_ssize_t i) {
    const dt_tensor *t = dt_py_tensor_known(self, "Iterating over a Tensor");
    if (t == NULL) return NULL;
    if (t->rank == 0 || i < 0 || i >= t->shape[0]) {
        PyErr_Format(PyExc_IndexError, "index %zd is out of bounds for dimension 0 with size %lld",
                     i, (long long)(t->rank == 0 ? 0 : t->shape[0]));
        return NULL;
    }
    return dt_py_tensor_select0(self, i);
}

static PyObject *tensor_iter(PyObject *self) {
    if (dt_py_tensor_get(self)->rank == 0) {
        PyErr_SetString(PyExc_TypeError, "iteration over a 0-d tensor");
        return NULL;
    }
    return PySeqIter_New(self);
}

static int tensor_contains(PyObject *self, PyObject *element) {
    dt_scalar s;
    int number = dt_py_tensor_check(element) ? 1 : dt_py_scalar_from_object(element, &s);
    if (number < 0) return -1;
    if (number == 0) {
        PyErr_Format(PyExc_RuntimeError,
                     "Tensor.__contains__ only supports Tensor or scalar, but you passed in a %R.",
                     (PyObject *)Py_TYPE(element));
        return -1;
    }
    PyObject *equal = dt_py_binary(DT_OP_eq, self, element);
    PyObject *any = equal != NULL ? dt_py_unary(DT_OP_any, equal) : NULL;
    int found = any != NULL ? tensor_bool(any) : -1;
    Py_XDECREF(equal);
    Py_XDECREF(any);
    return found;
}

static Py_hash_t tensor_hash(PyObject *self) {
    Py_hash_t hash = (Py_hash_t)(uintptr_t)self;
    return hash == -1 ? -2 : hash;
}

static PyObject *tensor_repr(PyObject *self) {
    return dt_py_call_helper("_repr", "tensor_repr", self);
}

/* ---- the type -------------------------------------------------------------------------------- */

static PyMemberDef tensor_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(dt_py_tensor, weakrefs), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(dt_py_tensor, dict), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot own_slots[] = {
    {Py_tp_new, tensor_new},
    {Py_tp_dealloc, tensor_dealloc},
    {Py_tp_traverse, tensor_traverse},
    {Py_tp_clear, tensor_clear},
    {Py_tp_setattro, tensor_setattro},
    {Py_tp_members, tensor_members},
    {Py_tp_methods, dt_py_tensor_methods},
    {Py_tp_getset, dt_py_tensor_getset},
    {Py_tp_hash, tensor_hash},
    {Py_tp_repr, tensor_repr},
    {Py_tp_iter, tensor_iter},
    {Py_tp_richcompare, dt_py_richcompare},
    {Py_nb_bool, tensor_bool},
    {Py_nb_int, tensor_int},
    {Py_nb_float, tensor_float},
    {Py_nb_index, tensor_index},
    {Py_mp_length, tensor_length},
    {Py_mp_subscript, dt_py_tensor_getitem},
    {Py_mp_ass_subscript, dt_py_tensor_setitem},
    {Py_sq_length, tensor_length},
    {Py_sq_item, tensor_item_at},
    {Py_sq_contains, tensor_contains},
    {Py_am_await, dt_py_tensor_await},
    {Py_tp_doc,
     "A tensor, and the future of its value: `await` gives it back once it is computed."},
};

/* own_slots and those of ops.c, one list. */
static PyType_Slot *all_slots(void) {
    static PyType_Slot slots[96];
    size_t n = 0;
    for (size_t i = 0; i < sizeof own_slots / sizeof *own_slots; i++) slots[n++] = own_slots[i];
    for (size_t i = 0; dt_py_number_slots[i].slot != 0; i++) slots[n++] = dt_py_number_slots[i];
    DT_ASSERT(n < sizeof slots / sizeof *slots);
    slots[n] = (PyType_Slot){0, NULL};
    return slots;
}

/* Every method and in-place method that the registry names. */
static int add_op_methods(PyTypeObject *type) {
    static const char *const view_in_place[] = {"t", "transpose", "squeeze", "unsqueeze",
                                                "swapaxes"};
    for (int i = 0; i < DT_OP_COUNT; i++) {
        const dt_py_spec *spec = &dt_py_specs[i];
        bool overload = strstr(spec->op->full_name, "__") != NULL;
        bool view = false;
        for (size_t k = 0; k < sizeof view_in_place / sizeof *view_in_place; k++)
            view |= strcmp(view_in_place[k], spec->op->full_name) == 0;
        for (int mode = DT_PY_OP_METHOD; mode <= DT_PY_OP_INPLACE_VIEW; mode++) {
            bool wanted = mode == DT_PY_OP_METHOD    ? dt_op_has(spec->op, 'M')
                          : mode == DT_PY_OP_INPLACE ? dt_op_has(spec->op, 'I')
                                                     : view;
            if (!wanted || overload) continue;
            PyObject *method = dt_py_op_function_new(spec, (dt_py_op_mode)mode);
            if (method == NULL) return -1;
            char name[48];
            (void)snprintf(name, sizeof name, "%s%s", spec->name,
                           mode == DT_PY_OP_METHOD ? "" : "_");
            int status = PyObject_SetAttrString((PyObject *)type, name, method);
            Py_DECREF(method);
            if (status < 0) return -1;
        }
    }
    return 0;
}

/* The methods of the files that are about other libraries. */
static int add_methods(PyTypeObject *type, PyMethodDef *defs) {
    for (; defs->ml_name != NULL; defs++) {
        PyObject *method = PyDescr_NewMethod(type, defs);
        if (method == NULL) return -1;
        int status = PyObject_SetAttrString((PyObject *)type, defs->ml_name, method);
        Py_DECREF(method);
        if (status < 0) return -1;
    }
    return 0;
}

int dt_py_tensor_init(PyObject *module) {
    PyType_Spec spec = {
        .name = "dtorch.Tensor",
        .basicsize = sizeof(dt_py_tensor),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
        .slots = all_slots(),
    };
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    if (type == NULL) return -1;
    dt_state->tensor_type = (PyTypeObject *)type;
    dt_state->tensor_type->tp_name = "Tensor"; /* as messages of Python's operators say it */
    if (add_op_methods((PyTypeObject *)type) < 0 ||
        add_methods((PyTypeObject *)type, dt_py_interop_methods) < 0 ||
        add_methods((PyTypeObject *)type, dt_py_dlpack_methods) < 0 ||
        PyModule_AddFunctions(module, functions) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Tensor", type);
}
