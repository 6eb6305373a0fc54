/* control.c: what steers the runtime: threads, seeds, memory, and what it says about itself.
 *
 * I1: asking never starts the scheduler; setting the number of threads does.
 */
#include "python/ext/core.h"

#include <stdlib.h>
#include <sys/random.h>

#include "runtime/alloc.h"
#include "runtime/device.h"
#include "runtime/graveyard.h"
#include "runtime/rules.h"

/* ---- threads --------------------------------------------------------------------------------- */

static int threads_now(void) {
    if (dt_runtime_started()) return dt_sched_threads(dt_runtime());
    const char *text = getenv("DTORCH_NUM_THREADS");
    long n = text != NULL ? strtol(text, NULL, 10) : 0;
    return n >= 1 && n <= DT_THREADS_MAX ? (int)n : dt_sched_default_threads();
}

static PyObject *get_num_threads(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    return PyLong_FromLong(threads_now());
}

static PyObject *set_num_threads(PyObject *module, PyObject *object) {
    (void)module;
    int64_t n;
    int ok = dt_py_int_from_object(object, &n);
    if (ok < 0) return NULL;
    if (ok == 0) {
        PyErr_Format(PyExc_TypeError, "set_num_threads expects an int, but got %s",
                     dt_py_type_name(object));
        return NULL;
    }
    if (n < 1 || n > DT_THREADS_MAX) {
        PyErr_Format(PyExc_RuntimeError,
                     "set_num_threads expects a positive integer (at most %d), but got %lld",
                     DT_THREADS_MAX, (long long)n);
        return NULL;
    }
    dt_sched *sched;
    dt_status status = dt_runtime_get(&sched);
    if (status != DT_OK) return dt_py_raise(status);
    Py_BEGIN_ALLOW_THREADS; /* threads that stop may have to finish a part first */
    status = dt_sched_set_threads(sched, (int)n);
    Py_END_ALLOW_THREADS;
    if (status != DT_OK) return dt_py_raise(status);
    Py_RETURN_NONE;
}

/* ---- random numbers -------------------------------------------------------------------------- */

static void seed_with(uint64_t seed) {
    dt_default_generator.seed = seed;
    dt_default_generator.offset = 0;
}

static PyObject *manual_seed(PyObject *module, PyObject *object) {
    (void)module;
    PyObject *number = PyNumber_Index(object);
    if (number == NULL) return NULL;
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    uint64_t seed = (uint64_t)value;
    if (overflow > 0) seed = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    if (overflow < 0 || PyErr_Occurred()) {
        PyErr_Format(PyExc_RuntimeError,
                     "Overflow when unpacking long long: the seed %R is outside "
                     "[-0x8000000000000000, 0xffffffffffffffff]",
                     object);
        return NULL;
    }
    seed_with(seed);
    Py_RETURN_NONE;
}

static PyObject *seed(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    uint64_t value;
    if (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value)
        return PyErr_SetFromErrno(PyExc_OSError);
    value &= (UINT64_C(1) << 53) - 1; /* survives a trip through a double, as torch's does */
    seed_with(value);
    return PyLong_FromUnsignedLongLong(value);
}

static PyObject *initial_seed(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    return PyLong_FromUnsignedLongLong(dt_default_generator.seed);
}

static PyObject *get_rng(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    return Py_BuildValue("(KK)", (unsigned long long)dt_default_generator.seed,
                         (unsigned long long)dt_default_generator.offset);
}

static PyObject *set_rng(PyObject *module, PyObject *args) {
    (void)module;
    unsigned long long value, offset;
    if (!PyArg_ParseTuple(args, "KK:_set_rng", &value, &offset)) return NULL;
    dt_default_generator.seed = value;
    dt_default_generator.offset = offset;
    Py_RETURN_NONE;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static PyObject *memory_stats(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    dt_memory_stats s;
    dt_memory_stats_get(&s);
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:{s:{s:L,s:L,s:L}}}", /* */
                         "live_bytes", (long long)s.live_bytes, "peak_bytes",
                         (long long)s.peak_bytes, "cached_bytes", (long long)s.cached_bytes,
                         "limit_bytes", (long long)dt_memory_limit(), "objects",
                         (long long)s.objects, "devices", dt_device_cpu()->type, "live_bytes",
                         (long long)s.live_bytes, "peak_bytes", (long long)s.peak_bytes,
                         "cached_bytes", (long long)s.cached_bytes);
}

static PyObject *memory_reset_peak(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    dt_memory_stats_reset_peak();
    Py_RETURN_NONE;
}

static PyObject *memory_cache_empty(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    dt_graveyard_drain();
    dt_memory_cache_empty();
    Py_RETURN_NONE;
}

static PyObject *memory_limit(PyObject *module, PyObject *object) {
    (void)module;
    int64_t bytes;
    int ok = dt_py_int_from_object(object, &bytes);
    if (ok < 0) return NULL;
    if (ok == 0 || bytes < 0) {
        PyErr_Format(PyExc_ValueError, "set_memory_limit(): bytes must be an int >= 0, not %R",
                     object);
        return NULL;
    }
    dt_memory_limit_set(bytes);
    Py_RETURN_NONE;
}

/* ---- configuration --------------------------------------------------------------------------- */

static PyObject *config(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    dt_sched *sched; /* the backend is only known once it runs */
    dt_status status = dt_runtime_get(&sched);
    if (status != DT_OK) return dt_py_raise(status);
    const dt_device_ops *cpu = dt_device_cpu();
    return Py_BuildValue("{s:s,s:s,s:s,s:s,s:i,s:i}", "version", DT_VERSION, "cpu",
                         cpu->describe != NULL ? cpu->describe() : "unknown", "io",
                         dt_sched_io_backend(sched), "io_reason", dt_sched_io_reason(sched),
                         "threads", threads_now(), "ops", (int)DT_OP_COUNT);
}

static PyObject *sched_stats(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    dt_sched_stats s = {0};
    if (dt_runtime_started()) dt_sched_stats_get(dt_runtime(), &s);
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L}",
                         "submitted", (long long)s.submitted, "ended", (long long)s.ended, "failed",
                         (long long)s.failed, "direct", (long long)s.direct, "chained",
                         (long long)s.chained, "fused", (long long)s.fused, "passes",
                         (long long)s.passes, "dropped", (long long)s.dropped, "parked",
                         (long long)s.parked, "runs", (long long)s.runs, "controller_wakeups",
                         (long long)s.controller_wakeups, "worker_wakeups",
                         (long long)s.worker_wakeups, "io_reads", (long long)s.io_reads,
                         "io_writes", (long long)s.io_writes, "io_bytes", (long long)s.io_bytes);
}

static PyObject *set_fusion(PyObject *module, PyObject *on) {
    (void)module;
    int truth = PyObject_IsTrue(on);
    if (truth < 0) return NULL;
    dt_sched *sched;
    dt_status status = dt_runtime_get(&sched);
    if (status != DT_OK) return dt_py_raise(status);
    dt_sched_set_fusion(sched, truth != 0);
    Py_RETURN_NONE;
}

/* The registry's rows: (full name, api letters, schema), for stubs, tests and documentation. */
static PyObject *registry(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    PyObject *list = PyList_New(DT_OP_COUNT);
    for (int i = 0; i < DT_OP_COUNT && list != NULL; i++) {
        const dt_op *op = &dt_op_table[i];
        PyObject *row = Py_BuildValue("(sss)", op->full_name, op->api, op->schema);
        if (row == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, row);
    }
    return list;
}

static PyMethodDef functions[] = {
    {"get_num_threads", get_num_threads, METH_NOARGS,
     "get_num_threads() -> int\n\nThreads of the CPU pool."},
    {"set_num_threads", set_num_threads, METH_O,
     "set_num_threads(int)\n\nChanges the size of the CPU pool."},
    {"manual_seed", manual_seed, METH_O, "Seeds the generator."},
    {"seed", seed, METH_NOARGS, "seed() -> int\n\nSeeds the generator with a random number."},
    {"initial_seed", initial_seed, METH_NOARGS, "initial_seed() -> int\n\nThe generator's seed."},
    {"_get_rng", get_rng, METH_NOARGS, NULL},
    {"_set_rng", set_rng, METH_VARARGS, NULL},
    {"memory_stats", memory_stats, METH_NOARGS,
     "memory_stats() -> dict\n\n"
     "live_bytes: of tensors, as asked for. peak_bytes: the most of them since "
     "reset_peak_memory().\n"
     "cached_bytes: held back for reuse. limit_bytes: see set_memory_limit(); 0: none. objects:\n"
     "small objects of the core alive. devices: the same bytes for each device."},
    {"reset_peak_memory", memory_reset_peak, METH_NOARGS, "Starts a new peak_bytes."},
    {"empty_cache", memory_cache_empty, METH_NOARGS, "Gives cached memory back to the system."},
    {"set_memory_limit", memory_limit, METH_O,
     "set_memory_limit(bytes)\n\nAn upper bound of live tensor bytes; 0: none."},
    {"_config", config, METH_NOARGS, NULL},
    {"_sched_stats", sched_stats, METH_NOARGS, NULL},
    {"_set_fusion", set_fusion, METH_O,
     "Whether element-wise ops are computed in one pass where possible; results do not depend on "
     "it."},
    {"_registry", registry, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int dt_py_control_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
