"""PyTorch's own ideas of what a DTensor does, continued: views, other ops, embedding, creation,
random numbers; see test_torch_dtensor.py."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import dtorch  # noqa: E402
from dtorch.distributed_spec import DeviceMesh, Partial, Shard, init_device_mesh  # noqa: E402
from torch_dtensor_support import (  # noqa: E402
    S0,
    S1,
    S2,
    F,
    R,
    legal_after,
    line,
    partial,
    put,
    same,
    square,
)

pytestmark = pytest.mark.usefixtures("simulated")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


# --- test_view_ops -------------------------------------------------------------------------------

VIEWS: list[tuple[str, Callable[[Any], Any], tuple[int, ...]]] = [
    ("broadcast_to", lambda t: t.broadcast_to((3, 6, 4)), (6, 4)),
    ("broadcast_to 1", lambda t: t.broadcast_to((3, 6, 6, 4)), (6, 1, 4)),
    ("expand", lambda t: t.expand(3, 6, 5, -1, 6), (6, 1, 4, 1)),
    ("flatten", lambda t: t.flatten(), (6, 4)),
    ("flatten 1", lambda t: t.flatten(), (6,)),
    ("movedim", lambda t: t.movedim(1, 2), (3, 6, 4, 5)),
    ("movedim to front", lambda t: t.movedim((1, 2), (0, 1)), (6, 4, 3)),
    ("permute", lambda t: t.permute(2, 0, 1), (6, 4, 3)),
    ("permute from the end", lambda t: t.permute(-1, -3, -2), (6, 4, 3)),
    ("reshape", lambda t: t.reshape(24, 3), (6, 4, 3)),
    ("transpose", lambda t: t.transpose(2, 0), (6, 4, 3, 5)),
    ("transpose from the end", lambda t: t.transpose(-1, 0), (6, 4, 3, 5)),
    ("unsqueeze", lambda t: t.unsqueeze(1), (6, 4, 3)),
    ("view", lambda t: t.view(24, 3), (6, 4, 3)),
    ("view ones", lambda t: t.view(-1), (1, 1, 12)),
    ("view ones and more", lambda t: t.view(-1), (1, 1, 6, 1, 4, 1)),
    ("view split", lambda t: t.view(6, 2, 4, 3), (12, 4, 3)),
    ("unflatten", lambda t: t.unflatten(0, (2, 6)), (12, 4)),
    ("squeeze", lambda t: t.squeeze(), (6, 1, 4)),
]


@pytest.mark.parametrize(("name", "op", "shape"), VIEWS, ids=[v[0] for v in VIEWS])
def test_views(name: str, op: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    value = torch.randn(shape)
    want = op(value)
    local = 0
    for mesh in (line(2), init_device_mesh("cpu", (1, 2))):
        kinds = [R, *(Shard(d) for d, n in enumerate(shape) if n > 1)]
        for placements in itertools.product(kinds, repeat=mesh.ndim):
            t = put(value, mesh, *placements)
            try:
                out = op(t)
            except dtorch.PlacementError:
                out = op(t.redistribute(placements=[R] * mesh.ndim))
            else:
                local += any(p.is_shard() for p in placements)
            same(out, want, 0)
    assert local > 0


@pytest.mark.parametrize("size", [1, 3])
def test_uneven_views_share_bytes(size: int) -> None:
    value = torch.randn(size, 2, 2, 2)
    t = put(value, line(2), S0)
    for shape in [(size, 2, 4), (size, 4, 2), (size, 8), (size, 2, 2, 2)]:
        view = t.view(shape)
        assert view.placements == [S0]
        same(view, value.view(shape), 0)
        for k in range(2):
            if t.to_local(k).numel() > 0:
                assert view.to_local(k).data_ptr() == t.to_local(k).data_ptr()


def test_view_across_a_cut() -> None:
    """PyTorch redistributes to a copy here; dtorch takes what is local, else says so."""
    value = torch.randn(4, 4)
    t = put(value, line(2), S0)
    same(legal_after(lambda x: x.view(-1, 8), t), value.view(-1, 8), 0)
    with pytest.raises(dtorch.PlacementError):
        put(torch.randn(3, 4), line(2), S0).view(2, 6)


# --- test_tensor_ops -----------------------------------------------------------------------------


def test_detach_and_clone() -> None:
    value = torch.randn(12, 8)
    for placement in (R, S0):
        t = put(value, line(), placement)
        assert t.detach() is not t
        copy = t.clone()
        assert copy is not t
        assert copy.placements == [placement]
        t.zero_()
        same(copy, value, 0)


def test_copy_() -> None:
    source = torch.randn(12, 12)
    for placement in (R, S0):
        t = put(torch.zeros(12, 12), line(), placement)
        t.copy_(put(source, line(), placement))
        same(t, source, 0)
    row = torch.randn(128)
    for at, target_at in ((R, R), (S0, S1)):
        t = put(torch.zeros(16, 128), line(), target_at)
        t.copy_(put(row, line(), at))
        assert t.placements == [target_at]
        same(t, row.expand(16, 128), 0)
    for op in ("sum", "avg", "min", "max"):
        x = partial(op, shape=(6, 1))
        t = put(torch.zeros(2, 6, 8), line(), Partial(op))
        t.copy_(x)
        assert t.placements == [Partial(op)]
        same(t, x.full_tensor().to_torch().expand(2, 6, 8))


def test_contiguous() -> None:
    value = torch.rand(12, 5, 6)
    t = put(value, line(), S0)
    assert t.is_contiguous()
    assert t.stride() == value.stride()
    turned = t.transpose(0, 2)
    assert turned.placements == [S2]
    assert not turned.is_contiguous()
    assert not turned.to_local().is_contiguous()
    assert turned.stride() == value.transpose(0, 2).stride()
    dense = turned.contiguous()
    assert dense.is_contiguous()
    assert dense.to_local().is_contiguous()
    same(dense, value.transpose(0, 2), 0)


def test_inplace() -> None:
    value = torch.randn(12, 3)
    t = put(value, line(), S0)
    assert t.add_(3) is t
    same(t, value + 3)
    assert t.mul_(3) is t
    same(t, (value + 3) * 3)
    with pytest.raises(dtorch.PlacementError):
        t.add_(put(value, line(), Partial()))
    assert t.placements == [S0]
    same(t, (value + 3) * 3)


def test_out() -> None:
    value = torch.randn(12, 3)
    t, out = put(value, line(), S0), put(torch.zeros(12, 3), line(), S0)
    assert dtorch.add(t, 3, out=out) is out
    same(out, value + 3)
    whole = put(torch.zeros(12, 3), line(), R)
    with pytest.raises(dtorch.PlacementError):
        dtorch.add(t, 3, out=whole)
    assert whole.placements == [R]
    same(whole, torch.zeros(12, 3), 0)


@pytest.mark.parametrize("placement", [S0, S1, R, Partial()])
def test_likes(placement: Any) -> None:
    t = put(torch.randn(6, 8), line(), placement)
    assert dtorch.empty_like(t).placements == [placement]
    for made, want in [
        (dtorch.full_like(t, 42.0), torch.full((6, 8), 42.0)),
        (dtorch.ones_like(t), torch.ones(6, 8)),
        (dtorch.zeros_like(t), torch.zeros(6, 8)),
        (dtorch.zeros_like(t, dtype=torch.bfloat16), torch.zeros(6, 8, dtype=torch.bfloat16)),
    ]:
        assert made.placements == [placement]
        same(made, want, 0)
    assert t.dtype == torch.float32


@pytest.mark.parametrize("placement", [S0, R, Partial()])
def test_fill(placement: Any) -> None:
    """PyTorch fills each part of a Partial; here the value is what was written."""
    t = put(torch.randn(4, 8), line(), placement)
    t.fill_(42.0)
    assert t.placements == [placement]
    same(t, torch.full((4, 8), 42.0), 0)
    t.zero_()
    same(t, torch.zeros(4, 8), 0)


def test_stack() -> None:
    x = put(torch.randn(4, 8), square(), Partial(), R)
    y = put(torch.randn(4, 8), square(), Partial(), Partial())
    out = dtorch.stack([x, y])
    assert out.placements == [Partial(), Partial()]
    assert out.shape == (2, 4, 8)
    value = torch.randn(8, 8)
    t = put(value, line(), S1)
    for dim, shape in ((0, (2, 8, 8)), (1, (8, 2, 8))):
        out = dtorch.stack([t, t.clone()], dim)
        assert out.placements == [S2]
        assert out.shape == shape
        same(out, torch.stack([value, value], dim), 0)


def test_equal() -> None:
    x = put(torch.ones(8, 4), line(), S0)
    assert (x == put(torch.ones(8, 4), line(), S0)).all().item()
    other = torch.ones(8, 4)
    other[7, 3] = 2
    assert not (x == put(other, line(), S0)).all().item()
    assert (x == put(torch.ones(8, 4), line(), R)).all().item()


def test_new_full() -> None:
    for placement in (S0, R):
        t = put(torch.randn(12, 8), line(), placement)
        made = t.new_full((4, 8), 42.0)
        assert made.device_mesh == t.device_mesh
        assert made.placements == [R]
        same(made, torch.full((4, 8), 42.0), 0)


def test_gather() -> None:
    value, index = torch.randn(12, 8, 16), torch.randint(8, (4, 4, 8))
    for dim in range(3):
        want = torch.gather(value, dim, index)
        out = dtorch.gather(put(value, line(), R), dim, put(index, line(), R))
        assert out.placements == [R]
        same(out, want, 0)
        out = dtorch.gather(put(value, line(), R), dim, put(index, line(), Shard(dim)))
        assert out.placements == [Shard(dim)]
        same(out, want, 0)
    one = torch.randint(8, (4, 1, 8))
    out = legal_after(
        lambda x, y: dtorch.gather(x, 1, y), put(value, line(), S1), put(one, line(), R)
    )
    same(out, torch.gather(value, 1, one), 0)


def test_index_select() -> None:
    value, index = torch.randn(16, 12, 8), torch.randint(5, (4,))
    for dim, placement in itertools.product((0, 1), (R, S0, S1, S2)):
        call = lambda x, i, dim=dim: x.index_select(dim, i)  # noqa: E731
        out = legal_after(call, put(value, line(), placement), put(index, line(), R))
        same(out, value.index_select(dim, index), 0)


def test_index() -> None:
    value, index = torch.randn(16, 12, 8), torch.randint(5, (6,))
    for placement in (R, S1, S2):
        out = legal_after(lambda x, i: x[i], put(value, line(), placement), put(index, line(), R))
        same(out, value[index], 0)


@pytest.mark.parametrize("placement", [S0, R])
def test_where_promotion(placement: Any) -> None:
    value = torch.randn(12, 8)
    out = dtorch.where(put(value, line(), placement) > 0, 1, 0)
    assert out.placements == [placement]
    same(out, torch.where(value > 0, 1, 0))


def test_dtypes() -> None:
    value = torch.randn(8, 8, dtype=torch.bfloat16)
    t = put(value, line(), S0)
    assert t.dtype == t.to_local().dtype == torch.bfloat16
    wide = t.float()
    assert wide.dtype == wide.to_local().dtype == torch.float32
    assert wide.placements == [S0]
    same(wide.to(torch.bfloat16), value, 0)


def test_slice() -> None:
    value = torch.randn(8, 16)
    t = put(value, line(), S1)
    with pytest.raises(dtorch.PlacementError):
        t[:, 8:]
    same(t.redistribute(placements=[R])[:, 8:], value[:, 8:], 0)
    for index in (slice(0, 16), slice(0, 32)):
        out = t[:, index]
        assert out.placements == [S1]
        same(out, value[:, index], 0)
    same(t[2:4], value[2:4], 0)


@pytest.mark.parametrize("op", ["sum", "avg", "product", "min", "max"])
def test_split_of_a_partial(op: str) -> None:
    x = partial(op, shape=(8, 8))
    whole = x.full_tensor().to_torch()
    for size, dim in itertools.product((2, 3, 4), (0, 1)):
        for mine, want in zip(x.split(size, dim), whole.split(size, dim), strict=True):
            assert mine.placements == [Partial(op)]
            same(mine, want)


@pytest.mark.parametrize(("cut", "dim"), list(itertools.product((0, 1), repeat=2)))
def test_unbind(cut: int, dim: int) -> None:
    value = torch.randn(4, 8)
    t = put(value, line(), Shard(cut))
    if cut == dim:
        with pytest.raises(dtorch.PlacementError):
            t.unbind(dim)
        return
    for mine, want in zip(t.unbind(dim), value.unbind(dim), strict=True):
        assert mine.placements == [S0]
        same(mine, want, 0)


def test_argmax() -> None:
    value = torch.randint(-20, 20, (8, 8))
    for placements in ((Partial(), S1), (Partial(), S0), (S0, S1), (R, S0), (R, S1)):
        t = put(value, square(), *placements)
        for name in ("argmax", "argmin"):
            call = lambda x, name=name: getattr(dtorch, name)(x, dim=1)  # noqa: E731
            out = legal_after(call, t).full_tensor().to_torch()
            found = value.gather(1, out.unsqueeze(1)).squeeze(1)
            assert found.equal(getattr(value, name.replace("arg", "a"))(1))


# --- test_embedding_ops --------------------------------------------------------------------------

TABLES = [((5, 4), 17, 12), ((6, 7, 6), 21, 11), ((4,), 15, 14), ((34,), 13, 22)]


@pytest.mark.parametrize(("shape", "rows", "columns"), TABLES)
def test_embedding(shape: tuple[int, ...], rows: int, columns: int) -> None:
    weight, index = torch.randn(rows, columns), torch.randint(0, rows, shape)
    want = torch.nn.functional.embedding(index, weight)
    by_column = F.embedding(put(index, line(), R), put(weight, line(), S1))
    assert by_column.placements == [Shard(len(shape))]
    same(by_column, want, 0)
    by_row = F.embedding(put(index, line(), R), put(weight, line(), S0))
    assert by_row.placements == [Partial()]
    same(by_row, want)


# --- test_init -----------------------------------------------------------------------------------

MAKE = [
    (dtorch.ones, torch.ones, ()),
    (dtorch.zeros, torch.zeros, ()),
    (dtorch.full, torch.full, (123.4,)),
]


@pytest.mark.parametrize(("mine", "theirs", "args"), MAKE, ids=["ones", "zeros", "full"])
@pytest.mark.parametrize("placement", [S0, S1, S2, R])
@pytest.mark.parametrize("size", [(4, 8, 12), (5, 10, 15)])
def test_creation(mine: Any, theirs: Any, args: Any, placement: Any, size: Any) -> None:
    t = mine(size, *args, device_mesh=line(), placements=[placement])
    same(t, theirs(size, *args), 0)
    empty = dtorch.empty(size, device_mesh=line(), placements=[placement])
    assert [empty.to_local(k).shape for k in range(4)] == [t.to_local(k).shape for k in range(4)]
    same(mine((), *args, device_mesh=line(), placements=[R]), theirs((), *args), 0)


def test_zeros_on_meshes() -> None:
    whole = dtorch.zeros(31, 3, device_mesh=square(), placements=[S0, S1])
    shapes = [tuple(whole.to_local(k).shape) for k in range(4)]
    assert shapes == [(16, 2), (16, 1), (15, 2), (15, 1)]
    for ids, sizes in [([0, 3], [16, 16]), ([0, 1, 3], [11, 11, 10])]:
        mesh = DeviceMesh("cpu", ids)
        t = dtorch.zeros(32, 3, device_mesh=mesh, placements=[S0])
        assert [t.to_local(k).shape[0] for k in range(len(ids))] == sizes
        assert t.device.type == "cpu"
        same(t, torch.zeros(32, 3), 0)
    t = dtorch.zeros(32, 3, device_mesh=DeviceMesh("cpu", [[0], [3]]), placements=[S0, S1])
    assert [tuple(t.to_local(k).shape) for k in range(2)] == [(16, 3), (16, 3)]


# --- test_random_ops -----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [dtorch.rand, dtorch.randn], ids=["rand", "randn"])
@pytest.mark.parametrize("placements", list(itertools.product((R, S0, S1), repeat=2)))
def test_random_is_the_same_however_it_lies(make: Any, placements: Any) -> None:
    dtorch.manual_seed(7)
    single = [make(4, 9), make(4, 9)]
    dtorch.manual_seed(7)
    meshed = [make(4, 9, device_mesh=square(), placements=placements) for _ in range(2)]
    for one, two in zip(single, meshed, strict=True):
        assert two.placements == placements
        same(two, one.to_torch(), 0)
    assert not single[0].to_torch().equal(single[1].to_torch())


def test_random_parts_differ() -> None:
    t = dtorch.rand(4, 16, device_mesh=line(), placements=[S1])
    parts = [t.to_local(k).to_torch() for k in range(4)]
    assert all(not a.equal(b) for a, b in itertools.combinations(parts, 2))
