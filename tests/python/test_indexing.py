"""Indexing: views, copies and errors are torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dtorch
import pytest
import torch

# Each is evaluated as x[eval(text)] with t standing for the module that makes tensors.
GET = """
0 | -1 | 1, 2 | -1, -1 | 0, 0, 0 | slice(None) | slice(1, 3) | slice(-2, None) | slice(None, -1)
slice(0, 10) | slice(5, 2) | slice(None, None, 2) | slice(1, None, 3) | slice(10, 20)
... | ..., 0 | 0, ... | 0, ..., 1 | ..., None | None | None, 0 | 0, None | None, None
slice(None), 0 | slice(None), slice(1, 2) | slice(None), slice(None), -1 | slice(None), None, 2
slice(0, 0) | slice(None), slice(0, 0) | True | False | None, True | True, 0 | 0, False
slice(1, 3), slice(None, None, 2), slice(2, 3) | (slice(None), slice(None), slice(None), ...)
t.tensor(1) | t.tensor(-1) | t.tensor(1), t.tensor(2) | slice(t.tensor(1), None) | t.tensor(True)
[0, 2] | [-1] | [] | t.tensor([2, 0, 0]) | t.tensor([[1, 2], [0, 1]])
slice(None), [0, 1] | ..., [0, -1] | 0, [1, 0] | [1, 0], 0 | slice(None), t.tensor([0]), slice(1, 3)
t.tensor([[1, -1]]) | t.tensor([1], dtype=t.int32) | t.tensor([], dtype=t.int64) | None, [0, 1]
[True, False, True] | t.tensor([False, False, False]) | slice(None), [True, False, True, False]
(..., ...) | ()
"""

ERRORS = """
3 | -4 | 0, 4 | 0, 0, -6 | 0, 0, 0, 0 | slice(None, None, -1) | slice(None, None, 0) | 1.5 | {}
t.tensor(0.5) | t.tensor([7]) | t.tensor([-4]) | slice(1.5, None) | object | 1, 1.5 | 2j
slice(None), slice(None), slice(None), slice(None) | ..., 0, 0, 0, 0 | None, 7
t.tensor([True, False]) | t.tensor([0.5])
"""


def cases(text: str) -> list[str]:
    return [c.strip() for line in text.strip().splitlines() for c in line.split("|")]


def index_of(text: str, module: Any) -> Any:
    return eval(f"({text})", {"t": module})


def make(module: Any) -> Any:
    return module.arange(60).reshape(3, 4, 5)


@pytest.mark.parametrize("text", cases(GET))
@pytest.mark.parametrize("layout", ["dense", "transposed", "sliced"])
def test_get(text: str, layout: str) -> None:
    views: dict[str, Callable[[Any], Any]] = {
        "dense": lambda x: x,
        "transposed": lambda x: x.transpose(0, 2).clone().transpose(0, 2),
        "sliced": lambda x: x.repeat(2, 1, 1)[::2].clone()[:, :, :],
    }
    ours, theirs = (views[layout](make(m)) for m in (dtorch, torch))
    got, want = ours[index_of(text, dtorch)], theirs[index_of(text, torch)]
    assert got.shape == want.shape
    assert got.dtype is want.dtype
    assert got.tolist() == want.tolist()


@pytest.mark.parametrize("text", cases(GET))
def test_get_shares_memory_where_torch_does(text: str) -> None:
    ours, theirs = make(dtorch), make(torch)
    got, want = ours[index_of(text, dtorch)], theirs[index_of(text, torch)]
    got.fill_(-1)
    want.fill_(-1)
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("text", cases(ERRORS))
def test_get_errors(text: str) -> None:
    with pytest.raises(Exception) as theirs:
        make(torch)[index_of(text, torch)]
    with pytest.raises(type(theirs.value)) as ours:
        make(dtorch)[index_of(text, dtorch)]
    if "slice indices" not in str(theirs.value):  # Python's own text there
        assert str(ours.value).split(".")[0][:60] == str(theirs.value).split(".")[0][:60]


SET = [c for c in cases(GET) if not c.startswith("t.tensor([[")]


@pytest.mark.parametrize("text", SET)
@pytest.mark.parametrize("value", [7, -1.5, True])
def test_set_number(text: str, value: Any) -> None:
    ours, theirs = make(dtorch), make(torch)
    ours[index_of(text, dtorch)] = value
    theirs[index_of(text, torch)] = value
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("text", SET)
def test_set_tensor(text: str) -> None:
    ours, theirs = make(dtorch).to("float32"), make(torch).to(torch.float32)
    shape = theirs[index_of(text, torch)].shape
    source = torch.arange(100, 100 + shape.numel()).reshape(shape)
    ours[index_of(text, dtorch)] = dtorch.Tensor(source)  # int64 into float32: cast
    theirs[index_of(text, torch)] = source.to(torch.float32)
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("shape", [(), (1,), (5,), (4, 5), (1, 4, 5), (1, 1, 1), (3, 1, 5), (1, 5)])
def test_set_broadcasts(shape: tuple[int, ...]) -> None:
    source = torch.arange(float(torch.Size(shape).numel())).reshape(shape) + 100
    for index in (slice(None), slice(1, 2)):
        ours, theirs = make(dtorch).to("float32"), make(torch).float()
        try:
            theirs[index] = source
        except RuntimeError as error:
            with pytest.raises(RuntimeError) as raised:
                ours[index] = dtorch.Tensor(source)
            assert str(raised.value) == str(error)
            continue
        ours[index] = dtorch.Tensor(source)
        assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("value", ["a", [1, 2, 3], None, {}])
def test_set_value_of_another_type(value: Any) -> None:
    ours, theirs = dtorch.ones(2, 3), torch.ones(2, 3)
    with pytest.raises(Exception) as want:
        theirs[0] = value
    with pytest.raises(type(want.value)) as got:
        ours[0] = value
    assert str(got.value) == str(want.value)


def test_set_torch_and_numpy_values_are_refused() -> None:
    x = dtorch.ones(2, 3)
    with pytest.raises(TypeError, match=r"torch\.Tensor.*dtorch\.Tensor\(\)"):
        x[0] = torch.ones(3)
    with pytest.raises(TypeError, match=r"numpy"):
        x[0] = torch.ones(3).numpy()
    assert x.tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize("index", [5, (0, 7), (0, 0, 0), slice(None, None, -1), 0.5])
def test_set_errors(index: Any) -> None:
    with pytest.raises(Exception) as want:
        torch.ones(2, 3)[index] = 1
    with pytest.raises(type(want.value)) as got:
        dtorch.ones(2, 3)[index] = 1
    assert str(got.value) == str(want.value)


def test_set_mask_with_a_number_needs_no_look_at_the_mask() -> None:
    ours, theirs = make(dtorch), make(torch)
    ours[ours % 3 == 0] = -5
    theirs[theirs % 3 == 0] = -5
    assert ours.tolist() == theirs.tolist()
    row_mask = [True, False, True]
    ours[dtorch.tensor(row_mask)] = 1
    theirs[torch.tensor(row_mask)] = 1
    assert ours.tolist() == theirs.tolist()


def test_mask_over_all_dims() -> None:
    ours, theirs = make(dtorch), make(torch)
    assert ours[ours > 31].tolist() == theirs[theirs > 31].tolist()
    assert ours[dtorch.zeros(3, 4, dtype="bool")].shape == (0, 5)


def test_overlapping_assignment() -> None:
    for n in (5, 1_500_000):
        x = dtorch.arange(n)
        x[1:] = x[:-1].clone()
        want = torch.arange(n)
        want[1:] = want[:-1].clone()
        assert torch.equal(x.to_torch(), want)
    x = dtorch.tensor([1, 2, 3, 4, 5])
    x[1:] = x[:-1].clone()
    assert x.tolist() == [1, 1, 2, 3, 4]


def test_expanded_tensors_cannot_be_written() -> None:
    with pytest.raises(RuntimeError, match="more than one element"):
        dtorch.ones(1).expand(3).cos_()
    with pytest.raises(RuntimeError, match="more than one element"):
        dtorch.ones(1).expand(3)[:] = 2


def test_zero_dim() -> None:
    x = dtorch.tensor(5)
    assert x[...].item() == 5
    assert x[None].tolist() == [5]
    assert x[()].item() == 5
    with pytest.raises(IndexError, match="0-dim"):
        x[0]
    x[...] = 6
    assert x.item() == 6


def test_deleting() -> None:
    with pytest.raises(TypeError):
        del dtorch.ones(2)[0]


def test_several_index_tensors_are_not_there_yet() -> None:
    x = make(dtorch)
    with pytest.raises(NotImplementedError, match="several"):
        x[[0, 1], [1, 2]]


def test_foreign_indices_are_refused() -> None:
    x = make(dtorch)
    with pytest.raises(TypeError, match=r"torch\.Tensor"):
        x[torch.tensor([0, 1])]
    import numpy as np

    with pytest.raises(TypeError, match="numpy"):
        x[np.array([0, 1])]
    assert x[np.int64(1), np.int32(0)].tolist() == x[1, 0].tolist()


def test_iteration_and_len() -> None:
    x, t = make(dtorch), make(torch)
    assert len(x) == 3
    assert [r.tolist() for r in x] == [r.tolist() for r in t]
    a, b, _ = x
    assert b.tolist() == t[1].tolist()
    a.fill_(0)
    assert x[0].sum().item() == 0
    for bad in (len, iter, list):
        with pytest.raises(TypeError) as want:
            bad(torch.tensor(1))
        with pytest.raises(TypeError) as got:
            bad(dtorch.tensor(1))
        assert str(got.value) == str(want.value)


def test_contains() -> None:
    x = dtorch.tensor([[1, 2], [3, 4]])
    assert 3 in x
    assert 7 not in x
    assert dtorch.tensor(4) in x
    with pytest.raises(RuntimeError):
        "a" in x


def test_seventeen_dims() -> None:
    x = dtorch.ones((1,) * 16)
    with pytest.raises(IndexError, match="16"):
        x[None]
