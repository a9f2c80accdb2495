"""Every policy at once in ten thousand orders, and defects that only some orders show."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from faulttolerance.testing import simulate
from kit.mutation import Copy, Mutant, mutants
from kit.simulated import EXPECTED, LINES, SCENARIOS

DEFECTS: Final = mutants("kit/defects.toml")
SEEDS: Final = 10_000
AT_ONCE: Final = 500
"""The most seeds of one test, so that several processes share them."""
RUNS: Final = [
    ("queue", 0, 3000, LINES),
    ("shared", 0, 2000, LINES),
    ("spending", 0, 1400, LINES),
    ("threads", 0, 1500, LINES),
    ("tasks", 0, 1000, ()),  # of one loop: there is no other thread to switch to between their lines
    ("offloaded", 0, 900, ()),
    ("offloaded", 900, 1100, LINES),
]
PARTS: Final = [
    (scenario, begin, min(begin + AT_ONCE, end), lines)
    for scenario, first, end, lines in RUNS
    for begin in range(first, end, AT_ONCE)
]

pytestmark = [pytest.mark.stress, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("scenario", "first", "end", "lines"), PARTS, ids=[f"{scenario}-{first}-{end}" for scenario, first, end, _ in PARTS]
)
def test_guards_keep_their_promises_in_every_order(
    scenario: str, first: int, end: int, lines: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """No limit is exceeded, each call ends once, counts add up, and nothing is held in the end."""
    caplog.set_level(logging.ERROR, logger="faulttolerance")  # circuits open by the thousand
    explored = simulate(SCENARIOS[scenario], range(first, end), switch_in=lines, expected=EXPECTED)

    assert explored.schedules > 0.5 * (end - first)


def test_ten_thousand_seeds_are_run() -> None:
    """A new scenario takes its seeds from the others."""
    assert sum(end - first for _, first, end, _ in PARTS) == SEEDS


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name.partition(":")[0])
def test_planted_defect_is_found_and_replays(defect: Mutant, tmp_path: Path) -> None:
    """A thousand seeds are enough, and the seed that failed fails in the same way again."""
    path = Copy(tmp_path).home / defect.path
    path.write_text(defect.applied_to(path.read_text(encoding="utf-8")), encoding="utf-8")
    (scenario,) = defect.tests
    said = subprocess.run(
        [sys.executable, "-P", tmp_path / "tck" / "kit" / "simulated.py", scenario, "1000"],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout

    assert " fails: " in said
    assert said.endswith("replayed\n")
