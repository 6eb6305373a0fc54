"""redistribute between any two placement lists, against torch.chunk and plain reductions."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import Iterator

import dtorch
import pytest
import torch
from dtorch import _C
from pending import hold, meanwhile, patient

R = 0
SUM, AVG, MIN, MAX, PRODUCT = 2, 3, 4, 5, 6
KINDS = (SUM, AVG, MIN, MAX, PRODUCT)
SOAK = os.environ.get("DTORCH_SOAK") == "1"


def S(dim: int) -> int:
    return 1 + 256 * dim


def mesh(*shape: int, first: int = 0, cuda: bool = True) -> int:
    count = 1
    for n in shape:
        count *= n
    return _C.mesh_new(cuda, shape, list(range(first, first + count)), None)


# ---- the reference: nothing here knows dtorch's layout -------------------------------------------


def chunk(t: torch.Tensor, n: int, k: int, dim: int) -> torch.Tensor:
    chunks = torch.chunk(t, n, dim)
    return chunks[k] if k < len(chunks) else t.narrow(dim, 0, 0)


def cut(t: torch.Tensor, shape: tuple[int, ...], codes: tuple[int, ...], at: tuple[int, ...]):
    """The part of a global value at those coordinates."""
    for n, code, k in zip(shape, codes, at, strict=True):
        if code % 256 == 1:
            t = chunk(t, n, k, code // 256)
    return t


def reduce(kind: int, parts: list[torch.Tensor]) -> torch.Tensor:
    stack = torch.stack([p.to(torch.float64) for p in parts])
    if kind == SUM:
        return stack.sum(0)
    if kind == AVG:
        return stack.sum(0) / len(parts)
    if kind == MIN:
        return stack.amin(0)
    if kind == MAX:
        return stack.amax(0)
    return stack.prod(0)


def coordinates(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(n) for n in shape))


def whole(values: dict, shape: tuple[int, ...], codes: tuple[int, ...]) -> torch.Tensor:
    """The value of one tensor for each coordinate of the Partial mesh dims."""
    for m in reversed(range(len(shape))):
        if codes[m] % 256 < 2:
            continue
        grouped: dict = {}
        for at, value in values.items():
            grouped.setdefault((*at[:m], 0, *at[m + 1 :]), []).append(value)
        values = {at: reduce(codes[m] % 256, parts) for at, parts in grouped.items()}
    (value,) = values.values()
    return value


def make(size, dtype, shape, codes, seed=0):
    """Parts by coordinates, and the global value: Partial parts differ in size and sign."""
    generator = torch.Generator().manual_seed(seed)
    kinds = {c % 256 for c in codes}
    count = 1
    for n, code in zip(shape, codes, strict=True):
        count *= n if code % 256 == AVG else 1
    values = {}
    for number, at in enumerate(
        coordinates(tuple(n if c % 256 >= 2 else 1 for n, c in zip(shape, codes, strict=True)))
    ):
        if PRODUCT in kinds:
            v = torch.tensor([1, -1, 2, -2])[torch.randint(0, 4, size, generator=generator)]
        else:
            v = torch.randint(-4, 5, size, generator=generator) + (number * 5 if number % 2 else 0)
        v = v * count
        if dtype == torch.bool:
            v = v > 0
        elif dtype == torch.uint8:
            v = v.abs()
        values[at] = v.to(dtype)
    full = whole(values, shape, codes)
    parts = []
    for at in coordinates(shape):
        key = tuple(k if c % 256 >= 2 else 0 for k, c in zip(at, codes, strict=True))
        parts.append(cut(values[key], shape, codes, at).clone())
    return parts, full.to(dtype)


def build(parts, number, codes, size):
    return _C.dist_new([dtorch.tensor(p) for p in parts], number, codes, size)


def check(result, full, shape, codes):
    got = {
        at: _C.dist_part(result, k).to_torch().clone() for k, at in enumerate(coordinates(shape))
    }
    assert _C.dist_spec(result)[1] == tuple(codes)
    fixed = [c % 256 < 2 for c in codes]
    groups: dict = {}
    for at, value in got.items():
        key = tuple(k if f else 0 for k, f in zip(at, fixed, strict=True))
        assert value.dtype == full.dtype
        groups.setdefault(key, {})[at] = value
    for key, members in groups.items():
        expected = cut(full, shape, codes, key)
        for value in members.values():
            assert value.shape == expected.shape
        flat = {
            tuple(0 if f else k for k, f in zip(at, fixed, strict=True)): v
            for at, v in members.items()
        }
        value = whole(flat, shape, codes)
        assert torch.equal(value.to(torch.float64), expected.to(torch.float64)), (key, codes)


def lists(shape, rank, kind):
    choices = [R, *(S(d) for d in range(rank)), kind]
    return list(itertools.product(choices, repeat=len(shape)))


def pairs(shape, rank, kind):
    all_lists = lists(shape, rank, kind)
    return itertools.product(all_lists, all_lists)


# ---- one mesh ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (2, 2), (2, 3)])
@pytest.mark.parametrize("size", [(5, 3), (1, 7), (0, 3), (7,), ()])
def test_every_pair(shape, size):
    number = mesh(*shape)
    for a, b in pairs(shape, len(size), SUM):
        parts, full = make(size, torch.float32, shape, a)
        t = build(parts, number, a, size)
        check(_C.redistribute(t, number, b), full, shape, b)


@pytest.mark.parametrize("shape", [(3,), (2, 2), (2, 3)])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_partial(shape, kind):
    number = mesh(*shape)
    for a, b in pairs(shape, 1, kind):
        parts, full = make((5,), torch.float64, shape, a, seed=1)
        t = build(parts, number, a, (5,))
        check(_C.redistribute(t, number, b), full, shape, b)


@pytest.mark.parametrize("kinds", list(itertools.permutations(KINDS, 2)))
def test_partial_to_another_partial(kinds):
    """Case 5 of the list of faults: never by taking one for the other."""
    number = mesh(3)
    a, b = (kinds[0],), (kinds[1],)
    parts, full = make((5,), torch.float64, (3,), a, seed=2)
    check(_C.redistribute(build(parts, number, a, (5,)), number, b), full, (3,), b)


def test_sums_and_averages_mix():
    shape = (2, 3)
    number = mesh(*shape)
    for a in ((SUM, AVG), (AVG, SUM)):
        for b in [*lists(shape, 1, SUM), (AVG, SUM), (R, AVG), (AVG, AVG)]:
            parts, full = make((5,), torch.float64, shape, a, seed=4)
            check(_C.redistribute(build(parts, number, a, (5,)), number, b), full, shape, b)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    ],
)
def test_every_dtype(dtype):
    shape, size = (2, 2), (5, 3)
    number = mesh(*shape)
    kinds = [MIN, MAX] if dtype == torch.bool else [SUM, MIN, MAX]
    if dtype.is_floating_point:
        kinds.append(AVG)
    for kind in kinds:
        chosen = list(pairs(shape, 2, kind))
        for a, b in chosen if SOAK else random.Random(kind).sample(chosen, 60):
            parts, full = make(size, dtype, shape, a, seed=3)
            check(_C.redistribute(build(parts, number, a, size), number, b), full, shape, b)


@pytest.mark.parametrize("shape", [(2, 2, 2), (2, 1, 3), (1, 1), (5,), (2, 3, 2, 2)])
def test_other_meshes(shape):
    number = mesh(*shape)
    rng = random.Random(str(shape))
    for _ in range(3000 if SOAK else 60):
        size = tuple(rng.choice((1, 2, 5, 9, 24)) for _ in range(rng.choice((1, 2, 3))))
        kind = rng.choice((SUM, SUM, MAX))
        choices = [R, *(S(d) for d in range(len(size))), kind]
        a, b = (tuple(rng.choice(choices) for _ in shape) for _ in range(2))
        parts, full = make(size, torch.float64, shape, a, seed=rng.randrange(999))
        check(_C.redistribute(build(parts, number, a, size), number, b), full, shape, b)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_in_any_layout(kind):
    """Sources that are views: transposed, every second element, expanded."""
    number = mesh(2, 2)
    for a, b in pairs((2, 2), 2, kind):
        parts, full = make((6, 4), torch.float32, (2, 2), a, seed=5)
        views = [dtorch.tensor(p.t().contiguous()).t() for p in parts]
        wide = torch.empty(parts[1].shape[0] * 2, parts[1].shape[1] * 3)
        wide[1::2, ::3] = parts[1]
        views[1] = dtorch.tensor(wide)[1::2, ::3]
        t = _C.dist_new(views, number, a, (6, 4))
        check(_C.redistribute(t, number, b), full, (2, 2), b)


# ---- values --------------------------------------------------------------------------------------


def test_sums_go_by_coordinates_on_every_device():
    number = mesh(5)
    parts = [torch.randn(1000, generator=torch.Generator().manual_seed(k)) for k in range(5)]
    parts[3] *= 1e6
    want = parts[0].clone()
    for p in parts[1:]:
        want += p
    t = build(parts, number, (SUM,), (1000,))
    whole = _C.redistribute(t, number, (R,))
    cut_up = _C.redistribute(t, number, (S(0),))
    for k in range(5):
        assert torch.equal(_C.dist_part(whole, k).to_torch(), want)
        assert torch.equal(_C.dist_part(cut_up, k).to_torch(), want[200 * k : 200 * k + 200])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_summed_in_float32(dtype):
    number = mesh(4)
    parts = [(torch.randn(777) * 30).to(dtype) for _ in range(4)]
    exact = parts[0].float()
    for p in parts[1:]:
        exact = exact + p.float()
    for kind, want in ((SUM, exact), (AVG, exact / 4)):
        t = build(parts, number, (kind,), (777,))
        got = _C.redistribute(t, number, (R,))
        assert torch.equal(_C.dist_part(got, 2).to_torch(), want.to(dtype))


def test_nan_and_signed_zero():
    number = mesh(2)
    nan = float("nan")
    t = build([torch.tensor([nan, 1.0, -0.0])] * 2, number, (MAX,), (3,))
    got = _C.dist_part(_C.redistribute(t, number, (R,)), 1).to_torch()
    assert got.isnan().tolist() == [True, False, False]
    t = build([torch.tensor([1.0, 1.0, 1.0]), torch.tensor([2.0, nan, 1.0])], number, (MIN,), (3,))
    got = _C.dist_part(_C.redistribute(t, number, (R,)), 0).to_torch()
    assert got.isnan().tolist() == [False, True, False]
    t = build([torch.tensor([-0.0, 1.0])] * 2, number, (R,), (2,))
    for b in ((SUM,), (PRODUCT,)):
        there = _C.redistribute(t, number, b)
        back = _C.dist_part(_C.redistribute(there, number, (R,)), 0).to_torch()
        assert back.signbit().tolist() == [True, False] and back[1] == 1


def test_large_enough_for_every_path():
    """Split over the pool, streamed past the caches, blocks that end within rows."""
    number = mesh(2, 2)
    for a, b in [
        ((S(0), R), (R, S(1))),
        ((S(1), S(0)), (R, R)),
        ((SUM, SUM), (R, R)),
        ((SUM, S(1)), (S(1), R)),
        ((R, SUM), (R, S(1))),
        ((SUM, R), (S(0), MAX)),
    ]:
        size = (1031, 2050)
        parts, full = make(size, torch.float32, (2, 2), a, seed=6)
        check(_C.redistribute(build(parts, number, a, size), number, b), full, (2, 2), b)


# ---- across meshes -------------------------------------------------------------------------------

MESHES = {
    "2x2": ((2, 2), 0, True),
    "3 elsewhere": ((3,), 2, True),
    "3 others": ((3,), 5, True),
    "2x3": ((2, 3), 0, True),
    "cpu 2": ((2,), 0, False),
    "cpu 2x2x1": ((2, 2, 1), 0, False),
    "1": ((1,), 3, True),
}


@pytest.mark.parametrize("source", MESHES)
def test_across_meshes(source):
    rng = random.Random(source)
    shape, first, cuda = MESHES[source]
    number = mesh(*shape, first=first, cuda=cuda)
    for to_shape, to_first, to_cuda in MESHES.values():
        other = mesh(*to_shape, first=to_first, cuda=to_cuda)
        for _ in range(500 if SOAK else 25):
            size = rng.choice([(5, 3), (4, 4), (7, 1), (0, 2)])
            kind = rng.choice(KINDS)
            choices = [R, S(0), S(1), kind]
            a = tuple(rng.choice(choices) for _ in shape)
            b = tuple(rng.choice(choices) for _ in to_shape)
            parts, full = make(size, torch.float64, shape, a, seed=7)
            result = _C.redistribute(build(parts, number, a, size), other, b)
            assert _C.dist_spec(result) == (other, b)
            check(result, full, to_shape, b)


@pytest.mark.parametrize("shape", [(4,), (2, 2)])
def test_between_one_device_and_a_mesh(shape):
    number = mesh(*shape)
    for size in ((5, 3), (1, 2), (0, 3)):
        for codes in lists(shape, 2, SUM):
            value = torch.randint(-9, 9, size).float()
            spread = _C.redistribute(dtorch.tensor(value), number, codes)
            check(spread, value, shape, codes)
            parts, full = make(size, torch.float32, shape, codes, seed=8)
            whole = _C.redistribute(build(parts, number, codes, size), None, None)
            assert _C.dist_spec(whole) is None
            assert torch.equal(whole.to_torch(), full)


# ---- what is shared ------------------------------------------------------------------------------


def test_nothing_to_do_is_the_same_tensor():
    number = mesh(2, 2)
    t = build([torch.ones(2, 3)] * 4, number, (S(0), R), (4, 3))
    assert _C.redistribute(t, number, (S(0), R)) is t
    plain = dtorch.ones(3)
    assert _C.redistribute(plain, None, None) is plain


def test_results_share_no_bytes():
    """Neither with the source nor among the devices, in any pair."""
    for shape in ((2, 2), (2, 1)):
        number = mesh(*shape)
        named = _C.mesh_new(True, shape, list(range(shape[0] * shape[1])), ("a", "b"))
        for a, b in pairs(shape, 2, SUM):
            for other in (number, named):
                if a == b and other == number:
                    continue
                parts, _ = make((4, 3), torch.float32, shape, a, seed=9)
                t = build(parts, number, a, (4, 3))
                result = _C.redistribute(t, other, b)
                before = [_C.dist_part(result, k).to_torch().clone() for k in range(len(parts))]
                for k in range(len(parts)):
                    _C.dist_part(result, k).add_(k + 1)
                for k, p in enumerate(parts):
                    assert torch.equal(_C.dist_part(t, k).to_torch(), p), (a, b)
                    assert torch.equal(_C.dist_part(result, k).to_torch(), before[k] + k + 1)


# ---- plans ---------------------------------------------------------------------------------------


def held(size, shape, codes, at):
    """The elements that a device holds, as a set of their numbers."""
    count = 1
    for n in size:
        count *= n
    return set(cut(torch.arange(count).reshape(size), shape, codes, at).flatten().tolist())


@pytest.mark.parametrize("shape", [(3,), (2, 2), (2, 3)])
def test_plans_without_reductions_move_what_must_move(shape):
    number = mesh(*shape)
    size = (7, 4)
    for a, b in pairs(shape, 2, R):
        t = build([torch.zeros(cut(torch.zeros(size), shape, a, at).shape) for at in
                   coordinates(shape)], number, a, size)  # fmt: skip
        plan = _C.redistribute_plan(t, number, b)
        missing = max(
            len(held(size, shape, b, at) - held(size, shape, a, at)) for at in coordinates(shape)
        )
        moving = [step for step in plan[1] if step[2] > 0 or step[0] not in ("cut",)]
        assert len(moving) <= 1, plan[0]
        assert plan[2] == missing * 4, plan[0]


@pytest.mark.parametrize(
    ("a", "b", "names", "size"),
    [
        ((S(0), R), (R, S(1)), ["cut", "all_gather"], 16),
        ((S(0), R), (R, R), ["all_gather"], 32),
        ((SUM, R), (S(0), R), ["reduce_scatter"], 32),
        ((SUM, S(1)), (R, S(1)), ["all_reduce"], 32),
        ((SUM, SUM), (R, R), ["all_reduce"], 96),
        ((SUM, SUM), (S(0), S(0)), ["reduce_scatter"], 48),
        ((S(0), S(0)), (R, R), ["all_gather"], 48),
        ((S(0), S(1)), (S(1), S(1)), ["exchange"], 16),
        ((S(0), R), (S(1), R), ["all_to_all"], 16),
        ((R, R), (S(0), S(1)), ["cut", "cut"], 0),
        ((R, R), (SUM, R), ["keep_once"], 0),
        ((S(0), R), (SUM, R), ["pad"], 0),
        ((SUM, R), (MAX, R), ["all_reduce", "keep_once"], 64),
        ((S(0), S(0)), (R, S(0)), ["exchange"], 32),
    ],
)
def test_plans(a, b, names, size):
    number = mesh(2, 2)
    parts, _ = make((4, 4), torch.float32, (2, 2), a)
    text, steps, moved, _memory, pieces = _C.redistribute_plan(
        build(parts, number, a, (4, 4)), number, b
    )
    assert [s[0] for s in steps] == names, text
    assert moved == size == sum(s[2] for s in steps), text
    assert pieces == 1 and steps[-1][4] == b
    for name in names:
        assert name in text


def test_plans_between_one_device_and_many():
    number, plain = mesh(4), dtorch.zeros(8)
    assert _C.redistribute_plan(plain, number, (S(0),))[1][0][0] == "scatter"
    assert _C.redistribute_plan(plain, number, (R,))[1][0][0] == "broadcast"
    t = _C.redistribute(plain, number, (S(0),))
    assert _C.redistribute_plan(t, None, None)[1][0][0] == "gather"


# ---- memory --------------------------------------------------------------------------------------


@pytest.fixture
def memory():
    def limit(size: int) -> None:
        _C.redistribute_memory(size)

    yield limit
    _C.redistribute_memory(-1)


def test_every_limit_gives_the_same(memory):
    number = mesh(2, 2)
    targets = [((2, 2), number), ((2, 2), mesh(2, 2, first=2)), ((3,), mesh(3)), ((1,), mesh(1)),
               ((2, 3), mesh(2, 3))]  # fmt: skip
    rng = random.Random(10)
    for _ in range(3000 if SOAK else 250):
        size = (rng.choice((4, 5, 9)), rng.choice((2, 3)), rng.choice((1, 6)))
        kind = rng.choice(KINDS)
        choices = [R, S(0), S(1), S(2), kind, kind]
        shape, to = rng.choice([targets[0], *targets])
        a, b = (tuple(rng.choice(choices) for _ in s) for s in ((2, 2), shape))
        parts, full = make(size, torch.float64, (2, 2), a, seed=11)
        t = build(parts, number, a, size)
        limit = rng.choice((0, 50, 100, 500))
        memory(limit)
        text, steps, _, needed, pieces = _C.redistribute_plan(t, to, b)
        # A value that becomes Partial is replicated first, unless it is padded.
        assert needed <= limit or any(s[0] == "keep_once" for s in steps), text
        assert pieces == 1 or needed > 0
        check(_C.redistribute(t, to, b), full, shape, b)


def test_pieces_keep_to_the_limit(memory):
    number = mesh(2, 2)
    a, b, size = (SUM, S(1)), (R, R), (256, 64, 64)
    parts, full = make(size, torch.float32, (2, 2), a, seed=12)
    t = build(parts, number, a, size)
    dtorch.empty_cache()
    peaks = {}
    for limit in (-1, 1 << 16):
        memory(limit)
        text, _, _, needed, pieces = _C.redistribute_plan(t, number, b)
        assert (pieces > 1) == (limit > 0), text
        dtorch.reset_peak_memory()
        before = dtorch.memory_stats()["live_bytes"]
        result = _C.redistribute(t, number, b)
        check(result, full, (2, 2), b)
        peaks[limit] = dtorch.memory_stats()["peak_bytes"] - before - 4 * full.numel() * 4
        if limit > 0:
            assert needed <= limit
            assert peaks[limit] <= 4 * limit + 4096, text
        del result
    assert peaks[-1] > peaks[1 << 16]


# ---- asynchronous --------------------------------------------------------------------------------


def slow(seed: int) -> tuple[dtorch.Tensor, torch.Tensor]:
    """A tensor that is not there for some time, and its value."""
    y = dtorch.randn(1024, 1024) / 32
    for _ in range(4):
        y = y @ y
    return y.clamp(-1, 1) * 0 + seed, torch.full((1024, 1024), float(seed))


def test_a_late_collective_is_waited_for():
    """Case 7: what follows at once sees the result, whatever it waits for."""
    number = mesh(2)
    a, want_a = slow(1)
    b, want_b = slow(2)
    t = _C.dist_new([a, b], number, (S(0),), (2048, 1024))
    result = _C.redistribute(t, number, (R,))
    plus = _C.dist_part(result, 1) + 1
    assert torch.equal(plus.to_torch(), torch.cat([want_a, want_b]) + 1)
    summed = _C.redistribute(_C.dist_new([a, b], number, (SUM,), (1024, 1024)), number, (S(1),))
    assert (_C.dist_part(summed, 0) + 1).to_torch().unique().tolist() == [4.0]


def test_awaited_beside_other_work(run):
    number = mesh(2)

    async def main():
        a, want_a = slow(3)
        b, want_b = slow(4)
        t = _C.dist_new([a, b], number, (S(0),), (2048, 1024))
        result = _C.redistribute(t, number, (S(1),))
        other = dtorch.ones(3) + 1  # nothing of this waits for that
        assert (await other).tolist() == [2.0] * 3
        await result
        assert torch.equal(_C.dist_part(result, 0).to_torch(), torch.cat([want_a, want_b])[:, :512])

    run(main())


@patient
def test_given_up_and_dropped(run):
    number = mesh(2, 2)

    async def main():
        with meanwhile(0.1):
            a, want = slow(5)
            hold(a, 0.1)
            t = _C.redistribute(a, number, (S(0), R))
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(_C.redistribute(t, number, (R, R)), 0.001)
        for _ in range(20):
            _C.redistribute(t, number, (R, S(1)))  # dropped at once
        kept = _C.redistribute(t, number, (R, S(1)))
        del t, a
        await kept
        assert torch.equal(_C.dist_part(kept, 3).to_torch(), want[:, 512:])

    run(main())


def test_failures_arrive_where_they_are_read(run):
    number = mesh(2)

    async def main():
        big = dtorch.ones(200_000, dtype=torch.int64)
        bad = big // dtorch.zeros(200_000, dtype=torch.int64)
        t = _C.dist_new([big, bad], number, (SUM,), (200_000,))
        result = _C.redistribute(t, number, (R,))
        with pytest.raises(RuntimeError, match="ZeroDivision"):
            await result

    run(main())


def test_memory_is_given_back():
    number = mesh(2, 2)
    t = build([torch.ones(64, 64)] * 4, number, (SUM, S(1)), (64, 128))
    _C.redistribute(t, number, (R, R))
    before = dtorch.memory_stats()
    for _ in range(50):
        for b in ((R, R), (S(0), S(0)), (MAX, R)):
            _C.redistribute(t, number, b)
    after = dtorch.memory_stats()
    assert (after["live_bytes"], after["objects"]) == (before["live_bytes"], before["objects"])


# ---- errors --------------------------------------------------------------------------------------


def test_what_cannot_be():
    number = mesh(2, 2)
    t = build([torch.ones(2, 3, dtype=torch.int64)] * 4, number, (R, R), (2, 3))
    for codes, text in (
        ((R, S(2)), r"placements\[1\] is Shard\(2\), but the tensor has 2 dimensions"),
        ((SUM, MAX), "mix kinds of Partial"),
        ((AVG, R), r"Partial\('avg'\) needs a tensor of floats, not of int64"),
    ):
        with pytest.raises(dtorch.PlacementError, match=text):
            _C.redistribute(t, number, codes)
        with pytest.raises(dtorch.PlacementError, match=text):
            _C.redistribute_plan(t, number, codes)
