"""Tensors on a mesh: where new ones go, how values are dealt out to devices and read back.

What a device holds is decided by the core (``_C.dist_box``); an op on a mesh is run there, too.
Here are the ways in and out: creation, ``from_local``, ``to_local``, ``full_tensor``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from . import _C, _torch
from .distributed_spec import (
    DeviceMesh,
    Partial,
    Placements,
    Replicate,
    Shard,
    default_mesh,
    device_count,
    from_codes,
    is_simulated,
    mesh_by_id,
    plain_mesh,
)

Tensor = _C.Tensor
_rows = _C.rows
_clone = _rows["clone"]
_narrow = _rows["narrow"]


class Place(NamedTuple):
    """Where a new tensor goes: a mesh other than the plain one, and placements or None."""

    mesh: DeviceMesh
    placements: Sequence[Any] | None


# ---- which place ---------------------------------------------------------------------------------


def place(device: Any, device_mesh: Any, placements: Any) -> Place | None:
    """Where the arguments of a creation function put its result; None: an ordinary tensor."""
    if device_mesh is None:
        mesh = default_mesh() if device is None else mesh_of_device(device)
    else:
        if device is not None:
            raise ValueError("device and device_mesh are mutually exclusive: give one of them")
        if not isinstance(device_mesh, DeviceMesh):
            raise TypeError(f"device_mesh must be a DeviceMesh, not {type(device_mesh).__name__}")
        mesh = device_mesh
    if mesh is not None and not mesh._is_plain:
        return Place(mesh, placements)
    if placements is not None:
        plain_mesh().normalise(placements)
    return None


def mesh_of_device(device: Any) -> DeviceMesh | None:
    """The mesh that device= means; None: the CPU alone.

    The type of a default mesh of several devices means that mesh.
    """
    default = default_mesh()
    if device == "cpu" and default is None:
        return None
    kind, index = _torch.split_device(device)
    if default is not None and kind == default.device_type and index is None:
        return default
    if kind == "cpu":
        return None
    if kind != "cuda" or (not is_simulated() and device_count("cuda") == 0):
        _torch.check_device(device)
    return DeviceMesh("cuda", [_C.current_device() if index is None else index])


def place_of(tensor: Any) -> Place | None:
    """Where a tensor is."""
    spec = _C.dist_spec(tensor)
    return None if spec is None else Place(mesh_by_id(spec[0]), from_codes(spec[1]))


def place_like(tensor: Any, device: Any, device_mesh: Any, placements: Any) -> Place | None:
    """Where zeros_like() and its kin put their result: where `tensor` is, unless told otherwise."""
    if device is None and device_mesh is None:
        own = place_of(tensor)
        if own is not None:
            return own if placements is None else Place(own.mesh, placements)
        if placements is None:
            return None
        return place("cpu", None, placements) if default_mesh() is None else None
    return place(device, device_mesh, placements)


def place_beside(tensor: Any, device: Any, device_mesh: Any, placements: Any) -> Place | None:
    """Where new_zeros() and its kin put their result: on the mesh of `tensor`, replicated."""
    found = place_like(tensor, device, device_mesh, placements)
    if found is None or placements is not None or device is not None or device_mesh is not None:
        return found
    return Place(found.mesh, None)


# ---- making --------------------------------------------------------------------------------------


_AVG = Partial("avg")._code


def _check_dtype(codes: tuple[int, ...], dtype: Any) -> None:
    if _AVG in codes and not _C.dtype_name(dtype).startswith(("float", "bfloat")):
        raise ValueError(f"Partial(avg) needs a floating-point dtype, not {_C.dtype_name(dtype)}")


def make(where: Place | None, row: str, rank: int, *args: Any) -> Any:
    """What a creation row of the registry makes, at that place; its last argument is the dtype."""
    if where is None:
        return _rows[row](*args)
    mesh, placements = where
    codes = mesh._codes(placements, rank)
    _check_dtype(codes, args[-1])
    return _C.on_mesh(mesh._id, codes, row, *args)


def make_like(
    input: Any, where: Any, memory_format: Any, row: str, shape: Any, *arguments: Any
) -> Any:
    """As make(); on one device the dims lie in memory as those of `input` do (preserve_format)."""
    preserves = memory_format is None or str(memory_format) == "torch.preserve_format"
    if where is not None or not preserves or input.is_contiguous():
        return make(where, row, len(shape), shape, *arguments)
    order = input._dims_in_memory()
    made = make(where, row, len(shape), [shape[d] for d in order], *arguments)
    made = made.permute([order.index(d) for d in range(len(order))])
    strides = input.stride()
    if all(n == 1 or s == t for n, s, t in zip(shape, strides, made.stride(), strict=True)):
        return made.as_strided(shape, strides)  # no gaps: those of dims of size 1 are kept too
    return made


def beside(tensor: Any, row: str, rank: int, *args: Any) -> Any:
    """What a creation row makes, replicated on the mesh of `tensor`."""
    spec = _C.dist_spec(tensor)
    if spec is None:
        return _rows[row](*args)
    return make(Place(mesh_by_id(spec[0]), None), row, rank, *args)


def alike(tensor: Any, row: str, *args: Any) -> Any:
    """What a creation row makes, of the shape of `tensor`, cut as that is."""
    where = place_of(tensor)
    if where is not None and where.placements is not None:
        cut = [Replicate() if p.is_partial() else p for p in where.placements]
        where = Place(where.mesh, cut)
    return make(where, row, tensor.ndim, *args)


def refuse_shards(name: str, tensor: Any, dims: Sequence[int]) -> None:
    """An error where the tensor is cut along one of the dims, which op `name` changes."""
    found = placements(tensor)
    if any(p.is_shard(d) for p in found for d in dims):
        raise _C.PlacementError(
            f"{name}: illegal placements on mesh {device_mesh(tensor)!r}: input 0: shape "
            f"{list(tensor.shape)}, {found}. Dims {list(dims)} must not be sharded: redistribute() "
            "it first"
        )


def deal(tensor: Any, mesh: DeviceMesh, placements: Any) -> Any:
    """An ordinary tensor's value dealt out to the devices of a mesh; every part has own bytes."""
    codes = mesh._codes(placements, tensor.ndim)
    _check_dtype(codes, tensor._dtype_name)
    return _C.redistribute(tensor, mesh._id, codes)


def put(tensor: Any, where: Place | None) -> Any:
    """The tensor at that place: itself where it is there already."""
    own = _C.dist_spec(tensor)
    if own is None:
        return tensor if where is None else deal(tensor, *where)
    if where is None:
        return full_tensor(tensor)
    codes = where.mesh._codes(where.placements, tensor.ndim)
    if own == (where.mesh._id, codes):
        return tensor
    return _C.redistribute(tensor, where.mesh._id, codes)


def construct(given: tuple[tuple[Any, ...], dict[str, Any] | None]) -> Any:
    """Tensor(...) with keywords, or under a default mesh; None: an ordinary tensor is wanted."""
    args, kwargs = given
    options = dict(kwargs or {})
    device, device_mesh, placements = (
        options.pop(name, None) for name in ("device", "device_mesh", "placements")
    )
    if options:
        raise TypeError(
            "Tensor() takes no keyword arguments but 'device', 'device_mesh' and 'placements', "
            f"got '{next(iter(options))}'"
        )
    if len(args) == 1 and isinstance(args[0], Tensor):
        if device is None and device_mesh is None and placements is None:
            return None
        where = place_like(args[0], device, device_mesh, placements)
        return put(args[0], where)
    where = place(device, device_mesh, placements)
    if where is None:
        return None
    if _C.is_size(args):
        shape = _C.dims("new", args) if args else (0,)
        return make(where, "empty__new", len(shape), shape, _C.default_dtype_name())
    return deal(_C.construct_plain(args), *where)


def source_for(target: Any, source: Any) -> Any:
    """`source` where target.copy_() can take each part from: on its mesh, placed alike.

    What broadcasts, an ordinary tensor or one that is placed so that nothing moves stays as it is.
    """
    own, spec = _C.dist_spec(source), _C.dist_spec(target)
    if own is None or (own == spec and source.shape == target.shape):
        return source
    if spec is None:
        return full_tensor(source)
    if own[0] == spec[0] and all(code == 0 for code in own[1]):
        return source
    if source.shape == target.shape:
        return _C.redistribute(source, *spec)
    return _C.redistribute(source, spec[0], (0,) * len(spec[1]))


def to_device(self: Any, device: Any) -> Any:
    """Tensor.to(device): itself where it is on devices of that type and no other one is named."""
    kind, index = _torch.split_device(device)
    spec = _C.dist_spec(self)
    mesh = None if spec is None else mesh_by_id(spec[0])
    if mesh is None and kind == "cpu":
        return self
    if mesh is not None and kind == mesh.device_type and index in (None, *mesh.device_ids[:1]):
        if index is None or mesh.size() == 1:
            return self
    wanted = mesh_of_device(device)
    return put(self, None if wanted is None else Place(wanted, None))


def view_dtype(self: Any, dtype: Any) -> Any:
    """Tensor.view(dtype): the same bytes as another dtype."""
    spec = _C.dist_spec(self)
    if spec is None:
        return self._view_dtype(dtype)
    mesh, found = mesh_by_id(spec[0]), from_codes(spec[1])
    meta = _rows["empty__new"](self.shape, self._dtype_name)._view_dtype(dtype)
    last = self.ndim - 1
    if meta._dtype_name != self._dtype_name and any(
        p.is_partial() or (p.is_shard(last) and meta.shape != self.shape) for p in found
    ):
        raise _C.PlacementError(
            f"view: a tensor placed {found} cannot be seen as {meta._dtype_name}: its bytes along "
            "the last dim must be whole and no part of a sum; redistribute() it first"
        )
    parts = [_C.dist_part(self, i)._view_dtype(dtype) for i in range(mesh.size())]
    return _C.dist_new(parts, mesh._id, spec[1], meta.shape)


# ---- reading -------------------------------------------------------------------------------------


def device_mesh(self: Any) -> DeviceMesh:
    """The mesh that the tensor is on; DeviceMesh("cpu") for an ordinary one."""
    spec = _C.dist_spec(self)
    return plain_mesh() if spec is None else mesh_by_id(spec[0])


def placements(self: Any) -> Placements:
    """How the tensor lies along each dim of its mesh; equal to a list or a tuple of the same."""
    spec = _C.dist_spec(self)
    return from_codes((0,) if spec is None else spec[1])


def to_local(self: Any, rank: int | None = None) -> Any:
    """What one device holds, as an ordinary tensor that shares its bytes; waits for nothing.

    An ordinary tensor itself.

    Args:
        rank: the device's index in the mesh. Default: ``dtorch.cuda.current_device()`` where that
            is in the mesh, else the first one.
    """
    if rank is None:
        rank = _C.dist_here(self)
    return self if rank == 0 and _C.dist_spec(self) is None else _C.dist_part(self, rank)


def full_tensor(self: Any) -> Any:
    """The whole value as an ordinary tensor of its own; waits for nothing, await it."""
    return _C.dist_full(self)


# ---- from parts ----------------------------------------------------------------------------------


def from_local(
    locals: Sequence[Any],
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Any] | None = None,
    *,
    shape: Sequence[int] | None = None,
) -> Any:
    """The tensor whose parts are the given ones, one for each device in row-major order.

    Parts of sizes that torch.chunk would give are taken as they are, and share their bytes with the
    result. Along a Shard other sizes will do too: the parts are joined in order, and cut anew.
    Replicate parts are trusted to be equal.

    Args:
        locals: tensors (of dtorch or torch) of one dtype, as many as the mesh has devices.
        device_mesh: default: ``Graph.default_device_mesh``.
        placements: default: all Replicate.
        shape: that of the whole; it follows from the parts where it is not given.

    Raises:
        ValueError: parts that do not fit together, or do not make up `shape`.
    """
    mesh = device_mesh if device_mesh is not None else default_mesh() or plain_mesh()
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"device_mesh must be a DeviceMesh, not {type(mesh).__name__}")
    if isinstance(locals, Tensor) or not isinstance(locals, Sequence):
        raise TypeError(
            "from_local() takes a sequence with the part of each device, not "
            f"{type(locals).__name__}"
        )
    if len(locals) != mesh.size():
        raise ValueError(
            f"from_local(): the mesh {mesh!r} has {mesh.size()} devices, got {len(locals)} parts"
        )
    parts = [_as_part(part, i) for i, part in enumerate(locals)]
    rank = parts[0].ndim
    for i, part in enumerate(parts):
        if part.ndim != rank or part._dtype_name != parts[0]._dtype_name:
            raise ValueError(
                f"from_local(): part {i} has {part.ndim} dimensions and dtype {part._dtype_name}, "
                f"part 0 has {rank} and {parts[0]._dtype_name}"
            )
    found = mesh.normalise(placements, rank)
    codes = tuple(p._code for p in found)
    _check_dtype(codes, parts[0]._dtype_name)
    whole = _whole_shape(mesh, found, [tuple(p.shape) for p in parts])
    if shape is not None and tuple(shape) != whole:
        raise ValueError(f"from_local(): the parts make up shape {whole}, not {tuple(shape)}")
    if mesh._is_plain:
        return parts[0]
    boxes = [_C.dist_box(mesh._id, codes, whole, i)[1] for i in range(mesh.size())]
    if any(tuple(p.shape) != box for p, box in zip(parts, boxes, strict=True)):
        parts = _recut(parts, mesh, found, whole)
    parts = [p.contiguous() for p in parts]
    return _C.dist_new(parts, mesh._id, codes, whole)


def _as_part(part: Any, index: int) -> Any:
    if not isinstance(part, Tensor) and hasattr(part, "__dlpack__"):
        part = _C.construct_plain((part,))
    if not isinstance(part, Tensor):
        raise TypeError(f"from_local(): part {index} must be a Tensor, not {type(part).__name__}")
    if _C.dist_spec(part) is not None:
        raise ValueError(f"from_local(): part {index} is on a mesh itself: give its to_local()")
    return part


Shape = tuple[int, ...]


def _whole_shape(mesh: DeviceMesh, placements: Placements, shapes: list[Shape]) -> Shape:
    """The shape that the parts make up; ValueError where they do not fit together."""
    strides = [1] * mesh.ndim
    for m in range(mesh.ndim - 2, -1, -1):
        strides[m] = strides[m + 1] * mesh.shape[m + 1]

    def join(m: int, base: int) -> Shape:
        if m == mesh.ndim:
            return shapes[base]
        pieces = [join(m + 1, base + k * strides[m]) for k in range(mesh.shape[m])]
        placement = placements[m]
        dim = placement.dim if isinstance(placement, Shard) else -1
        first = pieces[0]
        for k, piece in enumerate(pieces):
            if any(a != b for d, (a, b) in enumerate(zip(piece, first, strict=True)) if d != dim):
                raise ValueError(
                    f"from_local(): the parts do not fit together: {first} and {piece} along mesh "
                    f"dim {m}, which is {placements[m]!r} (device {base + k * strides[m]})"
                )
        if dim < 0:
            return first
        return (*first[:dim], sum(piece[dim] for piece in pieces), *first[dim + 1 :])

    return join(0, 0)


def _recut(parts: list[Any], mesh: DeviceMesh, placements: Placements, shape: Shape) -> list[Any]:
    """The parts as torch.chunk would cut what they make up along their Shards."""
    cut: list[Any] = [None] * mesh.size()
    coordinates = mesh.coordinates
    groups: dict[Shape, list[int]] = {}
    for i, at in enumerate(coordinates):  # devices that hold parts of one whole
        key = tuple(-1 if p.is_shard() else c for p, c in zip(placements, at, strict=True))
        groups.setdefault(key, []).append(i)
    codes = tuple(p._code for p in placements)
    for members in groups.values():
        whole = _joined(parts, mesh, placements, members)
        for i in members:
            start, size = _C.dist_box(mesh._id, codes, shape, i)
            piece = whole
            for d, (at, length) in enumerate(zip(start, size, strict=True)):
                piece = _narrow(piece, d, at if length else 0, length)
            cut[i] = _clone(piece, memory_format="torch.contiguous_format")
    return cut


def _joined(parts: list[Any], mesh: DeviceMesh, placements: Placements, members: list[int]) -> Any:
    """What the members of one group make up, joined from the innermost mesh dim on."""
    shards = [m for m in range(mesh.ndim) if placements[m].is_shard()]
    level = [parts[i] for i in members]
    for m in reversed(shards):
        n = mesh.shape[m]
        dim = placements[m]._code // 256
        level = [_C.functions["cat"](level[k : k + n], dim) for k in range(0, len(level), n)]
    return level[0]
