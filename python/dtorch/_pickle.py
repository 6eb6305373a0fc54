"""Pickling: a tensor travels as its bytes, dtype name and shape, one on a mesh with its place."""

from __future__ import annotations

from typing import Any

from . import _C, _dist


def reduce_tensor(tensor: Any) -> tuple[Any, ...]:
    """For ``Tensor.__reduce_ex__``; waits for the value."""
    state = (tensor._tobytes(), tensor._dtype_name, tuple(tensor.shape), tensor.requires_grad)
    attributes = tensor.__dict__ or None
    return rebuild_tensor, (type(tensor), *state, _dist.place_of(tensor)), attributes


def rebuild_tensor(
    kind: type,
    data: bytes,
    dtype: str,
    shape: tuple[int, ...],
    requires_grad: bool,
    where: _dist.Place | None = None,
) -> Any:
    """The inverse of reduce_tensor. The mesh's devices must be there."""
    tensor = _dist.put(_C.from_bytes(data, dtype, shape), where)
    if kind is not _C.Tensor:
        tensor = kind(tensor)
    if requires_grad:
        tensor.requires_grad_()
    return tensor
