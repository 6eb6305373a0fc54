"""The API without torch: dtypes as strings, values from Python's own arithmetic.

Runs on every Python that dtorch supports, also where torch is not installed. Where it is, nothing
here imports it but what asks for a dtype object.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import operator
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import dtorch
import pytest

pytestmark = pytest.mark.notorch

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
FLOATS = "float16 bfloat16 float32 float64".split()


def close(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    if isinstance(want, list):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            close(g, w, tolerance)
    elif isinstance(want, float) and math.isnan(want):
        assert math.isnan(got)
    else:
        assert got == pytest.approx(want, rel=tolerance, abs=tolerance)


# ---- import -------------------------------------------------------------------------------------


def test_ordinary_work_does_not_import_torch() -> None:
    code = (
        "import dtorch, sys\n"
        "x = dtorch.arange(6, dtype='float32').reshape(2, 3)\n"
        "y = (x @ x.T).softmax(-1).to('float64')\n"
        "print(repr(y)[:6], y.sum().item(), y.shape, x[0, 1:].tolist(), x.max(1)[1].tolist())\n"
        "print('torch' in sys.modules)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1] == "False"


def test_import_is_light() -> None:
    """What takes long to import waits until it is needed; bench/run.py measures the time."""
    code = "import sys, dtorch; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "numpy", "jax", "pytest", "multiprocessing", "unittest", "pydoc"}
    assert not heavy & set(out.stdout.split())


# ---- creation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_filled(dtype: str) -> None:
    assert dtorch.zeros(2, 3, dtype=dtype).tolist() == [[0] * 3] * 2
    assert dtorch.ones((2,), dtype=dtype).tolist() == [1, 1]
    assert dtorch.full((2,), 1, dtype=dtype).tolist() == [1, 1]
    x = dtorch.ones(3, dtype=dtype)
    assert dtorch.zeros_like(x).tolist() == [0, 0, 0]
    assert x.new_ones(1).tolist() == [1]
    assert str(x.dtype) == f"torch.{dtype}"
    assert dtorch.empty(2, 0, dtype=dtype).shape == (2, 0)


@pytest.mark.parametrize("args", [(5,), (1, 5), (0, 10, 3), (5, 0, -1), (3, 3), (-4, 4, 2)])
def test_arange_integers(args: tuple[int, ...]) -> None:
    assert dtorch.arange(*args).tolist() == list(range(*args))


def test_arange_floats() -> None:
    close(dtorch.arange(0, 1, 0.25).tolist(), [0, 0.25, 0.5, 0.75])
    close(dtorch.arange(1.5).tolist(), [0.0, 1.0])


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 100])
def test_linspace(steps: int) -> None:
    want = [-1 + 3 * i / (steps - 1) if steps > 1 else -1.0 for i in range(steps)]
    close(dtorch.linspace(-1, 2, steps).tolist(), want)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (2, 4), (4, 2), (0, 3)])
def test_eye(n: int, m: int) -> None:
    assert dtorch.eye(n, m).tolist() == [[float(i == j) for j in range(m)] for i in range(n)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensor_from_lists(dtype: str) -> None:
    x = dtorch.tensor([[1, 0], [1, 1]], dtype=dtype)
    assert x.tolist() == [[1, 0], [1, 1]]
    assert x.nbytes == 4 * x.itemsize


@pytest.mark.parametrize(
    ("data", "name"),
    [(1, "int64"), (1.0, "float32"), (True, "bool"), ([1, 2.0], "float32"), ([True, 1], "int64"),
     ([], "float32"), ([[1], [2]], "int64"), ((1, 2), "int64")],
)  # fmt: skip
def test_inferred_dtype(data: Any, name: str) -> None:
    assert dtorch.tensor(data)._dtype_name == name


def test_random_numbers_repeat() -> None:
    dtorch.manual_seed(3)
    a = dtorch.rand(4, 4).tolist()
    dtorch.manual_seed(3)
    assert dtorch.rand(4, 4).tolist() == a
    assert all(0 <= v < 1 for row in a for v in row)
    assert set(dtorch.randint(2, 5, (200,)).tolist()) == {2, 3, 4}


# ---- arithmetic ----------------------------------------------------------------------------------

A, B = [1.5, -2.0, 0.25, 8.0], [0.5, 3.0, -4.0, 2.0]
N, D = [7, -7, 12, 5], [2, 2, -5, 3]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "op",
    [operator.add, operator.sub, operator.mul, operator.truediv, operator.lt, operator.le,
     operator.gt, operator.ge, operator.eq, operator.ne],
)  # fmt: skip
def test_float_operators(op: Callable[[Any, Any], Any], dtype: str) -> None:
    x, y = dtorch.tensor(A, dtype=dtype), dtorch.tensor(B, dtype=dtype)
    close(op(x, y).tolist(), [op(a, b) for a, b in zip(A, B, strict=True)])
    close(op(x, 2.0).tolist(), [op(a, 2.0) for a in A])
    close(op(2, y).tolist(), [op(2, b) for b in B])
    assert op(x, y)._dtype_name == (dtype if op(1.0, 2.0) not in (True, False) else "bool")


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize(
    "op",
    [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.and_,
     operator.or_, operator.xor, operator.lt, operator.eq],
)  # fmt: skip
def test_integer_operators(op: Callable[[Any, Any], Any], dtype: str) -> None:
    x, y = dtorch.tensor(N, dtype=dtype), dtorch.tensor(D, dtype=dtype)
    assert op(x, y).tolist() == [op(a, b) for a, b in zip(N, D, strict=True)]
    assert op(x, 3).tolist() == [op(a, 3) for a in N]


@pytest.mark.parametrize("name", "exp log sqrt sin cos tanh floor ceil erf expm1 log1p".split())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_unary_functions(name: str, dtype: str) -> None:
    values = [0.5, 1.0, 2.25, 7.0]
    want = [float(getattr(math, name)(v)) for v in values]
    x = dtorch.tensor(values, dtype=dtype)
    close(getattr(dtorch, name)(x).tolist(), want)
    close(getattr(x, name)().tolist(), want)


def test_more_unary() -> None:
    x = dtorch.tensor([-1.5, 0.0, 2.5])
    assert x.abs().tolist() == [1.5, 0, 2.5]
    assert (-x).tolist() == [1.5, 0, -2.5]
    assert x.relu().tolist() == [0, 0, 2.5]
    assert x.sign().tolist() == [-1, 0, 1]
    assert x.round().tolist() == [-2, 0, 2]
    assert x.trunc().tolist() == [-1, 0, 2]
    close(x.sigmoid().tolist(), [1 / (1 + math.exp(-v)) for v in (-1.5, 0, 2.5)])
    close(dtorch.nn.functional.gelu(x).tolist(),
          [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in (-1.5, 0, 2.5)])  # fmt: skip
    y = dtorch.tensor([math.nan, math.inf, 1.0])
    assert y.isnan().tolist() == [True, False, False]
    assert y.isinf().tolist() == [False, True, False]
    assert y.isfinite().tolist() == [False, False, True]


@pytest.mark.parametrize(("a", "b"), list(itertools.product(DTYPES, DTYPES))[::3])
def test_promotion_is_symmetric_and_a_join(a: str, b: str) -> None:
    x, y = dtorch.ones(2, dtype=a), dtorch.ones(2, dtype=b)
    joined = (x * y)._dtype_name
    assert (y * x)._dtype_name == joined
    assert (dtorch.ones(2, dtype=joined) * x)._dtype_name == joined
    assert (x * y).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("a", "b", "shape"),
    [((3, 1), (1, 4), (3, 4)), ((2, 3), (3,), (2, 3)), ((), (2,), (2,)), ((0, 3), (1, 3), (0, 3)),
     ((2, 1, 3), (4, 1), (2, 4, 3))],
)  # fmt: skip
def test_broadcasting(a: Any, b: Any, shape: Any) -> None:
    assert (dtorch.ones(a) + dtorch.ones(b)).shape == shape


def test_broadcast_mismatch() -> None:
    with pytest.raises(RuntimeError, match=r"size of tensor a \(3\) must match .* b \(4\)"):
        dtorch.ones(2, 3) + dtorch.ones(4)


# ---- reductions and products ---------------------------------------------------------------------


def test_reductions() -> None:
    rows = [[1.0, -2.0, 4.0], [0.5, 8.0, -1.0]]
    x = dtorch.tensor(rows)
    assert x.sum().item() == 10.5
    assert x.sum(0).tolist() == [1.5, 6, 3]
    assert x.sum(1, keepdim=True).tolist() == [[3], [7.5]]
    assert x.prod().item() == 32.0
    assert x.mean(1).tolist() == [1, 2.5]
    assert x.amax(0).tolist() == [1, 8, 4]
    assert x.max().item() == 8
    assert x.min(1).indices.tolist() == [1, 2]
    assert x.argmax().item() == 4
    assert (x > 0).all(1).tolist() == [False, False]
    assert (x > 7).any().item() is True
    assert x.cumsum(1).tolist() == [[1, -1, 3], [0.5, 8.5, 7.5]]
    close(x[0].var().item(), sum((v - 1) ** 2 for v in rows[0]) / 2)
    close(x.norm().item(), math.sqrt(sum(v * v for row in rows for v in row)))
    assert dtorch.ones(300, dtype="uint8").cumsum(0)[-1].item() == 300
    assert dtorch.full((3,), 40000.0, dtype="float16").mean().item() == 40000.0
    assert dtorch.tensor([math.nan, 4.6]).argmax().item() == 0


@pytest.mark.parametrize("n", [1, 2, 7, 33])
def test_matmul(n: int) -> None:
    a = [[(i * 3 + j) % 5 for j in range(n)] for i in range(n + 1)]
    b = [[(i + 2 * j) % 7 for j in range(n + 2)] for i in range(n)]
    want = [[float(sum(x * y for x, y in zip(row, column, strict=True)))
             for column in zip(*b, strict=True)] for row in a]  # fmt: skip
    x, y = dtorch.tensor(a, dtype="float32"), dtorch.tensor(b, dtype="float32")
    assert (x @ y).tolist() == want
    assert dtorch.matmul(x, y).tolist() == want
    assert x.mm(y).tolist() == want


def test_softmax_and_layer_norm() -> None:
    x = dtorch.tensor([[1.0, 2.0, 3.0]])
    total = sum(math.exp(v) for v in (1, 2, 3))
    close(x.softmax(1).tolist(), [[math.exp(v) / total for v in (1, 2, 3)]])
    close(dtorch.nn.functional.layer_norm(x, (3,), eps=0.0).tolist(),
          [[(v - 2) / math.sqrt(2 / 3) for v in (1, 2, 3)]])  # fmt: skip


# ---- views, indexing, joining --------------------------------------------------------------------


def test_views_share() -> None:
    x = dtorch.arange(6)
    y = x.view(2, 3)
    y[1, 2] = 50
    assert x.tolist() == [0, 1, 2, 3, 4, 50]
    assert y.t().tolist() == [[0, 3], [1, 4], [2, 50]]
    assert y.permute(1, 0).stride() == (1, 3)
    assert y.flatten().shape == (6,)
    assert y.unsqueeze(1).shape == (2, 1, 3)
    assert y.unsqueeze(1).squeeze().shape == (2, 3)
    assert y[0].expand(4, 3).stride() == (0, 1)
    assert [c.tolist() for c in x.split(4)] == [[0, 1, 2, 3], [4, 50]]
    assert [c.tolist() for c in x.chunk(3)] == [[0, 1], [2, 3], [4, 50]]
    with pytest.raises(RuntimeError):
        y.t().view(6)
    assert y.t().reshape(6).tolist() == [0, 3, 1, 4, 2, 50]


@pytest.mark.parametrize(
    "index",
    [0, -1, slice(1, 3), slice(None, None, 2), (1, 2), (slice(None), 0), ..., None, (..., 1)],
)
def test_indexing(index: Any) -> None:
    rows = [[r * 4 + c for c in range(4)] for r in range(3)]
    x = dtorch.tensor(rows)
    wants: dict[str, Any] = {
        "0": rows[0],
        "-1": rows[-1],
        "slice(1, 3, None)": rows[1:3],
        "slice(None, None, 2)": rows[::2],
        "(1, 2)": 6,
        "(slice(None, None, None), 0)": [r[0] for r in rows],
        "Ellipsis": rows,
        "None": [rows],
        "(Ellipsis, 1)": [r[1] for r in rows],
    }
    assert x[index].tolist() == wants[repr(index)]


def test_assignment() -> None:
    x = dtorch.zeros(3, 3)
    x[1] = 2
    x[:, 0] = dtorch.tensor([7, 8, 9])
    x[x > 8] = -1
    assert x.tolist() == [[7, 0, 0], [8, 2, 2], [-1, 0, 0]]
    y = dtorch.tensor([1, 2, 3, 4, 5])
    y[1:] = y[:-1].clone()
    assert y.tolist() == [1, 1, 2, 3, 4]


def test_cat_and_stack() -> None:
    a, b = dtorch.tensor([[1, 2]]), dtorch.tensor([[3, 4]])
    assert dtorch.cat([a, b]).tolist() == [[1, 2], [3, 4]]
    assert dtorch.cat([a, b], 1).tolist() == [[1, 2, 3, 4]]
    assert dtorch.stack([a, b]).shape == (2, 1, 2)
    assert dtorch.cat([a, b.to("float32")])._dtype_name == "float32"


def test_where_and_clamp() -> None:
    x = dtorch.tensor([-1.0, 0.5, 3.0])
    assert dtorch.where(x > 0, x, 0.0).tolist() == [0, 0.5, 3]
    assert x.clamp(0, 1).tolist() == [0, 0.5, 1]
    assert x.clip(max=0.5).tolist() == [-1, 0.5, 0.5]


# ---- dtypes and devices without torch ------------------------------------------------------------


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", ["bool", "uint8", "int64", "float16", "float64"])
def test_casts(source: str, target: str) -> None:
    x = dtorch.tensor([0, 1, 2], dtype="int64").to(source)
    want = [bool(v) if target == "bool" else v for v in x.tolist()]
    assert x.to(target).tolist() == want
    assert x.to(target)._dtype_name == target
    assert (x.to(source) is x) and (x.to(source, copy=True) is not x)


def test_dtype_objects() -> None:
    assert dtorch.zeros(1).dtype is dtorch.float32
    assert dtorch.zeros(1, dtype=dtorch.int16).dtype is dtorch.int16
    assert dtorch.half is dtorch.float16
    assert dtorch.float64.is_floating_point
    assert dtorch.int8.itemsize == 1
    assert pickle.loads(pickle.dumps(dtorch.float32)) is dtorch.float32
    assert isinstance(dtorch.float32, dtorch.dtype)
    assert dtorch.finfo(dtorch.float32).max == pytest.approx(3.4028235e38)
    assert dtorch.finfo(dtorch.float16).eps == 2**-10
    assert dtorch.iinfo(dtorch.int8).min == -128
    assert dtorch.promote_types("int8", "float16") is dtorch.float16


def test_device_objects() -> None:
    d = dtorch.ones(1).device
    assert d.type == "cpu"
    assert d == dtorch.device("cpu")
    assert str(dtorch.device("cuda", 1)) == "cuda:1"
    with pytest.raises(RuntimeError):
        dtorch.device("foo")
    with pytest.raises(RuntimeError):
        dtorch.ones(1, device="cuda")


@pytest.mark.parametrize("bad", ["float33", "", "torch.", "complex64", 3, object()])
def test_unknown_dtypes(bad: Any) -> None:
    with pytest.raises(TypeError, match="dtype"):
        dtorch.zeros(1, dtype=bad)


# ---- text, pickles, awaiting ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([1, 2], "tensor([1, 2])"),
        ([1.0, 2.5], "tensor([1.0000, 2.5000])"),
        ([1.0, 2.0], "tensor([1., 2.])"),
        ([True, False], "tensor([ True, False])"),
        (3.0, "tensor(3.)"),
        ([], "tensor([])"),
        ([[1.0], [-2.0]], "tensor([[ 1.],\n        [-2.]])"),
        ([math.nan, math.inf], "tensor([nan, inf])"),
        ([1e-5, 1.0], "tensor([1.0000e-05, 1.0000e+00])"),
    ],
)
def test_repr(data: Any, text: str) -> None:
    assert repr(dtorch.tensor(data)) == text


def test_repr_of_other_dtypes() -> None:
    assert repr(dtorch.ones(2, dtype="int32")) == "tensor([1, 1], dtype=torch.int32)"
    assert repr(dtorch.zeros(0, 2)) == "tensor([], size=(0, 2))"
    assert repr(dtorch.arange(2000)) == "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"


@pytest.mark.parametrize("dtype", DTYPES)
def test_pickle(dtype: str) -> None:
    x = dtorch.tensor([[0, 1, 1]], dtype=dtype)
    y = pickle.loads(pickle.dumps(x))
    assert y._dtype_name == dtype
    assert y.tolist() == x.tolist()


def test_await(run: Any) -> None:
    async def main() -> Any:
        a = dtorch.ones(200, 200)
        b = await (a @ a)
        assert b.is_ready()
        return (await (b.sum() + 1)).item()

    assert run(main()) == 200.0**3 + 1


def test_gather(run: Any) -> None:
    async def main() -> Any:
        x, y = await dtorch.gather(dtorch.ones(300, 300) @ dtorch.ones(300, 300), dtorch.ones(2))
        return x[0, 0].item(), y.tolist()

    assert run(main()) == (300.0, [1, 1])


def test_buffer_protocol_through_bytes() -> None:
    assert dtorch.tensor(list(b"abc"), dtype="uint8")._tobytes() == b"abc"
    assert dtorch.tensor(bytearray(b"ab")).tolist() == [97, 98]
    assert dtorch.tensor(memoryview(b"ab")).tolist() == [97, 98]


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(TypeError, match=r"add\(\): argument 'other' \(position 2\)"):
        dtorch.add(dtorch.ones(1), "a")
    with pytest.raises(TypeError, match="unexpected keyword argument 'axes'"):
        dtorch.ones(1).sum(axes=1)
    with pytest.raises(IndexError, match="out of bounds"):
        dtorch.ones(2)[5]
    with pytest.raises(RuntimeError, match="invalid for input of size 4"):
        dtorch.ones(4).view(3)
    with pytest.raises(IndexError, match="Dimension out of range"):
        dtorch.ones(4).sum(3)
    with pytest.raises(AttributeError):
        dtorch.no_such_function


def test_division_by_zero_is_raised_at_await() -> None:
    async def main() -> None:
        x = dtorch.tensor([1]) // dtorch.tensor([0])
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            await x

    asyncio.run(main())


@pytest.mark.parametrize("dtype", FLOATS)
def test_half_precision_rounds_to_nearest(dtype: str) -> None:
    bits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[dtype]
    exact = 1 + 2.0 ** (1 - bits)
    x = dtorch.tensor([1 + 2.0**-bits, exact, 1 + 3 * 2.0**-bits], dtype=dtype)
    assert x.tolist()[:2] == [1.0, exact]  # a tie goes to even
    assert x.tolist()[2] == 1 + 2.0 ** (2 - bits)


def test_without_torch_the_conversions_say_so() -> None:
    if dtorch.preload():
        pytest.skip("torch is installed here")
    with pytest.raises(RuntimeError, match="torch"):
        dtorch.ones(1).to_torch()
