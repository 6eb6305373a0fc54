"""Timing helpers for fair side-by-side measurements on a shared, noisy machine.

Two sides are measured in one process, in turns: side A, side B, side B, side A, and so on, so that
a slow drift of the machine (frequency, a neighbour's load) meets both alike. A *repeat* gives one
number for each side; the ratio of a pair is taken within the repeat, and what is reported is the
median over the repeats. Python's garbage collector is off while a clock runs (gc.collect() comes
before), and every side is warmed before the first sample counts.

``settle_s`` is a pause between turns. OpenMP's threads, which torch uses, spin for some
milliseconds after the last parallel region, and a pool of any kind may do so: without the pause
each side would be measured under the other's spinning. The first call of a turn therefore wakes
sleeping threads; ``primer`` untimed calls absorb that for both.

All times are in seconds unless a name says otherwise.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

Call = Callable[[], Awaitable[Any]]

SETTLE_S = 0.025
"""GNU OpenMP's threads spin for 300,000 pauses, which were 5 to 15 ms on the machines seen."""


@contextmanager
def no_gc() -> Iterator[None]:
    """Collect once, then keep the garbage collector off inside the block."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def percentile(samples: Sequence[float], percent: float) -> float:
    """The smallest sample that at least ``percent`` of the samples do not exceed (nearest rank)."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    rank = max(1, -(-len(ordered) * percent // 100))  # ceil
    return ordered[int(rank) - 1]


def quartiles(samples: Sequence[float]) -> tuple[float, float]:
    """The first and the third quartile (nearest rank)."""
    return percentile(samples, 25), percentile(samples, 75)


@dataclass
class Pair:
    """What two sides measured: a number for each repeat, in one unit and order on both sides."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    def add(self, ours: float, theirs: float) -> None:
        """Append one repeat."""
        self.ours.append(ours)
        self.theirs.append(theirs)

    @property
    def ours_median(self) -> float:
        """Our number: the median over the repeats."""
        return median(self.ours)

    @property
    def theirs_median(self) -> float:
        """The peer's number: the median over the repeats."""
        return median(self.theirs)

    @property
    def ratios(self) -> list[float]:
        """theirs / ours of each repeat: above 1 where we take less time."""
        return [theirs / ours for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    @property
    def ratio(self) -> float:
        """The median of the ratios within the repeats."""
        return median(self.ratios)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The first and the third quartile of the ratios within the repeats."""
        return quartiles(self.ratios)


async def timed(call: Call, calls: int) -> list[float]:
    """The wall time of each of ``calls`` awaited calls, one after the other."""
    clock = time.perf_counter
    times: list[float] = []
    for _ in range(calls):
        start = clock()
        result = await call()
        times.append(clock() - start)
        del result  # freed outside the timed span, on both sides
    return times


async def interleave(
    ours: Call, theirs: Call, *, turns: int, calls: int, primer: int = 1, settle_s: float = 0.005
) -> tuple[list[list[float]], list[list[float]]]:
    """The times of both sides, ``turns`` turns of ``calls`` calls each, one list for each turn.

    The sides alternate, and which goes first changes every time. Before each turn come ``settle_s``
    of sleep and ``primer`` untimed calls.
    """
    ours_times: list[list[float]] = []
    theirs_times: list[list[float]] = []
    order = [(ours, ours_times), (theirs, theirs_times)]
    with no_gc():
        for _ in range(turns):
            for side, times in order:
                await asyncio.sleep(settle_s)
                for _ in range(primer):
                    await side()
                times.append(await timed(side, calls))
            order.reverse()
    return ours_times, theirs_times


def medians(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> Pair:
    """Each turn becomes one repeat: its median on either side."""
    return Pair([median(turn) for turn in ours], [median(turn) for turn in theirs])


async def interleave_spans(
    ours: Callable[[], Awaitable[float]],
    theirs: Callable[[], Awaitable[float]],
    *,
    samples: int,
    warm: int = 3,
) -> Pair:
    """``samples`` pairs of calls that time themselves and return one number, in changing order."""
    for _ in range(warm):
        await ours()
        await theirs()
    pair = Pair()
    with no_gc():
        for index in range(samples):
            if index % 2:
                second, first = await theirs(), await ours()
            else:
                first, second = await ours(), await theirs()
            pair.add(first, second)
    return pair


def turn_order(names: Sequence[str], turn: int) -> list[str]:
    """The order of the sides in turn number ``turn``: each comes first equally often, and each goes
    before and after each other one."""
    shift = (turn // 2) % len(names)
    order = [*names[shift:], *names[:shift]]
    return order[::-1] if turn % 2 else order


def interleave_many(
    sides: Mapping[str, Callable[[], float]],
    *,
    samples: int,
    warm: int = 2,
    settle_s: float = SETTLE_S,
) -> dict[str, list[float]]:
    """``samples`` numbers from each of several sides that time themselves, outside a loop.

    They take turns; ``settle_s`` of sleep and an untimed turn come before each of them.
    """
    values: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(warm):
        for side in sides.values():
            side()
    with no_gc():
        for turn in range(samples):
            for name in turn_order(list(sides), turn):
                time.sleep(settle_s)
                sides[name]()
                values[name].append(sides[name]())
    return values


async def interleave_many_async(
    sides: Mapping[str, Callable[[], Awaitable[Any]]],
    *,
    samples: int,
    warm: int = 0,
    settle_s: float = 0.005,
) -> dict[str, list[Any]]:
    """As interleave_many, for coroutine functions on the running loop, giving what they give."""
    values: dict[str, list[Any]] = {name: [] for name in sides}
    for _ in range(warm):
        for side in sides.values():
            await side()
    with no_gc():
        for turn in range(samples):
            for name in turn_order(list(sides), turn):
                await asyncio.sleep(settle_s)
                values[name].append(await sides[name]())
    return values


class Ticker:
    """Ticks on the running loop and keeps the greatest gap between two ticks.

    A loop that is never held up has gaps of ``period_s`` plus the timer's slack. Use as an async
    context manager; ``gap_max_s`` is right after it has been left. A hold-up that is still going on
    when the block ends counts: leaving waits for one more tick.
    """

    def __init__(self, period_s: float = 0.005) -> None:
        self.period_s = period_s
        self.gap_max_s = 0.0
        self.ticks = 0
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    async def _run(self) -> None:
        last = time.perf_counter()
        while not self._stopping:
            await asyncio.sleep(self.period_s)
            now = time.perf_counter()
            self.gap_max_s = max(self.gap_max_s, now - last)
            self.ticks += 1
            last = now

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._run())
        await asyncio.sleep(0)  # the first tick's clock starts before the block does
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._stopping = True
        await self._task


def run_on(loop_name: str, main: Callable[[], Awaitable[Any]]) -> Any:
    """Run a coroutine function to its end on a fresh loop: ``asyncio`` or ``uvloop``."""

    async def wrapped() -> Any:
        return await main()

    if loop_name == "asyncio":
        return asyncio.run(wrapped())
    if loop_name == "uvloop":
        import uvloop

        return uvloop.run(wrapped())
    raise ValueError(f"unknown loop {loop_name!r}: asyncio or uvloop")
