"""The policy of ``@fallback``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, final

from .._shown import shown
from ..typing import ExceptionSet, FallbackHandler
from .kind import exceptions, handlers, text
from .parameter import Contradiction, Policy, parameter

if TYPE_CHECKING:
    from collections.abc import Sequence

Handler: TypeAlias = type[FallbackHandler[Any]] | Callable[[Any], Any] | str
"""A ``FallbackHandler`` class, a callable that takes an ``ExecutionContext``, or the name of a method."""


@final
class Fallback(Policy):
    """Return a substitute when a call fails after all else was tried (specification, chapter Fallback).

    Several are asked in their order: the next one with the failure that the one before raised (rule F1).

    Args:
        value: A ``FallbackHandler`` class, any callable that takes an ``ExecutionContext``, or a method's name; by
            position or as a list, several.
        fallback_method: Instead of *value*: the name of a method of the same class, with the same parameters and at
            will the exception as one more; for a function, the name of a function of the same module.
        apply_on: Failures that the fallback replaces.
        skip_on: Failures that it never replaces, also where *apply_on* names them.
    """

    value: Handler | Sequence[Handler] | None = parameter(
        handlers("a FallbackHandler class or a callable that takes an ExecutionContext"), None
    )
    fallback_method: str = parameter(text("the name of a method", lambda name: not name or name.isidentifier()), "")
    apply_on: ExceptionSet = parameter(exceptions(), Exception)
    skip_on: ExceptionSet = parameter(exceptions(), ())

    if TYPE_CHECKING:

        def __init__(
            self,
            *handlers: Handler,
            value: Handler | Sequence[Handler] | None = None,
            fallback_method: str = "",
            apply_on: ExceptionSet = Exception,
            skip_on: ExceptionSet = (),
        ) -> None: ...

    @classmethod
    def _bound(cls, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        values = super()._bound((args,) if len(args) > 1 and args[0] is not None else args, named)
        if isinstance(values["value"], str) and not values["fallback_method"]:
            values["value"], values["fallback_method"] = None, values["value"]
        return values

    @property
    def links(self) -> tuple[Fallback, ...]:
        """One fallback for each that is asked, in their order, where there are several."""
        several = self.value if isinstance(self.value, tuple) else ()
        return tuple(Fallback(one, apply_on=self.apply_on, skip_on=self.skip_on) for one in several)

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Refuse both a handler and a method, neither of them, and a class that is no handler."""
        value, method = values["value"], values["fallback_method"]
        if value is None or value == []:
            if not method:
                yield (
                    "value",
                    "and fallback_method are both missing",
                    "a handler or a method's name",
                    ("fallback_method",),
                )
            return
        if method:
            yield (
                "fallback_method",
                f"is {shown(method)} beside a handler",
                "a handler or a method's name, not both",
                ("value",),
            )
            return
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(one, type) and not callable(getattr(one, "handle", None)):
                yield (
                    "value",
                    f"is the class {one.__qualname__}, which has no method handle",
                    "a FallbackHandler class",
                    (),
                )
