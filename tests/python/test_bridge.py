"""One eventfd and one queue for each loop: bursts, closed loops, many loops, what is left open."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import dtorch
import pytest
from dtorch import _C
from pending import held, meanwhile, patient

pytestmark = pytest.mark.notorch

Run = Callable[[Any], Any]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]

DELIVERIES_MAX = 256


def eventfds() -> int:
    """How many eventfds are open in this process."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventfd]"
        except OSError:  # the listing's own
            pass
    return count


def collect() -> None:
    assert _C._drain().get(30) is True  # who completed something lets go of the bridge after it
    for _ in range(3):
        gc.collect()
    dtorch.empty_cache()  # also empties the graveyard


@pytest.mark.parametrize("count", [1, 255, 256, 257, 513])
def test_burst(run: Run, count: int) -> None:
    async def main() -> None:
        tensors = [held(0.05) for _ in range(count)]
        found = await asyncio.gather(*(asyncio.ensure_future(t) for t in tensors))
        assert all(a is b for a, b in zip(found, tensors, strict=True))

    run(main())


def test_ten_thousand_at_once(run: Run) -> None:
    async def main() -> None:
        gate = held(0.5)
        tensors = [gate + i for i in range(10_000)]
        found = await asyncio.gather(*(asyncio.ensure_future(t) for t in tensors))
        assert all(a is b for a, b in zip(found, tensors, strict=True))
        assert tensors[9_999].tolist() == [10_006.0] * 4

    run(main())


def test_a_drain_is_bounded(run: Run) -> None:
    """2,000 completions that are there at once come in portions: the loop goes round in between."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        woken = 0
        at_turn: list[int] = []

        async def wait(t: Any) -> None:
            nonlocal woken
            await t
            woken += 1

        def turn() -> None:
            at_turn.append(woken)
            if woken < 2000:
                loop.call_soon(turn)

        for seconds in (0.3, 1, 4, 16):  # all must wait before the first is woken
            gate = held(seconds)
            woken = 0
            tasks = [asyncio.ensure_future(wait(gate)) for _ in range(2000)]
            await asyncio.sleep(0)
            if woken == 0:
                break
            await asyncio.gather(*tasks)
        loop.call_soon(turn)
        time.sleep(seconds + 0.1)  # everything completes while the loop is busy with this
        await asyncio.gather(*tasks)
        steps = [b - a for a, b in zip(at_turn, at_turn[1:])]  # noqa: B905, RUF007
        assert max(steps) <= DELIVERIES_MAX
        assert sum(step > 0 for step in steps) >= 2000 // DELIVERIES_MAX

    run(main())


def test_one_eventfd_for_each_loop(loop_factory: LoopFactory) -> None:
    collect()
    loop = loop_factory()

    async def main() -> None:
        await dtorch.gather(held(0.001), held(0.001))

    loop.run_until_complete(asyncio.sleep(0))
    before = eventfds()
    for _ in range(5):
        loop.run_until_complete(main())
        assert eventfds() == before + 1
    loop.close()
    collect()
    assert eventfds() <= before


def test_fds_and_loops_do_not_pile_up(loop_factory: LoopFactory) -> None:
    async def main() -> None:
        await held(0.001)

    def once() -> Any:
        loop = loop_factory()
        loop.run_until_complete(main())
        loop.close()
        return weakref.ref(loop)

    once()
    collect()
    before = len(os.listdir("/proc/self/fd"))
    loops = [once() for _ in range(20)]
    collect()
    assert len(os.listdir("/proc/self/fd")) == before
    assert [ref() for ref in loops] == [None] * 20


def test_loop_closed_with_awaits_pending(loop_factory: LoopFactory) -> None:
    """Completions for a closed loop go nowhere, and nothing that waited there stays alive."""
    collect()
    before = eventfds()
    t = held(0.1)

    async def wait() -> None:
        await t

    def abandoned() -> tuple[Any, Any]:
        loop = loop_factory()
        task = loop.create_task(wait())
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
        return weakref.ref(loop), weakref.ref(task)

    refs = [abandoned() for _ in range(3)]
    loop = loop_factory()
    assert loop.run_until_complete(asyncio.wait_for(t, 50)) is t
    loop.close()
    collect()
    assert [(a(), b()) for a, b in refs] == [(None, None)] * 3
    assert eventfds() == before


@patient
def test_completion_while_the_loop_is_stopped(loop_factory: LoopFactory) -> None:
    """A loop that runs again later gets what was completed in the meantime."""
    loop = loop_factory()

    async def wait() -> Any:
        return await t

    with meanwhile(0.1):
        t = held(0.1)
        task = loop.create_task(wait())
        loop.run_until_complete(asyncio.sleep(0.001))
    assert _C._drain().get(30) is True
    assert not task.done()
    assert loop.run_until_complete(task) is t
    loop.close()


def test_loop_is_collected_without_close() -> None:
    def leave() -> Any:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(asyncio.wait_for(held(0.001), 50))
        return weakref.ref(loop)

    collect()
    before = eventfds()
    with pytest.warns(ResourceWarning):
        ref = leave()
        gc.collect()
    collect()
    assert ref() is None
    assert eventfds() == before


def test_context_of_the_first_await_is_not_kept(run: Run) -> None:
    """The reader is registered in an empty context: it lives as long as the loop does."""

    class Value: ...

    variable: contextvars.ContextVar[Value] = contextvars.ContextVar("variable")

    async def first() -> Any:
        value = Value()
        variable.set(value)
        await held(0.001)
        return weakref.ref(value)

    async def main() -> None:
        ref = await asyncio.ensure_future(first())
        await asyncio.sleep(0)
        gc.collect()
        assert ref() is None

    run(main())


def test_loops_come_and_go_in_threads(loop_factory: LoopFactory) -> None:
    """Loops are told apart by themselves, not by an address that the next one may have."""
    failures: list[BaseException] = []

    async def main(shared: Any) -> None:
        assert (await shared) is shared
        for _ in range(5):
            await held(0.0005)

    def thread() -> None:
        try:
            for _ in range(10):
                loop = loop_factory()
                loop.run_until_complete(asyncio.wait_for(main(held(0.002)), 20))
                loop.close()
                del loop
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=thread) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert failures == []


def test_awaits_of_one_tensor_from_many_loops_at_once(loop_factory: LoopFactory) -> None:
    t = held(0.3)
    found: list[Any] = []

    async def main() -> None:
        found.extend(await asyncio.gather(*(asyncio.ensure_future(t) for _ in range(300))))

    def thread() -> None:
        loop = loop_factory()
        loop.run_until_complete(main())
        loop.close()

    threads = [threading.Thread(target=thread) for _ in range(5)]
    for x in threads:
        x.start()
    for x in threads:
        x.join(30)
    assert len(found) == 1500
    assert all(x is t for x in found)


@patient
def test_loop_without_readers() -> None:
    """A loop that cannot watch a descriptor says so at the await."""

    class Deaf(asyncio.SelectorEventLoop):
        def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
            raise NotImplementedError("no readers here")

    async def main() -> None:
        with meanwhile(0.5), pytest.raises(NotImplementedError, match="no readers here"):
            await held(0.5)
        assert (await dtorch.ones(1)).item() == 1  # what is ready needs none

    collect()
    before = eventfds()
    loop = Deaf()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    collect()
    assert eventfds() == before


def test_await_with_out_of_band_completion(run: Run) -> None:
    """Completions that come while the loop's thread is inside a blocking call are kept."""

    async def main() -> None:
        tasks = [asyncio.ensure_future(held(0.001 * i)) for i in range(1, 20)]
        await asyncio.sleep(0)
        time.sleep(0.1)
        await asyncio.gather(*tasks)

    run(main())


def test_names_of_the_c_side() -> None:
    """The reader is not for users to make."""
    with pytest.raises(TypeError):
        type(dtorch.ones(1).__await__())()
    assert not hasattr(_C, "Bridge")
