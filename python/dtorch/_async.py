"""Awaiting many tensors at once, and waiting for all work to end."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from . import _C, _functions

DRAIN_PAUSE_S_MAX = 0.02


def gather(*args: Any, **kwargs: Any) -> Any:
    """``a, b = await dtorch.gather(x, y)`` awaits many tensors with one waiter, no task for each.

    Gives the list of the tensors in order; the first error is raised at once, while the others go
    on being computed. Called as torch.gather is, ``gather(input, dim, index)`` with an int for dim,
    it is torch's op.
    """
    if kwargs or (len(args) >= 2 and isinstance(args[1], int)):
        return _functions.gather_along(*args, **kwargs)
    return _C._gather(*args)


async def drain(timeout: float | None = None) -> None:
    """Waits until everything that was submitted has ended, whoever submitted it.

    It looks at the runtime's counters from time to time; to wait for tensors, await them.

    Raises:
        TimeoutError: after ``timeout`` seconds.
    """
    end = None if timeout is None else time.monotonic() + timeout
    pause = 0.0
    while _in_flight() > 0:
        if end is not None:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"drain(): {_in_flight()} tasks left after {timeout} seconds")
            pause = min(pause, left)
        await asyncio.sleep(pause)
        pause = min(2 * pause + 0.0005, DRAIN_PAUSE_S_MAX)


def _in_flight() -> int:
    stats: dict[str, int] = _C._sched_stats()
    return stats["submitted"] - stats["ended"]
