/* rows.c: softmax and normalisation of one row (rows.h), for one instruction set.
 *
 * Sums use 64 interleaved lanes folded in halves, so that every variant gives the same bits and the
 * error grows with n / 64.  Each function passes over the row two or three times; rows of a model
 * fit the L1 or L2 cache.
 */
#include "kernels/cpu/rows.h"

#include <math.h>

#include "kernels/cpu/simd/math.h"
#include "kernels/cpu/simd/math_double.h"

#define LANES 64
#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)

/* value = combination of EXPR over x = in[i] */
#define FOLD(T, result, n, INIT, COMBINE, EXPR)                                                    \
    do {                                                                                           \
        T lanes_[LANES];                                                                           \
        int64_t i_ = 0;                                                                            \
        for (int l_ = 0; l_ < LANES; l_++) lanes_[l_] = (INIT);                                    \
        for (; i_ + LANES <= (n); i_ += LANES)                                                     \
            for (int l_ = 0; l_ < LANES; l_++) {                                                   \
                const T x = in[i_ + l_];                                                           \
                lanes_[l_] = COMBINE(lanes_[l_], (EXPR));                                          \
            }                                                                                      \
        for (int l_ = 0; i_ + l_ < (n); l_++) {                                                    \
            const T x = in[i_ + l_];                                                               \
            lanes_[l_] = COMBINE(lanes_[l_], (EXPR));                                              \
        }                                                                                          \
        for (int half_ = LANES / 2; half_ > 0; half_ /= 2)                                         \
            for (int l_ = 0; l_ < half_; l_++)                                                     \
                lanes_[l_] = COMBINE(lanes_[l_], lanes_[l_ + half_]);                              \
        (result) = lanes_[0];                                                                      \
    } while (0)

#define SUM(a, b) ((a) + (b))
#define MAX(a, b) (((a) > (b) || (a) != (a)) ? (a) : (b))

#define DEFINE(T, EXP, LOG, SQRT)                                                                  \
    static T exp_row_##T(const T *in, T *out, int64_t n) {                                         \
        T max, sum;                                                                                \
        FOLD(T, max, n, (T)-INFINITY, MAX, x);                                                     \
        for (int64_t i = 0; i < n; i++) out[i] = EXP(in[i] - max);                                 \
        in = out;                                                                                  \
        FOLD(T, sum, n, (T)0, SUM, x);                                                             \
        return sum;                                                                                \
    }                                                                                              \
    static void softmax_##T(const void *data, void *result, int64_t n) {                           \
        T *out = result;                                                                           \
        const T sum = exp_row_##T(data, out, n);                                                   \
        for (int64_t i = 0; i < n; i++) out[i] = out[i] / sum;                                     \
    }                                                                                              \
    static void log_softmax_##T(const void *data, void *result, int64_t n) {                       \
        const T *in = data;                                                                        \
        T *out = result;                                                                           \
        T max, sum;                                                                                \
        FOLD(T, max, n, (T)-INFINITY, MAX, x);                                                     \
        FOLD(T, sum, n, (T)0, SUM, EXP(x - max));                                                  \
        const T shift = LOG(sum);                                                                  \
        for (int64_t i = 0; i < n; i++) out[i] = (in[i] - max) - shift;                            \
    }                                                                                              \
    static void scale_row_##T(const T *in, T *out, int64_t n, T mean, T scale, const T *w,         \
                              const T *b) {                                                        \
        if (w && b)                                                                                \
            for (int64_t i = 0; i < n; i++) out[i] = (in[i] - mean) * scale * w[i] + b[i];         \
        else if (w)                                                                                \
            for (int64_t i = 0; i < n; i++) out[i] = (in[i] - mean) * scale * w[i];                \
        else if (b)                                                                                \
            for (int64_t i = 0; i < n; i++) out[i] = (in[i] - mean) * scale + b[i];                \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) out[i] = (in[i] - mean) * scale;                       \
    }                                                                                              \
    static void layer_norm_##T(const void *data, void *result, int64_t n, const void *w,           \
                               const void *b, double eps) {                                        \
        const T *in = data;                                                                        \
        T sum, squares;                                                                            \
        FOLD(T, sum, n, (T)0, SUM, x);                                                             \
        const T mean = sum / (T)n;                                                                 \
        FOLD(T, squares, n, (T)0, SUM, (x - mean) * (x - mean));                                   \
        scale_row_##T(in, result, n, mean, (T)1 / SQRT(squares / (T)n + (T)eps), w, b);            \
    }                                                                                              \
    static void rms_norm_##T(const void *data, void *result, int64_t n, const void *w,             \
                             const void *b, double eps) {                                          \
        const T *in = data;                                                                        \
        T squares;                                                                                 \
        FOLD(T, squares, n, (T)0, SUM, x *x);                                                      \
        scale_row_##T(in, result, n, 0, (T)1 / SQRT(squares / (T)n + (T)eps), w, b);               \
    }

DEFINE(float, dt_expf, dt_logf, __builtin_sqrtf)
DEFINE(double, dt_exp, dt_log, __builtin_sqrt)

dt__row_table JOIN(dt__rows, DT_ISA_SUFFIX) = {
    {softmax_float, log_softmax_float, layer_norm_float, rms_norm_float},
    {softmax_double, log_softmax_double, layer_norm_double, rms_norm_double},
};
