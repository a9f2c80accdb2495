"""Each doubt of `check` has a row on a page, and the examples give no reason for one (rule M4)."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from faulttolerance._command.lints import CODES
from kit.program import command_line

ROOT = Path(__file__).resolve().parents[2]


def test_every_code_has_a_row() -> None:
    """Rule M4: the rows are in the order of the codes."""
    page = (ROOT / "docs" / "reference" / "doubts.md").read_text(encoding="utf-8")

    assert re.findall(r"^\| `(FT\d+)` \|", page, re.MULTILINE) == [*CODES]


EXAMPLES = [*sorted((ROOT / "examples" / "everyday").glob("*.py")), ROOT / "examples" / "storefront" / "service.py"]


@pytest.mark.outside
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_nothing_is_doubted_of_the_examples(example: Path) -> None:
    """Rule M4: readers copy examples, and would soon switch a wrong doubt off."""
    pytest.importorskip("typer")
    if example.stem == "service":
        pytest.importorskip("httpx")
    done = command_line("check", "--strict", example.stem, folder=example.parent, environment=os.environ)

    assert "[FT" not in done.stderr, done.stderr
