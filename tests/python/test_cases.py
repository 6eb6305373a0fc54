"""Faults that users of such systems reported, of the kinds that no other file covers.

Cases 8 to 13 (awaiting) are in test_await.py, test_future.py and test_wait.py, case 19 and the
saving part of 22 in test_safetensors.py.
"""

from __future__ import annotations

import asyncio
import math

import dtorch
import pytest
from dtorch.distributed_spec import DeviceMesh, Partial, Replicate, Shard, init_device_mesh
from pending import hold, meanwhile, patient

pytestmark = pytest.mark.notorch


@pytest.fixture
def four(simulated: None) -> DeviceMesh:
    """Four simulated devices in a row."""
    return init_device_mesh("cpu", 4)


def rows(t: dtorch.Tensor) -> list[int]:
    """How many rows each of four devices holds."""
    return [t.to_local(k).shape[0] for k in range(4)]


def test_case_1_uneven_round_trip(four: DeviceMesh) -> None:
    whole = dtorch.arange(50.0).view(5, 10)
    x = dtorch.Tensor(whole, device_mesh=four, placements=[Shard(0)])
    assert rows(x) == [2, 2, 1, 0]
    assert x.shape == x.full_tensor().shape == (5, 10)
    assert x.full_tensor().tolist() == whole.tolist()
    back = x.redistribute(placements=[Replicate()]).redistribute(placements=[Shard(0)])
    assert rows(back) == [2, 2, 1, 0]
    assert back.tolist() == whole.tolist()


def test_case_2_parts_of_other_sizes(four: DeviceMesh) -> None:
    parts = [dtorch.full((n, 2), float(k)) for k, n in enumerate((3, 3, 3, 1))]
    x = dtorch.Tensor.from_local(parts, four, [Shard(0)])
    assert x.shape == (10, 2)
    assert x.tolist() == [[k, k] for k in (0, 0, 0, 1, 1, 1, 2, 2, 2, 3)]
    wide = [dtorch.full((2, n), float(k)) for k, n in enumerate((2, 3, 4, 5))]
    y = dtorch.Tensor.from_local(wide, four, [Shard(1)])
    assert y.shape == (2, 14)
    row = [0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3]
    assert y.tolist() == [row, row]
    assert y.full_tensor().tolist() == [row, row]


def test_case_3_partial_and_a_number(four: DeviceMesh) -> None:
    total = dtorch.arange(10.0, device_mesh=four, placements=[Shard(0)]).sum()
    assert total.placements == [Partial("sum")]
    assert (total + 10).item() == 55
    assert (10 + total).item() == 55
    assert (total - 5).item() == 40
    assert (5 - total).item() == -40
    assert Partial("sum") != Partial("avg")
    assert (-5 * total).item() == -225
    assert (2 * total).item() == 90
    assert total.item() == 45


def test_case_4_a_view_that_is_no_chunk_layout(four: DeviceMesh) -> None:
    whole = dtorch.arange(6 * 256.0).view(6, 256)
    x = dtorch.Tensor(whole, device_mesh=four, placements=[Shard(0)])
    with pytest.raises(dtorch.PlacementError, match="view"):
        x.view(-1)
    flat = x.redistribute(placements=[Replicate()]).view(-1)
    assert flat.shape == (6 * 256,)
    assert flat.tolist() == whole.view(-1).tolist()


def test_case_5_from_a_sum_to_a_mean(four: DeviceMesh) -> None:
    two = DeviceMesh("cpu", [0, 1])
    parts = [dtorch.full((3,), 1.0), dtorch.full((3,), 3.0)]
    x = dtorch.Tensor.from_local(parts, two, [Partial("sum")])
    assert x.tolist() == [4.0] * 3
    try:
        mean = x.redistribute(placements=[Partial("avg")])
    except (dtorch.PlacementError, ValueError, NotImplementedError):
        return
    assert mean.placements == [Partial("avg")]
    assert mean.tolist() == [4.0] * 3


@pytest.mark.parametrize("op", ["sum", "product"])
def test_case_5_parts_are_not_cast_one_by_one(four: DeviceMesh, op: str) -> None:
    """Half and half are one, but neither is one as an integer."""
    two = DeviceMesh("cpu", [0, 1])
    x = dtorch.Tensor.from_local([dtorch.full((3,), 0.5)] * 2, two, [Partial(op)])
    y = dtorch.zeros(3, dtype="int64", device_mesh=two, placements=[Partial(op)])
    with pytest.raises(dtorch.PlacementError):
        y.copy_(x)
    with pytest.raises(dtorch.PlacementError):
        y[:] = x
    y.copy_(x.redistribute(placements=[Replicate()]))
    assert y.tolist() == [int(v) for v in x.tolist()]


def test_case_3_a_bool_beside_a_partial_of_bools(four: DeviceMesh) -> None:
    two = DeviceMesh("cpu", [0, 1])
    parts = [dtorch.tensor([True, False, False]), dtorch.tensor([False, False, True])]
    x = dtorch.Tensor.from_local(parts, two, [Partial("sum")]) + False
    assert [x.to_local(k).dtype for k in range(2)] == [x.dtype] * 2
    assert x.tolist() == [True, False, True]


def test_case_6_an_empty_part_is_no_error(four: DeviceMesh) -> None:
    x = dtorch.ones(3, 3, device_mesh=four, placements=[Shard(1)])
    assert x.max().item() == 1
    assert x.amax().item() == 1
    assert x.min().item() == 1
    assert x.sum().item() == 9


@patient
def test_case_7_use_right_after_a_late_redistribute(four: DeviceMesh) -> None:
    whole = dtorch.arange(8.0)
    x = dtorch.Tensor(whole, device_mesh=four, placements=[Shard(0)])
    with meanwhile(0.2):  # the value is waited for, the calls are not
        for k in range(4):
            hold(x.to_local(k), 0.2)
        y = x.redistribute(placements=[Replicate()])
        z = y.to_local() + 1
        assert not z.is_ready()
    assert z.tolist() == [float(k + 1) for k in range(8)]


@pytest.mark.parametrize("n", [5, 1_000, 3_000_000])
def test_case_20_shift_by_a_clone(n: int) -> None:
    """x[1:] = x[:-1].clone() shifts, whatever lane the copies take."""
    x = dtorch.arange(1, n + 1, dtype="int64")
    x[1:] = x[:-1].clone()
    got = x.tolist()
    assert got[:5] == [1, 1, 2, 3, 4]
    assert got[-1] == n - 1
    assert sum(got) == n * (n - 1) // 2 + 1


@pytest.mark.parametrize("n", [5, 2_000_000])
def test_case_20_overlap_without_a_clone_is_refused(n: int) -> None:
    x = dtorch.arange(n, dtype="float32")
    with pytest.raises(RuntimeError, match="single memory location"):
        x[1:].add_(x[:-1])
    assert x[: n - 1][-1].item() == n - 2  # nothing was written


def test_case_20_expanded_target() -> None:
    with pytest.raises(RuntimeError, match="more than one element"):
        dtorch.ones(1).expand(3).cos_()


def test_case_20_pending() -> None:
    """The same while everything is still queued: order holds through views."""

    async def main() -> list[float]:
        w = dtorch.ones(400, 400) @ dtorch.ones(400, 400)  # pending for a while
        x = w[0]
        x[1:] = x[:-1].clone() + 1
        x[0].fill_(7)
        await w
        return [w[0, 0].item(), w[0, 1].item(), w[0, 399].item(), w[1, 1].item()]

    assert asyncio.run(main()) == [7.0, 401.0, 401.0, 400.0]


def test_case_21_argmax_of_nan() -> None:
    assert dtorch.tensor([math.nan, 4.6]).argmax().item() == 0
    assert dtorch.tensor([4.6, math.nan]).argmin().item() == 1


def test_case_21_half_mean_does_not_overflow() -> None:
    x = dtorch.tensor([40000.0] * 3, dtype="float16")
    assert x.mean().item() == 40000.0
    assert x.sum().item() == math.inf  # does not fit a half: as in torch


def test_case_21_cumsum_of_uint8() -> None:
    got = dtorch.ones(300, dtype="uint8").cumsum(0)
    assert got[-1].item() == 300
    assert got.tolist() == list(range(1, 301))


def test_case_22_dlpack_strides() -> None:
    numpy = pytest.importorskip("numpy")
    base = numpy.arange(77, dtype="float32").reshape(1, 77)
    t = dtorch.from_dlpack(base)
    assert tuple(t.shape) == (1, 77)
    assert t.stride(-1) == 1
    back = numpy.from_dlpack(t)
    assert back.shape == (1, 77)
    assert back.strides[-1] == 4
    assert (back == base).all()


def test_case_22_fortran_order() -> None:
    numpy = pytest.importorskip("numpy")
    base = numpy.asfortranarray(numpy.arange(12.0).reshape(3, 4))
    t = dtorch.from_numpy(base)
    assert t.stride() == (1, 3)
    assert t.tolist() == base.tolist()
    assert dtorch.tensor(base).tolist() == base.tolist()
