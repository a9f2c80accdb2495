"""Specification, chapter "Circuit Breaker", interaction with bulkhead: the circuit is outside and sees its refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future as ExecutorFuture
from typing import Any, TypeAlias

import pytest

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    Future,
    asynchronous,
    bulkhead,
    circuit_breaker,
    completed_future,
)
from kit import Barrier, Clock, Service, TestException

Start: TypeAlias = Callable[[Any, Barrier], ExecutorFuture[Any]]


class FutureClient(Service):
    """A client whose class-level decorators make its calls asynchronous: it returns a future."""

    def work(self, barrier: Barrier) -> Future[None]:
        barrier.pass_through()
        return completed_future(None)


class TaskClient(Service):
    """A client whose class-level decorators make its calls asynchronous: it is a coroutine function."""

    async def work(self, barrier: Barrier) -> None:
        await barrier.pass_through_async()


@pytest.fixture(params=[FutureClient, TaskClient])
def base(request: pytest.FixtureRequest) -> type:
    """Return the base class of an asynchronous client."""
    client: type = request.param
    return client


@pytest.fixture
def start(clock: Clock) -> Start:
    """Return a function that begins an asynchronous call: on the pool, or as a task of a loop of its own."""

    def start(client: Any, barrier: Barrier) -> ExecutorFuture[Any]:
        pending = client.work(barrier)
        return pending if isinstance(pending, ExecutorFuture) else clock.start(clock.run, pending)

    return start


@pytest.fixture
def barriers() -> Iterator[list[Barrier]]:
    """Yield a barrier for each call; all are opened at the end of the test."""
    found = [Barrier() for _ in range(8)]
    yield found
    for one in found:
        one.open()


@pytest.mark.tck("CircuitBreakerBulkheadTest.testCircuitBreakerAroundBulkheadAsync")
def test_refusals_of_the_bulkhead_open_the_circuit_and_admitted_calls_go_on(
    base: Any, start: Start, barriers: list[Barrier], clock: Clock
) -> None:
    """Results enter the window when calls complete; a queued call was let through before that, and still runs."""

    @circuit_breaker(request_volume_threshold=3, failure_ratio=1.0, delay=50_000)
    @bulkhead(1, waiting_task_queue=1)
    @asynchronous
    class Client(base):  # type: ignore[misc]
        pass

    client = Client()
    running = start(client, barriers[1])
    barriers[1].await_arrival(clock.within(3.0))
    queued = start(client, barriers[2])
    clock.sleep(0.5)
    assert not barriers[2].is_reached
    refused = [type(start(client, barriers[n]).exception(10)) for n in range(3, 8)]
    barriers[1].open()
    barriers[2].open()

    assert refused == [BulkheadException] * 3 + [CircuitBreakerOpenException] * 2
    assert running.result(clock.within(3.0)) is None
    assert queued.result(clock.within(3.0)) is None
    assert barriers[2].is_reached


@pytest.mark.tck("CircuitBreakerBulkheadTest.testCircuitBreakerAroundBulkheadSync")
def test_refusals_of_a_synchronous_bulkhead_open_the_circuit(barriers: list[Barrier], clock: Clock) -> None:
    """Without @asynchronous no call queues, whatever return type the method is annotated with."""

    @circuit_breaker(request_volume_threshold=3, failure_ratio=1.0)
    @bulkhead(1, waiting_task_queue=1)
    class Client(FutureClient):
        pass

    client = Client()
    running = clock.start(client.work, barriers[1])
    barriers[1].await_arrival(clock.within(3.0))
    refused = [type(clock.start(client.work, barriers[n]).exception(10)) for n in range(2, 7)]
    barriers[1].open()

    assert refused == [BulkheadException] * 3 + [CircuitBreakerOpenException] * 2
    assert running.result(clock.within(3.0)).result(0) is None


@pytest.mark.tck("CircuitBreakerBulkheadTest.testCircuitBreaker")
def test_refusals_that_fail_on_does_not_name_leave_the_circuit_closed(
    base: Any, start: Start, barriers: list[Barrier], clock: Clock
) -> None:
    """A BulkheadException that is no failure counts as a success."""

    @circuit_breaker(request_volume_threshold=3, failure_ratio=1.0, delay=50_000, fail_on=[TestException])
    @bulkhead(1, waiting_task_queue=1)
    @asynchronous
    class Client(base):  # type: ignore[misc]
        pass

    client = Client()
    running = start(client, barriers[1])
    barriers[1].await_arrival(clock.within(3.0))
    queued = start(client, barriers[2])
    clock.sleep(0.5)
    assert not barriers[2].is_reached
    refused = [type(start(client, barriers[n]).exception(10)) for n in range(3, 8)]
    barriers[1].open()
    barriers[2].open()

    assert refused == [BulkheadException] * 5
    assert running.result(clock.within(3.0)) is None
    assert queued.result(clock.within(3.0)) is None
