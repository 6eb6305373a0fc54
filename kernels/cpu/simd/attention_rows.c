/* The softmax inside attention: exp of scaled and masked scores, in place, without the division.
 *
 * The row is padded with -inf to whole blocks of lanes, whose exp is 0: no loop has a ragged end.  Sums run in
 * PAD lanes that are added as a tree, so that their order depends on the length of the row alone. */
#include "kernels/cpu/attention.h"
#include "math.h"

enum { PAD = DT__ATTENTION_PAD };

static void scale_row(int64_t n, float *x, float scale, const float *mask) {
    if (mask) {
        for (int64_t j = 0; j < n; j++) x[j] = x[j] * scale + mask[j];
    } else {
        for (int64_t j = 0; j < n; j++) x[j] = x[j] * scale;
    }
}

/* The greatest, NaN left aside. */
static float greatest(int64_t blocks, const float *x) {
    float lane[PAD];
    for (int l = 0; l < PAD; l++) lane[l] = -DT_INF;
    for (int64_t b = 0; b < blocks; b++)
        for (int l = 0; l < PAD; l++) lane[l] = x[b * PAD + l] > lane[l] ? x[b * PAD + l] : lane[l];
    for (int half = PAD / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] = lane[l + half] > lane[l] ? lane[l + half] : lane[l];
    return lane[0];
}

static float exp_and_sum(int64_t blocks, float *x, float top) {
    float lane[PAD] = {0};
    for (int64_t b = 0; b < blocks; b++) {
        float *block = x + b * PAD;
        for (int l = 0; l < PAD; l++) block[l] = dt_expf(block[l] - top);
        for (int l = 0; l < PAD; l++) lane[l] += block[l];
    }
    for (int half = PAD / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}

static float row(int64_t n, float *x, float scale, const float *mask) {
    int64_t blocks = (n + PAD - 1) / PAD;
    scale_row(n, x, scale, mask);
    for (int64_t j = n; j < blocks * PAD; j++) x[j] = -DT_INF;
    float top = greatest(blocks, x);
    if (top == -DT_INF) top = 0; /* exp(-inf) is 0, NaN stays */
    float sum = exp_and_sum(blocks, x, top);
    return sum == 0 ? 0 : 1 / sum;
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const dt__attention_row JOIN(dt__attention_row_, DT_ISA_SUFFIX) = row;
