"""Chaos: what befalls attempts by configuration alone; nothing declares it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, final

from ..._policy.kind import duration, exceptions, kinds, number
from ..._policy.parameter import Contradiction
from ..._shown import shown
from ...typing import Duration, ExceptionSet

if TYPE_CHECKING:
    # Its values are resolved and shown as those of policies are; ``Policy.__subclasses__()`` can be declared.
    from ..._policy.parameter import Policy as Values
else:
    from ..._policy.parameter import Values


@final
class Chaos(Values):
    """Let a part of the attempts fail, or take longer, in the place of the body.

    Args:
        rate: The probability that it befalls an attempt, from 0 to 1; 0 switches it off.
        latency: How long such an attempt waits before anything else, in milliseconds.
        error: What it raises instead of running the body, one of several by chance; where it has neither a latency nor
            an error, ``ConnectionError``.
    """

    _kinds = kinds(
        rate=number(0, 1),
        latency=duration(),
        error=exceptions(),
    )

    permission = "FAULTTOLERANCE_CHAOS_ALLOWED"

    rate: float = 1.0
    latency: Duration = 0
    error: ExceptionSet = ()

    @property
    def is_active(self) -> bool:  # type: ignore[override]
        """Whether the rate is above 0."""
        return self.rate > 0

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Refuse what cannot be raised, or ends the program."""
        for error in exceptions().normalised(values["error"]):
            if not (isinstance(error, type) and issubclass(error, Exception) and _can_be_made(error)):
                allowed = "classes that derive from Exception, and can be made of one text"
                yield "error", f"names {shown(error)}", allowed, ()


def _can_be_made(error: type[Exception]) -> bool:
    try:
        error("made by chaos")
    except Exception:  # noqa: BLE001  # it is the application's
        return False
    return True
