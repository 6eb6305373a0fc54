/* mesh.c: what the package's distributed half asks of the core: meshes, parts, creation on a mesh.
 *
 * A mesh is known to Python by its number, a placement by a code: kind + 256 * dim (runtime/mesh.h
 * names the kinds).  The classes that users see are written in Python over these.
 */
#include "python/ext/core.h"

#include <string.h>

#include "futures/place.h"
#include "runtime/dist.h"

/* ---- arguments ------------------------------------------------------------------------------- */

const dt_mesh *dt_py_mesh_from_object(PyObject *object) {
    unsigned long id = PyLong_AsUnsignedLong(object);
    if (PyErr_Occurred()) return NULL;
    const dt_mesh *mesh = id <= UINT32_MAX ? dt_mesh_by_id((uint32_t)id) : NULL;
    if (mesh == NULL) PyErr_Format(PyExc_ValueError, "there is no mesh number %lu", id);
    return mesh;
}

int dt_py_placements_from_object(const dt_mesh *mesh, PyObject *object, dt_placement *out) {
    PyObject *codes = PySequence_Fast(object, "placement codes must be a sequence");
    if (codes == NULL) return -1;
    int status = 0;
    if (PySequence_Fast_GET_SIZE(codes) != mesh->rank) {
        PyErr_Format(PyExc_ValueError, "a mesh of %d dims needs %d placements, got %zd", mesh->rank,
                     mesh->rank, PySequence_Fast_GET_SIZE(codes));
        status = -1;
    }
    for (int m = 0; m < mesh->rank && status == 0; m++) {
        long code = PyLong_AsLong(PySequence_Fast_GET_ITEM(codes, m));
        if (code == -1 && PyErr_Occurred()) {
            status = -1;
        } else if (code < 0 || code % 256 >= DT_PLACEMENT_KINDS || code / 256 >= DT_RANK_MAX) {
            PyErr_Format(PyExc_ValueError, "%ld is no placement code", code);
            status = -1;
        } else {
            out[m] = (dt_placement){(uint8_t)(code % 256), (uint8_t)(code / 256)};
        }
    }
    Py_DECREF(codes);
    return status;
}

static int ints_from_object(PyObject *object, int32_t *out, Py_ssize_t room, const char *what) {
    PyObject *list = PySequence_Fast(object, what);
    if (list == NULL) return -1;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(list);
    if (n > room) {
        PyErr_Format(PyExc_ValueError, "%s: at most %zd, got %zd", what, room, n);
        n = -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        long value = PyLong_AsLong(PySequence_Fast_GET_ITEM(list, i));
        if (value == -1 && PyErr_Occurred()) {
            n = -1;
        } else if (value < INT32_MIN || value > INT32_MAX) {
            PyErr_Format(PyExc_ValueError, "%s: %ld is too large", what, value);
            n = -1;
        } else {
            out[i] = (int32_t)value;
        }
    }
    Py_DECREF(list);
    return (int)n;
}

/* ---- meshes ---------------------------------------------------------------------------------- */

static int names_from_object(PyObject *object, int rank, const char **names) {
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != rank) {
        PyErr_Format(PyExc_ValueError, "mesh_dim_names must be %d strings", rank);
        return -1;
    }
    for (int d = 0; d < rank; d++) {
        names[d] = PyUnicode_AsUTF8(PyTuple_GET_ITEM(object, d));
        if (names[d] == NULL) return -1;
    }
    return 0;
}

/* mesh_new(is_cuda, shape, ids, names or None) -> number */
static PyObject *mesh_new(PyObject *module, PyObject *args) {
    (void)module;
    int is_cuda;
    PyObject *shape_object, *ids_object, *names_object;
    int32_t shape[DT_MESH_RANK_MAX], ids[DT_MESH_DEVICES_MAX];
    const char *names[DT_MESH_RANK_MAX];
    if (!PyArg_ParseTuple(args, "pOOO", &is_cuda, &shape_object, &ids_object, &names_object))
        return NULL;
    int rank = ints_from_object(shape_object, shape, DT_MESH_RANK_MAX, "dims of a mesh");
    if (rank < 0) return NULL;
    int count = ints_from_object(ids_object, ids, DT_MESH_DEVICES_MAX, "devices of a mesh");
    if (count < 0) return NULL;
    int64_t size = 1;
    for (int d = 0; d < rank; d++) size *= shape[d] < 0 ? 0 : shape[d];
    if (size > 0 && size != count) {
        PyErr_Format(PyExc_ValueError, "a mesh of %lld devices needs as many ids, got %d",
                     (long long)size, count);
        return NULL;
    }
    bool named = names_object != Py_None;
    if (named && names_from_object(names_object, rank, names) < 0) return NULL;
    const dt_mesh *mesh;
    dt_status status = dt_mesh_get(is_cuda ? DT_DEVICE_CUDA : DT_DEVICE_CPU, rank, shape, ids,
                                   named ? names : NULL, &mesh);
    return status == DT_OK ? PyLong_FromUnsignedLong(mesh->id) : dt_py_raise(status);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static PyObject *codes_of(const dt_dist *d) {
    PyObject *codes = PyTuple_New(d->mesh->rank);
    for (int m = 0; m < d->mesh->rank && codes != NULL; m++) {
        PyObject *code = PyLong_FromLong(d->placements[m].kind + 256L * d->placements[m].dim);
        if (code == NULL) Py_CLEAR(codes);
        if (codes != NULL) PyTuple_SET_ITEM(codes, m, code);
    }
    return codes;
}

/* dist_spec(tensor) -> (mesh number, placement codes), or None for one that is on no mesh */
static PyObject *dist_spec(PyObject *module, PyObject *object) {
    (void)module;
    if (!dt_py_tensor_check(object)) {
        PyErr_SetString(PyExc_TypeError, "not a Tensor");
        return NULL;
    }
    const dt_tensor *t = dt_py_tensor_get(object);
    if (!dt_tensor_is_dist(t)) Py_RETURN_NONE;
    PyObject *codes = codes_of(dt_dist_of(t));
    return codes != NULL ? Py_BuildValue("(kN)", (unsigned long)dt_dist_of(t)->mesh->id, codes)
                         : NULL;
}

static PyObject *int64_tuple(int n, const int64_t *v) {
    PyObject *tuple = PyTuple_New(n);
    for (int d = 0; d < n && tuple != NULL; d++) {
        PyObject *item = PyLong_FromLongLong(v[d]);
        if (item == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, d, item);
    }
    return tuple;
}

/* A shape, and Shards of it. 0 or -1. */
static int shape_from_object(PyObject *object, const dt_mesh *mesh, const dt_placement *placements,
                             dt_dims *shape) {
    int known = dt_py_dims_from_object(object, shape);
    if (known == 0) PyErr_SetString(PyExc_TypeError, "shape must be ints");
    if (known <= 0) return -1;
    for (int m = 0; m < mesh->rank; m++) {
        if (placements[m].kind != DT_SHARD || placements[m].dim < shape->rank) continue;
        PyErr_Format(dt_state->placement_error, "Shard(%d) of a tensor with %d dimensions",
                     placements[m].dim, shape->rank);
        return -1;
    }
    return 0;
}

/* dist_box(mesh number, placement codes, shape, index) -> (start, size) of what that device holds
 */
static PyObject *dist_box(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *mesh_object, *codes, *shape_object;
    int index;
    if (!PyArg_ParseTuple(args, "OOOi", &mesh_object, &codes, &shape_object, &index)) return NULL;
    const dt_mesh *mesh = dt_py_mesh_from_object(mesh_object);
    dt_placement placements[DT_MESH_RANK_MAX];
    dt_dims shape;
    if (mesh == NULL || dt_py_placements_from_object(mesh, codes, placements) < 0) return NULL;
    if (shape_from_object(shape_object, mesh, placements, &shape) < 0) return NULL;
    if (index < 0 || index >= mesh->size) {
        PyErr_Format(PyExc_IndexError, "there is no device %d", index);
        return NULL;
    }
    dt_box box;
    dt_layout_part(mesh, placements, shape.rank, shape.v, index, &box);
    PyObject *start = int64_tuple(shape.rank, box.start);
    PyObject *size = start != NULL ? int64_tuple(shape.rank, box.size) : NULL;
    if (size == NULL) {
        Py_XDECREF(start);
        return NULL;
    }
    return Py_BuildValue("(NN)", start, size);
}

/* dist_part(tensor, index) -> the tensor of that device, sharing its bytes */
static PyObject *dist_part(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *object;
    int index;
    if (!PyArg_ParseTuple(args, "O!i", dt_state->tensor_type, &object, &index)) return NULL;
    dt_tensor *t = dt_py_tensor_get(object);
    int count;
    dt_tensor *const *parts = dt_tensor_parts(&t, &count);
    if (index < 0 || index >= count) {
        PyErr_Format(PyExc_IndexError, "the mesh has %d devices, there is no number %d", count,
                     index);
        return NULL;
    }
    return dt_py_tensor_wrap(dt_tensor_retain(parts[index]));
}

static int take_parts(PyObject *list, const dt_mesh *mesh, const dt_placement *placements,
                      const dt_dims *shape, dt_tensor **parts) {
    if (PySequence_Fast_GET_SIZE(list) != mesh->size) {
        PyErr_Format(PyExc_ValueError, "a mesh of %d devices needs as many parts, got %zd",
                     mesh->size, PySequence_Fast_GET_SIZE(list));
        return -1;
    }
    for (int k = 0; k < mesh->size; k++) {
        PyObject *item = PySequence_Fast_GET_ITEM(list, k);
        if (!dt_py_tensor_check(item)) {
            PyErr_Format(PyExc_TypeError, "part %d must be a Tensor, not %.100s", k,
                         Py_TYPE(item)->tp_name);
            return -1;
        }
        dt_tensor *t = dt_py_tensor_known(item, "Making a tensor of its parts");
        if (t == NULL) return -1;
        dt_box box;
        dt_layout_part(mesh, placements, shape->rank, shape->v, k, &box);
        bool fits = !dt_tensor_is_dist(t) && t->rank == shape->rank;
        for (int d = 0; fits && d < t->rank; d++) fits = t->shape[d] == box.size[d];
        if (!fits) {
            char want[200], have[200];
            PyErr_Format(PyExc_ValueError, "part %d must have shape %s, got %s", k,
                         dt_shape_format(shape->rank, box.size, want, sizeof want),
                         dt_shape_format(t->rank, t->shape, have, sizeof have));
            return -1;
        }
        if (k > 0 && t->dtype != parts[0]->dtype) {
            PyErr_Format(PyExc_TypeError, "part %d has another dtype than part 0", k);
            return -1;
        }
        parts[k] = dt_tensor_retain(t);
    }
    return 0;
}

/* dist_new(parts, mesh number, placement codes, shape) -> Tensor over the very parts */
static PyObject *dist_new(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *parts_object, *mesh_object, *codes, *shape_object;
    if (!PyArg_ParseTuple(args, "OOOO", &parts_object, &mesh_object, &codes, &shape_object))
        return NULL;
    const dt_mesh *mesh = dt_py_mesh_from_object(mesh_object);
    dt_placement placements[DT_MESH_RANK_MAX];
    if (mesh == NULL || dt_py_placements_from_object(mesh, codes, placements) < 0) return NULL;
    dt_dims shape;
    if (shape_from_object(shape_object, mesh, placements, &shape) < 0) return NULL;
    PyObject *list = PySequence_Fast(parts_object, "parts must be a sequence of tensors");
    if (list == NULL) return NULL;
    dt_tensor *parts[DT_MESH_DEVICES_MAX] = {NULL}, *t;
    PyObject *result = NULL;
    if (take_parts(list, mesh, placements, &shape, parts) == 0) {
        dt_status status = dt_dist_new((dt_dtype)parts[0]->dtype, shape.rank, shape.v, NULL, 0,
                                       mesh, placements, parts, &t);
        if (status == DT_OK) {
            memset(parts, 0, sizeof *parts * (size_t)mesh->size);
            result = dt_py_tensor_wrap(t);
        } else {
            (void)dt_py_raise(status);
        }
    }
    for (int k = 0; k < mesh->size; k++)
        if (parts[k] != NULL) dt_tensor_release(parts[k]);
    Py_DECREF(list);
    return result;
}

/* on_mesh(mesh number, placement codes, row name, *arguments) -> what that creation row makes */
static PyObject *on_mesh(PyObject *module, PyObject *const *objects, Py_ssize_t n) {
    (void)module;
    if (n < 3) {
        PyErr_SetString(PyExc_TypeError, "on_mesh(mesh, placements, row, *arguments)");
        return NULL;
    }
    const dt_mesh *mesh = dt_py_mesh_from_object(objects[0]);
    dt_placement placements[DT_MESH_RANK_MAX];
    if (mesh == NULL || dt_py_placements_from_object(mesh, objects[1], placements) < 0) return NULL;
    const char *row = PyUnicode_AsUTF8(objects[2]);
    if (row == NULL) return NULL;
    const dt_py_spec *spec = NULL;
    for (int k = 0; k < DT_OP_COUNT && spec == NULL; k++)
        if (strcmp(dt_py_specs[k].op->full_name, row) == 0) spec = &dt_py_specs[k];
    if (spec == NULL) {
        PyErr_Format(PyExc_ValueError, "there is no row '%s'", row);
        return NULL;
    }
    dt_graveyard_drain();
    dt_py_args args;
    PyObject *result = NULL;
    if (dt_py_args_parse(spec, spec->name, false, objects + 3, n - 3, NULL, &args) == 0) {
        args.call.mesh = mesh;
        args.call.placements = placements;
        result = dt_py_dispatch_one(&args.call);
    }
    dt_py_args_fini(&args);
    return result;
}

/* ---- implicit redistributes ------------------------------------------------------------------ */

static PyObject *set_implicit(PyObject *module, PyObject *on) {
    (void)module;
    int wanted = PyObject_IsTrue(on);
    return wanted < 0 ? NULL : PyBool_FromLong(dt_place_set_implicit(wanted != 0));
}

static PyObject *implicit_count(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    return PyLong_FromLongLong(dt_place_implicit_count());
}

static PyMethodDef functions[] = {
    {"mesh_new", mesh_new, METH_VARARGS, NULL},
    {"dist_spec", dist_spec, METH_O, NULL},
    {"dist_box", dist_box, METH_VARARGS, NULL},
    {"dist_part", dist_part, METH_VARARGS, NULL},
    {"dist_new", dist_new, METH_VARARGS, NULL},
    {"on_mesh", (PyCFunction)(void (*)(void))on_mesh, METH_FASTCALL, NULL},
    {"_set_implicit_redistribute", set_implicit, METH_O, NULL},
    {"_implicit_redistributes", implicit_count, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int dt_py_mesh_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
