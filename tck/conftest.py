"""Rules for every test: no state of a test reaches the next one."""

from __future__ import annotations

import gc
import sys
import sysconfig
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

import hypothesis
import pytest

import faulttolerance
from faulttolerance import testing
from faulttolerance._guard.declare import registry
from faulttolerance._guard_value.guard import _named as named_guards
from faulttolerance._guard_value.guard_resolver import GuardResolver
from kit import CONVENTIONS, Clock, Invoke, report, tiers
from kit.garbage import collect_garbage, uncollected
from kit.interpreter import switching_every

pytest_plugins = ["kit.fixtures"]

# How long an example takes says nothing about it on a machine that does other things meanwhile.
hypothesis.settings.register_profile(
    "busy machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("busy machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("official test kit")
    group.addoption("--real-time", action="store_true", help="let time pass as it does, instead of virtually")
    group.addoption(
        "--time-factor", type=float, default=1.0, metavar="N", help="widen the tolerances in real time by this factor"
    )
    group.addoption(
        "--conformance-report", action="store_true", help="renew the page on conformance; fail if it was stale"
    )
    group.addoption("--conformance-entries", type=Path, metavar="FILE", help="write what became of every entry to FILE")
    group.addoption(
        tiers.OPTION, action="append", choices=[*tiers.TIERS, "all"], default=[], help="the tests to run; repeatable"
    )
    group.addoption("--installed", action="store_true", help="refuse to test anything but an installed wheel")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--installed"):
        tested = Path(faulttolerance.__file__).resolve()
        if not tested.is_relative_to(Path(sysconfig.get_path("purelib")).resolve()):
            raise pytest.UsageError(f"the package under test is {tested.parent}, which is not installed")
    config.pluginmanager.register(tiers.Tiers(config), "tiers")
    config.pluginmanager.register(tiers.SafeReports(), "safe-reports")
    if hasattr(config, "workerinput"):  # a process of pytest-xdist
        tiers.ignore_threads_of_the_runner()
    if hasattr(config, "workerinput") and sys.platform != "win32":
        config.pluginmanager.register(tiers.OneAlone(Path(config.option.basetemp).parent), "one-alone")
        if not config.option.durations:
            config.pluginmanager.register(tiers.ShortReports(), "short-reports")
    page = report.PAGE if config.getoption("--conformance-report") else None
    entries = config.getoption("--conformance-entries")
    if page or entries:
        config.pluginmanager.register(report.Collector(page, entries), "conformance-report")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leave imported and collected objects out of garbage collections, of which there are thousands."""
    with uncollected():
        # With its first example Hypothesis looks for the owner of its random numbers; it finds none that is left out.
        hypothesis.find(hypothesis.strategies.none(), lambda _: True)
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Leave the reports of all tests out of the last collections, which pytest makes: they take seconds."""
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Collect guards that earlier tests left in cycles, refused ones too: ``validate`` reports all that live."""
    code = getattr(getattr(item, "function", None), "__code__", None)
    programs = (text for text in getattr(code, "co_consts", ()) if isinstance(text, str) and "validate(" in text)
    if code is None or "validate" in code.co_names or any(programs) or "page" in getattr(item, "fixturenames", ()):
        collect_garbage()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Refuse threads that a test leaves, and forget circuits, counts, configuration and names of guards after it.

    Declarations stay. One fixture for all of it: each takes its time in each of many thousand tests.
    """
    threads, named, living = set(threading.enumerate()), set(named_guards), set(registry._guards)
    yield
    try:
        refuse_threads_but(threads)
    finally:
        forget_runtime_state(named, living)


def refuse_threads_but(before: set[threading.Thread]) -> None:
    """Refuse a test after which a thread is left that would hold the interpreter's exit."""
    left = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    for thread in left:
        thread.join(1.0)
    alive = [thread.name for thread in left if thread.is_alive()]
    assert not alive, f"threads left behind: {alive}"


def forget_runtime_state(named: Collection[str], living: Collection[object]) -> None:
    """Forget the state of guards, and close those whose names are not among *named*."""
    for name in named_guards.keys() - named:
        named_guards[name].close()
    testing.reset()
    if any(isinstance(one(), GuardResolver) for one in registry._guards.keys() - living):
        collect_garbage()  # a cycle holds a guard whose name the next test may look for


@pytest.fixture(params=CONVENTIONS)
def invoke(request: pytest.FixtureRequest, clock: Clock) -> Invoke:
    """Return the way to call: the test runs once for each, unless it chooses among them by ``@conventions``."""
    return Invoke(request.param, clock)


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Switch threads every few steps within the test."""
    with switching_every(1e-6):
        yield
