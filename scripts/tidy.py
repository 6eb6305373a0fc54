"""Runs clang-tidy over the project's C files in parallel: ``tidy.py CLANG_TIDY BUILD_DIR``.

A file that passed is not looked at again until it, a header, its flags or the configuration
change. A file that is compiled for several instruction sets is checked in one of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("runtime", "scheduler", "futures", "collectives", "kernels", "python", "tests", "bench")


def main(clang_tidy: str, build_dir: str) -> int:
    out = ROOT / "build" / "tidy"
    out.mkdir(parents=True, exist_ok=True)
    commands: dict[str, dict[str, str]] = {}
    for entry in json.loads((Path(build_dir) / "compile_commands.json").read_text()):
        commands.setdefault(entry["file"], entry)
    (out / "compile_commands.json").write_text(json.dumps(list(commands.values())))

    shared = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".h", ".inc", ".def"}:
                shared.update(path.read_bytes())

    def check(name: str) -> bool:
        key = shared.copy()
        key.update(Path(name).read_bytes() + commands[name]["command"].encode())
        stamp = out / (hashlib.sha256(name.encode()).hexdigest()[:16] + ".ok")
        if stamp.exists() and stamp.read_text() == key.hexdigest():
            return True
        run = subprocess.run(
            [clang_tidy, "--quiet", "-p", str(out), name], capture_output=True, text=True
        )
        if run.returncode != 0:
            print(f"{Path(name).relative_to(ROOT)}:\n{run.stdout}{run.stderr}", flush=True)
            return False
        stamp.write_text(key.hexdigest())
        return True

    with ThreadPoolExecutor(int(os.environ.get("JOBS") or os.cpu_count() or 1)) as pool:
        results = list(pool.map(check, sorted(commands)))
    print(f"clang-tidy: {len(results)} files, {results.count(False)} with findings")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
