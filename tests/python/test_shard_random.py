"""arange, linspace, eye and random numbers on meshes: every part is the part of what one device
makes, to the bit, whatever the mesh and the placements.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import dtorch
import pytest
import sharded
import torch
from dtorch import _C
from dtorch.distributed_spec import init_device_mesh

MESHES = [(2,), (3,), (2, 2), (2, 3, 2)]
SIZES = [(), (5,), (0,), (3, 7), (5, 1), (0, 3), (2, 3, 5), (4, 1, 3, 2)]


def placed(row: str, shape: tuple[int, ...], placements: tuple[str, ...], *args: Any) -> Any:
    return _C.on_mesh(sharded.mesh(shape), [sharded.code(p) for p in placements], row, *args)


def choices(rank: int, dims: int, partials: tuple[str, ...]) -> list[tuple[str, ...]]:
    every = list(sharded.all_placements(rank, dims, partials))
    return every if len(every) < 100 else every[:: len(every) // 60]


def assert_everywhere(
    row: str, args: tuple[Any, ...], rank: int, shape: tuple[int, ...], seed: int | None = None
) -> None:
    """The row on that mesh, in all placements, is the row on one device."""
    if seed is not None:
        dtorch.manual_seed(seed)
    want = _C.rows[row](*args).to_torch()
    partials = sharded.PARTIALS if want.is_floating_point() else ("sum", "min", "max", "product")
    for placements in choices(rank, len(shape), partials):
        if seed is not None:
            dtorch.manual_seed(seed)
        t = placed(row, shape, placements, *args)
        assert sharded.placements_of(t) == placements
        same = sharded.same_bits if not set(placements) & set(sharded.PARTIALS) else sharded.equal
        if "avg" in placements:  # the average of three equal numbers rounds
            same = sharded.close
        sharded.assert_is(t, want, shape, same)


# ---- by index ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("dtype", ["int64", "int32", "float32", "float64", "bfloat16"])
def test_arange(dtype: str, shape: tuple[int, ...]) -> None:
    for start, end, step in ((0, 7, 1), (3, -9, -2), (0, 0, 1), (2, 3, 5), (-4, 13, 3)):
        assert_everywhere("arange__new", (start, end, step, dtype), 1, shape)
    if dtype != "int64":
        assert_everywhere("arange__new", (0.1, 2.3, 0.3, dtype), 1, shape)


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("dtype", ["int64", "float32", "float64", "float16"])
def test_linspace(dtype: str, shape: tuple[int, ...]) -> None:
    for start, end, steps in ((0.0, 1.0, 7), (-3.3, 8.1, 10), (5, 5, 1), (1, 2, 0), (2, -2, 2)):
        assert_everywhere("linspace__new", (start, end, steps, dtype), 1, shape)


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("dtype", ["int64", "float32", "bool"])
def test_eye(dtype: str, shape: tuple[int, ...]) -> None:
    if dtype == "bool":
        dtorch.manual_seed(0)
    for rows, columns in ((5, 5), (7, 3), (2, 7), (0, 3), (3, 0), (1, 1)):
        want = _C.rows["eye__new"](rows, columns, dtype).to_torch()
        partials = () if dtype == "bool" else ("sum", "max", "product")
        for placements in choices(2, len(shape), partials):
            t = placed("eye__new", shape, placements, rows, columns, dtype)
            sharded.assert_is(t, want, shape, sharded.equal)


# ---- random numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(
    "row, args",
    [
        ("rand__new", (0.0, 1.0, "float32")),
        ("rand__new", (-2.0, 3.0, "float16")),
        ("randn__new", (0.5, 2.0, "float32")),
        ("randn__new", (0.0, 1.0, "float64")),
        ("randint__new", (-5, 100, "int64")),
        ("randint__new", (0, 10, "uint8")),
    ],
)
def test_one_seed_gives_the_same_numbers_everywhere(
    row: str, args: tuple[Any, ...], sizes: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    assert_everywhere(row, (sizes, *args), len(sizes), shape, seed=11)


def test_more_numbers_than_a_run_and_on_many_threads() -> None:
    """Rows longer and shorter than what a kernel draws at once, and work for several parts."""
    for sizes in ((3, 5000), (5000, 3), (700, 300, 2)):
        for row, args in (("rand__new", (0.0, 1.0)), ("randn__new", (0.0, 1.0))):
            dtorch.manual_seed(3)
            want = _C.rows[row](sizes, *args, "float32").to_torch()
            for placements in itertools.product(["R", "S0", "S1"], repeat=2):
                dtorch.manual_seed(3)
                t = placed(row, (2, 3), placements, sizes, *args, "float32")
                sharded.assert_is(t, want, (2, 3), sharded.same_bits)


def test_the_generator_goes_on_as_on_one_device() -> None:
    dtorch.manual_seed(5)
    want = [dtorch.rand(7).to_torch(), dtorch.randn(3, 5).to_torch(), dtorch.rand(2).to_torch()]
    dtorch.manual_seed(5)
    first = placed("rand__new", (2, 2), ("S0", "R"), (7,), 0.0, 1.0, "float32")
    second = placed("randn__new", (3,), ("S1",), (3, 5), 0.0, 1.0, "float32")
    sharded.assert_is(first, want[0], (2, 2), sharded.same_bits)
    sharded.assert_is(second, want[1], (3,), sharded.same_bits)
    assert torch.equal(dtorch.rand(2).to_torch(), want[2])


def test_an_average_of_integers_there_is_not() -> None:
    with pytest.raises(dtorch.PlacementError, match="randint"):
        placed("randint__new", (2,), ("avg",), (3,), 0, 5, "int64")


FUNCTIONS: list[Callable[[Any], Any]] = [
    dtorch.rand_like,
    dtorch.randn_like,
    lambda x: dtorch.nn.functional.dropout(x, 0.4),
    lambda x: dtorch.nn.functional.dropout(x, 1.0),
]


@pytest.mark.parametrize("shape", [(3,), (2, 2)])
@pytest.mark.parametrize("op", FUNCTIONS)
@pytest.mark.usefixtures("simulated")
def test_what_draws_beside_a_tensor(op: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    """rand_like, dropout: one seed gives one result, however the input is placed."""
    init_device_mesh("cuda", shape)
    x = sharded.whole_numbers(5, 7)

    def seeded(t: Any) -> Any:
        dtorch.manual_seed(9)
        return op(t)

    counts = sharded.check(seeded, [x], shape, same=sharded.close, partials=())
    assert len(counts.taken) == 3 ** len(shape)
    if op in FUNCTIONS[2:]:
        counts = sharded.check(seeded, [x], shape, same=sharded.near, partials=("sum", "avg"))
        assert not counts.refused
