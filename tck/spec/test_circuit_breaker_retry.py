"""Specification, chapter "Circuit Breaker", interaction with retry: the circuit is inside, each attempt passes it."""

from __future__ import annotations

import pytest

from faulttolerance import CircuitBreakerOpenException, TimeoutException, circuit_breaker, retry, timeout
from kit import INTERRUPTION, Clock, Invoke, Service, TestException, conventions

# A circuit that opens between attempts


@conventions(
    blocking=pytest.mark.tck("CircuitBreakerRetryTest.testCircuitOpenWithMoreRetries"),
    asyncio=pytest.mark.tck("CircuitBreakerRetryTest.testCircuitOpenWithMoreRetries"),
    offloaded=pytest.mark.tck("CircuitBreakerRetryTest.testCircuitOpenWithMoreRetriesAsync"),
    task=pytest.mark.tck("CircuitBreakerRetryTest.testCircuitOpenWithMoreRetriesAsync"),
)
def test_circuit_that_opens_ends_the_retries(invoke: Invoke) -> None:
    """CircuitBreakerOpenException is a failure like any other, and here retry_on does not name it."""

    class Client(Service):
        @circuit_breaker(success_threshold=2, request_volume_threshold=4, failure_ratio=0.75, delay=50_000)
        @retry(retry_on=[TestException], max_retries=7)
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            raise TestException

    client = Client()
    with pytest.raises(CircuitBreakerOpenException):
        invoke(client.work)

    assert client.executions == 4


@conventions(
    blocking=pytest.mark.tck("CircuitBreakerRetryTest.testCircuitOpenWithFewRetries"),
    asyncio=pytest.mark.tck("CircuitBreakerRetryTest.testCircuitOpenWithFewRetries"),
    offloaded=pytest.mark.tck("CircuitBreakerRetryTest.testCircuitOpenWithFewRetriesAsync"),
    task=pytest.mark.tck("CircuitBreakerRetryTest.testCircuitOpenWithFewRetriesAsync"),
)
def test_retries_that_end_before_the_window_is_full_leave_the_circuit_closed(invoke: Invoke) -> None:
    """Three results do not fill a window of four, and the method's own failure comes out."""

    class Client(Service):
        @circuit_breaker(success_threshold=2, request_volume_threshold=4, failure_ratio=0.75, delay=50_000)
        @retry(retry_on=[TestException], max_retries=2)
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            raise TestException

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work)

    assert client.executions == 3


@conventions(
    blocking=pytest.mark.tck("CircuitBreakerRetryTest.testCircuitOpenWithMultiTimeouts"),
    asyncio=pytest.mark.tck("CircuitBreakerRetryTest.testCircuitOpenWithMultiTimeouts"),
    offloaded=pytest.mark.tck("CircuitBreakerRetryTest.testCircuitOpenWithMultiTimeoutsAsync"),
    task=pytest.mark.tck("CircuitBreakerRetryTest.testCircuitOpenWithMultiTimeoutsAsync"),
)
def test_attempts_that_time_out_open_the_circuit(invoke: Invoke) -> None:
    """Each late attempt is a failure in the window, although its body swallowed the interruption and returned."""

    class Client(Service):
        @circuit_breaker(success_threshold=2, request_volume_threshold=4, failure_ratio=0.75, delay=50_000)
        @retry(retry_on=[TestException, TimeoutException], max_retries=7, max_duration=20_000)
        @timeout(100)
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            try:
                await invoke.sleep(5.0)
            except INTERRUPTION:
                return

    client = Client()
    with pytest.raises(CircuitBreakerOpenException):
        invoke(client.work)

    assert client.executions == 4


@pytest.mark.tck("CircuitBreakerRetryTest.testClassLevelCircuitOpenWithMoreRetries")
def test_open_circuit_is_retried_where_retry_on_covers_it(invoke: Invoke) -> None:
    """CircuitBreakerOpenException is a RuntimeError, as in Java a RuntimeException: retried until no retry is left."""

    @circuit_breaker(success_threshold=2, request_volume_threshold=4, failure_ratio=0.75, delay=50_000)
    @retry(retry_on=[RuntimeError], max_retries=7)
    class Client(Service):
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            raise TestException

    client = Client()
    with pytest.raises(CircuitBreakerOpenException):
        invoke(client.work)

    assert client.executions == 4


@pytest.mark.tck("CircuitBreakerRetryTest.testClassLevelCircuitOpenWithFewRetries")
def test_retry_of_a_method_replaces_that_of_its_class_around_a_circuit(invoke: Invoke) -> None:
    """Each decorator is replaced on its own: the method repeats the circuit of its class, and retries less often."""

    @circuit_breaker(success_threshold=2, request_volume_threshold=4, failure_ratio=0.75, delay=50_000)
    @retry(retry_on=[RuntimeError], max_retries=7)
    class Client(Service):
        @circuit_breaker(success_threshold=2, request_volume_threshold=4, failure_ratio=0.75, delay=50_000)
        @retry(retry_on=[RuntimeError], max_retries=2)
        @invoke.body
        async def work(self) -> None:
            self.executions += 1
            raise TestException

    client = Client()
    with pytest.raises(TestException):
        invoke(client.work)

    assert client.executions == 3


# A circuit that is open when the call is made


@conventions(
    blocking=pytest.mark.tck("CircuitBreakerRetryTest.testRetriesSucceedWhenCircuitCloses"),
    asyncio=pytest.mark.tck("CircuitBreakerRetryTest.testRetriesSucceedWhenCircuitCloses"),
    offloaded=pytest.mark.tck("CircuitBreakerRetryTest.testRetriesSucceedWhenCircuitClosesAsync"),
    task=pytest.mark.tck("CircuitBreakerRetryTest.testRetriesSucceedWhenCircuitClosesAsync"),
)
def test_retries_bridge_the_time_in_which_the_circuit_is_open(invoke: Invoke, clock: Clock) -> None:
    """A call that is refused and retried succeeds as soon as the circuit lets a probe through."""

    class Client(Service):
        @circuit_breaker(request_volume_threshold=4, failure_ratio=0.75, delay=1000)
        @retry(retry_on=[CircuitBreakerOpenException], max_retries=20, delay=100, jitter=0)
        @invoke.body
        async def work(self, fail: bool) -> str:
            self.executions += 1
            if fail:
                raise TestException
            return "OK"

    client = Client()
    failures = [invoke.outcome(client.work, True) for _ in range(4)]
    executions = client.executions
    stopwatch = clock.stopwatch()
    result = invoke(client.work, False)
    elapsed = stopwatch.elapsed

    assert failures == [TestException] * 4
    assert executions == 4
    assert result == "OK"
    assert abs(elapsed - 1.0) <= clock.within(0.25)


@conventions(
    blocking=pytest.mark.tck("CircuitBreakerRetryTest.testNoRetriesIfNotRetryOn"),
    asyncio=pytest.mark.tck("CircuitBreakerRetryTest.testNoRetriesIfNotRetryOn"),
    offloaded=pytest.mark.tck("CircuitBreakerRetryTest.testNoRetriesIfNotRetryOnAsync"),
    task=pytest.mark.tck("CircuitBreakerRetryTest.testNoRetriesIfNotRetryOnAsync"),
)
def test_open_circuit_that_retry_on_does_not_name_is_final(invoke: Invoke, clock: Clock) -> None:
    """The refusal comes out at once. The official kit has its synchronous case, too, and forgets to run it."""

    class Client(Service):
        @circuit_breaker(request_volume_threshold=4, failure_ratio=0.75, delay=1000)
        @retry(retry_on=[TimeoutException], max_retries=20, delay=200)
        @invoke.body
        async def work(self, fail: bool) -> str:
            if fail:
                raise TestException
            return "OK"

    client = Client()
    failures = [invoke.outcome(client.work, True) for _ in range(4)]
    stopwatch = clock.stopwatch()
    outcome = invoke.outcome(client.work, False)
    elapsed = stopwatch.elapsed

    assert failures == [TestException] * 4
    assert outcome is CircuitBreakerOpenException
    assert elapsed < clock.within(0.2)


@conventions(
    blocking=pytest.mark.tck("CircuitBreakerRetryTest.testNoRetriesIfAbortOn"),
    asyncio=pytest.mark.tck("CircuitBreakerRetryTest.testNoRetriesIfAbortOn"),
    offloaded=pytest.mark.tck("CircuitBreakerRetryTest.testNoRetriesIfAbortOnAsync"),
    task=pytest.mark.tck("CircuitBreakerRetryTest.testNoRetriesIfAbortOnAsync"),
)
def test_open_circuit_that_abort_on_names_is_final(invoke: Invoke, clock: Clock) -> None:
    """The refusal comes out at once. The official kit has its synchronous case, too, and forgets to run it."""

    class Client(Service):
        @circuit_breaker(request_volume_threshold=4, failure_ratio=0.75, delay=1000)
        @retry(abort_on=[TestException, CircuitBreakerOpenException], max_retries=20, delay=200)
        @invoke.body
        async def work(self, fail: bool) -> str:
            if fail:
                raise TestException
            return "OK"

    client = Client()
    failures = [invoke.outcome(client.work, True) for _ in range(4)]
    stopwatch = clock.stopwatch()
    outcome = invoke.outcome(client.work, False)
    elapsed = stopwatch.elapsed

    assert failures == [TestException] * 4
    assert outcome is CircuitBreakerOpenException
    assert elapsed < clock.within(0.2)
