"""The policy of ``@retry``, and those of SmallRye's annotations that refine it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, final

from ..typing import Duration, ExceptionSet
from .kind import BRIEF, SHORT, duration, function, integer, kinds, number, text, word
from .parameter import Contradiction, Policy
from .unit import ChronoUnit, Unit, seconds

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
        min_delay: The shortest delay, jitter included; in milliseconds. If ``delay`` is 0, the growth starts with it.
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
        value=function("a class or function that creates the back-off function", is_optional=False),
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
        value: Called with an ``ExecutionContext`` before each attempt but the first; it may be a coroutine function if
            the guarded function is asynchronous. If it fails, this is logged once and changes nothing.
        method_name: Instead of *value*: a method without parameters of the same object.
    """

    _kinds = kinds(
        value=function("a callable or None"),
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
