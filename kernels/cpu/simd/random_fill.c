/* random_fill.c: Philox draws for one instruction set (random.h).
 *
 * Uniform floats take the upper 24 bits (53 for double) of a block; normals are Box-Muller over two
 * uniforms of one block, by our own log and cosine, so that every device can give the same numbers.
 */
#include "kernels/cpu/random.h"

#include <math.h>

#include "kernels/cpu/simd/math.h"
#include "kernels/cpu/simd/math_double.h"

#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)
#define CHUNK 256

typedef struct block {
    uint32_t w[4][CHUNK];
} block;

static void philox(uint64_t seed, uint64_t counter, int64_t n, block *b) {
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = counter + (uint64_t)i;
        uint32_t c0 = (uint32_t)at, c1 = (uint32_t)(at >> 32), c2 = 0, c3 = 0;
        uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
        for (int round = 0; round < 10; round++) {
            uint64_t p0 = (uint64_t)c0 * 0xD2511F53u, p1 = (uint64_t)c2 * 0xCD9E8D57u;
            uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
            c1 = (uint32_t)p1;
            c3 = (uint32_t)p0;
            c0 = n0;
            c2 = n2;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        b->w[0][i] = c0;
        b->w[1][i] = c1;
        b->w[2][i] = c2;
        b->w[3][i] = c3;
    }
}

static inline double unit53(uint32_t high, uint32_t low) {
    uint64_t bits = ((uint64_t)high << 32 | low) >> 11;
    return (double)(int64_t)bits * 0x1p-53;
}

#define EACH_CHUNK                                                                                 \
    block b;                                                                                       \
    for (int64_t from = 0; from < n; from += CHUNK)                                                \
        for (int64_t count = n - from < CHUNK ? n - from : CHUNK,                                  \
                     once = (philox(seed, counter + (uint64_t)from, count, &b), 1);                \
             once; once = 0)                                                                       \
            for (int64_t i = 0; i < count; i++)

/* low + u * span rounds up to `high` where floats there are coarser than u: the greatest value that
 * a draw of [low, high) can have stands in. */
#define BELOW(T, low, high, next) ((low) < (high) ? next((T)(high), (T)(low)) : (T)(low))

static void uniform_f32(uint64_t seed, uint64_t counter, int64_t n, double low, double high,
                        void *out) {
    float *y = out;
    const float a = (float)low, span = (float)high - a;
    const float last = BELOW(float, a, (float)high, nextafterf);
    EACH_CHUNK {
        float x = (float)(int32_t)(b.w[0][i] >> 8) * 0x1p-24f * span + a;
        y[from + i] = x < last ? x : last;
    }
}

static void uniform_f64(uint64_t seed, uint64_t counter, int64_t n, double low, double high,
                        void *out) {
    double *y = out;
    const double last = BELOW(double, low, high, nextafter);
    EACH_CHUNK {
        double x = unit53(b.w[0][i], b.w[1][i]) * (high - low) + low;
        y[from + i] = x < last ? x : last;
    }
}

/* 1 - u lies in (0, 1], so that the logarithm is finite. */
static void normal_f32(uint64_t seed, uint64_t counter, int64_t n, double mean, double std,
                       void *out) {
    float *y = out;
    const float m = (float)mean, s = (float)std;
    EACH_CHUNK {
        float u = 1.0f - (float)(int32_t)(b.w[0][i] >> 8) * 0x1p-24f;
        float angle = (float)(int32_t)(b.w[1][i] >> 8) * (0x1p-24f * 6.2831853f);
        y[from + i] = __builtin_sqrtf(-2.0f * dt_logf(u)) * dt_cosf(angle) * s + m;
    }
}

static void normal_f64(uint64_t seed, uint64_t counter, int64_t n, double mean, double std,
                       void *out) {
    double *y = out;
    EACH_CHUNK {
        double u = 1.0 - unit53(b.w[0][i], b.w[1][i]);
        double angle = unit53(b.w[2][i], b.w[3][i]) * 6.283185307179586;
        y[from + i] = __builtin_sqrt(-2.0 * dt_log(u)) * dt_cos(angle) * std + mean;
    }
}

/* The upper half of a 64-bit draw times the range: a bias below range / 2^64, no rejection. */
static void integer(uint64_t seed, uint64_t counter, int64_t n, int64_t low, int64_t high,
                    int64_t *out) {
    const uint64_t range = (uint64_t)high - (uint64_t)low;
    EACH_CHUNK {
        uint64_t draw = (uint64_t)b.w[0][i] << 32 | b.w[1][i];
        uint64_t scaled = (uint64_t)(((unsigned __int128)draw * range) >> 64);
        out[from + i] = (int64_t)((uint64_t)low + scaled);
    }
}

const dt__random_ops JOIN(dt__random, DT_ISA_SUFFIX) = {uniform_f32, uniform_f64, normal_f32,
                                                        normal_f64, integer};
