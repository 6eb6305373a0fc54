"""Functions that make tensors: zeros, arange, rand, tensor and their kin, and seeds."""

from __future__ import annotations

from typing import Any

from . import _C
from ._dist import Place, make, make_like, place, place_beside, place_like, place_of, put
from ._torch import check_layout

Tensor = _C.Tensor

_dims = _C.dims


def _size(name: str, args: tuple[Any, ...], size: Any) -> Any:
    """The size of zeros(2, 3), zeros((2, 3)) or zeros(size=(2, 3))."""
    if size is not None:
        if args:
            raise TypeError(f"{name}() got multiple values for argument 'size'")
        return _dims(name, (size,))
    if not args:
        raise TypeError(f'{name}() missing 1 required positional arguments: "size"')
    return _dims(name, args)


def _check(layout: Any, generator: Any = None) -> None:
    if layout is not None:
        check_layout(layout)
    if generator is not None:
        raise NotImplementedError("generator= is not supported yet; use dtorch.manual_seed()")


def _place(
    device: Any, device_mesh: Any, placements: Any, layout: Any, out: Any, generator: Any = None
) -> Place | None:
    """Where a result goes; that of `out` unless told otherwise."""
    _check(layout, generator)
    if isinstance(out, Tensor) and device is None and device_mesh is None:
        return place_like(out, None, None, placements)
    return place(device, device_mesh, placements)


def _done(tensor: Any, out: Any, requires_grad: bool) -> Any:
    if out is not None:
        if not isinstance(out, Tensor):
            raise TypeError(f"argument 'out' must be Tensor, not {type(out).__name__}")
        if out.shape != tensor.shape:
            out._replace(tensor.to(out._dtype_name))
        else:
            out.copy_(tensor)
        tensor = out
    if requires_grad:
        tensor.requires_grad = True
    return tensor


def _dtype(dtype: Any, out: Any) -> Any:
    if dtype is not None:
        return dtype
    return _default_dtype() if out is None else out._dtype_name


def _default_dtype() -> Any:
    return _C.default_dtype_name()


def empty(
    *args: Any,
    size: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:
    """A tensor of the given size whose elements are not initialised."""
    where = _place(device, device_mesh, placements, layout, out)
    shape = _size("empty", args, size)
    return _done(
        make(where, "empty__new", len(shape), shape, _dtype(dtype, out)), out, requires_grad
    )


def zeros(
    *args: Any,
    size: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Any:
    """A tensor of the given size filled with 0."""
    where = _place(device, device_mesh, placements, layout, out)
    shape = _size("zeros", args, size)
    return _done(
        make(where, "full__new", len(shape), shape, 0, _dtype(dtype, out)), out, requires_grad
    )


def ones(
    *args: Any,
    size: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Any:
    """A tensor of the given size filled with 1."""
    where = _place(device, device_mesh, placements, layout, out)
    shape = _size("ones", args, size)
    return _done(
        make(where, "full__new", len(shape), shape, 1, _dtype(dtype, out)), out, requires_grad
    )


def _fill_dtype(value: Any) -> Any:
    """The dtype of full(): that of the value, where Python floats count as the default dtype."""
    if isinstance(value, Tensor):
        return value._dtype_name
    if isinstance(value, bool):
        return "bool"
    return "int64" if isinstance(value, int) else _default_dtype()


def full(
    size: Any,
    fill_value: Any,
    *,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Any:
    """A tensor of the given size (a tuple) filled with `fill_value`."""
    where = _place(device, device_mesh, placements, layout, out)
    if not isinstance(size, tuple | list):
        raise TypeError(
            f"full(): argument 'size' (position 1) must be tuple of ints, not {type(size).__name__}"
        )
    if dtype is None:
        dtype = _fill_dtype(fill_value) if out is None else out._dtype_name
    shape = _dims("full", (size,))
    return _done(make(where, "full__new", len(shape), shape, fill_value, dtype), out, requires_grad)


def _like(input: Any, name: str, dtype: Any, layout: Any) -> tuple[Any, Any]:
    if not isinstance(input, Tensor):
        raise TypeError(
            f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}"
        )
    _check(layout)
    return input.shape, input._dtype_name if dtype is None else dtype


def empty_like(
    input: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:
    """A tensor of the size and dtype of `input`, not initialised."""
    shape, dtype = _like(input, "empty_like", dtype, layout)
    where = place_like(input, device, device_mesh, placements)
    made = make_like(input, where, memory_format, "empty__new", shape, dtype)
    return _done(made, None, requires_grad)


def full_like(
    input: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:
    """A tensor of the size and dtype of `input`, filled with `fill_value`."""
    shape, dtype = _like(input, "full_like", dtype, layout)
    where = place_like(input, device, device_mesh, placements)
    made = make_like(input, where, memory_format, "full__new", shape, fill_value, dtype)
    return _done(made, None, requires_grad)


def zeros_like(
    input: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:
    """A tensor of the size and dtype of `input`, filled with 0."""
    shape, dtype = _like(input, "zeros_like", dtype, layout)
    where = place_like(input, device, device_mesh, placements)
    made = make_like(input, where, memory_format, "full__new", shape, 0, dtype)
    return _done(made, None, requires_grad)


def ones_like(
    input: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:
    """A tensor of the size and dtype of `input`, filled with 1."""
    shape, dtype = _like(input, "ones_like", dtype, layout)
    where = place_like(input, device, device_mesh, placements)
    made = make_like(input, where, memory_format, "full__new", shape, 1, dtype)
    return _done(made, None, requires_grad)


def _is_integral(value: Any) -> bool:
    if isinstance(value, Tensor):
        return not value.is_floating_point()
    return not isinstance(value, float) and hasattr(value, "__index__")


def arange(
    *args: Any,
    start: Any = None,
    end: Any = None,
    step: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Any:
    """The numbers from `start` (default 0) up to, not including, `end`, `step` (default 1) apart.

    The result has ceil((end - start) / step) elements. Integers give int64, floats the default
    dtype.
    """
    where = _place(device, device_mesh, placements, layout, out)
    if len(args) > 3:
        raise TypeError(f"arange() takes at most 3 positional arguments but {len(args)} were given")
    order = ("end",) if len(args) == 1 and end is None else ("start", "end", "step")
    given = {"start": start, "end": end, "step": step}
    for name, value in zip(order, args, strict=False):
        if given[name] is not None:
            raise TypeError(f"arange() got multiple values for argument '{name}'")
        given[name] = value
    if given["end"] is None:
        raise TypeError(
            "arange() received an invalid combination of arguments: expected (end), (start, end) "
            "or (start, end, step)"
        )
    first = 0 if given["start"] is None else given["start"]
    last = given["end"]
    by = 1 if given["step"] is None else given["step"]
    for name, value in (("start", first), ("end", last), ("step", by)):
        if not isinstance(value, Tensor) and not hasattr(value, "__float__"):
            at = f" (position {order.index(name) + 1})" if name in order[: len(args)] else ""
            raise TypeError(
                f"arange(): argument '{name}'{at} must be Number, not {type(value).__name__}"
            )
    if dtype is None:
        if out is not None:
            dtype = out._dtype_name
        else:
            integral = _is_integral(first) and _is_integral(last) and _is_integral(by)
            dtype = "int64" if integral else _default_dtype()
    return _done(make(where, "arange__new", 1, first, last, by, dtype), out, requires_grad)


def linspace(
    start: Any,
    end: Any,
    steps: Any,
    *,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Any:
    """`steps` evenly spaced numbers from `start` to `end`, both included."""
    where = _place(device, device_mesh, placements, layout, out)
    return _done(
        make(where, "linspace__new", 1, start, end, steps, _dtype(dtype, out)), out, requires_grad
    )


def eye(
    n: Any,
    m: Any = None,
    *,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Any:
    """The n x m matrix (default: n x n) with ones on its diagonal."""
    where = _place(device, device_mesh, placements, layout, out)
    return _done(
        make(where, "eye__new", 2, n, n if m is None else m, _dtype(dtype, out)), out, requires_grad
    )


def scalar_tensor(
    s: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Any:
    """A 0-dim tensor of the default dtype holding the number s."""
    where = _place(device, device_mesh, placements, layout, None)
    return _done(make(where, "full__new", 0, (), s, _dtype(dtype, None)), None, requires_grad)


# ---- random numbers -----------------------------------------------------------------------------


def manual_seed(seed: int) -> None:
    """Seeds the generator: the same numbers follow on every device and thread count."""
    _C.manual_seed(seed)


def _float_dtype(name: str, dtype: Any) -> Any:
    if dtype is not None:
        known = _C.dtype_name(dtype)
        if not known.startswith(("float", "bfloat")):
            raise NotImplementedError(f"{name}() is not implemented for {known}")
    return dtype


def rand(
    *args: Any,
    size: Any = None,
    generator: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Any:
    """Numbers drawn evenly from [0, 1)."""
    where = _place(device, device_mesh, placements, layout, out, generator)
    shape = _size("rand", args, size)
    dtype = _dtype(_float_dtype("rand", dtype), out)
    return _done(make(where, "rand__new", len(shape), shape, 0.0, 1.0, dtype), out, requires_grad)


def randn(
    *args: Any,
    size: Any = None,
    generator: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Any:
    """Numbers drawn from the normal distribution of mean 0 and standard deviation 1."""
    where = _place(device, device_mesh, placements, layout, out, generator)
    shape = _size("randn", args, size)
    dtype = _dtype(_float_dtype("randn", dtype), out)
    return _done(make(where, "randn__new", len(shape), shape, 0.0, 1.0, dtype), out, requires_grad)


def _bounds(name: str, low: int, high: int) -> None:
    if low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )


def randint(
    *args: Any,
    low: Any = None,
    high: Any = None,
    size: Any = None,
    generator: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Any:
    """randint([low=0,] high, size): integers drawn evenly from [low, high)."""
    where = _place(device, device_mesh, placements, layout, out, generator)
    rest = list(args)
    if rest and size is None and isinstance(rest[-1], tuple | list):
        size = rest.pop()
    if high is None and rest:
        high = rest.pop()
    if low is None and rest:
        low = rest.pop()
    if rest or high is None or size is None:
        raise TypeError(
            "randint() received an invalid combination of arguments: expected (high, size) or "
            "(low, high, size)"
        )
    low = 0 if low is None else low
    _bounds("randint", low, high)
    if dtype is None:
        dtype = "int64" if out is None else out._dtype_name
    shape = _dims("randint", (size,))
    return _done(
        make(where, "randint__new", len(shape), shape, low, high, dtype), out, requires_grad
    )


def rand_like(
    input: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:
    """As rand(), of the size and dtype of `input`."""
    shape, dtype = _like(input, "rand_like", dtype, layout)
    where = place_like(input, device, device_mesh, placements)
    return _done(
        make(where, "rand__new", len(shape), shape, 0.0, 1.0, _float_dtype("rand_like", dtype)),
        None,
        requires_grad,
    )


def randn_like(
    input: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:
    """As randn(), of the size and dtype of `input`."""
    shape, dtype = _like(input, "randn_like", dtype, layout)
    where = place_like(input, device, device_mesh, placements)
    return _done(
        make(where, "randn__new", len(shape), shape, 0.0, 1.0, _float_dtype("randn_like", dtype)),
        None,
        requires_grad,
    )


def randint_like(
    input: Any,
    *args: Any,
    low: Any = None,
    high: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:
    """As randint(), of the size and dtype of `input`."""
    shape, dtype = _like(input, "randint_like", dtype, layout)
    where = place_like(input, device, device_mesh, placements)
    if len(args) == 2:
        low, high = args
    elif len(args) == 1:
        low, high = (low, args[0]) if high is None else (args[0], high)
    if high is None:
        raise TypeError('randint_like() missing 1 required positional arguments: "high"')
    low = 0 if low is None else low
    _bounds("randint_like", low, high)
    return _done(
        make(where, "randint__new", len(shape), shape, low, high, dtype), None, requires_grad
    )


def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Any = None,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    requires_grad: bool = False,
) -> Any:
    """Normal numbers of a mean and a standard deviation (numbers, or tensors of one shape)."""
    where = _place(device, device_mesh, placements, None, out, generator)
    tensors = [t for t in (mean, std) if isinstance(t, Tensor)]
    if not tensors:
        if size is None:
            raise TypeError("normal(): size is needed where mean and std are numbers")
        if std < 0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
        shape = _dims("normal", (size,))
        drawn = make(where, "randn__new", len(shape), shape, mean, std, _dtype(dtype, out))
        return _done(drawn, out, requires_grad)
    both = mean + std
    dtype = tensors[0]._dtype_name
    drawn = make(place_of(both), "randn__new", both.ndim, both.shape, 0.0, 1.0, dtype)
    return _done(drawn * std + mean, out, requires_grad)


# ---- from data -----------------------------------------------------------------------------------


def tensor(
    *args: Any,
    data: Any = None,
    dtype: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Any:
    """A new tensor with a copy of `data`: a number, nested sequences, an array, a tensor."""
    if args:
        if len(args) > 1:
            raise TypeError(f"tensor() takes 1 positional argument but {len(args)} were given")
        data = args[0]
    elif data is None:
        raise TypeError('tensor() missing 1 required positional arguments: "data"')
    if isinstance(data, Tensor):
        import warnings

        warnings.warn(
            "To copy construct from a tensor, it is recommended to use "
            "sourceTensor.detach().clone() rather than dtorch.tensor(sourceTensor).",
            UserWarning,
            stacklevel=2,
        )
    return _done(_placed(_C.tensor(data, dtype), data, device, device_mesh, placements), None,
                 requires_grad)  # fmt: skip


def _placed(result: Any, data: Any, device: Any, device_mesh: Any, placements: Any) -> Any:
    """The result at its place: that of `data` where that is a tensor, unless told otherwise."""
    if isinstance(data, Tensor):
        if device is None and device_mesh is None and placements is None:
            return result
        where = place_like(result, device, device_mesh, placements)
    else:
        where = place(device, device_mesh, placements)
    return put(result, where)


def as_tensor(
    data: Any,
    dtype: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
) -> Any:
    """`data` itself where it is a dtorch tensor of that dtype, else a copy, as tensor() makes."""
    if isinstance(data, Tensor):
        result = data if dtype is None else data.to(dtype)
    else:
        result = _C.tensor(data, dtype)
    return _placed(result, data, device, device_mesh, placements)


def asarray(
    obj: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    copy: Any = None,
    requires_grad: bool = False,
) -> Any:
    """As as_tensor(); copy=True never gives `obj` itself, copy=False is an error where it must."""
    if copy is False and not isinstance(obj, Tensor):
        raise ValueError("asarray(): cannot avoid a copy of this object")
    result = as_tensor(obj, dtype, device, device_mesh, placements)
    if copy is False and result is not obj:
        raise ValueError("asarray(): cannot avoid a copy to change the dtype")
    if copy and result is obj:
        result = obj.clone()
    if requires_grad:
        result.requires_grad = True
    return result


# ---- methods -------------------------------------------------------------------------------------


def new_empty(
    self: Any,
    *args: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Any:
    """A tensor of the given size, of this one's dtype, not initialised."""
    _check(layout)
    where = place_beside(self, device, device_mesh, placements)
    shape = _size("new_empty", args, size)
    return _done(
        make(where, "empty__new", len(shape), shape, self._dtype_name if dtype is None else dtype),
        None,
        requires_grad,
    )


def new_zeros(
    self: Any,
    *args: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Any:
    """A tensor of the given size, of this one's dtype, filled with 0."""
    _check(layout)
    where = place_beside(self, device, device_mesh, placements)
    shape = _size("new_zeros", args, size)
    return _done(
        make(
            where, "full__new", len(shape), shape, 0, self._dtype_name if dtype is None else dtype
        ),
        None,
        requires_grad,
    )


def new_ones(
    self: Any,
    *args: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Any:
    """A tensor of the given size, of this one's dtype, filled with 1."""
    _check(layout)
    where = place_beside(self, device, device_mesh, placements)
    shape = _size("new_ones", args, size)
    return _done(
        make(
            where, "full__new", len(shape), shape, 1, self._dtype_name if dtype is None else dtype
        ),
        None,
        requires_grad,
    )


def new_full(
    self: Any,
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Any:
    """A tensor of the given size, of this one's dtype, filled with `fill_value`."""
    _check(layout)
    where = place_beside(self, device, device_mesh, placements)
    shape = _dims("new_full", (size,))
    dtype = self._dtype_name if dtype is None else dtype
    return _done(
        make(where, "full__new", len(shape), shape, fill_value, dtype), None, requires_grad
    )


def new_tensor(
    self: Any,
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    device_mesh: Any = None,
    placements: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Any:
    """As tensor(data), of this one's dtype unless another is given."""
    _check(layout)
    where = place_beside(self, device, device_mesh, placements)
    result = _C.tensor(data, self._dtype_name if dtype is None else dtype)
    return _done(put(result, where), None, requires_grad)


METHODS = (new_empty, new_zeros, new_ones, new_full, new_tensor)
"""What becomes a method of Tensor."""

FUNCTIONS = (
    "empty zeros ones full arange linspace eye scalar_tensor empty_like full_like zeros_like "
    "ones_like rand randn randint rand_like randn_like randint_like normal manual_seed tensor "
    "as_tensor asarray"
).split()
"""What becomes a function of dtorch."""
