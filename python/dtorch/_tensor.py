"""Methods of Tensor that are written in Python, and their attachment to the C type."""

from __future__ import annotations

from typing import Any

from . import _C, _creation, _dist, _functions, _redistribute

Tensor: Any = _C.Tensor
_to = _C.rows["copy__to"]


# ---- dtype and device ----------------------------------------------------------------------------


def _is_device(value: Any) -> bool:
    if isinstance(value, str):
        return not _C.is_dtype(value)
    return type(value).__name__ == "device"


def _split_to(args: tuple[Any, ...]) -> tuple[Any, Any, bool, bool]:
    """The forms of to(): (dtype, ...), (device, dtype, ...), (other, ...)."""
    device = dtype = None
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        dtype = rest.pop(0)._dtype_name
    else:
        if rest and (rest[0] is None or _is_device(rest[0])):
            device = rest.pop(0)
        if rest and not isinstance(rest[0], bool):
            dtype = rest.pop(0)
    if len(rest) > 2 or any(not isinstance(r, bool) for r in rest):
        raise TypeError("to() received an invalid combination of arguments")
    non_blocking, copy = (*rest, False, False)[:2]
    return device, dtype, non_blocking, copy


def to(
    self: Any,
    *args: Any,
    device: Any = None,
    dtype: Any = None,
    other: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Any:
    """The tensor in another dtype (or on a device); itself where nothing changes, unless copy."""
    if args:
        first_device, first_dtype, _, first_copy = _split_to(args)
        device = first_device if device is None else device
        dtype = first_dtype if dtype is None else dtype
        copy = copy or first_copy
    if other is not None:
        dtype = other._dtype_name
    moved = self if device is None else _dist.to_device(self, device)
    if dtype is not None:
        dtype = _C.dtype_name(dtype)
        if dtype != self._dtype_name:
            return _to(moved, dtype)
    return moved.clone() if copy and moved is self else moved


def _caster(name: str, dtype: str) -> Any:
    def method(self: Any, memory_format: Any = None) -> Any:
        return self if self._dtype_name == dtype else _to(self, dtype)

    method.__name__ = name
    method.__qualname__ = f"Tensor.{name}"
    method.__doc__ = f"The tensor as {dtype}."
    return method


def type_(self: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
    """Without an argument the type's name ("torch.FloatTensor"), else as to(dtype)."""
    if dtype is None:
        return f"torch.{_functions._long_name(self)}Tensor"
    return self.to(dtype)


def type_as(self: Any, other: Any) -> Any:
    """The tensor in the dtype of `other`."""
    return self.to(other._dtype_name)


def cpu(self: Any, memory_format: Any = None) -> Any:
    """The tensor on the CPU: itself where it is there, else its whole value."""
    return _dist.to_device(self, "cpu")


def cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
    """The tensor on a GPU, or on the default mesh where that is one of GPUs."""
    return _dist.to_device(self, "cuda" if device is None else device)


def view_overload(self: Any, dtype: Any = None, *rest: Any) -> Any:
    """view(dtype): the same bytes as another dtype."""
    if rest or dtype is None or isinstance(dtype, tuple | list):
        raise NotImplementedError
    return _dist.view_dtype(self, dtype)


# ---- writing -------------------------------------------------------------------------------------


def copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Copies the elements of `src`, cast and broadcast, into this tensor."""
    if not isinstance(src, Tensor):
        if isinstance(src, int | float):
            return self.fill_(src)
        raise TypeError(
            f"copy_(): argument 'other' (position 1) must be Tensor, not {type(src).__name__}"
        )
    return _C.copy_into(self, _dist.source_for(self, src))


def zero_(self: Any) -> Any:
    """Fills the tensor with 0."""
    return self.fill_(0)


def clamp_min_(self: Any, min: Any) -> Any:
    """Elements below `min` become `min`, in place."""
    return self.clamp_(min)


def clamp_max_(self: Any, max: Any) -> Any:
    """Elements above `max` become `max`, in place."""
    return self.clamp_(None, max)


def uniform_(
    self: Any, *args: float, to: float | None = None, generator: Any = None, **kwargs: float
) -> Any:
    """Fills the tensor with numbers drawn evenly from [from, to)."""
    low = kwargs.pop("from", args[0] if args else 0.0)
    to = (args[1] if len(args) > 1 else 1.0) if to is None else to
    if kwargs or len(args) > 2:
        raise TypeError("uniform_() takes from=0.0, to=1.0 and generator=None")
    if not low <= to:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={low} > to={to}"
        )
    _creation._check(None, generator)
    drawn = _dist.alike(self, "rand__new", self.shape, low, to, self._dtype_name)
    return self.copy_(drawn)


def normal_(self: Any, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Any:
    """Fills the tensor with normal numbers."""
    if std < 0:
        raise RuntimeError(f"normal_ expects std >= 0.0, but found std {std}")
    _creation._check(None, generator)
    drawn = _dist.alike(self, "randn__new", self.shape, mean, std, self._dtype_name)
    return self.copy_(drawn)


def set_(self: Any, source: Any = None) -> Any:
    """Takes the storage and metadata of `source`."""
    return self._replace(Tensor() if source is None else source)


# ---- shapes --------------------------------------------------------------------------------------


def reshape_as(self: Any, other: Any) -> Any:
    """reshape() to the shape of `other`."""
    return self.reshape(other.shape)


def adjoint(self: Any) -> Any:
    """The last two dimensions exchanged."""
    return self.mT


# ---- other libraries -----------------------------------------------------------------------------


def array(self: Any, dtype: Any = None, copy: Any = None) -> Any:
    """For numpy.asarray(): shares the bytes unless the dtype changes or copy is asked for."""
    result = self.numpy()
    if dtype is not None and result.dtype != dtype:
        if copy is False:
            raise ValueError("a copy is needed to change the dtype")
        return result.astype(dtype)
    return result.copy() if copy else result


def array_wrap(self: Any, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
    """What numpy's functions make of a tensor becomes a tensor again."""
    return _C.tensor(array, None)


def format_(self: Any, spec: str) -> str:
    """A 0-dim tensor formats as its number; any other only with an empty spec."""
    if self.ndim == 0:
        return format(self.item(), spec) if spec else str(self.item())
    if spec:
        raise TypeError("unsupported format string passed to Tensor.__format__")
    return str(self)


def reversed_(self: Any) -> Any:
    """The elements of the first dimension, last first."""
    if self.ndim == 0:
        return self
    size = self.shape[0]
    return self.index_select(0, _dist.beside(self, "arange__new", 1, size - 1, -1, -1, "int64"))


# ---- autograd's place ----------------------------------------------------------------------------


def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Not there yet."""
    raise NotImplementedError("backward(): autograd is not part of dtorch yet")


def register_hook(self: Any, hook: Any) -> Any:
    """Not there yet."""
    raise NotImplementedError("register_hook(): autograd is not part of dtorch yet")


def retain_grad(self: Any) -> None:
    """Nothing to do: there is no graph."""
    if not self.requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")


def detach_(self: Any) -> Any:
    """Forgets that gradients were asked for."""
    self.requires_grad = False
    return self


def attach() -> None:
    """Gives the C type its Python methods."""
    casts = {
        "float": "float32",
        "double": "float64",
        "half": "float16",
        "bfloat16": "bfloat16",
        "int": "int32",
        "long": "int64",
        "short": "int16",
        "char": "int8",
        "byte": "uint8",
        "bool": "bool",
    }
    for name, dtype in casts.items():
        setattr(Tensor, name, _caster(name, dtype))
    for function in (
        to, type_as, cpu, cuda, copy_, zero_, clamp_min_, clamp_max_, uniform_, normal_, set_,
        reshape_as, adjoint, backward, register_hook, retain_grad, detach_,
        _dist.to_local, _dist.full_tensor,
        *_creation.METHODS, *_redistribute.METHODS,
    ):  # fmt: skip
        setattr(Tensor, function.__name__, function)
    for name in _functions.METHODS:
        setattr(Tensor, name, getattr(_functions, name))
    Tensor.device_mesh = property(_dist.device_mesh)
    Tensor.placements = property(_dist.placements)
    Tensor.from_local = staticmethod(_dist.from_local)
    Tensor.type = type_
    Tensor.where = _functions.where_method
    Tensor.gather = _functions.gather_along
    Tensor.__array__ = array
    Tensor.__array_wrap__ = array_wrap
    Tensor.__array_priority__ = 1000
    Tensor.__format__ = format_
    Tensor.__reversed__ = reversed_
    Tensor.view._set_overload(view_overload)
    for alias, name in _functions.ALIASES.items():
        for suffix in ("", "_"):
            method = getattr(Tensor, name + suffix, None)
            if method is not None:
                setattr(Tensor, alias + suffix, method)
