"""dtorch: an asyncio-native tensor runtime with PyTorch's API; every tensor is a future.

Calling an op returns at once; ``await`` on any tensor suspends only the coroutine that asked.
dtypes and devices are torch's own objects, fetched when first needed: importing dtorch imports
neither torch nor numpy.
"""

from __future__ import annotations

from typing import Any as _Any

from . import _C, _creation, _functions, _tensor, _torch, cuda, linalg, nn, return_types
from ._async import drain, gather, warmup
from ._config import config, show_config
from ._deadline import deadline
from ._grad import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from ._limit import Limit, limit, priority
from ._profile import profile
from ._redistribute import implicit_redistribute
from ._repr import set_printoptions
from ._size import Size
from ._stats import Histogram, reset_stats, stats
from ._torch import preload
from .distributed_spec import DeviceMesh, Graph

_tensor.attach()

__version__ = _C._version

Tensor = _C.Tensor
inf, nan, pi, e, newaxis = _functions.inf, _functions.nan, _functions.pi, _functions.e, None

# Names defined in C that are part of the package as they are.
_FROM_C = (
    "OutOfMemoryError QueueFullError PlacementError BlockingWarning BlockingError TensorFuture "
    "from_torch from_numpy from_dlpack "
    "set_blocking_policy get_blocking_policy get_priority promote_types can_cast result_type "
    "get_default_dtype set_default_dtype get_num_threads set_num_threads seed initial_seed "
    "memory_stats reset_peak_memory empty_cache set_memory_limit"
).split()

# Names whose module is imported when they are first asked for.
_LAZY = {
    **dict.fromkeys(
        ("load_safetensors", "save_safetensors", "SafetensorsDict", "SafetensorsError"),
        "_safetensors",
    ),
    **dict.fromkeys(("distribute", "column_wise", "row_wise", "vocab_wise"), "_distribute"),
    **dict.fromkeys(("save_checkpoint", "load_checkpoint"), "_checkpoint"),
}


def _export() -> list[str]:
    """Fills the namespace; later sources override earlier ones: rows, composites, aliases."""
    space = globals()
    names = [name for name in _FROM_C if hasattr(_C, name)]
    space.update({name: getattr(_C, name) for name in names})
    space.update(_C.functions)
    for module in (_functions, _creation):
        space.update({name: getattr(module, name) for name in module.FUNCTIONS})
        names += module.FUNCTIONS
    aliases = {alias: space[name] for alias, name in _functions.ALIASES.items() if name in space}
    space.update(aliases)
    return [*names, *_C.functions, *aliases]


__all__ = [
    "DeviceMesh",
    "Graph",
    "Histogram",
    "Limit",
    "Size",
    "Tensor",
    "config",
    "cuda",
    "deadline",
    "drain",
    "e",
    "enable_grad",
    "gather",
    "implicit_redistribute",
    "inf",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "limit",
    "linalg",
    "nan",
    "newaxis",
    "nn",
    "no_grad",
    "pi",
    "preload",
    "priority",
    "profile",
    "reset_stats",
    "return_types",
    "set_grad_enabled",
    "set_printoptions",
    "show_config",
    "stats",
    "warmup",
    *_LAZY,
    *_torch.DTYPES,
    *_torch.OBJECTS,
    *_export(),
]


def __getattr__(name: str) -> _Any:
    """dtypes, device, finfo and the like, torch's own; and what is seldom used."""
    if name.startswith("_"):
        raise AttributeError(f"module 'dtorch' has no attribute {name!r}")
    if name in _LAZY:
        from importlib import import_module

        value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
    else:
        value = _torch.lazy_attribute(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
