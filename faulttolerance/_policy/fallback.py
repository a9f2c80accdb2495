"""The policy of ``@fallback``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, final

from .._shown import shown
from ..exceptions import definition_error
from ..typing import ExceptionSet, FallbackHandler
from .kind import handlers, kinds, text
from .parameter import Contradiction, Policy, Values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..typing import ExecutionContext


class RecallingHandler(Values):
    """A handler without a function: a layer around the call returns the result."""

    def __init_subclass__(cls, *, name: str) -> None:
        super().__init_subclass__()
        cls.annotation = cls.where = name  # no decorator has this name

    def __call__(self, context: ExecutionContext) -> Any:
        """Raise the failure again: outside a guard there are no stored results.

        Raises:
            FaultToleranceDefinitionException: For anything but a failed call, as for a function to decorate.
        """
        failure: BaseException | None = getattr(context, "failure", None)
        if failure is None:
            name = self.annotation
            raise definition_error(f"{name}(...)", f"got {shown(context)}", context, f"@fallback({name}(...))")
        raise failure


Handler: TypeAlias = type[FallbackHandler[Any]] | Callable[[Any], Any] | str
"""A ``FallbackHandler`` class, a callable that takes an ``ExecutionContext``, or the name of a method."""


@final
class Fallback(Policy):
    """Return a substitute if a call fails after all other policies (specification, chapter Fallback).

    Several fallbacks are called in their order: each with the failure that the fallback before it raised (rule FB1).

    Args:
        value: A ``FallbackHandler`` class, a callable that takes an ``ExecutionContext``, or a method's name; several
            of these by position or as a list.
        fallback_method: Instead of *value*: a method of the same class, not one compiled by Cython or mypyc, with the
            same parameters and, optionally, the exception as one more; for a function, one of the same module.
        apply_on: Failures that the fallback replaces.
        skip_on: Failures that the fallback never replaces, even if *apply_on* names them.
    """

    _kinds = kinds(
        value=handlers("a FallbackHandler class or a callable that takes an ExecutionContext"),
        fallback_method=text("the name of a method", lambda name: not name or name.isidentifier()),
    )

    value: Handler | Sequence[Handler] | None = None
    fallback_method: str = ""
    apply_on: ExceptionSet = Exception
    skip_on: ExceptionSet = ()

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
        value = values["value"]
        if isinstance(value, (list, tuple)) and len(value) < 2:
            value = values["value"] = value[0] if value else None
        if isinstance(value, str) and not values["fallback_method"]:
            values["value"], values["fallback_method"] = None, value
        return values

    links: ClassVar[tuple[Fallback, ...]] = ()
    """The single fallbacks of several handlers, in their order."""
    recalling: ClassVar[RecallingHandler | None] = None
    """The recalling handler among the handlers, if any."""

    @classmethod
    def _kept(cls, values: dict[str, Any]) -> dict[str, Any]:
        kept = super()._kept(values)
        value = kept.get("value")
        if isinstance(value, tuple):
            kept["links"] = tuple(cls(one, apply_on=values["apply_on"], skip_on=values["skip_on"]) for one in value)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, RecallingHandler):
                kept["recalling"] = one
        return kept

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Reject both a handler and a method, neither of them, and a class that is no handler."""
        value, method, allowed = values["value"], values["fallback_method"], "a handler or a method's name"
        if value is None or value == ():
            if not method:
                yield "value", "and fallback_method are both missing", allowed, ("fallback_method",)
            return
        if method:
            yield "fallback_method", f"is {shown(method)} beside a handler", f"{allowed}, not both", ("value",)
            return
        several = value if isinstance(value, (list, tuple)) else (value,)
        recalling = [one for one in several if isinstance(one, RecallingHandler)]
        if len(recalling) > 1:
            yield "value", f"has {recalling[0].annotation} more than once", "one memory per method", ()
        for one in several:
            if isinstance(one, type) and not callable(getattr(one, "handle", None)):
                problem = f"is the class {one.__qualname__}, which has no method handle"
                yield "value", problem, "a FallbackHandler class", ()
