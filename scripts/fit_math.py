#!/usr/bin/env python3
"""Fit the polynomials of kernels/cpu/simd/math_coef.h and write that header.

Every polynomial is found by Lawson's reweighted least squares on a dense Chebyshev grid: it
minimises the largest weighted error max |w(x) (f(x) - sum_k c_k x^k)|. Coefficients must be floats
(or doubles), and rounding all of them at the end would cost accuracy, so they are rounded one by
one, lowest power first, and the rest is fitted again around those already fixed. The constants for
the reduction of sin, cos and tan are 2^e / (2 pi) modulo 1, from mpmath.

    python3 scripts/fit_math.py          writes the header
    python3 scripts/fit_math.py --check  fails if the header is not what this script writes

Needs numpy and mpmath.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp
import numpy as np
import numpy.typing as npt

mp.mp.dps = 60
HEADER = pathlib.Path(__file__).resolve().parent.parent / "kernels/cpu/simd/math_coef.h"
GRID = 700
ROUNDS = 60

Fn = Callable[[mp.mpf], mp.mpf]
Vec = npt.NDArray[np.longdouble]


def one(_: mp.mpf) -> mp.mpf:
    """The weight of an absolute error."""
    return mp.mpf(1)


@dataclass
class Fit:
    """One polynomial: `name(z)` with `count` coefficients approximates `f` on [lo, hi]."""

    name: str
    f: Fn
    weight: Fn
    lo: float
    hi: float
    count: int
    what: str
    double: bool = False


def minimax(x: Vec, f: Vec, w: Vec, first: int, count: int) -> Vec:
    """The `count` coefficients of x^first .. that are nearly best in the weighted maximum norm.

    Lawson's method: least squares, with each point's weight multiplied by its error after every
    round. Unlike the Remez exchange it needs no Haar condition, which the basis loses once low
    powers are fixed.
    """
    basis = np.stack([w * x ** (first + k) for k in range(count)], axis=1)
    scale = np.max(np.abs(basis), axis=0)
    basis = basis / scale
    lam = np.full(len(x), 1.0 / len(x))
    best, best_err = np.zeros(count, np.longdouble), np.inf
    for _ in range(ROUNDS):
        root = np.sqrt(lam)[:, None]
        weighted = (root * basis).astype(np.float64)
        coef = np.zeros(count, np.longdouble)
        for _ in range(3):  # refinement: residuals in long double, corrections in double
            rest = (root[:, 0] * (w * f - basis @ coef)).astype(np.float64)
            coef = coef + np.linalg.lstsq(weighted, rest, rcond=None)[0]
        err = np.abs(w * f - basis @ coef).astype(np.float64)
        if err.max() < best_err:
            best, best_err = coef, err.max()
        lam = lam * (err / err.max() + 1e-9)
        lam = lam / lam.sum()
    return best / scale


def solve(fit: Fit) -> tuple[list[float], float]:
    """Coefficients of one fit, rounded, and log2 of the largest weighted error."""
    mid, half = (mp.mpf(fit.lo) + fit.hi) / 2, (mp.mpf(fit.hi) - fit.lo) / 2
    xm = [mid - half * mp.cos(mp.pi * (i + mp.mpf("0.5")) / GRID) for i in range(GRID)]
    x, f, w = (
        np.array([np.longdouble(mp.nstr(g(v), 25)) for v in xm])
        for g in (lambda v: v, fit.f, fit.weight)
    )
    coef: list[float] = []
    for k in range(fit.count):
        c = minimax(x, f, w, k, fit.count - k)[0]
        coef.append(float(c) if fit.double else float(np.float32(c)))
        f = f - np.longdouble(coef[-1]) * x**k
    return coef, float(np.log2(np.max(np.abs(f * w))))


def odd(f: Fn) -> tuple[Fn, Fn]:
    """(P, weight) with f(x) = x + x^3 P(x^2) and the error of P taken relative to f."""

    def p(z: mp.mpf) -> mp.mpf:
        x = mp.sqrt(z)
        return (f(x) - x) / x**3

    def w(z: mp.mpf) -> mp.mpf:
        x = mp.sqrt(z)
        return x**3 / f(x)

    return p, w


def erfcx(x: mp.mpf) -> mp.mpf:
    """exp(x^2) erfc(x)."""
    return mp.exp(x**2) * mp.erfc(x)


def fits() -> list[Fit]:
    """All polynomials, in the order of the header."""
    ln2, mid = mp.log(2), mp.mpf(1) / 2
    ln2_float = mp.mpf(float(np.float32(float(ln2))))
    eps = float(mp.mpf(2) ** -20)
    out = [
        Fit(
            "exp",
            lambda r: (mp.exp(r) - 1 - r) / r**2,
            lambda r: r**2,
            -0.3470,
            0.3470,
            5,
            "(exp(r) - 1 - r) / r^2, |r| <= ln2/2",
        ),
        Fit(
            "expm1",
            lambda r: (mp.expm1(r) - r) / r**2,
            lambda r: r**2 / abs(mp.expm1(r)),
            -0.3470,
            0.3470,
            5,
            "(expm1(r) - r) / r^2, |r| <= ln2/2, relative to expm1",
        ),
        Fit(
            "exp2",
            lambda r: (mp.exp(r * ln2) - 1 - r * ln2_float) / r**2,
            lambda r: r**2,
            -0.5,
            0.5,
            5,
            "(2^r - 1 - r ln2) / r^2, |r| <= 1/2, ln2 rounded to float",
        ),
        Fit(
            "log",
            lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3,
            lambda f: abs(f**3 / mp.log1p(f)),
            -0.2929,
            0.4143,
            8,
            "(log(1+f) - f + f^2/2) / f^3, 1+f in [sqrt(1/2), sqrt(2)]",
        ),
        Fit(
            "log2",
            lambda f: (mp.log1p(f) / ln2 - f / ln2) / f**2,
            lambda f: abs(f**2 / mp.log1p(f)),
            -0.2929,
            0.4143,
            9,
            "(log2(1+f) - f/ln2) / f^2",
        ),
        Fit(
            "log10",
            lambda f: (mp.log1p(f) - f) / f**2 / mp.log(10),
            lambda f: abs(f**2 / mp.log1p(f)),
            -0.2929,
            0.4143,
            9,
            "(log10(1+f) - f/ln10) / f^2",
        ),
    ]
    p, w = odd(mp.tanh)
    out.append(Fit("tanh", p, w, eps, 0.82**2, 6, "(tanh(x) - x) / x^3 in x^2, |x| <= 0.82"))
    p, w = odd(mp.sinh)
    out.append(Fit("sinh", p, w, eps, 1.0, 4, "(sinh(x) - x) / x^3 in x^2, |x| <= 1"))
    p, w = odd(mp.asin)
    out.append(Fit("asin", p, w, eps, 0.3165, 6, "(asin(x) - x) / x^3 in x^2, |x| <= 9/16"))
    p, w = odd(mp.atan)
    out.append(Fit("atan", p, w, eps, 1.0, 9, "(atan(x) - x) / x^3 in x^2, |x| <= 1"))
    p, w = odd(mp.asinh)
    out.append(Fit("asinh", p, w, eps, 0.25, 5, "(asinh(x) - x) / x^3 in x^2, |x| <= 1/2"))
    p, w = odd(mp.atanh)
    out.append(Fit("atanh", p, w, eps, 0.25, 6, "(atanh(x) - x) / x^3 in x^2, |x| <= 1/2"))
    out += [
        Fit(
            "erf",
            lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1,
            lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)),
            eps,
            1.0,
            7,
            "erf(x) / x - 1 in x^2, |x| <= 1",
        ),
        Fit(
            "erf_tail",
            lambda x: -mp.log(mp.erfc(x)),
            lambda x: mp.erfc(x),
            1.0,
            3.93,
            7,
            "-log(erfc(x)), 1 <= x <= 3.93, absolute in erfc",
        ),
        Fit(
            "erfcx",
            lambda v: erfcx(1 / (v + mid) - 1) / (v + mid),
            lambda v: (v + mid) / erfcx(1 / (v + mid) - 1),
            1 / 11.7 - float(mid),
            1.0 - float(mid),
            12,
            "exp(x^2) erfc(x) / u in u - 1/2, u = 1/(x+1), 0 <= x <= 10.7",
        ),
        Fit(
            "sin",
            lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
            lambda z: z * mp.sqrt(z) / mp.sin(mp.sqrt(z)),
            eps,
            0.62,
            4,
            "(sin(r) / r - 1) / r^2 in r^2, |r| <= pi/4",
            True,
        ),
        Fit(
            "cos",
            lambda z: (mp.cos(mp.sqrt(z)) - 1) / z,
            lambda z: z,
            eps,
            0.62,
            4,
            "(cos(r) - 1) / r^2 in r^2, |r| <= pi/4",
            True,
        ),
        Fit(
            "pow_log",
            lambda z: 2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) / ln2,
            lambda z: mp.sqrt(z) / mp.atanh(mp.sqrt(z)),
            eps,
            0.02945,
            6,
            "log2((1+s)/(1-s)) / s in s^2, |s| <= 3 - sqrt(8)",
            True,
        ),
        Fit("pow_exp", lambda r: mp.mpf(2) ** r, one, -0.5, 0.5, 7, "2^r, |r| <= 1/2", True),
    ]
    return out


def literal(c: float, double: bool) -> str:
    """A C literal that reads back to exactly `c`."""
    return (
        repr(c)
        if double
        else np.format_float_scientific(np.float32(c), unique=True, trim="0") + "f"
    )


def polynomial(fit: Fit) -> str:
    """The C function of one fit, by Estrin's scheme: pairs, pairs of pairs, then Horner's rule.

    Horner's rule alone is one long chain, and functions made of several polynomials would wait for
    latencies; their neighbours in the loop do not fit into the CPU's window.
    """
    coef, err = solve(fit)
    kind = "double" if fit.double else "float"
    lines = [
        f"/* {fit.what}; error 2^{err:.1f}. */",
        f"DT_MATH {kind} dt__poly_{fit.name}({kind} z) {{",
        f"    {kind} z2 = z * z;",
    ]
    terms = [literal(c, fit.double) for c in coef]
    power = "z"
    for level in range(2):
        if level == 1 and len(terms) > 2:
            lines.append(f"    {kind} z4 = z2 * z2;")
        joined: list[str] = []
        for i in range(0, len(terms) - 1, 2):
            name = f"{'pq'[level]}{i // 2}"
            lines.append(f"    {kind} {name} = {terms[i]} + {terms[i + 1]} * {power};")
            joined.append(name)
        terms = joined + terms[2 * len(joined) :]
        power = "z2" if level == 0 else "z4"
    value = terms[-1]
    for term in terms[-2::-1]:
        value = (
            f"{term} + {power} * {value}" if value == terms[-1] else f"{term} + {power} * ({value})"
        )
    lines += [f"    return {value};", "}", ""]
    print(f"{fit.name:10s} {fit.count:2d} coefficients, error 2^{err:.1f}", file=sys.stderr)
    return "\n".join(lines)


def pi_rows() -> str:
    """2^e / (2 pi) mod 1 over 2^e: two parts of 29 bits, exact times a float, and the rest."""
    text = [
        "/* x (hi + mid + lo) = x / (2 pi) modulo 1, within |x| 2^(-e - 112); for e > 0, x must be",
        " * a multiple of 2^e. x hi and x mid are exact for a float x. */",
    ]
    with mp.workdps(120):
        for e in (0, 35, 70):
            turn = mp.mpf(2) ** e / (2 * mp.pi)
            turn -= mp.nint(turn)
            hi = mp.nint(turn * 2**29) / mp.mpf(2) ** 29
            mid = mp.nint((turn - hi) * 2**58) / mp.mpf(2) ** 58
            for name, part in (("HI", hi), ("MID", mid), ("LO", turn - hi - mid)):
                text.append(f"#define DT_TURN_{name}_{e} {float(part * mp.mpf(2) ** -e).hex()}")
    return "\n".join(text) + "\n"


def main() -> int:
    """Write the header, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    parts = [
        "/* Polynomials and tables of math.h. Written by scripts/fit_math.py; do not edit.",
        " *",
        " * Each is evaluated in the order written, without FMA: the same bits on every ISA. */",
        "#ifndef DT_KERNELS_CPU_SIMD_MATH_COEF_H",
        "#define DT_KERNELS_CPU_SIMD_MATH_COEF_H",
        "",
        '#include "math_base.h"',
        "",
        "// clang-format off",
        "",
    ]
    parts += [polynomial(fit) for fit in fits()]
    parts += [pi_rows(), "// clang-format on", "", "#endif"]
    text = "\n".join(parts) + "\n"
    if args.check:
        return 0 if HEADER.read_text() == text else 1
    HEADER.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
