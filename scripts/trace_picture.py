"""Draws a part of a trace that dtorch.profile wrote: a row for each thread, and some arrows.

    python scripts/trace_picture.py TRACE.json PICTURE.png [--start MS] [--length MS] [--arrows N]

Without --start a part is chosen in which many runs overlap. Needs matplotlib (one of
the bench requirements). docs/trace.png was made from the demo's trace:

    python examples/embed.py --no-torch --rounds 1 --concurrency 4 --trace build/trace.json
    python scripts/trace_picture.py build/trace.json docs/trace.png
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

Event = dict[str, Any]
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#ff9da6", "#9d755d")
GREY = "#c8c8c8"
SAMPLES = 200  # places that are tried as the start of the part


def overlap(slices: list[Event], start: float, length: float) -> float:
    """How long at least two threads ran something between start and start + length, in us."""
    edges: list[tuple[float, int]] = []
    for event in slices:
        begin = max(event["ts"], start)
        end = min(event["ts"] + event["dur"], start + length)
        if begin < end:
            edges += [(begin, 1), (end, -1)]
    total, depth, last = 0.0, 0, start
    for time, change in sorted(edges):
        if depth >= 2:
            total += time - last
        depth, last = depth + change, time
    return total


def best_start(runs: list[Event], resumptions: list[float], length: float) -> float:
    """Where a part of that length has runs that overlap, many in each worker, and resumptions."""
    tids = {event["tid"] for event in runs}
    first = min(event["ts"] for event in runs)
    last = max(event["ts"] + event["dur"] for event in runs)
    step = max(last - first - length, 0) / SAMPLES

    def score(start: float) -> float:
        counts = Counter(e["tid"] for e in runs if start <= e["ts"] <= start + length)
        resumed = sum(start <= time <= start + length for time in resumptions)
        return overlap(runs, start, length) * min(counts[t] for t in tids) * (1 + min(resumed, 3))

    return max((first + step * k for k in range(SAMPLES + 1)), key=score)


def rows_of(events: list[Event]) -> dict[int, tuple[int, str]]:
    """tid -> (row, name), in the order that the trace asks for."""
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    order = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"}
    tids = sorted(names, key=lambda tid: (order.get(tid, 0), names[tid]))
    return {tid: (row, names[tid]) for row, tid in enumerate(tids)}


def label_of(event: Event) -> str:
    """What the legend calls a slice."""
    if event["cat"] in ("controller", "wait", "resume"):
        return {"controller": "controller", "wait": "blocked", "resume": "resume"}[event["cat"]]
    return "fused pass" if event["name"].startswith("pass of") else str(event["name"])


def draw_slices(axes: Any, slices: list[Event], rows: dict[int, tuple[int, str]]) -> None:
    """Bars in their threads' rows, coloured by op; the ops that take longest have a colour each."""
    time: Counter[str] = Counter()
    for event in slices:
        time[label_of(event)] += event["dur"]
    colours = dict(zip((name for name, _ in time.most_common()), COLOURS, strict=False))
    bars: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
    for event in slices:
        name = label_of(event)
        key = name if name in colours else "other"
        bars[key].append((rows[event["tid"]][0], event["ts"], event["dur"]))
    for name, found in bars.items():
        axes.barh(
            [row for row, _, _ in found],
            [duration / 1000 for _, _, duration in found],
            left=[start / 1000 for _, start, _ in found],
            height=0.7,
            color=colours.get(name, GREY),
            edgecolor="white",
            linewidth=0.3,
            label=name,
        )


def draw_arrows(
    plt: Any, axes: Any, events: list[Event], rows: dict[int, tuple[int, str]], count: int
) -> int:
    """From call to run to resumption, of tasks that were awaited and resumed in what is shown.

    Gives the number of those drawn, at most ``count``.
    """
    points: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            points[event["id"]].append(event)
    left, right = axes.get_xlim()
    whole = [
        sorted(found, key=lambda e: e["ts"])
        for found in points.values()
        if {e["ph"] for e in found} == {"s", "t", "f"}
        and any(e["ph"] == "f" and left < e["ts"] / 1000 < right for e in found)
    ]
    whole.sort(key=lambda found: found[-1]["ts"] - found[0]["ts"])
    for found in whole[:count]:
        for begin, end in pairwise(found):
            arrow = plt.matplotlib.patches.FancyArrowPatch(
                (begin["ts"] / 1000, rows[begin["tid"]][0]),
                (end["ts"] / 1000, rows[end["tid"]][0]),
                arrowstyle="-|>",
                mutation_scale=10,
                color="black",
                linewidth=1.1,
                zorder=3,
                clip_on=True,
            )
            axes.add_patch(arrow)
    return min(len(whole), count)


def draw(events: list[Event], start: float | None, length: float, arrows: int) -> Any:
    """The figure. Times in us."""
    importlib.import_module("matplotlib").use("Agg")
    plt = importlib.import_module("matplotlib.pyplot")
    rows = rows_of(events)
    runs = [e for e in events if e["ph"] == "X" and e["cat"] == "run" and e["dur"] > 0]
    if not runs:
        raise ValueError("the trace has no runs of tasks")
    if start is None:
        resumptions = [e["ts"] for e in events if e["ph"] == "X" and e["cat"] == "resume"]
        start = best_start(runs, resumptions, length)
    inside = [
        e
        for e in events
        if "ts" in e and e["ts"] + e.get("dur", 0) >= start and e["ts"] <= start + length
    ]
    slices = [e for e in inside if e["ph"] == "X" and e["dur"] > 0]
    figure, axes = plt.subplots(figsize=(12, 1.2 + 0.7 * len(rows)), dpi=110)
    draw_slices(axes, slices, rows)
    axes.set_yticks([row for row, _ in rows.values()], [name for _, name in rows.values()])
    axes.invert_yaxis()
    axes.set_xlim(start / 1000, (start + length) / 1000)
    shown = draw_arrows(plt, axes, events, rows, arrows)
    axes.set_xlabel("ms" + (" (arrows: call, run, resumption)" if shown else ""))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(ncols=9, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    figure.tight_layout()
    return figure


def main() -> int:
    """0, or 1 with one line on stderr."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--start", type=float, help="ms from the beginning of the trace")
    parser.add_argument("--length", type=float, default=8.0, help="ms to show (8)")
    parser.add_argument("--arrows", type=int, default=3, help="tasks with arrows (3)")
    arguments = parser.parse_args()
    try:
        events = json.loads(arguments.trace.read_text(encoding="utf-8"))["traceEvents"]
        start = None if arguments.start is None else arguments.start * 1000
        figure = draw(events, start, arguments.length * 1000, arguments.arrows)
        figure.savefig(arguments.picture)
    except (OSError, ValueError, KeyError, ImportError) as error:
        print(f"trace_picture.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
