"""asyncio.run that leaves ops behind: the process ends well and says nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

pytestmark = pytest.mark.notorch

RUNS = int(os.environ.get("DTORCH_LEFT_BEHIND", "24"))

CODE = """
import asyncio, random, sys
import dtorch
from dtorch import _C

random.seed(int(sys.argv[1]))
kept = []

def work(n):
    x = dtorch.ones(n, n)
    if random.random() < 0.3:
        x = _C._hold(x, random.choice([0.001, 5.0]))
    for _ in range(random.randrange(1, 12)):
        x = random.choice([lambda t: t @ t * 1e-3, lambda t: t * 2 + 1, lambda t: t.sum(0) + t])(x)
    if random.random() < 0.5:
        kept.append(x)
    return x

async def one(n):
    t = work(n)
    how = random.randrange(5)
    if how == 0:
        await t
    elif how == 1:
        await dtorch.gather(t, work(n))
    elif how == 2:
        kept.append(t.to_torch_async() if "torch" in sys.modules else t)
    elif how == 3:
        async with dtorch.limit(2):
            await t

async def main():
    asyncio.get_running_loop().slow_callback_duration = 60  # a busy machine is no news
    tasks = [asyncio.ensure_future(one(random.choice([3, 60, 300]))) for _ in range(20)]
    await asyncio.sleep(random.choice([0, 0.002, 0.02]))
    for task in tasks:
        if random.random() < 0.7:
            task.cancel()
    kept.append(tasks)

asyncio.run(main())
"""


def leave(seed: int) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", CODE, str(seed)],
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(600)
def test_what_is_left_behind_is_silent() -> None:
    with ThreadPoolExecutor(2) as pool:
        for seed, outcome in enumerate(pool.map(leave, range(RUNS))):
            assert outcome == (0, ""), f"seed {seed}"
