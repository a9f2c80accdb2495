"""What a guarded call costs, counted in instructions of the interpreter: no machine and no load changes that."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def count() -> dict[str, int]:
    """Instructions by what is called, counted by an interpreter in which no other test has changed who listens."""
    # As a script: the root of the project is not on its path, so that an installed wheel is what is counted.
    done = subprocess.run([sys.executable, BENCHMARKS / "instructions.py"], check=True, stdout=subprocess.PIPE)
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_no_guarded_call_takes_a_tenth_more_instructions_than_was_recorded() -> None:
    """Cost drifts by small steps that no timing on a busy machine shows: beyond 10 % is a decision to be taken."""
    recorded = json.loads((BENCHMARKS / "instructions.json").read_text(encoding="utf-8")).get(VERSION)
    if recorded is None:
        pytest.skip(f"nothing is recorded for Python {VERSION}")

    counted = count()

    assert counted.keys() == recorded.keys()
    dearer = {name: (counted[name], recorded[name]) for name in counted if counted[name] > recorded[name] * 1.1}
    assert not dearer, f"(now, recorded): {dearer}; if it has to be, python -m benchmarks.instructions --record"


def test_counting_twice_gives_the_same_figures() -> None:
    """A figure that moves by itself would guard against nothing."""
    assert count() == count()
