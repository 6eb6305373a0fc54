"""Joining, lookups by index, masks and triangles on a mesh, against torch on the whole value."""

from __future__ import annotations

from typing import Any

import dtorch
import pytest
import torch
from dtorch import _C
from sharded import (
    PARTIALS,
    assert_is,
    check,
    check_torch,
    local_parts,
    on_mesh,
    placements_of,
)

MESHES = [(3,), (2, 2)]
rows = _C.rows


def value(shape: tuple[int, ...]) -> torch.Tensor:
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) * 3 - 7).float()


def of(x: Any) -> Any:
    return dtorch if isinstance(x, dtorch.Tensor) else torch


def some(shape: tuple[int, ...]) -> tuple[str, ...]:
    return PARTIALS if len(shape) == 1 else ("sum",)


# ---- joining ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", MESHES, ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cat_and_stack(shape: tuple[int, ...], dim: int) -> None:
    a, b = value((3, 2)), value((3, 2)) + 5
    for op in ("cat", "stack"):
        counts = check_torch(
            lambda x, y, op=op: getattr(of(x), op)([x, y], dim), [a, b], shape, partials=some(shape)
        )
        assert len(counts.taken) > 4


@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_cat_of_what_is_empty(shape: tuple[int, ...]) -> None:
    """A 1-D tensor of size 0 is ignored however it is placed; joined to nothing, a shard stays."""
    for a, b in [((3, 2), (0,)), ((0,), (3, 2)), ((5, 2), (0, 2)), ((0, 1), (0, 1))]:
        counts = check_torch(
            lambda x, y: of(x).cat([x, y], 0), [value(a), value(b)], shape, partials=["sum"]
        )
        assert len(counts.taken) > 2
    x = on_mesh(value((5, 2)), ("S0",), (3,))
    assert placements_of(dtorch.cat([x, on_mesh(value((0,)), ("S0",), (3,))])) == ("S0",)


def test_cat_of_partials() -> None:
    for p in PARTIALS:
        a, b = on_mesh(value((2, 3)), (p,), (3,), 1), on_mesh(value((2, 3)), (p,), (3,), 2)
        assert placements_of(dtorch.cat([a, b])) == (p,)
        # A Replicate one counts once.
        c = dtorch.cat([a, on_mesh(value((2, 3)) + 1, ("R",), (3,))])
        assert placements_of(c) == (p,)
        assert_is(c, torch.cat([value((2, 3)), value((2, 3)) + 1]), (3,))
    ints = on_mesh(value((2,)).long(), ("sum",), (2,))
    assert_is(
        dtorch.cat([ints, on_mesh(value((2,)), ("sum",), (2,))]), torch.cat([value((2,))] * 2), (2,)
    )
    flags = on_mesh(torch.tensor([True, False]), ("sum",), (2,))
    with pytest.raises(dtorch.PlacementError):  # `or` is no sum of numbers
        dtorch.cat([flags, on_mesh(value((2,)), ("R",), (2,))])


# ---- lookups ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2,), (3,), (2, 2)], ids=str)
def test_embedding(shape: tuple[int, ...]) -> None:
    for words, index in [(7, [[6, 0, 3], [2, 2, 5]]), (1, [0, 0]), (2, []), (5, 4)]:
        weight, at = value((words, 3)), torch.tensor(index, dtype=torch.int64)
        counts = check(
            lambda w, i: rows["embedding__new"](w, i),
            [weight, at],
            shape,
            reference=lambda w, i: torch.nn.functional.embedding(i, w),
            partials=some(shape),
        )
        assert len(counts.taken) > 3


def test_embedding_dealt_out_by_words() -> None:
    """Other devices' rows are -0.0, so that a sum has the bits of the one that is."""
    weight = value((5, 2))
    weight[3, 0] = -0.0
    at = torch.tensor([3, 0, 4, 3])
    out = rows["embedding__new"](on_mesh(weight, ("S0",), (3,)), on_mesh(at, ("R",), (3,)))
    assert placements_of(out) == ("sum",)
    parts = local_parts(out, (3,))
    total = parts[0] + parts[1] + parts[2]
    assert torch.equal(total.signbit(), weight[at].signbit())
    assert torch.equal(total, weight[at])
    assert sorted(bool(p[0].signbit().all() and (p[0] == 0).all()) for p in parts) == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("bad", [5, -1])
def test_an_index_of_no_row_at_all(bad: int) -> None:
    weight, at = (
        on_mesh(value((5, 2)), ("S0",), (3,)),
        on_mesh(torch.tensor([0, bad]), ("R",), (3,)),
    )
    with pytest.raises(IndexError, match="index out of range"):
        local_parts(rows["embedding__new"](weight, at), (3,))
    with pytest.raises(IndexError, match="index out of range"):
        local_parts(weight.index_select(0, at), (3,))
    with pytest.raises(RuntimeError, match="out of bounds for dimension 0 with size 5"):
        local_parts(
            rows["gather__dim"](weight, 0, on_mesh(torch.tensor([[bad]]), ("R",), (3,))), (3,)
        )


@pytest.mark.parametrize("shape", [(2,), (3,), (2, 2)], ids=str)
def test_index_select(shape: tuple[int, ...]) -> None:
    for size, dim, index in [
        ((5, 3), 0, [4, 0, 0]),
        ((3, 5), 1, [1, 4]),
        ((2, 0), 0, [1]),
        ((4,), 0, []),
    ]:
        at = torch.tensor(index, dtype=torch.int64)
        counts = check_torch(
            lambda x, i, dim=dim: x.index_select(dim, i),
            [value(size), at],
            shape,
            partials=some(shape),
        )
        assert len(counts.taken) > 3


def test_index_select_keeps_shards() -> None:
    x = on_mesh(value((5, 3)), ("S1",), (3,))
    assert placements_of(x.index_select(0, on_mesh(torch.tensor([1]), ("R",), (3,)))) == ("S1",)
    flags = value((5, 2)) > 0
    out = on_mesh(flags, ("S0",), (3,)).index_select(0, on_mesh(torch.tensor([4, 1]), ("R",), (3,)))
    assert placements_of(out) == ("max",)
    assert_is(out, flags[[4, 1]], (3,))


@pytest.mark.parametrize("shape", [(2,), (3,), (2, 2)], ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_gather(shape: tuple[int, ...], dim: int) -> None:
    for size, index in [((4, 3), (4, 3)), ((4, 3), (2, 2)), ((3, 5), (3, 1)), ((4, 3), (0, 2))]:
        at = torch.arange(torch.Size(index).numel()).reshape(index) * 7 % size[dim]
        counts = check(
            lambda x, i: rows["gather__dim"](x, dim, i),
            [value(size), at],
            shape,
            reference=lambda x, i: x.gather(dim, i),
            partials=some(shape),
        )
        assert len(counts.taken) > 3


# ---- masks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_index_by_a_mask(shape: tuple[int, ...]) -> None:
    """Beside the dims of the mask shards pass; how many places count becomes known later."""
    x = value((4, 3, 2))
    for first, mask in [
        (0, [True, False, True, True]),
        (1, [False, False, True]),
        (2, [False, False]),
    ]:
        m = torch.tensor(mask)
        counts = check(
            lambda t, i, first=first: rows["index__mask"](t, i, first),
            [x, m],
            shape,
            reference=lambda t, i, first=first: t[(slice(None),) * first + (i,)],
            partials=["sum", "max"],
        )
        assert len(counts.taken) >= 2 * len(shape)


@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_sizes_that_depend_on_values(shape: tuple[int, ...]) -> None:
    x = torch.tensor([[3.0, 0.0], [0.0, 5.0], [3.0, 1.0]])
    mask = x > 1
    for name, args, want in [
        ("nonzero__new", (), x.nonzero()),
        ("masked_select__new", (mask,), x.masked_select(mask)),
        ("unique__new", (False, False), x.unique()),
    ]:
        placed = [
            on_mesh(a, ("R",) * len(shape), shape) if isinstance(a, torch.Tensor) else a
            for a in args
        ]
        out = rows[name](on_mesh(x, ("R",) * len(shape), shape), *placed)
        out = out[0] if isinstance(out, tuple) else out
        assert tuple(out.shape) == tuple(want.shape)
        assert_is(out, want, shape)
        with pytest.raises(dtorch.PlacementError):
            rows[name](on_mesh(x, ("S0",) * len(shape), shape), *placed)
    for k, part in enumerate(rows["nonzero__tuple"](on_mesh(x, ("R",) * len(shape), shape))):
        assert_is(part, x.nonzero(as_tuple=True)[k], shape)


# ---- triangles --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2,), (3,), (2, 2)], ids=str)
@pytest.mark.parametrize("op", ["tril", "triu"])
def test_triangles(shape: tuple[int, ...], op: str) -> None:
    for size in [(5, 4), (2, 3, 3), (1, 5), (7, 0)]:
        for diagonal in (0, 1, -2):
            counts = check_torch(lambda x, d=diagonal: getattr(x, op)(d), [value(size)], shape)
            assert not counts.refused


# ---- writes through a mask --------------------------------------------------------------------


def put(first: int) -> Any:
    def write(x: Any, mask: Any, v: Any) -> Any:
        if isinstance(x, dtorch.Tensor):
            before = placements_of(x)
            rows["index_put__mask"](x, mask, v, first)
            assert placements_of(x) == before
        else:
            x = x.clone()
            x[(slice(None),) * first + (mask,)] = v
        return x

    return write


@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_writes_through_a_mask(shape: tuple[int, ...]) -> None:
    """One value for all places goes anywhere; one for each place needs all of them counted."""
    x = value((4, 3))
    rows_mask, columns_mask = (
        torch.tensor([True, False, True, True]),
        torch.tensor([False, True, True]),
    )
    for first, mask, size in [
        (0, rows_mask, ()),
        (0, rows_mask, (3,)),
        (0, rows_mask, (3, 3)),
        (1, columns_mask, (4, 1)),
        (1, columns_mask, (2,)),
        (0, x > 0, (1,)),
    ]:
        if len(shape) > 1 and size not in ((3,), (4, 1)):
            continue
        partials = ("sum", "max") if len(shape) == 1 else ()
        counts = check_torch(put(first), [x, mask, value(size) + 50], shape, partials=partials)
        assert len(counts.taken) > 1
    whole = on_mesh(x, ("R",), (3,))
    with pytest.raises(dtorch.PlacementError):  # the copies would differ
        rows["index_put__mask"](
            whole, on_mesh(rows_mask, ("S0",), (3,)), on_mesh(value(()), ("R",), (3,)), 0
        )
    assert_is(whole, x, (3,))


async def count_later(x: dtorch.Tensor) -> int:
    found = await rows["nonzero__new"](x)
    return int(found.shape[0])


def test_a_size_that_is_awaited(run: Any) -> None:
    x = torch.zeros(1 << 20)
    x[::3] = 1
    assert run(count_later(on_mesh(x, ("R",), (2,)))) == len(x[::3])
