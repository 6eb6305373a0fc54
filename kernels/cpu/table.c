/* table.c: the CPU's kernel for each row of the registry. A kernel that is missing does not
 * link. */
#include "kernels/cpu/table.h"

#include <stddef.h>

#include "kernels/cpu/cpuid.h"
#include "kernels/cpu/fused.h"

/* Declared once for each row that names them: repeating a declaration is allowed. */
#define DECLARE_NONE
#define DECLARE_K(x) extern const dt_kernel dt_kernel_##x;
#define DECLARE(kernel) DECLARE_##kernel
#define OP(name, rule, kernel, dtypes, api, schema, shard) DECLARE(kernel)
#include "runtime/ops.def"
#undef OP

#define NONE NULL
#define K(x) &dt_kernel_##x
#define OP(name, rule, kernel, dtypes, api, schema, shard) [DT_OP_##name] = kernel,
static const dt_kernel *const kernels[DT_OP_COUNT] = {
#include "runtime/ops.def"
};
#undef OP

static const char *describe(void) { return dt_cpu_level_name(dt_cpu_level_now()); }

const dt_device_ops dt_cpu_device = {
    .type = "cpu",
    .kernels = kernels,
    .describe = describe,
    .fuse = &dt_cpu_fuse,
};
