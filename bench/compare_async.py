"""compare.py's measurements of what happens beside an await: cancelling, fairness, many waiters."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from statistics import median
from typing import Any

import dtorch
import harness
from report import Line, Options, ratio_line, torch_pool

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

CHAIN_PRODUCTS = 300
PRODUCT_SIZE = 1024
CANCEL_TARGET = 3.0
TICKER_TARGET_MS = 5.0
WAITERS = 10_000
GAP_TARGET_MS = 10.0
LOOP_TIME_TARGET_US = 5.0
WAKEUPS_TARGET = WAITERS // 10
GATE_S = 0.5


def spread(values: list[float], form: str = "{:.2f}..{:.2f}") -> str:
    """The quartiles as the table shows them."""
    return form.format(*harness.quartiles(values))


# --- cancelling -----------------------------------------------------------------------------------


def products(x: Any, w: Any) -> Any:
    """A chain of 300 products, not awaited."""
    for _ in range(CHAIN_PRODUCTS):
        x = x @ w
    return x


async def cancel_ours(x: Any, w: Any, one_s: float) -> tuple[float, float]:
    """What follows the cancelling of the chain's awaiter after about five products.

    Seconds from ``task.cancel()`` to the next unrelated result, and CPU seconds of the process
    while it ran and for 30 products' time after it, its own included.
    """

    async def request() -> Any:
        return await products(x, w)

    task = asyncio.create_task(request())
    await asyncio.sleep(5 * one_s)
    cpu, begin = time.process_time(), time.perf_counter()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    if not task.cancelled():
        raise AssertionError("the chain ended before it could be cancelled")
    result = await (w @ w)
    seconds = time.perf_counter() - begin
    await asyncio.sleep(30 * one_s)
    cpu = time.process_time() - cpu
    if (await (result == await (w @ w)).all()).item() is not True:
        raise AssertionError("the result after the cancellation is wrong")
    return seconds, cpu


async def cancel_theirs(pool: Any, x: Any, w: Any, one_s: float) -> float:
    """The first number with torch in an executor of one thread: its chain cannot be stopped."""
    loop = asyncio.get_running_loop()

    async def request() -> Any:
        return await loop.run_in_executor(pool, products, x, w)

    task = asyncio.create_task(request())
    await asyncio.sleep(5 * one_s)
    begin = time.perf_counter()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await loop.run_in_executor(pool, torch.mm, w, w)
    return time.perf_counter() - begin


async def cpu_of_product(w: Any) -> float:
    """CPU seconds of the process for one product."""
    begin = time.process_time()
    for _ in range(5):
        await (w @ w)
    return (time.process_time() - begin) / 5


async def measure_cancel(options: Options) -> list[Line]:
    """A chain of 300 products of 1024x1024, awaited by a task that is cancelled after about five.

    The first number starts at ``task.cancel()``, covers the end of the task, and ends with the
    result of one more such product that has nothing to do with the chain; the unit is the time of
    one product. As that product could run beside a chain that goes on, the second number is the
    work done from then on, as CPU time in products: the rest of the running one and the new one.
    """
    size = PRODUCT_SIZE
    x, w = await dtorch.randn(size, size), await (dtorch.randn(size, size) / size**0.5)
    ours: list[float] = []
    work: list[float] = []
    theirs: list[float] = []
    one_product_s: list[float] = []
    stats: list[dict[str, int]] = []
    pool = torch_pool() if torch is not None else None
    with harness.no_gc():
        for turn in range(options.count(7)):
            one_product_s.append(median(await harness.timed(lambda: x @ w, 5)))
            one_cpu_s = await cpu_of_product(w)
            before = counters()
            seconds, cpu = await cancel_ours(x, w, one_product_s[-1])
            ours.append(seconds)
            work.append(cpu / one_cpu_s)
            stats.append(counted_since(before))
            await dtorch.drain()  # whatever was not dropped must not meet the next turn
            if pool is not None and turn < (1 if options.quick else 2):
                u = torch.randn(size, size)
                v = torch.randn(size, size) / size**0.5
                theirs.append(await cancel_theirs(pool, u, v, one_product_s[-1]))
                await asyncio.sleep(0.02)
    if pool is not None:
        pool.shutdown()
    ratios = [value / unit_s for value, unit_s in zip(ours, one_product_s, strict=True)]
    detail = {"ours_s": ours, "theirs_s": theirs, "one_product_s": one_product_s, "stats": stats}
    name = f"cancel {CHAIN_PRODUCTS} products"
    return [
        Line(
            name=f"{name}: next result",
            unit="ms",
            ours=median(ours) * 1e3,
            peer_name="torch, executor" if theirs else "",
            peer=median(theirs) * 1e3 if theirs else None,
            figure=f"{median(ratios):.2f} products",
            spread=spread(ratios),
            target=f"< {CANCEL_TARGET:g} products",
            met=median(ratios) < CANCEL_TARGET,
            repeats=len(ours),
            detail=detail,
        ),
        Line(
            name=f"{name}: work done after it",
            unit="products",
            ours=median(work),
            peer_name="",
            peer=None,
            figure=f"{median(work):.2f} products",
            spread=spread(work),
            target=f"< {CANCEL_TARGET:g} products",
            met=median(work) < CANCEL_TARGET,
            repeats=len(work),
            detail={"work": work},
        ),
    ]


# --- side by side ---------------------------------------------------------------------------------


async def measure_parallel(options: Options) -> list[Line]:
    """Two ``unique`` of a million int64 each, which one thread computes, started and awaited
    together; beside them the same, one awaited before the other starts."""
    n = 1_000_000
    inputs = [await (dtorch.arange(n) % modulus) for modulus in (1000, 999)]

    async def ours() -> float:
        begin = time.perf_counter()
        await dtorch.gather(*[dtorch.unique(x) for x in inputs])
        return time.perf_counter() - begin

    async def one_by_one() -> float:
        begin = time.perf_counter()
        for x in inputs:
            await dtorch.unique(x)
        return time.perf_counter() - begin

    pair = await harness.interleave_spans(ours, one_by_one, samples=options.count(31))
    target = 1.6 if dtorch.get_num_threads() > 1 else None
    return [ratio_line("two tasks side by side", "ms", 1e3, "one by one", pair, target)]


# --- fairness -------------------------------------------------------------------------------------


async def measure_ticker(options: Options) -> list[Line]:
    """The greatest gap of a 5 ms ticker beside ``while True: await ready_tensor``.

    Its control is an interleaved run that only sleeps. The busy coroutine is told to stop by
    a thread: on a starved loop nothing else could.
    """
    ready = dtorch.tensor([1.0, 2.0])
    await ready
    duration_s = 0.2 if options.quick else 1.0

    async def busy() -> None:
        running = [True]
        stop = threading.Timer(duration_s, running.clear)
        stop.start()
        while running:
            await ready
        stop.join()

    async def gap(work: Callable[[], Awaitable[Any]]) -> float:
        async with harness.Ticker(0.005) as ticker:
            await work()
        return ticker.gap_max_s

    values = await harness.interleave_many_async(
        {"dtorch": lambda: gap(busy), "control": lambda: gap(lambda: asyncio.sleep(duration_s))},
        samples=5,
        settle_s=0.05,
    )
    above_ms = [
        (ours - control) * 1e3
        for ours, control in zip(values["dtorch"], values["control"], strict=True)
    ]
    loop_name = type(asyncio.get_running_loop()).__module__.split(".")[0]
    return [
        Line(
            name=f"ticker gap beside always-ready awaits, {loop_name}",
            unit="ms",
            ours=median(values["dtorch"]) * 1e3,
            peer_name="no dtorch",
            peer=median(values["control"]) * 1e3,
            figure=f"{median(above_ms):+.2f} ms",
            spread=spread(above_ms, "{:+.2f}..{:+.2f}"),
            target=f"<= +{TICKER_TARGET_MS:g} ms",
            met=median(above_ms) <= TICKER_TARGET_MS,
            repeats=len(above_ms),
            detail={"gaps_s": values},
        )
    ]


# --- many waiters ---------------------------------------------------------------------------------


class CountingLoop(asyncio.SelectorEventLoop):
    """An asyncio loop that counts how often a reader callback is run: the drains of a bridge."""

    def __init__(self) -> None:
        self.reads = 0
        super().__init__()

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:  # type: ignore[override]
        def counted() -> None:
            self.reads += 1
            callback(*args)

        super().add_reader(fd, counted)


def counters() -> dict[str, int]:
    """The plain counters of ``dtorch.stats()``; {} in a dtorch that has none."""
    read = getattr(dtorch, "stats", None)
    stats = {} if read is None else read()
    return {name: value for name, value in stats.items() if isinstance(value, int)}


def counted_since(before: dict[str, int]) -> dict[str, int]:
    """By how much each counter has risen."""
    return {name: value - before.get(name, 0) for name, value in counters().items()}


class Waiters:
    """Coroutines that wait, each as a Task, for something that comes to all of them at once.

    ``watch`` says what is measured: False: the thread time of the loop for each completion; True:
    the greatest gap between two iterations of the loop, from the first resumption to the last (the
    callback that looks would spoil the first).
    """

    def __init__(self, loop: CountingLoop, awaitables: list[Any], *, watch: bool) -> None:
        self._loop = loop
        self._left = len(awaitables)
        self._count = len(awaitables)
        self._watch = watch
        self._done: asyncio.Future[None] = loop.create_future()
        self._last = 0.0
        self.gap_max_s = 0.0
        self.loop_s = 0.0  # for each completion
        self.reads = 0
        self.stats: dict[str, int] = {}
        self._tasks = [loop.create_task(self._one(one)) for one in awaitables]

    async def _one(self, awaitable: Any) -> None:
        await awaitable
        if self._watch and self._left == self._count:
            self._last = time.perf_counter()
            self._loop.call_soon(self._look)
        self._left -= 1
        if self._left == 0:
            self._done.set_result(None)

    def _look(self) -> None:
        now = time.perf_counter()
        self.gap_max_s = max(self.gap_max_s, now - self._last)
        self._last = now
        if self._left:
            self._loop.call_soon(self._look)

    async def park(self) -> bool:
        """Let all of them reach their await; False when some have been served already."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return self._left == self._count

    async def served(self) -> None:
        """Wait until all have gone on, and take the numbers."""
        stats, reads, begin = counters(), self._loop.reads, time.thread_time()
        await self._done
        self.loop_s = (time.thread_time() - begin) / self._count
        self.reads = self._loop.reads - reads
        self.stats = counted_since(stats)


class Gate:
    """A product that takes about half a second: what the waiters' tensors wait for."""

    def __init__(self) -> None:
        self._size = 1024
        self._a = dtorch.ones(self._size, self._size)

    async def fit(self, seconds: float = GATE_S) -> None:
        """Choose the size."""
        await (self._a @ self._a)
        times = await harness.timed(lambda: self._a @ self._a, 3)
        self._size = min(8192, round(1024 * (seconds / min(times)) ** (1 / 3) / 64) * 64)
        self._a = await dtorch.ones(self._size, self._size)
        await (self._a @ self._a)

    def row(self) -> tuple[Any, float]:
        """Four elements of a new product, pending, and their value."""
        return (self._a @ self._a)[0, :4], float(self._size)


async def wait_for_tensors(loop: CountingLoop, gate: Gate, *, each: bool, watch: bool) -> Waiters:
    """10,000 coroutines that await a tensor ``each``, or all the same one."""
    for _ in range(4):
        row, value = gate.row()
        tensors = [row + float(k) for k in range(WAITERS)] if each else [row + 0.0] * WAITERS
        waiters = Waiters(loop, tensors, watch=watch)
        if await waiters.park():
            break
        await waiters.served()
        await gate.fit(2 * GATE_S)  # a busy machine: calling took longer than the gate
    else:
        raise RuntimeError("the gate opened before all coroutines waited")
    await waiters.served()
    for k in (0, 1, WAITERS // 2, WAITERS - 1):
        if tensors[k].tolist() != [value + (k if each else 0)] * 4:
            raise AssertionError(f"waiter {k} got {tensors[k].tolist()}")
    return waiters


async def wait_for_futures(loop: CountingLoop, *, watch: bool) -> Waiters:
    """What is done without dtorch: a thread completes futures by call_soon_threadsafe."""
    futures = [loop.create_future() for _ in range(WAITERS)]
    waiters = Waiters(loop, futures, watch=watch)
    await waiters.park()

    def complete() -> None:
        for future in futures:
            loop.call_soon_threadsafe(future.set_result, None)

    thread = threading.Thread(target=complete)
    loop.call_soon(thread.start)
    await waiters.served()
    thread.join()
    return waiters


def many_lines(label: str, ours: list[list[Waiters]], theirs: list[list[Waiters]]) -> list[Line]:
    """The three lines about one way of waiting. A repeat is a run that measured the loop's time
    and one that watched for gaps."""
    loop_us = [run[0].loop_s * 1e6 for run in ours]
    gap_ms = [run[1].gap_max_s * 1e3 for run in ours]
    reads = [float(run[0].reads) for run in ours]
    # Without dtorch.stats() the drains stand for the wake-ups: there are no fewer of them.
    wakeups = [float(run[0].stats.get("loop_wakeups", run[0].reads)) for run in ours]
    peer = "asyncio futures, call_soon_threadsafe"
    return [
        Line(
            name=f"{WAITERS:,} awaits, {label}: loop time each",
            unit="us",
            ours=median(loop_us),
            peer_name=peer,
            peer=median(run[0].loop_s * 1e6 for run in theirs),
            figure=f"{median(loop_us):.2f} us",
            spread=spread(loop_us),
            target=f"<= {LOOP_TIME_TARGET_US:g} us",
            met=median(loop_us) <= LOOP_TIME_TARGET_US,
            repeats=len(ours),
            detail={"loop_us": loop_us},
        ),
        Line(
            name=f"{WAITERS:,} awaits, {label}: greatest loop gap",
            unit="ms",
            ours=median(gap_ms),
            peer_name=peer,
            peer=median(run[1].gap_max_s * 1e3 for run in theirs),
            figure=f"{median(gap_ms):.2f} ms",
            spread=spread(gap_ms),
            target=f"<= {GAP_TARGET_MS:g} ms",
            met=median(gap_ms) <= GAP_TARGET_MS,
            repeats=len(ours),
            detail={"gap_ms": gap_ms},
        ),
        Line(
            name=f"{WAITERS:,} awaits, {label}: wake-ups of the loop",
            unit="",
            ours=median(wakeups),
            peer_name=peer,
            peer=WAITERS,
            figure=f"{median(wakeups):.0f}, {median(reads):.0f} drains",
            spread=spread(wakeups, "{:.0f}..{:.0f}"),
            target=f"<= {WAKEUPS_TARGET:,}",
            met=median(wakeups) <= WAKEUPS_TARGET,
            repeats=len(ours),
            detail={"wakeups": wakeups, "drains": reads, "stats": [run[0].stats for run in ours]},
        ),
    ]


def measure_many(options: Options) -> list[Line]:
    """10,000 coroutines that await at once, all served when a product ends.

    Their own tensor each (10,000 small tasks follow the product), or one tensor for all. The loop's
    time is the CPU time of its thread from when all are parked until the last has gone on; that
    contains asyncio's own: the step of each Task and the call of its wake-up. Wake-ups are what
    dtorch.stats() counts (writes of the eventfd); drains are the runs of the loop's reader callback
    (one wake-up that brings more than 256 completions takes several).
    """
    loop = CountingLoop()
    asyncio.set_event_loop(loop)

    async def main() -> dict[str, list[Any]]:
        dtorch.set_blocking_policy("allow")  # results are read to check them
        gate = Gate()
        await gate.fit()

        async def both(run: Callable[[bool], Awaitable[Waiters]]) -> list[Waiters]:
            return [await run(False), await run(True)]

        return await harness.interleave_many_async(
            {
                "each": lambda: both(
                    lambda watch: wait_for_tensors(loop, gate, each=True, watch=watch)
                ),
                "one": lambda: both(
                    lambda watch: wait_for_tensors(loop, gate, each=False, watch=watch)
                ),
                "futures": lambda: both(lambda watch: wait_for_futures(loop, watch=watch)),
            },
            samples=options.count(5),
        )

    try:
        values = loop.run_until_complete(main())
    finally:
        dtorch.set_blocking_policy("warn")
        asyncio.set_event_loop(None)
        loop.close()
    return [
        *many_lines("a tensor each", values["each"], values["futures"]),
        *many_lines("one tensor", values["one"], values["futures"]),
    ]


async def measure_gather(options: Options) -> list[Line]:
    """dtorch.gather of 10,000 pending tensors: how many Tasks it makes, and the loop's time beside
    asyncio.gather of as many coroutines."""
    gate = Gate()
    await gate.fit()
    tasks_made: list[int] = []

    def tensors() -> list[Any]:
        row, _ = gate.row()
        return [row + float(k) for k in range(WAITERS)]

    async def ours() -> float:
        pending = tensors()

        async def wait() -> None:
            await dtorch.gather(*pending)

        task = asyncio.create_task(wait())
        before = len(asyncio.all_tasks())
        begin = time.thread_time()
        for _ in range(3):
            await asyncio.sleep(0)
        tasks_made.append(len(asyncio.all_tasks()) - before)
        if task.done():
            raise RuntimeError("the gate opened before gather waited")
        await task
        return (time.thread_time() - begin) / WAITERS

    async def theirs() -> float:
        async def wait(tensor: Any) -> None:
            await tensor

        pending = tensors()
        begin = time.thread_time()
        await asyncio.gather(*(wait(tensor) for tensor in pending))
        return (time.thread_time() - begin) / WAITERS

    values = await harness.interleave_many_async(
        {"dtorch": ours, "asyncio": theirs}, samples=options.count(5)
    )
    pair = harness.Pair(values["dtorch"], values["asyncio"])
    line = ratio_line(
        f"gather of {WAITERS:,}, loop time each", "us", 1e6, "asyncio.gather", pair, None
    )
    return [
        Line(
            name=f"dtorch.gather of {WAITERS:,}: Tasks made",
            unit="",
            ours=max(tasks_made),
            peer_name="asyncio.gather",
            peer=WAITERS,
            figure=f"{max(tasks_made)} Tasks",
            target="0 Tasks",
            met=max(tasks_made) == 0,
            repeats=len(tasks_made),
        ),
        line,
    ]
