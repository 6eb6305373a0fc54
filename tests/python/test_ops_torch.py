"""Every op beside torch: dtypes, layouts, special values, and the class of errors.

One case is an expression over a library `L` and tensors. It is evaluated by torch and by dtorch on
the same values in every layout of :data:`LAYOUTS` and every dtype. Where torch raises, dtorch has
to raise the same class; else dtype, shape and values have to agree: exactly where the op is exact,
else within a tolerance that is a few units in the last place of the dtype.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import dtorch  # noqa: E402

DTYPES = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
]  # fmt: skip

# name -> (shape of the base, view taken of it by both libraries)
LAYOUTS: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "contiguous": ((4, 6), lambda t: t),
    "transposed": ((6, 4), lambda t: t.transpose(0, 1)),
    "sliced": ((8, 9), lambda t: t[::2, 1:7]),
    "expanded": ((4, 1), lambda t: t.expand(4, 6)),
    "empty": ((0, 6), lambda t: t),
    "scalar": ((), lambda t: t),
    "large": ((70, 130), lambda t: t),
}

TOLERANCE = {
    "float16": (2e-3, 1e-5),
    "bfloat16": (2e-2, 1e-5),
    "float32": (5e-6, 1e-7),
    "float64": (1e-12, 1e-14),
}


@dataclass(frozen=True)
class Case:
    name: str
    fn: Callable[..., Any]
    tensors: int = 1
    exact: bool = True
    special: bool = True  # NaN, inf and the like among the values
    positive: bool = False
    tolerance: float = 1.0  # factor on TOLERANCE
    dtypes: tuple[str, ...] = ()  # empty: all
    layouts: tuple[str, ...] = ()  # empty: all


def unary(names: str, **options: Any) -> list[Case]:
    return [Case(n, lambda L, x, n=n: getattr(L, n)(x), **options) for n in names.split()]


def binary(names: str, **options: Any) -> list[Case]:
    return [
        Case(n, lambda L, x, y, n=n: getattr(L, n)(x, y), tensors=2, **options)
        for n in names.split()
    ]


def methods(names: str, **options: Any) -> list[Case]:
    return [Case(f".{n}", lambda L, x, n=n: getattr(x, n)(), **options) for n in names.split()]


def inplace_unary(names: str, **options: Any) -> list[Case]:
    return [Case(n, lambda L, x, n=n: getattr(x.clone(), n)(), **options) for n in names.split()]


def case(name: str, fn: Callable[..., Any], **options: Any) -> Case:
    return Case(name, fn, **options)


def assigned(x: Any, index: Any, value: Any) -> Any:
    """A copy of x after x[index] = value."""
    x = x.clone()
    x[index] = value
    return x


MATRICES = ("contiguous", "transposed", "sliced", "expanded", "large")
NO_HALF = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64")
FLOATS = ("float16", "bfloat16", "float32", "float64")

CASES: list[Case] = [
    *unary("abs neg sign floor ceil trunc round isnan isinf isfinite logical_not bitwise_not"),
    *unary("square relu"),
    *unary(
        "exp expm1 exp2 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh "
        "sigmoid erf erfc reciprocal",
        exact=False,
    ),
    *methods("abs neg floor relu sigmoid tanh exp", exact=False),
    *inplace_unary("neg_ abs_ floor_ relu_ zero_ logical_not_"),
    *inplace_unary("exp_ sqrt_ sigmoid_ cos_ reciprocal_", exact=False),
    *binary("add sub mul eq ne lt le gt ge maximum minimum fmax fmin"),
    *binary("logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor"),
    *binary("div true_divide", exact=False),
    *binary("floor_divide remainder fmod", special=False),
    *binary("atan2", exact=False),
    case("pow", lambda L, x, y: L.pow(x, y), tensors=2, exact=False, special=False, positive=True,
         tolerance=4),
    case("pow2", lambda L, x: x**2, exact=False),
    case("pow3", lambda L, x: x**3, exact=False, tolerance=4),
    case("pow.5", lambda L, x: x**0.5, exact=False),
    case("rpow", lambda L, x: 2**x, exact=False, special=False, tolerance=4),
    case("x+1", lambda L, x: x + 1),
    case("x+1.5", lambda L, x: x + 1.5, exact=False),
    case("1-x", lambda L, x: 1 - x),
    case("x*2", lambda L, x: x * 2),
    case("x*True", lambda L, x: x * True),
    case("x/3", lambda L, x: x / 3, exact=False),
    case("2/x", lambda L, x: 2.0 / x, exact=False),
    case("x//3", lambda L, x: x // 3, special=False),
    case("x%3", lambda L, x: x % 3, special=False),
    case("x==1", lambda L, x: x == 1),
    case("x<0.5", lambda L, x: x < 0.5),
    case("x&1", lambda L, x: x & 1),
    case("x|3", lambda L, x: x | 3),
    case("x<<1", lambda L, x: x << 1),
    case("x>>1", lambda L, x: x >> 1),
    case("~x", lambda L, x: ~x),
    case("-x", lambda L, x: -x),
    case("abs(x)", lambda L, x: abs(x)),
    case("add.alpha", lambda L, x, y: L.add(x, y, alpha=2), tensors=2, exact=False),
    case("sub.alpha", lambda L, x, y: L.sub(x, y, alpha=3), tensors=2, exact=False, special=False),
    case("rsub", lambda L, x, y: L.rsub(x, y), tensors=2),
    case("div.trunc", lambda L, x, y: L.div(x, y, rounding_mode="trunc"), tensors=2, special=False),
    case("div.floor", lambda L, x, y: L.div(x, y, rounding_mode="floor"), tensors=2, special=False),
    case("iadd", lambda L, x, y: x.clone().add_(y), tensors=2),
    case("imul", lambda L, x, y: x.clone().mul_(y), tensors=2),
    case("idiv", lambda L, x, y: x.clone().div_(y), tensors=2, exact=False),
    case("iadd.view", lambda L, x, y: x.clone()[..., ::2].add_(y[..., ::2]), tensors=2,
         layouts=("contiguous", "transposed", "sliced", "empty", "large")),
    case("broadcast row", lambda L, x, y: x + y[0], tensors=2,
         layouts=("contiguous", "transposed", "sliced", "large")),
    case("broadcast outer", lambda L, x, y: x.unsqueeze(1) * y.unsqueeze(0), tensors=2,
         layouts=("contiguous", "transposed", "sliced")),
    case("where", lambda L, x, y: L.where(x > 0, x, y), tensors=2),
    case("where.scalar", lambda L, x: L.where(x > 0, x, 0)),
    case("clamp", lambda L, x: L.clamp(x, -1, 1)),
    case("clamp.min", lambda L, x: x.clamp(min=0)),
    case("clamp.max", lambda L, x: x.clamp(max=1)),
    case("clamp.tensor", lambda L, x, y: L.clamp(x, min=y), tensors=2),
    case("clamp_min", lambda L, x: L.clamp_min(x, 0)),
    case("masked_fill", lambda L, x: x.masked_fill(x > 1, 0)),
    case("addcmul", lambda L, x, y: L.addcmul(x, x, y, value=2), tensors=2, exact=False,
         special=False),
    case("addcdiv", lambda L, x, y: L.addcdiv(x, x, y, value=2), tensors=2, exact=False,
         special=False, positive=True),
    case("lerp", lambda L, x, y: L.lerp(x, y, 0.3), tensors=2, exact=False, special=False,
         tolerance=8),
    # special=False: torch's vectorised erf GELU of inf is NaN (its scalar one, and ours, inf).
    case("gelu", lambda L, x: L.nn.functional.gelu(x), exact=False, tolerance=4, special=False),
    case("gelu.tanh", lambda L, x: L.nn.functional.gelu(x, approximate="tanh"), exact=False,
         tolerance=20),
    case("silu", lambda L, x: L.nn.functional.silu(x), exact=False, tolerance=2),
    case("F.relu", lambda L, x: L.nn.functional.relu(x)),
    *[case(f"to.{d}", lambda L, x, d=d: x.to(getattr(L, d)), special=False) for d in DTYPES],
    case("float()", lambda L, x: x.float()),
    case("long()", lambda L, x: x.long(), special=False),
    case("clone", lambda L, x: x.clone()),
    case("contiguous", lambda L, x: x.contiguous()),
    case("zeros_like", lambda L, x: L.zeros_like(x)),
    case("ones_like", lambda L, x: L.ones_like(x)),
    case("full_like", lambda L, x: L.full_like(x, 1)),
    case("fill_", lambda L, x: x.clone().fill_(1)),
    case("copy_", lambda L, x, y: x.clone().copy_(y), tensors=2),
    case("copy_.row", lambda L, x, y: x.clone().copy_(y[0]), tensors=2,
         layouts=("contiguous", "transposed", "sliced", "large")),
    # reductions
    case("sum", lambda L, x: L.sum(x), exact=False, tolerance=8),
    case("sum.0", lambda L, x: x.sum(0), exact=False, tolerance=8),
    case("sum.-1", lambda L, x: x.sum(-1, keepdim=True), exact=False, tolerance=8),
    case("sum.dtype", lambda L, x: x.sum(dtype=L.float64), exact=False),
    case("prod", lambda L, x: L.prod(x), exact=False, special=False, tolerance=30,
         layouts=("contiguous", "transposed", "sliced", "expanded", "empty", "scalar")),
    case("prod.0", lambda L, x: L.prod(x, 0), exact=False, special=False, tolerance=30,
         layouts=("contiguous", "transposed", "sliced", "expanded", "empty", "scalar")),
    case("mean", lambda L, x: x.mean(), exact=False, tolerance=8),
    case("mean.0", lambda L, x: x.mean(0), exact=False, tolerance=8),
    case("mean.-1", lambda L, x: x.mean(dim=-1, keepdim=True), exact=False, tolerance=8),
    case("amax", lambda L, x: L.amax(x)),
    case("amax.0", lambda L, x: x.amax(0)),
    case("amin.-1", lambda L, x: x.amin(-1)),
    case("max", lambda L, x: L.max(x)),
    case("min", lambda L, x: x.min()),
    case("max.dim", lambda L, x: tuple(L.max(x, -1))),
    case("min.dim", lambda L, x: tuple(x.min(0))),
    case("max.other", lambda L, x, y: L.max(x, y), tensors=2),
    case("argmax", lambda L, x: L.argmax(x)),
    case("argmax.0", lambda L, x: x.argmax(0)),
    case("argmin.-1", lambda L, x: x.argmin(dim=-1, keepdim=True)),
    case("any", lambda L, x: x.any()),
    case("any.0", lambda L, x: x.any(0)),
    case("all", lambda L, x: x.all()),
    case("all.-1", lambda L, x: x.all(-1)),
    case("var", lambda L, x: x.var(), exact=False, special=False, tolerance=20),
    case("var.0", lambda L, x: L.var(x, 0, unbiased=False), exact=False, special=False,
         tolerance=20),
    case("std", lambda L, x: L.std(x, dim=-1, correction=0), exact=False, special=False,
         tolerance=20),
    case("norm", lambda L, x: x.norm(), exact=False, special=False, tolerance=8),
    case("norm.1", lambda L, x: x.norm(1, -1), exact=False, special=False, tolerance=8),
    case("norm.inf", lambda L, x: x.norm(math.inf), exact=False, special=False,
         layouts=("contiguous", "transposed", "sliced", "expanded", "scalar", "large")),
    case("norm.dim", lambda L, x: L.norm(x, dim=-1, keepdim=True), exact=False, special=False,
         tolerance=8),
    case("logsumexp", lambda L, x: L.logsumexp(x, -1), exact=False, special=False, tolerance=8),
    case("cumsum", lambda L, x: L.cumsum(x, -1), exact=False, special=False, tolerance=20),
    case("cumsum.0", lambda L, x: x.cumsum(0), exact=False, special=False, tolerance=20),
    case("cumprod", lambda L, x: L.cumprod(x, -1), exact=False, special=False, tolerance=30,
         layouts=("contiguous", "transposed", "sliced", "expanded", "empty", "scalar")),
    # views and joins
    case("transpose", lambda L, x: x.transpose(-1, 0)),
    case("t", lambda L, x: x.t()),
    case("T", lambda L, x: x.mT if x.ndim >= 2 else x.t()),
    case("permute", lambda L, x: x.permute(1, 0)),
    case("reshape", lambda L, x: x.reshape(-1)),
    case("reshape2", lambda L, x: x.reshape(2, -1)),
    case("view", lambda L, x: x.view(-1)),
    case("flatten", lambda L, x: L.flatten(x)),
    case("squeeze", lambda L, x: x.unsqueeze(0).squeeze()),
    case("unsqueeze", lambda L, x: x.unsqueeze(-1)),
    case("expand", lambda L, x: x.expand(2, *x.shape)),
    case("select", lambda L, x: x.select(0, 1)),
    case("narrow", lambda L, x: x.narrow(-1, 1, 3)),
    case("index int", lambda L, x: x[1]),
    case("index slice", lambda L, x: x[1:, ::2]),
    case("index none", lambda L, x: x[None, ..., 0]),
    case("split", lambda L, x: tuple(x.split(3, -1))),
    case("split sizes", lambda L, x: tuple(L.split(x, [1, 5], -1))),
    case("chunk", lambda L, x: tuple(x.chunk(4, -1))),
    case("unbind", lambda L, x: tuple(x.unbind(0))),
    case("diagonal", lambda L, x: x.diagonal()),
    case("movedim", lambda L, x: L.movedim(x, 0, 1)),
    case("cat", lambda L, x, y: L.cat([x, y]), tensors=2),
    case("cat.1", lambda L, x, y: L.cat((x, y, x), dim=-1), tensors=2),
    case("cat.mixed", lambda L, x: L.cat([x, x.float()], 0)),
    case("stack", lambda L, x, y: L.stack([x, y]), tensors=2),
    case("stack.-1", lambda L, x, y: L.stack([x, y], dim=-1), tensors=2),
    case("tril", lambda L, x: L.tril(x)),
    case("triu", lambda L, x: x.triu(1)),
    # sizes that depend on values
    case("nonzero", lambda L, x: L.nonzero(x)),
    case("nonzero.tuple", lambda L, x: x.nonzero(as_tuple=True)),
    case("nonzero.strided", lambda L, x: x[..., ::2].nonzero()),
    case("nonzero.3d", lambda L, x, y: L.nonzero(L.stack([x, y, x])), tensors=2),
    case("nonzero.out", lambda L, x: L.nonzero(x, out=L.empty(0, dtype=L.int64))),
    case("argwhere", lambda L, x: L.argwhere(x)),
    case("where.1", lambda L, x: L.where(x)),
    case("count_nonzero", lambda L, x: L.count_nonzero(x)),
    case("count_nonzero.dim", lambda L, x: x.count_nonzero(-1)),
    case("masked_select", lambda L, x, y: L.masked_select(x, y > 0), tensors=2),
    case("masked_select.row", lambda L, x: x.masked_select(x[0] > 0), layouts=MATRICES),
    case("masked_select.column", lambda L, x: L.masked_select(x[:, :1], x[1] > 0),
         layouts=MATRICES),
    case("masked_select.out", lambda L, x: L.masked_select(x, x > 0, out=L.empty(0, dtype=x.dtype)),
         layouts=MATRICES),
    case("masked_select.wrong", lambda L, x: L.masked_select(x, x)),
    case("[mask]", lambda L, x, y: x[y > 0], tensors=2),
    case("[mask].all", lambda L, x: x[x == x], special=False),
    case("[mask].none", lambda L, x: x[x != x], special=False),
    case("[mask rows]", lambda L, x, y: x[y[:, 0] > 0], tensors=2, layouts=MATRICES),
    case("[:, mask]", lambda L, x, y: x[:, y[0] > 0], tensors=2, layouts=MATRICES),
    case("[..., mask]", lambda L, x, y: L.stack([x, y])[..., y[0] > 0], tensors=2,
         layouts=MATRICES),
    case("[:, mask, :]", lambda L, x, y: L.stack([x, y], 2)[:, y[0] > 0, 1:], tensors=2,
         layouts=MATRICES),
    case("[:, mask2]", lambda L, x, y: L.stack([x, y])[:, y > 0], tensors=2, layouts=MATRICES),
    case("[mask, 1]", lambda L, x, y: x[y[:, 0] > 0, 1], tensors=2, layouts=MATRICES),
    case("[None, mask]", lambda L, x, y: x[None, y[:, 0] > 0], tensors=2, layouts=MATRICES),
    case("[mask] of another shape", lambda L, x: x[(x > 0)[:, :3]], layouts=MATRICES),
    case("[mask] = 3", lambda L, x, y: assigned(x, y > 0, 3), tensors=2),
    case("[mask] = 0-dim", lambda L, x, y: assigned(x, y > 0, y.amax()), tensors=2,
         layouts=(*MATRICES, "scalar")),
    case("[mask] = 0-dim cast", lambda L, x, y: assigned(x, y > 0, L.tensor(2.5)), tensors=2,
         layouts=MATRICES),
    case("[mask] = picked", lambda L, x, y: assigned(x, y > 0, y[y > 0]), tensors=2,
         layouts=MATRICES),
    case("[mask rows] = picked", lambda L, x, y: assigned(x, y[:, 0] > 0, y[y[:, 0] > 0]),
         tensors=2, layouts=MATRICES),
    case("[mask rows] = row", lambda L, x, y: assigned(x, y[:, 0] > 0, y[1]), tensors=2,
         layouts=MATRICES),
    case("[:, mask] = column", lambda L, x, y: assigned(x, (slice(None), y[0] > 0), y[:, :1]),
         tensors=2, layouts=MATRICES),
    case("[:, mask] = 3", lambda L, x, y: assigned(x, (slice(None), y[0] > 0), 3), tensors=2,
         layouts=MATRICES),
    case("[mask] = too many", lambda L, x: assigned(x, x != x, x[0]), special=False,
         layouts=MATRICES),
    case("unique", lambda L, x: L.unique(x)),
    case("unique.all", lambda L, x: x.unique(return_inverse=True, return_counts=True)),
    case("unique.counts", lambda L, x: x.unique(return_counts=True)),
    case("unique_consecutive", lambda L, x: L.unique_consecutive(x)),
    case("unique_consecutive.all", lambda L, x: L.unique_consecutive(x, True, True)),
    # products
    case("matmul", lambda L, x, y: x @ y.transpose(-1, 0), tensors=2, exact=False, special=False,
         tolerance=20),
    case("mm", lambda L, x, y: L.mm(x.t(), y), tensors=2, exact=False, special=False, tolerance=20),
    case("mv", lambda L, x, y: x.matmul(y[0]), tensors=2, exact=False, special=False, tolerance=20,
         layouts=("contiguous", "transposed", "sliced", "expanded", "large")),
    case("bmm", lambda L, x, y: L.bmm(x.expand(3, *x.shape), y.t().expand(3, *y.t().shape)),
         tensors=2, exact=False, special=False, tolerance=20),
    case("matmul.batch", lambda L, x, y: L.matmul(x.expand(2, 3, *x.shape), y.t()), tensors=2,
         exact=False, special=False, tolerance=20),
    case("addmm", lambda L, x, y: L.addmm(x[:, :1], x, y.t(), beta=2, alpha=3), tensors=2,
         exact=False, special=False, tolerance=30),
    case("addmm.0", lambda L, x, y: L.addmm(x[:, :1], x, y.t(), beta=0), tensors=2,
         exact=False, special=False, tolerance=30),
    case("linear", lambda L, x, y: L.nn.functional.linear(x, y, y[:, 0]), tensors=2, exact=False,
         special=False, tolerance=20),
    case("linear.3d", lambda L, x, y: L.nn.functional.linear(x.expand(2, *x.shape), y), tensors=2,
         exact=False, special=False, tolerance=20),
    # networks
    case("softmax", lambda L, x: L.softmax(x, -1), exact=False, special=False, tolerance=4),
    case("softmax.0", lambda L, x: L.nn.functional.softmax(x, dim=0), exact=False, special=False,
         tolerance=4),
    case("softmax.dtype", lambda L, x: L.softmax(x, -1, dtype=L.float32), exact=False,
         special=False, tolerance=4),
    case("log_softmax", lambda L, x: L.log_softmax(x, -1), exact=False, special=False, tolerance=8),
    case("layer_norm", lambda L, x, y: L.nn.functional.layer_norm(x, x.shape[-1:], y[0], y[1]),
         tensors=2, exact=False, special=False, tolerance=40,
         layouts=("contiguous", "transposed", "sliced", "large")),
    case("layer_norm.plain", lambda L, x: L.nn.functional.layer_norm(x, x.shape[-1:]), exact=False,
         special=False, tolerance=40),
    case("rms_norm", lambda L, x, y: L.nn.functional.rms_norm(x, x.shape[-1:], y[0]), tensors=2,
         exact=False, special=False, tolerance=20,
         layouts=("contiguous", "transposed", "sliced", "large")),
    case("sdpa", lambda L, x, y: L.nn.functional.scaled_dot_product_attention(
        x[None, None], y[None, None], x[None, None]), tensors=2, exact=False, special=False,
         tolerance=20),
    case("sdpa.causal", lambda L, x, y: L.nn.functional.scaled_dot_product_attention(
        x[None], y[None], x[None], is_causal=True), tensors=2, exact=False, special=False,
         tolerance=20, layouts=("contiguous", "transposed", "sliced", "large")),
    case("sdpa.mask", lambda L, x, y: L.nn.functional.scaled_dot_product_attention(
        x, y, x, attn_mask=(x @ y.t()) >= (x @ y.t()).amin()), tensors=2, exact=False,
         special=False, tolerance=20, layouts=("contiguous", "transposed", "sliced"),
         dtypes=("float32", "float64")),
    case("bool(any)", lambda L, x: bool((x == x).all()), special=False),
    case("item", lambda L, x: x.sum().item() if x.numel() < 100 else 0, special=False, exact=False,
         dtypes=NO_HALF, tolerance=8),
    case("tolist", lambda L, x: x.tolist(), special=False),
    case("len", lambda L, x: len(x)),
    case("iter", lambda L, x: tuple(iter(x))),
]  # fmt: skip


def values(dtype: str, shape: tuple[int, ...], case: Case, seed: int) -> Any:
    """A torch tensor of `shape`: moderate numbers, specials sprinkled in."""
    g = torch.Generator().manual_seed(seed)
    kind = getattr(torch, dtype)
    n = math.prod(shape)
    if dtype == "bool":
        return torch.randint(0, 2, shape, generator=g).bool()
    if not kind.is_floating_point:
        low = 1 if case.positive or not case.special else 0
        high = 5
        x = torch.randint(low, high, shape, generator=g)
        if kind.is_signed and not case.positive:
            x = x * (torch.randint(0, 2, shape, generator=g) * 2 - 1)
        return x.to(kind)
    x = torch.randn(shape, generator=g, dtype=torch.float64) * 2
    if case.positive or not case.special:
        x = torch.where(x.abs() < 0.1, torch.full_like(x, 0.7), x)
    if case.positive:
        x = x.abs()
    elif case.special and n >= 8:
        flat = x.view(-1)
        specials = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 2.5, -0.5]
        for k, s in enumerate(specials):
            flat[(k * 7919 + seed) % n] = s
    return x.to(kind)


def evaluate(fn: Callable[..., Any], lib: Any, tensors: list[Any]) -> tuple[Any, Exception | None]:
    try:
        result = fn(lib, *tensors)
        if lib is dtorch:
            result = to_torch(result)
        return result, None
    except Exception as error:
        return None, error


def to_torch(result: Any) -> Any:
    if isinstance(result, (tuple, list)) and result and isinstance(result[0], dtorch.Tensor):
        return tuple(to_torch(r) for r in result)
    return result.to_torch() if isinstance(result, dtorch.Tensor) else result


def check(case: Case, dtype: str, want: Any, got: Any) -> None:
    if isinstance(want, (tuple, list)) and want and isinstance(want[0], torch.Tensor):
        assert len(want) == len(got)
        for w, g in zip(want, got, strict=True):
            check(case, dtype, w, g)
        return
    if not isinstance(want, torch.Tensor):
        if isinstance(want, float) and not math.isnan(want):
            assert got == pytest.approx(want, rel=1e-5)
        elif not isinstance(want, float):
            assert got == want
        return
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if case.exact or not want.dtype.is_floating_point:
        rtol, atol = 0.0, 0.0
    else:
        rtol, atol = TOLERANCE[str(want.dtype).removeprefix("torch.")]
        if dtype in ("float16", "bfloat16") and want.dtype.is_floating_point:
            rtol, atol = max(rtol, 0), max(atol, 0)
        scale = max(1.0, float(want.abs().nan_to_num(0, 0, 0).max())) if want.numel() else 1.0
        rtol, atol = rtol * case.tolerance, atol * case.tolerance * scale * 10
    torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True)


# Where torch itself is at odds with its documentation: (case, dtype) -> reason.
SKIPS: dict[tuple[str, str], str] = {
    ("sdpa", "bool"): "torch gives int64 for bool inputs without elements",
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_op(case: Case, dtype: str) -> None:
    if case.dtypes and dtype not in case.dtypes:
        pytest.skip(f"{case.name} is compared on {', '.join(case.dtypes)}")
    if (case.name, dtype) in SKIPS:
        pytest.skip(SKIPS[case.name, dtype])
    for name, (shape, view) in LAYOUTS.items():
        if case.layouts and name not in case.layouts:
            continue
        seed = zlib.crc32(f"{case.name}{dtype}{name}".encode()) % 10000
        bases = [values(dtype, shape, case, seed + k) for k in range(case.tensors)]
        theirs = [view(b) for b in bases]
        ours = [view(dtorch.Tensor(b)) for b in bases]
        want, error = evaluate(case.fn, torch, theirs)
        got, our_error = evaluate(case.fn, dtorch, ours)
        where = f"{case.name} {dtype} {name}"
        if error is not None:
            assert our_error is not None, f"{where}: torch raised {error!r}, dtorch gave {got}"
            assert type(our_error) is type(error), f"{where}: {our_error!r} for {error!r}"
            continue
        if our_error is not None:
            raise AssertionError(f"{where}: {our_error!r}") from our_error
        try:
            check(case, dtype, want, got)
        except AssertionError as mismatch:
            raise AssertionError(f"{where}: {mismatch}") from None


@pytest.mark.parametrize("b", DTYPES)
@pytest.mark.parametrize("a", DTYPES)
def test_promotion(a: str, b: str) -> None:
    """add, mul, comparison and division over all pairs of dtypes, with and without dimensions."""
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((3,), (3,)), ((3,), ()), ((), ())]
    for sa, sb in shapes:
        x = torch.ones(sa).to(getattr(torch, a))
        y = torch.ones(sb).to(getattr(torch, b))
        dx, dy = dtorch.Tensor(x), dtorch.Tensor(y)
        assert torch.result_type(x, y) == dtorch.result_type(dx, dy)
        for fn in (lambda p, q: p + q, lambda p, q: p * q, lambda p, q: p == q, lambda p, q: p / q):
            want, got = fn(x, y), fn(dx, dy).to_torch()
            assert want.dtype == got.dtype
            torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("scalar", [True, 2, 2.5, -1])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3,), ()])
def test_promotion_scalar(dtype: str, scalar: Any, shape: tuple[int, ...]) -> None:
    x = torch.ones(shape).to(getattr(torch, dtype))
    dx = dtorch.Tensor(x)
    for fn in (lambda p: p + scalar, lambda p: scalar * p, lambda p: p > scalar, lambda p: p / 2):
        want, got = fn(x), fn(dx).to_torch()
        assert want.dtype == got.dtype
        torch.testing.assert_close(got, want, rtol=0, atol=0)


ERRORS: dict[str, Callable[[Any, Any], Any]] = {
    "broadcast": lambda L, x: x + L.ones(3, 5),
    "matmul shapes": lambda L, x: x @ L.ones(3, 3),
    "matmul dtypes": lambda L, x: x @ L.ones(6, 3, dtype=L.float64),
    "matmul 0-dim": lambda L, x: x @ L.tensor(1.0),
    "reshape": lambda L, x: x.reshape(5, 5),
    "view": lambda L, x: x.t().view(-1),
    "view -1 -1": lambda L, x: x.view(-1, -1),
    "dim range": lambda L, x: x.sum(2),
    "dim twice": lambda L, x: x.sum((0, 0)),
    "transpose range": lambda L, x: x.transpose(0, 2),
    "permute count": lambda L, x: x.permute(0),
    "permute twice": lambda L, x: x.permute(0, 0),
    "index range": lambda L, x: x[4],
    "too many indices": lambda L, x: x[0, 0, 0],
    "index str": lambda L, x: x["a"],
    "select range": lambda L, x: x.select(1, 6),
    "narrow range": lambda L, x: x.narrow(0, 2, 3),
    "expand": lambda L, x: x.expand(4, 7),
    "expand fewer": lambda L, x: x.expand(6),
    "cat empty": lambda L, x: L.cat([]),
    "cat sizes": lambda L, x: L.cat([x, L.ones(4, 5)], 0),
    "cat rank": lambda L, x: L.cat([x, L.ones(4)], 0),
    "stack sizes": lambda L, x: L.stack([x, L.ones(4, 5)]),
    "float index": lambda L, x: x[1.5],
    "bool many": lambda L, x: bool(x),
    "item many": lambda L, x: x.item(),
    "int many": lambda L, x: int(x),
    "in-place shape": lambda L, x: x[0].add_(x),
    "in-place dtype": lambda L, x: L.ones(3, dtype=L.int64).add_(1.5),
    "in-place expanded": lambda L, x: L.ones(1).expand(3).cos_(),
    "in-place overlap": lambda L, x: x.view(-1)[1:].copy_(x.view(-1)[:-1]) and x.view(-1)[
        1:].add_(x.view(-1)[:-1]),
    "sub bool": lambda L, x: (x > 0) - (x > 0),
    "neg bool": lambda L, x: -(x > 0),
    "bitwise float": lambda L, x: x & x,
    "mean int": lambda L, x: L.ones(3, dtype=L.int64).mean(),
    "softmax int": lambda L, x: L.softmax(L.ones(3, dtype=L.int64), 0),
    "argmax empty": lambda L, x: L.ones(0).argmax(),
    "max empty": lambda L, x: L.ones(0).max(),
    "amax empty dim": lambda L, x: L.ones(0, 3).amax(0),
    "layer_norm shape": lambda L, x: L.nn.functional.layer_norm(x, (5,)),
    "layer_norm weight": lambda L, x: L.nn.functional.layer_norm(x, (6,), L.ones(5)),
    "embedding float": lambda L, x: L.nn.functional.embedding(x, x),
    "linear shape": lambda L, x: L.nn.functional.linear(x, L.ones(3, 5)),
    "linear bias": lambda L, x: L.nn.functional.linear(x, L.ones(3, 6), L.ones(4)),
    "where cond": lambda L, x: L.where(x, x, x),
    "clamp none": lambda L, x: L.clamp(x),
    "pow int negative": lambda L, x: L.ones(3, dtype=L.int64) ** -1,
    "arange step 0": lambda L, x: L.arange(0, 3, 0),
    "arange sign": lambda L, x: L.arange(3, 0),
    "zeros negative": lambda L, x: L.zeros(-1),
    "zeros str": lambda L, x: L.zeros("a"),
    "full no value": lambda L, x: L.full((2,)),
    "unknown keyword": lambda L, x: L.add(x, x, beta=1),
    "missing argument": lambda L, x: L.add(x),
    "too many arguments": lambda L, x: L.relu(x, x, x),
    "wrong type": lambda L, x: L.relu("a"),
    "sum str": lambda L, x: x.sum("a"),
    "split 0": lambda L, x: x.split(0),
    "split sizes": lambda L, x: x.split([1, 2], 0),
    "chunk 0": lambda L, x: x.chunk(0),
    "unbind 0-dim": lambda L, x: L.tensor(1).unbind(),
    "len 0-dim": lambda L, x: len(L.tensor(1)),
    "iter 0-dim": lambda L, x: iter(L.tensor(1)),
    "ragged": lambda L, x: L.tensor([[1, 2], [3]]),
    "tensor of str": lambda L, x: L.tensor("a"),
    "setitem shape": lambda L, x: x.__setitem__(0, L.ones(7)),
    "setitem range": lambda L, x: x.__setitem__(9, 1),
    "step negative": lambda L, x: x[::-1],
    "bmm rank": lambda L, x: L.bmm(x, x),
    "mm rank": lambda L, x: L.mm(x, L.ones(6)),
    "dot rank": lambda L, x: L.dot(x, x),
    "randint empty": lambda L, x: L.randint(3, 3, (2,)),
    "randn int": lambda L, x: L.randn(3, dtype=L.int64),
    "linspace negative": lambda L, x: L.linspace(0, 1, -1),
    "eye negative": lambda L, x: L.eye(-1),
    "cumsum dim": lambda L, x: x.cumsum(2),
    "squeeze dim": lambda L, x: x.squeeze(2),
    "unsqueeze dim": lambda L, x: x.unsqueeze(4),
    "t rank": lambda L, x: L.ones(2, 2, 2).t(),
    "flatten order": lambda L, x: L.flatten(x, 1, 0),
    "div mode": lambda L, x: L.div(x, x, rounding_mode="up"),
    "gelu mode": lambda L, x: L.nn.functional.gelu(x, approximate="erf"),
    "sdpa shapes": lambda L, x: L.nn.functional.scaled_dot_product_attention(
        x, L.ones(4, 5), L.ones(4, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_error_class(name: str) -> None:
    """A wrong call raises in dtorch, at the call, what it raises in torch."""
    fn = ERRORS[name]
    with pytest.raises(Exception) as theirs:
        fn(torch, torch.arange(24.0).reshape(4, 6))
    with pytest.raises(type(theirs.value)) as ours:
        fn(dtorch, dtorch.arange(24.0).reshape(4, 6))
    assert type(ours.value) is type(theirs.value)
    assert str(ours.value)


CREATION: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda L: L.zeros(2, 3),
    "zeros seq": lambda L: L.zeros((2, 3), dtype=L.int32),
    "ones": lambda L: L.ones([4]),
    "ones 0": lambda L: L.ones(()),
    "full": lambda L: L.full((2, 2), 7),
    "full float": lambda L: L.full((2, 2), 1.5),
    "full bool": lambda L: L.full((2,), True),
    "arange": lambda L: L.arange(5),
    "arange float": lambda L: L.arange(0, 1, 0.1),
    "arange neg": lambda L: L.arange(5, -5, -2),
    "arange dtype": lambda L: L.arange(3, dtype=L.float16),
    "linspace": lambda L: L.linspace(0, 1, 7),
    "linspace 1": lambda L: L.linspace(3, 5, 1),
    "linspace f64": lambda L: L.linspace(-1, 1, 11, dtype=L.float64),
    "eye": lambda L: L.eye(3),
    "eye nm": lambda L: L.eye(2, 4, dtype=L.int64),
    "tensor int": lambda L: L.tensor([[1, 2], [3, 4]]),
    "tensor float": lambda L: L.tensor([1.0, 2]),
    "tensor bool": lambda L: L.tensor([True, False]),
    "tensor mixed": lambda L: L.tensor([True, 2, 3.0]),
    "tensor empty": lambda L: L.tensor([]),
    "tensor empty2": lambda L: L.tensor([[], []]),
    "tensor scalar": lambda L: L.tensor(3),
    "tensor dtype": lambda L: L.tensor([1.7, -1.7], dtype=L.int8),
    "new_zeros": lambda L: L.ones(2, dtype=L.float64).new_zeros(3),
    "new_ones": lambda L: L.ones(2, dtype=L.int64).new_ones((2, 2)),
    "new_full": lambda L: L.ones(2).new_full((2,), 3),
    "new_tensor": lambda L: L.ones(2, dtype=L.float64).new_tensor([1, 2]),
}


@pytest.mark.parametrize("name", CREATION)
def test_creation(name: str) -> None:
    want, got = CREATION[name](torch), CREATION[name](dtorch)
    assert got.dtype is want.dtype
    assert tuple(got.shape) == tuple(want.shape)
    tolerance = {torch.float32: 1e-6, torch.float64: 1e-15}.get(want.dtype, 0.0)
    torch.testing.assert_close(got.to_torch(), want, rtol=tolerance, atol=tolerance)


def _strides(t: Any) -> list[int]:
    """Of dims that have one: torch and dtorch give a dim of size 1 whatever stride is handy."""
    return [stride for stride, size in zip(t.stride(), t.shape, strict=True) if size != 1]


@pytest.mark.parametrize("make", ["empty_like", "zeros_like", "ones_like", "full_like"])
def test_like_keeps_the_order_of_dims_in_memory(make: str) -> None:
    rng = random.Random(1)
    for _ in range(300):
        shape = [rng.choice([1, 2, 3, 4]) for _ in range(rng.randint(1, 4))]
        order = rng.sample(range(len(shape)), len(shape))
        narrowed = rng.randrange(len(shape)) if rng.random() < 0.5 else None
        copies = rng.random() < 0.3
        strides = []
        for L in (torch, dtorch):
            x = L.ones(*shape).permute(order)
            if narrowed is not None:
                x = x.narrow(narrowed, 0, (x.shape[narrowed] + 1) // 2)
            if copies:
                x = x.unsqueeze(0).expand(3, *x.shape)
            fill = (7,) if make == "full_like" else ()
            like = getattr(L, make)(x, *fill)
            assert tuple(like.shape) == tuple(x.shape)
            strides.append((_strides(x), _strides(like)))
        assert strides[0] == strides[1]
    assert dtorch.zeros_like(
        dtorch.ones(3, 2).t(), memory_format=torch.contiguous_format
    ).is_contiguous()


def test_elementwise_keeps_the_order_of_dims_in_memory() -> None:
    """Decided by the first operand that tells two dims apart; a broadcast dim tells nothing."""
    rng = random.Random(2)
    for _ in range(1500):
        shape = [rng.choice([2, 3, 4]) for _ in range(rng.randint(1, 4))]
        ways = []
        for _ in range(rng.randint(1, 3)):
            order = rng.sample(range(len(shape)), len(shape))
            broadcast = [rng.random() < 0.3 for _ in shape]
            ways.append((order, broadcast, rng.choice([1, 2])))
        strides = []
        for L in (torch, dtorch):
            xs = []
            for order, broadcast, step in ways:
                x = L.ones(*[1 if broadcast[d] else shape[d] * step for d in order])
                x = x.permute([order.index(d) for d in range(len(order))])
                for d, size in enumerate(shape):
                    x = x if broadcast[d] else x.narrow(d, 0, size)
                xs.append(x.expand(*shape))
            if len(xs) == 1:
                y = xs[0].exp()
            elif len(xs) == 2:
                y = xs[0] + xs[1]
            else:
                y = L.where(xs[0] > 0, xs[1], xs[2])
            strides.append((y.shape, _strides(y)))
        assert strides[0] == strides[1], ways


def test_dense_layouts_are_kept_with_their_strides_of_size_one() -> None:
    """What such a stride says decides where the dim lies in a later op.  Of four dims torch takes
    some for channels-last, whose strides it writes anew; dtorch does not know that layout."""
    rng = random.Random(3)
    looked_at = 0
    for _ in range(400):
        shape = [rng.choice([1, 2, 3]) for _ in range(3)]
        order = rng.sample(range(len(shape)), len(shape))
        x, y = (L.ones(*shape).permute(order) for L in (torch, dtorch))
        if x.is_contiguous():
            continue
        looked_at += x.shape.count(1) > 0
        strides = [
            rng.choice([1, 5, 7]) if size == 1 else stride
            for size, stride in zip(x.shape, x.stride(), strict=True)
        ]
        x, y = (t.as_strided(tuple(x.shape), strides) for t in (x, y))
        assert x.exp().stride() == y.exp().stride()
        assert (x + x).stride() == (y + y).stride()
        assert torch.zeros_like(x).stride() == dtorch.zeros_like(y).stride()
    assert looked_at > 50


def test_masked_fill_is_row_major() -> None:
    for shape in ((16, 8), (16, 1), (3, 16, 8), ()):
        x, y = torch.rand(8, 16).t(), torch.rand(shape) > 0.5
        got = dtorch.from_torch(x).masked_fill(dtorch.from_torch(y), 2)
        want = x.masked_fill(y, 2)
        assert _strides(got) == _strides(want)
        assert torch.equal(got.to_torch(), want)
