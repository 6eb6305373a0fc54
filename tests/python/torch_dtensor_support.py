"""What the tests after PyTorch's share: meshes, ways to place a value and to look at one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dtorch
import torch
from dtorch import Tensor
from dtorch.distributed_spec import DeviceMesh, Partial, Replicate, Shard, init_device_mesh

R, S0, S1, S2 = Replicate(), Shard(0), Shard(1), Shard(2)
F = dtorch.nn.functional
WORLD = 4


def line(n: int = WORLD) -> DeviceMesh:
    return init_device_mesh("cpu", n)


def square() -> DeviceMesh:
    return init_device_mesh("cpu", (2, 2))


def put(value: Any, mesh: DeviceMesh, *placements: Any) -> Any:
    """distribute_tensor."""
    return dtorch.Tensor(value, device_mesh=mesh, placements=list(placements))


def same(t: Any, want: Any, tolerance: float = 1e-5) -> None:
    """The whole value, and that each part is what the placements say."""
    whole = t.full_tensor().to_torch()
    assert whole.shape == want.shape
    assert whole.dtype == want.dtype
    if want.is_floating_point():
        assert torch.allclose(whole, want, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        assert whole.equal(want)
    parts_fit(t, whole)


def parts_fit(t: Any, whole: Any) -> None:
    mesh = t.device_mesh
    if any(p.is_partial() for p in t.placements):
        return
    for k, at in enumerate(mesh.coordinates):
        part = whole
        for n, i, p in zip(mesh.shape, at, t.placements, strict=True):
            if p.is_shard():
                pieces = part.chunk(n, p.dim)
                part = pieces[i] if i < len(pieces) else part.narrow(p.dim, 0, 0)
        assert t.to_local(k).to_torch().equal(part)


def legal_after(call: Callable[..., Any], *inputs: Any) -> Any:
    """The result; where the placements are refused, that of Replicate inputs."""
    try:
        return call(*inputs)
    except dtorch.PlacementError:
        whole = [
            t.redistribute(placements=[R] * t.device_mesh.ndim) if isinstance(t, Tensor) else t
            for t in inputs
        ]
        return call(*whole)


def partial(op: str = "sum", value: float = 1.0, shape: Sequence[int] = (2, 2)) -> Any:
    parts = [dtorch.full(tuple(shape), value * (k + 1)) for k in range(WORLD)]
    return Tensor.from_local(parts, line(), [Partial(op)])
