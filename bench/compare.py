"""What the async engine promises, beside torch, torch in threads, and JAX, in one run.

    python bench/compare.py [--only NAME ...] [--quick] [--json build/compare.json] [--plots DIR]

Prints a table and writes the same as JSON; with ``--plots`` also PNG pictures (matplotlib). A ratio
is the peer's time over ours, so more is better. Each line names its target and whether it was met
on this run; lines without one are for information. The exit status is 0 whether or not targets are
met, 1 when a measurement failed (results that differ are a failure).

The sides: torch eager; torch in a ThreadPoolExecutor through ``run_in_executor``;
``asyncio.to_thread``; JAX, jitted, where it is installed. They alternate within this process, or,
where the environment decides (malloc's settings), with a child process that is asked over a pipe.
All have dtorch's number of threads: DTORCH_NUM_THREADS here, torch.set_num_threads, NPROC for XLA.
report.py has the other rules of a fair comparison. A machine that does other work makes every
number worse, ours and theirs: the load is printed, and the quartiles tell how much it moved.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import compare_async
import compare_load
import compare_mesh
import compare_ops
import plots
from report import Measurement, Options, measure_all, write_json

MEASUREMENTS: dict[str, Measurement] = {
    "chain": Measurement(compare_ops.measure_chain, None, ("torch", "numpy")),
    "add": Measurement(compare_ops.measure_add_large, None, ("torch", "numpy")),
    "add-in-place": Measurement(compare_ops.measure_add_in_place, None, ("torch", "numpy")),
    "add-small": Measurement(compare_ops.measure_add_small, None, ("torch",)),
    "memory": Measurement(compare_ops.measure_memory, None),
    "cancel": Measurement(compare_async.measure_cancel),
    "parallel": Measurement(compare_async.measure_parallel),
    "ticker": Measurement(compare_async.measure_ticker),
    "ticker-uvloop": Measurement(compare_async.measure_ticker, "uvloop"),
    "many": Measurement(compare_async.measure_many, None),
    "gather": Measurement(compare_async.measure_gather),
    "latency": Measurement(compare_load.measure_latency, needs=("torch",)),
    "throughput": Measurement(compare_load.measure_throughput, needs=("torch",)),
    "mesh": Measurement(compare_mesh.measure_small, None, ("torch",)),
    "mesh-large": Measurement(compare_mesh.measure_large, None, ("jax", "torch")),
    "jax": Measurement(
        compare_ops.measure_jax, None, ("jax", "torch", "numpy")
    ),  # its threads stay
}


def main() -> int:
    """Measure, print, write, draw. 0, or 1 when a measurement raised."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, help="measure these alone")
    parser.add_argument("--quick", action="store_true", help="about a tenth of the samples")
    parser.add_argument(
        "--json", type=Path, default=Path("build/compare.json"), help="JSON file to write"
    )
    parser.add_argument("--plots", type=Path, metavar="DIR", help="folder for PNG pictures")
    arguments = parser.parse_args()
    report = measure_all(
        MEASUREMENTS, arguments.only or MEASUREMENTS, Options(quick=arguments.quick)
    )
    write_json(report, arguments.json)
    if arguments.plots is not None:
        for path in plots.draw_all(report, arguments.plots):
            print(f"written: {path}")
    return 1 if report["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
