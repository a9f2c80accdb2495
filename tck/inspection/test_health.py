"""The health of a process, read from the states of guards (rule Y5)."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from faulttolerance import (
    FaultToleranceDefinitionException,
    Guard,
    circuit_breaker,
    circuit_breaker_name,
    circuit_breakers,
    configure,
    explain,
    guards,
    health,
    sleep,
    testing,
)
from faulttolerance.policies import AdaptiveThrottle, Bulkhead, CircuitBreaker, RateLimit, Retry
from faulttolerance.testing import virtual_time
from kit import VirtualClock


@pytest.fixture(autouse=True)
def _alone() -> None:
    """Remove guards of other tests: health is that of the whole process."""
    testing.reset()


def fail() -> None:
    raise ConnectionError


def call(guard: Guard, times: int = 4) -> None:
    for _ in range(times):
        with pytest.raises(ConnectionError):
            guard.call(fail)


def breaker(**values: Any) -> CircuitBreaker:
    return CircuitBreaker(request_volume_threshold=4, failure_ratio=1.0, delay=5000, **values)


def test_all_is_well_where_nothing_was_called() -> None:
    assert health().as_dict() == {"status": "up", "reasons": []}


def test_an_open_circuit_degrades_and_a_critical_one_takes_down() -> None:
    guard = Guard(name="acme.ledger", circuit_breaker=breaker())
    with virtual_time() as clock:
        assert health(critical="acme.*").status == "up"
        call(guard)
        seen = {patterns: health(patterns).status for patterns in ((), "acme.*", ("other", "acme.ledger"), "ACME.*")}
        (reason,) = health().reasons
        clock.advance(5)
        later = health("acme.*")
    guard.close()

    assert seen == {(): "degraded", "acme.*": "down", ("other", "acme.ledger"): "down", "ACME.*": "degraded"}
    assert reason == "acme.ledger: CircuitBreaker is open for 0 s, half-open in 5 s"
    assert later.as_dict() == {"status": "degraded", "reasons": ["acme.ledger: CircuitBreaker is half-open"]}


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (0.5, "open for 0.5 s, half-open in 7200 s"),
        (41, "open for 41 s, half-open in 7159 s"),
        (5025.25, "open for 5025 s, half-open in 2175 s"),
        (7200, "half-open"),
    ],
)
def test_an_open_circuit_tells_its_time(after: float, words: str) -> None:
    """The time is in seconds, however many there are."""
    guard = Guard(name="acme.ledger", circuit_breaker=CircuitBreaker(request_volume_threshold=1, delay="2h"))
    with virtual_time() as clock:
        call(guard, times=1)
        clock.advance(after)
        (state,) = [one.conditions for one in guards() if one.name == "acme.ledger"]
    guard.close()

    assert state == {"CircuitBreaker": words}


def test_a_forced_circuit_is_reported_until_it_is_reset() -> None:
    guard = Guard(name="forced", circuit_breaker=breaker())
    guard.call(int)
    with virtual_time():
        circuit_breakers.force_open("forced")
        forced = health("forced")
    circuit_breakers.force_closed("forced")
    held_closed = health("forced")
    circuit_breakers.reset("forced")
    after = health("forced")
    guard.close()

    assert (forced.status, forced.reasons) == ("down", ("forced: CircuitBreaker is open for 0 s, forced",))
    assert (held_closed.status, held_closed.reasons) == ("degraded", ("forced: CircuitBreaker is closed, forced",))
    assert after.status == "up"


def test_a_circuit_is_critical_by_each_of_its_names() -> None:
    @circuit_breaker_name("charging")
    @circuit_breaker(request_volume_threshold=2, failure_ratio=1.0)
    def charge() -> None:
        raise ConnectionError

    for _ in range(2):
        with pytest.raises(ConnectionError):
            charge()

    assert health("charging").status == health("*.charge").status == "down"


def test_a_full_bulkhead_degrades() -> None:
    guard = Guard(name="full", bulkhead=Bulkhead(1))
    inside = guard.call(lambda: health("full"))
    after = health("full")
    guard.close()

    assert inside.as_dict() == {"status": "degraded", "reasons": ["full: Bulkhead is 1 of 1 running"]}
    assert after.status == "up"


def test_a_rate_limit_that_is_used_up_degrades() -> None:
    guard = Guard(name="spent", rate_limit=RateLimit(2, window="1s"))
    with virtual_time() as clock:
        guard.call(int)
        one_left = health().status
        guard.call(int)
        spent = health("spent")
        clock.advance(1)
        again = health().status
    guard.close()

    assert (one_left, again) == ("up", "up")
    assert spent.as_dict() == {"status": "degraded", "reasons": ["spent: RateLimit is used up for 1 s"]}


def test_a_throttle_that_refuses_degrades() -> None:
    guard = Guard(name="shedding", adaptive_throttle=AdaptiveThrottle(min_requests=4))
    with virtual_time():
        call(guard)
        shedding = health("shedding")
    guard.close()

    assert shedding.as_dict() == {
        "status": "degraded",
        "reasons": ["shedding: AdaptiveThrottle is refusing 80 % of the calls"],
    }


def test_a_policy_that_is_switched_off_does_not_count() -> None:
    guard = Guard(name="off", circuit_breaker=breaker())
    call(guard)
    configure(properties={"off/CircuitBreaker/enabled": "false"})
    seen = health("off")
    guard.close()

    assert seen.status == "up"


def test_a_pattern_that_nothing_matches_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "faulttolerance"):
        health("no.such.guard.*")
        health("no.such.guard.*")

    assert [record.getMessage() for record in caplog.records] == [
        "health(critical='no.such.guard.*'): no guard has such a name"
    ]


def test_the_name_of_a_circuit_is_a_name_of_its_guard(caplog: pytest.LogCaptureFixture) -> None:
    """Also before its first call, so that no warning calls the pattern useless (rule Y5)."""
    guard = Guard(name="acme.wallet", circuit_breaker=breaker(name="wallet"))

    with caplog.at_level(logging.WARNING, "faulttolerance"):
        assert health("wallet").status == "up"
    assert not caplog.records
    call(guard)
    assert health("wallet").status == "down"
    guard.close()


@pytest.mark.parametrize("wrong", [(1,), [None], "", ["a", ""], None, 3, b"a"])
def test_patterns_are_texts(wrong: Any) -> None:
    with pytest.raises(FaultToleranceDefinitionException, match=r"health\(critical\).*allowed: names of guards"):
        health(wrong)


def test_the_answer_is_json_and_a_value() -> None:
    found = health()

    assert json.loads(json.dumps(found.as_dict())) == found.as_dict()
    assert found == health()


def test_it_may_be_asked_from_anywhere() -> None:
    """Also from a body under the very guard, while other calls hold its permits."""
    guard = Guard(name="asked", bulkhead=Bulkhead(2), circuit_breaker=breaker(), rate_limit=RateLimit(100))
    with virtual_time() as virtual:
        clock = VirtualClock(virtual)
        others = [clock.start(guard.call, sleep, 1) for _ in range(1)]
        virtual.sleep(0.1)
        seen = guard.call(health, "asked")
        virtual.sleep(2)
    guard.close()

    assert [other.result(1) for other in others] == [None]
    assert seen.reasons == ("asked: Bulkhead is 2 of 2 running",)


def test_the_state_of_a_policy_is_shown_beside_its_configuration() -> None:
    """It is in ``explain`` and in ``guards``, after the first call and while the policy is in force (rule X10)."""
    guard = Guard(name="live", circuit_breaker=breaker(), bulkhead=Bulkhead(3), retry=Retry(max_retries=0))

    def conditions() -> dict[str, str]:
        (mine,) = [one for one in guards() if one.name == "live"]
        return dict(mine.conditions)

    before = conditions(), "now" in explain(guard)
    with virtual_time() as clock:
        inside = guard.call(lambda: (conditions(), str(explain(guard))))
        call(guard)
        clock.advance(2)
        after = conditions()
    policies = explain(guard).as_dict()["policies"]
    configure(properties={"live/CircuitBreaker/enabled": "false"})
    without = conditions()
    guard.close()

    assert before == ({}, False)
    assert inside[0] == {"CircuitBreaker": "closed", "Bulkhead": "1 of 3 running"}
    assert "CircuitBreaker (declared on live), now closed" in inside[1]
    assert after == {"CircuitBreaker": "open for 2 s, half-open in 3 s", "Bulkhead": "0 of 3 running"}
    assert [policy.get("now", "") != "" for policy in policies] == [False, True, True]
    assert without == {"Bulkhead": "0 of 3 running"}
