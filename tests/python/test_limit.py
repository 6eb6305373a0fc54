"""dtorch.limit: operations in flight are counted, and who enters waits in turn for room.

Operations in flight are made with _C._hold, which is pending for a time of its own; nothing here
depends on how long anything takes: what must happen while something is pending starts anew, with
more time, on a machine that was too slow for it, and time limits are much too long.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import dtorch
import pytest
from dtorch import _C
from pending import FAILURE, Stalled, failing, held, meanwhile, patient

pytestmark = pytest.mark.notorch

Run = Callable[[Any], Any]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]

LONG = 0.4
"""Seconds for which an operation is pending that must still be so some statements later."""


async def settled(lim: Any) -> None:
    """Until nothing is in flight: the count is lowered just after the result can be seen."""
    end = time.monotonic() + 50
    while lim.in_flight and time.monotonic() < end:
        await asyncio.sleep(0.001)
    assert lim.in_flight == 0


# --- counting ----------------------------------------------------------------------------------


@patient
def test_counts_what_is_called_in_the_block(run: Run) -> None:
    async def main() -> None:
        before = held(LONG)
        with meanwhile(LONG):
            async with dtorch.limit(100) as lim:
                assert (lim.n, lim.in_flight) == (100, 0)
                a = held(LONG)
                assert lim.in_flight == 1
                b = a + 1
                assert lim.in_flight == 2
                dtorch.ones(3) + 1  # computed at the call
                assert lim.in_flight == 2
                assert repr(lim) == "<dtorch.limit 2 of 100 in flight>"
            after = held(LONG)
            assert lim.in_flight == 2  # also once the block was left
        await dtorch.gather(before, b, after)
        await settled(lim)

    run(main())


@patient
def test_failed_operations_end_too(run: Run) -> None:
    async def main() -> None:
        async with dtorch.limit(1) as lim:
            with meanwhile(0.1):
                t = failing(0.1)
                assert lim.in_flight == 2
            with pytest.raises(RuntimeError, match=FAILURE):
                await t
            await lim.room()
            assert lim.in_flight == 0

    run(main())


def test_dropped_handles_still_count_until_the_end(run: Run) -> None:
    async def main() -> None:
        async with dtorch.limit(1) as lim:
            held(0.01)
            gc.collect()
            await lim.room()
            assert lim.in_flight == 0

    run(main())


@patient
def test_belongs_to_the_context(run: Run) -> None:
    async def call() -> Any:
        await asyncio.sleep(0)
        return held(LONG)

    async def main() -> None:
        lim = dtorch.limit(100)
        with meanwhile(LONG):
            outside = asyncio.ensure_future(call())
            async with lim:
                inside = asyncio.ensure_future(call())
            await asyncio.gather(outside, inside)
            assert lim.in_flight == 1

    run(main())


@patient
def test_nested_limits_count_in_each(run: Run) -> None:
    async def main() -> None:
        outer, inner = dtorch.limit(10), dtorch.limit(5)
        with meanwhile(LONG):
            async with outer:
                kept = [held(LONG)]
                async with inner:
                    kept.append(held(LONG))
                    assert (outer.in_flight, inner.in_flight) == (2, 1)
                    async with outer:  # again: an operation counts once
                        kept.append(held(LONG))
                        assert (outer.in_flight, inner.in_flight) == (3, 2)
                kept.append(held(LONG))
                assert (outer.in_flight, inner.in_flight) == (4, 2)
        await dtorch.gather(*kept)
        await settled(outer)
        await settled(inner)

    run(main())


def test_exceptions_leave_the_block(run: Run) -> None:
    async def main() -> None:
        lim = dtorch.limit(1)
        for _ in range(3):
            with pytest.raises(KeyError):
                async with lim:
                    raise KeyError
        kept = held(LONG)
        assert lim.in_flight == 0
        del kept

    run(main())


# --- waiting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3])
@patient
def test_never_more_than_n(run: Run, n: int) -> None:
    """The plain bound: one operation in a block."""
    most = 0

    async def request(lim: Any) -> None:
        nonlocal most
        async with lim:
            assert lim.in_flight < n
            y = held(0.002)
            most = max(most, lim.in_flight)
        await y

    async def main() -> None:
        lim = dtorch.limit(n)
        await asyncio.gather(*(request(lim) for _ in range(40)))
        assert most <= n
        if most < n:
            raise Stalled
        await settled(lim)

    run(main())


def test_newcomers_do_not_overtake(run: Run) -> None:
    order: list[int] = []

    async def request(lim: Any, number: int) -> None:
        async with lim:
            order.append(number)
            held(0.001)

    async def main() -> None:
        lim = dtorch.limit(1)
        tasks = []
        for number in range(30):
            tasks.append(asyncio.ensure_future(request(lim, number)))
            if number % 3 == 0:
                await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)

    run(main())
    assert order == list(range(30))


def test_room_waits_and_several_fit(run: Run) -> None:
    async def main() -> None:
        async with dtorch.limit(2) as lim:
            kept = []
            for _ in range(10):
                await lim.room()
                assert lim.in_flight < 2
                kept.append(held(0.002))
            await dtorch.gather(*kept)

    run(main())


@patient
def test_a_block_that_calls_more_waits_afterwards(run: Run) -> None:
    async def main() -> None:
        async with dtorch.limit(2) as lim:
            with meanwhile(LONG):
                kept = [held(LONG) for _ in range(6)]  # calls never wait
                assert lim.in_flight == 6
            await lim.room()
            assert lim.in_flight < 2
            del kept

    run(main())


def test_a_turn_that_is_not_used_goes_to_the_next(run: Run) -> None:
    entered: list[int] = []

    async def request(lim: Any, number: int) -> None:
        async with lim:
            entered.append(number)  # and calls nothing

    async def main() -> None:
        lim = dtorch.limit(1)
        async with lim:
            held(0.01)
        await asyncio.wait_for(asyncio.gather(*(request(lim, i) for i in range(5))), 50)

    run(main())
    assert entered == list(range(5))


@patient
def test_cancelled_waiters_leave_the_queue(run: Run) -> None:
    async def request(lim: Any) -> None:
        async with lim:
            held(0.005)

    async def main() -> None:
        lim = dtorch.limit(1)
        with meanwhile(LONG):
            async with lim:
                first = held(LONG)
            tasks = [asyncio.ensure_future(request(lim)) for _ in range(6)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(x, asyncio.CancelledError) for x in found] == [True, False] * 3
        await first
        async with lim:
            with meanwhile(LONG), pytest.raises(asyncio.TimeoutError):
                held(LONG)
                await asyncio.wait_for(lim.room(), 0.001)
        await asyncio.wait_for(lim.room(), 50)

    run(main())


@patient
def test_cancelled_when_its_turn_has_come(run: Run) -> None:
    """Granted, and not resumed yet: the turn goes on to the next."""

    async def main() -> None:
        lim = dtorch.limit(1)
        with meanwhile(LONG):
            async with lim:
                held(LONG)
            waiting = [asyncio.ensure_future(lim.room()) for _ in range(3)]
            await asyncio.sleep(0)
        while lim.in_flight:
            time.sleep(0.001)
        time.sleep(0.05)  # the first has been told by now, and the loop does not know
        waiting[0].cancel()
        found = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 50)
        assert [type(x) for x in found] == [asyncio.CancelledError, type(None), type(None)]
        await asyncio.wait_for(lim.room(), 50)

    run(main())


@patient
def test_what_was_put_aside_runs_for_who_waits_for_room(run: Run) -> None:
    """A cancelled await parks what has not started; it must not keep its room for ever."""

    async def main() -> None:
        lim = dtorch.limit(1)
        with meanwhile(LONG):
            source = held(LONG)
            async with lim:
                y = (source + 1) * 2  # not started: its input is pending
                assert lim.in_flight == 2
            task = asyncio.ensure_future(y)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await source
        await asyncio.wait_for(lim.room(), 50)
        assert lim.in_flight == 0
        assert y.tolist() == [16.0] * 4
        with meanwhile(LONG):
            async with lim:  # waiting first, and put aside then
                z = held(LONG) + 1
            waiting = asyncio.ensure_future(lim.room())
            task = asyncio.ensure_future(z)
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait_for(waiting, 50)
        assert z.tolist() == [8.0] * 4

    run(main())


def test_a_loop_that_dies_gives_its_turns_back(loop_factory: LoopFactory) -> None:
    lim = dtorch.limit(1)

    async def fill() -> None:
        async with lim:
            held(0.05)
        asyncio.ensure_future(lim.room())
        await asyncio.sleep(0)

    def forget() -> None:
        loop = loop_factory()
        loop.run_until_complete(fill())
        loop.close()  # with a task that waits

    async def tick() -> None:
        while True:  # a task of a dead loop is a cycle, collected some time after its turn came
            await asyncio.sleep(0.005)
            gc.collect()

    async def enter() -> None:
        ticker = asyncio.ensure_future(tick())
        await asyncio.wait_for(lim.room(), 50)
        ticker.cancel()

    for _ in range(3):
        forget()
        gc.collect()
        loop = loop_factory()
        loop.run_until_complete(enter())
        loop.stop()  # before the kept turn was given back
        loop.close()
        gc.collect()


def test_loops_in_several_threads_share_one(loop_factory: LoopFactory) -> None:
    lim = dtorch.limit(2)
    failures: list[BaseException] = []
    threads_n = 4
    where: list[int] = []

    async def request() -> None:
        me = threading.get_ident()
        async with lim:
            assert threading.get_ident() == me
            assert lim.in_flight < 2 + threads_n
            y = held(0.001)
        await y
        where.append(me)

    async def main() -> None:
        await asyncio.gather(*(request() for _ in range(25)))

    def work() -> None:
        loop = loop_factory()
        try:
            loop.run_until_complete(main())
        except BaseException as error:
            failures.append(error)
        finally:
            loop.close()

    threads = [threading.Thread(target=work) for _ in range(threads_n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(where) == 25 * threads_n
    assert len(set(where)) >= 1


def test_inline(run: Run) -> None:
    async def main() -> None:
        async with dtorch.limit(1):
            t = dtorch.ones(4) + 1
        assert (await t).tolist() == [2.0] * 4

    run(main())


# --- the rest ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [0, -1, -(2**40)])
def test_bad_n(bad: int) -> None:
    with pytest.raises(ValueError, match=f"n must be at least 1, not {bad}"):
        dtorch.limit(bad)


@pytest.mark.parametrize("bad", [None, 1.5, "3", True, [1]])
def test_n_of_a_wrong_type(bad: Any) -> None:
    with pytest.raises(TypeError, match="n must be an int"):
        dtorch.limit(bad)


@patient
def test_waiting_needs_a_loop() -> None:
    lim = dtorch.limit(1)

    async def main() -> None:
        async with lim:
            held(LONG)
        await lim.room()

    with meanwhile(LONG), pytest.raises(RuntimeError, match="no running event loop"):
        main().send(None)


def test_nothing_is_left(run: Run) -> None:
    async def request(lim: Any) -> None:
        async with lim:
            y = held(0.001)
        await y

    async def main() -> None:
        lim = dtorch.limit(2)
        await asyncio.gather(*(request(lim) for _ in range(20)))
        await settled(lim)

    def objects() -> int:
        gc.collect()
        assert _C._drain().get(50) is True
        dtorch.empty_cache()
        return int(dtorch.memory_stats()["objects"])

    run(main())
    most = objects() + 8  # freed, but for what per-thread lists keep
    run(main())
    end = time.monotonic() + 30
    while objects() > most:
        assert time.monotonic() < end


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="3.12 warns about forks with threads")
@patient
def test_a_forked_child_starts_anew(run: Run) -> None:
    async def main() -> None:
        lim = dtorch.limit(1)
        with meanwhile(1.0):
            async with lim:
                t = held(1.0)
            waiting = asyncio.ensure_future(lim.room())
            await asyncio.sleep(0)
            pid = os.fork()
            if pid == 0:
                try:
                    os._exit(0 if lim.in_flight == 0 and lim._core.request() is None else 3)
                finally:
                    os._exit(4)
            _, status = os.waitpid(pid, 0)  # noqa: ASYNC222
            assert os.waitstatus_to_exitcode(status) == 0
            assert lim.in_flight == 1
        await waiting
        await t

    run(main())
