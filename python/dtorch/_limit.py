"""limit(): a bound on the operations in flight, with waiting instead of errors; priority()."""

from __future__ import annotations

import asyncio
from types import TracebackType

from . import _C


class Limit:
    """What dtorch.limit(n) makes: an async context manager that tasks, loops and threads share."""

    __slots__ = ("__weakref__", "_core")

    def __init__(self, n: int) -> None:
        self._core = _C._Limit(n)

    @property
    def n(self) -> int:
        """How many operations may be in flight before one has to wait."""
        return int(self._core.n)

    @property
    def in_flight(self) -> int:
        """Operations that were called under this limit and have not ended yet."""
        return int(self._core.in_flight)

    async def room(self) -> None:
        """Waits, in turn, until fewer than n operations are in flight."""
        place = self._core.request()
        if place is None:
            return
        try:
            await place
        except BaseException:
            place.leave()
            raise
        # The place is kept until this step ends: what is called in it is counted by then.
        asyncio.get_running_loop().call_soon(place.leave)

    async def __aenter__(self) -> Limit:
        await self.room()
        self._core.enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._core.exit()

    def __repr__(self) -> str:
        return f"<dtorch.limit {self.in_flight} of {self.n} in flight>"


def limit(n: int) -> Limit:
    """``async with dtorch.limit(8) as lim:`` bounds what is in flight by waiting, not by errors.

    Entering the block waits, in the order of arrival, until fewer than n operations of this limit
    are in flight, and so does ``await lim.room()`` inside it. Operations called in the block, and
    in tasks started in it, count until they have ended; those that are computed at the call never
    do. Limits nest: an operation counts in each of them. Make one, and share it::

        lim = dtorch.limit(8)

        async def request(x):
            async with lim:  # at most 8 of these products at any time
                y = x @ w
            return await y

    Calls themselves never wait or fail because of a limit. So the bound holds between two waits: a
    block that calls k operations without ``await lim.room()`` in between can pass it by k - 1, and
    threads that enter at the same moment by one each.

    Args:
        n: at least 1.
    """
    return Limit(n)


class priority:
    """``with dtorch.priority("bulk"):`` says how urgent the operations called inside are.

    The levels are "interactive", "normal" (the default) and "bulk": of what is ready to run, the
    more urgent starts first; what runs already goes on, and bulk work is held up for a bounded time
    only. The level belongs to the context, as a context variable does: tasks started inside take it
    along, other tasks do not see it. Blocks nest.
    """

    __slots__ = ("level",)

    def __init__(self, level: str) -> None:
        _C._priority_check(level)
        self.level = level

    def __enter__(self) -> priority:
        _C._priority_enter(self.level)
        return self

    def __exit__(self, *exception: object) -> None:
        _C._priority_leave()

    def __repr__(self) -> str:
        return f"dtorch.priority({self.level!r})"
