"""Tensors that are not computed yet, for tests of awaiting: without work, for a given time.

A test that needs them to be pending still when it has done something says so with ``meanwhile``
and is ``patient``: on a machine so busy that the time was over first, it starts anew with more.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import dtorch
from dtorch import _C

STRETCHES = (1, 8, 64)
STRETCHED_MAX = 20.0

_stretch = 1


def stretched(seconds: float) -> float:
    return max(seconds, min(seconds * _stretch, STRETCHED_MAX))


def hold(tensor: Any, seconds: float) -> Any:
    """The tensor, pending for that long from now."""
    return _C._hold(tensor, stretched(seconds))


def held(seconds: float, value: float = 7.0) -> Any:
    """Four float32 of a value, pending for that long."""
    return hold(dtorch.full((4,), value, dtype="float32"), seconds)


def failing(seconds: float) -> Any:
    """An integer division by zero, found after that long; reading it is a RuntimeError."""
    zero = hold(dtorch.zeros(2, dtype="int64"), seconds)
    return dtorch.tensor([1, 2]) // zero


class Stalled(Exception):
    """What a test had to do while something was pending took too long to tell anything."""


@contextlib.contextmanager
def meanwhile(seconds: float) -> Iterator[None]:
    """What is held for that long inside the block is pending until its end, or it is Stalled."""
    end = time.monotonic() + stretched(seconds)
    try:
        yield
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        if time.monotonic() >= end:
            raise Stalled from error
        raise
    if time.monotonic() >= end:
        raise Stalled


def patient(test: Callable[..., None]) -> Callable[..., None]:
    """Runs a test that was Stalled again, with longer times for all that is held."""

    @functools.wraps(test)
    def again(*args: Any, **kwargs: Any) -> None:
        global _stretch
        for stretch in STRETCHES:
            _stretch = stretch
            try:
                return test(*args, **kwargs)
            except Stalled:
                if stretch == STRETCHES[-1]:
                    raise
            finally:
                _stretch = 1

    return again


FAILURE = "ZeroDivisionError"
"""The text of failing()'s error, which is torch's."""
