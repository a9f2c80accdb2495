"""A call as the application sees it: interceptors on its way, callbacks when it failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._runtime.blocking import GuardedCall
from .declaration import FUNCTION, Declaration


class ExecutionContext:
    """One guarded call, as fallbacks and ``before_retry`` see it (specification, ``ExecutionContext``).

    Attributes:
        method: The guarded function.
        target: The instance on which a method was called, the class for a class method, ``None`` for a function.
        args: The positional arguments as they were passed, without *target*.
        kwargs: The keyword arguments as they were passed.
        failure: What the call failed with.
        attempt: The number of the attempt, the first being 1: for a fallback the last one that was made, before a retry
            the one that is about to begin.
    """

    __slots__ = ("_parameters", "args", "attempt", "failure", "kwargs", "method", "target")

    def __init__(
        self,
        method: Callable[..., Any],
        target: Any = None,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        failure: BaseException | None = None,
        attempt: int = 1,
    ) -> None:
        self.method = method
        self.target = target
        self.args = args
        self.kwargs: Mapping[str, Any] = {} if kwargs is None else kwargs
        self.failure = failure
        self.attempt = attempt
        self._parameters: tuple[Any, ...] | None = None

    @property
    def parameters(self) -> tuple[Any, ...]:
        """One value per parameter in the order of the signature, without *target*; the default where none was passed.

        The value for ``*args`` is a tuple, that for ``**kwargs`` a dictionary. Raises ``TypeError`` where the call's
        arguments do not fit the signature.
        """
        if self._parameters is None:
            import inspect

            signature = inspect.signature(self.method)
            target = () if self.target is None else (self.target,)
            bound = signature.bind(*target, *self.args, **self.kwargs)
            bound.apply_defaults()
            values = tuple(bound.arguments.values())
            if target and next(iter(signature.parameters.values())).kind is inspect.Parameter.VAR_POSITIONAL:
                values = (values[0][1:], *values[1:])  # a method that takes itself as one of *args
            elif target:
                values = values[1:]
            self._parameters = values
        return self._parameters

    def __repr__(self) -> str:
        name = getattr(self.method, "__qualname__", repr(self.method))
        return f"<ExecutionContext of {name}: attempt {self.attempt}, failure {self.failure!r}>"


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
    method = declaration.guard_ref() or declaration.template
    return (method, None, args) if declaration.binding == FUNCTION or not args else (method, args[0], args[1:])
