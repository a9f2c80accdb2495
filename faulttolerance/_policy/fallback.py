"""The policy of ``@fallback``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, final

from .._record import Record
from .._shown import shown
from ..exceptions import Fault, FaultToleranceDefinitionException
from ..typing import Duration, ExceptionSet, FallbackHandler
from .kind import BRIEF, duration, exceptions, handlers, integer, key, kinds, text
from .parameter import Contradiction, Policy, warn_of_bare_number
from .unit import ChronoUnit, seconds, spelled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from ..typing import ExecutionContext, Key


class LastGood(Record):
    """Answers by the last good result of the same call; made by ``last_good``, which says what the fields mean."""

    max_age: float | timedelta
    max_entries: int = 1000
    key: Key = None

    @classmethod
    def _kept(cls, values: dict[str, Any]) -> dict[str, Any]:
        faults = [
            Fault(f"last_good({name})", kind.problem(values[name]), values[name], kind.allowed)
            for name, kind in _KINDS.items()
            if not kind.accepts(values[name])
        ]
        if not faults and seconds(values["max_age"], ChronoUnit.MILLIS) <= 0.0:
            age = values["max_age"]
            faults = [Fault("last_good(max_age)", f"is {shown(age)}", age, _KINDS["max_age"].allowed)]
        if faults:
            raise FaultToleranceDefinitionException(*faults)
        return {name: kind.normalised(values[name]) for name, kind in _KINDS.items()}

    def __repr__(self) -> str:
        parts = [f"max_age={spelled(self.max_age, ChronoUnit.MILLIS)!r}"]
        parts += [f"{name}={value!r}" for name, value in (("max_entries", self.max_entries),) if value != 1000]
        parts += [f"key={getattr(self.key, '__qualname__', repr(self.key))}"] if self.key is not None else []
        return f"last_good({', '.join(parts)})"

    def __call__(self, context: ExecutionContext) -> Any:
        """Raise the failure again: outside a guard nothing is remembered."""
        assert context.failure is not None
        raise context.failure


_KINDS = {"max_age": duration("> 0", plausible=BRIEF), "max_entries": integer(1), "key": key()}


def last_good(max_age: Duration, max_entries: int = 1000, key: Key = None) -> Callable[[ExecutionContext], Any]:
    """Make a fallback that answers by the last good result of the same call, if that is young enough (rule Y1).

    ``@fallback(last_good(max_age=60_000))``, alone or as one of several. Each guarded method remembers its own results,
    and never what a fallback answered. The objects on which methods are called are not kept.

    Args:
        max_age: A result is used while it is younger than this, in milliseconds.
        max_entries: How many results are remembered; the least recently used one goes first.
        key: What tells calls apart: a callable with the method's parameters, the name of a parameter, or several; by
            default the object and all arguments, which have to be hashable then.

    Raises:
        FaultToleranceDefinitionException: If a value is out of range; when the function is defined, if *key* does not
            fit it.
    """
    warn_of_bare_number("last_good(max_age)", _KINDS["max_age"], max_age)
    return LastGood(max_age, max_entries, key)  # type: ignore[arg-type]  # text becomes a ``timedelta``


Handler: TypeAlias = type[FallbackHandler[Any]] | Callable[[Any], Any] | str
"""A ``FallbackHandler`` class, a callable that takes an ``ExecutionContext``, or the name of a method."""


@final
class Fallback(Policy):
    """Return a substitute when a call fails after all else was tried (specification, chapter Fallback).

    Several are asked in their order: the next one with the failure that the one before raised (rule FB1).

    Args:
        value: A ``FallbackHandler`` class, any callable that takes an ``ExecutionContext``, or a method's name; by
            position or as a list, several.
        fallback_method: Instead of *value*: the name of a method of the same class, with the same parameters and at
            will the exception as one more; for a function, the name of a function of the same module.
        apply_on: Failures that the fallback replaces.
        skip_on: Failures that it never replaces, also where *apply_on* names them.
    """

    _kinds = kinds(
        value=handlers("a FallbackHandler class or a callable that takes an ExecutionContext"),
        fallback_method=text("the name of a method", lambda name: not name or name.isidentifier()),
        apply_on=exceptions(),
        skip_on=exceptions(),
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
        several = value if isinstance(value, (list, tuple)) else (value,)
        if sum(isinstance(one, LastGood) for one in several) > 1:
            yield "value", "has last_good more than once", "one memory of each method", ()
        for one in several:
            if isinstance(one, type) and not callable(getattr(one, "handle", None)):
                yield (
                    "value",
                    f"is the class {one.__qualname__}, which has no method handle",
                    "a FallbackHandler class",
                    (),
                )


def last_good_in(policy: Policy | None) -> LastGood | None:
    """Return the ``last_good`` among the handlers of *policy*, if that is a fallback with one."""
    value = getattr(policy, "value", None)
    several = value if isinstance(value, tuple) else (value,)
    return next((one for one in several if isinstance(one, LastGood)), None)
