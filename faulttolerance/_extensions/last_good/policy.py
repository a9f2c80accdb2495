"""The handler of a fallback that returns the last good result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._policy.fallback import RecallingHandler
from ..._policy.kind import BRIEF, duration, key, kinds
from ...typing import Duration, ExecutionContext, Key


class LastGood(RecallingHandler, name="last_good"):
    """A handler that returns the last good result of the same call; see ``last_good`` for the fields."""

    _kinds = kinds(
        max_age=duration("> 0", plausible=BRIEF),
        key=key(),
    )

    max_age: Duration
    max_entries: int = 1000
    key: Key = None


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
    return LastGood(max_age, max_entries, key)


last_good.makes_handlers = True  # type: ignore[attr-defined]  # it is no handler itself, though it takes one argument
