"""dtorch beside torch: the promises about speed, measured side by side in one process.

    python bench/run.py [--out build/bench.json] [--only NAME ...] [--quick]

Prints a table and writes the same as JSON. A ratio is torch's time over ours, so more is better;
each line says what is promised and whether it was met on this run. The exit status is 0 whether or
not targets are met, 1 when a measurement failed. report.py has the rules of a fair comparison;
compare.py measures the promises about the async engine.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import dtorch
import harness
import minilm
from report import (
    Line,
    Measurement,
    Options,
    measure_all,
    ratio_line,
    require_close,
    torch_pool,
    write_json,
)

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

SENTENCE = "This is an example sentence"  # 7 tokens
CHAIN_ADDS = 1000
AWAITS = 1000
PRODUCT_SAMPLES = 5000


# --- the measurements -----------------------------------------------------------------------------


def add_chain(start: Any, step: Any) -> float:
    """Seconds for one of 1,000 chained adds, the last result read."""
    total = start
    begin = time.perf_counter()
    for _ in range(CHAIN_ADDS):
        total = total + step
    total.tolist()
    return (time.perf_counter() - begin) / CHAIN_ADDS


async def measure_add(options: Options) -> list[Line]:
    """``c = c + b`` on 4 floats, 1,000 times in a chain, then the last result read.

    The number is the time of one add, with its share of the reading.
    """

    a, b = dtorch.tensor([1.0, 2.0, 3.0, 4.0]), dtorch.tensor([0.5, 0.25, 0.125, 1.0])

    async def ours() -> float:
        return add_chain(a, b)

    def torch_side(mode: Callable[[], Any]) -> Callable[[], Awaitable[float]]:
        with mode():
            x, y = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0.5, 0.25, 0.125, 1.0])

        async def theirs() -> float:
            with mode():
                return add_chain(x, y)

        return theirs

    lines = []
    for label, mode in (
        ("torch, inference mode", torch.inference_mode),
        ("torch", torch.enable_grad),
    ):
        pair = await harness.interleave_spans(
            ours, torch_side(mode), samples=options.count(200, 21), warm=5
        )
        lines.append(ratio_line("a + b, 4 floats, chained", "ns", 1e9, label, pair, 4.0))
    return lines


async def measure_await(options: Options) -> list[Line]:
    """``await`` of a ready tensor beside a done asyncio.Future: 1,000 awaits, unrolled by ten."""
    tensor = dtorch.tensor([1.0, 2.0, 3.0, 4.0])
    await tensor
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    future.set_result(1)

    async def awaits(one: Any) -> float:
        begin = time.perf_counter()
        for _ in range(AWAITS // 10):
            await one
            await one
            await one
            await one
            await one
            await one
            await one
            await one
            await one
            await one
        return (time.perf_counter() - begin) / AWAITS

    pair = await harness.interleave_spans(
        lambda: awaits(tensor), lambda: awaits(future), samples=options.count(500, 51), warm=20
    )
    line = ratio_line("await, ready", "ns", 1e9, "done asyncio.Future", pair, 1 / 1.1)
    line.target = "<= 1.1x time"
    line.figure = f"{1 / pair.ratio:.2f}x time"
    line.spread = "{1:.2f}..{0:.2f}".format(*(1 / ratio for ratio in pair.quartiles))
    return [line]


async def measure_product_latency(options: Options) -> list[Line]:
    """p50 and p99 of awaiting one 128x128 f32 product.

    Beside it ``await loop.run_in_executor(pool, torch.mm, a, b)``.
    """
    a, b = await dtorch.randn(128, 128), await dtorch.randn(128, 128)
    x, y = torch.tensor(a.tolist()), torch.tensor(b.tolist())
    require_close(await (a @ b), x @ y, 1e-3)
    loop = asyncio.get_running_loop()

    async def ours() -> Any:
        return await (a @ b)

    with torch_pool() as pool:

        async def theirs() -> Any:
            return await loop.run_in_executor(pool, torch.mm, x, y)

        calls = 50
        p50, p99 = harness.Pair(), harness.Pair()
        for _ in range(options.count(5, 1)):
            turns = options.count(PRODUCT_SAMPLES) // calls
            our_turns, their_turns = await harness.interleave(
                ours, theirs, turns=turns, calls=calls, primer=5
            )
            our_times = [sample for turn in our_turns for sample in turn]
            their_times = [sample for turn in their_turns for sample in turn]
            for pair, percent in ((p50, 50), (p99, 99)):
                pair.add(
                    harness.percentile(our_times, percent), harness.percentile(their_times, percent)
                )
    peer = "torch, run_in_executor"
    return [
        ratio_line("await a 128x128 product, p50", "us", 1e6, peer, p50, 1.2),
        ratio_line("await a 128x128 product, p99", "us", 1e6, peer, p99, 1.2),
    ]


async def measure_product(options: Options) -> list[Line]:
    """A 1024x1024 f32 product: awaited here, called in torch."""
    a, b = await dtorch.randn(1024, 1024), await dtorch.randn(1024, 1024)
    x, y = torch.tensor(a.tolist()), torch.tensor(b.tolist())
    require_close(await (a @ b), x @ y, 1e-2)

    async def ours() -> Any:
        return await (a @ b)

    async def theirs() -> Any:
        with torch.inference_mode():
            return torch.mm(x, y)

    turns = await harness.interleave(ours, theirs, turns=options.count(30), calls=5)
    return [ratio_line("1024x1024 product", "ms", 1e3, "torch", harness.medians(*turns), 0.9)]


async def measure_minilm(options: Options) -> list[Line]:
    """all-MiniLM-L6-v2 on 7 tokens: ``await`` of the vector beside torch's eager call."""
    files = minilm.find_model()
    ids = minilm.load_tokenizer(files.tokenizer).encode(SENTENCE).ids
    model = minilm.prepare(dtorch, await dtorch.load_safetensors(files.weights))
    words, _ = minilm.batch(dtorch, [ids])
    with torch.inference_mode():
        torch_model = minilm.prepare(torch, minilm.load_torch(files.weights))
        torch_words, _ = minilm.batch(torch, [ids])

    async def ours() -> Any:
        return await minilm.embed(dtorch, model, words)

    async def theirs() -> Any:
        with torch.inference_mode():
            return minilm.embed(torch, torch_model, torch_words)

    difference = require_close(await ours(), await theirs(), 1e-5)
    turns = await harness.interleave(ours, theirs, turns=options.count(40), calls=10, primer=3)
    pair = harness.medians(*turns)
    line = ratio_line("MiniLM, one 7-token sentence", "ms", 1e3, "torch", pair, 1.5)
    line.detail["difference_max"] = difference
    return [line]


async def measure_ticker(options: Options, loop_name: str) -> list[Line]:
    """The greatest gap of a 5 ms ticker while a product of about 1 s runs, above that of a run that
    only sleeps.

    The size is chosen from the time of a 1024x1024 product. torch in an executor thread is shown
    for comparison.
    """
    a = dtorch.randn(1024, 1024)
    await (a @ a)
    begin = time.perf_counter()
    await (a @ a)
    size = round(1024 * (1.0 / (time.perf_counter() - begin)) ** (1 / 3) / 64) * 64
    size = max(1024, min(size, 8192))
    a = dtorch.randn(size, size)
    await (a @ a)

    async def gap(work: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
        """Greatest gap and duration, both in seconds."""
        begin = time.perf_counter()
        async with harness.Ticker() as ticker:
            await work()
        return ticker.gap_max_s, time.perf_counter() - begin

    async def product() -> None:
        await (a @ a)

    rows: list[tuple[float, float]] = []  # ours, control
    torch_gaps: list[float] = []
    duration_s = 1.0
    loop = asyncio.get_running_loop()
    pool = torch_pool() if torch is not None else None
    x = torch.randn(size, size) if torch is not None else None
    if pool is not None:
        await loop.run_in_executor(pool, torch.mm, x, x)
    with harness.no_gc():
        for _ in range(options.count(5, 1)):
            await asyncio.sleep(0.05)
            ours, duration_s = await gap(product)
            await asyncio.sleep(0.05)
            control, _ = await gap(lambda: asyncio.sleep(duration_s))  # noqa: B023
            rows.append((ours, control))
            if pool is not None:
                await asyncio.sleep(0.05)
                torch_gaps.append(
                    (await gap(lambda: loop.run_in_executor(pool, torch.mm, x, x)))[0]
                )
    if pool is not None:
        pool.shutdown()
    above_ms = median(ours - control for ours, control in rows) * 1e3
    return [
        Line(
            name=f"greatest 5 ms ticker gap, {loop_name}",
            unit="ms",
            ours=median(ours for ours, _ in rows) * 1e3,
            peer_name="no dtorch",
            peer=median(control for _, control in rows) * 1e3,
            figure=f"{above_ms:+.2f} ms",
            target="<= +10 ms",
            met=above_ms <= 10,
            repeats=len(rows),
            detail={
                "gaps_ms": [[ours * 1e3, control * 1e3] for ours, control in rows],
                "torch_executor_gaps_ms": [gap_s * 1e3 for gap_s in torch_gaps],
                "product_size": size,
                "product_s": duration_s,
            },
        )
    ]


async def measure_jax(options: Options) -> list[Line]:
    """The chained add and the 1024x1024 product beside JAX, for information.

    The add is JAX's op-by-op dispatch, as in the line about torch. JAX sizes its own thread pool.
    """
    jax = importlib.import_module("jax")
    start, step = [1.0, 2.0, 3.0, 4.0], [0.5, 0.25, 0.125, 1.0]
    a, b = dtorch.tensor(start), dtorch.tensor(step)
    x, y = jax.numpy.asarray(start), jax.numpy.asarray(step)

    async def ours() -> float:
        return add_chain(a, b)

    async def theirs() -> float:
        return add_chain(x, y)

    pair = await harness.interleave_spans(ours, theirs, samples=options.count(50, 11))
    lines = [ratio_line("a + b, 4 floats, chained", "ns", 1e9, "JAX", pair, None)]

    m = await dtorch.randn(1024, 1024)
    n = jax.numpy.asarray(m.tolist())

    async def our_product() -> Any:
        return await (m @ m)

    async def their_product() -> Any:
        return (n @ n).block_until_ready()

    turns = await harness.interleave(our_product, their_product, turns=options.count(30), calls=5)
    pair = harness.medians(*turns)
    lines.append(ratio_line("1024x1024 product", "ms", 1e3, "JAX", pair, None))
    return lines


async def measure_import(options: Options) -> list[Line]:
    """``import dtorch`` in a fresh interpreter, files cached; torch must not have come with it."""
    code = (
        "import sys, time; begin = time.perf_counter(); import dtorch; "
        "print(time.perf_counter() - begin, 'torch' in sys.modules)"
    )
    times: list[float] = []
    torch_came = False
    for index in range(options.count(9) + 1):
        done = subprocess.run(  # noqa: ASYNC221 - nothing else is on this loop
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
        )
        seconds, came = done.stdout.split()
        torch_came = torch_came or came == "True"
        if index:  # the first run fills the page cache
            times.append(float(seconds))
    middle = median(times)
    return [
        Line(
            name="import dtorch",
            unit="ms",
            ours=middle * 1e3,
            peer_name="",
            peer=None,
            figure=f"{middle:.3f} s" + (", torch imported" if torch_came else ""),
            target="< 0.2 s",
            met=middle < 0.2 and not torch_came,
            repeats=len(times),
            detail={"max_ms": max(times) * 1e3, "torch_imported": torch_came},
        )
    ]


# A measurement for which a file is missing says so with FileNotFoundError.
MEASUREMENTS: dict[str, Measurement] = {
    "add": Measurement(measure_add, needs=("torch",)),
    "await": Measurement(measure_await),
    "product-latency": Measurement(measure_product_latency, needs=("torch",)),
    "product": Measurement(measure_product, needs=("torch",)),
    "minilm": Measurement(measure_minilm, needs=("torch",)),
    "ticker-asyncio": Measurement(lambda options: measure_ticker(options, "asyncio")),
    "ticker-uvloop": Measurement(lambda options: measure_ticker(options, "uvloop"), "uvloop"),
    "import": Measurement(measure_import),
    "jax": Measurement(measure_jax, needs=("jax",)),  # last: its threads stay
}


def main() -> int:
    """Measure, print, write. 0, or 1 when a measurement raised."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=Path("build/bench.json"), help="JSON file to write"
    )
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, help="measure these alone")
    parser.add_argument("--quick", action="store_true", help="about a tenth of the samples")
    arguments = parser.parse_args()
    report = measure_all(
        MEASUREMENTS, arguments.only or MEASUREMENTS, Options(quick=arguments.quick)
    )
    write_json(report, arguments.out)
    return 1 if report["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
