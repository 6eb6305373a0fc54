"""Tensors on a mesh: creation, properties, reading, writing, indexing, against torch."""

from __future__ import annotations

import asyncio
import copy
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import dtorch
import numpy as np
import pytest
import torch
from dtorch import _C, _creation, _functions
from dtorch.distributed_spec import (
    DeviceMesh,
    Partial,
    Replicate,
    Shard,
    init_device_mesh,
)
from pending import hold, meanwhile, patient

pytestmark = pytest.mark.usefixtures("simulated")

R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial()
LAYOUTS = [
    list(p)
    for p in itertools.product([R, S0, S1, P], repeat=2)
] + [
    [Partial("avg"), S0],
    [Partial("max"), Partial("max")],
    [S1, Partial("min")],
    [Partial("product"), R],
    [Partial("avg"), P],
]  # fmt: skip


@pytest.fixture
def mesh(simulated: None) -> DeviceMesh:
    return init_device_mesh("cuda", (2, 3), mesh_dim_names=("dp", "tp"))


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Sums and means of a few of them are exact."""
    return (torch.randint(-64, 64, shape) / 8).to(dtype)


def chunk(t: torch.Tensor, n: int, k: int, dim: int) -> torch.Tensor:
    pieces = torch.chunk(t, n, dim)
    return pieces[k] if k < len(pieces) else t.narrow(dim, 0, 0)


def part(t: torch.Tensor, mesh: DeviceMesh, placements: Any, index: int) -> torch.Tensor:
    """The shards of a global value; what is Partial is left whole."""
    for n, p, k in zip(mesh.shape, placements, mesh.get_coordinate(index), strict=True):
        if isinstance(p, Shard):
            t = chunk(t, n, k, p.dim)
    return t


def check_parts(x: Any, value: torch.Tensor) -> None:
    """Parts have the layout's shapes; those that are whole along Partial dims have its values."""
    mesh, placements = x.device_mesh, x.placements
    for i in range(mesh.size()):
        expected = part(value, mesh, placements, i)
        local = x.to_local(rank=i).to_torch()
        assert local.shape == expected.shape and local.dtype == expected.dtype
        if not any(p.is_partial() for p in placements):
            assert torch.equal(local, expected)
    assert torch.equal(x.full_tensor().to_torch(), value)


# ---- creation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("placements", LAYOUTS, ids=repr)
@pytest.mark.parametrize("shape", [(7, 5), (2, 1), (0, 3), (6, 6)])
def test_from_data(mesh: DeviceMesh, placements: list[Any], shape: tuple[int, int]) -> None:
    value = numbers(*shape, dtype=torch.float64)
    for x in (
        dtorch.Tensor(value, device_mesh=mesh, placements=placements),
        dtorch.tensor(value, device_mesh=mesh, placements=placements),
        dtorch.as_tensor(value, device_mesh=mesh, placements=placements),
        dtorch.tensor(value.numpy(), device_mesh=mesh, placements=placements),
    ):
        assert x.shape == value.shape and x.dtype is torch.float64
        assert x.device_mesh == mesh and x.placements == placements
        check_parts(x, value)


@pytest.mark.parametrize("placements", LAYOUTS, ids=repr)
def test_fills(mesh: DeviceMesh, placements: list[Any]) -> None:
    at = {"device_mesh": mesh, "placements": placements}
    check_parts(dtorch.zeros(5, 4, **at), torch.zeros(5, 4))
    check_parts(dtorch.ones((5, 4), **at), torch.ones(5, 4))
    check_parts(dtorch.full((5, 4), -2.5, **at), torch.full((5, 4), -2.5))
    assert dtorch.empty(5, 4, **at).shape == (5, 4)
    assert dtorch.Tensor(5, 4, **at).placements == placements
    x = dtorch.zeros(5, 4, **at)
    like = dtorch.ones_like(x)
    assert like.device_mesh == mesh and like.placements == placements
    check_parts(like, torch.ones(5, 4))
    check_parts(x.new_full((3, 2), 7), torch.full((3, 2), 7.0))
    assert x.new_zeros(2).placements == [R, R]


@pytest.mark.parametrize("placements", [[S0, R], [R, S1], [S1, S0], [S0, S0], [P, S1]], ids=repr)
def test_makers_of_different_elements(mesh: DeviceMesh, placements: list[Any]) -> None:
    at = {"device_mesh": mesh, "placements": placements}
    one = {"device_mesh": mesh, "placements": [S0 if p.is_shard() else p for p in placements]}
    makers: list[tuple[Any, tuple[Any, ...], Any]] = [
        (dtorch.arange, (3, 20, 2), one),
        (dtorch.linspace, (0, 1, 7), one),
        (dtorch.eye, (5, 4), at),
        (dtorch.rand, (5, 4), at),
        (dtorch.randn, (5, 4), at),
        (dtorch.randint, (0, 10, (5, 4)), at),
        (dtorch.normal, (1.0, 2.0, (5, 4)), at),
    ]
    for make, args, where in makers:
        dtorch.manual_seed(11)
        plain = make(*args)
        dtorch.manual_seed(11)
        x = make(*args, **where)
        assert x.placements == where["placements"]
        check_parts(x, plain.to_torch())
        dtorch.manual_seed(5)
        plain = dtorch.rand_like(plain, dtype=torch.float32)
        dtorch.manual_seed(5)
        check_parts(dtorch.rand_like(x, dtype=torch.float32), plain.to_torch())


def test_dropout(mesh: DeviceMesh) -> None:
    value = numbers(7, 4) + 20
    for placements in ([R, R], [S0, R], [S0, S1], [P, S0]):
        dtorch.manual_seed(2)
        expected = dtorch.nn.functional.dropout(dtorch.Tensor(value), 0.5).to_torch()
        dtorch.manual_seed(2)
        x = dtorch.Tensor(value, device_mesh=mesh, placements=placements)
        y = dtorch.nn.functional.dropout(x, 0.5)
        assert y.placements == placements
        check_parts(y, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.uint8])
@pytest.mark.parametrize("placement", [R, S0, P, Partial("product"), Partial("max")], ids=repr)
def test_dtypes(dtype: torch.dtype, placement: Any) -> None:
    mesh = init_device_mesh("cpu", 3)
    value = torch.arange(10).reshape(5, 2).to(dtype)
    check_parts(dtorch.Tensor(value, device_mesh=mesh, placements=[placement]), value)
    ones = dtorch.ones(5, 2, dtype=dtype, device_mesh=mesh, placements=[placement])
    check_parts(ones, torch.ones(5, 2, dtype=dtype))


def test_bools() -> None:
    mesh = init_device_mesh("cuda", 2)
    value = torch.tensor([True, False, True])
    for placement in (R, S0):
        check_parts(dtorch.tensor(value, device_mesh=mesh, placements=[placement]), value)


def test_what_partial_holds() -> None:
    mesh = init_device_mesh("cuda", 3)
    value = torch.tensor([1.5, -2.0])

    def parts(op: str) -> list[list[float]]:
        x = dtorch.Tensor(value, device_mesh=mesh, placements=[Partial(op)])
        return [x.to_local(i).tolist() for i in range(3)]

    assert parts("sum") == [[1.5, -2.0], [0.0, 0.0], [0.0, 0.0]]
    assert str(parts("sum")[1]) == "[-0.0, -0.0]"
    assert parts("product") == [[1.5, -2.0], [1.0, 1.0], [1.0, 1.0]]
    for op in ("avg", "min", "max"):
        assert parts(op) == [[1.5, -2.0]] * 3
    for make in (
        lambda: dtorch.ones(3, dtype=torch.int64, device_mesh=mesh, placements=[Partial("avg")]),
        lambda: dtorch.tensor([1, 2], device_mesh=mesh, placements=[Partial("avg")]),
    ):
        with pytest.raises(ValueError, match="floating-point dtype, not int64"):
            make()


def test_negative_zero_stays(mesh: DeviceMesh) -> None:
    x = dtorch.tensor([-0.0, 0.0], device_mesh=mesh, placements=[P, P])
    assert str(x.tolist()) == "[-0.0, 0.0]"


def test_dims_are_normalised(mesh: DeviceMesh) -> None:
    x = dtorch.zeros(4, 6, 8, device_mesh=mesh, placements=[Shard(-1), Shard(-3)])
    assert x.placements == [Shard(2), Shard(0)] and repr(x.placements) == "[S2, S0]"


def test_parts_have_bytes_of_their_own() -> None:
    mesh = init_device_mesh("cuda", 2)
    value = torch.zeros(4)
    x = dtorch.Tensor(value, device_mesh=mesh)
    x.to_local(0).fill_(1)
    assert x.to_local(1).tolist() == [0.0] * 4 and value.tolist() == [0.0] * 4
    assert len({x.to_local(i).data_ptr() for i in range(2)}) == 2


@pytest.mark.parametrize(
    ("keywords", "error", "text"),
    [
        ({"placements": [S0]}, ValueError, "each of the 2 dims"),
        ({"placements": [S0, R, R]}, ValueError, "each of the 2 dims"),
        ({"placements": S0}, TypeError, "must be a sequence"),
        ({"placements": "SR"}, TypeError, "must be a sequence"),
        ({"placements": [S0, "R"]}, TypeError, r"placements\[1\]"),
        ({"placements": [Shard(2), R]}, ValueError, r"Shard\(2\).*2 dimensions"),
        ({"placements": [Shard(-3), R]}, ValueError, r"Shard\(-3\).*2 dimensions"),
        ({"placements": [P, Partial("max")]}, ValueError, "order matters"),
        ({"device": "cpu"}, ValueError, "device and device_mesh"),
        ({"device_mesh": "cuda"}, TypeError, "DeviceMesh, not str"),
    ],
)
def test_bad_places(mesh: DeviceMesh, keywords: Any, error: type[Exception], text: str) -> None:
    at = {"device_mesh": mesh, **keywords}
    for make in (
        lambda: dtorch.zeros(4, 4, **at),
        lambda: dtorch.tensor([[1.0]], **at),
        lambda: dtorch.Tensor([[1.0]], **at),
        lambda: dtorch.zeros_like(dtorch.zeros(4, 4), **at),
    ):
        with pytest.raises(error, match=text):
            make()


def test_other_keywords_of_the_constructor() -> None:
    with pytest.raises(TypeError, match="'dtype'"):
        dtorch.Tensor([1.0], dtype=torch.float64)


def test_the_plain_mesh() -> None:
    plain = DeviceMesh("cpu")
    x = dtorch.zeros(3, device_mesh=plain)
    assert _C.dist_spec(x) is None and x.device_mesh == plain and x.placements == [R]
    assert x.device == torch.device("cpu") and x.is_cpu
    assert dtorch.Tensor([1.0], device_mesh=plain, placements=[R]).tolist() == [1.0]
    with pytest.raises(ValueError, match="1 dims"):
        dtorch.zeros(3, device_mesh=plain, placements=[R, R])
    assert x.to_local() is not None and x.full_tensor() is x


def test_device_keyword(mesh: DeviceMesh) -> None:
    x = dtorch.zeros(3, device="cuda:2")
    assert x.device_mesh == DeviceMesh("cuda", [2]) and x.device == torch.device("cuda")
    assert dtorch.zeros(3, device="cuda").device_mesh == DeviceMesh("cuda", [0])
    with mesh:
        assert dtorch.arange(4, device="cuda").device_mesh == mesh
        assert dtorch.arange(4, device=torch.device("cuda")).placements == [R, R]
        assert dtorch.zeros(4, device="cuda", placements=[S0, R]).placements == [S0, R]
        assert dtorch.zeros(4, device="cuda:1").device_mesh == DeviceMesh("cuda", [1])
        assert dtorch.zeros(4, device="cpu").device_mesh == DeviceMesh("cpu")
        assert dtorch.zeros_like(dtorch.zeros(4, device="cpu")).device_mesh == DeviceMesh("cpu")
    with init_device_mesh("cpu", 2) as cpus:
        assert dtorch.zeros(4, device="cpu").device_mesh == cpus


def test_everything_is_made_on_the_default_mesh(mesh: DeviceMesh) -> None:
    dtorch.manual_seed(7)
    plain = {name: make() for name, make in MAKERS.items()}
    dtorch.manual_seed(7)
    with mesh:
        placed = {name: make() for name, make in MAKERS.items()}
    for name, x in placed.items():
        assert x.device_mesh == mesh and x.placements == [R, R], name
        if "empty" not in name:
            check_parts(x, plain[name].to_torch())


MAKERS: dict[str, Callable[[], Any]] = {
    "empty": lambda: dtorch.empty(3, 2),
    "zeros": lambda: dtorch.zeros(3, 2),
    "ones": lambda: dtorch.ones(3),
    "full": lambda: dtorch.full((2, 2), 7),
    "arange": lambda: dtorch.arange(2, 9, 2),
    "linspace": lambda: dtorch.linspace(0, 1, 5),
    "eye": lambda: dtorch.eye(3, 4),
    "scalar_tensor": lambda: dtorch.scalar_tensor(3),
    "rand": lambda: dtorch.rand(3, 5),
    "randn": lambda: dtorch.randn(3, 5),
    "randint": lambda: dtorch.randint(0, 10, (7,)),
    "normal": lambda: dtorch.normal(0.0, 2.0, (4,)),
    "tensor": lambda: dtorch.tensor([1, 2]),
    "as_tensor": lambda: dtorch.as_tensor([1.0, 2.0]),
    "asarray": lambda: dtorch.asarray(np.arange(3)),
    "Tensor": lambda: dtorch.Tensor([[1, 2], [3, 4]]),
    "Tensor of torch's": lambda: dtorch.Tensor(torch.arange(3)),
    "Tensor(), empty": lambda: dtorch.Tensor(2, 3),
}


def test_methods_fill_where_the_tensor_is(mesh: DeviceMesh) -> None:
    x = dtorch.zeros(4, 3, device_mesh=mesh, placements=[S0, R])
    assert x.new_tensor([1, 2]).device_mesh == mesh
    assert dtorch.full_like(x, 2).placements == [S0, R]
    assert dtorch.ones_like(x, placements=[S1, S0]).placements == [S1, S0]
    assert dtorch.ones_like(x, device="cpu").device_mesh == DeviceMesh("cpu")
    other = init_device_mesh("cuda", 2)
    assert dtorch.ones_like(x, device_mesh=other).placements == [R]
    out = dtorch.zeros(4, 3, device_mesh=mesh, placements=[S0, R])
    assert dtorch.ones(4, 3, out=out) is out and out.placements == [S0, R]
    check_parts(out, torch.ones(4, 3))
    plain = dtorch.zeros(4, 3)
    with mesh:
        dtorch.ones(4, 3, out=plain)
    assert _C.dist_spec(plain) is None and plain.sum().item() == 12


# ---- properties ----------------------------------------------------------------------------------


def test_metadata_is_global(mesh: DeviceMesh) -> None:
    x = dtorch.zeros(5, 4, device_mesh=mesh, placements=[S0, S1])
    assert x.shape == (5, 4) and x.size(0) == 5 and x.ndim == 2 and x.numel() == 20
    assert len(x) == 5 and x.nbytes == 80 and x.stride() == (4, 1) and x.is_contiguous()
    assert x.storage_offset() == 0 and x.dtype is torch.float32 and x.layout is torch.strided
    assert x.device == torch.device("cuda") and x.device.index is None
    assert x.is_cuda and not x.is_cpu
    cpus = dtorch.zeros(5, device_mesh=init_device_mesh("cpu", 2))
    assert cpus.is_cpu and not cpus.is_cuda and cpus.device == torch.device("cpu")
    x.requires_grad = True
    assert x.requires_grad and x.detach().requires_grad is False


def test_versions(mesh: DeviceMesh) -> None:
    x = dtorch.zeros(5, 4, device_mesh=mesh, placements=[S0, S1])
    before = x._version
    x.add_(1)
    assert x._version == before + 1
    x[0, 0] = 3
    x[4] = 2
    assert x._version == before + 3


def test_repr(mesh: DeviceMesh) -> None:
    x = dtorch.tensor([[1, 2], [3, 4]], device_mesh=mesh, placements=[S0, P])
    assert repr(x) == (
        "tensor([[1, 2],\n        [3, 4]], "
        "shape=(2, 2), device_mesh=cuda(2x3), placements=[S0, P(sum)])"
    )
    big = torch.arange(3000.0).reshape(3, 1000)
    text = repr(dtorch.Tensor(big, device_mesh=mesh, placements=[S1, R]))
    assert text.startswith(repr(big)[:-1])
    assert text.endswith("shape=(3, 1000), device_mesh=cuda(2x3), placements=[S1, R])")
    empty = dtorch.zeros(0, 3, device_mesh=mesh, dtype=torch.int32)
    assert repr(empty) == (
        "tensor([], dtype=torch.int32,\n"
        "       shape=(0, 3), device_mesh=cuda(2x3), placements=[R, R])"
    )
    grown = dtorch.ones(2, device_mesh=mesh, requires_grad=True)
    assert repr(grown) == (
        "tensor([1., 1.], shape=(2,), device_mesh=cuda(2x3), placements=[R, R],\n"
        "       requires_grad=True)"
    )
    assert str(dtorch.tensor(2.5, device_mesh=mesh, placements=[P, P])).startswith(
        "tensor(2.5000, "
    )


# ---- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("placements", LAYOUTS, ids=repr)
def test_reading_is_global(mesh: DeviceMesh, placements: list[Any]) -> None:
    value = numbers(5, 4)
    x = dtorch.Tensor(value, device_mesh=mesh, placements=placements)
    assert x.tolist() == value.tolist()
    array = x.numpy()
    assert (array == value.numpy()).all()
    array[:] = 0  # nobody's but ours
    check_parts(x, value)
    assert (np.asarray(x) == value.numpy()).all()
    assert x._tobytes() == value.numpy().tobytes()
    full = x.full_tensor()
    full.fill_(0)
    check_parts(x, value)
    assert _C.dist_spec(full) is None and x.is_ready()
    for other in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert other.placements == x.placements and other.device_mesh == mesh
        other.zero_()
        check_parts(x, value)
    assert copy.copy(x).placements == x.placements
    for y in (dtorch.Tensor(x), dtorch.as_tensor(x), x.clone(), x.detach()):
        assert y.placements == x.placements
        check_parts(y, value)


def test_numbers(mesh: DeviceMesh) -> None:
    for placements in ([R, R], [P, P], [Partial("avg"), P], [Partial("max"), R]):
        x = dtorch.tensor(2.5, device_mesh=mesh, placements=placements)
        assert x.item() == 2.5 and float(x) == 2.5 and int(x) == 2 and bool(x)
        assert f"{x:.2f}" == "2.50"
    one = dtorch.tensor([[3]], device_mesh=mesh, placements=[S0, S1])
    assert one.item() == 3 and [10, 20, 30, 40][one] == 40 and one
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(dtorch.zeros(2, device_mesh=mesh))
    with pytest.raises(RuntimeError, match="cannot be converted"):
        dtorch.zeros(2, device_mesh=mesh, placements=[S0, S0]).item()


def test_what_goes_out_is_local(mesh: DeviceMesh) -> None:
    value = torch.arange(12.0).reshape(6, 2)
    x = dtorch.Tensor(value, device_mesh=mesh, placements=[S0, R])
    assert torch.equal(x.to_torch(), value[:3])
    assert torch.equal(torch.from_dlpack(x), value[:3])
    assert torch.equal(x.to_torch_async().get(), value[:3])
    assert torch.equal(x.to_local().to_torch(), value[:3])
    with dtorch.cuda.device(4):
        assert torch.equal(x.to_torch(), value[3:])
        assert torch.equal(torch.from_dlpack(x), value[3:])
        assert torch.equal(x.to_torch_async().get(), value[3:])
        assert x.data_ptr() == x.to_local(4).data_ptr() != x.to_local(0).data_ptr()
        assert torch.equal(x.to_local(rank=0).to_torch(), value[:3])
    elsewhere = dtorch.Tensor(value, device_mesh=DeviceMesh("cuda", [5, 6]), placements=[S0])
    assert torch.equal(elsewhere.to_torch(), value[:3])
    with dtorch.cuda.device(6):
        assert torch.equal(elsewhere.to_torch(), value[3:])
    with pytest.raises(IndexError, match="6 devices"):
        x.to_local(6)


def test_to_local_shares(mesh: DeviceMesh) -> None:
    x = dtorch.zeros(6, device_mesh=mesh, placements=[S0, S0])
    x.to_local(3).fill_(5)
    assert x.tolist() == [0, 0, 0, 5, 0, 0]
    x.add_(1)
    assert x.to_local(3).tolist() == [6]


def test_comparisons(mesh: DeviceMesh) -> None:
    value = torch.arange(6)
    x = dtorch.tensor(value, device_mesh=mesh, placements=[S0, R])
    assert (x == 3).tolist() == (value == 3).tolist() and (x == 3).placements == [S0, R]
    assert (x < x).placements == [S0, R]


def test_moves_by_device(mesh: DeviceMesh) -> None:
    value = torch.arange(6.0)
    x = dtorch.Tensor(value, device_mesh=mesh, placements=[S0, R])
    assert x.cuda() is x and x.to("cuda") is x
    assert _C.dist_spec(x.cpu()) is None and torch.equal(x.cpu().to_torch(), value)
    assert x.to("cuda:3").device_mesh == DeviceMesh("cuda", [3])
    plain = dtorch.Tensor(value)
    assert plain.cpu() is plain and plain.to("cpu") is plain
    assert plain.cuda().device_mesh == DeviceMesh("cuda", [0])
    with mesh:
        moved = plain.to("cuda", torch.float64)
        assert moved.device_mesh == mesh and moved.dtype is torch.float64
        assert moved.placements == [R, R]


def test_view_of_another_dtype(mesh: DeviceMesh) -> None:
    value = numbers(6, 4)
    x = dtorch.Tensor(value, device_mesh=mesh, placements=[S0, S1])
    check_parts(x.view(torch.int32), value.view(torch.int32))
    y = dtorch.Tensor(value, device_mesh=mesh, placements=[S0, R])
    check_parts(y.view(torch.float64), value.view(torch.float64))
    check_parts(y.view(torch.int16), value.view(torch.int16))
    for bad in (x, dtorch.Tensor(value, device_mesh=mesh, placements=[P, R])):
        with pytest.raises(dtorch.PlacementError, match="view"):
            bad.view(torch.float64)


def test_save(mesh: DeviceMesh, tmp_path: Any) -> None:
    value = numbers(5, 4)
    x = dtorch.Tensor(value, device_mesh=mesh, placements=[S1, P])
    dtorch.save_safetensors({"x": x, "y": x.to_local(1)}, tmp_path / "x.safetensors").get()
    loaded = dtorch.load_safetensors(tmp_path / "x.safetensors")
    assert torch.equal(loaded["x"].to_torch(), value)
    assert torch.equal(loaded["y"].to_torch(), x.to_local(1).to_torch())


# ---- writing -------------------------------------------------------------------------------------

INDICES = [
    slice(1, 3), slice(None), slice(0, 0), slice(None, None, 2), slice(5, 1), 2, -1, ...,
    (slice(1, None), 1), (..., slice(1, 4, 2)), (3, 2), (None, slice(1, 5, 3)), (slice(2, 9), None),
    True, False, (slice(None), -2), (slice(4, 5), slice(0, 4, 3)),
]  # fmt: skip


@pytest.mark.parametrize("placements", LAYOUTS, ids=repr)
@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_assigning(mesh: DeviceMesh, placements: list[Any], index: Any) -> None:
    value = numbers(7, 4, dtype=torch.float64)
    x = dtorch.Tensor(value, device_mesh=mesh, placements=placements)
    expected = value.clone()
    expected[index] = -3.5
    x[index] = -3.5
    check_parts(x, expected)
    shape = expected[index].shape
    for wide in (numbers(*shape), numbers(*shape[-1:]), torch.tensor(0.5)):
        wide = wide.to(torch.float64)
        expected[index] = wide
        x[index] = dtorch.Tensor(wide)
        check_parts(x, expected)
        everywhere = dtorch.Tensor(wide * 2, device_mesh=mesh)
        expected[index] = wide * 2
        x[index] = everywhere
        check_parts(x, expected)


@pytest.mark.parametrize("placements", LAYOUTS, ids=repr)
def test_assigning_what_lies_alike(mesh: DeviceMesh, placements: list[Any]) -> None:
    value, other = numbers(7, 4), numbers(7, 4)
    x = dtorch.Tensor(value, device_mesh=mesh, placements=placements)
    x[:] = dtorch.Tensor(other, device_mesh=mesh, placements=placements)
    check_parts(x, other)
    x[...] = x
    check_parts(x, other)


def test_assigning_what_lies_elsewhere(mesh: DeviceMesh) -> None:
    def at(*placements: Any, on: DeviceMesh = mesh, n: int = 6) -> Any:
        return dtorch.Tensor(torch.arange(n), device_mesh=on, placements=placements)

    for target, value in (
        (at(S0, R), at(R, S0)),
        (at(S0, R), at(P, R)),
        (at(R, R), at(R, S0)),
        (at(P, R), at(R, P)),
        (at(R, R), at(R, on=init_device_mesh("cuda", 6))),
        (at(R, R), at(R, R, on=DeviceMesh("cuda", [[1, 0, 2], [3, 4, 5]]))),
    ):
        before = target.tolist()
        with pytest.raises(dtorch.PlacementError, match=r"assignment.*redistribute"):
            target[:] = value
        assert target.tolist() == before
    with pytest.raises(dtorch.PlacementError, match="not"):
        dtorch.zeros(6)[:] = at(R, R)
    with pytest.raises(RuntimeError, match="expanded size"):
        at(S0, R)[:] = dtorch.zeros(5)


@pytest.mark.parametrize("placements", [[R, R], [S0, R], [S0, S1], [P, S0]], ids=repr)
def test_assigning_through_lists_and_masks(mesh: DeviceMesh, placements: list[Any]) -> None:
    value = numbers(7, 4)
    x = dtorch.Tensor(value, device_mesh=mesh, placements=placements)
    expected = value.clone()
    expected[[5, 0, -1]] = 2.0
    x[[5, 0, -1]] = 2.0
    check_parts(x, expected)
    rows = numbers(3, 4)
    expected[[1, 6, 1]] = rows
    x[[1, 6, 1]] = dtorch.Tensor(rows)
    check_parts(x, expected)
    expected[1:5, [0, 3]] = rows[0, :2]
    x[1:5, dtorch.tensor([0, 3])] = dtorch.Tensor(rows[0, :2])
    check_parts(x, expected)


def test_assigning_through_a_mask(mesh: DeviceMesh) -> None:
    value = numbers(7, 4)
    x = dtorch.Tensor(value, device_mesh=mesh, placements=[S0, S1])
    expected = value.clone()
    x[x > 0] = 0.5
    expected[expected > 0] = 0.5
    check_parts(x, expected)
    x[x < 0] = dtorch.tensor(-1.0)
    expected[expected < 0] = -1.0
    check_parts(x, expected)


@pytest.mark.parametrize("to", LAYOUTS[::3], ids=repr)
@pytest.mark.parametrize("of", [[R, R], [S0, P], [S1, S0], [Partial("avg"), S1]], ids=repr)
def test_copy(mesh: DeviceMesh, to: list[Any], of: list[Any]) -> None:
    value = numbers(7, 4)
    x = dtorch.zeros(7, 4, device_mesh=mesh, placements=to)
    assert x.copy_(dtorch.Tensor(value, device_mesh=mesh, placements=of)) is x
    check_parts(x, value)
    assert x.placements == to
    x.copy_(dtorch.Tensor(value[0] + 1))
    check_parts(x, (value[0] + 1).expand(7, 4).clone())
    x.copy_(dtorch.Tensor(value[:, :1], device_mesh=mesh, placements=of[::-1]))
    check_parts(x, value[:, :1].expand(7, 4).clone())
    plain = dtorch.zeros(7, 4)
    assert plain.copy_(dtorch.Tensor(value, device_mesh=mesh, placements=of)).tolist() == (
        value.tolist()
    )


def test_copy_from_another_mesh(mesh: DeviceMesh) -> None:
    value = numbers(7, 4)
    other = init_device_mesh("cpu", 4)
    x = dtorch.zeros(7, 4, device_mesh=mesh, placements=[S0, S1])
    check_parts(x.copy_(dtorch.Tensor(value, device_mesh=other, placements=[S0])), value)
    with pytest.raises(RuntimeError, match="must match the size"):
        x.copy_(dtorch.zeros(3))
    with pytest.raises(RuntimeError, match="broadcast"):
        x.copy_(dtorch.zeros(1, 7, 4).expand(2, 7, 4))


# ---- awaiting ------------------------------------------------------------------------------------


def slow(mesh: DeviceMesh, seconds: float) -> Any:
    """A sharded tensor that is pending for that long."""
    return hold(dtorch.Tensor(torch.arange(6.0), device_mesh=mesh, placements=[S0, R]), seconds)


@patient
def test_await(run: Callable[[Any], Any], mesh: DeviceMesh) -> None:
    async def main() -> None:
        with meanwhile(0.2):
            y = slow(mesh, 0.2) * 2
            assert not y.is_ready()
        assert (await y) is y and y.is_ready()
        assert y.tolist() == [0, 2, 4, 6, 8, 10]
        assert [t is y for t in await dtorch.gather(y, y)] == [True, True]
        full = await (y + 1).full_tensor()
        assert full.tolist() == [1, 3, 5, 7, 9, 11]

    run(main())


@patient
def test_await_to_torch_async(run: Callable[[Any], Any], mesh: DeviceMesh) -> None:
    async def main() -> None:
        with meanwhile(0.2):
            x = slow(mesh, 0.2)
            future = x.to_torch_async()
            assert not future.done()
            x.add_(100)  # the future has the value as of its call
        local, other = await asyncio.gather(future, (x + 1).to_torch_async())
        assert local.tolist() == [0, 1, 2] and other.tolist() == [101, 102, 103]

    run(main())


@patient
def test_cancelled_await(run: Callable[[Any], Any], mesh: DeviceMesh) -> None:
    async def main() -> None:
        async def wait(t: Any) -> None:
            await t

        with meanwhile(0.2):
            x = slow(mesh, 0.2)
            y = x + 1
            tasks = [asyncio.create_task(wait(y)) for _ in range(2)]
            await asyncio.sleep(0.01)
            tasks[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]
        await tasks[1]
        assert y.tolist() == [1, 2, 3, 4, 5, 6]
        with meanwhile(0.2), pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(hold(x + 0, 0.2), 0.01)

    run(main())


def test_late_errors(run: Callable[[Any], Any], mesh: DeviceMesh) -> None:
    zeros = dtorch.zeros(6, dtype=torch.int64, device_mesh=mesh, placements=[S0, R])

    async def main() -> None:
        y = dtorch.ones_like(zeros) // zeros
        with pytest.raises(RuntimeError, match="ZeroDivisionError") as caught:
            await y
        notes = "\n".join(getattr(caught.value, "__notes__", ["floor_divide", __file__]))
        assert "floor_divide" in notes and "test_dist_tensor.py" in notes
        for read in (y.tolist, y.to_torch, lambda: repr(y), y.full_tensor().tolist):
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                read()

    run(main())


@patient
def test_a_blocking_read_in_a_loop(run: Callable[[Any], Any], mesh: DeviceMesh) -> None:
    async def main() -> None:
        before = dtorch.set_blocking_policy("error")
        try:
            with meanwhile(0.2), pytest.raises(dtorch.BlockingError, match=r"Tensor.tolist\(\)"):
                slow(mesh, 0.2).tolist()
        finally:
            dtorch.set_blocking_policy(before)

    run(main())


# ---- composites that make tensors of their own --------------------------------------------------


@pytest.mark.parametrize("placements", [[R, R], [S0, R], [S0, S0], [P, S0], [Partial("max"), R]])
@pytest.mark.parametrize("borders", [(1, 2), (0, 0), (-1, 3), (2, -2)])
def test_pad(mesh: DeviceMesh, placements: list[Any], borders: tuple[int, int]) -> None:
    value = numbers(7, 4)
    x = dtorch.Tensor(value, device_mesh=mesh, placements=placements)
    y = dtorch.nn.functional.pad(x, borders, value=2.5)
    assert y.placements == placements
    check_parts(y, torch.nn.functional.pad(value, borders, value=2.5))
    cut = dtorch.Tensor(value, device_mesh=mesh, placements=[S1, R])
    if borders != (0, 0):
        with pytest.raises(dtorch.PlacementError, match="pad"):
            dtorch.nn.functional.pad(cut, borders)


def test_one_hot_and_reversed(mesh: DeviceMesh) -> None:
    value = torch.tensor([3, 0, 2, 1, 3, 3])
    x = dtorch.Tensor(value, device_mesh=mesh, placements=[S0, R])
    y = dtorch.nn.functional.one_hot(x, 4)
    assert y.placements == [S0, R]
    check_parts(y, torch.nn.functional.one_hot(value, 4))
    whole = dtorch.Tensor(value, device_mesh=mesh)
    assert list(reversed(whole.tolist())) == [t.item() for t in reversed(whole)]
    check_parts(x.__reversed__(), value.flip(0))


def test_fills_of_numbers_drawn(mesh: DeviceMesh) -> None:
    for placements in ([R, R], [S0, R], [S0, S0], [P, S0]):
        x = dtorch.zeros(7, 4, device_mesh=mesh, placements=placements)
        plain = dtorch.zeros(7, 4)
        for fill in ("uniform_", "normal_"):
            dtorch.manual_seed(3)
            getattr(x, fill)()
            dtorch.manual_seed(3)
            check_parts(x, getattr(plain, fill)().to_torch())
            assert x.placements == placements


# ---- indexing through ops -----------------------------------------------------------------------


@pytest.mark.parametrize("placements", [[R, R], [S0, R], [P, S0], [S0, S0], [R, Partial("max")]])
def test_indexing(mesh: DeviceMesh, placements: list[Any]) -> None:
    value = numbers(7, 4, 3)
    x = dtorch.Tensor(value, device_mesh=mesh, placements=placements)
    whole: list[Any] = [
        ..., slice(None), (slice(None), 2), (slice(None), slice(1, 3)), (..., -1),
        (slice(None), 1, slice(0, 3, 2)), (slice(None), slice(2, 2)), (..., None), True,
    ]  # fmt: skip
    for index in whole:
        y = x[index]
        assert torch.equal(y.full_tensor().to_torch(), value[index]), index
    assert x[None].placements == [Shard(1) if p == S0 else p for p in placements]
    y = x[:, 1]
    y[...] = 9.0  # views share bytes
    expected = value.clone()
    expected[:, 1] = 9
    check_parts(x, expected)
    for index in (2, slice(1, 3), (-1, 2), slice(None, None, 2), [1, 2]):
        try:
            y = x[index]
        except dtorch.PlacementError as error:
            assert any(p == S0 for p in placements)
            assert any(name in str(error) for name in ("select", "slice", "index"))
        else:
            assert torch.equal(y.full_tensor().to_torch(), expected[index])
    with pytest.raises(IndexError, match="out of bounds"):
        x[7]
    with pytest.raises(IndexError, match="too many"):
        x[0, 0, 0, 0]


def test_indexing_with_tensors(mesh: DeviceMesh) -> None:
    value = numbers(7, 4)
    x = dtorch.Tensor(value, device_mesh=mesh, placements=[R, S1])
    index = torch.tensor([[0, -1], [3, 2]])
    everywhere = dtorch.Tensor(index, device_mesh=mesh)
    assert torch.equal(x[everywhere].full_tensor().to_torch(), value[index])
    assert torch.equal(x[[-1, 0]].full_tensor().to_torch(), value[[-1, 0]])
    dealt = dtorch.Tensor(torch.tensor([0, -1, 5, 5]), device_mesh=mesh, placements=[S0, R])
    assert x[dealt].placements == [S0, S1]
    assert torch.equal(x[dealt].full_tensor().to_torch(), value[[0, -1, 5, 5]])
    with pytest.raises(dtorch.PlacementError, match="CPU alone"):
        x[dtorch.tensor([0, 1])]
    with pytest.raises(IndexError):
        x[[0, 7]].tolist()


def test_indexing_with_masks(mesh: DeviceMesh) -> None:
    value = numbers(6, 4)
    mask = value[:, 0] > 0
    x = dtorch.Tensor(value, device_mesh=mesh)
    assert torch.equal(x[x > 1].full_tensor().to_torch(), value[value > 1])
    rows = dtorch.Tensor(mask, device_mesh=mesh)
    assert torch.equal(x[rows].full_tensor().to_torch(), value[mask])
    assert torch.equal(x[mask.tolist()].full_tensor().to_torch(), value[mask])


def test_iterating(mesh: DeviceMesh) -> None:
    value = numbers(3, 4)
    x = dtorch.Tensor(value, device_mesh=mesh, placements=[S1, P])
    for a, b in zip(x, value, strict=True):
        assert a.placements == [S0, P] and a.tolist() == b.tolist()
    assert 100.0 not in dtorch.Tensor(value, device_mesh=mesh)
    assert x.T.placements == [S0, P] and x.T.tolist() == value.T.tolist()
    assert x.mT.tolist() == value.mT.tolist()


# ---- everything at once -------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_no_method_or_function_breaks_on_a_mesh(mesh: DeviceMesh) -> None:
    """A sweep over names and arguments that make sense or not: an answer, or a proper error."""
    left_out = {"__class__", "__init__", "__init_subclass__", "__new__", "set_", "_replace"}
    names = sorted(set(dir(dtorch.Tensor)) - left_out)
    functions = sorted({*_C.functions, *_functions.FUNCTIONS, *_creation.FUNCTIONS} - {"seed"})
    plain = dtorch.ones(3)
    for placements in ([R, R], [S0, R], [S0, S1], [Partial("max"), S0]):
        t = dtorch.Tensor(numbers(4, 5) + 0.1, device_mesh=mesh, placements=placements)
        arguments: list[tuple[Any, ...]] = [(), (t,), (0,), (1, 0), (plain,), (0, t), ((4, 5),)]
        calls = [(name, getattr(t, name), args) for name in names for args in arguments]
        calls += [(n, getattr(dtorch, n), (t, *args)) for n in functions for args in arguments]
        for name, call, args in calls:
            try:
                found = call(*args) if callable(call) else call
                if isinstance(found, dtorch.Tensor):
                    found.tolist()
            except (
                TypeError, ValueError, RuntimeError, IndexError, AttributeError, NotImplementedError
            ):  # fmt: skip
                continue
            assert name
    assert plain.shape == (3,)
