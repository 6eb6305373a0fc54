"""What compare.py and its child processes (peer.py) compute alike: the inputs and the chain."""

from __future__ import annotations

import hashlib
from typing import Any

CHAIN_OPS = 9
MIB = 1 << 20


def inputs(torch: Any, size: int) -> tuple[Any, Any]:
    """Two float32 vectors of ``size`` elements, the same in every process.

    Their values keep the chain on both sides of zero.
    """
    count = torch.arange(size, dtype=torch.float32)
    return (count % 1009) * 0.01 - 5.0, (count % 997) * 0.003 - 1.5


def chain(x: Any, y: Any) -> Any:
    """Nine element-wise ops, the ones that the async engine promises to run as one pass."""
    return ((((x * 2 + 1) * 3 + y) * 0.5 + x) * 0.25 + y).relu()


def digest(tensor: Any) -> str:
    """A checksum of a CPU tensor's bytes, of dtorch or torch: equal only if every bit is."""
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
