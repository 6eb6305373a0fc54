"""Reductions and scans on meshes: what is taken without communication, and that every part is the
part of the single-device result (sharded.py). Sums are of whole numbers, so exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dtorch
import pytest
import sharded
import torch
from sharded import check, on_mesh, whole_numbers

MESHES = [(2,), (3,), (2, 2)]
SHAPES = [(5, 7), (7,), (), (1, 3, 2), (3, 0), (0, 3), (1, 1)]
INF = float("inf")
WHOLE_PARTIALS = ("sum", "min", "max", "product")  # an average of integers there is not


def dims_of(rank: int) -> list[Any]:
    """What can be given as dim: each one, a pair, and all."""
    return [None, *range(rank), *([(0, -1)] if rank > 1 else [])]


def one_mesh_dim(counts: sharded.Counts) -> dict[str, str]:
    """Placement of the only input -> of the result, on a mesh of one dim."""
    return {placements[0][0]: out[0] for placements, out in counts.taken.items()}


# ---- which placements are taken ------------------------------------------------------------------

TAKEN: list[tuple[str, Callable[..., Any], dict[str, str]]] = [
    ("sum", lambda x: x.sum(1), {"S1": "sum", "sum": "sum", "avg": "avg"}),
    ("mean", lambda x: x.mean(1), {"S1": "sum", "sum": "sum", "avg": "avg"}),
    ("prod", lambda x: x.prod(1), {"S1": "product", "product": "product"}),
    ("amax", lambda x: x.amax(1), {"S1": "max", "max": "max"}),
    ("amin", lambda x: x.amin(1), {"S1": "min", "min": "min"}),
    ("any", lambda x: x.any(1), {"S1": "max"}),
    ("all", lambda x: x.all(1), {"S1": "min"}),
    ("argmax", lambda x: x.argmax(1), {}),
    ("argmin", lambda x: x.argmin(1), {}),
    ("max", lambda x: tuple(x.max(1)), {}),
    ("min", lambda x: tuple(x.min(1)), {}),
    ("var", lambda x: x.var(1), {}),
    ("std", lambda x: x.std(1, correction=0), {}),
    ("norm 2", lambda x: x.norm(2, 1), {}),
    ("norm 3", lambda x: x.norm(3, 1), {}),
    ("norm 0", lambda x: x.norm(0, 1), {"S1": "sum"}),
    ("norm 1", lambda x: x.norm(1, 1), {"S1": "sum"}),
    ("norm inf", lambda x: x.norm(INF, 1), {"S1": "max"}),
    ("norm -inf", lambda x: x.norm(-INF, 1), {"S1": "min"}),
    ("logsumexp", lambda x: x.logsumexp(1), {}),
    ("cumsum", lambda x: x.cumsum(1), {"sum": "sum", "avg": "avg"}),
    ("cumprod", lambda x: x.cumprod(1), {"product": "product"}),
]


@pytest.mark.parametrize("name, op, taken", TAKEN, ids=[t[0] for t in TAKEN])
def test_what_a_reduction_takes(name: str, op: Callable[..., Any], taken: dict[str, str]) -> None:
    counts = check(op, [whole_numbers(5, 6, 3)], (3,), same=sharded.close)
    last = "S2" if name.startswith("cum") else "S1"
    assert one_mesh_dim(counts) == {"R": "R", "S0": "S0", "S2": last, **taken}


def test_kept_dims_keep_their_place() -> None:
    counts = check(lambda x: x.sum((0, 2), keepdim=True), [whole_numbers(5, 6, 3)], (2,))
    assert one_mesh_dim(counts)["S1"] == "S1"
    counts = check(lambda x: x.sum((0, 2)), [whole_numbers(5, 6, 3)], (2,))
    assert one_mesh_dim(counts)["S1"] == "S0"


def test_one_element_each_is_itself() -> None:
    for op in (dtorch.sum, dtorch.prod, dtorch.mean, dtorch.amax, dtorch.amin):
        counts = check(op, [whole_numbers(1, 1)], (3,))
        assert set(sharded.PARTIALS) <= set(one_mesh_dim(counts))


def test_narrow_integers_wrap_only_in_their_own_type() -> None:
    """200 + 100 as bytes is 44: the sum of wider sums would be 300."""
    parts = [torch.tensor([n], dtype=torch.uint8) for n in (200, 100)]
    t = sharded.of_parts(parts, ["sum"], (2,), (1,))
    with pytest.raises(dtorch.PlacementError, match="sum"):
        t.sum()
    parts = [torch.tensor([2.5]), torch.tensor([1.5])]
    t = sharded.of_parts(parts, ["sum"], (2,), (1,))
    with pytest.raises(dtorch.PlacementError, match="sum"):
        t.sum(dtype=dtorch.int64)
    assert sharded.placements_of(t.sum(dtype=dtorch.float64)) == ("sum",)


# ---- every combination against one device --------------------------------------------------------

LINEAR = {"sum": dtorch.sum, "mean": dtorch.mean}


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("sizes", SHAPES)
def test_sums_and_means(sizes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    x = whole_numbers(*sizes)
    for dim in dims_of(len(sizes)):
        for keepdim in (False, True):
            check(lambda t, d=dim, k=keepdim: t.sum(d, keepdim=k), [x], shape)
            check(lambda t, d=dim, k=keepdim: t.mean(d, k), [x], shape, same=sharded.close)
        check(lambda t, d=dim: t.sum(d), [x.to(torch.int64)], shape, partials=WHOLE_PARTIALS)
        check(lambda t, d=dim: t.sum(d), [x > 0], shape, partials=())
        check(lambda t, d=dim: t.sum(d, dtype=torch.float64), [x.half()], shape)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_means_of_other_types(dtype: torch.dtype) -> None:
    same = sharded.close if dtype == torch.float64 else sharded.coarse
    for shape in MESHES:
        check(lambda t: t.mean(0), [whole_numbers(7, 3, dtype=dtype)], shape, same=same)


@pytest.mark.parametrize("shape", [(3,), (2, 2)])
@pytest.mark.parametrize("sizes", [(5, 3), (7,), (1, 3, 2), (3, 0)])
@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8],
)
def test_extrema(sizes: tuple[int, ...], shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = whole_numbers(*sizes, dtype=dtype)
    if dtype.is_floating_point:
        x = x - 6  # so that a 0 of an empty part would show
    partials = ("max", "min", "sum") if dtype != torch.uint8 else ()
    for dim in dims_of(len(sizes)):
        reduced = dim if dim is not None else ()
        chosen = [d % max(1, len(sizes)) for d in (dim if isinstance(dim, tuple) else (dim or 0,))]
        if x.numel() == 0 and (dim is None or any(x.shape[d] == 0 for d in chosen)):
            continue
        check(lambda t, d=reduced: t.amax(d), [x], shape, partials=partials)
        check(lambda t, d=reduced: t.amin(d, True), [x], shape, partials=partials)


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("sizes", SHAPES)
def test_truths(sizes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    numbers = whole_numbers(*sizes)
    for x in (numbers > 3, numbers > -4, numbers, (numbers > 3).to(torch.uint8)):
        partials = () if x.dtype != torch.float32 else ("sum", "max", "min")
        for dim in dims_of(len(sizes)):
            check(lambda t, d=dim: t.any(d), [x], shape, partials=partials)
            check(lambda t, d=dim: t.all(d), [x], shape, partials=partials)


def test_extrema_of_partial_truths() -> None:
    """Of a bool that is Partial(max) any passes, all does not."""
    parts = [torch.tensor([True, False, False]), torch.tensor([False, True, False])]
    t = sharded.of_parts(parts, ["max"], (2,), (3,))
    assert sharded.placements_of(t.any()) == ("max",)
    with pytest.raises(dtorch.PlacementError, match="all"):
        t.all()


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("sizes", SHAPES)
def test_products(sizes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    x = whole_numbers(*sizes)
    for dim in [None, *range(len(sizes))]:
        check(lambda t, d=dim: t.prod(d), [x], shape, same=sharded.close)
        check(lambda t, d=dim: t.prod(d), [x.to(torch.int64)], shape, partials=("product",))
        check(lambda t, d=dim: t.prod(d), [x > -2], shape, partials=())


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("sizes", [(5, 3), (7,), (3, 0)])
@pytest.mark.parametrize("p", [0, 1, 2, 3, INF, -INF])
def test_norms(p: float, sizes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    x = whole_numbers(*sizes)
    for dim in dims_of(len(sizes)):
        op = lambda t, d=dim: dtorch.linalg.vector_norm(t, p, d)  # noqa: E731
        check(op, [x], shape, same=sharded.close)


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("sizes", SHAPES)
def test_what_needs_the_whole_dim(sizes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    x = whole_numbers(*sizes)
    partials = ("sum", "max")
    for dim in dims_of(len(sizes)):
        for op in (dtorch.var, dtorch.std):
            check(lambda t, d=dim, f=op: f(t, d), [x], shape, same=sharded.close, partials=partials)
        if dim is None:
            continue
        check(lambda t, d=dim: t.logsumexp(d), [x], shape, same=sharded.close, partials=partials)
        if isinstance(dim, int):
            check(lambda t, d=dim: t.cumsum(d), [x], shape)
            check(lambda t, d=dim: t.cumsum(d), [x > 0], shape, partials=())
            check(lambda t, d=dim: t.cumprod(d), [x], shape, same=sharded.close)
            if x.shape[dim] == 0:
                continue
            check(lambda t, d=dim: t.argmax(d, True), [x], shape, partials=partials)
            check(lambda t, d=dim: t.argmin(d), [x], shape, partials=partials)
            check(lambda t, d=dim: tuple(t.max(d)), [x], shape, partials=partials)
            check(lambda t, d=dim: tuple(t.min(d, True)), [x], shape, partials=partials)


# ---- what is special -----------------------------------------------------------------------------


def test_an_empty_part_is_no_error() -> None:
    """Case 6: three columns on four devices."""
    x = on_mesh(torch.ones(3, 3), ["S1"], (4,))
    for op in (dtorch.max, dtorch.min, dtorch.amax):
        sharded.assert_is(op(x), torch.tensor(1.0), (4,), sharded.equal)
    with pytest.raises(RuntimeError, match="Expected reduction dim"):
        dtorch.amax(on_mesh(torch.ones(0, 3), ["S1"], (4,)))


def test_nan_and_infinities_go_through() -> None:
    x = torch.tensor([[1.0, float("nan"), -INF], [INF, 2.0, 3.0], [-INF, -INF, -INF]])
    ops: list[Callable[[Any], Any]] = [
        lambda t: t.amax(1),
        lambda t: t.amin(1),
        lambda t: t.sum(1),
        lambda t: t.amax(),
        lambda t: t.any(),
    ]
    for shape in MESHES:
        for op in ops:
            check(op, [x], shape, partials=())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_part_has_the_bits_of_the_whole(dtype: torch.dtype) -> None:
    """A row is reduced in one order, whatever rows there are beside it."""
    g = torch.Generator().manual_seed(2)
    x = torch.randn(6, 5000, 10, generator=g).to(dtype)
    ops: list[Callable[[Any], Any]] = [
        lambda t: t.sum(1),
        lambda t: t.mean(1),
        lambda t: t.var(1),
        lambda t: t.logsumexp(1),
        lambda t: dtorch.linalg.vector_norm(t, 2, 1),
        lambda t: t.cumsum(1),
        lambda t: t.softmax(1),
    ]
    for shape, placements in (((4,), ["S0"]), ((4,), ["S2"]), ((2, 2), ["S2", "S0"])):
        for op in ops:
            t = on_mesh(x, placements, shape)
            want = op(dtorch.tensor(x)).to_torch()
            sharded.assert_is(op(t), want, shape, sharded.same_bits)


def test_partial_and_a_number() -> None:
    """Case 3: the sum of ten numbers on four devices, plus 10, is 55."""
    x = on_mesh(torch.arange(10.0), ["S0"], (4,))
    total = x.sum() + 10
    assert sharded.placements_of(total) == ("sum",)
    sharded.assert_is(total, torch.tensor(55.0), (4,), sharded.equal)
