/* dnn.c: the only caller of oneDNN.
 *
 * Engine: one for the process.  Everything else belongs to a thread (state): a stream, the last
 * PRIMITIVES products by shape with their memory objects, and one scratchpad that all of them
 * share.  So nothing is locked while computing; a shape that another thread compiled already comes
 * out of oneDNN's own cache.
 *
 * oneDNN asks OpenMP how many threads to use.  Ours are the threads, so it is told 1 around each
 * call, and the caller's number is put back: in the client's thread that number is the user's.  A
 * process with torch has two OpenMP libraries, and which one oneDNN is bound to depends on what
 * was loaded first: both are told.
 *
 * I1: an entry's memory objects are used by its thread only, and point nowhere between calls.
 * I2: every call into oneDNN that can look at threads runs between one_thread_begin and _end.
 * I3: with one thread and one shape oneDNN computes the same bits each time.
 */
#include "kernels/cpu/dnn.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/assert.h"

enum { PRIMITIVES = 32, PAD_ALIGN = 4096 };

/* ---- OpenMP ---------------------------------------------------------------------------------- */

typedef struct omp_library {
    int (*get)(void);
    void (*set)(int count);
} omp_library;

static omp_library omps[2];

static void find_omp(omp_library *omp, void *handle) {
    omp->get = (int (*)(void))(uintptr_t)dlsym(handle, "omp_get_max_threads");
    omp->set = (void (*)(int))(uintptr_t)dlsym(handle, "omp_set_num_threads");
    if (!omp->get || !omp->set) *omp = (omp_library){NULL, NULL};
}

typedef struct omp_saved {
    int count[2];
} omp_saved;

static void one_thread_begin(omp_saved *saved) {
    for (int k = 0; k < 2; k++) {
        saved->count[k] = 1;
        if (!omps[k].get) continue;
        saved->count[k] = omps[k].get();
        if (saved->count[k] != 1) omps[k].set(1);
    }
}

static void one_thread_end(const omp_saved *saved) {
    for (int k = 0; k < 2; k++)
        if (omps[k].get && saved->count[k] != 1) omps[k].set(saved->count[k]);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

typedef struct primitive {
    dt__dnn_product key;
    dnnl_primitive_t code; /* NULL: there is no fast code for this product */
    dnnl_memory_t a, b, c, bias, pad;
    size_t pad_bytes;
    uint64_t last_use;
    bool used;
} primitive;

typedef struct state {
    dnnl_stream_t stream;
    primitive entries[PRIMITIVES];
    uint64_t clock;
    void *pad;
    size_t pad_bytes;
} state;

static dnnl_engine_t engine;
static pthread_key_t state_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local state *mine;

static void primitive_clear(primitive *p) {
    dnnl_memory_t *memories[] = {&p->a, &p->b, &p->c, &p->bias, &p->pad};
    for (size_t k = 0; k < sizeof memories / sizeof *memories; k++)
        if (*memories[k]) dnnl_memory_destroy(*memories[k]);
    if (p->code) dnnl_primitive_destroy(p->code);
    memset(p, 0, sizeof *p);
}

static void state_free(void *state_) {
    state *s = state_;
    for (int k = 0; k < PRIMITIVES; k++) primitive_clear(&s->entries[k]);
    if (s->stream) dnnl_stream_destroy(s->stream);
    free(s->pad);
    free(s);
    mine = NULL;
}

static void set_up(void) {
    find_omp(&omps[0], RTLD_DEFAULT);
    void *gomp = dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (gomp) find_omp(&omps[1], gomp); /* never closed: its functions stay in use */
    if (omps[1].set == omps[0].set) omps[1] = (omp_library){NULL, NULL};
    if (pthread_key_create(&state_key, state_free) != 0) return;
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) engine = NULL;
}

static dt_status failed(dnnl_status_t status, const char *what) {
    if (status == dnnl_out_of_memory)
        return dt_fail(DT_E_NO_MEMORY, "out of memory: oneDNN, %s", what);
    return dt_fail(DT_E_RUNTIME, "oneDNN: %s failed (%d)", what, (int)status);
}

/* This thread's state. It is the thread's cache, not an object of the runtime: plain malloc. */
static dt_status my_state(state **out) {
    pthread_once(&once, set_up);
    *out = mine;
    if (DT_LIKELY(mine != NULL)) return DT_OK;
    if (!engine) return dt_fail(DT_E_RUNTIME, "oneDNN: there is no CPU engine");
    state *s = calloc(1, sizeof *s);
    if (!s) return dt_fail(DT_E_NO_MEMORY, "out of memory: oneDNN, stream");
    dnnl_status_t status = dnnl_stream_create(&s->stream, engine, dnnl_stream_default_flags);
    if (status != dnnl_success || pthread_setspecific(state_key, s) != 0) {
        state_free(s);
        return failed(status, "stream");
    }
    *out = mine = s;
    return DT_OK;
}

/* ---- primitives ------------------------------------------------------------------------------ */

static dnnl_data_type_t type_of(dt_dtype dtype) {
    switch (dtype) {
    case DT_F16:
        return dnnl_f16;
    case DT_BF16:
        return dnnl_bf16;
    case DT_F32:
        return dnnl_f32;
    default:
        return dnnl_data_type_undef;
    }
}

typedef struct shapes {
    dnnl_memory_desc_t a, b, c, bias;
} shapes;

static dnnl_status_t describe(dnnl_memory_desc_t *desc, dt_dtype dtype, int64_t rows,
                              int64_t columns, int64_t row_stride, int64_t column_stride) {
    dnnl_dims_t dims = {rows, columns}, strides = {row_stride, column_stride};
    return dnnl_memory_desc_create_with_strides(desc, 2, dims, type_of(dtype), strides);
}

static void shapes_free(shapes *s) {
    dnnl_memory_desc_t all[] = {s->a, s->b, s->c, s->bias};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (all[k]) dnnl_memory_desc_destroy(all[k]);
}

/* A dim of one element may have any stride; oneDNN wants one that makes sense. */
static int64_t sane(int64_t stride, int64_t size, int64_t other_size) {
    return size == 1 ? other_size : stride;
}

static dnnl_status_t shapes_of(const dt__dnn_product *p, shapes *s) {
    memset(s, 0, sizeof *s);
    dnnl_status_t status =
        describe(&s->a, p->dtype, p->m, p->k, p->sak == 1 ? sane(p->sam, p->m, p->k) : p->sam,
                 p->sak == 1 ? 1 : sane(p->sak, p->k, p->m));
    if (!status)
        status =
            describe(&s->b, p->dtype, p->k, p->n, p->sbn == 1 ? sane(p->sbk, p->k, p->n) : p->sbk,
                     p->sbn == 1 ? 1 : sane(p->sbn, p->n, p->k));
    if (!status) status = describe(&s->c, p->dtype, p->m, p->n, sane(p->scm, p->m, p->n), 1);
    if (!status && p->bias) status = describe(&s->bias, p->dtype, 1, p->n, p->n, 1);
    return status;
}

static bool is_fast(const_dnnl_primitive_desc_t desc) {
    const char *name = "";
    if (dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name)) return false;
    return strncmp(name, "brg", 3) == 0 || strncmp(name, "gemm:jit", 8) == 0;
}

/* Compiles the code of p->key into p; leaves p->code NULL where there is only slow code. */
static dnnl_status_t compile(primitive *p, const shapes *s) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);
    if (!status) status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (!status) {
        status = dnnl_matmul_primitive_desc_create(&desc, engine, s->a, s->b, s->bias, s->c, attr);
        if (status == dnnl_unimplemented) {
            dnnl_primitive_attr_destroy(attr);
            return dnnl_success;
        }
    }
    if (!status && is_fast(desc)) {
        const_dnnl_memory_desc_t pad =
            dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
        p->pad_bytes = pad ? dnnl_memory_desc_get_size(pad) : 0;
        status = dnnl_memory_create(&p->a, s->a, engine, DNNL_MEMORY_NONE);
        if (!status) status = dnnl_memory_create(&p->b, s->b, engine, DNNL_MEMORY_NONE);
        if (!status) status = dnnl_memory_create(&p->c, s->c, engine, DNNL_MEMORY_NONE);
        if (!status && s->bias)
            status = dnnl_memory_create(&p->bias, s->bias, engine, DNNL_MEMORY_NONE);
        if (!status && p->pad_bytes)
            status = dnnl_memory_create(&p->pad, pad, engine, DNNL_MEMORY_NONE);
        if (!status) status = dnnl_primitive_create(&p->code, desc);
    }
    if (desc) dnnl_primitive_desc_destroy(desc);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}

static bool same(const dt__dnn_product *a, const dt__dnn_product *b) {
    return a->m == b->m && a->n == b->n && a->k == b->k && a->sam == b->sam && a->sak == b->sak &&
           a->sbk == b->sbk && a->sbn == b->sbn && a->scm == b->scm && a->dtype == b->dtype &&
           a->bias == b->bias;
}

static dt_status find(state *s, const dt__dnn_product *key, primitive **out) {
    primitive *victim = &s->entries[0];
    for (int k = 0; k < PRIMITIVES; k++) {
        primitive *p = &s->entries[k];
        if (p->used && same(&p->key, key)) {
            p->last_use = ++s->clock;
            *out = p;
            return DT_OK;
        }
        if (p->last_use < victim->last_use) victim = p;
    }
    primitive_clear(victim);
    shapes desc;
    dnnl_status_t status = shapes_of(key, &desc);
    if (!status) status = compile(victim, &desc);
    shapes_free(&desc);
    if (status) {
        primitive_clear(victim);
        return failed(status, "compiling a matrix product");
    }
    victim->key = *key;
    victim->used = true;
    victim->last_use = ++s->clock;
    *out = victim;
    return DT_OK;
}

static dt_status ensure_pad(state *s, size_t bytes) {
    if (bytes <= s->pad_bytes) return DT_OK;
    size_t size = (bytes + PAD_ALIGN - 1) / PAD_ALIGN * PAD_ALIGN;
    void *pad = aligned_alloc(PAD_ALIGN, size);
    if (!pad)
        return dt_fail(DT_E_NO_MEMORY, "out of memory: %zu bytes of scratch for oneDNN", size);
    free(s->pad);
    s->pad = pad;
    s->pad_bytes = size;
    return DT_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

static dt_status execute(state *s, primitive *p, const void *a, const void *b, const void *bias,
                         void *c) {
    DT_TRY(ensure_pad(s, p->pad_bytes));
    struct {
        int arg;
        dnnl_memory_t memory;
        void *data;
    } all[5] = {
        {DNNL_ARG_SRC, p->a, (void *)(uintptr_t)a},
        {DNNL_ARG_WEIGHTS, p->b, (void *)(uintptr_t)b},
        {DNNL_ARG_DST, p->c, c},
        {DNNL_ARG_BIAS, p->bias, (void *)(uintptr_t)bias},
        {DNNL_ARG_SCRATCHPAD, p->pad, s->pad},
    };
    dnnl_exec_arg_t args[5];
    int count = 0;
    dnnl_status_t status = dnnl_success;
    for (int k = 0; k < 5 && !status; k++) {
        if (!all[k].memory) continue;
        status = dnnl_memory_set_data_handle(all[k].memory, all[k].data);
        args[count++] = (dnnl_exec_arg_t){all[k].arg, all[k].memory};
    }
    if (!status) status = dnnl_primitive_execute(p->code, s->stream, count, args);
    if (!status) status = dnnl_stream_wait(s->stream);
    for (int k = 0; k < 5; k++)
        if (all[k].memory) (void)dnnl_memory_set_data_handle(all[k].memory, NULL);
    return status ? failed(status, "a matrix product") : DT_OK;
}

static dt_status run(const dt__dnn_product *product, const void *a, const void *b, const void *bias,
                     void *c) {
    state *s = NULL;
    primitive *p = NULL;
    DT_TRY(my_state(&s));
    DT_TRY(find(s, product, &p));
    if (!p->code)
        return dt_fail(DT_E_NOT_IMPLEMENTED, "oneDNN has no fast code for this matrix product");
    return c ? execute(s, p, a, b, bias, c) : DT_OK;
}

dt_status dt__dnn_run(const dt__dnn_product *product, const void *a, const void *b,
                      const void *bias, void *c) {
    DT_ASSERT(product->m > 0 && product->n > 0 && product->k > 0 && c != NULL);
    DT_ASSERT(product->sak == 1 || product->sam == 1);
    DT_ASSERT(product->sbk == 1 || product->sbn == 1);
    DT_ASSERT(product->bias == (bias != NULL));
    pthread_once(&once, set_up);
    omp_saved saved;
    one_thread_begin(&saved);
    dt_status status = run(product, a, b, bias, c);
    one_thread_end(&saved);
    return status;
}

bool dt__dnn_has(dt_dtype dtype) {
    static _Atomic(int8_t) known[DT_DTYPE_COUNT]; /* 0: not asked, 1: yes, -1: no */
    int8_t answer = atomic_load_explicit(&known[dtype], memory_order_relaxed);
    if (DT_LIKELY(answer != 0)) return answer > 0;
    answer = -1;
    if (type_of(dtype) != dnnl_data_type_undef) {
        pthread_once(&once, set_up);
        dt__dnn_product probe = {.m = 64,
                                 .n = 64,
                                 .k = 64,
                                 .sam = 64,
                                 .sak = 1,
                                 .sbk = 64,
                                 .sbn = 1,
                                 .scm = 64,
                                 .dtype = dtype};
        omp_saved saved;
        one_thread_begin(&saved);
        if (run(&probe, NULL, NULL, NULL, NULL) == DT_OK) answer = 1;
        one_thread_end(&saved);
    }
    atomic_store_explicit(&known[dtype], answer, memory_order_relaxed);
    return answer > 0;
}

const char *dt_dnn_version(char *buffer, int size) {
    const dnnl_version_t *v = dnnl_version();
    snprintf(buffer, (size_t)size, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return buffer;
}
