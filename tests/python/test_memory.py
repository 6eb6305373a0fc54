"""Memory: what is counted, what is reused, how far the client runs ahead, and what a limit does."""

from __future__ import annotations

import asyncio
import gc
import resource
from collections.abc import Callable, Iterator
from typing import Any

import dtorch
import pytest
from dtorch import _C
from pending import held, hold, meanwhile, patient

pytestmark = pytest.mark.notorch

Run = Callable[[Any], Any]
MIB = 1 << 20


@pytest.fixture(autouse=True)
def no_limit_is_left() -> Iterator[None]:
    yield
    dtorch.set_memory_limit(0)


def live() -> int:
    gc.collect()
    assert _C._drain().get(30) is True
    return int(dtorch.memory_stats()["live_bytes"])


def mib(n: float) -> Any:
    """n MiB of ones."""
    t = dtorch.ones(int(n * MIB) // 4)
    assert t[0].item() == 1
    return t


def test_stats_count_what_is_alive() -> None:
    before = live()
    t = mib(8)
    stats = dtorch.memory_stats()
    assert stats["live_bytes"] == before + 8 * MIB
    assert stats["devices"]["cpu"]["live_bytes"] == stats["live_bytes"]
    dtorch.reset_peak_memory()
    u = mib(4)
    del u
    stats = dtorch.memory_stats()
    assert stats["peak_bytes"] == before + 12 * MIB
    assert stats["devices"]["cpu"]["peak_bytes"] == stats["peak_bytes"]
    assert t[0].item() == 1
    del t
    assert live() == before


def test_what_is_freed_is_cached_until_the_cache_is_emptied() -> None:
    t = mib(32)
    del t
    assert live() >= 0
    assert dtorch.memory_stats()["cached_bytes"] >= 32 * MIB
    dtorch.empty_cache()
    assert dtorch.memory_stats()["cached_bytes"] == 0


@patient
def test_intermediates_of_a_chain_take_no_memory() -> None:
    x, before = mib(8), live()
    dtorch.reset_peak_memory()
    with meanwhile(0.05):
        y = hold(x, 0.05)
        for _ in range(9):
            y = y * 2 + 1
    assert y[0].item() == 2.0**9 + 2.0**9 - 1
    assert dtorch.memory_stats()["peak_bytes"] <= before + 9 * MIB


def test_running_ahead_is_bounded() -> None:
    y = mib(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(10_000):
        y = y + 1
    assert y[-1].item() == 10_001
    growth_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert growth_kib <= 64 * 1024


def test_tasks_wait_for_memory_that_others_free(run: Run) -> None:
    x = mib(4)
    dtorch.set_memory_limit(live() + 13 * MIB)  # three more at a time

    async def one(i: int) -> float:
        a = (x * i).reshape(1024, 1024)
        b = a.t().contiguous()  # does not fuse: two of them at least
        return float((await b.sum()).item())

    async def main() -> list[float]:
        return await asyncio.gather(*(one(i) for i in range(40)))

    assert run(main()) == [float(i) * MIB for i in range(40)]


def test_small_ops_wait_too() -> None:
    x = dtorch.ones(1000)
    big = [mib(1) for _ in range(3)]
    gate = held(0.05)
    dtorch.set_memory_limit(live() + 1000)
    waiting = gate.sum() + big[0]  # frees nothing, but may
    y = x + 1  # no room inline, while something is in flight
    with pytest.raises(dtorch.OutOfMemoryError):
        y.sum().item()
    with pytest.raises(dtorch.OutOfMemoryError):
        waiting[0].item()
    dtorch.set_memory_limit(0)
    assert (x + 1).sum().item() == 2000


def test_what_can_never_fit_fails_at_the_await_and_nothing_else_does(run: Run) -> None:
    x = mib(4)
    dtorch.set_memory_limit(live() + 9 * MIB)

    async def main() -> None:
        good = [x + i for i in range(2)]
        bad = dtorch.ones(64 * MIB // 4) + 1
        worse = bad * 2
        for t in (bad, worse):
            with pytest.raises(dtorch.OutOfMemoryError, match="limit") as caught:
                await t
            assert isinstance(caught.value, MemoryError)
        assert [float((await t.sum()).item()) for t in good] == [MIB * 1.0, MIB * 2.0]
        del good
        assert (await (x * 3))[5].item() == 3

    run(main())


def test_an_in_place_op_needs_none() -> None:
    x = mib(4)
    dtorch.set_memory_limit(live() + 1)
    x.mul_(2).add_(1)
    assert x[0].item() == 3


@pytest.mark.parametrize("bad", [-1, 1.5, "1", None])
def test_a_limit_is_a_number_of_bytes(bad: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        dtorch.set_memory_limit(bad)
