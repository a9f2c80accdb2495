"""A test names and holds every trap in the list on the page ``what-was-tried.md``."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "what-was-tried.md"

_LISTED = re.compile(r"^\| (\d+) \| \S.*\. \|$", re.MULTILINE)
_CITED = re.compile(r"\btrap (\d+)\b", re.IGNORECASE)

TRAPS = [int(number) for number in _LISTED.findall(PAGE.read_text(encoding="utf-8").partition("\n## Traps\n")[2])]


@cache
def cited() -> frozenset[int]:
    """Return the numbers that tests name."""
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "tck").rglob("test_*.py") if path != Path(__file__))
    return frozenset(int(number) for text in texts for number in _CITED.findall(text))


def test_the_list_is_whole() -> None:
    """The numbers are those of the design, from first to last."""
    assert [*range(1, 36)] == TRAPS


@pytest.mark.parametrize("trap", TRAPS)
def test_a_test_holds_each_trap(trap: int) -> None:
    assert trap in cited()


def test_no_test_names_a_trap_that_is_not_listed() -> None:
    assert cited() <= set(TRAPS)
