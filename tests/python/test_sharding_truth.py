"""Every op of the registry on meshes of 2, 3 and 2x2 beside a single device (sharding_truth.py).

A seeded sample of samples and placements; DTORCH_SOAK=1 takes all of them. What is counted is
printed by `python tests/python/sharding_report.py`.
"""

from __future__ import annotations

import numpy as np
import pytest
import sharding_model as model
import sharding_truth as truth
import torch
from sharding_reasons import reason
from sharding_samples import CREATION

ROWS = truth.REGISTRY
LIMIT = pytest.mark.timeout(6000 if truth.SOAK else 60)


def test_the_model_cuts_as_torch_chunk() -> None:
    for size in range(12):
        for n in (1, 2, 3, 4, 7):
            pieces = [len(x) for x in torch.chunk(torch.arange(size), n)]
            pieces += [0] * (n - len(pieces))
            ends = [model.chunk(size, n, k) for k in range(n)]
            assert [b - a for a, b in ends] == pieces
            assert ends[-1][1] == size


@pytest.mark.parametrize("mesh", [(2,), (3,), (2, 2), (2, 3)])
def test_the_model_joins_what_it_cut(mesh: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    for dtype in ("float32", "int64", "bool"):
        full = (rng.integers(-8, 9, (5, 4)) / 2).astype(dtype)
        for placements in truth.choices(full, mesh):
            parts = model.cut(full, mesh, placements, rng)
            assert model.explain(parts, mesh, placements, full) == ""
            assert (model.join(parts, mesh, placements) == full).all()
            if any(p.is_partial for p in placements) and dtype != "bool":
                assert any(not model.equal(p, parts[0]) for p in parts)


def test_the_model_sees_what_is_wrong() -> None:
    rng = np.random.default_rng(1)
    full = np.arange(20, dtype="float32").reshape(5, 4)
    for placements in truth.choices(full, (3,)):
        parts = model.cut(full, (3,), placements, rng)
        parts[0] = parts[0] + 1
        if placements[0].kind != "max":  # where another part may still be the greatest
            assert model.explain(parts, (3,), placements, full) != ""
    parts = model.cut(full, (3,), (model.shard(0),), rng)
    assert model.explain(parts, (3,), (model.shard(1),), full) != ""


def test_every_row_has_samples() -> None:
    without = [
        row for row, _, schema in ROWS if row not in CREATION and not truth.usable(row, schema)
    ]
    assert without == []


@LIMIT
@pytest.mark.parametrize(("row", "api", "schema"), ROWS, ids=[r[0] for r in ROWS])
def test_right(row: str, api: str, schema: str) -> None:
    if row in CREATION:
        counts = truth.creation(row)
    else:
        counts = truth.correctness(row, schema, api)
    assert counts.accepted > 0
    assert counts.failures == [], f"{len(counts.failures)} of {counts.calls}:\n" + "\n".join(
        counts.failures[:5]
    )


@pytest.mark.timeout(36000 if truth.SOAK else 300)
def test_complete() -> None:
    """Of what needs no communication nine tenths are accepted; what is refused has a reason."""
    total = truth.Found()
    for row, _, schema in ROWS:
        if row in CREATION:
            continue
        found = truth.completeness(row, schema)
        total.add(found)
        assert not found.refused or reason(row), (row, found.refused)
    print(f"\n{total.local} combinations need no communication, {total.accepted} are accepted")
    assert total.local > 2000
    assert total.accepted >= 0.9 * total.local
