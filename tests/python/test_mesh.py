"""Meshes, placements, which devices there are, and the default mesh."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import dtorch
import pytest
from dtorch import distributed_spec
from dtorch.distributed_spec import (
    DeviceMesh,
    Graph,
    Partial,
    Placements,
    Replicate,
    Shard,
    init_device_mesh,
)

pytestmark = [pytest.mark.notorch, pytest.mark.usefixtures("simulated")]

SIMULATE = "DTORCH_DTENSOR_IN_SAME_DEVICE"
COUNT = "DTORCH_NUM_GPU_WHEN_ENABLE_DTENSOR_IN_SAME_DEVICE"


# ---- placements ----------------------------------------------------------------------------------


def test_placements_are_values() -> None:
    assert Shard(1) == Shard(1) != Shard(0)
    assert Shard(-1) != Shard(1)
    assert Replicate() == Replicate() != Shard(0)
    assert Partial() == Partial("sum") != Partial("avg")
    assert len({Shard(0), Shard(0), Replicate(), Replicate(), Partial(), Partial("max")}) == 4
    assert [repr(p) for p in (Shard(2), Replicate(), Partial("avg"))] == [
        "Shard(dim=2)",
        "Replicate()",
        "Partial(avg)",
    ]
    for p in (Shard(-3), Replicate(), Partial("product")):
        assert pickle.loads(pickle.dumps(p)) == p == copy.deepcopy(p)
        with pytest.raises(AttributeError):
            p.dim = 4  # type: ignore[attr-defined]


def test_placements_say_what_they_are() -> None:
    assert Shard(0).is_shard() and Shard(0).is_shard(0) and not Shard(0).is_shard(1)
    assert Replicate().is_replicate() and not Replicate().is_partial()
    assert Partial("max").is_partial() and Partial("max").is_partial("max")
    assert not Partial("max").is_partial("sum") and not Partial().is_shard()


@pytest.mark.parametrize("dim", [1.0, True, None, "0"])
def test_bad_shard(dim: Any) -> None:
    with pytest.raises(TypeError, match="dim must be an int"):
        Shard(dim)


def test_bad_partial() -> None:
    with pytest.raises(ValueError, match="sum, avg, min, max, product, not 'mean'"):
        Partial("mean")


def test_a_tensors_placements_equal_lists_and_tuples() -> None:
    found = Placements([Shard(0), Replicate()])
    assert found == [Shard(0), Replicate()] and [Shard(0), Replicate()] == found
    assert found == (Shard(0), Replicate()) and (Shard(0), Replicate()) == found
    assert found != [Shard(0)] and [Shard(1), Replicate()] != found
    assert repr(Placements([Shard(0), Partial(), Replicate()])) == "[S0, P(sum), R]"
    assert hash(found) == hash((Shard(0), Replicate()))
    assert pickle.loads(pickle.dumps(found)) == found


# ---- meshes --------------------------------------------------------------------------------------


def test_mesh() -> None:
    mesh = DeviceMesh("cuda", [[0, 1, 2], [3, 4, 5]], mesh_dim_names=["dp", "tp"])
    assert repr(mesh) == "cuda(2x3)" and mesh.device_type == "cuda"
    assert mesh.shape == (2, 3) and mesh.ndim == 2
    assert mesh.size() == 6 and mesh.size(0) == 2 and mesh.size(-1) == 3 and mesh.size("tp") == 3
    assert mesh.mesh == [[0, 1, 2], [3, 4, 5]] and mesh.device_ids == (0, 1, 2, 3, 4, 5)
    assert mesh.mesh_dim_names == ("dp", "tp")
    assert mesh.get_coordinate(4) == (1, 1) and mesh.coordinates[5] == (1, 2)
    assert pickle.loads(pickle.dumps(mesh)) == mesh == copy.deepcopy(mesh)


def test_mesh_of_one_device() -> None:
    assert DeviceMesh("cuda").shape == (1,) and DeviceMesh("cuda").mesh == [0]
    assert repr(DeviceMesh("cpu")) == "cpu(1)"


def test_equality() -> None:
    mesh = DeviceMesh("cuda", [0, 1])
    assert mesh == DeviceMesh("cuda", (0, 1)) and hash(mesh) == hash(DeviceMesh("cuda", range(2)))
    assert mesh != DeviceMesh("cuda", [1, 0])
    assert mesh != DeviceMesh("cpu", [0, 1])
    assert mesh != DeviceMesh("cuda", [[0], [1]])
    assert mesh != DeviceMesh("cuda", [0, 1], ["dp"])
    assert mesh != [0, 1]


def test_slices() -> None:
    mesh = init_device_mesh("cuda", (2, 2, 2), ("a", "b", "c"))
    assert mesh["a"].mesh == [0, 4] and mesh["b"].mesh == [0, 2] and mesh["c"].mesh == [0, 1]
    assert mesh["b"].mesh_dim_names == ("b",)
    assert mesh["a", "c"].mesh == [[0, 1], [4, 5]]
    assert mesh["c", "a"].mesh == [[0, 4], [1, 5]]
    assert mesh["a", "b", "c"] == mesh
    for bad in ("d", ("a", "d"), ("a", "a"), (), 0, slice(None)):
        with pytest.raises((KeyError, TypeError)):
            mesh[bad]  # type: ignore[index]
    with pytest.raises(KeyError, match="no names"):
        init_device_mesh("cuda", 2)["dp"]


def test_init_device_mesh() -> None:
    assert init_device_mesh("cuda", mesh_shape=2, mesh_dim_names=["dp"]) == DeviceMesh(
        "cuda", [0, 1], ["dp"]
    )
    assert init_device_mesh("cuda", (2, 1, 2)).mesh == [[[0, 1]], [[2, 3]]]
    for shape in (0, -1, (), (2, 0), 1.5, "2", (True, 2), (40, 40)):
        with pytest.raises(ValueError):
            init_device_mesh("cuda", shape)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("tpu",), "cpu, cuda"),
        (("cuda", []), "at least one device"),
        (("cuda", [[0], [1, 2]]), "one length"),
        (("cuda", [0, [1]]), "one depth"),
        (("cuda", [[0], 1]), "one length"),
        (("cuda", [0, 1.0]), "must be an int"),
        (("cuda", [True]), "must be an int"),
        (("cuda", [0, 0]), "comes twice"),
        (("cuda", [0, -1]), "0 to"),
        (("cuda", 3), "nested lists"),
        (("cuda", "01"), "nested lists"),
        (("cuda", [[[[[[[0]]]]]]]), "at most 6"),
        (("cuda", [0, 1], "dp"), "sequence of strings"),
        (("cuda", [0, 1], ["dp", "tp"]), "1 dims"),
        (("cuda", [0, 1], [3]), "strings"),
        (("cuda", [0, 1], [""]), "characters"),
        (("cuda", [[0, 1]], ["a", "a"]), "differ"),
    ],
)
def test_bad_meshes(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        DeviceMesh(*arguments)


def test_ids_from_tensors() -> None:
    assert DeviceMesh("cuda", dtorch.tensor([[0, 1], [2, 3]])).mesh == [[0, 1], [2, 3]]


@pytest.mark.notorch
def test_bad_coordinates() -> None:
    mesh = init_device_mesh("cuda", (2, 2))
    for index in (-1, 4):
        with pytest.raises(IndexError):
            mesh.get_coordinate(index)
    with pytest.raises(IndexError):
        mesh.size(2)
    with pytest.raises(KeyError):
        mesh.size("dp")


# ---- which devices there are ---------------------------------------------------------------------


@pytest.mark.parametrize("value", ["", "0", "false", "no"])
def test_without_simulation_there_is_one_cpu(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(SIMULATE, value)
    assert DeviceMesh("cpu").shape == (1,)
    for arguments in (("cuda",), ("cuda", [0, 1]), ("cpu", [0, 1]), ("cpu", [1])):
        with pytest.raises(RuntimeError, match=f"(?s){SIMULATE}.*{COUNT}"):
            DeviceMesh(*arguments)
    with pytest.raises(RuntimeError, match="not supported"):
        dtorch.zeros(2, device="cuda")
    assert dtorch.cuda.device_count() == 0 and not dtorch.cuda.is_available()
    with pytest.raises(RuntimeError, match="no CUDA device"):
        dtorch.cuda.current_device()


@pytest.mark.parametrize("value", ["1", "true", "True"])
def test_simulated_count(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(SIMULATE, value)
    assert dtorch.cuda.device_count() == 8
    assert init_device_mesh("cpu", 8).size() == 8
    with pytest.raises(RuntimeError, match="not there"):
        init_device_mesh("cuda", 9)
    monkeypatch.setenv(COUNT, "3")
    assert dtorch.cuda.device_count() == 3
    with pytest.raises(RuntimeError, match=r"\(3; there are 3\)"):
        init_device_mesh("cuda", 4)
    for bad in ("0", "-2", "many", "1.5"):
        monkeypatch.setenv(COUNT, bad)
        with pytest.raises(ValueError, match=COUNT):
            DeviceMesh("cuda")


def test_simulation_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(distributed_spec, "_said", False)
    with caplog.at_level(logging.WARNING, "dtorch"):
        init_device_mesh("cpu", 2)
        assert not caplog.records
        init_device_mesh("cuda", 2)
        init_device_mesh("cuda", 4)
    assert len(caplog.records) == 1 and "no GPU" in caplog.text


def test_simulation_says_nothing_elsewhere() -> None:
    program = (
        "import os; os.environ['DTORCH_DTENSOR_IN_SAME_DEVICE'] = '1'\n"
        "import dtorch; from dtorch.distributed_spec import *\n"
        "mesh = init_device_mesh('cuda', 2)\n"
        "print(dtorch.ones(3, device_mesh=mesh, placements=[Shard(0)]).add(1).tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0 and done.stdout.strip() == "[2.0, 2.0, 2.0]", done.stderr
    assert done.stderr.count("\n") == 1 and "no GPU" in done.stderr


def test_current_device() -> None:
    assert dtorch.cuda.current_device() == 0
    with dtorch.cuda.device(3):
        assert dtorch.cuda.current_device() == 3
        with dtorch.cuda.device("cuda:1"):
            assert dtorch.cuda.current_device() == 1
        assert dtorch.cuda.current_device() == 3
    assert dtorch.cuda.current_device() == 0
    for bad, error in ((8, RuntimeError), (-1, RuntimeError), ("cpu", ValueError)):
        with pytest.raises(error):
            dtorch.cuda.set_device(bad)


# ---- the default mesh ----------------------------------------------------------------------------


def test_default_mesh() -> None:
    assert Graph is dtorch.Graph and Graph.default_device_mesh == DeviceMesh("cpu")
    mesh = init_device_mesh("cuda", 2)
    other = init_device_mesh("cuda", 4)
    with mesh:
        assert Graph.default_device_mesh is mesh
        assert dtorch.zeros(3).device_mesh == mesh
        with other:
            assert Graph.default_device_mesh is other
        Graph.default_device_mesh = other
        assert dtorch.zeros(3).device_mesh == other
    assert Graph.default_device_mesh == DeviceMesh("cpu")
    try:
        Graph.default_device_mesh = mesh
        assert dtorch.zeros(3).device_mesh == mesh
    finally:
        Graph.default_device_mesh = DeviceMesh("cpu")
    assert dtorch.zeros(3).device_mesh == DeviceMesh("cpu")
    with pytest.raises(TypeError):
        Graph.default_device_mesh = "cuda"
    with pytest.raises(TypeError):
        Graph()


def test_default_mesh_belongs_to_the_context(run: Callable[[Any], Any]) -> None:
    mesh, other = init_device_mesh("cuda", 2), init_device_mesh("cuda", 4)

    async def inner(wanted: DeviceMesh, inherited: DeviceMesh) -> None:
        assert dtorch.ones(2).device_mesh == inherited
        with wanted:
            await asyncio.sleep(0)
            x = dtorch.ones(2)
            await asyncio.sleep(0)
            assert x.device_mesh == wanted == Graph.default_device_mesh
        Graph.default_device_mesh = wanted

    async def main() -> None:
        with mesh:
            await asyncio.gather(inner(other, mesh), inner(mesh, mesh))
            assert Graph.default_device_mesh == mesh
        await asyncio.create_task(inner(other, DeviceMesh("cpu")))
        assert Graph.default_device_mesh == DeviceMesh("cpu")

    run(main())
