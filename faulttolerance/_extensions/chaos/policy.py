"""Chaos: faults and delays of attempts, by configuration alone; no decorator declares it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, final

from ..._policy.kind import exceptions, kinds, number
from ..._policy.parameter import Contradiction
from ..._shown import shown
from ...typing import Duration, ExceptionSet

if TYPE_CHECKING:
    # Its values are resolved and shown like those of policies, but ``Policy.__subclasses__()`` can be declared.
    from ..._policy.parameter import Policy as Values
else:
    from ..._policy.parameter import Values


@final
class Chaos(Values):
    """Disturb a share of the attempts: they fail, or take longer, in the place of the body.

    Args:
        rate: The probability that an attempt is disturbed, from 0 to 1; 0 switches chaos off.
        latency: The delay of a disturbed attempt before anything else, in milliseconds.
        error: The exception that a disturbed attempt raises instead of running the body, chosen at random if there are
            several; ``ConnectionError`` if neither a latency nor an error is set.
    """

    _kinds = kinds(
        rate=number(0, 1),
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
        """Reject errors that cannot be raised, or that end the program."""
        for error in exceptions().normalised(values["error"]):
            if not (isinstance(error, type) and issubclass(error, Exception) and _can_be_made(error)):
                allowed = "subclasses of Exception that can be created from one text"
                yield "error", f"names {shown(error)}", allowed, ()


def _can_be_made(error: type[Exception]) -> bool:
    try:
        error("made by chaos")
    except Exception:  # noqa: BLE001  # an error of the application's class
        return False
    return True
