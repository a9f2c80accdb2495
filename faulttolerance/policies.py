"""Policies: as values for a ``Guard``, and as decorators, which the package itself exports.

>>> from faulttolerance import Guard
>>> Guard(retry=Retry(max_retries=2, retry_on=OSError), timeout=Timeout("400ms")).call(len, "ready")
5

Every decorator works on functions, methods, ``async def``, static and class methods (on either side of these),
callables and classes, in any order: all policies of one function form one guard, nested as the specification says. A
decorator has the parameters, ranges and defaults of the policy that it declares: ``@retry`` takes the arguments of
``Retry``. A decorator without required arguments needs no parentheses.

>>> @retry(max_retries=2, retry_on=OSError)
... @timeout("400ms")
... def read() -> str:
...     return "ready"
>>> read()
'ready'
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, overload

from ._extensions.adaptive_throttle.policy import AdaptiveThrottle
from ._extensions.chaos.policy import Chaos as _Chaos
from ._extensions.coalesce.policy import Coalesce
from ._extensions.deadline.policy import Deadline
from ._extensions.fleet.policy import FleetWide
from ._extensions.hedge.policy import Hedge
from ._extensions.partition_by.policy import PartitionBy
from ._policy import (
    Asynchronous,
    AsynchronousNonBlocking,
    BeforeRetry,
    Bulkhead,
    CircuitBreaker,
    CircuitBreakerName,
    CustomBackoff,
    ExponentialBackoff,
    FailWhen,
    Fallback,
    FibonacciBackoff,
    HonorRetryAfter,
    Policy,
    RateLimit,
    RateLimitType,
    Retry,
    RetryBudget,
    RetryWhen,
    Timeout,
    rows,
    warn_of_bare_numbers,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine
    from typing import ParamSpec, Protocol, TypeVar

    from ._call.row import Row
    from ._execution.criticality import Criticality
    from ._execution.future import ExecutorFuture, Future
    from ._extensions.deadline.decorator import WholeCall
    from .typing import AsyncCall, Duration

    C = TypeVar("C", bound=type[Any] | staticmethod[..., Any] | classmethod[Any, ..., Any])
    F = TypeVar("F", bound=Callable[..., Any] | staticmethod[..., Any] | classmethod[Any, ..., Any])
    P = ParamSpec("P")
    T = TypeVar("T")
    Owner = TypeVar("Owner")

    class _Decorator(Protocol[P]):
        """``@retry``, ``@retry(...)`` and ``retry(function, ...)``."""

        @overload
        def __call__(self, target: F, /, *args: P.args, **kwargs: P.kwargs) -> F: ...
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Callable[[F], F]: ...

    class _DecoratorWithParentheses(Protocol[P]):
        """``@fallback(...)``."""

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Callable[[F], F]: ...

    class _Deadline(Protocol):
        """``deadline``."""

        def __call__(self, value: Duration) -> WholeCall: ...

    class _Asynchronous(Protocol):
        """``@asynchronous``: returns handles above a coroutine function, else futures."""

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
        def __call__(self) -> _Asynchronous: ...

    class _NonBlocking(Protocol):
        """``@asynchronous_non_blocking``: returns handles."""

        @overload
        def __call__(self, target: C, /) -> C: ...
        @overload
        def __call__(self, target: Callable[P, Awaitable[T]], /) -> Callable[P, AsyncCall[T]]: ...
        @overload
        def __call__(self) -> _NonBlocking: ...


__all__ = [
    "AdaptiveThrottle",
    "BeforeRetry",
    "Bulkhead",
    "CircuitBreaker",
    "CircuitBreakerName",
    "Coalesce",
    "Criticality",
    "CustomBackoff",
    "Deadline",
    "ExponentialBackoff",
    "FailWhen",
    "Fallback",
    "FibonacciBackoff",
    "FleetWide",
    "Hedge",
    "HonorRetryAfter",
    "PartitionBy",
    "RateLimit",
    "RateLimitType",
    "Retry",
    "RetryBudget",
    "RetryWhen",
    "Timeout",
]


if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name != "Criticality":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from ._execution.criticality import Criticality  # later, because no declaration needs it

        return Criticality


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _rows() -> tuple[Row, ...]:
    from ._extensions.order import ORDER

    return ORDER


rows.load = _rows
_BY_CONFIGURATION = (_Chaos,)  # no decorator declares it; an import that is lazy needs a use


def _decorator(kind: Callable[P, Policy]) -> Callable[[Callable[[], None]], _Decorator[P]]:
    """Convert a documented name to the decorator that declares a *kind* of policy."""
    return _declaring(kind, takes_target=True)  # type: ignore[no-any-return]


def _decorator_with_parentheses(
    kind: Callable[P, Policy],
) -> Callable[[Callable[[], None]], _DecoratorWithParentheses[P]]:
    """Convert a documented name to a decorator that always needs arguments: its first argument may be a function."""
    return _declaring(kind, takes_target=False)  # type: ignore[no-any-return]


# Each distinct shape has its own function: editors that do not resolve overloads would show all of them.
def _asynchronous(kind: type[Asynchronous]) -> Callable[[Callable[[], None]], _Asynchronous]:
    return _declaring(kind, takes_target=True)  # type: ignore[no-any-return]


def _non_blocking(kind: type[AsynchronousNonBlocking]) -> Callable[[Callable[[], None]], _NonBlocking]:
    return _declaring(kind, takes_target=True)  # type: ignore[no-any-return]


def _whole_call(kind: type[Policy]) -> Callable[[Callable[[], None]], _Deadline]:
    return _declaring(kind, takes_target=False)  # type: ignore[no-any-return]


def _declaring(kind: Any, takes_target: bool) -> Any:
    def decorator(*args: Any, **named: Any) -> Any:
        # The modules of guards are imported with the first guard, not by ``import faulttolerance``.
        from ._guard.decorate.decorator import decorate, refuse_bare

        target = None
        if takes_target and args and _is_target(kind, args[0]):
            target, *args = args  # type: ignore[assignment]
        values = kind._bound(tuple(args), named)
        if not takes_target:
            refuse_bare(kind, next(iter(args), None))
        warn_of_bare_numbers(kind, args, named)
        return decorate(kind, values, target)

    def documented(name: Callable[[], None]) -> Any:
        update_wrapper(decorator, name)
        decorator.__doc__ = _with_arguments(name.__doc__, kind.__doc__)
        decorator.__wrapped__ = kind  # type: ignore[attr-defined]  # the kind creates its signature on access
        return decorator

    return documented


def _with_arguments(documentation: str | None, of_policy: str | None) -> str | None:
    """Return the *documentation* of a decorator with the arguments section of its policy."""
    above, title, arguments = (of_policy or "").partition("Args:\n")
    if not documentation or not title:
        return documentation
    indent = above.rpartition("\n")[2]  # empty from Python 3.13 on
    text, raises, errors = documentation.partition(f"{indent}Raises:\n")
    return f"{text.rstrip()}\n\n{indent}{title}{arguments.rstrip()}\n" + (f"\n{raises}{errors}" if raises else indent)


def _is_target(kind: Any, first: Any) -> bool:
    """Return whether the *first* argument is the target and no parameter; an unfit target is rejected later."""
    if kind.__match_args__[:1] == ("key",) and getattr(first, "__name__", "") == "<lambda>":
        return False  # it computes the key: a function worth coalescing is no lambda
    return not kind.__match_args__ or callable(first) or hasattr(type(first), "__get__")


@_decorator(Retry)
def retry() -> None:
    """Repeat a failed attempt until it succeeds or a limit is reached (specification, chapter Retry Policy).

    At the limit the last failure is raised unchanged, with a note that states the number and the duration of the
    attempts. The parameters are those of ``Retry``.

    Raises:
        FaultToleranceDefinitionException: When decorating, if a value is out of range, or the target cannot be guarded.
    """


@_decorator(Timeout)
def timeout() -> None:
    """End an attempt that takes too long with ``TimeoutException`` (specification, chapter Timeout).

    A synchronous body is interrupted at the deadline by ``Interrupted``; a body that cannot be interrupted ends late,
    and its result is discarded. A coroutine is cancelled. The parameters are those of ``Timeout``.

    Raises:
        FaultToleranceDefinitionException: When decorating, if a value is out of range.
    """


@_decorator(RetryBudget)
def retry_budget() -> None:
    """Limit retries and hedges in proportion to the calls that succeed: in an outage there are nearly none.

    It belongs to ``@retry`` or ``@hedge`` on the same method or its class. If it refuses a retry, the failure itself is
    raised. The parameters are those of ``RetryBudget``.

    Raises:
        FaultToleranceDefinitionException: When decorating, if a value is out of range; at the first call, without a
            policy that it limits, or if another guard has different values for a budget with the same name.
    """


@_whole_call(Deadline)
def deadline() -> None:
    """Limit the duration of a whole call, including all attempts, delays and waiting; or of a block of code.

    ``deadline(2000)`` decorates functions, methods and classes, and is a context manager for ``with`` and ``async
    with``, any number of times, also inside itself. When the deadline passes, the code under it is ended as by
    ``@timeout``, and the guard or block that set the deadline raises ``TimeoutException``; of nested deadlines the
    earlier one counts. A ``@fallback`` still answers. The parameter is that of ``Deadline``.

    Raises:
        FaultToleranceDefinitionException: At once, if the value is no duration.

    >>> with deadline("2s"):
    ...     "in time"
    'in time'
    """


@_decorator(CircuitBreaker)
def circuit_breaker() -> None:
    """Reject calls at once while the callee fails often (specification, chapter Circuit Breaker).

    The parameters are those of ``CircuitBreaker``.

    Raises:
        FaultToleranceDefinitionException: When decorating, if a value is out of range.
    """


@_decorator(AdaptiveThrottle)
def adaptive_throttle() -> None:
    """Reject a share of the calls while the callee rejects many, instead of a circuit breaker.

    Refused calls raise ``ThrottleException``; the parameters are those of ``AdaptiveThrottle``.

    Raises:
        FaultToleranceDefinitionException: When decorating, if a value is out of range.
    """


@_decorator(Hedge)
def hedge() -> None:
    """Start a second attempt while the first attempt takes long, and use the first success.

    Only for functions that may safely run twice, and for asynchronous calls: ``async def`` and ``@asynchronous``. The
    parameters are those of ``Hedge``.

    Raises:
        FaultToleranceDefinitionException: When decorating, if a value is out of range, or an argument is one that only
            one attempt could read; at the first call, if that is synchronous.
    """


@_decorator_with_parentheses(FailWhen)
def fail_when() -> None:
    """Define by predicates the failures of the circuit breaker, or of the adaptive throttle in its place.

    A result that counts as a failure of the circuit is still returned; the parameters are those of ``FailWhen``.

    Raises:
        FaultToleranceDefinitionException: When decorating, if there is no predicate, or a predicate does not fit.
    """


@_decorator(Bulkhead)
def bulkhead() -> None:
    """Limit the number of calls that run at once (specification, chapter Bulkhead).

    Asynchronous calls may wait for a permit; synchronous calls may wait if ``max_wait`` is set. The parameters are
    those of ``Bulkhead``.

    Raises:
        FaultToleranceDefinitionException: When decorating, if a value is out of range.
    """


@_decorator(RateLimit)
def rate_limit() -> None:
    """Reject calls beyond a number per window with ``RateLimitException``, or delay them until their turn.

    The parameters are those of ``RateLimit``.

    Raises:
        FaultToleranceDefinitionException: When decorating, if a value is out of range.
    """


@_decorator(FleetWide)
def fleet_wide() -> None:
    """Share the circuit and the rate limit of a function with every process of the fleet, under the guard's name.

    It belongs to ``@circuit_breaker`` or ``@rate_limit`` on the same method or its class. ``configure(fleet=...)`` sets
    the fleet; without a fleet, or while it cannot be reached, each process decides alone.

    Raises:
        FaultToleranceDefinitionException: At the first call, without a policy that can be shared.
    """


@_decorator_with_parentheses(Fallback)
def fallback() -> None:
    """Return a substitute if a call fails after all other policies (specification, chapter Fallback).

    As in ``@fallback(lambda context: "cached")``; the parameters are those of ``Fallback``.

    Raises:
        FaultToleranceDefinitionException: When decorating, if both or neither are given, or the method does not fit.
    """


@_decorator(Coalesce)
def coalesce() -> None:
    """Share one execution among overlapping calls with equal keys; its outcome is not kept afterwards.

    For functions and methods, not for classes; the parameter is that of ``Coalesce``. Pass a ``def`` function as the
    key by keyword, as in ``@coalesce(key=by_order)``; a lambda needs no keyword.

    Raises:
        FaultToleranceDefinitionException: When decorating, if the key does not fit the function.
    """


@_decorator_with_parentheses(PartitionBy)
def partition_by() -> None:
    """Keep a circuit breaker or throttle, permits and a rate window for each key, instead of one for all calls.

    As in ``@partition_by("host")``; the parameters are those of ``PartitionBy``.

    Raises:
        FaultToleranceDefinitionException: When decorating, if the key does not fit the function.
    """


@_asynchronous(Asynchronous)
def asynchronous() -> None:
    """Return at once, and run the call detached (specification, chapter Asynchronous).

    A ``def`` runs on a thread of the pool and returns a ``faulttolerance.Future``; an ``async def`` runs as a task. The
    return annotation of a ``def`` decides whether policies see the completion of the awaitable that it returns, or only
    its own outcome (a ``Future``).

    Raises:
        FaultToleranceDefinitionException: When decorating, if the return annotation is another type.
    """


@_non_blocking(AsynchronousNonBlocking)
def asynchronous_non_blocking() -> None:
    """Run a ``def`` that returns an awaitable on the caller's thread; the call ends when the awaitable is done."""


@_decorator(ExponentialBackoff)
def exponential_backoff() -> None:
    """Multiply the delay of ``@retry`` after each attempt; the parameters are those of ``ExponentialBackoff``."""


@_decorator(FibonacciBackoff)
def fibonacci_backoff() -> None:
    """Increase the delay of ``@retry`` as 1, 2, 3, 5, 8; the parameters are those of ``FibonacciBackoff``."""


@_decorator_with_parentheses(CustomBackoff)
def custom_backoff() -> None:
    """Compute each delay of ``@retry``, in seconds, by a function; the parameter is that of ``CustomBackoff``."""


@_decorator(HonorRetryAfter)
def honor_retry_after() -> None:
    """Wait before a retry as long as the failure requests; the parameters are those of ``HonorRetryAfter``."""


@_decorator_with_parentheses(RetryWhen)
def retry_when() -> None:
    """Define by predicates what ``@retry`` retries; the parameters are those of ``RetryWhen``."""


@_decorator_with_parentheses(BeforeRetry)
def before_retry() -> None:
    """Call a function before each retry; the parameters are those of ``BeforeRetry``."""


@_decorator_with_parentheses(CircuitBreakerName)
def circuit_breaker_name() -> None:
    """Set the name of a method's circuit breaker, as ``@circuit_breaker(name=...)`` does; SmallRye's annotation."""
