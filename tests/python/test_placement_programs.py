"""Random programs on meshes beside one device: placement_programs.py, which `make soak` runs too.

DTORCH_PLACEMENT_PROGRAMS is how many are run here.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter

import placement_programs as programs
import pytest

PROGRAMS = int(os.environ.get("DTORCH_PLACEMENT_PROGRAMS", "400"))


pytestmark = pytest.mark.usefixtures("simulated")


@pytest.mark.timeout(60 + PROGRAMS / 20)
def test_programs() -> None:
    total: Counter[str] = Counter()
    for seeds in programs.batches(0, PROGRAMS):
        total.update(programs.run_seeds(seeds))
    print(f"\nseeds 0 to {PROGRAMS - 1}: {dict(total)}")
    assert total["programs"] == PROGRAMS
    for what in ("accepted", "refused", "written", "moved", "checked"):
        assert total[what] > PROGRAMS // 4


def test_a_wrong_part_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check itself: one op of the mesh that is off by one."""
    true = programs.UNARY[5]
    wrong = ("{0} * 2", lambda x: x * 2 if x.device_mesh.size() == 1 else x * 2 + 1, true[2])
    monkeypatch.setattr(programs, "UNARY", [wrong])
    with pytest.raises(programs.Failure, match=r"seed \d+"):
        programs.run_seeds(range(50))


def test_a_program_is_the_same_again() -> None:
    def text(seed: int) -> list[str]:
        program = programs.Program(seed)
        asyncio.run(program.run())
        return program.text

    assert text(7) == text(7)
