"""What placements mean, written down a second time: in numpy, from the definition alone.

A mesh is its shape, a tuple; its devices are numbered row by row. A list of placements has one for
each dim of the mesh, read from left to right: the first says what each slice of the mesh holds of
the whole, the next what each slice of that holds of the slice's share, and so on.

- ``Shard(d)``: the pieces of ``torch.chunk`` along d, and empty ones for the devices left over;
- ``Replicate``: everybody has all of it;
- ``Partial(kind)``: everybody has an array of the full shape; their reduction is the value.

Nothing of dtorch is used here. Values are multiples of a quarter, so that the parts of Partial,
which differ in size and in sign, add up (and multiply) to exactly the value.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

KINDS = ("sum", "avg", "min", "max", "product")


class Placement(NamedTuple):
    kind: str  # "R", "S" or one of KINDS
    dim: int = 0

    @property
    def code(self) -> int:
        """The number that dtorch's C core has for it."""
        return ("R", "S", *KINDS).index(self.kind) + 256 * self.dim

    @property
    def is_partial(self) -> bool:
        return self.kind in KINDS

    def __repr__(self) -> str:
        return {"R": "R", "S": f"S{self.dim}"}.get(self.kind, f"P({self.kind})")


REPLICATE = Placement("R")
Placements = tuple[Placement, ...]


def shard(dim: int) -> Placement:
    return Placement("S", dim)


def from_code(code: int) -> Placement:
    return Placement(("R", "S", *KINDS)[code % 256], code // 256)


def placements_of(rank: int, kinds: Sequence[str] = KINDS) -> list[Placement]:
    """Every placement that a tensor of that rank may have along one mesh dim."""
    return [REPLICATE, *map(shard, range(rank)), *map(Placement, kinds)]


def commute(a: str, b: str) -> bool:
    """Whether reductions of both kinds, one along each of two mesh dims, may be swapped."""
    return a == b or {a, b} == {"sum", "avg"}


def is_legal(placements: Sequence[Placement]) -> bool:
    kinds = {p.kind for p in placements if p.is_partial}
    return all(commute(a, b) for a, b in itertools.combinations(kinds, 2))


def kinds_of(dtype: Any) -> tuple[str, ...]:
    """The kinds of Partial that have a meaning for numbers of that type."""
    if np.issubdtype(dtype, np.floating):
        return KINDS
    return ("sum", "min", "max", "product")  # of bools a sum is `or`, a product `and`


# --- a whole into parts ------------------------------------------------------------------------


def chunk(size: int, count: int, index: int) -> tuple[int, int]:
    """Where piece `index` of `count` begins and ends."""
    each = -(-size // count)
    return min(each * index, size), min(each * (index + 1), size)


def cut(full: Array, mesh: Shape, placements: Sequence[Placement], rng: Any,
        wide: bool = False) -> list[Array]:  # fmt: skip
    """The part of each device. wide: those of a Partial are now and then as large as can be."""
    if not mesh:
        return [full]
    n, p = mesh[0], placements[0]
    if p.kind == "S":
        shares = [
            full[(slice(None),) * p.dim + (slice(*chunk(full.shape[p.dim], n, k)),)]
            for k in range(n)
        ]
    elif p.kind == "R":
        shares = [full] * n
    else:
        shares = spread(full, p.kind, n, rng, wide)
        if len(mesh) == 1:
            return shares
    parts = [cut(s, mesh[1:], placements[1:], rng, wide) for s in shares]
    if p.kind == "R" and any(q.is_partial for q in placements[1:]):
        parts = [parts[0]] * n  # replicas are alike, also where they are Partial
    return [np.ascontiguousarray(x).reshape(x.shape) for part in parts for x in part]


def spread(x: Array, kind: str, n: int, rng: Any, wide: bool = False) -> list[Array]:
    """n arrays whose reduction is x, exactly: some of much the size of x, some far larger."""
    is_float = np.issubdtype(x.dtype, np.floating)
    step = 0.25 if is_float else 1
    scale = rng.choice([2, 40, 4000], size=x.shape) if wide else int(rng.choice([2, 8, 40]))

    def draw(low: int, high: int) -> Array:
        sizes = rng.integers(low * scale, high * scale + 1, size=x.shape)
        sizes = np.where(rng.random(x.shape) < 0.2, 0, sizes)
        return (sizes * step).astype(x.dtype)  # type: ignore[no-any-return]

    owner = rng.integers(0, n, size=x.shape)  # which device has the value itself
    if x.dtype == np.bool_:
        noise = [rng.integers(0, 2, size=x.shape).astype(bool) for _ in range(n)]
        mix = np.logical_or if kind in ("min", "product") else np.logical_and
        return [np.where(owner == k, x, mix(x, noise[k])) for k in range(n)]
    if kind in ("min", "max"):
        parts = [_beside(x, draw(0, 1), kind, rng, wide) for _ in range(n)]
        return [np.where(owner == k, x, p).astype(x.dtype) for k, p in enumerate(parts)]
    if kind == "product":
        factors = [1, -1, 2, -2, 0.5, -0.5] if is_float else [1, -1]
        parts = [rng.choice(factors, size=x.shape).astype(x.dtype) for _ in range(n)]
        others = [
            reduce(np.multiply, parts[:k] + parts[k + 1 :], np.ones_like(x)) for k in range(n)
        ]
        own = [x / o if is_float else x * o for o in others]
        parts = [np.where(owner == k, own[k], parts[k]).astype(x.dtype) for k in range(n)]
        if wide and is_float and n > 1:  # a product that underflows
            tiny = (x == 0) & (rng.random(x.shape) < 0.5)
            parts = [np.where(tiny, 2.0**-100, p).astype(x.dtype) for p in parts]
        return parts
    parts = [draw(-1, 1) for _ in range(n)]
    with np.errstate(invalid="ignore"):
        return _sum_or_mean(x, kind, n, rng, parts, owner)


def _beside(x: Array, off: Array, kind: str, rng: Any, wide: bool) -> Array:
    """What another device may have when x is the least (or the greatest) of all: also what a device
    without any elements has, the limit of the dtype."""
    sign = 1 if kind == "min" else -1
    with np.errstate(all="ignore"):
        y = (x + off * sign).astype(x.dtype)
        y = np.where((y - x) * sign < 0, x, y)  # an integer that has wrapped
        y = np.where((x * sign < 0) & (rng.random(x.shape) < 0.4), 0, y)
    if wide:
        floats = np.issubdtype(x.dtype, np.floating)
        limits = (-np.inf, np.inf) if floats else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
        y = np.where((rng.random(x.shape) < 0.3) & (x == x), limits[sign > 0], y)
        y = np.where((x != x) & (rng.random(x.shape) < 0.8), off, y)  # one NaN is enough
    return y.astype(x.dtype)  # type: ignore[no-any-return]


def _sum_or_mean(x: Array, kind: str, n: int, rng: Any, parts: list[Array],
                 owner: Array) -> list[Array]:  # fmt: skip
    if kind == "avg":
        mean_is_x = x * n - sum(parts[1:], np.zeros_like(x))
        return [mean_is_x.astype(x.dtype), *parts[1:]]
    if np.issubdtype(x.dtype, np.floating):  # inf and -inf add up to NaN as well
        both = (x != x) & (rng.random(x.shape) < 0.5)
        parts = [np.where(both, (-1) ** k * np.inf, p).astype(x.dtype) for k, p in enumerate(parts)]
        owner = np.where(both, n, owner)
    others = [sum(parts[:k] + parts[k + 1 :], np.zeros_like(x)) for k in range(n)]
    return [np.where(owner == k, x - others[k], parts[k]).astype(x.dtype) for k in range(n)]


# --- parts into a whole ------------------------------------------------------------------------

_REDUCE = {
    "sum": np.add,
    "avg": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "product": np.multiply,
}


class Disagreement(Exception):
    """Parts that cannot be what their placements say."""


def equal(a: Array, b: Array) -> bool:
    """The same bits, but for those of a NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not np.issubdtype(a.dtype, np.floating):
        return bool((a == b).all())
    same = (a == b) & (np.signbit(a) == np.signbit(b))
    return bool((same | ((a != a) & (b != b))).all())


def close(a: Array, b: Array, tolerance: float, size: float = 0.0) -> bool:
    """Alike within `tolerance`, relative to the greatest magnitude (or `size`); NaN and inf at the
    same places."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not np.issubdtype(a.dtype, np.floating):
        return bool((a == b).all())
    with np.errstate(all="ignore"):
        finite = np.isfinite(b)
        size = size or np.abs(b[finite]).max(initial=1.0)
        near = np.abs(a - b) <= tolerance * size
    return bool((near | (a == b) | ((a != a) & (b != b))).all())


def join(parts: Sequence[Array], mesh: Shape, placements: Sequence[Placement],
         tolerance: float = 0.0) -> Array:  # fmt: skip
    """The value that the parts stand for. Disagreement: replicas differ by more than that."""
    if not mesh:
        return parts[0]
    n, p = mesh[0], placements[0]
    each = len(parts) // n
    shares = [
        join(parts[k * each : (k + 1) * each], mesh[1:], placements[1:], tolerance)
        for k in range(n)
    ]
    if p.kind == "S":
        return np.concatenate(shares, p.dim)
    if p.kind == "R":
        for k, share in enumerate(shares):
            same = close(share, shares[0], tolerance) if tolerance else equal(share, shares[0])
            if not same:
                raise Disagreement(f"replicas 0 and {k} differ: {shares[0]} and {share}")
        return shares[0]
    with np.errstate(all="ignore"):
        total = reduce(_REDUCE[p.kind], shares)
        return (total / n).astype(total.dtype) if p.kind == "avg" else total


def part_shape(shape: Shape, mesh: Shape, placements: Sequence[Placement], index: int) -> Shape:
    """The shape of what device `index` holds."""
    sizes = list(shape)
    for coordinate, n, p in zip(np.unravel_index(index, mesh), mesh, placements, strict=True):
        if p.kind == "S":
            start, end = chunk(sizes[p.dim], n, int(coordinate))
            sizes[p.dim] = end - start
    return tuple(sizes)


def explain(parts: Sequence[Array], mesh: Shape, placements: Sequence[Placement], expected: Array,
            tolerance: float = 0.0) -> str:  # fmt: skip
    """Why the parts are not `expected` at those placements; "" when they are. Bits count, unless
    there is a tolerance or a Partial, whose zeros may have another sign."""
    for k, part in enumerate(parts):
        want = part_shape(expected.shape, mesh, placements, k)
        if part.shape != want or part.dtype != expected.dtype:
            return f"part {k} is {part.dtype}{part.shape}, not {expected.dtype}{want}"
    try:
        have = join(parts, mesh, placements, tolerance)
    except Disagreement as error:
        return str(error)
    if any(p.is_partial for p in placements):
        return "" if _adds_up(parts, placements, have, expected) else _said(expected, have)
    same = close(have, expected, tolerance) if tolerance else equal(have, expected)
    return "" if same else _said(expected, have)


def _said(expected: Array, have: Array) -> str:
    return f"expected {expected.tolist()}, got {have.tolist()}"


def _adds_up(parts: Sequence[Array], placements: Sequence[Placement], have: Array,
             expected: Array) -> bool:  # fmt: skip
    """Whether the reduced parts are what was expected, within the rounding of the largest part.
    Where the sum is infinite or NaN, it is not said which: inf - inf."""
    if not np.issubdtype(expected.dtype, np.floating):
        return equal(have, expected)
    sizes = [np.abs(p[np.isfinite(p)]).max(initial=1.0) for p in (*parts, expected)]
    if any(p.kind in ("sum", "avg", "product") for p in placements):
        lost = ~np.isfinite(expected) & ~np.isfinite(have)
        have = np.where(lost, expected, have)
    return close(have, expected, 1e-5, size=max(sizes))
