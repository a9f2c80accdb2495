"""A throttle that refuses every call, for tests of applications."""

from __future__ import annotations

from collections.abc import Hashable

from ..._strategy.gate import GateState
from .strategy import WATCHING, AdaptiveThrottle


class ExhaustedThrottle(AdaptiveThrottle):
    """A throttle that refuses every call."""

    __slots__ = ()

    state = property(  # pyright: ignore[reportAssignmentType]
        lambda self: WATCHING, vars(AdaptiveThrottle)["state"].__set__
    )

    def admit(self, permit: Hashable, ident: int, now: float) -> GateState:
        """Reject the attempt.

        Raises:
            ThrottleException: Always.
        """
        raise self.refusal(0.0)

    def probability(self, now: float) -> float:
        """Return certainty."""
        return 1.0
