"""Which series a guarded method has, and which of them each outcome advances (specification, chapter on metrics)."""

from __future__ import annotations

from functools import cache
from itertools import product

from .._runtime.clock import clock
from .._strategy.bulkhead import Bulkhead
from .._strategy.circuit_breaker import CLOSED, HALF_OPEN, OPEN, CircuitBreaker
from .catalogue import Series
from .counters import Schema

__all__ = [
    "ACCEPTED",
    "BREAKER_FAILURE",
    "BREAKER_OPEN",
    "BREAKER_SUCCESS",
    "IN_TIME",
    "PERMITTED",
    "REJECTED",
    "RETRY",
    "TIMED_OUT",
    "TOO_MANY",
    "Meter",
    "invocation",
    "retry_call",
    "schema_of",
]


def _one(name: str, **tags: str) -> Series:
    return name, tuple(tags.items())


BREAKER_SUCCESS = _one("ft.circuitbreaker.calls.total", circuitBreakerResult="success")
BREAKER_FAILURE = _one("ft.circuitbreaker.calls.total", circuitBreakerResult="failure")
BREAKER_OPEN = _one("ft.circuitbreaker.calls.total", circuitBreakerResult="circuitBreakerOpen")
PERMITTED = _one("ft.ratelimit.calls.total", rateLimitResult="permitted")
TOO_MANY = _one("ft.ratelimit.calls.total", rateLimitResult="rejected")
IN_TIME = _one("ft.timeout.calls.total", timedOut="false")
TIMED_OUT = _one("ft.timeout.calls.total", timedOut="true")
ACCEPTED = _one("ft.bulkhead.calls.total", bulkheadResult="accepted")
REJECTED = _one("ft.bulkhead.calls.total", bulkheadResult="rejected")
RETRY = _one("ft.retry.retries.total")
OPENED = _one("ft.circuitbreaker.opened.total")
IN_CLOSED = _one("ft.circuitbreaker.state.total", state="closed")
IN_OPEN = _one("ft.circuitbreaker.state.total", state="open")
IN_HALF_OPEN = _one("ft.circuitbreaker.state.total", state="halfOpen")
RUNNING = _one("ft.bulkhead.executionsRunning")
WAITING = _one("ft.bulkhead.executionsWaiting")

_INVOCATIONS = {
    (result, fallback): _one("ft.invocations.total", result=result, fallback=fallback)
    for result, fallback in product(("valueReturned", "exceptionThrown"), ("applied", "notApplied", "notDefined"))
}
_RETRY_CALLS = {
    (retried, result): _one("ft.retry.calls.total", retried="true" if retried else "false", retryResult=result)
    for retried, result in product(
        (True, False), ("valueReturned", "exceptionNotRetryable", "maxRetriesReached", "maxDurationReached")
    )
}


def invocation(returned: bool, fallback: str) -> Series:
    """One guarded call; *fallback* is ``applied``, ``notApplied`` or ``notDefined``."""
    return _INVOCATIONS["valueReturned" if returned else "exceptionThrown", fallback]


def retry_call(retried: bool, result: str) -> Series:
    """One run of the retry logic, and why it made no further attempt."""
    return _RETRY_CALLS[retried, result]


@cache
def schema_of(
    *, fallback: bool, retry: bool, circuit_breaker: bool, rate_limit: bool, timeout: bool, bulkhead: bool, queue: bool
) -> Schema:
    """The series of a method with these policies, the same object each time.

    *queue* tells a bulkhead that lets calls wait: only that one has waiting times.
    """
    choices = ("applied", "notApplied") if fallback else ("notDefined",)
    series = [invocation(returned, choice) for returned in (True, False) for choice in choices]
    smooth = [invocation(True, choices[-1])]
    durations = []
    if retry:
        series += [*_RETRY_CALLS.values(), RETRY]
        smooth.append(retry_call(False, "valueReturned"))
    if circuit_breaker:
        series += [BREAKER_SUCCESS, BREAKER_FAILURE, BREAKER_OPEN]
        smooth.append(BREAKER_SUCCESS)
    if rate_limit:
        series += [PERMITTED, TOO_MANY]
        smooth.append(PERMITTED)
    if timeout:
        series += [IN_TIME, TIMED_OUT]
        smooth.append(IN_TIME)
        durations.append("ft.timeout.executionDuration")
    if bulkhead:
        series += [ACCEPTED, REJECTED]
        smooth.append(ACCEPTED)
        durations.append("ft.bulkhead.runningDuration")
    if bulkhead and queue:
        durations.append("ft.bulkhead.waitingDuration")
    return Schema(tuple(series), tuple(smooth), tuple(durations))


class Meter:
    """Reads what a breaker and a bulkhead keep themselves, so that it is right also while nobody calls."""

    __slots__ = ("breaker", "bulkhead", "queues")

    def __init__(self, breaker: CircuitBreaker | None, bulkhead: Bulkhead | None, queues: bool) -> None:
        self.breaker = breaker
        self.bulkhead = bulkhead
        self.queues = queues
        """Whether calls may wait for a permit, or ever might."""

    def totals(self) -> dict[Series, int]:
        """What only grows."""
        if self.breaker is None:
            return {}
        breaker, now = self.breaker, clock.monotonic()
        return {
            IN_CLOSED: _nanoseconds(breaker.time_in(CLOSED, now)),
            IN_OPEN: _nanoseconds(breaker.time_in(OPEN, now)),
            IN_HALF_OPEN: _nanoseconds(breaker.time_in(HALF_OPEN, now)),
            OPENED: breaker.opened_total,
        }

    def levels(self) -> dict[Series, int]:
        """How many calls run and, where calls may wait, how many do."""
        if self.bulkhead is None:
            return {}
        running = {RUNNING: self.bulkhead.running}
        return {**running, WAITING: self.bulkhead.waiting_count} if self.queues else running


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
