"""The order of the policies, where only the cost or the moment of a refusal tells one order from another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    Future,
    RateLimitException,
    TimeoutException,
    asynchronous,
    bulkhead,
    circuit_breaker,
    completed_future,
    rate_limit,
    retry,
    timeout,
)
from faulttolerance._strategy.bulkhead import Bulkhead
from kit import Barrier, Clock, Invoke, Service

F = TypeVar("F")


def as_it_is(function: F) -> F:
    """Return the *function* as it is, where a decorator may stand."""
    return function


def test_circuit_breaker_sees_the_refusals_of_the_rate_limit(invoke: Invoke) -> None:
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
    """The circuit breaker is outside: a call that it refuses has not reached the rate limit, also with retries."""

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
    """The bulkhead is inside the rate limit: a call that is refused for lack of room was let through before."""

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
    """The bulkhead is inside the time-out: the wait counts towards the time-out, and ends with it."""

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


def before_permits_are_handed_over(monkeypatch: pytest.MonkeyPatch, act: Callable[[Bulkhead], None]) -> None:
    """Run *act* whenever a permit was given back, and was not handed over yet."""
    decide = Bulkhead._decide

    def decide_late(self: Bulkhead, decision: Callable[..., Any], *args: Any) -> Any:
        if decision.__name__ in ("_release_locked", "_admit_waiters_locked"):
            act(self)
        return decide(self, decision, *args)

    monkeypatch.setattr(Bulkhead, "_decide", decide_late)


def test_arrival_does_not_overtake_while_a_permit_changes_hands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that comes while a released permit is not yet handed over steps behind the waiting calls."""
    entered: list[str] = []
    came_in_between: list[Future[None]] = []
    moments = ["the first of them"]

    class Client(Service):
        @asynchronous
        @bulkhead(1, waiting_task_queue=2)
        def work(self, name: str, barrier: Barrier | None = None) -> Future[None]:
            entered.append(name)
            if barrier is not None:
                barrier.pass_through()
            return completed_future(None)

    client, barrier = Client(), Barrier()

    def come_in_between(bulkhead: Bulkhead) -> None:
        if moments:
            moments.clear()
            came_in_between.append(client.work("third"))

    before_permits_are_handed_over(monkeypatch, come_in_between)
    first = client.work("first", barrier)
    barrier.await_arrival(10)
    second = client.work("second")
    barrier.open()
    for one in (first, second, *came_in_between):
        one.result(10)

    assert entered == ["first", "second", "third"]


@pytest.mark.parametrize("detached", [False, True], ids=["coroutine", "task"])
def test_coroutine_does_not_overtake_waiting_coroutines_of_another_loop(
    monkeypatch: pytest.MonkeyPatch, detached: bool
) -> None:
    """The same holds on event loops, for a call on the loop of another thread."""
    entered: list[str] = []
    threads: list[threading.Thread] = []

    class Client(Service):
        @(asynchronous if detached else as_it_is)
        @bulkhead(1, waiting_task_queue=2)
        async def work(self, name: str) -> None:
            entered.append(name)
            await asyncio.sleep(0.01)

    client = Client()

    def come_in_between(bulkhead: Bulkhead) -> None:
        if not threads:
            queue = list(bulkhead.waiting)
            threads.append(threading.Thread(target=lambda: asyncio.run(client.work("third"))))
            threads[0].start()
            while list(bulkhead.waiting) == queue and "third" not in entered:
                threading.Event().wait(0.001)

    async def main() -> None:
        await asyncio.gather(client.work("first"), client.work("second"))

    before_permits_are_handed_over(monkeypatch, come_in_between)
    asyncio.run(main())
    threads[0].join(10)

    assert entered == ["first", "second", "third"]


def test_body_that_was_left_behind_hands_its_permit_over(clock: Clock) -> None:
    """The call is cancelled and no caller waits for it; the next call gets the permit when the body has ended."""

    class Client(Service):
        @asynchronous
        @bulkhead(1, waiting_task_queue=1)
        async def work(self, is_stubborn: bool) -> None:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                if is_stubborn:
                    await asyncio.sleep(5)
                raise

    client = Client()

    async def main() -> float:
        first = asyncio.ensure_future(client.work(True))
        await asyncio.sleep(0.1)
        second = asyncio.ensure_future(client.work(False))
        await asyncio.sleep(0.1)
        stopwatch = clock.stopwatch()
        first.cancel()
        await asyncio.wait_for(second, 60)
        return stopwatch.elapsed

    assert clock.run(main()) == pytest.approx(6.0)


@pytest.mark.parametrize("detached", [False, True], ids=["coroutine", "task"])
def test_body_that_never_let_go_is_late_all_the_same(clock: Clock, detached: bool) -> None:
    """A body that ends after its deadline has timed out, even if the loop had no moment to interrupt it."""

    class Client(Service):
        @(asynchronous if detached else as_it_is)
        @timeout(500)
        async def work(self) -> str:
            clock.work(1.0)
            return "late"

    async def main() -> None:
        with pytest.raises(TimeoutException):
            await Client().work()

    clock.run(main())
