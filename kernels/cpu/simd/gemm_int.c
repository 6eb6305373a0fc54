/* Products of integer matrices, modulo 2^bits as torch has them.
 *
 * Rows of b are added into a row of c, four at a time so that c is read and written less often.
 * Arithmetic is on unsigned types: overflow is defined there, and u8 * u8 in int cannot overflow.
 */
#include "kernels/cpu/gemm.h"

#define INT_GEMM(name, type)                                                                       \
    static void name(int64_t m, int64_t n, int64_t k, const void *a_, int64_t sam, int64_t sak,    \
                     const void *b_, int64_t ldb, void *c_, int64_t ldc) {                         \
        const type *a = a_, *b = b_;                                                               \
        for (int64_t i = 0; i < m; i++) {                                                          \
            type *restrict c = (type *)c_ + i * ldc;                                               \
            const type *x = a + i * sam;                                                           \
            int64_t p = 0;                                                                         \
            for (; p + 4 <= k; p += 4) {                                                           \
                const type *r0 = b + p * ldb, *r1 = r0 + ldb, *r2 = r1 + ldb, *r3 = r2 + ldb;      \
                const type x0 = x[p * sak], x1 = x[(p + 1) * sak];                                 \
                const type x2 = x[(p + 2) * sak], x3 = x[(p + 3) * sak];                           \
                for (int64_t j = 0; j < n; j++)                                                    \
                    c[j] = (type)(c[j] + (type)(1u * x0 * r0[j]) + (type)(1u * x1 * r1[j]) +       \
                                  (type)(1u * x2 * r2[j]) + (type)(1u * x3 * r3[j]));              \
            }                                                                                      \
            for (; p < k; p++) {                                                                   \
                const type *r0 = b + p * ldb;                                                      \
                const type x0 = x[p * sak];                                                        \
                for (int64_t j = 0; j < n; j++) c[j] = (type)(c[j] + (type)(1u * x0 * r0[j]));     \
            }                                                                                      \
        }                                                                                          \
    }
INT_GEMM(gemm_8, uint8_t)
INT_GEMM(gemm_16, uint16_t)
INT_GEMM(gemm_32, uint32_t)
INT_GEMM(gemm_64, uint64_t)

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

const dt__gemm_int JOIN(dt__gemm_ints_, DT_ISA_SUFFIX)[DT_DTYPE_COUNT] = {
    [DT_U8] = gemm_8, [DT_I8] = gemm_8, [DT_I16] = gemm_16, [DT_I32] = gemm_32, [DT_I64] = gemm_64,
};
