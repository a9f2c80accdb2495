"""Specification, lifecycle of circuit breakers and bulkheads: one per class and method, for all of its instances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from faulttolerance import BulkheadException, CircuitBreakerOpenException, bulkhead, circuit_breaker
from kit import Barrier, Calls, Invoke, Service

Method: TypeAlias = Callable[..., Any]

# Circuit breakers


@pytest.mark.tck("CircuitBreakerLifecycleTest.noSharingBetweenClasses")
def test_instances_share_a_circuit_and_unrelated_classes_do_not(invoke: Invoke) -> None:
    """Eight failures fill the window of one class; those of another class are counted apart."""

    class One(Service):
        @circuit_breaker(request_volume_threshold=8)
        @invoke.body
        async def service(self) -> None:
            raise OSError("the service is down")

    class Other(Service):
        @circuit_breaker(request_volume_threshold=8)
        @invoke.body
        async def service(self) -> None:
            raise OSError("the service is down")

    one_a, one_b, other_a, other_b = One(), One(), Other(), Other()

    _open_two_circuits(invoke, [one_a.service, other_a.service, one_b.service, other_b.service])


@pytest.mark.tck("CircuitBreakerLifecycleTest.noSharingBetweenMethodsOfOneClass")
def test_instances_share_a_circuit_and_methods_do_not(invoke: Invoke) -> None:
    """A class-level decorator gives each method a circuit of its own."""

    @circuit_breaker(request_volume_threshold=8)
    class Client(Service):
        @invoke.body
        async def service_1(self) -> None:
            raise OSError("the service is down")

        @invoke.body
        async def service_2(self) -> None:
            raise OSError("the service is down")

    x, y = Client(), Client()

    _open_two_circuits(invoke, [x.service_1, x.service_2, y.service_1, y.service_2])


def _open_two_circuits(invoke: Invoke, methods: list[Method]) -> None:
    """Call four methods, of which two each share a circuit, four times: all fail; after that none is let through."""
    counted = [invoke.outcome(method) for _ in range(4) for method in methods]
    then = [invoke.outcome(method) for method in methods]

    assert counted == [OSError] * 16
    assert then == [CircuitBreakerOpenException] * 4


# Bulkheads


synchronous = pytest.mark.parametrize("invoke", ["blocking"], indirect=True)


@synchronous
@pytest.mark.tck("BulkheadLifecycleTest.noSharingBetweenClasses")
def test_instances_share_a_bulkhead_and_unrelated_classes_do_not(calls: Calls) -> None:
    """Eight calls fill the bulkhead of one class, through any instance; another class has room for eight more."""

    class One(Service):
        @bulkhead(8)
        def service(self, barrier: Barrier) -> None:
            barrier.pass_through()

    class Other(Service):
        @bulkhead(8)
        def service(self, barrier: Barrier) -> None:
            barrier.pass_through()

    _fill_two_bulkheads(calls, [One().service, Other().service, One().service, Other().service])


@synchronous
@pytest.mark.tck("BulkheadLifecycleTest.noSharingBetweenClassesWithCommonSuperclass")
def test_classes_that_inherit_one_method_do_not_share_its_bulkhead(calls: Calls) -> None:
    """State belongs to the concrete class and the method, wherever the method was written."""

    class Base(Service):
        @bulkhead(8)
        def service(self, barrier: Barrier) -> None:
            barrier.pass_through()

    class One(Base):
        pass

    class Other(Base):
        pass

    _fill_two_bulkheads(calls, [One().service, Other().service, One().service, Other().service])


@synchronous
@pytest.mark.tck("BulkheadLifecycleTest.noSharingBetweenMethodsOfOneClass")
def test_instances_share_a_bulkhead_and_methods_do_not(calls: Calls) -> None:
    """A class-level decorator gives each method a bulkhead of its own."""

    @bulkhead(8)
    class Client(Service):
        def service_1(self, barrier: Barrier) -> None:
            barrier.pass_through()

        def service_2(self, barrier: Barrier) -> None:
            barrier.pass_through()

    x, y = Client(), Client()

    _fill_two_bulkheads(calls, [x.service_1, x.service_2, y.service_1, y.service_2])


def _fill_two_bulkheads(calls: Calls, methods: list[Method]) -> None:
    """Call four methods, of which two each share a bulkhead, four times: all are admitted; after that none is."""
    admitted = [calls.start(method) for _ in range(4) for method in methods]
    calls.eventually(lambda: all(call.has_started for call in admitted))
    refused = [calls.start(method) for method in methods]
    failures = [call.failure() for call in refused]
    for call in admitted:
        call.release()

    assert failures == [BulkheadException] * 4
    assert [call.result(60.0) for call in admitted] == [None] * 16
