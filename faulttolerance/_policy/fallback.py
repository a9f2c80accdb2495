"""The policy of ``@fallback``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, final

from .._shown import shown
from ..typing import ExceptionSet, FallbackHandler
from .kind import exceptions, function, text
from .parameter import Contradiction, Policy, parameter

if TYPE_CHECKING:
    from dataclasses import KW_ONLY


@final
class Fallback(Policy):
    """Return a substitute when a call fails after all else was tried (specification, chapter Fallback).

    Args:
        value: A ``FallbackHandler`` class, or any callable that takes an ``ExecutionContext``.
        fallback_method: Instead of *value*: the name of a method of the same class, with the same parameters and at
            will the exception as one more; for a function, the name of a function of the same module.
        apply_on: Failures that the fallback replaces.
        skip_on: Failures that it never replaces, also where *apply_on* names them.
    """

    value: type[FallbackHandler[Any]] | Callable[[Any], Any] | None = parameter(
        function("a FallbackHandler class or a callable that takes an ExecutionContext"), None
    )
    _: KW_ONLY
    fallback_method: str = parameter(text("the name of a method", lambda name: not name or name.isidentifier()), "")
    apply_on: ExceptionSet = parameter(exceptions(), Exception)
    skip_on: ExceptionSet = parameter(exceptions(), ())

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Refuse both a handler and a method, neither of them, and a class that is no handler."""
        value, method = values["value"], values["fallback_method"]
        if value is not None and method:
            yield (
                "fallback_method",
                f"is {shown(method)} beside a handler",
                "a handler or a method's name, not both",
                ("value",),
            )
        elif value is None and not method:
            yield "value", "and fallback_method are both missing", "a handler or a method's name", ("fallback_method",)
        elif isinstance(value, type) and not callable(getattr(value, "handle", None)):
            yield (
                "value",
                f"is the class {value.__qualname__}, which has no method handle",
                "a FallbackHandler class",
                (),
            )
