/* cpuid.c: picks the instruction set.
 *
 * The levels are those of the x86-64 psABI, because the variants are compiled for exactly these
 * (cmake/DtSimd.cmake): a CPU counts as level n only when it has every feature of x86-64-vN.
 * GCC's __builtin_cpu_supports also asks whether the operating system saves the registers.
 *
 * I1: dt__cpu_level never holds a level above dt_cpu_best().
 */
#include "kernels/cpu/cpuid.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

_Atomic(int) dt__cpu_level = -1;

static const char *const names[DT_CPU_LEVELS] = {"base", "avx2", "avx512"};

const char *dt_cpu_level_name(dt_cpu_level level) {
    DT_ASSERT(level < DT_CPU_LEVELS);
    return names[level];
}

#if defined(__x86_64__) && !DT_ISA_BASE_ONLY
#include <cpuid.h>

/* The features of v3 that not every compiler's __builtin_cpu_supports knows by name. */
static bool has_small_features(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return false;
    bool f16c = c >> 29 & 1, movbe = c >> 22 & 1;
    if (!__get_cpuid(0x80000001, &a, &b, &c, &d)) return false;
    bool lzcnt = c >> 5 & 1;
    return f16c && movbe && lzcnt;
}

static bool has_v3(void) {
    return __builtin_cpu_supports("avx") && __builtin_cpu_supports("avx2") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
           __builtin_cpu_supports("fma") && has_small_features();
}

static bool has_v4(void) {
    return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

dt_cpu_level dt_cpu_best(void) {
    __builtin_cpu_init();
    if (has_v4()) return DT_CPU_AVX512;
    return has_v3() ? DT_CPU_AVX2 : DT_CPU_BASE;
}
#else
dt_cpu_level dt_cpu_best(void) { return DT_CPU_BASE; }
#endif

static dt_status level_of(const char *name, dt_cpu_level *level) {
    for (int k = 0; k < DT_CPU_LEVELS; k++) {
        if (strcmp(name, names[k]) != 0) continue;
        if (k > (int)dt_cpu_best())
            return dt_fail(DT_E_VALUE, "DTORCH_CPU=%s: this CPU has only %s", name,
                           names[dt_cpu_best()]);
        *level = (dt_cpu_level)k;
        return DT_OK;
    }
    return dt_fail(DT_E_VALUE, "DTORCH_CPU=%s: expected base, avx2 or avx512", name);
}

dt_status dt_cpu_init(void) {
    dt_cpu_level level = dt_cpu_best();
    const char *name = getenv("DTORCH_CPU");
    dt_status status = name == NULL || name[0] == '\0' ? DT_OK : level_of(name, &level);
    int unsettled = -1; /* a level that tests selected stays */
    atomic_compare_exchange_strong(&dt__cpu_level, &unsettled, (int)level);
    return status;
}

dt_cpu_level dt__cpu_settle(void) {
    (void)!dt_cpu_init(); /* whoever did not ask for the error gets the best level */
    return (dt_cpu_level)atomic_load(&dt__cpu_level);
}

dt_status dt_cpu_select(const char *name) {
    dt_cpu_level level;
    DT_TRY(level_of(name, &level));
    atomic_store(&dt__cpu_level, (int)level);
    return DT_OK;
}
