"""Child processes of compare.py: for what needs an environment or a memory of its own.

    python bench/peer.py chain THREADS

torch's side of the chain, in a process whose environment (a malloc that keeps its memory) the
parent chose. A server over stdin and stdout, so that the parent can alternate with its own side:
one JSON object a line, ``{"size": n, "repeats": k}`` is answered by ``{"seconds": [...]}``, the
time of each chain, the result read at the end; with ``"digest": true`` also by the checksum.

    python bench/peer.py memory OPS [--loop]

``OPS`` un-awaited ``y = y + 1`` on 1 MiB in a fresh process, outside or inside a running loop;
prints one JSON object: by how many bytes resident memory grew over its start, at its peak (sampled
by a thread, and the kernel's own high-water mark), whether the value is right, and the time.

    python bench/peer.py mesh ROWS COLUMNS

JAX's side of a redistribute: a float32 array over four virtual devices in a 2x2 mesh, rows cut
along the first mesh dim, is given columns cut along the second one. A server as above:
``{"repeats": k}`` is answered by ``{"seconds": [...]}``.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

from workload import MIB, chain, digest, inputs

PAGE = resource.getpagesize()


def resident() -> int:
    """Bytes of this process in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def resident_max() -> int:
    """The kernel's high-water mark of resident(), in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def serve_chain(threads: int) -> None:
    """Answer requests until stdin ends."""
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    ready: dict[int, tuple[Any, Any]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        size = request["size"]
        if size not in ready:
            ready = {size: inputs(torch, size)}  # one at a time: 10 million are 80 MB
        x, y = ready[size]
        seconds = []
        with torch.inference_mode():
            for _ in range(request["repeats"]):
                begin = time.perf_counter()
                chain(x, y)[0].item()
                seconds.append(time.perf_counter() - begin)
            answer: dict[str, Any] = {"seconds": seconds}
            if request.get("digest"):
                answer["digest"] = digest(chain(x, y))
        print(json.dumps(answer), flush=True)


def serve_mesh(rows: int, columns: int) -> None:
    """Answer requests until stdin ends."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
    before = NamedSharding(mesh, PartitionSpec("a", None))
    after = NamedSharding(mesh, PartitionSpec(None, "b"))
    data: Any = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    x = jax.device_put(data, before).block_until_ready()
    move = jax.jit(lambda t: t, out_shardings=after)
    assert (np.asarray(move(x)) == data).all()
    for line in sys.stdin:
        seconds = []
        for _ in range(json.loads(line)["repeats"]):
            begin = time.perf_counter()
            move(x).block_until_ready()
            seconds.append(time.perf_counter() - begin)
        print(json.dumps({"seconds": seconds}), flush=True)


class Sampler(threading.Thread):
    """Keeps the greatest resident() seen until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = resident()
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.001):
            self.peak = max(self.peak, resident())

    def stop(self) -> int:
        """The peak."""
        self._ended.set()
        self.join()
        return max(self.peak, resident())


def measure_memory(ops: int) -> dict[str, Any]:
    """Resident memory while ``ops`` adds are called, none of them awaited."""
    import dtorch

    y = dtorch.zeros(MIB // 4)
    y[0].item()
    high = resident_max()
    sampler = Sampler()
    start = sampler.peak
    sampler.start()
    begin = time.perf_counter()
    for _ in range(ops):
        y = y + 1
    called = time.perf_counter() - begin
    first = y[0].item()
    total = time.perf_counter() - begin
    peak = sampler.stop()
    if resident_max() > high:
        peak = max(peak, resident_max())
    right = first == ops and y.min().item() == ops and y.max().item() == ops
    return {"growth": peak - start, "right": right, "called_s": called, "total_s": total}


async def measure_memory_in_loop(ops: int) -> dict[str, Any]:
    """The same inside a running loop."""
    import dtorch

    dtorch.set_blocking_policy("allow")  # the reads are part of the measurement
    return measure_memory(ops)


def main() -> None:
    mode, number, *rest = sys.argv[1:]
    if mode == "chain":
        serve_chain(int(number))
    elif mode == "mesh":
        serve_mesh(int(number), int(rest[0]))
    elif mode == "memory":
        ops = int(number)
        in_loop = "--loop" in rest
        result = asyncio.run(measure_memory_in_loop(ops)) if in_loop else measure_memory(ops)
        print(json.dumps(result))
    else:
        raise SystemExit(f"mode must be 'chain', 'mesh' or 'memory', not {mode!r}")


if __name__ == "__main__":
    main()
