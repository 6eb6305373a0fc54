"""Printing tensors as torch does: same digits, widths, line breaks and suffixes.

The rules, for floating-point values: integers print with a bare point ("1."); otherwise `precision`
digits follow it; scientific notation is used when the ratio of the largest to the smallest
magnitude passes 1000, the largest passes 1e8, or (unless all are integers) the smallest is below
1e-4. Only finite non-zero values decide. Above `threshold` elements the middle of each
dimension longer than 2 * `edgeitems` is left out, and only what is printed is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from . import _C


class _Options:
    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_options = _Options()

_PROFILES: dict[str, tuple[int, float, int, int]] = {
    "default": (4, 1000, 3, 80),
    "short": (2, 1000, 2, 80),
    "full": (4, math.inf, 3, 80),
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """How tensors print: digits, elements before summarising, items at the edges, columns."""
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(f"profile must be one of {', '.join(_PROFILES)}, not {profile!r}")
        (
            _options.precision,
            _options.threshold,
            _options.edgeitems,
            _options.linewidth,
        ) = _PROFILES[profile]
    if precision is not None:
        _options.precision = precision
    if threshold is not None:
        _options.threshold = threshold
    if edgeitems is not None:
        _options.edgeitems = edgeitems
    if linewidth is not None:
        _options.linewidth = linewidth
    _options.sci_mode = sci_mode


class _Elided:
    """Stands for the items of a dimension that are left out."""


_ELIDED = _Elided()


def _read(tensor: Any, summarize: bool) -> Any:
    """The values to print as nested lists, with _ELIDED where a dimension is cut."""
    if tensor.ndim == 0 or not summarize:
        return tensor.tolist()
    size, edge = tensor.shape[0], _options.edgeitems
    if size <= 2 * edge:
        indices: list[int] = list(range(size))
    else:
        indices = [*range(edge), *range(size - edge, size)]
    if tensor.ndim == 1:
        if size <= 2 * edge:
            return tensor.tolist()
        values = [*tensor[:edge].tolist(), *(tensor[-edge:].tolist() if edge else ())]
    else:
        values = [_read(tensor[i], True) for i in indices]
    if size > 2 * edge:
        values.insert(edge, _ELIDED)
    return values


def _flat(values: Any) -> Iterator[Any]:
    if isinstance(values, list):
        for value in values:
            yield from _flat(value)
    elif values is not _ELIDED:
        yield values


class _Formatter:
    """Formats every value to one width, chosen from all that are printed."""

    def __init__(self, values: Any, floating: bool) -> None:
        self.floating = floating
        self.integral = True
        self.scientific = False
        self.width = 1
        if not floating:
            self.width = max((len(str(v)) for v in _flat(values)), default=1)
            return
        finite = [v for v in _flat(values) if v != 0 and math.isfinite(v)]
        if finite:
            self._choose(finite)
        elif _options.sci_mode is not None:
            self.scientific = _options.sci_mode

    def _choose(self, finite: list[float]) -> None:
        largest = max(abs(v) for v in finite)
        smallest = min(abs(v) for v in finite)
        self.integral = all(v == math.ceil(v) for v in finite)
        # A quotient that overflows is infinite, as in IEEE arithmetic.
        wide = largest > 1000 * smallest if smallest < 1e-300 else largest / smallest > 1000.0
        wide = wide or largest > 1.0e8
        self.scientific = wide or (not self.integral and smallest < 1.0e-4)
        if _options.sci_mode is not None:
            self.scientific = _options.sci_mode
        digits = f".{_options.precision}e" if self.scientific else f".{_options.precision}f"
        if self.integral and not self.scientific:
            self.width = max(len(f"{v:.0f}") + 1 for v in finite)
        else:
            self.width = max(len(f"{v:{digits}}") for v in finite)

    def __call__(self, value: Any) -> str:
        if not self.floating:
            text = str(value)
        elif self.scientific:
            text = f"{value:{self.width}.{_options.precision}e}"
        elif self.integral:
            text = f"{value:.0f}" + ("." if math.isfinite(value) else "")
        else:
            text = f"{value:.{_options.precision}f}"
        return text.rjust(self.width)


def _vector(values: list[Any], indent: int, form: _Formatter) -> str:
    per_line = max(1, (_options.linewidth - indent) // (form.width + 2))
    items = [" ..." if v is _ELIDED else form(v) for v in values]
    if not _options.edgeitems and _ELIDED in values:
        items = ["..."]
    lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _nested(values: Any, dims: int, indent: int, form: _Formatter) -> str:
    if dims == 0:
        return form(values)
    if dims == 1:
        return _vector(values, indent, form)
    parts = ["..." if v is _ELIDED else _nested(v, dims - 1, indent + 1, form) for v in values]
    return "[" + ("," + "\n" * (dims - 1) + " " * (indent + 1)).join(parts) + "]"


_PREFIX = "tensor("


def _with_suffixes(text: str, suffixes: list[str], indent: int) -> str:
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if column + len(suffix) + 2 > _options.linewidth:
            text += ",\n" + " " * indent + suffix
            column = indent + len(suffix)
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"


def tensor_repr(tensor: Any) -> str:
    """The text of repr(tensor) and str(tensor); waits for the value.

    That of a tensor on a mesh is the whole value's, followed by how it lies there:
    ``shape=(4, 2), device_mesh=cuda(2x2), placements=[S0, R]``, never folded.
    """
    spec = _C.dist_spec(tensor)
    if spec is not None:
        return _mesh_repr(tensor)
    return _with_suffixes(*_described(tensor), len(_PREFIX))


def _mesh_repr(tensor: Any) -> str:
    tensor._wait("printing a Tensor")
    whole = _C.dist_whole(tensor)
    text, suffixes = _described(whole)
    suffixes = [s for s in suffixes if not s.startswith("size=")]
    suffixes.append(
        f"shape={tuple(tensor.shape)}, device_mesh={tensor.device_mesh}, "
        f"placements={tensor.placements}"
    )
    if tensor.requires_grad:
        suffixes.append("requires_grad=True")
    return _with_suffixes(text, suffixes, len(_PREFIX))


def _described(tensor: Any) -> tuple[str, list[str]]:
    """The values as text, and what is said after them."""
    prefix = _PREFIX
    dtype = tensor._dtype_name
    default = _C.default_dtype_name()
    suffixes = []
    if tensor.numel() == 0:
        body = "[]"
        if tensor.ndim != 1:
            suffixes.append(f"size={tuple(tensor.shape)}")
        if dtype != default:
            suffixes.append(f"dtype=torch.{dtype}")
    else:
        tensor._wait("printing a Tensor")
        values = _read(tensor, tensor.numel() > _options.threshold)
        form = _Formatter(values, tensor.is_floating_point())
        body = _nested(values, tensor.ndim, len(prefix), form)
        if dtype not in (default, "int64", "bool"):
            suffixes.append(f"dtype=torch.{dtype}")
    if tensor.requires_grad:
        suffixes.append("requires_grad=True")
    return prefix + body, suffixes
