"""PNG pictures of a report of compare.py.

    python bench/plots.py build/compare.json DIR

Every picture is made from the JSON alone. Lines that a picture is made of carry ``detail["plot"]``.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Report = Mapping[str, Any]
OURS = "#1f77b4"
COLOURS = ("#ff7f0e", "#2ca02c", "#9467bd", "#8c564b")


def plotted(report: Report, kind: str) -> list[dict[str, Any]]:
    """The lines of one kind of picture."""
    return [one for one in report["lines"] if one["detail"].get("plot", {}).get("kind") == kind]


def colour(name: str, index: int) -> str:
    """Ours is always the same."""
    return OURS if name == "dtorch" else COLOURS[index % len(COLOURS)]


def short(value: float) -> str:
    """Three significant digits: ``1.04``, ``127k``."""
    return f"{value:.3g}" if value < 1000 else f"{value / 1000:.3g}k"


def bars(axes: Any, groups: list[str], series: Mapping[str, list[float]]) -> None:
    """Grouped bars, a label on top of each."""
    width = 0.8 / len(series)
    peer = 0
    for index, (name, values) in enumerate(series.items()):
        places = [group + (index - (len(series) - 1) / 2) * width for group in range(len(groups))]
        drawn = axes.bar(places, values, width, label=name, color=colour(name, peer))
        peer += name != "dtorch"
        axes.bar_label(drawn, fmt=short, fontsize=6, padding=1)
    axes.set_xticks(range(len(groups)), groups)
    axes.legend(fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def log_scale(axes: Any) -> None:
    """A logarithmic y axis whose bars begin a good deal below the smallest."""
    axes.set_yscale("log")
    values = [patch.get_height() for patch in axes.patches]
    axes.set_ylim(min(values) / 4, max(values) * 4)


def draw_chain(plt: Any, report: Report) -> Any:
    """Nanoseconds for an element of the chain, by size; None when it was not measured."""
    kinds = [kind for kind in ("chain", "chain-jax") if plotted(report, kind)]
    if not kinds:
        return None
    figure, all_axes = plt.subplots(1, len(kinds), figsize=(6.5 * len(kinds), 4), squeeze=False)
    for axes, kind in zip(all_axes[0], kinds, strict=True):
        plots = [one["detail"]["plot"] for one in plotted(report, kind)]
        series = {
            name: [plot["seconds"][name] * 1e9 / plot["size"] for plot in plots]
            for name in plots[0]["seconds"]
        }
        bars(axes, [f"{plot['size']:,}" for plot in plots], series)
        log_scale(axes)
        axes.set_xlabel("float32 elements")
        axes.set_ylabel("ns for an element of the chain of 9 ops")
        axes.set_title("beside JAX" if kind == "chain-jax" else "beside torch", fontsize=10)
    return figure


def cell(line: Mapping[str, Any]) -> tuple[int, int]:
    """The picture's part that a line of latencies belongs to: other coroutines, percentile."""
    plot = line["detail"]["plot"]
    return plot["others"], plot["percent"]


def draw_latency(plt: Any, report: Report) -> Any:
    """p50 and p99 of an await, by size and load."""
    lines = plotted(report, "latency")
    if not lines:
        return None
    cells = sorted({cell(one) for one in lines})
    figure, all_axes = plt.subplots(1, len(cells), figsize=(4.5 * len(cells), 4), squeeze=False)
    for axes, (others, percent) in zip(all_axes[0], cells, strict=True):
        here = [one for one in lines if cell(one) == (others, percent)]
        sizes = sorted({one["detail"]["plot"]["about_us"] for one in here})
        series: dict[str, list[float]] = {"dtorch": []}
        for size in sizes:
            same = [one for one in here if one["detail"]["plot"]["about_us"] == size]
            series["dtorch"].append(same[0]["ours"])
            for one in same:
                series.setdefault(one["detail"]["plot"]["peer"], []).append(one["peer"])
        bars(axes, [f"{size} us" for size in sizes], series)
        log_scale(axes)
        axes.set_ylabel("us")
        beside = f"beside {others} coroutines" if others else "alone"
        axes.set_title(f"p{percent} of an await, {beside}", fontsize=10)
    return figure


def draw_throughput(plt: Any, report: Report) -> Any:
    """Requests a second."""
    lines = plotted(report, "throughput")
    if not lines:
        return None
    series = {"dtorch": [1e6 / lines[0]["ours"]]}
    for one in lines:
        series[one["detail"]["plot"]["peer"]] = [1e6 / one["peer"]]
    figure, axes = plt.subplots(figsize=(6, 4))
    bars(axes, ["64 coroutines"], series)
    axes.set_ylabel("requests a second")
    return figure


def draw_ratios(plt: Any, report: Report) -> Any:
    """Every ratio with a target, its quartiles, and the target."""
    lines = [one for one in report["lines"] if one["detail"].get("target") is not None]
    if not lines:
        return None
    figure, axes = plt.subplots(figsize=(8, 0.45 * len(lines) + 1.2))
    for place, one in enumerate(reversed(lines)):
        ratio, target = one["detail"]["ratio"], one["detail"]["target"]
        low, high = one["detail"]["ratio_quartiles"]
        axes.barh(place, ratio, 0.6, color=OURS if one["met"] else "#d62728")
        axes.plot([low, high], [place, place], color="black", linewidth=2)
        axes.plot([target, target], [place - 0.4, place + 0.4], color="black", linestyle=":")
    axes.set_yticks(
        range(len(lines)), [f"{one['name']} / {one['peer_name']}" for one in reversed(lines)]
    )
    axes.tick_params(axis="y", labelsize=8)
    axes.set_xscale("log")
    axes.set_xlabel("the peer's time over dtorch's (bar: quartiles; dotted: target)")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


DRAWINGS = {
    "chain": draw_chain,
    "latency": draw_latency,
    "throughput": draw_throughput,
    "ratios": draw_ratios,
}


def draw_all(report: Report, folder: Path) -> list[Path]:
    """Write the pictures for which the report has numbers; the paths. None without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        print("no plots: matplotlib is not installed")
        return []
    importlib.import_module("matplotlib").use("Agg")
    plt = importlib.import_module("matplotlib.pyplot")
    about = report["conditions"]
    written = []
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWINGS.items():
        figure = draw(plt, report)
        if figure is None:
            continue
        figure.suptitle(
            f"dtorch {about['dtorch']}, torch {about['torch']}, {about['threads']} threads, "
            f"{about['cpu']}, load {about['load_1min']:.1f}",
            fontsize=8,
        )
        figure.tight_layout()
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=130)
        plt.close(figure)
        written.append(path)
    return written


if __name__ == "__main__":
    for written_path in draw_all(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])):
        print(f"written: {written_path}")
