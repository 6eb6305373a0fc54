/* micro_fused.c: the chain ((((x*2+1)*3+y)*0.5+x)*0.25+y).relu() as one pass and as nine kernels
 * one by one, on one core; interleaved, best and median of many rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/cpu/table.h"
#include "runtime/assert.h"
#include "runtime/fuse.h"
#include "runtime/tensor.h"

#define CALLS 10 /* the last is a sum over all */
#define ROUNDS 101

typedef struct chain {
    dt_call call[CALLS];
    const dt_call *calls[CALLS];
} chain;

static void must(dt_status status) {
    if (status == DT_OK) return;
    fprintf(stderr, "%s\n", dt_error_text());
    exit(1);
}

typedef enum layout { PLAIN, ROW, COLUMN, TURNED, LAYOUTS } layout;
static const char *const layout_names[] = {"plain", "a row", "a column", "turned"};

static dt_tensor *matrix(dt_dtype dtype, int64_t rows, int64_t columns, layout how, bool filled) {
    const int64_t shape[2] = {rows, columns}, n = rows * columns;
    const int64_t strides[LAYOUTS][2] = {{columns, 1}, {0, 1}, {1, 0}, {1, rows}};
    dt_tensor *base, *t;
    must(dt_tensor_new(dtype, 1, &n, &base));
    if (filled) {
        must(dt_storage_materialize(base->storage));
        char *x = dt_tensor_data(base);
        size_t size = dt_dtype_size(dtype);
        for (int64_t i = 0; i < n; i++)
            dt_scalar_store((dt_scalar){.category = DT_CAT_INT, .i = i % 100 - 50}, dtype,
                            x + (size_t)i * size);
    }
    must(dt_tensor_new_view(base, dtype, 2, shape, strides[how], 0, &t));
    dt_tensor_release(base);
    return t;
}

/* t -> t op (number or tensor) */
static void chain_init(chain *c, dt_tensor *x, dt_tensor *y) {
    const struct {
        dt_op_id op;
        dt_tensor *tensor;
        double number;
    } rows[CALLS - 1] = {{DT_OP_mul, NULL, 2},    {DT_OP_add, NULL, 1},   {DT_OP_mul, NULL, 3},
                         {DT_OP_add, y, 0},       {DT_OP_mul, NULL, 0.5}, {DT_OP_add, x, 0},
                         {DT_OP_mul, NULL, 0.25}, {DT_OP_add, y, 0},      {DT_OP_relu, NULL, 0}};
    dt_tensor *last = x;
    for (int k = 0; k < CALLS - 1; k++) {
        bool unary = rows[k].op == DT_OP_relu;
        must(dt_call_init(&c->call[k], 1, unary ? 1 : 2));
        c->call[k].kernel = dt_cpu_device.kernels[rows[k].op];
        c->call[k].op = (uint16_t)rows[k].op;
        c->call[k].compute = x->dtype;
        c->call[k].operands[0] = matrix((dt_dtype)x->dtype, x->shape[0], x->shape[1], PLAIN, false);
        c->call[k].operands[1] = dt_tensor_retain(last);
        if (rows[k].tensor != NULL) c->call[k].operands[2] = dt_tensor_retain(rows[k].tensor);
        c->call[k].immediates[1] = (dt_scalar){.category = DT_CAT_FLOAT, .f = rows[k].number};
        c->calls[k] = &c->call[k];
        last = c->call[k].operands[0];
    }
    dt_call *sum = &c->call[CALLS - 1];
    must(dt_call_init(sum, 1, 1));
    sum->kernel = dt_cpu_device.kernels[DT_OP_sum];
    sum->op = DT_OP_sum;
    sum->compute = x->dtype;
    sum->params.i[0] = 3; /* both dims */
    must(dt_tensor_new((dt_dtype)x->dtype, 0, NULL, &sum->operands[0]));
    sum->operands[1] = dt_tensor_retain(last);
    c->calls[CALLS - 1] = sum;
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, double *us) {
    qsort(us, ROUNDS, sizeof *us, ascending);
    printf("  %-12s best %9.1f us   median %9.1f us\n", what, us[0], us[ROUNDS / 2]);
}

static void measure(int64_t n, dt_dtype dtype, layout how, int calls) {
    int64_t rows = n >= 10000 ? n / 1000 : 1;
    const dt_fuse_ops *fuse = dt_cpu_device.fuse;
    chain alone, fused;
    dt_tensor *x = matrix(dtype, rows, n / rows, PLAIN, true);
    dt_tensor *y = matrix(dtype, rows, n / rows, how, true);
    chain_init(&alone, x, y);
    chain_init(&fused, x, y);
    must(dt_call_materialize(fused.calls[calls - 1]));
    double one_by_one[ROUNDS], pass_run[ROUNDS], pass_build[ROUNDS];
    int repeat = (int)(200000 / (n + 100)) + 1;
    for (int r = 0; r < ROUNDS; r++) {
        double t0 = now_us();
        for (int i = 0; i < repeat; i++)
            for (int k = 0; k < calls; k++) must(dt_call_run_inline(alone.calls[k]));
        double t1 = now_us();
        dt_pass *pass = NULL;
        for (int i = 0; i < repeat; i++) {
            if (pass != NULL) fuse->free(pass);
            must(fuse->build(fused.calls, calls, (1u << (calls - 1)) - 1, &pass));
        }
        double t2 = now_us();
        dt_part part = {.count = 1, .scratch_bytes = fuse->scratch_bytes(pass, 1)};
        part.scratch = aligned_alloc(64, part.scratch_bytes + 64);
        fuse->run(pass, &part); /* warms up */
        double t3 = now_us();
        for (int i = 0; i < repeat; i++) {
            fuse->run(pass, &part);
            fuse->finish(pass, &part);
        }
        double t4 = now_us();
        free(part.scratch);
        fuse->free(pass);
        one_by_one[r] = (t1 - t0) / repeat;
        pass_build[r] = (t2 - t1) / repeat;
        pass_run[r] = (t4 - t3) / repeat;
    }
    printf("%lld elements of %s, y %s%s\n", (long long)n, dt_dtype_table[dtype].name,
           layout_names[how], calls == CALLS ? ", with a sum" : "");
    report("one by one", one_by_one);
    report("one pass", pass_run);
    report("its build", pass_build);
    for (int k = 0; k < CALLS; k++) {
        dt_call_fini(&alone.call[k]);
        dt_call_fini(&fused.call[k]);
    }
    dt_tensor_release(x);
    dt_tensor_release(y);
}

int main(void) {
    static const int64_t sizes[] = {100, 1000, 10000, 100000, 1000000, 10000000};
    dt_device_register_cpu(&dt_cpu_device);
    printf("%s\n", dt_cpu_device.describe());
    const int chain = CALLS - 1;
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        measure(sizes[k], DT_F32, PLAIN, chain);
    for (int64_t n = 10000; n <= 1000000; n *= 10) measure(n, DT_F32, PLAIN, CALLS);
    for (int how = ROW; how < LAYOUTS; how++) {
        measure(100000, DT_F32, (layout)how, chain);
        measure(1000000, DT_F32, (layout)how, chain);
    }
    measure(100000, DT_BF16, PLAIN, chain);
    measure(100000, DT_F16, PLAIN, chain);
    measure(100000, DT_F64, PLAIN, chain);
    return 0;
}
