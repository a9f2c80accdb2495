"""The policy of ``@retry``, and those of the annotations of SmallRye that refine it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, final

from ..typing import Duration, ExceptionSet
from .kind import BRIEF, SHORT, duration, exceptions, function, integer, kinds, number, text, unit, word
from .parameter import Contradiction, Policy
from .unit import ChronoUnit, Unit, seconds

if TYPE_CHECKING:
    from dataclasses import KW_ONLY

T = TypeVar("T")
Predicate: TypeAlias = Callable[[T], bool | Awaitable[bool]]


@final
class Retry(Policy, kw_only=True):
    """Call again when a call fails, until it succeeds or a limit is met (specification, chapter Retry Policy).

    Args:
        max_retries: Attempts after the first; -1 for no limit, 0 for none.
        delay: Time between attempts, in *delay_unit*; at least 0.
        delay_unit: What *delay* counts.
        max_duration: No retry is begun later than this after the call began, in *duration_unit*; 0 for no limit, else
            greater than *delay*.
        duration_unit: What *max_duration* counts.
        jitter: Each delay is drawn from ``delay - jitter`` to ``delay + jitter``, at least 0; in *jitter_delay_unit*.
        jitter_delay_unit: What *jitter* counts.
        jitter_kind: How chance varies the delay that the back-off gives. ``"added"``: as *jitter* says; the two others,
            as AWS names them, leave *jitter* alone. ``"full"``: drawn from 0 (``min_delay`` of the back-off) to that
            delay. ``"decorrelated"``: drawn from the first delay to three times the last one, instead of the growth of
            the back-off, whose ``max_delay`` holds; without a back-off, at most a minute, or *delay* if that is more.
        retry_on: Failures to retry.
        abort_on: Failures never to retry, also where *retry_on* names them.
    """

    _kinds = kinds(
        max_retries=integer(-1, "-1 (no limit) or an integer >= 0"),
        delay=duration(unit="delay_unit", plausible=SHORT),
        delay_unit=unit(),
        max_duration=duration(unit="duration_unit", plausible=BRIEF),
        duration_unit=unit(),
        jitter=duration(unit="jitter_delay_unit"),
        jitter_delay_unit=unit(),
        jitter_kind=word("added", "full", "decorrelated"),
        retry_on=exceptions(),
        abort_on=exceptions(),
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
        """Refuse a ``max_duration`` that leaves no room for one delay."""
        delay = seconds(values["delay"], values["delay_unit"])
        limit = seconds(values["max_duration"], values["duration_unit"])
        if limit and limit <= delay:
            others = ("duration_unit", "delay", "delay_unit")
            yield (
                "max_duration",
                f"is {limit:g} s while delay is {delay:g} s",
                "more than delay, or 0 (no limit)",
                others,
            )


@final
class ExponentialBackoff(Policy, kw_only=True):
    """Multiply the delay of ``@retry`` by *factor* after each attempt.

    Args:
        factor: At least 1; 2 doubles the delay each time.
        min_delay: No delay is shorter, jitter included; in milliseconds. Where ``delay`` is 0, growth begins with it.
        max_delay: No delay is longer, jitter included; in *max_delay_unit*; 0 for no limit.
        max_delay_unit: What *max_delay* counts.
    """

    _kinds = kinds(
        factor=number(1),
        min_delay=duration(),
        max_delay=duration(unit="max_delay_unit", plausible=BRIEF),
        max_delay_unit=unit(),
    )

    factor: float = 2.0
    min_delay: Duration = 0
    max_delay: Duration = 60_000
    max_delay_unit: Unit = ChronoUnit.MILLIS

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Refuse a ``min_delay`` above ``max_delay``."""
        shortest = seconds(values["min_delay"], ChronoUnit.MILLIS)
        longest = seconds(values["max_delay"], values["max_delay_unit"])
        if longest and shortest > longest:
            others = ("max_delay", "max_delay_unit")
            yield "min_delay", f"is {shortest:g} s while max_delay is {longest:g} s", "at most max_delay", others


@final
class FibonacciBackoff(Policy, kw_only=True):
    """Let the delay of ``@retry`` grow as the Fibonacci numbers 1, 2, 3, 5, 8 do.

    Args:
        max_delay: No delay is longer, jitter included; in *max_delay_unit*; 0 for no limit.
        max_delay_unit: What *max_delay* counts.
    """

    _kinds = kinds(
        max_delay=duration(unit="max_delay_unit", plausible=BRIEF),
        max_delay_unit=unit(),
    )

    max_delay: Duration = 60_000
    max_delay_unit: Unit = ChronoUnit.MILLIS


@final
class CustomBackoff(Policy):
    """Let a function of the application decide each delay of ``@retry``.

    Args:
        value: Called without arguments once per guarded call, it gives a function that is called with the failure and
            returns the seconds to wait, or a ``timedelta``; a negative one stops retrying. Either may be a coroutine
            function where the guarded function is asynchronous. Where it fails, that is logged once, and ``delay`` of
            ``@retry`` counts.
    """

    _kinds = kinds(
        value=function("a class or function that makes the back-off function", is_optional=False),
    )

    value: Callable[[], Callable[[BaseException | None], float | timedelta]]


@final
class HonorRetryAfter(Policy, kw_only=True):
    """Let ``@retry`` wait as long as a failure says, where that is longer than the delay.

    Args:
        max_delay: A failure that says more ends the retries, in milliseconds; 0 for no limit.
        read: Given the failure, it returns how long to wait, in seconds or as a ``timedelta``, or ``None``; instead of
            looking for ``retry_after`` of refusals, the header ``Retry-After`` and gRPC's ``RetryInfo``. It may be a
            coroutine function where the guarded function is asynchronous. One that fails is logged once.
    """

    _kinds = kinds(
        max_delay=duration(plausible=BRIEF),
        read=function("a function that takes the failure and gives seconds, or None"),
    )

    max_delay: Duration = 60_000
    read: Callable[[BaseException], Any] | None = None


@final
class RetryWhen(Policy, kw_only=True):
    """Let predicates decide what ``@retry`` retries.

    Args:
        exception: Given the exception; its answer replaces ``retry_on`` and ``abort_on``. Like *result* it may be a
            coroutine function where the guarded function is asynchronous.
        result: Given what the function returned; true means that the call is retried as if it had failed.
        give: What comes out when no further attempt is made. ``"exception"``: a ``FaultToleranceException``, whose
            ``result`` is the last one, unless a fallback replaces it; ``"result"``: the last result itself.
    """

    _kinds = kinds(
        exception=function("a predicate or None"),
        result=function("a predicate or None"),
        give=word("exception", "result"),
    )

    exception: Predicate[BaseException] | None = None
    result: Predicate[Any] | None = None
    give: Literal["exception", "result"] = "exception"

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Refuse to have no predicate, and to give results that nothing refuses."""
        if values["exception"] is None and values["result"] is None:
            yield "exception", "is None, and so is result", "at least one predicate", ("result",)
        elif values["give"].lower() == "result" and values["result"] is None:
            yield "give", "is 'result', and no predicate refuses results", "'exception', or a predicate", ("result",)


@final
class BeforeRetry(Policy):
    """Run something before each retry: reconnect, log in again.

    Args:
        value: Called with an ``ExecutionContext`` before each attempt but the first; may be a coroutine function where
            the guarded function is asynchronous. A failure of it is logged once and changes nothing.
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
        """Refuse both, and neither."""
        if (values["value"] is None) == (not values["method_name"]):
            yield "value", "and method_name are both given or both missing", "exactly one of them", ("method_name",)
