"""load_safetensors and save_safetensors: values, order, and every way in which a file can be wrong.

The files are made and read here by the format's description, without dtorch.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dtorch
import pytest
from dtorch import _C, load_safetensors, save_safetensors
from dtorch._safetensors import HEADER_BYTES_MAX, SafetensorsDict, SafetensorsError
from pending import FAILURE, Stalled, failing, held, meanwhile, patient

pytestmark = pytest.mark.notorch

Run = Callable[[Any], Any]

# --- the format, by hand -----------------------------------------------------------------------


def write_file(
    path: Path, header: Any, data: bytes = b"", *, length: int | None = None, pad: int = 0
) -> str:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * pad
    size = len(text) if length is None else length
    path.write_bytes(struct.pack("<Q", size) + text + data)
    return str(path)


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    data = raw[8 + size :]
    parts = {}
    for name, info in header.items():
        if name != "__metadata__":
            begin, end = info["data_offsets"]
            parts[name] = data[begin:end]
    assert sum(map(len, parts.values())) == len(data)
    return header, parts


def entry(dtype: str, shape: list[Any], begin: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.safetensors"


# --- loading -----------------------------------------------------------------------------------

KINDS = [
    # dtype, struct code or raw bytes, values
    ("BOOL", "bool", "?", [True, False, True]),
    ("U8", "uint8", "B", [0, 1, 255]),
    ("I8", "int8", "b", [-128, 0, 127]),
    ("I16", "int16", "h", [-32768, 1, 32767]),
    ("I32", "int32", "i", [-(2**31), 1, 2**31 - 1]),
    ("I64", "int64", "q", [-(2**63), 1, 2**63 - 1]),
    ("F16", "float16", "e", [0.5, -2.0, 65504.0]),
    ("F32", "float32", "f", [0.5, -2.0, 3.0e38]),
    ("F64", "float64", "d", [0.1, -2.0, 1.0e300]),
]


@pytest.mark.parametrize(("short", "name", "code", "values"), KINDS)
def test_dtypes(run: Run, path: Path, short: str, name: str, code: str, values: list[Any]) -> None:
    data = struct.pack(f"<3{code}", *values)
    file = write_file(path, {"x": entry(short, [3], 0, len(data))}, data)
    want = struct.unpack(f"<3{code}", data)

    async def main() -> None:
        weights = await load_safetensors(file)
        assert weights["x"]._dtype_name == name
        assert weights["x"].tolist() == list(want)

    run(main())


def test_bfloat16(path: Path) -> None:
    data = struct.pack("<3H", 0x3F80, 0xC000, 0x7F80)  # the upper halves of float32
    file = write_file(path, {"x": entry("BF16", [3], 0, 6)}, data)
    assert load_safetensors(file)["x"].tolist() == [1.0, -2.0, math.inf]


def test_several_tensors(run: Run, path: Path) -> None:
    values = struct.pack("<6f", *range(6)) + struct.pack("<2q", 7, 8) + b"\x01"
    header = {
        "__metadata__": {"format": "pt", "note": "ü"},
        "late": entry("BOOL", [], 40, 41),
        "a.b": entry("F32", [2, 3], 0, 24),
        "empty": entry("F32", [0, 5], 24, 24),
        "ints": entry("I64", [2, 1], 24, 40),
    }
    file = write_file(path, header, values, pad=7)

    async def main() -> None:
        weights = load_safetensors(file)
        assert isinstance(weights, dict)
        assert isinstance(weights, SafetensorsDict)
        assert weights.metadata == {"format": "pt", "note": "ü"}
        found = await weights
        assert found is weights
        assert set(found) == {"late", "a.b", "empty", "ints"}
        assert found["a.b"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
        assert found["ints"].tolist() == [[7], [8]]
        assert tuple(found["empty"].shape) == (0, 5)
        assert found["late"].item() is True
        assert await found is found  # again

    run(main())


@pytest.mark.parametrize("kind", [str, Path, os.fsencode])
def test_kinds_of_path(path: Path, kind: Callable[[Path], Any]) -> None:
    write_file(path, {"x": entry("U8", [2], 0, 2)}, b"\x05\x06")
    assert load_safetensors(kind(path))["x"].tolist() == [5, 6]


@pytest.mark.parametrize("text", [b"{}", b'{"__metadata__":{}}', b"{}      "])
def test_file_without_tensors(run: Run, path: Path, text: bytes) -> None:
    file = write_file(path, text)

    async def main() -> None:
        assert await load_safetensors(file) == {}

    run(main())


def test_each_tensor_is_awaitable_and_usable_alone(run: Run, path: Path) -> None:
    count = 1_500_000
    data = struct.pack(f"<{count}i", *range(count)) + struct.pack("<3f", 1, 2, 3)
    header = {
        "big": entry("I32", [count], 0, 4 * count),
        "small": entry("F32", [3], 4 * count, 4 * count + 12),
    }
    file = write_file(path, header, data, pad=3)

    async def main() -> None:
        weights = load_safetensors(file)
        doubled = weights["big"] * 2  # runs once the bytes are there
        assert (await weights["small"]).tolist() == [1.0, 2.0, 3.0]
        total = await doubled.sum()
        assert total.item() == count * (count - 1)
        assert (await weights["big"])[-1].item() == count - 1

    run(main())


def test_file_may_be_removed_after_the_call(run: Run, path: Path) -> None:
    data = bytes(range(256)) * 4096
    file = write_file(path, {"x": entry("U8", [len(data)], 0, len(data))}, data)

    async def main() -> None:
        weights = load_safetensors(file)
        os.unlink(file)
        assert (await weights)["x"].tolist() == list(data)

    run(main())


def test_dropped_before_it_is_read(path: Path) -> None:
    data = bytes(1 << 22)
    file = write_file(path, {"x": entry("U8", [1 << 22], 0, 1 << 22)}, data)
    for _ in range(20):
        load_safetensors(file)


def test_odd_positions(run: Run, path: Path) -> None:
    """The format does not ask for alignment: wide elements may begin anywhere."""
    data = b"\x07" + struct.pack("<2d", 1.5, 2.5)
    header = {"a": entry("U8", [1], 0, 1), "b": entry("F64", [2], 1, 17)}
    file = write_file(path, header, data)
    assert load_safetensors(file)["b"].tolist() == [1.5, 2.5]


# --- files that are wrong ----------------------------------------------------------------------

F = entry("F32", [2], 0, 8)
DATA = struct.pack("<2f", 1, 2)


@pytest.mark.parametrize(
    ("header", "data", "text"),
    [
        # headers
        (b"", b"", "no JSON object"),
        (b"[]", b"", "no JSON object"),
        (b" {}", b"", "no JSON object"),
        (b"{", b"", "malformed"),
        (b'{"x": NaN}', b"", "no JSON"),
        (b'{"x": \xff}', b"", "malformed"),
        (b'{"a":' * 100_000, b"", "nested too deeply|malformed"),
        (b'{"x":1,"x":2}', b"", "'x' occurs twice"),
        (b'{"x":{"dtype":"U8","dtype":"U8"}}', b"", "'dtype' occurs twice"),
        ({"__metadata__": {"a": 1}}, b"", "__metadata__ must be an object of strings"),
        ({"__metadata__": []}, b"", "__metadata__ must be an object of strings"),
        # entries
        ({"x": 1}, b"", "'x': its entry is no JSON object"),
        ({"x": {"shape": [2], "data_offsets": [0, 8]}}, DATA, "has no 'dtype'"),
        ({"x": {"dtype": "F32", "data_offsets": [0, 8]}}, DATA, "has no 'shape'"),
        ({"x": {"dtype": "F32", "shape": [2]}}, DATA, "has no 'data_offsets'"),
        ({"x": entry("F8_E4M3", [8], 0, 8)}, DATA, "dtype 'F8_E4M3' is not supported"),
        ({"x": entry("U16", [4], 0, 8)}, DATA, "dtype 'U16' is not supported"),
        ({"x": entry("f32", [2], 0, 8)}, DATA, "dtype 'f32' is not supported"),
        ({"x": {**F, "dtype": ["F32"]}}, DATA, "is not supported"),
        ({"x": entry("F32", [2.0], 0, 8)}, DATA, "no list of sizes"),
        ({"x": entry("F32", [True, 2], 0, 8)}, DATA, "no list of sizes"),
        ({"x": entry("F32", [-2], 0, 8)}, DATA, "no list of sizes"),
        ({"x": {**F, "shape": 2}}, DATA, "no list of sizes"),
        ({"x": {**F, "shape": "2"}}, DATA, "no list of sizes"),
        ({"x": entry("F32", [1] * 17, 0, 4)}, DATA[:4], "17 dimensions"),
        ({"x": entry("F32", [2**62, 4], 0, 8)}, DATA, "too big"),
        ({"x": entry("F32", [0, 2**62], 0, 0)}, b"", "too big"),
        ({"x": entry("F32", [2**64], 0, 8)}, DATA, "no list of sizes"),
        # offsets
        ({"x": {**F, "data_offsets": [0]}}, DATA, "no pair of positions"),
        ({"x": {**F, "data_offsets": [0, 8, 16]}}, DATA, "no pair of positions"),
        ({"x": {**F, "data_offsets": {"0": 8}}}, DATA, "no pair of positions"),
        ({"x": entry("F32", [2], -8, 0)}, DATA, "no pair of positions"),
        ({"x": entry("F32", [2], 0.0, 8.0)}, DATA, "no pair of positions"),
        ({"x": entry("F32", [2], False, 8)}, DATA, "no pair of positions"),
        ({"x": entry("F32", [2], 8, 0)}, DATA, "run backwards"),
        ({"x": entry("F32", [2], 0, 7)}, DATA, "takes 8 bytes.* span 7"),
        ({"x": entry("F32", [3], 0, 8)}, DATA, "takes 12 bytes.* span 8"),
        ({"x": entry("F32", [], 0, 8)}, DATA, "takes 4 bytes.* span 8"),
        ({"x": entry("F32", [4], 0, 16)}, DATA, "outside of the file's 8 data bytes"),
        ({"x": entry("F32", [2], 2**62, 2**62 + 8)}, DATA, "outside of the file"),
        ({"x": F}, DATA[:7], "outside of the file's 7 data bytes"),
        ({"x": F}, b"", "outside of the file's 0 data bytes"),
        # layout
        ({"x": F, "y": F}, DATA, "'x' and 'y' overlap"),
        ({"x": F, "y": entry("F32", [1], 4, 8)}, DATA, "'x' and 'y' overlap"),
        ({"x": entry("F32", [1], 4, 8)}, DATA, "hole of 4 bytes before .*'x'"),
        ({"x": F, "y": entry("U8", [1], 9, 10)}, DATA + b"12", "hole of 1 bytes before .*'y'"),
        ({"x": F}, DATA + b"1", "last 1 bytes of the file belong to no tensor"),
        ({}, b"1", "last 1 bytes"),
    ],
)
def test_malformed(path: Path, header: Any, data: bytes, text: str) -> None:
    file = write_file(path, header, data)
    with pytest.raises(SafetensorsError, match=text) as caught:
        load_safetensors(file)
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("size", range(8))
def test_too_short_for_a_length(path: Path, size: int) -> None:
    path.write_bytes(bytes(size))
    with pytest.raises(SafetensorsError, match="truncated"):
        load_safetensors(path)


def test_every_truncation(path: Path) -> None:
    file = write_file(path, {"x": F, "y": entry("U8", [3], 8, 11)}, DATA + b"abc")
    whole = path.read_bytes()
    assert load_safetensors(file)["y"].tolist() == [97, 98, 99]
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(SafetensorsError):
            load_safetensors(file)


def test_lying_header_lengths(path: Path) -> None:
    for length in (3, 2**63, 2**64 - 1, HEADER_BYTES_MAX + 1, 10_000):
        file = write_file(path, {"x": F}, DATA, length=length)
        with pytest.raises(SafetensorsError):
            load_safetensors(file)
    file = write_file(path, b"{}", length=HEADER_BYTES_MAX + 1)
    with pytest.raises(SafetensorsError, match=r"too big: 100000001 bytes"):
        load_safetensors(file)


def test_every_flipped_byte_is_an_error_or_a_load(path: Path) -> None:
    """No crash, and no other exception, whatever a byte of the header becomes."""
    write_file(path, {"x": F, "yy": entry("I16", [1, 2], 8, 12)}, DATA + b"abcd")
    whole = bytearray(path.read_bytes())
    for position in range(len(whole) - 12):
        for value in (0, 0x22, 0x2D, 0x39, 0x5B, 0x7B, 0xFF):
            changed = bytearray(whole)
            changed[position] = value
            path.write_bytes(changed)
            try:
                load_safetensors(path)
            except SafetensorsError:
                pass


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        load_safetensors(tmp_path / "missing")
    with pytest.raises(IsADirectoryError):
        load_safetensors(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        load_safetensors(tmp_path / "pipe")
    with pytest.raises(ValueError, match="null byte"):
        load_safetensors("a\0b")
    with pytest.raises(TypeError):
        load_safetensors(3.5)  # type: ignore[arg-type]
    if os.geteuid() != 0:
        (tmp_path / "locked").touch(0)
        with pytest.raises(PermissionError):
            load_safetensors(tmp_path / "locked")


@patient
def test_file_that_shrinks_while_it_is_read(run: Run, path: Path) -> None:
    """The form was right at the call; what is missing then is an error at the await."""
    size = 64 << 20
    file = write_file(path, {"x": entry("U8", [size], 0, size)})
    with open(file, "r+b") as f:
        f.truncate(os.path.getsize(file) + size)

    async def main() -> None:
        weights = load_safetensors(file)
        os.truncate(file, 4096)
        try:
            await weights
        except ValueError as error:
            assert "truncated: it ends at byte" in str(error)
            assert file in str(error)
        else:  # read before it was cut
            raise Stalled

    run(main())


# --- saving ------------------------------------------------------------------------------------


def test_save(run: Run, path: Path) -> None:
    tensors = {
        "one": dtorch.tensor([1, -2, 3], dtype="int16"),
        "wide": dtorch.tensor([[0.5, 1.5], [2.5, 3.5]], dtype="float64"),
        "flag": dtorch.tensor([True, False]),
        "scalar": dtorch.tensor(2.5),
        "none": dtorch.zeros(0),
        "none too": dtorch.zeros(3, 0, 2, dtype="int64"),  # case 22
    }

    async def main() -> None:
        future = save_safetensors(tensors, path, {"k": "v"})
        assert isinstance(future, dtorch.TensorFuture)
        assert await future is None
        assert future.done()

    run(main())
    header, parts = read_file(path)
    assert header["__metadata__"] == {"k": "v"}
    assert struct.unpack("<3h", parts["one"]) == (1, -2, 3)
    assert struct.unpack("<4d", parts["wide"]) == (0.5, 1.5, 2.5, 3.5)
    assert parts["flag"] == b"\x01\x00"
    assert struct.unpack("<f", parts["scalar"]) == (2.5,)
    assert header["scalar"]["shape"] == []
    assert header["none too"] == {"dtype": "I64", "shape": [3, 0, 2], "data_offsets": [0, 0]}
    assert header["wide"]["data_offsets"] == [0, 32]  # wide elements first
    begin = 8 + struct.unpack("<Q", path.read_bytes()[:8])[0]
    assert begin % 8 == 0


@pytest.mark.parametrize("count", [10, 3_000_000])
def test_saved_is_the_value_at_the_call(run: Run, path: Path, count: int) -> None:
    """Case 19: an in-place op right after the call does not change what is saved."""

    async def main() -> None:
        w = dtorch.ones(count)
        future = save_safetensors({"w": w, "part": w[2:5], "late": held(0.05, 3.0).mul_(2)}, path)
        w.add_(1)
        w.mul_(3)
        await future
        assert (await w)[0].item() == 6

    run(main())
    _, parts = read_file(path)
    assert parts["w"] == struct.pack("<f", 1) * count
    assert parts["part"] == struct.pack("<f", 1) * 3
    assert parts["late"] == struct.pack("<f", 6) * 4


def test_strided_tensors_are_saved_row_by_row(run: Run, path: Path) -> None:
    """Case 22: transposed (Fortran order), sliced, expanded."""
    x = dtorch.arange(6, dtype="float32").reshape(2, 3)

    async def main() -> None:
        await save_safetensors(
            {"t": x.t(), "s": x[:, ::2], "e": x[0, :1].expand(2, 2), "v": x[1]}, path
        )

    run(main())
    header, parts = read_file(path)
    assert header["t"]["shape"] == [3, 2]
    assert struct.unpack("<6f", parts["t"]) == (0, 3, 1, 4, 2, 5)
    assert struct.unpack("<4f", parts["s"]) == (0, 2, 3, 5)
    assert struct.unpack("<4f", parts["e"]) == (0, 0, 0, 0)
    assert struct.unpack("<3f", parts["v"]) == (3, 4, 5)


def test_numpy_in_fortran_order(path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.asfortranarray(numpy.arange(6, dtype="float32").reshape(2, 3))
    shared = dtorch.from_numpy(array)
    future = save_safetensors({"shared": shared, "copied": dtorch.tensor(array)}, path)
    array[:] = 9  # an outsider's write after the call
    future.get()
    _, parts = read_file(path)
    assert struct.unpack("<6f", parts["shared"]) == (0, 1, 2, 3, 4, 5)
    assert struct.unpack("<6f", parts["copied"]) == (0, 1, 2, 3, 4, 5)


def test_round_trip(run: Run, path: Path) -> None:
    x = dtorch.arange(1_000_000, dtype="float32").reshape(1000, 1000)

    async def main() -> None:
        await save_safetensors({"x": x, "half": x.to("float16"), "b": x.to("bfloat16")}, path)
        found = await load_safetensors(path)
        assert (await (found["x"] == x).all()).item()
        assert (await (found["half"] == x.to("float16")).all()).item()
        assert (await (found["b"] == x.to("bfloat16")).all()).item()

    run(main())


def test_load_and_save_over_the_same_file(run: Run, path: Path) -> None:
    """The old file lives until its reads have ended: what was loaded is not harmed."""
    x = dtorch.arange(2_000_000, dtype="int32")

    async def main() -> None:
        await save_safetensors({"x": x}, path)
        for _ in range(3):
            loaded = load_safetensors(path)
            future = save_safetensors({"x": loaded["x"] + 1}, path)
            await future
        found = await load_safetensors(path)
        assert (await (found["x"] == x + 3).all()).item()

    run(main())
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_save_without_await_is_complete_at_exit(tmp_path: Path) -> None:
    import subprocess

    target = tmp_path / "w.safetensors"
    body = (
        "import dtorch; from dtorch import _C\n"
        "w = _C._hold(dtorch.full((4,), 2.0), 0.2)\n"
        f"dtorch.save_safetensors({{'w': w}}, {str(target)!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", body],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert struct.unpack("<4f", read_file(target)[1]["w"]) == (2.0,) * 4


def test_failed_tensor_fails_the_save(run: Run, path: Path) -> None:
    async def main() -> None:
        for wait in (False, True):
            bad = failing(0.01)
            if wait:
                await asyncio.sleep(0.05)
            with pytest.raises(RuntimeError, match=FAILURE):
                await save_safetensors({"bad": bad, "good": dtorch.ones(2)}, path)

    run(main())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_full_disk(run: Run) -> None:
    async def main() -> None:
        with pytest.raises(OSError, match="No space left"):
            await save_safetensors({"x": dtorch.ones(100_000)}, "/dev/full")

    run(main())


def test_save_refuses(tmp_path: Path) -> None:
    one = dtorch.ones(1)
    with pytest.raises(TypeError, match=r"must be a dtorch\.Tensor, not list"):
        save_safetensors({"x": [1]}, tmp_path / "f")
    with pytest.raises(TypeError, match="names are strings"):
        save_safetensors({1: one}, tmp_path / "f")  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="__metadata__"):
        save_safetensors({"__metadata__": one}, tmp_path / "f")
    with pytest.raises(TypeError, match="metadata must map strings"):
        save_safetensors({"x": one}, tmp_path / "f", {"a": 1})  # type: ignore[dict-item]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        save_safetensors({"x": one}, tmp_path / "no" / "such" / "folder")
    with pytest.raises(IsADirectoryError):
        save_safetensors({"x": one}, tmp_path)
    assert list(tmp_path.iterdir()) == []


@patient
def test_saving_does_not_block(run: Run, path: Path) -> None:
    async def main() -> None:
        with meanwhile(0.3):
            future = save_safetensors({"t": held(0.3)}, path)
            assert not future.done()
            with pytest.raises(TimeoutError):
                dtorch.set_blocking_policy("allow")
                try:
                    future.get(0.01)
                finally:
                    dtorch.set_blocking_policy("warn")
        await future

    run(main())


def test_names_of_any_kind(run: Run, path: Path) -> None:
    names = ["", "ü", "a b", '"', "\\", "\n", "x" * 1000, "\U0001f600"]

    async def main() -> None:
        await save_safetensors({n: dtorch.full((1,), float(i)) for i, n in enumerate(names)}, path)
        found = await load_safetensors(path)
        assert {n: t.item() for n, t in found.items()} == {n: float(i) for i, n in enumerate(names)}

    run(main())


def test_c_side_refuses_nonsense(path: Path) -> None:
    write_file(path, {"x": F}, DATA)
    file = _C._file_open(str(path), False)
    assert _C._file_size(file) == path.stat().st_size
    with pytest.raises(ValueError, match="unknown dtype"):
        _C._file_load(file, [("float7", [2], 0)])
    with pytest.raises(TypeError):
        _C._file_load(file, [1])
    with pytest.raises(TypeError):
        _C._file_load(file, [("float32", 1.5, 0)])
    with pytest.raises(TypeError):
        _C._file_save(file, [(1, 2)])
    with pytest.raises((TypeError, ValueError)):
        _C._file_size(1)
