/* Polynomials and tables of math.h. Written by scripts/fit_math.py; do not edit.
 *
 * Each is evaluated in the order written, without FMA: the same bits on every ISA. */
#ifndef DT_KERNELS_CPU_SIMD_MATH_COEF_H
#define DT_KERNELS_CPU_SIMD_MATH_COEF_H

#include "math_base.h"

// clang-format off

/* (exp(r) - 1 - r) / r^2, |r| <= ln2/2; error 2^-28.2. */
DT_MATH float dt__poly_exp(float z) {
    float z2 = z * z;
    float p0 = 5.0e-01f + 1.666652e-01f * z;
    float p1 = 4.1666396e-02f + 8.368836e-03f * z;
    float z4 = z2 * z2;
    float q0 = p0 + p1 * z2;
    return q0 + z4 * 1.394121e-03f;
}

/* (expm1(r) - r) / r^2, |r| <= ln2/2, relative to expm1; error 2^-26.1. */
DT_MATH float dt__poly_expm1(float z) {
    float z2 = z * z;
    float p0 = 4.9999997e-01f + 1.6666546e-01f * z;
    float p1 = 4.1667435e-02f + 8.3662765e-03f * z;
    float z4 = z2 * z2;
    float q0 = p0 + p1 * z2;
    return q0 + z4 * 1.3870713e-03f;
}

/* (2^r - 1 - r ln2) / r^2, |r| <= 1/2, ln2 rounded to float; error 2^-28.3. */
DT_MATH float dt__poly_exp2(float z) {
    float z2 = z * z;
    float p0 = 2.402265e-01f + 5.5503596e-02f * z;
    float p1 = 9.6180625e-03f + 1.3390984e-03f * z;
    float z4 = z2 * z2;
    float q0 = p0 + p1 * z2;
    return q0 + z4 * 1.5462883e-04f;
}

/* (log(1+f) - f + f^2/2) / f^3, 1+f in [sqrt(1/2), sqrt(2)]; error 2^-27.3. */
DT_MATH float dt__poly_log(float z) {
    float z2 = z * z;
    float p0 = 3.333333e-01f + -2.500082e-01f * z;
    float p1 = 2.0001237e-01f + -1.6623399e-01f * z;
    float p2 = 1.4201711e-01f + -1.3159914e-01f * z;
    float p3 = 1.2761304e-01f + -7.634267e-02f * z;
    float z4 = z2 * z2;
    float q0 = p0 + p1 * z2;
    float q1 = p2 + p3 * z2;
    return q0 + z4 * q1;
}

/* (log2(1+f) - f/ln2) / f^2; error 2^-27.2. */
DT_MATH float dt__poly_log2(float z) {
    float z2 = z * z;
    float p0 = -7.2134733e-01f + 4.8089817e-01f * z;
    float p1 = -3.6069864e-01f + 2.8857368e-01f * z;
    float p2 = -2.3957123e-01f + 2.044374e-01f * z;
    float p3 = -1.9129294e-01f + 1.8740395e-01f * z;
    float z4 = z2 * z2;
    float q0 = p0 + p1 * z2;
    float q1 = p2 + p3 * z2;
    return q0 + z4 * (q1 + z4 * -1.1095072e-01f);
}

/* (log10(1+f) - f/ln10) / f^2; error 2^-28.9. */
DT_MATH float dt__poly_log10(float z) {
    float z2 = z * z;
    float p0 = -2.1714719e-01f + 1.4476478e-01f * z;
    float p1 = -1.0858084e-01f + 8.686871e-02f * z;
    float p2 = -7.212548e-02f + 6.156151e-02f * z;
    float p3 = -5.7536382e-02f + 5.6241725e-02f * z;
    float z4 = z2 * z2;
    float q0 = p0 + p1 * z2;
    float q1 = p2 + p3 * z2;
    return q0 + z4 * (q1 + z4 * -3.3297665e-02f);
}

/* (tanh(x) - x) / x^3 in x^2, |x| <= 0.82; error 2^-27.6. */
DT_MATH float dt__poly_tanh(float z) {
    float z2 = z * z;
    float p0 = -3.3333287e-01f + 1.3331959e-01f * z;
    float p1 = -5.3831775e-02f + 2.1233488e-02f * z;
    float p2 = -7.3038377e-03f + 1.525373e-03f * z;
    float z4 = z2 * z2;
    float q0 = p0 + p1 * z2;
    return q0 + z4 * p2;
}

/* (sinh(x) - x) / x^3 in x^2, |x| <= 1; error 2^-31.6. */
DT_MATH float dt__poly_sinh(float z) {
    float z2 = z * z;
    float p0 = 1.6666667e-01f + 8.3333105e-03f * z;
    float p1 = 1.9842896e-04f + 2.7822132e-06f * z;
    float q0 = p0 + p1 * z2;
    return q0;
}

/* (asin(x) - x) / x^3 in x^2, |x| <= 9/16; error 2^-29.0. */
DT_MATH float dt__poly_asin(float z) {
    float z2 = z * z;
    float p0 = 1.6666631e-01f + 7.5020984e-02f * z;
    float p1 = 4.4231996e-02f + 3.401255e-02f * z;
    float p2 = 6.7360154e-03f + 4.7492374e-02f * z;
    float z4 = z2 * z2;
    float q0 = p0 + p1 * z2;
    return q0 + z4 * p2;
}

/* (atan(x) - x) / x^3 in x^2, |x| <= 1; error 2^-28.5. */
DT_MATH float dt__poly_atan(float z) {
    float z2 = z * z;
    float p0 = -3.33333e-01f + 1.9998531e-01f * z;
    float p1 = -1.4264052e-01f + 1.0951175e-01f * z;
    float p2 = -8.400475e-02f + 5.7906546e-02f * z;
    float p3 = -3.1127002e-02f + 1.0887361e-02f * z;
    float z4 = z2 * z2;
    float q0 = p0 + p1 * z2;
    float q1 = p2 + p3 * z2;
    return q0 + z4 * (q1 + z4 * -1.7875476e-03f);
}

/* (asinh(x) - x) / x^3 in x^2, |x| <= 1/2; error 2^-29.6. */
DT_MATH float dt__poly_asinh(float z) {
    float z2 = z * z;
    float p0 = -1.6666643e-01f + 7.498642e-02f * z;
    float p1 = -4.4383317e-02f + 2.8163496e-02f * z;
    float z4 = z2 * z2;
    float q0 = p0 + p1 * z2;
    return q0 + z4 * -1.32284e-02f;
}

/* (atanh(x) - x) / x^3 in x^2, |x| <= 1/2; error 2^-29.4. */
DT_MATH float dt__poly_atanh(float z) {
    float z2 = z * z;
    float p0 = 3.3333302e-01f + 2.0002453e-01f * z;
    float p1 = 1.4223786e-01f + 1.1816386e-01f * z;
    float p2 = 5.160436e-02f + 1.763785e-01f * z;
    float z4 = z2 * z2;
    float q0 = p0 + p1 * z2;
    return q0 + z4 * p2;
}

/* erf(x) / x - 1 in x^2, |x| <= 1; error 2^-29.4. */
DT_MATH float dt__poly_erf(float z) {
    float z2 = z * z;
    float p0 = 1.2837917e-01f + -3.7612626e-01f * z;
    float p1 = 1.1283579e-01f + -2.6853347e-02f * z;
    float p2 = 5.187162e-03f + -7.997853e-04f * z;
    float z4 = z2 * z2;
    float q0 = p0 + p1 * z2;
    float q1 = p2 + 7.806904e-05f * z2;
    return q0 + z4 * q1;
}

/* -log(erfc(x)), 1 <= x <= 3.93, absolute in erfc; error 2^-29.8. */
DT_MATH float dt__poly_erf_tail(float z) {
    float z2 = z * z;
    float p0 = 3.5370947e-04f + 1.12704e+00f * z;
    float p1 = 6.382258e-01f + 1.03037156e-01f * z;
    float p2 = -2.1805154e-02f + 2.9395488e-03f * z;
    float z4 = z2 * z2;
    float q0 = p0 + p1 * z2;
    float q1 = p2 + -1.8556615e-04f * z2;
    return q0 + z4 * q1;
}

/* exp(x^2) erfc(x) / u in u - 1/2, u = 1/(x+1), 0 <= x <= 10.7; error 2^-25.5. */
DT_MATH float dt__poly_erfcx(float z) {
    float z2 = z * z;
    float p0 = 8.5516715e-01f + 4.7536144e-01f * z;
    float p1 = -3.8222384e-01f + -1.1122029e-01f * z;
    float p2 = 4.0620852e-01f + -3.0727196e-01f * z;
    float p3 = -7.53067e-02f + 4.9589422e-01f * z;
    float p4 = -6.3629836e-01f + 9.564618e-02f * z;
    float p5 = 7.7668303e-01f + -6.8081796e-01f * z;
    float z4 = z2 * z2;
    float q0 = p0 + p1 * z2;
    float q1 = p2 + p3 * z2;
    float q2 = p4 + p5 * z2;
    return q0 + z4 * (q1 + z4 * q2);
}

/* (sin(r) / r - 1) / r^2 in r^2, |r| <= pi/4; error 2^-37.5. */
DT_MATH double dt__poly_sin(double z) {
    double z2 = z * z;
    double p0 = -0.16666666640261052 + 0.008333329242544766 * z;
    double p1 = -0.0001983929218376899 + 2.7179297426674534e-06 * z;
    double q0 = p0 + p1 * z2;
    return q0;
}

/* (cos(r) - 1) / r^2 in r^2, |r| <= pi/4; error 2^-34.1. */
DT_MATH double dt__poly_cos(double z) {
    double z2 = z * z;
    double p0 = -0.49999999719462923 + 0.041666622658958555 * z;
    double p1 = -0.001388674212924887 + 2.4388365730055e-05 * z;
    double q0 = p0 + p1 * z2;
    return q0;
}

/* log2((1+s)/(1-s)) / s in s^2, |s| <= 3 - sqrt(8); error 2^-43.6. */
DT_MATH double dt__poly_pow_log(double z) {
    double z2 = z * z;
    double p0 = 2.8853900817778495 + 0.9617966941139268 * z;
    double p1 = 0.577077942215844 + 0.4122092669477591 * z;
    double p2 = 0.31990509625132335 + 0.2829089257305879 * z;
    double z4 = z2 * z2;
    double q0 = p0 + p1 * z2;
    return q0 + z4 * p2;
}

/* 2^r, |r| <= 1/2; error 2^-29.0. */
DT_MATH double dt__poly_pow_exp(double z) {
    double z2 = z * z;
    double p0 = 0.9999999999190892 + 0.6931472067096519 * z;
    double p1 = 0.24022651504895812 + 0.05550327215758134 * z;
    double p2 = 0.009617994531160787 + 0.0013400431669772879 * z;
    double z4 = z2 * z2;
    double q0 = p0 + p1 * z2;
    double q1 = p2 + 0.00015478017526430383 * z2;
    return q0 + z4 * q1;
}

/* x (hi + mid + lo) = x / (2 pi) modulo 1, within |x| 2^(-e - 112); for e > 0, x must be
 * a multiple of 2^e. x hi and x mid are exact for a float x. */
#define DT_TURN_HI_0 0x1.45f306c000000p-3
#define DT_TURN_MID_0 0x1.c9c882a000000p-31
#define DT_TURN_LO_0 0x1.4fe13abe8fa9ap-61
#define DT_TURN_HI_35 -0x1.8ddf56c000000p-37
#define DT_TURN_MID_35 0x1.fc2757e000000p-66
#define DT_TURN_LO_35 -0x1.c1596447e493bp-95
#define DT_TURN_HI_70 -0x1.ec54170000000p-73
#define DT_TURN_MID_70 -0x1.5964480000000p-103
#define DT_TURN_LO_70 0x1.b6c52b3278872p-131

// clang-format on

#endif
