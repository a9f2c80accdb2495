"""Faults: bodies that fail a number of times, and disturbances of the attempts of a target."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar, overload

from .._call.block import BlockingEnvironment
from .._call.fault_injection import BODY, FaultInjection
from .._deadline.clock import clock
from .._execution.environment import Environment
from .._execution.task import BlockEnvironment
from .._guard.resolve.transaction import overridden
from .._policy import ChronoUnit, seconds
from .._policy.kind import duration, number
from .._shown import shown
from ..exceptions import definition_error
from ..typing import Duration
from .reusable_context import ReusableContext
from .target import Target, TargetWrapper, target_of

Error: TypeAlias = BaseException | type[BaseException]
Failure: TypeAlias = Callable[[], BaseException | None]
F = TypeVar("F", bound=Callable[..., Any])

_ERRORS = "an exception, or an exception class that can be made without arguments"


class FailTimes:
    """A failure that comes a number of times, in any threads and tasks, and then stops; created by ``fail_times``."""

    def __init__(self, times: int, error: Error) -> None:
        self._make = _maker("testing.fail_times(error)", error)
        self._times = times
        self._left = times
        self._lock = threading.Lock()

    def next_failure(self) -> BaseException | None:
        """Return the exception to raise now; ``None`` once all failures have come."""
        with self._lock:
            if not self._left:
                return None
            self._left -= 1
        return self._make()

    @overload
    def __call__(self, function: F, /) -> F: ...
    @overload
    def __call__(self) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise the next failure, or return ``None``; with a function as the only argument, decorate it."""
        if len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], type):
            return ReusableContext("fail_times", self._failing)(args[0])
        failure = self.next_failure()
        if failure is not None:
            raise failure
        return None

    @contextmanager
    def _failing(self) -> Iterator[None]:
        self()
        yield

    def __repr__(self) -> str:
        return f"<testing.fail_times: {self._times - self._left} of {self._times} failures have come>"


def fail_times(n: int, error: Error) -> FailTimes:
    """Create a side effect that fails *n* times with *error*, and then succeeds.

    Called without a function it is a side effect, for a stand-in or in a body: it raises, and later returns ``None``.
    It decorates a function or coroutine function, which then fails *n* times in the place of its own body, and it is
    an ``error`` of ``inject``. All uses of one object count together.

    Args:
        n: How many times; 0: never.
        error: An exception, or an exception class, of which each failure is a new instance.

    Raises:
        FaultToleranceDefinitionException: *n* or *error* is something else.

    >>> from faulttolerance import retry
    >>> @retry(max_retries=3, delay=0, jitter=0, retry_on=ConnectionError)
    ... @fail_times(2, ConnectionError)
    ... def fetch():
    ...     return "fresh"
    >>> fetch()
    'fresh'
    """
    if type(n) is not int or n < 0:
        raise definition_error("testing.fail_times(n)", f"is {shown(n)}", n, "an integer >= 0")
    return FailTimes(n, error)


def inject(
    target: Any,
    *,
    error: Error | FailTimes | None = None,
    latency: Duration = 0,
    result: Any = BODY,
    rate: float = 1.0,
    seed: float | str | None = None,
) -> ReusableContext[None]:
    """Cause attempts of a target to fail, to be slow or to return something else, within a block or a decorated test.

    The injection replaces the body, inside all policies, and policies treat it as the body: failures are retried and
    open circuits; time-outs and deadlines interrupt the latency, which passes on the clock of the library. Attempts
    that began before the block go on as they began. Blocks nest; the block that was entered last decides first.

    Args:
        target: A guarded function or method, a method of an object, for its class, a class with its subclasses, or a
            ``Guard``; of its blocks, too, which are not entered where they fail, and have no result.
        error: The failure of attempts, in place of the body: an exception, an exception class, of which each failure is
            a new instance, or the result of ``fail_times``, after whose failures the body runs.
        latency: How long attempts wait before that, or before the body, in milliseconds.
        result: The result of attempts, in place of the body; not beside *error*.
        rate: The probability that an attempt is disturbed, from 0 to 1; one draw decides about all of it.
        seed: The source of the draws; ``None``: the clock of the library, which ``virtual_time`` seeds.

    Raises:
        FaultToleranceDefinitionException: The target is not guarded, a value is out of range, or nothing is injected.

    >>> from faulttolerance import fallback
    >>> @fallback(lambda *_: "from the cache")
    ... def fetch():
    ...     return "fresh"
    >>> with inject(fetch, error=ConnectionError):
    ...     fetch()
    'from the cache'
    """
    where = "testing.inject"
    named = target_of(where, target)
    for name, value, kind in (("latency", latency, duration()), ("rate", rate, number(0.0, 1.0))):
        if not kind.accepts(value):
            raise definition_error(f"{where}({name})", kind.problem(value), value, kind.allowed)
    if error is not None and result is not BODY:
        raise definition_error(f"{where}(result)", "is set beside an error", result, "an error, or a result")
    delay = seconds(latency, ChronoUnit.MILLIS)
    if error is None and result is BODY and not delay:
        raise definition_error(where, "injects nothing", None, "an error, a latency or a result")
    if isinstance(error, FailTimes):
        failure: Failure = error.next_failure
    else:
        failure = (lambda: None) if error is None else _maker(f"{where}(error)", error)

    def injecting() -> Any:
        chance = (lambda: clock.random()) if seed is None else random.Random(seed).random
        return overridden(_Injected(named, FaultInjection(failure, delay, result, float(rate), chance)))

    return ReusableContext("inject", injecting)


def _maker(where: str, error: Any) -> Failure:
    """Return a function that returns *error*, or a new instance of it if it is a class."""
    if isinstance(error, BaseException):
        return lambda: error.with_traceback(None)
    if isinstance(error, type) and issubclass(error, BaseException):
        try:
            error()
        except TypeError:
            problem = f"is {shown(error)}, which needs arguments"
            raise definition_error(where, problem, error, _ERRORS) from None
        return error
    raise definition_error(where, f"is {shown(error)}", error, _ERRORS)


class _Injected(TargetWrapper):
    """An injection of faults into the attempts of one target."""

    is_innermost = True

    def __init__(self, target: Target, fault_injection: FaultInjection) -> None:
        super().__init__(target)
        self._disturbance = fault_injection

    def around_attempt(
        self, function: Callable[..., Any], name: str, environment: Environment | None, is_awaited: bool
    ) -> Callable[..., Any]:
        """Return *function* with the injection of faults around each attempt."""
        is_block = isinstance(environment, (BlockingEnvironment, BlockEnvironment))
        return self._disturbance.around(function, environment, is_awaited, is_block=is_block)
