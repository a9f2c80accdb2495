"""Rules R4, R5 and R6 through the public decorators: eras, probes, queues and substitutes, in every convention."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    TimeoutException,
    bulkhead,
    circuit_breaker,
    circuit_breakers,
    fallback,
    retry,
    timeout,
)
from kit import Barrier, Calls, Clock, Invoke, Service, key

Held = Callable[[], list[str]]


@pytest.fixture
def calls(invoke: Invoke, clock: Clock) -> Iterator[Calls]:
    """Many calls at once, which all end with the test."""
    started = Calls(invoke, clock)
    yield started
    started.end()


class Wanted(Service):
    """What a body is to do next."""

    failure: BaseException | None = None


# R4


def test_no_more_probes_than_the_threshold_run_at_once(invoke: Invoke, clock: Clock, calls: Calls, held: Held) -> None:
    """R4, B1: of many calls at the tick of the delay's end, as many pass as successes are needed."""

    class Client(Wanted):
        @circuit_breaker(request_volume_threshold=1, delay=1000, success_threshold=3)
        @invoke.body
        async def service(self, barrier: Barrier | None) -> None:
            if barrier is None:
                raise OSError
            if invoke.is_on_loop:
                await barrier.pass_through_async()
            else:
                barrier.pass_through()

    client = Client()
    assert invoke.outcome(client.service, None) is OSError
    clock.sleep(1)
    begun = [calls.start(client.service) for _ in range(12)]
    calls.eventually(lambda: sum(call.has_started for call in begun) == 3 and sum(call.is_over for call in begun) == 9)
    refused = [call.failure() for call in begun if call.is_over]
    for call in begun:
        call.release()
    results = [call.result() for call in begun if call.has_started]

    assert refused == [CircuitBreakerOpenException] * 9
    assert results == [None] * 3
    assert circuit_breakers.state(f"{key(Client)}.service") == "closed"
    assert held() == []


@pytest.mark.parametrize("verdict", ["success", "failure"])
def test_late_result_of_the_closed_period_does_not_touch_a_half_open_circuit(
    invoke: Invoke, clock: Clock, calls: Calls, verdict: str
) -> None:
    """R4, B4: a call is judged by the period that admitted it."""

    class Client(Service):
        @circuit_breaker(request_volume_threshold=2, failure_ratio=0.5, delay=1000)
        @invoke.body
        async def service(self, barrier: Barrier | None) -> None:
            if barrier is not None:
                if invoke.is_on_loop:
                    await barrier.pass_through_async()
                else:
                    barrier.pass_through()
            if barrier is None or verdict == "failure":
                raise OSError

    client = Client()
    name = f"{key(Client)}.service"
    late = calls.start_running(client.service)
    assert [invoke.outcome(client.service, None) for _ in range(2)] == [OSError, OSError]
    clock.sleep(1.5)
    before = circuit_breakers.state(name)
    late.release()
    failure = late.failure()

    assert before == "half-open"
    assert failure is (OSError if verdict == "failure" else type(None))
    assert circuit_breakers.state(name) == "half-open"


def test_probe_that_hangs_gives_its_place_up_after_the_delay(
    invoke: Invoke, clock: Clock, calls: Calls, held: Held
) -> None:
    """R4, B2: and its verdict does not count any more."""

    class Client(Service):
        @circuit_breaker(request_volume_threshold=1, delay=1000)
        @invoke.body
        async def service(self, barrier: Barrier | None, fails: bool = False) -> str:
            if barrier is not None:
                if invoke.is_on_loop:
                    await barrier.pass_through_async()
                else:
                    barrier.pass_through()
                raise OSError
            if fails:
                raise OSError
            return "served"

    client = Client()
    name = f"{key(Client)}.service"
    assert invoke.outcome(client.service, None, True) is OSError
    clock.sleep(1.1)
    hanging = calls.start_running(client.service)
    wedged = invoke.outcome(client.service, None)
    clock.sleep(1.1)
    served = invoke(client.service, None)
    hanging.release()
    failure = hanging.failure()

    assert wedged is CircuitBreakerOpenException
    assert served == "served"
    assert failure is OSError
    assert circuit_breakers.state(name) == "closed"
    assert held() == []


@pytest.mark.parametrize(("kind", "state"), [(OSError, "closed"), (KeyError, "open"), (ValueError, "closed")])
def test_skipped_and_other_failures_are_judged_in_half_open_as_in_closed(
    invoke: Invoke, clock: Clock, kind: type[Exception], state: str
) -> None:
    """R4, B3: ``skip_on`` and what ``fail_on`` does not name are successes of a probe too."""

    class Client(Service):
        @circuit_breaker(fail_on=(KeyError, OSError), skip_on=OSError, request_volume_threshold=1, delay=1000)
        @invoke.body
        async def service(self, failure: type[Exception]) -> None:
            raise failure

    client = Client()
    invoke.outcome(client.service, KeyError)
    clock.sleep(1)
    invoke.outcome(client.service, kind)

    assert circuit_breakers.state(f"{key(Client)}.service") == state


# R5


def test_waiter_whose_deadline_passes_leaves_the_queue(clock: Clock, invoke: Invoke, held: Held) -> None:
    """R5, B31: it never starts, and there is room for another one."""
    if invoke.convention == "blocking":
        pytest.skip("a synchronous call does not wait for a permit")

    class Client(Service):
        @timeout(1000)
        @bulkhead(1, waiting_task_queue=1)
        @invoke.body
        async def service(self, seconds: float) -> str:
            self.executions += 1
            await invoke.sleep(seconds)
            return "served"

    client = Client()

    async def main() -> list[Any]:
        first = asyncio.ensure_future(client.service(0.9))
        await asyncio.sleep(0.5)
        second, third = (asyncio.ensure_future(client.service(0.8)) for _ in range(2))
        return await asyncio.gather(first, second, third, return_exceptions=True)

    results = clock.run(main())
    again = clock.run(main())

    assert [type(one) for one in results] == [str, TimeoutException, BulkheadException]
    assert [type(one) for one in again] == [str, TimeoutException, BulkheadException]
    assert held() == []


def test_ten_thousand_waiters_are_served_first_come_first_served(clock: Clock) -> None:
    """R5, B33: one is woken for one that leaves."""
    order = []

    @bulkhead(1, waiting_task_queue=10_000)
    async def service(number: int) -> None:
        order.append(number)
        await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(service(number) for number in range(10_000)))

    clock.run(main())

    assert order == list(range(10_000))


def test_semaphore_never_waits() -> None:
    """R5: a synchronous call is refused at once, whatever the queue."""
    entered, go = threading.Event(), threading.Event()

    @bulkhead(1, waiting_task_queue=10)
    def service(wait: bool) -> None:
        if wait:
            entered.set()
            go.wait(10)

    thread = threading.Thread(target=service, args=(True,))
    thread.start()
    entered.wait(10)
    with pytest.raises(BulkheadException):
        service(False)
    go.set()
    thread.join()
    service(False)


def test_permit_is_free_during_delay_and_fallback(invoke: Invoke, held: Held) -> None:
    """R5, R6: a retry leaves the bulkhead before its delay, and a fallback runs outside of it."""
    seen = []

    class Client(Service):
        @fallback(fallback_method="instead")
        @retry(max_retries=1, delay=1000, jitter=0)
        @bulkhead(1)
        @invoke.body
        async def service(self) -> str:
            self.executions += 1
            raise OSError

        @invoke.body
        async def instead(self) -> str:
            seen.append([left for left in held() if "permit" in left])
            return "instead"

    assert invoke(Client().service) == "instead"
    assert seen == [[]]


# R6


def test_fallback_is_never_run_for_a_result(invoke: Invoke) -> None:
    """R6: nor for what ``skip_on`` names, nor for what ``apply_on`` does not."""
    runs = []

    class Client(Service):
        @fallback(fallback_method="instead", apply_on=(OSError, KeyError), skip_on=KeyError)
        @invoke.body
        async def service(self, failure: type[Exception] | None) -> str:
            if failure is not None:
                raise failure
            return "served"

        @invoke.body
        async def instead(self, failure: type[Exception] | None) -> str:
            runs.append(failure)
            return "instead"

    client = Client()
    outcomes = [invoke.outcome(client.service, one) for one in (None, OSError, KeyError, ValueError)]

    assert outcomes == ["served", "instead", KeyError, ValueError]
    assert runs == [OSError]


def test_override_of_the_fallback_method_is_called(invoke: Invoke) -> None:
    """R6: looked up where the guarded method is declared; the call goes to the object's own."""

    class Base(Service):
        @fallback(fallback_method="instead")
        @invoke.body
        async def service(self) -> str:
            raise OSError

        @invoke.body
        async def instead(self) -> str:
            return "base"

    class Leaf(Base):
        @invoke.body
        async def instead(self) -> str:
            return "leaf"

    assert [invoke(cls().service) for cls in (Base, Leaf)] == ["base", "leaf"]
