"""GPUs, as far as there are any: how many, and which one is the current one.

Simulated ones (see dtorch.distributed_spec) count. The current device says whose part of a tensor
on a mesh ``to_torch()`` and ``to_local()`` give. It belongs to the context, as a context variable
does: a task takes along what was set when it was started.
"""

from __future__ import annotations

from typing import Any

from . import _C, _torch
from .distributed_spec import device_count as _count

__all__ = ["current_device", "device", "device_count", "is_available", "set_device"]


def device_count() -> int:
    """How many GPUs there are."""
    return _count("cuda")


def is_available() -> bool:
    """Whether there is a GPU."""
    return device_count() > 0


def current_device() -> int:
    """The number of the current GPU, 0 unless another one was set; RuntimeError without GPUs."""
    _need(0)
    return int(_C.current_device())


def set_device(device: Any) -> None:
    """Makes a GPU ("cuda:1", a device object, or its number) the current one."""
    _C.set_current_device(_number(device))


class device:
    """``with dtorch.cuda.device(1):`` makes a GPU the current one inside the block."""

    __slots__ = ("_before", "idx")

    def __init__(self, device: Any) -> None:
        self.idx = _number(device)
        self._before: list[int] = []

    def __enter__(self) -> device:
        self._before.append(_C.set_current_device(self.idx))
        return self

    def __exit__(self, *exception: object) -> None:
        _C.set_current_device(self._before.pop())


def _number(device: Any) -> int:
    kind, index = _torch.split_device(device)
    if kind != "cuda":
        raise ValueError(f"a CUDA device is needed, not {device!s}")
    return _need(int(_C.current_device()) if index is None else index)


def _need(number: int) -> int:
    count = device_count()
    if count == 0:
        raise RuntimeError("there is no CUDA device, and none is simulated")
    if not 0 <= number < count:
        raise RuntimeError(f"there is no CUDA device {number}: there are {count}")
    return number
