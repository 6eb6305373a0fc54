"""torch.nn.functional, as far as it is there: functions over registry rows."""

from __future__ import annotations

import math
from typing import Any

from .. import _C, _dist, _functions

Tensor = _C.Tensor
_rows = _C.rows
_f = _C.functions

linear = _rows["linear"]
_gelu = _rows["gelu"]
_silu = _rows["silu"]
_softplus = _rows["softplus"]
_leaky_relu = _rows["leaky_relu"]
_elu = _rows["elu"]
_layer_norm = _rows["layer_norm"]
_rms_norm = _rows["rms_norm"]
_embedding = _rows["embedding__new"]
_sdpa = _rows["sdpa"]
_norm = _rows["norm__new"]


def _inplace(result: Any, input: Any, inplace: bool) -> Any:
    return input.copy_(result) if inplace else result


# ---- activations ---------------------------------------------------------------------------------


def relu(input: Any, inplace: bool = False) -> Any:
    """max(x, 0)."""
    return input.relu_() if inplace else _f["relu"](input)


def gelu(input: Any, approximate: str = "none") -> Any:
    """x * Phi(x), Phi the normal distribution function; "tanh" for the approximation."""
    return _gelu(input, approximate=approximate)


def silu(input: Any, inplace: bool = False) -> Any:
    """x * sigmoid(x)."""
    return _inplace(_silu(input), input, inplace)


def sigmoid(input: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return _f["sigmoid"](input)


def tanh(input: Any) -> Any:
    """The hyperbolic tangent."""
    return _f["tanh"](input)


def softplus(input: Any, beta: float = 1, threshold: float = 20) -> Any:
    """log(1 + exp(beta x)) / beta, and x itself where beta x > threshold."""
    return _softplus(input, beta, threshold)


def leaky_relu(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    """x where positive, negative_slope * x elsewhere."""
    return _inplace(_leaky_relu(input, negative_slope), input, inplace)


def elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    """x where positive, alpha * (exp(x) - 1) elsewhere."""
    return _inplace(_elu(input, alpha), input, inplace)


def relu6(input: Any, inplace: bool = False) -> Any:
    """min(max(x, 0), 6)."""
    return hardtanh(input, 0.0, 6.0, inplace)


def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    """x clamped to [min_val, max_val]."""
    return input.clamp_(min_val, max_val) if inplace else input.clamp(min_val, max_val)


def logsigmoid(input: Any) -> Any:
    """log(sigmoid(x)), without overflow."""
    return -_softplus(-input, 1, 1e30)


def mish(input: Any, inplace: bool = False) -> Any:
    """x * tanh(softplus(x))."""
    return _inplace(input * _f["tanh"](_softplus(input)), input, inplace)


def glu(input: Any, dim: int = -1) -> Any:
    """a * sigmoid(b), a and b the two halves along dim."""
    if input.ndim == 0:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    size = input.shape[dim]
    if size % 2 != 0:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {size}")
    a, b = _functions.split(input, size // 2, dim) if size else (input, input)
    return a * _f["sigmoid"](b)


# ---- softmax -------------------------------------------------------------------------------------


def _softmax_dim(name: str, rank: int) -> int:
    import warnings

    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        "dim=X as an argument.",
        stacklevel=3,
    )
    return 0 if rank in (0, 1, 3) else 1


def softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """exp(x) / sum(exp(x)) along dim."""
    if dim is None:
        dim = _softmax_dim("softmax", input.ndim)
    return _f["softmax"](input, dim, dtype)


def log_softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """log(softmax(x)) along dim."""
    if dim is None:
        dim = _softmax_dim("log_softmax", input.ndim)
    return _f["log_softmax"](input, dim, dtype)


def softmin(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """softmax(-x) along dim."""
    if dim is None:
        dim = _softmax_dim("softmin", input.ndim)
    return _f["softmax"](-input, dim, dtype)


# ---- normalisation -------------------------------------------------------------------------------


def layer_norm(
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-05,
) -> Any:
    """(x - mean) / sqrt(var + eps) over the last dims, times weight plus bias."""
    return _layer_norm(input, _shape(normalized_shape), weight, bias, eps)


def rms_norm(
    input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> Any:
    """x / sqrt(mean(x^2) + eps) over the last dims, times weight; eps None: the dtype's."""
    return _rms_norm(input, _shape(normalized_shape), weight, eps)


def _shape(normalized_shape: Any) -> Any:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


def normalize(input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None) -> Any:
    """x / max(||x||_p, eps) along dim."""
    length = _norm(input, p, dim, True, None).clamp(eps)
    return _functions._into(input / length.expand_as(input), out)


def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    """x1 . x2 / (max(||x1||, eps) * max(||x2||, eps)) along dim."""
    x1, x2 = _functions.broadcast_tensors(x1, x2)
    a = x1 / _norm(x1, 2, dim, True, None).clamp(eps)
    b = x2 / _norm(x2, 2, dim, True, None).clamp(eps)
    return (a * b).sum(dim)


def pairwise_distance(
    x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    """||x1 - x2 + eps||_p over the last dim."""
    return _norm(x1 - x2 + eps, p, -1, keepdim, None)


# ---- sparse, attention, dropout ------------------------------------------------------------------


def embedding(
    input: Any,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """The rows of weight that input's integers name."""
    if max_norm is not None:
        raise NotImplementedError("embedding(): max_norm is not supported yet")
    if padding_idx is not None:
        rows = weight.shape[0]
        if not -rows <= padding_idx < rows:
            raise AssertionError("Padding_idx must be within num_embeddings")
    return _embedding(weight, input)


def one_hot(tensor: Any, num_classes: int = -1) -> Any:
    """int64 with a 1 at each index of a new last dim; num_classes -1 looks at the largest index."""
    if tensor._dtype_name != "int64":
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if num_classes == -1:
        if tensor.numel() == 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        num_classes = int(tensor.max().item()) + 1
    classes = _dist.beside(tensor, "arange__new", 1, 0, num_classes, 1, "int64")
    return (tensor.unsqueeze(-1) == classes).to("int64")


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(query key^T * scale + attn_mask) value over the last two dims.

    query is (..., L, E), key (..., S, E), value (..., S, Ev); scale defaults to 1 / sqrt(E). A
    bool mask keeps where it is True, a float mask is added; is_causal masks later keys.
    """
    if enable_gqa:
        query, key, value = _grouped(query, key, value)
    if dropout_p == 0.0:
        return _sdpa(query, key, value, attn_mask, is_causal, scale)
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[-1])
    scores = query.matmul(key.transpose(-2, -1)) * scale
    if is_causal:
        if attn_mask is not None:
            raise RuntimeError(
                "_scaled_dot_product_attention: Explicit attn_mask should not be set "
                "when is_causal=True"
            )
        rows, columns = scores.shape[-2:]
        attn_mask = _dist.beside(scores, "full__new", 2, (rows, columns), True, "bool").tril()
    if attn_mask is not None:
        masked = attn_mask._dtype_name == "bool"
        scores = scores.masked_fill(~attn_mask, -math.inf) if masked else scores + attn_mask
    return dropout(softmax(scores, -1), dropout_p).matmul(value)


def _grouped(query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
    """Repeats key and value heads so that each group of query heads finds its own."""

    def spread(t: Any) -> Any:
        times = query.shape[-3] // t.shape[-3]
        if times * t.shape[-3] != query.shape[-3]:
            raise RuntimeError(
                "Number of heads in key and value must divide the number of heads in query"
            )
        wide = t.unsqueeze(-3)
        sizes = list(wide.shape)
        sizes[-3] = times
        return wide.expand(sizes).flatten(-4, -3)

    return query, spread(key), spread(value)


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Where training: zeros with probability p, and the rest scaled by 1 / (1 - p)."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return _inplace(input * 0.0, input, inplace)
    keep = _dist.alike(input, "rand__new", input.shape, 0.0, 1.0, "float32") >= p
    return _inplace(input * keep * (1.0 / (1.0 - p)), input, inplace)


# ---- losses and shapes ---------------------------------------------------------------------------


def _reduced(loss: Any, reduction: str) -> Any:
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    if reduction != "none":
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return loss


def mse_loss(input: Any, target: Any, reduction: str = "mean") -> Any:
    """(input - target)^2, averaged, summed, or as it is."""
    return _reduced(_f["square"](input - target), reduction)


def l1_loss(input: Any, target: Any, reduction: str = "mean") -> Any:
    """|input - target|, averaged, summed, or as it is."""
    return _reduced(_f["abs"](input - target), reduction)


def pad(input: Any, pad: Any, mode: str = "constant", value: float | None = None) -> Any:
    """The tensor with constant borders; `pad` lists (before, after) from the last dim on."""
    if mode != "constant":
        raise NotImplementedError(f"pad(): mode={mode!r} is not supported yet")
    if len(pad) % 2 != 0 or len(pad) > 2 * input.ndim:
        raise RuntimeError(
            "Padding length must be divisible by 2 and at most twice the number of dimensions of "
            "the input"
        )
    sizes, place, source = list(input.shape), [slice(None)] * input.ndim, [slice(None)] * input.ndim
    changed = [input.ndim - 1 - i for i in range(len(pad) // 2) if pad[2 * i] or pad[2 * i + 1]]
    _dist.refuse_shards("pad", input, changed)
    for i in range(len(pad) // 2):
        d, before, after = input.ndim - 1 - i, pad[2 * i], pad[2 * i + 1]
        size = sizes[d] + before + after
        if size < 0:
            raise RuntimeError(
                f"The input size {sizes[d]}, plus negative padding {before} and {after}, resulted "
                "in a negative output size"
            )
        first = max(0, -before)
        source[d] = slice(first, max(first, sizes[d] - max(0, -after)))
        place[d] = slice(max(0, before), max(0, before) + source[d].stop - first)
        sizes[d] = size
    fill = 0 if value is None else value
    where = _dist.place_of(input)
    result = _dist.make(where, "full__new", input.ndim, tuple(sizes), fill, input._dtype_name)
    result[tuple(place)] = input[tuple(source)]
    return result
