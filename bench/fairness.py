"""What ``while True: await ready_tensor`` does to the rest of the loop: the gaps of a 5 ms ticker.

    python bench/fairness.py [--loop asyncio|uvloop] [--seconds 1] [--samples 5]

Runs of two kinds alternate: a coroutine that awaits a ready tensor for ever beside a ticker, and
the same ticker in a loop without dtorch whose other coroutine works for 500 us and sleeps for 0,
again and again (``busy``), or is not there at all (``idle``). Prints the greatest gap of each run,
and how far the median of ours lies above that of the others: the promise is at most 5 ms above.

On a machine that others use too, whoever computes is held up by them, and idle is not. Hence also
the greatest CPU time of the loop's thread between two turns of the loop, which is ours alone.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from statistics import median

import dtorch
import harness

PROMISED_ABOVE_S = 0.005
STEP_S = 500e-6


async def spin(awaits: list[int]) -> None:
    """The coroutine of the promise."""
    t = dtorch.ones(4)
    count = 0
    try:
        while True:
            await t
            count += 1
    finally:
        awaits.append(count)


async def busy() -> None:
    """Work in steps with a polite sleep after each: what fair code without dtorch looks like."""
    while True:
        end = time.perf_counter() + STEP_S
        while time.perf_counter() < end:
            pass
        await asyncio.sleep(0)


async def gap_beside(make: Callable[[], Awaitable[None] | None], seconds: float) -> float:
    """The ticker's greatest gap in seconds while what ``make`` gives runs."""
    other = make()
    async with harness.Ticker(0.005) as ticker:
        task = asyncio.ensure_future(other) if other is not None else None
        await asyncio.sleep(seconds)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
    return ticker.gap_max_s


async def cpu_between_turns(seconds: float) -> float:
    """The greatest CPU time, in seconds, that a spinning coroutine uses up between two turns."""
    loop = asyncio.get_running_loop()
    greatest = 0.0
    last = time.thread_time()

    def turn() -> None:
        nonlocal greatest, last
        now = time.thread_time()
        greatest = max(greatest, now - last)
        last = now
        loop.call_soon(turn)

    loop.call_soon(turn)
    task = asyncio.ensure_future(spin([]))
    await asyncio.sleep(seconds)
    task.cancel()
    return greatest


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--samples", type=int, default=5)
    options = parser.parse_args()
    awaits: list[int] = []
    sides: dict[str, Callable[[], Awaitable[None] | None]] = {
        "dtorch": lambda: spin(awaits),
        "busy": busy,
        "idle": lambda: None,
    }
    gaps: dict[str, list[float]] = {name: [] for name in sides}
    with harness.no_gc():
        for sample in range(options.samples):
            names = list(sides) if sample % 2 == 0 else list(sides)[::-1]
            for name in names:
                measure = partial(gap_beside, sides[name], options.seconds)
                gaps[name].append(harness.run_on(options.loop, measure))
    print(
        f"{options.loop}, {options.samples} runs of {options.seconds:g} s each; greatest gaps, ms"
    )
    for name, found in gaps.items():
        each = " ".join(f"{1e3 * gap:6.2f}" for gap in found)
        print(f"  {name:8} median {1e3 * median(found):6.2f}   runs {each}")
    print(f"  {median(awaits) / options.seconds / 1e6:.1f} million ready awaits a second meanwhile")
    cpu = harness.run_on(options.loop, partial(cpu_between_turns, options.seconds))
    print(f"  {1e3 * cpu:.2f} ms of CPU time at most between two turns of the loop")
    for name in ("busy", "idle"):
        above = median(gaps["dtorch"]) - median(gaps[name])
        verdict = "met" if above <= PROMISED_ABOVE_S else "NOT met"
        print(f"  {1e3 * above:+.2f} ms against {name} (promised: at most +5): {verdict}")


if __name__ == "__main__":
    main()
