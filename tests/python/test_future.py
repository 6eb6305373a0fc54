"""TensorFuture: what to_torch_async() and save_safetensors() return."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import dtorch
import pytest
import torch
from dtorch import _C
from pending import FAILURE, failing, held, meanwhile, patient

Run = Callable[[Any], Any]

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")


@pytest.fixture(autouse=True, scope="module")
def preload() -> None:
    dtorch.preload()


# --- the value ---------------------------------------------------------------------------------


def test_await_gives_a_torch_tensor(run: Run) -> None:
    async def main() -> None:
        future = held(0.02, 3.0).to_torch_async()
        assert isinstance(future, dtorch.TensorFuture)
        value = await future
        assert torch.equal(value, torch.full((4,), 3.0))
        assert (await future) is value is future.result() is future.get()
        ready = dtorch.arange(3).to_torch_async()
        assert ready.done()
        assert torch.equal(await ready, torch.arange(3))

    run(main())


def test_value_is_that_of_the_call(run: Run) -> None:
    """An in-place write after the call does not show, whether the tensor was ready or not."""

    async def main() -> None:
        for t in (held(0.02, 1.0), dtorch.full((4,), 1.0), dtorch.ones(1000, 1000)):
            future = t.to_torch_async()
            t.add_(1)
            value = await future
            assert value.min() == value.max() == 1
            t.add_(1)
            assert value.min() == value.max() == 1
            value.zero_()
            assert (await (await t).sum()).item() == 3 * t.numel()

    run(main())


def test_views_and_strides(run: Run) -> None:
    async def main() -> None:
        x = torch.arange(24.0).reshape(4, 6)
        t = dtorch.tensor(x)
        for got, want in ((t.t(), x.t()), (t[1:3, ::2], x[1:3, ::2]), (t[0, 0], x[0, 0])):
            assert torch.equal(await got.to_torch_async(), want)
        assert (await dtorch.zeros(0, 3).to_torch_async()).shape == (0, 3)

    run(main())


@patient
def test_states(run: Run) -> None:
    async def main() -> None:
        with meanwhile(0.2):
            future = held(0.2).to_torch_async()
            assert (future.done(), future.is_ready(), future.cancelled()) == (False, False, False)
            assert repr(future) == "<TensorFuture pending>"
            with pytest.raises(asyncio.InvalidStateError):
                future.result()
            with pytest.raises(asyncio.InvalidStateError):
                future.exception()
        await future
        assert (future.done(), future.is_ready(), future.cancelled()) == (True, True, False)
        assert future.exception() is None
        assert repr(future) == "<TensorFuture finished>"
        assert not asyncio.isfuture(future)
        assert not hasattr(future, "_asyncio_future_blocking")

    run(main())


def test_failure(run: Run) -> None:
    async def main() -> None:
        future = failing(0.02).to_torch_async()
        errors: list[BaseException] = []
        for _ in range(2):
            with pytest.raises(RuntimeError, match=FAILURE) as caught:
                await future
            errors.append(caught.value)
        errors.append(future.exception())
        assert len({id(e) for e in errors}) == 3
        with pytest.raises(RuntimeError, match=FAILURE):
            future.result()
        with pytest.raises(RuntimeError, match=FAILURE):
            future.get()
        assert repr(future) == "<TensorFuture failed>"
        bad = failing(0.0)
        await asyncio.sleep(0.05)
        with pytest.raises(RuntimeError, match=FAILURE):  # failed before the call
            await bad.to_torch_async()

    run(main())


# --- asyncio's combinators ---------------------------------------------------------------------


@patient
def test_wait(run: Run) -> None:
    async def main() -> None:
        futures = [held(0.01 * i).to_torch_async() for i in range(1, 4)]
        done, left = await asyncio.wait(futures)
        assert (len(done), len(left)) == (3, 0)
        if sys.version_info >= (3, 11):  # 3.10 wraps each in a task
            assert done == set(futures)
        with meanwhile(0.5):
            slow = held(0.5).to_torch_async()
            done, left = await asyncio.wait(
                [held(0.01).to_torch_async(), slow], return_when=asyncio.FIRST_COMPLETED
            )
            assert (len(done), len(left)) == (1, 1)
            done, left = await asyncio.wait(
                [failing(0.01).to_torch_async(), slow], return_when=asyncio.FIRST_EXCEPTION
            )
            assert (len(done), len(left)) == (1, 1)
            done, left = await asyncio.wait([slow], timeout=0.01)
            assert (len(done), len(left)) == (0, 1)
        await slow

    run(main())


@patient
def test_other_combinators(run: Run) -> None:
    async def main() -> None:
        def fresh() -> Any:
            return held(0.01, 5.0).to_torch_async()

        for value in (
            *(await asyncio.gather(fresh(), fresh(), fresh())),
            await asyncio.shield(fresh()),
            await asyncio.wait_for(fresh(), 50),
            await asyncio.ensure_future(fresh()),
            *[await each for each in asyncio.as_completed([fresh(), fresh()])],
        ):
            assert value[0] == 5.0
        with meanwhile(0.3), pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(held(0.3).to_torch_async(), 0.01)
        found = await asyncio.gather(
            fresh(), failing(0.01).to_torch_async(), return_exceptions=True
        )
        assert found[0][0] == 5.0
        assert isinstance(found[1], RuntimeError)

    run(main())


def test_awaited_from_two_threads_and_loops() -> None:
    future = held(0.1).to_torch_async()
    found: list[Any] = []

    async def main() -> None:
        found.append(await future)

    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(3)]
    for t in threads:
        t.start()
    found.append(future.get())
    for t in threads:
        t.join(50)
    assert [x is found[0] for x in found] == [True] * 4


# --- cancel ------------------------------------------------------------------------------------


@patient
def test_cancel(run: Run) -> None:
    async def main() -> None:
        with meanwhile(0.6):
            t = held(0.6)
            future, other = t.to_torch_async(), t.to_torch_async()
            waiting = [asyncio.ensure_future(future) for _ in range(3)]
            called: list[Any] = []
            future.add_done_callback(called.append)
            await asyncio.sleep(0.01)
            assert future.cancel()
            assert not future.cancel()
            assert future.cancelled()
            assert future.done()
            assert repr(future) == "<TensorFuture cancelled>"
            for task in waiting:
                with pytest.raises(asyncio.CancelledError):
                    await task
        await asyncio.sleep(0)
        assert called == [future]
        with pytest.raises(asyncio.CancelledError):
            future.result()
        with pytest.raises(asyncio.CancelledError):
            future.exception()
        with pytest.raises(asyncio.CancelledError):
            future.get()
        assert (await other)[0] == 7  # neither the computation nor anybody else is touched
        assert not other.cancel()

    run(main())


@patient
def test_cancel_while_another_thread_blocks() -> None:
    with meanwhile(2.0):
        future = held(2.0).to_torch_async()
        threading.Timer(0.05, future.cancel).start()
        with pytest.raises(asyncio.CancelledError):
            future.get()


@patient
def test_cancel_message(run: Run) -> None:
    """As asyncio.Future: CancelledError(msg), without arguments where there was no message."""

    async def main() -> None:
        for args, kwargs, wanted in (
            ((), {}, ()),
            ((None,), {}, ()),
            (("why",), {}, ("why",)),
            ((), {"msg": 3}, (3,)),
            (((1, 2),), {}, ((1, 2),)),
        ):
            with meanwhile(0.5):
                future = held(0.5).to_torch_async()
                waiting = asyncio.ensure_future(future)
                await asyncio.sleep(0)
                assert future.cancel(*args, **kwargs) is True
            assert future.cancel("too late") is False
            errors: list[BaseException] = []
            for ask in (future.result, future.exception, future.get):
                with pytest.raises(asyncio.CancelledError) as caught:
                    ask()
                errors.append(caught.value)
            with pytest.raises(asyncio.CancelledError) as caught:
                await future
            errors.append(caught.value)
            assert [e.args for e in errors] == [wanted] * 4
            assert len({id(e) for e in errors}) == 4
            with pytest.raises(asyncio.CancelledError):
                await waiting
        with pytest.raises(TypeError):
            held(0.01).to_torch_async().cancel("a", "b")

    run(main())


def test_cancel_after_done(run: Run) -> None:
    async def main() -> None:
        for future in (dtorch.ones(1).to_torch_async(), held(0.01, 1.0).to_torch_async()):
            assert (await future)[0] == 1
            assert future.cancel("late") is False
            assert not future.cancelled()
            assert future.result()[0] == 1
        bad = failing(0.01).to_torch_async()
        with pytest.raises(RuntimeError, match=FAILURE):
            await bad
        assert bad.cancel() is False
        with pytest.raises(RuntimeError, match=FAILURE):
            bad.result()

    run(main())


def test_cancel_before_the_result_is_delivered(run: Run) -> None:
    """Computed and on its way: cancel() comes too late, and who waits gets the value."""

    async def main() -> None:
        future = held(0.05, 2.0).to_torch_async()
        waiting = asyncio.ensure_future(future)
        await asyncio.sleep(0)
        while not future.done():
            time.sleep(0.001)
        assert future.cancel() is False
        assert (await waiting)[0] == 2

    run(main())


@patient
def test_cancel_from_a_callback_of_its_own(run: Run) -> None:
    async def main() -> None:
        with meanwhile(0.5):
            future = held(0.5).to_torch_async()
            found: list[Any] = []
            future.add_done_callback(lambda f: found.append((f.cancel(), f.cancelled())))
            future.add_done_callback(lambda f: found.append(f.remove_done_callback(print)))
            future.cancel()
        future.add_done_callback(lambda f: found.append(f.cancelled()))
        end = time.monotonic() + 30
        while len(found) < 3 and time.monotonic() < end:
            await asyncio.sleep(0)
        assert sorted(map(str, found)) == ["(False, True)", "0", "True"]

    run(main())


@patient
def test_callbacks_of_a_cancelled_one_have_their_context(run: Run) -> None:
    async def main() -> None:
        with meanwhile(0.5):
            future = held(0.5).to_torch_async()
            seen: list[str] = []
            for name in ("A", "B"):
                variable.set(name)
                future.add_done_callback(lambda _: seen.append(variable.get()))
            variable.set("C")
            future.cancel()
        assert seen == []  # never from inside the call
        end = time.monotonic() + 30
        while len(seen) < 2 and time.monotonic() < end:
            await asyncio.sleep(0)
        assert seen == ["A", "B"]

    run(main())


@patient
def test_task_that_waits_is_cancelled_with_a_message(run: Run) -> None:
    """Task.cancel(msg) reaches the await, of a tensor and of a future, and nobody else's."""

    async def main() -> None:
        with meanwhile(0.8):
            t = held(0.8, 1.0)
            future = t.to_torch_async()
            for make in (lambda: t, lambda: future, lambda: dtorch.gather(t)):

                async def wait(make: Any = make) -> None:
                    try:
                        await make()
                    except asyncio.CancelledError as error:
                        assert error.args == ("why",)
                        raise

                task, other = asyncio.ensure_future(wait()), asyncio.ensure_future(make())
                await asyncio.sleep(0)
                task.cancel("why")
                with pytest.raises(asyncio.CancelledError) as caught:
                    await task
                if sys.version_info >= (3, 11):
                    assert caught.value.args == ("why",)
                assert task.cancelled()
                assert not other.done()
                other.cancel()
        assert not future.cancelled()
        assert (await future)[0] == 1

    run(main())


@patient
def test_cancel_swallowed(run: Run) -> None:
    """A task that goes on after a cancellation can await the same thing again."""

    async def main() -> None:
        async def stubborn() -> Any:
            try:
                await future
            except asyncio.CancelledError:
                return await future

        with meanwhile(0.5):
            future = held(0.5, 4.0).to_torch_async()
            task = asyncio.ensure_future(stubborn())
            await asyncio.sleep(0)
            task.cancel()
        assert (await task)[0] == 4
        if sys.version_info >= (3, 11):
            assert task.cancelling() == 1

    run(main())


@patient
def test_shield_and_wait_for(run: Run) -> None:
    async def main() -> None:
        with meanwhile(0.5):
            future = held(0.5, 5.0).to_torch_async()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(future), 0.001)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(future, 0.001)
            assert not future.cancelled()
            shielded = asyncio.shield(future)
            shielded.cancel()
            with pytest.raises(asyncio.CancelledError):
                await shielded
        assert (await future)[0] == 5
        with meanwhile(2.0):
            gone = held(2.0).to_torch_async()
            shielded = asyncio.shield(gone)
            await asyncio.sleep(0)
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await shielded

    run(main())


@patient
def test_gather_of_a_cancelled_one(run: Run) -> None:
    async def main() -> None:
        with meanwhile(2.0):
            slow, gone = held(0.3, 6.0).to_torch_async(), held(2.0).to_torch_async()
            both = asyncio.gather(slow, gone, return_exceptions=True)
            await asyncio.sleep(0)
            gone.cancel("gone")
        value, error = await both
        assert value[0] == 6
        assert isinstance(error, asyncio.CancelledError)

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.timeout came with 3.11")
@patient
def test_timeouts_nest_and_leave_no_request_to_cancel(run: Run) -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        with meanwhile(0.5), pytest.raises(TimeoutError):
            future = held(0.5).to_torch_async()
            async with asyncio.timeout(50):
                async with asyncio.timeout(0.001):
                    await future
        assert task.cancelling() == 0
        async with asyncio.timeout(50) as outer:
            with meanwhile(0.5), pytest.raises(TimeoutError):
                future = held(0.5, 8.0).to_torch_async()
                async with asyncio.timeout(0.001):
                    await future
            assert (await future)[0] == 8
        assert not outer.expired()
        # The future's own cancellation is no timeout.
        with meanwhile(2.0), pytest.raises(asyncio.CancelledError):
            gone = held(2.0).to_torch_async()
            asyncio.get_running_loop().call_soon(gone.cancel)
            async with asyncio.timeout(50):
                await gone
        assert task.cancelling() == 0

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TaskGroup came with 3.11")
@patient
def test_task_group(run: Run) -> None:
    async def wait(future: Any) -> Any:
        return await future

    async def main() -> None:
        with meanwhile(0.5):
            future, gone = held(0.1, 9.0).to_torch_async(), held(0.5).to_torch_async()
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(wait(f)) for f in (future, gone, future)]
                await asyncio.sleep(0)
                gone.cancel()  # a cancelled child is no failure of the group
        assert [t.cancelled() for t in tasks] == [False, True, False]
        assert tasks[0].result()[0] == 9
        with meanwhile(1.0), pytest.raises(BaseExceptionGroup) as caught:  # noqa: F821
            slow = held(1.0, 1.0).to_torch_async()
            async with asyncio.TaskGroup() as group:
                other = group.create_task(wait(slow))
                group.create_task(wait(failing(0.01).to_torch_async()))
        assert caught.group_contains(RuntimeError, match=FAILURE)
        assert other.cancelled()
        assert not slow.cancelled()
        assert (await slow)[0] == 1

    run(main())


# --- blocking ----------------------------------------------------------------------------------


@patient
def test_get() -> None:
    start = time.monotonic()
    with meanwhile(0.2):
        future = held(0.2).to_torch_async()
        with pytest.raises(TimeoutError):
            future.get(timeout=0.001)
        with pytest.raises(TimeoutError):
            future.get(0)
        with pytest.raises(TimeoutError):
            future.get(-1)
    assert future.get(timeout=50)[0] == 7
    assert future.get()[0] == 7
    assert time.monotonic() - start > 0.1


@pytest.mark.parametrize("bad", ["1", float("nan"), [1]])
def test_get_refuses(bad: Any) -> None:
    future = held(0.01).to_torch_async()
    with pytest.raises((TypeError, ValueError)):
        future.get(bad)
    assert future.get(float("inf"))[0] == 7


# --- callbacks ---------------------------------------------------------------------------------


def test_callbacks_run_in_order_with_their_context(run: Run) -> None:
    """Case 13."""
    seen: list[tuple[int, bool, str]] = []

    async def main() -> None:
        future = held(0.02).to_torch_async()
        variable.set("A")
        future.add_done_callback(lambda f: seen.append((1, f is future, variable.get())))
        other = contextvars.copy_context()
        other.run(variable.set, "B")
        future.add_done_callback(
            lambda f: seen.append((2, f is future, variable.get())), context=other
        )
        variable.set("C")
        await future
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert seen == [(1, True, "A"), (2, True, "B")]
        future.add_done_callback(lambda f: seen.append((3, f is future, variable.get())))
        assert len(seen) == 2  # never from inside the call
        await asyncio.sleep(0)
        assert seen[2:] == [(3, True, "C")]

    run(main())


def test_callback_runs_in_the_thread_of_its_loop(run: Run) -> None:
    async def main() -> None:
        where: list[int] = []
        future = held(0.02).to_torch_async()
        future.add_done_callback(lambda _: where.append(threading.get_ident()))
        await future
        await asyncio.sleep(0.01)
        assert where == [threading.get_ident()]

    run(main())


def test_callback_errors_reach_the_loops_handler(run: Run) -> None:
    reported: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, c: reported.append(c))
        future = held(0.01).to_torch_async()
        future.add_done_callback(lambda _: 1 // 0)
        called: list[Any] = []
        future.add_done_callback(called.append)
        await future
        await asyncio.sleep(0.01)
        assert called == [future]

    run(main())
    assert [type(c["exception"]) for c in reported] == [ZeroDivisionError]


@patient
def test_remove_done_callback(run: Run) -> None:
    async def main() -> None:
        called: list[Any] = []

        class Equal:
            def __call__(self, future: Any) -> None:
                called.append(self)

            def __eq__(self, other: object) -> bool:
                return isinstance(other, Equal)

            def __hash__(self) -> int:
                return 1

        with meanwhile(0.2):
            future = held(0.2).to_torch_async()
            for _ in range(3):
                future.add_done_callback(Equal())
            future.add_done_callback(called.append)
            assert future.remove_done_callback(Equal()) == 3
            assert future.remove_done_callback(Equal()) == 0
        await future
        await asyncio.sleep(0.05)
        assert called == [future]
        assert future.remove_done_callback(called.append) == 0

    run(main())


@patient
def test_removing_while_comparing(run: Run) -> None:
    """An __eq__ that changes the list while it is walked."""

    async def main() -> None:
        class Evil:
            def __call__(self, _: Any) -> None: ...

            def __eq__(self, other: object) -> bool:
                future.remove_done_callback(plain)
                future.add_done_callback(plain)
                return False

            __hash__ = None  # type: ignore[assignment]

        def plain(_: Any) -> None: ...

        with meanwhile(0.3):
            future = held(0.3).to_torch_async()
            for _ in range(3):
                future.add_done_callback(Evil())
                future.add_done_callback(plain)
            with pytest.raises(RecursionError):
                future.remove_done_callback(Evil())
        await future

    run(main())


def test_callback_without_a_loop() -> None:
    future = held(0.03).to_torch_async()
    called: list[Any] = []
    variable.set("outside")
    future.add_done_callback(lambda f: called.append((f, variable.get())))
    variable.set("later")
    deadline = time.monotonic() + 30
    while not called and time.monotonic() < deadline:
        time.sleep(0.001)  # the main thread runs pending calls between its instructions
    assert called == [(future, "outside")]
    future.add_done_callback(lambda f: called.append((f, variable.get())))
    assert called[1:] == [(future, "later")]  # done, no loop: at once


def test_bad_callback_arguments() -> None:
    future = dtorch.ones(1).to_torch_async()
    with pytest.raises(TypeError, match="contextvars"):
        future.add_done_callback(print, context={})
    with pytest.raises(TypeError):
        future.add_done_callback()
    with pytest.raises(TypeError):
        dtorch.TensorFuture()


# --- memory ------------------------------------------------------------------------------------


@patient
def test_pending_future_is_kept_by_its_callback_only(run: Run) -> None:
    async def main() -> None:
        called: list[Any] = []
        with meanwhile(0.3):
            future = held(0.3).to_torch_async()
            future.add_done_callback(lambda f: called.append(f.result()[0].item()))
            kept = weakref.ref(future)
            del future
            gc.collect()
            assert kept() is not None
            dropped = weakref.ref(held(0.3).to_torch_async())
            assert dropped() is None
        while not called:
            await asyncio.sleep(0.001)
        assert called == [7.0]
        gc.collect()
        assert kept() is None

    run(main())


def test_callback_cycle_is_let_go(run: Run) -> None:
    async def main() -> None:
        future = held(0.02).to_torch_async()
        # future -> node -> partial -> future
        future.add_done_callback(functools.partial(lambda *_: None, future))
        kept = weakref.ref(future)
        await future
        await asyncio.sleep(0.01)
        del future
        gc.collect()
        assert kept() is None

    run(main())


@patient
def test_many_waiters_of_one_future(run: Run) -> None:
    async def main() -> None:
        with meanwhile(0.3):  # all must wait before it is done
            future = held(0.3).to_torch_async()
            tasks = [asyncio.ensure_future(future) for _ in range(5000)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(x, asyncio.CancelledError) for x in found[::2])
        assert all(x is found[1] for x in found[1::2])

    run(main())


def test_held_storage_outlives_its_tensor(run: Run) -> None:
    async def main() -> None:
        future = _C._hold(dtorch.full((3,), 2.0), 0.03).to_torch_async()
        gc.collect()
        assert torch.equal(await future, torch.full((3,), 2.0))

    run(main())
