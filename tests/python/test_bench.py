"""The benchmarks' own arithmetic: what a wrong figure would come from."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import harness  # noqa: E402
import peer  # noqa: E402

pytestmark = pytest.mark.notorch


def test_percentile_is_the_nearest_rank() -> None:
    samples = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert harness.percentile(samples, 50) == 3.0
    assert harness.percentile(samples, 99) == 5.0
    assert harness.percentile(samples, 20) == 1.0
    assert harness.percentile(samples, 21) == 2.0
    assert harness.quartiles(list(range(1, 101))) == (25, 75)
    with pytest.raises(ValueError, match="no samples"):
        harness.percentile([], 50)


def test_a_ratio_is_taken_within_a_repeat() -> None:
    """A slow repeat of both sides must not move the ratio."""
    pair = harness.Pair()
    for slow in (1.0, 1.0, 10.0, 1.0, 1.0):
        pair.add(1.0 * slow, 3.0 * slow)
    assert pair.ratio == 3.0
    assert pair.quartiles == (3.0, 3.0)


@pytest.mark.parametrize("sides", [2, 3, 4])
def test_every_side_comes_first_and_last_equally_often(sides: int) -> None:
    names = [f"side {k}" for k in range(sides)]
    orders = [harness.turn_order(names, turn) for turn in range(2 * sides)]
    assert all(sorted(order) == names for order in orders)
    assert set(Counter(order[0] for order in orders).values()) == {2}
    assert set(Counter(order[-1] for order in orders).values()) == {2}


def test_interleaving_measures_each_side_in_every_turn() -> None:
    calls: list[str] = []

    def side(name: str, value: float) -> float:
        calls.append(name)
        return value

    values = harness.interleave_many(
        {"a": lambda: side("a", 1.0), "b": lambda: side("b", 2.0)}, samples=4, warm=1, settle_s=0
    )
    assert values == {"a": [1.0] * 4, "b": [2.0] * 4}
    assert calls[2::2] == ["a", "b", "b", "a", "b", "a", "a", "b"]  # untimed
    assert calls[3::2] == calls[2::2]


def test_memory_of_a_few_adds() -> None:
    """The child process that measures memory answers, with the right value."""
    done = subprocess.run(
        [sys.executable, str(BENCH / "peer.py"), "memory", "50"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    answer = json.loads(done.stdout)
    assert answer["right"] is True
    assert 0 <= answer["growth"] < 100 << 20


def test_the_sampler_sees_memory_that_came_and_went() -> None:
    sampler = peer.Sampler()
    start = sampler.peak
    sampler.start()
    block = bytearray(64 << 20)
    for at in range(0, len(block), 4096):
        block[at] = 1
    while sampler.is_alive() and sampler.peak < start + (60 << 20):
        pass
    del block
    assert sampler.stop() >= start + (60 << 20)
