/* The functions of math.h on double, by libm: one call for each element, so that its bits depend
 * on nothing else.
 *
 * Builtins instead of <math.h>: this folder has a math.h of its own. */
#ifndef DT_KERNELS_CPU_SIMD_MATH_DOUBLE_H
#define DT_KERNELS_CPU_SIMD_MATH_DOUBLE_H

#include "math_base.h"

#define DT_LIBM1(name)                                                                             \
    DT_MATH double dt_##name(double x) { return __builtin_##name(x); }

DT_LIBM1(exp)
DT_LIBM1(exp2)
DT_LIBM1(expm1)
DT_LIBM1(log)
DT_LIBM1(log2)
DT_LIBM1(log10)
DT_LIBM1(log1p)
DT_LIBM1(sin)
DT_LIBM1(cos)
DT_LIBM1(tan)
DT_LIBM1(asin)
DT_LIBM1(acos)
DT_LIBM1(atan)
DT_LIBM1(sinh)
DT_LIBM1(cosh)
DT_LIBM1(tanh)
DT_LIBM1(asinh)
DT_LIBM1(acosh)
DT_LIBM1(atanh)
DT_LIBM1(erf)
DT_LIBM1(erfc)
DT_LIBM1(sqrt)
DT_LIBM1(floor)
DT_LIBM1(ceil)
DT_LIBM1(trunc)
DT_LIBM1(rint)
#undef DT_LIBM1

DT_MATH double dt_pow(double x, double y) { return __builtin_pow(x, y); }
DT_MATH double dt_atan2(double y, double x) { return __builtin_atan2(y, x); }
DT_MATH double dt_fmod(double x, double y) { return __builtin_fmod(x, y); }
DT_MATH double dt_rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }

/* torch.remainder: the sign of y. */
DT_MATH double dt_remainder_py(double x, double y) {
    double m = __builtin_fmod(x, y);
    return m != 0.0 && (y < 0.0) != (m < 0.0) ? m + y : m;
}

/* torch.floor_divide: (x - remainder) / y, brought to the integer it stands for; x / y if y is
 * 0. */
DT_MATH double dt_floor_divide(double x, double y) {
    double m = __builtin_fmod(x, y);
    double d = (x - m) / y;
    d = m != 0.0 && (y < 0.0) != (m < 0.0) ? d - 1.0 : d;
    double whole = __builtin_floor(d);
    double up = d - whole > 0.5 ? whole + 1.0 : whole;
    double z = d == 0.0 ? __builtin_copysign(0.0, x / y) : up;
    return y == 0.0 ? x / y : z;
}

/* The activations as in math.h, in the forms that do not cancel. */
DT_MATH double dt_sigmoid(double x) {
    double e = __builtin_exp(-__builtin_fabs(x));
    return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

DT_MATH double dt_silu(double x) {
    double e = __builtin_exp(-__builtin_fabs(x));
    return (x < 0.0 ? x * e : x) / (1.0 + e);
}

DT_MATH double dt_gelu(double x) { return x * (0.5 * __builtin_erfc(x * -0.70710678118654752)); }

DT_MATH double dt_gelu_tanh(double x) {
    return x / (1.0 + __builtin_exp(-x * (1.5957691216057308 + 0.071354816272600246 * (x * x))));
}

DT_MATH double dt_softplus(double x, double beta, double threshold) {
    double z = x * beta;
    double y = ((z > 0.0 ? z : 0.0) + __builtin_log1p(__builtin_exp(-__builtin_fabs(z)))) / beta;
    y = z != z ? z : y;
    return z > threshold ? x : y;
}

DT_MATH double dt_logsigmoid(double x) {
    double y = (x < 0.0 ? x : 0.0) - __builtin_log1p(__builtin_exp(-__builtin_fabs(x)));
    return x != x ? x + x : y;
}

DT_MATH double dt_mish(double x) {
    double e = __builtin_exp(x > 40.0 ? 40.0 : x);
    double w = e * (e + 2.0);
    return x > 40.0 ? x : x * (w / (w + 2.0));
}

#endif
