"""deadline(): a limit on the time that the awaits in a block take.

It is asyncio.timeout() where Python has that (3.11). Before, tasks cannot say how often they were
asked to cancel, so Deadline tells its own cancellation from others' by the message that it cancels
with, and leaves a task alone that somebody else is cancelling already: a real cancellation is never
mistaken for a deadline that passed.
"""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager


class Deadline:
    """What asyncio.Timeout is in Python 3.11: when(), reschedule(), expired()."""

    def __init__(self, when: float | None) -> None:
        """``when`` is a time of the running loop's clock, None: never."""
        self._when = when
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.Handle | None = None
        self._marker = object()
        self._left = False
        self._expired = False

    def when(self) -> float | None:
        """When the deadline is, by loop.time(); None: never."""
        return self._when

    def expired(self) -> bool:
        """Whether it passed while the block was running."""
        return self._expired

    def reschedule(self, when: float | None) -> None:
        """Another deadline, by loop.time(); only inside the block and before it passed."""
        if self._task is None:
            raise RuntimeError("the deadline has not been entered")
        if self._left or self._expired:
            raise RuntimeError("the deadline has passed or its block was left")
        self._when = when
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._when is None:
            return
        loop = asyncio.get_running_loop()
        if self._when <= loop.time():
            self._timer = loop.call_soon(self._pass)
        else:
            self._timer = loop.call_at(self._when, self._pass)

    def _pass(self) -> None:
        task: Any = self._task
        self._timer = None
        self._expired = True
        waits_for = task._fut_waiter
        cancelled = waits_for is not None and waits_for.cancelled()
        if not task._must_cancel and not cancelled:
            task.cancel(self._marker)

    async def __aenter__(self) -> Deadline:
        if self._task is not None:
            raise RuntimeError("a deadline can be entered once")
        self._task = asyncio.current_task()
        if self._task is None:
            raise RuntimeError("deadline() works inside a task only")
        self._set_timer()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._left = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if isinstance(error, asyncio.CancelledError) and error.args[:1] == (self._marker,):
            raise TimeoutError from error

    def __repr__(self) -> str:
        state = "expired" if self._expired else "left" if self._left else f"when={self._when}"
        return f"<dtorch.deadline {state}>"


if sys.version_info >= (3, 11):

    def _start(when: float | None) -> Any:
        return asyncio.timeout_at(when)

else:
    _start = Deadline


def deadline(seconds: float | None) -> AbstractAsyncContextManager[Any]:
    """``async with dtorch.deadline(0.5): await t`` raises TimeoutError after half a second.

    What only this await wanted and has not started is put aside; awaiting the tensors again, or
    reading them, computes it after all.
    Deadlines nest. ``None`` sets none. As with asyncio.timeout(), ``as d`` gives ``d.when()``, in
    the loop's time, ``d.reschedule(when)`` and ``d.expired()``.
    """
    when = None if seconds is None else asyncio.get_running_loop().time() + seconds
    context: AbstractAsyncContextManager[Any] = _start(when)
    return context
