"""dtorch.deadline, and the class behind it where Python has no asyncio.timeout."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import dtorch
import pytest
from dtorch import _deadline
from pending import failing, held, meanwhile, patient

pytestmark = pytest.mark.notorch

Run = Callable[[Any], Any]


def own(seconds: float | None) -> Any:
    """As on Python 3.10."""
    when = None if seconds is None else asyncio.get_running_loop().time() + seconds
    return _deadline.Deadline(when)


@pytest.fixture(params=[dtorch.deadline, own], ids=["deadline", "own"])
def deadline(request: pytest.FixtureRequest) -> Any:
    return request.param


@patient
def test_expires(run: Run, deadline: Any) -> None:
    async def main() -> None:
        start = time.monotonic()
        with meanwhile(0.2):
            t = held(0.2)
            with pytest.raises(TimeoutError):
                async with deadline(0.02) as d:
                    await t
        assert time.monotonic() - start > 0.015
        assert d.expired()
        assert (await t) is t  # it was computed all the same

    run(main())


@pytest.mark.parametrize("seconds", [None, 50])
def test_is_kept(run: Run, deadline: Any, seconds: float | None) -> None:
    async def main() -> None:
        async with deadline(seconds) as d:
            assert (await held(0.01)).tolist() == [7.0] * 4
        assert not d.expired()
        await asyncio.sleep(0)

    run(main())


@pytest.mark.parametrize("seconds", [0, -1])
@patient
def test_has_passed_already(run: Run, deadline: Any, seconds: float) -> None:
    async def main() -> None:
        with meanwhile(0.2), pytest.raises(TimeoutError):
            async with deadline(seconds):
                await held(0.2)

    run(main())


def test_errors_inside_pass(run: Run, deadline: Any) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            async with deadline(50):
                await failing(0.01)
        with pytest.raises(KeyError):
            async with deadline(10):
                raise KeyError

    run(main())


@pytest.mark.parametrize(("outer", "inner"), [(0.02, 50), (50, 0.02), (0.02, 0.02)])
@patient
def test_nested(run: Run, deadline: Any, outer: float, inner: float) -> None:
    async def main() -> None:
        caught = []
        try:
            with meanwhile(0.3):
                async with deadline(outer) as far:
                    try:
                        async with deadline(inner):
                            await held(0.3)
                    except TimeoutError:
                        caught.append("inner")
                        raise
        except TimeoutError:
            caught.append("outer")
        if inner > outer:
            assert caught == ["outer"]
            assert far.expired()
        else:
            assert caught in (["inner", "outer"], ["outer"])  # the second: both at once
        await asyncio.sleep(0.03)  # no cancellation is left over

    run(main())


@patient
def test_rescheduled(run: Run, deadline: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with deadline(None) as d:
            assert d.when() is None
            when = loop.time() + 50
            d.reschedule(when)
            assert d.when() == when
            await held(0.01)
            d.reschedule(None)
        with meanwhile(0.3), pytest.raises(TimeoutError):
            async with deadline(50) as d:
                d.reschedule(loop.time() + 0.01)
                await held(0.3)
        with pytest.raises(RuntimeError):
            d.reschedule(None)
        with pytest.raises(RuntimeError):
            await d.__aenter__()

    run(main())


@patient
def test_a_cancelled_task_stays_cancelled(run: Run, deadline: Any) -> None:
    async def wait() -> None:
        async with deadline(50):
            await held(0.3)

    async def main() -> None:
        with meanwhile(0.3):
            early = asyncio.ensure_future(wait())
            await asyncio.sleep(0.01)
            early.cancel()
        with pytest.raises(asyncio.CancelledError):
            await early

    run(main())


def test_cancelled_and_expired_at_once_is_cancelled(run: Run, deadline: Any) -> None:
    async def main() -> None:
        task: Any = None

        async def wait() -> None:
            async with deadline(None) as d:
                loop = asyncio.get_running_loop()
                loop.call_soon(task.cancel)
                d.reschedule(loop.time())
                await held(0.1)

        task = asyncio.ensure_future(wait())
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


@patient
def test_many_passed_deadlines_leave_the_runtime_fine(run: Run, deadline: Any) -> None:
    async def main() -> None:
        with meanwhile(0.3):
            t = held(0.3)
            for _ in range(30):
                with pytest.raises(TimeoutError):
                    async with deadline(0.001):
                        await dtorch.gather(t, t + 1)
        async with deadline(50):
            a, b = await dtorch.gather(t, t + 1)
        assert b.tolist() == [8.0] * 4
        assert a is t
        assert await dtorch.drain(50) is True

    run(main())


def test_needs_a_running_loop() -> None:
    with pytest.raises(RuntimeError):
        dtorch.deadline(1)
