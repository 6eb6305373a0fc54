"""Blocking on pending tensors: the policy inside a running loop, signals, other threads."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import dtorch
import pytest
from pending import FAILURE, Stalled, failing, held, meanwhile, patient

pytestmark = pytest.mark.notorch

Run = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def default_policy() -> Iterator[None]:
    before = dtorch.set_blocking_policy("warn")
    yield
    dtorch.set_blocking_policy(before)


def interrupt_after(seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


# --- the policy --------------------------------------------------------------------------------


def test_blocking_read_in_a_running_loop_warns(run: Run) -> None:
    """Case 8, second half."""
    place = compile("t.tolist()", f"<place {time.monotonic_ns()}>", "exec")

    async def main() -> None:
        with pytest.warns(dtorch.BlockingWarning, match=r"Tensor\.tolist\(\) waits for a tensor"):
            exec(place, {"t": held(0.1)})

    run(main())


def test_warns_once_for_each_place() -> None:
    """By file, line and instruction, for the life of the process."""

    def read(t: Any) -> float:
        return float(t[0].item())

    async def main() -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                held(0.1)[0].item()
            assert len(caught) == 1
            read(held(0.1))
            read(held(0.1))
            assert len(caught) == 2
            held(0.1)[0].item(), held(0.1)[0].item()  # two places in one line
            assert len(caught) == 4
            held(0.1).tolist()
            assert len(caught) == 5
        assert {w.category for w in caught} == {dtorch.BlockingWarning}
        assert {w.filename for w in caught} == {__file__}
        first = test_warns_once_for_each_place.__code__.co_firstlineno
        assert [w.lineno - first for w in caught] == [10, 4, 15, 15, 17]
        assert "item" in str(caught[0].message)
        assert "await the tensor first" in str(caught[0].message)

    asyncio.run(main())


def test_no_warning_where_nothing_blocks(run: Run) -> None:
    async def main() -> None:
        assert dtorch.ones(1).item() == 1.0
        t = held(0.1)
        await t
        t.tolist()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(main())
        held(0.1).tolist()  # no loop runs here


def test_error_and_allow(run: Run) -> None:
    async def main() -> None:
        assert dtorch.set_blocking_policy("error") == "warn"
        for _ in range(2):
            with pytest.raises(dtorch.BlockingError, match="await the tensor first"):
                held(0.1).tolist()
        assert dtorch.ones(1).tolist() == [1.0]
        assert dtorch.set_blocking_policy("allow") == "error"
        assert dtorch.get_blocking_policy() == "allow"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert held(0.1).tolist() == [7.0] * 4

    run(main())


def test_warning_as_error_is_raised_each_time(run: Run) -> None:
    async def main() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                with pytest.raises(dtorch.BlockingWarning):
                    held(0.1).tolist()

    run(main())


@pytest.mark.parametrize("bad", ["loud", "", None, 1])
def test_unknown_policy(bad: Any) -> None:
    with pytest.raises(ValueError, match="'allow', 'warn' or 'error'"):
        dtorch.set_blocking_policy(bad)
    assert dtorch.get_blocking_policy() == "warn"


@patient
def test_other_threads_run_during_a_wait() -> None:
    ticks = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal ticks
        while not stop.wait(0.001):
            ticks += 1

    thread = threading.Thread(target=count)
    thread.start()
    held(0.2).tolist()
    stop.set()
    thread.join()
    if ticks <= 10:
        raise Stalled


def test_failure_is_raised_by_a_blocking_read() -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match=FAILURE):
            failing(0.01).tolist()


# --- signals -----------------------------------------------------------------------------------


@patient
def test_ctrl_c_ends_a_blocking_wait() -> None:
    with meanwhile(3.0):
        t = held(3.0)
        with pytest.raises(KeyboardInterrupt):
            interrupt_after(0.05)
            t.tolist()


@patient
def test_other_signal_handlers_run_during_a_wait() -> None:
    seen: list[bool] = []
    t = held(0.2)
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(t.is_ready()))
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        t.tolist()
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    if seen != [False]:
        raise Stalled


@patient
def test_handler_that_raises_ends_a_wait() -> None:
    def handler(*_: Any) -> None:
        raise LookupError("from the handler")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with meanwhile(3.0), pytest.raises(LookupError, match="from the handler"):
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            held(3.0).tolist()
    finally:
        signal.signal(signal.SIGUSR1, before)


@patient
def test_ctrl_c_under_a_runner(run: Run) -> None:
    """From 3.11 on the handler of asyncio.run cancels the task and raises nothing by itself."""
    dtorch.set_blocking_policy("allow")
    inside: list[type[BaseException]] = []

    async def main() -> None:
        t = held(3.0)
        interrupt_after(0.1)
        try:
            t.tolist()
        except BaseException as error:
            inside.append(type(error))
            raise

    with meanwhile(3.0), pytest.raises(KeyboardInterrupt):
        run(main())
    expected = asyncio.CancelledError if sys.version_info >= (3, 11) else KeyboardInterrupt
    assert inside == [expected]


@patient
def test_ctrl_c_during_an_await(run: Run) -> None:
    async def main() -> None:
        interrupt_after(0.1)
        await held(3.0)

    with meanwhile(3.0), pytest.raises(KeyboardInterrupt):
        run(main())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="3.10 does not count requests to cancel")
def test_a_cancel_from_before_does_not_end_a_wait(run: Run) -> None:
    """Only a request that came during the wait does: this task cancelled itself earlier."""
    dtorch.set_blocking_policy("allow")

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        assert held(0.1).tolist() == [7.0] * 4
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(1)

    run(main())
