"""Prints what test_sharding_truth.py counts, row by row.

    python tests/python/sharding_report.py              all rows, a seeded sample of each
    python tests/python/sharding_report.py sum matmul   these
    DTORCH_SOAK=1 python tests/python/sharding_report.py

calls: combinations of samples and placements, also in place and with out=; accepted: answered, and
held against the model; wrong: of those; local: combinations that brute force found to need no
communication, and how many of them dtorch accepts.
"""

from __future__ import annotations

import sys
import time

import sharding_truth as truth
from sharding_reasons import reason
from sharding_samples import CREATION


def main(names: list[str]) -> int:
    counts, found = truth.Counts(), truth.Found()
    begun = time.monotonic()
    print(f"{'row':24}{'calls':>9}{'accepted':>9}{'wrong':>7}{'local':>8}{'accepted':>9}")
    for row, api, schema in truth.REGISTRY:
        if names and row not in names:
            continue
        if row in CREATION:
            right, complete = truth.creation(row), truth.Found()
        else:
            right = truth.correctness(row, schema, api)
            complete = truth.completeness(row, schema)
        counts.add(right)
        found.add(complete)
        print(
            f"{row:24}{right.calls:9}{right.accepted:9}{len(right.failures):7}"
            f"{complete.local:8}{complete.accepted:9}",
            flush=True,
        )
        for text in right.failures[:3]:
            print(f"    wrong: {text[:600]}")
        for text in complete.refused[: None if names else 2]:
            print(f"    refused: {text[:300]}")
        if complete.refused:
            print(f"    because: {reason(row) or 'there is no reason'}")
    share = found.accepted / max(1, found.local)
    print(
        f"{counts.calls:,} calls, {counts.accepted:,} accepted, {len(counts.failures)} wrong; "
        f"{found.local:,} need no communication, {found.accepted:,} of them accepted "
        f"({share:.1%}); {time.monotonic() - begun:.0f} s"
    )
    return 1 if counts.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
