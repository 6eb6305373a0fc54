/* Vectors of float and double for the products: one set of names on every instruction set.
 *
 * Products are sums of products by definition, so FMAs are used where the level has them. */
#ifndef DT_KERNELS_CPU_SIMD_GEMM_VEC_H
#define DT_KERNELS_CPU_SIMD_GEMM_VEC_H

#include <stdint.h>
#include <string.h>

#define GV_INLINE static inline __attribute__((always_inline, unused))

#if DT_ISA_LEVEL == 2
#include <immintrin.h>

typedef __m512 gv_f32;
typedef __m512d gv_f64;
enum { GV_F32_LANES = 16, GV_F64_LANES = 8, GV_ROWS = 14 };

GV_INLINE __mmask16 gv_mask16(int n) { return (__mmask16)((1u << n) - 1); }
GV_INLINE __mmask8 gv_mask8(int n) { return (__mmask8)((1u << n) - 1); }
GV_INLINE gv_f32 gv_f32_zero(void) { return _mm512_setzero_ps(); }
GV_INLINE gv_f32 gv_f32_set(float x) { return _mm512_set1_ps(x); }
GV_INLINE gv_f32 gv_f32_load(const float *p) { return _mm512_loadu_ps(p); }
GV_INLINE gv_f32 gv_f32_load_n(const float *p, int n) {
    return _mm512_maskz_loadu_ps(gv_mask16(n), p);
}
GV_INLINE void gv_f32_store(float *p, gv_f32 v) { _mm512_storeu_ps(p, v); }
GV_INLINE void gv_f32_store_n(float *p, gv_f32 v, int n) {
    _mm512_mask_storeu_ps(p, gv_mask16(n), v);
}
GV_INLINE gv_f32 gv_f32_fma(gv_f32 a, gv_f32 b, gv_f32 c) { return _mm512_fmadd_ps(a, b, c); }
GV_INLINE float gv_f32_sum(gv_f32 v) { return _mm512_reduce_add_ps(v); }
GV_INLINE gv_f32 gv_f32_add(gv_f32 a, gv_f32 b) { return _mm512_add_ps(a, b); }
/* x where it is greater; NaN in x counts for nothing. */
GV_INLINE gv_f32 gv_f32_max(gv_f32 x, gv_f32 top) { return _mm512_max_ps(x, top); }
GV_INLINE gv_f64 gv_f64_zero(void) { return _mm512_setzero_pd(); }
GV_INLINE gv_f64 gv_f64_set(double x) { return _mm512_set1_pd(x); }
GV_INLINE gv_f64 gv_f64_load(const double *p) { return _mm512_loadu_pd(p); }
GV_INLINE gv_f64 gv_f64_load_n(const double *p, int n) {
    return _mm512_maskz_loadu_pd(gv_mask8(n), p);
}
GV_INLINE void gv_f64_store(double *p, gv_f64 v) { _mm512_storeu_pd(p, v); }
GV_INLINE void gv_f64_store_n(double *p, gv_f64 v, int n) {
    _mm512_mask_storeu_pd(p, gv_mask8(n), v);
}
GV_INLINE gv_f64 gv_f64_fma(gv_f64 a, gv_f64 b, gv_f64 c) { return _mm512_fmadd_pd(a, b, c); }
GV_INLINE double gv_f64_sum(gv_f64 v) { return _mm512_reduce_add_pd(v); }

#elif DT_ISA_LEVEL == 1
#include <immintrin.h>

typedef __m256 gv_f32;
typedef __m256d gv_f64;
enum { GV_F32_LANES = 8, GV_F64_LANES = 4, GV_ROWS = 6 };

GV_INLINE __m256i gv_mask8(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
GV_INLINE __m256i gv_mask4(int n) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
}
GV_INLINE gv_f32 gv_f32_zero(void) { return _mm256_setzero_ps(); }
GV_INLINE gv_f32 gv_f32_set(float x) { return _mm256_set1_ps(x); }
GV_INLINE gv_f32 gv_f32_load(const float *p) { return _mm256_loadu_ps(p); }
GV_INLINE gv_f32 gv_f32_load_n(const float *p, int n) { return _mm256_maskload_ps(p, gv_mask8(n)); }
GV_INLINE void gv_f32_store(float *p, gv_f32 v) { _mm256_storeu_ps(p, v); }
GV_INLINE void gv_f32_store_n(float *p, gv_f32 v, int n) { _mm256_maskstore_ps(p, gv_mask8(n), v); }
GV_INLINE gv_f32 gv_f32_fma(gv_f32 a, gv_f32 b, gv_f32 c) { return _mm256_fmadd_ps(a, b, c); }
GV_INLINE gv_f32 gv_f32_add(gv_f32 a, gv_f32 b) { return _mm256_add_ps(a, b); }
GV_INLINE gv_f32 gv_f32_max(gv_f32 x, gv_f32 top) { return _mm256_max_ps(x, top); }
GV_INLINE float gv_f32_sum(gv_f32 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
GV_INLINE gv_f64 gv_f64_zero(void) { return _mm256_setzero_pd(); }
GV_INLINE gv_f64 gv_f64_set(double x) { return _mm256_set1_pd(x); }
GV_INLINE gv_f64 gv_f64_load(const double *p) { return _mm256_loadu_pd(p); }
GV_INLINE gv_f64 gv_f64_load_n(const double *p, int n) {
    return _mm256_maskload_pd(p, gv_mask4(n));
}
GV_INLINE void gv_f64_store(double *p, gv_f64 v) { _mm256_storeu_pd(p, v); }
GV_INLINE void gv_f64_store_n(double *p, gv_f64 v, int n) {
    _mm256_maskstore_pd(p, gv_mask4(n), v);
}
GV_INLINE gv_f64 gv_f64_fma(gv_f64 a, gv_f64 b, gv_f64 c) { return _mm256_fmadd_pd(a, b, c); }
GV_INLINE double gv_f64_sum(gv_f64 v) {
    __m128d s = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}

#else
/* Vectors of GCC: SSE on x86-64-v2, and whatever another machine has. */
typedef float gv_f32 __attribute__((vector_size(16)));
typedef double gv_f64 __attribute__((vector_size(16)));
enum { GV_F32_LANES = 4, GV_F64_LANES = 2, GV_ROWS = 4 };

#define GV_PLAIN(F, C, LANES)                                                                      \
    GV_INLINE F F##_zero(void) { return (F){0}; }                                                  \
    GV_INLINE F F##_load(const C *p) {                                                             \
        F v;                                                                                       \
        memcpy(&v, p, sizeof v);                                                                   \
        return v;                                                                                  \
    }                                                                                              \
    GV_INLINE F F##_load_n(const C *p, int n) {                                                    \
        F v = {0};                                                                                 \
        for (int i = 0; i < LANES; i++)                                                            \
            if (i < n) v[i] = p[i];                                                                \
        return v;                                                                                  \
    }                                                                                              \
    GV_INLINE void F##_store(C *p, F v) { memcpy(p, &v, sizeof v); }                               \
    GV_INLINE void F##_store_n(C *p, F v, int n) {                                                 \
        for (int i = 0; i < LANES; i++)                                                            \
            if (i < n) p[i] = v[i];                                                                \
    }                                                                                              \
    GV_INLINE F F##_fma(F a, F b, F c) { return a * b + c; }
GV_PLAIN(gv_f32, float, GV_F32_LANES)
GV_PLAIN(gv_f64, double, GV_F64_LANES)
GV_INLINE gv_f32 gv_f32_set(float x) { return (gv_f32){x, x, x, x}; }
GV_INLINE gv_f64 gv_f64_set(double x) { return (gv_f64){x, x}; }
GV_INLINE float gv_f32_sum(gv_f32 v) { return (v[0] + v[2]) + (v[1] + v[3]); }
GV_INLINE gv_f32 gv_f32_add(gv_f32 a, gv_f32 b) { return a + b; }
GV_INLINE gv_f32 gv_f32_max(gv_f32 x, gv_f32 top) {
    typedef int32_t mask __attribute__((vector_size(16)));
    mask greater = x > top;
    return (gv_f32)(((mask)x & greater) | ((mask)top & ~greater));
}
GV_INLINE double gv_f64_sum(gv_f64 v) { return v[0] + v[1]; }
#endif

#endif
