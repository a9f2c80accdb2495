"""What a user writes above a function, a method or a class.

Every decorator works on functions, methods, ``async def``, static and class methods (either side of them), callables
and classes, in any order: all policies of one function make one guard, nested as the specification says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, overload

from ._policy import (
    Asynchronous,
    AsynchronousNonBlocking,
    BeforeRetry,
    Bulkhead,
    ChronoUnit,
    CircuitBreaker,
    CircuitBreakerName,
    CustomBackoff,
    ExponentialBackoff,
    Fallback,
    FibonacciBackoff,
    Policy,
    RateLimit,
    RateLimitType,
    Retry,
    RetryWhen,
    Timeout,
)
from .typing import Duration, ExceptionSet, FallbackHandler

__all__ = [
    "asynchronous",
    "asynchronous_non_blocking",
    "before_retry",
    "bulkhead",
    "circuit_breaker",
    "circuit_breaker_name",
    "custom_backoff",
    "exponential_backoff",
    "fallback",
    "fibonacci_backoff",
    "rate_limit",
    "retry",
    "retry_when",
    "timeout",
]

if TYPE_CHECKING:
    from ._runtime.future import ExecutorFuture, Future
    from .typing import AsyncCall

    C = TypeVar("C", bound=type[Any] | staticmethod[..., Any] | classmethod[Any, ..., Any])
    F = TypeVar("F", bound=Callable[..., Any] | staticmethod[..., Any] | classmethod[Any, ..., Any])
    P = ParamSpec("P")
    T = TypeVar("T")
    Owner = TypeVar("Owner")
else:
    F = TypeVar("F")  # at run time a static method takes no parameters
Decorator = Callable[[F], F]


def _decorate(kind: type[Policy], values: Mapping[str, Any], target: Any = None) -> Any:
    """See ``attach.decorate``. What guards are made of is loaded with the first of them, not by ``import``."""
    from ._guard.attach import decorate

    return decorate(kind, values, target)


@overload
def retry(target: F, /) -> F: ...
@overload
def retry(
    target: F,
    /,
    *,
    max_retries: int = ...,
    delay: Duration = ...,
    delay_unit: ChronoUnit = ...,
    max_duration: Duration = ...,
    duration_unit: ChronoUnit = ...,
    jitter: Duration = ...,
    jitter_delay_unit: ChronoUnit = ...,
    retry_on: ExceptionSet = ...,
    abort_on: ExceptionSet = ...,
) -> F: ...
@overload
def retry(
    *,
    max_retries: int = ...,
    delay: Duration = ...,
    delay_unit: ChronoUnit = ...,
    max_duration: Duration = ...,
    duration_unit: ChronoUnit = ...,
    jitter: Duration = ...,
    jitter_delay_unit: ChronoUnit = ...,
    retry_on: ExceptionSet = ...,
    abort_on: ExceptionSet = ...,
) -> Callable[[F], F]: ...
def retry(target: Any = None, /, **parameters: Any) -> Any:
    """Call again when a call fails, until it succeeds or a limit is met (specification, chapter Retry Policy).

    At the limit the last failure comes out as it is, with a note that says how often and how long it was tried.

    Args:
        target: What to guard, where the decorator stands without parentheses.
        **parameters: ``max_retries=3`` (-1: no limit), ``delay=0``, ``delay_unit=MILLIS``, ``max_duration=180_000``
            (0: no limit), ``duration_unit=MILLIS``, ``jitter=200``, ``jitter_delay_unit=MILLIS``,
            ``retry_on=Exception``, ``abort_on=()``; see ``Retry``.

    Raises:
        FaultToleranceDefinitionException: When decorating, if a value is out of range, or *target* cannot be guarded.

    >>> @retry(max_retries=2, retry_on=OSError)
    ... def read() -> str:
    ...     return "ready"
    >>> read()
    'ready'
    """
    return _decorate(Retry, _checked(Retry, parameters), target)


@overload
def timeout(value: F, /) -> F: ...
@overload
def timeout(value: float | timedelta = ..., unit: ChronoUnit = ..., *, interrupt: bool = ...) -> Callable[[F], F]: ...
def timeout(value: Any = 1000, unit: ChronoUnit = ChronoUnit.MILLIS, *, interrupt: bool = True) -> Any:
    """End an attempt that takes too long with ``TimeoutException`` (specification, chapter Timeout).

    A synchronous body is interrupted at the deadline by ``Interrupted``; one that cannot be interrupted ends late, and
    its result is discarded. A coroutine is cancelled.

    Args:
        value: How long an attempt may take, in *unit* or as a ``timedelta``; 0: no limit.
        unit: What *value* counts.
        interrupt: Whether a synchronous body is interrupted, or only judged when it ends.

    Raises:
        FaultToleranceDefinitionException: When decorating, if a value is out of range.

    >>> @timeout(400)
    ... def read() -> str:
    ...     return "ready"
    >>> read()
    'ready'
    """
    value, target = _told_apart(value, 1000)
    return _decorate(Timeout, {"value": value, "unit": unit, "interrupt": interrupt}, target)


@overload
def circuit_breaker(target: F, /) -> F: ...
@overload
def circuit_breaker(
    *,
    fail_on: ExceptionSet = ...,
    skip_on: ExceptionSet = ...,
    delay: Duration = ...,
    delay_unit: ChronoUnit = ...,
    request_volume_threshold: int = ...,
    failure_ratio: float = ...,
    success_threshold: int = ...,
) -> Callable[[F], F]: ...
def circuit_breaker(target: Any = None, /, **parameters: Any) -> Any:
    """Fail at once while the callee fails often (specification, chapter Circuit Breaker).

    Args:
        target: What to guard, where the decorator stands without parentheses.
        **parameters: ``fail_on=Exception``, ``skip_on=()``, ``delay=5000``, ``delay_unit=MILLIS``,
            ``request_volume_threshold=20``, ``failure_ratio=0.5``, ``success_threshold=1``; see ``CircuitBreaker``.

    Raises:
        FaultToleranceDefinitionException: When decorating, if a value is out of range.
    """
    return _decorate(CircuitBreaker, _checked(CircuitBreaker, parameters), target)


@overload
def bulkhead(value: F, /) -> F: ...
@overload
def bulkhead(value: int = ..., waiting_task_queue: int = ...) -> Callable[[F], F]: ...
def bulkhead(value: Any = 10, waiting_task_queue: int = 10) -> Any:
    """Limit how many calls run at once (specification, chapter Bulkhead).

    Args:
        value: Calls that may run at once; at least 1.
        waiting_task_queue: Asynchronous calls that may wait for their turn; at least 1. Synchronous ones never wait.

    Raises:
        FaultToleranceDefinitionException: When decorating, if a value is out of range.
    """
    value, target = _told_apart(value, 10)
    return _decorate(Bulkhead, {"value": value, "waiting_task_queue": waiting_task_queue}, target)


def fallback(
    value: type[FallbackHandler[Any]] | Callable[[Any], Any] | None = None,
    *,
    fallback_method: str = "",
    apply_on: ExceptionSet = Exception,
    skip_on: ExceptionSet = (),
) -> Callable[[F], F]:
    """Return a substitute when a call fails after all else was tried (specification, chapter Fallback).

    Args:
        value: A ``FallbackHandler`` class, or any callable that takes an ``ExecutionContext``.
        fallback_method: Instead of *value*: the name of a method of the same class, or of a function of the same
            module, with the same parameters and at will the exception as one more.
        apply_on: Failures that the fallback replaces.
        skip_on: Failures that it never replaces, also where *apply_on* names them.

    Raises:
        FaultToleranceDefinitionException: When decorating, if both or neither are given, or the method does not fit.

    >>> @fallback(lambda context: "cached")
    ... def read() -> str:
    ...     raise OSError
    >>> read()
    'cached'
    """
    from ._guard.attach import refuse_bare

    refuse_bare(Fallback, value)
    given = {"value": value, "fallback_method": fallback_method, "apply_on": apply_on, "skip_on": skip_on}
    return _decorate(Fallback, given)  # type: ignore[no-any-return]


if TYPE_CHECKING:

    class _Asynchronous(Protocol):
        """``@asynchronous()``: gives handles where it stands above a coroutine function, else futures."""

        @overload
        def __call__(  # type: ignore[overload-overlap]
            self, target: staticmethod[P, Coroutine[Any, Any, T]], /
        ) -> staticmethod[P, AsyncCall[T]]: ...
        @overload
        def __call__(
            self, target: classmethod[Owner, P, Coroutine[Any, Any, T]], /
        ) -> classmethod[Owner, P, AsyncCall[T]]: ...
        @overload
        def __call__(self, target: C, /) -> C: ...
        @overload
        def __call__(  # type: ignore[overload-overlap]
            self, target: Callable[P, Coroutine[Any, Any, T]], /
        ) -> Callable[P, AsyncCall[T]]: ...
        @overload
        def __call__(self, target: Callable[P, ExecutorFuture[T]], /) -> Callable[P, Future[T]]: ...
        @overload
        def __call__(self, target: Callable[P, Awaitable[T]], /) -> Callable[P, Future[T]]: ...
        @overload
        def __call__(self, target: F, /) -> F: ...

    class _NonBlocking(Protocol):
        """``@asynchronous_non_blocking()``: gives handles."""

        @overload
        def __call__(self, target: C, /) -> C: ...
        @overload
        def __call__(self, target: Callable[P, Awaitable[T]], /) -> Callable[P, AsyncCall[T]]: ...
        @overload
        def __call__(self, target: F, /) -> F: ...


@overload
def asynchronous(  # type: ignore[overload-overlap]
    target: staticmethod[P, Coroutine[Any, Any, T]], /
) -> staticmethod[P, AsyncCall[T]]: ...
@overload
def asynchronous(target: classmethod[Owner, P, Coroutine[Any, Any, T]], /) -> classmethod[Owner, P, AsyncCall[T]]: ...
@overload
def asynchronous(target: C, /) -> C: ...
@overload
def asynchronous(  # type: ignore[overload-overlap]
    target: Callable[P, Coroutine[Any, Any, T]], /
) -> Callable[P, AsyncCall[T]]: ...
@overload
def asynchronous(target: Callable[P, ExecutorFuture[T]], /) -> Callable[P, Future[T]]: ...
@overload
def asynchronous(target: Callable[P, Awaitable[T]], /) -> Callable[P, Future[T]]: ...
@overload
def asynchronous(target: F, /) -> F: ...
@overload
def asynchronous() -> _Asynchronous: ...
def asynchronous(target: Any = None, /) -> Any:
    """Return at once, and run the call apart (specification, chapter Asynchronous).

    A ``def`` runs on a thread of the pool and returns a ``faulttolerance.Future``; an ``async def`` runs as a task. The
    return annotation decides whether policies see the completion of what a ``def`` returns (an awaitable) or only its
    own outcome (a ``Future``).

    Raises:
        FaultToleranceDefinitionException: When decorating, if the return annotation is another type.
    """
    return _decorate(Asynchronous, {}, target)


@overload
def asynchronous_non_blocking(target: C, /) -> C: ...
@overload
def asynchronous_non_blocking(target: Callable[P, Awaitable[T]], /) -> Callable[P, AsyncCall[T]]: ...
@overload
def asynchronous_non_blocking(target: F, /) -> F: ...
@overload
def asynchronous_non_blocking() -> _NonBlocking: ...
def asynchronous_non_blocking(target: Any = None, /) -> Any:
    """Run a ``def`` that returns an awaitable on the caller's thread; its call is over when the awaitable is."""
    return _decorate(AsynchronousNonBlocking, {}, target)


@overload
def rate_limit(value: F, /) -> F: ...
@overload
def rate_limit(
    value: int = ...,
    window: Duration = ...,
    window_unit: ChronoUnit = ...,
    *,
    min_spacing: Duration = ...,
    min_spacing_unit: ChronoUnit = ...,
    type: RateLimitType | Literal["fixed", "rolling", "smooth"] = ...,
) -> Callable[[F], F]: ...
def rate_limit(
    value: Any = 100,
    window: Duration = 1,
    window_unit: ChronoUnit = ChronoUnit.SECONDS,
    *,
    min_spacing: Duration = 0,
    min_spacing_unit: ChronoUnit = ChronoUnit.SECONDS,
    type: RateLimitType | Literal["fixed", "rolling", "smooth"] = RateLimitType.FIXED,  # noqa: A002  # the annotation's own name
) -> Any:
    """Refuse calls beyond a number per window with ``RateLimitException``; see ``RateLimit``.

    Raises:
        FaultToleranceDefinitionException: When decorating, if a value is out of range.
    """
    value, target = _told_apart(value, 100)
    given = {
        "value": value,
        "window": window,
        "window_unit": window_unit,
        "min_spacing": min_spacing,
        "min_spacing_unit": min_spacing_unit,
        "type": type,
    }
    return _decorate(RateLimit, given, target)


@overload
def exponential_backoff(target: F, /) -> F: ...
@overload
def exponential_backoff(
    *, factor: int = ..., max_delay: Duration = ..., max_delay_unit: ChronoUnit = ...
) -> Callable[[F], F]: ...
def exponential_backoff(target: Any = None, /, **parameters: Any) -> Any:
    """Multiply the delay of ``@retry`` after each attempt: ``factor=2``, at most ``max_delay=60_000`` milliseconds."""
    return _decorate(ExponentialBackoff, _checked(ExponentialBackoff, parameters), target)


@overload
def fibonacci_backoff(target: F, /) -> F: ...
@overload
def fibonacci_backoff(*, max_delay: Duration = ..., max_delay_unit: ChronoUnit = ...) -> Callable[[F], F]: ...
def fibonacci_backoff(target: Any = None, /, **parameters: Any) -> Any:
    """Let the delay of ``@retry`` grow as 1, 2, 3, 5, 8 do, at most ``max_delay=60_000`` milliseconds."""
    return _decorate(FibonacciBackoff, _checked(FibonacciBackoff, parameters), target)


def custom_backoff(value: Callable[[], Callable[[BaseException | None], Duration]]) -> Callable[[F], F]:
    """Let a function decide each delay of ``@retry``, in seconds; see ``CustomBackoff``."""
    return _decorate(CustomBackoff, {"value": value})  # type: ignore[no-any-return]


def retry_when(
    *,
    exception: Callable[[BaseException], bool | Awaitable[bool]] | None = None,
    result: Callable[[Any], bool | Awaitable[bool]] | None = None,
) -> Callable[[F], F]:
    """Let predicates decide what ``@retry`` retries; see ``RetryWhen``."""
    return _decorate(RetryWhen, {"exception": exception, "result": result})  # type: ignore[no-any-return]


def before_retry(value: Callable[[Any], Any] | None = None, *, method_name: str = "") -> Callable[[F], F]:
    """Run something before each retry; see ``BeforeRetry``."""
    return _decorate(BeforeRetry, {"value": value, "method_name": method_name})  # type: ignore[no-any-return]


def circuit_breaker_name(value: str) -> Callable[[F], F]:
    """Give the breaker of a method a name for ``circuit_breakers``; one living breaker per name."""
    return _decorate(CircuitBreakerName, {"value": value})  # type: ignore[no-any-return]


def _told_apart(first: Any, default: Any) -> tuple[Any, Any]:
    """A value, or what stands below a decorator without parentheses."""
    is_target = callable(first) or hasattr(type(first), "__get__")  # static methods, and what is refused: properties
    return (default, first) if is_target else (first, None)


def _checked(kind: Any, given: dict[str, Any]) -> dict[str, Any]:
    from ._policy import parameters

    known = parameters(kind)
    for name in given:
        if name not in known:
            raise TypeError(f"@{kind.annotation} has no parameter {name!r}; it has {', '.join(known)}")
    return given
