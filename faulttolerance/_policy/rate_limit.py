"""The policy of ``@rate_limit`` (SmallRye)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, final

from ..typing import Duration
from .kind import SHORT, choice, duration, kinds, rate
from .parameter import Contradiction, Policy
from .unit import ChronoUnit, Unit, member, seconds

if TYPE_CHECKING:
    from dataclasses import KW_ONLY


class RateLimitType(Enum):
    """The ways in which the window of a rate limit moves."""

    FIXED = "fixed"
    """Windows follow one another; each starts with all its permits."""
    ROLLING = "rolling"
    """No period as long as the window has more admitted calls than the limit."""
    SMOOTH = "smooth"
    """Permits return one by one, at an even rate; after a pause, ``burst`` calls are admitted at once."""

    def __repr__(self) -> str:
        return str(self)


@final
class RateLimit(Policy, is_observable=True):
    """Reject calls beyond a number per window.

    Args:
        value: Calls that are admitted in one window; at least 1.
        window: The length of the window, in *window_unit*; more than 0.
        window_unit: The unit of *window*.
        min_spacing: The shortest time between two admitted calls, in *min_spacing_unit*.
        min_spacing_unit: The unit of *min_spacing*.
        type: The way in which the window moves; a ``RateLimitType`` or its name.
        max_wait: The longest wait of a call for its turn, in milliseconds; with 0, calls are refused instead.
        burst: Calls that may start at once after a pause, if *type* is smooth; at least 1.
    """

    _kinds = kinds(
        value=rate(),
        window=duration("> 0", unit="window_unit"),
        min_spacing=duration(unit="min_spacing_unit"),
        type=choice(RateLimitType),
        max_wait=duration(plausible=SHORT),
    )

    value: int = 100
    window: Duration = 1
    window_unit: Unit = ChronoUnit.SECONDS
    _: KW_ONLY
    min_spacing: Duration = 0
    min_spacing_unit: Unit = ChronoUnit.SECONDS
    type: RateLimitType | Literal["fixed", "rolling", "smooth"] = RateLimitType.FIXED
    max_wait: Duration = 0
    burst: int = 1

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Reject a window without length, which would admit no call, and a burst without an effect."""
        if seconds(values["window"], values["window_unit"]) <= 0:
            yield "window", "is 0", "a duration > 0", ("window_unit",)
        if values["burst"] != 1 and member(RateLimitType, values["type"]) is not RateLimitType.SMOOTH:
            yield "burst", f"is {values['burst']}", "1, unless the type is smooth", ("type",)
