"""Writes tests/python/op_db_samples.json: the arguments of torch's op_db samples for the registry.

    pip install expecttest && python scripts/op_db_samples.py

Importing op_db takes half a minute and needs a package more, so the tests read this file. A tensor
is kept as its shape, dtype and the range of its values: the tests draw values of their own. Large
dims are cut to sizes that no mesh divides, where the op still takes its arguments. What
dtorch's row does not take (another overload) is left out by the tests, which ask the row itself.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

ROOT = Path(__file__).resolve().parent.parent
ELEMENTS_MAX = 150
SAMPLES_MAX = 12
SMALLER = {10: 5, 20: 7}
OTHER_NAMES = {
    "absolute": "abs", "negative": "neg", "multiply": "mul", "divide": "div",
    "swapaxes": "transpose",
    "copy": "to", "sdpa": "scaled_dot_product_attention", "empty": "new_empty", "full": "full",
    "norm": "linalg.vector_norm", "rand": "rand_like",
}  # fmt: skip


def encode(value: Any) -> Any:
    """ValueError: the tests cannot make that of a file."""
    if isinstance(value, torch.Tensor):
        if value.numel() > ELEMENTS_MAX or value.is_complex() or value.is_sparse:
            raise ValueError("too large")
        dtype = str(value.dtype).removeprefix("torch.")
        tensor: dict[str, Any] = {"shape": list(value.shape), "dtype": dtype}
        if value.numel() > 0 and dtype != "bool":
            ends = [float(value.min()), float(value.max())]
            tensor["range"] = [round(x, 2) if value.is_floating_point() else int(x) for x in ends]
        return tensor
    if isinstance(value, torch.dtype):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, (list, tuple, torch.Size)):
        return [encode(x) for x in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        if isinstance(value, float) and value not in (value + 0,):
            raise ValueError("NaN")
        return value
    raise ValueError(type(value).__name__)


def signature(sample: Any) -> str:
    """Samples that differ in values alone are one."""
    return re.sub(r', "range": [^]]*', "", json.dumps(sample))


def smaller(value: Any) -> Any:
    """The same with large dims cut."""
    if isinstance(value, torch.Tensor):
        for d, size in enumerate(value.shape):
            value = value.narrow(d, 0, SMALLER.get(size, size))
        return value
    if isinstance(value, (list, tuple)):
        return [smaller(x) for x in value]
    return value


def reduced(op: Any, s: Any, kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments, with large dims cut if the op takes them so."""
    args = [s.input, *s.args]
    less = [smaller(x) for x in args], {k: smaller(v) for k, v in kwargs.items()}
    try:
        op(*less[0], **less[1])
    except Exception:  # a size, an index or a shape does not fit any more
        return args, kwargs
    return less


def samples_of(name: str) -> list[Any]:
    name = OTHER_NAMES.get(name, name)
    found: dict[str, Any] = {}
    for op in op_db:
        if op.name not in (name, f"nn.functional.{name}"):
            continue
        wanted = [t for t in (torch.float32, torch.int64, torch.bool) if t in op.dtypes]
        for dtype in wanted[:2]:
            for s in op.sample_inputs("cpu", dtype):
                kwargs = {k: v for k, v in s.kwargs.items() if k not in ("device", "out")}
                try:
                    args, named = reduced(op, s, kwargs)
                    sample = [[encode(x) for x in args], {k: encode(v) for k, v in named.items()}]
                except ValueError:
                    continue
                found.setdefault(signature(sample), sample)
    samples = list(found.values())
    step = max(1, len(samples) // SAMPLES_MAX)
    return samples[::step][:SAMPLES_MAX]


def main() -> None:
    torch.manual_seed(0)
    text = (ROOT / "runtime/ops.def").read_text(encoding="utf-8")
    names = dict.fromkeys(n.split("__")[0] for n in re.findall(r"^OP\((\w+),", text, re.M))
    lines = []
    for name in names:
        samples = samples_of(name)
        if samples:
            rows = ",\n  ".join(json.dumps(s) for s in samples)
            lines.append(f" {json.dumps(name)}: [\n  {rows}]")
    path = ROOT / "tests/python/op_db_samples.json"
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
