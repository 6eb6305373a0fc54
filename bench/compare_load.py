"""compare.py's measurements under load: the latency of an await, and requests a second."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import dtorch
import harness
from report import Line, Options, ratio_line, require_close, torch_pool

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

LATENCIES_US = (10, 100, 1000)
OTHERS = (0, 64)
CALLS_MAX = 5000
CALLS_MIN = 20
COROUTINES = 64
WIDTH, ROWS = 256, 16

Call = Callable[[], Awaitable[Any]]


def default_workers() -> int:
    """How many threads asyncio's own default executor has."""
    return min(32, (os.cpu_count() or 1) + 4)


@contextmanager
def torch_threads(many: bool) -> Iterator[ThreadPoolExecutor]:
    """The executors of both peers: what run_in_executor is given, and asyncio.to_thread's.

    One call at a time: a thread with the whole team. Many: as many threads as dtorch has workers,
    with a team of one each. to_thread always has as many threads as asyncio would give it.
    """
    threads = dtorch.get_num_threads()
    loop = asyncio.get_running_loop()
    team = 1 if many else threads
    default = torch_pool(default_workers(), team)
    loop.set_default_executor(default)
    with torch_pool(threads if many else 1, team) as pool:
        yield pool
    default.shutdown()


def fit_size(target_us: float) -> int:
    """The n, a multiple of 8, for which torch.mm of n x n takes about that on one thread here."""

    def best_us(n: int) -> float:
        x = torch.randn(n, n)
        times = []
        for _ in range(30):
            begin = time.perf_counter()
            torch.mm(x, x)
            times.append(time.perf_counter() - begin)
        return min(times) * 1e6

    n = 128
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            for _ in range(4):
                n = min(2048, max(16, round(n * (target_us / best_us(n)) ** (1 / 3) / 8) * 8))
    finally:
        torch.set_num_threads(before)
    return n


async def probe(call: Call, others: int, seconds: float) -> list[float]:
    """The times of one coroutine's awaits while ``others`` more do the same without a pause.

    All go once around the loop after each call, untimed: where a call ends without suspending, the
    coroutines would otherwise not take turns.
    """
    running = True

    async def busy() -> None:
        while running:
            await call()
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(busy()) for _ in range(others)]
    await call()
    clock = time.perf_counter
    times: list[float] = []
    end = clock() + seconds
    while len(times) < CALLS_MAX and (clock() < end or len(times) < CALLS_MIN):
        begin = clock()
        await call()
        times.append(clock() - begin)
        await asyncio.sleep(0)
    running = False
    await asyncio.gather(*tasks)
    return times


async def measure_latency(options: Options) -> list[Line]:
    """p50 and p99 of awaiting one product of about 10 us, 100 us and 1 ms, alone on the loop and
    beside 64 coroutines that do the same.

    A repeat is some hundred milliseconds of one side; its percentiles are compared. The sizes are
    chosen by torch's time on this machine. What dtorch estimates below 5 us runs inline.
    """
    loop = asyncio.get_running_loop()
    lines: list[Line] = []
    for target_us in LATENCIES_US:
        size = fit_size(target_us)
        a, b = await dtorch.randn(size, size), await dtorch.randn(size, size)
        x, y = torch.tensor(a.tolist()), torch.tensor(b.tolist())
        require_close(await (a @ b), x @ y, 1e-2)

        async def ours(a: Any = a, b: Any = b) -> Any:
            return await (a @ b)

        for others in OTHERS:
            with torch_threads(many=others > 0) as pool:

                async def executor(x: Any = x, y: Any = y, pool: Any = pool) -> Any:
                    return await loop.run_in_executor(pool, torch.mm, x, y)

                async def to_thread(x: Any = x, y: Any = y) -> Any:
                    return await asyncio.to_thread(torch.mm, x, y)

                seconds = 0.1 if options.quick else 0.5

                def side(call: Call, others: int = others, seconds: float = seconds) -> Call:
                    return lambda: probe(call, others, seconds)

                values = await harness.interleave_many_async(
                    {"dtorch": side(ours), "executor": side(executor), "thread": side(to_thread)},
                    samples=options.count(6),
                )
            lines += latency_lines(target_us, size, others, values)
    return lines


def latency_lines(
    target_us: int, size: int, others: int, values: dict[str, list[list[float]]]
) -> list[Line]:
    """Both percentiles beside both peers."""
    lines = []
    beside = f"beside {others}" if others else "alone"
    for percent in (50, 99):
        numbers = {
            name: [harness.percentile(times, percent) for times in turns]
            for name, turns in values.items()
        }
        for key, peer in (("executor", "torch, run_in_executor"), ("thread", "torch, to_thread")):
            line = ratio_line(
                f"await {target_us} us, {beside}, p{percent}",
                "us",
                1e6,
                peer,
                harness.Pair(numbers["dtorch"], numbers[key]),
                None,
            )
            line.detail |= {
                "size": size,
                "calls": {name: [len(times) for times in turns] for name, turns in values.items()},
                "plot": {
                    "kind": "latency",
                    "about_us": target_us,
                    "others": others,
                    "percent": percent,
                    "peer": peer,
                },
            }
            lines.append(line)
    return lines


def request(x: Any, w: Any, bias: Any) -> Any:
    """What a small service does for a request: some element-wise ops around one product."""
    h = (x * 2 + 1).relu()
    h = (h @ w + bias).relu()
    return (h * h).sum()


async def requests_each(one: Call, seconds: float) -> float:
    """Seconds for one request while 64 coroutines make them one after the other.

    A coroutine goes once around the loop after each, as one that had to read and write would.
    """
    made = 0
    end = time.perf_counter() + seconds

    async def client() -> None:
        nonlocal made
        while time.perf_counter() < end:
            await one()
            made += 1
            await asyncio.sleep(0)

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(COROUTINES)))
    return (time.perf_counter() - begin) / made


async def measure_throughput(options: Options) -> list[Line]:
    """Requests a second of 64 coroutines: element-wise ops, a 16x256 by 256x256 product, a sum."""
    loop = asyncio.get_running_loop()
    x, w, bias = (
        await dtorch.randn(ROWS, WIDTH),
        await (dtorch.randn(WIDTH, WIDTH) / WIDTH**0.5),
        await dtorch.randn(WIDTH),
    )
    u, v, c = (torch.tensor(t.tolist()) for t in (x, w, bias))
    wanted = request(u, v, c)
    require_close(await request(x, w, bias), wanted, 1e-4 * float(wanted))

    async def ours() -> Any:
        return await request(x, w, bias)

    def in_torch() -> Any:
        with torch.inference_mode():
            return request(u, v, c)

    async def inline() -> Any:
        return in_torch()

    with torch_threads(many=True) as pool:

        async def executor() -> Any:
            return await loop.run_in_executor(pool, in_torch)

        async def to_thread() -> Any:
            return await asyncio.to_thread(in_torch)

        seconds = 0.1 if options.quick else 0.5

        def side(call: Call) -> Callable[[], Awaitable[float]]:
            return lambda: requests_each(call, seconds)

        peers = {
            "torch, run_in_executor": executor,
            "torch, to_thread": to_thread,
            "torch on the loop's thread": inline,
        }
        values = await harness.interleave_many_async(
            {"dtorch": side(ours), **{name: side(call) for name, call in peers.items()}},
            samples=options.count(9),
            warm=1,
        )
    lines = []
    for peer in peers:
        pair = harness.Pair(values["dtorch"], values[peer])
        line = ratio_line(
            f"requests of {COROUTINES} coroutines, time each", "us", 1e6, peer, pair, None
        )
        line.detail["plot"] = {"kind": "throughput", "peer": peer}
        lines.append(line)
    return lines
