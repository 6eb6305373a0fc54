"""distribute: which entry of a plan places which tensor, values, and errors. Simulated devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dtorch
import pytest
from dtorch import _C, column_wise, distribute, row_wise, vocab_wise
from dtorch.distributed_spec import DeviceMesh, Partial, Replicate, Shard, init_device_mesh

pytestmark = [pytest.mark.notorch, pytest.mark.usefixtures("simulated")]

Run = Callable[[Any], Any]
S0, S1, R = Shard(0), Shard(1), Replicate()


@pytest.fixture
def mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (2, 3), ["dp", "tp"])


def weights() -> dict[str, Any]:
    """A layer of two products, uneven over 3, and an embedding."""
    shapes = {
        "layer.0.inner.weight": (7, 5),
        "layer.0.inner.bias": (7,),
        "layer.0.outer.weight": (5, 7),
        "layer.0.outer.bias": (5,),
        "words.weight": (11, 5),
        "norm.weight": (5,),
        "scale": (),
    }
    dtorch.manual_seed(7)
    return {name: dtorch.randn(shape) for name, shape in shapes.items()}


PLAN = {
    "*.inner.*": column_wise("tp"),
    "*.outer.*": row_wise("tp"),
    "words.*": vocab_wise("tp"),
}


def test_words_of_a_plan(mesh: DeviceMesh) -> None:
    plain = weights()
    placed = distribute(plain, mesh, PLAN)
    assert list(placed) == list(plain)
    expected = {
        "layer.0.inner.weight": [R, S0],
        "layer.0.inner.bias": [R, S0],
        "layer.0.outer.weight": [R, S1],
        "layer.0.outer.bias": [R, R],
        "words.weight": [R, S0],
        "norm.weight": [R, R],
        "scale": [R, R],
    }
    assert {name: list(tensor.placements) for name, tensor in placed.items()} == expected
    for name, tensor in placed.items():
        assert tensor.device_mesh == mesh
        assert tensor.tolist() == plain[name].tolist()


def test_two_products_placed_by_a_plan_are_those_of_one_device(mesh: DeviceMesh) -> None:
    plain = weights()
    x = dtorch.randn(6, 5)
    linear = dtorch.nn.functional.linear

    def forward(x: Any, w: dict[str, Any]) -> Any:
        inner = linear(x, w["layer.0.inner.weight"], w["layer.0.inner.bias"]).relu()
        return linear(inner, w["layer.0.outer.weight"], w["layer.0.outer.bias"])

    placed = distribute(plain, mesh, PLAN)
    result = forward(dtorch.Tensor(x, device_mesh=mesh, placements=[S0, R]), placed)
    assert result.placements == [S0, Partial()]
    difference = (result.full_tensor() - forward(x, plain)).abs().max().item()
    assert difference < 1e-6


def test_the_first_entry_that_matches_wins(mesh: DeviceMesh) -> None:
    one = {"a.b": dtorch.ones(6, 6), "a.c": dtorch.ones(6, 6), "B.c": dtorch.ones(6, 6)}
    placed = distribute(one, mesh, {"a.b": {"tp": S1, "dp": S0}, "[ab].?": [S1, R], "*": {-1: S0}})
    assert [list(t.placements) for t in placed.values()] == [[S0, S1], [S1, R], [R, S0]]


def test_dims_may_count_from_the_end_and_meshes_have_no_names() -> None:
    mesh = init_device_mesh("cpu", (2, 2))
    placed = distribute({"w": dtorch.ones(4, 6)}, mesh, {"w": {0: Shard(-1), 1: Partial()}})
    assert placed["w"].placements == [S1, Partial()]
    assert placed["w"].full_tensor().tolist() == dtorch.ones(4, 6).tolist()
    assert distribute({"w": dtorch.ones(4)}, mesh, {"w": column_wise(1)})["w"].placements == [R, S0]


def test_no_plan_replicates_and_a_plain_mesh_is_the_cpu() -> None:
    mesh = init_device_mesh("cpu", 2)
    w = dtorch.ones(4)
    placed = distribute({"w": w}, mesh)["w"]
    assert placed.placements == [R]
    w.add_(1)  # every device has its own bytes
    assert placed.tolist() == [1] * 4
    assert distribute({"w": placed}, DeviceMesh("cpu"))["w"].tolist() == [1] * 4


def test_tied_tensors_remain_one(mesh: DeviceMesh) -> None:
    w = dtorch.ones(6, 6)
    placed = distribute({"a": w, "b": w, "c": w}, mesh, {"c": {"tp": S0}})
    assert placed["a"] is placed["b"] and placed["a"] is not placed["c"]


def test_from_mesh_to_mesh(mesh: DeviceMesh) -> None:
    first = distribute({"w": dtorch.arange(35).view(7, 5)}, mesh, {"w": [S0, S1]})
    second = distribute(first, init_device_mesh("cpu", 4), {"w": [S1]})
    assert second["w"].tolist() == dtorch.arange(35).view(7, 5).tolist()


def test_weights_may_still_be_on_their_way(mesh: DeviceMesh, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        w = {"w": dtorch.arange(700).view(70, 10)}
        await dtorch.save_safetensors(w, tmp_path / "w", metadata={"step": "3"})
        placed = distribute(dtorch.load_safetensors(tmp_path / "w"), mesh, {"w": [S0, S1]})
        assert placed.metadata == {"step": "3"}
        assert await placed is placed
        assert placed["w"].tolist() == w["w"].tolist()
        late = distribute({"w": _C._hold(dtorch.ones(6), 0.05)}, mesh, {"w": {"tp": S0}})
        assert (await (late["w"] + 1)).tolist() == [2.0] * 6

    run(main())


@pytest.mark.parametrize(
    ("plan", "error", "text"),
    [
        ({"layer.0.iner.*": column_wise("tp")}, ValueError,
         r"plan entry 'layer.0.iner.\*' matches no tensor; similar names: layer.0.inner"),
        ({"*": [R, R], "words.*": [R, S0]}, ValueError,
         r"'words.\*' is never used: .* \('\*' takes 'words.weight'\)"),
        ({"words.*": {"pp": S0}}, ValueError,
         r"'words.\*': no mesh dim 'pp': the mesh cpu\(2x3\) has the dims dp, tp"),
        ({"words.*": column_wise(2)}, ValueError, "no mesh dim 2"),
        ({"words.*": [S0]}, ValueError,
         "'words.weight': placements must have one entry for each of the 2 dims"),
        ({"*.bias": {"dp": S1}}, ValueError,
         r"'\*.bias', tensor 'layer.0.inner.bias': .*Shard\(1\).*the tensor has 1 dimensions"),
        ({"scale": column_wise("tp")}, ValueError, "tensor 'scale': .*0 dimensions"),
        ({"words.*": "column"}, TypeError, "must be a dict by mesh dim, a list .* not 'column'"),
        ({"words.*": S0}, TypeError, "must be a dict by mesh dim"),
        ({"words.*": {"tp": "S0"}}, TypeError, "'words.weight': .*must be Shard, Replicate"),
        ({3: [R, R]}, TypeError, "patterns are strings, not 3"),
        ([("words.*", [R, S0])], TypeError, "a plan is a dict of name patterns, not list"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_plan_is_said(
    mesh: DeviceMesh, plan: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        distribute(weights(), mesh, plan)
    assert str(caught.value).startswith("distribute(): ")


def test_wrong_arguments(mesh: DeviceMesh) -> None:
    with pytest.raises(TypeError, match="mesh must be a DeviceMesh, not str"):
        distribute({}, "cpu")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"'w' must be a dtorch\.Tensor, not int"):
        distribute({"w": 3}, mesh)
