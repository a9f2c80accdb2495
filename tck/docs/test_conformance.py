"""The committed page on conformance is what a run of the kit would write: ``nox -s tck`` makes it anew."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from kit import report

SPEC = report.ROOT / "tck" / "spec"
ENTRIES = report.catalogue()


KNOWN = {entry.id for entry in ENTRIES}


def claims(path: Path) -> set[str]:
    """Return the ids in the markers of a file, wherever in it they stand."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value in KNOWN}


@cache
def results() -> list[report.Result]:
    """Return the results of a run in which no test fails; each file stands for the tests in it."""
    files = {path.name: claims(path) for path in SPEC.glob("test_*.py")}
    return [report.result_of(entry, [file for file in files if entry.id in files[file]]) for entry in ENTRIES]


def test_page_is_as_generated() -> None:
    """An edit of the page shows, and so does a marker that was added or removed, if its entry has no other."""
    assert report.PAGE.read_text(encoding="utf-8") == report.page(results())


def test_no_entry_has_failed() -> None:
    """Every entry that applies passes; an entry that does not apply has a reason."""
    assert [result.entry.id for result in results() if result.outcome == "failed"] == []
    assert {result.entry.applies for result in results() if result.outcome == "passed"} == {"yes", "adapted"}
    assert all(result.reason for result in results() if result.outcome == "not applicable")


def test_table_of_all_entries_leaves_none_out() -> None:
    table = report.every_entry(results())

    assert [
        result.entry.id
        for result in results()
        if f"| {result.entry.id} | {result.outcome} | {'<br>'.join(result.tests)} |" not in table
    ] == []
