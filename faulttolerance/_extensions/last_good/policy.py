"""The handler of a fallback that answers by the last good result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..._policy.fallback import RecallingHandler
from ..._policy.kind import BRIEF, duration, integer, key
from ..._policy.parameter import warn_of_bare_number
from ..._policy.unit import ChronoUnit, seconds, spelled
from ..._shown import shown
from ...exceptions import Fault, FaultToleranceDefinitionException

if TYPE_CHECKING:
    from datetime import timedelta

    from ...typing import Duration, ExecutionContext, Key


class LastGood(RecallingHandler, name="last_good"):
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
