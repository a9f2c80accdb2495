"""The order of the policies, where only what a refusal costs, or when it comes, tells one order from another."""

from __future__ import annotations

import asyncio

import pytest

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    RateLimitException,
    TimeoutException,
    bulkhead,
    circuit_breaker,
    rate_limit,
    retry,
    timeout,
)
from kit import Clock, Invoke, Service


def test_circuit_breaker_sees_what_the_rate_limit_refuses(invoke: Invoke) -> None:
    """The rate limit is inside: too many calls are failures, and open the circuit."""

    class Client(Service):
        @rate_limit(2, window=60)
        @circuit_breaker(request_volume_threshold=4, failure_ratio=0.5, delay=10_000)
        @invoke.body
        async def work(self) -> str:
            return "done"

    client = Client()

    assert [invoke.outcome(client.work) for _ in range(5)] == [
        "done",
        "done",
        RateLimitException,
        RateLimitException,
        CircuitBreakerOpenException,
    ]


def test_open_circuit_uses_up_no_rate(invoke: Invoke, clock: Clock) -> None:
    """The circuit breaker is outside: what it refuses has not reached the rate limit, also where retries follow."""

    class Client(Service):
        @rate_limit(3, window=60)
        @retry(max_retries=1, jitter=0, retry_on=[CircuitBreakerOpenException])
        @circuit_breaker(request_volume_threshold=2, failure_ratio=1.0, delay=1000)
        @invoke.body
        async def work(self) -> str:
            self.executions += 1
            if self.executions <= 2:
                raise OSError
            return "done"

    client = Client()
    failed = [invoke.outcome(client.work) for _ in range(2)]
    refused = [invoke.outcome(client.work) for _ in range(3)]
    clock.sleep(1.0)

    assert (failed, refused) == ([OSError] * 2, [CircuitBreakerOpenException] * 3)
    assert invoke.outcome(client.work) == "done"


def test_call_that_the_bulkhead_refuses_has_used_up_a_rate(clock: Clock) -> None:
    """The bulkhead is inside the rate limit: whoever is refused for lack of room was let through before."""

    class Client(Service):
        @bulkhead(1)
        @rate_limit(2, window=60)
        def work(self, again: bool = False) -> str:
            if again:
                with pytest.raises(BulkheadException):
                    self.work()
            return "done"

    client = Client()
    client.work(again=True)

    with pytest.raises(RateLimitException):
        client.work()


def test_coroutine_times_out_while_it_waits_for_a_permit(clock: Clock) -> None:
    """The bulkhead is inside the time-out: waiting takes from the same time, and ends with it."""

    class Client(Service):
        @bulkhead(1, waiting_task_queue=1)
        @timeout(500)
        async def work(self) -> None:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                await asyncio.sleep(5)  # clears up, and holds its permit meanwhile
                raise

    client = Client()
    waited: list[float] = []

    async def second() -> None:
        stopwatch = clock.stopwatch()
        with pytest.raises(TimeoutException):
            await client.work()
        waited.append(stopwatch.elapsed)

    async def main() -> None:
        first = asyncio.create_task(client.work())
        await asyncio.sleep(0.1)
        await second()
        with pytest.raises(TimeoutException):
            await first

    clock.run(main())

    assert waited == [pytest.approx(0.5)]
