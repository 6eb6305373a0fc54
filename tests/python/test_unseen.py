"""Failures that nobody awaited or read: each is logged once, when its last tensor is gone."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import dtorch
import pytest
from dtorch import _C
from pending import FAILURE, failing, meanwhile, patient

pytestmark = pytest.mark.notorch

Run = Callable[[Any], Any]


def here() -> Any:
    """A failure of the inline lane."""
    return dtorch.tensor([1, 2]) // dtorch.zeros(2, dtype="int64")


def later() -> Any:
    """A failure of a worker; what is dropped before it is computed does not fail."""
    t = failing(0.01)
    ended = _C._drain()
    while not ended.done():
        time.sleep(0.001)
    return t


@pytest.fixture(params=[here, later])
def fail(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(autouse=True)
def nothing_left_by_other_tests() -> Iterator[None]:
    collect()
    yield
    collect()


def collect() -> None:
    """Until every op has ended and its error is gone or kept by a tensor."""
    gc.collect()
    assert _C._drain().get(30) is True
    time.sleep(0.02)  # the controller lets go of a task just after it has ended
    dtorch.empty_cache()  # empties the graveyard


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    collect()
    records = [r for r in caplog.records if r.name == "dtorch"]
    assert all(r.levelno == logging.ERROR for r in records)
    return [r.getMessage() for r in records]


def test_dropped(caplog: pytest.LogCaptureFixture, fail: Any) -> None:
    fail()
    (text,) = texts(caplog)
    assert FAILURE in text
    assert "RuntimeError" in text
    assert "never awaited or read" in text


def test_not_before_it_dies(caplog: pytest.LogCaptureFixture, fail: Any) -> None:
    t = fail()
    assert texts(caplog) == []
    del t
    assert len(texts(caplog)) == 1
    assert len(texts(caplog)) == 1


READS: dict[str, Callable[[Any], Any]] = {
    "tolist": lambda t: t.tolist(),
    "item": lambda t: t.sum().item(),
    "get": lambda t: t.to_torch_async().get(),
}


@pytest.mark.parametrize("read", READS)
def test_read(caplog: pytest.LogCaptureFixture, fail: Any, read: str) -> None:
    t = fail()
    with pytest.raises(RuntimeError, match=FAILURE):
        READS[read](t)
    del t
    assert texts(caplog) == []


def test_exception_of_a_future(caplog: pytest.LogCaptureFixture, fail: Any) -> None:
    future = fail().to_torch_async()
    assert _C._drain().get(30) is True
    assert FAILURE in str(future.exception())
    del future
    assert texts(caplog) == []


def test_awaited(run: Run, caplog: pytest.LogCaptureFixture, fail: Any) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=FAILURE):
            await fail()

    run(main())
    assert texts(caplog) == []


def test_in_a_loop(run: Run, caplog: pytest.LogCaptureFixture, fail: Any) -> None:
    async def main() -> None:
        fail()
        assert await dtorch.drain() is True
        await asyncio.sleep(0.05)

    run(main())
    assert len(texts(caplog)) == 1


def test_dependents_share_it(caplog: pytest.LogCaptureFixture, fail: Any) -> None:
    t = fail()
    chain = [t, t + 1, (t + 1) * 2]
    for _ in range(20):
        chain.append(chain[-1] + 1)
    future = t.to_torch_async()
    del t
    assert texts(caplog) == []
    del future
    while chain:
        assert texts(caplog) == []
        chain.pop()
    assert len(texts(caplog)) == 1


def test_dependents_that_are_seen(caplog: pytest.LogCaptureFixture, fail: Any) -> None:
    t = fail()
    end = (t + 1) * 2
    with pytest.raises(RuntimeError, match=FAILURE):
        end.tolist()
    del t, end
    assert texts(caplog) == []


def test_gather_sees_the_first_of_two(
    run: Run, caplog: pytest.LogCaptureFixture, fail: Any
) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=FAILURE):
            await dtorch.gather(fail(), fail())

    run(main())
    assert len(texts(caplog)) == 1  # of the other one


@patient
def test_cancelled_await(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with meanwhile(0.1), pytest.raises(TimeoutError):
            async with dtorch.deadline(0.01):
                await failing(0.1)

    run(main())
    assert texts(caplog) == []  # nobody could see it any more, so it was not computed


@patient
def test_dropped_before_it_is_computed(caplog: pytest.LogCaptureFixture) -> None:
    before = _C._sched_stats()["dropped"]
    with meanwhile(0.05):
        failing(0.05)
    assert texts(caplog) == []
    assert _C._sched_stats()["dropped"] == before + 1


def test_dropped_in_another_thread(caplog: pytest.LogCaptureFixture, fail: Any) -> None:
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    assert len(texts(caplog)) == 1


def test_an_error_under_way_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyError, match="mine"):
        try:
            t = here()
            raise KeyError("mine")
        finally:
            del t
            dtorch.empty_cache()
    assert len(texts(caplog)) == 1


def test_a_handler_that_fails_or_uses_dtorch(caplog: pytest.LogCaptureFixture) -> None:
    sums = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            sums.append(dtorch.ones(3).sum().item())
            if len(sums) == 1:
                here()  # one more failure, inside the burial of the first
            raise ValueError("from the handler")

    unraisable = []
    handler = Handler()
    logger = logging.getLogger("dtorch")
    logger.addHandler(handler)
    hook, sys.unraisablehook = sys.unraisablehook, unraisable.append
    try:
        here()
        collect()
    finally:
        sys.unraisablehook = hook
        logger.removeHandler(handler)
    assert sums == [3.0, 3.0]
    assert [type(u.exc_value) for u in unraisable] == [ValueError] * 2


def test_without_handlers_it_goes_to_stderr_and_not_at_exit() -> None:
    # What is registered before the import runs after dtorch's own shutdown.
    code = """
import atexit
@atexit.register
def late():
    kept.clear()
    dtorch.empty_cache()
import dtorch
def fail(): return dtorch.tensor([1]) // dtorch.tensor([0])
fail()
dtorch.empty_cache()
kept = [fail()]
cycle = [fail()]; cycle.append(cycle)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=50,
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1, done.stderr
    assert FAILURE in done.stderr
