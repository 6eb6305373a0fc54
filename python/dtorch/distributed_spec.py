"""Where a tensor is: meshes of devices, and how a tensor lies on one.

A DeviceMesh is an array of devices. A tensor on a mesh has one placement for each dim of the mesh:
Replicate() (every device along it has all of the values), Shard(dim) (each has a part of that
dim, cut as torch.chunk cuts), or Partial(op) (the value is the reduction of what the devices have).

One process drives every device, so there are no ranks: a device of a mesh is named by its
coordinates, or by its *index*, its place in the mesh in row-major order.

Which devices there are: the CPU, and as many GPUs as the build can use. With
``DTORCH_DTENSOR_IN_SAME_DEVICE=1`` (or ``true``) in the environment several devices of each type
are simulated on one, ``DTORCH_NUM_GPU_WHEN_ENABLE_DTENSOR_IN_SAME_DEVICE`` (default 8) of them.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from . import _C

__all__ = [
    "DeviceMesh",
    "Graph",
    "Partial",
    "Placement",
    "Placements",
    "Replicate",
    "Shard",
    "explain",
    "init_device_mesh",
    "local_map",
    "redistribute_memory",
    "register_sharding",
]

SIMULATE = "DTORCH_DTENSOR_IN_SAME_DEVICE"
SIMULATED_COUNT = "DTORCH_NUM_GPU_WHEN_ENABLE_DTENSOR_IN_SAME_DEVICE"
_SIMULATED_DEFAULT = 8
_TYPES = ("cpu", "cuda")
_DEVICES_MAX = 1024  # DT_MESH_DEVICES_MAX of the core


# ---- devices -------------------------------------------------------------------------------------


def is_simulated() -> bool:
    """Whether devices are simulated: the environment says so now."""
    return os.environ.get(SIMULATE, "").strip().lower() in ("1", "true")


def device_count(device_type: str) -> int:
    """How many devices of that type there are, simulated ones where those are asked for."""
    if not is_simulated():
        return 1 if device_type == "cpu" else 0
    text = os.environ.get(SIMULATED_COUNT, "").strip() or str(_SIMULATED_DEFAULT)
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{SIMULATED_COUNT} must be a whole number of at least 1, not {text!r}")
    return int(text)


_said = False


def _say_once() -> None:
    """There is no GPU: that "cuda" means the CPU is said, once in a process."""
    global _said
    if not _said:
        _said = True
        logging.getLogger("dtorch").warning(
            "dtorch: there is no GPU: 'cuda' devices are simulated on the CPU (%s)", SIMULATE
        )


def _check_devices(device_type: str, ids: Sequence[int]) -> None:
    count = device_count(device_type)
    missing = [i for i in ids if i >= count]
    if missing:
        there = f"there are {count}" if count != 1 else "there is 1"
        which = ", ".join(str(i) for i in missing[:8]) + (", ..." if len(missing) > 8 else "")
        raise RuntimeError(
            f"a mesh asks for '{device_type}' devices that are not there ({which}; {there}): set "
            f"{SIMULATE}=1 in the environment to simulate devices on one, and {SIMULATED_COUNT} "
            f"(default {_SIMULATED_DEFAULT}) to say how many"
        )
    if device_type == "cuda":
        _say_once()


# ---- placements ----------------------------------------------------------------------------------


class Placement:
    """How a tensor lies along one dim of its mesh: Shard, Replicate or Partial."""

    __slots__ = ("_code",)
    _code: int

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether it is a Shard, of that dim if one is given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether it is Replicate."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether it is Partial, of that reduction if one is given."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a {type(self).__name__} cannot be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} cannot be changed")


class Shard(Placement):
    """Dim `dim` is cut along the mesh dim, as torch.chunk cuts; the last parts may be empty.

    A negative dim counts from the tensor's last one; in a tensor's `placements` none is negative.
    """

    __slots__ = ("dim",)
    dim: int

    def __init__(self, dim: int) -> None:
        if isinstance(dim, bool) or not hasattr(dim, "__index__"):
            raise TypeError(f"Shard(): dim must be an int, not {type(dim).__name__}")
        object.__setattr__(self, "dim", dim.__index__())
        object.__setattr__(self, "_code", -1 if dim < 0 else 1 + 256 * dim)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shard) and other.dim == self.dim

    def __hash__(self) -> int:
        return hash((Shard, self.dim))

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Shard, (self.dim,)


class Replicate(Placement):
    """Every device along the mesh dim has all of the values."""

    __slots__ = ()

    def __init__(self) -> None:
        object.__setattr__(self, "_code", 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Replicate)

    def __hash__(self) -> int:
        return hash(Replicate)

    def __repr__(self) -> str:
        return "Replicate()"

    def __reduce__(self) -> tuple[Any, ...]:
        return Replicate, ()


_REDUCTIONS = ("sum", "avg", "min", "max", "product")


class Partial(Placement):
    """The value is the reduction of what the devices along the mesh dim have.

    Args:
        reduce_op: "sum", "avg" (the mean), "min", "max" or "product".
    """

    __slots__ = ("reduce_op",)
    reduce_op: str

    def __init__(self, reduce_op: str = "sum") -> None:
        if reduce_op not in _REDUCTIONS:
            raise ValueError(
                f"Partial(): reduce_op must be one of {', '.join(_REDUCTIONS)}, not {reduce_op!r}"
            )
        object.__setattr__(self, "reduce_op", reduce_op)
        object.__setattr__(self, "_code", 2 + _REDUCTIONS.index(reduce_op))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partial) and other.reduce_op == self.reduce_op

    def __hash__(self) -> int:
        return hash((Partial, self.reduce_op))

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Partial, (self.reduce_op,)


def _short(placement: Placement) -> str:
    if isinstance(placement, Shard):
        return f"S{placement.dim}"
    return f"P({placement.reduce_op})" if isinstance(placement, Partial) else "R"


class Placements(tuple[Placement, ...]):
    """A tensor's placements, one for each mesh dim: equal to a tuple and to a list of the same."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def __repr__(self) -> str:
        return f"[{', '.join(_short(p) for p in self)}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return Placements, (tuple(self),)


_by_code: dict[tuple[int, ...], Placements] = {}


def _decode(code: int) -> Placement:
    kind, dim = code % 256, code // 256
    return Replicate() if kind == 0 else Shard(dim) if kind == 1 else Partial(_REDUCTIONS[kind - 2])


def from_codes(codes: tuple[int, ...]) -> Placements:
    """The placements that the core's numbers stand for."""
    found = _by_code.get(codes)
    if found is None:
        found = _by_code[codes] = Placements(_decode(code) for code in codes)
    return found


# ---- meshes --------------------------------------------------------------------------------------


def _measure(mesh: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and ids of nested sequences of device ids."""
    if hasattr(mesh, "tolist"):  # a tensor of torch's or ours, an array
        mesh = mesh.tolist()
    shape: list[int] = []
    level = mesh
    while isinstance(level, list | tuple | range):
        shape.append(len(level))
        if not level:
            raise ValueError(f"a mesh must have at least one device in each dim, got {mesh!r}")
        level = level[0]
    if not shape:
        raise ValueError(f"a mesh must be nested lists of device ids, not {mesh!r}")
    ids: list[int] = []

    def walk(level: Any, depth: int) -> None:
        if depth == len(shape):
            if isinstance(level, list | tuple | range):
                raise ValueError(f"the lists of a mesh must be of one depth, got {mesh!r}")
            if isinstance(level, bool) or not hasattr(level, "__index__"):
                raise ValueError(f"a device id of a mesh must be an int, got {level!r}")
            ids.append(level.__index__())
            return
        if not isinstance(level, list | tuple | range) or len(level) != shape[depth]:
            raise ValueError(f"the lists of a mesh must be of one length, got {mesh!r}")
        for item in level:
            walk(item, depth + 1)

    walk(mesh, 0)
    return tuple(shape), tuple(ids)


def _names(names: Any, rank: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, list | tuple):
        raise ValueError(f"mesh_dim_names must be a sequence of strings, not {names!r}")
    if len(names) != rank:
        raise ValueError(
            f"mesh_dim_names must name each of the mesh's {rank} dims, got {len(names)} names"
        )
    if any(not isinstance(name, str) for name in names):
        raise ValueError(f"mesh_dim_names must be strings, got {names!r}")
    return tuple(names)


_meshes: dict[int, DeviceMesh] = {}  # by number; meshes live as long as the process


class DeviceMesh:
    """An array of devices of one type.

    Args:
        device_type: "cuda" or "cpu".
        mesh: nested lists, or a tensor, of device ids, of any rank. Default: device 0 alone.
        mesh_dim_names: a name for each dim.

    Meshes are values: equal where type, ids, shape and names are. ``mesh["tp"]`` is the part along
    that dim at coordinate 0 of the others, ``mesh["dp", "tp"]`` that along several. As a ``with``
    block a mesh is the default of what is created inside, see ``Graph.default_device_mesh``.

    Raises:
        ValueError: no such type, or ids or names that make no mesh.
        RuntimeError: a device that is not there.
    """

    __slots__ = ("__weakref__", "_id", "_ids", "_is_plain", "_names", "_shape", "_type")

    def __init__(self, device_type: str, mesh: Any = None, mesh_dim_names: Any = None) -> None:
        if device_type not in _TYPES:
            raise ValueError(f"device_type must be one of {', '.join(_TYPES)}, not {device_type!r}")
        self._type: str = device_type
        self._shape, self._ids = _measure([0] if mesh is None else mesh)
        self._names = _names(mesh_dim_names, len(self._shape))
        _check_devices(device_type, self._ids)
        self._id: int = _C.mesh_new(device_type == "cuda", self._shape, self._ids, self._names)
        # What is on the one CPU is an ordinary tensor.
        self._is_plain = device_type == "cpu" and self._ids == (0,) and self._shape == (1,)
        self._is_plain = self._is_plain and self._names is None
        _meshes.setdefault(self._id, self)

    @property
    def device_type(self) -> str:
        """ "cuda" or "cpu"."""
        return self._type

    @property
    def shape(self) -> tuple[int, ...]:
        """How many devices there are along each dim."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self._shape)

    @property
    def mesh_dim_names(self) -> tuple[str, ...] | None:
        """The name of each dim, or None."""
        return self._names

    @property
    def device_ids(self) -> tuple[int, ...]:
        """The ids of all devices, in row-major order."""
        return self._ids

    @property
    def mesh(self) -> list[Any]:
        """The ids as nested lists."""
        level: list[Any] = list(self._ids)
        for size in self._shape[:0:-1]:
            level = [level[i : i + size] for i in range(0, len(level), size)]
        return level

    def size(self, mesh_dim: int | str | None = None) -> int:
        """The number of devices, of all or along one dim (a number or a name)."""
        if mesh_dim is None:
            return len(self._ids)
        return self._shape[self._dim(mesh_dim)]

    def get_coordinate(self, index: int = 0) -> tuple[int, ...]:
        """The coordinates of the device with that index."""
        if not 0 <= index < len(self._ids):
            raise IndexError(f"the mesh has {len(self._ids)} devices, there is no number {index}")
        coordinates = []
        for size in reversed(self._shape):
            index, at = divmod(index, size)
            coordinates.append(at)
        return tuple(reversed(coordinates))

    @property
    def coordinates(self) -> list[tuple[int, ...]]:
        """The coordinates of every device, in row-major order."""
        return [self.get_coordinate(i) for i in range(len(self._ids))]

    def _dim(self, dim: int | str) -> int:
        if isinstance(dim, str):
            if dim not in (self._names or ()):
                has = "has no names" if self._names is None else f"has {', '.join(self._names)}"
                raise KeyError(f"there is no mesh dim {dim!r}: {self!r} {has}")
            return (self._names or ()).index(dim)
        if isinstance(dim, bool) or not hasattr(dim, "__index__"):
            raise TypeError(f"a mesh dim must be an int or a name, not {type(dim).__name__}")
        if not -self.ndim <= dim < self.ndim:
            raise IndexError(f"mesh dim {dim} is out of range for a mesh of {self.ndim} dims")
        return dim % self.ndim

    def __getitem__(self, names: str | Sequence[str]) -> DeviceMesh:
        wanted = (names,) if isinstance(names, str) else tuple(names)
        if not wanted or any(not isinstance(name, str) for name in wanted):
            raise KeyError(f"a mesh is sliced by the names of its dims, not by {names!r}")
        if len(set(wanted)) < len(wanted):
            raise KeyError(f"a mesh dim comes twice in {names!r}")
        dims = [self._dim(name) for name in wanted]
        strides = [math.prod(self._shape[d + 1 :]) for d in range(self.ndim)]

        def ids(rest: list[int], at: int) -> Any:
            if not rest:
                return self._ids[at]
            return [ids(rest[1:], at + k * strides[rest[0]]) for k in range(self._shape[rest[0]])]

        return DeviceMesh(self._type, ids(dims, 0), wanted)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and other._id == self._id

    def __hash__(self) -> int:
        return hash((self._type, self._shape, self._ids, self._names))

    def __repr__(self) -> str:
        return f"{self._type}({'x'.join(str(n) for n in self._shape)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return DeviceMesh, (self._type, self.mesh, self._names)

    def __enter__(self) -> DeviceMesh:
        _default.set(_Default(self, _default.get()))
        _C._default_mesh_is_set()
        return self

    def __exit__(self, *exception: object) -> None:
        inner = _default.get()
        _default.set(None if inner is None else inner.outer)

    def _codes(self, placements: Any, rank: int) -> tuple[int, ...]:
        """Placements of a tensor with `rank` dims as the core takes them; None: all Replicate."""
        if placements is None:
            return (0,) * len(self._shape)
        if type(placements) in (list, tuple, Placements) and len(placements) == len(self._shape):
            codes = [p._code if isinstance(p, Placement) else -1 for p in placements]
            for code in codes:  # what is neither Partial nor to be normalised needs no second look
                if code < 0 or (code and (code % 256 != 1 or code // 256 >= rank)):
                    break
            else:
                return tuple(codes)
        return tuple(p._code for p in self.normalise(placements, rank))

    def normalise(self, placements: Any, rank: int | None = None) -> Placements:
        """Placements of a tensor with `rank` dims, checked, without negative dims.

        None stands for all Replicate; without a rank, dims are not looked at.
        """
        if placements is None:
            return from_codes((0,) * len(self._shape))
        if isinstance(placements, Placement | str) or not isinstance(placements, Sequence):
            raise TypeError(
                "placements must be a sequence with one of Shard, Replicate and Partial for each "
                f"mesh dim, not {placements!r}"
            )
        if len(placements) != len(self._shape):
            raise ValueError(
                f"placements must have one entry for each of the {len(self._shape)} dims of the "
                f"mesh {self!r}, got {len(placements)}: {list(placements)!r}"
            )
        found = [self._normal(p, i, rank) for i, p in enumerate(placements)]
        kinds = {"sum" if p.reduce_op == "avg" else p.reduce_op for p in _partials(found)}
        if len(kinds) > 1:
            raise ValueError(
                f"placements {found!r} mix reductions whose order matters: one tensor cannot be "
                f"Partial({_partials(found)[0].reduce_op}) and of another kind"
            )
        return Placements(found)

    def _normal(self, placement: Any, at: int, rank: int | None) -> Placement:
        if not isinstance(placement, Placement):
            raise TypeError(
                f"placements[{at}] must be Shard, Replicate or Partial, not {placement!r}"
            )
        if not isinstance(placement, Shard) or rank is None:
            return placement
        if not -rank <= placement.dim < rank:
            raise ValueError(
                f"placements[{at}] is Shard({placement.dim}), but the tensor has {rank} dimensions"
            )
        return placement if placement.dim >= 0 else Shard(placement.dim + rank)


def _partials(placements: Sequence[Placement]) -> list[Partial]:
    return [p for p in placements if isinstance(p, Partial)]


def mesh_by_id(number: int) -> DeviceMesh:
    """The mesh that the core knows by that number."""
    return _meshes[number]


def init_device_mesh(
    device_type: str, mesh_shape: int | Sequence[int], mesh_dim_names: Any = None
) -> DeviceMesh:
    """The mesh of the first devices of a type, in row-major order.

    Args:
        device_type: "cuda" or "cpu".
        mesh_shape: the number of devices along each dim, or that of a mesh with one dim.
        mesh_dim_names: a name for each dim.
    """
    shape = (mesh_shape,) if not isinstance(mesh_shape, Sequence) else tuple(mesh_shape)
    for size in shape:
        if isinstance(size, bool) or not hasattr(size, "__index__"):
            raise ValueError(f"mesh_shape must be an int or a tuple of ints, not {mesh_shape!r}")
        if size < 1:
            raise ValueError(f"each size of mesh_shape must be at least 1, got {mesh_shape!r}")
    if not shape:
        raise ValueError("a mesh must have at least one dim, got mesh_shape=()")
    if math.prod(shape) > _DEVICES_MAX:
        raise ValueError(f"a mesh must not have more than {_DEVICES_MAX} devices, got {shape}")
    ids = iter(range(math.prod(shape)))

    def nested(rest: tuple[int, ...]) -> Any:
        return [nested(rest[1:]) for _ in range(rest[0])] if rest else next(ids)

    return DeviceMesh(device_type, nested(shape), mesh_dim_names)


# ---- the default ---------------------------------------------------------------------------------


class _Default:
    """One entry of the context's stack of defaults."""

    __slots__ = ("mesh", "outer")

    def __init__(self, mesh: DeviceMesh, outer: _Default | None) -> None:
        self.mesh = mesh
        self.outer = outer


_default: ContextVar[_Default | None] = ContextVar("dtorch.default_device_mesh", default=None)
_plain: DeviceMesh | None = None


def plain_mesh() -> DeviceMesh:
    """DeviceMesh("cpu"), on which tensors are ordinary ones."""
    global _plain
    if _plain is None:
        _plain = DeviceMesh("cpu")
    return _plain


def default_mesh() -> DeviceMesh | None:
    """The default mesh of this context; None: the CPU alone."""
    entry = _default.get()
    return None if entry is None or entry.mesh._is_plain else entry.mesh


class _GraphType(type):
    @property
    def default_device_mesh(cls) -> DeviceMesh:
        """The mesh of what is created without device, device_mesh or another tensor's mesh."""
        entry = _default.get()
        return plain_mesh() if entry is None else entry.mesh

    @default_device_mesh.setter
    def default_device_mesh(cls, mesh: DeviceMesh) -> None:
        if not isinstance(mesh, DeviceMesh):
            raise TypeError(f"default_device_mesh must be a DeviceMesh, not {type(mesh).__name__}")
        entry = _default.get()
        _default.set(_Default(mesh, None if entry is None else entry.outer))
        _C._default_mesh_is_set()


class Graph(metaclass=_GraphType):
    """What holds for everything that a context calls; never instantiated.

    ``Graph.default_device_mesh`` is the mesh of what is created without saying where; at first
    ``DeviceMesh("cpu")``. It belongs to the context, as a context variable does: a task takes along
    what was set when it was started, what it sets itself no other task sees, and a new thread
    begins with the CPU. Assign to it, or
    use a mesh as a ``with`` block, after which the former default holds again::

        dtorch.Graph.default_device_mesh = mesh
        with mesh:
            x = dtorch.zeros(4)  # on mesh, replicated
    """

    def __new__(cls) -> Graph:
        raise TypeError("Graph is not instantiated: use its attributes")


# ---- redistribute --------------------------------------------------------------------------------


def explain(tensor: Any, device_mesh: Any = None, placements: Any = None) -> Any:
    """What ``tensor.redistribute(device_mesh, placements)`` would do, without doing it.

    Returns:
        A plan: print it, or look at its ``steps`` (name, mesh_dims, bytes, device_mesh and
        placements of each), ``bytes`` (received by the device that receives most), ``memory``
        (bytes in between) and ``pieces``. It is the way that moves fewest bytes, then has fewest
        steps that move any.

    Raises:
        As ``redistribute``.
    """
    from . import _redistribute  # which is written on top of this module

    return _redistribute.explain(tensor, device_mesh, placements)


def redistribute_memory(limit: int | None) -> int | None:
    """Sets how many bytes of a device a redistribute may need in between; None: any number.

    What would need more runs piece by piece, or on a way that needs none. Returns the limit before.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise ValueError(f"redistribute_memory() takes a number of bytes or None, not {limit!r}")
    before: int = _C.redistribute_memory(-1 if limit is None else limit)
    return None if before < 0 else before


# ---- functions of the user's own -----------------------------------------------------------------


def local_map(
    fn: Callable[..., Any],
    out_placements: Any,
    in_placements: Any = None,
    device_mesh: DeviceMesh | None = None,
    *,
    redistribute_inputs: bool = False,
) -> Callable[..., Any]:
    """A function that calls `fn` once for each device, with what that device holds.

    In `fn` every tensor on the mesh, also in lists, tuples and dicts, is an ordinary one: the
    device's part, whose bytes it shares. All other arguments come as they are. What is created
    there goes to the CPU, and ``cuda.current_device()`` is the device. The results, tensors or
    tuples and lists of them, are put together as ``Tensor.from_local`` does::

        normalise = local_map(lambda x: x / x.norm(), [Shard(0)])
        y = normalise(x)  # each device's rows by their own norm

    Called with ordinary tensors only, it is `fn`.

    Args:
        fn: takes and returns tensors; not a coroutine function.
        out_placements: of the result, or for several results a sequence with those of each; None
            for a result that is no tensor (the first device's is given).
        in_placements: for each tensor among the positional arguments its placements, or None: any.
            Default: any.
        device_mesh: default: that of the inputs, which must agree.
        redistribute_inputs: inputs that are placed otherwise are redistributed. Default: an error.

    Raises:
        PlacementError: (on the call) inputs on different meshes, or not placed as told.
        ValueError: (on the call) results that do not fit `out_placements`, or together.
    """
    from . import _local_map

    return _local_map.local_map(
        fn, out_placements, in_placements, device_mesh, redistribute_inputs=redistribute_inputs
    )


def register_sharding(fn: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Makes an op of a function of ordinary tensors, and of a rule that says how it may be sharded.

    The decorated rule is called as the op is, and looks at shapes and dtypes only. It returns what
    is acceptable along one mesh dim: pairs of the outputs' and the inputs' placements, one for each
    tensor in order (None for other arguments). All Replicate always is. For each mesh dim the pair
    is taken that changes fewest inputs; Replicate ones are cut as needed. Then `fn` is called once
    for each device, as ``local_map`` does. The name of the rule becomes the op::

        def scaled_softmax(x, scale): ...

        @register_sharding(scaled_softmax)
        def my_softmax(x, scale):  # over the last dim
            return [([Shard(d)], [Shard(d), None]) for d in range(x.ndim - 1)]

        y = my_softmax(x, 0.5)

    With ordinary tensors only, the op is `fn`. In a ``dtorch.implicit_redistribute()`` block
    illegal inputs are redistributed.

    Raises:
        PlacementError: (on the call) inputs that are not placed acceptably; it names what is.
        ValueError: (on the call) a rule that does not fit the call.
    """
    from . import _local_map

    return _local_map.register_sharding(fn)
