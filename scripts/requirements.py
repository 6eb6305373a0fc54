"""Prints requirements from pyproject.toml, one a line, for the sets named on the command line.

``build`` is what the build needs (without its back end, which an in-tree build does not use),
``run`` is what an installed dtorch depends on; any other name is an extra.
"""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    # Python 3.10 has no TOML reader, but every pip that can install this project carries one.
    from pip._vendor import tomli as tomllib


def main(names: list[str]) -> None:
    path = Path(__file__).resolve().parent.parent / "pyproject.toml"
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    project = data["project"]
    sets = {
        "build": [r for r in data["build-system"]["requires"] if "scikit" not in r],
        "run": project["dependencies"],
        **project["optional-dependencies"],
    }
    for requirement in sorted({r for name in names for r in sets[name]}):
        print(requirement)


if __name__ == "__main__":
    main(sys.argv[1:])
