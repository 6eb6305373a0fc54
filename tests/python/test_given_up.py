"""What nobody can see is not computed; what nobody waits for any more is put aside."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import dtorch
import pytest
from dtorch import _C
from pending import held, meanwhile, patient

pytestmark = pytest.mark.notorch

Run = Callable[[Any], Any]


def stats() -> dict[str, int]:
    gc.collect()
    assert _C._drain().get(30) is True
    return dict(_C._sched_stats())


async def until(count: str, more: int, before: dict[str, int]) -> dict[str, int]:
    """The counts, once this one has grown by so many."""
    while (now := dict(_C._sched_stats()))[count] - before[count] < more:
        await asyncio.sleep(0.001)
    return now


def chain(x: Any, n: int) -> Any:
    """n products one after the other: nothing that fuses."""
    w = dtorch.eye(4)
    for _ in range(n):
        x = x @ w
    return x


@patient
def test_a_discarded_chain_is_not_computed() -> None:
    before = stats()
    with meanwhile(0.05):
        x = held(0.05).reshape(1, 4)
        y = chain(x, 50)
        del y
    after = stats()
    assert after["dropped"] - before["dropped"] == 50
    assert x.tolist() == [[7.0] * 4]


@patient
def test_what_is_still_seen_is_computed() -> None:
    before = stats()
    with meanwhile(0.05):
        x = held(0.05).reshape(1, 4)
        a = chain(x, 10)
        b = chain(a, 10)
        c = a + 1
        del b, a
    assert c.tolist() == [[8.0] * 4]
    assert stats()["dropped"] - before["dropped"] == 10


def test_a_view_keeps_it() -> None:
    x = held(0.05).reshape(1, 4)
    y = chain(x, 5)
    view = y[0, 1:]
    del y
    assert view.tolist() == [7.0] * 3


def test_writes_in_place_to_what_is_seen_are_computed() -> None:
    x = held(0.05)
    y = dtorch.ones(4)
    y.mul_(x)
    y.add_(1)
    alias = y[1:]
    del y
    assert alias.tolist() == [8.0] * 3


@patient
def test_a_cancelled_await_parks_until_somebody_asks(run: Run) -> None:
    async def main() -> None:
        before = dict(_C._sched_stats())
        with meanwhile(0.1):
            x = held(0.1).reshape(1, 4)
            y = chain(x, 30)
            task = asyncio.ensure_future(asyncio.wait_for(y, None))
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        parked = await until("parked", 30, before)
        assert parked["ended"] - before["ended"] < 10
        assert (await y).tolist() == [[7.0] * 4]
        assert parked["dropped"] == before["dropped"]

    run(main())


@patient
def test_another_waiter_keeps_it_going(run: Run) -> None:
    async def main() -> None:
        async def wait(t: Any) -> Any:
            return await t

        with meanwhile(0.1):
            x = held(0.1).reshape(1, 4)
            mid = chain(x, 10)
            end = chain(mid, 10)
            a, b = asyncio.ensure_future(wait(end)), asyncio.ensure_future(wait(mid))
            await asyncio.sleep(0.02)
            a.cancel()
        assert (await b).tolist() == [[7.0] * 4]
        assert (await end).tolist() == [[7.0] * 4]

    run(main())


@pytest.mark.parametrize(
    "ask",
    [
        lambda y: y.tolist(),
        lambda y: y.sum().item(),
        lambda y: y.to_torch_async().done() or y.tolist(),
        lambda y: _C._drain().get(50) and y.tolist(),
        lambda y: (y + 1).tolist(),
        lambda y: y.cpu().tolist(),
    ],
)
@patient
def test_every_way_of_asking_ends_the_parking(run: Run, ask: Callable[[Any], Any]) -> None:
    async def main() -> Any:
        async def wait() -> None:
            await y

        before = dict(_C._sched_stats())
        with meanwhile(0.05):
            y = chain(held(0.05).reshape(1, 4), 30)
            task = asyncio.ensure_future(wait())
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await until("parked", 30, before)
        return y

    y = run(main())
    ask(y)
    assert y.tolist() == [[7.0] * 4]


@patient
def test_gather_and_futures_too(run: Run) -> None:
    async def main() -> None:
        before = dict(_C._sched_stats())

        async def wait() -> None:
            await dtorch.gather(a, b)

        with meanwhile(0.1):
            a, b = (chain(held(0.1).reshape(1, 4), 10) for _ in range(2))
            task = asyncio.ensure_future(wait())
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await until("parked", 20, before)
        assert [t.tolist() for t in await dtorch.gather(a, b)] == [[[7.0] * 4]] * 2

        future = _C._drain  # another way to wait, which parks nothing by being cancelled
        assert future().cancel() in (True, False)

    run(main())


@patient
def test_cancelling_drops_what_the_coroutine_held(run: Run) -> None:
    async def main() -> None:
        before = dict(_C._sched_stats())

        async def work() -> Any:
            return await chain(held(0.2).reshape(1, 4), 30)

        with meanwhile(0.2):
            task = asyncio.ensure_future(work())
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            del task
            gc.collect()
        after = await until("dropped", 30, before)
        assert after["dropped"] - before["dropped"] == 30

    run(main())


def test_the_failure_of_one_in_gather_does_not_stop_the_others(run: Run) -> None:
    async def main() -> None:
        good = chain(held(0.05).reshape(1, 4), 10)
        bad = dtorch.tensor([1]) // dtorch.tensor([0])
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            await dtorch.gather(good, bad)
        before = dict(_C._sched_stats())
        assert (await good).tolist() == [[7.0] * 4]
        assert _C._sched_stats()["parked"] == before["parked"]

    run(main())
