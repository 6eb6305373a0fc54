"""Parts put together: from_local, local_map, register_sharding."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import dtorch
import pytest
import torch
from dtorch import _C
from dtorch.distributed_spec import (
    DeviceMesh,
    Partial,
    Replicate,
    Shard,
    init_device_mesh,
    local_map,
    register_sharding,
)

pytestmark = pytest.mark.usefixtures("simulated")

R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial()
from_local = dtorch.Tensor.from_local


@pytest.fixture
def mesh(simulated: None) -> DeviceMesh:
    return init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))


def rows(x: Any) -> list[int]:
    return [x.to_local(i).shape[0] for i in range(x.device_mesh.size())]


# ---- from_local ----------------------------------------------------------------------------------


def test_chunks_are_taken_as_they_are() -> None:
    mesh = init_device_mesh("cuda", 4)
    parts = [dtorch.full((n, 10), k) for k, n in enumerate((2, 2, 1, 0))]
    x = from_local(parts, mesh, [S0])
    assert x.shape == (5, 10) and rows(x) == [2, 2, 1, 0]
    assert x.full_tensor()[:, 0].tolist() == [0, 0, 1, 1, 2]
    parts[1].fill_(7)  # the very bytes
    assert x.full_tensor()[3].tolist() == [7] * 10
    assert [x.to_local(i).data_ptr() for i in range(3)] == [p.data_ptr() for p in parts[:3]]


def test_other_sizes_are_cut_anew() -> None:
    mesh = init_device_mesh("cuda", 4)
    values = torch.arange(20.0).reshape(10, 2)
    for sizes in ((3, 3, 3, 1), (1, 3, 3, 3), (10, 0, 0, 0), (0, 0, 1, 9), (4, 2, 2, 2)):
        x = from_local([dtorch.Tensor(p) for p in values.split(sizes)], mesh, [S0])
        assert x.shape == (10, 2) and rows(x) == [3, 3, 3, 1]
        assert torch.equal(x.full_tensor().to_torch(), values)


def test_widths() -> None:
    mesh = init_device_mesh("cuda", 4)
    x = from_local([dtorch.full((2, n), k) for k, n in enumerate((2, 3, 4, 5))], mesh, [Shard(-1)])
    assert x.shape == (2, 14) and x.placements == [S1]
    assert x.full_tensor()[0].tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3]
    assert [x.to_local(i).shape[1] for i in range(4)] == [4, 4, 4, 2]


@pytest.mark.parametrize("placements", list(itertools.product([R, S0, S1, P], repeat=2)))
def test_round_trip(mesh: DeviceMesh, placements: tuple[Any, Any]) -> None:
    value = torch.randint(-9, 9, (7, 5)).float()
    x = dtorch.Tensor(value, device_mesh=mesh, placements=placements)
    y = from_local([x.to_local(i) for i in range(4)], mesh, placements, shape=(7, 5))
    assert y.placements == x.placements and y.shape == x.shape
    assert torch.equal(y.full_tensor().to_torch(), value)


@pytest.mark.parametrize("placements", [(S0, S0), (S0, S1), (S1, S0), (S0, P), (R, S0)], ids=repr)
def test_recut_on_two_dims(mesh: DeviceMesh, placements: tuple[Any, Any]) -> None:
    """Uneven grids of parts; along the other dims of the mesh they are alike."""
    value = torch.randint(-9, 9, (7, 5)).float()
    sizes = {0: (5, 2), 1: (1, 4)}
    grid = []
    for i, k in itertools.product(range(2), repeat=2):
        part = value
        if placements == (S0, S0):
            part = value.split((2, 1, 3, 1))[2 * i + k]
        else:
            for at, p in ((i, placements[0]), (k, placements[1])):
                if isinstance(p, Shard):
                    part = part.split(sizes[p.dim], p.dim)[at]
                if p == P:
                    part = part * (at == 0)
        grid.append(dtorch.Tensor(part.contiguous()))
    x = from_local(grid, mesh, placements)
    assert torch.equal(x.full_tensor().to_torch(), value)
    layout = dtorch.Tensor(value, device_mesh=mesh, placements=placements)
    for i in range(4):
        assert x.to_local(i).shape == layout.to_local(i).shape
        if P not in placements:
            assert x.to_local(i).tolist() == layout.to_local(i).tolist()


def test_partial_parts_as_given() -> None:
    mesh = init_device_mesh("cuda", 3)
    parts = [dtorch.tensor([v, -v]) for v in (1.0, -20.0, 3.0)]
    for op, value in (("sum", -16), ("avg", -16 / 3), ("min", -20), ("max", 3), ("product", -60)):
        x = from_local(parts, mesh, [Partial(op)])
        assert x.tolist()[0] == pytest.approx(value)


def test_torch_parts_strides_and_the_plain_mesh() -> None:
    mesh = init_device_mesh("cpu", 2)
    value = torch.randn(4, 6)
    x = from_local(list(value.t().chunk(2)), mesh, [S0])
    assert torch.equal(x.full_tensor().to_torch(), value.t())
    assert x.to_local(0).is_contiguous()
    plain = dtorch.ones(3)
    assert from_local([plain]) is plain and from_local([plain], DeviceMesh("cpu"), [S0]) is plain
    with mesh:
        assert from_local([dtorch.ones(2, device_mesh=DeviceMesh("cpu"))] * 2).device_mesh == mesh


@pytest.mark.parametrize(
    ("shapes", "placements", "text"),
    [
        ([(2, 2)] * 3, [S0, R], "4 devices, got 3"),
        ([(2, 2), (2, 2), (2, 2), (2,)], [S0, R], "part 3 has 1 dim"),
        ([(2, 2), (2, 2), (2, 3), (2, 2)], [S0, R], "do not fit together"),
        ([(2, 2), (1, 2), (2, 2), (2, 2)], [R, R], "do not fit together"),
        ([(2, 2), (1, 2), (2, 2), (2, 2)], [S1, P], "do not fit together"),
        ([(2, 2)] * 4, [Shard(2), R], "2 dimensions"),
        ([(2, 2)] * 4, [S0], "2 dims"),
    ],
)
def test_bad_parts(mesh: DeviceMesh, shapes: Any, placements: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        from_local([dtorch.zeros(s) for s in shapes], mesh, placements)


def test_bad_arguments(mesh: DeviceMesh) -> None:
    parts = [dtorch.zeros(2)] * 4
    with pytest.raises(ValueError, match=r"make up shape \(8,\), not \(9,\)"):
        from_local(parts, mesh, [S0, S0], shape=(9,))
    with pytest.raises(ValueError, match="dtype"):
        from_local([*parts[:3], dtorch.zeros(2, dtype=torch.int64)], mesh)
    with pytest.raises(ValueError, match="on a mesh itself"):
        from_local([dtorch.zeros(2, device_mesh=mesh)] * 4, mesh)
    with pytest.raises(ValueError, match="floating-point"):
        from_local([dtorch.zeros(2, dtype=torch.int64)] * 4, mesh, [Partial("avg"), R])
    for bad in (dtorch.zeros(4), 3, [1, 2, 3, 4]):
        with pytest.raises(TypeError):
            from_local(bad, mesh)
    with pytest.raises(TypeError, match="DeviceMesh"):
        from_local(parts, "cuda")


# ---- local_map -----------------------------------------------------------------------------------


def test_local_map(mesh: DeviceMesh) -> None:
    value = torch.arange(20.0).reshape(5, 4)
    x = dtorch.Tensor(value, device_mesh=mesh, placements=[S0, R])
    seen = []

    def sums(t: Any, factor: int = 1) -> Any:
        assert _C.dist_spec(t) is None and dtorch.zeros(1).device_mesh == DeviceMesh("cpu")
        seen.append((tuple(t.shape), dtorch.cuda.current_device()))
        return t.sum(0, keepdim=True) * factor

    y = local_map(sums, [S0, R])(x, factor=2)
    assert seen == [((3, 4), 0), ((3, 4), 1), ((2, 4), 2), ((2, 4), 3)]
    assert dtorch.cuda.current_device() == 0
    assert y.shape == (2, 4) and y.placements == [S0, R]
    assert y.tolist() == [(value[:3].sum(0) * 2).tolist(), (value[3:].sum(0) * 2).tolist()]
    part = local_map(lambda t: t.sum(0), [P, R])(x)
    assert part.placements == [P, R] and part.tolist() == value.sum(0).tolist()
    assert sums.__name__ == local_map(sums, None).__name__


def test_local_map_of_several(mesh: DeviceMesh) -> None:
    x = dtorch.ones(4, device_mesh=mesh, placements=[S0, S0])

    def several(pair: Any, named: Any) -> Any:
        a, b = pair
        return a + b, [named["w"] * 2], 5

    found = local_map(several, ([S0, S0], ([R, R],), None))(
        (x, x + 1), {"w": dtorch.ones(3, device_mesh=mesh)}
    )
    assert found[0].tolist() == [3.0] * 4 and found[1][0].tolist() == [2.0] * 3 and found[2] == 5


def test_local_map_checks(mesh: DeviceMesh) -> None:
    x = dtorch.ones(4, device_mesh=mesh, placements=[S0, R])
    same = local_map(lambda t: t, [S0, R], in_placements=([S0, R],))
    assert same(x).placements == [S0, R]
    whole = dtorch.ones(4, device_mesh=mesh)
    with pytest.raises(dtorch.PlacementError, match="in_placements says"):
        same(whole)
    moved = local_map(lambda t: t, [S0, R], in_placements=([S0, R],), redistribute_inputs=True)
    assert moved(whole).tolist() == [1.0] * 4
    with pytest.raises(ValueError, match="2 entries for 1"):
        local_map(lambda t: t, [S0, R], in_placements=(None, None))(x)
    with pytest.raises(ValueError, match="must not be None"):
        local_map(lambda t: t, None)(x)
    with pytest.raises(ValueError, match="no Tensor"):
        local_map(lambda t: 3, [S0, R])(x)
    with pytest.raises(ValueError, match="2 results"):
        local_map(lambda t: (t, t), [S0, R])(x)
    other = dtorch.ones(4, device_mesh=init_device_mesh("cuda", 4))
    with pytest.raises(dtorch.PlacementError, match="different meshes"):
        local_map(lambda a, b: a, [S0, R])(x, other)
    assert local_map(lambda t: t + 1, [S0, R])(dtorch.ones(2)).tolist() == [2.0, 2.0]

    def fails(t: Any) -> Any:
        raise KeyError("own")

    with dtorch.cuda.device(3):
        with pytest.raises(KeyError, match="own"):
            local_map(fails, [S0, R])(x)
        assert dtorch.cuda.current_device() == 3


# ---- register_sharding ---------------------------------------------------------------------------


def _scaled_softmax(x: Any, scale: Any = 1.0) -> Any:
    return (x * scale).softmax(-1)


@register_sharding(_scaled_softmax)
def scaled_softmax(x: Any, scale: Any = 1.0) -> Any:
    return [([Shard(d)], [Shard(d), None]) for d in range(x.ndim - 1)]


def _two(x: Any, y: Any) -> Any:
    return x + y, x * 2


@register_sharding(_two)
def two(x: Any, y: Any) -> Any:
    return [([S0, S0], [S0, S0]), ([P, P], [P, P])]


def test_a_registered_op(mesh: DeviceMesh) -> None:
    value = torch.randn(5, 3, 4)
    expected = (value * 0.5).softmax(-1)
    for placements in ([S0, R], [S0, S1], [S1, S0], [R, R], [S0, S0], [R, Shard(-2)]):
        x = dtorch.Tensor(value, device_mesh=mesh, placements=placements)
        y = scaled_softmax(x, scale=0.5)
        assert y.placements == x.placements
        assert torch.allclose(y.full_tensor().to_torch(), expected)
    assert torch.allclose(scaled_softmax(dtorch.Tensor(value), 0.5).to_torch(), expected)


def test_illegal_and_implicit(mesh: DeviceMesh) -> None:
    value = torch.randn(5, 3, 4)
    for placements in ([Shard(2), R], [S0, P]):
        x = dtorch.Tensor(value, device_mesh=mesh, placements=placements)
        with pytest.raises(dtorch.PlacementError, match=r"_scaled_softmax.*\[5, 3, 4\].*S1"):
            scaled_softmax(x)
        with dtorch.implicit_redistribute() as inserted:
            y = scaled_softmax(x)
        assert inserted.count == 1
        assert torch.allclose(y.full_tensor().to_torch(), value.softmax(-1), atol=1e-6)


def test_inputs_are_cut_as_needed(mesh: DeviceMesh) -> None:
    value = torch.randint(-9, 9, (5, 3)).float()
    x = dtorch.Tensor(value, device_mesh=mesh, placements=[S0, R])
    w = dtorch.Tensor(value + 1, device_mesh=mesh)
    added, doubled = two(x, w)
    assert added.placements == doubled.placements == [S0, R]
    assert added.tolist() == (value + value + 1).tolist()
    p = dtorch.Tensor(value, device_mesh=mesh, placements=[S0, P])
    added, doubled = two(p, w)
    assert added.placements == [S0, P] and added.tolist() == (value + value + 1).tolist()
    assert doubled.tolist() == (value * 2).tolist()
    with pytest.raises(dtorch.PlacementError, match="CPU alone"):
        two(x, dtorch.Tensor(value))
    other = dtorch.ones(5, 3, device_mesh=init_device_mesh("cuda", 4))
    with pytest.raises(dtorch.PlacementError, match="different meshes"):
        two(x, other)


def test_wrong_rules(mesh: DeviceMesh) -> None:
    x = dtorch.ones(5, 3, device_mesh=mesh, placements=[S0, R])

    def op(rule: Any, fn: Callable[[Any], Any] = lambda t: t) -> Any:
        return register_sharding(fn)(lambda t: rule)

    for rule, text in (
        ([[S0]], "pairs"),
        ([([S0], [S0, S0])], "2 inputs"),
        ([([], [S0])], "0 outputs"),
        ([(["S0"], [S0])], "placements"),
    ):
        with pytest.raises(ValueError, match=text):
            op(rule)(x)
    grown = op([([S0], [S0])], lambda t: t.reshape(-1))
    with pytest.raises(dtorch.PlacementError, match="where the layout says"):
        grown(dtorch.ones(6, 3, device_mesh=init_device_mesh("cuda", 4), placements=[S0]))
