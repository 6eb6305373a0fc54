/* dtype.c: torch's dtype objects at the API, and Python numbers.
 *
 * `x.dtype is torch.float32` must hold, and importing dtorch must not import torch.  So the objects
 * are fetched when first asked for, by dtorch._torch.dtype_object(), which imports torch where it
 * is installed and otherwise answers with stand-ins; they are kept in the module state for
 * identity. Names ("float32", "torch.float32", "half") and Python's bool, int and float are
 * accepted everywhere.
 *
 * I1: dt_state->dtypes[d] never changes once set.
 */
#include "python/ext/core.h"

PyObject *dt_py_call_helper(const char *module, const char *name, PyObject *argument) {
    char full[64];
    (void)snprintf(full, sizeof full, "dtorch.%s", module);
    PyObject *m = PyImport_ImportModule(full);
    if (m == NULL) return NULL;
    PyObject *function = PyObject_GetAttrString(m, name);
    Py_DECREF(m);
    if (function == NULL) return NULL;
    PyObject *result =
        argument != NULL ? PyObject_CallOneArg(function, argument) : PyObject_CallNoArgs(function);
    Py_DECREF(function);
    return result;
}

PyObject *dt_py_dtype_object(dt_dtype dtype) {
    PyObject *object = dt_state->dtypes[dtype];
    if (DT_LIKELY(object != NULL)) return Py_NewRef(object);
    PyObject *name = PyUnicode_FromString(dt_dtype_table[dtype].name);
    if (name == NULL) return NULL;
    object = dt_py_call_helper("_torch", "dtype_object", name);
    Py_DECREF(name);
    if (object == NULL) return NULL;
    if (dt_state->dtypes[dtype] == NULL) dt_state->dtypes[dtype] = Py_NewRef(object);
    return object;
}

static bool is_dtype_object(PyObject *object) {
    const char *name = Py_TYPE(object)->tp_name;
    return strcmp(name, "torch.dtype") == 0 || strcmp(name, "dtype") == 0;
}

/* The name that a dtype object prints as ("torch.float32"); parsed. */
static dt_dtype parse_object(PyObject *object) {
    PyObject *text = PyUnicode_Check(object) ? Py_NewRef(object) : PyObject_Str(object);
    const char *name = text != NULL ? PyUnicode_AsUTF8(text) : NULL;
    dt_dtype found = DT_DTYPE_NONE;
    if (name != NULL)
        found = dt_dtype_parse(strncmp(name, "dtorch.", 7) == 0 ? name + 7 : name);
    else
        PyErr_Clear();
    Py_XDECREF(text);
    return found;
}

bool dt_py_dtype_try(PyObject *object, dt_dtype *out) {
    for (int d = 0; d < DT_DTYPE_COUNT; d++) {
        if (dt_state->dtypes[d] != object) continue;
        *out = (dt_dtype)d;
        return true;
    }
    dt_dtype found = DT_DTYPE_NONE;
    if (object == (PyObject *)&PyFloat_Type)
        found = DT_F64;
    else if (object == (PyObject *)&PyLong_Type)
        found = DT_I64;
    else if (object == (PyObject *)&PyBool_Type)
        found = DT_BOOL;
    else if (PyUnicode_Check(object) || is_dtype_object(object))
        found = parse_object(object);
    if (found == DT_DTYPE_NONE) return false;
    *out = found;
    if (is_dtype_object(object) && dt_state->dtypes[found] == NULL)
        dt_state->dtypes[found] = Py_NewRef(object);
    return true;
}

static void list_names(char *buffer, size_t size) {
    size_t used = 0;
    buffer[0] = 0;
    for (int d = 0; d < DT_DTYPE_COUNT && used < size; d++)
        used += (size_t)snprintf(buffer + used, size - used, "%s%s", d > 0 ? ", " : "",
                                 dt_dtype_table[d].name);
}

int dt_py_dtype_from_object(PyObject *object, dt_dtype *out) {
    if (dt_py_dtype_try(object, out)) return 0;
    char names[160];
    list_names(names, sizeof names);
    if (PyUnicode_Check(object) || is_dtype_object(object))
        PyErr_Format(PyExc_TypeError, "dtype %R is not supported; the supported ones are: %s",
                     object, names);
    else
        PyErr_Format(PyExc_TypeError, "dtype must be torch.dtype or its name, not %s",
                     dt_py_type_name(object));
    return -1;
}

int dt_py_dtype_or_none(PyObject *object, dt_dtype *out) {
    if (object != NULL && object != Py_None) return dt_py_dtype_from_object(object, out);
    *out = DT_DTYPE_NONE;
    return 0;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static int from_int(PyObject *number, dt_scalar *out) {
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow != 0) {
        PyErr_SetString(PyExc_ValueError, "Overflow when unpacking long long");
        return -1;
    }
    if (value == -1 && PyErr_Occurred()) return -1;
    out->category = DT_CAT_INT;
    out->i = value;
    return 1;
}

/* numpy's scalars, without importing numpy. */
static int from_numpy_scalar(PyObject *number, dt_scalar *out) {
    const char *name = Py_TYPE(number)->tp_name;
    if (strncmp(name, "numpy.bool", 10) == 0) {
        int truth = PyObject_IsTrue(number);
        out->category = DT_CAT_BOOL;
        out->i = truth;
        return truth < 0 ? -1 : 1;
    }
    if (strcmp(name, "numpy.ndarray") == 0 || strncmp(name, "numpy.complex", 13) == 0) return 0;
    if (PyIndex_Check(number)) {
        PyObject *integer = PyNumber_Index(number);
        if (integer == NULL) return -1;
        int result = from_int(integer, out);
        Py_DECREF(integer);
        return result;
    }
    if (strncmp(name, "numpy.float", 11) != 0) return 0;
    double value = PyFloat_AsDouble(number);
    if (value == -1.0 && PyErr_Occurred()) return -1;
    out->category = DT_CAT_FLOAT;
    out->f = value;
    return 1;
}

int dt_py_scalar_from_object(PyObject *number, dt_scalar *out) {
    if (PyFloat_Check(number)) {
        out->category = DT_CAT_FLOAT;
        out->f = PyFloat_AS_DOUBLE(number);
        return 1;
    }
    if (PyBool_Check(number)) {
        out->category = DT_CAT_BOOL;
        out->i = number == Py_True;
        return 1;
    }
    if (PyLong_Check(number)) return from_int(number, out);
    if (strncmp(Py_TYPE(number)->tp_name, "numpy.", 6) == 0) return from_numpy_scalar(number, out);
    if (PyIndex_Check(number) && !dt_py_tensor_check(number) && !dt_py_is_torch_tensor(number)) {
        PyObject *integer = PyNumber_Index(number);
        if (integer == NULL) {
            PyErr_Clear();
            return 0;
        }
        int result = from_int(integer, out);
        Py_DECREF(integer);
        return result;
    }
    return 0;
}

PyObject *dt_py_scalar_object(dt_scalar value, dt_dtype dtype) {
    switch (dt_dtype_category(dtype)) {
    case DT_CAT_BOOL:
        return PyBool_FromLong(dt_scalar_bool(value));
    case DT_CAT_INT:
        return PyLong_FromLongLong(dt_scalar_i64(value));
    case DT_CAT_FLOAT:
        break;
    }
    return PyFloat_FromDouble(dt_scalar_f64(value));
}

/* ---- module functions ------------------------------------------------------------------------ */

static PyObject *dtype_name(PyObject *module, PyObject *object) {
    (void)module;
    dt_dtype dtype;
    if (dt_py_dtype_from_object(object, &dtype) < 0) return NULL;
    return PyUnicode_FromString(dt_dtype_table[dtype].name);
}

static PyObject *is_dtype(PyObject *module, PyObject *object) {
    (void)module;
    dt_dtype dtype;
    return PyBool_FromLong(dt_py_dtype_try(object, &dtype));
}

static PyObject *dtype_of(PyObject *module, PyObject *object) {
    (void)module;
    dt_dtype dtype;
    if (dt_py_dtype_from_object(object, &dtype) < 0) return NULL;
    return dt_py_dtype_object(dtype);
}

static PyObject *promote_types(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *a, *b;
    dt_dtype da, db;
    if (!PyArg_ParseTuple(args, "OO:promote_types", &a, &b)) return NULL;
    if (dt_py_dtype_from_object(a, &da) < 0 || dt_py_dtype_from_object(b, &db) < 0) return NULL;
    return dt_py_dtype_object(dt_dtype_promote(da, db));
}

static PyObject *can_cast(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"from_", "to", NULL};
    PyObject *a, *b;
    dt_dtype da, db;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:can_cast", names, &a, &b)) return NULL;
    if (dt_py_dtype_from_object(a, &da) < 0 || dt_py_dtype_from_object(b, &db) < 0) return NULL;
    return PyBool_FromLong(dt_dtype_can_cast(da, db));
}

static int add_to_promotion(dt_promotion *promotion, PyObject *object) {
    if (dt_py_tensor_check(object)) {
        dt_promotion_add_tensor(promotion, dt_py_tensor_get(object));
        return 0;
    }
    dt_scalar s;
    int ok = dt_py_scalar_from_object(object, &s);
    if (ok > 0) dt_promotion_add_scalar(promotion, s);
    if (ok == 0)
        PyErr_Format(PyExc_TypeError, "result_type(): expected Tensor or Number, but got %s",
                     dt_py_type_name(object));
    return ok > 0 ? 0 : -1;
}

static PyObject *result_type(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *a, *b;
    dt_promotion promotion = DT_PROMOTION_INIT;
    if (!PyArg_ParseTuple(args, "OO:result_type", &a, &b)) return NULL;
    if (add_to_promotion(&promotion, a) < 0 || add_to_promotion(&promotion, b) < 0) return NULL;
    return dt_py_dtype_object(dt_promotion_result(&promotion));
}

static PyObject *get_default_dtype(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    return dt_py_dtype_object(dt_default_dtype());
}

static PyObject *default_dtype_name(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    return PyUnicode_FromString(dt_dtype_table[dt_default_dtype()].name);
}

static PyObject *set_default_dtype(PyObject *module, PyObject *object) {
    (void)module;
    dt_dtype dtype;
    if (dt_py_dtype_from_object(object, &dtype) < 0) return NULL;
    dt_status status = dt_default_dtype_set(dtype);
    if (status != DT_OK) return dt_py_raise(status);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"dtype_name", dtype_name, METH_O, "The name (\"float32\") of a dtype or of a name for one."},
    {"is_dtype", is_dtype, METH_O, "Whether it is a dtype of ours or the name of one."},
    {"dtype_of", dtype_of, METH_O, "The dtype object for a dtype or a name of one."},
    {"promote_types", promote_types, METH_VARARGS, "promote_types(type1, type2) -> dtype"},
    {"result_type", result_type, METH_VARARGS, "result_type(tensor1, tensor2) -> dtype"},
    {"can_cast", (PyCFunction)(void (*)(void))can_cast, METH_VARARGS | METH_KEYWORDS,
     "can_cast(from_, to) -> bool"},
    {"get_default_dtype", get_default_dtype, METH_NOARGS, "get_default_dtype() -> dtype"},
    {"default_dtype_name", default_dtype_name, METH_NOARGS, NULL},
    {"set_default_dtype", set_default_dtype, METH_O, "set_default_dtype(dtype)"},
    {NULL, NULL, 0, NULL},
};

int dt_py_dtype_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
