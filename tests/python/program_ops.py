"""The ops of random programs: what is called, on what, and how exactly torch and dtorch agree.

An op is one expression over a library ``L``, tensors ``a``, ``b``, ``c`` and drawn immediates:

- ``n`` a number, ``m`` a positive one, ``i`` an index into dim 0, ``s`` a step;
- ``S`` a shape and ``D`` a dtype, for what creates tensors.

Rule "0" is that of ops that do not look at the operand's values.

The same text is run by torch and by dtorch, printed when a program fails, and can be pasted.

How far a result may be from torch's is carried along as a bound on the absolute error: 0 where all
that led to it is exact, so that the bits have to agree. ``rule`` says what becomes of the operands'
bounds, ``tolerance`` what the op adds, in units of the dtype's tolerance and of the result's
greatest magnitude. A bound of inf: torch tells nothing of this value, as it came from a
discontinuous function of one that is not exact.

Exact, bit for bit: + - * / on all dtypes, comparisons, where, clamp, maximum and minimum, amax
and amin (but for a zero's sign), remainders, casts, copies, views, joins, fills, rounding, and
everything on integers and bool.
Within a tolerance: sqrt, number / tensor, transcendental functions, float sums, products,
normalisations, and what torch computes with FMA (addcmul, add with alpha, lerp).
"""

from __future__ import annotations

import math
import operator
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import dtorch
import torch

INF = math.inf

# name -> unit of tolerance, relative to the greatest magnitude
UNIT = {
    torch.float16: 2e-3,
    torch.bfloat16: 2e-2,
    torch.float32: 2e-6,
    torch.float64: 1e-12,
}
# half a unit in the last place, that an exact op adds once its operands differ
ROUNDING = {
    torch.float16: 2**-10,
    torch.bfloat16: 2**-7,
    torch.float32: 2**-23,
    torch.float64: 2**-52,
}

HALVES = (torch.float16, torch.bfloat16)

CATEGORY = {
    torch.bool: "b",
    torch.uint8: "i",
    torch.int8: "i",
    torch.int16: "i",
    torch.int32: "i",
    torch.int64: "i",
    torch.float16: "f",
    torch.bfloat16: "f",
    torch.float32: "f",
    torch.float64: "f",
}

NAMES = {
    "iadd": operator.iadd,
    "isub": operator.isub,
    "imul": operator.imul,
    "idiv": operator.itruediv,
    "setitem": operator.setitem,
}


def greatest(t: Any) -> float:
    """The greatest magnitude in a tensor; 0 when it is empty, inf or NaN when there is one."""
    if t.numel() == 0:
        return 0.0
    return float(t.abs().max()) if t.dtype is not torch.bool else 1.0


def _within(size: float) -> float:
    return min(size, 30.0) if size == size else 30.0


class Op:
    """One expression, compiled for both libraries."""

    __slots__ = ("dtorch", "fails", "fresh", "immediates", "rule", "tensors", "text", "tolerance",
                 "torch", "writes", "zeros")  # fmt: skip

    def __init__(
        self,
        text: str,
        rule: str = "x",
        tolerance: float = 0.0,
        *,
        fresh: bool = True,
        writes: int = -1,
        fails: str = "",
        zeros: bool = False,
    ) -> None:
        """``fresh``: the result has its own storage; ``writes``: the operand written in place, or
        -1; ``fails``: raises in dtorch, when it is run; torch makes this stand-in meanwhile;
        ``zeros``: a zero's sign is not certain, in torch it depends on the position."""
        names = re.findall(r"\b([abcnmisSD])\b(?!=)", text)
        self.text = text
        self.tensors = [x for x in "abc" if x in names]
        self.immediates = [x for x in "nmisSD" if x in names]
        self.rule = rule
        self.tolerance = tolerance
        self.fresh = fresh
        self.writes = writes
        self.fails = bool(fails)
        self.zeros = zeros
        arguments = ", ".join(self.tensors + self.immediates)
        self.torch: Callable[..., Any] = eval(f"lambda {arguments}: {fails or text}",
                                              {"L": torch, **NAMES})  # fmt: skip
        self.dtorch: Callable[..., Any] = eval(f"lambda {arguments}: {text}",
                                               {"L": dtorch, **NAMES})  # fmt: skip

    def show(self, operands: Sequence[str], immediates: Sequence[Any]) -> str:
        """The expression with names of variables and literals put in."""
        names = dict(zip(self.tensors, operands, strict=True))
        names |= {k: show(v) for k, v in zip(self.immediates, immediates, strict=True)}
        return re.sub(r"\b([abcnmisSD])\b(?!=)", lambda x: names.get(x[1], x[1]), self.text)

    def bound(self, inputs: Sequence[Any], errors: Sequence[float], imms: Sequence[Any],
              out: Any) -> float:  # fmt: skip
        """The bound on the error of ``out``, given those of the operands."""
        worst = max(errors, default=0.0)
        if self.rule == "0":
            return 0.0
        half = next((t.dtype for t in inputs if t.dtype in HALVES), None)
        if half is not None and any(
            t.ndim == 0 and t.dtype not in (half, torch.bool) for t in inputs
        ):
            # torch's * and / take such an operand as it is, ours in the dtype of the result.
            worst = max(worst, UNIT[half] * min(30.0, max(greatest(t) for t in inputs)))
            errors = [worst] * len(inputs)
        if worst == 0 and self.tolerance == 0:
            return 1e-40 if self.zeros and CATEGORY[out.dtype] == "f" and (out == 0).any() else 0.0
        rule = self.rule
        if worst == INF or (rule == "x" and worst > 0):
            return INF
        if CATEGORY[out.dtype] != "f":
            # An exact function of exact operands, or a discontinuous one of others.
            return 0.0 if worst == 0 else INF
        size = greatest(out)
        if not math.isfinite(size):
            return INF  # the one may overflow where the other does not
        error = 1e-30
        if self.tolerance:  # of the operand too: gelu's tail is x times a difference near 0
            most = max(size, _within(greatest(inputs[0])), self.tolerance / 30)
            error += UNIT[out.dtype] * self.tolerance * most
        if worst > 0:
            sizes = [greatest(t) for t in inputs]
            error += 8 * ROUNDING[out.dtype] * max(size, *sizes)
        if rule == "1":
            error += worst
        elif rule == "+":
            error += sum(errors) * (len(inputs) + 1 if len(inputs) == 1 else 1)
        elif rule == "n":
            number = max((abs(x) for x in imms if isinstance(x, (int, float))), default=1.0)
            error += worst * max(1.0, number)
        elif rule == "*":
            if worst > 0:
                error += 4 * len(inputs) * worst * (max(sizes) + worst + 1)
        elif rule == "sum":
            terms = inputs[0].numel() // max(1, out.numel())
            terms = terms if terms > 1 else max(inputs[0].shape, default=1)
            error += (worst + UNIT[out.dtype] * 0.2 * greatest(inputs[0])) * terms * 2
        elif rule == "mean":
            error += worst + UNIT[out.dtype] * 4 * greatest(inputs[0])
        elif rule == "@":
            a, b = inputs[0], inputs[-1 if len(inputs) < 3 else 1]
            terms = a.shape[-1] if a.ndim else 1
            x, y = greatest(a), greatest(b)
            error += terms * (UNIT[out.dtype] * x * y + worst * (x + y + worst))
            error += worst if len(inputs) > 2 else 0
        elif worst > 0:
            return INF
        return error if math.isfinite(error) else INF


def show(value: Any) -> str:
    """An immediate as it stands in the text of a program."""
    if isinstance(value, torch.dtype):
        return f"torch.{str(value).split('.')[-1]}"
    return repr(value)


def ops(rule: str, *texts: str, tolerance: float = 0.0, **options: Any) -> list[Op]:
    return [Op(text, rule, tolerance, **options) for text in texts]


# --- element-wise, by category of the operands ---------------------------------------------------

_SAFE = "L.where(a == a, a, n).clamp(-100, 100)"  # a float that every signed integer can hold

ONE_FLOAT = [
    *ops("1", "-a", "abs(a)", "L.neg(a)", "L.abs(a)", "a.relu()", "L.relu(a)", "a.clamp(-2, 3)",
         "a.clone()", "L.nn.functional.relu(a)"),
    *ops("1", "L.clamp(a, min=n)", "L.clamp(a, max=n)", zeros=True),
    *ops("1", "a + n", "n + a", "a - n", "n - a", "L.add(a, n)", "L.sub(a, n)"),
    *ops("n", "a * n", "n * a", "L.mul(a, n)", "a * n + n", "(a * n).relu()"),
    *ops("n", "a / 2", "a / 8"),
    *ops("x", "a / m", "L.reciprocal(a)"),
    *ops("x", "L.sign(a)", "a.floor()", "L.ceil(a)", "a.trunc()", "L.round(a)", "a % m",
         "L.fmod(a, m)", "a // m"),
    *ops("*", "a * a", "a ** 2", "L.square(a)"),
    *ops("+", "a + a"),
    *ops("x", "a > n", "a <= n", "a == n", "n >= a", "L.isnan(a)", "L.isinf(a)", "L.isfinite(a)",
         "L.logical_not(a)", "a != a", "a.bool()"),
    *ops("1", "L.where(a > n, a, n)", "a.masked_fill(a < n, n)", "L.where(a < n, n, a)"),
    *ops("1", "a.to(L.float64)", "a.double()", "a.float()", "a.half()", "a.bfloat16()",
         fresh=False),
    *ops("x", *(f"{_SAFE}.to(L.{d})" for d in ("int8", "int16", "int32", "int64"))),
    *ops("x", f"abs({_SAFE}).to(L.uint8)"),
]  # fmt: skip
ONE_FLOAT_NEAR = [
    # torch's sqrt, of MKL, is not rounded right; its m / a is a.reciprocal() * m, rounded twice.
    *ops("x", "L.sqrt(a)", "abs(a).sqrt()", "m / a", tolerance=2),
    *ops("1", "L.sin(a.clamp(-30, 30))", "a.clamp(-30, 30).cos()", "a.tanh()", "L.tanh(a)",
         "L.sigmoid(a)", "a.sigmoid()", "L.atan(a)", "L.log1p(abs(a))", "L.log(abs(a) + 1)",
         "L.rsqrt(abs(a) + 1)", tolerance=4),
    *ops("+", "L.erf(a)", "L.erfc(a)", tolerance=4),
    *ops("+", "L.nn.functional.gelu(a.clamp(-30, 30))", "L.nn.functional.silu(a.clamp(-30, 30))",
         tolerance=8),
    *ops("1", "L.nn.functional.softplus(a)", "L.nn.functional.leaky_relu(a, 0.1)",
         "L.nn.functional.elu(a)", tolerance=4),
    *ops("x", "L.exp(a.clamp(-5, 5))", "a.clamp(-5, 3).expm1()", "L.exp2(a.clamp(-5, 5))",
         "L.sinh(a.clamp(-3, 3))", "L.cosh(a.clamp(-3, 3))", "L.tan(a.clamp(-1, 1))",
         "L.asin(a.clamp(-1, 1))", "L.acos(a.clamp(-1, 1))", "L.log2(abs(a) + 1)",
         "L.log10(abs(a) + 1)", "a.clamp(-9, 9) ** 3", tolerance=8),
]  # fmt: skip
ONE_INTEGER = [
    *ops("x", "-a", "abs(a)", "a.relu()", "a.clamp(0, 3)", "L.clamp(a, max=n)", "a.clone()",
         "a + n", "n + a", "a - n", "n - a", "a * n", "L.add(a, n)", "a * a", "a + a", "a ** 2",
         "L.square(a)", "L.sign(a)", "~a", "L.bitwise_not(a)", "a & 5", "a | 3", "a ^ n", "a << 1",
         "a >> 1", "a // m", "a % m", "L.fmod(a, m)", "L.div(a, m, rounding_mode='trunc')",
         "a > n", "a <= n", "a == n", "n >= a", "a.bool()", "L.logical_not(a)",
         "L.where(a > n, a, n)", "a.masked_fill(a < n, n)", "a.floor()"),
    *ops("x", "a / m", "a * 0.5", "a + 1.5", "a / 2"),
    *ops("x", *(f"a.to(L.{d})" for d in ("int8", "uint8", "int16", "int32", "int64", "float16",
         "bfloat16", "float32", "float64")), "a.float()", "a.long()", fresh=False),
]  # fmt: skip
ONE_BOOL = [
    *ops("x", "~a", "L.logical_not(a)", "a.clone()", "a + 1", "a * 2.5", "a & True", "a | False",
         "a == True", "a.masked_fill(a, False)", "L.where(a, n, 0)", "a + True"),
    *ops("x", "a.float()", "a.long()", "a.to(L.int8)", "a.to(L.bfloat16)", "a.double()",
         fresh=False),
]  # fmt: skip
ONE = {"f": ONE_FLOAT, "i": ONE_INTEGER, "b": ONE_BOOL}

_COMPARE = [
    *ops("x", "a == b", "a != b", "a < b", "a <= b", "a > b", "a >= b", "L.eq(a, b)"),
    *ops("x", "L.gt(a, b)", "L.logical_and(a, b)", "L.logical_or(a, b)", "L.logical_xor(a, b)"),
]
_ANY_TWO = [
    *ops("+", "a + b", "b + a", "L.add(a, b)"),
    *ops("*", "a * b", "L.mul(a, b)"),
    *ops("1", "L.maximum(a, b)", "L.minimum(a, b)", "L.max(a, b)", zeros=True),
    *ops("x", "L.fmax(a, b)", "L.fmin(a, b)", zeros=True),
    *ops("x", "L.where(b != 0, a, b)", "L.where(b == b, a, n)"),
    *_COMPARE[:7],
]
_SUB = ops("+", "a - b", "b - a", "L.sub(a, b)")
TWO_FLOAT = [
    *_ANY_TWO,
    *ops("x", "L.where(a > b, a, b)", "L.where(b > n, a, n)", "a / b", "b / a", "L.div(a, b)",
         "a.masked_fill(b > n, m)"),
    *ops("+", "(a + b).relu()", "(a + b) * 0.5", "b + (a + n)"),
    *ops("*", "a * n + b", "a * b + a", "b * a * 0.25"),
]  # fmt: skip
TWO_FLOAT_NEAR = [
    *ops("n", "L.add(a, b, alpha=2)", tolerance=4),
    *ops("x", "L.sub(a, b, alpha=3)", "L.atan2(a, b)", tolerance=4),
    *ops("x", "L.lerp(a, b.to(a.dtype), 0.3)", tolerance=8),
]
TWO_INTEGER = [
    *_ANY_TWO,
    *ops("x", "L.where(a > b, a, b)", "a & b", "a | b", "a ^ b", "L.bitwise_and(a, b)",
         "a / ((b & 7) | 1)", "a // ((b & 7) | 1)", "a % ((b & 7) | 1)", "a.masked_fill(b > n, m)"),
]  # fmt: skip
TWO_BOOL = [*_ANY_TWO[:8], *_COMPARE, *ops("x", "a & b", "a | b", "a ^ b")]
TWO = {  # by the categories of both
    "ff": TWO_FLOAT + _SUB,
    "fi": TWO_FLOAT + _SUB,
    "if": TWO_FLOAT + _SUB,
    "ii": TWO_INTEGER + _SUB,
    "fb": TWO_FLOAT,
    "bf": _ANY_TWO + _COMPARE,
    "ib": _ANY_TWO + _COMPARE,
    "bi": _ANY_TWO + _COMPARE,
    "bb": TWO_BOOL,
}
THREE = [
    *ops("*", "a * b + c", "c + a * b", "(a + c) * b"),
    *ops("x", "L.where(a > b, b, c)", "L.where(b != 0, c, a)"),
    *ops("x", "L.clamp(a, min=b, max=c)", zeros=True),
    *ops("x", "L.addcmul(a, b, c, value=2)", tolerance=8),
]
MASKED = [  # a is bool
    *ops("1", "L.where(a, b, c)", "L.where(a, b, n)", "b.masked_fill(a, n)", "L.where(a, n, b)")
]
# Chains that a user writes in one line; their intermediates have no name.
LINES = [
    *ops("*", "((((a*2+1)*3+b)*0.5+a)*0.25+b).relu()", "((a - b) * (a + b)).clamp(-9, 9)"),
    *ops("x", "L.where((a * 0.5 + b) > 0, a, b * 0.1)", "((a > b) & (a < 2)) | (b != a)"),
    *ops("+", "(a.double() + b).float() + 1"),
]

# --- in place -------------------------------------------------------------------------------------


def writing(rule: str, *texts: str, tolerance: float = 0.0) -> list[Op]:
    return ops(rule, *texts, tolerance=tolerance, fresh=False, writes=0)


_FILL = writing("1", "a.fill_(n)", "a.zero_()", "setitem(a, slice(i, None), n)",
                "setitem(a, (Ellipsis, slice(None, None, s)), n)")  # fmt: skip
INPLACE_ONE = {
    "f": [
        *_FILL,
        *writing("1", "iadd(a, n)", "isub(a, n)", "a.add_(n)", "a.sub_(n)", "a.relu_()",
                 "a.neg_()", "a.abs_()", "a.clamp_(-3, 3)"),
        *writing("n", "imul(a, n)", "a.mul_(n)", "idiv(a, 2)"),
        *writing("*", "a.mul_(a)", "a.square_()"),
        *writing("x", "a.floor_()", "a.masked_fill_(a > n, m)", "idiv(a, m)",
                 "a.reciprocal_()", "a.sign_()"),
        *writing("1", "a.sigmoid_()", "a.tanh_()", tolerance=4),
        *writing("x", "a.sqrt_()", tolerance=2),
    ],
    "i": [
        *_FILL,
        *writing("x", "iadd(a, n)", "a.mul_(n)", "a.neg_()", "a.abs_()", "a.clamp_(-3, 3)",
                 "a.bitwise_and_(7)", "a.bitwise_not_()", "a.floor_divide_(m)", "a.relu_()",
                 "a.masked_fill_(a > n, m)"),
    ],
    "b": [*writing("x", "a.logical_not_()", "a.fill_(True)", "a.zero_()", "a.bitwise_not_()")],
}  # fmt: skip
_TWO_ANY = [*writing("1", "a.copy_(b)", "setitem(a, Ellipsis, b)")]
INPLACE_TWO = {  # by the category of the one written; the other is not above it
    "f": [
        *_TWO_ANY,
        *writing("+", "iadd(a, b)", "a.add_(b)"),
        *writing("*", "imul(a, b)", "a.mul_(b)"),
        *writing("x", "a.masked_fill_(b > 0, n)", "setitem(a, b > 0, n)", "idiv(a, b)"),
    ],
    "i": [
        *_TWO_ANY,
        *writing(
            "x", "iadd(a, b)", "a.mul_(b)", "a.masked_fill_(b > 0, n)", "setitem(a, b > 0, n)"
        ),
    ],
    "b": [*_TWO_ANY, *writing("x", "a.logical_xor_(b)", "iadd(a, b)")],
}


def out(rule: str, text: str, operands: int) -> Op:
    return Op(text, rule, fresh=False, writes=operands, zeros="maximum" in text)


OUT_ONE = {  # into b
    "f": [out("1", "L.abs(a, out=b)", 1), out("1", "L.neg(a, out=b)", 1),
          out("x", "L.trunc(a, out=b)", 1), out("x", "L.floor(a, out=b)", 1),
          out("n", "L.mul(a, n, out=b)", 1), out("1", "L.add(a, n, out=b)", 1)],
    "i": [out("x", "L.abs(a, out=b)", 1), out("x", "L.mul(a, n, out=b)", 1)],
    "b": [out("x", "L.logical_not(a, out=b)", 1)],
}  # fmt: skip
OUT_TWO = [  # into c
    out("+", "L.add(a, b, out=c)", 2),
    out("*", "L.mul(a, b, out=c)", 2),
    out("1", "L.maximum(a, b, out=c)", 2),
]
OUT_COMPARE = [out("x", "L.gt(a, b, out=c)", 2), out("x", "L.eq(a, b, out=c)", 2)]  # c is bool

# --- views --------------------------------------------------------------------------------------


def views(*texts: str) -> list[Op]:
    return ops("1", *texts, fresh=False)


VIEWS_ANY = views("a.unsqueeze(0)", "a.unsqueeze(-1)", "a.squeeze()", "a.reshape(-1)",
                  "a.detach()", "a.flatten()", "a.expand(2, *a.shape)", "a.contiguous()",
                  "a.view(a.shape)")  # fmt: skip
VIEWS_1 = views("a[i:]", "a[i:]", "a[::s]", "a[i:][::s]", "a[i]", "a[:1]", "a.narrow(0, i, 1)",
                "a[None]", "a.split(max(1, i), 0)[0]", "a.chunk(2, 0)[-1]", "a.reshape(-1)[0]",
                "a[..., :1]", "a[..., -1]", "a[..., ::s]")  # fmt: skip
VIEWS_2 = views("a.t()", "a.t()", "a.T", "a.transpose(0, -1)", "a[0]", "a[:, :1]", "a[:, i:]",
                "a[:, 0]", "a.permute(1, 0)", "a.diagonal()", "a[i:, ::s]", "a.unbind(1)[0]",
                "a.t()[i:]", "a[-1:]", "a.t().reshape(-1)")  # fmt: skip

# --- reductions, products, joins, creation ------------------------------------------------------

REDUCE = {
    "f": [
        *ops("sum", "a.sum()", "a.sum(0)", "a.sum(-1)", "L.sum(a, -1, keepdim=True)",
             "(a * 2 + 1).sum(-1)", "a.cumsum(-1)", "(a + 1).sum()", tolerance=8),
        *ops("mean", "a.mean()", "a.mean(-1, keepdim=True)", "L.mean(a, 0)", tolerance=8),
        *ops("1", "L.amax(a, -1)", "a.amin(0)", "a.max()", "L.max(a, -1)[0]", "a.min(0)[0]",
             "a.amax(-1, keepdim=True)", zeros=True),
        *ops("x", "a.argmax(-1)", "L.argmin(a)", "a.max(-1)[1]", "a.any()", "a.all(-1)",
             "(a > n).any(0)", "(a > n).sum()", "L.tril(a.reshape(1, -1))"),
        *ops("x", "L.softmax(a.clamp(-20, 20), -1)", "L.log_softmax(a.clamp(-20, 20), -1)",
             "L.logsumexp(a.clamp(-20, 20), -1)", tolerance=16),
        *ops("x", "L.nn.functional.layer_norm(a.clamp(-9, 9), a.shape[-1:], eps=0.1)",
             "L.nn.functional.rms_norm(a.clamp(-9, 9), a.shape[-1:], eps=0.1)", tolerance=80),
        *ops("x", "a.clamp(-9, 9).norm()", "a.clamp(-9, 9).var(-1, correction=0)", tolerance=80),
    ],
    "i": [
        *ops("x", "a.sum()", "a.sum(0)", "a.sum(-1, keepdim=True)", "a.prod(-1)", "a.cumsum(0)",
             "L.amax(a, -1)", "a.amin(0)", "a.argmax(-1)", "a.max(-1)[0]", "a.any()", "a.all(-1)",
             "(a * 2 + 1).sum(-1)"),
    ],
    "b": [*ops("x", "a.sum()", "a.any()", "a.all(0)", "a.sum(-1)", "a.any(-1, keepdim=True)")],
}  # fmt: skip

PRODUCT_ONE = [
    *ops("x", "a.clamp(-9, 9) @ a.clamp(-9, 9).t()", "(a.clamp(-9, 9).t() @ a.clamp(-9, 9)).relu()",
         tolerance=60),
]  # fmt: skip
PRODUCT_TWO = [  # rows of equal length
    *ops("@", "a @ b.t()", "L.nn.functional.linear(a, b)", "L.mm(a, b.t())",
         "(a @ b.t()) + 1", tolerance=8),
    *ops("@", "L.nn.functional.linear(a, b, b[:, 0])", "(a @ b.t()).relu()",
         "(a @ b.t() + b[:, 0]).relu()", "L.addmm(b[:, 0], a, b.t())",
         "a.matmul(b[0])", tolerance=16),
    *ops("x", "L.nn.functional.gelu(L.nn.functional.linear(a, b, b[:, 0]).clamp(-30, 30))",
         "L.bmm(a[None], b.t()[None])", tolerance=60),
]  # fmt: skip
PRODUCT_INTEGER = [*ops("x", "a @ b.t()", "(a @ b.t()) + 1")]

JOIN_ONE = [
    *ops("1", "L.cat([a, a], 0)", "L.stack([a, a], -1)", "L.cat([a[i:], a[:i]], 0)",
         "a.index_select(0, L.tensor([i, 0, i]))", "L.cat([a, a + 1], -1)"),
]  # fmt: skip
JOIN_TWO = [*ops("1", "L.stack([a, b.to(a.dtype)], 0)", "L.cat([a, b], -1)", "L.cat((b, a, b), 0)")]

CREATE = [
    *ops("x", "L.zeros(S, dtype=D)", "L.ones(S, dtype=D)", "L.full(S, n, dtype=D)",
         "L.empty(S, dtype=D).fill_(n)", "L.arange(m, dtype=D)"),
]  # fmt: skip
CREATE_LIKE = [
    *ops("0", "L.zeros_like(a)", "L.full_like(a, m)", "L.ones_like(a)", "L.empty_like(a).zero_()")
]
# The integer division by zero is torch's error at the call, ours at the await.
FAILING = [
    Op("a // (a * 0)", fails="L.zeros_like(a)"),
    Op("(a + 1) % (a ^ a)", fails="L.zeros_like(a)"),
    Op("L.fmod(a, a - a) + 1", fails="L.zeros_like(a)"),
]

_NUMBERS_FLOAT = [-3, -1, 0, 0.5, 1, 1.5, 2, -0.25, 3, 0.75, 0.1, -1.7, 1e-3, 3.3, 1 / 3, -0.9]
_NUMBERS_INTEGER = [0, 1, 2, 3, 5, -1, -2, -4]
_NUMBERS_BYTE = [0, 1, 2, 3, 5, 7]


def immediate(r: random.Random, kind: str, dtype: Any, length: int) -> Any:
    """A drawn immediate; ``length`` is that of the dim which ``i`` indexes."""
    k = r.random()
    if kind == "n":
        if dtype.is_floating_point:
            choice: list[Any] = _NUMBERS_FLOAT
        elif dtype is torch.bool:
            return k < 0.5
        else:
            choice = _NUMBERS_BYTE if dtype is torch.uint8 else _NUMBERS_INTEGER
        return choice[int(k * len(choice))]
    if kind == "m":
        return (1, 2, 3, 4, 5, 7)[int(k * 6)]
    if kind == "i":
        return int(k * length)
    return 1 + int(k * 3)  # s
