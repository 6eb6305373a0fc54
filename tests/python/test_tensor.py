"""The Tensor type: life of handles, attributes, reading, autograd's place, controls."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import math
import operator
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import dtorch
import pytest
import torch


def numbers(*shape: int) -> torch.Tensor:
    return torch.arange(float(math.prod(shape))).reshape(shape)


# ---- life ----------------------------------------------------------------------------------------


def test_handles_are_reused_cleanly() -> None:
    x = dtorch.ones(2)
    x.mark = 1
    x.grad = dtorch.ones(2)
    x.requires_grad = True
    address = id(x)
    del x
    fresh = [dtorch.ones(1) for _ in range(300)]
    assert not any(hasattr(t, "mark") or t.requires_grad or t.grad is not None for t in fresh)
    assert address  # whether it was reused is the allocator's business


def test_no_leak_over_many_ops() -> None:
    x = dtorch.ones(8)

    def work() -> None:
        for _ in range(500):
            y = (x + 1) * 2
            y[1:3] = 0
            y.view(2, 4).sum(0).tolist()
            y.t_() if y.ndim < 2 else None
            dtorch.cat([x, y]).max()
            try:
                dtorch.add(x, "a")
            except TypeError:
                pass
            try:
                x.view(3, 3)
            except RuntimeError:
                pass
            repr(y)

    work()
    gc.collect()
    before = dtorch.memory_stats()["objects"]
    blocks = sys.getallocatedblocks()
    work()
    gc.collect()
    assert dtorch.memory_stats()["objects"] <= before + 8
    assert sys.getallocatedblocks() < blocks + 300


def test_weak_references() -> None:
    x = dtorch.ones(1)
    died: list[int] = []
    ref = weakref.ref(x, lambda _: died.append(1))
    assert ref() is x
    del x
    assert ref() is None
    assert died == [1]


def test_cycles_are_collected() -> None:
    x = dtorch.ones(1)
    x.me = x
    ref = weakref.ref(x)
    del x
    gc.collect()
    assert ref() is None
    y = dtorch.ones(1)
    y.__dict__["me"] = y
    ref = weakref.ref(y)
    del y
    gc.collect()
    assert ref() is None
    a, b = dtorch.ones(1), dtorch.ones(1)
    a.grad, b.grad = b, a
    ref = weakref.ref(a)
    del a, b
    gc.collect()
    assert ref() is None


def test_subclass() -> None:
    class Parameter(dtorch.Tensor):
        def double_it(self) -> Any:
            return self * 2

    p = Parameter([1.0, 2.0])
    assert type(p) is Parameter
    assert p.double_it().tolist() == [2, 4]
    p.extra = 5
    assert p.extra == 5
    assert isinstance(p, dtorch.Tensor)
    assert (p + p).tolist() == [2, 4]
    alias = Parameter(dtorch.ones(3))
    assert alias.shape == (3,)
    ref = weakref.ref(p)
    del p
    gc.collect()
    assert ref() is None


def test_hash_and_identity() -> None:
    x = dtorch.ones(1)
    assert hash(x) == hash(x)
    assert len({x, x, dtorch.ones(1)}) == 2
    assert {x: 1}[x] == 1


def test_handles_in_many_threads() -> None:
    errors: list[BaseException] = []
    x = dtorch.ones(64)

    def work() -> None:
        try:
            for i in range(2000):
                y = x + i
                assert y[5].item() == 1 + i
                del y
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_metadata_changes_while_another_thread_reads() -> None:
    x = dtorch.arange(6).reshape(2, 3)
    stop = threading.Event()

    def turn() -> None:
        while not stop.is_set():
            x.t_()

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        for _ in range(3000):
            assert sorted(x.reshape(-1).tolist()) == [0, 1, 2, 3, 4, 5]
            assert x.shape in ((2, 3), (3, 2))
    finally:
        stop.set()
        thread.join()


# ---- properties ----------------------------------------------------------------------------------


def test_properties() -> None:
    x, t = dtorch.ones(2, 3), torch.ones(2, 3)
    names = "shape ndim itemsize nbytes requires_grad is_leaf is_cuda is_sparse is_meta is_cpu"
    for name in [*names.split(), "dtype", "device", "layout", "grad", "grad_fn"]:
        assert getattr(x, name) == getattr(t, name), name
    for name in ("shape", "ndim", "dtype", "device", "T", "mT"):
        with pytest.raises(AttributeError):
            setattr(x, name, 1)
    with pytest.raises(AttributeError):
        x.no_such_attribute


def test_size() -> None:
    shape = dtorch.ones(2, 3, 4).shape
    assert isinstance(shape, dtorch.Size)
    assert repr(shape) == "torch.Size([2, 3, 4])"
    assert shape.numel() == 24
    assert type(shape[1:]) is dtorch.Size
    assert type(operator.add(shape, (1,))) is dtorch.Size
    assert type(operator.add((1,), shape)) is dtorch.Size
    assert (shape * 2).numel() == 24 * 24
    assert shape == torch.Size([2, 3, 4])
    assert torch.zeros(shape).shape == shape
    assert dtorch.zeros(shape).shape == shape
    assert hash(shape) == hash((2, 3, 4))


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (0, 2)])
def test_transposes(shape: tuple[int, ...]) -> None:
    t = numbers(*shape)
    x = dtorch.Tensor(t)
    for name in ("T", "mT", "H", "mH"):
        try:
            want = getattr(t, name)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                getattr(x, name)
            continue
        assert getattr(x, name).tolist() == want.tolist()
        assert getattr(x, name).stride() == want.stride()


def test_data_and_detach_share() -> None:
    x = dtorch.ones(2, requires_grad=True)
    for alias in (x.data, x.detach()):
        assert not alias.requires_grad
        alias.mul_(3)
    assert x.tolist() == [9, 9]
    x.data = dtorch.zeros(5)
    assert x.shape == (5,)
    with pytest.raises(TypeError):
        x.data = 3


def test_views_know_their_base() -> None:
    x = dtorch.zeros(2, 3)
    for view in (x[0], x.view(6), x.T, x.t(), x[0][1:], x.unsqueeze(0)):
        assert view._base is x
    assert x._base is None
    assert (x + 1)._base is None


def test_data_ptr() -> None:
    x = dtorch.arange(10)
    assert x.data_ptr() % 16 == 0
    assert x[3:].data_ptr() == x.data_ptr() + 24
    assert dtorch.ones(0).data_ptr() == 0


def test_version_counts_writes() -> None:
    x = dtorch.ones(3)
    before = x._version
    x.add_(1)
    x[0] = 5
    assert x._version == before + 2
    assert x[1:]._version == x._version


# ---- in-place metadata ---------------------------------------------------------------------------


def test_in_place_views() -> None:
    x, t = dtorch.Tensor(numbers(2, 1, 3)), numbers(2, 1, 3)
    for call in ("squeeze_()", "t_()", "unsqueeze_(1)", "transpose_(0, 2)", "squeeze_(1)",
                 "swapaxes_(0, 1)"):  # fmt: skip
        result = eval(f"x.{call}")
        eval(f"t.{call}")
        assert result is x
        assert x.shape == t.shape
        assert x.tolist() == t.tolist()


def test_in_place_ops_return_self_and_write_through() -> None:
    base = dtorch.zeros(2, 3)
    row = base[1]
    assert row.add_(2) is row
    row *= 3
    row[0] = -1
    assert base.tolist() == [[0, 0, 0], [-1, 6, 6]]
    y = x = dtorch.ones(2)
    x += 1
    x -= 0.5
    x /= 3
    x **= 2
    x //= 0.1
    assert x is y
    assert x.tolist() == pytest.approx([2, 2])
    i = dtorch.tensor([5])
    i &= 4
    i |= 1
    i ^= 2
    i <<= 2
    i >>= 1
    i %= 8
    assert i.tolist() == [6]
    with pytest.raises(RuntimeError, match="can't be cast"):
        i += 0.5


def test_fill_and_zero_and_copy() -> None:
    x = dtorch.empty(2, 2)
    assert x.fill_(3).tolist() == [[3, 3]] * 2
    assert x.zero_().tolist() == [[0, 0]] * 2
    assert x.copy_(dtorch.tensor([1, 2])).tolist() == [[1, 2]] * 2
    assert x.clamp_(1.5).tolist() == [[1.5, 2]] * 2
    assert x.clamp_max_(1.75).tolist() == [[1.5, 1.75]] * 2


# ---- reading -------------------------------------------------------------------------------------


def test_item_and_conversions() -> None:
    assert dtorch.tensor(3).item() == 3
    assert type(dtorch.tensor(3).item()) is int
    assert type(dtorch.tensor(3.0).item()) is float
    assert dtorch.tensor(True).item() is True
    assert dtorch.tensor([[2.5]]).item() == 2.5
    assert int(dtorch.tensor(2.9)) == 2
    assert float(dtorch.tensor(2)) == 2.0
    assert bool(dtorch.tensor(0.0)) is False
    assert [10, 20, 30][dtorch.tensor(1)] == 20
    assert dtorch.tensor(1.5, dtype="float16").item() == 1.5
    assert list(range(dtorch.tensor(3))) == [0, 1, 2]
    for bad in (math.nan, math.inf):
        with pytest.raises((ValueError, OverflowError)):
            int(dtorch.tensor(bad))


def test_reading_a_pending_tensor() -> None:
    a = dtorch.ones(500, 500)
    b = a @ a
    c = b.sum()
    assert c.item() == 500.0 * 500 * 500
    assert b.tolist()[0][0] == 500.0
    assert b.is_ready()


def test_late_errors_show_when_reading() -> None:
    x = dtorch.tensor([1, 2]) // dtorch.tensor([1, 0])
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        x.tolist()
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        repr(x)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        x.to_torch()
    y = x + 1
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        y[0].item()


# ---- random --------------------------------------------------------------------------------------


def test_seeds() -> None:
    dtorch.manual_seed(7)
    a = [dtorch.rand(5).tolist(), dtorch.randn(3).tolist(), dtorch.randint(0, 9, (4,)).tolist()]
    dtorch.manual_seed(7)
    b = [dtorch.rand(5).tolist(), dtorch.randn(3).tolist(), dtorch.randint(0, 9, (4,)).tolist()]
    assert a == b
    assert dtorch.initial_seed() == 7
    assert dtorch.rand(5).tolist() != a[0]
    state = torch.initial_seed()
    dtorch.seed()
    assert torch.initial_seed() == state
    with pytest.raises(RuntimeError):
        dtorch.manual_seed(2**70)
    with pytest.raises(TypeError):
        dtorch.manual_seed("a")


def test_distributions() -> None:
    dtorch.manual_seed(0)
    u = dtorch.rand(100_000)
    assert 0 <= u.min().item() and u.max().item() < 1
    assert abs(u.mean().item() - 0.5) < 0.01
    n = dtorch.randn(100_000)
    assert abs(n.mean().item()) < 0.02
    assert abs(n.std().item() - 1) < 0.02
    i = dtorch.randint(-3, 4, (10_000,))
    assert sorted(set(i.tolist())) == [-3, -2, -1, 0, 1, 2, 3]
    v = dtorch.empty(50_000).uniform_(2, 3)
    assert 2 <= v.min().item() and v.max().item() < 3
    w = dtorch.empty(50_000).normal_(5, 0.1)
    assert abs(w.mean().item() - 5) < 0.01
    d = dtorch.nn.functional.dropout(dtorch.ones(10_000), 0.25)
    assert set(d.tolist()) == {0.0, dtorch.tensor(1 / 0.75).item()}
    assert abs(d.mean().item() - 1) < 0.05
    assert dtorch.normal(1.0, 0.0, (3,)).tolist() == [1, 1, 1]


# ---- grad mode -----------------------------------------------------------------------------------


def test_grad_modes() -> None:
    assert dtorch.is_grad_enabled()
    with dtorch.no_grad():
        assert not dtorch.is_grad_enabled()
        with dtorch.enable_grad():
            assert dtorch.is_grad_enabled()
        assert not dtorch.is_grad_enabled()
    with dtorch.inference_mode():
        assert dtorch.is_inference_mode_enabled()
        assert not dtorch.is_grad_enabled()
    with dtorch.inference_mode(False):
        assert dtorch.is_grad_enabled()
    dtorch.set_grad_enabled(False)
    assert not dtorch.is_grad_enabled()
    dtorch.set_grad_enabled(True)
    with dtorch.set_grad_enabled(False):
        assert not dtorch.is_grad_enabled()
    assert dtorch.is_grad_enabled()


def test_grad_mode_decorators() -> None:
    @dtorch.no_grad()
    def plain() -> bool:
        return dtorch.is_grad_enabled()

    @dtorch.no_grad
    def bare() -> bool:
        return dtorch.is_grad_enabled()

    @dtorch.no_grad()
    def steps() -> Any:
        yield dtorch.is_grad_enabled()
        yield dtorch.is_grad_enabled()

    @dtorch.inference_mode()
    async def slow() -> bool:
        await asyncio.sleep(0)
        return dtorch.is_grad_enabled()

    assert plain() is False
    assert bare() is False
    seen = []
    for value in steps():
        seen.append((value, dtorch.is_grad_enabled()))
    assert seen == [(False, True)] * 2
    assert asyncio.run(slow()) is False
    assert dtorch.is_grad_enabled()


def test_no_grad_does_not_leak_between_tasks() -> None:
    async def holder(go: asyncio.Event, done: asyncio.Event) -> None:
        with dtorch.no_grad():
            go.set()
            await done.wait()
            assert not dtorch.is_grad_enabled()

    async def other(go: asyncio.Event, done: asyncio.Event) -> None:
        await go.wait()
        assert dtorch.is_grad_enabled()
        done.set()

    async def main() -> None:
        go, done = asyncio.Event(), asyncio.Event()
        await asyncio.gather(holder(go, done), other(go, done))

    asyncio.run(main())
    assert contextvars.copy_context().run(dtorch.is_grad_enabled)


def test_autograd_is_not_there_yet() -> None:
    x = dtorch.ones(2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="autograd"):
        x.sum().backward()
    assert x.requires_grad_(False) is x
    x.grad = dtorch.ones(2)
    assert x.grad.tolist() == [1, 1]
    x.grad = None
    assert x.grad is None
    with pytest.raises(RuntimeError):
        x.grad = dtorch.ones(3)
    with pytest.raises(TypeError):
        x.grad = 1
    with pytest.raises(RuntimeError, match="floating point"):
        dtorch.ones(2, dtype="int64", requires_grad=True)


# ---- controls ------------------------------------------------------------------------------------


def test_threads() -> None:
    before = dtorch.get_num_threads()
    try:
        dtorch.set_num_threads(1)
        assert dtorch.get_num_threads() == 1
        a = dtorch.ones(300, 300)
        assert (a @ a)[0, 0].item() == 300
        dtorch.set_num_threads(3)
        assert dtorch.get_num_threads() == 3
        assert (a @ a)[0, 0].item() == 300
    finally:
        dtorch.set_num_threads(before)
    for bad in (0, -1, 10**6):
        with pytest.raises(RuntimeError):
            dtorch.set_num_threads(bad)
    with pytest.raises(TypeError):
        dtorch.set_num_threads("2")


def test_memory_statistics() -> None:
    dtorch.empty_cache()
    before = dtorch.memory_stats()["live_bytes"]
    x = dtorch.ones(1 << 20)
    assert x.sum().item() == 1 << 20
    assert dtorch.memory_stats()["live_bytes"] >= before + (4 << 20)
    del x
    end = time.monotonic() + 10  # the controller lets go of an ended task a little later
    while dtorch.memory_stats()["live_bytes"] >= before + (4 << 20) and time.monotonic() < end:
        time.sleep(0.001)
    assert dtorch.memory_stats()["live_bytes"] < before + (4 << 20)


def test_memory_limit() -> None:
    live = dtorch.memory_stats()["live_bytes"]
    dtorch.set_memory_limit(live + (1 << 20))
    try:
        with pytest.raises(dtorch.OutOfMemoryError) as raised:
            dtorch.ones(1 << 22).sum().item()
        assert isinstance(raised.value, (RuntimeError, MemoryError))
    finally:
        dtorch.set_memory_limit(0)
    assert dtorch.ones(1 << 22).sum().item() == 1 << 22
    with pytest.raises(ValueError):
        dtorch.set_memory_limit(-1)


def test_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    c = dtorch.config()
    assert c["io"] in ("uring", "epoll")
    assert c["threads"] >= 1
    dtorch.show_config()
    out = capsys.readouterr().out
    assert c["io_reason"] in out
    assert c["cpu"] in out


def test_module_main() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "dtorch"], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count(" ok") == 4


def test_dir_and_all() -> None:
    assert {"add", "zeros", "float32", "Tensor", "no_grad", "gather"} <= set(dir(dtorch))
    for name in dtorch.__all__:
        assert getattr(dtorch, name) is not None or name == "newaxis", name
    assert {"add", "add_", "view", "max", "to"} <= set(dir(dtorch.ones(1)))


def test_second_load_is_refused() -> None:
    code = (
        "import sys, dtorch._C as c\n"
        "import importlib.util as u\n"
        "spec = u.spec_from_file_location('dtorch._C', c.__file__)\n"
        "try: m = u.module_from_spec(spec); spec.loader.exec_module(m)\n"
        "except ImportError as e: print('refused')\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert out.stdout.strip() == "refused"
    assert out.returncode == 0


def test_tensors_may_outlive_the_interpreters_modules() -> None:
    code = (
        "import dtorch, sys\n"
        "class Late:\n"
        "    def __init__(self, t): self.t = t\n"
        "    def __del__(self):\n"
        "        self.t + 1\n"
        "x = Late(dtorch.ones(3))\n"
        "sys.kept = [dtorch.ones(500, 500) @ dtorch.ones(500, 500), x]\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
