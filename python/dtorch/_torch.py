"""The one place where torch and numpy are imported, and only when something of theirs is needed.

torch takes a second to import: doing that inside a running event loop stops the loop, so it warns.
``dtorch.preload()`` does it early.
"""

from __future__ import annotations

import sys
from asyncio.events import _get_running_loop
from typing import Any

_torch: Any = None  # the module, once imported
_absent = False  # torch is not installed

DTYPES = (
    "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 "
    "int short long half float double"
).split()
"""Names of dtypes that are attributes of dtorch."""

OBJECTS = (
    "dtype device layout memory_format finfo iinfo strided preserve_format contiguous_format "
    "channels_last"
).split()
"""Other objects of torch's type system that are attributes of dtorch."""

_ALIASES = {
    "int": "int32",
    "short": "int16",
    "long": "int64",
    "half": "float16",
    "float": "float32",
    "double": "float64",
}


def get() -> Any:
    """The module torch, imported now if need be; None where it is not installed."""
    global _torch, _absent
    if _torch is None and not _absent:
        if "torch" not in sys.modules:
            if _get_running_loop() is not None:
                _warn()
            from importlib.util import find_spec

            if find_spec("torch") is None:
                _absent = True
                return None
        import torch

        _torch = torch
    return _torch


def _warn() -> None:
    import warnings

    from . import _C

    if _C.get_blocking_policy() == "allow":
        return
    warnings.warn(
        "torch is imported inside a running event loop, which stops the loop for about a second; "
        "call dtorch.preload() before the loop starts",
        _C.BlockingWarning,
        stacklevel=4,
    )


def preload() -> bool:
    """Imports torch now, where it is installed, so that no later call has to; is it there?"""
    return get() is not None


def need(what: str) -> Any:
    """The module torch; RuntimeError naming `what` where it is not installed."""
    torch = get()
    if torch is None:
        raise RuntimeError(f"{what} needs torch, which is not installed")
    return torch


def dtype_object(name: str) -> Any:
    """torch's dtype called `name`, or a stand-in where torch is not installed."""
    torch = get()
    if torch is not None:
        return getattr(torch, name)
    from . import _dtypes

    return _dtypes.by_name(_ALIASES.get(name, name))


def lazy_attribute(name: str) -> Any:
    """An attribute of dtorch that is torch's own object; AttributeError when there is none."""
    if name in DTYPES:
        return dtype_object(name)
    torch = get()
    if torch is not None:
        if name in OBJECTS or isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
    elif name in OBJECTS:
        from . import _dtypes

        return getattr(_dtypes, name)
    raise AttributeError(f"module 'dtorch' has no attribute {name!r}")


_cpu: Any = None


def cpu_device() -> Any:
    """torch.device("cpu")."""
    global _cpu
    if _cpu is None:
        _cpu = lazy_attribute("device")("cpu")
    return _cpu


_cuda: Any = None


def cuda_device() -> Any:
    """torch.device("cuda"), without an index: of a tensor on a mesh of GPUs."""
    global _cuda
    if _cuda is None:
        _cuda = lazy_attribute("device")("cuda")
    return _cuda


def strided_layout() -> Any:
    """torch.strided."""
    return lazy_attribute("strided")


def split_device(device: Any) -> tuple[str, int | None]:
    """Type and index of "cuda:1", of a device object, or of a number (a GPU's)."""
    if isinstance(device, str):
        if device in ("cpu", "cuda"):
            return device, None
        device = lazy_attribute("device")(device)  # an unknown type raises here
    if hasattr(device, "type") and isinstance(device.type, str):
        return device.type, device.index
    if isinstance(device, bool) or not isinstance(device, int):
        raise TypeError(
            f"device must be a torch.device, a str or None, not {type(device).__name__}"
        )
    return "cuda", device


def check_device(device: Any) -> None:
    """Accepts None, "cpu", "cpu:0" and device objects for the CPU; an error for all others."""
    if device is None or device == "cpu" or split_device(device)[0] == "cpu":
        return
    raise RuntimeError(f"device {device!s} is not supported: this build of dtorch has only 'cpu'")


def check_layout(layout: Any) -> None:
    """Accepts None and torch.strided."""
    if layout is not None and str(layout) != "torch.strided":
        raise NotImplementedError(f"layout {layout} is not supported; only torch.strided is")


def asarray(buffer: Any) -> Any:
    """A numpy array over an object with the buffer protocol."""
    try:
        import numpy
    except ImportError:
        raise RuntimeError("Numpy is not available") from None
    return numpy.asarray(buffer)


def from_dlpack_function() -> Any:
    """What makes a torch.Tensor of a DLPack capsule."""
    need("to_torch()")
    from torch.utils.dlpack import from_dlpack

    return from_dlpack
