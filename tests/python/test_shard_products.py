"""Products, attention and normalisation on meshes: what is taken without communication, and that
every part is the part of the single-device result.

Truth is the layout of torch.chunk and the result on one device; test_ops_torch.py compares that
with torch. Inputs are whole numbers, so that sums are exact in any order.
"""

from __future__ import annotations

from typing import Any

import dtorch
import pytest
import sharded
import torch
from dtorch import _C
from sharded import check, on_mesh, whole_numbers

F = dtorch.nn.functional
MESHES = [(2,), (3,), (2, 2)]
SUMS = ("sum", "avg", "max")


def one_mesh_dim(counts: sharded.Counts) -> set[tuple[Any, ...]]:
    """What was taken on a mesh of one dim: (placement of each input ..., of the result)."""
    return {(*(p[0] for p in placements), out[0]) for placements, out in counts.taken.items()}


# ---- which placements are taken ------------------------------------------------------------------


def test_what_a_product_of_matrices_takes() -> None:
    counts = check(dtorch.mm, [whole_numbers(5, 7), whole_numbers(7, 3)], (2,))
    assert one_mesh_dim(counts) == {
        ("R", "R", "R"),
        ("S0", "R", "S0"),
        ("R", "S1", "S1"),
        ("S1", "S0", "sum"),
        ("R", "S0", "sum"),  # Replicate is cut as needed
        ("S1", "R", "sum"),
        ("sum", "R", "sum"),
        ("R", "sum", "sum"),
        ("avg", "R", "avg"),
        ("R", "avg", "avg"),
    }


def test_what_a_linear_layer_takes() -> None:
    operands = [whole_numbers(2, 5, 7), whole_numbers(4, 7), whole_numbers(4)]
    taken = one_mesh_dim(check(F.linear, operands, (2,), partials=("sum", "max")))
    assert {
        ("S0", "R", "R", "S0"),
        ("S1", "R", "R", "S1"),
        ("R", "S0", "S0", "S2"),  # by columns
        ("S2", "S1", "R", "sum"),  # by rows: the bias counts once
        ("S2", "S1", "sum", "sum"),
        ("sum", "R", "R", "sum"),
        ("R", "sum", "sum", "sum"),
        ("R", "R", "sum", "sum"),
    } <= taken
    assert not any("max" in combination for combination in taken)
    assert not any(c[0] == "sum" and c[1] == "sum" for c in taken)


def test_what_addmm_takes() -> None:
    operands = [whole_numbers(3), whole_numbers(5, 7), whole_numbers(7, 3)]

    def op(bias: Any, a: Any, b: Any) -> Any:
        return dtorch.addmm(bias, a, b, beta=2, alpha=-3)

    taken = one_mesh_dim(check(op, operands, (3,), partials=("sum", "avg")))
    assert {
        ("R", "S0", "R", "S0"),
        ("S0", "R", "S1", "S1"),
        ("R", "S1", "S0", "sum"),
        ("sum", "S1", "S0", "sum"),
        ("sum", "R", "R", "sum"),
        ("avg", "R", "avg", "avg"),
        ("R", "avg", "R", "avg"),
    } <= taken


def test_infinite_factors_stay_whole() -> None:
    bias, a, b = whole_numbers(3), whole_numbers(5, 7), whole_numbers(7, 3)
    inputs = [on_mesh(t, ["R"], (2,)) for t in (bias, b)]
    cut = on_mesh(a, ["S1"], (2,))
    with pytest.raises(dtorch.PlacementError, match="addmm"):
        dtorch.addmm(inputs[0], cut, inputs[1], beta=float("inf"))


# ---- every combination against one device --------------------------------------------------------

MATMULS = [
    ((5,), (5,)),
    ((0,), (0,)),
    ((3, 5), (5,)),
    ((5,), (5, 3)),
    ((3, 5), (5, 2)),
    ((1, 7), (7, 1)),
    ((5, 0), (0, 3)),
    ((0, 3), (3, 5)),
    ((2, 3, 5), (5, 3)),
    ((2, 3, 5), (2, 5, 3)),
    ((5, 1, 2, 3), (3, 3, 2)),
    ((3, 2), (2, 1, 2, 3)),
    ((1, 2, 3), (5, 3, 2)),
    ((2, 1, 5), (5,)),
]


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("a, b", MATMULS)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], shape: tuple[int, ...]) -> None:
    operands = [whole_numbers(*a), whole_numbers(*b, seed=2)]
    counts = check(dtorch.matmul, operands, shape, partials=SUMS, most=400)
    assert counts.taken


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.uint8])
def test_matmul_of_other_types(dtype: torch.dtype) -> None:
    a, b = whole_numbers(3, 5, dtype=dtype), whole_numbers(5, 2, dtype=dtype, seed=2)
    same = sharded.coarse if dtype == torch.bfloat16 else sharded.equal
    check(dtorch.matmul, [a, b], (3,), same=same, partials=("sum",))


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("sizes", [(2, 3, 5, 3), (1, 1, 1, 1), (3, 5, 0, 2), (0, 2, 3, 2)])
def test_batched_products_with_a_bias(sizes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    batch, m, k, n = sizes
    a, b = whole_numbers(batch, m, k), whole_numbers(batch, k, n, seed=2)
    check(dtorch.bmm, [a, b], shape, partials=SUMS, most=200)
    for bias in ((batch, m, n), (1, 1, n), (m, 1)):
        operands = [whole_numbers(*bias, seed=3), a, b]

        def op(bias: Any, a: Any, b: Any) -> Any:
            return dtorch.baddbmm(bias, a, b, beta=-2, alpha=3)

        check(op, operands, shape, partials=("sum", "avg"), most=200)


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("bias", [(3, 5), (5,), (3, 1), (1, 1)])
def test_addmm(bias: tuple[int, ...], shape: tuple[int, ...]) -> None:
    operands = [whole_numbers(*bias), whole_numbers(3, 7), whole_numbers(7, 5)]
    check(dtorch.addmm, operands, shape, partials=("sum", "avg"), most=300)
    check(lambda b, x, y: dtorch.addmm(b, x, y, beta=0), operands, shape, most=100)


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("x", [(7,), (5, 7), (2, 3, 7), (0, 7), (2, 0)])
def test_linear(x: tuple[int, ...], shape: tuple[int, ...]) -> None:
    k = x[-1]
    operands = [whole_numbers(*x), whole_numbers(5, k, seed=2), whole_numbers(5, seed=3)]
    check(F.linear, operands, shape, partials=("sum", "avg"), most=300)
    check(F.linear, operands[:2], shape, partials=SUMS, most=200)
    if len(x) > 1:
        check(F.linear, [operands[0], whole_numbers(k)], shape, partials=SUMS, most=100)


def test_vectors() -> None:
    check(dtorch.mv, [whole_numbers(5, 3), whole_numbers(3)], (2, 2), most=300)
    check(dtorch.dot, [whole_numbers(5), whole_numbers(5, seed=2)], (2, 2))


# ---- bits ----------------------------------------------------------------------------------------


def random_numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5)).to(dtype)


# Few rows, many rows, high and narrow, with columns that lie apart: each takes another kernel.
@pytest.mark.parametrize(
    "sizes", [(13, 70, 40), (4, 90, 40), (40, 90, 4), (4, 70, 13), (30, 300, 1), (1, 65, 9)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_a_part_of_a_product_has_the_bits_of_the_whole(
    sizes: tuple[int, ...], dtype: torch.dtype
) -> None:
    m, k, n = sizes
    a, b = random_numbers(m, k, dtype=dtype), random_numbers(k, n, dtype=dtype)
    for shape, placements in (
        ((4,), [("S0", "R"), ("R", "S1")]),  # a last part of 13 columns is one: it lies along k
        ((5,), [("S0", "R"), ("R", "S1")]),
        ((2, 2), [("S0", "R"), ("R", "S1")]),
    ):
        for pa, pb in placements:
            da = on_mesh(a, [pa] * len(shape), shape)
            db = on_mesh(b, [pb] * len(shape), shape)
            want = dtorch.tensor(a) @ dtorch.tensor(b)
            sharded.assert_is(da @ db, want.to_torch(), shape, sharded.same_bits)
            transposed = "S0" if pb == "S1" else pb
            w = b.t().contiguous()
            dw = on_mesh(w, [transposed] * len(shape), shape)
            want = F.linear(dtorch.tensor(a), dtorch.tensor(w))
            sharded.assert_is(F.linear(da, dw), want.to_torch(), shape, sharded.same_bits)


# ---- softmax, normalisation, attention -----------------------------------------------------------


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("op", [dtorch.softmax, dtorch.log_softmax])
@pytest.mark.parametrize(
    "sizes, dim", [((5, 3, 7), 1), ((2, 5), -1), ((3, 0), 0), ((7,), 0), ((), 0)]
)
def test_softmax(op: Any, sizes: tuple[int, ...], dim: int, shape: tuple[int, ...]) -> None:
    x = random_numbers(*sizes)
    counts = check(lambda t: op(t, dim), [x], shape, same=sharded.same_bits)
    dim = dim % max(1, len(sizes))
    free = [f"S{d}" for d in range(len(sizes)) if d != dim]
    assert set(counts.taken) == {
        (p,) for p in sharded.all_placements(len(sizes), len(shape)) if set(p) <= {"R", *free}
    }
    if len(shape) == 1:
        check(lambda t: op(t, dim, dtype=torch.float64), [x.half()], shape)


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("sizes, normal", [((5, 3, 7), 1), ((3, 2, 4), 2), ((0, 4), 1), ((4,), 1)])
def test_normalisation(sizes: tuple[int, ...], normal: int, shape: tuple[int, ...]) -> None:
    x, inner = random_numbers(*sizes), sizes[len(sizes) - normal :]
    weight, bias = whole_numbers(*inner, seed=2), whole_numbers(*inner, seed=3)
    same = sharded.near

    def layer(x: Any, w: Any = None, b: Any = None) -> Any:
        return F.layer_norm(x, inner, w, b)

    def rms(x: Any, w: Any = None) -> Any:
        return F.rms_norm(x, inner, w)

    for op, operands in (
        (layer, [x, weight, bias]),
        (layer, [x, weight]),
        (layer, [x]),
        (lambda x, b: F.layer_norm(x, inner, None, b), [x, bias]),
        (rms, [x, weight]),
        (rms, [x]),
    ):
        counts = check(op, operands, shape, same=same, partials=("sum", "avg"), most=300)
        rows = {f"S{d}" for d in range(len(sizes) - normal)}
        assert all(set(c[0]) <= {"R", *rows} for c in counts.taken)
        whole = [t for t in counts.taken if all(set(p) == {"R"} for p in t[1:])]
        if len(shape) == 1 or len(operands) == 1:
            assert len(whole) == (1 + len(rows)) ** len(shape)


def attention(q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False) -> Any:
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("rows", [5, 2, 70])
def test_attention(rows: int, shape: tuple[int, ...]) -> None:
    q, k = random_numbers(2, 3, rows, 4), random_numbers(2, 3, rows + 1, 4)
    v = whole_numbers(2, 3, rows + 1, 5)
    most = 300 if rows < 70 else 60
    for causal in (False, True):

        def op(q: Any, k: Any, v: Any, causal: bool = causal) -> Any:
            return attention(q, k, v, causal=causal)

        counts = check(op, [q, k, v], shape, same=sharded.near, partials=("sum",), most=most)
        assert counts.taken
    masks = [torch.rand(rows, rows + 1) > 0.3, random_numbers(2, 1, rows, rows + 1)]
    for mask in masks:
        check(attention, [q, k, v, mask], shape, same=sharded.close, partials=(), most=most)


def test_what_attention_takes() -> None:
    q, k, v = random_numbers(2, 3, 5, 4), random_numbers(1, 3, 7, 4), whole_numbers(2, 3, 7, 6)
    taken = one_mesh_dim(check(attention, [q, k, v], (2,), same=sharded.near))
    assert {
        ("S0", "R", "S0", "S0"),
        ("S1", "S1", "S1", "S1"),
        ("S2", "R", "R", "S2"),
        ("R", "R", "S3", "S3"),
        ("R", "R", "sum", "sum"),
    } <= taken
    assert not any("S3" in c[:2] or "S2" in c[1:3] for c in taken)


@pytest.mark.parametrize("rows", [3, 5, 64, 130])
@pytest.mark.parametrize("causal", [False, True])
def test_rows_of_attention_have_the_bits_of_the_whole(rows: int, causal: bool) -> None:
    q, k, v = (random_numbers(2, rows, 8) for _ in range(3))
    single = [dtorch.tensor(t) for t in (q, k, v)]
    want = attention(single[0], single[1], single[2], causal=causal).to_torch()
    for shape, p in (((3,), ["S1"]), ((2, 2), ["S1", "S1"]), ((2, 2), ["S0", "S1"])):
        dq = on_mesh(q, p, shape)
        whole = ["S0" if x == "S0" else "R" for x in p]
        dk, dv = (on_mesh(t, whole, shape) for t in (k, v))
        sharded.assert_is(attention(dq, dk, dv, causal=causal), want, shape, sharded.same_bits)


# ---- composites ----------------------------------------------------------------------------------


def test_a_cut_feed_forward() -> None:
    """By columns, then by rows: the one sum is left to the end (Megatron)."""
    x, w1, b1 = whole_numbers(6, 8), whole_numbers(12, 8, seed=2), whole_numbers(12, seed=3)
    w2, b2 = whole_numbers(8, 12, seed=4), whole_numbers(8, seed=5)

    def net(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        return F.linear(F.relu(F.linear(x, w1, b1)), w2, b2)

    want = net(*(dtorch.tensor(t) for t in (x, w1, b1, w2, b2))).to_torch()
    placed = [
        on_mesh(t, p, (2, 2))
        for t, p in (
            (x, ["S0", "R"]),
            (w1, ["R", "S0"]),
            (b1, ["R", "S0"]),
            (w2, ["R", "S1"]),
            (b2, ["R", "R"]),
        )
    ]
    y = net(*placed)
    assert sharded.placements_of(y) == ("S0", "sum")
    sharded.assert_is(y, want, (2, 2), sharded.equal)


def test_the_error_names_the_op_and_what_is_legal() -> None:
    a = on_mesh(whole_numbers(4, 4), ["S0"], (2,))
    b = on_mesh(whole_numbers(4, 4), ["S1"], (2,))
    with pytest.raises(dtorch.PlacementError) as error:
        dtorch.matmul(a, b)
    for part in ("matmul", "[4, 4]", "[S0]", "[S1]", "(S1, S0) -> P(sum)", "redistribute"):
        assert part in str(error.value)


def test_a_softmax_over_a_cut_dim_is_an_error() -> None:
    x = on_mesh(whole_numbers(4, 4), ["S1"], (2,))
    with pytest.raises(dtorch.PlacementError, match="softmax"):
        F.softmax(x, -1)
    assert _C.dist_spec(F.softmax(x, 0)) == _C.dist_spec(x)
