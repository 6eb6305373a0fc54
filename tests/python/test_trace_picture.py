"""scripts/trace_picture.py: which part of a trace it chooses, and that it draws one."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from source_tree import ROOT

pytestmark = pytest.mark.notorch

_path = ROOT / "scripts" / "trace_picture.py"
_spec = importlib.util.spec_from_file_location("trace_picture", _path)
assert _spec is not None and _spec.loader is not None
picture = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(picture)


def run(tid: int, ts: float, dur: float, name: str = "matmul", cat: str = "run") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "tid": tid, "ts": ts, "dur": dur}


def test_overlap() -> None:
    runs = [run(1, 0, 10), run(2, 5, 10), run(1, 12, 2), run(3, 6, 1)]
    assert picture.overlap(runs, 0, 20) == 5 + 2
    assert picture.overlap(runs, 8, 5) == 2 + 1  # 8 to 10, 12 to 13
    assert picture.overlap(runs, 16, 5) == 0


def test_the_part_where_much_overlaps() -> None:
    runs = [run(1, k * 10, 8) for k in range(100)]
    runs += [run(2, 600 + k * 10, 8) for k in range(10)]
    assert 560 <= picture.best_start(runs, [], 100) <= 640
    runs += [run(2, 100 + k * 10, 8) for k in range(10)]
    assert 60 <= picture.best_start(runs, [150.0, 160.0], 100) <= 140  # where somebody is resumed


def test_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    names = {1: "client MainThread", 2: "controller", 3: "worker 0", 4: "worker 1"}
    events: list[dict[str, Any]] = []
    for tid, name in names.items():
        events += [
            {"ph": "M", "name": "thread_name", "tid": tid, "args": {"name": name}},
            {"ph": "M", "name": "thread_sort_index", "tid": tid, "args": {"sort_index": tid}},
        ]
    events += [run(3, 10, 500), run(4, 20, 500, "pass of 2: add mul"), run(1, 1, 5, "add", "call")]
    events += [run(1, 600, 3, "resume", "resume"), run(2, 5, 1, "round", "controller")]
    for phase, tid, ts in (("s", 1, 2), ("t", 3, 10), ("f", 1, 600)):
        events.append({"ph": phase, "id": 7, "name": "task", "tid": tid, "ts": ts})
    trace, png = tmp_path / "trace.json", tmp_path / "trace.png"
    trace.write_text(json.dumps({"traceEvents": events}))
    monkeypatch.setattr(sys, "argv", ["trace_picture.py", str(trace), str(png)])
    assert picture.main() == 0
    assert png.read_bytes().startswith(b"\x89PNG")


def test_what_is_wrong_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.json"
    for content in (None, "no JSON", "{}"):
        if content is not None:
            trace.write_text(content)
        monkeypatch.setattr(sys, "argv", ["trace_picture.py", str(trace), str(tmp_path / "x.png")])
        assert picture.main() == 1
        assert capsys.readouterr().err.startswith("trace_picture.py: ")
