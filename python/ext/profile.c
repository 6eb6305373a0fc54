/* profile.c: what only Python knows of a profile (names of threads and coroutines, lines), and what
 * the counters say.
 *
 * Texts that records refer to are numbered from 1 in the order in which they come: a dictionary
 * from text to number and a list of them, from one profile's start to the next one's.  Lines are
 * numbered by site.c; they are looked up when the trace is written, with the GIL, and the writing
 * itself goes on without it.
 *
 * I1: the functions that clients call while recording leave no exception, nor touch one that is
 *     there.
 * I2: texts are neither added nor dropped between a profile's end and the next one's start:
 * pointers into them stay valid without the GIL.
 */
#include "python/ext/await.h"
#include "python/ext/core.h"
#include "runtime/stats.h"
#include "runtime/trace.h"

/* ---- texts ----------------------------------------------------------------------------------- */

static PyObject *numbers;      /* dict: str -> int, see I2 */
static PyObject *texts;        /* list of str; [number - 1] */
static PyObject *current_task; /* asyncio.current_task */
static PyObject *current_thread;

/* 0: no memory, or no text. May leave an exception. */
static uint32_t number_of(PyObject *text) {
    if (text == NULL || !PyUnicode_Check(text)) return 0;
    PyObject *known = PyDict_GetItemWithError(numbers, text);
    if (known != NULL) return (uint32_t)PyLong_AsUnsignedLong(known);
    if (PyErr_Occurred() || PyUnicode_AsUTF8(text) == NULL) return 0; /* a lone surrogate */
    if (PyList_GET_SIZE(texts) >= UINT32_MAX - 1 || PyList_Append(texts, text) < 0) return 0;
    Py_ssize_t number = PyList_GET_SIZE(texts);
    PyObject *object = PyLong_FromSsize_t(number);
    int failed = object == NULL ? -1 : PyDict_SetItem(numbers, text, object);
    Py_XDECREF(object);
    return failed ? 0 : (uint32_t)number;
}

/* The name of the task that runs in this thread's loop; new reference, or NULL. */
static PyObject *task_name(void) {
    PyObject *loop;
    if (dt__running_loop(&loop) <= 0) return NULL;
    if (current_task == NULL) current_task = dt__asyncio_get("current_task");
    PyObject *task = current_task != NULL ? PyObject_CallOneArg(current_task, loop) : NULL;
    PyObject *name = NULL;
    if (task != NULL && task != Py_None) name = PyObject_CallMethod(task, "get_name", NULL);
    Py_XDECREF(task);
    Py_DECREF(loop);
    return name;
}

static PyObject *thread_name(void) {
    if (current_thread == NULL) {
        PyObject *module = PyImport_ImportModule("threading");
        if (module != NULL) current_thread = PyObject_GetAttrString(module, "current_thread");
        Py_XDECREF(module);
    }
    PyObject *thread = current_thread != NULL ? PyObject_CallNoArgs(current_thread) : NULL;
    PyObject *name = thread != NULL ? PyObject_GetAttrString(thread, "name") : NULL;
    Py_XDECREF(thread);
    return name;
}

void dt_py_trace_thread(void) {
    if (dt_trace_thread_is_named()) return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *name = thread_name();
    const char *text = name != NULL && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    dt_trace_name_thread(text != NULL ? text : "thread");
    Py_XDECREF(name);
    PyErr_Restore(type, value, traceback);
}

uint32_t dt_py_trace_client(void) {
    dt_py_trace_thread();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *name = task_name();
    uint32_t number = dt_trace_is_on() ? number_of(name) : 0; /* asking may have run any code */
    Py_XDECREF(name);
    PyErr_Restore(type, value, traceback);
    return number;
}

uint32_t dt_py_trace_text(const char *text) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *object = PyUnicode_FromString(text);
    uint32_t number = dt_trace_is_on() ? number_of(object) : 0;
    Py_XDECREF(object);
    PyErr_Restore(type, value, traceback);
    return number;
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct site_text {
    uint32_t site;
    PyObject *text; /* NULL: unknown */
} site_text;

/* The sites that the records name, sorted. */
typedef struct site_list {
    site_text *at;
    size_t count, capacity;
    bool failed;
} site_list;

static int compare_sites(const void *a, const void *b) {
    uint32_t x = ((const site_text *)a)->site, y = ((const site_text *)b)->site;
    return x < y ? -1 : x > y;
}

static void add_site(site_list *list, PyObject *seen, uint32_t site) {
    PyObject *number = PyLong_FromUnsignedLong(site);
    int known = number != NULL ? PySet_Contains(seen, number) : -1;
    if (known == 0) known = PySet_Add(seen, number) < 0 ? -1 : 0;
    Py_XDECREF(number);
    if (known != 0) {
        list->failed |= known < 0;
        return;
    }
    if (list->count == list->capacity) {
        size_t capacity = list->capacity != 0 ? 2 * list->capacity : 64;
        site_text *larger = PyMem_Realloc(list->at, capacity * sizeof *larger);
        if (larger == NULL) {
            list->failed = true;
            return;
        }
        list->at = larger;
        list->capacity = capacity;
    }
    list->at[list->count++] = (site_text){site, NULL};
}

typedef struct collector {
    site_list *list;
    PyObject *seen;
} collector;

static void collect_sites(void *context, const dt_trace_track *track) {
    const collector *to = context;
    uint32_t last = 0;
    for (const dt_trace_chunk *c = track->chunks; c != NULL; c = c->next)
        for (int32_t k = 0; k < c->count; k++) {
            uint32_t site = c->records[k].site;
            if (site == last || site == 0) continue;
            last = site;
            add_site(to->list, to->seen, site);
        }
}

/* "FILE:LINE", or NULL; no exception. */
static PyObject *place_of(uint32_t site) {
    int line;
    PyCodeObject *code = dt_py_site_code(site, &line);
    if (code == NULL) return NULL;
    PyObject *text = PyUnicode_FromFormat("%U:%d", code->co_filename, line);
    Py_DECREF(code);
    if (text == NULL) PyErr_Clear();
    return text;
}

/* 0 or -1 with an exception. */
static int find_sites(site_list *list) {
    collector to = {list, PySet_New(NULL)};
    if (to.seen == NULL) return -1;
    dt_trace_visit(collect_sites, &to);
    Py_DECREF(to.seen);
    if (list->failed) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        return -1;
    }
    if (list->count > 1) qsort(list->at, list->count, sizeof *list->at, compare_sites);
    for (size_t k = 0; k < list->count; k++) {
        list->at[k].text = place_of(list->at[k].site);
        if (list->at[k].text != NULL && PyUnicode_AsUTF8(list->at[k].text) == NULL) {
            PyErr_Clear();
            Py_CLEAR(list->at[k].text);
        }
    }
    return 0;
}

/* Both without the GIL: the UTF-8 was made with it. */
static const char *site_text_of(const void *context, uint32_t site) {
    const site_list *list = context;
    if (list->count == 0) return NULL;
    site_text wanted = {site, NULL};
    const site_text *found =
        bsearch(&wanted, list->at, list->count, sizeof *list->at, compare_sites);
    return found != NULL && found->text != NULL ? PyUnicode_AsUTF8(found->text) : NULL;
}

static const char *name_text_of(const void *context, uint32_t number) {
    (void)context;
    if (number > (size_t)PyList_GET_SIZE(texts)) return NULL;
    return PyUnicode_AsUTF8(PyList_GET_ITEM(texts, number - 1));
}

/* _trace_write(fd) */
static PyObject *trace_write(PyObject *module, PyObject *number) {
    (void)module;
    int fd = PyObject_AsFileDescriptor(number);
    if (fd < 0) return NULL;
    if (dt_trace_is_on()) {
        PyErr_SetString(PyExc_RuntimeError, "_trace_write(): the profile has not been stopped");
        return NULL;
    }
    site_list sites = {0};
    dt_status status = DT_OK;
    bool found = find_sites(&sites) == 0;
    if (found) {
        const dt_trace_texts reader = {site_text_of, name_text_of, &sites};
        Py_BEGIN_ALLOW_THREADS;
        status = dt_trace_write(fd, &reader);
        Py_END_ALLOW_THREADS;
    }
    for (size_t k = 0; k < sites.count; k++) Py_XDECREF(sites.at[k].text);
    PyMem_Free(sites.at);
    if (!found) return NULL;
    if (status != DT_OK) return dt_py_raise(status);
    Py_RETURN_NONE;
}

/* ---- starting and stopping ------------------------------------------------------------------- */

/* _trace_start(records_max) */
static PyObject *trace_start(PyObject *module, PyObject *object) {
    (void)module;
    int64_t records_max;
    int ok = dt_py_int_from_object(object, &records_max);
    if (ok < 0) return NULL;
    if (ok == 0) records_max = 0;
    if (!dt_trace_is_on()) {
        PyDict_Clear(numbers);
        if (PyList_SetSlice(texts, 0, PyList_GET_SIZE(texts), NULL) < 0) return NULL;
    }
    dt_status status = dt_trace_start(records_max);
    if (status != DT_OK) return dt_py_raise(status);
    Py_RETURN_NONE;
}

static PyObject *trace_stop(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    /* A thread may have to be let through to see that it is over. */
    Py_BEGIN_ALLOW_THREADS;
    dt_trace_stop();
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *trace_clear(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    if (!dt_trace_is_on()) dt_trace_clear();
    Py_RETURN_NONE;
}

static PyObject *trace_is_on(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    return PyBool_FromLong(dt_trace_is_on());
}

/* ---- statistics ------------------------------------------------------------------------------ */

static PyObject *buckets_object(const int64_t *buckets) {
    PyObject *list = PyList_New(DT_HISTOGRAM_BUCKETS);
    for (int k = 0; k < DT_HISTOGRAM_BUCKETS && list != NULL; k++) {
        PyObject *count = PyLong_FromLongLong(buckets[k]);
        if (count == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, k, count);
    }
    return list;
}

/* _counts(): everything that is counted outside the scheduler; histograms as (buckets, sum). */
static PyObject *counts(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    dt_client_counts c = dt_counts;
    dt_time_stats times;
    dt_stats_times_get(&times);
    return Py_BuildValue(
        "{s:L,s:L,s:L,s:L,s:L,s:(NL),s:(NL),s:(NL)}", "fast", (long long)c.fast, "dispatched",
        (long long)c.dispatched, "inlined", (long long)c.inlined, "loop_wakeups",
        (long long)c.loop_wakeups, "deliveries", (long long)c.deliveries, "batches",
        buckets_object(c.batches), (long long)c.deliveries, "queue_ns",
        buckets_object(times.queue_ns.buckets), (long long)times.queue_ns.sum, "run_ns",
        buckets_object(times.run_ns.buckets), (long long)times.run_ns.sum);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"_trace_start", trace_start, METH_O, NULL},
    {"_trace_stop", trace_stop, METH_NOARGS, NULL},
    {"_trace_write", trace_write, METH_O, NULL},
    {"_trace_clear", trace_clear, METH_NOARGS, NULL},
    {"_trace_is_on", trace_is_on, METH_NOARGS, NULL},
    {"_counts", counts, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int dt_py_profile_init(PyObject *module) {
    numbers = PyDict_New();
    texts = PyList_New(0);
    if (numbers == NULL || texts == NULL) return -1;
    return PyModule_AddFunctions(module, functions);
}
