"""The type stub of the package is what scripts/stubs.py makes of the registry now."""

from __future__ import annotations

import subprocess
import sys

import pytest
from source_tree import ROOT

pytestmark = pytest.mark.notorch


def test_stub_is_up_to_date() -> None:
    script = ROOT / "scripts" / "stubs.py"
    run = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
