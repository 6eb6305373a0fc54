"""Arguments for every row of the registry: small, uneven, with dims of size 1 and 0.

A sample is a call's arguments with a :class:`Spec` where a tensor goes. They come from torch's
op_db (op_db_samples.json, see scripts/op_db_samples.py) and from the tables here; what a row does
not take on a single device is dropped by whoever uses them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Spec:
    """A tensor to be drawn: floats are multiples of a quarter in [low, high]."""

    shape: Shape
    dtype: str = "float32"
    low: float = -4
    high: float = 4

    def draw(self, rng: Any, how: str = "") -> Any:
        """How: "few" different values, so that many are equal or 0; "special", with inf and NaN."""
        if self.dtype == "bool":
            return rng.integers(0, 2, size=self.shape).astype(bool)
        if how == "few" and self.low <= 0 <= self.high:
            ends = max(self.low, -1), min(self.high, 1)
            x = rng.integers(round(ends[0]), round(ends[1]) + 1, size=self.shape)
            return np.asarray(x, dtype=self.dtype)
        if self.dtype != "float32" and self.dtype != "float64":
            return rng.integers(int(self.low), int(self.high) + 1, size=self.shape).astype(
                self.dtype
            )
        low, high = int(np.ceil(self.low * 4)), int(np.floor(self.high * 4))
        x = rng.integers(low, max(low, high) + 1, size=self.shape) / 4
        if how == "special":
            where = rng.random(self.shape)
            x = np.where(where < 0.1, np.nan, np.where(where < 0.2, np.inf, x))
            x = np.where(where > 0.9, -np.inf, x)
        return np.asarray(x, dtype=self.dtype)

    def __repr__(self) -> str:
        short = {"float32": "f", "int64": "i", "bool": "b"}
        return f"{short.get(self.dtype, self.dtype)}{self.shape}"


@dataclass(frozen=True)
class Sample:
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def specs(self) -> list[Spec]:
        return list(_specs((self.args, self.kwargs)))

    def fill(self, tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with tensors in the places of the specs, in their order."""
        rest = iter(tensors)
        return _fill(list(self.args), rest), _fill(dict(self.kwargs), rest)

    def __repr__(self) -> str:
        named = [f"{k}={v!r}" for k, v in self.kwargs.items()]
        return f"({', '.join([*map(repr, self.args), *named])})"


def _specs(value: Any) -> Iterator[Spec]:
    if isinstance(value, Spec):
        yield value
    elif isinstance(value, (list, tuple)):
        for x in value:
            yield from _specs(x)
    elif isinstance(value, dict):
        yield from _specs(list(value.values()))


def _fill(value: Any, rest: Iterator[Any]) -> Any:
    if isinstance(value, Spec):
        return next(rest)
    if isinstance(value, list):
        return [_fill(x, rest) for x in value]
    if isinstance(value, tuple):
        return tuple(_fill(x, rest) for x in value)
    if isinstance(value, dict):
        return {k: _fill(x, rest) for k, x in value.items()}
    return value


# --- op_db -------------------------------------------------------------------------------------


def _decode(value: Any) -> Any:
    if isinstance(value, dict) and "shape" in value:
        low, high = value.get("range", (0, 0))
        return Spec(tuple(value["shape"]), value["dtype"], low, high)
    if isinstance(value, dict) and "torch" in value:
        return getattr(torch, value["torch"])
    return tuple(_decode(x) for x in value) if isinstance(value, list) else value


def _read() -> dict[str, list[Sample]]:
    path = Path(__file__).with_name("op_db_samples.json")
    table: dict[str, list[Sample]] = {}
    for name, samples in json.loads(path.read_text(encoding="utf-8")).items():
        table[name] = [
            Sample(tuple(map(_decode, args)), {k: _decode(v) for k, v in kwargs.items()})
            for args, kwargs in samples
        ]
    return table


OP_DB = _read()

# Where a row's parameters are in another order than op_db's.
ORDER: dict[str, Callable[..., tuple[Any, ...]]] = {
    "where": lambda x, condition, y=0: (condition, x, y),
}

# --- our own -----------------------------------------------------------------------------------


def f(*shape: int, low: float = -4, high: float = 4) -> Spec:
    return Spec(shape, "float32", low, high)


def i(*shape: int, low: int = -5, high: int = 5) -> Spec:
    return Spec(shape, "int64", low, high)


def b(*shape: int) -> Spec:
    return Spec(shape, "bool")


def call(*args: Any, **kwargs: Any) -> Sample:
    return Sample(args, kwargs)


ONE = [f(5, 3), f(7), i(4, 2), b(5, 2), f(1, 4), f(0, 3), f(), f(2, 5, 3), i(), f(3, 1, 5)]

TWO = [
    (f(5, 3), f(5, 3)),
    (f(5, 3), f(3)),
    (f(5, 1), f(1, 3)),
    (f(7), f()),
    (f(0, 3), f(3)),
    (f(1, 4), f(3, 4)),
    (i(5, 2), i(5, 2, low=1)),
    (f(4), i(4)),
    (b(5), b(5)),
    (f(), f(5)),
    (f(2, 1, 5), f(4, 5)),
    (i(5, low=0), i(5, low=0)),
    (f(5), f(0, 5)),
]

TWO_NUMBER = [(f(5, 3), 2.5), (f(5, 3), -2), (i(5), 2), (2.5, f(5, 3)), (3, i(4)), (f(0, 3), 1.5),
              (f(5, 3), 0), (1, f(2, 5)), (b(5), True), (f(), 2)]  # fmt: skip

THREE = [
    (f(5, 3), f(5, 3), f(5, 3)),
    (f(5, 3), f(3), f()),
    (f(5, 1), f(1, 3), f(5, 3)),
    (f(0, 3), f(3), f(1)),
    (f(4), f(4), f(4)),
]

REDUCED = [f(5, 4), f(7), f(3, 1, 5), f(2, 5, 3), i(5, 2), f(), b(4, 3), f(4, 0), f(0, 3), f(5, 7)]
DIMS = [None, 0, 1, -1, (0, 1), (0,), (1, 2)]


def reductions(dims: Sequence[Any] = DIMS, specs: Sequence[Spec] = REDUCED) -> list[Sample]:
    return [
        *(call(x, d) for x in specs for d in dims if d is not None),
        *(call(x) for x in specs if None in dims),
        *(call(x, d, True) for x in specs[:6] for d in dims if d is not None),
    ]


def with_dim(specs: Sequence[Spec] = REDUCED, dims: Sequence[int] = (0, 1, -1)) -> list[Sample]:
    return [call(x, d) for x in specs for d in dims]


def each(specs: Sequence[Spec], *args: Any) -> list[Sample]:
    return [call(x, *args) for x in specs]


MATRIX = [f(5, 4), f(4, 5), f(2, 5, 3), f(1, 4), f(0, 3), i(3, 7)]
F32 = torch.float32

OWN: dict[str, list[Sample]] = {
    "round": [call(f(5, 3), decimals=1), call(f(4), decimals=-1)],
    "gelu": [call(f(5, 3), approximate="tanh"), call(f(5, 3))],
    "softplus": [call(f(5, 3), 2, 10), call(f(5, 3), -1, 20)],
    "leaky_relu": [call(f(5, 3), 0.2), call(f(5, 3), -0.5)],
    "elu": [call(f(5, 3), 0.7)],
    "add": [call(f(5, 3), f(5, 3), alpha=2), call(f(5, 3), f(3), alpha=-1), call(f(5), 2, alpha=3)],
    "sub": [call(f(5, 3), f(5, 3), alpha=2), call(f(5, 3), 2)],
    "rsub": [call(f(5, 3), f(5, 3), alpha=2), call(f(5, 3), 2)],
    "add__alpha": [],
    "sub__alpha": [],
    "div": [call(f(5, 3), f(5, 3, low=1), rounding_mode=m) for m in (None, "floor", "trunc")],
    "where": [
        call(b(5, 3), f(5, 3), f(5, 3)),
        call(b(3), f(5, 3), 0.0),
        call(b(5, 1), 1.5, f(3)),
        call(b(5), 1, 2),
        call(b(0, 3), f(0, 3), f(3)),
        call(b(), f(5), f(5)),
        call(b(5), f(), f()),
    ],
    "clamp": [
        call(f(5, 3), -1, 2),
        call(f(5, 3), None, 1.5),
        call(f(5, 3), 0.5),
        call(i(4), -2, 2),
        call(f(5, 3), f(5, 3, high=0), f(3, low=0)),
        call(f(5, 3), f(5, 1)),
        call(f(0, 2), 0, 1),
        call(f(4), None, f(4)),
    ],
    "lerp": [call(f(5, 3), f(5, 3), 0.25), call(f(5, 3), f(3), f(5, 1)), call(f(4), f(4), 2)],
    "addcmul": [call(f(5, 3), f(5, 3), f(5, 3), value=2)],
    "addcdiv": [call(f(5, 3), f(5, 3), f(5, 3, low=1), value=2)],
    "masked_fill": [
        call(f(5, 3), b(5, 3), 2.0),
        call(f(5, 3), b(3), -1),
        call(f(5, 3), b(5, 1), f()),
        call(i(4), b(4), 0),
        call(f(0, 3), b(3), 1),
        call(f(), b(), 1.0),
        call(f(3), b(5, 3), 1.0),
    ],
    "copy__to": [
        call(x, d)
        for x in (f(5, 3), i(4, 2), b(5), f(), f(0, 2))
        for d in (torch.float64, torch.int64, torch.bool, F32, None)
    ],
    "clone": each(ONE),
    "contiguous": each(ONE),
    "detach": each(ONE),
    "positive": each(ONE),
    "fill": [call(f(5, 3), 2.0), call(f(5, 3), f()), call(i(4), 3), call(f(0, 3), 1), call(f(), 2)],
    "tril": [call(x, k) for x in MATRIX for k in (0, 1, -2)],
    "triu": [call(x, k) for x in MATRIX for k in (0, 1, -2)],
    "sum": [*reductions(), call(f(5, 4), 0, dtype=torch.float64), call(i(5, 3), dtype=F32)],
    "prod": [*reductions([None, 0, 1, -1]), call(i(5, 3), 0, dtype=F32)],
    "mean": [
        *reductions(),
        call(f(6, 4), 0),
        call(
            f(6),
        ),
        call(i(5, 3), 0, dtype=F32),
    ],
    "amax": [*reductions(), call(f(5, 3))],
    "amin": [*reductions(), call(f(5, 3))],
    "argmax": reductions([None, 0, 1, -1]),
    "argmin": reductions([None, 0, 1, -1]),
    "max__dim": reductions([0, 1, -1]),
    "min__dim": reductions([0, 1, -1]),
    "any": reductions(),
    "all": reductions(),
    "var__new": [
        call(x, d, c, k)
        for x in REDUCED
        for d in (None, 0, -1, (0, 1))
        for c in (0, 1)
        for k in (False, True)
    ],
    "norm__new": [
        call(x, p, d, k, None)
        for x in REDUCED
        for p in (2, 1, float("inf"), -float("inf"), 0, 3)
        for d in (None, 0, -1)
        for k in (False, True)
    ],
    "logsumexp": [call(x, d, k) for x in REDUCED for d in (0, -1, (0, 1)) for k in (False, True)],
    "cumsum": with_dim(),
    "cumprod": with_dim(),
    "view": [
        call(f(5, 4), 20),
        call(f(4, 5), 2, 2, 5),
        call(f(5, 4), (5, 2, 2)),
        call(f(5, 4), -1),
        call(f(5, 4), 4, 5),
        call(f(6, 4), 24),
        call(f(6, 4), 2, 3, 4),
        call(f(6, 5), 3, 2, 5),
        call(f(1, 5), 5),
        call(f(5), 1, 5),
        call(f(5), 5, 1),
        call(f(0, 4), 0, 2, 2),
        call(f(), 1),
        call(f(2, 3, 5), 6, 5),
        call(f(2, 3, 5), 2, 15),
        call(f(2, 3, 5), 30),
        call(f(1), ()),
        call(f(6), 6),
        call(f(12), 2, 6),
        call(f(12), 6, 2),
        call(f(3, 1, 5), 3, 5),
        call(f(0), 0, 3),
        call(f(5, 4), 5, 4, 1),
        call(f(4, 3, 2), 12, 2),
        call(f(6, 4), 3, 8),
    ],
    "transpose": [call(x, *d) for x in MATRIX for d in ((0, 1), (-1, 0), (1, 1))]
    + [call(f(3, 4, 5), 0, 2)],
    "t": each([f(5, 4), f(7), f(), f(0, 3), f(1, 5)]),
    "permute": [
        call(f(5, 4), 1, 0),
        call(f(2, 5, 3), (2, 0, 1)),
        call(f(2, 5, 3), 0, -1, 1),
        call(f(0, 3), 1, 0),
        call(f(7), 0),
        call(f(), ()),
    ],
    "squeeze": [
        call(f(3, 1, 5)),
        call(f(3, 1, 5), 1),
        call(f(3, 1, 5), 0),
        call(f(1, 5)),
        call(f(1, 1, 4), (0, 1)),
        call(f(5, 1)),
        call(f(1, 0)),
        call(f()),
        call(f(4, 5), -1),
    ],
    "unsqueeze": [call(x, d) for x in (f(5, 4), f(7), f(), f(0, 3), f(1, 5)) for d in (0, 1, -1)],
    "expand": [
        call(f(5, 1), 5, 4),
        call(f(1, 5), 3, 5),
        call(f(5), 2, 5),
        call(f(5, 4), -1, -1),
        call(f(5, 1), 2, -1, 4),
        call(f(), 5),
        call(f(1), 0),
        call(f(0, 1), 0, 3),
        call(f(5, 4), 5, 4),
        call(f(3, 1, 5), 3, 4, 5),
    ],
    "expand_as": [
        call(f(5, 1), f(5, 4)),
        call(f(5), f(2, 5)),
        call(f(5, 4), f(5, 4)),
        call(f(1), f(5)),
        call(f(1), f(0)),
    ],
    "view_as": [
        call(f(5, 4), f(20)),
        call(f(5, 4), f(5, 2, 2)),
        call(f(5, 4), f(5, 4)),
        call(f(0, 2), f(0)),
    ],
    "flatten": [
        call(f(5, 4)),
        call(f(2, 5, 3), 1),
        call(f(2, 5, 3), 0, 1),
        call(f(3, 1, 5), 1),
        call(f()),
        call(f(7)),
        call(f(0, 3)),
        call(f(4, 3, 2), 1, 2),
        call(f(6, 4)),
    ],
    "select": [
        call(f(5, 4), 0, 3),
        call(f(5, 4), 1, -1),
        call(f(7), 0, 2),
        call(f(2, 5, 3), 1, 4),
        call(f(0, 3), 1, 1),
        call(f(1, 4), 0, 0),
    ],
    "narrow": [
        call(f(5, 4), 0, 1, 3),
        call(f(5, 4), 1, 0, 4),
        call(f(7), 0, 2, 0),
        call(f(2, 5, 3), -1, 1, 2),
        call(f(0, 3), 1, 1, 2),
        call(f(5, 4), 0, 0, 5),
        call(f(1, 4), 0, 0, 1),
    ],
    "slice__dim": [
        call(f(5, 4), 0, 1, 4, 1),
        call(f(5, 4), 1, 0, 4, 2),
        call(f(7), 0, 0, 7, 3),
        call(f(5, 4), 0, 0, 5, 1),
        call(f(2, 5, 3), 1, 4, 5, 1),
        call(f(0, 3), 1, 0, 2, 1),
        call(f(5, 4), 0, 2, 2, 1),
    ],
    "movedim": [
        call(f(5, 4), 0, 1),
        call(f(2, 5, 3), 2, 0),
        call(f(2, 5, 3), (0, 1), (2, 0)),
        call(f(0, 3), 0, -1),
    ],
    "unflatten": [
        call(f(4, 5), 0, (2, 2)),
        call(f(4, 6), 1, (3, 2)),
        call(f(6, 5), 0, (2, 3)),
        call(f(6, 5), 0, (6, 1)),
        call(f(6), 0, (3, -1)),
        call(f(0, 4), 1, (2, 2)),
        call(f(12), 0, (2, 6)),
    ],
    "as_strided": [call(f(5, 4), (5, 4), (4, 1)), call(f(12), (3, 2), (4, 1), 1)],
    "diagonal": [
        call(f(5, 4)),
        call(f(5, 4), 1),
        call(f(2, 5, 3), 0, 1, 2),
        call(f(2, 5, 3), -1, 0, 2),
        call(f(0, 3)),
        call(f(3, 4, 5), 0, 0, 1),
    ],
    "cat": [
        call([f(5, 4), f(5, 4)], 0),
        call([f(5, 4), f(5, 3)], 1),
        call([f(5, 4), f(2, 4)], 0),
        call([f(7)], 0),
        call([f(0), f(5)], 0),
        call([f(2, 5, 3), f(2, 5, 3)], -1),
        call([f(5, 4), i(5, 4)], 1),
        call([f(0, 3), f(4, 3)], 0),
    ],
    "stack": [
        call([f(5, 4), f(5, 4)], 0),
        call([f(5, 4), f(5, 4)], 1),
        call([f(5), f(5)], -1),
        call([f(), f()], 0),
        call([f(0, 3), f(0, 3)], 1),
        call([f(5)], 0),
    ],
    "embedding__new": [
        call(f(7, 3), i(5, low=0, high=6)),
        call(f(5, 4), i(3, 2, low=0, high=4)),
        call(f(4, 3), i(low=0, high=3)),
        call(f(7, 3), i(0, low=0, high=6)),
    ],
    "index_select": [
        call(f(5, 4), 0, i(7, low=0, high=4)),
        call(f(5, 4), 1, i(3, low=0, high=3)),
        call(f(7), 0, i(5, low=0, high=6)),
        call(f(5, 4), 0, i(0, low=0, high=0)),
        call(f(0, 3), 1, i(2, low=0, high=2)),
        call(f(2, 5, 3), -1, i(5, low=0, high=2)),
    ],
    "gather__dim": [
        call(f(5, 4), 0, i(3, 4, low=0, high=4)),
        call(f(5, 4), 1, i(5, 7, low=0, high=3)),
        call(f(7), 0, i(5, low=0, high=6)),
        call(f(5, 4), 1, i(3, 2, low=0, high=3)),
        call(f(2, 5, 3), 1, i(2, 5, 3, low=0, high=4)),
        call(f(5, 4), 0, i(0, 4, low=0, high=0)),
    ],
    "nonzero__new": each([f(5, 4, low=-1, high=1), b(7), f(0, 3)]),
    "nonzero__tuple": each([f(5, 4, low=-1, high=1), b(7)]),
    "masked_select__new": [call(f(5, 4), b(5, 4)), call(f(5, 4), b(4)), call(f(7), b(7))],
    "index__mask": [call(f(5, 4), b(5), 0), call(f(5, 4), b(4), 1), call(f(5, 4), b(5, 4), 0)],
    "index_put__mask": [
        call(f(5, 4), b(5, 4), f(), 0),
        call(f(5, 4), b(5), f(), 0),
        call(f(5, 4), b(4), f(), 1),
    ],
    "unique__new": [
        call(i(7, low=0, high=3), False, False),
        call(i(5, 2, low=0, high=3), True, True),
    ],
    "unique_consecutive__new": [
        call(i(7, low=0, high=1), False, False),
        call(i(5, 2, low=0, high=1), True, True),
    ],
    "clone__deferred": each([f(5, 3), i(4)]),
    "matmul": [
        call(f(5, 4), f(4, 3)),
        call(f(5, 7), f(7, 4)),
        call(f(4), f(4)),
        call(f(5, 4), f(4)),
        call(f(4), f(4, 5)),
        call(f(2, 5, 4), f(4, 3)),
        call(f(2, 5, 4), f(2, 4, 3)),
        call(f(5, 4), f(2, 4, 3)),
        call(f(2, 1, 5, 4), f(3, 4, 3)),
        call(f(5, 0), f(0, 3)),
        call(f(0, 4), f(4, 3)),
        call(f(1, 5), f(5, 1)),
        call(i(5, 4), i(4, 3)),
        call(f(3, 2, 5), f(5)),
    ],
    "mm": [
        call(f(5, 4), f(4, 3)),
        call(f(5, 7), f(7, 5)),
        call(f(0, 4), f(4, 3)),
        call(f(5, 0), f(0, 3)),
        call(f(1, 5), f(5, 2)),
    ],
    "bmm": [
        call(f(5, 4, 3), f(5, 3, 7)),
        call(f(2, 5, 5), f(2, 5, 3)),
        call(f(0, 4, 3), f(0, 3, 2)),
        call(f(3, 1, 5), f(3, 5, 2)),
    ],
    "mv": [call(f(5, 4), f(4)), call(f(5, 7), f(7)), call(f(0, 4), f(4)), call(f(5, 0), f(0))],
    "dot": [call(f(5), f(5)), call(f(7), f(7)), call(f(0), f(0)), call(f(1), f(1))],
    "addmm": [
        call(f(5, 3), f(5, 4), f(4, 3)),
        call(f(3), f(5, 4), f(4, 3)),
        call(f(5, 3), f(5, 7), f(7, 3), beta=0.5, alpha=2),
        call(f(), f(5, 4), f(4, 3)),
        call(f(5, 1), f(5, 4), f(4, 3)),
        call(f(0, 3), f(0, 4), f(4, 3)),
        call(f(5, 3), f(5, 4), f(4, 3), beta=0),
    ],
    "baddbmm": [
        call(f(5, 4, 3), f(5, 4, 2), f(5, 2, 3)),
        call(f(4, 3), f(5, 4, 2), f(5, 2, 3)),
        call(f(3), f(2, 5, 7), f(2, 7, 3), beta=2, alpha=0.5),
    ],
    "linear": [
        call(f(5, 4), f(3, 4)),
        call(f(5, 4), f(3, 4), f(3)),
        call(f(2, 5, 7), f(5, 7), f(5)),
        call(f(4), f(5, 4), f(5)),
        call(f(0, 4), f(3, 4), f(3)),
        call(f(7, 5), f(4, 5)),
    ],
    "softmax": with_dim(),
    "log_softmax": with_dim(),
    "layer_norm": [
        call(f(5, 4), (4,)),
        call(f(5, 4), (4,), f(4), f(4)),
        call(f(2, 5, 3), (5, 3), f(5, 3)),
        call(f(0, 4), (4,), f(4), f(4)),
        call(f(2, 5, 7), (7,), f(7), None, 1e-3),
    ],
    "rms_norm": [
        call(f(5, 4), (4,)),
        call(f(5, 4), (4,), f(4)),
        call(f(2, 5, 3), (5, 3), f(5, 3)),
        call(f(0, 4), (4,), f(4)),
        call(f(2, 5, 7), (7,), f(7), 1e-3),
    ],
    "sdpa": [
        call(f(2, 5, 7, 4), f(2, 5, 7, 4), f(2, 5, 7, 4)),
        call(f(2, 3, 5, 4), f(2, 3, 7, 4), f(2, 3, 7, 5)),
        call(f(2, 3, 5, 4), f(2, 3, 7, 4), f(2, 3, 7, 4), f(5, 7)),
        call(f(2, 3, 5, 4), f(2, 3, 5, 4), f(2, 3, 5, 4), None, True),
        call(f(2, 3, 5, 4), f(2, 3, 7, 4), f(2, 3, 7, 4), b(2, 1, 5, 7)),
        call(f(1, 4, 3, 4), f(1, 4, 3, 4), f(1, 4, 3, 4), None, False, 0.5),
    ],
}
for other, row in {"swapaxes": "transpose", "reshape": "view", "broadcast_to": "expand",
                   "std__new": "var__new"}.items():  # fmt: skip
    OWN[other] = OWN[row]

# --- creation: the arguments of a row without tensors; asked for at placements, not inferred ------

CREATION: dict[str, list[Sample]] = {
    "empty__new": [call((5, 4), F32), call((), F32), call((0, 3), F32), call((7,), torch.int64)],
    "full__new": [
        call((5, 4), 2.5, F32),
        call((7,), 3, torch.int64),
        call((), 1.0, F32),
        call((0, 3), 1.0, F32),
        call((5,), True, torch.bool),
        call((1, 4), -2.0, torch.float64),
    ],
    "arange__new": [
        call(0, 7, 1, torch.int64),
        call(1.0, 4.0, 0.5, F32),
        call(5, 0, -2, torch.int64),
        call(0, 0, 1, F32),
        call(0, 1, 1, F32),
    ],
    "linspace__new": [
        call(0.0, 1.0, 7, F32),
        call(-3.0, 5.0, 4, F32),
        call(0.0, 1.0, 1, F32),
        call(0.0, 1.0, 0, F32),
    ],
    "eye__new": [call(5, 4, F32), call(3, 7, torch.int64), call(0, 3, F32), call(1, 5, F32)],
    "rand__new": [
        call((5, 4), 0.0, 1.0, F32),
        call((7,), -1.0, 2.0, F32),
        call((0, 3), 0.0, 1.0, F32),
        call((), 0.0, 1.0, F32),
        call((2, 5, 3), 0.0, 1.0, torch.float64),
    ],
    "randn__new": [
        call((5, 4), 0.0, 1.0, F32),
        call((7,), -1.0, 2.0, F32),
        call((0, 3), 0.0, 1.0, F32),
        call((1, 5), 0.0, 1.0, F32),
        call((2, 5, 3), 0.0, 1.0, torch.float64),
    ],
    "randint__new": [
        call((5, 4), 0, 10, torch.int64),
        call((7,), -5, 5, torch.int64),
        call((), 0, 3, torch.int64),
    ],
}

# Rows that nobody calls with tensors on a mesh.
LEFT_OUT = {
    "add__alpha": "what add makes of an alpha, tested as add with alpha",
    "sub__alpha": "what sub and rsub make of an alpha, tested there",
    "assemble__pieces": "redistribute's own: called with the pieces of each device, off the mesh",
}


# Rows with samples of our own beside the generic ones.
BESIDE = (
    "add sub rsub div round softplus leaky_relu elu gelu lerp addcmul addcdiv".split()
)  # fmt: skip


def generic(schema: str) -> list[Sample]:
    """Samples of an element-wise row, by its schema."""
    letters = [p.split()[0] for p in schema.split(", *,")[0].split(", ")]
    letters = [x for x in letters if x[0] in "TS"]
    if len(letters) == 1:
        return [call(x) for x in ONE]
    if len(letters) == 2:
        numbers = TWO_NUMBER if "S" in letters else []
        return [call(*pair) for pair in [*TWO, *numbers]]
    return [call(*three) for three in THREE]


def samples(row: str, schema: str) -> list[Sample]:
    """Our own first, then op_db's."""
    own = OWN.get(row)
    if own is None or row in BESIDE:
        own = generic(schema) + (own or [])
    name = row.split("__")[0]
    found = OP_DB.get(name, [])
    if name in ORDER:
        found = [Sample(ORDER[name](*s.args), s.kwargs) for s in found]
    seen: dict[str, Sample] = {}
    for sample in [*own, *found]:
        seen.setdefault(repr(sample), sample)
    return list(seen.values())
