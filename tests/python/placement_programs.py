"""Random programs on tensors that lie on meshes, beside the same programs on one device.

    python tests/python/placement_programs.py                   without end, from a new seed on
    python tests/python/placement_programs.py --count 100000    so many
    python tests/python/placement_programs.py --seed 123        one, with its statements printed

Every variable is a pair: a tensor on a mesh and an ordinary one. A statement (op, view, in-place
write, redistribute within and across meshes, await, drop) is done to both; what the placements make
illegal has to be refused with PlacementError and nothing changed, and is legal once its inputs are
Replicate. At each look, and in the end, every part has to be the part of the ordinary tensor's
value (sharding_model.py), exactly: values are small multiples of a quarter, so that no sum rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dtorch
import numpy as np
import sharding_model as model
from dtorch import _C
from dtorch.distributed_spec import (
    DeviceMesh,
    Partial,
    Placement,
    Replicate,
    Shard,
    init_device_mesh,
)

BOUND_MAX = 1 << 12  # of a value; parts of a Partial are larger, and all of it fits 24 bits
ELEMENTS_MAX = 200
STATEMENTS = (4, 18)
VARIABLES_MAX = 8
SEEDS_OF_A_LOOP = 100
MESHES: tuple[tuple[int, ...], ...] = ((2,), (3,), (4,), (2, 2), (2, 3))


class Failure(Exception):
    """A program that went another way on the mesh."""


class Abandoned(Exception):
    """One device refuses what it may refuse: nothing more can be compared."""


def public(p: model.Placement) -> Placement:
    if p.kind == "R":
        return Replicate()
    return Shard(p.dim) if p.kind == "S" else Partial(p.kind)


class Variable:
    __slots__ = ("bound", "dist", "frozen", "mesh", "name", "plain")

    def __init__(self, name: str, dist: Any, plain: Any, mesh: DeviceMesh, bound: float,
                 frozen: bool = False) -> None:  # fmt: skip
        self.name, self.dist, self.plain, self.mesh = name, dist, plain, mesh
        self.bound = bound
        self.frozen = frozen  # not to be written: it has elements twice


Call = Callable[..., Any]

UNARY: list[tuple[str, Call, Callable[[float], float]]] = [
    ("{0}.neg()", lambda x: x.neg(), lambda b: b),
    ("{0}.abs()", lambda x: x.abs(), lambda b: b),
    ("{0}.relu()", lambda x: x.relu(), lambda b: b),
    ("{0}.sign()", lambda x: x.sign(), lambda b: 1),
    ("{0}.clone()", lambda x: x.clone(), lambda b: b),
    ("{0} * 2", lambda x: x * 2, lambda b: 2 * b),
    ("{0} + 3", lambda x: x + 3, lambda b: b + 3),
    ("1 - {0}", lambda x: 1 - x, lambda b: b + 1),
    ("-0.5 * {0}", lambda x: -0.5 * x, lambda b: b),
    ("{0}.clamp(-2, 3)", lambda x: x.clamp(-2, 3), lambda b: 3),
    ("{0}.tril()", lambda x: x.tril() if x.ndim > 1 else x.abs(), lambda b: b),
    ("dtorch.where({0} > 0, {0}, 1)", lambda x: dtorch.where(x > 0, x, 1.0), lambda b: b + 1),
]

BINARY: list[tuple[str, Call, Callable[[float, float], float]]] = [
    ("{0} + {1}", lambda x, y: x + y, lambda a, b: a + b),
    ("{0} - {1}", lambda x, y: x - y, lambda a, b: a + b),
    ("{0} * {1}", lambda x, y: x * y, lambda a, b: a * b),
    ("maximum({0}, {1})", lambda x, y: dtorch.maximum(x, y), max),
    ("minimum({0}, {1})", lambda x, y: dtorch.minimum(x, y), max),
    ("where({0} < {1}, {0}, {1})", lambda x, y: dtorch.where(x < y, x, y), max),
]

IN_PLACE: list[tuple[str, Call, Callable[[float], float]]] = [
    ("{0}.add_(1)", lambda x: x.add_(1), lambda b: b + 1),
    ("{0}.mul_(-2)", lambda x: x.mul_(-2), lambda b: 2 * b),
    ("{0}.zero_()", lambda x: x.zero_(), lambda b: 0),
    ("{0}.fill_(2)", lambda x: x.fill_(2), lambda b: 2),
    ("{0}.relu_()", lambda x: x.relu_(), lambda b: b),
    ("{0}.neg_()", lambda x: x.neg_(), lambda b: b),
]

IN_PLACE_2: list[tuple[str, Call, Callable[[float, float], float]]] = [
    ("{0}.add_({1})", lambda x, y: x.add_(y), lambda a, b: a + b),
    ("{0}.sub_({1})", lambda x, y: x.sub_(y), lambda a, b: a + b),
    ("{0}.copy_({1})", lambda x, y: x.copy_(y), lambda a, b: b),
    ("{0}.mul_({1})", lambda x, y: x.mul_(y), lambda a, b: a * b),
]


class Program:
    """One seed's program, drawn while it runs."""

    def __init__(self, seed: int, verbose: bool = False) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.text: list[str] = []
        self.variables: list[Variable] = []
        self.count = 0
        self.verbose = verbose
        self.counts: Counter[str] = Counter()

    def say(self, text: str) -> None:
        self.text.append(text)
        if self.verbose:
            print(text, flush=True)

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    # --- tensors ---------------------------------------------------------------------------------

    def mesh(self) -> DeviceMesh:
        shape = self.random.choice(MESHES)
        return init_device_mesh("cpu", shape)

    def placements(self, mesh: DeviceMesh, rank: int, dtype: Any) -> tuple[model.Placement, ...]:
        draw = self.random
        while True:
            found = []
            for _ in mesh.shape:
                kind = draw.random()
                if kind < 0.3:
                    found.append(model.REPLICATE)
                elif kind < 0.75 and rank > 0:
                    found.append(model.shard(draw.randrange(rank)))
                else:
                    found.append(model.Placement(draw.choice(model.kinds_of(dtype))))
            if model.is_legal(found):
                return tuple(found)

    def shape(self) -> tuple[int, ...]:
        draw = self.random
        return tuple(draw.choice((0, 1, 2, 3, 4, 5, 6)) if draw.random() < 0.9 else 7
                     for _ in range(draw.choice((0, 1, 2, 2, 2, 3))))  # fmt: skip

    def base(self, mesh: DeviceMesh, shape: tuple[int, ...]) -> Variable:
        dtype = np.int64 if self.random.random() < 0.2 else np.float32
        full = self.numbers.integers(-4, 5, size=shape).astype(dtype)
        placements = self.placements(mesh, len(shape), full.dtype)
        parts = [dtorch.tensor(p) for p in model.cut(full, mesh.shape, placements, self.numbers)]
        if self.random.random() < 0.1:
            parts = [_C._hold(p, 0.0003) if p.numel() else p for p in parts]
        dist = _C.dist_new(parts, mesh._id, [p.code for p in placements], shape)
        v = Variable(self.name(), dist, dtorch.tensor(full), mesh, 4)
        self.say(f"{v.name} = {full.tolist()}  # {dtype.__name__}{list(shape)}")
        self.say(f"    # ... on {mesh} at {list(placements)}")
        self.variables.append(v)
        return v

    # --- running ---------------------------------------------------------------------------------

    def do(self, text: str, fn: Call, inputs: Sequence[Variable], bound: float, *,
           frozen: bool = False) -> None:  # fmt: skip
        """A new variable; where the placements forbid it, once more with Replicate inputs."""
        if bound > BOUND_MAX:
            return
        try:
            plain = fn(*(v.plain for v in inputs))
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            self.must_fail(text, fn, inputs, type(error))
            return
        if plain.numel() > ELEMENTS_MAX:
            return
        name = self.name()
        shown = text.format(*(v.name for v in inputs))
        self.say(f"{name} = {shown}")
        try:
            dist = fn(*(v.dist for v in inputs))
            self.counts["accepted"] += 1
        except dtorch.PlacementError as error:
            self.say(f"    # {str(error)[:160]}")
            self.counts["refused"] += 1
            whole = [v.dist.redistribute(placements=[Replicate()] * v.mesh.ndim) for v in inputs]
            # Of what was redistributed: both are views of no variable, and equally dense.
            dist, plain = fn(*whole).contiguous().clone(), plain.contiguous().clone()
            self.say("    # ... of Replicate")
        self.variables.append(Variable(name, dist, plain, inputs[0].mesh, bound, frozen))

    def must_fail(self, text: str, fn: Call, inputs: Sequence[Variable], error: type) -> None:
        try:
            fn(*(v.dist for v in inputs))
        except (error, dtorch.PlacementError):
            return
        self.say(text.format(*(v.name for v in inputs)))
        raise Failure(f"one device raises {error.__name__}, the mesh does not")

    def write(self, text: str, fn: Call, inputs: Sequence[Variable], bound: float) -> None:
        """In place: on the mesh first, as it may refuse."""
        target = inputs[0]
        if target.frozen or bound > BOUND_MAX or not self.takes(fn, inputs):
            return
        before = target.dist.placements
        self.say(text.format(*(v.name for v in inputs)))
        try:
            fn(*(v.dist for v in inputs))
        except dtorch.PlacementError as error:
            self.say(f"    # refused: {str(error)[:160]}")
            self.counts["refused"] += 1
            return
        except RuntimeError as error:
            self.say(f"    # {error}")
            self.must_overlap(fn, inputs)
            return
        self.counts["written"] += 1
        try:
            fn(*(v.plain for v in inputs))
        except RuntimeError as error:  # overlapping bytes, which parts of one element have not
            raise Abandoned from error
        if target.dist.placements != before:
            raise Failure(f"{target.name} had {before}, now {target.dist.placements}")
        for v in self.variables:  # views of the same bytes
            v.bound = max(v.bound, bound)

    def must_overlap(self, fn: Call, inputs: Sequence[Variable]) -> None:
        """The mesh has refused bytes that overlap: one device has to."""
        try:
            fn(*(v.plain for v in inputs))
        except RuntimeError:
            return
        raise Failure("the mesh raises, one device does not")

    def takes(self, fn: Call, inputs: Sequence[Variable]) -> bool:
        """Whether one device takes the call: tried on copies."""
        try:
            fn(*(v.plain.clone() for v in inputs))
        except (RuntimeError, IndexError, ValueError, TypeError):
            return False
        return True

    # --- statements ------------------------------------------------------------------------------

    def pick(self) -> Variable:
        return self.random.choice(self.variables)

    def two(self) -> list[Variable]:
        """Two on one mesh, whose shapes broadcast if that can be had."""
        x = self.pick()
        others = [v for v in self.variables if v.mesh == x.mesh]
        fits = [v for v in others if broadcasts(tuple(x.plain.shape), tuple(v.plain.shape))]
        return [x, self.random.choice(fits or others)]

    def unary(self) -> None:
        text, fn, bound = self.random.choice(UNARY)
        x = self.pick()
        self.do(text, fn, [x], bound(x.bound))

    def binary(self) -> None:
        text, fn, bound = self.random.choice(BINARY)
        x, y = self.two()
        self.do(text, fn, [x, y], bound(x.bound, y.bound))

    def reduction(self) -> None:
        x, draw = self.pick(), self.random
        rank = x.plain.ndim
        name = draw.choice(("sum", "sum", "amax", "amin"))
        keep = draw.random() < 0.3
        many = max(1, x.plain.numel())
        bound = x.bound * many if name == "sum" else x.bound
        if rank == 0 or draw.random() < 0.3:
            self.do(f"{{0}}.{name}()", lambda t: getattr(t, name)(), [x], bound)
            return
        dim = draw.randrange(-rank, rank)
        self.do(f"{{0}}.{name}({dim}, {keep})", lambda t: getattr(t, name)(dim, keep), [x], bound)

    def view(self) -> None:
        x, draw = self.pick(), self.random
        shape, rank = tuple(x.plain.shape), x.plain.ndim
        kind = draw.choice(("transpose", "view", "unsqueeze", "squeeze", "select", "narrow",
                            "expand", "flatten", "step", "permute"))  # fmt: skip
        frozen = x.frozen
        fn: Call
        if kind == "unsqueeze":
            d = draw.randrange(-rank - 1, rank + 1)
            if rank > 3:
                return
            text, fn = f"{{0}}.unsqueeze({d})", lambda t: t.unsqueeze(d)
        elif kind == "squeeze":
            text, fn = "{0}.squeeze()", lambda t: t.squeeze()
        elif kind == "view":
            new = draw.choice(factorings(shape, draw))
            text, fn = f"{{0}}.view({new})", lambda t: t.view(new)
        elif kind == "expand":
            new = (draw.choice((1, 2, 3)), *(draw.choice((2, 3)) if s == 1 else s for s in shape))
            if rank > 3:
                return
            text, fn, frozen = f"{{0}}.expand({new})", lambda t: t.expand(new), True
        elif rank == 0:
            return
        elif kind == "flatten":
            text, fn = "{0}.flatten().clone()", lambda t: t.flatten().clone()
            frozen = False
        elif kind == "permute":
            order = draw.sample(range(rank), rank)
            text, fn = f"{{0}}.permute({order})", lambda t: t.permute(order)
        elif kind == "transpose":
            a, b = draw.randrange(rank), draw.randrange(rank)
            text, fn = f"{{0}}.transpose({a}, {b})", lambda t: t.transpose(a, b)
        else:
            d = draw.randrange(rank)
            if shape[d] == 0:
                return
            at = draw.randrange(shape[d])
            if kind == "select":
                text, fn = f"{{0}}.select({d}, {at})", lambda t: t.select(d, at)
            elif kind == "step":
                text, fn = "{0}[::2]", lambda t: t[::2]
            else:
                n = draw.randint(0, shape[d] - at)
                text, fn = f"{{0}}.narrow({d}, {at}, {n})", lambda t: t.narrow(d, at, n)
        self.do(text, fn, [x], x.bound, frozen=frozen)

    def product(self) -> None:
        x = self.pick()
        others = [v for v in self.variables if v.mesh == x.mesh and v.plain.ndim == 2]
        if x.plain.ndim < 2 or not others:
            return
        fits = [v for v in others if v.plain.shape[0] == x.plain.shape[-1]]
        y = self.random.choice(fits or others)
        self.do(
            "{0} @ {1}", lambda a, b: a @ b, [x, y], x.bound * y.bound * max(1, x.plain.shape[-1])
        )

    def joined(self) -> None:
        x, y = self.two()
        rank = x.plain.ndim
        if rank == 0:
            return
        d = self.random.randrange(rank)
        if self.random.random() < 0.5:
            self.do(
                f"cat([{{0}}, {{1}}], {d})",
                lambda a, b: dtorch.cat([a, b], d),
                [x, y],
                max(x.bound, y.bound),
            )
        else:
            self.do(
                f"stack([{{0}}, {{1}}], {d})",
                lambda a, b: dtorch.stack([a, b], d),
                [x, y],
                max(x.bound, y.bound),
            )

    def in_place(self) -> None:
        if self.random.random() < 0.6:
            text, fn, bound = self.random.choice(IN_PLACE)
            x = self.pick()
            self.write(text, fn, [x], bound(x.bound))
        else:
            text, fn2, bound2 = self.random.choice(IN_PLACE_2)
            x, y = self.two()
            self.write(text, fn2, [x, y], bound2(x.bound, y.bound))

    def assign(self) -> None:
        x = self.pick()
        if x.plain.ndim == 0 or x.plain.shape[0] == 0:
            return
        at, value = self.random.randrange(x.plain.shape[0]), self.random.randint(-3, 3)
        self.write(
            f"{{0}}[{at}] = {value}", lambda t: t.__setitem__(at, value), [x], max(x.bound, 3)
        )

    def move(self) -> None:
        """A redistribute, to another mesh now and then."""
        x = self.pick()
        mesh = self.mesh() if self.random.random() < 0.25 else x.mesh
        dtype = np.dtype(np.int64 if x.plain.dtype == dtorch.int64 else np.float32)
        if x.plain.dtype not in (dtorch.int64, dtorch.float32):
            return
        to = [public(p) for p in self.placements(mesh, x.plain.ndim, dtype)]
        name = self.name()
        self.say(f"{name} = {x.name}.redistribute({mesh}, {to})")
        self.say(f"    # from {x.mesh} {list(x.dist.placements)}")
        same = mesh == x.mesh and x.dist.placements == to
        dist = x.dist.redistribute(mesh, to)
        if list(dist.placements) != to or dist.device_mesh != mesh:
            raise Failure(f"{name} is on {dist.device_mesh} at {dist.placements}")
        plain = x.plain if same else x.plain.contiguous().clone()  # of what moves, a dense copy
        self.counts["moved"] += 1
        self.variables.append(Variable(name, dist, plain, mesh, x.bound, x.frozen and same))

    def drop(self) -> None:
        if len(self.variables) > 2:
            v = self.variables.pop(self.random.randrange(len(self.variables)))
            self.say(f"del {v.name}")

    async def look(self) -> None:
        v = self.pick()
        self.say(f"look(await {v.name})")
        await v.dist
        self.check(v)

    def check(self, v: Variable) -> None:
        placements = [model.from_code(p._code) for p in v.dist.placements]
        size = v.mesh.size()
        parts = [np.array(_C.dist_part(v.dist, k).numpy()) for k in range(size)]
        expected = np.array(v.plain.numpy())
        why = model.explain(parts, v.mesh.shape, placements, expected, 1e-30)
        self.counts["checked"] += 1
        if why:
            raise Failure(f"{v.name} at {placements}: {why}")

    STATEMENTS = (
        (unary, 5),
        (binary, 6),
        (reduction, 4),
        (view, 6),
        (product, 2),
        (joined, 2),
        (in_place, 4),
        (assign, 1),
        (move, 4),
        (drop, 1),
        (look, 2),
    )
    _KINDS = tuple(f for f, _ in STATEMENTS)
    _WEIGHTS = tuple(w for _, w in STATEMENTS)

    async def run(self) -> None:
        try:
            await self._run()
        except Abandoned:
            self.counts["abandoned"] += 1
        except Failure:
            raise
        except Exception as error:
            raise Failure(f"{type(error).__name__}: {error}") from error

    async def _run(self) -> None:
        draw = self.random
        mesh, shape = self.mesh(), self.shape()
        for _ in range(draw.choice((1, 2, 3))):
            self.base(mesh, shape if draw.random() < 0.6 else self.shape())
        for _ in range(draw.randint(*STATEMENTS)):
            if len(self.variables) >= VARIABLES_MAX:
                self.drop()
            result = draw.choices(self._KINDS, self._WEIGHTS)[0](self)
            if result is not None:
                await result
        for v in self.variables:
            self.check(v)


def broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    n = min(len(a), len(b))
    return n == 0 or all(
        x == y or 1 in (x, y) for x, y in zip(a[len(a) - n :], b[len(b) - n :], strict=True)
    )


def factorings(shape: tuple[int, ...], draw: random.Random) -> list[tuple[int, ...]]:
    """Shapes of as many elements."""
    n = int(np.prod(shape))
    found: list[tuple[int, ...]] = [(n,), (1, n), (n, 1)]
    for k in (2, 3, 4, 5):
        if n and n % k == 0:
            found += [(k, n // k), (n // k, k)]
    if len(shape) > 1:
        at = draw.randrange(len(shape) - 1)
        found += [(*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])] * 3
    return found


# --- many --------------------------------------------------------------------------------------


def run_seeds(seeds: Sequence[int], verbose: bool = False) -> Counter[str]:
    """Runs them on one loop. Failure: with the seed and the program."""
    total: Counter[str] = Counter()
    dtorch.preload()
    policy = dtorch.set_blocking_policy("allow")

    async def main() -> None:
        for seed in seeds:
            program = Program(seed, verbose)
            try:
                await program.run()
            except Failure as failure:
                text = "\n".join(program.text)
                raise Failure(f"seed {seed}: {failure}\n{text}") from failure.__cause__
            total.update(program.counts)
            total["programs"] += 1
            total["statements"] += len(program.text)

    try:
        asyncio.run(main())
    finally:
        dtorch.set_blocking_policy(policy)
    return total


def batches(first: int, count: int) -> Iterator[range]:
    end = first + count
    for at in range(first, end, SEEDS_OF_A_LOOP):
        yield range(at, min(at + SEEDS_OF_A_LOOP, end))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seed", type=int)
    parser.add_argument("--first", type=int)
    parser.add_argument("--count", type=int, default=1 << 60)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    os.environ["DTORCH_DTENSOR_IN_SAME_DEVICE"] = "1"
    if options.seed is not None:
        print(dict(run_seeds([options.seed], verbose=True)))
        return 0
    first = options.first if options.first is not None else random.SystemRandom().getrandbits(40)
    total: Counter[str] = Counter()
    begun = time.monotonic()
    print(f"seeds from {first} on", flush=True)
    for seeds in batches(first, options.count):
        try:
            total.update(run_seeds(seeds))
        except Failure as failure:
            print(failure)
            return 1
        if time.monotonic() - begun > options.seconds:
            break
    seconds = time.monotonic() - begun
    print(f"{total['programs']:,} programs in {seconds:.0f} s: {dict(total)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
