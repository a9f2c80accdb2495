"""The policy of ``@hedge``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, final

from ..._policy.kind import duration, integer, kinds, number
from ..._policy.parameter import Contradiction, Policy
from ..._policy.unit import ChronoUnit, seconds
from ...typing import Duration


@final
class Hedge(Policy, is_observable=True):
    """Send a second attempt while the first one takes long, and take whichever succeeds first (*The Tail at Scale*).

    Args:
        max_hedges: Further attempts beside the first one, 1 to 5.
        quantile: The part of first attempts that end before a hedge would be sent: 0.5 to 0.999; 0: *delay* alone
            decides when it is.
        delay: A hedge is sent after so long at the earliest, in milliseconds. Where nothing is known yet of how long
            attempts take, it is sent then, and not at all where this is 0.
    """

    _kinds = kinds(
        max_hedges=integer(1, maximum=5),
        quantile=number(0.5, 0.999, or_zero=True),
        delay=duration(),
    )

    max_hedges: int = 1
    quantile: float = 0.95
    delay: Duration = 0

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Refuse what says nothing of when a hedge is sent."""
        if not values["quantile"] and not seconds(values["delay"], ChronoUnit.MILLIS):
            yield "delay", "is 0 while quantile is 0: nothing says when", "more than 0, or a quantile", ("quantile",)
