"""Functions of a user's own on a mesh: called once for each device, with what that one holds.

``local_map`` takes the user's word for the placements of the results; ``register_sharding`` makes
an op of a function and a rule that says which placements it takes and gives.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import _C, _dist
from .distributed_spec import (
    DeviceMesh,
    Placement,
    Placements,
    Replicate,
    Shard,
    plain_mesh,
)

Tensor = _C.Tensor

# ---- arguments -----------------------------------------------------------------------------------


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with every tensor in its lists, tuples and dicts changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _map(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_map(item, change) for item in value]
    if isinstance(value, tuple):
        items = (_map(item, change) for item in value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def _tensors(value: Any) -> Iterator[Any]:
    found: list[Any] = []
    _map(value, found.append)
    return iter(found)


def _mesh_of(arguments: Any, mesh: DeviceMesh | None, name: str) -> DeviceMesh | None:
    """The one mesh that the arguments are on; None: they are ordinary tensors."""
    for tensor in _tensors(arguments):
        if _C.dist_spec(tensor) is None:
            continue
        own = _dist.device_mesh(tensor)
        if mesh is not None and (own.device_type, own.mesh) != (mesh.device_type, mesh.mesh):
            raise _C.PlacementError(
                f"{name}: the inputs are on different meshes, {mesh!r} of devices "
                f"{mesh.device_ids} and {own!r} of {own.device_ids}: redistribute() one of them "
                "first"
            )
        mesh = mesh or own
    return mesh


def _call(function: Any, mesh: DeviceMesh, arguments: Any) -> list[Any]:
    """What the function gives for each device's locals; inside, that device is the current one."""
    results = []
    for i in range(mesh.size()):
        args, kwargs = _map(arguments, lambda t, i=i: _local(t, i))  # type: ignore[misc]
        before = _C.current_device()
        if mesh.device_type == "cuda":
            _C.set_current_device(mesh.device_ids[i])
        try:
            with plain_mesh():
                results.append(function(*args, **kwargs))
        finally:
            _C.set_current_device(before)
    return results


def _local(tensor: Any, index: int) -> Any:
    return tensor if _C.dist_spec(tensor) is None else _C.dist_part(tensor, index)


# ---- results -------------------------------------------------------------------------------------

Out = Sequence[Placement] | None


def _one_place(value: Any) -> bool:
    return isinstance(value, Sequence) and all(isinstance(p, Placement) for p in value)


def _joined(name: str, parts: list[Any], mesh: DeviceMesh, places: Any, exact: bool) -> Any:
    """One result of all devices: a tensor on the mesh, or the first one's where it is none."""
    if isinstance(parts[0], tuple | list):
        outs = [places] if _one_place(places) and len(parts[0]) == 1 else places
        if not isinstance(outs, Sequence) or len(outs) != len(parts[0]) or _one_place(outs):
            raise ValueError(
                f"{name}: there are {len(parts[0])} results, so out_placements must be as many "
                f"sequences of placements (or None), not {places!r}"
            )
        items = [
            _joined(name, [part[k] for part in parts], mesh, out, exact)
            for k, out in enumerate(outs)
        ]
        kind = type(parts[0])
        return kind(*items) if hasattr(kind, "_fields") else kind(items)
    if places is not None and not _one_place(places) and len(places) == 1:
        places = places[0]
    if not isinstance(parts[0], Tensor):
        if places is not None:
            raise ValueError(
                f"{name}: a result is {type(parts[0]).__name__}, no Tensor: its out_placements "
                f"must be None, not {places!r}"
            )
        return parts[0]
    if places is None:
        raise ValueError(f"{name}: a result is a Tensor: out_placements must not be None for it")
    joined = _dist.from_local(parts, mesh, places)
    if exact:
        _check_layout(name, joined, parts)
    return joined


def _check_layout(name: str, joined: Any, parts: list[Any]) -> None:
    for i, part in enumerate(parts):
        want = tuple(_C.dist_part(joined, i).shape)
        if tuple(part.shape) != want:
            raise _C.PlacementError(
                f"{name}: the part of device {i} has shape {tuple(part.shape)} where the layout "
                f"says {want}: redistribute the inputs to Replicate"
            )


# ---- local_map -----------------------------------------------------------------------------------


def local_map(
    fn: Callable[..., Any],
    out_placements: Any,
    in_placements: Any = None,
    device_mesh: DeviceMesh | None = None,
    *,
    redistribute_inputs: bool = False,
) -> Callable[..., Any]:
    """See ``distributed_spec.local_map``."""
    name = getattr(fn, "__name__", "local_map")

    @functools.wraps(fn)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        mesh = _mesh_of((args, kwargs), device_mesh, name)
        if mesh is None or mesh._is_plain:
            return fn(*args, **kwargs)
        if in_placements is not None:
            args = _as_placed(name, args, mesh, in_placements, redistribute_inputs)
        return _joined(name, _call(fn, mesh, (args, kwargs)), mesh, out_placements, False)

    return mapped


def _as_placed(
    name: str, args: tuple[Any, ...], mesh: DeviceMesh, wanted: Any, redistribute: bool
) -> tuple[Any, ...]:
    """The positional arguments, whose tensors must be placed as wanted, or are made to be."""
    tensors = list(_tensors(args))
    if len(wanted) != len(tensors):
        raise ValueError(
            f"{name}: in_placements has {len(wanted)} entries for {len(tensors)} tensors"
        )
    places = iter(wanted)

    def placed(tensor: Any) -> Any:
        place = next(places)
        if place is None or _C.dist_spec(tensor) is None:
            return tensor
        found = mesh.normalise(place, tensor.ndim)
        if tensor.placements == found:
            return tensor
        if redistribute:
            return tensor.redistribute(mesh, found)
        raise _C.PlacementError(
            f"{name}: an input of shape {tuple(tensor.shape)} is placed {tensor.placements}, but "
            f"in_placements says {found}: redistribute() it first, or set redistribute_inputs"
        )

    changed: tuple[Any, ...] = _map(args, placed)
    return changed


# ---- register_sharding ---------------------------------------------------------------------------


class _Way:
    """One acceptable choice for one mesh dim: a placement for each tensor input and output."""

    __slots__ = ("inputs", "outputs")

    def __init__(self, inputs: list[Placement], outputs: list[Placement]) -> None:
        self.inputs = inputs
        self.outputs = outputs

    def __repr__(self) -> str:
        inputs, outputs = repr(Placements(self.inputs)), repr(Placements(self.outputs))
        return f"({inputs[1:-1]}) -> {outputs[1:-1]}"


class ShardedOp:
    """A function, and a rule of how it runs on a mesh; see ``register_sharding``."""

    def __init__(self, function: Callable[..., Any], rule: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._rule = rule
        self._signature = inspect.signature(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = getattr(self._function, "__name__", "op")
        mesh = _mesh_of((args, kwargs), None, name)
        if mesh is None or mesh._is_plain:
            return self._function(*args, **kwargs)
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        args, kwargs = bound.args, bound.kwargs
        tensors = list(_tensors((args, kwargs)))
        ways = self._ways(name, tensors, bound)
        chosen = _choose(name, mesh, tensors, ways)
        inputs = iter(_changed(mesh, t, [w.inputs[i] for w in chosen], name)
                      for i, t in enumerate(tensors))  # fmt: skip
        arguments = _map((args, kwargs), lambda t: next(inputs))
        results = _call(self._function, mesh, arguments)
        outputs = [[w.outputs[k] for w in chosen] for k in range(len(ways[0].outputs))]
        several = isinstance(results[0], tuple | list)
        return _joined(name, results, mesh, outputs if several else outputs[0], True)

    def _ways(self, name: str, tensors: list[Any], bound: inspect.BoundArguments) -> list[_Way]:
        found = self._rule(*bound.args, **bound.kwargs)
        ways = [_way(name, entry, tensors) for entry in found]
        count = len(ways[0].outputs) if ways else 1
        everything = _Way([Replicate() for _ in tensors], [Replicate() for _ in range(count)])
        return [everything, *ways]

    def __repr__(self) -> str:
        return f"<sharded op {getattr(self._function, '__qualname__', self._function)}>"


def _way(name: str, entry: Any, tensors: list[Any]) -> _Way:
    if not isinstance(entry, tuple) or len(entry) != 2:
        raise ValueError(
            f"{name}: its rule must give pairs (placements of the outputs, placements of the "
            f"inputs), not {entry!r}"
        )
    outputs = [p for p in entry[0] if p is not None]
    inputs = [p for p in entry[1] if p is not None]
    if len(inputs) != len(tensors) or not outputs:
        raise ValueError(
            f"{name}: its rule names {len(inputs)} inputs and {len(outputs)} outputs in {entry!r}, "
            f"but the call has {len(tensors)} tensors"
        )
    if not _one_place(outputs) or not _one_place(inputs):
        raise ValueError(f"{name}: its rule must give placements (or None), not {entry!r}")
    normal = [
        Shard(p.dim + t.ndim) if isinstance(p, Shard) and p.dim < 0 else p
        for p, t in zip(inputs, tensors, strict=True)
    ]
    return _Way(normal, outputs)


def _placement(tensor: Any, mesh_dim: int) -> Placement:
    if _C.dist_spec(tensor) is None:
        return Replicate()
    found: Placement = tensor.placements[mesh_dim]
    return found


def _is_local(chosen: list[_Way], i: int, have: Placement, want: Placement) -> bool:
    """Whether the input may become that without moving anything, given later mesh dims' choices."""
    if have == want:
        return True
    if not have.is_replicate():
        return False
    return not isinstance(want, Shard) or all(w.inputs[i] != want for w in chosen)


def _choose(name: str, mesh: DeviceMesh, tensors: list[Any], ways: list[_Way]) -> list[_Way]:
    """A way for each mesh dim, from the last one on: the one that changes fewest inputs."""
    implicit = _C._implicit_block.get(None)
    chosen: list[_Way] = []
    for m in reversed(range(mesh.ndim)):
        best, least = None, 0
        for way in ways:
            changes = moves = 0
            for i, t in enumerate(tensors):
                have = _placement(t, m)
                changes += have != way.inputs[i]
                moves += not _is_local(chosen, i, have, way.inputs[i])
            cost = moves * (len(tensors) + 1) + changes
            if (moves and implicit is None) or (best is not None and cost >= least):
                continue
            best, least = way, cost
        if best is None:
            raise _C.PlacementError(_story(name, mesh, tensors, ways))
        chosen.insert(0, best)
    return chosen


def _story(name: str, mesh: DeviceMesh, tensors: list[Any], ways: list[_Way]) -> str:
    inputs = "; ".join(
        f"input {i}: shape {list(t.shape)}, {_dist.placements(t)}" for i, t in enumerate(tensors)
    )
    legal = ", ".join(repr(way) for way in ways)
    return (
        f"{name}: illegal placements on mesh {mesh!r}: {inputs}. Legal along each mesh dim: "
        f"{legal} (Replicate inputs are cut as needed): redistribute() the inputs first"
    )


def _changed(mesh: DeviceMesh, tensor: Any, wanted: list[Placement], name: str) -> Any:
    if _C.dist_spec(tensor) is None:
        if tensor.ndim == 0 and all(p.is_replicate() for p in wanted):
            return tensor
        raise _C.PlacementError(
            f"{name}: one input is on mesh {mesh!r}, another one, of shape {list(tensor.shape)}, "
            "on the CPU alone: redistribute() it to that mesh first"
        )
    if tensor.placements == wanted:
        return tensor
    implicit = _C._implicit_block.get(None)
    moves = any(
        have != want and not have.is_replicate()
        for have, want in zip(tensor.placements, wanted, strict=True)
    )
    if moves and implicit is not None:
        implicit._inserted()
    return tensor.redistribute(mesh, wanted)


def register_sharding(
    fn: Callable[..., Any],
) -> Callable[[Callable[..., Any]], ShardedOp]:
    """See ``distributed_spec.register_sharding``."""

    def decorate(rule: Callable[..., Any]) -> ShardedOp:
        return ShardedOp(fn, rule)

    return decorate
