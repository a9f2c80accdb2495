"""A text for the effective configuration, the same for the same configuration (rule Y4)."""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from faulttolerance import ChronoUnit, Guard, configure, fingerprint, guards, reload, retry, testing, timeout
from faulttolerance._metrics.counters import ledger
from faulttolerance.policies import CircuitBreaker, Fallback, Retry, Timeout
from kit.program import LIBRARY, python

SHAPE = re.compile(r"[0-9a-f]{16}")

PROGRAM = """
from faulttolerance import *
from faulttolerance.policies import *
{}
class Client:
    @retry(retry_on={}, delay="500ms")
    @fallback(lambda context: None)
    def charge(self): ...

class Other(Client): ...
hosts = [Guard(circuit_breaker=CircuitBreaker()) for _ in range({})]
{}
print(fingerprint())
"""


def seen(
    first: str = "",
    retry_on: str = "(OSError, KeyError)",
    hosts: int = 1,
    last: str = "",
    after: str | None = None,
    **variables: str,
) -> str:
    program = PROGRAM.format(first, retry_on, hosts, last)
    done = python(program, environment={**os.environ, **variables}, after=after)
    assert done.stderr == ""
    return done.stdout.strip()


def of(**policies: Any) -> str:
    guard = Guard(**policies, name="compared")
    try:
        (mine,) = [one for one in guards() if one.name == "compared"]
        return mine.fingerprint
    finally:
        guard.close()


@pytest.mark.outside
def test_it_is_the_same_in_every_process() -> None:
    """Earlier calls, their order and the writing of sets do not matter; objects have no address in it."""
    same = {
        seen(PYTHONHASHSEED="1"),
        seen(PYTHONHASHSEED="2"),
        seen(retry_on="[KeyError, OSError]"),
        seen(last="Other().charge()"),
        seen(hosts=3, last="hosts[1].call(int)"),
    }

    assert len(same) == 1
    assert SHAPE.fullmatch(same.pop())


@pytest.mark.outside
def test_every_value_and_switch_changes_it() -> None:
    one_more = "extra = Guard(timeout=Timeout('5ms'), name='extra')"
    different = [
        seen(after=LIBRARY),
        seen(after=LIBRARY, FAULTTOLERANCE_RETRY_MAXRETRIES="7"),
        seen(after=LIBRARY, FAULTTOLERANCE_RETRY_ENABLED="false"),
        seen(after=LIBRARY, MP_FAULT_TOLERANCE_METRICS_ENABLED="false"),
        seen(after=LIBRARY, retry_on="OSError"),
        seen(after=LIBRARY, first=one_more),
    ]

    assert len(set(different)) == len(different)


@pytest.mark.parametrize(
    ("one", "other"),
    [(Timeout("2s"), Timeout(2000)), (Timeout("PT2S"), Timeout(2, ChronoUnit.SECONDS))],
)
def test_equal_durations_are_equal_however_they_are_written(one: Timeout, other: Timeout) -> None:
    assert of(timeout=one) == of(timeout=other) != of(timeout=Timeout(2001))


def test_a_handler_is_known_by_its_class() -> None:
    class Handler:
        def __init__(self, answer: int) -> None:
            self.answer = answer

        def __call__(self, context: object) -> int:
            return self.answer

    def other(context: object) -> int:
        return 1

    assert of(fallback=Fallback(Handler(1))) == of(fallback=Fallback(Handler(2))) != of(fallback=Fallback(other))


def test_it_follows_the_configuration() -> None:
    guard = Guard(retry=Retry(), name="followed")
    before = fingerprint()
    configure(properties={"followed/Retry/maxRetries": 9})
    during = fingerprint()
    configure(properties={})
    guard.close()

    assert during != before


def test_a_reload_reports_both(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = Guard(retry=Retry(), name="reloaded")
    guard.call(int)
    before = fingerprint()
    monkeypatch.setenv("FAULTTOLERANCE_RETRY_MAXRETRIES", "11")
    with caplog.at_level(logging.INFO, "faulttolerance"):
        reload()
    after = fingerprint()
    guard.close()

    assert after != before
    assert f"its fingerprint was {before}, and now is {after}" in caplog.text


def test_a_gauge_shows_it() -> None:
    """With the tag ``fingerprint`` and no method; the old one is gone."""
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    testing.reset()
    guard = Guard(circuit_breaker=CircuitBreaker(), name="shown")
    guard.call(int)
    configure(prometheus_registry=registry)

    def shown() -> list[str]:
        text = prometheus.generate_latest(registry).decode()
        return [line for line in text.splitlines() if line.startswith("ft_config_info")]

    first = shown()
    configure(properties={"shown/CircuitBreaker/delay": "9s"})
    second = shown()
    third = [f'ft_config_info{{fingerprint="{fingerprint()}"}} 1.0']
    guard.close()
    testing.reset()

    assert len(first) == 1
    assert first != second == third


def test_each_guard_has_its_own() -> None:
    guard = Guard(retry=Retry(), name="own")
    found = {one.name: one.fingerprint for one in guards() if one.name == "own"}
    guard.close()

    assert SHAPE.fullmatch(found["own"])
    assert found["own"] != fingerprint()


@pytest.fixture
def scrape() -> Iterator[Callable[[], tuple[str, int]]]:
    """Yield a function that reads the gauge, and counts the calls for that."""
    gc.collect()  # guards of other tests are not to go meanwhile
    testing.reset()

    def read() -> tuple[str, int]:
        calls = 0

        def count(frame: object, event: str, arg: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            reading = ledger.read()
        finally:
            sys.setprofile(before)
        ((_, ((_, shown),)),) = reading.counts[""]
        return shown, calls

    yield read
    testing.reset()


def service(number: int) -> Guard:
    guard = Guard(retry=Retry(), circuit_breaker=CircuitBreaker(), timeout=Timeout("2s"), name=f"service {number}")
    guard.call(int)
    return guard


def test_a_guard_that_replaces_another_changes_the_gauge(scrape: Callable[[], tuple[str, int]]) -> None:
    """The gauge does not remember guards by their number."""
    guard = Guard(retry=Retry(max_retries=1), name="replaced")
    guard.call(int)
    before, _ = scrape()
    guard.close()
    del guard
    gc.collect()
    guard = Guard(retry=Retry(max_retries=2), name="replaced")
    guard.call(int)
    after, _ = scrape()

    assert after == fingerprint() != before


def test_the_scrape_after_a_reload_or_a_new_guard_costs_as_much_as_any_other(
    scrape: Callable[[], tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reload reads the configuration of every guard, a new guard only its own."""
    kept = [service(number) for number in range(100)]
    scrape()
    first, usual = scrape()
    kept.append(service(100))
    second, after_new = scrape()
    monkeypatch.setenv("FAULTTOLERANCE_RETRY_MAXRETRIES", "11")
    reload()
    third, after_reload = scrape()
    _, next_one = scrape()

    assert len({first, second, third}) == 3
    assert after_new < usual * 1.2
    assert after_reload == next_one


def test_a_class_that_is_decorated_late_changes_the_gauge(scrape: Callable[[], tuple[str, int]]) -> None:
    class Client:
        @retry
        def charge(self) -> int:
            return 1

    Client().charge()
    before, _ = scrape()
    timeout("2s")(Client)
    after, _ = scrape()

    assert after == fingerprint() != before


def test_a_new_subclass_changes_the_gauge_and_one_that_is_gone_changes_it_back(
    scrape: Callable[[], tuple[str, int]],
) -> None:
    class Client:
        @retry
        def charge(self) -> int:
            return 1

    Client().charge()
    before, _ = scrape()
    other = type("Other", (Client,), {})
    during, _ = scrape()
    del other
    gc.collect()
    after, _ = scrape()

    assert during != before == after
