"""The conformance report: what became of each test method of the official kit.

``Collector`` notes the outcomes of a run of ``tck/spec``; ``write`` makes three files of them: ``tck/report.json``,
``tck/report.md`` with every entry, and ``docs/reference/conformance.md`` with the totals and what differs. All are
committed. They hold no date, duration or path of a machine, so that the same outcomes always make the same files.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

__all__ = ["OUTCOMES", "Collector", "Entry", "Result", "catalogue", "files", "read", "write"]

ROOT = Path(__file__).resolve().parents[2]
OUTCOMES = ("passed", "failed", "not applicable")

_NO_TEST = "no test claims it"
_NOT_RUN = "a test was skipped, or is expected to fail"


@dataclass(frozen=True)
class Entry:
    """A test method of the official kit."""

    id: str
    area: str
    chapter: str
    applies: str
    remark: str
    """Why it is in another form here, or not here at all; or what is wrong with the official method."""


@dataclass(frozen=True)
class Result:
    """What became of an entry."""

    entry: Entry
    outcome: str
    reason: str
    """Why it did not pass; the entry's remark where it did."""
    tests: tuple[str, ...]
    """The functions that stand for the entry, as ``test_retry.py::test_name``."""


def catalogue() -> list[Entry]:
    """Every test method of the official kit, chapter by chapter."""
    entries = []
    for one in tomllib.loads((ROOT / "tck" / "kit" / "catalogue.toml").read_text(encoding="utf-8"))["class"]:
        remarks = one.get("remarks", {})
        of_kind: dict[str, dict[str, str]] = {
            "yes": {method: remarks.get(method, "") for method in one.get("methods", ())},
            "adapted": one.get("adapted", {}),
            "no": one.get("no", {}),
        }
        for applies, methods in of_kind.items():
            for method, remark in methods.items():
                entries.append(Entry(f"{one['name']}.{method}", one["area"], one["chapter"], applies, remark))
    return entries


class Collector:
    """A plugin that notes which entries the tests of a run claim, and how each test ended."""

    def __init__(self) -> None:
        self._claims: dict[str, tuple[str, ...]] = {}  # by the node id of a test
        self._tests: dict[str, set[str]] = {}  # by entry
        self._troubles: dict[str, set[str]] = {}  # by the node id of a test
        self._changed: list[Path] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            ids = tuple(entry for mark in item.iter_markers("tck") for entry in mark.args)
            self._claims[item.nodeid] = ids
            for entry in ids:
                self._tests.setdefault(entry, set()).add(_function(item))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._troubles.setdefault(report.nodeid, set()).add(f"{report.when} failed")
        elif report.skipped or hasattr(report, "wasxfail"):
            self._troubles.setdefault(report.nodeid, set()).add(_NOT_RUN)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.config.option.collectonly:
            return
        results = self.results()
        self._changed = write(results)
        if self._changed or any(one.outcome == "failed" for one in results):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for path in self._changed:
            terminalreporter.write_line(f"{path.relative_to(ROOT)} was stale; it is new now", yellow=True)

    def results(self) -> list[Result]:
        """What became of every entry of the catalogue, in its order."""
        troubles: dict[str, set[str]] = {}
        for node, ids in self._claims.items():
            for entry in ids:
                troubles.setdefault(entry, set()).update(self._troubles.get(node, ()))
        unknown = self._tests.keys() - {entry.id for entry in catalogue()}
        if unknown:
            raise pytest.UsageError(f"claimed, but not in the catalogue: {', '.join(sorted(unknown))}")
        return [self._result(entry, troubles.get(entry.id, set())) for entry in catalogue()]

    def _result(self, entry: Entry, troubles: set[str]) -> Result:
        tests = tuple(sorted(self._tests.get(entry.id, ())))
        if troubles:
            return Result(entry, "failed", "; ".join(sorted(troubles)), tests)
        if tests:
            return Result(entry, "passed", entry.remark, tests)
        if entry.applies == "no":
            return Result(entry, "not applicable", entry.remark, tests)
        return Result(entry, "failed", _NO_TEST, tests)


def _function(item: pytest.Item) -> str:
    return f"{item.path.name}::{getattr(item, 'originalname', item.name)}"


def read(text: str) -> list[Result]:
    """The results that a ``report.json`` holds."""
    known = {entry.id: entry for entry in catalogue()}
    return [
        Result(known[one["id"]], one["outcome"], one["reason"], tuple(one["tests"]))
        for one in json.loads(text)["entries"]
    ]


def files(results: Iterable[Result]) -> dict[Path, str]:
    """The text of each file of the report."""
    given = list(results)
    return {
        ROOT / "tck" / "report.json": _json(given),
        ROOT / "tck" / "report.md": _markdown(given),
        ROOT / "docs" / "reference" / "conformance.md": _page(given),
    }


def write(results: Iterable[Result]) -> list[Path]:
    """Write the report; give the files that changed."""
    changed = []
    for path, text in files(results).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def _json(results: list[Result]) -> str:
    entries: list[dict[str, Any]] = [
        {
            "id": one.entry.id,
            "area": one.entry.area,
            "chapter": one.entry.chapter,
            "applies": one.entry.applies,
            "outcome": one.outcome,
            "reason": one.reason,
            "tests": one.tests,
        }
        for one in results
    ]
    document = {
        "specification": "MicroProfile Fault Tolerance 4.1",
        "totals": {outcome: sum(one.outcome == outcome for one in results) for outcome in OUTCOMES},
        "entries": entries,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _markdown(results: list[Result]) -> str:
    lines = [
        "# Conformance report",
        "",
        "Every test method of the official test kit of MicroProfile Fault Tolerance 4.1, and what became of the tests",
        "that stand for it, in virtual time, against the built wheel.",
        "Generated by `nox -s tck`, like [report.json](report.json) beside it; do not edit.",
        "",
        *_totals(results),
    ]
    for chapter in _chapters(results):
        lines += ["", f"## {chapter}", "", "| entry | outcome | tests | remark |", "| --- | --- | --- | --- |"]
        for one in results:
            if one.entry.chapter == chapter:
                tests = "<br>".join(f"[{name}](spec/{file})" for file, name in map(_parts, one.tests))
                lines.append(f"| {one.entry.id} | {_word(one)} | {tests} | {_cell(one.reason)} |")
    return "\n".join(lines) + "\n"


def _page(results: list[Result]) -> str:
    changed = [one for one in results if one.entry.applies == "adapted"]
    remarked = [one for one in results if one.entry.applies == "yes" and one.entry.remark]
    failed = [one for one in results if one.outcome == "failed"]
    absent = [one for one in results if one.outcome == "not applicable"]
    lines = [
        "# Conformance",
        "",
        "MicroProfile Fault Tolerance 4.1 comes with a test kit for its implementations, written in Java.",
        "Each of its test methods has a test here that makes the same calls and expects the same numbers.",
        "The tests are in [tck/spec](../../tck/spec); each carries the names of the methods for which it stands.",
        "",
        "This page is generated by `nox -s tck`, which builds the wheel, installs it and runs the tests against it.",
        "[tck/report.md](../../tck/report.md) lists every method with its outcome.",
        "",
        "## Totals",
        "",
        *_totals(results),
        "",
        "Most tests run once for each kind of call: `def`, `async def`, and both of them under `@asynchronous`.",
        "Time is virtual; `pytest tck/spec --real-time` runs the same tests on the system's clock.",
    ]
    lines += _section("Failed", failed, "These do not pass.")
    lines += _section("Not applicable", absent, "These have no meaning in Python.")
    lines += _section(
        "Adapted",
        changed,
        "These rely on something that Java has and Python has not: their form differs, what they check is kept.",
    )
    lines += _section("Defects of the official kit", remarked, "These are tested as the specification says.")
    return "\n".join(lines) + "\n"


def _section(title: str, results: list[Result], meaning: str) -> list[str]:
    if not results:
        return []
    by_reason: dict[str, list[str]] = {}
    for one in results:
        by_reason.setdefault(one.reason if one.outcome == "failed" else one.entry.remark, []).append(one.entry.id)
    rows = [f"| {'<br>'.join(ids)} | {_cell(reason)} |" for reason, ids in by_reason.items()]
    return ["", f"## {title}", "", meaning, "", "| test method | remark |", "| --- | --- |", *rows]


def _totals(results: list[Result]) -> list[str]:
    def row(name: str, some: Iterable[Result]) -> str:
        counted = Counter(one.outcome for one in some)
        return " | ".join([f"| {name}", str(counted.total()), *(str(counted[outcome]) for outcome in OUTCOMES)]) + " |"

    return [
        f"| chapter | entries | {' | '.join(OUTCOMES)} |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(row(chapter, (one for one in results if one.entry.chapter == chapter)) for chapter in _chapters(results)),
        row("**all**", results),
    ]


def _chapters(results: list[Result]) -> Iterator[str]:
    yield from dict.fromkeys(one.entry.chapter for one in results)


def _parts(test: str) -> tuple[str, str]:
    file, _, name = test.partition("::")
    return file, name


def _word(result: Result) -> str:
    return f"**{result.outcome}**" if result.outcome == "failed" else result.outcome


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
