"""Calls leave nothing behind that only the garbage collector finds, and nothing that it never finds."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from faulttolerance import (
    Future,
    Guard,
    RateLimitException,
    apply_guard,
    asynchronous,
    bulkhead,
    circuit_breaker,
    completed_future,
    configure,
    fail_when,
    fallback,
    fingerprint,
    last_good,
    rate_limit,
    retry,
    timeout,
)
from faulttolerance._metrics.counters import ledger
from faulttolerance.policies import Bulkhead, CircuitBreaker, Coalesce, Fallback, Hedge, RateLimit, Retry, Timeout
from kit import Clock


class Order:
    """The subject of a call; weak references show when it is freed."""


@pytest.mark.parametrize("fails", [False, True])
def test_an_asynchronous_call_leaves_no_reference_cycle(uncollected: None, fails: bool) -> None:
    """Objects that our task, its deadline or its failure refers to are freed when the caller drops the call."""

    @asynchronous
    @retry(max_retries=1, jitter=0)
    @timeout(30_000)
    @bulkhead(2)
    async def charge(order: Order) -> None:
        await asyncio.sleep(0)
        if fails:
            raise ConnectionError

    async def calls() -> list[weakref.ref[Order]]:
        seen = []
        for _ in range(3):
            order = Order()
            seen.append(weakref.ref(order))
            try:
                await charge(order)
            except ConnectionError:
                pass
            del order
            await asyncio.sleep(0)
        return [one for one in seen if one() is not None]

    assert asyncio.run(calls()) == []


def test_a_failed_call_that_fail_when_judges_leaves_no_reference_cycle(uncollected: None) -> None:
    """The failure refers by its traceback to the call, so no variable of the call may refer to the failure."""

    @fail_when(exception=lambda failure: True)
    @circuit_breaker
    def charge(order: Order) -> None:
        raise ConnectionError

    order = Order()
    seen = weakref.ref(order)
    try:
        charge(order)
    except ConnectionError:
        pass
    del order

    assert seen() is None


def test_an_awaited_call_without_a_last_good_result_leaves_no_reference_cycle(uncollected: None) -> None:
    """The fallback raises the failure again, so no variable around it may refer to the failure."""

    @fallback(last_good(max_age=60_000))
    async def price(order: Order) -> None:
        raise ConnectionError

    async def seen() -> object:
        order = Order()
        seen = weakref.ref(order)
        with pytest.raises(ConnectionError):
            await price(order)
        del order
        return seen()

    assert asyncio.run(seen()) is None


def test_a_block_under_a_time_out_is_dropped_though_its_task_goes_on(uncollected: None) -> None:
    """A task, and the tasks that it starts, keep the deadline in their context, and with it may keep no frame."""
    guard = Guard(timeout=Timeout(60_000))

    async def charge(order: Order) -> None:
        async with guard.attempt():
            await asyncio.sleep(0)

    async def seen() -> object:
        order = Order()
        seen = weakref.ref(order)
        await charge(order)
        del order
        return seen()

    assert asyncio.run(seen()) is None


def test_a_refused_call_on_a_thread_leaves_no_reference_cycle(uncollected: None) -> None:
    """The refusal refers by its traceback to the code that made the future, which may not refer to the future."""

    @asynchronous
    @rate_limit(1, window=60_000)
    def charge(order: Order) -> Future[int]:
        return completed_future(1)

    assert charge(Order()).result() == 1
    order = Order()
    seen = weakref.ref(order)
    with pytest.raises(RateLimitException):
        charge(order).result()
    del order

    assert seen() is None


def test_a_refused_block_leaves_no_reference_cycle(uncollected: None) -> None:
    """The variable of the loop refers to the attempt, so the attempt may not refer to the function with the loop."""
    guard = Guard(rate_limit=RateLimit(1, window=60_000))
    guard.call(int)

    def charge(order: Order) -> None:
        for attempt in guard.attempts():
            with attempt:
                pytest.fail("admitted")

    async def charge_async(order: Order) -> None:
        async for attempt in guard.attempts():
            async with attempt:
                pytest.fail("admitted")

    async def seen() -> list[object]:
        orders = [Order(), Order()]
        seen = [weakref.ref(order) for order in orders]
        with pytest.raises(RateLimitException):
            charge(orders.pop())
        with pytest.raises(RateLimitException):
            await charge_async(orders.pop())
        return [one() for one in seen]

    assert asyncio.run(seen()) == [None, None]


@pytest.mark.parametrize("is_named", [False, True])
def test_a_function_that_a_guard_decorated_goes_when_it_is_dropped(uncollected: None, is_named: bool) -> None:
    """A guard may decorate a closure per request: it keeps none of them (rule L8)."""
    guard = Guard(retry=Retry(max_retries=1), timeout=Timeout(30_000), name="requests-of-the-memory-test")
    decorate: Any = apply_guard(guard.name) if is_named else guard
    seen = []
    for _ in range(3):
        order = Order()

        def charge(order: Order = order) -> Order:
            return order

        guarded = decorate(charge)
        guarded()
        seen.append(weakref.ref(order))
        del order, charge, guarded
    guard.close()

    assert [one() for one in seen] == [None, None, None]


def test_a_function_goes_with_its_guard_though_the_guard_leads_back_to_it() -> None:
    """A fallback may refer to the function that it replaces."""

    def request() -> weakref.ref[Order]:
        order = Order()

        def instead(_: object) -> object:
            return charge, order

        @Guard(fallback=Fallback(instead))
        def charge() -> object:
            raise ConnectionError

        assert charge()
        return weakref.ref(order)

    seen = [request() for _ in range(3)]

    gc.collect()
    assert [one() for one in seen] == [None, None, None]


@pytest.mark.parametrize("toggled", ["Retry/enabled", "Timeout/enabled"])
def test_changes_of_the_configuration_leave_nothing_behind(alone: None, uncollected: None, toggled: str) -> None:
    """Each change has new values; objects are counted once the cache of the last 128 is full."""
    guard = Guard(
        retry=Retry(max_retries=2), circuit_breaker=CircuitBreaker(), timeout=Timeout(30_000), name="often configured"
    )

    def change(number: int) -> None:
        configure(
            properties={
                "often configured/Retry/maxRetries": number,
                "often configured/CircuitBreaker/delay": f"{number}ms",
                "often configured/Timeout/value": 30_000 + number,
                f"often configured/{toggled}": number % 3 > 0,
            }
        )
        guard.call(int)
        fingerprint()
        ledger.read()  # unread durations wait by the thousand

    def objects_after(numbers: range) -> int:
        for number in numbers:
            change(number)
        gc.collect()
        return len(gc.get_objects())

    try:
        objects_after(range(1, 226))
        few, many = objects_after(range(226, 241)), objects_after(range(241, 301))
    finally:
        configure(properties={})
        guard.close()

    assert many - few < 60 / 3  # the rest of each third change; threads of the test runner keep a few objects, too


async def _pause() -> None:
    await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    "policy",
    [
        Bulkhead(1, 5, max_wait=2_000),
        Bulkhead(1, 5),
        RateLimit(1, window=0.05, max_wait=2_000),
        Coalesce(),
        Hedge(delay=5_000),
    ],
    ids=["queue", "queue for ever", "turn", "shared call", "hedge"],
)
def test_a_task_that_nothing_refers_to_is_not_collected_while_it_waits(policy: Any, clock: Clock) -> None:
    """A loop refers to its tasks weakly, so the object that a task waits for must be kept, as locks of asyncio are."""
    guard, ended = Guard(policy), []

    async def serve() -> None:
        await guard.call_async(_pause)
        ended.append(None)

    async def main() -> None:
        for _ in range(3):
            asyncio.create_task(serve())  # noqa: RUF006
        await asyncio.sleep(0.01)
        gc.collect()
        await asyncio.sleep(1)

    clock.run(main())
    guard.close()

    assert len(ended) == 3
