"""The cost of guarding in instructions of the interpreter and in bytes, which no machine and no load changes."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.outside, pytest.mark.alone]  # instructions and bytes of whole processes

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}{getattr(sys, 'abiflags', '')}"  # 3.13t is another one


MOST_FILES = {
    "def, first call": 41,
    "def, healthy": 2,
    "def, failing, with fallback": 12,
    "def, failing, with fallback, logged": 15,
    "async def, first call": 41,
    "async def, healthy": 3,
    "async def, failing, with fallback": 15,
    "async def, failing, with fallback, logged": 18,
}
"""The files that a call passes: of a healthy one the shell of the method, the attempt, the deadline of a coroutine."""


@cache
def count(what: str = "instructions", *options: str) -> dict[str, Any]:
    """Count instructions or bytes by operation, once, in a program whose sinks no test has changed."""
    # As a script: the root of the project is not on its path, so that an installed wheel is what is counted.
    done = subprocess.run([sys.executable, BENCHMARKS / f"{what}.py", *options], check=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def recorded(what: str) -> dict[str, int]:
    """Return the recorded figures for this version of Python."""
    found: dict[str, int] | None = json.loads((BENCHMARKS / f"{what}.json").read_text(encoding="utf-8")).get(VERSION)
    if found is None:
        pytest.skip(f"nothing is recorded for Python {VERSION}")
    return found


def dearer(what: str) -> dict[str, tuple[int, int]]:
    """Return the figures that exceed their record by more than a tenth: now, and then."""
    before, now = recorded(what), count(what)
    assert now.keys() == before.keys()
    return {name: (now[name], before[name]) for name in now if now[name] > before[name] * 1.1}


def test_no_guarded_call_takes_a_tenth_more_instructions_than_was_recorded() -> None:
    """Cost drifts by small steps that no timing on a busy machine shows; more than 10 % needs a decision."""
    found = dearer("instructions")

    assert not found, f"(now, recorded): {found}; if it has to be, python -m benchmarks.record"


def test_a_tracer_without_a_span_costs_a_call_in_trouble_one_question() -> None:
    """It makes no event and no text, and where OpenTelemetry's context is empty, the look-up of a span is left out."""
    pytest.importorskip("opentelemetry.trace")
    alone, beside = count("instructions"), count("instructions", "--beside", "opentelemetry.trace")

    assert beside["refused"] < 1.3 * alone["refused"]
    assert beside["retried_once"] < 1.12 * alone["retried_once"]


def test_no_guarded_method_takes_a_tenth_more_memory_than_was_recorded() -> None:
    """The memory of each of thousands of guarded methods grows as silently."""
    found = dearer("memory")

    assert not found, f"(now, recorded): {found}; if it has to be, python -m benchmarks.record"


def test_counting_twice_gives_the_same_figures() -> None:
    """A figure that changes by itself would prove nothing."""
    assert count.__wrapped__() == count()


def test_no_call_passes_more_files_than_it_has_to() -> None:
    """Each further file is a step for a reader of a traceback, and for a healthy call a price that every call pays."""
    files = {kind: list(passed) for kind, passed in count("passing", "--json").items()}

    assert {kind: names for kind, names in files.items() if len(names) > MOST_FILES[kind]} == {}
