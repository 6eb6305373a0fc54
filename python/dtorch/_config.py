"""What this build and this process use: show_config(), and the self-check of python -m dtorch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from . import _C


def _version(package: str) -> str:
    from importlib import metadata  # slow to import, and rarely needed

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def config() -> dict[str, Any]:
    """Versions, CPU features in use, I/O backend and why, threads; starts the runtime."""
    import os
    import platform

    core = _C._config()
    return {
        "dtorch": core["version"],
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "torch": _version("torch"),
        "onednn": _version("onednn-cpu-gomp"),
        "cpu": core["cpu"],
        "io": core["io"],
        "io_reason": core["io_reason"],
        "threads": core["threads"],
        "cores": len(os.sched_getaffinity(0)),
        "ops": core["ops"],
    }


def show_config() -> None:
    """Prints config()."""
    c = config()
    print(f"dtorch {c['dtorch']} on Python {c['python']} ({sys.platform})")
    print(f"  CPU kernels   {c['cpu']}")
    print(f"  I/O backend   {c['io']}: {c['io_reason']}")
    print(f"  threads       {c['threads']} (of {c['cores']} usable cores)")
    print(f"  registry      {c['ops']} ops")
    print(f"  oneDNN {c['onednn']}, numpy {c['numpy']}, torch {c['torch']}")


def _check_elementwise() -> bool:
    import dtorch

    a = dtorch.arange(10, dtype="float32")
    return bool((a + a * 2).tolist() == [3.0 * i for i in range(10)])


def _check_matmul() -> bool:
    import dtorch

    a = dtorch.arange(6, dtype="float32").reshape(2, 3)
    return bool((a @ a.T).tolist() == [[5.0, 14.0], [14.0, 50.0]])


def _check_reduction() -> bool:
    import dtorch

    return bool(dtorch.ones(1 << 20).sum().item() == float(1 << 20))


def _check_await() -> bool:
    import asyncio

    import dtorch

    async def run() -> float:
        x = dtorch.ones(512, 512)
        for _ in range(4):
            x = (x @ dtorch.eye(512)) + 1
        y = await x
        return float((await y.sum()).item())

    return asyncio.run(run()) == 5.0 * 512 * 512


def self_check() -> list[tuple[str, bool, str]]:
    """Small computations with known results: (name, passed, what went wrong)."""
    checks: list[tuple[str, Callable[[], bool]]] = [
        ("element-wise", _check_elementwise),
        ("matrix product", _check_matmul),
        ("reduction", _check_reduction),
        ("await", _check_await),
    ]
    results = []
    for name, check in checks:
        try:
            passed, why = check(), "wrong result"
        except Exception as error:
            passed, why = False, f"{type(error).__name__}: {error}"
        results.append((name, passed, "" if passed else why))
    return results
