"""How many calls may run at once, so that nine in ten take no longer than a target (rules A1 to A4).

Additive increase, multiplicative decrease, as in TCP. A call within the target, while half of the limit is in use,
raises the limit by ``1 / limit``. More than a tenth of late calls lower it, once per round trip: only calls that began
after the last decrease are looked at, so that a burst of late answers counts once. What is lowered is not the limit but
what was used of it (RFC 5681, equation 4: the flight size), and the more, the later the calls were.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["AdaptiveLimit"]

_PART: Final = 0.1
"""How many of the calls may be late."""
_ENOUGH: Final = 20
"""So few calls count as so many."""
_MEMORY: Final = 200
"""After so many calls all counts are halved."""
_HOPELESS_AFTER: Final = 60.0
"""After so many seconds at a limit of 1 a target that calls alone exceed is wrong."""


class AdaptiveLimit:
    """A limit that moves between 1 and a ceiling, at which it begins. Not safe under threads: the bulkhead's lock is.

    All durations and moments are in seconds of one monotonic clock.

    Args:
        ceiling: The highest limit.
        latency: The target.
    """

    __slots__ = ("_at_one_since", "_count", "_late", "_most", "_over", "_since", "ceiling", "exact", "latency")

    def __init__(self, ceiling: int, latency: float) -> None:
        self.ceiling = ceiling
        self.latency = latency
        self.exact = float(ceiling)
        """The limit, with its fraction."""
        self._since = -math.inf
        self._at_one_since = math.inf
        """Since when the limit is 1 and no call was in time."""
        # Those of the epoch: the attempts that were looked at, the late ones, their seconds, and the highest in use.
        self._count = self._over = self._late = 0.0
        self._most = 0

    @property
    def limit(self) -> int:
        """How many calls may run."""
        return int(self.exact)

    def moves_nothing(self, elapsed: float, running: int) -> bool:
        """Whether a success only counts, which may be done later: it is within the target, and nothing is to grow."""
        return elapsed <= self.latency and (self.exact >= self.ceiling or 2 * running < self.exact)

    def end(self, began: float, ended: float, running: int, *, is_success: bool = True, is_sample: bool = True) -> bool:
        """Look at a call that is over, and tell whether the limit was lowered.

        Args:
            began: When it got its permit.
            ended: When it ended.
            running: The permits that were held at that moment, its own included.
            is_success: Whether it did not fail.
            is_sample: Whether it counts also where it was not late, as every success does and every time-out.
        """
        elapsed = ended - began
        is_late = elapsed > self.latency
        if began < self._since or not (is_late or is_sample):
            return False
        self._count += 1
        self._most = max(self._most, running)
        if is_late:
            self._over += 1
            self._late += elapsed
            is_lowered = self._over > _PART * max(_ENOUGH, self._count)
            if is_lowered:
                self._lower(ended)
            self._at_one_since = min(self._at_one_since, ended) if self.limit == 1 else math.inf
            if is_lowered:
                return True
        elif is_success:
            self._at_one_since = math.inf
            if 2 * running >= self.exact:
                self.exact = min(float(self.ceiling), self.exact + 1 / self.exact)
        if self._count >= _MEMORY:
            self._count /= 2
            self._over /= 2
            self._late /= 2
        return False

    def is_hopeless(self, began: float, ended: float, running: int) -> bool:
        """Whether a call that was looked at shows that the target is wrong (rule A4): one that ran alone was late."""
        return running == 1 and ended - began > self.latency and ended - self._at_one_since >= _HOPELESS_AFTER

    def reconfigure(self, ceiling: int, latency: float) -> None:
        """Take new values; what was learned stays, as far as it lies below the new ceiling."""
        if latency != self.latency:
            self._at_one_since = math.inf
        self.ceiling = ceiling
        self.latency = latency
        self.exact = min(self.exact, float(ceiling))

    def _lower(self, now: float) -> None:
        part = min(0.9, max(0.5, self.latency * self._over / self._late))
        self.exact = max(1.0, min(self.exact, self._most) * part)
        self._since = now
        self._count = self._over = self._late = 0.0
        self._most = 0
