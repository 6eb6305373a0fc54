"""Sentence embeddings, awaited: every sentence is a coroutine that awaits its own vector.

    python examples/embed.py [--file sentences.txt] [--concurrency 16] [--rounds 3]
                             [--loop asyncio|uvloop] [--no-torch] [--trace trace.json]

The model is all-MiniLM-L6-v2. Its weights come through dtorch's own asynchronous reader; each
request tokenizes one sentence, calls the model and awaits the result. The same requests then go
through torch in the way in which asyncio programs use it today, ``await loop.run_in_executor(pool,
...)``, in turns with dtorch's rounds.

Both sides have the same number of threads, the same limit on requests in flight and the same
tokenizer. For torch two layouts of its threads are tried first (one call at a time on all threads,
or as many calls as threads on one thread each), and the better one is kept. Latency runs from the
moment when a request is let in (its tokens not yet known) to its vector; the gap is the greatest
time between two ticks of a 5 ms ticker on the same event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import dtorch
import minilm
from tqdm import tqdm

TICK_S = 0.005
Embed = Callable[[str], Awaitable[Any]]  # a sentence -> its vector [1, 384]


@dataclass
class Side:
    """What one library has shown so far. Times are in seconds."""

    name: str
    embed: Embed
    latencies: list[float] = field(default_factory=list)  # of each request
    rates: list[float] = field(default_factory=list)  # requests per second, by round
    gaps: list[float] = field(default_factory=list)  # greatest ticker gap, by round
    vectors: list[Any] = field(default_factory=list)  # of the latest round


async def ticker(gaps: list[float]) -> None:
    """Append the time between two wake-ups of a 5 ms sleep, until cancelled."""
    last = time.perf_counter()
    while True:
        await asyncio.sleep(TICK_S)
        now = time.perf_counter()
        gaps.append(now - last)
        last = now


async def run_round(
    side: Side, sentences: Sequence[str], concurrency: int, bar: tqdm[Any], keep: bool = True
) -> float:
    """All sentences, a coroutine for each, at most ``concurrency`` inside; requests/s."""
    slots = asyncio.Semaphore(concurrency)
    latencies: list[float] = []

    async def request(sentence: str) -> Any:
        async with slots:
            begin = time.perf_counter()
            vector = await side.embed(sentence)
            latencies.append(time.perf_counter() - begin)
        bar.update()
        return vector

    gaps: list[float] = []
    ticking = asyncio.create_task(ticker(gaps))
    begin = time.perf_counter()
    vectors = await asyncio.gather(*map(request, sentences))
    seconds = time.perf_counter() - begin
    await asyncio.sleep(2 * TICK_S)  # a hold-up at the very end is seen by the next tick
    ticking.cancel()
    rate = len(sentences) / seconds
    if keep:
        side.latencies += latencies
        side.rates.append(rate)
        side.gaps.append(max(gaps))
        side.vectors = vectors
    return rate


async def dtorch_side(files: minilm.ModelFiles, tokenizer: Any) -> Side:
    """Load the weights through the runtime, then embed by awaiting tensors."""
    begin = time.perf_counter()
    tensors = await dtorch.load_safetensors(files.weights)
    seconds = time.perf_counter() - begin
    size_mb = files.weights.stat().st_size / 1e6
    print(f"weights: {len(tensors)} tensors, {size_mb:.1f} MB, read in {seconds * 1e3:.0f} ms")
    model = minilm.prepare(dtorch, tensors)

    async def embed(sentence: str) -> Any:
        ids, mask = minilm.batch(dtorch, [tokenizer.encode(sentence).ids])
        return await minilm.embed(dtorch, model, ids, mask)

    return Side("dtorch, await", embed)


def torch_side(
    torch: Any, model: minilm.Model, tokenizer: Any, workers: int, threads: int
) -> tuple[Side, ThreadPoolExecutor]:
    """torch in ``workers`` executor threads, each of which computes on ``threads`` threads."""
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads,))

    def compute(ids: list[int]) -> Any:
        with torch.inference_mode():
            return minilm.embed(torch, model, *minilm.batch(torch, [ids]))

    async def embed(sentence: str) -> Any:
        ids = tokenizer.encode(sentence).ids
        return await asyncio.get_running_loop().run_in_executor(pool, compute, ids)

    return Side(f"torch, executor {workers} x {threads}", embed), pool


async def best_torch_side(
    torch: Any, files: minilm.ModelFiles, tokenizer: Any, sentences: Sequence[str], concurrency: int
) -> tuple[Side, ThreadPoolExecutor]:
    """The faster of torch's two thread layouts, found by a trial with a part of the sentences."""
    model = minilm.prepare(torch, minilm.load_torch(files.weights))
    total = dtorch.get_num_threads()
    best: tuple[float, Side, ThreadPoolExecutor] | None = None
    for workers, threads in sorted({(1, total), (total, 1)}):
        side, pool = torch_side(torch, model, tokenizer, workers, threads)
        rate = 0.0
        for _ in range(2):  # the first run warms the pool
            rate = await run_round(side, sentences[:64], concurrency, tqdm(disable=True), False)
        if best is None or rate > best[0]:
            if best is not None:
                best[2].shutdown()
            best = rate, side, pool
        else:
            pool.shutdown()
    assert best is not None
    return best[1], best[2]


def percentile(samples: Sequence[float], percent: int) -> float:
    """The smallest sample that at least ``percent`` of the samples do not exceed."""
    ordered = sorted(samples)
    return ordered[max(1, -(-len(ordered) * percent // 100)) - 1]


def print_table(sides: Sequence[Side]) -> None:
    """One line for each side; with two, a line of ratios, above 1 where dtorch is better."""
    width = max(len(side.name) for side in sides) + 2
    head = ("requests/s", "p50", "p99", "greatest gap")
    print(f"\n{'':{width}}" + "".join(f"{name:>16}" for name in head))
    numbers = [
        (
            median(side.rates),
            percentile(side.latencies, 50) * 1e3,
            percentile(side.latencies, 99) * 1e3,
            max(side.gaps) * 1e3,
        )
        for side in sides
    ]
    for side, (rate, p50, p99, gap) in zip(sides, numbers, strict=True):
        print(f"{side.name:{width}}{rate:16.1f}{p50:13.2f} ms{p99:13.2f} ms{gap:13.2f} ms")
    if len(sides) == 2:
        (rate, *times), (their_rate, *their_times) = numbers
        ratios = [rate / their_rate]
        ratios += [theirs / ours for ours, theirs in zip(times, their_times, strict=True)]
        print(f"{'dtorch is better by':{width}}" + "".join(f"{ratio:15.2f}x" for ratio in ratios))


async def print_neighbours(sentences: Sequence[str], vectors: Sequence[Any], show: int) -> None:
    """For ``show`` sentences, spread over the file, the two nearest others and their cosines."""
    matrix = dtorch.cat(list(vectors))  # [N, 384], rows of unit length: products are cosines
    count = len(sentences)
    chosen = [index * count // show for index in range(min(show, count))]
    near = await (dtorch.cat([vectors[index] for index in chosen]) @ matrix.t())
    for index, cosines in zip(chosen, near.tolist(), strict=True):
        print(f"\n{sentences[index]}")
        others = sorted(
            (other for other in range(count) if other != index), key=lambda i: -cosines[i]
        )
        for other in others[:2]:
            print(f"  {cosines[other]:7.4f}  {sentences[other]}")


async def demo(
    arguments: argparse.Namespace, files: minilm.ModelFiles, sentences: list[str], torch: Any
) -> None:
    """Load, run the rounds in turns, print."""
    tokenizer = minilm.load_tokenizer(files.tokenizer)
    concurrency = arguments.concurrency
    sides = [await dtorch_side(files, tokenizer)]
    pool = None
    if torch is not None:
        theirs, pool = await best_torch_side(torch, files, tokenizer, sentences, concurrency)
        sides.append(theirs)
    print(
        f"requests: {len(sentences)} sentences x {arguments.rounds} rounds, "
        f"{concurrency} in flight, {dtorch.get_num_threads()} threads, {arguments.loop}"
    )

    total = len(sentences) * len(sides) * (arguments.rounds + 1)
    with tqdm(total=total, unit="req", leave=False, disable=not sys.stderr.isatty()) as bar:
        for turn in range(arguments.rounds + 1):
            for side in sides if turn % 2 else reversed(sides):
                # turn 0 warms up and does not count
                await run_round(side, sentences, concurrency, bar, keep=turn > 0)
                await asyncio.sleep(0.02)  # let threads that spin after their work go to sleep
    if pool is not None:
        pool.shutdown()
    if arguments.trace is not None:
        async with dtorch.profile(arguments.trace):  # one round more, which does not count
            await run_round(sides[0], sentences, concurrency, tqdm(disable=True), keep=False)
        print(f"trace: {arguments.trace} (opens in https://ui.perfetto.dev)")

    await print_neighbours(sentences, sides[0].vectors, arguments.neighbours)
    print_table(sides)
    if len(sides) == 2:
        pairs = zip(sides[0].vectors, sides[1].vectors, strict=True)
        differences = (
            abs(a - b)
            for ours, theirs in pairs
            for a, b in zip(ours.tolist()[0], theirs.tolist()[0], strict=True)
        )
        print(f"\ngreatest difference between the two sides' vectors: {max(differences):.1e}")


def positive(text: str) -> int:
    """An integer of at least 1, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--file",
        type=Path,
        default=Path(__file__).with_name("sentences.txt"),
        help="a text file with one sentence on each line (default: %(default)s)",
    )
    parser.add_argument("--concurrency", type=positive, default=16, help="requests in flight (16)")
    parser.add_argument("--rounds", type=positive, default=3, help="timed rounds of each side (3)")
    parser.add_argument("--neighbours", type=positive, default=8, help="sentences to print (8)")
    parser.add_argument("--no-torch", action="store_true", help="run dtorch alone")
    parser.add_argument("--trace", type=Path, help="write a profile of one more round here")
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    return parser.parse_args()


def main() -> int:
    """0, or 1 with one line on stderr when the model or the sentences are missing."""
    arguments = parse_arguments()
    torch: Any = None
    if not arguments.no_torch:
        try:
            torch = importlib.import_module("torch")
        except ImportError:
            print("torch is not installed: showing dtorch alone")
    run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run
    try:
        if arguments.loop == "uvloop":
            import uvloop

            run = uvloop.run
        sentences = minilm.read_sentences(arguments.file)
        files = minilm.find_model()
    except (OSError, ValueError, ImportError) as error:
        print(f"embed.py: {error}", file=sys.stderr)
        return 1
    run(demo(arguments, files, sentences, torch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
