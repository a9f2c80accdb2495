"""The page on overload: people write its text, and the simulation fills the tables between two markers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["PAGE", "filled", "names", "shown"]

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "overload.md"

_TABLE = "<!-- simulated: {} -->\n(.*?)<!-- end -->"


def names(text: str) -> list[str]:
    """Return the names of the tables of the page."""
    return re.findall(r"<!-- simulated: (\S+) -->", text)


def shown(text: str, name: str) -> list[str]:
    """Return the lines of a table as the page shows it."""
    found = re.search(_TABLE.format(re.escape(name)), text, re.DOTALL)
    assert found, f"{PAGE.name} has no table {name}"
    return found[1].strip().splitlines()


def filled(text: str, name: str, lines: Iterable[str]) -> tuple[str, bool]:
    """Return the text of the page with a table made anew, and whether it changed."""
    found = re.search(_TABLE.format(re.escape(name)), text, re.DOTALL)
    assert found, f"{PAGE.name} has no table {name}"
    table = "\n" + "\n".join(lines) + "\n\n"
    return text[: found.start(1)] + table + text[found.end(1) :], found[1] != table
