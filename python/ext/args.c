/* args.c: schemas of the registry, compiled once, and the arguments of one call by them.
 *
 * A schema ("T input, S other, *, n alpha=1") becomes an array of parameters; a vectorcall is
 * matched against it by position, then by keyword (interned names: one pointer comparison each),
 * and each object is converted by its letter.  Errors are TypeErrors with torch's wording.
 *
 *   compile:  schema text -> dt_py_spec      (import time)
 *   parse:    objects     -> dt_py_args      (each call)
 *
 * I1: args->call.args[i] belongs to spec->params[i]; all are set when parsing succeeded.
 * I2: every dt_tensor in args is retained until dt_py_args_fini.
 */
#include "python/ext/core.h"

#include <ctype.h>

dt_py_spec dt_py_specs[DT_OP_COUNT];

/* ---- compiling ------------------------------------------------------------------------------- */

/* The default written after "=": an int, a float, True, False, None, () or 'string'. */
static int compile_default(dt_py_param *p, const char *text, size_t length) {
    char *copy = p->default_text;
    if (length >= sizeof p->default_text) goto bad;
    memcpy(copy, text, length);
    copy[length] = 0;
    p->has_default = true;
    dt_arg *a = &p->fallback;
    if (strcmp(copy, "None") == 0) {
        a->kind = DT_ARG_NONE;
    } else if (strcmp(copy, "True") == 0 || strcmp(copy, "False") == 0) {
        a->kind = DT_ARG_BOOL;
        a->i = copy[0] == 'T';
    } else if (strcmp(copy, "()") == 0) {
        a->kind = DT_ARG_DIMS;
        a->dims = &p->fallback_dims;
    } else if (copy[0] == '\'' && length >= 2) {
        char *value = PyMem_Malloc(length - 1); /* lives as long as the spec: for ever */
        if (value == NULL) return -1;
        memcpy(value, text + 1, length - 2);
        value[length - 2] = 0;
        a->kind = DT_ARG_STR;
        a->str = value;
    } else if (p->letter == 'i') {
        a->kind = DT_ARG_INT;
        a->i = strtoll(copy, NULL, 10);
    } else if (p->letter == 'n' || p->letter == 'f' || p->letter == 'S') {
        a->kind = DT_ARG_SCALAR;
        if (p->letter == 'f' || strpbrk(copy, ".e") != NULL) {
            a->s.category = DT_CAT_FLOAT;
            a->s.f = strtod(copy, NULL);
        } else {
            a->s.category = DT_CAT_INT;
            a->s.i = strtoll(copy, NULL, 10);
        }
    } else {
        goto bad;
    }
    return 0;
bad:
    PyErr_Format(PyExc_SystemError, "registry: bad default '%.*s'", (int)length, text);
    return -1;
}

/* One "L? name=default" piece, trimmed. */
static int compile_param(dt_py_spec *spec, const char *text, size_t length, bool keyword_only) {
    if (spec->count == DT_ARGS_MAX || length < 3) {
        PyErr_Format(PyExc_SystemError, "registry: bad schema of %s", spec->op->full_name);
        return -1;
    }
    dt_py_param *p = &spec->params[spec->count];
    p->letter = text[0];
    size_t at = 1;
    if (text[at] == '?') {
        p->nullable = true;
        at++;
    }
    while (at < length && text[at] == ' ') at++;
    size_t end = at;
    while (end < length && text[end] != '=') end++;
    p->name = PyUnicode_FromStringAndSize(text + at, (Py_ssize_t)(end - at));
    if (p->name == NULL) return -1;
    PyUnicode_InternInPlace(&p->name);
    p->text = PyUnicode_AsUTF8(p->name);
    if (p->text == NULL) return -1;
    p->keyword_only = keyword_only;
    if (end < length && compile_default(p, text + end + 1, length - end - 1) < 0) return -1;
    if (!keyword_only) {
        spec->positional = spec->count + 1;
        if (!p->has_default) spec->required = spec->count + 1;
    }
    spec->count++;
    return 0;
}

static bool is_one_of(const char *name, const char *const *list) {
    for (; *list != NULL; list++)
        if (strcmp(*list, name) == 0) return true;
    return false;
}

/* Functions that have no out= in torch. */
static const char *const without_out[] = {"relu",     "clone", "reshape", "flatten",
                                          "positive", "isinf", "isnan",   "masked_fill",
                                          "isfinite", "fill",  "rsub",    NULL};

/* Functions that torch also computes of two numbers. */
static const char *const of_numbers[] = {"add",    "sub",         "mul",          "multiply", "div",
                                         "divide", "true_divide", "floor_divide", NULL};

static int compile(dt_py_spec *spec, const dt_op *op) {
    spec->op = op;
    (void)dt_op_display_name(op, spec->name, sizeof spec->name);
    bool keyword_only = false;
    const char *s = op->schema;
    while (*s != 0) {
        while (*s == ' ' || *s == ',') s++;
        size_t length = 0;
        while (s[length] != 0 && s[length] != ',') length++;
        while (length > 0 && s[length - 1] == ' ') length--;
        if (length == 1 && s[0] == '*')
            keyword_only = true;
        else if (length > 0 && compile_param(spec, s, length, keyword_only) < 0)
            return -1;
        s += length;
    }
    /* torch gives nearly every function that computes something an out=. */
    spec->takes_out =
        dt_op_has(op, 'F') && !dt_op_has(op, 'V') && !is_one_of(spec->name, without_out);
    spec->needs_tensor = spec->params[0].letter == 'S' && !is_one_of(spec->name, of_numbers);
    return 0;
}

int dt_py_specs_compile(void) {
    if (dt_py_specs[0].op != NULL) return 0;
    for (int i = 0; i < DT_OP_COUNT; i++)
        if (compile(&dt_py_specs[i], &dt_op_table[i]) < 0) return -1;
    return 0;
}

/* ---- converting one object ------------------------------------------------------------------- */

const char *dt_py_type_name(PyObject *object) {
    const char *name = Py_TYPE(object)->tp_name;
    if (dt_py_tensor_check(object)) return "Tensor";
    if (strcmp(name, "Tensor") == 0 || strcmp(name, "Parameter") == 0) return "torch.Tensor";
    return name;
}

/* What torch calls the type of a parameter. */
static const char *legal_type(const dt_py_param *p) {
    switch (p->letter) {
    case 'T':
        return "Tensor";
    case 'S':
        return "Tensor or Number";
    case 'n':
        return "Number";
    case 'i':
        return "int";
    case 'f':
        return "float";
    case 'b':
        return "bool";
    case 's':
        return "str";
    case 'L':
        return "tuple of Tensors";
    case 'd':
        return "torch.dtype";
    case 'v':
        return "torch.device";
    default:
        return "tuple of ints";
    }
}

static int wrong_type(const char *function, const dt_py_param *p, int position, PyObject *object) {
    char where[32] = "";
    if (position > 0) (void)snprintf(where, sizeof where, " (position %d)", position);
    const char *advice = "";
    if (p->letter == 'T' || p->letter == 'S') {
        if (dt_py_is_torch_tensor(object))
            advice = ": convert it with dtorch.Tensor() (copies) or dtorch.from_torch() (shares)";
        else if (strncmp(Py_TYPE(object)->tp_name, "numpy.", 6) == 0)
            advice = ": convert it with dtorch.tensor() (copies) or dtorch.from_numpy() (shares)";
    }
    PyErr_Format(PyExc_TypeError, "%s(): argument '%s'%s must be %s%s, not %s%s", function, p->text,
                 where, p->letter == 'T' && *advice ? "dtorch." : "", legal_type(p),
                 dt_py_type_name(object), advice);
    return -1;
}

int dt_py_int_from_object(PyObject *object, int64_t *out) {
    long long value;
    if (PyBool_Check(object)) return 0;
    if (PyLong_Check(object)) {
        int overflow;
        value = PyLong_AsLongLongAndOverflow(object, &overflow);
        if (overflow != 0) {
            PyErr_SetString(PyExc_ValueError, "Overflow when unpacking long long");
            return -1;
        }
        if (value == -1 && PyErr_Occurred()) return -1;
        *out = value;
        return 1;
    }
    if (dt_py_tensor_check(object)) {
        dt_tensor *t = dt_py_tensor_known(object, "an int argument");
        if (t == NULL) return -1;
        if (t->numel != 1 || dt_dtype_category((dt_dtype)t->dtype) != DT_CAT_INT) return 0;
        dt_scalar s;
        if (dt_py_tensor_item(t, "an int argument", &s) < 0) return -1;
        *out = s.i;
        return 1;
    }
    if (!PyIndex_Check(object)) return 0;
    PyObject *number = PyNumber_Index(object);
    if (number == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
        PyErr_Clear();
        return 0;
    }
    int result = dt_py_int_from_object(number, out);
    Py_DECREF(number);
    return result;
}

int dt_py_dims_from_object(PyObject *object, dt_dims *out) {
    int one = dt_py_int_from_object(object, &out->v[0]);
    if (one != 0) {
        out->rank = 1;
        return one;
    }
    if (!PyTuple_Check(object) && !PyList_Check(object)) return 0;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(object);
    if (n > DT_RANK_MAX) {
        PyErr_Format(PyExc_RuntimeError, "%zd dimensions were given; at most %d are supported", n,
                     DT_RANK_MAX);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        if (i >= PySequence_Fast_GET_SIZE(object)) return 0; /* changed by __index__ */
        PyObject *item = PySequence_Fast_GET_ITEM(object, i);
        int ok = dt_py_int_from_object(item, &out->v[i]);
        if (ok <= 0) return ok;
    }
    out->rank = (int)n;
    return 1;
}

int dt_py_dims_from_varargs(const char *function, PyObject *const *objects, Py_ssize_t count,
                            dt_dims *out) {
    if (count == 1) {
        int ok = dt_py_dims_from_object(objects[0], out);
        if (ok > 0) return 0;
        if (ok < 0) return -1;
        PyErr_Format(PyExc_TypeError,
                     "%s(): argument 'size' (position 1) must be tuple of ints, not %s", function,
                     dt_py_type_name(objects[0]));
        return -1;
    }
    if (count > DT_RANK_MAX) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s(): %zd dimensions were given; at most %d are supported", function, count,
                     DT_RANK_MAX);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        int ok = dt_py_int_from_object(objects[i], &out->v[i]);
        if (ok > 0) continue;
        if (ok == 0)
            PyErr_Format(PyExc_TypeError,
                         "%s(): argument 'size' failed to unpack the object at pos %zd with error "
                         "\"type must be tuple of ints,but got %s\"",
                         function, i + 1, dt_py_type_name(objects[i]));
        return -1;
    }
    out->rank = (int)count;
    return 0;
}

static int convert_list(PyObject *object, dt_py_args *args, dt_arg *a) {
    if (!PyTuple_Check(object) && !PyList_Check(object)) return 0;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(object);
    if (n > DT_PY_LIST_INLINE) {
        if (n > 65000) {
            PyErr_Format(PyExc_ValueError, "a list of %zd tensors is too long; at most 65000", n);
            return -1;
        }
        args->list = PyMem_New(dt_tensor *, n);
        if (args->list == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        args->list_capacity = (int)n;
    } else {
        args->list = args->list_inline;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(object, i);
        if (!dt_py_tensor_check(item)) {
            PyErr_Format(PyExc_TypeError,
                         "expected Tensor as element %zd in argument 0, but got %s", i,
                         dt_py_type_name(item));
            return -1;
        }
        dt_tensor *t = dt_py_tensor_known(item, DT_PY_AN_OPERATION);
        if (t == NULL) return -1;
        args->list[args->nlist++] = dt_tensor_retain(t);
    }
    a->kind = DT_ARG_TENSORS;
    a->list.v = args->list;
    a->list.n = args->nlist;
    return 1;
}

static int convert_dims(PyObject *object, dt_py_args *args, dt_arg *a) {
    if (args->ndims == DT_PY_DIMS_MAX) {
        PyErr_SetString(PyExc_SystemError, "registry: too many dims parameters");
        return -1;
    }
    dt_dims *dims = &args->dims[args->ndims++];
    int ok = dt_py_dims_from_object(object, dims);
    a->kind = DT_ARG_DIMS;
    a->dims = dims;
    return ok;
}

/* A str, or one of torch's memory formats. */
static int convert_str(PyObject *object, dt_arg *a) {
    static const char *const formats[] = {"torch.preserve_format", "torch.contiguous_format",
                                          "torch.channels_last", "torch.channels_last_3d"};
    a->kind = DT_ARG_STR;
    if (PyUnicode_Check(object)) {
        a->str = PyUnicode_AsUTF8(object);
        return a->str != NULL ? 1 : -1;
    }
    if (strcmp(Py_TYPE(object)->tp_name, "torch.memory_format") != 0) return 0;
    PyObject *text = PyObject_Str(object);
    if (text == NULL) return -1;
    int found = 0;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (PyUnicode_CompareWithASCIIString(text, formats[i]) != 0) continue;
        a->str = formats[i];
        found = 1;
    }
    Py_DECREF(text);
    return found;
}

/* A number, or a 0-dim tensor that is read. */
static int convert_number(PyObject *object, char letter, dt_arg *a) {
    a->kind = DT_ARG_SCALAR;
    int ok;
    if (dt_py_tensor_check(object)) {
        if (dt_py_tensor_get(object)->rank != 0) return 0;
        ok = dt_py_tensor_item(dt_py_tensor_get(object), "a number argument", &a->s) < 0 ? -1 : 1;
    } else {
        ok = dt_py_scalar_from_object(object, &a->s);
    }
    if (ok == 1 && letter == 'f') {
        a->s.f = dt_scalar_f64(a->s);
        a->s.category = DT_CAT_FLOAT;
    }
    return ok;
}

/* 1 converted, 0 wrong type, -1 error. */
static int convert(const dt_py_param *p, PyObject *object, dt_py_args *args, dt_arg *a) {
    if (object == Py_None && p->nullable) {
        a->kind = DT_ARG_NONE;
        return 1;
    }
    switch (p->letter) {
    case 'T':
    case 'S':
        if (dt_py_tensor_check(object)) {
            dt_tensor *t = dt_py_tensor_known(object, DT_PY_AN_OPERATION);
            if (t == NULL) return -1;
            a->kind = DT_ARG_TENSOR;
            a->t = dt_tensor_retain(t);
            return 1;
        }
        return p->letter == 'S' ? convert_number(object, 'S', a) : 0;
    case 'n':
    case 'f':
        return convert_number(object, p->letter, a);
    case 'i':
        a->kind = DT_ARG_INT;
        return dt_py_int_from_object(object, &a->i);
    case 'b':
        if (!PyBool_Check(object) && strncmp(Py_TYPE(object)->tp_name, "numpy.bool", 10) != 0)
            return 0;
        a->kind = DT_ARG_BOOL;
        a->i = PyObject_IsTrue(object);
        return a->i < 0 ? -1 : 1;
    case 's':
        return convert_str(object, a);
    case 'D':
    case 'Z':
        return convert_dims(object, args, a);
    case 'L':
        return convert_list(object, args, a);
    case 'd':
        a->kind = DT_ARG_DTYPE;
        if (dt_py_dtype_try(object, &a->dtype)) return 1;
        /* A dtype of torch's that we do not have, or a misspelt name: say so. */
        if (dt_py_dtype_from_object(object, &a->dtype) == 0) return 1;
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
        if (PyUnicode_Check(object) || strcmp(Py_TYPE(object)->tp_name, "torch.dtype") == 0)
            return -1;
        PyErr_Clear();
        return 0;
    default:
        PyErr_SetString(PyExc_SystemError, "registry: unknown letter");
        return -1;
    }
}

/* ---- parsing --------------------------------------------------------------------------------- */

/* torch's second names: axis, keepdims; x, a, x1, x2 from numpy and the array API. */
static bool is_alias(const dt_py_param *p, const char *key) {
    static const char *const pairs[][2] = {{"dim", "axis"}, {"keepdim", "keepdims"},
                                           {"input", "x"},  {"input", "a"},
                                           {"input", "x1"}, {"other", "x2"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (strcmp(p->text, pairs[i][0]) == 0 && strcmp(key, pairs[i][1]) == 0) return true;
    return false;
}

/* The index of the parameter called key; -1: none, -2: error. */
static int find_param(const dt_py_spec *spec, PyObject *key) {
    for (int i = 0; i < spec->count; i++)
        if (spec->params[i].name == key) return i;
    const char *text = PyUnicode_AsUTF8(key);
    if (text == NULL) return -2;
    for (int i = 0; i < spec->count; i++)
        if (strcmp(spec->params[i].text, text) == 0 || is_alias(&spec->params[i], text)) return i;
    return -1;
}

static int parse_keyword(const dt_py_spec *spec, const char *name, bool method, PyObject *key,
                         PyObject *object, uint32_t *given, dt_py_args *args) {
    int i = find_param(spec, key);
    if (i == -2) return -1;
    if (i < 0 && spec->takes_out && !method && PyUnicode_CompareWithASCIIString(key, "out") == 0) {
        if (object != Py_None && !dt_py_tensor_check(object)) {
            PyErr_Format(PyExc_TypeError, "%s(): argument 'out' must be Tensor, not %s", name,
                         dt_py_type_name(object));
            return -1;
        }
        args->out = object;
        return 0;
    }
    if (i < 0 || (method && i == 0)) {
        PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", name, key);
        return -1;
    }
    if (*given & (1u << i)) {
        PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", name, key);
        return -1;
    }
    *given |= 1u << i;
    int ok = convert(&spec->params[i], object, args, &args->call.args[i]);
    return ok > 0 ? 0 : ok < 0 ? -1 : wrong_type(name, &spec->params[i], 0, object);
}

/* A method's last parameter of kind Z takes the rest of the positions: x.view(2, 3). */
static int parse_varargs(const dt_py_spec *spec, const char *name, PyObject *const *objects,
                         Py_ssize_t count, dt_py_args *args) {
    int i = spec->positional - 1;
    dt_arg *a = &args->call.args[i];
    dt_dims *dims = &args->dims[args->ndims++];
    a->kind = DT_ARG_DIMS;
    a->dims = dims;
    if (count > DT_RANK_MAX) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s(): %zd dimensions were given; at most %d are supported", name, count,
                     DT_RANK_MAX);
        return -1;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        int ok = dt_py_int_from_object(objects[k], &dims->v[k]);
        if (ok < 0) return -1;
        if (ok == 0) {
            PyErr_Format(PyExc_TypeError,
                         "%s(): argument '%s' failed to unpack the object at pos %zd with error "
                         "\"type must be tuple of ints,but got %s\"",
                         name, spec->params[i].text, k + 1, dt_py_type_name(objects[k]));
            return -1;
        }
    }
    dims->rank = (int)count;
    return 0;
}

static const char *const category_names[] = {
    [DT_CAT_BOOL] = "bool", [DT_CAT_INT] = "int", [DT_CAT_FLOAT] = "float"};

/* Defaults, and the error for what is missing. */
static int fill_rest(const dt_py_spec *spec, const char *name, uint32_t given, dt_py_args *args) {
    for (int i = 0; i < spec->count; i++) {
        if (given & (1u << i)) continue;
        const dt_py_param *p = &spec->params[i];
        if (!p->has_default) {
            PyErr_Format(PyExc_TypeError, "%s() missing 1 required positional arguments: \"%s\"",
                         name, p->text);
            return -1;
        }
        args->call.args[i] = p->fallback;
    }
    return 0;
}

int dt_py_args_parse(const dt_py_spec *spec, const char *name, bool method,
                     PyObject *const *objects, Py_ssize_t nobjects, PyObject *kwnames,
                     dt_py_args *args) {
    dt_op_call_init(&args->call, (dt_op_id)spec->op->id);
    args->call.nargs = spec->count;
    /* A parse that fails half-way is followed by dt_py_args_fini. */
    for (int i = 0; i < spec->count; i++) args->call.args[i].kind = DT_ARG_NONE;
    args->ndims = args->nlist = args->list_capacity = 0;
    args->out = NULL;
    uint32_t given = 0;
    Py_ssize_t count = nobjects;
    int last = spec->positional - 1;
    bool varargs = method && last > 0 && spec->params[last].letter == 'Z' && nobjects > last &&
                   (nobjects > spec->positional || PyIndex_Check(objects[last])) &&
                   !PyTuple_Check(objects[last]) && !PyList_Check(objects[last]);
    if (varargs) {
        if (parse_varargs(spec, name, objects + last, nobjects - last, args) < 0) return -1;
        given |= 1u << last;
        count = last;
    }
    if (count > spec->positional) {
        PyErr_Format(PyExc_TypeError, "%s() takes %d positional argument%s but %zd %s given", name,
                     spec->positional - method, spec->positional - method == 1 ? "" : "s",
                     count - method, count - method == 1 ? "was" : "were");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        const dt_py_param *p = &spec->params[i];
        int ok = convert(p, objects[i], args, &args->call.args[i]);
        if (ok < 0) return -1;
        if (ok == 0) return wrong_type(name, p, (int)i + 1 - method, objects[i]);
        given |= 1u << i;
    }
    Py_ssize_t nkeywords = kwnames != NULL ? PyTuple_GET_SIZE(kwnames) : 0;
    for (Py_ssize_t k = 0; k < nkeywords; k++)
        if (parse_keyword(spec, name, method, PyTuple_GET_ITEM(kwnames, k), objects[nobjects + k],
                          &given, args) < 0)
            return -1;
    if (fill_rest(spec, name, given, args) < 0) return -1;
    if (!spec->needs_tensor) return 0;
    for (int i = 0; i < spec->count; i++)
        if (args->call.args[i].kind == DT_ARG_TENSOR) return 0;
    PyErr_Format(PyExc_TypeError,
                 "%s() received an invalid combination of arguments - got (%s, %s), but one of "
                 "'%s' and '%s' must be a Tensor",
                 name, category_names[args->call.args[0].s.category],
                 category_names[args->call.args[1].s.category], spec->params[0].text,
                 spec->params[1].text);
    return -1;
}

void dt_py_args_fini(dt_py_args *args) {
    for (int i = 0; i < args->call.nargs; i++)
        if (args->call.args[i].kind == DT_ARG_TENSOR) dt_tensor_release(args->call.args[i].t);
    for (int i = 0; i < args->nlist; i++) dt_tensor_release(args->list[i]);
    if (args->list_capacity > 0) PyMem_Free(args->list);
}
