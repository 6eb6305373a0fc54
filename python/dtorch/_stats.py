"""Counters of the runtime: dtorch.stats() and dtorch.reset_stats()."""

from __future__ import annotations

from typing import Any

from . import _C


class Histogram:
    """How often values fell between two powers of two.

    ``buckets`` maps each upper bound (exclusive, a power of two) to the number of values below it
    and not below half of it; bounds without values are left out. ``total`` is the sum of all
    values.
    """

    __slots__ = ("buckets", "total")

    def __init__(self, buckets: dict[int, int], total: int) -> None:
        self.buckets = buckets
        self.total = total

    def __repr__(self) -> str:
        return f"Histogram({self.buckets!r}, {self.total!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return self.buckets == other.buckets and self.total == other.total

    __hash__ = None  # type: ignore[assignment]

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.buckets.values())

    @property
    def mean(self) -> float:
        """Their mean; 0 when there are none."""
        return self.total / self.count if self.count else 0.0

    def percentile(self, percent: float) -> float:
        """The value that ``percent`` of all values do not exceed, interpolated in its bucket."""
        if not 0 <= percent <= 100:
            raise ValueError(f"percentile(): percent must be within 0 and 100, not {percent!r}")
        left = self.count * percent / 100
        high = 0.0
        for bound, count in sorted(self.buckets.items()):
            low, high = (bound / 2 if bound > 1 else 0.0), float(bound)
            if left <= count:
                return low + (high - low) * left / count
            left -= count
        return high


def _histogram(now: tuple[list[int], int], before: tuple[list[int], int]) -> Histogram:
    pairs = zip(now[0], before[0], strict=True)
    buckets = {2**k: a - b for k, (a, b) in enumerate(pairs) if a != b}
    return Histogram(buckets, now[1] - before[1])


def _read() -> dict[str, Any]:
    implicit = _C._implicit_redistributes()
    return {**_C._sched_stats(), **_C._counts(), "implicit_redistributes": implicit}


_base: dict[str, Any] = {
    name: ([0] * len(value[0]), 0) if isinstance(value, tuple) else 0
    for name, value in _read().items()
}


def stats() -> dict[str, Any]:
    """Counts since the process began, or since the last ``reset_stats()``.

    - ``ops``: calls of ops, those that others are made of included; ``inlined``: those that
      ran in the caller at once.
    - ``submitted``, ``ended``, ``failed``: tasks of the scheduler, reads, writes and fences
      included; ``direct``: those that went straight to a worker; ``runs``: hand-overs to workers;
      ``chained``: tasks that followed another one in its run.
    - ``passes``, ``fused``: passes over memory that computed several tasks, and those tasks;
      ``dropped``: tasks never computed because nobody could see the result; ``parked``: tasks put
      back because whoever waited for them was cancelled.
    - ``controller_wakeups``, ``worker_wakeups``, ``loop_wakeups``: how often each kind of thread
      was woken; ``deliveries``: completions handed to event loops; ``batches``: a histogram of how
      many of them at one time (a wake-up brings one batch, or several when there are more than 256,
      between which the loop does other things).
    - ``queue_ns``, ``run_ns``: histograms of the time from submission to start, and from there
      to the end, of tasks that were computed, in nanoseconds.
    - ``implicit_redistributes``: those that ``implicit_redistribute()`` inserted.
    - ``io_reads``, ``io_writes``, ``io_bytes``: file I/O.

    Each histogram has ``count``, ``total``, ``mean``, ``buckets`` and ``percentile(p)``.
    """
    now = _read()
    found: dict[str, Any] = {
        name: _histogram(value, _base[name]) if isinstance(value, tuple) else value - _base[name]
        for name, value in now.items()
    }
    fast = found.pop("fast")
    found["ops"] = fast + found.pop("dispatched")
    found["inlined"] += fast
    for name in ("passes", "fused", "dropped", "parked"):
        found.setdefault(name, 0)
    return found


def reset_stats() -> None:
    """Makes ``stats()`` count from now on. Nothing else ever does."""
    global _base
    _base = _read()
