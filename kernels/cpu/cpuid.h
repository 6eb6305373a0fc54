/* cpuid.h: which of the three compiled variants of the SIMD kernels this process runs. */
#ifndef DT_KERNELS_CPU_CPUID_H
#define DT_KERNELS_CPU_CPUID_H

#include <stdatomic.h>

#include "runtime/assert.h"
#include "runtime/status.h"

typedef enum dt_cpu_level {
    DT_CPU_BASE,   /* x86-64-v2; plain C elsewhere */
    DT_CPU_AVX2,   /* x86-64-v3 */
    DT_CPU_AVX512, /* x86-64-v4 */
    DT_CPU_LEVELS,
} dt_cpu_level;

/* Declares the three tables that one source of kernels/cpu/simd leaves behind, and picks one. */
#if DT_ISA_BASE_ONLY
#define DT_CPU_VARIANTS(name)                                                                      \
    { name##_base, name##_base, name##_base }
#else
#define DT_CPU_VARIANTS(name)                                                                      \
    { name##_base, name##_avx2, name##_avx512 }
#endif

/* Reads DTORCH_CPU and settles the level. DT_E_VALUE for a name that is unknown or an instruction
 * set that this CPU lacks; the best level there is then stays in use. Later calls repeat the
 * answer. Call it when the device is registered, to show the error at import. Any thread. */
dt_status dt_cpu_init(void) DT_MUST_CHECK;

/* For tests: another level from now on, by name ("base", "avx2", "avx512"). No kernel may run. */
dt_status dt_cpu_select(const char *name) DT_MUST_CHECK;

/* The best level that the CPU and the operating system support. */
dt_cpu_level dt_cpu_best(void);
const char *dt_cpu_level_name(dt_cpu_level level);

extern _Atomic(int) dt__cpu_level; /* -1 until settled */
dt_cpu_level dt__cpu_settle(void);

static inline dt_cpu_level dt_cpu_level_now(void) {
    int level = atomic_load_explicit(&dt__cpu_level, memory_order_relaxed);
    return DT_LIKELY(level >= 0) ? (dt_cpu_level)level : dt__cpu_settle();
}

#endif
