"""The style that no formatter checks: file comments, sizes, headers that stand alone, no cycles."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from source_tree import ROOT, c_files, includes

pytestmark = pytest.mark.notorch

LINES_MAX = 800
COLUMNS_MAX = 100
PYTHON_FOLDERS = ("python", "scripts", "bench", "examples")  # tests are long by nature

C_FILES = c_files()
HEADERS = [name for name in C_FILES if name.endswith(".h")]
PYTHON_FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in PYTHON_FOLDERS
    for path in (ROOT / folder).rglob("*.py")
)
TEST_FILES = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "tests").rglob("*.py"))


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", C_FILES)
def test_c_file(name: str) -> None:
    """Opens with what it is for, and keeps to the limits on lines and columns."""
    content = text(name)
    lines = content.splitlines()
    assert content.startswith("/*"), "a file opens with a comment that says what it is for"
    assert len(content[: content.index("*/")].split()) >= 4, "the file comment says nothing"
    assert len(lines) <= LINES_MAX, f"{len(lines)} lines"
    assert "\t" not in content, "tabs"
    long = [n for n, line in enumerate(lines, 1) if len(line) > COLUMNS_MAX]
    assert not long, f"lines over {COLUMNS_MAX} columns: {long}"
    assert content.endswith("\n") and not content.endswith("\n\n"), "one newline at the end"
    blank = [n for n, line in enumerate(lines, 1) if line != line.rstrip()]
    assert not blank, f"white space at the end of lines {blank}"


@pytest.mark.parametrize("name", PYTHON_FILES + TEST_FILES)
def test_python_file(name: str) -> None:
    content = text(name)
    lines = content.splitlines()
    if name in PYTHON_FILES:
        assert len(lines) <= LINES_MAX, f"{len(lines)} lines"
    assert "\t" not in content, "tabs"
    long = [n for n, line in enumerate(lines, 1) if len(line) > COLUMNS_MAX]
    assert not long, f"lines over {COLUMNS_MAX} columns: {long}"
    if content.strip():
        assert content.startswith(('"""', "#!", 'r"""')), "a module opens with its docstring"


@pytest.mark.parametrize("name", HEADERS)
def test_header_compiles_alone(name: str) -> None:
    """Every header brings what it needs, in whatever order it is included, and twice."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    options = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    options += ["-DDT_ISA_SUFFIX=base", "-DDT_ISA_LEVEL=0", "-D_GNU_SOURCE"]
    options += ["-I", str(ROOT), "-I", sysconfig.get_path("include")]
    options += ["-I", str(Path(sys.prefix) / "include")]
    if platform.machine() == "x86_64":
        options.append("-march=x86-64-v2")
    run = subprocess.run(
        [compiler, *options, "-fsyntax-only", "-x", "c", "-"],
        input=f'#include "{name}"\n#include "{name}"\n',
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def find_cycle(graph: dict[str, list[str]]) -> list[str]:
    """A cycle of the graph as a path that ends where it began, or []."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for other in graph.get(node, []):
            cycle = visit(other, [*path, node])
            if cycle:
                return cycle
        done.add(node)
        return []

    for start in graph:
        cycle = visit(start, [])
        if cycle:
            return cycle
    return []


def test_headers_do_not_include_each_other_in_a_circle() -> None:
    graph = {
        name: [i.target for i in includes(ROOT, name) if i.target is not None] for name in C_FILES
    }
    assert find_cycle(graph) == []


def test_find_cycle_finds_one() -> None:
    assert find_cycle({"a": ["b"], "b": ["c"], "c": []}) == []
    assert find_cycle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]
    assert find_cycle({"a": ["a"]}) == ["a", "a"]
