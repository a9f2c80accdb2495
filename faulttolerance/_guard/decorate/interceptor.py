"""Interceptors of the application, outside and inside the policies (specification, Fault Tolerance Interceptor(s)).

The fault tolerance interceptor has one priority, 4010 unless ``mp.fault.tolerance.interceptor.priority`` sets another.
Interceptors with a lower number wrap it and see each call once. Interceptors with a higher number are between it and
the method and see each attempt. Of equal numbers, the interceptor that is written further up comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from ..._execution.caller_thread import GuardedCall
from ...exceptions import definition_error
from ...typing import Invocation
from ..declare.declaration import Declaration
from ..resolve.callback import split_receiver
from .apply import apply_to, can_be_guarded

F = TypeVar("F")

_DEFAULT_PRIORITY = 2000  # Jakarta's APPLICATION: the place of an interceptor without a priority


class Interceptor:
    """Decorates functions, methods and classes with a function of the application; created by ``around_invoke``."""

    def __init__(self, function: Callable[[Invocation], Any], priority: int) -> None:
        if not callable(function):
            raise definition_error("around_invoke", f"got {function!r}", function, "a function, or priority=...")
        self.function = function
        self.priority = priority

    def __call__(self, target: F) -> F:
        if not can_be_guarded(target):
            problem, allowed = "is above an object that cannot be called", "a function, a method, a class"
            raise definition_error(repr(self), problem, target, allowed)
        return apply_to(target, {}, (self,))  # type: ignore[no-any-return]

    def around(self, call: GuardedCall, declaration: Declaration) -> GuardedCall:
        """Return *call*, a call of the guard of *declaration*, wrapped by the function."""
        return lambda args, kwargs: self.function(Invocation(*split_receiver(declaration, args), kwargs, call))

    def __repr__(self) -> str:
        return f"<interceptor {getattr(self.function, '__qualname__', self.function)} at priority {self.priority}>"


@overload
def around_invoke(function: Callable[[Invocation], Any], *, priority: int = ...) -> Interceptor: ...
@overload
def around_invoke(*, priority: int = ...) -> Callable[[Callable[[Invocation], Any]], Interceptor]: ...
def around_invoke(function: Callable[[Invocation], Any] | None = None, *, priority: int = _DEFAULT_PRIORITY) -> Any:
    """Return a decorator that calls *function* around each call of the decorated function.

    *function* takes an ``Invocation`` and returns the result of its ``proceed()``, or another result. For coroutine
    functions it is ``async def``, or returns the awaitable; around a plain function, ``async def`` is rejected.

    Args:
        function: The function to call around each call.
        priority: Its place: below 4010 outside the policies, once per call; above inside, once per attempt.

    Raises:
        FaultToleranceDefinitionException: If *function* cannot be called, or *priority* is no integer.

    >>> @around_invoke(priority=3000)
    ... def doubled(invocation):
    ...     return 2 * invocation.proceed()
    >>> @doubled
    ... def one():
    ...     return 1
    >>> one()
    2
    """
    if not isinstance(priority, int) or isinstance(priority, bool):
        where, source = "around_invoke(priority)", "set by the decorator"
        raise definition_error(where, f"is {priority!r}", priority, "an integer", source)
    if function is not None:
        return Interceptor(function, priority)
    return lambda intercepting: Interceptor(intercepting, priority)
