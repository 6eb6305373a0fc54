"""The project's API overview, snippet by snippet: each runs as it stands there, and does what the
text around it says.

The devices are simulated (section 6 of the overview), so that a mesh of "cuda" needs no GPU.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import dtorch  # noqa: E402
from dtorch import DeviceMesh, Tensor  # noqa: E402
from dtorch.distributed_spec import Partial, Replicate, Shard, init_device_mesh  # noqa: E402

pytestmark = pytest.mark.usefixtures("simulated")


@pytest.fixture
def mesh() -> DeviceMesh:
    return init_device_mesh("cuda", (2, 2), mesh_dim_names=["dp", "tp"])


def same(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    assert a.shape == b.shape
    assert torch.allclose(a, b, rtol=rtol, atol=atol)


# --- 1. as PyTorch on one device -----------------------------------------------------------------


def test_1_one_device() -> None:
    a = dtorch.randn(4, 8)
    b = dtorch.matmul(a, a.transpose(0, 1))
    c = (a + a * 2.0).relu().sum()

    x = a.to_torch()
    assert x.shape == (4, 8)
    same(b.to_torch(), x @ x.t(), rtol=1e-5, atol=1e-6)
    same(c.to_torch(), (x + x * 2.0).relu().sum(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["zeros", "ones", "randn", "full", "arange", "empty", "rand"])
def test_1_factories_are_there(name: str) -> None:
    args: tuple[Any, ...] = {"full": ((2, 3), 5.0), "arange": (6,)}.get(name, (2, 3))
    mine, theirs = getattr(dtorch, name)(*args), getattr(torch, name)(*args)
    assert tuple(mine.shape) == tuple(theirs.shape)
    assert mine.dtype is theirs.dtype
    if "rand" not in name and name != "empty":
        assert mine.to_torch().equal(theirs)


def test_1_the_types_are_torchs() -> None:
    assert dtorch.float32 is torch.float32
    assert dtorch.int64 is torch.int64
    assert dtorch.device is torch.device
    assert dtorch.finfo is torch.finfo
    assert dtorch.iinfo is torch.iinfo
    assert dtorch.ones(1).dtype is torch.float32


# --- 2. DTensor ----------------------------------------------------------------------------------


def test_2_creating_a_mesh() -> None:
    mesh = DeviceMesh("cuda")
    assert mesh.shape == (1,)
    mesh = DeviceMesh("cuda", [[0, 1], [2, 3]], mesh_dim_names=["dp", "tp"])
    assert mesh.shape == (2, 2)
    assert (mesh.size("dp"), mesh.size("tp")) == (2, 2)
    assert mesh == DeviceMesh("cuda", torch.tensor([[0, 1], [2, 3]]), mesh_dim_names=["dp", "tp"])

    line = init_device_mesh("cuda", mesh_shape=2, mesh_dim_names=["dp"])
    assert line.shape == (2,)
    assert tuple(line.mesh_dim_names or ()) == ("dp",)
    square = init_device_mesh("cuda", mesh_shape=(2, 2), mesh_dim_names=["dp", "tp"])
    assert square == mesh


CREATE: list[Callable[..., Any]] = [
    lambda **where: dtorch.Tensor(torch.ones(4, 6), **where),
    lambda **where: dtorch.tensor([[1.0] * 6] * 4, **where),
    lambda **where: dtorch.zeros(4, 6, **where),
    lambda **where: dtorch.ones(4, 6, **where),
    lambda **where: dtorch.empty(4, 6, **where),
    lambda **where: dtorch.rand(4, 6, **where),
    lambda **where: dtorch.randn(4, 6, **where),
    lambda **where: dtorch.full((4, 6), 3.0, **where),
    lambda **where: dtorch.arange(24, **where),
]


@pytest.mark.parametrize("create", CREATE)
def test_2_every_creation_takes_mesh_and_placements(create: Any, mesh: DeviceMesh) -> None:
    t = create(device_mesh=mesh, placements=[Shard(0), Replicate()])
    assert t.device_mesh == mesh
    assert t.placements == [Shard(0), Replicate()]
    assert t.to_local().shape[0] == t.shape[0] // 2
    default = create(device_mesh=mesh)
    assert default.placements == [Replicate(), Replicate()]


@pytest.mark.parametrize("create", CREATE)
def test_2_device_and_mesh_exclude_each_other(create: Any, mesh: DeviceMesh) -> None:
    with pytest.raises((ValueError, TypeError), match="device"):
        create(device_mesh=mesh, device="cpu")


def test_2_defaults(mesh: DeviceMesh) -> None:
    plain = dtorch.zeros(2)
    assert plain.device_mesh == dtorch.Graph.default_device_mesh
    assert plain.device_mesh.device_type == "cpu"
    assert plain.device_mesh.shape == (1,)
    assert dtorch.zeros(2, device="cpu").device_mesh.shape == (1,)
    before = dtorch.Graph.default_device_mesh
    dtorch.Graph.default_device_mesh = mesh
    try:
        inside = dtorch.zeros(4, 4)
        assert inside.device_mesh == mesh
        assert inside.placements == [Replicate(), Replicate()]
    finally:
        dtorch.Graph.default_device_mesh = before
    assert dtorch.zeros(2).device_mesh == before


def test_2_creating_a_dtensor() -> None:
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=["dp", "tp"])
    dt = dtorch.zeros(4, 128, 256, device_mesh=mesh, placements=[Shard(0), Replicate()])
    assert "shape=(4, 128, 256), device_mesh=cuda(2x2), placements=[S0, R]" in repr(dt)
    assert isinstance(dt, Tensor)
    for k, at in enumerate(mesh.coordinates):
        assert tuple(dt.to_local(k).shape) == (2, 128, 256), at


def test_2_from_and_to_torch(mesh: DeviceMesh) -> None:
    torch_t = torch.randn(4, 128)
    dt = dtorch.Tensor(torch_t, device_mesh=mesh, placements=[Shard(0), Replicate()])
    local_tensor = dt.to_torch()
    assert isinstance(local_tensor, torch.Tensor)
    assert local_tensor.equal(torch_t[:2])  # the current device is the first one
    for k, (dp, _) in enumerate(mesh.coordinates):
        assert dt.to_local(k).to_torch().equal(torch_t[2 * dp : 2 * dp + 2])
    assert dt.full_tensor().to_torch().equal(torch_t)


# --- 3. ops --------------------------------------------------------------------------------------


def test_3_mesh_inference() -> None:
    mesh = init_device_mesh("cuda", 2, mesh_dim_names=["dp"])
    a = dtorch.zeros(4, 128, device_mesh=mesh, placements=[Shard(0)])
    b = dtorch.zeros(4, 128, device_mesh=mesh, placements=[Replicate()])
    c = dtorch.add(a, b)
    assert c.device_mesh == mesh
    assert c.placements == [Shard(0)]
    assert c.tolist() == torch.zeros(4, 128).tolist()


def test_3_other_meshes_are_aligned_first() -> None:
    mesh = init_device_mesh("cuda", 2)
    other = DeviceMesh("cuda", [2, 3])
    a = dtorch.ones(4, 8, device_mesh=mesh, placements=[Shard(0)])
    b = dtorch.ones(4, 8, device_mesh=other, placements=[Shard(0)])
    with pytest.raises(dtorch.PlacementError, match="redistribute"):
        dtorch.add(a, b)
    c = dtorch.add(a, b.redistribute(mesh, [Shard(0)]))
    assert c.full_tensor().to_torch().equal(torch.full((4, 8), 2.0))


def test_3_elementwise_placements() -> None:
    mesh = init_device_mesh("cuda", 2, mesh_dim_names=["dp"])
    a = dtorch.zeros(4, 128, device_mesh=mesh, placements=[Shard(0)])
    b = dtorch.relu(a)
    c = dtorch.add(a, a)
    d = dtorch.nn.functional.silu(a)
    e = dtorch.mul(a, a)
    for t in (b, c, d, e):
        assert t.placements == [Shard(0)]
        assert t.device_mesh == mesh


def test_3_softmax() -> None:
    mesh_2d = init_device_mesh("cuda", (2, 2), mesh_dim_names=["dp", "tp"])
    a = dtorch.zeros(4, 128, device_mesh=mesh_2d, placements=[Shard(0), Replicate()])
    b = dtorch.nn.functional.softmax(a, dim=-1)
    assert b.placements == [Shard(0), Replicate()]
    same(b.full_tensor().to_torch(), torch.full((4, 128), 1 / 128))
    cut = a.redistribute(placements=[Shard(0), Shard(1)])
    with pytest.raises(dtorch.PlacementError, match="softmax"):
        dtorch.nn.functional.softmax(cut, dim=-1)


def test_3_what_an_illegal_call_says() -> None:
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=["dp", "tp"])
    a = dtorch.ones(4, 128, device_mesh=mesh, placements=[Shard(0), Shard(1)])
    with pytest.raises(dtorch.PlacementError) as caught:
        dtorch.nn.functional.softmax(a, dim=-1)
    text = str(caught.value)
    assert "softmax" in text  # the operator
    assert "[S0, S1]" in text  # the placements of each input
    assert re.search(r"[Ll]egal", text)  # and what it supports
    assert "(S0)" in text
    legal = a.redistribute(placements=[Shard(0), Replicate()])
    assert dtorch.nn.functional.softmax(legal, dim=-1).placements == [Shard(0), Replicate()]


# --- 4. redistribute -----------------------------------------------------------------------------


def test_4_redistribute(mesh: DeviceMesh) -> None:
    value = torch.arange(24.0).view(4, 6)
    tensor = dtorch.Tensor(value, device_mesh=mesh, placements=[Replicate(), Shard(1)])
    new_device_mesh = DeviceMesh("cuda", [[4, 5], [6, 7]])
    new_tensor = tensor.redistribute(
        device_mesh=new_device_mesh, placements=[Shard(0), Replicate()]
    )
    assert new_tensor.device_mesh == new_device_mesh
    assert new_tensor.placements == [Shard(0), Replicate()]
    assert new_tensor.full_tensor().to_torch().equal(value)
    assert new_tensor.to_local(3).to_torch().equal(value[2:])


def test_4_redistribute_like(mesh: DeviceMesh) -> None:
    value = torch.arange(24.0).view(4, 6)
    tensor = dtorch.Tensor(value, device_mesh=mesh, placements=[Replicate(), Shard(1)])
    target_tensor = dtorch.ones(8, 8, device_mesh=mesh, placements=[Shard(1), Shard(0)])
    new_tensor = tensor.redistribute_like(target_tensor)
    assert new_tensor.device_mesh == mesh
    assert new_tensor.placements == [Shard(1), Shard(0)]
    assert new_tensor.full_tensor().to_torch().equal(value)


def test_4_redistribute_by_dict(mesh: DeviceMesh) -> None:
    value = torch.arange(24.0).view(4, 6)
    tensor = dtorch.Tensor(value, device_mesh=mesh, placements=[Shard(1), Shard(1)])
    new_tensor = tensor.redistribute_by_dict(
        device_mesh=mesh,
        placements_dict={"dp": Shard(0), "tp": Replicate()},
        default_placement_mode="keep",
    )
    assert new_tensor.placements == [Shard(0), Replicate()]
    assert new_tensor.full_tensor().to_torch().equal(value)

    keep = tensor.redistribute_by_dict(placements_dict={"dp": Replicate()})
    assert keep.placements == [Replicate(), Shard(1)]
    replicate = tensor.redistribute_by_dict(
        placements_dict={"dp": Shard(0)}, default_placement_mode="replicate"
    )
    assert replicate.placements == [Shard(0), Replicate()]
    with pytest.raises(ValueError, match="tp"):
        tensor.redistribute_by_dict(
            placements_dict={"dp": Shard(0)}, default_placement_mode="raise_error"
        )


def test_4_collectives_come_by_themselves(mesh: DeviceMesh) -> None:
    """No process group: a sum over devices is a redistribute from Partial."""
    parts = [dtorch.full((4,), float(k)) for k in range(4)]
    tensor = Tensor.from_local(parts, mesh, [Partial(), Partial()])
    assert (
        tensor.redistribute(placements=[Replicate(), Replicate()]).to_local(2).tolist() == [6.0] * 4
    )
    halves = tensor.redistribute(placements=[Shard(0), Replicate()])
    assert halves.to_local(3).tolist() == [6.0] * 2


# --- 5. asynchronous reads -----------------------------------------------------------------------


def test_5_to_torch_async() -> None:
    a = dtorch.rand(1000, 1000)
    b = dtorch.rand(1000, 1000)
    c = dtorch.matmul(a, b)
    future = c.to_torch_async()
    result = future.get()
    assert isinstance(future, dtorch.TensorFuture)
    assert future.is_ready()
    same(result, a.to_torch() @ b.to_torch(), rtol=1e-4, atol=1e-3)


def test_5_await_a_future() -> None:
    async def async_get(tensor: Any) -> Any:
        future = tensor.to_torch_async()
        result = await future
        return result

    dtorch_x = dtorch.Tensor(torch.ones(2, 3))
    result = asyncio.run(async_get(dtorch_x))
    assert isinstance(result, torch.Tensor)
    assert result.equal(torch.ones(2, 3))


def test_5_awaiting_does_not_block_the_loop() -> None:
    async def main() -> int:
        x = dtorch.rand(700, 700)
        for _ in range(12):
            x = x @ x / 700
        future, turns = asyncio.ensure_future(wait(x)), 0
        while not future.done():
            turns += 1
            await asyncio.sleep(0)
        assert future.result().shape == (700, 700)
        return turns

    async def wait(t: Any) -> Any:
        return await t.to_torch_async()

    assert asyncio.run(main()) > 1


def test_5_on_a_mesh(mesh: DeviceMesh) -> None:
    async def main() -> Any:
        a = dtorch.ones(4, 4, device_mesh=mesh, placements=[Shard(0), Replicate()])
        moved = (a + 1).redistribute(placements=[Replicate(), Replicate()])
        assert (await moved) is moved
        return await moved.to_torch_async()

    assert asyncio.run(main()).equal(torch.full((4, 4), 2.0))


# --- 6. simulation -------------------------------------------------------------------------------


def in_process(code: str, **environment: str) -> str:
    """What a fresh interpreter prints, with those variables and no others of the simulation."""
    clean = {k: v for k, v in os.environ.items() if "SAME_DEVICE" not in k}
    done = subprocess.run([sys.executable, "-c", code], env={**clean, **environment},
                          capture_output=True, text=True, check=False)  # fmt: skip
    return done.stdout.strip() + done.stderr.strip()


PROGRAM = inspect.cleandoc(
    """
    import dtorch
    from dtorch.distributed_spec import init_device_mesh, Shard
    try:
        mesh = init_device_mesh("cuda", {n})
        print(dtorch.ones(16, device_mesh=mesh, placements=[Shard(0)]).sum().item())
    except Exception as error:
        print(type(error).__name__, error)
    """
)
ON = "DTORCH_DTENSOR_IN_SAME_DEVICE"
COUNT = "DTORCH_NUM_GPU_WHEN_ENABLE_DTENSOR_IN_SAME_DEVICE"


@pytest.mark.parametrize("value", ["1", "true"])
def test_6_on_one_device(value: str) -> None:
    assert "16.0" in in_process(PROGRAM.format(n=8), **{ON: value})


def test_6_off_by_default_and_eight_devices() -> None:
    off = in_process(PROGRAM.format(n=2))
    assert "Error" in off
    assert ON in off
    assert COUNT in off
    assert "Error" in in_process(PROGRAM.format(n=9), **{ON: "1"})
    assert "16.0" in in_process(PROGRAM.format(n=9), **{ON: "1", COUNT: "9"})
    assert "Error" in in_process(PROGRAM.format(n=4), **{ON: "1", COUNT: "3"})


# --- 7. the summary ------------------------------------------------------------------------------


def test_7_the_forward_is_unchanged(mesh: DeviceMesh) -> None:
    """One function for one device and for four; only where tensors are created differs."""

    def forward(x: Any, w1: Any, w2: Any) -> Any:
        return dtorch.relu(x @ w1) @ w2

    g = torch.Generator().manual_seed(1)
    x, w1, w2 = (torch.randn(s, generator=g) for s in ((6, 8), (8, 12), (12, 4)))
    single = forward(dtorch.Tensor(x), dtorch.Tensor(w1), dtorch.Tensor(w2))
    on_mesh = forward(
        dtorch.Tensor(x, device_mesh=mesh, placements=[Shard(0), Replicate()]),
        dtorch.Tensor(w1, device_mesh=mesh, placements=[Replicate(), Shard(1)]),
        dtorch.Tensor(w2, device_mesh=mesh, placements=[Replicate(), Shard(0)]),
    )
    assert on_mesh.placements == [Shard(0), Partial("sum")]
    whole = on_mesh.redistribute(placements=[Replicate(), Replicate()])
    same(whole.to_torch(), single.to_torch(), rtol=1e-5, atol=1e-5)
