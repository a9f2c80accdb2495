"""Permits and waiters: deadlines in the queue, order of arrival, permits during delays (rule R5)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from faulttolerance import BulkheadException, TimeoutException, bulkhead, fallback, retry, timeout
from kit import Clock, Invoke, Service
from kit.tiers import few_and_many

Held = Callable[..., list[str]]


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


@few_and_many("waiters", 2_000, 10_000)
def test_thousands_of_waiters_are_served_first_come_first_served(waiters: int, clock: Clock) -> None:
    """R5, B33: each call that leaves wakes one waiter."""
    order = []

    @bulkhead(1, waiting_task_queue=10_000)
    async def service(number: int) -> None:
        order.append(number)
        await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(service(number) for number in range(waiters)))

    clock.run(main())

    assert order == list(range(waiters))


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
            seen.append(held("permit"))
            return "instead"

    assert invoke(Client().service) == "instead"
    assert seen == [[]]
