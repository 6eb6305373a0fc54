"""compare.py's measurements of ops read at the end: the chain, adds, memory, JAX.

All of them run outside a loop: reading a pending tensor blocks, which a loop would be warned of.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import IO, Any

import dtorch
import harness
from report import Line, Options, ratio_line
from workload import CHAIN_OPS, MIB, chain, digest, inputs

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

PEER = Path(__file__).resolve().parent / "peer.py"

# elements: (chains in a sample, samples, least ratio to torch eager, to JAX's jitted chain)
SIZES: dict[int, tuple[int, int, float, float | None]] = {
    1_000: (100, 41, 6.0, None),
    100_000: (10, 41, 3.0, None),
    1_000_000: (3, 31, 4.5, 1.0),
    10_000_000: (1, 15, 10.0, None),
}
KEEP_MALLOC_TARGET = 2.5
KEEP_MALLOC = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(1 << 30)}
SMALL_ADDS = 1000
MEMORY_OPS = 10_000
MEMORY_TARGET = 64 * MIB


def size_name(size: int) -> str:
    """``1,000`` as ``1e3``."""
    return f"1e{len(str(size)) - 1}"


def seconds_each(call: Callable[[], Any], count: int) -> float:
    """The mean time of ``count`` calls, each of which reads its result."""
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count


def require_same_bits(ours: Any, theirs: str, what: str) -> None:
    """AssertionError unless ``ours`` has the digest ``theirs``."""
    if digest(ours) != theirs:
        raise AssertionError(f"{what}: dtorch's bits differ from torch's")


class ChainPeer:
    """peer.py's chain, in a process with an environment of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._stdin: IO[str] = process.stdin
        self._stdout: IO[str] = process.stdout

    def ask(self, size: int, repeats: int, *, want_digest: bool = False) -> dict[str, Any]:
        """Have it run ``repeats`` chains; blocks until it has."""
        request = {"size": size, "repeats": repeats, "digest": want_digest}
        self._stdin.write(json.dumps(request) + "\n")
        self._stdin.flush()
        answer = self._stdout.readline()
        if not answer:
            raise RuntimeError("the child process of the chain ended early")
        return dict(json.loads(answer))

    def seconds_each(self, size: int, count: int) -> float:
        """The mean time of ``count`` chains, by the child's own clock."""
        seconds: list[float] = self.ask(size, count)["seconds"]
        return sum(seconds) / len(seconds)


@contextlib.contextmanager
def chain_peer(environment: dict[str, str]) -> Iterator[ChainPeer]:
    """A ChainPeer with dtorch's number of threads, ended on leaving."""
    with subprocess.Popen(
        [sys.executable, str(PEER), "chain", str(dtorch.get_num_threads())],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield ChainPeer(process)
        assert process.stdin is not None
        process.stdin.close()


def with_times(line: Line, kind: str, size: int, values: dict[str, list[float]]) -> Line:
    """Adds what the plots need: the median of every side, in seconds for one chain."""
    line.detail["plot"] = {
        "kind": kind,
        "size": size,
        "seconds": {name: median(times) for name, times in values.items()},
    }
    return line


def measure_chain(options: Options) -> list[Line]:
    """The chain of nine element-wise ops, the result read at the end.

    Beside it torch, eager, in this process and in one whose malloc keeps what is freed to it, so
    that it does not pay page faults for every intermediate.
    """
    lines = []
    with chain_peer(KEEP_MALLOC) as keeping:
        for size, (count, samples, target, _) in SIZES.items():
            with torch.inference_mode():
                x, y = inputs(torch, size)
                a, b = dtorch.Tensor(x), dtorch.Tensor(y)
                wanted = digest(chain(x, y))
            require_same_bits(chain(a, b), wanted, f"chain of {size}")
            answer = keeping.ask(size, 1, want_digest=True)
            if answer["digest"] != wanted:
                raise AssertionError(f"chain of {size}: the child's bits differ")

            def theirs(x: Any = x, y: Any = y, count: int = count) -> float:
                with torch.inference_mode():
                    return seconds_each(lambda: chain(x, y)[0].item(), count)

            def ours(a: Any = a, b: Any = b, count: int = count) -> float:
                return seconds_each(lambda: chain(a, b)[0].item(), count)

            def kept(size: int = size, count: int = count) -> float:
                return keeping.seconds_each(size, count)

            values = harness.interleave_many(
                {"dtorch": ours, "torch": theirs, "torch, malloc keeps": kept},
                samples=options.count(samples),
            )
            name = f"chain of {CHAIN_OPS} ops, {size_name(size)}"
            for peer, least in (
                ("torch", target),
                ("torch, malloc keeps", KEEP_MALLOC_TARGET if size == 10_000_000 else None),
            ):
                pair = harness.Pair(values["dtorch"], values[peer])
                lines.append(ratio_line(name, "us", 1e6, peer, pair, least))
            with_times(lines[-1], "chain", size, values)
    return lines


def measure_one(
    name: str, ours: Any, theirs: Any, count: int, target: float, options: Options
) -> list[Line]:
    """A call that gives a large tensor, beside torch's, ``count`` times; one element is read."""

    def torch_side() -> float:
        with torch.inference_mode():
            return seconds_each(lambda: theirs()[0].item(), count)

    def our_side() -> float:
        return seconds_each(lambda: ours()[0].item(), count)

    sides = {"dtorch": our_side, "torch": torch_side}
    values = harness.interleave_many(sides, samples=options.count(31))
    pair = harness.Pair(values["dtorch"], values["torch"])
    return [ratio_line(name, "ms", 1e3, "torch", pair, target)]


def measure_add_large(options: Options) -> list[Line]:
    """``x + y`` on 10 million float32, one element of the result read."""
    with torch.inference_mode():
        x, y = inputs(torch, 10_000_000)
        a, b = dtorch.Tensor(x), dtorch.Tensor(y)
        require_same_bits(a + b, digest(x + y), "x + y")
    return measure_one("x + y, 1e7", lambda: a + b, lambda: x + y, 1, 3.0, options)


def measure_add_in_place(options: Options) -> list[Line]:
    """``x += 1`` on 10 million float32 that stay where they are: all threads have to take part,
    each on a CPU of its own, and neither side allocates."""
    with torch.inference_mode():
        x = inputs(torch, 10_000_000)[0]
        a = dtorch.Tensor(x.clone())
        require_same_bits(a + 1, digest(x + 1), "x + 1")
    return measure_one("x += 1, 1e7", lambda: a.add_(1), lambda: x.add_(1), 4, 0.9, options)


def chained_adds(start: Any, step: Any) -> float:
    """Seconds for one of SMALL_ADDS chained adds, the last result read."""
    total = start
    begin = time.perf_counter()
    for _ in range(SMALL_ADDS):
        total = total + step
    total.tolist()
    return (time.perf_counter() - begin) / SMALL_ADDS


def measure_add_small(options: Options) -> list[Line]:
    """``c = c + b`` on 4 floats, 1,000 times, the last result read."""
    start, step = [1.0, 2.0, 3.0, 4.0], [0.5, 0.25, 0.125, 1.0]
    a, b = dtorch.tensor(start), dtorch.tensor(step)
    with torch.inference_mode():
        x, y = torch.tensor(start), torch.tensor(step)
    if (a + b).tolist() != (x + y).tolist():
        raise AssertionError("a + b: results differ")

    def theirs() -> float:
        with torch.inference_mode():
            return chained_adds(x, y)

    values = harness.interleave_many(
        {"dtorch": lambda: chained_adds(a, b), "torch": theirs}, samples=options.count(201, 21)
    )
    pair = harness.Pair(values["dtorch"], values["torch"])
    return [ratio_line("a + b, 4 floats, chained", "ns", 1e9, "torch", pair, 5.0)]


def measure_memory(options: Options) -> list[Line]:
    """10,000 un-awaited ``y = y + 1`` on 1 MiB, each time in a fresh process."""
    lines = []
    for where, flags in (("outside a loop", []), ("in a loop", ["--loop"])):
        runs: list[dict[str, Any]] = []
        for _ in range(options.count(3, 1)):
            done = subprocess.run(
                [sys.executable, str(PEER), "memory", str(MEMORY_OPS), *flags],
                capture_output=True,
                text=True,
                check=True,
                timeout=300,
            )
            runs.append(json.loads(done.stdout))
        worst = max(run["growth"] for run in runs)
        right = all(run["right"] for run in runs)
        lines.append(
            Line(
                name=f"memory of {MEMORY_OPS:,} adds on 1 MiB, {where}",
                unit="MiB",
                ours=worst / MIB,
                peer_name="",
                peer=None,
                figure=f"+{worst / MIB:.1f} MiB" + ("" if right else ", WRONG VALUE"),
                target="<= +64 MiB",
                met=right and worst <= MEMORY_TARGET,
                repeats=len(runs),
                detail={"runs": runs},
            )
        )
    return lines


def measure_jax(options: Options) -> list[Line]:
    """The chain beside JAX's jitted one, compiled before it is timed, ``block_until_ready``.

    XLA sizes its thread pool by NPROC and the CPUs there are; with one thread its own split of
    large ops is off too. Its results may differ in the last bits: it contracts into FMAs.
    """
    threads = dtorch.get_num_threads()
    os.environ.setdefault("NPROC", str(threads))
    os.environ.setdefault("PJRT_NPROC", str(threads))
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if threads == 1:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    jax = importlib.import_module("jax")
    np = importlib.import_module("numpy")

    def relu_chain(x: Any, y: Any) -> Any:
        return jax.numpy.maximum(((((x * 2 + 1) * 3 + y) * 0.5 + x) * 0.25 + y), 0)

    jitted = jax.jit(relu_chain)
    lines = []
    for size, (count, samples, _, target) in SIZES.items():
        with torch.inference_mode():
            x, y = inputs(torch, size)
        a, b = dtorch.Tensor(x), dtorch.Tensor(y)
        u, v = jax.numpy.asarray(x.numpy()), jax.numpy.asarray(y.numpy())
        np.testing.assert_allclose(np.asarray(jitted(u, v)), chain(a, b).numpy(), 1e-5, 1e-5)

        def ours(a: Any = a, b: Any = b, count: int = count) -> float:
            return seconds_each(lambda: chain(a, b)[0].item(), count)

        def theirs(u: Any = u, v: Any = v, count: int = count) -> float:
            return seconds_each(lambda: jitted(u, v).block_until_ready(), count)

        values = harness.interleave_many(
            {"dtorch": ours, "JAX, jitted": theirs}, samples=options.count(samples)
        )
        name = f"chain of {CHAIN_OPS} ops, {size_name(size)}"
        pair = harness.Pair(values["dtorch"], values["JAX, jitted"])
        line = ratio_line(name, "us", 1e6, "JAX, jitted", pair, target)
        line.detail["jax"] = jax.__version__
        lines.append(with_times(line, "chain-jax", size, values))
    return lines
