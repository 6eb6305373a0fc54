/* module.c: the module dtorch._C: its state and the order in which its parts come to life.
 *
 * Multi-phase initialisation, for one interpreter: the runtime (threads, ring, generator) is one
 * for the process, so a second interpreter is refused.
 *
 * I1: dt_state is set before any part's init runs, and stays: handles may die after the module's
 *     dictionary has been cleared at interpreter shutdown.
 * I2: at exit the scheduler is stopped without the GIL, before the interpreter takes itself apart.
 */
#include "python/ext/core.h"

#include "kernels/cpu/table.h"
#include "runtime/graveyard.h"

dt_module_state *dt_state;

/* ---- the graveyard --------------------------------------------------------------------------- */

static int drain(void *ignored) {
    (void)ignored;
    dt_graveyard_drain();
    return 0;
}

/* Any C thread. When the pending queue is full the next client call drains. */
static void notify(void) { (void)Py_AddPendingCall(drain, NULL); }

/* ---- functions ------------------------------------------------------------------------------- */

static PyObject *function_shutdown(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    dt_py_errors_fall_silent();
    Py_BEGIN_ALLOW_THREADS;
    dt_runtime_shutdown();
    Py_END_ALLOW_THREADS;
    dt_graveyard_set_notify(NULL);
    dt_graveyard_drain();
    Py_RETURN_NONE;
}

/* _setup(package, Size): what the package defines and the extension uses. */
static PyObject *function_setup(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *package, *size;
    if (!PyArg_ParseTuple(args, "OO!:_setup", &package, &PyType_Type, &size)) return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)size, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "_setup(): Size must be a subclass of tuple");
        return NULL;
    }
    Py_XSETREF(dt_state->python_module, Py_NewRef(package));
    PyTypeObject *old = dt_state->size_type;
    dt_state->size_type = (PyTypeObject *)Py_NewRef(size);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_setup", function_setup, METH_VARARGS, NULL},
    {"_shutdown", function_shutdown, METH_NOARGS, "Stops the runtime; run at exit."},
    {NULL, NULL, 0, NULL},
};

/* ---- initialisation -------------------------------------------------------------------------- */

static int register_exit(PyObject *module) {
    PyObject *atexit = PyImport_ImportModule("atexit");
    PyObject *shutdown = PyObject_GetAttrString(module, "_shutdown");
    PyObject *result = NULL;
    if (atexit != NULL && shutdown != NULL)
        result = PyObject_CallMethod(atexit, "register", "O", shutdown);
    Py_XDECREF(atexit);
    Py_XDECREF(shutdown);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

static int init_state(PyObject *module) {
    dt_state = PyModule_GetState(module);
    memset(dt_state, 0, sizeof *dt_state);
    Py_INCREF(module); /* I1 */
    PyObject *events = PyImport_ImportModule("asyncio.events");
    if (events == NULL) return -1;
    dt_state->get_running_loop = PyObject_GetAttrString(events, "_get_running_loop");
    Py_DECREF(events);
    return dt_state->get_running_loop != NULL ? 0 : -1;
}

static int add_functions(PyObject *module) {
    if (PyModule_AddStringConstant(module, "_version", DT_VERSION) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}

static int module_exec(PyObject *module) {
    static int (*const parts[])(PyObject *) = {
        init_state,        dt_py_site_init,         dt_py_note_init,    dt_py_errors_init,
        dt_py_dtype_init,  dt_py_opfunc_init,       dt_py_tensor_init,  dt_py_ops_init,
        dt_py_buffer_init, dt_py_build_init,        dt_py_interop_init, dt_py_control_init,
        dt_py_bridge_init, dt_py_wait_init,         dt_py_turn_init,    dt_py_limit_init,
        dt_py_await_init,  dt_py_future_init,       dt_py_profile_init, dt_py_io_init,
        dt_py_mesh_init,   dt_py_redistribute_init, dt_py_dist_init,    dt_py_assign_init,
        add_functions,     register_exit,
    };
    if (dt_state != NULL) {
        PyErr_SetString(PyExc_ImportError,
                        "dtorch._C can be loaded once in a process, by its main interpreter");
        return -1;
    }
    dt_device_register_cpu(&dt_cpu_device);
    if (dt_py_specs_compile() < 0) return -1;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i](module) < 0) return -1;
    dt_graveyard_set_notify(notify);
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "dtorch._C",
    .m_doc = "The C core of dtorch.",
    .m_size = sizeof(dt_module_state),
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__C(void);
PyMODINIT_FUNC PyInit__C(void) { return PyModuleDef_Init(&definition); }
