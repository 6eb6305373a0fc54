"""Tensor.redistribute and its kin as users call them: defaults, names, errors, plans."""

from __future__ import annotations

import asyncio

import dtorch
import pytest
from dtorch import _C
from dtorch.distributed_spec import (
    DeviceMesh,
    Partial,
    Replicate,
    Shard,
    explain,
    init_device_mesh,
    redistribute_memory,
)

R = Replicate()


pytestmark = pytest.mark.usefixtures("simulated")


@pytest.fixture
def mesh() -> DeviceMesh:
    return init_device_mesh("cuda", (2, 2), mesh_dim_names=["dp", "tp"])


@pytest.fixture
def x(mesh: DeviceMesh) -> dtorch.Tensor:
    return dtorch.arange(24.0).reshape(4, 6).redistribute(mesh, [Shard(0), R])


VALUE = [[6.0 * i + j for j in range(6)] for i in range(4)]


def test_placements_on_the_same_mesh(mesh, x):
    y = x.redistribute(placements=[R, Shard(-1)])
    assert y.placements == [R, Shard(1)] and y.device_mesh == mesh
    assert y.to_local(1).tolist() == [row[3:] for row in VALUE]
    assert y.full_tensor().tolist() == VALUE
    assert x.redistribute(mesh, (Shard(0), R)) is x
    assert x.redistribute(placements=[Shard(0), R]) is x


def test_a_mesh_alone_replicates(x):
    other = init_device_mesh("cuda", 3)
    y = x.redistribute(other)
    assert y.placements == [R] and y.device_mesh == other
    assert y.to_local(2).tolist() == VALUE
    cpu = DeviceMesh("cpu", [0, 1])
    z = x.redistribute(device_mesh=cpu, placements=[Shard(1)])
    assert z.device.type == "cpu" and z.to_local(1).tolist() == [row[3:] for row in VALUE]


def test_to_the_cpu_alone_and_back(mesh, x):
    whole = x.redistribute(DeviceMesh("cpu"))
    assert _C.dist_spec(whole) is None and whole.tolist() == VALUE
    assert whole.redistribute(DeviceMesh("cpu")) is whole
    assert whole.redistribute(placements=[R]) is whole
    again = whole.redistribute_like(x)
    assert again.placements == x.placements and again.tolist() == VALUE


def test_like_another_shape(mesh, x):
    y = dtorch.zeros(5, device_mesh=mesh).redistribute_like(x)
    assert y.placements == [Shard(0), R] and y.to_local(3).shape == (2,)
    assert x.redistribute_like(dtorch.zeros(2)).tolist() == VALUE
    last = dtorch.zeros(2, 2, 2, device_mesh=mesh, placements=[R, Shard(2)])
    with pytest.raises(ValueError, match=r"placements\[1\] is Shard\(2\).*2 dimensions"):
        x.redistribute_like(last)


def test_by_dict(mesh, x):
    assert x.redistribute_by_dict(placements_dict={"tp": Shard(1)}).placements == [
        Shard(0),
        Shard(1),
    ]
    y = x.redistribute_by_dict(placements_dict={"tp": Shard(1)}, default_placement_mode="replicate")
    assert y.placements == [R, Shard(1)] and y.tolist() == VALUE
    both = {"dp": R, "tp": Partial()}
    z = x.redistribute_by_dict(mesh, both, "raise_error")
    assert z.placements == [R, Partial()] and z.full_tensor().tolist() == VALUE
    assert x.redistribute_by_dict(placements_dict={}) is x


def test_by_dict_keeps_by_name(x):
    turned = init_device_mesh("cuda", (3, 2), mesh_dim_names=["tp", "dp"])
    y = x.redistribute_by_dict(turned, {"tp": Shard(1)})
    assert y.placements == [Shard(1), Shard(0)] and y.tolist() == VALUE
    other = init_device_mesh("cuda", (2, 2), mesh_dim_names=["dp", "ep"])
    with pytest.raises(ValueError, match="nothing to keep for mesh dim 'ep'"):
        x.redistribute_by_dict(other, {"dp": R})


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: x.redistribute(), TypeError, "give device_mesh, placements, or both"),
        (lambda x: x.redistribute("cuda"), TypeError, "device_mesh must be a DeviceMesh or None"),
        (lambda x: x.redistribute(placements=Shard(0)), TypeError, "placements must be a sequence"),
        (lambda x: x.redistribute(placements=[R, 0]), TypeError, r"placements\[1\] must be Shard"),
        (lambda x: x.redistribute(placements=[R]), ValueError, "each of the 2 dims .* got 1"),
        (lambda x: x.redistribute(placements=[R, Shard(2)]), ValueError, r"Shard\(2\)"),
        (lambda x: x.redistribute(placements=[R, Shard(-3)]), ValueError, r"Shard\(-3\)"),
        (
            lambda x: x.redistribute(placements=[Partial("min"), Partial("max")]),
            ValueError,
            "whose order matters",
        ),
        (
            lambda x: x.int().redistribute(placements=[R, Partial("avg")]),
            dtorch.PlacementError,
            "needs a tensor of floats, not of int32",
        ),
        (lambda x: x.redistribute_like([1]), TypeError, "takes a Tensor, not list"),
        (lambda x: x.redistribute_by_dict(), TypeError, "placements_dict must map .* NoneType"),
        (
            lambda x: x.redistribute_by_dict(placements_dict={"pp": R}),
            ValueError,
            "names 'pp', but the dims of .* are 'dp', 'tp'",
        ),
        (
            lambda x: x.redistribute_by_dict(placements_dict={"tp": 1}),
            TypeError,
            r"placements\[1\] must be Shard",
        ),
        (
            lambda x: x.redistribute_by_dict(placements_dict={}, default_placement_mode="drop"),
            ValueError,
            "must be 'keep', 'replicate' or 'raise_error', not 'drop'",
        ),
        (
            lambda x: x.redistribute_by_dict(
                placements_dict={"dp": R}, default_placement_mode="raise_error"
            ),
            ValueError,
            "says nothing of mesh dim 'tp'",
        ),
        (
            lambda x: x.redistribute_by_dict(init_device_mesh("cuda", 2), {}),
            ValueError,
            "have no names",
        ),
        (lambda x: explain(3, placements=[R]), TypeError, "takes a Tensor, not int"),
        (lambda x: redistribute_memory(-1), ValueError, "number of bytes or None, not -1"),
        (lambda x: redistribute_memory(True), ValueError, "number of bytes or None, not True"),
    ],
)
def test_errors_name_argument_value_and_what_is_legal(x, call, error, text):
    with pytest.raises(error, match=text):
        call(x)


def test_explain_says_and_does_nothing(mesh, x):
    before = dtorch.memory_stats()["live_bytes"]
    plan = explain(x, placements=[R, Shard(1)])
    assert dtorch.memory_stats()["live_bytes"] == before
    assert [step.name for step in plan.steps] == ["cut", "all_gather"]
    assert plan.steps[1].mesh_dims == (0,) and plan.steps[1].bytes == plan.bytes == 24
    assert plan.steps[1].device_mesh == mesh and plan.steps[1].placements == [R, Shard(1)]
    assert plan.memory == 0 and plan.pieces == 1
    text = str(plan)
    assert "all_gather along mesh dim 0 (dp), groups of 2 -> [R, S1]: 24 bytes" in text
    assert "nothing to do" in str(explain(x, placements=[Shard(0), R]))
    assert explain(x, DeviceMesh("cpu")).steps[-1].name == "exchange"


def test_memory_limit(mesh):
    p = dtorch.ones(64, 8, 8, device_mesh=mesh, placements=[Partial(), Shard(1)])
    assert redistribute_memory(2048) is None
    try:
        plan = explain(p, placements=[R, R])
        assert plan.pieces == 4 and plan.memory == 2048, str(plan)
        assert "in 4 pieces along dim 0" in str(plan)
        whole = p.redistribute(placements=[R, R])
        assert whole.to_local(3).tolist() == p.full_tensor().tolist()
    finally:
        assert redistribute_memory(None) == 2048


# ---- implicit ------------------------------------------------------------------------------------


def test_implicit_redistribute(mesh):
    a = dtorch.ones(4, 4, device_mesh=mesh, placements=[Shard(0), R])
    b = dtorch.ones(4, 4, device_mesh=mesh, placements=[Shard(1), R])
    with pytest.raises(dtorch.PlacementError):
        a + b
    with dtorch.implicit_redistribute() as outer:
        with dtorch.implicit_redistribute() as inner:
            assert (a + b).full_tensor().tolist() == [[2.0] * 4] * 4
        assert inner.count == 1 and outer.count == 0
        (a + b) * b
        assert outer.count >= 1
        assert (a + a).placements == a.placements
    with pytest.raises(dtorch.PlacementError):
        a + b


def test_implicit_redistribute_of_a_list(mesh):
    x = dtorch.arange(24.0).reshape(4, 6)
    rows = x.redistribute(mesh, [Shard(0), R])
    part = x.redistribute(mesh, [Partial(), R])
    columns = x.redistribute(mesh, [Shard(1), R])
    for api, want in (
        (lambda v: dtorch.cat(v, 1), [row * 3 for row in VALUE]),
        (lambda v: dtorch.cat(v, 0), VALUE * 3),
        (lambda v: dtorch.stack(v), [VALUE] * 3),
    ):
        with pytest.raises(dtorch.PlacementError):
            api([rows, part, columns])
        with dtorch.implicit_redistribute() as inserted:
            y = api([rows, part, columns])
        assert y.full_tensor().tolist() == want
        assert 1 <= inserted.count <= 3
        assert part.placements == (Partial(), R) and columns.placements == (Shard(1), R)
    with dtorch.implicit_redistribute() as inserted:
        many = dtorch.cat([rows, part] * 100, 1)  # more than any buffer of the core's own
    assert inserted.count == 100
    assert many.full_tensor().tolist() == [row * 200 for row in VALUE]


def test_an_implicit_redistribute_never_moves_what_is_written_to(mesh):
    part = dtorch.ones(4, 6, device_mesh=mesh, placements=[Partial(), R])
    with dtorch.implicit_redistribute() as inserted:
        with pytest.raises(dtorch.PlacementError):
            part.relu_()
        rows = dtorch.ones(4, 6, device_mesh=mesh, placements=[Shard(0), R])
        rows.mul_(part)
    assert inserted.count == 1 and rows.placements == (Shard(0), R)
    assert rows.full_tensor().tolist() == [[1.0] * 6] * 4


def test_implicit_redistribute_belongs_to_the_context(mesh, run):
    a = dtorch.ones(4, device_mesh=mesh, placements=[Shard(0), R])
    b = dtorch.ones(4, device_mesh=mesh, placements=[R, Shard(0)]).redistribute(
        placements=[Partial(), R]
    )

    async def inside(entered, left):
        with dtorch.implicit_redistribute() as block:
            entered.set()
            await left.wait()
            assert (await (a * b)).full_tensor().tolist() == [1.0] * 4
            assert block.count == 1

    async def main():
        entered, left = asyncio.Event(), asyncio.Event()
        task = asyncio.ensure_future(inside(entered, left))
        await entered.wait()
        with pytest.raises(dtorch.PlacementError, match="illegal placements"):
            a * b
        left.set()
        await task
        with pytest.raises(dtorch.PlacementError):
            a * b

    run(main())
