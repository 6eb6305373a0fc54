/* site.c: the user's line that called into dtorch, as a number that is cheap to take.
 *
 *   frames, innermost first --skip dtorch's own--> (code object, instruction) --table--> id
 *
 * A task may fail long after its caller has gone on.  What it keeps is an id of this table, never a
 * frame, which would hold the caller's locals; the line is looked up only when an error is shown.
 * An id is taken for every task that is submitted, so the frames are read where the interpreter
 * has them: a frame object (PyEval_GetFrame) would be made anew for each call of a function.  Other
 * versions than those whose layout is known take that way.
 *
 * Whether a code object is dtorch's own is asked once (the `__name__` of its globals), and kept in
 * the same table under the offset OWN.
 *
 * I1: the table holds a reference to every code object in it, so that an address means one thing.
 * I2: once full it is emptied under another generation, which is a part of each id: ids of before
 *     are unknown from then on, never another line.
 * I3: taking an id runs no Python code: the code objects of an emptied table are released by way
 *     of the graveyard.
 */
#define Py_BUILD_CORE 1 /* for the layout of frames */
#include "python/ext/core.h"

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000
#include <internal/pycore_frame.h>
#else
#include <frameobject.h>
#endif

#include "runtime/graveyard.h"

#define SITES_MAX 65536
#define SITES_FIRST 256
#define INDEX_BITS 17 /* for 1..SITES_MAX */
#define GENERATION_MASK ((1u << (32 - INDEX_BITS)) - 1)
#define OWN (-1)

_Static_assert(SITES_MAX < 1 << INDEX_BITS, "an index must fit");

/* ---- frames -------------------------------------------------------------------------------- */

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000

typedef struct _PyInterpreterFrame frame;

/* Frames that the interpreter puts between, and those that have not begun, are nobody's. */
static inline frame *complete(frame *f) {
    while (f != NULL && _PyFrame_IsIncomplete(f)) f = f->previous;
    return f;
}

static inline frame *innermost(void) {
#if PY_VERSION_HEX >= 0x030D0000
    return complete(PyThreadState_Get()->current_frame);
#else
    return complete(PyThreadState_Get()->cframe->current_frame);
#endif
}

static inline frame *outer(frame *f) { return complete(f->previous); }

static inline PyCodeObject *code_of(frame *f) {
#if PY_VERSION_HEX >= 0x030D0000
    return (PyCodeObject *)f->f_executable;
#else
    return f->f_code;
#endif
}

static inline PyObject *globals_of(frame *f) { return f->f_globals; }

static inline int offset_of(frame *f) {
    return _PyInterpreterFrame_LASTI(f) * (int)sizeof(_Py_CODEUNIT);
}

#elif PY_VERSION_HEX < 0x030B0000

typedef PyFrameObject frame;

static inline frame *innermost(void) { return PyEval_GetFrame(); }
static inline frame *outer(frame *f) { return f->f_back; }
static inline PyCodeObject *code_of(frame *f) { return f->f_code; }
static inline PyObject *globals_of(frame *f) { return f->f_globals; }
static inline int offset_of(frame *f) { return f->f_lasti * (int)sizeof(_Py_CODEUNIT); }

#else /* the API, whose references are the running frame's too */

typedef PyFrameObject frame;

static inline void *borrowed(void *object) {
    Py_XDECREF((PyObject *)object);
    return object;
}
static inline frame *innermost(void) { return PyEval_GetFrame(); }
static inline frame *outer(frame *f) { return borrowed(PyFrame_GetBack(f)); }
static inline PyCodeObject *code_of(frame *f) { return borrowed(PyFrame_GetCode(f)); }
static inline PyObject *globals_of(frame *f) { return borrowed(PyFrame_GetGlobals(f)); }
static inline int offset_of(frame *f) { return PyFrame_GetLasti(f); }

#endif

/* ---- the table ----------------------------------------------------------------------------- */

typedef struct entry {
    PyCodeObject *code; /* owned */
    int offset;         /* of the instruction, in bytes; OWN */
} entry;

/* One block, with a grave in it: emptying the table needs no memory. */
typedef struct entries {
    dt_grave grave;
    uint32_t count;
    entry at[];
} entries;

static entries *table; /* NULL: nothing in it */
static uint32_t capacity;
static uint32_t *slots; /* open addressing: index + 1, 0: free; twice as many as capacity */
static uint32_t generation;

static inline uint32_t hash_of(const PyCodeObject *code, int offset) {
    uint64_t key = (uint64_t)(uintptr_t)code + ((uint64_t)(uint32_t)offset << 44);
    return (uint32_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 40);
}

/* Index + 1, or 0. */
static inline uint32_t find(const PyCodeObject *code, int offset) {
    if (table == NULL) return 0;
    uint32_t mask = 2 * capacity - 1;
    for (uint32_t i = hash_of(code, offset) & mask; slots[i] != 0; i = (i + 1) & mask) {
        const entry *e = &table->at[slots[i] - 1];
        if (e->code == code && e->offset == offset) return slots[i];
    }
    return 0;
}

static void put_slot(uint32_t index) {
    uint32_t mask = 2 * capacity - 1;
    uint32_t i = hash_of(table->at[index].code, table->at[index].offset) & mask;
    while (slots[i] != 0) i = (i + 1) & mask;
    slots[i] = index + 1;
}

static void bury_entries(dt_grave *grave) {
    entries *old = (entries *)((char *)grave - offsetof(entries, grave));
    for (uint32_t i = 0; i < old->count; i++) Py_DECREF(old->at[i].code);
    PyMem_RawFree(old);
}

static void empty_table(void) {
    entries *old = table;
    table = NULL;
    PyMem_RawFree(slots);
    slots = NULL;
    capacity = 0;
    generation = (generation + 1) & GENERATION_MASK;
    old->grave.bury = bury_entries;
    dt_graveyard_post(&old->grave);
}

static bool grow(void) {
    uint32_t wanted = table == NULL ? SITES_FIRST : 2 * capacity;
    entries *larger = PyMem_RawRealloc(table, sizeof(entries) + wanted * sizeof(entry));
    if (larger == NULL) return false;
    if (table == NULL) larger->count = 0;
    table = larger;
    uint32_t *fresh = PyMem_RawCalloc(2 * (size_t)wanted, sizeof *fresh);
    if (fresh == NULL && slots == NULL) { /* a table has slots */
        PyMem_RawFree(table);
        table = NULL;
    }
    if (fresh == NULL) return false;
    PyMem_RawFree(slots);
    slots = fresh;
    capacity = wanted;
    for (uint32_t i = 0; i < table->count; i++) put_slot(i);
    return true;
}

/* Index + 1, or 0 when memory is out. */
static uint32_t insert(PyCodeObject *code, int offset) {
    if (table != NULL && table->count == SITES_MAX) empty_table();
    if ((table == NULL || table->count == capacity) && !grow()) return 0;
    uint32_t index = table->count++;
    table->at[index] = (entry){(PyCodeObject *)Py_NewRef(code), offset};
    put_slot(index);
    return index + 1;
}

/* ---- whose a frame is ----------------------------------------------------------------------- */

static PyObject *name_key; /* "__name__" */

static bool has_own_name(PyObject *globals) {
    if (globals == NULL || !PyDict_Check(globals)) return false;
    PyObject *name = PyDict_GetItemWithError(globals, name_key);
    const char *text = name != NULL && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    if (text == NULL) {
        PyErr_Clear();
        return false;
    }
    return strncmp(text, "dtorch", 6) == 0 && (text[6] == 0 || text[6] == '.');
}

static bool is_own(frame *f) {
    PyCodeObject *code = code_of(f);
    if (find(code, OWN) != 0) return true;
    if (!has_own_name(globals_of(f))) return false;
    (void)insert(code, OWN);
    return true;
}

bool dt_py_caller_find(dt_py_caller *out) {
    frame *f = innermost();
    while (f != NULL && is_own(f)) f = outer(f);
    if (f == NULL) return false;
    *out = (dt_py_caller){code_of(f), globals_of(f), offset_of(f)};
    return true;
}

/* ---- ids ------------------------------------------------------------------------------------ */

uint32_t dt_py_site(void) {
    for (frame *f = innermost(); f != NULL; f = outer(f)) {
        PyCodeObject *code = code_of(f);
        int offset = offset_of(f);
        uint32_t known = find(code, offset);
        if (DT_UNLIKELY(known == 0)) {
            if (is_own(f)) continue;
            known = insert(code, offset);
        }
        return known != 0 ? generation << INDEX_BITS | known : 0;
    }
    return 0;
}

PyCodeObject *dt_py_site_code(uint32_t site, int *line) {
    uint32_t known = site & ((1u << INDEX_BITS) - 1);
    if (known == 0 || site >> INDEX_BITS != generation) return NULL;
    if (table == NULL || known > table->count) return NULL;
    const entry *e = &table->at[known - 1];
    *line = PyCode_Addr2Line(e->code, e->offset);
    return (PyCodeObject *)Py_NewRef(e->code);
}

/* ---- for tests and traces -------------------------------------------------------------------- */

static PyObject *site_here(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    return PyLong_FromUnsignedLong(dt_py_site());
}

static PyObject *site_place(PyObject *module, PyObject *number) {
    (void)module;
    unsigned long site = PyLong_AsUnsignedLong(number);
    if (PyErr_Occurred()) return NULL;
    int line;
    PyCodeObject *code = dt_py_site_code((uint32_t)site, &line);
    if (code == NULL) Py_RETURN_NONE;
    PyObject *result = Py_BuildValue("(OiO)", code->co_filename, line, dt_py_code_name(code));
    Py_DECREF(code);
    return result;
}

PyObject *dt_py_code_name(PyCodeObject *code) {
#if PY_VERSION_HEX >= 0x030B0000
    return code->co_qualname;
#else
    return code->co_name;
#endif
}

static PyMethodDef functions[] = {
    {"_site", site_here, METH_NOARGS, "The number of the calling line; 0: unknown."},
    {"_site_place", site_place, METH_O, "(file, line, function) of a number; None: unknown."},
    {NULL, NULL, 0, NULL},
};

int dt_py_site_init(PyObject *module) {
    name_key = PyUnicode_InternFromString("__name__");
    if (name_key == NULL) return -1;
    return PyModule_AddFunctions(module, functions);
}
