"""redistribute and its kin: a tensor's value under other placements, or on other devices.

The core plans the way and runs it (``collectives/`` of the sources); here are the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from . import _C, _dist
from .distributed_spec import DeviceMesh, Placement, Placements, Replicate, from_codes, mesh_by_id

Tensor = _C.Tensor

_MODES = ("keep", "replicate", "raise_error")


# ---- where to ------------------------------------------------------------------------------------


def _target_mesh(tensor: Any, device_mesh: Any, function: str) -> DeviceMesh:
    if device_mesh is None:
        return _dist.device_mesh(tensor)
    if not isinstance(device_mesh, DeviceMesh):
        raise TypeError(
            f"{function}(): device_mesh must be a DeviceMesh or None (the tensor's own), not "
            f"{type(device_mesh).__name__}"
        )
    return device_mesh


class _Target(NamedTuple):
    number: int | None  # None: on no mesh
    codes: tuple[int, ...]


def _target(tensor: Any, device_mesh: Any, placements: Any, function: str) -> _Target:
    if device_mesh is None and placements is None:
        raise TypeError(f"{function}(): give device_mesh, placements, or both")
    mesh = _target_mesh(tensor, device_mesh, function)
    codes = mesh._codes(placements, tensor.ndim)
    return _Target(None, codes) if mesh._is_plain else _Target(mesh._id, codes)


# ---- the methods ---------------------------------------------------------------------------------


def redistribute(self: Any, device_mesh: Any = None, placements: Any = None) -> Any:
    """The same value, placed otherwise; asynchronous: await the result, or use it at once.

    Args:
        device_mesh: the DeviceMesh to go to. Default: the tensor's own.
        placements: one of Shard, Replicate and Partial for each dim of that mesh. Default: all
            Replicate.

    Returns:
        The tensor itself where nothing changes, else one that shares no bytes with it.

    The way is the one that moves fewest bytes, see ``distributed_spec.explain``. A value that
    becomes Partial counts once: sum and product keep it at coordinate 0, avg, min and max repeat
    it.

    Raises:
        TypeError: neither argument is given, or one is of another type.
        ValueError: placements that do not fit the mesh or the tensor.
        PlacementError: an average of integers.
    """
    return _C.redistribute(self, *_target(self, device_mesh, placements, "redistribute"))


def redistribute_like(self: Any, tensor: Any) -> Any:
    """The same value on the mesh of `tensor`, placed like it; `tensor` may have another shape.

    Raises:
        TypeError: `tensor` is no Tensor.
        ValueError: it is cut along a dim that this one does not have.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"redistribute_like() takes a Tensor, not {type(tensor).__name__}")
    mesh, placements = _dist.device_mesh(tensor), _dist.placements(tensor)
    return _C.redistribute(self, *_target(self, mesh, placements, "redistribute_like"))


def redistribute_by_dict(
    self: Any,
    device_mesh: Any = None,
    placements_dict: Any = None,
    default_placement_mode: str = "keep",
) -> Any:
    """As redistribute(), with placements by the names of mesh dims.

    Args:
        device_mesh: the DeviceMesh to go to, which must have names. Default: the tensor's own.
        placements_dict: mesh dim name -> Shard, Replicate or Partial.
        default_placement_mode: of mesh dims that are not named there. "keep": what the tensor has
            along the dim of that name; "replicate": Replicate; "raise_error": an error.

    Raises:
        TypeError: an argument of another type.
        ValueError: a mesh without names, a name that it does not have, a mode that there is not, a
            mesh dim that is not named under "raise_error", or that has nothing to keep.
    """
    mesh = _target_mesh(self, device_mesh, "redistribute_by_dict")
    names = mesh.mesh_dim_names
    if names is None:
        raise ValueError(
            f"redistribute_by_dict(): the dims of {mesh!r} have no names: make it with "
            "mesh_dim_names=, or use redistribute()"
        )
    if not isinstance(placements_dict, Mapping):
        raise TypeError(
            "redistribute_by_dict(): placements_dict must map names of mesh dims to placements, "
            f"not {type(placements_dict).__name__}"
        )
    if default_placement_mode not in _MODES:
        raise ValueError(
            "redistribute_by_dict(): default_placement_mode must be 'keep', 'replicate' or "
            f"'raise_error', not {default_placement_mode!r}"
        )
    for name in placements_dict:
        if name not in names:
            raise ValueError(
                f"redistribute_by_dict(): placements_dict names {name!r}, but the dims of {mesh!r} "
                f"are {', '.join(map(repr, names))}"
            )
    found = [
        placements_dict[name]
        if name in placements_dict
        else _default(self, name, default_placement_mode)
        for name in names
    ]
    return redistribute(self, mesh, found)


def _default(tensor: Any, name: str, mode: str) -> Placement:
    if mode == "replicate":
        return Replicate()
    if mode == "raise_error":
        raise ValueError(
            f"redistribute_by_dict(): placements_dict says nothing of mesh dim {name!r}, and "
            "default_placement_mode is 'raise_error'"
        )
    own = _dist.device_mesh(tensor)
    if own.mesh_dim_names is None or name not in own.mesh_dim_names:
        raise ValueError(
            f"redistribute_by_dict(): there is nothing to keep for mesh dim {name!r}, which the "
            f"tensor's mesh {own!r} does not have: name it in placements_dict, or give "
            "default_placement_mode='replicate'"
        )
    placement: Placement = _dist.placements(tensor)[own.mesh_dim_names.index(name)]
    return placement


METHODS = (redistribute, redistribute_like, redistribute_by_dict)


# ---- plans ---------------------------------------------------------------------------------------


class Step(NamedTuple):
    """One step of a plan: a collective along some mesh dims, or something local."""

    name: str
    """cut, keep_once, pad (local); all_gather, reduce_scatter, all_reduce, all_to_all, exchange,
    broadcast, scatter, gather."""
    mesh_dims: tuple[int, ...]
    bytes: int
    """Received by the device that receives most."""
    device_mesh: DeviceMesh
    placements: Placements
    """Afterwards."""


class Plan(NamedTuple):
    """What a redistribute does; ``str()`` says it in a few lines."""

    text: str
    steps: tuple[Step, ...]
    bytes: int
    """Of all steps: received by the device that receives most."""
    memory: int
    """Bytes that a device needs in between, beside source and result."""
    pieces: int
    """In how many pieces it runs one after the other, to keep to redistribute_memory()."""

    def __str__(self) -> str:
        return self.text


def explain(tensor: Any, device_mesh: Any = None, placements: Any = None) -> Plan:
    """See ``distributed_spec.explain``."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"explain() takes a Tensor, not {type(tensor).__name__}")
    target = _target(tensor, device_mesh, placements, "explain")
    text, steps, size, memory, pieces = _C.redistribute_plan(tensor, *target)
    made = tuple(
        Step(name, dims, moved, mesh_by_id(number), from_codes(codes))
        for name, dims, moved, number, codes in steps
    )
    return Plan(text, made, size, memory, pieces)


# ---- implicit ------------------------------------------------------------------------------------


class implicit_redistribute:
    """Inside this block, ops whose inputs are placed illegally redistribute them, and do not raise.

    It belongs to the context, as a context variable does: other coroutines go on raising. The
    cheapest legal redistribute is inserted; ``count`` says how many were.

        with dtorch.implicit_redistribute() as inserted:
            y = model(x)
        print(inserted.count)
    """

    _open = 0  # blocks in all contexts

    def __init__(self) -> None:
        self.count = 0
        self._tokens: list[Any] = []

    def _inserted(self) -> None:
        self.count += 1

    def __enter__(self) -> implicit_redistribute:
        self._tokens.append(_C._implicit_block.set(self))
        implicit_redistribute._open += 1
        _C._set_implicit_redistribute(True)
        return self

    def __exit__(self, *exception: object) -> None:
        _C._implicit_block.reset(self._tokens.pop())
        implicit_redistribute._open -= 1
        _C._set_implicit_redistribute(implicit_redistribute._open > 0)
