/* random.h: fills of random numbers for each instruction set.
 *
 * Element i of a draw takes the Philox 4x32-10 block of counter `counter + i` under key `seed`
 * (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011): one block for each element,
 * no rejection, so that an element's value depends on its global index alone.
 */
#ifndef DT_KERNELS_CPU_RANDOM_H
#define DT_KERNELS_CPU_RANDOM_H

#include <stdint.h>

#include "kernels/cpu/cpuid.h"

typedef struct dt__random_ops {
    /* out[i] for counters counter .. counter + n - 1 */
    void (*uniform_f32)(uint64_t seed, uint64_t counter, int64_t n, double low, double high,
                        void *out);
    void (*uniform_f64)(uint64_t seed, uint64_t counter, int64_t n, double low, double high,
                        void *out);
    void (*normal_f32)(uint64_t seed, uint64_t counter, int64_t n, double mean, double std,
                       void *out);
    void (*normal_f64)(uint64_t seed, uint64_t counter, int64_t n, double mean, double std,
                       void *out);
    /* integers of [low, high) */
    void (*integer)(uint64_t seed, uint64_t counter, int64_t n, int64_t low, int64_t high,
                    int64_t *out);
} dt__random_ops;

extern const dt__random_ops dt__random_base, dt__random_avx2, dt__random_avx512;

static inline const dt__random_ops *dt__random_find(void) {
    static const dt__random_ops *const tables[DT_CPU_LEVELS] = {
#if DT_ISA_BASE_ONLY
        &dt__random_base,
        &dt__random_base,
        &dt__random_base
#else
        &dt__random_base,
        &dt__random_avx2,
        &dt__random_avx512
#endif
    };
    return tables[dt_cpu_level_now()];
}

#endif
