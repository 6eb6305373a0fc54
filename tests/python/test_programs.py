"""Random programs on dtorch beside torch: a fixed part of them, and the checks themselves.

They are drawn and run by programs.py; `make soak` runs them without end. A failure prints the seed
and the program; `python tests/python/programs.py --seed N` runs one again and shrinks it.
DTORCH_PROGRAMS is how many are run here on each kind of loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import program_model as model  # noqa: E402
import program_ops as table  # noqa: E402
import programs  # noqa: E402
from dtorch import _C  # noqa: E402
from programs import Counts, Failure, Loops, Mismatch  # noqa: E402

PROGRAMS = int(os.environ.get("DTORCH_PROGRAMS", "12000"))

LoopFactory = Callable[[], Any]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with programs.quiet():
        yield


@pytest.fixture
def loops() -> Iterator[Loops]:
    with Loops() as some:
        yield some


@pytest.fixture
def runner(loop_factory: LoopFactory) -> Iterator[Any]:
    loop, runner = programs.loop_and_runner(loop_factory)
    yield runner
    loop.close()


@pytest.mark.timeout(600)
def test_programs(runner: Any, loops: Loops, request: pytest.FixtureRequest) -> None:
    """Other seeds on each kind of loop; both I/O backends run the same ones."""
    first = 0 if "asyncio" in request.node.name else 10_000_000
    counts, before = Counts(), _C._sched_stats()
    for seeds in programs.batches(range(first, first + PROGRAMS)):
        try:
            runner([model.generate(seed) for seed in seeds], loops, counts)
        except Failure as failure:
            seed, text = failure.program.seed, failure.program.text()
            pytest.fail(f"seed {seed}: {failure}\n{text}", pytrace=False)
    assert counts["programs"] == PROGRAMS
    # All kinds are there, and most of what is looked at is compared bit for bit.
    looks = [counts[f"{kind} looks"] for kind in ("exact", "near")]
    assert looks[0] > 4 * counts["programs"] and looks[0] > 4 * looks[1] > 0
    assert counts["looks that torch says nothing of"] < looks[0] / 10
    assert counts["programs of threads"] > PROGRAMS / 20
    assert counts["failures seen"] > 0
    # The scheduler did to them what they are there to test.
    after = _C._sched_stats()
    did = {k: after[k] - before[k] for k in after}
    # How often depends on who is faster: half of what the slowest machine so far counted.
    assert did["submitted"] > 4 * PROGRAMS, did
    assert did["fused"] > PROGRAMS / 2 and did["dropped"] > PROGRAMS / 50, did


def test_no_memory_is_left(runner: Any, loops: Loops) -> None:
    live = []
    for first in (0, 480, 0, 480):
        for seeds in programs.batches(range(first, first + 480)):
            runner([model.generate(seed) for seed in seeds], loops, Counts())
        live.append(programs.live_bytes())
    assert live[3] <= live[1] + (1 << 16), live


def test_a_seed_gives_one_program() -> None:
    for seed in range(200):
        assert model.generate(seed).text() == model.generate(seed).text()


# --- the checks find what is wrong ----------------------------------------------------------------


def first_failure(runner: Any, loops: Loops, count: int) -> Failure:
    for seeds in programs.batches(range(count)):
        try:
            runner([model.generate(seed) for seed in seeds], loops, Counts())
        except Failure as failure:
            return failure
    raise AssertionError("nothing was found")


def plant(monkeypatch: pytest.MonkeyPatch, text: str, wrong: Callable[..., Any]) -> None:
    """Makes dtorch's side of an op wrong."""
    found = 0
    for value in vars(table).values():
        groups = value.values() if isinstance(value, dict) else [value]
        for group in groups:
            for op in group if isinstance(group, list) else []:
                if isinstance(op, table.Op) and op.text == text:
                    monkeypatch.setattr(op, "dtorch", wrong)
                    found += 1
    assert found


WRONG: dict[str, Callable[..., Any]] = {
    "a + b": lambda a, b: a + b + 1e-6,  # a value
    "-a": lambda a: -a.clone() if a.dtype is torch.float64 else (-a).float(),  # a dtype
    "a.t()": lambda a: a.t().clone(),  # a copy, where later writes have to be seen
    "a[i:]": lambda a, i: a[i:].clone(),
    "a.add_(n)": lambda a, n: a + n,  # a write that is lost
    "a.relu()": lambda a: a.clamp(min=-0.0),  # a zero's sign, or NaN
    "a.copy_(b)": lambda a, b: a.clone().copy_(b),
}


@pytest.mark.timeout(200)
@pytest.mark.parametrize("text", WRONG)
def test_planted(
    monkeypatch: pytest.MonkeyPatch, runner: Any, loops: Loops, text: str, capsys: Any
) -> None:
    """A wrong op is found, and the failing program shrinks to a few statements around it."""
    plant(monkeypatch, text, WRONG[text])
    failure = first_failure(runner, loops, 6000)
    kind = type(failure.error)
    smaller = programs.shrink(failure.program, runner, loops, 1, kind)
    assert len(smaller.statements) <= 6
    assert any(s.op is not None and s.op.text == text for s in smaller.statements)
    assert smaller.text().count("\n") == len(smaller.statements) + 1


def test_late_snapshot_is_found(monkeypatch: pytest.MonkeyPatch, runner: Any, loops: Loops) -> None:
    """A snapshot that shows the writes after it."""

    class Late:
        def __init__(self, t: Any) -> None:
            self.t = t

        def __await__(self) -> Any:
            yield from self.t.__await__()
            return self.t.clone().to_torch()

    monkeypatch.setattr(programs, "snapshot", Late)
    failure = first_failure(runner, loops, 3000)
    assert isinstance(failure.error, Mismatch)
    smaller = programs.shrink(failure.program, runner, loops, 1, Mismatch)
    assert model.SNAPSHOT in [s.code for s in smaller.statements]
    assert len(smaller.statements) <= 5


def test_fusion_is_compared(runner: Any, loops: Loops) -> None:
    """What is seen with fusion is held against what is seen without, bit for bit."""
    program = model.generate(3)
    seen = [k for k, s in enumerate(program.statements) if s.expect is not None]
    right = {-1 - k: programs.see(e.value) for k, e in program.last}
    right |= {k: programs.expected(program.statements[k]) for k in seen}
    programs.compare(program, dict(right), dict(right), Counts())
    k = next(k for k, v in right.items() if isinstance(v, tuple) and v[2])
    dtype, shape, data = right[k]
    wrong = {**right, k: (dtype, shape, bytes([data[0] ^ 1]) + data[1:])}
    with pytest.raises(Mismatch, match="with fusion"):
        programs.compare(program, right, wrong, Counts())
    with pytest.raises(Mismatch, match="torch"):
        programs.compare(program, wrong, None, Counts())


def test_a_hang_is_reported(monkeypatch: pytest.MonkeyPatch, runner: Any, loops: Loops) -> None:
    """An await that never ends names its program and the statement."""

    class Never:
        def __await__(self) -> Any:
            import asyncio

            yield from asyncio.get_running_loop().create_future().__await__()

    monkeypatch.setattr(programs, "snapshot", lambda t: Never())
    for seconds in (1.0, 20.0):  # in the first, a busy machine may be slow with other programs
        monkeypatch.setattr(programs, "HANG_SECONDS", seconds)
        failure = first_failure(runner, loops, 480)
        assert isinstance(failure.error, TimeoutError)
        if "await future" in str(failure):
            break
    assert "await future" in str(failure)
