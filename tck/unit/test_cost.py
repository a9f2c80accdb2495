"""What a guarded call costs, counted in instructions of the interpreter: no machine and no load changes that."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

INSTRUCTIONS = Path(__file__).parents[2] / "benchmarks" / "instructions.py"


def _instructions() -> ModuleType:
    # By its path: the root of the project is not on the path, so that an installed wheel is what is tested.
    spec = importlib.util.spec_from_file_location("benchmark_instructions", INSTRUCTIONS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_guarded_call_takes_a_tenth_more_instructions_than_was_recorded() -> None:
    """Cost drifts by small steps that no timing on a busy machine shows: beyond 10 % is a decision to be taken."""
    instructions = _instructions()
    recorded = instructions.recorded().get(instructions.VERSION)
    if recorded is None:
        pytest.skip(f"nothing is recorded for Python {instructions.VERSION}")

    counted = instructions.count()

    assert counted.keys() == recorded.keys()
    dearer = {name: (counted[name], recorded[name]) for name in counted if counted[name] > recorded[name] * 1.1}
    assert not dearer, f"(now, recorded): {dearer}; if it has to be, python -m benchmarks.instructions --record"


def test_counting_twice_gives_the_same_figures() -> None:
    """A figure that moves by itself would guard against nothing."""
    instructions = _instructions()

    assert instructions.count() == instructions.count()
