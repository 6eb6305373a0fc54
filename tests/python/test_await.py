"""await on tensors and dtorch.gather: values, errors, cancelling, loops, threads, anyio."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import anyio
import dtorch
import pytest
from dtorch import _C
from pending import FAILURE, failing, held, hold, meanwhile, patient

pytestmark = pytest.mark.notorch

Run = Callable[[Any], Any]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def objects_alive() -> int:
    gc.collect()
    assert _C._drain().get(30) is True
    dtorch.empty_cache()  # also empties the graveyard
    return dtorch.memory_stats()["objects"]


# --- values ------------------------------------------------------------------------------------


def test_pending_tensor_gives_itself(run: Run) -> None:
    async def main() -> None:
        t = held(0.02)
        assert (await t) is t
        assert t.tolist() == [7.0] * 4

    run(main())


def test_ready_tensor_does_not_suspend(run: Run) -> None:
    async def main() -> None:
        t = dtorch.ones(4)
        before: list[str] = []
        asyncio.get_running_loop().call_soon(before.append, "the loop went round")
        assert (await t) is t
        assert before == []

    run(main())


def test_ready_tensor_needs_no_loop() -> None:
    t = dtorch.ones(2)

    async def main() -> Any:
        return await t

    with pytest.raises(StopIteration) as stop:
        main().send(None)
    assert stop.value.value is t


@patient
def test_pending_tensor_needs_a_loop() -> None:
    async def main() -> None:
        await held(0.02)

    with meanwhile(0.02), pytest.raises(RuntimeError, match="no running event loop"):
        main().send(None)


def test_result_of_large_op(run: Run) -> None:
    async def main() -> None:
        a = dtorch.arange(1024 * 1024, dtype="float32").reshape(1024, 1024)
        b = await (a + a)
        assert b[1023, 1023].item() == 2.0 * (1024 * 1024 - 1)

    run(main())


def test_many_awaits_of_one(run: Run) -> None:
    async def main() -> None:
        t = held(0.03)
        found = await asyncio.gather(*(asyncio.ensure_future(t) for _ in range(200)))
        assert all(x is t for x in found)

    run(main())


def test_await_twice_in_one_coroutine(run: Run) -> None:
    async def main() -> None:
        t = held(0.02)
        await t
        _C._hold(t, 0.02)
        assert (await t) is t

    run(main())


@patient
def test_binds_to_the_last_writer_at_the_await(run: Run) -> None:
    """A write that is submitted after the await does not hold it up."""

    async def main() -> None:
        with meanwhile(0.05):
            t = held(0.05)
            waiting = asyncio.ensure_future(t)
            await asyncio.sleep(0)  # it awaits now
        start = time.monotonic()
        with meanwhile(0.5):
            hold(t, 0.5)
            await waiting
        await t
        assert time.monotonic() - start > 0.4

    run(main())


def test_idle_loop_wakes(run: Run) -> None:
    """Case 9: nothing but the completion wakes the loop."""

    async def main() -> None:
        t = held(0.05)
        assert (await asyncio.wait_for(t, 50)) is t

    run(main())


def test_loop_goes_on_during_a_long_op(run: Run) -> None:
    """Case 11 without a clock: a ticker ticks while an op runs (bench/ measures its gaps)."""
    ticks = 0

    async def ticker() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    async def main() -> None:
        task = asyncio.ensure_future(ticker())
        a = dtorch.ones(1024, 1024)
        b = a
        while ticks == 0:  # where this thread hardly gets to run, not during the first
            for _ in range(4):
                b = (b @ a) / 1024
            await b
        task.cancel()
        assert b[3, 4].item() == 1.0

    run(main())


# --- errors ------------------------------------------------------------------------------------


def test_metadata_error_is_raised_at_the_call(run: Run) -> None:
    """Case 12, first half."""

    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"shape '\[2, 2\]' is invalid for input of size 3"):
            dtorch.ones(3).reshape(2, 2)

    run(main())


def test_failure_is_a_new_object_for_each_awaiter(run: Run) -> None:
    """Case 12: int // 0 is raised at the await, with torch's class and text."""

    async def wait(t: Any) -> BaseException:
        with pytest.raises(RuntimeError) as caught:
            await t
        return caught.value

    async def main() -> None:
        t = failing(0.02)
        errors = await asyncio.gather(wait(t), wait(t))
        errors.append(await wait(t))  # one that comes when it has failed already
        assert [str(e) for e in errors] == [FAILURE] * 3
        assert len({id(e) for e in errors}) == 3
        assert all(e.__traceback__ is not None for e in errors)

    run(main())


def test_failure_passes_on_to_dependents(run: Run) -> None:
    async def main() -> None:
        t = failing(0.02)
        with pytest.raises(RuntimeError, match=FAILURE):
            await (t + 1).sum()

    run(main())


# --- cancelling --------------------------------------------------------------------------------


@patient
def test_cancel_ends_one_await_only(run: Run) -> None:
    async def main() -> None:
        with meanwhile(0.05):
            t = held(0.05)
            first, second = asyncio.ensure_future(t), asyncio.ensure_future(t)
            await asyncio.sleep(0)
            first.cancel()
        assert (await second) is t
        assert first.cancelled()
        assert (await t) is t

    run(main())


@patient
def test_wait_for_times_out_and_the_tensor_lives_on(run: Run) -> None:
    async def main() -> None:
        with meanwhile(0.2):
            t = held(0.2)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(t, 0.01)
        assert (await asyncio.wait_for(t, 50)) is t

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.timeout came with 3.11")
@patient
def test_timeout_block(run: Run) -> None:
    async def main() -> None:
        with meanwhile(0.2):
            t = held(0.2)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await t
        async with asyncio.timeout(50):
            await t

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TaskGroup came with 3.11")
@patient
def test_task_group(run: Run) -> None:
    async def wait(t: Any) -> Any:
        return await t

    async def main() -> None:
        t = held(0.02)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(wait(t)) for _ in range(3)]
        assert [task.result() is t for task in tasks] == [True] * 3
        with meanwhile(0.3), pytest.raises(BaseExceptionGroup) as caught:  # noqa: F821
            async with asyncio.TaskGroup() as group:
                group.create_task(wait(failing(0.01)))
                other = group.create_task(wait(held(0.3)))
        assert caught.group_contains(RuntimeError, match=FAILURE)
        assert other.cancelled()

    run(main())


@patient
def test_polling_with_timeouts_leaves_nothing(run: Run) -> None:
    """Each given-up await lets go of its objects at once, not when the tensor is computed."""

    def futures() -> int:
        gc.collect()
        return sum(type(o) is asyncio.Future for o in gc.get_objects())

    async def main() -> None:
        with meanwhile(1.0):
            t = held(1.0)
            before = futures()
            seen = []
            for _ in range(50):
                task = asyncio.ensure_future(t)
                await asyncio.sleep(0)
                seen.append(weakref.ref(task))
                task.cancel()
                await asyncio.wait([task])
                del task
            assert futures() <= before + 1
            assert [ref() for ref in seen] == [None] * 50
        await t

    run(main())


@patient
def test_cancelled_just_before_delivery(run: Run) -> None:
    """The completion is on its way when the task is cancelled: cancelled it stays, once."""

    async def main() -> None:
        with meanwhile(0.1):
            t = held(0.1)
            task = asyncio.ensure_future(t)
            await asyncio.sleep(0)
        while not t.is_ready():
            time.sleep(0.001)
        time.sleep(0.05)  # complete, queued, and not delivered
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.01)
        assert (await t) is t

    run(main())


# --- memory ------------------------------------------------------------------------------------


@patient
def test_waiting_task_survives_a_collection(run: Run) -> None:
    """Nobody but the completion holds a task that waits: it must not be collected."""
    done: list[Any] = []

    async def wait() -> None:
        done.append(await held(0.2))

    async def main() -> None:
        with meanwhile(0.2):
            asyncio.ensure_future(wait())
            await asyncio.sleep(0)
            for _ in range(3):
                gc.collect()
        while not done:
            await asyncio.sleep(0.001)

    run(main())


def test_nothing_is_left(run: Run) -> None:
    async def main() -> None:
        for _ in range(20):
            await held(0.001)
            await dtorch.gather(held(0.001), held(0.002), dtorch.ones(1))
            task = asyncio.ensure_future(held(0.005))
            await asyncio.sleep(0)
            task.cancel()
        assert await dtorch.drain() is True

    run(main())
    before = objects_alive()
    run(main())
    most, end = before + 8, time.monotonic() + 30  # freed, but for what per-thread lists keep
    while objects_alive() > most:
        assert time.monotonic() < end


# --- loops and threads -------------------------------------------------------------------------


def test_created_in_one_loop_awaited_in_another(loop_factory: LoopFactory) -> None:
    """Case 10."""
    first, second = loop_factory(), loop_factory()
    made: list[Any] = []

    async def create() -> None:
        made.append(held(0.1))
        task = asyncio.ensure_future(made[0])
        await asyncio.sleep(0)
        task.cancel()

    async def wait() -> Any:
        return await made[0]

    first.run_until_complete(create())
    assert second.run_until_complete(asyncio.wait_for(wait(), 50)) is made[0]
    first.close()
    second.close()


def test_several_loops_in_several_threads(loop_factory: LoopFactory) -> None:
    shared = held(0.3)
    found: list[Any] = []

    async def main() -> None:
        for _ in range(30):
            t = held(0.001)
            assert (await t) is t
        found.append(await shared)

    def thread() -> None:
        loop = loop_factory()
        loop.run_until_complete(main())
        loop.close()

    threads = [threading.Thread(target=thread) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert [x is shared for x in found] == [True] * 6


@pytest.mark.parametrize("use_uvloop", [False, True])
@patient
def test_anyio(use_uvloop: bool) -> None:
    if use_uvloop:
        pytest.importorskip("uvloop")
    got: list[Any] = []

    async def wait(t: Any) -> None:
        got.append(await t)

    async def main() -> None:
        t = held(0.02)
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(wait, t)
        assert [x is t for x in got] == [True] * 3

        with meanwhile(0.4):
            slow = held(0.4)
            with anyio.move_on_after(0.02) as scope:
                await slow
            assert scope.cancelled_caught
            with pytest.raises(TimeoutError):
                with anyio.fail_after(0.02):
                    await slow
            async with anyio.create_task_group() as group:
                group.start_soon(wait, slow)
                await anyio.sleep(0.01)
                group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            assert (await slow) is slow

    anyio.run(main, backend="asyncio", backend_options={"use_uvloop": use_uvloop})
    assert len(got) == 3


# --- gather ------------------------------------------------------------------------------------


def test_gather(run: Run) -> None:
    async def main() -> None:
        tensors = [held(0.03), dtorch.ones(1), held(0.01), held(0.02)]
        found = await dtorch.gather(*tensors)
        assert isinstance(found, list)
        assert [a is b for a, b in zip(found, tensors, strict=True)] == [True] * 4
        assert await dtorch.gather() == []
        one = held(0.01)
        assert [x is one for x in await dtorch.gather(one, one)] == [True, True]

    run(main())


@patient
def test_gather_raises_the_first_error_at_once(run: Run) -> None:
    async def main() -> None:
        with meanwhile(0.6):
            slow = held(0.6)
            with pytest.raises(RuntimeError, match=FAILURE):
                await dtorch.gather(slow, failing(0.01))
        with pytest.raises(RuntimeError, match=FAILURE):  # failed before the gather
            bad = failing(0.0)
            await asyncio.sleep(0.05)
            await dtorch.gather(slow, bad)
        await slow

    run(main())


@patient
def test_gather_makes_no_tasks(run: Run) -> None:
    async def main() -> None:
        with meanwhile(0.1):
            waiting = asyncio.ensure_future(dtorch.gather(*(held(0.1) for _ in range(100))))
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == 2  # this one and the one that waits
        assert len(await waiting) == 100

    run(main())


@patient
def test_gather_cancelled(run: Run) -> None:
    async def main() -> None:
        with meanwhile(0.02):
            tensors = [held(0.05), held(0.02)]
            waiting = asyncio.ensure_future(dtorch.gather(*tensors))
            await asyncio.sleep(0)
            waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await dtorch.gather(*tensors)

    run(main())


def test_gather_is_also_torchs_op() -> None:
    x = dtorch.tensor([[1.0, 2.0], [3.0, 4.0]])
    index = dtorch.tensor([[0, 0], [1, 0]])
    assert dtorch.gather(x, 1, index).tolist() == [[1.0, 1.0], [4.0, 3.0]]
    assert dtorch.gather(x, dim=1, index=index).tolist() == [[1.0, 1.0], [4.0, 3.0]]


@pytest.mark.parametrize("bad", [(1,), ([1, 2],), ("x", "y"), (None,)])
def test_gather_refuses_what_is_no_tensor(bad: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=r"must be a dtorch\.Tensor"):
        dtorch.gather(*bad)


# --- the iterator itself -----------------------------------------------------------------------


@patient
def test_iterator_can_be_driven_by_hand(run: Run) -> None:
    async def main() -> None:
        ready = dtorch.ones(1)
        iterator = ready.__await__()
        assert iter(iterator) is iterator
        with pytest.raises(StopIteration) as stop:
            next(iterator)
        assert stop.value.value is ready
        with pytest.raises(RuntimeError, match="already awaited"):
            next(iterator)

        with meanwhile(0.2):
            pending = held(0.2)
            iterator = pending.__await__()
            future = iterator.send(None)
            assert asyncio.isfuture(future)
            assert future.get_loop() is asyncio.get_running_loop()
            with pytest.raises(RuntimeError, match="wasn't used with"):
                next(iterator)
            iterator.close()
            iterator = pending.__await__()
            next(iterator)
            with pytest.raises(KeyError, match="thrown"):
                iterator.throw(KeyError("thrown"))
        with pytest.raises(TypeError, match="exceptions must be classes"):
            pending.__await__().throw(1)
        await pending

    run(main())


@patient
def test_generator_based_coroutine(run: Run) -> None:
    """What `yield from` in Python does: its calls go through send, throw and close."""

    class Wrapped:
        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

        def __await__(self) -> Any:
            return (yield from self.tensor.__await__())

    async def wait(t: Any) -> Any:
        return await Wrapped(t)

    async def main() -> None:
        t = held(0.02)
        assert (await Wrapped(t)) is t
        with meanwhile(0.3):
            task = asyncio.ensure_future(wait(held(0.3)))
            await asyncio.sleep(0)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(RuntimeError, match=FAILURE):
            await Wrapped(failing(0.01))

    run(main())
