"""A call on its way through the interceptors of the application."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._runtime.blocking import GuardedCall
from .declaration import FUNCTION, Declaration
from .execution_context import ExecutionContext


class Invocation:
    """One call on its way through an interceptor.

    Attributes:
        method: The guarded function.
        target: The instance, the class for a class method, ``None`` for a function.
        args: The positional arguments without *target*; what is assigned here is what goes on.
        kwargs: The keyword arguments; likewise.
    """

    __slots__ = ("_proceed", "args", "kwargs", "method", "target")

    def __init__(
        self,
        method: Callable[..., Any],
        target: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        proceed: GuardedCall,
    ) -> None:
        self.method = method
        self.target = target
        self.args = args
        self.kwargs = kwargs
        self._proceed = proceed

    def proceed(self) -> Any:
        """Go on to the next interceptor, the policies, or the method; of a coroutine function, the awaitable."""
        own = () if self.target is None else (self.target,)
        return self._proceed((*own, *self.args), self.kwargs)


def around(call: GuardedCall, interceptors: Sequence[Any], declaration: Declaration) -> GuardedCall:
    """Put *interceptors* around *call*, the lowest priority outermost."""
    for interceptor in sorted(interceptors, key=lambda interceptor: interceptor.priority)[::-1]:
        call = _one_around(call, interceptor.function, declaration)
    return call


def _one_around(call: GuardedCall, function: Callable[[Invocation], Any], declaration: Declaration) -> GuardedCall:
    return lambda args, kwargs: function(Invocation(*_seen(declaration, args), kwargs, call))


def context_of(
    declaration: Declaration, args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempt: int
) -> ExecutionContext:
    """Describe a call of the guard of *declaration* for a callback."""
    return ExecutionContext(*_seen(declaration, args), kwargs, failure, attempt)


def _seen(declaration: Declaration, args: tuple[Any, ...]) -> tuple[Callable[..., Any], Any, tuple[Any, ...]]:
    """Give the method, the object or class it is called on, and the other arguments, as the application sees them."""
    method = declaration.guard or declaration.template
    return (method, None, args) if declaration.binding == FUNCTION or not args else (method, args[0], args[1:])
