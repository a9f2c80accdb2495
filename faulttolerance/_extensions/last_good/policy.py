"""The handler of a fallback that returns the last good result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..._policy.fallback import RecallingHandler
from ..._policy.kind import BRIEF, duration, integer, key
from ..._policy.parameter import warn_of_bare_number
from ..._policy.unit import format_duration
from ...exceptions import Fault, raise_faults

if TYPE_CHECKING:
    from datetime import timedelta

    from ...typing import Duration, ExecutionContext, Key


class LastGood(RecallingHandler, name="last_good"):
    """A handler that returns the last good result of the same call; see ``last_good`` for the fields."""

    max_age: float | timedelta
    max_entries: int = 1000
    key: Key = None

    @classmethod
    def _kept(cls, values: dict[str, Any]) -> dict[str, Any]:
        raise_faults(
            Fault(f"last_good({name})", kind.problem(values[name]), values[name], kind.allowed)
            for name, kind in _KINDS.items()
            if not kind.accepts(values[name])
        )
        return {name: kind.normalised(values[name]) for name, kind in _KINDS.items()}

    def __repr__(self) -> str:
        parts = [f"max_age={format_duration(self.max_age)!r}"]
        parts += [f"max_entries={self.max_entries}"] if self.max_entries != 1000 else []
        parts += [f"key={getattr(self.key, '__qualname__', repr(self.key))}"] if self.key is not None else []
        return f"last_good({', '.join(parts)})"


_KINDS = {"max_age": duration("> 0", plausible=BRIEF), "max_entries": integer(1), "key": key()}


def last_good(max_age: Duration, max_entries: int = 1000, key: Key = None) -> Callable[[ExecutionContext], Any]:
    """Return a fallback that returns the last good result of the same call, if it is young enough (rule Y1).

    ``@fallback(last_good(max_age=60_000))``, alone or as one of several. Each guarded method stores its own results,
    but never the result of a fallback. The objects on which methods are called are not kept alive.

    Args:
        max_age: The age below which a result is used, in milliseconds.
        max_entries: The number of stored results; the least recently used result is removed first.
        key: The key of a call: a callable with the method's parameters, the name of a parameter, or several names; by
            default the object and all arguments, which must then be hashable.

    Raises:
        FaultToleranceDefinitionException: If a value is out of range; when the function is defined, if *key* does not
            fit it.
    """
    warn_of_bare_number("last_good(max_age)", _KINDS["max_age"], max_age)
    return LastGood(max_age, max_entries, key)  # type: ignore[arg-type]  # text becomes a ``timedelta``
