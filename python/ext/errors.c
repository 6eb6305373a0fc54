/* errors.c: statuses of the core as Python exceptions, with torch's classes.
 *
 * The core has a status and a text; the class follows from the status by one table.  An OSError
 * also takes the errno, by which Python picks the subclass (FileNotFoundError, ...).
 *
 * A late error also says where it comes from: the op and the user's line, in a note (the text stays
 * torch's), or at the end of the line that is logged.
 *
 * A failure that nobody awaited or read is logged once, when the last that knew of it is gone: by
 * way of the graveyard, since that may be in a C thread, or in the middle of a deallocation.
 *
 * I1: dt_py_raise leaves an exception set, whatever happens inside it.
 * I2: nothing is logged once the interpreter shuts down.
 */
#include "python/ext/core.h"

#include "runtime/graveyard.h"

/* The class for a status, borrowed. */
static PyObject *class_of(dt_status status) {
    switch (status) {
    case DT_E_VALUE:
        return PyExc_ValueError;
    case DT_E_TYPE:
        return PyExc_TypeError;
    case DT_E_INDEX:
        return PyExc_IndexError;
    case DT_E_NO_MEMORY:
        return dt_state->out_of_memory_error;
    case DT_E_NOT_IMPLEMENTED:
        return PyExc_NotImplementedError;
    case DT_E_OS:
        return PyExc_OSError;
    case DT_E_CANCELLED:
        return dt_state->cancelled_error;
    case DT_E_QUEUE_FULL:
        return dt_state->queue_full_error;
    case DT_E_OVERFLOW:
        return PyExc_OverflowError;
    case DT_E_PLACEMENT:
        return dt_state->placement_error;
    case DT_OK:
    case DT_IN_PROGRESS:
    case DT_E_RUNTIME:
    case DT_E_ZERO_DIVISION:
    case DT_E_SHUTDOWN:
    case DT_E_PYTHON:
        break;
    }
    return PyExc_RuntimeError;
}

static PyObject *make(dt_status status, int errnum, const char *text) {
    if (status == DT_E_CANCELLED) return PyObject_CallNoArgs(class_of(status));
    PyObject *message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    if (message == NULL) return NULL;
    PyObject *object;
    if (status == DT_E_OS && errnum != 0)
        object = PyObject_CallFunction(PyExc_OSError, "iO", errnum, message);
    else
        object = PyObject_CallOneArg(class_of(status), message);
    Py_DECREF(message);
    return object;
}

PyObject *dt_py_raise(dt_status status) {
    if (status == DT_E_PYTHON) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_SystemError, "dtorch: an error without an exception");
        return NULL;
    }
    PyObject *object = make(status, dt_error_errno(), dt_error_text());
    if (object != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(object), object);
        Py_DECREF(object);
    }
    return NULL;
}

/* ---- late errors: where they come from ------------------------------------------------------- */

/* "called at FILE:LINE, in FUNCTION"; NULL without an exception when nothing is known. */
static PyObject *place_text(uint32_t site) {
    int line;
    PyCodeObject *code = dt_py_site_code(site, &line);
    if (code == NULL) return NULL;
    PyObject *text = PyUnicode_FromFormat("called at %U:%d, in %U", code->co_filename, line,
                                          dt_py_code_name(code));
    Py_DECREF(code);
    if (text == NULL) PyErr_Clear();
    return text;
}

/* "raised by OP, called at FILE:LINE, in FUNCTION", as far as it is known; else NULL, without an
 * exception. */
static PyObject *origin_text(const dt_error *error) {
    uint32_t op = dt_error_op(error);
    PyObject *place = place_text(dt_error_site(error));
    if (op == 0 || op > DT_OP_COUNT) return place;
    char name[64];
    (void)dt_op_display_name(&dt_op_table[op - 1], name, sizeof name);
    PyObject *text = place != NULL ? PyUnicode_FromFormat("raised by %s, %U", name, place)
                                   : PyUnicode_FromFormat("raised by %s", name);
    Py_XDECREF(place);
    if (text == NULL) PyErr_Clear();
    return text;
}

/* exception.add_note(note); 3.10 has notes by name only, as exceptiongroup and others show them. */
static int add_note(PyObject *exception, PyObject *note) {
#if PY_VERSION_HEX >= 0x030B0000
    PyObject *done = PyObject_CallMethod(exception, "add_note", "O", note);
    Py_XDECREF(done);
    return done != NULL ? 0 : -1;
#else
    PyObject *notes = Py_BuildValue("[O]", note);
    int result = notes != NULL ? PyObject_SetAttrString(exception, "__notes__", notes) : -1;
    Py_XDECREF(notes);
    return result;
#endif
}

PyObject *dt_py_error_object(const dt_error *error) {
    dt_error_mark_seen(error);
    PyObject *object =
        make(dt_error_status(error), dt_error_captured_errno(error), dt_error_message(error));
    PyObject *note = object != NULL ? origin_text(error) : NULL;
    if (note == NULL) return object;
    if (add_note(object, note) < 0) PyErr_Clear(); /* the error itself matters more */
    Py_DECREF(note);
    return object;
}

/* ---- failures that nobody saw ---------------------------------------------------------------- */

/* "TEXT (ORIGIN)"; new reference. */
static PyObject *unseen_text(const dt_error *error) {
    const char *message = dt_error_message(error);
    PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
    PyObject *origin = text != NULL ? origin_text(error) : NULL;
    if (origin != NULL) Py_SETREF(text, PyUnicode_FromFormat("%U (%U)", text, origin));
    Py_XDECREF(origin);
    return text;
}

/* Logs one; no exception is left behind. */
static void log_unseen(const dt_error *error) {
    PyObject *logging = PyImport_ImportModule("logging");
    PyObject *logger =
        logging != NULL ? PyObject_CallMethod(logging, "getLogger", "s", "dtorch") : NULL;
    PyObject *text = unseen_text(error);
    PyObject *name = PyObject_GetAttrString(class_of(dt_error_status(error)), "__name__");
    PyObject *done = NULL;
    if (logger != NULL && text != NULL && name != NULL)
        done = PyObject_CallMethod(logger, "error", "sOO",
                                   "An operation failed, and its result was never awaited or read: "
                                   "%s: %s",
                                   name, text);
    if (done == NULL) {
        if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
            PyErr_Clear();
            PyErr_SetInterrupt(); /* Ctrl-C belongs to whatever runs next, not to the log */
        } else {
            PyErr_WriteUnraisable(logger);
        }
    }
    Py_XDECREF(done);
    Py_XDECREF(name);
    Py_XDECREF(text);
    Py_XDECREF(logger);
    Py_XDECREF(logging);
}

static bool logs; /* GIL; false once the interpreter shuts down */

static void bury_unseen(dt_grave *grave) {
    dt_error *error = dt_error_of_grave(grave);
    if (logs) {
        PyObject *type, *value, *traceback; /* of whoever happens to empty the graveyard */
        PyErr_Fetch(&type, &value, &traceback);
        log_unseen(error);
        PyErr_Restore(type, value, traceback);
    }
    dt_error_release(error);
}

/* Any thread. */
static void on_unseen(dt_error *error) {
    dt_grave *grave = dt_error_grave(error);
    grave->bury = bury_unseen;
    dt_graveyard_post(grave);
}

void dt_py_errors_fall_silent(void) {
    logs = false;
    dt_error_set_unseen_hook(NULL);
}

static PyObject *new_class(PyObject *module, const char *name, const char *doc, PyObject *bases) {
    char full[64];
    (void)snprintf(full, sizeof full, "dtorch.%s", name);
    PyObject *object = PyErr_NewExceptionWithDoc(full, doc, bases, NULL);
    if (object == NULL) return NULL;
    if (PyModule_AddObjectRef(module, name, object) < 0) {
        Py_DECREF(object);
        return NULL;
    }
    return object; /* the state's reference */
}

int dt_py_errors_init(PyObject *module) {
    dt_module_state *state = dt_state;
    PyObject *bases = PyTuple_Pack(2, PyExc_RuntimeError, PyExc_MemoryError);
    if (bases == NULL) return -1;
    state->out_of_memory_error =
        new_class(module, "OutOfMemoryError", "Memory for a tensor could not be had.", bases);
    Py_DECREF(bases);
    state->queue_full_error = new_class(
        module, "QueueFullError",
        "Too many operations are in flight: await some before calling more.", PyExc_RuntimeError);
    state->placement_error =
        new_class(module, "PlacementError", "The placements of a tensor do not fit the operation.",
                  PyExc_RuntimeError);
    state->blocking_warning = new_class(
        module, "BlockingWarning", "A call blocked the event loop's thread.", PyExc_RuntimeWarning);
    PyObject *asyncio = PyImport_ImportModule("asyncio.exceptions");
    if (asyncio == NULL) return -1;
    state->cancelled_error = PyObject_GetAttrString(asyncio, "CancelledError");
    Py_DECREF(asyncio);
    if (state->out_of_memory_error == NULL || state->queue_full_error == NULL ||
        state->placement_error == NULL || state->blocking_warning == NULL ||
        state->cancelled_error == NULL)
        return -1;
    logs = true;
    dt_error_set_unseen_hook(on_unseen);
    return 0;
}
