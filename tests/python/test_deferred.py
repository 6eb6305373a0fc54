"""Results whose size depends on values: the call returns at once, await gives the shape.

The values themselves are compared with torch in test_ops_torch.py; here inputs are pending, so that
what returns without its sizes can be told from what has to wait for them.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import importlib.util
import logging
import pickle
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import dtorch
import pending
import pytest
from dtorch import _C, _creation, _functions
from pending import FAILURE, Stalled, meanwhile, patient

pytestmark = pytest.mark.notorch

Run = Callable[[Any], Any]

LONG = 0.1
"""Seconds that inputs are pending: far longer than a call, which takes microseconds."""


def hold(tensor: Any, seconds: float = LONG) -> Any:
    return pending.hold(tensor, seconds)


def numbers() -> Any:
    """Pending: [[0, 1, 2, 0], [3, 0, 1, 1], [0, 2, 2, 3]] as float32."""
    return hold(dtorch.tensor([[0.0, 1, 2, 0], [3, 0, 1, 1], [0, 2, 2, 3]]))


def rows() -> Any:
    """A pending mask of three."""
    return hold(dtorch.tensor([True, False, True]))


def broken() -> Any:
    """Pending, then failed: three bools that an integer division by zero should have made."""
    zero = hold(dtorch.zeros(3, dtype="int64"))
    return dtorch.tensor([1, 2, 3]) // zero > 0


@pytest.fixture(autouse=True)
def policy() -> Iterator[None]:
    """Outside the tests of policies, a call that waits inside a loop is an error."""
    before = dtorch.set_blocking_policy("error")
    yield
    dtorch.set_blocking_policy(before)


X = dtorch.arange(12, dtype="float32").reshape(3, 4)

# name -> (makes deferred tensors of pending inputs, their values)
CALLS: dict[str, tuple[Callable[[], Any], Any]] = {
    "nonzero": (
        lambda: dtorch.nonzero(numbers()),
        [[0, 1], [0, 2], [1, 0], [1, 2], [1, 3], [2, 1], [2, 2], [2, 3]],
    ),
    "nonzero as tuple": (
        lambda: numbers().nonzero(as_tuple=True),
        ([0, 0, 1, 1, 1, 2, 2, 2], [1, 2, 0, 2, 3, 1, 2, 3]),
    ),
    "where": (lambda: dtorch.where(rows()), ([0, 2],)),
    "argwhere": (lambda: dtorch.argwhere(rows()), [[0], [2]]),
    "masked_select": (
        lambda: dtorch.masked_select(X, rows().unsqueeze(1)),
        [0.0, 1, 2, 3, 8, 9, 10, 11],
    ),
    "masked_select of a pending tensor": (
        lambda: numbers().masked_select(dtorch.tensor([True, True, False, False])),
        [0.0, 1, 3, 0, 0, 2],
    ),
    "x[mask]": (lambda: X[rows()], [[0.0, 1, 2, 3], [8, 9, 10, 11]]),
    "x[mask, 1:3]": (lambda: X[rows(), 1:3], [[1.0, 2], [9, 10]]),
    "x.t()[:, mask]": (lambda: X.t()[:, rows()], [[0.0, 8], [1, 9], [2, 10], [3, 11]]),
    "x[full mask]": (lambda: X[numbers() > 1], [2.0, 4, 9, 10, 11]),
    "x[bool]": (lambda: X[0, hold(dtorch.tensor(False))], []),
    "x[number of a mask]": (lambda: X[0][hold(dtorch.tensor(True))], [[0.0, 1, 2, 3]]),
    "unique": (lambda: dtorch.unique(numbers()), [0.0, 1, 2, 3]),
    "unique with all": (
        lambda: numbers().unique(return_inverse=True, return_counts=True),
        ([0.0, 1, 2, 3], [[0, 1, 2, 0], [3, 0, 1, 1], [0, 2, 2, 3]], [4, 3, 3, 2]),
    ),
    "unique_consecutive": (
        lambda: dtorch.unique_consecutive(numbers(), return_counts=True),
        ([0.0, 1, 2, 0, 3, 0, 1, 0, 2, 3], [1, 1, 1, 1, 1, 1, 2, 1, 2, 1]),
    ),
}


def as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def plain(result: Any) -> Any:
    """The values, once they are there."""
    if isinstance(result, tuple):
        return tuple(t.tolist() for t in result)
    return result.tolist()


@pytest.mark.parametrize("name", CALLS)
@patient
def test_call_returns_at_once_and_await_gives_the_shape(name: str, run: Run) -> None:
    call, want = CALLS[name]

    async def main() -> Any:
        with meanwhile(LONG):
            result = call()  # would raise BlockingError if it waited
            results = as_tuple(result)
            assert not any(t.is_ready() for t in results)
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticker = asyncio.ensure_future(tick())
        for t in results:
            assert await t is t
        ticker.cancel()
        if ticks < 2:  # the loop runs meanwhile
            raise Stalled
        # No wait from here on: the policy would forbid it.
        for t in results:
            assert t.numel() == len(list(_flat(t.tolist())))
            assert t.is_ready()
        return result

    assert plain(run(main())) == want


def _flat(values: Any) -> Iterator[Any]:
    if isinstance(values, list):
        for value in values:
            yield from _flat(value)
    else:
        yield values


@pytest.mark.parametrize("name", CALLS)
def test_ready_inputs_give_ready_results(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the inline lane nothing is deferred when the call returns."""
    call, want = CALLS[name]
    monkeypatch.setattr(sys.modules[__name__], "hold", lambda tensor, seconds=0: tensor)
    result = call()
    assert all(t.is_ready() for t in as_tuple(result))
    assert plain(result) == want


@patient
def test_dtype_and_rank_are_known_at_once(run: Run) -> None:
    async def main() -> None:
        with meanwhile(LONG):
            places = numbers().nonzero()
            picked = X[rows()]
            assert (places.ndim, places.dim(), places._dtype_name) == (2, 2, "int64")
            assert (picked.ndim, picked._dtype_name, picked.element_size()) == (2, "float32", 4)
            assert picked.is_floating_point()
            assert not places.is_ready()
        assert len(numbers().nonzero(as_tuple=True)) == 2
        await dtorch.gather(places, picked)

    run(main())


# ---- blocking reads ------------------------------------------------------------------------------

READS: dict[str, Callable[[Any], Any]] = {
    "shape": lambda t: t.shape,
    "size()": lambda t: t.size(0),
    "stride()": lambda t: t.stride(),
    "numel()": lambda t: t.numel(),
    "nbytes": lambda t: t.nbytes,
    "is_contiguous()": lambda t: t.is_contiguous(),
    "len": len,
    "bool": bool,
    "repr": repr,
    "iteration": list,
    "tolist": lambda t: t.tolist(),
    "item": lambda t: t.item(),
    "T": lambda t: t.T,
    "index": lambda t: t[0],
    "assignment": lambda t: t.__setitem__(0, 1),
    "assignment of it": lambda t: X.clone().__setitem__(0, t),
    "index by it": lambda t: X[t.to("int64")],
    "operator": lambda t: t + 1,
    "operator, right": lambda t: X + t,
    "in place": lambda t: t.add_(1),
    "unary": lambda t: -t,
    "comparison": lambda t: t == t,
    "contains": lambda t: 1 in t,
    "method": lambda t: t.exp(),
    "function": lambda t: dtorch.sum(t),
    "list argument": lambda t: dtorch.cat([t, t]),
    "out": lambda t: dtorch.add(X, X, out=t),
    "copy_": lambda t: X.clone().copy_(t),
    "tensor()": lambda t: dtorch.tensor([t]),
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "numpy": lambda t: t.numpy(),
    "dlpack": lambda t: t.__dlpack__(),
    "data_ptr": lambda t: t.data_ptr(),
    "nonzero of it": lambda t: t.nonzero(),
}


@pytest.mark.parametrize("read", READS)
@patient
def test_reads_block_by_the_policy(read: str, run: Run) -> None:
    if read == "numpy":
        pytest.importorskip("numpy")

    async def main() -> None:
        with meanwhile(LONG):
            t = X[rows()]
            with pytest.raises(dtorch.BlockingError):
                READS[read](t)
            assert not t.is_ready()
        assert (await t).shape == (2, 4)

    run(main())


@patient
def test_shape_waits_outside_a_loop() -> None:
    start = time.monotonic()
    with meanwhile(LONG):
        t = X[rows()]
        assert not t.is_ready()
    assert tuple(t.shape) == (2, 4)
    assert time.monotonic() - start > LONG / 2
    assert t.stride() == (4, 1)
    assert numbers().nonzero().stride() == (1, 8)  # columns, as torch has them


def test_shape_warns_once_for_a_call_site() -> None:
    dtorch.set_blocking_policy("warn")

    async def main() -> list[str]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(2):
                assert X[rows()].shape == (2, 4)
        return [str(w.message) for w in seen]

    (text,) = asyncio.run(main())
    assert text.startswith("Tensor.shape waits")


def test_shape_waits_silently_when_allowed(run: Run) -> None:
    dtorch.set_blocking_policy("allow")

    async def main() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert X[rows()].shape == (2, 4)
            assert (X[rows()] + 1).shape == (2, 4)

    run(main())


def sweep(run: Run, check: Callable[[Any], list[str]]) -> None:
    """Runs check on a tensor that stays pending meanwhile, and expects it to find nothing."""
    if importlib.util.find_spec("torch") is not None:
        dtorch.preload()  # not while the tensor waits

    async def main() -> None:
        with meanwhile(4.0), warnings.catch_warnings():
            t = X[hold(dtorch.tensor([True, False, True]), 4.0)]
            warnings.simplefilter("ignore")
            found = check(t)
            assert not found, " ".join(found)
            assert not t.is_ready(), "all of it happened before the tensor was computed"

    run(main())


# What is known of a deferred tensor at once, or does not look at sizes.
NEEDS_NO_SIZE = set(
    "__array_priority__ __await__ __class__ __copy__ __dict__ __dir__ __dlpack_device__ __doc__ "
    "__getstate__ __hash__ __init__ __init_subclass__ __iter__ __module__ __sizeof__ "
    "__subclasshook__ _base _dtype_name _version data device device_mesh dim dtype element_size "
    "grad grad_fn is_cpu is_floating_point is_leaf is_signed itemsize layout ndim ndimension "
    "placements requires_grad retain_grad set_ storage_offset to_torch_async type".split()
)


@patient
def test_no_attribute_hands_out_sizes_that_are_not_known(run: Run) -> None:
    """Every attribute and every method without arguments waits, raises, or needs no size."""

    def check(t: Any) -> list[str]:
        wrong = []
        for name in sorted(set(dir(dtorch.Tensor)) - NEEDS_NO_SIZE):
            try:
                value = getattr(t, name)
                if callable(value):
                    value = value()
            except (TypeError, ValueError, RuntimeError):  # BlockingError, too
                continue  # it waits, or wants arguments
            if value is not t and not (name.startswith("is_") and value is False):
                wrong.append(name)
        return wrong

    sweep(run, check)


FUNCTIONS_WITHOUT_SIZE = set("is_tensor is_complex is_floating_point positive as_tensor".split())


@patient
def test_no_function_takes_a_tensor_whose_size_is_not_known(run: Run) -> None:
    names = {*_C.functions, *_functions.FUNCTIONS, *_creation.FUNCTIONS} - FUNCTIONS_WITHOUT_SIZE

    def check(t: Any) -> list[str]:
        wrong = []
        for name in sorted(names):
            for args in ((t,), (t, t), (t, 0), (X, t), ([t],)):
                try:
                    value = getattr(dtorch, name)(*args)
                except (TypeError, ValueError, RuntimeError, IndexError, AttributeError):
                    continue  # BlockingError is a RuntimeError
                if value is not t:
                    wrong.append(f"{name}{tuple(type(a).__name__ for a in args)}")
        return wrong

    sweep(run, check)


# ---- failures ------------------------------------------------------------------------------------


def test_failure_of_the_producer(run: Run) -> None:
    async def main() -> None:
        picked = X[broken()]
        for _ in range(2):
            with pytest.raises(RuntimeError, match=FAILURE):
                await picked
        for read in (lambda: picked.shape, lambda: picked + 1, lambda: repr(picked)):
            with pytest.raises(RuntimeError, match=FAILURE):
                read()
        assert picked.ndim == 2
        with pytest.raises(RuntimeError, match=FAILURE):
            await dtorch.gather(X[rows()], picked)

    run(main())


def test_failure_of_a_ready_input() -> None:
    """The same, once the failure is known at the call."""
    mask = broken()
    with pytest.raises(RuntimeError, match=FAILURE):
        mask.tolist()
    for result in (X[mask], dtorch.nonzero(mask), *dtorch.where(mask), dtorch.unique(mask)):
        with pytest.raises(RuntimeError, match=FAILURE):
            _ = result.shape


def test_failure_reaches_to_torch_async(run: Run) -> None:
    pytest.importorskip("torch")
    dtorch.preload()
    dtorch.set_blocking_policy("allow")

    async def main() -> None:
        with pytest.raises(RuntimeError, match=FAILURE):
            await X[broken()].to_torch_async()

    run(main())


def test_unseen_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="dtorch"):
        picked = X[broken()]
        asyncio.run(dtorch.drain())
        del picked
        gc.collect()
        dtorch.tensor([1])  # a call empties the graveyard
    assert len([r for r in caplog.records if FAILURE in r.getMessage()]) == 1


# ---- assignment ----------------------------------------------------------------------------------


@patient
def test_assignment_through_a_pending_mask(run: Run) -> None:
    async def main() -> None:
        with meanwhile(LONG):
            x, y, z, w = (dtorch.zeros(3, 4) for _ in range(4))
            x[rows()] = 5
            y[rows()] = dtorch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8]])
            z[:, hold(dtorch.tensor([False, True, False, True]))] = dtorch.tensor([1.0, 2])
            w[numbers() > 1] = hold(dtorch.tensor([1.0, 2, 3, 4, 5]))
            assert not any(t.is_ready() for t in (x, y, z, w))
        await dtorch.gather(x, y, z, w)
        assert x.tolist() == [[5] * 4, [0] * 4, [5] * 4]
        assert y.tolist() == [[1, 2, 3, 4], [0] * 4, [5, 6, 7, 8]]
        assert z.tolist() == [[0, 1, 0, 2]] * 3
        assert w.tolist() == [[0, 0, 1, 0], [2, 0, 0, 0], [0, 3, 4, 5]]

    run(main())


def test_assignment_keeps_program_order(run: Run) -> None:
    """Reads before it see the old values, reads after it the new ones, also through views."""

    async def main() -> None:
        x = dtorch.arange(6).reshape(2, 3)
        mask = hold(dtorch.tensor([True, False]))
        before = x + 0
        picked_before = x[mask]
        x[mask] = dtorch.tensor([7, 8, 9])
        after = x + 0
        picked_after = x[mask]
        x[mask] = 1
        last = x.sum()
        results = await dtorch.gather(before, picked_before, after, picked_after, last)
        assert [t.tolist() for t in results] == [
            [[0, 1, 2], [3, 4, 5]],
            [[0, 1, 2]],
            [[7, 8, 9], [3, 4, 5]],
            [[7, 8, 9]],
            15,
        ]

    run(main())


def test_assignment_from_itself() -> None:
    x = dtorch.arange(6)
    mask = hold(dtorch.tensor([False, True, False, True, True, False]))
    x[mask] = x[:3]  # torch refuses this; here the values are read first
    assert x.tolist() == [0, 0, 2, 1, 2, 5]
    x[mask] = x[5:]
    assert x.tolist() == [0, 5, 2, 5, 5, 5]


@pytest.mark.parametrize("pending", [False, True])
def test_assignment_of_a_wrong_count_is_an_error_of_the_value(pending: bool) -> None:
    x = dtorch.zeros(3)
    mask = dtorch.tensor([True, False, True])
    x[hold(mask) if pending else mask] = dtorch.tensor([1.0, 2, 3])
    with pytest.raises(
        RuntimeError,
        match=r"shape mismatch: value tensor of shape \[3\] cannot be broadcast to indexing result "
        r"of shape \[2\]",
    ):
        x.tolist()


def test_assignment_of_wrong_sizes_is_an_error_at_once() -> None:
    x = dtorch.zeros(3, 4)
    with pytest.raises(RuntimeError, match=r"shape \[3\] .* result of shape \[\?, 4\]"):
        x[rows()] = dtorch.tensor([1.0, 2, 3])
    with pytest.raises(IndexError, match=r"The shape of the mask \[3\] at index 0 does not match"):
        x[:, rows()] = 1
    with pytest.raises(IndexError, match="too many indices"):
        x[hold(dtorch.ones(3, 4, 1, dtype="bool"))] = 1
    assert x.tolist() == [[0] * 4] * 3


def test_assignment_of_a_deferred_value_waits() -> None:
    x, y = dtorch.zeros(3, 4), X.clone()
    x[rows()] = y[rows()]
    assert x.tolist() == [[0, 1, 2, 3], [0] * 4, [8, 9, 10, 11]]


# ---- many, dropped, shared -----------------------------------------------------------------------


def test_many_in_flight(run: Run) -> None:
    async def main() -> None:
        masks = [hold(dtorch.arange(20) % (k + 2) == 0, 0.05) for k in range(200)]
        x = dtorch.arange(20)
        picked = [x[m] for m in masks]
        counted = [m.nonzero() for m in masks]
        await dtorch.gather(*picked, *counted)
        for k, (p, c) in enumerate(zip(picked, counted, strict=True)):
            want = [v for v in range(20) if v % (k + 2) == 0]
            assert p.tolist() == want
            assert c.tolist() == [[v] for v in want]

    run(main())


def test_awaited_by_many(run: Run) -> None:
    async def main() -> None:
        t = X[rows()]

        async def ask() -> tuple[int, ...]:
            return tuple((await t).shape)

        assert await asyncio.gather(*(ask() for _ in range(50))) == [(2, 4)] * 50

    run(main())


@patient
def test_cancelled_await_leaves_it_usable(run: Run) -> None:
    async def main() -> None:
        with meanwhile(LONG):
            t = X[rows()]
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(_awaits(t), 0.01)
        assert tuple((await t).shape) == (2, 4)

    run(main())


async def _awaits(t: Any) -> Any:
    return await t


def test_dropped_while_pending() -> None:
    """Neither a crash nor a leak: what is left are the objects that were there before."""

    def drop_some() -> None:
        masks = [hold(dtorch.tensor([True, False, True]), 0.02) for _ in range(20)]
        results = [X[m] for m in masks] + [m.nonzero() for m in masks]
        results += [u for m in masks for u in m.unique(return_inverse=True, return_counts=True)]
        del results, masks
        asyncio.run(dtorch.drain())
        dtorch.tensor([1])

    drop_some()
    gc.collect()
    before = _C.memory_stats()
    for _ in range(5):
        drop_some()
    gc.collect()
    after = _C.memory_stats()
    assert after["live_bytes"] <= before["live_bytes"]
    assert after["objects"] <= before["objects"] + 8  # caches may have grown a little


def test_handles_that_share_it(run: Run) -> None:
    async def main() -> None:
        t = X[rows()]
        other, third, fourth = copy.copy(t), t.data, dtorch.Tensor(t)
        await t
        for handle in (t, other, third, fourth):
            assert tuple(handle.shape) == (2, 4)
        other[0] = 0
        assert t.tolist() == [[0] * 4, [8, 9, 10, 11]]

    run(main())


@patient
def test_handle_that_gets_another_tensor_while_its_size_is_awaited() -> None:
    with meanwhile(0.3):
        t = X[hold(dtorch.tensor([True, False, True]), 0.3)]
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append(tuple(t.shape)))
        thread.start()
        time.sleep(0.05)
        t.set_(dtorch.zeros(7))
    thread.join()
    assert seen == [(7,)]


def test_read_by_several_threads() -> None:
    t = X[hold(dtorch.tensor([True, False, True]), 0.1)]
    seen: list[Any] = []
    threads = [threading.Thread(target=lambda: seen.append((t * 2).tolist())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [[[0, 2, 4, 6], [16, 18, 20, 22]]] * 4


def test_in_place_ops_on_a_settled_result() -> None:
    t = X[rows()]
    t += 1
    t[0] = 0
    t[hold(dtorch.tensor([False, True]))] = 2
    view = t[1]
    assert t.tolist() == [[0] * 4, [2] * 4]
    assert view.tolist() == [2] * 4
    assert t.reshape(-1).as_strided((2,), (4,)).tolist() == [0, 2]


@patient
def test_to_torch_async_without_a_wait(run: Run) -> None:
    torch = pytest.importorskip("torch")
    dtorch.preload()

    async def main() -> None:
        with meanwhile(LONG):
            t = X[rows()]
            places = numbers().nonzero()
            empty = X[hold(dtorch.zeros(3, dtype="bool"))]
            futures = [r.to_torch_async() for r in (t, places, empty)]
            assert not any(f.done() for f in futures)
        got = [await f for f in futures]
        t[0] = -1  # a later write does not show in the copy
        assert [tuple(g.shape) for g in got] == [(2, 4), (8, 2), (0, 4)]
        assert torch.equal(got[0], torch.arange(12.0).reshape(3, 4)[[0, 2]])
        assert got[1].T[0].tolist() == [0, 0, 1, 1, 1, 2, 2, 2]

    run(main())


def test_large_results() -> None:
    """Above what the inline lane takes, split over the pool; against a list comprehension."""
    n = 300_000
    x = dtorch.arange(n).reshape(300, 1000)
    mask = x % 7 == 3
    want = [v for v in range(n) if v % 7 == 3]
    assert x[mask].tolist() == want
    assert mask.nonzero().tolist() == [[v // 1000, v % 1000] for v in want]
    assert [c.tolist() for c in dtorch.where(mask.reshape(-1))] == [want]
    values, inverse, counts = (x % 1000).unique(return_inverse=True, return_counts=True)
    assert values.tolist() == list(range(1000))
    assert counts.tolist() == [300] * 1000
    assert bool((values[inverse] == x % 1000).all())
    y = dtorch.zeros(300, 1000, dtype="int64")
    y[mask] = dtorch.arange(len(want))
    assert y[mask].tolist() == list(range(len(want)))
    assert int(y.sum()) == len(want) * (len(want) - 1) // 2


@pytest.mark.parametrize("pending", [False, True])
def test_no_memory_for_the_result_is_an_error_of_the_value(pending: bool) -> None:
    """Its kernel finds out how much it needs when it runs; everything else goes on."""
    x = dtorch.ones(1_000_000)
    mask = x > 0
    asyncio.run(dtorch.drain())
    dtorch.set_memory_limit(dtorch.memory_stats()["live_bytes"] + 1_000_000)
    try:
        picked = x[hold(mask) if pending else mask]
        with pytest.raises(dtorch.OutOfMemoryError, match="memory"):
            _ = picked.shape
        assert x[:3].sum().item() == 3
    finally:
        dtorch.set_memory_limit(0)
    assert x[mask].numel() == 1_000_000
    del picked


def test_unique_keeps_every_nan_and_the_first_zero() -> None:
    nan = float("nan")
    values, inverse, counts = dtorch.tensor([nan, -0.0, 1.0, nan, 0.0]).unique(
        return_inverse=True, return_counts=True
    )
    assert str(values.tolist()) == "[-0.0, 1.0, nan, nan]"
    assert inverse.tolist() == [2, 0, 1, 3, 0]
    assert counts.tolist() == [2, 1, 1, 1]
    assert str(dtorch.tensor([0.0, -0.0, 0.0]).unique().tolist()) == "[0.0]"


@pytest.mark.parametrize("function", [dtorch.unique, dtorch.unique_consecutive])
def test_unique_by_dim_is_not_there_yet(function: Any) -> None:
    with pytest.raises(NotImplementedError, match="dim"):
        function(X, dim=0)
    with pytest.raises(TypeError, match="must be bool"):
        function(X, return_counts=1)
    with pytest.raises(TypeError, match="must be Tensor"):
        function(3)


def test_nonzero_into_out() -> None:
    out = dtorch.empty(0, dtype="int64")
    assert dtorch.nonzero(dtorch.tensor([0, 1, 1]), out=out) is out
    assert out.tolist() == [[1], [2]]
    with pytest.raises(RuntimeError, match="scalar type Long"):
        dtorch.nonzero(X, out=dtorch.empty(0))
    with pytest.raises(RuntimeError, match="out kwarg"):
        dtorch.nonzero(X, out=out, as_tuple=True)
