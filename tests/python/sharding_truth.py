"""Every op at every placement beside a single device; and what brute force finds to be local.

:func:`correctness` calls a row of the registry with inputs at chosen placements and holds each part
of what comes out against the model (sharding_model.py) of the single-device result.

:func:`completeness` finds out, without asking dtorch, which placements need no communication: it
runs the single-device op on each device's parts as they are, for several drawings of the values,
and looks whether one placement of the results explains them all. Where an argument speaks of the
whole (the size of a view), LOCAL says what the device's own is. What such a combination is reached
from by cutting what is Replicate (or leaving it to one device of a sum) needs none either.

The environment: DTORCH_SOAK=1 takes every combination instead of a seeded sample.
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import dtorch
import numpy as np
from dtorch import _C
from sharding_model import (
    REPLICATE,
    Array,
    Placement,
    Placements,
    Shape,
    chunk,
    close,
    cut,
    explain,
    from_code,
    is_legal,
    join,
    kinds_of,
    part_shape,
    placements_of,
)
from sharding_samples import CREATION, LEFT_OUT, Sample, samples

SOAK = os.environ.get("DTORCH_SOAK", "") not in ("", "0")
MESHES: list[Shape] = [(2,), (3,), (2, 2)]
REGISTRY: list[tuple[str, str, str]] = [r for r in _C._registry() if r[0] not in LEFT_OUT]
Combination = tuple[Placements, ...]  # for each input, its placements

PLACEMENT_ERROR = dtorch.PlacementError


def mesh_id(mesh: Shape) -> int:
    return int(_C.mesh_new(False, mesh, tuple(range(int(np.prod(mesh)))), None))


def dist(parts: Sequence[Array], mesh: Shape, placements: Placements, shape: Shape) -> Any:
    plain = [dtorch.tensor(p) for p in parts]
    return _C.dist_new(plain, mesh_id(mesh), [p.code for p in placements], shape)


def numpy(t: Any) -> Array:
    return np.array(t.numpy())


def as_list(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def seeded(*key: Any) -> Any:
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


@dataclass
class Single:
    """What one device makes of a call: arrays, or the class of the error."""

    arrays: list[Array] = field(default_factory=list)
    error: type[BaseException] | None = None


def run_single(fn: Callable[[], Any]) -> Single:
    _C.manual_seed(1)
    try:
        return Single([numpy(t) for t in as_list(fn())])
    except Exception as error:
        return Single(error=type(error))


def later(fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Callable[[], Any]:
    return lambda: fn(*args, **kwargs)


@dataclass
class Counts:
    calls: int = 0
    accepted: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, other: Counts) -> None:
        self.calls += other.calls
        self.accepted += other.accepted
        self.failures += other.failures


# --- one call beside the model -----------------------------------------------------------------


def spec_of(t: Any) -> tuple[int, Placements]:
    spec = _C.dist_spec(t)
    if spec is None:
        raise AssertionError("the result is on no mesh")
    return spec[0], tuple(map(from_code, spec[1]))


def parts_of(t: Any, mesh: Shape) -> list[Array]:
    return [numpy(_C.dist_part(t, k)) for k in range(int(np.prod(mesh)))]


def wrong(t: Any, mesh: Shape, want: Array) -> str:
    """Why the tensor is not `want`; "" when it is."""
    number, placements = spec_of(t)
    if number != mesh_id(mesh):
        return f"on mesh {number}"
    if tuple(t.shape) != want.shape:
        return f"shape {tuple(t.shape)}, not {want.shape}"
    why = explain(parts_of(t, mesh), mesh, placements, want)
    return f"at {list(placements)}: {why}" if why else ""


def fails_late(results: list[Any], mesh: Shape, error: type[BaseException]) -> bool:
    """Whether reading the parts raises `error`: what an op finds in the values, it says then."""
    try:
        for t in results:
            parts_of(t, mesh)
    except error:
        return True
    return False


def compare(fn: Callable[[], Any], single: Single, mesh: Shape) -> tuple[bool, str]:
    """(whether dtorch accepts the call, what is wrong with its answer)."""
    _C.manual_seed(1)
    try:
        results = as_list(fn())
    except PLACEMENT_ERROR:
        return False, ""
    except Exception as error:
        if single.error is not None and isinstance(error, single.error):
            return False, ""
        return False, f"raises {type(error).__name__}: {str(error)[:300]}"
    if single.error is not None:
        if fails_late(results, mesh, single.error):
            return True, ""
        return True, f"accepted, but one device raises {single.error.__name__}"
    if len(results) != len(single.arrays):
        return True, f"{len(results)} results, not {len(single.arrays)}"
    for k, (t, want) in enumerate(zip(results, single.arrays, strict=True)):
        try:
            why = wrong(t, mesh, want)
        except Exception as error:
            why = f"{type(error).__name__}: {str(error)[:300]}"
        if why:
            return True, f"result {k} {why}"
    return True, ""


# --- combinations ------------------------------------------------------------------------------


def choices(array: Array, mesh: Shape) -> list[Placements]:
    """The placements that a tensor may have on the mesh."""
    one = placements_of(array.ndim, kinds_of(array.dtype))
    return [p for p in itertools.product(one, repeat=len(mesh)) if is_legal(p)]


def combinations(arrays: Sequence[Array], mesh: Shape, limit: int, rng: Any) -> list[Combination]:
    """All of them, or a sample of `limit`."""
    lists = [choices(a, mesh) for a in arrays]
    total = int(np.prod([len(x) for x in lists]))
    if total <= limit:
        return list(itertools.product(*lists))
    picks = rng.choice(total, size=limit, replace=False) if total < 1 << 20 else (
        rng.integers(0, total, size=limit))  # fmt: skip
    found = []
    for n in map(int, picks):
        row = []
        for options in lists:
            n, k = divmod(n, len(options))
            row.append(options[k])
        found.append(tuple(row))
    return found


class Inputs:
    """The drawn inputs of a sample, cut for each placement once."""

    def __init__(self, sample: Sample, mesh: Shape, rng: Any, how: str = "") -> None:
        self.mesh, self.rng, self.wide = mesh, rng, how == "special"
        self.arrays = [s.draw(rng, how) for s in sample.specs]
        self._parts: dict[tuple[int, Placements], list[Array]] = {}
        self._dist: dict[tuple[int, Placements], Any] = {}
        self._plain: dict[tuple[int, Placements], list[Any]] = {}

    def parts(self, k: int, placements: Placements) -> list[Array]:
        key = (k, placements)
        if key not in self._parts:
            self._parts[key] = cut(self.arrays[k], self.mesh, placements, self.rng, self.wide)
        return self._parts[key]

    def fresh(self, k: int, placements: Placements) -> Any:
        return dist(self.parts(k, placements), self.mesh, placements, self.arrays[k].shape)

    def on_mesh(self, combination: Combination) -> list[Any]:
        for k, p in enumerate(combination):
            if (k, p) not in self._dist:
                self._dist[k, p] = self.fresh(k, p)
        return [self._dist[k, p] for k, p in enumerate(combination)]

    def on_device(self, combination: Combination, index: int) -> list[Any]:
        for k, p in enumerate(combination):
            if (k, p) not in self._plain:
                self._plain[k, p] = [dtorch.tensor(x) for x in self.parts(k, p)]
        return [self._plain[k, p][index] for k, p in enumerate(combination)]

    def single(self) -> list[Any]:
        return [dtorch.tensor(a) for a in self.arrays]


@cache
def usable(row: str, schema: str) -> list[Sample]:
    """The samples that the row takes on a single device (with sizes and dtypes as they are)."""
    fn, found = _C.rows[row], []
    for sample in samples(row, schema):
        inputs = Inputs(sample, (1,), seeded(row, repr(sample)))
        if not sample.specs:
            continue
        args, kwargs = sample.fill(inputs.single())
        if run_single(later(fn, args, kwargs)).error is None:
            found.append(sample)
    return found


def chosen_samples(row: str, schema: str, limit: int) -> list[Sample]:
    found = usable(row, schema)
    if SOAK or len(found) <= limit:
        return found
    picks = seeded(row, "samples").choice(len(found), size=limit, replace=False)
    return [found[k] for k in sorted(picks)]


def describe(row: str, sample: Sample, mesh: Shape, combination: Combination) -> str:
    at = ", ".join(str(list(p)) for p in combination)
    return f"{row}{sample!r} on {'x'.join(map(str, mesh))} with {at}"


# --- correctness -------------------------------------------------------------------------------


def correctness(row: str, schema: str, api: str, limit: int = 40, sample_limit: int = 12) -> Counts:
    """Functional, in place and with out=."""
    counts = Counts()
    fn = _C.rows[row]
    limit = 1 << 30 if SOAK else limit
    for sample in chosen_samples(row, schema, sample_limit):
        for mesh in MESHES:
            rng = seeded(row, repr(sample), mesh)
            inputs = Inputs(sample, mesh, rng)
            few = 1500 if SOAK else limit
            some = combinations(inputs.arrays, mesh, limit if len(mesh) == 1 else few, rng)
            counts.add(_functional(row, fn, sample, inputs, some))
            if "I" in api:
                counts.add(_in_place(row, sample, inputs, some if SOAK else some[: limit // 3]))
            if "O" in api:
                counts.add(_out(row, fn, sample, inputs, some if SOAK else some[: limit // 3]))
    return counts


def _functional(
    row: str, fn: Any, sample: Sample, inputs: Inputs, some: list[Combination]
) -> Counts:
    counts = Counts()
    args, kwargs = sample.fill(inputs.single())
    single = run_single(later(fn, args, kwargs))
    for combination in some:
        args, kwargs = sample.fill(inputs.on_mesh(combination))
        ok, why = compare(later(fn, args, kwargs), single, inputs.mesh)
        _count(counts, ok, why, describe(row, sample, inputs.mesh, combination))
    return counts


def _count(counts: Counts, ok: bool, why: str, what: str) -> None:
    counts.calls += 1
    counts.accepted += ok
    if why:
        counts.failures.append(f"{what}: {why}")


def _in_place(row: str, sample: Sample, inputs: Inputs, some: list[Combination]) -> Counts:
    """The method with the underscore: the target keeps its placements."""
    counts = Counts()
    name = row.split("__")[0] + "_"
    if not isinstance(sample.fill(inputs.single())[0][0], dtorch.Tensor):
        return counts
    args, kwargs = sample.fill(inputs.single())
    single = run_single(later(getattr(args[0], name), args[1:], kwargs))
    for combination in some:
        tensors = inputs.on_mesh(combination)
        tensors[0] = inputs.fresh(0, combination[0])
        args, kwargs = sample.fill(tensors)
        ok, why = compare(later(getattr(args[0], name), args[1:], kwargs), single, inputs.mesh)
        if ok and not why:
            why = wrong(args[0], inputs.mesh, single.arrays[0])
            if spec_of(args[0])[1] != combination[0]:
                why = f"the target has become {spec_of(args[0])[1]}"
        elif not ok and not why:
            why = wrong(args[0], inputs.mesh, inputs.arrays[0])
            why = f"refused, but the target changed: {why}" if why else ""
        _count(counts, ok, why, describe(name, sample, inputs.mesh, combination))
    return counts


def _out(row: str, fn: Any, sample: Sample, inputs: Inputs, some: list[Combination]) -> Counts:
    counts = Counts()
    args, kwargs = sample.fill(inputs.single())
    single = run_single(later(fn, args, kwargs))
    if len(single.arrays) != 1:
        return counts
    want = single.arrays[0]
    garbage = np.zeros_like(want)
    targets = choices(want, inputs.mesh)
    for combination in some:
        placements = targets[int(inputs.rng.integers(len(targets)))]
        parts = cut(garbage, inputs.mesh, placements, inputs.rng)
        target = dist(parts, inputs.mesh, placements, want.shape)
        args, kwargs = sample.fill(inputs.on_mesh(combination))
        ok, why = compare(later(fn, args, {**kwargs, "out": target}), single, inputs.mesh)
        if ok and not why:
            why = wrong(target, inputs.mesh, want)
            if spec_of(target)[1] != placements:
                why = f"the target has become {spec_of(target)[1]}"
        what = describe(row, sample, inputs.mesh, combination)
        _count(counts, ok, why, f"{what} out={list(placements)}")
    return counts


def creation(row: str) -> Counts:
    """A row without tensors, asked for at every placement."""
    counts = Counts()
    for sample in CREATION[row]:
        single = run_single(later(_C.rows[row], sample.args, {}))
        assert single.error is None, (row, sample, single.error)
        for mesh in [*MESHES, (5,), (2, 3)]:
            for placements in choices(single.arrays[0], mesh):
                codes = [p.code for p in placements]
                ok, why = compare(
                    later(_C.on_mesh, (mesh_id(mesh), codes, row, *sample.args), {}),
                    single if row != "empty__new" else Single([np.zeros(0)]), mesh,
                )  # fmt: skip
                if row == "empty__new":
                    why = "" if "shape" in why or not ok else why
                _count(counts, ok, why, describe(row, sample, mesh, (placements,)))
    return counts


# --- completeness ------------------------------------------------------------------------------


def _sizes(sample: Sample, out_shape: Shape, start: Shape) -> Sample:
    return Sample((sample.args[0], out_shape))


def _unflatten(sample: Sample, out_shape: Shape, start: Shape) -> Sample:
    x, dim, sizes = sample.args
    dim %= len(x.shape)
    return Sample((x, dim, out_shape[dim : dim + len(sizes)]))


def _triangle(sample: Sample, out_shape: Shape, start: Shape) -> Sample:
    k = sample.args[1] if len(sample.args) > 1 else sample.kwargs.get("diagonal", 0)
    return Sample((sample.args[0], k + start[-2] - start[-1]))


# row -> the arguments of one device, given the shape and the start of its part of the result.
LOCAL: dict[str, Callable[[Sample, Shape, Shape], Sample]] = {
    "view": _sizes, "reshape": _sizes, "expand": _sizes, "broadcast_to": _sizes,
    "unflatten": _unflatten, "tril": _triangle, "triu": _triangle,
}  # fmt: skip

DRAWS = ("few", "special", "", "special", "few", "special", "", "special")


@dataclass
class Found:
    """Combinations that need no communication."""

    local: int = 0
    accepted: int = 0
    refused: list[str] = field(default_factory=list)

    def add(self, other: Found) -> None:
        self.local += other.local
        self.accepted += other.accepted
        self.refused += other.refused


def _is_vacuous(array: Array, n: int, p: Placement) -> bool:
    """Whether some device would have nothing."""
    if p.kind != "S":
        return False
    start, end = chunk(array.shape[p.dim], n, n - 1)
    return start == end


class Brute:
    """One sample on a mesh of n devices, several drawings of its values."""

    def __init__(self, row: str, sample: Sample, n: int) -> None:
        self.row, self.sample, self.n = row, sample, n
        self.fn = _C.rows[row]
        self.draws = []
        self.singles = []
        for k, how in enumerate(DRAWS):
            inputs = Inputs(sample, (n,), seeded(row, repr(sample), n, k), how)
            args, kwargs = sample.fill(inputs.single())
            single = run_single(later(self.fn, args, kwargs))
            if single.error is None:
                self.draws.append(inputs)
                self.singles.append(single)

    def usable(self) -> bool:
        """Not where nothing could be told: few elements, or a result that is always the same."""
        if not self.draws or any(a.ndim > 0 and a.size < 2 for a in self.draws[0].arrays):
            return False
        first = self.singles[0].arrays
        return any(
            a.size != b.size or (b.size > 0 and bool((a != b.flat[0]).any()))
            for s in self.singles
            for a, b in zip(s.arrays, first, strict=True)
        )

    def _run(self, inputs: Inputs, combination: Combination, locals_: Sequence[Sample]) -> Any:
        """results[device][output], or None: the op does not take the parts."""
        results = []
        for k in range(self.n):
            args, kwargs = locals_[k].fill(inputs.on_device(combination, k))
            single = run_single(later(self.fn, args, kwargs))
            if single.error is not None:
                return None
            results.append(single.arrays)
        return results

    def is_local(self, combination: Combination) -> bool:
        if self.row not in LOCAL:
            return self._explained(combination, [self.sample] * self.n, None)
        out = self.singles[0].arrays[0]
        for p in [REPLICATE, *(Placement("S", d) for d in range(out.ndim))]:
            locals_ = []
            for k in range(self.n):
                start = [0] * out.ndim
                if p.kind == "S":
                    start[p.dim] = chunk(out.shape[p.dim], self.n, k)[0]
                shape = part_shape(out.shape, (self.n,), (p,), k)
                locals_.append(LOCAL[self.row](self.sample, shape, tuple(start)))
            if self._explained(combination, locals_, p):
                return True
        return False

    def _explained(self, combination: Combination, locals_: Sequence[Sample],
                   only: Placement | None) -> bool:  # fmt: skip
        candidates: list[list[Placement]] | None = None
        for inputs, single in zip(self.draws, self.singles, strict=True):
            results = self._run(inputs, combination, locals_)
            if results is None or any(len(r) != len(single.arrays) for r in results):
                return False
            if candidates is None:
                candidates = [
                    placements_of(a.ndim, kinds_of(a.dtype))
                    if only is None or only.kind == "R"
                    else [only]
                    for a in single.arrays
                ]
            for k, want in enumerate(single.arrays):
                parts = [r[k] for r in results]
                candidates[k] = [p for p in candidates[k] if self._fits(parts, p, want)]
            if not all(candidates):
                return False
        return candidates is not None

    def _fits(self, parts: list[Array], p: Placement, want: Array) -> bool:
        if p.kind == "S":
            if want.shape[p.dim] == 0:
                return False
            for k, part in enumerate(parts):
                if part.shape != part_shape(want.shape, (self.n,), (p,), k):
                    return False
                start, end = chunk(want.shape[p.dim], self.n, k)
                if not close(part, want[(slice(None),) * p.dim + (slice(start, end),)], 1e-5):
                    return False
            return True
        if any(part.shape != want.shape or part.dtype != want.dtype for part in parts):
            return False
        if p.kind == "R":
            return all(close(part, want, 1e-5) for part in parts)
        try:
            return close(join(parts, (self.n,), (p,)), want, 1e-5)
        except Exception:
            return False


def _reachable(combination: Combination, arrays: Sequence[Array]) -> Iterator[Combination]:
    """What the combination may be turned into on each device alone."""
    lists = []
    for (p,), a in zip(combination, arrays, strict=True):
        options = [p]
        if p.kind == "R":
            options += placements_of(a.ndim, kinds_of(a.dtype))[1:]
        lists.append(options)
    for row in itertools.product(*lists):
        yield tuple((p,) for p in row)


def _is_accident(brute: Brute, combination: Combination) -> bool:
    """A bool has two values, so that every function of it looks as if it rose or fell: Partial
    bools count only where the result is of bools too."""
    if all(a.dtype == np.bool_ for a in brute.singles[0].arrays):
        return False
    return any(
        p.is_partial and a.dtype == np.bool_
        for (p,), a in zip(combination, brute.draws[0].arrays, strict=True)
    )


def completeness(row: str, schema: str, limit: int = 60, sample_limit: int = 3) -> Found:
    """How many of the combinations that need no communication dtorch accepts."""
    found = Found()
    for sample in _telling_samples(row, schema, sample_limit):
        for n in (2, 3):
            brute = Brute(row, sample, n)
            if brute.usable():
                found.add(_complete_one(brute, limit))
    return found


def _telling_samples(row: str, schema: str, limit: int) -> list[Sample]:
    found = [
        s
        for s in usable(row, schema)
        if all(0 not in x.shape and (1 not in x.shape or len(s.specs) > 1) for x in s.specs)
        and max(int(np.prod(x.shape)) for x in s.specs) >= 10
        and (len(s.specs) == 1 or all(x.shape for x in s.specs))
    ]
    if SOAK or len(found) <= limit:
        return found
    picks = seeded(row, "telling").choice(len(found), size=limit, replace=False)
    return [found[k] for k in sorted(picks)]


def _complete_one(brute: Brute, limit: int) -> Found:
    found = Found()
    inputs = brute.draws[0]
    known: dict[Combination, bool] = {}

    def local(c: Combination) -> bool:
        if c not in known:
            vacuous = any(
                _is_vacuous(a, brute.n, p) for (p,), a in zip(c, inputs.arrays, strict=True)
            )
            known[c] = not vacuous and brute.is_local(c)
        return known[c]

    few = 1 << 30 if SOAK else limit
    for c in combinations(inputs.arrays, (brute.n,), few, seeded(brute.row, "brute")):
        if all(p == REPLICATE for (p,) in c) or _is_accident(brute, c):
            continue
        if any(_is_vacuous(a, brute.n, p) for (p,), a in zip(c, inputs.arrays, strict=True)):
            continue
        if not any(local(other) for other in _reachable(c, inputs.arrays)):
            continue
        found.local += 1
        args, kwargs = brute.sample.fill(inputs.on_mesh(c))
        ok, _ = compare(later(brute.fn, args, kwargs), brute.singles[0], inputs.mesh)
        found.accepted += ok
        if not ok:
            found.refused.append(describe(brute.row, brute.sample, inputs.mesh, c))
    return found
