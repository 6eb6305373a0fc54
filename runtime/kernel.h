/* kernel.h: the contract between a task and the kernel that computes it.
 *
 * A dt_call is one kernel call: operands (outputs first, then inputs), immediates and parameters.
 * It is what the registry's rules fill in and what workers run.  A kernel is a table of functions;
 * the device table maps an op to its kernel, so that nobody but the device knows kernels by name.
 *
 * I1: when run() is called, every operand's storage is materialised, and no one else writes the
 *     inputs or touches the outputs. Deferred outputs have no memory yet: the kernel takes it when
 *     it knows the size (dt_tensor_produce), in run() when it has one part, else in finish().
 * I2: run() never blocks, never allocates Python objects, never takes the GIL.
 * I3: the bits that a kernel writes depend on shapes, strides-independent, and values only: not on
 *     the number of parts, the thread, or the position of a view in memory.
 * I4: a kernel honours any strides of its inputs and outputs unless its row says CONTIGUOUS.
 */
#ifndef DT_RUNTIME_KERNEL_H
#define DT_RUNTIME_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/dtype.h"
#include "runtime/status.h"
#include "runtime/tensor.h"

#define DT_CALL_OPERANDS_INLINE 8 /* a call with more (cat, stack) has them on the heap */
#define DT_PARAMS_I 20
#define DT_PARAMS_F 4
#define DT_IMMEDIATES_MAX 4

typedef struct dt_params {
    int64_t i[DT_PARAMS_I]; /* dims, flags, sizes: each kernel's comment says which */
    double f[DT_PARAMS_F];
    void *owned; /* optional heap block, freed with dt_free(owned, owned_size) */
    size_t owned_size;
} dt_params;

/* Of params.i[2] of products: a part of one on a mesh; in the whole the operand lies along k. */
enum { DT_PRODUCT_PART = 1, DT_PRODUCT_A_ALONG_K = 2, DT_PRODUCT_B_ALONG_K = 4 };

typedef struct dt_call {
    const struct dt_kernel *kernel;
    uint16_t op;     /* dt_op_id, for messages and traces */
    uint8_t compute; /* dt_dtype in which an element-wise expression runs */
    uint8_t nout;
    uint16_t nin;
    dt_tensor **operands; /* nout outputs, then nin inputs; NULL input: an immediate */
    dt_tensor *operands_inline[DT_CALL_OPERANDS_INLINE];
    dt_scalar immediates[DT_IMMEDIATES_MAX]; /* by input index, for inputs that are NULL */
    dt_params params;
} dt_call;

static inline dt_tensor *dt_call_out(const dt_call *c, int k) { return c->operands[k]; }
static inline dt_tensor *dt_call_in(const dt_call *c, int k) { return c->operands[c->nout + k]; }

/* One of `count` pieces of a call; pieces run at the same time on different threads. */
typedef struct dt_part {
    int index;
    int count;
    void *scratch; /* shared by all parts of the call; scratch_bytes() of it, 64-aligned */
    size_t scratch_bytes;
} dt_part;

enum {
    DT_KERNEL_CONTIGUOUS_IN = 1u << 0, /* inputs must be contiguous: dispatch copies others first */
    DT_KERNEL_CONTIGUOUS_OUT = 1u << 1, /* outputs must be contiguous (fresh ones always are) */
    DT_KERNEL_ELEMENTWISE = 1u << 2,    /* fusible: family points at its tile functions */
    DT_KERNEL_OUT_CASTS = 1u << 3,      /* may write an output of another dtype than `compute` */
    DT_KERNEL_FUSIBLE = DT_KERNEL_ELEMENTWISE, /* worth asking dt_fuse_ops.fusible */
    DT_KERNEL_USES_OMP = 1u << 4, /* calls a library with OpenMP threads: set them to 1 */
};

typedef struct dt_kernel {
    const char *name;
    /* Computes one part. Required. */
    dt_status (*run)(const dt_call *call, const dt_part *part);
    /* Into how many parts (1..threads*8) the call is worth splitting over `threads`. NULL: 1. */
    int (*parts)(const dt_call *call, int threads);
    /* Scratch wanted for that many parts. NULL: none. */
    size_t (*scratch_bytes)(const dt_call *call, int parts);
    /* Runs once after all parts have ended, in the thread of the last one. NULL: nothing. */
    dt_status (*finish)(const dt_call *call, const dt_part *part);
    /* Estimated nanoseconds on one thread; decides the inline lane. Required. */
    double (*cost_ns)(const dt_call *call);
    const void *family;
    uint32_t flags;
} dt_kernel;

/* Runs a whole call in this thread, all parts in order: the inline lane, and the reference for
 * tests. Materialises outputs. */
dt_status dt_call_run_inline(const dt_call *call) DT_MUST_CHECK;

/* Takes the memory of every output. */
dt_status dt_call_materialize(const dt_call *call) DT_MUST_CHECK;

/* Starts an empty call; operands point at the inline array when they fit. */
dt_status dt_call_init(dt_call *call, int nout, int nin) DT_MUST_CHECK;
/* Releases operands (retained ones) and heap parts. */
void dt_call_fini(dt_call *call);
/* Moves a call (fixing the inline pointer); the source is left empty. */
void dt_call_move(dt_call *to, dt_call *from);

#endif
