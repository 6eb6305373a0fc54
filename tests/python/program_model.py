"""Random programs: statements, what torch makes of them, and how they are drawn.

A program is a list of statements over numbered variables. :class:`Model` runs it on torch, one
statement after another, and writes into each statement that looks at a value what has to be seen
there. :func:`generate` draws statements that the model says are legal; the shrinker runs a model
over what is left of a program, and drops what has lost its meaning.

A program with several *actors* (coroutines of one loop, or of loops in several threads) has a
statement in each order that is allowed: two statements of different actors that touch the same
variable or the same storage, one of them writing, are ordered by an event, and no others are.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import program_ops as table
import torch
from program_ops import CATEGORY, INF, Op, immediate

BASE, RUN, DELETE, HOLD, AWAIT, LOOK, GATHER, YIELD = range(8)
SPAWN, CHAIN, CANCEL, JOIN, SNAPSHOT, FUTURE, DEADLINE, READ, EXPORT, SEEN, POKE, RELEASE = range(
    8, 20
)
"""What a statement does; :meth:`Statement.text` says it in Python."""

VARIABLES_MAX = 9
ELEMENTS_MAX = 400_000
FLOPS_MAX = 1 << 21

_pool: dict[Any, Any] = {}


def pool(dtype: Any) -> Any:
    """A million values of a dtype: moderate, a few special ones among them; always the same."""
    if dtype not in _pool:
        g = torch.Generator().manual_seed(1)
        n = 1 << 20
        if dtype is torch.bool:
            x = torch.randint(0, 2, (n,), generator=g)
        elif not dtype.is_floating_point:
            x = torch.randint(0 if dtype is torch.uint8 else -5, 6, (n,), generator=g)
            x[::997] = torch.iinfo(dtype).max
            x[5::1999] = torch.iinfo(dtype).min
        else:
            x = torch.randn((n,), generator=g, dtype=torch.float64) * 2
            for k, special in enumerate((0.0, -0.0, 1.0, -1.0, 0.5)):
                x[k::331] = special
            # In one sixteenth of it, so that most programs have only finite numbers.
            tail = x[n - n // 16 :]
            for k, special in enumerate((INF, -INF, float("nan"))):
                tail[k * 7 :: 61] = special
        _pool[dtype] = x.to(dtype)
    return _pool[dtype]


class Statement:
    """One statement. ``expect`` is what torch sees here, ``after`` which statements of other actors
    must have ended before; both are the model's."""

    __slots__ = ("actor", "after", "args", "code", "dst", "expect", "op", "signals", "srcs")

    def __init__(
        self,
        code: int,
        dst: int = -1,
        srcs: Sequence[int] = (),
        args: Sequence[Any] = (),
        op: Op | None = None,
        actor: int = 0,
    ) -> None:
        self.code = code
        self.op = op
        self.dst = dst
        self.srcs = tuple(srcs)
        self.args = tuple(args)
        self.actor = actor
        self.expect: Expect | None = None
        self.after: list[int] = []
        self.signals = False

    def copy(self) -> Statement:
        return Statement(self.code, self.dst, self.srcs, self.args, self.op, self.actor)

    def text(self) -> str:
        v = [f"v{k}" for k in self.srcs]
        first = v[0] if v else ""
        dst, args = f"v{self.dst}", self.args
        if self.code == RUN:
            assert self.op is not None
            expression = self.op.show(v, args)
            return expression if self.dst < 0 else f"{dst} = {expression}"
        if self.code == BASE:
            dtype, offset, shape, how = args
            return f"{dst} = L.{how}(pool({dtype})[{offset}:].view({shape}))"
        return {
            DELETE: f"del {first}",
            HOLD: f"_C._hold({first}, {args[0] if args else 0})",
            AWAIT: f"await {first}",
            LOOK: f"look(await {first})",
            GATHER: f"await dtorch.gather({', '.join(v)})",
            YIELD: "await asyncio.sleep(0)",
            SPAWN: f"task{self.dst} = create_task(await_all({', '.join(v)}))",
            CHAIN: f"task{self.dst} = create_task(chain({first}, {args[0] if args else 0}))",
            CANCEL: f"task{self.dst}.cancel()",
            JOIN: f"await join(task{self.dst})",
            SNAPSHOT: f"future{self.dst} = {first}.to_torch_async()",
            FUTURE: f"look(await future{self.dst})",
            DEADLINE: f"await within({args[0] if args else 0}, {first})",
            READ: f"look({first}.{args[0] if args else ''})",
            EXPORT: f"torch{self.dst} = {first}.to_torch()",
            SEEN: f"look(torch{self.dst})",
            POKE: f"torch{self.dst}.add_(1)",
            RELEASE: f"del torch{self.dst}",
        }[self.code]


class Expect:
    """What a look at a value has to show: bits where ``error`` is 0, nothing of torch's where it is
    inf, a failure where ``failed``."""

    __slots__ = ("bits", "error", "failed", "shape", "value")

    def __init__(self, value: Any, error: float, failed: bool) -> None:
        self.value = value
        self.error = error
        self.failed = failed
        self.shape = value.shape if isinstance(value, torch.Tensor) else None
        self.bits: Any = None


class Store:
    """What is known of a storage: the bound on its error, whether its writer failed, and whether
    torch holds it too."""

    __slots__ = ("born_external", "error", "external", "failed", "name")

    def __init__(self, name: int, external: bool = False) -> None:
        self.name = name
        self.error = 0.0
        self.failed = False
        self.external = self.born_external = external


class Variable:
    __slots__ = ("category", "dtype", "expanded", "shape", "store", "t")

    def __init__(self, t: Any, store: Store, expanded: bool) -> None:
        self.t = t
        self.store = store
        self.expanded = expanded
        self.shape: tuple[int, ...] = tuple(t.shape)
        self.dtype = t.dtype
        self.category = CATEGORY[t.dtype]


def _broadcast_size(inputs: list[Variable]) -> int:
    """The number of elements of what they broadcast to, if they do."""
    shape = inputs[0].shape
    if all(v.shape == shape for v in inputs):
        return int(inputs[0].t.numel())
    size = 1
    for lengths in itertools.zip_longest(*(reversed(v.shape) for v in inputs), fillvalue=1):
        size *= max(lengths) if 0 not in lengths else 0
    return size


class Illegal(Exception):
    """A statement that has no meaning here."""


class Model:
    """The state of a program on torch. Links statements where there are several actors."""

    def __init__(self, actors: int) -> None:
        self.ordered = actors > 1
        self.variables: dict[int, Variable] = {}
        self.tasks: dict[int, int] = {}  # to the actor that made it
        self.futures: dict[int, tuple[Expect, int]] = {}
        self.exports: dict[int, Variable] = {}
        self.stores = 0
        self.after: dict[Any, tuple[int, list[int]]] = {}  # resource: last writer, readers since
        self.count = 0
        self.actors: list[int] = []

    def apply(self, s: Statement) -> None:
        """Runs a statement, fills in what it has to see, and links it, or raises Illegal."""
        for k in s.srcs:
            if k not in self.variables:
                raise Illegal
        uses = self._apply(s)
        if self.ordered:
            self._link(s, uses)

    def store(self, external: bool = False) -> Store:
        self.stores += 1
        return Store(self.stores, external)

    def look(self, v: Variable) -> Expect:
        return Expect(v.t.clone(), v.store.error, v.store.failed)

    def _apply(self, s: Statement) -> list[tuple[Any, bool]]:
        """What the statement uses: (resource, whether it writes it)."""
        code = s.code
        if code == RUN:
            return self._run(s)
        if code == BASE:
            dtype, offset, shape, how = s.args
            n = 1
            for size in shape:
                n *= size
            t = pool(dtype)[offset : offset + n].view(shape).clone()
            self.variables[s.dst] = v = Variable(t, self.store(how == "from_torch"), False)
            return [(s.dst, True), (v.store, True)]
        if code == YIELD:
            return []
        if code in (CANCEL, JOIN):
            if self.tasks.get(s.dst) != s.actor:
                raise Illegal
            if code == JOIN:
                del self.tasks[s.dst]
            return []
        if code == FUTURE:
            if s.dst not in self.futures or self.futures[s.dst][1] != s.actor:
                raise Illegal
            s.expect = self.futures.pop(s.dst)[0]
            return []
        if code in (SEEN, POKE, RELEASE):
            if s.dst not in self.exports:
                raise Illegal
            v = self.exports[s.dst]
            if code == RELEASE:
                del self.exports[s.dst]
                v.store.external = v.store.born_external or any(
                    e.store is v.store for e in self.exports.values()
                )
            elif code == POKE:
                if v.expanded or v.store.error:
                    raise Illegal
                v.t.add_(1) if v.category != "b" else v.t.logical_not_()
            else:
                s.expect = self.look(v)
            return [(("export", s.dst), True), (v.store, True)]
        v = self.variables[s.srcs[0]]
        uses: list[tuple[Any, bool]] = [(s.srcs[0], False), (v.store, False)]
        if code == DELETE:
            del self.variables[s.srcs[0]]
            return [(s.srcs[0], True)]
        if code == HOLD:
            return [(s.srcs[0], False), (v.store, True)]
        if code in (LOOK, READ):
            s.expect = self.look(v)
            if code == READ and s.args[0] in ("item()", "tolist()"):
                if s.args[0] == "item()" and v.t.numel() != 1:
                    raise Illegal
                value = v.t.item() if s.args[0] == "item()" else v.t.tolist()
                s.expect = Expect(value, v.store.error, v.store.failed)
        elif code == AWAIT or code == DEADLINE:
            s.expect = Expect(None, INF, v.store.failed)
        elif code == GATHER or code == SPAWN:
            for k in s.srcs[1:]:
                uses += [(k, False), (self.variables[k].store, False)]
            if code == SPAWN:
                self.tasks[s.dst] = s.actor
        elif code == CHAIN:
            if v.category != "f":
                raise Illegal
            self.tasks[s.dst] = s.actor
        elif code == SNAPSHOT:
            self.futures[s.dst] = (self.look(v), s.actor)
        elif code == EXPORT:
            if v.store.failed or v.store.external or v.t.numel() == 0:
                raise Illegal
            self.exports[s.dst] = v
            v.store.external = True
            return [(s.srcs[0], False), (v.store, True), (("export", s.dst), True)]
        return uses

    def _run(self, s: Statement) -> list[tuple[Any, bool]]:
        op = s.op
        assert op is not None
        inputs = [self.variables[k] for k in s.srcs]
        tensors = [v.t for v in inputs]
        errors = [v.store.error for v in inputs]
        if len(inputs) > 1 and _broadcast_size(inputs) > ELEMENTS_MAX:
            raise Illegal
        failed = op.fails or (op.rule != "0" and any(v.store.failed for v in inputs))
        if failed and any(v.store.external for v in inputs):
            raise Illegal  # what an outsider holds is waited for: the call itself may raise
        uses: list[tuple[Any, bool]] = []
        if self.ordered:
            for k, v in zip(s.srcs, inputs, strict=True):
                uses += [(k, False), (v.store, False)]
        if op.writes >= 0:
            target = inputs[op.writes]
            name = s.srcs[op.writes]
            if target.expanded or (failed and target.store.external):
                raise Illegal
            if target.store.failed:
                raise Illegal  # whether a later write mends it is not for a program to say
            for k, v in zip(s.srcs, inputs, strict=True):
                if k != name and v.store is target.store:
                    raise Illegal
            read = errors if op.writes == 0 else errors[: op.writes]
            try:
                op.torch(*tensors, *s.args)
            except (RuntimeError, TypeError, IndexError, ValueError) as error:
                raise Illegal from error
            bound = op.bound(tensors, read, s.args, target.t)
            target.store.error = max(target.store.error, bound)
            target.store.failed = failed
            uses.append((target.store, True))
            return uses
        try:
            result = op.torch(*tensors, *s.args)
        except (RuntimeError, TypeError, IndexError, ValueError, AttributeError) as error:
            raise Illegal from error
        if result.numel() > ELEMENTS_MAX or result.ndim > 5:
            raise Illegal
        if op.fails and result.numel() == 0:
            raise Illegal
        if not op.fresh and result.untyped_storage().data_ptr() == (
            tensors[0].untyped_storage().data_ptr()
        ):
            store = inputs[0].store
            expanded = inputs[0].expanded or "expand" in op.text
        else:
            store, expanded = self.store(), False
            store.error = op.bound(tensors, errors, s.args, result)
            store.failed = failed
        self.variables[s.dst] = Variable(result, store, expanded)
        uses.append((s.dst, True))
        return uses  # whoever uses the storage uses the variable, which orders it after this

    def _link(self, s: Statement, uses: list[tuple[Any, bool]]) -> None:
        """Which statements of other actors must have ended: per resource, as a graph would."""
        me = self.count
        self.count += 1
        self.actors.append(s.actor)
        s.after = []
        s.signals = False
        needs: set[int] = set()
        for resource, writes in uses:
            last, readers = self.after.get(resource, (-1, []))
            if last >= 0:
                needs.add(last)
            if writes:
                needs.update(readers)
                self.after[resource] = (me, [])
            else:
                if last != me:
                    self.after[resource] = (last, [*readers, me])
        needs.discard(me)
        s.after = sorted(k for k in needs if self.actors[k] != s.actor)


class Program:
    """Statements and what runs them: ``actors`` coroutines, in threads or all in one loop."""

    def __init__(self, seed: int, actors: int, threads: bool) -> None:
        self.seed = seed
        self.actors = actors
        self.threads = threads
        self.statements: list[Statement] = []
        self.last: list[tuple[int, Expect]] = []  # variables looked at when all have ended

    def finish(self, model: Model) -> None:
        self.last = [(k, model.look(v)) for k, v in model.variables.items()]
        if self.actors > 1:
            for s in self.statements:
                for k in s.after:
                    self.statements[k].signals = True

    def without(self, dropped: set[int]) -> Program:
        """The program without some statements, and without what has lost its meaning by that."""
        model = Model(self.actors)
        result = Program(self.seed, self.actors, self.threads)
        for k, s in enumerate(self.statements):
            if k in dropped:
                continue
            s = s.copy()
            try:
                model.apply(s)
            except Illegal:
                continue
            result.statements.append(s)
        result.finish(model)
        return result

    def text(self) -> str:
        kind = "threads" if self.threads else "coroutines"
        lines = [f"# seed {self.seed}, {self.actors} {kind}"]
        for k, s in enumerate(self.statements):
            line = s.text()
            if self.actors > 1:
                waits = f" after {s.after}" if s.after else ""
                line = f"{line:<70}  # {k}: actor {s.actor}{waits}"
            lines.append(line)
        lines.append(f"# at the end: look at {', '.join(f'v{k}' for k, _ in self.last)}")
        return "\n".join(lines)


# --- drawing ------------------------------------------------------------------------------------

_SMALL = [(1,), (4,), (7,), (3, 5), (8, 16), (33,), (2, 3, 4), (1, 1), (64,), (257,), (16, 64),
          (5, 1), (), (0, 3), (31, 33)]  # fmt: skip
_MIDDLE = [(64, 64), (3, 1000), (4097,), (30, 7, 11), (9000,), (100, 130)]
_LARGE = [(300, 300), (100_000,), (64, 4096), (511, 257), (3, 40_001), (1000, 100), (262_144,)]
_MAIN = [*[torch.float32] * 11, *[torch.float64] * 2, torch.float16, torch.bfloat16, torch.bfloat16,
         torch.int64, torch.int64, torch.int32, torch.uint8, torch.int8, torch.int16]  # fmt: skip
_OTHER = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
          torch.int16, torch.int8, torch.uint8, torch.bool, torch.bool, torch.float32]  # fmt: skip
_HOLDS = [0.0, 2e-5, 1e-4, 3e-4, 1e-3]
_DEADLINES = [0.0, 1e-5, 2e-4, 2e-3]


def _weighted(**weights: int) -> list[str]:
    return [name for name, weight in weights.items() for _ in range(weight)]


_KINDS = _weighted(
    one=11, two=16, three=3, near=4, masked=2, line=3, chain=6, inplace=16, out=4, view=13,
    reduce=5, product=3, join=2, create=2, delete=8, wait=2, look=4, pause=2, gather=2, spawn=4,
    branch=1, cancel=4, joined=2, snapshot=5, future=2, deadline=1, read=4, hold=6, export=1,
    exported=3, base=2,
)  # fmt: skip


class Drawing:
    """One program being drawn."""

    def __init__(self, seed: int, large: bool | None = None) -> None:
        self.r = r = random.Random(seed)
        self.random = random_ = r.random
        k = random_()
        if k < 0.72:
            actors, threads = 1, False
        else:
            actors, threads = (2 if random_() < 0.6 else 3), k >= 0.92
        self.program = Program(seed, actors, threads)
        self.model = Model(actors)
        self.actor = 0
        self.next = 0
        self.refused = 0
        k = random_()
        if large is None:
            large = k < 0.015
        self.shape = self.choose(_LARGE if large else _MIDDLE if k < 0.1 else _SMALL)
        self.dtype = self.choose(_MAIN)
        self.may_fail = random_() < 0.03
        self.cancelled = -1

    def choose(self, items: Any) -> Any:
        return items[int(self.random() * len(items))]

    def add(self, s: Statement) -> bool:
        s.actor = self.actor
        try:
            self.model.apply(s)
        except Illegal:
            self.refused += 1
            return False
        self.program.statements.append(s)
        return True

    def new(self) -> int:
        self.next += 1
        return self.next - 1

    def target(self, *near: int) -> int:
        """A new variable, or the name of one that loses its value by this."""
        if self.random() < 0.3 and near:
            return self.choose(near)
        return self.new()

    def pick(self) -> int:
        return self.choose(list(self.model.variables))

    def run(self, op: Op, *srcs: int, dst: int | None = None) -> bool:
        model = self.model
        if srcs:
            v = model.variables[srcs[0]]
            dtype, length = v.dtype, (v.shape[0] if v.shape else 1)
        else:
            dtype, length = self.dtype, 1
        args: list[Any] = []
        for kind in op.immediates:
            if kind == "S":
                args.append(self.shape)
            elif kind == "D":
                args.append(self.dtype)
            elif kind == "m" and not srcs:
                args.append(min(200, self.shape[-1]) if self.shape else 3)
            else:
                args.append(immediate(self.r, kind, dtype, length))
        if op.rule == "x" and op.writes != 1 and self.random() < 0.9:
            # Rarely on what is not exact: nothing could be said of the result.
            if any(model.variables[k].store.error for k in srcs):
                self.refused += 1
                return False
        if op.writes >= 0:
            dst = -1
        elif dst is None:
            dst = self.target(*srcs)
        return self.add(Statement(RUN, dst, srcs, args, op))

    def base(self) -> None:
        shape = self.shape
        k = self.random()
        if k < 0.12 and shape:
            shape = shape[1:]
        elif k < 0.2 and shape:
            shape = (*shape[:-1], 1)
        elif k < 0.26:
            shape = ()
        dtype = self.dtype if self.random() < 0.75 else self.choose(_OTHER)
        n = 1
        for size in shape:
            n *= size
        offset = int(self.random() * ((1 << 20) - n))
        k = self.random()
        how = "tensor" if k < 0.7 else "Tensor" if k < 0.95 else "from_torch"
        self.add(Statement(BASE, self.new(), (), (dtype, offset, shape, how)))

    def fits(self, a: int, into: bool = False) -> int:
        """Another variable that broadcasts with one (into it), or -1."""
        x = self.model.variables[a].shape
        for _ in range(4):
            b = self.pick()
            y = self.model.variables[b].shape
            if x == y or not y:
                return b
            if into and len(y) > len(x):
                continue
            if all(p == q or q == 1 or (p == 1 and not into)
                   for p, q in zip(reversed(x), reversed(y), strict=False)):  # fmt: skip
                return b
        return -1

    def alike(self, a: int, dtype: bool = True) -> int:
        """Another variable of the same shape, and dtype, or -1."""
        v = self.model.variables[a]
        for _ in range(4):
            b = self.pick()
            w = self.model.variables[b]
            if w.shape == v.shape and (w.dtype is v.dtype or not dtype):
                return b
        return -1

    # Each of these adds a statement or gives up.

    def one(self) -> None:
        a = self.pick()
        self.run(self.choose(table.ONE[self.model.variables[a].category]), a)

    def near(self) -> None:
        a = self.pick()
        if self.model.variables[a].category != "f":
            return
        if self.random() < 0.75:
            self.run(self.choose(table.ONE_FLOAT_NEAR), a)
            return
        b = self.fits(a)
        if b >= 0 and self.model.variables[b].category == "f":
            self.run(self.choose(table.TWO_FLOAT_NEAR), a, b)

    def two(self) -> None:
        a = self.pick()
        b = self.fits(a)
        if b < 0:
            return
        x, y = self.model.variables[a].category, self.model.variables[b].category
        self.run(self.choose(table.TWO[x + y]), a, b)

    def three(self) -> None:
        a = self.pick()
        b, c = self.fits(a), self.fits(a)
        if b < 0 or c < 0:
            return
        kinds = [self.model.variables[k].category for k in (a, b, c)]
        if "b" in kinds:
            return
        self.run(self.choose(table.THREE), a, b, c)

    def masked(self) -> None:
        for _ in range(3):
            a = self.pick()
            if self.model.variables[a].category == "b":
                b, c = self.fits(a), self.fits(a)
                if b >= 0 and c >= 0:
                    op = self.choose(table.MASKED)
                    self.run(op, *(a, b, c)[: len(op.tensors)])
                return

    def line(self) -> None:
        a = self.pick()
        b = self.fits(a)
        if b >= 0:
            v, w = self.model.variables[a], self.model.variables[b]
            if v.category == w.category == "f":
                self.run(self.choose(table.LINES), a, b)

    def chain(self) -> None:
        """Many element-wise ops, one on the result of the other; some keep their handles."""
        a = self.pick()
        h = self.new()
        keeps = 0.1 if self.random() < 0.7 else 0.6
        if not self.run(self.choose(table.ONE[self.model.variables[a].category]), a, dst=h):
            return
        if self.random() < 0.5:
            self.add(Statement(HOLD, -1, (a,), (self.choose(_HOLDS),)))
        for _ in range(2 + int(self.random() * 9)):
            v = self.model.variables[h]
            dst = self.new() if self.random() < keeps else h
            k = self.random()
            if k < 0.4:
                done = self.run(self.choose(table.ONE[v.category]), h, dst=dst)
            elif k < 0.85:
                b = self.fits(h)
                if b < 0:
                    continue
                kinds = v.category + self.model.variables[b].category
                done = self.run(self.choose(table.TWO[kinds]), h, b, dst=dst)
            else:
                self.run(self.choose(table.INPLACE_ONE[v.category]), h)
                continue
            if done:
                h = dst
        if self.random() < 0.25:
            self.run(self.choose(table.REDUCE[self.model.variables[h].category]), h, dst=h)
        self.trim()

    def inplace(self) -> None:
        a = self.pick()
        v = self.model.variables[a]
        if self.random() < 0.5:
            self.run(self.choose(table.INPLACE_ONE[v.category]), a)
            return
        b = self.fits(a, into=True)
        if b >= 0 and "bif".index(self.model.variables[b].category) <= "bif".index(v.category):
            self.run(self.choose(table.INPLACE_TWO[v.category]), a, b)

    def out(self) -> None:
        a = self.pick()
        v = self.model.variables[a]
        if self.random() < 0.4:
            c = self.alike(a)
            if c >= 0:
                self.run(self.choose(table.OUT_ONE[v.category]), a, c)
            return
        b, c = self.fits(a), self.alike(a, dtype=False)
        if b < 0 or c < 0:
            return
        w, x = self.model.variables[b], self.model.variables[c]
        if torch.broadcast_shapes(v.shape, w.shape) != x.shape:
            return
        if x.category == "b":
            self.run(self.choose(table.OUT_COMPARE), a, b, c)
        elif "bif".index(x.category) >= max("bif".index(v.category), "bif".index(w.category)):
            self.run(self.choose(table.OUT_TWO), a, b, c)

    def view(self) -> None:
        a = self.pick()
        shape = self.model.variables[a].shape
        choice = table.VIEWS_ANY
        if shape and 0 not in shape and self.random() < 0.7:
            choice = table.VIEWS_2 if len(shape) == 2 and self.random() < 0.5 else table.VIEWS_1
        self.run(self.choose(choice), a, dst=self.new())

    def reduce(self) -> None:
        a = self.pick()
        v = self.model.variables[a]
        if v.shape and 0 not in v.shape:
            self.run(self.choose(table.REDUCE[v.category]), a)

    def product(self) -> None:
        a = self.pick()
        v = self.model.variables[a]
        if len(v.shape) != 2 or v.category == "b" or 0 in v.shape:
            return
        if v.category == "f" and self.random() < 0.3:
            if max(v.shape) * v.t.numel() <= FLOPS_MAX:
                self.run(self.choose(table.PRODUCT_ONE), a)
            return
        for _ in range(4):
            b = self.pick()
            w = self.model.variables[b]
            if len(w.shape) == 2 and w.shape[1] == v.shape[1] and w.dtype is v.dtype:
                if w.shape[0] * v.t.numel() <= FLOPS_MAX and w.shape[0] > 0:
                    ops = table.PRODUCT_TWO if v.category == "f" else table.PRODUCT_INTEGER
                    self.run(self.choose(ops), a, b)
                return

    def join(self) -> None:
        a = self.pick()
        v = self.model.variables[a]
        if not v.shape or v.t.numel() > 50_000 or 0 in v.shape:
            return
        if self.random() < 0.6:
            self.run(self.choose(table.JOIN_ONE), a)
            return
        b = self.alike(a, dtype=False)
        if b >= 0:
            w = self.model.variables[b]
            if not (w.category == "f" and v.category != "f"):
                self.run(self.choose(table.JOIN_TWO), a, b)

    def create(self) -> None:
        if self.random() < 0.5:
            self.run(self.choose(table.CREATE), dst=self.new())
        else:
            self.run(self.choose(table.CREATE_LIKE), self.pick())

    def delete(self) -> None:
        if len(self.model.variables) > 2:
            self.add(Statement(DELETE, -1, (self.pick(),)))

    def trim(self) -> None:
        while len(self.model.variables) > VARIABLES_MAX:
            self.delete()

    def wait(self) -> None:
        self.add(Statement(AWAIT, -1, (self.pick(),)))

    def look(self) -> None:
        self.add(Statement(LOOK, -1, (self.pick(),)))

    def pause(self) -> None:
        self.add(Statement(YIELD))

    def gather(self) -> None:
        count = 1 + int(self.random() * len(self.model.variables))
        self.add(Statement(GATHER, -1, [self.pick() for _ in range(count)]))

    def spawn(self) -> None:
        k = self.pick()
        srcs = [k] if self.random() < 0.6 else [k, self.pick(), self.pick()]
        self.add(Statement(SPAWN, self.new(), srcs))

    def branch(self) -> None:
        self.add(Statement(CHAIN, self.new(), (self.pick(),), (2 + int(self.random() * 20),)))

    def _task(self) -> int:
        mine = [k for k, actor in self.model.tasks.items() if actor == self.actor]
        return self.choose(mine) if mine else -1

    def cancel(self) -> None:
        """Cancels an await; what it awaited is asked for again soon after, most of the time."""
        k = self._task()
        if k < 0:
            k = self.new()
            kind = SPAWN if self.random() < 0.8 else CHAIN
            self.cancelled = a = self.pick()
            if self.random() < 0.5:
                self.add(Statement(HOLD, -1, (a,), (self.choose(_HOLDS),)))
            if not self.add(Statement(kind, k, (a,), (5,) if kind == CHAIN else ())):
                return
        if self.random() < 0.6:
            self.pause()
        self.add(Statement(CANCEL, k))
        if self.random() < 0.5:
            self.pause()
        if self.cancelled in self.model.variables and self.random() < 0.6:
            self.add(Statement(self.choose((LOOK, AWAIT)), -1, (self.cancelled,)))

    def joined(self) -> None:
        k = self._task()
        if k >= 0:
            self.add(Statement(JOIN, k))

    def snapshot(self) -> None:
        a = self.pick()
        if not self.add(Statement(SNAPSHOT, self.new(), (a,))):
            return
        if self.random() < 0.6:  # a write that must not show in it
            category = self.model.variables[a].category
            self.run(self.choose(table.INPLACE_ONE[category]), a)

    def future(self) -> None:
        mine = [k for k, (_, actor) in self.model.futures.items() if actor == self.actor]
        if mine:
            self.add(Statement(FUTURE, self.choose(mine)))

    def deadline(self) -> None:
        self.add(Statement(DEADLINE, -1, (self.pick(),), (self.choose(_DEADLINES),)))

    def read(self) -> None:
        a = self.pick()
        n = self.model.variables[a].t.numel()
        k = self.random()
        if n == 1 and k < 0.5:
            how = "item()"
        elif n <= 40 and k < 0.6:
            how = "tolist()"
        else:
            how = "to_torch()"
        self.add(Statement(READ, -1, (a,), (how,)))

    def hold(self) -> None:
        self.add(Statement(HOLD, -1, (self.pick(),), (self.choose(_HOLDS),)))

    def export(self) -> None:
        self.add(Statement(EXPORT, self.new(), (self.pick(),)))

    def exported(self) -> None:
        if self.model.exports:
            k = self.random()
            code = SEEN if k < 0.5 else POKE if k < 0.75 else RELEASE
            self.add(Statement(code, self.choose(list(self.model.exports))))

    def fail(self) -> None:
        a = self.pick()
        if self.model.variables[a].category == "i":
            self.run(self.choose(table.FAILING), a, dst=self.new())

    def draw(self) -> Program:
        random_ = self.random
        for _ in range(2 + int(random_() * 2)):
            self.base()
        if random_() < 0.6:
            self.hold()
        k = random_()  # most are short, some go on for long
        steps = 4 + int(random_() * (8 if k < 0.55 else 20 if k < 0.92 else 60))
        for _ in range(steps):
            if self.program.actors > 1 and random_() < 0.3:
                self.actor = int(random_() * self.program.actors)
            if not self.model.variables:
                self.base()
            getattr(self, self.choose(_KINDS))()
            if self.may_fail and random_() < 0.1:
                self.fail()
            if len(self.model.variables) > VARIABLES_MAX:
                self.delete()
        self.program.finish(self.model)
        return self.program


def generate(seed: int) -> Program:
    """The program of a seed."""
    return Drawing(seed).draw()
