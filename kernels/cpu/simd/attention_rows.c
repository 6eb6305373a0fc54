/* The softmax inside attention: exp of scaled and masked scores, in place, without the division.
 *
 * The row is padded with -inf to whole vectors, whose exp is 0: no loop has a ragged end.  Sums run
 * in lanes that are added as a tree, so that their order depends on the length of the row alone. */
#include "kernels/cpu/attention.h"

#include "kernels/cpu/simd/gemm_vec.h"
#include "math.h"

enum { PAD = DT__ATTENTION_PAD, LANES = GV_F32_LANES };
_Static_assert(PAD % (2 * LANES) == 0, "two vectors at a time");

static void scale_row(int64_t n, int64_t padded, float *x, float scale, const float *mask) {
    if (mask) {
        for (int64_t j = 0; j < n; j++) x[j] = x[j] * scale + mask[j];
    } else {
        for (int64_t j = 0; j < padded; j++) x[j] = x[j] * scale;
    }
    for (int64_t j = n; j < padded; j++) x[j] = -DT_INF;
}

/* The greatest, NaN left aside. */
static float greatest(int64_t padded, const float *x) {
    gv_f32 top[2] = {gv_f32_set(-DT_INF), gv_f32_set(-DT_INF)};
    for (int64_t j = 0; j < padded; j += 2 * LANES) {
        top[0] = gv_f32_max(gv_f32_load(x + j), top[0]);
        top[1] = gv_f32_max(gv_f32_load(x + j + LANES), top[1]);
    }
    float lane[LANES], result = -DT_INF;
    gv_f32_store(lane, gv_f32_max(top[0], top[1]));
    for (int l = 0; l < LANES; l++) result = lane[l] > result ? lane[l] : result;
    return result;
}

static float sum_of(int64_t padded, const float *x) {
    gv_f32 sum[2] = {gv_f32_zero(), gv_f32_zero()};
    for (int64_t j = 0; j < padded; j += 2 * LANES) {
        sum[0] = gv_f32_add(sum[0], gv_f32_load(x + j));
        sum[1] = gv_f32_add(sum[1], gv_f32_load(x + j + LANES));
    }
    return gv_f32_sum(gv_f32_add(sum[0], sum[1]));
}

/* exp(x) for x <= 0 or NaN; what is no normal number any more is 0. */
static inline __attribute__((always_inline)) float weight(float x) {
    float e = dt__exp_negative_normal(x < -87.0f ? 87.0f : -x);
    return x < -87.0f ? 0.0f : e;
}

static float row(int64_t n, float *x, float scale, const float *mask) {
    int64_t padded = (n + PAD - 1) / PAD * PAD;
    scale_row(n, padded, x, scale, mask);
    float top = greatest(padded, x);
    if (top == -DT_INF) top = 0; /* -inf - 0 has no weight, NaN stays */
    for (int64_t j = 0; j < padded; j++) x[j] = weight(x[j] - top);
    float sum = sum_of(padded, x);
    return sum == 0 ? 0 : 1 / sum;
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const dt__attention_row JOIN(dt__attention_row_, DT_ISA_SUFFIX) = row;
