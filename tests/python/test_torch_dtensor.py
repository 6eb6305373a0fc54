"""PyTorch's own ideas of what a DTensor does, rewritten for dtorch.

Each test is about what a test of PyTorch's test/distributed/tensor is about, as far as that uses
public API and does not differentiate; docs/dtensor_tests.md says which is which. All ranks of a
mesh are looked at from the one process. Where PyTorch redistributes behind the user's back, dtorch
raises PlacementError, and the test redistributes by hand.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import dtorch  # noqa: E402
from dtorch import Tensor  # noqa: E402
from dtorch.distributed_spec import Partial, Shard, init_device_mesh  # noqa: E402
from torch_dtensor_support import (  # noqa: E402
    S0,
    S1,
    S2,
    WORLD,
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


# --- test_redistribute ---------------------------------------------------------------------------

SIZES = [
    ((12, 3), 0), ((13, 3), 0), ((14, 3), 0), ((3, 12), 1), ((3, 13), 1), ((3, 14), 1),
]  # fmt: skip


@pytest.mark.parametrize(("size", "dim"), SIZES)
def test_shard_to_replicate_and_back(size: tuple[int, ...], dim: int) -> None:
    value = torch.randn(size)
    cut = put(value, line(), Shard(dim))
    whole = cut.redistribute(placements=[R])
    assert whole.placements == [R]
    for k in range(WORLD):
        assert whole.to_local(k).to_torch().equal(value)
    again = whole.redistribute(placements=[Shard(dim)])
    assert again.placements == [Shard(dim)]
    same(again, value, 0)


def test_replicate_to_replicate() -> None:
    value = torch.randn(12, 3)
    t = put(value, line(), R)
    same(t.redistribute(placements=[R]), value, 0)


@pytest.mark.parametrize("op", ["sum", "avg", "min", "max", "product"])
def test_partial_to_partial_is_no_step(op: str) -> None:
    parts = [dtorch.ones(12, 3) for _ in range(WORLD)]
    t = Tensor.from_local(parts, line(), [Partial(op)])
    again = t.redistribute(placements=[Partial(op)])
    assert again.placements == [Partial(op)]
    for k in range(WORLD):
        assert again.to_local(k).to_torch().equal(torch.ones(12, 3))


def test_partial_to_replicate() -> None:
    t = Tensor.from_local([dtorch.ones(12, 3)] * WORLD, line(), [Partial()])
    whole = t.redistribute(placements=[R])
    for k in range(WORLD):
        assert whole.to_local(k).to_torch().equal(torch.full((12, 3), 4.0))


@pytest.mark.parametrize(("size", "dim"), SIZES)
def test_partial_to_shard(size: tuple[int, ...], dim: int) -> None:
    t = Tensor.from_local([dtorch.ones(*size)] * WORLD, line(), [Partial()])
    cut = t.redistribute(placements=[Shard(dim)])
    assert cut.placements == [Shard(dim)]
    same(cut, torch.full(size, 4.0), 0)


def test_replicate_to_partial_counts_once() -> None:
    """PyTorch refuses this to users; dtorch's design says what it means."""
    value = torch.randn(12, 3)
    for mesh in (line(), square()):
        t = put(value, mesh, *[R] * mesh.ndim).redistribute(placements=[Partial()] * mesh.ndim)
        assert t.placements == [Partial()] * mesh.ndim
        same(t, value, 0)
        assert t.to_local(0).to_torch().equal(value)
        assert not t.to_local(1).to_torch().any()


def test_negative_dim() -> None:
    t = put(torch.randn(12, 3), line(), S1)
    moved = t.redistribute(placements=[Shard(-1)])
    assert moved.placements[0].dim == 1


@pytest.mark.parametrize("size", [(10, 5), (9, 5), (3, 5), (1, 3)])
@pytest.mark.parametrize("placements", [(S0, S0), (S0, S1)])
def test_uneven(size: tuple[int, ...], placements: Any) -> None:
    value = torch.randn(size)
    same(put(value, square(), *placements), value, 0)


@pytest.mark.parametrize("size", [(8, 8), (8, 8, 8), (8, 5), (5, 8), (5, 5)])
def test_another_dim_is_cut(size: tuple[int, ...]) -> None:
    value = torch.randn(size)
    for source, target in [((S0,), (S1,)), ((S1,), (S0,))]:
        moved = put(value, line(), *source).redistribute(placements=target)
        assert moved.placements == target
        same(moved, value, 0)
    pairs = [((S0, S1), (S0, S0)), ((S0, S1), (S1, S0)), ((S0, S0), (S1, S1))]
    if len(size) > 2:
        pairs += [((S0, S2), (S1, S0)), ((S1, S1), (S1, S2))]
    for source, target in pairs:
        moved = put(value, square(), *source).redistribute(placements=target)
        assert moved.placements == target
        same(moved, value, 0)


def test_mesh_dim_of_one() -> None:
    mesh = init_device_mesh("cpu", (4, 1))
    value = torch.randn(16, 8)
    for source, target in itertools.product((S1, R, Partial()), (S0, S1, R)):
        start = put(value, mesh, S0, source)
        moved = start.redistribute(placements=[S0, target])
        assert moved.placements == [S0, target]
        same(moved, value, 0)


def test_every_pair_on_more_dims() -> None:
    value = torch.randn(6, 10)
    for mesh in (line(8), init_device_mesh("cpu", (4, 2)), init_device_mesh("cpu", (2, 2, 2))):
        kinds = [R, S0, S1, Partial()]
        lists = list(itertools.product(kinds, repeat=mesh.ndim))
        for source in lists:
            start = put(value, mesh, *source)
            for target in lists[:: 3 if mesh.ndim == 3 else 1]:
                moved = start.redistribute(placements=target)
                assert moved.placements == target
                same(moved, value)


def test_cuts_on_three_mesh_dims() -> None:
    mesh = init_device_mesh("cpu", (2, 2, 2))
    value = torch.randn(8, 8, 8)
    for source, target in [
        ((S0, S0, S0), (S1, S1, S1)), ((S0, S1, S0), (S1, S0, S0)), ((S0, S1, S2), (S2, S1, S0)),
        ((S1, S0, S0), (R, S0, S0)), ((S1, R, S0), (R, S0, S0)), ((S0, S0, S1), (S0, S1, S2)),
    ]:  # fmt: skip
        moved = put(value, mesh, *source).redistribute(placements=target)
        assert moved.placements == target
        same(moved, value, 0)


def test_sums_over_more_mesh_dims() -> None:
    mesh = init_device_mesh("cpu", (2, 2, 2))
    for source in [(Partial(),) * 3, (Partial(), R, Partial()), (Partial(), S0, Partial())]:
        sizes = [4 if p.is_shard() else 8 for p in source if not p.is_partial()] or [8]
        parts = [dtorch.ones(sizes[0], 8)] * 8
        t = Tensor.from_local(parts, mesh, source)
        times = 2 ** sum(p.is_partial() for p in source)
        same(t.redistribute(placements=[R] * 3), torch.full((8, 8), float(times)), 0)


# --- test_pointwise_ops --------------------------------------------------------------------------


def test_partial_add() -> None:
    total = partial() + partial()
    assert total.placements == [Partial()]
    same(total, torch.full((2, 2), 20.0))


@pytest.mark.parametrize("op", ["sum", "avg"])
def test_partial_replicate_add(op: str) -> None:
    x, y = partial(op), put(torch.rand(2, 1), line(), R)
    z = x + y
    assert z.placements == [Partial(op)]
    same(z, x.full_tensor().to_torch() + y.full_tensor().to_torch())


@pytest.mark.parametrize("placement", [S0, S1, R])
@pytest.mark.parametrize("name", ["gelu", "relu", "sigmoid", "silu"])
def test_activations(name: str, placement: Any) -> None:
    value = torch.randn(8, 5)
    t = getattr(F, name)(put(value, line(), placement))
    assert t.placements == [placement]
    same(t, getattr(torch.nn.functional, name)(value))


def test_mul_out() -> None:
    a, b = torch.randn(8, 4), torch.randn(8, 4)
    x, y, out = put(a, line(), S0), put(b, line(), S0), put(torch.zeros(8, 4), line(), S0)
    z = dtorch.mul(x, y, out=out)
    assert z is out
    assert out.placements == [S0]
    same(out, a * b)
    same(x, a)


def test_mul_partial() -> None:
    with pytest.raises(dtorch.PlacementError):
        partial() * partial()
    for op in ("sum", "avg"):
        x = partial(op, shape=(8, 8))
        want = x.full_tensor().to_torch() * 2
        for other in (2.0, dtorch.tensor(2.0), put(torch.full((8, 8), 2.0), line(), R)):
            z = x * other
            assert z.placements == [Partial(op)]
            same(z, want)
    with pytest.raises(dtorch.PlacementError):  # of unknown sign: no order is kept
        partial("max") * put(torch.ones(2, 2), line(), R)


@pytest.mark.parametrize("placement", [S0, S1, R])
def test_masked_fill(placement: Any) -> None:
    value = torch.arange(40.0).view(8, 5)
    mask = value > 20
    t, m = put(value, line(), placement), put(mask, line(), placement)
    t.masked_fill_(m, -999.0)
    assert t.placements == [placement]
    same(t, value.masked_fill(mask, -999.0), 0)


def test_inplace_that_would_change_placements() -> None:
    t = partial(shape=())
    with pytest.raises(dtorch.PlacementError):
        t.clamp_(max=10)
    assert t.item() == 10.0
    assert t.placements == [Partial()]


def test_partial_and_numbers() -> None:
    t = Tensor.from_local([dtorch.tensor([float(k)]) for k in range(WORLD)], line(), [Partial()])
    for z, total, local in [(t * 2, 12.0, 2.0), (t / 2, 3.0, 0.5)]:
        assert z.placements == [Partial()]
        assert [z.to_local(k).item() for k in range(WORLD)] == [local * k for k in range(WORLD)]
        assert z.item() == total


@pytest.mark.parametrize(("name", "op"), [("maximum", "max"), ("minimum", "min")])
def test_maximum_of_partials(name: str, op: str) -> None:
    x, y = partial(op), partial(op, -2.0)
    z = getattr(dtorch, name)(x, y)
    assert z.placements == [Partial(op)]
    same(z, getattr(torch, name)(x.full_tensor().to_torch(), y.full_tensor().to_torch()))


# --- test_math_ops -------------------------------------------------------------------------------

REDUCTIONS = ["all", "any", "sum", "prod", "max", "min", "amax", "amin", "mean"]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    value = torch.randn(12, 8, 7)
    if name in ("all", "any"):
        value = value < 0
    for placement in (S0, S2, R):
        t = put(value, line(), placement)
        for dim, keep in itertools.product(range(3), (True, False)):
            want, got = getattr(value, name)(dim, keep), None
            call = lambda x, dim=dim, keep=keep: getattr(x, name)(dim, keep)  # noqa: E731
            got = legal_after(call, t)
            if name in ("max", "min"):
                want, got = want[0], got[0]
            same(got, want, 1e-4)
        same(legal_after(lambda x: getattr(x, name)(), t), getattr(value, name)(), 1e-4)


@pytest.mark.parametrize(("softmax_dim", "dim"), list(itertools.product((-1, 0, 1, 2), repeat=2)))
def test_softmax(softmax_dim: int, dim: int) -> None:
    value = torch.rand(8, 12, 16)
    t = put(value, line(), Shard(dim))
    want = value.softmax(softmax_dim)
    if softmax_dim % 3 == dim % 3:
        with pytest.raises(dtorch.PlacementError, match="softmax"):
            F.softmax(t, dim=softmax_dim)
        t = t.redistribute(placements=[R])
    out = F.softmax(t, dim=softmax_dim)
    assert out.placements == t.placements
    same(out, want)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
def test_numbers_and_nested_cuts(op: str) -> None:
    value = torch.ones(4, 4)
    for placements in ((S0, S0), (S0, S1)):
        t = getattr(dtorch, op)(put(value, square(), *placements), 2)
        assert t.placements == placements
        same(t, getattr(torch, op)(value, 2), 0)


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("affine", [False, True])
def test_layer_norm(first: int, affine: bool) -> None:
    value = torch.rand(20, 5, 10)
    shape = tuple(value.shape[first:])
    weight, bias = (torch.rand(shape), torch.rand(shape)) if affine else (None, None)
    want = torch.nn.functional.layer_norm(value, shape, weight, bias)
    for dim in range(3):
        t = put(value, line(), Shard(dim))
        w, b = (put(x, line(), R) if x is not None else None for x in (weight, bias))
        if dim >= first:
            with pytest.raises(dtorch.PlacementError):
                F.layer_norm(t, shape, w, b)
            t = t.redistribute(placements=[R])
        out = F.layer_norm(t, shape, w, b)
        assert out.placements == t.placements
        same(out, want)


def test_vector_norm() -> None:
    value = torch.randn(12, 8)
    out = legal_after(lambda x: dtorch.linalg.vector_norm(x, 2), put(value, line(), S0))
    same(out, torch.linalg.vector_norm(value, 2))


def test_vector_norm_of_a_partial() -> None:
    t = Tensor.from_local(
        [dtorch.tensor([float(k), 1.0]) for k in range(WORLD)], line(), [Partial()]
    )
    with pytest.raises(dtorch.PlacementError):
        dtorch.linalg.vector_norm(t, 2)
    out = dtorch.linalg.vector_norm(t.redistribute(placements=[R]), 2)
    same(out, torch.linalg.vector_norm(torch.tensor([6.0, 4.0]), 2))


@pytest.mark.parametrize(("name", "dim"), list(itertools.product(("cumsum", "logsumexp"), (0, 1))))
def test_along_a_cut(name: str, dim: int) -> None:
    value = torch.rand(3, 5)
    t = put(value, line(), S0)
    out = legal_after(lambda x: getattr(dtorch, name)(x, dim=dim), t)
    if dim == 1:
        assert out.placements == [S0]
    same(out, getattr(torch, name)(value, dim=dim))


def test_max_of_a_partial() -> None:
    t = partial("max", shape=(3,))
    assert t.amax(0).placements == [Partial("max")]
    assert t.max().item() == 4.0
    with pytest.raises(dtorch.PlacementError):
        partial("sum", shape=(3,)).amax(0)


def test_std() -> None:
    value = torch.tensor([[-20.0, -18.0, -12.0, 0.0], [-20.0, -18.0, -8.0, 4.0]])
    t = put(value, square(), S0, S1)
    with pytest.raises(dtorch.PlacementError):
        t.std(dim=1)
    out = t.redistribute(placements=[S0, R]).std(dim=1)
    assert out.placements == [S0, R]
    same(out, value.std(dim=1))


# --- test_matrix_ops -----------------------------------------------------------------------------


def test_addmm() -> None:
    a, b = torch.randn(12, 8), torch.randn(8, 4)
    mesh = line()
    for shape, rows, columns in [
        ((4,), R, S0), ((12, 4), S0, S1), ((), R, R), ((1, 4), R, S1), ((12, 1), S0, R),
    ]:  # fmt: skip
        bias = torch.randn(shape)
        want = torch.addmm(bias, a, b)
        out = dtorch.addmm(put(bias, mesh, rows), put(a, mesh, S0), put(b, mesh, R))
        assert out.placements == [S0]
        same(out, want)
        out = dtorch.addmm(put(bias, mesh, columns), put(a, mesh, R), put(b, mesh, S1))
        assert out.placements == [S1]
        same(out, want)
        for bias_at in (Partial(), R):
            out = dtorch.addmm(put(bias, mesh, bias_at), put(a, mesh, S1), put(b, mesh, S0))
            assert out.placements == [Partial()]
            same(out, want)
        out = dtorch.addmm(put(bias, mesh, R), put(a, mesh, R), put(b, mesh, R))
        assert out.placements == [R]
        same(out, want)


def test_addmm_of_nothing() -> None:
    a, b, c = torch.randn(12, 0), torch.randn(0, 4), torch.randn(4)
    out = dtorch.addmm(put(c, line(), R), put(a, line(), S0), put(b, line(), R))
    same(out, torch.addmm(c, a, b), 0)


@pytest.mark.parametrize("placements", list(itertools.product((S0, S1, R), repeat=2)))
def test_mm(placements: Any) -> None:
    a, b = torch.randn(12, 8), torch.randn(8, 16)
    x, y = put(a, line(), placements[0]), put(b, line(), placements[1])
    same(legal_after(dtorch.mm, x, y), a @ b, 1e-4)


def test_mm_with_empty_parts() -> None:
    a, b = torch.arange(12.0).view(3, 4), torch.arange(16.0).view(4, 4)
    out = dtorch.mm(put(a, line(), S0), put(b, line(), R))
    assert out.placements == [S0]
    same(out, a @ b, 0)


def test_mm_of_partials() -> None:
    """Linear in each operand, but not in both at once."""
    a, b = torch.randn(16, 12), torch.randn(12, 20)
    for op in ("sum", "avg"):
        with pytest.raises(dtorch.PlacementError):
            dtorch.mm(put(a, line(), Partial(op)), put(b, line(), Partial(op)))
        x = put(a, square(), Partial(op), R)
        y = put(b, square(), R, Partial(op))
        out = dtorch.mm(x, y)
        assert out.placements == [Partial(op), Partial(op)]
        same(out, a @ b, 1e-4)


@pytest.mark.parametrize("shape", [(2, 2), (4, 1), (1, 4)])
def test_matmul_on_two_mesh_dims(shape: tuple[int, ...]) -> None:
    mesh = init_device_mesh("cpu", shape)
    a, b = torch.randn(16, 12), torch.randn(12, 20)
    out = put(a, mesh, S0, R) @ put(b, mesh, R, S1)
    assert out.placements == [S0, S1]
    same(out, a @ b, 1e-4)


def test_linear() -> None:
    x, w = torch.randn(1, 7, 16), torch.randn(12, 16)
    out = F.linear(put(x, line(), R), put(w, line(), S0))
    assert out.placements == [S2]
    same(out, torch.nn.functional.linear(x, w), 1e-4)


def test_matmul_of_a_whole_and_a_cut() -> None:
    x, a = torch.randn(8, 12), torch.randn(12, 12)
    out = dtorch.matmul(put(x, line(), R), put(a, line(), S0))
    assert out.placements == [Partial()]
    same(out, x @ a, 1e-4)


def test_t() -> None:
    value = torch.randn(12, 8)
    turned = put(value, line(), S0).t()
    assert turned.shape == (8, 12)
    assert turned.placements == [S1]
    assert turned.t().placements == [S0]
    same(turned, value.t(), 0)
    flat = put(value[0].clone(), line(), S0).t()
    assert flat.placements == [S0]
    product = dtorch.mm(put(value, line(), S1), put(value.t().clone(), line(), S0)).t()
    assert product.placements == [Partial()]
    same(product, (value @ value.t()).t(), 1e-4)


@pytest.mark.parametrize("beta", [0.0, 0.8])
def test_baddbmm(beta: float) -> None:
    c, a, b = torch.rand(4, 4, 8), torch.rand(4, 4, 8), torch.rand(4, 8, 8)
    want = torch.baddbmm(c, a, b, beta=beta, alpha=0.5)
    for three in itertools.product((S0, S1, S2, R), repeat=3):
        inputs = [put(x, line(), p) for x, p in zip((c, a, b), three, strict=True)]
        call = lambda x, y, z: dtorch.baddbmm(x, y, z, beta=beta, alpha=0.5)  # noqa: E731
        same(legal_after(call, *inputs), want, 1e-4)


def test_bmm() -> None:
    a, b = torch.rand(4, 8, 4), torch.rand(4, 4, 8)
    for two in itertools.product((S0, S1, S2, R), repeat=2):
        inputs = [put(x, line(), p) for x, p in zip((a, b), two, strict=True)]
        same(legal_after(dtorch.bmm, *inputs), a @ b, 1e-4)


@pytest.mark.parametrize("placement", [R, S0, S1])
def test_attention(placement: Any) -> None:
    q, k, v = (torch.rand(4, 8, 8, 8) for _ in range(3))
    inputs = [put(x, line(), placement) for x in (q, k, v)]
    out = F.scaled_dot_product_attention(*inputs, is_causal=True)
    assert out.placements == [placement]
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    same(out, want, 1e-4)
