"""Functions that are more than one row of the registry: overloads, several outputs, composites.

Each takes the tensor first, so that the same function serves as a method.
"""

from __future__ import annotations

import math
from typing import Any

from . import _C, return_types

Tensor = _C.Tensor
_rows = _C.rows
_functions = _C.functions

_amax, _amin = _functions["amax"], _functions["amin"]
_maximum, _minimum = _functions["maximum"], _functions["minimum"]
_max_dim, _min_dim = _rows["max__dim"], _rows["min__dim"]
_std, _var = _rows["std__new"], _rows["var__new"]
_norm = _rows["norm__new"]
_any, _all, _sum, _mean = (_functions[n] for n in ("any", "all", "sum", "mean"))
_where, _clamp = _functions["where"], _functions["clamp"]
_isfinite, _abs = _functions["isfinite"], _functions["abs"]
_narrow, _select = _functions["narrow"], _functions["select"]
_cat, _mul = _functions["cat"], _functions["mul"]
_nonzero, _nonzero_tuple = _rows["nonzero__new"], _rows["nonzero__tuple"]
_masked_select, _unique = _rows["masked_select__new"], _rows["unique__new"]
_unique_consecutive = _rows["unique_consecutive__new"]


def _no_value(input: Any, name: str) -> None:
    if not isinstance(input, Tensor):
        raise TypeError(
            f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}"
        )


def _into(result: Any, out: Any) -> Any:
    """The result, written into out where one is given; out resizes as torch's does."""
    if out is None:
        return result
    if isinstance(result, tuple):
        if not isinstance(out, tuple | list) or len(out) != len(result):
            raise TypeError(f"argument 'out' must be tuple of {len(result)} Tensors")
        kind: Any = type(result)
        return kind(*(_into(r, o) for r, o in zip(result, out, strict=True)))
    if not isinstance(out, Tensor):
        raise TypeError(f"argument 'out' must be Tensor, not {type(out).__name__}")
    if not _C.can_cast(result._dtype_name, out._dtype_name):
        raise RuntimeError(
            f"result type {result._dtype_name} can't be cast to the desired output type "
            f"{out._dtype_name}"
        )
    if out.shape != result.shape:
        return out._replace(result.to(out._dtype_name))
    return out.copy_(result)


# ---- reductions ----------------------------------------------------------------------------------


def _extremum(name: str, full: Any, by_dim: Any, pairwise: Any, kind: Any) -> Any:
    def function(
        input: Any,
        dim: Any = None,
        keepdim: Any = None,
        *,
        other: Any = None,
        axis: Any = None,
        keepdims: Any = None,
        out: Any = None,
    ) -> Any:
        _no_value(input, name)
        if axis is not None:
            if dim is not None:
                raise TypeError(f"{name}() got both 'dim' and 'axis'")
            dim = axis
        keepdim = keepdims if keepdim is None else keepdim
        if isinstance(dim, Tensor) and keepdim is None:
            other, dim = dim, None
        if other is not None:
            if dim is not None:
                raise TypeError(f"{name}() takes 'other' or 'dim', not both")
            return pairwise(input, other, out=out)
        if dim is None:
            if keepdim is not None:
                raise TypeError(f"{name}() got 'keepdim' without 'dim'")
            if input.numel() == 0:
                raise RuntimeError(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
                    "Specify the reduction dim with the 'dim' argument."
                )
            return _into(full(input), out)
        return _into(kind(*by_dim(input, dim, False if keepdim is None else keepdim)), out)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{name}(input): the {name}imum of all elements; {name}(input, dim, keepdim=False): values "
        f"and indices along a dim; {name}(input, other): element by element."
    )
    return function


max = _extremum("max", _amax, _max_dim, _maximum, return_types.max)
min = _extremum("min", _amin, _min_dim, _minimum, return_types.min)


def aminmax(input: Any, *, dim: Any = None, keepdim: bool = False) -> Any:
    """The least and the greatest element, of all or along a dim."""
    if dim is None:
        dim = ()
    return return_types.aminmax(_amin(input, dim, keepdim), _amax(input, dim, keepdim))


def _spread(
    name: str,
    row: Any,
    input: Any,
    dim: Any,
    unbiased: Any,
    keepdim: Any,
    correction: Any,
    axis: Any,
) -> Any:
    _no_value(input, name)
    if axis is not None:
        dim = axis
    if isinstance(dim, bool):  # var(input, unbiased)
        if unbiased is not None:
            raise TypeError(f"{name}() received an invalid combination of arguments")
        dim, unbiased = None, dim
    if unbiased is not None and not isinstance(unbiased, bool):
        raise TypeError(
            f"{name}(): argument 'unbiased' must be bool, not {type(unbiased).__name__}"
        )
    if unbiased is not None and correction is not None:
        raise TypeError(f"{name}() takes 'unbiased' or 'correction', not both")
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    return row(input, dim, correction, keepdim)


def var(
    input: Any,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
    axis: Any = None,
    out: Any = None,
) -> Any:
    """The variance: squared distances from the mean, summed and divided by N - correction."""
    return _into(_spread("var", _var, input, dim, unbiased, keepdim, correction, axis), out)


def std(
    input: Any,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
    axis: Any = None,
    out: Any = None,
) -> Any:
    """The standard deviation: the square root of var()."""
    return _into(_spread("std", _std, input, dim, unbiased, keepdim, correction, axis), out)


def _mean_over(input: Any, dim: Any, keepdim: bool) -> Any:
    return _mean(input, None if isinstance(dim, bool) else dim, keepdim)


def var_mean(
    input: Any,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Any:
    """(var, mean)."""
    spread = var(input, dim, unbiased, keepdim, correction=correction)
    return spread, _mean_over(input, dim, keepdim)


def std_mean(
    input: Any,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Any:
    """(std, mean)."""
    spread = std(input, dim, unbiased, keepdim, correction=correction)
    return spread, _mean_over(input, dim, keepdim)


def norm(
    input: Any,
    p: Any = "fro",
    dim: Any = None,
    keepdim: bool = False,
    out: Any = None,
    dtype: Any = None,
) -> Any:
    """The vector norm of order p over dim (default: all): (sum |x|^p)^(1/p), |x| for p = inf."""
    _no_value(input, "norm")
    if isinstance(p, str):
        if p != "fro":
            raise NotImplementedError(f"norm(): p={p!r} is not supported; use a number or 'fro'")
        p = 2.0
    if p is None:
        p = 2.0
    return _into(_norm(input, p, dim, keepdim, dtype), out)


def count_nonzero(input: Any, dim: Any = None) -> Any:
    """How many elements are not zero."""
    return _sum(input != 0, dim)


# ---- results whose size depends on values --------------------------------------------------------
#
# They return at once; await gives the result with its shape, and .shape before that waits.


def nonzero(input: Any, *, out: Any = None, as_tuple: bool = False) -> Any:
    """The indices of what is not zero, (count, ndim) int64; as_tuple: one vector for each dim."""
    _no_value(input, "nonzero")
    if as_tuple:
        if out is not None:
            raise RuntimeError("nonzero does not support the out kwarg when as_tuple is True")
        places = _nonzero_tuple(input)
        return places if isinstance(places, tuple) else (places,)
    if out is not None and isinstance(out, Tensor) and out._dtype_name != "int64":
        raise RuntimeError(
            "nonzero: Expected out tensor to have scalar type Long but got scalar type "
            f"{_long_name(out)}"
        )
    return _into(_nonzero(input), out)


def argwhere(input: Any) -> Any:
    """As nonzero(input)."""
    _no_value(input, "argwhere")
    return _nonzero(input)


def masked_select(input: Any, mask: Any, *, out: Any = None) -> Any:
    """The elements of `input` where `mask` (bool, both broadcast) is true, as a vector."""
    return _into(_masked_select(input, mask), out)


def _check_flags(name: str, **flags: Any) -> None:
    for flag, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name}(): argument '{flag}' must be bool, not {type(value).__name__}")


def unique(
    input: Any,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different elements, in ascending order always; each NaN counts as one of its own.

    With return_inverse also where each element went (int64, shaped as input), with return_counts
    also how often each occurs: a tuple then.
    """
    _no_value(input, "unique")
    _check_flags(
        "unique", sorted=sorted, return_inverse=return_inverse, return_counts=return_counts
    )
    if dim is not None:
        raise NotImplementedError("unique(): dim is not supported yet")
    return _unique(input, return_inverse, return_counts)


def unique_consecutive(
    input: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements without those that equal the one before; inverse and counts as for unique()."""
    _no_value(input, "unique_consecutive")
    _check_flags("unique_consecutive", return_inverse=return_inverse, return_counts=return_counts)
    if dim is not None:
        raise NotImplementedError("unique_consecutive(): dim is not supported yet")
    return _unique_consecutive(input, return_inverse, return_counts)


# ---- comparisons of whole tensors ----------------------------------------------------------------


def isclose(
    input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Any:
    """|input - other| <= atol + rtol * |other|, element by element; equal infinities are close."""
    _no_value(input, "isclose")
    _no_value(other, "isclose")
    if input._dtype_name != other._dtype_name:
        raise RuntimeError(f"{_long_name(input)} did not match {_long_name(other)}")
    if rtol < 0 or atol < 0:
        which = "rtol" if rtol < 0 else "atol"
        raise RuntimeError(
            f"{which} must be greater than or equal to zero, but got {rtol if rtol < 0 else atol}"
        )
    close = input == other
    if equal_nan and input.is_floating_point():
        close = close | ((input != input) & (other != other))
    if rtol == 0 and atol == 0:
        return close
    if not input.is_floating_point():
        input, other = input.to("float64"), other.to("float64")
    error = _abs(input - other)
    return close | (_isfinite(error) & (error <= _abs(other * rtol) + atol))


def _long_name(t: Any) -> str:
    names = {
        "bool": "Bool",
        "uint8": "Byte",
        "int8": "Char",
        "int16": "Short",
        "int32": "Int",
        "int64": "Long",
        "float16": "Half",
        "bfloat16": "BFloat16",
        "float32": "Float",
        "float64": "Double",
    }
    return names[t._dtype_name]


def allclose(
    input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Whether isclose() holds everywhere; waits."""
    return bool(_all(isclose(input, other, rtol, atol, equal_nan)).item())


def equal(input: Any, other: Any) -> bool:
    """Whether two tensors have the same shape and elements; waits."""
    _no_value(input, "equal")
    _no_value(other, "equal")
    if input.shape != other.shape:
        return False
    if input._dtype_name != other._dtype_name:
        raise RuntimeError(
            f"Expected object of data type {input._dtype_name} but got data type "
            f"{other._dtype_name} for argument 'other' in call to equal()"
        )
    return bool(_all(input == other).item())


# ---- where, clamp --------------------------------------------------------------------------------


def where(condition: Any, input: Any = None, other: Any = None, *, out: Any = None) -> Any:
    """Elements of `input` where the condition holds, of `other` elsewhere.

    where(condition) alone is nonzero(condition, as_tuple=True).
    """
    if input is None and other is None:
        if not isinstance(condition, Tensor):
            raise TypeError(
                "where(): argument 'condition' (position 1) must be Tensor, not "
                f"{type(condition).__name__}"
            )
        return nonzero(condition, as_tuple=True)
    return _where(condition, input, other, out=out)


def where_method(self: Any, condition: Any, other: Any) -> Any:
    """Elements of this tensor where the condition holds, of `other` elsewhere."""
    return _where(condition, self, other)


def clamp_min(input: Any, min: Any, *, out: Any = None) -> Any:
    """Elements below `min` become `min`."""
    return _clamp(input, min, None, out=out)


def clamp_max(input: Any, max: Any, *, out: Any = None) -> Any:
    """Elements above `max` become `max`."""
    return _clamp(input, None, max, out=out)


# ---- pieces --------------------------------------------------------------------------------------


def _wrap(dim: Any, rank: int) -> int:
    if isinstance(dim, bool) or not hasattr(dim, "__index__"):
        raise TypeError(f"argument 'dim' must be int, not {type(dim).__name__}")
    at: int = dim.__index__()
    bound = rank if rank > 0 else 1
    if not -bound <= at < bound:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], "
            f"but got {at})"
        )
    return at % bound


def split_with_sizes(input: Any, split_sizes: Any, dim: int = 0) -> tuple[Any, ...]:
    """Consecutive pieces of the given sizes along dim; views."""
    _no_value(input, "split_with_sizes")
    at = _wrap(dim, input.ndim)
    if input.ndim == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    sizes = [int(s) for s in split_sizes]
    total = input.shape[at]
    if sum(sizes) != total or any(s < 0 for s in sizes):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {total} (input tensor's size "
            f"at dimension {at}), but got split_sizes={sizes}"
        )
    pieces, start = [], 0
    for size in sizes:
        pieces.append(_narrow(input, at, start, size))
        start += size
    return tuple(pieces)


def split(tensor: Any, split_size_or_sections: Any, dim: int = 0) -> tuple[Any, ...]:
    """Pieces of one size (the last may be smaller), or of a list of sizes, along dim; views."""
    _no_value(tensor, "split")
    if isinstance(split_size_or_sections, tuple | list):
        return split_with_sizes(tensor, split_size_or_sections, dim)
    size = split_size_or_sections.__index__()
    at = _wrap(dim, tensor.ndim)
    if tensor.ndim == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    total = tensor.shape[at]
    if size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
    if size == 0:
        if total != 0:
            raise RuntimeError(
                "split_size can only be 0 if dimension size is 0, but got dimension size of "
                f"{total}"
            )
        return (_narrow(tensor, at, 0, 0),)
    starts = range(0, total, size) if total > 0 else range(1)
    sizes = (size if size < total - start else total - start for start in starts)
    return tuple(_narrow(tensor, at, start, n) for start, n in zip(starts, sizes, strict=True))


def chunk(input: Any, chunks: int, dim: int = 0) -> tuple[Any, ...]:
    """At most `chunks` pieces of ceil(size / chunks) along dim; views."""
    _no_value(input, "chunk")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    if input.ndim == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    total = input.shape[_wrap(dim, input.ndim)]
    if total == 0:
        return split_with_sizes(input, [0] * chunks, dim)
    return split(input, -(-total // chunks), dim)


def tensor_split(input: Any, indices_or_sections: Any, dim: int = 0) -> tuple[Any, ...]:
    """Nearly equal pieces, or pieces cut at the given indices, along dim; views."""
    _no_value(input, "tensor_split")
    if input.ndim == 0:
        raise RuntimeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
        )
    at = _wrap(dim, input.ndim)
    total = input.shape[at]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        n = indices_or_sections
        if n <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {n}")
        small, extra = divmod(total, n)
        return split_with_sizes(input, [small + (i < extra) for i in range(n)], at)
    pieces, start = [], 0
    for cut in [*indices_or_sections, total]:
        end = slice(start, cut).indices(total)[1]
        pieces.append(_narrow(input, at, start, end - start if end > start else 0))
        start = slice(cut, None).indices(total)[0]
    return tuple(pieces)


def unbind(input: Any, dim: int = 0) -> tuple[Any, ...]:
    """All slices along dim, without it; views."""
    _no_value(input, "unbind")
    if input.ndim == 0:
        raise IndexError(
            "Dimension specified as 0 but tensor has no dimensions"
            if dim in (0, -1)
            else f"Dimension out of range (expected to be in range of [-1, 0], but got {dim})"
        )
    at = _wrap(dim, input.ndim)
    return tuple(_select(input, at, i) for i in range(input.shape[at]))


# ---- shapes --------------------------------------------------------------------------------------


def ravel(input: Any) -> Any:
    """All elements in one dimension; a view where strides allow."""
    return input.reshape(-1)


def broadcast_shapes(*shapes: Any) -> Any:
    """The shape that tensors of the given shapes broadcast to."""
    sizes: list[int] = []
    for shape in shapes:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        sizes[:0] = [1] * (len(shape) - len(sizes))
        for i in range(-1, -len(shape) - 1, -1):
            if sizes[i] != shape[i] and shape[i] != 1:
                if sizes[i] != 1:
                    raise RuntimeError(
                        "Shape mismatch: objects cannot be broadcast to a single shape"
                    )
                sizes[i] = shape[i]
    return _C.dims("broadcast_shapes", (sizes,))


def broadcast_tensors(*tensors: Any) -> tuple[Any, ...]:
    """The tensors, expanded to one shape; views."""
    if len(tensors) == 1 and isinstance(tensors[0], tuple | list):
        tensors = tuple(tensors[0])
    shape = broadcast_shapes(*(t.shape for t in tensors))
    return tuple(t.expand(shape) for t in tensors)


def repeat(self: Any, *repeats: Any) -> Any:
    """The tensor repeated along each dimension; a copy."""
    counts = _C.dims("repeat", repeats)
    extra = len(counts) - self.ndim
    if extra < 0:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            "tensor"
        )
    if any(c < 0 for c in counts):
        raise RuntimeError(f"Trying to create tensor with negative dimension: {list(counts)}")
    sizes = (1,) * extra + tuple(self.shape)
    pairs = [d for count, size in zip(counts, sizes, strict=True) for d in (count, size)]
    inner = [d for size in sizes for d in (1, size)]
    total = [c * s for c, s in zip(counts, sizes, strict=True)]
    if len(pairs) <= 16:
        return self.reshape(inner).expand(pairs).reshape(total).clone()
    result = self.reshape(sizes)  # too many dims for one go: one dim after the other
    for dim, count in enumerate(counts):
        result = _cat([result] * count, dim) if count else _narrow(result, dim, 0, 0)
    return result


def tile(input: Any, dims: Any) -> Any:
    """As repeat(), with missing leading counts taken as 1."""
    dims = tuple(dims)
    return repeat(input, (1,) * (input.ndim - len(dims)) + dims)


def take_along_dim(input: Any, indices: Any, dim: Any = None) -> Any:
    """Elements by an index for each place along dim."""
    if dim is None:
        return gather_along(input.reshape(-1), 0, indices.reshape(-1))
    return gather_along(input, dim, indices)


def gather_along(input: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    """torch.gather: input[index[i][j]][j] and so on, along dim."""
    return _rows["gather__dim"](input, dim, index)


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Any, ...]:
    """Grids of coordinates from 1-dim tensors; views."""
    if len(tensors) == 1 and isinstance(tensors[0], tuple | list):
        tensors = tuple(tensors[0])
    if indexing not in ("ij", "xy"):
        raise RuntimeError(
            f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}'
        )
    swap = indexing == "xy" and len(tensors) >= 2
    if swap:
        tensors = (tensors[1], tensors[0], *tensors[2:])
    shape = [t.numel() for t in tensors]
    grids = [
        t.reshape([-1 if i == k else 1 for k in range(len(shape))]).expand(shape)
        for i, t in enumerate(tensors)
    ]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


def outer(input: Any, vec2: Any, *, out: Any = None) -> Any:
    """The product of each element of one vector with each of another."""
    for name, t in (("input", input), ("vec2", vec2)):
        if t.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {name}, but got {t.ndim}-D")
    return _mul(input.unsqueeze(1), vec2, out=out)


# ---- types ---------------------------------------------------------------------------------------


def is_tensor(obj: Any) -> bool:
    """Whether obj is a dtorch tensor."""
    return isinstance(obj, Tensor)


def is_floating_point(input: Any) -> bool:
    """Whether the dtype is a floating-point one."""
    _no_value(input, "is_floating_point")
    return input.is_floating_point()  # type: ignore[no-any-return]


def is_complex(input: Any) -> bool:
    """Whether the dtype is complex: never so far."""
    _no_value(input, "is_complex")
    return False


def is_nonzero(input: Any) -> bool:
    """Whether the only element is not zero; waits."""
    if input.numel() != 1:
        how = "no values" if input.numel() == 0 else "more than one value"
        raise RuntimeError(f"Boolean value of Tensor with {how} is ambiguous")
    return bool(input.item())


def numel(input: Any) -> int:
    """The number of elements."""
    _no_value(input, "numel")
    return input.numel()  # type: ignore[no-any-return]


inf, nan, pi, e = math.inf, math.nan, math.pi, math.e

ALIASES = {
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "clip": "clamp",
    "concat": "cat",
    "concatenate": "cat",
    "fix": "trunc",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "moveaxis": "movedim",
    "not_equal": "ne",
    "subtract": "sub",
    "swapdims": "swapaxes",
}
"""torch's second names, for functions, methods and in-place methods alike."""

FUNCTIONS = (
    "max min aminmax var std var_mean std_mean norm count_nonzero isclose allclose equal where "
    "clamp_min clamp_max split_with_sizes split chunk tensor_split unbind ravel broadcast_shapes "
    "broadcast_tensors tile take_along_dim meshgrid outer is_tensor is_floating_point is_complex "
    "is_nonzero numel nonzero argwhere masked_select unique unique_consecutive"
).split()
"""What becomes a function of dtorch."""

METHODS = (
    "max min aminmax var std norm count_nonzero isclose allclose equal clamp_min clamp_max "
    "split_with_sizes split chunk tensor_split unbind ravel repeat tile take_along_dim outer "
    "is_nonzero nonzero argwhere masked_select unique unique_consecutive"
).split()
"""What becomes a method of Tensor too."""
