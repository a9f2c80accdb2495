"""Specification, chapter "Circuit Breaker": the exceptions that count as failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from faulttolerance import CircuitBreakerOpenException, circuit_breaker
from kit import E0, E0S, E1, E1S, E2, E2S, Error, Invoke, Service

A = circuit_breaker(fail_on=[E0, E2], skip_on=[E1], request_volume_threshold=1, delay=20_000)
B = circuit_breaker(fail_on=[Exception, E1], skip_on=[E0, E2], request_volume_threshold=1, delay=20_000)
C = circuit_breaker(fail_on=[E1, E2], skip_on=[E0], request_volume_threshold=1, delay=20_000)
DEFAULT = circuit_breaker(request_volume_threshold=1, delay=20_000)
NAMED = circuit_breaker(fail_on=[Error], request_volume_threshold=1, delay=20_000)

CLOSED, OPEN = False, True


@pytest.mark.parametrize(
    ("policy", "failure", "opens"),
    [
        pytest.param(
            A, Exception, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceAthrowsException")
        ),
        pytest.param(A, E0, OPEN, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceAthrowsE0")),
        pytest.param(A, E1, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceAthrowsE1")),
        pytest.param(A, E2, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceAthrowsE2")),
        pytest.param(A, E2S, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceAthrowsE2S")),
        pytest.param(A, E1S, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceAthrowsE1S")),
        pytest.param(A, E0S, OPEN, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceAthrowsE0S")),
        pytest.param(
            A,
            RuntimeError,
            CLOSED,
            marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceAthrowsRuntimeException"),
        ),
        pytest.param(
            A, Error, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceAthrowsError")
        ),
        pytest.param(
            B, Exception, OPEN, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceBthrowsException")
        ),
        pytest.param(B, E0, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceBthrowsE0")),
        pytest.param(B, E1, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceBthrowsE1")),
        pytest.param(B, E2, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceBthrowsE2")),
        pytest.param(B, E2S, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceBthrowsE2S")),
        pytest.param(B, E1S, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceBthrowsE1S")),
        pytest.param(B, E0S, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceBthrowsE0S")),
        pytest.param(
            B,
            RuntimeError,
            OPEN,
            marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceBthrowsRuntimeException"),
        ),
        pytest.param(
            B, Error, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceBthrowsError")
        ),
        pytest.param(
            C, Exception, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceCthrowsException")
        ),
        pytest.param(C, E0, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceCthrowsE0")),
        pytest.param(C, E1, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceCthrowsE1")),
        pytest.param(C, E2, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceCthrowsE2")),
        pytest.param(C, E2S, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceCthrowsE2S")),
        pytest.param(C, E1S, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceCthrowsE1S")),
        pytest.param(C, E0S, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceCthrowsE0S")),
        pytest.param(
            C,
            RuntimeError,
            CLOSED,
            marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceCthrowsRuntimeException"),
        ),
        pytest.param(
            C, Error, CLOSED, marks=pytest.mark.tck("CircuitBreakerExceptionHierarchyTest.serviceCthrowsError")
        ),
        (DEFAULT, Exception, OPEN),
        (DEFAULT, Error, CLOSED),
        (NAMED, Error, OPEN),
    ],
)
def test_circuit_follows_the_hierarchy_of_exceptions(
    policy: Callable[[Any], Any], failure: type[BaseException], opens: bool, invoke: Invoke
) -> None:
    """skip_on is asked first, then fail_on; each matches subclasses, and any other exception is a success.

    For the `Error` of Java stands a `BaseException` that is no `Exception`. It is neither failure nor success unless a
    set names its own class; fail_on is `Exception` by default, where Java has `Throwable`. Under any verdict, the
    caller gets the very object that the method raised.
    """

    class Client(Service):
        @policy
        @invoke.body
        async def work(self, error: BaseException) -> None:
            raise error

    client = Client()
    error = failure()
    with pytest.raises(failure) as first:
        invoke(client.work, error)
    with pytest.raises(CircuitBreakerOpenException if opens else failure) as second:
        invoke(client.work, error)

    assert first.value is error
    assert opens or second.value is error
