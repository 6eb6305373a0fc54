"""Random programs on dtorch, with fusion and without, beside torch, which runs them in sequence.

    python tests/python/programs.py                     without end, from a new seed on
    python tests/python/programs.py --count 20000       so many
    python tests/python/programs.py --seed 123          one again and again; shrinks it if it fails
    python tests/python/programs.py --seed 123 --text   only prints it

Programs are drawn (program_model.py) while torch runs them, which says what has to be seen at every
look at a value; then a batch of them runs side by side on one loop, once with fusion and once
without. Both have to show the same bits, but for a NaN's payload, and torch's where torch is exact
(program_ops.py), else values within a bound. A failure prints the seed and the program. Programs of
a batch share the machine, so that a failure may need its neighbours: ``--seed`` runs the seed
alone, many times, and then its whole batch.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import faulthandler
import gc
import logging
import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import dtorch
import torch
from dtorch import _C
from program_model import (
    AWAIT,
    BASE,
    CANCEL,
    CHAIN,
    DEADLINE,
    DELETE,
    EXPORT,
    FUTURE,
    GATHER,
    HOLD,
    JOIN,
    LOOK,
    POKE,
    READ,
    RELEASE,
    RUN,
    SEEN,
    SNAPSHOT,
    SPAWN,
    YIELD,
    Expect,
    Program,
    generate,
    pool,
)  # fmt: skip

BATCH = 48
HANG_SECONDS = 60.0
FAILURE = "ZeroDivisionError"
FAILED = "failed"
STATS = ("submitted", "direct", "chained", "fused", "passes", "dropped", "parked")

Loop = Callable[[], asyncio.AbstractEventLoop]
Seen = dict[int, Any]
"""What was seen: by the statement's number, and by -1 - variable at the end."""

can_switch_fusion = hasattr(_C, "_set_fusion")


class Mismatch(Exception):
    """What dtorch showed is not what it has to show."""


# --- running one on dtorch ----------------------------------------------------------------------


class Event:
    """Says to other actors, on this loop or another, that a statement has ended."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_set = False
        self.waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def set(self) -> None:
        with self.lock:
            self.is_set = True
            waiters, self.waiters = self.waiters, []
        for loop, waiter in waiters:
            loop.call_soon_threadsafe(_release, waiter)

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        with self.lock:
            if self.is_set:
                return
            waiter = loop.create_future()
            self.waiters.append((loop, waiter))
        await waiter


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def see(t: Any) -> Any:
    """The bits of a torch tensor as (dtype, shape, bytes), which no later write changes."""
    if t.dtype is torch.bfloat16:
        return t.dtype, t.shape, t.view(torch.int16).numpy().tobytes()
    return t.dtype, t.shape, t.numpy().tobytes()


def look(t: Any) -> Any:
    """What a tensor holds now; waits for it."""
    try:
        return see(t.to_torch())
    except RuntimeError as error:
        return failure(error)


def failure(error: RuntimeError) -> str:
    if FAILURE not in str(error):
        raise error
    return FAILED


def snapshot(t: Any) -> Any:
    """The value as of this call, for later."""
    return t.to_torch_async()


async def await_all(tensors: list[Any]) -> None:
    for t in tensors:
        try:
            await t
        except RuntimeError as error:
            failure(error)


async def chain(t: Any, count: int) -> None:
    """Ops whose results nobody sees but an await, which may be cancelled."""
    for _ in range(count):
        t = t * 0.5 + t
    try:
        await t
    except RuntimeError as error:
        failure(error)


async def join(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is not None:
        raise task.exception()  # type: ignore[misc]


class Run:
    """One program on dtorch."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.env: dict[int, Any] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.futures: dict[int, Any] = {}
        self.exports: dict[int, Any] = {}
        self.seen: Seen = {}
        self.at = [-1] * program.actors  # the statement at which each actor is, for hangs
        self.error: BaseException | None = None
        self.events: dict[int, Event] = {}
        if program.actors > 1:
            self.events = {k: Event() for k, s in enumerate(program.statements) if s.signals}

    async def main(self, loops: list[asyncio.AbstractEventLoop]) -> Seen:
        program = self.program
        if program.actors == 1:
            await self.act(0)
        elif program.threads:
            here = asyncio.get_running_loop()
            where = [here, *loops]
            others = []
            for actor in range(program.actors):
                loop = where[(program.seed + actor) % len(where)]
                if loop is here:
                    others.append(asyncio.ensure_future(self.actor(actor)))
                else:
                    others.append(
                        asyncio.wrap_future(
                            asyncio.run_coroutine_threadsafe(self.actor(actor), loop)
                        )
                    )
            await asyncio.gather(*others)
        else:
            await asyncio.gather(*(self.actor(k) for k in range(program.actors)))
        if self.error is not None:
            raise self.error
        for k, _ in program.last:
            try:
                await self.env[k]
                self.seen[-1 - k] = see(self.env[k].to_torch())
            except RuntimeError as error:
                self.seen[-1 - k] = failure(error)
        self.env.clear()
        self.exports.clear()
        return self.seen

    async def actor(self, actor: int) -> None:
        try:
            await self.act(actor)
        except BaseException as error:
            self.error = self.error or error
            for event in self.events.values():
                event.set()

    async def act(self, actor: int) -> None:
        env, seen, several = self.env, self.seen, self.program.actors > 1
        mine: list[int] = []
        for index, s in enumerate(self.program.statements):
            if several:
                if s.actor != actor:
                    continue
                for k in s.after:
                    await self.events[k].wait()
                if self.error is not None:
                    return
            self.at[actor] = index
            code = s.code
            # No name here keeps a tensor beyond its statement: a dropped handle has to be gone.
            if code == RUN:
                if s.dst >= 0:
                    env[s.dst] = s.op.dtorch(*[env[k] for k in s.srcs], *s.args)
                else:
                    s.op.dtorch(*[env[k] for k in s.srcs], *s.args)
            elif code == BASE:
                env[s.dst] = base(*s.args)
            elif code == DELETE:
                del env[s.srcs[0]]
            elif code == HOLD:
                _C._hold(env[s.srcs[0]], s.args[0])
            elif code == AWAIT or code == LOOK:
                try:
                    await env[s.srcs[0]]
                    seen[index] = look(env[s.srcs[0]]) if code == LOOK else None
                except RuntimeError as error:
                    seen[index] = failure(error)
            elif code == YIELD:
                await asyncio.sleep(0)
            elif code == GATHER:
                try:
                    await dtorch.gather(*[env[k] for k in s.srcs])
                except RuntimeError as error:
                    failure(error)
            elif code == SPAWN:
                self.tasks[s.dst] = asyncio.create_task(await_all([env[k] for k in s.srcs]))
                mine.append(s.dst)
            elif code == CHAIN:
                self.tasks[s.dst] = asyncio.create_task(chain(env[s.srcs[0]], s.args[0]))
                mine.append(s.dst)
            elif code == CANCEL:
                self.tasks[s.dst].cancel()
            elif code == JOIN:
                await join(self.tasks[s.dst])
            elif code == SNAPSHOT:
                self.futures[s.dst] = snapshot(env[s.srcs[0]])
            elif code == FUTURE:
                try:
                    seen[index] = see(await self.futures.pop(s.dst))
                except RuntimeError as error:
                    seen[index] = failure(error)
            elif code == DEADLINE:
                try:
                    async with dtorch.deadline(s.args[0]):
                        await env[s.srcs[0]]
                    seen[index] = None
                except TimeoutError:
                    pass
                except RuntimeError as error:
                    seen[index] = failure(error)
            elif code == READ:
                seen[index] = self.read(s)
            elif code == EXPORT:
                self.exports[s.dst] = env[s.srcs[0]].to_torch()
            elif code == SEEN:
                seen[index] = see(self.exports[s.dst])
            elif code == POKE:
                poke(self.exports[s.dst])
            elif code == RELEASE:
                del self.exports[s.dst]
            if s.signals:
                self.events[index].set()
        for k in mine:
            await join(self.tasks[k])
        self.at[actor] = len(self.program.statements)

    def read(self, s: Any) -> Any:
        t = self.env[s.srcs[0]]
        how = s.args[0]
        try:
            if how == "item()":
                return t.item()
            return t.tolist() if how == "tolist()" else see(t.to_torch())
        except RuntimeError as error:
            return failure(error)


def base(dtype: Any, offset: int, shape: tuple[int, ...], how: str) -> Any:
    x = pool(dtype)[offset : offset + math.prod(shape)].view(shape)
    if how == "from_torch":
        return dtorch.from_torch(x.clone())
    return dtorch.tensor(x) if how == "tensor" else dtorch.Tensor(x)


def poke(t: Any) -> None:
    if t.dtype is torch.bool:
        t.logical_not_()
    else:
        t.add_(1)


# --- comparing ----------------------------------------------------------------------------------


class Counts(collections.Counter[str]):
    """How many programs, statements and looks there were."""


def expected(s: Any) -> Any:
    """What a statement sees when all is right."""
    if s.expect.failed:
        return FAILED
    return see(s.expect.value) if s.expect.shape is not None else s.expect.value


def compare(program: Program, seen: Seen, fused: Seen | None, counts: Counts) -> None:
    """Raises Mismatch unless all that was seen is right, and the same as in the other run."""
    for k, s in enumerate(program.statements):
        if s.expect is not None and k in seen:  # a deadline may have passed
            compare_one(s.expect, seen[k], seen[k] if fused is None else fused.get(k), counts, s)
    for k, expect in program.last:
        got = seen[-1 - k]
        compare_one(expect, got, got if fused is None else fused[-1 - k], counts, k)


def compare_one(expect: Expect, got: Any, fused: Any, counts: Counts, where: Any) -> None:
    """One look at a value, in the run without fusion and in that with it."""
    for value in (got, fused):
        if (value == FAILED) != expect.failed and value is not None:
            raise Mismatch(f"{place(where)}: {'fails' if value == FAILED else 'does not fail'}")
    if expect.failed or expect.value is None:
        counts["failures seen"] += expect.failed
        return
    if fused is not None and not same(fused, got):
        raise Mismatch(f"{place(where)}: {different(fused, got)}, the first with fusion")
    if expect.error == INF:
        counts["looks that torch says nothing of"] += 1
        return
    counts["exact looks" if expect.error == 0 else "near looks"] += 1
    if expect.shape is None:
        plain(expect, got, where)
    else:
        against_torch(expect, got, where)


def place(where: Any) -> str:
    """A statement, or a variable that is looked at at the end."""
    return f"v{where} at the end" if isinstance(where, int) else f"at {where.text()}"


INF = math.inf


def against_torch(expect: Expect, got: Any, where: Any) -> None:
    if expect.bits is None:
        expect.bits = see(expect.value)
    if got == expect.bits:
        return
    if got[:2] != expect.bits[:2]:
        raise Mismatch(f"{place(where)}: {got[:2]}, torch has {expect.bits[:2]}")
    want, have = expect.value, tensor(got)
    if want.dtype.is_floating_point:
        nan = want.isnan()
        if torch.equal(nan, have.isnan()):
            if expect.error == 0:
                if same(got, expect.bits):
                    return
            else:
                off = (want.double() - have.double()).abs()
                bad = (off > expect.error) & (want != have) & ~nan
                if not bad.any():
                    return
    difference = different(got, expect.bits, expect.error)
    raise Mismatch(f"{place(where)}: {difference}, torch's the second, bound {expect.error}")


def same(a: Any, b: Any) -> bool:
    """Whether two values have the same bits. One NaN is as good as another: which of two NaNs a sum
    takes its sign and payload from is not defined, and compilers swap operands as they like."""
    if a == b or not (isinstance(a, tuple) and isinstance(b, tuple)):
        return a == b or repr(a) == repr(b)
    if a[:2] != b[:2] or not a[0].is_floating_point:
        return False
    x, y = tensor(a), tensor(b)
    nan = x.isnan()
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return torch.equal(nan, y.isnan()) and torch.equal(
        x.masked_fill(nan, 0).view(integers), y.masked_fill(nan, 0).view(integers)
    )


def different(a: Any, b: Any, error: float = 0.0) -> str:
    """Where two values differ, in words."""
    if not (isinstance(a, tuple) and isinstance(b, tuple)) or a[:2] != b[:2]:
        return f"{show(a)} and {show(b)}"
    x, y = tensor(a).reshape(-1), tensor(b).reshape(-1)
    size = x.element_size()
    bits = (x.view(torch.uint8) != y.view(torch.uint8)).view(-1, size).any(-1)
    if error > 0:
        bits &= ~((x.double() - y.double()).abs() <= error)
    where = bits.nonzero().reshape(-1)
    k = int(where[0]) if len(where) else 0
    first = f"[{k}] {x[k].item()!r} and {y[k].item()!r}" if len(where) else "no bit"
    return f"{len(where)} of {x.numel()} ({x.dtype}, {tuple(a[1])}) differ, first {first}"


def plain(expect: Expect, got: Any, where: Any) -> None:
    """Python numbers: item() and tolist()."""
    if repr(got) == repr(expect.value):
        return
    if expect.error > 0:
        want, have = torch.tensor(expect.value).double(), torch.tensor(got).double()
        if want.shape == have.shape:
            near = (want - have).abs() <= expect.error
            if bool((near | (want == have) | (want.isnan() & have.isnan())).all()):
                return
    raise Mismatch(f"{place(where)}: {got!r}, torch has {expect.value!r}, bound {expect.error}")


def tensor(got: Any) -> Any:
    dtype, shape, data = got
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).view(shape)


def show(got: Any) -> str:
    """A value in a message; of a large one the beginning, and its number of elements."""
    if not isinstance(got, tuple):
        return repr(got)
    t = tensor(got).reshape(-1)
    numbers = t[:12].tolist()
    return f"{numbers}{'...' if t.numel() > 12 else ''} ({t.numel()} x {t.dtype})"


# --- running many ---------------------------------------------------------------------------------


Runner = Callable[[list[Program], "Loops", Counts], None]


class Failure(Exception):
    def __init__(self, program: Program, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.program = program
        self.error = error


def fusion(on: bool) -> None:
    if can_switch_fusion:
        _C._set_fusion(on)


class Loops:
    """Loops of both kinds in threads of their own, for programs of several threads."""

    def __init__(self) -> None:
        self.loops = [factory() for factory in loop_factories()]
        self.threads = [threading.Thread(target=loop.run_forever) for loop in self.loops]
        for thread in self.threads:
            thread.start()

    def close(self) -> None:
        for loop, thread in zip(self.loops, self.threads, strict=True):
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def __enter__(self) -> Loops:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def loop_factories() -> list[Loop]:
    try:
        import uvloop
    except ImportError:
        return [asyncio.new_event_loop, asyncio.new_event_loop]
    return [asyncio.new_event_loop, uvloop.new_event_loop]


async def _side_by_side(runs: list[Run], loops: Loops) -> list[Seen]:
    tasks = [asyncio.ensure_future(run.main(loops.loops)) for run in runs]
    _, pending = await asyncio.wait(tasks, timeout=HANG_SECONDS)
    if pending:
        run = next(r for r, t in zip(runs, tasks, strict=True) if t in pending)
        where = ", ".join(
            run.program.statements[k].text() if k < len(run.program.statements) else "its end"
            for k in run.at
        )
        raise Failure(run.program, TimeoutError(f"hangs at: {where}"))
    errors = [task.exception() for task in tasks]
    for run, error in zip(runs, errors, strict=True):
        if error is not None:
            raise Failure(run.program, error)
    await dtorch.drain()
    return [task.result() for task in tasks]


async def batch(programs: list[Program], loops: Loops, counts: Counts) -> None:
    """Runs programs side by side on this loop, with fusion and without; Failure names one."""
    first: list[Seen | None] = [None] * len(programs)
    if can_switch_fusion:
        fusion(True)
        first = list(await _side_by_side([Run(p) for p in programs], loops))
        fusion(False)
    try:
        second = await _side_by_side([Run(p) for p in programs], loops)
    finally:
        fusion(True)
    for program, fused, seen in zip(programs, first, second, strict=True):
        try:
            compare(program, seen, fused, counts)
        except Mismatch as error:
            raise Failure(program, error) from None
        counts["programs"] += 1
        counts["statements"] += len(program.statements)
        counts[f"programs of {'threads' if program.threads else 'coroutines'}"
               if program.actors > 1 else "programs of one coroutine"] += 1  # fmt: skip


def batches(seeds: Iterable[int]) -> Iterator[list[int]]:
    """Seeds in batches; a seed's batch is the same whenever it is run."""
    some: list[int] = []
    for seed in seeds:
        some.append(seed)
        if seed % BATCH == BATCH - 1:
            yield some
            some = []
    if some:
        yield some


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Reads may block, and failures that nobody sees are not logged, while programs run."""
    before = dtorch.get_blocking_policy()
    log = logging.getLogger("dtorch")
    level = log.level
    log.setLevel(logging.CRITICAL)
    dtorch.set_blocking_policy("allow")
    grad = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch's, of degrees of freedom
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_grad_enabled(grad)
        dtorch.set_blocking_policy(before)
        log.setLevel(level)


def live_bytes() -> int:
    gc.collect()
    dtorch.empty_cache()
    return int(dtorch.memory_stats()["live_bytes"])


# --- a failing one ------------------------------------------------------------------------------


def run_alone(program: Program, runner: Runner, loops: Loops, times: int) -> BaseException | None:
    """The first failure of a program that is run by itself, or None."""
    for _ in range(times):
        for copies in (1, 4):
            try:
                runner([program] * copies, loops, Counts())
            except Failure as failure:
                return failure.error
    return None


def shrink(
    program: Program, runner: Runner, loops: Loops, times: int, kind: type[BaseException]
) -> Program:
    """Fewer statements that fail alike: drops ever smaller pieces while it still fails."""
    size = max(1, len(program.statements) // 2)
    while size >= 1:
        k = 0
        while k < len(program.statements):
            smaller = program.without(set(range(k, k + size)))
            if len(smaller.statements) < len(program.statements) and (
                type(run_alone(smaller, runner, loops, times)) is kind
            ):
                program = smaller
            else:
                k += size
        size //= 2
    return program


# --- the command line ---------------------------------------------------------------------------


def loop_and_runner(factory: Loop) -> tuple[asyncio.AbstractEventLoop, Runner]:
    """A loop that stays open, and what runs batches on it."""
    loop = factory()

    def runner(programs: list[Program], loops: Loops, counts: Counts) -> None:
        loop.run_until_complete(batch(programs, loops, counts))

    return loop, runner


def runner_of(factory: Loop) -> Runner:
    return loop_and_runner(factory)[1]


def report(failure: Failure) -> None:
    print(f"\nFAILED: seed {failure.program.seed}: {failure}\n{failure.program.text()}", flush=True)


def examine(program: Program, seeds: list[int], arguments: argparse.Namespace) -> int:
    """Runs a program again, alone and in its batch, and shrinks it if it fails alone."""
    with Loops() as loops:
        for factory in loop_factories():
            runner = runner_of(factory)
            error = run_alone(program, runner, loops, arguments.repeat)
            if error is not None:
                report(Failure(program, error))
                smaller = shrink(
                    program, runner, loops, max(3, arguments.repeat // 10), type(error)
                )
                error = run_alone(smaller, runner, loops, arguments.repeat) or error
                print(f"\nshrunk: {type(error).__name__}: {error}\n{smaller.text()}", flush=True)
                return 1
        print(f"seed {program.seed} passes alone, {arguments.repeat} times; now in its batch")
        for factory in loop_factories():
            runner = runner_of(factory)
            for _ in range(max(1, arguments.repeat // 10)):
                try:
                    runner([generate(s) for s in seeds], loops, Counts())
                except Failure as failure:
                    report(failure)
                    return 1
        print("and its batch passes")
    return 0


def soak(arguments: argparse.Namespace) -> int:
    """Batch after batch, on both kinds of loop in turn, until the count or the time is reached."""
    first = arguments.first
    if first is None:
        first = int.from_bytes(os.urandom(5), "little")
    first -= first % BATCH
    start = last = time.monotonic()
    cpu = time.process_time()
    counts = Counts()
    runners = [runner_of(factory) for factory in loop_factories()]
    seeds = range(first, first + arguments.count) if arguments.count else iter_from(first)
    baseline = -1
    print(f"programs from seed {first} on: {describe()}", flush=True)
    with Loops() as loops:
        for number, some in enumerate(batches(seeds)):
            # A crash or a hang in C shows no seed: this line of the journal does.
            journal(arguments.journal, some)
            faulthandler.dump_traceback_later(2 * HANG_SECONDS + 30, exit=True)
            try:
                runners[number % len(runners)]([generate(s) for s in some], loops, counts)
            except Failure as failure:
                faulthandler.cancel_dump_traceback_later()
                report(failure)
                if isinstance(failure.error, TimeoutError):
                    os._exit(1)  # what hangs would hang the exit as well
                examine(failure.program, some, arguments)
                return 1
            now = time.monotonic()
            if number % 100 == 3:
                live = live_bytes()
                if baseline < 0:
                    baseline = live
                if live > baseline + (1 << 20):
                    print(f"FAILED: {live} bytes live after seed {some[-1]}, {baseline} before")
                    return 1
            if now - last > arguments.every:
                last = now
                print(progress(counts, now - start, time.process_time() - cpu), flush=True)
            if arguments.seconds and now - start > arguments.seconds:
                break
    faulthandler.cancel_dump_traceback_later()
    print(progress(counts, time.monotonic() - start, time.process_time() - cpu), flush=True)
    for name, count in sorted(counts.items()):
        print(f"  {count:>12,} {name}")
    stats = _C._sched_stats()
    print("  scheduler: " + ", ".join(f"{stats[k]:,} {k}" for k in STATS if k in stats))
    return 0


def describe() -> str:
    threads = dtorch.get_num_threads()
    io = os.environ.get("DTORCH_IO", "default I/O")
    return f"{threads} threads, {io}, fusion {'on and off' if can_switch_fusion else 'as it is'}"


def journal(path: str | None, seeds: list[int]) -> None:
    if path:
        with open(path, "w", encoding="ascii") as file:
            file.write(f"seeds {seeds[0]} to {seeds[-1]}\n")


def progress(counts: Counts, seconds: float, cpu: float) -> str:
    n = counts["programs"]
    return f"{n:,} programs in {seconds:.0f} s, {n / seconds:.0f}/s, {n / cpu:.0f} per CPU second"


def iter_from(first: int) -> Iterator[int]:
    while True:
        yield first
        first += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--seed", type=int, help="run this one, alone and many times")
    parser.add_argument("--text", action="store_true", help="only print the program of --seed")
    parser.add_argument("--repeat", type=int, default=100, help="how often --seed is run")
    parser.add_argument("--first", type=int, help="the first seed (default: a random one)")
    parser.add_argument("--count", type=int, default=0, help="how many programs; 0: no limit")
    parser.add_argument("--seconds", type=float, default=0, help="for how long; 0: no limit")
    parser.add_argument("--threads", type=int, default=0, help="set_num_threads; 0: as it is")
    parser.add_argument("--every", type=float, default=10, help="seconds between lines of progress")
    parser.add_argument("--journal", help="a file that names the seeds being run")
    arguments = parser.parse_args()
    faulthandler.enable()
    if arguments.threads:
        dtorch.set_num_threads(arguments.threads)
    with quiet():
        if arguments.seed is None:
            return soak(arguments)
        program = generate(arguments.seed)
        if arguments.text:
            print(program.text())
            return 0
        first = arguments.seed - arguments.seed % BATCH
        return examine(program, list(range(first, first + BATCH)), arguments)


if __name__ == "__main__":
    sys.exit(main())
