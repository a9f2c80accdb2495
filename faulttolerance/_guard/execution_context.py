"""The call that failed, as callbacks see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


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
