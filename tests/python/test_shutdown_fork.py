"""The end of the interpreter with work left behind, and forks: each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.notorch

HERE = Path(__file__).resolve().parent

HEAD = """
import asyncio, os, sys, threading, time
import dtorch
from dtorch import _C
from pending import failing, held

def big():
    a = dtorch.ones(900, 900)
    return a @ a
"""

LOOPS = ["asyncio", "uvloop"]


def script(body: str, loop: str = "asyncio", seconds: float = 55) -> str:
    """Runs a script; it must end with 0 and say nothing on stderr. Returns its output."""
    if loop == "uvloop":
        pytest.importorskip("uvloop")
        body = "import uvloop\nnew_loop = uvloop.new_event_loop\n" + textwrap.dedent(body)
    else:
        body = "import asyncio\nnew_loop = asyncio.new_event_loop\n" + textwrap.dedent(body)
    path = os.pathsep.join([str(HERE), *filter(None, sys.path)])
    done = subprocess.run(
        # From 3.12 on, Python warns of any fork in a process with threads.
        [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", HEAD + body],
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


# --- shutdown ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "",
        "x = dtorch.ones(4) + 1",
        "x = big()",
        "for _ in range(50): x = big()",
        "x = big(); y = [x + i for i in range(1000)]",
        "held(3600)",
        "x = failing(3600)",
        "x = failing(0); time.sleep(0.1)",
        "x = held(3600); it = x.__await__()",
        "x = held(3600); f = dtorch.gather(x, x)",
        "import atexit; atexit.register(lambda: big().sum().item())",
        "sys.modules.pop('dtorch'); x = big()",
        "import gc; gc.disable(); x = big(); x.me = x",
    ],
)
def test_exit_with_work_left(body: str) -> None:
    script(body)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "body",
    [
        "asyncio.ensure_future(held(3600)); await asyncio.sleep(0)",
        "asyncio.ensure_future(big()); await asyncio.sleep(0)",
        "[asyncio.ensure_future(held(0.001 * i)) for i in range(500)]; await asyncio.sleep(0.05)",
        "asyncio.ensure_future(dtorch.gather(held(3600), big())); await asyncio.sleep(0)",
        "await held(0.01); globals()['kept'] = asyncio.ensure_future(held(3600)); "
        "await asyncio.sleep(0)",
    ],
)
def test_exit_after_a_loop_with_awaits_pending(body: str, loop: str) -> None:
    """The loop's end cancels its tasks, as asyncio.run does."""
    script(
        f"""
        async def main():
            {body}

        loop = new_loop()
        loop.run_until_complete(main())
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        """,
        loop,
    )


@pytest.mark.parametrize("loop", LOOPS)
def test_exit_without_closing_the_loop(loop: str) -> None:
    script(
        """
        import warnings
        warnings.simplefilter("ignore")

        async def wait(t):
            await t

        loop = new_loop()
        task = loop.create_task(wait(held(0.2)))
        task._log_destroy_pending = False
        loop.run_until_complete(asyncio.sleep(0.01))
        """,
        loop,
    )


def test_exit_by_system_exit_in_a_task() -> None:
    script(
        """
        async def main():
            asyncio.ensure_future(held(3600))
            await asyncio.sleep(0)
            sys.exit(0)

        asyncio.run(main())
        """
    )


def test_ops_after_shutdown_are_refused() -> None:
    out = script(
        """
        x = held(3600)
        ready = dtorch.ones(3)
        _C._shutdown()
        for call in (x.tolist, big, lambda: held(0.1)):
            try:
                call()
            except RuntimeError as error:
                print(type(error).__name__, "shut down" in str(error))
        print((ready + 1).tolist())
        """
    )
    assert out.splitlines() == ["RuntimeError True"] * 3 + ["[2.0, 2.0, 2.0]"]


def test_await_of_what_the_shutdown_ended() -> None:
    out = script(
        """
        async def main():
            waiting = asyncio.ensure_future(held(3600))
            await asyncio.sleep(0)
            _C._shutdown()
            try:
                await waiting
            except RuntimeError as error:
                print("shut down" in str(error))

        asyncio.run(main())
        """
    )
    assert out == "True\n"


def test_import_alone_starts_no_thread() -> None:
    assert script("print(len(os.listdir('/proc/self/task')))") == "1\n"


def test_shutdown_joins_the_threads() -> None:
    out = script(
        """
        big().sum().item()
        print(len(os.listdir('/proc/self/task')) > 1)
        _C._shutdown()
        # A thread that was joined may be listed for a moment: the kernel is not done with it.
        end = time.monotonic() + 20
        while (threads := len(os.listdir('/proc/self/task'))) > 1 and time.monotonic() < end:
            time.sleep(0.001)
        print(threads)
        """
    )
    assert out == "True\n1\n"


# --- fork --------------------------------------------------------------------------------------

FORK = """
def child(function):
    # Runs function in a forked child; its exit status, 0 when it returned.
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 1
    try:
        function()
        sys.stdout.flush()
        status = 0
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        os._exit(status)
"""


def test_forked_child_has_a_working_runtime() -> None:
    out = script(
        FORK
        + textwrap.dedent(
            """
            big().sum().item()
            ready = dtorch.full((3,), 2.0)
            large = big() + 0
            large.sum().item()
            pending = held(2.0)

            def run():
                assert ready.tolist() == [2.0] * 3
                assert large[5, 5].item() == 900.0
                try:
                    pending.tolist()
                except RuntimeError as error:
                    print(error)
                for dependent in (pending + 1, pending[0], (pending * 2).sum()):
                    try:
                        dependent.tolist()
                        print("no error")
                    except RuntimeError:
                        pass
                assert (ready + 1).tolist() == [3.0] * 3
                assert big()[7, 7].item() == 900.0
                ready.add_(1)
                assert ready.tolist() == [3.0] * 3

            print(child(run))
            print(pending.tolist(), ready.tolist())
            """
        )
    )
    assert out.splitlines() == [
        "the tensor was still being computed when this process was forked: its value exists in "
        "the parent process only",
        "0",
        "[7.0, 7.0, 7.0, 7.0] [2.0, 2.0, 2.0]",
    ]


@pytest.mark.parametrize("loop", LOOPS)
def test_fork_inside_a_coroutine(loop: str) -> None:
    """The child starts a loop of its own; the parent's eventfds are left alone by it."""
    out = script(
        FORK
        + textwrap.dedent(
            """
            async def inner(pending):
                try:
                    await pending
                except RuntimeError as error:
                    print("forked" in str(error))
                for _ in range(20):
                    t = held(0.001)
                    assert (await t) is t
                await dtorch.gather(big(), held(0.01))

            def run():
                # In a thread: the loop that was forked still counts as running in this one.
                def thread():
                    loop = new_loop()
                    loop.run_until_complete(inner(pending))
                    loop.close()
                    done.append(1)
                done = []
                t = threading.Thread(target=thread)
                t.start()
                t.join()
                assert done

            async def main():
                global pending
                pending = held(2.0)
                tasks = [asyncio.ensure_future(pending) for _ in range(3)]
                await asyncio.sleep(0.01)
                print(child(run))
                await asyncio.gather(*tasks)
                assert all(task.result() is pending for task in tasks)
                print("parent goes on")

            loop = new_loop()
            loop.run_until_complete(main())
            loop.close()
            """
        ),
        loop,
    )
    assert out.splitlines() == ["True", "0", "parent goes on"]


def test_future_across_a_fork() -> None:
    out = script(
        FORK
        + textwrap.dedent(
            """
            import tempfile
            path = os.path.join(tempfile.mkdtemp(), "x.safetensors")
            saving = dtorch.save_safetensors({"x": held(2.0)}, path)

            def run():
                assert saving.done()
                try:
                    saving.get()
                except RuntimeError as error:
                    print("forked" in str(error))
                assert not saving.cancel()

            print(child(run))
            saving.get()
            print(dtorch.load_safetensors(path)["x"].tolist())
            """
        )
    )
    assert out.splitlines() == ["True", "0", "[7.0, 7.0, 7.0, 7.0]"]


def test_child_that_exits_normally() -> None:
    """sys.exit in the child runs the exit handlers there: they stop the child's runtime only."""
    out = script(
        """
        x = held(0.4)
        pid = os.fork()
        if pid == 0:
            big().sum().item()
            sys.exit(0)
        print(os.waitpid(pid, 0)[1])
        print(x.tolist())
        """
    )
    assert out.splitlines() == ["0", "[7.0, 7.0, 7.0, 7.0]"]


def test_child_that_never_uses_dtorch() -> None:
    out = script(
        """
        x = held(0.2)
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        print(os.waitpid(pid, 0)[1], x.tolist())
        """
    )
    assert out == "0 [7.0, 7.0, 7.0, 7.0]\n"


def test_multiprocessing_pool() -> None:
    out = script(
        """
        import multiprocessing

        def work(n):
            a = dtorch.full((200, 200), float(n))
            return (a @ a)[0, 0].item()

        big().sum().item()
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(work, range(4)))
        """
    )
    assert out == "[0.0, 200.0, 800.0, 1800.0]\n"


def test_grandchild() -> None:
    out = script(
        FORK
        + textwrap.dedent(
            """
            def inner():
                assert big()[0, 0].item() == 900.0

            def outer():
                assert big()[0, 0].item() == 900.0
                assert child(inner) == 0
                assert big()[0, 0].item() == 900.0

            big()
            print(child(outer))
            """
        )
    )
    assert out == "0\n"
