"""The policy of ``@hedge``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, final

from ..._policy.kind import integer, kinds, number
from ..._policy.parameter import Contradiction, Policy
from ..._policy.unit import ChronoUnit, seconds
from ...typing import Duration


@final
class Hedge(Policy, is_observable=True):
    """Start a second attempt while the first attempt takes long, and use the first success (*The Tail at Scale*).

    Args:
        max_hedges: Further attempts beside the first attempt, 1 to 5.
        quantile: The share of first attempts that end before a hedge would start: 0.5 to 0.999. With 0, only *delay*
            sets the time of a hedge.
        delay: The shortest time before a hedge starts, in milliseconds. It is also the time while the durations of
            attempts are still unknown; with 0, no hedge starts then.
    """

    _kinds = kinds(
        max_hedges=integer(1, maximum=5),
        quantile=number(0.5, 0.999, or_zero=True),
    )

    max_hedges: int = 1
    quantile: float = 0.95
    delay: Duration = 0

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Reject values that define no time for a hedge."""
        if not values["quantile"] and not seconds(values["delay"], ChronoUnit.MILLIS):
            yield (
                "delay",
                "is 0 while quantile is 0: no moment for a hedge is set",
                "more than 0, or a quantile",
                ("quantile",),
            )
