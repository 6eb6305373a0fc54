"""dtorch.stats: what is counted, that it adds up, and histograms."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import dtorch
import pytest
from dtorch import _C, Histogram
from pending import failing, held, meanwhile, patient

pytestmark = pytest.mark.notorch

Run = Callable[[Any], Any]


def settle() -> None:
    """Waits until all tasks have ended, and counts from there."""
    assert _C._drain().get(30) is True
    deadline = time.monotonic() + 30
    while _C._sched_stats()["submitted"] != _C._sched_stats()["ended"]:
        assert time.monotonic() < deadline


@pytest.fixture(autouse=True)
def fresh() -> None:
    settle()
    dtorch.reset_stats()


def test_counts_start_at_nothing() -> None:
    s = dtorch.stats()
    assert s["ops"] == s["inlined"] == s["submitted"] == s["ended"] == s["deliveries"] == 0
    assert s["queue_ns"] == s["run_ns"] == s["batches"] == Histogram({}, 0)


def test_inline_ops() -> None:
    a = dtorch.tensor([1.0, 2.0])
    before = dtorch.stats()
    for _ in range(5):
        a + a  # the shortest way
    a.sum()  # dispatch
    a.view(2, 1)  # no kernel
    now = dtorch.stats()
    assert now["ops"] - before["ops"] == 7
    assert now["inlined"] - before["inlined"] == 6
    assert now["submitted"] == before["submitted"]


def test_tasks_add_up() -> None:
    x = dtorch.ones(300, 300)
    settle()
    dtorch.reset_stats()
    y = x @ x
    for _ in range(9):
        y = y @ x
    settle()  # one fence
    s = dtorch.stats()
    assert s["submitted"] == s["ended"] == 11
    assert s["failed"] == 0
    assert s["ops"] == 10 and s["inlined"] == 0
    assert s["queue_ns"].count == s["run_ns"].count == 10
    assert s["run_ns"].total > 10 * 1000
    assert 0 < s["runs"] <= 10 and s["direct"] <= 10


@patient
def test_passes() -> None:
    with meanwhile(0.1):
        x = held(0.1)
        y = ((x * 2 + 1) - x).relu()
    assert y.tolist() == [8.0] * 4
    settle()
    s = dtorch.stats()
    assert (s["passes"], s["fused"]) == (1, 4)
    assert s["run_ns"].count == 4


def test_failures() -> None:
    t = failing(0.001)
    with pytest.raises(RuntimeError):
        t.tolist()
    settle()
    assert dtorch.stats()["failed"] >= 1


def await_at_once(run: Run, count: int) -> None:
    """So many awaits of one tensor, completed while the loop's thread is elsewhere."""

    async def waiter(t: Any) -> None:
        await t

    async def main() -> None:
        dtorch.reset_stats()
        with meanwhile(0.1):
            t = held(0.1)
            waiting = [asyncio.ensure_future(waiter(t)) for _ in range(count)]
            await asyncio.sleep(0)
        before = dtorch.set_blocking_policy("allow")
        settle()
        dtorch.set_blocking_policy(before)
        await asyncio.gather(*waiting)

    run(main())


@patient
def test_deliveries(run: Run) -> None:
    await_at_once(run, 40)
    s = dtorch.stats()
    assert s["deliveries"] == 40
    assert s["loop_wakeups"] == s["batches"].count == 1 and s["batches"].total == 40
    assert s["controller_wakeups"] > 0


@patient
def test_many_deliveries_are_few_wakeups(run: Run) -> None:
    await_at_once(run, 1000)
    s = dtorch.stats()
    assert s["deliveries"] == s["batches"].total == 1000
    assert s["batches"].count >= 4 and max(s["batches"].buckets) == 512  # 256 at one time
    assert s["loop_wakeups"] <= s["batches"].count - 3


def test_reset_touches_nothing_else() -> None:
    raw = _C._counts()["fast"], _C._sched_stats()["submitted"]
    dtorch.ones(2) + 1
    dtorch.reset_stats()
    assert dtorch.stats()["ops"] == 0
    assert _C._counts()["fast"] > raw[0] and _C._sched_stats()["submitted"] == raw[1]


def test_histogram() -> None:
    h = Histogram({1: 2, 4: 4, 1024: 4}, 4000)
    assert h.count == 10
    assert h.mean == 400
    assert h.percentile(0) == 0
    assert h.percentile(20) == 1
    assert h.percentile(40) == 3  # half of the four between 2 and 4
    assert h.percentile(60) == 4
    assert h.percentile(100) == 1024
    assert Histogram({}, 0).percentile(50) == 0 and Histogram({}, 0).mean == 0
    assert repr(h) == "Histogram({1: 2, 4: 4, 1024: 4}, 4000)"
    assert h == Histogram({1: 2, 4: 4, 1024: 4}, 4000) != Histogram({}, 0)
    for wrong in (-1, 101, float("nan")):
        with pytest.raises(ValueError, match="percent must be within 0 and 100"):
            h.percentile(wrong)
