"""Tensors on meshes made from, and compared with, whole torch tensors: nothing here asks dtorch
where an element belongs. Layouts come from torch.chunk, reductions from torch.

A placement is "R", "S0" ... or "sum", "avg", "min", "max", "product".
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dtorch
import torch
from dtorch import _C

KINDS = ("R", "S", "sum", "avg", "min", "max", "product")
PARTIALS = KINDS[2:]
REDUCE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: x.sum(0, dtype=x.dtype) if x.dtype != torch.bool else x.any(0),
    "avg": lambda x: x.double().mean(0).to(x.dtype),
    "min": lambda x: x.amin(0),
    "max": lambda x: x.amax(0),
    "product": lambda x: x.prod(0, dtype=x.dtype) if x.dtype != torch.bool else x.all(0),
}
Placements = Sequence[str]
Same = Callable[[torch.Tensor, torch.Tensor], bool]


def code(placement: str) -> int:
    return 1 + 256 * int(placement[1:]) if placement[0] == "S" else KINDS.index(placement)


def text(code: int) -> str:
    return f"S{code // 256}" if code % 256 == 1 else KINDS[code % 256]


def placements_of(t: Any) -> tuple[str, ...]:
    spec = _C.dist_spec(t)
    assert spec is not None, "not on a mesh"
    return tuple(text(c) for c in spec[1])


def all_placements(
    rank: int, dims: int, partials: Sequence[str] = PARTIALS
) -> Iterator[tuple[str, ...]]:
    """All placements of a tensor of that rank on a mesh of so many dims, those that commute."""
    one = ["R", *(f"S{d}" for d in range(rank)), *partials]
    for choice in itertools.product(one, repeat=dims):
        kinds = {c for c in choice if c in PARTIALS}
        if len(kinds) < 2 or kinds == {"sum", "avg"}:
            yield choice


# ---- dealing out ---------------------------------------------------------------------------------


def whole_numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> torch.Tensor:
    """Numbers from -4 to 4."""
    g = torch.Generator().manual_seed(seed)
    return torch.randint(-4, 5, shape, generator=g).to(dtype)


def chunks(t: torch.Tensor, n: int, dim: int) -> list[torch.Tensor]:
    """As torch.chunk, with the empty parts that it leaves out."""
    parts = list(torch.chunk(t, n, dim))[:n]
    return parts + [t.narrow(dim, t.shape[dim], 0)] * (n - len(parts))


def boxes(t: torch.Tensor, placements: Placements, shape: Sequence[int]) -> list[torch.Tensor]:
    """What each device, row-major in the mesh, holds of t; Partial taken as Replicate."""
    parts = [t]
    for placement, n in zip(placements, shape, strict=True):
        if placement[0] == "S":
            parts = [c for p in parts for c in chunks(p, n, int(placement[1:]))]
        else:
            parts = [p for p in parts for _ in range(n)]
    return parts


def terms(t: torch.Tensor, n: int, kind: str, generator: torch.Generator) -> list[torch.Tensor]:
    """n tensors, differing in size and sign, that reduce to t, exactly where t is whole numbers."""

    def draw(low: int, high: int) -> torch.Tensor:
        return torch.randint(low, high, t.shape, generator=generator).to(t.dtype)

    keeper = torch.randint(0, n, t.shape, generator=generator)
    if t.dtype == torch.bool:  # a sum is `or`, a product is `and`
        if kind in ("sum", "max"):
            return [t & (draw(0, 2) | (keeper == k)) for k in range(n)]
        return [t | (draw(0, 2) & (keeper != k)) for k in range(n)]
    if kind in ("min", "max"):  # may be in several
        away = [draw(0, 8) * (1 if kind == "min" else -1) for _ in range(n)]
        return [torch.where((keeper == k) | (a == 0), t, t + a) for k, a in enumerate(away)]
    parts = []
    if kind == "product":
        for _ in range(n - 1):
            factor = draw(0, 2) * 2 - 1
            if t.is_floating_point():
                factor = factor * draw(-1, 2).exp2()
                t = t / factor
            else:
                t = t * factor
            parts.append(factor)
    else:
        t = t * n if kind == "avg" else t
        for _ in range(n - 1):
            parts.append(draw(-9, 10))
            t = t - parts[-1]
    parts.append(t)
    return [parts[k] for k in torch.randperm(n, generator=generator).tolist()]


def deal(
    t: torch.Tensor, placements: Placements, shape: Sequence[int], seed: int = 0
) -> list[torch.Tensor]:
    """What each device has of t: the terms along the mesh dims that are Partial, then cut."""
    generator = torch.Generator().manual_seed(seed)
    partial = [m for m, p in enumerate(placements) if p in PARTIALS]
    values: dict[tuple[int, ...], torch.Tensor] = {(): t}
    for m in partial:
        values = {
            (*at, k): term
            for at, value in values.items()
            for k, term in enumerate(terms(value, shape[m], placements[m], generator))
        }
    cut = {at: boxes(value, placements, shape) for at, value in values.items()}
    devices = itertools.product(*map(range, shape))
    return [cut[tuple(at[m] for m in partial)][k] for k, at in enumerate(devices)]


def mesh(shape: Sequence[int]) -> int:
    """The number of a mesh of devices 0, 1, ..."""
    number: int = _C.mesh_new(True, shape, range(math.prod(shape)), None)
    return number


def of_parts(
    parts: Sequence[torch.Tensor],
    placements: Placements,
    shape: Sequence[int],
    size: Sequence[int],
) -> Any:
    """The tensor of that size whose parts are copies of these."""
    own = [dtorch.tensor(p.contiguous()) for p in parts]
    return _C.dist_new(own, mesh(shape), [code(p) for p in placements], size)


def on_mesh(t: torch.Tensor, placements: Placements, shape: Sequence[int], seed: int = 0) -> Any:
    """t on the mesh of that shape."""
    return of_parts(deal(t, placements, shape, seed), placements, shape, t.shape)


# ---- comparing -----------------------------------------------------------------------------------


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same numbers; NaN is NaN."""
    return bool(((a == b) | ((a != a) & (b != b))).all())


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    ints = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return bool(torch.equal(a.contiguous().view(ints), b.contiguous().view(ints)))


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not a.is_floating_point():
        return equal(a, b)
    return bool(torch.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True))


def near(a: torch.Tensor, b: torch.Tensor) -> bool:
    """For terms that are larger than what they add up to, and round."""
    return bool(torch.allclose(a, b, rtol=1e-5, atol=1e-5, equal_nan=True))


def coarse(a: torch.Tensor, b: torch.Tensor) -> bool:
    """For halves, whose sums round at each step."""
    return bool(torch.allclose(a.double(), b.double(), rtol=2e-2, atol=1, equal_nan=True))


def local_parts(t: Any, shape: Sequence[int]) -> list[torch.Tensor]:
    return [_C.dist_part(t, k).to_torch() for k in range(math.prod(shape))]


def reduced(
    parts: list[torch.Tensor], placements: Placements, shape: Sequence[int]
) -> list[torch.Tensor]:
    """Every device's box of the value: Partial is reduced along its mesh dims, innermost first."""
    devices = list(itertools.product(*map(range, shape)))
    for m in reversed(range(len(shape))):
        if placements[m] not in PARTIALS:
            continue
        rows: dict[tuple[int, ...], list[torch.Tensor]] = {}
        for at, part in zip(devices, parts, strict=True):
            rows.setdefault(at[:m] + at[m + 1 :], []).append(part)
        values = {at: REDUCE[placements[m]](torch.stack(row)) for at, row in rows.items()}
        parts = [values[at[:m] + at[m + 1 :]] for at in devices]
    return parts


def assert_is(t: Any, whole: torch.Tensor, shape: Sequence[int], same: Same = equal) -> None:
    """Every part of t is that of `whole`, by same(part, expected); Partial is reduced first."""
    placements = placements_of(t)
    assert tuple(t.shape) == tuple(whole.shape)
    have = reduced(local_parts(t, shape), placements, shape)
    for k, (a, b) in enumerate(zip(have, boxes(whole, placements, shape), strict=True)):
        where = f"device {k} of {shape}, {placements}"
        assert a.shape == b.shape, f"{where}: {a.shape} is not {b.shape}"
        assert a.dtype == b.dtype, f"{where}: {a.dtype} is not {b.dtype}"
        assert same(a, b), f"{where}: {a} is not {b}"


class Counts:
    """Which placements an op took, what these gave, and which it refused."""

    def __init__(self) -> None:
        self.taken: dict[Any, tuple[str, ...]] = {}
        self.refused: list[Any] = []


def check(
    op: Callable[..., Any],
    wholes: Sequence[torch.Tensor],
    shape: Sequence[int],
    same: Same = equal,
    partials: Sequence[str] = PARTIALS,
    most: int | None = None,
    reference: Callable[..., Any] | None = None,
) -> Counts:
    """Runs op over the tensors in all placements, or `most` drawn ones; compares what is taken.

    reference makes of the torch tensors what is expected; without it that is what op makes of
    dtorch tensors on one device.
    """
    single = reference(*wholes) if reference else op(*(dtorch.tensor(t) for t in wholes))
    expected = [s if reference else s.to_torch() for s in as_tuple(single)]
    combos = list(
        itertools.product(*(all_placements(t.ndim, len(shape), partials) for t in wholes))
    )
    if most is not None and len(combos) > most:
        combos = random.Random(0).sample(combos, most)
    counts = Counts()
    dealt = {
        (k, p): deal(t, p, shape, k + 1)
        for k, t in enumerate(wholes)
        for p in {combo[k] for combo in combos}
    }
    for combo in combos:
        inputs = [  # new ones each time: op may write to them
            of_parts(dealt[k, p], p, shape, t.shape)
            for k, (t, p) in enumerate(zip(wholes, combo, strict=True))
        ]
        try:
            results = as_tuple(op(*inputs))
        except dtorch.PlacementError:
            counts.refused.append(combo)
            continue
        for r, want in zip(results, expected, strict=True):
            try:
                assert_is(r, want, shape, same)
            except AssertionError as error:
                raise AssertionError(f"{combo} of {[tuple(t.shape) for t in wholes]}") from error
        counts.taken[combo] = placements_of(results[0])
    return counts


def check_torch(
    op: Callable[..., Any], wholes: Sequence[torch.Tensor], shape: Sequence[int], **how: Any
) -> Counts:
    """check, for an op that does the same to torch tensors."""
    return check(op, wholes, shape, reference=op, **how)


def as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)
