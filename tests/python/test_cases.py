"""Faults that users of such systems reported, of the kinds that no other file covers.

Cases 8 to 13 (awaiting) are in test_await.py, test_future.py and test_wait.py, case 19 and the
saving part of 22 in test_safetensors.py.
"""

from __future__ import annotations

import asyncio
import math

import dtorch
import pytest

pytestmark = pytest.mark.notorch


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
