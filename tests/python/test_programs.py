"""Random programs: views, in-place ops and awaits in random order, as torch runs them in sequence.

A program works on a few base tensors, large enough for ops to go through the controller or so small
that they run in the caller; both lanes meet on the same storages. All its ops are exact: values are
compared bit for bit. A failure prints the seed; DTORCH_PROGRAM_SEED runs one.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import dtorch  # noqa: E402

PROGRAMS = int(os.environ.get("DTORCH_PROGRAMS", "120"))
STEPS = 40


class Program:
    """One random program, run step by step on dtorch and on torch side by side."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows = self.random.choice([1, 3, 64, 300])
        self.columns = self.random.choice([1, 8, 300])
        self.pairs: list[tuple[Any, Any]] = []
        for k in range(3):
            base = torch.randint(-4, 5, (self.rows, self.columns)).float() + k
            self.pairs.append((dtorch.Tensor(base), base))

    def pick(self) -> tuple[Any, Any]:
        return self.random.choice(self.pairs)

    def both(self, pair: tuple[Any, Any], fn: Callable[[Any], Any]) -> tuple[Any, Any]:
        return fn(pair[0]), fn(pair[1])

    def view(self, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        """A view of a whole tensor: rows, columns, a step, a transpose and back."""
        r = self.random
        kind = r.randrange(4)
        start, step = r.randrange(self.rows), r.choice([1, 2, 3])
        if kind == 0:
            return self.both(pair, lambda t: t[start:])
        if kind == 1:
            return self.both(pair, lambda t: t[:, :: min(step, max(1, self.columns))])
        if kind == 2:
            return self.both(pair, lambda t: t.t())
        return self.both(pair, lambda t: t.view(-1)[start::step])

    def step(self) -> None:
        r = self.random
        kind = r.randrange(9)
        a, b = self.pick(), self.pick()
        if kind == 0:
            self.keep((a[0] + b[0], a[1] + b[1]))
        elif kind == 1:
            self.keep(self.both(a, lambda t: (t * 2 - 3).clamp(-50, 50)))
        elif kind == 2:
            self.both(self.view(a), lambda t: t.clamp_(-20, 20))
        elif kind == 3:
            x, y = self.view(a)
            x.add_(1), y.add_(1)
        elif kind == 4:
            a[0].copy_(b[0]), a[1].copy_(b[1])
        elif kind == 5:
            self.both(self.view(a), lambda t: t.fill_(7))
        elif kind == 6:
            self.keep(self.both(a, lambda t: t.t().clone().t().relu()))
        elif kind == 7:
            s = r.randrange(self.rows)
            a[0][s:] = b[0][s:].clone()
            a[1][s:] = b[1][s:].clone()
        else:
            w = self.both(a, lambda t: (t == t).float())  # ones, by way of a comparison
            self.keep((w[0] @ w[0].t() @ a[0] * 0 + b[0], w[1] @ w[1].t() @ a[1] * 0 + b[1]))

    def keep(self, pair: tuple[Any, Any]) -> None:
        if self.random.random() < 0.5:
            self.pairs.append(pair)
        else:
            self.pairs[self.random.randrange(len(self.pairs))] = pair
        if len(self.pairs) > 8:
            del self.pairs[self.random.randrange(len(self.pairs))]

    async def run(self) -> None:
        for _ in range(STEPS):
            self.step()
            chance = self.random.random()
            if chance < 0.1:
                ours, theirs = self.pick()
                want = theirs.clone()
                compare((await ours.to_torch_async()), want)
            elif chance < 0.15:
                await dtorch.gather(*(p[0] for p in self.pairs))
            elif chance < 0.2:
                await asyncio.sleep(0)
            elif chance < 0.25:
                task = asyncio.ensure_future(wait(self.pick()[0]))
                await asyncio.sleep(0)
                task.cancel()
        for ours, theirs in self.pairs:
            compare((await ours).clone().to_torch(), theirs)


async def wait(t: Any) -> Any:
    return await t


def compare(got: Any, want: Any) -> None:
    assert got.dtype == want.dtype
    assert torch.equal(got, want)


def seeds() -> list[int]:
    one = os.environ.get("DTORCH_PROGRAM_SEED")
    return [int(one)] if one else list(range(PROGRAMS))


@pytest.fixture(autouse=True)
def _blocking() -> Any:
    before = dtorch.get_blocking_policy()
    dtorch.set_blocking_policy("allow")
    yield
    dtorch.set_blocking_policy(before)


@pytest.mark.timeout(200)
def test_one_after_another(run: Any) -> None:
    for seed in seeds():
        try:
            run(Program(seed).run())
        except Exception as error:
            raise AssertionError(f"DTORCH_PROGRAM_SEED={seed}: {error!r}") from error


@pytest.mark.timeout(200)
def test_side_by_side(run: Any) -> None:
    """Many programs on one loop at once."""

    async def main() -> None:
        some = seeds()[:60]
        results = await asyncio.gather(*(Program(s).run() for s in some), return_exceptions=True)
        failed = [f"{s}: {r!r}" for s, r in zip(some, results, strict=True) if r is not None]
        assert not failed, failed

    run(main())


@pytest.mark.timeout(200)
def test_in_threads() -> None:
    """Programs on four loops in four threads."""
    failures: list[str] = []

    def work(first: int) -> None:
        for seed in seeds()[first::4][:15]:
            try:
                asyncio.run(Program(seed).run())
            except Exception as error:
                failures.append(f"{seed}: {error!r}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures
