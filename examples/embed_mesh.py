"""Sentence embeddings on a mesh of four devices, by the forward that is written for one.

    python examples/embed_mesh.py [--file sentences.txt] [--batch 16] [--concurrency 2]
                                  [--rounds 3] [--mesh 2x2] [--trace trace.json]

The model is all-MiniLM-L6-v2, the forward that of minilm.py. What makes it run on a mesh is PLAN
below and one line that deals out the token ids: rows of a batch over the mesh dim "dp", attention
heads and inner features over "tp". The results of row-wise products are sums that no device has as
a whole; ``dtorch.implicit_redistribute()`` has them added up where the next op needs the value.
Each batch is a coroutine that awaits its vectors, as on one device.

Devices are simulated (DTORCH_DTENSOR_IN_SAME_DEVICE=1): all of them compute on the CPU's threads,
so the mesh shows that it is right and that its parts overlap, not that it is faster.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import dtorch
import minilm
from dtorch.distributed_spec import DeviceMesh, Replicate, Shard, explain, init_device_mesh

PLAN = {
    "embeddings.word_embeddings.weight": dtorch.vocab_wise("tp"),
    "*.attention.self.*": dtorch.column_wise("tp"),  # heads
    "*.attention.output.dense.*": dtorch.row_wise("tp"),
    "*.intermediate.dense.*": dtorch.column_wise("tp"),  # inner features
    "*.output.dense.*": dtorch.row_wise("tp"),
}
COLLECTIVE = "assemble"  # the op that local collectives are made of

Embed = Callable[[Sequence[Sequence[int]]], Awaitable[Any]]  # token ids -> vectors [B, 384]


def plan_for(mesh: DeviceMesh) -> dict[str, Any]:
    """PLAN, or nothing on a mesh that has no dim "tp"."""
    return PLAN if "tp" in (mesh.mesh_dim_names or ()) else {}


def deal_out(mesh: DeviceMesh, ids: Any, mask: Any) -> tuple[Any, Any]:
    """Token ids and mask of a batch [B, T], their rows over the mesh dim "dp"."""
    names = mesh.mesh_dim_names or ()
    rows = [Shard(0) if name == "dp" else Replicate() for name in names]
    return ids.redistribute(mesh, rows), None if mask is None else mask.redistribute(mesh, rows)


class OneDevice:
    """The model where a tensor is by default."""

    name = "one device"

    def __init__(self, weights: Any) -> None:
        self.model = minilm.prepare(dtorch, weights)

    async def embed(self, sentences: Sequence[Sequence[int]]) -> Any:
        """Vectors [B, 384]."""
        return await minilm.embed(dtorch, self.model, *minilm.batch(dtorch, sentences))


class OnMesh:
    """The same model and the same forward, its weights on a mesh by PLAN."""

    def __init__(self, weights: Any, mesh: DeviceMesh) -> None:
        self.mesh = mesh
        self.name = f"mesh {'x'.join(map(str, mesh.shape))}, simulated"
        self.weights = dtorch.distribute(weights, mesh, plan_for(mesh))
        self.model = minilm.prepare(dtorch, self.weights)
        self.inserted = 0  # redistributes, by the latest batch

    async def embed(self, sentences: Sequence[Sequence[int]]) -> Any:
        """Vectors [B, 384], dealt out as the forward leaves them: their rows over "dp"."""
        ids, mask = deal_out(self.mesh, *minilm.batch(dtorch, sentences))
        with dtorch.implicit_redistribute() as inserted:
            vectors = minilm.embed(dtorch, self.model, ids, mask)
        self.inserted = inserted.count
        return await vectors

    def explain(self, sentences: Sequence[Sequence[int]]) -> Any:
        """The first redistribute that is inserted for a batch: of the sum that a look-up leaves in
        a table whose words are dealt out."""
        ids, _ = deal_out(self.mesh, *minilm.batch(dtorch, sentences))
        functions = dtorch.nn.functional
        words = functions.embedding(ids, self.model.words)
        with dtorch.implicit_redistribute():
            normed = functions.layer_norm(words, (minilm.FEATURES,))
        return explain(words, placements=normed.placements)


async def run_round(
    side: OneDevice | OnMesh, batches: Sequence[Sequence[Sequence[int]]], concurrency: int
) -> tuple[float, list[list[float]]]:
    """All batches, a coroutine for each; seconds, and the vectors in order."""
    slots = asyncio.Semaphore(concurrency)

    async def request(sentences: Sequence[Sequence[int]]) -> Any:
        async with slots:
            return await side.embed(sentences)

    begin = time.perf_counter()
    results = await asyncio.gather(*map(request, batches))
    seconds = time.perf_counter() - begin
    return seconds, [row for vectors in results for row in vectors.tolist()]


def difference(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> float:
    """The greatest absolute difference."""
    return max(abs(x - y) for v, w in zip(a, b, strict=True) for x, y in zip(v, w, strict=True))


def spread(values: Sequence[float]) -> str:
    """The median and the range."""
    return f"{median(values):10.1f} sentences/s ({min(values):.1f} to {max(values):.1f})"


def held_bytes(weights: Any, index: int) -> int:
    """How many bytes of weights one device of the mesh has."""
    parts = (tensor.to_local(index) for tensor in weights.values())
    return sum(part.numel() * part.element_size() for part in parts)


def overlap(path: Path) -> tuple[float, float, float]:
    """Of a trace, in ms: collectives, collectives while another worker computes, and two workers
    at work."""
    events = json.loads(path.read_text("utf-8"))["traceEvents"]
    workers = {
        event["tid"]
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"].startswith("worker")
    }
    edges = []
    for event in events:
        if event["ph"] == "X" and event["cat"] == "run" and event["tid"] in workers:
            kind = int(event["name"] == COLLECTIVE)
            edges += [(event["ts"], kind, 1), (event["ts"] + event["dur"], kind, -1)]
    depth, last = [0, 0], 0.0
    collective = both = two = 0.0
    for now, kind, change in sorted(edges):
        collective += (now - last) * (depth[1] > 0)
        both += (now - last) * (depth[1] > 0 and depth[0] > 0)
        two += (now - last) * (sum(depth) > 1)
        depth[kind] += change
        last = now
    return collective / 1e3, both / 1e3, two / 1e3


async def demo(arguments: argparse.Namespace, sentences: list[str]) -> None:
    """Load, run the rounds in turns, compare, print."""
    files = minilm.find_model()
    tokenizer = minilm.load_tokenizer(files.tokenizer)
    ids = [tokenizer.encode(sentence).ids for sentence in sentences]
    batches = [ids[k : k + arguments.batch] for k in range(0, len(ids), arguments.batch)]

    weights = dtorch.load_safetensors(files.weights)
    names = {1: ("tp",), 2: ("dp", "tp")}[len(arguments.mesh)]
    mesh = init_device_mesh("cpu", arguments.mesh, mesh_dim_names=names)
    one, many = OneDevice(weights), OnMesh(weights, mesh)
    await many.weights
    total = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    each = [held_bytes(many.weights, index) / 1e6 for index in range(mesh.size())]
    print(
        f"weights: {total / 1e6:.1f} MB, on the mesh {min(each):.1f} to {max(each):.1f} MB a device"
    )
    print(
        f"batches: {len(batches)} of up to {arguments.batch} sentences, {arguments.concurrency} in "
        f"flight, {arguments.rounds} rounds, {dtorch.get_num_threads()} threads"
    )

    rates: dict[str, list[float]] = {one.name: [], many.name: []}
    vectors = {}
    for turn in range(arguments.rounds + 1):
        for side in (one, many) if turn % 2 else (many, one):
            seconds, vectors[side.name] = await run_round(side, batches, arguments.concurrency)
            if turn > 0:  # turn 0 warms up
                rates[side.name].append(len(ids) / seconds)
    for name, values in rates.items():
        print(f"{name:26}{spread(values)}")
    differs = difference(vectors[one.name], vectors[many.name])
    print(f"greatest difference of the vectors: {differs:.1e}")
    print(f"redistributes inserted for a batch: {many.inserted}; the first of them:")
    print("  " + str(many.explain(batches[0])).replace("\n", "\n  "))

    arguments.trace.parent.mkdir(parents=True, exist_ok=True)
    async with dtorch.profile(arguments.trace):
        await run_round(many, batches[:8], arguments.concurrency)
    collective, both, two = overlap(arguments.trace)
    print(
        f"trace: collectives {collective:.1f} ms, {both:.1f} ms of them while another worker "
        f"computes; two workers busy {two:.1f} ms\n"
        f"{arguments.trace} opens in https://ui.perfetto.dev"
    )


def mesh_shape(text: str) -> tuple[int, ...]:
    """ "2x2" as (2, 2); one or two sizes."""
    try:
        shape = tuple(int(size) for size in text.split("x"))
    except ValueError:
        shape = ()
    if len(shape) not in (1, 2) or min(shape) < 1:
        raise argparse.ArgumentTypeError(f"must be like 2x2 (dp x tp) or 4 (tp), not {text!r}")
    return shape


def main() -> int:
    """0, or 1 with one line on stderr when something needed is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, default=Path(__file__).with_name("sentences.txt"))
    parser.add_argument("--batch", type=int, default=16, help="sentences in a batch (16)")
    parser.add_argument("--concurrency", type=int, default=2, help="batches in flight (2)")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds of each side (3)")
    parser.add_argument("--mesh", type=mesh_shape, default=(2, 2), help="dp x tp (2x2)")
    parser.add_argument("--trace", type=Path, default=Path("build/demo-dtensor.json"))
    arguments = parser.parse_args()
    if min(arguments.batch, arguments.concurrency, arguments.rounds) < 1:
        parser.error("--batch, --concurrency and --rounds must be at least 1")
    try:
        sentences = minilm.read_sentences(arguments.file)
        asyncio.run(demo(arguments, sentences))
    except (OSError, ValueError) as error:
        print(f"embed_mesh.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
