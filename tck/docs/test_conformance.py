"""The committed conformance report is what a run of the kit would write: ``nox -s tck`` makes it anew."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit import report

SPEC = report.ROOT / "tck" / "spec"
RESULTS = report.read((report.ROOT / "tck" / "report.json").read_text(encoding="utf-8"))


def claims(path: Path) -> set[str]:
    """The ids in the markers of a file, wherever in it they stand."""
    known = {entry.id for entry in report.catalogue()}
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value in known}


def functions(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text(encoding="utf-8"), str(path)).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield f"{path.name}::{node.name}"


@pytest.mark.parametrize("path", report.files(RESULTS), ids=lambda path: path.name)
def test_file_of_the_report_is_as_generated(path: Path) -> None:
    """Nobody edits a file of the report, and all three say the same."""
    assert path.read_text(encoding="utf-8") == report.files(RESULTS)[path]


def test_report_has_every_entry_of_the_catalogue() -> None:
    """The entries, and their order, are the catalogue's."""
    assert [one.entry for one in RESULTS] == report.catalogue()


def test_no_entry_has_failed() -> None:
    """Every entry that applies passes; one that does not says why."""
    assert [one.entry.id for one in RESULTS if one.outcome == "failed"] == []
    assert {one.entry.applies for one in RESULTS if one.outcome == "passed"} == {"yes", "adapted"}
    assert all(one.reason for one in RESULTS if one.outcome == "not applicable")


def test_report_names_the_tests_that_claim_an_entry() -> None:
    """A marker that was added, moved or taken away shows; so does a test that was renamed."""
    claimed = {(path.name, entry) for path in SPEC.glob("test_*.py") for entry in claims(path)}
    written = {test for path in SPEC.glob("test_*.py") for test in functions(path)}

    assert {(test.partition("::")[0], one.entry.id) for one in RESULTS for test in one.tests} == claimed
    assert {test for one in RESULTS for test in one.tests} <= written
