"""Awaits of what is always ready give control back to the loop, and short programs never yield.

Nothing here measures a short time: a callback of the loop has to run at all while a coroutine
awaits ready things (within many seconds), and a program is only held to never yielding while less
time has passed than an await has to wait for before it may.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import dtorch
import pytest
from dtorch import _C
from pending import FAILURE

pytestmark = pytest.mark.notorch

Run = Callable[[Any], Any]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]

SECONDS_MAX = 20.0
NO_YIELD_SECONDS = 350e-6
"""Less than an await has to have held the loop for, by any clock."""


def ready() -> Any:
    return dtorch.ones(3)


class Probe:
    """Awaits a ready thing, and holds each yield to the time since the loop last had control."""

    def __init__(self) -> None:
        self.tensor = ready()
        self.had_control()

    def had_control(self) -> None:
        """The loop runs, or ran just now."""
        self.began = time.monotonic()

    def __await__(self) -> Any:
        iterator = self.tensor.__await__()
        while True:
            try:
                got = next(iterator)
            except StopIteration as stop:
                return stop.value
            assert got is None
            assert time.monotonic() - self.began >= NO_YIELD_SECONDS
            yield
            self.had_control()


async def spin(once: Callable[[], Any], stop: Callable[[], bool]) -> int:
    """Awaits ready things until stop() or much too much time has passed; how many awaits."""
    end = time.monotonic() + SECONDS_MAX
    awaits = 0
    while not stop() and time.monotonic() < end:
        for _ in range(20):
            await once()
        awaits += 20
    assert stop(), f"the loop had no control during {awaits} awaits"
    return awaits


def sources() -> dict[str, Callable[[], Callable[[], Any]]]:
    def tensor() -> Callable[[], Any]:
        t = ready()
        return lambda: t

    def fresh() -> Callable[[], Any]:
        t = ready()
        return lambda: t + 1

    def gather() -> Callable[[], Any]:
        a, b = ready(), ready()
        return lambda: dtorch.gather(a, b)

    def future() -> Callable[[], Any]:
        f = _C._drain()  # a TensorFuture that resolves without torch
        f.get(SECONDS_MAX)
        return lambda: f

    def failed() -> Callable[[], Any]:
        t = dtorch.tensor([1]) // dtorch.tensor([0])

        async def wait() -> None:
            with pytest.raises(RuntimeError, match=FAILURE):
                await t

        return wait

    return {f.__name__: f for f in (tensor, fresh, gather, future, failed)}


SOURCES = sources()


# --- the loop runs -----------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES)
def test_callbacks_and_timers_run(run: Run, source: str) -> None:
    async def main() -> None:
        once = SOURCES[source]()
        loop = asyncio.get_running_loop()
        for schedule in (loop.call_soon, lambda f: loop.call_later(0.001, f)):
            called: list[int] = []
            schedule(lambda: called.append(1))  # noqa: B023
            await spin(once, lambda: bool(called))  # noqa: B023

    run(main())


def test_other_tasks_and_io_go_on(run: Run) -> None:
    async def main() -> None:
        t = ready()
        ticks = 0

        async def ticker() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readline())
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def client() -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"hello\n")
            line = await reader.readline()
            writer.close()
            return line

        tasks = [asyncio.ensure_future(ticker()), asyncio.ensure_future(client())]
        await spin(lambda: t, lambda: ticks >= 5 and tasks[1].done())
        assert tasks[1].result() == b"hello\n"
        tasks[0].cancel()
        server.close()

    run(main())


def test_two_that_spin_take_turns(run: Run) -> None:
    async def main() -> None:
        t = ready()
        order: list[int] = []

        async def one(number: int) -> None:
            end = time.monotonic() + SECONDS_MAX
            while len(order) < 20 and time.monotonic() < end:
                await t
                if not order or order[-1] != number:
                    order.append(number)

        await asyncio.gather(one(1), one(2))
        assert len(order) >= 20

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with 3.12")
def test_eager_tasks() -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        called: list[int] = []
        asyncio.get_running_loop().call_soon(called.append, 1)
        t = ready()
        await asyncio.create_task(spin(lambda: t, lambda: bool(called)))

    asyncio.run(main())


def test_threads_with_loops_of_their_own(loop_factory: LoopFactory) -> None:
    failures: list[BaseException] = []

    async def main() -> None:
        t = ready()
        for _ in range(3):
            called: list[int] = []
            asyncio.get_running_loop().call_soon(called.append, 1)
            await spin(lambda: t, lambda: bool(called))  # noqa: B023

    def work() -> None:
        try:
            for _ in range(2):
                loop = loop_factory()
                loop.run_until_complete(main())
                loop.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# --- cancelling --------------------------------------------------------------------------------


async def for_ever(t: Any) -> None:
    while True:
        await t


def test_a_spinning_task_can_be_cancelled(run: Run) -> None:
    async def main() -> None:
        t = ready()
        task = asyncio.ensure_future(for_ever(t))
        await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await t) is t
        with pytest.raises(TimeoutError):
            async with dtorch.deadline(0.01):
                await for_ever(t)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(for_ever(t), 0.01)

    run(main())


@pytest.mark.parametrize("use_uvloop", [False, True])
def test_anyio(use_uvloop: bool) -> None:
    if use_uvloop:
        pytest.importorskip("uvloop")

    async def main() -> None:
        t = ready()
        with anyio.move_on_after(0.01) as scope:
            await for_ever(t)
        assert scope.cancelled_caught
        ticks: list[int] = []

        async def ticker(group: Any) -> None:
            for _ in range(3):
                await anyio.sleep(0.001)
                ticks.append(1)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(ticker, group)
            group.start_soon(for_ever, t)
        assert len(ticks) == 3

    anyio.run(main, backend="asyncio", backend_options={"use_uvloop": use_uvloop})


def test_a_loop_that_is_given_up_while_it_spins(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    t = ready()
    task = loop.create_task(for_ever(t))
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.stop()
    loop.run_forever()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    gc.collect()


# --- and nobody else is held up ------------------------------------------------------------------


def test_short_programs_never_yield(loop_factory: LoopFactory) -> None:
    """Also not when a loop before, perhaps at the same address, ended with its marker unseen."""

    async def main() -> None:
        probe = Probe()
        for _ in range(30):
            await probe

    async def spin_to_the_end() -> None:
        t = ready()
        await spin(lambda: t, lambda: time.monotonic() > end)

    for _ in range(100):
        loop = loop_factory()
        loop.run_until_complete(main())
        loop.close()
    for _ in range(50):
        end = time.monotonic() + 0.0007
        for program in (spin_to_the_end(), main()):
            loop = loop_factory()
            loop.run_until_complete(program)
            loop.close()
            del loop


def test_who_gives_control_back_is_never_made_to(run: Run) -> None:
    async def main() -> None:
        probe = Probe()
        for _ in range(2000):
            for _ in range(10):
                await probe
            await asyncio.sleep(0)
            probe.had_control()

    run(main())


def test_many_short_tasks_in_one_turn_are_not_taken_for_one(run: Run) -> None:
    """The turn of the loop is long, but no task of it is."""

    async def short() -> None:
        probe = Probe()
        for _ in range(20):
            await probe

    async def main() -> None:
        await asyncio.gather(*(short() for _ in range(500)))

    run(main())


def test_without_a_loop_nothing_yields() -> None:
    async def main() -> None:
        t = ready()
        end = time.monotonic() + 0.005
        while time.monotonic() < end:
            await t

    with pytest.raises(StopIteration):
        main().send(None)


def test_outside_a_task_nothing_yields(run: Run) -> None:
    """A coroutine that a callback drives by hand, in a running loop."""

    async def by_hand() -> str:
        t = ready()
        end = time.monotonic() + 0.005
        while time.monotonic() < end:
            await t
        return "done"

    async def main() -> None:
        found: list[Any] = []

        def drive() -> None:
            try:
                found.append(by_hand().send(None))
            except StopIteration as stop:
                found.append(stop.value)

        asyncio.get_running_loop().call_soon(drive)
        await asyncio.sleep(0.01)
        assert found == ["done"]

    run(main())


def test_an_await_yields_at_most_once(run: Run) -> None:
    """Driven further by hand without the loop: the same await must not ask twice."""

    async def main() -> None:
        end = time.monotonic() + SECONDS_MAX
        while time.monotonic() < end:
            t = ready()
            iterator = t.__await__()
            try:
                assert next(iterator) is None
            except StopIteration:
                continue
            with pytest.raises(StopIteration) as stop:
                next(iterator)
            assert stop.value.value is t
            other = ready().__await__()
            next(ready().__await__(), None)
            other.close()
            return
        raise AssertionError("never yielded")

    run(main())


def test_other_threads_get_the_gil(loop_factory: LoopFactory) -> None:
    """Held to awaits, not to seconds: a loop that only looks at its sockets starves the thread for
    hundreds of thousands of awaits each time."""
    wakes = 0

    def other() -> None:
        nonlocal wakes
        for _ in range(20):
            time.sleep(0.001)
            wakes += 1

    async def main() -> int:
        count = 0
        while wakes < 20 and count < 5_000_000:
            await ready()
            count += 1
        return count

    thread = threading.Thread(target=other)
    thread.start()
    runner_loop = loop_factory()
    try:
        awaits = runner_loop.run_until_complete(main())
    finally:
        runner_loop.close()
        thread.join()
    assert awaits < 5_000_000
