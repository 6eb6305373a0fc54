"""dtorch.priority: a level that belongs to the context; each submitted call takes it along."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import dtorch
import pytest
from dtorch import _C
from pending import hold, meanwhile, patient

pytestmark = pytest.mark.notorch

Run = Callable[[Any], Any]


def level() -> str:
    """What the core is told of a call made here, which is what get_priority() says."""
    _, told = _C._note()
    assert told == dtorch.get_priority()
    return str(told)


def test_levels_nest_and_end() -> None:
    assert level() == "normal"
    with dtorch.priority("bulk") as outer:
        assert level() == "bulk"
        with dtorch.priority("interactive"):
            assert level() == "interactive"
            with dtorch.priority("normal"):
                assert level() == "normal"
            with outer:  # one object, entered twice
                assert level() == "bulk"
            assert level() == "interactive"
        assert level() == "bulk"
        with pytest.raises(KeyError), dtorch.priority("interactive"):
            raise KeyError
        assert level() == "bulk"
    assert level() == "normal"


@pytest.mark.parametrize("bad", ["fast", "", "Bulk", None, 1, b"bulk"])
def test_bad_levels(bad: Any) -> None:
    with pytest.raises(ValueError, match="must be 'interactive', 'normal' or 'bulk', not") as info:
        dtorch.priority(bad)
    assert repr(bad) in str(info.value)
    assert level() == "normal"


def test_belongs_to_the_context(run: Run) -> None:
    shared = dtorch.priority("bulk")
    seen: dict[str, str] = {}

    async def note(name: str) -> None:
        await asyncio.sleep(0)
        seen[name] = level()

    async def enter(name: str, wanted: str) -> None:
        with dtorch.priority(wanted), shared:
            await asyncio.sleep(0.001)
            seen[name + ", inside"] = level()
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        seen[name] = level()

    async def main() -> None:
        outside = asyncio.ensure_future(note("outside"))
        with dtorch.priority("interactive"):
            inherited = asyncio.ensure_future(note("inherited"))
            both = asyncio.gather(enter("a", "normal"), enter("b", "interactive"))
        await asyncio.gather(outside, inherited, both)
        assert level() == "normal"

    run(main())
    assert seen == {
        "outside": "normal",
        "inherited": "interactive",
        "a, inside": "bulk",
        "b, inside": "bulk",
        "a": "interactive",
        "b": "interactive",
    }


def test_left_in_another_context() -> None:
    block = dtorch.priority("bulk")
    contextvars.copy_context().run(block.__enter__)
    assert level() == "normal"
    block.__exit__(None, None, None)
    assert level() == "normal"


def test_repr() -> None:
    assert repr(dtorch.priority("bulk")) == "dtorch.priority('bulk')"


def test_results_are_the_same() -> None:
    x = dtorch.ones(64, 64)
    with dtorch.priority("interactive"):
        a = x @ x
    with dtorch.priority("bulk"):
        b = a @ x
    assert b[3, 5].item() == 64.0 * 64.0


@patient
def test_interactive_work_overtakes_bulk(run: Run) -> None:
    """All become ready at once, for one worker: called last, and not computed last."""
    order: list[str] = []

    async def note(name: str, t: Any) -> None:
        await t
        order.append(name)

    async def main() -> None:
        gate, x = dtorch.zeros(256, 256), dtorch.ones(256, 256)
        await dtorch.drain()
        with meanwhile(0.2):
            hold(gate, 0.2)
            with dtorch.priority("bulk"):
                work = {f"bulk {i}": gate @ x for i in range(12)}
            with dtorch.priority("interactive"):
                work["interactive"] = gate @ x
        await asyncio.gather(*(note(name, t) for name, t in work.items()))

    threads = dtorch.get_num_threads()
    dtorch.set_num_threads(1)
    try:
        run(main())
    finally:
        dtorch.set_num_threads(threads)
    assert len(order) == 13
    assert order.index("interactive") < 6, order


def test_a_process_that_never_used_it() -> None:
    code = "import dtorch; from dtorch import _C; print(dtorch.get_priority(), _C._note()[1])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=50,
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    assert done.stdout.split() == ["normal", "normal"], done.stderr
