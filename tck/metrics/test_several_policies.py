"""Counts of a call in which several policies take part."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Any, NoReturn

import pytest

from faulttolerance import (
    CircuitBreakerOpenException,
    ExecutionContext,
    Future,
    RateLimitException,
    TimeoutException,
    adaptive_throttle,
    asynchronous,
    bulkhead,
    circuit_breaker,
    deadline,
    fallback,
    guards,
    rate_limit,
    retry,
    retry_when,
    timeout,
)
from faulttolerance.testing import configured
from kit import Clock, Invoke, Service, TestException

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("prometheus_client")

from kit.meter import PrometheusMeter


@pytest.fixture
def meter() -> PrometheusMeter:
    """Return a registry that is there before the first call."""
    return PrometheusMeter()


def test_retries_that_ended_in_a_fallback_are_counted_by_their_end(meter: PrometheusMeter, clock: Clock) -> None:
    """The retries have failed, although the caller gets a value: the fallback is outside."""

    class Client(Service):
        @retry(max_retries=1, jitter=0)
        @fallback(fallback_method="substitute")
        def work(self) -> str:
            raise TestException

        def substitute(self) -> str:
            return "instead"

    meter.watch(Client.work, Client)
    Client().work()

    def retried(result: str) -> int:
        return meter.value("ft.retry.calls.total", retried="true", retryResult=result)

    assert (retried("maxRetriesReached"), retried("valueReturned")) == (1, 0)
    assert meter.value("ft.invocations.total", result="valueReturned", fallback="applied") == 1


@pytest.mark.parametrize(
    ("decorate", "kind", "gauge"),
    [
        (adaptive_throttle(min_requests=1), "AdaptiveThrottle", "ft.throttle.probability"),
        (bulkhead(2, latency="1s"), "Bulkhead", "ft.bulkhead.limit"),
        (timeout("5s", adaptive=True), "Timeout", "ft.timeout.limit"),
    ],
)
def test_a_policy_that_is_switched_off_has_no_gauges(decorate: Any, kind: str, gauge: str, clock: Clock) -> None:
    @decorate
    def work() -> None: ...

    def level() -> float | None:
        (guard,) = guards(f"{__name__}.{work.__qualname__}")
        return guard.counts.get((gauge, ()))

    work()
    before = level()
    with configured({f"{__name__}/{work.__qualname__}/{kind}/enabled": "false"}):
        work()
        off = level()
    work()

    assert before is not None
    assert off is None
    assert level() == before


def test_a_circuit_that_is_switched_off_spends_no_time_in_a_state(clock: Clock) -> None:
    """Else an alert on open circuits would go on although every call is admitted."""

    @circuit_breaker(request_volume_threshold=1, failure_ratio=1.0, delay="1h")
    def work(fails: bool = False) -> None:
        if fails:
            raise TestException

    def spent() -> list[int]:
        (guard,) = guards(f"{__name__}.{work.__qualname__}")
        times = {dict(tags)["state"]: spent for (name, tags), spent in guard.counts.items() if "state" in dict(tags)}
        return [times[state] // 1_000_000_000 for state in ("closed", "open", "halfOpen")]

    with pytest.raises(TestException):
        work(fails=True)
    clock.sleep(10)
    enabled = f"{__name__}/{work.__qualname__}/CircuitBreaker/enabled"
    with configured({enabled: "false"}):
        work()
        clock.sleep(100)
        off = spent()
        with configured({enabled: "true"}):
            with pytest.raises(CircuitBreakerOpenException):
                work()
            clock.sleep(20)
            assert spent() == [0, 30, 0]

    assert off == [0, 10, 0]


def test_attempts_that_an_open_circuit_refuses_are_counted_one_by_one(meter: PrometheusMeter, clock: Clock) -> None:
    """The circuit breaker is inside the retries: each attempt is refused."""

    class Client(Service):
        @retry(max_retries=2, jitter=0)
        @circuit_breaker(request_volume_threshold=2, failure_ratio=1.0, delay=10_000)
        def work(self) -> str:
            raise TestException

    meter.watch(Client.work, Client)
    with pytest.raises(CircuitBreakerOpenException):
        Client().work()

    def attempts(result: str) -> int:
        return meter.value("ft.circuitbreaker.calls.total", circuitBreakerResult=result)

    assert (attempts("failure"), attempts("circuitBreakerOpen")) == (2, 1)


@pytest.mark.parametrize("with_bulkhead", [False, True], ids=["alone", "outside a bulkhead"])
def test_attempts_that_a_rate_limit_refuses_are_counted_by_it_alone(
    with_bulkhead: bool, meter: PrometheusMeter, clock: Clock
) -> None:
    class Client(Service):
        @rate_limit(1, window="1h")
        def work(self) -> None: ...

        if with_bulkhead:
            work = bulkhead(1)(work)

    meter.watch(Client.work, Client)
    Client().work()
    with pytest.raises(RateLimitException):
        Client().work()

    def attempts(result: str) -> int:
        return meter.value("ft.ratelimit.calls.total", rateLimitResult=result)

    assert (attempts("permitted"), attempts("rejected")) == (1, 1)
    if with_bulkhead:
        assert meter.value("ft.bulkhead.calls.total", bulkheadResult="accepted") == 1


# Outcomes of a call


def counted(guard: Any) -> dict[str, list[dict[str, str]]]:
    """Return the counted tags of a guarded method by metric; each call counts once."""
    (found,) = [one for one in guards() if one.method is guard]
    tags: dict[str, list[dict[str, str]]] = {}
    for (metric, tag), count in found.counts.items():
        tags.setdefault(metric, []).extend([dict(tag)] * count)
    return tags


def test_fallback_that_raises_the_failure_again_was_used(invoke: Invoke) -> None:
    """Specification: ``applied`` if fallback was used."""

    def give_up(context: ExecutionContext) -> NoReturn:
        assert context.failure is not None
        raise context.failure

    class Client(Service):
        @fallback(give_up)
        @retry(max_retries=1, jitter=0)
        @invoke.body
        async def work(self) -> None:
            raise TestException

    assert invoke.outcome(Client().work) is TestException
    assert counted(Client.work)["ft.invocations.total"] == [{"result": "exceptionThrown", "fallback": "applied"}]


def test_fallback_method_that_is_not_for_the_failure_was_not_used(clock: Clock) -> None:
    """R6: a method that takes only failures of another class is not called."""

    class Client(Service):
        @fallback(fallback_method="instead")
        def work(self) -> str:
            raise TestException

        def instead(self, failure: OSError) -> str:
            return "instead"

    with pytest.raises(TestException):
        Client().work()

    assert counted(Client.work)["ft.invocations.total"] == [{"result": "exceptionThrown", "fallback": "notApplied"}]


@pytest.mark.parametrize("body_fails", [True, False])
def test_call_that_is_cancelled_in_the_delay_was_not_retried(body_fails: bool, clock: Clock) -> None:
    """Specification: ``retried`` tells whether any retries occurred; a retry that never began did not."""

    class Client(Service):
        @retry(max_retries=5, delay=1000, jitter=0)
        async def work(self) -> None:
            self.executions += 1
            if body_fails or self.executions == 1:
                raise TestException
            await asyncio.sleep(10)

    async def main() -> None:
        call = asyncio.ensure_future(Client().work())
        await asyncio.sleep(0.5 if body_fails else 1.5)
        call.cancel()
        await asyncio.wait([call])

    clock.run(main())

    tags = counted(Client.work)
    assert [one["retried"] for one in tags["ft.retry.calls.total"]] == ["false" if body_fails else "true"]
    assert len(tags["ft.retry.retries.total"]) == (0 if body_fails else 1)


def test_attempt_that_ends_late_is_measured_to_its_end(meter: PrometheusMeter, invoke: Invoke, clock: Clock) -> None:
    """Specification: "the length of time taken for each attempt"; an attempt left behind ends at its deadline."""

    class Client(Service):
        @timeout(100)
        @invoke.body
        async def work(self) -> None:
            clock.work(1.0)

    meter.watch(Client.work, Client)

    assert invoke.outcome(Client().work) is TimeoutException
    expected = 0.1 if invoke.convention == "offloaded" else 1.0
    assert meter.durations("ft.timeout.executionDuration").sum == pytest.approx(expected)


@pytest.mark.parametrize("mode", ["enforce", "observe"])
@pytest.mark.parametrize("failure", [None, TestException()], ids=["returned", "raised"])
def test_attempts_without_a_limit_are_counted_and_timed(
    meter: PrometheusMeter, invoke: Invoke, clock: Clock, failure: Exception | None, mode: str
) -> None:
    """Specification, X1: 0 switches a limit off, and not its metrics, however an attempt ends."""

    class Client(Service):
        @deadline(0)
        @retry(max_retries=1, jitter=0)
        @timeout(0)
        @invoke.body
        async def work(self) -> None:
            clock.work(1.0)
            if failure is not None:
                raise failure

    attempts = 1 if failure is None else 2
    with configured({"Deadline/mode": mode, "Timeout/mode": mode}):
        meter.watch(Client.work, Client)
        assert invoke.outcome(Client().work) is (TestException if failure else None)

    assert meter.value("ft.timeout.calls.total", timedOut="false") == attempts
    assert meter.value("ft.deadline.calls.total", exceeded="false") == 1
    assert meter.durations("ft.timeout.executionDuration").sum == pytest.approx(attempts)


def test_counts_of_a_cancelled_call_are_there_before_its_result() -> None:
    """R7b: also where the call is cancelled while a thread runs it, between its body and the next step."""
    busy, go_on = threading.Event(), threading.Event()

    def ask(failure: BaseException) -> bool:
        busy.set()
        return go_on.wait(10)

    @retry_when(exception=ask)
    @retry(max_retries=1, jitter=0)
    @asynchronous
    def service() -> Future[str]:
        raise ConnectionError

    future = service()
    assert busy.wait(10)
    assert future.cancel()
    assert future.done()
    threading.Timer(0.05, go_on.set).start()

    with pytest.raises(concurrent.futures.CancelledError):
        future.result(10)
    assert counted(service)["ft.invocations.total"] == [{"result": "exceptionThrown", "fallback": "notDefined"}]


def test_call_that_cancels_itself_does_not_wait_for_itself() -> None:
    """R7b: a predicate may cancel its own call, and gets the answer."""
    told: list[bool] = []
    made = threading.Event()

    def ask(failure: BaseException) -> bool:
        future.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            future.result(10)
        told.append(True)
        return True

    @retry_when(exception=ask)
    @retry(max_retries=1, jitter=0)
    @asynchronous
    def service() -> Future[str]:
        made.wait(10)
        raise ConnectionError

    future = service()
    made.set()

    with pytest.raises(concurrent.futures.CancelledError):
        future.exception(10)
    with pytest.raises(concurrent.futures.CancelledError):
        future.exception(10)
    assert told == [True]
