"""dtorch.profile: the Chrome trace of what ran: tracks, slices that nest, arrows, names, lines."""

from __future__ import annotations

import asyncio
import bisect
import inspect
import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dtorch
import pytest
from dtorch import _C
from pending import FAILURE, Stalled, failing, held, meanwhile, patient

pytestmark = pytest.mark.notorch

Run = Callable[[Any], Any]
Event = dict[str, Any]


def ns(us: float) -> int:
    """A trace's microseconds in nanoseconds, which is what they were."""
    return round(us * 1000)


class Trace:
    """A trace file, parsed and checked: what must hold of each."""

    def __init__(self, path: Path) -> None:
        data = json.loads(path.read_text(encoding="utf-8"))
        self.other: dict[str, Any] = data["otherData"]
        self.events: list[Event] = data["traceEvents"]
        self.tracks = {
            e["tid"]: e["args"]["name"] for e in self.events if e["name"] == "thread_name"
        }
        for event in self.events:
            assert event["pid"] == os.getpid()
            if event["ph"] != "M":
                assert event["tid"] in self.tracks
                assert event["ts"] >= 0
        self.check_nesting()
        self.check_arrows()
        self.check_spans()

    def check_nesting(self) -> None:
        """Slices of one track contain each other or lie apart."""
        tracks = defaultdict(list)
        for e in self.slices():
            start, dur = ns(e["ts"]), ns(e["dur"])
            tracks[e["tid"]].append((start, start + dur, e))
        for slices in tracks.values():
            open_ends: list[int] = []
            for start, end, event in sorted(slices, key=lambda s: (s[0], -s[1])):
                while open_ends and open_ends[-1] <= start:
                    open_ends.pop()
                assert not open_ends or end <= open_ends[-1], event
                open_ends.append(end)

    def covered(self) -> dict[int, tuple[list[int], list[int]]]:
        """By track: when its outermost slices begin, and when they end, in order of time."""
        tracks: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for e in sorted(self.slices(), key=lambda e: (ns(e["ts"]), -ns(e["dur"]))):
            starts, ends = tracks[e["tid"]]
            start = ns(e["ts"])
            if not ends or start >= ends[-1]:
                starts.append(start)
                ends.append(start + ns(e["dur"]))
        return tracks

    def check_arrows(self) -> None:
        """Each begins once, ends once, in this order of time, within slices of its tracks."""
        covered = self.covered()
        arrows = defaultdict(list)
        for event in self.events:
            if event["ph"] in "stf":
                arrows[event["id"]].append(event)
        for points in arrows.values():
            points.sort(key=lambda e: e["ts"])
            phases = "".join(e["ph"] for e in points)
            assert phases[0] == "s" and phases[-1] == "f", phases
            assert set(phases[1:-1]) <= {"t"}, phases
            for point in points:
                starts, ends = covered[point["tid"]]
                last = bisect.bisect_right(starts, ns(point["ts"])) - 1
                assert last >= 0 and ns(point["ts"]) <= ends[last], point

    def check_spans(self) -> None:
        spans = defaultdict(list)
        for event in self.events:
            if event["ph"] in "be":
                spans[event["cat"], event["id"]].append(event)
        for begin, end in spans.values():
            assert (begin["ph"], end["ph"]) == ("b", "e")
            assert begin["name"] == end["name"] and begin["ts"] <= end["ts"]

    def slices(self, name: str | None = None, cat: str | None = None) -> list[Event]:
        return [
            e
            for e in self.events
            if e["ph"] == "X" and name in (None, e["name"]) and cat in (None, e["cat"])
        ]

    def enclosing(self, point: Event) -> Iterator[Event]:
        for e in self.slices():
            if e["tid"] == point["tid"]:
                inside = e["ts"] - 1e-6 <= point["ts"] <= e["ts"] + e["dur"] + 1e-6
                if inside:
                    yield e

    def track(self, event: Event) -> str:
        return self.tracks[event["tid"]]

    def computed(self, event: Event) -> bool:
        """Whether it is in the track of a thread that computes: a client that waits helps."""
        return self.track(event).startswith(("worker ", "client "))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


def line() -> str:
    """The caller's own line, as a trace writes it."""
    frame = inspect.stack()[1]
    return f"{frame.filename}:{frame.lineno}"


def product(n: int = 300) -> Any:
    """A tensor pending for some milliseconds."""
    x = dtorch.ones(n, n)
    return x @ x


# --- what is in it -----------------------------------------------------------------------------


def test_inline_ops_are_slices_of_the_client(path: Path) -> None:
    a = dtorch.tensor([1.0, 2.0])
    with dtorch.profile(path):
        b, here = a + a, line()
        c = b.exp()
        d = b.view(2, 1)
    assert c.shape == (2,) and d.shape == (2, 1) and b.tolist() == [2.0, 4.0]
    trace = Trace(path)
    (add,) = trace.slices("add")
    assert add["cat"] == "call" and trace.track(add) == "client MainThread"
    assert add["args"]["lane"] == "inline" and add["args"]["bytes"] == 3 * 2 * 4
    assert add["args"]["site"] == here
    assert "coroutine" not in add["args"]
    assert trace.slices("exp")[0]["args"]["lane"] == "inline"
    assert trace.slices("view")[0]["args"]["lane"] == "view"
    assert not [e for e in trace.events if e["ph"] in "stf"]
    assert trace.other["dropped"] == trace.other["unfinished"] == 0


def test_a_task_from_call_to_run(path: Path) -> None:
    with dtorch.profile(path):
        y, here = product(), line()
    assert y[0, 0].item() == 300
    trace = Trace(path)
    runs = trace.slices("matmul", "run")
    assert runs and all(trace.computed(e) for e in runs)
    (call,) = trace.slices("matmul", "call")
    assert call["args"]["lane"] == "submitted"
    assert call["args"]["site"].startswith(__file__) and here.startswith(__file__)
    assert runs[0]["args"]["site"] == call["args"]["site"]
    facts = [e for e in trace.slices("matmul") if "bytes" in e["args"]]
    assert [e["args"]["bytes"] for e in facts] == [3 * 300 * 300 * 4]
    queue = [e for e in trace.events if e["ph"] == "b" and e["name"] == "matmul"]
    assert len(queue) == 1 and queue[0]["cat"] == "queue"
    assert queue[0]["ts"] <= min(e["ts"] for e in runs)


@patient
def test_arrows_lead_to_the_resumption(path: Path, run: Run) -> None:
    async def request() -> None:
        await (held(0.1) * 2)

    async def main() -> None:
        with meanwhile(0.1):
            task = asyncio.create_task(request(), name='re"quest\\7 é')
            await asyncio.sleep(0)  # it awaits now
        await task

    with dtorch.profile(path):
        run(main())
    trace = Trace(path)
    (call,) = trace.slices("mul", "call")
    assert call["args"]["coroutine"] == 're"quest\\7 é'
    (resume,) = trace.slices("resume")
    assert trace.track(resume) == trace.track(call) == "client MainThread"
    (end,) = [e for e in trace.events if e["ph"] == "f" and resume in trace.enclosing(e)]
    points = [e for e in trace.events if e["ph"] in "stf" and e["id"] == end["id"]]
    assert [e["ph"] for e in sorted(points, key=lambda e: e["ts"])] == ["s", "t", "f"]
    start, step, _ = sorted(points, key=lambda e: e["ts"])
    assert call in trace.enclosing(start)
    assert trace.computed(step)


@patient
def test_many_awaiters_of_one_tensor(path: Path, run: Run) -> None:
    async def main() -> None:
        async def waiter(t: Any) -> None:
            await t

        with meanwhile(0.1):
            t = held(0.1)
            waiting = [asyncio.ensure_future(waiter(t)) for _ in range(5)]
            await asyncio.sleep(0)
        await asyncio.gather(*waiting)
        with meanwhile(0.09):
            both = asyncio.ensure_future(dtorch.gather(held(0.1), held(0.09)))
            await asyncio.sleep(0)
        await both

    with dtorch.profile(path):
        run(main())
    trace = Trace(path)
    assert len(trace.slices("resume")) == 6
    timers = trace.slices("timer", "end")
    assert len(timers) == 3 and {trace.track(e) for e in timers} == {"controller"}


@patient
def test_blocking_waits(path: Path) -> None:
    with dtorch.profile(path):
        assert held(0.1).sum().item() == 28.0
    trace = Trace(path)
    if not any(e["dur"] > 10000 for e in trace.slices("Tensor.item()", "wait")):
        raise Stalled
    (wait,) = trace.slices("Tensor.item()", "wait")
    assert any(e["ph"] == "f" and wait in trace.enclosing(e) for e in trace.events)


def test_threads_have_tracks_of_their_own(path: Path) -> None:
    def work() -> None:
        (dtorch.ones(3) + 1).sum().item()

    with dtorch.profile(path):
        threads = [threading.Thread(target=work, name=f'th"read {k}') for k in range(3)]
        for thread in threads:
            thread.start()
            thread.join()
        product()
    trace = Trace(path)
    adders = {trace.track(e) for e in trace.slices("add", "call")}
    assert adders == {f'client th"read {k}' for k in range(3)}
    order = {
        trace.tracks[e["tid"]]: e["args"]["sort_index"]
        for e in trace.events
        if e["name"] == "thread_sort_index"
    }
    assert order["client MainThread"] < order["controller"]
    assert all(order["controller"] < n for name, n in order.items() if name.startswith("worker"))


@pytest.mark.skipif(dtorch.get_num_threads() < 2, reason="one thread runs one thing at a time")
def test_independent_products_run_in_two_threads(path: Path) -> None:
    x = dtorch.ones(700, 700)
    tracks: set[str] = set()
    while len(tracks) < 2:  # one thread may do both while the other gets no core
        _C._drain().get(30)
        with dtorch.profile(path):
            a, b = x @ x, x @ x
        assert a[0, 0].item() == b[0, 0].item() == 700
        trace = Trace(path)
        tracks = {trace.track(e) for e in trace.slices("matmul", "run")}


@pytest.mark.skipif(dtorch.get_num_threads() < 2, reason="one thread splits nothing")
def test_a_task_in_parts(path: Path) -> None:
    x = dtorch.ones(700, 700)
    _C._drain().get(30)
    with dtorch.profile(path):
        y = x @ x
    assert y[0, 0].item() == 700
    trace = Trace(path)
    shares = trace.slices("matmul", "run")
    assert sum(e["args"]["parts"] for e in shares) >= 2
    assert all(trace.computed(e) for e in shares)
    (end,) = trace.slices("matmul", "end")
    assert end["dur"] == 0 and end["ts"] >= max(e["ts"] + e["dur"] for e in shares)
    assert {e["args"]["seq"] for e in shares} == {end["args"]["seq"]}


@patient
def test_a_pass_lists_its_members(path: Path) -> None:
    with dtorch.profile(path):
        with meanwhile(0.08):
            x = held(0.1)
            y = ((x * 2 + 1) - x).relu()
        assert y.tolist() == [8.0] * 4
    trace = Trace(path)
    (run,) = trace.slices(cat="run")
    assert run["name"] == "pass of 4: mul add sub relu"
    assert trace.computed(run)
    members = run["args"]["members"]
    assert [m["op"] for m in members] == ["mul", "add", "sub", "relu"]
    assert [m["bytes"] for m in members] == [32, 32, 48, 32]
    assert all(m["site"].startswith(__file__) and m["queue_us"] > 10000 for m in members)
    arrows = [e for e in trace.events if e["ph"] in "tf" and run in trace.enclosing(e)]
    assert len({e["id"] for e in arrows}) == 4


@patient
def test_what_nobody_can_see_is_dropped(path: Path) -> None:
    before = dtorch.stats()["dropped"]
    with dtorch.profile(path):
        with meanwhile(0.1):
            x = held(0.1)
            y = x.exp()
            del y
    trace = Trace(path)
    assert not trace.slices("exp", "run")
    (end,) = trace.slices("exp", "end")
    assert end["args"]["dropped"] is True
    assert dtorch.stats()["dropped"] == before + 1


def test_files(path: Path, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        tensors = {f"t{k}": dtorch.full((1000,), float(k)) for k in range(3)}
        await dtorch.save_safetensors(tensors, tmp_path / "x.safetensors")
        loaded = await dtorch.load_safetensors(tmp_path / "x.safetensors")
        assert (await loaded["t2"].sum()).item() == 2000.0

    with dtorch.profile(path):
        run(main())
    trace = Trace(path)
    for name in ("write file", "read file"):
        ends = [e for e in trace.slices(name) if e["cat"] == "end"]
        assert sum(e["args"]["bytes"] for e in ends) >= 3 * 4000
        assert {trace.track(e) for e in ends} == {"controller"}
        spans = [e for e in trace.events if e["ph"] == "b" and e["name"] == name]
        assert sum(e["cat"] == "io" for e in spans) == len(ends)


@patient
def test_failures_are_marked(path: Path) -> None:
    with dtorch.profile(path):
        with meanwhile(0.05):
            late = failing(0.05)
        inline = dtorch.tensor([1]) // dtorch.tensor([0])
        with pytest.raises(RuntimeError):
            dtorch.ones(2) + dtorch.ones(3)
        for t in (late, inline):
            with pytest.raises(RuntimeError, match=FAILURE):
                t.tolist()
    trace = Trace(path)
    calls = trace.slices("floor_divide", "call")
    assert [("failed" in e["args"], e["args"]["lane"]) for e in calls] == [
        (False, "submitted"),
        (True, "inline"),
    ]
    assert [e["args"].get("failed") for e in trace.slices("add")] == [True]
    ended = [e for e in trace.slices("floor_divide") if e["cat"] != "call"]
    assert [e["args"]["failed"] for e in ended] == ["division by zero"]


@patient
def test_cancelled_awaits(path: Path, run: Run) -> None:
    async def main() -> None:
        async def waiter(t: Any) -> None:
            await t

        with meanwhile(0.3):
            t = held(0.3)
            tasks = [asyncio.create_task(waiter(t)) for _ in range(3)]
            await asyncio.sleep(0)
            tasks[0].cancel()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(waiter(t), 0.001)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert tasks[0].cancelled() and not tasks[1].cancelled()

    with dtorch.profile(path):
        run(main())
    assert len(Trace(path).slices("resume")) == 2


@patient
def test_begun_before_and_ended_after(path: Path, tmp_path: Path, run: Run) -> None:
    before = product()
    with dtorch.profile(path):
        assert before[0, 0].item() == 300
    trace = Trace(path)
    assert not trace.slices("matmul", "call")

    async def main() -> None:
        with meanwhile(0.1):
            with dtorch.profile(tmp_path / "other.json"):
                t = held(0.1)
        await t  # ends outside
        with dtorch.profile(path):
            await held(0.001)

    run(main())
    other = Trace(tmp_path / "other.json")
    assert other.other["unfinished"] == 1
    assert not [e for e in other.events if e["ph"] in "stf"]
    assert len(Trace(path).slices("timer", "end")) == 1


@patient
def test_async_with_awaits_the_rest(path: Path, run: Run) -> None:
    async def main() -> None:
        ticks = 0

        async def ticker() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.002)
                ticks += 1

        ticking = asyncio.create_task(ticker())
        async with dtorch.profile(path):
            t = held(0.05)
        if ticks <= 3:
            raise Stalled
        assert t.to_torch_async().done()
        ticking.cancel()

    run(main())
    trace = Trace(path)
    assert trace.other["unfinished"] == 0
    assert len(trace.slices("timer", "end")) == 1


# --- bounds ------------------------------------------------------------------------------------


def test_what_finds_no_room_is_counted(path: Path) -> None:
    a = dtorch.ones(2)
    with dtorch.profile(path, max_records=100):  # whole chunks, of some 800
        for _ in range(3000):
            a + a
    trace = Trace(path)
    assert 100 <= trace.other["records"] < 3000
    assert trace.other["records"] + trace.other["dropped"] >= 3000
    with dtorch.profile(path):
        a + a
    assert Trace(path).other["dropped"] == 0


@pytest.mark.timeout(180)
def test_a_million_records(path: Path) -> None:
    a = dtorch.ones(2)
    objects = dtorch.memory_stats()["objects"]
    with dtorch.profile(path):
        for _ in range(1_000_000):
            a + a
    assert dtorch.memory_stats()["objects"] <= objects + 100  # the records are gone
    with path.open("rb") as file:
        assert sum(1 for _ in file) > 1_000_000
        file.seek(-400, os.SEEK_END)
        assert b'"dropped":0' in file.read()


# --- starting and stopping -----------------------------------------------------------------------


def test_start_and_stop(path: Path) -> None:
    profile = dtorch.profile(str(path))
    assert repr(profile) == f"<dtorch.profile {str(path)!r}>"
    with pytest.raises(RuntimeError, match=r"stop\(\) without start\(\)"):
        profile.stop()
    assert profile.start() is profile
    assert "recording" in repr(profile)
    dtorch.ones(2) + 1
    profile.stop()
    assert len(Trace(path).slices("add")) == 1
    with profile:  # again, over the old file
        pass
    assert not Trace(path).slices("add")


def test_one_at_a_time(path: Path, tmp_path: Path) -> None:
    with dtorch.profile(path):
        with pytest.raises(RuntimeError, match=r"being recorded already, to .*trace\.json"):
            dtorch.profile(tmp_path / "second.json").start()
        dtorch.ones(2) + 1
    assert len(Trace(path).slices("add")) == 1
    assert not (tmp_path / "second.json").exists()


def test_written_when_the_block_raises(path: Path, run: Run) -> None:
    with pytest.raises(ZeroDivisionError), dtorch.profile(path):
        dtorch.ones(2) + 1
        1 / 0
    assert len(Trace(path).slices("add")) == 1

    async def main() -> None:
        async with dtorch.profile(path):
            dtorch.ones(2) * 2
            raise KeyError

    with pytest.raises(KeyError):
        run(main())
    assert len(Trace(path).slices("mul")) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"path": 3}, TypeError, "int"),
        ({"path": "x", "max_records": 0}, ValueError, "max_records must be an int >= 1, not 0"),
        ({"path": "x", "max_records": True}, ValueError, "max_records"),
        ({"path": "x", "timeout": -1}, ValueError, "timeout must be a number >= 0 or None, not -1"),
        ({"path": "x", "timeout": float("nan")}, ValueError, "timeout"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        dtorch.profile(**arguments)


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), dtorch.profile(tmp_path / "none" / "trace.json"):
        pass
    with pytest.raises(IsADirectoryError):
        dtorch.profile(tmp_path).start()
    with dtorch.profile(tmp_path / "good.json"):  # the failures left nothing behind
        pass
    if os.path.exists("/dev/full"):
        with pytest.raises(OSError, match="could not be written"), dtorch.profile("/dev/full"):
            pass
        with dtorch.profile(tmp_path / "good.json"):
            pass


@patient
def test_a_tensor_that_never_ends_does_not_hold_up_the_end(path: Path) -> None:
    with meanwhile(1.0):
        t = held(1.0)
        with dtorch.profile(path, timeout=0.01):
            t + 1
    Trace(path)
    assert t.tolist() == [7.0] * 4


def child(code: str, path: Path) -> str:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return run.stdout


def test_written_at_exit(path: Path) -> None:
    child("import sys, dtorch; dtorch.profile(sys.argv[1]).start(); dtorch.ones(2) + 1", path)
    names = [e["name"] for e in json.loads(path.read_text())["traceEvents"]]
    assert names.count("add") == 1


def test_a_forked_child_does_not_write(path: Path) -> None:
    code = """
import os, sys, dtorch
with dtorch.profile(sys.argv[1]):
    dtorch.ones(2) + 1
    pid = os.fork()
    dtorch.ones(2) * 2
    if pid == 0:
        with dtorch.profile(sys.argv[1] + ".child"):
            dtorch.ones(2) - 2
        # leaves the block too, and exits as Python does
if pid:
    assert os.waitpid(pid, 0)[1] == 0
"""
    child(code, path)
    names = [e["name"] for e in json.loads(path.read_text())["traceEvents"]]
    assert (names.count("add"), names.count("mul"), names.count("sub")) == (1, 1, 0)
    inner = Path(f"{path}.child").read_text()
    names = [e["name"] for e in json.loads(inner)["traceEvents"]]
    assert (names.count("add"), names.count("mul"), names.count("sub")) == (0, 0, 1)


def test_profiles_while_threads_and_loops_work(tmp_path: Path) -> None:
    stop = threading.Event()
    errors: list[BaseException] = []
    done: list[None] = []

    def in_thread() -> None:
        try:
            while not stop.is_set():
                (product(64) + 1).sum().item()
                done.append(None)
        except BaseException as error:
            errors.append(error)

    async def in_loop() -> None:
        while not stop.is_set():
            await (product(64) * 2)
            done.append(None)

    threads = [threading.Thread(target=in_thread) for _ in range(2)]
    threads += [threading.Thread(target=asyncio.run, args=(in_loop(),))]
    for thread in threads:
        thread.start()
    try:
        paths = [tmp_path / f"trace{k}.json" for k in range(5)]
        for path in paths:
            with dtorch.profile(path):
                enough = len(done) + 4  # one of three began two: the second within
                while len(done) < enough and not errors:
                    time.sleep(0.001)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors
    for path in paths:
        assert Trace(path).slices("matmul")
