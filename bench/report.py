"""What bench/run.py and bench/compare.py share: lines with targets, the table, the JSON file.

The rules of a fair comparison, for both:

- torch gets as many threads as dtorch has (``dtorch.get_num_threads()``) and runs without autograd
  (inference mode, its fastest, since dtorch records nothing either);
- all sides alternate at fine grain, the order changing each time (see harness.py), and a ratio is
  taken within a repeat; what is printed is the median over the repeats and the quartiles;
- all sides' results are compared before they are timed;
- where torch runs in threads, it gets the shape that suits the work: one thread with the whole
  OpenMP team when one call is in flight at a time (the default pool would wander over threads that
  each bring a team of their own), as many threads as dtorch has workers, with a team of one each,
  when many are;
- a target that was missed is printed like one that was met.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import platform
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import dtorch
import harness

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]


@dataclass
class Line:
    """One line of the table. Numbers are medians over the repeats, in ``unit``."""

    name: str
    unit: str
    ours: float
    peer_name: str
    peer: float | None
    figure: str  # what is compared with the target: "4.12x", "+0.3 ms", "0.11 s"
    target: str
    met: bool | None  # None: shown for information only
    repeats: int
    spread: str = ""  # the quartiles of the figure over the repeats
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass
class Options:
    """How much to measure."""

    quick: bool

    def count(self, full: int, least: int = 3) -> int:
        """``full``, or about a tenth of it with --quick."""
        return max(least, full // 10) if self.quick else full


def ratio_line(
    name: str, unit: str, scale: float, peer_name: str, pair: harness.Pair, target: float | None
) -> Line:
    """A line whose target is a least ratio; ``scale`` turns the pair's numbers into ``unit``."""
    return Line(
        name=name,
        unit=unit,
        ours=pair.ours_median * scale,
        peer_name=peer_name,
        peer=pair.theirs_median * scale,
        figure=f"{pair.ratio:.2f}x",
        spread="{:.2f}..{:.2f}".format(*pair.quartiles),
        target="" if target is None else f">= {target:g}x",
        met=None if target is None else pair.ratio >= target,
        repeats=len(pair.ours),
        detail={
            "ratio": pair.ratio,
            "ratio_min": min(pair.ratios),
            "ratio_max": max(pair.ratios),
            "ratio_quartiles": list(pair.quartiles),
            "target": target,
        },
    )


def torch_pool(workers: int = 1, team: int | None = None) -> ThreadPoolExecutor:
    """An executor of ``workers`` threads without gradients, in each of which torch has ``team``
    threads of its own (None: as many as dtorch has in all)."""
    threads = dtorch.get_num_threads() if team is None else team

    def start() -> None:
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)

    return ThreadPoolExecutor(workers, initializer=start)


def require_close(ours: Any, theirs: Any, tolerance: float) -> float:
    """The greatest difference of two tensors; AssertionError when it is above ``tolerance``."""
    difference = float((torch.tensor(ours.tolist()) - theirs.cpu()).abs().max())
    if not difference <= tolerance:
        raise AssertionError(f"results differ by {difference:g}, more than {tolerance:g}")
    return difference


def conditions() -> dict[str, Any]:
    """What a reader of the numbers needs to know about the run."""
    model = ""
    try:
        for text in Path("/proc/cpuinfo").read_text().splitlines():
            if text.startswith("model name"):
                model = text.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cpu": model,
        "cores_usable": len(os.sched_getaffinity(0)),
        "load_1min": os.getloadavg()[0],
        "dtorch": getattr(dtorch, "__version__", ""),
        "torch": None if torch is None else torch.__version__,
        "threads": dtorch.get_num_threads(),
    }


def number(value: float | None) -> str:
    """Three significant digits, never in exponent form."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def row(line: Line) -> tuple[str, ...]:
    """The cells of one line."""
    verdict = {True: "met", False: "MISSED", None: ""}[line.met]
    ours, peer = (number(value) for value in (line.ours, line.peer))
    unit = f" {line.unit}"
    return (
        line.name,
        ours + unit,
        "-" if line.peer is None else peer + unit,
        line.peer_name,
        line.figure,
        line.spread,
        line.target,
        verdict,
    )


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Columns as wide as their widest cell; numbers to the right."""
    head = ("measurement", "dtorch", "peer", "which", "result", "quartiles", "target", "")
    cells = [head, *rows]
    widths = [max(len(line[index]) for line in cells) for index in range(len(head))]
    to_the_right = {1, 2, 4, 5}
    for index, line in enumerate(cells):
        print(
            "  ".join(
                cell.rjust(width) if column in to_the_right else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
        )
        if index == 0:
            print("  ".join("-" * width for width in widths))


# --- the run --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measurement:
    """A measurement and what it needs: a loop to run on (None: it runs outside any) and packages.

    ``run`` is a coroutine function where a loop is named, else a plain function.
    """

    run: Callable[[Options], Any]
    loop: str | None = "asyncio"
    needs: tuple[str, ...] = ()


def missing_packages(measurement: Measurement) -> list[str]:
    """Packages that the measurement needs and that are not installed."""
    needs = measurement.needs
    if measurement.loop not in (None, "asyncio"):
        needs += (str(measurement.loop),)
    return [name for name in needs if importlib.util.find_spec(name) is None]


def measure_all(
    measurements: Mapping[str, Measurement], names: Iterable[str], options: Options
) -> dict[str, Any]:
    """Run the named measurements and print what they found.

    Gives the report that goes into the JSON file: ``conditions``, ``lines``, ``notes``, and
    ``failed``, the names of measurements that raised.
    """
    about = conditions()
    if torch is not None:
        torch.set_num_threads(dtorch.get_num_threads())
    print(
        f"dtorch {about['dtorch']}, torch {about['torch'] or 'not installed'}, "
        f"Python {about['python']}, {about['threads']} threads on {about['cores_usable']} cores "
        f"({about['cpu'] or about['machine']}), load {about['load_1min']:.1f}",
        flush=True,
    )
    lines: list[Line] = []
    notes: list[str] = []
    failed: list[str] = []
    for name in names:
        measurement = measurements[name]
        if absent := missing_packages(measurement):
            notes.append(f"{name}: not measured, {', '.join(absent)} not installed")
            continue
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        try:
            if measurement.loop is None:
                lines += measurement.run(options)
            else:
                call = functools.partial(measurement.run, options)
                lines += harness.run_on(measurement.loop, call)
        except FileNotFoundError as error:
            notes.append(f"{name}: not measured, {error}")
        except Exception as error:  # one failure must not hide the other numbers
            failed.append(name)
            notes.append(f"{name}: FAILED, {type(error).__name__}: {error}")
            traceback.print_exc()
    about["load_1min_after"] = os.getloadavg()[0]

    print_table([row(line) for line in lines])
    for note in notes:
        print(note)
    missed = sum(line.met is False for line in lines)
    targets = sum(line.met is not None for line in lines)
    score = f"{targets - missed} of {targets} targets met, " if targets else ""
    print(f"{score}load {about['load_1min_after']:.1f}")
    return {
        "conditions": about,
        "lines": [asdict(line) for line in lines],
        "notes": notes,
        "failed": failed,
    }


def write_json(report: Mapping[str, Any], path: Path) -> None:
    """Write a report of measure_all, making the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written: {path}")
