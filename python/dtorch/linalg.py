"""Norms: the part of torch.linalg that is there so far."""

from __future__ import annotations

from typing import Any

from . import _C, _functions

_norm = _C.rows["norm__new"]
matmul = _C.functions["matmul"]


def vector_norm(
    x: Any,
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    out: Any = None,
) -> Any:
    """(sum |x|^ord)^(1/ord) over dim (default: all); max |x| and min |x| for ord = inf and -inf."""
    return _functions._into(_norm(x, ord, dim, keepdim, dtype), out)


def norm(
    A: Any,
    ord: Any = None,
    dim: Any = None,
    keepdim: bool = False,
    *,
    out: Any = None,
    dtype: Any = None,
) -> Any:
    """A vector norm: over one dim or the elements of a vector; without ord, of all elements."""
    dims = dim if isinstance(dim, tuple | list) else None if dim is None else (dim,)
    count = A.ndim if dims is None else len(dims)
    if ord is None or (ord == "fro" and count == 2):
        return vector_norm(A, 2, dim, keepdim, dtype=dtype, out=out)
    if isinstance(ord, str) or count == 2:
        raise NotImplementedError(
            f"linalg.norm(): the matrix norm ord={ord!r} is not supported yet"
        )
    if dims is None and A.ndim != 1:
        raise RuntimeError(
            "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. "
            f"Got {A.ndim}D."
        )
    return vector_norm(A, ord, dim, keepdim, dtype=dtype, out=out)
