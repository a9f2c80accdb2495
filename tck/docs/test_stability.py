"""The promise of the page on stability: public names, their parameters and defaults are as recorded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kit.surface import RECORD, lines

ROOT = Path(__file__).resolve().parents[2]


def test_the_public_surface_is_the_recorded_one() -> None:
    """A contributor who means the change renews the record, so that the reviewer sees its effect on users."""
    pytest.importorskip("wrapt")
    recorded = RECORD.read_text(encoding="utf-8").splitlines()
    found = lines()

    gone = sorted(set(recorded) - set(found))
    new = sorted(set(found) - set(recorded))

    assert not gone, f"gone or changed: {gone}; if it has to be, python tck/kit/surface.py, and tell in the changelog"
    assert not new, f"new: {new}; python tck/kit/surface.py records it"


def test_the_bounds_on_the_page_are_those_that_are_declared() -> None:
    """A bound that a measurement raised is on the page, and `nox -s lowest` tests it."""
    page = (ROOT / "docs" / "explanation" / "stability.md").read_text(encoding="utf-8")
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

    told = re.findall(r"^\| ([\w-]+) \| ([\d.]+) \|", page, re.MULTILINE)

    assert told
    assert [bound for bound in told if f'"{bound[0].lower()}>={bound[1]}"' not in declared] == []
