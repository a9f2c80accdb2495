"""The tests that run: three tiers by the needs of a test, and a lock for tests beside which no other may run.

``pytest`` without a path runs the tier *default*: one process, virtual time. Tests marked ``outside`` need programs,
servers, browsers or forks; tests marked ``stress`` press for seconds. A path or ``-m`` runs all that it names.
"""

from __future__ import annotations

import gc
import re
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from faulttolerance.testing import thread_observer

__all__ = [
    "OPTION",
    "TIERS",
    "OneAlone",
    "SafeReports",
    "ShortReports",
    "Tiers",
    "few_and_many",
    "ignore_threads_of_the_runner",
    "seeds",
    "tier_of",
]

TIERS = ("default", "outside", "stress")
OPTION = "--tier"
_MARKED_WHOLE = re.compile(r"^pytestmark = .*\bmark\.(outside|stress)\b", re.MULTILINE)


def tier_of(item: pytest.Item) -> str:
    """Return the tier of a test: the last of those that it is marked with."""
    return next((tier for tier in reversed(TIERS) if item.get_closest_marker(tier) is not None), TIERS[0])


def few_and_many(name: str, few: object, many: object, of: str = "") -> pytest.MarkDecorator:
    """Parametrize a test by *name*: *few* of it in the tier default, *many* in the tier *stress*.

    The id of a case names the things *of* which there are few or many; or *name*, if *of* is empty.
    """
    of = of or name
    cases = [pytest.param(few, id=f"few {of}"), pytest.param(many, marks=pytest.mark.stress, id=f"many {of}")]
    return pytest.mark.parametrize(name, cases)


def seeds(few: int, many: int) -> pytest.MarkDecorator:
    """Parametrize a test by *seed*: the first *few* in the tier default, the rest of *many* in the tier *stress*."""
    stress = [pytest.param(seed, marks=pytest.mark.stress) for seed in range(few, many)]
    return pytest.mark.parametrize("seed", [*range(few), *stress])


def chosen_by(config: pytest.Config) -> tuple[str, ...]:
    """Return the tiers that the command line asks for."""
    if hasattr(config, "workerinput"):
        return tuple(config.workerinput["tiers"])
    named = config.getoption(OPTION)
    if not named and (config.args_source is pytest.Config.ArgsSource.ARGS or config.getoption("markexpr")):
        return TIERS
    return tuple(tier for tier in TIERS if tier in (named or TIERS[:1]) or "all" in named)


class Tiers:
    """Deselects the tests of other tiers, and reports at the end which tiers did not run."""

    def __init__(self, config: pytest.Config) -> None:
        self._chosen = chosen_by(config)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send the tiers to a process of pytest-xdist, whose command line is not the user's."""
        node.workerinput["tiers"] = self._chosen

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out a file whose tests all are of other tiers: its imports, such as a framework, take long."""
        if collection_path.suffix != ".py":
            return None
        mark = _MARKED_WHOLE.search(collection_path.read_text(encoding="utf-8"))
        # One of its tests may have the mark of a later tier as well.
        return True if mark and set(self._chosen).isdisjoint(TIERS[TIERS.index(mark[1]) :]) else None

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen: list[pytest.Item] = []
        others: list[pytest.Item] = []
        for item in items:
            (chosen if tier_of(item) in self._chosen else others).append(item)
        if others:
            config.hook.pytest_deselected(items=others)
            items[:] = chosen

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        missing = [tier for tier in TIERS if tier not in self._chosen]
        if missing:
            options = " ".join(f"{OPTION}={tier}" for tier in missing)
            terminalreporter.write_line(f"Tiers that did not run: {', '.join(missing)} (run them by {options})")


class SafeReports:
    """Writes reports that cannot end the whole run."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Remove characters from a report that cannot be sent, such as a lone surrogate in a captured log."""
        # Nothing is collected meanwhile: a finalizer that formats a traceback parses a line, and two that parse at once
        # fail before CPython 3.11.8, the one that reports the failure of a test as well.
        collects = gc.isenabled()
        gc.disable()
        try:
            report = yield
        finally:
            if collects:
                gc.enable()
        report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
        return report


class ShortReports:
    """Reports each test by one message instead of five, which take a tenth of a run; a failure reports all of it.

    The processes of pytest-xdist send messages when a test begins, is set up, called, torn down and ends.
    """

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if report.when == "call" or not report.passed:
                item.ihook.pytest_runtest_logreport(report=report)
        return True


class OneAlone:
    """Runs each test marked ``alone`` while the other processes of pytest-xdist run none.

    Args:
        folder: Where the processes of one run lock files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # outside the timer of pytest-timeout: waiting is not the test's
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        with self._turn(exclusive=item.get_closest_marker("alone") is not None):
            return (yield)

    @contextmanager
    def _turn(self, *, exclusive: bool) -> Iterator[None]:
        import fcntl

        with ExitStack() as stack:
            turnstile, running = (
                stack.enter_context((self._folder / name).open("w")) for name in ("turnstile", "running")
            )
            # A process that waits to be alone holds the turnstile, so that no other one begins a test meanwhile.
            fcntl.flock(turnstile, fcntl.LOCK_EX)
            fcntl.flock(running, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            fcntl.flock(turnstile, fcntl.LOCK_UN)
            yield
            fcntl.flock(running, fcntl.LOCK_UN)  # explicitly: a child of the test may have the file open


def ignore_threads_of_the_runner() -> None:
    """Exclude the threads that run now, but this one, from the threads for which virtual time waits.

    One of pytest-xdist reads commands. Each clock would look at it for some real milliseconds until it seems to wait.
    """
    runners, parked = sys._current_frames().keys() - {threading.get_ident()}, thread_observer._parked
    thread_observer._parked = lambda: parked() | runners
