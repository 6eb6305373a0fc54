"""Awaiting many tensors at once, and waiting for all work to end."""

from __future__ import annotations

from typing import Any

from . import _C, _creation, _functions, _torch
from ._deadline import deadline


def gather(*args: Any, **kwargs: Any) -> Any:
    """``a, b = await dtorch.gather(x, y)`` awaits many tensors with one waiter, no task for each.

    Gives the list of the tensors in order; the first error is raised at once, while the others go
    on being computed. Called as torch.gather is, ``gather(input, dim, index)`` with an int for dim,
    it is torch's op.
    """
    if kwargs or (len(args) >= 2 and isinstance(args[1], int)):
        return _functions.gather_along(*args, **kwargs)
    return _C._gather(*args)


async def drain(timeout: float | None = None) -> bool:
    """Waits until everything submitted before the call has ended, well or not, whoever did it.

    What is submitted meanwhile is not waited for; errors stay with their tensors.

    Returns:
        True, or False when some of it has not ended after ``timeout`` seconds (None: no limit).
    """
    ended = _C._drain()
    if timeout is None or ended.done():
        await ended
        return True
    try:
        async with deadline(timeout):
            await ended
    except TimeoutError:
        return bool(ended.done())
    return True


def warmup(*, torch: bool = False) -> Any:
    """Does at once what the first request would pay for: ``await dtorch.warmup()``.

    Starts the threads and the I/O ring, ties the running loop to them, and sends small operations
    through the workers. Call it in the loop that will serve, before it does; calling it again does
    no harm. Where no loop runs, ``dtorch.warmup().get()`` waits.

    Args:
        torch: also imports torch, which stops the caller for a second or two (see preload()).

    Returns:
        A TensorFuture: True once that work, and what was submitted before, has ended.
    """
    if torch:
        _torch.preload()
    _C._warm()
    size = 256  # large enough for the pool
    x = _creation.ones(size, size, dtype="float32")
    _C._hold((x @ x).sum(), 0.0)  # the ring's timer
    return _C._drain()
