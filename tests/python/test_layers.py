"""The folders' layering: who may include whom, and who may use which library, from one table."""

from __future__ import annotations

from pathlib import Path

import pytest
from source_tree import C_FOLDERS, ROOT, c_files, includes

pytestmark = pytest.mark.notorch

ALL = frozenset(C_FOLDERS) - {"tests", "bench"}

# python -> collectives -> futures -> scheduler -> runtime, and kernels -> runtime. Only python/,
# the tests and the benchmarks wire kernels in.
MAY_INCLUDE = {
    "runtime": {"runtime"},
    "kernels": {"kernels", "runtime"},
    "scheduler": {"scheduler", "runtime"},
    "futures": {"futures", "scheduler", "runtime"},
    "collectives": {"collectives", "futures", "scheduler", "runtime"},
    "python": ALL,
    "tests": ALL | {"tests"},
    "bench": ALL | {"bench"},
}

# Headers of libraries (by the start of their name) and the only folders that know them.
LIBRARIES = {
    "liburing": {"scheduler"},
    "Python.h": {"python"},
    "dnnl": {"kernels"},
    "oneapi/": {"kernels"},
    "cuda": set(),  # loaded at run time: no header of theirs is ever included
    "nccl": set(),
    "check.h": {"tests"},
}


def violations(root: Path) -> list[str]:
    """One line for each include below ``root`` that the tables forbid."""
    found = []
    for name in c_files(root):
        folder = name.split("/")[0]
        for include in includes(root, name):
            if include.target is not None:
                other = include.target.split("/")[0]
                if other not in MAY_INCLUDE[folder]:
                    found.append(f"{name} includes {include.target}")
                continue
            for prefix, folders in LIBRARIES.items():
                if include.name.startswith(prefix) and folder not in folders | {"tests", "bench"}:
                    found.append(f"{name} includes <{include.name}>")
    return found


def test_includes_follow_the_layers() -> None:
    assert violations(ROOT) == []


def test_the_tree_is_seen() -> None:
    """Guards the test above against a tree that moved away from it."""
    assert any(name.startswith("runtime/") for name in c_files())
    assert {name.split("/")[0] for name in c_files()} <= set(MAY_INCLUDE)


def test_onednn_stays_in_one_file() -> None:
    users = [
        name
        for name in c_files()
        if any(i.name.startswith(("dnnl", "oneapi/")) for i in includes(ROOT, name))
        and not name.startswith(("tests/", "bench/"))
    ]
    assert len(users) <= 1, users


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("runtime/a.c", '#include "scheduler/b.h"'),
        ("scheduler/a.c", '#include "kernels/b.h"'),
        ("futures/sub/a.h", "#  include <collectives/b.h>"),
        ("kernels/cpu/a.c", '#include "../../futures/b.h"'),
        ("python/ext/a.c", '#include "tests/b.h"'),
        ("runtime/a.c", "#include <liburing.h>"),
        ("futures/a.c", "#include <Python.h>"),
        ("kernels/cuda/a.c", "#include <cuda_runtime.h>"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, name: str, line: str) -> None:
    for folder in C_FOLDERS:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "b.h").touch()
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"/* a file */\n{line}\n", encoding="utf-8")
    assert len(violations(tmp_path)) == 1


def test_what_is_allowed_is_not_reported(tmp_path: Path) -> None:
    for folder in C_FOLDERS:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "b.h").touch()
    for folder, others in MAY_INCLUDE.items():
        lines = [f'#include "{other}/b.h"\n' for other in sorted(others)]
        (tmp_path / folder / "a.c").write_text("".join(lines), encoding="utf-8")
    assert violations(tmp_path) == []
