"""save_checkpoint and load_checkpoint: values, which bytes are read, and how a folder can be wrong.

The files are looked at by the format's description, without dtorch. Devices are simulated.
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import random
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dtorch
import pytest
from dtorch import _C, _checkpoint
from dtorch._safetensors import DTYPES, SafetensorsError
from dtorch.distributed_spec import DeviceMesh, Partial, Replicate, Shard, init_device_mesh
from pending import FAILURE, failing, hold, meanwhile, patient

pytestmark = [pytest.mark.notorch, pytest.mark.usefixtures("simulated")]

Run = Callable[[Any], Any]
INDEX = "model.safetensors.index.json"
S0, S1, R = Shard(0), Shard(1), Replicate()


def mesh_of(*shape: int) -> DeviceMesh:
    return init_device_mesh("cpu", shape, [("dp", "tp", "pp")[d] for d in range(len(shape))])


def numbered(*shape: int, dtype: str = "float32") -> Any:
    """0, 1, 2, ..., which for bool is true but for the first."""
    return dtorch.arange(math.prod(shape)).to(dtype=dtype).view(shape)


def placed(tensor: Any, mesh: DeviceMesh, *placements: Any) -> Any:
    return dtorch.Tensor(tensor, device_mesh=mesh, placements=list(placements))


def index_of(folder: Path) -> dict[str, Any]:
    root: dict[str, Any] = json.loads((folder / INDEX).read_text("utf-8"))
    return root


def entries_of(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """name -> (dtype, shape, bytes) of a safetensors file."""
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    assert header.pop("__metadata__") == {"format": "pt"}
    found = {}
    for name, info in header.items():
        begin, end = info["data_offsets"]
        found[name] = (info["dtype"], info["shape"], raw[8 + size + begin : 8 + size + end])
    return found


def save(state: dict[str, Any], folder: Path, **options: Any) -> None:
    dtorch.save_checkpoint(state, folder, **options).get()


def values(tensor: Any) -> Any:
    return tensor.tolist()


# ---- round trips ---------------------------------------------------------------------------------


def test_a_folder_on_disk(tmp_path: Path) -> None:
    """Who writes what, and that replicas are written once."""
    mesh = mesh_of(2, 2)
    state = {
        "cut": placed(numbered(4, 6), mesh, S0, S1),
        "half": placed(numbered(4, 2), mesh, R, S0),
        "same": placed(numbered(8), mesh, R, R),
        "plain": numbered(3),
    }
    save(state, tmp_path, metadata={"step": "7"})
    root = index_of(tmp_path)
    assert root["metadata"] == {"step": "7", "total_size": 4 * (24 + 8 + 8 + 3)}
    files = [f"model-0000{k}-of-00004.safetensors" for k in range(1, 5)]
    assert {path.name for path in tmp_path.iterdir()} == {INDEX, *files}
    entries = {}
    for name in files:
        for key, entry in entries_of(tmp_path / name).items():
            assert root["weight_map"].pop(key) == name
            entries[key] = entry
    assert root["weight_map"] == {}
    assert sum(len(data) for _, _, data in entries.values()) == root["metadata"]["total_size"]
    assert entries["same"][:2] == ("F32", [8])
    assert entries["plain"] == ("F32", [3], struct.pack("<3f", 0, 1, 2))
    assert set(root["dtorch"]["cut"]) == {"cut", "half"}
    info = root["dtorch"]["cut"]["cut"]
    assert (info["dtype"], info["shape"]) == ("F32", [4, 6])
    for piece in info["pieces"]:
        (row, column), (rows, columns) = piece["start"], piece["size"]
        assert entries[piece["key"]][2] == b"".join(
            struct.pack(f"<{columns}f", *range(6 * r + column, 6 * r + column + columns))
            for r in range(row, row + rows)
        )
    assert sorted(piece["start"] for piece in info["pieces"]) == [[0, 0], [0, 3], [2, 0], [2, 3]]


@pytest.mark.parametrize("dtype", [name for name, _ in DTYPES.values()])
def test_every_dtype_goes_from_mesh_to_mesh_to_plain(dtype: str, tmp_path: Path, run: Run) -> None:
    first, second = mesh_of(2, 2), mesh_of(3)
    source = numbered(7, 5, dtype=dtype)
    states = [placed(source, first, S0, S1), placed(source, first, S1, S1), source.t()]

    async def main() -> None:
        state = {f"w{k}": tensor for k, tensor in enumerate(states)}
        await dtorch.save_checkpoint(state, tmp_path / "a")
        moved = await dtorch.load_checkpoint(tmp_path / "a", second, {"*": [S1]})
        for name, tensor in moved.items():
            assert tensor.device_mesh == second and tensor.placements == [S1]
            assert tensor._dtype_name == dtype
            assert values(tensor) == values(state[name])
        await dtorch.save_checkpoint(moved, tmp_path / "b")
        plain = await dtorch.load_checkpoint(tmp_path / "b")
        for name, tensor in plain.items():
            assert _C.dist_spec(tensor) is None
            assert tensor._dtype_name == dtype and values(tensor) == values(state[name])

    run(main())


SHAPES = [(), (1,), (5,), (0,), (2, 0), (7, 5), (1, 9), (8, 8), (3, 4, 5), (2, 3, 2, 5)]
MESHES = [(1,), (2,), (3,), (4,), (2, 2), (2, 3), (2, 1, 2)]


@pytest.mark.parametrize("seed", range(40))
def test_any_layout_to_any_layout(seed: int, tmp_path: Path) -> None:
    """Uneven and empty parts, dims cut twice, with runs of any length: every device's part is what
    redistribute() gives it."""
    rng = random.Random(seed)
    state, shapes = {}, {}

    def layout(mesh: DeviceMesh, rank: int) -> list[Any]:
        return [
            Shard(rng.randrange(rank)) if rank and rng.random() < 0.7 else R for _ in mesh.shape
        ]

    for k, shape in enumerate(SHAPES):
        mesh = mesh_of(*rng.choice(MESHES))
        shapes[f"t{k}"] = shape
        state[f"t{k}"] = placed(numbered(*shape), mesh, *layout(mesh, len(shape)))
    save(state, tmp_path)
    mesh = mesh_of(*rng.choice(MESHES))
    plan = {name: layout(mesh, len(shape)) for name, shape in shapes.items()}
    before = _checkpoint.RUN_BYTES_MIN
    _checkpoint.RUN_BYTES_MIN = rng.choice([1, 16, 64, before])
    try:
        loaded = dtorch.load_checkpoint(tmp_path, mesh, plan)
    finally:
        _checkpoint.RUN_BYTES_MIN = before
    assert sorted(loaded) == sorted(state)
    for name, shape in shapes.items():
        expected = placed(numbered(*shape), mesh, *plan[name])
        assert loaded[name].placements == plan[name]
        for index in range(mesh.size()):
            ours, theirs = loaded[name].to_local(index), expected.to_local(index)
            assert tuple(ours.shape) == tuple(theirs.shape)
            assert values(ours) == values(theirs), (name, index)


def test_partial_is_reduced_first(tmp_path: Path) -> None:
    mesh = mesh_of(2, 2)
    parts = [numbered(3, 2) * (k + 1) for k in range(4)]
    summed = dtorch.Tensor.from_local(parts, mesh, [S0, Partial()])
    extreme = dtorch.Tensor.from_local([parts[k // 2] for k in range(4)], mesh, [Partial("max"), R])
    expected = values(dtorch.cat([parts[0] + parts[1], parts[2] + parts[3]])), values(parts[1])
    save({"sum": summed, "max": extreme}, tmp_path)
    loaded = dtorch.load_checkpoint(tmp_path)
    assert (values(loaded["sum"]), values(loaded["max"])) == expected
    again = dtorch.load_checkpoint(tmp_path, mesh, {"sum": {"tp": Partial()}})
    assert again["sum"].placements == [R, Partial()]
    assert values(again["sum"]) == expected[0]


def test_in_place_after_the_call_does_not_show(tmp_path: Path, run: Run) -> None:
    """Case 19, on a mesh and off it; what is saved is still being computed."""
    mesh = mesh_of(2, 2)

    async def main() -> None:
        plain = _C._hold(dtorch.ones(1000, 10), 0.05)
        spread = placed(dtorch.ones(1000, 10), mesh, S0, R)
        saving = dtorch.save_checkpoint({"plain": plain, "spread": spread}, tmp_path)
        plain.add_(1)
        spread.add_(1)
        await saving
        loaded = await dtorch.load_checkpoint(tmp_path)
        changed = spread.full_tensor()
        for tensor, value in [*((t, 1) for t in loaded.values()), (plain, 2), (changed, 2)]:
            assert (await tensor).tolist() == [[value] * 10] * 1000

    run(main())


def test_tensors_that_are_still_being_loaded_are_saved(tmp_path: Path, run: Run) -> None:
    mesh = mesh_of(4)

    async def main() -> None:
        await dtorch.save_checkpoint({"a": numbered(90, 7), "b": numbered(11)}, tmp_path / "a")
        state = dtorch.load_checkpoint(tmp_path / "a", mesh, {"a": [S1]})
        await dtorch.save_checkpoint(state, tmp_path / "b")
        loaded = await dtorch.load_checkpoint(tmp_path / "b")
        assert values(loaded["a"]) == values(numbered(90, 7))
        assert values(loaded["b"]) == values(numbered(11))

    run(main())


def test_an_empty_state_and_odd_names(tmp_path: Path) -> None:
    save({}, tmp_path / "empty")
    assert dict(dtorch.load_checkpoint(tmp_path / "empty")) == {}
    mesh = mesh_of(2)
    state = {
        "w": placed(numbered(4), mesh, S0),
        "w@0": numbered(2),
        "w@2@": numbered(3),
        "": numbered(1),
    }
    save(state, tmp_path / "odd", metadata={"é": "ü"})
    loaded = dtorch.load_checkpoint(tmp_path / "odd")
    assert {name: values(t) for name, t in loaded.items()} == {
        n: values(t) for n, t in state.items()
    }
    assert loaded.metadata == {"é": "ü"}


def test_a_default_mesh_is_where_a_checkpoint_goes(tmp_path: Path) -> None:
    save({"w": numbered(4)}, tmp_path)
    mesh = mesh_of(2)
    with mesh:
        assert dtorch.load_checkpoint(tmp_path)["w"].device_mesh == mesh
    with mesh_of(3):
        state = dtorch.load_checkpoint(tmp_path, mesh, {"w": {"dp": S0}})
    assert state["w"].device_mesh == mesh and state["w"].placements == [S0]


# ---- which bytes are read ------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The sizes in bytes of all reads of tensors."""
    sizes: list[int] = []
    inner = _C._file_load

    def load(file: Any, entries: list[Any]) -> Any:
        item = dict(DTYPES.values())
        sizes.extend(math.prod(shape) * item[dtype] for dtype, shape, _ in entries)
        return inner(file, entries)

    monkeypatch.setattr(_C, "_file_load", load)
    yield sizes


@pytest.mark.parametrize("saved", [[S0, S1], [R, R], [R, S1]])
def test_only_what_is_needed_is_read_and_once(
    saved: list[Any], tmp_path: Path, reads: list[int]
) -> None:
    mesh = mesh_of(2, 2)
    save({"w": placed(numbered(64, 64), mesh, *saved)}, tmp_path)
    for placements in ([S0, S1], [R, R], [S0, R], [R, S0], [S1, S0], [S0, S0]):
        reads.clear()
        loaded = dtorch.load_checkpoint(tmp_path, mesh, {"w": placements})
        assert values(loaded["w"]) == values(numbered(64, 64))
        assert sum(reads) == 64 * 64 * 4, placements


def test_every_device_has_bytes_of_its_own(tmp_path: Path) -> None:
    save({"w": numbered(4, 4)}, tmp_path)
    mesh = mesh_of(2, 2)
    for placements in ([R, R], [S1, R], [R, S1], [S0, S0]):
        loaded = dtorch.load_checkpoint(tmp_path, mesh, {"w": placements})["w"]
        loaded.add_(1)
        for index in range(4):
            expected = placed(numbered(4, 4) + 1, mesh, *placements).to_local(index)
            assert values(loaded.to_local(index)) == values(expected)


def test_long_runs_are_read_without_what_is_between(
    tmp_path: Path, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mesh of which one device's box alone is asked for: its columns, and no others."""
    save({"w": numbered(8, 64)}, tmp_path)
    saved = _checkpoint._Checkpoint(str(tmp_path)).tensors["w"]
    monkeypatch.setattr(_checkpoint, "RUN_BYTES_MIN", 32)
    assert values(saved._box((2, 16), (4, 8))) == values(numbered(8, 64)[2:6, 16:24])
    assert reads == [32] * 4
    reads.clear()
    monkeypatch.setattr(_checkpoint, "RUN_BYTES_MIN", 33)
    assert values(saved._box((2, 16), (4, 8))) == values(numbered(8, 64)[2:6, 16:24])
    assert reads == [4 * 64 * 4]


# ---- other libraries' folders --------------------------------------------------------------------


def test_folders_of_other_libraries(tmp_path: Path) -> None:
    both = tmp_path / "indexed"
    both.mkdir()
    dtorch.save_safetensors({"a": numbered(4, 4)}, both / "x.safetensors").get()
    dtorch.save_safetensors({"b": numbered(3)}, both / "y.safetensors").get()
    index = {
        "metadata": {"total_size": 76},
        "weight_map": {"a": "x.safetensors", "b": "y.safetensors"},
    }
    (both / INDEX).write_text(json.dumps(index))
    mesh = mesh_of(3)
    loaded = dtorch.load_checkpoint(both, mesh, {"a": [S1]})
    assert {n: values(t) for n, t in loaded.items()} == {
        "a": values(numbered(4, 4)),
        "b": [0, 1, 2],
    }
    save({"a": numbered(1)}, both)  # in the place of it, but its files are not ours to remove
    assert (both / "x.safetensors").exists()
    assert values(dtorch.load_checkpoint(both)["a"]) == [0]

    single = tmp_path / "single"
    single.mkdir()
    dtorch.save_safetensors(
        {"a": numbered(4)}, single / "model.safetensors", metadata={"x": "y"}
    ).get()
    loaded = dtorch.load_checkpoint(single, mesh, {"a": [S0]})
    assert values(loaded["a"]) == [0, 1, 2, 3]
    assert loaded.metadata == {"x": "y"}


# ---- replacing, dying ----------------------------------------------------------------------------


def test_a_save_replaces_the_former_one(tmp_path: Path, run: Run) -> None:
    mesh = mesh_of(2)

    async def main() -> None:
        for turn in range(3):
            await dtorch.save_checkpoint({"w": placed(numbered(4) + turn, mesh, S0)}, tmp_path)
            assert len(os.listdir(tmp_path)) == 3
            loaded = await dtorch.load_checkpoint(tmp_path)
            assert values(loaded["w"]) == values(numbered(4) + turn)

    run(main())


def test_a_load_under_way_is_not_harmed_by_a_save(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        await dtorch.save_checkpoint({"w": numbered(1 << 20)}, tmp_path)
        loading = dtorch.load_checkpoint(tmp_path)
        await dtorch.save_checkpoint({"w": numbered(1 << 20) + 1}, tmp_path)
        same = ((await loading)["w"] == numbered(1 << 20)).all()
        assert await same

    run(main())


@patient
def test_of_several_saves_the_last_called_stays(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        with meanwhile(0.3):
            slow = dtorch.save_checkpoint({"w": hold(numbered(4), 0.3)}, tmp_path)
            quick = dtorch.save_checkpoint({"w": numbered(4) + 1}, tmp_path)
            await quick
            assert quick.done() and not slow.done()
        await slow
        assert values((await dtorch.load_checkpoint(tmp_path))["w"]) == [1, 2, 3, 4]
        assert len(os.listdir(tmp_path)) == 2

    run(main())


def test_threads_save_to_one_folder(tmp_path: Path) -> None:
    """Each save is whole; the one with the highest number stays, alone."""
    saves: list[tuple[int, int]] = []

    def work(thread: int) -> None:
        for turn in range(5):
            saving = dtorch.save_checkpoint({"w": numbered(100) + (10 * thread + turn)}, tmp_path)
            saves.append((saving._number, 10 * thread + turn))
            saving.get()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(os.listdir(tmp_path)) == 2
    expected = numbered(100) + max(saves)[1]
    assert values(dtorch.load_checkpoint(tmp_path)["w"]) == values(expected)


def test_nobody_need_await_it(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        dtorch.save_checkpoint({"w": numbered(4)}, tmp_path)
        gc.collect()
        while not (tmp_path / INDEX).exists():
            await asyncio.sleep(0.001)

    run(main())
    assert values(dtorch.load_checkpoint(tmp_path)["w"]) == [0, 1, 2, 3]


def test_nobody_need_wait_where_no_loop_runs(tmp_path: Path) -> None:
    saving = dtorch.save_checkpoint({"w": numbered(4)}, tmp_path)
    while not saving.done():
        time.sleep(0.001)
    assert values(dtorch.load_checkpoint(tmp_path)["w"]) == [0, 1, 2, 3]


@patient
def test_get_may_time_out(tmp_path: Path) -> None:
    with meanwhile(0.1):
        saving = dtorch.save_checkpoint({"w": hold(numbered(4), 0.1)}, tmp_path)
        with pytest.raises(TimeoutError):
            saving.get(0.001)
    assert saving.get(50) is None and saving.done()


def test_a_name_that_cannot_be_taken_fails_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rename(source: str, target: str) -> None:
        raise PermissionError(1, "no", target)

    save({"w": numbered(4)}, tmp_path)
    files = sorted(os.listdir(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(_checkpoint.os, "rename", rename)
        with pytest.raises(PermissionError, match="model-00001-of-00001-1"):
            save({"w": numbered(5)}, tmp_path)
    assert sorted(os.listdir(tmp_path)) == files
    assert values(dtorch.load_checkpoint(tmp_path)["w"]) == [0, 1, 2, 3]


@patient
def test_a_cancelled_await_lets_the_save_go_on(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        with meanwhile(0.05):
            saving = dtorch.save_checkpoint({"w": hold(numbered(4), 0.05)}, tmp_path)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(saving, 0.001)
        await saving
        await saving

    run(main())
    assert values(dtorch.load_checkpoint(tmp_path)["w"]) == [0, 1, 2, 3]


PROGRAM = """
import os, sys
import dtorch
from dtorch import _C
state = {"w": _C._hold(dtorch.ones(1000), 1.0)}
saving = dtorch.save_checkpoint(state, sys.argv[1])
assert not saving.done()
if sys.argv[2] == "die":
    os._exit(7)
if sys.argv[2] == "fork":
    child = os.fork()
    if child == 0:
        sys.exit(0)  # with all that is done at exit
    os.waitpid(child, 0)
    saving.get()
"""


def program(folder: Path, how: str) -> int:
    return subprocess.run([sys.executable, "-c", PROGRAM, str(folder), how]).returncode


@pytest.mark.parametrize("how", ["end", "fork"])
def test_the_end_of_the_program_completes_a_save(how: str, tmp_path: Path) -> None:
    """That of a child that inherited it does not disturb it."""
    assert program(tmp_path, how) == 0
    assert (dtorch.load_checkpoint(tmp_path)["w"] == 1).all()


def test_a_death_leaves_the_former_checkpoint(tmp_path: Path) -> None:
    save({"w": numbered(4)}, tmp_path)
    assert program(tmp_path, "die") == 7
    assert any(path.suffix == ".new" for path in tmp_path.iterdir())
    assert values(dtorch.load_checkpoint(tmp_path)["w"]) == [0, 1, 2, 3]
    save({"w": numbered(5)}, tmp_path)
    assert values(dtorch.load_checkpoint(tmp_path)["w"]) == [0, 1, 2, 3, 4]


# ---- errors --------------------------------------------------------------------------------------


def test_a_failed_tensor_fails_the_save_and_leaves_the_former(tmp_path: Path, run: Run) -> None:
    save({"w": numbered(4)}, tmp_path)
    files = sorted(tmp_path.iterdir())

    async def main() -> None:
        saving = dtorch.save_checkpoint({"good": numbered(4), "bad": failing(0.01)}, tmp_path)
        for _ in range(2):
            with pytest.raises(RuntimeError, match=FAILURE):
                await saving

    run(main())
    assert sorted(tmp_path.iterdir()) == files
    assert values(dtorch.load_checkpoint(tmp_path)["w"]) == [0, 1, 2, 3]


def test_wrong_arguments_of_save(tmp_path: Path) -> None:
    for state, metadata, error, text in (
        ({"w": 1}, None, TypeError, "'w' must be a dtorch.Tensor, not int"),
        ({1: numbered(1)}, None, TypeError, "names are strings, not int"),
        ({"__metadata__": numbered(1)}, None, ValueError, "'__metadata__' is no name"),
        ({}, {"a": 1}, TypeError, "metadata must map strings"),
        ({}, {"total_size": "1"}, ValueError, "'total_size' is the index's own"),
    ):
        with pytest.raises(error, match=text):
            dtorch.save_checkpoint(state, tmp_path / "x", metadata)  # type: ignore[arg-type]
    assert not (tmp_path / "x").exists()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileExistsError):
        dtorch.save_checkpoint({}, tmp_path / "file")


def test_wrong_arguments_of_load(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=INDEX):
        dtorch.load_checkpoint(tmp_path)
    save({"w": numbered(4)}, tmp_path)
    with pytest.raises(ValueError, match="a plan needs a device_mesh"):
        dtorch.load_checkpoint(tmp_path, None, {"w": [S0]})
    with pytest.raises(TypeError, match="device_mesh must be a DeviceMesh, not str"):
        dtorch.load_checkpoint(tmp_path, "cpu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"load_checkpoint\(\): plan entry 'v' matches no tensor"):
        dtorch.load_checkpoint(tmp_path, mesh_of(2), {"v": [S0]})


def change(root: dict[str, Any], how: str) -> None:
    info = root["dtorch"]["cut"]["w"]
    piece = info["pieces"][0]
    if how == "no map":
        del root["weight_map"]
    elif how == "path":
        root["weight_map"]["p"] = "../x"
    elif how == "version":
        root["dtorch"]["version"] = 2
    elif how == "cut":
        root["dtorch"]["cut"] = []
    elif how == "entry":
        info["dtype"] = "F99"
    elif how == "bounds":
        piece["start"] = [9]
    elif how == "no file":
        del root["weight_map"][piece["key"]]
    elif how == "key":
        root["weight_map"]["q"] = root["weight_map"]["p"]
    elif how == "shape":
        piece["size"] = [1]
    elif how == "dtype":
        info["dtype"] = "I32"
    elif how == "overlap":
        info["pieces"].append(piece)
    elif how == "hole":
        info["pieces"].pop()
    elif how == "short":
        info["shape"] = [6]


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("no map", "no object 'weight_map'"),
        ("path", "'../x' is no name of a file in the folder"),
        ("version", "version 2, only 1 can be read"),
        ("cut", "'dtorch' has no object 'cut'"),
        ("entry", "'w': its entry in 'cut' is malformed"),
        ("bounds", "'w': its entry in 'cut' is malformed or has wrong sizes"),
        ("no file", "'w': no file is named for its piece 'w@0'"),
        ("key", "'q': the file model-0000[12]-of-00002.safetensors has no entry 'q'"),
        ("shape", r"its piece 'w@0' is float32 of shape \[2\] in .*, float32 of shape \[1\]"),
        ("dtype", r"is float32 of shape .* int32 of shape"),
        ("overlap", r"its pieces at \(0,\) and \(0,\) overlap"),
        ("hole", "2 of its elements are in no piece"),
        ("short", "2 of its elements are in no piece"),
    ],
)
def test_a_wrong_index_says_what_is_wrong(how: str, text: str, tmp_path: Path) -> None:
    save({"w": placed(numbered(4), mesh_of(2), S0), "p": numbered(2)}, tmp_path)
    root = index_of(tmp_path)
    change(root, how)
    (tmp_path / INDEX).write_text(json.dumps(root))
    with pytest.raises(SafetensorsError, match=text) as caught:
        dtorch.load_checkpoint(tmp_path)
    assert INDEX in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"weight_map": {"a": "x", "a": "y"}}', "\xff"])
def test_an_index_that_is_no_json(text: str, tmp_path: Path) -> None:
    (tmp_path / INDEX).write_bytes(text.encode("latin-1"))
    with pytest.raises(SafetensorsError, match=INDEX):
        dtorch.load_checkpoint(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    save({"w": placed(numbered(4), mesh_of(2), S0)}, tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"missing, which has tensor 'w'.*model-00002-of-00002"
    ):
        dtorch.load_checkpoint(tmp_path)


@pytest.mark.parametrize("left", [0, 7, 40, -1])
def test_a_truncated_file_is_named(left: int, tmp_path: Path) -> None:
    save({"w": placed(numbered(4), mesh_of(2), S0)}, tmp_path)
    path = tmp_path / "model-00002-of-00002.safetensors"
    os.truncate(path, left if left >= 0 else path.stat().st_size + left)
    with pytest.raises(SafetensorsError, match=r"model-00002-of-00002.*truncated"):
        dtorch.load_checkpoint(tmp_path)
