"""Printing: the text is torch's, character by character."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import dtorch
import pytest
import torch

inf, nan = math.inf, math.nan


@pytest.fixture(autouse=True)
def default_options() -> Iterator[None]:
    yield
    for module in (dtorch, torch):
        module.set_printoptions(profile="default")


def same(t: torch.Tensor) -> None:
    assert repr(dtorch.Tensor(t)) == repr(t)
    assert str(dtorch.Tensor(t)) == str(t)


VALUES: list[Any] = [
    0.0,
    1.0,
    -1.5,
    nan,
    inf,
    -inf,
    1e10,
    1e-10,
    123456789.0,
    3,
    -7,
    True,
    [0.0],
    [0.0, 0.0],
    [1.0, 2.0, 3.0],
    [1.0, -2.0, 3.5],
    [1.0, nan, inf],
    [nan, nan],
    [inf, -inf, 0.0],
    [1.5, nan, -inf],
    [1e-5, 1.0],
    [1e5, 1.0],
    [1e5, 1.5],
    [1e9, 2e9],
    [1e8],
    [100000001.0],
    [1e-4],
    [9.9e-5],
    [0.1, 0.2, 0.33333],
    [1000.5, 0.5],
    [1001.0, 1.0],
    [1e38, 1e-38],
    [1e-45],
    [True, False],
    [1, -22, 333],
    [[1.0, 2.0], [3.0, 4.0]],
    [[1.5, 200.25], [-3.0, 4.0]],
    [[True], [False]],
    [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
    [[[[1.0]]]],
    [-0.0, 0.0],
    [2.0**53, 1.0],
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_values(value: Any) -> None:
    same(torch.tensor(value))


@pytest.mark.parametrize("dtype", "bool uint8 int8 int16 int32 int64".split())
def test_integer_dtypes(dtype: str) -> None:
    same(torch.arange(12).reshape(3, 4).to(getattr(torch, dtype)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 123.456, 3e4])
def test_float_dtypes(dtype: str, scale: float) -> None:
    t = (torch.linspace(-1, 1, 20, dtype=torch.float64) * scale).to(getattr(torch, dtype))
    same(t)
    same(t.reshape(4, 5))
    same(t[3])


@pytest.mark.parametrize(
    "shape",
    [(0,), (0, 3), (2, 0), (0, 0, 0), (1,), (30,), (100,), (7, 30), (2, 3, 4), (2, 1, 2, 3)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float64, torch.bool])
def test_shapes(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    same((torch.randn(shape) * 3).to(dtype))


@pytest.mark.parametrize(
    "shape", [(1000,), (1001,), (2000,), (5, 300), (300, 5), (40, 40), (7, 8, 30), (11, 2, 3, 20)]
)
def test_summarised(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    same(torch.randn(shape))
    same(torch.arange(math.prod(shape)).reshape(shape))


def test_views_print_their_own_elements() -> None:
    t = torch.arange(24.0).reshape(4, 6)
    for view in (t.T, t[::2, 1::2], t[:, 3], t[1:3].expand(3, 2, 6)):
        same(view)


@pytest.mark.parametrize(
    "options",
    [
        {"precision": 2},
        {"precision": 8},
        {"threshold": 5},
        {"threshold": 5, "edgeitems": 1},
        {"linewidth": 30},
        {"linewidth": 10},
        {"sci_mode": True},
        {"sci_mode": False},
        {"profile": "short"},
        {"profile": "full"},
        {"profile": "short", "precision": 6},
    ],
    ids=str,
)
def test_options(options: dict[str, Any]) -> None:
    torch.manual_seed(2)
    for module in (dtorch, torch):
        module.set_printoptions(**options)
    for t in (torch.randn(3, 4) * 10, torch.arange(50.0), torch.tensor([1e-6, 1.0]),
              torch.arange(40).reshape(4, 10), torch.tensor(0.1234567)):  # fmt: skip
        same(t)


def test_full_profile_prints_everything() -> None:
    for module in (dtorch, torch):
        module.set_printoptions(profile="full")
    same(torch.arange(1500))


def test_unknown_profile() -> None:
    with pytest.raises(ValueError, match="profile"):
        dtorch.set_printoptions(profile="long")


def test_suffix_wraps_like_torch() -> None:
    for n in range(5, 40):
        same(torch.arange(n, dtype=torch.int32))
        same(torch.ones(n, dtype=torch.float64) / 3)


def test_requires_grad_suffix() -> None:
    t = torch.ones(2, requires_grad=True)
    assert repr(dtorch.ones(2, requires_grad=True)) == repr(t)


def test_default_dtype_has_no_suffix() -> None:
    try:
        for module in (dtorch, torch):
            module.set_default_dtype(torch.float64)
        same(torch.ones(2, dtype=torch.float64))
        same(torch.ones(2, dtype=torch.float32))
    finally:
        for module in (dtorch, torch):
            module.set_default_dtype(torch.float32)


def test_format() -> None:
    x, t = dtorch.tensor(3.14159), torch.tensor(3.14159)
    assert f"{x:.2f}" == f"{t:.2f}" == "3.14"
    assert f"{x}" == f"{t}"
    v, w = dtorch.ones(2), torch.ones(2)
    assert f"{v}" == f"{w}"
    with pytest.raises(TypeError):
        f"{v:.2f}"
    with pytest.raises(TypeError):
        f"{w:.2f}"
