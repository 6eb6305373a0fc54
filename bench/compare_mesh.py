"""compare.py's measurements of tensors on a mesh, beside PyTorch's DTensor and JAX's arrays.

PyTorch has one process and one gloo rank, the least that its DTensor can do; ours has four
(simulated) devices in a 2x2 mesh and so does four times the work. JAX has four virtual CPU devices
in a child process (they have to be asked for before it is imported), asked over a pipe in turns
with ours.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dtorch
import harness
from compare_ops import seconds_each
from report import Line, Options, ratio_line

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

PEER = Path(__file__).resolve().parent / "peer.py"
SMALL_CALLS = 200
NEW_SHAPES = 50
LARGE = (2048, 2048)  # float32: 16 MiB


def mesh_2x2() -> Any:
    """Four simulated devices; asks for the simulation first."""
    os.environ["DTORCH_DTENSOR_IN_SAME_DEVICE"] = "1"
    from dtorch.distributed_spec import init_device_mesh

    return init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))


@contextlib.contextmanager
def torch_mesh() -> Iterator[Any]:
    """PyTorch's mesh of its one gloo rank."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        dist.destroy_process_group()


def measure_small(options: Options) -> list[Line]:
    """``a + a`` and Shard(0) -> Replicate on 4x4 float32, and ``a + a`` with ever new shapes."""
    from dtorch.distributed_spec import Replicate, Shard
    from torch.distributed import tensor as torch_dtensor

    mesh = mesh_2x2()
    whole = [Replicate(), Replicate()]
    cut = [Shard(0), Replicate()]
    x = torch.arange(16, dtype=torch.float32).reshape(4, 4)
    lines = []
    with torch_mesh() as peer_mesh, torch.no_grad():

        def on_peer(data: Any) -> Any:
            return torch_dtensor.distribute_tensor(data, peer_mesh, [torch_dtensor.Shard(0)])

        def on_ours(data: Any) -> Any:
            return dtorch.Tensor(data, device_mesh=mesh, placements=cut)

        a, b = on_ours(x), on_peer(x)
        if (a + a).full_tensor().tolist() != (b + b).full_tensor().tolist():
            raise AssertionError("a + a on a mesh: results differ")
        peer_whole = [torch_dtensor.Replicate()]
        new_sizes = itertools.count(5)

        def new_shapes(make: Callable[[Any], Any]) -> float:
            total = 0.0
            for _ in range(NEW_SHAPES):
                t = make(torch.ones(next(new_sizes), 4))
                begin = time.perf_counter()
                t + t
                total += time.perf_counter() - begin
            return total / NEW_SHAPES

        cases: list[tuple[str, Callable[[], float], Callable[[], float], float | None]] = [
            (
                "a + a, 4x4 on a mesh",
                lambda: seconds_each(lambda: a + a, SMALL_CALLS),
                lambda: seconds_each(lambda: b + b, SMALL_CALLS),
                10.0,
            ),
            (
                "redistribute 4x4, S0 -> R",
                lambda: seconds_each(lambda: a.redistribute(placements=whole), SMALL_CALLS),
                lambda: seconds_each(lambda: b.redistribute(placements=peer_whole), SMALL_CALLS),
                10.0,
            ),
            (
                "a + a on a mesh, a new shape each time",
                lambda: new_shapes(on_ours),
                lambda: new_shapes(on_peer),
                None,
            ),
        ]
        for name, ours, theirs, target in cases:
            values = harness.interleave_many(
                {"dtorch": ours, "DTensor": theirs}, samples=options.count(31), settle_s=0.005
            )
            pair = harness.Pair(values["dtorch"], values["DTensor"])
            lines.append(ratio_line(name, "us", 1e6, "torch DTensor, gloo", pair, target))
    return lines


class MeshPeer:
    """peer.py's JAX over four virtual devices."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    def ask(self, repeats: int) -> dict[str, Any]:
        """Have it redistribute ``repeats`` times."""
        self._stdin.write(json.dumps({"repeats": repeats}) + "\n")
        self._stdin.flush()
        answer = self._stdout.readline()
        if not answer:
            raise RuntimeError("the child process with JAX ended early")
        return dict(json.loads(answer))


@contextlib.contextmanager
def mesh_peer() -> Iterator[MeshPeer]:
    """A MeshPeer with dtorch's number of threads, ended on leaving."""
    threads = str(dtorch.get_num_threads())
    environment = {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
        "NPROC": threads,
        "PJRT_NPROC": threads,
    }
    with subprocess.Popen(
        [sys.executable, str(PEER), "mesh", *map(str, LARGE)],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield MeshPeer(process)
        assert process.stdin is not None
        process.stdin.close()


def measure_large(options: Options) -> list[Line]:
    """16 MiB, (Shard(0), Replicate) -> (Replicate, Shard(1)) on 2x2, to the end."""
    from dtorch.distributed_spec import Replicate, Shard

    mesh = mesh_2x2()
    data = torch.arange(LARGE[0] * LARGE[1], dtype=torch.float32).reshape(LARGE)
    a = dtorch.Tensor(data, device_mesh=mesh, placements=[Shard(0), Replicate()])
    target = [Replicate(), Shard(1)]
    moved = a.redistribute(placements=target)
    for rank in range(4):
        part = data[:, LARGE[1] // 2 * (rank % 2) : LARGE[1] // 2 * (rank % 2 + 1)]
        if not torch.equal(moved.to_local(rank).to_torch(), part):
            raise AssertionError(f"redistribute of 16 MiB: part {rank} is wrong")
    del moved

    def ours() -> float:
        begin = time.perf_counter()
        moved = a.redistribute(placements=target)
        moved._wait("the benchmark")
        return time.perf_counter() - begin

    with mesh_peer() as peer:

        def theirs() -> float:
            return float(peer.ask(1)["seconds"][0])

        values = harness.interleave_many({"dtorch": ours, "JAX": theirs}, samples=options.count(31))
    name = "redistribute 16 MiB, (S0, R) -> (R, S1)"
    pair = harness.Pair(values["dtorch"], values["JAX"])
    return [ratio_line(name, "ms", 1e3, "JAX, 4 devices", pair, 1.5)]
