"""dtorch.drain: everything before it, nothing behind it, timeouts, loops and threads."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import dtorch
import pytest
from dtorch import _C
from pending import failing, held, meanwhile, patient

pytestmark = pytest.mark.notorch

Run = Callable[[Any], Any]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def settled() -> None:
    """Lets what other tests left behind end."""
    assert _C._drain().get(30) is True


def test_waits_for_what_was_submitted(run: Run) -> None:
    async def main() -> None:
        start = time.monotonic()
        tensors = [held(0.05), held(0.02)]
        assert await dtorch.drain() is True
        assert time.monotonic() - start > 0.04
        for t in tensors:
            assert t.to_torch_async().done()

    run(main())


def test_with_nothing_in_flight_it_does_not_suspend() -> None:
    settled()
    deadline = time.monotonic() + 30  # a task is forgotten just after its tensor is ready
    while _C._sched_stats()["submitted"] != _C._sched_stats()["ended"]:
        assert time.monotonic() < deadline
    for timeout in (None, 0, 1, -1):
        with pytest.raises(StopIteration) as stop:
            dtorch.drain(timeout).send(None)
        assert stop.value.value is True


@patient
def test_timeout(run: Run) -> None:
    async def main() -> None:
        with meanwhile(0.2):
            t = held(0.2)
            assert await dtorch.drain(0.001) is False
            assert await dtorch.drain(0) is False
            assert await dtorch.drain(-1) is False
        assert await dtorch.drain(30) is True
        assert t.to_torch_async().done()

    run(main())


@patient
def test_timeout_leaves_nothing_behind(run: Run) -> None:
    async def main() -> None:
        with meanwhile(0.2):
            held(0.2)
            assert await dtorch.drain(0.0001) is False
        for _ in range(49):  # fewer on a busy machine
            if await dtorch.drain(0.0001):
                break
        await dtorch.drain()

    run(main())  # warm-up: the loop's and Python's own
    settled()

    def objects() -> int:
        settled()
        gc.collect()
        dtorch.empty_cache()
        return dtorch.memory_stats()["objects"]

    before = objects()
    run(main())
    end = time.monotonic() + 30
    while objects() > before + 2:  # a bridge of a loop that is gone may stay for a while
        assert time.monotonic() < end


@patient
def test_what_comes_later_is_not_waited_for(run: Run) -> None:
    async def main() -> None:
        held(0.05)
        draining = asyncio.ensure_future(dtorch.drain())
        await asyncio.sleep(0)
        with meanwhile(1.0):
            late = held(1.0)
            assert await draining is True
            assert not late.to_torch_async().done()
        await dtorch.drain()

    run(main())


def test_failures_do_not_matter(run: Run) -> None:
    async def main() -> None:
        t = failing(0.02)
        assert await dtorch.drain() is True
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            await t

    run(main())


@patient
def test_many_at_once_end_in_order(run: Run) -> None:
    async def main() -> None:
        ended: list[int] = []

        async def one(i: int) -> None:
            await dtorch.drain()
            ended.append(i)

        tasks = []
        with meanwhile(0.5):
            held(0.5)  # whoever finds nothing to wait for does not wait his turn either
            for i in range(100):
                held(0.001)
                tasks.append(asyncio.ensure_future(one(i)))
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        assert ended == list(range(100))

    run(main())


@patient
def test_cancelling_it(run: Run) -> None:
    async def main() -> None:
        with meanwhile(0.1):
            held(0.1)
            draining = asyncio.ensure_future(dtorch.drain(30))
            other = asyncio.ensure_future(dtorch.drain())
            await asyncio.sleep(0)
            draining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await draining
        assert await other is True

    run(main())


def test_several_loops(loop_factory: LoopFactory) -> None:
    results: list[Any] = []

    async def main(i: int) -> None:
        t = held(0.01 * i)
        assert await dtorch.drain() is True
        results.append(t.to_torch_async().done())

    def in_thread(i: int) -> None:
        loop = loop_factory()
        try:
            loop.run_until_complete(main(i))
        finally:
            loop.close()

    threads = [threading.Thread(target=in_thread, args=(i,)) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 5


def test_a_loop_that_is_closed_while_it_drains(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    t = held(0.05)
    coroutine = dtorch.drain()

    async def main() -> None:
        loop.call_soon(loop.stop)
        await coroutine

    task = loop.create_task(main())
    loop.run_forever()
    task.cancel()
    loop.run_until_complete(asyncio.wait([task]))
    loop.close()
    assert t.tolist() == [7.0] * 4
    settled()


def test_from_a_blocking_thread() -> None:
    held(0.02)
    assert _C._drain().get(30) is True
