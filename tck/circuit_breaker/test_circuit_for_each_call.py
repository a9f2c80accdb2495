"""Rule C8: a circuit that is made for each call never opens, and the log says so."""

from __future__ import annotations

import threading

import pytest

from faulttolerance import Guard
from faulttolerance.policies import CircuitBreaker, Retry


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelname == "WARNING" and "for each call" in one.msg]


def test_a_line_that_makes_a_guard_for_each_call_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The warning comes beyond a hundred guards, dead ones included (rule C8)."""

    def charge() -> int:
        return Guard(circuit_breaker=CircuitBreaker()).call(int)

    for _ in range(100):
        charge()
    before = warnings(caplog)
    for _ in range(300):
        charge()

    assert before == []
    (told,) = warnings(caplog)
    assert told.startswith(f"{__name__}:")
    assert "more than 100 guards" in told


def test_living_guards_count_as_well(caplog: pytest.LogCaptureFixture) -> None:
    """A cache without keys keeps such guards (rule C8)."""
    kept = []
    for _ in range(101):
        kept.append(Guard(circuit_breaker=CircuitBreaker()))  # noqa: PERF401  # a function creates each

    assert len(warnings(caplog)) == 1
    assert len(kept) == 101


def test_guards_without_a_circuit_and_named_ones_are_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    """They lose no state, or are meant so (rule C8)."""
    for number in range(150):
        Guard(retry=Retry())
        Guard(circuit_breaker=CircuitBreaker(), name=f"meant {number}").close()

    assert warnings(caplog) == []


def test_the_top_level_of_a_module_may_make_as_many_as_it_wants(caplog: pytest.LogCaptureFixture) -> None:
    """A dictionary may have one for each host (rule C8)."""
    text = """
from faulttolerance import Guard
from faulttolerance.policies import CircuitBreaker
hosts = {number: Guard(circuit_breaker=CircuitBreaker()) for number in range(150)}
class Hosts:
    all = [Guard(circuit_breaker=CircuitBreaker()) for _ in range(150)]
for _ in range(150):
    Guard(circuit_breaker=CircuitBreaker())
"""
    exec(compile(text, "hosts.py", "exec"), {"__name__": "hosts"})

    assert warnings(caplog) == []


def test_many_threads_cause_a_single_warning(caplog: pytest.LogCaptureFixture) -> None:
    """However many threads reach the limit at once (rules C8, L6)."""

    def make() -> None:
        for _ in range(10):
            Guard(circuit_breaker=CircuitBreaker())

    threads = [threading.Thread(target=make) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(warnings(caplog)) == 1
