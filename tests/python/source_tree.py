"""The project's C sources as the tests of style and layering see them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
C_FOLDERS = (
    "runtime",
    "scheduler",
    "futures",
    "kernels",
    "collectives",
    "python",
    "tests",
    "bench",
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+(["<])([^">]+)[">]', re.M)


@dataclass(frozen=True)
class Include:
    """One #include line: ``name`` as written, and the file of the tree it means, if any."""

    name: str
    target: str | None


def c_files(root: Path = ROOT, suffixes: tuple[str, ...] = (".c", ".h", ".inc")) -> list[str]:
    """Paths of C files below ``root``, relative to it, sorted."""
    return sorted(
        path.relative_to(root).as_posix()
        for folder in C_FOLDERS
        for path in (root / folder).rglob("*")
        if path.suffix in suffixes and path.is_file()
    )


def includes(root: Path, name: str) -> list[Include]:
    """The #include lines of a file, resolved against its own folder and the root."""
    found = []
    for quote, target in _INCLUDE.findall((root / name).read_text(encoding="utf-8")):
        resolved = None
        candidates = [root / target]
        if quote == '"':
            candidates.insert(0, (root / name).parent / target)
        for candidate in candidates:
            path = candidate.resolve()
            if path.is_file() and path.is_relative_to(root):
                resolved = path.relative_to(root).as_posix()
                break
        found.append(Include(target, resolved))
    return found
