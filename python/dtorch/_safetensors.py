"""Reading and writing safetensors files, asynchronously.

A file is an 8-byte little-endian length, a JSON header of that length, and the bytes of all tensors
without gaps: https://github.com/huggingface/safetensors (the "Format" section). The header is read
and checked here, at the call; every error of the file's form is raised there, before any tensor
exists. The tensors' bytes are read by the runtime's ring, each into a storage of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import math
import os
from collections.abc import Generator, Mapping
from typing import Any, NamedTuple, NoReturn

from . import _C

HEADER_BYTES_MAX = 100_000_000
RANK_MAX = 16

DTYPES = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "I16": ("int16", 2),
    "I32": ("int32", 4),
    "I64": ("int64", 8),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "F32": ("float32", 4),
    "F64": ("float64", 8),
}
"""safetensors' name of a dtype: torch's name and the bytes of one element."""

_NAME_OF = {name: (short, size) for short, (name, size) in DTYPES.items()}


class SafetensorsError(ValueError):
    """A file is no well-formed safetensors file, or holds a dtype that dtorch does not have."""


class SafetensorsDict(dict[str, Any]):
    """Tensors by name, whose bytes may still be on their way.

    Each tensor can be used in ops and awaited on its own; awaiting the dict waits for all of them
    and gives the dict itself. ``metadata`` holds the file's ``__metadata__``.
    """

    metadata: dict[str, str]

    def __init__(self, tensors: Mapping[str, Any], metadata: dict[str, str]) -> None:
        super().__init__(tensors)
        self.metadata = metadata

    def __await__(self) -> Generator[Any, None, SafetensorsDict]:
        tensors = [value for value in self.values() if isinstance(value, _C.Tensor)]
        yield from _C._gather(*tensors).__await__()
        return self


class _Entry(NamedTuple):
    begin: int  # bytes from the end of the header
    end: int
    name: str
    dtype: str  # torch's name
    shape: list[int]


def load_safetensors(path: str | bytes | os.PathLike[Any]) -> SafetensorsDict:
    """The tensors of a safetensors file: ``weights = await dtorch.load_safetensors(path)``.

    Only the header is read before this returns; each tensor is awaitable on its own, and an op on
    it runs once its bytes are there.

    Raises:
        OSError: the file cannot be opened or read (FileNotFoundError, IsADirectoryError, ...).
        SafetensorsError: it is truncated or malformed; nothing is loaded then.
    """
    file = _C._file_open(path, False)
    header = _Header(file, os.fsdecode(path))
    tensors = _C._file_load(
        file, [(e.dtype, e.shape, header.end + e.begin) for e in header.entries]
    )
    names = [entry.name for entry in header.entries]
    return SafetensorsDict(dict(zip(names, tensors, strict=True)), header.metadata)


# --- the header --------------------------------------------------------------------------------


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of the header; json would take the last of two equal keys without a word."""
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key!r} occurs twice")
        result[key] = value
    return result


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


class _Header:
    """A checked header: ``entries`` by position in the file, ``end`` in bytes, ``metadata``."""

    def __init__(self, file: Any, path: str) -> None:
        self._path = path
        size = _C._file_size(file)
        self.end, text = self._read(file, size)
        root = self._parse(text)
        self.metadata = self._metadata(root.pop("__metadata__", {}))
        data_bytes = size - self.end
        self.entries = sorted(self._entry(name, info, data_bytes) for name, info in root.items())
        self._check_layout(data_bytes)

    def _fail(self, text: str) -> NoReturn:
        raise SafetensorsError(f"{self._path}: {text}") from None

    def _read(self, file: Any, size: int) -> tuple[int, bytes]:
        if size < 8:
            self._fail(f"the file is truncated: {size} bytes, where the header's length takes 8")
        length = int.from_bytes(_C._file_pread(file, 0, 8), "little")
        if length > HEADER_BYTES_MAX:
            self._fail(f"the header is too big: {length} bytes (limit {HEADER_BYTES_MAX})")
        if length > size - 8:
            self._fail(f"the file is truncated: {size} bytes, but its header alone has {length}")
        text = _C._file_pread(file, 8, length)
        if len(text) != length:
            self._fail("the file is truncated: it became shorter while it was read")
        if not text.startswith(b"{"):
            self._fail("the header is no JSON object")
        return 8 + length, text

    def _parse(self, text: bytes) -> dict[str, Any]:
        try:
            root = json.loads(
                text.decode("utf-8"), object_pairs_hook=_pairs, parse_constant=_constant
            )
        except RecursionError:
            self._fail("the header is nested too deeply")
        except ValueError as error:  # also UnicodeDecodeError, and numbers with too many digits
            self._fail(f"the header is malformed: {error}")
        if not isinstance(root, dict):
            self._fail("the header is no JSON object")
        return root

    def _metadata(self, value: Any) -> dict[str, str]:
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            self._fail("__metadata__ must be an object of strings")
        return value

    def _entry(self, name: str, info: Any, data_bytes: int) -> _Entry:
        if not isinstance(info, dict):
            self._fail(f"tensor {name!r}: its entry is no JSON object")
        for key in ("dtype", "shape", "data_offsets"):
            if key not in info:
                self._fail(f"tensor {name!r}: its entry has no {key!r}")
        dtype, shape, offsets = info["dtype"], info["shape"], info["data_offsets"]
        if not isinstance(dtype, str) or dtype not in DTYPES:
            known = ", ".join(DTYPES)
            self._fail(f"tensor {name!r}: dtype {dtype!r} is not supported (known are {known})")
        if not _are_sizes(shape):
            self._fail(f"tensor {name!r}: the shape {shape!r} is no list of sizes")
        if len(shape) > RANK_MAX:
            self._fail(
                f"tensor {name!r}: {len(shape)} dimensions, at most {RANK_MAX} are supported"
            )
        if not _are_sizes(offsets) or len(offsets) != 2:
            self._fail(f"tensor {name!r}: the data_offsets {offsets!r} are no pair of positions")
        begin, end = offsets
        if begin > end:
            self._fail(f"tensor {name!r}: the data_offsets {offsets!r} run backwards")
        if end > data_bytes:
            self._fail(
                f"tensor {name!r}: the data_offsets {offsets!r} lie outside of the file's "
                f"{data_bytes} data bytes (a truncated file?)"
            )
        torch_name, item_bytes = DTYPES[dtype]
        if math.prod(max(n, 1) for n in shape) * item_bytes >= 2**63:
            self._fail(f"tensor {name!r}: the shape {shape!r} is too big")
        if math.prod(shape) * item_bytes != end - begin:
            self._fail(
                f"tensor {name!r}: shape {shape!r} of {dtype} takes "
                f"{math.prod(shape) * item_bytes} bytes, its data_offsets {offsets!r} span "
                f"{end - begin}"
            )
        return _Entry(begin, end, name, torch_name, shape)

    def _check_layout(self, data_bytes: int) -> None:
        """Tensors must cover the data without overlaps and without holes."""
        position, previous = 0, ""
        for entry in self.entries:
            if entry.begin < position:
                self._fail(f"the bytes of tensors {previous!r} and {entry.name!r} overlap")
            if entry.begin > position:
                self._fail(f"there is a hole of {entry.begin - position} bytes before the data of "
                           f"tensor {entry.name!r}")  # fmt: skip
            position, previous = entry.end, entry.name
        if position != data_bytes:
            self._fail(f"the last {data_bytes - position} bytes of the file belong to no tensor")


def _are_sizes(value: Any) -> bool:
    """A list of integers >= 0 (true and false are none)."""
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**63 for n in value)


# --- writing -----------------------------------------------------------------------------------

_temporary = itertools.count()
_saves: list[Any] = []  # that may still be running


def save_safetensors(
    tensors: Mapping[str, Any],
    path: str | bytes | os.PathLike[Any],
    metadata: Mapping[str, str] | None = None,
) -> Any:
    """Writes tensors to a safetensors file: ``await dtorch.save_safetensors(tensors, path)``.

    The values are those at the call, whatever is written into the tensors afterwards. Returns a
    ``TensorFuture`` of None; the file is complete once it is done. An existing file is replaced,
    not overwritten, so that tensors still being loaded from it are not harmed.

    Raises:
        TypeError: something is not a Tensor, or a name not a string.
        ValueError: a name that the format reserves.
        OSError: the file cannot be created; failures to write come with the await.
    """
    header, order = _layout(tensors, metadata)
    pieces: list[tuple[Any, int]] = [(header, 0)]
    position = len(header)
    for tensor, size in order:
        pieces.append((tensor, position))
        position += size
    done = _C._file_save(_create(os.path.realpath(os.fsdecode(path))), pieces)
    _saves[:] = [save for save in _saves if not save.done()] + [done]
    return done


@atexit.register
def _finish_saves() -> None:
    """A file that was being written when the program ended is completed; the rest is dropped."""
    for save in _saves:
        with contextlib.suppress(Exception):
            save.get()


def _create(target: str) -> Any:
    """A new empty file in the place of target, open for writing."""
    if os.path.exists(target) and not os.path.isfile(target):
        return _C._file_open(target, True)  # a directory: the error; a device: written to
    temporary = f"{target}.{os.getpid()}-{next(_temporary)}.new"
    file = _C._file_open(temporary, True)
    try:
        os.replace(temporary, target)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return file


def _layout(
    tensors: Mapping[str, Any], metadata: Mapping[str, str] | None
) -> tuple[bytes, list[tuple[Any, int]]]:
    """The header with its length, and the tensors in the order of the file with their bytes."""
    root: dict[str, Any] = {}
    if metadata is not None:
        if not all(isinstance(s, str) for item in metadata.items() for s in item):
            raise TypeError("save_safetensors(): metadata must map strings to strings")
        root["__metadata__"] = dict(metadata)
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise TypeError(f"save_safetensors(): names are strings, not {type(name).__name__}")
        if name == "__metadata__":
            raise ValueError("save_safetensors(): '__metadata__' is no name for a tensor")
        if not isinstance(tensor, _C.Tensor):
            kind = type(tensor).__name__
            raise TypeError(f"save_safetensors(): {name!r} must be a dtorch.Tensor, not {kind}")
    # Wide elements first, so that every tensor is aligned to its element.
    ordered = sorted(tensors.items(), key=lambda item: (-_NAME_OF[item[1]._dtype_name][1], item[0]))
    order = []
    position = 0
    for name, tensor in ordered:
        dtype, item_bytes = _NAME_OF[tensor._dtype_name]
        size = tensor.numel() * item_bytes
        offsets = [position, position + size]
        root[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        order.append((tensor, size))
        position += size
    text = json.dumps(root, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    if len(text) > HEADER_BYTES_MAX:
        raise ValueError(f"save_safetensors(): the header would take {len(text)} bytes")
    return len(text).to_bytes(8, "little") + text, order
