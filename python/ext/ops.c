/* ops.c: Tensor's operators.
 *
 * The fast path: two ready, contiguous tensors of one dtype and shape (or one and a number that
 * does not change its dtype) whose op has a tile function.  The expression is evaluated straight
 * into a fresh tensor: no argument parsing, no rule, no dispatch.  It is what the inline lane would
 * do, in a tenth of the time; everything else goes through dt_dispatch.
 *
 * I1: the fast path computes the bits that dispatch would: it calls the same tile function.
 * I2: it is taken only when no task writes an input and no outsider can touch it.
 * I3: while a profile is recorded it is not taken: dispatch does the recording.
 */
#include "python/ext/core.h"

#include <string.h>

#include "runtime/dist.h"
#include "runtime/elementwise.h"
#include "runtime/graveyard.h"
#include "runtime/infer.h"
#include "runtime/stats.h"
#include "runtime/trace.h"

/* ---- the fast path --------------------------------------------------------------------------- */

typedef struct fast_entry {
    dt_ew_tile tile; /* NULL: not for this op and dtype */
    float ns_per_element;
    uint8_t out; /* dt_dtype */
    bool known;
} fast_entry;

static fast_entry fast_table[DT_OP_COUNT][DT_DTYPE_COUNT];

/* The family of an op whose rule, with its defaults, is no more than one call of it. */
static const dt_ew_family *plain_family(dt_op_id id) {
    const dt_op *op = &dt_op_table[id];
    bool plain = op->rule == dt_infer_ew || op->rule == dt_infer_add || op->rule == dt_infer_sub ||
                 op->rule == dt_infer_div;
    const dt_kernel *kernel = dt_device_cpu()->kernels[id];
    if (!plain || kernel == NULL || !(kernel->flags & DT_KERNEL_ELEMENTWISE)) return NULL;
    return kernel->family;
}

/* Whether a tile call alone is what dispatch would do: no check of values, no operand of another
 * dtype, a result that equal inputs leave in their dtype (or bool). */
static bool is_fast_op(dt_op_id id, dt_dtype dtype, const dt_ew_family *family) {
    if (dtype != DT_F32 && dtype != DT_F64 && dtype != DT_I64 && dtype != DT_I32) return false;
    if (family->flags & (DT_EW_DIVISOR | DT_EW_POWER | DT_EW_COND)) return false;
    dt_dtype_rule rule = (dt_dtype_rule)dt_op_table[id].dtypes;
    bool floats_only = rule == DT_DTYPES_FLOAT || rule == DT_DTYPES_FLOATONLY;
    bool ints_only = rule == DT_DTYPES_BITWISE || rule == DT_DTYPES_SHIFT;
    return rule != DT_DTYPES_NONE && !(dt_dtype_is_float(dtype) ? ints_only : floats_only);
}

static __attribute__((noinline, cold)) void fast_fill(fast_entry *e, dt_op_id id, dt_dtype dtype) {
    e->known = true;
    const dt_ew_family *family = plain_family(id);
    if (family == NULL || !is_fast_op(id, dtype, family)) return;
    dt_dtype out = dtype;
    dt_ew_tile tile = dt_ew_tile_lookup(id, dtype, &out);
    if (tile == NULL) return;
    e->ns_per_element = family->cost / 16.0F * (float)dt_dtype_size(dtype) / 4.0F;
    e->out = (uint8_t)out;
    e->tile = tile;
}

static inline const fast_entry *fast_lookup(dt_op_id id, dt_dtype dtype) {
    fast_entry *e = &fast_table[id][dtype];
    if (DT_UNLIKELY(!e->known)) fast_fill(e, id, dtype);
    return e;
}

/* Ready, dense, and nobody else's. A storage without memory is left to dispatch. */
static inline bool is_simple(const dt_tensor *t) {
    const dt_storage *s = t->storage;
    return t->contiguous && s->last_write == NULL &&
           atomic_load_explicit(&s->failure, memory_order_relaxed) == NULL &&
           atomic_load_explicit(&s->writers, memory_order_acquire) == 0 &&
           atomic_load_explicit(&s->data, memory_order_acquire) != NULL &&
           !dt_storage_is_external(s);
}

/* out = tile(in...) in a fresh tensor shaped as t; NULL when memory is out (dispatch will say so).
 */
static inline dt_tensor *fast_compute(const fast_entry *e, const dt_tensor *t,
                                      const void *const *in, const int64_t *step) {
    static const dt_params no_params;
    dt_tensor *out;
    if (dt_tensor_new((dt_dtype)e->out, t->rank, t->shape, &out) != DT_OK) return NULL;
    if (atomic_load_explicit(&out->storage->data, memory_order_relaxed) == NULL &&
        dt_storage_materialize(out->storage) != DT_OK) {
        dt_tensor_release(out);
        return NULL;
    }
    if (t->numel > 0) e->tile(t->numel, dt_tensor_data(out), in, step, &no_params);
    dt_counts.fast++;
    return out;
}

static PyObject *fast_run(const fast_entry *e, const dt_tensor *t, const void *const *in,
                          const int64_t *step) {
    if (DT_UNLIKELY(dt_trace_is_on())) return NULL;
    dt_tensor *out = fast_compute(e, t, in, step);
    return out != NULL ? dt_py_tensor_wrap(out) : NULL;
}

static inline bool is_small(const fast_entry *e, int64_t numel) {
    return (float)numel * e->ns_per_element < (float)DT_INLINE_COST_NS_MAX;
}

/* ---- the same on a mesh: operands that are placed alike, and whole numbers ------------------ */

/* Nothing is Partial, where not every op passes, and row-major is the result's natural order. */
static bool is_plainly_placed(const dt_dist *d) {
    if (!dt_shape_is_contiguous(d->t.rank, d->t.shape, d->t.strides)) return false;
    for (int m = 0; m < d->mesh->rank; m++)
        if (dt_placement_is_partial(d->placements[m])) return false;
    return true;
}

static bool is_placed_alike(const dt_dist *a, const dt_dist *b) {
    return a->mesh == b->mesh &&
           memcmp(a->placements, b->placements, sizeof *a->placements * a->mesh->rank) == 0;
}

/* Part k of tile(operands); an operand that is NULL is the number. NULL: not for the fast path. */
static dt_tensor *fast_part(const fast_entry *e, dt_dist *const *operands, int n, int k,
                            const void *number, const int64_t *step) {
    const void *in[DT_EW_INPUTS_MAX] = {NULL};
    const dt_tensor *like = NULL;
    for (int i = 0; i < n; i++) {
        in[i] = number;
        if (operands[i] == NULL) continue;
        like = operands[i]->parts[k];
        if (!is_simple(like)) return NULL;
        in[i] = dt_tensor_data(like);
    }
    DT_ASSERT(like != NULL);
    return fast_compute(e, like, in, step);
}

/* All parts, one after the other; `like` is one of the operands. */
static __attribute__((noinline)) PyObject *fast_on_mesh(const fast_entry *e, const dt_dist *like,
                                                        dt_dist *const *operands, int n,
                                                        const void *number, const int64_t *step) {
    enum { PARTS_MAX = 16 };
    dt_tensor *parts[PARTS_MAX] = {NULL}, *out;
    int count = like->mesh->size, made = 0;
    float elements = (float)like->parts[0]->numel * (float)count;
    if (count > PARTS_MAX || elements * e->ns_per_element >= (float)DT_INLINE_COST_NS_MAX ||
        !is_plainly_placed(like) || dt_trace_is_on())
        return NULL;
    for (; made < count; made++) {
        parts[made] = fast_part(e, operands, n, made, number, step);
        if (parts[made] == NULL) break;
    }
    if (made == count && dt_dist_new((dt_dtype)e->out, like->t.rank, like->t.shape, NULL, 0,
                                     like->mesh, like->placements, parts, &out) == DT_OK)
        return dt_py_tensor_wrap(out);
    while (made > 0) dt_tensor_release(parts[--made]);
    return NULL;
}

static PyObject *fast_binary_on_mesh(const fast_entry *e, const dt_tensor *a, const dt_tensor *b) {
    static const int64_t step[DT_EW_INPUTS_MAX] = {1, 1};
    dt_dist *operands[2] = {dt_dist_of(a), dt_dist_of(b)};
    if (!dt_tensor_is_dist(b) || !is_placed_alike(operands[0], operands[1])) return NULL;
    return fast_on_mesh(e, operands[0], operands, 2, NULL, step);
}

/* ---- a call ---------------------------------------------------------------------------------- */

/* NULL without an exception: not for the fast path. */
static inline PyObject *fast_binary(dt_op_id id, const dt_tensor *a, const dt_tensor *b) {
    if (a->dtype != b->dtype || !dt_tensor_same_shape(a, b)) return NULL;
    const fast_entry *e = fast_lookup(id, (dt_dtype)a->dtype);
    if (DT_UNLIKELY(dt_tensor_is_dist(a)))
        return e->tile != NULL ? fast_binary_on_mesh(e, a, b) : NULL;
    if (e->tile == NULL || !is_small(e, a->numel) || !is_simple(a) || !is_simple(b)) return NULL;
    const void *in[DT_EW_INPUTS_MAX] = {dt_tensor_data(a), dt_tensor_data(b)};
    static const int64_t step[DT_EW_INPUTS_MAX] = {1, 1};
    return fast_run(e, a, in, step);
}

/* t <op> s, or s <op> t when swapped. */
static inline PyObject *fast_scalar(dt_op_id id, const dt_tensor *t, dt_scalar s, bool swapped) {
    if (s.category > dt_dtype_category((dt_dtype)t->dtype) || s.category == DT_CAT_BOOL)
        return NULL;
    const fast_entry *e = fast_lookup(id, (dt_dtype)t->dtype);
    bool on_mesh = dt_tensor_is_dist(t);
    if (e->tile == NULL || !is_small(e, t->numel) || !(on_mesh || is_simple(t))) return NULL;
    if (t->dtype == DT_I32 && s.i != (int32_t)s.i) return NULL;
    double number; /* room and alignment for any element */
    dt_scalar_store(s, (dt_dtype)t->dtype, &number);
    static const int64_t steps[2][DT_EW_INPUTS_MAX] = {{1, 0}, {0, 1}};
    if (DT_UNLIKELY(on_mesh)) {
        dt_dist *operands[2] = {swapped ? NULL : dt_dist_of(t), swapped ? dt_dist_of(t) : NULL};
        return fast_on_mesh(e, dt_dist_of(t), operands, 2, &number, steps[swapped]);
    }
    const void *in[DT_EW_INPUTS_MAX] = {dt_tensor_data(t), &number};
    if (swapped) {
        in[1] = in[0];
        in[0] = &number;
    }
    return fast_run(e, t, in, steps[swapped]);
}

static inline PyObject *fast_unary(dt_op_id id, const dt_tensor *t) {
    static const int64_t step[DT_EW_INPUTS_MAX] = {1};
    const fast_entry *e = fast_lookup(id, (dt_dtype)t->dtype);
    if (DT_UNLIKELY(dt_tensor_is_dist(t)) && e->tile != NULL) {
        dt_dist *d = dt_dist_of(t);
        return fast_on_mesh(e, d, &d, 1, NULL, step);
    }
    if (e->tile == NULL || !is_small(e, t->numel) || !is_simple(t)) return NULL;
    const void *in[DT_EW_INPUTS_MAX] = {dt_tensor_data(t)};
    return fast_run(e, t, in, step);
}

/* ---- the general path ------------------------------------------------------------------------ */

/* An operand: 1 set, 0 of another type, -1 error. Tensors are retained. */
static int set_operand(PyObject *object, dt_arg *a) {
    if (dt_py_tensor_check(object)) {
        dt_tensor *t = dt_py_tensor_known(object, DT_PY_AN_OPERATION);
        if (t == NULL) return -1;
        a->kind = DT_ARG_TENSOR;
        a->t = dt_tensor_retain(t);
        return 1;
    }
    a->kind = DT_ARG_SCALAR;
    return dt_py_scalar_from_object(object, &a->s);
}

static void fill_defaults(dt_op_call *call, dt_op_id id, int from) {
    const dt_py_spec *spec = &dt_py_specs[id];
    dt_op_call_init(call, id);
    call->nargs = spec->count;
    for (int i = from; i < spec->count; i++) call->args[i] = spec->params[i].fallback;
}

static void release_operands(dt_op_call *call, int n) {
    for (int i = 0; i < n; i++)
        if (call->args[i].kind == DT_ARG_TENSOR) dt_tensor_release(call->args[i].t);
}

/* numpy arrays and torch tensors would otherwise be handled element by element by numpy, or be
 * reported as merely unsupported. */
static PyObject *refuse(PyObject *a, PyObject *b) {
    PyObject *other = dt_py_tensor_check(a) ? b : a;
    const char *how = NULL;
    if (dt_py_is_torch_tensor(other))
        how = "dtorch.Tensor() (copies) or dtorch.from_torch() (shares)";
    else if (strcmp(Py_TYPE(other)->tp_name, "numpy.ndarray") == 0)
        how = "dtorch.tensor() (copies) or dtorch.from_numpy() (shares)";
    if (how == NULL) Py_RETURN_NOTIMPLEMENTED;
    PyErr_Format(PyExc_TypeError,
                 "an operand is a %s, the other one a dtorch.Tensor: convert it with %s",
                 dt_py_type_name(other), how);
    return NULL;
}

static __attribute__((noinline)) PyObject *slow_binary(dt_op_id id, PyObject *a, PyObject *b) {
    dt_graveyard_drain();
    dt_op_call call;
    fill_defaults(&call, id, 2);
    call.args[0].kind = call.args[1].kind = DT_ARG_NONE;
    int ok = set_operand(a, &call.args[0]);
    if (ok > 0) ok = set_operand(b, &call.args[1]);
    PyObject *result = NULL;
    if (ok > 0)
        result = dt_py_dispatch_one(&call);
    else if (ok == 0)
        result = refuse(a, b);
    release_operands(&call, 2);
    return result;
}

static inline PyObject *try_fast(dt_op_id id, PyObject *a, PyObject *b) {
    PyTypeObject *type = dt_state->tensor_type;
    dt_scalar s;
    if (DT_LIKELY(Py_TYPE(a) == type)) {
        if (DT_LIKELY(Py_TYPE(b) == type))
            return fast_binary(id, dt_py_tensor_get(a), dt_py_tensor_get(b));
        if (!PyFloat_CheckExact(b) && !PyLong_CheckExact(b)) return NULL;
        if (dt_py_scalar_from_object(b, &s) < 0) return NULL;
        return fast_scalar(id, dt_py_tensor_get(a), s, false);
    }
    if (Py_TYPE(b) != type || (!PyFloat_CheckExact(a) && !PyLong_CheckExact(a))) return NULL;
    if (dt_py_scalar_from_object(a, &s) < 0) return NULL;
    return fast_scalar(id, dt_py_tensor_get(b), s, true);
}

PyObject *dt_py_binary(dt_op_id id, PyObject *a, PyObject *b) {
    PyObject *result = try_fast(id, a, b);
    if (DT_LIKELY(result != NULL)) return result;
    if (DT_UNLIKELY(PyErr_Occurred() != NULL)) return NULL;
    return slow_binary(id, a, b);
}

PyObject *dt_py_fast_call(dt_op_id id, PyObject *const *objects, Py_ssize_t n) {
    PyTypeObject *type = dt_state->tensor_type;
    for (Py_ssize_t i = 0; i < n; i++)
        if (Py_TYPE(objects[i]) != type && dt_py_specs[id].params[i].letter != 'S') return NULL;
    if (n == 2) return try_fast(id, objects[0], objects[1]);
    return Py_TYPE(objects[0]) == type ? fast_unary(id, dt_py_tensor_get(objects[0])) : NULL;
}

int dt_py_fast_operands(dt_op_id id) {
    const dt_ew_family *family = plain_family(id);
    return family != NULL && family->nin <= 2 ? family->nin : 0;
}

PyObject *dt_py_binary_inplace(dt_op_id id, PyObject *a, PyObject *b) {
    dt_graveyard_drain();
    dt_op_call call;
    fill_defaults(&call, id, 2);
    call.args[0].kind = call.args[1].kind = DT_ARG_NONE;
    int ok = set_operand(a, &call.args[0]);
    if (ok > 0) ok = set_operand(b, &call.args[1]);
    PyObject *result = NULL;
    if (ok == 0) {
        result = refuse(a, b);
    } else if (ok > 0 && call.args[0].kind != DT_ARG_TENSOR) {
        result = Py_NewRef(Py_NotImplemented);
    } else if (ok > 0) {
        call.target = call.args[0].t;
        call.inplace = true;
        dt_status status = dt_py_dispatch(&call);
        if (status == DT_OK) {
            if (call.outs[0] != NULL) dt_tensor_release(call.outs[0]);
            result = Py_NewRef(a);
        } else {
            (void)dt_py_raise(status);
        }
    }
    release_operands(&call, 2);
    return result;
}

PyObject *dt_py_unary(dt_op_id id, PyObject *a) {
    PyObject *result = fast_unary(id, dt_py_tensor_get(a));
    if (result != NULL || PyErr_Occurred()) return result;
    dt_graveyard_drain();
    dt_op_call call;
    fill_defaults(&call, id, 1);
    call.args[0].kind = DT_ARG_NONE;
    if (set_operand(a, &call.args[0]) > 0) result = dt_py_dispatch_one(&call);
    release_operands(&call, 1);
    return result;
}

/* ---- slots ----------------------------------------------------------------------------------- */

#define BINARY(slot, id)                                                                           \
    static PyObject *slot(PyObject *a, PyObject *b) { return dt_py_binary(DT_OP_##id, a, b); }     \
    static PyObject *slot##_inplace(PyObject *a, PyObject *b) {                                    \
        return dt_py_binary_inplace(DT_OP_##id, a, b);                                             \
    }
#define UNARY(slot, id)                                                                            \
    static PyObject *slot(PyObject *a) { return dt_py_unary(DT_OP_##id, a); }

BINARY(op_add, add)
BINARY(op_subtract, sub)
BINARY(op_multiply, mul)
BINARY(op_true_divide, div)
BINARY(op_floor_divide, floor_divide)
BINARY(op_remainder, remainder)
BINARY(op_and, bitwise_and)
BINARY(op_or, bitwise_or)
BINARY(op_xor, bitwise_xor)
BINARY(op_lshift, bitwise_left_shift)
BINARY(op_rshift, bitwise_right_shift)
UNARY(op_negative, neg)
UNARY(op_absolute, abs)

static PyObject *op_invert(PyObject *a) {
    if (dt_dtype_is_float((dt_dtype)dt_py_tensor_get(a)->dtype)) {
        PyErr_SetString(PyExc_TypeError, "~ (operator.invert) is only implemented on integer and "
                                         "Boolean-type tensors");
        return NULL;
    }
    return dt_py_unary(DT_OP_bitwise_not, a);
}

static PyObject *op_positive(PyObject *a) { return Py_NewRef(a); }

static PyObject *op_power(PyObject *a, PyObject *b, PyObject *modulus) {
    if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
    return dt_py_binary(DT_OP_pow, a, b);
}

static PyObject *op_power_inplace(PyObject *a, PyObject *b, PyObject *modulus) {
    if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
    return dt_py_binary_inplace(DT_OP_pow, a, b);
}

static PyObject *op_matmul(PyObject *a, PyObject *b) {
    if (!dt_py_tensor_check(a) || !dt_py_tensor_check(b)) return refuse(a, b);
    return slow_binary(DT_OP_matmul, a, b);
}

PyObject *dt_py_richcompare(PyObject *a, PyObject *b, int operation) {
    static const dt_op_id ids[] = {[Py_LT] = DT_OP_lt, [Py_LE] = DT_OP_le, [Py_EQ] = DT_OP_eq,
                                   [Py_NE] = DT_OP_ne, [Py_GT] = DT_OP_gt, [Py_GE] = DT_OP_ge};
    return dt_py_binary(ids[operation], a, b);
}

PyType_Slot dt_py_number_slots[] = {
    {Py_nb_add, op_add},
    {Py_nb_inplace_add, op_add_inplace},
    {Py_nb_subtract, op_subtract},
    {Py_nb_inplace_subtract, op_subtract_inplace},
    {Py_nb_multiply, op_multiply},
    {Py_nb_inplace_multiply, op_multiply_inplace},
    {Py_nb_true_divide, op_true_divide},
    {Py_nb_inplace_true_divide, op_true_divide_inplace},
    {Py_nb_floor_divide, op_floor_divide},
    {Py_nb_inplace_floor_divide, op_floor_divide_inplace},
    {Py_nb_remainder, op_remainder},
    {Py_nb_inplace_remainder, op_remainder_inplace},
    {Py_nb_and, op_and},
    {Py_nb_inplace_and, op_and_inplace},
    {Py_nb_or, op_or},
    {Py_nb_inplace_or, op_or_inplace},
    {Py_nb_xor, op_xor},
    {Py_nb_inplace_xor, op_xor_inplace},
    {Py_nb_lshift, op_lshift},
    {Py_nb_inplace_lshift, op_lshift_inplace},
    {Py_nb_rshift, op_rshift},
    {Py_nb_inplace_rshift, op_rshift_inplace},
    {Py_nb_power, op_power},
    {Py_nb_inplace_power, op_power_inplace},
    {Py_nb_matrix_multiply, op_matmul},
    {Py_nb_negative, op_negative},
    {Py_nb_positive, op_positive},
    {Py_nb_absolute, op_absolute},
    {Py_nb_invert, op_invert},
    {0, NULL},
};

/* ---- functions ------------------------------------------------------------------------------- */

/* The registry's functions: those users see in `functions`, every row (overloads too) in `rows`. */
int dt_py_ops_init(PyObject *module) {
    PyObject *functions = PyDict_New(), *rows = PyDict_New();
    int status = functions != NULL && rows != NULL ? 0 : -1;
    for (int i = 0; i < DT_OP_COUNT && status == 0; i++) {
        const dt_py_spec *spec = &dt_py_specs[i];
        PyObject *function = dt_py_op_function_new(spec, DT_PY_OP_FUNCTION);
        if (function == NULL) {
            status = -1;
            break;
        }
        if (dt_op_has(spec->op, 'F'))
            status = PyDict_SetItemString(functions, spec->name, function);
        if (status == 0) status = PyDict_SetItemString(rows, spec->op->full_name, function);
        Py_DECREF(function);
    }
    if (status == 0) status = PyModule_AddObjectRef(module, "functions", functions);
    if (status == 0) status = PyModule_AddObjectRef(module, "rows", rows);
    Py_XDECREF(functions);
    Py_XDECREF(rows);
    return status;
}
