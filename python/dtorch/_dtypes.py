"""Stand-ins for ``torch.dtype``, ``torch.device`` and friends, where torch is not installed."""

from __future__ import annotations

from typing import Any


class dtype:
    """An element type. One object for each: compare with ``is``."""

    __slots__ = ("is_complex", "is_floating_point", "is_signed", "itemsize", "name")

    def __init__(self, name: str, itemsize: int, floating: bool, signed: bool) -> None:
        self.name = name
        self.itemsize = itemsize
        self.is_floating_point = floating
        self.is_complex = False
        self.is_signed = signed

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return by_name, (self.name,)


_ALL = {
    name: dtype(name, size, floating, signed)
    for name, size, floating, signed in (
        ("bool", 1, False, False),
        ("uint8", 1, False, False),
        ("int8", 1, False, True),
        ("int16", 2, False, True),
        ("int32", 4, False, True),
        ("int64", 8, False, True),
        ("float16", 2, True, True),
        ("bfloat16", 2, True, True),
        ("float32", 4, True, True),
        ("float64", 8, True, True),
    )
}


def by_name(name: str) -> dtype:
    """The one object called `name`."""
    return _ALL[name]


class device:
    """Where a tensor is: ``device("cpu")``, ``device("cuda", 0)``, ``device("cuda:0")``."""

    __slots__ = ("index", "type")

    def __init__(self, type: Any = "cpu", index: int | None = None) -> None:
        if isinstance(type, device):
            type, index = type.type, type.index
        if not isinstance(type, str):
            raise TypeError(f"device(): argument 'type' must be str, not {type.__class__.__name__}")
        name, colon, number = type.partition(":")
        if colon:
            if index is not None or not number.isdigit():
                raise RuntimeError(f"Invalid device string: '{type}'")
            index = int(number)
        if name not in ("cpu", "cuda", "meta"):
            raise RuntimeError(
                f"Expected one of cpu, cuda, meta device type at start of device string: {name}"
            )
        self.type: str = name
        self.index: int | None = index

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, device):
            return NotImplemented
        return (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (self.type, self.index)


class layout:
    """How elements are laid out; only ``strided``."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


strided = layout("strided")
preserve_format = "torch.preserve_format"
contiguous_format = "torch.contiguous_format"
channels_last = "torch.channels_last"


# bits of the significand, smallest and greatest exponent of normal numbers
_FLOATS = {"float16": (10, -14, 15), "bfloat16": (7, -126, 127)} | {
    "float32": (23, -126, 127),
    "float64": (52, -1022, 1023),
}


class finfo:
    """The limits of a floating-point type (default: the default dtype)."""

    def __init__(self, type: Any = None) -> None:
        from . import _C

        name = _C.dtype_name(_C.get_default_dtype() if type is None else type)
        if name not in _FLOATS:
            raise TypeError("torch.finfo() requires a floating point input type.")
        significand, least, most = _FLOATS[name]
        self.dtype = name
        self.bits = _ALL[name].itemsize * 8
        self.eps = 2.0**-significand
        self.max = (2.0 - 2.0**-significand) * 2.0**most
        self.min = -self.max
        self.tiny = self.smallest_normal = 2.0**least
        self.resolution = 10.0 ** -int(significand * 0.30103)

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
            f"eps={self.eps:g}, smallest_normal={self.tiny:g}, tiny={self.tiny:g}, "
            f"dtype={self.dtype})"
        )


class iinfo:
    """The limits of an integer type."""

    def __init__(self, type: Any) -> None:
        from . import _C

        name = _C.dtype_name(type)
        if name in _FLOATS or name == "bool":
            raise TypeError("torch.iinfo() requires an integer input type.")
        self.dtype = name
        self.bits = _ALL[name].itemsize * 8
        signed = _ALL[name].is_signed
        self.max = 2 ** (self.bits - signed) - 1
        self.min = -self.max - 1 if signed else 0

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
