"""tests/python/pending.py: what is patient tries again where it was too slow, and only there."""

from __future__ import annotations

import time

import pending
import pytest
from pending import STRETCHES, Stalled, held, meanwhile, patient

pytestmark = pytest.mark.notorch


def test_what_ends_in_time_is_run_once() -> None:
    runs: list[float] = []

    @patient
    def quick() -> None:
        with meanwhile(10.0):
            runs.append(pending.stretched(0.001))

    quick()
    assert runs == [0.001]


def test_what_is_too_late_gets_more_time() -> None:
    runs: list[float] = []

    @patient
    def slow() -> None:
        runs.append(pending.stretched(0.001))
        with meanwhile(0.001):
            t = held(0.001)
            if len(runs) < 2:
                time.sleep(0.002)
                assert not t.is_ready()  # too late to tell anything
            else:
                time.sleep(0.002)
        assert t.tolist() == [7.0] * 4

    try:
        slow()
    except Stalled:  # this machine is slow, too
        pass
    assert runs[:2] == [0.001, 0.008]
    assert pending.stretched(0.001) == 0.001


def test_what_is_always_too_late_fails() -> None:
    runs: list[float] = []

    @patient
    def wrong() -> None:
        runs.append(pending.stretched(0.001))
        with meanwhile(0.001):
            time.sleep(pending.stretched(0.001))

    with pytest.raises(Stalled):
        wrong()
    assert runs == [0.001 * k for k in STRETCHES]


def test_what_fails_in_time_fails_at_once() -> None:
    runs = 0

    @patient
    def wrong() -> None:
        nonlocal runs
        runs += 1
        with meanwhile(50.0):
            assert not held(0.0).tolist()

    with pytest.raises(AssertionError):
        wrong()
    assert runs == 1


def test_outside_of_it_nothing_is_tried_again() -> None:
    runs = 0

    @patient
    def wrong() -> None:
        nonlocal runs
        runs += 1
        with meanwhile(50.0):
            pass
        raise KeyError

    with pytest.raises(KeyError):
        wrong()
    assert runs == 1
