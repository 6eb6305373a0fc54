"""Data in and out: nested lists, numpy, torch, DLPack, buffers, pickles; who copies, who shares."""

from __future__ import annotations

import asyncio
import copy
import gc
import io
import math
import pickle
import sys
import threading
from typing import Any

import dtorch
import numpy as np
import pytest
import torch

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
NUMPY_DTYPES = [d for d in DTYPES if d != "bfloat16"]


def bits(t: torch.Tensor) -> torch.Tensor:
    return t.contiguous().view(torch.uint8) if t.ndim else t.reshape(1).view(torch.uint8)


# ---- tensor() ----------------------------------------------------------------------------------

DATA: list[Any] = [
    1,
    -1.5,
    True,
    [],
    [[], []],
    [1, 2],
    [1, 2.5],
    [True, 2],
    [True, False],
    [[1, 2], [3, 4]],
    ((1, 2), [3.0, 4]),
    [[[1]], [[2]]],
    range(4),
    [range(2), range(2, 4)],
    np.float32(2.5),
    np.int16(7),
    np.bool_(True),
    [np.float32(1), np.float32(2)],
    [np.int32(1)],
    [np.float64(1), 2],
    np.ones((2, 3), np.float32),
    np.arange(6).reshape(2, 3).T,
    np.arange(6)[::-2].copy(),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.ones((0, 3)),
    np.array(3),
    np.array([True]),
    [np.arange(3), np.arange(3)],
    [math.nan, math.inf],
    2**62,
    [1e300],
]


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy")
@pytest.mark.parametrize("data", DATA, ids=lambda d: repr(d)[:40].replace("\n", " "))
def test_tensor(data: Any) -> None:
    got, want = dtorch.tensor(data), torch.tensor(data)
    assert got.dtype is want.dtype
    assert got.shape == want.shape
    torch.testing.assert_close(got.to_torch(), want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("data", [[1, 0, 3], [1.5, -2.5, 100.0], [True, False], 7, [[2.0**30, 1]]])
def test_tensor_dtype(data: Any, dtype: str) -> None:
    kind = getattr(torch, dtype)
    try:
        want = torch.tensor(data, dtype=kind)
    except RuntimeError as error:
        with pytest.raises(RuntimeError) as raised:
            dtorch.tensor(data, dtype=kind)
        assert str(raised.value) == str(error)
        return
    for given in (kind, dtype, f"torch.{dtype}"):
        got = dtorch.tensor(data, dtype=given)
        assert got.dtype is kind
        assert torch.equal(bits(got.to_torch()), bits(want))


BAD: list[Any] = [
    [[1, 2], [3]],
    [[1, 2], 3],
    [[1], []],
    "a",
    [1, "a"],
    None,
    [1, None],
    {},
    {1, 2},
    b"ab",
    [1, [2]],
    2**63,
    [10**30],
    object(),
    np.array(["a"]),
    np.array([None]),
]


@pytest.mark.parametrize("data", BAD, ids=lambda d: repr(d)[:40])
def test_tensor_errors(data: Any) -> None:
    with pytest.raises(Exception) as want:
        torch.tensor(data)
    with pytest.raises(type(want.value)) as got:
        dtorch.tensor(data)
    if isinstance(data, np.ndarray) or data == [1, [2]]:
        return  # torch lists dtypes that we do not have; its text there speaks of integers
    assert str(got.value) == str(want.value)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(300, "uint8"), (-256, "uint8"), (-255, "uint8"), (200, "int8"), (2**40, "int32"),
     (1e20, "int64"), (math.nan, "int32"), (math.inf, "int64"), (-129, "int8"), (2.7, "int64"),
     (-0.5, "uint8"), (255.9, "uint8"), (10**30, "float32")],
)  # fmt: skip
def test_checked_conversion(value: Any, dtype: str) -> None:
    kind = getattr(torch, dtype)
    for data in ([value], value):
        try:
            want = torch.tensor(data, dtype=kind)
        except Exception as error:
            with pytest.raises(type(error)) as raised:
                dtorch.tensor(data, dtype=kind)
            assert str(raised.value) == str(error)
        else:
            assert dtorch.tensor(data, dtype=kind).tolist() == want.tolist()


def test_complex_is_refused_clearly() -> None:
    with pytest.raises(NotImplementedError, match="complex"):
        dtorch.tensor(1 + 2j)


def test_list_that_changes_while_it_is_read() -> None:
    class Trap:
        def __init__(self, items: list[Any]) -> None:
            self.items = items

        def __index__(self) -> int:
            self.items.clear()
            return 1

    items: list[Any] = [1, 2, 3]
    items[1] = Trap(items)
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        dtorch.tensor(items, dtype="int64")


def test_recursive_list() -> None:
    items: list[Any] = []
    items.append(items)
    with pytest.raises(ValueError, match="dimensions"):
        dtorch.tensor(items)


def test_tensor_of_a_tensor_copies_and_warns() -> None:
    x = dtorch.ones(2)
    with pytest.warns(UserWarning, match="clone"):
        y = dtorch.tensor(x)
    y.zero_()
    assert x.tolist() == [1, 1]


def test_tensor_of_torch_copies() -> None:
    t = torch.arange(6).reshape(2, 3)
    x = dtorch.tensor(t)
    t.zero_()
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert dtorch.tensor(torch.ones(2), dtype="int64").tolist() == [1, 1]


def test_as_tensor() -> None:
    x = dtorch.ones(2)
    assert dtorch.as_tensor(x) is x
    assert dtorch.as_tensor(x, dtype="float32") is x
    assert dtorch.as_tensor(x, dtype="int32").tolist() == [1, 1]
    a = np.ones(2)
    y = dtorch.as_tensor(a)
    a[:] = 5
    assert y.tolist() == [1, 1]  # unlike torch's: sharing is asked for by from_numpy
    assert dtorch.asarray(x, copy=True) is not x
    with pytest.raises(ValueError):
        dtorch.asarray([1], copy=False)


# ---- Tensor(...) ---------------------------------------------------------------------------------


def test_constructor_of_sizes() -> None:
    assert dtorch.Tensor().shape == (0,)
    assert dtorch.Tensor(2, 3).shape == (2, 3)
    assert dtorch.Tensor(4).shape == (4,)
    assert dtorch.Tensor(dtorch.Size([2, 5])).shape == (2, 5)
    assert dtorch.Tensor(torch.Size([2, 5])).shape == (2, 5)
    assert dtorch.Tensor(2, 3).dtype is torch.float32


@pytest.mark.parametrize("data", [[1, 2], (1, 2), [[1.5]], [True], np.arange(3), range(2), []])
def test_constructor_of_data(data: Any) -> None:
    got, want = dtorch.Tensor(data), torch.Tensor(data)
    assert got.dtype is want.dtype is torch.float32
    assert got.tolist() == want.tolist()


@pytest.mark.parametrize("args", [("a",), (2.5,), (None,), (5, "a"), ([[1], [1, 2]],)], ids=str)
def test_constructor_errors(args: Any) -> None:
    with pytest.raises(Exception) as want:
        torch.Tensor(*args)
    with pytest.raises(type(want.value)) as got:
        dtorch.Tensor(*args)
    assert str(got.value) == str(want.value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_constructor_copies_torch(dtype: str) -> None:
    t = (torch.arange(12) % 5).reshape(3, 4).to(getattr(torch, dtype))
    for source in (t, t.T, t[::2, 1:], t[0, 1], t[:0]):
        x = dtorch.Tensor(source)
        assert x.dtype is t.dtype
        assert torch.equal(x.to_torch(), source)
    x = dtorch.Tensor(t)
    before = t.clone()
    t.zero_()
    assert torch.equal(x.to_torch(), before)


def test_constructor_aliases_dtorch() -> None:
    x = dtorch.zeros(3)
    y = dtorch.Tensor(x)
    y.fill_(2)
    assert x.tolist() == [2, 2, 2]
    assert y is not x


def test_constructor_keywords() -> None:
    assert dtorch.Tensor([1], device="cpu").tolist() == [1]
    with pytest.raises(TypeError):
        dtorch.Tensor([1], foo=1)
    with pytest.raises(RuntimeError):
        dtorch.Tensor([1], device="cuda")


# ---- torch, shared -------------------------------------------------------------------------------


def test_from_torch_shares() -> None:
    t = torch.arange(6.0).reshape(2, 3)
    x = dtorch.from_torch(t)
    t[0, 0] = 10
    assert x[0, 0].item() == 10
    x[1, 1] = -1
    assert t[1, 1] == -1
    x.add_(1)
    assert t[0, 0] == 11


def test_from_torch_keeps_strides_and_offset() -> None:
    base = torch.arange(24.0).reshape(4, 6)
    for t in (base.T, base[1:, ::2], base[2], base[:, 3:4], base[1, 1], base[:0],
              base.expand(2, 4, 6),
              torch.zeros(1, 77), torch.zeros(77, 1)[:, :1]):  # fmt: skip
        x = dtorch.from_torch(t)
        assert x.shape == t.shape
        assert x.stride() == t.stride()
        assert x.tolist() == t.tolist()


def test_from_torch_ops_are_done_when_the_call_returns() -> None:
    t = torch.ones(1 << 20)
    x = dtorch.from_torch(t)
    for k in range(5):
        x.mul_(2)
        assert t[-1].item() == 2.0 ** (k + 1)
        t.add_(0)
    y = x + 1
    t.zero_()  # after the op in program order
    assert y[0].item() == 33.0


def test_from_torch_frozen() -> None:
    t = torch.ones(4096)
    x = dtorch.from_torch(t, frozen=True)
    assert (x * 2).sum().item() == 8192


def test_from_torch_outlives_the_torch_handle() -> None:
    x = dtorch.from_torch(torch.arange(1000.0))
    gc.collect()
    assert x.sum().item() == 499500.0


def test_from_torch_lets_go() -> None:
    t = torch.ones(10)
    before = sys.getrefcount(t)
    storage = t.untyped_storage()
    count = storage._use_count() if hasattr(storage, "_use_count") else None
    x = dtorch.from_torch(t)
    del x
    dtorch.ones(1) + 1  # any call empties the graveyard
    assert sys.getrefcount(t) == before
    if count is not None:
        assert storage._use_count() == count


def test_from_torch_of_parameters_and_errors() -> None:
    p = torch.nn.Parameter(torch.ones(2))
    assert dtorch.from_torch(p).tolist() == [1, 1]
    with pytest.raises(TypeError, match=r"torch\.Tensor"):
        dtorch.from_torch([1])
    with pytest.raises(TypeError):
        dtorch.from_torch(dtorch.ones(1))
    with pytest.raises(TypeError, match="strided"):
        dtorch.from_torch(torch.ones(2, 2).to_sparse())
    with pytest.raises(TypeError, match="complex64"):
        dtorch.from_torch(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(RuntimeError, match="CPU"):
        dtorch.from_torch(torch.ones(2, device="meta"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_to_torch_shares(dtype: str) -> None:
    x = dtorch.arange(6).reshape(2, 3).to(dtype)
    t = x.to_torch()
    assert type(t) is torch.Tensor
    assert t.dtype is getattr(torch, dtype)
    assert t.tolist() == x.tolist()
    t.zero_()
    assert not x.to("float32").any().item()
    x.fill_(1)
    assert t.to(torch.float32).sum() == 6


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 77), (77, 1), (2, 1, 3)])
def test_to_torch_strides(shape: tuple[int, ...]) -> None:
    x = dtorch.ones(shape)
    assert x.to_torch().stride() == x.stride() == torch.ones(shape).stride()
    assert dtorch.from_dlpack(x.to_torch()).shape == shape


def test_one_77_survives_the_round_trip() -> None:
    t = torch.arange(77.0).reshape(1, 77)
    x = dtorch.from_torch(t)
    assert x.stride() == (77, 1)
    assert x.to_torch().stride() == (77, 1)
    assert torch.from_dlpack(x).stride() == (77, 1)
    assert np.from_dlpack(x).shape == (1, 77)


def test_to_torch_of_a_pending_tensor() -> None:
    a = dtorch.ones(400, 400)
    b = a @ a
    for _ in range(5):
        b = b @ a / 400
    assert b.to_torch()[0, 0].item() == pytest.approx(400)


def test_exported_storage_is_internal_again_after() -> None:
    x = dtorch.zeros(1 << 20)
    t = x.to_torch()
    x.add_(1)
    assert t[5].item() == 1  # done when the call returned
    del t
    x.add_(1)
    assert x[7].item() == 2


# ---- numpy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_numpy_shares(dtype: str) -> None:
    x = dtorch.arange(6).reshape(2, 3).to(dtype)
    a = x.numpy()
    assert a.dtype == np.dtype(dtype)
    assert a.tolist() == x.tolist()
    a[:] = 0
    assert not x.to("float32").any().item()
    assert x.T.numpy().strides == a.T.strides


def test_numpy_edge_cases() -> None:
    assert dtorch.tensor(2.5).numpy().shape == ()
    assert dtorch.ones(0, 3).numpy().shape == (0, 3)
    assert dtorch.ones(1).expand(4).numpy().strides == (0,)
    with pytest.raises(TypeError, match="BFloat16"):
        dtorch.ones(2, dtype="bfloat16").numpy()
    with pytest.raises(RuntimeError, match="requires grad"):
        dtorch.ones(2, requires_grad=True).numpy()
    assert dtorch.ones(2, requires_grad=True).detach().numpy().tolist() == [1, 1]
    with pytest.raises(TypeError):
        dtorch.ones(2).numpy(1)


def test_array_protocol() -> None:
    x = dtorch.arange(4)
    assert np.asarray(x).dtype == np.int64
    assert np.asarray(x, dtype=np.float32).dtype == np.float32
    assert np.array(x).tolist() == [0, 1, 2, 3]
    a = np.asarray(x)
    a[0] = 9
    assert x[0].item() == 9
    b = np.array(x, copy=True)
    b[0] = 1
    assert x[0].item() == 9


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_from_numpy_shares(dtype: str) -> None:
    a = np.arange(12).reshape(3, 4).astype(dtype)
    for view in (a, a.T, a[::2, 1:], np.asfortranarray(a), a[:0], a[1, 2:3]):
        x, t = dtorch.from_numpy(view), torch.from_numpy(view)
        assert x.dtype is t.dtype
        assert x.tolist() == t.tolist()
        assert x.stride() == t.stride()
    x = dtorch.from_numpy(a)
    a[0, 0] = 1
    assert x[0, 0].item() == 1
    x.fill_(0)
    assert not a.any()


def test_from_numpy_errors() -> None:
    for bad in (np.ones(3)[::-1], np.ones(3, ">f4"), [1], np.array(["a"]), 3):
        with pytest.raises(Exception) as want:
            torch.from_numpy(bad)
        with pytest.raises(type(want.value)):
            dtorch.from_numpy(bad)
    with pytest.raises(TypeError, match="uint16"):
        dtorch.from_numpy(np.ones(2, np.uint16))
    packed = np.zeros(3, dtype=[("a", "i1"), ("b", "<i4")])["b"]
    with pytest.raises(ValueError):
        dtorch.from_numpy(packed)


def test_read_only_arrays_cannot_be_written() -> None:
    a = np.ones(3)
    a.flags.writeable = False
    x = dtorch.from_numpy(a)
    assert (x + 1).tolist() == [2, 2, 2]
    for write in (lambda: x.add_(1), lambda: x.fill_(0), lambda: x.__setitem__(0, 5)):
        with pytest.raises(RuntimeError, match="read-only"):
            write()
    assert a.tolist() == [1, 1, 1]
    assert not x.numpy().flags.writeable
    t = x.to_torch()  # torch has no read-only tensors: a copy
    t.zero_()
    assert a.tolist() == [1, 1, 1]


def test_from_numpy_holds_the_array() -> None:
    a = np.arange(1000)
    x = dtorch.from_numpy(a)
    with pytest.raises(ValueError):
        a.resize(5000)
    del x
    dtorch.ones(1) + 1
    a.resize(5000, refcheck=False)


def test_numpy_scalars_in_ops() -> None:
    x = dtorch.ones(2)
    assert (x * np.float64(2)).dtype is torch.float32
    assert (x + np.float32(1)).tolist() == [2, 2]
    assert (x + np.int64(1)).tolist() == [2, 2]
    assert dtorch.zeros(np.int64(2), np.int32(3)).shape == (2, 3)


def test_numpy_arrays_as_operands_are_refused() -> None:
    x, a = dtorch.ones(2), np.ones(2)
    for call in (lambda: x + a, lambda: a + x, lambda: x @ a, lambda: a * x, lambda: x.add(a),
                 lambda: dtorch.add(x, a), lambda: x == a, lambda: dtorch.relu(a)):  # fmt: skip
        with pytest.raises(TypeError, match="numpy"):
            call()
    x += 1
    with pytest.raises(TypeError, match="numpy"):
        x += a
    assert x.tolist() == [2, 2]


def test_torch_tensors_as_operands_are_refused() -> None:
    x, t = dtorch.ones(2), torch.ones(2)
    for call in (lambda: x + t, lambda: x @ t, lambda: x.add(t), lambda: dtorch.add(x, t),
                 lambda: dtorch.relu(t), lambda: dtorch.cat([x, t]), lambda: x < t):  # fmt: skip
        with pytest.raises(TypeError, match=r"torch\.Tensor"):
            call()
    with pytest.raises(TypeError):
        t + x


def test_ufuncs_on_tensors() -> None:
    assert np.sqrt(dtorch.tensor([4.0, 9.0])).tolist() == [2, 3]


# ---- DLPack --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_round_trip(dtype: str) -> None:
    t = (torch.arange(12) % 2).reshape(3, 4).to(getattr(torch, dtype))
    for source in (t, t.T, t[1:, ::2], t[0, 0], t[:0]):
        x = dtorch.from_dlpack(source)
        assert torch.equal(x.to_torch(), source)
        back = torch.from_dlpack(x)
        assert torch.equal(back, source)
        if source.numel():
            assert back.data_ptr() == source.data_ptr()


def test_dlpack_from_numpy_and_to_numpy() -> None:
    a = np.arange(6.0).reshape(2, 3)
    x = dtorch.from_dlpack(a)
    a[0, 0] = 7
    assert x[0, 0].item() == 7
    b = np.from_dlpack(x)
    assert b.ctypes.data == a.ctypes.data


def test_dlpack_protocol() -> None:
    x = dtorch.ones(2, 3)
    assert x.__dlpack_device__() == (1, 0)
    assert "dltensor_versioned" in repr(x.__dlpack__(max_version=(1, 0)))
    assert "versioned" not in repr(x.__dlpack__())
    assert "versioned" not in repr(x.__dlpack__(max_version=(0, 8)))
    assert dtorch.from_dlpack(x.__dlpack__()).tolist() == x.tolist()
    assert dtorch.from_dlpack(x.__dlpack__(max_version=(1, 2))).tolist() == x.tolist()
    copied = dtorch.from_dlpack(x.__dlpack__(copy=True))
    copied.zero_()
    assert x.sum().item() == 6
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        x.__dlpack__(stream=3)
    with pytest.raises(BufferError, match="gradient"):
        dtorch.ones(1, requires_grad=True).__dlpack__()


def test_dlpack_capsules_are_consumed_once_and_freed() -> None:
    x = dtorch.ones(3)
    capsule = x.__dlpack__()
    dtorch.from_dlpack(capsule)
    with pytest.raises(ValueError, match="consumed"):
        dtorch.from_dlpack(capsule)
    before = dtorch.memory_stats()["objects"]
    for _ in range(100):
        x.__dlpack__()
        x.__dlpack__(max_version=(1, 0))
    assert dtorch.memory_stats()["objects"] <= before + 2


def test_from_dlpack_errors() -> None:
    with pytest.raises(AttributeError):
        dtorch.from_dlpack([1])
    with pytest.raises(RuntimeError, match="code 5"):
        dtorch.from_dlpack(np.ones(2, np.complex64))

    class Liar:
        def __dlpack__(self) -> int:
            return 5

    with pytest.raises(TypeError, match="capsule"):
        dtorch.from_dlpack(Liar())


def test_from_dlpack_of_a_dtorch_tensor_is_an_alias() -> None:
    x = dtorch.zeros(2)
    dtorch.from_dlpack(x).fill_(1)
    assert x.tolist() == [1, 1]


def test_read_only_travels_through_dlpack() -> None:
    a = np.ones(2)
    a.flags.writeable = False
    x = dtorch.from_dlpack(dtorch.from_numpy(a).__dlpack__(max_version=(1, 0)))
    with pytest.raises(RuntimeError, match="read-only"):
        x.add_(1)
    with pytest.raises(BufferError):
        x.__dlpack__(copy=False)


def test_deleters_run_in_any_thread() -> None:
    tensors = [dtorch.ones(100).to_torch() for _ in range(50)]
    thread = threading.Thread(target=tensors.clear)
    thread.start()
    thread.join()
    x = dtorch.ones(100)
    assert x.sum().item() == 100


# ---- objects of torch's type system --------------------------------------------------------------


def test_dtypes_are_torchs() -> None:
    for name in DTYPES:
        assert getattr(dtorch, name) is getattr(torch, name)
        assert dtorch.ones(1, dtype=name).dtype is getattr(torch, name)
    assert dtorch.float is torch.float32
    assert dtorch.long is torch.int64
    assert dtorch.device is torch.device
    assert dtorch.finfo is torch.finfo
    assert dtorch.iinfo is torch.iinfo
    assert dtorch.ones(1).device == torch.device("cpu")
    assert dtorch.ones(1).layout is torch.strided
    assert dtorch.complex64 is torch.complex64
    with pytest.raises(AttributeError, match="no_such"):
        dtorch.no_such


def test_promotion_tables() -> None:
    kinds = [getattr(torch, d) for d in DTYPES]
    for a in kinds:
        for b in kinds:
            assert dtorch.promote_types(a, b) is torch.promote_types(a, b)
            assert dtorch.can_cast(a, b) == torch.can_cast(a, b)
            x, t = dtorch.ones(2, dtype=a), torch.ones(2, dtype=a)
            y, u = dtorch.ones((), dtype=b), torch.ones((), dtype=b)
            assert dtorch.result_type(x, y) is torch.result_type(t, u)
        for number in (True, 1, 1.5):
            assert dtorch.result_type(x, number) is torch.result_type(t, number)
    with pytest.raises(TypeError):
        dtorch.result_type(dtorch.ones(1), "a")


# ---- copies and pickles --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_pickle(dtype: str) -> None:
    x = dtorch.arange(6).reshape(2, 3).to(dtype)
    for source in (x, x.T, x[0, 1], x[:0], x[:, ::2]):
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            y = pickle.loads(pickle.dumps(source, protocol))
            assert y.dtype is source.dtype
            assert y.shape == source.shape
            assert y.tolist() == source.tolist()


def test_pickle_keeps_attributes_and_grad_flag() -> None:
    x = dtorch.ones(2, requires_grad=True)
    x.name = "w"
    y = pickle.loads(pickle.dumps(x))
    assert y.requires_grad
    assert y.name == "w"
    buffer = io.BytesIO()
    pickle.dump({"a": dtorch.ones(0), "b": dtorch.ones(0)}, buffer)  # two empty tensors
    buffer.seek(0)
    assert pickle.load(buffer)["b"].shape == (0,)


def test_copy_and_deepcopy() -> None:
    x = dtorch.ones(3)
    a, b = copy.copy(x), copy.deepcopy(x)
    x.fill_(2)
    assert a.tolist() == [2, 2, 2]
    assert b.tolist() == [1, 1, 1]
    pair = copy.deepcopy([x, x])
    assert pair[0] is pair[1]


# ---- imports -------------------------------------------------------------------------------------


def test_lazy_import_of_torch_in_a_loop_warns() -> None:
    import subprocess

    code = (
        "import asyncio, dtorch, warnings\n"
        "async def main():\n"
        "    with warnings.catch_warnings(record=True) as w:\n"
        "        warnings.simplefilter('always')\n"
        "        dtorch.ones(1).dtype\n"
        "    print([x.category.__name__ for x in w if 'preload' in str(x.message)])\n"
        "asyncio.run(main())\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "['BlockingWarning']"


def test_preload() -> None:
    assert dtorch.preload() is True


def test_reading_in_a_loop_when_ready_is_silent(recwarn: pytest.WarningsRecorder) -> None:
    async def main() -> float:
        return float((dtorch.ones(2) + 1).sum().item())

    assert asyncio.run(main()) == 4
    assert not [w for w in recwarn if issubclass(w.category, dtorch.BlockingWarning)]
