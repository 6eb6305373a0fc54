"""Tensors that are not computed yet, for tests of awaiting: without work, for a given time."""

from __future__ import annotations

from typing import Any

import dtorch
from dtorch import _C


def held(seconds: float, value: float = 7.0) -> Any:
    """Four float32 of a value, pending for that long."""
    tensor = dtorch.full((4,), value, dtype="float32")
    return _C._hold(tensor, seconds)


def failing(seconds: float) -> Any:
    """An integer division by zero, found after that long; reading it is a RuntimeError."""
    zero = _C._hold(dtorch.zeros(2, dtype="int64"), seconds)
    return dtorch.tensor([1, 2]) // zero


FAILURE = "ZeroDivisionError"
"""The text of failing()'s error, which is torch's."""
