"""dtorch.warmup: after it the first request starts nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import dtorch
import pytest

pytestmark = pytest.mark.notorch

Run = Callable[[Any], Any]


def output_of(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=50,
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


def test_awaited_and_again(run: Run) -> None:
    async def main() -> None:
        for _ in range(3):
            assert await dtorch.warmup() is True

    run(main())


def test_without_a_loop() -> None:
    assert dtorch.warmup().get(30) is True


def test_starts_threads_and_the_bridge_of_the_loop() -> None:
    code = """
import asyncio, os, dtorch, threading
from dtorch import _C
def threads(): return len(os.listdir("/proc/self/task"))
def eventfds():
    links = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
             if os.path.islink(f"/proc/self/fd/{n}")]
    return sum("eventfd" in link for link in links)
assert threads() == 1
async def main():
    await dtorch.warmup()
    before = threads(), eventfds()
    x = dtorch.ones(300, 300)
    await (x @ x)
    await _C._hold(x, 0.001)
    assert (threads(), eventfds()) == before, before
    assert before[0] >= 3
    print("ok", "torch" in __import__("sys").modules)
asyncio.run(main())
"""
    assert output_of(code) == ["ok", "False"]


def test_counts_no_failure_and_leaves_nothing_in_flight() -> None:
    code = """
import dtorch
from dtorch import _C
f = dtorch.warmup()
assert isinstance(f, dtorch.TensorFuture)
f.get()
stats = _C._sched_stats()
print(stats["failed"], stats["submitted"] > 0)
"""
    assert output_of(code) == ["0", "True"]
