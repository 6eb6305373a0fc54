"""Late errors say where they come from: the op, and the user's file, line and function.

The line is compared with what ``here()`` takes from Python's own frames beside each call.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import dtorch
import pytest
from dtorch import _C
from pending import FAILURE, held

pytestmark = pytest.mark.notorch

Run = Callable[[Any], Any]

HAS_QUALNAME = sys.version_info >= (3, 11)


def pending_zeros(seconds: float = 0.02) -> Any:
    return _C._hold(dtorch.zeros(2, dtype="int64"), seconds)


def ready_zeros(_: float = 0.0) -> Any:
    return dtorch.zeros(2, dtype="int64")


@pytest.fixture(params=[ready_zeros, pending_zeros], ids=["inline", "controller"])
def zeros(request: pytest.FixtureRequest) -> Any:
    """What to divide by, so that the failure is found in the client, or by a worker."""
    return request.param


ONES = dtorch.tensor([1, 2])


def here() -> int:
    """The line of the caller."""
    return sys._getframe(1).f_lineno


def note_of(error: BaseException) -> str:
    (note,) = error.__notes__  # type: ignore[attr-defined]
    assert isinstance(note, str)
    return note


def expected(op: str, line: int, name: str, file: str = __file__) -> str:
    if not HAS_QUALNAME:
        name = name.rsplit(".", 1)[-1]
    return f"raised by {op}, called at {file}:{line}, in {name}"


def caught(action: Callable[[], Any]) -> BaseException:
    with pytest.raises(RuntimeError) as info:
        action()
    assert str(info.value) == FAILURE  # torch's text: the note stays apart
    return info.value


async def caught_await(awaitable: Any) -> BaseException:
    with pytest.raises(RuntimeError) as info:
        await awaitable
    assert str(info.value) == FAILURE
    return info.value


# --- every way to come to know of it -----------------------------------------------------------


def fail(zeros: Any) -> tuple[Any, str]:
    t, line = ONES // zeros(), here()
    return t, expected("floor_divide", line, "fail")


READS: dict[str, Callable[[Any], Any]] = {
    "tolist": lambda t: t.tolist(),
    "item": lambda t: t[0].item(),
    "bool": lambda t: bool(t[0]),
    "print": repr,
    "to_torch": lambda t: t.to_torch(),
    "numpy": lambda t: t.numpy(),
    "get": lambda t: t.to_torch_async().get(),
}


@pytest.mark.parametrize("read", READS)
def test_read(zeros: Any, read: str) -> None:
    t, note = fail(zeros)
    for _ in range(2):
        assert note_of(caught(lambda: READS[read](t))) == note


def test_future(zeros: Any) -> None:
    t, note = fail(zeros)
    future = t.to_torch_async()
    error = caught(future.get)
    assert note_of(error) == note_of(caught(future.result)) == note
    other = future.exception()
    assert other is not error
    assert note_of(other) == note


def test_await(run: Run, zeros: Any) -> None:
    async def main() -> None:
        t, note = fail(zeros)
        errors = await asyncio.gather(
            caught_await(t), caught_await(t), caught_await(t.to_torch_async())
        )
        errors.append(await caught_await(dtorch.gather(held(0.01), t)))
        errors.append(await caught_await(t))
        assert [note_of(e) for e in errors] == [note] * 5
        assert len({id(e) for e in errors}) == 5

    run(main())


def test_notes_of_one_do_not_show_in_another(zeros: Any) -> None:
    t, note = fail(zeros)
    first = caught(t.tolist)
    first.__notes__.append("mine")  # type: ignore[attr-defined]
    assert note_of(caught(t.tolist)) == note


def test_dependents_show_the_first_cause(run: Run, zeros: Any) -> None:
    async def main() -> None:
        t, note = fail(zeros)
        after = (t + 1).sum() * 2
        later = ONES // after.to(dtype="int64")
        assert note_of(await caught_await(after)) == note
        assert note_of(await caught_await(later)) == note
        known = t + 5  # called when the failure is known
        assert note_of(await caught_await(known)) == note
        assert note_of(caught(lambda: known[0].item())) == note

    run(main())


def test_in_place_and_out(zeros: Any) -> None:
    x = dtorch.tensor([1, 2])
    x.floor_divide_(zeros())
    line = here() - 1
    name = "test_in_place_and_out"
    assert note_of(caught(x.tolist)) == expected("floor_divide", line, name)
    y = dtorch.zeros(2, dtype="int64")
    dtorch.floor_divide(ONES, zeros(), out=y)
    assert note_of(caught(y.tolist)) == expected("floor_divide", here() - 1, name)


def test_other_ops_and_classes(zeros: Any) -> None:
    del zeros
    name = "test_other_ops_and_classes"
    t, line = ONES % pending_zeros(), here()
    assert note_of(caught(t.tolist)) == expected("remainder", line, name)
    index = _C._hold(dtorch.tensor([7]), 0.02)
    u, line = dtorch.index_select(ONES, 0, index), here()
    with pytest.raises((IndexError, RuntimeError)) as info:
        u.tolist()
    assert note_of(info.value) == expected("index_select", line, name)


def test_nothing_to_say() -> None:
    """An error at the call has no note: its traceback ends at the line."""
    with pytest.raises(RuntimeError) as info:
        dtorch.ones(3).reshape(2, 2)
    assert not hasattr(info.value, "__notes__")


# --- whose line it is --------------------------------------------------------------------------


def test_nested_functions(zeros: Any) -> None:
    prefix = "test_nested_functions.<locals>."

    def inner(x: Any) -> tuple[Any, int]:
        return ONES // x, here()

    def middle() -> tuple[Any, int]:
        return inner(zeros())

    t, line = middle()
    assert note_of(caught(t.tolist)) == expected("floor_divide", line, prefix + "inner")


def test_lambdas_comprehensions_generators(zeros: Any) -> None:
    prefix = "test_lambdas_comprehensions_generators.<locals>."
    cases: list[tuple[Any, int, str]] = []
    divide = lambda: (ONES // zeros(), here())  # noqa: E731
    cases.append((*divide(), prefix + "<lambda>"))
    ((t, line),) = [(ONES // zeros(), here()) for _ in range(1)]
    inlined = sys.version_info >= (3, 12)
    own = "test_lambdas_comprehensions_generators"
    cases.append((t, line, own if inlined else prefix + "<listcomp>"))
    ((t, line),) = ((ONES // zeros(), here()) for _ in range(1))
    cases.append((t, line, prefix + "<genexpr>"))
    sorted([zeros()], key=lambda z: cases.append((ONES // z, here(), prefix + "<lambda>")) or 0)
    for t, line, name in cases:
        assert note_of(caught(t.tolist)) == expected("floor_divide", line, name)


def test_methods_and_coroutines(run: Run, zeros: Any) -> None:
    prefix = "test_methods_and_coroutines.<locals>."

    class Model:
        def __call__(self, x: Any) -> tuple[Any, int]:
            return ONES // x, here()

        async def handler(self) -> tuple[Any, int]:
            await asyncio.sleep(0)
            return ONES // zeros(), here()

    async def main() -> None:
        t, line = Model()(zeros())
        error = await caught_await(t)
        assert note_of(error) == expected("floor_divide", line, prefix + "Model.__call__")
        t, line = await asyncio.ensure_future(Model().handler())
        error = await caught_await(t)
        assert note_of(error) == expected("floor_divide", line, prefix + "Model.handler")

    run(main())


def test_calls_of_c_functions_between(zeros: Any) -> None:
    import functools
    import operator

    divide = functools.partial(operator.floordiv, ONES)
    t, line = divide(zeros()), here()
    own = "test_calls_of_c_functions_between"
    assert note_of(caught(t.tolist)) == expected("floor_divide", line, own)


def test_code_made_by_exec(zeros: Any) -> None:
    code = compile("\n\n\nt = ones // zeros\n", "<made by a test>", "exec")
    space: dict[str, Any] = {"ones": ONES, "zeros": zeros()}
    exec(code, space)
    wanted = expected("floor_divide", 4, "<module>", "<made by a test>")
    assert note_of(caught(space["t"].tolist)) == wanted
    # Without a __name__ of its own, and evaluated.
    t = eval("ones // zeros", {"__builtins__": {}, "ones": ONES, "zeros": zeros()})
    assert note_of(caught(t.tolist)) == expected("floor_divide", 1, "<module>", "<string>")


def test_statements_over_several_lines(zeros: Any) -> None:
    z = zeros()
    t = (
        ONES
        // z
    )  # fmt: skip
    line = here() - 3  # where the expression starts
    own = "test_statements_over_several_lines"
    assert note_of(caught(t.tolist)) == expected("floor_divide", line, own)


def test_dtorchs_own_frames_are_skipped(zeros: Any) -> None:
    """Code whose module is dtorch or inside it: here a function made to look like that."""
    space: dict[str, Any] = {"__name__": "dtorch._made_by_a_test"}
    exec("def outer(a, b): return inner(a, b)\ndef inner(a, b): return a // b", space)
    own = "test_dtorchs_own_frames_are_skipped"
    for _ in range(2):
        t, line = space["outer"](ONES, zeros()), here()
        assert note_of(caught(t.tolist)) == expected("floor_divide", line, own)
    space = {"__name__": "dtorchestra"}  # somebody else's
    exec("def outer(a, b): return a // b", space)
    t = space["outer"](ONES, zeros())
    assert note_of(caught(t.tolist)) == expected("floor_divide", 1, "outer", "<string>")


def test_package_functions_written_in_python(zeros: Any) -> None:
    """to_torch_async and functions of the package: the line is the user's."""
    rows = {"div": lambda: dtorch.div(ONES, zeros(), rounding_mode="floor")}
    for make in rows.values():
        t = make()
        assert f"called at {__file__}:" in note_of(caught(t.tolist))


def test_other_threads(zeros: Any) -> None:
    found: list[tuple[Any, int]] = []

    def work() -> None:
        found.append((ONES // zeros(), here()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    ((t, line),) = found
    name = "test_other_threads.<locals>.work"
    assert note_of(caught(t.tolist)) == expected("floor_divide", line, name)


# --- what is logged ----------------------------------------------------------------------------


def test_log_line(caplog: pytest.LogCaptureFixture, zeros: Any) -> None:
    t, note = fail(zeros)
    assert _C._drain().get(30) is True  # or it would be dropped, not computed
    del t
    gc.collect()
    for _ in range(3000):
        dtorch.empty_cache()
        texts = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
        if any(note in text for text in texts):
            break
        threading.Event().wait(0.01)
    (text,) = [text for text in texts if note in text]
    assert text.endswith(f"RuntimeError: {FAILURE} ({note})")


# --- the table ---------------------------------------------------------------------------------


def test_a_site_holds_the_code_and_no_locals() -> None:
    class Local:
        pass

    def call(local: Any) -> int:
        return int(_C._site())

    local = Local()
    site = call(local)
    kept = weakref.ref(local)
    name = call.__qualname__ if HAS_QUALNAME else call.__name__
    line = call.__code__.co_firstlineno + 1
    code = weakref.ref(call.__code__)
    del local, call
    gc.collect()
    assert kept() is None
    assert code() is not None
    assert _C._site_place(site) == (__file__, line, name)


def test_one_number_for_one_place() -> None:
    def call() -> int:
        return int(_C._site())

    first = call()
    assert first != 0
    assert {call() for _ in range(10)} == {first}
    assert _C._site() != _C._site()  # two places in one line
    assert _C._site_place(0) is None
    assert _C._site_place(2**32 - 1) is None


def test_a_full_table_starts_anew() -> None:
    before = _C._site()
    place = _C._site_place(before)
    count = 65_600
    ids: list[int] = []
    lines = ["found = []", *["found.append(site())"] * count]
    space: dict[str, Any] = {"site": _C._site}
    exec(compile("\n".join(lines), "<many lines>", "exec"), space)
    ids = space["found"]
    assert len(set(ids)) == count
    assert all(ids)
    assert _C._site_place(before) is None  # unknown, never another place
    known = [i for i in ids if _C._site_place(i) is not None]
    assert 0 < len(known) < count
    assert ids[-len(known) :] == known
    for i in known[:: max(1, len(known) // 20)]:
        assert _C._site_place(i) == ("<many lines>", ids.index(i) + 2, "<module>")
    assert place is not None
    t, note = fail(ready_zeros)
    assert note_of(caught(t.tolist)) == note
