"""Checkpoints: a program's tensors in a folder of safetensors files, whatever mesh they are on.

    await dtorch.save_checkpoint(state, "step-100")
    state = await dtorch.load_checkpoint("step-100", mesh, plan)

The folder has one file for each device that had something to write, and an index,
``model.safetensors.index.json``, in the form in which Hugging Face's libraries keep theirs::

    {"metadata": {"total_size": bytes, ...},
     "weight_map": {key: file, ...},
     "dtorch": {"version": 1, "cut": {name: {"dtype": "F32", "shape": [8, 4],
                "pieces": [{"key": "name@0,0", "start": [0, 0], "size": [4, 4]}, ...]}}}}

A tensor that some device has as a whole is an ordinary entry, its key its name. Of one that is
dealt out each part is written once, as an entry of its own, and ``cut`` says which box of the
tensor it is. Folders that other libraries wrote are read, too.

Saving never touches the files of the checkpoint that is in the folder: new ones are written under
names that end in ``.new``, get free names once the operating system has all bytes, and the index is
replaced last, in one step. Only then the former files go. A process that dies before leaves the
former checkpoint whole, and perhaps ``.new`` files. (Nothing is forced to the disk: a machine that
loses power may lose a checkpoint of the last seconds.)
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import errno
import itertools
import json
import math
import os
import threading
from collections.abc import Generator, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

from . import _C, _dist
from ._distribute import Plan, plan_placements
from ._safetensors import (
    _NAME_OF,
    DTYPES,
    RANK_MAX,
    SafetensorsDict,
    SafetensorsError,
    _are_sizes,
    _Header,
    _layout,
    _pairs,
)
from .distributed_spec import DeviceMesh, Replicate, default_mesh

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
VERSION = 1
RUN_BYTES_MIN = 64 * 1024
"""Where the wanted bytes of a piece lie in shorter runs than this, what is between is read too."""

Box = tuple[tuple[int, ...], tuple[int, ...]]  # start and size, by dim


# ---- saving --------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """Something to write: a whole tensor, or one box of it."""

    name: str
    start: tuple[int, ...] | None  # None: it is whole
    holders: dict[Any, Any]  # device -> its tensor of that box
    size_bytes: int


def save_checkpoint(
    state: Mapping[str, Any],
    folder: str | bytes | os.PathLike[Any],
    metadata: Mapping[str, str] | None = None,
) -> CheckpointSave:
    """Writes tensors, on meshes or not: ``await dtorch.save_checkpoint(state, folder)``.

    The values are those at the call, whatever is written into the tensors afterwards. Returns at
    once; the checkpoint is there, in the place of a former one, when the result is done. Of several
    saves to one folder the last called stays. A tensor that is Partial is reduced first.

    Args:
        state: tensors by name.
        folder: made if need be.
        metadata: strings by name, for the index; they come back as ``.metadata``.

    Raises:
        TypeError: something is not a Tensor, or a name or metadata not a string.
        ValueError: a name that the format reserves.
        OSError: the folder or a file cannot be made; failures to write come with the await.
    """
    for name, tensor in state.items():
        if not isinstance(name, str):
            raise TypeError(f"save_checkpoint(): names are strings, not {type(name).__name__}")
        if name == "__metadata__":
            raise ValueError("save_checkpoint(): '__metadata__' is no name for a tensor")
        if not isinstance(tensor, _C.Tensor):
            kind = type(tensor).__name__
            raise TypeError(f"save_checkpoint(): {name!r} must be a dtorch.Tensor, not {kind}")
    metadata = {} if metadata is None else dict(metadata)
    if not all(isinstance(s, str) for item in metadata.items() for s in item):
        raise TypeError("save_checkpoint(): metadata must map strings to strings")
    if "total_size" in metadata:
        raise ValueError("save_checkpoint(): 'total_size' is the index's own, not for metadata")
    path = os.path.realpath(os.fsdecode(folder))
    os.makedirs(path, exist_ok=True)
    parts = [part for name, tensor in state.items() for part in _parts_of(name, tensor)]
    shards = _deal_out(parts)
    keys = _keys(parts)
    save = CheckpointSave(path, len(shards))
    cut: dict[str, Any] = {}
    total = 0
    for number, shard in enumerate(shards):
        tensors = {}
        for part, tensor in shard:
            key = keys[part.name, part.start]
            tensors[key] = tensor
            total += part.size_bytes
            if part.start is not None:
                whole = state[part.name]
                entry = {"dtype": _NAME_OF[whole._dtype_name][0], "shape": list(whole.shape)}
                pieces = cut.setdefault(part.name, {**entry, "pieces": []})["pieces"]
                size = list(tensor.shape)
                pieces.append({"key": key, "start": list(part.start), "size": size})
        save._write(number, tensors)
    save._index = {
        "metadata": {**metadata, "total_size": total},
        "dtorch": {"version": VERSION, "cut": cut},
    }
    save._watch()
    return save


def _parts_of(name: str, tensor: Any) -> Iterator[_Part]:
    """What there is to write of a tensor: each box once, with all devices that have it."""
    item_bytes = _NAME_OF[tensor._dtype_name][1]
    spec = _C.dist_spec(tensor)
    if spec is None:
        yield _Part(name, None, {None: tensor}, tensor.numel() * item_bytes)
        return
    where = _dist.place_of(tensor)
    assert where is not None and where.placements is not None
    mesh = where.mesh
    if any(p.is_partial() for p in where.placements):
        reduced = [Replicate() if p.is_partial() else p for p in where.placements]
        tensor = _dist.put(tensor, _dist.Place(mesh, reduced))
        spec = _C.dist_spec(tensor)
    shape = tuple(tensor.shape)
    boxes: dict[Box, dict[Any, Any]] = {}
    for index, device in enumerate(mesh.device_ids):
        box = _C.dist_box(mesh._id, spec[1], shape, index)
        if math.prod(box[1]) > 0:
            holders = boxes.setdefault((tuple(box[0]), tuple(box[1])), {})
            holders[mesh.device_type, device] = _C.dist_part(tensor, index)
    if not boxes:  # there is no element at all, but a shape
        yield _Part(name, None, {None: _C.rows["empty__new"](shape, tensor._dtype_name)}, 0)
    for (start, size), holders in boxes.items():
        whole = size == shape
        yield _Part(name, None if whole else start, holders, math.prod(size) * item_bytes)


def _deal_out(parts: list[_Part]) -> list[list[tuple[_Part, Any]]]:
    """Which file each part goes to, with the tensor to write: one file for each device, replicas
    and what is on no mesh to the one that has least."""
    devices = sorted({device for part in parts for device in part.holders if device is not None})
    files: dict[Any, list[tuple[_Part, Any]]] = {device: [] for device in devices or [None]}
    loads = dict.fromkeys(files, 0)

    def urgency(part: _Part) -> tuple[Any, ...]:  # who has least choice first, then large ones
        return None in part.holders, len(part.holders), -part.size_bytes, part.name

    for part in sorted(parts, key=urgency):
        anywhere = None in part.holders
        device = min(files if anywhere else part.holders, key=lambda device: loads[device])
        files[device].append((part, part.holders[None if anywhere else device]))
        loads[device] += part.size_bytes
    return [file for file in files.values() if file]


def _keys(parts: list[_Part]) -> dict[tuple[str, Any], str]:
    """The entry of a file that each part becomes: its name, or one that no tensor has."""
    taken = {part.name for part in parts}
    keys = {}
    for part in parts:
        key = part.name
        if part.start is not None:
            key += "@" + ",".join(map(str, part.start))
            while key in taken:
                key += "@"
            taken.add(key)
        keys[part.name, part.start] = key
    return keys


_numbers = itertools.count()
_saves: set[CheckpointSave] = set()  # that are not finished
_ended: collections.deque[CheckpointSave] = collections.deque()  # whose writes are done
_lock = threading.Lock()  # who holds it finishes those
_committed: dict[str, int] = {}  # folder -> the number of the save whose checkpoint is there


def _finish_ended(blocking: bool) -> None:
    """Finishes what has ended. A callback must not wait: it may interrupt the thread that is just
    doing so, which looks again when it is through."""
    while _ended:
        if not _lock.acquire(blocking=blocking):
            return
        try:
            while _ended:
                _ended.popleft()._finish()
        finally:
            _lock.release()


class CheckpointSave:
    """A checkpoint being written; await it, or ``get()`` it where no loop runs. Gives None."""

    def __init__(self, folder: str, count: int) -> None:
        self._folder = folder
        self._pid = os.getpid()
        self._number = next(_numbers)
        self._count = count
        self._temporary: list[str] = []
        self._keys: list[list[str]] = []  # of each file
        self._writes: list[Any] = []
        self._index: dict[str, Any] = {}
        self._finished = False
        self._error: BaseException | None = None

    def __await__(self) -> Generator[Any, None, None]:
        for write in self._writes:
            with contextlib.suppress(Exception):  # _finish finds it
                yield from write.__await__()
        self._conclude()

    def get(self, timeout: float | None = None) -> None:
        """Waits in place. TimeoutError when it takes longer than `timeout` seconds."""
        for write in self._writes:
            try:
                write.get(timeout)
            except TimeoutError:
                if not write.done():
                    raise
            except Exception:  # _finish finds it
                continue
        self._conclude()

    def done(self) -> bool:
        """Whether it is over, well or not."""
        return self._finished

    def _write(self, number: int, tensors: dict[str, Any]) -> None:
        """Starts a file."""
        name = f".{os.getpid()}-{self._number}-{number}.safetensors.new"
        path = os.path.join(self._folder, name)
        try:
            header, order = _layout(tensors, {"format": "pt"})
            file = _C._file_open(path, True)
            self._temporary.append(path)
            pieces: list[tuple[Any, int]] = [(header, 0)]
            position = len(header)
            for tensor, size in order:
                pieces.append((tensor, position))
                position += size
            self._writes.append(_C._file_save(file, pieces))
            self._keys.append(list(tensors))
        except BaseException:
            self._remove(self._temporary)
            raise

    def _watch(self) -> None:
        """Finishes it when the last write ends, also if nobody awaits it."""
        _saves.add(self)
        if not self._writes:
            self._conclude()
        for write in list(self._writes):
            write.add_done_callback(self._one_is_done)

    def _one_is_done(self, _: Any) -> None:
        if all(write.done() for write in self._writes):
            _ended.append(self)
            _finish_ended(blocking=False)

    def _conclude(self) -> None:
        """Once all writes are done."""
        _ended.append(self)
        _finish_ended(blocking=True)
        if self._error is not None:
            raise self._error

    def _finish(self) -> None:
        """Makes the files a checkpoint, or removes them; once. Under the lock."""
        if self._finished or os.getpid() != self._pid:  # a child's copy: the parent writes it
            return
        try:
            self._error = next(filter(None, (write.exception() for write in self._writes)), None)
            if self._error is None and _committed.get(self._folder, -1) < self._number:
                self._commit()
                _committed[self._folder] = self._number
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):
                raise
        finally:
            self._remove(self._temporary)
            self._finished = True
            self._writes = []
            _saves.discard(self)

    def _commit(self) -> None:
        former = _files_of_former(self._folder)
        files = self._free_names()
        index = os.path.join(self._folder, INDEX)
        temporary = f"{index}.{os.getpid()}-{self._number}.new"
        paths = [os.path.join(self._folder, file) for file in files]
        pairs = ((key, file) for file, keys in zip(files, self._keys, strict=True) for key in keys)
        self._index["weight_map"] = dict(sorted(pairs))
        try:
            for old, new in zip(self._temporary, paths, strict=True):
                os.rename(old, new)
            with open(temporary, "w", encoding="utf-8") as out:
                out.write(json.dumps(self._index, ensure_ascii=False))  # indenting is slow
            os.replace(temporary, index)
        except BaseException:
            self._remove([temporary, *paths])
            raise
        self._remove([os.path.join(self._folder, file) for file in former if file not in files])

    def _free_names(self) -> list[str]:
        for turn in itertools.count():
            suffix = f"-{turn}" if turn > 0 else ""
            names = [
                f"model-{number + 1:05d}-of-{self._count:05d}{suffix}.safetensors"
                for number in range(self._count)
            ]
            if not any(os.path.lexists(os.path.join(self._folder, name)) for name in names):
                return names
        raise AssertionError

    @staticmethod
    def _remove(paths: list[str]) -> None:
        for path in paths:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _files_of_former(folder: str) -> set[str]:
    """The files of the checkpoint that is in the folder, if it is one of ours."""
    try:
        with open(os.path.join(folder, INDEX), encoding="utf-8") as file:
            root = json.load(file)
        names = set(root["weight_map"].values()) if "dtorch" in root else set()
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return set()
    return {name for name in names if isinstance(name, str) and os.path.basename(name) == name}


@atexit.register
def _finish_saves() -> None:
    """A checkpoint that was being written when the program ended is completed."""
    for save in list(_saves):
        with contextlib.suppress(Exception):
            save.get()


# ---- loading -------------------------------------------------------------------------------------


def load_checkpoint(
    folder: str | bytes | os.PathLike[Any],
    device_mesh: DeviceMesh | None = None,
    plan: Plan | None = None,
) -> SafetensorsDict:
    """The tensors of a checkpoint: ``state = await dtorch.load_checkpoint(folder, mesh, plan)``.

    Placed on any mesh, however they were saved; every file is read only where it has something that
    is needed. Only the index and the files' headers are read before this returns; each tensor is
    awaitable on its own, and an op on it runs once its bytes are there.

    Args:
        folder: what save_checkpoint() wrote, or safetensors files of another library with an index
            or with the name model.safetensors.
        device_mesh: where the tensors go; default: ``Graph.default_device_mesh``.
        plan: patterns of names -> placements, as of distribute(); None: all replicated.

    Raises:
        OSError: the index or a file that it names cannot be opened or read (FileNotFoundError ...).
        SafetensorsError: the index or a file is truncated, malformed, or does not fit the other.
        ValueError: a plan that does not fit, as of distribute().
    """
    mesh = default_mesh() if device_mesh is None else device_mesh
    if mesh is not None and not isinstance(mesh, DeviceMesh):
        kind = type(mesh).__name__
        raise TypeError(f"load_checkpoint(): device_mesh must be a DeviceMesh, not {kind}")
    if mesh is None and plan is not None:
        raise ValueError("load_checkpoint(): a plan needs a device_mesh")
    checkpoint = _Checkpoint(os.fsdecode(folder))
    ranks = {name: len(saved.shape) for name, saved in checkpoint.tensors.items()}
    places = {} if mesh is None else plan_placements("load_checkpoint()", ranks, mesh, plan)
    if mesh is not None and mesh._is_plain:
        mesh = None
    result = {
        name: saved.whole() if mesh is None else saved.placed(mesh, places[name])
        for name, saved in checkpoint.tensors.items()
    }
    return SafetensorsDict(result, checkpoint.metadata)


class _Piece(NamedTuple):
    """One box of a saved tensor, row-major in a file."""

    file: Any
    offset: int  # bytes from the file's begin
    start: tuple[int, ...]
    size: tuple[int, ...]


class _Run(NamedTuple):
    at: tuple[int, ...]  # in the tensor
    values: Any
    is_all_read: bool  # nothing around them was read, too


class _Saved:
    """A tensor of a checkpoint."""

    def __init__(self, dtype: str, shape: tuple[int, ...], pieces: list[_Piece]) -> None:
        self.dtype = dtype  # torch's name
        self.shape = shape
        self._pieces = pieces
        self._item_bytes = next(size for name, size in DTYPES.values() if name == dtype)
        self._reads: dict[tuple[int, int, tuple[int, ...]], Any] = {}

    def whole(self) -> Any:
        """As an ordinary tensor."""
        return self._box((0,) * len(self.shape), self.shape)

    def placed(self, mesh: DeviceMesh, placements: Any) -> Any:
        """On a mesh; what several devices have is read once."""
        if any(p.is_partial() for p in placements):
            settled = [Replicate() if p.is_partial() else p for p in placements]
            return _dist.put(self.placed(mesh, settled), _dist.Place(mesh, placements))
        codes = mesh._codes(placements, len(self.shape))
        made: dict[Box, Any] = {}
        parts = []
        for index in range(mesh.size()):
            start, size = map(tuple, _C.dist_box(mesh._id, codes, self.shape, index))
            found = made.get((start, size))
            if found is None:
                found = made[start, size] = self._box(start, size)
            else:
                found = _C.rows["clone"](found)
            parts.append(found)
        self._reads.clear()
        return _C.dist_new(parts, mesh._id, codes, self.shape)

    def _box(self, start: tuple[int, ...], size: tuple[int, ...]) -> Any:
        """A tensor of that box, whose bytes are on their way."""
        hits = []
        for piece in self._pieces:
            low = tuple(map(max, start, piece.start))
            high = tuple(
                min(a + n, b + m) for a, n, b, m in zip(start, size, *piece[2:], strict=True)
            )
            if all(a < b for a, b in zip(low, high, strict=True)):
                hits.append((piece, low, tuple(b - a for a, b in zip(low, high, strict=True))))
        runs = [run for hit in hits for run in self._read(*hit)]
        if len(runs) == 1 and runs[0].is_all_read and tuple(runs[0].values.shape) == size:
            return runs[0].values
        out = _C.rows["empty__new"](size, self.dtype)
        for at, values, _ in runs:
            offset = tuple(a - b for a, b in zip(at, start, strict=True))
            _narrow(out, offset, tuple(values.shape)).copy_(values)
        return out

    def _read(self, piece: _Piece, low: tuple[int, ...], extent: tuple[int, ...]) -> Iterator[_Run]:
        """The values of a box that lies in the piece, run by run.

        A run is what is read at once: `extent` along dim `level`, all of the dims after it.
        """
        rank = len(extent)
        begin = tuple(a - b for a, b in zip(low, piece.start, strict=True))
        strides = [math.prod(piece.size[d + 1 :]) * self._item_bytes for d in range(rank)]
        level = max((d for d in range(rank) if extent[d] != piece.size[d]), default=0)
        while level > 0 and extent[level] * strides[level] < RUN_BYTES_MIN:
            level -= 1
        shape = extent[level : level + 1] + piece.size[level + 1 :]
        inner = begin[level : level + 1] and (0, *begin[level + 1 :])
        for outer in itertools.product(*map(range, extent[:level])):
            at = [a + b for a, b in zip(begin, outer, strict=False)] + [*begin[level : level + 1]]
            position = sum(a * stride for a, stride in zip(at, strides, strict=False))
            read = self._load(piece.file, piece.offset + position, shape)
            values = _narrow(read, inner, extent[level:])
            is_all_read = values is read
            if level > 0:
                values = values.view((1,) * level + tuple(values.shape))
            where = tuple(a + b for a, b in zip(low, outer, strict=False)) + low[level:]
            yield _Run(where, values, is_all_read)

    def _load(self, file: Any, offset: int, shape: tuple[int, ...]) -> Any:
        key = (id(file), offset, shape)
        if key not in self._reads:
            self._reads[key] = _C._file_load(file, [(self.dtype, shape, offset)])[0]
        return self._reads[key]


def _narrow(tensor: Any, start: tuple[int, ...], size: tuple[int, ...]) -> Any:
    for dim, (at, length) in enumerate(zip(start, size, strict=True)):
        if length != tensor.shape[dim]:
            tensor = _C.rows["narrow"](tensor, dim, at, length)
    return tensor


class _Checkpoint:
    """The index of a folder, checked against the headers of its files."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._files: dict[str, tuple[Any, _Header, dict[str, Any]]] = {}
        self._path = os.path.join(folder, INDEX)
        self.metadata: dict[str, str] = {}
        if not os.path.exists(self._path) and os.path.exists(os.path.join(folder, SINGLE)):
            header = self._open(SINGLE, "")[1]
            self.metadata = header.metadata
            self.tensors = {entry.name: self._whole(entry.name, SINGLE) for entry in header.entries}
        else:
            self.tensors = self._read_index()

    def _fail(self, text: str) -> NoReturn:
        raise SafetensorsError(f"{self._path}: {text}") from None

    def _read_index(self) -> dict[str, _Saved]:
        with open(self._path, "rb") as file:
            text = file.read()
        try:
            root = json.loads(text.decode("utf-8"), object_pairs_hook=_pairs)
        except (ValueError, RecursionError) as error:
            self._fail(f"the index is malformed: {error}")
        weight_map = root.get("weight_map") if isinstance(root, dict) else None
        if not isinstance(weight_map, dict):
            self._fail("the index has no object 'weight_map'")
        for name, file_name in weight_map.items():
            if not isinstance(file_name, str) or os.path.basename(file_name) != file_name:
                self._fail(f"tensor {name!r}: {file_name!r} is no name of a file in the folder")
        cut = self._cut(root.get("dtorch", {"version": VERSION, "cut": {}}))
        metadata = root.get("metadata", {})
        if isinstance(metadata, dict):
            self.metadata = {k: v for k, v in metadata.items() if isinstance(v, str)}
        inside = {piece["key"] for entry in cut.values() for piece in entry["pieces"]}
        found = {n: self._whole(n, file) for n, file in weight_map.items() if n not in inside}
        found.update((name, self._joined(name, cut[name], weight_map)) for name in cut)
        return dict(sorted(found.items()))

    def _cut(self, ours: Any) -> dict[str, Any]:
        if not isinstance(ours, dict) or ours.get("version") != VERSION:
            version = ours.get("version") if isinstance(ours, dict) else None
            self._fail(f"the index is of version {version!r}, only {VERSION} can be read")
        cut = ours.get("cut")
        if not isinstance(cut, dict):
            self._fail("the index's object 'dtorch' has no object 'cut'")
        for name, entry in cut.items():
            good = (
                isinstance(entry, dict)
                and entry.get("dtype") in DTYPES
                and _are_sizes(entry.get("shape"))
                and len(entry["shape"]) <= RANK_MAX
                and isinstance(entry.get("pieces"), list)
                and all(_is_piece(piece, entry["shape"]) for piece in entry["pieces"])
            )
            if not good:
                self._fail(f"tensor {name!r}: its entry in 'cut' is malformed or has wrong sizes")
        return cut

    def _open(self, name: str, tensor: str) -> tuple[Any, _Header, dict[str, Any]]:
        """A file of the checkpoint, its header, and the header's entries by name."""
        if name not in self._files:
            path = os.path.join(self._folder, name)
            try:
                file = _C._file_open(path, False)
            except FileNotFoundError:
                text = f"a file of the checkpoint is missing, which has tensor {tensor!r}"
                raise FileNotFoundError(errno.ENOENT, text, path) from None
            header = _Header(file, path)
            self._files[name] = (file, header, {entry.name: entry for entry in header.entries})
        return self._files[name]

    def _entry(self, key: str, file_name: str, name: str) -> tuple[Any, Any, int]:
        file, header, entries = self._open(file_name, name)
        if key not in entries:
            self._fail(f"tensor {name!r}: the file {file_name} has no entry {key!r}")
        return file, entries[key], header.end + entries[key].begin

    def _whole(self, name: str, file_name: str) -> _Saved:
        file, entry, offset = self._entry(name, file_name, name)
        shape = tuple(entry.shape)
        return _Saved(entry.dtype, shape, [_Piece(file, offset, (0,) * len(shape), shape)])

    def _joined(self, name: str, info: dict[str, Any], weight_map: dict[str, str]) -> _Saved:
        dtype, shape = DTYPES[info["dtype"]][0], tuple(info["shape"])
        pieces = []
        for piece in info["pieces"]:
            key = piece["key"]
            if key not in weight_map:
                self._fail(f"tensor {name!r}: no file is named for its piece {key!r}")
            file, entry, offset = self._entry(key, weight_map[key], name)
            if entry.dtype != dtype or entry.shape != piece["size"]:
                self._fail(
                    f"tensor {name!r}: its piece {key!r} is {entry.dtype} of shape {entry.shape} "
                    f"in {weight_map[key]}, {dtype} of shape {piece['size']} in the index"
                )
            pieces.append(_Piece(file, offset, tuple(piece["start"]), tuple(piece["size"])))
        self._check_cover(name, shape, pieces)
        return _Saved(dtype, shape, pieces)

    def _check_cover(self, name: str, shape: tuple[int, ...], pieces: list[_Piece]) -> None:
        """Every element must be in one piece, and in one only."""
        for a, b in itertools.combinations(pieces, 2):
            apart = any(
                s + n <= t or t + m <= s
                for s, n, t, m in zip(a.start, a.size, b.start, b.size, strict=True)
            )
            if not apart:
                self._fail(f"tensor {name!r}: its pieces at {a.start} and {b.start} overlap")
        missing = math.prod(shape) - sum(math.prod(piece.size) for piece in pieces)
        if missing:
            self._fail(f"tensor {name!r}: {missing} of its elements are in no piece")


def _is_piece(piece: Any, shape: list[int]) -> bool:
    return (
        isinstance(piece, dict)
        and isinstance(piece.get("key"), str)
        and _are_sizes(piece.get("start"))
        and _are_sizes(piece.get("size"))
        and len(piece["start"]) == len(piece["size"]) == len(shape)
        and all(a + n <= s for a, n, s in zip(piece["start"], piece["size"], shape, strict=True))
    )
