"""The conformance report: the result of each test method of the official kit.

``Collector`` records the outcomes of a run of ``tck/spec`` and makes ``docs/reference/conformance.md`` of them, with
the totals and the differences. The page is committed; it holds no date, duration or path of a machine, so that the same
outcomes always make the same page. Every entry with its outcome and its tests is written where
``--conformance-entries FILE`` asks for it.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "conformance.md"
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
    """The reason why it has another form here, or is not here at all; or the fault of the official method."""


@dataclass(frozen=True)
class Result:
    """The outcome of an entry."""

    entry: Entry
    outcome: str
    reason: str
    """The reason why it did not pass; the entry's remark where it did."""
    tests: tuple[str, ...]
    """The functions that stand for the entry, as ``test_retry.py::test_name``."""


def catalogue() -> list[Entry]:
    """Return every test method of the official kit, chapter by chapter."""
    entries = []
    for official in tomllib.loads((ROOT / "tck" / "kit" / "catalogue.toml").read_text(encoding="utf-8"))["class"]:
        remarks = official.get("remarks", {})
        of_kind: dict[str, dict[str, str]] = {
            "yes": {method: remarks.get(method, "") for method in official.get("methods", ())},
            "adapted": official.get("adapted", {}),
            "no": official.get("no", {}),
        }
        for applies, methods in of_kind.items():
            for method, remark in methods.items():
                entries.append(
                    Entry(f"{official['name']}.{method}", official["area"], official["chapter"], applies, remark)
                )
    return entries


class Collector:
    """A plugin that records the entries that the tests of a run claim, and the end of each test.

    It writes the *page* on conformance, and fails where that was stale; and the table of all *entries*.
    """

    def __init__(self, page: Path | None, entries: Path | None) -> None:
        self._page = page
        self._entries = entries
        self._claims: dict[str, tuple[str, ...]] = {}  # by the node id of a test
        self._tests: dict[str, set[str]] = {}  # by entry
        self._troubles: dict[str, set[str]] = {}  # by the node id of a test
        self._was_stale = False

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
        if self._entries is not None:
            self._entries.write_text(every_entry(results), encoding="utf-8")
        if self._page is not None:
            text = page(results)
            self._was_stale = not self._page.exists() or self._page.read_text(encoding="utf-8") != text
            self._page.write_text(text, encoding="utf-8")
        if self._was_stale or any(result.outcome == "failed" for result in results):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._was_stale:
            terminalreporter.write_line(f"{self._page} was stale; it is new now", yellow=True)

    def results(self) -> list[Result]:
        """Return the result of every entry of the catalogue, in its order."""
        troubles: dict[str, set[str]] = {}
        for node, ids in self._claims.items():
            for entry in ids:
                troubles.setdefault(entry, set()).update(self._troubles.get(node, ()))
        unknown = self._tests.keys() - {entry.id for entry in catalogue()}
        if unknown:
            raise pytest.UsageError(f"claimed, but not in the catalogue: {', '.join(sorted(unknown))}")
        return [result_of(entry, self._tests.get(entry.id, ()), troubles.get(entry.id, ())) for entry in catalogue()]


def result_of(entry: Entry, tests: Iterable[str], troubles: Iterable[str] = ()) -> Result:
    """Return the result of *entry*, given the tests that stand for it and their failures."""
    names = tuple(sorted(tests))
    if reasons := sorted(troubles):
        return Result(entry, "failed", "; ".join(reasons), names)
    if names:
        return Result(entry, "passed", entry.remark, names)
    if entry.applies == "no":
        return Result(entry, "not applicable", entry.remark, names)
    return Result(entry, "failed", _NO_TEST, names)


def _function(item: pytest.Item) -> str:
    return f"{item.path.name}::{getattr(item, 'originalname', item.name)}"


def every_entry(results: list[Result]) -> str:
    """Return a table for each chapter: every entry, its outcome, and the tests that stand for it."""
    lines = [
        "# Conformance report",
        "",
        "Every test method of the official test kit of MicroProfile Fault Tolerance 4.1, and what became of the tests",
        "that stand for it.",
        "",
        *_totals(results),
    ]
    for chapter in _chapters(results):
        lines += ["", f"## {chapter}", "", "| entry | outcome | tests | remark |", "| --- | --- | --- | --- |"]
        lines += [
            f"| {result.entry.id} | {_word(result)} | {'<br>'.join(result.tests)} | {_cell(result.reason)} |"
            for result in results
            if result.entry.chapter == chapter
        ]
    return "\n".join(lines) + "\n"


def page(results: list[Result]) -> str:
    """Return the page on conformance: the totals, and the differences."""
    changed = [result for result in results if result.entry.applies == "adapted"]
    remarked = [result for result in results if result.entry.applies == "yes" and result.entry.remark]
    failed = [result for result in results if result.outcome == "failed"]
    absent = [result for result in results if result.outcome == "not applicable"]
    lines = [
        "# Conformance",
        "",
        "MicroProfile Fault Tolerance 4.1 comes with a test kit for its implementations, written in Java.",
        "Each of its test methods has a test here that makes the same calls and expects the same numbers.",
        "The tests are in [tck/spec](../../tck/spec); each carries the names of the methods for which it stands.",
        "",
        "This page is generated by `nox -s tck`, which builds the wheel, installs it and runs the tests against it.",
        "`pytest tck/spec --conformance-entries FILE` lists every method with its outcome and its tests.",
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
    for result in results:
        by_reason.setdefault(result.reason if result.outcome == "failed" else result.entry.remark, []).append(
            result.entry.id
        )
    rows = [f"| {'<br>'.join(ids)} | {_cell(reason)} |" for reason, ids in by_reason.items()]
    return ["", f"## {title}", "", meaning, "", "| test method | remark |", "| --- | --- |", *rows]


def _totals(results: list[Result]) -> list[str]:
    def row(name: str, some: Iterable[Result]) -> str:
        counted = Counter(result.outcome for result in some)
        return " | ".join([f"| {name}", str(counted.total()), *(str(counted[outcome]) for outcome in OUTCOMES)]) + " |"

    return [
        f"| chapter | entries | {' | '.join(OUTCOMES)} |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(
            row(chapter, (result for result in results if result.entry.chapter == chapter))
            for chapter in _chapters(results)
        ),
        row("**all**", results),
    ]


def _chapters(results: list[Result]) -> Iterator[str]:
    yield from dict.fromkeys(result.entry.chapter for result in results)


def _word(result: Result) -> str:
    return f"**{result.outcome}**" if result.outcome == "failed" else result.outcome


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
