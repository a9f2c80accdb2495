"""The guard of ``recommended``: right for calls of another service that may be repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from faulttolerance import (
    CircuitBreakerOpenException,
    Guard,
    TimeoutException,
    bulkhead,
    guards,
    recommended,
    remaining,
    retry,
    sleep,
    timeout,
)
from faulttolerance.policies import Bulkhead, Retry, Timeout
from faulttolerance.testing import VirtualClock, virtual_time
from simulation import storm


class Service:
    """A callee with a number of failures before it."""

    def __init__(self, *failures: type[Exception]) -> None:
        self._failures = list(failures)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self._failures:
            raise self._failures.pop(0)
        return "served"


def annotations_of(guard: Guard) -> list[str]:
    (entry,) = (entry for entry in guards() if entry.method is guard)
    return [policy.annotation for policy in entry.policies]


def test_a_failure_that_passes_is_repeated_twice_at_most() -> None:
    """The retries come after random delays of up to 100 and 200 ms."""
    service = Service(ConnectionError, ConnectionError)
    with virtual_time() as clock:
        began = clock.monotonic()
        assert recommended().call(service) == "served"

        assert clock.monotonic() - began < 0.3
    assert service.calls == 3


@pytest.mark.parametrize("mistake", [TypeError, ValueError, KeyError, AttributeError, NotImplementedError])
def test_a_mistake_of_the_caller_is_neither_repeated_nor_held_against_the_callee(mistake: type[Exception]) -> None:
    guard, service = recommended(), Service(*[mistake] * 30)
    for _ in range(30):
        with pytest.raises(mistake):
            guard.call(service)

    assert service.calls == 30
    assert guard.call(service) == "served"


def test_the_circuit_opens_when_half_of_the_attempts_failed_and_refusals_are_not_repeated() -> None:
    guard, service = recommended(), Service(*[ConnectionError] * 100)
    with virtual_time():
        refused = 0
        for _ in range(30):
            try:
                guard.call(service)
            except CircuitBreakerOpenException:
                refused += 1
            except ConnectionError:
                pass

    assert service.calls == 20
    assert refused > 10


def test_an_attempt_ends_at_the_time_out_and_a_call_after_three_times_that(clock: VirtualClock) -> None:
    def hang() -> None:
        sleep(60)

    began = clock.monotonic()
    with pytest.raises(TimeoutException):
        recommended("1s").call(hang)

    assert clock.monotonic() - began == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: recommended(attempt_timeout="5s"),
        lambda: recommended(timeout=Timeout("5s")),
        lambda: recommended("1s", timeout("5s")),
    ],
    ids=["by name", "as a value", "as a decorator"],
)
def test_the_deadline_is_three_times_the_time_out_however_that_is_given(make: Callable[[], Guard]) -> None:
    """A longer time-out that replaces the default is not cut by the deadline of the default."""
    assert make().call(remaining) == pytest.approx(5.0, abs=0.5)
    assert "deadline=Deadline(value=15000.0)" in repr(make())


def test_each_policy_can_be_replaced_or_left_out() -> None:
    usual = ["Deadline", "Retry", "ExponentialBackoff", "RetryBudget", "CircuitBreaker", "Timeout"]
    service = Service(ConnectionError, ConnectionError)

    assert annotations_of(recommended()) == usual
    assert annotations_of(recommended("1s", Bulkhead(5))) == [*usual, "Bulkhead"]
    assert annotations_of(recommended(retry=None, deadline=None)) == ["CircuitBreaker", "Timeout"]
    assert annotations_of(recommended("1s", bulkhead(5), retry)) == [*usual, "Bulkhead"]
    for given in (Retry(max_retries=0), retry(max_retries=0)):
        with pytest.raises(ConnectionError):
            recommended("1s", given).call(service)
    with pytest.raises(ConnectionError):
        recommended(retry=Retry(max_retries=0)).call(Service(ConnectionError))
    assert "timeout=Timeout(value='500ms')" in repr(recommended("2s", timeout=Timeout("500ms")))


def test_a_guard_without_a_name_is_called_by_the_line_that_makes_it() -> None:
    assert recommended().name.startswith(f"{__name__}:")
    assert recommended(name="the inventory").name == "the inventory"


def test_no_storm_of_retries_outlives_its_cause() -> None:
    """The service is back two seconds after a spike that pushes it over for ever without budget and circuit."""
    seen: Any = storm.aftermath(storm.RECOMMENDED, 1)

    assert seen.recovered <= 2
    assert seen.after >= 0.9
