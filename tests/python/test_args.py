"""Arguments: forms, aliases, defaults and errors of registry functions are torch's."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import dtorch
import numpy as np
import pytest
import torch

# Expressions in m (the module) and x, y (2x3 float tensors); both modules must agree.
GOOD = """
m.add(x, y) | m.add(x, 2) | m.add(input=x, other=y) | m.add(x, y, alpha=2) | m.add(2, x)
m.add(x, other=y, alpha=0.5) | x.add(y) | x.add(other=1) | x.add(y, alpha=m.tensor(3))
m.sub(x, y, alpha=2) | m.mul(x, True) | m.div(x, y, rounding_mode='floor')
x.div(2, rounding_mode=None) | m.sum(x) | m.sum(x, 0) | m.sum(x, (0, 1)) | m.sum(x, [0])
m.sum(x, dim=1, keepdim=True) | m.sum(x, axis=1) | m.sum(x, 1, True) | x.sum(-1) | x.sum(dim=())
x.sum(1, dtype=m.float64) | x.sum(1, keepdims=True) | x.mean(0) | x.sum(dim=None) | m.sum(input=x)
m.relu(x) | x.reshape(3, 2) | x.reshape((3, 2)) | x.reshape([3, 2]) | x.reshape(shape=(3, 2))
x.reshape(-1) | x.view(3, 2) | x.view((3, 2)) | x.view(size=(3, 2)) | x.view(-1, 2)
x.view(m.int32) | x.view(dtype=m.int32) | x.view(m.uint8) | m.reshape(x, (6,))
m.reshape(x, [2, -1]) | x.permute(1, 0) | x.permute((1, 0)) | x.permute(dims=(1, 0))
m.permute(x, (1, 0)) | x.expand(2, 2, 3) | x.expand((4, 2, 3)) | x.expand(-1, -1)
x.transpose(0, 1) | x.transpose(dim0=0, dim1=1) | x.t() | m.transpose(x, 0, 1) | x.flatten()
x.flatten(0) | x.flatten(start_dim=0, end_dim=1) | x.squeeze() | x.unsqueeze(0).squeeze(0)
x.unsqueeze(0).squeeze((0, 1)) | x.unsqueeze(dim=-1) | x.select(0, 1) | x.narrow(1, 0, 2)
x.narrow(1, 1, 2) | x.clamp(0.5) | x.clamp(max=1) | x.clamp(0, 1) | x.clamp(min=y) | x.clip(0, 1)
m.clamp(x, y) | x.softmax(0) | x.softmax(dim=-1) | m.softmax(x, 1, dtype=m.float64)
m.cat([x, y]) | m.cat((x, y), 1) | m.cat([x, y], dim=-1) | m.cat(tensors=[x])
m.stack([x, y], dim=2) | m.cat([x, y], axis=1) | m.concat([x, y]) | m.where(x > 0, x, y)
m.where(x > 0, x, 0.0) | m.where(x > 0, 1, 0) | m.argmax(x) | m.argmax(x, 1)
x.argmax(dim=0, keepdim=True) | x.any() | x.all(1) | m.round(x, decimals=1) | x.round() | x.pow(2)
m.pow(x, y) | m.pow(2, x) | x.cumsum(0) | x.cumsum(dim=1) | x.amax() | x.amax(1)
x.amin(dim=(0, 1)) | x.clone() | x.contiguous() | x.masked_fill(x > 1, 0) | m.lerp(x, y, 0.5)
m.addcmul(x, x, y, value=2) | x.tril() | x.triu(diagonal=1) | x.logsumexp(1) | x.max() | x.max(1)
x.max(y) | x.max(dim=0, keepdim=True) | m.max(x, 1) | m.max(x, y) | m.max(input=x)
m.max(x, dim=1) | x.max(axis=1) | m.max(x, other=y) | x.min(0)[1] | m.min(x, 0, True) | x.std()
x.std(0) | x.std(0, False) | x.std(False) | x.std(dim=1, correction=0) | x.std(1, keepdim=True)
x.std(dim=None) | x.var() | x.var(1, unbiased=False) | x.var((0, 1)) | m.var(x, 0, True, True)
x.var(dim=()) | m.std_mean(x, 0) | m.var_mean(x) | x.norm() | x.norm(1) | x.norm(dim=1)
x.norm(2, 0, True) | x.norm(float('inf')) | m.norm(x, p='fro') | m.linalg.vector_norm(x)
m.linalg.vector_norm(x, 1, 0) | m.linalg.norm(x) | m.linalg.norm(x[0], 3)
m.linalg.norm(x, dim=1) | m.aminmax(x) | x.split(1) | x.split([1, 2], 1) | x.split(2, dim=1)
m.split(x, 2) | x.chunk(2) | x.chunk(2, 1) | x.chunk(7) | m.tensor_split(x, 2, 1)
x.tensor_split([1], dim=1) | x.tensor_split(3) | x.unbind() | m.unbind(x, 1) | m.zeros(2, 3)
m.zeros((2, 3)) | m.zeros([2]) | m.zeros(()) | m.ones(size=(2,)) | m.zeros(2, dtype=m.int32)
m.full((2,), 3) | m.full([2, 2], 1.5) | m.full((), True) | m.full((2,), 1, dtype=m.float64)
m.full(size=(1,), fill_value=2) | m.arange(5) | m.arange(1, 4) | m.arange(0, 1, 0.25)
m.arange(5, 0, -2) | m.arange(end=3) | m.arange(1, end=3) | m.arange(3.0)
m.arange(3, dtype=m.float32) | m.arange(start=1, end=7, step=2) | m.arange(0) | m.arange(2.5)
m.linspace(0, 1, 5) | m.linspace(0, 1, steps=1) | m.linspace(3, -3, 4)
m.linspace(0, 10, 3, dtype=m.int64) | m.eye(3) | m.eye(2, 3) | m.eye(3, dtype=m.int64)
m.eye(n=2, m=1) | m.eye(0) | m.zeros_like(x) | m.ones_like(x, dtype=m.int64) | m.full_like(x, 7)
m.zeros_like(input=x) | x.new_zeros(2) | x.new_ones((2, 2)) | x.new_full((2,), 3)
x.new_tensor([1, 2]) | x.new_zeros(2, dtype=m.bool) | x.to(m.float64) | x.to('cpu')
x.to('cpu', m.int32) | x.to(y) | x.to(dtype=m.bool) | x.to(device='cpu')
x.to(m.float16, copy=True) | x.double() | x.half() | x.int() | x.long() | x.bool() | x.float()
x.bfloat16() | x.type() | x.type(m.float64) | x.type_as(m.zeros(1, dtype=m.int64)) | x.cpu()
m.isclose(x, y) | m.allclose(x, x) | m.equal(x, y) | x.equal(x) | m.allclose(x, y, atol=10.0)
m.numel(x) | m.is_tensor(x) | m.is_floating_point(x) | m.is_nonzero(m.tensor(0.0))
x.is_floating_point() | x.size() | x.size(0) | x.size(dim=-1) | x.stride() | x.stride(0) | x.dim()
x.ndimension() | x.numel() | x.nelement() | x.element_size() | x.itemsize | x.nbytes
x.is_contiguous() | x.T.is_contiguous() | x.storage_offset() | x[1].storage_offset()
m.clamp_min(x, 1) | x.clamp_max(1) | m.outer(x[0], y[1]) | x.repeat(2, 1) | x.repeat(2, 2, 2)
m.tile(x, (2,)) | m.broadcast_tensors(x, y[0])[1] | tuple(m.broadcast_shapes((2, 1), (3,)))
m.meshgrid(x[0], y[0], indexing='ij') | m.meshgrid(x[0], y[:, 0], indexing='xy')
x.reshape_as(y.T) | x.view_as(y) | x.expand_as(y) | x.ravel() | m.count_nonzero(x > 1)
x.swapaxes(0, 1) | m.moveaxis(x, 0, 1) | x.movedim(1, 0) | x.unflatten(1, (3, 1))
m.index_select(x, 1, m.tensor([0, 2])) | m.gather(x, 1, m.tensor([[0], [2]])) | x.diagonal()
x.mT | x.T | x.H | m.matmul(x, y.T) | x @ y.T | x.mm(y.T) | m.mv(x, y[0]) | m.dot(x[0], y[0])
m.addmm(m.ones(2), x, y.T, beta=2) | m.where(m.tensor(True), x, y) | x.where(x > 1, y)
m.rsub(x, 1) | 3 - x | 2 / x | 2 ** x | 7 // x | 7 % x | -x | +x | abs(x) | x // 2 | x % 2
x ** 2 | x < y | x == 1 | x != y | 1 < x | m.tensor([6]) & 3 | m.tensor([6]) | m.tensor([1]) << 2
~m.tensor([1]) | m.result_type(x, 1) | m.promote_types(m.int8, m.float16)
m.can_cast(m.float32, m.int32) | m.get_default_dtype() | m.nn.functional.softmax(x, dim=1)
m.nn.functional.linear(x, y) | m.nn.functional.gelu(x, approximate='tanh')
m.nn.functional.layer_norm(x, (3,)) | m.nn.functional.layer_norm(x, [3], y[0], y[1], 1e-3)
m.nn.functional.silu(x) | m.nn.functional.normalize(x, dim=1)
m.nn.functional.cosine_similarity(x, y) | m.nn.functional.relu6(x)
m.nn.functional.leaky_relu(x, 0.2) | m.nn.functional.elu(x, alpha=2.0)
m.nn.functional.softplus(x) | m.nn.functional.dropout(x, 0.5, training=False)
m.nn.functional.dropout(x, 1.0) | m.nn.functional.rms_norm(x, (3,))
m.nn.functional.embedding(m.tensor([1, 0]), x) | m.nn.functional.one_hot(m.tensor([0, 2]))
m.nn.functional.glu(x.T) | m.nn.functional.pad(x, (1, 2))
m.nn.functional.pad(x, (-1, 0, 1, 1), value=9.0) | m.nn.functional.mse_loss(x, y)
m.nn.functional.l1_loss(x, y, reduction='sum') | m.nn.functional.hardtanh(x)
m.nn.functional.mish(x) | m.nn.functional.logsigmoid(x) | m.nn.functional.log_softmax(x, 0)
m.nn.functional.pairwise_distance(x, y)
m.nn.functional.scaled_dot_product_attention(x[None], y[None], y[None])
m.nn.functional.scaled_dot_product_attention(x[None], y[None], y[None], is_causal=True, scale=0.5)
"""

BAD = """
m.add(x) | m.add() | m.add(x, 'a') | m.add(x, y, 1, 2) | m.add(x, y, foo=1) | m.add(x, y, other=y)
m.add(x, None) | x.add() | x.add(y, alpha='a') | x.add(y, out=x) | m.relu() | m.relu(3)
m.relu(x, x) | x.relu(1) | m.relu(y=1) | m.sum('a') | x.sum('a') | x.sum(1.5) | x.sum(foo=1)
x.sum(1, 1) | x.sum(5) | x.sum(-3) | x.sum((0, 0)) | x.sum([0, 'a']) | m.softmax(x)
x.softmax('a') | x.softmax(True) | x.softmax(3) | x.transpose(0) | x.transpose(0, 'a')
x.transpose(0, 2) | m.cat(x) | m.cat([]) | m.cat([x, 1]) | m.cat([x, y], 5)
m.cat([x, m.ones(1)]) | m.stack([]) | m.stack([x, x[0]]) | x.view('a') | x.view(4, 2) | x.view()
x.view(2, 'a') | x.view([3, 2], 2) | x.view(-1, -1) | x.T.view(6) | x.view(m.float64, 2)
x.reshape(4) | x.reshape(-1, 4) | x.permute(0) | x.permute(1, 1) | x.permute() | x.permute(0, 2)
x.expand(3) | x.expand(4, 3) | x.select(2, 0) | x.select(0, 5) | x.narrow(0, 0, 5)
x.narrow(0, 0, -1) | x.squeeze('a') | x.unsqueeze(5) | x.unsqueeze() | x.clamp() | x.clamp('a')
m.where(x, x, y) | m.where(x > 0, 'a', y) | x.max('a') | x.max(5) | m.max(m.ones(0)) | x.max(1, 1)
x.min(0, True, 3) | x.std('a') | x.var(5) | x.norm('nucc') | x.split(0) | x.split([1, 1], 1)
x.split(-1) | x.chunk(0) | x.chunk('a') | x.unbind(5) | m.unbind(m.tensor(1)) | x.tensor_split(0)
m.zeros() | m.zeros('a') | m.zeros(2.5) | m.zeros(-1) | m.zeros(2, foo=1)
m.zeros(2, device='foo') | m.zeros((2, 'a')) | m.full(2, 1) | m.full((2,)) | m.full((2,), 'a')
m.arange() | m.arange('a') | m.arange(0, 5, 0) | m.arange(5, 0) | m.arange(1, 2, 3, 4)
m.linspace(0, 1) | m.linspace(0, 1, -1) | m.eye(-1) | m.eye('a') | m.randint(0, (2,))
m.randint(5) | m.randn('a') | m.rand(2, dtype=m.int64) | m.zeros_like(3) | m.ones_like()
x.new_zeros('a') | x + 'a' | x + None | x @ 1 | x @ y | x < 'a' | x & y | ~x | x << 1
m.tensor([1.0]) & 1 | x.mm(y) | m.dot(x, y) | m.mv(x, y) | x.size(7) | x.size('a') | x.stride(3)
x.stride('a') | x.item() | int(x) | float(x) | bool(x) | range(3)[x] | bool(m.ones(0))
len(m.tensor(1)) | x.to('foo') | x.add_(m.ones(4, 2, 3)) | x.add_('a') | x.copy_('a')
x.copy_(m.ones(5)) | x.fill_('a') | x.fill_(m.ones(2)) | m.index_select(x, 5, m.tensor([0]))
m.index_select(x, 0, m.tensor([0.5])) | m.round(x, decimals=1.5) | m.pow(2, 3) | x.cumsum()
m.isclose(x, y.long()) | m.allclose(x, 1) | m.equal(x, 1) | m.is_nonzero(x) | m.numel(3)
m.is_floating_point(3) | m.set_default_dtype(m.int64) | m.promote_types(1, 2)
m.result_type('a', x) | x.requires_grad_(5) | m.ones(2, dtype=m.int64).requires_grad_()
m.nn.functional.layer_norm(x, (4,)) | m.nn.functional.dropout(x, 1.5)
m.nn.functional.linear(x, x.T) | m.nn.functional.gelu(x, approximate='a')
m.nn.functional.embedding(x, x) | m.nn.functional.softplus('a') | m.nn.functional.one_hot(x)
m.logical_and(x, 1) | x.lerp(y) | x.tril('a') | x.masked_fill(x, 1) | m.outer(x, x) | x.repeat(2)
x.unflatten(1, (2, 2)) | x.movedim(0, 5) | x.mT.mT.mT.foo | x.diagonal(0, 1, 1)
x.as_strided((2, 2), (-1, 1)) | x.set_(1, 2, 3, 4, 5)
"""


def cases(text: str) -> list[str]:
    found = []
    for line in text.strip().splitlines():
        for piece in line.split(" | "):
            found.append(piece.strip())
    return found


def evaluate(text: str, module: Any) -> Any:
    x = module.tensor([[0.5, -1.25, 2.0], [3.0, 0.75, 1.5]])
    y = module.tensor([[1.0, 2.0, -0.5], [0.25, 4.0, 1.5]])
    return eval(text, {"m": module, "x": x, "y": y})


def compare(got: Any, want: Any) -> None:
    if isinstance(want, torch.Tensor):
        assert isinstance(got, dtorch.Tensor)
        assert got.dtype is want.dtype
        assert got.shape == want.shape
        torch.testing.assert_close(got.to_torch(), want, rtol=2e-6, atol=2e-7, equal_nan=True)
    elif isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            compare(g, w)
    else:
        assert got == want


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", cases(GOOD))
def test_forms(text: str) -> None:
    compare(evaluate(text, dtorch), evaluate(text, torch))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", cases(BAD))
def test_errors(text: str) -> None:
    with pytest.raises(Exception) as want:
        evaluate(text, torch)
    with pytest.raises(Exception) as got:
        evaluate(text, dtorch)
    assert isinstance(got.value, type(want.value)), (got.value, want.value)


EXACT = """
m.add(x, 'a') | m.relu(3) | m.relu(x, x) | m.relu() | m.softmax(x) | x.transpose(0) | m.cat(x)
m.cat([x, 1]) | x.sum(1, 1) | x.softmax(True) | m.zeros('a') | m.zeros() | m.zeros(2.5)
m.ones(2, foo=1) | m.full(2, 1) | x.add(y, out=x) | x.add_(m.ones(4, 2, 3)) | bool(x)
bool(m.ones(0)) | int(x) | x.item() | range(3)[x] | len(m.tensor(1)) | x.size(7) | x + 'a'
x < 'a' | x @ 1 | x.split(0) | x.split([1, 1], 1) | x.chunk(0) | x.unbind(5) | x.stride('a')
x.new_zeros('a') | x.copy_(m.ones(5)) | m.arange('a') | m.arange(0, 5, 0)
"""


@pytest.mark.parametrize("text", cases(EXACT))
def test_error_texts(text: str) -> None:
    with pytest.raises(Exception) as want:
        evaluate(text, torch)
    with pytest.raises(type(want.value)) as got:
        evaluate(text, dtorch)
    ours = str(got.value).replace("Tensor or Number", "Tensor")
    assert ours.splitlines()[0] == str(want.value).splitlines()[0]


# ---- out= ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        "m.add(x, y, out=o)",
        "m.exp(x, out=o)",
        "m.matmul(x, y.T, out=o)",
        "m.sum(x, 0, out=o)",
        "m.cat([x, y], out=o)",
        "m.clamp_min(x, 1, out=o)",
        "m.arange(4, out=o)",
        "m.zeros(2, 2, out=o)",
        "m.max(x, y, out=o)",
        "m.std(x, 0, out=o)",
        "m.where(x > 0, x, y, out=o)",
        "m.norm(x, out=o)",
    ],
)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out(call: str) -> None:
    results = []
    for module in (dtorch, torch):
        x = module.tensor([[0.5, -1.25, 2.0], [3.0, 0.75, 1.5]])
        y = x * 2 - 1
        out = module.empty(0)
        space = {"m": module, "x": x, "y": y, "o": out}
        result = eval(call, space)
        assert result is out
        again = eval(call, space)  # now of the right shape
        assert again is out
        results.append(out)
    compare(*results)


def test_out_writes_through_views_and_casts() -> None:
    x = dtorch.arange(3.0)
    base = dtorch.zeros(2, 3, dtype="float64")
    dtorch.add(x, 1, out=base[1])
    assert base.tolist() == [[0, 0, 0], [1, 2, 3]]
    with pytest.raises(RuntimeError, match="can't be cast"):
        dtorch.add(x, 1, out=dtorch.zeros(3, dtype="int64"))
    with pytest.raises(TypeError):
        dtorch.add(x, 1, out=3)
    with pytest.raises(TypeError):
        dtorch.relu(x, out=x)


def test_max_with_out() -> None:
    x = dtorch.tensor([[1.0, 5.0], [7.0, 2.0]])
    values, indices = dtorch.empty(0), dtorch.empty(0, dtype="int64")
    result = dtorch.max(x, 1, out=(values, indices))
    assert values.tolist() == [5, 7]
    assert result.indices is indices
    assert indices.tolist() == [1, 0]


# ---- objects -------------------------------------------------------------------------------------


def test_named_results() -> None:
    got, want = dtorch.tensor([[1.0, 2.0]]).max(1), torch.tensor([[1.0, 2.0]]).max(1)
    assert repr(got) == repr(want)
    assert got.values.tolist() == [2]
    assert got[1].tolist() == [1]
    values, indices = got
    assert (values.item(), indices.item()) == (2, 1)


def test_functions_describe_themselves() -> None:
    assert dtorch.add.__name__ == "add"
    assert "alpha" in dtorch.add.__doc__
    assert dtorch.Tensor.add_.__qualname__ == "Tensor.add_"
    assert str(inspect.signature(dtorch.sum)) == (
        "(input, dim=None, keepdim=False, *, dtype=None, out=None)"
    )
    assert str(inspect.signature(dtorch.Tensor.sum)) == (
        "(self, dim=None, keepdim=False, *, dtype=None)"
    )
    assert "add" in repr(dtorch.add)
    assert pickle.loads(pickle.dumps(dtorch.add)) is dtorch.add
    assert dtorch.ones(1).add.__self__.shape == (1,)


def test_unbound_and_bound_calls() -> None:
    x = dtorch.ones(2)
    assert dtorch.Tensor.add(x, 1).tolist() == [2, 2]
    bound = x.add
    assert bound(1, alpha=3).tolist() == [4, 4]
    assert next(map(dtorch.neg, [x])).tolist() == [-1, -1]
    with pytest.raises(TypeError):
        dtorch.Tensor.add(3, x)
    with pytest.raises(TypeError):
        dtorch.Tensor.add()
    with pytest.raises(TypeError):
        type(dtorch.add)()


@pytest.mark.parametrize(
    "text", ["x.add(y, **{'alpha': 2})", "m.add(*[x, y])", "m.add(**{'input': x, 'other': y})"]
)
def test_unpacked_arguments(text: str) -> None:
    compare(evaluate(text, dtorch), evaluate(text, torch))


def test_keyword_names_need_not_be_interned() -> None:
    key = "".join(["al", "pha"])
    assert dtorch.add(dtorch.ones(1), 1, **{key: 2}).item() == 3


def test_two_numbers() -> None:
    for name in ("add", "sub", "mul", "div", "floor_divide", "true_divide"):
        compare(getattr(dtorch, name)(7, 2), getattr(torch, name)(7, 2))
    for name in ("eq", "lt", "remainder", "bitwise_and", "rsub"):
        with pytest.raises(TypeError, match=r"got \(int, int\)"):
            getattr(dtorch, name)(7, 2)


def test_wide_lists() -> None:
    tensors = [dtorch.full((2,), i) for i in range(300)]
    assert dtorch.cat(tensors).sum().item() == 2 * sum(range(300))
    assert dtorch.stack(tensors).shape == (300, 2)


def test_dtype_spellings() -> None:
    for spelling in ("float64", "torch.float64", "double", float, torch.float64, torch.double):
        assert dtorch.zeros(1, dtype=spelling).dtype is torch.float64
    assert dtorch.zeros(1, dtype=int).dtype is torch.int64
    assert dtorch.zeros(1, dtype=bool).dtype is torch.bool
    for bad in ("float33", torch.complex64, torch.uint16, 3, np.float32, "cpu"):
        with pytest.raises(TypeError):
            dtorch.zeros(1, dtype=bad)
    with pytest.raises(TypeError, match="float16, bfloat16"):
        dtorch.zeros(1, dtype=torch.complex64)


def test_devices() -> None:
    assert dtorch.zeros(1, device="cpu").device.type == "cpu"
    assert dtorch.zeros(1, device=torch.device("cpu", 0)).shape == (1,)
    for bad in ("cuda", "cuda:1", torch.device("meta")):
        with pytest.raises(RuntimeError, match="only 'cpu'"):
            dtorch.zeros(1, device=bad)
    with pytest.raises(TypeError):
        dtorch.zeros(1, device=1.5)


def test_memory_formats() -> None:
    x = dtorch.ones(2, 3)
    assert x.clone(memory_format=torch.preserve_format).shape == (2, 3)
    assert x.T.contiguous(memory_format=torch.contiguous_format).is_contiguous()
    assert x.contiguous() is x
    assert x.is_contiguous(memory_format=torch.contiguous_format)


def test_default_dtype() -> None:
    try:
        dtorch.set_default_dtype("float64")
        assert dtorch.zeros(1).dtype is torch.float64
        assert dtorch.tensor(1.5).dtype is torch.float64
        assert (dtorch.tensor([1]) / 2).dtype is torch.float64
        assert torch.get_default_dtype() is torch.float32
    finally:
        dtorch.set_default_dtype(torch.float32)
    assert dtorch.get_default_dtype() is torch.float32
