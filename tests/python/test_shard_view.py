"""Views on a mesh: every placement of many shapes, against torch on the whole value.

Accepted or PlacementError, never wrong numbers; and what needs no communication is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import dtorch
import pytest
import torch
from sharded import (
    PARTIALS,
    all_placements,
    assert_is,
    boxes,
    check_torch,
    local_parts,
    on_mesh,
    placements_of,
)

MESHES = [(2,), (3,), (2, 2)]

# (name, op for torch and dtorch alike, shapes)
CASES: list[tuple[str, Callable[[Any], Any], list[tuple[int, ...]]]] = [
    (
        "flat",
        lambda x: x.view(-1),
        [(6, 4), (5, 2), (1, 6), (6, 1), (2, 0), (0, 3), (2, 2, 3), (1,), (3, 1, 2)],
    ),
    (
        "view_merge",
        lambda x: x.view(-1, x.shape[-1]),
        [(2, 2, 3), (3, 1, 5), (1, 4, 2), (0, 2, 3), (4, 3, 1)],
    ),
    ("view_split", lambda x: x.view(2, -1, 3), [(4, 3), (12,), (2, 6), (6, 1, 2), (1, 6)]),
    ("view_ones", lambda x: x.view(1, x.numel(), 1), [(5,), (1,), (2, 3), (0,)]),
    ("view_empty", lambda x: x.view(0, 5), [(0, 2), (3, 0), (0,), (5, 0, 2)]),
    ("reshape_t", lambda x: x.transpose(0, 1).reshape(-1), [(2, 3), (4, 2), (1, 5)]),
    ("flatten", lambda x: x.flatten(1), [(2, 3, 2), (5, 1, 2), (3, 0, 2), (2, 1, 1)]),
    ("unflatten", lambda x: x.unflatten(0, (2, -1)), [(4, 3), (6,), (2, 2), (14, 1)]),
    ("transpose", lambda x: x.transpose(0, -1), [(2, 3), (5,), (1, 7, 2)]),
    ("t", lambda x: x.t(), [(2, 3), (5,), ()]),
    ("permute", lambda x: x.permute(2, 0, 1), [(2, 3, 5), (1, 0, 7)]),
    ("movedim", lambda x: x.movedim(0, -1), [(2, 3, 5), (4, 1)]),
    ("squeeze", lambda x: x.squeeze(), [(1, 3), (2, 1, 2), (1, 1), (3, 5), (1, 0)]),
    ("squeeze_dim", lambda x: x.squeeze(0), [(1, 3), (2, 1), (1, 0)]),
    ("unsqueeze", lambda x: x.unsqueeze(1), [(2, 3), (1,), (7, 0)]),
    ("expand", lambda x: x.expand(3, -1, 2), [(1, 2), (3, 5, 2), (1, 7, 1), (3, 1, 1)]),
    ("expand_none", lambda x: x.expand(0, 3), [(1, 3), (0, 3), (3,), (1, 1)]),
    ("select", lambda x: x.select(0, -1), [(2, 3), (5,), (1, 2), (3, 0), (7, 1, 2)]),
    ("narrow", lambda x: x.narrow(0, 1, 2), [(3, 2), (5,), (3, 0), (4, 4)]),
    ("narrow_all", lambda x: x.narrow(0, 0, x.shape[0]), [(3, 2), (5,), (0, 2)]),
    ("narrow_none", lambda x: x.narrow(0, 1, 0), [(3, 2), (5,), (1, 2)]),
    ("diagonal", lambda x: x.diagonal(), [(3, 3), (2, 5), (5, 2), (1, 4), (0, 3), (2, 3, 4)]),
    ("diagonal_up", lambda x: x.diagonal(1), [(3, 4), (3, 3), (5, 2), (2, 1)]),
    ("diagonal_down", lambda x: x.diagonal(-1, 1, 0), [(3, 4), (4, 3), (5, 2)]),
    ("detach", lambda x: x.detach(), [(3, 2), (), (0,)]),
    ("contiguous", lambda x: x.t().contiguous(), [(3, 2), (0, 1)]),
    ("clone", lambda x: x.clone(), [(3, 2), (), (7,)]),
]


def value(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) * 3 - 7).to(dtype)


def needs_no_move(
    op: Callable[[Any], Any], size: tuple[int, ...], placements: tuple[str, ...], shape: Any
) -> bool:
    """Whether some layout of the result has on each device only what that device has already.

    Not asked of what is Partial."""
    if set(placements) & set(PARTIALS):
        return False
    numbers = torch.arange(torch.Size(size).numel()).reshape(size)
    have = [set(p.flatten().tolist()) for p in boxes(numbers, placements, shape)]
    result = op(numbers)  # for each element the number of the input's that it shows
    for out in all_placements(result.dim(), len(shape), ()):
        wanted = [set(p.flatten().tolist()) for p in boxes(result, out, shape)]
        if all(w <= h for w, h in zip(wanted, have, strict=True)):
            return True
    return False


@pytest.mark.parametrize("shape", MESHES, ids=str)
@pytest.mark.parametrize(("op", "shapes"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_every_placement(
    op: Callable[[Any], Any], shapes: list[tuple[int, ...]], shape: tuple[int, ...]
) -> None:
    for size in shapes:
        counts = check_torch(op, [value(size)], shape)
        assert counts.taken
        # Refused though nothing need move: a view that would have to cut a Replicate tensor, whose
        # copies would differ once somebody writes to the view; a dim of one element that is cut,
        # when the result would be cut along a dim that has nothing to do with that.
        for (refused,) in counts.refused:
            if not needs_no_move(op, size, refused, shape):
                continue
            one = any(p[0] == "S" and size[int(p[1:])] == 1 for p in refused)
            assert "R" in refused or one, f"{size} as {refused} on {shape}"


@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_as_strided_is_of_the_whole(shape: tuple[int, ...]) -> None:
    counts = check_torch(lambda x: x.as_strided((2, 2), (1, 2)), [value((3, 2))], shape)
    assert len(counts.taken) >= 1 + 5  # Replicate, and every Partial
    assert counts.refused


@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_shapes_of_another(shape: tuple[int, ...]) -> None:
    """expand_as and view_as ask the other tensor for its shape, however it is placed."""
    other = value((3, 4))
    for op, size in [
        ("expand_as", (1, 4)),
        ("expand_as", (4,)),
        ("view_as", (12,)),
        ("view_as", (3, 2, 2)),
    ]:
        counts = check_torch(
            lambda x, y, op=op: getattr(x, op)(y), [value(size), other], shape, partials=["sum"]
        )
        assert counts.taken
    with pytest.raises(dtorch.PlacementError, match=r"\(S1, any\) -> S1"):
        on_mesh(value((1, 4)), ("S0",) * len(shape), shape).expand_as(
            on_mesh(other, ("R",) * len(shape), shape)
        )


def test_case_4_uneven_flattening() -> None:
    x = value((6, 256))
    with pytest.raises(dtorch.PlacementError) as info:
        on_mesh(x, ("S0",), (4,)).view(-1)
    text = str(info.value)
    assert (
        "view: no view: what device 0 has of [6, 256] is not its part of the result of shape [1536]"
        in text
    )
    assert "input 0: shape [6, 256], [S0]" in text
    assert "Legal after input 0.redistribute(placements=[R])" in text
    assert_is(on_mesh(x, ("R",), (4,)).view(-1), x.view(-1), (4,))
    even = on_mesh(value((8, 256)), ("S0",), (4,)).view(-1)
    assert placements_of(even) == ("S0",)
    assert_is(even, value((8, 256)).view(-1), (4,))


def test_the_remedy_is_one() -> None:
    """What the error names is legal, also where the mesh dims are legal one by one."""
    x = value((6, 4))
    with pytest.raises(dtorch.PlacementError) as info:
        on_mesh(x, ("S0", "S0"), (3, 2)).view(2, 3, 4)
    said = re.search(
        r"Legal after input 0.redistribute\(placements=\[(\w+), (\w+)\]\)", str(info.value)
    )
    assert said is not None
    assert_is(on_mesh(x, said.groups(), (3, 2)).view(2, 3, 4), x.view(2, 3, 4), (3, 2))


def test_nested_shards_take_dims_in_turn() -> None:
    x = on_mesh(value((4, 6)), ("S0", "S0"), (2, 2))
    split = x.view(2, 2, 6)
    assert placements_of(split) == ("S0", "S1")
    assert placements_of(split.view(4, 6)) == ("S0", "S0")
    assert_is(split.view(24), value((24,)), (2, 2))


def test_slices_of_a_sharded_dim() -> None:
    """Legal where the parts that are left are the layout of what is left."""
    x = on_mesh(value((8, 3)), ("S0",), (4,))
    for start, length in ((0, 8), (0, 7), (2, 0), (8, 0)):
        assert_is(x.narrow(0, start, length), value((8, 3)).narrow(0, start, length), (4,))
    for start, length in ((0, 2), (1, 7), (0, 4), (2, 6), (7, 1)):
        with pytest.raises(dtorch.PlacementError, match="narrow"):
            x.narrow(0, start, length)


@pytest.mark.parametrize(
    ("view", "size"),
    [
        (lambda x: x.narrow(0, 0, 2), (5, 4)),
        (lambda x: x.transpose(0, 1), (5, 4)),
        (lambda x: x.view(5, 2, 2), (5, 4)),
        (lambda x: x.select(0, 3), (5, 4)),
        (lambda x: x.unsqueeze(0), (5, 4)),
        (lambda x: x.reshape(5, 2, 2), (5, 4)),
        (lambda x: x.narrow(0, 0, 2).t().squeeze(), (5, 4)),
    ],
)
def test_writes_go_through(view: Callable[[Any], Any], size: tuple[int, ...]) -> None:
    for shape, placements in [
        ((2,), ("R",)),
        ((2,), ("S1",)),
        ((3,), ("S1",)),
        ((2, 2), ("R", "S1")),
        ((2,), ("sum",)),
    ]:
        whole = value(size)
        x = on_mesh(whole, placements, shape)
        view(x).add_(10)
        view(x).mul_(2)
        view(whole).add_(10)
        view(whole).mul_(2)
        assert placements_of(x) == placements
        assert_is(x, whole, shape)


def test_a_view_never_cuts_replicate() -> None:
    """[R, S1] could be flattened if the rows were cut; a write would then reach one copy only."""
    x = on_mesh(value((4, 6)), ("R", "S1"), (4, 2))
    with pytest.raises(dtorch.PlacementError):
        x.view(24)
    assert_is(on_mesh(value((4, 6)), ("S0", "S1"), (4, 2)).view(24), value((24,)), (4, 2))


def test_a_mesh_dim_of_one_device_is_no_obstacle() -> None:
    x = on_mesh(value((3, 4)), ("S0", "S1"), (1, 2))
    assert_is(x.narrow(0, 1, 2), value((3, 4))[1:], (1, 2))
    assert_is(x.select(0, 2).add_(1), value((3, 4))[2] + 1, (1, 2))
    assert_is(x.narrow(0, 2, 1), (value((3, 4)) + torch.tensor([[0], [0], [1]]))[2:], (1, 2))


def test_a_dim_whose_part_is_one_element_is_not_squeezed() -> None:
    x = on_mesh(value((3, 1, 2)), ("S0",), (3,))
    assert tuple(x.squeeze().shape) == (3, 2)
    assert [tuple(p.shape) for p in local_parts(x.squeeze(), (3,))] == [(1, 2)] * 3
