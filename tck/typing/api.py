"""A user's code as type checkers see it. Mypy --strict and pyright check this file, and no test runs it.

Each decorator leaves a function's parameters and result as they were, in every form of design rule P1.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, Literal, Protocol, assert_type

import httpx
import redis.asyncio
import requests
from flask import Flask
from requests.adapters import HTTPAdapter
from sqlalchemy import create_engine
from starlette.applications import Starlette

import faulttolerance as ft
from faulttolerance import testing
from faulttolerance import (
    ChronoUnit,
    ExecutionContext,
    FallbackHandler,
    Future,
    Guard,
    circuit_breakers,
    partition_by,
    adaptive_throttle,
    apply_guard,
    around_invoke,
    asynchronous,
    asynchronous_non_blocking,
    before_retry,
    bulkhead,
    circuit_breaker,
    circuit_breaker_name,
    coalesce,
    hedge,
    deadline,
    completed_future,
    criticality,
    exponential_backoff,
    fallback,
    fibonacci_backoff,
    fleet_wide,
    partition_by,
    rate_limit,
    remaining,
    retry,
    retry_budget,
    retry_when,
    timeout,
    unguarded,
    uninterruptible,
)
from faulttolerance.policies import (
    AdaptiveThrottle,
    Bulkhead,
    CircuitBreaker,
    Coalesce,
    Hedge,
    Deadline,
    Criticality,
    Fallback,
    FleetWide,
    PartitionBy,
    RateLimit,
    Retry,
    RetryBudget,
    Timeout,
)
from faulttolerance import testing
from faulttolerance.integrations import flask as answering_flask
from faulttolerance.integrations import grpc as guarded_grpc
from faulttolerance.integrations import httpx as guarded_httpx
from faulttolerance.integrations import redis as guarded_redis
from faulttolerance.integrations import requests as guarded_requests
from faulttolerance.integrations import sqlalchemy as guarded_sqlalchemy
from faulttolerance.integrations import starlette as answering_starlette
from faulttolerance.instrumentation import Degradation, Event
from faulttolerance.typing import AsyncCall, Invocation
from faulttolerance.web import Request, asgi_app, wsgi_app

# Bare, and called without arguments


@retry
def bare(order: str, amount: int = 1) -> bytes:
    return order.encode() * amount


assert_type(bare("a"), bytes)
assert_type(bare("a", amount=2), bytes)
bare(1)  # type: ignore[arg-type]
bare("a", price=2)  # type: ignore[call-arg]


@retry()
@timeout()
@circuit_breaker()
@bulkhead()
def called(order: str) -> bytes:
    return order.encode()


@timeout
@circuit_breaker
@bulkhead
@rate_limit
def all_bare(order: str) -> bytes:
    return order.encode()


assert_type(called("a"), bytes)
assert_type(all_bare("a"), bytes)

# With parameters, as numbers, units, timedelta, one exception or several


@retry(
    max_retries=-1,
    delay=timedelta(milliseconds=10),
    max_duration=2,
    duration_unit=ChronoUnit.SECONDS,
    jitter=0,
    jitter_delay_unit=ChronoUnit.MICROS,
    retry_on=(OSError, ValueError),
    abort_on=KeyError,
)
@timeout(400, ChronoUnit.MILLIS, interrupt=False)
@circuit_breaker(
    fail_on=[OSError], skip_on=KeyError, delay=1.5, delay_unit=ChronoUnit.SECONDS, request_volume_threshold=4,
    failure_ratio=0.5, success_threshold=2,
)  # fmt: skip
@bulkhead(5, waiting_task_queue=3)
@rate_limit(100, window=1, window_unit=ChronoUnit.SECONDS)
@exponential_backoff(factor=1.5, min_delay=timedelta(milliseconds=10), max_delay=1000)
@retry_when(exception=lambda error: isinstance(error, OSError), result=lambda result: result is None)
@before_retry(lambda context: print(context.attempt))
@circuit_breaker_name("orders")
def with_parameters(order: str, *rest: int, urgent: bool = False, **more: float) -> bytes | None:
    return None


assert_type(with_parameters("a", 1, 2, urgent=True, weight=1.5), bytes | None)

retry(max_retries="3")  # type: ignore[call-overload]
retry(max_retris=3)  # type: ignore[call-overload]
fallback(fallback_methd="by_handler")  # type: ignore[call-arg]
timeout("500ms")
timeout(timedelta(seconds=2))
timeout([500])  # type: ignore[call-overload]
retry(retry_on=ft.caused_by(OSError), abort_on=(KeyError, ft.caused_by(OSError, ValueError)))
ft.caused_by("OSError")  # type: ignore[arg-type]
retry(jitter_kind="full")
ft.honor_retry_after(lambda: 7)
ft.honor_retry_after(max_delay="30s", read=lambda failure: timedelta(seconds=len(failure.args)))
ft.honor_retry_after(reed=None)  # type: ignore[call-overload]
ft.Guard(retry=ft.policies.Retry(), honor_retry_after=ft.policies.HonorRetryAfter(max_delay=0))
retry(jitter_kind="equal")  # type: ignore[call-overload]
retry(delay="2s", max_duration="PT1M", jitter=0)
Timeout("500ms")
timeout(1, ft.ChronoUnit.SECONDS, interrupt=False)
timeout(1000, adaptive=True)
timeout(1, ft.ChronoUnit.SECONDS, False)  # type: ignore[call-overload]
Timeout(1, ft.ChronoUnit.SECONDS, False)  # type: ignore[call-arg]
rate_limit(1, 1, ft.ChronoUnit.SECONDS, min_spacing=5)
rate_limit(1, 1, ft.ChronoUnit.SECONDS, 5)  # type: ignore[call-overload]
rate_limit(5, type="rolling")
rate_limit(5, type=ft.policies.RateLimitType.ROLLING)
RateLimit(5, type="smooth")
rate_limit(5, type="sliding")  # type: ignore[call-overload]
RateLimit(5, type="sliding")  # type: ignore[arg-type]
rate_limit(5, type="smooth", max_wait="2s", burst=3, window_unit="minutes")
RateLimit(5, max_wait=timedelta(seconds=2))
Timeout(3, "seconds")
timeout(3, "fortnights")  # type: ignore[call-overload]
bulkhead(5, max_wait=200)
Bulkhead(5, max_wait="200ms")
bulkhead(5, max_wait=[200])  # type: ignore[call-overload]
bulkhead(50, latency=250)
Bulkhead(50, latency=timedelta(milliseconds=250), max_wait="200ms")
Bulkhead(50, latency=None)  # type: ignore[arg-type]
with criticality(Criticality.CRITICAL) as level:
    assert_type(level, Criticality)
criticality("best_effort")
criticality("urgent")  # type: ignore[arg-type]
criticality(3)  # type: ignore[arg-type]
assert_type(Criticality.current(), Criticality)
assert Criticality.BEST_EFFORT < Criticality.CRITICAL
assert_type(ft.BulkheadException("full").reason, Literal["full", "waited", "displaced"])


@adaptive_throttle
def throttled(order: str) -> bytes:
    return order.encode()


@adaptive_throttle(
    multiplier=1.5, window=timedelta(seconds=30), min_requests=20, fail_on=OSError, skip_on=(KeyError, ValueError)
)
async def throttled_async(order: str) -> bytes:
    return order.encode()


assert_type(throttled("a"), bytes)
assert_type(ft.veto_retries(lambda failure: "not now" if failure.args else None), Callable[[], object])
ft.veto_retries(lambda failure: 3)  # type: ignore[arg-type, return-value]
throttled(1)  # type: ignore[arg-type]
adaptive_throttle(window="30s")
adaptive_throttle(window=None)  # type: ignore[call-overload]
adaptive_throttle(2.0)  # type: ignore[call-overload]


@retry
@retry_budget
def budgeted(order: str) -> bytes:
    return order.encode()


@retry
@retry_budget(ratio=0.1, burst=20, name="orders")
async def budgeted_async(order: str) -> bytes:
    return order.encode()


assert_type(budgeted("a"), bytes)
retry_budget(burst="many")  # type: ignore[call-overload]
RetryBudget(name=None)  # type: ignore[arg-type]
assert_type(Guard(retry=Retry(), retry_budget=RetryBudget(0.1, 20)).call(budgeted, "a"), bytes)
Guard(retry_budget=Retry())  # type: ignore[arg-type]


@circuit_breaker
@rate_limit(100, window="1s")
@fleet_wide
def shared(order: str) -> bytes:
    return order.encode()


@fleet_wide()
@circuit_breaker
async def shared_async(order: str) -> bytes:
    return order.encode()


assert_type(shared("a"), bytes)
shared(1)  # type: ignore[arg-type]
assert_type(Guard(circuit_breaker=CircuitBreaker(), fleet_wide=FleetWide()).call(shared, "a"), bytes)
Guard(fleet_wide=CircuitBreaker())  # type: ignore[arg-type]


@coalesce(key=("order", "page"))
def coalesced(order: str, page: int = 1) -> bytes:
    return order.encode()


@coalesce
async def coalesced_async(order: str) -> bytes:
    return order.encode()


assert_type(coalesced("a"), bytes)
coalesced(1)  # type: ignore[arg-type]
coalesce(key=lambda order: order)
coalesce(key=1)  # type: ignore[call-overload]


@deadline(2000)
def bounded(order: str, page: int = 1) -> bytes:
    return order.encode()


@deadline("2s")
async def bounded_async(order: str) -> bytes:
    with deadline(timedelta(seconds=1)):
        return order.encode()


@deadline(2000)
class Bounded:
    def order(self) -> int:
        return 1


async def bounded_blocks() -> int:
    limit = deadline(0.5)
    with limit, limit:
        pass
    async with limit as entered, deadline(1):
        assert_type(entered is limit, bool)
    with deadline(1):
        return 1  # and no path falls through: it swallows nothing


assert_type(bounded("a"), bytes)
assert_type(Bounded().order(), int)
bounded(1)  # type: ignore[arg-type]
deadline()  # type: ignore[call-arg]
deadline(value="2s")
deadline([1])  # type: ignore[arg-type]
Guard(deadline=Deadline("2s"))
Guard(deadline="2s")  # type: ignore[arg-type]
assert_type(Guard().port("text", ["upper", "s*"]), str)
Guard().port("text", 1)  # type: ignore[arg-type]
Guard(coalesce=Coalesce(key="order"), partition_by=PartitionBy("tenant", max_partitions=10))


@hedge(max_hedges=2, quantile=0.9, delay=timedelta(milliseconds=50))
async def hedged(order: str) -> bytes:
    return order.encode()


@asynchronous
@hedge
def hedged_apart(order: str) -> Future[bytes]:
    return completed_future(order.encode())


async def race() -> None:
    assert_type(await hedged("a"), bytes)
    await hedged(1)  # type: ignore[arg-type]
    await Guard(hedge=Hedge(quantile=0, delay=50)).call_async(hedged, "a")


hedge(delay=None)  # type: ignore[call-overload]
hedge(max_hedges="two")  # type: ignore[call-overload]


@partition_by(("tenant", "order"), max_partitions=50)
def partitioned(tenant: str, order: str) -> bytes:
    return order.encode()


assert_type(partitioned("a", "b"), bytes)
partition_by(lambda tenant: tenant)
partition_by(1)  # type: ignore[arg-type]
assert_type(circuit_breakers.state("a", key=("b", 1)), str)
circuit_breakers.reset("a", key="b")
AdaptiveThrottle(window=None)  # type: ignore[arg-type]
assert_type(Guard(adaptive_throttle=AdaptiveThrottle(min_requests=5)).call(throttled, "a"), bytes)
Guard(adaptive_throttle=CircuitBreaker())  # type: ignore[arg-type]


# Fallbacks


class NothingFound:
    def handle(self, context: ExecutionContext) -> list[str]:
        assert_type(context.failure, BaseException | None)
        return [str(context.attempt)]


handler: FallbackHandler[list[str]] = NothingFound()


@fallback(NothingFound)
def by_handler(word: str) -> list[str]:
    return [word]


@fallback(lambda context: ["none"])
def by_callable(word: str) -> list[str]:
    return [word]


@fallback(fallback_method="by_handler", apply_on=OSError, skip_on=(KeyError,))
def by_method(word: str) -> list[str]:
    return [word]


assert_type(by_handler("a"), list[str])
assert_type(by_callable("a"), list[str])
assert_type(by_method("a"), list[str])


# Coroutine functions stay coroutine functions


@retry
@timeout(200)
async def coroutine(order: str) -> bytes:
    return order.encode()


async def awaits() -> None:
    assert_type(await coroutine("a"), bytes)
    assert_type(await handle("a"), bytes)
    assert_type(await in_the_background("a"), bytes)
    assert_type(await awaitable("a"), bytes)
    assert_type(await in_an_executor("a"), bytes)
    assert_type(await by_awaitable("a"), bytes)
    assert_type(await Handles().method("a"), bytes)


# Asynchronous calls: a future, an awaitable, a coroutine that is a handle


@asynchronous
def in_the_background(order: str) -> Future[bytes]:
    return completed_future(order.encode())


assert_type(in_the_background("a"), Future[bytes])
assert_type(in_the_background("a").result(timeout=1), bytes)
assert_type(in_the_background("a").cancel(may_interrupt=True), bool)


@asynchronous()
async def handle(order: str) -> bytes:
    return order.encode()


@asynchronous_non_blocking
def awaitable(order: str) -> Awaitable[bytes]:
    return coroutine(order)


@asynchronous_non_blocking()
def awaitable_too(order: str) -> Awaitable[bytes]:
    return coroutine(order)


@asynchronous
def in_an_executor(order: str) -> concurrent.futures.Future[bytes]:
    return concurrent.futures.ThreadPoolExecutor().submit(order.encode)


@asynchronous
def by_awaitable(order: str) -> Awaitable[bytes]:
    return coroutine(order)


@retry
@timeout(200)
@asynchronous
async def inside(order: str) -> bytes:
    return order.encode()


@asynchronous
@retry
@timeout(200)
async def outside(order: str, *rest: int, urgent: bool = False) -> bytes:
    return order.encode()


class Handles:
    @asynchronous
    async def method(self, order: str) -> bytes:
        return order.encode()

    @asynchronous()
    @staticmethod
    async def static(order: str) -> bytes:
        return order.encode()

    @asynchronous
    @classmethod
    async def of_class(cls, order: str) -> bytes:
        return order.encode()

    @classmethod
    @asynchronous()
    async def of_class_inside(cls, order: str) -> bytes:
        return order.encode()

    @asynchronous
    def offloaded(self, order: str) -> concurrent.futures.Future[bytes]:
        return completed_future(order.encode())


class Given(Protocol):
    """A protocol that a class with handles implements."""

    async def method(self, order: str) -> bytes: ...


given: Given = Handles()
call: AsyncCall[bytes] = handle("a")
assert_type(handle("a"), AsyncCall[bytes])
assert_type(call.done(), bool)
assert_type(call.result(), bytes)
assert_type(call.exception(), BaseException | None)
assert_type(call.cancel("no longer needed"), bool)
assert_type(call.cancelled(), bool)
call.add_done_callback(lambda task: print(task.result()))
assert_type(inside("a").result(), bytes)
assert_type(outside("a", 1, urgent=True).done(), bool)
assert_type(Handles().method("a"), AsyncCall[bytes])
assert_type(Handles.method(Handles(), "a"), AsyncCall[bytes])
assert_type(Handles.static("a"), AsyncCall[bytes])
assert_type(Handles().static("a"), AsyncCall[bytes])
assert_type(Handles.of_class("a"), AsyncCall[bytes])
assert_type(Handles.of_class_inside("a"), AsyncCall[bytes])
assert_type(Handles().offloaded("a"), Future[bytes])
assert_type(awaitable("a"), AsyncCall[bytes])
assert_type(awaitable_too("a"), AsyncCall[bytes])
assert_type(in_an_executor("a"), Future[bytes])
assert_type(by_awaitable("a"), Future[bytes])


@asynchronous  # type: ignore[arg-type]
def no_future(order: str) -> bytes:
    return order.encode()


@asynchronous_non_blocking  # type: ignore[arg-type]
def no_awaitable(order: str) -> bytes:
    return order.encode()


handle(1)  # type: ignore[arg-type]
outside("a", urgent=1)  # type: ignore[arg-type]
Handles().method(1)  # type: ignore[arg-type]


@asynchronous
class WholeAsynchronous:
    async def method(self, order: str) -> bytes:
        return order.encode()


assert_type(WholeAsynchronous(), WholeAsynchronous)


async def hands_on() -> None:
    task = asyncio.create_task(handle("a"))
    assert_type(task, asyncio.Task[bytes])
    assert_type(await asyncio.gather(handle("a"), Handles().method("b")), tuple[bytes, bytes])
    async with asyncio.TaskGroup() as group:
        assert_type(group.create_task(Handles().method("a")), asyncio.Task[bytes])
    assert_type(await asyncio.wait_for(handle("a"), 1), bytes)
    assert_type(asyncio.ensure_future(handle("a")), asyncio.Task[bytes])


assert_type(asyncio.run(handle("a")), bytes)


# Methods of every kind, and whole classes


class Orders:
    @retry(max_retries=1)
    def method(self, order: str) -> bytes:
        return order.encode()

    @timeout(100)
    async def coroutine_method(self, order: str) -> bytes:
        return order.encode()

    @staticmethod
    @retry
    def static(order: str) -> bytes:
        return order.encode()

    @retry
    @staticmethod
    def static_inside(order: str) -> bytes:
        return order.encode()

    @classmethod
    @bulkhead(2)
    def of_class(cls, order: str) -> bytes:
        return order.encode()

    @unguarded
    def plain(self, order: str) -> bytes:
        return order.encode()


assert_type(Orders().method("a"), bytes)
assert_type(Orders.method(Orders(), "a"), bytes)
assert_type(Orders.static("a"), bytes)
assert_type(Orders().static("a"), bytes)
assert_type(Orders.static_inside("a"), bytes)
assert_type(Orders.of_class("a"), bytes)
assert_type(Orders().plain("a"), bytes)
Orders().method(1)  # type: ignore[arg-type]


@retry
@timeout(300)
class Whole:
    def __init__(self, name: str) -> None:
        self.name = name

    def method(self, order: str) -> bytes:
        return order.encode()


assert_type(Whole("a"), Whole)
assert_type(Whole("a").method("b"), bytes)


@fibonacci_backoff
@retry(max_retries=4)
class WholeWithBackOff(Whole):
    pass


assert_type(WholeWithBackOff("a").name, str)

# Other callables

assert_type(retry(len)([1]), int)
assert_type(retry(max_retries=2)(len)([1]), int)
assert_type(retry(len, max_retries=2)([1]), int)


# Guards for code that is no method


def charge(order: str, amount: int = 1) -> bytes:
    return order.encode() * amount


async def charge_async(order: str, amount: int = 1) -> bytes:
    return order.encode() * amount


guard = Guard(
    retry=Retry(max_retries=2),
    timeout=Timeout(500),
    circuit_breaker=CircuitBreaker(delay=100),
    bulkhead=Bulkhead(5),
    rate_limit=RateLimit(100),
    fallback=Fallback(lambda context: b""),
    name="payments",
)

assert_type(guard.call(charge, "a", amount=3), bytes)
declared = Guard(retry(max_retries=2), timeout("500ms"), circuit_breaker, circuit_breaker(), deadline("2s"))
assert_type(declared.call(charge, "a", amount=3), bytes)
assert_type(ft.recommended("2s", retry(max_retries=1), bulkhead(5), Timeout(500), deadline=None), Guard)
Guard("retry")  # type: ignore[arg-type]
circuit_breaker(name="orders")(charge)
circuit_breaker(name=7)(charge)  # type: ignore[call-overload]
print(ft.Retry)  # type: ignore[attr-defined]  # it is in policies
print(ft.retyr)  # type: ignore[attr-defined]


def in_block() -> int:
    with guard.attempt() as attempt:
        return assert_type(attempt.number, int)


async def in_blocks() -> bytes:
    for attempt in guard.attempts():
        with attempt as entered:
            assert_type(entered.number, int)
    async with guard.attempt() as single:
        assert_type(single.number, int)
    async for attempt in guard.attempts():
        async with attempt:
            return await charge_async("a")
    raise AssertionError


with guard.attempts():  # type: ignore[attr-defined]
    pass
for each in guard.attempt():  # type: ignore[attr-defined]
    pass
guard.call(charge, 1)  # type: ignore[arg-type]


async def calls_through_the_guard() -> None:
    assert_type(await guard.call_async(charge_async, "a", amount=3), bytes)
    assert_type(await guard.call_async(charge, "a", amount=3), bytes)
    await guard.call_async(charge, 1)  # type: ignore[call-overload]


@guard
def guarded(order: str) -> bytes:
    return order.encode()


@apply_guard("payments")
async def guarded_by_name(order: str) -> bytes:
    return order.encode()


assert_type(guarded("a"), bytes)

# Interceptors


@around_invoke
def audit(invocation: Invocation) -> Any:
    return invocation.proceed()


@around_invoke(priority=3000)
async def audit_async(invocation: Invocation) -> Any:
    return await invocation.proceed()


@retry
@audit
def audited(order: str) -> bytes:
    return order.encode()


@audit_async
async def audited_async(order: str) -> bytes:
    return order.encode()


@audit
class AuditedClient:
    def charge(self, order: str) -> bytes:
        return order.encode()


async def calls_through_interceptors() -> None:
    assert_type(audited("a"), bytes)
    assert_type(await audited_async("a"), bytes)
    assert_type(AuditedClient().charge("a"), bytes)


audited(1)  # type: ignore[arg-type]
around_invoke(3000)  # type: ignore[call-overload]

# Running it

with uninterruptible():
    left = remaining()
with ft.on_deadline(sqlite3.connect("shop").interrupt):
    pass
ft.on_deadline(lambda: 1)
ft.on_deadline(None)  # type: ignore[arg-type]
assert_type(left, float | None)
explained = ft.explain(bare, all=True, source=False)
assert_type(explained.as_dict(), dict[str, Any])
assert_type(explained.splitlines(), list[str])
state: str = ft.circuit_breakers.state("orders")
names: Iterable[str] = ft.circuit_breakers.names()
for one in ft.guards():
    assert_type(one.name, str)
    print(one.method, one.policies, one.values, one.counts)
    assert_type(one.impaired, tuple[str, ...])
    assert_type(one.as_dict(), dict[str, Any])
ft.reload(on=signal.SIGTERM)
ft.reload(on="SIGTERM")  # type: ignore[arg-type]
assert_type(ft.circuit_breakers.snapshot("orders").half_open_at, float | None)
assert_type(ft.circuit_breakers.snapshot("orders").as_dict(), dict[str, Any])
undo = ft.circuit_breakers.on_state_change("orders", lambda name, old, new: None)
undo()
ft.circuit_breakers.force_closed("orders")
ft.policies.CircuitBreaker(slow=500, window=timedelta(minutes=1), max_delay=60_000)


@circuit_breaker(slow=800, window=60_000, max_delay=timedelta(minutes=5))
def watched() -> int:
    return 1


assert_type(watched(), int)


@ft.fallback(lambda context: 1, "copied", apply_on=OSError)
def chained() -> int:
    return 1


assert_type(chained(), int)
ft.policies.Fallback(lambda context: 1, lambda context: 2, skip_on=KeyError)
ft.policies.Fallback(value=[lambda context: 1, "copied"])
ft.policies.Fallback(1)  # type: ignore[arg-type]
with ft.degradations() as found:
    assert_type(found, list[Degradation])
    assert_type(found[0].by, str)


@ft.fail_when(exception=lambda failure: isinstance(failure, OSError), result=lambda result: not result)
@circuit_breaker
def judged() -> int:
    return 1


assert_type(judged(), int)
ft.Guard(circuit_breaker=ft.policies.CircuitBreaker(), fail_when=ft.policies.FailWhen(result=bool))
ft.policies.FailWhen(result=3)  # type: ignore[arg-type]


@ft.fallback(ft.last_good(max_age=60_000, key="article"), "copied", apply_on=OSError)
def priced(article: str) -> int:
    return 1


assert_type(priced("tea"), int)
ft.Guard(fallback=ft.policies.Fallback(ft.last_good(timedelta(hours=1), max_entries=10)))
ft.last_good()  # type: ignore[call-arg]


reached = ft.RedisFleet("redis://", namespace="shop", poll=500, patience="20ms")
assert_type(reached.patience, float)
ft.RedisFleet("redis://")  # type: ignore[call-arg]
fleet = testing.MemoryFleet()
ft.configure(fleet=reached)
ft.configure(fleet=fleet)
ft.configure(fleet=None)
ft.configure(fleet="redis://")  # type: ignore[arg-type]
fleet.open("shop.charge", timedelta(seconds=5))
fleet.close("shop.charge")
fleet.lose("no reason")
fleet.regain()
fleet.forget()


@testing.disabled("Retry", priced, ft.Guard)
def switched_off(times: int) -> str:
    return "done" * times


assert_type(switched_off(2), str)
with testing.disabled() as nothing, testing.no_wait(attempts=2):
    assert_type(nothing, None)
testing.no_wait(attempts="2")  # type: ignore[arg-type]
with testing.force(priced, "half-open") as forced, testing.exhaust(ft.Guard, "Bulkhead", ft.policies.RateLimit):
    assert_type(forced, None)
testing.force(priced, "ajar")  # type: ignore[arg-type]
with testing.inject(
    priced, error=testing.fail_times(2, OSError), latency=timedelta(seconds=1), rate=0.5, seed=7
) as none:
    assert_type(none, None)
assert_type(testing.fail_times(2, OSError("gone"))(switched_off)(2), str)
testing.fail_times(2, OSError)()
testing.inject(priced, error="OSError")  # type: ignore[arg-type]
with testing.recorded(priced) as calls, testing.captured_events() as events:
    assert_type(calls, list[testing.RecordedCall])
    assert_type(calls[0].attempts[0].delay, float | None)
    assert_type(events, list[Event])

redis_client = guarded_redis.install(redis.asyncio.Redis(), Guard(), idempotent=["SET"])
assert_type(redis_client, redis.asyncio.Redis)
guarded_redis.install(Guard(), Guard())  # type: ignore[type-var]
guarded_sqlalchemy.install(create_engine("sqlite://"), no_retry_on=(OSError, ft.caused_by(ValueError)))
guarded_sqlalchemy.install("sqlite://")  # type: ignore[arg-type]
answering_starlette.install(Starlette(), longest="5s")
answering_starlette.install(Starlette(), longest=[5])  # type: ignore[arg-type]
answering_starlette.install(Flask("shop"))  # type: ignore[arg-type]
answering_flask.install(Flask("shop"), longest=timedelta(seconds=5))
assert_type(answering_flask.DeadlineMiddleware(Flask("shop").wsgi_app), answering_flask.DeadlineMiddleware)
assert_type(guarded_grpc.GuardedCalls(timeout=ft.policies.Timeout("1s"), methods=["Get*"]).guard, ft.Guard)
guarded_grpc.AsyncGuardedCalls(timeout="1s")  # type: ignore[arg-type]


def scenario(sim: testing.Simulation) -> None:
    caller = sim.start(judged)
    sim.always(lambda: sim.now < 5, "what it says")
    assert_type(caller.exception(), BaseException | None)
    assert_type(sim.random.random(), float)
    sim.join()


assert_type(
    testing.simulate(scenario, seeds=["a", 1], switch_in=[testing, "x"], expected=OSError), testing.simulation.Explored
)
testing.simulate(judged)  # type: ignore[arg-type]


# The status page


def by_user(request: Request) -> str | None:
    return request.headers.get("x-user")


async def by_token(request: Request) -> bool:
    return request.action == "reset" and request.guard.startswith("acme.")


page = asgi_app(critical="acme.*", hosts="acme.example", admit=by_user, authorize=by_token, title="Shop")
assert_type(asyncio.iscoroutinefunction(page), bool)
print(*wsgi_app(critical=["acme.*"], authorize=by_user)({}, lambda status, headers, info=None: print))
wsgi_app(authorize="alice")  # type: ignore[arg-type]


# Clients of HTTP

guarded_transport = guarded_httpx.GuardedTransport(Guard(), httpx.HTTPTransport(), statuses=[500], methods={"POST"})
assert_type(guarded_transport.guard, Guard)
httpx.Client(transport=guarded_transport)
httpx.AsyncClient(transport=guarded_httpx.AsyncGuardedTransport(name="shop", retry=ft.policies.Retry(retry_on=OSError)))
requests.Session().mount(
    "https://", guarded_requests.GuardedAdapter(timeout=ft.policies.Timeout("2s"), adapter=HTTPAdapter())
)
guarded_httpx.GuardedTransport(retry=3)  # type: ignore[arg-type]
guarded_httpx.AsyncGuardedTransport(transport=httpx.HTTPTransport())  # type: ignore[arg-type]


def on_refusal(failure: guarded_httpx.CircuitOpen) -> None:
    assert_type(failure.retry_after, float | None)
    assert_type(failure.request, httpx.Request)
