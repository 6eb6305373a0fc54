"""Element-wise ops on a mesh: every placement of their operands, against torch on the whole value.

What is accepted is right, with parts of a Partial that differ in size and sign and where some are
the limits of the dtype; what can be had without communication is accepted (the counts).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dtorch
import pytest
import torch
from sharded import (
    PARTIALS,
    REDUCE,
    assert_is,
    check_torch,
    close,
    local_parts,
    of_parts,
    on_mesh,
    placements_of,
)

MESHES = [(3,), (2, 2)]
F32, I64, BOOL = torch.float32, torch.int64, torch.bool


def value(dtype: torch.dtype, shape: tuple[int, ...] = (5,)) -> torch.Tensor:
    numbers = torch.arange(torch.Size(shape).numel()).reshape(shape) * 3 - 4
    return numbers % 2 == 0 if dtype == BOOL else numbers.to(dtype)


def kinds(op: Callable[..., Any], *inputs: torch.Tensor) -> dict[str, str]:
    """Of one Partial operand, all others Replicate: what kind gives what kind."""
    found = {}
    for k in range(len(inputs)):
        for p in PARTIALS:
            if p == "avg" and not inputs[k].is_floating_point():
                continue  # there is no such tensor
            placed = [on_mesh(t, (p if i == k else "R",), (3,)) for i, t in enumerate(inputs)]
            try:
                result = op(*placed)
            except dtorch.PlacementError:
                continue
            assert_is(result, op(*inputs), (3,), close)
            found[f"{k}:{p}"] = placements_of(result)[0]
    return found


def same_kinds(*names: str, operand: int = 0) -> dict[str, str]:
    return {f"{operand}:{n}": n for n in names}


LINEAR = same_kinds("sum", "avg")
UP = same_kinds("min", "max")
DOWN = {"0:min": "max", "0:max": "min"}
ALL = same_kinds(*PARTIALS)

ONE: list[tuple[str, Callable[[Any], Any], torch.dtype, dict[str, str]]] = [
    ("clone", lambda x: x.clone(), F32, ALL),
    ("to_f64", lambda x: x.double(), F32, ALL),
    ("to_f32", lambda x: x.float(), I64, same_kinds("sum", "min", "max", "product")),
    ("to_i64", lambda x: x.long(), F32, {}),
    ("to_bool", lambda x: x.bool(), F32, {}),
    ("bool_to_i64", lambda x: x.long(), BOOL, same_kinds("min", "max", "product")),
    ("neg", lambda x: -x, F32, LINEAR | DOWN),
    ("neg_int", lambda x: -x, I64, same_kinds("sum")),
    ("abs", lambda x: x.abs(), F32, same_kinds("product")),
    ("square", lambda x: x.square(), F32, same_kinds("product")),
    ("sign", lambda x: x.sign(), I64, UP | same_kinds("product")),
    ("exp", lambda x: x.exp(), F32, UP),
    ("tanh", lambda x: x.tanh(), F32, UP),
    ("erfc", lambda x: x.erfc(), F32, DOWN),
    ("relu", lambda x: x.relu(), F32, UP),
    ("floor", lambda x: x.floor(), F32, UP),
    ("sqrt", lambda x: x.sqrt(), F32, same_kinds("min")),
    ("log", lambda x: x.log(), F32, same_kinds("min")),
    ("acos", lambda x: x.acos(), F32, {}),
    ("sin", lambda x: x.sin(), F32, {}),
    ("isnan", lambda x: x.isnan(), F32, {"0:min": "max", "0:max": "max"}),
    ("logical_not", lambda x: x.logical_not(), BOOL, DOWN),
    ("logical_not_int", lambda x: x.logical_not(), I64, {}),
    ("bitwise_not", lambda x: ~x, I64, DOWN),
    ("times_2", lambda x: x * 2, F32, LINEAR | UP | same_kinds("product")),
    ("times_minus_2", lambda x: -2 * x, F32, LINEAR | DOWN | same_kinds("product")),
    ("times_int", lambda x: x * 3, I64, same_kinds("sum", "product")),
    ("over_2", lambda x: x / 2, F32, LINEAR | UP | same_kinds("product")),
    ("over_int", lambda x: x / -4, I64, same_kinds("sum", "product") | DOWN),
    ("floor_int", lambda x: x // 2, I64, UP),
    ("plus_1", lambda x: x + 1, F32, LINEAR | UP),
    ("plus_1_int", lambda x: x + 1, I64, same_kinds("sum")),
    ("one_minus", lambda x: 1 - x, F32, LINEAR | DOWN),
    ("cube", lambda x: x**3, F32, UP | same_kinds("product")),
    ("pow_2", lambda x: x**2, I64, same_kinds("product")),
    ("greater", lambda x: x > 1, F32, same_kinds("min")),
    ("less", lambda x: x < 1, F32, {"0:max": "min"}),
    ("greater_int", lambda x: x >= 1, I64, UP),
    ("less_int", lambda x: x <= 1, I64, DOWN),
    ("equal", lambda x: x == 2, I64, {}),
    ("clamp", lambda x: x.clamp(-1, 4), I64, UP),
    ("clamp_min", lambda x: x.clamp(min=0), F32, UP),
    ("shl", lambda x: x << 2, I64, same_kinds("sum")),
    ("shr", lambda x: x >> 1, I64, UP),
]


@pytest.mark.parametrize(("op", "dtype", "want"), [c[1:] for c in ONE], ids=[c[0] for c in ONE])
def test_which_partials_pass(
    op: Callable[[Any], Any], dtype: torch.dtype, want: dict[str, str]
) -> None:
    assert kinds(op, value(dtype)) == want


TWO: list[tuple[str, Callable[[Any, Any], Any], torch.dtype, torch.dtype]] = [
    ("add", lambda a, b: a + b, F32, F32),
    ("add_alpha", lambda a, b: dtorch_or_torch(a).add(a, b, alpha=-2), F32, F32),
    ("sub", lambda a, b: a - b, F32, F32),
    ("mul", lambda a, b: a * b, F32, F32),
    ("mul_int", lambda a, b: a * b, I64, I64),
    ("div", lambda a, b: a / (b + 1), F32, F32),
    ("maximum", lambda a, b: dtorch_or_torch(a).maximum(a, b), F32, F32),
    ("minimum", lambda a, b: dtorch_or_torch(a).minimum(a, b), I64, I64),
    ("fmax", lambda a, b: dtorch_or_torch(a).fmax(a, b), I64, I64),
    ("greater", lambda a, b: a > b, F32, F32),
    ("less_int", lambda a, b: a < b, I64, I64),
    ("and", lambda a, b: a & b, BOOL, BOOL),
    ("or", lambda a, b: dtorch_or_torch(a).logical_or(a, b), BOOL, BOOL),
    ("xor", lambda a, b: a ^ b, BOOL, BOOL),
    ("lerp", lambda a, b: dtorch_or_torch(a).lerp(a, b, 0.5), F32, F32),
    ("atan2", lambda a, b: dtorch_or_torch(a).atan2(a, b), F32, F32),
    ("masked_fill", lambda a, b: a.masked_fill(b, 7), F32, BOOL),
    ("where", lambda a, b: dtorch_or_torch(a).where(b > 0, a, b), F32, F32),
    ("mixed", lambda a, b: a + b, F32, I64),
]


def dtorch_or_torch(x: Any) -> Any:
    return dtorch if isinstance(x, dtorch.Tensor) else torch


def partials_for(*dtypes: torch.dtype) -> tuple[str, ...]:
    if BOOL in dtypes:
        return ("min", "max")
    return (
        PARTIALS if all(d.is_floating_point for d in dtypes) else ("sum", "min", "max", "product")
    )


@pytest.mark.parametrize("shape", MESHES, ids=str)
@pytest.mark.parametrize(("op", "a", "b"), [c[1:] for c in TWO], ids=[c[0] for c in TWO])
def test_two_operands(
    op: Callable[[Any, Any], Any], a: torch.dtype, b: torch.dtype, shape: tuple[int, ...]
) -> None:
    partials = partials_for(a, b)
    if len(shape) > 1:
        partials = partials[:2]
    for first, second in [((5,), (5,)), ((2, 5), (5,)), ((1, 3), (2, 1)), ((0,), (1,))]:
        if len(shape) > 1 and first == (1, 3):
            continue
        x, y = value(a, first), value(b, second) + (1 if b != BOOL else False)
        counts = check_torch(op, [x, y], shape, same=close, partials=partials)
        assert counts.taken


def test_which_pairs_pass() -> None:
    """Both Partial, the same kind."""
    x, y = value(F32), value(F32) + 1
    want = {
        "add": {"sum", "avg"}, "sub": {"sum", "avg"}, "mul": {"product"}, "div": {"product"},
        "maximum": {"max"}, "minimum": {"min"},
    }  # fmt: skip
    for name, kinds_ in want.items():
        for p in PARTIALS:
            a, b = on_mesh(x, (p,), (3,), 1), on_mesh(y, (p,), (3,), 2)
            if p in kinds_:
                result = getattr(dtorch, name)(a, b)
                assert placements_of(result) == (p,)
                assert_is(result, getattr(torch, name)(x, y), (3,), close)
            else:
                with pytest.raises(dtorch.PlacementError):
                    getattr(dtorch, name)(a, b)


@pytest.mark.parametrize("p", PARTIALS)
def test_three_operands(p: str) -> None:
    x, y, z = value(F32), value(F32) + 1, value(F32) * 2 + 1
    mask = value(BOOL)
    a, b, c = (on_mesh(t, (p,), (3,), k) for k, t in enumerate((x, y, z)))
    whole = on_mesh(y, ("R",), (3,))
    assert_is(dtorch.where(on_mesh(mask, ("R",), (3,)), a, b), torch.where(mask, x, y), (3,))
    assert_is(a.masked_fill(on_mesh(mask, ("R",), (3,)), 3), x.masked_fill(mask, 3), (3,))
    for op in ("addcmul", "addcdiv", "lerp"):
        if p in ("sum", "avg"):
            # The factor of lerp and the divisor are third, of addcmul any of the two.
            got = getattr(dtorch, op)(a, b, whole)
            assert placements_of(got) == (p,)
            assert_is(got, getattr(torch, op)(x, y, y), (3,), close)
        with pytest.raises(dtorch.PlacementError):
            getattr(dtorch, op)(a, b, c)


@pytest.mark.parametrize("dtype", [F32, I64])
@pytest.mark.parametrize("kind", ["min", "max"])
def test_parts_that_have_nothing(kind: str, dtype: torch.dtype) -> None:
    """A device without any element of a reduction holds the limit of the dtype: no op that passes
    may wrap it, or make a NaN of it."""
    info: Any = torch.finfo(dtype) if dtype == F32 else torch.iinfo(dtype)
    far = {"min": float("inf") if dtype == F32 else info.max}
    far["max"] = float("-inf") if dtype == F32 else info.min
    x = value(dtype)
    parts = [x, torch.full_like(x, far[kind])]
    passed = 0
    for _, op, _, _ in [c for c in ONE if c[2] == dtype]:
        t = of_parts(parts, [kind], (2,), x.shape)
        try:
            result = op(t)
        except dtorch.PlacementError:
            continue
        passed += 1
        assert_is(result, op(x), (2,), close)
    assert passed > 5


def test_nan_in_one_part() -> None:
    """What passes agrees with the reduction, which propagates NaN."""
    nan = float("nan")
    parts = [torch.tensor([nan, 1.0, 2.0]), torch.tensor([3.0, nan, -1.0])]
    for kind in ("min", "max"):
        x = REDUCE[kind](torch.stack(parts))
        for name, op, dtype, _ in ONE:
            if dtype != F32 or name.startswith("to_"):
                continue
            t = of_parts(parts, [kind], (2,), (3,))
            try:
                result = op(t)
            except dtorch.PlacementError:
                continue
            assert_is(result, op(x), (2,), close)


@pytest.mark.parametrize("placement", ["R", "S0", "S1", *PARTIALS])
def test_in_place_keeps_placements(placement: str) -> None:
    shape = (3,)
    x = value(F32, (5, 2))
    for op in (
        lambda t: t.fill_(3),
        lambda t: t.mul_(2),
        lambda t: t.add_(1) if placement not in ("product",) else t,
        lambda t: t.zero_(),
    ):
        t, whole = on_mesh(x, (placement,), shape), x.clone()
        op(t)
        op(whole)
        assert placements_of(t) == (placement,)
        assert_is(t, whole, shape)


def test_fill_asks_for_the_shape_alone() -> None:
    x = value(F32, (5, 2))
    for p in ("R", "S0", "S1", *PARTIALS):
        assert_is(dtorch.fill(on_mesh(x, (p,), (3,)), 7), torch.fill(x, 7), (3,))


def test_parts_are_ordinary_tensors() -> None:
    parts = local_parts(on_mesh(value(F32), ("S0",), (3,)) * 2, (3,))
    assert [tuple(p.shape) for p in parts] == [(2,), (2,), (1,)]
