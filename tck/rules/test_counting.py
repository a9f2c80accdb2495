"""What is counted where several policies take part in one call."""

from __future__ import annotations

import pytest

from faulttolerance import CircuitBreakerOpenException, circuit_breaker, fallback, retry
from kit import Clock, Service, TestException

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("prometheus_client")

from kit.meter import PrometheusMeter


@pytest.fixture
def meter() -> PrometheusMeter:
    """A registry that is there before the first call."""
    return PrometheusMeter()


def test_retries_that_ended_in_a_fallback_are_counted_by_why_they_ended(meter: PrometheusMeter, clock: Clock) -> None:
    """The retries have failed, although the caller gets a value: the fallback is outside."""

    class Client(Service):
        @retry(max_retries=1, jitter=0)
        @fallback(fallback_method="substitute")
        def work(self) -> str:
            raise TestException

        def substitute(self) -> str:
            return "instead"

    meter.watch(Client.work, Client)
    Client().work()

    def retried(result: str) -> int:
        return meter.value("ft.retry.calls.total", retried="true", retryResult=result)

    assert (retried("maxRetriesReached"), retried("valueReturned")) == (1, 0)
    assert meter.value("ft.invocations.total", result="valueReturned", fallback="applied") == 1


def test_attempts_that_an_open_circuit_refuses_are_counted_one_by_one(meter: PrometheusMeter, clock: Clock) -> None:
    """The circuit breaker is inside the retries: each of them meets it."""

    class Client(Service):
        @retry(max_retries=2, jitter=0)
        @circuit_breaker(request_volume_threshold=2, failure_ratio=1.0, delay=10_000)
        def work(self) -> str:
            raise TestException

    meter.watch(Client.work, Client)
    with pytest.raises(CircuitBreakerOpenException):
        Client().work()

    def attempts(result: str) -> int:
        return meter.value("ft.circuitbreaker.calls.total", circuitBreakerResult=result)

    assert (attempts("failure"), attempts("circuitBreakerOpen")) == (2, 1)
