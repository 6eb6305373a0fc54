"""What all Python tests share: markers, a time limit for each test, event loops, torch or not.

- ``@pytest.mark.notorch`` (or ``pytestmark = pytest.mark.notorch``): the test needs no torch. Only
  such tests run where torch is not installed; all others are skipped there with a reason. A file
  with a module-level ``import torch`` is left out there as a whole, and the summary says so.
- ``@pytest.mark.timeout(seconds)``: another limit than TEST_SECONDS_MAX.
- ``run(main())``: runs a coroutine on a fresh event loop; the test is run on asyncio and uvloop.
- ``simulated``: eight devices of each type are simulated; see dtorch.distributed_spec.
- ``loop_factory``: the same as a factory of loops, for tests that need several.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import importlib.util
import re
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]

TEST_SECONDS_MAX = 60.0
HAS_TORCH = importlib.util.find_spec("torch") is not None
NO_TORCH = "needs torch, which is not installed in this environment"

_left_out = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_left_out] = []
    config.addinivalue_line("markers", "notorch: the test runs without torch")
    config.addinivalue_line("markers", "timeout(seconds): fail the test after this time")


# --- torch or not ------------------------------------------------------------------------------


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if HAS_TORCH or collection_path.suffix != ".py" or collection_path == Path(__file__):
        return None
    if re.search(r"^(import|from) torch\b", collection_path.read_text(encoding="utf-8"), re.M):
        config.stash[_left_out].append(collection_path.name)
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not HAS_TORCH:
        for item in items:
            if item.get_closest_marker("notorch") is None:
                item.add_marker(pytest.mark.skip(reason=NO_TORCH))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    names = config.stash[_left_out]
    if names:
        terminalreporter.write_line(f"left out ({NO_TORCH}): {', '.join(sorted(names))}")


# --- garbage -----------------------------------------------------------------------------------


def pytest_collection_finish() -> None:
    """Many tests collect garbage, some at every step: not among all that torch and pytest made."""
    gc.collect()
    gc.freeze()


# --- devices -----------------------------------------------------------------------------------


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight devices of each type; the environment is looked at whenever a mesh is made."""
    monkeypatch.setenv("DTORCH_DTENSOR_IN_SAME_DEVICE", "1")
    monkeypatch.delenv("DTORCH_NUM_GPU_WHEN_ENABLE_DTENSOR_IN_SAME_DEVICE", raising=False)


# --- time limit --------------------------------------------------------------------------------


class _Overrun(KeyboardInterrupt):
    """Event loops let a KeyboardInterrupt through; any other exception they log, and go on."""


@contextlib.contextmanager
def _time_limit(item: pytest.Item) -> Iterator[None]:
    """Fails the test when it runs too long in Python; pytest's faulthandler ends one hung in C."""
    marker = item.get_closest_marker("timeout")
    seconds = float(marker.args[0]) if marker else TEST_SECONDS_MAX

    def on_alarm(signum: int, frame: FrameType | None) -> None:
        faulthandler.dump_traceback(sys.__stderr__, all_threads=True)
        raise _Overrun

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _Overrun as overrun:
        raise pytest.fail.Exception(f"the test took longer than {seconds:g} s") from overrun
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with _time_limit(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with _time_limit(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    with _time_limit(item):
        return (yield)


# --- event loops -------------------------------------------------------------------------------


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> LoopFactory:
    """Makes a new event loop; the test is run for each kind of loop."""
    if request.param == "uvloop":
        uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")
        factory: LoopFactory = uvloop.new_event_loop
        return factory
    return asyncio.new_event_loop


@pytest.fixture
def run(loop_factory: LoopFactory) -> Callable[[Coroutine[Any, Any, T]], T]:
    """``run(main())`` runs a coroutine to its end on a fresh loop and closes the loop."""

    def runner(main: Coroutine[Any, Any, T]) -> T:
        if sys.version_info >= (3, 11):
            with asyncio.Runner(loop_factory=loop_factory) as inner:
                return inner.run(main)
        return _run_310(main, loop_factory())

    return runner


def _run_310(main: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """asyncio.Runner for Python 3.10, which does not have it."""
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main)
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        asyncio.set_event_loop(None)
        loop.close()
