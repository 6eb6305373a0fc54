"""Pickling: a tensor travels as its bytes, dtype name and shape."""

from __future__ import annotations

from typing import Any

from . import _C


def reduce_tensor(tensor: Any) -> tuple[Any, ...]:
    """For ``Tensor.__reduce_ex__``; waits for the value."""
    state = (tensor._tobytes(), tensor._dtype_name, tuple(tensor.shape), tensor.requires_grad)
    attributes = tensor.__dict__ or None
    return rebuild_tensor, (type(tensor), *state), attributes


def rebuild_tensor(
    kind: type, data: bytes, dtype: str, shape: tuple[int, ...], requires_grad: bool
) -> Any:
    """The inverse of reduce_tensor."""
    tensor = _C.from_bytes(data, dtype, shape)
    if kind is not _C.Tensor:
        tensor = kind(tensor)
    if requires_grad:
        tensor.requires_grad_()
    return tensor
