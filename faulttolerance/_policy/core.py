"""The policies of the core: the annotations of the specification and of SmallRye, except ``@fallback``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, final

from ..typing import Duration, ExceptionSet
from .kind import BRIEF, SHORT, choice, duration, function, integer, kinds, number, rate, text, word
from .parameter import Contradiction, Policy
from .unit import ChronoUnit, Unit, member, seconds

if TYPE_CHECKING:
    from dataclasses import KW_ONLY

T = TypeVar("T")
Predicate: TypeAlias = Callable[[T], bool | Awaitable[bool]]


@final
class Retry(Policy, kw_only=True):
    """Repeat a failed attempt until the call succeeds or a limit is reached (specification, chapter Retry Policy).

    Args:
        max_retries: Attempts after the first; -1 for no limit, 0 for none.
        delay: The time between attempts, in *delay_unit*; at least 0.
        delay_unit: The unit of *delay*.
        max_duration: The time after the start of the call after which no retry starts, in *duration_unit*; 0 for no
            limit, otherwise greater than *delay*.
        duration_unit: The unit of *max_duration*.
        jitter: Each delay is a random value from ``delay - jitter`` to ``delay + jitter``, at least 0; in
            *jitter_delay_unit*.
        jitter_delay_unit: The unit of *jitter*.
        jitter_kind: The kind of random variation of the delay from the back-off. ``"added"``: defined by *jitter*. The
            two others, with AWS's names, ignore *jitter*. ``"full"``: from 0 (``min_delay`` of the back-off) to that
            delay. ``"decorrelated"``: from the first delay to three times the last delay, in place of the growth of the
            back-off, whose ``max_delay`` still applies; without a back-off, at most a minute, or *delay* if that is
            more.
        retry_on: Failures to retry.
        abort_on: Failures never to retry, even if *retry_on* names them.
    """

    _kinds = kinds(
        max_retries=integer(-1, "-1 (no limit) or an integer >= 0"),
        delay=duration(unit="delay_unit", plausible=SHORT),
        max_duration=duration(unit="duration_unit", plausible=BRIEF),
        jitter=duration(unit="jitter_delay_unit"),
        jitter_kind=word("added", "full", "decorrelated"),
    )

    max_retries: int = 3
    delay: Duration = 0
    delay_unit: Unit = ChronoUnit.MILLIS
    max_duration: Duration = 180_000
    duration_unit: Unit = ChronoUnit.MILLIS
    jitter: Duration = 200
    jitter_delay_unit: Unit = ChronoUnit.MILLIS
    jitter_kind: Literal["added", "full", "decorrelated"] = "added"
    retry_on: ExceptionSet = Exception
    abort_on: ExceptionSet = ()

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Reject a ``max_duration`` that leaves no room for one delay."""
        delay = seconds(values["delay"], values["delay_unit"])
        limit = seconds(values["max_duration"], values["duration_unit"])
        if limit and limit <= delay:
            problem, others = f"is {limit:g} s while delay is {delay:g} s", ("duration_unit", "delay", "delay_unit")
            yield "max_duration", problem, "more than delay, or 0 (no limit)", others


@final
class ExponentialBackoff(Policy, kw_only=True):
    """Multiply the delay of ``@retry`` by *factor* after each attempt.

    Args:
        factor: At least 1; 2 doubles the delay each time.
        min_delay: The shortest delay, jitter included, in milliseconds; at most *max_delay*. If ``delay`` is 0, the
            growth starts with it.
        max_delay: The longest delay, jitter included; in *max_delay_unit*; 0 for no limit.
        max_delay_unit: The unit of *max_delay*.
    """

    _kinds = kinds(
        factor=number(1),
        max_delay=duration(unit="max_delay_unit", plausible=BRIEF),
    )

    factor: float = 2.0
    min_delay: Duration = 0
    max_delay: Duration = 60_000
    max_delay_unit: Unit = ChronoUnit.MILLIS

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Reject a ``min_delay`` above ``max_delay``."""
        shortest = seconds(values["min_delay"], ChronoUnit.MILLIS)
        longest = seconds(values["max_delay"], values["max_delay_unit"])
        if longest and shortest > longest:
            others = ("max_delay", "max_delay_unit")
            yield "min_delay", f"is {shortest:g} s while max_delay is {longest:g} s", "at most max_delay", others


@final
class FibonacciBackoff(Policy, kw_only=True):
    """Increase the delay of ``@retry`` like the Fibonacci numbers 1, 2, 3, 5, 8.

    Args:
        max_delay: The longest delay, jitter included; in *max_delay_unit*; 0 for no limit.
        max_delay_unit: The unit of *max_delay*.
    """

    _kinds = kinds(
        max_delay=duration(unit="max_delay_unit", plausible=BRIEF),
    )

    max_delay: Duration = 60_000
    max_delay_unit: Unit = ChronoUnit.MILLIS


@final
class CustomBackoff(Policy):
    """Compute each delay of ``@retry`` by a function of the application.

    Args:
        value: Called without arguments once per guarded call; returns a function that takes the failure and returns the
            seconds to wait, or a ``timedelta``; a negative value stops retrying. Either may be a coroutine function if
            the guarded function is asynchronous. If it fails, this is logged once, and ``delay`` of ``@retry`` applies.
    """

    _kinds = kinds(
        value=function("a class or function that creates the back-off function", is_optional=False, arguments=0),
    )

    value: Callable[[], Callable[[BaseException | None], float | timedelta]]


@final
class HonorRetryAfter(Policy, kw_only=True):
    """Wait for the time that a failure requests, if it is longer than the delay of ``@retry``.

    Args:
        max_delay: The longest requested wait, in milliseconds: a failure that requests more ends the retries; 0 for no
            limit.
        read: Takes the failure, and returns the time to wait, in seconds or as a ``timedelta``, or ``None``. It
            replaces the search for ``retry_after`` of refusals, the header ``Retry-After`` and gRPC's ``RetryInfo``. It
            may be a coroutine function if the guarded function is asynchronous. If it fails, this is logged once.
    """

    _kinds = kinds(
        max_delay=duration(plausible=BRIEF),
        read=function("a function that takes the failure and returns seconds, or None"),
    )

    max_delay: Duration = 60_000
    read: Callable[[BaseException], Any] | None = None


@final
class RetryWhen(Policy, kw_only=True):
    """Decide by predicates which outcomes ``@retry`` retries.

    Args:
        exception: Called with the exception; its answer replaces ``retry_on`` and ``abort_on``. Like *result* it may be
            a coroutine function if the guarded function is asynchronous.
        result: Called with the function's result; true if the call is retried as after a failure.
        give: The outcome if no further attempt is made. ``"exception"``: a ``FaultToleranceException``, whose
            ``result`` is the last result, unless a fallback replaces it; ``"result"``: the last result itself.
    """

    _kinds = kinds(
        give=word("exception", "result"),
    )

    exception: Predicate[BaseException] | None = None
    result: Predicate[Any] | None = None
    give: Literal["exception", "result"] = "exception"

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Reject a policy without a predicate, and a *give* of results without a predicate for results."""
        if values["exception"] is None and values["result"] is None:
            yield "exception", "is None, and so is result", "at least one predicate", ("result",)
        elif values["give"].lower() == "result" and values["result"] is None:
            yield "give", "is 'result', and no predicate refuses results", "'exception', or a predicate", ("result",)


@final
class BeforeRetry(Policy):
    """Run code before each retry, for example to reconnect, or to log in again.

    Args:
        value: Called before each attempt but the first; it may be a coroutine function if the guarded function is
            asynchronous. If it fails, this is logged once and changes nothing.
        method_name: Instead of *value*: a method without parameters of the same object.
    """

    _kinds = kinds(
        value=function("a callable that takes an ExecutionContext, or None"),
        method_name=text("a method's name", lambda name: True),
    )

    value: Callable[[Any], Any] | None = None
    _: KW_ONLY
    method_name: str = ""

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Reject both, and neither."""
        if (values["value"] is None) == (not values["method_name"]):
            yield "value", "and method_name are both set or both missing", "exactly one of them", ("method_name",)


@final
class Timeout(Policy, is_observable=True):
    """End an attempt that takes too long (specification, chapter Timeout).

    Args:
        value: The longest duration of an attempt, in *unit*; 0 for no limit.
        unit: The unit of *value*.
        interrupt: Whether a synchronous body is interrupted at the deadline; if not, its result is discarded when it
            ends late.
        adaptive: Whether the limit is three times the 99th percentile of the method's attempts: at most *value*, which
            is the only limit at first, and at least 10 ms.
    """

    _kinds = kinds(
        value=duration(note=" (0: no limit)", unit="unit", plausible=SHORT),
    )

    value: Duration = 1000
    unit: Unit = ChronoUnit.MILLIS
    _: KW_ONLY
    interrupt: bool = True
    adaptive: bool = False


@final
class RetryBudget(Policy, is_observable=True):
    """Limit the number of retries and hedges in proportion to successful calls.

    A budget starts with *burst* tokens, which is also its maximum. A retry or a hedge costs 1 token, and does not start
    if fewer are left. A successful retry returns its token.

    Args:
        ratio: The tokens that a call adds if it succeeds without a retry; 0 to 1.
        burst: The number of tokens at the start, and the maximum; at least 1.
        name: All policies with the same name share one budget, and must have equal values; configuration cannot change
            the name. Without a name, each method has its own budget.
    """

    _kinds = kinds(
        ratio=number(0, 1),
        name=text("a name, or none", lambda name: True, is_configurable=False),
    )

    ratio: float = 0.2
    burst: int = 10
    name: str = ""


@final
class CircuitBreaker(Policy, kw_only=True, is_observable=True):
    """Fail at once while the callee fails often (specification, chapter Circuit Breaker).

    Args:
        fail_on: Exceptions that count as failures.
        skip_on: Exceptions that count as successes, even if *fail_on* names them.
        delay: The time for which the circuit stays open before it admits probes, in *delay_unit*.
        delay_unit: The unit of *delay*.
        request_volume_threshold: The length of the rolling window, in calls; the circuit decides only when it is full.
        failure_ratio: The share of failures in the window that opens the circuit; from 0 to 1.
        success_threshold: The number of probes that must succeed to close the circuit; it is also the maximum number of
            probes in flight.
        slow: The duration from which a success counts as a failure of the circuit, and for nothing else, in
            milliseconds; 0 for no limit.
        window: The time for which a result counts, in milliseconds. The circuit is assessed whenever the window holds
            at least *request_volume_threshold* results, without a maximum. With 0, the last *request_volume_threshold*
            results count, of any age.
        max_delay: The maximum of a growing delay, in milliseconds, if it is more than *delay*: each time a probe opens
            the circuit again, the delay doubles up to this value, and varies by a tenth; when the circuit closes, the
            delay is reset. With 0, the delay is always *delay*.
        name: A name under which ``circuit_breakers`` finds the circuit; each living circuit breaker has its own.
            Configuration cannot change it.
    """

    _kinds = kinds(
        delay=duration(unit="delay_unit", plausible=BRIEF),
        failure_ratio=number(0.0, 1.0),
        slow=duration(note=" (0: off)", plausible=SHORT),
        window=duration(note=" (0: off)", plausible=BRIEF),
        max_delay=duration(note=" (0: off)", plausible=BRIEF),
        name=text("a name, or none", lambda name: True, is_configurable=False),
    )

    fail_on: ExceptionSet = Exception
    skip_on: ExceptionSet = ()
    delay: Duration = 5000
    delay_unit: Unit = ChronoUnit.MILLIS
    request_volume_threshold: int = 20
    failure_ratio: float = 0.5
    success_threshold: int = 1
    slow: Duration = 0
    window: Duration = 0
    max_delay: Duration = 0
    name: str = ""


@final
class CircuitBreakerName(Policy, is_configurable=False):
    """The name of the circuit breaker, as the parameter ``name`` of ``CircuitBreaker``; SmallRye's annotation.

    Args:
        value: The name, not empty; each living circuit breaker has its own.
    """

    _kinds = kinds(
        value=text("a name", bool),
    )

    value: str


@final
class FailWhen(Policy, kw_only=True):
    """Define by predicates the failures of the circuit, or of the throttle in its place, and nothing else.

    Args:
        exception: Called with an exception that ``skip_on`` does not name; true if it is a failure, in addition to
            those that ``fail_on`` names. If ``fail_on`` is ``Exception``, as by default, only the predicate decides.
            Like *result* it may be a coroutine function if the guarded function is asynchronous.
        result: Called with the function's result; true if it is a failure. The caller still receives the result.
    """

    exception: Predicate[BaseException] | None = None
    result: Predicate[Any] | None = None

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Reject a policy without a predicate."""
        if values["exception"] is None and values["result"] is None:
            yield "exception", "is None, and so is result", "at least one predicate", ("result",)


@final
class Bulkhead(Policy, is_observable=True):
    """Limit the number of calls that run at the same time (specification, chapter Bulkhead).

    Args:
        value: The number of calls that may run at the same time; at least 1.
        waiting_task_queue: The number of calls that may wait for a permit; at least 1. Synchronous calls wait only with
            a *max_wait*; otherwise they are refused while all permits are taken.
        max_wait: The longest wait of a call, synchronous or not, in milliseconds; with 0, synchronous calls do not
            wait, and asynchronous calls wait for at most *latency*, or without a limit if that is 0, too.
        latency: The target for the duration of nine in ten calls, in milliseconds. The limit adapts to reach it, with
            *value* as its maximum; with 0, the limit is always *value*.
    """

    _kinds = kinds(
        max_wait=duration(plausible=SHORT),
    )

    value: int = 10
    waiting_task_queue: int = 10
    _: KW_ONLY
    max_wait: Duration = 0
    latency: Duration = 0


class RateLimitType(Enum):
    """The ways in which the window of a rate limit moves."""

    FIXED = "fixed"
    """Windows follow one another; each starts with all its permits."""
    ROLLING = "rolling"
    """No period as long as the window has more admitted calls than the limit."""
    SMOOTH = "smooth"
    """Permits return one by one, at an even rate; after a pause, ``burst`` calls are admitted at once."""

    def __repr__(self) -> str:
        return str(self)


@final
class RateLimit(Policy, is_observable=True):
    """Reject calls beyond a number per window.

    Args:
        value: Calls that are admitted in one window; at least 1.
        window: The length of the window, in *window_unit*; more than 0.
        window_unit: The unit of *window*.
        min_spacing: The shortest time between two admitted calls, in *min_spacing_unit*.
        min_spacing_unit: The unit of *min_spacing*.
        type: The way in which the window moves; a ``RateLimitType`` or its name.
        max_wait: The longest wait of a call for its turn, in milliseconds; with 0, calls are refused instead.
        burst: Calls that may start at once after a pause; 1 unless *type* is smooth.
    """

    _kinds = kinds(
        value=rate(),
        window=duration("> 0", unit="window_unit"),
        min_spacing=duration(unit="min_spacing_unit"),
        type=choice(RateLimitType),
        max_wait=duration(plausible=SHORT),
    )

    value: int = 100
    window: Duration = 1
    window_unit: Unit = ChronoUnit.SECONDS
    _: KW_ONLY
    min_spacing: Duration = 0
    min_spacing_unit: Unit = ChronoUnit.SECONDS
    type: RateLimitType | Literal["fixed", "rolling", "smooth"] = RateLimitType.FIXED
    max_wait: Duration = 0
    burst: int = 1

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Reject a burst without an effect."""
        if values["burst"] != 1 and member(RateLimitType, values["type"]) is not RateLimitType.SMOOTH:
            yield "burst", f"is {values['burst']}", "1, unless the type is smooth", ("type",)


@final
class Asynchronous(Policy):
    """Return at once, and run the call on another thread, or as a task (specification, chapter Asynchronous)."""


@final
class AsynchronousNonBlocking(Policy):
    """Call the function on the caller's thread; the call ends when the returned awaitable is complete (SmallRye)."""
