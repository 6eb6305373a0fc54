/* micro_kernel.c: kernels alone, in this thread: GB/s of element-wise ops and reductions by size,
 * GFLOP/s of products.
 *
 * A call is built once by its op's rule and run again and again over the same memory; bytes are
 * those read and written, so that sizes that fit a cache show the cache's speed.  What dispatch
 * adds is not in these numbers.  The last rows run products through dispatch and the pool.
 */
#include "bench/micro.h"
#include "futures/dispatch.h"
#include "kernels/cpu/cpuid.h"
#include "kernels/cpu/table.h"
#include "runtime/device.h"
#include "runtime/rules.h"

#define WORK_NS 2e6 /* a sample takes about this long */
#define ROUNDS_MAX 20000

typedef struct work {
    dt_op_call call;
    int64_t rounds;
} work;

static dt_tensor *tensor_new(int rank, int64_t n) {
    int64_t shape[2] = {n, n};
    dt_tensor *t;
    MICRO_OK(dt_tensor_new(DT_F32, rank, shape, &t));
    MICRO_OK(dt_storage_materialize(t->storage));
    float *x = dt_tensor_data(t);
    for (int64_t i = 0; i < t->numel; i++) x[i] = (float)(i % 251) / 128 - 1;
    return t;
}

static dt_arg arg_tensor(dt_tensor *t) { return (dt_arg){.kind = DT_ARG_TENSOR, .t = t}; }
static dt_arg arg_one(void) {
    return (dt_arg){.kind = DT_ARG_SCALAR, .s = {.category = DT_CAT_INT, .i = 1}};
}
static const dt_dims no_dims = {.rank = 0};

static void op_args(dt_op_call *c, dt_op_id id, dt_tensor *x, dt_tensor *y) {
    dt_op_call_init(c, id);
    c->args[c->nargs++] = arg_tensor(x);
    if (id == DT_OP_sum) {
        c->args[c->nargs++] = (dt_arg){.kind = DT_ARG_DIMS, .dims = &no_dims};
        c->args[c->nargs++] = (dt_arg){.kind = DT_ARG_BOOL};
        c->args[c->nargs++] = (dt_arg){.kind = DT_ARG_NONE};
    }
    if (y != NULL) c->args[c->nargs++] = arg_tensor(y);
    if (id == DT_OP_add) c->args[c->nargs++] = arg_one();
}

/* What dispatch does between a rule and the kernel. */
static void prepare(work *w, dt_op_id id, dt_tensor *x, dt_tensor *y) {
    dt_op_call *c = &w->call;
    op_args(c, id, x, y);
    MICRO_OK(c->op->rule(c));
    c->call.kernel = dt_cpu_device.kernels[c->call.op];
    for (int k = 0; k < c->call.nout; k++)
        if (c->call.operands[k] == NULL) c->call.operands[k] = dt_tensor_retain(c->outs[k]);
    int64_t begin_ns = dt_clock_ns();
    for (int i = 0; i < 3; i++) MICRO_OK(dt_call_run_inline(&c->call));
    double each_ns = (double)(dt_clock_ns() - begin_ns) / 3;
    w->rounds = (int64_t)(WORK_NS / (each_ns > 1 ? each_ns : 1));
    if (w->rounds > ROUNDS_MAX) w->rounds = ROUNDS_MAX;
    if (w->rounds < 1) w->rounds = 1;
}

static void run_work(void *context) {
    work *w = context;
    for (int64_t i = 0; i < w->rounds; i++) MICRO_OK(dt_call_run_inline(&w->call.call));
}

static void finish(work *w) { dt_op_call_clear(&w->call); }

/* ns for an element; `moved` bytes of each are read or written. */
static void run_elements(const char *op, dt_op_id id, dt_tensor *x, dt_tensor *y, int moved) {
    work w;
    char name[64];
    prepare(&w, id, x, y);
    snprintf(name, sizeof name, "%s, %lld f32", op, (long long)x->numel);
    micro_run(name, w.rounds * x->numel, run_work, &w);
    micro_rate("GB/s", moved);
    finish(&w);
}

/* ns for a product. */
static void run_product(int64_t n) {
    dt_tensor *x = tensor_new(2, n), *y = tensor_new(2, n);
    work w;
    char name[64];
    prepare(&w, DT_OP_mm, x, y);
    snprintf(name, sizeof name, "product %lld x %lld, one thread", (long long)n, (long long)n);
    micro_run(name, w.rounds, run_work, &w);
    micro_rate("GFLOP/s", 2.0 * (double)n * (double)n * (double)n);
    finish(&w);
    dt_tensor_release(x);
    dt_tensor_release(y);
}

/* ---- through dispatch */

typedef struct pooled {
    dt_tensor *x, *y;
    int rounds;
} pooled;

static void dispatch_and_wait(void *context) {
    pooled *p = context;
    for (int i = 0; i < p->rounds; i++) {
        dt_op_call c;
        dt_future *future;
        op_args(&c, DT_OP_mm, p->x, p->y);
        MICRO_OK(dt_dispatch(&c));
        if (dt_tensor_state(c.outs[0], &future) == DT_FUTURE_PENDING)
            MICRO_OK(dt_future_wait(future, -1, NULL, NULL));
        if (dt_tensor_state(c.outs[0], &future) != DT_FUTURE_READY) micro_die("no result");
        dt_tensor_release(c.outs[0]);
    }
}

static void run_pooled(int64_t n, int rounds) {
    pooled p = {.x = tensor_new(2, n), .y = tensor_new(2, n), .rounds = rounds};
    char name[64];
    snprintf(name, sizeof name, "product %lld x %lld, dispatched and awaited", (long long)n,
             (long long)n);
    micro_run(name, rounds, dispatch_and_wait, &p);
    micro_rate("GFLOP/s", 2.0 * (double)n * (double)n * (double)n);
    dt_tensor_release(p.x);
    dt_tensor_release(p.y);
}

int main(int argc, char **argv) {
    dt_device_register_cpu(&dt_cpu_device);
    dt_storage_set_future_release(dt_future_release);
    char title[64];
    snprintf(title, sizeof title, "kernels (%s)", dt_cpu_device.describe());
    micro_begin(argc, argv, title);

    static const int64_t sizes[] = {1000, 10000, 100000, 1000000, 10000000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        dt_tensor *x = tensor_new(1, sizes[i]), *y = tensor_new(1, sizes[i]);
        run_elements("add", DT_OP_add, x, y, 12);
        run_elements("relu", DT_OP_relu, x, NULL, 8);
        run_elements("exp", DT_OP_exp, x, NULL, 8);
        run_elements("sum", DT_OP_sum, x, NULL, 4);
        dt_tensor_release(x);
        dt_tensor_release(y);
    }
    for (int64_t n = 16; n <= 1024; n *= 2) run_product(n);
    run_pooled(128, 20);
    run_pooled(1024, 1);
    dt_runtime_shutdown();
    return micro_end();
}
